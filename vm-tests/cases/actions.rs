//! A file changes that a running service reads (story: the disruption that was not needed).
//!
//! Prepared: a running node at config A with three services, and the cluster's policies in a file: one service is
//! reloaded when its file changes, one restarted, one reloaded with a file that it may not like. True afterwards:
//! `apply` of B has let the real systemd reload the first and restart the second, and nothing else has noticed;
//! `apply` of C, which the third service does not like, ends with 4, and files, record and what the first service has
//! read are those of B again.

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, has_been_in, is_healthy_in};
use crate::lab::Case;
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Booted, Node};
use crate::support::{Run, file};

fn service(what: &str, reload: &str) -> String {
    configs::idle(what).replace("[Install]", &format!("{reload}\n[Install]"))
}

fn config(key: &str, text: &str, strict: &str) -> Value {
    let units = [
        (
            "site",
            "ExecReload=/bin/cp /etc/site/reloaded.conf /run/site.read",
        ),
        ("other", ""),
        (
            "strict",
            "ExecReload=/bin/grep -q fine /etc/site/strict.conf",
        ),
    ];
    let units = units.map(|(name, reload)| {
        json!({"name": format!("{name}.service"), "enabled": true, "contents": service(name, reload)})
    });
    let files = [("reloaded", text), ("restarted", text), ("strict", strict)];
    let files = files.map(|(name, text)| file(&format!("/etc/site/{name}.conf"), 0o644, text));
    configs::worker(key, 250, json!({"files": files, "units": units}))
}

/// As the operator has them for its administrator.
fn policies() -> Value {
    let action = |kind: &str, unit: &str| {
        let key = kind.to_lowercase();
        json!([{"type": kind, key: {"serviceName": unit}}])
    };
    let policy = |name: &str, actions: Value| json!({"path": format!("/etc/site/{name}.conf"), "actions": actions});
    let files = [
        policy("reloaded", action("Reload", "site.service")),
        policy("restarted", action("Restart", "other.service")),
        policy("strict", action("Reload", "strict.service")),
    ];
    json!({"kind": "MachineConfiguration", "metadata": {"name": "cluster", "generation": 1},
        "status": {"observedGeneration": 1,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": files}}}})
}

fn pid(node: &Booted, unit: &str) -> String {
    node.ask(&format!("systemctl show -P MainPID {unit}"))
}

fn apply(node: &Booted, config: &Value) -> Run {
    node.bring("config.json", config.to_string().as_bytes());
    node.run(&format!(
        "sudo {PROGRAM} apply --yes --policy policies.json config.json"
    ))
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn services_read_their_new_files_and_one_that_does_not_like_them_gets_the_old_ones_back() {
    let Some(case) = Case::begin_as_root("13 actions") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let key = node.public_key();
    let a = config(&key, "one\n", "fine\n");
    let b = config(&key, "two\n", "fine\n");
    let c = config(&key, "three\n", "broken\n");
    has_been_in(&node, &a);
    let initramfs = images::initramfs(Kind::Lean);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    is_healthy_in(&booted, &a);
    booted.bring("policies.json", policies().to_string().as_bytes());
    let bystanders = "cat /proc/sys/kernel/random/boot_id; \
                      systemctl show -P MainPID kubelet.service crio.service site.service strict.service";
    let before = (booted.ask(bystanders), pid(&booted, "other.service"));

    let run = apply(&booted, &b).exits(0);
    assert!(
        run.out().contains("reload site.service: done"),
        "{}",
        run.out()
    );
    assert!(
        run.out().contains("restart other.service: done"),
        "{}",
        run.out()
    );
    assert_eq!(booted.ask("cat /run/site.read"), "two");
    let restarted = pid(&booted, "other.service");
    assert_eq!(
        booted.ask(bystanders),
        before.0,
        "more than one was restarted"
    );
    assert_ne!(restarted, before.1, "it was not restarted");
    is_healthy_in(&booted, &b);

    let run = apply(&booted, &c).exits(4);
    let said = run.err();
    assert!(said.contains("reload strict.service"), "{said}");
    assert_eq!(booted.ask("cat /etc/site/*.conf"), "two\ntwo\nfine");
    assert_eq!(
        booted.ask("cat /run/site.read"),
        "two",
        "it has read what is gone"
    );
    assert_eq!(booted.ask(bystanders), before.0);
    is_healthy_in(&booted, &b);
    booted.power_off();
}
