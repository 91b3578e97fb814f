//! The boot loader entries of the node, and the kernels beside them.

use super::{Seen, read_text};
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::bootloader::{self, BootEntry, KernelDirectory};
use crate::node::space::Space;

/// The keys that belong to one boot entry. The next deployment does not inherit them.
const OF_ENTRY: [&str; 3] = ["ostree", "BOOT_IMAGE", "initrd"];

/// The content of `/boot` that ostree manages.
#[derive(Debug, Clone)]
pub struct BootFiles {
    /// The entries, default first; empty if there are none.
    pub entries: Seen<Vec<BootEntry>>,
    /// The kernels below `boot/ostree`.
    pub kernels: Seen<Vec<KernelDirectory>>,
    /// UUID of the root file system that belongs to this `/boot`, as written at first boot.
    pub root_uuid: Option<String>,
    /// The space of the file system; `None` if the root has no `/boot`.
    pub space: Seen<Option<Space>>,
    /// The kernel arguments of a staged deployment, which the next boot uses, and their source.
    pub staged_arguments: Option<(String, Kargs)>,
}

impl BootFiles {
    /// Reads the files of a root.
    pub(super) fn observe(root: &Root) -> Self {
        Self {
            entries: bootloader::read_boot_entries(root).map_err(Reason::from_error),
            kernels: bootloader::list_kernel_directories(root).map_err(Reason::from_error),
            root_uuid: read_text(root, "boot/.root_uuid")
                .ok()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
            space: Space::read_space(root, &RootPath::fixed(paths::BOOT))
                .map_err(Reason::from_error),
            staged_arguments: None,
        }
    }

    /// Returns the entry of the running kernel, or the default entry if the command line is unknown.
    pub fn booted_entry(&self, command_line: &Seen<Kargs>) -> Option<&BootEntry> {
        let entries = self.entries.as_ref().ok()?;
        match command_line {
            Ok(line) => bootloader::find_booted_entry(entries, line),
            Err(_) => entries.first(),
        }
    }

    /// Returns the arguments that a new deployment inherits, and their source.
    pub fn inherited_arguments(&self, command_line: &Seen<Kargs>) -> Seen<(String, Kargs)> {
        if let Some((place, arguments)) = &self.staged_arguments {
            return Ok((place.clone(), arguments.without(&OF_ENTRY)));
        }
        if let Some(entry) = self.booted_entry(command_line) {
            let place = format!("/boot/loader/entries/{}.conf", entry.file);
            return Ok((place, entry.options.without(&OF_ENTRY)));
        }
        let line = command_line.as_ref().map_err(Clone::clone)?;
        Ok(("/proc/cmdline".to_owned(), line.without(&OF_ENTRY)))
    }
}
