//! The diagnosis of a node, as text that can be read out over the phone, and as JSON (`mco-rescue/doctor/v1`).

use serde::Serialize;

use super::history::{moment_text, of_difference};
use super::{WIDTH, wrap};
use crate::base::invocation::{PrintedCommand, mco_rescue};
use crate::base::text::{count_noun, inline};
use crate::base::time::{now, utc};
use crate::diagnose::doctor::since::{EvidenceChange, Since, SinceDifference};
use crate::diagnose::doctor::{CheckSeverity, Diagnosis, DoctorCheck, DoctorFinding, Fact, Looked};
use crate::node::system::Engine;

/// The abilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// True to use only ASCII; other characters are escaped.
    pub ascii: bool,
    /// Colours.
    pub colour: bool,
}

/// Column at which the text of a field starts.
const INDENT: usize = 9;

#[derive(Serialize)]
struct DoctorDocument<'a> {
    schema: &'static str,
    root: &'a str,
    worst: Option<CheckSeverity>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

#[derive(Serialize)]
struct Explained<'a> {
    schema: &'static str,
    id: &'a str,
    title: String,
    looks_at: String,
    explanation: String,
}

/// Returns the diagnosis as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(root: &str, diagnosis: &Diagnosis) -> serde_json::Result<String> {
    let document = DoctorDocument {
        schema: "mco-rescue/doctor/v1",
        root,
        worst: diagnosis.worst(),
        diagnosis,
    };
    super::pretty(&document)
}

/// Returns one check as JSON, in this engine's terms.
///
/// # Errors
/// The serializer's error.
pub fn json_of_check(check: &DoctorCheck, engine: Engine) -> serde_json::Result<String> {
    let document = Explained {
        schema: "mco-rescue/doctor-check/v1",
        id: check.id,
        title: engine.spell(check.title),
        looks_at: engine.spell(check.looks_at),
        explanation: engine.spell(check.explain),
    };
    super::pretty(&document)
}

/// Returns the diagnosis as text. The first three lines are the worst finding and its next step.
pub fn to_text(root: &str, diagnosis: &Diagnosis, style: Style) -> String {
    let mut out = headline(root, diagnosis);
    for finding in &diagnosis.findings {
        out.push_str(&of_finding(finding, style));
        out.push('\n');
    }
    if diagnosis.findings.is_empty() {
        out.push_str("Checked:\n");
        diagnosis.checks.iter().for_each(|check| {
            out.push_str(&hang_text(check.id, &check.looks_at));
        });
    }
    if let Some(since) = &diagnosis.since {
        if diagnosis.findings.is_empty() {
            out.push('\n');
        }
        out.push_str(&of_since(since));
    }
    out.push_str(&not_looked_at(&diagnosis.checks));
    out.push_str(&skipped(&diagnosis.checks));
    to_ascii(out, style)
}

/// Returns one check as text, in this engine's terms.
pub fn of_check(check: &DoctorCheck, engine: Engine, style: Style) -> String {
    let title = engine.spell(check.title);
    let mut out = format!("{}: {title}\n", to_bold(check.id, style));
    out.push_str(&hang_text("Checks", &engine.spell(check.looks_at)));
    for paragraph in engine.spell(check.explain).split("\n\n") {
        out.push('\n');
        out.push_str(&wrap(paragraph, 0));
    }
    to_ascii(out, style)
}

/// Returns the reason why another check covers an id.
pub fn of_alias(why: &str, style: Style) -> String {
    to_ascii(format!("{}\n", wrap(why, 0)), style)
}

fn headline(root: &str, diagnosis: &Diagnosis) -> String {
    let findings = &diagnosis.findings;
    let Some(first) = findings.first() else {
        return nothing(root, &diagnosis.checks);
    };
    let of = |severity: CheckSeverity| {
        let number = findings
            .iter()
            .filter(|one| one.severity == severity)
            .count();
        // "critical" has no plural.
        let word = match severity {
            CheckSeverity::Critical => format!("{number} critical"),
            other => count_noun(number, other.word()),
        };
        (number > 0).then_some(word)
    };
    let all = [
        CheckSeverity::Critical,
        CheckSeverity::Warning,
        CheckSeverity::Notice,
    ];
    let counts: Vec<String> = all.into_iter().filter_map(of).collect();
    let (counts, id) = (counts.join(", "), first.id);
    let line = |more: &str| format!("Found: {counts}. {more}: mco-rescue doctor {id}\n");
    let whole = line("More on the first");
    match whole.trim_end().len() > WIDTH {
        true => line("More"),
        false => whole,
    }
}

fn nothing(root: &str, checks: &[Looked]) -> String {
    let all = count_noun(checks.len(), "check");
    let partial = checks.iter().filter(|check| !check.unseen.is_empty());
    let text = match partial.count() {
        0 => format!("Nothing found wrong with {root} by {all}."),
        some => format!(
            "Nothing found wrong with {root} by {all}, of which {some} could not check everything."
        ),
    };
    wrap(&text, 0)
}

/// Returns one finding as text.
pub(super) fn of_finding(finding: &DoctorFinding, style: Style) -> String {
    let word = coloured(finding.severity, style);
    let mut out = format!("{word} {}: {}\n", finding.id, inline(&finding.what));
    for (index, command) in finding.next.iter().enumerate() {
        // A command stays on one line so that it can be copied.
        let label = if index == 0 { "Next" } else { "then" };
        out.push_str(&match PrintedCommand::new(command).is_instruction() {
            true => hang_text(label, command),
            false => format!("  {label:<INDENT$}{}\n", inline(command)),
        });
    }
    if let Some(fix) = &finding.fix {
        let label = "Fix";
        out.push_str(&format!("  {label:<INDENT$}{}\n", inline(&fix.command)));
    }
    for (index, fact) in finding.evidence.iter().enumerate() {
        let label = if index == 0 { "Seen" } else { "" };
        out.push_str(&hang_text(label, &of_fact(fact)));
    }
    if let Some(words) = &finding.daemon {
        // So does the daemon's message, so that it can be searched for.
        let label = "Says";
        out.push_str(&format!("  {label:<INDENT$}{}\n", inline(words.trim_end())));
    }
    out.push_str(&hang_text("Means", &finding.means));
    if let Some(change) = &finding.changed {
        out.push_str(&hang_text("Changed", &of_change(change)));
    }
    out
}

/// Returns the time of a change, and the moments around it.
fn of_change(change: &EvidenceChange) -> String {
    let (now, from, until) = (now(), &change.from, &change.until);
    let when = match until.snapshot {
        Some(_) => utc(until.at),
        None => format!("since {}", utc(from.at)),
    };
    format!(
        "{}, {when}: between {} and {}",
        change.subject,
        moment_text(from, now),
        moment_text(until, now)
    )
}

/// Returns the changes since the last good boot that no check explains.
fn of_since(since: &Since) -> String {
    let all: Vec<&SinceDifference> = since.unexplained().collect();
    if all.is_empty() {
        return String::new();
    }
    let good = moment_text(&since.good, now());
    let mut out = wrap(
        &format!("Changed since the last good boot ({good}), explained by no check:"),
        0,
    );
    for one in all.iter().take(UNEXPLAINED) {
        let mut difference = one.difference.clone();
        difference.text = None;
        out.push_str(&of_difference(&difference));
    }
    let more = all.len().saturating_sub(UNEXPLAINED);
    if more > 0 {
        out.push_str(&format!("  and {more} more: {}\n", mco_rescue("diff")));
    }
    out + "\n"
}

/// Number of changes that are listed.
const UNEXPLAINED: usize = 8;

fn of_fact(fact: &Fact) -> String {
    // It may be a path with a line break in its name.
    let place = inline(&fact.place);
    if fact.said.is_empty() {
        place
    } else {
        format!("{place}: {}", fact.said)
    }
}

fn not_looked_at(checks: &[Looked]) -> String {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for check in checks {
        for why in &check.unseen {
            match seen.iter_mut().find(|(known, _)| known == why) {
                Some((_, ids)) => ids.push(check.id),
                None => seen.push((why, vec![check.id])),
            }
        }
    }
    if seen.is_empty() {
        return String::new();
    }
    let mut out = "Not checked:\n".to_owned();
    for (why, ids) in seen {
        out.push_str(&hang_text(&ids.join(" "), why));
    }
    out
}

/// Returns the parts skipped without `--deep`; empty if there are none.
fn skipped(checks: &[Looked]) -> String {
    let parts = checks.iter().filter(|check| !check.skipped.is_empty());
    let parts: Vec<String> = parts
        .map(|check| format!("{} {}", check.id, check.skipped.join(", ")))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => wrap(
            &format!(
                "Slow parts were skipped: {}; run doctor --deep.",
                parts.join("; ")
            ),
            0,
        ),
    }
}

/// Returns a label with a text wrapped next to it.
pub(super) fn hang_text(label: &str, text: &str) -> String {
    let wrapped = wrap(text, 2 + INDENT);
    let label: String = format!("  {label:<INDENT$}");
    if label.chars().count() > 2 + INDENT {
        return wrap(&label, 2) + &wrapped;
    }
    label + wrapped.trim_start()
}

fn coloured(severity: CheckSeverity, style: Style) -> String {
    let word = severity.word().to_ascii_uppercase();
    let number = match severity {
        CheckSeverity::Critical => "1;31",
        CheckSeverity::Warning => "1;33",
        CheckSeverity::Notice => "1",
    };
    if style.colour {
        format!("\x1b[{number}m{word}\x1b[0m")
    } else {
        word
    }
}

/// Returns text in bold, if the terminal supports it.
pub(super) fn to_bold(text: &str, style: Style) -> String {
    if style.colour {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Returns text that the terminal can show, with other characters escaped.
pub(super) fn to_ascii(text: String, style: Style) -> String {
    if !style.ascii || text.is_ascii() {
        return text;
    }
    let spelled = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.escape_default().to_string(),
    };
    text.chars().map(spelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::DoctorEvidence;
    use crate::diagnose::doctor::examine;
    use crate::diagnose::doctor::{CheckVerdict, WHAT};

    fn sick(_: &DoctorEvidence) -> CheckVerdict {
        let finding = DoctorFinding::new(
            CheckSeverity::Critical,
            "w".repeat(WHAT),
            "long ".repeat(60),
        )
        .seen("/etc/\u{e9}\n", "x".repeat(20))
        .next("mco-rescue apply");
        CheckVerdict::found(finding).and_unseen("it was dark")
    }

    fn well(_: &DoctorEvidence) -> CheckVerdict {
        CheckVerdict::healthy()
    }

    fn diagnosis(judge: fn(&DoctorEvidence) -> CheckVerdict) -> Diagnosis {
        let check = DoctorCheck {
            id: "FP-01",
            title: "t",
            looks_at: "the moon",
            explain: "one\n\ntwo",
            judge,
        };
        let evidence = DoctorEvidence {
            has_system: true,
            ..DoctorEvidence::default()
        };
        examine(&[check], &evidence)
    }

    #[test]
    fn three_lines_are_enough_and_all_fit() {
        let style = Style {
            ascii: true,
            colour: false,
        };
        let text = to_text("/", &diagnosis(sick), style);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("CRITICAL FP-01: www"), "{text}");
        assert_eq!(lines[2].trim(), "Next     mco-rescue apply");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.is_ascii());
        assert!(text.contains("/etc/\\u{e9}\\n"), "{text}");
        assert!(text.contains("it was dark"));
    }

    #[test]
    fn the_first_line_fits_however_much_is_found() {
        let finding = |severity| DoctorFinding::new(severity, "w", "m");
        let all = [
            CheckSeverity::Critical,
            CheckSeverity::Warning,
            CheckSeverity::Notice,
        ];
        let mut many = diagnosis(well);
        many.findings = all
            .into_iter()
            .flat_map(|one| vec![finding(one); 10])
            .collect();
        many.findings[0].id = "FP-01";
        let text = to_text("/", &many, Style::default());
        let first = text.lines().next().unwrap();
        assert!(
            first.ends_with("10 notices. More: mco-rescue doctor FP-01"),
            "{first}"
        );
        assert!(first.len() <= WIDTH, "{first}");
    }

    #[test]
    fn a_healthy_node_is_told_what_was_looked_at() {
        let text = to_text("/", &diagnosis(well), Style::default());
        assert_eq!(
            text,
            "Nothing found wrong with / by 1 check.\nChecked:\n  FP-01    the moon\n"
        );
    }

    #[test]
    fn slow_parts_that_were_skipped_end_the_text_and_change_nothing_else() {
        let slow = |_: &DoctorEvidence| CheckVerdict::healthy().and_skipped("hashes of objects");
        let text = to_text("/", &diagnosis(slow), Style::default());
        let end = "Slow parts were skipped: FP-01 hashes of objects; run doctor --deep.\n";
        let same = to_text("/", &diagnosis(well), Style::default());
        assert_eq!(text, same + end);
    }

    #[test]
    fn colours_come_only_where_they_are_asked_for() {
        let with = Style {
            ascii: false,
            colour: true,
        };
        assert!(to_text("/", &diagnosis(sick), with).contains("\x1b[1;31mCRITICAL\x1b[0m"));
        assert!(!to_text("/", &diagnosis(sick), Style::default()).contains('\x1b'));
    }
}
