//! What is at one path of the unit directories, as a plain value.

use std::collections::BTreeMap;

/// Something at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitEntry {
    /// A regular file, with its contents if they have been read. An empty file masks the unit.
    File(Option<String>),
    /// A symbolic link, with its target as written.
    Link(String),
    /// A directory, with everything in it.
    Directory(BTreeMap<String, UnitEntry>),
    /// Any other kind of node.
    Other,
    /// Read and found missing; only for [`UnitTree::outside`](super::UnitTree::outside).
    Missing,
}

/// An entry without its ownership, or `/dev/null`.
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

pub(super) fn node_of(entry: &UnitEntry) -> TreeNode<'_> {
    match entry {
        UnitEntry::File(contents) => TreeNode::File(contents.as_deref()),
        UnitEntry::Link(target) => TreeNode::Link(target),
        UnitEntry::Directory(entries) => TreeNode::Directory(entries),
        UnitEntry::Other => TreeNode::Other,
        UnitEntry::Missing => TreeNode::Missing,
    }
}

pub(super) fn insert_below(
    entries: &mut BTreeMap<String, UnitEntry>,
    below: &str,
    entry: UnitEntry,
) {
    let Some((first, rest)) = below.split_once('/') else {
        entries.insert(below.to_owned(), entry);
        return;
    };
    let child = entries
        .entry(first.to_owned())
        .or_insert_with(|| UnitEntry::Directory(BTreeMap::new()));
    if let UnitEntry::Directory(children) = child {
        insert_below(children, rest, entry);
    }
}

pub(super) fn remove_below(entries: &mut BTreeMap<String, UnitEntry>, below: &str) {
    let Some((first, rest)) = below.split_once('/') else {
        entries.remove(below);
        return;
    };
    if let Some(UnitEntry::Directory(children)) = entries.get_mut(first) {
        remove_below(children, rest);
        if children.is_empty() {
            entries.remove(first);
        }
    }
}
