//! FP-16: the disk is full.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::small::{self, disk_of_a_node, live, record_on, run_at};
use super::{Dark, answer, doctor, doctor_on, found, of, says};
use crate::support::TestRoot;
use crate::support::mounts::{Disk, mount, with_mounts};
use crate::support::ostree_node::ARRIVED;
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-16", "there is neither /sysroot nor /var", |root| {
    fs::remove_dir_all(root.path("var")).unwrap();
})];

#[test]
fn a_disk_without_room_is_critical_before_anything_fails() {
    with_mounts(|| {
        let root = TestRoot::new();
        let var = root.path("var");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=64m",
            "tmpfs",
            var.to_str().unwrap(),
        ]);
        fs::create_dir(root.path("var/lib")).unwrap();
        root.apply(&small::config());
        small::furnish(&root);
        assert_eq!(of(&doctor(&root), "FP-16"), Vec::<Value>::new());
        let fill = |mebibytes: usize| root.write("var/fill", &"x".repeat(mebibytes << 20));
        fill(59);
        says(
            &found(&doctor(&root), "FP-16", "warning"),
            &["of 64 MiB are free"],
        );
        fill(62);
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &["No space left on device"],
        );
    });
}

#[test]
fn logs_of_a_disk_are_where_its_var_is() {
    with_mounts(|| {
        let (outer, place) = disk_of_a_node("");
        // All of it on a small disk, and the deployment where a boot would look for it.
        let copy = tempfile::tempdir().unwrap();
        copies(outer.dir(), copy.path());
        let at = outer.dir().to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=3m", "tmpfs", at]);
        copies(copy.path(), outer.dir());
        let stateroot = format!("{place}/sysroot/ostree/deploy/rhcos");
        fs::create_dir_all(outer.path(&format!("{stateroot}/deploy/{place}"))).unwrap();
        let next = |seen: &Value| of(seen, "FP-16")[0]["next"][0].clone();
        let command = |var: &str| {
            let journal = outer.path(&format!("{var}/log/journal"));
            json!(format!(
                "journalctl -D {} --vacuum-size=500M",
                journal.display()
            ))
        };
        let seen = answer(&run_at(&outer, &place));
        found(&seen, "FP-16", "critical");
        assert_eq!(next(&seen), command(&format!("{place}/var")));
        fs::remove_dir_all(outer.path(&format!("{place}/var/lib"))).unwrap();
        let seen = answer(&run_at(&outer, &place));
        assert_eq!(next(&seen), command(&format!("{stateroot}/var")));
    });
}

/// A node whose data is on this file system.
fn with_var_on(place: &Path) {
    fs::create_dir_all(place.join("lib")).unwrap();
}

#[test]
fn a_disk_on_which_ostree_would_refuse_a_pull_is_critical() {
    with_mounts(|| {
        let root = TestRoot::new();
        let Some(disk) = Disk::new(300, &["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0"]) else {
            return;
        };
        disk.mount(&root.path("var"), "");
        with_var_on(&root.path("var"));
        root.apply(&small::config());
        small::furnish(&root);
        let leave = |mebibytes: u64| {
            let _ = fs::remove_file(root.path("var/fill"));
            let length = statvfs(&root.path("var")).0 - (mebibytes << 20);
            let mut command = Command::new("fallocate");
            command
                .args(["-l", &length.to_string()])
                .arg(root.path("var/fill"));
            assert!(command.status().unwrap().success());
        };
        leave(20);
        says(
            &found(&doctor(&root), "FP-16", "warning"),
            &["the disk is nearly full"],
        );
        leave(7);
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &[
                "the disk is almost full",
                "min-free-space-percent '3%' would be exceeded",
            ],
        );
    });
}

#[test]
fn a_var_of_its_own_is_judged_beside_the_disk_of_the_os() {
    with_mounts(|| {
        let root = TestRoot::new();
        let var = root.path("var");
        fs::create_dir(root.path("sysroot")).unwrap();
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=64m",
            "tmpfs",
            var.to_str().unwrap(),
        ]);
        with_var_on(&var);
        root.apply(&small::config());
        small::furnish(&root);
        assert_eq!(of(&doctor(&root), "FP-16"), Vec::<Value>::new());
        root.write("var/fill", &"x".repeat(62 << 20));
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &[
                "the disk is full",
                "\"/var\"",
                "of 64 MiB are free",
                "/var/fill",
                "62 MiB, in /var",
                &format!("ls -lh {}", var.join("fill").display()),
            ],
        );
    });
}

#[test]
fn a_disk_that_can_hold_no_more_files_is_reported_although_it_has_room() {
    with_mounts(|| {
        let root = TestRoot::new();
        let var = root.path("var");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=64m,nr_inodes=2000",
            "tmpfs",
            var.to_str().unwrap(),
        ]);
        with_var_on(&var);
        root.apply(&small::config());
        small::furnish(&root);
        assert_eq!(of(&doctor(&root), "FP-16"), Vec::<Value>::new());
        let mut made = 0;
        let mut leave = |free: u64| {
            while statvfs(&var).1 > free {
                fs::create_dir(var.join(made.to_string())).unwrap();
                made += 1;
            }
        };
        leave(90);
        says(
            &found(&doctor(&root), "FP-16", "warning"),
            &[
                "few inodes left",
                "90 of 2000 inodes are free",
                &format!("du --inodes -xS {}/ | sort", var.display()),
            ],
        );
        leave(0);
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &[
                "no inodes left",
                "0 of 2000 inodes are free",
                "No space left on device",
            ],
        );
    });
}

#[test]
fn a_running_node_without_room_is_told_what_may_go() {
    live(|node| {
        record_on(node, |_| {});
        let var = node.root.path("var");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=3m",
            "tmpfs",
            var.to_str().unwrap(),
        ]);
        // The directory of a deployment that rpm-ostree does not list.
        let lost = format!("sysroot/ostree/deploy/rhcos/deploy/{ARRIVED}.0/etc");
        fs::create_dir_all(node.root.path(&lost)).unwrap();
        says(
            &found(&doctor_on(node), "FP-16", "critical"),
            &[
                "1 deployment that rpm-ostree does not list",
                "crictl rmi --prune",
                "rpm-ostree cleanup -m",
            ],
        );
    });
}

/// Free bytes and inodes.
fn statvfs(path: &Path) -> (u64, u64) {
    let stat = nix::sys::statvfs::statvfs(path).unwrap();
    (stat.blocks_free() * stat.fragment_size(), stat.files_free())
}

/// Takes every byte and every inode of a file system.
fn fill(path: &Path) {
    let mut names = (0..).map(|number: u32| path.join(format!("f{number}")));
    while names
        .next()
        .is_some_and(|name| fs::File::create(name).is_ok())
    {}
    let mut left = fs::File::options()
        .write(true)
        .open(path.join("f0"))
        .unwrap();
    let block = vec![b'x'; 64 << 10];
    while left.write_all(&block).is_ok() {}
    while left.write_all(b"x").is_ok() {}
}

#[test]
fn doctor_runs_on_a_disk_without_a_byte_or_an_inode_and_writes_nothing() {
    with_mounts(|| {
        for kind in ["ext4", "tmpfs"] {
            let root = TestRoot::new();
            root.apply(&small::config());
            small::furnish(&root);
            let copy = tempfile::tempdir().unwrap();
            let at = root.dir().to_str().unwrap();
            copies(root.dir(), copy.path());
            let disk = match kind {
                "ext4" => Disk::new(16, &["mke2fs", "-q", "-F", "-t", "ext4", "-N", "400"]),
                _ => None,
            };
            match &disk {
                Some(disk) => disk.mount(root.dir(), ""),
                None if kind == "ext4" => continue,
                None => mount(&["-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "tmpfs", at]),
            }
            copies(copy.path(), root.dir());
            fill(root.dir());
            assert_eq!(statvfs(root.dir()).1, 0, "{kind}");
            let before = root.everything();
            says(
                &found(&doctor(&root), "FP-16", "critical"),
                &["the disk is full", "0 MiB of", "inodes are free"],
            );
            assert_eq!(
                root.everything(),
                before,
                "{kind}: doctor changed something"
            );

            let bundle = root.path("bundle.tar.gz");
            let run = root
                .run(&["doctor", "--bundle", bundle.to_str().unwrap()])
                .exits(1);
            for words in ["bundle.tar.gz", "o space left", "give another FILE"] {
                assert!(
                    run.err().contains(words),
                    "{kind}: no {words:?} in {}",
                    run.err()
                );
            }
            assert_eq!(root.everything(), before, "{kind}: a half was left");
            // There is an inode, and no byte.
            root.remove("f1");
            let before = root.everything();
            root.run(&["doctor", "--bundle", bundle.to_str().unwrap()])
                .exits(1);
            assert_eq!(root.everything(), before, "{kind}: a half was left");
        }
    });
}

/// With modes and owners.
fn copies(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to)
        .status();
    assert!(status.unwrap().success());
}
