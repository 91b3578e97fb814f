//! Users and groups of bare Ignition configs (docs/develop/ignition.md: Users): shadow-utils runs on a private copy of the account
//! files, and a plan turns the result into steps.
//!
//! Changes nothing in the root. Runs a command only if an account differs from the config, so a second run starts no command.

mod changes;
mod copy;
mod defaults;
mod homes;

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::ignition::{Passwd, User};
use crate::config::document::{Desired, MachineConfig};
use crate::host::root::{Root, RootError, RootPath};
use crate::host::running;
use crate::host::sys::privileges::{self, Capability};
use crate::node::account_files::{AccountFiles, WRITTEN};
use crate::node::accounts::set_password;
use crate::node::command::shadow::Tool;
use crate::node::command::{CommandError, CommandLine, CommandRunner};
use crate::node::shadow_lines::mend_shadow_lines;

use changes::{AccountChange, group_password, of_group, of_user, user_password};
use copy::PrivateCopy;

pub use defaults::Defaults;
pub use homes::{Home, MAX_OWNED};

/// The accounts before and after the change, and the homes affected.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The current account files.
    pub before: AccountFiles,
    /// The account files after the run; the current ones if there is a problem.
    pub after: AccountFiles,
    /// The problem that prevents the change.
    pub problem: Option<Notice>,
    /// Notices for the reader of the plan.
    pub notices: Vec<Notice>,
    /// Configured users that will exist.
    pub homes: Vec<Home>,
    /// Objects that removed users leave behind.
    pub left: Vec<(usize, RootPath)>,
    /// Settings for new homes.
    pub defaults: Defaults,
    /// Contents of a new home, relative to the skeleton directory.
    pub skeleton: Vec<String>,
}

impl Prepared {
    /// Returns all paths that a plan needs.
    pub fn paths(&self) -> Vec<RootPath> {
        let mut all: Vec<RootPath> = WRITTEN.into_iter().map(RootPath::fixed).collect();
        let skeleton = RootPath::parse(&self.defaults.skeleton).ok();
        for home in &self.homes {
            all.extend(home.mailbox.clone());
            all.extend(home.moved_from.iter().map(|(path, _)| path.clone()));
            let Ok(path) = &home.path else { continue };
            let below = [paths::SSH, paths::KEYS_DIR, paths::KEYS];
            all.extend(below.iter().filter_map(|below| path.join(below).ok()));
            all.push(path.clone());
            if home.is_new {
                let targets = self.skeleton.iter().map(|below| path.join(below));
                all.extend(targets.filter_map(Result::ok));
            }
        }
        let sources = self
            .skeleton
            .iter()
            .filter_map(|below| skeleton.as_ref()?.join(below).ok());
        all.extend(sources);
        all
    }
}

/// Computes the accounts after the run. Returns `None` for a config that is not bare or that has no accounts.
///
/// # Errors
/// The root cannot be read. An error of the tools is a [`Prepared::problem`].
pub fn prepare_accounts(
    root: &Root,
    config: &MachineConfig,
    desired: &Desired,
    runner: &dyn CommandRunner,
) -> Result<Option<Prepared>, RootError> {
    let passwd = &config.ignition.passwd;
    if !config.bare || (passwd.users.is_empty() && passwd.groups.is_empty()) {
        return Ok(None);
    }
    let (before, unreadable) = read_files(root);
    let settings = read_settings(root)?;
    let base = with_whole_lines(&before, passwd);
    let mut run = Run {
        runner,
        settings: &settings,
        unreadable,
        files: base.clone(),
        base,
        copy: None,
        ran: 0,
        hashes: Vec::new(),
        notices: Vec::new(),
    };
    let problem = refuse_value(desired).or_else(|| {
        let notice = run.run_all(passwd).err()?;
        Some(Notice {
            subject: config.original_place(notice.subject),
            ..notice
        })
    });
    let after = match problem {
        None => run.resulting_files(),
        Some(_) => before.clone(),
    };
    let mut prepared = Prepared {
        before,
        after,
        problem,
        notices: run.notices,
        homes: Vec::new(),
        left: Vec::new(),
        defaults: defaults_of(&settings),
        skeleton: Vec::new(),
    };
    if prepared.problem.is_none() {
        prepared.read_paths(root, passwd)?;
    }
    Ok(Some(prepared))
}

/// Returns a notice for a value that cannot be stored in an account file; the tools are not run with it.
fn refuse_value(desired: &Desired) -> Option<Notice> {
    let mut refused = desired.unsupported.iter();
    let part = refused.find(|part| part.path.starts_with("passwd."))?;
    Some(account_notice(&part.path, &part.message))
}

/// Returns the account files with repaired shadow lines of configured users: the tools skip a broken line.
fn with_whole_lines(before: &AccountFiles, passwd: &Passwd) -> AccountFiles {
    let mut files = before.clone();
    let names: BTreeSet<String> = before.users().into_iter().map(|user| user.name).collect();
    for user in &passwd.users {
        let bytes = files.bytes_of(paths::SHADOW).unwrap_or_default();
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let is_known = |name: &str| names.contains(name);
        if let Some(mend_shadow_lines) =
            mend_shadow_lines(text, &user.name, &is_known).filter(|_| is_known(&user.name))
        {
            files.insert(paths::SHADOW, mend_shadow_lines.into_bytes());
        }
    }
    files
}

/// Reads the existing configuration files of the tools.
type Settings = Vec<(&'static str, Vec<u8>)>;

fn read_settings(root: &Root) -> Result<Settings, RootError> {
    let mut all = Vec::new();
    for path in [paths::LOGIN_DEFS, paths::USERADD_DEFAULTS] {
        let bytes = root.read(&RootPath::fixed(path))?;
        all.extend(bytes.map(|bytes| (path, bytes)));
    }
    Ok(all)
}

fn defaults_of(settings: &Settings) -> Defaults {
    let text = |path| {
        let found = settings.iter().find(|(name, _)| *name == path);
        let bytes = found.map(|(_, bytes)| bytes.as_slice());
        String::from_utf8_lossy(bytes.unwrap_or_default())
    };
    Defaults::parse_files(&text(paths::LOGIN_DEFS), &text(paths::USERADD_DEFAULTS))
}

impl Prepared {
    fn read_paths(&mut self, root: &Root, passwd: &Passwd) -> Result<(), RootError> {
        for (index, user) in passwd.users.iter().enumerate() {
            if user.should_exist == Some(false) {
                self.objects_left(root, index, user)?;
                continue;
            }
            let files = (&self.before, &self.after);
            let home = homes::look_at_home(root, (index, user), files, &self.defaults)?;
            self.homes.extend(home);
        }
        let fills = |home: &Home| home.is_new && home.path.is_ok();
        let skeleton = RootPath::parse(&self.defaults.skeleton).ok();
        if let Some(skeleton) = skeleton.filter(|_| self.homes.iter().any(fills)) {
            self.skeleton = homes::list_below(root, &skeleton)?;
        }
        Ok(())
    }

    /// Returns the objects that a removed user leaves behind.
    fn objects_left(&mut self, root: &Root, index: usize, user: &User) -> Result<(), RootError> {
        let Some(entry) = self.before.find_user(&user.name) else {
            return Ok(());
        };
        let mailbox = homes::mailbox_path(&self.defaults.mail, &user.name);
        for path in RootPath::parse(&entry.home).ok().into_iter().chain(mailbox) {
            if root.exists(&path)? {
                self.left.push((index, path));
            }
        }
        Ok(())
    }
}

/// Reads the account files; the second value is the error of an unreadable one.
fn read_files(root: &Root) -> (AccountFiles, Option<RootError>) {
    let mut files = AccountFiles::default();
    let mut unreadable = None;
    let shipped = [paths::USR_PASSWD, paths::USR_GROUP];
    for path in WRITTEN.into_iter().chain(shipped) {
        match root.read(&RootPath::fixed(path)) {
            Ok(Some(bytes)) => files.insert(path, bytes),
            Ok(None) => {}
            Err(error) => unreadable = unreadable.or(Some(error)),
        }
    }
    (files, unreadable)
}

/// Returns the account files, with those that the config replaces as a whole: owners are looked up in the new ones. Returns
/// `None` if it replaces none.
pub fn find_brought(root: &Root, desired: &Desired) -> Option<AccountFiles> {
    let file = |path: &'static str| Some((path, desired.file_at(&RootPath::fixed(path))?));
    let brought: Vec<_> = WRITTEN.into_iter().filter_map(file).collect();
    if brought.is_empty() {
        return None;
    }
    let (mut files, _) = read_files(root);
    for (path, file) in brought {
        if let Ok(bytes) = file.contents.bytes() {
            files.insert(path, bytes);
        }
    }
    Some(files)
}

/// A series of commands.
struct Run<'a> {
    runner: &'a dyn CommandRunner,
    settings: &'a Settings,
    unreadable: Option<RootError>,
    /// The originals of the copy.
    base: AccountFiles,
    /// The accounts after the commands so far.
    files: AccountFiles,
    copy: Option<PrivateCopy>,
    ran: usize,
    /// Placeholders with the hashes that replace them.
    hashes: Vec<(String, String)>,
    notices: Vec<Notice>,
}

impl Run<'_> {
    /// Runs the commands: groups in the config's order, then users.
    fn run_all(&mut self, passwd: &Passwd) -> Result<(), Notice> {
        for (index, group) in passwd.groups.iter().enumerate() {
            let at = format!("passwd.groups[{index}]");
            let stand_in = self.stand_in(group_password(group));
            if let Some(change) = of_group(&self.files, group, &stand_in) {
                self.carry_out(&at, &group.name, &change)?;
            }
            let gone = group.should_exist == Some(false);
            if gone && self.files.find_group(&group.name).is_some() {
                return Err(shipped_notice(&at, "group", paths::USR_GROUP));
            }
        }
        for (index, user) in passwd.users.iter().enumerate() {
            let at = format!("passwd.users[{index}]");
            let stand_in = self.stand_in(user_password(user));
            if let Some(change) = of_user(&self.files, user, &stand_in) {
                self.carry_out(&at, &user.name, &change)?;
            }
            let gone = user.should_exist == Some(false);
            if gone && self.files.find_user(&user.name).is_some() {
                return Err(shipped_notice(&at, "user", paths::USR_PASSWD));
            }
        }
        Ok(())
    }

    /// Returns a placeholder that the tools get instead of a hash.
    fn stand_in(&mut self, hash: Option<&str>) -> String {
        let Some(hash) = hash else {
            return String::new();
        };
        let stand_in = format!("*mco-rescue-{}*", self.hashes.len());
        self.hashes.push((stand_in.clone(), hash.to_owned()));
        stand_in
    }

    fn carry_out(&mut self, at: &str, name: &str, change: &AccountChange) -> Result<(), Notice> {
        self.may_run()
            .map_err(|why| account_notice(at, &why.to_string()))?;
        let program = change.tool.program;
        let unable = match self.run_tool(&change.tool) {
            Ok(()) => return Ok(()),
            Err(Unable::Refused(words)) => {
                let message =
                    format!("{words}. Nothing was changed; correct the entry, then run again");
                return Err(account_notice(at, &message));
            }
            Err(Unable::Failed(words)) => {
                let message =
                    format!("{words}. Nothing was changed; correct the cause, then run again");
                return Err(account_notice(at, &message));
            }
            Err(Unable::NotRoot) => format!("{program} needs root. Run as root"),
            Err(Unable::Missing(program)) => format!(
                "{program} is not installed on the running system. Install shadow-utils, or run where they \
                 are, with --root"
            ),
        };
        if change.only_password && self.ran == 0 && self.set_password(at, name) {
            return Ok(());
        }
        Err(account_notice(at, &unable))
    }

    /// Refuses to run if account files are missing: the tools would create new ones without the other entries.
    fn may_run(&self) -> Result<(), Reason> {
        if let Some(error) = &self.unreadable {
            return Err(format!("reading {error}. Run as root, or correct the file first").into());
        }
        let mut needed = [paths::PASSWD, paths::GROUP].into_iter();
        match needed.find(|path| self.base.bytes_of(path).is_none()) {
            Some(path) => Err(format!(
                "the root has no /{path}, so its accounts cannot be changed. Check --root"
            )
            .into()),
            None => Ok(()),
        }
    }

    fn run_tool(&mut self, tool: &Tool) -> Result<(), Unable> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Unable::NotRoot);
        }
        let below = |path: &Path| tool.command_below(path, kernel_has_selinux());
        lacks_nothing(&below(Path::new("")))?;
        let io = |error: std::io::Error| {
            Unable::Failed(format!(
                "copying the account files: {}",
                Reason::from(error)
            ))
        };
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => PrivateCopy::write_copy(&self.base, self.settings).map_err(io)?,
        };
        let answer = self.runner.run(&below(copy.path()));
        let answer = answer.map_err(|error| match error {
            CommandError::Missing(program) => Unable::Missing(program),
            other => Unable::Failed(other.to_string()),
        })?;
        match answer.status {
            Some(0) => {}
            // The shell that starts the tool did not find it.
            Some(127) => return Err(Unable::Missing(tool.program.to_owned())),
            status => {
                return Err(Unable::Refused(tool_message(
                    tool.program,
                    status,
                    &answer.stderr,
                )));
            }
        }
        self.files = copy.read_files(&self.base).map_err(io)?;
        self.copy = Some(copy);
        self.ran += 1;
        Ok(())
    }

    /// Sets a password without the tools, which may be missing in a rescue system.
    fn set_password(&mut self, at: &str, name: &str) -> bool {
        let Some((stand_in, _)) = self.hashes.last() else {
            return false;
        };
        let shadow = self.base.text_of(paths::SHADOW);
        let in_shadow = self.base.find_password(name) == self.base.shadow_password(name);
        let Some(text) = set_password(&shadow, name, stand_in).filter(|_| in_shadow) else {
            return false;
        };
        self.base.insert(paths::SHADOW, text.into_bytes());
        self.files = self.base.clone();
        let message = "usermod cannot run here: the password is set without it, and the date of its last change is not updated";
        self.notices.push(account_notice(at, message));
        true
    }

    /// Returns the result, with the hashes instead of the placeholders.
    fn resulting_files(&self) -> AccountFiles {
        self.files.with_fields(&self.hashes)
    }
}

/// A reason why a command failed.
enum Unable {
    /// Only root may run it.
    NotRoot,
    /// The program is missing.
    Missing(String),
    /// The program's error.
    Refused(String),
    /// The system's error.
    Failed(String),
}

/// Returns an error if the process lacks a capability that the tool needs; the one for audit is optional.
fn lacks_nothing(command: &CommandLine) -> Result<(), Unable> {
    let ours = privileges::effective_capabilities();
    let mut needed = command.capabilities.iter();
    let lacking =
        needed.find(|&&needed| needed != Capability::CAP_AUDIT_WRITE && !ours.contains(&needed));
    match lacking {
        Some(lacking) => Err(Unable::Failed(format!(
            "{} needs {lacking}, and this process runs as root without it",
            command.program
        ))),
        None => Ok(()),
    }
}

/// Returns a tool's own message; the other lines come from the C library.
fn tool_message(program: &str, status: Option<i32>, stderr: &str) -> String {
    let prefix = format!("{program}: ");
    let own: Vec<&str> = stderr
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(&prefix))
        .collect();
    match (own.is_empty(), status) {
        (false, _) => own.join("; "),
        (true, Some(status)) => {
            format!("{program} ended with exit code {status}: {}", stderr.trim())
        }
        (true, None) => format!("{program} was killed"),
    }
}

fn shipped_notice(at: &str, what: &str, file: &str) -> Notice {
    let message = format!(
        "the {what} comes with the OS, in /{file}, and cannot be removed. Leave it out of the config"
    );
    account_notice(at, &message)
}

fn account_notice(subject: &str, message: &str) -> Notice {
    Notice::new(subject, message)
}

/// Returns true if the tools see SELinux enabled.
fn kernel_has_selinux() -> bool {
    running::exists("/sys/fs/selinux/enforce")
}

/// Returns the SSH keys of a user, one per line; `None` if the config has none, in which case existing keys stay.
pub fn keys_text(user: &User) -> Option<String> {
    let keys = &user.ssh_authorized_keys;
    (!keys.is_empty()).then(|| keys.join("\n") + "\n")
}

/// Returns true if a home may be created for this user.
pub fn may_have_home(user: &User) -> bool {
    user.no_create_home != Some(true)
}
