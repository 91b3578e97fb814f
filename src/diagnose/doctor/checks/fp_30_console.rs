//! FP-30: a console that shows nothing.

use crate::base::invocation::kargs_command;
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::paths;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-30",
    title: "the console is silent",
    looks_at: "console= of the kernel arguments against the terminals of this machine",
    explain: "The last console= on the kernel command line is /dev/console: systemd's messages and the emergency shell are \
only there. If it does not exist, or is an unconnected serial line, a waiting node looks \
dead.\n\n\
At the boot menu press e and remove the last console=, or add console=tty0 after it. Permanently: rpm-ostree kargs \
--delete-if-present=console=X.\n\n\
The emergency shell asks for root's password. Where root is locked (\"Cannot open access to console, the root account \
is locked\") only a boot with init=/bin/bash, or the disk on another machine (mco-rescue --root), gives access. FP-33 shows \
the possible logins.",
    judge: judge_console,
};

fn judge_console(evidence: &DoctorEvidence) -> CheckVerdict {
    let arguments = match evidence.facts() {
        Ok(facts) => &facts.booted_arguments,
        Err(_) => match evidence.arguments_on_disk.seen() {
            Ok(arguments) => arguments,
            Err(why) => return CheckVerdict::not_seen(format!("console= of the kernel: {why}")),
        },
    };
    let terminals = evidence.upkeep.terminals.as_deref();
    CheckVerdict::healthy().and_findings(
        find_silent_console(arguments, terminals)
            .map(|finding| finding.next(next_command(evidence, arguments))),
    )
}

/// Returns the next command; on a mounted disk the boot entries are edited by hand.
fn next_command(evidence: &DoctorEvidence, arguments: &Kargs) -> String {
    if !evidence.live {
        return format!(
            "grep -n console= {}/*",
            evidence.shell_path(paths::BOOT_ENTRIES)
        );
    }
    let mut consoles = arguments.tokens().iter();
    let last = consoles.rfind(|token| token.starts_with("console="));
    let changes: Vec<_> = last.cloned().map(KargsChange::Delete).into_iter().collect();
    kargs_command(&changes)
}

fn find_silent_console(arguments: &Kargs, terminals: Option<&[String]>) -> Option<DoctorFinding> {
    let consoles = arguments.tokens().iter();
    let consoles: Vec<&str> = consoles
        .filter_map(|token| token.strip_prefix("console="))
        .collect();
    let last = consoles.last()?.split(',').next().unwrap_or_default();
    let nobody = matches!(last, "" | "null" | "ttynull");
    let absent = terminals.is_some_and(|all| !all.iter().any(|name| name == last));
    let virtual_one = matches!(last, "tty" | "tty0");
    if !nobody && (!absent || virtual_one) {
        return None;
    }
    let (what, said) = if nobody {
        ("the console is switched off", "its output is discarded")
    } else {
        (
            "the console is a missing terminal",
            "the kernel has no such terminal",
        )
    };
    let means = "If a boot stops for a question or an error, no message is visible.";
    let all = consoles.iter().map(|one| format!("console={one}"));
    Some(
        DoctorFinding::warning(what, means)
            .seen_all([Fact::new(all.collect::<Vec<_>>().join(" "), said)]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_console_counts() {
        let has = ["tty1".to_owned(), "ttyS0".to_owned()];
        let judged = |text: &str, known: bool| {
            find_silent_console(&Kargs::parse(text), known.then_some(has.as_slice())).is_some()
        };
        assert!(!judged("rw", true));
        assert!(!judged("console=null console=ttyS0,115200n8", true));
        assert!(!judged("console=ttyS0 console=tty0", true));
        assert!(judged("console=tty0 console=ttyS9", true));
        assert!(!judged("console=tty0 console=ttyS9", false));
        assert!(judged("console=tty0 console=ttynull", false));
    }
}
