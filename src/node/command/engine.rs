//! The program that stages a node's operating system, and its vocabulary.
//!
//! Messages are written for rpm-ostree, which the daemon uses. [`Engine::spell`] is the only place that translates them for a
//! node without it.

use crate::base::invocation::shell_word;

/// The program that stages an operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// rpm-ostree, which the daemon uses.
    #[default]
    RpmOstree,
    /// bootc, on nodes without rpm-ostree: it stages images and, with ostree's help, kernel arguments, but no packages.
    Bootc,
}

/// Commands and words of rpm-ostree, each with its replacement on a node that has only bootc. Longer ones come first.
const OF_BOOTC: [(&str, &str); 30] = [
    (
        "rpm-ostree cancel # the daemon may go on and stage its result, then rpm-ostree status # until it says idle",
        "pgrep -a 'bootc|ostree' # it may go on and stage its result: wait for its end",
    ),
    (
        "rpm-ostree upgrade # takes the new content",
        "bootc upgrade # takes the new content",
    ),
    (
        "rpm-ostree finalize-deployment CHECKSUM # finishes it",
        "bootc upgrade --from-downloaded # releases it",
    ),
    (
        "rpm-ostree cleanup --base --pending --rollback",
        "ostree admin undeploy INDEX",
    ),
    (
        "rpm-ostree cleanup --pending --rollback",
        "ostree admin undeploy INDEX",
    ),
    ("rpm-ostree cleanup --pending", "ostree admin undeploy 0"),
    ("rpm-ostree cleanup -b -p -m", "ostree admin cleanup"),
    ("rpm-ostree cleanup -p", "ostree admin undeploy 0"),
    ("rpm-ostree cleanup -r", "ostree admin undeploy INDEX"),
    ("rpm-ostree cleanup -m", "ostree admin cleanup"),
    (
        "packages metadata (ostree admin cleanup)",
        "what no deployment needs (ostree admin cleanup)",
    ),
    ("rpm-ostree status --booted", "bootc status"),
    ("rpm-ostree status --json", "bootc status --json"),
    ("rpm-ostree cancel", "pgrep -a 'bootc|ostree'"),
    ("rpm-ostree kargs", "cat /proc/cmdline"),
    ("rpm-ostree rollback", "ostree admin set-default INDEX"),
    (
        "rpm-ostree override reset --all and rpm-ostree uninstall PACKAGE revert the packages",
        "Another image reverts the packages: bootc switch IMAGE",
    ),
    ("rpm-ostree install NAME", "before bootc was alone here"),
    (
        "rpm-ostree rebase IMAGE --uninstall NAME",
        "bootc switch IMAGE, which drops them",
    ),
    ("rpm-ostree initramfs --disable", "bootc switch IMAGE"),
    (
        "rpm-ostree override reset",
        "bootc switch IMAGE # of its own",
    ),
    ("rpm-ostree uninstall", "bootc switch IMAGE # without"),
    (
        "systemctl status dbus.socket rpm-ostreed",
        "systemctl status dbus.socket",
    ),
    ("systemctl status rpm-ostreed dbus.socket", "bootc status"),
    (
        "systemctl status rpm-ostreed and journalctl -u rpm-ostreed",
        "bootc status and journalctl -b -t bootc",
    ),
    ("journalctl -b -u rpm-ostreed", "journalctl -b -t bootc"),
    ("journalctl -u rpm-ostreed", "journalctl -b -t bootc"),
    ("rpm-ostreed.service", "bootc"),
    ("rpm-ostreed", "bootc"),
    ("rpm-ostree", "bootc"),
];

/// The start of a command that changes kernel arguments.
const KARGS: &str = "rpm-ostree kargs ";

impl Engine {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
        }
    }

    /// Translates a text about rpm-ostree and its commands for this engine.
    pub fn spell(self, text: &str) -> String {
        match self {
            Self::RpmOstree => text.to_owned(),
            Self::Bootc => {
                let text = spell_arguments(text);
                let replace =
                    |text: String, (from, to): &(&str, &str)| replace_words(&text, from, to);
                OF_BOOTC.iter().fold(text, replace)
            }
        }
    }
}

/// Replaces words, but not inside a path or a longer name.
fn replace_words(text: &str, from: &str, to: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "/_-".contains(c);
    let (mut all, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(from) {
        let (before, found) = rest.split_at(at);
        let after = found.get(from.len()..).unwrap_or_default();
        let begun = all.chars().last().filter(|_| before.is_empty());
        let joined = before.chars().last().or(begun).is_some_and(is_part)
            || after.chars().next().is_some_and(is_part);
        all.push_str(before);
        all.push_str(if joined { from } else { to });
        rest = after;
    }
    all + rest
}

/// Replaces each `rpm-ostree kargs` that changes arguments with the ostree command that stages them. That command needs the
/// origin and the commit of the running deployment, which the shell reads.
fn spell_arguments(text: &str) -> String {
    let (mut all, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(KARGS) {
        all.push_str(before);
        let (options, end) = take_options(after);
        rest = end;
        match options.as_slice() {
            [] => all.push_str(KARGS),
            options => all.push_str(&stage_arguments(options)),
        }
    }
    all + rest
}

/// Returns the options at the start of a text (words that begin with `--`, quoted or not), and the rest of the text.
fn take_options(text: &str) -> (Vec<String>, &str) {
    let (mut all, mut rest) = (Vec::new(), text);
    loop {
        let word = rest.trim_start_matches(' ');
        let (bare, end) = match word.strip_prefix('\'') {
            Some(quoted) => match quoted.split_once('\'') {
                Some((bare, end)) => (bare, end),
                None => return (all, rest),
            },
            None => {
                let ends = |c: char| c.is_whitespace() || ",;)".contains(c);
                word.split_at(word.find(ends).unwrap_or(word.len()))
            }
        };
        // A full stop after a command is not part of it.
        let (bare, end) = match bare.strip_suffix('.') {
            Some(bare) if end.is_empty() || end.starts_with(char::is_whitespace) => {
                (bare, word.get(bare.len()..).unwrap_or(end))
            }
            _ => (bare, end),
        };
        if !bare.starts_with("--") {
            return (all, rest);
        }
        all.push(bare.to_owned());
        rest = end;
    }
}

/// Returns the ostree command that stages the running deployment with other kernel arguments.
fn stage_arguments(options: &[String]) -> String {
    let options = options.iter().map(|option| {
        let (name, value) = option.split_once('=').unwrap_or((option, "ARGUMENT"));
        let own = if name.starts_with("--append") {
            format!("--karg-append={value}")
        } else {
            format!("--karg-delete={value}")
        };
        shell_word(&own)
    });
    let options: Vec<String> = options.collect();
    let running = |part: &str| {
        format!("$(ostree admin status | sed -n 's/^\\* [^ ]* \\({part}*\\).*/\\1/p')")
    };
    format!(
        "ostree admin deploy --stage --origin-file=$(ls /ostree/deploy/*/deploy/{}.origin) {} {}",
        running("[^ ]"),
        options.join(" "),
        running("[^. ]")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_s_engine_speaks_as_written() {
        let text = "rpm-ostree cleanup -r, then rpm-ostree status";
        assert_eq!(Engine::RpmOstree.spell(text), text);
        assert_eq!(
            Engine::Bootc.spell(text),
            "ostree admin undeploy INDEX, then bootc status"
        );
    }

    #[test]
    fn paths_and_longer_names_stay() {
        for text in [
            "/usr/share/rpm-ostree/extensions",
            "/etc/rpm-ostreed.conf",
            "rpm-ostree-libs is layered",
        ] {
            assert_eq!(Engine::Bootc.spell(text), text);
        }
        assert_eq!(Engine::Bootc.spell("(rpm-ostreed)"), "(bootc)");
    }

    #[test]
    fn kernel_arguments_are_staged_by_ostree() {
        let said = Engine::Bootc.spell(
            "By hand: rpm-ostree kargs --append-if-missing=X '--delete-if-present=a b=\"c d\"', then reboot",
        );
        assert!(
            said.contains("--karg-append=X '--karg-delete=a b=\"c d\"' $(ostree"),
            "{said}"
        );
        assert!(
            said.starts_with("By hand: ostree admin deploy --stage "),
            "{said}"
        );
        assert!(said.ends_with(", then reboot"), "{said}");
        let said = Engine::Bootc.spell("rpm-ostree kargs --delete-if-present=console=X.\n\nThe");
        assert!(said.contains("--karg-delete=console=X $("), "{said}");
        assert!(said.ends_with(").\n\nThe"), "{said}");
        assert_eq!(Engine::Bootc.spell("rpm-ostree kargs"), "cat /proc/cmdline");
        let none = "rpm-ostree kargs takes them off.";
        assert_eq!(
            Engine::Bootc.spell(none),
            "cat /proc/cmdline takes them off."
        );
    }
}
