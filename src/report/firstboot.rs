//! The report of a run in the initramfs: at most ten lines on every console, and a document for later.

use super::{WIDTH, wrap_text};
use crate::base::invocation::shell_word;

/// Maximum number of lines of an error within the ten; the journal has the whole text.
const CAUSE_LINES: usize = 4;

/// Returns the message about a failure: phase, cause, state of the node, and next step. At most ten lines. `unfinished`:
/// whether a run was left halfway; `None` if unknown.
pub fn failure_text(phase: &str, cause: &str, unfinished: Option<bool>) -> String {
    let node = match unfinished {
        Some(true) => "a run is unfinished; the next boot finishes or undoes it",
        Some(false) => "nothing was changed; the boot continues without mco-rescue",
        None => "it is not known if a run is unfinished; the boot continues",
    };
    let next = if unfinished == Some(false) {
        "Boot with mco_rescue=shell for a shell, or name a config:"
    } else {
        "Boot again, or with mco_rescue=shell: mco-rescue recover --root /sysroot"
    };
    let mut text = format!("{}\n", title("the config of this node was NOT applied"));
    text += &field("Phase", phase, 1);
    text += &field("Cause", cause, CAUSE_LINES);
    text += &field("Node", node, 1);
    text += &field("Next", next, 1);
    if unfinished == Some(false) {
        text += "        mco_rescue=apply mco_rescue.config=PATH\n";
    }
    text + &field("More", "journalctl -b -u mco-rescue-firstboot", 1)
}

/// Returns the message about a finished run. At most six lines.
pub fn success_text(done: &str, why: &str) -> String {
    let title = title("done");
    format!(
        "{title}\n{}{}",
        field("Done", done, 2),
        field("Why", why, 3)
    )
}

/// Returns the message while a medium is awaited.
pub fn awaiting_text(seconds: u64) -> String {
    let next =
        "Plug in a medium labelled MCO-RESCUE with the config, or boot with mco_rescue.config=PATH";
    format!(
        "{}\n{}",
        title(&format!("waiting up to {seconds} s for a config")),
        field("Next", next, 2)
    )
}

/// Returns the message while Ignition waits for its server: the time, the cause and the next step.
pub fn waiting_text(cause: &str, seconds: u64, next: &str) -> String {
    let waits = format!("Ignition waits for its config, for {seconds} s now");
    format!(
        "{}\n{}{}",
        title(&waits),
        field("Cause", cause, CAUSE_LINES),
        field("Next", next, 2)
    )
}

/// Returns the first lines of the rescue shell.
pub fn banner_text(root: &str, problem: Option<&str>) -> String {
    let mut text = format!("{}\n", title("the shell of last resort"));
    text += &match problem {
        None => format!("The node's root is mounted read-only at {root}. Four commands to try:\n"),
        Some(problem) => wrap_text(
            &format!("The node's root could not be prepared at {root}: {problem}"),
            0,
        ),
    };
    let root = shell_word(root);
    for command in ["doctor", "verify"] {
        text += &format!("  mco-rescue {command} --root {root}\n");
    }
    for command in ["rollback", "apply CONFIG"] {
        text += &format!("  mount -o remount,rw {root} && mco-rescue {command} --root {root}\n");
    }
    text + "Then: systemctl reboot. With exit the boot continues.\n"
}

fn title(text: &str) -> String {
    let text = format!("---- mco-rescue: {text} ");
    let rest = WIDTH.saturating_sub(text.chars().count());
    text + &"-".repeat(rest)
}

/// Returns a name and its text, which starts in column 8 and takes at most `lines` lines.
fn field(name: &str, text: &str, lines: usize) -> String {
    let wrapped = wrap_text(text, 8);
    let mut kept: Vec<&str> = wrapped.lines().take(lines).collect();
    let cut = wrapped.lines().count() > lines;
    let shortened = kept.pop().map(|last| {
        let end = last
            .char_indices()
            .nth(WIDTH - 4)
            .map_or(last.len(), |(at, _)| at);
        let shown = last.get(..end).unwrap_or(last);
        if cut {
            format!("{shown} ...")
        } else {
            last.to_owned()
        }
    });
    let mut all: Vec<String> = kept.into_iter().map(str::to_owned).collect();
    all.extend(shortened);
    let text = all.join("\n");
    format!("{name:<8}{}\n", text.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_takes_at_most_ten_lines_of_eighty_columns() {
        let cause = "https://api-int.cluster.example:22623/config/worker: the certificate is not valid yet ".repeat(9);
        for unfinished in [Some(false), Some(true), None] {
            let text = failure_text("fetching the config", &cause, unfinished);
            assert!(text.lines().count() <= 10, "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
            assert!(text.contains("Next") && text.contains("..."), "{text}");
        }
    }

    #[test]
    fn the_banner_names_four_commands_or_what_went_wrong() {
        let text = banner_text("/sysroot", None);
        assert_eq!(text.matches("mco-rescue ").count(), 4, "{text}");
        assert!(banner_text("/sysroot", Some("no such device")).contains("no such device"));
    }

    #[test]
    fn a_cause_cannot_forge_lines() {
        let text = failure_text("applying", "a\nNext    rm -rf /\u{1b}[2J", Some(false));
        assert_eq!(
            text.lines().filter(|line| line.starts_with("Next")).count(),
            1,
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
    }
}
