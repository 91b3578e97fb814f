//! The daemon's force file (docs/develop/agreement.md: Start): in memory and only for this boot, so it is not part of a journal.

use std::fs::File;

use super::disk;
use super::state::{StateError, make_path_durably};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::Labels;

/// Makes the daemon, at its next start, skip its comparison, rewrite everything, and reboot.
///
/// # Errors
/// The kernel's error.
pub fn request_force(root: &Root) -> Result<(), StateError> {
    let (dir, name) = force_place(root)?;
    disk::replace_durably(&dir, name, b"").map_err(force_error)
}

/// Withdraws the request; a missing request is not an error.
///
/// # Errors
/// The kernel's error.
pub fn withdraw_force(root: &Root) -> Result<(), StateError> {
    use std::os::fd::AsFd;
    let (dir, name) = force_place(root)?;
    disk::remove_file(dir.as_fd(), name).map_err(force_error)
}

fn force_place(root: &Root) -> Result<(File, &'static str), StateError> {
    let (above, name) = paths::FORCE
        .rsplit_once('/')
        .unwrap_or(("run", paths::FORCE));
    let dir = make_path_durably(root, &RootPath::fixed(above), &Labels::default())?;
    Ok((dir, name))
}

fn force_error(why: impl Into<Reason>) -> StateError {
    StateError::System(format!("/{}", paths::FORCE), why.into())
}
