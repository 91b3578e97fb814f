//! The next boot is rehearsed beside the running node, and its word is held against the boot itself (story: forty nodes have
//! the new system staged; will they come up?).
//!
//! Prepared: a box that is reached by ssh, in a worker's config, with the real systemd, OSTree, sshd and nftables. True
//! afterwards:
//!
//! 1. Each breakage of the table is found by `rehearse`, or is said to be out of its sight; the really booted node has it. No
//!    change of the table that is harmless makes a finding. `REHEARSALS=all` takes the whole table; else a sample.
//! 2. What is staged is rehearsed with the `/etc` that its finalization would give it.
//! 3. A rehearsal that is killed leaves nothing when its unit has ended, which the next one says.
//!
//! No rehearsal changes a byte of the node's trees.

use serde_json::{Value, json};

use super::boxed_os::Story;
use super::configs;
use super::node::PROGRAM;
use super::os::is_staged;
use crate::lab::boxes::{BoxNode, golden};
use crate::lab::{Case, Shell};
use crate::support::file;

/// A change of the config, and what it does to the boot.
struct Change {
    name: &'static str,
    /// Files and units, laid over the config.
    more: Value,
    /// A command that ends with 0 on a node that the change has broken; empty for a harmless one.
    broken: &'static str,
    /// The subject of the finding; empty where a rehearsal cannot see it.
    subject: &'static str,
}

fn service(name: &str, text: &str) -> Value {
    let text = format!(
        "[Unit]\nDescription=Of the site\n[Service]\n{text}\n[Install]\nWantedBy=multi-user.target\n"
    );
    json!({"name": name, "enabled": true, "contents": text})
}

fn unit(name: &str, text: &str) -> Value {
    json!({"name": name, "enabled": true, "contents": text})
}

fn drop_in(name: &str, text: &str) -> Value {
    json!({"name": name, "dropins": [{"name": "60-site.conf", "contents": text}]})
}

fn units(units: Value) -> Value {
    json!({"files": [], "units": units})
}

fn files(files: Value) -> Value {
    json!({"files": files, "units": []})
}

fn broken(name: &'static str, more: Value, broken: &'static str, subject: &'static str) -> Change {
    Change {
        name,
        more,
        broken,
        subject,
    }
}

fn harmless(name: &'static str, more: Value) -> Change {
    broken(name, more, "", "")
}

const SITE_FAILED: &str =
    "systemctl show -p ActiveState,SubState site.service | grep -E 'failed|auto-restart'";

#[rustfmt::skip]
fn changes() -> Vec<Change> {
    let bad_file = |path: &str, text: &str| files(json!([file(path, 0o600, text)]));
    let socket = |name: &str| unit(name, "[Socket]\nListenStream=7777\nService=site-in.service\n[Install]\nWantedBy=sockets.target\n");
    vec![
        broken("a service that fails", units(json!([service("site.service", "Type=oneshot\nExecStart=/bin/false")])), SITE_FAILED, "site.service"),
        harmless("a service that works", units(json!([service("site.service", "ExecStart=/bin/sleep infinity")]))),
        broken("a program that is missing", units(json!([service("site.service", "ExecStart=/usr/bin/nothing-here")])), SITE_FAILED, "site.service"),
        broken("a user that is missing", units(json!([service("site.service", "User=nobody-here\nExecStart=/bin/sleep infinity")])), SITE_FAILED, "site.service"),
        broken("an option that sshd does not have", bad_file("/etc/ssh/sshd_config.d/60-site.conf", "NoSuchOption yes\n"), "! systemctl is-active ssh.service", "ssh.service"),
        harmless("an option of sshd", bad_file("/etc/ssh/sshd_config.d/60-site.conf", "ClientAliveInterval 180\n")),
        broken("sshd masked", units(json!([{"name": "ssh.service", "mask": true}])), "! systemctl is-active ssh.service", "ssh.service"),
        broken("a mount unit of another name", units(json!([unit("data.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/var/other\n[Install]\nWantedBy=multi-user.target\n")])), "systemctl show -p LoadState data.mount | grep bad-setting", "data.mount"),
        harmless("a mount unit", units(json!([unit("var-site.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/var/site\n[Install]\nWantedBy=multi-user.target\n")]))),
        broken("sudoers that do not parse", files(json!([file("/etc/sudoers.d/60-site", 0o440, "core ALL=(ALL\n")])), "! visudo -c", "sudo"),
        harmless("sudoers that parse", files(json!([file("/etc/sudoers.d/60-site", 0o440, "core ALL=(ALL) NOPASSWD: ALL\n")]))),
        broken("two services that wait for each other", units(json!([
            unit("site.service", "[Unit]\nAfter=site-two.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"),
            unit("site-two.service", "[Unit]\nAfter=site.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"),
        ])), "! systemctl is-active site.service || ! systemctl is-active site-two.service", "site"),
        broken("the kubelet without its environment", units(json!([drop_in("kubelet.service", "[Service]\nEnvironmentFile=/etc/kubernetes/nothing\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        harmless("the kubelet with an optional environment", units(json!([drop_in("kubelet.service", "[Service]\nEnvironmentFile=-/etc/kubernetes/nothing\n")]))),
        broken("the kubelet of a program that is missing", units(json!([drop_in("kubelet.service", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet-next\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        broken("the kubelet needs a unit that is missing", units(json!([drop_in("kubelet.service", "[Unit]\nRequires=nothing-here.service\nAfter=nothing-here.service\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        broken("crio as a user that is missing", units(json!([drop_in("crio.service", "[Service]\nUser=nobody-here\n")])), "! systemctl is-active crio.service", "crio.service"),
        broken("rules that nft refuses", bad_file("/etc/sysconfig/nftables.conf", "table inet {{{\n"), "systemctl is-failed nftables.service", "nftables.service"),
        harmless("rules of nft", bad_file("/etc/sysconfig/nftables.conf", "table inet site { chain in { type filter hook input priority 0; }; }\n")),
        broken("a PAM module that is missing", files(json!([file("/etc/pam.d/sshd", 0o644, "account required pam_unix.so\nsession required pam_nothing.so\n")])), "! systemd-run -q --wait -p PAMName=sshd -p User=core true", "login"),
        broken("a generator that fails", files(json!([file("/etc/systemd/system-generators/60-site", 0o755, "#!/bin/sh\nexit 1\n")])), "! /etc/systemd/system-generators/60-site", "systemd"),
        broken("a path that is not absolute", units(json!([service("site.service", "ExecStart=bin/x y\nWorkingDirectory=relative")])), "systemctl show -p LoadState,ActiveState site.service | grep -E 'bad-setting|failed'", "site.service"),
        broken("a service that is never ready", units(json!([service("site.service", "Type=notify\nTimeoutStartSec=4\nExecStart=/bin/sleep infinity")])), SITE_FAILED, "site.service"),
        broken("a service that is restarted for ever", units(json!([service("site.service", "Restart=always\nRestartSec=30\nExecStart=/bin/false")])), SITE_FAILED, "site.service"),
        broken("a step of the boot without an end", units(json!([unit("site.service", "[Unit]\nBefore=multi-user.target\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n[Install]\nRequiredBy=multi-user.target\n")])), "systemctl list-jobs | grep -q 'site.service.*running'", "the boot"),
        broken("a timer of a date that does not exist", units(json!([unit("site.timer", "[Timer]\nOnCalendar=someday\nUnit=site-in.service\n[Install]\nWantedBy=timers.target\n")])), "systemctl show -p LoadState site.timer | grep bad-setting", "site.timer"),
        harmless("a timer", units(json!([service("site-in.service", "Type=oneshot\nExecStart=/bin/true"), unit("site.timer", "[Timer]\nOnCalendar=daily\nUnit=site-in.service\n[Install]\nWantedBy=timers.target\n")]))),
        broken("two sockets on one port", units(json!([service("site-in.service", "ExecStart=/bin/sleep infinity"), socket("site.socket"), socket("site-two.socket")])), "systemctl --failed | grep -q 'site.*socket'", "socket"),
        broken("a mount that the boot needs and that fails", units(json!([unit("var-site.mount", "[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=tmpfs\nType=tmpfs\nOptions=size=nothing\nWhere=/var/site\n[Install]\nRequiredBy=local-fs.target\n")])), "systemctl is-active emergency.target", "the boot"),
        broken("D-Bus masked", units(json!([{"name": "dbus.service", "mask": true}, {"name": "dbus.socket", "mask": true}])), "! systemctl is-active dbus.service", "dbus"),
        broken("logind masked", units(json!([{"name": "systemd-logind.service", "mask": true}])), "! systemctl is-active systemd-logind.service", "systemd-logind.service"),
        broken("a conflict with sshd", units(json!([unit("site.service", "[Unit]\nConflicts=ssh.service\nAfter=ssh.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")])), "! systemctl is-active ssh.service", "ssh.service"),
        broken("a condition that keeps sshd from starting", units(json!([drop_in("ssh.service", "[Unit]\nConditionPathExists=/etc/nothing-here\n")])), "! systemctl is-active ssh.service", "ssh.service"),
        harmless("a condition of a service of the site", units(json!([unit("site.service", "[Unit]\nConditionPathExists=/etc/nothing-here\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")]))),
        broken("a setting of the kernel that does not exist", bad_file("/etc/sysctl.d/60-site.conf", "net.nothing.here = 1\n"), "false", ""),
        harmless("a file of the site", bad_file("/etc/site/more.conf", "x\n")),
        harmless("a drop-in of crio", units(json!([drop_in("crio.service", "[Service]\nNice=5\n")]))),
        harmless("a service that asks for the network", units(json!([unit("site.service", "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")]))),
        harmless("a directory by tmpfiles", bad_file("/etc/tmpfiles.d/site.conf", "d /run/site 0755 root root\n")),
        harmless("an account by sysusers", bad_file("/etc/sysusers.d/site.conf", "u site - \"Of the site\" /run/site\n")),
    ]
}

#[test]
fn a_rehearsal_says_what_the_boot_does() {
    let Some(case) = Case::begin_in_box("box: rehearsals, and the boots they speak of") else {
        return;
    };
    let node = on_lan_in_a(&case);
    let all = std::env::var("REHEARSALS").is_ok_and(|which| which == "all");
    let mut wrong = Vec::new();
    for change in changes()
        .iter()
        .enumerate()
        .filter(|(n, _)| all || n % 6 == 0)
    {
        let (_, change) = change;
        let config = config_with(&node, &change.more);
        node.node
            .bring("/root/next.json", config.to_string().as_bytes());
        let before = trees(&node.node);
        let run = node
            .node
            .run(&format!("{PROGRAM} rehearse --limit 25s next.json -o json"));
        assert_eq!(trees(&node.node), before, "{}", change.name);
        let document: Value = serde_json::from_str(&run.out())
            .unwrap_or_else(|error| panic!("{}: {error}: {}{}", change.name, run.out(), run.err()));
        let findings = document["findings"].as_array().unwrap();
        let found = |finding: &Value| {
            let subject = finding["subject"].as_str().unwrap();
            !change.subject.is_empty() && subject.contains(change.subject)
        };
        let right = match change.subject {
            "" => findings.is_empty(),
            _ => findings.iter().any(found),
        };
        let booted = (!change.broken.is_empty()).then(|| is_broken(change, &config));
        let line = format!(
            "{}: rehearsal {}, boot {}",
            change.name,
            if findings.is_empty() {
                "finds nothing"
            } else {
                "finds something"
            },
            match booted {
                None => "not looked at",
                Some(true) => "broken",
                Some(false) => "whole",
            }
        );
        case.tell(&line);
        if !right || (booted == Some(false) && !change.subject.is_empty()) {
            wrong.push(format!("{line}: {findings:#?}"));
        }
    }
    leaves_nothing(&node.node);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A node on a network, in config A.
struct Rehearsed<'a> {
    node: BoxNode<'a>,
    key: String,
}

fn on_lan_in_a(case: &Case) -> Rehearsed<'_> {
    let mut node = BoxNode::on_lan(case);
    let key = node.lan().public_key();
    case.prepared();
    node.boot();
    let rehearsed = Rehearsed { node, key };
    let a = config_with(&rehearsed, &json!({"files": [], "units": []}));
    rehearsed
        .node
        .bring("/root/a.json", a.to_string().as_bytes());
    rehearsed
        .node
        .ask(&format!("{PROGRAM} apply --yes --files-only a.json"));
    rehearsed
        .node
        .ask("systemctl daemon-reload && systemctl start kubelet.service");
    rehearsed
}

fn config_with(node: &Rehearsed<'_>, more: &Value) -> Value {
    let mut config = configs::worker(&node.key, 250, more.clone());
    config["spec"]["osImageURL"] = json!(golden().a());
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    config["metadata"]["name"] = json!(format!("rendered-worker-{hash}"));
    config
}

/// Whether a node that really boots with the config is broken as the change says.
fn is_broken(change: &Change, config: &Value) -> bool {
    let case = Case::begin_in_box(&format!("box: the boot of {}", change.name));
    let case = case.expect("another box was made");
    let mut node = BoxNode::on_lan(&case);
    node.boot();
    node.bring("/root/next.json", config.to_string().as_bytes());
    node.ask(&format!(
        "{PROGRAM} apply --yes --files-only --allow-lockout --allow-removals --no-actions next.json"
    ));
    node.cut();
    node.start();
    // A boot that is broken may not come to its end.
    let waits = "for n in $(seq 150); do systemctl is-system-running | grep -qE 'running|degraded|maintenance' && break; sleep 0.1; done";
    node.run(waits);
    node.run(change.broken).code() == 0
}

/// Digests of the node's trees, without what the running node itself writes.
fn trees(node: &BoxNode<'_>) -> String {
    node.ask(
        "cd / && find etc usr var ostree boot sysroot/boot -xdev \
         -path var/log -prune -o -path var/lib/systemd -prune -o -path var/tmp -prune -o -path var/cache -prune \
         -o -path var/lib/NetworkManager -prune -o -printf '%p %y %m %U %G %s %T@ %l\\n' 2>/dev/null | LC_ALL=C sort | sha256sum",
    )
}

fn leaves_nothing(node: &BoxNode<'_>) {
    let left = "ls -d /run/mco-rescue-rehearsal 2>/dev/null; grep mco-rescue-rehearsal /proc/self/mountinfo; \
                systemctl list-units --all --no-legend '*rehearsal*'; true";
    assert_eq!(node.ask(left), "");
}

#[test]
fn a_rehearsal_that_is_killed_leaves_nothing_and_the_next_one_waits_for_its_end() {
    let Some(case) = Case::begin_in_box("box: a killed rehearsal") else {
        return;
    };
    let node = on_lan_in_a(&case).node;
    let unit = "mco-rescue-rehearsal.service";
    let begins = format!(
        "{PROGRAM} rehearse a.json >/dev/null 2>&1 & \
         until systemctl is-active --quiet {unit}; do :; done; kill -KILL $!"
    );
    node.ask(&begins);
    let refused = node.run(&format!("{PROGRAM} rehearse a.json")).exits(1);
    let next = format!("systemctl stop {unit}");
    assert!(refused.err().contains(&next), "{}", refused.err());
    node.ask(&next);
    node.ask(&format!("{PROGRAM} rehearse a.json"));
    leaves_nothing(&node);
}

#[test]
fn a_node_that_demands_capsules_rehearses_the_config_that_it_has_read() {
    let Some(case) = Case::begin_in_box("box: a rehearsal on a node that demands capsules") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    // What is recorded needs no capsule.
    let more = files(json!([file("/etc/site/more.conf", 0o644, "x\n")]));
    let config = config_with(&rehearsed, &more);
    let node = rehearsed.node;
    node.bring("/root/next.json", config.to_string().as_bytes());
    node.ask(&format!("{PROGRAM} fetch next.json"));
    node.ask("mkdir -p /etc/mco-rescue && echo 'media = required' >/etc/mco-rescue/policy");
    let named = node.run(&format!("{PROGRAM} rehearse next.json")).exits(1);
    assert!(named.err().contains("media = required"), "{}", named.err());
    let name = configs::name(&config);
    node.ask(&format!("{PROGRAM} rehearse cached:{name}"));
    let policy = node.ask("cat /etc/mco-rescue/policy");
    assert_eq!(policy, "media = required");
    leaves_nothing(&node);
}

#[test]
fn what_is_staged_is_rehearsed_with_the_etc_of_its_finalization() {
    let Some(case) = Case::begin_in_box("box: the staged system rehearsed") else {
        return;
    };
    let story = Story::in_a(&case);
    let registry = story.registry();
    story.node.ask("echo 'by hand' >/etc/by-hand.conf");
    story.applies_b("");
    drop(registry);
    is_staged(&story.node);
    let before = trees(&story.node);
    let run = story.node.run(&format!("{PROGRAM} rehearse -o json"));
    assert_eq!(trees(&story.node), before);
    let document: Value = serde_json::from_str(&run.out())
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out(), run.err()));
    let subject = document["rehearsed"].as_str().unwrap();
    assert!(subject.starts_with("the staged deployment"), "{subject}");
    assert_eq!(document["next"]["end"], "started", "{document:#}");
    assert_eq!(document["findings"], json!([]), "{document:#}");
    leaves_nothing(&story.node);
}
