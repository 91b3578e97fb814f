//! FP-67: SELinux is off, or its policy is not that of the OS.

use super::small::{self, directory};
use super::{Dark, carry_out, doctor, found, of, says};
use crate::support::{TestRoot, file, flat_run};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-67", "SELinux: ", |root| {
    directory(root, "etc/selinux/config");
})];

const CONFIG: &str = "etc/selinux/config";
const POLICY: &str = "selinux/targeted/policy/policy.33";
const MODULES: &str = "selinux/targeted/active/modules";

/// A node with the policy of its OS.
fn node() -> TestRoot {
    let root = small::node();
    for tree in ["etc", "usr/etc"] {
        root.write(
            &format!("{tree}/selinux/config"),
            "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
        );
        root.write(
            &format!("{tree}/selinux/targeted/contexts/files/file_contexts"),
            "/.*\t<<none>>\n",
        );
        root.write(&format!("{tree}/{POLICY}"), "the policy of this OS");
        for file in ["cil", "hll", "lang_ext"] {
            root.write(&format!("{tree}/{MODULES}/100/base/{file}"), file);
        }
    }
    root
}

fn is_healthy(root: &TestRoot) {
    assert_eq!(of(&doctor(root), "FP-67"), Vec::<Value>::new());
}

#[test]
fn a_policy_that_did_not_come_along_is_a_notice_and_with_denials_a_warning() {
    let root = node();
    is_healthy(&root);
    // Of the same length, and of another one.
    for text in ["the policy of that OS", "longer than the policy of this OS"] {
        root.write(&format!("etc/{POLICY}"), text);
        let text = found(&doctor(&root), "FP-67", "notice");
        says(
            &text,
            &[
                "/etc/selinux/targeted/policy/policy.33",
                "differs from /usr/etc/selinux/targeted/policy/policy.33",
            ],
        );
    }
    root.write(
        "var/log/audit/audit.log",
        "type=AVC msg=audit(1): avc:  denied  { create } permissive=1\n",
    );
    found(&doctor(&root), "FP-67", "notice");
    root.write(
        "var/log/audit/audit.log",
        "type=AVC msg=audit(1): avc:  denied  { create } for comm=\"nm-dispatcher\" permissive=0\n",
    );
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-67", "warning"),
        &["1 denial at its end", "cp -aT "],
    );
    carry_out(&seen, "FP-67", 0);
    is_healthy(&root);
    // The next version of the format.
    root.write(
        "usr/etc/selinux/targeted/policy/policy.34",
        "the policy of this OS",
    );
    says(
        &found(&doctor(&root), "FP-67", "warning"),
        &["differs from /usr/etc/selinux/targeted/policy/policy.34"],
    );
}

#[test]
fn a_policy_that_is_newer_than_that_of_the_os_is_moved_aside() {
    let root = node();
    root.write(
        "etc/selinux/targeted/policy/policy.34",
        "the policy of the next OS",
    );
    let seen = doctor(&root);
    found(&seen, "FP-67", "notice");
    carry_out(&seen, "FP-67", 0);
    carry_out(&seen, "FP-67", 1);
    is_healthy(&root);
}

#[test]
fn a_module_that_is_not_complete_stops_the_next_os() {
    let root = node();
    for file in ["cil", "hll", "lang_ext"] {
        root.write(&format!("etc/{MODULES}/400/own/{file}"), file);
    }
    is_healthy(&root);
    root.remove(&format!("etc/{MODULES}/400/own/lang_ext"));
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-67", "warning"),
        &[
            "/400/own",
            "lang_ext is missing",
            "Finalizing SELinux policy",
        ],
    );
    carry_out(&seen, "FP-67", 0);
    is_healthy(&root);
}

#[test]
fn a_mode_that_denies_nothing_is_reported() {
    for (line, severity, words) in [
        ("SELINUX=permissive", "notice", "only reports"),
        ("SELINUX=disabled", "warning", "is disabled"),
        (
            "SELINUX=enforced",
            "warning",
            "has a value that does not exist",
        ),
        (" SELINUX=enforcing", "warning", "no line SELINUX="),
    ] {
        let root = node();
        root.write(CONFIG, &format!("{line}\nSELINUXTYPE=targeted\n"));
        says(
            &found(&doctor(&root), "FP-67", severity),
            &[words, "/etc/selinux/config"],
        );
        let seen = doctor(&root);
        let is_chosen = line.ends_with("permissive") || line.ends_with("disabled");
        assert_eq!(of(&seen, "FP-67")[0]["fix"].is_null(), is_chosen, "{line}");
        carry_out(&seen, "FP-67", 0);
        is_healthy(&root);
    }
    let root = node();
    root.write(CONFIG, "SELINUX=enforced\nSELINUX=Enforcing\n");
    is_healthy(&root);
}

#[test]
fn a_type_without_a_policy_stops_the_boot() {
    let root = node();
    root.write(CONFIG, "SELINUX=enforcing\nSELINUXTYPE=target\n");
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-67", "critical"),
        &[
            "SELINUXTYPE=target",
            "has targeted",
            "Failed to load SELinux policy.",
        ],
    );
    carry_out(&seen, "FP-67", 0);
    is_healthy(&root);
    root.write(CONFIG, "SELINUX=disabled\nSELINUXTYPE=none\n");
    found(&doctor(&root), "FP-67", "warning");
}

#[test]
fn the_file_of_the_config_is_not_changed() {
    let root = node();
    let text = "SELINUX=enforced\nSELINUXTYPE=targeted\n";
    root.write(CONFIG, text);
    small::recorded(&root, |spec| {
        let files = spec["config"]["storage"]["files"].as_array_mut().unwrap();
        files.push(crate::support::file("/etc/selinux/config", 0o644, text));
    });
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-67", "warning"),
        &["the MachineConfig with /etc/selinux/config has to change"],
    );
    assert_eq!(of(&seen, "FP-67")[0]["fix"], Value::Null, "{seen:#}");
}

#[test]
fn new_labels_at_a_boot_are_never_given() {
    let root = node();
    root.write(".autorelabel", "");
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-67", "warning"),
        &["/.autorelabel", "OSTree cannot carry out"],
    );
    carry_out(&seen, "FP-67", 0);
    is_healthy(&root);
}

/// Before it happens: the plan has the words that `doctor` has afterwards.
#[test]
fn a_config_that_turns_selinux_off_or_asks_for_labels_says_so_in_the_plan() {
    for (path, text, words) in [
        ("/.autorelabel", "", "OSTree cannot carry out"),
        (
            "/etc/selinux/config",
            "SELINUX=disabled\n",
            "SELinux is disabled",
        ),
        (
            "/etc/selinux/config",
            "SELINUX=enforcing\nSELINUXTYPE=mls\n",
            "SELINUXTYPE names a policy that does not exist",
        ),
        (
            "/etc/selinux/targeted/policy/policy.33",
            "x",
            "the config brings files of the SELinux policy",
        ),
    ] {
        let root = node();
        let plan = |files: &[Value]| {
            let mut config = small::config();
            let all = config["spec"]["config"]["storage"]["files"].as_array_mut();
            all.unwrap().extend(files.iter().cloned());
            let file = root.config(&config);
            flat_run(&root.run(&["plan", "--files-only", file.path()]))
        };
        assert!(!plan(&[file("/etc/x", 0o644, "x")]).contains("SELINUX"));
        let text = plan(&[file(path, 0o644, text)]);
        assert!(text.contains(words), "{path}: {text}");
    }
}
