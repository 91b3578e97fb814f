//! FP-59: the firmware does not start this disk.

use std::fs;

use super::worker::{Branch, booted, is_well};
use super::{answer, doctor_on, of, unseen};
use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::OstreeNode;

const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
const VARIABLES: &str = "sys/firmware/efi/efivars";
/// Of the disk that the system is on, and of another one.
const OWN: &str = "00112233-4455-6677-8899-aabbccddee01";
const OTHER: &str = "00112233-4455-6677-8899-aabbccddee02";
const GONE: &str = "00112233-4455-6677-8899-aabbccddee03";
const ESP: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

/// Where an entry leads to.
enum To {
    Partition(&'static str),
    Network,
    Nothing,
}

fn variable(node: &OstreeNode, name: &str, value: &[u8]) {
    let path = node.root.path(&format!("{VARIABLES}/{name}-{GLOBAL}"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [&[7, 0, 0, 0], value].concat()).unwrap();
}

fn numbers(node: &OstreeNode, name: &str, all: &[u16]) {
    let bytes: Vec<u8> = all.iter().flat_map(|number| number.to_le_bytes()).collect();
    variable(node, name, &bytes);
}

/// The bytes of a GUID, whose first three parts are numbers with the low byte first.
fn guid(text: &str) -> Vec<u8> {
    let digits: String = text.split('-').collect();
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]
        .map(byte)
        .to_vec()
}

fn entry(node: &OstreeNode, number: u16, title: &str, to: &To) {
    let utf16 = |text: &str| -> Vec<u8> {
        let letters = text.encode_utf16().chain([0]);
        letters.flat_map(u16::to_le_bytes).collect()
    };
    let one = |kind: u8, sub: u8, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap().to_le_bytes();
        [&[kind, sub], &length[..], value].concat()
    };
    let mut path = one(2, 1, &[0xd0, 0x41, 3, 10, 0, 0, 0, 0]);
    match to {
        To::Partition(text) => {
            let mut value = 2_u32.to_le_bytes().to_vec();
            value.extend([0; 16]);
            value.extend(guid(text));
            value.extend([2, 2]);
            path.extend(one(4, 1, &value));
            path.extend(one(4, 4, &utf16("\\EFI\\redhat\\shimx64.efi")));
        }
        To::Network => {
            path.extend(one(3, 11, &[0; 33]));
            path.extend(one(3, 12, &[0; 23]));
        }
        To::Nothing => {}
    }
    path.extend(one(0x7f, 0xff, &[]));
    let mut bytes = 1_u32.to_le_bytes().to_vec();
    bytes.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
    bytes.extend(utf16(title));
    bytes.extend(path);
    variable(node, &format!("Boot{number:04X}"), &bytes);
}

/// A record in the database of udev, and the name of the device.
fn device(node: &OstreeNode, number: &str, name: &str, properties: &[(&str, &str)]) {
    let lines: String = properties
        .iter()
        .map(|(key, value)| format!("E:{key}={value}\n"))
        .collect();
    node.root.write(&format!("run/udev/data/b{number}"), &lines);
    node.root.write(
        &format!("sys/dev/block/{number}/uevent"),
        &format!("DEVNAME={name}\n"),
    );
}

fn partition(node: &OstreeNode, disk: u8, number: u8, label: &str, esp: Option<&str>) {
    let letter = if disk == 0 { 'a' } else { 'b' };
    let (above, own) = (
        format!("8:{}", 16 * disk),
        format!("8:{}", 16 * disk + number),
    );
    let text = number.to_string();
    let mut properties = vec![
        ("ID_PART_ENTRY_DISK", above.as_str()),
        ("ID_PART_ENTRY_NUMBER", text.as_str()),
        ("ID_FS_LABEL", label),
    ];
    if let Some(guid) = esp {
        properties.push(("ID_PART_ENTRY_TYPE", ESP));
        properties.push(("ID_PART_ENTRY_UUID", guid));
    }
    device(node, &own, &format!("sd{letter}{number}"), &properties);
}

fn mounts(node: &OstreeNode, lines: &str) {
    node.root.write("mountinfo", lines);
}

/// A node on the first disk, with a second one without any system.
fn on_a_machine(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = booted();
        device(&node, "8:0", "sda", &[]);
        device(&node, "8:16", "sdb", &[]);
        partition(&node, 0, 2, "EFI-SYSTEM", Some(OWN));
        partition(&node, 0, 4, "root", None);
        partition(&node, 1, 1, "data", None);
        partition(&node, 1, 2, "EFI", Some(OTHER));
        mounts(
            &node,
            "20 1 8:4 / /sysroot rw - xfs /dev/sda4 rw\n21 1 0:30 / / rw - overlay composefs rw\n",
        );
        let (file, shown) = (
            node.root.path("mountinfo"),
            node.root.path("proc/1/mountinfo"),
        );
        mount(&["--bind", file.to_str().unwrap(), shown.to_str().unwrap()]);
        entry(&node, 1, "CoreOS", &To::Partition(OWN));
        entry(&node, 2, "Other OS", &To::Partition(OTHER));
        entry(&node, 3, "UEFI PXEv4", &To::Network);
        numbers(&node, "BootOrder", &[1, 3]);
        numbers(&node, "BootCurrent", &[1]);
        test(&node);
    });
}

#[test]
fn a_node_that_another_disk_started_is_found() {
    on_a_machine(|node| {
        is_well(node, "FP-59");
        assert_eq!(unseen(&doctor_on(node), "FP-59"), "[]");
        numbers(node, "BootCurrent", &[2]);
        let found = Branch {
            id: "FP-59",
            severity: "warning",
            what: "the machine was started from another disk",
            seen: &["Boot0002", OTHER, "/dev/sdb2", "/dev/sda2", OWN],
            next: &["efibootmgr -v", "efibootmgr -o 0001,0003"],
        };
        found.met_by(&doctor_on(node), "");
        // From a medium that was taken out.
        entry(node, 4, "UEFI USB", &To::Partition(GONE));
        numbers(node, "BootCurrent", &[4]);
        Branch {
            seen: &["Boot0004", GONE, "not here now"],
            ..found
        }
        .met_by(&doctor_on(node), "");
        // The network passed it on, and so did an entry for any disk.
        numbers(node, "BootCurrent", &[3]);
        is_well(node, "FP-59");
        entry(node, 5, "UEFI QEMU HARDDISK", &To::Nothing);
        numbers(node, "BootCurrent", &[5]);
        is_well(node, "FP-59");
    });
}

#[test]
fn what_is_tried_before_this_disk_is_found() {
    on_a_machine(|node| {
        numbers(node, "BootOrder", &[3, 2, 1]);
        let found = Branch {
            id: "FP-59",
            severity: "warning",
            what: "another disk is started before this one",
            seen: &["Boot0002", "OtherOS", "Boot0001"],
            next: &["efibootmgr -v", "efibootmgr -o 0001,0003,0002"],
        };
        found.met_by(&doctor_on(node), "");
        // The firmware passes over an entry of a disk that is gone.
        entry(node, 2, "Other OS", &To::Partition(GONE));
        is_well(node, "FP-59");
        // PXE first is a policy, but not in the middle of the first boot.
        node.root
            .write("etc/ignition-machine-config-encapsulated.json", "{}");
        Branch {
            what: "the network is started before this disk",
            seen: &["Boot0003", "the network", "the first boot is not complete"],
            next: &["efibootmgr -v", "efibootmgr -o 0001,0003,0002"],
            ..found
        }
        .met_by(&doctor_on(node), "");
    });
}

#[test]
fn a_disk_of_an_array_may_be_started_from_each_of_its_members() {
    on_a_machine(|node| {
        device(node, "9:0", "md0", &[("ID_FS_LABEL", "root")]);
        for (name, number) in [("sda4", "8:4"), ("sdb4", "8:20")] {
            fs::create_dir_all(node.root.path(&format!("sys/dev/block/9:0/slaves/{name}")))
                .unwrap();
            node.root.write(
                &format!("sys/class/block/{name}/dev"),
                &format!("{number}\n"),
            );
        }
        partition(node, 0, 4, "", None);
        partition(node, 1, 4, "", None);
        partition(node, 1, 2, "EFI-SYSTEM", Some(OTHER));
        mounts(node, "20 1 9:0 / /sysroot rw - xfs /dev/md0 rw\n");
        numbers(node, "BootCurrent", &[2]);
        numbers(node, "BootOrder", &[2, 1]);
        is_well(node, "FP-59");
    });
}

#[test]
fn two_disks_of_one_label_are_told_apart_from_two_paths() {
    on_a_machine(|node| {
        partition(node, 1, 4, "root", None);
        let found = Branch {
            id: "FP-59",
            severity: "notice",
            what: "two disks have the same labels",
            seen: &["label root", "/dev/sda4, /dev/sdb4"],
            next: &["lsblk -o "],
        };
        found.met_by(&doctor_on(node), "");
        node.root.write("boot/ignition.firstboot", "");
        Branch {
            severity: "warning",
            seen: &["first boot"],
            ..found
        }
        .met_by(&doctor_on(node), "");
        device(node, "8:16", "sdb", &[("DM_MULTIPATH_DEVICE_PATH", "1")]);
        is_well(node, "FP-59");
    });
}

#[test]
fn a_machine_without_entries_is_not_trouble() {
    on_a_machine(|node| {
        fs::remove_dir_all(node.root.path(VARIABLES)).unwrap();
        let report = doctor_on(node);
        assert_eq!(of(&report, "FP-59"), Vec::<serde_json::Value>::new());
        let text = unseen(&report, "FP-59");
        assert!(text.contains("efivarfs is not mounted"), "{text}");
        // Firmware that keeps nonsense.
        variable(node, "BootOrder", &[1]);
        variable(node, "BootCurrent", &[]);
        variable(node, "Boot0001", &[0xff; 5]);
        variable(node, "Boot0002", &[0xff; 4096]);
        is_well(node, "FP-59");
        // A BIOS.
        fs::remove_dir_all(node.root.path("sys/firmware/efi")).unwrap();
        assert_eq!(unseen(&doctor_on(node), "FP-59"), "[]");
        is_well(node, "FP-59");
    });
}

#[test]
fn an_order_that_cannot_be_read_is_not_an_empty_one() {
    on_a_machine(|node| {
        let name = format!("BootOrder-{GLOBAL}");
        let path = format!("{VARIABLES}/{name}");
        node.root.remove(&path);
        node.root.link(&path, &name);
        let report = doctor_on(node);
        assert_eq!(of(&report, "FP-59"), Vec::<serde_json::Value>::new());
        let text = unseen(&report, "FP-59");
        assert!(text.contains(&name), "{text}");
    });
}

#[test]
fn a_rescue_system_compares_its_firmware_with_the_mounted_disk() {
    on_a_machine(|node| {
        // The other disk has the system, and its first boot never came to an end.
        let disk = "mnt/usr/lib/os-release";
        node.root.write(disk, "ID=rhcos\nVARIANT_ID=coreos\n");
        fs::create_dir_all(node.root.path("mnt/usr/etc")).unwrap();
        node.root.write("mnt/etc/machine-id", "uninitialized\n");
        node.root.write("mnt/boot/ignition.firstboot", "");
        mounts(
            node,
            "20 1 7:0 / / rw - iso9660 /dev/loop0 ro\n22 1 8:18 / /mnt rw - xfs /dev/sdb2 rw\n",
        );
        let seen = || answer(&node.run(&["--root", "/mnt", "doctor", "--output", "json"]));
        // The firmware has an entry for it, but another disk comes first.
        numbers(node, "BootOrder", &[1, 2]);
        Branch {
            id: "FP-59",
            severity: "warning",
            what: "another disk is started before this one",
            seen: &["Boot0001", "/dev/sdb2", "/boot/ignition.firstboot"],
            next: &["efibootmgr -v", "efibootmgr -o 0002,0001"],
        }
        .met_by(&seen(), "");
        fs::remove_file(node.root.path(&format!("{VARIABLES}/Boot0002-{GLOBAL}"))).unwrap();
        Branch {
            id: "FP-59",
            severity: "warning",
            what: "no boot entry leads to this disk",
            seen: &[OTHER, "Boot0001", "no boot has completed Ignition"],
            next: &[
                "efibootmgr -v",
                "efibootmgr -c -d /dev/sdb -p 2 -L CoreOS -l ",
            ],
        }
        .met_by(&seen(), "");
        // A directory says nothing of this machine.
        mounts(node, "20 1 8:4 / / rw - xfs /dev/sda4 rw\n");
        assert_eq!(of(&seen(), "FP-59"), Vec::<serde_json::Value>::new());
    });
}
