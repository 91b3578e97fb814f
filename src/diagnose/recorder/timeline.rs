//! Boots and runs in order, and the moments between which a fact changed.

use serde::Serialize;

use super::differences::Difference;
use super::{Area, Event, Outcome, Snapshot, SnapshotRecord};

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryEntry {
    /// Number of the snapshot; `None` if there is none.
    pub snapshot: Option<u64>,
    /// Time by the node's clock, in seconds since 1970; `None` if it is unknown.
    pub at: Option<u64>,
    /// The kind of the line.
    pub event: Event,
    /// The result.
    pub outcome: Outcome,
    /// The config.
    pub config: Option<String>,
    /// The deployment that ran.
    pub deployment: Option<String>,
    /// The kernel that ran.
    pub kernel: Option<String>,
    /// Id of the boot.
    pub boot: Option<String>,
    /// Id of the run.
    pub run: Option<String>,
    /// Who ran the run; null for a service, or if it is unknown.
    pub by: Option<String>,
    /// True if `rollback` can undo the run.
    pub can_go_back: bool,
    /// Number of differences from the previous snapshot; `None` if one of the two is missing.
    pub differences: Option<usize>,
    /// True if the clock was set back before this.
    pub clock_set_back: bool,
    /// Notes, such as a missing copy.
    pub notes: Vec<String>,
}

/// A run that the node knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRun {
    /// Its id.
    pub id: String,
    /// Seconds since 1970.
    pub at: u64,
    /// The kind of the run.
    pub event: Event,
    /// Its result.
    pub outcome: Outcome,
    /// The config that it applied.
    pub config: Option<String>,
    /// Who ran it.
    pub by: Option<String>,
    /// It can be taken back.
    pub can_go_back: bool,
}

/// A boot that the node knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownBoot {
    /// Seconds since 1970.
    pub at: u64,
    /// The kernel that started.
    pub kernel: Option<String>,
}

/// Everything that a history is built from.
#[derive(Debug, Default)]
pub struct HistorySources<'a> {
    /// The records, by their numbers.
    pub records: &'a [SnapshotRecord],
    /// Number of differences of each record from the one before it.
    pub differences: Vec<Option<usize>>,
    /// Runs.
    pub runs: Vec<KnownRun>,
    /// Starts of the system, by their times.
    pub boots: Vec<KnownBoot>,
    /// Id and time of the running boot.
    pub running: Option<(String, u64)>,
}

/// Returns the history, oldest first. Snapshots are in the order of their numbers, whatever the clock said.
pub fn make_history(sources: &HistorySources<'_>) -> Vec<HistoryEntry> {
    let mut all: Vec<HistoryEntry> = Vec::new();
    let mut newest = 0;
    for (index, record) in sources.records.iter().enumerate() {
        let mut entry = of_record(record);
        entry.differences = sources.differences.get(index).copied().flatten();
        entry.clock_set_back = record.at < newest;
        newest = record.at;
        all.push(entry);
    }
    for run in &sources.runs {
        let known = all.iter_mut().find(|one| one.run.as_ref() == Some(&run.id));
        match known {
            Some(entry) => {
                entry.can_go_back = run.can_go_back;
                entry.by.clone_from(&run.by);
            }
            None => insert_entry(&mut all, of_run(run)),
        }
    }
    for entry in failed_boots(sources) {
        insert_entry(&mut all, entry);
    }
    if let Some((boot, began)) = &sources.running {
        let has_snapshot = |record: &SnapshotRecord| {
            record.event == Event::Boot && record.boot.as_ref() == Some(boot)
        };
        if !sources.records.iter().any(has_snapshot) {
            let entry = HistoryEntry {
                boot: Some(boot.clone()),
                ..empty_entry(Some(*began), Event::Boot, Outcome::Running)
            };
            // Its runs come after it.
            let own = all.iter().position(|one| one.boot.as_ref() == Some(boot));
            match own {
                Some(at) => all.insert(at, entry),
                None => insert_entry(&mut all, entry),
            }
        }
    }
    all
}

/// Returns the starts of the system that left no snapshot before the next start. Where records were deleted, or the clock was
/// set back, nothing is known about a start.
fn failed_boots(sources: &HistorySources<'_>) -> Vec<HistoryEntry> {
    let records = sources.records;
    let is_known = |from: u64, until: u64| {
        let before = records.iter().rposition(|record| record.at < from);
        let after = records.iter().position(|record| record.at >= until);
        let has_own = records
            .iter()
            .any(|record| record.event == Event::Boot && (from..until).contains(&record.at));
        let number = |at: Option<usize>| at.and_then(|at| records.get(at)).map(|one| one.number);
        let own = records.iter().filter(|one| (from..until).contains(&one.at));
        let own = u64::try_from(own.count()).unwrap_or_default();
        match (number(before), number(after)) {
            (None, _) => false,
            (Some(before), Some(after)) => !has_own && before + own + 1 == after,
            (Some(before), None) => {
                let newest = records.last().map(|one| one.number);
                !has_own && newest == Some(before + own)
            }
        }
    };
    let starts = sources.boots.iter().zip(sources.boots.iter().skip(1));
    let failed = starts.filter(|(start, next)| start.at < next.at && is_known(start.at, next.at));
    let entry = |start: &KnownBoot| HistoryEntry {
        kernel: start.kernel.clone(),
        ..empty_entry(Some(start.at), Event::Boot, Outcome::NoEnd)
    };
    failed.map(|(start, _)| entry(start)).collect()
}

/// Inserts an entry without a snapshot before entries that are not earlier: a boot or run begins before the snapshot at its
/// end.
fn insert_entry(all: &mut Vec<HistoryEntry>, entry: HistoryEntry) {
    let later = |one: &HistoryEntry| one.at >= entry.at;
    // From the end: an early set-back of the clock must not pull later entries to the front.
    let at = all
        .iter()
        .rposition(|one| !later(one))
        .map_or(0, |at| at + 1);
    all.insert(at, entry);
}

fn empty_entry(at: Option<u64>, event: Event, outcome: Outcome) -> HistoryEntry {
    HistoryEntry {
        snapshot: None,
        at,
        event,
        outcome,
        config: None,
        deployment: None,
        kernel: None,
        boot: None,
        run: None,
        by: None,
        can_go_back: false,
        differences: None,
        clock_set_back: false,
        notes: Vec::new(),
    }
}

fn of_record(record: &SnapshotRecord) -> HistoryEntry {
    HistoryEntry {
        snapshot: Some(record.number),
        config: record.config.clone(),
        deployment: record.deployment.clone(),
        kernel: record.kernel.clone(),
        boot: record.boot.clone(),
        run: record.run.clone(),
        notes: record.notes.clone(),
        ..empty_entry(Some(record.at), record.event, record.outcome)
    }
}

fn of_run(run: &KnownRun) -> HistoryEntry {
    HistoryEntry {
        config: run.config.clone(),
        run: Some(run.id.clone()),
        by: run.by.clone(),
        can_go_back: run.can_go_back,
        ..empty_entry(Some(run.at), run.event, run.outcome)
    }
}

/// A moment of the history: a snapshot, or now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineMoment {
    /// Number of the snapshot; `None` for now.
    pub snapshot: Option<u64>,
    /// Time by the node's clock; seconds since 1970.
    pub at: u64,
    /// The reason for the snapshot; `None` for now.
    pub event: Option<Event>,
    /// The result; `None` for now.
    pub outcome: Option<Outcome>,
}

impl TimelineMoment {
    /// Returns the present moment.
    pub fn now(at: u64) -> Self {
        Self {
            snapshot: None,
            at,
            event: None,
            outcome: None,
        }
    }
}

impl From<&SnapshotRecord> for TimelineMoment {
    fn from(record: &SnapshotRecord) -> Self {
        Self {
            snapshot: Some(record.number),
            at: record.at,
            event: Some(record.event),
            outcome: Some(record.outcome),
        }
    }
}

/// Returns the moments between which a difference appeared. `since`: the snapshots since the last good boot, oldest first.
pub fn came_between(
    difference: &Difference,
    since: &[(SnapshotRecord, Snapshot)],
    now: u64,
) -> (TimelineMoment, TimelineMoment) {
    let is_as_now = |snapshot: &Snapshot| {
        let value = snapshot.get_fact(difference.area, &difference.subject);
        value == difference.after.as_deref()
    };
    let has_area =
        |(_, snapshot): &&(SnapshotRecord, Snapshot)| snapshot.facts.contains_key(&difference.area);
    let comparable: Vec<&(SnapshotRecord, Snapshot)> = since.iter().filter(has_area).collect();
    let last_before = comparable
        .iter()
        .rposition(|(_, snapshot)| !is_as_now(snapshot));
    let moment = |at: usize| {
        comparable
            .get(at)
            .map(|(record, _)| TimelineMoment::from(record))
    };
    let before = last_before.and_then(moment);
    let first = || {
        since
            .first()
            .map_or(TimelineMoment::now(now), |(record, _)| record.into())
    };
    let after = last_before.and_then(|at| moment(at + 1));
    (
        before.unwrap_or_else(first),
        after.unwrap_or(TimelineMoment::now(now)),
    )
}

/// Returns the word by which a check's evidence refers to a difference: a path, a unit, an interface, or an address.
pub fn name_of(area: Area, subject: &str) -> Option<&str> {
    let first = || subject.split(' ').next();
    let name = match area {
        Area::Etc => Some(subject.trim_end_matches("/**")),
        Area::BootFiles | Area::Esp | Area::Certificates | Area::Units | Area::Addresses => first(),
        Area::Interfaces | Area::BootEntries | Area::Disks => first(),
        Area::Deployment
        | Area::Origin
        | Area::CommandLine
        | Area::Versions
        | Area::Config
        | Area::Daemon
        | Area::Clock => None,
    };
    name.filter(|name| name.len() > 3)
}

/// Returns true if a text mentions a name that is not part of a longer name.
pub fn mentions_name(text: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/');
    let mut rest = text;
    let mut before = None;
    while let Some(at) = rest.find(name) {
        let (head, tail) = rest.split_at(at);
        let tail = tail.get(name.len()..).unwrap_or_default();
        let left = head.chars().next_back().or(before);
        let right = tail.chars().next();
        // A full stop may end a sentence.
        let ends = right.is_none_or(|c| !of_name(c))
            || (right == Some('.') && tail.chars().nth(1).is_none_or(|c| !of_name(c)));
        if left.is_none_or(|c| !of_name(c)) && ends {
            return true;
        }
        before = name.chars().next_back();
        rest = tail;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::recorder::{FactChange, Part};

    fn record(number: u64, at: u64, event: Event) -> SnapshotRecord {
        SnapshotRecord {
            version: SnapshotRecord::VERSION,
            number,
            at,
            event,
            outcome: Outcome::Good,
            boot: Some(format!("b{number}")),
            run: None,
            config: None,
            deployment: None,
            kernel: None,
            key: String::new(),
            parts: [(Part::Etc, String::new())].into(),
            notes: Vec::new(),
        }
    }

    fn short(all: &[HistoryEntry]) -> Vec<(Option<u64>, Option<u64>)> {
        all.iter().map(|one| (one.snapshot, one.at)).collect()
    }

    #[test]
    fn runs_without_a_snapshot_stand_between_the_boots() {
        let mut apply = record(2, 250, Event::Apply);
        apply.run = Some("r2".to_owned());
        let records = [
            record(1, 100, Event::Boot),
            apply,
            record(3, 300, Event::Boot),
        ];
        let run = |id: &str, at| KnownRun {
            id: id.to_owned(),
            at,
            event: Event::Apply,
            outcome: Outcome::Done,
            config: None,
            by: None,
            can_go_back: true,
        };
        let all = make_history(&HistorySources {
            records: &records,
            runs: vec![run("r1", 150), run("r2", 250)],
            ..HistorySources::default()
        });
        assert_eq!(
            short(&all),
            [
                (Some(1), Some(100)),
                (None, Some(150)),
                (Some(2), Some(250)),
                (Some(3), Some(300))
            ]
        );
        assert!(all[1].can_go_back && all[2].can_go_back && !all[3].can_go_back);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_change_the_order() {
        let records = [
            record(1, 500, Event::Boot),
            record(2, 100, Event::Boot),
            record(3, 200, Event::Boot),
        ];
        let all = make_history(&HistorySources {
            records: &records,
            ..HistorySources::default()
        });
        assert_eq!(
            short(&all),
            [
                (Some(1), Some(500)),
                (Some(2), Some(100)),
                (Some(3), Some(200))
            ]
        );
        let back: Vec<bool> = all.iter().map(|one| one.clock_set_back).collect();
        assert_eq!(back, [false, true, false]);
    }

    #[test]
    fn a_start_without_a_snapshot_did_not_reach_its_end() {
        let records = [record(1, 110, Event::Boot), record(2, 310, Event::Boot)];
        let boot = |at| KnownBoot { at, kernel: None };
        let all = make_history(&HistorySources {
            records: &records,
            boots: vec![boot(50), boot(105), boot(200), boot(300), boot(400)],
            running: Some(("b3".to_owned(), 400)),
            ..HistorySources::default()
        });
        let outcomes: Vec<_> = all.iter().map(|one| (one.at, one.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                (Some(110), Outcome::Good),
                (Some(200), Outcome::NoEnd),
                (Some(310), Outcome::Good),
                (Some(400), Outcome::Running),
            ]
        );
    }

    #[test]
    fn where_records_are_gone_no_start_is_called_failed() {
        let records = [record(1, 110, Event::Boot), record(4, 410, Event::Boot)];
        let boot = |at| KnownBoot { at, kernel: None };
        let all = make_history(&HistorySources {
            records: &records,
            boots: vec![boot(100), boot(200), boot(300), boot(400)],
            ..HistorySources::default()
        });
        assert_eq!(short(&all), [(Some(1), Some(110)), (Some(4), Some(410))]);
    }

    #[test]
    fn a_change_came_between_the_last_other_and_the_first_equal_snapshot() {
        let with = |value: &str| {
            let mut snapshot = Snapshot::default();
            snapshot.put_area(
                Area::Etc,
                Ok([("/etc/a".to_owned(), value.to_owned())].into()),
            );
            snapshot
        };
        let since = [
            (record(1, 100, Event::Boot), with("x")),
            (record(2, 200, Event::Boot), with("x")),
            (record(3, 300, Event::Boot), with("y")),
        ];
        let difference = |after: &str| Difference {
            area: Area::Etc,
            subject: "/etc/a".to_owned(),
            change: FactChange::Changed,
            before: Some("x".to_owned()),
            after: Some(after.to_owned()),
            harm: 1,
            text: None,
        };
        let numbers = |(from, to): (TimelineMoment, TimelineMoment)| (from.snapshot, to.snapshot);
        assert_eq!(
            numbers(came_between(&difference("y"), &since, 9)),
            (Some(2), Some(3))
        );
        assert_eq!(
            numbers(came_between(&difference("z"), &since, 9)),
            (Some(3), None)
        );
    }

    #[test]
    fn a_name_is_found_as_a_whole_word() {
        assert!(mentions_name("/etc/fstab", "/etc/fstab"));
        assert!(mentions_name("it is in /etc/fstab.", "/etc/fstab"));
        assert!(mentions_name(
            "systemctl show kubelet.service: failed",
            "kubelet.service"
        ));
        assert!(!mentions_name("/etc/fstab.d/a", "/etc/fstab"));
        assert!(!mentions_name("/mnt/etc/fstab", "/etc/fstab"));
        assert!(!mentions_name("eth01", "eth0"));
        assert!(mentions_name("eth01, eth0", "eth0"));
    }
}
