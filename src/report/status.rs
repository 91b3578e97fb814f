//! The state of the node and of the last run, as text and as JSON (`mco-rescue/status/v1`).

use serde::Serialize;

use super::daemon::described;
use super::fetch::seen_text;
use super::plan::{collapse_notices, notices_text};
use super::reboot::RebootReport;
use super::trial::TrialReport;
use super::wrap;
use crate::base::invocation::{mco_rescue, reboot};
use crate::base::notice::Notice;
use crate::base::text::{inline, one_line};
use crate::base::time::{ago, utc};
use crate::change::plan::staged::SOFT_REBOOT;
use crate::change::staging::awaited::{Awaited, Verdict, Way};
use crate::change::staging::next_boot::NextBoot;
use crate::change::transaction::{LastRun, RunOutcome};
use crate::change::trial::{TrialOutcome, TrialResult};
use crate::diagnose::first_boot::FirstBootResult;
use crate::judge::daemon::forecast::Forecast;
use crate::judge::drift::OsMatch;
use crate::node::System;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments};
use crate::node::engine::Engine;
use crate::node::system::SystemFacts;
use crate::run::cluster::ClusterReport;

/// The content of `status`.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    /// `mco-rescue/status/v1`.
    pub schema: &'static str,
    /// Seconds since 1970, by the clock of this machine.
    pub now: u64,
    /// Path of the root.
    pub root: String,
    /// Name of the deployment, on OSTree roots.
    pub deployment: Option<String>,
    /// The operating system, if the root is that of a running OSTree system.
    pub os: Option<OsReport>,
    /// What the next boot enters; missing if unknown.
    pub next_boot: Option<NextBootReport>,
    /// The trial that runs.
    pub trial: Option<TrialReport>,
    /// The end of the last trial.
    pub last_trial: Option<TrialResult>,
    /// The boot that a run waits for.
    pub awaited: Option<Awaited>,
    /// The state of that boot.
    #[serde(skip)]
    pub verdict: Option<Verdict>,
    /// How the running operating system compares with the record.
    #[serde(skip)]
    pub os_match: OsMatch,
    /// The reboot that changed files need.
    pub reboot: Option<RebootReport>,
    /// The mismatch between the running operating system and the record, if no boot is awaited.
    pub half: Option<Half>,
    /// Name of the recorded config.
    pub recorded: Option<String>,
    /// Digest of the recorded config.
    pub recorded_digest: Option<String>,
    /// The error in the record, or the reason why it cannot be used.
    pub record_note: Option<String>,
    /// The recorded layered image; empty without layering.
    pub recorded_image: Option<String>,
    /// The state of the cluster at the last query, and the configs in the daemon's log.
    #[serde(flatten)]
    pub seen: ClusterReport,
    /// `nothing`, `staged`, `unfinished`, `committed`.
    pub pending: &'static str,
    /// The config of the pending run.
    pub pending_config: Option<String>,
    /// Other programs that are changing the running node.
    pub beside: Vec<Notice>,
    /// Files that unfreeze the daemon's containers, which the pending run left frozen.
    pub frozen: Vec<String>,
    /// The result of this boot in the initramfs, on a live node whose initramfs has the module.
    pub firstboot: Option<FirstBootResult>,
    /// The last run.
    pub last_run: Option<LastRun>,
    /// Runs that `rollback` can revert, newest first; `None` if they cannot be read.
    pub history: Option<Vec<CacheCounts>>,
    /// Fields that are unknown because their source cannot be read: any of `history`, `last_run`, `trial` and `last_trial`.
    pub unreadable: Vec<&'static str>,
    /// The daemon's behaviour at its next start.
    #[serde(serialize_with = "described")]
    pub daemon: Option<Forecast>,
}

impl StatusReport {
    /// Returns true for a field that is unknown because its source cannot be read.
    pub fn is_unreadable(&self, field: &str) -> bool {
        self.unreadable.contains(&field)
    }
}

/// Shown for what cannot be read; the log has the reason.
const UNREADABLE: &str = "(not known: it cannot be read)";

/// A running operating system other than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Half {
    /// The difference.
    pub words: String,
    /// True if the next boot enters the recorded one.
    pub reboot: bool,
    /// The config whose image is running, if known: the node was booted into it before its files were written.
    pub runs: Option<String>,
    /// The commands that lead out.
    #[serde(skip)]
    pub next: String,
}

/// The staged or queued deployment, in addition to the engine's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StagedReport {
    /// The program that staged or queued it; `None` if it was this program.
    pub by: Option<String>,
    /// The commands that enter it, or stay with the running one.
    pub enter: String,
}

/// What the next boot enters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextBootReport {
    /// `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// Its kernel arguments, if known.
    pub kernel_arguments: Option<Vec<String>>,
    /// `stays`: the running deployment; `staged` or `queued`: another one.
    pub way: &'static str,
    /// Who staged or queued the first deployment in the list, which may be locked: `mco-rescue`, `others` or `unknown`.
    pub by: Option<&'static str>,
    /// True if a run is waiting for it; missing if no run is waiting, or if that is unknown.
    pub awaited: Option<bool>,
}

impl NextBootReport {
    /// Creates the report from the answer, and from how it relates to the awaited boot.
    pub fn of(next: &NextBoot, verdict: Option<&Verdict>) -> Self {
        Self {
            deployment: next.enters.deployment.clone(),
            image: next.enters.image.clone(),
            kernel_arguments: next.enters.kernel_arguments.clone(),
            way: next.way.word(),
            by: next.author(),
            awaited: match verdict {
                Some(Verdict::Waits) => Some(true),
                Some(Verdict::Dropped | Verdict::Replaced(_)) => Some(false),
                _ => None,
            },
        }
    }
}

/// The running operating system, and the one of the next boot.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OsReport {
    /// The running image.
    pub booted: String,
    /// The running deployment is pinned.
    pub pinned: bool,
    /// Changes made on the node on top of the running image.
    pub by_hand: Vec<String>,
    /// Changes made on top of the staged image.
    pub staged_by_hand: Vec<String>,
    /// Images of deployments that are kept for a rollback.
    pub kept: Vec<String>,
    /// The image that is staged.
    pub staged: Option<String>,
    /// The queued image: the next boot enters it, or would without the staged one.
    pub queued: Option<String>,
    /// The program or person that staged or queued it, unless this program did.
    pub staged_by: Option<String>,
    /// True if no reboot enters it: a download only, or waiting to be finalized.
    pub staged_locked: bool,
    /// The command that enters it.
    #[serde(skip)]
    pub enter: String,
    /// True if a soft reboot into a deployment is prepared.
    pub soft_reboot: bool,
    /// The program that stages: `rpm-ostree` or `bootc`; `composefs` on a system of bootc's composefs backend.
    pub engine: Option<&'static str>,
    /// The error with which the last shutdown failed to write the staged deployment, bootc's current operation, or the reason
    /// why nothing is known.
    pub problem: Option<String>,
}

impl OsReport {
    /// Creates the report from the state of rpm-ostree; `None` if rpm-ostree was not queried.
    pub fn of(system: &System, ours: &[String], staged: Option<StagedReport>) -> Option<Self> {
        match system {
            System::NotAsked => None,
            System::Composefs(system) => Some(Self {
                booted: system.image.clone().unwrap_or_default(),
                engine: Some("composefs"),
                problem: Some(format!(
                    "no OSTree node; bootc's composefs backend ({}). Only commands that read work here",
                    system.traces
                )),
                ..Self::default()
            }),
            System::Silent(why) => Some(Self {
                problem: Some(why.clone()),
                ..Self::default()
            }),
            System::Known(facts) => {
                let all = &facts.deployments;
                let staged = staged.unwrap_or_default();
                Some(Self {
                    booted: all.booted().map(Deployment::image).unwrap_or_default(),
                    pinned: all.pinned_copy_of_booted().is_some(),
                    by_hand: all.booted().map(Deployment::by_hand).unwrap_or_default(),
                    staged_by_hand: all.staged().map(Deployment::by_hand).unwrap_or_default(),
                    kept: kept(all, ours),
                    staged: all.staged().map(Deployment::image),
                    queued: all.queued().map(Deployment::image),
                    staged_by: staged.by,
                    staged_locked: all.staged().is_some_and(|one| one.finalization_locked),
                    enter: staged.enter,
                    soft_reboot: facts.soft_reboot,
                    engine: Some(facts.engine.name()),
                    problem: facts.finalize_error.clone().or_else(|| busy(facts)),
                })
            }
        }
    }
}

/// Returns a message if bootc is busy, so that only ostree answered.
fn busy(facts: &SystemFacts) -> Option<String> {
    let working = facts.deployments.transaction.as_ref();
    working.filter(|_| facts.engine == Engine::Bootc).map(|one| {
        format!(
            "bootc is busy with {} ({}) and answers nothing until it ends; this is what ostree lists",
            one.method, one.client
        )
    })
}

fn kept(all: &Deployments, ours: &[String]) -> Vec<String> {
    let others = all.ours(ours).filter(|one| one.pinned && !one.booted);
    others.map(Deployment::image).collect()
}

/// A run in the history.
#[derive(Debug, Clone, Serialize)]
pub struct CacheCounts {
    /// Id of the transaction.
    pub id: String,
    /// Name of the config that it applied.
    pub config: String,
    /// Seconds since 1970.
    pub began: u64,
}

/// Returns the state as JSON.
pub fn to_json(report: &StatusReport) -> serde_json::Result<String> {
    super::pretty(report)
}

/// Returns true if the end of a trial is worth a line: nothing was changed since, and a confirmed one is less than a day old.
fn is_news(report: &StatusReport, last: &TrialResult) -> bool {
    const DAY: u64 = 24 * 60 * 60;
    // The run that reverts a change ends slightly before the trial.
    let run = report.last_run.as_ref();
    let is_last = run.is_none_or(|run| !last.is_before(run.finished));
    let is_fresh = report.now < last.ended.saturating_add(DAY);
    is_last && (is_fresh || last.outcome != TrialOutcome::Confirmed)
}

/// Returns the state as text.
pub fn to_text(report: &StatusReport) -> String {
    let mut out = String::new();
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", one_line(value)));
    line("Root", &report.root);
    if let Some(deployment) = &report.deployment {
        line("Deployed", deployment);
    }
    out.extend(report.os.as_ref().map(deployments));
    if report.is_unreadable("trial") {
        out.push_str(&wrapped("Trial", UNREADABLE));
    } else if let Some(trial) = &report.trial {
        out.push_str(&wrapped("Trial", &trial.words()));
    } else if let Some(last) = report
        .last_trial
        .as_ref()
        .filter(|last| is_news(report, last))
    {
        out.push_str(&wrapped("Trial", &last.words()));
    }
    if let (Some(awaited), Some(verdict)) = (&report.awaited, &report.verdict) {
        let (words, next) = (awaited.words(verdict), awaited_next(awaited, verdict));
        let when = match awaited.since {
            0 => String::new(),
            since => format!("; begun {} ({})", utc(since), ago(since, report.now)),
        };
        out.push_str(&wrapped("Awaited", &format!("{words}{when}. Next: {next}")));
    }
    if let Some(reboot) = &report.reboot {
        let past = ago(reboot.since, report.now);
        out.push_str(&wrapped(
            "Reboot",
            &format!(
                "needed since {} ({past}): {}",
                utc(reboot.since),
                reboot.words()
            ),
        ));
    }
    if let Some(half) = &report.half {
        out.push_str(&wrapped(
            "Mixed",
            &format!("{}. Next: {}", half.words, half.next),
        ));
    }
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", one_line(value)));
    line(
        "Recorded",
        report.recorded.as_deref().unwrap_or("(no config)"),
    );
    if let Some(note) = &report.record_note {
        line("", note);
    }
    match report.recorded_image.as_deref() {
        None => line("Image", "(no record)"),
        Some("") => line("Image", "not layered"),
        Some(image) => line("Image", image),
    }
    if let Some(forecast) = &report.daemon {
        out.push_str(&wrapped("Release", &forecast.release_words));
    }
    out.push_str(&seen_text(&report.seen));
    for (index, notice) in report.beside.iter().enumerate() {
        let label = if index == 0 { "Beside" } else { "" };
        let text = format!("{}: {}", notice.subject, notice.message);
        out.push_str(&wrapped(label, &text));
    }
    out.push_str(&wrapped("Pending", &pending_text(report.pending)));
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", one_line(value)));
    if let Some(config) = &report.pending_config {
        line("", config);
    }
    if !report.frozen.is_empty() {
        out.push_str(&wrapped("Frozen", &frozen(&report.frozen)));
    }
    let mut line =
        |label: &str, value: &str| out.push_str(&format!("{label:<10}{}\n", inline(value)));
    if let Some(boot) = &report.firstboot {
        line("This boot", &boot_text(boot));
    }
    if report.history.is_none() {
        line("Rollback", UNREADABLE);
    }
    for (index, kept) in report.history.iter().flatten().enumerate() {
        let label = if index == 0 { "Rollback" } else { "" };
        let text = format!("to before {}", kept.config);
        out.push_str(&format!("{label:<10}{}\n", inline(&text)));
        let (when, past) = (utc(kept.began), ago(kept.began, report.now));
        out.push_str(&format!(
            "{:10}run {}, {when} ({past})\n",
            "",
            inline(&kept.id)
        ));
    }
    match report.is_unreadable("last_run") {
        true => out.push_str(&format!("{:<10}{UNREADABLE}\n", "Last run")),
        false => out.push_str(&last_run(report.last_run.as_ref(), report.now)),
    }
    let forecast = report.daemon.as_ref();
    out.extend(forecast.map(Forecast::text_with_next));
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
        let when = match os.staged_locked {
            true => "locked: no reboot enters it",
            false => "runs after a reboot",
        };
        line("Staged", &format!("{} ({when})", or_unknown(staged)));
        for words in &os.staged_by_hand {
            line("", &format!("changed by hand: {words}"));
        }
    }
    if let Some(queued) = &os.queued {
        let when = match os.staged.is_some() && !os.staged_locked {
            true => "kept, behind what is staged",
            false => "runs after a reboot",
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
    format!("{label:<10}{}", wrap(text, 10).trim_start())
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
        (Verdict::Waits, _) => reboot().to_owned(),
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
        _ => format!("{} ({})", boot.outcome, boot.why),
    }
}

fn pending_text(pending: &str) -> String {
    let said = match pending {
        "nothing" => return "nothing".to_owned(),
        "staged" => "files of a run that changed nothing",
        "unfinished" => "a run is half-way!",
        _ => "a finished run is not cleaned up",
    };
    let end = if said.ends_with('!') { "" } else { "." };
    format!("{said}{end} Next: {}", mco_rescue("recover"))
}

fn last_run(run: Option<&LastRun>, now: u64) -> String {
    let Some(run) = run else {
        return "Last run  (none)\n".to_owned();
    };
    let outcome = match run.outcome {
        RunOutcome::Done => "done".to_owned(),
        RunOutcome::RolledBack => "failed, everything was restored".to_owned(),
        RunOutcome::Incomplete => format!("failed half-way; run {}", mco_rescue("recover")),
        RunOutcome::Recovered => "an interrupted run was finished".to_owned(),
        RunOutcome::Undone => "an interrupted run was undone".to_owned(),
    };
    let (when, past) = (utc(run.finished), ago(run.finished, now));
    let mut out = wrapped("Last run", &format!("{when} ({past}) {outcome}"));
    out.push_str(&format!("          {}\n", inline(&run.config.name)));
    for phase in &run.phases {
        out.push_str(&format!("          {}: ", phase.name));
        out.push_str(wrap(&phase.result, 12).trim_start());
    }
    out.push('\n');
    out + &notices_text(
        "Notices of the last run",
        &collapse_notices(&run.notices, ""),
    )
}
