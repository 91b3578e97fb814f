//! `complete`: after the boot that a run waits for, proves that what was staged runs; else brings the files back
//! to the deployment that came up instead, before anything reads them.

use anyhow::{Context, Result, bail};

use super::recover::{at_boot, recover_first};
use super::rollback::TakingBack;
use super::session::{self, Session, Unnamed, open_root, open_store};
use super::work::{Work, now};
use super::{Cli, Output};
use crate::awaited::{Arrival, Awaited, Booted, OsRun, OsRuns, VERSION, Way};
use crate::command::rpm_ostree::arguments::finalize_journal;
use crate::command::{CommandRunner, HostRunner};
use crate::error::ExitCode;
use crate::node::deployments::finalize_failure;
use crate::node::host::boot_id;
use crate::node::{Host, Os};
use crate::paths;
use crate::plan::{Allowed, Options, Step};
use crate::report::complete::{self, Completed};
use crate::report::recover::Started;
use crate::report::{self, count};
use crate::root::{Root, RootPath};
use crate::source;
use crate::transaction::{self, Lock};

/// What is awaited, if anything.
pub fn awaited(root: &Root) -> Result<Option<Awaited>> {
    let known = |kept: &Awaited| kept.version;
    source::remembered(root, paths::AWAITED, VERSION, known).context("reading what is awaited")
}

/// Keeps what is awaited.
pub fn keep(root: &Root, awaited: &Awaited) -> Result<()> {
    session::keep(root, paths::AWAITED, awaited)
}

/// Nothing is awaited any more.
pub fn forget(root: &Root) -> Result<()> {
    let store = open_store(root, paths::STATE)?;
    Ok(store.remove(RootPath::fixed(paths::AWAITED).name())?)
}

/// Where the node came from with a run, if that changed the operating system.
pub fn os_run(root: &Root, run: &str) -> Result<Option<OsRun>> {
    let all = os_runs(root)?;
    Ok(all.into_iter().find(|one| one.run == run))
}

fn os_runs(root: &Root) -> Result<Vec<OsRun>> {
    let known = |kept: &OsRuns| kept.version;
    let kept = source::remembered(root, paths::OS_RUNS, VERSION, known)?;
    Ok(kept.map(|kept| kept.runs).unwrap_or_default())
}

/// Keeps where the node came from, for as long as the history knows the run.
pub fn keep_os_run(root: &Root, run: OsRun) -> Result<()> {
    let history = transaction::history(root)?;
    let mut runs = os_runs(root)?;
    runs.retain(|one| one.run != run.run && history.iter().any(|known| known.id == one.run));
    runs.push(run);
    let version = VERSION;
    session::keep(root, paths::OS_RUNS, &OsRuns { version, runs })
}

/// Runs `complete`.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    let root = open_root(cli)?;
    let Some(awaited) = awaited(&root)? else {
        return say(cli, &Completed::nothing());
    };
    let lock = transaction::acquire(&root)?;
    recover_first(&root, &lock)?;
    let booted = booted(&root)?;
    let arrival = awaited.judge(&booted);
    let completed = match (&arrival, awaited.way) {
        (Arrival::NotYet, _) => Completed::not_yet(&awaited),
        (_, _) if awaited.failed.is_some() => Completed::failed(&awaited),
        (Arrival::Arrived, Way::Forward) => {
            let brought = bring_files(cli, &root, &lock, &awaited);
            let mut completed = arrived(cli, &root, &awaited)?;
            if let Err(error) = brought {
                completed.failed = Some(format!("{error:#}"));
            }
            completed
        }
        (Arrival::Arrived, Way::Back) => {
            take_back(&root, &lock, &awaited)?;
            forget(&root)?;
            Completed::back(&awaited)
        }
        (Arrival::Stayed, Way::Forward) => {
            let why = why_stayed();
            take_back(&root, &lock, &awaited)?;
            give_up(&root, awaited, why)?
        }
        (Arrival::Stayed, Way::Back) => give_up(&root, awaited, why_stayed())?,
        (Arrival::Elsewhere(what), _) => give_up(&root, awaited, what.clone())?,
    };
    say(cli, &completed)
}

fn say(cli: &Cli, completed: &Completed) -> Result<ExitCode> {
    let text = match cli.output {
        Output::Json => complete::json(completed)?,
        Output::Text => complete::text(completed),
    };
    report::print_result(text.as_bytes());
    Ok(if completed.failed.is_some() {
        ExitCode::Drift
    } else {
        ExitCode::Done
    })
}

fn booted(root: &Root) -> Result<Booted> {
    let host = Host::observe(root).context("looking at the node")?;
    if !host.live {
        bail!("only the node itself can tell what booted; run this on it");
    }
    let os = Os::observe(root, &host).context("looking at the operating system")?;
    Ok(Booted {
        boot: boot_id().context("the kernel tells no boot id")?,
        deployment: host.deployment,
        image: os.image,
        kernel_arguments: os.kernel_arguments.unwrap_or_default().tokens().to_vec(),
    })
}

/// The run was cut off between the operating system and its files: they come now, out of the cache, before anything
/// reads those from before (design.md section 4).
fn bring_files(cli: &Cli, root: &Root, lock: &Lock, awaited: &Awaited) -> Result<()> {
    let mut history = transaction::history(root)?.into_iter();
    let were_to_come = awaited.run.is_none() && awaited.files_after.is_some();
    if !were_to_come || history.any(|run| awaited.is_its_run(&run.id, &run.config)) {
        return Ok(());
    }
    let name = &awaited.config.name;
    let again = format!("mco-rescue apply cached:{name}");
    log::warn!("the files of {name} did not come before the reboot; they come now");
    let cached = Some(format!("cached:{name}"));
    let session = Session::observe(open_root(cli)?, cached.as_deref(), Unnamed::Wanted)?;
    let options = Options {
        files_only: true,
        ..Options::default()
    };
    let plan = session.guarded_plan(options, Allowed::default())?;
    if let Some(blocker) = plan.blockers.first() {
        let (subject, why) = (&blocker.subject, &blocker.message);
        bail!("the files of {name} cannot come: {subject}: {why}. Next: {again}");
    }
    let work = Work {
        root,
        lock,
        node: &session.node,
        plan: &plan,
        config: session.config_ref(),
        undoes: None,
        started: now(),
        more: &[],
        // The services start after this.
        jobs: &[],
    };
    let done = work.transact().with_context(|| format!("next: {again}"))?;
    let from = awaited.from.clone();
    keep_os_run(root, OsRun { run: done.id, from })?;
    tell_the_boot(root, plan.steps.iter().map(|planned| &planned.step));
    Ok(())
}

/// systemd has read the units from before.
fn tell_the_boot<'a>(root: &Root, steps: impl Iterator<Item = &'a Step>) {
    let changed: Vec<RootPath> = steps.map(|step| step.path().clone()).collect();
    let is_there = |path: &RootPath| root.exists(path).unwrap_or_default();
    let started = at_boot(&changed, &is_there, &HostRunner);
    if started != Started::Unconcerned {
        log::warn!("{}", report::recover::units(&started));
    }
}

/// The deployment runs; the files have come along with it or not.
fn arrived(cli: &Cli, root: &Root, awaited: &Awaited) -> Result<Completed> {
    let session = Session::observe(open_root(cli)?, None, Unnamed::Recorded)?;
    let drifts = session.drifts(&session.plan(Options::default()));
    forget(root)?;
    let mut completed = Completed::arrived(awaited);
    if session.chosen.config.name != awaited.config.name {
        let name = &session.chosen.config.name;
        completed.failed = Some(format!("the node is recorded to be in {name}"));
    } else if let Some(first) = drifts.first() {
        let left = count(drifts.len(), "difference");
        completed.failed = Some(format!(
            "{left}, the first at {}: {}",
            first.subject, first.detail
        ));
    }
    Ok(completed)
}

/// Nobody can be asked at boot: what somebody changed since stays, and is said.
fn take_back(root: &Root, lock: &Lock, awaited: &Awaited) -> Result<()> {
    let mut runs = transaction::history(root)?.into_iter();
    let Some(run) = runs.find(|run| awaited.is_its_run(&run.id, &run.config)) else {
        if let Some(id) = &awaited.run {
            log::warn!("the run {id} is not in the history any more; its files stay as they are");
        }
        return Ok(());
    };
    let back = TakingBack::prepare(root, run, true, Allowed::default())?;
    for notice in &back.plan.notices {
        log::warn!("{}: {}", notice.subject, notice.message);
    }
    if let Some(blocker) = back.plan.blockers.first() {
        bail!(
            "the files of {} cannot be taken back: {}: {}. Next: mco-rescue rollback",
            awaited.config.name,
            blocker.subject,
            blocker.message
        );
    }
    // Nothing that reads them runs yet.
    back.carry_out(root, lock, now(), &[])?;
    tell_the_boot(root, back.plan.steps.iter().map(|planned| &planned.step));
    Ok(())
}

fn give_up(root: &Root, mut awaited: Awaited, why: String) -> Result<Completed> {
    awaited.failed = Some(why);
    // Its files were taken back, so that run cannot be taken back again.
    awaited.run = None;
    awaited.files_after = None;
    keep(root, &awaited)?;
    Ok(Completed::failed(&awaited))
}

/// Why the deployment from before runs: what ostree said when the system went down, where the journal has it.
fn why_stayed() -> String {
    let answer = HostRunner.run(&finalize_journal());
    match answer.map(|answer| finalize_failure(&answer.stdout)) {
        Ok(Some(said)) => format!("the staged deployment was not finalized at shutdown: {said}"),
        Ok(None) => "the deployment from before was booted again (the staged one was lost at a power cut, or another boot entry was chosen)".to_owned(),
        Err(error) => format!("the deployment from before was booted again; why is not known ({error})"),
    }
}
