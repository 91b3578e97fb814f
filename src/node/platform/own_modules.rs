//! The modules of the running kernel, and those that are not part of the operating system.

use super::note_unseen;
use crate::host::root::{EntryType, Root, RootPath};
use crate::node::images::tree::{ModuleLists, module_name};

/// Kernel modules that are not part of the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnModules {
    /// Modules that files in `/etc/modules-load.d` load: name and file.
    pub wanted: Vec<(String, String)>,
    /// Module files in directories for additional modules.
    pub added: Vec<String>,
    /// Files and directories that could not be read, among them the lists of the running kernel.
    pub unseen: Vec<String>,
}

/// Largest list of modules that is read.
const MAX_LIST: u64 = 16 << 20;

/// Reads the lists of the running kernel, empty if its version or the lists are missing, and the node's own modules. `kernel` is
/// the running version.
pub(super) fn read_modules(root: &Root, kernel: Option<&str>) -> (ModuleLists, OwnModules) {
    let mut own = OwnModules::observe(root, kernel);
    let lists = ModuleLists::parse(|name| {
        let path = RootPath::parse(&format!("/usr/lib/modules/{}/{name}", kernel?)).ok()?;
        note_unseen(root.read_within(&path, MAX_LIST), &mut own.unseen)
    });
    (lists, own)
}

impl OwnModules {
    fn observe(root: &Root, kernel: Option<&str>) -> Self {
        let mut found = Self::default();
        let directory = RootPath::fixed("etc/modules-load.d");
        for name in note_unseen(root.list(&directory), &mut found.unseen) {
            let Some(path) = directory
                .join(&name)
                .ok()
                .filter(|_| name.ends_with(".conf"))
            else {
                continue;
            };
            let bytes = note_unseen(root.read_small(&path), &mut found.unseen);
            let bytes = bytes.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines = text.lines().map(str::trim);
            let modules = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
            found
                .wanted
                .extend(modules.map(|module| (module.to_owned(), path.to_string())));
        }
        for addition in ["extra", "updates", "weak-updates"] {
            let at = kernel.map(|kernel| format!("/usr/lib/modules/{kernel}/{addition}"));
            if let Some(at) = at.and_then(|at| RootPath::parse(&at).ok()) {
                found.add_module_files(root, &at, 3);
            }
        }
        found
    }

    /// Adds the module files below a directory.
    fn add_module_files(&mut self, root: &Root, at: &RootPath, depth: usize) {
        for (name, kind) in note_unseen(root.list_types(at), &mut self.unseen) {
            let Ok(path) = at.join(&name) else {
                continue;
            };
            match kind {
                EntryType::Directory if depth > 0 => self.add_module_files(root, &path, depth - 1),
                EntryType::File | EntryType::Link if module_name(&name).is_some() => {
                    self.added.push(path.to_string());
                }
                _ => {}
            }
        }
    }
}
