//! FP-22: the node's annotations are lost or incomplete.

use super::small::{self, NAME, directory};
use super::{Dark, RECORD, doctor, found, of, says};
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-22", "node-annotations.json", |root| {
    directory(root, "etc/machine-config-daemon/node-annotations.json");
})];

#[test]
fn annotations_that_cannot_be_read_or_are_incomplete_are_critical() {
    let (prefix, path) = (
        "machineconfiguration.openshift.io/",
        "etc/machine-config-daemon/node-annotations.json",
    );
    let root = small::node();
    root.write(path, "{\"");
    found(&doctor(&root), "FP-22", "critical");
    let current = format!("{prefix}currentConfig");
    root.write(path, &json!({ current.clone(): NAME }).to_string());
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &["desiredConfig", "annotation not found"],
    );
    let desired = format!("{prefix}desiredConfig");
    root.write(
        path,
        &json!({ current.clone(): NAME, desired.clone(): NAME }).to_string(),
    );
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    root.write(path, &json!({ current: "a", desired: "a" }).to_string());
    says(
        &found(&doctor(&root), "FP-22", "warning"),
        &["ignores currentconfig"],
    );
}

#[test]
fn an_annotation_that_the_node_object_lacks_is_critical() {
    let root = small::node();
    small::annotated(&root, Some(NAME), None);
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &[
            "lacks the daemon's annotations",
            "desiredConfig",
            "annotation not found",
            "--for-cluster",
        ],
    );
    // The daemon takes the other one from its record.
    small::annotated(&root, None, Some(NAME));
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    let file = json!({"machineconfiguration.openshift.io/desiredConfig": NAME});
    root.write(
        "etc/machine-config-daemon/node-annotations.json",
        &file.to_string(),
    );
    root.remove("var/lib/mco-rescue/annotations.json");
    root.remove(RECORD);
    says(
        &found(&doctor(&root), "FP-22", "critical"),
        &[
            "node-annotations.json has no currentConfig",
            "annotation not found",
        ],
    );
}

#[test]
fn a_record_that_is_gone_after_the_first_boot_is_reported() {
    let root = small::node();
    root.remove(RECORD);
    assert_eq!(of(&doctor(&root), "FP-22"), Vec::<Value>::new());
    root.write("etc/machine-config-daemon/node-annotation.json.bak", "{}");
    says(
        &found(&doctor(&root), "FP-22", "warning"),
        &["record is missing"],
    );
}
