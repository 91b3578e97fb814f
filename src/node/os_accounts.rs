//! Users and groups that packages of the OS need: missing ones, whatever stops the program that creates them, and state
//! directories that belong to the wrong id.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::object::Flags;
use crate::base::paths;
use crate::formats::systemd::sysusers::{WantedAccount, find_missing};
use crate::host::root::{EntryType, Root, RootError, RootPath};
use crate::node::account_files::AccountFiles;
use crate::node::view::{FileKind, FileStatus, NodeView};

/// Directories of sysusers.d; a file in an earlier one hides files of the same name.
const SYSUSERS: [&str; 3] = ["etc/sysusers.d", "run/sysusers.d", "usr/lib/sysusers.d"];
/// Files that systemd-sysusers replaces.
const WRITTEN: [&str; 4] = [paths::PASSWD, paths::GROUP, paths::SHADOW, paths::GSHADOW];
/// State directories of services that do not run as root, each with its user.
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
/// Directories that contain state of services.
const ABOVE_STATE: [&str; 5] = ["etc", "var/lib", "var/log", "var/cache", "var/spool"];
/// Maximum number of invalid lines that are kept.
const MAX_LINES: usize = 20;
/// Maximum number of paths that are kept of one state directory.
const MAX_PATHS: usize = 200;
const SWITCH: &str = "etc/nsswitch.conf";

/// What is wrong with the accounts of a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsAccounts {
    /// Missing accounts that packages request.
    pub missing: Vec<WantedAccount>,
    /// Reasons why systemd-sysusers fails and creates none of them.
    pub stops: Vec<SysusersStop>,
    /// State that does not belong to its service's user.
    pub foreign: Vec<ForeignState>,
    /// Lines that every program ignores: file, line number, fault.
    pub bad_lines: Vec<(String, usize, &'static str)>,
    /// Lines whose last field ends in a carriage return: file, line number.
    pub returns: Vec<(String, usize)>,
    /// `nsswitch.conf` does not list altfiles, so users in `/usr/lib/passwd` are unknown.
    pub without_altfiles: bool,
    /// The contents that fix the faults.
    pub cures: AccountCures,
}

/// Paths of files with their content.
pub type FileContents = Vec<(String, Vec<u8>)>;

/// Contents that fix missing accounts or carriage returns. Files that are links have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountCures {
    /// `nsswitch.conf` with altfiles, if that makes every missing account known.
    pub switch: Option<Vec<u8>>,
    /// `passwd` and `group` with the lines of the OS added, if the OS has a line for every missing account.
    pub copied: Option<FileContents>,
    /// Account files without carriage returns at the ends of lines.
    pub without_returns: Option<FileContents>,
}

/// An obstacle for systemd-sysusers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysusersStop {
    /// The file.
    pub path: String,
    /// The message of systemd-sysusers.
    pub said: String,
    /// The kind, which determines the fix.
    pub kind: StopKind,
}

/// Kinds of obstacles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopKind {
    /// `gshadow` has a line for a group that is about to be created.
    OrphanLine(String),
    /// The file has the immutable attribute.
    Immutable,
    /// It is not a regular file.
    NoFile,
}

/// A state directory with a wrong owner, of itself or of a file in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignState {
    /// The directory.
    pub path: String,
    /// The first path, in it or itself, that belongs to another id.
    pub first: String,
    /// Owner and group there.
    pub found: (u32, u32),
    /// User and group that it should belong to: names and ids.
    pub user: (String, u32),
    /// The group, likewise.
    pub group: (String, u32),
    /// The id of this user in `/usr/lib/passwd`, if that differs.
    pub of_os: Option<u32>,
    /// The user that currently has the found id.
    pub owner: Option<String>,
    /// All paths in it that belong to another id; `None` if there are too many, or any that is neither a file nor a directory.
    pub paths: Option<Vec<String>>,
}

/// Ids of users or of groups.
#[derive(Debug, Default)]
struct Numbers {
    /// Id by name, as a lookup finds it.
    effective: BTreeMap<String, u32>,
    /// Id in the OS's file, with the name for which a lookup finds a different id.
    shadowed: BTreeMap<u32, String>,
}

impl Numbers {
    fn from_entries(own: &[(String, u32)], of_os: &[(String, u32)]) -> Self {
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

    fn names(&self) -> BTreeSet<String> {
        self.effective.keys().cloned().collect()
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
/// A file cannot be read.
pub fn read_os_accounts(root: &Root) -> Result<OsAccounts, RootError> {
    let view = NodeView::now(root);
    let texts = Texts::read_view(&view)?;
    let mut found = OsAccounts {
        without_altfiles: texts.lacks_altfiles(),
        ..OsAccounts::default()
    };
    if texts.passwd.is_empty() {
        return Ok(found);
    }
    let (users, groups) = texts.numbers_for(&texts.switch);
    let files = read_sysusers(&view)?;
    found.missing = find_missing(&files, &users.names(), &groups.names());
    if !found.missing.is_empty() {
        found.stops = find_stops(&view, &found.missing)?;
        found.cures.switch = texts.with_altfiles(root, &files)?;
        found.cures.copied = texts.with_lines_of_os(root, &found.missing)?;
    }
    for (path, text, fields) in texts.own_files() {
        // `lines` would hide carriage returns.
        let lines = text.split('\n').enumerate();
        let returns = lines.clone().filter(|(_, line)| ends_with_return(line));
        let returns = returns.map(|(index, _)| (format!("/{path}"), index + 1));
        found.returns.extend(returns.take(MAX_LINES));
        let bad = lines.filter_map(|(index, line)| {
            let fault = fault_of(line.trim_end_matches('\r'), fields)?;
            Some((format!("/{path}"), index + 1, fault))
        });
        found.bad_lines.extend(bad.take(MAX_LINES));
    }
    if !found.returns.is_empty() {
        found.cures.without_returns = texts.without_returns(root)?;
    }
    let mut accounts = AccountFiles::default();
    accounts.insert(paths::PASSWD, texts.passwd.clone().into_bytes());
    if names_altfiles(&texts.switch, "passwd:") {
        accounts.insert(paths::USR_PASSWD, texts.os_passwd.clone().into_bytes());
    }
    found.foreign = find_foreign(&view, &users, &groups, &accounts)?;
    Ok(found)
}

/// The files in which a lookup finds accounts.
struct Texts {
    passwd: String,
    group: String,
    os_passwd: String,
    os_group: String,
    switch: String,
}

impl Texts {
    fn read_view(view: &NodeView<'_>) -> Result<Self, RootError> {
        let text = |path: &'static str| {
            let text = view.text(&RootPath::fixed(path))?;
            Ok::<_, RootError>(text.unwrap_or_default())
        };
        Ok(Self {
            passwd: text(paths::PASSWD)?,
            group: text(paths::GROUP)?,
            os_passwd: text(paths::USR_PASSWD)?,
            os_group: text(paths::USR_GROUP)?,
            switch: text(SWITCH)?,
        })
    }

    /// Returns the files in `etc`, each with the number of fields in a line.
    fn own_files(&self) -> [(&'static str, &str, usize); 2] {
        [
            (paths::PASSWD, &self.passwd, 7),
            (paths::GROUP, &self.group, 4),
        ]
    }

    fn lacks_altfiles(&self) -> bool {
        let lacks =
            |text: &str, database| !text.is_empty() && !names_altfiles(&self.switch, database);
        lacks(&self.os_passwd, "passwd:") || lacks(&self.os_group, "group:")
    }

    /// Returns the users and groups that a lookup finds with this text of `nsswitch.conf`.
    fn numbers_for(&self, switch: &str) -> (Numbers, Numbers) {
        let of_os = |text: &str, database: &str| {
            if names_altfiles(switch, database) {
                numbers_in(text)
            } else {
                Vec::new()
            }
        };
        (
            Numbers::from_entries(
                &numbers_in(&self.passwd),
                &of_os(&self.os_passwd, "passwd:"),
            ),
            Numbers::from_entries(&numbers_in(&self.group), &of_os(&self.os_group, "group:")),
        )
    }

    /// Returns `nsswitch.conf` with altfiles, if that makes every account known.
    fn with_altfiles(
        &self,
        root: &Root,
        files: &[(String, String)],
    ) -> Result<Option<Vec<u8>>, RootError> {
        if !self.lacks_altfiles() {
            return Ok(None);
        }
        let lines = self.switch.split_inclusive('\n').map(with_altfiles);
        let text: String = lines.collect();
        let (users, groups) = self.numbers_for(&text);
        let is_cure = find_missing(files, &users.names(), &groups.names()).is_empty();
        let is_plain = is_plain_text(root, SWITCH, &self.switch)?;
        Ok((is_cure && is_plain).then(|| text.into_bytes()))
    }

    /// Returns `passwd` and `group` with the OS's lines for the missing accounts, if it has one for each and every id is free.
    fn with_lines_of_os(
        &self,
        root: &Root,
        missing: &[WantedAccount],
    ) -> Result<Option<FileContents>, RootError> {
        let mut changed = Vec::new();
        let mut copied = 0;
        for (is_group, path, own, of_os) in [
            (false, paths::PASSWD, &self.passwd, &self.os_passwd),
            (true, paths::GROUP, &self.group, &self.os_group),
        ] {
            let taken = numbers_in(own);
            let is_wanted = |line: &&str| {
                let (Some(name), [(_, number)]) = (line.split(':').next(), &*numbers_in(line))
                else {
                    return false;
                };
                missing
                    .iter()
                    .any(|one| one.is_group == is_group && one.name == name)
                    && taken.iter().all(|(_, other)| other != number)
            };
            let lines: Vec<&str> = of_os.lines().filter(is_wanted).collect();
            if lines.is_empty() {
                continue;
            }
            if !is_plain_text(root, path, own)? {
                return Ok(None);
            }
            copied += lines.len();
            let end = if own.is_empty() || own.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            let text = format!("{own}{end}{}\n", lines.join("\n"));
            changed.push((format!("/{path}"), text.into_bytes()));
        }
        Ok((copied == missing.len()).then_some(changed))
    }

    fn without_returns(&self, root: &Root) -> Result<Option<FileContents>, RootError> {
        let mut changed = Vec::new();
        for (path, text, _) in self.own_files() {
            if !text.split('\n').any(ends_with_return) {
                continue;
            }
            if !is_plain_text(root, path, text)? {
                return Ok(None);
            }
            let lines = text.split('\n').map(|line| {
                if ends_with_return(line) {
                    line.trim_end_matches('\r')
                } else {
                    line
                }
            });
            let lines: Vec<&str> = lines.collect();
            changed.push((format!("/{path}"), lines.join("\n").into_bytes()));
        }
        Ok(Some(changed))
    }
}

/// Returns a line of `nsswitch.conf` with altfiles added, if it is the line for users or groups.
fn with_altfiles(line: &str) -> String {
    let is_ours = ["passwd:", "group:"]
        .into_iter()
        .any(|database| line.trim_start().starts_with(database));
    if !is_ours || line.split_whitespace().any(|word| word == "altfiles") {
        return line.to_owned();
    }
    if line.split_whitespace().any(|word| word == "files") {
        line.replacen("files", "files altfiles", 1)
    } else {
        let words = line.trim_end();
        let end = line.strip_prefix(words).unwrap_or_default();
        format!("{words} altfiles{end}")
    }
}

/// Returns true if the path is not a link, and its bytes are valid UTF-8.
fn is_plain_text(root: &Root, path: &'static str, text: &str) -> Result<bool, RootError> {
    Ok(!text.contains(char::REPLACEMENT_CHARACTER)
        && root.read_link(&RootPath::fixed(path))?.is_none())
}

fn ends_with_return(line: &str) -> bool {
    line.ends_with('\r') && !is_comment(line)
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with(['#', '+', '-'])
}

/// Returns true if a lookup finds the files of the OS. This is also the case if `nsswitch.conf` has no line for the database.
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

/// Returns the fault because of which a lookup ignores a line.
fn fault_of(line: &str, fields: usize) -> Option<&'static str> {
    if is_comment(line) {
        return None;
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
            Some("has an id that is not a number")
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

/// Finds whatever keeps systemd-sysusers from writing.
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
            let said = if is_lock {
                format!("Failed to take /etc/passwd lock: {words}")
            } else {
                format!("Failed to load the database: {words}")
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
    stops.extend(find_orphan_lines(view, missing)?);
    Ok(stops)
}

/// Returns the lines of `/etc/gshadow` for groups that are missing, over which the program stops.
fn find_orphan_lines(
    view: &NodeView<'_>,
    missing: &[WantedAccount],
) -> Result<Vec<SysusersStop>, RootError> {
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
    let stops = orphans.map(|one| SysusersStop {
        path: at.to_string(),
        said: format!("/etc/gshadow: Group \"{}\" already exists.", one.name),
        kind: StopKind::OrphanLine(one.name.clone()),
    });
    Ok(stops.collect())
}

fn is_immutable(root: &Root, path: &RootPath) -> Result<bool, RootError> {
    let Some(place) = root.open_place(path)? else {
        return Ok(false);
    };
    let hold = place
        .read_hold()
        .map_err(|errno| RootError::at(path, errno))?;
    Ok(hold.is_some_and(|hold| prevents_change(hold.flags)))
}

fn prevents_change(flags: Flags) -> bool {
    !flags.is_empty()
}

/// Finds state whose owner is not the user of the service.
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
            // An id that no account has any more, but that the OS's file gives to the user.
            let user = users.shadowed.get(&status.uid);
            if let Some(user) = user.filter(|_| users.name_of(status.uid).is_none()) {
                let is_foreign = |other: FileStatus| other.uid == status.uid;
                let paths = search.foreign_paths(&path, &is_foreign)?;
                let described = search.describe_owner(&path, &path, status, user);
                found.extend(described.map(|one| ForeignState { paths, ..one }));
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
    /// Judges a state directory and its entries.
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
        let mut first = is_foreign(status).then(|| (directory.clone(), status));
        for name in self.view.names(directory)? {
            let Some(path) = directory.join(&name).ok().filter(|_| first.is_none()) else {
                continue;
            };
            let status = self.view.status(&path)?;
            let foreign = status.filter(|status| is_foreign(*status));
            first = foreign.map(|status| (path, status));
        }
        let Some((first, status)) = first else {
            return Ok(None);
        };
        let paths = self.foreign_paths(directory, &is_foreign)?;
        let described = self.describe_owner(directory, &first, status, user);
        Ok(described.map(|one| ForeignState { paths, ..one }))
    }

    /// Returns the paths at and below a directory that have a wrong owner, except links; `None` if there are too many, or one
    /// is neither a file nor a directory.
    fn foreign_paths(
        &self,
        directory: &RootPath,
        is_foreign: &dyn Fn(FileStatus) -> bool,
    ) -> Result<Option<Vec<String>>, RootError> {
        let mut found = Vec::new();
        let mut waiting = vec![directory.clone()];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            seen += 1;
            let Some(status) = self.view.status(&path)? else {
                continue;
            };
            let known = matches!(status.kind, FileKind::File | FileKind::Directory);
            if seen > MAX_PATHS || (is_foreign(status) && !known) {
                return Ok(None);
            }
            if is_foreign(status) {
                found.push(path.to_string());
            }
            if status.kind == FileKind::Directory {
                let below = self.view.root().list_types(&path)?.into_iter();
                let below = below.filter(|(_, kind)| *kind != EntryType::Link);
                waiting.extend(below.filter_map(|(name, _)| path.join(&name).ok()));
            }
        }
        Ok(Some(found))
    }

    fn describe_owner(
        &self,
        directory: &RootPath,
        first: &RootPath,
        status: FileStatus,
        user: &str,
    ) -> Option<ForeignState> {
        let uid = *self.users.effective.get(user)?;
        let of_os = self.users.shadowed.iter().find(|(_, name)| *name == user);
        let primary = self.accounts.find_user(user).map(|entry| entry.gid);
        // A group of the OS whose id has changed; a group that exists is kept; otherwise the user's group.
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
            paths: None,
        })
    }
}
