//! The boots of a trial with another operating system: what the command that completes a boot does beside the guard, what is
//! set for that boot alone, and which trials of `rollback` are refused. rpm-ostree and systemctl are STUBS.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{
    ARRIVED, AWAITED, BOOTED, IMAGE, NEXT, OTHER_BOOT, OstreeNode, service_config,
};
use crate::support::{Run, STATE, flat_run, unsealed};

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
fn complete_waits_for_the_guard_in_the_deployment_from_before_and_is_not_a_failed_unit() {
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

/// Lets the second guard look, as its timer does.
fn guard(node: &OstreeNode) -> Run {
    node.run(&["trial", "guard", "--once"])
}

#[test]
fn a_trial_whose_deployment_another_program_removed_ends_with_the_change_in_place() {
    with_mounts(|| {
        for is_accepted in [true, false] {
            let node = node();
            node.run(&["apply", "--yes", "/two"]).ok();
            node.reboots_into(NEXT);
            node.awaits_since_the_boot_before();
            node.run(&["complete"]).ok();
            trial(&node, &json!({"phase": "reverting", "why": "a test"}));
            // As after rpm-ostree cleanup -r.
            node.root.remove("stub/previous");
            let refused = node.run(&["apply", "--yes", "/one"]).exits(1);
            assert!(
                flat_run(&refused).contains("a trial of"),
                "{}",
                refused.err()
            );
            // The boot is judged first, then the trial goes back.
            guard(&node).ok();
            guard(&node).ok();
            assert!(!node.root.exists(TRIAL));
            let result = unsealed(&node.root.read("var/lib/mco-rescue/trial-result.json"));
            assert_eq!(result["outcome"], "not-reverted", "{result}");
            let status = flat_run(&node.run(&["status"]));
            for words in [
                "could NOT be reverted",
                "is gone, so its operating system cannot be restored automatically",
                "mco-rescue confirm",
                "mco-rescue rollback --files-only",
            ] {
                assert!(status.contains(words), "no {words:?}: {status}");
            }
            let doctor = node.run(&["doctor"]);
            let said = flat_run(&doctor);
            assert!(said.contains("a trial could not be reverted"), "{said}");
            assert_eq!(doctor.code(), 6);
            if is_accepted {
                let run = node.run(&["confirm"]).ok();
                assert!(
                    flat_run(&run).contains("The change stays."),
                    "{}",
                    run.out()
                );
                assert_eq!(node.root.read("etc/service.conf"), "two\n");
            } else {
                // Both take less than a second here, and times are in seconds.
                let mut ended = result.clone();
                ended["ended"] = json!(result["ended"].as_u64().unwrap() - 1);
                let place = "var/lib/mco-rescue/trial-result.json";
                node.root.write(place, &ended.to_string());
                node.run(&["rollback", "--yes", "--files-only"]).ok();
                assert_eq!(node.root.read("etc/service.conf"), "one\n");
            }
            let said = flat_run(&node.run(&["doctor"]));
            assert!(!said.contains("a trial could not be reverted"), "{said}");
            let again = node.run(&["confirm"]).exits(1);
            assert!(
                flat_run(&again).contains("no trial runs"),
                "{}",
                again.err()
            );
        }
    });
}

#[test]
fn a_way_back_whose_old_contents_are_missing_is_tried_for_a_while_and_then_given_up() {
    with_mounts(|| {
        let node = node();
        trial(
            &node,
            &json!({"phase": "reverting", "why": "a test", "system": null}),
        );
        let head = node.root.path("var/lib/mco-rescue/history");
        let mut runs: Vec<_> = fs::read_dir(&head)
            .unwrap()
            .map(|one| one.unwrap().path())
            .collect();
        runs.sort();
        let mut kept = unsealed(&node.root.read(TRIAL));
        let first = runs[0].file_name().unwrap().to_str().unwrap();
        kept["head"] = json!(first);
        node.root.write(TRIAL, &kept.to_string());
        for file in fs::read_dir(runs.last().unwrap()).unwrap() {
            let path = file.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("old-")
            {
                fs::remove_file(path).unwrap();
            }
        }
        // The first look judges the boot, and tries it too.
        let errors = [guard(&node), guard(&node)];
        assert_eq!(errors[1].code(), 1, "{}", errors[1].err());
        let status = flat_run(&node.run(&["status"]));
        assert!(status.contains("It FAILS:"), "{status}");
        let doctor = flat_run(&node.run(&["doctor"]));
        assert!(doctor.contains("reverting a trial fails"), "{doctor}");
        // Ten minutes later.
        let mut kept = unsealed(&node.root.read(TRIAL));
        kept["failing"]["since"] = json!(0);
        node.root.write(TRIAL, &kept.to_string());
        guard(&node).ok();
        assert!(!node.root.exists(TRIAL));
        let status = flat_run(&node.run(&["status"]));
        assert!(status.contains("could NOT be reverted"), "{status}");
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        node.run(&["confirm"]).ok();
    });
}

#[test]
fn a_boot_loader_that_never_enters_the_old_deployment_ends_the_trial() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/two"]).ok();
        node.reboots_into(NEXT);
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        trial(&node, &json!({"phase": "reverting", "why": "a test"}));
        for _ in 0..3 {
            assert!(node.root.exists(TRIAL));
            let mut kept = unsealed(&node.root.read(TRIAL));
            kept["boot"] = json!({"boot": OTHER_BOOT});
            node.root.write(TRIAL, &kept.to_string());
            node.run(&["recover", "--at-boot"]).ok();
        }
        assert!(!node.root.exists(TRIAL));
        let status = flat_run(&node.run(&["status"]));
        assert!(status.contains("was booted 3 times"), "{status}");
    });
}
