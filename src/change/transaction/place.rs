//! Single files of this program in the node's own directories: the program, its units and their links (`install`).
//!
//! Each name changes durably in one rename, so an interrupted run can be repeated. At most, it leaves a hidden name ending in
//! `.new` next to the target; systemd does not take that for a unit, and the next run removes it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::disk;
use super::journal::VERSION;
use super::lock::{Lock, LockError};
use super::state::{StateDirectory, StateError};
use crate::base::invocation::{mco_rescue, whole_command};
use crate::base::object::{Object, ObjectKind};
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Place, RealPath, Root, RootError, RootPath};
use crate::node::{Host, Labels};

/// An error when a file of this program is written or removed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A path could not be written.
    #[error(
        "putting {0} in place: {1}. What was put in place before it is complete. Fix the cause first. Next: {again}", again = whole_command()
    )]
    Put(RootPath, Reason),
    /// A path could not be removed.
    #[error("removing {0}: {1}. Fix the cause first. Next: {remove}", remove = mco_rescue("install --remove"))]
    Remove(RootPath, Reason),
    /// A link in place of a directory is broken, and its target cannot be created.
    #[error(
        "{0} is a link to {1}, and nothing can be created there. Create that directory, or mount what holds it. Next: {again}", again = whole_command()
    )]
    Link(RootPath, String),
    /// The lock is not held for writing.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A path could not be resolved.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// A desired file or link at a path.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// Path in the root.
    pub path: &'a RootPath,
    /// Type, mode and owner.
    pub object: &'a Object,
    /// The bytes of a file.
    pub bytes: &'a [u8],
    /// The SELinux label, if the policy has one for the path.
    pub label: Option<&'a str>,
}

/// Directories that were created for our files; they are removed together with the files.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Made {
    version: u32,
    directories: Vec<RootPath>,
}

/// Creates the parent directory of a path, and records every new directory for [`remove_directories`].
///
/// A link whose target is missing is followed: on an OSTree system `/usr/local` leads below `/var`, where a root that never
/// booted does not have that directory yet.
///
/// # Errors
/// Another object is in the way, or the system reports an error.
pub fn make_parent(
    root: &Root,
    lock: &Lock,
    path: &RootPath,
    host: &Host,
    labels: &Labels,
) -> Result<(), PlaceError> {
    lock.require_writable()?;
    let missing = missing_directories(root, path)?;
    if missing.is_empty() {
        return Ok(());
    }
    let directories = missing.iter().map(|(_, real)| real.clone());
    record_directories(root, directories.collect(), host, labels)?;
    for (named, real) in &missing {
        let label = labels.wanted_label(named, &ObjectKind::Directory);
        make_directory(root, real, host.attainable_owner((0, 0)), label.as_deref())
            .map_err(|reason| PlaceError::Put(named.clone(), reason))?;
    }
    Ok(())
}

/// Records directories. The record is durable before the first directory exists: a listed directory that is empty can be
/// removed, but one that is not listed cannot.
fn record_directories(
    root: &Root,
    directories: Vec<RootPath>,
    host: &Host,
    labels: &Labels,
) -> Result<(), StateError> {
    let state = StateDirectory::open_or_make(root, host.separate_var, labels)?;
    let mut made = read_made(root, &state)?;
    for directory in directories {
        if !made.directories.contains(&directory) {
            made.directories.push(directory);
        }
    }
    state.write_file(paths::INSTALL, &made)
}

fn read_made(root: &Root, state: &StateDirectory) -> Result<Made, StateError> {
    let made = state.read_file(root, paths::INSTALL)?;
    Ok(made.unwrap_or(Made {
        version: VERSION,
        directories: Vec::new(),
    }))
}

/// Returns the missing parent directories of a path, topmost first, each with its name and its real path.
///
/// # Errors
/// A path cannot be resolved, or a link leads where no directory can be created.
pub fn missing_directories(
    root: &Root,
    path: &RootPath,
) -> Result<Vec<(RootPath, RootPath)>, PlaceError> {
    let mut above: Vec<RootPath> = path.ancestors().skip(1).collect();
    above.reverse();
    let mut missing: Vec<(RootPath, RootPath)> = Vec::new();
    for named in above {
        let real = match missing.last() {
            Some((_, parent)) => parent.join(named.name()).unwrap_or_else(|_| named.clone()),
            None if root.open_directory(&named)?.is_some() => continue,
            None => match root.read_link(&named)? {
                Some(target) => behind_link(root, &named, &target, &mut missing)?,
                None => named.clone(),
            },
        };
        missing.push((named, real));
    }
    Ok(missing)
}

/// Returns the target of a broken link, and adds the missing directories above it.
fn behind_link(
    root: &Root,
    link: &RootPath,
    target: &str,
    missing: &mut Vec<(RootPath, RootPath)>,
) -> Result<RootPath, PlaceError> {
    let nowhere = || PlaceError::Link(link.clone(), target.to_owned());
    let place = root.open_place(link)?.ok_or_else(nowhere)?;
    let owner = place.stat().ok().flatten().map(|stat| stat.st_uid);
    let tree = fstat(root.as_fd()).ok().map(|stat| stat.st_uid);
    // As everywhere, a link that belongs to an ordinary user is not followed.
    if owner != Some(0) && owner != tree {
        return Err(nowhere());
    }
    let beside = root.real_path(place.dir.as_fd()).ok_or_else(nowhere)?;
    let real = link_target(&beside, target).ok_or_else(nowhere)?;
    let mut above: Vec<RootPath> = real.ancestors().skip(1).collect();
    above.reverse();
    for directory in above {
        if root.read_link(&directory)?.is_some() {
            return Err(nowhere());
        }
        if root.open_directory(&directory)?.is_none() {
            missing.push((directory.clone(), directory));
        }
    }
    Ok(real)
}

/// Resolves a link's target relative to a directory, inside the root; `..` stops there.
fn link_target(beside: &RealPath, target: &str) -> Option<RootPath> {
    let start = match target.strip_prefix('/') {
        Some(_) => "",
        None => beside.relative(),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in start.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    RootPath::parse(&format!("/{}", parts.join("/"))).ok()
}

/// Creates a directory. It is renamed to its final name once mode, owner and label are right, so an interrupted run does not
/// leave one that only root may enter.
fn make_directory(
    root: &Root,
    path: &RootPath,
    owner: (u32, u32),
    label: Option<&str>,
) -> Result<(), Reason> {
    let place = root.open_place(path)?.ok_or(Errno::ENOENT)?;
    let dir = open_place(&place)?;
    let temporary = disk::temporary_name(&place.name);
    disk::remove_staged(dir.as_fd(), &temporary)?;
    disk::make_directory(dir.as_fd(), &temporary, 0o755, owner)?;
    let made = label.map_or(Ok(None), |label| set_label(&place, &temporary, label));
    let placed = made.and_then(|_| Ok(disk::place_new(dir.as_fd(), &temporary, &place)?));
    if placed.is_err() {
        // As for files.
        let _ = disk::remove_staged(dir.as_fd(), &temporary);
    }
    placed?;
    Ok(disk::sync_directory(&dir)?)
}

/// Creates a file or link, or replaces an older one. Returns the reason if it could not be labelled.
///
/// # Errors
/// The system's error; the old object is still at the path.
pub fn put_file(
    root: &Root,
    lock: &Lock,
    placement: &Placement<'_>,
) -> Result<Option<Reason>, PlaceError> {
    lock.require_writable()?;
    try_put(root, placement).map_err(|reason| PlaceError::Put(placement.path.clone(), reason))
}

fn try_put(root: &Root, placement: &Placement<'_>) -> Result<Option<Reason>, Reason> {
    let place = root.open_place(placement.path)?.ok_or(Errno::ENOENT)?;
    let dir = open_place(&place)?;
    let temporary = disk::temporary_name(&place.name);
    disk::remove_file(dir.as_fd(), &temporary)?;
    let result = write_and_rename(&dir, &temporary, &place, placement);
    if result.is_err() {
        // The first error is the one that matters; the next run sweeps leftovers.
        let _ = disk::remove_file(dir.as_fd(), &temporary);
    }
    result
}

fn write_and_rename(
    dir: &File,
    temporary: &str,
    place: &Place,
    placement: &Placement<'_>,
) -> Result<Option<Reason>, Reason> {
    let object = placement.object;
    if let ObjectKind::Symlink { target } = &object.kind {
        disk::write_link(dir.as_fd(), temporary, target, object.owner())?;
    } else {
        let source = disk::ByteSource::Bytes(placement.bytes);
        let (written, _) = disk::write_file(dir.as_fd(), temporary, source, object, true)?;
        if written != object.kind {
            return Err(Reason::from(io::Error::other("not all bytes arrived")));
        }
    }
    let unlabelled = match placement.label {
        Some(label) => set_label(place, temporary, label)?,
        None => None,
    };
    disk::rename_over(dir.as_fd(), temporary, place)?;
    disk::sync_directory(dir)?;
    Ok(unlabelled)
}

/// Sets the label of the object at a path. Returns the reason if that is impossible.
///
/// # Errors
/// The disk is broken.
pub fn relabel_file(
    root: &Root,
    lock: &Lock,
    path: &RootPath,
    label: &str,
) -> Result<Option<Reason>, PlaceError> {
    lock.require_writable()?;
    let relabel = || {
        let place = root.open_place(path)?.ok_or(Errno::ENOENT)?;
        set_label(&place, &place.name, label)
    };
    relabel().map_err(|reason| PlaceError::Put(path.clone(), reason))
}

fn set_label(place: &Place, name: &str, label: &str) -> Result<Option<Reason>, Reason> {
    match disk::set_label(place.dir.as_fd(), name, label) {
        Ok(()) => Ok(None),
        Err(errno) if disk::is_refusal(errno) => Ok(Some(errno.into())),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the temporary name that an interrupted run left next to a path.
///
/// # Errors
/// The system's error.
pub fn sweep_temporary(root: &Root, lock: &Lock, path: &RootPath) -> Result<(), PlaceError> {
    lock.require_writable()?;
    try_sweep(root, path).map_err(|reason| PlaceError::Remove(path.clone(), reason))
}

fn try_sweep(root: &Root, path: &RootPath) -> Result<(), Reason> {
    let Some(mut place) = root.open_place(path)? else {
        return Ok(());
    };
    place.name = disk::temporary_name(&place.name);
    if place.stat()?.is_some() {
        disk::remove_staged(place.dir.as_fd(), &place.name)?;
    }
    Ok(())
}

/// Removes a file or link, durably. Returns true if there was one.
///
/// # Errors
/// The system's error.
pub fn remove_file(root: &Root, lock: &Lock, path: &RootPath) -> Result<bool, PlaceError> {
    lock.require_writable()?;
    try_remove(root, path).map_err(|reason| PlaceError::Remove(path.clone(), reason))
}

fn try_remove(root: &Root, path: &RootPath) -> Result<bool, Reason> {
    let Some(place) = root.open_place(path)? else {
        return Ok(false);
    };
    if place.stat()?.is_none() {
        return Ok(false);
    }
    disk::remove_file(place.dir.as_fd(), &place.name)?;
    disk::sync_directory(&open_place(&place)?)?;
    Ok(true)
}

/// Removes a path with everything below it. Returns true if it existed.
///
/// # Errors
/// The system's error.
pub fn remove_tree(root: &Root, lock: &Lock, path: &RootPath) -> Result<bool, PlaceError> {
    lock.require_writable()?;
    let remove = || {
        let Some(place) = root.open_place(path)? else {
            return Ok(false);
        };
        let was_there = place.stat()?.is_some();
        disk::remove_tree(place.dir.as_fd(), place.name.as_str())?;
        Ok(was_there)
    };
    remove().map_err(|reason| PlaceError::Remove(path.clone(), reason))
}

/// Removes the directories that [`make_parent`] created, if they are empty. Returns those that were removed.
///
/// # Errors
/// The system's error.
pub fn remove_directories(root: &Root, lock: &Lock) -> Result<Vec<RootPath>, PlaceError> {
    lock.require_writable()?;
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(Vec::new());
    };
    let mut directories = read_made(root, &state)?.directories;
    // Subdirectories come first.
    directories.order_by_key(|path| std::cmp::Reverse(path.ancestors().count()));
    let mut gone = Vec::new();
    for path in directories {
        let removed = try_sweep(root, &path).and_then(|()| remove_directory(root, &path));
        if removed.map_err(|reason| PlaceError::Remove(path.clone(), reason))? {
            gone.push(path);
        }
    }
    Ok(gone)
}

fn remove_directory(root: &Root, path: &RootPath) -> Result<bool, Reason> {
    let Some(place) = root.open_place(path)? else {
        return Ok(false);
    };
    // A link that has replaced it since is not ours.
    if !place
        .shallow_kind()?
        .is_some_and(|found| found == ObjectKind::Directory)
    {
        return Ok(false);
    }
    let gone = disk::remove_directory(place.dir.as_fd(), &place.name)?;
    disk::sync_directory(&open_place(&place)?)?;
    Ok(gone)
}

/// Removes the state directory with cache and history. Returns true if it existed. Its marker is removed last, so that an
/// interrupted removal can be repeated.
///
/// # Errors
/// A directory is not ours, or the system's error.
pub fn remove_state(root: &Root, lock: &Lock) -> Result<bool, PlaceError> {
    lock.require_writable()?;
    if lock.made_state() {
        return Ok(false);
    }
    let path = RootPath::fixed(paths::STATE);
    let Some(place) = root.open_place(&path)? else {
        return Ok(false);
    };
    let state = StateDirectory::open(root)?;
    let failed = |reason: Reason| PlaceError::Remove(path.clone(), reason);
    if place.stat().map_err(|e| failed(e.into()))?.is_none() {
        return Ok(false);
    }
    empty_state(root, state.as_ref(), &path).map_err(failed)?;
    remove_directory(root, &path).map_err(failed)?;
    Ok(true)
}

fn empty_state(root: &Root, state: Option<&StateDirectory>, path: &RootPath) -> Result<(), Reason> {
    let Some(dir) = root.open_directory(path)? else {
        return Ok(());
    };
    let marker = RootPath::fixed(paths::MARKER);
    let names = root.list(path)?;
    for name in names.iter().filter(|name| *name != marker.name()) {
        disk::remove_tree(dir.as_fd(), name.as_str())?;
    }
    if let Some(state) = state {
        disk::sync_directory(state.dir())?;
    }
    Ok(disk::remove_file(dir.as_fd(), marker.name())?)
}

fn open_place(place: &Place) -> Result<File, Errno> {
    disk::open_directory(place.dir.as_fd(), ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lands_in_root_however_it_climbs() {
        let usr = RealPath::Below(RootPath::fixed("usr"));
        let lands = |target| link_target(&usr, target).map(|path| path.to_string());
        for (target, wanted) in [
            ("../var/usrlocal", Some("/var/usrlocal")),
            ("/var/usrlocal/", Some("/var/usrlocal")),
            ("../../../../opt", Some("/opt")),
            ("./local2", Some("/usr/local2")),
            ("..", None),
            ("/", None),
        ] {
            assert_eq!(lands(target).as_deref(), wanted, "{target}");
        }
    }
}
