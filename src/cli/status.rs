//! `status`: the record, the last run, and what is pending.

use crate::change::session::predict::GivenDaemon;
use crate::change::staging::pins;
use crate::change::staging::reboots;
use crate::change::staging::state;
use crate::cli::ui::Ui;
use anyhow::{Context, Result, anyhow};
use std::fmt::Display;
use std::path::Path;

use super::Output;
use super::handover::{self, HandoverRequest};
use crate::base::error::ExitCode;
use crate::base::invocation::{self, mco_rescue};
use crate::base::time::now;
use crate::change::plan;
use crate::change::plan::staged::enter_command;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::open_root;
use crate::change::session::own_state::expect_known_state;
use crate::change::session::predict;
use crate::change::session::predict::ForecastMoment;
use crate::change::source::cache;
use crate::change::staging::awaited::{Awaited, Scene, Verdict, Way};
use crate::change::staging::next_boot::{NextBoot, observe_next_boot};
use crate::change::transaction::{self, Pending, StateDirectoryError};
use crate::change::trial::store::{read_result, read_trial};
use crate::change::trial::{Trial, TrialResult};
use crate::cli::args::DaemonArgs;
use crate::host::root::Root;
use crate::host::sys::runtime;
use crate::judge::daemon::{annotations, pod_log, policies};
use crate::judge::drift;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::login_session::milliseconds_since_boot;
use crate::node::system::SystemFacts;
use crate::node::{Baseline, Host, Neighbours, Recorded, Records, System};
use crate::report;
use crate::report::metrics::{is_metrics, to_metrics};
use crate::report::reboot::RebootReport;
use crate::report::status::{
    CacheCounts, Half, NextBootReport, OsReport, StagedReport, StatusReport,
};
use crate::report::trial::TrialReport;
use crate::run::cluster::ClusterReport;
use crate::run::trial::guards::is_guarded;
use clap::Args;
use std::path::PathBuf;

/// What to show of the node.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print the steps for oc, for when the API is back
    ///
    /// What an admin does then: the annotations of this node and the objects that the daemon
    /// needs, as commands, with what to check before each
    #[arg(long)]
    pub for_cluster: bool,

    /// With --for-cluster: print this MachineConfig for `oc create -f -`
    ///
    /// It holds secrets, so it goes to a file or a pipe only
    #[arg(long, value_name = "NAME", requires = "for_cluster")]
    pub object: Option<String>,

    /// With --for-cluster: print the objects of `change` for `oc apply -f -`
    ///
    /// They are those of the change that was made on this node, as YAML
    #[arg(long, requires = "for_cluster", conflicts_with = "object")]
    pub changes: bool,

    /// Write the state as metrics for Prometheus
    ///
    /// For the textfile collector of node_exporter: whole, in one rename, readable by all. Only a
    /// file of this option is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "for_cluster")]
    pub metrics: Option<PathBuf>,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Runs `status`.
pub(super) fn run(ui: &Ui<'_>, args: &StatusArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    match expect_known_state(&root) {
        // If the files of a run cannot be read, nothing is certain; otherwise record and last run still are.
        Err(error) if transaction::find_pending(&root).is_err() => return Err(error),
        Err(error) => log::warn!("{error:#}"),
        Ok(()) => {}
    }
    if args.for_cluster {
        let request = HandoverRequest {
            object: args.object.as_deref(),
            changes: args.changes,
            daemon: args.daemon.given(),
        };
        return handover::run(ui, request, &root);
    }
    let report = document(&root, ui.runner, args.daemon.given())?;
    if let Some(path) = &args.metrics {
        write_metrics(&root, &report, path)?;
        return Ok(ExitCode::Done);
    }
    let text = match ui.output {
        Output::Json => report::status::to_json(&report)?,
        Output::Text => report::status::to_text(&report),
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Writes the metrics. A file that does not contain metrics is not replaced.
fn write_metrics(root: &Root, report: &StatusReport, path: &Path) -> Result<()> {
    let cached = cache::read_cache(root).context("reading the cache")?;
    let times: Vec<u64> = cache::whole_entries(&cached)
        .map(|entry| entry.fetched)
        .collect();
    let text = to_metrics(report, &times);
    transaction::write_readable_output(path, text.as_bytes(), is_metrics).map_err(|why| {
        anyhow!(
            "writing {}: {why}; give another file with --metrics. Only metrics of mco-rescue are replaced",
            path.display()
        )
    })
}

/// Returns everything that `status` reports.
pub(super) fn document(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
) -> Result<StatusReport> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let host = Host::observe(root).context("looking at the node")?;
    let system = System::observe(root, &host, runner).context("looking at the operating system")?;
    let pending = transaction::find_pending(root)?;
    let (word, config) = pending.words();
    let (recorded, recorded_digest) = match &records.current_config {
        Recorded::Present(config) => (Some(config.name.clone()), Some(config.digest.clone())),
        _ => (None, None),
    };
    let record_note = match (&records.current_config, records.baseline()) {
        (Recorded::Broken(problem), _) => Some(problem.clone()),
        (_, Baseline::Unknown(why)) => Some(why.to_owned()),
        (_, Baseline::Known(_)) => None,
    };
    let awaited = state::read_awaited(root)?;
    let next_boot = match system.facts() {
        Some(facts) => observe_next_boot(root, runner, facts, awaited.as_ref())?,
        None => None,
    };
    let verdict = awaited
        .as_ref()
        .map(|one| verdict(root, runner, one, &system, next_boot.as_ref()))
        .transpose()?;
    let half = match &verdict {
        None | Some(Verdict::Failed) => system.facts(),
        Some(_) => None,
    };
    let is_back = awaited.as_ref().is_some_and(|one| one.way == Way::Back);
    let goes_back = is_back && verdict == Some(Verdict::Waits);
    let seen = seen(root)?;
    let half = half.and_then(|facts| half_of(root, &records, facts, &seen));
    let os_match = drift::match_os(&records, &system);
    let mut unreadable = Unreadable::default();
    let history = unreadable.name("history", history(root));
    let last_run = unreadable.name("last_run", transaction::last_run(root));
    let in_initramfs = host
        .live
        .then(|| runtime::read_json(runtime::FIRSTBOOT))
        .flatten();
    // After a soft reboot, which has no initramfs, the file is outdated.
    let in_initramfs = in_initramfs.filter(|_| {
        let boot = BootIdentity::observe(root, host.deployment.clone(), runner);
        boot.and_then(|boot| boot.soft_reboots).unwrap_or_default() == 0
    });
    let last_trial = unreadable.name("last_trial", read_result(root)).flatten();
    let trial = unreadable.name("trial", read_trial(root)).flatten();
    // A result that was written while the trial still runs does not count.
    let is_over = |last: &TrialResult| trial.as_ref().is_none_or(|trial| trial.id != last.id);
    let last_trial = last_trial.filter(is_over);
    let trial = trial.map(|trial| report_trial(root, runner, &trial));
    let trial = trial.transpose()?;
    let neighbours =
        Neighbours::observe(root, &host, runner).context("looking for others at work")?;
    // A failure that the next boot resolves is reported as that mismatch.
    let is_told = awaited.as_ref().is_some_and(|one| one.half);
    let is_told = is_told && !half.as_ref().is_some_and(|half| half.reboot);
    Ok(StatusReport {
        schema: "mco-rescue/status/v1",
        now: now(),
        root: root.shown().display().to_string(),
        os: OsReport::of(
            &system,
            &pins::read_pins(root)?,
            staged(&system, next_boot.as_ref()),
        ),
        next_boot: next_boot
            .as_ref()
            .map(|next| NextBootReport::of(next, verdict.as_ref())),
        // A failed boot already reports its mismatch.
        verdict: verdict.filter(|_| half.is_none() || is_told || !half_only(&awaited)),
        half: half.filter(|_| !is_told),
        os_match,
        trial,
        last_trial,
        reboot: RebootReport::of(&reboots::read_needs(root, runner)?),
        awaited,
        deployment: host.deployment,
        recorded,
        recorded_digest,
        record_note,
        recorded_image: records.current_image.clone(),
        seen,
        pending: word,
        beside: plan::describe_neighbours(&neighbours),
        frozen: frozen(root)?,
        pending_config: config.map(|config| config.name.clone()),
        firstboot: in_initramfs,
        last_run: last_run.flatten(),
        history,
        unreadable: unreadable.0,
        daemon: match &pending {
            // An incomplete run is finished or undone before the daemon starts.
            Pending::Unfinished(..) => None,
            // The same applies to files that the next boot restores.
            _ if goes_back => None,
            _ => {
                let now = ForecastMoment::Now(&records, Some(&system));
                let forecast = predict::forecast(root, runner, daemon, now);
                match forecast {
                    Err(error) if access::is_denied(&format!("{error:#}")) => return Err(error),
                    forecast => predict::said(forecast),
                }
            }
        },
    })
}

/// Names of the unreadable parts, as in the document. They must not hide the other parts, and nothing is claimed about their
/// contents.
#[derive(Default)]
struct Unreadable(Vec<&'static str>);

impl Unreadable {
    /// Returns a part. An unreadable part is logged and added to the list.
    fn name<T, E: Display>(&mut self, part: &'static str, read: Result<T, E>) -> Option<T> {
        read.inspect_err(|error| {
            log::warn!("{error}");
            self.0.push(part);
        })
        .ok()
    }
}

/// Returns the report of the current trial.
fn report_trial(root: &Root, runner: &dyn CommandRunner, trial: &Trial) -> Result<TrialReport> {
    let boot = match root.is_live() {
        true => BootIdentity::observe(root, Host::observe(root)?.deployment, runner),
        false => None,
    };
    let now = boot
        .filter(|boot| boot.is_same(&trial.boot))
        .map(|_| milliseconds_since_boot());
    let guarded = match root.is_live() {
        true => is_guarded(runner)
            .inspect_err(|error| log::warn!("{error}"))
            .ok(),
        false => Some(false),
    };
    Ok(TrialReport::of(trial, now, guarded))
}

/// Returns who staged or queued a deployment that is not running, and the commands to enter it or to stay with the running one.
fn staged(system: &System, next: Option<&NextBoot>) -> Option<StagedReport> {
    let (facts, next) = (system.facts()?, next?);
    let by = next.by.as_ref()?.foreign().map(str::to_owned);
    let locked = facts.deployments.staged();
    let locked = locked.is_some_and(|one| one.finalization_locked);
    let mut enter = match next.arguments_words() {
        words if words.is_empty() => String::new(),
        words => format!("{words}; "),
    };
    enter += &enter_command(locked, Some(facts));
    if let Some(stay) = &next.stay {
        enter += &format!("; stay with what runs: {stay}");
    }
    Some(StagedReport { by, enter })
}

/// Returns the mismatch if the running operating system is not the recorded one: either the files are old, or the operating system
/// is.
fn half_of(
    root: &Root,
    records: &Records,
    facts: &SystemFacts,
    seen: &ClusterReport,
) -> Option<Half> {
    let mut words = drift::os_mismatch(records, facts)?;
    let reboot = drift::is_next(records, facts);
    let runs = config_of(root, records, facts, seen);
    if let Some(name) = &runs {
        words += &format!(
            ". What runs is the image of {name}: the node was booted into it before its files were written"
        );
    }
    let locked = facts.deployments.staged().filter(|one| {
        one.finalization_locked
            && records
                .recorded()
                .is_some_and(|config| config.os_image_url == one.image())
    });
    let next = match (&runs, locked) {
        _ if reboot => invocation::reboot().to_owned(),
        (_, Some(_)) => format!(
            "{}; or {}",
            enter_command(true, Some(facts)),
            mco_rescue("apply --takeover")
        ),
        (Some(name), None) => format!(
            "{}, or {}",
            mco_rescue(&format!("apply cached:{name}")),
            mco_rescue("pivot")
        ),
        (None, None) => mco_rescue("apply"),
    };
    Some(Half {
        words,
        reboot,
        runs,
        next,
    })
}

/// Returns the cached config whose image is running and that is not recorded: the one that the cluster wants, otherwise the only
/// one.
fn config_of(
    root: &Root,
    records: &Records,
    facts: &SystemFacts,
    seen: &ClusterReport,
) -> Option<String> {
    let runs = facts.deployments.booted()?.image();
    let recorded = records.recorded()?;
    if runs.is_empty() || recorded.os_image_url == runs {
        return None;
    }
    let cached = cache::read_cache(root).unwrap_or_default();
    let configs = cache::whole_entries(&cached).filter_map(|entry| entry.config().ok());
    let its: Vec<String> = configs
        .filter(|config| config.os_image_url == runs && config.name != recorded.name)
        .map(|config| config.name)
        .collect();
    let desired = seen
        .annotations
        .as_ref()
        .and_then(|one| one.desired.clone());
    match desired.filter(|desired| its.contains(desired)) {
        Some(desired) => Some(desired),
        None if its.len() == 1 => its.into_iter().next(),
        None => None,
    }
}

/// Returns the files that thaw cgroups which an interrupted run left frozen.
fn frozen(root: &Root) -> Result<Vec<String>> {
    let files = transaction::find_frozen(root)?.into_iter();
    Ok(files.map(|file| file.display().to_string()).collect())
}

/// Returns true if the only fact about the awaited boot is that operating system and files belong to different configs.
fn half_only(awaited: &Option<Awaited>) -> bool {
    awaited.as_ref().is_some_and(|awaited| awaited.half)
}

/// Returns the verdict on the awaited boot.
fn verdict(
    root: &Root,
    runner: &dyn CommandRunner,
    awaited: &Awaited,
    system: &System,
    next: Option<&NextBoot>,
) -> Result<Verdict> {
    let facts = system.facts();
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let transaction = facts.is_some_and(|facts| facts.deployments.transaction.is_some());
    let at_work = transaction || transaction::is_held(root);
    if !root.is_live() {
        // A root that is not running has no boot to be judged.
        return Ok(match awaited.lacks_files(&history) {
            true => Verdict::CutOff,
            false if awaited.failed.is_some() => Verdict::Failed,
            false => Verdict::Waits,
        });
    }
    let scene = Scene {
        booted: &state::read_booted(root, runner)?,
        next: next.map(|next| &next.enters),
        history: &history,
        at_work: at_work && awaited.failed.is_none(),
    };
    Ok(awaited.verdict(&scene))
}

/// Returns the stored facts about the cluster, with newer ones from the log.
fn seen(root: &Root) -> Result<ClusterReport> {
    Ok(ClusterReport {
        annotations: annotations::read_annotations(root).context("reading the annotations")?,
        daemon_log: pod_log::read_pod_log(root).context("reading the daemon's log")?,
        policies: policies::read_policies(root).context("reading the disruption policies")?,
    })
}

/// Returns the runs that `rollback` can revert.
fn history(root: &Root) -> Result<Vec<CacheCounts>, StateDirectoryError> {
    let runs = transaction::read_history(root)?;
    let kept = |run: crate::change::plan::FinishedRun| CacheCounts {
        began: run.began(),
        id: run.id,
        config: run.config,
    };
    Ok(runs.into_iter().map(kept).collect())
}
