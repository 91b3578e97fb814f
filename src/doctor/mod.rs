//! What is wrong with a node, worst first.
//!
//! Pure: [`Evidence`] in, findings out. Each check is a file in [`checks`] and judges on its own; nobody here looks at
//! the node, knows the time, or prints. What could not be looked at is told with the reason and never taken for healthy.

pub mod checks;
pub mod evidence;
pub mod upkeep;

use serde::Serialize;

pub use evidence::{Evidence, Look};

/// How bad it is. The worst comes first in every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The node does not boot, run or join as it should, and does not get there by itself.
    Critical,
    /// It runs, but the daemon or the next change will founder on this.
    Warning,
    /// Worth knowing; nothing has to be done now.
    Notice,
}

/// One thing that is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Such as `FP-03`; what `doctor ID` takes.
    pub id: &'static str,
    /// What is looked for, as a short name of the trouble.
    pub title: &'static str,
    /// What is looked at, for "nothing found".
    pub looks_at: &'static str,
    /// For `doctor ID`: paragraphs between empty lines.
    pub explain: &'static str,
    /// Judges.
    pub judge: fn(&Evidence) -> Verdict,
}

/// What one check says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong; empty: nothing, as far as could be seen.
    pub findings: Vec<Finding>,
    /// What could not be judged: why, and what to look at by hand.
    pub unseen: Vec<String>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Of the check; filled in by [`examine`].
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What is wrong, in one line of at most [`WHAT`] letters.
    pub what: String,
    /// What it was told from.
    pub evidence: Vec<Fact>,
    /// The words of the daemon, or of another program, that this explains.
    pub daemon: Option<String>,
    /// What it means for the node.
    pub means: String,
    /// The commands to run next, in order.
    pub next: Vec<String>,
}

/// Letters that fit on a line beside severity and id.
pub const WHAT: usize = 60;

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// A file, a command, or what else was looked at.
    pub place: String,
    /// What was seen there; never a secret.
    pub said: String,
}

/// What became of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Looked {
    /// Its id.
    pub id: &'static str,
    /// What is looked for.
    pub title: &'static str,
    /// What was looked at.
    pub looks_at: &'static str,
    /// Something was found.
    pub found: bool,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// Everything that the checks say.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// The worst first; among equals in the order of the checks.
    pub findings: Vec<Finding>,
    /// All checks.
    pub checks: Vec<Looked>,
}

impl Diagnosis {
    /// How bad the worst is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.first().map(|finding| finding.severity)
    }
}

impl Severity {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

impl Verdict {
    /// Nothing is wrong.
    pub fn healthy() -> Self {
        Self::default()
    }

    /// It cannot be judged: why, and what to look at instead.
    pub fn unseen(why: impl Into<String>) -> Self {
        Self::healthy().and_unseen(why)
    }

    /// One thing is wrong.
    pub fn found(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            unseen: Vec::new(),
        }
    }

    /// The same, and something that could not be seen.
    pub fn and_unseen(mut self, why: impl Into<String>) -> Self {
        self.unseen.push(why.into());
        self
    }

    /// The same, and one more thing that is wrong.
    pub fn and(mut self, finding: impl IntoIterator<Item = Finding>) -> Self {
        self.findings.extend(finding);
        self
    }
}

impl Finding {
    /// Something wrong; the rest is added by the methods below.
    pub fn new(severity: Severity, what: impl Into<String>, means: impl Into<String>) -> Self {
        Self {
            id: "",
            severity,
            what: what.into(),
            evidence: Vec::new(),
            daemon: None,
            means: means.into(),
            next: Vec::new(),
        }
    }

    /// Told from this.
    pub fn seen(mut self, place: impl Into<String>, said: impl Into<String>) -> Self {
        self.evidence.push(Fact {
            place: place.into(),
            said: said.into(),
        });
        self
    }

    /// Told from all of these, of which so many are shown and the rest is counted.
    pub fn seen_all(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        let mut facts = facts.into_iter();
        self.evidence.extend(facts.by_ref().take(SHOWN));
        let more = facts.count();
        if more > 0 {
            self = self.seen(format!("and {more} more"), "");
        }
        self
    }

    /// Explains these words.
    pub fn daemon(mut self, words: Option<String>) -> Self {
        self.daemon = words;
        self
    }

    /// A command to run next.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }
}

/// Facts of one kind that a finding shows.
const SHOWN: usize = 5;

impl Fact {
    /// A fact.
    pub fn new(place: impl Into<String>, said: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            said: said.into(),
        }
    }
}

/// The check that reports a root without a system; no other check can say anything there.
const SAYS_NO_SYSTEM: &str = "FP-02";

/// Lets every check judge.
pub fn examine(checks: &[Check], evidence: &Evidence) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        findings: Vec::new(),
        checks: Vec::new(),
    };
    for check in checks {
        let verdict = if evidence.has_system || check.id == SAYS_NO_SYSTEM {
            (check.judge)(evidence)
        } else {
            Verdict::unseen("there is no system at this root")
        };
        diagnosis.checks.push(Looked {
            id: check.id,
            title: check.title,
            looks_at: check.looks_at,
            found: !verdict.findings.is_empty(),
            unseen: verdict.unseen,
        });
        let named = |finding| Finding {
            id: check.id,
            ..finding
        };
        diagnosis
            .findings
            .extend(verdict.findings.into_iter().map(named));
    }
    // Stable: among equals the order of the checks stays.
    diagnosis.findings.sort_by_key(|finding| finding.severity);
    diagnosis
}

/// The check of this id; `fp-3`, `FP-03` and `3` are the same.
pub fn named<'a>(checks: &'a [Check], id: &str) -> Option<&'a Check> {
    let number = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.trim_start_matches("fp")
            .trim_start_matches('-')
            .parse::<u32>()
            .ok()
    };
    let wanted = number(id)?;
    checks.iter().find(|check| number(check.id) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &'static str, judge: fn(&Evidence) -> Verdict) -> Check {
        Check {
            id,
            title: "",
            looks_at: "",
            explain: "",
            judge,
        }
    }

    fn notice(_: &Evidence) -> Verdict {
        Verdict::found(Finding::new(Severity::Notice, "small", ""))
    }

    fn critical(_: &Evidence) -> Verdict {
        Verdict::found(Finding::new(Severity::Critical, "big", "")).and_unseen("dark")
    }

    #[test]
    fn the_worst_comes_first_and_what_was_not_seen_is_kept() {
        let checks = [check("FP-01", notice), check("FP-02", critical)];
        let evidence = Evidence {
            has_system: true,
            ..Evidence::default()
        };
        let diagnosis = examine(&checks, &evidence);
        let ids: Vec<&str> = diagnosis.findings.iter().map(|one| one.id).collect();
        assert_eq!(ids, ["FP-02", "FP-01"]);
        assert_eq!(diagnosis.worst(), Some(Severity::Critical));
        assert_eq!(diagnosis.checks[1].unseen, ["dark"]);
    }

    #[test]
    fn a_check_is_found_however_its_id_is_written() {
        let checks = [check("FP-03", notice), check("FP-13", notice)];
        for id in ["FP-03", "fp-3", "3", "fp03"] {
            assert_eq!(
                named(&checks, id).map(|check| check.id),
                Some("FP-03"),
                "{id}"
            );
        }
        for id in ["FP-04", "", "FP", "x"] {
            assert!(named(&checks, id).is_none(), "{id}");
        }
    }

    #[test]
    fn many_facts_of_one_kind_are_counted() {
        let facts = (0..8).map(|n| Fact::new(n.to_string(), ""));
        let finding = Finding::new(Severity::Notice, "", "").seen_all(facts);
        assert_eq!(finding.evidence.len(), 6);
        assert_eq!(finding.evidence[5].place, "and 3 more");
    }
}
