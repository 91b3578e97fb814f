//! Files of a config on a `/boot` of its own, as a boot loader sees them that replays no journal.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::support::mounts::{mount, with_mounts};
use crate::support::{Lacks, TestRoot, file, machine_config, skip};

/// Mounts what a power cut now would leave, without a replay of the journal.
fn without_its_journal(disk: &std::path::Path, read: impl FnOnce(&std::path::Path)) {
    let copy = tempfile::NamedTempFile::new().unwrap();
    let copied = Command::new("cp")
        .arg("--sparse=always")
        .args([disk, copy.path()])
        .status();
    assert!(copied.unwrap().success());
    let there = tempfile::tempdir().unwrap();
    let (from, to) = (
        copy.path().to_str().unwrap(),
        there.path().to_str().unwrap(),
    );
    mount(&["-o", "loop,ro,norecovery,nouuid", from, to]);
    read(there.path());
    assert!(Command::new("umount").arg(to).status().unwrap().success());
}

#[test]
fn what_a_run_writes_to_an_xfs_boot_is_seen_without_its_journal() {
    with_mounts(|| {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(400 << 20).unwrap();
        let made = Command::new("mkfs.xfs").arg("-q").arg(disk.path()).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return skip(Lacks::Setup, "mkfs.xfs is not to be had");
        }
        let root = TestRoot::new();
        let boot = root.path("boot");
        fs::create_dir_all(&boot).unwrap();
        mount(&[
            "-o",
            "loop",
            disk.path().to_str().unwrap(),
            boot.to_str().unwrap(),
        ]);
        fs::create_dir_all(boot.join("loader/entries")).unwrap();
        let foreign = "title A\nversion 1\noptions rw\nx-options-source-tuned isolcpus=2-7\n";
        fs::write(boot.join("loader/entries/ostree-1+3.conf"), foreign).unwrap();
        let files = json!({"storage": {"files": [
            file("/boot/site.cfg", 0o644, "set timeout=1\n"),
            file("/etc/site", 0o644, "new\n"),
        ]}});
        root.apply(&machine_config("rendered-worker-1", files));
        without_its_journal(disk.path(), |seen| {
            let text = fs::read_to_string(seen.join("site.cfg"));
            assert_eq!(text.unwrap(), "set timeout=1\n");
        });
        // It is thawed again, and nothing else there was touched.
        fs::write(boot.join("later"), "x").unwrap();
        let entry = fs::read_to_string(boot.join("loader/entries/ostree-1+3.conf"));
        assert_eq!(entry.unwrap(), foreign);
        assert!(
            Command::new("umount")
                .arg(&boot)
                .status()
                .unwrap()
                .success()
        );
    });
}
