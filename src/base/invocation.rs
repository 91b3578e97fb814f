//! The commands that messages name, as they have to be typed: whole, on one line, and for the root of this run.
//!
//! Those of this program come from [`mco_rescue`] and [`whole_command`], so that none leads to the running system instead of a
//! mounted disk. Those of other programs are [`PrintedCommand`]s: one that acts on the system that runs it is marked for another
//! root, since it would change the rescue machine.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::kargs::KargsChange;

/// The root as given on the command line, quoted for the shell. Set once, before anything is printed.
static ROOT: OnceLock<String> = OnceLock::new();

/// Stores the root of this run for printed commands.
pub fn remember_root(root: &Path) {
    if root != Path::new("/") {
        // The first call wins: a run has one root.
        let _ = ROOT.set(shell_word(&root.display().to_string()));
    }
    keep_commands();
}

/// The directories on this machine that hold another root and its `/var`. Set once.
static PLACES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

/// Stores the directories on this machine that hold another root and its `/var`.
pub fn remember_places(top: PathBuf, var: PathBuf) {
    let _ = PLACES.set((top, var));
}

/// Returns a path of the node (`/etc/x`, with or without the leading slash), quoted for the shell of this machine.
pub fn node_path(path: &str) -> String {
    let path = path.trim_start_matches('/');
    let Some((top, var)) = PLACES.get() else {
        return shell_word(&format!("/{path}"));
    };
    let place = match path.strip_prefix("var/") {
        Some(below) => var.join(below),
        None => top.join(path),
    };
    shell_word(&place.display().to_string())
}

/// The name of the running command. Set once.
static COMMAND: OnceLock<&'static str> = OnceLock::new();

/// Stores the name of the running command.
pub fn remember_command(name: &'static str) {
    let _ = COMMAND.set(name);
}

/// Returns the name of the running command, such as `apply`; empty in a unit test.
pub fn command_name() -> &'static str {
    COMMAND.get().copied().unwrap_or_default()
}

/// Returns `mco-rescue ARGUMENTS` with the option for the root of this run.
pub fn mco_rescue(arguments: &str) -> String {
    let root = ROOT.get().map_or("", String::as_str);
    match root {
        "" => format!("mco-rescue {arguments}"),
        root => format!("mco-rescue {arguments} --root {root}"),
    }
}

/// Returns what to do about something of the node that is in the way of a run.
pub fn move_away(path: &str) -> String {
    let place = node_path(path);
    format!("Move it away, then run again. Next: mv {place} {place}.away")
}

/// The command that stages the missing parts of the operating system, which only the booted node can.
pub const STAGE_OS: &str = "apply --reboot";

/// Returns `mco-rescue ARGUMENTS` for what only the booted node can do: marked if the root of this run is another one.
pub fn on_booted_node(arguments: &str) -> String {
    match ROOT.get().map_or("", String::as_str) {
        "" => format!("mco-rescue {arguments}"),
        _ => format!("{ON_THE_NODE}mco-rescue {arguments}"),
    }
}

/// The arguments of this run, quoted for the shell. Set once.
static ARGUMENTS: OnceLock<Vec<String>> = OnceLock::new();

/// Stores the arguments of this run, without the program, for commands that repeat it.
pub fn remember_arguments(arguments: impl Iterator<Item = OsString>) {
    let words = arguments.map(|word| shell_word(&word.to_string_lossy()));
    let _ = ARGUMENTS.set(words.collect());
}

/// Returns the complete command line of this run.
pub fn whole_command() -> String {
    again_as(command_name(), &[])
}

/// Returns the command line of this run with another command name, such as `apply` instead of `plan`, and `without` some of its
/// options.
pub fn again_as(name: &str, without: &[&str]) -> String {
    let given = ARGUMENTS.get().map_or(&[][..], Vec::as_slice);
    repeat_arguments(given, command_name(), name, without).unwrap_or_else(|| mco_rescue(name))
}

/// Returns a command line with the given arguments and another command name; `None` if the arguments do not contain the
/// command.
fn repeat_arguments(
    arguments: &[String],
    command: &str,
    name: &str,
    without: &[&str],
) -> Option<String> {
    let takes_value = |word: &str| ["--root", "-o", "--output"].contains(&word);
    let is_value = |at: usize| at > 0 && takes_value(&arguments[at - 1]);
    let mut all = arguments.iter().enumerate();
    let (at, _) = all.find(|(at, word)| *word == command && !is_value(*at))?;
    let mut words = arguments.to_vec();
    name.clone_into(&mut words[at]);
    words.retain(|word| !without.contains(&word.as_str()));
    Some(format!("mco-rescue {}", words.join(" ")))
}

/// The name of this program in printed commands.
const NAME: &str = "mco-rescue ";

/// How a person calls this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedProgram {
    /// The program as typed, such as `./mco-rescue`.
    pub program: String,
    /// When `sudo` is typed before it.
    pub sudo: Sudo,
}

/// When a person types `sudo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sudo {
    /// Never: the shell is root's.
    Never,
    /// For the running system: the user is not root, and another root may be the user's own.
    Live,
    /// Always: this run was begun with it.
    Always,
}

/// How this run was called by a person. Set once.
static TYPED: OnceLock<TypedProgram> = OnceLock::new();

/// Stores how a person called this program, for [`as_typed`].
pub fn remember_typed(typed: TypedProgram) {
    let _ = TYPED.set(typed);
}

/// Returns a text for a person, in which this program's commands are as that person has to type them.
pub fn as_typed(text: &str) -> Cow<'_, str> {
    let Some(TypedProgram { program, sudo }) = TYPED.get() else {
        return Cow::Borrowed(text);
    };
    let has_sudo = match sudo {
        Sudo::Never => false,
        Sudo::Live => ROOT.get().is_none(),
        Sudo::Always => true,
    };
    Cow::Owned(spell_commands(text, &shell_word(program), has_sudo))
}

/// Replaces this program in the commands of a text: those after a label, in backticks, and on lines of their own. Prose and
/// commands for another machine stay.
fn spell_commands(text: &str, program: &str, has_sudo: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NAME) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        rest = &found[NAME.len()..];
        let bare = out.strip_suffix("sudo ").unwrap_or(&out).len();
        let (head, given_sudo) = out.split_at(bare);
        let line = head.rsplit('\n').next().unwrap_or_default();
        let above = head.trim_end();
        let begins = if line.trim().is_empty() {
            above.is_empty() || above.ends_with(':')
        } else {
            let ends = [": ", "  ", "`", "; ", ", or ", ", then "];
            ends.iter().any(|end| line.ends_with(end))
        };
        if !begins || above.ends_with(ON_THE_NODE.trim_end()) {
            out.push_str(NAME);
            continue;
        }
        let sudo = if has_sudo || !given_sudo.is_empty() {
            "sudo "
        } else {
            ""
        };
        out.truncate(bare);
        out += &format!("{sudo}{program} ");
    }
    out + rest
}

/// A command for a person to type: one line for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedCommand {
    line: String,
}

/// Programs that act on the system that runs them, unless an option selects another one.
pub const OF_THE_MACHINE: [&str; 35] = [
    "arping",
    "bootc",
    "bootupctl",
    "chronyc",
    "chronyd",
    "crictl",
    "crio",
    "curl",
    "ethtool",
    "findmnt",
    "fsfreeze",
    "fuser",
    "hostnamectl",
    "ip",
    "journalctl",
    "kubelet",
    "mokutil",
    "nmcli",
    "nmstatectl",
    "ostree",
    "ovs-vsctl",
    "pcs",
    "pgrep",
    "podman",
    "reboot",
    "restorecon",
    "rpm",
    "rpm-ostree",
    "ss",
    "sshd",
    "sysctl",
    "systemctl",
    "udevadm",
    "update-ca-trust",
    "visudo",
];

/// Programs that act on the disks and files they are given, wherever they run.
const OF_DISKS: [&str; 12] = [
    "clevis",
    "cp",
    "cryptsetup",
    "df",
    "du",
    "e2label",
    "fatlabel",
    "ls",
    "lsblk",
    "mount",
    "mv",
    "xfs_admin",
];

/// Other programs that messages mention.
const FIXED: [&str; 5] = ["echo", "lsattr", "mco-rescue", "skopeo", "unshare"];

/// Options that make such a program act on another root.
const NAMES_A_ROOT: [&str; 5] = ["--root", "--sysroot", "--repo", "--directory", "--file"];

/// Comment of a command that runs in a container.
const IN_CONTAINER: &str = "in a container of the image";

/// Prefix of a command that works only on the node.
pub const ON_THE_NODE: &str = "on the node itself, once it has booted: ";

impl PrintedCommand {
    /// Creates a command from its line, or from text that ends with it (`Take the label off: e2label /dev/sdb3 ''`); the text
    /// becomes its comment.
    pub fn new(line: impl Into<String>) -> Self {
        let line = Self { line: line.into() };
        let parts = line.line.rsplit_once(": ").filter(|(_, command)| {
            let program = command.split_whitespace().next().unwrap_or_default();
            OF_THE_MACHINE.contains(&program) || OF_DISKS.contains(&program)
        });
        match parts.filter(|_| line.is_instruction()) {
            Some((words, command)) => Self {
                line: format!("{command} # {words}"),
            },
            None => line,
        }
    }

    /// Returns true if it is an instruction in words and not a shell command.
    pub fn is_instruction(&self) -> bool {
        let first = self.line.split_whitespace().next().unwrap_or_default();
        let is_setting = first
            .split_once('=')
            .is_some_and(|(name, _)| is_upper(name));
        first.starts_with(|first: char| first.is_ascii_uppercase()) && !is_setting
    }

    /// Returns true if it works with the API of the cluster, on another node, or in a container.
    pub fn is_elsewhere(&self) -> bool {
        let begins = |one: &&str| self.line.starts_with(*one);
        let is_of_cluster = ["oc ", "scp ", "ssh ", "KUBECONFIG="].iter().any(begins);
        is_of_cluster || self.line.contains(IN_CONTAINER)
    }

    /// Returns true if one of its programs acts on the system that runs it.
    pub fn is_of_the_machine(&self) -> bool {
        self.line
            .split(&[';', '|', '&', '('][..])
            .any(acts_on_the_machine)
    }

    /// Returns the line for a running node (`live`), or for the root of a node that is not running: then the paths of the node
    /// are replaced by those on this machine, and commands that act on the machine are marked.
    pub fn spelled(&self, live: bool) -> String {
        let is_marked = self.line.starts_with(ON_THE_NODE) || self.is_instruction();
        let is_own = self.line.starts_with("mco-rescue ");
        match live || is_marked || is_own || self.is_elsewhere() {
            true => self.line.clone(),
            false if self.is_of_the_machine() => format!("{ON_THE_NODE}{}", self.line),
            false => match PLACES.get() {
                Some((top, var)) => place_paths(&self.line, top, var),
                None => self.line.clone(),
            },
        }
    }
}

/// Top-level directories of a node that hold its own files rather than the kernel's.
const OF_THE_NODE: [&str; 9] = [
    "boot", "efi", "etc", "home", "opt", "root", "sysroot", "usr", "var",
];

/// Returns a line with the node's paths replaced by those on this machine: below `top`, and for `/var` below `var`.
fn place_paths(line: &str, top: &Path, var: &Path) -> String {
    let (command_name, comment) = match line.split_once(" # ") {
        Some((command_name, comment)) => (command_name, format!(" # {comment}")),
        None => (line, String::new()),
    };
    let mut is_quoted = false;
    let words = command_name.split_inclusive(|c: char| {
        is_quoted ^= c == '\'';
        c == ' ' && !is_quoted
    });
    let place = |word: &str| {
        let bare = word.strip_prefix('\'').unwrap_or(word);
        let below = bare.strip_prefix('/').unwrap_or_default();
        let first = below
            .split(['/', ' ', '\'', ';'])
            .next()
            .unwrap_or_default();
        let is_placed = [top, var]
            .iter()
            .any(|place| Path::new(bare).starts_with(place));
        if is_placed || !OF_THE_NODE.contains(&first) {
            return word.to_owned();
        }
        let (place, rest) = match first {
            "var" => (var, &below["var".len()..]),
            _ => (top, bare),
        };
        if bare.len() == word.len() {
            shell_word(&place.display().to_string()) + rest
        } else {
            format!(
                "'{}{rest}",
                place.display().to_string().replace('\'', "'\\''")
            )
        }
    };
    words.map(place).collect::<String>() + &comment
}

fn acts_on_the_machine(line: &str) -> bool {
    let is_setting = |word: &&str| word.split_once('=').is_some_and(|(name, _)| is_upper(name));
    let mut words = line.split_whitespace().skip_while(is_setting);
    let program = words.next().unwrap_or_default();
    let names_a_root = |word: &str| {
        let option = word.split('=').next().unwrap_or(word);
        NAMES_A_ROOT.contains(&option) || (option == "-D" && program == "journalctl")
    };
    let is_own = line.contains(" --root / ") || line.trim_end().ends_with(" --root /");
    // A script on the node, such as the one for a restore.
    let is_own = is_own || program.starts_with('/');
    let is_known = OF_THE_MACHINE.contains(&program) || program.starts_with('/');
    is_known && (is_own || !words.any(names_a_root))
}

fn is_upper(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

/// Label before the commands of a message.
const NEXT: &str = "Next: ";

/// Separators between the commands of a message, with the label that each becomes.
const SEPARATORS: [(&str, &str); 2] = [(", then ", "then: "), (", or ", "or: ")];

/// Splits a message into its text and its commands: each command gets a line of its own, the first with the label `Next: `, the
/// others with `then: ` or `or: `.
pub fn set_commands_apart(text: &str) -> (&str, Vec<String>) {
    let begins = |(at, _): &(usize, &str)| *at == 0 || text[..*at].ends_with([' ', '\n']);
    let Some((at, _)) = text.match_indices(NEXT).filter(begins).last() else {
        return (text, Vec::new());
    };
    let (mut rest, mut label) = (&text[at + NEXT.len()..], NEXT);
    let mut lines = Vec::new();
    while let Some((end, (separator, next))) = SEPARATORS
        .iter()
        .filter_map(|one| Some((rest.find(one.0)?, *one)))
        .min_by_key(|(end, _)| *end)
    {
        lines.push(format!("{label}{}", &rest[..end]));
        (rest, label) = (&rest[end + separator.len()..], next);
    }
    lines.push(format!("{label}{rest}"));
    (text[..at].trim_end(), lines)
}

/// Returns a message with each command on its own line, ready to be copied.
pub fn with_commands_apart(text: &str) -> String {
    let (words, commands) = set_commands_apart(text);
    let words = Some(words.to_owned()).filter(|words| !words.is_empty());
    let lines: Vec<String> = words.into_iter().chain(commands).collect();
    lines.join("\n")
}

/// Returns the advice at the end of a message: a command after `Next: `, other text as a sentence.
pub fn advise_doctor(what: &str) -> String {
    let first = what.split_whitespace().next().unwrap_or_default();
    let known: [&[&str]; 3] = [&OF_THE_MACHINE, &OF_DISKS, &FIXED];
    if known.iter().any(|known| known.contains(&first)) || PrintedCommand::new(what).is_elsewhere()
    {
        return format!("{NEXT}{what}");
    }
    let mut letters = what.trim_end_matches('.').chars();
    let begin = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", begin.unwrap_or_default(), letters.as_str())
}

/// Returns a command of the node's own programs, marked if the root is not that of the running system.
pub fn on_node(line: impl Into<String>) -> String {
    PrintedCommand::new(line).spelled(ROOT.get().is_none())
}

/// Commands for situations in which nothing can be allocated any more: in a signal handler, and without memory.
static KEPT: OnceLock<[(&str, String); 3]> = OnceLock::new();

/// Prepares the commands that [`kept`] returns.
fn keep_commands() {
    let made = ["status", "recover", "verify"].map(|name| (name, mco_rescue(name)));
    let _ = KEPT.set(made);
}

/// Returns a command of this program by name (`status`, `recover` or `verify`). Does not allocate, and is safe in a signal
/// handler.
pub fn kept_command(name: &str) -> &'static str {
    let made = KEPT.get().map_or(&[][..], <[_; 3]>::as_slice);
    let found = made.iter().find(|(known, _)| *known == name);
    found.map_or("mco-rescue status", |(_, command)| command.as_str())
}

/// True if a soft reboot of the running system is prepared.
static SOFT: AtomicBool = AtomicBool::new(false);

/// Stores whether a soft reboot is prepared, for printed commands.
pub fn remember_soft_reboot(prepared: bool) {
    SOFT.store(prepared, Ordering::Relaxed);
}

/// Returns the command that reboots through the kernel, even if a soft reboot is prepared. For another root, returns an
/// instruction to boot its node, because no command on this machine can do that.
pub fn reboot_command() -> &'static str {
    match (ROOT.get(), SOFT.load(Ordering::Relaxed)) {
        (Some(_), _) => "# boot the node from this disk",
        (None, true) => HARD_REBOOT,
        (None, false) => "systemctl reboot",
    }
}

/// Reboots through the kernel although a soft reboot is prepared.
pub const HARD_REBOOT: &str = "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot";

/// Returns the message about a prepared soft reboot.
pub fn soft_reboot_words() -> String {
    format!(
        "a soft reboot is prepared: a plain systemctl reboot would enter the tree at /run/nextroot and keep the kernel and \
         its arguments. Reboot fully: {HARD_REBOOT}; or undo it first: ostree admin prepare-soft-reboot --reset"
    )
}

/// Returns true if the root of this run is not that of the running system.
pub fn is_other_root() -> bool {
    ROOT.get().is_some()
}

/// Quotes a text as one word for the shell.
pub fn shell_word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-@:+,=%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns the `rpm-ostree kargs` command with these changes, ready to be typed.
pub fn kargs_command(changes: &[KargsChange]) -> String {
    let options = changes.iter().map(KargsChange::command_option);
    let line = ["rpm-ostree", "kargs"].map(str::to_owned).into_iter();
    shell_words(&line.chain(options).collect::<Vec<_>>())
}

/// Quotes texts as words for the shell, separated by blanks.
pub fn shell_words<S: AsRef<str>>(texts: &[S]) -> String {
    let words: Vec<String> = texts.iter().map(|text| shell_word(text.as_ref())).collect();
    words.join(" ")
}

/// Returns the option that selects a root, with a leading blank.
pub fn root_option(root: &str) -> String {
    format!(" --root {}", shell_word(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_as_a_person_types_them() {
        let spell = |text: &str| spell_commands(text, "./mco-rescue", true);
        for (text, wanted) in [
            (
                "Next: mco-rescue verify\n",
                "Next: sudo ./mco-rescue verify\n",
            ),
            (
                "Next: sudo mco-rescue verify",
                "Next: sudo ./mco-rescue verify",
            ),
            (
                "  Next     mco-rescue a\n  then     mco-rescue b",
                "  Next     sudo ./mco-rescue a\n  then     sudo ./mco-rescue b",
            ),
            ("see `mco-rescue plan`.", "see `sudo ./mco-rescue plan`."),
            (
                "skipped:\n  mco-rescue doctor --deep",
                "skipped:\n  sudo ./mco-rescue doctor --deep",
            ),
            ("a run of mco-rescue ends", "a run of mco-rescue ends"),
            (
                "the unit of\n  mco-rescue ends",
                "the unit of\n  mco-rescue ends",
            ),
            ("/var/lib/mco-rescue is", "/var/lib/mco-rescue is"),
            (
                "ssh core@NODE sudo mco-rescue confirm",
                "ssh core@NODE sudo mco-rescue confirm",
            ),
        ] {
            assert_eq!(spell(text), wanted);
        }
        let marked = format!("Next: {ON_THE_NODE}mco-rescue install");
        assert_eq!(spell(&marked), marked);
        assert_eq!(
            spell_commands("Next: mco-rescue a", "./mco-rescue", false),
            "Next: ./mco-rescue a"
        );
        assert_eq!(
            spell_commands("Next: sudo mco-rescue a", "mco-rescue", false),
            "Next: sudo mco-rescue a"
        );
    }

    #[test]
    fn a_root_with_blanks_is_one_word() {
        assert_eq!(root_option("/mnt"), " --root /mnt");
        assert_eq!(root_option("/mnt/my disk"), " --root '/mnt/my disk'");
    }

    #[test]
    fn what_acts_on_the_machine_is_marked_for_another_root() {
        for line in [
            "systemctl start kubelet",
            "rpm-ostree rollback",
            "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot",
            "crictl logs $(crictl ps -q)",
            "ls /x && nmcli connection reload",
            "ostree admin cleanup",
            "arping -D -c 3 -I ens3 192.0.2.5",
        ] {
            let command = PrintedCommand::new(line);
            assert_eq!(command.spelled(true), line);
            let marked = format!("{ON_THE_NODE}{line}");
            assert_eq!(command.spelled(false), marked);
            assert_eq!(PrintedCommand::new(&marked).spelled(false), marked);
        }
        for line in [
            "mco-rescue status --root /mnt",
            "systemctl --root=/mnt disable x",
            "journalctl -D /mnt/var/log/journal --vacuum-size=500M",
            "ostree admin cleanup --sysroot=/mnt",
            "oc get csr",
            "mv /mnt/a /mnt/b",
        ] {
            assert_eq!(PrintedCommand::new(line).spelled(false), line);
        }
    }

    #[test]
    fn paths_of_the_node_are_placed_on_this_machine() {
        let placed =
            |line: &str| place_paths(line, Path::new("/mnt/a disk"), Path::new("/mnt/var"));
        for (line, wanted) in [
            (
                "mv /etc/a '/etc/b c' # of /etc",
                "mv '/mnt/a disk'/etc/a '/mnt/a disk/etc/b c' # of /etc",
            ),
            (
                "cp -rp $d /boot/efi/; done",
                "cp -rp $d '/mnt/a disk'/boot/efi/; done",
            ),
            (
                "du -a /var/lib /boot | sort",
                "du -a /mnt/var/lib '/mnt/a disk'/boot | sort",
            ),
            (
                "mv /var/x /var/x-$(date -u +%s)",
                "mv /mnt/var/x /mnt/var/x-$(date -u +%s)",
            ),
            ("mount /dev/sda2 /mnt/var/x", "mount /dev/sda2 /mnt/var/x"),
            ("cat /etc2/x /proc/cmdline", "cat /etc2/x /proc/cmdline"),
        ] {
            assert_eq!(placed(line), wanted);
        }
    }

    #[test]
    fn words_before_a_command_become_its_comment() {
        let spelled = |line: &str| PrintedCommand::new(line).spelled(true);
        assert_eq!(
            spelled("Take the label off the other one: e2label /dev/sdb3 ''"),
            "e2label /dev/sdb3 '' # Take the label off the other one"
        );
        let words = "On hardware: the node stays on its image.";
        assert_eq!(spelled(words), words);
        assert!(PrintedCommand::new(words).is_instruction());
        assert!(!PrintedCommand::new("KUBECONFIG=/x oc get csr").is_instruction());
        assert!(!PrintedCommand::new("oc get csr").is_instruction());
    }

    #[test]
    fn the_commands_of_a_message_are_lines_of_their_own() {
        assert_eq!(with_commands_apart("no room"), "no room");
        assert_eq!(
            with_commands_apart("no room. Next: mco-rescue recover, then mco-rescue verify"),
            "no room.\nNext: mco-rescue recover\nthen: mco-rescue verify"
        );
        assert_eq!(
            with_commands_apart("Next: a b, or c, then d"),
            "Next: a b\nor: c\nthen: d"
        );
        assert_eq!(with_commands_apart("Next: a"), "Next: a");
    }

    #[test]
    fn a_run_is_repeated_with_all_its_arguments() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let given = words("--root plan -v plan --files-only next.yaml");
        assert_eq!(
            repeat_arguments(&given, "plan", "apply", &[]).as_deref(),
            Some("mco-rescue --root plan -v apply --files-only next.yaml")
        );
        assert_eq!(
            repeat_arguments(&given, "plan", "plan", &["-v", "--files-only"]).as_deref(),
            Some("mco-rescue --root plan plan next.yaml")
        );
        assert_eq!(repeat_arguments(&given, "verify", "apply", &[]), None);
    }

    #[test]
    fn commands_of_the_running_system_need_no_root() {
        remember_root(Path::new("/"));
        assert_eq!(mco_rescue("verify"), "mco-rescue verify");
    }
}
