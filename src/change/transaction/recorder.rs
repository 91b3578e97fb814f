//! Writes snapshots of the flight recorder: first the parts, then the record that refers to them, and finally removes what is
//! no longer needed. An interruption at any time leaves the existing snapshots, and perhaps a part without a record, which the
//! next snapshot removes.

use std::fs::File;
use std::os::fd::AsFd;

use super::disk::{self, ByteSource};
use super::lock::Lock;
use super::state::{StateDirectory, StateError, make_path_durably};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::{Host, Labels};

/// A file of the recorder: name and bytes.
pub type RecorderFile = (String, Vec<u8>);

/// Files that are written or removed together, in the order of the fields.
#[derive(Debug, Default)]
pub struct RecorderWrite {
    /// Parts, and the key of a new recorder: durable before the records.
    pub first: Vec<RecorderFile>,
    /// Records.
    pub records: Vec<RecorderFile>,
    /// Names of files that are no longer needed.
    pub gone: Vec<String>,
    /// Files that may be lost, because they are only a cache.
    pub last: Vec<RecorderFile>,
}

impl RecorderWrite {
    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
            && self.records.is_empty()
            && self.gone.is_empty()
            && self.last.is_empty()
    }
}

/// Writes snapshots below the state directory.
///
/// # Errors
/// The first file that cannot be written; those before it are complete.
pub fn write_snapshots(root: &Root, lock: &Lock, write: &RecorderWrite) -> Result<(), StateError> {
    if write.is_empty() {
        return Ok(());
    }
    lock.require_writable()
        .map_err(|error| StateError::System("the lock".to_owned(), error.to_string().into()))?;
    let host = Host::observe(root).map_err(|error| {
        StateError::System("looking at the node".to_owned(), error.to_string().into())
    })?;
    StateDirectory::open_or_make(root, host.separate_var, &Labels::default())?;
    write_into(root, &RootPath::fixed(paths::RECORDER), write)
}

/// Writes copies of snapshots below `/boot`.
///
/// # Errors
/// The first file that cannot be written.
pub fn write_boot_copies(
    root: &Root,
    _lock: &Lock,
    write: &RecorderWrite,
) -> Result<(), StateError> {
    if write.is_empty() {
        return Ok(());
    }
    write_into(root, &RootPath::fixed(paths::BOOT_RECORDER), write)
}

fn write_into(root: &Root, path: &RootPath, write: &RecorderWrite) -> Result<(), StateError> {
    // The directory gets the label of its parent.
    let dir = make_path_durably(root, path, &Labels::default())?;
    let failed = |name: &str, reason: Reason| StateError::System(format!("{path}/{name}"), reason);
    let put = |(name, bytes): &RecorderFile, sync: bool| -> Result<(), StateError> {
        put_file(&dir, name, bytes, sync).map_err(|reason| failed(name, reason))
    };
    let sync = || disk::sync_directory(&dir).map_err(|errno| failed("", errno.into()));
    write.first.iter().try_for_each(|file| put(file, true))?;
    if !write.first.is_empty() {
        sync()?;
    }
    write.records.iter().try_for_each(|file| put(file, true))?;
    if !write.records.is_empty() {
        sync()?;
    }
    for name in &write.gone {
        disk::remove_file(dir.as_fd(), name).map_err(|errno| failed(name, errno.into()))?;
    }
    write.last.iter().try_for_each(|file| put(file, false))
}

fn put_file(dir: &File, name: &str, bytes: &[u8], sync: bool) -> Result<(), Reason> {
    disk::write_temporary(dir, name, ByteSource::Bytes(bytes), sync)?;
    Ok(disk::commit_temporary(dir, name)?)
}
