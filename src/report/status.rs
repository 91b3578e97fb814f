//! The state of the node and of the last run, as text and as JSON (`mco-rescue/status/v1`).

use serde::Serialize;

use super::daemon::described;
use super::digests::ShownDigests;
use super::fetch::seen_text;
use super::plan::{collapse_notices, notices_text};
use super::wrap_text;
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::text::{count_noun, make_inline, one_line};
use crate::base::time::{format_age, format_utc};
use crate::change::plan::staged::SOFT_REBOOT;
use crate::change::staging::awaited::{Awaited, Verdict, Way};
use crate::change::transaction::{LastRun, PendingState, RunOutcome};
use crate::change::trial::{TrialOutcome, TrialResult};
use crate::diagnose::first_boot::FirstBootResult;
use crate::judge::daemon::forecast::Forecast;
use crate::run::status::{NodeStatus, OsReport};

/// Shown for what cannot be read; the log has the reason.
pub(super) const UNREADABLE: &str = "(not known: it cannot be read)";

/// Returns the state as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(status: &NodeStatus) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct StatusDocument<'a> {
        #[serde(flatten)]
        status: &'a NodeStatus,
        #[serde(serialize_with = "described")]
        daemon: &'a Option<Forecast>,
    }
    let daemon = &status.daemon;
    super::to_document("mco-rescue/status/v1", &StatusDocument { status, daemon })
}

/// Returns true if the end of a trial is worth a line: nothing was changed since, and a confirmed one is less than a day old.
fn is_news(report: &NodeStatus, last: &TrialResult) -> bool {
    const DAY: u64 = 24 * 60 * 60;
    // The run that reverts a change ends slightly before the trial.
    let run = report.last_run.as_ref();
    let is_last = run.is_none_or(|run| !last.is_before(run.finished));
    let is_fresh = report.now < last.ended.saturating_add(DAY);
    is_last && (is_fresh || last.outcome != TrialOutcome::Confirmed)
}

/// Returns the state as text: first the verdict and the next command. `whole` adds the notices of the last run.
pub fn to_text(report: &NodeStatus, whole: bool) -> String {
    let mut out = head(report);
    add_line(&mut out, "Root", &report.root);
    if let Some(deployment) = &report.deployment {
        add_line(&mut out, "Deployed", deployment);
    }
    out.extend(report.os.as_ref().map(deployments));
    out.push_str(&boots_text(report));
    out.push_str(&record_text(report));
    out.push_str(&seen_text(&report.seen));
    for (index, notice) in report.beside.iter().enumerate() {
        let label = if index == 0 { "Beside" } else { "" };
        out.push_str(&wrapped(label, &notice.to_string()));
    }
    out.push_str(&wrapped("Pending", pending_words(report.pending)));
    if let Some(config) = &report.pending_config {
        add_line(&mut out, "", config);
    }
    if !report.frozen.is_empty() {
        out.push_str(&wrapped("Frozen", &frozen(&report.frozen)));
    }
    out.push_str(&runs_text(report, whole));
    if let Some(forecast) = &report.daemon {
        let text = forecast.text(forecast.begin());
        // What the head has is not repeated.
        if !out.starts_with(&text) {
            out.push_str(&text);
        }
    }
    ShownDigests::default().shorten(&out)
}

/// Number of lines of a forecast that is shown whole at the top.
const SHORT_FORECAST: usize = 2;

/// Returns the verdict and the next command.
fn head(report: &NodeStatus) -> String {
    if report.pending != PendingState::Nothing {
        let said = pending_words(report.pending);
        let said = format!("This node: {said}. Next: {}", mco_rescue("recover"));
        return wrap_text(&said, 0) + "\n";
    }
    let Some(forecast) = &report.daemon else {
        return String::new();
    };
    let text = forecast.text(forecast.begin());
    let mut out = if text.lines().count() <= SHORT_FORECAST {
        text
    } else {
        let first = text.lines().next().unwrap_or_default();
        let end = first
            .trim_end_matches(':')
            .trim_end_matches(", and reports");
        format!("{end}\n")
    };
    // The command that an awaited boot or a mismatch needs is with them.
    let has_own = report.awaited.is_some() || report.half.is_some();
    let next = match &report.unapplied {
        Some(made) => Some(format!(
            "{} # made here by change, and not applied yet",
            mco_rescue(&format!("apply cached:{made}"))
        )),
        None => forecast.next(),
    };
    if let Some(next) = next.filter(|_| !has_own) {
        out.push_str(&wrap_text(&format!("Next: {next}"), 0));
    }
    out + "\n"
}

fn add_line(out: &mut String, label: &str, value: &str) {
    out.push_str(&format!("{label:<10}{}\n", one_line(value)));
}

/// Returns the trial, and what a reboot is awaited or needed for.
fn boots_text(report: &NodeStatus) -> String {
    let mut out = String::new();
    let last = report.last_trial.as_ref();
    if report.is_unreadable("trial") {
        out.push_str(&wrapped("Trial", UNREADABLE));
    } else if let Some(trial) = &report.trial {
        out.push_str(&wrapped("Trial", &trial.words()));
    } else if let Some(last) = last.filter(|last| is_news(report, last)) {
        out.push_str(&wrapped("Trial", &last.words()));
    }
    if let (Some(awaited), Some(verdict)) = (&report.awaited, &report.verdict) {
        let (words, next) = (
            awaited.describe_boot(verdict),
            awaited_next(awaited, verdict),
        );
        let when = match awaited.since {
            0 => String::new(),
            since => format!(
                "; begun {} ({})",
                format_utc(since),
                format_age(since, report.now)
            ),
        };
        out.push_str(&wrapped(
            "Boot into",
            &format!("{words}{when}. Next: {next}"),
        ));
    }
    if let Some(reboot) = &report.reboot {
        let (since, past) = (
            format_utc(reboot.since),
            format_age(reboot.since, report.now),
        );
        let text = format!("needed since {since} ({past}): {}", reboot.words());
        out.push_str(&wrapped("Reboot", &text));
    }
    if let Some(half) = &report.half {
        let text = format!("{}. Next: {}", half.words, half.next);
        out.push_str(&wrapped("Mismatch", &text));
    }
    out
}

/// Returns the recorded config and image, and the release.
fn record_text(report: &NodeStatus) -> String {
    let mut out = String::new();
    let recorded = report.recorded.as_deref().unwrap_or("(no config)");
    add_line(&mut out, "Recorded", recorded);
    if let Some(note) = &report.record_note {
        add_line(&mut out, "", note);
    }
    if let Some(signed) = &report.recorded_signed {
        out.push_str(&wrapped("Signed by", &signed.to_string()));
    }
    let wanted = report.wanted_image.as_deref();
    add_line(&mut out, "Image", wanted.unwrap_or("(no record of one)"));
    if let Some(image) = report.disk_image.as_deref() {
        let is_other = wanted.is_some_and(|wanted| wanted != image);
        let other = if is_other { " (another one)" } else { "" };
        add_line(&mut out, "On disk", &format!("{image}{other}"));
    }
    if let Some(forecast) = &report.daemon {
        out.push_str(&wrapped("Release", &forecast.release_words));
    }
    out
}

/// Returns the run in the initramfs, the kept runs and the last one.
fn runs_text(report: &NodeStatus, whole: bool) -> String {
    let mut out = String::new();
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", make_inline(value)));
    if let Some(boot) = &report.firstboot {
        line("This boot", &boot_text(boot));
    }
    if report.history.is_none() {
        line("Rollback", UNREADABLE);
    }
    for (index, kept) in report.history.iter().flatten().enumerate() {
        let label = if index == 0 { "Rollback" } else { "" };
        line(label, &format!("to before {}", kept.config));
        let (when, past) = (format_utc(kept.began), format_age(kept.began, report.now));
        line("", &format!("run {}, {when} ({past})", kept.id));
    }
    if report.is_unreadable("last_run") {
        out.push_str(&format!("{:<10}{UNREADABLE}\n", "Last run"));
    } else {
        out.push_str(&last_run(report.last_run.as_ref(), report.now, whole));
    }
    out
}

/// Returns the running deployment, the kept ones, and the staged one.
fn deployments(os: &OsReport) -> String {
    let mut out = String::new();
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", one_line(value)));
    let pinned = if os.pinned { " (pinned)" } else { "" };
    line("Booted", &format!("{}{pinned}", or_unknown(&os.booted)));
    for words in &os.by_hand {
        line("", &format!("changed by hand: {words}"));
    }
    for image in &os.kept {
        line(
            "Kept",
            &format!("{} (for a rollback, pinned)", or_unknown(image)),
        );
    }
    if let Some(staged) = &os.staged {
        let when = if os.staged_locked {
            "locked: no reboot enters it"
        } else {
            "runs after a reboot"
        };
        line("Staged", &format!("{} ({when})", or_unknown(staged)));
        for words in &os.staged_by_hand {
            line("", &format!("changed by hand: {words}"));
        }
    }
    if let Some(queued) = &os.queued {
        let when = if os.staged.is_some() && !os.staged_locked {
            "kept, behind what is staged"
        } else {
            "runs after a reboot"
        };
        line("Queued", &format!("{} ({when})", or_unknown(queued)));
    }
    if let Some(problem) = &os.problem {
        out.push_str(&wrapped("", &one_line(problem)));
    }
    match &os.staged_by {
        Some(by) => {
            let words = format!("not by mco-rescue, but by {by}; {}", os.enter);
            out.push_str(&wrapped("", &words));
        }
        None if os.staged_locked => out.push_str(&wrapped("", &os.enter)),
        None => {}
    }
    if os.soft_reboot {
        out.push_str(&wrapped("", SOFT_REBOOT));
    }
    out
}

fn frozen(files: &[String]) -> String {
    let thaw = files.iter().map(|file| format!("echo 0 >{file}"));
    format!(
        "the daemon's container, frozen by the interrupted run. Next: {}, or {} # thaws it alone",
        mco_rescue("recover"),
        thaw.collect::<Vec<_>>().join("; ")
    )
}

fn or_unknown(image: &str) -> &str {
    if image.is_empty() {
        "(unknown image)"
    } else {
        image
    }
}

fn wrapped(label: &str, text: &str) -> String {
    format!("{label:<10}{}", wrap_text(text, 10).trim_start())
}

/// Returns the next command for an awaited boot.
pub fn awaited_next(awaited: &Awaited, verdict: &Verdict) -> String {
    let apply = awaited.apply_command();
    let either = format!("{apply}, or {}", mco_rescue("rollback"));
    // Another program's work is in the way.
    let over = format!(
        "{apply} --takeover, or {}",
        mco_rescue("rollback --takeover")
    );
    match (verdict, awaited.way) {
        (Verdict::AtWork, _) => format!("{} # until it has ended", mco_rescue("status")),
        (Verdict::Waits, _) => reboot_command().to_owned(),
        (Verdict::NotKnown, _) => mco_rescue("status"),
        (Verdict::Replaced(_), Way::Back) => mco_rescue("rollback --takeover"),
        (Verdict::Replaced(_), Way::Forward) => over,
        (Verdict::Due(_), _) => mco_rescue("complete"),
        (Verdict::Failed, Way::Back) if awaited.half => mco_rescue("apply"),
        (_, Way::Back) => mco_rescue("rollback"),
        (Verdict::Failed, _) if !awaited.half => apply,
        _ => either,
    }
}

fn boot_text(boot: &FirstBootResult) -> String {
    match (&boot.phase, &boot.cause) {
        (Some(phase), Some(cause)) => format!("failed while {phase}: {cause}"),
        _ => format!("{} ({})", boot.outcome.word(), boot.why),
    }
}

fn pending_words(pending: PendingState) -> &'static str {
    match pending {
        PendingState::Nothing => "nothing",
        PendingState::Staged => "files of a run that changed nothing",
        PendingState::Unfinished => "a run is unfinished",
        PendingState::Committed => "a finished run is not cleaned up",
    }
}

fn last_run(run: Option<&LastRun>, now: u64, whole: bool) -> String {
    let Some(run) = run else {
        return "Last run  (none)\n".to_owned();
    };
    let outcome = match run.outcome {
        RunOutcome::Done => "done".to_owned(),
        RunOutcome::RolledBack => "failed, everything was restored".to_owned(),
        RunOutcome::Incomplete => format!("incomplete; run {}", mco_rescue("recover")),
        RunOutcome::Recovered => "an interrupted run was finished".to_owned(),
        RunOutcome::Undone => "an interrupted run was undone".to_owned(),
    };
    let (when, past) = (format_utc(run.finished), format_age(run.finished, now));
    let by = run
        .by
        .as_ref()
        .map(|by| format!(", by {}", make_inline(by)));
    let by = by.unwrap_or_default();
    let mut out = wrapped("Last run", &format!("{when} ({past}) {outcome}{by}"));
    out.push_str(&format!("          {}\n", make_inline(&run.config.name)));
    for phase in &run.phases {
        out.push_str(&format!("          {}: ", phase.name));
        out.push_str(wrap_text(&phase.result, 12).trim_start());
    }
    let notices = collapse_notices(&run.notices, "");
    if whole {
        return out + "\n" + &notices_text("Notices of the last run", &notices);
    }
    if !notices.is_empty() {
        let number = count_noun(notices.len(), "notice");
        out.push_str(&format!("          {number} (-v lists them)\n"));
    }
    out + "\n"
}
