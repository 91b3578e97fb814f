//! The checks before a node boots another OS image, one file each.

mod identity;

use super::CrossingCheck;

/// All checks, in the order of a boot.
pub const ALL: &[CrossingCheck] = &[identity::CHECK];
