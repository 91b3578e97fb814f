//! Reads that failed below a root, so that a summary can name what is not known, whatever the readers make of the errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::{ResolveError, Root, RootError, RootPath};

/// The failed reads of a root, and of every root that was opened from it.
#[derive(Debug, Default)]
pub(super) struct FailedReads(Mutex<ReadLedger>);

#[derive(Debug, Default)]
struct ReadLedger {
    failed: BTreeMap<String, ResolveError>,
    listed: BTreeSet<String>,
}

/// Directories that are listed too, but whose files are known by their names.
const KNOWN_BY_NAME: [&str; 2] = ["/etc", "/var/lib/mco-rescue"];

impl FailedReads {
    fn ledger(&self) -> MutexGuard<'_, ReadLedger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Root {
    /// Returns this root, which notes from now on each path that exists and cannot be read.
    pub fn noting_failures(mut self) -> Self {
        self.failures = Some(std::sync::Arc::default());
        self
    }

    /// Returns the paths that could not be read, sorted; none unless [`Root::noting_failures`] was called. A file above a limit
    /// is not among them, nor is a directory in a listed one: what reads drop-ins skips it.
    pub fn failed_reads(&self) -> Vec<RootError> {
        let Some(failures) = &self.failures else {
            return Vec::new();
        };
        let ledger = failures.ledger();
        let is_in_listed = |path: &str| {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            !KNOWN_BY_NAME.contains(&above) && ledger.listed.contains(above)
        };
        let failed = ledger.failed.iter().filter(|(path, cause)| {
            !(**cause == ResolveError::System(Errno::EISDIR) && is_in_listed(path))
        });
        failed
            .map(|(path, cause)| RootError::at(path, cause.clone()))
            .collect()
    }

    /// Notes an error, except one of a missing path or of a size limit.
    pub(super) fn note_failure<T>(&self, read: Result<T, RootError>) -> Result<T, RootError> {
        if let (Some(failures), Err(error)) = (&self.failures, &read) {
            let is_limit = error.cause == ResolveError::System(Errno::EFBIG);
            if !error.cause.is_missing() && !is_limit {
                let (path, cause) = (error.path.clone(), error.cause.clone());
                failures.ledger().failed.insert(path, cause);
            }
        }
        read
    }

    /// Notes that the names of a directory were read.
    pub(super) fn note_listed(&self, path: &RootPath) {
        if let Some(failures) = &self.failures {
            failures.ledger().listed.insert(path.to_string());
        }
    }
}
