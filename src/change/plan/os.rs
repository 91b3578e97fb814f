//! The operating system: from what is running, not from what is recorded, to what the config wants (docs/develop/agreement.md:
//! Operating system, Kernel arguments).
//!
//! No steps if it is already right, otherwise the shortest sequence. The running deployment is pinned first, so that a rollback
//! remains possible whatever is cleaned up later.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Builder, crossing};
use crate::base::invocation::shell_words;
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::notice::Notice;
use crate::base::secrets::{shown_argument, shown_arguments};
use crate::node::command::rpm_ostree::packages::find_lacking_kernel;
use crate::node::command::rpm_ostree::packages::{layered_by, packages_of};
use crate::node::command::rpm_ostree::status::{Deployment, Deployments, Standing, is_of_kernel};
use crate::node::engine::Engine;
use crate::node::os_release::Class;
use crate::node::ostree_repository::CONFIG;
use crate::node::requests::AskedFor;
use crate::node::space::{Fit, MIN_FREE_PERCENT};
use crate::node::system::{System, SystemFacts};
use crate::node::zipl::CURE;

/// One change of the operating system, effective at the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum OsStep {
    /// Pins the running deployment, so that no clean-up removes it.
    Pin {
        /// Its index in the list of deployments.
        index: usize,
        /// `CHECKSUM.SERIAL`.
        deployment: String,
    },
    /// Drops a staged deployment that is not wanted.
    DropStaged {
        /// Its image or checksum.
        what: String,
    },
    /// Copies the image from a medium into containers-storage, under exactly its name.
    Bring {
        /// The source in skopeo's form.
        from: String,
        /// The image.
        image: String,
    },
    /// Stages another image.
    Image {
        /// The running image.
        from: String,
        /// The wanted image: the origin will contain exactly this.
        to: String,
    },
    /// Stages the image of a deployment that is kept on the node: nothing is fetched.
    Kept {
        /// The running image.
        from: String,
        /// The wanted image: the origin will contain exactly this.
        to: String,
        /// The commit of the image.
        commit: String,
    },
    /// Makes the running deployment the next boot's again. The one that is queued, by a rollback or as the default, is replaced
    /// and kept.
    Stay {
        /// The queued deployment, in words.
        what: String,
        /// `CHECKSUM.SERIAL` of it.
        queued: String,
    },
    /// Other kernel arguments are staged.
    Arguments {
        /// Options of `rpm-ostree kargs`.
        changes: Vec<String>,
    },
    /// Fetches packages of all following steps from the extensions repository.
    Repository(PackageRepository),
    /// Stages other packages on top of the image.
    Packages {
        /// The kind of change.
        what: PackageChange,
        /// Arguments of rpm-ostree.
        command: Vec<String>,
    },
}

/// The location of the packages of extensions and kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageRepository {
    /// A directory on the node that has `repodata`.
    Directory(String),
    /// In an image: `spec.baseOSExtensionsContainerImage`.
    Image(String),
}

/// A change of packages on top of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageChange {
    /// The image's own kernel is restored.
    KernelBack,
    /// Another kernel replaces the image's.
    Kernel,
    /// Packages of wanted extensions are added, and those of others removed.
    Extensions,
}

impl OsStep {
    /// Returns true if it creates a deployment for the next boot.
    pub fn is_staging(&self) -> bool {
        matches!(
            self,
            Self::Image { .. } | Self::Kept { .. } | Self::Arguments { .. } | Self::Packages { .. }
        )
    }
}

/// The changes of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct OsPlan {
    /// The program that stages.
    #[serde(skip)]
    pub engine: Engine,
    /// In order.
    pub steps: Vec<OsStep>,
    /// The image that the next boot has to enter; `None` if the config has none.
    pub image: Option<String>,
    /// The kernel arguments that the config of the base deployment requested. The base is the deployment from which the next
    /// one is made.
    pub old_arguments: Kargs,
    /// That config asked for extensions.
    #[serde(skip)]
    pub had_extensions: bool,
    /// Stored requests of the base deployment's config, if only an image is staged.
    #[serde(skip)]
    pub base_asked: Option<AskedFor>,
    /// Requests of the running config; `None` if the record is left unchanged.
    #[serde(skip)]
    pub booted_asked: Option<AskedFor>,
    /// The extensions that this config requests.
    #[serde(skip)]
    pub extensions: Vec<String>,
    /// The arguments that this config requests.
    pub arguments: Kargs,
    /// Changes of arguments with which the run fixes findings about the image.
    #[serde(skip)]
    pub cures: Vec<KargsChange>,
    /// Packages on top of the image that the next boot has to have.
    pub packages: Vec<String>,
    /// The kernel type that the next boot has to have, if it changes.
    pub kernel_type: Option<String>,
    /// Packages have to be fetched.
    pub repository: bool,
    /// `CHECKSUM.SERIAL` of the running deployment.
    pub booted: String,
    /// The deployment of the next boot exists already, but is not running yet.
    pub waits_for_reboot: bool,
}

impl OsPlan {
    /// Plans the image alone, whatever else a config contains.
    pub fn of_image(facts: &SystemFacts, wanted: &str) -> Self {
        let mut plan = Self::default();
        if let Some(booted) = facts.deployments.booted() {
            plan.booted = booted.name();
            plan.towards(facts, wanted, &[]);
            let next = facts.deployments.next_boot().filter(|next| !next.booted);
            let asked = match next.filter(|_| !plan.starts_from_running()) {
                Some(next) => facts.asked.of(&next.name(), &facts.arguments),
                None => facts.asked.of(&booted.name(), &facts.booted_arguments),
            };
            plan.base_asked = asked.cloned();
            plan.repository = plan.changes_image() && booted.is_layered();
            plan.fetch_for(facts);
            plan.plan_pin(booted);
        }
        plan
    }

    /// Returns true if another image is staged.
    pub fn changes_image(&self) -> bool {
        let is_image = |step: &OsStep| matches!(step, OsStep::Image { .. } | OsStep::Kept { .. });
        self.steps.iter().any(is_image)
    }

    /// Returns true if another image has to be fetched.
    fn fetches_image(&self) -> bool {
        let fetches = |step: &OsStep| matches!(step, OsStep::Image { .. });
        self.steps.iter().any(fetches)
    }

    /// Uses the image from a medium or from containers-storage, as requested, and not from a kept deployment.
    pub fn fetch_image(&mut self) {
        for step in &mut self.steps {
            if let OsStep::Kept { from, to, .. } = step {
                let (from, to) = (std::mem::take(from), std::mem::take(to));
                *step = OsStep::Image { from, to };
            }
        }
    }

    /// Adapts the plan to an engine. Under bootc, ostree stages a kept deployment with its own origin, if it can; one with
    /// layered packages is fetched as an image instead.
    fn fetch_for(&mut self, facts: &SystemFacts) {
        self.engine = facts.engine;
        if facts.engine == Engine::RpmOstree {
            return;
        }
        self.repository = false;
        let is_at_hand = |step: &OsStep| match step {
            OsStep::Kept { to, commit, .. } => facts.deployments.kept_alone(to, commit).is_some(),
            _ => true,
        };
        if facts.stages_commits.is_err() || !self.steps.iter().all(is_at_hand) {
            self.fetch_image();
        }
    }

    /// Returns the image that has to be fetched. With `from_storage`, this includes that of a kept deployment.
    pub fn image_to_fetch(&self, from_storage: bool) -> Option<String> {
        self.steps.iter().find_map(|step| match step {
            OsStep::Image { to, .. } => Some(to.clone()),
            OsStep::Kept { to, .. } if from_storage => Some(to.clone()),
            _ => None,
        })
    }

    /// Returns true if the image is copied into containers-storage first.
    pub fn brings(&self) -> bool {
        let brings = |step: &OsStep| matches!(step, OsStep::Bring { .. });
        self.steps.iter().any(brings)
    }

    /// Returns true if a previously staged deployment is dropped.
    pub fn drops(&self) -> bool {
        let drops = |step: &OsStep| matches!(step, OsStep::DropStaged { .. });
        self.steps.iter().any(drops)
    }

    /// Returns true if the queued deployment is replaced by the running one.
    pub fn stays(&self) -> bool {
        let stays = |step: &OsStep| matches!(step, OsStep::Stay { .. });
        self.steps.iter().any(stays)
    }

    /// Returns true if the new deployment is based on the running one, and not on that of the next boot.
    pub fn starts_from_running(&self) -> bool {
        self.drops() || self.stays()
    }

    /// Adds the step that replaces the queued deployment.
    fn stay(&mut self, deployments: &Deployments) -> Option<Notice> {
        let queued = deployments.queued()?;
        let what = named(queued);
        let said = change(
            "the next boot",
            format!("{what} is queued, and not wanted; what runs stays"),
        );
        self.steps.push(OsStep::Stay {
            what,
            queued: queued.name(),
        });
        Some(said)
    }

    /// Adds the step that stages an image: from its commit if the node has it, otherwise from its source.
    fn stage_image(&mut self, facts: &SystemFacts, standing: &Standing, from: &str, wanted: &str) {
        let (from, to) = (from.to_owned(), wanted.to_owned());
        let kept = facts.deployments.kept_commit(standing);
        // rpm-ostree's clean-up, which drops the staged deployment, also removes images without a deployment.
        let imported = || match &facts.imported {
            Ok(imported) if !self.drops() => imported.get(wanted).cloned(),
            Ok(_) => None,
            Err(why) => {
                log::warn!("the images in the node's repository are not known: {why}");
                None
            }
        };
        self.steps.push(match kept.or_else(imported) {
            Some(commit) => OsStep::Kept { from, to, commit },
            None => OsStep::Image { from, to },
        });
    }

    /// Adds the steps towards an image; returns a notice about the change. `foreign` lists what is staged but was not requested
    /// by any config.
    fn towards(&mut self, facts: &SystemFacts, wanted: &str, foreign: &[String]) -> Option<Notice> {
        self.image = Some(wanted.to_owned());
        let deployments = &facts.deployments;
        // No reboot enters it, so waiting for one would be endless.
        let locked = deployments
            .staged()
            .is_some_and(|one| one.finalization_locked);
        let lock = locked.then(|| "a lock (a download only)".to_owned());
        let foreign: Vec<String> = foreign.iter().cloned().chain(lock).collect();
        let standing = deployments.standing(wanted, None);
        let from = deployments.booted().map(Deployment::image);
        let from = from.unwrap_or_default();
        let next = deployments.next_boot();
        let goes_on =
            next.is_some_and(|next| next.image() == wanted && (next.booted || next.staged));
        match (&standing, deployments.staged()) {
            (Standing::Booted, _) if goes_on => return None,
            (Standing::Staged, Some(staged)) if !foreign.is_empty() => {
                let what = format!("{} with {}", named(staged), foreign.join(", "));
                self.steps.push(OsStep::DropStaged { what: what.clone() });
                self.stay(deployments);
                if from == wanted {
                    let message = format!("{what}: this config does not ask for that");
                    return Some(change("the staged deployment", message));
                }
                self.stage_image(facts, &Standing::Absent, &from, wanted);
            }
            (Standing::Booted, None) => return self.stay(deployments),
            (Standing::Booted, Some(staged)) => {
                let what = named(staged);
                self.steps.push(OsStep::DropStaged { what: what.clone() });
                self.stay(deployments);
                return Some(change(
                    "the staged deployment",
                    format!("{what} is not wanted"),
                ));
            }
            (Standing::Staged | Standing::Next, _) => self.waits_for_reboot = true,
            (_, staged) => {
                let dropped = staged.map(|staged| OsStep::DropStaged {
                    what: named(staged),
                });
                self.steps.extend(dropped);
                self.stay(deployments);
                self.stage_image(facts, &standing, &from, wanted);
            }
        }
        Some(change(
            "spec.osImageURL",
            format!("{} -> {wanted}", or_none(&from)),
        ))
    }

    /// Pins the running deployment, so that no clean-up removes it.
    fn plan_pin(&mut self, booted: &Deployment) {
        if !booted.pinned && self.steps.iter().any(OsStep::is_staging) {
            let (index, deployment) = (booted.index, booted.name());
            self.steps.insert(0, OsStep::Pin { index, deployment });
        }
    }

    /// Returns true if the wanted deployment is already staged and is kept.
    pub fn is_staged(&self) -> bool {
        self.waits_for_reboot && !self.drops()
    }

    /// Returns true if the config only takes effect after a reboot.
    pub fn needs_reboot(&self) -> bool {
        self.waits_for_reboot || self.steps.iter().any(OsStep::is_staging)
    }

    /// Returns true if nothing is done and nothing is awaited.
    pub fn is_empty(&self) -> bool {
        !self.waits_for_reboot && self.steps.is_empty()
    }

    /// Returns packages that are removed and not added again.
    pub fn gone_packages(&self) -> Vec<&str> {
        let mut gone = Vec::new();
        for step in &self.steps {
            let OsStep::Packages { command, .. } = step else {
                continue;
            };
            for (comes, name) in layered_by(command) {
                match comes {
                    true => gone.retain(|other| *other != name),
                    false => gone.push(name),
                }
            }
        }
        gone
    }

    /// Returns the arguments of the next boot, which would otherwise have `present`: those that the config requests, and the
    /// fixes.
    pub fn wanted_arguments(&self, present: &Kargs) -> Kargs {
        let wanted = present.after_change(&self.old_arguments, &self.arguments);
        wanted.cured_by(&self.cures)
    }

    /// Returns the arguments that the next boot's command line has to have: the config's, and those that fix findings about the
    /// image.
    pub fn awaited_arguments(&self) -> Kargs {
        self.arguments.cured_by(&self.cures)
    }

    /// Returns the arguments that the next boot's command line must not have, if staging leaves `present`: those of the
    /// previous config, and those that a fix deletes.
    pub fn gone_arguments(&self, present: &Kargs) -> Vec<String> {
        let awaited = self.awaited_arguments();
        let stays =
            |word: &&String| awaited.tokens().contains(word) || present.tokens().contains(word);
        let deleted = self.cures.iter().filter_map(|cure| match cure {
            KargsChange::Delete(word) => Some(word),
            KargsChange::Append(_) => None,
        });
        let old = self.old_arguments.tokens().iter().chain(deleted);
        let mut gone: Vec<String> = old.filter(|word| !stays(word)).cloned().collect();
        let mut seen = BTreeSet::new();
        gone.retain(|word| seen.insert(word.clone()));
        gone
    }
}

/// The advice about parts that are left alone.
const REST: &str = "Use --files-only for the rest";

impl Builder<'_> {
    /// Plans the operating system from the known facts.
    pub(super) fn operating_system(&mut self) {
        self.check_kernel_type();
        let node = self.node();
        match &node.system {
            System::Known(facts) if facts.class == Class::Other => {}
            System::Known(facts) => self.by_facts(facts),
            System::Silent(why) => self.silent(why),
            System::Composefs(system) => {
                let Notice { subject, message } = super::of_composefs(&system.traces);
                self.block(subject, message);
            }
            System::NotAsked => {
                // Even the empty record of a first boot shows which OS the node was given.
                if let crate::node::Recorded::Present(recorded) =
                    &self.inputs.records.current_config
                {
                    self.os_changes(recorded);
                }
            }
        }
    }

    /// Handles an engine without an answer. The reason may end with commands, so no text may follow it.
    fn silent(&mut self, why: &str) {
        let engine = self.node().host.engine.name();
        if self.options.files_only {
            self.notice(
                engine,
                format!("the operating system is left alone, as asked: {why}"),
            );
        } else {
            self.block(engine, format!("{REST}: {why}"));
        }
    }

    fn by_facts(&mut self, facts: &SystemFacts) {
        let config = self.inputs.config;
        let Some(booted) = facts.deployments.booted() else {
            return self.silent("no deployment is booted; look at it: ostree admin status");
        };
        let mut plan = OsPlan {
            booted: booted.name(),
            arguments: Kargs::from_entries(&config.kernel_arguments),
            extensions: config.extensions.clone(),
            ..OsPlan::default()
        };
        let mut changes = Vec::new();
        self.changed_by_hand(booted);
        self.image(facts, &mut plan, &mut changes);
        let base = self.base(facts, booted, &plan);
        plan.old_arguments = Kargs::from_entries(&base.arguments);
        plan.had_extensions = !base.extensions.is_empty();
        plan.booted_asked = Some(self.asked_for(facts, booted, &facts.booted_arguments));
        self.plan_arguments(facts, &mut plan, &mut changes);
        self.plan_packages(facts, &mut plan, &mut changes);
        self.check_zipl(facts, &plan);
        if changes.is_empty() {
            self.plan.os = plan;
            return;
        }
        if self.options.files_only {
            for change in changes {
                self.notice(
                    change.subject,
                    format!(
                        "{}: not applied (--files-only); the daemon will report it until it is",
                        change.message
                    ),
                );
            }
            return;
        }
        plan.fetch_for(facts);
        plan.plan_pin(booted);
        self.arguments_of_images(facts, &mut plan);
        for Notice { subject, message } in note_limits(facts, &plan) {
            self.block(subject, format!("{message}. {REST}"));
        }
        self.room(facts, &plan);
        let notice = not_flushed(facts);
        self.plan.notices.extend(notice);
        self.plan.os = plan;
    }

    /// Returns the requests of the base deployment's config, which are removed.
    fn base(&self, facts: &SystemFacts, booted: &Deployment, plan: &OsPlan) -> AskedFor {
        let next = facts.deployments.next_boot();
        match next.filter(|next| !plan.starts_from_running() && !next.booted) {
            Some(next) if facts.asked.of(&next.name(), &facts.arguments).is_some() => {
                self.asked_for(facts, next, &facts.arguments)
            }
            Some(next) if facts.arguments != facts.booted_arguments => {
                self.recorded(next, &facts.arguments)
            }
            // The deployment staged by an interrupted run still has the running one's arguments.
            _ => self.asked_for(facts, booted, &facts.booted_arguments),
        }
    }

    /// Returns the requests of a deployment's config: as stored, or else as recorded.
    fn asked_for(&self, facts: &SystemFacts, deployment: &Deployment, present: &Kargs) -> AskedFor {
        let asked = facts.asked.of(&deployment.name(), present).cloned();
        asked.unwrap_or_else(|| self.recorded(deployment, present))
    }

    /// Returns the recorded requests. An unknown config is assumed to have requested those of this config that are present,
    /// like the daemon at first boot.
    fn recorded(&self, deployment: &Deployment, present: &Kargs) -> AskedFor {
        let old = self.inputs.baseline.config();
        let arguments = match old {
            Some(old) => Kargs::from_entries(&old.kernel_arguments),
            None => Kargs::first_boot(present, &self.inputs.config.kernel_arguments),
        };
        AskedFor {
            deployment: deployment.name(),
            command_line: present.tokens().to_vec(),
            arguments: arguments.tokens().to_vec(),
            extensions: old.map_or_else(Vec::new, |old| old.extensions.clone()),
        }
    }

    fn image(&mut self, facts: &SystemFacts, plan: &mut OsPlan, changes: &mut Vec<Notice>) {
        let records = &self.inputs.records;
        let layered = records.current_image.as_deref().unwrap_or_default();
        let wanted = match layered {
            "" => self.inputs.config.os_image_url.as_str(),
            layered => layered,
        };
        if !wanted.is_empty() {
            let foreign = self.foreign(facts);
            changes.extend(plan.towards(facts, wanted, &foreign));
        }
    }

    /// Adds a notice about changes made by hand. They are in no config, so they are not changed here.
    fn changed_by_hand(&mut self, booted: &Deployment) {
        let by_hand = booted.by_hand();
        if !by_hand.is_empty() {
            let message = format!(
                "was changed by hand: {}. It is left alone; see {} status",
                by_hand.join("; "),
                self.node().host.engine.name()
            );
            self.notice("what runs", message);
        }
    }

    /// Returns what is staged beyond the running deployment and beyond the requests of this config and the previous one.
    fn foreign(&self, facts: &SystemFacts) -> Vec<String> {
        let Some((booted, staged)) = facts.deployments.booted().zip(facts.deployments.staged())
        else {
            return Vec::new();
        };
        // What a run staged belongs to that run's config, whatever this one requests.
        let run = facts.asked.of(&staged.name(), &facts.arguments);
        let configs = [Some(self.inputs.config), self.inputs.baseline.config()];
        let configs = configs.into_iter().flatten();
        let extensions = configs.clone().map(|config| &config.extensions);
        let packages: Vec<&str> = extensions
            .chain(run.map(|run| &run.extensions))
            .filter_map(|names| packages_of(names).ok())
            .flatten()
            .collect();
        let mut arguments: Vec<Kargs> = configs
            .map(|config| &config.kernel_arguments)
            .chain(run.map(|run| &run.arguments))
            .map(|entries| Kargs::from_entries(entries))
            .collect();
        arguments.push(facts.booted_arguments.clone());
        let mut all = Vec::new();
        for token in facts.arguments.tokens() {
            // A name that a run pinned before the system changes.
            if !token.starts_with("ifname=")
                && !arguments.iter().any(|known| known.tokens().contains(token))
            {
                all.push(format!("kernel argument {}", shown_argument(token)));
            }
        }
        for name in &staged.requested_packages {
            let known = booted.requested_packages.contains(name) || is_of_kernel(name);
            if !known && !packages.contains(&name.as_str()) {
                all.push(format!("package {name}"));
            }
        }
        let known = booted.by_hand();
        all.extend(
            staged
                .by_hand()
                .into_iter()
                .filter(|one| !known.contains(one)),
        );
        all
    }

    fn plan_arguments(
        &mut self,
        facts: &SystemFacts,
        plan: &mut OsPlan,
        changes: &mut Vec<Notice>,
    ) {
        for token in plan.arguments.never_found() {
            self.notice(
                "spec.kernelArguments",
                format!("{token} has a blank within quotes: the daemon splits what is booted at blanks and will never find it"),
            );
        }
        // Dropping a deployment also drops its arguments.
        let drops = plan.starts_from_running();
        let present = if drops {
            &facts.booted_arguments
        } else {
            &facts.arguments
        };
        plan.cures = crossing::cure_arguments(self.inputs.crossing);
        let needed = present.changes_to(&plan.wanted_arguments(present));
        let options: Vec<String> = needed.iter().map(KargsChange::command_option).collect();
        if options.is_empty() {
            let waits = facts.booted_arguments != facts.arguments && !drops;
            plan.waits_for_reboot |= waits && facts.deployments.only_arguments_staged();
            return;
        }
        changes.push(change(
            "spec.kernelArguments",
            shell_words(&shown_arguments(&options)),
        ));
        plan.steps.push(OsStep::Arguments { changes: options });
    }

    /// Plans the arguments of images. Under bootc those of the running image that the new image does not have are removed, and
    /// those of the new one are added. Arguments that the config requests are added back afterwards.
    fn arguments_of_images(&mut self, facts: &SystemFacts, plan: &mut OsPlan) {
        let changes_image =
            |step: &OsStep| matches!(step, OsStep::Image { .. } | OsStep::Kept { .. });
        if facts.engine != Engine::Bootc || !plan.steps.iter().any(changes_image) {
            return;
        }
        let brings = "and those of the new image come";
        let message = match &facts.image_arguments {
            Ok(brought) if brought.is_empty() => return,
            Ok(brought) => {
                let shown = shown_arguments(brought.tokens());
                self.keep_asked_for(brought, plan);
                format!(
                    "the kernel arguments of the running image go, as far as the new image does not bring them too, {brings}: {}",
                    shell_words(&shown)
                )
            }
            Err(why) => format!(
                "the kernel arguments of the running image go, {brings}, and they are not known: {why}"
            ),
        };
        self.notice("/usr/lib/bootc/kargs.d", message);
    }

    /// Plans a step for arguments that the config requests but that only the running image has.
    fn keep_asked_for(&mut self, brought: &Kargs, plan: &mut OsPlan) {
        let is_planned = |step: &OsStep| matches!(step, OsStep::Arguments { .. });
        let asked = plan.arguments.tokens().iter();
        let lost = asked.filter(|token| brought.tokens().contains(token));
        let lost: Vec<String> = lost
            .map(|token| KargsChange::Append(token.clone()).command_option())
            .collect();
        if !lost.is_empty() && !plan.steps.iter().any(is_planned) {
            plan.steps.push(OsStep::Arguments { changes: lost });
        }
    }

    /// Adds a notice about a kernel type that is unavailable on this machine.
    fn check_kernel_type(&mut self) {
        let kind = self.inputs.config.kernel_type.as_str();
        let architecture = self.node().architecture;
        let is_blocked = kind == "64k-pages" && matches!(self.node().system, System::Known(_));
        let why = architecture.and_then(|name| find_lacking_kernel(kind, name));
        if let Some(why) = why.filter(|_| !is_blocked) {
            let message = format!(
                "{why}: set spec.kernelType to default in the MachineConfig that asks for it"
            );
            self.notice("spec.kernelType", message);
        }
    }

    /// Refuses to stage a deployment that the boot loader would not learn of. Images have their own check for this.
    fn check_zipl(&mut self, facts: &SystemFacts, plan: &OsPlan) {
        let stages = plan.steps.iter().any(OsStep::is_staging) && !plan.changes_image();
        match &facts.unused_zipl {
            Ok(Some(unused)) if stages && !self.options.files_only => {
                let message = format!(
                    "OSTree does not run zipl on this machine, so what is staged never boots: no bootloader=zipl below [sysroot] in \
                     {}. Set it first: {CURE}",
                    unused.config
                );
                self.block("zipl", message);
            }
            _ => {}
        }
    }

    /// Refuses to stage a deployment for which there will not be enough space at shutdown.
    fn room(&mut self, facts: &SystemFacts, plan: &OsPlan) {
        // Another kernel for the same image needs the same space.
        let kernel = |step: &OsStep| matches!(step, OsStep::Packages { what, .. } if *what != PackageChange::Extensions);
        if !plan.fetches_image() && !plan.steps.iter().any(kernel) {
            return;
        }
        if let Some((space, room)) = &facts.boot
            && let Fit::TooSmall { missing } = space.fit_kernel(*room)
        {
            let seed = self.node().neighbours.image_based.as_ref();
            let spared = seed.filter(|node| !node.stateroots.is_empty());
            let spared = spared.map_or_else(String::new, |node| {
                let all = node.stateroots.join(", ");
                format!(", but none of the stateroot {all}, which is the way back of the upgrade")
            });
            let message = format!(
                "{missing} bytes are missing for another kernel: what is staged could not be written at shutdown, and the old \
                 image would boot again. Remove an old deployment: rpm-ostree cleanup -r, or ostree admin undeploy INDEX{spared}",
            );
            self.block("/boot", facts.engine.spell(&message));
        }
        if let Some(space) = &facts.sysroot
            && let Fit::TooSmall { missing } = space.fit_import(0, MIN_FREE_PERCENT)
        {
            let message = format!(
                "{missing} bytes are missing for what ostree leaves free ({MIN_FREE_PERCENT} percent). Make room: \
                 podman image prune --all, or rpm-ostree cleanup -m"
            );
            self.block("/sysroot", facts.engine.spell(&message));
        }
    }
}

/// Returns a notice if staged data is not synced to disk.
pub(super) fn not_flushed(facts: &SystemFacts) -> Option<Notice> {
    let message = match &facts.flushed {
        Ok(true) => return None,
        Ok(false) => {
            "says fsync=false, as it does while a first boot is at work: what is staged is not flushed, and a power cut can \
             damage the repository of the operating system. Wait until the first boot is over: systemctl status \
             machine-config-daemon-firstboot.service"
                .to_owned()
        }
        Err(why) => format!("cannot be read, so it is unknown if what is staged is flushed: {why}"),
    };
    let subject = format!("/{CONFIG}");
    Some(Notice { subject, message })
}

/// Returns the steps for which bootc has no command, or that would lose something with it; none with rpm-ostree.
pub(super) fn note_limits(facts: &SystemFacts, plan: &OsPlan) -> Vec<Notice> {
    if facts.engine == Engine::RpmOstree {
        return Vec::new();
    }
    let alone = "bootc stages this system, as rpm-ostree is missing, and it has no command for";
    let mut all = Vec::new();
    for step in &plan.steps {
        match step {
            OsStep::Arguments { changes } => {
                let Err(why) = &facts.stages_commits else {
                    continue;
                };
                let shown = shown_arguments(changes);
                all.push(change(
                    "spec.kernelArguments",
                    format!(
                        "{alone} kernel arguments: {}; ostree admin deploy would stage them, but {why}",
                        shell_words(&shown)
                    ),
                ))
            }
            OsStep::Packages { what, command } => all.push(change(
                match what {
                    PackageChange::Extensions => "spec.extensions",
                    PackageChange::KernelBack | PackageChange::Kernel => "spec.kernelType",
                },
                format!("{alone} packages: {}", command.join(" ")),
            )),
            _ => {}
        }
    }
    if plan.changes_image()
        && let Some(booted) = facts.deployments.booted()
        && (booted.is_layered() || booted.own_initramfs)
    {
        let mut has = booted.requested_packages.clone();
        has.extend(booted.local_packages.clone());
        has.extend(booted.removals.iter().map(|name| format!("-{name}")));
        let has = match has.is_empty() {
            true => "overrides or an initramfs of its own".to_owned(),
            false => has.join(" "),
        };
        all.push(change(
            "what runs",
            format!(
                "it is layered by rpm-ostree ({has}), which bootc calls incompatible: bootc switch would lose that \
                 without a word. Bring an image that has it, or rpm-ostree"
            ),
        ));
    }
    all
}

/// Adds a blocker, or only a notice if the user requested files alone.
pub(super) fn or_blocked(builder: &mut Builder<'_>, path: &str, what: String) {
    if builder.options.files_only {
        let left = "not applied (--files-only); the daemon will report it until it is";
        builder.notice(path, format!("{what}: {left}"));
    } else {
        builder.block(path, format!("{what}. {REST}"));
    }
}

fn change(subject: &str, message: String) -> Notice {
    Notice {
        subject: subject.to_owned(),
        message,
    }
}

fn named(deployment: &Deployment) -> String {
    let image = deployment.image();
    if image.is_empty() {
        deployment.name()
    } else {
        image
    }
}

fn or_none(image: &str) -> &str {
    if image.is_empty() {
        "(no image)"
    } else {
        image
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const OLD: &str = "quay.example/os@sha256:aaaa";
    const NEW: &str = "quay.example/os@sha256:bbbb";

    pub(crate) fn deployment(image: &str, checksum: &str) -> Deployment {
        Deployment {
            checksum: checksum.to_owned(),
            osname: "rhcos".to_owned(),
            reference: Some(format!("ostree-unverified-registry:{image}")),
            ..Deployment::default()
        }
    }

    /// In the order of the boot menu.
    pub(crate) fn facts(
        all: Vec<Deployment>,
        arguments: &str,
        booted_arguments: &str,
    ) -> SystemFacts {
        let number = |(index, deployment)| Deployment {
            index,
            ..deployment
        };
        SystemFacts {
            engine: crate::node::engine::Engine::RpmOstree,
            soft_reboot: false,
            deployments: crate::node::command::rpm_ostree::status::Deployments {
                all: all.into_iter().enumerate().map(number).collect(),
                ..Default::default()
            },
            arguments: Kargs::parse(arguments),
            booted_arguments: Kargs::parse(booted_arguments),
            asked: crate::node::requests::Asked::default(),
            imported: Ok(std::collections::BTreeMap::new()),
            version: crate::node::command::rpm_ostree::arguments::RpmOstreeVersion::default(),
            class: Class::EnterpriseCoreos,
            finalize_error: None,
            boot: None,
            sysroot: None,
            flushed: Ok(true),
            unused_zipl: Ok(None),
            stages_commits: Ok(()),
            image_arguments: Ok(Kargs::default()),
        }
    }

    pub(crate) fn booted(image: &str) -> Deployment {
        Deployment {
            booted: true,
            ..deployment(image, "b")
        }
    }

    pub(crate) fn staged(image: &str) -> Deployment {
        Deployment {
            staged: true,
            ..deployment(image, "s")
        }
    }

    fn pin(index: usize) -> OsStep {
        OsStep::Pin {
            index,
            deployment: "b.0".to_owned(),
        }
    }

    fn image() -> OsStep {
        OsStep::Image {
            from: OLD.to_owned(),
            to: NEW.to_owned(),
        }
    }

    fn kept(commit: &str) -> OsStep {
        OsStep::Kept {
            from: OLD.to_owned(),
            to: NEW.to_owned(),
            commit: commit.to_owned(),
        }
    }

    #[test]
    fn a_name_without_digest_may_stand_for_another_content_by_now() {
        let kept = deployment("quay.example/os:latest", "n");
        let facts = facts(vec![booted(OLD), kept], "rw", "rw");
        let plan = OsPlan::of_image(&facts, "quay.example/os:latest");
        assert!(plan.fetches_image(), "{plan:?}");
    }

    fn dropped(what: &str) -> OsStep {
        OsStep::DropStaged {
            what: what.to_owned(),
        }
    }

    #[test]
    fn the_image_is_reached_by_the_shortest_way_from_what_runs() {
        let pinned = Deployment {
            pinned: true,
            ..booted(OLD)
        };
        let layered = Deployment {
            base_checksum: Some("base".to_owned()),
            ..deployment(NEW, "n")
        };
        let rows = [
            ("runs already", vec![booted(NEW)], vec![], false),
            (
                "another runs",
                vec![booted(OLD)],
                vec![pin(0), image()],
                false,
            ),
            ("what runs is pinned", vec![pinned], vec![image()], false),
            (
                "staged already",
                vec![staged(NEW), booted(OLD)],
                vec![],
                true,
            ),
            (
                "another is staged",
                vec![staged("x/y:z"), booted(OLD)],
                vec![pin(1), dropped("x/y:z"), image()],
                false,
            ),
            (
                "it runs, and another is staged",
                vec![staged(OLD), booted(NEW)],
                vec![dropped(OLD)],
                false,
            ),
            // After a rollback, the other deployment is first, and neither staged nor booted.
            (
                "the next boot enters it",
                vec![deployment(NEW, "n"), booted(OLD)],
                vec![],
                true,
            ),
            (
                "kept as a later entry",
                vec![booted(OLD), deployment(NEW, "n")],
                vec![pin(0), kept("n")],
                false,
            ),
            (
                "kept with packages on top",
                vec![booted(OLD), layered],
                vec![pin(0), kept("base")],
                false,
            ),
        ];
        for (what, all, steps, waits) in rows {
            let plan = OsPlan::of_image(&facts(all, "rw", "rw"), NEW);
            assert_eq!(plan.steps, steps, "{what}");
            assert_eq!(plan.waits_for_reboot, waits, "{what}");
            let stages = steps.iter().any(OsStep::is_staging);
            assert_eq!(plan.needs_reboot(), waits || stages, "{what}");
            assert_eq!(plan.booted, "b.0", "{what}");
        }
    }
}
