//! The settings that apply to one user.

use super::config::{Condition, SshdConfig, SshdLine};
use super::words::{any_matches_list, matches_list, matches_pattern};

/// An answer that may depend on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// For every connection.
    Yes,
    /// For no connection.
    No,
    /// It depends on something that is unknown here.
    Unknown,
}

/// A reason why sshd does not let a user in, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginObstacle {
    /// A file, with a line number if there is one.
    pub place: String,
    /// The line, or the fault.
    pub said: String,
    /// The fault is the mode of the file.
    pub of_mode: bool,
}

impl LoginObstacle {
    /// Creates a cause.
    pub fn new(place: impl Into<String>, said: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            said: said.into(),
            of_mode: false,
        }
    }

    /// Returns the cause for a line of the settings.
    pub fn of_line(line: &SshdLine) -> Self {
        Self::new(line.place(), line.text())
    }
}

/// The user that logs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshdUser {
    /// Login name.
    pub name: String,
    /// Names of its groups, the primary one first.
    pub groups: Vec<String>,
}

/// A possible value of a keyword.
#[derive(Debug, Clone, Copy)]
pub struct KeywordValue<'a> {
    /// The line; `None` if there is no line, so that the default applies.
    pub line: Option<&'a SshdLine>,
}

impl KeywordValue<'_> {
    /// Returns the first argument in lower case, or the default.
    pub fn first_word(&self, default: &str) -> String {
        let word = self.line.and_then(|line| line.arguments.first());
        word.map_or_else(|| default.to_owned(), |word| word.to_ascii_lowercase())
    }
}

impl SshdUser {
    /// Returns whether a `Match` block applies to this user.
    fn match_applies(&self, conditions: &[Vec<Condition>]) -> Certainty {
        let mut answer = Certainty::Yes;
        for condition in conditions.iter().flatten() {
            match self.meets_condition(condition) {
                Certainty::Yes => {}
                Certainty::No => return Certainty::No,
                Certainty::Unknown => answer = Certainty::Unknown,
            }
        }
        answer
    }

    fn meets_condition(&self, condition: &Condition) -> Certainty {
        let certain = |yes: bool| if yes { Certainty::Yes } else { Certainty::No };
        let pattern = &condition.pattern;
        match condition.criterion.as_str() {
            "all" => Certainty::Yes,
            "invalid-user" => Certainty::No,
            "user" => certain(matches_list(&self.name, pattern)),
            "group" => certain(any_matches_list(&self.groups, pattern)),
            _ => Certainty::Unknown,
        }
    }

    /// Returns the possible values of a keyword for which the first value wins: those of `Match` blocks, then those for
    /// everyone.
    pub fn possible_values<'a>(
        &self,
        config: &'a SshdConfig,
        keyword: &str,
    ) -> Vec<KeywordValue<'a>> {
        let mut found: Vec<KeywordValue<'a>> = Vec::new();
        let lines = || config.lines.iter().filter(|line| line.keyword == keyword);
        let in_blocks = lines().filter(|line| !line.conditions.is_empty());
        let for_all = lines().find(|line| self.counts_for_all(line));
        for line in in_blocks {
            match self.match_applies(&line.conditions) {
                Certainty::No => {}
                Certainty::Yes => {
                    found.push(KeywordValue { line: Some(line) });
                    return found;
                }
                Certainty::Unknown => found.push(KeywordValue { line: Some(line) }),
            }
        }
        found.push(KeywordValue { line: for_all });
        found
    }

    /// Returns true for a line that applies before the user is known: outside of `Match`, or in `Match all`.
    fn counts_for_all(&self, line: &SshdLine) -> bool {
        let mut all = line.conditions.iter().flatten();
        all.all(|condition| condition.criterion == "all")
    }

    /// Answers a question about the value of a keyword, with the line that decides.
    pub fn ask_value<'a>(
        &self,
        config: &'a SshdConfig,
        keyword: &str,
        default: &str,
        question: impl Fn(&str) -> bool,
    ) -> (Certainty, Option<&'a SshdLine>) {
        let all = self.possible_values(config, keyword);
        let yes: Vec<_> = all
            .iter()
            .filter(|one| question(&one.first_word(default)))
            .collect();
        match (yes.first(), yes.len() == all.len()) {
            (None, _) => (Certainty::No, all.first().and_then(|one| one.line)),
            (Some(first), true) => (Certainty::Yes, first.line),
            (Some(_), false) => (
                Certainty::Unknown,
                all.iter().find_map(|candidate| candidate.line),
            ),
        }
    }

    /// Returns the possible lists of a keyword whose lines are combined.
    fn possible_lists<'a>(&self, config: &'a SshdConfig, keyword: &str) -> Vec<Vec<&'a SshdLine>> {
        let lines = || config.lines.iter().filter(|line| line.keyword == keyword);
        let in_blocks = |wanted: Certainty| -> Vec<&'a SshdLine> {
            let lines = lines().filter(|line| !line.conditions.is_empty());
            lines
                .filter(|line| self.match_applies(&line.conditions) == wanted)
                .collect()
        };
        let (certain, possible) = (in_blocks(Certainty::Yes), in_blocks(Certainty::Unknown));
        let for_all = lines().filter(|line| self.counts_for_all(line)).collect();
        let least = if certain.is_empty() {
            for_all
        } else {
            certain.clone()
        };
        let mut all = vec![least];
        for line in &possible {
            all.push(certain.iter().chain([line]).copied().collect());
        }
        if possible.len() > 1 {
            all.push(certain.iter().chain(&possible).copied().collect());
        }
        all
    }

    /// Returns the lines by which `DenyUsers`, `AllowUsers`, `DenyGroups` and `AllowGroups` lock the user out, and those that
    /// may do so.
    pub fn find_denials(&self, config: &SshdConfig) -> (Vec<LoginObstacle>, Vec<LoginObstacle>) {
        let (mut denied, mut unsure) = (Vec::new(), Vec::new());
        for (keyword, allows, of_users) in [
            ("denyusers", false, true),
            ("allowusers", true, true),
            ("denygroups", false, false),
            ("allowgroups", true, false),
        ] {
            let lists = self.possible_lists(config, keyword);
            let out: Vec<(Certainty, Option<&SshdLine>)> = lists
                .iter()
                .map(|lines| self.judge_lists(lines, allows, of_users))
                .collect();
            let Some((_, Some(line))) = out.iter().find(|(out, _)| *out != Certainty::No) else {
                continue;
            };
            if out.iter().all(|(out, _)| *out == Certainty::Yes) {
                denied.push(LoginObstacle::of_line(line))
            } else {
                unsure.push(LoginObstacle::of_line(line))
            }
        }
        (denied, unsure)
    }

    fn judge_lists<'a>(
        &self,
        lines: &[&'a SshdLine],
        allows: bool,
        of_users: bool,
    ) -> (Certainty, Option<&'a SshdLine>) {
        let Some(first) = lines.first() else {
            return (Certainty::No, None);
        };
        let mut unsure: Option<&'a SshdLine> = None;
        for line in lines {
            for pattern in &line.arguments {
                let hit = if of_users {
                    self.meets_pattern(pattern)
                } else if self
                    .groups
                    .iter()
                    .any(|group| matches_pattern(group, pattern))
                {
                    Certainty::Yes
                } else {
                    Certainty::No
                };
                match (hit, allows) {
                    (Certainty::Yes, true) => return (Certainty::No, Some(line)),
                    (Certainty::Yes, false) => return (Certainty::Yes, Some(line)),
                    (Certainty::Unknown, _) => unsure = Some(line),
                    (Certainty::No, _) => {}
                }
            }
        }
        match (unsure, allows) {
            (Some(line), _) => (Certainty::Unknown, Some(line)),
            (None, true) => (Certainty::Yes, Some(first)),
            (None, false) => (Certainty::No, Some(first)),
        }
    }

    /// Matches `user` or `user@host`. A `!` has no meaning here.
    fn meets_pattern(&self, pattern: &str) -> Certainty {
        let (user, host) = match pattern.rsplit_once('@') {
            Some((user, host)) => (user, Some(host)),
            None => (pattern, None),
        };
        match (matches_pattern(&self.name, user), host) {
            (false, _) => Certainty::No,
            (true, None | Some("*")) => Certainty::Yes,
            (true, Some(_)) => Certainty::Unknown,
        }
    }
}
