//! The facts for and against a trial on this node, for the plan.

use std::cell::RefCell;

use anyhow::Result;

use crate::base::invocation::mco_rescue;
use crate::base::notice::Notice;
use crate::change::plan::activation::{self, Activation};
use crate::change::plan::{Findings, Plan, PlannedTrial, TrialFindings};
use crate::change::trial::coverage::{CoverageFacts, list_accidents};
use crate::change::trial::store::read_trial;
use crate::host::root::{Root, RootPath, skip_obstacle};
use crate::host::sys::kernel;
use crate::judge::daemon::policies::ClusterPolicies;
use crate::node::boot_counter::{self, Counting};
use crate::node::command::CommandRunner;
use crate::node::host::systemd_runs;
use crate::node::services_at_work::ServicesAtWork;

/// Units of other programs that take a change of the operating system back by themselves.
const OTHERS: [(&str, &str); 3] = [
    (
        "etc/systemd/system/multi-user.target.wants/lca-init-monitor.service",
        "lca-init-monitor.service",
    ),
    (
        "etc/systemd/system/multi-user.target.wants/greenboot-healthcheck.service",
        "greenboot-healthcheck.service",
    ),
    (
        "run/systemd/transient/bootc-operator-switch.service",
        "bootc-operator-switch.service",
    ),
];

/// Returns the findings about a trial of a plan on this node, and its jobs.
///
/// # Errors
/// The node cannot be read.
pub fn find_trial_facts(
    root: &Root,
    runner: &dyn CommandRunner,
    policies: &ClusterPolicies,
    plan: &Plan,
    trial: PlannedTrial,
) -> Result<TrialFindings> {
    let reboots = trial.reboots_with(plan);
    let mut found = judge_trial(root, plan, reboots)?;
    if trial.activates {
        let activation = find_activation(root, runner, policies, plan)?;
        if !reboots {
            found.findings.notices.extend(describe_jobs(&activation));
        }
        found.jobs = activation.jobs;
    }
    Ok(found)
}

/// Returns the jobs after which the services use the new files of a plan in this boot.
fn find_activation(
    root: &Root,
    runner: &dyn CommandRunner,
    policies: &ClusterPolicies,
    plan: &Plan,
) -> Result<Activation> {
    if !systemd_runs(root) {
        return Ok(Activation::default());
    }
    let failed = RefCell::new(None);
    let read = |path: &RootPath| {
        let read = skip_obstacle(root.read_small(path));
        read.map_err(|error| failed.replace(Some(error)))
            .unwrap_or_default()
    };
    let changed = activation::changed_paths(plan, &read);
    let settings = activation::changed_settings(plan, &read);
    if let Some(error) = failed.take() {
        return Err(error.into());
    }
    let services = ServicesAtWork::observe(root, runner, &settings)?;
    Ok(activation::activation_jobs(&changed, &services, policies))
}

/// Returns the notices on the jobs of a trial without a reboot, and on what it does not try.
fn describe_jobs(activation: &Activation) -> Vec<Notice> {
    let mut all = Vec::new();
    if !activation.jobs.is_empty() {
        let jobs: Vec<String> = activation.jobs.iter().map(ToString::to_string).collect();
        all.push(trial_notice(format!(
            "the services use the new files at once: {}",
            jobs.join(", ")
        )));
    }
    if !activation.left.is_empty() {
        let left: Vec<String> = activation
            .left
            .iter()
            .map(|left| format!("{} {}", left.path, left.why))
            .collect();
        all.push(trial_notice(format!("not tried: {}", left.join("; "))));
    }
    all
}

fn trial_notice(message: String) -> Notice {
    Notice::new("trial", message)
}

/// Returns what a trial of a plan means on this node, and the reasons against it.
fn judge_trial(root: &Root, plan: &Plan, reboots: bool) -> Result<TrialFindings> {
    let system = plan.os.needs_reboot();
    if !systemd_runs(root) {
        let against =
            "only a running node can revert a change by itself. Leave --try out for another root";
        return Ok(TrialFindings {
            findings: Findings {
                blockers: vec![trial_notice(against.to_owned())],
                ..Findings::default()
            },
            ..TrialFindings::default()
        });
    }
    let against = reasons_against(root, plan, system, reboots)?;
    let counting = if system && reboots {
        Some(boot_counter::observe_boot_counter(root)?.counting)
    } else {
        None
    };
    let facts = CoverageFacts {
        reboots,
        system,
        no_counter: match counting {
            Some(Counting::Impossible { reason }) => Some(reason.to_string()),
            Some(Counting::Possible { .. }) | None => None,
        },
        watchdog: kernel::has_watchdog(),
        panic: kernel::read_panic_timeout().unwrap_or_default(),
    };
    let accidents = list_accidents(&facts).into_iter();
    Ok(TrialFindings {
        findings: Findings {
            blockers: against.into_iter().map(trial_notice).collect(),
            notices: accidents
                .map(|accident| trial_notice(accident.describe_accident()))
                .collect(),
        },
        jobs: Vec::new(),
    })
}

/// Returns the reasons against a trial.
fn reasons_against(root: &Root, plan: &Plan, system: bool, reboots: bool) -> Result<Vec<String>> {
    let mut all = Vec::new();
    if let Some(trial) = read_trial(root)? {
        all.push(format!(
            "a trial of {} runs already. Confirm it: {}; or revert it: {}",
            trial.what,
            mco_rescue("confirm"),
            mco_rescue("rollback")
        ));
    }
    if plan.os.needs_reboot() && !reboots {
        all.push(
            "the operating system changes, so the trial is the next boot. Add --reboot; or try the files alone: --files-only"
                .to_owned(),
        );
    }
    if system {
        for (path, unit) in OTHERS {
            if root.exists(&RootPath::fixed(path))? {
                all.push(format!(
                    "{unit} takes the operating system back by itself, and two such programs would work against each \
                     other. Leave --try out, or stop it first. Next: systemctl disable --now {unit}"
                ));
            }
        }
    }
    Ok(all)
}
