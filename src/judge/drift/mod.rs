//! Drift: where the disk differs from a config, in the daemon's order and words.
//!
//! Pure: a config and a node state in, a list out. A difference that the daemon's own check (docs/develop/agreement.md: Validation)
//! would report carries its message; one that the daemon never checks is marked so. Applying a config means clearing this list.

pub mod enablement;

use nix::errno::Errno;

use self::enablement::{DEV_NULL, UnchangedUnits};
use crate::base::go_quote::quote_go;
use crate::base::kargs::Kargs;
use crate::base::object::{HexDigest, Object, ObjectKind};
use crate::base::paths;
use crate::base::secrets::redacted_arguments;
use crate::config::document::ignition::Unit;
use crate::config::document::{
    Desired, DesiredFile, MachineConfig, Owner, Undecodable, WrittenPath,
};
use crate::formats::systemd::{self, UnitFileState, Unresolved, unit_file_state};
use crate::host::root::{ResolveError, RootPath, sha256};
use crate::node::accounts::is_locked;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::os_release::Class;
use crate::node::system::SystemFacts;
use crate::node::{Accounts, NodeState, Records, System};

/// The setgid bit: files created in such a directory get its group.
pub const SETGID: u32 = 0o2000;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftKind {
    /// Missing, or not readable.
    Missing,
    /// Permission bits or file type.
    Mode,
    /// Bytes.
    Content,
    /// Owner or group.
    Owner,
    /// Masked but should not be, or vice versa.
    Mask,
    /// A unit that should be enabled or disabled and is not, or one of its links.
    Enablement,
    /// Present, but the config removes it.
    Superfluous,
    /// SSH keys of `core`.
    Keys,
    /// Password of `core`.
    Password,
    /// The image that runs.
    Image,
    /// Kernel arguments.
    Arguments,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The kind of the difference.
    pub kind: DriftKind,
    /// The path or unit it is about.
    pub subject: String,
    /// The difference, in our words.
    pub detail: String,
    /// The daemon's message; `None` if the daemon does not check this.
    pub daemon: Option<String>,
}

impl Drift {
    /// Returns true if only a reboot can resolve it.
    pub fn is_of_the_os(&self) -> bool {
        matches!(self.kind, DriftKind::Image | DriftKind::Arguments)
    }
}

/// Returns the differences of the operating system, if it was queried: the daemon checks these first.
pub fn os_drifts(config: &MachineConfig, layered: Option<&str>, node: &NodeState) -> Vec<Drift> {
    let Some(facts) = node.system.facts() else {
        return Vec::new();
    };
    if facts.class == Class::Other {
        return Vec::new();
    }
    let mut all = Vec::new();
    let runs = facts.deployments.booted().map(|booted| booted.image());
    all.extend(image_drift(config, layered, &runs.unwrap_or_default()));
    all.extend(missing_arguments(config, Some(&facts.arguments)));
    all.extend(disordered_arguments(config, &facts.arguments));
    all.extend(left_arguments(config, facts));
    all
}

/// Returns the difference between the running image and `layered`, or else the config's image.
pub fn image_drift(config: &MachineConfig, layered: Option<&str>, runs: &str) -> Option<Drift> {
    let wanted = layered.filter(|image| !image.is_empty());
    let wanted = wanted.unwrap_or(&config.os_image_url);
    (runs != wanted).then(|| Drift {
        kind: DriftKind::Image,
        subject: "OS image".to_owned(),
        detail: format!("{wanted:?} is wanted, {runs:?} runs"),
        daemon: Some(format!(
            "expected target osImageURL {}, have {}",
            quote_go(wanted),
            quote_go(runs)
        )),
    })
}

/// Returns the kernel arguments that the daemon misses. Of `present`, it sees only those without blanks, because it splits what
/// it reads at every blank (docs/develop/agreement.md: Validation). If `present` is `None`, returns those that it would miss in any
/// case.
pub fn missing_arguments(config: &MachineConfig, present: Option<&Kargs>) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let never = asked_for.never_found();
    let absent = present.map(|present| asked_for.missing_from(present));
    let absent = absent.unwrap_or_default();
    let tokens = asked_for.tokens().iter().map(String::as_str);
    let is_missing = |token: &&str| never.contains(token) || absent.contains(token);
    let list = tokens.filter(is_missing).collect::<Vec<_>>().join(" ");
    let mut detail = Vec::new();
    if !absent.is_empty() {
        detail.push(format!("{} missing", absent.join(" ")));
    }
    let unseen: Vec<&str> = never
        .into_iter()
        .filter(|one| !absent.contains(one))
        .collect();
    if !unseen.is_empty() {
        let all = unseen.join(" ");
        detail.push(format!(
            "{all}: the daemon splits it at its blank, and never finds it"
        ));
    }
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: redacted_arguments(&detail.join("; ")),
        daemon: Some(format!(
            "missing expected kernel arguments: [{}]",
            redacted_arguments(&list)
        )),
    })
}

/// Returns the kernel arguments that are not `present`, in the quoting of the config. The daemon may miss more.
pub fn absent_arguments(config: &MachineConfig, present: &Kargs) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let present = present.written_as(&asked_for);
    let is_absent = !asked_for.missing_from(&present).is_empty();
    is_absent
        .then(|| missing_arguments(config, Some(&present)))
        .flatten()
}

/// Returns kernel arguments that are all `present`, but not in the order that gives them their meaning. The daemon ignores
/// order.
pub fn disordered_arguments(config: &MachineConfig, present: &Kargs) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let list = asked_for.out_of_order(present).join(" ");
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: format!(
            "{}: present, but in another order, which matters here",
            redacted_arguments(&list)
        ),
        daemon: None,
    })
}

/// The running operating system compared with the recorded config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OsMatch {
    /// It is the recorded one.
    Recorded,
    /// It differs, in words.
    Differs(String),
    /// There is nothing to compare: no usable record, or a system whose images the daemon does not stage.
    NoneToCompare,
    /// Unknown, for this reason.
    Unknown(String),
}

/// Compares the running operating system with the recorded config.
pub fn match_os(records: &Records, system: &System) -> OsMatch {
    match system {
        System::Silent(why) => OsMatch::Unknown(why.clone()),
        System::NotAsked | System::Composefs(_) => OsMatch::NoneToCompare,
        System::Known(facts) => {
            let comparable = records.recorded().is_some()
                && facts.deployments.booted().is_some()
                && facts.class != Class::Other;
            match os_mismatch(records, facts) {
                Some(words) => OsMatch::Differs(words),
                None if comparable => OsMatch::Recorded,
                None => OsMatch::NoneToCompare,
            }
        }
    }
}

/// Describes the differences of the running operating system from the recorded config.
pub fn os_mismatch(records: &Records, facts: &SystemFacts) -> Option<String> {
    let config = records.recorded()?;
    let booted = facts.deployments.booted()?;
    if facts.class == Class::Other {
        return None;
    }
    let layered = records.current_image.as_deref();
    let image = (!config.os_image_url.is_empty())
        .then(|| image_drift(config, layered, &booted.image()))
        .flatten();
    let missing = absent_arguments(config, &facts.booted_arguments);
    let left = arguments_left(config, facts, booted, &facts.booted_arguments);
    let all: Vec<String> = [image, missing, left]
        .into_iter()
        .flatten()
        .map(|drift| format!("{}: {}", drift.subject, drift.detail))
        .collect();
    (!all.is_empty()).then(|| format!("{} is recorded, but {}", config.name, all.join("; ")))
}

/// Returns true if the next boot enters the operating system of the recorded config.
pub fn is_next(records: &Records, facts: &SystemFacts) -> bool {
    let next = facts.deployments.next_boot();
    let next = next.filter(|next| !next.booted && !next.finalization_locked);
    let (Some(config), Some(next)) = (records.recorded(), next) else {
        return false;
    };
    let layered = records.current_image.as_deref();
    image_drift(config, layered, &next.image()).is_none()
        && absent_arguments(config, &facts.arguments).is_none()
}

/// Returns the kernel arguments of the next boot that its deployment's config asked for, and this config does not. The daemon
/// does not look for them.
pub fn left_arguments(config: &MachineConfig, facts: &SystemFacts) -> Option<Drift> {
    let next = facts.deployments.next_boot()?;
    arguments_left(config, facts, next, &facts.arguments)
}

/// Returns the arguments of a deployment that its own config asked for, and `config` does not.
fn arguments_left(
    config: &MachineConfig,
    facts: &SystemFacts,
    deployment: &Deployment,
    present: &Kargs,
) -> Option<Drift> {
    let asked = facts.asked.of(&deployment.name(), present)?;
    let old = Kargs::from_entries(&asked.arguments);
    let wanted = Kargs::from_entries(&config.kernel_arguments);
    let list = present.written_as(&old).left_over(&old, &wanted).join(" ");
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: format!(
            "{} still present, of a config from before",
            redacted_arguments(&list)
        ),
        daemon: None,
    })
}

/// Returns all differences from `desired`. The first entry with a daemon message is the daemon's verdict.
pub fn find_drifts(desired: &Desired, node: &NodeState) -> Vec<Drift> {
    find_drifts_with(desired, node, &UnchangedUnits::default())
}

/// Like [`find_drifts`], with a simulation shared with other callers.
pub fn find_drifts_with(
    desired: &Desired,
    node: &NodeState,
    unchanged: &UnchangedUnits,
) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut undecodable = desired.undecodable.iter().peekable();
    for (index, file) in desired.files.iter().enumerate() {
        while let Some(next) = undecodable.next_if(|next| next.before <= index) {
            drifts.push(undecodable_drift(next));
        }
        let drift = file_drifts(file, node, desired.spec2);
        match desired.written_paths.get(&file.path) {
            Some(written) => drifts.extend(by_written_path(written, &file.path, drift, node)),
            None => drifts.extend(drift),
        }
    }
    drifts.extend(undecodable.map(undecodable_drift));
    match &desired.compared_units {
        Some(units) => drifts.extend(written_unit_drifts(units, node)),
        None => {
            let units = desired.units.iter();
            drifts.extend(units.flat_map(|unit| unit_drifts(unit, node, false)));
        }
    }
    drifts.extend(link_drifts(desired, node, unchanged));
    drifts.extend(user_drifts(desired, node));
    drifts
}

/// Returns the daemon's verdict on a node that is compared with `config` (docs/develop/agreement.md: Validation); `None` if the daemon
/// finds nothing. `layered` is the recorded layered image.
pub fn daemon_verdict(config: &str, layered: Option<&str>, drifts: &[Drift]) -> Option<String> {
    let first = drifts.iter().find_map(|drift| drift.daemon.as_deref())?;
    Some(verdict_sentence(config, layered, first))
}

/// Returns the message with which a difference makes the daemon Degraded. With a layered image, it names the image instead of
/// the config.
pub fn verdict_sentence(config: &str, layered: Option<&str>, message: &str) -> String {
    let subject = layered.filter(|image| !image.is_empty()).unwrap_or(config);
    format!("unexpected on-disk state validating against {subject}: {message}")
}

/// Returns true if the daemon does not validate the file.
pub fn is_exempt(path: &RootPath) -> bool {
    paths::EXEMPT.contains(&path.relative())
}

/// Returns the object that a file entry asks for, as far as this process can create it.
///
/// # Errors
/// The daemon's message for a user or group that the root does not have.
pub fn wanted_file(file: &DesiredFile, node: &NodeState) -> Result<Object, String> {
    let (uid, gid) = node.host.attainable(wanted_owner(file, node)?);
    let kind = ObjectKind::File {
        size: file.size,
        sha256: file.sha256.clone(),
    };
    Ok(Object {
        kind,
        mode: file.mode,
        uid,
        gid,
    })
}

/// Returns the owner of a file. Unless the config names a group, Ignition leaves a new file the group that the kernel gives it.
/// The daemon sets every group.
fn wanted_owner(file: &DesiredFile, node: &NodeState) -> Result<(u32, u32), String> {
    let bare = file.bare.as_ref();
    let handed_down = bare.filter(|bare| bare.group.is_none());
    let handed_down = handed_down.and_then(|_| {
        let mut above = file.path.ancestors().skip(1);
        let above = above.find_map(|above| node.directories.get(&above))?;
        (above.mode & SETGID != 0).then_some(above.owner.1)
    });
    let gid = group_id(&file.group, &node.accounts)?;
    let uid = user_id(&file.user, &node.accounts)?;
    Ok((uid, handed_down.unwrap_or(gid)))
}

/// Returns the id of a user from the root's own account files.
///
/// # Errors
/// The daemon's message for a name that the root does not have; the same for [`group_id`].
pub fn user_id(user: &Owner, accounts: &Accounts) -> Result<u32, String> {
    match user {
        Owner::Id(id) => Ok(*id),
        Owner::Name(name) => {
            let found = accounts.users.get(name).map(|(uid, _)| *uid);
            found.ok_or_else(|| format!("failed to retrieve UserID for username: {name}"))
        }
    }
}

/// The number of a group.
pub fn group_id(group: &Owner, accounts: &Accounts) -> Result<u32, String> {
    match group {
        Owner::Id(id) => Ok(*id),
        Owner::Name(name) => {
            let found = accounts.groups.get(name).copied();
            found.ok_or_else(|| format!("failed to retrieve GroupID for group: {name}"))
        }
    }
}

/// Returns a regular file with this text.
pub fn text_object(text: &[u8], mode: u32, owner: (u32, u32)) -> Object {
    let sha256 = match text {
        [] => HexDigest::of_nothing(),
        text => sha256(text).into(),
    };
    Object {
        kind: ObjectKind::File {
            size: text.len() as u64,
            sha256,
        },
        mode,
        uid: owner.0,
        gid: owner.1,
    }
}

/// Returns the difference for a file whose contents the daemon cannot decode, so that nothing on disk satisfies it.
fn undecodable_drift(file: &Undecodable) -> Drift {
    let why = if file.appends {
        "the config appends to it, which the daemon does not do"
    } else {
        "its source in the config is not a data URL, and the daemon decodes only those"
    };
    Drift {
        kind: DriftKind::Content,
        subject: file.path.clone(),
        detail: format!("{why}; only another config changes that"),
        daemon: Some(file.when_compared()),
    }
}

/// Compares units of spec 2: the daemon compares every list entry in order, but only the last entry of a name is written.
fn written_unit_drifts(units: &[Unit], node: &NodeState) -> Vec<Drift> {
    let mut drifts: Vec<Drift> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let mut later = units.iter().skip(index + 1);
        let is_shadowed = later.any(|later| later.name == unit.name);
        let new = unit_drifts(unit, node, true).into_iter();
        let new = new.map(|drift| match drift.daemon {
            Some(_) if is_shadowed => Drift {
                detail: format!(
                    "{}; but a later entry of the same unit counts: only another config changes that",
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

/// Adjusts differences of a spec 2 file: the daemon looks it up by its path as written, and reports that path.
fn by_written_path(
    written: &WrittenPath,
    path: &RootPath,
    drifts: Vec<Drift>,
    node: &NodeState,
) -> Vec<Drift> {
    let through = written
        .through
        .iter()
        .find_map(|parent| match node.object(parent) {
            None => Some((parent, "no such file or directory")),
            Some(found)
                if matches!(
                    found.kind,
                    ObjectKind::Directory | ObjectKind::Symlink { .. }
                ) =>
            {
                None
            }
            Some(_) => Some((parent, "not a directory")),
        });
    let text = &written.text;
    if let Some((parent, cause)) = through {
        let detail = format!(
            "is written as {text}, by which the daemon looks for it, and {parent} is not a directory: make it one, or write the \
             path without `..`"
        );
        let message = format!(
            "could not stat file {}: lstat {text}: {cause}",
            quote_go(text)
        );
        return vec![checked_drift(DriftKind::Missing, path, detail, message)];
    }
    let named = |mut drift: Drift| {
        let message = drift.daemon.as_mut();
        if let Some(message) = message {
            *message = message.replacen(&go_path(path), &quote_go(text), 1);
            *message = message.replacen(&format!("lstat {path}:"), &format!("lstat {text}:"), 1);
        }
        drift
    };
    drifts.into_iter().map(named).collect()
}

fn file_drifts(file: &DesiredFile, node: &NodeState, spec2: bool) -> Vec<Drift> {
    let wanted = match wanted_file(file, node) {
        Ok(wanted) => wanted,
        Err(problem) => return vec![unchecked_drift(DriftKind::Owner, &file.path, problem)],
    };
    if spec2 || !is_exempt(&file.path) {
        return compare_file(&file.path, &wanted, node);
    }
    match node.object(&file.path) {
        Some(_) => Vec::new(),
        None => vec![unchecked_drift(
            DriftKind::Missing,
            &file.path,
            "missing; the daemon writes it itself when it runs".into(),
        )],
    }
}

/// Compares a file: the daemon compares mode, then bytes; only this program compares the owner.
fn compare_file(path: &RootPath, wanted: &Object, node: &NodeState) -> Vec<Drift> {
    if let Some(errno) = node.obstructed.get(path) {
        return vec![obstructed_drift(path, errno)];
    }
    let Some(found) = node.object(path) else {
        let message = format!(
            "could not stat file {}: lstat {path}: no such file or directory",
            go_path(path)
        );
        return vec![checked_drift(
            DriftKind::Missing,
            path,
            "missing".into(),
            message,
        )];
    };
    let mut drifts = Vec::new();
    let (want_mode, have_mode) = (GoMode::from_object(wanted), GoMode::from_object(found));
    if want_mode != have_mode {
        let message = format!(
            "mode mismatch for file: {}; expected: {want_mode}; received: {have_mode}",
            go_path(path)
        );
        let detail = match found.kind {
            ObjectKind::File { .. } => {
                format!("mode is {:04o}, should be {:04o}", found.mode, wanted.mode)
            }
            _ => format!("is {}, should be a regular file", kind_noun(&found.kind)),
        };
        drifts.push(checked_drift(DriftKind::Mode, path, detail, message));
    }
    if matches!(found.kind, ObjectKind::File { .. }) && found.kind != wanted.kind {
        let detail = format!(
            "content differs: {} bytes on disk, {} in the config",
            found.size(),
            wanted.size()
        );
        drifts.push(checked_drift(
            DriftKind::Content,
            path,
            detail,
            format!("content mismatch for file {}", go_path(path)),
        ));
    }
    if found.owner() != wanted.owner() && node.host.can_chown {
        let detail = format!(
            "owner is {}:{}, should be {}:{}",
            found.uid, found.gid, wanted.uid, wanted.gid
        );
        drifts.push(unchecked_drift(DriftKind::Owner, path, detail));
    }
    drifts
}

fn obstructed_drift(path: &RootPath, cause: &ResolveError) -> Drift {
    let message = match cause {
        ResolveError::System(Errno::EACCES | Errno::EPERM) => {
            format!(
                "could not read file {}: open {path}: permission denied",
                go_path(path)
            )
        }
        // In Go's words, whose lstat finds nothing behind a dangling link.
        other => format!(
            "could not stat file {}: lstat {path}: {}",
            go_path(path),
            match other {
                ResolveError::NoDirectory(_) => "no such file or directory".to_owned(),
                ResolveError::System(Errno::ELOOP) =>
                    "too many levels of symbolic links".to_owned(),
                other => other.to_string(),
            }
        ),
    };
    let detail = format!("cannot be examined: {cause}");
    checked_drift(DriftKind::Missing, path, detail, message)
}

fn checked_drift(kind: DriftKind, path: &RootPath, detail: String, message: String) -> Drift {
    Drift {
        kind,
        subject: path.to_string(),
        detail,
        daemon: Some(message),
    }
}

/// Returns a difference that the daemon does not check.
pub fn unchecked_drift(kind: DriftKind, path: &RootPath, detail: String) -> Drift {
    Drift {
        kind,
        subject: path.to_string(),
        detail,
        daemon: None,
    }
}

/// Returns the name of an object in messages.
pub fn kind_noun(kind: &ObjectKind) -> String {
    match kind {
        ObjectKind::File { .. } => "a regular file".into(),
        ObjectKind::Symlink { target } => format!("a symbolic link to {target}"),
        ObjectKind::Directory => "a directory".into(),
        ObjectKind::Special { .. } => "a device, pipe or socket".into(),
    }
}

/// A path as the daemon quotes it.
fn go_path(path: &RootPath) -> String {
    quote_go(&path.to_string())
}

/// The path of a unit's file.
pub fn unit_path(unit: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{}/{unit}", paths::UNITS)).ok()
}

/// The path of a unit's drop-in.
pub fn dropin_path(unit: &str, dropin: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{}/{unit}.d/{dropin}", paths::UNITS)).ok()
}

/// Compares a unit: drop-ins first, then the file, then enablement (docs/develop/agreement.md: Validation). For a config of spec 2 the
/// daemon expects empty drop-ins to exist, and does not check enablement.
fn unit_drifts(unit: &Unit, node: &NodeState, spec2: bool) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let owner = node.host.attainable((0, 0));
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
pub fn look_at_end(path: &RootPath, node: &NodeState) -> Result<bool, String> {
    match node.obstructed.get(path) {
        Some(ResolveError::NoDirectory(_)) => return Ok(false),
        Some(cause) => return Err(stat_words(cause)),
        None => {}
    }
    match node.object(path).map(|object| &object.kind) {
        None => Ok(false),
        Some(ObjectKind::Symlink { .. }) => {
            match systemd::eval_symlinks(&node.units, &path.to_string()) {
                Ok(_) => Ok(true),
                Err(Unresolved::Missing(_)) => Ok(false),
                Err(Unresolved::NoDirectory) => Err("not a directory".to_owned()),
                Err(Unresolved::TooManyLinks) => {
                    Err("too many levels of symbolic links".to_owned())
                }
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
fn link_drifts(desired: &Desired, node: &NodeState, unchanged: &UnchangedUnits) -> Vec<Drift> {
    let wanted = unchanged.simulate(desired, node);
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
        .map(|change| match change.target {
            Some(target) => unchecked_drift(
                DriftKind::Enablement,
                &change.path,
                format!("enablement link to {target} is missing"),
            ),
            None => unchecked_drift(
                DriftKind::Enablement,
                &change.path,
                "enablement link should not exist".into(),
            ),
        })
        .collect()
}

fn user_drifts(desired: &Desired, node: &NodeState) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let Some(&owner) = node.accounts.users.get("core") else {
        return drifts;
    };
    if desired.has_users {
        drifts.extend(key_drift(desired, node, owner));
    }
    drifts.extend(password_drift(desired, node));
    drifts
}

/// Compares core's password: only a hash that the config gives, but a line that no login can parse is always reported.
fn password_drift(desired: &Desired, node: &NodeState) -> Option<Drift> {
    if node.accounts.is_broken("core") {
        let path = RootPath::fixed(paths::SHADOW);
        let detail = "the line of core is broken: a line break or a colon is in its password, or fields are missing";
        return Some(unchecked_drift(DriftKind::Password, &path, detail.into()));
    }
    let wanted = desired.password_hash.as_deref()?;
    let found = node.accounts.password("core")?;
    if wanted == found {
        return None;
    }
    let state = if is_locked(found) {
        "locked"
    } else {
        "not that of the config"
    };
    let path = RootPath::fixed(paths::SHADOW);
    Some(unchecked_drift(
        DriftKind::Password,
        &path,
        format!("password of core is {state}"),
    ))
}

fn key_drift(desired: &Desired, node: &NodeState, owner: (u32, u32)) -> Option<Drift> {
    let path = RootPath::fixed(paths::CORE_KEYS);
    let wanted = keys_object(desired, node, owner);
    let detail = match node.object(&path) {
        Some(found) if found.is_like(&wanted) => return None,
        Some(found) if found.kind == wanted.kind => {
            "mode or owner of the key file differs".to_owned()
        }
        Some(_) => "SSH keys of core differ from the config".to_owned(),
        None if node.obstructed.contains_key(&path) => "the key file cannot be examined".to_owned(),
        None => "SSH keys of core are missing".to_owned(),
    };
    Some(unchecked_drift(DriftKind::Keys, &path, detail))
}

/// Returns the key file as it should be (docs/develop/agreement.md: Users).
pub fn keys_object(desired: &Desired, node: &NodeState, owner: (u32, u32)) -> Object {
    text_object(
        keys_text(desired).as_bytes(),
        0o600,
        node.host.attainable(owner),
    )
}

/// One key a line.
pub fn keys_text(desired: &Desired) -> String {
    desired.keys.iter().map(|key| format!("{key}\n")).collect()
}

/// A file mode as Go prints it: type letters, permission letters, decimal, octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GoMode(u32);

impl GoMode {
    const LETTERS: &'static str = "dalTLDpSugct?";

    fn from_object(object: &Object) -> Self {
        let kind = match &object.kind {
            ObjectKind::File { .. } => 0,
            ObjectKind::Directory => 1 << 31,
            ObjectKind::Symlink { .. } => 1 << 27,
            ObjectKind::Special {
                type_bits: libc::S_IFIFO,
            } => 1 << 25,
            ObjectKind::Special {
                type_bits: libc::S_IFSOCK,
            } => 1 << 24,
            ObjectKind::Special {
                type_bits: libc::S_IFCHR,
            } => (1 << 26) | (1 << 21),
            ObjectKind::Special { .. } => 1 << 26,
        };
        let special = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];
        let bits: u32 = special
            .iter()
            .filter(|(unix, _)| object.mode & unix != 0)
            .map(|(_, go)| go)
            .sum();
        Self(kind | bits | (object.mode & 0o777))
    }
}

impl std::fmt::Display for GoMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: String = Self::LETTERS
            .chars()
            .enumerate()
            .filter(|(i, _)| self.0 & (1 << (31 - i)) != 0)
            .map(|(_, c)| c)
            .collect();
        let bits = "rwxrwxrwx"
            .chars()
            .enumerate()
            .map(|(i, c)| if self.0 & (1 << (8 - i)) != 0 { c } else { '-' });
        let types = if types.is_empty() { "-" } else { &types };
        // `%#o` writes a zero before every number but zero.
        let octal = match self.0 {
            0 => "0".to_owned(),
            bits => format!("0{bits:o}"),
        };
        write!(f, "{types}{}/{}/{octal}", bits.collect::<String>(), self.0)
    }
}

#[cfg(test)]
mod tests;
