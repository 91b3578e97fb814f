//! The units of a root that systemd refuses to load, or of which it ignores a setting.

use super::{ObjectObserver, units};
use crate::formats::systemd::{JudgedUnit, judge_units, read_units, units_to_judge};
use crate::host::root::{Root, RootError, hold_of};

/// Reads the units of `/etc/systemd/system` and those that they modify, and returns systemd's objections.
///
/// # Errors
/// A directory or file cannot be read.
pub fn read_judged_units(root: &Root) -> Result<Vec<JudgedUnit>, RootError> {
    let hold = hold_of(root.as_fd()).map_err(|errno| RootError::at("/", errno))?;
    let mut observer = ObjectObserver::new(root, hold.mount, false);
    let mut tree = units::list_units(root, &mut observer)?;
    let names = units_to_judge(&tree);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let support = units::systemd_support(root)?;
    let mut read = |path: &str| units::read_entry(&mut observer, path);
    read_units(&mut tree, &names, &[], &support, &mut read)?;
    Ok(judge_units(&tree))
}
