//! The lines of sshd's settings in the order in which sshd reads them, each with its conditions.

use super::CONFIG;
use super::keywords::{self, Values};
use super::words::{split_arguments, split_keyword};
use crate::base::reason::Reason;

/// Maximum nesting of files, as in sshd.
const MAX_DEPTH: usize = 16;
/// Maximum number of lines that are read; no real config has as many.
const MAX_LINES: usize = 50_000;

/// The files from which settings are read.
pub trait ConfigFiles {
    /// Returns the text of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, in words.
    fn read_text(&self, path: &str) -> Result<Option<String>, Reason>;

    /// Returns the paths that match a pattern, sorted, including dangling links.
    ///
    /// # Errors
    /// A directory cannot be read, in words.
    fn match_paths(&self, pattern: &str) -> Result<Vec<String>, Reason>;
}

/// A line of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshdLine {
    /// The file.
    pub file: String,
    /// Number of the line in it.
    pub number: usize,
    /// Keyword in lower case; the current one for an old name.
    pub keyword: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The text after the keyword, with quotes and comments.
    pub rest: String,
    /// The `Match` conditions that apply to it, from this file and from those that include it; empty for all connections.
    pub conditions: Vec<Vec<Condition>>,
}

/// One criterion of a `Match` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The criterion in lower case: `user`, `group`, `all` and others.
    pub criterion: String,
    /// Its pattern.
    pub pattern: String,
}

/// An error for which sshd refuses its settings and does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file, with the line number if the error is in a line.
    pub place: String,
    /// The error, in sshd's words.
    pub said: String,
}

/// The settings of sshd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshdConfig {
    /// The lines in order, without `Include` and `Match`.
    pub lines: Vec<SshdLine>,
    /// The first errors.
    pub faults: Vec<ConfigFault>,
    /// Files that could not be read here, with the reason; their settings are unknown.
    pub unread: Vec<Reason>,
    /// The main file is missing.
    pub is_missing: bool,
    /// Paths of the files that were read.
    pub files: Vec<String>,
}

impl SshdLine {
    /// Returns file and number.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.number)
    }

    /// Returns the line as written, shortened.
    pub fn text(&self) -> String {
        let words = self.arguments.join(" ");
        format!("{} {words}", keyword_as_written(&self.keyword))
    }
}

/// Keywords as the manual page writes them, if a finding can name them.
const WRITTEN: [&str; 19] = [
    "AllowGroups",
    "AllowUsers",
    "AuthenticationMethods",
    "AuthorizedKeysCommand",
    "AuthorizedKeysCommandUser",
    "AuthorizedKeysFile",
    "ChrootDirectory",
    "DenyGroups",
    "DenyUsers",
    "ForceCommand",
    "HostKey",
    "PasswordAuthentication",
    "PermitRootLogin",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAuthentication",
    "RefuseConnection",
    "RequiredRSASize",
    "StrictModes",
    "UsePAM",
];

fn keyword_as_written(keyword: &str) -> &str {
    let mut all = WRITTEN.into_iter();
    all.find(|one| one.eq_ignore_ascii_case(keyword))
        .unwrap_or(keyword)
}

impl SshdConfig {
    /// Reads the main file and everything that it includes.
    pub fn read_files(files: &dyn ConfigFiles) -> Self {
        let mut config = Self::default();
        config.add_file(files, CONFIG, &[], 0);
        config.is_missing = config.files.is_empty() && config.unread.is_empty();
        if config.is_missing {
            // These are the OS's settings, which include this directory.
            config.faults.clear();
            let all = [format!("{CONFIG}.d/*.conf")];
            config.include_files(files, &all, &[], (CONFIG, 0), 0);
        }
        config
    }

    fn add_file(
        &mut self,
        files: &dyn ConfigFiles,
        path: &str,
        above: &[Vec<Condition>],
        depth: usize,
    ) {
        let text = match files.read_text(path) {
            Ok(Some(text)) => text,
            Ok(None) => return self.refuse_line(path, 0, "No such file or directory"),
            Err(why) => return self.unread.push(why),
        };
        self.files.push(path.to_owned());
        let mut conditions = above.to_vec();
        for (index, line) in text.lines().enumerate() {
            if self.lines.len() >= MAX_LINES {
                return self.unread.push(format!("{path}: too many lines").into());
            }
            self.add_line(
                files,
                (path, index + 1),
                line,
                &mut conditions,
                above,
                depth,
            );
        }
    }

    fn add_line(
        &mut self,
        files: &dyn ConfigFiles,
        (file, number): (&str, usize),
        line: &str,
        conditions: &mut Vec<Vec<Condition>>,
        above: &[Vec<Condition>],
        depth: usize,
    ) {
        let Some((written, rest)) = split_keyword(line) else {
            return;
        };
        let name = written.to_ascii_lowercase();
        let Some(known) = keywords::find_keyword(&name) else {
            let said = format!("Bad configuration option: {written}");
            return self.refuse_line(file, number, said);
        };
        if rest.is_empty() {
            let said = format!("no argument after keyword \"{written}\"");
            return self.refuse_line(file, number, said);
        }
        let Some(arguments) = split_arguments(rest) else {
            return self.refuse_line(file, number, "invalid quotes");
        };
        let mut in_force = conditions.iter().flatten();
        if !known.in_match && in_force.any(|one| one.criterion != "all") {
            let said = format!("Directive '{written}' is not allowed within a Match block");
            return self.refuse_line(file, number, said);
        }
        match name.as_str() {
            "match" => match parse_conditions(&arguments) {
                Ok(block) => *conditions = [above, &[block]].concat(),
                Err(said) => self.refuse_line(file, number, format!("Bad Match condition: {said}")),
            },
            "include" => self.include_files(files, &arguments, conditions, (file, number), depth),
            _ => {
                if let Err(said) = check_values(written, known.values, &arguments, rest) {
                    return self.refuse_line(file, number, said);
                }
                self.lines.push(SshdLine {
                    file: file.to_owned(),
                    number,
                    keyword: keywords::of_alias(&name).to_owned(),
                    arguments,
                    rest: rest.to_owned(),
                    conditions: conditions.clone(),
                });
            }
        }
    }

    fn include_files(
        &mut self,
        files: &dyn ConfigFiles,
        patterns: &[String],
        conditions: &[Vec<Condition>],
        (file, number): (&str, usize),
        depth: usize,
    ) {
        if depth + 1 >= MAX_DEPTH {
            return self.refuse_line(file, number, "Too many recursive configuration includes");
        }
        for pattern in patterns {
            let pattern = if pattern.starts_with(['/', '~']) {
                pattern.clone()
            } else {
                format!("/etc/ssh/{pattern}")
            };
            match files.match_paths(&pattern) {
                Ok(found) => {
                    for path in found {
                        self.add_file(files, &path, conditions, depth + 1);
                    }
                }
                Err(why) => self.unread.push(why),
            }
        }
    }

    fn refuse_line(&mut self, file: &str, number: usize, said: impl std::fmt::Display) {
        let place = match number {
            0 => file.to_owned(),
            number => format!("{file}:{number}"),
        };
        self.faults.push(ConfigFault {
            place,
            said: said.to_string(),
        });
    }
}

/// Parses the criteria of `Match`: pairs of name and pattern, or `name=pattern`.
fn parse_conditions(words: &[String]) -> Result<Vec<Condition>, Reason> {
    const WITH_PATTERN: [&str; 8] = [
        "user",
        "group",
        "host",
        "address",
        "localaddress",
        "localport",
        "rdomain",
        "version",
    ];
    let mut found: Vec<Condition> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let lower = word.to_ascii_lowercase();
        if lower == "all" || lower == "invalid-user" {
            found.push(Condition {
                criterion: lower,
                pattern: String::new(),
            });
            continue;
        }
        let (criterion, pattern) = match word.split_once('=') {
            Some((name, pattern)) => (name.to_ascii_lowercase(), Some(pattern.to_owned())),
            None => (lower, words.next().cloned()),
        };
        if !WITH_PATTERN.contains(&criterion.as_str()) {
            return Err(format!("Unsupported Match attribute {word}").into());
        }
        let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) else {
            return Err(format!("Missing Match criteria for {word}").into());
        };
        found.push(Condition { criterion, pattern });
    }
    match found.as_slice() {
        [] => Err("One or more attributes required for Match".into()),
        [_, _, ..] if found.iter().any(|one| one.criterion == "all") => {
            Err("'all' cannot be combined with other Match attributes".into())
        }
        _ => Ok(found),
    }
}

/// Checks the arguments of a keyword as far as they decide whether sshd starts.
fn check_values(
    keyword: &str,
    values: Values,
    arguments: &[String],
    rest: &str,
) -> Result<(), Reason> {
    match values {
        Values::Ignored => Ok(()),
        Values::Program => {
            if rest.starts_with('/') || rest.eq_ignore_ascii_case("none") {
                Ok(())
            } else {
                Err(format!("{keyword} must be an absolute path").into())
            }
        }
        _ if arguments.is_empty() => Err(format!("missing argument of {keyword}").into()),
        Values::Any => Ok(()),
        Values::Words(words) => {
            let is_known = |one: &String| words.iter().any(|word| word.eq_ignore_ascii_case(one));
            match arguments {
                [one] if is_known(one) => Ok(()),
                [one] => Err(format!("unsupported option \"{one}\" of {keyword}").into()),
                _ => Err(format!("keyword {keyword} extra arguments at end of line").into()),
            }
        }
    }
}
