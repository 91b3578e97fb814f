//! The boots of a trial with another operating system: what the command that completes a boot does beside the guard, what is
//! set for that boot alone, and which trials of `rollback` are refused. rpm-ostree and systemctl are STUBS.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{
    ARRIVED, AWAITED, BOOTED, IMAGE, NEXT, OTHER_BOOT, OstreeNode, service_config,
};
use crate::support::{STATE, flat_run, unsealed};

const TRIAL: &str = "var/lib/mco-rescue/trial.json";
const PANIC: &str = "proc/sys/kernel/panic";
/// A node in its first config, with two runs of files and the third config at hand, which has another image.
fn node() -> OstreeNode {
    let node = OstreeNode::new();
    for (name, image, text) in [
        ("zero", IMAGE, "zero\n"),
        ("one", IMAGE, "one\n"),
        ("two", NEXT, "two\n"),
    ] {
        let config = service_config(&format!("rendered-worker-{name}"), image, text);
        node.root.write(name, &config.to_string());
    }
    node.run(&["apply", "--yes", "/zero"]).ok();
    node.run(&["apply", "--yes", "/one"]).ok();
    node
}

/// A trial in a phase that began in the boot before. It came from the first deployment.
fn trial(node: &OstreeNode, phase: &Value) {
    let mut trial = json!({
        "version": 1,
        "id": "1-1",
        "what": "rendered-worker-two",
        "began": 1,
        "window": 600,
        "boot_limit": 900,
        "boot": {"boot": OTHER_BOOT},
        "head": "",
        "reboots": true,
        "system": {"from": format!("{BOOTED}.0")},
        "login": {},
    });
    for (key, value) in phase.as_object().unwrap() {
        trial[key] = value.clone();
    }
    node.root.write(TRIAL, &trial.to_string());
}

/// As the guard that goes back.
fn lock(node: &OstreeNode) -> Flock<File> {
    let state = File::open(node.root.path(STATE)).unwrap();
    Flock::lock(state, FlockArg::LockExclusiveNonblock).unwrap()
}

#[test]
fn complete_leaves_a_deployment_to_the_guard_that_leaves_it() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/two"]).ok();
        node.reboots_into(NEXT);
        node.awaits_since_the_boot_before();
        trial(&node, &json!({"phase": "reverting", "why": "a test"}));
        let before = node.root.read(AWAITED);
        let held = lock(&node);
        let run = node.run(&["complete", "--output", "json"]).ok();
        assert_eq!(run.json()["outcome"], "not-yet");
        assert_eq!(run.json()["way"], "back");
        assert!(run.err().contains("reboots the node"), "{}", run.err());
        assert_eq!(node.root.read(AWAITED), before);

        // Another run that holds the lock is an error, as everywhere.
        node.root.remove(TRIAL);
        let refused = node.run(&["complete"]).exits(1);
        let said = refused.err();
        assert!(said.contains("another run holds the lock"), "{said}");
        drop(held);

        // What cannot be read stands in the way of no boot.
        node.root.write(TRIAL, "{");
        node.run(&["complete"]).ok();
        assert!(!node.root.exists(AWAITED));
    });
}

#[test]
fn complete_waits_for_the_guard_in_the_deployment_from_before_and_is_no_failed_unit() {
    with_mounts(|| {
        for is_tried in [true, false] {
            let node = node();
            node.run(&["apply", "--yes", "/two"]).ok();
            node.awaits_since_the_boot_before();
            assert_eq!(node.root.read("etc/service.conf"), "two\n");
            if !is_tried {
                // The staged deployment was lost. The exit code says so.
                node.run(&["complete"]).exits(3);
                assert_eq!(node.root.read("etc/service.conf"), "one\n");
                continue;
            }
            trial(&node, &json!({"phase": "reverting", "why": "a test"}));
            let held = lock(&node);
            let begun = Instant::now();
            let guard = thread::spawn(move || {
                thread::sleep(Duration::from_millis(1500));
                drop(held);
            });
            let run = node.run(&["complete"]).ok();
            assert!(begun.elapsed() >= Duration::from_millis(1500));
            guard.join().unwrap();
            assert!(run.out().contains("did not come up"), "{}", run.out());
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
        }
    });
}

#[test]
fn a_panic_reboots_the_node_in_the_boot_of_the_trial_alone() {
    with_mounts(|| {
        // What an admin has set stays.
        for (before, in_the_trial) in [("0\n", "10"), ("30\n", "30\n"), ("-1\n", "-1\n")] {
            let node = node();
            node.root.write("panic", before);
            let (from, to) = (node.root.path("panic"), node.root.path(PANIC));
            mount(&["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
            node.reboots_into(NEXT);
            trial(&node, &json!({"phase": "awaiting-boot", "until": 1}));
            node.run(&["recover", "--at-boot"]).ok();
            let mut tried = unsealed(&node.root.read(TRIAL));
            assert_eq!(tried["phase"], "trial-boot");
            assert_eq!(node.root.read("panic").trim(), in_the_trial.trim());

            tried["phase"] = json!("waiting");
            tried["since"] = json!(0);
            tried["until"] = json!(u64::MAX);
            node.root.write(TRIAL, &tried.to_string());
            node.run(&["confirm", "--from-console"]).ok();
            assert!(!node.root.exists(TRIAL));
            assert_eq!(node.root.read("panic").trim(), before.trim());
        }
    });
}

#[test]
fn a_trial_of_going_back_is_one_run_of_files() {
    with_mounts(|| {
        let node = node();
        let kept = node.run(&["rollback", "--list", "--output", "json"]).ok();
        let runs = kept.json();
        let oldest = runs["runs"].as_array().unwrap().last().unwrap()["id"].clone();
        let refuses = |args: &[&str]| {
            let state = || {
                let file = node.root.read("etc/service.conf");
                (file, node.calls(), node.root.exists(AWAITED))
            };
            let before = state();
            let run = node.run(args).exits(1);
            let said = flat_run(&run);
            assert!(said.contains("one run of files alone"), "{args:?}: {said}");
            assert!(said.contains("Nothing was changed"), "{args:?}: {said}");
            assert_eq!(state(), before, "{args:?}");
            assert!(!node.root.exists(TRIAL), "{args:?}");
        };
        let to = oldest.as_str().unwrap();
        refuses(&["rollback", "--yes", "--try", "--to", to]);
        // Staged, and not booted: the deployment would go, too.
        node.run(&["apply", "--yes", "/two"]).ok();
        refuses(&["rollback", "--yes", "--try"]);
        // Booted.
        node.reboots_into(NEXT);
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        let deployment = format!("sysroot/ostree/deploy/rhcos/deploy/{ARRIVED}.0.origin");
        assert!(node.root.exists(&deployment));
        refuses(&["rollback", "--yes", "--try"]);
    });
}
