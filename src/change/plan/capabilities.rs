//! The capabilities that a plan needs, and those that root lacks here: containers and units (`CapabilityBoundingSet=`) remove
//! some, and a run would then fail half-way.

use super::{Plan, PlannedStep, Step};
use crate::base::notice::Notice;
use crate::base::object::Object;
use crate::formats::labels::LabelPolicy;
use crate::host::root::{ResolveError, RootPath};
use crate::host::sys::privileges::Capability;
use crate::node::NodeState;

/// A capability and why it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityNeed {
    /// The capability.
    pub capability: Capability,
    /// The first thing that needs it.
    pub why: String,
}

/// Returns the capabilities that the plan needs beyond what ordinary users may do with their own files.
pub fn list_needs(plan: &Plan, node: &NodeState) -> Vec<CapabilityNeed> {
    let first = |capability, why: &dyn Fn(&PlannedStep) -> Option<String>| {
        let why = plan.steps.iter().find_map(why)?;
        Some(CapabilityNeed { capability, why })
    };
    let mut all = vec![
        first(Capability::CAP_CHOWN, &|planned| {
            foreign_owner(planned, node, "giving")
        }),
        first(Capability::CAP_FOWNER, &|planned| {
            foreign_owner(planned, node, "setting the mode of")
        }),
        first(Capability::CAP_DAC_OVERRIDE, &|planned| {
            locked_directory(planned.step.path(), node).or_else(|| closed_itself(planned, node))
        }),
        first(Capability::CAP_FSETID, &|planned| {
            keeps_setgid(planned, node)
        }),
    ];
    all.push(plan.held.first().map(|held| CapabilityNeed {
        capability: Capability::CAP_LINUX_IMMUTABLE,
        why: format!("clearing the flags of {}", held.path),
    }));
    if !matches!(node.labels.policy, LabelPolicy::None) {
        all.push(first(Capability::CAP_SYS_ADMIN, &label_of));
    }
    all.into_iter().flatten().collect()
}

/// Adds blockers for capabilities that root lacks. For an ordinary user, another check reports what cannot be done.
pub(super) fn judge_capabilities(plan: &mut Plan, node: &NodeState) {
    if node.host.user.0 == 0 {
        let lacking = list_needs(plan, node).into_iter();
        let lacking = lacking.filter(|need| !node.host.capabilities.contains(&need.capability));
        // A label that cannot be set is reported afterwards, with the command that sets it.
        let lacking = lacking.filter(|need| need.capability != Capability::CAP_SYS_ADMIN);
        let blockers: Vec<Notice> = lacking.map(missing_notice).collect();
        plan.blockers.extend(blockers);
    }
}

/// Adds a blocker if root was not even able to read the node.
pub(super) fn block_unread(plan: &mut Plan, node: &NodeState) {
    let capability = Capability::CAP_DAC_OVERRIDE;
    let denied = ResolveError::System(nix::errno::Errno::EACCES);
    let closed = node.obstructed.iter().find(|(_, cause)| **cause == denied);
    let lacks = node.host.user.0 == 0 && !node.host.capabilities.contains(&capability);
    if let Some((path, _)) = closed.filter(|_| lacks) {
        let why = format!("looking at {path}");
        plan.blockers
            .push(missing_notice(CapabilityNeed { capability, why }));
    }
}

fn missing_notice(need: CapabilityNeed) -> Notice {
    let name = need.capability.to_string();
    let short = name.strip_prefix("CAP_").unwrap_or(&name).to_owned();
    let message = format!(
        "is needed for {}, and this process runs as root without it. Run from a full root shell, or give it: \
         `podman run --cap-add {short}`, `CapabilityBoundingSet=` of the unit",
        need.why
    );
    Notice::new(name, message)
}

/// Returns the owners that a step sets or keeps.
fn owners_of(step: &Step) -> Vec<(u32, u32)> {
    match step {
        Step::MakeDirectory { uid, gid, .. } | Step::RemoveDirectory { uid, gid, .. } => {
            vec![(*uid, *gid)]
        }
        Step::Put { new, old, .. } => {
            let old = old.iter().map(Object::owner);
            std::iter::once(new.owner()).chain(old).collect()
        }
        Step::Remove { old, .. } => vec![old.owner()],
        Step::Metadata { new, old, .. } => vec![(new.uid, new.gid), (old.uid, old.gid)],
    }
}

fn foreign_owner(planned: &PlannedStep, node: &NodeState, what: &str) -> Option<String> {
    let owners = owners_of(&planned.step).into_iter();
    let (uid, gid) = owners.into_iter().find(|owner| *owner != node.host.user)?;
    let path = planned.step.path();
    Some(match what {
        "giving" => format!("giving {path} to {uid}:{gid}"),
        _ => format!("{what} {path}, which belongs to {uid}:{gid}"),
    })
}

/// Returns a directory that root cannot enter because of its mode.
fn locked_directory(path: &RootPath, node: &NodeState) -> Option<String> {
    let mut above = path.ancestors().skip(1);
    let closed = above.find(|above| {
        let directory = node.directories.get(above);
        directory.is_some_and(|d| !may_write(d.mode, d.owner, node.host.user))
    });
    closed.map(|above| format!("changing names in {above}"))
}

/// Returns a directory whose `..` entry has to be rewritten because it is moved, which requires write permission on it.
fn closed_itself(planned: &PlannedStep, node: &NodeState) -> Option<String> {
    let directory = |object: &&Object| object.is_directory();
    let moved = match &planned.step {
        Step::MakeDirectory { mode, uid, gid, .. }
        | Step::RemoveDirectory { mode, uid, gid, .. } => Some((*mode, (*uid, *gid))),
        Step::Put { new, old, .. } => {
            let mut both = std::iter::once(new).chain(old);
            let found = both.find(directory);
            found.map(|object| (object.mode, object.owner()))
        }
        Step::Remove { .. } | Step::Metadata { .. } => None,
    };
    let (mode, owner) = moved?;
    let closed = !may_write(mode, owner, node.host.user);
    closed.then(|| format!("moving {} into place", planned.step.path()))
}

/// Returns true if the mode lets a user write to a directory and enter it.
fn may_write(mode: u32, owner: (u32, u32), user: (u32, u32)) -> bool {
    let shift = match (owner.0 == user.0, owner.1 == user.1) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    (mode >> shift) & 0o3 == 0o3
}

fn keeps_setgid(planned: &PlannedStep, node: &NodeState) -> Option<String> {
    let (mode, gid) = match &planned.step {
        Step::MakeDirectory { mode, gid, .. } => (*mode, *gid),
        Step::Put { new, .. } => (new.mode, new.gid),
        Step::Metadata { new, .. } => (new.mode, new.gid),
        Step::Remove { .. } | Step::RemoveDirectory { .. } => return None,
    };
    let needed = mode & 0o2000 != 0 && gid != node.host.user.1;
    needed.then(|| format!("the setgid bit of {}", planned.step.path()))
}

/// Returns the label that a step sets. Without a loaded policy, labels are ordinary `security.` attributes.
fn label_of(planned: &PlannedStep) -> Option<String> {
    let path = planned.step.path();
    planned
        .label
        .is_some()
        .then(|| format!("the SELinux label of {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_bits_count_for_root_too_once_it_may_not_override_them() {
        let root = (0, 0);
        for (mode, owner, open) in [
            (0o755, (0, 0), true),
            (0o555, (0, 0), false),
            (0o700, (1000, 1000), false),
            (0o777, (1000, 1000), true),
            (0o775, (1000, 0), true),
            (0o755, (1000, 0), false),
            (0o055, (0, 0), false),
        ] {
            assert_eq!(may_write(mode, owner, root), open, "{mode:o} {owner:?}");
        }
    }
}
