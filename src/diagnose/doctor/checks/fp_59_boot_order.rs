//! FP-59: the firmware boots something other than this disk.

use crate::base::invocation::shell_word;
use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::boot_variables::{BootVariables, FirmwareEntry, SystemDisk};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-59",
    title: "the firmware does not start this disk",
    looks_at: "boot entries of the EFI firmware, EFI system partitions, and labels of file systems",
    explain: "After the installer's reboot a machine is silent when its firmware starts another disk, the installer's medium \
or the network again. The installer makes an entry for the new disk, but firmware may keep another order, forget the \
entry, or have lost it. Each entry names the GUID of an EFI system partition; it is compared with those of the disk that \
holds this system. Without any entry the firmware needs \\EFI\\BOOT\\BOOTX64.EFI (BOOTAA64.EFI) on that partition.\n\n\
efibootmgr -v lists the entries, efibootmgr -o sets their order, efibootmgr -c makes one; all of them write to the \
firmware, so mco-rescue only prints them. On a rescue system, mount the disk and run mco-rescue doctor --root DIR there: \
it compares the firmware of that machine with the mounted disk.\n\n\
A network entry in first place is often intended, and the server passes the machine on to its disk; it is reported \
only while the first boot is not complete. Machines with a BIOS have no such entries. Of an array, each disk may be \
started. Two disks with the same labels are reported too: the first boot finds its file systems by label.",
    judge: judge_boot_order,
};

fn judge_boot_order(evidence: &DoctorEvidence) -> CheckVerdict {
    let disk = evidence.system_disk.seen();
    let twins = disk.ok().and_then(|disk| find_twins(evidence, disk));
    let verdict = CheckVerdict::healthy().and_findings(twins);
    let variables = match evidence.boot_variables.seen() {
        Ok(Some(variables)) => variables,
        Ok(None) => return verdict,
        // Only image-based systems boot this way.
        Err(_) if !evidence.boots_images => return verdict,
        Err(why) => return verdict.and_unseen(format!("boot entries of the firmware: {why}")),
    };
    let disk = match disk {
        Ok(disk) if disk.own.is_empty() => {
            return verdict
                .and_unseen("the EFI system partition of this disk: udev knows none".to_owned());
        }
        Ok(disk) => disk,
        Err(why) => return verdict.and_unseen(format!("the disk of this system: {why}")),
    };
    let found = if evidence.live {
        find_other_disk(variables, disk)
    } else {
        find_no_entry(evidence, variables, disk)
    };
    let found = found.or_else(|| find_late_entry(evidence, variables, disk));
    verdict.and_findings(found)
}

/// Returns an entry in one line.
fn entry_fact(number: u16, entry: &FirmwareEntry) -> Fact {
    let leads = match (&entry.partition, entry.network) {
        (Some(guid), _) => format!("partition {guid}"),
        (None, true) => "the network".to_owned(),
        (None, false) => "no partition".to_owned(),
    };
    // Titles come from any firmware and in any alphabet.
    let title: String = entry.title.chars().filter(char::is_ascii_graphic).collect();
    let file = entry.file.as_deref().unwrap_or_default();
    Fact::new(
        format!("Boot{number:04X}"),
        format!("{title}: {leads} {file}").trim_end().to_owned(),
    )
}

fn own_partitions(disk: &SystemDisk) -> Vec<Fact> {
    let all = disk.own.iter();
    all.map(|one| {
        Fact::new(
            &one.device,
            format!("partition {}, of this system", one.guid),
        )
    })
    .collect()
}

/// Lists how far the installation progressed.
fn list_leftovers(evidence: &DoctorEvidence) -> Vec<Fact> {
    let files = &evidence.first_boot_files;
    let all = [
        (
            &evidence.first_boot_stamp,
            "boot/ignition.firstboot",
            "no boot has completed Ignition",
        ),
        (
            &files.ignition_result,
            paths::IGNITION_RESULT,
            "Ignition has run",
        ),
        (
            &files.encapsulated,
            paths::ENCAPSULATED,
            "the first boot is not complete",
        ),
    ];
    let facts = all.into_iter().filter_map(|(there, path, said)| {
        let said = match there.seen() {
            Ok(true) => said.to_owned(),
            Ok(false) => return None,
            Err(why) => format!("not known: {why}"),
        };
        Some(Fact::new(format!("/{path}"), said))
    });
    facts.collect()
}

fn is_first_boot(evidence: &DoctorEvidence) -> bool {
    evidence.first_boot_stamp.get() == Some(&true) || evidence.first_boot_files.is_waiting()
}

/// Reports a running node that was booted from the partition of another disk.
fn find_other_disk(variables: &BootVariables, disk: &SystemDisk) -> Option<DoctorFinding> {
    let number = variables.current?;
    let entry = variables.entries.get(&number)?;
    // If the network or a generic entry handed over, the firmware does not know the disk.
    entry.partition.as_ref()?;
    if entry.network || disk.own_of(entry).is_some() {
        return None;
    }
    let other = disk.other_of(entry);
    let means = match other {
        Some(_) => {
            "The boot loader of another disk started this system. An update changes the boot loader of this one, and is \
             without effect; without the other disk the machine does not start."
        }
        None => {
            "The boot loader was on a partition that is not here now, such as a medium. Without it the machine may not \
             start."
        }
    };
    let finding = DoctorFinding::warning("the machine was started from another disk", means)
        .with_evidence("BootCurrent", format!("{number:04X}"))
        .seen_all([entry_fact(number, entry)])
        .seen_all(other.map(|one| Fact::new(&one.device, format!("partition {}", one.guid))))
        .seen_all(own_partitions(disk));
    Some(set_order(finding.next("efibootmgr -v"), variables, disk))
}

/// Returns the program that the firmware of an architecture boots from a medium without an entry. ppc64le and s390x have no
/// such firmware.
fn program_of(architecture: &str) -> &'static str {
    match architecture {
        "aarch64" => "\\EFI\\BOOT\\BOOTAA64.EFI",
        _ => "\\EFI\\BOOT\\BOOTX64.EFI",
    }
}

/// Reports a disk that no boot entry of this machine's firmware leads to.
fn find_no_entry(
    evidence: &DoctorEvidence,
    variables: &BootVariables,
    disk: &SystemDisk,
) -> Option<DoctorFinding> {
    let leads = |entry: &FirmwareEntry| disk.own_of(entry).is_some();
    if variables.entries.values().any(leads) {
        return None;
    }
    let own = disk.own.first()?;
    let means = "The firmware of this machine has no entry for the disk. It finds it by itself at most where the partition has \
                 the program for media without an entry.";
    let program = program_of(std::env::consts::ARCH);
    let tried = variables.tried_entries().take(3);
    let finding = DoctorFinding::warning("no boot entry leads to this disk", means)
        .seen_all(own_partitions(disk))
        .seen_all(tried.map(|(number, entry)| entry_fact(number, entry)))
        .seen_all(list_leftovers(evidence));
    Some(finding.next("efibootmgr -v").next(format!(
        "efibootmgr -c -d {} -p {} -L CoreOS -l '{program}'",
        shell_word(&own.disk),
        shell_word(&own.number)
    )))
}

/// Reports entries that the firmware tries before those of this disk.
fn find_late_entry(
    evidence: &DoctorEvidence,
    variables: &BootVariables,
    disk: &SystemDisk,
) -> Option<DoctorFinding> {
    let tried: Vec<(u16, &FirmwareEntry)> = variables.tried_entries().collect();
    let own = tried
        .iter()
        .position(|(_, entry)| disk.own_of(entry).is_some());
    let before = tried.get(..own?)?;
    let is_bad = |(_, entry): &&(u16, &FirmwareEntry)| {
        disk.other_of(entry).is_some() || (entry.network && is_first_boot(evidence))
    };
    let (number, entry) = before.iter().find(is_bad)?;
    let (what, means) = if entry.network {
        (
            "the network is started before this disk",
            "The first boot is not complete: it restarts the machine, and the network starts the installer again.",
        )
    } else {
        (
            "another disk is started before this one",
            "The next start takes the boot loader of the other disk, if it has one.",
        )
    };
    let (own_number, own_entry) = tried.get(own?)?;
    let finding = DoctorFinding::warning(what, means)
        .seen_all([entry_fact(*number, entry)])
        .seen_all([entry_fact(*own_number, own_entry)])
        .seen_all(own_partitions(disk))
        .seen_all(list_leftovers(evidence));
    Some(set_order(finding.next("efibootmgr -v"), variables, disk))
}

/// Adds the command that puts this disk's entries first.
fn set_order(
    finding: DoctorFinding,
    variables: &BootVariables,
    disk: &SystemDisk,
) -> DoctorFinding {
    let is_own = |number: &&u16| {
        let entry = variables.entries.get(number);
        entry.is_some_and(|entry| disk.own_of(entry).is_some())
    };
    let (own, others): (Vec<&u16>, Vec<&u16>) = variables.order.iter().partition(is_own);
    if own.is_empty() {
        return finding;
    }
    let order: Vec<String> = own
        .into_iter()
        .chain(others)
        .map(|number| format!("{number:04X}"))
        .collect();
    finding.next(format!("efibootmgr -o {}", order.join(",")))
}

/// Reports file systems with the same label on two disks.
fn find_twins(evidence: &DoctorEvidence, disk: &SystemDisk) -> Option<DoctorFinding> {
    if disk.twins.is_empty() {
        return None;
    }
    let first = is_first_boot(evidence);
    let severity = if first {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Notice
    };
    let means = if first {
        "The first boot finds its file systems by label, and may take those of the other disk."
    } else {
        "A later first boot or a repair that goes by label may take the other disk."
    };
    let facts = disk.twins.iter();
    let facts =
        facts.map(|(label, devices)| Fact::new(format!("label {label}"), devices.join(", ")));
    Some(
        DoctorFinding::new(severity, "two disks have the same labels", means)
            .seen_all(facts)
            .next("lsblk -o NAME,LABEL,PARTUUID,MOUNTPOINTS"),
    )
}

#[cfg(test)]
mod tests {
    use super::program_of;

    #[test]
    fn the_program_without_an_entry_has_the_name_of_the_architecture() {
        assert_eq!(program_of("x86_64"), "\\EFI\\BOOT\\BOOTX64.EFI");
        assert_eq!(program_of("aarch64"), "\\EFI\\BOOT\\BOOTAA64.EFI");
    }
}
