//! FP-66: users of the OS are missing, or their files belong to another id.

use crate::base::invocation::shell_word;
use crate::base::order::StableOrder;
use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::formats::systemd::sysusers::WantedAccount;
use crate::node::os_accounts::{ForeignState, OsAccounts, StopKind, SysusersStop};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-66",
    title: "users of the OS are missing or have another number",
    looks_at: "sysusers.d against passwd and group in /etc and /usr/lib, and owners of state directories",
    explain: "Services that do not run as root need their users. The OS lists them in /usr/lib/passwd (nss-altfiles), and \
systemd-sysusers makes the missing ones of sysusers.d at the first boot of each new OS. It writes all of them or \
none: a line in /etc/gshadow for a group that /etc/group lacks, an immutable file, or a link or directory in place of \
the lock file /etc/.pwd.lock stops it. Without the user openvswitch, Open vSwitch does not start, and the node has no network.\n\n\
A line of /etc/passwd overrides the one of /usr/lib/passwd. If their numbers differ, directories of the OS can belong to a \
number that the user no longer has: ovsdb-server then cannot open /etc/openvswitch/conf.db. Give the directory back to the \
user. The number in /etc/passwd stays, as other files have it.\n\n\
A line with a wrong number of fields is skipped by every program, and dropped when one rewrites the file. A carriage return \
at the end of a line is read as part of the shell, or of the last member of a group.\n\n\
The fix adds altfiles to /etc/nsswitch.conf, or copies the lines from /usr/lib where that file belongs to the config. It gives \
state back to its user, and removes carriage returns. Accounts that the OS does not list are made by systemd-sysusers.",
    judge: judge_accounts,
};

/// Accounts without which a node has no network.
const OF_THE_NETWORK: [&str; 2] = ["openvswitch", "hugetlbfs"];
/// Accounts without which a service that nodes run does not start.
const OF_SERVICES: [&str; 11] = [
    "_chrony",
    "chrony",
    "dbus",
    "polkitd",
    "rpc",
    "rpcuser",
    "sshd",
    "systemd-network",
    "systemd-resolve",
    "tss",
    "unbound",
];

fn judge_accounts(evidence: &DoctorEvidence) -> CheckVerdict {
    let accounts = match evidence.os_accounts.seen() {
        Ok(accounts) => accounts,
        Err(why) => return CheckVerdict::not_seen(format!("users of the OS: {why}")),
    };
    let verdict = CheckVerdict::healthy().and_findings(find_missing(evidence, accounts));
    let foreign = accounts.foreign.iter();
    verdict
        .and_findings(foreign.map(|one| describe_foreign(evidence, one)))
        .and_findings(find_bad_lines(evidence, accounts))
        .and_findings(find_returns(evidence, accounts))
}

fn find_missing(evidence: &DoctorEvidence, accounts: &OsAccounts) -> Option<DoctorFinding> {
    // The first boot makes them.
    if evidence.never_booted && accounts.stops.is_empty() {
        return None;
    }
    let mut missing: Vec<&WantedAccount> = accounts.missing.iter().collect();
    missing.order_by_key(|one| (rank_of(one), one.is_group));
    let first = missing.first()?;
    let severity = match rank_of(first) {
        0 => CheckSeverity::Critical,
        1 => CheckSeverity::Warning,
        _ => CheckSeverity::Notice,
    };
    let what = match missing.len() {
        1 => format!("{} is missing", name_account(first)),
        several => format!(
            "{} is missing, and {} more",
            name_account(first),
            several - 1
        ),
    };
    let means = match rank_of(first) {
        0 => "Open vSwitch does not start without it: no bridge, no network, and no kubelet.",
        1 => "The service that runs as this user does not start.",
        _ => "A service of the OS may not start. The packages of the OS ask for these accounts.",
    };
    let facts = missing
        .iter()
        .map(|one| Fact::new(&one.file, format!("asks for {}", name_account(one))));
    let finding = DoctorFinding::new(severity, what, means).seen_all(facts);
    let finding = if accounts.without_altfiles {
        unknown_to_lookups(evidence, accounts, finding)
    } else {
        finding
    };
    let stops = accounts.stops.iter();
    let finding = finding.seen_all(stops.map(|stop| Fact::new(&stop.path, &stop.said)));
    let finding = finding.with_message(Some(match accounts.stops.first() {
        Some(stop) => messages::fill_message(messages::SYSUSERS, &stop.said),
        None => messages::fill_message(messages::NO_USER, &first.name),
    }));
    let finding = add_cures(evidence, accounts, finding);
    Some(match (evidence.live, rank_of(first)) {
        (true, 0) => {
            finding.next("systemctl restart openvswitch && systemctl restart ovs-configuration")
        }
        _ => finding,
    })
}

/// Returns 0 for an account of the network, 1 for one of another service, and 2 for any other.
fn rank_of(account: &WantedAccount) -> u8 {
    match account.name.as_str() {
        name if OF_THE_NETWORK.contains(&name) => 0,
        name if OF_SERVICES.contains(&name) => 1,
        _ => 2,
    }
}

fn name_account(account: &WantedAccount) -> String {
    let noun = if account.is_group { "group" } else { "user" };
    format!("the {noun} {}", account.name)
}

/// Adds the commands that make the accounts.
fn add_cures(
    evidence: &DoctorEvidence,
    accounts: &OsAccounts,
    finding: DoctorFinding,
) -> DoctorFinding {
    let cures = accounts
        .stops
        .iter()
        .map(|stop| cure_command(evidence, stop));
    let finding = cures.fold(finding, DoctorFinding::next);
    if evidence.live {
        finding.next("systemd-sysusers")
    } else {
        finding.next(format!(
            "systemd-sysusers --root={}",
            shell_word(evidence.upkeep.directory.as_str())
        ))
    }
}

const SWITCH: &str = "/etc/nsswitch.conf";

/// Adds the fact that lookups do not read the OS's account files, and the cure: the line that makes them do so, or copies of
/// the entries if the recorded config has the file.
fn unknown_to_lookups(
    evidence: &DoctorEvidence,
    accounts: &OsAccounts,
    finding: DoctorFinding,
) -> DoctorFinding {
    let finding = finding.with_evidence(
        SWITCH,
        "does not name altfiles: /usr/lib/passwd is not looked up",
    );
    let cures = &accounts.cures;
    if evidence.is_of_config(SWITCH) {
        let finding = finding.with_evidence("the recorded config", format!("brings {SWITCH}"));
        let copied = cures.copied.iter().flatten();
        let finding = copied.fold(finding, |finding, (path, _)| {
            let is_group = path.ends_with("/group");
            let missing = accounts.missing.iter();
            let names = missing.filter(|one| one.is_group == is_group);
            let names: Vec<&str> = names.map(|one| one.name.as_str()).collect();
            let name = path.rsplit('/').next().unwrap_or_default();
            let from = evidence.shell_path(&format!("/usr/lib/{name}"));
            finding.next(format!(
                "grep -E '^({}):' {from} >> {}",
                names.join("|"),
                evidence.shell_path(path)
            ))
        });
        return finding
            .next(format!(
                "oc get mc -o name   # the MachineConfig with {SWITCH} has to change"
            ))
            .fixed_by(replace_all(evidence, cures.copied.as_deref()));
    }
    let switch = cures.switch.iter();
    finding
        .next(format!(
            "sed -i --follow-symlinks -E '/^(passwd|group):/{{/altfiles/!s/files/files altfiles/}}' {}",
            evidence.shell_path(SWITCH)
        ))
        .fixed_by(switch.map(|text| FixChange::replace_file(SWITCH, text.clone())))
}

/// Returns the changes that replace the contents of files; none if one of them belongs to the recorded config.
fn replace_all(evidence: &DoctorEvidence, files: Option<&[(String, Vec<u8>)]>) -> Vec<FixChange> {
    let files = files.unwrap_or_default();
    if files.iter().any(|(path, _)| evidence.is_of_config(path)) {
        return Vec::new();
    }
    let changes = files.iter();
    changes
        .map(|(path, text)| FixChange::replace_file(path, text.clone()))
        .collect()
}

/// Returns the command that removes an obstacle.
fn cure_command(evidence: &DoctorEvidence, stop: &SysusersStop) -> String {
    let path = evidence.shell_path(&stop.path);
    match &stop.kind {
        StopKind::OrphanLine(name) => format!("sed -i '/^{name}:/d' {path}"),
        StopKind::Immutable => format!("chattr -i -a {path}"),
        StopKind::NoFile => evidence.command_to_move_aside(&stop.path, "/etc"),
    }
}

fn describe_foreign(evidence: &DoctorEvidence, one: &ForeignState) -> DoctorFinding {
    let ((user, uid), (group, gid)) = (&one.user, &one.group);
    let is_network = OF_THE_NETWORK.contains(&user.as_str());
    let severity = if is_network && one.path.starts_with("/etc/") {
        CheckSeverity::Critical
    } else {
        CheckSeverity::Warning
    };
    let what = format!("{} does not belong to {user}", one.path);
    let means = if is_network {
        "Open vSwitch cannot open or make its database there: no bridge, and no network."
    } else {
        "The service that runs as this user cannot write its state."
    };
    let (path, first) = (evidence.shell_path(&one.path), &one.first);
    let owner = match &one.owner {
        Some(name) => format!("belongs to {} ({name})", one.found.0),
        None => format!("belongs to {}, which no user has", one.found.0),
    };
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence(first, owner)
        .with_evidence("/etc/passwd", format!("{user} is {uid}"));
    let finding = match one.of_os {
        Some(number) => finding.with_evidence("/usr/lib/passwd", format!("{user} is {number}")),
        None => finding,
    };
    // Names are those of the system that runs the command.
    let finding = if evidence.live {
        finding.next(format!("chown -R {user}:{group} {path}"))
    } else {
        finding.next(format!("chown -R {uid}:{gid} {path}   # {user}:{group}"))
    };
    let finding = finding.fixed_by(give_back(evidence, one));
    if evidence.live && is_network {
        let restart = "systemctl restart openvswitch && systemctl restart ovs-configuration";
        finding.next(restart).after_fix(restart)
    } else {
        finding
    }
}

/// Returns the changes of owners; none if one of the paths belongs to the recorded config, or if not all paths are known.
fn give_back(evidence: &DoctorEvidence, one: &ForeignState) -> Vec<FixChange> {
    let paths = one.paths.as_deref().unwrap_or_default();
    if paths.iter().any(|path| evidence.is_of_config(path)) {
        return Vec::new();
    }
    let changes = paths.iter();
    changes
        .map(|path| FixChange::set_owner(path, one.user.1, one.group.1))
        .collect()
}

fn find_bad_lines(evidence: &DoctorEvidence, accounts: &OsAccounts) -> Option<DoctorFinding> {
    let (file, number, _) = accounts.bad_lines.first()?;
    let lines = accounts.bad_lines.iter();
    let facts = lines.map(|(file, number, fault)| Fact::new(format!("{file}:{number}"), *fault));
    let what = format!(
        "{} of the account files cannot be read",
        count_noun(accounts.bad_lines.len(), "line")
    );
    let means = "Every program skips such a line: the user or group in it does not exist.";
    let finding = DoctorFinding::warning(what, means).seen_all(facts);
    Some(finding.next(format!("vi +{number} {}", evidence.shell_path(file))))
}

fn find_returns(evidence: &DoctorEvidence, accounts: &OsAccounts) -> Option<DoctorFinding> {
    accounts.returns.first()?;
    let lines = accounts.returns.iter();
    let facts = lines
        .map(|(file, number)| Fact::new(format!("{file}:{number}"), "ends with a carriage return"));
    let what = match accounts.returns.len() {
        1 => "a line of the account files ends with a carriage return".to_owned(),
        several => format!("{several} lines of the account files end with carriage returns"),
    };
    let means = "It is read as part of the shell, or of the last member of a group: the user cannot log in, and the member is not in the group.";
    let finding = DoctorFinding::warning(what, means).seen_all(facts);
    let mut files: Vec<&String> = accounts.returns.iter().map(|(file, _)| file).collect();
    files.dedup();
    if let Some(file) = files.iter().find(|file| evidence.is_of_config(file)) {
        return Some(finding.next(format!(
            "oc get mc -o name   # the MachineConfig with {file} has to change"
        )));
    }
    let finding = files.iter().fold(finding, |finding, file| {
        finding.next(format!("sed -i 's/\\r$//' {}", evidence.shell_path(file)))
    });
    let cured = accounts.cures.without_returns.as_deref();
    Some(finding.fixed_by(replace_all(evidence, cured)))
}
