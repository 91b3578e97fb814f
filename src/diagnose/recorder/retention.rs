//! Selects the snapshots that are kept.

use super::SnapshotRecord;
use crate::base::order::StableOrder;

/// Returns the numbers of the records to delete so that `kept` remain.
///
/// In the older half, boots that changed nothing are deleted first, so that a node that keeps restarting keeps the snapshots
/// that differ. The newest good boot is never deleted.
pub fn find_surplus(records: &[SnapshotRecord], kept: usize) -> Vec<u64> {
    let mut left: Vec<&SnapshotRecord> = records.iter().collect();
    left.order_by_key(|record| record.number);
    let good = left.iter().rfind(|record| record.is_good_boot());
    let good = good.map(|record| record.number);
    let mut gone = Vec::new();
    while left.len() > kept.max(1) {
        let half = left.len() / 2;
        let mut repeated = left.windows(2).take(half);
        let repeated = repeated.position(|pair| match pair {
            [before, after] => before.parts == after.parts && Some(after.number) != good,
            _ => false,
        });
        let oldest = || left.iter().position(|record| Some(record.number) != good);
        // Of two equal ones the later is deleted: the earlier one shows the time of the change.
        let Some(at) = repeated.map(|at| at + 1).or_else(oldest) else {
            break;
        };
        gone.push(left.remove(at).number);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::recorder::{Event, Outcome, Part};

    fn record(number: u64, part: &str, outcome: Outcome) -> SnapshotRecord {
        SnapshotRecord {
            version: SnapshotRecord::VERSION,
            number,
            at: 0,
            event: Event::Boot,
            outcome,
            boot: None,
            run: None,
            config: None,
            deployment: None,
            kernel: None,
            key: String::new(),
            parts: [(Part::Etc, part.to_owned())].into(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_oldest_go_and_the_newest_good_boot_stays() {
        let mut all: Vec<SnapshotRecord> = (1..=70)
            .map(|n| record(n, &n.to_string(), Outcome::NoKubelet))
            .collect();
        assert_eq!(find_surplus(&all, 64), [1, 2, 3, 4, 5, 6]);
        all[0].outcome = Outcome::Good;
        assert_eq!(find_surplus(&all, 64), [2, 3, 4, 5, 6, 7]);
        assert_eq!(find_surplus(&all[..64], 64), Vec::<u64>::new());
    }

    #[test]
    fn a_node_that_restarts_all_the_time_keeps_what_differs() {
        let mut all: Vec<SnapshotRecord> =
            (1..=60).map(|n| record(n, "same", Outcome::Good)).collect();
        all.insert(0, record(0, "other", Outcome::Good));
        let gone = find_surplus(&all, 8);
        let left: Vec<u64> = all
            .iter()
            .map(|one| one.number)
            .filter(|n| !gone.contains(n))
            .collect();
        assert_eq!(left.len(), 8);
        assert!(left.starts_with(&[0, 1]), "{left:?}");
        assert_eq!(left.last(), Some(&60));
    }
}
