//! The command that brings one account in line with a config entry; no command if nothing differs.
//!
//! A command line never contains a password hash, because every user of the node could read it in the process list. A
//! placeholder is passed instead, and the hash replaces it in the result.

use std::collections::BTreeSet;

use crate::config::document::ignition::{Group, User};
use crate::node::account_files::{AccountFiles, UserEntry};
use crate::node::command::shadow::{self, Tool, UserChanges, non_empty};

/// A password field that matches no password: for a new user without a hash, and for an empty hash.
const LOCKED: &str = "*";

/// The command for one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccountChange {
    /// The command.
    pub tool: Tool,
    /// True if the command only sets a password.
    pub only_password: bool,
}

/// Returns the password field that a config gives a user; `None` if it gives none.
pub(super) fn user_password(user: &User) -> Option<&str> {
    let hash = user.password_hash.as_deref()?;
    Some(if hash.is_empty() { LOCKED } else { hash })
}

/// Returns the password field that a config gives a group.
pub(super) fn group_password(group: &Group) -> Option<&str> {
    non_empty(&group.password_hash)
}

/// Returns the command for a group (docs/develop/ignition.md: Users).
pub(super) fn of_group(
    files: &AccountFiles,
    group: &Group,
    stand_in: &str,
) -> Option<AccountChange> {
    let gone = group.should_exist == Some(false);
    let password = group_password(group);
    let tool = match files.find_group(&group.name) {
        None if gone => return None,
        None => shadow::build_groupadd(group, password.map(|_| stand_in)),
        Some(_) if gone => shadow::build_groupdel(&group.name),
        Some(found) => {
            let gid = group.gid.filter(|gid| *gid != i64::from(found.gid));
            let now = files.group_password(&group.name);
            let password = password.filter(|password| now.as_deref() != Some(password));
            if gid.is_none() && password.is_none() {
                return None;
            }
            shadow::build_groupmod(&group.name, gid, password.map(|_| stand_in))
        }
    };
    Some(AccountChange {
        tool,
        only_password: false,
    })
}

/// Returns the command for a user (docs/develop/ignition.md: Users).
pub(super) fn of_user(files: &AccountFiles, user: &User, stand_in: &str) -> Option<AccountChange> {
    let gone = user.should_exist == Some(false);
    let tool = match files.find_user(&user.name) {
        None if gone => return None,
        None => {
            let hash = user_password(user).filter(|hash| *hash != LOCKED);
            shadow::build_useradd(user, hash.map_or(LOCKED, |_| stand_in))
        }
        Some(_) if gone => shadow::build_userdel(&user.name),
        Some(found) => return modify_user(files, user, &found, stand_in),
    };
    Some(AccountChange {
        tool,
        only_password: false,
    })
}

fn modify_user(
    files: &AccountFiles,
    user: &User,
    found: &UserEntry,
    stand_in: &str,
) -> Option<AccountChange> {
    let differs = |text, now: &str| non_empty(text).filter(|text| *text != now);
    let mut changes = UserChanges {
        // Newer tools remove a trailing slash.
        home: differs(&user.home_dir, &found.home)
            .filter(|home| home.trim_end_matches('/') != found.home.trim_end_matches('/')),
        password: None,
        uid: user.uid.filter(|uid| *uid != i64::from(found.uid)),
        gecos: differs(&user.gecos, &found.gecos),
        primary_group: non_empty(&user.primary_group).filter(|group| {
            let meant = files.group_of(group);
            meant.is_none_or(|meant| meant.gid != found.gid)
        }),
        groups: other_groups(files, user).then_some(user.groups.as_slice()),
        shell: differs(&user.shell, &found.shell),
    };
    let nothing_else = changes == UserChanges::default();
    let now = files.find_password(&user.name);
    let password = user_password(user).filter(|hash| now.as_deref() != Some(hash));
    changes.password = password.map(|_| stand_in);
    if changes == UserChanges::default() {
        return None;
    }
    Some(AccountChange {
        tool: shadow::build_usermod(&user.name, &changes),
        only_password: nothing_else,
    })
}

/// Returns true if the supplementary groups differ. A missing group counts as a difference: the tool then reports it.
fn other_groups(files: &AccountFiles, user: &User) -> bool {
    if user.groups.is_empty() {
        return false;
    }
    let meant = user.groups.iter().map(|name| files.group_of(name));
    let meant: Option<BTreeSet<String>> = meant.map(|group| Some(group?.name)).collect();
    meant.is_none_or(|meant| !files.is_member_of_exactly(&user.name, &meant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths;

    fn files() -> AccountFiles {
        let mut files = AccountFiles::default();
        let texts = [
            (
                paths::PASSWD,
                "core:x:1000:1000:CoreOS:/home/core:/bin/bash\n",
            ),
            (
                paths::GROUP,
                "core:x:1000:\nwheel:x:10:core\nadm:x:4:core\n",
            ),
            (paths::SHADOW, "core:hash:1::::::\n"),
            (paths::GSHADOW, "core:!::\nwheel:::core\nadm:::core\n"),
        ];
        for (path, text) in texts {
            files.insert(path, text.as_bytes().to_vec());
        }
        files
    }

    fn user(text: &str) -> Option<AccountChange> {
        of_user(&files(), &serde_json::from_str(text).unwrap(), "STANDIN")
    }

    #[test]
    fn what_is_right_already_needs_no_command() {
        let same = r#"{"name":"core","uid":1000,"gecos":"CoreOS","homeDir":"/home/core","primaryGroup":"1000",
            "groups":["10","adm"],"shell":"/bin/bash","passwordHash":"hash","system":true}"#;
        assert_eq!(user(same), None);
        assert_eq!(user(r#"{"name":"nobody","shouldExist":false}"#), None);
        let group: Group =
            serde_json::from_str(r#"{"name":"wheel","gid":10,"passwordHash":""}"#).unwrap();
        assert_eq!(of_group(&files(), &group, "STANDIN"), None);
    }

    #[test]
    fn only_what_differs_is_changed_and_no_hash_is_passed() {
        let change = user(
            r#"{"name":"core","gecos":"x","shell":"/bin/bash","groups":["adm"],"passwordHash":"$6$secret"}"#,
        );
        let said = format!("{change:?}");
        assert!(
            said.contains("--comment") && said.contains("--groups") && said.contains("STANDIN")
        );
        assert!(!said.contains("--shell") && !said.contains("secret"));
        assert!(!change.unwrap().only_password);
        assert!(
            user(r#"{"name":"core","passwordHash":""}"#)
                .unwrap()
                .only_password
        );
    }

    #[test]
    fn an_unknown_group_is_for_the_tool_to_refuse() {
        assert!(user(r#"{"name":"core","groups":["adm","wheel","nope"]}"#).is_some());
        assert!(user(r#"{"name":"core","primaryGroup":"nope"}"#).is_some());
    }
}
