//! What else changes this node beside its daemon: a prepared soft reboot, and programs that own a part of it.

use crate::root::Root;

use super::boot;

/// Facts on the running node. All false on any other root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// A soft reboot is prepared.
    pub soft_prepared: bool,
}

impl Neighbours {
    /// Reads them.
    pub fn observe(root: &Root) -> Self {
        Self {
            soft_prepared: boot::is_soft_prepared(root),
        }
    }
}
