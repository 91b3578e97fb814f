//! The private copy of the account files on which the tools run. All effects are limited to that copy: a directory that only
//! root can enter, removed when the value is dropped.
#![allow(
    clippy::disallowed_methods,
    reason = "a private directory of our own, never the node's root"
)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::host::sys::signals::DeferredSignals;
use crate::node::account_files::{AccountFiles, WRITTEN};

/// Parent directories, those in memory first, because the files contain hashes.
const PLACES: [&str; 2] = ["/run", "/tmp"];
/// The name service configuration: the tools look up only the copy.
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nsubid: files\n";

/// A directory with account files that the tools use as `/`.
pub(super) struct PrivateCopy {
    dir: PathBuf,
    // Dropped after the directory is removed, so that no signal ends the program before that.
    _signals: DeferredSignals,
}

impl PrivateCopy {
    /// Writes the account files, merged with those of the OS, and the settings of the tools.
    ///
    /// # Errors
    /// The system's error; the directory is removed then.
    pub(super) fn write_copy(
        files: &AccountFiles,
        settings: &[(&str, Vec<u8>)],
    ) -> io::Result<Self> {
        let signals = DeferredSignals::new();
        let copy = Self {
            dir: make_directory()?,
            _signals: signals,
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(copy.dir.join("etc/default"))?;
        copy.write_file("etc/nsswitch.conf", NSSWITCH.as_bytes())?;
        for (path, bytes) in settings {
            copy.write_file(path, bytes)?;
        }
        for path in WRITTEN {
            if let Some(bytes) = files.merged_file(path) {
                copy.write_file(path, &bytes)?;
            }
        }
        Ok(copy)
    }

    /// Returns the path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the account files after the tools have run; `before` are the originals of the copy.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn read_files(&self, before: &AccountFiles) -> io::Result<AccountFiles> {
        let mut found = Vec::new();
        for path in WRITTEN {
            found.push((path, self.read_one(path)?));
        }
        Ok(before.after_tools(|path| {
            let same = found.iter_mut().find(|(name, _)| *name == path);
            same.and_then(|(_, bytes)| bytes.take())
        }))
    }

    fn read_one(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.dir.join(path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_file(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(self.dir.join(path))?.write_all(bytes)
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            log::warn!("removing {}: {error}", self.dir.display());
        }
    }
}

/// Creates a directory, 0700, with an unpredictable name.
fn make_directory() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in PLACES {
        match nix::unistd::mkdtemp(&Path::new(place).join("mco-rescue-XXXXXX")) {
            Ok(dir) => return Ok(dir),
            Err(errno) => last = errno.into(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_copy_is_private_and_leaves_nothing_behind() {
        let mut files = AccountFiles::default();
        files.insert(paths::SHADOW, b"a:hash:1::::::\n".to_vec());
        let copy =
            PrivateCopy::write_copy(&files, &[(paths::LOGIN_DEFS, b"UID_MIN 1000\n".to_vec())])
                .unwrap();
        let dir = copy.path().to_owned();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("etc/shadow")), 0o600);
        assert_eq!(copy.read_files(&files).unwrap(), files);
        drop(copy);
        assert!(fs::symlink_metadata(dir).is_err());
    }
}
