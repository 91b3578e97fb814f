//! The commands of this program that messages name, as they have to be typed: with the root that this run has.
//!
//! Every message gets them from [`mco_rescue`], so that none leads to the running system instead of a mounted disk.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The root as the command line named it, as a word for the shell. It is set once, before anything is printed.
static ROOT: OnceLock<String> = OnceLock::new();

/// Keeps the root of this run for the commands that are printed.
pub fn remember_root(root: &Path) {
    if root != Path::new("/") {
        // The first one counts: a run has one root.
        let _ = ROOT.set(shell_word(&root.display().to_string()));
    }
}

/// The command of this process. It is set once.
static COMMAND: OnceLock<&'static str> = OnceLock::new();

/// Keeps the name of the command that runs.
pub fn remember_command(name: &'static str) {
    let _ = COMMAND.set(name);
}

/// Returns the name of the command that runs, such as `apply`; empty in a test of the library.
pub fn command() -> &'static str {
    COMMAND.get().copied().unwrap_or_default()
}

/// `mco-rescue ARGUMENTS`, leading to the root of this run.
pub fn mco_rescue(arguments: &str) -> String {
    let root = ROOT.get().map_or("", String::as_str);
    match root {
        "" => format!("mco-rescue {arguments}"),
        root => format!("mco-rescue {arguments} --root {root}"),
    }
}

/// A soft reboot of the running system is prepared.
static SOFT: AtomicBool = AtomicBool::new(false);

/// Keeps that a soft reboot is prepared or not, for the commands that are printed.
pub fn remember_soft_reboot(prepared: bool) {
    SOFT.store(prepared, Ordering::Relaxed);
}

/// The command that reboots through the kernel, also where a soft reboot is prepared.
pub fn reboot() -> &'static str {
    match SOFT.load(Ordering::Relaxed) {
        true => HARD_REBOOT,
        false => "systemctl reboot",
    }
}

/// Reboots through the kernel although a soft reboot is prepared.
pub const HARD_REBOOT: &str = "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot";

/// Said where a soft reboot is prepared.
pub fn soft_reboot_words() -> String {
    format!(
        "a soft reboot is prepared: a plain systemctl reboot would enter the tree at /run/nextroot and keep the kernel and \
         its arguments. Reboot fully: {HARD_REBOOT}; or undo it first: ostree admin prepare-soft-reboot --reset"
    )
}

/// A text as one word for the shell.
pub fn shell_word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-@:+,=%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The option that leads to a root, with a blank before it.
pub fn root_option(root: &str) -> String {
    format!(" --root {}", shell_word(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_with_blanks_is_one_word() {
        assert_eq!(root_option("/mnt"), " --root /mnt");
        assert_eq!(root_option("/mnt/my disk"), " --root '/mnt/my disk'");
    }

    #[test]
    fn commands_of_the_running_system_need_no_root() {
        remember_root(Path::new("/"));
        assert_eq!(mco_rescue("verify"), "mco-rescue verify");
    }
}
