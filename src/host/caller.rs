//! Paths that the user named on the command line. They are resolved as any program resolves them, from the working directory,
//! and never below the node's root.
#![allow(
    clippy::disallowed_methods,
    reason = "the one place for paths that the user named; none of them is below the node's root"
)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Opens a file to read.
///
/// # Errors
/// The system's error.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Returns true if a path exists; links are followed.
///
/// # Errors
/// The system's error, if the path cannot be looked at.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    path.as_ref().try_exists()
}

/// Returns true if a path exists; links are followed. A path that cannot be looked at counts as missing.
pub fn is_there(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Returns true for a directory; links are followed.
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_dir()
}

/// Returns true for a regular file; links are followed.
pub fn is_file(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_file()
}

/// Returns true for a pipe or a terminal, such as `/dev/stdin`; links are followed.
pub fn is_stream(path: impl AsRef<Path>) -> bool {
    let kind = path.as_ref().metadata().map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_socket())
}

/// Returns the paths in a directory, in the order of the file system.
///
/// # Errors
/// The system's error.
pub fn list_paths(directory: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

/// Returns a path without links, `.` and `..`.
///
/// # Errors
/// The system's error.
pub fn resolve_links(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    path.as_ref().canonicalize()
}
