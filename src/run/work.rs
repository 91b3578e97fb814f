//! Carrying out a plan: the transaction, and the report for `status`.

use anyhow::{Context, Result, bail};

use crate::base::error::{self, Changed, RunError};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::text::count_noun;
use crate::base::time::current_time;
use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::plan::{self, Plan, restorecon_command};
use crate::change::staging::state;
use crate::change::transaction::journal::ConfigRef;
use crate::change::transaction::{
    self, Finished, LastRun, RunOutcome, RunPhase, RunningSystem, TransactionFailure,
    TransactionRequest,
};
use crate::diagnose::recorder::Event;
use crate::diagnose::recorder::look::is_set_up;
use crate::formats::labels::LabelPolicy;
use crate::host::root::RootPath;
use crate::host::sys::privileges::{self, Capability};
use crate::node::NodeState;
use crate::node::boot::BootIdentity;
use crate::node::command::bootc;
use crate::node::command::job::Job;
use crate::run::events::{self, NodeEvent, RunEnd};
use crate::run::node_change::NodeChange;

/// Capabilities that a trial needs after the files are in place: for boot loader, services and reboot.
pub const LATER_IN_TRIAL: [Capability; 10] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_SYS_BOOT,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
];

/// Refuses to do `what` by a plan with blockers.
///
/// # Errors
/// The plan has some; the first is named.
pub fn expect_no_blockers(plan: &Plan, what: &str) -> Result<()> {
    match plan.blockers.first() {
        Some(first) => bail!("refusing to {what}: {first}; nothing was changed"),
        None => Ok(()),
    }
}

/// A plan with everything needed to carry it out.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct RunWork<'a> {
    /// The change that it is part of.
    pub change: &'a NodeChange<'a>,
    /// The state of the node that the plan is based on.
    pub node: &'a NodeState,
    /// The plan.
    pub plan: &'a Plan,
    /// The config that the node has afterwards.
    pub config: ConfigRef,
    /// The id of the finished run that is reverted.
    pub undoes: Option<String>,
    /// Capabilities that are needed after the run.
    pub more: &'a [Capability],
    /// The jobs for the running system, between files and records.
    pub jobs: &'a [Job],
    /// What is taken from capsules; remembered when the run is done.
    pub capsules: Vec<TakenFromCapsule>,
}

impl<'a> RunWork<'a> {
    /// Creates the work of a plan that reverts nothing, starts no jobs and needs no capability afterwards.
    pub fn new(
        change: &'a NodeChange<'a>,
        node: &'a NodeState,
        plan: &'a Plan,
        config: ConfigRef,
    ) -> Self {
        Self {
            change,
            node,
            plan,
            config,
            undoes: None,
            more: &[],
            jobs: &[],
            capsules: Vec::new(),
        }
    }

    /// Carries out the plan, all of it or nothing, and stores the report for `status`.
    pub fn carry_out(&self) -> Result<Finished> {
        self.transact_as(transaction::next_run_id(
            &self.change.root,
            self.change.lock(),
        )?)
    }

    /// Does the same as [`Self::carry_out`], with an id that is already stored elsewhere.
    pub fn transact_as(&self, id: String) -> Result<Finished> {
        let deployment = self.node.host.deployment.clone();
        let (root, runner) = (&self.change.root, self.change.runner());
        let boot = BootIdentity::observe(root, deployment, runner);
        if !self.jobs.is_empty() && boot.is_none() {
            bail!("the kernel reports no boot ID; nothing was changed");
        }
        let request = TransactionRequest {
            root,
            lock: self.change.lock(),
            steps: &self.plan.steps,
            held: &self.plan.held,
            freeze: &self.plan.freeze,
            seen: &self.node.stamps,
            labels: &self.node.labels,
            id,
            config: self.config.clone(),
            by: self.change.by.clone(),
            deployment: self.node.host.deployment.clone(),
            separate_var: self.node.host.separate_var,
            undoes: self.undoes.clone(),
            jobs: self.jobs,
            capsules: &self.capsules,
            running: RunningSystem {
                runner,
                boot: boot.as_ref(),
            },
        };
        let record = RootPath::fixed(paths::CURRENT_CONFIG);
        if self
            .plan
            .steps
            .iter()
            .any(|planned| *planned.step.path() == record)
        {
            state::keep_requests(root, self.node)
                .context("remembering the config of the kernel arguments; nothing was changed")?;
        }
        self.limit_capabilities();
        let config = &self.config.name;
        events::send_event(root, &NodeEvent::RunBegan, config);
        let result = transaction::run_transaction(&request, |result| self.last_run(result));
        let end = match &result {
            Ok(_) => RunEnd::Finished,
            Err(TransactionFailure::NothingChanged(_) | TransactionFailure::RolledBack(_)) => {
                RunEnd::PutBack
            }
            Err(TransactionFailure::Incomplete(_)) => RunEnd::Incomplete,
        };
        events::send_event(root, &NodeEvent::RunEnded(end), config);
        match result {
            Ok(finished) => {
                if !finished.unlabelled.is_empty() {
                    log::warn!("SELinux: {}", not_all_labelled(&finished.unlabelled));
                    let all = finished.unlabelled.iter();
                    all.for_each(|(path, why)| log::info!("{path}: not labelled: {why}"));
                }
                error::note_changed(Changed::Part);
                for taken in &self.capsules {
                    let signed = taken.signed.to_string();
                    events::send_event(root, &NodeEvent::CapsuleAccepted(&signed), &taken.what);
                }
                self.change.note_run(Event::Apply, config);
                Ok(finished)
            }
            Err(TransactionFailure::NothingChanged(said)) => bail!("{said}; nothing was changed"),
            Err(TransactionFailure::RolledBack(said)) => Err(RunError::RolledBack(said).into()),
            Err(TransactionFailure::Incomplete(said)) => {
                Err(RunError::Incomplete(format!("{said}. Next: {}", mco_rescue("recover"))).into())
            }
        }
    }

    /// Returns the report for `status`.
    fn last_run(&self, result: &Result<Finished, TransactionFailure>) -> LastRun {
        let steps = count_noun(self.plan.steps.len(), "step");
        let (outcome, said) = match result {
            Ok(_) => (RunOutcome::Done, format!("{steps}, all in place")),
            Err(error @ TransactionFailure::Incomplete(_)) => {
                (RunOutcome::Incomplete, error.to_string())
            }
            Err(error) => (RunOutcome::RolledBack, error.to_string()),
        };
        let phase = |name: &str, result: String| RunPhase {
            name: name.into(),
            result,
        };
        let mut phases = vec![phase("plan", steps), phase("transaction", said)];
        let labels = result
            .as_ref()
            .ok()
            .map(|finished| self.labels_line(finished));
        phases.extend(labels.map(|said| phase("labels", said)));
        let told = result.as_ref().ok().and_then(describe_jobs);
        phases.extend(told.map(|said| phase("actions", said)));
        LastRun {
            version: LastRun::VERSION,
            id: result.as_ref().map(|f| f.id.clone()).unwrap_or_default(),
            config: self.config.clone(),
            by: self.change.by.clone(),
            started: self.change.started,
            finished: current_time(),
            outcome,
            phases,
            steps: self.plan.steps.len(),
            notices: self.plan.notices.clone(),
        }
    }

    /// Returns one line about the SELinux labels of the new objects.
    fn labels_line(&self, finished: &Finished) -> String {
        let steps = self.plan.steps.iter();
        let labelled = steps.filter(|planned| planned.label.is_some()).count();
        match &self.node.labels.policy {
            LabelPolicy::None => "none set, as the root has no SELinux policy".to_owned(),
            LabelPolicy::Unusable(why) => format!("none set from the policy: {why}"),
            LabelPolicy::Usable { .. } if finished.unlabelled.is_empty() => {
                format!("{} labelled", count_noun(labelled, "new object"))
            }
            LabelPolicy::Usable { .. } => not_all_labelled(&finished.unlabelled),
        }
    }
}

/// Returns the results of the jobs, or `None` if there were no jobs.
fn describe_jobs(finished: &Finished) -> Option<String> {
    let told = finished.told.iter();
    let told = told.map(|(job, done)| format!("{job}: {}", done.words()));
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Returns which objects could not be labelled, why, and the command that labels them.
fn not_all_labelled(unlabelled: &[(RootPath, Reason)]) -> String {
    let paths: Vec<RootPath> = unlabelled.iter().map(|(path, _)| path.clone()).collect();
    let why = unlabelled.first().map(|(_, why)| why.to_string());
    format!(
        "{} could not be labelled ({}). Run {} on the node",
        count_noun(paths.len(), "new object"),
        why.unwrap_or_default(),
        restorecon_command(&paths),
    )
}

impl RunWork<'_> {
    /// Drops all capabilities that this plan does not need. Labels may belong to a policy that is not loaded.
    fn limit_capabilities(&self) {
        let needs = plan::list_needs(self.plan, self.node).into_iter();
        let mut kept: Vec<Capability> = needs.map(|need| need.capability).collect();
        if kept.contains(&Capability::CAP_SYS_ADMIN) {
            kept.push(Capability::CAP_MAC_ADMIN);
        }
        // Freezing a file system needs it.
        let mut steps = self.plan.steps.iter();
        if steps.any(|planned| transaction::is_on_boot(planned.step.path())) {
            kept.push(Capability::CAP_SYS_ADMIN);
        }
        kept.extend(self.more);
        // The deployments are queried after the run.
        if self.change.root.is_live() {
            kept.extend(bootc::status_json().capabilities);
        }
        // The recorder reads files of other users in /etc.
        if is_set_up(&self.change.root).unwrap_or(true) {
            kept.push(Capability::CAP_DAC_READ_SEARCH);
        }
        privileges::keep_needed(&kept);
    }
}
