//! A config that was applied stops the node's own boot: nobody can log in any more, and there is no other machine.
//!
//! Prepared: a node at config A, then B applied, whose drop-in for the kubelet systemd refuses, so that the boot
//! target cannot be reached. It boots, and nobody gets in. The same initramfs with `mco_rescue=shell` gives a shell
//! on the serial console, and somebody types what its banner suggests: remounts the root, `mco-rescue rollback
//! --root /sysroot`, `systemctl reboot`. True afterwards: the node comes up in A, the kubelet runs, nothing differs.
//! Besides, the disk of a node that no config has reached is plugged in: of that `doctor` says so in three lines, from
//! the same shell (FP-02).
//!
//! What the person sees:
//!
//! ```text
//! ---- mco-rescue: the shell of last resort --------------------------------------
//! The node's root is mounted read-only at /sysroot. Four commands to try:
//!   mco-rescue doctor --root /sysroot
//!   mco-rescue verify --root /sysroot
//!   mount -o remount,rw /sysroot && mco-rescue rollback --root /sysroot
//!   mount -o remount,rw /sysroot && mco-rescue apply CONFIG --root /sysroot
//! Then: systemctl reboot. With exit the boot goes on.
//! mco-rescue# mount -o remount,rw /sysroot && mco-rescue rollback --root /sysroot
//! Config    (before rendered-worker-d1309b881c9aee4be230e908b265210f)
//! From      the history: /var/lib/mco-rescue/history/1795287874306-2722
//! Chosen    the last run that can be taken back
//! Root      /sysroot
//! Recorded  rendered-worker-d1309b881c9aee4be230e908b265210f
//!
//! Changes (6):
//!   Files
//!     - /etc/systemd/system/multi-user.target.d  as it was before
//!     - /etc/systemd/system/kubelet.service.d  as it was before
//!     ~ /etc/kubernetes/kubelet.conf  as it was before; 0644, 86 bytes
//!   Units
//!     - /etc/systemd/system/multi-user.target.d/10-kubelet.conf  as it was before
//!     - /etc/systemd/system/kubelet.service.d/20-broken.conf  as it was before
//!   Records of the daemon
//!     ~ /etc/machine-config-daemon/currentconfig
//!         as it was before; 0644, 1921 bytes
//!
//! worker-0 (RHCOS 9.6): back to before
//! rendered-worker-d1309b881c9aee4be230e908b265210f: 1 file, 2 removed. Take this
//! run back? [y/N] y
//! Taken back: rendered-worker-d1309b881c9aee4be230e908b265210f
//! 6 steps; recorded is rendered-worker-cad7a0bcc7cfbbd52285fc8b3c744c15 now. 1 older run can still be taken back.
//! Next: mco-rescue verify
//! mco-rescue# systemctl reboot
//! ```

use std::process::Command;

use serde_json::json;

use super::configs;
use super::node::{apply, has_been_in, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::Node;
use crate::lab::qemu::{End, Guest};
use crate::lab::{Case, disk, run};

const PROMPT: &str = "mco-rescue# ";

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_node_that_does_not_boot_is_rolled_back_from_the_shell_of_last_resort() {
    let Some(case) = Case::begin_as_root("8 rescue shell") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let key = node.public_key();
    let a = configs::worker(&key, 250, json!({}));
    // A second ExecStart is no error of the parser, and the unit is refused all the same.
    let dropin = json!({"name": "kubelet.service", "dropins": [{"name": "20-broken.conf", "contents": "[Service]\nExecStart=/bin/false\n"}]});
    let target = json!({"name": "multi-user.target", "dropins": [{"name": "10-kubelet.conf", "contents": "[Unit]\nRequires=kubelet.service\n"}]});
    let b = configs::worker(&key, 500, json!({"units": [dropin, target]}));
    has_been_in(&node, &a);
    node.prepare(|root| apply(root, &b.to_string()));
    let initramfs = images::initramfs_with_us(Kind::Lean);
    let newborn = case.path("newborn.disk");
    disk::copy(&images::node(Layout::Plain), &newborn);
    // The node finds its root by this.
    run(Command::new("e2label").arg(&newborn).arg("newborn"));
    case.prepared();

    let machine = node.machine(&initramfs).disk(&newborn);
    let mut broken = node.start(&machine.clone().append("systemd.log_target=console"));
    broken.wait_for("kubelet.service has a bad unit file setting");
    broken.wait_for("Freezing execution.");
    broken.cut();

    let mut rescue = node.start(&machine.clone().append("mco_rescue=shell"));
    rescue.wait_for("the shell of last resort");
    rescue.wait_for(PROMPT);
    rescue.send("findmnt -no OPTIONS /sysroot | grep -o ^r.; echo; mco-rescue verify --root /sysroot; echo VERIFY=$?\n");
    rescue.wait_for("VERIFY=0");
    rescue.wait_until("the next prompt", |console| {
        console.matches(PROMPT).count() > 1
    });
    assert!(rescue.console().contains("\nro\n"), "{}", rescue.tail());
    doctor_knows_a_newborn(&case, &mut rescue);
    rescue.send(
        "mount -o remount,rw /sysroot && mco-rescue rollback --root /sysroot; echo ROLLBACK=$?\n",
    );
    rescue.wait_for("[y/N]");
    rescue.send("y\n");
    rescue.wait_for("ROLLBACK=0");
    case.tell(&format!(
        "the console, from the banner on:\n{}",
        screen(&rescue.console())
    ));
    rescue.send("systemctl reboot\n");
    assert_eq!(rescue.ended(), End::Rebooted, "{}", rescue.tail());

    let mut booted = node.boot(&machine);
    booted.comes_up();
    is_healthy_in(&booted, &a);
    booted.ask("test ! -e /etc/systemd/system/kubelet.service.d/20-broken.conf");
    booted.power_off();
}

/// Says so in two lines; of the node's own disk, whose config is to blame, it finds no drift.
fn doctor_knows_a_newborn(case: &Case, rescue: &mut Guest) {
    rescue.send(
        "mco-rescue doctor --root /sysroot >/run/own; echo OWN=$? $(grep -c FP-03: /run/own)\n",
    );
    rescue.wait_until("the end of doctor", |console| {
        [0, 3, 6]
            .iter()
            .any(|code| console.contains(&format!("OWN={code} 0")))
    });
    // An emulated line doubles a letter now and then, so it is shown several times.
    rescue.send(
        "mkdir /run/new; mount -o ro /dev/vdb /run/new; mco-rescue doctor --root /run/new >/run/said; code=$?; \
         for n in 1 2 3; do sed -n 1,3p /run/said; done; echo NEW=$code\n",
    );
    rescue.wait_for("NEW=6");
    let console = screen(&rescue.console());
    for line in [
        "\nCRITICAL FP-02: no config has reached this node yet\n",
        "\n  Next     mco-rescue fetch --from-media --root /run/new\n",
    ] {
        assert!(console.contains(line), "no {line:?} in {console}");
    }
    case.tell("doctor says of the other disk that no config has reached it");
}

/// What a person sees, without what is only there for the terminal.
fn screen(console: &str) -> String {
    let banner = console
        .find("---- mco-rescue: the shell")
        .unwrap_or_default();
    let mut text = String::new();
    let mut characters = console[banner..].chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // An escape sequence ends with its first letter.
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            text.push(character);
        }
    }
    text
}
