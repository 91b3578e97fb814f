//! Digests of files known from the last snapshot: a file whose inode, size and times are unchanged is not read again.
//!
//! The modification time can be set to any value, but the time of the last inode change (`ctime`) cannot: the kernel updates it
//! at each change of content, mode or owner. So both have to be unchanged. With a clock that was set back, a change can get the
//! same `ctime` again only in the very same nanosecond.

use std::collections::BTreeMap;
use std::fmt::Write;

use nix::sys::stat::FileStat;

use crate::host::root::sha256_hex;

/// Seconds within which a second change may leave the times unchanged: such a file is read again next time.
const RACY: i64 = 2;
/// First word of the file.
const HEAD: &str = "mco-rescue-digests-1";

/// Inode number, size and times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&FileStat> for FileStamp {
    fn from(stat: &FileStat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl FileStamp {
    /// Returns the stamp of a file on a FAT file system, which has no inode and no `ctime`: a change that keeps size and time
    /// is not detected.
    pub fn of_fat(size: u64, modified: u64) -> Self {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            inode: 0,
            size: number(size),
            modified: (number(modified), 0),
            changed: (0, 0),
        }
    }
}

/// Digests of files, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownFiles(BTreeMap<String, (FileStamp, String)>);

impl KnownFiles {
    /// Returns the digest of a file if it is unchanged.
    pub fn find_digest(&self, path: &str, stamp: FileStamp) -> Option<&str> {
        let (known, digest) = self.0.get(path)?;
        (*known == stamp).then_some(digest)
    }

    /// Adds a digest, unless the file was changed within the last seconds: it could change again without a new stamp.
    pub fn add_digest(&mut self, path: &str, stamp: FileStamp, digest: &str, now: u64) {
        let now = i64::try_from(now).unwrap_or_default();
        let is_old =
            stamp.inode == 0 || stamp.modified.0.max(stamp.changed.0) < now.saturating_sub(RACY);
        if is_old && !path.contains('\n') {
            self.0.insert(path.to_owned(), (stamp, digest.to_owned()));
        }
    }

    /// Serializes the file; `key` is the id of the key of the digests.
    pub fn to_bytes(&self, key: &str) -> Vec<u8> {
        let mut text = format!("{HEAD} {key}\n");
        for (path, (stamp, digest)) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{digest} {} {} {}.{} {}.{} {path}",
                stamp.inode,
                stamp.size,
                stamp.modified.0,
                stamp.modified.1,
                stamp.changed.0,
                stamp.changed.1
            );
        }
        let seal = sha256_hex(text.as_bytes());
        (text + &seal + "\n").into_bytes()
    }

    /// Parses the file; the result is empty if it is damaged or belongs to another key.
    pub fn parse(bytes: &[u8], key: &str) -> Self {
        Self::try_parse(bytes, key).unwrap_or_default()
    }

    fn try_parse(bytes: &[u8], key: &str) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (text, seal) = text.split_at(text.rfind('\n')? + 1);
        if sha256_hex(text.as_bytes()) != seal {
            return None;
        }
        // A name may end in a carriage return.
        let mut lines = text.split_terminator('\n');
        (lines.next()? == format!("{HEAD} {key}")).then_some(())?;
        lines.map(parse_line).collect::<Option<_>>().map(Self)
    }
}

fn parse_line(line: &str) -> Option<(String, (FileStamp, String))> {
    let mut words = line.splitn(6, ' ');
    let digest = words.next()?.to_owned();
    let inode = words.next()?.parse().ok()?;
    let size = words.next()?.parse().ok()?;
    let mut time = || {
        let (seconds, rest) = words.next()?.split_once('.')?;
        Some((seconds.parse().ok()?, rest.parse().ok()?))
    };
    let (modified, changed) = (time()?, time()?);
    let path = words.next()?.to_owned();
    let stamp = FileStamp {
        inode,
        size,
        modified,
        changed,
    };
    Some((path, (stamp, digest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(modified: i64, changed: i64) -> FileStamp {
        FileStamp {
            inode: 7,
            size: 3,
            modified: (modified, 5),
            changed: (changed, 6),
        }
    }

    #[test]
    fn a_digest_counts_as_long_as_all_times_are_the_same() {
        let mut known = KnownFiles::default();
        known.add_digest("/etc/a b", stamp(100, 100), "abc", 1000);
        let back = KnownFiles::parse(&known.to_bytes("k"), "k");
        assert_eq!(back, known);
        assert_eq!(back.find_digest("/etc/a b", stamp(100, 100)), Some("abc"));
        // The modification time was set back after a change.
        assert_eq!(back.find_digest("/etc/a b", stamp(100, 200)), None);
        assert_eq!(back.find_digest("/etc/b", stamp(100, 100)), None);
    }

    #[test]
    fn a_file_that_was_just_changed_is_read_again() {
        let mut known = KnownFiles::default();
        known.add_digest("/etc/a", stamp(100, 999), "abc", 1000);
        assert_eq!(known, KnownFiles::default());
    }

    #[test]
    fn a_damaged_file_and_one_of_another_key_are_not_used() {
        let mut known = KnownFiles::default();
        known.add_digest("/etc/a", stamp(100, 100), "abc", 1000);
        let bytes = known.to_bytes("k");
        assert_eq!(KnownFiles::parse(&bytes, "other"), KnownFiles::default());
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(KnownFiles::parse(&bad, "k"), KnownFiles::default(), "{at}");
            let cut = bytes.get(..at).unwrap();
            assert_eq!(KnownFiles::parse(cut, "k"), KnownFiles::default(), "{at}");
        }
    }

    #[test]
    fn a_name_that_ends_in_a_carriage_return_keeps_it() {
        let mut known = KnownFiles::default();
        known.add_digest("/etc/a\r", FileStamp::of_fat(1, 2), "digest", 10);
        assert_eq!(KnownFiles::parse(&known.to_bytes("key"), "key"), known);
    }
}
