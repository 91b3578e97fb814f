//! Plans: drift turned into ordered steps. Values in, values out.
//!
//! [`plan_changes`] decides the order of the steps: accounts and users, directories, files, links, units with their drop-ins and
//! enablement, files that the config no longer has, then the daemon's records. [`plan_whole()`] adds all blockers for this node at
//! this time; every command creates its plan there. The transaction keeps the order of the steps.

mod accounts;
pub mod activation;
mod after;
mod as_drift;
mod at_work;
mod bare;
mod capabilities;
mod carried_out;
mod claims;
mod crossing;
mod emptied;
mod files;
pub mod fit;
mod fix;
mod guard;
mod held;
mod image;
mod interest;
mod key;
mod labels;
mod lasting;
mod login;
mod machine;
mod neighbours;
mod network;
mod nodes;
mod os;
mod os_plan;
mod packages;
mod placing;
mod pull_files;
mod quorum;
mod records;
mod refusals;
mod removals;
mod rollback;
mod second_names;
mod selinux;
mod services;
mod space;
pub mod staged;
mod step;
mod trial;
mod units;
mod users;
mod whole;

#[cfg(test)]
pub(crate) use os::tests as os_tests;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::base::notice::Notice;
use crate::config::document::{Desired, MachineConfig};
use crate::host::root::RootPath;
use crate::judge::accounts::Prepared;
use crate::judge::crossing::CrossingFinding;
use crate::judge::daemon::policies::Overrides;
use crate::judge::drift::enablement::UnchangedUnits;
use crate::node::command::job::Job;
use crate::node::{Baseline, NodeState, Records};

pub use after::After;
pub use as_drift::{account_drift, blocked_drifts, step_drifts};
pub use capabilities::list_needs;
pub use carried_out::{after_steps, carried_out, is_carried_out};
pub use crossing::AcceptedRisks;
use fix::plan_fix;
pub use fix::{FixChange, FixInputs};
pub use guard::Allowed;
use guard::guard_plan;
pub use held::Held;
pub use image::ImageEvidence;
pub use interest::paths_of_interest;
pub use key::Addition;
use key::one_more_key;
pub use labels::restorecon_command;
pub use login::{Logins, find_leftovers};
pub use machine::{no_system, no_trace, of_composefs, wrong_machine};
pub use neighbours::describe_neighbours;
pub use os_plan::{OsPlan, OsStep, PackageChange, PackageRepository};
use placing::InTheWay;
pub use quorum::{Quorum, judge_quorum};
use removals::find_removals;
use rollback::plan_rollback;
pub use rollback::{ChangedSince, FinishedRun, RecordBefore, RollbackInputs};
pub use step::{Attributes, Payload, PlannedStep, Section, Step};
pub use trial::{PlannedTrial, TrialFindings, TrialReboot};
pub use whole::{Findings, LiveEvidence, PlanRequest, PlanScope, Task, plan_whole};

/// What the user explicitly allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Sections that are never applied are ignored.
    pub ignore_unsupported: bool,
    /// Only files, units and users are applied; what the OS lacks is reported.
    pub files_only: bool,
    /// The last key and password of `core` may be removed.
    pub allow_lockout: bool,
    /// Whole account files may be replaced.
    pub allow_account_files: bool,
    /// The daemon should do the rest: the record is left unchanged, and the force file is created.
    pub request_force: bool,
}

/// What happens to the daemon's force file once everything else is in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Force {
    /// It is left unchanged.
    #[default]
    Left,
    /// It is created.
    Requested,
    /// It is removed, because nothing is left for the daemon to do.
    Withdrawn,
}

/// The changes to a node, and the reasons against them.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Reasons why the plan is not carried out.
    pub blockers: Vec<Notice>,
    /// Notices about unexpected results.
    pub notices: Vec<Notice>,
    /// Those of them on changed paths that a revert leaves as they are.
    pub left: Vec<Notice>,
    /// What is staged for the next boot, before the other steps.
    pub os: OsPlan,
    /// The steps, in order.
    pub steps: Vec<PlannedStep>,
    /// Flags that are cleared for the renames, and set again.
    pub held: Vec<Held>,
    /// The daemon's cgroups, which are frozen while names change.
    pub freeze: Vec<String>,
    /// What follows the files; only on a running node, and not if the run waits for the next boot anyway.
    pub after: Option<After>,
    /// What happens to the daemon's force file.
    pub force: Force,
    /// The units that are installed before the first step, in words.
    pub installs: Option<Notice>,
    /// The jobs of a trial, after which the services use the new files.
    pub trial_jobs: Vec<Job>,
}

impl Plan {
    /// Returns all jobs: first those of the trial, then the others.
    pub fn all_jobs(&self, others: Vec<Job>) -> Vec<Job> {
        let others = others.into_iter();
        let others = others.filter(|job| !self.trial_jobs.contains(job));
        self.trial_jobs.iter().cloned().chain(others).collect()
    }

    /// Returns all notices to show before the plan is carried out.
    pub fn notices_before(&self) -> Vec<Notice> {
        self.notices.iter().chain(&self.installs).cloned().collect()
    }

    /// Returns true if only a reboot completes it.
    pub fn needs_reboot(&self) -> bool {
        self.os.needs_reboot() || self.after.as_ref().is_some_and(After::needs_reboot)
    }

    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.os.steps.is_empty()
    }

    /// Returns true if the plan writes a path.
    pub fn writes_path(&self, path: &'static str) -> bool {
        let mut steps = self.steps.iter();
        steps.any(
            |planned| matches!(&planned.step, Step::Put { path: at, .. } if at.relative() == path),
        )
    }

    /// Returns true if the plan removes a path.
    pub fn removes_path(&self, path: &'static str) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|planned| {
            matches!(&planned.step, Step::Remove { path: at, .. } if at.relative() == path)
        })
    }

    /// Returns the bytes to be written to a path, if they are part of the plan.
    pub fn text_of(&self, path: &RootPath) -> Option<Vec<u8>> {
        let planned = self.steps.iter().find(|one| one.step.path() == path)?;
        match &planned.payload {
            Payload::Bytes(bytes) => Some(bytes.clone()),
            Payload::Record(text) => Some(text.as_bytes().to_vec()),
            Payload::Contents(contents) => contents.bytes().ok(),
            Payload::None
            | Payload::CopyOf(_)
            | Payload::TreeOf(_)
            | Payload::LinkTo(_)
            | Payload::NameOf(_) => None,
        }
    }
}

/// Everything from which a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct PlanInputs<'a> {
    /// The config that is wanted.
    pub config: &'a MachineConfig,
    /// Its desired state of the disk.
    pub desired: &'a Desired,
    /// The config that the disk is assumed to be in.
    pub baseline: Baseline<'a>,
    /// That config's desired state of the disk.
    pub old: Option<&'a Desired>,
    /// The daemon's records.
    pub records: &'a Records,
    /// The node. Its accounts are those after the run.
    pub node: &'a NodeState,
    /// The changes of accounts; only for a bare config with accounts.
    pub accounts: Option<&'a Prepared>,
    /// The changes of storage sections that the cluster accepts, if known.
    pub overrides: Option<&'a Overrides>,
    /// The findings about a different image; empty if the image does not change.
    pub crossing: &'a [CrossingFinding],
    /// A simulation of unchanged units, shared with other users.
    pub unchanged: Option<&'a UnchangedUnits>,
}

/// Returns the changes that a config needs on a node: the plan without any check of the current situation.
pub fn plan_changes(inputs: PlanInputs<'_>, options: PlanOptions) -> Plan {
    let mut builder = Builder::new(inputs, options);
    builder.check_document();
    builder.check_claims();
    if inputs.desired.bare {
        builder.note_bare();
        builder.plan_accounts();
    } else {
        builder.check_transition();
        builder.empty_sources();
        builder.plan_users();
    }
    builder.plan_directories();
    builder.plan_files();
    builder.plan_additions();
    builder.plan_links();
    builder.plan_units();
    builder.cure_files();
    if !inputs.desired.bare {
        builder.plan_stale();
        builder.emptied_directories();
        builder.plan_records();
    }
    builder.paths_below_files();
    builder.second_names();
    builder.check_ownership();
    builder.check_image();
    builder.plan_labels();
    builder.check_space();
    builder.plan
}

/// A plan in the making.
struct Builder<'a> {
    inputs: PlanInputs<'a>,
    options: PlanOptions,
    plan: Plan,
    /// Directories that the plan creates, by real location.
    made: BTreeSet<RootPath>,
    /// Paths that the plan changes, by real location.
    touched: BTreeSet<RootPath>,
}

impl<'a> Builder<'a> {
    fn new(inputs: PlanInputs<'a>, options: PlanOptions) -> Self {
        Self {
            inputs,
            options,
            plan: Plan::default(),
            made: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    fn add_blocker(&mut self, subject: impl Into<String>, message: impl Into<String>) {
        let notice = Notice::new(subject, message);
        if !self.plan.blockers.contains(&notice) {
            self.plan.blockers.push(notice);
        }
    }

    fn add_notice(&mut self, subject: impl Into<String>, message: impl Into<String>) {
        self.plan.notices.push(Notice::new(subject, message));
    }

    fn node(&self) -> &'a NodeState {
        self.inputs.node
    }
}
