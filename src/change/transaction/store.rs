//! Single files of this program that belong to no transaction: the cache of configs, and what is known about the server.
//!
//! Each is replaced completely and durably, without the lock of a run: a timer that fetches must neither complete nor block
//! what the user has begun.

use std::fs::File;

use serde::Serialize;

use super::disk;
use super::state::{StateDirectory, StateError, make_path_durably};
use crate::base::paths;
use crate::host::root::{Root, RootPath};
use crate::host::sealed;
use crate::node::{Host, Labels};

/// A directory below the state directory.
#[derive(Debug)]
pub struct Store {
    path: RootPath,
    dir: File,
}

impl Store {
    /// Opens a directory of this program, and creates it and the state directory first if they are missing.
    pub fn open_or_make(
        root: &Root,
        directory: &'static str,
        separate_var: bool,
    ) -> Result<Self, StateError> {
        // The directories inherit their parent's label, which is also the policy's for all of this program's files.
        let labels = Labels::default();
        StateDirectory::open_or_make(root, separate_var, &labels)?;
        let path = RootPath::fixed(directory);
        let dir = make_path_durably(root, &path, &labels)?;
        Ok(Self { path, dir })
    }

    /// Writes a file, completely or not at all.
    pub fn put_file(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        disk::replace_durably(&self.dir, name, bytes).map_err(|error| self.file_error(name, error))
    }

    /// Removes a file; a missing one is not an error.
    pub fn remove_file(&self, name: &str) -> Result<(), StateError> {
        use std::os::fd::AsFd;
        disk::remove_file(self.dir.as_fd(), name).map_err(|errno| self.file_error(name, errno))?;
        disk::sync_directory(&self.dir).map_err(|errno| self.file_error(name, errno))
    }

    /// Reserves half of a spare file for the writes of this process; the other half is freed for other programs. A missing file
    /// is not an error.
    pub fn hold_spare(&self, name: &str) -> Result<(), StateError> {
        match disk::open_to_shrink(&self.dir, name).and_then(disk::hold_spare) {
            Err(nix::errno::Errno::ENOENT) => Ok(()),
            result => result.map_err(|errno| self.file_error(name, errno)),
        }
    }

    /// Frees the space of a file that [`Store::hold_spare`] may be holding.
    pub fn remove_spare(&self, name: &str) -> Result<(), StateError> {
        disk::release_spare();
        self.remove_file(name)
    }

    fn file_error(&self, name: &str, error: impl Into<crate::base::reason::Reason>) -> StateError {
        StateError::System(format!("{}/{name}", self.path), error.into())
    }
}

/// Opens a directory below the state directory for single files, outside any transaction.
///
/// # Errors
/// The node cannot be read, or the directory cannot be made.
pub fn open_store(root: &Root, directory: &'static str) -> Result<Store, StateError> {
    let host = Host::observe(root).map_err(|error| {
        StateError::System("looking at the node".to_owned(), error.to_string().into())
    })?;
    Store::open_or_make(root, directory, host.separate_var)
}

/// Writes a value as JSON into the state directory; [`crate::host::state_file::read_remembered`] reads it.
///
/// # Errors
/// The file cannot be written.
pub fn store_value(
    root: &Root,
    file: &'static str,
    value: &impl Serialize,
) -> Result<(), StateError> {
    let store = open_store(root, paths::STATE)?;
    let mut text = Vec::new();
    sealed::write_sealed(
        |out| Ok(serde_json::to_writer_pretty(out, value)?),
        &mut text,
    )
    .map_err(|error| StateError::System(format!("writing /{file}"), error.into()))?;
    store.put_file(RootPath::fixed(file).name(), &text)
}
