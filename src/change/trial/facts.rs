//! The facts for and against a trial on this node, for the plan.

use std::cell::RefCell;

use anyhow::Result;

use crate::base::invocation::mco_rescue;
use crate::base::notice::Notice;
use crate::change::plan::Plan;
use crate::change::plan::activation::{self, Activation};
use crate::change::trial::coverage::{CoverageFacts, list_accidents};
use crate::change::trial::store::read_trial;
use crate::host::root::{Root, RootPath, skip_obstacle};
use crate::host::sys::kernel;
use crate::judge::daemon::policies::ClusterPolicies;
use crate::node::boot_counter::{self, Counting};
use crate::node::command::CommandRunner;
use crate::node::command::job::Job;
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

/// Returns the jobs after which the services use the new files of a plan in this boot. The plan gets a
/// notice on them, unless the trial reboots.
///
/// # Errors
/// The node cannot be read.
pub fn activate(
    root: &Root,
    runner: &dyn CommandRunner,
    policies: &ClusterPolicies,
    plan: &mut Plan,
    reboots: bool,
) -> Result<Vec<Job>> {
    if !systemd_runs(root) {
        return Ok(Vec::new());
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
    let Activation { jobs, left } = activation::activation_jobs(&changed, &services, policies);
    if reboots {
        return Ok(jobs);
    }
    let mut add = |message: String| {
        plan.notices.push(Notice {
            subject: "trial".to_owned(),
            message,
        });
    };
    if !jobs.is_empty() {
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        add(format!(
            "the services use the new files at once: {}",
            jobs.join(", ")
        ));
    }
    if !left.is_empty() {
        let left: Vec<String> = left
            .iter()
            .map(|left| format!("{} {}", left.path, left.why))
            .collect();
        add(format!("not tried: {}", left.join("; ")));
    }
    Ok(jobs)
}

/// Adds to a plan what a trial of it means on this node, and what stands against it.
///
/// # Errors
/// The node cannot be read.
pub fn add_to_plan(root: &Root, plan: &mut Plan, reboots: bool) -> Result<()> {
    if plan.is_empty() {
        return Ok(());
    }
    let system = plan.os.needs_reboot();
    let against = against(root, plan, system, reboots)?;
    let blockers = against.into_iter().map(|message| Notice {
        subject: "trial".to_owned(),
        message,
    });
    plan.blockers.extend(blockers);
    let counting = match system && reboots {
        true => Some(boot_counter::observe_boot_counter(root)?.counting),
        false => None,
    };
    let facts = CoverageFacts {
        reboots,
        system,
        no_counter: match counting {
            Some(Counting::Impossible { reason }) => Some(reason),
            Some(Counting::Possible { .. }) | None => None,
        },
        watchdog: kernel::has_watchdog(),
        panic: kernel::read_panic_timeout().unwrap_or_default(),
    };
    let accidents = list_accidents(&facts).into_iter();
    plan.notices.extend(accidents.map(|accident| Notice {
        subject: "trial".to_owned(),
        message: accident.words(),
    }));
    Ok(())
}

/// Returns the reasons against a trial.
fn against(root: &Root, plan: &Plan, system: bool, reboots: bool) -> Result<Vec<String>> {
    let mut all = Vec::new();
    if !systemd_runs(root) {
        all.push(
            "only a running node can take a change back by itself. Leave --try out for another root"
                .to_owned(),
        );
        return Ok(all);
    }
    if let Some(trial) = read_trial(root)? {
        all.push(format!(
            "a trial of {} runs already. Confirm it: {}; or take it back: {}",
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
