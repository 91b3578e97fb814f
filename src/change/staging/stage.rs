//! Stages an operating system through rpm-ostree, one change at a time, and records what the next boot needs to know.

use std::cell::RefCell;

use anyhow::{Result, bail};

use super::awaited::{Awaited, Booted, Inherited, PIVOT, VERSION, Way};
use super::deployments::{
    drop_command, drop_staged, explain_cause, keep_running, next_arguments, queue_again,
    read_deployments, run_transaction, settle_after_run,
};
use super::image_source::ImageSource;
use super::import::{PlannedImport, import_image};
use super::lease::Lease;
use super::{local_commits, pins, state};
use crate::base::error::RunError;
use crate::base::invocation::{advise_doctor, mco_rescue, shell_words, whole_command};
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::secrets::{redacted_arguments, shown_arguments};
use crate::base::time::current_time;
use crate::change::plan::{OsPlan, OsStep, PackageChange};
use crate::change::transaction;
use crate::change::transaction::journal::ConfigRef;
use crate::host::root::Root;
use crate::host::sys::signals::{self, DeferredSignals, SignalAnswer};
use crate::node::boot::BootIdentity;
use crate::node::command::rpm_ostree::arguments::{self, RebaseTarget, RpmOstreeVersion};
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::packages::kernel_type_of;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::command::{CommandLine, CommandRunner, bootc};
use crate::node::engine::Engine;
use crate::node::images::storage;
use crate::node::requests::AskedFor;
use crate::node::staged::staged_file;
use crate::node::system::SystemFacts;

/// Staging for one config.
#[allow(
    missing_debug_implementations,
    reason = "the runner of programs is a trait object"
)]
pub struct Staging<'a> {
    /// Starts programs.
    pub runner: &'a dyn CommandRunner,
    /// Prints one line of progress for the user.
    pub print: &'a dyn Fn(&str),
    /// The root, where the pending boot is stored.
    pub root: &'a Root,
    /// Proof that no other process stages.
    pub lock: &'a transaction::Lock,
    /// The plan of what is staged.
    pub plan: &'a OsPlan,
    /// The config for which it is staged.
    pub config: ConfigRef,
    /// From where.
    pub source: ImageSource,
    /// The id of the run whose files follow, if any do.
    pub files: Option<String>,
    /// The previously pending run.
    pub over: Over,
    /// The arguments that the next boot has to have, once known.
    pub expected: RefCell<Option<Kargs>>,
    /// `CHECKSUM.SERIAL` of the staged deployment, once it is staged.
    pub staged: RefCell<Option<String>>,
}

/// The run that was pending when another one began, and the part of it that is taken over.
#[derive(Debug, Default)]
pub struct Over {
    boot: BootIdentity,
    before: Option<Awaited>,
    inherited: Inherited,
    head: String,
}

impl Over {
    /// Reads the pending run.
    pub fn read_over(root: &Root, booted: &Booted) -> Result<Self> {
        let before = state::read_awaited(root)?;
        let history = state::summarise_runs(&transaction::read_history(root)?);
        let inherited = before
            .as_ref()
            .map(|before| before.inherited_part(booted, &history));
        Ok(Self {
            boot: booted.boot.clone(),
            before,
            inherited: inherited.unwrap_or_default(),
            head: history
                .first()
                .map(|run| run.id.clone())
                .unwrap_or_default(),
        })
    }

    /// Returns true if a rollback would need more runs than the history keeps.
    pub fn is_full(&self) -> bool {
        self.inherited.earlier.len() >= transaction::HISTORY_KEPT
    }
}

/// Why nothing could be staged, and what to do.
struct StagingFailure {
    why: String,
    next: String,
}

impl Staging<'_> {
    /// Stages everything; after a failure, nothing that this run staged is left.
    ///
    /// The pending boot is recorded first, so that a power cut at any later time is reported at the next boot.
    pub fn stage_all(&self, facts: &SystemFacts) -> Result<()> {
        if self.plan.is_empty() {
            return Ok(());
        }
        self.expect_as_planned(facts)?;
        // A signal that ends the run must leave nothing provided to rpm-ostreed and no incompletely staged deployment.
        let signals = DeferredSignals::new();
        signals::set_answer(SignalAnswer::Cancelling);
        let lease = Lease {
            root: self.root,
            lock: self.lock,
            runner: self.runner,
        };
        if self.plan.needs_reboot() {
            self.remember_asked()?;
            state::store_awaited(self.root, &self.awaited_boot())?;
        }
        let staged = self.take_steps(facts, &lease, &signals);
        let withdrawn = lease.remove_all();
        let failed = match (
            staged.and_then(|()| self.prove_staged(facts.engine)),
            withdrawn,
        ) {
            (Ok(()), Ok(())) => {
                signals::set_answer(SignalAnswer::SeeStatus);
                self.say_arguments_of_image(facts);
                return self.await_staged();
            }
            (Ok(()), Err(error)) => StagingFailure {
                why: format!("{error:#}"),
                next: whole_command(),
            },
            (Err(failed), _) => failed,
        };
        let error = self.drop_staged(&failed);
        if let Some(signal) = signals.waiting_signal() {
            // After the signal no code is left to report it.
            log::warn!("ended by {signal}: {error:#}");
            signals::set_answer(SignalAnswer::Said);
        }
        Err(error)
    }

    /// Refuses if the deployments are no longer those that the plan was made for: its steps name some of them by index.
    fn expect_as_planned(&self, facts: &SystemFacts) -> Result<()> {
        let now = read_deployments(self.root, self.runner);
        let now = now.map_err(|cause| explain_cause(self.root, &cause))?;
        if now.all != facts.deployments.all {
            bail!(
                "the deployments have changed since the plan was made; nothing was staged, and no file was changed. \
                 Next: {}",
                whole_command()
            );
        }
        Ok(())
    }

    /// Takes all steps.
    fn take_steps(
        &self,
        facts: &SystemFacts,
        lease: &Lease<'_>,
        signals: &DeferredSignals,
    ) -> Result<(), StagingFailure> {
        for step in &self.plan.steps {
            if let Some(signal) = signals.waiting_signal() {
                return Err(StagingFailure {
                    why: format!("ended by {signal}"),
                    next: whole_command(),
                });
            }
            let taken = self.take_step(step, facts, lease, signals);
            taken.map_err(|cause| self.staging_failure(step_gerund(step), &cause))?;
        }
        Ok(())
    }

    /// Prints the kernel arguments that the image itself adds and removes, which no config requests.
    fn say_arguments_of_image(&self, facts: &SystemFacts) {
        let expected = self.expected.borrow();
        let Some(staged) = expected.as_ref().filter(|_| facts.engine == Engine::Bootc) else {
            return;
        };
        let asked = self.plan.awaited_arguments();
        let gone = self.plan.gone_arguments(staged);
        let booted = &facts.booted_arguments;
        let comes = staged.missing_from(booted).into_iter();
        let comes = comes.filter(|token| !asked.tokens().iter().any(|one| one == token));
        let goes = booted.missing_from(staged).into_iter();
        let goes = goes.filter(|token| !gone.iter().any(|one| one == token));
        let words = comes.map(|token| format!("+{token}"));
        let words: Vec<String> = words.chain(goes.map(|token| format!("-{token}"))).collect();
        if !words.is_empty() {
            (self.print)(&format!(
                "kernel arguments of the image itself (/usr/lib/bootc/kargs.d): {}\n",
                redacted_arguments(&words.join(" "))
            ));
        }
    }

    /// Stores the requests of the running config, because its record is about to be replaced.
    fn remember_asked(&self) -> Result<()> {
        if let Some(asked) = &self.plan.booted_asked {
            state::store_requests(self.root, asked.clone())?;
        }
        Ok(())
    }

    /// Notes what is staged: it is awaited under its name from here on.
    fn await_staged(&self) -> Result<()> {
        if !self.plan.needs_reboot() {
            return Ok(());
        }
        let awaited = self.awaited_boot();
        if let (Some(deployment), Some(present)) =
            (&awaited.staged, self.expected.borrow().as_ref())
            && let Some(asked) = self.staged_asked()
        {
            let asked = AskedFor {
                deployment: deployment.clone(),
                command_line: present.tokens().to_vec(),
                ..asked
            };
            state::store_requests(self.root, asked)?;
        }
        state::store_awaited(self.root, &awaited)
    }

    /// Returns the requests of the staged config; an image that is staged alone still belongs to the previous config.
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

    /// Records that the files are in place: their run can be reverted if the wanted deployment does not boot.
    pub fn files_came(&self) {
        match (&self.files, self.plan.needs_reboot()) {
            (_, true) => state::settle_files(self.root),
            (Some(run), false) => settle_after_run(self.root, self.runner, run),
            (None, false) => {}
        }
    }

    /// Reverts the staging, because the files could not be applied: drops what this run staged, and restores what was pending
    /// before.
    pub fn revert_staging(&self) -> Result<()> {
        self.leave_nothing().map_err(|cause| {
            explain_cause(self.root, &cause).context("dropping what was staged")
        })?;
        self.unpin_unneeded();
        self.await_as_before()
    }

    /// Drops what this run staged, and queues again what was queued before.
    fn leave_nothing(&self) -> Result<(), RpmOstreeError> {
        if self.plan.steps.iter().any(OsStep::is_staging) {
            drop_staged(self.root, self.runner)?;
        }
        let queued = self.plan.steps.iter().find_map(|step| match step {
            OsStep::Stay { queued, .. } => Some(queued),
            _ => None,
        });
        match queued {
            Some(queued) => queue_again(self.root, self.runner, queued),
            None => Ok(()),
        }
    }

    fn spell_text(&self, text: &str) -> String {
        self.plan.engine.spell(text)
    }

    fn await_as_before(&self) -> Result<()> {
        match &self.over.before {
            Some(before) => state::store_awaited(self.root, before),
            None => state::forget_awaited(self.root),
        }
    }

    /// Unpins what this program pinned and no run needs: it would fill `/boot` forever.
    fn unpin_unneeded(&self) {
        let pins = |step: &OsStep| matches!(step, OsStep::Pin { .. });
        if !self.plan.steps.iter().any(pins) {
            return;
        }
        if let Err(error) =
            pins::unpin_deployments(self.root, self.runner, |one| one.name() == self.plan.booted)
        {
            log::warn!(
                "unpinning the running deployment: {error:#}. Next: {}",
                mco_rescue("rollback --forget")
            );
        }
    }

    fn awaited_boot(&self) -> Awaited {
        Awaited {
            version: VERSION,
            way: Way::Forward,
            config: self.config.clone(),
            run: self.files.clone(),
            files_after: self.files.as_ref().map(|_| self.over.head.clone()),
            head: Some(self.over.head.clone()),
            earlier: self.over.inherited.earlier.clone(),
            boot: self.over.boot.clone(),
            from: self.plan.booted.clone(),
            way_back: self.over.inherited.way_back.clone(),
            staged: self.staged.borrow().clone(),
            image: self.plan.image.clone(),
            kernel_arguments: self.plan.awaited_arguments().tokens().to_vec(),
            gone_arguments: match self.expected.borrow().as_ref() {
                Some(expected) => self.plan.gone_arguments(expected),
                None => Vec::new(),
            },
            since: current_time(),
            failed: None,
            half: false,
        }
    }

    fn take_step(
        &self,
        step: &OsStep,
        facts: &SystemFacts,
        lease: &Lease<'_>,
        signals: &DeferredSignals,
    ) -> Result<(), RpmOstreeError> {
        match step {
            OsStep::Repository(from) => {
                (self.print)(&format!("{}\n", step_gerund(step)));
                return lease.lease_repository(from);
            }
            OsStep::Import {
                from,
                image,
                commit,
                layers_checksum,
                ..
            } => {
                (self.print)(&format!("{} from {from}\n", step_gerund(step)));
                let is_ended = || signals.waiting_signal().is_some();
                let planned = PlannedImport {
                    from,
                    image,
                    commit,
                    layers_checksum,
                };
                return import_image(self.root, &planned, &|line| {
                    run_transaction(self.root, self.runner, line, &is_ended)
                });
            }
            OsStep::Pin { deployment, .. } => {
                pins::remember_pin(self.root, deployment)
                    .map_err(|error| RpmOstreeError::of_failure(&error))?;
            }
            OsStep::Stay { .. } => {
                (self.print)(&format!("{}\n", step_gerund(step)));
                return keep_running(self.root, self.runner);
            }
            // The exception is for rpm-ostreed; bootc uses the node's policy.
            OsStep::Image { to, .. }
                if self.source == ImageSource::Storage && facts.engine == Engine::RpmOstree =>
            {
                let lending = lease.lease_exception(to);
                lending.map_err(|error| RpmOstreeError::of_failure(&error))?;
            }
            _ => {}
        }
        let Some(line) = self.step_command(step, facts)? else {
            return Ok(());
        };
        (self.print)(&format!(
            "{}: {} {}\n",
            step_gerund(step),
            line.program,
            shell_words(&line.args)
        ));
        let run = || {
            let is_ended = || signals.waiting_signal().is_some();
            run_transaction(self.root, self.runner, &line, &is_ended)
        };
        match run() {
            // The bus restarts the daemon.
            Err(RpmOstreeError::DaemonDied)
                if signals.waiting_signal().is_none() && !self.is_done(step) =>
            {
                log::warn!("{}; trying once more", RpmOstreeError::DaemonDied);
                run()
            }
            // bootc itself keeps the running deployment for a rollback.
            Err(RpmOstreeError::NotInstalled(program))
                if facts.engine == Engine::Bootc && matches!(step, OsStep::Pin { .. }) =>
            {
                log::warn!("the running deployment is not pinned: {program} is not installed");
                Ok(())
            }
            // It may have been staged nevertheless, which the later verification detects.
            Err(cause) if signals.waiting_signal().is_none() && self.is_done(step) => {
                log::warn!("{cause}; but it is staged");
                Ok(())
            }
            other => other,
        }
    }

    fn step_command(
        &self,
        step: &OsStep,
        facts: &SystemFacts,
    ) -> Result<Option<CommandLine>, RpmOstreeError> {
        let version: &RpmOstreeVersion = &facts.version;
        Ok(match step {
            OsStep::Image { to, .. } if facts.engine == Engine::Bootc => {
                let transport = match self.source {
                    ImageSource::Registry => bootc::Transport::Registry,
                    ImageSource::Storage => bootc::Transport::Storage,
                };
                Some(bootc::switch_to(transport, to))
            }
            OsStep::Pin { index, .. } => Some(arguments::pin_deployment(*index)),
            OsStep::DropStaged { .. } => {
                let all = read_deployments(self.root, self.runner)?;
                drop_command(facts.engine, &all)
            }
            OsStep::Bring { from, image } => Some(storage::copy_into_storage(from, image)),
            OsStep::Image { to, .. } => {
                let target = match self.source {
                    ImageSource::Registry => RebaseTarget::Registry(to.clone()),
                    ImageSource::Storage => RebaseTarget::Storage(to.clone()),
                };
                Some(arguments::rebase_to(&target, version))
            }
            OsStep::Kept { to, commit, .. } if facts.engine == Engine::Bootc => {
                let all = read_deployments(self.root, self.runner)?;
                let running = &facts.image_arguments;
                let line = local_commits::stage_kept(self.root, &all, running, to, commit)?;
                Some(line)
            }
            OsStep::Kept { to, commit, .. } => {
                let target = RebaseTarget::Commit {
                    checksum: commit.clone(),
                    image: to.clone(),
                };
                Some(arguments::rebase_to(&target, version))
            }
            // The previous staging may have brought arguments of its own: only now is it known which are missing.
            OsStep::Arguments { .. } => {
                let present = next_arguments(self.root, self.runner)?;
                let wanted = self.plan.wanted_arguments(&present);
                let changes = present.changes_to(&wanted);
                let line = match facts.engine {
                    _ if changes.is_empty() => None,
                    Engine::RpmOstree => arguments::change_kargs(&changes),
                    Engine::Bootc => {
                        let all = read_deployments(self.root, self.runner)?;
                        Some(local_commits::change_arguments(self.root, &all, &wanted)?)
                    }
                };
                self.expected.replace(Some(wanted));
                line
            }
            OsStep::Packages { command, .. } => Some(arguments::change_packages(command)),
            OsStep::Repository(_) | OsStep::Stay { .. } | OsStep::Import { .. } => None,
        })
    }

    fn is_done(&self, step: &OsStep) -> bool {
        match step {
            OsStep::Image { to, .. } | OsStep::Kept { to, .. } => {
                read_deployments(self.root, self.runner)
                    .is_ok_and(|all| all.next_boot().is_some_and(|next| next.image() == *to))
            }
            OsStep::Arguments { .. } => self.wrong_arguments().is_ok_and(|wrong| wrong.is_none()),
            OsStep::Packages { .. } => read_deployments(self.root, self.runner)
                .is_ok_and(|all| self.lacks_packages(all.next_boot()).is_none()),
            OsStep::Pin { .. }
            | OsStep::DropStaged { .. }
            | OsStep::Stay { .. }
            | OsStep::Bring { .. }
            | OsStep::Import { .. }
            | OsStep::Repository(_) => false,
        }
    }

    /// Describes wrong arguments of the next boot: a wanted one is missing, or an unwanted one is present.
    fn wrong_arguments(&self) -> Result<Option<String>, RpmOstreeError> {
        let present = next_arguments(self.root, self.runner)?;
        let mut expected = self.expected.borrow_mut();
        let changes = match expected.as_ref() {
            Some(expected) => present.changes_to(expected),
            None => Vec::new(),
        };
        let missing = self
            .plan
            .awaited_arguments()
            .missing_from(&present)
            .join(" ");
        let disordered = self.plan.arguments.out_of_order(&present).join(" ");
        expected.get_or_insert(present);
        if !missing.is_empty() {
            return Ok(Some(format!(
                "{} is missing from what is staged",
                redacted_arguments(&missing)
            )));
        }
        if !disordered.is_empty() {
            return Ok(Some(format!(
                "{} is staged in another order",
                redacted_arguments(&disordered)
            )));
        }
        let words: Vec<String> = changes.iter().map(KargsChange::command_option).collect();
        Ok((!words.is_empty()).then(|| {
            format!(
                "what is staged still needs {}",
                shell_words(&shown_arguments(&words))
            )
        }))
    }

    /// Describes wrong packages of the next boot, using the daemon's messages if there are any.
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
                "packages that should be removed are still in the staged deployment: [{}]",
                left.join(" ")
            ));
        }
        let kernel = kernel_type_of(next);
        let wanted = self
            .plan
            .kernel_type
            .as_deref()
            .filter(|wanted| *wanted != kernel);
        wanted.map(|wanted| format!("the next boot has kernel type {kernel}, not {wanted}"))
    }

    /// Describes what is wrong with the file from which ostree writes the staged deployment at shutdown. Under rpm-ostree it
    /// may be missing if the status is right; under bootc it has to be right.
    fn wrong_file(
        &self,
        engine: Engine,
        next: Option<&Deployment>,
    ) -> Result<Option<String>, RpmOstreeError> {
        let Some(next) = next.filter(|next| next.staged) else {
            return Ok(None);
        };
        let file = staged_file(self.root);
        let file = file.map_err(|error| RpmOstreeError::Unknown(error.to_string()))?;
        let place = "/run/ostree/staged-deployment";
        Ok(match file {
            _ if next.finalization_locked => Some(format!(
                "{} is staged, but locked: no reboot would enter it",
                next.name()
            )),
            Some(file) if file.name != next.name() => {
                Some(format!("{place} names {}, not {}", file.name, next.name()))
            }
            None if engine == Engine::Bootc => {
                Some(format!("{place} does not name {}", next.name()))
            }
            _ if engine == Engine::Bootc && next.digest.is_none() => {
                Some(format!("bootc reports no digest for {}", next.name()))
            }
            _ => None,
        })
    }

    /// Returns the failure of a program while `doing`.
    fn staging_failure(&self, doing: &str, cause: &RpmOstreeError) -> StagingFailure {
        StagingFailure {
            why: self.spell_text(&format!("{doing}: {cause}")),
            next: self.spell_text(&cause.next_step()),
        }
    }

    /// Verifies that the next boot has what is wanted, because exit codes prove nothing.
    fn prove_staged(&self, engine: Engine) -> Result<(), StagingFailure> {
        let failed =
            |cause: RpmOstreeError| self.staging_failure("looking at what is staged", &cause);
        let all = read_deployments(self.root, self.runner).map_err(failed)?;
        let wrong = |why: String| {
            Err(StagingFailure {
                why,
                next: format!("{} status # shows it", engine.name()),
            })
        };
        if !self.plan.needs_reboot() {
            let stays = all.next_boot().is_some_and(|next| next.booted);
            let words = "the next boot would still not enter the running deployment".to_owned();
            return if stays { Ok(()) } else { wrong(words) };
        }
        self.staged.replace(all.next_boot().map(Deployment::name));
        if let Some(words) = self.lacks_packages(all.next_boot()) {
            return wrong(words);
        }
        let next = all.next_boot().map(|next| next.image()).unwrap_or_default();
        if let Some(wanted) = &self.plan.image
            && next != *wanted
        {
            let words = format!(
                "the next boot would enter {next:?}, not {wanted:?}, although {} said nothing",
                engine.name()
            );
            return wrong(words);
        }
        if let Some(words) = self.wrong_file(engine, all.next_boot()).map_err(failed)? {
            return wrong(words);
        }
        match self.wrong_arguments().map_err(failed)? {
            None => Ok(()),
            Some(why) if engine == Engine::RpmOstree => Err(StagingFailure {
                why: format!("kernel arguments: {why}"),
                next: "rpm-ostree kargs".to_owned(),
            }),
            Some(why) => wrong(format!("kernel arguments: {why}")),
        }
    }

    /// Drops only what this run staged, and restores what was pending before.
    fn drop_staged(&self, StagingFailure { why, next }: &StagingFailure) -> anyhow::Error {
        let dropped = self.leave_nothing();
        self.unpin_unneeded();
        match (dropped, self.await_as_before()) {
            (Ok(()), Ok(())) => match &self.over.before {
                Some(before) if self.plan.drops_staged() && before.failed.is_none() => {
                    anyhow::anyhow!(
                        "{why}; no file was changed, but what was staged for {name} is gone. Next: {apply}, or {back}",
                        apply = before.apply_command(),
                        back = mco_rescue("rollback"),
                        name = before.config.name
                    )
                }
                _ if self.plan.replaces_queued() => anyhow::anyhow!(
                    "{why}; nothing is staged, what was queued is queued again, and no file was changed. {}",
                    advise_doctor(next)
                ),
                _ => anyhow::anyhow!(
                    "{why}; nothing is staged, and no file was changed. {}",
                    advise_doctor(next)
                ),
            },
            (Err(cause), _) => RunError::Incomplete(format!(
                "{why}; then, dropping what was staged: {cause}. Next: {}",
                match self.plan.engine {
                    Engine::RpmOstree => "rpm-ostree cleanup -p",
                    Engine::Bootc => "ostree admin status, then ostree admin undeploy 0",
                }
            ))
            .into(),
            (_, Err(error)) => error.context(why.clone()),
        }
    }
}

fn step_gerund(step: &OsStep) -> &'static str {
    match step {
        OsStep::Pin { .. } => "pinning what runs",
        OsStep::DropStaged { .. } => "dropping what is staged",
        OsStep::Stay { .. } => "making the running deployment the next boot again",
        OsStep::Bring { .. } => "bringing the image (this can take minutes)",
        OsStep::Import { .. } => "importing the image",
        OsStep::Image { .. } => "staging the image (this can take minutes)",
        OsStep::Kept { .. } => "staging the image, which is on the node",
        OsStep::Arguments { .. } => "staging the kernel arguments",
        OsStep::Repository(_) => "making the packages of the extensions known",
        OsStep::Packages { what, .. } => match what {
            PackageChange::KernelBack => "staging the image's own kernel",
            PackageChange::Kernel => "staging another kernel (this can take minutes)",
            PackageChange::Extensions => "staging the extensions (this can take minutes)",
        },
    }
}
