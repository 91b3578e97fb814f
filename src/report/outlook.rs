//! The outlook of `doctor --until`, as text and as JSON (`mco-rescue/doctor-until/v1`).

use serde::Serialize;

use super::doctor::{Style, hang_text, to_ascii, to_bold};
use super::wrap_text;
use crate::base::text::{count_noun, make_inline};
use crate::base::time::format_utc;
use crate::diagnose::doctor::outlook::{NodeKind, Outlook, OutlookStep, OutlookVerdict};

#[derive(Serialize)]
struct OutlookDocument<'a> {
    schema: &'static str,
    root: &'a str,
    #[serde(flatten)]
    outlook: &'a Outlook,
}

/// Returns the outlook as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(root: &str, outlook: &Outlook) -> serde_json::Result<String> {
    let document = OutlookDocument {
        schema: "mco-rescue/doctor-until/v1",
        root,
        outlook,
    };
    super::pretty(&document)
}

/// Returns the outlook as text. The first lines give the answer.
pub fn to_text(root: &str, outlook: &Outlook, style: Style) -> String {
    let mut out = wrap_text(&headline(root, outlook), 0);
    let lost = outlook.first_step(OutlookVerdict::Lost);
    let hands = outlook.first_step(OutlookVerdict::NeedsHands);
    if let Some(step) = hands.filter(|hands| Some(*hands) != lost) {
        out += &of_step("Needs an admin", step, style);
    }
    if let Some(step) = lost {
        out += &of_step("Lost", step, style);
    }
    if !outlook.approvals.is_empty() {
        out += &format!("\n{}\n", to_bold("Approvals", style));
        for (index, wave) in outlook.approvals.iter().enumerate() {
            let label = match index {
                0 => "First",
                1 => "Second",
                _ => "Later",
            };
            let off = if wave.from <= outlook.now {
                "in any case".to_owned()
            } else {
                format!("if off after {}", format_utc(wave.from))
            };
            let text = format!("{} requests, {off}: {}", wave.requests, wave.when);
            out += &hang_text(label, &text);
        }
        for (index, command) in outlook.next.iter().enumerate() {
            let label = if index == 0 { "Next" } else { "then" };
            out += &format!("  {label:<9}{}\n", make_inline(command));
        }
    }
    out += &by_itself(outlook, style);
    if !outlook.notes.is_empty() || !outlook.unseen.is_empty() {
        out.push('\n');
    }
    for note in &outlook.notes {
        out += &hang_text("Note", note);
    }
    for why in &outlook.unseen {
        out += &hang_text("Unknown", &make_inline(why));
    }
    to_ascii(out, style)
}

fn headline(root: &str, outlook: &Outlook) -> String {
    let kind = match outlook.node {
        NodeKind::ControlPlane => "a control-plane node",
        NodeKind::Worker => "a worker",
    };
    let until = day(outlook.until);
    let answer = match outlook.verdict {
        OutlookVerdict::Unknown => {
            let why = match outlook.unseen.len() {
                0 => "no certificate was found".to_owned(),
                number => format!("{} could not be read", count_noun(number, "file")),
            };
            return format!(
                "{root}, {kind}: it is not known if it comes back by itself after {until}, as {why}."
            );
        }
        OutlookVerdict::ByItself => format!("it comes back by itself if it is off until {until}"),
        OutlookVerdict::NeedsHands => {
            format!("it does not come back by itself if it is off until {until}")
        }
        OutlookVerdict::Lost => format!("nothing on it brings it back if it is off until {until}"),
    };
    let first = match (&outlook.first_day, &outlook.lost_day) {
        (Some(first), Some(lost)) if first == lost => {
            format!(" The first day on which it needs more than approvals is {first}.")
        }
        (Some(first), Some(lost)) => format!(
            " The first day on which it does not come back by itself is {first}; the first on which approvals do not help is {lost}."
        ),
        (Some(first), None) => {
            format!(" The first day on which it does not come back by itself is {first}.")
        }
        (None, _) => " No certificate is known that stops it later.".to_owned(),
    };
    format!("{root}, {kind}: {answer}.{first}")
}

fn of_step(title: &str, step: &OutlookStep, style: Style) -> String {
    // A missing certificate has no end.
    let is_missing = step.subject.is_empty();
    let title = if is_missing {
        format!("{title} now")
    } else {
        format!("{title} from {}", day(step.at))
    };
    let mut out = format!("\n{}\n", to_bold(&title, style));
    out += &if is_missing {
        hang_text("Missing", &format!("{}: no certificate", step.name))
    } else {
        hang_text("Ends", &format!("{}, {}", step.name, format_utc(step.at)))
    };
    out += &hang_text("File", &make_inline(&step.path));
    out + &hang_text("Stalls", &step.means)
}

/// Returns what expires before the date and is renewed automatically: each mechanism once, with everything that it renews.
fn by_itself(outlook: &Outlook, style: Style) -> String {
    let all = outlook.steps.iter();
    let all =
        all.filter(|step| step.at < outlook.until && step.verdict == OutlookVerdict::ByItself);
    let mut ways: Vec<(&str, Vec<&OutlookStep>)> = Vec::new();
    for step in all {
        match ways.iter_mut().find(|(means, _)| *means == step.means) {
            Some((_, steps)) => steps.push(step),
            None => ways.push((&step.means, vec![step])),
        }
    }
    if ways.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{}\n",
        to_bold(
            "Renewed automatically, which takes some minutes or more",
            style
        )
    );
    for (means, steps) in ways {
        let mut names: Vec<String> = steps
            .iter()
            .map(|step| format!("{} ({})", step.name, day(step.at)))
            .collect();
        // Two pods may have bundles with the same name.
        names.sort();
        names.dedup();
        let text = format!("{means}: {}", names.join(", "));
        out += &format!("  - {}", wrap_text(&text, 4).trim_start());
    }
    out
}

fn day(seconds: u64) -> String {
    let text = format_utc(seconds);
    text.split('T').next().unwrap_or_default().to_owned()
}
