//! FP-66: users of the OS are missing, or their files belong to another number.

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::invocation::shell_word;
use crate::node::os_accounts::{ForeignState, OsAccounts, StopKind, SysusersStop};
use crate::systemd::sysusers::WantedAccount;
use crate::text::count;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-66",
    title: "users of the OS are missing or have another number",
    looks_at: "sysusers.d against passwd and group in /etc and /usr/lib, and owners of state directories",
    explain: "Services that do not run as root need their users. The OS has them in /usr/lib/passwd (nss-altfiles), and \
systemd-sysusers makes those of sysusers.d that are missing, at the first boot of each new OS. It writes all of them or \
none: a line in /etc/gshadow for a group that /etc/group does not have, an immutable file, or a lock file that is no file \
stops it as a whole. Without the user openvswitch there is no Open vSwitch, and no network.\n\n\
A line of /etc/passwd comes before the one of /usr/lib/passwd. If the numbers differ, directories that come with the OS \
can belong to a number that is not the user's any more: ovsdb-server then cannot open /etc/openvswitch/conf.db. The cure is to \
give the directory to the user again. The number in /etc/passwd stays: other files have it.\n\n\
A line with a wrong number of fields or with a carriage return at its end is passed over by every program, and dropped when \
one writes the file anew.",
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
        Err(why) => return CheckVerdict::unseen(format!("users of the OS: {why}")),
    };
    let verdict = CheckVerdict::healthy().and(find_missing(evidence, accounts));
    let foreign = accounts.foreign.iter();
    verdict
        .and(foreign.map(|one| describe_foreign(evidence, one)))
        .and(find_bad_lines(evidence, accounts))
}

fn find_missing(evidence: &DoctorEvidence, accounts: &OsAccounts) -> Option<DoctorFinding> {
    // The first boot makes them.
    if evidence.never_booted && accounts.stops.is_empty() {
        return None;
    }
    let mut missing: Vec<&WantedAccount> = accounts.missing.iter().collect();
    let rank = |one: &WantedAccount| match one.name.as_str() {
        name if OF_THE_NETWORK.contains(&name) => 0,
        name if OF_SERVICES.contains(&name) => 1,
        _ => 2,
    };
    missing.sort_by_key(|one| (rank(one), one.is_group));
    let first = missing.first()?;
    let severity = match rank(first) {
        0 => CheckSeverity::Critical,
        1 => CheckSeverity::Warning,
        _ => CheckSeverity::Notice,
    };
    let noun = if first.is_group { "group" } else { "user" };
    let what = match missing.len() {
        1 => format!("the {noun} {} is missing", first.name),
        several => format!(
            "the {noun} {} is missing, and {} more",
            first.name,
            several - 1
        ),
    };
    let means = match rank(first) {
        0 => "Open vSwitch does not start without it: no bridge, no network, and no kubelet.",
        1 => "The service that runs as this user does not start.",
        _ => "A service of the OS may not start. The packages of the OS ask for these accounts.",
    };
    let facts = missing.iter().map(|one| {
        let noun = if one.is_group { "group" } else { "user" };
        Fact::new(&one.file, format!("asks for the {noun} {}", one.name))
    });
    let finding = DoctorFinding::new(severity, what, means).seen_all(facts);
    let finding = match accounts.without_altfiles {
        true => finding
            .seen(
                "/etc/nsswitch.conf",
                "does not name altfiles: /usr/lib/passwd is not looked up",
            )
            .next(format!(
                "sed -i -E '/^(passwd|group):/ s/files/files altfiles/' {}",
                evidence.path("/etc/nsswitch.conf")
            )),
        false => finding,
    };
    let stops = accounts.stops.iter();
    let finding = finding.seen_all(stops.map(|stop| Fact::new(&stop.path, &stop.said)));
    let finding = finding.daemon(Some(match accounts.stops.first() {
        Some(stop) => format!("systemd-sysusers: {}", stop.said),
        None => format!("id: '{}': no such user", first.name),
    }));
    let cures = accounts.stops.iter().map(|stop| cure(evidence, stop));
    let finding = cures.fold(finding, DoctorFinding::next);
    let finding = match evidence.live {
        true => finding.next("systemd-sysusers"),
        false => finding.next(format!(
            "systemd-sysusers --root={}",
            shell_word(evidence.upkeep.directory.as_str())
        )),
    };
    Some(match (evidence.live, rank(first)) {
        (true, 0) => {
            finding.next("systemctl restart openvswitch && systemctl restart ovs-configuration")
        }
        _ => finding,
    })
}

/// Returns the command that takes an obstacle away.
fn cure(evidence: &DoctorEvidence, stop: &SysusersStop) -> String {
    let path = evidence.path(&stop.path);
    match &stop.kind {
        StopKind::OrphanLine(name) => format!("sed -i '/^{name}:/d' {path}"),
        StopKind::Immutable => format!("chattr -i -a {path}"),
        StopKind::NoFile => evidence.command_to_move_aside(&stop.path, "/etc"),
    }
}

fn describe_foreign(evidence: &DoctorEvidence, one: &ForeignState) -> DoctorFinding {
    let ((user, uid), (group, gid)) = (&one.user, &one.group);
    let is_network = OF_THE_NETWORK.contains(&user.as_str());
    let severity = match is_network && one.path.starts_with("/etc/") {
        true => CheckSeverity::Critical,
        false => CheckSeverity::Warning,
    };
    let what = format!("{} does not belong to {user}", one.path);
    let means = match is_network {
        true => "Open vSwitch cannot open or make its database there: no bridge, and no network.",
        false => "The service that runs as this user cannot write its state.",
    };
    let (path, first) = (evidence.path(&one.path), &one.first);
    let owner = match &one.owner {
        Some(name) => format!("belongs to {} ({name})", one.found.0),
        None => format!("belongs to {}, which is no user", one.found.0),
    };
    let finding = DoctorFinding::new(severity, what, means)
        .seen(first, owner)
        .seen("/etc/passwd", format!("{user} is {uid}"));
    let finding = match one.of_os {
        Some(number) => finding.seen("/usr/lib/passwd", format!("{user} is {number}")),
        None => finding,
    };
    // Names are those of the system that runs the command.
    let finding = match evidence.live {
        true => finding.next(format!("chown -R {user}:{group} {path}")),
        false => finding.next(format!("chown -R {uid}:{gid} {path}   # {user}:{group}")),
    };
    match evidence.live && is_network {
        true => {
            finding.next("systemctl restart openvswitch && systemctl restart ovs-configuration")
        }
        false => finding,
    }
}

fn find_bad_lines(evidence: &DoctorEvidence, accounts: &OsAccounts) -> Option<DoctorFinding> {
    let (file, number, _) = accounts.bad_lines.first()?;
    let lines = accounts.bad_lines.iter();
    let facts = lines.map(|(file, number, fault)| Fact::new(format!("{file}:{number}"), *fault));
    let what = format!(
        "{} of the account files cannot be read",
        count(accounts.bad_lines.len(), "line")
    );
    let means = "Every program passes over such a line: the user or group in it does not exist.";
    let finding = DoctorFinding::new(CheckSeverity::Warning, what, means).seen_all(facts);
    Some(finding.next(format!("vi +{number} {}", evidence.path(file))))
}
