//! The files of a node as the next boot has them: those on its disk, with the files of a new config in the place of the old
//! config's.

use std::collections::{BTreeMap, BTreeSet};

use super::NextConfig;
use crate::document::DesiredFile;
use crate::root::{EntryType, Root, RootError, RootPath};

/// The files below a root, before a run or after it.
#[derive(Debug, Clone)]
pub(super) struct NodeFiles<'a> {
    root: &'a Root,
    /// Files that the run writes, by path without the first slash.
    written: BTreeMap<&'a str, &'a DesiredFile>,
    /// Files that the run removes, likewise.
    removed: BTreeSet<&'a str>,
}

impl<'a> NodeFiles<'a> {
    /// Returns the files of a root; with `next`, as a run with that config leaves them.
    pub(super) fn new(root: &'a Root, next: Option<NextConfig<'a>>) -> Self {
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

    /// Returns true if anything is at the path.
    pub(super) fn exists(&self, path: &RootPath) -> Result<bool, RootError> {
        let relative = path.relative();
        if self.written.contains_key(relative) || self.removed.contains(relative) {
            return Ok(self.written.contains_key(relative));
        }
        self.root.exists(path)
    }

    /// Returns the names in a directory, sorted; empty if there is none.
    pub(super) fn list(&self, directory: &RootPath) -> Result<Vec<String>, RootError> {
        let names = self.root.list(directory)?.into_iter();
        let mut all: BTreeSet<String> = names
            .filter(|name| !self.is_removed(directory, name))
            .collect();
        all.extend(self.written_below(directory).map(|(name, _)| name));
        Ok(all.into_iter().collect())
    }

    /// Returns the names in a directory with their types; empty if there is none.
    pub(super) fn list_types(
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

    /// Returns the bytes of a small file; `None` if there is no such file, or a large one.
    pub(super) fn read_small(&self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        let relative = path.relative();
        if let Some(file) = self.written.get(relative) {
            return Ok(file.contents.bytes().ok());
        }
        if self.removed.contains(relative) {
            return Ok(None);
        }
        self.root.read_small(path)
    }

    /// Returns the text of a small file, without blanks around it.
    pub(super) fn read_text(&self, path: &RootPath) -> Option<String> {
        let bytes = self.read_small(path).ok()??;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn is_removed(&self, directory: &RootPath, name: &str) -> bool {
        let path = directory.join(name);
        path.is_ok_and(|path| self.removed.contains(path.relative()))
    }

    /// Returns the first names below a directory of the paths that the run writes.
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
