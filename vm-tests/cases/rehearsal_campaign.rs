//! Every change of `rehearsal_changes.rs` and every crossing of `rehearsal_crossings.rs` is rehearsed, then really booted, and the
//! words of both are a table.
//!
//! `REHEARSALS=all` takes them all; `REHEARSALS=TEXT|TEXT` those with one of these texts in their name; else a sample of the changes.

use std::fmt::Write;

use serde_json::Value;

use super::node::PROGRAM;
use super::rehearsal_changes::{Change, all_changes};
use super::rehearsal_crossings::{Crossing, all_crossings};
use super::rehearsals::{
    Rehearsed, config_with, document, leaves_nothing, on_lan, on_lan_in_a, plain_in_a, subjects,
    trees, wanted,
};
use crate::lab::boxes::BoxNode;
use crate::lab::{Case, Shell};

/// Failed units, and what a node must have to be reached and to run pods.
const FAILED: &str = "systemctl --failed --no-legend --plain | cut -d' ' -f1 | sort";
const WHOLE: &str = "for unit in multi-user.target ssh.service crio.service kubelet.service dbus.service systemd-logind.service; do \
                         systemctl is-active --quiet $unit || { echo $unit does not run; exit 1; }; \
                     done; \
                     sshd -t && visudo -c && systemd-run -q --wait -p PAMName=sshd -p User=core true";

/// What is said of one change, by whom.
struct Verdict {
    name: &'static str,
    /// It is meant to break the node.
    breaks: bool,
    /// New findings; `None` if it was not asked.
    preflight: Option<bool>,
    rehearsal: Vec<String>,
    /// The subject of the finding is right, or there is none where none belongs.
    is_right: bool,
    /// The booted node is broken; `None` if it was not booted.
    boot: Option<bool>,
}

impl Verdict {
    fn row(&self) -> String {
        let found = |is: bool| if is { "found" } else { "-" };
        let preflight = self.preflight.map_or("not asked", found);
        let boot = match self.boot {
            None => "not booted",
            Some(true) => "broken",
            Some(false) => "whole",
        };
        let rehearsal = found(!self.rehearsal.is_empty());
        format!("| {} | {preflight} | {rehearsal} | {boot} |", self.name)
    }

    /// A miss, a false alarm, or a change that does not do what the table says.
    fn is_wrong(&self) -> bool {
        !self.is_right || self.boot.is_some_and(|broken| broken != self.breaks)
    }
}

#[test]
fn a_rehearsal_says_what_the_boot_does() {
    let Some(case) = Case::begin_in_box("box: rehearsals, and the boots they speak of") else {
        return;
    };
    let node = on_lan_in_a(&case);
    let known = preflight_words(&node.node, "a.json");
    let failed = node.node.ask(FAILED);
    let mut verdicts = Vec::new();
    for (number, change) in all_changes().iter().enumerate() {
        if wanted(change.name, number, 19) {
            let verdict = try_change(&node, change, (&known, &failed));
            case.tell(&verdict.row());
            verdicts.push(verdict);
        }
    }
    leaves_nothing(&node.node);
    let is_campaign = std::env::var_os("REHEARSALS").is_some();
    for (number, crossing) in all_crossings().iter().enumerate() {
        if is_campaign && wanted(crossing.name, number, 11) {
            let verdict = try_crossing(crossing);
            case.tell(&verdict.row());
            verdicts.push(verdict);
        }
    }
    case.tell(&table_of(&verdicts));
    let wrong = verdicts.iter().filter(|verdict| verdict.is_wrong());
    let wrong: Vec<String> = wrong
        .map(|one| format!("{} {:#?}", one.row(), one.rehearsal))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn table_of(verdicts: &[Verdict]) -> String {
    let mut text =
        "the table:\n| change | preflight | rehearsal | boot |\n|---|---|---|---|\n".to_owned();
    for verdict in verdicts {
        text += &verdict.row();
        text += "\n";
    }
    let count = |is: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|one| is(one)).count();
    let found = |one: &Verdict| !one.rehearsal.is_empty();
    let early = |one: &Verdict| one.preflight == Some(true);
    let counts = [
        ("breakages", count(&|one| one.breaks)),
        (
            "found by the rehearsal",
            count(&|one| one.breaks && found(one)),
        ),
        (
            "found by preflight too",
            count(&|one| one.breaks && found(one) && early(one)),
        ),
        (
            "found by preflight alone",
            count(&|one| one.breaks && !found(one) && early(one)),
        ),
        (
            "found by none",
            count(&|one| one.breaks && !found(one) && !early(one)),
        ),
        (
            "really broken",
            count(&|one| one.breaks && one.boot == Some(true)),
        ),
        ("harmless", count(&|one| !one.breaks)),
        ("false alarms", count(&|one| !one.breaks && found(one))),
        (
            "really whole",
            count(&|one| !one.breaks && one.boot == Some(false)),
        ),
    ];
    for (what, count) in counts {
        writeln!(text, "{what}: {count}").unwrap();
    }
    text
}

/// The findings of `preflight`, in one form.
fn preflight_words(node: &BoxNode<'_>, target: &str) -> Vec<String> {
    let seen = document(node, &format!("preflight {target}"));
    let all = seen["findings"]
        .as_array()
        .unwrap_or_else(|| panic!("{seen:#}"));
    let words = |one: &Value| format!("{} {} {}", one["check"], one["subject"], one["what"]);
    all.iter().map(words).collect()
}

fn try_change(
    node: &Rehearsed<'_>,
    change: &Change,
    (known, failed): (&[String], &str),
) -> Verdict {
    let config = config_with(node, &change.more);
    node.node
        .bring("/root/next.json", config.to_string().as_bytes());
    let preflight = preflight_words(&node.node, "next.json");
    let before = trees(&node.node);
    let seen = document(&node.node, "rehearse --limit 25s next.json");
    assert_eq!(trees(&node.node), before, "{}", change.name);
    let boots = !change.broken.is_empty() || std::env::var_os("REHEARSALS").is_some();
    Verdict {
        name: change.name,
        breaks: !change.broken.is_empty(),
        preflight: Some(preflight.iter().any(|words| !known.contains(words))),
        is_right: is_right(&seen, change.subject),
        rehearsal: words_of(&seen),
        boot: boots.then(|| is_broken(change, &config, failed)),
    }
}

fn is_right(seen: &Value, subject: &str) -> bool {
    let found = subjects(seen);
    match subject {
        "" => found.is_empty(),
        _ => found.iter().any(|found| found.contains(subject)),
    }
}

fn words_of(seen: &Value) -> Vec<String> {
    let all = seen["findings"].as_array().unwrap().iter();
    all.map(|one| {
        format!(
            "{} {} {} {}",
            one["severity"], one["subject"], one["what"], one["evidence"]
        )
    })
    .collect()
}

/// Whether a node that really boots with the config is broken: as the change says, or at all.
fn is_broken(change: &Change, config: &Value, failed: &str) -> bool {
    let case = Case::begin_in_box(&format!("box: the boot of {}", change.name));
    let case = case.expect("another box was made");
    let mut node = on_lan(&case);
    node.bring("/root/next.json", config.to_string().as_bytes());
    node.ask(&format!(
        "{PROGRAM} apply --yes --files-only --allow-lockout --allow-removals --no-actions next.json"
    ));
    node.cut();
    node.start();
    // A boot that is broken may not come to its end.
    let waits = "for n in $(seq 150); do systemctl is-system-running | grep -qE 'running|degraded|maintenance' && break; sleep 0.1; done";
    node.run(waits);
    is_broken_now(&node, change.broken, failed, &case)
}

fn is_broken_now(node: &BoxNode<'_>, broken: &str, failed: &str, case: &Case) -> bool {
    // One whose systemd has ended cannot be asked.
    if node.run("true").code() != 0 {
        return true;
    }
    if !broken.is_empty() {
        return node.run(broken).code() == 0;
    }
    let now = node.ask(FAILED);
    let whole = node.run(WHOLE);
    let is_broken = whole.code() != 0
        || now
            .lines()
            .any(|unit| !failed.lines().any(|known| known == unit));
    if is_broken {
        case.tell(&format!("{now} {} {}", whole.out(), whole.err()));
    }
    is_broken
}

/// A node in A stages another tree, rehearses it, and boots it.
fn try_crossing(crossing: &Crossing) -> Verdict {
    let case = Case::begin_in_box(&format!("box: the crossing to {}", crossing.name));
    let case = case.expect("another box was made");
    let mut rehearsed = plain_in_a(&case);
    let failed = rehearsed.node.ask(FAILED);
    let known = preflight_words(&rehearsed.node, "a.json");
    let target = crossing.stage(&rehearsed);
    let node = &mut rehearsed.node;
    let preflight = target.map(|target| {
        let words = preflight_words(node, &target);
        case.tell(&format!("preflight: {words:?}"));
        words.iter().any(|words| !known.contains(words))
    });
    let before = trees(node);
    let seen = document(node, "rehearse --limit 25s");
    assert_eq!(trees(node), before, "{}", crossing.name);
    let rehearsed = seen["rehearsed"].as_str().unwrap();
    assert!(rehearsed.starts_with("the staged deployment"), "{seen:#}");
    leaves_nothing(node);
    node.reboot();
    assert_eq!(node.ask("cat /usr/lib/os-version"), crossing.version);
    Verdict {
        name: crossing.name,
        breaks: !crossing.broken.is_empty(),
        preflight,
        is_right: is_right(&seen, crossing.subject),
        rehearsal: words_of(&seen),
        boot: Some(is_broken_now(node, crossing.broken, &failed, &case)),
    }
}
