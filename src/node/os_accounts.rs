//! Users and groups that the packages of the OS need: those that are missing, what stops the program that makes them, and
//! state directories that belong to another number.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::account_files::AccountFiles;
use crate::node::view::{FileKind, FileStatus, NodeView};
use crate::object::Flags;
use crate::paths;
use crate::root::{Root, RootError, RootPath};
use crate::systemd::sysusers::{WantedAccount, find_missing};

/// Directories of sysusers.d; a file of an earlier one hides those of the same name.
const SYSUSERS: [&str; 3] = ["etc/sysusers.d", "run/sysusers.d", "usr/lib/sysusers.d"];
/// Files that systemd-sysusers replaces.
const WRITTEN: [&str; 4] = [paths::PASSWD, paths::GROUP, paths::SHADOW, paths::GSHADOW];
/// State of services that do not run as root: directory, user.
const STATE: [(&str, &str); 8] = [
    ("etc/openvswitch", "openvswitch"),
    ("var/lib/openvswitch", "openvswitch"),
    ("var/log/openvswitch", "openvswitch"),
    ("var/lib/chrony", "chrony"),
    ("var/log/chrony", "chrony"),
    ("var/lib/rpcbind", "rpc"),
    ("var/lib/nfs/statd", "rpcuser"),
    ("var/lib/unbound", "unbound"),
];
/// Directories whose entries are state of services.
const ABOVE_STATE: [&str; 5] = ["etc", "var/lib", "var/log", "var/cache", "var/spool"];
/// Most wrong lines that are kept.
const MAX_LINES: usize = 20;

/// What is wrong with the accounts of a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsAccounts {
    /// Accounts that packages ask for, and that are missing.
    pub missing: Vec<WantedAccount>,
    /// What stops systemd-sysusers, so that it makes none of them.
    pub stops: Vec<SysusersStop>,
    /// State that belongs to a number that is not that of its user.
    pub foreign: Vec<ForeignState>,
    /// Lines that no program reads: file, number, fault.
    pub bad_lines: Vec<(String, usize, &'static str)>,
    /// `nsswitch.conf` does not name altfiles, so that users of `/usr/lib/passwd` are unknown.
    pub without_altfiles: bool,
}

/// An obstacle for systemd-sysusers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysusersStop {
    /// The file.
    pub path: String,
    /// What systemd-sysusers says.
    pub said: String,
    /// The kind, which decides about the cure.
    pub kind: StopKind,
}

/// Kinds of obstacles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopKind {
    /// `gshadow` has a line for a group that is to be made.
    OrphanLine(String),
    /// The file has the immutable attribute.
    Immutable,
    /// It is no regular file.
    NoFile,
}

/// A state directory or a file in it with a foreign owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignState {
    /// The directory.
    pub path: String,
    /// The first path in it, or itself, that belongs to another number.
    pub first: String,
    /// Owner and group there.
    pub found: (u32, u32),
    /// User and group that it should belong to: names and numbers.
    pub user: (String, u32),
    /// The group, likewise.
    pub group: (String, u32),
    /// The number of this user in `/usr/lib/passwd`, if it is another one.
    pub of_os: Option<u32>,
    /// The user that has the found number now.
    pub owner: Option<String>,
}

/// Numbers of one kind of account.
#[derive(Debug, Default)]
struct Numbers {
    /// Name to number, as a look-up finds it.
    effective: BTreeMap<String, u32>,
    /// Number in the file of the OS to the name whose look-up finds another number.
    shadowed: BTreeMap<u32, String>,
}

impl Numbers {
    fn of(own: &[(String, u32)], of_os: &[(String, u32)]) -> Self {
        let mut numbers = Self::default();
        for (name, number) in own {
            numbers.effective.entry(name.clone()).or_insert(*number);
        }
        for (name, number) in of_os {
            match numbers.effective.get(name) {
                Some(other) if other != number => {
                    numbers.shadowed.insert(*number, name.clone());
                }
                Some(_) => {}
                None => {
                    numbers.effective.insert(name.clone(), *number);
                }
            }
        }
        numbers
    }

    fn name_of(&self, number: u32) -> Option<&String> {
        let mut all = self.effective.iter();
        all.find(|(_, other)| **other == number)
            .map(|(name, _)| name)
    }
}

/// Reads the accounts of a root.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Root) -> Result<OsAccounts, RootError> {
    let view = NodeView::now(root);
    let text = |path: &'static str| {
        let text = view.text(&RootPath::fixed(path))?;
        Ok::<_, RootError>(text.unwrap_or_default())
    };
    let (passwd, group) = (text(paths::PASSWD)?, text(paths::GROUP)?);
    let (os_passwd, os_group) = (text(paths::USR_PASSWD)?, text(paths::USR_GROUP)?);
    let switch = text("etc/nsswitch.conf")?;
    let reads_altfiles = |database: &str| names_altfiles(&switch, database);
    let mut found = OsAccounts {
        without_altfiles: !os_passwd.is_empty() && !reads_altfiles("passwd:"),
        ..OsAccounts::default()
    };
    if passwd.is_empty() {
        return Ok(found);
    }
    let of_os = |text: &str, database: &str| match reads_altfiles(database) {
        true => numbers_in(text),
        false => Vec::new(),
    };
    let users = Numbers::of(&numbers_in(&passwd), &of_os(&os_passwd, "passwd:"));
    let groups = Numbers::of(&numbers_in(&group), &of_os(&os_group, "group:"));
    let files = read_sysusers(&view)?;
    let names =
        |numbers: &Numbers| -> BTreeSet<String> { numbers.effective.keys().cloned().collect() };
    found.missing = find_missing(&files, &names(&users), &names(&groups));
    if !found.missing.is_empty() {
        found.stops = find_stops(&view, &found.missing)?;
    }
    for (path, text, fields) in [(paths::PASSWD, &passwd, 7), (paths::GROUP, &group, 4)] {
        // `lines` would hide a carriage return.
        let bad = text.split('\n').enumerate().filter_map(|(index, line)| {
            let fault = fault_of(line, fields)?;
            Some((format!("/{path}"), index + 1, fault))
        });
        found.bad_lines.extend(bad.take(MAX_LINES));
    }
    let mut accounts = AccountFiles::default();
    accounts.insert(paths::PASSWD, passwd.into_bytes());
    if reads_altfiles("passwd:") {
        accounts.insert(paths::USR_PASSWD, os_passwd.into_bytes());
    }
    found.foreign = find_foreign(&view, &users, &groups, &accounts)?;
    Ok(found)
}

/// Returns true if a look-up finds the files of the OS; without a file they are looked up too.
fn names_altfiles(switch: &str, database: &str) -> bool {
    let mut lines = switch.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with(database));
    line.is_none_or(|line| line.split_whitespace().any(|word| word == "altfiles"))
}

fn numbers_in(text: &str) -> Vec<(String, u32)> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// Returns the fault of a line that a look-up passes over.
fn fault_of(line: &str, fields: usize) -> Option<&'static str> {
    let is_comment = line.trim().is_empty() || line.starts_with(['#', '+', '-']);
    if is_comment {
        return None;
    }
    if line.ends_with('\r') {
        return Some("ends with a carriage return");
    }
    let all: Vec<&str> = line.split(':').collect();
    let is_number = |at: usize| {
        all.get(at)
            .is_some_and(|field| field.parse::<u32>().is_ok())
    };
    match () {
        () if all.len() != fields => Some("has another number of fields"),
        () if all.first().is_some_and(|name| name.is_empty()) => Some("has no name"),
        () if !is_number(2) || (fields == 7 && !is_number(3)) => {
            Some("has an id that is no number")
        }
        () => None,
    }
}

fn read_sysusers(view: &NodeView<'_>) -> Result<Vec<(String, String)>, RootError> {
    let mut files: BTreeMap<String, (String, String)> = BTreeMap::new();
    for directory in SYSUSERS {
        let directory = RootPath::fixed(directory);
        for name in view.names(&directory)? {
            let Ok(path) = directory.join(&name) else {
                continue;
            };
            if !name.ends_with(".conf") || files.contains_key(&name) {
                continue;
            }
            let masked = view
                .read_link(&path)?
                .is_some_and(|target| target == "/dev/null");
            let text = if masked { None } else { view.text(&path)? };
            files.insert(name, (path.to_string(), text.unwrap_or_default()));
        }
    }
    Ok(files.into_values().collect())
}

/// Finds what keeps systemd-sysusers from writing anything.
fn find_stops(
    view: &NodeView<'_>,
    missing: &[WantedAccount],
) -> Result<Vec<SysusersStop>, RootError> {
    let mut stops = Vec::new();
    for path in WRITTEN.into_iter().chain([paths::PWD_LOCK]) {
        let at = RootPath::fixed(path);
        let is_lock = path == paths::PWD_LOCK;
        let link = is_lock && view.read_link(&at)?.is_some();
        let kind = view.status(&at)?.map(|status| status.kind);
        if link || kind.is_some_and(|kind| kind != FileKind::File) {
            let words = if link {
                "Too many levels of symbolic links"
            } else {
                "Is a directory"
            };
            let said = match is_lock {
                true => format!("Failed to take /etc/passwd lock: {words}"),
                false => format!("Failed to load the database: {words}"),
            };
            stops.push(SysusersStop {
                path: at.to_string(),
                said,
                kind: StopKind::NoFile,
            });
        } else if !is_lock && is_immutable(view.root(), &at)? {
            stops.push(SysusersStop {
                path: at.to_string(),
                said: format!("Failed to rename to {at}: Operation not permitted"),
                kind: StopKind::Immutable,
            });
        }
    }
    let at = RootPath::fixed(paths::GSHADOW);
    let is_file = view
        .status(&at)?
        .is_some_and(|status| status.kind == FileKind::File);
    let text = match view.text(&at) {
        Err(error) if error.cause.is_denied() => None,
        _ if !is_file => None,
        text => text?,
    };
    let text = text.unwrap_or_default();
    let named: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    let orphans = missing
        .iter()
        .filter(|one| one.is_group && named.contains(one.name.as_str()));
    stops.extend(orphans.map(|one| SysusersStop {
        path: at.to_string(),
        said: format!("/etc/gshadow: Group \"{}\" already exists.", one.name),
        kind: StopKind::OrphanLine(one.name.clone()),
    }));
    Ok(stops)
}

fn is_immutable(root: &Root, path: &RootPath) -> Result<bool, RootError> {
    let Some(place) = root.place(path)? else {
        return Ok(false);
    };
    let hold = place.hold().map_err(|errno| RootError {
        path: path.to_string(),
        cause: errno.into(),
    })?;
    Ok(hold.is_some_and(|hold| holds(hold.flags)))
}

fn holds(flags: Flags) -> bool {
    !flags.is_empty()
}

/// Finds state whose owner is not the user that runs the service.
fn find_foreign(
    view: &NodeView<'_>,
    users: &Numbers,
    groups: &Numbers,
    accounts: &AccountFiles,
) -> Result<Vec<ForeignState>, RootError> {
    let search = Search {
        view,
        users,
        groups,
        accounts,
    };
    let mut found: Vec<ForeignState> = Vec::new();
    for (directory, user) in STATE {
        if users.effective.contains_key(user) {
            found.extend(search.state_of(&RootPath::fixed(directory), user)?);
        }
    }
    if users.shadowed.is_empty() {
        return Ok(found);
    }
    for above in ABOVE_STATE {
        let above = RootPath::fixed(above);
        for name in view.names(&above)? {
            let Ok(path) = above.join(&name) else {
                continue;
            };
            let known = found.iter().any(|one| one.path == path.to_string());
            let Some(status) = view.status(&path)?.filter(|_| !known) else {
                continue;
            };
            // A number that nobody has any more, and that was the user's in the file of the OS.
            let user = users.shadowed.get(&status.uid);
            if let Some(user) = user.filter(|_| users.name_of(status.uid).is_none()) {
                found.extend(search.describe(&path, &path, status, user));
            }
        }
    }
    Ok(found)
}

struct Search<'a> {
    view: &'a NodeView<'a>,
    users: &'a Numbers,
    groups: &'a Numbers,
    accounts: &'a AccountFiles,
}

impl Search<'_> {
    /// Looks at a state directory and its entries.
    fn state_of(
        &self,
        directory: &RootPath,
        user: &str,
    ) -> Result<Option<ForeignState>, RootError> {
        let is_foreign = |status: FileStatus| {
            status.uid != 0 && self.users.effective.get(user) != Some(&status.uid)
        };
        let Some(status) = self.view.status(directory)? else {
            return Ok(None);
        };
        if status.kind != FileKind::Directory {
            return Ok(None);
        }
        if is_foreign(status) {
            return Ok(self.describe(directory, directory, status, user));
        }
        for name in self.view.names(directory)? {
            let Ok(path) = directory.join(&name) else {
                continue;
            };
            let status = self.view.status(&path)?;
            if let Some(status) = status.filter(|status| is_foreign(*status)) {
                return Ok(self.describe(directory, &path, status, user));
            }
        }
        Ok(None)
    }

    fn describe(
        &self,
        directory: &RootPath,
        first: &RootPath,
        status: FileStatus,
        user: &str,
    ) -> Option<ForeignState> {
        let uid = *self.users.effective.get(user)?;
        let of_os = self.users.shadowed.iter().find(|(_, name)| *name == user);
        let primary = self.accounts.user(user).map(|entry| entry.gid);
        // A group of the OS with another number now; a group that exists stays; else that of the user.
        let named = self.groups.shadowed.get(&status.gid);
        let named = named.or_else(|| self.groups.name_of(status.gid).filter(|_| status.gid != 0));
        let gid = match named {
            Some(name) => self.groups.effective.get(name).copied(),
            None => primary,
        };
        let gid = gid.unwrap_or(uid);
        let name = self.groups.name_of(gid).cloned();
        Some(ForeignState {
            path: directory.to_string(),
            first: first.to_string(),
            found: (status.uid, status.gid),
            user: (user.to_owned(), uid),
            group: (name.unwrap_or_else(|| gid.to_string()), gid),
            of_os: of_os.map(|(number, _)| *number),
            owner: self.users.name_of(status.uid).cloned(),
        })
    }
}
