//! Parts of a config that cannot be applied; each is refused by name.

use super::machine_config::MachineConfig;

/// A part of the document that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// JSON path of the part.
    pub path: String,
    /// The part and the reason for the refusal.
    pub message: String,
    /// The rest may be applied without it, if the user allows that.
    pub skippable: bool,
}

/// Returns the sections of a config that cannot be applied; `prefix` precedes the paths of its Ignition part.
pub(super) fn unsupported_sections(config: &MachineConfig, prefix: &str) -> Vec<Unsupported> {
    let ignition = &config.ignition;
    let storage = &ignition.storage;
    let counted: [(&str, usize, &str); 7] = [
        (
            "storage.disks",
            storage.disks.len(),
            "partition tables are made at installation only",
        ),
        (
            "storage.raid",
            storage.raid.len(),
            "RAID arrays are made at installation only",
        ),
        (
            "storage.filesystems",
            storage.filesystems.len(),
            "file systems are made at installation only",
        ),
        (
            "storage.luks",
            storage.luks.len(),
            "encrypted devices are made at installation only",
        ),
        (
            "passwd.groups",
            // In a bare config they are applied.
            if config.bare {
                0
            } else {
                ignition.passwd.groups.len()
            },
            "the daemon applies no groups",
        ),
        (
            "kernelArguments",
            ignition.kernel_arguments.should_exist.len()
                + ignition.kernel_arguments.should_not_exist.len(),
            "the daemon applies no kernel arguments of Ignition; use spec.kernelArguments",
        ),
        (
            "ignition.config.merge",
            ignition.ignition.config.merge.len(),
            "references to other configs are not fetched",
        ),
    ];
    let mut refused: Vec<_> = counted
        .iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(path, count, why)| Unsupported {
            path: format!("{prefix}{path}"),
            message: format!(
                "{count} {}: {why}",
                if *count == 1 { "entry" } else { "entries" }
            ),
            skippable: *path != "ignition.config.merge",
        })
        .collect();
    if ignition.ignition.config.replace.source.is_some() {
        refused.push(Unsupported {
            path: format!("{prefix}ignition.config.replace"),
            message: "references to other configs are not fetched".into(),
            skippable: false,
        });
    }
    refused
}
