//! FP-03: the disk differs from the recorded config.

use super::worker::healthy;
use super::{Dark, RECORD, Sick, WARNING, doctor, doctor_with, found, says, small};

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-03",
        code: WARNING,
        what: "/etc/pool.conf is not as recorded",
        next: "mco-rescue apply --root",
        sicken: |root| root.write("etc/pool.conf", "edited\n"),
    },
    Sick {
        id: "FP-03",
        code: WARNING,
        what: "2 files or units are not as recorded",
        next: "mco-rescue verify --root",
        sicken: |root| {
            root.write("etc/pool.conf", "edited\n");
            root.chmod("etc/other.conf", 0o644);
        },
    },
];

pub(super) const DARK: &[Dark] = &[("FP-03", "files against the recorded config", |root| {
    root.remove(RECORD)
})];

#[test]
fn what_the_daemon_will_say_of_drift_is_in_the_finding() {
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    let report = doctor_with(&root, &["--output", "json"])
        .exits(WARNING)
        .json();
    let verify = root.run(&["verify", "--output", "json"]).exits(3).json();
    assert_eq!(report["findings"][0]["daemon"], verify["verdict"]);
    assert!(
        verify["verdict"]
            .as_str()
            .unwrap()
            .contains("content mismatch")
    );
}

#[test]
fn a_unit_that_the_node_needs_is_named_with_what_it_stops() {
    let root = small::node();
    let kubelet = "etc/systemd/system/kubelet.service";
    root.write(kubelet, "[Service]\nExecStart=/bin/false\n");
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &[
            "kubelet.service is not as recorded",
            "no pod is started, and the node is not Ready",
        ],
    );
    root.write("etc/of-config.conf", "y\n");
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &["2 recorded files or units differ, including kubelet.service"],
    );
}

#[test]
fn one_difference_is_named_unless_its_name_is_long_and_what_the_daemon_does_not_see_is_a_notice() {
    let root = small::node();
    root.write("etc/of-config.conf", "y\n");
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &["/etc/of-config.conf is not as recorded", "; changed 20"],
    );
    root.run(&["apply", "--yes"]).ok();
    let unit = "etc/systemd/system/own.service";
    root.write(
        unit,
        "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n",
    );
    says(
        &found(&doctor(&root), "FP-03", "warning"),
        &["own.service is not as recorded"],
    );
    root.run(&["apply", "--yes"]).ok();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    let text = found(&doctor(&root), "FP-03", "notice");
    says(
        &text,
        &[
            "1 difference that the daemon does not see",
            "mco-rescue verify",
        ],
    );
}
