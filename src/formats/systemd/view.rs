//! A [`UnitTree`] queried like a file system.
//!
//! Handles path walking and the changes made so far. A path that was never read is recorded and treated as missing, so that one
//! walk finds everything that is missing. Nothing here knows about units.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::fault::Fault;
use super::unit_tree::{LinkChange, UnitDir, UnitEntry, UnitTree, path_below};

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

/// systemd gives up on a path with more links than this.
const LINKS_MAX: usize = 31;

/// Maximum length of a file name.
const NAME_MAX: usize = 255;

/// Something at a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum TreeNode<'v> {
    Missing,
    /// A device node; only `/dev/null` is known to be one.
    Null,
    File(Option<&'v str>),
    Link(&'v str),
    Directory(&'v BTreeMap<String, UnitEntry>),
    Other,
}

/// A tree, the changes made to it, and the paths that should have been read.
pub(super) struct View<'t> {
    tree: Cow<'t, UnitTree>,
    changes: Vec<LinkChange>,
    unread: RefCell<BTreeSet<String>>,
}

impl<'t> View<'t> {
    pub(super) fn new(tree: &'t UnitTree) -> Self {
        View {
            tree: Cow::Borrowed(tree),
            changes: Vec::new(),
            unread: RefCell::default(),
        }
    }

    pub(super) fn tree(&self) -> &UnitTree {
        &self.tree
    }

    /// Makes a change and records it.
    pub(super) fn apply(&mut self, change: LinkChange) {
        self.tree.to_mut().apply(&change);
        self.changes.push(change);
    }

    /// Returns the changes made, and the paths that would have been needed.
    pub(super) fn into_parts(self) -> (Vec<LinkChange>, BTreeSet<String>) {
        (self.changes, self.unread.into_inner())
    }

    /// Returns the node at this path, without following links.
    pub(super) fn node_at(&self, path: &str) -> TreeNode<'_> {
        self.known_node(path).unwrap_or_else(|| {
            self.unread.borrow_mut().insert(path.to_owned());
            TreeNode::Missing
        })
    }

    /// Returns the contents of a file. Contents that were not read count as a single newline: not empty, which would mask the
    /// unit, and without settings.
    pub(super) fn text_at<'v>(&self, path: &str, read: Option<&'v str>) -> &'v str {
        read.unwrap_or_else(|| {
            self.unread.borrow_mut().insert(path.to_owned());
            "\n"
        })
    }

    /// Returns the path without links, `.` and `..`. Missing components are kept.
    pub(super) fn chase_path(&self, path: &str, follow_last: bool) -> Result<String, Fault> {
        let mut done = String::new();
        let mut todo = Vec::new();
        push_components(&mut todo, path);
        let mut links = 0;
        while let Some(component) = todo.pop() {
            if component == ".." {
                done.truncate(done.rfind('/').unwrap_or(0));
                continue;
            }
            if component.len() > NAME_MAX {
                return Err(Fault::NameTooLong);
            }
            let next = format!("{done}/{component}");
            let last = todo.is_empty();
            let Some(target) = self.link_to_follow(&next, last, follow_last) else {
                if !last {
                    self.pass_component(&next, todo.contains(&".."))?;
                }
                done = next;
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Fault::TooManyLinks);
            }
            if target.starts_with('/') {
                done.clear();
            }
            push_components(&mut todo, target);
        }
        Ok(if done.is_empty() {
            "/".to_owned()
        } else {
            done
        })
    }

    /// Returns true for a path that leads to an empty file or a device, which masks a unit; `None` if it is dangling.
    pub(super) fn is_null_or_empty(&self, path: &str) -> Result<Option<bool>, Fault> {
        if path == NULL_DEVICE {
            return Ok(Some(true));
        }
        let chased = match self.chase_path(path, true) {
            Err(Fault::NoDirectory) => return Ok(None),
            chased => chased?,
        };
        Ok(match self.node_at(&chased) {
            TreeNode::Missing => None,
            TreeNode::Null => Some(true),
            TreeNode::File(contents) => Some(self.text_at(&chased, contents).is_empty()),
            TreeNode::Directory(_) | TreeNode::Link(_) | TreeNode::Other => Some(false),
        })
    }

    /// Returns true for a path directly in a directory of the search path.
    pub(super) fn in_search_path(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.tree.dirs.iter().any(|dir| dir.path == parent)
    }

    /// Returns true for a path anywhere below the search path.
    pub(super) fn below_search_path(&self, path: &str) -> bool {
        self.tree.covers(path)
    }

    /// The directories of the search path, highest priority first.
    pub(super) fn search_dirs(&self) -> &[UnitDir] {
        &self.tree.dirs
    }

    fn known_node(&self, path: &str) -> Option<TreeNode<'_>> {
        if path == NULL_DEVICE {
            return Some(TreeNode::Null);
        }
        for dir in &self.tree.dirs {
            if path == dir.path {
                return Some(TreeNode::Directory(&dir.entries));
            }
            if let Some(below) = path_below(path, &dir.path) {
                return Some(dir.get(below).map_or(TreeNode::Missing, node_of));
            }
        }
        self.tree.outside.get(path).map(node_of)
    }

    /// Returns true for a directory that every system has, unless something else was found there.
    pub(super) fn is_assumed(&self, path: &str) -> bool {
        DIRECTORIES.contains(&path) && self.known_node(path).is_none()
    }

    /// Checks that a path may continue after this: after a directory, and after a missing one unless it climbs up again.
    fn pass_component(&self, path: &str, climbs: bool) -> Result<(), Fault> {
        if self.is_assumed(path) {
            return Ok(());
        }
        match self.node_at(path) {
            TreeNode::File(_) | TreeNode::Null | TreeNode::Other => Err(Fault::NoDirectory),
            TreeNode::Missing if climbs => Err(Fault::NotFound),
            _ => Ok(()),
        }
    }

    /// Returns the target of the link at this path, if it is one and has to be followed.
    fn link_to_follow(&self, path: &str, last: bool, follow_last: bool) -> Option<&str> {
        let assumed = !last && self.is_assumed(path);
        if assumed || (last && !follow_last) {
            return None;
        }
        match self.node_at(path) {
            TreeNode::Link(target) => Some(target),
            _ => None,
        }
    }
}

fn push_components<'p>(todo: &mut Vec<&'p str>, path: &'p str) {
    todo.extend(path.split('/').rev().filter(|c| !c.is_empty() && *c != "."));
}

fn node_of(entry: &UnitEntry) -> TreeNode<'_> {
    match entry {
        UnitEntry::File(contents) => TreeNode::File(contents.as_deref()),
        UnitEntry::Link(target) => TreeNode::Link(target),
        UnitEntry::Directory(entries) => TreeNode::Directory(entries),
        UnitEntry::Other => TreeNode::Other,
        UnitEntry::Missing => TreeNode::Missing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tree(entries: &[(&str, UnitEntry)]) -> UnitTree {
        let mut tree = UnitTree::new();
        for (path, entry) in entries {
            tree.set_entry(path, entry.clone());
        }
        tree
    }

    fn link(target: &str) -> UnitEntry {
        UnitEntry::Link(target.to_owned())
    }

    #[test]
    fn chasing_passes_directory_links_and_dots() {
        let tree = tree(&[("/lib", link("usr/lib"))]);
        let view = View::new(&tree);
        let chased = view.chase_path("/etc/../lib/./systemd/system/a.service", false);
        assert_eq!(chased.unwrap(), "/usr/lib/systemd/system/a.service");
    }

    #[test]
    fn chasing_follows_relative_links_from_where_they_are() {
        let tree = tree(&[("/etc/systemd/system/a.service", link("../system/b.service"))]);
        let view = View::new(&tree);
        assert_eq!(
            view.chase_path("/etc/systemd/system/a.service", true)
                .unwrap(),
            "/etc/systemd/system/b.service"
        );
        assert_eq!(
            view.chase_path("/etc/systemd/system/a.service", false)
                .unwrap(),
            "/etc/systemd/system/a.service"
        );
    }

    #[test]
    fn directories_on_the_way_have_to_be_read() {
        let tree = tree(&[("/opt", link("var/opt"))]);
        let view = View::new(&tree);
        assert_eq!(
            view.chase_path("/opt/a/b.service", false).unwrap(),
            "/var/opt/a/b.service"
        );
        assert_eq!(
            view.into_parts().1.into_iter().collect::<Vec<_>>(),
            ["/var", "/var/opt", "/var/opt/a"]
        );
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let tree = tree(&[("/etc/systemd/system/a.service", link("a.service"))]);
        assert_eq!(
            View::new(&tree).chase_path("/etc/systemd/system/a.service", true),
            Err(Fault::TooManyLinks)
        );
    }

    #[test]
    fn a_path_ends_at_what_is_no_directory() {
        let tree = tree(&[
            ("/etc/hosts", UnitEntry::File(None)),
            ("/opt", link("etc/hosts")),
        ]);
        let view = View::new(&tree);
        for path in ["/etc/hosts/x", "/etc/hosts/..", "/opt/x", "/dev/null/x"] {
            assert_eq!(
                view.chase_path(path, true),
                Err(Fault::NoDirectory),
                "{path}"
            );
        }
        for path in ["/etc/hosts", "/etc/hosts/", "/opt"] {
            assert_eq!(view.chase_path(path, true).unwrap(), "/etc/hosts", "{path}");
        }
        let long = format!("/{}", "a".repeat(256));
        assert_eq!(view.chase_path(&long, true), Err(Fault::NameTooLong));
    }

    #[test]
    fn a_chain_may_have_31_links() {
        let dir = "/etc/systemd/system";
        for (links, fits) in [(31, true), (32, false)] {
            let chain =
                (0..links).map(|n| (format!("{dir}/{n}.service"), format!("{}.service", n + 1)));
            let mut tree = UnitTree::new();
            chain.for_each(|(path, target)| tree.set_entry(&path, UnitEntry::Link(target)));
            let chased = View::new(&tree).chase_path(&format!("{dir}/0.service"), true);
            let end = format!("{dir}/{links}.service");
            assert_eq!(
                chased,
                if fits {
                    Ok(end)
                } else {
                    Err(Fault::TooManyLinks)
                }
            );
        }
    }

    #[test]
    fn only_paths_outside_of_the_tree_are_unread() {
        let tree = tree(&[("/opt/known.service", UnitEntry::Missing)]);
        let view = View::new(&tree);
        for path in [
            "/etc/systemd/system/a.service",
            "/opt/known.service",
            "/opt/new.service",
        ] {
            assert!(matches!(view.node_at(path), TreeNode::Missing));
        }
        assert_eq!(
            view.into_parts().1.into_iter().collect::<Vec<_>>(),
            ["/opt/new.service"]
        );
    }
}
