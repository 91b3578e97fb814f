//! The key files of a user, and how sshd treats each.

use std::collections::BTreeSet;

use super::settings::ViewFiles;
use super::{Login, Person};
use crate::base::paths;
use crate::base::ssh_key::{is_readable_key, key_lines, rsa_bits};
use crate::formats::sshd::{
    Certainty, ConfigFiles, LoginObstacle, SshdConfig, SshdLine, matches_pattern,
};
use crate::host::root::{RootError, RootPath};
use crate::node::view::{FileKind, FileStatus, NodeView};

/// Maximum number of key files that are read. Every login runs a program that reads all of them, so a node has few.
const MAX_FILES: usize = 1000;
/// Write permissions for group and others, which sshd refuses (`StrictModes`).
const OTHERS: u32 = 0o022;
/// The default key files.
const DEFAULT_FILES: [&str; 2] = [".ssh/authorized_keys", ".ssh/authorized_keys2"];
/// The program of CoreOS that prints the key files of a directory.
const KEY_DIRECTORY_PROGRAM: &str = "ssh-key-dir";

/// A file with keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Path of the file.
    pub path: String,
    /// Number of keys that sshd can read.
    pub keys: usize,
    /// Number of lines that should be keys, and that sshd cannot read: it skips them.
    pub malformed: usize,
    /// The reason why sshd ignores it.
    pub refused: Option<String>,
    /// Every owner and mode because of which sshd ignores it: of the file, and of its parent directories.
    pub wrong: Vec<WrongAttributes>,
}

/// Owner or mode of a file or directory that sshd does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongAttributes {
    /// The file or directory.
    pub path: String,
    /// Its owner, which is neither root nor the user.
    pub foreign: Option<u32>,
    /// Its permission bits, if others may write to it.
    pub open: Option<u32>,
    /// Its owner and permission bits, if the user cannot enter or read it.
    pub closed: Option<(u32, u32)>,
}

impl WrongAttributes {
    /// Returns the fault in words.
    pub fn describe_fault(&self) -> String {
        let path = &self.path;
        match (self.foreign, self.closed) {
            (Some(uid), _) => format!("{path} belongs to user {uid}"),
            (None, Some((uid, mode))) => {
                format!(
                    "{path} belongs to user {uid} with mode {mode:04o}: closed to the user who logs in"
                )
            }
            (None, None) => {
                let mode = self.open.unwrap_or_default();
                format!("{path} has mode {mode:04o}, others may write it")
            }
        }
    }
}

/// Reads the key files of a user.
pub(super) fn read_key_files(
    view: &NodeView<'_>,
    config: &SshdConfig,
    person: &Person,
    login: &mut Login,
) -> Result<(), RootError> {
    let mut reader = Reader {
        view,
        config,
        person,
        login,
        strict: true,
    };
    let (strict, _) = person
        .sshd
        .ask_value(config, "strictmodes", "yes", |word| word == "yes");
    reader.strict = strict != Certainty::No;
    reader.of_files()?;
    reader.of_directory()
}

struct Reader<'a> {
    view: &'a NodeView<'a>,
    config: &'a SshdConfig,
    person: &'a Person,
    login: &'a mut Login,
    strict: bool,
}

impl Reader<'_> {
    /// Reads the files of `AuthorizedKeysFile`, and the usual file if it is not among them.
    fn of_files(&mut self) -> Result<(), RootError> {
        let person = self.person;
        let all = person
            .sshd
            .possible_values(self.config, "authorizedkeysfile");
        let mut sets: Vec<Vec<String>> = Vec::new();
        for one in &all {
            sets.push(self.paths_of(one.line));
        }
        let line = all.iter().find_map(|one| one.line);
        let mut paths: Vec<String> =
            vec![format!("{}/.ssh/authorized_keys", self.person.entry.home)];
        for path in sets.iter().flatten() {
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        for path in paths {
            let Ok(at) = RootPath::parse(&path) else {
                continue;
            };
            let reads = sets.iter().filter(|set| set.contains(&path)).count();
            let unread = match (reads, line) {
                (0, Some(line)) => Some(format!(
                    "sshd does not read it: {}: {}",
                    line.place(),
                    line.text()
                )),
                (reads, Some(line)) if reads < sets.len() => {
                    let cause = LoginObstacle::of_line(line);
                    self.login.other_sources.push(cause);
                    Some(format!(
                        "sshd reads it for some connections: {}",
                        line.place()
                    ))
                }
                _ => None,
            };
            self.add_file(&at, unread, Program::Sshd)?;
        }
        Ok(())
    }

    /// Returns the paths of a line, or the default ones.
    fn paths_of(&mut self, line: Option<&SshdLine>) -> Vec<String> {
        let names: Vec<&str> = match line {
            Some(line) => line.arguments.iter().map(String::as_str).collect(),
            None => DEFAULT_FILES.to_vec(),
        };
        let names = names
            .into_iter()
            .filter(|name| !name.eq_ignore_ascii_case("none"));
        let names: Vec<String> = names.filter_map(|name| self.expand_name(name)).collect();
        let mut paths = Vec::new();
        for name in &names {
            paths.extend(self.match_files(name));
        }
        paths
    }

    /// Expands `%h`, `%u`, `%U` and `%%`; relative paths are relative to the home directory. Returns `None` for any other `%`
    /// sequence.
    fn expand_name(&self, name: &str) -> Option<String> {
        let entry = &self.person.entry;
        let mut text = String::new();
        let mut letters = name.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => match letters.next()? {
                    '%' => text.push('%'),
                    'h' => text += &entry.home,
                    'u' => text += &entry.name,
                    'U' => text += &entry.uid.to_string(),
                    _ => return None,
                },
                _ => text.push(letter),
            }
        }
        if text.starts_with('/') {
            Some(text)
        } else {
            Some(format!("{}/{text}", entry.home))
        }
    }

    /// Returns the files that match a pattern, if this sshd supports patterns here; otherwise the path itself.
    fn match_files(&mut self, name: &str) -> Vec<String> {
        let is_pattern = name.contains(['*', '?', '[']);
        let version = is_pattern.then(|| find_version(self.view)).transpose();
        match version {
            Ok(Some(Some(version))) if version < WITH_PATTERNS => return vec![name.to_owned()],
            Ok(None) => return vec![name.to_owned()],
            Ok(Some(_)) => {}
            Err(error) => self.not_read(error.to_string()),
        }
        let found = ViewFiles(self.view).match_paths(name);
        found.unwrap_or_else(|why| {
            self.not_read(why.to_string());
            Vec::new()
        })
    }

    /// Records something unread that could decide whether the user can log in.
    fn not_read(&mut self, why: String) {
        self.login.unsure.push(LoginObstacle::new(why, "not read"));
    }

    /// Reads the directory of key fragments, which a program prints for sshd.
    fn of_directory(&mut self) -> Result<(), RootError> {
        let home = &self.person.entry.home;
        let Ok(folder) = RootPath::parse(&format!("{home}/{}", paths::KEYS_DIR)) else {
            return Ok(());
        };
        let unread = self.find_program()?;
        let names = self.view.names(&folder)?;
        let visible = names.into_iter().filter(|name| !name.starts_with('.'));
        let mut all: Vec<RootPath> = visible.filter_map(|name| folder.join(&name).ok()).collect();
        let room = MAX_FILES.saturating_sub(self.login.files.len());
        self.login.unread = all.split_off(room.min(all.len())).len();
        for path in all {
            let name = path.to_string();
            let of_sshd = self.login.files.iter().position(|file| file.path == name);
            match of_sshd {
                // sshd reads it itself.
                Some(_) if unread.is_some() => continue,
                Some(at) => drop(self.login.files.remove(at)),
                None => {}
            }
            self.add_file(&path, unread.clone(), Program::KeyDirectory)?;
        }
        Ok(())
    }

    /// Returns the reason why the fragments are not read; `None` if they are.
    fn find_program(&mut self) -> Result<Option<String>, RootError> {
        // The settings are then the OS's.
        let all = self
            .person
            .sshd
            .possible_values(self.config, "authorizedkeyscommand");
        let is_unknown = self.config.is_missing || !self.config.unread.is_empty();
        if is_unknown && all.iter().all(|one| one.line.is_none()) {
            return Ok(None);
        }
        let mut refusals: Vec<Option<String>> = Vec::new();
        for one in &all {
            let Some(line) = one.line else {
                refusals.push(Some(self.describe_missing_program()));
                continue;
            };
            let place = format!("{}: {}", line.place(), line.text());
            let program = line.arguments.first().map_or("none", String::as_str);
            if program.eq_ignore_ascii_case("none") {
                refusals.push(Some(format!("sshd does not read it: {place}")));
                continue;
            }
            let fault = match self.judge_program(program)? {
                None => self.judge_program_user(),
                fault => fault,
            };
            let is_own = program.ends_with(&format!("/{KEY_DIRECTORY_PROGRAM}"));
            match fault {
                Some(fault) => {
                    refusals.push(Some(format!("sshd does not read it: {place}: {fault}")))
                }
                None if is_own => refusals.push(None),
                None => {
                    self.login.other_sources.push(LoginObstacle::of_line(line));
                    refusals.push(Some(format!(
                        "sshd does not read it, unless this program does: {place}"
                    )));
                }
            }
        }
        let reads = refusals.iter().filter(|refusal| refusal.is_none()).count();
        let first = refusals.iter().flatten().next().cloned();
        if let (true, Some(line)) = (
            reads > 0 && first.is_some(),
            all.iter().find_map(|one| one.line),
        ) {
            self.login.other_sources.push(LoginObstacle::of_line(line));
        }
        Ok(first)
    }

    /// Describes why the fragments are not read: that takes a program, or a setting that names them.
    fn describe_missing_program(&self) -> String {
        let why = "sshd does not read it: no AuthorizedKeysCommand names ssh-key-dir";
        let files = self
            .person
            .sshd
            .possible_values(self.config, "authorizedkeysfile");
        match files.iter().find_map(|one| one.line) {
            Some(line) => format!("{why}, nor does {}: {}", line.place(), line.text()),
            None => why.to_owned(),
        }
    }

    /// Judges the program. sshd runs it only if root alone can write to it and to its parent directories.
    fn judge_program(&self, program: &str) -> Result<Option<String>, RootError> {
        let Ok(path) = RootPath::parse(program) else {
            return Ok(Some(format!("{program} is not a path")));
        };
        let Some(at) = self.view.resolve(&path)? else {
            return Ok(Some(format!("{path} leads nowhere")));
        };
        let Some(status) = self.view.status(&at)? else {
            return Ok(Some(format!("{path} is missing")));
        };
        if status.kind != FileKind::File {
            return Ok(Some(format!("{path} is not a regular file")));
        }
        let mut wrong = Vec::new();
        for above in at.ancestors() {
            if let Some(status) = self.view.status(&above)? {
                wrong.extend(of_strict_modes(&above.to_string(), status, 0));
            }
        }
        Ok(wrong.first().map(WrongAttributes::describe_fault))
    }

    /// Judges the user that runs the program, which has to exist.
    fn judge_program_user(&self) -> Option<String> {
        let all = self
            .person
            .sshd
            .possible_values(self.config, "authorizedkeyscommanduser");
        let none = all.iter().all(|one| one.first_word("none") == "none");
        none.then(|| "no AuthorizedKeysCommandUser".to_owned())
    }

    fn add_file(
        &mut self,
        path: &RootPath,
        unread: Option<String>,
        program: Program,
    ) -> Result<(), RootError> {
        let Some(bytes) = self.view.read(path)? else {
            if self.view.exists(path)? {
                self.login.files.push(KeyFile {
                    path: path.to_string(),
                    keys: 0,
                    malformed: 0,
                    refused: Some(format!(
                        "{path} is not a regular file, or larger than 1 MiB"
                    )),
                    wrong: Vec::new(),
                });
            }
            return Ok(());
        };
        let text = String::from_utf8_lossy(&bytes);
        let wrong = self.find_wrong(path, program)?;
        let refused = wrong.first().map(WrongAttributes::describe_fault);
        let refused = unread.or(refused).or_else(|| self.find_untaken(&text));
        let keys = key_lines(&text)
            .filter(|line| is_readable_key(line))
            .count();
        self.login.files.push(KeyFile {
            path: path.to_string(),
            keys,
            malformed: key_lines(&text).count() - keys,
            refused,
            wrong,
        });
        Ok(())
    }

    /// Checks the file and its parent directories as the program that reads them does.
    fn find_wrong(
        &self,
        path: &RootPath,
        program: Program,
    ) -> Result<Vec<WrongAttributes>, RootError> {
        let (uid, home) = (self.person.entry.uid, &self.person.entry.home);
        let home = RootPath::parse(home).ok();
        let home = home
            .map(|home| self.view.resolve(&home))
            .transpose()?
            .flatten();
        let real = self.view.resolve(path)?.unwrap_or_else(|| path.clone());
        let judged = list_judged(program, &real, home.as_ref());
        let judges = self.strict || program == Program::KeyDirectory;
        let mut wrong = Vec::new();
        for (index, above) in real.ancestors().enumerate() {
            let Some(status) = self.view.status(&above)? else {
                continue;
            };
            let shown = self.shown_path(&above, path);
            let bit = if index == 0 { 4 } else { 1 };
            let closed = !self.has_permission(status, bit);
            let strict = if judges && judged.contains(&above) {
                of_strict_modes(&shown, status, uid)
            } else {
                None
            };
            match strict {
                Some(fault) => wrong.push(fault),
                None if closed => wrong.push(WrongAttributes {
                    path: shown,
                    foreign: None,
                    open: None,
                    closed: Some((status.uid, status.mode)),
                }),
                None => {}
            }
        }
        let past_home = home.is_none_or(|home| !real.is_in(home.relative()));
        if self.strict
            && program == Program::Sshd
            && past_home
            && let Some(status) = self.view.status_of_root()
        {
            wrong.extend(of_strict_modes("/", status, uid));
        }
        Ok(wrong)
    }

    /// Returns the path as given, if a link leads to the real one.
    fn shown_path(&self, above: &RootPath, path: &RootPath) -> String {
        let mut given = path.ancestors();
        let same = given.find(|given| self.view.real(given) == *above);
        same.as_ref().unwrap_or(above).to_string()
    }

    /// Returns true if the user has a permission; root has all.
    fn has_permission(&self, status: FileStatus, bit: u32) -> bool {
        let uid = self.person.entry.uid;
        let shift = match () {
            () if status.uid == uid => 6,
            () if self.person.gids.contains(&status.gid) => 3,
            () => 0,
        };
        uid == 0 || self.person.gids.is_empty() || (status.mode >> shift) & bit != 0
    }

    /// Returns the reason (type or length) why sshd accepts no key of a text; `None` if it accepts one, or if that depends on
    /// the connection.
    fn find_untaken(&self, text: &str) -> Option<String> {
        let readable = key_lines(text).filter(|line| is_readable_key(line));
        let keys: Vec<(&str, &str)> = readable
            .filter_map(|line| Some((line, find_kind(line)?)))
            .collect();
        if keys.is_empty() {
            return None;
        }
        let accepted = self.certain_value("pubkeyacceptedalgorithms");
        let required = self.certain_value("requiredrsasize");
        let required =
            required.and_then(|(line, value)| Some((line, value.parse::<usize>().ok()?)));
        let (mut kinds, mut lengths) = (BTreeSet::new(), BTreeSet::new());
        for (line, kind) in keys {
            let least = required.map_or(0, |(_, least)| least);
            match rsa_bits(line) {
                _ if accepted.is_some_and(|(_, list)| !accepts_type(list, kind)) => {
                    kinds.insert(kind)
                }
                Some(bits) if bits < least => lengths.insert(bits.to_string()),
                _ => return None,
            };
        }
        let kinds = accepted.filter(|_| !kinds.is_empty()).map(|(line, _)| {
            let kinds: Vec<&str> = kinds.into_iter().collect();
            format!(
                "{}: PubkeyAcceptedAlgorithms takes no {} key",
                line.place(),
                kinds.join(", no ")
            )
        });
        let lengths = required
            .filter(|_| !lengths.is_empty())
            .map(|(line, least)| {
                let lengths: Vec<String> = lengths.into_iter().collect();
                format!(
                    "{}: RequiredRSASize {least} refuses RSA keys of {} bits",
                    line.place(),
                    lengths.join(" and ")
                )
            });
        let all: Vec<String> = kinds.into_iter().chain(lengths).collect();
        Some(all.join("; "))
    }

    /// Returns the line of a keyword and its first argument; `None` if there is no line or it depends on the connection.
    fn certain_value(&self, keyword: &str) -> Option<(&SshdLine, &str)> {
        let all = self.person.sshd.possible_values(self.config, keyword);
        let [only] = all.as_slice() else {
            return None;
        };
        let line = only.line?;
        Some((line, line.arguments.first()?.as_str()))
    }
}

/// Path of the program.
const SSHD: &str = "usr/sbin/sshd";
/// Largest sshd program that is searched for its version, in bytes.
const MAX_PROGRAM: u64 = 8 << 20;
/// First major version whose `AuthorizedKeysFile` supports patterns.
const WITH_PATTERNS: u32 = 10;

/// Returns the major version of a root's sshd; `None` if it cannot be found in the program, or there is no sshd.
fn find_version(view: &NodeView<'_>) -> Result<Option<u32>, RootError> {
    const NAME: &[u8] = b"OpenSSH_";
    let path = RootPath::fixed(SSHD);
    if !view.exists(&path)? {
        return Ok(None);
    }
    let program = view.root().read_within(&path, MAX_PROGRAM)?;
    let program = program.unwrap_or_default();
    let mut all = program.windows(NAME.len()).enumerate();
    Ok(all.find_map(|(at, window)| {
        let rest = program.get(at + NAME.len()..).filter(|_| window == NAME)?;
        let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
    }))
}

/// The program that reads a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// sshd.
    Sshd,
    /// The program of `AuthorizedKeysCommand` on CoreOS.
    KeyDirectory,
}

/// Returns what sshd objects to in owner and mode: only root and the user may have write permission.
fn of_strict_modes(path: &str, status: FileStatus, uid: u32) -> Option<WrongAttributes> {
    let is_foreign = status.uid != 0 && status.uid != uid;
    let is_open = status.mode & OTHERS != 0 && status.kind != FileKind::Link;
    (is_foreign || is_open).then(|| WrongAttributes {
        path: path.to_owned(),
        foreign: is_foreign.then_some(status.uid),
        open: is_open.then_some(status.mode),
        closed: None,
    })
}

/// Key types that a file can contain.
const KINDS: [&str; 8] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ssh-dss",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// Returns the type of the key on a line, with or without leading options.
fn find_kind(line: &str) -> Option<&'static str> {
    let mut words = line.split_whitespace();
    words
        .find_map(|word| KINDS.iter().find(|kind| **kind == word))
        .copied()
}

/// Returns true if a list of `PubkeyAcceptedAlgorithms` accepts a key type. `+` and `^` add to the default list, and `-`
/// removes from it.
fn accepts_type(list: &str, kind: &str) -> bool {
    let algorithms: &[&str] = match kind {
        "ssh-rsa" => &["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"],
        _ => &[kind],
    };
    let matches =
        |list: &str, one: &str| list.split(',').any(|pattern| matches_pattern(one, pattern));
    let by_default = |one: &str| !matches!(one, "ssh-dss" | "ssh-rsa");
    let mut all = algorithms.iter();
    match list.split_at_checked(1) {
        Some(("-", rest)) => all.any(|one| by_default(one) && !matches(rest, one)),
        Some(("+" | "^", rest)) => all.any(|one| by_default(one) || matches(rest, one)),
        _ => all.any(|one| matches(list, one)),
    }
}

/// Returns the paths whose attributes a program checks: sshd the real path up to the home directory, the other one three paths.
fn list_judged(program: Program, real: &RootPath, home: Option<&RootPath>) -> BTreeSet<RootPath> {
    let below: Vec<RootPath> = real.ancestors().collect();
    let end = match program {
        Program::Sshd => below.iter().position(|above| Some(above) == home),
        Program::KeyDirectory => Some(2),
    };
    let end = end.map_or(below.len(), |at| at + 1);
    below.into_iter().take(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_keys_are_those_of_the_list() {
        for (list, kind, is) in [
            ("ecdsa-sha2-*,rsa-sha2-256", "ssh-ed25519", false),
            ("ecdsa-sha2-*,rsa-sha2-256", "ssh-rsa", true),
            ("ssh-rsa", "ssh-rsa", true),
            ("-ssh-ed25519*", "ssh-ed25519", false),
            ("-ssh-ed25519*", "ssh-rsa", true),
            ("+ssh-rsa", "ssh-ed25519", true),
            ("^ssh-dss", "ssh-dss", true),
        ] {
            assert_eq!(accepts_type(list, kind), is, "{list} {kind}");
        }
        assert_eq!(
            find_kind("restrict,command=\"x y\" ssh-rsa AAAA me"),
            Some("ssh-rsa")
        );
    }
}
