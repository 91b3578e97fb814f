//! FP-05: the OS image cannot be pulled.

use std::fs;

use super::worker::{Branch, POLICY, Row, SECRET, all_met, is_well, on_a_node, sick, well};
use super::{CRITICAL, RECORD, Sick, WARNING, doctor_exits, doctor_on, finding, of, unseen};
use crate::support::ostree_node::{IMAGE, NEXT, OstreeNode};

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-05",
        code: WARNING,
        what: "the OS image cannot be pulled",
        next: "vi /",
        sicken: |root| {
            root.write(
                "etc/containers/policy.json",
                r#"{"default": [{"type": "reject"}]}"#,
            )
        },
    },
    Sick {
        id: "FP-05",
        code: WARNING,
        what: "the OS image cannot be pulled",
        next: "cp /",
        sicken: |root| root.remove("etc/containers/policy.json"),
    },
];

const REGISTRIES: &str = "etc/containers/registries.conf";

const fn refused(seen: &'static [&'static str], next: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-05",
        severity: "warning",
        what: "the OS image cannot be pulled",
        seen,
        next,
    }
}

const BLOCKED: &str = "[[registry]]\nlocation = \"quay.example\"\nblocked = true\n";

const PULL: [Row; 15] = [
    sick(
        |root| root.write(POLICY, r#"{"default": [{"type": "reject"}]}"#),
        refused(
            &[
                "/etc/containers/policy.json",
                "the signature policy rejects it",
                "It is not needed now",
            ],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.write(POLICY, "{"),
        refused(
            &["reading the signature policy"],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.remove(POLICY),
        refused(
            &["is missing, and without it nothing can be pulled"],
            &["cp ROOT/usr/etc/containers/policy.json ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| root.write(REGISTRIES, BLOCKED),
        refused(
            &[
                "no place is asked",
                "origin quay.example/os",
                "quay.example is blocked in /etc/containers/registries.conf",
            ],
            &["vi ROOT/etc/containers/registries.conf"],
        ),
    ),
    // Its mirror is for tags alone.
    sick(
        |root| {
            let mirror = "[[registry.mirror]]\nlocation = \"mirror.example/q\"\npull-from-mirror = \"tag-only\"\n";
            let file = "etc/containers/registries.conf.d/10-mirrors.conf";
            root.write(file, &format!("{BLOCKED}{mirror}"));
        },
        refused(
            &["mirror mirror.example/q/os", "10-mirrors.conf"],
            &["vi ROOT/etc/containers/registries.conf.d/10-mirrors.conf"],
        ),
    ),
    well("FP-05", |root| {
        let mirror = "[[registry.mirror]]\nlocation = \"mirror.example/q\"\n";
        root.write(REGISTRIES, &format!("{BLOCKED}{mirror}"));
    }),
    sick(
        |root| root.write("etc/containers/registries.conf.d/bad.conf", "[[registry"),
        refused(
            &["reading /etc/containers/registries.conf.d/bad.conf"],
            &["vi ROOT/etc/containers/registries.conf.d/bad.conf"],
        ),
    ),
    sick(
        |root| {
            root.write(
                "etc/containers/registries.conf.d/old.conf",
                "[registries.search]\nregistries = ['quay.example']\n",
            )
        },
        refused(
            &["it uses version 1"],
            &["vi ROOT/etc/containers/registries.conf.d/old.conf"],
        ),
    ),
    // The tools convert the main file.
    well("FP-05", |root| {
        let old = "[registries.search]\nregistries = ['quay.example']\n";
        root.write(REGISTRIES, old);
    }),
    // Each file there is read for each pull, and is not TOML.
    sick(
        |root| {
            let text = "unqualified-search-registries = ['quay.example']\n";
            root.write("etc/containers/registries.d/99-search.yaml", text);
        },
        refused(
            &[
                "reading /etc/containers/registries.d/99-search.yaml",
                "TOML belongs in",
            ],
            &["vi ROOT/etc/containers/registries.d/99-search.yaml"],
        ),
    ),
    sick(
        |root| {
            root.write(
                POLICY,
                r#"{"default": [{"type": "insecureAcceptAnything"}], "transport": {}}"#,
            )
        },
        refused(
            &["unknown field `transport`"],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| {
            let key = r#"{"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/etc/pki/a"}]}"#;
            root.write(POLICY, key);
        },
        refused(
            &["needs the key /etc/pki/a, which is missing"],
            &["vi ROOT/etc/containers/policy.json"],
        ),
    ),
    sick(
        |root| {
            let text = root.read(RECORD).replace(IMAGE, "quay.example/OS@sha256:0");
            root.write(RECORD, &text);
        },
        refused(&["the recorded config"], &["mco-rescue show --root ROOT"]),
    ),
    // A secret that cannot be used is FP-27's.
    well("FP-05", |root| root.write(SECRET, "{\"auths\": {\"quay")),
    // What boots no images pulls none.
    well("FP-05", |root| {
        fs::remove_dir(root.path("usr/etc")).unwrap();
        root.remove(POLICY);
    }),
];

#[test]
fn everything_that_stops_a_pull_is_reported_with_its_file() {
    all_met(&PULL);
}

/// Makes another image the recorded one.
fn record(node: &OstreeNode, from: &str, to: &str) {
    let text = node.root.read(RECORD).replace(from, to);
    node.root.write(RECORD, &text);
}

const TO_PULL: &[&str] = &[
    "vi /etc/containers/policy.json",
    "mco-rescue pivot --os-from DIR",
];

#[test]
fn an_image_that_the_node_needs_and_cannot_pull_is_critical() {
    on_a_node(|node| {
        is_well(node, "FP-05");
        node.root
            .write(POLICY, r#"{"default": [{"type": "reject"}]}"#);
        refused(&["It is not needed now"], TO_PULL).met_by(&doctor_on(node), "");
        record(node, IMAGE, NEXT);
        Branch {
            severity: "critical",
            ..refused(&["even with a working network"], TO_PULL)
        }
        .met_by(&doctor_on(node), "");
        // What is staged is needed no more.
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        refused(&["It is not needed now"], TO_PULL).met_by(&doctor_on(node), "");
        node.root.remove("stub/staged");

        // Nothing stops it, and the registry is not asked.
        node.root.write(
            POLICY,
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        );
        let report = doctor_on(node);
        assert!(of(&report, "FP-05").is_empty(), "{report:#}");
        assert!(
            unseen(&report, "FP-05").contains(&format!(
                "Next: podman pull --authfile /var/lib/kubelet/config.json {NEXT}"
            )),
            "{report:#}"
        );
        let anonymous = |seen| Branch {
            id: "FP-05",
            severity: "notice",
            what: "no pull secret for the registry of the OS image",
            seen,
            next: &["mco-rescue verify", "mco-rescue pivot --os-from DIR"],
        };
        node.root.write(
            SECRET,
            r#"{"auths": {"other.example": {"auth": "c2VjcmV0OnNlY3JldA=="}}}"#,
        );
        anonymous(&[
            "/var/lib/kubelet/config.json",
            "has no entry for quay.example/os@sha256:2222",
        ])
        .met_by(&doctor_on(node), "");
        node.root.remove(SECRET);
        anonymous(&["/var/lib/kubelet/config.json", "is missing"]).met_by(&doctor_on(node), "");
        // A file without any entry, or that is none, is FP-27's.
        for text in ["{\"auths\": {}}", "{"] {
            node.root.write(SECRET, text);
            let report = doctor_on(node);
            assert!(of(&report, "FP-05").is_empty(), "{report:#}");
            assert_eq!(of(&report, "FP-27").len(), 1, "{report:#}");
        }
    });
}

#[test]
fn a_first_boot_that_waits_for_an_image_is_found() {
    on_a_node(|node| {
        let answer = r#"case $* in
            *ActiveState,SubState*) printf 'Id=machine-config-daemon-pull.service\nActiveState=activating\nSubState=auto-restart\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        let report = doctor_exits(node, CRITICAL);
        let found = finding(&report, "FP-05");
        assert_eq!(found["what"], "the first boot waits for an image");
    });
}
