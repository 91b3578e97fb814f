//! Judges whether a node can run another OS image: [`Target`] and [`Platform`] in, [`CrossingFinding`]s out. Pure.
//!
//! Each kind of breakage is a file in [`checks`]. A check finds nothing on a healthy node; missing evidence is reported as
//! [`CrossingSeverity::Unknown`] and never counts as healthy.

pub mod checks;
mod sbat;
pub mod target;

use serde::Serialize;

pub use target::Target;

use crate::base::order::StableOrder;
use crate::host::root::RootPath;
use crate::node::engine::Engine;
use crate::node::platform::Platform;

/// The effect of a finding on a run that stages the image. Sorts worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossingSeverity {
    /// The node would not boot, run or be reachable. The image is not staged.
    Inhibitor,
    /// The same, but the run cures it: see [`CrossingFinding::cures`].
    Cured,
    /// Something will behave differently.
    Warning,
    /// The evidence is missing.
    Unknown,
}

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// A file of the node or of the target, or another source.
    pub place: String,
    /// Its content in brief; never a secret.
    pub said: String,
}

/// A change that the run makes so that the node survives the crossing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cure {
    /// A new file, owned by root.
    PutFile {
        /// Path on the node.
        path: RootPath,
        /// Permission bits.
        mode: u32,
        /// Content.
        bytes: Vec<u8>,
    },
    /// Kernel arguments that are added in the same staging as the image.
    AppendArguments(Vec<String>),
    /// Kernel arguments that are removed in the same staging as the image.
    DeleteArguments(Vec<String>),
}

/// A failure that a check distinguishes from its others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossingFailure {
    /// GRUB stops at its prompt.
    GrubPrompt,
    /// GRUB's configuration has an old format.
    OldGrubConfig,
    /// An interrupted update of the boot loader left no space for the next one.
    BootLoaderSpace,
    /// The label of `/boot` is not unique.
    BootLabel,
    /// The TPM does not open an encrypted disk.
    Tpm,
    /// The header of an encrypted disk is damaged.
    LuksHeader,
}

/// A result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossingFinding {
    /// Id of the check, such as `interface-names`, as `--accept-risk` takes it; filled in by [`judge_crossing`].
    pub check: &'static str,
    /// The consequence.
    pub severity: CrossingSeverity,
    /// The part of the node or of the target, such as an interface.
    pub subject: String,
    /// A sentence that says what will break.
    pub what: String,
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The failure, if the check distinguishes several.
    pub failure: Option<CrossingFailure>,
    /// The message of the prevented failure, as a log or screen shows it.
    pub prevents: Option<String>,
    /// Commands or actions that fix it, in order.
    pub next: Vec<String>,
    /// The changes that the run makes itself; empty unless the severity is [`CrossingSeverity::Cured`].
    pub cures: Vec<Cure>,
}

impl CrossingFinding {
    /// Creates a finding without evidence and cure.
    pub fn new(
        severity: CrossingSeverity,
        subject: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self {
            check: "",
            severity,
            subject: subject.into(),
            what: what.into(),
            evidence: Vec::new(),
            failure: None,
            prevents: None,
            next: Vec::new(),
            cures: Vec::new(),
        }
    }

    /// Creates a finding that keeps the image from being staged.
    pub fn inhibitor(subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(CrossingSeverity::Inhibitor, subject, what)
    }

    /// Creates a finding of something that will behave differently.
    pub fn warning(subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(CrossingSeverity::Warning, subject, what)
    }

    /// Creates a finding of missing evidence.
    pub fn unknown(subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(CrossingSeverity::Unknown, subject, what)
    }

    /// Adds a piece of evidence.
    #[must_use]
    pub fn with_evidence(mut self, place: impl Into<String>, said: impl Into<String>) -> Self {
        self.evidence.push(Evidence {
            place: place.into(),
            said: said.into(),
        });
        self
    }

    /// Sets the failure.
    #[must_use]
    pub fn with_failure(mut self, failure: CrossingFailure) -> Self {
        self.failure = Some(failure);
        self
    }

    /// Sets the message of the failure that it prevents.
    #[must_use]
    pub fn with_prevented(mut self, words: impl Into<String>) -> Self {
        self.prevents = Some(words.into());
        self
    }

    /// Adds a command or action that fixes it.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// Adds a change that the run makes itself.
    #[must_use]
    pub fn with_cure(mut self, cure: Cure) -> Self {
        self.cures.push(cure);
        self
    }

    /// Puts texts about rpm-ostree into the words of the node's engine. The words of a failure are literal: those of a program
    /// that the node does not have are left out.
    fn spelled_for(self, engine: Engine) -> Self {
        let spell = |text: String| engine.spell(&text);
        let evidence = self.evidence.into_iter().map(|one| Evidence {
            place: spell(one.place),
            said: spell(one.said),
        });
        let is_said = |words: &String| engine.spell(words) == *words;
        Self {
            what: spell(self.what),
            evidence: evidence.collect(),
            prevents: self.prevents.filter(is_said),
            next: self.next.into_iter().map(spell).collect(),
            ..self
        }
    }
}

/// Returns true if a finding prevents the boot; the command then ends with an error.
pub fn has_inhibitor(findings: &[CrossingFinding]) -> bool {
    let mut severities = findings.iter().map(|finding| finding.severity);
    severities.any(|severity| severity == CrossingSeverity::Inhibitor)
}

/// The judgement of a check on an image and a node.
pub type CrossingJudge = fn(&Target, &Platform) -> Vec<CrossingFinding>;

/// A check for one kind of breakage.
#[derive(Debug, Clone, Copy)]
pub struct CrossingCheck {
    /// Id, such as `interface-names`.
    pub id: &'static str,
    /// True if it judges the image together with the node; `plan` runs it too. Otherwise it judges the node's files, on which
    /// `plan` has messages of its own.
    pub is_of_image: bool,
    /// The judgement.
    pub judge: CrossingJudge,
}

impl CrossingCheck {
    /// Creates a check that judges the image together with the node.
    pub const fn of_image(id: &'static str, judge: CrossingJudge) -> Self {
        Self {
            id,
            is_of_image: true,
            judge,
        }
    }

    /// Creates a check that judges the node's files.
    pub const fn of_node(id: &'static str, judge: CrossingJudge) -> Self {
        Self {
            is_of_image: false,
            ..Self::of_image(id, judge)
        }
    }
}

/// Runs all checks and returns the findings, worst first.
pub fn judge_crossing(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    judge_some(target, node, |_| true)
}

/// Runs the checks with these ids and returns the findings, worst first.
pub fn judge_some(
    target: &Target,
    node: &Platform,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<CrossingFinding> {
    let mut all: Vec<CrossingFinding> = Vec::new();
    // What is not known is said as it is written.
    let engine = node.engine.clone().unwrap_or(Engine::RpmOstree);
    for check in checks::ALL.iter().filter(|check| is_wanted(check.id)) {
        let found = (check.judge)(target, node).into_iter();
        all.extend(found.map(|finding| CrossingFinding {
            check: check.id,
            ..finding.spelled_for(engine)
        }));
    }
    all.order_by_key(|finding| finding.severity);
    all
}
