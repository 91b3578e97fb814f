//! The Ignition config: one model for spec 3.0 to 3.6, as the documents write it.
//!
//! Parsing only: unknown keys and fields newer than the declared version become
//! warnings, as in Ignition; rules are in `check`.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::finding::Finding;
use super::list::List;
use super::resource::{Memo, is_packed};
use super::spec2::{self, Converted};
use super::text::Text;
use super::{fields, served};
use crate::parallel;

/// Minor versions of spec 3 that are understood.
pub const NEWEST_MINOR: u64 = 6;
/// The newest minor version that the daemon of 2026-08 takes (docs/agreement.md: Documents).
pub const DAEMON_MINOR: u64 = 5;

/// An Ignition config.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ignition {
    /// Version and references.
    #[serde(deserialize_with = "nullable")]
    pub ignition: Meta,
    /// Kernel arguments of Ignition itself (not `spec.kernelArguments`).
    #[serde(deserialize_with = "nullable")]
    pub kernel_arguments: KernelArguments,
    /// Users and groups.
    #[serde(deserialize_with = "nullable")]
    pub passwd: Passwd,
    /// Files and what is below them.
    #[serde(deserialize_with = "nullable")]
    pub storage: Storage,
    /// Units.
    #[serde(deserialize_with = "nullable")]
    pub systemd: Systemd,
}

/// The `ignition` section.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Spec version, such as `3.5.0`.
    #[serde(deserialize_with = "nullable")]
    pub version: String,
    /// Other configs to be merged.
    #[serde(deserialize_with = "nullable")]
    pub config: References,
    /// Proxies for http and https sources (3.1).
    #[serde(deserialize_with = "nullable")]
    pub proxy: Proxy,
    /// Certificate authorities for https sources.
    #[serde(deserialize_with = "nullable")]
    pub security: Security,
    /// How long http sources may take.
    #[serde(deserialize_with = "nullable")]
    pub timeouts: Timeouts,
}

/// `ignition.security`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Security {
    /// TLS alone is known.
    #[serde(deserialize_with = "nullable")]
    pub tls: Tls,
}

/// `ignition.security.tls`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Tls {
    /// PEM bundles that are trusted besides those of the system.
    #[serde(deserialize_with = "nullable")]
    pub certificate_authorities: List<Resource>,
}

/// `ignition.timeouts`, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// Until the headers of one answer are there; 10 by default.
    pub http_response_headers: Option<i64>,
    /// For all attempts and the body together; 0, the default, sets no limit.
    pub http_total: Option<i64>,
}

/// `ignition.proxy`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Proxy {
    /// For http URLs.
    pub http_proxy: Option<String>,
    /// For https URLs.
    pub https_proxy: Option<String>,
    /// Hosts without a proxy.
    #[serde(deserialize_with = "nullable")]
    pub no_proxy: List<String>,
}

/// `ignition.config`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct References {
    /// Configs merged into this one.
    #[serde(deserialize_with = "nullable")]
    pub merge: List<Resource>,
    /// A config that replaces this one.
    #[serde(deserialize_with = "nullable")]
    pub replace: Resource,
}

/// `kernelArguments` (3.3).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KernelArguments {
    /// Arguments that must be there.
    #[serde(deserialize_with = "nullable")]
    pub should_exist: List<String>,
    /// Arguments that must not be there.
    #[serde(deserialize_with = "nullable")]
    pub should_not_exist: List<String>,
}

/// The `passwd` section.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Passwd {
    /// Users; a MachineConfig may only have `core`.
    #[serde(deserialize_with = "nullable")]
    pub users: List<User>,
    /// Groups; a MachineConfig may have none.
    #[serde(deserialize_with = "nullable")]
    pub groups: List<Group>,
}

/// A group.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Group {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Numeric id.
    pub gid: Option<i64>,
    /// Password hash in crypt(3) form.
    pub password_hash: Option<String>,
    /// Whether this is a system group.
    pub system: Option<bool>,
    /// Whether the group is to exist (3.2).
    pub should_exist: Option<bool>,
}

impl std::fmt::Debug for Group {
    // The hash may reach no log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({})", self.name)
    }
}

/// A user.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct User {
    /// Login name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Password hash in crypt(3) form.
    pub password_hash: Option<String>,
    /// Public keys, one line each.
    #[serde(deserialize_with = "nullable")]
    pub ssh_authorized_keys: List<String>,
    /// Numeric id.
    pub uid: Option<i64>,
    /// Comment field.
    pub gecos: Option<String>,
    /// Home directory.
    pub home_dir: Option<String>,
    /// Whether to leave the home out.
    pub no_create_home: Option<bool>,
    /// Name of the primary group.
    pub primary_group: Option<String>,
    /// Supplementary groups.
    #[serde(deserialize_with = "nullable")]
    pub groups: List<String>,
    /// Whether to leave the user's own group out.
    pub no_user_group: Option<bool>,
    /// Whether to leave lastlog and faillog alone.
    pub no_log_init: Option<bool>,
    /// Login shell.
    pub shell: Option<String>,
    /// Whether this is a system account.
    pub system: Option<bool>,
    /// Whether the user is to exist (3.2).
    pub should_exist: Option<bool>,
}

impl Ignition {
    /// The minor version of spec 3 that the config declares; the newest for an empty one.
    pub fn minor(&self) -> u64 {
        let minor = self.ignition.version.split('.').nth(1);
        minor
            .and_then(|minor| minor.parse().ok())
            .unwrap_or(NEWEST_MINOR)
    }
}

impl User {
    /// Whether only the fields that the daemon applies are set: name, hash and keys.
    pub fn has_only_credentials(&self) -> bool {
        let bare = Self {
            name: self.name.clone(),
            password_hash: self.password_hash.clone(),
            ssh_authorized_keys: self.ssh_authorized_keys.clone(),
            ..Self::default()
        };
        *self == bare
    }
}

impl std::fmt::Debug for User {
    // Neither hash nor keys may reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "User({}, {} keys)",
            self.name,
            self.ssh_authorized_keys.len()
        )
    }
}

/// The `storage` section.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Storage {
    /// Files.
    #[serde(deserialize_with = "nullable")]
    pub files: List<File>,
    /// Directories.
    #[serde(deserialize_with = "nullable")]
    pub directories: List<Node>,
    /// Links.
    #[serde(deserialize_with = "nullable")]
    pub links: List<Link>,
    /// Partition tables.
    #[serde(deserialize_with = "nullable")]
    pub disks: List<Value>,
    /// RAID arrays.
    #[serde(deserialize_with = "nullable")]
    pub raid: List<Value>,
    /// File systems.
    #[serde(deserialize_with = "nullable")]
    pub filesystems: List<Value>,
    /// Encrypted devices (3.2).
    #[serde(deserialize_with = "nullable")]
    pub luks: List<Value>,
}

/// A user or group reference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeOwner {
    /// Numeric id; wins over the name.
    pub id: Option<i64>,
    /// Name, looked up in the root's own account files.
    pub name: Option<String>,
}

/// What files, directories and links have in common; a directory has nothing else.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Absolute path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// Whether what is there may be replaced.
    pub overwrite: Option<bool>,
    /// Owner.
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    /// Group.
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    /// Permission bits, as a decimal number.
    pub mode: Option<i64>,
}

/// A file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct File {
    /// Absolute path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// Whether what is there may be replaced; the daemon always does.
    pub overwrite: Option<bool>,
    /// Owner.
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    /// Group.
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    /// Permission bits, as a decimal number.
    pub mode: Option<i64>,
    /// Content.
    #[serde(deserialize_with = "nullable")]
    pub contents: Resource,
    /// Fragments to be appended.
    #[serde(deserialize_with = "nullable")]
    pub append: List<Resource>,
}

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Absolute path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// Whether what is there may be replaced.
    pub overwrite: Option<bool>,
    /// Owner of a soft link.
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    /// Group of a soft link.
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    /// Where it leads.
    pub target: Option<String>,
    /// Whether it is a hard link.
    pub hard: Option<bool>,
}

/// Something with a source.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    /// URL; empty means empty content.
    pub source: Option<Text>,
    /// `gzip` or nothing.
    pub compression: Option<String>,
    /// Headers for HTTP sources.
    #[serde(deserialize_with = "nullable")]
    pub http_headers: List<Header>,
    /// Hash of the decompressed bytes.
    #[serde(deserialize_with = "nullable")]
    pub verification: Verification,
    /// What was fetched from the source, unpacked and verified.
    #[serde(skip)]
    pub fetched: Option<Arc<[u8]>>,
    /// What its contents came to when they were looked at.
    #[serde(skip)]
    pub(super) memo: Memo,
}

/// A header of an http request.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Value; absent, it takes the header of a parent config away.
    pub value: Option<String>,
}

impl std::fmt::Debug for Header {
    // The value may be a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Header({})", self.name)
    }
}

impl std::fmt::Debug for Resource {
    // The source may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Resource({} bytes of source)",
            self.source.as_deref().map_or(0, str::len)
        )
    }
}

/// `verification`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// `sha512-…` or `sha256-…`.
    pub hash: Option<String>,
}

/// The `systemd` section.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Systemd {
    /// Units.
    #[serde(deserialize_with = "nullable")]
    pub units: List<Unit>,
}

/// A unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Unit {
    /// Name with suffix.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// On, off, or left to the presets.
    pub enabled: Option<bool>,
    /// Masked, unmasked, or left alone.
    pub mask: Option<bool>,
    /// The unit file; empty means "not ours".
    pub contents: Option<String>,
    /// Drop-ins.
    #[serde(deserialize_with = "nullable")]
    pub dropins: List<Dropin>,
}

/// A drop-in of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Dropin {
    /// File name ending in `.conf`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Content; empty means "no such file".
    pub contents: Option<String>,
}

/// Ignition takes `null` for every field and means "absent".
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A config that was read, whatever its spec.
#[derive(Debug)]
pub struct Parsed {
    /// The config, in the newest model.
    pub config: Ignition,
    /// What the person should know.
    pub warnings: Vec<Finding>,
    /// How it was converted, if it was of spec 2.
    pub converted: Option<Converted>,
    /// It is only a version, as the encapsulated first-boot object has it.
    pub emptied: bool,
    /// Keys that stand twice (V28); only a config as it is written is checked for them.
    duplicates: Vec<Finding>,
}

impl Parsed {
    /// What every rule says of the config, which stands at `at`, after what reading it said.
    pub fn findings(&self, at: &str) -> Vec<Finding> {
        let checked = super::check::ignition(&self.config, at);
        let rules = self.duplicates.iter().cloned().chain(checked);
        let rules = rules.map(|finding| self.located(finding));
        self.warnings.iter().cloned().chain(rules).collect()
    }

    /// A finding about the config, with the path as the document writes it.
    pub fn located(&self, finding: Finding) -> Finding {
        located(self.converted.as_ref(), finding)
    }
}

fn located(converted: Option<&Converted>, mut finding: Finding) -> Finding {
    if let Some(converted) = converted {
        finding.path = converted.original(&finding.path);
    }
    finding
}

/// Parses an Ignition config of spec 2 or 3. `at` is its path in the document.
///
/// Returns the config with warnings, or every error found while reading.
pub fn parse(json: &str, at: &str) -> Result<Parsed, Vec<Finding>> {
    let outline = super::json::outline(json, at).map_err(|finding| vec![finding])?;
    object(&outline, at).map_err(|finding| vec![finding])?;
    let version = outline.pointer("/ignition/version");
    let version = version.and_then(Value::as_str);
    if !version.is_some_and(spec2::is_spec2) && !spec2::is_spec1(&outline) {
        return parse_3(json, outline, at);
    }
    let emptied = served::is_emptied(&outline);
    let mut converted = spec2::convert_text(json, at)?;
    let locate = |findings: Vec<Finding>| -> Vec<Finding> {
        findings
            .into_iter()
            .map(|finding| located(Some(&converted), finding))
            .collect()
    };
    let json = Text::from(converted.config.to_string());
    let parsed = json.read(|json| {
        let outline = super::json::outline(json, at).map_err(|finding| vec![finding])?;
        parse_3(json, outline, at)
    });
    let mut parsed = parsed.map_err(locate)?;
    let mut all = locate(std::mem::take(&mut parsed.warnings));
    all.splice(0..0, std::mem::take(&mut converted.warnings));
    parsed.warnings = all;
    parsed.converted = Some(converted);
    parsed.emptied = emptied;
    Ok(parsed)
}

/// What to do with a packed config.
pub const UNPACK: &str = "it is base64 of gzip data: unpack it (base64 -d | gunzip) and give the JSON text that comes out";

/// An Ignition config is an object. The daemon unpacks none in a MachineConfig, and the API keeps no text there.
///
/// # Errors
/// Another value.
pub fn object(config: &Value, at: &str) -> Result<(), Finding> {
    let packed = config.as_str().is_some_and(is_packed);
    if config.is_object() {
        return Ok(());
    }
    let message = if packed {
        format!("is a text, where an Ignition config is an object; {UNPACK}")
    } else {
        "is no object; an Ignition config is one, such as {\"ignition\": {\"version\": \"3.5.0\"}}"
            .to_owned()
    };
    Err(Finding::error(at, message))
}

fn parse_3(json: &str, mut outline: Value, at: &str) -> Result<Parsed, Vec<Finding>> {
    let minor = version(&outline, at).map_err(|finding| vec![finding])?;
    let emptied = served::is_emptied(&outline);
    let mut unknown = Vec::new();
    let mut config: Ignition = super::json::from_outlined(json, &outline, at, &mut unknown)
        .map_err(|finding| vec![finding])?;
    let (errors, mut warnings): (Vec<_>, Vec<_>) = unknown
        .into_iter()
        .partition(|finding| finding.severity == super::finding::Severity::Error);
    if !errors.is_empty() {
        return Err(errors);
    }
    let newer = fields::drop_newer(&mut outline, minor, at);
    if !newer.is_empty() {
        config = without_newer(json, minor, at).map_err(|finding| vec![finding])?;
    }
    warnings.extend(newer);
    warnings.extend(newer_than_the_daemon(minor, at));
    measure(&config.storage.files);
    Ok(Parsed {
        config,
        warnings,
        converted: None,
        emptied,
        duplicates: fields::duplicates(&outline, at),
    })
}

/// Fewer files than this are measured by one thread.
const PART: usize = 64;

/// Decodes the contents of many files at once: what they come to is asked for one after the other later.
fn measure(files: &[File]) {
    if files.len() >= 2 * PART {
        parallel::in_parts(files, PART, |part| {
            part.iter().for_each(|file| drop(file.contents.measured()));
        });
    }
}

/// Reads a config again, without the fields that are newer than its version.
fn without_newer(json: &str, minor: u64, at: &str) -> Result<Ignition, Finding> {
    let mut value: Value = serde_json::from_str(json).map_err(|e| super::json::syntax(at, &e))?;
    fields::drop_newer(&mut value, minor, at);
    super::json::from_str(&value.to_string(), at, &mut Vec::new())
}

fn newer_than_the_daemon(minor: u64, at: &str) -> Option<Finding> {
    let message = format!(
        "spec 3.{minor} is newer than what the Machine Config Daemon takes (3.{DAEMON_MINOR}); it would refuse this config"
    );
    (minor > DAEMON_MINOR)
        .then(|| Finding::warning(super::check::place(at, "ignition.version"), message))
}

/// The minor version of a supported spec 3 config. The schema is chosen by it, so of V17 (version and schema
/// differ) only a version without a schema is left.
fn version(value: &Value, at: &str) -> Result<u64, Finding> {
    let path = super::check::place(at, "ignition.version");
    let text = match value.pointer("/ignition/version") {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => {
            let message =
                "missing; an Ignition config must name its spec version, such as \"3.5.0\"";
            return Err(Finding::error(path, message));
        }
        Some(_) => {
            let message = "is not a string; write the spec version in quotes, such as \"3.5.0\"";
            return Err(Finding::error(path, message));
        }
    };
    let parts: Vec<Option<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [Some(3), Some(minor), Some(0)] if *minor <= NEWEST_MINOR => Ok(*minor),
        [Some(_), Some(_), Some(_)] => {
            let message = format!(
                "unsupported Ignition version {text:?}; 3.0.0 to 3.{NEWEST_MINOR}.0 are understood"
            );
            Err(Finding::error(path, message))
        }
        _ => Err(Finding::error(
            path,
            format!("{text:?} is not a version of the form X.Y.Z"),
        )),
    }
}
