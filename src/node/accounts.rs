//! Users, groups and password hashes of the root, from its own files: the running system's NSS is never asked.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::paths;
use crate::base::ssh_key::key_lines;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle};
use crate::node::account_files::AccountFiles;
use crate::node::shadow_lines::{is_whole, mend_shadow_lines};

/// The account files of a root.
#[derive(Clone, Default)]
pub struct Accounts {
    /// User name to uid and gid; `etc/passwd` wins over `usr/lib/passwd`.
    pub users: BTreeMap<String, (u32, u32)>,
    /// Group name to gid.
    pub groups: BTreeMap<String, u32>,
    /// The text of `etc/shadow`.
    pub shadow: Option<String>,
    /// The reason why the shadow file is unknown, as the end of a sentence.
    pub no_shadow: Option<&'static str>,
    /// Number of keys of `core` outside the config's own fragment: lines of `authorized_keys` and of other fragments.
    pub other_keys: usize,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Accounts({} users, {} groups)",
            self.users.len(),
            self.groups.len()
        )
    }
}

impl Accounts {
    /// Reads the account files. A root without them has no accounts.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        // The first file takes precedence, so it is read last.
        let mut accounts = Self::parse(
            &[
                read_text(root, paths::USR_PASSWD)?,
                read_text(root, paths::PASSWD)?,
            ],
            &[
                read_text(root, paths::USR_GROUP)?,
                read_text(root, paths::GROUP)?,
            ],
        );
        let shadow = shadow_of(root.read(&RootPath::fixed(paths::SHADOW)))?;
        let shadow =
            shadow.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8 text"));
        accounts.no_shadow = shadow.as_ref().err().copied();
        accounts.shadow = shadow.ok();
        accounts.other_keys = other_keys(root);
        Ok(accounts)
    }

    /// Parses `passwd(5)` and `group(5)` files; later files override earlier ones. Lines that are not entries are skipped.
    pub fn parse(users: &[String], groups: &[String]) -> Self {
        Self {
            users: users.iter().flat_map(|text| parse_passwd(text)).collect(),
            groups: groups.iter().flat_map(|text| parse_group(text)).collect(),
            ..Self::default()
        }
    }

    /// Returns the password field of a user, if the shadow file is readable and has an intact line for the user.
    pub fn find_password(&self, user: &str) -> Option<&str> {
        let mut lines = self.shadow.as_deref()?.lines();
        lines.find_map(|line| {
            let mut fields = line.split(':');
            let (name, password) = (fields.next()?, fields.next()?);
            (name == user && is_whole(line)).then_some(password)
        })
    }

    /// Returns true if the user's line in the shadow file is broken, so that the system cannot read it.
    pub fn is_broken(&self, user: &str) -> bool {
        self.mended_line(user).is_some()
    }

    /// Returns the shadow file with another password field for `user`, whose line is repaired if it is broken; `None` if
    /// the file has no line for the user.
    pub fn shadow_with(&self, user: &str, hash: &str) -> Option<String> {
        match self.mended_line(user) {
            Some(mend_shadow_lines) => set_password(&mend_shadow_lines, user, hash),
            None => set_password(self.shadow.as_deref()?, user, hash),
        }
    }

    fn mended_line(&self, user: &str) -> Option<String> {
        let is_known = |name: &str| self.users.contains_key(name);
        mend_shadow_lines(self.shadow.as_deref()?, user, &is_known)
    }

    /// Returns these accounts with other account files, such as those that a run is going to write.
    pub fn with_files(&self, files: &AccountFiles) -> Self {
        let mut accounts = Self {
            shadow: self.shadow.clone(),
            no_shadow: self.no_shadow,
            other_keys: self.other_keys,
            ..Self::default()
        };
        for path in [paths::USR_PASSWD, paths::PASSWD] {
            accounts.users.extend(parse_passwd(&files.text_of(path)));
        }
        for path in [paths::USR_GROUP, paths::GROUP] {
            accounts.groups.extend(parse_group(&files.text_of(path)));
        }
        if files.bytes_of(paths::SHADOW).is_some() {
            accounts.shadow = Some(files.text_of(paths::SHADOW));
            accounts.no_shadow = None;
        }
        accounts
    }
}

/// The end of a sentence about a missing shadow file.
pub(super) const MISSING: &str = "is missing";

/// Returns the bytes of the shadow file, or the reason why they are unknown, as the end of a sentence. Ordinary users cannot
/// read it.
///
/// # Errors
/// Any error other than a denied permission, such as an I/O error.
pub(super) fn shadow_of(
    read: Result<Option<Vec<u8>>, RootError>,
) -> Result<Result<Vec<u8>, &'static str>, RootError> {
    match read {
        Err(error) if error.cause.is_denied() => Ok(Err("cannot be read: permission denied")),
        other => Ok(skip_obstacle(other)?.ok_or(MISSING)),
    }
}

/// Returns a shadow file with another password field for `user`; `None` if it has no such line.
pub fn set_password(shadow: &str, user: &str, hash: &str) -> Option<String> {
    let mut found = false;
    let lines = shadow.split_inclusive('\n').map(|line| {
        let whole = is_whole(line.strip_suffix('\n').unwrap_or(line));
        let mut fields: Vec<&str> = line.split(':').collect();
        match fields.as_mut_slice() {
            [name, password, _, ..] if whole && *name == user => {
                found = true;
                *password = hash;
                fields.join(":")
            }
            _ => line.to_owned(),
        }
    });
    let text: String = lines.collect();
    found.then_some(text)
}

/// Returns true if a password field rules out a login with a password.
pub fn is_locked(hash: &str) -> bool {
    hash.is_empty() || hash.starts_with(['*', '!'])
}

/// Returns true if a password field can allow a login. Only the forms of crypt(5) can; any other value is often the password
/// itself.
pub fn allows_login(hash: &str) -> bool {
    let plain = |text: &str| {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'/';
        text.bytes().all(letter)
    };
    match hash.strip_prefix('$') {
        Some(rest) => rest.split('$').filter(|part| !part.is_empty()).count() >= 2,
        // DES, and its extended form.
        None => match hash.strip_prefix('_') {
            Some(rest) => rest.len() == 19 && plain(rest),
            None => hash.len() == 13 && plain(hash),
        },
    }
}

/// Returns the reason why a password field that is not locked cannot match any password. The reason quotes no part of the
/// field. Returns `None` for a locked field and for a possible hash.
pub fn find_no_hash(field: &str) -> Option<&'static str> {
    if is_locked(field) {
        return None;
    }
    let parts = || field.split('$').filter(|part| !part.is_empty());
    if field.contains('\\') {
        return Some("it has a backslash in it, as a $ that was escaped for a shell has");
    }
    if allows_login(field) {
        let has_rounds = parts().any(|part| part.starts_with("rounds="));
        return (has_rounds && parts().count() < 4).then_some("it ends before its hash");
    }
    Some(match field.contains('$') {
        true if !field.starts_with('$') => "its first $ is missing",
        true => "it ends before its hash",
        false => "it is plain text, or a shell expanded the parts that begin with $",
    })
}

fn read_text(root: &Root, file: &'static str) -> Result<String, RootError> {
    let bytes = root.read(&RootPath::fixed(file))?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_passwd(text: &str) -> BTreeMap<String, (u32, u32)> {
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields.as_slice() else {
            return None;
        };
        Some(((*name).to_owned(), (parse_id(uid)?, parse_id(gid)?)))
    };
    text.lines().filter_map(entry).collect()
}

fn parse_group(text: &str) -> BTreeMap<String, u32> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), parse_id(fields.nth(1)?)?))
    };
    text.lines().filter_map(entry).collect()
}

/// Parses the id of a user or group. The highest id is refused: the kernel takes it for "leave unchanged".
fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn other_keys(root: &Root) -> usize {
    let mut files = vec![RootPath::fixed(paths::CORE_AUTHORIZED_KEYS)];
    let directory = RootPath::fixed(paths::CORE_KEYS_DIR);
    let fragments = root.list(&directory).unwrap_or_default();
    // sshd's AuthorizedKeysCommand on these systems skips hidden names.
    let foreign = fragments
        .iter()
        .filter(|name| *name != "ignition" && !name.starts_with('.'));
    files.extend(foreign.filter_map(|name| directory.join(name).ok()));
    let keys = |path: &RootPath| {
        let bytes = root.read_small(path).ok().flatten().unwrap_or_default();
        count_keys(&String::from_utf8_lossy(&bytes))
    };
    files.iter().map(keys).sum()
}

/// Returns the number of lines of a key file that should be keys; whether sshd can read them is judged with the logins.
pub fn count_keys(text: &str) -> usize {
    key_lines(text).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_passed_over() {
        let users = parse_passwd(
            "root:x:0:0:root:/root:/bin/sh\nbroken\ncore:x:1000:1001:::\nx:y:z:0:::\n",
        );
        assert_eq!(
            users,
            BTreeMap::from([("root".into(), (0, 0)), ("core".into(), (1000, 1001))])
        );
        assert_eq!(
            parse_group("wheel:x:10:core\n:\n"),
            BTreeMap::from([("wheel".into(), 10)])
        );
    }

    #[test]
    fn only_the_password_field_of_one_user_changes() {
        let shadow = "root:!:1::::::\ncore:*:19000:0:99999:7:::\n".to_owned();
        let accounts = Accounts {
            shadow: Some(shadow),
            ..Accounts::default()
        };
        let after = accounts.shadow_with("core", "$6$a$b").unwrap();
        assert_eq!(after, "root:!:1::::::\ncore:$6$a$b:19000:0:99999:7:::\n");
        assert_eq!(accounts.shadow_with("nobody", "x"), None);
        assert_eq!(accounts.find_password("core"), Some("*"));
    }

    #[test]
    fn only_what_crypt_gives_opens() {
        for hash in [
            "$6$salt$hash",
            "$y$j9T$salt$hash",
            "$2b$12$saltandhash",
            "abJnggxhB/yWI",
            "_J9..rasmBYk8r9AiWNc",
        ] {
            assert!(allows_login(hash), "{hash}");
        }
        for hash in [
            "",
            "*",
            "!",
            "!!",
            "!$6$salt$hash",
            "x",
            "secret",
            "$6$",
            "$",
        ] {
            assert!(!allows_login(hash), "{hash}");
        }
    }

    #[test]
    fn a_broken_line_is_not_read_and_is_made_whole_when_it_changes() {
        let accounts = |shadow: &str| Accounts {
            shadow: Some(shadow.to_owned()),
            ..Accounts::default()
        };
        let broken = accounts("core:!broken\ncore:*:19000:\n");
        assert_eq!(broken.find_password("core"), None);
        assert!(broken.is_broken("core") && !broken.is_broken("root"));
        let after = broken.shadow_with("core", "x");
        assert_eq!(after.as_deref(), Some("core:x:::::::\n"));
        let beside = accounts("core:!broken\ncore:*:19000::::::\n");
        assert_eq!(beside.find_password("core"), Some("*"));
        let after = beside.shadow_with("core", "x");
        assert_eq!(after.as_deref(), Some("core:x:19000::::::\n"));
    }
}
