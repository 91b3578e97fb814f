//! Units that the service manager refuses to load, and settings that it ignores: the rules of systemd 252.
//!
//! The rules hold for every version in use. Anything in doubt, such as a path with a specifier, is not an objection.
//! `tests/apply/refused.rs` compares them with `systemd-analyze verify`.

use std::net::SocketAddrV4;

use super::install_section::{is_no_character, logical_lines, section_name};
use super::timer_value;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::words::{Backslash, is_blank, quoted_words};
use crate::base::reason::Reason;

/// An objection of systemd to a unit, as the rest of a sentence about the unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// The unit cannot be loaded, so it never starts.
    Refused(String),
    /// The unit is loaded without a setting.
    Ignored(String),
}

/// One `key=value` of a unit.
struct Setting {
    section: String,
    key: String,
    value: String,
}

/// A unit as it is loaded from its files.
struct LoadedUnit<'n> {
    name: UnitName<'n>,
    settings: Vec<Setting>,
    /// Sections that the type does not have.
    unknown: Vec<String>,
    /// The first reason that aborts the loading.
    fatal: Option<String>,
    ignored: Vec<String>,
}

const SERVICE_TYPES: [&str; 8] = [
    "simple",
    "exec",
    "forking",
    "oneshot",
    "dbus",
    "notify",
    "notify-reload",
    "idle",
];

const RESTARTS: [&str; 7] = [
    "no",
    "always",
    "on-success",
    "on-failure",
    "on-abnormal",
    "on-abort",
    "on-watchdog",
];

const KILL_MODES: [&str; 4] = ["control-group", "process", "mixed", "none"];

/// Types that run their own programs.
const RUNS_PROGRAMS: [&str; 4] = ["Service", "Socket", "Mount", "Swap"];

/// Mount points that belong to systemd itself.
const OWN_MOUNTS: [&str; 21] = [
    "/dev",
    "/dev/console",
    "/dev/pts",
    "/dev/shm",
    "/proc",
    "/proc/kmsg",
    "/proc/sys",
    "/proc/sys/kernel/random/boot_id",
    "/run",
    "/run/host",
    "/run/lock",
    "/sys",
    "/sys/firmware/efi/efivars",
    "/sys/fs/bpf",
    "/sys/fs/cgroup",
    "/sys/fs/pstore",
    "/sys/fs/selinux",
    "/sys/fs/smackfs",
    "/sys/kernel/security",
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/unified",
];

/// Returns the objections to a unit with this file and these drop-ins, which apply in order.
pub fn judge_unit(name: &str, fragment: &str, dropins: &[&str]) -> Vec<Objection> {
    let Some(parsed) = UnitName::parse(name) else {
        return vec![Objection::Refused("its name is not valid".to_owned())];
    };
    // An empty file masks the unit.
    if fragment.is_empty() {
        return Vec::new();
    }
    let mut unit = LoadedUnit::new(parsed);
    let refusal = bad_name(&parsed)
        .or_else(|| unit.read_fragment(fragment))
        .or_else(|| {
            dropins.iter().for_each(|text| unit.read_dropin(text));
            unit.judge_type()
        });
    let refusal = refusal.map(|reason| Objection::Refused(unit.with_section(reason)));
    let ignored = unit.ignored.into_iter().map(Objection::Ignored);
    refusal.into_iter().chain(ignored).collect()
}

/// Returns the reason why no unit of its type can have this name.
fn bad_name(name: &UnitName<'_>) -> Option<String> {
    let reason = match name.suffix {
        _ if name.instance.is_some() && !name.may_template() => {
            format!("a {} unit cannot be a template", name.suffix)
        }
        "scope" => "a scope unit cannot be loaded from a file".to_owned(),
        "automount" if name.full == "-.automount" => {
            "the root directory cannot be mounted on demand".to_owned()
        }
        "slice" if !is_slice(name.prefix) => {
            "the dashes in the name of a slice separate its parents, and one of them is empty"
                .to_owned()
        }
        _ => return None,
    };
    Some(reason)
}

fn is_slice(prefix: &str) -> bool {
    prefix == "-" || !prefix.split('-').any(str::is_empty)
}

/// Returns the section of a type, such as `Service`; targets and devices have none.
fn own_section(suffix: &str) -> Option<&'static str> {
    Some(match suffix {
        "service" => "Service",
        "socket" => "Socket",
        "mount" => "Mount",
        "automount" => "Automount",
        "swap" => "Swap",
        "timer" => "Timer",
        "path" => "Path",
        "slice" => "Slice",
        "scope" => "Scope",
        _ => return None,
    })
}

impl<'n> LoadedUnit<'n> {
    fn new(name: UnitName<'n>) -> Self {
        Self {
            name,
            settings: Vec::new(),
            unknown: Vec::new(),
            fatal: None,
            ignored: Vec::new(),
        }
    }

    /// Reads the unit's file; returns the reason why systemd refuses it as a whole.
    fn read_fragment(&mut self, text: &str) -> Option<String> {
        match self.read_text(text, false) {
            Ok(()) => self.fatal.take(),
            Err(reason) => Some(reason.to_string()),
        }
    }

    /// Reads a drop-in, up to the first line that aborts it: the unit is still loaded.
    fn read_dropin(&mut self, text: &str) {
        if let Err(reason) = self.read_text(text, true) {
            self.ignored
                .push(format!("the rest of a drop-in, because {reason}"));
        }
    }

    /// Reads a text. If a bad setting does not `end` it, it is stored as the reason that aborts the loading.
    fn read_text(&mut self, text: &str, end: bool) -> Result<(), Reason> {
        let own = own_section(self.name.suffix);
        let mut section = None;
        for (_, line) in logical_lines(text) {
            let line = line.trim_matches(is_blank);
            if line.contains(is_no_character) {
                return Err("a line is not UTF-8 text".into());
            }
            if line.starts_with('[') {
                let name =
                    section_name(line).map_err(|_| format!("{line:?} is not a section header"))?;
                let known = matches!(name, "Unit" | "Install") || Some(name) == own;
                section = known.then(|| name.to_owned());
                if !known && !name.starts_with("X-") {
                    self.unknown.push(name.to_owned());
                }
                continue;
            }
            let (Some(section), Some((key, value))) = (&section, line.split_once('=')) else {
                continue;
            };
            let (key, value) = (key.trim_matches(is_blank), value.trim_matches(is_blank));
            if let Some(reason) = ends_loading(section, key, value) {
                if end {
                    return Err(reason.into());
                }
                self.fatal.get_or_insert(reason);
            }
            self.settings.push(Setting {
                section: section.clone(),
                key: key.to_owned(),
                value: value.to_owned(),
            });
        }
        Ok(())
    }

    /// Adds the bad section to a reason that may be its consequence.
    fn with_section(&self, reason: String) -> String {
        let own = own_section(self.name.suffix);
        let is_missing = own.is_some_and(|own| !self.settings.iter().any(|one| one.section == own));
        let Some(unknown) = self.unknown.first().filter(|_| is_missing) else {
            return reason;
        };
        let own = own.unwrap_or_default();
        if unknown.eq_ignore_ascii_case(own) {
            format!("{reason} (its section [{unknown}] should be [{own}])")
        } else {
            format!("{reason} (systemd ignores its section [{unknown}])")
        }
    }

    /// Returns the values of a key, in order.
    fn values_of<'s>(&'s self, section: &'s str, key: &'s str) -> impl Iterator<Item = &'s str> {
        let settings = self.settings.iter();
        let settings = settings.filter(move |one| one.section == section && one.key == key);
        settings.map(|one| one.value.as_str())
    }

    /// Returns the last value that systemd accepts.
    fn last_valid<'s>(
        &'s self,
        section: &'s str,
        key: &'s str,
        is_valid: impl Fn(&str) -> bool,
    ) -> Option<&'s str> {
        self.values_of(section, key)
            .filter(|value| is_valid(value))
            .last()
    }

    /// Returns true for a boolean that is finally set to yes.
    fn is_on(&self, section: &str, key: &str) -> bool {
        let on = |value: &str| is_word(value, &["1", "yes", "y", "true", "t", "on"]);
        let off = |value: &str| is_word(value, &["0", "no", "n", "false", "f", "off"]);
        let last = self.last_valid(section, key, |value| on(value) || off(value));
        last.is_some_and(on)
    }

    fn judge_type(&mut self) -> Option<String> {
        match self.name.suffix {
            "service" => self.judge_service(),
            "mount" => self.judge_mount(),
            "automount" => self.judge_place("Automount", "Where"),
            "swap" => self.judge_place("Swap", "What"),
            "timer" => self.judge_timer(),
            "path" => self.judge_path(),
            "socket" => self.judge_socket(),
            _ => None,
        }
    }

    fn judge_service(&mut self) -> Option<String> {
        self.note_unknown("Service", "Type", &SERVICE_TYPES);
        self.note_unknown("Service", "Restart", &RESTARTS);
        let starts = self.count_commands("ExecStart");
        let kind = self.service_type(starts);
        self.judge_commands(starts, kind)
            .or_else(|| self.judge_service_type(kind))
            .or_else(|| self.judge_login())
    }

    /// Returns the type of a service, which other settings determine if it is not given.
    fn service_type(&self, starts: usize) -> &str {
        let given = self.last_valid("Service", "Type", |value| SERVICE_TYPES.contains(&value));
        given.unwrap_or(match (self.has_bus_name(), starts) {
            (true, _) => "dbus",
            (false, 0) => "oneshot",
            (false, _) => "simple",
        })
    }

    fn has_bus_name(&self) -> bool {
        self.last_valid("Service", "BusName", is_bus_name).is_some()
    }

    fn judge_commands(&self, starts: usize, kind: &str) -> Option<String> {
        let stops = self.count_commands("ExecStop");
        let action = self.last_valid("Unit", "SuccessAction", is_action);
        let acts = action.is_some_and(|action| action != "none");
        let oneshot = kind == "oneshot";
        match starts {
            0 if stops == 0 && !acts => Some("it has no ExecStart=".to_owned()),
            0 if !oneshot => Some(format!(
                "it has no ExecStart=, which only Type=oneshot allows, not Type={kind}"
            )),
            0 if !acts && !self.is_on("Service", "RemainAfterExit") => {
                Some("it has ExecStop= alone, without RemainAfterExit=yes".to_owned())
            }
            2.. if !oneshot => Some(format!(
                "it has more than one ExecStart=, which only Type=oneshot allows, not Type={kind}; an empty \
                 ExecStart= drops those before it"
            )),
            _ => None,
        }
    }

    fn judge_service_type(&self, kind: &str) -> Option<String> {
        let restart = self.last_valid("Service", "Restart", |value| RESTARTS.contains(&value));
        let restart = restart.filter(|when| matches!(*when, "always" | "on-success"));
        let exit = self.last_valid("Service", "ExitType", |value| {
            matches!(value, "main" | "cgroup")
        });
        match (kind, restart) {
            ("oneshot", Some(when)) => Some(format!("Type=oneshot does not allow Restart={when}")),
            ("oneshot", None) if exit == Some("cgroup") => {
                Some("Type=oneshot does not allow ExitType=cgroup".to_owned())
            }
            ("dbus", _) if !self.has_bus_name() => {
                Some("Type=dbus needs a valid BusName=".to_owned())
            }
            _ => None,
        }
    }

    /// Objects to programs of a login session that do not end with it.
    fn judge_login(&self) -> Option<String> {
        let session = self.values_of("Service", "PAMName").last()?;
        let kill = self.last_valid("Service", "KillMode", |value| KILL_MODES.contains(&value))?;
        let stays = matches!(kill, "process" | "none") && !session.is_empty();
        stays.then(|| format!("PAMName= does not allow KillMode={kill}"))
    }

    /// Records a value that systemd does not know: the previous value stays.
    fn note_unknown(&mut self, section: &str, key: &str, known: &[&str]) {
        let unknown = self
            .values_of(section, key)
            .filter(|value| !known.contains(value));
        let notes: Vec<String> = unknown
            .map(|value| format!("{key}={value}, which is unknown"))
            .collect();
        self.ignored.extend(notes);
    }

    /// Returns the final number of commands in a list.
    fn count_commands(&self, key: &str) -> usize {
        self.values_of("Service", key)
            .fold(0, |count, value| match value {
                "" => 0,
                value => count + parse_commands(value).0,
            })
    }

    fn judge_mount(&mut self) -> Option<String> {
        let what = self.values_of("Mount", "What").last().unwrap_or_default();
        let has_what = !what.is_empty() || self.name.full == "-.mount";
        if let Some(reason) = self.judge_place("Mount", "Where") {
            return Some(reason);
        }
        let place = self.last_path("Mount", "Where");
        let place = place.or_else(|| unit_name::path_of(self.name.prefix));
        let place = place.unwrap_or_default();
        if OWN_MOUNTS.contains(&place.as_str()) || place.starts_with("/sys/fs/cgroup/") {
            return Some(format!("systemd itself mounts {place}"));
        }
        (!has_what).then(|| "it has no What=".to_owned())
    }

    /// Returns the last path that systemd accepts, simplified.
    fn last_path(&self, section: &str, key: &str) -> Option<String> {
        let mut place = None;
        for value in self.values_of(section, key) {
            match value {
                "" => place = None,
                value if is_plain_path(value) => place = Some(simplify_path(value)),
                _ => {}
            }
        }
        place
    }

    /// Compares a unit's name with the path that it has to be derived from.
    fn judge_place(&mut self, section: &str, key: &str) -> Option<String> {
        let values: Vec<String> = self.values_of(section, key).map(str::to_owned).collect();
        // Specifiers stand for values of the node.
        if values.iter().any(|value| value.contains('%')) {
            return None;
        }
        let bad = values
            .iter()
            .filter(|value| !value.is_empty() && !is_plain_path(value));
        let from_name = unit_name::path_of(self.name.prefix).unwrap_or_default();
        let notes = bad.map(|value| {
            let why = if value.starts_with('/') {
                "has a `..` in it"
            } else {
                "is not an absolute path"
            };
            format!("{key}={value}, which {why}: only its name matters, and says {from_name}")
        });
        self.ignored.extend(notes.collect::<Vec<_>>());
        let place = self.last_path(section, key)?;
        let wanted = format!("{}.{}", unit_name::from_path(&place), self.name.suffix);
        // Names of long paths are shortened, but only by newer versions.
        if wanted == self.name.full || wanted.len() > 255 {
            return None;
        }
        Some(format!(
            "its name does not fit {key}={place}: for that path the unit has to be named {wanted}, and its own name says {from_name}"
        ))
    }

    fn judge_timer(&self) -> Option<String> {
        const SPANS: [&str; 5] = [
            "OnActiveSec",
            "OnBootSec",
            "OnStartupSec",
            "OnUnitActiveSec",
            "OnUnitInactiveSec",
        ];
        let mut count = 0;
        let mut bad = None;
        for one in self.settings.iter().filter(|one| one.section == "Timer") {
            let is_valid: fn(&str) -> bool = match one.key.as_str() {
                "OnCalendar" => timer_value::may_be_calendar,
                key if SPANS.contains(&key) => timer_value::may_be_span,
                _ => continue,
            };
            match one.value.as_str() {
                "" => count = 0,
                value if is_valid(value) => count += 1,
                value => bad = Some(format!(" ({}={value} is not valid)", one.key)),
            }
        }
        let changes = ["OnClockChange", "OnTimezoneChange"];
        let changes = changes.iter().any(|key| self.is_on("Timer", key));
        let bad = bad.unwrap_or_default();
        (count == 0 && !changes).then(|| format!("it has no time to start at{bad}"))
    }

    fn judge_path(&self) -> Option<String> {
        const PATHS: [&str; 5] = [
            "PathExists",
            "PathExistsGlob",
            "PathChanged",
            "PathModified",
            "DirectoryNotEmpty",
        ];
        let is_path = |value: &str| value.contains('%') || is_plain_path(value);
        let count = self.count_valid("Path", &PATHS, |_, value| is_path(value));
        (count == 0).then(|| "it has no path to watch".to_owned())
    }

    fn judge_socket(&self) -> Option<String> {
        const LISTENS: [&str; 8] = [
            "ListenStream",
            "ListenDatagram",
            "ListenSequentialPacket",
            "ListenFIFO",
            "ListenNetlink",
            "ListenSpecial",
            "ListenMessageQueue",
            "ListenUSBFunction",
        ];
        if self.count_valid("Socket", &LISTENS, may_be_address) == 0 {
            return Some("it has nothing to listen on (ListenStream= and the like)".to_owned());
        }
        if !self.is_on("Socket", "Accept") {
            return None;
        }
        let accepting = ["ListenStream", "ListenSequentialPacket"];
        let others = LISTENS
            .iter()
            .copied()
            .filter(|key| !accepting.contains(key));
        let others: Vec<&str> = others.collect();
        if self.count_valid("Socket", &others, may_be_address) > 0 {
            return Some("Accept=yes does not fit all that it listens on".to_owned());
        }
        let service = self.last_valid("Socket", "Service", |value| value.ends_with(".service"));
        service.map(|service| format!("Accept=yes does not allow Service={service}"))
    }

    /// Returns the final number of values of these keys. An empty value drops all earlier ones.
    fn count_valid(
        &self,
        section: &str,
        keys: &[&str],
        is_valid: impl Fn(&str, &str) -> bool,
    ) -> usize {
        let all = self.settings.iter();
        let all = all.filter(|one| one.section == section);
        all.fold(0, |count, one| match one.value.as_str() {
            // Each of the keys drops the values of all.
            "" if is_list(section, &one.key) => 0,
            "" => count,
            value if keys.contains(&one.key.as_str()) && is_valid(&one.key, value) => count + 1,
            _ => count,
        })
    }
}

/// Returns true for a list key that an empty value resets.
fn is_list(section: &str, key: &str) -> bool {
    match section {
        "Socket" => key.starts_with("Listen"),
        _ => key.starts_with("Path") || key == "DirectoryNotEmpty",
    }
}

/// Returns true for one of these words, in any case.
fn is_word(value: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

fn is_action(value: &str) -> bool {
    let names = [
        "none",
        "reboot",
        "poweroff",
        "exit",
        "halt",
        "kexec",
        "soft-reboot",
    ];
    let name = value
        .strip_suffix("-immediate")
        .or_else(|| value.strip_suffix("-force"));
    names.contains(&name.unwrap_or(value))
}

fn is_bus_name(value: &str) -> bool {
    value.contains('%') || (value.contains('.') && !value.contains(is_blank))
}

/// Returns true for a path that systemd accepts: absolute and without `..`.
fn is_plain_path(value: &str) -> bool {
    value.starts_with('/') && !value.split('/').any(|part| part == "..")
}

/// Returns a path without doubled slashes, `.` and a trailing slash.
fn simplify_path(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    format!("/{}", parts.join("/"))
}

/// Returns true unless a socket certainly cannot listen on a value.
fn may_be_address(key: &str, value: &str) -> bool {
    if value.contains('%') {
        return true;
    }
    match key {
        "ListenFIFO" | "ListenSpecial" | "ListenUSBFunction" => is_plain_path(value),
        "ListenStream" | "ListenDatagram" | "ListenSequentialPacket" => {
            let port = value.parse::<u64>();
            let is_port = port.is_ok_and(|port| (1..=65535).contains(&port));
            let is_address = value.parse::<SocketAddrV4>().is_ok();
            value.starts_with(['/', '@', '['])
                || is_port
                || is_address
                || value.starts_with("vsock")
        }
        _ => true,
    }
}

/// Returns the reason why a setting aborts the loading of its file.
fn ends_loading(section: &str, key: &str, value: &str) -> Option<String> {
    if !RUNS_PROGRAMS.contains(&section) || value.is_empty() {
        return None;
    }
    let of_path = |path: &str| {
        let is_wrong = !is_plain_path(path) && !path.contains('%');
        let wrong =
            || is_wrong.then(|| format!("{key}={value} is not an absolute path without `..`"));
        wrong().or_else(|| Some(format!("{key}={value}: {}", unknown_specifier(value)?)))
    };
    match key {
        "ExecStart" | "ExecStartPre" | "ExecStartPost" | "ExecCondition" | "ExecReload"
        | "ExecStop" | "ExecStopPre" | "ExecStopPost" => {
            let reason = parse_commands(value).1?;
            Some(format!("{key}={value}: {reason}"))
        }
        "User" | "Group" => {
            let is_wrong = value.contains([':', '/']) && !value.contains('%');
            let wrong = || is_wrong.then(|| format!("{key}={value} is not a name"));
            wrong().or_else(|| Some(format!("{key}={value}: {}", unknown_specifier(value)?)))
        }
        "WorkingDirectory" if value == "~" || value.starts_with('-') => None,
        "WorkingDirectory" | "RootDirectory" | "RootImage" => of_path(value),
        _ => None,
    }
}

/// Returns the number of commands in a line, and the reason why systemd accepts none of them.
fn parse_commands(line: &str) -> (usize, Option<String>) {
    let (words, true) = quoted_words(line, Backslash::KeepsNext) else {
        return (1, Some("a quote is never closed".to_owned()));
    };
    let mut count = 0;
    for command in words.split(|word| word == ";") {
        let Some(first) = command.first() else {
            continue;
        };
        let path = first.trim_start_matches(['-', '@', ':', '+', '!', '|']);
        let prefix = first.strip_suffix(path).unwrap_or_default();
        let reason = match path {
            "" if prefix.contains('@') => None,
            "" => continue,
            path if path.contains(['%', '$', '\\']) => None,
            path if path.len() > 1 && path.starts_with('/') && !path.ends_with('/') => None,
            path if path.ends_with('/') => Some("the program is a directory"),
            path if path.contains('/') => {
                Some("the program is neither an absolute path nor a file name")
            }
            _ => None,
        };
        let specifier = || command.iter().find_map(|word| unknown_specifier(word));
        match reason.map(str::to_owned).or_else(specifier) {
            Some(_) if prefix.contains('-') => {}
            Some(reason) => return (count + 1, Some(reason)),
            None => count += 1,
        }
    }
    (count, None)
}

/// Returns the objection to a word with a `%` specifier that is unknown to every version of systemd.
fn unknown_specifier(word: &str) -> Option<String> {
    let mut rest = word;
    while let Some((_, after)) = rest.split_once('%') {
        let specifier = after.chars().next()?;
        if "ekxzFKOQXZ0123456789".contains(specifier) {
            return Some(format!(
                "%{specifier} means nothing to systemd; a percent sign is written %%"
            ));
        }
        rest = after.get(specifier.len_utf8()..)?;
    }
    None
}

/// Returns the names whose drop-ins apply to a unit: its own, those of its template and of the prefixes of its name, and its
/// type.
pub(super) fn dropin_names(name: &str) -> Vec<String> {
    let Some(parsed) = UnitName::parse(name) else {
        return vec![name.to_owned()];
    };
    let template = parsed
        .template()
        .filter(|_| parsed.kind() == UnitNameKind::Instance);
    let mut names: Vec<String> = std::iter::once(name.to_owned()).chain(template).collect();
    let mut all = names.clone();
    for name in names.drain(..) {
        let end = name.find('@').or_else(|| name.rfind('.'));
        let (prefix, rest) = name.split_at(end.unwrap_or(name.len()));
        let dashes = prefix.match_indices('-').map(|(at, _)| at + 1).rev();
        let cuts = dashes.filter(|at| *at < prefix.len());
        all.extend(cuts.filter_map(|at| Some(format!("{}{rest}", prefix.get(..at)?))));
    }
    all.push(parsed.suffix.to_owned());
    all
}
