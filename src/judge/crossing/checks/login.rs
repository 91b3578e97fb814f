//! Does the image's sshd still let core log in?

use crate::formats::sshd::Certainty;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{KEYS_MIGRATION, NextLogin, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("login", judge);

/// First Enterprise Linux release whose sshd refuses host keys that a group may read.
const STRICT_KEYS: u32 = 10;

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let logins = match &node.next_login {
        Ok(Some(logins)) => logins,
        Ok(None) => return Vec::new(),
        Err(why) => {
            let what = format!("the settings of sshd cannot be read: {why}");
            return vec![CrossingFinding::unknown("sshd", what)];
        }
    };
    let keys = judge_host_keys(target, logins);
    judge_settings(logins).into_iter().chain(keys).collect()
}

fn judge_settings(logins: &NextLogin) -> Option<CrossingFinding> {
    let (before, after) = (&logins.before, &logins.after);
    if before.over_ssh() == Certainty::No || after.over_ssh() != Certainty::No {
        return None;
    }
    let severity = if after.at_console() || after.root_has_keys {
        CrossingSeverity::Warning
    } else {
        CrossingSeverity::Inhibitor
    };
    let mut refused = after.files.iter().filter(|file| file.keys > 0);
    let refused = refused.find_map(|file| Some((file.path.clone(), file.refused.clone()?)));
    let cause = after.kept_out.first();
    let cause = cause.map(|cause| (cause.place.clone(), cause.said.clone()));
    let (place, said) = cause.or(refused)?;
    let what = "with this node's sshd settings, core can no longer log in with the image";
    Some(
        CrossingFinding::new(severity, "sshd", what)
            .with_evidence(place, said)
            .with_prevented("Permission denied (publickey)")
            .next("A /etc/ssh/sshd_config of a MachineConfig needs the line Include /etc/ssh/sshd_config.d/*.conf before all others.")
            .next("mco-rescue doctor FP-33"),
    )
}

fn judge_host_keys(target: &Target, logins: &NextLogin) -> Option<CrossingFinding> {
    let is_strict = target
        .os_release
        .el_major()
        .is_some_and(|major| major >= STRICT_KEYS);
    let is_cured = target.tree.exists(KEYS_MIGRATION) && !logins.migrated;
    let first = logins.group_keys.first()?;
    if !is_strict || is_cured {
        return None;
    }
    let what = "sshd of the image uses no key of the host that a group may read, and this node has no other";
    let keys: Vec<&str> = logins.group_keys.iter().map(String::as_str).collect();
    Some(
        CrossingFinding::inhibitor("keys of the host", what)
            .with_evidence(first, "its group may read it")
            .with_prevented(format!("Permissions 0640 for '{first}' are too open."))
            .next(format!("chmod 0600 {}", keys.join(" "))),
    )
}
