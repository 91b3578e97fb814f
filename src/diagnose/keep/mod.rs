//! Keeps changes that were made on a node by hand: differences in, one MachineConfig out (docs/reference/keep.md).
//!
//! Pure: the caller reads the node and verifies the result. Differences that no MachineConfig can contain are listed with the
//! reason.

mod build;
mod limits;
mod named;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind};
use crate::base::{paths, secrets};
use crate::config::document::{Desired, Owner};
use crate::formats::systemd::UnitFileState;
use crate::host::root::RootPath;
use crate::judge::drift::{Drift, DriftKind};
use crate::node::NodeState;
use crate::node::accounts::is_locked;

use build::Builder;
pub use limits::{MAX_FILE, is_left_out};
pub use named::{NameProblem, check_name, default_name};

/// The input from which a MachineConfig is built.
#[derive(Debug)]
pub struct KeepRequest<'a> {
    /// The pool.
    pub pool: &'a str,
    /// The name of the MachineConfig.
    pub name: &'a str,
    /// What the recorded config wants.
    pub desired: &'a Desired,
    /// The node.
    pub node: &'a NodeState,
    /// The differences, as `verify` lists them.
    pub drifts: &'a [Drift],
    /// Paths that limit the run; empty for all differences.
    pub within: &'a [RootPath],
    /// Files at or below these paths that the config does not have.
    pub found: &'a BTreeMap<RootPath, Object>,
    /// The bytes of every file that may be kept.
    pub contents: &'a BTreeMap<RootPath, Vec<u8>>,
    /// Names of the extended attributes of these files, if they have any.
    pub attributes: &'a BTreeMap<RootPath, Vec<String>>,
    /// States of the units that the config does not have, as far as they are known.
    pub states: &'a BTreeMap<String, UnitFileState>,
    /// Kernel arguments of the node that should be kept.
    pub arguments: &'a [String],
    /// True if contents that may be secret are included.
    pub with_secrets: bool,
}

/// A difference that the MachineConfig contains.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Keeping {
    /// The path, unit, or part.
    pub subject: String,
    /// The part of it, such as `contents and mode 0600`.
    pub what: String,
}

/// A difference that the MachineConfig does not contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Unkept {
    /// The path, unit, or part.
    pub subject: String,
    /// The reason.
    pub reason: String,
    /// The next step.
    pub next: String,
    /// True if it may be a secret, which `--with-secrets` would include.
    pub secret: bool,
}

/// The result.
#[derive(Debug, Default)]
pub struct Kept {
    /// The MachineConfig; `None` if it would be empty.
    pub config: Option<Value>,
    /// What it contains.
    pub kept: Vec<Keeping>,
    /// What it does not contain.
    pub unkept: Vec<Unkept>,
    /// True if it contains something that may be secret.
    pub has_secrets: bool,
}

/// Builds the MachineConfig for the differences.
pub fn keep_changes(request: &KeepRequest<'_>) -> Kept {
    let mut builder = Builder::new(request);
    let mut subjects: Vec<&str> = Vec::new();
    for drift in request.drifts {
        if !subjects.contains(&drift.subject.as_str()) {
            subjects.push(&drift.subject);
        }
    }
    let mut switched = BTreeSet::new();
    for subject in subjects {
        let drifts = request
            .drifts
            .iter()
            .filter(|drift| drift.subject == subject);
        let drifts: Vec<&Drift> = drifts.collect();
        keep_subject(&mut builder, subject, &drifts, &mut switched);
    }
    for path in request.found.keys() {
        keep_found(&mut builder, path);
    }
    for unit in switched {
        units::keep_switch(&mut builder, &unit);
    }
    for argument in request.arguments {
        keep_argument(&mut builder, argument);
    }
    builder.finish()
}

fn keep_subject(
    builder: &mut Builder<'_>,
    subject: &str,
    drifts: &[&Drift],
    switched: &mut BTreeSet<String>,
) {
    let request = builder.request;
    let has = |kind: DriftKind| drifts.iter().any(|drift| drift.kind == kind);
    let path = RootPath::parse(subject).ok();
    let place = path
        .clone()
        .or_else(|| crate::judge::drift::unit_path(subject));
    if !is_within(request, place.as_ref()) {
        return;
    }
    if has(DriftKind::Image) {
        builder.refuse_subject(
            subject,
            "an image is not a change of files",
            "set spec.osImageURL in a MachineConfig of its own, or go back to the image of the config",
        );
        return;
    }
    if has(DriftKind::Arguments) {
        let details: Vec<&str> = drifts.iter().map(|drift| drift.detail.as_str()).collect();
        builder.refuse_subject(
            subject,
            &format!(
                "{}; a MachineConfig only adds kernel arguments, it cannot take one away or move it",
                details.join("; ")
            ),
            "take the argument out of the MachineConfig that asks for it, or apply the recorded config",
        );
        return;
    }
    if has(DriftKind::Keys) || has(DriftKind::KeyAttributes) {
        return keep_keys(builder, subject);
    }
    if has(DriftKind::Password) {
        return keep_password(builder, subject, drifts);
    }
    if has(DriftKind::Enablement) || has(DriftKind::MissingLink) {
        match units::unit_of_switch(request, subject) {
            Some(unit) => {
                switched.insert(unit);
            }
            None => builder.refuse_subject(
                subject,
                "the link belongs to no unit of the config, and a MachineConfig cannot hold links",
                "enable or disable the unit by name, with systemctl",
            ),
        }
        return;
    }
    let Some(path) = path else {
        builder.refuse_subject(subject, "is not a path", &next_verify());
        return;
    };
    if request.desired.files.iter().any(|file| file.path == path) {
        return keep_file(builder, &path);
    }
    match units::UnitPart::at_path(&path) {
        Some(part) if part.is_of(request.desired) => units::keep_part(builder, &path, &part),
        _ => keep_other(builder, &path, drifts),
    }
}

/// Returns true if the run is not limited, or if this path is within the limits.
fn is_within(request: &KeepRequest<'_>, path: Option<&RootPath>) -> bool {
    let Some(path) = path else {
        return request.within.is_empty();
    };
    let holds = |limit: &RootPath| path == limit || path.is_in(limit.relative());
    request.within.is_empty() || request.within.iter().any(holds)
}

fn next_verify() -> String {
    format!("`{}` shows it", mco_rescue("verify"))
}

/// Refuses a path of the config that is neither a file nor a unit: a directory or a link.
fn keep_other(builder: &mut Builder<'_>, path: &RootPath, drifts: &[&Drift]) {
    let details: Vec<&str> = drifts.iter().map(|drift| drift.detail.as_str()).collect();
    builder.refuse_subject(
        &path.to_string(),
        &format!(
            "{}; the daemon takes no directories and links in a MachineConfig",
            details.join("; ")
        ),
        "undo it, or make it with a unit that runs at boot",
    );
}

fn keep_found(builder: &mut Builder<'_>, path: &RootPath) {
    match units::UnitPart::at_path(path) {
        Some(part) => units::keep_part(builder, path, &part),
        None => keep_file(builder, path),
    }
}

/// Returns the reason why a file may hold a secret.
fn reason_of(path: &RootPath, object: &Object, bytes: &[u8]) -> Option<&'static str> {
    let by_path = secrets::reason_of_file(path.relative(), Some(object.mode));
    by_path.or_else(|| secrets::reason_of_text(&String::from_utf8_lossy(bytes)))
}

/// Keeps a file with its bytes, mode and owner.
fn keep_file(builder: &mut Builder<'_>, path: &RootPath) {
    let request = builder.request;
    let subject = path.to_string();
    let Some((object, bytes)) = builder.regular_file(path) else {
        return;
    };
    if object.mode & !0o777 != 0 {
        builder.refuse_subject(
            &subject,
            &format!(
                "its mode is {:04o}; a MachineConfig holds modes up to 0777, without setuid, setgid and sticky bits",
                object.mode
            ),
            "take the special bit off, or set it with a unit that runs at boot",
        );
        return;
    }
    builder.note_attributes(path);
    let before = request
        .desired
        .files
        .iter()
        .rfind(|file| file.path == *path);
    let was_private = before.is_some_and(|file| secrets::is_private(file.mode));
    let secret = reason_of(path, &object, bytes)
        .or(was_private.then_some("the config does not let everyone read it"));
    if !builder.may_take(&subject, secret) {
        return;
    }
    let was_root =
        before.is_none_or(|file| file.user == Owner::Id(0) && file.group == Owner::Id(0));
    let is_root = (object.uid, object.gid) == (0, 0);
    let owner =
        (request.node.host.can_chown && !(was_root && is_root)).then_some((object.uid, object.gid));
    let shown = match owner {
        Some((user, group)) => format!(
            "{} bytes, mode {:04o}, owner {user}:{group}",
            bytes.len(),
            object.mode
        ),
        None => format!("{} bytes, mode {:04o}", bytes.len(), object.mode),
    };
    builder.add_file(path, bytes, object.mode, owner);
    builder.keep_subject(&subject, &shown);
}

/// Refuses a file that lost a key, or has a line that is not one.
fn refuse_lines(builder: &mut Builder<'_>, subject: &str, found: &[&str]) {
    let request = builder.request;
    let mut keys = request.desired.keys.iter();
    if let Some(lost) = keys.find(|key| !found.contains(&key.as_str())) {
        let name = lost.split_whitespace().next_back().unwrap_or_default();
        builder.refuse_subject(
            subject,
            &format!("the key {name:?} no longer exists, and a MachineConfig only adds keys"),
            "take it out of the MachineConfig that brings it, such as 99-worker-ssh",
        );
    }
    if let Some(other) = found.iter().find(|line| line.starts_with('#')) {
        builder.refuse_subject(
            subject,
            &format!("the line {other:?} is not a key"),
            "take the line out; comments go after the key",
        );
    }
}

fn keep_keys(builder: &mut Builder<'_>, subject: &str) {
    let request = builder.request;
    let path = RootPath::fixed(paths::CORE_KEYS);
    let Some(bytes) = request.contents.get(&path) else {
        builder.refuse_subject(
            subject,
            "the keys cannot be read, or the file is missing; a MachineConfig only adds keys",
            &next_verify(),
        );
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    let found: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    refuse_lines(builder, subject, &found);
    let is_new = |line: &&&str| {
        !line.starts_with('#') && !request.desired.keys.iter().any(|key| key == **line)
    };
    let new: Vec<String> = found
        .iter()
        .filter(is_new)
        .map(|line| (*line).to_owned())
        .collect();
    if new.is_empty() {
        let drifts = request.drifts;
        if drifts
            .iter()
            .any(|drift| drift.kind == DriftKind::KeyAttributes)
        {
            builder.refuse_subject(
                subject,
                "mode and owner of the keys' file are fixed",
                &format!("`{}` restores them", mco_rescue("apply")),
            );
        }
        return;
    }
    let count = crate::base::text::count_noun(new.len(), "key");
    builder.add_keys(new);
    builder.keep_subject(subject, &format!("{count} of core"));
}

fn keep_password(builder: &mut Builder<'_>, subject: &str, drifts: &[&Drift]) {
    let request = builder.request;
    let hash = request
        .node
        .accounts
        .find_password("core")
        .filter(|hash| !is_locked(hash));
    let Some(hash) = hash else {
        let details: Vec<&str> = drifts.iter().map(|drift| drift.detail.as_str()).collect();
        builder.refuse_subject(
            subject,
            &format!(
                "{}; a MachineConfig cannot lock a password",
                details.join("; ")
            ),
            "take passwordHash out of the MachineConfig that brings it",
        );
        return;
    };
    if builder.may_take(subject, Some("the hash of core's password")) {
        builder.set_password(hash);
        builder.keep_subject(subject, "the hash of core's password");
    }
}

fn keep_argument(builder: &mut Builder<'_>, argument: &str) {
    let request = builder.request;
    let shown = secrets::shown_argument(argument);
    let Some(facts) = request.node.system.facts() else {
        builder.refuse_subject(
            &shown,
            "the kernel arguments of this node are unknown",
            "run it on the running node, without --root",
        );
        return;
    };
    let has = |all: &[String]| all.iter().any(|one| one == argument);
    if !has(facts.arguments.tokens()) {
        builder.refuse_subject(
            &shown,
            "the node does not have this kernel argument",
            "compare it with `rpm-ostree kargs`",
        );
        return;
    }
    let secret = secrets::has_secret_argument(argument).then_some("its value may be a secret");
    if builder.may_take(&shown, secret) {
        builder.add_argument(argument);
        builder.keep_subject(&shown, "kernel argument");
    }
}

/// Returns the units that the MachineConfig contains as a whole: the caller looks up their states and builds the MachineConfig
/// again with them.
pub fn units_of(config: &Value) -> Vec<&str> {
    let units = config.pointer("/spec/config/systemd/units");
    let units = units.and_then(Value::as_array).into_iter().flatten();
    units
        .filter(|unit| unit.get("contents").is_some() && unit.get("enabled").is_none())
        .filter_map(|unit| unit.get("name")?.as_str())
        .collect()
}

/// Returns the paths whose bytes are needed: files that differ, and those given by name.
pub fn paths_to_read(
    desired: &Desired,
    node: &NodeState,
    drifts: &[Drift],
    found: &BTreeMap<RootPath, Object>,
) -> BTreeSet<RootPath> {
    let mut all: BTreeSet<RootPath> = found.keys().cloned().collect();
    let of_drifts = drifts
        .iter()
        .filter_map(|drift| RootPath::parse(&drift.subject).ok());
    all.extend(of_drifts);
    if desired.has_users {
        all.insert(RootPath::fixed(paths::CORE_KEYS));
    }
    let is_file = |path: &RootPath| {
        let object = found.get(path).or_else(|| node.object(path));
        object.is_some_and(|object| {
            matches!(object.kind, ObjectKind::File { .. }) && object.size() <= MAX_FILE
        })
    };
    all.retain(is_file);
    all
}
