//! FP-04: a rendered config cannot be found.

use std::fs;

use super::worker::{self, Branch, Row, all_met, import, prepared_for, sick, well};
use super::{FINE, RECORD, Sick, WARNING};
use crate::support::by_operator;
use serde_json::{Value, json};

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-04",
        code: WARNING,
        what: "the desired config is not on this node",
        next: "oc get mc rendered-worker-b",
        sicken: |root| {
            let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000,
                "current": "rendered-worker-a", "desired": "rendered-worker-b", "state": "Working"});
            root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
        },
    },
    Sick {
        id: "FP-04",
        code: WARNING,
        what: "bootstrap's config is not the cluster's",
        next: "mco-rescue status --for-cluster",
        sicken: |root| root.write("etc/machine-config-daemon/bootstrapconfigdiff", "-a\n+b\n"),
    },
    Sick {
        id: "FP-04",
        code: FINE,
        what: "a config in the cache is damaged",
        next: "mco-rescue cache list",
        sicken: |root| {
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-c"));
            let cache = fs::read_dir(root.path("var/lib/mco-rescue/cache")).unwrap();
            let file = cache.map(|entry| entry.unwrap().path()).next().unwrap();
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, &text[..text.len() / 2]).unwrap();
        },
    },
];

/// Rendered by the operator's rules, and changed afterwards.
fn altered() -> Value {
    let mut config = by_operator("worker", "a\n");
    config["spec"]["kernelArguments"] = json!(["quiet"]);
    config
}

const ALTERED: Branch = Branch {
    id: "FP-04",
    severity: "notice",
    what: "a config does not match its name",
    seen: &[
        "cached:rendered-worker-",
        "the hash in the name does not match the contents",
    ],
    next: &["oc get mc rendered-worker-"],
};

const NOT_FOUND: [Row; 10] = [
    sick(|root| import(root, &altered()), ALTERED),
    sick(
        |root| {
            import(root, &altered());
            root.remove(RECORD);
        },
        ALTERED,
    ),
    well("FP-04", |root| import(root, &by_operator("worker", "a\n"))),
    // A first boot leaves the record without its Ignition part.
    well("FP-04", |root| {
        let mut config = by_operator("worker", "a\n");
        config["spec"]["config"] = json!({"ignition": {"version": "3.4.0"}});
        root.write(RECORD, &config.to_string());
    }),
    well("FP-04", |root| {
        worker::annotated(root, "rendered-worker-a", "rendered-worker-a")
    }),
    // These are told by others.
    well("FP-04", |root| {
        import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        worker::annotated(root, "rendered-worker-a", "rendered-worker-b");
        root.remove("etc/kubernetes/kubeconfig");
    }),
    well("FP-04", |root| {
        worker::annotated(root, "rendered-worker-a", "rendered-worker-a");
        import(root, &worker::config());
        root.write(RECORD, "");
    }),
    well("FP-04", |root| {
        worker::annotated(root, "", "");
        root.write("etc/machine-config-daemon/node-annotations.json", "{");
    }),
    well("FP-04", |root| {
        let mut refused = prepared_for("OVNKubernetes", "rendered-worker-b");
        refused["spec"]["fips"] = true.into();
        import(root, &refused);
        worker::annotated(root, "rendered-worker-a", "rendered-worker-b");
    }),
    well("FP-04", |root| worker::annotated(root, "", "")),
];

#[test]
fn a_config_that_was_altered_or_degrades_the_daemon_is_reported_once() {
    all_met(&NOT_FOUND);
}
