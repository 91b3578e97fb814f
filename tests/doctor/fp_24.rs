//! FP-24: the daemon's own files are not in order.

use super::small::{self, endless};
use super::{Dark, doctor, found, of, says};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-24", "the daemon's copies and stamps", |root| {
    endless(root, "etc/machine-config-daemon/orig");
})];

#[test]
fn a_first_boot_that_somebody_put_back_is_critical() {
    let root = small::node();
    root.write("etc/machine-config-daemon/node-annotation.json.bak", "{}");
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write("etc/ignition-machine-config-encapsulated.json", "{}");
    says(
        &found(&doctor(&root), "FP-24", "critical"),
        &["kubelet does not start"],
    );
    // It is over, so nobody is told to finish it.
    assert_eq!(of(&doctor(&root), "FP-10"), Vec::<Value>::new());
}

#[test]
fn stamps_that_contradict_what_the_os_ships_are_reported() {
    let root = small::node();
    root.write(
        "etc/machine-config-daemon/noorig/etc/chrony.conf.mcdnoorig",
        "",
    );
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write("usr/etc/chrony.conf", "shipped\n");
    says(
        &found(&doctor(&root), "FP-24", "notice"),
        &["/etc/chrony.conf", "the OS ships it"],
    );
}

#[test]
fn copies_and_stamps_of_one_file_and_files_that_are_neither_are_reported() {
    let root = small::node();
    let daemon = "etc/machine-config-daemon";
    root.write(&format!("{daemon}/orig/etc/a.conf.mcdorig"), "of the OS\n");
    assert_eq!(of(&doctor(&root), "FP-24"), Vec::<Value>::new());
    root.write(&format!("{daemon}/noorig/etc/a.conf.mcdnoorig"), "");
    root.write(&format!("{daemon}/orig/etc/b.conf"), "");
    says(
        &found(&doctor(&root), "FP-24", "notice"),
        &[
            "/etc/a.conf",
            "has both a copy and a stamp",
            "orig/etc/b.conf",
            "is neither a copy nor a stamp",
        ],
    );
}
