//! The checks of what only a running node has, with stubs of its programs, and of disks that are full.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{
    NAME, RECORD, answer, authority, config, doctor, found, furnish, label, of, says, unseen,
    with_policy,
};
use crate::support::mounts::{Disk, mount, with_mounts};
use crate::support::ostree_node::{ARRIVED, BOOTED, IMAGE, NEXT, OstreeNode};
use crate::support::{PROGRAM, Run, TestRoot, say};

/// A live node with stubs of its programs.
fn live(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = OstreeNode::new();
        furnish(&node.root);
        test(&node);
    });
}

fn record_on(node: &OstreeNode, change: impl FnOnce(&mut Value)) {
    let mut config = config();
    change(&mut config["spec"]);
    node.root.write(RECORD, &config.to_string());
}

fn doctor_on(node: &OstreeNode) -> Value {
    answer(&node.run(&["doctor", "--output", "json"]))
}

#[test]
fn packages_of_extensions_and_kernels_are_missed_on_a_live_node() {
    live(|node| {
        record_on(node, |spec| spec["extensions"] = json!(["usbguard"]));
        says(
            &found(&doctor_on(node), "FP-19", "warning"),
            &["usbguard not layered"],
        );
        node.runs(IMAGE, "usbguard", "");
        assert_eq!(of(&doctor_on(node), "FP-19"), Vec::<Value>::new());
        record_on(node, |spec| {
            spec["extensions"] = json!(["usbguard"]);
            spec["kernelType"] = json!("realtime");
        });
        says(
            &found(&doctor_on(node), "FP-19", "warning"),
            &["realtime is wanted, default is there"],
        );
        assert_eq!(
            node.calls(),
            Vec::<String>::new(),
            "doctor changed something"
        );
    });
}

#[test]
fn a_boot_entry_that_somebody_changed_is_told_on_a_live_node() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-18"), Vec::<Value>::new());
        node.root.write("stub/kargs", "rw by-hand=1\n");
        says(
            &found(&doctor_on(node), "FP-18", "notice"),
            &["the next boot only", "by-hand=1"],
        );
    });
}

#[test]
fn a_live_node_without_name_servers_is_critical() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-32"), Vec::<Value>::new());
        node.root.write("etc/resolv.conf", "search example\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["on [::1]:53"],
        );
        node.root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
        found(&doctor_on(node), "FP-32", "warning");
        node.root
            .write("etc/kubernetes/manifests/coredns.yaml", "kind: Pod\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["coredns.yaml", "127.0.0.1"],
        );
    });
}

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
        root.apply(&config());
        furnish(&root);
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

/// Replaces a part of what the stub of rpm-ostree says.
fn rpm_ostree_says(node: &OstreeNode, part: &str, instead: &str) {
    let script = node.root.read("usr/sbin/rpm-ostree");
    assert!(script.contains(part), "no {part:?} in {script}");
    let script = script.replace(part, instead);
    node.program("rpm-ostree", script.trim_start_matches("#!/bin/sh\n"));
}

/// What the kernel of the node was booted with.
fn booted_with(node: &OstreeNode, words: &str) {
    let line = format!("rw ostree=/ostree/boot.1/rhcos/0/0 {words}\n");
    node.root.write("cmdline", &line);
}

/// What a check could not look at.
fn unseen_on(node: &OstreeNode, id: &str) -> String {
    unseen(&doctor_on(node), id)
}

#[test]
fn what_the_last_shutdown_and_the_awaited_boot_came_to_is_told_with_the_gap() {
    live(|node| {
        record_on(node, |spec| spec["osImageURL"] = json!(NEXT));
        let awaited = json!({"version": 1, "way": "forward", "config": {"name": NAME, "digest": "", "origin": ""},
            "run": null, "boot": "0", "from": format!("{BOOTED}.0"), "image": NEXT, "kernel_arguments": [],
            "since": 1, "failed": "the deployment from before was booted again"});
        node.root
            .write("var/lib/mco-rescue/awaited.json", &awaited.to_string());
        says(
            &found(&doctor_on(node), "FP-01", "critical"),
            &[
                "the recorded OS image does not run",
                "the deployment from before was booted again",
            ],
        );
        let failed = "printf 'Warning: failed to finalize previous deployment\\n  error: Installing kernel: x\\n'";
        rpm_ostree_says(
            node,
            "status) echo 'State: idle'",
            &format!("status) {failed}"),
        );
        let all = of(&doctor_on(node), "FP-01");
        assert_eq!(all.len(), 2, "{all:#?}");
        says(
            &all[0].to_string(),
            &[
                "the last shutdown could not write the new OS",
                "rpm-ostree status",
                "Installing kernel: x",
            ],
        );
    });
}

#[test]
fn arguments_that_are_staged_wait_for_a_reboot() {
    live(|node| {
        record_on(node, |spec| spec["kernelArguments"] = json!(["nosmt"]));
        let staged =
            format!("image=ostree-unverified-registry:{IMAGE}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        let text = found(&doctor_on(node), "FP-01", "warning");
        says(&text, &["waits for a reboot", "systemctl reboot", "nosmt"]);
        // Another boot is not told besides: the staging is the reason.
        assert_eq!(of(&doctor_on(node), "FP-18"), Vec::<Value>::new());
    });
}

#[test]
fn a_running_system_that_ostree_did_not_boot_is_said_to_be_none() {
    live(|node| {
        record_on(node, |_| {});
        node.root.write("cmdline", "rw\n");
        assert_eq!(of(&doctor_on(node), "FP-01"), Vec::<Value>::new());
        says(&unseen_on(node, "FP-01"), &["was not booted by ostree"]);
    });
}

/// A deployment of a disk that is mounted elsewhere; its config wants an extension, and this ends its origin file.
fn disk_of_a_node(origin: &str) -> (TestRoot, String) {
    let (outer, place) = (TestRoot::empty(), format!("{BOOTED}.0"));
    let mut wanted = config();
    wanted["spec"]["extensions"] = json!(["usbguard"]);
    let reference = format!("container-image-reference=ostree-unverified-registry:{IMAGE}");
    for (path, text) in [
        (RECORD, wanted.to_string()),
        (
            "etc/machine-id",
            "0123456789abcdef0123456789abcdef\n".to_owned(),
        ),
        (
            "usr/lib/os-release",
            "ID=rhcos\nVARIANT_ID=coreos\n".to_owned(),
        ),
        ("var/lib/x", String::new()),
        (
            &origin_of(&place),
            format!("[origin]\n{reference}\n{origin}"),
        ),
    ] {
        outer.write(&format!("{place}/{path}"), &text);
    }
    (outer, place)
}

fn origin_of(place: &str) -> String {
    format!("sysroot/ostree/deploy/rhcos/deploy/{place}.origin")
}

#[test]
fn a_disk_says_whether_image_arguments_and_packages_could_be_told() {
    let (outer, place) = disk_of_a_node("[packages]\nrequested=usbguard;\n");
    let seen = answer(&run_at(&outer, &place));
    assert_eq!(of(&seen, "FP-01"), Vec::<Value>::new());
    assert_eq!(of(&seen, "FP-19"), Vec::<Value>::new());
    outer.remove(&format!("{place}/{}", origin_of(&place)));
    let seen = answer(&run_at(&outer, &place));
    says(
        &unseen(&seen, "FP-01"),
        &["no origin file is visible", "there is no /boot"],
    );
    says(&unseen(&seen, "FP-19"), &["no origin file tells"]);
}

#[test]
fn packages_of_a_disk_are_those_that_its_origin_asks_for() {
    let (outer, place) = disk_of_a_node("");
    let seen = answer(&run_at(&outer, &place));
    says(
        &found(&seen, "FP-19", "warning"),
        &["usbguard not layered", "mco-rescue plan --root"],
    );
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

fn run_at(outer: &TestRoot, place: &str) -> Run {
    let mut command = Command::new(PROGRAM);
    command.arg("--root").arg(outer.path(place));
    command.args(["doctor", "--output", "json"]);
    Run::of(command.output().unwrap())
}

#[test]
fn a_board_whose_clock_stands_at_its_epoch_is_told_apart_from_one_that_differs() {
    live(|node| {
        record_on(node, |_| {});
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let board = |at: u64| {
            node.root
                .write("sys/class/rtc/rtc0/since_epoch", &format!("{at}\n"))
        };
        // Some keep local time.
        board(now - 7200);
        assert_eq!(of(&doctor_on(node), "FP-15"), Vec::<Value>::new());
        for epoch in [0, 946_684_800] {
            board(epoch);
            let text = found(&doctor_on(node), "FP-15", "warning");
            says(
                &text,
                &[
                    "the clock of the board is behind by",
                    "battery",
                    "hwclock --systohc",
                ],
            );
            assert!(!text.contains("date -u"), "{text}");
        }
        board(now + 40 * 86_400 + 600);
        says(
            &found(&doctor_on(node), "FP-15", "warning"),
            &["the clock is 40 days behind the board's", "date -u"],
        );
        // As long as the clock itself is wrong, the board is not told of.
        board(0);
        node.root
            .write("etc/kubernetes/ca.crt", &authority("later", 2089, 2090));
        says(
            &found(&doctor_on(node), "FP-15", "critical"),
            &["the clock is behind"],
        );
    });
}

#[test]
fn a_directory_that_is_no_deployment_any_more_has_no_newer_etc() {
    live(|node| {
        record_on(node, |_| {});
        let left = |name: &str| {
            let other = format!("sysroot/ostree/deploy/rhcos/deploy/{name}/{RECORD}");
            let mut newer = config();
            newer["metadata"]["name"] = json!("rendered-worker-newer");
            node.root.write(&other, &newer.to_string());
            let future = SystemTime::now() + Duration::from_secs(3600);
            let file = fs::File::options().write(true).open(node.root.path(&other));
            file.unwrap().set_modified(future).unwrap();
        };
        // Its staging was lost with the power, and its directory stayed.
        left(&format!("{}.0", "5eed".repeat(16)));
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        // One that rpm-ostree lists was booted.
        node.reboots_into(NEXT);
        record_on(node, |_| {});
        left(&format!("{BOOTED}.0"));
        let text = found(&doctor_on(node), "FP-17", "warning");
        says(&text, &["rendered-worker-newer"]);
    });
}

#[test]
fn a_next_boot_into_another_deployment_is_told_with_its_record() {
    live(|node| {
        record_on(node, |_| {});
        // What the stub has first in its list: a rollback, neither staged nor booted.
        rpm_ostree_says(node, " 1 true false; printf", " 1 false false; printf");
        let first =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &first);
        let deployment = format!("{}.1", "5eed".repeat(16));
        let other = format!("sysroot/ostree/deploy/rhcos/deploy/{deployment}/{RECORD}");
        let mut old = config();
        node.root.write(&other, &old.to_string());
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
        old["metadata"]["name"] = json!("rendered-worker-old");
        node.root.write(&other, &old.to_string());
        says(
            &found(&doctor_on(node), "FP-17", "warning"),
            &[
                "the next boot has another /etc",
                "rendered-worker-old",
                NAME,
                "rpm-ostree rollback",
            ],
        );
        // Staged, it is what somebody is about to enter on purpose.
        rpm_ostree_says(node, " 1 false false; printf", " 1 true false; printf");
        assert_eq!(of(&doctor_on(node), "FP-17"), Vec::<Value>::new());
    });
}

#[test]
fn arguments_that_somebody_typed_at_the_boot_menu_are_told() {
    live(|node| {
        record_on(node, |_| {});
        booted_with(node, "systemd.unit=rescue.target");
        says(
            &found(&doctor_on(node), "FP-18", "notice"),
            &["this boot only", "systemd.unit=rescue.target"],
        );
    });
}

#[test]
fn packages_that_the_daemon_will_miss_come_with_its_words() {
    live(|node| {
        record_on(node, |spec| spec["extensions"] = json!(["usbguard"]));
        node.program("rpm", "exit 1");
        let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000, "current": NAME, "desired": NAME,
            "state": "Done"});
        node.root
            .write("var/lib/mco-rescue/annotations.json", &seen.to_string());
        let text = found(&doctor_on(node), "FP-19", "warning");
        says(&text, &["usbguard not layered"]);
        // The daemon changes packages of no other system.
        node.root
            .write("etc/os-release", "ID=fedora\nVARIANT_ID=coreos\n");
        assert_eq!(of(&doctor_on(node), "FP-19"), Vec::<Value>::new());
    });
}

#[test]
fn the_fips_mode_of_a_running_node_is_that_of_its_kernel() {
    live(|node| {
        record_on(node, |_| {});
        let settings = node.root.path("proc/sys");
        mount(&["-t", "tmpfs", "tmpfs", settings.to_str().unwrap()]);
        node.root.write("proc/sys/crypto/fips_enabled", "0\n");
        assert_eq!(of(&doctor_on(node), "FP-20"), Vec::<Value>::new());
        node.root.write("proc/sys/crypto/fips_enabled", "1\n");
        says(
            &found(&doctor_on(node), "FP-20", "warning"),
            &[
                "FIPS mode is on, the config wants it off",
                "/proc/sys/crypto/fips_enabled",
            ],
        );
    });
}

#[test]
fn services_without_which_there_is_no_node_are_told_when_they_fail() {
    live(|node| {
        record_on(node, |_| {});
        for (active, sub, fails) in [
            ("active", "running", false),
            ("inactive", "dead", false),
            ("activating", "start", false),
            ("activating", "auto-restart", true),
            ("failed", "failed", true),
        ] {
            let answer = format!(
                "case $* in *SubState*) printf 'Id=crio.service\\nActiveState=active\\nSubState=running\\n\\n\
                 Id=kubelet.service\\nActiveState={active}\\nSubState={sub}\\n' ;; *) exit 1 ;; esac"
            );
            node.program("systemctl", &answer);
            let seen = doctor_on(node);
            if !fails {
                assert_eq!(of(&seen, "FP-25"), Vec::<Value>::new(), "{active} {sub}");
                continue;
            }
            says(
                &found(&seen, "FP-25", "critical"),
                &[
                    "kubelet.service does not run",
                    sub,
                    "journalctl -b -u kubelet.service",
                ],
            );
        }
    });
}

#[test]
fn a_running_node_is_told_to_put_its_labels_right_at_once() {
    live(|node| {
        let root = &node.root;
        with_policy(root);
        root.apply(&config());
        if !label(root, "etc/of-config.conf", "tmp_t") {
            return say("SKIP: labels cannot be set here");
        }
        let seen = doctor_on(node);
        found(&seen, "FP-26", "warning");
        let next = &of(&seen, "FP-26")[0]["next"];
        assert_eq!(*next, json!(["restorecon -RFv /etc/of-config.conf"]));
    });
}

#[test]
fn only_a_running_node_restarts_its_kubelet_for_a_new_certificate() {
    live(|node| {
        let path = "var/lib/kubelet/pki/kubelet-client-current.pem";
        let expired = authority("system:node:worker-0", 2020, 2021);
        node.root.write(path, &expired);
        let first = |seen: &Value| of(seen, "FP-09")[0]["next"][0].to_string();
        let here = first(&doctor_on(node));
        assert!(here.contains("systemctl restart kubelet"), "{here}");
        let disk = first(&doctor(&node.root));
        assert!(disk.contains("# once the node has booted"), "{disk}");
    });
}

#[test]
fn an_rpm_ostree_that_knows_no_containers_is_told() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-28"), Vec::<Value>::new());
        rpm_ostree_says(node, "\\n  - container\\n", "\\n  - rust\\n");
        says(
            &found(&doctor_on(node), "FP-28", "warning"),
            &[
                "too old for container images",
                "two reboots",
                "mco-rescue plan",
            ],
        );
    });
}

#[test]
fn a_running_node_is_asked_for_its_terminals() {
    live(|node| {
        record_on(node, |_| {});
        for name in ["ttyS0", "tty1"] {
            fs::create_dir_all(node.root.path("sys/class/tty").join(name)).unwrap();
        }
        for (arguments, what) in [
            ("", None),
            ("console=ttyS0,115200n8", None),
            ("console=ttyS9 console=tty0", None),
            (
                "console=tty0 console=ttyS9",
                Some("a terminal that is not there"),
            ),
            (
                "console=tty0 console=ttynull",
                Some("the console is switched off"),
            ),
        ] {
            booted_with(node, arguments);
            let seen = doctor_on(node);
            let Some(what) = what else {
                assert_eq!(of(&seen, "FP-30"), Vec::<Value>::new(), "{arguments}");
                continue;
            };
            let last = arguments.split(' ').next_back().unwrap();
            let command = format!("rpm-ostree kargs --delete-if-present={last}");
            says(&found(&seen, "FP-30", "warning"), &[what, &command]);
        }
    });
}

#[test]
fn name_servers_of_a_running_node_are_not_asked_and_that_is_said() {
    live(|node| {
        record_on(node, |_| {});
        says(&unseen_on(node, "FP-32"), &["dig @SERVER NAME"]);
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
        root.apply(&config());
        furnish(&root);
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
                "the disk is all but full",
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
        root.apply(&config());
        furnish(&root);
        assert_eq!(of(&doctor(&root), "FP-16"), Vec::<Value>::new());
        root.write("var/fill", &"x".repeat(62 << 20));
        says(
            &found(&doctor(&root), "FP-16", "critical"),
            &["the disk is full", "\"/var\"", "of 64 MiB are free"],
        );
    });
}

#[test]
fn a_disk_that_can_hold_no_more_files_is_told_although_it_has_room() {
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
        root.apply(&config());
        furnish(&root);
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
                "1 deployment that rpm-ostree does not know",
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
            root.apply(&config());
            furnish(&root);
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
