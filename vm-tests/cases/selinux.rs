//! A node on which SELinux enforces, as every node of OpenShift: with Debian's policy, as far as that goes.
//!
//! Prepared: the disk of a node that has never booted, labelled, its policy enforcing, and a config in the image.
//! The initramfs applies it, where no policy is loaded; the node boots, and `apply` of another config runs over ssh.
//! True afterwards, both times: SELinux enforces, the node is healthy, and no path that was written has another
//! label than the policy gives it (asked of `restorecon`), also not in the directory of ours, but for its history.

use std::process::Command;

use serde_json::json;

use super::configs;
use super::node::{PROGRAM, brings_along, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Booted, Node};
use crate::lab::{Case, run};
use crate::support::file;
use crate::support::mounts::{mount, unmount};

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn labels_are_right_after_the_first_boot_and_after_apply_while_selinux_enforces() {
    let Some(case) = Case::begin_as_root("9 SELinux enforcing") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let key = node.public_key();
    // Each of these has a label of its own in Debian's policy.
    let more = |text: &str| {
        json!({"files": [
            file("/etc/hosts.allow", 0o644, text),
            file("/etc/ssh/sshd_config.d/50-site.conf", 0o600, "MaxAuthTries 4\n"),
            file("/usr/local/bin/site", 0o755, text),
            file("/var/log/site.log", 0o640, text),
        ]})
    };
    let (a, b) = (
        configs::worker(&key, 250, more("A\n")),
        configs::worker(&key, 500, more("B\n")),
    );
    let initramfs = images::initramfs_with_us(Kind::Lean);
    brings_along(&node, &a);
    node.prepare(|root| {
        std::fs::copy(images::program(), root.join(&PROGRAM[1..])).unwrap();
        std::fs::write(
            root.join("etc/selinux/config"),
            "SELINUX=enforcing\nSELINUXTYPE=default\n",
        )
        .unwrap();
        let contexts = "/etc/selinux/default/contexts/files/file_contexts";
        // setfiles goes through /proc/self/fd.
        let proc = root.join("proc");
        mount(&["-t", "proc", "proc", proc.to_str().unwrap()]);
        run(Command::new("chroot")
            .arg(root)
            .args(["setfiles", "-F", contexts, "/"]));
        unmount(&proc);
    });
    case.prepared();

    let machine = node
        .machine(&initramfs)
        .append("security=selinux selinux=1 enforcing=1");
    let mut booted = node.boot(&machine);
    booted.comes_up();
    enforces_with_right_labels(&case, &booted);
    is_healthy_in(&booted, &a);
    booted.bring("b.json", b.to_string().as_bytes());
    booted.ask(&format!("sudo {PROGRAM} apply --yes b.json"));
    booted.ask("sudo systemctl restart kubelet.service");
    enforces_with_right_labels(&case, &booted);
    is_healthy_in(&booted, &b);
    booted.power_off();
}

/// Of everything that is written; what the history keeps has the label of where it was, as it is the same inode.
fn enforces_with_right_labels(case: &Case, booted: &Booted) {
    assert_eq!(booted.ask("cat /sys/fs/selinux/enforce"), "1");
    let ours = "/etc /home /usr/local /var/log/site.log /var/lib/mco-rescue";
    let wrong = booted.ask(&format!(
        "sudo restorecon -nvR -e /var/lib/mco-rescue/history {ours}"
    ));
    let seen = booted.ask("ls -Z /etc/hosts.allow /usr/local/bin/site /var/log/site.log /home/core/.ssh/authorized_keys.d/ignition");
    case.tell(&format!("labels:\n{seen}"));
    assert_eq!(wrong, "", "wrong labels");
}
