//! Which transitions the daemon refuses, in its words (mcd-contract 1.6).

use super::ignition::Ignition;
use super::machine_config::MachineConfig;

/// A transition that the daemon would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The JSON path of what is refused.
    pub path: String,
    /// The daemon's reason.
    pub reason: String,
    /// The daemon's whole sentence.
    pub sentence: String,
    /// Whether the rest can be applied harmlessly: the part refused is one that is never applied.
    pub harmless: bool,
}

struct Rule {
    path: &'static str,
    reason: String,
    harmless: bool,
}

const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Every reason why the daemon would not go from `old` to `new`.
///
/// The daemon stops at the first; here they come in its order. Its sentence really has the two names swapped.
pub fn refusals(old: &MachineConfig, new: &MachineConfig) -> Vec<Refusal> {
    let mut rules = passwd(&old.ignition, &new.ignition);
    rules.extend(sections(&old.ignition, &new.ignition));
    rules.extend(files(&new.ignition));
    if old.fips != new.fips {
        rules.push(rule(
            "spec.fips",
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
            false,
        ));
    }
    let sentence = |reason: &str| {
        format!(
            "configs {a}, {b} are not reconcilable: new machineconfig \"{a}\" is not reconcilable against \"{b}\": {reason}",
            a = old.name,
            b = new.name,
        )
    };
    rules
        .into_iter()
        .map(|rule| Refusal {
            path: rule.path.to_owned(),
            sentence: sentence(&rule.reason),
            reason: rule.reason,
            harmless: rule.harmless,
        })
        .collect()
}

fn rule(path: &'static str, reason: &str, harmless: bool) -> Rule {
    Rule {
        path,
        reason: reason.to_owned(),
        harmless,
    }
}

fn passwd(old: &Ignition, new: &Ignition) -> Vec<Rule> {
    const USERS: &str = "spec.config.passwd.users";
    let mut rules = Vec::new();
    if old.passwd.groups != new.passwd.groups {
        let reason = "invalid passwd change(s): ignition Passwd Groups section contains changes";
        rules.push(rule("spec.config.passwd.groups", reason, true));
    }
    let (before, after) = (&old.passwd.users, &new.passwd.users);
    let Some(last) = after.last().filter(|_| before != after) else {
        return rules;
    };
    if after.iter().any(|user| user.name != "core") {
        let reason = "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user";
        rules.push(rule(USERS, reason, false));
    } else if !last.has_only_credentials() {
        rules.push(rule(
            USERS,
            "invalid passwd change(s): SSH keys and password hash are not reconcilable",
            false,
        ));
    } else if last.ssh_authorized_keys.is_empty()
        && last.password_hash.as_deref().unwrap_or_default().is_empty()
    {
        let reason = "invalid passwd change(s): ignition passwd user section contains unsupported changes: \
                      user must be core and have 1 or more sshKeys";
        rules.push(rule(USERS, reason, false));
    }
    rules
}

fn sections(old: &Ignition, new: &Ignition) -> Vec<Rule> {
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
            rule(
                path,
                &format!("ignition {name} section contains changes"),
                true,
            )
        })
        .collect()
}

fn files(new: &Ignition) -> Vec<Rule> {
    let mut rules = Vec::new();
    for file in &new.storage.files {
        if !file.append.is_empty() {
            rules.push(rule(
                "spec.config.storage.files",
                &format!("ignition file {} includes append", file.path),
                false,
            ));
        }
        if file.path == FORCE_FILE {
            rules.push(rule(
                "spec.config.storage.files",
                &format!("cannot create {FORCE_FILE} via Ignition"),
                false,
            ));
        }
    }
    rules
}
