//! Possible logins of a node: the keys that sshd accepts for `core`, and passwords. Only counts are stored, no keys and
//! no hashes.

use std::collections::BTreeMap;

use nix::sys::stat::FileStat;

use super::accounts::{Accounts, count_keys, opens};
use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// Most files with keys that are read; a program of each login reads them all, so a node has a few.
const MAX_FILES: usize = 1000;
/// Write permissions of others, which sshd refuses (`StrictModes`).
const OTHERS: u32 = 0o022;
/// Settings of sshd; those of the directory take precedence.
const SSHD: &str = "etc/ssh/sshd_config";
const SSHD_D: &str = "etc/ssh/sshd_config.d";

/// The possible logins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// Files with keys of `core`.
    pub files: Vec<KeyFile>,
    /// Users with a password, of `core` and `root`; None if `/etc/shadow` could not be read.
    pub passwords: Option<Vec<String>>,
    /// Number of files with keys that were not read, as there are too many.
    pub unread: usize,
    /// The file with the setting that disables keys.
    pub no_keys: Option<String>,
    /// User and group of `core`.
    pub core: Option<(u32, u32)>,
}

/// A file with keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Path of the file.
    pub path: String,
    /// Number of keys.
    pub keys: usize,
    /// The reason why sshd ignores it.
    pub refused: Option<String>,
    /// Everything about owners and modes that makes sshd ignore it: of the file, and of the directories above it.
    pub wrong: Vec<WrongAttributes>,
}

/// Owner or mode of a file or directory that sshd does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongAttributes {
    /// The file or directory.
    pub path: String,
    /// Its owner is neither root nor the user.
    pub foreign: Option<u32>,
    /// Its permission bits, where others may write it.
    pub open: Option<u32>,
}

impl WrongAttributes {
    /// Returns the fault in words.
    fn words(&self) -> String {
        let path = &self.path;
        match (self.foreign, self.open) {
            (Some(uid), _) => format!("{path} belongs to user {uid}"),
            (None, mode) => {
                let mode = mode.unwrap_or_default();
                format!("{path} has mode {mode:04o}, others may write it")
            }
        }
    }
}

/// Reads keys, passwords and settings.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Root) -> Result<Login, RootError> {
    let accounts = Accounts::read(root)?;
    let core = accounts.users.get("core").copied();
    let folder = RootPath::fixed(paths::CORE_KEYS_DIR);
    let mut paths = vec![RootPath::fixed(paths::CORE_AUTHORIZED_KEYS)];
    let visible = |name: &String| !name.starts_with('.');
    let fragments = root.list(&folder)?.into_iter().filter(visible);
    paths.extend(fragments.filter_map(|name| folder.join(&name).ok()));
    let unread = paths.split_off(MAX_FILES.min(paths.len())).len();
    let mut login = Login {
        unread,
        no_keys: no_keys(root)?,
        core,
        ..Login::default()
    };
    let mut directories = BTreeMap::new();
    for path in paths {
        if let Some(bytes) = root.read_small(&path)? {
            let core = core.map(|(uid, _)| uid);
            let wrong = find_wrong(root, &path, core, &mut directories)?;
            login.files.push(KeyFile {
                path: path.to_string(),
                keys: count_keys(&String::from_utf8_lossy(&bytes)),
                refused: wrong.first().map(WrongAttributes::words),
                wrong,
            });
        } else if root.exists(&path)? {
            login.files.push(KeyFile {
                path: path.to_string(),
                keys: 0,
                refused: Some(format!(
                    "{path} is not a regular file, or larger than 1 MiB"
                )),
                wrong: Vec::new(),
            });
        }
    }
    login.passwords = accounts.shadow.as_ref().map(|_| {
        let open = |user: &&str| accounts.password(user).is_some_and(opens);
        let users = ["core", "root"].into_iter().filter(open);
        users.map(str::to_owned).collect()
    });
    Ok(login)
}

/// Checks owner and mode: the file and every directory up to the home must belong to the user or root, and only they may write.
/// `known` are the directories that were checked for another file.
fn find_wrong(
    root: &Root,
    path: &RootPath,
    core: Option<u32>,
    known: &mut BTreeMap<RootPath, Option<WrongAttributes>>,
) -> Result<Vec<WrongAttributes>, RootError> {
    let file = root.place(path)?.and_then(|place| place.stat().ok()?);
    let mut all: Vec<WrongAttributes> = Vec::new();
    all.extend(file.and_then(|stat| wrong(path, &stat, core)));
    for above in path.ancestors().skip(1) {
        if !known.contains_key(&above) {
            let directory = root.directory(&above)?;
            let stat = directory.and_then(|directory| nix::sys::stat::fstat(&directory).ok());
            known.insert(
                above.clone(),
                stat.and_then(|stat| wrong(&above, &stat, core)),
            );
        }
        all.extend(known.get(&above).cloned().flatten());
        if above.relative() == paths::CORE_HOME {
            break;
        }
    }
    Ok(all)
}

fn wrong(path: &RootPath, stat: &FileStat, core: Option<u32>) -> Option<WrongAttributes> {
    let is_foreign = stat.st_uid != 0 && Some(stat.st_uid) != core;
    let mode = stat.st_mode & 0o7777;
    let is_open = mode & OTHERS != 0 && stat.st_mode & libc::S_IFMT != libc::S_IFLNK;
    (is_foreign || is_open).then(|| WrongAttributes {
        path: path.to_string(),
        foreign: is_foreign.then_some(stat.st_uid),
        open: is_open.then_some(mode),
    })
}

/// Returns the file that disables keys. The first setting counts, and the directory comes first.
fn no_keys(root: &Root) -> Result<Option<String>, RootError> {
    let folder = RootPath::fixed(SSHD_D);
    let names = root.list(&folder)?.into_iter();
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".conf")).collect();
    names.sort();
    let files = names.iter().filter_map(|name| folder.join(name).ok());
    for path in files.chain([RootPath::fixed(SSHD)]) {
        let bytes = root.read(&path)?.unwrap_or_default();
        match takes_keys(&String::from_utf8_lossy(&bytes)) {
            Some(true) => return Ok(None),
            Some(false) => return Ok(Some(path.to_string())),
            None => {}
        }
    }
    Ok(None)
}

/// Returns `PubkeyAuthentication` for all users: before the first `Match`.
fn takes_keys(text: &str) -> Option<bool> {
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| c.is_whitespace() || c == '=');
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    };
    let lines = text.lines().map(words);
    let general = lines.take_while(|line| line.first().is_none_or(|first| first != "match"));
    let mut own = general.filter(|line| line.first().is_some_and(|w| w == "pubkeyauthentication"));
    own.next()?.get(1).map(|value| value != "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_for_everybody_counts() {
        for (text, takes) in [
            ("", None),
            ("#PubkeyAuthentication no\n", None),
            (
                "PubkeyAuthentication no\nPubkeyAuthentication yes\n",
                Some(false),
            ),
            ("pubkeyauthentication = yes\n", Some(true)),
            ("Match User x\nPubkeyAuthentication no\n", None),
        ] {
            assert_eq!(takes_keys(text), takes, "{text:?}");
        }
    }
}
