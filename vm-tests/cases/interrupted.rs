//! The power fails while `apply` runs on a node whose initramfs never heard of us.
//!
//! Prepared: a running node at config A. Over ssh: `sudo mco-rescue install`, then `apply` of B, which changes many
//! files, and the power fails among the renames. The node boots as it always does. True afterwards: the unit that
//! `install` left there has finished or undone the run before `kubelet-dependencies.target`, so that the kubelet has
//! never seen a half: the node is healthy in A or in B, nothing has failed, and `apply` of B ends it.
//!
//! And on OSTree with our module in the initramfs: there the run is recovered before systemd of the real root begins,
//! although `/var` is not mounted yet.

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, bring_program, brings_along, has_been_in, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Booted, Node};
use crate::lab::{Case, disk};
use crate::support::file;

/// So many renames are seen before the power fails, of more than a hundred.
const RENAMES: usize = 8;

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn an_interrupted_apply_is_put_right_before_the_kubelet_starts() {
    let Some(case) = Case::begin_as_root("11 interrupted apply, no module") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let (a, b) = old_and_new(&node.public_key());
    has_been_in(&node, &a);
    let initramfs = images::initramfs(Kind::Lean);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    booted.ask(&format!("sudo {PROGRAM} install --yes"));
    cut_among_renames(booted, &b);

    let mut booted = node.boot(&machine);
    booted.comes_up();
    case.tell(&format!(
        "recovered to {}",
        recovered_in_time(&booted, &a, &b)
    ));
    apply_ends_it(&booted, &b);
    booted.power_off();
    assert_eq!(disk::read(node.disk(), "/etc/site/119.conf"), "of B 119\n");
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn an_interrupted_apply_on_ostree_is_put_right_in_the_initramfs() {
    let Some(case) = Case::begin_as_root("11 interrupted apply, our module, OSTree") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Ostree);
    let (a, b) = old_and_new(&node.public_key());
    brings_along(&node, &a);
    let initramfs = images::initramfs_with_us(Kind::Lean);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    bring_program(&booted);
    is_healthy_in(&booted, &a);
    cut_among_renames(booted, &b);

    let mut booted = node.boot(&machine);
    booted.comes_up();
    let kept = booted.ask("sudo cat /run/mco-rescue/firstboot.json");
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["outcome"], "recovered", "{kept}");
    let (config, landed) = whichever(&booted, &a, &b);
    is_healthy_in(&booted, config);
    case.tell(&format!("recovered to {landed} in {} ms", kept["took"]));
    apply_ends_it(&booted, &b);
    booted.power_off();
}

/// B changes many files, so that a run of it lasts.
fn old_and_new(key: &str) -> (Value, Value) {
    let many = |n| {
        file(
            &format!("/etc/site/{n:03}.conf"),
            0o644,
            &format!("of B {n}\n"),
        )
    };
    let many: Vec<Value> = (0..120).map(many).collect();
    (
        configs::worker(key, 250, json!({})),
        configs::worker(key, 500, json!({"files": many})),
    )
}

/// Applies B over ssh; the power fails among its renames, which are shown on the console.
fn cut_among_renames(mut booted: Booted, b: &Value) {
    booted.bring("b.json", b.to_string().as_bytes());
    booted.ask("sync");
    let apply = format!("{PROGRAM} -vv apply --yes /home/core/b.json >/dev/null 2>/dev/ttyS0");
    booted.ask(&format!(
        "sudo systemd-run --no-block --quiet /bin/sh -c '{apply}'"
    ));
    let renamed = |console: &str| console.matches("debug: ").count();
    booted
        .guest
        .wait_until("renames", |console| renamed(console) >= RENAMES);
    booted.guest.cut();
}

fn apply_ends_it(booted: &Booted, b: &Value) {
    let status = booted.ask(&format!("sudo {PROGRAM} status --output json"));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["pending"], "nothing", "{status}");
    booted.ask(&format!("sudo {PROGRAM} apply --yes b.json"));
    booted.ask("sudo systemctl daemon-reload && sudo systemctl restart kubelet.service");
    is_healthy_in(booted, b);
}

/// In which of the two the node is, by a file that only one has.
fn whichever<'a>(booted: &Booted, a: &'a Value, b: &'a Value) -> (&'a Value, &'static str) {
    match booted.run("test -e /etc/site/000.conf").code() {
        0 => (b, "B, the new config"),
        _ => (a, "A, the old config"),
    }
}

/// The unit has run, well, and before the kubelet's target; says in which config the node is.
fn recovered_in_time(booted: &Booted, a: &Value, b: &Value) -> &'static str {
    let show =
        |property: &str, unit: &str| booted.ask(&format!("systemctl show -P {property} {unit}"));
    let unit = "mco-rescue-recover.service";
    let log = booted.ask(&format!("sudo journalctl -b -o cat -u {unit}"));
    assert_eq!(
        show("ConditionResult", unit),
        "yes",
        "the power failed too late: {log}"
    );
    assert_eq!(show("Result", unit), "success", "{log}");
    let time = |property, unit| show(property, unit).parse::<u64>().unwrap();
    let ended = time("ExecMainExitTimestampMonotonic", unit);
    let target = time(
        "ActiveEnterTimestampMonotonic",
        "kubelet-dependencies.target",
    );
    assert!(
        ended > 0 && ended < target,
        "recovered at {ended}, and the target came at {target}"
    );
    let (config, landed) = whichever(booted, a, b);
    is_healthy_in(booted, config);
    landed
}
