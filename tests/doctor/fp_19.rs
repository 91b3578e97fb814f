//! FP-19: extensions or kernel type are not in the deployment.

use super::small::{NAME, disk_of_a_node, live, record_on, recorded, run_at};
use super::{Dark, answer, doctor_on, found, of, says};
use crate::support::ostree_node::IMAGE;
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-19", "packages of extensions", |root| {
    recorded(root, |spec| spec["extensions"] = json!(["usbguard"]));
})];

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
            &["realtime is wanted, default is installed"],
        );
        assert_eq!(
            node.calls(),
            Vec::<String>::new(),
            "doctor changed something"
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
fn a_kernel_that_the_architecture_lacks_is_not_waited_for() {
    live(|node| {
        record_on(node, |spec| spec["kernelType"] = json!("64k-pages"));
        let text = found(&doctor_on(node), "FP-19", "warning");
        let lacks = std::env::consts::ARCH != "aarch64";
        assert_eq!(
            text.contains("64k-pages is only supported for aarch64 architecture"),
            lacks,
            "{text}"
        );
        assert_eq!(
            text.contains("oc get mc -o custom-columns="),
            lacks,
            "{text}"
        );
        assert_eq!(text.contains("rpm-ostree status"), !lacks, "{text}");
    });
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
