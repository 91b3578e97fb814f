//! Files of a run on a separate `/boot`: GRUB cannot replay the journal of XFS, so it does not see changes that are only in the
//! journal. After the last sync, the file system is frozen and thawed, as ostree does for its own files there.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::disk;
use super::journal::Journal;
use crate::base::invocation::node_path;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// Returns true if a path is on `/boot`.
pub fn is_on_boot(path: &RootPath) -> bool {
    path.relative() == paths::BOOT || path.is_in(paths::BOOT)
}

/// Empties the journal of `/boot` if the run changed something there. An error is logged: the bytes are durable already.
pub(super) fn settle_boot(root: &Root, journal: &Journal) {
    if !journal
        .steps
        .iter()
        .any(|step| is_on_boot(step.step.path()))
    {
        return;
    }
    let settled = match root.open_directory(&RootPath::fixed(paths::BOOT)) {
        Ok(Some(dir)) => empty_journal(root, dir),
        Ok(None) => return,
        Err(error) => Err(Reason::from(error)),
    };
    if let Err(reason) = settled {
        log::warn!(
            "/boot is flushed, but not frozen and thawed: {reason}. A boot loader that cannot replay the journal of XFS sees the \
             changes only after the next unmount. Next: fsfreeze --freeze {boot}, then fsfreeze --unfreeze {boot}",
            boot = node_path(paths::BOOT)
        );
    }
}

/// Freezes and thaws the file system of a directory, or syncs it if that is impossible.
pub(super) fn empty_journal(root: &Root, dir: impl AsFd) -> Result<(), Reason> {
    let device = |fd: std::os::fd::BorrowedFd<'_>| fstat(fd).map(|stat| stat.st_dev);
    // The file system that this program itself writes to is never frozen.
    let own = [device(root.as_fd())?, state_device(root)?];
    if own.contains(&device(dir.as_fd())?) {
        return Ok(());
    }
    let dir = disk::open_directory(dir.as_fd(), ".")?;
    match disk::freeze_and_thaw(&dir) {
        // Freezing is unsupported, or another program is freezing it right now: the sync has to suffice.
        Err(Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::ENOSYS | Errno::EBUSY | Errno::EINVAL) => {
            Ok(disk::sync_file_system(&dir)?)
        }
        other => Ok(other?),
    }
}

fn state_device(root: &Root) -> Result<u64, Reason> {
    let state = root.open_directory(&RootPath::fixed(paths::STATE));
    let state = state.map_err(Reason::from)?;
    match state {
        Some(dir) => Ok(fstat(dir.as_fd())?.st_dev),
        None => Ok(fstat(root.as_fd())?.st_dev),
    }
}
