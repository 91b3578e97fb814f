//! Diagnoses a node: findings, worst first.
//!
//! Pure: [`DoctorEvidence`] in, findings out. Each check is a file in [`checks`] and judges independently; none of them reads
//! the node or the time, or prints. Missing evidence is reported with its reason and never counts as healthy.

pub mod checks;
pub mod cold;
pub mod crossing;
pub mod daemon;
pub mod evidence;
mod fix;
pub mod gather;
pub mod messages;
pub mod outlook;
pub mod since;
pub mod upkeep;

use serde::Serialize;

use crate::base::invocation::PrintedCommand;
use crate::base::order::StableOrder;
use crate::node::fault_group::{FaultGroup, FaultWeight};

pub use evidence::{DoctorEvidence, Look};
pub use fix::{Fix, FixChange};
pub use since::{EvidenceChange, Since};

/// The severity of a finding. Sorts worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckSeverity {
    /// The node does not boot, run or join as it should, and does not recover on its own.
    Critical,
    /// The node runs, but the daemon or the next change will fail because of this.
    Warning,
    /// Worth knowing; nothing has to be done now.
    Notice,
}

impl From<FaultWeight> for CheckSeverity {
    fn from(weight: FaultWeight) -> Self {
        match weight {
            FaultWeight::Fatal => Self::Critical,
            FaultWeight::Partial => Self::Warning,
            FaultWeight::Harmless => Self::Notice,
        }
    }
}

/// A check for one kind of problem.
#[derive(Debug, Clone, Copy)]
pub struct DoctorCheck {
    /// The id, such as `FP-03`; `doctor ID` accepts it.
    pub id: &'static str,
    /// A short name of the problem.
    pub title: &'static str,
    /// The evidence that the check reads, for the list of checks.
    pub looks_at: &'static str,
    /// The text of `doctor ID`: paragraphs separated by empty lines.
    pub explain: &'static str,
    /// The judgment.
    pub judge: fn(&DoctorEvidence) -> CheckVerdict,
}

/// The result of one check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckVerdict {
    /// The findings; empty if the evidence shows no problem.
    pub findings: Vec<DoctorFinding>,
    /// Missing evidence: the reason, and what to check by hand.
    pub unseen: Vec<String>,
    /// Slow parts that run only with `doctor --deep`, described in a few words each. They do not count as missing evidence.
    pub skipped: Vec<String>,
}

/// A trouble of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// The id of the check; filled in by [`run_checks`].
    pub id: &'static str,
    /// The severity.
    pub severity: CheckSeverity,
    /// The problem, in one line of at most [`WHAT`] characters.
    pub what: String,
    /// The evidence that shows it.
    pub evidence: Vec<Fact>,
    /// The message of the daemon, or of another program, that this explains.
    pub daemon: Option<String>,
    /// The consequence for the node.
    pub means: String,
    /// The commands to run next, in order.
    pub next: Vec<String>,
    /// The cure, if file changes alone are enough: `doctor --fix` carries it out.
    pub fix: Option<Fix>,
    /// How its evidence has changed since the last good boot, if the flight recorder saw that.
    pub changed: Option<EvidenceChange>,
}

/// Number of characters that fit on a line after severity and id.
pub const WHAT: usize = 60;

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// A file, a command, or another source.
    pub place: String,
    /// Its content or answer; never a secret.
    pub said: String,
}

/// The report on one check.
#[derive(Debug, Clone, Serialize)]
pub struct Looked {
    /// The id of the check.
    pub id: &'static str,
    /// The short name of the trouble.
    pub title: String,
    /// The evidence that the check reads.
    pub looks_at: String,
    /// The check has a finding.
    pub found: bool,
    /// Missing evidence, with the reason.
    pub unseen: Vec<String>,
    /// Slow parts that were skipped because `--deep` was not given.
    pub skipped: Vec<String>,
}

/// The results of all checks.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// The findings, worst first; equal ones in the order of the checks.
    pub findings: Vec<DoctorFinding>,
    /// All checks.
    pub checks: Vec<Looked>,
    /// The changes since the last good boot; `None` without a snapshot of one.
    pub since: Option<Since>,
}

impl Diagnosis {
    /// Returns the severity of the worst finding.
    pub fn worst_severity(&self) -> Option<CheckSeverity> {
        self.findings.first().map(|finding| finding.severity)
    }
}

impl CheckSeverity {
    /// Returns the severity as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

impl CheckVerdict {
    /// Returns a verdict without findings.
    pub fn healthy() -> Self {
        Self::default()
    }

    /// Returns a verdict of missing evidence: the reason, and what to check instead.
    pub fn not_seen(why: impl Into<String>) -> Self {
        Self::healthy().and_unseen(why)
    }

    /// Returns a verdict with one finding.
    pub fn one_finding(finding: DoctorFinding) -> Self {
        Self {
            findings: vec![finding],
            ..Self::default()
        }
    }

    /// Adds missing evidence.
    pub fn and_unseen(mut self, why: impl Into<String>) -> Self {
        self.unseen.push(why.into());
        self
    }

    /// Adds a slow part that needs `doctor --deep`, such as `hashes of the objects`.
    pub fn and_skipped(mut self, part: impl Into<String>) -> Self {
        self.skipped.push(part.into());
        self
    }

    /// Adds findings.
    pub fn and_findings(mut self, finding: impl IntoIterator<Item = DoctorFinding>) -> Self {
        self.findings.extend(finding);
        self
    }
}

impl DoctorFinding {
    /// Creates a finding; the methods below add the rest.
    pub fn new(severity: CheckSeverity, what: impl Into<String>, means: impl Into<String>) -> Self {
        Self {
            id: "",
            severity,
            what: what.into(),
            evidence: Vec::new(),
            daemon: None,
            means: means.into(),
            next: Vec::new(),
            fix: None,
            changed: None,
        }
    }

    /// Creates a finding of a node that does not work, or will not after the next boot.
    pub fn critical(what: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Critical, what, means)
    }

    /// Creates a finding that needs attention.
    pub fn warning(what: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Warning, what, means)
    }

    /// Creates a finding that is only good to know.
    pub fn notice(what: impl Into<String>, means: impl Into<String>) -> Self {
        Self::new(CheckSeverity::Notice, what, means)
    }

    /// Creates the finding for faults of one kind.
    pub fn of_group<K>(group: &FaultGroup<K>) -> Self {
        let faults = group.faults.iter();
        Self::new(group.weight.into(), group.what, group.means)
            .seen_all(faults.map(|(place, said)| Fact::new(place, said)))
            .with_message(group.words.clone())
    }

    /// Adds a piece of evidence.
    pub fn with_evidence(mut self, place: impl Into<String>, said: impl Into<String>) -> Self {
        self.evidence.push(Fact {
            place: place.into(),
            said: said.into(),
        });
        self
    }

    /// Adds pieces of evidence: the first few are listed, the rest only counted.
    pub fn seen_all(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        let mut facts = facts.into_iter();
        self.evidence.extend(facts.by_ref().take(SHOWN));
        let more = facts.count();
        if more > 0 {
            self = self.with_evidence(format!("and {more} more"), "");
        }
        self
    }

    /// Adds the message that the finding explains.
    pub fn with_message(mut self, words: Option<String>) -> Self {
        self.daemon = words;
        self
    }

    /// Adds a command to run next.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// Adds the cure, if changes of files alone certainly resolve the finding and can be undone. An empty list of changes adds
    /// no cure.
    pub fn fixed_by(mut self, changes: impl IntoIterator<Item = FixChange>) -> Self {
        let changes: Vec<FixChange> = changes.into_iter().collect();
        self.fix = (!changes.is_empty()).then(|| Fix {
            changes,
            ..Fix::default()
        });
        self
    }

    /// Adds a command that is still needed after the cure, such as a reload.
    pub fn after_fix(mut self, command: impl Into<String>) -> Self {
        if let Some(fix) = &mut self.fix {
            fix.then.push(command.into());
        }
        self
    }

    /// Adds commands to run next, in order.
    pub fn next_all(mut self, commands: Vec<&'static str>) -> Self {
        self.next.extend(commands.into_iter().map(str::to_owned));
        self
    }
}

/// Maximum number of facts of one kind that a finding lists.
const SHOWN: usize = 5;

impl Fact {
    /// Creates a piece of evidence.
    pub fn new(place: impl Into<String>, said: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            said: said.into(),
        }
    }
}

/// Runs all checks.
pub fn run_checks(checks: &[DoctorCheck], evidence: &DoctorEvidence) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        findings: Vec::new(),
        checks: Vec::new(),
        since: None,
    };
    for check in checks {
        let verdict = (check.judge)(evidence);
        diagnosis.checks.push(Looked {
            id: check.id,
            title: evidence.engine.spell(check.title),
            looks_at: evidence.engine.spell(check.looks_at),
            found: !verdict.findings.is_empty(),
            unseen: spell_texts(evidence, verdict.unseen),
            skipped: verdict.skipped,
        });
        let named = |finding| DoctorFinding {
            id: check.id,
            ..in_words_of_the_engine(evidence, finding)
        };
        diagnosis
            .findings
            .extend(verdict.findings.into_iter().map(named));
    }
    let failed = report_failed_reads(evidence, &diagnosis.findings);
    if let (Some(finding), Some(check)) = (failed, find_looked(&mut diagnosis.checks, UNREAD)) {
        check.found = true;
        diagnosis.findings.push(DoctorFinding {
            id: UNREAD,
            ..finding
        });
    }
    // A stable sort: findings of equal severity stay in the order of the checks.
    diagnosis.findings.order_by_key(|finding| finding.severity);
    name_fixes(&mut diagnosis.findings, evidence);
    for finding in &mut diagnosis.findings {
        mark_commands(&mut finding.next, evidence);
    }
    diagnosis
}

/// The check that reports unreadable files: most are left by a power failure or a failing disk.
const UNREAD: &str = "FP-10";

fn find_looked<'a>(checks: &'a mut [Looked], id: &str) -> Option<&'a mut Looked> {
    checks.iter_mut().find(|check| check.id == id)
}

/// Reports paths that exist and could not be read, except those that a finding already names: what they contain is not known, so
/// that no check speaks about it.
fn report_failed_reads(
    evidence: &DoctorEvidence,
    findings: &[DoctorFinding],
) -> Option<DoctorFinding> {
    let is_named = |path: &str| {
        let mut places = findings.iter().flat_map(|finding| &finding.evidence);
        places.any(|fact| fact.place == path || fact.place.starts_with(&format!("{path}:")))
    };
    let all = evidence.failed_reads.iter();
    let unread: Vec<&Fact> = all.filter(|fact| !is_named(&fact.place)).collect();
    let first = unread.first()?;
    let what = match unread.len() {
        1 => "a file cannot be read".to_owned(),
        more => format!("{more} files cannot be read"),
    };
    let means = "Its content is not known, and the checks that need it say nothing about it.";
    Some(
        DoctorFinding::warning(what, means)
            .seen_all(unread.iter().map(|fact| (*fact).clone()))
            .next(format!("ls -ld {}", evidence.shell_path(&first.place)))
            .next("Restore it from another node of the pool, or from a backup; apply restores only files of the config"),
    )
}

fn spell_texts(evidence: &DoctorEvidence, texts: Vec<String>) -> Vec<String> {
    let texts = texts.iter();
    texts.map(|text| evidence.engine.spell(text)).collect()
}

/// Rewrites a finding in the terms of the engine in use; messages of other programs stay unchanged.
fn in_words_of_the_engine(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let spell = |text: &str| evidence.engine.spell(text);
    let facts = finding.evidence.iter();
    DoctorFinding {
        what: spell(&finding.what),
        evidence: facts
            .map(|fact| Fact::new(spell(&fact.place), spell(&fact.said)))
            .collect(),
        means: spell(&finding.means),
        next: spell_texts(evidence, finding.next),
        ..finding
    }
}

/// Marks the commands that only the node itself can run, if another system is running here, and adapts the paths in the others
/// to the root.
fn mark_commands(commands: &mut [String], evidence: &DoctorEvidence) {
    for command in commands {
        let line = PrintedCommand::new(&*command);
        let is_bound = line.is_of_the_machine() || line.is_elsewhere() || line.is_instruction();
        *command = line.spelled(evidence.live);
        if !evidence.live && !is_bound {
            *command = at_root(evidence, command);
        }
    }
}

/// Prefixes of a node's paths that differ on a mounted disk.
const OF_THE_NODE: [&str; 6] = [
    "/boot/",
    "/etc/",
    "/home/core",
    "/sysroot/",
    "/usr/",
    "/var/",
];

/// Adapts a command to the examined root: on a mounted disk a node's paths are different.
fn at_root(evidence: &DoctorEvidence, line: &str) -> String {
    let (command, comment) = match line.split_once(" # ") {
        Some((command, comment)) => (command, format!(" # {comment}")),
        None => (line, String::new()),
    };
    let place = |word: &str| match word.trim_end_matches([',', ';', '.']) {
        path if path.starts_with(&evidence.root) => word.to_owned(),
        path if OF_THE_NODE.iter().any(|one| path.starts_with(one)) => {
            let end = word.strip_prefix(path).unwrap_or_default();
            // The shell expands the path.
            if path.contains(['*', '$']) {
                format!(
                    "{}{path}{end}",
                    evidence.shell_path("").trim_end_matches('/')
                )
            } else {
                evidence.shell_path(path) + end
            }
        }
        _ => word.to_owned(),
    };
    let words: Vec<String> = command.split(' ').map(place).collect();
    words.join(" ") + &comment
}

/// Gives each fix its command; several of one check are numbered.
fn name_fixes(findings: &mut [DoctorFinding], evidence: &DoctorEvidence) {
    let fixed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.fix.is_some())
        .map(|finding| finding.id)
        .collect();
    let total = |id: &str| fixed.iter().filter(|one| **one == id).count();
    let mut given: Vec<&str> = Vec::new();
    for finding in findings {
        let Some(fix) = &mut finding.fix else {
            continue;
        };
        let id = finding.id;
        given.push(id);
        let number = given.iter().filter(|one| **one == id).count();
        // What only the slow parts find, only they find again.
        let deep = if evidence.deep { " --deep" } else { "" };
        fix.command = match total(id) {
            1 => evidence.own_command(&format!("doctor --fix {id}{deep}")),
            _ => evidence.own_command(&format!("doctor --fix {id} --finding {number}{deep}")),
        };
    }
}

/// Finds a check by its id; `fp-3`, `FP-03` and `3` are the same.
pub fn find_check<'a>(checks: &'a [DoctorCheck], id: &str) -> Option<&'a DoctorCheck> {
    let wanted = number_of(id)?;
    checks
        .iter()
        .find(|check| number_of(check.id) == Some(wanted))
}

/// Finds the alias with an id, in any of these spellings.
pub fn alias_of(id: &str) -> Option<&'static checks::Alias> {
    let wanted = number_of(id)?;
    checks::ALIASES
        .iter()
        .find(|alias| number_of(alias.id) == Some(wanted))
}

fn number_of(id: &str) -> Option<u32> {
    let text = id.to_ascii_lowercase();
    text.trim_start_matches("fp")
        .trim_start_matches('-')
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &'static str, judge: fn(&DoctorEvidence) -> CheckVerdict) -> DoctorCheck {
        DoctorCheck {
            id,
            title: "",
            looks_at: "",
            explain: "",
            judge,
        }
    }

    fn notice(_: &DoctorEvidence) -> CheckVerdict {
        CheckVerdict::one_finding(DoctorFinding::notice("small", ""))
    }

    fn critical(_: &DoctorEvidence) -> CheckVerdict {
        CheckVerdict::one_finding(DoctorFinding::critical("big", "")).and_unseen("dark")
    }

    #[test]
    fn the_worst_comes_first_and_what_was_not_seen_is_kept() {
        let checks = [check("FP-01", notice), check("FP-02", critical)];
        let evidence = DoctorEvidence::default();
        let diagnosis = run_checks(&checks, &evidence);
        let ids: Vec<&str> = diagnosis.findings.iter().map(|one| one.id).collect();
        assert_eq!(ids, ["FP-02", "FP-01"]);
        assert_eq!(diagnosis.worst_severity(), Some(CheckSeverity::Critical));
        assert_eq!(diagnosis.checks[1].unseen, ["dark"]);
    }

    #[test]
    fn a_check_is_found_however_its_id_is_written() {
        let checks = [check("FP-03", notice), check("FP-13", notice)];
        for id in ["FP-03", "fp-3", "3", "fp03"] {
            assert_eq!(
                find_check(&checks, id).map(|check| check.id),
                Some("FP-03"),
                "{id}"
            );
        }
        for id in ["FP-04", "", "FP", "x"] {
            assert!(find_check(&checks, id).is_none(), "{id}");
        }
    }

    fn two_that_files_cure(_: &DoctorEvidence) -> CheckVerdict {
        let finding = |severity, path: &str| {
            DoctorFinding::new(severity, "", "").fixed_by([FixChange::move_aside(path)])
        };
        CheckVerdict::healthy().and_findings([
            finding(CheckSeverity::Notice, "/etc/a"),
            DoctorFinding::warning("", "").fixed_by([]),
            finding(CheckSeverity::Critical, "/etc/b"),
        ])
    }

    #[test]
    fn fixes_of_one_check_are_numbered_in_the_order_of_the_findings() {
        let evidence = DoctorEvidence {
            live: true,
            ..DoctorEvidence::default()
        };
        let commands = |checks: &[DoctorCheck]| -> Vec<Option<String>> {
            let findings = run_checks(checks, &evidence).findings.into_iter();
            findings.map(|one| Some(one.fix?.command)).collect()
        };
        let several = commands(&[check("FP-03", two_that_files_cure)]);
        let command = |end: &str| Some(format!("mco-rescue doctor --fix FP-03{end}"));
        assert_eq!(
            several,
            [command(" --finding 1"), None, command(" --finding 2")]
        );
    }

    #[test]
    fn many_facts_of_one_kind_are_counted() {
        let facts = (0..8).map(|n| Fact::new(n.to_string(), ""));
        let finding = DoctorFinding::notice("", "").seen_all(facts);
        assert_eq!(finding.evidence.len(), 6);
        assert_eq!(finding.evidence[5].place, "and 3 more");
    }
}
