//! `doctor --fix`: cures one finding by changing files in the ordinary transaction.
//!
//! [`CureSearch`] examines the node, [`FixRun::plan`] makes the plan for a finding, [`FixRun::carry_out`] carries it out, and
//! [`Cured`] examines the node again before it ends the run.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::ending::Ending;
use super::node_change::NodeChange;
use super::trial::running::{self, RunningTrial, TrialOptions, TrialRequest};
use super::work::{LATER_IN_TRIAL, RunWork, expect_no_blockers};
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::plan::{
    self, Allowed, FixInputs, Plan, PlanInputs, PlanRequest, Task, TrialReboot,
};
use crate::change::session::evidence::NodeEvidence;
use crate::change::transaction::journal::ConfigRef;
use crate::config::document::{self, Desired};
use crate::diagnose::doctor::gather::{self, LookOptions};
use crate::diagnose::doctor::{self, Diagnosis, DoctorCheck, DoctorFinding, Fix};
use crate::host::root::Root;
use crate::node::command::CommandRunner;
use crate::node::{self, NodeState, Records};

/// An empty config.
const NOTHING: &[u8] = br#"{"ignition":{"version":"3.4.0"}}"#;

/// The options of `doctor --fix`.
#[derive(Debug, Clone)]
pub struct FixOptions {
    /// Guards of the node to override.
    pub allowed: Allowed,
    /// The options of a trial.
    pub trial: TrialOptions,
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixOutcome {
    /// The check finds nothing, so nothing was changed.
    Healthy,
    /// File changes alone cannot fix it, so nothing was changed.
    NoFix,
    /// The changes are in place, and the finding is gone.
    Fixed,
    /// The changes are in place, but the check still finds it.
    StillFound,
}

/// A check, and the node to examine.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct CureSearch<'a> {
    /// The check.
    pub check: &'static DoctorCheck,
    /// The root.
    pub root: &'a Root,
    /// The runner that starts programs.
    pub runner: &'a dyn CommandRunner,
    /// The path of the root, as the user gave it.
    pub given: &'a Path,
    /// The options for gathering evidence.
    pub look: LookOptions<'a>,
}

impl CureSearch<'_> {
    /// Gathers the evidence and runs the check.
    ///
    /// # Errors
    /// The root cannot be opened again.
    pub fn examine_node(&self) -> Result<Diagnosis> {
        let root = self.root.open_again()?;
        let evidence = gather::gather_all(root, self.runner, self.given, self.look);
        Ok(doctor::run_checks(&[*self.check], &evidence))
    }

    /// Returns the finding to cure: the one with this number among those that files cure, or the only one.
    ///
    /// # Errors
    /// There are several without a number, or none with it.
    pub fn choose_finding<'d>(
        &self,
        diagnosis: &'d Diagnosis,
        number: Option<usize>,
    ) -> Result<&'d DoctorFinding> {
        let findings = diagnosis.findings.iter();
        let all: Vec<&DoctorFinding> = findings.filter(|one| one.fix.is_some()).collect();
        let number = match (number, all.len()) {
            (None, 1) => 1,
            (None, _) => 0,
            (Some(number), _) => number,
        };
        let chosen = number.checked_sub(1).and_then(|index| all.get(index));
        if let Some(chosen) = chosen {
            return Ok(chosen);
        }
        let mut list = String::new();
        for (index, finding) in all.iter().enumerate() {
            list.push_str(&format!("\n  {}  {}", index + 1, finding.what));
            let facts = finding.evidence.first();
            list.push_str(&facts.map_or_else(String::new, |fact| format!(" ({})", fact.place)));
        }
        bail!(
            "choose one with --finding N; nothing was changed. {} finds, and files cure:{list}",
            self.check.id
        )
    }

    /// Returns true if the check finds the same problem again, with the same cure.
    fn finds_again(&self, finding: &DoctorFinding) -> Result<bool> {
        let changes = |one: &DoctorFinding| one.fix.as_ref().map(|fix| fix.changes.clone());
        let again = self.examine_node()?.findings;
        Ok(again
            .iter()
            .any(|one| one.what == finding.what && changes(one) == changes(finding)))
    }
}

/// Returns the outcome if there is no finding that changes of files cure.
pub fn without_cure(diagnosis: &Diagnosis) -> Option<FixOutcome> {
    let findings = &diagnosis.findings;
    match findings.iter().any(|finding| finding.fix.is_some()) {
        true => None,
        false if findings.is_empty() => Some(FixOutcome::Healthy),
        false => Some(FixOutcome::NoFix),
    }
}

/// The cure of a finding, planned.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct FixRun<'a> {
    search: &'a CureSearch<'a>,
    /// The finding.
    pub finding: &'a DoctorFinding,
    options: &'a FixOptions,
    node: NodeState,
    /// The plan.
    pub plan: Plan,
}

impl<'a> FixRun<'a> {
    /// Observes the node and plans the fix for a finding.
    ///
    /// # Errors
    /// The node cannot be read, or the check finds something else now.
    pub fn plan_cure(
        change: &NodeChange<'_>,
        search: &'a CureSearch<'a>,
        finding: &'a DoctorFinding,
        options: &'a FixOptions,
    ) -> Result<Self> {
        let work = FixInputs {
            changes: &fix_of(finding)?.changes,
            time: change.started,
        };
        // The transaction detects changes after this observation; the second examination detects earlier ones.
        let node = node::observe_node(search.root, work.paths_observed(), search.runner)
            .context("looking at the node")?;
        if !search.finds_again(finding)? {
            bail!(
                "what {} found has changed meanwhile; nothing was changed. Look again: {}",
                search.check.id,
                mco_rescue("doctor")
            );
        }
        let plan = plan_fix(search, &node, options, work)?;
        Ok(Self {
            search,
            finding,
            options,
            node,
            plan,
        })
    }

    /// Returns the check.
    pub fn check(&self) -> &'static DoctorCheck {
        self.search.check
    }

    /// Returns the name of the run for `status` and `rollback`.
    pub fn name(&self) -> String {
        run_name(self.search.check)
    }

    /// Makes the changes. A trial that fails is reverted.
    ///
    /// # Errors
    /// The plan has blockers, or something failed; the message says what was changed.
    pub fn carry_out<'u>(self, change: NodeChange<'u>) -> Result<Cured<'a, 'u>> {
        expect_no_blockers(&self.plan, "change anything")?;
        let options = &self.options.trial;
        let request = TrialRequest::of_plan(options, &self.name(), &self.plan, false);
        let jobs = self.plan.trial_jobs.clone();
        let tried = RunningTrial::begin_trial(&change, request.with_jobs(jobs))?;
        if let Err(error) = self.write_changes(&change) {
            return Err(running::fail_change(tried, change, error));
        }
        Ok(Cured {
            run: self,
            change,
            tried,
        })
    }

    fn write_changes(&self, change: &NodeChange<'_>) -> Result<()> {
        let config = ConfigRef {
            name: self.name(),
            digest: String::new(),
            origin: self.finding.what.clone(),
        };
        let work = RunWork {
            more: match self.options.trial.window {
                Some(_) => &LATER_IN_TRIAL,
                None => &[],
            },
            jobs: &self.plan.trial_jobs,
            ..RunWork::new(change, &self.node, &self.plan, config)
        };
        work.carry_out().map(drop)
    }
}

/// A finding whose cure is in place, before its run ends.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct Cured<'a, 'u> {
    /// The run.
    pub run: FixRun<'a>,
    change: NodeChange<'u>,
    tried: Option<RunningTrial<'u>>,
}

impl Cured<'_, '_> {
    /// Runs the check again. Returns whether the finding is gone, with all that the check finds now; `None` if the node cannot be
    /// examined again.
    pub fn look_again(&self, before: &Diagnosis) -> Option<(FixOutcome, Diagnosis)> {
        let now = match self.run.search.examine_node() {
            Ok(now) => now,
            // The changes are in place; an error would claim that they are not.
            Err(error) => {
                log::warn!(
                    "the changes are in place, but {error:#}. Next: {}",
                    mco_rescue("doctor")
                );
                return None;
            }
        };
        let like = |one: &&DoctorFinding| one.what == self.run.finding.what;
        let number = |diagnosis: &Diagnosis| diagnosis.findings.iter().filter(like).count();
        let outcome = if number(&now) < number(before) {
            FixOutcome::Fixed
        } else {
            FixOutcome::StillFound
        };
        Some((outcome, now))
    }

    /// Ends the run, with the exit code that it has so far: its trial begins. An error reverts a trial.
    ///
    /// # Errors
    /// That error, or the run cannot be ended.
    pub fn finish_run(self, code: Result<ExitCode>) -> Result<ExitCode> {
        let Self { change, tried, .. } = self;
        match code {
            Ok(code) => change.finish_change(Ending {
                tried,
                ..Ending::from_code(code)
            }),
            Err(error) => Err(running::refuse_change(tried, change, error)),
        }
    }
}

fn run_name(check: &DoctorCheck) -> String {
    format!("doctor --fix {}", check.id)
}

fn fix_of(finding: &DoctorFinding) -> Result<&Fix> {
    let fix = finding.fix.as_ref();
    fix.context("changes of files alone do not cure this finding. Nothing was changed")
}

fn plan_fix(
    search: &CureSearch<'_>,
    node: &NodeState,
    options: &FixOptions,
    work: FixInputs<'_>,
) -> Result<Plan> {
    let root = search.root;
    let config = document::parse_document(NOTHING, &run_name(search.check))?;
    let desired = Desired::from_config(&config);
    let records = Records::read(root).context("reading the daemon's records")?;
    let old = records.recorded_config().map(Desired::from_config);
    let inputs = PlanInputs {
        crossing: &[],
        config: &config,
        desired: &desired,
        baseline: records.baseline(),
        old: old.as_ref(),
        records: &records,
        node,
        accounts: None,
        overrides: None,
        unchanged: None,
    };
    let request = PlanRequest {
        allowed: Allowed {
            // The cure does not depend on a deployment.
            staged: true,
            ..options.allowed
        },
        trial: options.trial.plan_trial(TrialReboot::Never, true),
        ..PlanRequest::default()
    };
    let evidence = NodeEvidence::of_node(root, node, search.runner);
    plan::plan_whole(&Task::Fix(inputs, work), &request, &evidence)
}
