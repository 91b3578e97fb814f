//! The root disk: XFS, several paths, encryption.

use std::fs;

use serde_json::{Value, json};

use super::{BOOT_UUID, Device, Lab, ROOT_UUID};
use crate::support::luks::{luks2, tokens};

#[test]
fn an_xfs_of_version_4_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.write_xfs("dev/sda4", 4);
    let found = lab.findings();
    assert_eq!(lab.short(), ["xfs-format inhibitor /dev/sda4"]);
    for words in ["/sysroot, /var", "Deprecated V4 format (crc=0)"] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
    lab.target.write(
        "usr/lib/os-release",
        "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=9.6\nRHEL_VERSION=9.6\n",
    );
    assert_eq!(lab.short(), [""; 0], "EL 9 mounts it");
}

#[test]
fn a_superblock_that_cannot_be_read_is_said() {
    let lab = Lab::healthy();
    lab.node.write("dev/sda4", "XFSB");
    assert_eq!(lab.short(), ["xfs-format unknown /dev/sda4"]);
    lab.node.remove("dev/sda4");
    assert_eq!(lab.short(), ["xfs-format unknown /dev/sda4"]);
    lab.write_xfs("dev/block/8:4", 5);
    assert_eq!(lab.short(), [""; 0], "its other name is enough");
    // Neither is opened: reading a pipe would never end.
    lab.node.remove("dev/block/8:4");
    let pipe = std::process::Command::new("mkfifo")
        .arg(lab.node.path("dev/sda4"))
        .status();
    assert!(pipe.unwrap().success());
    assert_eq!(lab.short(), ["xfs-format unknown /dev/sda4"]);
}

/// The root disk behind a map of two paths.
pub fn with_map() -> Lab {
    let lab = Lab::healthy();
    lab.write_mounts("8:3", "253:4");
    for (number, name) in [("8:16", "sdb"), ("253:0", "dm-0")] {
        let uuid = [("DM_UUID", "mpath-3600")];
        let properties: &[(&str, &str)] = if name == "sdb" { &[] } else { &uuid };
        lab.add_device(&Device {
            number,
            name,
            properties,
            ..Device::default()
        });
    }
    lab.add_device(&Device {
        number: "253:4",
        name: "dm-4",
        properties: &[
            ("DM_UUID", "part4-mpath-3600"),
            ("ID_FS_UUID", ROOT_UUID),
            ("ID_FS_TYPE", "xfs"),
        ],
        ..Device::default()
    });
    for (device, member) in [("dm-0", "sda"), ("dm-0", "sdb"), ("dm-4", "dm-0")] {
        let place = format!("sys/class/block/{device}/slaves/{member}");
        lab.node.link(&place, &format!("../../{member}"));
    }
    lab
}

#[test]
fn a_map_that_the_next_boot_does_not_look_for_is_an_inhibitor() {
    let lab = with_map();
    let found = lab.findings();
    assert_eq!(lab.short(), ["multipath inhibitor root disk"]);
    for words in [
        "part4-mpath-3600",
        "Can't open blockdev",
        "--append-if-missing=rd.multipath=default",
        "--append-if-missing=root=/dev/disk/by-label/dm-mpath-root",
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn root_has_to_name_the_map() {
    let boot = format!("boot=UUID={BOOT_UUID} rd.multipath=default");
    for (root, short) in [
        ("root=/dev/disk/by-label/dm-mpath-root", None),
        ("root=/dev/mapper/mpatha4", None),
        ("root=UUID=1", Some("multipath warning root disk")),
        ("root=/dev/sda4", Some("multipath inhibitor root disk")),
    ] {
        let lab = with_map();
        lab.write_entry(&format!("{boot} {root}"));
        let wanted: Vec<String> = short.map(str::to_owned).into_iter().collect();
        assert_eq!(lab.short(), wanted, "{root}");
    }
}

#[test]
fn settings_of_multipath_that_el_10_refuses_are_found() {
    let lab = with_map();
    lab.write_entry(&format!(
        "boot=UUID={BOOT_UUID} rd.multipath=default root=/dev/disk/by-label/dm-mpath-root"
    ));
    lab.node.write(
        "etc/multipath.conf",
        "defaults {\n  user_friendly_names yes\n  getuid_callout \"/lib/udev/scsi_id\"\n  bindings_file \"/var/b\"\n}\n",
    );
    let found = lab.findings();
    assert_eq!(
        lab.short(),
        [
            "multipath inhibitor getuid_callout",
            "multipath warning bindings_file"
        ]
    );
    assert!(found[0].text.contains("sed -i 3d /etc/multipath.conf"));
    lab.node.link("etc/multipath/conf.d", "conf.d");
    assert_eq!(lab.short(), ["multipath unknown settings of multipath"]);
}

#[test]
fn two_paths_without_a_map_are_a_warning() {
    let lab = Lab::healthy();
    lab.add_device(&Device {
        number: "8:20",
        name: "sdb4",
        properties: &[
            ("ID_SERIAL", "disk-1"),
            ("ID_FS_UUID", ROOT_UUID),
            ("ID_FS_TYPE", "xfs"),
        ],
        ..Device::default()
    });
    let found = lab.findings();
    assert_eq!(lab.short(), ["multipath warning root disk"]);
    assert!(found[0].text.contains("/dev/sda4, /dev/sdb4"));
}

/// A root file system in LUKS 2 with these tokens, and one key slot more.
pub fn encrypted(pins: &[Value]) -> Lab {
    let lab = Lab::healthy();
    lab.write_mounts("8:3", "253:0");
    lab.add_device(&Device {
        number: "8:4",
        name: "sda4",
        disk: "8:0",
        properties: &[("ID_FS_TYPE", "crypto_LUKS"), ("ID_FS_UUID", "luks")],
    });
    lab.add_device(&Device {
        number: "253:0",
        name: "dm-0",
        properties: &[
            ("DM_UUID", "CRYPT-LUKS2-1-root"),
            ("ID_FS_UUID", ROOT_UUID),
            ("ID_FS_TYPE", "xfs"),
        ],
        ..Device::default()
    });
    lab.node
        .link("sys/class/block/dm-0/slaves/sda4", "../../sda4");
    let header = luks2(&tokens(pins));
    fs::write(lab.node.path("dev/sda4"), header).unwrap();
    lab
}

pub fn tpm(registers: &str) -> Value {
    json!({"pin": "tpm2", "tpm2": {"pcr_ids": registers}})
}

pub fn tang() -> Value {
    json!({"pin": "tang", "tang": {"url": "http://tang.example"}})
}

#[test]
fn a_tpm_that_is_bound_to_the_boot_loader_is_an_inhibitor() {
    let lab = encrypted(&[tpm("4,7")]);
    let found = lab.findings();
    assert_eq!(lab.short(), ["encrypted-root inhibitor /dev/sda4"]);
    for words in [
        "tpm2 registers 4,7; 1 other key slot",
        "Unsealing jwk from TPM failed",
        "cryptsetup luksAddKey /dev/sda4",
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
    assert_eq!(
        encrypted(&[tpm("7")]).short(),
        ["encrypted-root warning /dev/sda4"]
    );
    assert_eq!(encrypted(&[tpm("")]).short(), [""; 0]);
    assert_eq!(
        encrypted(&[tpm("4"), tpm("")]).short(),
        [""; 0],
        "one opens"
    );
    assert_eq!(encrypted(&[]).short(), [""; 0], "a passphrase, as before");
}

#[test]
fn tang_needs_a_network_in_the_initramfs() {
    let lab = encrypted(&[tang()]);
    let found = lab.findings();
    assert_eq!(lab.short(), ["encrypted-root warning /dev/sda4"]);
    for words in ["tang http://tang.example", "rd.neednet=1"] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
    lab.write_entry(&format!("rw rd.neednet=1 boot=UUID={BOOT_UUID}"));
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn an_encrypted_var_counts_but_needs_no_network_in_the_initramfs() {
    for (pin, short) in [
        (tpm("8"), vec!["encrypted-root inhibitor /dev/sda4"]),
        (tang(), vec![]),
    ] {
        let lab = encrypted(&[pin]);
        let mounts = lab.node.read("proc/1/mountinfo");
        let root = mounts.replace("23 22 253:0 ", "23 22 8:5 ");
        lab.node.write("proc/1/mountinfo", &root);
        lab.add_device(&Device {
            number: "8:5",
            name: "sda5",
            disk: "8:0",
            properties: &[("ID_FS_UUID", ROOT_UUID), ("ID_FS_TYPE", "xfs")],
        });
        assert_eq!(lab.short(), short);
    }
}

#[test]
fn damaged_headers_are_not_judged() {
    let lab = encrypted(&[tang()]);
    lab.node.write("dev/sda4", "LUKS");
    assert_eq!(lab.short(), ["encrypted-root unknown /dev/sda4"]);
}
