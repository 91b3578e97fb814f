//! A node as it will be after a plan was carried out, so that the result can be judged in advance.

use super::{Plan, Step};
use crate::base::object::{Object, ObjectKind};
use crate::config::document::Desired;
use crate::judge::drift::enablement;
use crate::node::NodeState;

/// Returns true if every step of a plan is done on a node: its files, links and directories have the desired state.
pub fn is_carried_out(node: &NodeState, plan: &Plan) -> bool {
    plan.steps.iter().all(|planned| {
        let found = node.object(planned.step.path());
        match &planned.step {
            Step::Put { new, .. } => found.is_some_and(|found| found.is_like(new)),
            Step::MakeDirectory { path, .. } => {
                found.is_some_and(Object::is_directory) || node.directories.contains_key(path)
            }
            Step::Remove { .. } | Step::RemoveDirectory { .. } => found.is_none(),
            Step::Metadata { new, .. } => found.is_some_and(|found| *new == found.into()),
        }
    })
}

/// Returns the node with every step of the plan done. Paths that are not in the plan are unchanged.
pub fn carried_out(
    node: NodeState,
    plan: &Plan,
    desired: &Desired,
    old: Option<&Desired>,
) -> NodeState {
    let steps = plan.steps.iter().map(|planned| &planned.step);
    after_steps(node, steps, desired, old)
}

/// Returns the node after these steps, which lead from `old` to `desired`.
pub fn after_steps<'s>(
    mut node: NodeState,
    steps: impl Iterator<Item = &'s Step>,
    desired: &Desired,
    old: Option<&Desired>,
) -> NodeState {
    for step in steps {
        match step {
            Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            } => {
                let directory = Object::new(ObjectKind::Directory, *mode, (*uid, *gid));
                node.objects.insert(path.clone(), directory);
            }
            Step::Put { path, new, .. } => drop(node.objects.insert(path.clone(), new.clone())),
            Step::Remove { path, .. } | Step::RemoveDirectory { path, .. } => {
                node.objects.remove(path);
            }
            Step::Metadata { path, new, .. } => {
                if let Some(object) = node.objects.get_mut(path) {
                    (object.mode, object.uid, object.gid) = (new.mode, new.uid, new.gid);
                }
            }
        }
    }
    node.units = enablement::simulate_update(desired, old, &node).tree;
    node
}
