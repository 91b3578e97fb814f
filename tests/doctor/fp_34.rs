//! FP-34: drains that do not end, and runs without one.

use super::fp_21::{AFTER, BEFORE, api, degraded, log, set_last_run, starting};
use super::worker::{Branch, Row, all_met, on_a_node, sick, well};
use super::{doctor_on, found, of, says};

const FAILED: &str = "failed to drain node: worker-0 after 1 hour. Please see machine-config-controller logs for more information";
const BAD: &str = "rendered-worker-b";

#[test]
fn a_drain_that_does_not_end_is_found_with_its_target() {
    let rows: [Row; 4] = [
        sick(
            |root| {
                set_last_run(root, BEFORE);
                api(root, BAD, "Degraded", BEFORE);
                log(root, &[starting(BAD), degraded(FAILED)]);
            },
            Branch {
                id: "FP-34",
                severity: "warning",
                what: "the node cannot be drained, and its update waits",
                seen: &["1 failed drain, last at 2026-11-20T10:01:38Z", FAILED],
                next: &[
                    "oc get pdb -A",
                    "oc adm drain worker-0 --ignore-daemonsets --delete-emptydir-data --force --disable-eviction",
                    "oc patch node worker-0 --type merge -p '{\"metadata\":{\"annotations\":{\"machineconfiguration.openshift.io/lastAppliedDrain\":\"drain-rendered-worker-b\"}}}'",
                ],
            },
        ),
        well("FP-34", |_| {}),
        // A run has brought the node there without the daemon.
        well("FP-34", |root| {
            set_last_run(root, AFTER);
            log(root, &[starting(BAD), degraded(FAILED)]);
        }),
        // Another failure is none of a drain.
        well("FP-34", |root| {
            log(root, &[starting(BAD), degraded("not a directory")]);
        }),
    ];
    all_met(&rows);
}

#[test]
fn a_kubelet_that_a_killed_run_left_stopped_is_found_in_this_boot_alone() {
    const STOPPED: &str = "var/lib/mco-rescue/stopped.json";
    on_a_node(|node| {
        assert_eq!(of(&doctor_on(node), "FP-34").len(), 0);
        // A note without a boot is of this one.
        node.root.write(STOPPED, "{\"version\": 1}");
        let text = found(&doctor_on(node), "FP-34", "warning");
        says(
            &text,
            &[
                "left the kubelet stopped",
                "mco-rescue recover",
                "systemctl start kubelet",
            ],
        );
        node.root
            .write(STOPPED, "{\"version\": 1, \"boot\": \"another\"}");
        assert_eq!(of(&doctor_on(node), "FP-34").len(), 0);
        assert!(node.root.exists(STOPPED), "doctor changes nothing");
    });
}
