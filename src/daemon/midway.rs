//! Where an update of the daemon fails on its way: after the drain, while it writes (docs/agreement.md: Update, Units).

use crate::document::Desired;
use crate::drift::enablement::simulate_update;
use crate::drift::wanted_file;
use crate::node::NodeState;
use crate::paths;

/// The first thing that an update fails over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// With the daemon's own message.
    Says(String),
    /// A message that repeats another program's words, which are not known here; for this reason.
    Over(String),
}

/// The first thing of `new` that the daemon cannot write on this node: a file, then a unit. `old`: what the node comes
/// from, where that is known.
pub fn failure(new: &Desired, old: Option<&Desired>, node: &NodeState) -> Option<Failure> {
    contents(new)
        .or_else(|| files(new, node))
        .or_else(|| units(new, old, node))
}

fn contents(new: &Desired) -> Option<Failure> {
    let of_contents = |path: &str| {
        path.contains(".storage.files[") && path.contains(".contents.") && !path.contains(".append")
    };
    let mut parts = new.unsupported.iter();
    let part = parts.find(|part| of_contents(&part.path))?;
    let why = format!("it cannot decode {}: {}", part.path, part.message);
    Some(Failure::Over(why))
}

fn files(new: &Desired, node: &NodeState) -> Option<Failure> {
    let mut files = new.files.iter();
    files.find_map(|file| {
        let path = &file.path;
        if path.relative() == paths::KUBELET_CA {
            return None;
        }
        if let Err(problem) = wanted_file(file, node) {
            let said = format!("failed to retrieve file ownership for file \"{path}\": {problem}");
            return Some(Failure::Says(said));
        }
        if node.object(path).is_some_and(|found| found.is_directory()) {
            let why = format!("it cannot write {path}: a directory is there");
            return Some(Failure::Over(why));
        }
        let obstacle = node.obstructed.get(path)?;
        Some(Failure::Over(format!("it cannot write {path}: {obstacle}")))
    })
}

/// Only units that differ are written and switched.
fn units(new: &Desired, old: Option<&Desired>, node: &NodeState) -> Option<Failure> {
    let mut written = new.clone();
    let mut before = old.cloned();
    if let Some(before) = &mut before {
        written.units.retain(|unit| !before.units.contains(unit));
        before.units.retain(|unit| !new.units.contains(unit));
    }
    let simulated = simulate_update(&written, before.as_ref(), node);
    let problem = simulated.failures.into_iter().next()?;
    Some(Failure::Over(problem))
}
