//! Copies of files, links and directories, with owner, mode, times, label and extended attributes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{UtimensatFlags, fstat, utimensat};
use nix::sys::time::TimeSpec;

use crate::base::object::{Object, ObjectKind};
use crate::host::root::{Place, extended_attributes};

use super::{
    ByteSource, copy_label, hard_link, is_refusal, make_directory, open_directory, set_attribute,
    write_file, write_link,
};

/// Creates a hard link to the object at `place`, or a copy if the file system does not support hard links for it.
///
/// A process that watches the file itself gets an event about the new link count (inotify's `IN_ATTRIB`). A process that
/// watches its directory gets none.
pub(in super::super) fn link_or_copy(
    place: &Place,
    object: &Object,
    dir: BorrowedFd<'_>,
    name: &str,
    sync: bool,
) -> io::Result<()> {
    match hard_link(place, dir, name) {
        Err(Errno::EXDEV | Errno::EPERM | Errno::EMLINK | Errno::EOPNOTSUPP)
            if object.kind.is_unread() =>
        {
            let words =
                "it is too large to be copied to another file system. Move it away, then run again";
            Err(io::Error::other(words))
        }
        Err(Errno::EXDEV | Errno::EPERM | Errno::EMLINK | Errno::EOPNOTSUPP) => {
            copy_object(place, object, dir, name, sync)
        }
        other => Ok(other?),
    }
}

/// Copies a file or link with owner, mode, times and label.
pub(in super::super) fn copy_object(
    place: &Place,
    object: &Object,
    dir: BorrowedFd<'_>,
    name: &str,
    sync: bool,
) -> io::Result<()> {
    if let ObjectKind::Symlink { target } = &object.kind {
        write_link(dir, name, target, object.owner())?;
        return Ok(copy_label(place, dir, name)?);
    }
    let source = place.open_file()?;
    let (kind, _) = write_file(dir, name, ByteSource::File(&source), object, sync)?;
    if !object.kind.is_copied_as(&kind) {
        return Err(io::Error::other("changed while it was copied"));
    }
    copy_label(place, dir, name)?;
    copy_extended(&source, dir, name)?;
    copy_times(&source, dir, name)
}

/// Copies a directory with all its content: directories are created, files and links are hard-linked or copied. Stays on the
/// mount of `source`.
pub(in super::super) fn copy_tree(
    source: &Place,
    dir: BorrowedFd<'_>,
    name: &str,
    sync: bool,
) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV);
    let from = File::from(openat2(&source.dir, source.name.as_str(), how)?);
    let stat = fstat(&from)?;
    make_directory(dir, name, stat.st_mode & 0o7777, (stat.st_uid, stat.st_gid))?;
    let made = open_directory(dir, name)?;
    copy_label(source, dir, name)?;
    for entry in Dir::from_fd(from.try_clone()?.into())?.iter() {
        let entry = entry?;
        let Ok(child) = entry.file_name().to_str() else {
            return Err(io::Error::from_raw_os_error(libc::EILSEQ));
        };
        if matches!(child, "." | "..") {
            continue;
        }
        let place = Place {
            dir: Arc::new(from.try_clone()?.into()),
            name: child.to_owned(),
        };
        match place.observe()? {
            Some((object, _)) if object.is_directory() => {
                copy_tree(&place, made.as_fd(), child, sync)?;
            }
            Some((object, _)) => link_or_copy(&place, &object, made.as_fd(), child, sync)?,
            None => return Err(io::Error::other("changed while it was copied")),
        }
    }
    // Copied after the content, which would otherwise inherit from its access list.
    copy_extended(&from, dir, name)?;
    copy_times(&from, dir, name)
}

/// Copies access lists and user attributes like `cp -a`, if the other file system supports them. An access list contains the
/// group's mode, so a copy with another mode gets none.
pub(in super::super) fn copy_extended(
    source: &File,
    dir: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    let attributes = extended_attributes(source)?;
    if attributes.is_empty() {
        return Ok(());
    }
    let copy = nix::sys::stat::fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let same_mode = copy.st_mode == fstat(source)?.st_mode;
    for (attribute, value) in attributes {
        let is_access_list = attribute.as_bytes() == b"system.posix_acl_access";
        if is_access_list && !same_mode {
            continue;
        }
        match set_attribute(dir, name, &attribute, &value) {
            Err(errno) if is_refusal(errno) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Copies access and modification times, like `cp -a`.
pub(in super::super) fn copy_times(
    source: &File,
    dir: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    let stat = fstat(source)?;
    let accessed = TimeSpec::new(stat.st_atime, stat.st_atime_nsec);
    let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
    Ok(utimensat(
        dir,
        name,
        &accessed,
        &modified,
        UtimensatFlags::NoFollowSymlink,
    )?)
}
