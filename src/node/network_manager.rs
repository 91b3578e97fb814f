//! The files that NetworkManager reads: its own configuration, and the directories and files of its connections (keyfiles).
//!
//! The rules are those of `nm-config.c` and `nms-keyfile-plugin.c`. Only names are kept, because a keyfile may contain secrets.

use std::collections::BTreeMap;

use super::keyfile_faults::{find_bad_line, find_keyfile_fault};
use super::platform::node_files::NodeFiles;
use super::platform::sections::parse_assignments;
use crate::formats::systemd::glob_matches;
use crate::host::root::{EntryType, Root, RootError, RootPath};

/// Directory of connections, unless `path=` sets another.
pub const KEYFILES: &str = "etc/NetworkManager/system-connections";
/// Extension of a keyfile. Outside of `/etc`, only such files are read.
pub const KEYFILE_ENDING: &str = ".nmconnection";
/// Directories of connections that cannot be changed by a setting.
const FIXED_KEYFILES: [&str; 2] = [
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
];
/// Directories of settings, in the order in which they are read.
const SETTINGS: [&str; 3] = [
    "usr/lib/NetworkManager/conf.d",
    "run/NetworkManager/conf.d",
    "etc/NetworkManager/conf.d",
];
/// The main file, which is read after the first two directories and before the last.
const MAIN_FILE: &str = "etc/NetworkManager/NetworkManager.conf";
/// Units of the node.
const UNITS: &str = "etc/systemd/system";
/// Endings of copies that programs and people leave behind.
const COPIES: [&str; 14] = [
    "~",
    ".bak",
    ".backup",
    ".old",
    ".orig",
    ".save",
    ".disabled",
    ".rej",
    ".rpmnew",
    ".rpmsave",
    ".rpmorig",
    ".swp",
    ".swpx",
    ".tmp",
];

/// The settings of NetworkManager that determine which connections it uses.
#[derive(Debug, Clone, Default)]
pub struct NetworkManagerSettings {
    /// The value of each key and its file, by section and key. The last file takes precedence.
    values: BTreeMap<(String, String), (String, String)>,
    /// Directories that a mount overlays on the configured one.
    layers: Vec<RootPath>,
    /// Files with an error: path, line (counted from 1) and description. NetworkManager does not start with such a file.
    pub faults: Vec<(String, usize, &'static str)>,
    /// Files and directories that could not be read, with the reason.
    pub unseen: Vec<RootError>,
}

/// A directory of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyfileDirectory {
    /// The directory.
    pub path: RootPath,
    /// Only names that end in `.nmconnection` are read.
    pub strict: bool,
    /// A mount makes its files appear in the preceding directory.
    pub is_layer: bool,
}

impl NetworkManagerSettings {
    /// Reads the files of a root.
    pub fn read(root: &Root) -> Self {
        Self::read_files(&NodeFiles::new(root, None))
    }

    /// Reads the files as they will be after a run of a config.
    pub(super) fn read_files(files: &NodeFiles<'_>) -> Self {
        let mut all = Self::default();
        let mut names: Vec<(RootPath, Vec<String>)> = Vec::new();
        for directory in SETTINGS.map(RootPath::fixed) {
            let found = all.note_error(files.list(&directory)).unwrap_or_default();
            let found = found.into_iter().filter(|name| name.ends_with(".conf"));
            names.push((directory, found.collect()));
        }
        for index in 0..names.len() {
            if index + 1 == names.len() {
                all.add_file(files, &RootPath::fixed(MAIN_FILE), false);
            }
            let Some(((directory, own), later)) = names.get(index..).and_then(<[_]>::split_first)
            else {
                continue;
            };
            let is_masked = |name: &String| later.iter().any(|(_, names)| names.contains(name));
            for path in own
                .iter()
                .filter(|name| !is_masked(name))
                .filter_map(|name| directory.join(name).ok())
            {
                all.add_file(files, &path, true);
            }
        }
        if let (Some(path), Some(_)) = all.keyfile_path() {
            all.layers = find_layers(files, &path, &mut all);
        }
        all
    }

    /// Returns the value; an error is recorded.
    fn note_error<T>(&mut self, result: Result<T, RootError>) -> Option<T> {
        result.map_err(|error| self.unseen.push(error)).ok()
    }

    fn add_file(&mut self, files: &NodeFiles<'_>, path: &RootPath, is_part: bool) {
        let Some(bytes) = self.note_error(files.read_small(path)).flatten() else {
            return;
        };
        let text = String::from_utf8_lossy(&bytes);
        if let Some((line, said)) = find_bad_line(&text) {
            self.faults.push((path.to_string(), line, said));
            return;
        }
        if !(is_part && is_switched_off(&text)) {
            self.add_text(&path.to_string(), &text);
        }
    }

    fn add_text(&mut self, path: &str, text: &str) {
        for one in parse_assignments(text) {
            if one.section == ".config" {
                continue;
            }
            let (key, adds, removes) = match one.key {
                key if key.ends_with('+') => (key.trim_end_matches('+').trim(), true, false),
                key if key.ends_with('-') => (key.trim_end_matches('-').trim(), false, true),
                key => (key, false, false),
            };
            let at = (one.section.to_owned(), key.to_owned());
            let before = self.values.get(&at).map(|(value, _)| value.as_str());
            let value = match before {
                Some(before) if adds => format!("{before};{}", one.value),
                Some(before) if removes => {
                    let gone: Vec<&str> = split_specs(one.value).collect();
                    let stay = split_specs(before).filter(|spec| !gone.contains(spec));
                    stay.collect::<Vec<_>>().join(";")
                }
                None if removes => continue,
                _ => one.value.to_owned(),
            };
            self.values.insert(at, (value, path.to_owned()));
        }
    }

    /// Returns the value of a key and the file that sets it.
    pub fn find_value(&self, section: &str, key: &str) -> Option<(&str, &str)> {
        let found = self.values.get(&(section.to_owned(), key.to_owned()));
        found.map(|(value, file)| (value.as_str(), file.as_str()))
    }

    /// Returns the directory of connections below `/etc`, and the file that changes it from the default. The directory is
    /// `None` if the setting is empty.
    pub fn keyfile_path(&self) -> (Option<RootPath>, Option<&str>) {
        let default = RootPath::fixed(KEYFILES);
        match self.find_value("keyfile", "path") {
            Some(("", file)) => (None, Some(file)),
            Some((path, file)) if path.starts_with('/') => {
                match RootPath::parse(path.trim_end_matches('/')) {
                    Ok(path) if path == default => (Some(default), None),
                    Ok(path) => (Some(path), Some(file)),
                    Err(_) => (Some(default), None),
                }
            }
            _ => (Some(default), None),
        }
    }

    /// Returns the file and the setting because of which NetworkManager ignores an interface of this name and type. Settings
    /// that match by another property, such as a driver, are not judged.
    pub fn unmanages(&self, interface: &str, kind: &str) -> Option<(&str, String)> {
        if let Some((value, file)) = self.find_value("keyfile", "unmanaged-devices")
            && matches_device(value, interface, kind)
        {
            return Some((file, format!("[keyfile] unmanaged-devices={value}")));
        }
        let sections = self
            .values
            .keys()
            .filter(|(section, key)| key == "match-device" && section.starts_with("device"));
        let matching = sections.filter_map(|(section, _)| {
            let (specs, _) = self.find_value(section, "match-device")?;
            let (managed, file) = self.find_value(section, "managed")?;
            matches_device(specs, interface, kind).then_some((section, managed, file))
        });
        let matching: Vec<(&String, &str, &str)> = matching.collect();
        let is_off = |value: &str| {
            ["0", "no", "false", "off"].contains(&value.to_ascii_lowercase().as_str())
        };
        let (section, managed, file) = *matching.first()?;
        // The precedence among several sections is not judged here.
        let all_off = matching.iter().all(|(_, managed, _)| is_off(managed));
        all_off.then(|| (file, format!("[{section}] managed={managed}")))
    }

    /// Returns the directories of connections.
    pub fn keyfile_directories(&self) -> Vec<KeyfileDirectory> {
        let below = |path: &RootPath, strict, is_layer| KeyfileDirectory {
            path: path.clone(),
            strict,
            is_layer,
        };
        let own = self.keyfile_path().0;
        let own = own.iter().map(|path| below(path, false, false));
        let layers = self.layers.iter().map(|path| below(path, false, true));
        let fixed = FIXED_KEYFILES
            .iter()
            .map(|path| below(&RootPath::fixed(path), true, false));
        own.chain(layers).chain(fixed).collect()
    }
}

/// Returns true if a settings file disables itself.
fn is_switched_off(text: &str) -> bool {
    let all = parse_assignments(text);
    let last = all
        .iter()
        .rfind(|one| (one.section, one.key) == (".config", "enable"));
    last.is_some_and(|one| {
        let value = one.value.to_ascii_lowercase();
        // A tag has to be in the environment of NetworkManager, and it never is on a node.
        ["0", "no", "false", "off"].contains(&value.as_str()) || value.starts_with("env:")
    })
}

fn split_specs(value: &str) -> impl Iterator<Item = &str> {
    value
        .split([';', ','])
        .map(str::trim)
        .filter(|spec| !spec.is_empty())
}

/// Returns true if a list of devices includes an interface, by name or type.
fn matches_device(specs: &str, interface: &str, kind: &str) -> bool {
    let one = |spec: &str, fuzzy: bool| {
        if let Some(name) = spec.strip_prefix("interface-name:") {
            return match name.strip_prefix('=') {
                Some(exact) => exact == interface,
                None => glob_matches(name.trim_start_matches('~'), interface),
            };
        }
        match spec.strip_prefix("type:") {
            Some(other) => other == kind,
            None => spec == "*" || (fuzzy && spec == interface),
        }
    };
    let excepted = |spec: &str| spec.strip_prefix("except:").map(str::to_owned);
    let (mut only_excepts, mut any) = (true, false);
    for spec in split_specs(specs) {
        match excepted(spec) {
            Some(spec) if one(&spec, false) => return false,
            // It may match by address or driver.
            Some(spec) if is_by_hardware(&spec) => return false,
            Some(_) => {}
            None => {
                only_excepts = false;
                any |= one(spec, true);
            }
        }
    }
    any || (only_excepts && split_specs(specs).next().is_some())
}

/// Returns true if a specification selects a device by a property that no file shows.
fn is_by_hardware(spec: &str) -> bool {
    let prefixes = ["mac:", "driver:", "s390-subchannels:", "dhcp-plugin:"];
    prefixes.iter().any(|prefix| spec.starts_with(prefix))
}

/// Returns true if NetworkManager reads a file of this name as a connection.
pub fn is_keyfile_name(name: &str, strict: bool) -> bool {
    if name.is_empty() || name.starts_with('.') {
        return false;
    }
    if strict {
        return name.len() > KEYFILE_ENDING.len() && name.ends_with(KEYFILE_ENDING);
    }
    // Six characters after the last dot are taken for the name of a temporary file.
    let is_temporary = name.rsplit_once('.').is_some_and(|(_, end)| {
        end.len() == 6 && end.bytes().all(|letter| letter.is_ascii_alphanumeric())
    });
    let lower = name.to_ascii_lowercase();
    let is_certificate = [".pem", ".der"]
        .iter()
        .any(|end| lower.ends_with(end) && lower.len() > end.len());
    !(name.ends_with('~') || is_temporary || is_certificate)
}

/// Returns true for the name of a copy, which is not expected to be read.
pub fn is_copy_name(name: &str) -> bool {
    name.starts_with('.')
        || name.contains(".mco-rescue-")
        || COPIES.iter().any(|ending| name.ends_with(ending))
}

/// A file that NetworkManager reads as a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionFile {
    /// Its path.
    pub path: RootPath,
    /// Its text, which may contain secrets.
    pub text: String,
    /// The reason why NetworkManager rejects it.
    pub refused: Option<KeyfileRefusal>,
}

/// The reason why NetworkManager rejects a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyfileRefusal {
    /// The owner is not root.
    #[error("owner {0}")]
    Owner(u32),
    /// The mode, because others may read or write it.
    #[error("mode {0:04o}")]
    Mode(u32),
    /// A line, by number.
    #[error("line {0}: {1}")]
    Line(usize, String),
}

impl KeyfileRefusal {
    /// Returns true if another owner or mode is the whole cure.
    pub fn is_of_mode(&self) -> bool {
        matches!(self, Self::Owner(_) | Self::Mode(_))
    }
}

/// Reads the files that NetworkManager reads as connections, in the order of its directories.
pub fn read_connections(root: &Root, unseen: &mut Vec<RootError>) -> Vec<ConnectionFile> {
    let files = NodeFiles::new(root, None);
    let settings = NetworkManagerSettings::read_files(&files);
    unseen.extend(settings.unseen.iter().cloned());
    read_by(&files, &settings, unseen)
}

/// Returns the effective connections: paths and texts of the files that NetworkManager accepts.
pub(super) fn read_in_force(
    files: &NodeFiles<'_>,
    unseen: &mut Vec<RootError>,
) -> Vec<(RootPath, String)> {
    let settings = NetworkManagerSettings::read_files(files);
    unseen.extend(settings.unseen.iter().cloned());
    let all = read_by(files, &settings, unseen).into_iter();
    all.filter(|one| one.refused.is_none())
        .map(|one| (one.path, one.text))
        .collect()
}

/// Reads the connection files that these settings select.
pub(super) fn read_by(
    files: &NodeFiles<'_>,
    settings: &NetworkManagerSettings,
    unseen: &mut Vec<RootError>,
) -> Vec<ConnectionFile> {
    let mut all = Vec::new();
    for path in list_by(files, settings, unseen) {
        let read = files
            .read_small(&path)
            .and_then(|bytes| Ok((bytes, files.owner_and_mode(&path)?)));
        match read {
            Ok((Some(bytes), Some(owner))) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let refused = find_refusal(owner, &text);
                all.push(ConnectionFile {
                    path,
                    text,
                    refused,
                });
            }
            // Not a file, or one that is too large for a connection.
            Ok(_) => {}
            Err(error) => unseen.push(error),
        }
    }
    all
}

/// Returns the reason why NetworkManager rejects a file with this owner, mode and text.
fn find_refusal((uid, mode): (u32, u32), text: &str) -> Option<KeyfileRefusal> {
    if uid != 0 {
        return Some(KeyfileRefusal::Owner(uid));
    }
    if mode & 0o077 != 0 {
        return Some(KeyfileRefusal::Mode(mode & 0o7777));
    }
    find_keyfile_fault(text).map(|(line, said)| KeyfileRefusal::Line(line, said))
}

/// Returns the connection files that these settings select.
pub(super) fn list_by(
    files: &NodeFiles<'_>,
    settings: &NetworkManagerSettings,
    unseen: &mut Vec<RootError>,
) -> Vec<RootPath> {
    let mut all: Vec<RootPath> = Vec::new();
    for directory in settings.keyfile_directories() {
        for path in list_directory(files, &directory, unseen) {
            // A file of an upper layer hides the file of the same name below it.
            let is_hidden = directory.is_layer && all.iter().any(|one| one.name() == path.name());
            if !is_hidden {
                all.push(path);
            }
        }
    }
    all
}

/// Returns the connection files of one directory.
fn list_directory(
    files: &NodeFiles<'_>,
    directory: &KeyfileDirectory,
    unseen: &mut Vec<RootError>,
) -> Vec<RootPath> {
    let names = files.list_types(&directory.path).unwrap_or_else(|error| {
        unseen.push(error);
        Vec::new()
    });
    let is_read = |(name, kind): &(String, EntryType)| {
        matches!(kind, EntryType::File | EntryType::Link) && is_keyfile_name(name, directory.strict)
    };
    let read = names.into_iter().filter(is_read);
    read.filter_map(|(name, _)| directory.path.join(&name).ok())
        .collect()
}

/// Returns the directories that a mount unit overlays at a path, as in releases of 2021.
fn find_layers(
    files: &NodeFiles<'_>,
    at: &RootPath,
    settings: &mut NetworkManagerSettings,
) -> Vec<RootPath> {
    let units = RootPath::fixed(UNITS);
    let names = settings.note_error(files.list(&units)).unwrap_or_default();
    let is_near =
        |name: &String| name.starts_with("etc-NetworkManager-") && name.ends_with(".mount");
    let paths = names
        .iter()
        .filter(|name| is_near(name))
        .filter_map(|name| units.join(name).ok());
    let mut layers = Vec::new();
    for path in paths.collect::<Vec<_>>() {
        let Some(bytes) = settings.note_error(files.read_small(&path)).flatten() else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = |key: &str| {
            let all = parse_assignments(&text);
            let found = all
                .iter()
                .rfind(|one| (one.section, one.key) == ("Mount", key));
            found.map(|one| one.value.to_owned())
        };
        if value("Where").as_deref() != Some(at.to_string().as_str()) {
            continue;
        }
        let options = value("Options").unwrap_or_default();
        let options = options.split(',').filter_map(|option| {
            option
                .strip_prefix("upperdir=")
                .or_else(|| option.strip_prefix("lowerdir="))
        });
        let directories = options.flat_map(|option| option.split(':'));
        layers.extend(directories.filter_map(|path| RootPath::parse(path).ok()));
    }
    layers
}
