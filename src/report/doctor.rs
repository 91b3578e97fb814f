//! The diagnosis of a node, as text that can be read out over the phone, and as JSON (`mco-rescue/doctor/v1`).

use serde::Serialize;

use super::digests::ShownDigests;
use super::history::{moment_text, of_difference};
use super::{line_width, wrap_text};
use crate::base::invocation::{PrintedCommand, mco_rescue};
use crate::base::text::{count_noun, make_inline};
use crate::base::time::{current_time, format_utc};
use crate::change::session::access;
use crate::diagnose::doctor::since::{EvidenceChange, Since, SinceDifference};
use crate::diagnose::doctor::{CheckSeverity, Diagnosis, DoctorCheck, DoctorFinding, Fact, Looked};
use crate::node::engine::Engine;

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
    now: u64,
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

#[derive(Serialize)]
struct CheckList {
    schema: &'static str,
    checks: Vec<ListedCheck>,
}

#[derive(Serialize)]
struct ListedCheck {
    id: &'static str,
    title: String,
    looks_at: String,
}

/// Returns the diagnosis as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(root: &str, diagnosis: &Diagnosis) -> serde_json::Result<String> {
    let document = DoctorDocument {
        schema: "mco-rescue/doctor/v1",
        now: current_time(),
        root,
        worst: diagnosis.worst_severity(),
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

/// Returns the diagnosis as text: the findings, worst first, what was not checked, and at the end the verdict with the next
/// command. `whole` adds what each check reads, and which checks could not read what.
pub fn to_text(root: &str, diagnosis: &Diagnosis, style: Style, whole: bool) -> String {
    let mut out = String::new();
    for finding in &diagnosis.findings {
        out.push_str(&of_finding(finding, style));
        out.push('\n');
    }
    if whole {
        out.push_str("Checked:\n");
        for check in &diagnosis.checks {
            out.push_str(&hang_text(check.id, &check.looks_at));
        }
        out.push('\n');
    }
    if let Some(since) = &diagnosis.since {
        out.push_str(&of_since(since));
    }
    let is_healthy = diagnosis.findings.is_empty();
    // Where nothing was found, the last line names the command.
    let details = if is_healthy {
        String::new()
    } else {
        format!(": {}", mco_rescue("doctor -v"))
    };
    let most = if whole { usize::MAX } else { FEW_REASONS };
    out.push_str(&not_looked_at(&diagnosis.checks, whole, most, &details));
    out.push_str(&skipped(&diagnosis.checks, whole));
    if !is_healthy && !out.ends_with("\n\n") {
        out.push('\n');
    }
    if !whole {
        out = ShownDigests::default().shorten(&out);
    }
    out.push_str(&verdict(root, diagnosis, whole));
    to_ascii(out, style)
}

/// Returns all checks as text: ids and titles in two columns, in the words of this engine.
pub fn list_to_text(checks: &[DoctorCheck], engine: Engine, style: Style) -> String {
    let lines = checks
        .iter()
        .map(|check| hang_text(check.id, &engine.spell(check.title)));
    to_ascii(lines.collect(), style)
}

/// Returns all checks as JSON (`mco-rescue/doctor-list/v1`), in the words of this engine.
///
/// # Errors
/// The serializer's error.
pub fn list_to_json(checks: &[DoctorCheck], engine: Engine) -> serde_json::Result<String> {
    let checks = checks.iter().map(|check| ListedCheck {
        id: check.id,
        title: engine.spell(check.title),
        looks_at: engine.spell(check.looks_at),
    });
    let document = CheckList {
        schema: "mco-rescue/doctor-list/v1",
        checks: checks.collect(),
    };
    super::pretty(&document)
}

/// Returns one check as text, in the words of this engine.
pub fn of_check(check: &DoctorCheck, engine: Engine, style: Style) -> String {
    let title = engine.spell(check.title);
    let mut out = format!("{}: {title}\n", to_bold(check.id, style));
    out.push_str(&hang_text("Checks", &engine.spell(check.looks_at)));
    for paragraph in engine.spell(check.explain).split("\n\n") {
        out.push('\n');
        out.push_str(&wrap_text(paragraph, 0));
    }
    to_ascii(out, style)
}

/// Returns the reason why another check covers an id.
pub fn of_alias(why: &str, style: Style) -> String {
    to_ascii(format!("{}\n", wrap_text(why, 0)), style)
}

/// Returns the last lines: what was found, and the next command.
fn verdict(root: &str, diagnosis: &Diagnosis, whole: bool) -> String {
    let Some(first) = diagnosis.findings.first() else {
        return nothing(root, &diagnosis.checks, whole);
    };
    let counts = counts(&diagnosis.findings);
    let mut out = wrap_text(
        &format!(
            "{counts}. First: {}, {}",
            first.id,
            make_inline(&first.what)
        ),
        0,
    );
    let next = match first.next.first() {
        Some(next) => make_inline(next),
        None => mco_rescue(&format!("doctor {}", first.id)),
    };
    // A command stays on its line, to be copied; an instruction is wrapped as in the finding.
    let label = "Next: ";
    out.push_str(label);
    out.push_str(&if PrintedCommand::new(&next).is_instruction() {
        wrap_text(&next, label.len()).trim_start().to_owned()
    } else {
        format!("{next}\n")
    });
    out
}

/// Returns the number of findings of each severity, worst first: `1 critical, 2 warnings`.
fn counts(findings: &[DoctorFinding]) -> String {
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
    counts.join(", ")
}

fn nothing(root: &str, checks: &[Looked], whole: bool) -> String {
    let all = count_noun(checks.len(), "check");
    let is_denied = |check: &&Looked| check.unseen.iter().any(|why| access::is_denied(why));
    let denied = checks.iter().filter(is_denied).count();
    if denied > 0 {
        let text = format!(
            "Nothing found yet: {denied} of {all} of {root} could not read what only root can read."
        );
        return wrap_text(&text, 0) + &format!("Next: sudo {}\n", mco_rescue("doctor"));
    }
    let partial = checks.iter().filter(|check| !check.unseen.is_empty());
    match partial.count() {
        0 => wrap_text(&format!("Nothing found wrong with {root} by {all}."), 0),
        some => {
            let text = format!(
                "Nothing found wrong with {root} by {all}, of which {some} could not check everything."
            );
            let details = format!("Details: {}\n", mco_rescue("doctor -v"));
            wrap_text(&text, 0) + if whole { "" } else { &details }
        }
    }
}

/// Returns one finding as text.
pub(super) fn of_finding(finding: &DoctorFinding, style: Style) -> String {
    let word = coloured(finding.severity, style);
    let mut out = format!("{word} {}: {}\n", finding.id, make_inline(&finding.what));
    for (index, command) in finding.next.iter().enumerate() {
        // A command stays on one line so that it can be copied.
        let label = if index == 0 { "Next" } else { "then" };
        out.push_str(&if PrintedCommand::new(command).is_instruction() {
            hang_text(label, command)
        } else {
            format!("  {label:<INDENT$}{}\n", make_inline(command))
        });
    }
    if let Some(fix) = &finding.fix {
        let label = "Fix";
        out.push_str(&format!(
            "  {label:<INDENT$}{}\n",
            make_inline(&fix.command)
        ));
    }
    for (index, fact) in finding.evidence.iter().enumerate() {
        let label = if index == 0 { "Evidence" } else { "" };
        out.push_str(&hang_text(label, &of_fact(fact)));
    }
    if let Some(words) = &finding.daemon {
        // The message stays on one line too, so that it can be searched for in the log.
        let label = "Log";
        out.push_str(&format!(
            "  {label:<INDENT$}{}\n",
            make_inline(words.trim_end())
        ));
    }
    out.push_str(&hang_text("Means", &finding.means));
    if let Some(change) = &finding.changed {
        out.push_str(&hang_text("Changed", &of_change(change)));
    }
    out
}

/// Returns the time of a change, and the moments around it.
fn of_change(change: &EvidenceChange) -> String {
    let (now, from, until) = (current_time(), &change.from, &change.until);
    let when = match until.snapshot {
        Some(_) => format_utc(until.at),
        None => format!("since {}", format_utc(from.at)),
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
    let all: Vec<&SinceDifference> = since.unexplained_differences().collect();
    if all.is_empty() {
        return String::new();
    }
    let good = moment_text(&since.good, current_time());
    let mut out = wrap_text(
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
    let place = make_inline(&fact.place);
    if fact.said.is_empty() {
        place
    } else {
        format!("{place}: {}", fact.said)
    }
}

/// Reasons for what was not checked that are printed without `-v`.
const FEW_REASONS: usize = 2;

/// Returns each reason why something was not checked, with the checks, or their number where they are many.
fn not_looked_at(checks: &[Looked], whole: bool, most: usize, details: &str) -> String {
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
    for (why, ids) in seen.iter().take(most) {
        let label = match ids.as_slice() {
            [id] => (*id).to_owned(),
            ids if whole => ids.join(" "),
            ids => count_noun(ids.len(), "check"),
        };
        out.push_str(&match most {
            usize::MAX => hang_text(&label, why),
            _ => first_line(&hang_text(&label, without_command(why))),
        });
    }
    let more = seen.len().saturating_sub(most);
    if more > 0 {
        let more = count_noun(more, "other reason");
        out.push_str(&format!("  and for {more}{details}\n"));
    }
    out
}

/// Returns the beginning of a reason, up to the command that it names: half a command is none.
fn without_command(why: &str) -> &str {
    let begins = ["; ", " Next: ", " mco-rescue "];
    let end = begins.iter().filter_map(|begin| why.find(begin)).min();
    let kept = &why[..end.unwrap_or(why.len())];
    kept.trim_end_matches([':', ',', '.'])
}

/// Returns the first line of a text, with an ellipsis if there are more.
fn first_line(text: &str) -> String {
    match text.trim_end().split_once('\n') {
        None => text.to_owned(),
        Some((first, _)) => {
            let kept: String = first.chars().take(line_width() - 4).collect();
            format!("{kept} ...\n")
        }
    }
}

/// Returns a line about the slow parts that were left to `--deep`, or nothing.
fn skipped(checks: &[Looked], whole: bool) -> String {
    let parts = checks.iter().filter(|check| !check.skipped.is_empty());
    let parts: Vec<String> = parts
        .map(|check| format!("{} {}", check.id, check.skipped.join(", ")))
        .collect();
    let deep = mco_rescue("doctor --deep");
    match (parts.is_empty(), whole) {
        (true, _) => String::new(),
        (_, true) => {
            wrap_text(
                &format!("Slow parts were skipped: {}.", parts.join("; ")),
                0,
            ) + &format!("  {deep}\n")
        }
        (_, false) => {
            let parts = count_noun(parts.len(), "check");
            format!("Slow parts of {parts} were skipped: {deep}\n")
        }
    }
}

/// Returns a label with a text wrapped next to it.
pub(super) fn hang_text(label: &str, text: &str) -> String {
    let wrapped = wrap_text(text, 2 + INDENT);
    let label: String = format!("  {label:<INDENT$}");
    // A blank has to follow the label.
    if !label.ends_with(' ') {
        return wrap_text(&label, 2) + &wrapped;
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

/// Returns text that the terminal can show.
pub(super) fn to_ascii(text: String, style: Style) -> String {
    if !style.ascii || text.is_ascii() {
        return text;
    }
    let spelled = |c: char| {
        if c.is_ascii() {
            c.to_string()
        } else {
            c.escape_default().to_string()
        }
    };
    text.chars().map(spelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::DoctorEvidence;
    use crate::diagnose::doctor::run_checks;
    use crate::diagnose::doctor::{CheckVerdict, WHAT};
    use crate::report::WIDTH;

    fn sick(_: &DoctorEvidence) -> CheckVerdict {
        let finding = DoctorFinding::critical("w".repeat(WHAT), "long ".repeat(60))
            .with_evidence("/etc/\u{e9}\n", "x".repeat(20))
            .next("mco-rescue apply");
        CheckVerdict::one_finding(finding).and_unseen("it was dark")
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
        let evidence = DoctorEvidence::default();
        run_checks(&[check], &evidence)
    }

    #[test]
    fn the_worst_stands_first_and_the_verdict_last() {
        let style = Style {
            ascii: true,
            colour: false,
        };
        let text = to_text("/", &diagnosis(sick), style, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("CRITICAL FP-01: www"), "{text}");
        assert_eq!(lines[1].trim(), "Next     mco-rescue apply");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.is_ascii());
        assert!(text.contains("/etc/\\u{e9}\\n"), "{text}");
        assert!(
            text.contains("Not checked:\n  FP-01    it was dark\n"),
            "{text}"
        );
        assert!(text.contains("\n1 critical. First: FP-01,"), "{text}");
        assert!(text.ends_with("\nNext: mco-rescue apply\n"), "{text}");
    }

    #[test]
    fn the_verdict_counts_by_severity() {
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
        let text = to_text("/", &many, Style::default(), false);
        let end = "\n10 critical, 10 warnings, 10 notices. First: FP-01, w\nNext: mco-rescue doctor FP-01\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_healthy_node_gets_one_line_and_more_if_asked() {
        let verdict = "Nothing found wrong with / by 1 check.\n";
        let text = to_text("/", &diagnosis(well), Style::default(), false);
        assert_eq!(text, verdict);
        let text = to_text("/", &diagnosis(well), Style::default(), true);
        assert_eq!(text, format!("Checked:\n  FP-01    the moon\n\n{verdict}"));
    }

    #[test]
    fn reasons_beyond_two_are_counted_where_nothing_was_found() {
        let dark = |_: &DoctorEvidence| {
            let verdict = CheckVerdict::healthy().and_unseen("no moon");
            verdict.and_unseen("no sun").and_unseen("no star")
        };
        let text = to_text("/", &diagnosis(dark), Style::default(), false);
        assert_eq!(
            text,
            "Not checked:\n  FP-01    no moon\n  FP-01    no sun\n  and for 1 other reason\n\
             Nothing found wrong with / by 1 check, of which 1 could not check everything.\n\
             Details: mco-rescue doctor -v\n"
        );
    }

    #[test]
    fn slow_parts_that_were_skipped_change_nothing_else() {
        let slow = |_: &DoctorEvidence| CheckVerdict::healthy().and_skipped("hashes of objects");
        let text = to_text("/", &diagnosis(slow), Style::default(), false);
        let line = "Slow parts of 1 check were skipped: mco-rescue doctor --deep\n";
        let same = to_text("/", &diagnosis(well), Style::default(), false);
        assert_eq!(text, line.to_owned() + &same);
    }

    #[test]
    fn colours_come_only_where_they_are_asked_for() {
        let with = Style {
            ascii: false,
            colour: true,
        };
        assert!(to_text("/", &diagnosis(sick), with, false).contains("\x1b[1;31mCRITICAL\x1b[0m"));
        assert!(!to_text("/", &diagnosis(sick), Style::default(), false).contains('\x1b'));
    }
}
