//! Everything that can keep a user from logging in over ssh with any key: settings, host keys, the unit, the account.

use super::Person;
use crate::formats::sshd::{Certainty, LoginObstacle, SshdConfig, SshdLine};
use crate::host::root::{RootError, RootPath};
use crate::node::account_files::AccountFiles;
use crate::node::view::{FileKind, NodeView};

/// Host keys that are used if no setting names others. They are generated at the start of sshd if they are missing.
const HOST_KEYS: [&str; 3] = [
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
];
/// The unit file of sshd in `/etc`, where an admin or a config may mask it.
const UNIT: &str = "etc/systemd/system/sshd.service";
/// sshd started by a connection.
const SOCKET: &str = "etc/systemd/system/sockets.target.wants/sshd.socket";
/// If this file exists, only root may log in.
const NOLOGIN: &str = "etc/nologin";
/// A shell that every system has.
const BASH: &str = "usr/bin/bash";
/// Programs that are used as a shell but give none.
const NO_SHELL: [&str; 3] = ["false", "nologin", "true"];

/// The answer about a user.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Reasons why the user cannot log in.
    pub(super) kept_out: Vec<LoginObstacle>,
    /// Reasons why a key alone is not enough.
    pub(super) no_keys: Vec<LoginObstacle>,
    /// Possible reasons.
    pub(super) unsure: Vec<LoginObstacle>,
    /// sshd asks for a password and accepts it.
    pub(super) takes_password: bool,
}

impl Gates {
    fn add_answer(&mut self, answer: Certainty, cause: impl FnOnce() -> LoginObstacle) {
        match answer {
            Certainty::Yes => self.kept_out.push(cause()),
            Certainty::Unknown => self.unsure.push(cause()),
            Certainty::No => {}
        }
    }
}

/// Judges everything except keys.
pub(super) fn judge_gates(
    view: &NodeView<'_>,
    config: &SshdConfig,
    accounts: &AccountFiles,
    person: &Person,
    has_password: bool,
) -> Result<Gates, RootError> {
    let mut gates = Gates::default();
    for fault in config.faults.iter().take(1) {
        let said = format!("sshd refuses it: {}", fault.said);
        gates.kept_out.push(LoginObstacle::new(&fault.place, said));
    }
    let unread = config.unread.iter();
    gates
        .unsure
        .extend(unread.map(|why| LoginObstacle::new(why.to_string(), "not read")));
    judge_service(view, &mut gates)?;
    judge_host_keys(view, config, accounts, &mut gates)?;
    judge_account(view, config, person, &mut gates)?;
    let (denied, unsure) = person.sshd.find_denials(config);
    gates.kept_out.extend(denied);
    gates.unsure.extend(unsure);
    judge_session(config, person, &mut gates);
    judge_methods(config, person, has_password, &mut gates);
    Ok(gates)
}

fn judge_service(view: &NodeView<'_>, gates: &mut Gates) -> Result<(), RootError> {
    let unit = RootPath::fixed(UNIT);
    let link = view.read_link(&unit)?;
    let is_empty = || Ok(view.read(&unit)?.is_some_and(|bytes| bytes.is_empty()));
    let masked = match link {
        Some(target) => target == "/dev/null",
        None => is_empty()?,
    };
    if masked && !view.exists(&RootPath::fixed(SOCKET))? {
        let cause = LoginObstacle::new(unit.to_string(), "masked: sshd does not start");
        gates.kept_out.push(cause);
    }
    Ok(())
}

/// Judges the host keys. sshd ignores host keys that others may read, and exits if none is left.
fn judge_host_keys(
    view: &NodeView<'_>,
    config: &SshdConfig,
    accounts: &AccountFiles,
    gates: &mut Gates,
) -> Result<(), RootError> {
    let lines = config.lines.iter().filter(|line| line.keyword == "hostkey");
    let named: Vec<&str> = lines
        .filter_map(|line| line.arguments.first().map(String::as_str))
        .collect();
    let mut lines = config.lines.iter();
    let agent = lines.any(|line| line.keyword == "hostkeyagent");
    let all = match named.as_slice() {
        [] => HOST_KEYS.as_slice(),
        named => named,
    };
    if agent || config.is_missing {
        return Ok(());
    }
    let mut first_fault: Option<LoginObstacle> = None;
    for path in all {
        let Some((fault, of_mode)) = find_key_fault(view, accounts, path)? else {
            return Ok(());
        };
        first_fault.get_or_insert_with(|| LoginObstacle {
            of_mode,
            ..LoginObstacle::new(
                *path,
                format!("{fault}; no other key of the host can be used"),
            )
        });
    }
    gates.kept_out.extend(first_fault);
    Ok(())
}

/// Returns why sshd does not use a key of the host, and whether that is the mode; `None` if it uses or makes it.
fn find_key_fault(
    view: &NodeView<'_>,
    accounts: &AccountFiles,
    path: &str,
) -> Result<Option<(String, bool)>, RootError> {
    let Ok(at) = RootPath::parse(path) else {
        return Ok(None);
    };
    let Some(status) = view
        .status(&at)?
        .filter(|status| status.kind == FileKind::File)
    else {
        // The unit sshd-keygen makes them.
        let is_made = HOST_KEYS.contains(&path);
        return Ok((!is_made).then(|| ("is missing".to_owned(), false)));
    };
    let mut groups = accounts.groups().into_iter();
    let mut group = || groups.find(|one| one.gid == status.gid);
    let is_for_keysign =
        status.mode & 0o077 == 0o040 && group().is_some_and(|group| group.name == "ssh_keys");
    let is_open = status.uid == 0 && status.mode & 0o077 != 0 && !is_for_keysign;
    let fault = || format!("has mode {:04o}, and sshd uses no such key", status.mode);
    Ok(is_open.then(|| (fault(), true)))
}

fn judge_account(
    view: &NodeView<'_>,
    config: &SshdConfig,
    person: &Person,
    gates: &mut Gates,
) -> Result<(), RootError> {
    let name = &person.sshd.name;
    let nologin = RootPath::fixed(NOLOGIN);
    if name != "root" && view.exists(&nologin)? {
        let said = "exists: only root may log in";
        gates
            .kept_out
            .push(LoginObstacle::new(nologin.to_string(), said));
    }
    let shell = person.entry.shell.as_str();
    let place = format!("/etc/passwd: {name}");
    let program = shell.rsplit('/').next().unwrap_or_default();
    if NO_SHELL.contains(&program) {
        gates
            .kept_out
            .push(LoginObstacle::new(&place, format!("the shell is {shell}")));
    } else if let Ok(shell) = RootPath::parse(shell)
        && view.exists(&RootPath::fixed(BASH))?
        && view.status(&shell)?.is_none()
    {
        gates.kept_out.push(LoginObstacle::new(
            &place,
            format!("the shell {shell} is missing"),
        ));
    }
    let (pam, _) = person
        .sshd
        .ask_value(config, "usepam", "no", |word| word == "yes");
    let is_locked = person
        .password
        .as_ref()
        .is_some_and(|hash| hash.starts_with('!'));
    if is_locked && pam == Certainty::No && !config.is_missing && config.unread.is_empty() {
        let said = "locked with !, and UsePAM is not on: sshd refuses locked accounts";
        gates
            .kept_out
            .push(LoginObstacle::new(format!("/etc/shadow: {name}"), said));
    }
    Ok(())
}

/// Judges settings that prevent a shell or a session.
fn judge_session(config: &SshdConfig, person: &Person, gates: &mut Gates) {
    let mut refuse = |keyword: &str, default: &str, refuses: &dyn Fn(&str) -> bool| {
        let (answer, line) = person.sshd.ask_value(config, keyword, default, refuses);
        if let Some(line) = line {
            gates.add_answer(answer, || LoginObstacle::of_line(line));
        }
    };
    refuse("refuseconnection", "no", &|word| word == "yes");
    refuse("forcecommand", "none", &|word| {
        let program = word.rsplit('/').next().unwrap_or_default();
        NO_SHELL.contains(&program) || program == "internal-sftp" || program == "sftp-server"
    });
    if person.sshd.name == "root" {
        refuse("permitrootlogin", "prohibit-password", &|word| {
            word == "no" || word == "forced-commands-only"
        });
    }
}

/// Judges `PubkeyAuthentication` and the lists of `AuthenticationMethods`.
fn judge_methods(config: &SshdConfig, person: &Person, has_password: bool, gates: &mut Gates) {
    let ask = |keyword: &str, default: &str| {
        let is_on = |word: &str| word == "yes";
        person.sshd.ask_value(config, keyword, default, is_on)
    };
    let (by_key, line) = ask("pubkeyauthentication", "yes");
    match (by_key, line) {
        (Certainty::No, Some(line)) => gates.no_keys.push(LoginObstacle::of_line(line)),
        (Certainty::Unknown, Some(line)) => gates.unsure.push(LoginObstacle::of_line(line)),
        _ => {}
    }
    let (password, _) = ask("passwordauthentication", "yes");
    let (interactive, _) = ask("kbdinteractiveauthentication", "yes");
    let password = password != Certainty::No;
    // Only PAM asks interactive questions.
    let (pam, _) = ask("usepam", "no");
    let interactive = interactive != Certainty::No && pam != Certainty::No;
    gates.takes_password = !config.is_missing && (password || interactive);
    let methods = Methods {
        password: password && has_password,
        interactive,
    };
    let all = person.sshd.possible_values(config, "authenticationmethods");
    let answer = |line: &SshdLine| methods.let_in(&line.arguments);
    let answers = all
        .iter()
        .map(|one| one.line.map_or(Certainty::Yes, answer));
    let answers: Vec<Certainty> = answers.collect();
    let line = all.iter().find_map(|one| one.line);
    let Some(line) = line else {
        return;
    };
    // Passwords alone are sufficient only if the lines say so.
    let alone = all.iter().all(|one| {
        one.line.is_none_or(|line| {
            let is_password =
                |list: &String| list == "password" || list.starts_with("keyboard-interactive");
            line.arguments
                .iter()
                .any(|list| is_password(list) || list == "any")
        })
    });
    gates.takes_password = gates.takes_password && alone;
    if answers.iter().all(|answer| *answer == Certainty::No) {
        gates.no_keys.push(LoginObstacle::of_line(line));
    } else if answers.iter().any(|answer| *answer != Certainty::Yes) {
        gates.unsure.push(LoginObstacle::of_line(line));
    }
}

/// Ways to authenticate other than a key.
struct Methods {
    password: bool,
    interactive: bool,
}

impl Methods {
    /// Returns whether a user with a key can satisfy one of these lists.
    fn let_in(&self, lists: &[String]) -> Certainty {
        let answers: Vec<Certainty> = lists.iter().map(|list| self.let_in_by(list)).collect();
        match () {
            () if answers.contains(&Certainty::Yes) => Certainty::Yes,
            () if answers.contains(&Certainty::Unknown) => Certainty::Unknown,
            () => Certainty::No,
        }
    }

    fn let_in_by(&self, list: &str) -> Certainty {
        let mut answer = Certainty::Yes;
        let mut keys = 0;
        for method in list.split(',') {
            match method.split(':').next().unwrap_or_default() {
                "any" => return Certainty::Yes,
                "publickey" => keys += 1,
                "password" if self.password => {}
                "password" => return Certainty::No,
                "keyboard-interactive" if !self.interactive => return Certainty::No,
                _ => answer = Certainty::Unknown,
            }
        }
        match keys {
            0 => Certainty::No,
            1 => answer,
            // The list requires several different keys.
            _ => Certainty::Unknown,
        }
    }
}
