//! The end of a path as the daemon finds it: Go's `filepath.EvalSymlinks`, whose errors appear in its messages.
//!
//! systemd's own way of following links is in `view`.

use std::fmt;

use super::chase::PathNodes;
use super::unit_entry::TreeNode;
use super::unit_tree::UnitTree;
use super::view::View;

/// Go gives up on a path with more links than this.
const LINKS_MAX: usize = 255;

/// The reason why a path cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    /// A component is missing; the path as Go writes it, which keeps a `..` that climbs to the root.
    Missing(String),
    /// Something on the way is not a directory.
    NoDirectory,
    /// A cycle of links, or a long chain.
    TooManyLinks,
}

impl fmt::Display for Unresolved {
    /// Writes Go's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "lstat {path}: no such file or directory"),
            Self::NoDirectory => f.write_str("not a directory"),
            Self::TooManyLinks => f.write_str("EvalSymlinks: too many links"),
        }
    }
}

/// Returns the path inside the root with all links resolved. Paths outside the tree count as missing.
pub fn eval_symlinks(tree: &UnitTree, path: &str) -> Result<String, Unresolved> {
    let view = View::new(tree);
    let mut walk = GoPath::default();
    let mut rest = path.to_owned();
    let mut links = 0;
    loop {
        let trimmed = rest.trim_start_matches('/');
        let end = trimmed.find('/').unwrap_or(trimmed.len());
        let (component, behind) = trimmed.split_at(end);
        match component {
            "" => return Ok(walk.end()),
            "." => {}
            ".." => walk.climb(),
            name => {
                walk.enter_name(name);
                match look_at(&view, &walk.real) {
                    TreeNode::Missing => return Err(Unresolved::Missing(walk.shown)),
                    TreeNode::Directory(_) => {}
                    TreeNode::Link(_) if links == LINKS_MAX => {
                        return Err(Unresolved::TooManyLinks);
                    }
                    TreeNode::Link(target) => {
                        links += 1;
                        walk.leave_link(target.starts_with('/'));
                        rest = format!("{target}{behind}");
                        continue;
                    }
                    _ if !behind.is_empty() => return Err(Unresolved::NoDirectory),
                    _ => {}
                }
            }
        }
        rest = behind.to_owned();
    }
}

/// Returns the node at a path. The devices exist wherever the daemon runs, even if a root on a disk lacks them.
fn look_at<'v>(view: &'v View<'_>, path: &str) -> TreeNode<'v> {
    const NO_ENTRIES: &std::collections::BTreeMap<String, super::unit_tree::UnitEntry> =
        &std::collections::BTreeMap::new();
    if view.is_assumed(path) || path == "/dev" {
        return TreeNode::Directory(NO_ENTRIES);
    }
    view.node_at(path)
}

/// A path in progress, both as Go writes it and as it really is. The root is empty.
#[derive(Default)]
struct GoPath {
    shown: String,
    real: String,
}

impl GoPath {
    fn enter_name(&mut self, name: &str) {
        for path in [&mut self.shown, &mut self.real] {
            path.push('/');
            path.push_str(name);
        }
    }

    /// Returns to the directory of a link, or to the root.
    fn leave_link(&mut self, for_the_root: bool) {
        for path in [&mut self.shown, &mut self.real] {
            let end = path.rfind('/').filter(|_| !for_the_root);
            path.truncate(end.unwrap_or(0));
        }
    }

    /// Climbs one level. Go keeps a `..` after the first component and after another one.
    fn climb(&mut self) {
        match self.shown.rfind('/') {
            Some(end) if end > 0 && !self.shown.ends_with("/..") => self.shown.truncate(end),
            _ => self.shown.push_str("/.."),
        }
        self.real.truncate(self.real.rfind('/').unwrap_or(0));
    }

    fn end(self) -> String {
        if self.real.is_empty() {
            "/".to_owned()
        } else {
            self.real
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit_tree::UnitEntry;
    use super::*;

    fn evaluated(target: &str) -> Result<String, Unresolved> {
        let mut tree = UnitTree::new();
        let at = "/etc/systemd/system/a.service";
        tree.set_entry(at, UnitEntry::Link(target.to_owned()));
        tree.set_entry("/etc/hosts", UnitEntry::File(None));
        eval_symlinks(&tree, at)
    }

    #[test]
    fn errors_are_worded_as_go_words_them() {
        for target in ["/dev/null", "../../../dev/null", "//dev/../dev/null"] {
            assert_eq!(evaluated(target).as_deref(), Ok("/dev/null"), "{target}");
        }
        assert_eq!(evaluated("../../hosts").as_deref(), Ok("/etc/hosts"));
        assert_eq!(evaluated("../../..").as_deref(), Ok("/"));
        for (target, words) in [
            ("../../../x", "lstat /etc/../x: no such file or directory"),
            ("/x/..", "lstat /x: no such file or directory"),
            ("a.service", "EvalSymlinks: too many links"),
            ("/etc/hosts/", "not a directory"),
            ("/etc/hosts/..", "not a directory"),
        ] {
            let end = evaluated(target).map_err(|why| why.to_string());
            assert_eq!(end, Err(words.to_owned()), "{target}");
        }
    }

    #[test]
    fn a_chain_may_have_255_links() {
        for (links, fits) in [(255, true), (256, false)] {
            let mut tree = UnitTree::new();
            for n in 1..=links {
                let next = format!("{}.service", n + 1);
                let target = if n == links { "/dev/null".into() } else { next };
                tree.set_entry(
                    &format!("/etc/systemd/system/{n}.service"),
                    UnitEntry::Link(target),
                );
            }
            let end = eval_symlinks(&tree, "/etc/systemd/system/1.service");
            assert_eq!(end.is_ok(), fits);
        }
    }
}
