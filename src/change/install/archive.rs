//! The content for an initramfs: the program, the units of the dracut module with the links that start them, and configs.
//! Values in, values out.

use super::cpio::{CpioContent, CpioEntry};
use crate::base::paths;

/// Directory of the units in an initramfs.
const UNITS: &str = "usr/lib/systemd/system";
/// The program in an initramfs.
const PROGRAM: &str = "usr/bin/mco-rescue";

/// The units of the dracut module, each with the target that starts it; the same as in `module-setup.sh`.
const STARTED: [(&str, &str, &str); 3] = [
    (
        "mco-rescue-firstboot.service",
        "initrd.target",
        include_str!("../../../dracut/50mco-rescue/mco-rescue-firstboot.service"),
    ),
    (
        "mco-rescue-shell.service",
        "initrd.target",
        include_str!("../../../dracut/50mco-rescue/mco-rescue-shell.service"),
    ),
    (
        "mco-rescue-beside-ignition.service",
        "ignition-complete.target",
        include_str!("../../../dracut/50mco-rescue/mco-rescue-beside-ignition.service"),
    ),
];
/// The drop-in of the dracut module.
const DROPIN: (&str, &str) = (
    "ignition-fetch.service.d/50-mco-rescue.conf",
    include_str!("../../../dracut/50mco-rescue/ignition-fetch.conf"),
);

/// A config that is included in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baked {
    /// File name; its extension tells the format.
    pub file: String,
    /// The document as it came.
    pub document: Vec<u8>,
}

/// Returns the entries to unpack over the distribution's initramfs; a directory precedes its content.
pub fn archive_entries(program: Vec<u8>, configs: Vec<Baked>) -> Vec<CpioEntry> {
    let mut all = vec![file_entry(PROGRAM.to_owned(), 0o755, program)];
    for (unit, target, text) in STARTED {
        all.push(file_entry(format!("{UNITS}/{unit}"), 0o644, text.into()));
        all.push(CpioEntry {
            name: format!("{UNITS}/{target}.wants/{unit}"),
            mode: 0o777,
            content: CpioContent::Link(format!("../{unit}")),
        });
    }
    let (name, text) = DROPIN;
    all.push(file_entry(format!("{UNITS}/{name}"), 0o644, text.into()));
    all.extend(configs.into_iter().map(|config| {
        let name = format!("{}/{}", paths::IMAGE_CONFIGS, config.file);
        file_entry(name, 0o600, config.document)
    }));
    with_parents(all)
}

fn file_entry(name: String, mode: u32, bytes: Vec<u8>) -> CpioEntry {
    CpioEntry {
        name,
        mode,
        content: CpioContent::File(bytes),
    }
}

/// Adds each parent directory once, before its first entry.
fn with_parents(entries: Vec<CpioEntry>) -> Vec<CpioEntry> {
    let mut all: Vec<CpioEntry> = Vec::new();
    for entry in entries {
        for (at, _) in entry.name.match_indices('/') {
            let directory = entry.name.get(..at).unwrap_or_default();
            if !all.iter().any(|known| known.name == directory) {
                all.push(CpioEntry {
                    name: directory.to_owned(),
                    mode: 0o755,
                    content: CpioContent::Directory,
                });
            }
        }
        all.push(entry);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parent_stands_before_what_is_in_it_and_only_once() {
        let all = archive_entries(vec![1], Vec::new());
        let names: Vec<&str> = all.iter().map(|entry| entry.name.as_str()).collect();
        for (at, name) in names.iter().enumerate() {
            if let Some((parent, _)) = name.rsplit_once('/') {
                assert!(names.iter().take(at).any(|name| *name == parent), "{name}");
            }
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1);
        }
    }

    #[test]
    fn the_units_are_those_that_the_dracut_module_installs() {
        let module = include_str!("../../../dracut/50mco-rescue/module-setup.sh");
        // Calls of a function with a unit and the target that starts it.
        let calls = module.lines().filter_map(|line| {
            let (_, arguments) = line.trim().split_once("_unit ")?;
            arguments.starts_with("mco-rescue-").then_some(arguments)
        });
        let calls: Vec<&str> = calls.collect();
        let ours: Vec<String> = STARTED
            .iter()
            .map(|(unit, target, _)| format!("{unit} {target}"))
            .collect();
        assert_eq!(calls, ours);
        assert!(module.contains(&format!("$systemdsystemunitdir/{}", DROPIN.0)));
    }

    #[test]
    fn the_initramfs_units_run_the_program_where_it_is() {
        for (unit, _, text) in STARTED {
            assert!(text.contains(&format!("/{PROGRAM} ")), "{unit}");
        }
    }
}
