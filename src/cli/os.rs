//! Staging an operating system through rpm-ostree, one mutation at a time; and what has to be known at the next boot.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bits::Bits;
use super::complete;
use super::lent::Lent;
use super::pins;
use super::quorum;
use super::work::now;
use super::{Cli, Output};
use crate::awaited::{Awaited, OsRun, VERSION, Way};
use crate::command::rpm_ostree::arguments::{self, Target, Version};
use crate::command::rpm_ostree::cause::Cause;
use crate::command::rpm_ostree::packages::kernel_type_of;
use crate::command::{CommandLine, CommandRunner, HostRunner, systemctl};
use crate::error::RunError;
use crate::images::storage;
use crate::kargs::Kargs;
use crate::node::deployments::{Deployment, Deployments};
use crate::node::host::boot_id;
use crate::node::system::{Facts, OF_DEPLOYMENTS, ask};
use crate::plan::{OsPlan, OsStep, PackageChange};
use crate::report;
use crate::root::Root;
use crate::signals::DeferredSignals;
use crate::transaction;
use crate::transaction::journal::ConfigRef;

/// How long a cancelled transaction may take to end.
const CANCEL: Duration = Duration::from_secs(120);
/// How often it is asked.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Staging for one config.
pub struct Staging<'a> {
    /// The command line.
    pub cli: &'a Cli,
    /// The root, where what is awaited is kept.
    pub root: &'a Root,
    /// Proof that nobody else is at it.
    pub lock: &'a transaction::Lock,
    /// What is to be staged.
    pub plan: &'a OsPlan,
    /// For whom.
    pub config: ConfigRef,
    /// From where.
    pub bits: Bits,
    /// Whether files follow.
    pub files: bool,
}

impl Staging<'_> {
    /// Stages everything; after a failure nothing of ours is staged any more.
    ///
    /// What is awaited is written first: a power cut at any moment later is told at the next boot.
    pub fn stage(&self, facts: &Facts) -> Result<()> {
        if !self.plan.needs_reboot() {
            return Ok(());
        }
        // Whoever ends the run must not leave behind what rpm-ostreed is lent, nor what is half staged.
        let signals = DeferredSignals::new();
        let lent = Lent {
            root: self.root,
            lock: self.lock,
        };
        let before = complete::awaited(self.root)?;
        complete::keep(self.root, &self.awaited(None)?)?;
        let staged = self.steps(facts, &lent, &signals);
        let taken_back = lent.take_back();
        let failed = match (staged.and_then(|()| self.proof()), taken_back) {
            (Ok(()), Ok(())) => return Ok(()),
            (Ok(()), Err(error)) => (
                format!("{error:#}"),
                "see to it, then run this again".into(),
            ),
            (Err(failed), _) => failed,
        };
        let error = self.undo(before.as_ref(), &failed.0, &failed.1);
        if let Some(signal) = signals.waiting() {
            // Nobody is there to say it when the signal has its way.
            log::warn!("ended by {signal}: {error:#}");
        }
        Err(error)
    }

    /// Takes all steps; else what went wrong, and what to do.
    fn steps(
        &self,
        facts: &Facts,
        lent: &Lent<'_>,
        signals: &DeferredSignals,
    ) -> Result<(), (String, String)> {
        for step in &self.plan.steps {
            if let Some(signal) = signals.waiting() {
                return Err((format!("ended by {signal}"), "run this again".to_owned()));
            }
            self.step(step, facts, lent, signals)
                .map_err(|cause| (format!("{}: {cause}", doing(step)), cause.next()))?;
        }
        Ok(())
    }

    /// The files are in place: `run` can be taken back should the wanted deployment not come up.
    pub fn remember_run(&self, run: String) -> Result<()> {
        complete::keep(self.root, &self.awaited(Some(run.clone()))?)?;
        let from = self.plan.booted.clone();
        complete::keep_os_run(self.root, OsRun { run, from })
    }

    /// The files could not be applied: what we staged goes, and nothing is awaited.
    pub fn take_back(&self) -> Result<()> {
        if self.plan.steps.iter().any(OsStep::is_staging) {
            ask(&HostRunner, &arguments::drop_pending()).map_err(|cause| {
                anyhow::anyhow!("dropping what was staged: {cause}. {}", cause.next())
            })?;
        }
        self.unpin();
        complete::forget(self.root)
    }

    /// What we pinned and nobody needs now would fill `/boot` for ever.
    fn unpin(&self) {
        let pins = |step: &OsStep| matches!(step, OsStep::Pin { .. });
        if !self.plan.steps.iter().any(pins) {
            return;
        }
        if let Err(error) = pins::let_go(self.root, |one| one.name() == self.plan.booted) {
            log::warn!("unpinning what runs: {error:#}. Next: mco-rescue rollback --forget");
        }
    }

    fn awaited(&self, run: Option<String>) -> Result<Awaited> {
        Ok(Awaited {
            version: VERSION,
            way: Way::Forward,
            config: self.config.clone(),
            files_after: match run {
                None if self.files => Some(newest_run(self.root)?),
                _ => None,
            },
            run,
            boot: boot_id().context("the kernel tells no boot id")?,
            from: self.plan.booted.clone(),
            image: self.plan.image.clone(),
            kernel_arguments: self.plan.arguments.tokens().to_vec(),
            since: now(),
            failed: None,
        })
    }

    fn step(
        &self,
        step: &OsStep,
        facts: &Facts,
        lent: &Lent<'_>,
        signals: &DeferredSignals,
    ) -> Result<(), Cause> {
        match step {
            OsStep::Repository(from) => {
                self.say(&format!("{}\n", doing(step)));
                return lent.repository(from);
            }
            OsStep::Pin { deployment, .. } => {
                pins::remember(self.root, deployment).map_err(|error| Cause::of_failure(&error))?;
            }
            OsStep::Image { to, .. } if self.bits == Bits::Storage => {
                let lending = lent.exception(to);
                lending.map_err(|error| Cause::of_failure(&error))?;
            }
            _ => {}
        }
        let Some(line) = self.line(step, &facts.version)? else {
            return Ok(());
        };
        self.say(&format!(
            "{}: {} {}\n",
            doing(step),
            line.program,
            line.args.join(" ")
        ));
        match mutate(&line, &|| signals.waiting().is_some()) {
            // It may have been staged all the same: whoever asks for a proof later finds out.
            Err(cause) if signals.waiting().is_none() && self.is_done(step) => {
                log::warn!("{cause}; but it is staged");
                Ok(())
            }
            other => other,
        }
    }

    fn say(&self, words: &str) {
        if self.cli.output == Output::Text {
            report::print_result(words.as_bytes());
        }
    }

    fn line(&self, step: &OsStep, version: &Version) -> Result<Option<CommandLine>, Cause> {
        Ok(match step {
            OsStep::Pin { index, .. } => Some(arguments::pin(*index)),
            OsStep::DropStaged { .. } => Some(arguments::drop_pending()),
            OsStep::Bring { from, image } => Some(storage::bring(from, image)),
            OsStep::Image { to, .. } => {
                let target = match self.bits {
                    Bits::Registry => Target::Registry(to.clone()),
                    Bits::Storage => Target::Storage(to.clone()),
                };
                Some(arguments::rebase(&target, version))
            }
            // What was staged before may have brought its own: only now it is known what is missing.
            OsStep::Arguments { .. } => {
                let present = next_arguments()?;
                let wanted = present.towards(&self.plan.old_arguments, &self.plan.arguments);
                arguments::kargs(&present.changes_to(&wanted))
            }
            OsStep::Packages { command, .. } => Some(arguments::change_packages(command)),
            OsStep::Repository(_) => None,
        })
    }

    fn is_done(&self, step: &OsStep) -> bool {
        match step {
            OsStep::Image { to, .. } => deployments()
                .is_ok_and(|all| all.next_boot().is_some_and(|next| next.image() == *to)),
            OsStep::Arguments { .. } => self.arguments_are_there().unwrap_or_default(),
            OsStep::Packages { .. } => {
                deployments().is_ok_and(|all| self.lacks_packages(all.next_boot()).is_none())
            }
            OsStep::Pin { .. }
            | OsStep::DropStaged { .. }
            | OsStep::Bring { .. }
            | OsStep::Repository(_) => false,
        }
    }

    fn arguments_are_there(&self) -> Result<bool, Cause> {
        let (present, wanted) = (next_arguments()?, &self.plan.arguments);
        Ok(wanted.missing_from(&present).is_empty() && wanted.disordered(&present).is_empty())
    }

    /// What the next boot lacks of the packages; in the daemon's words where it has some.
    fn lacks_packages(&self, next: Option<&Deployment>) -> Option<String> {
        let Some(next) = next else {
            return Some("no staged deployment found after applying extensions".to_owned());
        };
        let has = |name: &&String| !next.requested_packages.contains(name);
        let missing: Vec<&str> = self
            .plan
            .packages
            .iter()
            .filter(has)
            .map(String::as_str)
            .collect();
        let lacking = "the following extension packages are missing from the staged deployment";
        if !missing.is_empty() {
            return Some(format!("{lacking}: [{}]", missing.join(" ")));
        }
        let kernel = kernel_type_of(next);
        let wanted = self
            .plan
            .kernel_type
            .as_deref()
            .filter(|wanted| *wanted != kernel);
        wanted.map(|wanted| format!("the next boot has kernel type {kernel}, and not {wanted}"))
    }

    /// Exit codes prove nothing: the next boot has to have what is wanted. Else what is wrong, and what to do.
    fn proof(&self) -> Result<(), (String, String)> {
        let said = |cause: Cause| {
            let words = format!("looking at what is staged: {cause}");
            (words, cause.next())
        };
        let all = deployments().map_err(said)?;
        let look = || "look at it: rpm-ostree status".to_owned();
        if let Some(words) = self.lacks_packages(all.next_boot()) {
            return Err((words, look()));
        }
        let next = all.next_boot().map(|next| next.image()).unwrap_or_default();
        if let Some(wanted) = &self.plan.image
            && next != *wanted
        {
            let words = format!(
                "the next boot would enter {next:?}, not {wanted:?}, although rpm-ostree said nothing"
            );
            return Err((words, look()));
        }
        if self.arguments_are_there().map_err(said)? {
            Ok(())
        } else {
            Err((
                "kernel arguments are missing from what is staged, or in another order".to_owned(),
                "look at it: rpm-ostree kargs".to_owned(),
            ))
        }
    }

    /// Only what we staged is dropped, and what was awaited before is again.
    fn undo(&self, before: Option<&Awaited>, words: &str, next: &str) -> anyhow::Error {
        let dropped = match self.plan.steps.iter().any(OsStep::is_staging) {
            true => ask(&HostRunner, &arguments::drop_pending()).map(drop),
            false => Ok(()),
        };
        self.unpin();
        let kept = match before {
            Some(before) => complete::keep(self.root, before),
            None => complete::forget(self.root),
        };
        match (dropped, kept) {
            (Ok(()), Ok(())) => {
                anyhow::anyhow!("{words}; nothing is staged, and no file was changed. Next: {next}")
            }
            (Err(cause), _) => RunError::Incomplete(format!(
                "{words}; then, dropping what was staged: {cause}. Next: rpm-ostree cleanup -p"
            ))
            .into(),
            (_, Err(error)) => error.context(words.to_owned()),
        }
    }
}

fn newest_run(root: &Root) -> Result<String> {
    let newest = transaction::history(root)?.into_iter().next();
    Ok(newest.map(|run| run.id).unwrap_or_default())
}

fn doing(step: &OsStep) -> &'static str {
    match step {
        OsStep::Pin { .. } => "pinning what runs",
        OsStep::DropStaged { .. } => "dropping what is staged",
        OsStep::Bring { .. } => "bringing the image (this can take minutes)",
        OsStep::Image { .. } => "staging the image (this can take minutes)",
        OsStep::Arguments { .. } => "staging the kernel arguments",
        OsStep::Repository(_) => "making the packages of the extensions known",
        OsStep::Packages { what, .. } => match what {
            PackageChange::KernelBack => "staging the image's own kernel",
            PackageChange::Kernel => "staging another kernel (this can take minutes)",
            PackageChange::Extensions => "staging the extensions (this can take minutes)",
        },
    }
}

/// Runs what changes deployments. A client that is killed leaves its transaction to the daemon, so that has to end.
fn mutate(line: &CommandLine, ended: &dyn Fn() -> bool) -> Result<(), Cause> {
    let cause = match HostRunner.run_until(line, ended) {
        Ok(answer) => match Cause::of(&answer) {
            None => return Ok(()),
            Some(cause) => cause,
        },
        Err(error) => Cause::of_error(&error),
    };
    if matches!(cause, Cause::NoAnswer { .. } | Cause::ClientKilled) {
        end_transaction();
    }
    Err(cause)
}

fn end_transaction() {
    if let Err(cause) = ask(&HostRunner, &arguments::cancel()) {
        log::warn!("cancelling the transaction: {cause}");
    }
    let until = Instant::now() + CANCEL;
    while Instant::now() < until {
        if deployments().is_ok_and(|all| all.transaction.is_none()) {
            return;
        }
        thread::sleep(ASK_AGAIN);
    }
    log::warn!(
        "a transaction of rpm-ostree still runs. Next: rpm-ostree status, then rpm-ostree cancel"
    );
}

/// The deployments as they are now.
pub fn deployments() -> Result<Deployments, Cause> {
    let answer = ask(&HostRunner, &arguments::status())?;
    Deployments::read(&answer).map_err(|error| Cause::Unknown(error.to_string()))
}

fn next_arguments() -> Result<Kargs, Cause> {
    let answer = ask(&HostRunner, &arguments::show_kargs())?;
    Ok(Kargs::parse(answer.trim()).without(&OF_DEPLOYMENTS))
}

/// The way back of a run that changed the operating system.
pub enum WayBack {
    /// The node never left: what was staged is dropped, and the files go back now.
    StillHere,
    /// The next boot enters the deployment from before; its files go back there.
    NextBoot,
}

/// Whether what is staged is what this run staged and still waits for: taking it back drops that too.
pub fn is_staged_by(root: &Root, run: &str) -> Result<bool> {
    let waits = |one: &Awaited| one.way == Way::Forward && one.run.as_deref() == Some(run);
    let awaited = complete::awaited(root)?.filter(|_| root.is_live());
    let Some(awaited) = awaited.filter(waits) else {
        return Ok(false);
    };
    let said = |cause: Cause| anyhow::anyhow!("{cause}. {}", cause.next());
    let staged = deployments().map_err(said)?;
    let staged = staged.staged().map(|staged| staged.image());
    Ok(staged.is_some_and(|found| awaited.image.is_none_or(|image| image == found)))
}

/// Makes the deployment that a run came from the one of the next boot.
pub fn go_back(root: &Root, run: &OsRun, config: &str) -> Result<WayBack> {
    let said = |cause: Cause| anyhow::anyhow!("{cause}. {}", cause.next());
    let all = deployments().map_err(said)?;
    let booted = all.running()?.name();
    if booted == run.from {
        ask(&HostRunner, &arguments::drop_pending()).map_err(said)?;
        complete::forget(root)?;
        return Ok(WayBack::StillHere);
    }
    let Some(before) = all.named(&run.from) else {
        bail!(
            "the deployment that ran before {config} is gone, so its operating system cannot come back by itself. \
             Stage its image: mco-rescue pivot IMAGE; or take only the files back: mco-rescue rollback --files-only"
        );
    };
    complete::keep(root, &awaited_back(run, config, booted)?)?;
    let line = if all.staged().is_none()
        && all
            .rollback()
            .is_some_and(|next| next.index == before.index)
    {
        arguments::rollback()
    } else {
        arguments::set_default(before.index)
    };
    if let Err(cause) = mutate(&line, &|| false) {
        complete::forget(root)?;
        return Err(said(cause).context("making the deployment from before the next one"));
    }
    Ok(WayBack::NextBoot)
}

fn awaited_back(run: &OsRun, config: &str, booted: String) -> Result<Awaited> {
    Ok(Awaited {
        version: VERSION,
        way: Way::Back,
        config: ConfigRef {
            name: config.to_owned(),
            digest: String::new(),
            origin: "rollback".to_owned(),
        },
        run: Some(run.run.clone()),
        files_after: None,
        boot: boot_id().context("the kernel tells no boot id")?,
        from: booted,
        image: None,
        kernel_arguments: Vec::new(),
        since: now(),
        failed: None,
    })
}

/// Reboots, as asked, unless etcd would lose its quorum now.
pub fn reboot(root: &Root, ignore_quorum: bool) -> Result<()> {
    quorum::allows(root, ignore_quorum)?;
    let answer = HostRunner.run(&systemctl::reboot())?;
    if answer.status != Some(0) {
        bail!(
            "rebooting: {}. Next: systemctl reboot",
            answer.stderr.trim()
        );
    }
    Ok(())
}
