//! Releases of the daemon: which rules a branch has on a given day (docs/develop/agreement.md: Versions).
//!
//! A branch receives a change of the main branch on a day of its own, or never, and a change can be reverted.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::node::os_release::OpenshiftVersion;

/// A daemon: a branch of its source, and the day up to which the branch counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    branch: Branch,
    /// The patch release, such as 14 of 4.20.14.
    patch: Option<u32>,
    day: Day,
}

/// A branch of the operator's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Branch {
    /// `release-4.MINOR`. 5.0 is the same tree as 4.23.
    Minor(u32),
    /// The main one.
    Main,
}

/// A day as a number that sorts chronologically.
type Day = u32;

/// Returns a day as a number that sorts chronologically.
const fn day_number(year: u32, month: u32, day: u32) -> Day {
    year * 10_000 + month * 100 + day
}

/// A day later than all others: used for a release of which only the branch is known.
const NEWEST: Day = day_number(9999, 12, 31);
/// Since the branch began.
const ALWAYS: Day = 0;
/// The oldest branch with known rules.
const OLDEST: u32 = 12;
/// The branch of 5.0.
const FIVE: u32 = 23;

/// A rule of the daemon that not every release has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Ignition 3.5 is accepted.
    Ignition3_5,
    /// Units that are enabled but should be disabled are reported, and vice versa.
    Enablement,
    /// The force file rewrites all units, not only changed ones.
    ForceWritesUnits,
    /// Packages of extensions are checked after an update.
    Packages,
    /// A unit without contents and without a file on the node is skipped, not switched.
    MissingUnitsSkipped,
    /// A failed update reverts changed units.
    UnitsRolledBack,
    /// The extensions image is pulled only for extensions and for another kernel, not for every OS update.
    ExtensionsWhenNeeded,
}

/// The days of a rule.
struct RuleDays {
    /// When the main branch got it; a second pair if it was reverted and came back.
    main: &'static [(Day, Day)],
    /// The first branch that has had it from its start.
    since_branch: u32,
    /// When older branches got it; branches not listed never did.
    backports: &'static [(u32, Day)],
}

/// When older branches got `Enablement` and `ForceWritesUnits`, which reached each of them in one merge.
const ENABLEMENT_BACKPORTS: [(u32, Day); 4] = [
    (21, day_number(2026, 2, 12)),
    (20, day_number(2026, 2, 23)),
    (19, day_number(2026, 3, 9)),
    (18, day_number(2026, 3, 12)),
];

impl Rule {
    /// Returns its days: those of the first merge on each branch of openshift/machine-config-operator.
    fn rule_days(self) -> &'static RuleDays {
        match self {
            Self::Ignition3_5 => {
                const {
                    &RuleDays {
                        main: &[(day_number(2025, 3, 26), NEWEST)],
                        since_branch: 19,
                        backports: &[],
                    }
                }
            }
            // Reverted (ea59abee8) before 4.20 and 4.21 branched off, and back since b03faf5ec.
            Self::Enablement => {
                const {
                    &RuleDays {
                        main: &[
                            (day_number(2025, 7, 22), day_number(2025, 8, 1)),
                            (day_number(2026, 1, 27), NEWEST),
                        ],
                        since_branch: 22,
                        backports: &ENABLEMENT_BACKPORTS,
                    }
                }
            }
            Self::ForceWritesUnits => {
                const {
                    &RuleDays {
                        main: &[(day_number(2026, 2, 11), NEWEST)],
                        since_branch: 22,
                        backports: &ENABLEMENT_BACKPORTS,
                    }
                }
            }
            Self::Packages => {
                const {
                    &RuleDays {
                        main: &[(day_number(2026, 5, 15), NEWEST)],
                        since_branch: FIVE,
                        backports: &[
                            (22, day_number(2026, 5, 26)),
                            (21, day_number(2026, 6, 2)),
                            (20, day_number(2026, 6, 11)),
                            (19, day_number(2026, 6, 22)),
                            (18, day_number(2026, 7, 16)),
                        ],
                    }
                }
            }
            Self::MissingUnitsSkipped => {
                const {
                    &RuleDays {
                        main: &[(day_number(2025, 11, 19), NEWEST)],
                        since_branch: 21,
                        backports: &[(20, day_number(2025, 12, 5))],
                    }
                }
            }
            Self::UnitsRolledBack => {
                const {
                    &RuleDays {
                        main: &[(day_number(2026, 4, 24), NEWEST)],
                        since_branch: FIVE,
                        backports: &[
                            (22, day_number(2026, 5, 4)),
                            (21, day_number(2026, 5, 7)),
                            (20, day_number(2026, 5, 13)),
                            (19, day_number(2026, 5, 18)),
                            (18, day_number(2026, 5, 19)),
                        ],
                    }
                }
            }
            Self::ExtensionsWhenNeeded => {
                const {
                    &RuleDays {
                        main: &[(day_number(2026, 5, 3), NEWEST)],
                        since_branch: FIVE,
                        backports: &[
                            (22, day_number(2026, 6, 10)),
                            (21, day_number(2026, 6, 15)),
                            (20, day_number(2026, 6, 23)),
                        ],
                    }
                }
            }
        }
    }
}

/// Patch releases of a branch, each with its release date from the product's release notes; only some are listed for each
/// branch. The source is older than the release: neither this release nor an earlier one has a change that reached its branch
/// on that day or later.
const ISSUED: [(u32, u32, Day); 13] = [
    (18, 0, day_number(2025, 2, 25)),
    (18, 44, day_number(2026, 6, 17)),
    (19, 0, day_number(2025, 6, 17)),
    (19, 21, day_number(2025, 12, 10)),
    (19, 34, day_number(2026, 6, 17)),
    (20, 0, day_number(2025, 10, 21)),
    (20, 14, day_number(2026, 2, 11)),
    (20, 24, day_number(2026, 6, 3)),
    (21, 0, day_number(2026, 2, 3)),
    (21, 1, day_number(2026, 2, 10)),
    (21, 17, day_number(2026, 5, 26)),
    (21, 18, day_number(2026, 6, 2)),
    // The notes of 4.22.1 call the check of packages new; it reached the branch on this day.
    (22, 0, day_number(2026, 5, 26)),
];

/// Start of the day of the newest source whose rules are known; seconds since 1970 (2026-08-20).
pub const RULES_OF: u64 = 1_787_184_000;

impl Release {
    /// The newest release with known rules.
    pub const NEWEST: Self = Self {
        branch: Branch::Main,
        patch: None,
        day: NEWEST,
    };

    /// Returns true if this daemon has the rule.
    pub fn has_rule(self, rule: Rule) -> bool {
        let days = rule.rule_days();
        match self.branch {
            Branch::Main => {
                let mut spans = days.main.iter();
                spans.any(|(from, to)| {
                    (*from..*to).contains(&self.day) || self.day == NEWEST && *to == NEWEST
                })
            }
            Branch::Minor(minor) => {
                let mut backports = days.backports.iter();
                let came = if minor >= days.since_branch {
                    Some(ALWAYS)
                } else {
                    backports
                        .find(|(branch, _)| *branch == minor)
                        .map(|(_, day)| *day)
                };
                came.is_some_and(|came| self.day > came || came == ALWAYS)
            }
        }
    }

    /// Returns the newest minor version of Ignition spec 3 that it accepts.
    pub fn ignition_minor(self) -> u64 {
        if self.has_rule(Rule::Ignition3_5) {
            5
        } else {
            4
        }
    }

    /// Returns true if its day is unknown, so that it counts as the newest of its branch.
    pub fn is_of_unknown_day(self) -> bool {
        self.patch.is_some() && self.day == NEWEST
    }
}

/// The release of a node's daemon, and where it is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRelease {
    /// The release whose rules apply.
    pub release: Release,
    /// Source of the release.
    pub source: ReleaseSource,
    /// The name as found, with its source; for an unknown release, the reason.
    seen: String,
    /// Whether the rules of the named release are known.
    known: KnownRules,
}

/// Whether the rules of a named release are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownRules {
    /// Its rules are known.
    Own,
    /// It is older than those: the oldest known rules apply.
    Oldest,
    /// It is newer than those: the newest known rules apply.
    Newest,
}

/// Source of a daemon's release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseSource {
    /// The command line.
    Given,
    /// The annotation `release-image-version` of the recorded config.
    Record,
    /// `OPENSHIFT_VERSION` of os-release.
    OsRelease,
    /// Nothing.
    Unknown,
}

impl NodeRelease {
    /// Finds the release: `given` on the command line, or else the newer of the ones that the recorded config and os-release
    /// name. Falls back to the newest release.
    pub fn find_release(
        given: Option<Release>,
        record: Option<&str>,
        os: &OpenshiftVersion,
    ) -> Self {
        if let Some(release) = given {
            return Self {
                release,
                source: ReleaseSource::Given,
                seen: format!("{release} (as given)"),
                known: KnownRules::Own,
            };
        }
        let in_record = "the recorded config";
        let record = match record.filter(|text| !text.is_empty()) {
            Some(text) => {
                Self::parse_named(text, ReleaseSource::Record, in_record).ok_or_else(|| {
                    format!("release-image-version {text:?} of {in_record} is not a release")
                })
            }
            None => Err(String::new()),
        };
        let os = match os {
            OpenshiftVersion::Named { value, file } => {
                let source = format!("OPENSHIFT_VERSION of {file}");
                Self::parse_named(value, ReleaseSource::OsRelease, &source).ok_or_else(|| {
                    format!("OPENSHIFT_VERSION {value:?} of {file} is not a release")
                })
            }
            OpenshiftVersion::Unread(why) => Err(why.clone()),
            OpenshiftVersion::Without(file) => Err(format!("{file} has no OPENSHIFT_VERSION")),
            OpenshiftVersion::Missing => Err("os-release is missing".to_owned()),
        };
        match (record, os) {
            (Ok(record), Ok(os)) if os.release.branch > record.release.branch => os,
            (Ok(found), _) | (Err(_), Ok(found)) => found,
            (Err(record), Err(os)) => {
                let reasons = [record, os].into_iter().filter(|why| !why.is_empty());
                Self {
                    release: Release::NEWEST,
                    source: ReleaseSource::Unknown,
                    seen: reasons.collect::<Vec<_>>().join("; "),
                    known: KnownRules::Newest,
                }
            }
        }
    }

    /// Returns the release that a text of the node names; `None` if it names none.
    fn parse_named(text: &str, source: ReleaseSource, place: &str) -> Option<Self> {
        let of = match source {
            ReleaseSource::Record => "of ",
            _ => "",
        };
        let (release, known) = match text.parse::<Release>() {
            Ok(release) if release == Release::NEWEST => (release, KnownRules::Newest),
            Ok(release) => (release, KnownRules::Own),
            Err(_) if is_older(text) => {
                let oldest = Release {
                    branch: Branch::Minor(OLDEST),
                    patch: None,
                    day: NEWEST,
                };
                (oldest, KnownRules::Oldest)
            }
            Err(_) => return None,
        };
        let shown = match known {
            KnownRules::Own => release.to_string(),
            KnownRules::Oldest | KnownRules::Newest => text.to_owned(),
        };
        Some(Self {
            release,
            source,
            seen: format!("{shown} ({of}{place})"),
            known,
        })
    }

    /// Returns the release in words, with its source, and the rules that apply if they are not its own.
    pub fn describe_release(&self) -> String {
        let (Self { seen, release, .. }, oldest) = (self, format!("4.{OLDEST}"));
        let Release { branch, patch, day } = *release;
        match (self.source, self.known) {
            (ReleaseSource::Unknown, _) => format!("unknown release: newest rules; {seen}"),
            (_, KnownRules::Newest) => format!("{seen}; newer than the known rules: newest rules"),
            (_, KnownRules::Oldest) => {
                format!("{seen}; older than the known rules: rules of {oldest}")
            }
            (_, KnownRules::Own) => match (branch, patch) {
                (Branch::Main, _) | (_, None) => seen.clone(),
                _ if release.is_of_unknown_day() => format!(
                    "{seen}; the day of its source is not known: newest rules of its branch"
                ),
                _ => format!("{seen}; its source is older than {}", shown_day(day)),
            },
        }
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// A text is not a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is neither a release from 4.12 on, such as 4.19, 4.19.3 or 5.0, nor the day of the daemon's source, such as 2025-07-22"
)]
pub struct NotRelease;

impl FromStr for Release {
    type Err = NotRelease;

    /// Parses a release (`4.19`, `4.19.3`, `5.0`) or a day of the main branch (`2025-07-22`).
    fn from_str(text: &str) -> Result<Self, NotRelease> {
        if let Some(day) = parse_day(text) {
            return Ok(Self {
                branch: Branch::Main,
                patch: None,
                day,
            });
        }
        parse_release(text).ok_or(NotRelease)
    }
}

/// Returns true for a release before the oldest one with known rules, such as `4.9.12` or `3.11`.
fn is_older(text: &str) -> bool {
    let plain = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Option<Vec<u32>> = plain.split('.').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([4, minor] | [4, minor, _]) => *minor < OLDEST,
        Some([3, _] | [3, _, _]) => true,
        _ => false,
    }
}

/// Parses a release name: `MAJOR.MINOR`, with a patch release and a suffix (`4.21.3-rc.1`, `4.19.0-okd-scos.9`).
fn parse_release(text: &str) -> Option<Release> {
    let plain = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Option<Vec<u32>> = plain.split('.').map(|part| part.parse().ok()).collect();
    let (major, minor, patch) = match numbers?.as_slice() {
        [major, minor] => (*major, *minor, None),
        [major, minor, patch] => (*major, *minor, Some(*patch)),
        _ => return None,
    };
    let branch = match (major, minor) {
        (4, OLDEST..=FIVE) => Branch::Minor(minor),
        (5, 0) => Branch::Minor(FIVE),
        // Newer than any known release.
        (4, minor) if minor > FIVE => Branch::Main,
        (5.., _) => Branch::Main,
        _ => return None,
    };
    // OKD numbers its releases in the suffix: all releases of a branch are `.0`.
    let counted = patch.filter(|_| !text.contains("okd"));
    let not_before = |(of, number, _): &&(u32, u32, Day)| {
        Branch::Minor(*of) == branch && counted.is_some_and(|patch| patch <= *number)
    };
    let issued = ISSUED.iter().find(not_before);
    Some(Release {
        branch,
        patch,
        day: issued.map_or(NEWEST, |(_, _, day)| *day),
    })
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.branch, self.patch) {
            (Branch::Main, _) if self.day == NEWEST => f.write_str("newest"),
            (Branch::Main, _) => f.write_str(&shown_day(self.day)),
            (Branch::Minor(FIVE), None) => f.write_str("5.0"),
            (Branch::Minor(FIVE), Some(patch)) => write!(f, "5.0.{patch}"),
            (Branch::Minor(minor), None) => write!(f, "4.{minor}"),
            (Branch::Minor(minor), Some(patch)) => write!(f, "4.{minor}.{patch}"),
        }
    }
}

fn shown_day(day: Day) -> String {
    let (year, month, day) = (day / 10_000, day / 100 % 100, day % 100);
    format!("{year:04}-{month:02}-{day:02}")
}

fn parse_day(text: &str) -> Option<Day> {
    let [year, month, day] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
    let number = |part: &str, digits: usize, most: u32| {
        let plain = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = part.parse().ok().filter(|_| plain)?;
        (1..=most).contains(&number).then_some(number)
    };
    Some(day_number(
        number(year, 4, 9998)?,
        number(month, 2, 12)?,
        number(day, 2, 31)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Rule; 7] = [
        Rule::Ignition3_5,
        Rule::Enablement,
        Rule::ForceWritesUnits,
        Rule::Packages,
        Rule::MissingUnitsSkipped,
        Rule::UnitsRolledBack,
        Rule::ExtensionsWhenNeeded,
    ];

    fn of(text: &str) -> Release {
        text.parse().unwrap()
    }

    #[test]
    fn a_release_or_a_day_names_a_daemon() {
        for (text, shown) in [
            ("2025-07-22", "2025-07-22"),
            ("4.12", "4.12"),
            ("4.19.3", "4.19.3"),
            ("4.19.0-okd-scos.9", "4.19.0"),
            ("4.21.3-rc.1", "4.21.3"),
            ("4.23", "5.0"),
            ("5.0", "5.0"),
            ("5.0.2", "5.0.2"),
            ("5.2", "newest"),
            ("4.99", "newest"),
        ] {
            assert_eq!(of(text).to_string(), shown, "{text}");
        }
        for text in [
            "",
            "4",
            "4.11",
            "3.11",
            "4.x",
            "4.19.",
            "4.1.2.3",
            "2025-13-01",
            "2025-7-1",
            "newest",
        ] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
        assert_eq!(Release::default(), Release::NEWEST);
        for (text, is_unknown) in [
            ("4.20.0", false),
            ("4.20.14", false),
            ("4.20.15", false),
            ("4.20.24", false),
            ("4.20.25", true),
            ("4.20.0-okd-scos.14", true),
            ("4.17.1", true),
        ] {
            assert_eq!(of(text).is_of_unknown_day(), is_unknown, "{text}");
        }
        assert!(!of("4.20").is_of_unknown_day());
    }

    #[test]
    fn the_node_names_the_release_of_its_daemon() {
        let find = |given: Option<&str>, record: Option<&str>, os: &str| {
            let os = match os {
                "" => OpenshiftVersion::Without("/etc/os-release"),
                value => OpenshiftVersion::Named {
                    value: value.to_owned(),
                    file: "/etc/os-release",
                },
            };
            NodeRelease::find_release(given.map(of), record, &os).describe_release()
        };
        let unknown = "; the day of its source is not known: newest rules of its branch";
        assert_eq!(
            find(Some("4.19"), Some("4.20.1"), "4.21"),
            "4.19 (as given)"
        );
        assert_eq!(
            find(None, Some("4.20.40"), "4.20"),
            format!("4.20.40 (of the recorded config){unknown}")
        );
        assert_eq!(
            find(None, Some("4.20.3"), "4.20"),
            "4.20.3 (of the recorded config); its source is older than 2026-02-11"
        );
        let of_os = "(OPENSHIFT_VERSION of /etc/os-release)";
        for (record, os, words) in [
            (Some("4.20.0"), "4.21", format!("4.21 {of_os}")),
            (None, "5.0", format!("5.0 {of_os}")),
            (None, "5.1", format!("5.1 {of_os}; newer than the known rules: newest rules")),
            (Some("4.21.1"), "5.1", format!("5.1 {of_os}; newer than the known rules: newest rules")),
            (None, "4.9", format!("4.9 {of_os}; older than the known rules: rules of 4.12")),
            (Some("4.13.1"), "4.9", format!("4.13.1 (of the recorded config){unknown}")),
            (Some("4.9.30"), "", "4.9.30 (of the recorded config); older than the known rules: rules of 4.12".to_owned()),
            (
                None,
                "",
                "unknown release: newest rules; /etc/os-release has no OPENSHIFT_VERSION".to_owned(),
            ),
            (
                Some("?"),
                "x",
                "unknown release: newest rules; release-image-version \"?\" of the recorded config is not a release; \
                 OPENSHIFT_VERSION \"x\" of /etc/os-release is not a release"
                    .to_owned(),
            ),
        ] {
            assert_eq!(find(None, record, os), words);
        }
    }

    const NO: bool = false;
    const YES: bool = true;
    /// Which of the releases 4.12 to 5.1 have a rule, in their last version.
    const BRANCHES: &[(Rule, [bool; 10])] = &[
        (
            Rule::Ignition3_5,
            [NO, NO, NO, NO, YES, YES, YES, YES, YES, YES],
        ),
        (
            Rule::Enablement,
            [NO, NO, NO, YES, YES, YES, YES, YES, YES, YES],
        ),
        (
            Rule::ForceWritesUnits,
            [NO, NO, NO, YES, YES, YES, YES, YES, YES, YES],
        ),
        (
            Rule::Packages,
            [NO, NO, NO, YES, YES, YES, YES, YES, YES, YES],
        ),
        (
            Rule::MissingUnitsSkipped,
            [NO, NO, NO, NO, NO, YES, YES, YES, YES, YES],
        ),
        (
            Rule::UnitsRolledBack,
            [NO, NO, NO, YES, YES, YES, YES, YES, YES, YES],
        ),
        (
            Rule::ExtensionsWhenNeeded,
            [NO, NO, NO, NO, NO, YES, YES, YES, YES, YES],
        ),
    ];

    /// Which rules a build of a day has.
    const DAYS: &[(&str, [bool; 7])] = &[
        ("2025-03-25", [NO, NO, NO, NO, NO, NO, NO]),
        ("2025-03-26", [YES, NO, NO, NO, NO, NO, NO]),
        ("2025-07-22", [YES, YES, NO, NO, NO, NO, NO]),
        ("2025-07-31", [YES, YES, NO, NO, NO, NO, NO]),
        ("2025-08-01", [YES, NO, NO, NO, NO, NO, NO]),
        ("2025-11-19", [YES, NO, NO, NO, YES, NO, NO]),
        ("2026-01-26", [YES, NO, NO, NO, YES, NO, NO]),
        ("2026-01-27", [YES, YES, NO, NO, YES, NO, NO]),
        ("2026-02-11", [YES, YES, YES, NO, YES, NO, NO]),
        ("2026-04-24", [YES, YES, YES, NO, YES, YES, NO]),
        ("2026-05-03", [YES, YES, YES, NO, YES, YES, YES]),
        ("2026-05-15", [YES, YES, YES, YES, YES, YES, YES]),
    ];

    /// For each rule: the branches that have it with all their backports, and days with the expected answer.
    #[test]
    fn a_branch_has_its_own_days() {
        let minors = [
            "4.12", "4.14", "4.17", "4.18", "4.19", "4.20", "4.21", "4.22", "5.0", "5.1",
        ];
        let last = |rule: Rule| minors.map(|minor| of(minor).has_rule(rule));
        assert_eq!(BRANCHES.len(), RULES.len());
        for &(rule, wanted) in BRANCHES {
            assert_eq!(last(rule), wanted, "{rule:?}");
        }
        // The first releases came before the backports, and after the revert.
        for release in [
            "4.18.0", "4.19.0", "4.19.21", "4.20.0", "4.20.14", "4.21.0", "4.21.1",
        ] {
            assert!(!of(release).has_rule(Rule::Enablement), "{release}");
            assert!(!of(release).has_rule(Rule::Packages), "{release}");
        }
        // Released before the check of packages was added, and after the other rules.
        for release in ["4.18.44", "4.19.34", "4.20.24", "4.21.18", "4.22.0"] {
            assert!(of(release).has_rule(Rule::Enablement), "{release}");
            assert!(of(release).has_rule(Rule::UnitsRolledBack), "{release}");
            assert!(!of(release).has_rule(Rule::Packages), "{release}");
            assert!(
                !of(release).has_rule(Rule::ExtensionsWhenNeeded),
                "{release}"
            );
        }
        for release in ["4.18.60", "4.19.60", "4.20.60", "4.21.60", "4.22.1"] {
            assert!(of(release).has_rule(Rule::Packages), "{release}");
        }
        for &(day, wanted) in DAYS {
            assert_eq!(RULES.map(|rule| of(day).has_rule(rule)), wanted, "{day}");
        }
        assert!(RULES.iter().all(|rule| Release::NEWEST.has_rule(*rule)));
    }
}
