//! The daemon's force file (docs/agreement.md: Start): in memory and of this boot only, so no journal concerns it.

use std::fs::File;

use super::disk;
use super::state::{StateError, make_path_durably};
use crate::node::Labels;
use crate::paths;
use crate::reason::Reason;
use crate::root::{Root, RootPath};

/// Makes the daemon skip its comparison when it starts next, write everything anew, and reboot.
///
/// # Errors
/// What the kernel said.
pub fn request_force(root: &Root) -> Result<(), StateError> {
    let (dir, name) = place(root)?;
    disk::replace_durably(&dir, name, b"").map_err(failed)
}

/// Takes that back; where it was never asked for that is fine.
///
/// # Errors
/// What the kernel said.
pub fn withdraw_force(root: &Root) -> Result<(), StateError> {
    use std::os::fd::AsFd;
    let (dir, name) = place(root)?;
    disk::remove_file(dir.as_fd(), name).map_err(failed)
}

fn place(root: &Root) -> Result<(File, &'static str), StateError> {
    let (above, name) = paths::FORCE
        .rsplit_once('/')
        .unwrap_or(("run", paths::FORCE));
    let dir = make_path_durably(root, &RootPath::fixed(above), &Labels::default())?;
    Ok((dir, name))
}

fn failed(why: impl Into<Reason>) -> StateError {
    StateError::System(format!("/{}", paths::FORCE), why.into())
}
