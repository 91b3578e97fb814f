//! FP-01: the record says more than what was booted.

use std::fs;
use std::process::{Command, Stdio};

use super::small::{
    NAME, directory, disk_of_a_node, live, origin_of, record_on, rpm_ostree_says, run_at,
};
use super::worker::{self, on_a_node};
use super::{
    CRITICAL, Dark, RECORD, WARNING, answer, doctor_exits, doctor_on, finding, found, ids, of,
    says, unseen,
};
use crate::support::ostree_node::{BOOTED, IMAGE, NEXT};
use crate::support::{PROGRAM, Run, TestRoot, flat};
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[
    ("FP-01", "this root is not an ostree deployment", |_| {}),
    ("FP-01", "the record cannot be read", |root| {
        directory(root, RECORD)
    }),
];

#[test]
fn a_record_that_was_never_booted_is_found() {
    on_a_node(|node| {
        let text = node.root.read(RECORD).replace(IMAGE, NEXT);
        node.root.write(RECORD, &text);
        let report = doctor_exits(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "the recorded OS image is not running");
        let daemon = found["daemon"].as_str().unwrap();
        assert!(daemon.contains("expected target osImageURL"), "{daemon}");
        assert_eq!(found["next"][1], "mco-rescue apply --reboot");
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}

#[test]
fn an_os_that_is_staged_waits_for_a_reboot() {
    on_a_node(|node| {
        let text = node.root.read(RECORD).replace(IMAGE, NEXT);
        node.root.write(RECORD, &text);
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        let report = doctor_exits(node, WARNING);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "the recorded OS waits for a reboot");
        assert_eq!(found["next"][0], "systemctl reboot");
    });
}

#[test]
fn kernel_arguments_that_are_not_in_force_are_found() {
    on_a_node(|node| {
        let mut with = worker::config();
        with["spec"]["kernelArguments"] = json!(["nosmt"]);
        node.root.write(RECORD, &with.to_string());
        let report = doctor_exits(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert_eq!(found["what"], "recorded kernel arguments are not in force");
        assert!(
            found["daemon"]
                .as_str()
                .unwrap()
                .ends_with("missing expected kernel arguments: [nosmt]")
        );
    });
}

#[test]
fn a_shutdown_that_could_not_write_the_os_is_found() {
    on_a_node(|node| {
        let stamp = "error: Installing kernel: regfile copy: No space left on device\n";
        node.root.write("boot/ostree/finalize-failure.stamp", stamp);
        let report = doctor_exits(node, CRITICAL);
        let found = finding(&report, "FP-01");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("No space left")
        );
    });
}

#[test]
fn a_disk_of_a_node_is_judged_by_its_files() {
    let outer = TestRoot::empty();
    let place = format!("{BOOTED}.0");
    fs::create_dir(outer.path(&place)).unwrap();
    let origin = |image: &str| {
        format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n")
    };
    let inside = |path: &str| format!("{place}/{path}");
    let sysroot = inside(&format!(
        "sysroot/ostree/deploy/rhcos/deploy/{place}.origin"
    ));
    outer.write(&inside(RECORD), &worker::config().to_string());
    outer.write(
        &inside("etc/machine-id"),
        "0123456789abcdef0123456789abcdef\n",
    );
    outer.write(&inside("var/lib/x"), "");
    outer.write(
        &inside("etc/os-release"),
        "ID=rhcos\nVARIANT_ID=coreos\nOPENSHIFT_VERSION=4.20\n",
    );
    let ask = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let command = command.arg("--root").arg(outer.path(&place)).args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let run = || ask(&["doctor", "--output", "json"]).json();
    let forecasts = || {
        let commands = [&["status"][..], &["plan", "--takeover"]];
        commands.map(|args| flat(&ask(args).out()))
    };
    outer.write(&sysroot, &origin(IMAGE));
    for said in forecasts() {
        assert!(!said.contains("osImageURL"), "{said}");
    }
    let report = run();
    assert!(!ids(&report).contains(&"FP-01".to_owned()), "{report:#}");
    outer.write(&sysroot, &origin(NEXT));
    let report = run();
    let found = finding(&report, "FP-01");
    assert_eq!(found["what"], "the recorded OS image is not running");
    assert!(
        found["evidence"][0]["said"]
            .as_str()
            .unwrap()
            .contains(NEXT)
    );
    // With --root nothing is staged, and plan finds nothing to do.
    let next = "on the node itself, once it has booted: mco-rescue apply --reboot";
    assert_eq!(found["next"], json!([next]));
    // The other commands say the same.
    for said in forecasts() {
        let daemon = "Degraded, and reports: unexpected on-disk state";
        assert!(said.contains(daemon) && said.contains(NEXT), "{said}");
    }
    let said = flat(&ask(&["verify"]).out());
    assert!(
        said.contains("this disk boots") && said.contains(NEXT),
        "{said}"
    );
    // An origin file that cannot be read is there.
    outer.remove(&sysroot);
    outer.link(&sysroot, sysroot.rsplit('/').next().unwrap());
    let report = run().to_string();
    assert!(!report.contains("no origin file"), "{report}");
    let words = format!("{place}.origin: too many symbolic links");
    assert!(
        report.contains(&format!(
            "the booted image: /sysroot/ostree/deploy/rhcos/deploy/{words}"
        )),
        "{report}"
    );
}

/// The whole disk of a node, as it is mounted on another machine: the deployment does not show what lies beside it.
#[test]
fn every_command_compares_the_image_of_a_whole_disk() {
    let disk = TestRoot::empty();
    let deploy = "ostree/deploy/rhcos/deploy";
    let place = format!("{deploy}/{BOOTED}.0");
    let mut config = worker::config();
    config["spec"]["kernelArguments"] = json!(["nosmt"]);
    for (path, text) in [
        ("etc/os-release", "ID=rhcos\nVARIANT_ID=coreos\n"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        (RECORD, &config.to_string()),
    ] {
        disk.write(&format!("{place}/{path}"), text);
    }
    for directory in ["var", "sysroot", "boot"] {
        fs::create_dir_all(disk.path(&format!("{place}/{directory}"))).unwrap();
    }
    disk.write("ostree/deploy/rhcos/var/lib/x", "");
    let origin = format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{NEXT}\n");
    disk.write(&format!("{deploy}/{BOOTED}.0.origin"), &origin);
    let link = format!("ostree=/ostree/boot.1/rhcos/{}/0", "c".repeat(64));
    disk.write(
        "boot/loader/entries/ostree-1-rhcos.conf",
        &format!("title a\nversion 1\noptions root=UUID=1 {link}\nlinux /vmlinuz\n"),
    );
    let boot = disk.path(&format!("ostree/boot.1/rhcos/{}", "c".repeat(64)));
    fs::create_dir_all(&boot).unwrap();
    std::os::unix::fs::symlink(
        format!("../../../deploy/rhcos/deploy/{BOOTED}.0"),
        boot.join("0"),
    )
    .unwrap();
    let next = "Next: on the node itself, once it has booted: mco-rescue apply --reboot";
    for args in [
        &["status"][..],
        &["apply", "--yes", "--not-a-node"],
        &["plan"],
        &["verify"],
        &["doctor"],
    ] {
        let run = disk.run(args);
        let said = flat(&(run.out() + &run.err()));
        assert!(said.contains(next), "{args:?}: {said}");
        if args != ["status"] {
            let words = "kernel arguments: nosmt missing";
            let is_listed = said.contains("kernel arguments nosmt missing");
            assert!(said.contains(words) || is_listed, "{args:?}: {said}");
            assert!(said.contains("this disk boots"), "{args:?}: {said}");
        }
        assert!(!said.contains("Not compared: OS"), "{args:?}: {said}");
        assert!(
            said.contains("unexpected on-disk state"),
            "{args:?}: {said}"
        );
        assert!(said.contains(NEXT), "{args:?}: {said}");
        // What runs is known, and a disk stages nothing.
        assert!(!said.contains("is running, with"), "{args:?}: {said}");
        assert!(!said.contains("apply --root"), "{args:?}: {said}");
    }
}

#[test]
fn what_the_last_shutdown_and_the_awaited_boot_came_to_is_reported_with_the_gap() {
    live(|node| {
        record_on(node, |spec| spec["osImageURL"] = json!(NEXT));
        let awaited = json!({"version": 1, "way": "forward", "config": {"name": NAME, "digest": "", "origin": ""},
            "run": null, "boot": "0", "from": format!("{BOOTED}.0"), "image": NEXT, "kernel_arguments": [],
            "since": 1, "failed": "the previous deployment was booted again"});
        node.root
            .write("var/lib/mco-rescue/awaited.json", &awaited.to_string());
        says(
            &found(&doctor_on(node), "FP-01", "critical"),
            &[
                "the recorded OS image is not running",
                "the previous deployment was booted again",
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
        // What is staged lacks it, too.
        let text = found(&doctor_on(node), "FP-01", "critical");
        says(&text, &["recorded kernel arguments are not in force"]);
        node.root.write("stub/kargs", "rw nosmt\n");
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
        says(
            &unseen(&doctor_on(node), "FP-01"),
            &["was not booted by ostree"],
        );
    });
}

#[test]
fn a_disk_says_whether_image_arguments_and_packages_are_known() {
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
    says(&unseen(&seen, "FP-19"), &["no origin file is visible"]);
}
