//! A [`UnitTree`] queried like a file system.
//!
//! Keeps the changes made so far. A path that was never read is recorded and treated as missing, so that one
//! walk finds everything that is missing. Nothing here knows about units.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use super::chase::{PathNodes, chase_path};
use super::fault::Fault;
use super::unit_entry::TreeNode;
use super::unit_tree::{LinkChange, NULL_DEVICE, UnitDir, UnitTree};

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
    pub(super) fn apply_change(&mut self, change: LinkChange) {
        self.tree.to_mut().apply_change(&change);
        self.changes.push(change);
    }

    /// Returns the changes made, and the paths that would have been needed.
    pub(super) fn into_parts(self) -> (Vec<LinkChange>, BTreeSet<String>) {
        (self.changes, self.unread.into_inner())
    }

    /// Returns the path without links, `.` and `..`. Missing components are kept.
    pub(super) fn chase_path(&self, path: &str, follow_last: bool) -> Result<String, Fault> {
        chase_path(self, path, follow_last)
    }

    /// Returns the contents of a file. Contents that were not read count as a single newline: not empty, which would mask the
    /// unit, and without settings.
    pub(super) fn text_at<'v>(&self, path: &str, read: Option<&'v str>) -> &'v str {
        read.unwrap_or_else(|| {
            self.unread.borrow_mut().insert(path.to_owned());
            "\n"
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
        self.tree.covers_path(path)
    }

    /// Returns the directories of the search path, highest priority first.
    pub(super) fn search_dirs(&self) -> &[UnitDir] {
        &self.tree.dirs
    }
}

impl PathNodes for View<'_> {
    fn node_at(&self, path: &str) -> TreeNode<'_> {
        self.tree.known_node(path).unwrap_or_else(|| {
            self.unread.borrow_mut().insert(path.to_owned());
            TreeNode::Missing
        })
    }

    fn is_assumed(&self, path: &str) -> bool {
        self.tree.is_assumed(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::unit_entry::UnitEntry;
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
    fn a_path_ends_at_what_is_not_a_directory() {
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
