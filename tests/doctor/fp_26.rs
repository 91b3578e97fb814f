//! FP-26: SELinux labels are wrong.
#![allow(unsafe_code)]

use std::os::unix::ffi::OsStrExt;

use super::small::{self, live};
use super::{doctor, doctor_on, found, of, says, unseen};
use crate::support::{Lacks, TestRoot, is_root, skip};
use serde_json::{Value, json};

/// Sets a label by hand, as `chcon` does; false where the file system takes none.
fn label(root: &TestRoot, path: &str, kind: &str) -> bool {
    let path = std::ffi::CString::new(root.path(path).as_os_str().as_bytes()).unwrap();
    let label = format!("system_u:object_r:{kind}:s0\0");
    let name = c"security.selinux".as_ptr();
    // SAFETY: both names end in a zero byte, and the value is as long as is said.
    0 == unsafe { libc::lsetxattr(path.as_ptr(), name, label.as_ptr().cast(), label.len(), 0) }
}

const CONTEXTS: &str = "etc/selinux/targeted/contexts/files/file_contexts";

/// A policy with a label for a file and for the units.
fn with_policy(root: &TestRoot) {
    root.write(
        "etc/selinux/config",
        "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
    );
    root.write(
        CONTEXTS,
        "/etc/of-config\\.conf\tsystem_u:object_r:etc_t:s0\n\
         /etc/systemd/system/own\\.service\tsystem_u:object_r:systemd_unit_file_t:s0\n",
    );
}

#[test]
fn labels_that_the_policy_does_not_give_are_reported_with_the_command() {
    let root = TestRoot::new();
    with_policy(&root);
    root.apply(&small::config());
    small::furnish(&root);
    if !is_root() || !label(&root, "etc/of-config.conf", "etc_t") {
        return skip(Lacks::root_or_machine(), "labels cannot be set here");
    }
    assert_eq!(of(&doctor(&root), "FP-26"), Vec::<Value>::new());
    label(&root, "etc/of-config.conf", "tmp_t");
    let text = found(&doctor(&root), "FP-26", "warning");
    says(
        &text,
        &[
            "tmp_t, should be etc_t",
            "on the node itself, once it has booted: restorecon -RFv /etc/of-config.conf",
            "not be allowed to read",
        ],
    );
    label(&root, "etc/of-config.conf", "etc_t");
    label(&root, "etc/systemd/system/own.service", "tmp_t");
    says(
        &found(&doctor(&root), "FP-26", "warning"),
        &[
            "should be systemd_unit_file_t",
            "systemd may not load these units",
        ],
    );
    root.write(CONTEXTS, "/etc/of-config\\.conf\n");
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-26"), Vec::<Value>::new());
    says(&unseen(&seen, "FP-26"), &["labels: "]);
}

#[test]
fn a_running_node_is_told_to_put_its_labels_right_at_once() {
    live(|node| {
        let root = &node.root;
        with_policy(root);
        root.apply(&small::config());
        if !label(root, "etc/of-config.conf", "tmp_t") {
            return skip(Lacks::root_or_machine(), "labels cannot be set here");
        }
        let seen = doctor_on(node);
        found(&seen, "FP-26", "warning");
        let next = &of(&seen, "FP-26")[0]["next"];
        assert_eq!(*next, json!(["restorecon -RFv /etc/of-config.conf"]));
    });
}

#[test]
fn the_command_for_a_mounted_disk_sets_the_labels_by_the_policy_there() {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let tools = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
    let tools = tools.join("selinux/tools/sbin");
    let root = TestRoot::new();
    with_policy(&root);
    root.apply(&small::config());
    small::furnish(&root);
    if !is_root() || !label(&root, "etc/of-config.conf", "tmp_t") {
        return skip(Lacks::root_or_machine(), "labels cannot be set here");
    }
    if !tools.join("setfiles").exists() {
        return skip(Lacks::Setup, "no setfiles");
    }
    let seen = doctor(&root);
    let text = found(&seen, "FP-26", "warning");
    assert!(!text.contains(".autorelabel"), "{text}");
    let command = of(&seen, "FP-26")[0]["next"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(command.starts_with("setfiles -F -r "), "{command}");
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .env(
            "PATH",
            format!("{}:{}", tools.display(), std::env::var("PATH").unwrap()),
        )
        .status();
    assert!(status.unwrap().success(), "{command}");
    assert_eq!(of(&doctor(&root), "FP-26"), Vec::<Value>::new());
}
