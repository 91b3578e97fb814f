//! A test's root as that of a running CoreOS node: programs that answer as rpm-ostree, rpm, podman and systemctl do, and
//! a mount namespace of its own in which the kernel's command line names its deployment.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::ostree_node::Turn;
use super::{Run, TestRoot, commands, copy_program, install, install_program, null_device};

/// A program of the node.
pub fn answers(root: &TestRoot, program: &str, script: &str) {
    root.write("script", &format!("#!/bin/sh\n{script}\n"));
    fs::create_dir_all(root.path("usr/sbin")).unwrap();
    install(
        &root.path("script"),
        &root.path(&format!("usr/sbin/{program}")),
    );
}

const CHECKSUM: &str = "1111111111111111111111111111111111111111111111111111111111111111";

/// Makes the directory a CoreOS node with the case's answers of rpm-ostree, rpm and podman.
pub fn furnish(root: &TestRoot, coreos: &Value) {
    copy_program(root, "/bin/sh");
    install_program(&root.path("usr/mco-rescue"));
    for dir in ["proc", "dev", "sysroot/ostree/boot.1/rhcos/abc"] {
        fs::create_dir_all(root.path(dir)).unwrap();
    }
    null_device(root);
    let os =
        "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=9.6\nNAME=\"Red Hat Enterprise Linux CoreOS\"\n";
    root.write("etc/os-release", os);
    let kargs = coreos["kargs"].as_str().unwrap();
    root.write("cmdline", &format!("{kargs}\n"));
    let link = format!("../../../deploy/rhcos/deploy/{CHECKSUM}.0");
    root.link("sysroot/ostree/boot.1/rhcos/abc/0", &link);
    let deployment = json!({"booted": true, "staged": false, "pinned": false, "osname": "rhcos", "serial": 0,
        "checksum": CHECKSUM, "unlocked": "none", "requested-packages": [], "version": "9.6",
        "container-image-reference": format!("ostree-unverified-registry:{}", coreos["booted"].as_str().unwrap())});
    let status = json!({"deployments": [deployment], "transaction": null});
    answers(
        root,
        "rpm-ostree",
        &format!(
            "case \"$*\" in *--json*) echo '{status}';; kargs*) echo '{kargs}';; \
             *version*) printf 'rpm-ostree:\\n Version: 2025.6\\n Features:\\n  - container\\n';; \
             *) echo State: idle;; esac"
        ),
    );
    let packages: Vec<&str> = coreos["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|name| name.as_str().unwrap())
        .collect();
    let known = packages.join("|");
    let has = if known.is_empty() { "none" } else { &known };
    answers(
        root,
        "rpm",
        &format!("case \"$2\" in {has}) exit 0;; esac; exit 1"),
    );
    answers(root, "podman", "exit 1");
    answers(root, "systemctl", "exit 1");
}

/// Runs the program with the directory as the root of the running system, booted with the case's command line.
pub fn run_live(root: &TestRoot, args: &[&str]) -> Run {
    let script = "mount -t proc proc \"$0/proc\" && mount --bind \"$0/cmdline\" \"$0/proc/cmdline\" && \
                  root=$0 && exec chroot \"$root\" /usr/mco-rescue \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(root.dir())
        .args(args);
    let _turn = Turn::take();
    let output = command.stdin(Stdio::null()).output().unwrap();
    commands::check(&output, commands::root_of(args));
    Run::of(output)
}
