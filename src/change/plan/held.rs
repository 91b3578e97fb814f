//! Whatever prevents even root from changing names: flags (`chattr +i`, `+a`) and mounts.
//!
//! Flags are only cleared on request (`--clear-immutable`), right before the first rename, and set again on the object that is
//! at the path afterwards. The flags of a root directory are never cleared: on OSTree systems it is immutable by design.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Plan, Step};
use crate::base::notice::Notice;
use crate::base::object::Flags;
use crate::base::paths;
use crate::host::root::{Obstacle, RootPath};
use crate::node::NodeState;

/// A path whose flags are cleared for the renames and set again afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// A target, or its directory.
    pub path: RootPath,
    /// Its current flags.
    #[serde(flatten)]
    pub flags: Flags,
}

/// Adds blockers for mount points, and for flags unless these may be cleared.
pub(super) fn hold_flags(plan: &mut Plan, node: &NodeState, clear: bool) {
    if plan.steps.is_empty() {
        return;
    }
    let mut found = FoundFlags::default();
    for planned in &plan.steps {
        found.check_target(&planned.step, node);
        found.check_directory(&planned.step, node);
    }
    found.check_state(node);
    let names_change = |planned: &&super::PlannedStep| changes_names(&planned.step);
    for planned in plan.steps.iter().filter(names_change).filter(|_| clear) {
        found.check_staging(planned.step.path(), node);
    }
    plan.blockers.extend(found.blockers);
    if clear {
        plan.held.extend(find_held(found.flags, plan));
    } else {
        plan.blockers
            .extend(found.flags.into_iter().map(flags_notice));
    }
}

fn find_held(flags: BTreeMap<RootPath, Flags>, plan: &Plan) -> Vec<Held> {
    let known = |path: &RootPath| plan.held.iter().any(|held| held.path == *path);
    let new = flags.into_iter().filter(|(path, _)| !known(path));
    new.map(|(path, flags)| Held { path, flags }).collect()
}

fn flags_notice((path, flags): (RootPath, Flags)) -> Notice {
    let letters = flags.letters();
    let message = format!(
        "is {} (chattr +{letters}), so nothing can be changed there. Clear it with `chattr -{letters} {path}`, \
         or use --clear-immutable, which sets it again afterwards",
        flags.words(),
    );
    held_notice(path.to_string(), message)
}

fn describe_mount(path: &RootPath, node: &NodeState) -> String {
    if path.relative() == paths::CRYPTO_POLICY && node.host.fips == Some(true) {
        return "is a mount point: a system in FIPS mode has its own policy mounted there, and keeps it. Take this file out of \
                the MachineConfigs of nodes in FIPS mode; the daemon's update fails on it, too, unless its release \
                skips the file in FIPS mode"
            .to_owned();
    }
    format!(
        "is a mount point, so it cannot be replaced or removed. See `findmnt {path}`, then `umount {path}`, and stop what \
         mounts it"
    )
}

#[derive(Default)]
struct FoundFlags {
    flags: BTreeMap<RootPath, Flags>,
    blockers: Vec<Notice>,
}

impl FoundFlags {
    fn add_blocker(&mut self, subject: String, message: String) {
        let notice = held_notice(subject, message);
        if !self.blockers.contains(&notice) {
            self.blockers.push(notice);
        }
    }

    fn check_target(&mut self, step: &Step, node: &NodeState) {
        let path = step.path();
        let flags = node.flags.get(path).map(|flags| (path.clone(), *flags));
        self.flags.extend(flags);
        if node.mount_points.contains(path) && changes_names(step) {
            self.add_blocker(path.to_string(), describe_mount(path, node));
        }
        if let Some(obstacle) = node
            .obstacles
            .get(path)
            .filter(|_| step.exchanges_directory())
        {
            self.check_below(path, obstacle);
        }
    }

    fn check_below(&mut self, path: &RootPath, obstacle: &Obstacle) {
        match obstacle {
            Obstacle::Mount(below) => {
                let message = format!(
                    "cannot be removed: something is mounted below it. See `findmnt {below}`, then `umount {below}`"
                );
                self.add_blocker(path.to_string(), message);
            }
            Obstacle::Flagged(below, flags) => {
                let message = format!(
                    "cannot be removed: {below} below it is {}. Run `chattr -R -{} {path}` first",
                    flags.words(),
                    flags.letters(),
                );
                self.add_blocker(path.to_string(), message);
            }
        }
    }

    /// Adds the directory in which a name changes: the nearest existing one.
    fn check_directory(&mut self, step: &Step, node: &NodeState) {
        if !changes_names(step) {
            return;
        }
        match nearest_existing(step.path(), node) {
            Some(above) => {
                let flags = node.flags.get(&above).copied();
                self.flags.extend(flags.map(|flags| (above, flags)));
            }
            None if node.root_flags.is_empty() => {}
            None => {
                let message = format!(
                    "would be a new name in the root directory, which is {}: on OSTree systems by design, so this \
                     flag is never cleared here. Use a path below /etc or /var; elsewhere see `lsattr -d /`",
                    node.root_flags.words(),
                );
                self.add_blocker(step.path().to_string(), message);
            }
        }
    }

    /// Checks this program's own state, which is written before any flag is cleared.
    fn check_state(&mut self, node: &NodeState) {
        let above = nearest_existing(&RootPath::fixed(paths::STATUS), node);
        let flags = above.and_then(|path| node.flags.get(&path).map(|flags| (path, *flags)));
        if let Some((path, flags)) = flags {
            let letters = flags.letters();
            let message = format!(
                "is {}, and the journal has to be written below it first. Clear it with `chattr -{letters} {path}`",
                flags.words(),
            );
            self.flags.remove(&path);
            self.add_blocker(path.to_string(), message);
        }
    }

    /// Checks the staging directory: new objects are staged on the mount of their target while the flags are still set.
    fn check_staging(&mut self, path: &RootPath, node: &NodeState) {
        let mount = node.mount_for(path);
        let free = |above: RootPath| {
            let directory = node.directories.get(&above);
            directory.is_some_and(|directory| directory.mount == mount)
                && !node.flags.contains_key(&above)
        };
        let at_root = node.root_mount == mount && node.root_flags.is_empty();
        let own = node.mount_for(&RootPath::fixed(paths::STATUS)) == mount;
        if own || at_root || path.ancestors().skip(1).any(free) {
            return;
        }
        if let Some(above) = nearest_existing(path, node) {
            let message = format!(
                "carries flags like every directory above it on its mount, so nothing can be staged there. \
                 Clear one of them by hand (`lsattr -d {above}`)"
            );
            self.add_blocker(above.to_string(), message);
        }
    }
}

fn changes_names(step: &Step) -> bool {
    !matches!(step, Step::Metadata { .. })
}

fn nearest_existing(path: &RootPath, node: &NodeState) -> Option<RootPath> {
    let mut above = path.ancestors().skip(1);
    above.find(|above| node.directories.contains_key(above))
}

fn held_notice(subject: String, message: String) -> Notice {
    Notice::new(subject, message)
}
