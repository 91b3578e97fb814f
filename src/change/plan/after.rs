//! What follows the files on a running node: the daemon's actions for the step from the recorded config, and what the same
//! policies require for files that had only drifted (docs/develop/transaction.md, docs/develop/agreement.md: Actions).

use std::collections::BTreeSet;

use anyhow::Result;

use super::neighbours::BY_PACEMAKER;
use super::{LiveEvidence, Plan, PlanInputs, PlanOptions, PlannedStep, Section, Step};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::config::document::MachineConfig;
use crate::formats::systemd::changed::{is_read_by_manager, units_at, wanted_at};
use crate::host::root::RootPath;
use crate::judge::daemon::actions::{self, ActionChanges};
use crate::judge::daemon::policies::ClusterPolicies;
use crate::judge::daemon::registries::RegistryChange;
use crate::judge::daemon::{Action, Queued, Update, decide_taken};
use crate::node::RecordReader;
use crate::node::command::job::Job;
use crate::node::neighbours::is_fenced;

/// What follows the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct After {
    /// The daemon's actions for the step from the recorded config; empty if that is unknown.
    pub queue: Vec<Queued>,
    /// The actions for differences on disk that are not differences between the configs: they were changed by hand, or lost.
    pub repairs: Vec<Queued>,
    /// Repaired files without an action: a program that has already read one continues with the old content.
    pub unserved: Vec<String>,
    /// The reason why the daemon would drain the node first, if it would.
    pub drain: Option<String>,
    /// Unit files change, but no action makes systemd read them.
    pub unread_units: bool,
    /// The origin of these policies.
    pub policies: String,
    /// Pacemaker manages kubelet and etcd, so no job of theirs is run or printed.
    pub fencing: bool,
}

/// The rules for the decision.
#[derive(Debug, Clone, Copy)]
struct Rules<'a> {
    /// The policies.
    policies: &'a ClusterPolicies,
    /// The origin of the policies, for display.
    whose: &'a str,
    /// The daemon's force file exists.
    forced: bool,
    /// Changes that need a reboot are left out.
    files_only: bool,
}

impl After {
    /// Returns the jobs for the running system, in order. A reboot makes all of them unnecessary.
    pub fn jobs(&self) -> Vec<Job> {
        if self.needs_reboot() {
            return Vec::new();
        }
        let all = self.queue.iter().chain(&self.repairs);
        let jobs = all.filter_map(|queued| queued.action.job());
        jobs.filter(|job| !self.is_spared(job)).collect()
    }

    /// Returns the units that Pacemaker has to restart.
    pub fn spared_units(&self) -> Vec<String> {
        let all = self.queue.iter().chain(&self.repairs);
        let jobs = all.filter_map(|queued| queued.action.job());
        let mut units: Vec<String> = jobs
            .filter(|job| !self.needs_reboot() && self.is_spared(job))
            .filter_map(|job| job.unit().map(str::to_owned))
            .chain(
                self.unserved
                    .iter()
                    .filter(|what| self.fencing && is_fenced(what))
                    .cloned(),
            )
            .collect();
        units.sort();
        units.dedup();
        units
    }

    /// Returns the causes of the daemon's actions, in words.
    pub fn causes(&self) -> Vec<String> {
        let causes = self.queue.iter().map(|queued| queued.cause.to_string());
        causes.collect()
    }

    fn is_spared(&self, job: &Job) -> bool {
        self.fencing && job.unit().is_some_and(is_fenced)
    }

    /// Returns true if only a reboot completes the step.
    pub fn needs_reboot(&self) -> bool {
        self.queue
            .iter()
            .any(|queued| queued.action == Action::Reboot)
    }
}

/// Adds what follows the files on a running node.
///
/// # Errors
/// The cluster's policies cannot be read.
pub(super) fn add_after(
    plan: &mut Plan,
    inputs: &PlanInputs<'_>,
    options: PlanOptions,
    evidence: &dyn LiveEvidence,
) -> Result<()> {
    // A file that was given is read in any case, so that a mistake in it is reported before anything else.
    let cluster = evidence.cluster_settings()?;
    plan.notices.extend(crypto_policies(plan));
    if !inputs.node.host.live || plan.is_empty() {
        return Ok(());
    }
    if plan.os.needs_reboot() {
        plan.notices.push(not_drained());
        return Ok(());
    }
    let rules = Rules {
        policies: &cluster.policies,
        whose: &cluster.whose,
        forced: evidence.has_force_file()?,
        files_only: options.files_only,
    };
    let (old, new) = (stepped_from(inputs), inputs.config);
    // The deployment that was staged for the previous config never ran: only its files changed.
    let same_os = |old: &MachineConfig| MachineConfig {
        os_image_url: new.os_image_url.clone(),
        kernel_arguments: new.kernel_arguments.clone(),
        extensions: new.extensions.clone(),
        kernel_type: new.kernel_type,
        ..old.clone()
    };
    let never_ran = old.filter(|_| plan.os.drops_staged()).map(same_os);
    let mut after = plan_after(plan, never_ran.as_ref().or(old), new, rules);
    after.fencing = inputs.node.neighbours.fencing;
    let spared = after.spared_units();
    after.unserved.retain(|what| !spared.contains(what));
    if !spared.is_empty() {
        plan.notices.push(Notice::new(
            spared.join(", "),
            format!("is not restarted. {BY_PACEMAKER}"),
        ));
    }
    plan.after = Some(after);
    plan.notices.extend(refused_record(inputs));
    Ok(())
}

/// Returns the config that the daemon takes for the node's. A record with an empty Ignition part has no files, so that all
/// files of a different config are new to the daemon.
fn stepped_from<'a>(inputs: &PlanInputs<'a>) -> Option<&'a MachineConfig> {
    if inputs.desired.bare {
        return None;
    }
    let recorded = inputs.records.recorded_config();
    let emptied = recorded.filter(|record| record.emptied && record.name != inputs.config.name);
    emptied.or_else(|| inputs.baseline.config())
}

/// Returns a notice if the plan changes the system-wide crypto policy, whose files have no effect on their own.
fn crypto_policies(plan: &Plan) -> Option<Notice> {
    let changed = |path: &&RootPath| {
        path.relative() == paths::CRYPTO_POLICY || path.is_in(paths::CRYPTO_POLICIES)
    };
    let mut paths = super::activation::changing_steps(plan).map(|planned| planned.step.path());
    let path = paths.find(changed)?;
    Some(Notice::new(
        path.to_string(),
        "takes effect only through `update-crypto-policies`, which is not run here, and a reboot does not run it either: run it \
         on the node, then reboot. Only a release whose daemon knows these files runs it by itself",
    ))
}

/// Returns a notice if this program refuses the record but the daemon may accept it.
fn refused_record(inputs: &PlanInputs<'_>) -> Option<Notice> {
    let read = matches!(inputs.records.reader, RecordReader::Reads(_)) && !inputs.desired.bare;
    read.then(|| Notice::new(
        format!("/{}", paths::CURRENT_CONFIG),
        "is refused here but read by the daemon, so what its update would do is unknown: expect a drain \
         and a reboot",
    ))
}

fn not_drained() -> Notice {
    let message = "the daemon drains the node before it changes the operating system; this is not done here. Drain it \
                   while the API answers, or see --stop-workloads";
    Notice::new("drain", message)
}

/// Returns what follows the steps of a plan. `old` is the recorded config, if known.
fn plan_after(
    plan: &Plan,
    old: Option<&MachineConfig>,
    new: &MachineConfig,
    rules: Rules<'_>,
) -> After {
    let update =
        old.map(|old| decide_taken(old, new, rules.policies, rules.forced, rules.files_only));
    let (repairs, unserved) =
        repair_actions(&OnDisk::from_plan(plan), update.as_ref(), rules.policies);
    let mut after = After {
        drain: update.as_ref().and_then(drain_reason),
        queue: update.map(|update| update.queue).unwrap_or_default(),
        repairs,
        unserved,
        unread_units: false,
        policies: rules.whose.to_owned(),
        fencing: false,
    };
    let units = plan.steps.iter().any(|planned| {
        is_read_by_manager(planned.step.path())
            && !matches!(planned.step, Step::MakeDirectory { .. })
    });
    after.unread_units =
        units && !after.needs_reboot() && !after.jobs().contains(&Job::DaemonReload);
    after
}

/// Returns why the daemon would drain.
fn drain_reason(update: &Update) -> Option<String> {
    if !update.drain {
        return None;
    }
    Some(match &update.registries {
        _ if update.reboots() => "it would reboot".to_owned(),
        Some(RegistryChange::Unsafe(why)) => format!("in registries.conf {why}"),
        Some(RegistryChange::Unreadable(why)) => {
            format!("it could not tell what changes, and would end with: {why}")
        }
        Some(RegistryChange::Safe) | None => "a policy asks for it".to_owned(),
    })
}

/// The changes on disk, in the terms of policies.
#[derive(Debug, Default)]
struct OnDisk {
    files: BTreeSet<String>,
    units: BTreeSet<String>,
    users: bool,
}

impl OnDisk {
    fn from_plan(plan: &Plan) -> Self {
        let of = |sections: &[Section]| -> Vec<RootPath> {
            let steps = plan.steps.iter();
            let wanted = |planned: &&PlannedStep| {
                let directory = matches!(
                    planned.step,
                    Step::MakeDirectory { .. } | Step::RemoveDirectory { .. }
                );
                sections.contains(&planned.section) && !directory
            };
            let wanted = steps.filter(wanted);
            wanted.map(|planned| planned.step.path().clone()).collect()
        };
        let is_unit = |path: &&RootPath| !units_at(std::slice::from_ref(*path)).is_empty();
        let (unit_files, files): (Vec<_>, Vec<_>) = of(&[Section::Stale])
            .into_iter()
            .partition(|path| is_unit(&path));
        let units = [of(&[Section::Units]), unit_files].concat();
        let files = [of(&[Section::Files, Section::Nodes]), files].concat();
        let links = of(&[Section::Enablement]);
        Self {
            files: files.iter().map(RootPath::to_string).collect(),
            units: units_at(&units)
                .into_iter()
                .chain(wanted_at(&links))
                .collect(),
            users: !of(&[Section::Users]).is_empty(),
        }
    }
}

/// Returns the actions for every change that the step between the configs does not explain, each by its own policy.
fn repair_actions(
    disk: &OnDisk,
    update: Option<&Update>,
    policies: &ClusterPolicies,
) -> (Vec<Queued>, Vec<String>) {
    let known = |lists: &[&Vec<String>], name: &String| lists.iter().any(|all| all.contains(name));
    let is_step = |name: &String| {
        update.is_some_and(|update| {
            let units = [
                &update.added_units,
                &update.updated_units,
                &update.removed_units,
            ];
            known(&[&update.changed_files], name) || known(&units, name)
        })
    };
    let files = disk.files.iter().filter(|path| !is_step(path));
    let units = disk.units.iter().filter(|name| !is_step(name));
    let users = disk.users && !update.is_some_and(|update| update.diff.passwd);
    let mut all: Vec<(String, ActionChanges<'_>)> = Vec::new();
    all.extend(files.map(|path| (path.clone(), file_changes(path))));
    all.extend(units.map(|name| (name.clone(), unit_changes(name))));
    all.extend(users.then(|| ("ssh keys and passwords".to_owned(), account_changes())));
    let mut done = update
        .map(|update| update.queue.clone())
        .unwrap_or_default();
    let step = done.len();
    let mut unserved = Vec::new();
    for (what, changed) in all {
        let mut wanted = actions::follow_policies(&changed, policies);
        if wanted.iter().any(|queued| queued.action == Action::Reboot) {
            unserved.push(what);
            continue;
        }
        wanted.retain(|queued| queued.action.job().is_some());
        if !holds_actions(&done, &wanted) {
            done.extend(wanted);
        }
    }
    (done.split_off(step), unserved)
}

/// Returns true if a queue already has the same actions in this order.
fn holds_actions(queue: &[Queued], wanted: &[Queued]) -> bool {
    let mut queue = queue.iter();
    wanted
        .iter()
        .all(|wanted| queue.any(|queued| queued.action == wanted.action))
}

fn file_changes(path: &str) -> ActionChanges<'_> {
    ActionChanges {
        files: vec![path],
        ..ActionChanges::default()
    }
}

fn unit_changes(name: &str) -> ActionChanges<'_> {
    ActionChanges {
        units: vec![name],
        ..ActionChanges::default()
    }
}

fn account_changes() -> ActionChanges<'static> {
    ActionChanges {
        users: true,
        ..ActionChanges::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::object::{Object, ObjectKind};
    use crate::change::plan::Payload;
    use crate::config::document;
    use crate::judge::daemon::default_policies;
    use serde_json::json;

    fn config(policy: &str, chrony: &str) -> MachineConfig {
        let value = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1"}, "spec": {"config": {
                "ignition": {"version": "3.5.0"}, "storage": {"files": [
                    {"path": "/etc/containers/policy.json", "contents": {"source": policy}},
                    {"path": "/etc/chrony.conf", "contents": {"source": chrony}}]}}}});
        document::parse_document(value.to_string().as_bytes(), "test").unwrap()
    }

    fn step(section: Section, path: &str) -> PlannedStep {
        let old = Object::new(ObjectKind::Symlink { target: "x".into() }, 0o777, (0, 0));
        PlannedStep {
            step: Step::Remove {
                path: RootPath::parse(path).unwrap(),
                old,
            },
            payload: Payload::None,
            section,
            why: "".into(),
            label: None,
        }
    }

    fn judged(
        steps: &[(Section, &str)],
        old: Option<&MachineConfig>,
        new: &MachineConfig,
    ) -> After {
        let steps = steps.iter().map(|(section, path)| step(*section, path));
        let plan = Plan {
            steps: steps.collect(),
            ..Plan::default()
        };
        let rules = Rules {
            policies: &default_policies(),
            whose: "default",
            forced: false,
            files_only: false,
        };
        plan_after(&plan, old, new, rules)
    }

    fn reload() -> Job {
        Job::Reload("crio.service".into())
    }

    #[test]
    fn the_step_between_the_configs_decides() {
        let (old, new) = (config("data:,a", "data:,a"), config("data:,b", "data:,a"));
        let files = [(Section::Files, "/etc/containers/policy.json")];
        let after = judged(&files, Some(&old), &new);
        assert_eq!(after.jobs(), [reload()]);
        assert!(after.repairs.is_empty() && after.drain.is_none());
        // Even if the disk was already right: the program that reads it may not have read it.
        assert_eq!(judged(&[], Some(&old), &new).jobs(), [reload()]);
    }

    #[test]
    fn a_reboot_is_announced_and_nothing_else_is_done() {
        let (old, new) = (config("data:,a", "data:,a"), config("data:,b", "data:,b"));
        let after = judged(&[(Section::Files, "/etc/chrony.conf")], Some(&old), &new);
        assert!(after.needs_reboot() && after.jobs().is_empty());
        assert_eq!(after.drain.unwrap(), "it would reboot");
    }

    #[test]
    fn what_had_only_drifted_never_reboots_the_node() {
        let same = config("data:,a", "data:,a");
        let steps = [
            (Section::Files, "/etc/chrony.conf"),
            (Section::Files, "/etc/containers/policy.json"),
            (Section::Units, "/etc/systemd/system/site.service"),
            (Section::Users, "/home/core/.ssh/authorized_keys.d/ignition"),
        ];
        let after = judged(&steps, Some(&same), &same);
        assert!(!after.needs_reboot());
        assert_eq!(after.jobs(), [reload()]);
        assert_eq!(after.unserved, ["/etc/chrony.conf", "site.service"]);
        assert!(after.unread_units);
        // Without a record, everything is a repair.
        let unknown = judged(&steps, None, &same);
        assert_eq!(
            (unknown.jobs(), unknown.unserved),
            (after.jobs(), after.unserved)
        );
    }

    #[test]
    fn an_order_that_a_repair_needs_is_kept() {
        let same = config("data:,a", "data:,a");
        let steps = [
            (
                Section::Files,
                "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt",
            ),
            (
                Section::Files,
                "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            ),
        ];
        let jobs = judged(&steps, Some(&same), &same).jobs();
        let said: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let trust = "restart coreos-update-ca-trust.service";
        // The bundle is rebuilt once more, so that CRI-O is sure to start after it.
        assert_eq!(said, [trust, trust, "restart crio.service"]);
    }

    #[test]
    fn a_dropin_that_is_written_as_a_file_has_the_policy_of_a_file() {
        let same = config("data:,a", "data:,a");
        let path =
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
        let after = judged(&[(Section::Files, path)], Some(&same), &same);
        let kubelet = Job::Restart("kubelet.service".into());
        assert_eq!(after.jobs(), [Job::DaemonReload, kubelet]);
        assert!(!after.unread_units && after.unserved.is_empty());
        // A file that the config no longer has belongs to a unit again.
        let after = judged(&[(Section::Stale, path)], Some(&same), &same);
        assert_eq!(after.unserved, ["kubelet.service"]);
    }

    #[test]
    fn drift_beside_a_step_repeats_nothing_and_stops_nothing() {
        let (old, new) = (config("data:,a", "data:,a"), config("data:,b", "data:,a"));
        let steps = [
            (Section::Files, "/etc/containers/policy.json"),
            (Section::Files, "/etc/containers/registries.d/a.yaml"),
            (Section::Files, "/etc/chrony.conf"),
        ];
        let after = judged(&steps, Some(&old), &new);
        assert_eq!(after.jobs(), [reload()]);
        assert_eq!(after.unserved, ["/etc/chrony.conf"]);
    }
}
