//! etcd's behavior at its start, computed from its files by the rules of etcd 3.5.
//!
//! etcd reads the whole log, selects the newest good snapshot that the log names as committed, checks that the database is not
//! older than that snapshot, and reads the log again from there.

use super::bolt::BoltFault;
use super::snap::{Position, SnapError};
use super::wal::{WalFault, WalFile, WalLog};

/// A snapshot file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapFile {
    /// Its name.
    pub name: String,
    /// Its position, or its fault.
    pub read: Result<Position, SnapError>,
}

/// The database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// It is missing, or empty, which makes etcd create a new one.
    Missing,
    /// It is good as far as it was read; index of the last entry that it contains.
    Sound(u64),
    /// It is damaged.
    Damaged(BoltFault),
}

/// The files of a member, as far as its start depends on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFiles {
    /// The log.
    pub log: WalLog,
    /// Snapshots, sorted by name.
    pub snapshots: Vec<SnapFile>,
    /// Databases sent by another member (`INDEX.snap.db`): the index, and the fault.
    pub sent: Vec<(u64, Option<BoltFault>)>,
    /// The database.
    pub database: DatabaseState,
}

/// The behaviour of etcd at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// It starts.
    Starts(EtcdStart),
    /// It does not start.
    Refuses(EtcdRefusal),
}

/// How etcd starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdStart {
    /// True if it removes an interrupted record at the end of the log.
    pub repairs: bool,
    /// The snapshot that it starts from.
    pub from: Option<Position>,
    /// The log ends before the last entry of the database: index of the last entry of each.
    pub lost: Option<(u64, u64)>,
}

/// A reason why etcd does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdRefusal {
    /// There is no log.
    #[error("the log has no files")]
    NoLog,
    /// The log is damaged.
    #[error("{0}")]
    Log(WalFault),
    /// A file of the log is missing: the number before the gap, and the one after it.
    #[error("wal: file not found (the numbers go from {0} to {1})")]
    Gap(u64, u64),
    /// The log begins after the snapshot from which etcd starts.
    #[error("wal: file not found (no file has the entry after index {0})")]
    NoFile(u64),
    /// Entries between the snapshot and the log are missing.
    #[error("wal: slice bounds out of range (entry {1} comes after {0})")]
    Entries(u64, u64),
    /// The log has a record of a type that etcd does not know.
    #[error("unexpected block type {0}")]
    Unknown(i64),
    /// An entry, given by its index, has a type that etcd does not apply.
    #[error("unknown entry type; must be either EntryNormal or EntryConfChange (entry {0})")]
    Entry(u64),
    /// The log belongs to two members.
    #[error("wal: conflicting metadata found")]
    TwoMembers,
    /// The log does not name its member.
    #[error("the log has no record about member and cluster")]
    NoMember,
    /// The log has another snapshot at this index.
    #[error("wal: snapshot mismatch (index {0})")]
    Snapshot(u64),
    /// The committed index is outside of the log.
    #[error("state.commit {commit} is out of range [{first}, {last}]")]
    Commit {
        /// The committed index.
        commit: u64,
        /// Index of the snapshot.
        first: u64,
        /// Index of the last entry.
        last: u64,
    },
    /// The database is older than the snapshot: the index of each.
    #[error("failed to find database snapshot file (the database has index {0}, the snapshot {1})")]
    OldDatabase(u64, u64),
    /// The database is damaged.
    #[error("{0}")]
    Database(BoltFault),
}

/// Returns what etcd will do with the files of a member.
pub fn predict_start(member: &MemberFiles) -> Start {
    match read_start(member) {
        Ok(started) => Start::Starts(started),
        Err(refusal) => Start::Refuses(refusal),
    }
}

fn read_start(member: &MemberFiles) -> Result<EtcdStart, EtcdRefusal> {
    let log = &member.log;
    if log.files.is_empty() {
        return Err(EtcdRefusal::NoLog);
    }
    let index = match &member.database {
        DatabaseState::Damaged(fault) => return Err(EtcdRefusal::Database(fault.clone())),
        DatabaseState::Missing => 0,
        DatabaseState::Sound(index) => *index,
    };
    check_sequence(&log.files)?;
    let repairs = match &log.stop {
        Some(stop) if !stop.torn => return Err(EtcdRefusal::Log(stop.fault.clone())),
        stop => stop.is_some(),
    };
    let from = choose_snapshot(member);
    let database = check_database(member, from, index)?;
    let last = replay_log(log, from.unwrap_or_default())?;
    Ok(EtcdStart {
        repairs,
        from,
        lost: (database > last).then_some((last, database)),
    })
}

fn check_sequence(files: &[WalFile]) -> Result<(), EtcdRefusal> {
    for pair in files.windows(2) {
        let [one, next] = [pair[0].sequence, pair[1].sequence];
        if one.checked_add(1) != Some(next) {
            return Err(EtcdRefusal::Gap(one, next));
        }
    }
    Ok(())
}

/// Returns the snapshot from which etcd starts: the newest good one that the log names and that is committed.
pub fn choose_snapshot(member: &MemberFiles) -> Option<Position> {
    let files = &member.log.files;
    let commit = files.iter().rev().find_map(|file| file.state);
    let commit = commit.map_or(0, |state| state.2);
    let named = |position: &Position| {
        let mut all = files.iter().flat_map(|file| &file.snapshots);
        position.index <= commit && all.any(|one| one == position)
    };
    let sound = member
        .snapshots
        .iter()
        .rev()
        .filter_map(|snap| snap.read.as_ref().ok());
    sound.copied().find(named)
}

/// Returns the last index of the database that etcd will use.
fn check_database(
    member: &MemberFiles,
    from: Option<Position>,
    index: u64,
) -> Result<u64, EtcdRefusal> {
    let Some(from) = from.filter(|from| from.index > index) else {
        return Ok(index);
    };
    match member.sent.iter().find(|sent| sent.0 == from.index) {
        None => Err(EtcdRefusal::OldDatabase(index, from.index)),
        Some((_, Some(fault))) => Err(EtcdRefusal::Database(fault.clone())),
        Some((_, None)) => Ok(from.index),
    }
}

/// Replays the log from a snapshot, and returns the index of its last entry.
fn replay_log(log: &WalLog, from: Position) -> Result<u64, EtcdRefusal> {
    let first = log.files.iter().rposition(|file| file.index <= from.index);
    let files = &log.files[first.ok_or(EtcdRefusal::NoFile(from.index))?..];
    let mut last = from.index;
    let mut metadata: Option<&Vec<u8>> = None;
    for file in files {
        if let Some(kind) = file.unknown {
            return Err(EtcdRefusal::Unknown(kind));
        }
        if let Some(index) = file.strange.filter(|index| *index > from.index) {
            return Err(EtcdRefusal::Entry(index));
        }
        if file.conflict
            || metadata
                .zip(file.metadata.as_ref())
                .is_some_and(|(one, other)| one != other)
        {
            return Err(EtcdRefusal::TwoMembers);
        }
        metadata = metadata.or(file.metadata.as_ref());
        let mut snapshots = file.snapshots.iter();
        if snapshots.any(|one| one.index == from.index && one.term != from.term) {
            return Err(EtcdRefusal::Snapshot(from.index));
        }
        for (begin, end) in &file.entries {
            if *end <= from.index {
                continue;
            }
            let begin = (*begin).max(from.index + 1);
            if begin - 1 > last {
                return Err(EtcdRefusal::Entries(last, begin));
            }
            last = *end;
        }
    }
    if metadata.is_none_or(Vec::is_empty) {
        return Err(EtcdRefusal::NoMember);
    }
    let state = files.iter().rev().find_map(|file| file.state);
    match state {
        Some(state) if state != (0, 0, 0) && !(from.index..=last).contains(&state.2) => {
            Err(EtcdRefusal::Commit {
                commit: state.2,
                first: from.index,
                last,
            })
        }
        _ => Ok(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::etcd_data::wal::WalStop;

    fn file(sequence: u64, index: u64, entries: &[(u64, u64)]) -> WalFile {
        WalFile {
            name: format!("{sequence:016x}-{index:016x}.wal"),
            sequence,
            index,
            entries: entries.to_vec(),
            metadata: Some(vec![1]),
            state: entries.last().map(|run| (1, 1, run.1)),
            ..WalFile::default()
        }
    }

    fn snap(index: u64) -> SnapFile {
        let position = Position { term: 1, index };
        SnapFile {
            name: format!("{:016x}-{index:016x}.snap", 1),
            read: Ok(position),
        }
    }

    /// A member with two files and two snapshots.
    fn member() -> MemberFiles {
        let mut log = WalLog {
            files: vec![file(0, 0, &[(1, 100)]), file(1, 101, &[(101, 200)])],
            stop: None,
        };
        log.files[0].snapshots = vec![Position::default(), Position { term: 1, index: 50 }];
        log.files[1].snapshots = vec![Position {
            term: 1,
            index: 150,
        }];
        MemberFiles {
            log,
            snapshots: vec![snap(50), snap(150)],
            sent: Vec::new(),
            database: DatabaseState::Sound(190),
        }
    }

    fn after(change: impl FnOnce(&mut MemberFiles)) -> Start {
        let mut member = member();
        change(&mut member);
        predict_start(&member)
    }

    fn starts(from: u64) -> Start {
        Start::Starts(EtcdStart {
            from: Some(Position {
                term: 1,
                index: from,
            }),
            ..EtcdStart::default()
        })
    }

    #[test]
    fn a_sound_member_starts_from_its_newest_snapshot() {
        assert_eq!(after(|_| ()), starts(150));
        assert_eq!(
            after(|member| member.snapshots[1].read = Err(SnapError::Empty)),
            starts(50)
        );
        assert_eq!(
            after(|member| member.log.files[1].snapshots.clear()),
            starts(50)
        );
        let none = after(|member| member.snapshots.clear());
        assert_eq!(none, Start::Starts(EtcdStart::default()));
    }

    #[test]
    fn an_old_database_needs_one_that_was_sent() {
        let old = |member: &mut MemberFiles| member.database = DatabaseState::Sound(149);
        assert_eq!(
            after(old),
            Start::Refuses(EtcdRefusal::OldDatabase(149, 150))
        );
        let sent = after(|member| {
            old(member);
            member.sent.push((150, None));
        });
        assert_eq!(sent, starts(150));
        let missing = after(|member| member.database = DatabaseState::Missing);
        assert_eq!(missing, Start::Refuses(EtcdRefusal::OldDatabase(0, 150)));
    }

    #[test]
    fn files_that_are_missing_are_found() {
        for (change, refusal) in [
            (
                (|member| member.log.files.clear()) as fn(&mut MemberFiles),
                EtcdRefusal::NoLog,
            ),
            (
                |member| member.log.files[1].sequence = 2,
                EtcdRefusal::Gap(0, 2),
            ),
            (
                |member| {
                    member.log.files.remove(0);
                    member.snapshots.pop();
                },
                EtcdRefusal::NoFile(0),
            ),
            (
                |member| {
                    member.log.files.remove(0);
                    member.log.files[0].index = 50;
                    member.log.files[0]
                        .snapshots
                        .push(Position { term: 1, index: 50 });
                    member.snapshots.pop();
                },
                EtcdRefusal::Entries(50, 101),
            ),
            (
                |member| member.log.files[1].entries = vec![(101, 160)],
                EtcdRefusal::Commit {
                    commit: 200,
                    first: 150,
                    last: 160,
                },
            ),
            (
                |member| member.log.files[1].metadata = Some(vec![2]),
                EtcdRefusal::NoMember,
            ),
        ] {
            // The ids in a file before the snapshot are not read.
            let expected = match refusal {
                EtcdRefusal::NoMember => starts(150),
                refusal => Start::Refuses(refusal),
            };
            assert_eq!(after(change), expected);
        }
    }

    #[test]
    fn a_torn_end_is_repaired_and_a_lost_end_is_reported() {
        let stop = |torn| WalStop {
            file: 1,
            offset: 64,
            fault: WalFault::Crc,
            torn,
        };
        let torn = after(|member| {
            member.log.stop = Some(stop(true));
            member.log.files[1].entries = vec![(101, 180)];
            member.log.files[1].state = Some((1, 1, 180));
        });
        let Start::Starts(started) = torn else {
            panic!("{torn:?}");
        };
        assert!(started.repairs);
        assert_eq!(started.lost, Some((180, 190)));
        let damaged = after(|member| member.log.stop = Some(stop(false)));
        assert_eq!(damaged, Start::Refuses(EtcdRefusal::Log(WalFault::Crc)));
    }
}
