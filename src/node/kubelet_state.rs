//! The checkpoint files of the kubelet, its configured policies, and the unit that removes files at boot.

use serde_json::Value;

use super::OsRelease;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::yaml;
use crate::formats::checkpoint::{self, CheckpointFile, CheckpointVerdict, JudgedCheckpoint};
use crate::host::root::{Root, RootError, RootPath};

/// Directory of the kubelet.
const KUBELET: &str = "var/lib/kubelet";
/// The configuration file that is used if the unit names none.
const CONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// Directories with the unit files of the admin and of the image.
const UNITS: [&str; 2] = [paths::UNITS, "usr/lib/systemd/system"];
/// The unit that removes checkpoint files at each boot.
pub const CLEANUP: &str = "kubelet-cleanup.service";
/// Directories of the admin whose links start units.
const STARTED_BY: [&str; 5] = [
    "multi-user.target.wants",
    "network-online.target.wants",
    "kubelet-dependencies.target.wants",
    "kubelet.service.wants",
    "kubelet.service.requires",
];
/// Maximum size of a checkpoint that is read, in bytes.
const MAX_CHECKPOINT: u64 = 16 << 20;

/// The state of the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletState {
    /// The existing files, each with its parsed content or the reason why it was not parsed.
    pub files: Vec<(CheckpointFile, Result<JudgedCheckpoint, Reason>)>,
    /// Files that the unit [`CLEANUP`] removes at each boot.
    pub removed_at_boot: Vec<CheckpointFile>,
    /// The configured policies, or the reason why they are unknown.
    pub policies: Result<Vec<ConfiguredPolicy>, Reason>,
    /// The minor version of Kubernetes, according to the root's release.
    pub minor: Option<u32>,
}

/// A policy in the kubelet's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredPolicy {
    /// The checkpoint whose policy has to match.
    pub file: CheckpointFile,
    /// Its effective value.
    pub value: String,
    /// The file that sets it or leaves it out.
    pub place: String,
    /// The value as written there, or `not set`.
    pub said: String,
}

/// Reads the state; `None` on a system without a kubelet.
///
/// # Errors
/// A path cannot be resolved.
pub fn read_kubelet_state(root: &Root) -> Result<Option<KubeletState>, RootError> {
    if root.open_directory(&RootPath::fixed(KUBELET))?.is_none() {
        return Ok(None);
    }
    let release = OsRelease::read(root)?;
    let minor = checkpoint::kubernetes_minor(release.get("OPENSHIFT_VERSION"));
    let files = checkpoint::ALL.into_iter().filter_map(|file| {
        let judged = judge_checkpoint(root, file, minor)?;
        Some((file, judged))
    });
    Ok(Some(KubeletState {
        files: files.collect(),
        removed_at_boot: removed_at_boot(root)?,
        policies: read_policies(root),
        minor,
    }))
}

/// Returns the existing files that no unit removes at the next boot.
///
/// # Errors
/// A path cannot be resolved.
pub fn kept_over_a_boot(root: &Root) -> Result<Vec<CheckpointFile>, RootError> {
    let removed = removed_at_boot(root)?;
    let mut kept = Vec::new();
    for file in checkpoint::ALL {
        if !removed.contains(&file) && root.exists(&RootPath::fixed(file.path()))? {
            kept.push(file);
        }
    }
    Ok(kept)
}

/// Reads a file; one that looks damaged is read again, because the kubelet may have been writing it.
fn judge_checkpoint(
    root: &Root,
    file: CheckpointFile,
    minor: Option<u32>,
) -> Option<Result<JudgedCheckpoint, Reason>> {
    let path = RootPath::fixed(file.path());
    let read = || match root.read_within(&path, MAX_CHECKPOINT) {
        Ok(bytes) => bytes.map(|bytes| Ok(file.judge_bytes(&bytes, minor))),
        Err(error) => Some(Err(Reason::from_error(error))),
    };
    match read()? {
        Ok(checkpoint) if checkpoint.verdict != CheckpointVerdict::Sound => read(),
        judged => Some(judged),
    }
}

/// Returns the files that the clean-up unit removes; none if the unit is masked, missing or disabled.
fn removed_at_boot(root: &Root) -> Result<Vec<CheckpointFile>, RootError> {
    let text = if is_enabled(root, CLEANUP)? {
        unit_text(root, CLEANUP)?.unwrap_or_default()
    } else {
        String::new()
    };
    let removes = |file: &CheckpointFile| {
        let path = format!("/{}", file.path());
        let mut lines = text.lines().filter(|line| line.starts_with("ExecStart"));
        lines.any(|line| line.split_whitespace().any(|word| word == path))
    };
    Ok(checkpoint::ALL.into_iter().filter(removes).collect())
}

/// Returns true if a link of the admin enables the unit.
///
/// # Errors
/// A directory cannot be read.
pub(super) fn is_enabled(root: &Root, unit: &'static str) -> Result<bool, RootError> {
    for directory in STARTED_BY {
        let folder = RootPath::parse(&format!("/{}/{directory}", paths::UNITS));
        if let Ok(path) = folder.and_then(|folder| folder.join(unit))
            && root.exists(&path)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the text of a unit file; `None` if the unit is masked.
///
/// # Errors
/// A file cannot be read.
pub(super) fn unit_text(root: &Root, name: &'static str) -> Result<Option<String>, RootError> {
    for directory in UNITS.map(RootPath::fixed) {
        if let Ok(path) = directory.join(name)
            && root.exists(&path)?
        {
            let bytes = root.read_small(&path)?;
            return Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(None)
}

/// Returns the texts of the drop-ins of a unit, in systemd's order.
fn drop_ins(root: &Root, name: &str) -> Result<Vec<String>, RootError> {
    let mut found = Vec::new();
    for directory in UNITS {
        let Ok(folder) = RootPath::parse(&format!("/{directory}/{name}.d")) else {
            continue;
        };
        for (name, bytes) in read_texts(root, &folder)? {
            found.push((
                name.rsplit('/').next().unwrap_or_default().to_owned(),
                bytes,
            ));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, text)| text).collect())
}

/// Returns the `*.conf` files of a directory, sorted by name.
fn read_texts(root: &Root, folder: &RootPath) -> Result<Vec<(String, String)>, RootError> {
    let mut names = root.list(folder)?;
    names.sort();
    let mut all = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".conf")) {
        if let Ok(path) = folder.join(name)
            && let Some(bytes) = root.read_small(&path)?
        {
            all.push((
                path.to_string(),
                String::from_utf8_lossy(&bytes).into_owned(),
            ));
        }
    }
    Ok(all)
}

/// Reads the kubelet's configuration: its file, then the drop-ins in their order.
fn read_documents(
    root: &Root,
    config: &str,
    directory: Option<String>,
) -> Result<Vec<(String, Value)>, Reason> {
    let path = RootPath::parse(config).map_err(|error| format!("{config}: {error}"))?;
    let bytes = root.read_small(&path).map_err(Reason::from_error)?;
    let bytes = bytes.ok_or_else(|| format!("{config} is missing"))?;
    let mut texts = vec![(
        config.to_owned(),
        String::from_utf8_lossy(&bytes).into_owned(),
    )];
    if let Some(directory) = directory {
        let folder =
            RootPath::parse(&directory).map_err(|error| format!("{directory}: {error}"))?;
        texts.extend(read_texts(root, &folder).map_err(Reason::from_error)?);
    }
    let mut documents = Vec::new();
    for (place, text) in texts {
        let value = yaml::parse_yaml(&text).map_err(|error| format!("{place}: {error}"))?;
        documents.push((place, value));
    }
    Ok(documents)
}

/// Reads the policies. An option of the unit takes precedence, then the last drop-in of the configuration, then its file.
fn read_policies(root: &Root) -> Result<Vec<ConfiguredPolicy>, Reason> {
    let unread = |error: RootError| error.to_string();
    let unit = unit_text(root, "kubelet.service")
        .map_err(unread)?
        .unwrap_or_default();
    let units = [
        vec![unit],
        drop_ins(root, "kubelet.service").map_err(unread)?,
    ]
    .concat();
    let option = |name: &str| {
        let words = units.iter().flat_map(|text| text.split_whitespace());
        let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.next_back().map(str::to_owned)
    };
    let config = option("--config").unwrap_or_else(|| CONFIG.to_owned());
    let documents = read_documents(root, &config, option("--config-dir"))?;
    let files = checkpoint::ALL.into_iter();
    files
        .filter_map(|file| Some((file, file.policy_key()?)))
        .map(|(file, (key, default))| {
            let flag = option(flag_of(file)).map(|value| ("kubelet.service".to_owned(), value));
            let set = documents.iter().rev().find_map(|(place, document)| {
                let value = document.get(key).and_then(Value::as_str)?;
                (!value.is_empty()).then(|| (place.clone(), value.to_owned()))
            });
            let (place, value, said) = match flag.or(set) {
                Some((_, value)) if value.contains('$') => {
                    return Err(format!("{} of kubelet.service is {value}", flag_of(file)).into());
                }
                Some((place, value)) => (place, value.clone(), format!("{key}: {value}")),
                None => {
                    let said = format!("{key} is not set, which means {default}");
                    (config.clone(), default.to_owned(), said)
                }
            };
            Ok(ConfiguredPolicy {
                file,
                value,
                place,
                said,
            })
        })
        .collect()
}

fn flag_of(file: CheckpointFile) -> &'static str {
    match file {
        CheckpointFile::Memory => "--memory-manager-policy",
        _ => "--cpu-manager-policy",
    }
}
