//! What was seen of one rehearsed boot, and the parsers of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::service_configs::BrokenConfig;
use crate::rehearse::scene::DROP_IN;

/// The end of a rehearsed boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RehearsalEnd {
    /// systemd started everything. Units may have failed.
    Started,
    /// systemd is in emergency or rescue mode.
    Emergency,
    /// These units were still starting when the time was over.
    StillStarting(Vec<String>),
    /// The first process ended, or did not become systemd.
    Ended,
}

/// The state of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Load state, such as `loaded`, `not-found`, `bad-setting`.
    pub load: String,
    /// Active state, such as `active`, `failed`.
    pub active: String,
    /// Sub-state, such as `running`.
    pub sub: String,
    /// Result, such as `exit-code`.
    pub result: String,
    /// Exit status of the main process.
    pub status: String,
    /// A condition was checked and was not met.
    pub is_skipped: bool,
    /// It waits for the network, directly.
    pub needs_network: bool,
    /// When it became active, in microseconds after systemd began.
    pub active_after: Option<u64>,
    /// The path of its file.
    pub file: String,
}

impl UnitFacts {
    /// Returns true if it was started and did its work.
    pub fn is_active(&self) -> bool {
        matches!(self.active.as_str(), "active" | "reloading")
    }

    /// Returns true if it failed, for good or until its next restart.
    pub fn has_failed(&self) -> bool {
        self.active == "failed" || self.sub.starts_with("auto-restart")
    }

    /// Returns true if systemd cannot use its file.
    pub fn is_refused(&self) -> bool {
        matches!(self.load.as_str(), "bad-setting" | "error")
    }
}

/// Another question to the booted system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFacts {
    /// Its id, such as `sshd`.
    pub id: &'static str,
    /// The message of its failure; `None` if it succeeded.
    pub failed: Option<String>,
}

/// Everything that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsedBoot {
    /// The end.
    pub end: RehearsalEnd,
    /// Units by name.
    pub units: BTreeMap<String, UnitFacts>,
    /// The last lines of the journal of failed units.
    pub logs: BTreeMap<String, Vec<String>>,
    /// What systemd and its generators complained of.
    pub complaints: BTreeSet<String>,
    /// The other questions.
    pub probes: Vec<ProbeFacts>,
    /// Files that their service would refuse, by the rules of this program.
    pub refused_files: Vec<BrokenConfig>,
    /// Programs that are missing, with the service that starts them in earnest.
    pub missing: BTreeSet<(String, String)>,
    /// Nothing more could be written at the end.
    pub is_full: bool,
    /// Microseconds from the start of systemd until everything was started.
    pub duration: Option<u64>,
}

impl RehearsedBoot {
    /// Returns a boot of which nothing was seen but its end and its console.
    pub fn without_units(end: RehearsalEnd, complaints: BTreeSet<String>) -> Self {
        Self {
            end,
            units: BTreeMap::new(),
            logs: BTreeMap::new(),
            complaints,
            probes: Vec::new(),
            refused_files: Vec::new(),
            missing: BTreeSet::new(),
            is_full: false,
            duration: None,
        }
    }

    /// Returns the units that failed.
    pub fn failed_units(&self) -> impl Iterator<Item = (&String, &UnitFacts)> {
        let units = self.units.iter();
        units.filter(|(_, unit)| unit.has_failed())
    }
}

/// The properties that [`parse_units`] reads.
pub const PROPERTIES: &str = "--property=Id,LoadState,ActiveState,SubState,Result,ExecMainStatus,ConditionResult,\
                              ConditionTimestampMonotonic,ActiveEnterTimestampMonotonic,FragmentPath,After,Requires,Wants";

/// Parses the output of `systemctl show` for units: blocks of `NAME=VALUE` lines. `begun` is the time when systemd began.
pub fn parse_units(text: &str, begun: u64) -> BTreeMap<String, UnitFacts> {
    let blocks = text.split("\n\n").filter_map(|block| {
        let value = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once('='));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let text = |name| value(name).unwrap_or_default().to_owned();
        let time = |name| value(name).and_then(|time| time.parse::<u64>().ok());
        let waits = ["After", "Requires", "Wants"].map(text).join(" ");
        let id = value("Id")?.to_owned();
        let unit = UnitFacts {
            load: text("LoadState"),
            active: text("ActiveState"),
            sub: text("SubState"),
            result: text("Result"),
            status: text("ExecMainStatus"),
            is_skipped: value("ConditionResult") == Some("no")
                && time("ConditionTimestampMonotonic") > Some(0),
            needs_network: waits.split(' ').any(|name| name == "network-online.target"),
            active_after: time("ActiveEnterTimestampMonotonic")
                .filter(|time| *time > 0)
                .map(|time| time.saturating_sub(begun)),
            file: text("FragmentPath"),
        };
        Some((id, unit))
    });
    blocks.collect()
}

/// Words of systemd's own messages about what is wrong with a boot, whatever the unit.
const COMPLAINTS: [&str; 9] = [
    "Found ordering cycle",
    "deleted to break ordering cycle",
    "Refusing",
    "refusing",
    "failed with exit status",
    "Unknown key",
    "Unknown section",
    "ignoring",
    "is not executable",
];

/// Returns the lines of the console that report a fault, without times and colours. The progress of units is not among them: it is
/// read from the units.
pub fn read_complaints(console: &str) -> BTreeSet<String> {
    let plain = strip_escapes(console);
    let is_progress = |line: &str| {
        line.starts_with('[')
            || [
                "Starting ",
                "Stopping ",
                "Mounting ",
                "See 'systemctl status",
            ]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let is_complaint =
        |line: &&str| !is_progress(line) && COMPLAINTS.iter().any(|word| line.contains(word));
    let lines = plain.lines().map(str::trim).filter(is_complaint);
    lines.map(without_numbers).collect()
}

/// Returns the lines of a journal that begin with the place of a fault in a file, such as `/etc/tmpfiles.d/site.conf:1: `.
pub fn read_file_faults(journal: &str) -> impl Iterator<Item = String> {
    let lines = journal.lines().map(str::trim);
    lines
        .filter(|line| place_of_fault(line).is_some())
        .map(str::to_owned)
}

/// Returns the path of the file that a message begins with, if a line number follows.
pub fn place_of_fault(line: &str) -> Option<&str> {
    let (path, rest) = line.split_once(':')?;
    let is_place = path.starts_with('/') && rest.starts_with(|c: char| c.is_ascii_digit());
    is_place.then_some(path)
}

/// Returns a message without the process numbers in brackets, which differ in each boot.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        text += before;
        match after.split_once(']') {
            Some((inside, behind)) if inside.chars().all(|c| c.is_ascii_digit()) => rest = behind,
            _ => {
                text.push('[');
                rest = after;
            }
        }
    }
    text + rest
}

/// Removes the escape sequences of a terminal.
fn strip_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => {
                    chars.by_ref().find(|c| ('@'..='~').contains(c));
                }
                Some(']') => {
                    chars.by_ref().find(|c| matches!(c, '\u{7}' | '\\'));
                }
                _ => {}
            },
            '\r' => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Returns the programs that `systemctl cat` shows for a unit in earnest: those of `ExecStart=` and its kin in all files but the
/// one of the rehearsal. An empty value removes the ones before.
pub fn started_programs(files: &str) -> Vec<String> {
    let mut programs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files.split("\n# /") {
        if file
            .lines()
            .next()
            .is_some_and(|path| path.ends_with(DROP_IN))
        {
            continue;
        }
        for line in file.lines() {
            let Some((key, value)) = line.trim().split_once('=') else {
                continue;
            };
            if !matches!(
                key,
                "ExecStart" | "ExecStartPre" | "ExecStartPost" | "ExecCondition"
            ) {
                continue;
            }
            let list = programs.entry(key).or_default();
            let value = value.trim();
            let is_optional = value
                .split('/')
                .next()
                .is_some_and(|prefix| prefix.contains('-'));
            let word = value.trim_start_matches(['-', '@', ':', '+', '!', '|']);
            let word = word.split_whitespace().next().unwrap_or_default();
            match word {
                "" => list.clear(),
                // A name without a directory is looked up; one with a specifier or variable is not known here.
                word if word.starts_with('/') && !word.contains(['%', '$']) && !is_optional => {
                    list.push(word.trim_matches('"').to_owned());
                }
                _ => {}
            }
        }
    }
    programs.into_values().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_with_their_times_and_conditions() {
        let text = "Id=a.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=7\n\
                    ConditionResult=yes\nConditionTimestampMonotonic=5\nActiveEnterTimestampMonotonic=0\nAfter=basic.target network-online.target\n\n\
                    Id=b.service\nLoadState=loaded\nActiveState=inactive\nConditionResult=no\nConditionTimestampMonotonic=9\n\
                    ActiveEnterTimestampMonotonic=150\n";
        let units = parse_units(text, 100);
        assert_eq!(units["a.service"].status, "7");
        assert!(units["a.service"].needs_network && !units["a.service"].is_skipped);
        assert_eq!(units["a.service"].active_after, None);
        assert!(units["b.service"].is_skipped);
        assert_eq!(units["b.service"].active_after, Some(50));
    }

    #[test]
    fn complaints_are_systemds_own_and_the_same_in_each_boot() {
        let console = "\u{1b}[0;32m  OK  \u{1b}[0m] x\r\n\
                       sysinit.target: Found ordering cycle on a.service/start\r\n\
                       sysinit.target: Job a.service/start deleted to break ordering cycle starting with sysinit.target/start\r\n\
                       (sd-exec-strv)[17]: bad-generator failed with exit status 1.\r\n\
                       [FAILED] Failed to start b.service - B.\r\n\
                       Starting b.service - Failed to say it...\r\n";
        let found = read_complaints(console);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(
            found,
            [
                "(sd-exec-strv): bad-generator failed with exit status 1.",
                "sysinit.target: Found ordering cycle on a.service/start",
                "sysinit.target: Job a.service/start deleted to break ordering cycle starting with sysinit.target/start",
            ]
        );
    }

    #[test]
    fn programs_are_those_that_run_in_earnest() {
        let files = "# /usr/lib/systemd/system/kubelet.service\n[Service]\nExecStartPre=-/bin/mkdir -p /x\nExecStart=/usr/bin/old\n\n\
                     # /etc/systemd/system/kubelet.service.d/10.conf\n[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n  --v=2\n\n\
                     # /run/systemd/system/kubelet.service.d/zzz-mco-rescue-rehearsal.conf\nExecStart=\nExecStart=/bin/true\n";
        assert_eq!(started_programs(files), ["/usr/bin/kubelet"]);
    }
}
