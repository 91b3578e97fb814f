//! The operating system: from what is running, not from what is recorded, to what the config wants (docs/develop/agreement.md:
//! Operating system, Kernel arguments).
//!
//! No steps if it is already right, otherwise the shortest sequence. The running deployment is pinned first, so that a rollback
//! remains possible whatever is cleaned up later.

use crate::base::invocation::shell_words;
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::notice::Notice;
use crate::base::secrets::{shown_argument, shown_arguments};
use crate::node::command::rpm_ostree::packages::{find_lacking_kernel, packages_of};
use crate::node::command::rpm_ostree::status::{Deployment, is_of_kernel};
use crate::node::engine::Engine;
use crate::node::os_release::Class;
use crate::node::ostree_repository::CONFIG;
use crate::node::requests::AskedFor;
use crate::node::space::{Fit, MIN_FREE_PERCENT};
use crate::node::system::{System, SystemFacts};
use crate::node::zipl::CURE;

use super::os_plan::{OsPlan, OsStep, change_notice};
use super::{Builder, PackageChange, crossing};

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
            System::Silent(why) => self.handle_silence(why),
            System::Composefs(system) => {
                let Notice { subject, message } = super::of_composefs(&system.traces);
                self.add_blocker(subject, message);
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
    fn handle_silence(&mut self, why: &str) {
        let engine = self.node().host.engine.name();
        if self.options.files_only {
            self.add_notice(
                engine,
                format!("the operating system is left alone, as requested: {why}"),
            );
        } else {
            self.add_blocker(engine, format!("{REST}: {why}"));
        }
    }

    fn by_facts(&mut self, facts: &SystemFacts) {
        let config = self.inputs.config;
        let Some(booted) = facts.deployments.booted() else {
            return self.handle_silence("no deployment is booted; look at it: ostree admin status");
        };
        let mut plan = OsPlan {
            booted: booted.name(),
            arguments: Kargs::from_entries(&config.kernel_arguments),
            extensions: config.extensions.clone(),
            ..OsPlan::default()
        };
        let mut changes = Vec::new();
        self.changed_by_hand(booted);
        self.plan_image(facts, &mut plan, &mut changes);
        let base = self.base_requests(facts, booted, &plan);
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
                self.add_notice(
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
            self.add_blocker(subject, format!("{message}. {REST}"));
        }
        self.check_room(facts, &plan);
        let notice = not_flushed(facts);
        self.plan.notices.extend(notice);
        self.plan.os = plan;
    }

    /// Returns the requests of the base deployment's config, which are removed.
    fn base_requests(&self, facts: &SystemFacts, booted: &Deployment, plan: &OsPlan) -> AskedFor {
        let next = facts.deployments.next_boot();
        match next.filter(|next| !plan.starts_from_running() && !next.booted) {
            Some(next)
                if facts
                    .asked
                    .find_requests(&next.name(), &facts.arguments)
                    .is_some() =>
            {
                self.asked_for(facts, next, &facts.arguments)
            }
            Some(next) if facts.arguments != facts.booted_arguments => {
                self.recorded_requests(next, &facts.arguments)
            }
            // The deployment staged by an interrupted run still has the running one's arguments.
            _ => self.asked_for(facts, booted, &facts.booted_arguments),
        }
    }

    /// Returns the requests of a deployment's config: as stored, or else as recorded.
    fn asked_for(&self, facts: &SystemFacts, deployment: &Deployment, present: &Kargs) -> AskedFor {
        let asked = facts
            .asked
            .find_requests(&deployment.name(), present)
            .cloned();
        asked.unwrap_or_else(|| self.recorded_requests(deployment, present))
    }

    /// Returns the recorded requests. An unknown config is assumed to have requested those of this config that are present,
    /// like the daemon at first boot.
    fn recorded_requests(&self, deployment: &Deployment, present: &Kargs) -> AskedFor {
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

    fn plan_image(&mut self, facts: &SystemFacts, plan: &mut OsPlan, changes: &mut Vec<Notice>) {
        let records = &self.inputs.records;
        let layered = records.current_image.as_deref().unwrap_or_default();
        let wanted = match layered {
            "" => self.inputs.config.os_image_url.as_str(),
            layered => layered,
        };
        if !wanted.is_empty() {
            let foreign = self.foreign_deployments(facts);
            changes.extend(plan.add_image(facts, wanted, &foreign));
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
            self.add_notice("what runs", message);
        }
    }

    /// Returns what is staged beyond the running deployment and beyond the requests of this config and the previous one.
    fn foreign_deployments(&self, facts: &SystemFacts) -> Vec<String> {
        let Some((booted, staged)) = facts.deployments.booted().zip(facts.deployments.staged())
        else {
            return Vec::new();
        };
        // What a run staged belongs to that run's config, whatever this one requests.
        let run = facts.asked.find_requests(&staged.name(), &facts.arguments);
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
            self.add_notice(
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
        changes.push(change_notice(
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
        let brings = "and those of the new image are added";
        let message = match &facts.image_arguments {
            Ok(brought) if brought.is_empty() => return,
            Ok(brought) => {
                let shown = shown_arguments(brought.tokens());
                self.keep_asked_for(brought, plan);
                format!(
                    "the kernel arguments of the running image are removed unless the new image has them too, {brings}: {}",
                    shell_words(&shown)
                )
            }
            Err(why) => format!(
                "the kernel arguments of the running image are removed, {brings}, and they are unknown: {why}"
            ),
        };
        self.add_notice("/usr/lib/bootc/kargs.d", message);
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
            self.add_notice("spec.kernelType", message);
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
                self.add_blocker("zipl", message);
            }
            _ => {}
        }
    }

    /// Refuses to stage a deployment for which there will not be enough space at shutdown.
    fn check_room(&mut self, facts: &SystemFacts, plan: &OsPlan) {
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
                format!(", but none of the stateroot {all}, which is needed to revert the upgrade")
            });
            let message = format!(
                "another kernel needs {missing} more bytes: what is staged could not be written at shutdown, and the old \
                 image would boot again. Remove an old deployment: rpm-ostree cleanup -r, or ostree admin undeploy INDEX{spared}",
            );
            self.add_blocker("/boot", facts.engine.spell(&message));
        }
        if let Some(space) = &facts.sysroot
            && let Fit::TooSmall { missing } = space.fit_import(0, MIN_FREE_PERCENT)
        {
            let message = format!(
                "{missing} more bytes are needed, as ostree keeps {MIN_FREE_PERCENT} percent free. Make room: \
                 podman image prune --all, or rpm-ostree cleanup -m"
            );
            self.add_blocker("/sysroot", facts.engine.spell(&message));
        }
    }
}

/// Returns a notice if staged data is not synced to disk.
pub(super) fn not_flushed(facts: &SystemFacts) -> Option<Notice> {
    let message = match &facts.flushed {
        Ok(true) => return None,
        Ok(false) => {
            "says fsync=false, as it does while a first boot is in progress: what is staged is not flushed, and a power cut can \
             damage the repository of the operating system. Wait until the first boot is over: systemctl status \
             machine-config-daemon-firstboot.service"
                .to_owned()
        }
        Err(why) => format!("cannot be read, so it is unknown whether what is staged is flushed: {why}"),
    };
    let subject = format!("/{CONFIG}");
    Some(Notice::new(subject, message))
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
                all.push(change_notice(
                    "spec.kernelArguments",
                    format!(
                        "{alone} kernel arguments: {}; ostree admin deploy would stage them, but {why}",
                        shell_words(&shown)
                    ),
                ))
            }
            OsStep::Packages { what, command } => all.push(change_notice(
                match what {
                    PackageChange::Extensions => "spec.extensions",
                    PackageChange::KernelBack | PackageChange::Kernel => "spec.kernelType",
                },
                format!("{alone} packages: {}", command.join(" ")),
            )),
            _ => {}
        }
    }
    all.extend(note_layers(facts, plan));
    all
}

/// Returns what `bootc switch` would lose of the running system.
fn note_layers(facts: &SystemFacts, plan: &OsPlan) -> Option<Notice> {
    let booted = facts.deployments.booted()?;
    if !plan.changes_image() || !(booted.is_layered() || booted.own_initramfs) {
        return None;
    }
    let mut has = booted.requested_packages.clone();
    has.extend(booted.local_packages.clone());
    has.extend(booted.removals.iter().map(|name| format!("-{name}")));
    let has = if has.is_empty() {
        "overrides or an initramfs of its own".to_owned()
    } else {
        has.join(" ")
    };
    Some(change_notice(
        "what runs",
        format!(
            "it is layered by rpm-ostree ({has}), which bootc calls incompatible: bootc switch would lose that \
             without a word. Bring an image that has it, or rpm-ostree"
        ),
    ))
}

/// Adds a blocker, or only a notice if the user requested files alone.
pub(super) fn or_blocked(builder: &mut Builder<'_>, path: &str, what: String) {
    if builder.options.files_only {
        let left = "not applied (--files-only); the daemon will report it until it is";
        builder.add_notice(path, format!("{what}: {left}"));
    } else {
        builder.add_blocker(path, format!("{what}. {REST}"));
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
