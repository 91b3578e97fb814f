//! FP-21: a config that the daemon retries.

use serde_json::{Value, json};

use super::worker::{Branch, Row, all_met, healthy, sick, well};
use super::{doctor, found, of, says};
use crate::support::TestRoot;

const LOG: &str = "var/log/pods/openshift-machine-config-operator_machine-config-daemon-x7_uid/machine-config-daemon/0.log";
const BAD: &str = "rendered-worker-b";
const RECORD: &str = "rendered-worker-a";
const REASON: &str = "failed to create directory \\\"/usr/local/x\\\": not a directory";

/// Lines as the runtime writes them, one each minute of a day.
pub(super) fn log(root: &TestRoot, messages: &[String]) {
    let lines = messages.iter().enumerate().map(|(minute, text)| {
        format!(
            "2026-11-20T10:{minute:02}:38.595644301+00:00 stderr F E1120 10:{minute:02}:38.595603    3512 writer.go:226] {text}\n"
        )
    });
    root.write(LOG, &lines.collect::<String>());
}

pub(super) fn starting(to: &str) -> String {
    format!("\"Starting update from {RECORD} to {to}: &{{osUpdate:false}}\"")
}

pub(super) fn degraded(why: &str) -> String {
    format!("\"Marking Degraded due to: \\\"{why}\\\"\"")
}

fn retries(times: usize) -> Vec<String> {
    let one = [starting(BAD), degraded(REASON)];
    std::iter::repeat_n(one, times).flatten().collect()
}

/// The API's last answer.
pub(super) fn api(root: &TestRoot, desired: &str, state: &str, seen: u64) {
    let text = json!({"version": 1, "node": "worker-0", "seen": seen, "current": RECORD, "desired": desired, "state": state});
    root.write("var/lib/mco-rescue/annotations.json", &text.to_string());
}

/// The time of the last run of a root.
pub(super) fn set_last_run(root: &TestRoot, finished: u64) {
    let path = "var/lib/mco-rescue/status.json";
    let mut run: Value = serde_json::from_str(&root.read(path)).unwrap();
    run["finished"] = finished.into();
    if run.get("checksum").is_some() {
        run.as_object_mut().unwrap().remove("checksum");
    }
    root.write(path, &run.to_string());
}

/// The log is of 2026-11-20 at 10 o'clock.
pub(super) const BEFORE: u64 = 1_790_000_000;
pub(super) const AFTER: u64 = 1_800_000_000;

const PATCH: &str = "oc patch node worker-0 --type merge -p '{\"metadata\":{\"annotations\":{\"machineconfiguration.openshift.io/desiredConfig\":\"rendered-worker-a\",\"machineconfiguration.openshift.io/desiredDrain\":\"uncordon-rendered-worker-a\",\"machineconfiguration.openshift.io/lastAppliedDrain\":\"uncordon-rendered-worker-a\"}}}'";
const NEXT: &[&str] = &[
    "oc get mcp",
    PATCH,
    "oc adm uncordon worker-0",
    "mco-rescue status --for-cluster --root ROOT",
];

#[test]
fn a_config_that_fails_again_and_again_is_found_with_the_exact_patch() {
    let rows: [Row; 9] = [
        sick(
            |root| {
                set_last_run(root, BEFORE);
                api(root, BAD, "Degraded", BEFORE + 1);
                log(root, &retries(3));
            },
            Branch {
                id: "FP-21",
                severity: "warning",
                what: "the daemon tries a config again that fails each time",
                seen: &[
                    "rendered-worker-b failed 3 times in a row, last at 2026-11-20T10:05:38Z",
                    "Marking Degraded due to: failed to create directory",
                    "desiredConfig rendered-worker-b, state Degraded",
                ],
                next: NEXT,
            },
        ),
        // The API alone tells it.
        sick(
            |root| api(root, BAD, "Degraded", AFTER),
            Branch {
                id: "FP-21",
                severity: "warning",
                what: "the daemon tries a config again that fails each time",
                seen: &["state Degraded"],
                next: NEXT,
            },
        ),
        // The node was put into the recorded config since.
        sick(
            |root| {
                set_last_run(root, AFTER);
                api(root, BAD, "Degraded", BEFORE);
                log(root, &retries(2));
            },
            Branch {
                id: "FP-21",
                severity: "warning",
                what: "the daemon will return to the config that failed",
                seen: &[
                    "failed 2 times in a row",
                    "the daemon tries the other config again",
                ],
                next: NEXT,
            },
        ),
        well("FP-21", |_| {}),
        // An update under way, and a failure that may be over with the next retry.
        well("FP-21", |root| {
            api(root, BAD, "Working", BEFORE);
            log(root, &retries(1));
        }),
        // It went well in the end.
        well("FP-21", |root| {
            let mut all = retries(3);
            all.push(format!(
                "\"Completing update to target MachineConfig: {BAD}\""
            ));
            log(root, &all);
        }),
        well("FP-21", |root| {
            log(root, &retries(3));
            api(root, RECORD, "Done", AFTER);
        }),
        // Drift and drain have checks of their own.
        well("FP-21", |root| {
            let drift = degraded(
                "unexpected on-disk state validating against rendered-worker-a: mode mismatch",
            );
            log(root, &[starting(BAD), drift.clone(), drift]);
        }),
        well("FP-21", |root| {
            let drain = degraded("failed to drain node: worker-0 after 1 hour");
            log(root, &[starting(BAD), drain.clone(), drain]);
        }),
    ];
    all_met(&rows);
}

#[test]
fn damaged_and_huge_logs_are_no_finding_and_no_obstacle() {
    let root = healthy();
    root.write(LOG, "not a log\n\u{0}\u{1}\n2026 stderr\n");
    assert_eq!(of(&doctor(&root), "FP-21"), Vec::<Value>::new());
    // Only the end of a file is read.
    let noise =
        "2026-11-20T09:00:00.0+00:00 stderr F I1120 09:00:00.0 1 x.go:1] noise\n".repeat(30_000);
    log(&root, &retries(4));
    let text = noise + &root.read(LOG);
    root.write(LOG, &text);
    let words = found(&doctor(&root), "FP-21", "warning");
    says(&words, &["failed 4 times in a row"]);
}
