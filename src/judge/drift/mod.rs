//! Drift: where the disk differs from a config, in the daemon's order and words.
//!
//! Pure: a config and a node state in, a list out. A difference that the daemon's own check (docs/develop/agreement.md: Validation)
//! would report carries its message; one that the daemon never checks is marked so. Applying a config means clearing this list.

pub mod enablement;
mod go_mode;
mod os;
mod unit_drifts;

pub use os::{
    DiskOs, OsMatch, absent_arguments, disk_drifts, disk_image_drift, image_drift, is_next,
    left_arguments, match_os, missing_arguments, os_drifts, os_mismatch, wanted_image,
};
pub use unit_drifts::look_at_end;

use nix::errno::Errno;

use crate::base::go_quote::quote_go;
use crate::base::object::{HexDigest, Object, ObjectKind};
use crate::base::paths;
use crate::config::document::{Desired, DesiredFile, Owner, Undecodable, WrittenPath};
use crate::host::root::{ResolveError, RootPath, sha256_hex};
use crate::node::accounts::is_locked;
use crate::node::{Accounts, NodeState};

use self::enablement::UnchangedUnits;
use go_mode::GoMode;
use unit_drifts::{link_drifts, unit_drifts, written_unit_drifts};

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
    /// A unit that should be off and is not, or a link of a unit that should not exist.
    Enablement,
    /// A link of a unit is missing.
    #[serde(rename = "enablement")]
    MissingLink,
    /// Present, but the config removes it.
    Superfluous,
    /// SSH keys of `core`.
    Keys,
    /// Mode or owner of the file with the SSH keys of `core`, whose keys are right.
    #[serde(rename = "keys")]
    KeyAttributes,
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

/// The root's account files do not have an owner that the config names. The text is the daemon's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownOwner {
    /// A user.
    #[error("failed to retrieve UserID for username: {0}")]
    User(String),
    /// A group.
    #[error("failed to retrieve GroupID for group: {0}")]
    Group(String),
}

/// Returns the object that a file entry asks for, as far as this process can create it.
///
/// # Errors
/// The root does not have the user or the group.
pub fn wanted_file(file: &DesiredFile, node: &NodeState) -> Result<Object, UnknownOwner> {
    let (uid, gid) = node.host.attainable_owner(wanted_owner(file, node)?);
    let kind = ObjectKind::File {
        size: file.size,
        sha256: file.sha256.clone(),
    };
    Ok(Object::new(kind, file.mode, (uid, gid)))
}

/// Returns the owner of a file. Unless the config names a group, Ignition leaves a new file the group that the kernel gives it.
/// The daemon sets every group.
fn wanted_owner(file: &DesiredFile, node: &NodeState) -> Result<(u32, u32), UnknownOwner> {
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
/// The root does not have the name; the same for [`group_id`].
pub fn user_id(user: &Owner, accounts: &Accounts) -> Result<u32, UnknownOwner> {
    match user {
        Owner::Id(id) => Ok(*id),
        Owner::Name(name) => {
            let found = accounts.users.get(name).map(|(uid, _)| *uid);
            found.ok_or_else(|| UnknownOwner::User(name.clone()))
        }
    }
}

/// Returns the number of a group.
pub fn group_id(group: &Owner, accounts: &Accounts) -> Result<u32, UnknownOwner> {
    match group {
        Owner::Id(id) => Ok(*id),
        Owner::Name(name) => {
            let found = accounts.groups.get(name).copied();
            found.ok_or_else(|| UnknownOwner::Group(name.clone()))
        }
    }
}

/// Returns a regular file with this text.
pub fn text_object(text: &[u8], mode: u32, owner: (u32, u32)) -> Object {
    let sha256 = match text {
        [] => HexDigest::of_nothing(),
        text => sha256_hex(text).into(),
    };
    Object::new(
        ObjectKind::File {
            size: text.len() as u64,
            sha256,
        },
        mode,
        owner,
    )
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

fn file_drifts(file: &DesiredFile, node: &NodeState, spec2: bool) -> Vec<Drift> {
    let wanted = match wanted_file(file, node) {
        Ok(wanted) => wanted,
        Err(error) => {
            return vec![unchecked_drift(
                DriftKind::Owner,
                &file.path,
                error.to_string(),
            )];
        }
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
    drifts.extend(compare_mode(path, wanted, found));
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

/// Compares type and mode as the daemon does, in Go's form.
fn compare_mode(path: &RootPath, wanted: &Object, found: &Object) -> Option<Drift> {
    let (want_mode, have_mode) = (GoMode::from_object(wanted), GoMode::from_object(found));
    if want_mode == have_mode {
        return None;
    }
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
    Some(checked_drift(DriftKind::Mode, path, detail, message))
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

/// Returns a path as the daemon quotes it.
fn go_path(path: &RootPath) -> String {
    quote_go(&path.to_string())
}

/// Returns the path of a unit's file.
pub fn unit_path(unit: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{}/{unit}", paths::UNITS)).ok()
}

/// Returns the path of a unit's drop-in.
pub fn dropin_path(unit: &str, dropin: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{}/{unit}.d/{dropin}", paths::UNITS)).ok()
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
    let found = node.accounts.find_password("core")?;
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
    let (kind, detail) = match node.object(&path) {
        Some(found) if found.is_like(&wanted) => return None,
        Some(found) if found.kind == wanted.kind => {
            let detail = "mode or owner of the key file differs";
            (DriftKind::KeyAttributes, detail)
        }
        Some(_) => (DriftKind::Keys, "SSH keys of core differ from the config"),
        None if node.obstructed.contains_key(&path) => {
            (DriftKind::Keys, "the key file cannot be examined")
        }
        None => (DriftKind::Keys, "SSH keys of core are missing"),
    };
    Some(unchecked_drift(kind, &path, detail.to_owned()))
}

/// Returns the key file as it should be (docs/develop/agreement.md: Users).
pub fn keys_object(desired: &Desired, node: &NodeState, owner: (u32, u32)) -> Object {
    text_object(
        keys_text(desired).as_bytes(),
        0o600,
        node.host.attainable_owner(owner),
    )
}

/// One key a line.
pub fn keys_text(desired: &Desired) -> String {
    desired.keys.iter().map(|key| format!("{key}\n")).collect()
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

#[cfg(test)]
mod tests;
