//! Which mount a descriptor is on, how much room it has, and what holds a name in place.
//!
//! Renames and links work within one *mount*, not one device: a bind mount of the
//! same file system answers EXDEV all the same.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::object::Flags;

/// One mount, as far as writing to it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's mount id.
    pub id: u64,
    /// The file system's device number.
    pub dev: u64,
    /// Bytes an ordinary write may still take.
    pub free_bytes: u64,
    /// Inodes left; `None` where the file system does not count them.
    pub free_inodes: Option<u64>,
    /// Mounted read-only.
    pub read_only: bool,
}

/// The mount that a directory is on.
pub fn mount_of(dir: impl AsFd) -> Result<Mount, Errno> {
    let space = fstatvfs(&dir)?;
    Ok(Mount {
        id: mount_id(&dir)?,
        dev: fstat(&dir)?.st_dev,
        free_bytes: space.blocks_available() * space.fragment_size(),
        free_inodes: (space.files() > 0).then(|| space.files_available()),
        read_only: space.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// What holds a name in place, whatever the permissions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The mount that is seen there.
    pub mount: u64,
    /// Flags of the file system.
    pub flags: Flags,
}

/// The mount id; kernels before 5.8 tell it only through `/proc`.
pub fn mount_id(dir: impl AsFd) -> Result<u64, Errno> {
    hold_of(dir).map(|hold| hold.mount)
}

/// Mount and flags of what is open; nothing but a path descriptor is needed.
pub fn hold_of(fd: impl AsFd) -> Result<Hold, Errno> {
    let number = fd.as_fd().as_raw_fd();
    let answer = statx(number)?;
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
        mount_id_from_proc(number)?
    };
    Ok(Hold { mount, flags })
}

fn statx(fd: i32) -> Result<libc::statx, Errno> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open for the call, the path is an empty C string, and the buffer is ours.
    let result = unsafe {
        libc::statx(
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            answer.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: statx succeeded, and the buffer was zeroed before: every field is initialised.
    Ok(unsafe { answer.assume_init() })
}

fn mount_id_from_proc(fd: i32) -> Result<u64, Errno> {
    #[allow(
        clippy::disallowed_methods,
        reason = "procfs of the running kernel, not a path of the node's root"
    )]
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).map_err(|_| Errno::ENOSYS)?;
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or(Errno::ENOSYS)
}
