//! The way of a path through links, `.` and `..`, as systemd resolves it.

use super::fault::Fault;
use super::unit_entry::TreeNode;

/// Nodes by their absolute paths.
pub(super) trait PathNodes {
    /// Returns the node at this path, without following links.
    fn node_at(&self, path: &str) -> TreeNode<'_>;

    /// Returns true for a directory that every system has, unless something else was found there.
    fn is_assumed(&self, path: &str) -> bool;
}

/// systemd gives up on a path with more links than this.
const LINKS_MAX: usize = 31;

/// Maximum length of a file name.
const NAME_MAX: usize = 255;

/// Returns the path without links, `.` and `..`. Missing components are kept.
pub(super) fn chase_path(
    nodes: &impl PathNodes,
    path: &str,
    follow_last: bool,
) -> Result<String, Fault> {
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
        let Some(target) = link_to_follow(nodes, &next, last, follow_last) else {
            if !last {
                pass_component(nodes, &next, todo.contains(&".."))?;
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

/// Checks that a path may continue after this: after a directory, and after a missing one unless it climbs up again.
fn pass_component(nodes: &impl PathNodes, path: &str, climbs: bool) -> Result<(), Fault> {
    if nodes.is_assumed(path) {
        return Ok(());
    }
    match nodes.node_at(path) {
        TreeNode::File(_) | TreeNode::Null | TreeNode::Other => Err(Fault::NoDirectory),
        TreeNode::Missing if climbs => Err(Fault::NotFound),
        _ => Ok(()),
    }
}

/// Returns the target of the link at this path, if it is one and has to be followed.
fn link_to_follow<'n>(
    nodes: &'n impl PathNodes,
    path: &str,
    last: bool,
    follow_last: bool,
) -> Option<&'n str> {
    let assumed = !last && nodes.is_assumed(path);
    if assumed || (last && !follow_last) {
        return None;
    }
    match nodes.node_at(path) {
        TreeNode::Link(target) => Some(target),
        _ => None,
    }
}

fn push_components<'p>(todo: &mut Vec<&'p str>, path: &'p str) {
    todo.extend(path.split('/').rev().filter(|c| !c.is_empty() && *c != "."));
}
