//! Existing homes: the facts that a plan needs to create, move or reassign one. Read-only.

use std::collections::BTreeSet;

use nix::sys::stat::FileStat;

use super::defaults::Defaults;
use crate::base::object::{Object, ObjectKind};
use crate::base::reason::Reason;
use crate::config::document::ignition::User;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::account_files::{AccountFiles, UserEntry};

/// Maximum number of ownership changes that are made as individual steps.
pub const MAX_OWNED: usize = 10_000;

/// A configured user that will exist, with its home.
#[derive(Debug, Clone)]
pub struct Home {
    /// Index in `passwd.users`.
    pub index: usize,
    /// Uid and gid.
    pub owner: (u32, u32),
    /// Path of the home; `Err`: the reason why it cannot be used.
    pub path: Result<RootPath, Reason>,
    /// This run creates the user.
    pub is_new: bool,
    /// Path of the mailbox of a new user.
    pub mailbox: Option<RootPath>,
    /// Path of the old home; true if it has contents.
    pub moved_from: Option<(RootPath, bool)>,
    /// Uid and gid before this run.
    pub was: (u32, u32),
    /// Objects that belong to the old ids.
    pub owned: Owned,
}

/// Objects that change owner when the ids of a user change.
#[derive(Debug, Clone, Default)]
pub struct Owned {
    /// Paths with their objects, one for each file; file digests are left empty.
    pub entries: Vec<(RootPath, Object)>,
    /// Files among them that have several names (hard links).
    several_names: BTreeSet<(u64, u64)>,
    /// True if there are more than [`MAX_OWNED`].
    pub too_many: bool,
    /// True if some names are not UTF-8, so steps cannot name them.
    pub unnamed: bool,
}

/// Reads the home of one user.
///
/// # Errors
/// The root cannot be read.
pub(super) fn look_at_home(
    root: &Root,
    (index, user): (usize, &User),
    (before, after): (&AccountFiles, &AccountFiles),
    defaults: &Defaults,
) -> Result<Option<Home>, RootError> {
    let Some(entry) = after.find_user(&user.name) else {
        return Ok(None);
    };
    let old = before.find_user(&user.name);
    let path = RootPath::parse(&entry.home).map_err(Reason::from_error);
    let mailboxes = defaults
        .mailboxes
        .as_ref()
        .filter(|_| old.is_none() && user.system != Some(true));
    let mailbox = mailboxes.and_then(|directory| mailbox_path(directory, &user.name));
    let mut home = Home {
        index,
        owner: (entry.uid, entry.gid),
        path,
        is_new: old.is_none(),
        mailbox,
        moved_from: None,
        was: old
            .as_ref()
            .map_or((entry.uid, entry.gid), |old| (old.uid, old.gid)),
        owned: Owned::default(),
    };
    if let (Some(old), Ok(path)) = (old, home.path.clone()) {
        home.moved_from = old_home(root, &old, &path)?;
        if home.was != home.owner {
            let spool = self::mailbox_path(&defaults.mail, &user.name);
            home.owned = find_owned(root, &path, spool.as_ref(), home.was, home.owner)?;
        }
    }
    Ok(Some(home))
}

/// Returns the mailbox of a user.
pub(super) fn mailbox_path(directory: &str, user: &str) -> Option<RootPath> {
    let mailbox = RootPath::parse(directory).ok()?.join(user).ok()?;
    // A name with slashes would name another directory.
    (mailbox.name() == user).then_some(mailbox)
}

/// Returns the old home, unless it is the same directory under another name.
fn old_home(
    root: &Root,
    old: &UserEntry,
    path: &RootPath,
) -> Result<Option<(RootPath, bool)>, RootError> {
    let Ok(from) = RootPath::parse(&old.home) else {
        return Ok(None);
    };
    let place = |path: &RootPath| -> Result<_, RootError> {
        let Some(dir) = root.open_directory(path)? else {
            return Ok(None);
        };
        let stat = nix::sys::stat::fstat(&dir);
        let stat = stat.map_err(|errno| RootError::of_system(path, &errno.into()))?;
        Ok(Some((stat.st_dev, stat.st_ino)))
    };
    let old_place = place(&from)?;
    if from == *path || old_place.is_some() && old_place == place(path)? {
        return Ok(None);
    }
    let filled = !root.list(&from)?.is_empty();
    Ok(Some((from, filled)))
}

/// Returns all objects in the home that belong to the old ids, the home itself first, and the mailbox. Like usermod, leaves a
/// home that belongs to another user alone.
fn find_owned(
    root: &Root,
    home: &RootPath,
    spool: Option<&RootPath>,
    was: (u32, u32),
    now: (u32, u32),
) -> Result<Owned, RootError> {
    let mut found = Owned::default();
    let Some(stat) = root.stat(home)? else {
        return Ok(found);
    };
    if [was.0, now.0].contains(&stat.st_uid) {
        collect_owned(root, home, &stat, (was, now), &mut found)?;
    }
    if let Some(path) = spool.filter(|_| was.0 != now.0)
        && let Some(stat) = root.stat(path)?.filter(|stat| stat.st_uid == was.0)
    {
        note_object(root, path, &stat, &mut found)?;
    }
    Ok(found)
}

fn collect_owned(
    root: &Root,
    path: &RootPath,
    stat: &FileStat,
    ids: ((u32, u32), (u32, u32)),
    found: &mut Owned,
) -> Result<(), RootError> {
    let (was, now) = ids;
    let user = was.0 != now.0 && stat.st_uid == was.0;
    let group = was.1 != now.1 && stat.st_gid == was.1;
    if user || group {
        note_object(root, path, stat, found)?;
    }
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR || found.too_many {
        return Ok(());
    }
    for name in root.list(path)? {
        let below = path.join(&name).ok();
        let stat = below.as_ref().map(|below| root.stat(below));
        match (below, stat.transpose()?.flatten()) {
            (Some(below), Some(stat)) => collect_owned(root, &below, &stat, ids, found)?,
            _ => found.unnamed = true,
        }
    }
    Ok(())
}

fn note_object(
    root: &Root,
    path: &RootPath,
    stat: &FileStat,
    found: &mut Owned,
) -> Result<(), RootError> {
    if found.entries.len() >= MAX_OWNED {
        found.too_many = true;
        return Ok(());
    }
    // The owner of a file changes under all its names at once; a link is created again under each name.
    let is_link = stat.st_mode & libc::S_IFMT == libc::S_IFLNK;
    let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let several = stat.st_nlink > 1 && !is_link && !is_directory;
    if several && !found.several_names.insert((stat.st_dev, stat.st_ino)) {
        return Ok(());
    }
    let Some(place) = root.open_place(path)? else {
        return Ok(());
    };
    let kind = place
        .shallow_kind()
        .map_err(|errno| RootError::at(path, errno))?;
    let object = Object::new(
        kind.unwrap_or(ObjectKind::Directory),
        stat.st_mode & 0o7777,
        (stat.st_uid, stat.st_gid),
    );
    found.entries.push((path.clone(), object));
    Ok(())
}

/// Returns all paths below a directory, relative to it, a directory before its contents.
///
/// # Errors
/// The root cannot be read.
pub(super) fn list_below(root: &Root, directory: &RootPath) -> Result<Vec<String>, RootError> {
    let mut all = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(prefix) = todo.pop() {
        let at = directory
            .join(&prefix)
            .unwrap_or_else(|_| directory.clone());
        for name in root.list(&at)? {
            let relative = format!("{prefix}{name}");
            let Ok(path) = directory.join(&relative) else {
                continue;
            };
            let is_directory = root
                .stat(&path)?
                .is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR);
            all.push(relative.clone());
            if is_directory {
                todo.push(format!("{relative}/"));
            }
        }
    }
    Ok(all)
}
