//! The medium of the initramfs: a stick labelled MCO-RESCUE, read by a node that demands a capsule at its first boot. The device and
//! its file system are real. `blkid` finds this one alone, as another test may have such a stick at the same time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mco_rescue::config::document;
use serde_json::Value;

use super::keys::{NAME, Stick, config_text};
use crate::support::mounts::{Disk, mount, with_mounts};
use crate::support::{Lacks, Run, flat, skip};

const KNOWN: &str = "var/lib/mco-rescue/capsules.json";

/// A device with what is on the stick, found by its label.
struct Plugged {
    device: String,
    _disk: Disk,
    _blkid: tempfile::TempDir,
}

impl Plugged {
    /// Copies the stick onto a disk, and plugs that in; `None` without loop devices. For a mount namespace only.
    fn new(stick: &Stick, label: &str) -> Option<Self> {
        let disk = Disk::new(8, &["mke2fs", "-q", "-t", "ext4", "-L", label])?;
        let there = tempfile::tempdir().unwrap();
        disk.mount(there.path(), "");
        let from = format!("{}/.", stick.path(""));
        let mut copy = Command::new("cp");
        copy.args(["-r", &from]).arg(there.path());
        assert!(copy.status().unwrap().success());
        crate::support::mounts::unmount(there.path());
        let mut attach = Command::new("losetup");
        attach.args(["-r", "-f", "--show"]).arg(disk.path());
        let attached = attach.output().unwrap();
        if !attached.status.success() {
            skip(Lacks::Machine, "no loop device can be had");
            return None;
        }
        let device = String::from_utf8(attached.stdout)
            .unwrap()
            .trim()
            .to_owned();
        let blkid = find_this_one_alone(&device);
        Some(Self {
            device,
            _disk: disk,
            _blkid: blkid,
        })
    }
}

impl Drop for Plugged {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// Puts a `blkid` over the real one that lists this device alone, if the real one finds the asked label on it.
fn find_this_one_alone(device: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("real");
    let found = ["/usr/sbin/blkid", "/sbin/blkid"].map(PathBuf::from);
    let found = found.iter().find(|path| path.exists()).unwrap();
    fs::copy(found, &real).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*LABEL=*) {real} \"$@\" | grep -x {device} || exit 2;;\n*) exec {real} \"$@\";;\nesac\n",
        real = real.display()
    );
    let stub = directory.path().join("blkid");
    fs::write(&stub, script).unwrap();
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
    mount(&["--bind", stub.to_str().unwrap(), found.to_str().unwrap()]);
    directory
}

/// A stick whose config is at its top, and a node that systemd has not booted yet and that demands a capsule at its first boot.
fn stick() -> Option<Stick> {
    let stick = Stick::new()?;
    fs::remove_dir_all(stick.path("configs")).unwrap();
    stick.put("one.json", &config_text(NAME, "1\n"));
    stick.make(&["--sequence", "8"]);
    stick.root.write("etc/machine-id", "");
    stick
        .root
        .write("etc/mco-rescue/policy", "first-boot = required\n");
    Some(stick)
}

/// The boot in the initramfs: its exit, its result, and what it leaves.
fn boot(stick: &Stick, line: &str) -> (Run, Value) {
    mount(&["-t", "tmpfs", "run", "/run"]);
    boot_again(stick, line)
}

fn boot_again(stick: &Stick, line: &str) -> (Run, Value) {
    let run = stick.root.run(&["firstboot", "--kernel-arguments", line]);
    let kept = fs::read("/run/mco-rescue/firstboot.json").unwrap();
    let left: Vec<_> = fs::read_dir("/run")
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    assert_eq!(left, ["mco-rescue"]);
    (run, serde_json::from_slice(&kept).unwrap())
}

/// Asserts that a boot with this stick applies nothing, and says this on the console too, whole.
fn applies_nothing<Kept>(change: impl FnOnce(&Stick) -> Kept + Send, words: &[&str]) {
    with_mounts(|| {
        let Some(stick) = stick() else { return };
        let _kept = change(&stick);
        let Some(_plugged) = Plugged::new(&stick, "MCO-RESCUE") else {
            return;
        };
        let before = stick.root.everything();
        let (run, kept) = boot(&stick, "rw");
        assert_eq!(run.code(), 1, "{kept}");
        assert_eq!(kept["outcome"], "failed", "{kept}");
        let cause = mco_rescue::report::firstboot::failure_text(
            kept["phase"].as_str().unwrap(),
            kept["cause"].as_str().unwrap(),
            Some(false),
        );
        assert!(
            cause.lines().all(|line| line.chars().count() <= 80),
            "{cause}"
        );
        for words in words {
            assert!(flat(&cause).contains(words), "{words}: {cause}\n{kept}");
        }
        let mut after = stick.root.everything();
        after.retain(|path, _| !path.starts_with("var/lib/mco-rescue") || path.ends_with(KNOWN));
        assert!(after == before, "{words:?}");
    });
}

#[test]
fn a_first_boot_reads_its_medium_through_a_capsule_and_remembers_it() {
    with_mounts(|| {
        let Some(stick) = stick() else { return };
        let Some(_plugged) = Plugged::new(&stick, "MCO-RESCUE") else {
            return;
        };
        let (run, kept) = boot(&stick, "rw");
        assert_eq!(run.code(), 0, "{kept} {}", run.err());
        assert_eq!(kept["outcome"], "applied", "{kept}");
        assert_eq!(stick.root.read("etc/from-stick"), "1\n");
        let status = stick.root.run(&["status", "--output", "json"]).json();
        assert_eq!(status["recorded_signed"]["sequence"], 8);
        assert_eq!(status["recorded_signed"]["signer"], "alice@example.com");
        assert!(stick.root.exists(KNOWN));
    });
}

#[test]
fn a_first_boot_without_a_capsule_applies_nothing_and_says_how_to_make_one() {
    let how = "mco-rescue capsule make DIR --sign KEY";
    applies_nothing(
        |stick| {
            // A name as long as those of rendered configs.
            let name = format!("rendered-worker-{}.json", "0".repeat(32));
            fs::rename(stick.path("one.json"), stick.path(&name)).unwrap();
            fs::remove_file(stick.path("capsule.json")).unwrap();
            fs::remove_file(stick.path("capsule.json.sig")).unwrap();
        },
        &["first-boot = required", how],
    );
    applies_nothing(
        |stick| fs::remove_file(stick.path("capsule.json.sig")).unwrap(),
        &["the signature of MCO-RESCUE:/capsule.json is missing"],
    );
}

#[test]
fn a_first_boot_with_a_capsule_that_does_not_fit_applies_nothing_and_says_why() {
    applies_nothing(
        |stick| stick.put("one.json", &config_text(NAME, "2\n")),
        &["one.json is not the file of the capsule"],
    );
    applies_nothing(
        |stick| {
            stick.root.write("etc/hostname", "worker-0\n");
            drop(stick.make(&["--sequence", "8", "--node", "worker-1"]));
        },
        &["is for node worker-1, and this node is worker-0"],
    );
    applies_nothing(
        |stick| drop(stick.make(&["--sequence", "8", "--pool", "worker"])),
        &["is for pool worker", "unknown which one"],
    );
    applies_nothing(
        |stick| drop(stick.make(&["--not-after", "2020-01-01T00:00:00Z"])),
        &["was valid until 2020-01-01T00:00:00Z"],
    );
    applies_nothing(
        |stick| stick.root.remove("etc/mco-rescue/allowed_signers"),
        &["no /etc/mco-rescue/allowed_signers"],
    );
    applies_nothing(
        |stick| {
            stick
                .root
                .write("etc/mco-rescue/policy", "firstboot = required\n")
        },
        &["/etc/mco-rescue/policy, line 1"],
    );
}

/// Moves what the node demands out of its root, and into what this program runs in, as an archive of the initramfs does.
fn demand_in_the_initramfs(stick: &Stick) -> tempfile::TempDir {
    let brought = tempfile::tempdir().unwrap();
    let (from, to) = (
        stick.root.path("etc/mco-rescue"),
        brought.path().join("mco-rescue"),
    );
    fs::create_dir(&to).unwrap();
    for name in ["policy", "allowed_signers"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
        fs::remove_file(from.join(name)).unwrap();
    }
    let lower = format!("lowerdir={}:/usr/lib", brought.path().display());
    mount(&["-t", "overlay", "-o", &lower, "overlay", "/usr/lib"]);
    brought
}

#[test]
fn what_the_initramfs_demands_counts_where_the_root_demands_nothing() {
    applies_nothing(
        |stick| {
            fs::remove_file(stick.path("capsule.json")).unwrap();
            fs::remove_file(stick.path("capsule.json.sig")).unwrap();
            demand_in_the_initramfs(stick)
        },
        &["first-boot = required"],
    );
    with_mounts(|| {
        let Some(stick) = stick() else { return };
        let _brought = demand_in_the_initramfs(&stick);
        let Some(_plugged) = Plugged::new(&stick, "MCO-RESCUE") else {
            return;
        };
        let (run, kept) = boot(&stick, "rw");
        assert_eq!(run.code(), 0, "{kept} {}", run.err());
        assert_eq!(stick.root.read("etc/from-stick"), "1\n");
        let status = stick.root.run(&["status", "--output", "json"]).json();
        assert_eq!(status["recorded_signed"]["sequence"], 8);
    });
    // A root may demand more, and not less.
    applies_nothing(
        |stick| {
            fs::remove_file(stick.path("capsule.json")).unwrap();
            fs::remove_file(stick.path("capsule.json.sig")).unwrap();
            let brought = demand_in_the_initramfs(stick);
            let less = "first-boot = optional\n";
            stick.root.write("usr/lib/mco-rescue/policy", less);
            brought
        },
        &["first-boot = required"],
    );
}

#[test]
fn a_config_named_on_the_kernel_command_line_is_read_through_its_capsule_too() {
    with_mounts(|| {
        let Some(stick) = stick() else { return };
        let line = format!(
            "mco_rescue=apply mco_rescue.config={}",
            stick.path("one.json")
        );
        let list = fs::read(stick.path("capsule.json")).unwrap();
        fs::remove_file(stick.path("capsule.json")).unwrap();
        let before = stick.root.snapshot();
        let (run, kept) = boot(&stick, &line);
        assert_eq!(run.code(), 1, "{kept}");
        assert!(
            kept["cause"].as_str().unwrap().contains("capsule.json"),
            "{kept}"
        );
        assert_eq!(stick.root.snapshot(), before);
        fs::write(stick.path("capsule.json"), list).unwrap();
        let (run, kept) = boot(&stick, &line);
        assert_eq!(run.code(), 0, "{kept} {}", run.err());
        assert!(Path::new(&stick.root.path(KNOWN)).exists());
    });
}

#[test]
fn what_ignition_was_given_through_a_capsule_is_remembered_on_the_root() {
    with_mounts(|| {
        let Some(stick) = stick() else { return };
        mount(&["-t", "tmpfs", "run", "/run"]);
        // What the unit beside Ignition leaves, which no root had a place for.
        let config = document::parse_document(config_text(NAME, "1\n").as_bytes(), "one").unwrap();
        fs::create_dir("/run/mco-rescue").unwrap();
        let given = document::serve_config(&config).unwrap();
        fs::write("/run/mco-rescue/given.json", given).unwrap();
        let signed = serde_json::json!({
            "sequence": 8, "sha256": "0".repeat(64), "signer": "alice@example.com", "key": "SHA256:x", "not_after": null
        });
        fs::write("/run/mco-rescue/given-capsule.json", signed.to_string()).unwrap();
        let (run, kept) = boot_again(&stick, "rw");
        assert_eq!(run.code(), 0, "{kept} {}", run.err());
        assert_eq!(kept["outcome"], "applied", "{kept}");
        assert!(stick.root.read(KNOWN).contains("\"sequence\": 8"));
        assert!(!Path::new("/run/mco-rescue/given-capsule.json").exists());
    });
}
