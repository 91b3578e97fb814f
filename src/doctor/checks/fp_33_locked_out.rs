//! FP-33: no login works.

use std::collections::BTreeSet;

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::node::Records;
use crate::node::login::Login;
use crate::paths;
use crate::text::count;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-33",
    title: "no login is possible",
    looks_at: "keys and passwords of core, the modes that sshd requires, sshd's settings",
    explain: "Only core can log in to a CoreOS node: with a key over ssh, or with a password at the console if a config \
gives one. sshd ignores a key file that others can write, or that is in a directory that others can write: \
one wrong mode locks out like a missing key.\n\n\
mco-rescue apply writes the keys of the config with owner, mode and label. Without any login: boot another medium, or \
init=/bin/bash at the boot menu, and run it with --root on the disk. Any config with keys works: mco-rescue --root \
/mnt apply CONFIG. Without a config, mco-rescue apply --key FILE adds one public key for core, also with --root.\n\n\
After adding a key by hand: chown -R core: /home/core/.ssh, chmod 0700 and 0600, restorecon -RF.",
    judge: judge_locked_out,
};

fn judge_locked_out(evidence: &DoctorEvidence) -> CheckVerdict {
    let login = match evidence.upkeep.login.seen() {
        Ok(login) => login,
        Err(why) => return CheckVerdict::unseen(format!("keys and passwords: {why}")),
    };
    let refused = login.files.iter().filter(|file| file.keys > 0);
    let refused = refused.filter(|file| file.refused.is_some());
    let taken = login.files.iter().filter(|file| file.refused.is_none());
    let keys: usize = taken.map(|file| file.keys).sum();
    let locked = keys == 0 || login.no_keys.is_some();
    let verdict = match &login.passwords {
        None if locked => {
            CheckVerdict::unseen("passwords: /etc/shadow cannot be read: permission denied")
        }
        _ if login.unread > 0 => CheckVerdict::unseen(format!(
            "{} in /{}: only the first ones are read",
            count(login.unread, "more file"),
            paths::CORE_KEYS_DIR
        )),
        _ => CheckVerdict::healthy(),
    };
    match locked {
        true => verdict.and([out(evidence, login)]),
        false => verdict.and(
            (refused.clone().count() > 0)
                .then(|| partly(evidence, login, refused.filter_map(fact_of_file))),
        ),
    }
}

fn fact_of_file(file: &crate::node::login::KeyFile) -> Option<Fact> {
    let why = file.refused.as_ref()?;
    Some(Fact::new(&file.path, format!("sshd ignores it: {why}")))
}

fn partly(
    evidence: &DoctorEvidence,
    login: &Login,
    facts: impl Iterator<Item = Fact>,
) -> DoctorFinding {
    let means = "The keys in these files do not work. Other keys do.";
    DoctorFinding::new(
        CheckSeverity::Warning,
        "sshd ignores a file with keys",
        means,
    )
    .seen_all(facts)
    .daemon(Some("Permission denied (publickey)".to_owned()))
    .next(narrowed(evidence, login))
    .fixed_by(put_right(login))
}

/// Returns the changes of owners and modes after which sshd takes every file that has keys; none if core is unknown.
fn put_right(login: &Login) -> Vec<FixChange> {
    let mut changes: Vec<FixChange> = Vec::new();
    let refused = login.files.iter().filter(|file| file.keys > 0);
    let mut seen = BTreeSet::new();
    for wrong in refused.flat_map(|file| &file.wrong) {
        // A directory is above many files.
        if !seen.insert(&wrong.path) {
            continue;
        }
        let owner = wrong.foreign.map(|_| login.core);
        let Some(owner) = owner.map_or(Some(None), |core| core.map(Some)) else {
            return Vec::new();
        };
        let path = &wrong.path;
        let owner = owner.map(|(uid, gid)| FixChange::set_owner(path, uid, gid));
        let mode = wrong
            .open
            .map(|mode| FixChange::set_mode(path, mode & !0o022));
        changes.extend(owner.into_iter().chain(mode));
    }
    changes
}

/// Returns the command that restores owners, else modes, that sshd accepts.
fn narrowed(evidence: &DoctorEvidence, login: &Login) -> String {
    let home = evidence.path(paths::CORE_HOME);
    let mut refused = login.files.iter().filter_map(|file| file.refused.as_ref());
    match refused.any(|why| why.contains(" belongs to ")) {
        true => format!("chown -R --reference={home} {home}/.ssh"),
        false => format!("chmod -R go-w {home}/.ssh; chmod go-w {home}"),
    }
}

/// Counts the keys that the recorded config gives to core.
fn wanted(evidence: &DoctorEvidence) -> usize {
    let config = evidence.records.get().and_then(Records::recorded);
    let users = config.map(|config| config.ignition.passwd.users.as_slice());
    let users = users.unwrap_or_default().iter();
    users.map(|user| user.ssh_authorized_keys.len()).sum()
}

fn out(evidence: &DoctorEvidence, login: &Login) -> DoctorFinding {
    let console = login
        .passwords
        .as_ref()
        .is_some_and(|users| !users.is_empty());
    let wanted = wanted(evidence);
    let intended = wanted == 0 && login.files.iter().all(|file| file.keys == 0);
    let severity = match (console, intended) {
        // The config contains no key, so it was installed like this.
        (_, true) => CheckSeverity::Notice,
        (true, false) => CheckSeverity::Warning,
        // There may be a password that cannot be read.
        (false, false) if login.passwords.is_none() => CheckSeverity::Warning,
        (false, false) => CheckSeverity::Critical,
    };
    let what = match console {
        true => "no login works over ssh, only at the console",
        false if login.passwords.is_none() => "no login works over ssh",
        false => "no login works: no valid key, no password",
    };
    let means = match console {
        true => "Without the API the console is the only access.",
        false => "Without the API the only access is another boot medium.",
    };
    let mut finding = DoctorFinding::new(severity, what, means);
    finding = match &login.no_keys {
        Some(file) => finding.seen(file, "PubkeyAuthentication no"),
        None => finding,
    };
    if login.files.is_empty() {
        finding = finding.seen(format!("/{}", paths::CORE_SSH), "no file with keys");
    }
    let files = login.files.iter().map(|file| match fact_of_file(file) {
        Some(fact) => fact,
        None => Fact::new(&file.path, count(file.keys, "key")),
    });
    let finding = finding
        .seen_all(files)
        .seen(
            "the recorded config",
            format!("gives {} to core", count(wanted, "key")),
        )
        .daemon((!intended).then(|| "Permission denied (publickey)".to_owned()));
    let refused = login.files.iter().any(|file| file.refused.is_some());
    let finding = match &login.no_keys {
        Some(file) => finding.next(format!(
            "grep -n PubkeyAuthentication {}",
            evidence.path(file)
        )),
        None if refused => finding
            .next(narrowed(evidence, login))
            .fixed_by(put_right(login)),
        None => finding,
    };
    let finding = match wanted {
        0 if refused || login.no_keys.is_some() => finding,
        0 => finding.next(evidence.command("apply CONFIG")),
        _ => finding.next(evidence.command("apply")),
    };
    match login.no_keys {
        // sshd would not read it.
        Some(_) => finding,
        None => finding.next(evidence.command("apply --key FILE")),
    }
}
