//! The daemon's decisions about a step from one config to another (docs/develop/agreement.md: Transitions, Update, Actions).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::actions::{self, Action, ActionCause, ActionChanges, Queued, reboot_actions};
use super::registries::{self, RegistryChange};
use crate::config::document::ignition::{File, Unit};
use crate::config::document::{Ignition, MachineConfig, TransitionRefusal, find_refusals};
use crate::judge::daemon::policies::ClusterPolicies;

/// The daemon's decision about a step from one config to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The reason for a refusal; no actions are queued in that case.
    pub refusal: Option<TransitionRefusal>,
    /// The differences.
    pub diff: Diff,
    /// Sorted paths of files that are added, removed or changed in any way.
    pub changed_files: Vec<String>,
    /// Sorted names of new units.
    pub added_units: Vec<String>,
    /// Sorted names of units that differ in any way.
    pub updated_units: Vec<String>,
    /// Sorted names of removed units.
    pub removed_units: Vec<String>,
    /// The actions after the files, in order, with their causes.
    pub queue: Vec<Queued>,
    /// True if it drains first, or should: if it cannot read registries.conf, its update ends with an error instead.
    pub drain: bool,
    /// The effect of a change of registries.conf, if that decides about the drain.
    pub registries: Option<RegistryChange>,
}

/// The differences between two configs, as parsed: order and encoding count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// `osImageURL` differs, or the force file exists.
    pub os_update: bool,
    /// `kernelArguments`.
    pub kargs: bool,
    /// `fips`.
    pub fips: bool,
    /// The section `passwd`.
    pub passwd: bool,
    /// The list of files.
    pub files: bool,
    /// The list of units.
    pub units: bool,
    /// `kernelType`.
    pub kernel_type: bool,
    /// `extensions`.
    pub extensions: bool,
}

impl Diff {
    fn between_configs(old: &MachineConfig, new: &MachineConfig, forced: bool) -> Self {
        let (a, b) = (&old.ignition, &new.ignition);
        Self {
            os_update: forced || old.os_image_url != new.os_image_url,
            kargs: old.kernel_arguments != new.kernel_arguments,
            fips: old.fips != new.fips,
            passwd: a.passwd != b.passwd,
            files: a.storage.files != b.storage.files,
            units: a.systemd.units != b.systemd.units,
            kernel_type: old.kernel_type != new.kernel_type,
            extensions: old.extensions != new.extensions,
        }
    }

    /// Returns the changed parts that only a reboot applies, as text.
    pub fn reboot_parts(&self) -> Vec<&'static str> {
        let table = [
            (self.os_update, "the OS image"),
            (self.kargs, "kernel arguments"),
            (self.fips, "FIPS"),
            (self.kernel_type, "kernel type"),
            (self.extensions, "extensions"),
        ];
        let changed = table.iter().filter(|(changed, _)| *changed);
        changed.map(|(_, part)| *part).collect()
    }
}

impl Update {
    /// Returns true if it reboots.
    pub fn reboots(&self) -> bool {
        self.queue
            .iter()
            .any(|queued| queued.action == Action::Reboot)
    }
}

/// Decides about a step. `allowed`: the changes of storage sections that the cluster allows, which is
/// `spec.irreconcilableValidationOverrides.storage` of the MachineConfiguration (`Disks`, `FileSystems`, `Raid`). `forced`: the
/// force file exists.
///
/// The caller replaces an old config of `null` by one with an empty Ignition config. The check against the kernel's FIPS mode
/// is not included: that is a fact about the node.
pub fn decide_allowing(
    old: &MachineConfig,
    new: &MachineConfig,
    policies: &ClusterPolicies,
    allowed: &[String],
    forced: bool,
) -> Update {
    let mut refusals = find_refusals(old, new).into_iter();
    let mut update = Update::compare_configs(old, new, forced);
    update.refusal = refusals.find(|refusal| !is_lifted(refusal, allowed));
    if update.refusal.is_none() {
        let queue = update.action_queue(policies, forced);
        update.settle_queue(queue, &old.ignition, &new.ignition);
    }
    update
}

/// Decides about a step that a person takes even if the daemon would refuse it. `files_only`: parts that only a reboot applies
/// are left out, so they decide nothing.
pub fn decide_taken(
    old: &MachineConfig,
    new: &MachineConfig,
    policies: &ClusterPolicies,
    forced: bool,
    files_only: bool,
) -> Update {
    let mut update = Update::compare_configs(old, new, forced);
    let queue = if files_only && !forced {
        update.queue_of_files(policies)
    } else {
        update.action_queue(policies, forced)
    };
    update.settle_queue(queue, &old.ignition, &new.ignition);
    update
}

/// Returns true if a change is not known to be safe.
fn is_unsafe(change: Option<&RegistryChange>) -> bool {
    change.is_some_and(|change| *change != RegistryChange::Safe)
}

fn is_lifted(refusal: &TransitionRefusal, allowed: &[String]) -> bool {
    let name = refusal.lifted_by;
    name.is_some_and(|name| allowed.iter().any(|allowed| allowed == name))
}

impl Update {
    fn compare_configs(old: &MachineConfig, new: &MachineConfig, forced: bool) -> Self {
        let (before, after) = (units_by_name(&old.ignition), units_by_name(&new.ignition));
        let names = |wanted: &dyn Fn(&str) -> bool| {
            let all: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
            let wanted = all.into_iter().filter(|name| wanted(name));
            wanted.map(str::to_owned).collect()
        };
        Self {
            refusal: None,
            diff: Diff::between_configs(old, new, forced),
            changed_files: changed_files(&old.ignition, &new.ignition),
            added_units: names(&|name| !before.contains_key(name)),
            removed_units: names(&|name| !after.contains_key(name)),
            updated_units: names(&|name| match (before.get(name), after.get(name)) {
                (Some(before), Some(after)) => before != after,
                _ => false,
            }),
            queue: Vec::new(),
            drain: false,
            registries: None,
        }
    }

    fn settle_queue(&mut self, queue: Vec<Queued>, old: &Ignition, new: &Ignition) {
        let has = |action: &Action| queue.iter().any(|queued| queued.action == *action);
        if has(&Action::Special) {
            self.registries = Some(registries::registry_change(old, new));
        }
        let certain = has(&Action::Reboot) || has(&Action::Drain);
        self.drain = certain || is_unsafe(self.registries.as_ref());
        self.queue = queue;
    }

    fn action_queue(&self, policies: &ClusterPolicies, forced: bool) -> Vec<Queued> {
        let parts = self.diff.reboot_parts();
        if forced {
            return reboot_actions(ActionCause::Forced);
        }
        if !parts.is_empty() {
            return reboot_actions(ActionCause::NeedsReboot(parts));
        }
        self.queue_of_files(policies)
    }

    fn queue_of_files(&self, policies: &ClusterPolicies) -> Vec<Queued> {
        if !self.diff.files && !self.diff.units && !self.diff.passwd {
            return vec![Queued {
                action: Action::None,
                cause: ActionCause::NothingChanged,
            }];
        }
        let units = [&self.added_units, &self.updated_units, &self.removed_units];
        let changed = ActionChanges {
            files: self.changed_files.iter().map(String::as_str).collect(),
            units: units.into_iter().flatten().map(String::as_str).collect(),
            users: self.diff.passwd,
        };
        actions::follow_policies(&changed, policies)
    }
}

/// Returns the files that are added, removed, or different in any field; order does not count here.
fn changed_files(old: &Ignition, new: &Ignition) -> Vec<String> {
    let (before, after) = (files_by_path(old), files_by_path(new));
    let all: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let changed = all
        .into_iter()
        .filter(|path| before.get(path) != after.get(path));
    changed.map(str::to_owned).collect()
}

fn files_by_path(config: &Ignition) -> BTreeMap<&str, &File> {
    let files = config.storage.files.iter();
    files.map(|file| (file.path.as_str(), file)).collect()
}

fn units_by_name(config: &Ignition) -> BTreeMap<&str, &Unit> {
    let units = config.systemd.units.iter();
    units.map(|unit| (unit.name.as_str(), unit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;
    use crate::judge::daemon::actions::REGISTRIES_CONF;
    use crate::judge::daemon::default_policies;
    use serde_json::{Value, json};

    impl Update {
        fn actions(&self) -> Vec<Action> {
            let queue = self.queue.iter();
            queue.map(|queued| queued.action.clone()).collect()
        }
    }

    fn config(change: impl FnOnce(&mut Value)) -> MachineConfig {
        let mut value = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1"},
            "spec": {"osImageURL": "a", "kernelArguments": ["x"], "config": {
                "ignition": {"version": "3.5.0"},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]},
                "storage": {"files": [
                    {"path": "/etc/containers/policy.json", "contents": {"source": "data:,a"}},
                    {"path": "/etc/nmstate/openshift/a", "contents": {"source": "data:,a"}}]},
                "systemd": {"units": [{"name": "a.service", "enabled": true}]}}}});
        change(&mut value);
        document::parse_document(value.to_string().as_bytes(), "test").unwrap()
    }

    fn decided(change: impl FnOnce(&mut Value), forced: bool) -> Update {
        let (old, new) = (config(|_| {}), config(change));
        decide_allowing(&old, &new, &default_policies(), &[], forced)
    }

    fn set(path: &'static str, value: Value) -> impl FnOnce(&mut Value) {
        move |config| *config.pointer_mut(path).unwrap() = value
    }

    #[test]
    fn what_only_a_reboot_brings_reboots_and_says_what_it_is() {
        for (path, value, part) in [
            ("/spec/osImageURL", json!("b"), "the OS image"),
            ("/spec/kernelArguments", json!([]), "kernel arguments"),
        ] {
            let update = decided(set(path, value), false);
            assert_eq!(update.actions(), [Action::Reboot]);
            assert_eq!(update.queue[0].cause, ActionCause::NeedsReboot(vec![part]));
            assert!(update.drain && update.reboots());
        }
        let all = decided(
            |config| {
                config["spec"]["kernelType"] = json!("realtime");
                config["spec"]["extensions"] = json!(["usbguard"]);
            },
            false,
        );
        let parts = vec!["kernel type", "extensions"];
        assert_eq!(all.queue[0].cause, ActionCause::NeedsReboot(parts));
    }

    #[test]
    fn the_force_file_always_reboots_and_counts_as_another_image() {
        let update = decided(|_| {}, true);
        assert!(update.drain && update.diff.os_update);
        assert_eq!(update.queue, reboot_actions(ActionCause::Forced));
    }

    #[test]
    fn without_any_change_there_is_nothing_and_order_alone_queues_not_even_that() {
        let update = decided(|_| {}, false);
        assert_eq!(
            (update.actions(), update.drain),
            (vec![Action::None], false)
        );
        let reordered = decided(
            |config| {
                let files = config.pointer_mut("/spec/config/storage/files").unwrap();
                files.as_array_mut().unwrap().reverse();
            },
            false,
        );
        assert!(reordered.diff.files && reordered.changed_files.is_empty());
        assert_eq!(reordered.actions(), []);
    }

    #[test]
    fn the_same_bytes_in_another_writing_are_a_change() {
        let source = "/spec/config/storage/files/0/contents/source";
        let update = decided(set(source, json!("data:;base64,YQ==")), false);
        assert_eq!(update.changed_files, ["/etc/containers/policy.json"]);
        assert_eq!(update.actions(), [Action::Reload("crio.service".into())]);
    }

    #[test]
    fn files_come_before_units_before_users() {
        let (old, new) = (
            config(|_| {}),
            config(|config| {
                config["spec"]["config"]["passwd"]["users"][0]["sshAuthorizedKeys"] =
                    json!(["ssh-ed25519 BBBB b"]);
                config["spec"]["config"]["storage"]["files"][0]["contents"]["source"] =
                    json!("data:,b");
                config["spec"]["config"]["systemd"]["units"] =
                    json!([{"name": "z.service"}, {"name": "b.service"}]);
            }),
        );
        let restart = |name: &str| Action::Restart(name.to_owned());
        let given =
            |action: &Action| vec![crate::judge::daemon::policies::PolicyAction::from(action)];
        let mut policies = default_policies();
        for name in ["a.service", "b.service", "z.service"] {
            policies
                .units
                .push(crate::judge::daemon::policies::UnitPolicy {
                    name: name.to_owned(),
                    actions: given(&restart(name)),
                });
        }
        policies.sshkey.actions = given(&Action::Drain);
        let update = decide_allowing(&old, &new, &policies, &[], false);
        let wanted = [
            Action::Reload("crio.service".into()),
            restart("b.service"),
            restart("z.service"),
            restart("a.service"),
            Action::Drain,
        ];
        assert_eq!(update.actions(), wanted);
        assert!(update.drain);
        assert_eq!(update.removed_units, ["a.service"]);
    }

    #[test]
    fn a_refused_step_queues_nothing_and_the_cluster_may_lift_a_refusal_of_disks() {
        let disk = |config: &mut Value| {
            config["spec"]["config"]["storage"]["disks"] = json!([{"device": "/dev/sdb"}]);
        };
        let update = decided(disk, false);
        let reason = update.refusal.unwrap().reason;
        assert_eq!(reason, "ignition disks section contains changes");
        assert_eq!(update.queue, []);
        let (old, new) = (config(|_| {}), config(disk));
        let allowed = |name: &str| {
            decide_allowing(&old, &new, &default_policies(), &[name.to_owned()], false)
        };
        assert_eq!(allowed("Disks").actions(), [Action::None]);
        assert!(allowed("Raid").refusal.is_some());
    }

    #[test]
    fn registries_that_cannot_be_read_are_not_safe() {
        let with = |source: &'static str, compression: Option<&'static str>| {
            config(move |config| {
                let file = json!({"path": REGISTRIES_CONF,
                    "contents": {"source": source, "compression": compression}});
                let files = config.pointer_mut("/spec/config/storage/files").unwrap();
                files.as_array_mut().unwrap().push(file);
            })
        };
        let old = with("data:,", None);
        // An empty gzip stream, which the daemon parses as TOML.
        let packed = "data:;base64,H4sIAAAAAAAAAwMAAAAAAAAAAAA=";
        let new = with(packed, Some("gzip"));
        let update = decide_allowing(&old, &new, &default_policies(), &[], false);
        assert!(matches!(
            update.registries,
            Some(RegistryChange::Unreadable(_))
        ));
        assert!(update.drain);
        let plain = "data:,%5B%5Bregistry%5D%5D%0Alocation=%22a%22%0A";
        let update = decide_allowing(&old, &with(plain, None), &default_policies(), &[], false);
        assert!(update.drain, "a registry without mirrors is for all names");
        assert_eq!(update.actions(), [Action::Special]);
    }
}
