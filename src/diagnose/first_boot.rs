//! The task of a boot: the kernel arguments, the facts about the root, and the decision that follows from both.
//!
//! Values only. The effects are in `run/first_boot`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::reason::Reason;
use crate::change::plan::fit::{Accepted, Doubt};
use crate::change::source::gate::ConfigOrigin;

/// Timeout for a server, an address or Ignition if the kernel command line sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time that a boot waits.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// Prefix of our kernel arguments.
const PREFIX: &str = "mco_rescue";

/// How a run in the initramfs ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstBootOutcome {
    /// There was nothing to do.
    Nothing,
    /// An interrupted run was finished or undone.
    Recovered,
    /// A config was applied.
    Applied,
    /// The work failed.
    Failed,
}

impl FirstBootOutcome {
    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Recovered => "recovered",
            Self::Applied => "applied",
            Self::Failed => "failed",
        }
    }
}

/// The result of a run in the initramfs; kept at `/run/mco-rescue/firstboot.json` (`mco-rescue/firstboot/v1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBootResult {
    /// `mco-rescue/firstboot/v1`.
    pub schema: String,
    /// How it ended.
    pub outcome: FirstBootOutcome,
    /// The reason why there was something to do, or nothing.
    pub why: String,
    /// The config, if one was chosen.
    pub config: Option<String>,
    /// The step that failed, as a gerund.
    pub phase: Option<String>,
    /// The error.
    pub cause: Option<String>,
    /// Milliseconds from start to end.
    pub took: u64,
}

impl FirstBootResult {
    /// Creates the report of a run that did not fail.
    pub fn without_failure(
        outcome: FirstBootOutcome,
        why: impl Into<String>,
        config: Option<String>,
    ) -> Self {
        Self {
            schema: "mco-rescue/firstboot/v1".to_owned(),
            outcome,
            why: why.into(),
            config,
            phase: None,
            cause: None,
            took: 0,
        }
    }

    /// Creates the report of a run that failed.
    pub fn failed(why: impl Into<String>, phase: &str, cause: String) -> Self {
        Self {
            phase: Some(phase.to_owned()),
            cause: Some(cause),
            ..Self::without_failure(FirstBootOutcome::Failed, why, None)
        }
    }
}

/// The value of `mco_rescue=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Recover unfinished work, and complete a first boot that received no config.
    #[default]
    Auto,
    /// Apply a config in any case.
    Apply,
    /// Leave the boot alone.
    Off,
    /// A shell, with the root read-only.
    Shell,
}

/// This program's own kernel arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// `mco_rescue=`.
    pub mode: Mode,
    /// `mco_rescue.config=`: a path, `cached:NAME`, or an https URL.
    pub config: Option<String>,
    /// `mco_rescue.server=`: `https://HOST:22623/config/POOL`.
    pub server: Option<String>,
    /// `mco_rescue.timeout=`, in seconds.
    pub timeout: Duration,
    /// `mco_rescue.allow=`: doubts about the config that are ignored, named like the options of apply.
    pub allow: Accepted,
    /// Arguments that are not understood and skipped.
    pub problems: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            config: None,
            server: None,
            timeout: DEFAULT_TIMEOUT,
            allow: Accepted::default(),
            problems: Vec::new(),
        }
    }
}

impl Parameters {
    /// Parses a kernel command line. Of several equal names the last wins, as in the kernel. Never fails, so that nothing can
    /// stop a boot: errors are recorded and skipped.
    pub fn parse(command_line: &str) -> Self {
        let mut all = Self::default();
        for word in split_words(command_line) {
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            match name.strip_prefix(PREFIX) {
                Some("") => all.set_mode(value),
                Some(".config") => all.config = non_empty(value),
                Some(".server") => all.server = non_empty(value),
                Some(".timeout") => all.set_timeout(value),
                Some(".allow") => all.set_allowed(value),
                Some(other) if other.starts_with('.') => all.add_problem(format!(
                    "{name} is not a kernel argument of mco-rescue; it knows mco_rescue, and .config, .server, .timeout, .allow"
                )),
                _ => {}
            }
        }
        all
    }

    fn set_mode(&mut self, value: &str) {
        match value {
            "auto" => self.mode = Mode::Auto,
            "apply" => self.mode = Mode::Apply,
            "off" => self.mode = Mode::Off,
            "shell" => self.mode = Mode::Shell,
            other => self.add_problem(format!(
                "mco_rescue={other} is not one of auto, apply, off, shell; it is skipped"
            )),
        }
    }

    fn set_timeout(&mut self, value: &str) {
        match value.parse().map(Duration::from_secs) {
            Ok(timeout) if timeout <= MAX_TIMEOUT => self.timeout = timeout,
            _ => self.add_problem(format!(
                "mco_rescue.timeout={value} is not a number of seconds up to {}; {} is used",
                MAX_TIMEOUT.as_secs(),
                self.timeout.as_secs()
            )),
        }
    }

    fn set_allowed(&mut self, value: &str) {
        for name in value.split(',') {
            match self.allow.with_option(name) {
                Some(allow) => self.allow = allow,
                None => self.add_problem(format!(
                    "mco_rescue.allow={name} is not one of {}; it is skipped",
                    Doubt::ALL.map(Doubt::option).join(", ")
                )),
            }
        }
    }

    fn add_problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Returns the pool in the server's URL.
    pub fn pool(&self) -> Option<&str> {
        let (_, pool) = self.server.as_deref()?.rsplit_once("/config/")?;
        (!pool.is_empty() && !pool.contains('/')).then_some(pool)
    }
}

fn non_empty(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// Splits a kernel command line into words; double quotes protect blanks, as in the kernel's parser.
fn split_words(command_line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for letter in command_line.chars() {
        match letter {
            '"' => quoted = !quoted,
            letter if letter.is_whitespace() && !quoted => {
                words.push(std::mem::take(&mut word));
            }
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The config that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each looked at by itself"
)]
pub struct BootFacts {
    /// True if an earlier run was interrupted.
    pub unfinished: bool,
    /// True if systemd has not had its first boot on this root yet.
    pub never_booted: bool,
    /// True if the daemon has a record of the node's config.
    pub recorded: bool,
    /// True if Ignition wrote a user's config to this root.
    pub provisioned: bool,
    /// True if this program gave Ignition a config during this very boot.
    pub given: bool,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootWork {
    /// Nothing, with the reason.
    None(&'static str),
    /// Finish or undo interrupted work, and nothing else.
    Recover,
    /// Apply a config.
    Apply(WorkReason),
    /// Prepare a shell.
    Shell,
}

/// The reason why a config is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkReason {
    /// The kernel command line requests it.
    Asked,
    /// A first boot that received no config.
    FirstBoot,
    /// This program gave Ignition a config, and the rest is completed now.
    Given,
}

/// Decides what to do. An unfinished run always comes first, before a config is applied.
pub fn decide_work(mode: Mode, facts: BootFacts) -> BootWork {
    match mode {
        Mode::Off => BootWork::None("mco_rescue=off"),
        Mode::Shell => BootWork::Shell,
        Mode::Apply => BootWork::Apply(WorkReason::Asked),
        Mode::Auto if facts.given => BootWork::Apply(WorkReason::Given),
        Mode::Auto if facts.unfinished => BootWork::Recover,
        Mode::Auto if !facts.never_booted => BootWork::None("the node has booted before"),
        Mode::Auto if facts.recorded => BootWork::None("the node is recorded to be in a config"),
        Mode::Auto if facts.provisioned => BootWork::None("Ignition wrote the node's config"),
        Mode::Auto => BootWork::Apply(WorkReason::FirstBoot),
    }
}

/// A config that is available for a first boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableConfig {
    /// If it has to be read through a capsule.
    pub origin: ConfigOrigin,
    /// `metadata.name`.
    pub name: String,
    /// Its pool, if it names one.
    pub pool: Option<String>,
    /// True if the hash in its name matches its contents; `None` if the name has no hash.
    pub name_matches: Option<bool>,
    /// The argument that selects it: a path, or `cached:NAME`.
    pub argument: String,
    /// Its place, in words.
    pub place: &'static str,
}

/// Returns the only matching config. An initramfs has no prompt, so two candidates are as useless as none.
///
/// # Errors
/// The reason why no config is chosen, with the way to name one.
pub fn find_only<'a>(
    available: &'a [AvailableConfig],
    pool: Option<&str>,
) -> Result<&'a AvailableConfig, Reason> {
    let of_pool = |one: &&AvailableConfig| {
        pool.is_none() || one.pool.is_none() || one.pool.as_deref() == pool
    };
    let (whole, damaged): (Vec<_>, Vec<_>) = available
        .iter()
        .filter(of_pool)
        .partition(|one| one.name_matches != Some(false));
    let Some(first) = whole.first() else {
        return Err(match damaged.first() {
            Some(one) => format!(
                "{} ({}) is not what the hash in its name says; it is not used unless requested. To use it anyway: \
                 mco_rescue=apply mco_rescue.config={} mco_rescue.allow=edited-config",
                one.name, one.place, one.argument
            ).into(),
            None => "no config is available".into(),
        });
    };
    // The same config in two places counts once; the first place is the nearest.
    let others: Vec<&str> = whole
        .iter()
        .filter(|one| one.name != first.name)
        .map(|one| one.name.as_str())
        .collect();
    if others.is_empty() {
        return Ok(first);
    }
    Err(format!(
        "several configs are available: {}, {}. Name one: mco_rescue.config={}",
        first.name,
        others.join(", "),
        first.argument
    )
    .into())
}

#[cfg(test)]
mod tests {
    use crate::diagnose::first_boot::*;

    #[test]
    fn a_command_line_without_our_arguments_means_auto() {
        let parsed = Parameters::parse("BOOT_IMAGE=/vmlinuz root=UUID=x rw mco_rescued=1 quiet\n");
        assert_eq!(parsed, Parameters::default());
    }

    #[test]
    fn each_argument_is_read_and_the_last_one_counts() {
        let parsed = Parameters::parse(
            "mco_rescue=off mco_rescue=apply mco_rescue.config=\"/a b.json\" \
             mco_rescue.server=https://x:22623/config/worker mco_rescue.timeout=30",
        );
        assert_eq!(parsed.mode, Mode::Apply);
        assert_eq!(parsed.config.as_deref(), Some("/a b.json"));
        assert_eq!(parsed.pool(), Some("worker"));
        assert_eq!(parsed.timeout, Duration::from_secs(30));
        assert!(parsed.problems.is_empty());
    }

    #[test]
    fn nonsense_is_said_and_passed_over() {
        for (line, said) in [
            ("mco_rescue", "mco_rescue="),
            ("mco_rescue=yes", "not one of auto, apply, off, shell"),
            ("mco_rescue.timeout=ever", "mco_rescue.timeout=ever"),
            ("mco_rescue.timeout=99999", "up to 3600"),
            ("mco_rescue.pool=worker", "mco_rescue.pool"),
        ] {
            let parsed = Parameters::parse(line);
            assert_eq!(parsed.mode, Mode::Auto, "{line}");
            assert_eq!(parsed.timeout, DEFAULT_TIMEOUT, "{line}");
            assert_eq!(parsed.problems.len(), 1, "{line}");
            assert!(parsed.problems[0].contains(said), "{:?}", parsed.problems);
        }
        let without_pool = Parameters::parse("mco_rescue.server=api-int.example");
        assert_eq!(without_pool.pool(), None);
    }

    #[test]
    fn work_follows_from_mode_and_facts() {
        let fresh = BootFacts {
            never_booted: true,
            ..BootFacts::default()
        };
        let rows = [
            (
                Mode::Off,
                BootFacts {
                    unfinished: true,
                    ..fresh
                },
                BootWork::None("mco_rescue=off"),
            ),
            (Mode::Shell, fresh, BootWork::Shell),
            (
                Mode::Apply,
                BootFacts::default(),
                BootWork::Apply(WorkReason::Asked),
            ),
            (
                Mode::Apply,
                BootFacts {
                    recorded: true,
                    ..BootFacts::default()
                },
                BootWork::Apply(WorkReason::Asked),
            ),
            (
                Mode::Auto,
                BootFacts {
                    given: true,
                    provisioned: true,
                    ..fresh
                },
                BootWork::Apply(WorkReason::Given),
            ),
            (
                Mode::Auto,
                BootFacts {
                    unfinished: true,
                    recorded: true,
                    ..BootFacts::default()
                },
                BootWork::Recover,
            ),
            (
                Mode::Auto,
                BootFacts {
                    unfinished: true,
                    ..fresh
                },
                BootWork::Recover,
            ),
            (
                Mode::Auto,
                BootFacts::default(),
                BootWork::None("the node has booted before"),
            ),
            (
                Mode::Auto,
                BootFacts {
                    recorded: true,
                    ..fresh
                },
                BootWork::None("the node is recorded to be in a config"),
            ),
            (
                Mode::Auto,
                BootFacts {
                    provisioned: true,
                    ..fresh
                },
                BootWork::None("Ignition wrote the node's config"),
            ),
            (Mode::Auto, fresh, BootWork::Apply(WorkReason::FirstBoot)),
        ];
        for (mode, facts, wanted) in rows {
            assert_eq!(decide_work(mode, facts), wanted, "{mode:?} {facts:?}");
        }
    }

    fn available(name: &str, pool: &str, place: &'static str) -> AvailableConfig {
        AvailableConfig {
            origin: ConfigOrigin::Trusted,
            name: name.into(),
            pool: Some(pool.into()),
            name_matches: Some(true),
            argument: format!("/{place}/{name}"),
            place,
        }
    }

    #[test]
    fn one_config_is_taken_two_are_not() {
        let (a, b) = (
            available("a", "worker", "image"),
            available("b", "worker", "medium"),
        );
        let again = available("a", "worker", "medium");
        let master = available("m", "master", "image");
        assert!(
            find_only(&[], None)
                .unwrap_err()
                .to_string()
                .contains("no config is available")
        );
        assert_eq!(find_only(&[a.clone(), again], None), Ok(&a));
        assert!(
            find_only(&[a.clone(), b], None)
                .unwrap_err()
                .to_string()
                .contains("a, b. Name one")
        );
        assert_eq!(
            find_only(&[master.clone(), a.clone()], Some("worker")),
            Ok(&a)
        );
        assert!(find_only(&[master, a], None).is_err());
    }

    #[test]
    fn a_config_that_is_not_what_its_name_says_is_named_and_left() {
        let wrong = AvailableConfig {
            name_matches: Some(false),
            ..available("w", "worker", "image")
        };
        let said = find_only(std::slice::from_ref(&wrong), None).unwrap_err();
        assert!(
            said.to_string().contains("mco_rescue.config=/image/w"),
            "{said}"
        );
        let right = available("r", "worker", "medium");
        assert_eq!(find_only(&[wrong, right.clone()], None), Ok(&right));
    }
}
