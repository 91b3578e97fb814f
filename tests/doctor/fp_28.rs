//! FP-28: the boot image is old.

use super::small::{self, directory, live, record_on, rpm_ostree_says};
use super::{Dark, doctor, doctor_on, found, of, says};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[
    ("FP-28", "no file has its date", |root| {
        root.remove(".coreos-aleph-version.json")
    }),
    ("FP-28", "the boot image: ", |root| {
        directory(root, ".aleph-version.json")
    }),
];

#[test]
fn a_disk_from_an_old_image_is_reported() {
    let root = small::node();
    let old = r#"{"build": "48.84.202109241901-0"}"#;
    root.write(".coreos-aleph-version.json", old);
    says(
        &found(&doctor(&root), "FP-28", "notice"),
        &["48.84.202109241901-0", "3 years"],
    );
    root.write("etc/ignition-machine-config-encapsulated.json", "{}");
    found(&doctor(&root), "FP-28", "warning");
}

#[test]
fn an_rpm_ostree_that_knows_no_containers_is_reported() {
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
