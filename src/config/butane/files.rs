//! Local files and trees of files.

use std::collections::HashMap;

use super::convert::Translator;
use super::local_path::{ESCAPE, NO_FILES_DIR, path_within};
use super::out::Out;
use super::report::Path;
use serde_json::Value;

use crate::base::reason::Reason;

const NODE_EXISTS: &str = "matching filesystem node has existing contents or different type";
const FILE_TYPE: &str = "trees may only contain files, directories, and symlinks";

/// The directory of local files. Paths have no `..` and no leading slash; the empty path is the directory itself.
pub trait FilesDir {
    /// Reads a file.
    ///
    /// # Errors
    /// A message that names the file.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, Reason>;

    /// Lists everything below a directory, depth first; the names in each directory are sorted by their bytes.
    ///
    /// # Errors
    /// A message that names the directory; `root of tree must be a directory` if it is something else.
    fn walk_tree(&self, path: &str) -> Result<Vec<TreeEntry>, Reason>;
}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path relative to the top of the tree; empty for the top itself.
    pub path: String,
    /// Its type.
    pub kind: TreeEntryKind,
}

/// The type of an entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEntryKind {
    /// A directory.
    Directory,
    /// A file; true if it has any executable bit.
    File(bool),
    /// A symbolic link, with its target.
    Link(String),
    /// A device, pipe or socket.
    Other,
    /// An unreadable entry, with the message.
    Unreadable(Reason),
}

/// Joins two paths like Go's `path.Join`.
fn join_paths(base: &str, below: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let absolute = base.starts_with('/');
    for part in base.split('/').chain(below.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    match (absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// A tree in the input, with the attributes for its files.
struct Tree<'t> {
    at: Path,
    local: String,
    target: &'t str,
    settings: &'t Value,
}

impl Translator<'_> {
    /// Adds the files of all trees.
    pub(super) fn add_trees(&mut self, config: &mut Out, input: &Value) {
        let trees = input.pointer("/storage/trees").and_then(Value::as_array);
        let mut listed = Listed::from_config(config);
        for (index, tree) in trees.into_iter().flatten().enumerate() {
            let at = Path::from_keys(&["storage", "trees"]).with_index(index);
            let Some(dir) = self.files else {
                return self.report.add_error(at, NO_FILES_DIR);
            };
            let text = |key| tree.get(key).and_then(Value::as_str).unwrap_or_default();
            let Some(local) = path_within(text("local")) else {
                self.report.add_error(at, ESCAPE);
                continue;
            };
            let entries = match dir.walk_tree(&local) {
                Ok(entries) => entries,
                Err(message) => {
                    self.report.add_error(at, message.to_string());
                    continue;
                }
            };
            let target = Some(text("path")).filter(|path| !path.is_empty());
            let tree = Tree {
                at,
                local,
                target: target.unwrap_or("/"),
                settings: tree,
            };
            for entry in entries {
                if let Err(message) = self.add_entry(config, &mut listed, &tree, &entry) {
                    self.report.add_error(tree.at.clone(), message.to_string());
                }
            }
        }
    }

    fn add_entry(
        &mut self,
        config: &mut Out,
        listed: &mut Listed,
        tree: &Tree<'_>,
        entry: &TreeEntry,
    ) -> Result<(), Reason> {
        let path = join_paths(tree.target, &entry.path);
        match &entry.kind {
            TreeEntryKind::Directory => add_directory(config, listed, tree, &path),
            TreeEntryKind::File(executable) => {
                let local = join_paths(&tree.local, &entry.path);
                self.add_tree_file(config, listed, tree, &path, &local, *executable)
            }
            TreeEntryKind::Link(target) => add_link(config, listed, tree, &path, target),
            TreeEntryKind::Other => Err(FILE_TYPE.into()),
            TreeEntryKind::Unreadable(message) => Err(message.clone()),
        }
    }

    fn add_tree_file(
        &mut self,
        config: &mut Out,
        listed: &mut Listed,
        tree: &Tree<'_>,
        path: &str,
        local: &str,
        executable: bool,
    ) -> Result<(), Reason> {
        let at = &tree.at;
        let mut file = match listed.find_node(config, "files", path) {
            Some(file) => file.clone(),
            None if listed.has_path(path) => return Err(NODE_EXISTS.into()),
            None => new_node(tree, path),
        };
        let contents = file.get("contents").cloned();
        let mut contents = contents.unwrap_or_else(|| Out::map(at, Vec::new()));
        if contents
            .text_at("source")
            .is_some_and(|source| !source.is_empty())
        {
            return Err(NODE_EXISTS.into());
        }
        let bytes = self.read_local(local)?;
        self.set_contents(&mut contents, &bytes, at);
        contents.from = at.clone();
        file.set("contents", contents);
        if file.get("mode").is_none() {
            let given = tree.settings.get("file_mode").and_then(Value::as_i64);
            let usual = if executable { 0o755 } else { 0o644 };
            file.set("mode", Out::leaf(at, given.unwrap_or(usual)));
        }
        listed.put_node(config, "files", path, file);
        Ok(())
    }
}

/// Creates an entry for a file, directory or link of a tree.
fn new_node(tree: &Tree<'_>, path: &str) -> Out {
    let at = &tree.at;
    let mut node = Out::map(at, vec![("path", Out::leaf(at, path))]);
    for key in ["group", "user"] {
        if let Some(owner) = tree.settings.get(key) {
            node.set(key, Out::from_json(at, owner));
        }
    }
    node
}

/// Adds a directory; only needed if the tree sets a mode or an owner for it.
fn add_directory(
    config: &mut Out,
    listed: &mut Listed,
    tree: &Tree<'_>,
    path: &str,
) -> Result<(), Reason> {
    let settings = tree.settings;
    if ["dir_mode", "user", "group"]
        .iter()
        .all(|key| settings.get(key).is_none())
    {
        return Ok(());
    }
    if listed.has_path(path) {
        return Err(NODE_EXISTS.into());
    }
    let mut directory = new_node(tree, path);
    let mode = settings.get("dir_mode").and_then(Value::as_i64);
    directory.set("mode", Out::leaf(&tree.at, mode.unwrap_or(0o755)));
    listed.put_node(config, "directories", path, directory);
    Ok(())
}

fn add_link(
    config: &mut Out,
    listed: &mut Listed,
    tree: &Tree<'_>,
    path: &str,
    target: &str,
) -> Result<(), Reason> {
    let mut link = match listed.find_node(config, "links", path) {
        Some(link)
            if link
                .text_at("target")
                .is_some_and(|target| !target.is_empty()) =>
        {
            return Err(NODE_EXISTS.into());
        }
        Some(link) => link.clone(),
        None if listed.has_path(path) => return Err(NODE_EXISTS.into()),
        None => new_node(tree, path),
    };
    link.set("target", Out::leaf(&tree.at, target));
    listed.put_node(config, "links", path, link);
    Ok(())
}

/// The lists of files, directories and links.
const LISTS: [&str; 3] = ["files", "directories", "links"];

/// The listed paths, each with the lists it is in and the index of its last entry there.
pub(super) struct Listed(HashMap<String, Vec<(&'static str, usize)>>);

impl Listed {
    /// Collects the paths of a config.
    pub(super) fn from_config(config: &Out) -> Self {
        let mut listed = Self(HashMap::new());
        let Some(storage) = config.value_at(&["storage"]) else {
            return listed;
        };
        for list in LISTS {
            for (at, node) in storage.items_at(list).iter().enumerate() {
                if let Some(path) = node.text_at("path") {
                    listed.add_path(list, path, at);
                }
            }
        }
        listed
    }

    fn add_path(&mut self, list: &'static str, path: &str, at: usize) {
        let places = self.0.entry(path.to_owned()).or_default();
        places.retain(|place| place.0 != list);
        places.push((list, at));
    }

    /// Returns true if a path is in one of the lists.
    pub(super) fn has_path(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn find_position(&self, list: &str, path: &str) -> Option<usize> {
        let mut places = self.0.get(path)?.iter();
        places.find(|place| place.0 == list).map(|place| place.1)
    }

    /// Returns the entry of a list with this path.
    fn find_node<'o>(&self, config: &'o Out, list: &str, path: &str) -> Option<&'o Out> {
        let at = self.find_position(list, path)?;
        config.value_at(&["storage"])?.items_at(list).get(at)
    }

    /// Replaces the entry with this path, or appends it.
    pub(super) fn put_node(&mut self, config: &mut Out, list: &'static str, path: &str, node: Out) {
        if config.get("storage").is_none() {
            config.set("storage", Out::map(&node.from, Vec::new()));
        }
        let from = node.from.clone();
        let nodes = config
            .get_mut("storage")
            .and_then(|storage| storage.list_mut(list, &from));
        let Some(nodes) = nodes else { return };
        let listed = self.find_position(list, path);
        match listed.and_then(|at| nodes.get_mut(at)) {
            Some(old) => *old = node,
            None => {
                self.add_path(list, path, nodes.len());
                nodes.push(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_go_joins_them() {
        assert_eq!(join_paths("/", "a/b"), "/a/b");
        assert_eq!(join_paths("/etc/x/", ""), "/etc/x");
        assert_eq!(join_paths("etc", "a"), "etc/a");
        assert_eq!(join_paths("", ""), ".");
        assert_eq!(join_paths("/../etc", "a"), "/etc/a");
    }
}
