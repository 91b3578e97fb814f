//! `complete`: after the boot that a run waits for, proves that what was staged runs; else brings the files back
//! to the deployment that came up instead, before anything reads them.

use anyhow::{Context, Result, bail};

use super::access::{self, Need};
use super::os;
use super::recover::{at_boot, recover_first};
use super::rollback::TakingBack;
use super::session::{self, Session, Unnamed, open_root, open_store};
use super::work::{Work, now};
use super::{Cli, Output};
use crate::command::rpm_ostree::arguments::finalize_journal;
use crate::command::rpm_ostree::status::{Deployment, Deployments, finalize_failure};
use crate::command::{CommandRunner, HostRunner};
use crate::drift::Drift;
use crate::error::ExitCode;
use crate::invocation::mco_rescue;
use crate::node::host::boot_id;
use crate::node::requests::AskedFor;
use crate::node::system::asked;
use crate::node::{Host, Os};
use crate::paths;
use crate::plan::{Allowed, FinishedRun, Options, Step};
use crate::report;
use crate::report::complete::{self, Completed};
use crate::report::recover::Started;
use crate::report::status::awaited_words;
use crate::root::{Root, RootPath};
use crate::staging::awaited::{
    Arrival, Awaited, Booted, GoesBack, OsRun, OsRuns, Ran, Scene, VERSION, Verdict, Way,
};
use crate::state_file;
use crate::text::count;
use crate::transaction::{self, Lock};

/// What is awaited, if anything.
pub fn awaited(root: &Root) -> Result<Option<Awaited>> {
    let known = |kept: &Awaited| kept.version;
    state_file::remembered(root, paths::AWAITED, VERSION, known).context("reading what is awaited")
}

/// Keeps what is awaited.
pub fn keep(root: &Root, awaited: &Awaited) -> Result<()> {
    session::keep(root, paths::AWAITED, awaited)
}

/// Nothing is awaited any more.
pub fn forget(root: &Root) -> Result<()> {
    let store = open_store(root, paths::STATE)?;
    Ok(store.remove_file(RootPath::fixed(paths::AWAITED).name())?)
}

/// Forgets a failure that was reported.
pub fn forget_failed(root: &Root) -> Result<()> {
    match awaited(root)? {
        Some(awaited) if awaited.failed.is_some() => forget(root),
        _ => Ok(()),
    }
}

/// Where the node came from with a run, if that changed the operating system.
pub fn os_run(root: &Root, run: &str) -> Result<Option<OsRun>> {
    let all = os_runs(root)?;
    Ok(all.into_iter().find(|one| one.run == run))
}

fn os_runs(root: &Root) -> Result<Vec<OsRun>> {
    let known = |kept: &OsRuns| kept.version;
    let kept = state_file::remembered(root, paths::OS_RUNS, VERSION, known)?;
    Ok(kept.map(|kept| kept.runs).unwrap_or_default())
}

/// Keeps where the node came from, for as long as the history knows the run.
pub fn keep_os_run(root: &Root, run: OsRun) -> Result<()> {
    let history = transaction::read_history(root)?;
    let mut runs = os_runs(root)?;
    runs.retain(|one| one.run != run.run && history.iter().any(|known| known.id == one.run));
    runs.push(run);
    let version = VERSION;
    session::keep(root, paths::OS_RUNS, &OsRuns { version, runs })
}

/// Remembers the requests of the config of a deployment, before its record is replaced.
pub fn remember_asked(root: &Root, one: AskedFor) -> Result<()> {
    let mut all = asked(root)?;
    if all.deployments.last() == Some(&one) {
        return Ok(());
    }
    all.remember(one);
    session::keep(root, paths::ASKED, &all)
}

/// The runs of a history, the newest first.
pub fn ran(history: &[FinishedRun]) -> Vec<Ran> {
    let ran = |run: &FinishedRun| Ran {
        id: run.id.clone(),
        config: run.config.clone(),
    };
    history.iter().map(ran).collect()
}

/// Runs `complete`.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    let root = open_root(cli)?;
    access::expect(&root, Need::Write)?;
    let Some(awaited) = awaited(&root)? else {
        return say(cli, &Completed::nothing());
    };
    let lock = transaction::acquire_lock(&root)?;
    recover_first(&root, &lock)?;
    let booted = booted(&root)?;
    let boot = Boot {
        cli,
        root: &root,
        lock: &lock,
        boot: &booted.boot,
    };
    let completed = match (awaited.judge(&booted), awaited.way) {
        (Arrival::NotYet, _) => not_yet(&root, &awaited, &booted)?,
        (Arrival::Arrived, Way::Forward) => boot.arrived(awaited)?,
        (Arrival::Arrived, Way::Back) => boot.back(awaited)?,
        (Arrival::Stayed, Way::Forward) => boot.stayed(awaited)?,
        (Arrival::Stayed, Way::Back) => boot.not_taken(awaited, why_stayed())?,
        (Arrival::Elsewhere(what), _) => boot.not_taken(awaited, what)?,
    };
    say(cli, &completed)
}

/// Nothing is done before the boot; what stands in its way is said.
fn not_yet(root: &Root, awaited: &Awaited, booted: &Booted) -> Result<Completed> {
    let history = ran(&transaction::read_history(root)?);
    let next = os::deployments().ok();
    let next = next.as_ref().and_then(Deployments::next_boot);
    let next = next.map(Deployment::name);
    let scene = Scene {
        booted,
        next: next.as_deref(),
        history: &history,
        at_work: false,
    };
    let verdict = awaited.verdict(&scene);
    Ok(match verdict {
        Verdict::Failed => Completed::failed(awaited),
        Verdict::CutOff | Verdict::Dropped => Completed::failed(&Awaited {
            failed: Some(awaited_words(awaited, &verdict)),
            half: true,
            ..awaited.clone()
        }),
        _ => Completed::not_yet(awaited),
    })
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

/// What runs.
pub fn booted(root: &Root) -> Result<Booted> {
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
/// reads those from before (docs/operating-system.md).
fn bring_files(cli: &Cli, root: &Root, lock: &Lock, awaited: &Awaited) -> Result<()> {
    if !awaited.lacks_files(&ran(&transaction::read_history(root)?)) {
        return Ok(());
    }
    let name = &awaited.config.name;
    let again = mco_rescue(&format!("apply cached:{name}"));
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
    keep_os_run(root, awaited.os_run(done.id))?;
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

/// A boot that is judged.
struct Boot<'a> {
    cli: &'a Cli,
    root: &'a Root,
    lock: &'a Lock,
    boot: &'a str,
}

impl Boot<'_> {
    /// The deployment runs; the files have come along with it or not.
    fn arrived(&self, awaited: Awaited) -> Result<Completed> {
        let brought = bring_files(self.cli, self.root, self.lock, &awaited);
        let history = ran(&transaction::read_history(self.root)?);
        if let Some(own) = awaited.own_run(&history)
            && os_run(self.root, &own.id)?.is_none()
        {
            // The power failed before it was kept.
            keep_os_run(self.root, awaited.os_run(own.id.clone()))?;
        }
        let session = Session::observe(open_root(self.cli)?, None, Unnamed::Recorded)?;
        let drifts = session.drifts(&session.plan(Options::default()));
        let recorded = &session.chosen.config.name;
        let half = match brought {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if *recorded != awaited.config.name => {
                Some(format!("the node is recorded to be in {recorded}"))
            }
            Ok(()) => drifts
                .iter()
                .find(|drift| drift.is_of_the_os())
                .map(differs),
        };
        if let Some(words) = half {
            let failed = self.give_up(awaited, words, true)?;
            return Ok(Completed::half(&failed));
        }
        forget(self.root)?;
        let mut completed = Completed::arrived(&awaited);
        completed.failed = drifts.first().map(|first| {
            let left = count(drifts.len(), "difference");
            format!("{left}, the first at {}", differs(first))
        });
        Ok(completed)
    }

    /// The deployment from before came up again, as asked: its files come back too.
    fn back(&self, awaited: Awaited) -> Result<Completed> {
        let history = ran(&transaction::read_history(self.root)?);
        if let GoesBack::Runs(runs) = awaited.goes_back(&history) {
            self.take_back(&awaited, &runs)?;
        }
        match os::half(self.root)? {
            Some(words) => {
                let failed = self.give_up(awaited, words, true)?;
                Ok(Completed::failed(&failed))
            }
            None => {
                forget(self.root)?;
                Ok(Completed::back(&awaited))
            }
        }
    }

    /// The deployment from before came up, not as asked: files that came with the other one go back.
    fn stayed(&self, awaited: Awaited) -> Result<Completed> {
        let history = ran(&transaction::read_history(self.root)?);
        match awaited.goes_back(&history) {
            GoesBack::Runs(runs) => {
                let why = why_stayed();
                self.take_back(&awaited, &runs)?;
                let cleared = Awaited {
                    // Its files are gone, so that they cannot be taken back again.
                    run: None,
                    files_after: None,
                    earlier: Vec::new(),
                    ..awaited
                };
                self.not_taken(cleared, why)
            }
            GoesBack::Superseded(config) => {
                let why = format!("{config} was applied since, so nothing was taken back");
                self.not_taken(awaited, why)
            }
        }
    }

    /// Reports once that the awaited deployment does not run, and then only while the node is a half.
    fn not_taken(&self, awaited: Awaited, why: String) -> Result<Completed> {
        let half = os::half(self.root)?;
        let said = awaited.failed.is_some();
        let superseded = awaited.run.is_some() && half.is_none();
        if half.is_none() && (said || superseded) {
            forget(self.root)?;
            return Ok(Completed::settled(&awaited, &why));
        }
        let is_half = half.is_some();
        let why = half.map_or(why.clone(), |words| format!("{why}; {words}"));
        let failed = self.give_up(awaited, why, is_half)?;
        Ok(Completed::failed(&failed))
    }

    /// Asking is not possible at boot: what was changed since stays, and is said.
    fn take_back(&self, awaited: &Awaited, runs: &[String]) -> Result<()> {
        if let Some(id) = awaited.run.as_ref().filter(|_| runs.is_empty()) {
            log::warn!("the run {id} is not in the history any more; its files stay as they are");
        }
        for id in runs {
            let mut history = transaction::read_history(self.root)?.into_iter();
            if let Some(run) = history.find(|run| run.id == *id) {
                self.take_run_back(run)?;
            }
        }
        Ok(())
    }

    fn take_run_back(&self, run: FinishedRun) -> Result<()> {
        let config = run.config.clone();
        let back = TakingBack::prepare(self.root, run, true, Allowed::default())?;
        for notice in &back.plan.notices {
            log::warn!("{}: {}", notice.subject, notice.message);
        }
        if let Some(blocker) = back.plan.blockers.first() {
            bail!(
                "the files of {config} cannot be taken back: {}: {}. Next: {}",
                blocker.subject,
                blocker.message,
                mco_rescue("rollback")
            );
        }
        // Nothing that reads them runs yet.
        back.carry_out(self.root, self.lock, now(), &[])?;
        tell_the_boot(
            self.root,
            back.plan.steps.iter().map(|planned| &planned.step),
        );
        Ok(())
    }

    fn give_up(&self, awaited: Awaited, why: String, half: bool) -> Result<Awaited> {
        let newest = transaction::read_history(self.root)?.into_iter().next();
        let failed = Awaited {
            boot: self.boot.to_owned(),
            // Files that never came can still come.
            head: awaited
                .head
                .clone()
                .map(|_| newest.map(|run| run.id).unwrap_or_default()),
            failed: Some(why),
            half,
            ..awaited
        };
        keep(self.root, &failed)?;
        Ok(failed)
    }
}

fn differs(drift: &Drift) -> String {
    format!("{}: {}", drift.subject, drift.detail)
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
