//! shadow-utils: the commands that make, change and remove users and groups (docs/ignition.md: Users).
//!
//! Nothing is parsed here: the account files show the result of a command. Every one runs below a
//! private copy of them, never below the node's root.

use std::path::Path;
use std::time::Duration;

use super::CommandLine;
use crate::config::document::ignition::{Group, User};
use crate::host::sys::privileges::Capability;

/// Long enough for huge account files on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The tools change their root, and write to the kernel's audit log. The copy is root's own: files need none.
const CAPABILITIES: [Capability; 2] = [Capability::CAP_SYS_CHROOT, Capability::CAP_AUDIT_WRITE];
/// Besides, for a mount namespace of their own.
const UNDER_SELINUX: [Capability; 3] = [
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_SYS_ADMIN,
];
/// Takes the kernel's SELinux interface out of the tool's sight, in a mount namespace of its own: below the
/// private copy it would find no policy, and refuse to write anything.
const WITHOUT_SELINUX: &str = "umount /sys/fs/selinux && exec \"$0\" \"$@\"";

/// A command without the directory it runs below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Such as `useradd`.
    pub program: &'static str,
    args: Vec<String>,
}

/// The changes for `usermod`; only fields that differ from the account as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserChanges<'a> {
    /// Home directory; the tree itself is moved by steps.
    pub home: Option<&'a str>,
    /// Password field.
    pub password: Option<&'a str>,
    /// Numeric id.
    pub uid: Option<i64>,
    /// Comment field.
    pub gecos: Option<&'a str>,
    /// Primary group, by name or number.
    pub primary_group: Option<&'a str>,
    /// All supplementary groups; others are left.
    pub groups: Option<&'a [String]>,
    /// Login shell.
    pub shell: Option<&'a str>,
}

/// Makes a group. `password` is what its password field gets, where the config gives one.
pub fn groupadd(group: &Group, password: Option<&str>) -> Tool {
    Tool::new("groupadd")
        .add_option("--gid", group.gid)
        .add_option("--password", password)
        .add_flag("--system", group.system)
        .for_name(&group.name)
}

/// Changes number and password of a group.
pub fn groupmod(name: &str, gid: Option<i64>, password: Option<&str>) -> Tool {
    Tool::new("groupmod")
        .add_option("--gid", gid)
        .add_option("--password", password)
        .for_name(name)
}

/// Removes a group.
pub fn groupdel(name: &str) -> Tool {
    Tool::new("groupdel").for_name(name)
}

/// Makes a user. The home directory is made by steps.
pub fn useradd(user: &User, password: &str) -> Tool {
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
pub fn usermod(name: &str, changes: &UserChanges<'_>) -> Tool {
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

/// Removes a user; home and mail are left.
pub fn userdel(name: &str) -> Tool {
    Tool::new("userdel").for_name(name)
}

/// Returns a text that is present and not empty: an empty one counts as missing, as in Ignition.
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

    /// Adds the name last, behind `--`: no name is mistaken for an option.
    fn for_name(mut self, name: &str) -> Self {
        self.args.extend(["--".to_owned(), name.to_owned()]);
        self
    }

    /// Returns the command below a directory; `selinux`: the running kernel has it enabled.
    pub fn command_below(&self, directory: &Path, selinux: bool) -> CommandLine {
        let root = ["--root".to_owned(), directory.display().to_string()];
        let args = root.into_iter().chain(self.args.iter().cloned());
        if !selinux {
            return CommandLine {
                program: self.program.into(),
                args: args.collect(),
                timeout: TIMEOUT,
                capabilities: &CAPABILITIES,
            };
        }
        let wrapper = ["--mount", "--", "sh", "-c", WITHOUT_SELINUX, self.program];
        CommandLine {
            program: "unshare".into(),
            args: wrapper.map(str::to_owned).into_iter().chain(args).collect(),
            timeout: TIMEOUT,
            capabilities: &UNDER_SELINUX,
        }
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
            shown(&useradd(&user, "*")),
            "useradd --root /copy --home-dir /srv/a --no-create-home --no-user-group --system --no-log-init \
             --password * --uid 5 --comment A B --gid g --groups x,y --shell /bin/sh -- a"
        );
    }

    #[test]
    fn what_is_absent_empty_or_false_gives_no_option() {
        let user: User =
            serde_json::from_str(r#"{"name":"-D","gecos":"","system":false,"groups":[]}"#).unwrap();
        assert_eq!(
            shown(&useradd(&user, "*")),
            "useradd --root /copy --no-create-home --password * -- -D"
        );
        assert_eq!(
            shown(&usermod("a", &UserChanges::default())),
            "usermod --root /copy -- a"
        );
        assert_eq!(
            shown(&groupmod("g", Some(7), None)),
            "groupmod --root /copy --gid 7 -- g"
        );
    }

    #[test]
    fn under_selinux_the_tool_runs_where_it_cannot_see_it() {
        let line = userdel("a").command_below(Path::new("/copy"), true);
        assert_eq!(line.program, "unshare");
        assert_eq!(
            line.args.get(5..).unwrap(),
            ["userdel", "--root", "/copy", "--", "a"]
        );
    }
}
