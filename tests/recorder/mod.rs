//! The flight recorder through the program: what is recorded, what differs, what is never kept, and what an accident leaves.

mod accidents;
mod changes;
mod doctor;
mod keeping;
mod places;
mod secrets;

use std::fs;

use serde_json::{Value, json};

use crate::support::{Run, TestRoot};

const STORE: &str = "var/lib/mco-rescue/recorder";
const ON_BOOT: &str = "boot/mco-rescue";

/// A node that runs, as far as files show it; its units cannot be asked.
fn node() -> TestRoot {
    let root = TestRoot::new();
    for (path, text) in [
        (
            "proc/cmdline",
            "BOOT_IMAGE=/vmlinuz root=UUID=1 ro mitigations=auto\n",
        ),
        ("proc/sys/kernel/osrelease", "5.14.0-1.el9.x86_64\n"),
        (
            "proc/net/fib_trie",
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.10\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n",
        ),
        (
            "proc/net/if_inet6",
            "20010db8000000000000000000000010 02 40 00 80     eth0\nfe800000000000000000000000000010 02 40 20 80     eth0\n",
        ),
        ("sys/class/net/eth0/type", "1\n"),
        ("sys/class/net/eth0/address", "52:54:00:aa:bb:cc\n"),
        ("sys/class/net/eth0/addr_assign_type", "0\n"),
        ("sys/class/net/eth0/ifindex", "2\n"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/device/uevent", "\n"),
        (
            "run/udev/data/n2",
            "E:ID_NET_DRIVER=ixgbe\nE:ID_PATH=pci-0000:01:00.0\n",
        ),
        ("sys/class/block/sda/size", "2048\n"),
        (
            "boot/loader/entries/ostree-1.conf",
            "title OS 1\nversion 1\nlinux /ostree/os-1/vmlinuz\ninitrd /ostree/os-1/initramfs\noptions root=UUID=1 ro\n",
        ),
        ("boot/grub2/grub.cfg", "set default=0\n"),
        (
            "boot/grub2/grubenv",
            "# GRUB Environment Block\nsaved_entry=0\nboot_success=1\n",
        ),
        ("boot/efi/EFI/redhat/grubx64.efi", "MZ1\n"),
        ("etc/fstab", "UUID=1 / xfs defaults 0 0\n"),
        ("etc/motd", "welcome\n"),
        (
            "etc/systemd/system/kubelet.service.d/20-a.conf",
            "[Service]\n",
        ),
        ("usr/bin/kubelet", "program\n"),
        ("usr/lib/systemd/libsystemd-shared-252-51.el9.so", ""),
        ("var/lib/mco-rescue/marker", "mco-rescue state directory\n"),
        (
            "var/lib/mco-rescue/annotations.json",
            r#"{"version":1,"node":"w","seen":1700000000,"current":"rendered-a","desired":"rendered-a","state":"Done"}"#,
        ),
        (
            "var/lib/mco-rescue/server-clock.json",
            r#"{"version":1,"url":"https://a","date":1700000000,"seen":1700000001}"#,
        ),
        (
            "etc/machine-config-daemon/currentconfig",
            r#"{"metadata":{"name":"rendered-a"}}"#,
        ),
    ] {
        root.write(path, text);
    }
    root.chmod("var/lib/mco-rescue", 0o700);
    fs::create_dir_all(root.path("dev/disk/by-id")).unwrap();
    root.link("dev/disk/by-id/wwn-0x5000", "../../sda");
    boots(&root, "boot-1");
    root
}

/// The next boot of the node.
fn boots(root: &TestRoot, id: &str) {
    root.write("proc/sys/kernel/random/boot_id", &format!("{id}\n"));
}

/// The end of a boot.
fn end_of_boot(root: &TestRoot) -> Value {
    root.run(&["record", "--at-boot", "--output", "json"])
        .ok()
        .json()
}

fn record(root: &TestRoot) -> Value {
    root.run(&["record", "--output", "json"]).ok().json()
}

fn history(root: &TestRoot) -> Value {
    root.run(&["history", "--output", "json"]).ok().json()
}

/// Runs `diff`, which ends with 0 or 3.
fn diff(root: &TestRoot, args: &[&str]) -> Value {
    let mut all = vec!["diff", "--output", "json"];
    all.extend(args);
    let run = root.run(&all);
    let document = answer(&run);
    let differs = document["differences"] != json!([]);
    assert_eq!(run.code(), if differs { 3 } else { 0 }, "{document:#}");
    document
}

#[track_caller]
fn answer(run: &Run) -> Value {
    assert!(
        [0, 3, 6].contains(&run.code()),
        "{}{}",
        run.out(),
        run.err()
    );
    run.json()
}

/// Area, subject and change of each difference.
fn differences(document: &Value) -> Vec<(String, String, String)> {
    let all = document["differences"].as_array().unwrap().iter();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    all.map(|one| (text(one, "area"), text(one, "subject"), text(one, "change")))
        .collect()
}

/// Names of the files in a directory with a beginning.
fn files(root: &TestRoot, directory: &str, begin: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.path(directory)) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    names.sort();
    names
}
