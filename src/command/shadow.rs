//! shadow-utils: the commands that make, change and remove users and groups (docs/ignition.md: Users).
//!
//! Nothing is parsed here: the account files say what came of a command. Every one runs below a
//! private copy of them, never below the node's root.

use std::path::Path;
use std::time::Duration;

use super::CommandLine;
use crate::document::ignition::{Group, User};
use crate::sys::privileges::Capability;

/// Long enough for huge account files on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The tools change their root, and tell the kernel's audit. The copy is root's own: files need none.
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

/// What `usermod` is to change; only what differs from the account as it is.
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
        .option("--gid", group.gid)
        .option("--password", password)
        .flag("--system", group.system)
        .named(&group.name)
}

/// Changes number and password of a group.
pub fn groupmod(name: &str, gid: Option<i64>, password: Option<&str>) -> Tool {
    Tool::new("groupmod")
        .option("--gid", gid)
        .option("--password", password)
        .named(name)
}

/// Removes a group.
pub fn groupdel(name: &str) -> Tool {
    Tool::new("groupdel").named(name)
}

/// Makes a user. The home directory is made by steps.
pub fn useradd(user: &User, password: &str) -> Tool {
    Tool::new("useradd")
        .option("--home-dir", given(&user.home_dir))
        .flag("--no-create-home", Some(true))
        .flag("--no-user-group", user.no_user_group)
        .flag("--system", user.system)
        .flag("--no-log-init", user.no_log_init)
        .option("--password", Some(password))
        .option("--uid", user.uid)
        .option("--comment", given(&user.gecos))
        .option("--gid", given(&user.primary_group))
        .option("--groups", list(&user.groups))
        .option("--shell", given(&user.shell))
        .named(&user.name)
}

/// Changes a user.
pub fn usermod(name: &str, changes: &UserChanges<'_>) -> Tool {
    Tool::new("usermod")
        .option("--home", changes.home)
        .option("--password", changes.password)
        .option("--uid", changes.uid)
        .option("--comment", changes.gecos)
        .option("--gid", changes.primary_group)
        .option("--groups", changes.groups.and_then(list))
        .option("--shell", changes.shell)
        .named(name)
}

/// Removes a user; home and mail are left.
pub fn userdel(name: &str) -> Tool {
    Tool::new("userdel").named(name)
}

/// A text that is there and not empty: an empty one counts as none, as in Ignition.
pub fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn list(groups: &[String]) -> Option<String> {
    (!groups.is_empty()).then(|| groups.join(","))
}

impl Tool {
    fn new(program: &'static str) -> Self {
        Self {
            program,
            args: Vec::new(),
        }
    }

    fn option(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.args.extend([name.to_owned(), value.to_string()]);
        }
        self
    }

    fn flag(mut self, name: &str, set: Option<bool>) -> Self {
        self.args
            .extend((set == Some(true)).then(|| name.to_owned()));
        self
    }

    /// The name comes last, and behind `--`: no name is taken for an option.
    fn named(mut self, name: &str) -> Self {
        self.args.extend(["--".to_owned(), name.to_owned()]);
        self
    }

    /// The command below a directory; `selinux`: the running kernel has it enabled.
    pub fn below(&self, directory: &Path, selinux: bool) -> CommandLine {
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
        let line = tool.below(Path::new("/copy"), false);
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
        let line = userdel("a").below(Path::new("/copy"), true);
        assert_eq!(line.program, "unshare");
        assert_eq!(
            line.args.get(5..).unwrap(),
            ["userdel", "--root", "/copy", "--", "a"]
        );
    }
}
