//! The checks, one file each. Each is a pure judgement on [`super::Evidence`].

mod fp_03_drift;

use super::Check;

/// All checks, in the order in which they are told among equals.
pub const CHECKS: [Check; 1] = [fp_03_drift::CHECK];
