//! The findings of a rehearsal, as text and as JSON (`mco-rescue/rehearsal/v1`).

use serde::Serialize;
use serde_json::{Map, Value};

use super::plan::{Heading, machine_line};
use super::preflight::{FindingEntry, findings_text};
use super::wrap_text;
use crate::base::text::{count_noun, make_inline};
use crate::judge::crossing::has_inhibitor;
use crate::rehearse::facts::{RehearsalEnd, RehearsedBoot};
use crate::rehearse::rehearsal::Rehearsal;
use crate::rehearse::scene::STAND_INS;

#[derive(Serialize)]
struct RehearsalDocument<'a> {
    schema: &'static str,
    node: &'a str,
    system: &'a str,
    root: &'a str,
    #[serde(flatten)]
    rehearsal: RehearsalEntry<'a>,
}

#[derive(Serialize)]
struct RehearsalEntry<'a> {
    rehearsed: &'a str,
    not_rehearsed: Option<&'a str>,
    reverted_in_baseline: &'a [String],
    baseline: BootEntry<'a>,
    next: BootEntry<'a>,
    findings: Vec<FindingEntry<'a>>,
}

impl<'a> RehearsalEntry<'a> {
    fn of(rehearsal: &'a Rehearsal) -> Self {
        Self {
            rehearsed: &rehearsal.subject,
            not_rehearsed: rehearsal.not_rehearsed.as_deref(),
            reverted_in_baseline: &rehearsal.reverted,
            baseline: BootEntry::of(&rehearsal.baseline),
            next: BootEntry::of(&rehearsal.next),
            findings: rehearsal.findings.iter().map(FindingEntry::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct BootEntry<'a> {
    end: &'static str,
    waits_for: &'a [String],
    milliseconds: Option<u64>,
    units: usize,
    failed: Vec<&'a str>,
    skipped: Vec<&'a str>,
    in_name_only: Vec<&'static str>,
    sshd_after_milliseconds: Option<u64>,
    kubelet_after_milliseconds: Option<u64>,
}

impl<'a> BootEntry<'a> {
    fn of(boot: &'a RehearsedBoot) -> Self {
        let waits_for: &[String] = match &boot.end {
            RehearsalEnd::StillStarting(units) => units,
            _ => &[],
        };
        let skipped = boot.units.iter().filter(|(_, unit)| unit.is_skipped);
        Self {
            end: word(&boot.end),
            waits_for,
            milliseconds: boot.duration.map(milliseconds),
            units: boot.units.len(),
            failed: boot.failed_units().map(|(name, _)| name.as_str()).collect(),
            skipped: skipped.map(|(name, _)| name.as_str()).collect(),
            in_name_only: in_name_only(boot),
            sshd_after_milliseconds: time_to(boot, &["sshd.service", "ssh.service", "sshd.socket"]),
            kubelet_after_milliseconds: time_to(boot, &["kubelet.service"]),
        }
    }
}

fn word(end: &RehearsalEnd) -> &'static str {
    match end {
        RehearsalEnd::Started => "started",
        RehearsalEnd::Emergency => "emergency",
        RehearsalEnd::StillStarting(_) => "still-starting",
        RehearsalEnd::Ended => "ended",
    }
}

fn milliseconds(microseconds: u64) -> u64 {
    microseconds / 1000
}

fn time_to(boot: &RehearsedBoot, units: &[&str]) -> Option<u64> {
    let times = units
        .iter()
        .filter_map(|name| boot.units.get(*name)?.active_after);
    times.min().map(milliseconds)
}

fn in_name_only(boot: &RehearsedBoot) -> Vec<&'static str> {
    let is_there = |name: &&&str| {
        boot.units
            .get(**name)
            .is_some_and(|unit| unit.load == "loaded")
    };
    STAND_INS.iter().filter(is_there).copied().collect()
}

/// Returns the document.
///
/// # Errors
/// The serializer's error.
pub fn to_json(heading: &Heading, rehearsal: &Rehearsal) -> serde_json::Result<String> {
    super::pretty(&RehearsalDocument {
        schema: "mco-rescue/rehearsal/v1",
        node: &heading.node,
        system: &heading.system,
        root: &heading.root,
        rehearsal: RehearsalEntry::of(rehearsal),
    })
}

/// Returns another command's document with the rehearsal as its key `rehearsal`.
///
/// # Errors
/// The serializer's error.
pub fn add_to_document(document: &str, rehearsal: &Rehearsal) -> serde_json::Result<String> {
    let mut document: Map<String, Value> = serde_json::from_str(document)?;
    let part = serde_json::to_value(RehearsalEntry::of(rehearsal))?;
    document.insert("rehearsal".to_owned(), part);
    super::pretty(&document)
}

/// Returns the text.
pub fn to_text(heading: &Heading, rehearsal: &Rehearsal) -> String {
    machine_line(heading) + &to_part_text(rehearsal)
}

/// Returns the text without the lines about the node, as the end of another text.
pub fn to_part_text(rehearsal: &Rehearsal) -> String {
    let mut text = wrap_text(&format!("Rehearsed {}", make_inline(&rehearsal.subject)), 0);
    text += &format!("Now       {}\n", boot_line(&rehearsal.baseline));
    if !rehearsal.reverted.is_empty() {
        let runs = count_noun(rehearsal.reverted.len(), "run");
        text += &format!("          as the node last booted, without the {runs} since then\n");
    }
    text += &format!("Next      {}\n", boot_line(&rehearsal.next));
    text += &format!("Result    {}\n", conclude(rehearsal));
    if let Some(words) = &rehearsal.not_rehearsed {
        text += "\n";
        text += &wrap_text(words, 0);
    }
    text += &findings_text(&rehearsal.findings);
    text += "\n";
    text += &wrap_text(
        &format!(
            "Not seen by a rehearsal: drivers, firmware, disks, SELinux, the real network, and what the {} do that were started in name only.",
            count_noun(in_name_only(&rehearsal.next).len(), "service")
        ),
        0,
    );
    text
}

fn boot_line(boot: &RehearsedBoot) -> String {
    let end = match &boot.end {
        RehearsalEnd::Started => "starts",
        RehearsalEnd::Emergency => "ends in emergency mode",
        RehearsalEnd::StillStarting(_) => "does not finish",
        RehearsalEnd::Ended => "does not begin",
    };
    let mut line = end.to_owned();
    if let Some(time) = boot.duration {
        line += &format!(" in {:.1} s", time as f64 / 1e6);
    }
    let failed = boot.failed_units().count();
    line + &format!(
        ", {}, {failed} failed",
        count_noun(boot.units.len(), "unit")
    )
}

fn conclude(rehearsal: &Rehearsal) -> &'static str {
    if has_inhibitor(&rehearsal.findings) {
        "Do not reboot until the inhibitors are gone."
    } else if rehearsal.not_rehearsed.is_some() {
        "Nothing stops the boot that was rehearsed. It was not that of the image."
    } else if rehearsal.findings.is_empty() {
        "The next boot starts everything that starts today."
    } else {
        "Nothing stops the next boot."
    }
}
