//! FP-40: the etcd data on this node is damaged.

use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::formats::etcd_data::bolt::{BoltFault, PageFault};
use crate::formats::etcd_data::start::{EtcdRefusal, EtcdStart, Start};
use crate::formats::etcd_data::wal::WalFault;
use crate::node::etcd_files::{
    Backup, BackupState, DatabaseFile, EtcdFiles, EtcdMemberFiles, MEMBER, SETTINGS, SoundDatabase,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-40",
    title: "the data of etcd is damaged",
    looks_at: "the log, the snapshots and the database of etcd, and its backups",
    explain: "etcd keeps its data in /var/lib/etcd/member: a log (wal), snapshots of the state at an index (snap/*.snap), and the \
database (snap/db). At its start it reads the log with all its sums, takes the newest snapshot that the log names, \
and walks over all pages of the database. One wrong byte in the wrong place keeps it from starting, on this node \
alone. This check reads the files by the rules of etcd 3.5 and says which of them stops it.\n\n\
After a power cut etcd repairs two things by itself: a record that was cut off at the end of the log, and one of the \
two meta pages of the database. A snapshot with a wrong sum gets the name NAME.broken, and an older one is used. A \
database that is older than the snapshot is a disk that did not keep what it had confirmed; etcd does not start \
with it. A log that ends before the last entry of the database is worse: etcd starts, and lacks entries that the \
cluster counts on.\n\n\
Always read: names, the first records of each file of the log, snapshots, meta pages, what etcd looks up in the \
database, and the meta pages of backups. The whole log, all pages of the database and the hashes of backups are \
read if they are small (16 MiB in all), if something is wrong already, or with --deep. While etcd runs, its files \
change: then the end of the log and the pages of the database are not judged.\n\n\
With a majority of sound members: move the member's directory aside, remove the member from the cluster and add it \
again. With one survivor: quorum-restore.sh there. With none: cluster-restore.sh with the newest sound backup. Never \
start two members from different copies of the data.",
    judge: judge_etcd_data,
};

fn judge_etcd_data(evidence: &DoctorEvidence) -> CheckVerdict {
    let files = match evidence.etcd_files.seen() {
        Ok(files) => files,
        Err(why) => return CheckVerdict::not_seen(format!("the data of etcd: {why}")),
    };
    let mut verdict = CheckVerdict::healthy();
    for why in &files.unread {
        verdict = verdict.and_unseen(format!("the data of etcd: {why}"));
    }
    for part in &files.skipped {
        verdict = verdict.and_skipped(*part);
    }
    let about_member = match &files.member {
        Some(member) => judge_member(evidence, files, member),
        // A new member has no directory until it is added to the cluster.
        None => Vec::new(),
    };
    verdict
        .and_findings(about_member)
        .and_findings(find_bad_backups(evidence, files))
}

fn judge_member(
    evidence: &DoctorEvidence,
    files: &EtcdFiles,
    member: &EtcdMemberFiles,
) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let refusal = match &member.start {
        Some(Start::Refuses(EtcdRefusal::NoLog)) if is_bare(member) => {
            return vec![find_no_data(evidence)];
        }
        Some(Start::Refuses(refusal)) => Some(refusal.clone()),
        Some(Start::Starts(_)) => None,
        None => unfinished_refusal(member),
    };
    match (refusal, &member.start) {
        (Some(refusal), _) => findings.push(find_refusal(evidence, files, member, &refusal)),
        (None, Some(Start::Starts(started))) => {
            findings.extend(find_lost(evidence, files, member, started));
            findings.extend(find_torn(evidence, member, started));
        }
        (None, _) => {}
    }
    if findings
        .iter()
        .all(|one| one.severity != CheckSeverity::Critical)
    {
        findings.extend(find_bad_snapshots(evidence, member));
    }
    if let DatabaseFile::Sound(sound) = &member.database {
        findings.extend(find_alarms(files, &sound.contents.alarms, sound.length));
        findings.extend(find_database_faults(evidence, files, sound));
    }
    findings
}

/// Reports what is wrong with a database that etcd can use.
fn find_database_faults(
    evidence: &DoctorEvidence,
    files: &EtcdFiles,
    sound: &SoundDatabase,
) -> Option<DoctorFinding> {
    if let Some(page) = sound.bad_meta {
        let means = "The last commit was interrupted. etcd uses the other one, and writes this one again at its next commit.";
        let what = "one of the two meta pages of etcd is not valid";
        let finding = DoctorFinding::notice(what, means)
            .with_evidence(database_path(), format!("meta page {page} is not valid"))
            .next(evidence.own_command("doctor FP-40"));
        return Some(finding);
    }
    if sound.length >= sound.needs {
        return None;
    }
    let means = "The end of the file is missing. No page in use was found there, but etcd may need it at its next write.";
    let what = "the database of etcd is shorter than it says";
    let said = format!("{} bytes of {}", sound.length, sound.needs);
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(database_path(), said)
        .next_all(member_commands(evidence, files));
    Some(finding)
}

fn database_path() -> String {
    format!("/{MEMBER}/snap/db")
}

/// Returns true if the member has neither log nor database: it was never started, or it waits to be added.
fn is_bare(member: &EtcdMemberFiles) -> bool {
    matches!(member.database, DatabaseFile::Missing | DatabaseFile::Empty)
        && member.snapshots.is_empty()
}

/// Returns the refusal for a member whose start was not simulated: etcd is running, or its data is large.
fn unfinished_refusal(member: &EtcdMemberFiles) -> Option<EtcdRefusal> {
    if let Some(stop) = &member.log.stop {
        return Some(EtcdRefusal::Log(stop.fault.clone()));
    }
    if let Some((_, fault)) = member.heads.first() {
        return Some(EtcdRefusal::Log(fault.clone()));
    }
    match &member.database {
        DatabaseFile::Damaged(fault) => Some(EtcdRefusal::Database(fault.clone())),
        _ => None,
    }
}

fn find_refusal(
    evidence: &DoctorEvidence,
    files: &EtcdFiles,
    member: &EtcdMemberFiles,
    refusal: &EtcdRefusal,
) -> DoctorFinding {
    let what = match (refusal, member.running) {
        (_, true) => "etcd runs, but cannot start again from its data",
        (EtcdRefusal::NoLog, _) => "the log of etcd is missing",
        (EtcdRefusal::Gap(..) | EtcdRefusal::NoFile(_) | EtcdRefusal::Entries(..), _) => {
            "a part of the log of etcd is missing"
        }
        (EtcdRefusal::OldDatabase(..), _) => match member.database {
            DatabaseFile::Missing | DatabaseFile::Empty => "the database of etcd is missing",
            _ => "the database of etcd is older than its snapshot",
        },
        (EtcdRefusal::Database(_), _) => "the database of etcd is damaged",
        _ => "the log of etcd is damaged",
    };
    let means = match files.settings.members {
        1 => {
            "etcd cannot start on this node. It is the only member: the API stays away until a backup is restored."
        }
        _ => {
            "etcd cannot start on this node. The cluster goes on while more than half of the members are sound."
        }
    };
    DoctorFinding::critical(what, means)
        .seen_all(refusal_facts(member, refusal))
        .seen_all(rescue_facts(files))
        .with_message(Some(etcd_message(refusal)))
        .next_all(member_commands(evidence, files))
}

/// Returns the place of a refusal.
fn refusal_facts(member: &EtcdMemberFiles, refusal: &EtcdRefusal) -> Vec<Fact> {
    let wal = format!("/{MEMBER}/wal");
    let place = match refusal {
        EtcdRefusal::Database(_) | EtcdRefusal::OldDatabase(..) => database_path(),
        _ => wal.clone(),
    };
    match refusal {
        EtcdRefusal::Log(fault) => {
            let head = member.heads.first();
            let head =
                head.map(|(name, fault)| Fact::new(format!("{wal}/{name}"), fault.to_string()));
            let known = stopped_at(member).or(head);
            vec![known.unwrap_or_else(|| Fact::new(place, fault.to_string()))]
        }
        EtcdRefusal::OldDatabase(index, snapshot) => {
            let sent = format!("/{MEMBER}/snap/{snapshot:016x}.snap.db");
            vec![
                Fact::new(
                    database_path(),
                    format!("its last entry is {index}, that of the snapshot {snapshot}"),
                ),
                Fact::new(sent, "missing"),
            ]
        }
        EtcdRefusal::NoLog => vec![Fact::new(place, "no file of the log is in it")],
        refusal => vec![Fact::new(place, refusal.to_string())],
    }
}

/// Returns the message with which etcd exits.
fn etcd_message(refusal: &EtcdRefusal) -> String {
    match refusal {
        EtcdRefusal::OldDatabase(..) => messages::NO_SNAPSHOT_FILE.to_owned(),
        EtcdRefusal::Database(BoltFault::NoMeta) => messages::INVALID_DATABASE.to_owned(),
        EtcdRefusal::Database(BoltFault::TooSmall(_)) => messages::DATABASE_TOO_SMALL.to_owned(),
        EtcdRefusal::Database(BoltFault::Truncated { .. }) => messages::FAULT_ADDRESS.to_owned(),
        EtcdRefusal::Database(BoltFault::Page {
            page,
            fault: PageFault::Identifies(id),
        }) => {
            let words = messages::fill_message(messages::PAGE_IDENTIFIES, &page.to_string());
            messages::fill_message(&words, &id.to_string())
        }
        EtcdRefusal::Database(fault @ BoltFault::Page { .. }) => {
            messages::fill_message(messages::FREE_PAGES, &fault.to_string())
        }
        EtcdRefusal::Database(BoltFault::Value { what, .. }) => (*what).to_owned(),
        EtcdRefusal::Gap(..) | EtcdRefusal::NoFile(_) => messages::WAL_MISSING.to_owned(),
        EtcdRefusal::Entries(..) => messages::WAL_BOUNDS.to_owned(),
        EtcdRefusal::Snapshot(_) => messages::WAL_SNAPSHOT.to_owned(),
        EtcdRefusal::Entry(_) => messages::ENTRY_TYPE.to_owned(),
        EtcdRefusal::Log(WalFault::Malformed | WalFault::Head) => messages::WIRE_TYPE.to_owned(),
        EtcdRefusal::NoLog => messages::NO_CLUSTER.to_owned(),
        refusal => refusal.to_string(),
    }
}

/// Returns the facts about the backup and the script that a restore on this node needs.
fn rescue_facts(files: &EtcdFiles) -> Vec<Fact> {
    let newest = files.backups.iter().rev().find(|backup| backup.is_usable());
    let backup = match newest {
        Some(backup) => Fact::new(
            backup.path.clone(),
            format!(
                "the newest backup, of {}",
                crate::base::time::format_utc(backup.written)
            ),
        ),
        None => Fact::new(
            "/home/core/assets/backup",
            "no usable backup is on this node",
        ),
    };
    let script = match files.restore_script {
        Some(script) => Fact::new(
            format!("/{script}"),
            "the script for a restore is on this node",
        ),
        None => Fact::new(
            format!("/{SETTINGS}"),
            "no script for a restore is on this node",
        ),
    };
    vec![backup, script]
}

/// Returns the commands that show how many members are left, and move the data aside.
fn member_commands(evidence: &DoctorEvidence, files: &EtcdFiles) -> Vec<&'static str> {
    match (evidence.fencing, files.settings.members) {
        (true, _) => vec![
            "pcs status",
            "journalctl -u pacemaker -b | grep podman-etcd",
        ],
        (false, 1) => vec![
            "ls -l /home/core/assets/backup",
            "/usr/local/bin/cluster-restore.sh DIRECTORY",
        ],
        (false, _) => vec![
            "oc -n openshift-etcd get pods -l app=etcd -o wide",
            "oc -n openshift-etcd rsh etcd-OTHER-NODE etcdctl member list -w table",
            "mv /var/lib/etcd/member /var/lib/etcd/member.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)",
            "oc -n openshift-etcd rsh etcd-OTHER-NODE etcdctl member remove ID",
        ],
    }
}

fn find_lost(
    evidence: &DoctorEvidence,
    files: &EtcdFiles,
    member: &EtcdMemberFiles,
    started: &EtcdStart,
) -> Option<DoctorFinding> {
    let (log, database) = started.lost?;
    let means = "Entries that this member confirmed are gone. etcd starts, and stops as soon as the leader counts on them; a \
                 single member goes on with an old state.";
    let finding = DoctorFinding::critical("the log of etcd lost its end", means);
    let words = messages::fill_message(messages::LOST_LOG, &database.to_string());
    let words = messages::fill_message(&words, &log.to_string());
    Some(
        finding
            .with_evidence(
                format!("/{MEMBER}/wal"),
                format!("its last whole entry is {log}"),
            )
            .seen_all(stopped_at(member))
            .with_evidence(database_path(), format!("it has entries up to {database}"))
            .seen_all(rescue_facts(files))
            .with_message(Some(words))
            .next_all(member_commands(evidence, files)),
    )
}

fn find_torn(
    evidence: &DoctorEvidence,
    member: &EtcdMemberFiles,
    started: &EtcdStart,
) -> Option<DoctorFinding> {
    let torn = started.repairs && started.lost.is_none();
    let place = stopped_at(member).filter(|_| torn)?;
    let means = "The last write was interrupted, as by a power cut. etcd copies the file to NAME.broken, cuts the record off and \
                 goes on. Nothing that it confirmed is lost.";
    Some(
        DoctorFinding::notice("the log of etcd ends in an incomplete record", means)
            .seen_all([place])
            .with_message(Some(messages::WAL_REPAIRED.to_owned()))
            .next(evidence.own_command("doctor FP-40")),
    )
}

/// Returns the record at which the log ends early.
fn stopped_at(member: &EtcdMemberFiles) -> Option<Fact> {
    let stop = member.log.stop.as_ref()?;
    let file = member.log.files.get(stop.file)?;
    let said = format!("offset {}: {}", stop.offset, stop.fault);
    Some(Fact::new(format!("/{MEMBER}/wal/{}", file.name), said))
}

fn find_bad_snapshots(
    evidence: &DoctorEvidence,
    member: &EtcdMemberFiles,
) -> Option<DoctorFinding> {
    if member.snapshots.is_empty() {
        return None;
    }
    let means = "etcd renames such a file to NAME.broken when it starts, and uses an older one.";
    let facts = member.snapshots.iter();
    let facts =
        facts.map(|(name, fault)| Fact::new(format!("/{MEMBER}/snap/{name}"), fault.to_string()));
    let what = format!(
        "{} of etcd cannot be used",
        count_noun(member.snapshots.len(), "snapshot")
    );
    Some(
        DoctorFinding::notice(what, means)
            .seen_all(facts)
            .next(evidence.own_command("doctor FP-40")),
    )
}

/// Reports alarms that a member raised. They persist until they are disarmed.
fn find_alarms(files: &EtcdFiles, alarms: &[u64], length: u64) -> Option<DoctorFinding> {
    const NO_SPACE: u64 = 1;
    const CORRUPT: u64 = 2;
    if alarms.contains(&CORRUPT) {
        let means = "A member compared its data with the others and found a difference. etcd refuses writes until the member is \
                     replaced and the alarm removed.";
        return Some(
            DoctorFinding::critical("etcd has found members with different data", means)
                .with_evidence(database_path(), "alarm CORRUPT")
                .with_message(Some(messages::CORRUPT_CLUSTER.to_owned()))
                .next("oc -n openshift-etcd rsh etcd-NODE etcdctl alarm list")
                .next("oc -n openshift-etcd rsh etcd-NODE etcdctl endpoint hashkv --cluster"),
        );
    }
    let quota = files.settings.quota.filter(|quota| length >= *quota);
    if !alarms.contains(&NO_SPACE) && quota.is_none() {
        return None;
    }
    let means = "The database has reached its quota: etcd refuses writes, and the API with it. This is not damage. Old revisions \
                 are removed, the file is made smaller, and then the alarm is removed.";
    let alarm = alarms
        .contains(&NO_SPACE)
        .then(|| Fact::new(database_path(), "alarm NOSPACE"));
    let size = quota.map(|quota| {
        Fact::new(
            database_path(),
            format!("{length} bytes, the quota is {quota}"),
        )
    });
    Some(
        DoctorFinding::warning("the database of etcd has reached its quota", means)
            .seen_all(alarm.into_iter().chain(size))
            .with_message(Some(messages::SPACE_EXCEEDED.to_owned()))
            .next("oc -n openshift-etcd rsh etcd-NODE etcdctl endpoint status --cluster -w table")
            .next("oc -n openshift-etcd rsh etcd-NODE etcdctl defrag")
            .next("oc -n openshift-etcd rsh etcd-NODE etcdctl alarm disarm"),
    )
}

fn find_no_data(evidence: &DoctorEvidence) -> DoctorFinding {
    let means = "A new member that waits to be added to the cluster looks like this, and one whose data is lost. Only the list of \
                 members tells them apart.";
    let next = if evidence.fencing {
        "pcs status"
    } else {
        "oc -n openshift-etcd rsh etcd-OTHER-NODE etcdctl member list -w table"
    };
    DoctorFinding::notice("etcd has no data on this node", means)
        .with_evidence(format!("/{MEMBER}"), "no log and no database")
        .next(next)
}

fn find_bad_backups(evidence: &DoctorEvidence, files: &EtcdFiles) -> Option<DoctorFinding> {
    let bad: Vec<&Backup> = files
        .backups
        .iter()
        .filter(|backup| !backup.is_usable())
        .collect();
    let first = bad.first()?;
    let facts = bad.iter().map(|backup| {
        let said = match &backup.state {
            BackupState::WrongHash => "its SHA-256 is wrong",
            BackupState::Damaged(why) => why,
            BackupState::Sound | BackupState::WithoutHash | BackupState::NotHashed => "",
        };
        Fact::new(backup.path.clone(), said)
    });
    let what = format!(
        "{} of etcd cannot be restored",
        count_noun(bad.len(), "backup")
    );
    let means = "A restore from it fails, after etcd has been stopped. Other backups have to be used, and a new one made.";
    let path = evidence.shell_path(&first.path);
    let aside = bad.iter().map(|one| FixChange::move_aside(&one.path));
    let finding = DoctorFinding::warning(what, means)
        .seen_all(facts)
        .fixed_by(aside);
    Some(if evidence.live {
        finding
            .next("/usr/local/bin/cluster-backup.sh /home/core/assets/backup")
            .next(format!("mv {path} {path}.mco-rescue-damaged"))
    } else {
        finding.next(format!("mv {path} {path}.mco-rescue-damaged"))
    })
}
