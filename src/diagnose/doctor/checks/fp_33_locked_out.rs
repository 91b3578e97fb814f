//! FP-33: no login works.

use std::collections::BTreeSet;

use crate::base::paths;
use crate::base::ssh_key::is_readable_key;
use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::formats::sshd::{Certainty, LoginObstacle};
use crate::node::Recorded;
use crate::node::login::{CoreUser, KeyFile, Login, WrongAttributes};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-33",
    title: "no login is possible",
    looks_at: "keys and passwords of core, owners and modes on the way, sshd's settings and host keys",
    explain: "Only core can log in to a CoreOS node: with a key over ssh, or with a password at the console if a config \
sets one. sshd ignores a key file that others can write or that core cannot read, and every key file below such a directory: \
one wrong mode locks core out like a missing key.\n\n\
The keys of a config are in .ssh/authorized_keys.d. sshd reads them through a program, which a drop-in of the OS names: \
/etc/ssh/sshd_config.d/40-ssh-key-dir.conf. Without the line Include /etc/ssh/sshd_config.d/*.conf in sshd_config, or with another \
AuthorizedKeysCommand, sshd reads none of them. For most settings the first value wins, and a value in a matching Match block \
overrides those outside. RequiredRSASize refuses shorter RSA keys, and PubkeyAcceptedAlgorithms other types. AllowUsers and AllowGroups lock out every user that they do not name.\n\n\
A setting that depends on the connection, such as Match Address, is listed under \"Not checked\". On the node, sshd itself \
shows the settings in force: sshd -T -C user=core,host=HOST,addr=ADDRESS.\n\n\
mco-rescue apply writes the keys of the config with owner, mode and label. If no login works, boot another medium, or add \
init=/bin/bash at the boot menu, and run it with --root on the disk. Any config with keys works: mco-rescue --root \
/mnt apply CONFIG. Without a config, mco-rescue apply --key FILE adds one public key for core, also with --root; it creates core \
if that user is missing.\n\n\
After adding a key by hand: chown -R core: /home/core/.ssh, chmod 0700 and 0600, restorecon -RF.",
    judge: judge_locked_out,
};

fn judge_locked_out(evidence: &DoctorEvidence) -> CheckVerdict {
    let login = match evidence.upkeep.login.seen() {
        Ok(login) => login,
        Err(why) => return CheckVerdict::not_seen(format!("keys and passwords: {why}")),
    };
    let refused = login.files.iter().filter(|file| file.keys > 0);
    let refused = refused.filter(|file| file.refused.is_some());
    let over_ssh = login.over_ssh();
    let mut verdict = match &login.passwords {
        None if over_ssh == Certainty::No => {
            let why = login.no_shadow.unwrap_or("is not known");
            CheckVerdict::not_seen(format!("passwords: /{} {why}", paths::SHADOW))
        }
        _ if login.unread > 0 => CheckVerdict::not_seen(format!(
            "{} in /{}: only the first ones are read",
            count_noun(login.unread, "more file"),
            paths::CORE_KEYS_DIR
        )),
        _ => CheckVerdict::healthy(),
    };
    for cause in &login.unsure {
        let why = format!("if sshd lets core in: {}: {}", cause.place, cause.said);
        verdict = verdict.and_unseen(why);
    }
    if login.accepted_keys() == 0 {
        for cause in &login.other_sources {
            let why = format!("keys from elsewhere: {}: {}", cause.place, cause.said);
            verdict = verdict.and_unseen(why);
        }
    }
    if let (Certainty::No, Some(why)) = (over_ssh, &login.root_unseen) {
        verdict = verdict.and_unseen(format!("keys of root: {why}"));
    }
    match over_ssh {
        Certainty::No => verdict.and_findings([report_lockout(evidence, login)]),
        Certainty::Yes | Certainty::Unknown => verdict.and_findings(
            (refused.clone().count() > 0)
                .then(|| report_partial(evidence, login, refused.filter_map(fact_of_file))),
        ),
    }
}

fn fact_of_file(file: &KeyFile) -> Option<Fact> {
    let why = file.refused.as_ref()?;
    Some(Fact::new(&file.path, format!("sshd ignores it: {why}")))
}

fn report_partial(
    evidence: &DoctorEvidence,
    login: &Login,
    facts: impl Iterator<Item = Fact>,
) -> DoctorFinding {
    let means = "The keys in these files do not work. Other keys do.";
    let finding = DoctorFinding::warning("sshd ignores a file with keys", means)
        .seen_all(facts)
        .with_message(Some(messages::PUBLICKEY.to_owned()));
    put_right(evidence, login, finding)
}

/// Adds the fix, and the commands after which sshd accepts the files that contain keys.
fn put_right(evidence: &DoctorEvidence, login: &Login, finding: DoctorFinding) -> DoctorFinding {
    let refused = || {
        let files = login.files.iter().filter(|file| file.keys > 0);
        files.filter(|file| file.refused.is_some())
    };
    let finding = if refused().any(|file| !file.wrong.is_empty()) {
        finding
            .next(narrow_command(evidence, login))
            .fixed_by(find_fixes(login))
    } else {
        finding
    };
    if refused().any(|file| file.wrong.is_empty()) {
        finding.next(command_for_settings(evidence))
    } else {
        finding
    }
}

/// Returns the command that shows the settings that apply.
fn command_for_settings(evidence: &DoctorEvidence) -> String {
    let words = "Include|Match|Allow|Deny|Authorized|Pubkey|AuthenticationMethods";
    let (file, folder) = (
        evidence.shell_path("/etc/ssh/sshd_config"),
        evidence.shell_path("/etc/ssh/sshd_config.d"),
    );
    format!("grep -rniE '^ *({words})' {file} {folder}")
}

/// Returns the changes of owners and modes after which sshd accepts every file that contains keys; none if core is unknown.
fn find_fixes(login: &Login) -> Vec<FixChange> {
    let mut changes: Vec<FixChange> = Vec::new();
    let refused = login.files.iter().filter(|file| file.keys > 0);
    let mut seen = BTreeSet::new();
    for wrong in refused.flat_map(|file| &file.wrong) {
        // A directory may contain several of the files.
        if !seen.insert(&wrong.path) {
            continue;
        }
        let is_own = wrong.path.starts_with(&format!("/{}", paths::CORE_HOME));
        let path = &wrong.path;
        let owner = match (
            wrong.foreign.is_some() || wrong.closed.is_some(),
            login.core,
        ) {
            _ if !is_own => return Vec::new(),
            (true, CoreUser::Present(uid, gid)) => Some(FixChange::set_owner(path, uid, gid)),
            (true, CoreUser::Missing | CoreUser::Unknown) => return Vec::new(),
            (false, _) => None,
        };
        let mode = wrong
            .open
            .map(|mode| FixChange::set_mode(path, mode & !0o022));
        changes.extend(owner.into_iter().chain(mode));
    }
    changes
}

/// Returns the command that restores owners, or else modes, that sshd accepts.
fn narrow_command(evidence: &DoctorEvidence, login: &Login) -> String {
    let home = evidence.shell_path(paths::CORE_HOME);
    let refused = || login.files.iter().flat_map(|file| &file.wrong);
    let is_own =
        |wrong: &&WrongAttributes| wrong.path.starts_with(&format!("/{}", paths::CORE_HOME));
    if let Some(outside) = refused().find(|wrong| !is_own(wrong)) {
        let place = evidence.shell_path(&outside.path);
        return match outside.closed {
            Some(_) => format!("chmod a+rx {place}"),
            None => format!("chown root: {place}; chmod go-w {place}"),
        };
    }
    let of_home = refused().any(|wrong| wrong.path == format!("/{}", paths::CORE_HOME));
    if refused().any(|wrong| wrong.foreign.is_some() || wrong.closed.is_some()) {
        match login.core {
            CoreUser::Present(uid, gid) if of_home => {
                format!("chown -R {uid}:{gid} {home}/.ssh; chown {uid}:{gid} {home}")
            }
            _ => format!("chown -R --reference={home} {home}/.ssh"),
        }
    } else {
        format!("chmod -R go-w {home}/.ssh; chmod go-w {home}")
    }
}

/// The keys that a config gives to core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WantedKeys {
    readable: usize,
    malformed: usize,
}

impl WantedKeys {
    /// Returns true if the config has no key at all, not even a malformed one.
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Returns the number of keys, and of the lines that sshd skips: `1 key, and 2 lines that sshd cannot read as keys`.
fn describe_keys(readable: usize, malformed: usize) -> String {
    let lines = || count_noun(malformed, "line");
    match (readable, malformed) {
        (_, 0) => count_noun(readable, "key"),
        (0, _) => format!("no key: sshd cannot read {}", lines()),
        (_, _) => format!(
            "{}; sshd cannot read {}",
            count_noun(readable, "key"),
            lines()
        ),
    }
}

/// Counts the keys that the recorded config gives to core.
///
/// # Errors
/// The reason why there is no config to count in.
fn count_wanted(evidence: &DoctorEvidence) -> Result<WantedKeys, &'static str> {
    let records = evidence.records.get();
    let records = records.ok_or("it cannot be read, so what it gives to core is not known")?;
    let config = records
        .recorded_config()
        .ok_or(match &records.current_config {
            Recorded::Broken(_) => "it cannot be read, so what it gives to core is not known",
            Recorded::Missing | Recorded::Present(_) => {
                "there is none, so what core is meant to have is not known"
            }
        })?;
    let users = config.ignition.passwd.users.iter();
    let keys = users.flat_map(|user| &user.ssh_authorized_keys);
    let (readable, malformed): (Vec<&String>, Vec<&String>) =
        keys.partition(|key| is_readable_key(key));
    Ok(WantedKeys {
        readable: readable.len(),
        malformed: malformed.len(),
    })
}

fn report_lockout(evidence: &DoctorEvidence, login: &Login) -> DoctorFinding {
    let console = login.at_console();
    let wanted = count_wanted(evidence);
    let is_bare = login
        .files
        .iter()
        .all(|file| file.keys == 0 && file.malformed == 0);
    let records = evidence.records.get();
    let is_missing = records.is_some_and(|all| matches!(all.current_config, Recorded::Missing));
    // Without the kubelet's unit, this root has not received a config yet.
    let has_no_kubelet = evidence.upkeep.has_kubelet_unit.get() == Some(&false);
    let is_new = wanted.is_err() && is_missing && has_no_kubelet;
    let intended = (wanted.is_ok_and(WantedKeys::is_none) || is_new) && is_bare;
    let severity = match console || login.root_has_keys {
        // The config contains no key, so the node was installed that way.
        _ if intended => CheckSeverity::Notice,
        true if wanted.is_err() && is_bare => CheckSeverity::Notice,
        true => CheckSeverity::Warning,
        // There may be a password that cannot be read, or a config without a key.
        false if login.passwords.is_none() || wanted.is_err() && is_bare => CheckSeverity::Warning,
        false => CheckSeverity::Critical,
    };
    let (what, means) = describe_access(login, console);

    let mut finding = DoctorFinding::new(severity, what, means);
    let causes = login.kept_out.iter();
    finding = finding.seen_all(causes.map(|cause| Fact::new(&cause.place, &cause.said)));
    if let (Some(why), Some(_)) = (login.no_shadow, &login.passwords) {
        finding = finding.with_evidence(format!("/{}", paths::SHADOW), why);
    }
    if login.files.is_empty() {
        finding = finding.with_evidence(format!("/{}", paths::CORE_SSH), "no file with keys");
    }
    let files = login.files.iter().map(|file| match fact_of_file(file) {
        Some(fact) => fact,
        None => Fact::new(&file.path, describe_keys(file.keys, file.malformed)),
    });
    let finding = finding
        .seen_all(files)
        .with_evidence(
            "the recorded config",
            match wanted {
                Ok(keys) => format!(
                    "gives {} to core",
                    describe_keys(keys.readable, keys.malformed)
                ),
                Err(why) => why.to_owned(),
            },
        )
        .with_message((!intended).then(|| messages::PUBLICKEY.to_owned()));
    match login.kept_out.first() {
        _ if login.core == CoreUser::Missing => create_core(evidence, wanted, finding),
        Some(cause) => change_cause(evidence, cause, finding),
        None => bring_keys(evidence, login, wanted, finding),
    }
}

/// Adds the commands that create the user, and then install the keys of the config.
fn create_core(
    evidence: &DoctorEvidence,
    wanted: Result<WantedKeys, &str>,
    finding: DoctorFinding,
) -> DoctorFinding {
    let finding = finding.next(evidence.own_command("apply --key FILE"));
    match wanted {
        Ok(keys) if keys.readable > 0 => finding.next(evidence.own_command("apply")),
        Ok(_) | Err(_) => finding,
    }
}

/// Returns which login still works, and what that means.
fn describe_access(login: &Login, console: bool) -> (&'static str, &'static str) {
    let what = match console {
        true if login.core == CoreUser::Missing => {
            "the user core is missing; only root can log in, at the console"
        }
        _ if login.core == CoreUser::Missing && login.root_has_keys => {
            "the user core is missing; only root can log in"
        }
        _ if login.core == CoreUser::Missing => "no login works: the user core is missing",
        _ if login.root_has_keys => "core cannot log in over ssh, only root can",
        true => "no login works over ssh, only at the console",
        false if login.passwords.is_none() => "no login works over ssh",
        false if !login.kept_out.is_empty() => "no login works: sshd keeps core out, no password",
        false => "no login works: no valid key, no password",
    };
    let means = match console {
        _ if login.root_has_keys => "A key of root's is the only access over ssh.",
        true => "Without the API the console is the only access.",
        false => "Without the API the only access is another boot medium.",
    };
    (what, means)
}

/// Adds the commands against the setting that blocks every key.
fn change_cause(
    evidence: &DoctorEvidence,
    cause: &LoginObstacle,
    finding: DoctorFinding,
) -> DoctorFinding {
    let (file, line) = match cause.place.rsplit_once(':') {
        Some((file, line)) if line.parse::<usize>().is_ok() => (file, Some(line)),
        Some((file, _)) => (file, None),
        None => (cause.place.as_str(), None),
    };
    let place = evidence.shell_path(file);
    let command = match (file, line) {
        (_, Some(line)) => format!("vi +{line} {place}"),
        ("/etc/systemd/system/sshd.service" | "/etc/nologin", None) => format!("rm {place}"),
        ("/etc/passwd", None) => format!("vi {place}"),
        ("/etc/shadow", None) => format!("sed -i 's/^core:!*/core:*/' {place}"),
        (_, None) if cause.of_mode => format!("chmod 0600 {place}"),
        (_, None) => format!("vi {place}"),
    };
    let finding = finding.next(command);
    if evidence.live {
        finding.next("sshd -t && systemctl restart sshd")
    } else {
        finding
    }
}

/// Adds the commands that install keys that sshd accepts.
fn bring_keys(
    evidence: &DoctorEvidence,
    login: &Login,
    wanted: Result<WantedKeys, &str>,
    finding: DoctorFinding,
) -> DoctorFinding {
    let mut files = login.files.iter().filter(|file| file.refused.is_some());
    let refused = files.clone().next().is_some();
    // A key in a file that sshd does not read is useless, whatever its source.
    let by_settings = files.any(|file| file.keys > 0 && file.wrong.is_empty());
    let finding = if refused {
        put_right(evidence, login, finding)
    } else {
        finding
    };
    if by_settings {
        return finding.next(evidence.own_command("doctor FP-33"));
    }
    let finding = match wanted {
        Ok(keys) if keys.readable > 0 => finding.next(evidence.own_command("apply")),
        Ok(_) | Err(_) if refused => finding,
        Ok(_) | Err(_) => finding.next(evidence.own_command("apply CONFIG")),
    };
    finding.next(evidence.own_command("apply --key FILE"))
}
