//! The complete plan of a run: the changes for its task, and all blockers on this node at this time. Every command that changes
//! a node creates its plan here and does not modify it elsewhere.

use anyhow::Result;

use super::crossing::{self, AcceptedRisks};
use super::fit::{self, Accepted};
use super::lasting::check_transient;
use super::login::{Logins, check_login};
use super::trial::add_trial;
use super::{
    Addition, After, Allowed, FixInputs, ImageEvidence, OsPlan, Plan, PlanInputs, PlanOptions,
    PlannedTrial, RollbackInputs, TrialFindings, after, find_removals, guard_plan, image,
    neighbours, network, one_more_key, os, plan_changes, plan_fix, plan_rollback, pull_files,
    quorum, selinux, services,
};
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::notice::Notice;
use crate::change::source::identity::{Claims, NodeIdentity};
use crate::config::document::MachineConfig;
use crate::config::render::NameHash;
use crate::judge::crossing::CrossingFinding;
use crate::judge::daemon::policies::ClusterSettings;
use crate::node::etcd::Etcd;
use crate::node::fault_group::FaultGroup;
use crate::node::kernel_modules::KernelModules;
use crate::node::lasting::Transient;
use crate::node::network_faults::NetworkFault;
use crate::node::pull_files::PullFault;
use crate::node::selinux_state::SelinuxFaultKind;
use crate::node::system::SystemFacts;
use crate::node::{Activity, NodeState};

/// The task of a run.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// Brings the node to the state of a config.
    Config(PlanInputs<'a>),
    /// The OS image alone changes.
    Image {
        /// The node.
        node: &'a NodeState,
        /// Its operating system.
        facts: &'a SystemFacts,
        /// The wanted image.
        image: &'a str,
        /// The findings on the image.
        crossing: &'a [CrossingFinding],
    },
    /// Finished runs are taken back.
    Rollback(RollbackInputs<'a>),
    /// Adds an SSH key for the user `core`.
    Key(PlanInputs<'a>, Addition<'a>),
    /// Fixes a finding of `doctor` by changing files.
    Fix(PlanInputs<'a>, FixInputs<'a>),
}

/// How much of the node is checked in addition to the guards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanScope {
    /// Only the guards: updates in progress, permissions, flags, space.
    #[default]
    Guards,
    /// Also whether the config is meant for this node.
    Fit,
    /// Also everything that staging, actions and a reboot need on the running node.
    Run,
}

/// A request for a plan: the task's options, and the refusals that the user overrode.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanRequest {
    /// Options of the changes.
    pub options: PlanOptions,
    /// Guards that are skipped.
    pub allowed: Allowed,
    /// Doubts that the user accepted.
    pub accepted: Accepted,
    /// How much is checked.
    pub scope: PlanScope,
    /// This run reboots the node, if the plan requires that.
    pub reboots: bool,
    /// This run stops the pods, if the daemon would drain the node.
    pub stops_workloads: bool,
    /// A lost quorum of etcd is not a blocker.
    pub ignores_quorum: bool,
    /// Checks of another image whose inhibitors are accepted.
    pub risks: AcceptedRisks,
    /// The trial that the run is part of.
    pub trial: Option<PlannedTrial>,
}

/// Blockers and notices of one check.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Reasons not to carry the plan out.
    pub blockers: Vec<Notice>,
    /// Facts that the user should know.
    pub notices: Vec<Notice>,
}

/// Evidence about the running node that only some plans need; each kind is gathered on demand.
pub trait LiveEvidence {
    /// Returns the possible logins before and after a plan.
    ///
    /// # Errors
    /// The node cannot be read.
    fn possible_logins(&self, plan: &Plan) -> Result<Logins>;

    /// Returns the running updates, processes and units.
    ///
    /// # Errors
    /// The node cannot be read.
    fn read_activity(&self) -> Result<Activity>;

    /// Returns the parts that are recreated at every boot.
    ///
    /// # Errors
    /// The node cannot be read.
    fn read_transient(&self) -> Result<Transient>;

    /// Returns a blocker if this user cannot write the paths of the plan.
    fn missing_permission(&self, plan: &Plan) -> Option<Notice>;

    /// Returns the pool and the cluster of the node.
    ///
    /// # Errors
    /// The node cannot be read.
    fn read_identity(&self) -> Result<NodeIdentity>;

    /// Returns whether the contents of the config match the hash in its name.
    fn name_hash(&self) -> NameHash;

    /// Returns the source of the image and the packages.
    ///
    /// # Errors
    /// The node cannot be read.
    fn find_image(&self, os: &OsPlan) -> Result<ImageEvidence>;

    /// Returns the number of runs that wait for a reboot, if that fills the history.
    ///
    /// # Errors
    /// The node cannot be read.
    fn full_history(&self) -> Result<Option<usize>>;

    /// Returns the relevant part of the cluster's MachineConfiguration.
    ///
    /// # Errors
    /// A file cannot be read or used.
    fn cluster_settings(&self) -> Result<&ClusterSettings>;

    /// Returns the kernel modules that the node needs with this config, and its modprobe settings.
    ///
    /// # Errors
    /// The settings cannot be read.
    fn kernel_modules(&self, wanted: &MachineConfig) -> Result<KernelModules>;

    /// Returns true if the daemon's force file exists.
    fn has_force_file(&self) -> Result<bool>;

    /// Returns the state of etcd on this node.
    ///
    /// # Errors
    /// The node cannot be read.
    fn read_etcd(&self) -> Result<Etcd>;

    /// Returns the findings about the unit that completes a staged run at the next boot.
    ///
    /// # Errors
    /// The node cannot be read.
    fn check_completion(&self, plan: &Plan) -> Result<Findings>;

    /// Returns the network configuration that would newly have no effect after the run.
    ///
    /// # Errors
    /// The node cannot be read.
    fn network_faults(&self) -> Result<Vec<NetworkFault>>;

    /// Returns the files that would newly be ignored, or newly break image pulls, after the run.
    ///
    /// # Errors
    /// The node cannot be read.
    fn pull_faults(&self) -> Result<Vec<PullFault>>;

    /// Returns the SELinux faults that the run would introduce.
    ///
    /// # Errors
    /// The node cannot be read.
    fn selinux_faults(&self) -> Result<Vec<FaultGroup<SelinuxFaultKind>>>;

    /// Returns a notice about the units that are installed before the first step.
    fn recovery_units(&self) -> Option<Notice>;

    /// Returns the findings about a trial of the plan, and its jobs.
    ///
    /// # Errors
    /// The node cannot be read.
    fn check_trial(&self, plan: &Plan, trial: PlannedTrial) -> Result<TrialFindings>;
}

/// Creates the plan of a task.
///
/// # Errors
/// Evidence that the plan needs cannot be gathered.
pub fn plan_whole(
    task: &Task<'_>,
    request: &PlanRequest,
    evidence: &dyn LiveEvidence,
) -> Result<Plan> {
    let (mut plan, node) = match *task {
        Task::Config(inputs) => (plan_changes(inputs, request.options), inputs.node),
        Task::Image {
            node,
            facts,
            image,
            crossing,
        } => (plan_image(facts, image, crossing), node),
        Task::Rollback(inputs) => (plan_rollback(inputs), inputs.node),
        Task::Key(inputs, addition) => (one_more_key(inputs, addition), inputs.node),
        Task::Fix(inputs, work) => (plan_fix(inputs, work), inputs.node),
    };
    if matches!(task, Task::Config(_) | Task::Key(..) | Task::Fix(..)) && !plan.steps.is_empty() {
        let transient = evidence.read_transient()?;
        check_transient(&mut plan, node, &transient, request.allowed.until_reboot);
    }
    if !plan.steps.is_empty() {
        let may_lock = matches!(task, Task::Config(_)).then_some(request.options.allow_lockout);
        match evidence.possible_logins(&plan) {
            Ok(logins) => check_login(&mut plan, &logins, may_lock),
            Err(error) => plan.notices.push(Notice::new(
                "sshd",
                format!("{error:#}: not known. Next: {}", mco_rescue("doctor FP-33")),
            )),
        }
    }
    guard_plan(&mut plan, node, &evidence.read_activity()?, request.allowed);
    if let Some(denied) = evidence.missing_permission(&plan) {
        plan.blockers.insert(0, denied);
    }
    if let Task::Config(inputs) = task
        && request.scope >= PlanScope::Fit
    {
        add_doubts(&mut plan, inputs, evidence, request.accepted)?;
    }
    if request.scope == PlanScope::Run {
        add_for_run(&mut plan, task, node, request, evidence)?;
    }
    add_trial(&mut plan, request.trial, evidence)?;
    Ok(plan)
}

/// Plans another OS image, without a config.
fn plan_image(facts: &SystemFacts, image: &str, crossing: &[CrossingFinding]) -> Plan {
    let mut os = OsPlan::of_image(facts, image);
    if !crossing.is_empty() {
        let present = if os.starts_from_running() {
            &facts.booted_arguments
        } else {
            &facts.arguments
        };
        crossing::add_arguments(&mut os, crossing, present);
    }
    let is_staged = !os.steps.is_empty();
    let notices = os::not_flushed(facts).filter(|_| is_staged);
    Plan {
        blockers: os::note_limits(facts, &os),
        notices: notices.into_iter().collect(),
        os,
        ..Plan::default()
    }
}

/// Adds what only matters for a run: the source of the image, what the next boot and the services need, and the recovery units.
fn add_for_run(
    plan: &mut Plan,
    task: &Task<'_>,
    node: &NodeState,
    request: &PlanRequest,
    evidence: &dyn LiveEvidence,
) -> Result<()> {
    let source = evidence.find_image(&plan.os)?;
    image::add_image(plan, source, request.accepted);
    let (findings, writes_files) = match *task {
        Task::Config(inputs) => (inputs.crossing, true),
        Task::Image { crossing, .. } => (crossing, false),
        Task::Rollback(_) | Task::Key(..) | Task::Fix(..) => (&[][..], true),
    };
    crossing::add_findings(plan, findings, request.risks, writes_files);
    if let Task::Config(inputs) = task {
        add_way_back(plan, node, evidence)?;
        services::add_services(plan, node.size);
        services::add_modules(plan, inputs, evidence);
        network::add_network(plan, inputs, evidence)?;
        pull_files::add_pull_files(plan, evidence)?;
        selinux::add_selinux(plan, evidence);
        after::add_after(plan, inputs, request.options, evidence)?;
    }
    add_quorum(plan, request, evidence)?;
    neighbours::add_neighbours(plan, &node.neighbours, request);
    let found = evidence.check_completion(plan)?;
    plan.blockers.extend(found.blockers);
    plan.notices.extend(found.notices);
    if !plan.is_empty() && plan.blockers.is_empty() {
        plan.installs = evidence.recovery_units();
    }
    Ok(())
}

/// Adds the reasons to doubt that the config is meant for this node, before all other blockers. A plan without steps changes
/// nothing, and a bare Ignition config names no pool or cluster.
fn add_doubts(
    plan: &mut Plan,
    inputs: &PlanInputs<'_>,
    evidence: &dyn LiveEvidence,
    accepted: Accepted,
) -> Result<()> {
    if plan.is_empty() || inputs.desired.bare {
        return Ok(());
    }
    let (config, hash) = (inputs.config, evidence.name_hash());
    let mut all = fit::find_doubts(&fit::FitEvidence {
        name: &config.name,
        not_rendered: config.why_not_rendered(hash == NameHash::Right),
        hash: &hash,
        claims: &Claims::from_config(config, inputs.desired),
        node: &evidence.read_identity()?,
    });
    all.extend(
        inputs
            .old
            .and_then(|old| find_removals(plan, old, inputs.desired, &inputs.node.units)),
    );
    let others = std::mem::take(&mut plan.blockers);
    for doubtful in all {
        doubtful.add_to(plan, accepted);
    }
    plan.blockers.extend(others);
    Ok(())
}

/// Adds a blocker if the history cannot hold every run that would have to be reverted if the node does not enter the staged
/// deployment.
fn add_way_back(plan: &mut Plan, node: &NodeState, evidence: &dyn LiveEvidence) -> Result<()> {
    if plan.steps.is_empty() || !plan.os.needs_reboot() || !node.host.live {
        return Ok(());
    }
    if let Some(waiting) = evidence.full_history()? {
        plan.blockers.push(Notice::new(
            "history",
            format!(
                "{waiting} runs wait for a reboot, and the history cannot hold more: one could no longer be reverted. \
                 Reboot into the last one: {}; or revert them: {}",
                reboot_command(),
                mco_rescue("rollback")
            ),
        ));
    }
    Ok(())
}

/// Adds the state of etcd's quorum. Stopping the pods stops the node's etcd, like a reboot.
fn add_quorum(plan: &mut Plan, request: &PlanRequest, evidence: &dyn LiveEvidence) -> Result<()> {
    let stops = request.stops_workloads && plan.needs_drain();
    if stops || plan.needs_reboot() {
        let blocks = (request.reboots || stops) && !request.ignores_quorum;
        quorum::add_quorum(plan, &evidence.read_etcd()?, blocks);
    }
    Ok(())
}

impl Plan {
    /// Returns true if the daemon would drain the node for this plan.
    pub fn needs_drain(&self) -> bool {
        let drains = |after: &After| after.drain.is_some();
        self.after.as_ref().is_some_and(drains) || self.os.needs_reboot()
    }

    /// Returns a plan that is refused for a single reason and has no steps.
    pub fn refuse_all(blocker: Notice) -> Self {
        Self {
            blockers: vec![blocker],
            ..Self::default()
        }
    }
}
