//! shadow-utils: the commands that create, change and remove users and groups (docs/develop/ignition.md: Users).
//!
//! No output is parsed here: the account files show the result of a command. Every command runs on a private copy of them,
//! never on the node's root.

use std::path::Path;
use std::time::Duration;

use super::CommandLine;
use crate::config::document::ignition::{Group, User};
use crate::host::sys::privileges::Capability;

/// Long enough for huge account files on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The tools change their root directory and write to the kernel's audit log. root owns the copy, so the files need no
/// capability.
const CAPABILITIES: [Capability; 2] = [Capability::CAP_SYS_CHROOT, Capability::CAP_AUDIT_WRITE];
/// Additional capabilities, for a mount namespace of their own.
const UNDER_SELINUX: [Capability; 3] = [
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_SYS_ADMIN,
];
/// Hides the kernel's SELinux interface from the tool, in a mount namespace of its own: on the private copy the tool would find
/// no policy and refuse to write.
const WITHOUT_SELINUX: &str = "umount /sys/fs/selinux && exec \"$0\" \"$@\"";

/// A command, except for the directory in which it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The program, such as `useradd`.
    pub program: &'static str,
    args: Vec<String>,
}

/// The changes for `usermod`: only fields that differ from the existing account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserChanges<'a> {
    /// Home directory. Steps of the plan move the tree itself.
    pub home: Option<&'a str>,
    /// Password field.
    pub password: Option<&'a str>,
    /// Numeric id.
    pub uid: Option<i64>,
    /// Comment field.
    pub gecos: Option<&'a str>,
    /// Primary group, by name or number.
    pub primary_group: Option<&'a str>,
    /// All supplementary groups; the user is removed from others.
    pub groups: Option<&'a [String]>,
    /// Login shell.
    pub shell: Option<&'a str>,
}

/// Creates a group. `password` is the content of its password field, if the config has one.
pub fn build_groupadd(group: &Group, password: Option<&str>) -> Tool {
    Tool::new("groupadd")
        .add_option("--gid", group.gid)
        .add_option("--password", password)
        .add_flag("--system", group.system)
        .for_name(&group.name)
}

/// Changes number and password of a group.
pub fn build_groupmod(name: &str, gid: Option<i64>, password: Option<&str>) -> Tool {
    Tool::new("groupmod")
        .add_option("--gid", gid)
        .add_option("--password", password)
        .for_name(name)
}

/// Removes a group.
pub fn build_groupdel(name: &str) -> Tool {
    Tool::new("groupdel").for_name(name)
}

/// Creates a user. Steps of the plan create the home directory.
pub fn build_useradd(user: &User, password: &str) -> Tool {
    Tool::new("useradd")
        .add_option("--home-dir", non_empty(&user.home_dir))
        .add_flag("--no-create-home", Some(true))
        .add_flag("--no-user-group", user.no_user_group)
        .add_flag("--system", user.system)
        .add_flag("--no-log-init", user.no_log_init)
        .add_option("--password", Some(password))
        .add_option("--uid", user.uid)
        .add_option("--comment", non_empty(&user.gecos))
        .add_option("--gid", non_empty(&user.primary_group))
        .add_option("--groups", comma_list(&user.groups))
        .add_option("--shell", non_empty(&user.shell))
        .for_name(&user.name)
}

/// Changes a user.
pub fn build_usermod(name: &str, changes: &UserChanges<'_>) -> Tool {
    Tool::new("usermod")
        .add_option("--home", changes.home)
        .add_option("--password", changes.password)
        .add_option("--uid", changes.uid)
        .add_option("--comment", changes.gecos)
        .add_option("--gid", changes.primary_group)
        .add_option("--groups", changes.groups.and_then(comma_list))
        .add_option("--shell", changes.shell)
        .for_name(name)
}

/// Removes a user, but not the home directory and mail.
pub fn build_userdel(name: &str) -> Tool {
    Tool::new("userdel").for_name(name)
}

/// Returns a text that is present and not empty. An empty text counts as missing, as in Ignition.
pub fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn comma_list(groups: &[String]) -> Option<String> {
    (!groups.is_empty()).then(|| groups.join(","))
}

impl Tool {
    fn new(program: &'static str) -> Self {
        Self {
            program,
            args: Vec::new(),
        }
    }

    fn add_option(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.args.extend([name.to_owned(), value.to_string()]);
        }
        self
    }

    fn add_flag(mut self, name: &str, set: Option<bool>) -> Self {
        self.args
            .extend((set == Some(true)).then(|| name.to_owned()));
        self
    }

    /// Adds the name last, after `--`, so that no name is mistaken for an option.
    fn for_name(mut self, name: &str) -> Self {
        self.args.extend(["--".to_owned(), name.to_owned()]);
        self
    }

    /// Returns the command line for a directory. `selinux` is true if SELinux is enabled in the running kernel.
    pub fn command_below(&self, directory: &Path, selinux: bool) -> CommandLine {
        let root = ["--root".to_owned(), directory.display().to_string()];
        let args = root.into_iter().chain(self.args.iter().cloned());
        if !selinux {
            return CommandLine::new(self.program, args, TIMEOUT).with_capabilities(&CAPABILITIES);
        }
        let wrapper = ["--mount", "--", "sh", "-c", WITHOUT_SELINUX, self.program];
        CommandLine::new(
            "unshare",
            wrapper.map(str::to_owned).into_iter().chain(args),
            TIMEOUT,
        )
        .with_capabilities(&UNDER_SELINUX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tool: &Tool) -> String {
        let line = tool.command_below(Path::new("/copy"), false);
        format!("{} {}", line.program, line.args.join(" "))
    }

    #[test]
    fn a_new_user_gets_every_option_that_the_config_gives() {
        let user: User = serde_json::from_str(
            r#"{"name":"a","uid":5,"gecos":"A B","homeDir":"/srv/a","primaryGroup":"g","groups":["x","y"],
                "shell":"/bin/sh","system":true,"noUserGroup":true,"noLogInit":true}"#,
        )
        .unwrap();
        assert_eq!(
            shown(&build_useradd(&user, "*")),
            "useradd --root /copy --home-dir /srv/a --no-create-home --no-user-group --system --no-log-init \
             --password * --uid 5 --comment A B --gid g --groups x,y --shell /bin/sh -- a"
        );
    }

    #[test]
    fn what_is_absent_empty_or_false_gives_no_option() {
        let user: User =
            serde_json::from_str(r#"{"name":"-D","gecos":"","system":false,"groups":[]}"#).unwrap();
        assert_eq!(
            shown(&build_useradd(&user, "*")),
            "useradd --root /copy --no-create-home --password * -- -D"
        );
        assert_eq!(
            shown(&build_usermod("a", &UserChanges::default())),
            "usermod --root /copy -- a"
        );
        assert_eq!(
            shown(&build_groupmod("g", Some(7), None)),
            "groupmod --root /copy --gid 7 -- g"
        );
    }

    #[test]
    fn under_selinux_the_tool_runs_where_it_cannot_see_it() {
        let line = build_userdel("a").command_below(Path::new("/copy"), true);
        assert_eq!(line.program, "unshare");
        assert_eq!(
            line.args.get(5..).unwrap(),
            ["userdel", "--root", "/copy", "--", "a"]
        );
    }
}
