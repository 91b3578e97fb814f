//! Digests of files that this process has already read or written, so that the same bytes are not read twice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::stat::FileStat;

use crate::base::object::{HexDigest, ObjectKind, Stamp};
use crate::base::order::StableOrder;

/// Digests by inode, each with the file's stamp at that time.
///
/// A digest is valid only as long as the stamp is unchanged. Never stored on disk.
#[derive(Debug, Default)]
pub struct KnownDigests(Mutex<Table>);

/// A list, because a map would take twice the memory: usually many are added first, and then all are looked up. If each one is
/// added after a lookup, the list is sorted once for every [`TAIL`] of them.
#[derive(Debug, Default)]
struct Table {
    all: Vec<Known>,
    /// Number of entries at the beginning of `all` that are sorted by inode; of two with the same inode the newer one comes
    /// last.
    sorted: usize,
}

/// Maximum number of entries that are searched linearly.
const TAIL: usize = 128;

impl Table {
    fn add_known(&mut self, known: Known) {
        self.all.push(known);
    }

    fn find_inode(&mut self, inode: (u64, u64)) -> Option<&Known> {
        if self.all.len() > self.sorted + TAIL {
            self.all.order_by_key(|known| known.stamp.inode());
            self.sorted = self.all.len();
        }
        let (sorted, tail) = self.all.split_at_checked(self.sorted)?;
        let is_wanted = |known: &&Known| known.stamp.inode() == inode;
        let newest = tail.iter().rev().find(is_wanted);
        newest.or_else(|| {
            let behind = sorted.partition_point(|known| known.stamp.inode() <= inode);
            sorted.get(behind.checked_sub(1)?).filter(is_wanted)
        })
    }
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    sha256: HexDigest,
    /// True if this process created the file: it gets other names and attributes afterwards, which change its change time.
    written: bool,
}

/// Minimum file size in bytes: a smaller file is read again faster than its digest would be worth the memory.
const LEAST: u64 = 64 << 10;

/// Seconds within which a second change may leave the change time unchanged.
const RACY: i64 = 2;

impl KnownDigests {
    /// Adds a file that was read, unless it was changed just before: it could change again without a new stamp.
    pub fn learn_read(&self, stat: &FileStat, kind: &ObjectKind) {
        if !matches!(kind, ObjectKind::File { size, .. } if *size >= LEAST) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or_default());
        if stat.st_mtime.max(stat.st_ctime) < now.saturating_sub(RACY) {
            self.add_digest(stat, kind, false);
        }
    }

    /// Adds a file that this process has just made.
    pub fn learn_written(&self, stat: &FileStat, kind: &ObjectKind) {
        self.add_digest(stat, kind, true);
    }

    fn add_digest(&self, stat: &FileStat, kind: &ObjectKind, written: bool) {
        let ObjectKind::File { size, sha256 } = kind else {
            return;
        };
        let same_size = u64::try_from(stat.st_size).is_ok_and(|found| found == *size);
        let stamp = Stamp::from(stat);
        // An empty file is not read anyway.
        if same_size && *size > 0 && !kind.is_unread() {
            let known = Known {
                stamp,
                sha256: sha256.clone(),
                written,
            };
            self.lock_table().add_known(known);
        }
    }

    /// Returns the digest of a file that is unchanged.
    pub fn find_digest(&self, stat: &FileStat) -> Option<HexDigest> {
        let stamp = Stamp::from(stat);
        let mut all = self.lock_table();
        let known = all.find_inode(stamp.inode())?;
        let same = if known.written {
            known.stamp.same_but_change_time(&stamp)
        } else {
            known.stamp == stamp
        };
        same.then(|| known.sha256.clone())
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::sha256_hex;

    const SIZE: i64 = LEAST as i64;

    fn stat(modified: i64, changed: i64) -> FileStat {
        let mut stat = nix::sys::stat::stat("/").unwrap();
        (stat.st_dev, stat.st_ino, stat.st_size) = (1, 2, SIZE);
        (stat.st_mtime, stat.st_mtime_nsec) = (modified, 0);
        (stat.st_ctime, stat.st_ctime_nsec) = (changed, 0);
        stat
    }

    fn kind() -> ObjectKind {
        ObjectKind::File {
            size: LEAST,
            sha256: sha256_hex(b"abc").into(),
        }
    }

    #[test]
    fn a_digest_counts_as_long_as_the_stamp_is_the_same() {
        let known = KnownDigests::default();
        known.learn_read(&stat(100, 100), &kind());
        assert_eq!(
            known.find_digest(&stat(100, 100)),
            Some(sha256_hex(b"abc").into())
        );
        assert_eq!(known.find_digest(&stat(101, 101)), None);
        assert_eq!(known.find_digest(&stat(100, 101)), None);
    }

    #[test]
    fn of_many_files_the_newest_digest_of_each_is_found() {
        let known = KnownDigests::default();
        let of_inode = |inode: u64| {
            let mut stat = stat(100, 100);
            stat.st_ino = inode;
            stat
        };
        let mut newest = std::collections::BTreeMap::new();
        // More files are added between two lookups, and between two sorts, than are searched linearly.
        for step in 0..6000_u64 {
            let inode = step * 7919 % 611;
            let sha256: HexDigest = sha256_hex(&step.to_le_bytes()).into();
            newest.insert(inode, sha256.clone());
            let size = LEAST;
            known.learn_written(&of_inode(inode), &ObjectKind::File { size, sha256 });
            if step % 1000 < 500 {
                let other = step * 31 % 700;
                for inode in [inode, other] {
                    let found = known.find_digest(&of_inode(inode));
                    assert_eq!(found.as_ref(), newest.get(&inode), "{step}: {inode}");
                }
            }
        }
    }

    #[test]
    fn a_file_of_ours_may_get_another_name_but_no_other_bytes() {
        let known = KnownDigests::default();
        known.learn_written(&stat(100, 100), &kind());
        assert_eq!(
            known.find_digest(&stat(100, 200)),
            Some(sha256_hex(b"abc").into())
        );
        assert_eq!(known.find_digest(&stat(200, 200)), None);
    }

    #[test]
    fn a_file_that_was_just_changed_is_not_taken() {
        let known = KnownDigests::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        known.learn_read(&stat(now, now), &kind());
        assert_eq!(known.find_digest(&stat(now, now)), None);
    }

    #[test]
    fn the_digest_of_nothing_is_right() {
        assert_eq!(*HexDigest::of_nothing(), *sha256_hex(b""));
    }
}
