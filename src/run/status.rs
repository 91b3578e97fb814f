//! `status`: the record, the last run, and what is pending.

mod boot;

use std::fmt::Display;

use anyhow::{Context, Result};
use serde::{Serialize, Serializer};

use self::boot::BootStatus;
use super::cluster::ClusterReport;
use super::trial::guards::is_guarded;
use crate::base::notice::Notice;
use crate::base::time::current_time;
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::plan;
use crate::change::plan::staged::enter_command;
use crate::change::session::predict::{self, ForecastMoment, GivenDaemon};
use crate::change::session::{access, known_signer};
use crate::change::source::changes::KeptChanges;
use crate::change::staging::awaited::{Awaited, Verdict};
use crate::change::staging::next_boot::NextBoot;
use crate::change::staging::pins;
use crate::change::staging::reboots::{self, RebootNeed};
use crate::change::transaction::{self, LastRun, Pending, PendingState, StateDirectoryError};
use crate::change::trial::store::{read_result, read_trial};
use crate::change::trial::{Phase, Trial, TrialResult};
use crate::diagnose::first_boot::FirstBootResult;
use crate::host::root::Root;
use crate::host::sys::runtime;
use crate::judge::daemon::forecast::Forecast;
use crate::judge::daemon::{annotations, pod_log, policies};
use crate::judge::drift::{self, OsMatch};
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments, digest_in};
use crate::node::engine::Engine;
use crate::node::images::object_store::{
    ObjectStore, StoreError, read_content_checksum, read_layers_checksum,
};
use crate::node::images::ostree_objects::{OstreeObjectKind, parse_checksum};
use crate::node::login_session::milliseconds_since_boot;
use crate::node::system::SystemFacts;
use crate::node::{Baseline, Host, Machine, Neighbours, Os, Recorded, Records, System};

/// The content of `status`.
#[derive(Debug, Clone, Serialize)]
pub struct NodeStatus {
    /// Seconds since 1970, by the clock of this machine.
    pub now: u64,
    /// Path of the root.
    pub root: String,
    /// Name of the node, if known.
    pub node: Option<String>,
    /// URL of the API server in the kubelet's kubeconfig: that of the cluster.
    pub api_server: Option<String>,
    /// The booted and the staged image with the checksums of their content; missing if unknown.
    pub images: Option<Vec<DeployedImage>>,
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
    pub half: Option<OsMismatch>,
    /// Name of the recorded config.
    pub recorded: Option<String>,
    /// Digest of the recorded config.
    pub recorded_digest: Option<String>,
    /// Who signed the recorded config, if it came from a capsule.
    pub recorded_signed: Option<CapsuleFacts>,
    /// The error in the record, or the reason why it cannot be used.
    pub record_note: Option<String>,
    /// The recorded layered image; empty without layering.
    pub recorded_image: Option<String>,
    /// The image that the node is to run: the recorded layered one, or else that of the recorded config.
    pub wanted_image: Option<String>,
    /// The image of a mounted disk's deployment, if its origin file names one.
    pub disk_image: Option<String>,
    /// The state of the cluster at the last query, and the configs in the daemon's log.
    #[serde(flatten)]
    pub seen: ClusterReport,
    /// What an earlier run left to do.
    pub pending: PendingState,
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
    /// The config that `change` made last from the recorded one, and that is not applied.
    #[serde(skip)]
    pub unapplied: Option<String>,
    /// Fields that are unknown because their source cannot be read: any of `history`, `last_run`, `firstboot`, `trial`,
    /// `last_trial`, `images` and `changes`.
    pub unreadable: Vec<&'static str>,
    /// The daemon's behaviour at its next start.
    #[serde(skip)]
    pub daemon: Option<Forecast>,
}

impl NodeStatus {
    /// Returns true for a field that is unknown because its source cannot be read.
    pub fn is_unreadable(&self, field: &str) -> bool {
        self.unreadable.contains(&field)
    }
}

/// An image that a deployment has unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeployedImage {
    /// Name with the digest.
    pub image: String,
    /// Checksum of its tree, which is the same on every node.
    pub content_checksum: String,
    /// Checksum of its layers, which is the same on every node; `None` if a layer is not in the repository.
    pub layers_checksum: Option<String>,
}

/// A running operating system other than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OsMismatch {
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
    pub fn from_answer(next: &NextBoot, verdict: Option<&Verdict>) -> Self {
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
    pub fn from_system(
        system: &System,
        ours: &[String],
        staged: Option<StagedReport>,
    ) -> Option<Self> {
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
                    kept: kept_deployments(all, ours),
                    staged: all.staged().map(Deployment::image),
                    queued: all.queued().map(Deployment::image),
                    staged_by: staged.by,
                    staged_locked: all.staged().is_some_and(|one| one.finalization_locked),
                    enter: staged.enter,
                    soft_reboot: facts.soft_reboot,
                    engine: Some(facts.engine.name()),
                    problem: facts.finalize_error.clone().or_else(|| busy_message(facts)),
                })
            }
        }
    }
}

/// Returns a message if bootc is busy, so that only ostree answered.
fn busy_message(facts: &SystemFacts) -> Option<String> {
    let working = facts.deployments.transaction.as_ref();
    working.filter(|_| facts.engine == Engine::Bootc).map(|one| {
        format!(
            "bootc is busy with {} ({}) and does not answer until that ends; this is what ostree lists",
            one.method, one.client
        )
    })
}

fn kept_deployments(all: &Deployments, ours: &[String]) -> Vec<String> {
    let others = all
        .own_deployments(ours)
        .filter(|one| one.pinned && !one.booted);
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

/// The combined needs of the current boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebootReport {
    /// Time at which the first of the files was changed; seconds since 1970.
    pub since: u64,
    /// Names of the configs that were applied or reverted.
    pub configs: Vec<String>,
    /// The reasons for a reboot, in words.
    pub causes: Vec<String>,
}

impl RebootReport {
    /// Creates the report; `None` if no reboot is needed.
    pub fn from_needs(needs: &[RebootNeed]) -> Option<Self> {
        let first = needs.first()?;
        let (mut configs, mut causes) = (Vec::new(), Vec::new());
        for need in needs {
            add_new(&mut configs, std::slice::from_ref(&need.config));
            add_new(&mut causes, &need.causes);
        }
        Some(Self {
            since: first.since,
            configs,
            causes,
        })
    }
}

fn add_new(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// The running trial, as `status` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialReport {
    /// The change.
    pub what: String,
    /// The phase; its word alone is in the document.
    #[serde(serialize_with = "phase_word")]
    pub phase: Phase,
    /// Seconds until this phase ends; `None` if it has no end, or belongs to another boot.
    pub remaining: Option<u64>,
    /// Start time; seconds since 1970.
    pub began: u64,
    /// The reason for the rollback.
    pub why: Option<String>,
    /// The last error of a failing rollback.
    pub failing: Option<String>,
    /// Probes that confirm it.
    pub probes: Vec<String>,
    /// Whether a guard is running; `None` if systemd does not report that.
    pub guarded: Option<bool>,
    /// True if its times belong to another boot than the running one, if any.
    #[serde(skip)]
    pub elsewhere: bool,
}

fn phase_word<S: Serializer>(phase: &Phase, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(phase.word())
}

impl TrialReport {
    /// Creates the report for a time of CLOCK_BOOTTIME in milliseconds.
    pub fn from_trial(trial: &Trial, now: Option<u64>, guarded: Option<bool>) -> Self {
        Self {
            what: trial.what.clone(),
            phase: trial.phase.clone(),
            failing: trial.failing.as_ref().map(|failing| failing.why.clone()),
            remaining: now.and_then(|now| trial.seconds_left(now)),
            began: trial.began,
            why: match &trial.phase {
                Phase::Reverting { why } => Some(why.clone()),
                _ => None,
            },
            probes: trial.probes.iter().map(ToString::to_string).collect(),
            guarded,
            elsewhere: now.is_none(),
        }
    }
}

impl NodeStatus {
    /// Observes a node. Parts that cannot be read are named and do not hide the others.
    ///
    /// # Errors
    /// A part cannot be read without which nothing is certain.
    pub fn observe(
        root: &Root,
        runner: &dyn CommandRunner,
        daemon: GivenDaemon<'_>,
    ) -> Result<Self> {
        let records = Records::read(root).context("reading the daemon's records")?;
        let host = Host::observe(root).context("looking at the node")?;
        let system =
            System::observe(root, &host, runner).context("looking at the operating system")?;
        let pending = transaction::find_pending(root)?;
        let (left, config) = pending.state();
        let (recorded, recorded_digest) = match &records.current_config {
            Recorded::Present(config) => (Some(config.name.clone()), Some(config.digest.clone())),
            _ => (None, None),
        };
        let record_note = match (&records.current_config, records.baseline()) {
            (Recorded::Broken(problem), _) => Some(problem.to_string()),
            (_, Baseline::Unknown(why)) => Some(why.to_owned()),
            (_, Baseline::Known(_)) => None,
        };
        let seen = read_cluster(root)?;
        let boot = BootStatus::observe(root, runner, &records, &system, &seen)?;
        let os_match = drift::match_os(&records, &system);
        let mut unreadable = Unreadable::default();
        let history = unreadable.note_unreadable("history", revertible_runs(root));
        let last_run = unreadable.note_unreadable("last_run", transaction::last_run(root));
        let changes = unreadable.note_unreadable("changes", KeptChanges::read(root));
        let unapplied = changes.and_then(|kept| {
            let last = kept.changes.last()?;
            let is_next = recorded.as_ref() == Some(&last.from) && last.from != last.config;
            is_next.then(|| last.config.clone())
        });
        let images = system
            .facts()
            .map(|facts| unreadable.note_unreadable("images", deployed_images(root, facts)));
        let api_server = unreadable.note_unreadable("api_server", annotations::name_cluster(root));
        let (trial, last_trial) = read_trials(root, runner, &mut unreadable)?;
        let neighbours =
            Neighbours::observe(root, &host, runner).context("looking for running updates")?;
        Ok(Self {
            now: current_time(),
            root: root.shown().display().to_string(),
            node: Machine::observe(root)?.name,
            api_server: api_server.flatten(),
            images: images.flatten(),
            os: OsReport::from_system(
                &system,
                &pins::read_pins(root)?,
                staged_report(&system, boot.next_boot.as_ref()),
            ),
            next_boot: boot.next_boot_report(),
            verdict: boot.verdict_to_report(),
            half: boot.mismatch_to_report(),
            os_match,
            trial,
            last_trial,
            reboot: RebootReport::from_needs(&reboots::read_needs(root, runner)?),
            firstboot: read_initramfs(root, &host, runner, &mut unreadable),
            disk_image: disk_image(root, &host)?,
            wanted_image: wanted_image(&records),
            deployment: host.deployment,
            recorded_signed: known_signer(root, recorded_digest.as_deref()),
            recorded,
            recorded_digest,
            record_note,
            recorded_image: records.current_image.clone(),
            seen,
            pending: left,
            beside: plan::describe_neighbours(&neighbours),
            frozen: frozen_cgroups(root)?,
            pending_config: config.map(|config| config.name.clone()),
            last_run: last_run.flatten(),
            history,
            unapplied,
            unreadable: unreadable.0,
            daemon: match &pending {
                // An incomplete run is finished or undone before the daemon starts.
                Pending::Unfinished(..) => None,
                // The same applies to files that the next boot restores.
                _ if boot.reverts => None,
                _ => predict_daemon(root, runner, daemon, (&records, &system))?,
            },
            awaited: boot.awaited,
        })
    }
}

/// Names of the unreadable parts, as in the document. They must not hide the other parts, and nothing is claimed about their
/// contents.
#[derive(Default)]
struct Unreadable(Vec<&'static str>);

impl Unreadable {
    /// Returns a part. An unreadable part is logged and added to the list.
    fn note_unreadable<T, E: Display>(
        &mut self,
        part: &'static str,
        read: Result<T, E>,
    ) -> Option<T> {
        read.inspect_err(|error| {
            log::warn!("{error}");
            self.0.push(part);
        })
        .ok()
    }
}

/// Returns the result of this boot in the initramfs.
fn read_initramfs(
    root: &Root,
    host: &Host,
    runner: &dyn CommandRunner,
    unreadable: &mut Unreadable,
) -> Option<FirstBootResult> {
    let result = if host.live {
        unreadable.note_unreadable("firstboot", runtime::read_json(runtime::FIRSTBOOT))
    } else {
        None
    };
    // After a soft reboot, which has no initramfs, the file is outdated.
    result.flatten().filter(|_| {
        let boot = BootIdentity::observe(root, host.deployment.clone(), runner);
        boot.and_then(|boot| boot.soft_reboots).unwrap_or_default() == 0
    })
}

/// Returns the trial that runs, and the result of the last one.
fn read_trials(
    root: &Root,
    runner: &dyn CommandRunner,
    unreadable: &mut Unreadable,
) -> Result<(Option<TrialReport>, Option<TrialResult>)> {
    let last = unreadable
        .note_unreadable("last_trial", read_result(root))
        .flatten();
    let trial = unreadable
        .note_unreadable("trial", read_trial(root))
        .flatten();
    // A result that was written while the trial still runs does not count.
    let is_over = |last: &TrialResult| trial.as_ref().is_none_or(|trial| trial.id != last.id);
    let last = last.filter(is_over);
    let trial = trial.map(|trial| report_trial(root, runner, &trial));
    Ok((trial.transpose()?, last))
}

/// Returns what the daemon would do at its next start.
fn predict_daemon(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
    (records, system): (&Records, &System),
) -> Result<Option<Forecast>> {
    let now = ForecastMoment::Now(records, Some(system));
    match predict::make_forecast(root, runner, daemon, now) {
        Err(error) if access::is_denied(&format!("{error:#}")) => Err(error),
        forecast => Ok(predict::log_failure(forecast)),
    }
}

/// Returns the image that the node is to run; `None` if no record names one.
fn wanted_image(records: &Records) -> Option<String> {
    let layered = records.current_image.as_deref();
    let image = match records.recorded_config() {
        Some(config) => drift::wanted_image(config, layered),
        None => layered?,
    };
    Some(image.to_owned()).filter(|image| !image.is_empty())
}

/// Returns the image of a disk's deployment; `None` for a running system or an initramfs, and if the disk does not name its image.
fn disk_image(root: &Root, host: &Host) -> Result<Option<String>> {
    if host.live || host.in_initramfs {
        return Ok(None);
    }
    let os = Os::observe(root, host).context("looking at the operating system")?;
    Ok(os.image.filter(|image| !image.is_empty()))
}

/// Returns the booted and the staged image with the checksums of their content. Changed ones are left out.
fn deployed_images(root: &Root, facts: &SystemFacts) -> Result<Vec<DeployedImage>, StoreError> {
    let Some(store) = ObjectStore::of_node(root)? else {
        return Ok(Vec::new());
    };
    let all = &facts.deployments;
    let mut images = Vec::new();
    for deployment in [all.booted(), all.staged()].into_iter().flatten() {
        let image = deployment.image();
        let commit = parse_checksum(&deployment.checksum);
        let (Some(digest), Some(commit)) = (digest_in(&image), commit) else {
            continue;
        };
        // A node whose commits were pruned by hand runs all the same.
        if store
            .stat_object(&(OstreeObjectKind::Commit, commit))?
            .is_none()
        {
            continue;
        }
        if let Some(content_checksum) = read_content_checksum(&store, &commit, digest)? {
            images.push(DeployedImage {
                image,
                content_checksum,
                layers_checksum: read_layers_checksum(&store, &commit)?,
            });
        }
    }
    Ok(images)
}

/// Returns the report of the current trial.
fn report_trial(root: &Root, runner: &dyn CommandRunner, trial: &Trial) -> Result<TrialReport> {
    let boot = if root.is_live() {
        BootIdentity::observe(root, Host::observe(root)?.deployment, runner)
    } else {
        None
    };
    let now = boot
        .filter(|boot| boot.is_same(&trial.boot))
        .map(|_| milliseconds_since_boot());
    let guarded = if root.is_live() {
        is_guarded(runner)
            .inspect_err(|error| log::warn!("{error}"))
            .ok()
    } else {
        Some(false)
    };
    Ok(TrialReport::from_trial(trial, now, guarded))
}

/// Returns who staged or queued a deployment that is not running, and the commands to enter it or to stay with the running one.
fn staged_report(system: &System, next: Option<&NextBoot>) -> Option<StagedReport> {
    let (facts, next) = (system.facts()?, next?);
    let by = next.by.as_ref()?.foreign_author().map(str::to_owned);
    let locked = facts.deployments.staged();
    let locked = locked.is_some_and(|one| one.finalization_locked);
    let mut enter = match next.arguments_words() {
        words if words.is_empty() => String::new(),
        words => format!("{words}; "),
    };
    enter += &enter_command(locked, Some(facts));
    if let Some(stay) = &next.stay {
        enter += &format!("; keep the running system: {stay}");
    }
    Some(StagedReport { by, enter })
}

/// Returns the files that thaw cgroups which an interrupted run left frozen.
fn frozen_cgroups(root: &Root) -> Result<Vec<String>> {
    let files = transaction::find_frozen(root)?.into_iter();
    Ok(files.map(|file| file.display().to_string()).collect())
}

/// Returns the stored facts about the cluster, with newer ones from the log.
fn read_cluster(root: &Root) -> Result<ClusterReport> {
    Ok(ClusterReport {
        annotations: annotations::read_annotations(root).context("reading the annotations")?,
        daemon_log: pod_log::read_pod_log(root).context("reading the daemon's log")?,
        policies: policies::read_policies(root).context("reading the disruption policies")?,
    })
}

/// Returns the runs that `rollback` can revert.
fn revertible_runs(root: &Root) -> Result<Vec<CacheCounts>, StateDirectoryError> {
    let runs = transaction::read_history(root)?;
    let kept = |run: plan::FinishedRun| CacheCounts {
        began: run.start_time(),
        id: run.id,
        config: run.config,
    };
    Ok(runs.into_iter().map(kept).collect())
}
