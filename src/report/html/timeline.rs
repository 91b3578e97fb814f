//! The timeline of boots and runs, and the differences since the last good boot.

use serde_json::Value;

use super::{Html, short};
use crate::base::time::format_utc;
use crate::diagnose::fleet::text_of;

/// Number of entries that are shown at once; older ones are collapsed.
const SHOWN: usize = 8;

/// Adds the timeline, newest first, if there is a history.
pub(super) fn add_timeline(html: &mut Html, history: Option<&Value>) {
    let Some(history) = history else { return };
    html.heading("timeline", "Timeline");
    let all = list(history, "entries");
    if all.is_empty() {
        html.line("p", "card soft", "No boot and no run is recorded yet.");
        return;
    }
    // Each entry is paired with the previous one, so that unchanged values are not repeated.
    let before = all.iter().skip(1).copied().map(Some).chain([None]);
    let all: Vec<(&Value, Option<&Value>)> = all.iter().copied().zip(before).collect();
    let (first, rest) = all.split_at_checked(SHOWN).unwrap_or((&all, &[]));
    entries(html, first);
    if !rest.is_empty() {
        html.open("details", "");
        html.line("summary", "", &format!("{} earlier", rest.len()));
        entries(html, rest);
        html.end("details");
    }
}

fn entries(html: &mut Html, all: &[(&Value, Option<&Value>)]) {
    html.open("ol", "time");
    html.out.push('\n');
    for (entry, before) in all {
        let outcome = text_of(entry, "outcome").unwrap_or_default();
        let class = match outcome {
            "good" | "done" => "good",
            "no-kubelet" | "no-end" | "incomplete" => "critical",
            "rolled-back" => "warning",
            _ => "",
        };
        html.open("li", class);
        let when = match entry.get("at").and_then(Value::as_u64) {
            Some(at) => format_utc(at),
            None => "at an unknown time".to_owned(),
        };
        html.put("div", "soft small", &when);
        html.open("div", "")
            .put("b", "", &event_words(entry, outcome))
            .close("div");
        let mut parts: Vec<String> = Vec::new();
        for (key, label) in [
            ("config", ""),
            ("deployment", "deployment "),
            ("kernel", "kernel "),
        ] {
            let value = text_of(entry, key);
            let is_new = value != before.and_then(|before| text_of(before, key));
            let value = value.filter(|_| is_new);
            parts.extend(value.map(|value| format!("{label}{}", short(value))));
        }
        if !parts.is_empty() {
            html.put("div", "small", &parts.join(" \u{b7} "));
        }
        let notes = notes_of(entry);
        if !notes.is_empty() {
            html.put("div", "soft small", &notes.join("; "));
        }
        html.end("li");
    }
    html.end("ol");
}

fn notes_of(entry: &Value) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    match entry.get("differences").and_then(Value::as_u64) {
        None | Some(0) => {}
        Some(1) => notes.push("1 difference from the one before".to_owned()),
        Some(number) => notes.push(format!("{number} differences from the one before")),
    }
    if is_true(entry, "clock_set_back") {
        notes.push("the clock was set back before this".to_owned());
    }
    if is_true(entry, "can_go_back") {
        notes.push("rollback can revert it".to_owned());
    }
    notes.extend(
        list(entry, "notes")
            .into_iter()
            .filter_map(Value::as_str)
            .map(str::to_owned),
    );
    notes
}

fn event_words(entry: &Value, outcome: &str) -> String {
    let event = text_of(entry, "event").unwrap_or("event");
    match (event, outcome) {
        ("boot", "good") => "Boot finished".to_owned(),
        ("boot", "no-kubelet") => "Boot without a running kubelet".to_owned(),
        ("boot", "no-end") => "Boot did not finish".to_owned(),
        ("boot", "running") => "This boot".to_owned(),
        ("by-hand", _) => "Recorded by hand".to_owned(),
        (event, outcome) => {
            let word = match outcome {
                "done" => "done",
                "rolled-back" => "failed, everything was restored",
                "taken" => "recorded",
                other => other,
            };
            format!("{event}: {word}")
        }
    }
}

/// Adds the differences, if they are known.
pub(super) fn add_differences(html: &mut Html, diff: Option<&Value>) {
    html.heading("differences", "What changed");
    let Some(diff) = diff else {
        let words =
            "Not known: there is no snapshot of a boot that finished. diff.json has the reason.";
        html.line("p", "card soft", words);
        return;
    };
    let from = diff.get("from").unwrap_or(&Value::Null);
    let at = from.get("at").and_then(Value::as_u64);
    let when = at.map_or_else(|| "an unknown time".to_owned(), format_utc);
    let side = match (text_of(from, "event"), text_of(from, "outcome")) {
        (Some("boot"), Some("good")) => "the last good boot",
        _ => "the snapshot",
    };
    let words = format!(
        "Differences since {side}, {when}; what keeps nodes from booting most often comes first."
    );
    html.line("p", "soft", &words);
    if let Some(limit) = text_of(diff, "limit") {
        html.line("p", "soft", limit);
    }
    let all = list(diff, "differences");
    if all.is_empty() {
        html.line("p", "card soft", "No difference was found.");
    }
    let mut areas: Vec<(&str, Vec<&Value>)> = Vec::new();
    for one in all {
        let area = text_of(one, "area").unwrap_or("other");
        match areas.iter_mut().find(|(known, _)| *known == area) {
            Some((_, ones)) => ones.push(one),
            None => areas.push((area, vec![one])),
        }
    }
    for (area, ones) in areas {
        html.open("section", "card");
        html.line("h3", "", &area_words(area));
        for one in &ones {
            change(html, one);
        }
        for one in ones {
            if let Some(lines) = text_of(one, "text") {
                html.line("h4", "", text_of(one, "subject").unwrap_or_default());
                html.line("pre", "diff", lines);
            }
        }
        html.end("section");
    }
    let missing = list(diff, "not_compared");
    if !missing.is_empty() {
        html.line("h4", "", "Not compared");
        html.table("pairs", &[]);
        for one in missing {
            html.open("tr", "");
            html.put(
                "th",
                "",
                &area_words(text_of(one, "area").unwrap_or_default()),
            );
            html.put("td", "", text_of(one, "why").unwrap_or_default());
            html.end("tr");
        }
        html.end_table();
    }
}

/// Adds one difference.
fn change(html: &mut Html, one: &Value) {
    html.open("div", "change");
    html.put("div", "mono", text_of(one, "subject").unwrap_or_default());
    html.open("div", "small");
    match (text_of(one, "before"), text_of(one, "after")) {
        (Some(before), Some(after)) => {
            html.put("span", "soft", "before: ").text(before).text(" ");
            html.put("span", "soft", "now: ").text(after);
        }
        (Some(before), None) => drop(html.put("span", "soft", "gone; before: ").text(before)),
        (None, Some(after)) => drop(html.put("span", "soft", "new: ").text(after)),
        (None, None) => drop(html.put("span", "soft", text_of(one, "change").unwrap_or_default())),
    }
    html.close("div").end("div");
}

/// Returns the display name of an area.
fn area_words(area: &str) -> String {
    match area {
        "etc" => "Files below /etc".to_owned(),
        "esp" => "EFI system partition".to_owned(),
        area => {
            let mut letters = area.chars().map(|c| if c == '-' { ' ' } else { c });
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    let all = value.get(key).and_then(Value::as_array);
    all.into_iter().flatten().collect()
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool) == Some(true)
}
