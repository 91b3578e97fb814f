//! Units: files, drop-ins, masks, and enablement.

use super::build::Builder;
use super::limits::limit_of;
use super::{KeepRequest, reason_of};
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::config::document::Desired;
use crate::config::document::ignition::Unit;
use crate::formats::systemd::unit_name::has_unit_suffix;
use crate::formats::systemd::{UnitEntry, UnitFileState, unit_file_state};
use crate::host::root::RootPath;
use crate::judge::drift::enablement::DEV_NULL;

/// A file of a unit in the directory of the config's units.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnitPart {
    /// The unit.
    unit: String,
    /// The drop-in; `None` for the unit's own file.
    dropin: Option<String>,
}

impl UnitPart {
    /// Returns the part at a path; `None` for other paths.
    pub(super) fn at_path(path: &RootPath) -> Option<Self> {
        let below = path
            .relative()
            .strip_prefix(paths::UNITS)?
            .strip_prefix('/')?;
        match below.split_once('/') {
            None => has_unit_suffix(below).then(|| Self {
                unit: below.to_owned(),
                dropin: None,
            }),
            Some((directory, dropin)) => {
                let unit = directory.strip_suffix(".d")?;
                let is_dropin = dropin.ends_with(".conf") && !dropin.contains('/');
                (has_unit_suffix(unit) && is_dropin).then(|| Self {
                    unit: unit.to_owned(),
                    dropin: Some(dropin.to_owned()),
                })
            }
        }
    }

    /// Returns true if the config has the unit, and the drop-in.
    pub(super) fn is_of(&self, desired: &Desired) -> bool {
        desired.units.iter().any(|unit| {
            let has = |name: &String| unit.dropins.iter().any(|dropin| dropin.name == *name);
            unit.name == self.unit && self.dropin.as_ref().is_none_or(has)
        })
    }
}

fn unit_of<'a>(request: &KeepRequest<'a>, name: &str) -> Option<&'a Unit> {
    request.desired.units.iter().rfind(|unit| unit.name == name)
}

/// Keeps a unit's file or drop-in as it is on the node.
pub(super) fn keep_part(builder: &mut Builder<'_>, path: &RootPath, part: &UnitPart) {
    let request = builder.request;
    let subject = path.to_string();
    let known = unit_of(request, &part.unit);
    let is_masked_by_config = known.is_some_and(|unit| unit.mask == Some(true));
    if keep_without_contents(builder, path, part, known) {
        return;
    }
    let Some((object, bytes)) = builder.regular_file(path) else {
        return;
    };
    if !has_plain_metadata(builder, &subject, &object) {
        return;
    }
    let text = match text_of(bytes) {
        Ok(text) => text.to_owned(),
        Err((reason, next)) => return builder.refuse_subject(&subject, reason, next),
    };
    builder.note_attributes(path);
    if !builder.may_take(&subject, reason_of(path, &object, bytes)) {
        return;
    }
    let state = request.states.get(&part.unit).copied();
    let unit = builder.units.entry(part.unit.clone()).or_default();
    match &part.dropin {
        Some(dropin) => {
            unit.dropins.insert(dropin.clone(), text);
            builder.keep_subject(&subject, "drop-in");
        }
        None => {
            unit.contents = Some(text);
            if is_masked_by_config {
                unit.mask = Some(false);
            }
            let mut what = "unit".to_owned();
            if known.is_none_or(|unit| unit.enabled.is_none()) {
                unit.enabled = switch_of(state);
                what.push_str(match unit.enabled {
                    Some(true) => ", enabled",
                    Some(false) => ", disabled",
                    None => "",
                });
            }
            builder.keep_subject(&subject, &what);
        }
    }
}

/// Keeps a mask, or that there is no mask or drop-in. Returns true if nothing else of the part is to be kept.
fn keep_without_contents(
    builder: &mut Builder<'_>,
    path: &RootPath,
    part: &UnitPart,
    known: Option<&Unit>,
) -> bool {
    let request = builder.request;
    let subject = path.to_string();
    let object = builder.find_object(path);
    let is_mask = object.is_some_and(|object| match &object.kind {
        ObjectKind::Symlink { target } => target == DEV_NULL,
        _ => false,
    });
    match (object, &part.dropin) {
        (Some(_), None) if is_mask => {
            if let Some((reason, next)) = limit_of(path) {
                builder.refuse_subject(&subject, reason, next);
                return true;
            }
            let unit = builder.units.entry(part.unit.clone()).or_default();
            unit.mask = Some(true);
            if known.is_some_and(|unit| unit.enabled == Some(true)) {
                unit.enabled = Some(false);
            }
            builder.keep_subject(&subject, "masked");
            note_links_of_masked(builder, part, known);
        }
        _ if request.node.obstructed.contains_key(path) => return false,
        // Empty contents mean that there is no such drop-in.
        (None, Some(dropin)) => {
            let unit = builder.units.entry(part.unit.clone()).or_default();
            unit.dropins.insert(dropin.clone(), String::new());
            builder.keep_subject(&subject, "no such drop-in");
        }
        (None, None) if known.is_some_and(|unit| unit.mask == Some(true)) => {
            builder.units.entry(part.unit.clone()).or_default().mask = Some(false);
            builder.keep_subject(&subject, "not masked");
        }
        _ => return false,
    }
    true
}

/// Returns the text of a unit, or the reason why a MachineConfig cannot hold it, and the next step.
fn text_of(bytes: &[u8]) -> Result<&str, (&'static str, &'static str)> {
    match std::str::from_utf8(bytes) {
        Ok("") => Err((
            "it is empty, which means no file in a MachineConfig",
            "write a comment into it",
        )),
        Ok(text) => Ok(text),
        Err(_) => Err((
            "it is not UTF-8 text, which a unit in a MachineConfig is",
            "rewrite it as UTF-8",
        )),
    }
}

/// Notes that a unit masked by a MachineConfig keeps its previous links, which may differ from those of the node.
fn note_links_of_masked(builder: &mut Builder<'_>, part: &UnitPart, known: Option<&Unit>) {
    let tree = &builder.request.node.units;
    let has_link = |(name, entry): (&String, &UnitEntry)| match entry {
        UnitEntry::Directory(links) => {
            (name.ends_with(".wants") || name.ends_with(".requires"))
                && links.contains_key(&part.unit)
        }
        _ => false,
    };
    let own = tree
        .dirs
        .iter()
        .filter(|dir| dir.path.trim_start_matches('/') == paths::UNITS);
    let has_links = own.flat_map(|dir| &dir.entries).any(has_link);
    let Some(wanted) = known.and_then(|unit| unit.enabled) else {
        return;
    };
    if has_links != wanted {
        builder.refuse_subject(
            &part.unit,
            "it is masked and kept so, but the links that enable it differ; a MachineConfig that masks a unit leaves its links alone",
            "nothing: a masked unit does not start",
        );
    }
}

/// Returns true if a unit's file has the metadata of a MachineConfig's units: owned by root and readable by everyone. Otherwise
/// refuses it.
fn has_plain_metadata(builder: &mut Builder<'_>, subject: &str, object: &Object) -> bool {
    let can_chown = builder.request.node.host.can_chown;
    if object.mode == 0o644 && (!can_chown || object.owner() == (0, 0)) {
        return true;
    }
    let reason = format!(
        "mode and owner are {:04o} and {}:{}; units of a MachineConfig are always 0644 and of root",
        object.mode, object.uid, object.gid
    );
    builder.refuse_subject(
        subject,
        &reason,
        "set mode 0644 and owner root, and run it again",
    );
    false
}

/// Returns the value of `enabled` that leads to this state.
fn switch_of(state: Option<UnitFileState>) -> Option<bool> {
    match state? {
        UnitFileState::Enabled => Some(true),
        UnitFileState::Disabled => Some(false),
        _ => None,
    }
}

/// Returns the unit of the config to which an enablement difference belongs: by its own name, or by a link to it.
pub(super) fn unit_of_switch(request: &KeepRequest<'_>, subject: &str) -> Option<String> {
    if unit_of(request, subject).is_some() {
        return Some(subject.to_owned());
    }
    let path = RootPath::parse(subject).ok()?;
    let name = path.name();
    if unit_of(request, name).is_some() {
        return Some(name.to_owned());
    }
    // A link with another name leads to the unit.
    let drift = request
        .drifts
        .iter()
        .find(|drift| drift.subject == subject)?;
    let target = drift
        .detail
        .strip_prefix("enablement link to ")?
        .strip_suffix(" is missing")?;
    let name = target.rsplit('/').next()?;
    unit_of(request, name).map(|unit| unit.name.clone())
}

/// Keeps whether a unit is enabled.
pub(super) fn keep_switch(builder: &mut Builder<'_>, name: &str) {
    let request = builder.request;
    if builder
        .units
        .get(name)
        .is_some_and(|unit| unit.mask == Some(true))
    {
        return;
    }
    let wanted = unit_of(request, name).and_then(|unit| unit.enabled);
    let state = unit_file_state(&request.node.units, name, &request.node.systemd);
    let found = switch_of(state.ok());
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted != found => {
            builder.units.entry(name.to_owned()).or_default().enabled = Some(found);
            builder.keep_subject(name, if found { "enabled" } else { "disabled" });
        }
        _ => {
            let state = unit_file_state(&request.node.units, name, &request.node.systemd);
            let state = state.map_or_else(|_| "unreadable".to_owned(), |state| state.to_string());
            builder.refuse_subject(
                name,
                &format!(
                    "it is {state}, but some of its links differ; a MachineConfig says only enabled or disabled"
                ),
                &format!("systemctl enable {name}, or disable it, and run it again"),
            );
        }
    }
}
