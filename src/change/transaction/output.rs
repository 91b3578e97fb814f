//! A file that the user requested, outside of any root: an archive or a page. It is complete or missing, whatever happens.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use nix::unistd::{getegid, geteuid};

use super::disk::{self, ByteSource};
use crate::base::object::{Object, ObjectKind};
use crate::base::reason::Reason;
use crate::host::root::{Place, Root, RootError, RootPath};

/// The reason why a file was not written; nothing else was changed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path does not end in a file name.
    #[error("the path does not end in a file name")]
    NoName,
    /// There is a file that must not be replaced.
    #[error("it exists already")]
    Exists,
    /// The directory cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The system reports an error.
    #[error("{0}")]
    Io(Reason),
}

/// Number of bytes at the start of a file that identify its creator.
const BEGINNING: u64 = 4096;

/// Writes a file that only its owner can read. An existing one is only replaced if `is_ours` accepts its first bytes.
///
/// # Errors
/// The reason; nothing of the new file is left.
pub fn write_output(
    path: &Path,
    bytes: &[u8],
    is_ours: fn(&[u8]) -> bool,
) -> Result<(), OutputError> {
    write_with_mode(path, bytes, is_ours, 0o600)
}

/// Does the same for a file that all users can read, like other programs.
///
/// # Errors
/// The reason; nothing of the new file is left.
pub fn write_readable_output(
    path: &Path,
    bytes: &[u8],
    is_ours: fn(&[u8]) -> bool,
) -> Result<(), OutputError> {
    write_with_mode(path, bytes, is_ours, 0o644)
}

fn write_with_mode(
    path: &Path,
    bytes: &[u8],
    is_ours: fn(&[u8]) -> bool,
    mode: u32,
) -> Result<(), OutputError> {
    let failed = |error: std::io::Error| OutputError::Io(error.into());
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or(OutputError::NoName)?;
    let root = Root::open(directory)?;
    let inside = RootPath::parse(&format!("/{name}")).map_err(|_| OutputError::NoName)?;
    let place = root.open_place(&inside)?.ok_or(OutputError::NoName)?;
    let replaces = may_replace(&place, is_ours)?;
    let temporary = disk::temporary_name(name);
    let result = write_beside(&place, &temporary, bytes, mode)
        .and_then(|()| put_output(&place, &temporary, replaces));
    if result.is_err() {
        // The first error is the one that matters.
        let _ = disk::remove_file(place.dir.as_fd(), &temporary);
    }
    result.map_err(failed)?;
    let directory = disk::open_directory(place.dir.as_fd(), ".");
    let directory = directory.map_err(|errno| OutputError::Io(errno.into()))?;
    disk::sync_directory(&directory).map_err(|errno| OutputError::Io(errno.into()))
}

/// Returns true if an existing file may be replaced.
fn may_replace(place: &Place, is_ours: fn(&[u8]) -> bool) -> Result<bool, OutputError> {
    let failed = |errno: nix::errno::Errno| OutputError::Io(errno.into());
    let Some(stat) = place.stat().map_err(failed)? else {
        return Ok(false);
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(OutputError::Exists);
    }
    let file: File = place.open_file().map_err(failed)?;
    let mut beginning = Vec::new();
    let read = file.take(BEGINNING).read_to_end(&mut beginning);
    read.map_err(|error| OutputError::Io(error.into()))?;
    if is_ours(&beginning) {
        Ok(true)
    } else {
        Err(OutputError::Exists)
    }
}

fn write_beside(place: &Place, temporary: &str, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let object = Object::new(
        ObjectKind::Directory,
        mode,
        (geteuid().as_raw(), getegid().as_raw()),
    );
    disk::remove_file(place.dir.as_fd(), temporary)?;
    disk::write_file(
        place.dir.as_fd(),
        temporary,
        ByteSource::Bytes(bytes),
        &object,
        true,
    )
    .map(drop)
}

fn put_output(place: &Place, temporary: &str, replaces: bool) -> std::io::Result<()> {
    let dir = place.dir.as_fd();
    if replaces {
        disk::rename_over(dir, temporary, place)
    } else {
        disk::place_new(dir, temporary, place)
    }
    .map_err(std::io::Error::from)
}
