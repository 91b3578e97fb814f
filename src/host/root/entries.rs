//! The names in a directory, and their kinds.

use std::os::fd::OwnedFd;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstatat};

use super::resolve;

/// Type of a directory entry, as the directory itself stores it: anything mounted over the entry is not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Directory,
    /// A device, pipe or socket.
    Other,
}

pub(super) fn names_in(fd: OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names: Vec<String> = entries_of(&mut Dir::from_fd(fd)?)?
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    names.sort();
    Ok(names)
}

pub(super) fn types_in(fd: OwnedFd) -> Result<Vec<(String, EntryType)>, Errno> {
    let mut dir = Dir::from_fd(fd)?;
    let mut types = Vec::new();
    for (name, found) in entries_of(&mut dir)? {
        let entry_type = match found {
            Some(Type::File) => EntryType::File,
            Some(Type::Symlink) => EntryType::Link,
            Some(Type::Directory) => EntryType::Directory,
            Some(_) => EntryType::Other,
            // Not every file system stores the type in the directory.
            None => match fstatat(&dir, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => EntryType::from_stat(&stat),
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(errno),
            },
        };
        types.push((name, entry_type));
    }
    Ok(types)
}

fn entries_of(dir: &mut Dir) -> Result<Vec<(String, Option<Type>)>, Errno> {
    let mut entries = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            entries.push((name, entry.file_type()));
        }
    }
    Ok(entries)
}

impl EntryType {
    fn from_stat(stat: &FileStat) -> Self {
        match resolve::kind_of(stat) {
            SFlag::S_IFREG => Self::File,
            SFlag::S_IFLNK => Self::Link,
            SFlag::S_IFDIR => Self::Directory,
            _ => Self::Other,
        }
    }
}
