//! Files of the running system: the kernel's interfaces below `/proc`, `/sys` and the cgroup file system, devices, and markers
//! below `/run` and `/etc` that describe this boot.
//!
//! They are absolute paths of the machine that the program runs on, whatever root it works on. A path of the node goes through
//! [`super::root`], a path that the user named through [`super::caller`].
#![allow(
    clippy::disallowed_methods,
    reason = "the one place for files of the running system; none of them is below the node's root"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// Reads a file as text.
///
/// # Errors
/// The system's error, or bytes that are not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Reads a file of any bytes.
///
/// # Errors
/// The system's error.
pub fn read_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Reads a file of any bytes, and returns `None` if it is missing.
///
/// # Errors
/// Any other error of the system.
pub fn read_if_present(path: impl AsRef<Path>) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads at most `limit` bytes of a file.
///
/// # Errors
/// The system's error.
pub fn read_at_most(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the target of a link.
///
/// # Errors
/// The system's error.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::read_link(path)
}

/// Returns true if a path exists. A path that cannot be looked at counts as missing.
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Returns the bytes that can still be written to the file system of a path.
///
/// # Errors
/// The system's error.
pub fn free_bytes(path: impl AsRef<Path>) -> io::Result<u64> {
    let space = statvfs(path.as_ref())?;
    Ok(space.blocks_available() * space.fragment_size())
}

/// Returns the names in a directory, in the order of the file system. A name that is not UTF-8 is left out.
///
/// # Errors
/// The system's error.
pub fn list_names(directory: impl AsRef<Path>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Writes a setting of the kernel.
///
/// # Errors
/// The system's error.
pub fn write_setting(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    fs::write(path, text)
}

/// Writes to a character device. The device does not become the process's terminal, and a full one does not block.
///
/// # Errors
/// The system's error.
pub fn write_to_device(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let mut device = fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)?;
    device.write_all(text.as_bytes())
}
