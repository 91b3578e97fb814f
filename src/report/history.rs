//! The documents of the flight recorder: `record`, `history` and `diff`, as text and as JSON.

use super::{line_width, wrap_text};
use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::text::{count_noun, make_inline};
use crate::base::time::{format_age, format_utc};
use crate::diagnose::recorder::shelf::Damaged;
use crate::diagnose::recorder::timeline::{HistoryEntry, TimelineMoment};
use crate::diagnose::recorder::{Area, Difference, Event, FactChange, Outcome};
use crate::run::compared::SnapshotDiff;
use crate::run::history::History;
use crate::run::snapshot::SnapshotTaken;

/// Returns the result of `record` as JSON.
///
/// # Errors
/// The serializer's error.
pub fn record_json(taken: &SnapshotTaken) -> serde_json::Result<String> {
    super::to_document("mco-rescue/record/v1", taken)
}

/// Returns the result of `record` as text.
pub fn record_text(document: &SnapshotTaken) -> String {
    let number = document.snapshot.unwrap_or_default();
    let mut out = if document.is_new {
        let words = format!(
            "Recorded: snapshot {number} of {}, {} bytes of it new.",
            make_inline(&document.root),
            document.written
        );
        wrap_text(&words, 0)
    } else {
        wrap_text(
            &format!("Nothing has changed since snapshot {number}; nothing was written."),
            0,
        )
    };
    for note in &document.notes {
        out.push_str(&wrap_text(&format!("Note: {note}"), 2));
    }
    out
}

/// Returns the history as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(history: &History) -> serde_json::Result<String> {
    super::to_document("mco-rescue/history/v1", history)
}

/// Returns the history as text.
pub fn to_text(document: &History) -> String {
    let mut out = String::new();
    if let Some(root) = &document.root {
        out.push_str(&format!("{:<10}{}\n", "Root", make_inline(root)));
    }
    let store = match &document.store {
        Some(store) => make_inline(store),
        None => "(no snapshots: the recorder has not run)".to_owned(),
    };
    out.push_str(&format!("{:<10}{store}\n", "Snapshots"));
    if document.entries.is_empty() {
        out.push_str("\nNo boot and no run is known.\n");
    } else {
        out.push_str("\nBoots and runs, the newest first:\n");
    }
    for entry in &document.entries {
        out.push_str(&of_entry(entry, document.now));
    }
    out.push_str(&of_damaged(&document.damaged));
    let is_good = |entry: &HistoryEntry| entry.snapshot.is_some() && entry.outcome == Outcome::Good;
    let newest = document.entries.iter().find_map(|entry| entry.snapshot);
    let next = match (&document.store, newest) {
        (Some(store), _) if document.root.is_none() => format!(
            "A and B stand for two of these numbers. Next: mco-rescue diff A B --store {}",
            shell_word(store)
        ),
        (Some(_), _) if document.entries.iter().any(is_good) => format!(
            "A and B stand for two of these numbers. Next: {} # the last good boot and now, or {}",
            mco_rescue("diff"),
            mco_rescue("diff A B")
        ),
        (Some(_), Some(number)) => format!(
            "A and B stand for two of these numbers. Next: {} # that snapshot and now, or {}",
            mco_rescue(&format!("diff {number}")),
            mco_rescue("diff A B")
        ),
        _ => format!("Next: {}", mco_rescue("record")),
    };
    out + "\n" + &wrap_text(&next, 0)
}

fn of_entry(entry: &HistoryEntry, now: u64) -> String {
    let number = entry
        .snapshot
        .map_or("-".to_owned(), |number| number.to_string());
    let when = match entry.at {
        Some(at) => format!("{} ({})", format_utc(at), format_age(at, now)),
        None => "(unknown time)".to_owned(),
    };
    let mut out = format!("{number:>5}  {when}\n");
    let mut words = vec![match entry.event {
        Event::Boot => format!("boot: {}", outcome(entry.outcome)),
        Event::ByHand => "facts, recorded by hand".to_owned(),
        event => {
            let name = entry.config.as_deref().unwrap_or("(no config)");
            format!("{} {name}: {}", event_word(event), outcome(entry.outcome))
        }
    }];
    words.extend(entry.differences.map(|number| match number {
        0 => "no difference from the snapshot before".to_owned(),
        number => {
            let differences = count_noun(number, "difference");
            format!("{differences} from the snapshot before")
        }
    }));
    if entry.event == Event::Boot {
        words.extend(
            entry
                .kernel
                .as_ref()
                .map(|kernel| format!("kernel {kernel}")),
        );
    }
    words.extend(entry.by.as_ref().map(|by| format!("by {by}")));
    if entry.can_go_back {
        words.push("rollback can revert it".to_owned());
    }
    if entry.clock_set_back {
        words.push("the clock was set back before".to_owned());
    }
    out.push_str(&wrap_text(&make_inline(&words.join("; ")), 7));
    for note in &entry.notes {
        out.push_str(&wrap_text(&make_inline(note), 9));
    }
    out
}

/// Returns the word for an event.
pub fn event_word(event: Event) -> &'static str {
    match event {
        Event::Boot => "boot",
        Event::Apply => "apply",
        Event::Rollback => "rollback",
        Event::ByHand => "recorded by hand",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Good => "good",
        Outcome::NoKubelet => "the kubelet did not run at its end",
        Outcome::NoEnd => "left no snapshot: did not finish, or could not record it",
        Outcome::Running => "is running, has not finished so far",
        Outcome::Done => "done",
        Outcome::RolledBack => "failed, everything was restored",
        Outcome::Incomplete => "incomplete",
        Outcome::Taken => "recorded",
    }
}

fn of_damaged(damaged: &[Damaged]) -> String {
    let mut out = String::new();
    if !damaged.is_empty() {
        out.push_str("\nDamaged; everything else is whole:\n");
    }
    for one in damaged {
        out.push_str(&wrap_text(
            &format!("{}: {}", make_inline(&one.path), one.why),
            2,
        ));
    }
    out
}

/// Returns the differences as JSON.
///
/// # Errors
/// The serializer's error.
pub fn diff_json(compared: &SnapshotDiff) -> serde_json::Result<String> {
    super::to_document("mco-rescue/diff/v1", compared)
}

/// Returns a moment for people.
pub fn moment_text(moment: &TimelineMoment, now: u64) -> String {
    match moment.snapshot {
        None => "now".to_owned(),
        Some(number) => {
            let event = moment.event.map_or("", event_word);
            let good = match moment.outcome {
                Some(Outcome::Good) => "good ",
                _ => "",
            };
            format!(
                "snapshot {number}, {good}{event}, {} ({})",
                format_utc(moment.at),
                format_age(moment.at, now)
            )
        }
    }
}

/// Returns the differences as text, in groups.
pub fn diff_text(document: &SnapshotDiff) -> String {
    let mut out = format!(
        "{:<10}{}\n{:<10}{}\n",
        "From",
        moment_text(&document.from, document.now),
        "To",
        moment_text(&document.to, document.now)
    );
    if document.differences.is_empty() {
        out.push_str("\nNothing differs.\n");
    }
    let mut areas: Vec<Area> = Vec::new();
    for difference in &document.differences {
        if !areas.contains(&difference.area) {
            areas.push(difference.area);
        }
    }
    for area in areas {
        let all = document.differences.iter();
        let all: Vec<&Difference> = all.filter(|one| one.area == area).collect();
        out.push_str(&format!("\n{} ({}):\n", area.title(), all.len()));
        for (difference, below) in fold(&all) {
            out.push_str(&of_difference(difference));
            if below > 0 {
                out.push_str(&format!(
                    "      and {} below it\n",
                    count_noun(below, "object")
                ));
            }
        }
    }
    if !document.not_compared.is_empty() {
        out.push_str("\nNot compared:\n");
        for one in &document.not_compared {
            out.push_str(&wrap_text(&format!("{}: {}", one.area.title(), one.why), 2));
        }
    }
    if let Some(limit) = document.limit {
        out.push('\n');
        out.push_str(&wrap_text(&format!("Note: {limit}."), 0));
    }
    out + &of_damaged(&document.damaged)
}

/// Omits the objects inside directories that were added or removed as a whole; returns their number with each directory.
fn fold<'a>(all: &[&'a Difference]) -> Vec<(&'a Difference, usize)> {
    let whole = |one: &&&Difference| {
        let fact = match one.change {
            FactChange::Added => &one.after,
            FactChange::Removed => &one.before,
            FactChange::Changed => return false,
        };
        fact.as_deref()
            .is_some_and(|fact| fact.starts_with("directory"))
    };
    let directories: Vec<&Difference> = all.iter().filter(whole).copied().collect();
    let is_below = |one: &Difference, directory: &Difference| {
        let rest = one.subject.strip_prefix(&directory.subject);
        one.change == directory.change && rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let shown = all
        .iter()
        .filter(|one| !directories.iter().any(|directory| is_below(one, directory)));
    let with_number = shown.map(|one| {
        let below = all.iter().filter(|other| is_below(other, one));
        (*one, if whole(&one) { below.count() } else { 0 })
    });
    with_number.collect()
}

/// Returns a difference in one line, or in one line per side.
pub fn of_difference(difference: &Difference) -> String {
    let sign = match difference.change {
        FactChange::Added => '+',
        FactChange::Removed => '-',
        FactChange::Changed => '~',
    };
    let side = |value: &Option<String>| value.as_deref().map(make_inline).unwrap_or_default();
    let (before, after) = (side(&difference.before), side(&difference.after));
    let subject = make_inline(&difference.subject);
    let line = match difference.change {
        FactChange::Added => format!("  {sign} {subject}: {after}"),
        FactChange::Removed => format!("  {sign} {subject}: {before}"),
        FactChange::Changed => format!("  {sign} {subject}: {before} -> {after}"),
    };
    let mut out = match (line.chars().count() <= line_width(), difference.change) {
        (true, _) => line.trim_end().trim_end_matches(':').to_owned() + "\n",
        (false, FactChange::Changed) => {
            format!("  {sign} {subject}\n")
                + &wrap_text(&format!("from {before}"), 6)
                + &wrap_text(&format!("to   {after}"), 6)
        }
        (false, _) => format!("  {sign} {subject}\n") + &wrap_text(&format!("{before}{after}"), 6),
    };
    for line in difference.text.iter().flat_map(|text| text.lines()) {
        out.push_str(&format!("      {line}\n"));
    }
    out
}
