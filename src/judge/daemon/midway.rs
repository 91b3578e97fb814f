//! The first failure of a daemon's update: after the drain, while it writes (docs/develop/agreement.md: Update, Units).

use super::release::{Release, Rule};
use crate::base::paths;
use crate::config::document::Desired;
use crate::judge::drift::enablement::simulate_update;
use crate::judge::drift::wanted_file;
use crate::node::NodeState;

/// The failure of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A failure with the daemon's own message.
    Says(String),
    /// A failure whose message quotes another program and is unknown here; with the reason.
    Over(String),
}

/// Returns the first part of `new` that the daemon of a release cannot write on this node: a file, then a unit. `old` is the
/// node's current config, if it is known.
pub fn find_failure(
    new: &Desired,
    old: Option<&Desired>,
    node: &NodeState,
    release: Release,
) -> Option<Failure> {
    contents_failure(new)
        .or_else(|| files_failure(new, node))
        .or_else(|| units_failure(new, old, node, release))
}

fn contents_failure(new: &Desired) -> Option<Failure> {
    let of_contents = |path: &str| {
        path.contains(".storage.files[") && path.contains(".contents.") && !path.contains(".append")
    };
    let mut parts = new.unsupported.iter();
    let part = parts.find(|part| of_contents(&part.path))?;
    let why = format!("it cannot decode {}: {}", part.path, part.message);
    Some(Failure::Over(why))
}

fn files_failure(new: &Desired, node: &NodeState) -> Option<Failure> {
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
        if node.mount_points.contains(path) {
            let why =
                format!("it cannot write {path}: it is a mount point (device or resource busy)");
            return Some(Failure::Over(why));
        }
        if node.object(path).is_some_and(|found| found.is_directory()) {
            let why = format!("it cannot write {path}: it is a directory");
            return Some(Failure::Over(why));
        }
        let obstacle = node.obstructed.get(path)?;
        Some(Failure::Over(format!("it cannot write {path}: {obstacle}")))
    })
}

/// Returns the failure of a unit; only units that differ are written and switched.
fn units_failure(
    new: &Desired,
    old: Option<&Desired>,
    node: &NodeState,
    release: Release,
) -> Option<Failure> {
    let mut written = new.clone();
    let mut before = old.cloned();
    if let Some(before) = &mut before {
        written.units.retain(|unit| !before.units.contains(unit));
        before.units.retain(|unit| !new.units.contains(unit));
    }
    let simulated = simulate_update(&written, before.as_ref(), node);
    let mut missing = simulated.missing.into_iter();
    let missing = missing
        .next()
        .filter(|_| !release.has_rule(Rule::MissingUnitsSkipped));
    let problem = missing.map(|name| {
        format!("it switches unit {name}, which has no contents and no file on this node; later releases skip it")
    });
    Some(Failure::Over(
        problem.or_else(|| simulated.failures.into_iter().next())?,
    ))
}
