//! The power fails while `apply` runs on a node whose initramfs never heard of us.
//!
//! Prepared: a running node at config A. Over ssh: `sudo mco-rescue install`, then `apply` of B, which changes many
//! files, and the power fails among the renames. The node boots as it always does. True afterwards: the unit that
//! `install` left there has finished or undone the run before `kubelet-dependencies.target`, so that the kubelet has
//! never seen a half: the node is healthy in A or in B, nothing has failed, and `apply` of B ends it.

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, has_been_in, is_healthy_in};
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
    let key = node.public_key();
    let a = configs::worker(&key, 250, json!({}));
    let many = |n| {
        file(
            &format!("/etc/site/{n:03}.conf"),
            0o644,
            &format!("of B {n}\n"),
        )
    };
    let many: Vec<Value> = (0..120).map(many).collect();
    let b = configs::worker(&key, 500, json!({"files": many}));
    has_been_in(&node, &a);
    let initramfs = images::initramfs(Kind::Lean);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    booted.ask(&format!("sudo {PROGRAM} install --yes"));
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
    drop(booted);

    let mut booted = node.boot(&machine);
    booted.comes_up();
    let landed = recovered_in_time(&booted, &a, &b);
    case.tell(&format!("recovered to {landed}"));
    let pending = booted.ask(&format!("sudo {PROGRAM} status --output json"));
    let pending: Value = serde_json::from_str(&pending).unwrap();
    assert_eq!(pending["pending"], "nothing", "{pending}");
    booted.ask(&format!("sudo {PROGRAM} apply --yes b.json"));
    booted.ask("sudo systemctl daemon-reload && sudo systemctl restart kubelet.service");
    is_healthy_in(&booted, &b);
    booted.power_off();
    assert_eq!(disk::read(node.disk(), "/etc/site/119.conf"), "of B 119\n");
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
    let at_b = booted.run("test -e /etc/site/000.conf").code() == 0;
    is_healthy_in(booted, if at_b { b } else { a });
    if at_b {
        "B, the new config"
    } else {
        "A, the old config"
    }
}
