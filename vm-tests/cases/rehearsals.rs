//! The next boot is rehearsed beside the running node, and its word is held against the boot itself (story: forty nodes have
//! the new system staged; will they come up?).
//!
//! Prepared: a box that is reached by ssh, in a worker's config, with the real systemd, OSTree, sshd and nftables. True
//! afterwards:
//!
//! 1. Each breakage of a table is found by `rehearse`, and the really booted node has it. No harmless change makes a finding
//!    (`rehearsal_campaign.rs`).
//! 2. What is staged is rehearsed with the `/etc` that its finalization would give it.
//! 3. A rehearsal that is killed leaves nothing when its unit has ended, which the next one says.
//!
//! 4. What was applied since the last boot is found as well as what is not applied yet, by `rehearse`, `plan --rehearse` and
//!    `apply --rehearse`, which then neither reboots nor keeps a trial.
//! 5. A node on which nothing can be rehearsed says why, and how to change that.
//! 6. A mounted disk is rehearsed as the node itself.
//!
//! No rehearsal changes a byte of the node's trees, and none sends a packet.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::boxed_os::Story;
use super::configs;
use super::node::PROGRAM;
use super::os::is_staged;
use super::rehearsal_changes::{failing_service, files, service, units};
use crate::lab::boxes::{BoxNode, golden};
use crate::lab::{Case, Shell};
use crate::support::file;

/// A node on a network, in config A.
pub(super) struct Rehearsed<'a> {
    pub(super) node: BoxNode<'a>,
    pub(super) key: String,
}

/// A program that stands in for CRI-O.
const CRIO: &str = r##"#!/bin/bash
# STAND-IN for CRI-O: it refuses what is no line of TOML, and a limit that is no number. As a service it needs the runtimes that its
# files name, and sleeps.
for file in /etc/crio/crio.conf.d/*; do
    if grep -nvE '^(#.*|\[.*\]|[a-z_]+ = .*|)$' $file || grep -nE '^pids_limit = [^0-9-]' $file; then
        echo "crio: $file: it is refused" >&2
        exit 1
    fi
done
[[ ${1-} != config ]] || exit 0
for program in $(sed -n 's/^runtime_path = "\(.*\)"/\1/p' /etc/crio/crio.conf.d/*); do
    [[ -x $program ]] || exit 1
done
exec sleep infinity
"##;

/// A node on a network that has booted once, with [`CRIO`].
pub(super) fn on_lan(case: &Case) -> BoxNode<'_> {
    let mut node = BoxNode::on_lan(case);
    node.prepare(|root| {
        let crio = root.join("usr/bin/crio");
        std::fs::write(&crio, CRIO).unwrap();
        std::fs::set_permissions(crio, PermissionsExt::from_mode(0o755)).unwrap();
    });
    case.prepared();
    node.boot();
    node
}

pub(super) fn on_lan_in_a(case: &Case) -> Rehearsed<'_> {
    in_a(on_lan(case))
}

/// A node in A whose tree is that of 1.0, without the stand-in that is CRI-O: that of 2.0 does not have it either.
pub(super) fn plain_in_a(case: &Case) -> Rehearsed<'_> {
    let mut node = BoxNode::on_lan(case);
    case.prepared();
    node.boot();
    in_a(node)
}

fn in_a(node: BoxNode<'_>) -> Rehearsed<'_> {
    let key = node.lan().public_key();
    let rehearsed = Rehearsed { node, key };
    let a = config_with(&rehearsed, &json!({}));
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

pub(super) fn config_with(node: &Rehearsed<'_>, more: &Value) -> Value {
    config_of(&node.key, more, &golden().a(), &[])
}

/// A worker's config with other parts, for an image and with kernel arguments besides those of the boxes.
pub(super) fn config_of(key: &str, more: &Value, image: &str, arguments: &[&str]) -> Value {
    let mut config = configs::worker(key, 250, more.clone());
    config["spec"]["osImageURL"] = json!(image);
    config["spec"]["kernelArguments"] = json!(arguments);
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    config["metadata"]["name"] = json!(format!("rendered-worker-{hash}"));
    config
}

/// Whether `REHEARSALS` asks for a part of the campaign; without it one of so many is taken.
pub(super) fn wanted(name: &str, number: usize, one_of: usize) -> bool {
    match std::env::var("REHEARSALS") {
        Ok(which) => which == "all" || which.split('|').any(|text| name.contains(text)),
        Err(_) => number.is_multiple_of(one_of),
    }
}

/// Digests of the node's trees, without what the running node itself writes.
pub(super) fn trees(node: &BoxNode<'_>) -> String {
    node.ask(
        "cd / && find etc usr var ostree boot sysroot/boot -xdev \
         -path var/log -prune -o -path var/lib/systemd -prune -o -path var/tmp -prune -o -path var/cache -prune \
         -o -path var/lib/NetworkManager -prune -o -printf '%p %y %m %U %G %s %T@ %l\\n' 2>/dev/null | LC_ALL=C sort | sha256sum",
    )
}

pub(super) fn leaves_nothing(node: &BoxNode<'_>) {
    let left = "ls -d /run/mco-rescue-rehearsal 2>/dev/null; grep mco-rescue-rehearsal /proc/self/mountinfo; \
                systemctl list-units --all --no-legend '*rehearsal*'; true";
    assert_eq!(node.ask(left), "");
}

/// Returns the subjects of the findings of a rehearsal.
pub(super) fn subjects(rehearsal: &Value) -> Vec<&str> {
    let findings = rehearsal["findings"].as_array();
    let findings = findings.unwrap_or_else(|| panic!("{rehearsal:#}"));
    let subjects = findings.iter().map(|finding| finding["subject"].as_str());
    subjects.map(Option::unwrap).collect()
}

/// Runs a command with its JSON output, and returns the document.
pub(super) fn document(node: &BoxNode<'_>, command: &str) -> Value {
    let run = node.run(&format!("{PROGRAM} {command} -o json"));
    serde_json::from_str(&run.out())
        .unwrap_or_else(|error| panic!("{command}: {error}: {}{}", run.out(), run.err()))
}

#[test]
fn what_was_applied_since_the_last_boot_is_found_too() {
    let Some(case) = Case::begin_in_box("box: a rehearsal after the files changed") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    let node = &rehearsed.node;
    let fails = config_with(&rehearsed, &failing_service());
    let no_ssh = json!([{"name": "ssh.service", "mask": true}]);
    let no_ssh = config_with(&rehearsed, &units(no_ssh));
    node.bring("/root/fails.json", fails.to_string().as_bytes());
    node.bring("/root/no-ssh.json", no_ssh.to_string().as_bytes());

    let plan = document(node, "plan --files-only --rehearse fails.json");
    assert_eq!(subjects(&plan["rehearsal"]), ["site.service"], "{plan:#}");
    node.ask(&format!(
        "{PROGRAM} apply --yes --files-only --no-actions fails.json"
    ));
    let after = document(node, "rehearse");
    assert_eq!(subjects(&after), ["site.service"], "{after:#}");
    assert_eq!(after["rehearsed"], "the running system");
    assert_eq!(after["reverted_in_baseline"].as_array().unwrap().len(), 2);

    // An inhibitor reverts a trial, and stops a reboot.
    let apply = format!("{PROGRAM} apply --yes --files-only --no-actions --rehearse no-ssh.json");
    let tried = node.run(&format!("{apply} --try --detach")).exits(4);
    let recorded = || document(node, "status")["recorded"].clone();
    assert!(tried.err().contains("has inhibitors"), "{}", tried.err());
    assert_eq!(recorded(), configs::name(&fails), "{}", tried.err());
    // The guard of the trial takes the lock once more before it ends.
    node.ask(
        "while systemctl is-active --quiet 'mco-rescue-guard*'; do :; done; touch /run/this-boot",
    );
    let stopped = node.run(&format!("{apply} --reboot")).exits(5);
    let undo = "was not rebooted. Undo: mco-rescue rollback";
    assert!(stopped.err().contains(undo), "{}", stopped.err());
    assert!(stopped.out().contains("ssh.service"), "{}", stopped.out());
    node.ask("test -e /run/this-boot");
    assert_eq!(recorded(), configs::name(&no_ssh));
    node.ask(&format!("{PROGRAM} rollback --yes --no-actions"));
    assert_eq!(subjects(&document(node, "rehearse")), ["site.service"]);
    leaves_nothing(node);
}

/// What a node can lack, as a command in namespaces of its own, and words of the error.
const LACKING: [(&str, &str); 5] = [
    (
        "mount -t tmpfs t /sys/fs/cgroup",
        "Boot it with systemd.unified_cgroup_hierarchy=1",
    ),
    (
        "mount --bind /dev/null /proc/filesystems",
        "Next: modprobe overlay",
    ),
    (
        "echo 'MemAvailable: 300000 kB' >/run/meminfo && mount --bind /run/meminfo /proc/meminfo",
        "needs 768 MiB of free memory, and 292 MiB are free",
    ),
    (
        "mount --rbind /run /mnt && mount -t tmpfs -o size=64k t /run && mkdir /run/systemd && mount --rbind /mnt/systemd /run/systemd",
        "needs 16 MiB below /run for its config, and 64 KiB are free",
    ),
    (
        "mount -t tmpfs t /run/systemd",
        "systemd is not running on this machine",
    ),
];

#[test]
fn a_node_that_cannot_rehearse_says_why() {
    let Some(case) = Case::begin_in_box("box: a node that cannot rehearse") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    let more = files(json!([file("/etc/site/more.conf", 0o644, "x\n")]));
    let more = config_with(&rehearsed, &more);
    let node = rehearsed.node;
    node.bring("/root/more.json", more.to_string().as_bytes());
    for (command, words) in LACKING {
        let line = format!("unshare --mount sh -c \"{command} && {PROGRAM} rehearse a.json\"");
        let run = node.run(&line).exits(1);
        assert!(run.err().contains(words), "{command}: {}", run.err());
        // Nothing is applied that cannot be rehearsed afterwards.
        let apply = "apply --yes --files-only --allow-lockout --rehearse more.json";
        let line = format!("unshare --mount sh -c \"{command} && {PROGRAM} {apply}\"");
        let run = node.run(&line).exits(1);
        assert!(run.err().contains("nothing was changed"), "{}", run.err());
        node.ask("test ! -e /etc/site/more.conf");
        leaves_nothing(&node);
    }
    let run = node.run(&format!(
        "setpriv --reuid 65534 --clear-groups {PROGRAM} rehearse a.json"
    ));
    assert!(run.exits(1).err().contains("sudo"));
    // Only without a config does it matter what the boot entries are.
    let silent = "unshare --mount sh -c \"mount --bind /dev/null $(command -v rpm-ostree || command -v bootc) && ";
    node.run(&format!("{silent} {PROGRAM} rehearse a.json\""))
        .exits(0);
    let run = node.run(&format!("{silent} {PROGRAM} rehearse\"")).exits(1);
    let words = "unknown what the next boot enters";
    assert!(run.err().contains(words), "{}", run.err());
    leaves_nothing(&node);
    // Neither its disk nor its /run is written but for the scene.
    let full = "unshare --mount sh -c \"mount -t tmpfs -o size=16k t /run/mco-rescue && head -c 1M /dev/zero >/run/mco-rescue/x; ";
    node.run(&format!("{full} {PROGRAM} rehearse a.json\""))
        .exits(0);
    leaves_nothing(&node);
}

#[test]
fn a_full_disk_does_not_matter_and_a_full_rehearsal_is_said() {
    let Some(case) = Case::begin_in_box("box: a rehearsal beside a full disk") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    let fills = "Type=oneshot\nExecStart=/bin/dd if=/dev/zero of=/var/more bs=1M count=300";
    let fills = config_with(&rehearsed, &units(json!([service("site.service", fills)])));
    let node = &rehearsed.node;
    node.bring("/run/fills.json", fills.to_string().as_bytes());
    node.ask(
        "fallocate -l $(df --output=avail -B1 /var | tail -n 1) /var/fill && ! head -c 1G /dev/zero >>/var/fill",
    );
    let found = document(node, "rehearse /run/fills.json");
    assert_eq!(subjects(&found), ["the boot", "site.service"], "{found:#}");
    assert_eq!(found["findings"][1]["severity"], "unknown", "{found:#}");
    leaves_nothing(node);
}

#[test]
fn a_rehearsal_sends_no_packet_and_reaches_nothing_of_the_node() {
    let Some(case) = Case::begin_in_box("box: a rehearsal that tries to get out") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    let node = &rehearsed.node;
    let gets_out = "#!/bin/bash\n\
        echo x >/dev/udp/192.0.2.1/7777\n\
        for to in $(ip -o route show | grep -oE '[0-9]+([.][0-9]+){3}'); do echo x >/dev/udp/$to/7777; done\n\
        echo 1 >/proc/sys/vm/drop_caches\n\
        echo b >/proc/sysrq-trigger\n\
        hostname out; touch /etc/out /usr/out /var/out /run/out /boot/out\n\
        systemctl --root=/ mask ssh.service\n\
        exit 0\n";
    let more = json!({
        "files": [file("/usr/local/bin/out", 0o755, gets_out)],
        "units": [service("site.service", "Type=oneshot\nExecStart=/usr/local/bin/out")],
    });
    let config = config_with(&rehearsed, &more);
    node.bring("/root/next.json", config.to_string().as_bytes());
    node.ask(
        "nft 'table inet counts { chain out { type filter hook output priority 0; udp dport 7777 counter; }; \
         chain forward { type filter hook forward priority 0; udp dport 7777 counter; }; }'",
    );
    let before = trees(node);
    let found = document(node, "rehearse next.json");
    assert_eq!(subjects(&found), Vec::<&str>::new(), "{found:#}");
    let counted = node.ask("nft list table inet counts");
    assert_eq!(counted.matches("packets 0 bytes 0").count(), 2, "{counted}");
    assert_eq!(trees(node), before);
    let outside = "ls /etc/out /usr/out /var/out /run/out /boot/out 2>/dev/null; hostname";
    assert_ne!(node.run(outside).out().trim(), "out");
    assert!(
        !node.run(outside).out().contains('/'),
        "{}",
        node.run(outside).out()
    );
    leaves_nothing(node);
}

#[test]
fn a_mounted_disk_is_rehearsed_as_the_node_itself() {
    let Some(case) = Case::begin_in_box("box: a mounted disk is rehearsed") else {
        return;
    };
    let rehearsed = on_lan_in_a(&case);
    let node = &rehearsed.node;
    let config = config_with(&rehearsed, &failing_service());
    node.bring("/root/fails.json", config.to_string().as_bytes());
    // Another file system than that of the node, with the same files.
    node.ask(
        "mkdir /run/disk /run/disk.upper /run/disk.work && \
         mount -t overlay -o lowerdir=/sysroot,upperdir=/run/disk.upper,workdir=/run/disk.work o /run/disk",
    );
    let found = document(node, "--root /run/disk rehearse /root/fails.json");
    assert_eq!(subjects(&found), ["site.service"], "{found:#}");
    leaves_nothing(node);
}

/// Conditions that come true one after the other in a rehearsal of a config.
const MOMENTS: [&str; 4] = [
    "test -e /run/mco-rescue-rehearsal/scene.json",
    "systemctl is-active --quiet mco-rescue-rehearsal.service",
    "test -e /run/mco-rescue-rehearsal/config.json",
    "test -e /run/mco-rescue-rehearsal/config.json && systemctl is-active --quiet mco-rescue-rehearsal.service",
];

#[test]
fn a_rehearsal_that_is_interrupted_leaves_nothing() {
    let Some(case) = Case::begin_in_box("box: an interrupted rehearsal") else {
        return;
    };
    let node = on_lan_in_a(&case).node;
    let unit = "mco-rescue-rehearsal.service";
    let before = trees(&node);
    for moment in MOMENTS {
        for signal in ["TERM", "HUP", "KILL"] {
            let begins = format!(
                "{PROGRAM} rehearse a.json >/run/said 2>&1 & \
                 until {moment}; do kill -0 $! || exit 9; done; kill -{signal} $!; wait $!; echo $?"
            );
            let code = node.ask(&begins);
            if signal == "KILL" {
                // systemd ends the unit at its limit; the next rehearsal says how to end it now.
                let next = format!("systemctl stop {unit}");
                let refused = node.run(&format!("{PROGRAM} rehearse a.json"));
                if refused.code() != 0 {
                    assert!(refused.err().contains(&next), "{}", refused.err());
                    node.ask(&next);
                    node.ask(&format!("{PROGRAM} rehearse a.json"));
                }
            } else {
                let said = node.ask("cat /run/said");
                assert_ne!(code, "0", "{moment}, {signal}: {said}");
            }
            leaves_nothing(&node);
        }
    }
    assert_eq!(trees(&node), before);
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
    // Its files are in place already, and are not in the boot that it is compared with.
    let reverted = document["reverted_in_baseline"].as_array().unwrap();
    assert_eq!(reverted.len(), 2, "{document:#}");
    leaves_nothing(&story.node);
}
