//! Removal of what runs leave in directories of their own. Names of others are kept and logged.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::disk;
use super::journal::is_tree_name;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// Returns the history directory of a run: its backup copies and its journal.
pub(super) fn history_path(id: &str) -> RootPath {
    RootPath::fixed(paths::HISTORY)
        .join(id)
        .unwrap_or_else(|_| RootPath::fixed(paths::HISTORY))
}

/// Opens a directory of this program; `None` if it is missing.
pub(super) fn open_own(root: &Root, path: &RootPath) -> Result<Option<File>, Reason> {
    let dir = root.open_directory(path)?;
    let opened = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
    Ok(opened.transpose()?)
}

/// Removes a staged name. A directory is removed with its content only if the run created all of it.
pub(super) fn remove_staged(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    if is_tree_name(name) {
        disk::remove_tree(dir, name)
    } else {
        disk::remove_staged(dir, name)
    }
}

/// Removes this program's names from a directory, then the directory. Other names are kept and logged. Returns false if a name
/// of this program is left.
pub(super) fn empty_directory(
    root: &Root,
    directory: &RootPath,
    is_ours: impl Fn(&str) -> bool,
    remove: impl Fn(BorrowedFd<'_>, &str) -> Result<(), Errno>,
) -> bool {
    let opened = open_own(root, directory).and_then(|dir| Ok((dir, root.list(directory)?)));
    let (dir, names) = match opened {
        Ok((Some(dir), names)) => (dir, names),
        Ok((None, _)) => return true,
        Err(reason) => {
            log::warn!("sweeping {directory}: {reason}");
            return false;
        }
    };
    let mut emptied = true;
    for name in names {
        if !is_ours(&name) {
            log::warn!("{directory}/{name} was not made by mco-rescue; it is left as it is");
        } else if let Err(errno) = remove(dir.as_fd(), &name) {
            log::warn!("removing {directory}/{name}: {}", Reason::from(errno));
            emptied = false;
        }
    }
    emptied & remove_if_empty(root, directory)
}

/// Removes an empty directory; one that is not empty is kept. Returns false if the system reported an error.
pub(super) fn remove_if_empty(root: &Root, directory: &RootPath) -> bool {
    let place = match root.open_place(directory) {
        Ok(Some(place)) => place,
        Ok(None) => return true,
        Err(error) => {
            log::warn!("removing {error}");
            return false;
        }
    };
    match disk::remove_directory(place.dir.as_fd(), &place.name) {
        Ok(_) => true,
        Err(errno) => {
            log::warn!("removing {directory}: {}", Reason::from(errno));
            false
        }
    }
}
