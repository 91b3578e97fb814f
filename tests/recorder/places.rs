//! Partitions, disks and boots as a rescue system and a real node have them.

use std::fs;

use super::{ON_BOOT, STORE, boots, diff, differences, end_of_boot, files, history, node, record};
use crate::crossing::firmware::write_fat;
use crate::crossing::{Device, ESP_TYPE, Lab};
use crate::support::mounts::{mount, with_mounts};
use crate::support::sysroot::Sysroot;
use crate::support::{TestRoot, file, machine_config};
use serde_json::{Value, json};

#[test]
fn a_system_partition_that_is_not_mounted_is_read_from_its_device() {
    let lab = Lab::healthy();
    let grub = |text: &'static [u8]| {
        [
            ("EFI/BOOT/BOOTX64.EFI", &b"shim"[..]),
            ("EFI/redhat/grubx64.efi", text),
        ]
    };
    if !write_fat(&lab, "dev/sdb2", &grub(b"grub")) {
        return;
    }
    lab.add_device(&Device {
        number: "8:18",
        name: "sdb2",
        properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE)],
        ..Device::default()
    });
    // That of the first disk is mounted there.
    fs::remove_dir_all(lab.node.path("boot/efi")).unwrap();
    boots(&lab.node, "boot-1");
    end_of_boot(&lab.node);
    assert!(write_fat(&lab, "dev/sdb2", &grub(b"other")));
    let found = differences(&diff(&lab.node, &[]));
    let esp: Vec<_> = found.iter().filter(|one| one.0 == "esp").collect();
    let wanted = (
        "esp".to_owned(),
        "EFI/redhat/grubx64.efi".to_owned(),
        "changed".to_owned(),
    );
    assert_eq!(esp, [&wanted], "{found:?}");
}

#[test]
fn a_dead_disk_is_compared_with_its_last_good_boot() {
    let Some(disk) = Sysroot::new() else { return };
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    assert!(disk.deploy(&["--karg=number=1".to_owned()]));
    let var = disk.0.path("ostree/deploy/os/var");
    fs::create_dir_all(var.join("lib")).unwrap();
    let deployments = fs::read_dir(disk.0.path("ostree/deploy/os/deploy")).unwrap();
    let mut deployments = deployments.map(|entry| entry.unwrap().path());
    let etc = deployments.find(|path| path.is_dir()).unwrap().join("etc");
    fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(etc.join("fstab"), "one\n").unwrap();
    let first = record(&disk.0);
    assert_eq!(first["is_new"], true);
    assert!(var.join("lib/mco-rescue/recorder/key").exists());
    fs::write(etc.join("fstab"), "two\n").unwrap();
    let found = diff(&disk.0, &["1"]);
    let etc: Vec<_> = differences(&found)
        .into_iter()
        .filter(|one| one.0 == "etc")
        .collect();
    assert_eq!(etc.len(), 1, "{found:#}");
    assert_eq!(etc[0].1, "/etc/fstab");
    assert_eq!(history(&disk.0)["entries"][0]["snapshot"], 1);
}

/// An entry of `wtmp` for a start of the system.
fn start(at: u64) -> Vec<u8> {
    let mut entry = vec![0; 384];
    entry[0] = 2;
    entry[44..50].copy_from_slice(b"reboot");
    entry[76..86].copy_from_slice(b"5.14.0-bad");
    entry[340..344].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
    entry
}

#[test]
fn a_boot_that_left_no_snapshot_is_listed() {
    let root = node();
    end_of_boot(&root);
    let ended = history(&root)["entries"][0]["at"].as_u64().unwrap();
    let starts = [start(ended - 60), start(ended + 100), start(ended + 200)].concat();
    fs::create_dir_all(root.path("var/log")).unwrap();
    fs::write(root.path("var/log/wtmp"), starts).unwrap();
    let seen = history(&root);
    let short = |one: &Value| (one["outcome"].clone(), one["kernel"].clone());
    let short: Vec<_> = seen["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(short)
        .collect();
    // The last start is not over.
    assert_eq!(
        short,
        [
            (json!("no-end"), json!("5.14.0-bad")),
            (json!("good"), json!("5.14.0-1.el9.x86_64")),
        ]
    );
    let shown = root.run(&["history"]).ok().out();
    assert!(shown.contains("left no snapshot"), "{shown}");
    fs::write(root.path("var/log/wtmp"), "garbage").unwrap();
    assert_eq!(history(&root)["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn a_recorder_that_cannot_write_changes_no_result_of_a_run() {
    with_mounts(|| {
        let root = TestRoot::new();
        let config = |text: &str| {
            let files = json!({"storage": {"files": [file("/etc/of-config", 0o644, text)]}});
            root.config(&machine_config("rendered-worker-a", files))
        };
        let first = config("a\n");
        root.run(&["apply", "--yes", first.path()]).ok();
        record(&root);
        let store = root.path(STORE);
        let store = store.to_str().unwrap();
        mount(&["--bind", store, store]);
        mount(&["-o", "remount,bind,ro", store]);
        let second = config("b\n");
        let run = root.run(&["apply", "--yes", second.path()]).ok();
        assert_eq!(root.read("etc/of-config"), "b\n");
        assert!(
            run.err()
                .contains("the run is done, but no snapshot of it was recorded"),
            "{}",
            run.err()
        );
        let run = root.run(&["rollback", "--yes"]).ok();
        assert_eq!(root.read("etc/of-config"), "a\n");
        assert!(
            run.err().contains("no snapshot of it was recorded"),
            "{}",
            run.err()
        );
        // The runs are listed all the same.
        assert_eq!(history(&root)["entries"].as_array().unwrap().len(), 3);
    });
}

#[test]
fn an_uninstallation_takes_the_snapshots_along() {
    let root = node();
    root.run(&["install"]).ok();
    end_of_boot(&root);
    assert!(root.exists(STORE) && root.exists(ON_BOOT));
    let said = root.run(&["install", "--remove", "--yes"]).ok().out();
    assert!(said.contains("/boot/mco-rescue"), "{said}");
    assert!(!root.exists(STORE) && !root.exists(ON_BOOT));
    with_mounts(|| {
        let root = node();
        root.run(&["install"]).ok();
        end_of_boot(&root);
        let boot = root.path("boot");
        let boot = boot.to_str().unwrap();
        mount(&["--bind", boot, boot]);
        mount(&["-o", "remount,bind,ro", boot]);
        let said = root.run(&["install", "--remove", "--yes"]).ok().out();
        assert!(said.contains("/boot is read-only"), "{said}");
        assert!(!root.exists(STORE));
        assert_eq!(files(&root, ON_BOOT, "snapshot-").len(), 1);
    });
}
