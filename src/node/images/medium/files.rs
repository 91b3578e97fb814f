//! The files of a medium, in a directory or in an archive.

use std::io::{self, Read};

use nix::errno::Errno;

use crate::host::root::{ResolveError, Root, RootError, RootPath};
use crate::node::images::archive::Archive;

#[derive(Debug)]
pub(super) enum MediumFiles {
    Directory(Root),
    Archive(Archive),
}

impl MediumFiles {
    /// Returns the number of bytes that are present; `None` if the file is missing.
    pub(super) fn size_of(&self, name: &str) -> io::Result<Option<u64>> {
        match self {
            Self::Archive(archive) => Ok(archive.size_of(name)),
            Self::Directory(root) => {
                let Some(path) = path_inside(name) else {
                    return Ok(None);
                };
                let stat = root.stat(&path).map_err(io::Error::other)?;
                let file = stat.filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
                Ok(file.map(|stat| u64::try_from(stat.st_size).unwrap_or_default()))
            }
        }
    }

    pub(super) fn read_file<T>(
        &self,
        name: &str,
        with: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        match self {
            Self::Archive(archive) => archive.read_file(name, with),
            Self::Directory(root) => {
                // Opening a pipe would block forever.
                let (Some(path), Some(_)) = (path_inside(name), self.size_of(name)?) else {
                    return Ok(None);
                };
                let file = root.open_file(&path).map_err(io::Error::other)?;
                file.map(|mut file| with(&mut file)).transpose()
            }
        }
    }
}

pub(super) fn path_inside(name: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{name}")).ok()
}

/// Returns true if the path is missing, or is a file.
pub(super) fn is_no_directory(error: &RootError) -> bool {
    let kinds = [Errno::ENOTDIR, Errno::ENOENT];
    matches!(error.cause, ResolveError::System(errno) if kinds.contains(&errno))
}
