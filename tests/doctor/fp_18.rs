//! FP-18: kernel arguments that cannot come right.

use super::small::{self, ENTRY, booted_with, live, record_on, recorded};
use super::{Dark, doctor, doctor_on, found, of, says};
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-18", "kernel arguments: ", |root| {
    root.remove(ENTRY);
    recorded(root, |spec| spec["kernelArguments"] = json!(["nosmt"]));
})];

#[test]
fn arguments_that_the_daemon_never_finds_and_those_that_lose_are_reported() {
    let root = small::node();
    recorded(&root, |spec| {
        spec["kernelArguments"] = json!(["dyndbg=\"file a +p\""])
    });
    let text = found(&doctor(&root), "FP-18", "warning");
    says(
        &text,
        &["has a blank in it", "missing expected kernel arguments"],
    );
    recorded(&root, |spec| {
        spec["kernelArguments"] = json!(["nosmt=force"])
    });
    root.write(ENTRY, "version 1\noptions rw nosmt=force nosmt=off\n");
    says(
        &found(&doctor(&root), "FP-18", "notice"),
        &["nosmt=off comes after it"],
    );
    root.write(ENTRY, "version 1\noptions rw nosmt=off nosmt=force\n");
    assert_eq!(of(&doctor(&root), "FP-18"), Vec::<Value>::new());
}

#[test]
fn an_argument_that_never_closes_its_quote_is_reported() {
    let root = small::node();
    recorded(&root, |spec| spec["kernelArguments"] = json!(["a=\"1"]));
    says(
        &found(&doctor(&root), "FP-18", "warning"),
        &["never closes its quote", "oc edit mc NAME"],
    );
}

#[test]
fn a_boot_entry_that_somebody_changed_is_reported_on_a_live_node() {
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
fn arguments_that_somebody_typed_at_the_boot_menu_are_reported() {
    live(|node| {
        record_on(node, |_| {});
        booted_with(node, "systemd.unit=rescue.target");
        says(
            &found(&doctor_on(node), "FP-18", "notice"),
            &["this boot only", "systemd.unit=rescue.target"],
        );
    });
}
