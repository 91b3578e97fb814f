//! SELinux on a root: its mode, its policy compared with the OS's, and locally installed modules.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};

use super::fault_group::{FaultGroup, FaultWeight};
use super::platform::NextConfig;
use super::platform::node_files::NodeFiles;
use crate::base::paths;
use crate::base::text::count_noun;
use crate::formats::labels::policy_name;
use crate::host::root::{EntryType, Root, RootError, RootPath};

/// Number of bytes that are read from the end of the audit log.
const TAIL: u64 = 64 << 10;
/// The OS's file with mode and policy.
const SHIPPED_CONFIG: &str = "usr/etc/selinux/config";
/// The audit log.
const AUDIT_LOG: &str = "var/log/audit/audit.log";
/// Requests that systemd relabels all files at the next boot.
pub const AUTORELABEL: &str = ".autorelabel";
/// Number of bytes that are compared at a time.
const BLOCK: usize = 64 << 10;

/// The SELinux state of a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelinuxState {
    /// The mode by `/etc/selinux/config`.
    pub mode: SelinuxMode,
    /// Name of the policy.
    pub policy: String,
    /// The policy's directory is missing, but there are others.
    pub is_unknown: bool,
    /// The policies that are there.
    pub known: Vec<String>,
    /// Name of the policy in the OS's file.
    pub of_os: Option<String>,
    /// The text of `/etc/selinux/config`, unless that is a link.
    pub config: Option<String>,
    /// The policy file that the kernel loads, and the OS's, if they differ.
    pub differs: Option<(String, String)>,
    /// Locally installed modules: priority and name.
    pub own_modules: Vec<String>,
    /// Modules with missing files: directory, and the missing file.
    pub incomplete: Vec<(String, &'static str)>,
    /// Number of denials at the end of the audit log.
    pub denials: usize,
    /// `/.autorelabel`, which requests a relabelling that OSTree systems cannot do at boot.
    pub autorelabel: Option<String>,
    /// Policy files in a config: they hide those of every later OS.
    pub brought: Vec<String>,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelinuxFaultKind {
    /// `SELINUXTYPE` names a policy that does not exist.
    UnknownType,
    /// The mode does not enforce anything.
    Mode,
    /// A relabelling at boot is requested but never done.
    Autorelabel,
    /// A module is not complete.
    Incomplete,
    /// A config contains policy files.
    Brought,
    /// The policy is not the OS's.
    OtherPolicy,
}

/// The file with the mode.
pub const CONFIG: &str = "/etc/selinux/config";

impl SelinuxState {
    /// Returns the faults, grouped by kind.
    pub fn group_faults(&self) -> Vec<FaultGroup<SelinuxFaultKind>> {
        let all = [
            self.find_unknown_type(),
            self.find_mode_fault(),
            self.find_autorelabel(),
            self.find_incomplete(),
            self.find_brought(),
            self.find_other_policy(),
        ];
        all.into_iter().flatten().collect()
    }

    fn find_unknown_type(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        if !self.is_unknown || self.mode == SelinuxMode::Disabled {
            return None;
        }
        let (weight, means) = match self.mode {
            SelinuxMode::Enforcing => (
                FaultWeight::Fatal,
                "The next boot stops: systemd freezes without a policy.",
            ),
            _ => (
                FaultWeight::Partial,
                "No policy is loaded, so nothing is labelled or denied.",
            ),
        };
        Some(FaultGroup {
            kind: SelinuxFaultKind::UnknownType,
            weight,
            what: "SELINUXTYPE names a policy that does not exist",
            means,
            words: Some("Failed to load SELinux policy.".to_owned()),
            faults: vec![
                (CONFIG.to_owned(), format!("SELINUXTYPE={}", self.policy)),
                (
                    "/etc/selinux".to_owned(),
                    format!("has {}", self.known.join(", ")),
                ),
            ],
        })
    }

    fn find_mode_fault(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        let (weight, said, what) = match &self.mode {
            SelinuxMode::Unset | SelinuxMode::Enforcing => return None,
            SelinuxMode::Permissive => (
                FaultWeight::Harmless,
                "SELINUX=permissive".to_owned(),
                "SELinux only reports, and denies nothing",
            ),
            SelinuxMode::Disabled => (
                FaultWeight::Partial,
                "SELINUX=disabled".to_owned(),
                "SELinux is disabled",
            ),
            SelinuxMode::Invalid(value) if value.is_empty() => (
                FaultWeight::Partial,
                "no line SELINUX=".to_owned(),
                "SELinux has no mode, and denies nothing",
            ),
            SelinuxMode::Invalid(value) => (
                FaultWeight::Partial,
                format!("SELINUX={value}"),
                "SELINUX= has a value that does not exist",
            ),
        };
        let means = match weight {
            FaultWeight::Harmless => "Containers are not kept apart by labels.",
            _ => {
                "Nothing is denied, and new files may get no label; OpenShift supports enforcing alone."
            }
        };
        Some(FaultGroup {
            kind: SelinuxFaultKind::Mode,
            weight,
            what,
            means,
            words: None,
            faults: vec![(CONFIG.to_owned(), said)],
        })
    }

    fn find_autorelabel(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        let place = self.autorelabel.clone()?;
        Some(FaultGroup {
            kind: SelinuxFaultKind::Autorelabel,
            weight: FaultWeight::Partial,
            what: "a relabelling is asked for that OSTree cannot carry out",
            means: "The root of an OSTree system is immutable: the daemon cannot write the file, and a boot that finds it corrects \
                    no label. mco-rescue labels its files itself, and restorecon -RFv PATH corrects others.",
            words: None,
            faults: vec![(place, "asks for new labels of all files".to_owned())],
        })
    }

    fn find_incomplete(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        let modules = self.incomplete.iter();
        let faults: Vec<_> = modules
            .map(|(module, file)| (module.clone(), format!("{file} is missing")))
            .collect();
        let words = "error: Finalizing deployment: Finalizing SELinux policy: Child process exited with code 1";
        (!faults.is_empty()).then(|| FaultGroup {
            kind: SelinuxFaultKind::Incomplete,
            weight: FaultWeight::Partial,
            what: "a module of SELinux is not complete",
            means: "semodule fails with it, so the shutdown into the next OS fails: the node stays on the old one.",
            words: Some(words.to_owned()),
            faults,
        })
    }

    fn find_brought(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        let files = self.brought.iter();
        let faults: Vec<_> = files
            .map(|path| (path.clone(), "a file of the policy".to_owned()))
            .collect();
        (!faults.is_empty()).then_some(FaultGroup {
            kind: SelinuxFaultKind::Brought,
            weight: FaultWeight::Partial,
            what: "the config brings files of the SELinux policy",
            means: "They stay as they are with each OS to come, whose services may be denied what they need.",
            words: None,
            faults,
        })
    }

    fn find_other_policy(&self) -> Option<FaultGroup<SelinuxFaultKind>> {
        let (own, shipped) = self.differs.as_ref()?;
        let (weight, means) = match self.denials {
            0 => (
                FaultWeight::Harmless,
                "It was changed on this node. A new OS may not bring its own, and its services may be denied what they need.",
            ),
            _ => (
                FaultWeight::Partial,
                "It was changed on this node, and services are denied something.",
            ),
        };
        let mut faults = vec![(own.clone(), format!("differs from {shipped}"))];
        let modules = self.own_modules.iter();
        faults.extend(modules.map(|module| (module.clone(), "a module of this node".to_owned())));
        if self.denials > 0 {
            let said = format!("{} at its end", count_noun(self.denials, "denial"));
            faults.push((format!("/{AUDIT_LOG}"), said));
        }
        Some(FaultGroup {
            kind: SelinuxFaultKind::OtherPolicy,
            weight,
            what: "the SELinux policy in /etc is not that of the OS",
            means,
            words: None,
            faults,
        })
    }
}

/// The mode of SELinux.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SelinuxMode {
    /// No file sets the mode.
    #[default]
    Unset,
    /// It denies.
    Enforcing,
    /// Denials are only logged.
    Permissive,
    /// It is off.
    Disabled,
    /// No line of the file has a valid mode, so the kernel does not enforce. The value of the last line.
    Invalid(String),
}

impl SelinuxState {
    /// Returns the policy that `SELINUXTYPE=` has to name: the OS's if it exists, else the only one.
    pub fn right_policy(&self) -> Option<&String> {
        let of_os = self.of_os.as_ref().filter(|name| self.known.contains(name));
        of_os.or(match self.known.as_slice() {
            [one] => Some(one),
            _ => None,
        })
    }

    /// Returns `/etc/selinux/config` with another value, which replaces every line of the key or is appended.
    pub fn config_with(&self, key: &str, value: &str) -> Option<String> {
        let config = self.config.as_ref()?;
        let is_line = |line: &str| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('='))
        };
        let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
        let mut is_set = false;
        for line in lines.iter_mut().filter(|line| is_line(line)) {
            *line = format!("{key}={value}");
            is_set = true;
        }
        if !is_set {
            lines.push(format!("{key}={value}"));
        }
        Some(lines.join("\n") + "\n")
    }
}

/// Reads the state; with `next`, as it will be after a run of that config.
///
/// # Errors
/// A file cannot be read.
pub fn read_selinux_state(
    root: &Root,
    next: Option<NextConfig<'_>>,
) -> Result<SelinuxState, RootError> {
    let files = NodeFiles::new(root, next);
    let mut state = SelinuxState {
        autorelabel: find_autorelabel(root, &files)?,
        brought: find_brought(next),
        ..SelinuxState::default()
    };
    let path = RootPath::fixed(paths::SELINUX_CONFIG);
    let Some(bytes) = files.read_small(&path)? else {
        return Ok(state);
    };
    let of_os = root.read_small(&RootPath::fixed(SHIPPED_CONFIG))?;
    let is_plain = root.read_link(&path)?.is_none() && std::str::from_utf8(&bytes).is_ok();
    let config = String::from_utf8_lossy(&bytes).into_owned();
    let policy = policy_name(&config).to_owned();
    state.mode = find_mode(&config);
    state.of_os = of_os.map(|bytes| policy_name(&String::from_utf8_lossy(&bytes)).to_owned());
    state.config = is_plain.then(|| config.clone());
    let types = files
        .list_types(&RootPath::fixed("etc/selinux"))?
        .into_iter();
    let types = types.filter(|(_, kind)| *kind == EntryType::Directory);
    state.known = types
        .map(|(name, _)| name)
        .filter(|name| name != "tmp")
        .collect();
    state.is_unknown = !state.known.is_empty() && !state.known.contains(&policy);
    if let (Ok(own), Ok(shipped)) = (
        RootPath::parse(&format!("/etc/selinux/{policy}")),
        RootPath::parse(&format!("/usr/etc/selinux/{policy}")),
    ) {
        state.differs = compare_policies(root, &own, &shipped)?;
        read_modules(root, &own, &shipped, &mut state)?;
    }
    if state.differs.is_some() {
        state.denials = count_denials(root)?;
    }
    state.policy = policy;
    Ok(state)
}

/// Returns the file that requests a relabelling at the next boot, on a system that cannot do it.
fn find_autorelabel(root: &Root, files: &NodeFiles<'_>) -> Result<Option<String>, RootError> {
    let path = RootPath::fixed(AUTORELABEL);
    let is_asked = files.exists(&path)? && root.exists(&RootPath::fixed("usr/etc"))?;
    Ok(is_asked.then(|| path.to_string()))
}

/// Returns a config's files that belong to a policy or its module store.
fn find_brought(next: Option<NextConfig<'_>>) -> Vec<String> {
    let files = next.iter().flat_map(|next| &next.desired.files);
    let is_policy = |path: &str| {
        let below = path.strip_prefix("/etc/selinux/");
        let part = below.and_then(|below| below.split_once('/'));
        part.is_some_and(|(_, part)| part.starts_with("policy/") || part.starts_with("active/"))
    };
    let paths = files.map(|file| file.path.to_string());
    paths.filter(|path| is_policy(path)).collect()
}

/// Returns the mode as libselinux parses it: the first line with a valid value decides.
fn find_mode(config: &str) -> SelinuxMode {
    let values = config
        .lines()
        .filter_map(|line| line.strip_prefix("SELINUX="));
    let mut invalid = None;
    for value in values {
        let value = value.trim_start().to_ascii_lowercase();
        for (word, mode) in [
            ("enforcing", SelinuxMode::Enforcing),
            ("permissive", SelinuxMode::Permissive),
            ("disabled", SelinuxMode::Disabled),
        ] {
            if value.starts_with(word) {
                return mode;
            }
        }
        invalid = Some(value.trim_end().to_owned());
    }
    SelinuxMode::Invalid(invalid.unwrap_or_default())
}

/// Returns the newest policy files of both directories if they differ.
fn compare_policies(
    root: &Root,
    own: &RootPath,
    shipped: &RootPath,
) -> Result<Option<(String, String)>, RootError> {
    let newest = |directory: &RootPath| {
        let Ok(directory) = directory.join("policy") else {
            return Ok(None);
        };
        let names = root.list(&directory)?.into_iter();
        let number = |name: &String| name.strip_prefix("policy.")?.parse::<u32>().ok();
        let newest = names
            .filter(|name| number(name).is_some())
            .max_by_key(number);
        Ok::<_, RootError>(newest.and_then(|name| directory.join(&name).ok()))
    };
    let (Some(own), Some(shipped)) = (newest(own)?, newest(shipped)?) else {
        return Ok(None);
    };
    let differ = own.name() != shipped.name() || !are_equal(root, &own, &shipped)?;
    Ok(differ.then(|| (own.to_string(), shipped.to_string())))
}

fn are_equal(root: &Root, one: &RootPath, other: &RootPath) -> Result<bool, RootError> {
    let (Some(first), Some(second)) = (root.open_followed(one)?, root.open_followed(other)?) else {
        return Ok(true);
    };
    compare_files(first, second).map_err(|error| RootError::of_system(one, &error))
}

fn compare_files(mut one: std::fs::File, mut other: std::fs::File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let count = one.read(&mut left)?;
        let Some(part) = right.get_mut(..count).filter(|part| !part.is_empty()) else {
            return Ok(true);
        };
        if other.read_exact(part).is_err() || left.get(..count) != Some(&*part) {
            return Ok(false);
        }
    }
}

/// Reads the modules of the store by priority: those that the OS does not have, and incomplete ones.
fn read_modules(
    root: &Root,
    own: &RootPath,
    shipped: &RootPath,
    state: &mut SelinuxState,
) -> Result<(), RootError> {
    let (Ok(own), Ok(shipped)) = (own.join("active/modules"), shipped.join("active/modules"))
    else {
        return Ok(());
    };
    for priority in root.list(&own)? {
        let is_priority = priority.parse::<u32>().is_ok();
        let (Ok(directory), Ok(of_os)) = (own.join(&priority), shipped.join(&priority)) else {
            continue;
        };
        if !is_priority {
            continue;
        }
        let of_os: BTreeSet<String> = root.list(&of_os)?.into_iter().collect();
        for name in root.list(&directory)? {
            if of_os.contains(&name) {
                continue;
            }
            state.own_modules.push(format!("{priority}/{name}"));
            if let Ok(module) = directory.join(&name) {
                let files = root.list(&module)?;
                let missing = ["cil", "lang_ext"]
                    .into_iter()
                    .find(|file| !files.iter().any(|one| one == file));
                let missing = missing.map(|file| (module.to_string(), file));
                state.incomplete.extend(missing);
            }
        }
    }
    Ok(())
}

/// Counts the denials at the end of the audit log.
fn count_denials(root: &Root) -> Result<usize, RootError> {
    let path = RootPath::fixed(AUDIT_LOG);
    let file = match root.open_followed(&path) {
        Err(error) if error.cause.is_denied() => None,
        file => file?,
    };
    let Some(mut file) = file else {
        return Ok(0);
    };
    let read = || {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text: String = read().map_err(|error: io::Error| RootError::of_system(&path, &error))?;
    let is_denial = |line: &&str| {
        line.contains("avc:") && line.contains("denied") && !line.contains("permissive=1")
    };
    Ok(text.lines().filter(is_denial).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_valid_mode_counts() {
        for (config, mode) in [
            ("SELINUX=enforcing\n", SelinuxMode::Enforcing),
            ("SELINUX= Permissive\n", SelinuxMode::Permissive),
            (
                "#SELINUX=enforcing\nSELINUX=disabled\n",
                SelinuxMode::Disabled,
            ),
            (
                "SELINUX=enforced\nSELINUX=permissive\n",
                SelinuxMode::Permissive,
            ),
            ("SELINUX=on\n", SelinuxMode::Invalid("on".to_owned())),
            (" SELINUX=enforcing\n", SelinuxMode::Invalid(String::new())),
        ] {
            assert_eq!(find_mode(config), mode, "{config:?}");
        }
    }
}
