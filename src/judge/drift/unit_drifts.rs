//! What differs in the systemd units: their files, masks, and links of enablement.

use nix::errno::Errno;

use crate::base::go_quote::quote_go;
use crate::base::object::ObjectKind;
use crate::base::reason::Reason;
use crate::config::document::Desired;
use crate::config::document::ignition::Unit;
use crate::formats::systemd::{self, UnitFileState, Unresolved, unit_file_state};
use crate::host::root::{ResolveError, RootPath};
use crate::node::NodeState;

use super::enablement::{DEV_NULL, UnchangedUnits};
use super::{
    Drift, DriftKind, checked_drift, compare_file, dropin_path, enablement, go_path, kind_noun,
    text_object, unchecked_drift, unit_path,
};

/// Compares units of spec 2: the daemon compares every list entry in order, but only the last entry of a name is written.
pub(super) fn written_unit_drifts(units: &[Unit], node: &NodeState) -> Vec<Drift> {
    let mut drifts: Vec<Drift> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let mut later = units.iter().skip(index + 1);
        let is_shadowed = later.any(|later| later.name == unit.name);
        let new = unit_drifts(unit, node, true).into_iter();
        let new = new.map(|drift| match drift.daemon {
            Some(_) if is_shadowed => Drift {
                detail: format!(
                    "{}; but a later entry of the same unit is used: only another config changes that",
                    drift.detail
                ),
                ..drift
            },
            _ => drift,
        });
        drifts.extend(new);
    }
    drifts
}

/// Compares a unit: drop-ins first, then the file, then enablement (docs/develop/agreement.md: Validation). For a config of spec 2 the
/// daemon expects empty drop-ins to exist, and does not check enablement.
pub(super) fn unit_drifts(unit: &Unit, node: &NodeState, spec2: bool) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let owner = node.host.attainable_owner((0, 0));
    for dropin in &unit.dropins {
        let Some(path) = dropin_path(&unit.name, &dropin.name) else {
            continue;
        };
        let wanted = text_object(dropin.text().unwrap_or_default().as_bytes(), 0o644, owner);
        // An empty drop-in does not need to exist.
        match look_at_end(&path, node) {
            _ if spec2 || dropin.text().is_some() => {
                drifts.extend(compare_file(&path, &wanted, node))
            }
            Ok(true) => drifts.extend(compare_file(&path, &wanted, node)),
            Ok(false) => {}
            Err(why) => {
                let detail = format!("cannot be examined: {why}");
                let message = format!("stat {path}: {why}");
                drifts.push(checked_drift(DriftKind::Missing, &path, detail, message));
            }
        }
    }
    let Some(path) = unit_path(&unit.name) else {
        return drifts;
    };
    match unit.text() {
        Some(_) if unit.mask == Some(true) => drifts.extend(mask_drift(&path, node, true)),
        Some(text) => {
            drifts.extend(compare_file(
                &path,
                &text_object(text.as_bytes(), 0o644, owner),
                node,
            ));
            drifts.extend(enabled_drift(unit, node).filter(|_| !spec2));
        }
        None if unit.mask == Some(true) => drifts.extend(mask_drift(&path, node, false)),
        None if unit.mask == Some(false) && node.object(&path).is_some() => {
            let detail =
                "is present, but the config unmasks the unit and has no file for it".into();
            drifts.push(unchecked_drift(DriftKind::Superfluous, &path, detail));
        }
        None => {}
    }
    drifts
}

/// Returns true if something exists where a drop-in's path leads, as the daemon's `stat` sees it.
///
/// # Errors
/// The words of the error that ends the daemon's update.
pub fn look_at_end(path: &RootPath, node: &NodeState) -> Result<bool, Reason> {
    match node.obstructed.get(path) {
        Some(ResolveError::NoDirectory(_)) => return Ok(false),
        Some(cause) => return Err(stat_words(cause).into()),
        None => {}
    }
    match node.object(path).map(|object| &object.kind) {
        None => Ok(false),
        Some(ObjectKind::Symlink { .. }) => {
            match systemd::eval_symlinks(&node.units, &path.to_string()) {
                Ok(_) => Ok(true),
                Err(Unresolved::Missing(_)) => Ok(false),
                Err(Unresolved::NoDirectory) => Err("not a directory".into()),
                Err(Unresolved::TooManyLinks) => Err("too many levels of symbolic links".into()),
            }
        }
        Some(_) => Ok(true),
    }
}

/// Returns Go's text for an error of `stat`.
fn stat_words(cause: &ResolveError) -> String {
    match cause {
        ResolveError::System(Errno::EACCES | Errno::EPERM) => "permission denied".to_owned(),
        ResolveError::System(Errno::ENOTDIR) => "not a directory".to_owned(),
        ResolveError::System(Errno::ELOOP) => "too many levels of symbolic links".to_owned(),
        other => other.to_string(),
    }
}

/// Compares a mask. The daemon checks masks only if the unit also has contents, and then by where the path leads.
fn mask_drift(path: &RootPath, node: &NodeState, daemon_looks: bool) -> Option<Drift> {
    let message = match systemd::eval_symlinks(&node.units, &path.to_string()) {
        Ok(end) if end == DEV_NULL => return None,
        Ok(end) => format!(
            "state validation: invalid unit masked setting. path: {}; expected: {DEV_NULL}; received: {end}",
            go_path(path)
        ),
        Err(why) => {
            format!(
                "state validation: error while evaluation symlink for path {}: {why}",
                go_path(path)
            )
        }
    };
    let detail = match node.object(path).map(|object| &object.kind) {
        None => "is not masked: the link to /dev/null is missing".to_owned(),
        Some(other) => format!("is not masked: it is {}", kind_noun(other)),
    };
    Some(Drift {
        kind: DriftKind::Mask,
        subject: path.to_string(),
        detail,
        daemon: daemon_looks.then_some(message),
    })
}

/// Compares enablement. The daemon can see only one direction: its runner drops the output of a failing `is-enabled`.
fn enabled_drift(unit: &Unit, node: &NodeState) -> Option<Drift> {
    if unit.enabled != Some(false) {
        return None;
    }
    let state = unit_file_state(&node.units, &unit.name, &node.systemd).ok()?;
    if !matches!(
        state,
        UnitFileState::Enabled | UnitFileState::EnabledRuntime
    ) {
        return None;
    }
    Some(Drift {
        kind: DriftKind::Enablement,
        subject: unit.name.clone(),
        detail: format!("is {state}, should be off"),
        daemon: Some(format!(
            "unit {} expected enabled=false, but systemd reports {}",
            quote_go(&unit.name),
            quote_go(&state.to_string())
        )),
    })
}

/// Returns enablement links that are missing or superfluous; the daemon checks none of them individually.
pub(super) fn link_drifts(
    desired: &Desired,
    node: &NodeState,
    unchanged: &UnchangedUnits,
) -> Vec<Drift> {
    let wanted = unchanged.simulate_units(desired, node);
    let masks: Vec<_> = desired
        .units
        .iter()
        .filter(|u| u.mask == Some(true))
        .filter_map(|u| unit_path(&u.name))
        .collect();
    let changes = enablement::link_changes(&node.units, &wanted.tree);
    let links = changes
        .into_iter()
        .filter(|change| !masks.contains(&change.path));
    links
        .map(|change| {
            let (kind, detail) = match change.target {
                Some(target) => {
                    let detail = format!("enablement link to {target} is missing");
                    (DriftKind::MissingLink, detail)
                }
                None => {
                    let detail = "enablement link should not exist".to_owned();
                    (DriftKind::Enablement, detail)
                }
            };
            unchecked_drift(kind, &change.path, detail)
        })
        .collect()
}
