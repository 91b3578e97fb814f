//! The modules of the running kernel, and those that are not part of the operating system.

use super::devices::text_of;
use crate::host::root::{EntryType, Root, RootPath};
use crate::node::images::tree::{ModuleLists, module_name};

/// Kernel modules that are not part of the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnModules {
    /// Modules that files in `/etc/modules-load.d` load: name and file.
    pub wanted: Vec<(String, String)>,
    /// Module files in directories for additional modules.
    pub added: Vec<String>,
}

/// Largest list of modules that is read.
const MAX_LIST: u64 = 16 << 20;

/// Reads the lists of the running kernel; empty if its version or the lists are missing.
pub(super) fn read_lists(root: &Root, kernel: Option<&str>) -> ModuleLists {
    ModuleLists::parse(|name| {
        let kernel = kernel?;
        let path = RootPath::parse(&format!("/usr/lib/modules/{kernel}/{name}")).ok()?;
        root.read_within(&path, MAX_LIST).ok()?
    })
}

impl OwnModules {
    /// Reads the modules. `kernel` is the running version.
    pub(super) fn observe(root: &Root, kernel: Option<&str>) -> Self {
        let mut found = Self::default();
        let directory = RootPath::fixed("etc/modules-load.d");
        for name in root.list(&directory).unwrap_or_default() {
            let Some(path) = directory
                .join(&name)
                .ok()
                .filter(|_| name.ends_with(".conf"))
            else {
                continue;
            };
            let text = text_of(root, &path).unwrap_or_default();
            let lines = text.lines().map(str::trim);
            let modules = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
            found
                .wanted
                .extend(modules.map(|module| (module.to_owned(), path.to_string())));
        }
        for addition in ["extra", "updates", "weak-updates"] {
            let at = kernel.map(|kernel| format!("/usr/lib/modules/{kernel}/{addition}"));
            if let Some(at) = at.and_then(|at| RootPath::parse(&at).ok()) {
                add_module_files(root, &at, 3, &mut found.added);
            }
        }
        found
    }
}

/// Adds the module files below a directory.
fn add_module_files(root: &Root, at: &RootPath, depth: usize, found: &mut Vec<String>) {
    for (name, kind) in root.list_types(at).unwrap_or_default() {
        let Ok(path) = at.join(&name) else {
            continue;
        };
        match kind {
            EntryType::Directory if depth > 0 => add_module_files(root, &path, depth - 1, found),
            EntryType::File | EntryType::Link if module_name(&name).is_some() => {
                found.push(path.to_string());
            }
            _ => {}
        }
    }
}
