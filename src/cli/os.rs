//! Staging an operating system through rpm-ostree, one mutation at a time; and what has to be known at the next boot.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bits::Bits;
use super::complete::{self, ran};
use super::lent::Lent;
use super::pins;
use super::quorum;
use super::work::now;
use super::{Cli, Output};
use crate::command::rpm_ostree::arguments::{self, RebaseTarget, Version};
use crate::command::rpm_ostree::cause::RpmOstreeError;
use crate::command::rpm_ostree::packages::kernel_type_of;
use crate::command::rpm_ostree::status::{Deployment, Deployments};
use crate::command::{CommandLine, CommandRunner, HostRunner, systemctl};
use crate::drift;
use crate::error::RunError;
use crate::images::storage;
use crate::invocation::mco_rescue;
use crate::kargs::{Kargs, KargsChange};
use crate::node::host::boot_id;
use crate::node::requests::AskedFor;
use crate::node::system::{Facts, OF_DEPLOYMENTS, ask};
use crate::node::{Host, Records, System};
use crate::plan::{OsPlan, OsStep, PackageChange};
use crate::progress::{self, Work};
use crate::report;
use crate::root::Root;
use crate::staging::awaited::{Awaited, Booted, Inherited, Leaving, PIVOT, VERSION, Way};
use crate::sys::signals::{self, Answer, DeferredSignals};
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
    /// The run that was awaited before.
    pub over: Over,
    /// The arguments that the next boot has to have, once they are known.
    pub expected: RefCell<Option<Kargs>>,
    /// `CHECKSUM.SERIAL` of what is staged, once it is.
    pub staged: RefCell<Option<String>>,
}

/// The run that was awaited when another one began, and the part that is taken over from it.
#[derive(Debug, Default)]
pub struct Over {
    before: Option<Awaited>,
    inherited: Inherited,
    head: String,
}

impl Over {
    /// Looks at what is awaited.
    pub fn look(root: &Root, booted: &Booted) -> Result<Self> {
        let before = complete::awaited(root)?;
        let history = ran(&transaction::read_history(root)?);
        let inherited = before
            .as_ref()
            .map(|before| before.inherited(booted, &history));
        Ok(Self {
            before,
            inherited: inherited.unwrap_or_default(),
            head: history
                .first()
                .map(|run| run.id.clone())
                .unwrap_or_default(),
        })
    }

    /// True where the way back would be longer than the history, which keeps only some runs.
    pub fn is_full(&self) -> bool {
        self.inherited.earlier.len() >= transaction::HISTORY_KEPT
    }
}

impl Staging<'_> {
    /// Stages everything; after a failure nothing of ours is staged any more.
    ///
    /// What is awaited is written first: a power cut at any moment later is told at the next boot.
    pub fn stage(&self, facts: &Facts) -> Result<()> {
        if self.plan.is_empty() {
            return Ok(());
        }
        // Whoever ends the run must not leave behind what rpm-ostreed is lent, nor what is half staged.
        let signals = DeferredSignals::new();
        signals::answer(Answer::Cancelling);
        let lent = Lent {
            root: self.root,
            lock: self.lock,
        };
        if self.plan.needs_reboot() {
            self.remember_asked()?;
            complete::keep(self.root, &self.awaited(None)?)?;
        }
        let staged = self.steps(facts, &lent, &signals);
        let taken_back = lent.take_back();
        let failed = match (staged.and_then(|()| self.proof()), taken_back) {
            (Ok(()), Ok(())) => {
                signals::answer(Answer::SeeStatus);
                return self.is_staged();
            }
            (Ok(()), Err(error)) => (
                format!("{error:#}"),
                "see to it, then run this again".into(),
            ),
            (Err(failed), _) => failed,
        };
        let error = self.undo(&failed.0, &failed.1);
        if let Some(signal) = signals.waiting() {
            // Nobody is there to say it when the signal has its way.
            log::warn!("ended by {signal}: {error:#}");
            signals::answer(Answer::Said);
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
                .map_err(|cause| (format!("{}: {cause}", doing(step)), cause.next_step()))?;
        }
        Ok(())
    }

    /// Remembers the requests of the config that runs: its record is about to be replaced.
    fn remember_asked(&self) -> Result<()> {
        if let Some(asked) = &self.plan.booted_asked {
            complete::remember_asked(self.root, asked.clone())?;
        }
        Ok(())
    }

    /// Everything is staged: it is awaited under its name from here on.
    fn is_staged(&self) -> Result<()> {
        if !self.plan.needs_reboot() {
            return Ok(());
        }
        let awaited = self.awaited(None)?;
        if let (Some(deployment), Some(present)) =
            (&awaited.staged, self.expected.borrow().as_ref())
            && let Some(asked) = self.staged_asked()
        {
            let asked = AskedFor {
                deployment: deployment.clone(),
                command_line: present.tokens().to_vec(),
                ..asked
            };
            complete::remember_asked(self.root, asked)?;
        }
        complete::keep(self.root, &awaited)
    }

    /// Gives the requests of the config that is staged; an image alone is still of the one before.
    fn staged_asked(&self) -> Option<AskedFor> {
        if self.config.origin == PIVOT {
            return self.plan.base_asked.clone();
        }
        Some(AskedFor {
            arguments: self.plan.arguments.tokens().to_vec(),
            extensions: self.plan.extensions.clone(),
            ..AskedFor::default()
        })
    }

    /// The files are in place: `run` can be taken back should the wanted deployment not come up.
    pub fn remember_run(&self, run: String) -> Result<()> {
        if !self.plan.needs_reboot() {
            settle(self.root);
            return Ok(());
        }
        let awaited = self.awaited(Some(run.clone()))?;
        complete::keep(self.root, &awaited)?;
        complete::keep_os_run(self.root, awaited.os_run(run))
    }

    /// The files could not be applied: what we staged goes, and what was awaited before is again.
    pub fn take_back(&self) -> Result<()> {
        if self.plan.steps.iter().any(OsStep::is_staging) {
            ask(&HostRunner, &arguments::drop_pending()).map_err(|cause| {
                anyhow::anyhow!("dropping what was staged: {}", cause.to_line())
            })?;
        }
        self.unpin();
        self.await_as_before()
    }

    fn await_as_before(&self) -> Result<()> {
        match &self.over.before {
            Some(before) => complete::keep(self.root, before),
            None => complete::forget(self.root),
        }
    }

    /// What we pinned and nobody needs now would fill `/boot` for ever.
    fn unpin(&self) {
        let pins = |step: &OsStep| matches!(step, OsStep::Pin { .. });
        if !self.plan.steps.iter().any(pins) {
            return;
        }
        if let Err(error) = pins::let_go(self.root, |one| one.name() == self.plan.booted) {
            log::warn!(
                "unpinning what runs: {error:#}. Next: {}",
                mco_rescue("rollback --forget")
            );
        }
    }

    fn awaited(&self, run: Option<String>) -> Result<Awaited> {
        Ok(Awaited {
            version: VERSION,
            way: Way::Forward,
            config: self.config.clone(),
            files_after: match run {
                None if self.files => Some(self.over.head.clone()),
                _ => None,
            },
            run,
            head: Some(self.over.head.clone()),
            earlier: self.over.inherited.earlier.clone(),
            boot: boot_id().context("the kernel tells no boot id")?,
            from: self.plan.booted.clone(),
            way_back: self.over.inherited.way_back.clone(),
            staged: self.staged.borrow().clone(),
            image: self.plan.image.clone(),
            kernel_arguments: self.plan.arguments.tokens().to_vec(),
            gone_arguments: match self.expected.borrow().as_ref() {
                Some(expected) => self.plan.gone_arguments(expected),
                None => Vec::new(),
            },
            since: now(),
            failed: None,
            half: false,
        })
    }

    fn step(
        &self,
        step: &OsStep,
        facts: &Facts,
        lent: &Lent<'_>,
        signals: &DeferredSignals,
    ) -> Result<(), RpmOstreeError> {
        match step {
            OsStep::Repository(from) => {
                self.say(&format!("{}\n", doing(step)));
                return lent.repository(from);
            }
            OsStep::Pin { deployment, .. } => {
                pins::remember(self.root, deployment)
                    .map_err(|error| RpmOstreeError::of_failure(&error))?;
            }
            OsStep::Image { to, .. } if self.bits == Bits::Storage => {
                let lending = lent.exception(to);
                lending.map_err(|error| RpmOstreeError::of_failure(&error))?;
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

    fn line(
        &self,
        step: &OsStep,
        version: &Version,
    ) -> Result<Option<CommandLine>, RpmOstreeError> {
        Ok(match step {
            OsStep::Pin { index, .. } => Some(arguments::pin_deployment(*index)),
            OsStep::DropStaged { .. } => Some(arguments::drop_pending()),
            OsStep::Bring { from, image } => Some(storage::bring(from, image)),
            OsStep::Image { to, .. } => {
                let target = match self.bits {
                    Bits::Registry => RebaseTarget::Registry(to.clone()),
                    Bits::Storage => RebaseTarget::Storage(to.clone()),
                };
                Some(arguments::rebase_to(&target, version))
            }
            OsStep::Kept { to, commit, .. } => {
                let target = RebaseTarget::Commit {
                    checksum: commit.clone(),
                    image: to.clone(),
                };
                Some(arguments::rebase_to(&target, version))
            }
            // What was staged before may have brought its own: only now it is known what is missing.
            OsStep::Arguments { .. } => {
                let present = next_arguments()?;
                let wanted = present.after_change(&self.plan.old_arguments, &self.plan.arguments);
                let changes = present.changes_to(&wanted);
                self.expected.replace(Some(wanted));
                arguments::change_kargs(&changes)
            }
            OsStep::Packages { command, .. } => Some(arguments::change_packages(command)),
            OsStep::Repository(_) => None,
        })
    }

    fn is_done(&self, step: &OsStep) -> bool {
        match step {
            OsStep::Image { to, .. } | OsStep::Kept { to, .. } => deployments()
                .is_ok_and(|all| all.next_boot().is_some_and(|next| next.image() == *to)),
            OsStep::Arguments { .. } => self.wrong_arguments().is_ok_and(|wrong| wrong.is_none()),
            OsStep::Packages { .. } => {
                deployments().is_ok_and(|all| self.lacks_packages(all.next_boot()).is_none())
            }
            OsStep::Pin { .. }
            | OsStep::DropStaged { .. }
            | OsStep::Bring { .. }
            | OsStep::Repository(_) => false,
        }
    }

    /// Names wrong arguments of the next boot: a wanted one is missing, or one that is to go is there.
    fn wrong_arguments(&self) -> Result<Option<String>, RpmOstreeError> {
        let present = next_arguments()?;
        let mut expected = self.expected.borrow_mut();
        let changes = match expected.as_ref() {
            Some(expected) => present.changes_to(expected),
            None => Vec::new(),
        };
        let missing = self.plan.arguments.missing_from(&present).join(" ");
        let disordered = self.plan.arguments.out_of_order(&present).join(" ");
        expected.get_or_insert(present);
        if !missing.is_empty() {
            return Ok(Some(format!("{missing} is missing from what is staged")));
        }
        if !disordered.is_empty() {
            return Ok(Some(format!("{disordered} is staged in another order")));
        }
        let words: Vec<String> = changes.iter().map(KargsChange::command_option).collect();
        Ok((!words.is_empty()).then(|| format!("what is staged still needs {}", words.join(" "))))
    }

    /// Names wrong packages of the next boot, in the daemon's words where it has some.
    fn lacks_packages(&self, next: Option<&Deployment>) -> Option<String> {
        let Some(next) = next else {
            return Some("no staged deployment found after applying extensions".to_owned());
        };
        let lacks = |name: &&String| !next.requested_packages.contains(name);
        let missing: Vec<&str> = self
            .plan
            .packages
            .iter()
            .filter(lacks)
            .map(String::as_str)
            .collect();
        let lacking = "the following extension packages are missing from the staged deployment";
        if !missing.is_empty() {
            return Some(format!("{lacking}: [{}]", missing.join(" ")));
        }
        let is_there = |name: &&str| next.requested_packages.iter().any(|one| one == name);
        let gone = self.plan.gone_packages().into_iter();
        let left: Vec<&str> = gone.filter(is_there).collect();
        if !left.is_empty() {
            return Some(format!(
                "packages that are to go are still in the staged deployment: [{}]",
                left.join(" ")
            ));
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
        let said = |cause: RpmOstreeError| {
            let words = format!("looking at what is staged: {cause}");
            (words, cause.next_step())
        };
        let all = deployments().map_err(said)?;
        let look = || "look at it: rpm-ostree status".to_owned();
        if !self.plan.needs_reboot() {
            let stays = all.next_boot().is_some_and(|next| next.booted);
            let words = "the next boot would still not enter what runs".to_owned();
            return if stays { Ok(()) } else { Err((words, look())) };
        }
        self.staged.replace(all.next_boot().map(Deployment::name));
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
        match self.wrong_arguments().map_err(said)? {
            None => Ok(()),
            Some(wrong) => Err((
                format!("kernel arguments: {wrong}"),
                "look at it: rpm-ostree kargs".to_owned(),
            )),
        }
    }

    /// Only what we staged is dropped, and what was awaited before is again.
    fn undo(&self, words: &str, next: &str) -> anyhow::Error {
        let dropped = match self.plan.steps.iter().any(OsStep::is_staging) {
            true => ask(&HostRunner, &arguments::drop_pending()).map(drop),
            false => Ok(()),
        };
        self.unpin();
        match (dropped, self.await_as_before()) {
            (Ok(()), Ok(())) => match &self.over.before {
                Some(before) if self.plan.drops() && before.failed.is_none() => anyhow::anyhow!(
                    "{words}; no file was changed, but what was staged for {name} is gone. Next: {apply}, or {back}",
                    apply = before.apply_command(),
                    back = mco_rescue("rollback"),
                    name = before.config.name
                ),
                _ => anyhow::anyhow!(
                    "{words}; nothing is staged, and no file was changed. Next: {next}"
                ),
            },
            (Err(cause), _) => RunError::Incomplete(format!(
                "{words}; then, dropping what was staged: {cause}. Next: rpm-ostree cleanup -p"
            ))
            .into(),
            (_, Err(error)) => error.context(words.to_owned()),
        }
    }
}

fn doing(step: &OsStep) -> &'static str {
    match step {
        OsStep::Pin { .. } => "pinning what runs",
        OsStep::DropStaged { .. } => "dropping what is staged",
        OsStep::Bring { .. } => "bringing the image (this can take minutes)",
        OsStep::Image { .. } => "staging the image (this can take minutes)",
        OsStep::Kept { .. } => "staging the image of a deployment that is kept",
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
fn mutate(line: &CommandLine, ended: &dyn Fn() -> bool) -> Result<(), RpmOstreeError> {
    let cause = match HostRunner.run_until(line, ended) {
        Ok(answer) => match RpmOstreeError::of_command(&answer) {
            None => return Ok(()),
            Some(cause) => cause,
        },
        Err(error) => RpmOstreeError::of_error(&error),
    };
    if matches!(
        cause,
        RpmOstreeError::NoAnswer { .. } | RpmOstreeError::ClientKilled
    ) {
        end_transaction();
    }
    Err(cause)
}

fn end_transaction() {
    if let Err(cause) = ask(&HostRunner, &arguments::cancel_transaction()) {
        log::warn!("cancelling the transaction: {cause}");
    }
    let waiting = Work::new("Waiting for rpm-ostree to end its transaction");
    let _phase = progress::begin(waiting.within(CANCEL));
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
pub fn deployments() -> Result<Deployments, RpmOstreeError> {
    let answer = ask(&HostRunner, &arguments::status_json())?;
    Deployments::read(&answer).map_err(|error| RpmOstreeError::Unknown(error.to_string()))
}

fn next_arguments() -> Result<Kargs, RpmOstreeError> {
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

/// True where the staged deployment is of a run of ours that still waits for it.
pub fn is_staged_by_us(root: &Root) -> Result<bool> {
    let waits = |one: &Awaited| one.way == Way::Forward && one.failed.is_none();
    let awaited = complete::awaited(root)?.filter(|_| root.is_live());
    let Some(awaited) = awaited.filter(waits) else {
        return Ok(false);
    };
    let all = deployments().map_err(said)?;
    let is_its = |staged: &Deployment| {
        let image = awaited.image.as_ref();
        let name = awaited.staged.as_ref();
        // Without a name its staging was cut off.
        image.is_none_or(|image| *image == staged.image())
            && name.is_none_or(|name| *name == staged.name())
    };
    Ok(all.staged().is_some_and(is_its))
}

/// True where taking this run back drops the staged deployment, too.
pub fn is_staged_by(root: &Root, run: &str) -> Result<bool> {
    let awaited = complete::awaited(root)?;
    let its = awaited.is_some_and(|one| one.run.as_deref() == Some(run));
    Ok(its && is_staged_by_us(root)?)
}

/// Nothing is awaited any more where the next boot enters what runs, as every finished run leaves it that stages nothing.
///
/// The run is over by then: what fails here is said, and does not change how it ended.
pub fn settle(root: &Root) {
    if let Err(error) = try_settle(root) {
        log::warn!(
            "all is in place, but what is awaited cannot be settled: {error:#}. Next: {}",
            mco_rescue("status")
        );
    }
}

fn try_settle(root: &Root) -> Result<()> {
    if !root.is_live() || complete::awaited(root)?.is_none() {
        return Ok(());
    }
    match deployments() {
        Ok(all) if all.next_boot().is_some_and(|next| next.booted) => complete::forget(root),
        Ok(_) => Ok(()),
        Err(cause) => {
            log::warn!("{}", cause.to_line());
            Ok(())
        }
    }
}

/// In what the operating system that runs is not that of the recorded config, in words.
pub fn half(root: &Root) -> Result<Option<String>> {
    let records = Records::read(root)?;
    let System::Known(facts) = System::observe(root, &Host::observe(root)?, &HostRunner)? else {
        return Ok(None);
    };
    Ok(drift::os_mismatch(&records, &facts))
}

fn said(cause: RpmOstreeError) -> anyhow::Error {
    anyhow::anyhow!(cause.to_line())
}

/// Makes the deployment from before the one of the next boot.
///
/// The record of what is awaited stays where the node is there already: until the files are back, a boot has to bring
/// them.
pub fn go_back(root: &Root, leaving: &Leaving, config: &str) -> Result<WayBack> {
    let mut all = deployments().map_err(said)?;
    let booted = all.running()?.name();
    if booted != leaving.to && all.named(&leaving.to).is_none() {
        bail!(
            "the deployment that ran before {config} is gone, so its operating system cannot come back by itself. \
             Stage its image: {}; or take only the files back: {}",
            mco_rescue("pivot IMAGE"),
            mco_rescue("rollback --files-only")
        );
    }
    let is_back = booted == leaving.to;
    if !is_back {
        complete::keep(root, &awaited_back(leaving, config, booted)?)?;
    }
    let failed = |error: anyhow::Error| match complete::forget(root) {
        Ok(()) if !is_back => error.context("making the deployment from before the next one"),
        _ => error,
    };
    if is_back || all.staged().is_some() {
        ask(&HostRunner, &arguments::drop_pending()).map_err(|cause| failed(said(cause)))?;
        all = deployments().map_err(|cause| failed(said(cause)))?;
    }
    enter(&all, &leaving.to).map_err(|cause| failed(said(cause)))?;
    Ok(if is_back {
        WayBack::StillHere
    } else {
        WayBack::NextBoot
    })
}

/// Makes a deployment that is there, and not staged, the one of the next boot.
fn enter(all: &Deployments, name: &str) -> Result<(), RpmOstreeError> {
    let Some(wanted) = all.named(name).filter(|wanted| wanted.index != 0) else {
        return Ok(());
    };
    // Where another deployment comes first already, rpm-ostree's rollback makes the one that runs the first again.
    let runs_first = all.booted().is_some_and(|booted| booted.index == 0);
    let rollback = all.rollback().filter(|_| runs_first);
    let line = if rollback.is_some_and(|next| next.index == wanted.index) {
        arguments::swap_rollback()
    } else {
        arguments::set_default(wanted.index)
    };
    mutate(&line, &|| false)
}

fn awaited_back(leaving: &Leaving, config: &str, booted: String) -> Result<Awaited> {
    let mut runs = leaving.runs.iter();
    let run = runs.next().cloned();
    Ok(Awaited {
        version: VERSION,
        way: Way::Back,
        config: ConfigRef {
            name: config.to_owned(),
            digest: String::new(),
            origin: "rollback".to_owned(),
        },
        run,
        files_after: None,
        head: None,
        earlier: runs.rev().cloned().collect(),
        boot: boot_id().context("the kernel tells no boot id")?,
        from: booted,
        way_back: None,
        staged: Some(leaving.to.clone()),
        image: None,
        kernel_arguments: Vec::new(),
        gone_arguments: Vec::new(),
        since: now(),
        failed: None,
        half: false,
    })
}

/// Reboots, as asked, unless etcd would lose its quorum now.
pub fn reboot(root: &Root, ignore_quorum: bool) -> Result<()> {
    quorum::allows(root, ignore_quorum)?;
    let answer = HostRunner.run(&systemctl::reboot_node())?;
    if answer.status != Some(0) {
        bail!(
            "rebooting: {}. Next: systemctl reboot",
            answer.stderr.trim()
        );
    }
    Ok(())
}
