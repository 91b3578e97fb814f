//! Runs after which the node has to be rebooted: where that is said, and until when. Then what is said after a boot that did not
//! bring what was staged. rpm-ostree is a STUB.

use serde_json::json;

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{IMAGE, NEXT, OTHER_BOOT, OstreeNode, service_config};
use crate::support::{flat_run, unsealed};

const NEEDS: &str = "var/lib/mco-rescue/reboots.json";

/// A node in its first config, with the second one at hand, which changes a file, and the third one with another image.
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
    node
}

/// Fails unless all that tells the state of the node says that it needs a reboot, or none of it.
fn needs_reboot(node: &OstreeNode, needed: bool) {
    let status = node.run(&["status", "--output", "json"]).ok().json();
    let configs = &status["reboot"]["configs"];
    let wanted = if needed {
        json!(["rendered-worker-one"])
    } else {
        json!(null)
    };
    assert_eq!(*configs, wanted, "{status}");
    let said = flat_run(&node.run(&["status"]));
    let words = "Reboot needed since";
    assert_eq!(said.contains(words), needed, "{said}");
    node.run(&["status", "--metrics", "/metrics"]).ok();
    let metrics = node.root.read("metrics");
    let line = format!("\nmco_rescue_reboot_needed {}\n", u8::from(needed));
    assert!(metrics.contains(&line), "{metrics}");
    let doctor = flat_run(&node.run(&["doctor"]));
    let words = "changed files wait for a reboot";
    assert_eq!(doctor.contains(words), needed, "{doctor}");
}

/// As after a reboot: this machine is not booted for a test.
fn reboots(node: &OstreeNode) {
    let mut kept = unsealed(&node.root.read(NEEDS));
    for need in kept["runs"].as_array_mut().unwrap() {
        need["boot"] = json!(OTHER_BOOT);
    }
    node.root.write(NEEDS, &kept.to_string());
}

#[test]
fn the_need_of_a_reboot_is_said_until_the_next_boot_and_after_a_rollback_too() {
    with_mounts(|| {
        let node = node();
        needs_reboot(&node, false);
        let run = node.run(&["apply", "--yes", "/one"]).ok();
        assert!(flat_run(&run).contains("Reboot needed"), "{}", run.out());
        needs_reboot(&node, true);
        // Nothing has read the new file yet.
        let run = node.run(&["rollback", "--yes"]).ok();
        assert!(!flat_run(&run).contains("reboot"), "{}", run.out());
        needs_reboot(&node, false);
        node.run(&["apply", "--yes", "/one"]).ok();
        needs_reboot(&node, true);
        reboots(&node);
        needs_reboot(&node, false);
        // What runs has read it by now.
        let run = node.run(&["rollback", "--yes"]).ok();
        let words = "Reboot needed: files of rendered-worker-one were changed";
        assert!(flat_run(&run).contains(words), "{}", run.out());
        needs_reboot(&node, true);
        reboots(&node);
        needs_reboot(&node, false);
    });
}

#[test]
fn a_need_that_is_over_is_forgotten_with_the_next_run() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/one"]).ok();
        node.run(&["rollback", "--yes"]).ok();
        let count = || {
            unsealed(&node.root.read(NEEDS))["runs"]
                .as_array()
                .map(Vec::len)
        };
        assert_eq!(count(), Some(1));
        let other = service_config("rendered-worker-other", IMAGE, "zero\n");
        node.root.write("other", &other.to_string());
        node.run(&["apply", "--yes", "/other"]).ok();
        assert_eq!(count(), Some(0));
        needs_reboot(&node, false);
    });
}

#[test]
fn what_a_lost_boot_leaves_is_said_as_it_was_and_the_cure_is_the_config_that_was_staged() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/two"]).ok();
        node.awaits_since_the_boot_before();
        let stamp = "error: Installing kernel: regfile copy: No space left on device\n";
        node.root.write("boot/ostree/finalize-failure.stamp", stamp);
        node.root.remove("stub/staged");
        let run = node.run(&["complete"]).exits(3);
        let said = flat_run(&run);
        assert!(said.contains("The old files are restored."), "{said}");
        let again = "mco-rescue apply cached:rendered-worker-two";
        assert!(said.contains(again), "{said}");
        let doctor = node.run(&["doctor", "--output", "json"]);
        let doctor = doctor.out();
        assert!(doctor.contains(&format!("{again} --reboot")), "{doctor}");
        assert!(
            !doctor.contains("\"mco-rescue apply --reboot\""),
            "{doctor}"
        );
        // The report is forgotten with the next boot, and the name with it; the recorded config is still not the one.
        node.awaits_since_the_boot_before();
        node.run(&["complete"]);
        let doctor = node.run(&["doctor", "--output", "json"]).out();
        assert!(doctor.contains("apply --reboot cached:NAME"), "{doctor}");
    });
}

#[test]
fn no_file_is_called_restored_where_an_image_alone_was_lost() {
    with_mounts(|| {
        let node = node();
        node.run(&["pivot", "--yes", NEXT]).ok();
        node.awaits_since_the_boot_before();
        node.root.remove("stub/staged");
        let run = node.run(&["complete"]).exits(3);
        let said = flat_run(&run);
        assert!(said.contains("No file had to be restored."), "{said}");
        assert!(!said.contains("files are restored"), "{said}");
    });
}
