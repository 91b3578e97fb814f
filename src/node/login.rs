//! Possible logins of a node: the keys that sshd accepts for `core`, whatever blocks all keys, and passwords. Only counts are
//! stored, no keys or hashes.

mod gates;
mod key_files;
mod settings;

use crate::base::paths;
use crate::formats::sshd::{Certainty, LoginObstacle, SshdConfig, SshdUser};
use crate::host::root::{Root, RootError, RootPath};
use crate::node::account_files::{AccountFiles, UserEntry};
use crate::node::accounts::{MISSING, allows_login, shadow_of};
use crate::node::view::NodeView;

pub use key_files::{KeyFile, WrongAttributes};
pub(super) use settings::ViewFiles;

/// The possible logins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// Files with keys of `core`.
    pub files: Vec<KeyFile>,
    /// The users among `core` and `root` that have a password; `None` if that is unknown.
    pub passwords: Option<Vec<String>>,
    /// The reason why `/etc/shadow` was not read, as the end of a sentence. If the file is missing, no user has a password in
    /// it.
    pub no_shadow: Option<&'static str>,
    /// Number of key files that were not read because there are too many.
    pub unread: usize,
    /// Reasons why `core` cannot log in over ssh with any key.
    pub kept_out: Vec<LoginObstacle>,
    /// Possible reasons: they depend on the connection, or could not be read.
    pub unsure: Vec<LoginObstacle>,
    /// Sources of keys that cannot be read here, such as a program.
    pub other_sources: Vec<LoginObstacle>,
    /// sshd accepts the password of `core`.
    pub by_password: bool,
    /// `root` can log in with a key.
    pub root_has_keys: bool,
    /// The reason why that is unknown.
    pub root_unseen: Option<String>,
    /// The user `core`.
    pub core: CoreUser,
}

/// The user `core` in the account files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CoreUser {
    /// No account file has any user, so it is not known.
    #[default]
    Unknown,
    /// Its user and group id.
    Present(u32, u32),
    /// Other users are there.
    Missing,
}

impl Login {
    /// Returns the number of keys that sshd accepts, unless something else blocks `core`.
    pub fn accepted_keys(&self) -> usize {
        let taken = self.files.iter().filter(|file| file.refused.is_none());
        taken.map(|file| file.keys).sum()
    }

    /// Returns whether `core` can log in over ssh.
    pub fn over_ssh(&self) -> Certainty {
        if self.by_password {
            return Certainty::Yes;
        }
        let no_keys =
            self.accepted_keys() == 0 && self.unread == 0 && self.other_sources.is_empty();
        if !self.kept_out.is_empty() || no_keys {
            return Certainty::No;
        }
        if self.accepted_keys() > 0 && self.unsure.is_empty() {
            Certainty::Yes
        } else {
            Certainty::Unknown
        }
    }

    /// Returns true if a password allows a login on a console.
    pub fn at_console(&self) -> bool {
        let users = self.passwords.as_ref();
        users.is_some_and(|users| !users.is_empty())
    }
}

/// A user, with the properties that sshd checks.
struct Person {
    entry: UserEntry,
    sshd: SshdUser,
    /// The group ids, the primary group first.
    gids: Vec<u32>,
    /// The password field in `shadow`; `None` if unknown.
    password: Option<String>,
}

/// Reads keys, passwords and settings.
///
/// # Errors
/// A file cannot be read.
pub fn read_login(root: &Root) -> Result<Login, RootError> {
    read_view(&NodeView::now(root))
}

/// Reads the same for the state that a run would leave.
///
/// # Errors
/// A file cannot be read.
pub fn read_view(view: &NodeView<'_>) -> Result<Login, RootError> {
    let (accounts, no_shadow) = read_accounts(view)?;
    let config = SshdConfig::read_files(&settings::ViewFiles(view));
    let core = find_person(&accounts, "core");
    let mut login = Login {
        core: match &core {
            Some(core) => CoreUser::Present(core.entry.uid, core.entry.gid),
            None if accounts.users().is_empty() => CoreUser::Unknown,
            None => CoreUser::Missing,
        },
        no_shadow,
        ..Login::default()
    };
    // Without any account, the account files belong to another moment or to no system.
    let is_missing = no_shadow == Some(MISSING) && !accounts.users().is_empty();
    if no_shadow.is_none() || is_missing {
        let is_missing = |user: &str| user == "core" && login.core == CoreUser::Missing;
        let open = |user: &&str| {
            let hash = accounts.find_password(user);
            !is_missing(user) && hash.is_some_and(|hash| allows_login(&hash))
        };
        let users = ["core", "root"].into_iter().filter(open);
        login.passwords = Some(users.map(str::to_owned).collect());
    }
    let core = core.unwrap_or_else(|| {
        if login.core == CoreUser::Missing {
            let cause = LoginObstacle::new(format!("/{}", paths::PASSWD), "no user core");
            login.kept_out.push(cause);
        }
        unknown_person("core")
    });
    let has_password = login
        .passwords
        .as_ref()
        .is_some_and(|users| users.iter().any(|one| one == "core"));
    let gates = gates::judge_gates(view, &config, &accounts, &core, has_password)?;
    login.by_password = has_password && gates.takes_password && gates.kept_out.is_empty();
    login.kept_out.extend(gates.kept_out);
    login.kept_out.extend(gates.no_keys);
    login.unsure = gates.unsure;
    key_files::read_key_files(view, &config, &core, &mut login)?;
    match root_has_keys(view, &config, &accounts) {
        Ok(has_keys) => login.root_has_keys = has_keys,
        Err(error) => login.root_unseen = Some(error.to_string()),
    }
    Ok(login)
}

/// Returns true if root can log in with a key, which is another way in.
fn root_has_keys(
    view: &NodeView<'_>,
    config: &SshdConfig,
    accounts: &AccountFiles,
) -> Result<bool, RootError> {
    let Some(root) = find_person(accounts, "root") else {
        return Ok(false);
    };
    let gates = gates::judge_gates(view, config, accounts, &root, false)?;
    let mut login = Login::default();
    key_files::read_key_files(view, config, &root, &mut login)?;
    let open = gates.kept_out.is_empty() && gates.no_keys.is_empty() && gates.unsure.is_empty();
    Ok(open && login.accepted_keys() > 0)
}

/// Reads the account files, and the reason why `shadow` could not be read.
fn read_accounts(view: &NodeView<'_>) -> Result<(AccountFiles, Option<&'static str>), RootError> {
    let mut accounts = AccountFiles::default();
    for path in [
        paths::PASSWD,
        paths::USR_PASSWD,
        paths::GROUP,
        paths::USR_GROUP,
    ] {
        if let Some(bytes) = view.read(&RootPath::fixed(path))? {
            accounts.insert(path, bytes);
        }
    }
    let shadow = shadow_of(view.read(&RootPath::fixed(paths::SHADOW)))?;
    let no_shadow = shadow.as_ref().err().copied();
    if let Ok(bytes) = shadow {
        accounts.insert(paths::SHADOW, bytes);
    }
    Ok((accounts, no_shadow))
}

fn find_person(accounts: &AccountFiles, name: &str) -> Option<Person> {
    let entry = accounts.find_user(name)?;
    let (groups, gids) = accounts.groups_of(&entry).into_iter().unzip();
    Some(Person {
        sshd: SshdUser {
            name: name.to_owned(),
            groups,
        },
        gids,
        password: accounts.find_password(name),
        entry,
    })
}

/// Returns a user that `passwd` does not have, with the usual home directory.
fn unknown_person(name: &str) -> Person {
    Person {
        entry: UserEntry::unknown(name, &format!("/{}", paths::CORE_HOME)),
        sshd: SshdUser {
            name: name.to_owned(),
            groups: Vec::new(),
        },
        gids: Vec::new(),
        password: None,
    }
}
