//! GRUB's part in a trial with another operating system.

use std::path::Path;

use anyhow::Result;

use crate::change::transaction::{self, Lock};
use crate::formats::grub::CounterState;
use crate::host::root::Root;
use crate::node::boot_counter::{self};
use crate::node::mounts;

/// Disarms the boot counter, if GRUB has one.
///
/// # Errors
/// GRUB's environment cannot be written.
pub(super) fn disarm_boot_counter(root: &Root, lock: &Lock) -> Result<()> {
    let counter = boot_counter::observe_boot_counter(root)?;
    // The lines alone have no effect; a mark is left if disarming was interrupted.
    if counter.state == CounterState::Missing && !counter.has_mark {
        return Ok(());
    }
    transaction::disarm_boot_counter(&open_with_writable_boot(root)?, lock)?;
    Ok(())
}

/// Opens the root again, with a writable `/boot`. A root that is already open still refers to the read-only mount.
pub(super) fn open_with_writable_boot(root: &Root) -> Result<Root> {
    if !root.is_live() {
        return Ok(root.open_again()?);
    }
    mounts::make_writable(Path::new("/boot"))?;
    Ok(Root::open(Path::new("/"))?)
}
