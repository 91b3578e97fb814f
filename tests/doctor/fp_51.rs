//! FP-51: packages on top of the image that no config asks for.

use super::small::{disk_of_a_node, live, record_on, run_at};
use super::{answer, doctor_on, found, of, says};
use crate::support::ostree_node::IMAGE;
use serde_json::{Value, json};

#[test]
fn packages_that_were_layered_by_hand_are_reported_and_those_of_extensions_are_not() {
    live(|node| {
        record_on(node, |spec| spec["extensions"] = json!(["usbguard"]));
        for (packages, by_hand) in [
            ("", ""),
            ("usbguard", ""),
            // Of an extension that the config does not have: the daemon's own affair.
            ("usbguard NetworkManager-libreswan libreswan", ""),
            ("usbguard kernel-rt-core kernel-rt-modules", ""),
            ("usbguard tmux htop", "tmux htop"),
        ] {
            node.runs(IMAGE, packages, "");
            let report = doctor_on(node);
            if by_hand.is_empty() {
                assert_eq!(of(&report, "FP-51"), Vec::<Value>::new(), "{packages}");
                continue;
            }
            let next = format!("rpm-ostree uninstall {by_hand}");
            says(
                &found(&report, "FP-51", "warning"),
                &[&next, "error: Packages not found: tmux", "htop"],
            );
        }
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}

#[test]
fn the_origin_of_a_disk_names_its_packages() {
    let (outer, place) = disk_of_a_node("[packages]\nrequested=usbguard;vim;\n");
    let report = answer(&run_at(&outer, &place));
    says(
        &found(&report, "FP-51", "warning"),
        &["rpm-ostree uninstall vim"],
    );
    let (outer, place) =
        disk_of_a_node("[packages]\nrequested=usbguard;\nrequested-local=a:tool-1-1.x86_64;\n");
    let report = answer(&run_at(&outer, &place));
    assert_eq!(of(&report, "FP-51"), Vec::<Value>::new());
}
