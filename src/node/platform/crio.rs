//! The configuration files of CRI-O on the node, and those that the next image would change.

use std::collections::BTreeMap;

use super::Seen;
use super::node_files::NodeFiles;
use crate::base::reason::Reason;
use crate::host::root::{EntryType, RootError, RootPath};
use crate::node::images::tree::ImageTree;

const MAIN: &str = "crio.conf";
const DROP_INS: &str = "crio.conf.d";
/// Maximum depth of directories.
const MAX_DEPTH: usize = 8;

/// The files of CRI-O.
#[derive(Debug, Clone)]
pub struct Crio {
    /// Files of the node below `etc/crio`, by their relative path.
    pub files: Seen<BTreeMap<String, Vec<u8>>>,
    /// Files of the booted image below `usr/etc/crio`; empty if the root has none.
    pub defaults: Seen<BTreeMap<String, Vec<u8>>>,
    /// Unit files, drop-ins and the environment file of `crio.service`, with options of its command line.
    pub service: Seen<Vec<(String, String)>>,
    /// Names of locally installed programs, in `/usr/local/bin` and `/usr/local/sbin`.
    pub local_programs: Seen<Vec<String>>,
}

/// A configuration file as of the next boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrioFile {
    /// Path below `/etc/crio`.
    pub path: String,
    /// True if it comes from the target image, false if it is the node's.
    pub is_targets: bool,
    /// Content.
    pub text: String,
}

impl Crio {
    /// Reads the files of a root.
    pub(super) fn observe(root: &NodeFiles<'_>) -> Self {
        Self {
            files: read_tree(root, "etc/crio").map_err(Reason::from_error),
            defaults: read_tree(root, "usr/etc/crio").map_err(Reason::from_error),
            service: read_service(root).map_err(Reason::from_error),
            local_programs: list_local_programs(root).map_err(Reason::from_error),
        }
    }

    /// Returns the files of the next boot in the order in which CRI-O reads them: the node's `/etc` where it differs from its
    /// image, or else the target's.
    ///
    /// # Errors
    /// The node's files are unknown.
    pub fn merge_files(&self, target: &ImageTree) -> Seen<Vec<CrioFile>> {
        let files = self.files.as_ref().map_err(Clone::clone)?;
        let defaults = self.defaults.as_ref().map_err(Clone::clone)?;
        let is_unchanged =
            |name: &str| defaults.contains_key(name) && defaults.get(name) == files.get(name);
        let mut merged: BTreeMap<Vec<String>, CrioFile> = BTreeMap::new();
        let mut put = |path: &str, is_targets: bool, bytes: &[u8]| {
            if path == MAIN || path.starts_with("crio.conf.d/") {
                let file = CrioFile {
                    path: path.to_owned(),
                    is_targets,
                    text: String::from_utf8_lossy(bytes).into_owned(),
                };
                merged.insert(sort_key(path), file);
            }
        };
        for path in target.files_below("usr/etc/crio") {
            let name = path.strip_prefix("usr/etc/crio/").unwrap_or(path);
            // A file that was deleted on the node stays deleted.
            if !defaults.contains_key(name) || is_unchanged(name) {
                put(name, true, target.bytes_of(path).unwrap_or_default());
            }
        }
        for (path, bytes) in files {
            if !is_unchanged(path) {
                put(path, false, bytes);
            }
        }
        Ok(merged.into_values().collect())
    }
}

/// Reads what may set options of CRI-O's command line.
fn read_service(root: &NodeFiles<'_>) -> Result<Vec<(String, String)>, RootError> {
    let mut paths = vec![
        RootPath::fixed("etc/sysconfig/crio"),
        RootPath::fixed("etc/systemd/system/crio.service"),
    ];
    let drop_ins = RootPath::fixed("etc/systemd/system/crio.service.d");
    let names = root.list(&drop_ins)?.into_iter();
    let names = names.filter(|name| name.ends_with(".conf"));
    paths.extend(names.filter_map(|name| drop_ins.join(&name).ok()));
    let mut texts = Vec::new();
    for path in paths {
        if let Some(bytes) = root.read_small(&path)? {
            texts.push((path.to_string(), String::from_utf8_lossy(&bytes).into()));
        }
    }
    Ok(texts)
}

fn list_local_programs(root: &NodeFiles<'_>) -> Result<Vec<String>, RootError> {
    let mut names = root.list(&RootPath::fixed("usr/local/bin"))?;
    names.extend(root.list(&RootPath::fixed("usr/local/sbin"))?);
    Ok(names)
}

/// Returns a sort key. CRI-O reads `crio.conf` first and then walks the directory in the order of names.
fn sort_key(path: &str) -> Vec<String> {
    match path {
        MAIN => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

fn read_tree(
    root: &NodeFiles<'_>,
    directory: &'static str,
) -> Result<BTreeMap<String, Vec<u8>>, RootError> {
    let base = RootPath::fixed(directory);
    let mut files = BTreeMap::new();
    if let Ok(main) = base.join(MAIN)
        && let Some(bytes) = root.read_small(&main)?
    {
        files.insert(MAIN.to_owned(), bytes);
    }
    if let Ok(drop_ins) = base.join(DROP_INS) {
        read_below(root, &drop_ins, DROP_INS, MAX_DEPTH, &mut files)?;
    }
    Ok(files)
}

fn read_below(
    root: &NodeFiles<'_>,
    directory: &RootPath,
    shown: &str,
    depth: usize,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), RootError> {
    for (name, kind) in root.list_types(directory)? {
        let Ok(path) = directory.join(&name) else {
            continue;
        };
        let shown = format!("{shown}/{name}");
        match kind {
            EntryType::Directory if depth > 0 => read_below(root, &path, &shown, depth - 1, files)?,
            EntryType::File | EntryType::Link => {
                if let Some(bytes) = root.read_small(&path)? {
                    files.insert(shown, bytes);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
