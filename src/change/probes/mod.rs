//! Probes: checks that a node works, which confirm a trial in place of a person.
//!
//! Some are built in. Others are commands, or the executable files in `/etc/mco-rescue/probes.d`. Each has a time limit, and a
//! probe that hangs is killed together with everything that it started.

mod builtin;
mod rounds;
mod script;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::text;
use crate::host::net::NameSources;
use crate::host::root::Root;
use crate::node::command::CommandRunner;

pub use builtin::BuiltinProbe;
pub use rounds::ProbeRounds;
pub use script::{PROBES_D, list_probes};

/// Maximum number of characters that are kept of a probe's output.
const MAX_SAID: usize = 300;

/// A probe. Files store it as the text with which it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Probe {
    /// One of this program.
    Builtin(BuiltinProbe),
    /// A command for `/bin/sh -c`.
    Command(String),
    /// A file in `/etc/mco-rescue/probes.d`, by name.
    File(String),
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(builtin) => f.write_str(builtin.name()),
            Self::Command(command) => f.write_str(command),
            Self::File(name) => write!(f, "probes.d/{name}"),
        }
    }
}

impl From<Probe> for String {
    fn from(probe: Probe) -> Self {
        probe.to_string()
    }
}

impl TryFrom<String> for Probe {
    type Error = ProbeError;

    fn try_from(text: String) -> Result<Self, ProbeError> {
        parse_probe(&text)
    }
}

/// The reason why a text is not a probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It is blank.
    #[error("the probe is empty; name one of {}, or a command", builtin_names())]
    Empty,
    /// It is a single word that is not a built-in probe, probably misspelled.
    #[error(
        "there is no built-in probe {word:?}; they are {}. A command of one word is given with its path",
        builtin_names()
    )]
    Unknown {
        /// The word.
        word: String,
    },
    /// It is not a file name in the directory.
    #[error("{0:?} is not a name of a file in /{PROBES_D}")]
    BadName(String),
    /// It contains a NUL byte or a line break, which no argument and no message can contain.
    #[error("a command is one line without NUL bytes")]
    BadCommand,
}

fn builtin_names() -> String {
    let names: Vec<&str> = BuiltinProbe::ALL.iter().map(|one| one.name()).collect();
    names.join(", ")
}

/// Parses a probe: the name of a built-in one, `probes.d/NAME`, or a command.
///
/// # Errors
/// The text is none of them.
pub fn parse_probe(text: &str) -> Result<Probe, ProbeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ProbeError::Empty);
    }
    if text.contains(['\0', '\n', '\r']) {
        return Err(ProbeError::BadCommand);
    }
    if let Some(builtin) = BuiltinProbe::ALL.iter().find(|one| one.name() == text) {
        return Ok(Probe::Builtin(*builtin));
    }
    if let Some(name) = text.strip_prefix("probes.d/") {
        let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', ' ']);
        return if is_name {
            Ok(Probe::File(name.to_owned()))
        } else {
            Err(ProbeError::BadName(name.to_owned()))
        };
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.chars().all(is_word) {
        Err(ProbeError::Unknown {
            word: text.to_owned(),
        })
    } else {
        Ok(Probe::Command(text.to_owned()))
    }
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The probe.
    pub name: String,
    /// It succeeded.
    pub good: bool,
    /// The reason in words, on one line.
    pub said: String,
    /// Milliseconds that it took.
    #[serde(rename = "milliseconds", with = "milliseconds")]
    pub took: Duration,
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Everything that probes need.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct ProbeContext<'a> {
    /// The root of the running system.
    pub root: &'a Root,
    /// The runner of commands.
    pub runner: &'a dyn CommandRunner,
    /// The name resolution of the running system.
    pub names: NameSources,
    /// The time when the change was complete, in milliseconds since the kernel started: earlier signs of life are ignored.
    /// `None` if they are accepted.
    pub in_place_since: Option<u64>,
    /// The end of all probes; one that takes longer fails.
    pub until: Instant,
    /// Returns true once the result is no longer needed; commands are then killed.
    pub ended: &'a dyn Fn() -> bool,
}

impl ProbeContext<'_> {
    /// Returns the end of a probe with its own time limit.
    fn end_within(&self, bound: Duration) -> Instant {
        self.until.min(Instant::now() + bound)
    }

    /// Returns true if the time is over.
    fn is_over(&self, end: Instant) -> bool {
        Instant::now() >= end || (self.ended)()
    }
}

/// Runs a probe.
pub fn run_probe(probe: &Probe, context: &ProbeContext<'_>) -> ProbeResult {
    let started = Instant::now();
    let result = match probe {
        Probe::Builtin(builtin) => builtin::run_builtin(*builtin, context),
        Probe::Command(command) => script::run_command(command, context),
        Probe::File(name) => script::run_file(name, context),
    };
    let (good, said) = match result {
        Ok(said) => (true, said),
        Err(why) => (false, why.to_string()),
    };
    ProbeResult {
        name: probe.to_string(),
        good,
        said: text::one_line(&said).chars().take(MAX_SAID).collect(),
        took: started.elapsed(),
    }
}

/// Runs probes one after another, up to the first failure. Returns their results.
pub fn run_round(probes: &[Probe], context: &ProbeContext<'_>) -> Vec<ProbeResult> {
    let mut results = Vec::new();
    for probe in probes {
        let result = run_probe(probe, context);
        let good = result.good;
        results.push(result);
        if !good {
            break;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_a_name_a_file_or_a_command() {
        for (text, probe) in [
            ("kubelet", Probe::Builtin(BuiltinProbe::Kubelet)),
            (
                " default-route ",
                Probe::Builtin(BuiltinProbe::DefaultRoute),
            ),
            ("probes.d/10-storage", Probe::File("10-storage".into())),
            ("/usr/bin/true", Probe::Command("/usr/bin/true".into())),
            ("ping -c 1 a", Probe::Command("ping -c 1 a".into())),
        ] {
            let parsed = parse_probe(text).unwrap();
            assert_eq!(parsed, probe);
            let kept = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<Probe>(&kept).unwrap(), probe);
        }
        for (text, words) in [
            ("", "the probe is empty"),
            ("  ", "the probe is empty"),
            (
                "kublet",
                "no built-in probe \"kublet\"; they are default-route, name-servers, api, kubelet, sshd",
            ),
            ("probes.d/", "not a name of a file"),
            ("probes.d/../x", "not a name of a file"),
            ("a\nb", "one line"),
        ] {
            let error = parse_probe(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
