//! The files of a node as of the next boot: those on its disk, with the files of a new config replacing those of the old one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use super::NextConfig;
use crate::config::document::{DesiredFile, Owner};
use crate::host::root::{EntryType, Root, RootError, RootPath, stat_of_open};

/// The files below a root, before a run or after it.
#[derive(Debug, Clone)]
pub(in crate::node) struct NodeFiles<'a> {
    root: &'a Root,
    /// Files that the run writes, by path without the leading slash.
    written: BTreeMap<&'a str, &'a DesiredFile>,
    /// Files that the run removes, likewise.
    removed: BTreeSet<&'a str>,
}

impl<'a> NodeFiles<'a> {
    /// Returns the files of a root; with `next`, as they will be after a run of that config.
    pub(in crate::node) fn new(root: &'a Root, next: Option<NextConfig<'a>>) -> Self {
        let written = next.iter().flat_map(|next| &next.desired.files);
        let old = next.and_then(|next| next.old);
        let removed = old.into_iter().flat_map(|old| &old.files);
        let mut files = Self {
            root,
            removed: removed.map(|file| file.path.relative()).collect(),
            written: written.map(|file| (file.path.relative(), file)).collect(),
        };
        files
            .removed
            .retain(|path| !files.written.contains_key(path));
        files
    }

    /// Returns true for a file that the run writes.
    pub(in crate::node) fn is_written(&self, path: &RootPath) -> bool {
        self.written.contains_key(path.relative())
    }

    /// Returns true if anything is at the path.
    pub(in crate::node) fn exists(&self, path: &RootPath) -> Result<bool, RootError> {
        let relative = path.relative();
        if self.written.contains_key(relative) || self.removed.contains(relative) {
            return Ok(self.written.contains_key(relative));
        }
        self.root.exists(path)
    }

    /// Returns the names in a directory, sorted; empty if there is none.
    pub(in crate::node) fn list(&self, directory: &RootPath) -> Result<Vec<String>, RootError> {
        let names = self.root.list(directory)?.into_iter();
        let mut all: BTreeSet<String> = names
            .filter(|name| !self.is_removed(directory, name))
            .collect();
        all.extend(self.written_below(directory).map(|(name, _)| name));
        Ok(all.into_iter().collect())
    }

    /// Returns the names in a directory with their types; empty if there is none.
    pub(in crate::node) fn list_types(
        &self,
        directory: &RootPath,
    ) -> Result<Vec<(String, EntryType)>, RootError> {
        let names = self.root.list_types(directory)?.into_iter();
        let mut all: BTreeMap<String, EntryType> = names
            .filter(|(name, _)| !self.is_removed(directory, name))
            .collect();
        all.extend(self.written_below(directory));
        Ok(all.into_iter().collect())
    }

    /// Returns the bytes of a small file; `None` if it is missing or too large.
    pub(in crate::node) fn read_small(
        &self,
        path: &RootPath,
    ) -> Result<Option<Vec<u8>>, RootError> {
        let relative = path.relative();
        if let Some(file) = self.written.get(relative) {
            return Ok(file.contents.bytes().ok());
        }
        if self.removed.contains(relative) {
            return Ok(None);
        }
        self.root.read_small(path)
    }

    /// Returns the trimmed text of a small file; `None` if it is missing or too large.
    pub(in crate::node) fn read_text(&self, path: &RootPath) -> Result<Option<String>, RootError> {
        let bytes = self.read_small(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Returns owner and permission bits of a file, following links; `None` if it is not a file.
    pub(in crate::node) fn owner_and_mode(
        &self,
        path: &RootPath,
    ) -> Result<Option<(u32, u32)>, RootError> {
        let relative = path.relative();
        if let Some(file) = self.written.get(relative) {
            // Names of owners are resolved when the file is written; a connection is owned by root.
            let uid = match file.user {
                Owner::Id(uid) => uid,
                Owner::Name(_) => 0,
            };
            return Ok(Some((uid, file.mode)));
        }
        if self.removed.contains(relative) {
            return Ok(None);
        }
        let Some(file) = self.root.open_followed(path)? else {
            return Ok(None);
        };
        let (stat, _) = stat_of_open(file.as_fd()).map_err(|errno| RootError::at(path, errno))?;
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        Ok(is_file.then_some((stat.st_uid, stat.st_mode & 0o7777)))
    }

    fn is_removed(&self, directory: &RootPath, name: &str) -> bool {
        let path = directory.join(name);
        path.is_ok_and(|path| self.removed.contains(path.relative()))
    }

    /// Returns the names in a directory under which the run writes files.
    fn written_below(
        &self,
        directory: &RootPath,
    ) -> impl Iterator<Item = (String, EntryType)> + use<'_, 'a> {
        let prefix = format!("{}/", directory.relative());
        let names = self.written.keys().filter_map(move |path| {
            let rest = path.strip_prefix(&prefix)?;
            Some(match rest.split_once('/') {
                Some((name, _)) => (name.to_owned(), EntryType::Directory),
                None => (rest.to_owned(), EntryType::File),
            })
        });
        names.collect::<Vec<_>>().into_iter()
    }
}
