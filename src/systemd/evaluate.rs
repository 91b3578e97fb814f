//! Where a path leads in the eyes of the daemon: Go's `filepath.EvalSymlinks`, whose words stand in its messages.
//!
//! systemd's own way of following links is in `view`.

use std::fmt;

use super::unit_tree::UnitTree;
use super::view::{Node, View};

/// Go gives up on a path with more links than this.
const LINKS_MAX: usize = 255;

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    /// Nothing is there; the path as Go writes it, which keeps a `..` that climbs to the root.
    Missing(String),
    /// Something on the way is not a directory.
    NoDirectory,
    /// A circle of links, or a long chain.
    TooManyLinks,
}

impl fmt::Display for Unresolved {
    /// The words of Go.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "lstat {path}: no such file or directory"),
            Self::NoDirectory => f.write_str("not a directory"),
            Self::TooManyLinks => f.write_str("EvalSymlinks: too many links"),
        }
    }
}

/// A path inside the root without links. What the tree does not tell counts as missing.
pub fn evaluate(tree: &UnitTree, path: &str) -> Result<String, Unresolved> {
    let view = View::new(tree);
    let mut walk = Walk::default();
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
                walk.enter(name);
                match look(&view, &walk.real) {
                    Node::Missing => return Err(Unresolved::Missing(walk.shown)),
                    Node::Directory(_) => {}
                    Node::Link(_) if links == LINKS_MAX => return Err(Unresolved::TooManyLinks),
                    Node::Link(target) => {
                        links += 1;
                        walk.leave(target.starts_with('/'));
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

/// The devices are there wherever the daemon runs, whatever a root on a disk holds.
fn look<'v>(view: &'v View<'_>, path: &str) -> Node<'v> {
    const NO_ENTRIES: &std::collections::BTreeMap<String, super::unit_tree::UnitEntry> =
        &std::collections::BTreeMap::new();
    if view.is_assumed(path) || path == "/dev" {
        return Node::Directory(NO_ENTRIES);
    }
    view.node(path)
}

/// A path on its way, as Go writes it and as it is. The root is empty.
#[derive(Default)]
struct Walk {
    shown: String,
    real: String,
}

impl Walk {
    fn enter(&mut self, name: &str) {
        for path in [&mut self.shown, &mut self.real] {
            path.push('/');
            path.push_str(name);
        }
    }

    /// Goes back to where a link is, or to the root.
    fn leave(&mut self, for_the_root: bool) {
        for path in [&mut self.shown, &mut self.real] {
            let end = path.rfind('/').filter(|_| !for_the_root);
            path.truncate(end.unwrap_or(0));
        }
    }

    /// Go keeps a `..` behind the first component and behind another one.
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
        tree.observe(at, UnitEntry::Link(target.to_owned()));
        tree.observe("/etc/hosts", UnitEntry::File(None));
        evaluate(&tree, at)
    }

    #[test]
    fn paths_are_told_as_go_tells_them() {
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
            let said = evaluated(target).map_err(|why| why.to_string());
            assert_eq!(said, Err(words.to_owned()), "{target}");
        }
    }

    #[test]
    fn a_chain_may_have_255_links() {
        for (links, fits) in [(255, true), (256, false)] {
            let mut tree = UnitTree::new();
            for n in 1..=links {
                let next = format!("{}.service", n + 1);
                let target = if n == links { "/dev/null".into() } else { next };
                tree.observe(
                    &format!("/etc/systemd/system/{n}.service"),
                    UnitEntry::Link(target),
                );
            }
            let said = evaluate(&tree, "/etc/systemd/system/1.service");
            assert_eq!(said.is_ok(), fits);
        }
    }
}
