//! A prepared soft reboot: what is printed and what is done where the kernel has to be another one.

use serde_json::{Value, json};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{ARRIVED, BOOTED, NEXT, OstreeNode};
use crate::support::{copy_program, file, flat, flat_run, machine_config};

const HARD: &str = "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot";

fn wants_another_image() -> Value {
    let files = json!({"storage": {"files": [file("/etc/site", 0o644, "new\n")]}});
    let mut config = machine_config("rendered-worker-next", files);
    config["spec"]["osImageURL"] = json!(NEXT);
    config
}

/// A node in which something is mounted where systemd looks for the next root.
fn prepared() -> OstreeNode {
    let node = OstreeNode::new();
    node.root
        .write("config", &wants_another_image().to_string());
    let next = node.root.path("run/nextroot");
    std::fs::create_dir_all(&next).unwrap();
    mount(&["-t", "tmpfs", "none", next.to_str().unwrap()]);
    node
}

#[test]
fn where_a_soft_reboot_is_prepared_every_command_that_is_printed_makes_a_full_one() {
    with_mounts(|| {
        let node = prepared();
        let plan = node.run(&["plan", "/config"]).ok().out();
        let said = flat(&plan);
        assert!(
            said.contains("soft reboot: a soft reboot is prepared"),
            "{plan}"
        );
        assert!(
            said.contains("ostree admin prepare-soft-reboot --reset"),
            "{plan}"
        );
        let applied = node.run(&["apply", "--yes", "/config"]).ok().out();
        assert!(applied.ends_with(&format!("Next: {HARD}\n")), "{applied}");
        let status = node.run(&["status"]).ok().out();
        let said = flat(&status);
        assert!(said.contains(&format!("Next: {HARD}")), "{status}");
        assert!(!said.contains("Next: systemctl reboot"), "{status}");
        let beside = &node.run(&["status", "--output", "json"]).ok().json()["beside"];
        assert_eq!(beside[0]["subject"], "soft reboot", "{beside}");
        let complete = node.run(&["complete"]).ok().out();
        assert!(complete.ends_with(&format!("Next: {HARD}\n")), "{complete}");
    });
}

#[test]
fn a_run_that_reboots_passes_over_a_prepared_soft_reboot() {
    with_mounts(|| {
        let node = prepared();
        copy_program(&node.root, "/usr/bin/env");
        node.program(
            "systemctl",
            r#"case $* in *reboot) echo "$SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT systemctl $*" >>/stub/log ;; *) exit 1 ;; esac"#,
        );
        node.run(&["apply", "--yes", "--reboot", "/config"]).ok();
        let log = node.root.read("stub/log");
        assert!(log.ends_with("1 systemctl --no-block reboot\n"), "{log}");
    });
}

#[test]
fn without_one_nothing_is_said_of_it() {
    with_mounts(|| {
        let node = OstreeNode::new();
        node.root
            .write("config", &wants_another_image().to_string());
        let plan = node.run(&["plan", "/config"]).ok().out();
        assert!(!plan.contains("soft reboot"), "{plan}");
        let beside = &node.run(&["status", "--output", "json"]).ok().json()["beside"];
        assert_eq!(*beside, json!([]));
        let applied = node.run(&["apply", "--yes", "/config"]).ok().out();
        assert!(applied.ends_with("Next: systemctl reboot\n"), "{applied}");
    });
}

#[test]
fn the_marker_of_a_soft_reboot_that_came_through_prepares_no_other_one() {
    with_mounts(|| {
        for (checksum, left) in [(BOOTED, true), (ARRIVED, false)] {
            let node = OstreeNode::new();
            node.root
                .write("config", &wants_another_image().to_string());
            node.has_soft_reboot_marker(checksum);
            let beside = &node.run(&["status", "--output", "json"]).ok().json()["beside"];
            let beside = beside.to_string();
            assert_eq!(
                beside.contains("systemctl restart ostree-boot-complete.service"),
                left,
                "{beside}"
            );
            let plan = flat_run(&node.run(&["plan", "/config"]));
            assert_eq!(plan.contains("a soft reboot is prepared"), !left, "{plan}");
        }
    });
}
