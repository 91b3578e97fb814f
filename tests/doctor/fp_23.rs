//! FP-23: etcd was restored, and the API holds an older state than the disk.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::worker::{Branch, Row, all_met, sick, well};
use crate::support::TestRoot;

const RECORD: &str = "rendered-worker-a";

/// What `cluster-restore.sh` leaves behind.
fn restored(root: &TestRoot) {
    root.write("var/lib/etcd-backup/member/snap/db", "old");
}

/// The API's last answer, so many seconds after now.
fn answered(root: &TestRoot, current: &str, after: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seen = i64::try_from(now.as_secs()).unwrap() + after;
    let text = json!({"version": 1, "node": "worker-0", "seen": seen, "current": current, "desired": RECORD,
        "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &text.to_string());
}

const ROWS: [Row; 6] = [
    // Of each alone nothing follows.
    well("FP-23", restored),
    well("FP-23", |root| answered(root, "rendered-worker-old", 60)),
    well("FP-23", |root| {
        restored(root);
        answered(root, RECORD, 60);
    }),
    // The directory of a restore that moved nothing.
    well("FP-23", |root| {
        root.write("var/lib/etcd-backup/note", "");
        answered(root, "rendered-worker-old", 60);
    }),
    sick(
        |root| {
            restored(root);
            answered(root, "rendered-worker-old", 60);
        },
        Branch {
            id: "FP-23",
            severity: "warning",
            what: "etcd was restored, and the API names another config",
            seen: &[
                "/var/lib/etcd-backup/member",
                "currentConfig rendered-worker-old",
                "Disk currentConfig \\\"rendered-worker-a\\\" overrides node's currentConfig annotation \\\"rendered-worker-old\\\"",
            ],
            next: &[
                "oc get node worker-0 ",
                "oc get mcp",
                "mco-rescue status --for-cluster --root ROOT",
            ],
        },
    ),
    sick(
        |root| {
            restored(root);
            answered(root, RECORD, -600);
        },
        Branch {
            id: "FP-23",
            severity: "notice",
            what: "etcd was restored after the API's last answer",
            seen: &["may be older than the disk"],
            next: &[
                "oc get node worker-0 ",
                "oc get mcp",
                "mco-rescue status --for-cluster --root ROOT",
            ],
        },
    ),
];

#[test]
fn annotations_that_a_restore_took_back_are_found() {
    all_met(&ROWS);
}
