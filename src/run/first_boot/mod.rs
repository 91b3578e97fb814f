//! `firstboot`: what happens to the root of a node before it is booted: recovering an interrupted run, or applying a config.
//!
//! [`FirstBootAttempt::run_attempt`] decides if there is work, and does it. [`available`] finds the configs that an initramfs has, and
//! [`beside_ignition`] gives one to an Ignition whose server does not answer.

pub mod available;
pub mod beside_ignition;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::available::HandedConfig;
use super::capsule::remember_capsule;
use super::front::Front;
use super::node_change::NodeChange;
use super::opening::{Needs, Opening};
use super::work::RunWork;
use crate::base::paths;
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::plan::fit::Accepted;
use crate::change::plan::{PlanRequest, PlanScope};
use crate::change::session::Session;
use crate::change::source::gate::{CapsuleOptions, ConfigOrigin, ConfigRequest};
use crate::change::transaction::{self, Pending};
use crate::diagnose::first_boot::{
    self, BootFacts, BootWork, FirstBootOutcome, FirstBootResult, Mode, Parameters, WorkReason,
};
use crate::host::root::{Root, RootPath};
use crate::host::sys::privileges::Capability;
use crate::host::sys::runtime;
use crate::node::Host;
use crate::node::mounts::{self, BootRoot, RootAccess};

/// Returns true if a run is unfinished; `None` if this is unknown.
pub fn is_unfinished(path: &Path) -> Option<bool> {
    let pending = transaction::find_pending(&Root::open(path).ok()?).ok()?;
    Some(!matches!(pending, Pending::Nothing))
}

/// The work of a boot, with its progress.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct FirstBootAttempt<'a> {
    front: &'a dyn Front,
    /// The user insists on a machine that is not a node.
    not_a_node: bool,
    /// What the user says about capsules.
    capsule: CapsuleOptions<'a>,
    /// What is being done, as a gerund.
    pub phase: &'static str,
    /// Why there is work.
    pub why: String,
}

impl<'a> FirstBootAttempt<'a> {
    /// Creates an attempt that has not begun.
    pub fn new(front: &'a dyn Front, not_a_node: bool, capsule: CapsuleOptions<'a>) -> Self {
        Self {
            front,
            not_a_node,
            capsule,
            phase: "looking at the root",
            why: String::new(),
        }
    }

    /// Decides if the root at `path` needs work, and does it.
    ///
    /// # Errors
    /// The work failed in this phase; what a transaction had begun is undone, or the next boot recovers it.
    pub fn run_attempt(&mut self, path: &Path, parameters: &Parameters) -> Result<FirstBootResult> {
        if parameters.mode == Mode::Off {
            return Ok(FirstBootResult::without_failure(
                FirstBootOutcome::Nothing,
                "mco_rescue=off",
                None,
            ));
        }
        // The mounts are private to this process, and end with it.
        mounts::unshare_mounts().context("making mounts of our own")?;
        let looking = BootRoot::prepare(path, RootAccess::Read)?;
        let root = Root::open(path).context("opening the root")?;
        let facts = read_facts(&root)?;
        match first_boot::decide_work(parameters.mode, facts) {
            BootWork::None(why) => {
                looking.give_back();
                Ok(FirstBootResult::without_failure(
                    FirstBootOutcome::Nothing,
                    why,
                    None,
                ))
            }
            BootWork::Recover => self.recover_root(path, root),
            BootWork::Apply(reason) => self.apply_config(path, root, parameters, reason, facts),
            // This was handled before anything is mounted.
            BootWork::Shell => bail!("the shell has a unit of its own"),
        }
    }

    fn recover_root(&mut self, path: &Path, root: Root) -> Result<FirstBootResult> {
        self.phase = "recovering an interrupted run";
        self.why = "a run was cut off".to_owned();
        let opened = BootRoot::prepare(path, RootAccess::Write)?;
        drop(Opening::check_needs(self.front, root, &Needs::FIRST_BOOT_RECOVERY)?.begin_change()?);
        opened.give_back();
        Ok(FirstBootResult::without_failure(
            FirstBootOutcome::Recovered,
            &self.why,
            None,
        ))
    }

    fn apply_config(
        &mut self,
        path: &Path,
        root: Root,
        parameters: &Parameters,
        reason: WorkReason,
        facts: BootFacts,
    ) -> Result<FirstBootResult> {
        self.why = match reason {
            WorkReason::Asked => "the kernel command line asks for it",
            WorkReason::FirstBoot => "a first boot that got no config",
            WorkReason::Given => "Ignition was given a config that was available",
        }
        .to_owned();
        self.phase = "choosing a config";
        let deadline = parameters.timeout;
        // The medium must stay mounted while its config is read.
        let (handed, _medium) = match reason {
            WorkReason::Given => {
                let given = runtime::runtime_path(runtime::GIVEN);
                let handed = HandedConfig {
                    argument: Some(given.display().to_string()),
                    origin: ConfigOrigin::Trusted,
                };
                (handed, None)
            }
            _ => available::choose_config(&root, self.front, parameters, facts.recorded)?,
        };
        if handed.argument.is_none() && reason == WorkReason::FirstBoot {
            let why = if facts.recorded {
                "a config is recorded; the booted node finishes its first boot"
            } else {
                "a first boot without a config, and none is available"
            };
            return Ok(FirstBootResult::without_failure(
                FirstBootOutcome::Nothing,
                why,
                None,
            ));
        }
        let needs = Needs::FIRST_BOOT.if_meant(self.not_a_node);
        needs.expect_root(&root)?;
        let opened = BootRoot::prepare(path, RootAccess::Write)?;
        let change = Opening::check_needs(self.front, root, &needs)?.begin_change()?;
        self.phase = "reading the config and the root";
        let first = facts.never_booted && !facts.recorded;
        let request = ConfigRequest {
            named: handed.argument.as_deref(),
            capsule: CapsuleOptions {
                origin: handed.origin,
                ..self.capsule
            },
        };
        let given = match reason {
            WorkReason::Given => runtime::read_json::<CapsuleFacts>(runtime::GIVEN_CAPSULE)
                .context("reading who signed what Ignition was given")?,
            _ => None,
        };
        let asked = (request, given, deadline, parameters.allow);
        let name = self.carry_out(&change, asked, first)?;
        drop(change);
        opened.give_back();
        if reason == WorkReason::Given {
            // The file contains secrets, and the node has it now.
            runtime::remove_runtime(runtime::GIVEN).context("removing what Ignition was given")?;
            runtime::remove_runtime(runtime::GIVEN_CAPSULE).context("removing who signed it")?;
        }
        Ok(FirstBootResult::without_failure(
            FirstBootOutcome::Applied,
            &self.why,
            Some(name),
        ))
    }

    /// Carries out the same transaction as `apply`, without a question.
    fn carry_out(
        &mut self,
        change: &NodeChange<'_>,
        (request, given, timeout, accepted): (
            ConfigRequest<'_>,
            Option<CapsuleFacts>,
            Duration,
            Accepted,
        ),
        first: bool,
    ) -> Result<String> {
        let root = change.root.open_again()?;
        let mut session = Session::in_boot(root, change.runner(), request, timeout, first)?;
        session.chosen.signed = session.chosen.signed.take().or(given);
        let name = session.chosen.config.name.clone();
        self.phase = "planning";
        let plan = session.plan_files(&PlanRequest {
            accepted,
            scope: PlanScope::Fit,
            ..PlanRequest::default()
        })?;
        for notice in &plan.notices {
            log::info!("{notice}");
        }
        let blockers: Vec<String> = plan.blockers.iter().map(ToString::to_string).collect();
        if !blockers.is_empty() {
            bail!(
                "{name} cannot be applied: {} (at boot an option --NAME is mco_rescue.allow=NAME)",
                blockers.join("; ")
            );
        }
        self.phase = "applying";
        change.lock().keep_parents();
        if plan.is_empty() {
            if let Some(taken) = session.chosen.taken() {
                remember_capsule(&change.root, &taken)?;
            }
        } else {
            let work = RunWork {
                // Releasing the mounts afterwards needs this.
                more: &[Capability::CAP_SYS_ADMIN],
                capsules: session.chosen.taken().into_iter().collect(),
                ..RunWork::new(change, &session.node, &plan, session.config_ref())
            };
            work.carry_out()?;
            self.phase = "verifying";
            session.observe_again()?;
        }
        let (_, left) = session.compare_node();
        if let Some(first) = left.first() {
            log::warn!(
                "{name} is applied, but verify still finds {} differences, the first at {}",
                left.len(),
                first.subject
            );
        }
        Ok(name)
    }
}

fn read_facts(root: &Root) -> Result<BootFacts> {
    let host = Host::observe(root).context("looking at the root")?;
    let pending = transaction::find_pending(root).context("looking for an interrupted run")?;
    Ok(BootFacts {
        unfinished: pending != Pending::Nothing,
        never_booted: host.never_booted,
        // Most boots end here, so the config itself is not read.
        recorded: root.exists(&RootPath::fixed(paths::CURRENT_CONFIG))?,
        provisioned: is_provisioned(root)?,
        given: runtime::has_runtime(runtime::GIVEN),
    })
}

/// Returns true if Ignition had a config from the user; without one it leaves the same file (docs/develop/ignition.md: First boot).
fn is_provisioned(root: &Root) -> Result<bool> {
    let bytes = root.read(&RootPath::fixed(paths::IGNITION_RESULT))?;
    let Some(bytes) = bytes else { return Ok(false) };
    let report: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    // An unreadable report was still written by Ignition.
    Ok(report["userConfigProvided"].as_bool().unwrap_or(true))
}
