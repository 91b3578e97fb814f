//! The unit directories of a root as plain values.
//!
//! Contains the tree's types, the directories that systemd reads, and the changes to links. The meaning of a unit file is up to
//! `lookup` and `install`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::chase::{PathNodes, chase_path};
use super::unit_entry::{TreeNode, insert_below, node_of, remove_below};

pub use super::unit_entry::UnitEntry;

/// Directory in which `systemctl --root` creates and removes links.
pub const CONFIG_DIR: &str = "/etc/systemd/system";

/// Directory of runtime configuration; the next boot removes it.
pub const RUNTIME_CONFIG_DIR: &str = "/run/systemd/system";

/// Directories that contain links of enabled units.
pub const LINK_DIRS: [&str; 2] = [CONFIG_DIR, RUNTIME_CONFIG_DIR];

/// Directories in which systemd looks for units, highest priority first.
///
/// This is the list of a systemd built for a merged `/usr`, as in RHEL and Fedora.
/// Builds for a split `/usr` (Debian 12) also have `/lib/systemd/system`, just
/// before `/usr/lib/systemd/system`, and then write that into links; a caller that
/// needs those adds the directory to [`UnitTree::dirs`].
pub const UNIT_SEARCH_PATH: [&str; 12] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    CONFIG_DIR,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
];

/// Directories in which systemd looks for `*.preset` files, highest priority first.
pub const PRESET_PATH: [&str; 4] = [
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
];

/// Directories that exist on every system. Any other directory on a path may be a link, such as `/opt` and `/usr/local` with
/// ostree, and has to be read.
const DIRECTORIES: [&str; 7] = [
    "/etc",
    "/etc/systemd",
    "/run",
    "/run/systemd",
    "/usr",
    "/usr/lib",
    "/usr/lib/systemd",
];

/// Links to it mask units, whatever the root has there.
pub(super) const NULL_DEVICE: &str = "/dev/null";

/// The unit directories and presets of one root.
///
/// All paths are absolute inside the root. Start from [`UnitTree::new`], fill in the entries of the directories, then call
/// [`read_units`](super::read_units) to read what matters for the units in question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitTree {
    /// The unit search path, highest priority first. A directory that is in the
    /// search path but does not exist still belongs here, without entries.
    pub dirs: Vec<UnitDir>,
    /// The preset directories, highest priority first.
    pub presets: Vec<PresetDir>,
    /// Nodes at paths outside of `dirs`: files that linked units lead to, and the directories and directory links on the paths
    /// of targets (`/lib` to `usr/lib`). Of the entries of such directories, only the names matter.
    pub outside: BTreeMap<String, UnitEntry>,
    /// True if generators create units from other files of the root (quadlets, SysV scripts), which are in no directory here.
    pub has_sources: bool,
    /// True if no directory can be created in `/`, because it is the root of an OSTree deployment.
    pub has_fixed_root: bool,
}

/// One directory of the unit search path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitDir {
    /// Absolute inside the root, such as `/etc/systemd/system`.
    pub path: String,
    /// Everything in it, by name.
    pub entries: BTreeMap<String, UnitEntry>,
}

/// One directory of presets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PresetDir {
    /// Absolute inside the root, such as `/etc/systemd/system-preset`.
    pub path: String,
    /// The contents of its files by name, links followed; a link to `/dev/null`
    /// or to nothing counts as an empty file.
    pub files: BTreeMap<String, String>,
}

/// One change to a link below [`CONFIG_DIR`], or in a directory that a link there leads to.
///
/// Directories are implied: creating a link creates its parents, and removing one removes those parents below the config
/// directory that become empty, as systemctl does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChange {
    /// A new link, at an unused path.
    Create {
        /// Absolute inside the root.
        path: String,
        /// The target to write, absolute inside the root.
        target: String,
    },
    /// The removal of a link.
    Remove {
        /// Absolute inside the root.
        path: String,
    },
}

impl UnitTree {
    /// Returns a tree with all directories of [`UNIT_SEARCH_PATH`] and [`PRESET_PATH`], all empty.
    pub fn new() -> Self {
        UnitTree {
            dirs: UNIT_SEARCH_PATH
                .iter()
                .map(|path| UnitDir::empty(path))
                .collect(),
            presets: PRESET_PATH
                .iter()
                .map(|path| PresetDir::empty(path))
                .collect(),
            ..Self::default()
        }
    }

    /// Sets the entry at a path of the tree: below one of `dirs` if the path is there, otherwise in `outside`. Follows links
    /// above it.
    pub fn set_entry(&mut self, path: &str, entry: UnitEntry) {
        let path = &*self.behind_links(path).into_owned();
        match self
            .dirs
            .iter_mut()
            .find_map(|dir| Some((path_below(path, &dir.path)?, dir)))
        {
            Some((below, dir)) => insert_below(&mut dir.entries, below, entry),
            None => self.set_outside(path, entry),
        }
    }

    /// Sets the entry at a path outside the search path, and adds its name to its directory.
    fn set_outside(&mut self, path: &str, entry: UnitEntry) {
        if let Some((parent, name)) = path.rsplit_once('/')
            && let Some(UnitEntry::Directory(names)) = self.outside.get_mut(parent)
        {
            match entry {
                UnitEntry::Missing => names.remove(name),
                _ => names.insert(name.to_owned(), UnitEntry::Other),
            };
        }
        self.outside.insert(path.to_owned(), entry);
    }

    /// Returns the path of an entry with the links above it resolved, as far as possible.
    fn behind_links<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let mut dirs = self.dirs.iter();
        let found = dirs.find_map(|dir| Some((path_below(path, &dir.path)?, dir)));
        // Almost no path has any above it.
        let has_link = found.is_some_and(|(below, dir)| {
            let mut above = below.match_indices('/').map(|(end, _)| &below[..end]);
            above.any(|above| matches!(dir.get_entry(above), Some(UnitEntry::Link(_))))
        });
        let (Some((parent, name)), true) = (path.rsplit_once('/'), has_link) else {
            return Cow::Borrowed(path);
        };
        match chase_path(self, parent, true) {
            Ok(real) => Cow::Owned(format!("{real}/{name}")),
            Err(_) => Cow::Borrowed(path),
        }
    }

    /// Returns the entry at a path. Follows links above it.
    pub fn get_entry(&self, path: &str) -> Option<&UnitEntry> {
        let path = &*self.behind_links(path);
        let mut dirs = self.dirs.iter();
        let Some((below, dir)) = dirs.find_map(|dir| Some((path_below(path, &dir.path)?, dir)))
        else {
            return self.outside.get(path);
        };
        dir.get_entry(below)
    }

    /// Returns the node at a path, without following links; `None` if the path was not read.
    pub(super) fn known_node(&self, path: &str) -> Option<TreeNode<'_>> {
        if path == NULL_DEVICE {
            return Some(TreeNode::Null);
        }
        for dir in &self.dirs {
            if path == dir.path {
                return Some(TreeNode::Directory(&dir.entries));
            }
            if let Some(below) = path_below(path, &dir.path) {
                return Some(dir.get_entry(below).map_or(TreeNode::Missing, node_of));
            }
        }
        self.outside.get(path).map(node_of)
    }

    /// Returns true for a path below the search path, of which everything is known except the contents of files.
    pub(super) fn covers_path(&self, path: &str) -> bool {
        let mut dirs = self.dirs.iter();
        dirs.any(|dir| path_below(path, &dir.path).is_some())
    }

    /// Applies a change to this value.
    pub fn apply_change(&mut self, change: &LinkChange) {
        match change {
            LinkChange::Create { path, target } => {
                self.set_entry(path, UnitEntry::Link(target.clone()));
            }
            LinkChange::Remove { path } => {
                let path = &*self.behind_links(path).into_owned();
                if self.outside.contains_key(path) {
                    self.set_outside(path, UnitEntry::Missing);
                }
                for dir in &mut self.dirs {
                    if let Some(below) = path_below(path, &dir.path) {
                        remove_below(&mut dir.entries, below);
                    }
                }
            }
        }
    }

    /// Returns the entries of a directory of the search path; `None` if it is not one.
    pub(super) fn entries_of(&self, path: &str) -> Option<&BTreeMap<String, UnitEntry>> {
        self.dirs
            .iter()
            .find(|dir| dir.path == path)
            .map(|dir| &dir.entries)
    }
}

impl PathNodes for UnitTree {
    fn node_at(&self, path: &str) -> TreeNode<'_> {
        self.known_node(path).unwrap_or(TreeNode::Missing)
    }

    fn is_assumed(&self, path: &str) -> bool {
        DIRECTORIES.contains(&path) && self.known_node(path).is_none()
    }
}

impl UnitDir {
    /// Returns a directory without entries.
    pub fn empty(path: &str) -> Self {
        UnitDir {
            path: path.to_owned(),
            entries: BTreeMap::new(),
        }
    }

    /// Returns the entry at a path below it.
    pub(super) fn get_entry(&self, below: &str) -> Option<&UnitEntry> {
        let mut names = below.split('/');
        let first = self.entries.get(names.next()?)?;
        names.try_fold(first, |entry, name| match entry {
            UnitEntry::Directory(entries) => entries.get(name),
            _ => None,
        })
    }
}

impl PresetDir {
    /// Returns a directory without presets.
    pub fn empty(path: &str) -> Self {
        PresetDir {
            path: path.to_owned(),
            files: BTreeMap::new(),
        }
    }
}

/// Returns the rest of `path` below `dir`, without a leading slash.
pub(super) fn path_below<'p>(path: &'p str, dir: &str) -> Option<&'p str> {
    path.strip_prefix(dir)?
        .strip_prefix('/')
        .filter(|below| !below.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_created_link_is_found_below_its_directory() {
        let mut tree = UnitTree::new();
        let path = "/etc/systemd/system/a.target.wants/b.service".to_owned();
        tree.apply_change(&LinkChange::Create {
            path,
            target: "/x".to_owned(),
        });
        let wants = tree.entries_of(CONFIG_DIR).unwrap().get("a.target.wants");
        let expected = BTreeMap::from([("b.service".to_owned(), UnitEntry::Link("/x".to_owned()))]);
        assert_eq!(wants, Some(&UnitEntry::Directory(expected)));
    }

    #[test]
    fn removing_the_last_link_removes_the_directory() {
        let mut tree = UnitTree::new();
        let path = "/etc/systemd/system/a.target.wants/b.service".to_owned();
        tree.apply_change(&LinkChange::Create {
            path: path.clone(),
            target: "/x".to_owned(),
        });
        tree.apply_change(&LinkChange::Remove { path });
        assert_eq!(tree, UnitTree::new());
    }

    #[test]
    fn what_is_not_below_a_search_directory_is_kept_outside() {
        let mut tree = UnitTree::new();
        tree.set_entry("/etc/systemd/system.conf", UnitEntry::Missing);
        assert_eq!(
            tree.outside.keys().collect::<Vec<_>>(),
            ["/etc/systemd/system.conf"]
        );
    }
}
