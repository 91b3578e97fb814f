//! Transitions that the daemon refuses, with the daemon's messages (docs/develop/agreement.md: Transitions).

use super::ignition::Ignition;
use super::machine_config::MachineConfig;

/// A transition that the daemon would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionRefusal {
    /// JSON path of the refused part.
    pub path: String,
    /// The daemon's reason.
    pub reason: String,
    /// The daemon's complete message.
    pub sentence: String,
    /// The rest can be applied safely, because the refused part is never applied.
    pub harmless: bool,
    /// The value of `spec.irreconcilableValidationOverrides.storage` in the cluster's MachineConfiguration with which the
    /// daemon accepts the change.
    pub lifted_by: Option<&'static str>,
}

struct TransitionRule {
    path: String,
    reason: String,
    harmless: bool,
}

const USERS: &str = "spec.config.passwd.users";
/// Makes the daemon apply a config without validation, with a reboot.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Returns every reason why the daemon would refuse the transition from `old` to `new`.
///
/// The daemon stops at the first; here all are in its order. The two names in its message really are swapped.
pub fn find_refusals(old: &MachineConfig, new: &MachineConfig) -> Vec<TransitionRefusal> {
    let mut rules = passwd_rules(&old.ignition, &new.ignition);
    rules.extend(section_rules(&old.ignition, &new.ignition));
    rules.extend(file_rules(&new.ignition));
    if old.fips != new.fips {
        rules.push(new_rule(
            "spec.fips",
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
            false,
        ));
    }
    to_refusals(rules, &old.name, &new.name)
}

/// Returns every reason that does not depend on the old config, which the daemon calls `mco-empty-mc`.
pub fn unconditional_refusals(new: &MachineConfig) -> Vec<TransitionRefusal> {
    let mut rules = passwd_rules(&Ignition::default(), &new.ignition);
    rules.retain(|rule| rule.path == USERS);
    rules.extend(file_rules(&new.ignition));
    to_refusals(rules, "mco-empty-mc", &new.name)
}

fn to_refusals(rules: Vec<TransitionRule>, old: &str, new: &str) -> Vec<TransitionRefusal> {
    let sentence = |reason: &str| {
        format!(
            "configs {old}, {new} are not reconcilable: new machineconfig \"{old}\" is not \
             reconcilable against \"{new}\": {reason}",
        )
    };
    let refusal = |rule: TransitionRule| TransitionRefusal {
        lifted_by: override_of(&rule.path),
        path: rule.path,
        sentence: sentence(&rule.reason),
        reason: rule.reason,
        harmless: rule.harmless,
    };
    rules.into_iter().map(refusal).collect()
}

fn new_rule(path: &str, reason: &str, harmless: bool) -> TransitionRule {
    TransitionRule {
        path: path.to_owned(),
        reason: reason.to_owned(),
        harmless,
    }
}

fn passwd_rules(old: &Ignition, new: &Ignition) -> Vec<TransitionRule> {
    let mut rules = Vec::new();
    if old.passwd.groups != new.passwd.groups {
        let reason = "invalid passwd change(s): ignition Passwd Groups section contains changes";
        rules.push(new_rule("spec.config.passwd.groups", reason, true));
    }
    let (before, after) = (&old.passwd.users, &new.passwd.users);
    let Some(last) = after.last().filter(|_| before != after) else {
        return rules;
    };
    if after.iter().any(|user| user.name != "core") {
        let reason = "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user";
        rules.push(new_rule(USERS, reason, false));
    } else if last.ssh_authorized_keys.is_empty() && last.password_hash.is_none() {
        let reason = "invalid passwd change(s): ignition passwd user section contains unsupported changes: \
                      user must be core and have 1 or more sshKeys";
        rules.push(new_rule(USERS, reason, false));
    } else if !last.has_only_credentials() {
        rules.push(new_rule(
            USERS,
            "invalid passwd change(s): SSH keys and password hash are not reconcilable",
            false,
        ));
    }
    rules
}

/// Sections whose changes a cluster can accept, each with the value of `spec.irreconcilableValidationOverrides.storage` for it.
const OVERRIDES: [(&str, &str); 3] = [
    ("spec.config.storage.disks", "Disks"),
    ("spec.config.storage.filesystems", "FileSystems"),
    ("spec.config.storage.raid", "Raid"),
];

/// Returns the override with which changes of a section are accepted, if there is one.
pub fn override_of(path: &str) -> Option<&'static str> {
    let found = OVERRIDES.iter().find(|(section, _)| *section == path);
    found.map(|(_, name)| *name)
}

fn section_rules(old: &Ignition, new: &Ignition) -> Vec<TransitionRule> {
    let (a, b) = (&old.storage, &new.storage);
    let table = [
        (
            old.kernel_arguments != new.kernel_arguments,
            "spec.config.kernelArguments",
            "kargs",
        ),
        (a.disks != b.disks, "spec.config.storage.disks", "disks"),
        (
            a.filesystems != b.filesystems,
            "spec.config.storage.filesystems",
            "filesystems",
        ),
        (a.raid != b.raid, "spec.config.storage.raid", "raid"),
        (
            a.directories != b.directories,
            "spec.config.storage.directories",
            "directories",
        ),
        (
            a.links != b.links && !b.links.is_empty(),
            "spec.config.storage.links",
            "links",
        ),
    ];
    let changed = table.into_iter().filter(|(changed, ..)| *changed);
    changed
        .map(|(_, path, name)| {
            new_rule(
                path,
                &format!("ignition {name} section contains changes"),
                true,
            )
        })
        .collect()
}

fn file_rules(new: &Ignition) -> Vec<TransitionRule> {
    let mut rules = Vec::new();
    for (index, file) in new.storage.files.iter().enumerate() {
        let at = format!("spec.config.storage.files[{index}]");
        if !file.append.is_empty() {
            let reason = format!("ignition file {} includes append", file.path);
            rules.push(new_rule(&format!("{at}.append"), &reason, false));
        }
        if file.path == FORCE_FILE {
            let reason = format!("cannot create {FORCE_FILE} via Ignition");
            rules.push(new_rule(&format!("{at}.path"), &reason, false));
        }
    }
    rules
}
