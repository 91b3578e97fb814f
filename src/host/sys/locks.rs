//! Files that a process on this machine has locked.

use std::io;

use crate::host::running;

/// Returns true if a process holds a lock on a file with this inode number. A file on another disk may have the same number.
///
/// # Errors
/// The kernel's list of locks cannot be read.
pub fn is_locked(inode: u64) -> io::Result<bool> {
    let list = running::read_text("/proc/locks")?;
    Ok(list.lines().any(|line| is_lock_on(line, inode)))
}

/// Returns true for a lock on the file, in a line like `1: FLOCK ADVISORY WRITE 1234 fd:00:5678 0 EOF`; one with `->` belongs to a waiting process.
fn is_lock_on(line: &str, inode: u64) -> bool {
    let mut words = line.split_whitespace();
    let holds = words.nth(1).is_some_and(|kind| kind != "->");
    let file = words.nth(3).and_then(|file| file.rsplit(':').next());
    holds && file.and_then(|number| number.parse().ok()) == Some(inode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_line_names_the_inode_of_a_lock_that_is_held() {
        assert!(is_lock_on(
            "1: FLOCK  ADVISORY  WRITE 17 fe:00:5678 0 EOF",
            5678
        ));
        assert!(is_lock_on(
            "2: OFDLCK ADVISORY  WRITE -1 00:2a:5678 0 EOF",
            5678
        ));
        assert!(!is_lock_on(
            "2: -> FLOCK ADVISORY  WRITE 17 fe:00:5678 0 EOF",
            5678
        ));
        assert!(!is_lock_on(
            "3: POSIX ADVISORY  READ 17 fe:00:56 128 128",
            5678
        ));
        assert!(!is_lock_on("", 5678));
    }

    #[test]
    fn a_lock_of_this_process_is_seen_until_it_ends() {
        let file = tempfile::tempfile().unwrap();
        let inode = file.metadata().unwrap().ino();
        assert!(!is_locked(inode).unwrap());
        file.lock().unwrap();
        assert!(is_locked(inode).unwrap());
        file.unlock().unwrap();
        assert!(!is_locked(inode).unwrap());
    }
}
