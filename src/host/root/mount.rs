//! Which mount a descriptor is on, how much space it has, and what holds a name in place.
//!
//! Renames and links work within one *mount*, not one device: even a bind mount of the same file system returns EXDEV.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::base::object::Flags;
use crate::host::running;

/// The smallest and largest block size of a local file system.
const BLOCKS: (u64, u64) = (4 << 10, 64 << 10);

/// A mount, with the properties that matter for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's mount id.
    pub id: u64,
    /// The file system's device number.
    pub dev: u64,
    /// Bytes available to an ordinary write.
    pub free_bytes: u64,
    /// Free inodes; `None` if the file system does not count them.
    pub free_inodes: Option<u64>,
    /// Minimum number of bytes that a file takes: 4 KiB, or the block size, which is up to 64 KiB on machines with such pages.
    pub block: u64,
    /// True if mounted read-only.
    pub read_only: bool,
}

/// Returns the mount that a directory is on.
pub fn mount_of(dir: impl AsFd) -> Result<Mount, Errno> {
    let space = fstatvfs(&dir)?;
    let block = space.fragment_size();
    Ok(Mount {
        id: mount_id(&dir)?,
        dev: fstat(&dir)?.st_dev,
        free_bytes: space.blocks_available() * block,
        free_inodes: (space.files() > 0).then(|| space.files_available()),
        // A network file system reports its message size, which is larger.
        block: block.clamp(BLOCKS.0, BLOCKS.1),
        read_only: space.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// Returns the mount points of local disks below a directory with this real path, relative to it.
pub(super) fn points_below(directory: &str) -> Vec<String> {
    let mounts = running::read_text("/proc/self/mountinfo").unwrap_or_default();
    points_in(&mounts, directory)
}

/// File systems whose contents survive a reboot.
const LOCAL: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];

/// Parses lines like `36 35 98:0 /of/the/disk /mnt rw,noatime shared:1 - ext4 /dev/root rw`.
fn points_in(mounts: &str, directory: &str) -> Vec<String> {
    let directory = directory.trim_end_matches('/');
    let point = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let kind = kind.split(' ').next()?;
        let place = unescape_octal(place.split(' ').nth(4)?);
        let below = place.strip_prefix(directory)?.strip_prefix('/')?;
        (LOCAL.contains(&kind) && !below.is_empty()).then(|| below.to_owned())
    };
    mounts.lines().filter_map(point).collect()
}

/// Replaces octal escapes, such as the one for a space.
fn unescape_octal(text: &str) -> String {
    let pairs = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let replace = |text: String, (code, letter): &(&str, &str)| text.replace(code, letter);
    pairs.iter().fold(text.to_owned(), replace)
}

/// The mount and the flags that protect a name, whatever its permissions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Id of the mount that is visible there.
    pub mount: u64,
    /// Flags of the file system.
    pub flags: Flags,
    /// True if the object has several names (hard links).
    pub has_more_names: bool,
}

/// Returns the mount id; kernels before 5.8 report it only through `/proc`.
pub fn mount_id(dir: impl AsFd) -> Result<u64, Errno> {
    hold_of(dir).map(|hold| hold.mount)
}

/// Returns mount and flags of an open object; a path descriptor is sufficient.
pub fn hold_of(fd: impl AsFd) -> Result<Hold, Errno> {
    stat_of_open(fd).map(|(_, hold)| hold)
}

/// Returns the stat of an open object, with its mount and flags: one call instead of three.
pub fn stat_of_open(fd: impl AsFd) -> Result<(FileStat, Hold), Errno> {
    let fd = fd.as_fd();
    let answer = call_statx(fd, c"", libc::AT_EMPTY_PATH)?;
    let hold = hold_in(&answer, || mount_id_from_proc(fd.as_raw_fd()))?;
    Ok((stat_of(&answer), hold))
}

/// Returns the stat of a name, without following it, with its mount and flags.
pub(super) fn stat_at(dir: BorrowedFd<'_>, name: &str) -> Result<(FileStat, Hold), Errno> {
    let path = CString::new(name).map_err(|_| Errno::EINVAL)?;
    let answer = call_statx(dir, &path, libc::AT_SYMLINK_NOFOLLOW)?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let hold = hold_in(&answer, || {
        let fd = openat(dir, name, flags, Mode::empty())?;
        mount_id_from_proc(fd.as_raw_fd())
    })?;
    Ok((stat_of(&answer), hold))
}

/// Converts to the result of `stat`; of the times, only those of the content and of the inode.
fn stat_of(answer: &libc::statx) -> FileStat {
    let stat = std::mem::MaybeUninit::<FileStat>::zeroed();
    // SAFETY: a stat consists of numbers, for which zero is a valid value.
    let mut stat = unsafe { stat.assume_init() };
    stat.st_dev = libc::makedev(answer.stx_dev_major, answer.stx_dev_minor);
    stat.st_ino = answer.stx_ino;
    stat.st_mode = u32::from(answer.stx_mode);
    stat.st_nlink = answer.stx_nlink.into();
    stat.st_uid = answer.stx_uid;
    stat.st_gid = answer.stx_gid;
    stat.st_size = answer.stx_size.cast_signed();
    stat.st_mtime = answer.stx_mtime.tv_sec;
    stat.st_mtime_nsec = answer.stx_mtime.tv_nsec.into();
    stat.st_ctime = answer.stx_ctime.tv_sec;
    stat.st_ctime_nsec = answer.stx_ctime.tv_nsec.into();
    stat
}

/// Returns mount and flags; kernels before 5.8 do not report the mount.
fn hold_in(
    answer: &libc::statx,
    mount_id: impl FnOnce() -> Result<u64, Errno>,
) -> Result<Hold, Errno> {
    let has = |attribute: libc::c_int| {
        let bit = u64::from(attribute.unsigned_abs());
        answer.stx_attributes & answer.stx_attributes_mask & bit != 0
    };
    let flags = Flags {
        immutable: has(libc::STATX_ATTR_IMMUTABLE),
        append_only: has(libc::STATX_ATTR_APPEND),
    };
    let mount = if answer.stx_mask & libc::STATX_MNT_ID != 0 {
        answer.stx_mnt_id
    } else {
        mount_id()?
    };
    Ok(Hold {
        mount,
        flags,
        has_more_names: answer.stx_nlink > 1,
    })
}

fn call_statx(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_int) -> Result<libc::statx, Errno> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: descriptor and path live through the call, and the buffer is ours.
    let result = unsafe {
        libc::statx(
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS | libc::STATX_MNT_ID,
            answer.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: statx succeeded, and the buffer was zeroed before: every field is initialised.
    Ok(unsafe { answer.assume_init() })
}

fn mount_id_from_proc(fd: i32) -> Result<u64, Errno> {
    let info = running::read_text(format!("/proc/self/fdinfo/{fd}")).map_err(|_| Errno::ENOSYS)?;
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or(Errno::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::points_in;

    #[test]
    fn only_local_disks_below_the_directory_count() {
        let mounts = "1 0 8:1 / / rw - xfs /dev/sda1 rw\n2 1 8:2 / /var rw shared:1 - xfs /dev/sda2 rw\n\
                      3 2 0:5 / /var/lib/nfs rw - nfs4 a:/b rw\n4 2 8:3 / /var/lib/my\\040disk rw - ext4 /dev/sdb rw\n\
                      5 1 0:6 / /various rw - tmpfs tmpfs rw\n";
        assert_eq!(points_in(mounts, "/"), ["var", "var/lib/my disk"]);
        assert_eq!(points_in(mounts, "/var"), ["lib/my disk"]);
        assert_eq!(points_in(mounts, "/mnt"), [""; 0]);
    }
}
