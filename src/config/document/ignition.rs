//! The Ignition config: one model for spec 3.0 to 3.6, as written in documents.
//!
//! Values only: `decode` parses them from a text, `check` has their rules.

use std::sync::Arc;

use serde_json::Value;

use super::contents::{Contents, ContentsError, Measured, Memo};
use super::list::List;
use super::nullable::nullable;
use super::text::Text;

/// Newest supported minor version of spec 3.
pub const NEWEST_MINOR: u64 = 6;
/// The newest minor version that the daemon (as of 2026-08) accepts (docs/develop/agreement.md: Documents).
pub const DAEMON_MINOR: u64 = 5;

nullable! {
    /// An Ignition config.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Ignition {
        /// Version and references.
        pub ignition: Meta,
        /// Kernel arguments of Ignition itself (not `spec.kernelArguments`).
        pub kernel_arguments: KernelArguments,
        /// Users and groups.
        pub passwd: Passwd,
        /// Files, directories, links, disks and file systems.
        pub storage: Storage,
        /// Units.
        pub systemd: Systemd,
    }

    /// The `ignition` section.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Meta {
        /// Spec version, such as `3.5.0`.
        pub version: String,
        /// Other configs to be merged.
        pub config: References,
        /// Proxies for http and https sources (3.1).
        pub proxy: ProxySection,
        /// Certificate authorities for https sources.
        pub security: Security,
        /// Limits for http sources.
        pub timeouts: Timeouts,
    }

    /// `ignition.security`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Security {
        /// Security settings; spec 3 only defines TLS.
        pub tls: TlsSection,
    }

    /// `ignition.security.tls`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TlsSection {
        /// PEM bundles that are trusted in addition to the system's.
        pub certificate_authorities: List<Resource>,
    }

    /// `ignition.timeouts`, in seconds.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Timeouts {
        /// Time limit for the headers of one response, in seconds; 10 by default.
        pub http_response_headers: Option<i64>,
        /// Time limit for all attempts including the body, in seconds; 0, the default, means no limit.
        pub http_total: Option<i64>,
    }

    /// `ignition.proxy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ProxySection {
        /// For http URLs.
        pub http_proxy: Option<String>,
        /// For https URLs.
        pub https_proxy: Option<String>,
        /// Hosts without a proxy.
        pub no_proxy: List<String>,
    }

    /// `ignition.config`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct References {
        /// Configs merged into this one.
        pub merge: List<Resource>,
        /// A config that replaces this one.
        pub replace: Resource,
    }

    /// `kernelArguments` (3.3).
    #[derive(Debug, Clone, PartialEq)]
    pub struct KernelArguments {
        /// Arguments that must be present.
        pub should_exist: List<String>,
        /// Arguments that must be absent.
        pub should_not_exist: List<String>,
    }

    /// The `passwd` section.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Passwd {
        /// Users; a MachineConfig may only have `core`.
        pub users: List<User>,
        /// Groups; a MachineConfig must have none.
        pub groups: List<Group>,
    }

    /// A group.
    #[derive(Clone, PartialEq, Eq)]
    pub struct Group {
        /// Name.
        pub name: String,
        /// Numeric id.
        pub gid: Option<i64>,
        /// Password hash in crypt(3) form.
        pub password_hash: Option<String>,
        /// True for a system group.
        pub system: Option<bool>,
        /// False removes the group (3.2).
        pub should_exist: Option<bool>,
    }
}

impl std::fmt::Debug for Group {
    // The hash must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({})", self.name)
    }
}

nullable! {
    /// A user.
    #[derive(Clone, PartialEq)]
    pub struct User {
        /// Login name.
        pub name: String,
        /// Password hash in crypt(3) form.
        pub password_hash: Option<String>,
        /// Public keys, one line each.
        pub ssh_authorized_keys: List<String>,
        /// Numeric id.
        pub uid: Option<i64>,
        /// Comment field.
        pub gecos: Option<String>,
        /// Home directory.
        pub home_dir: Option<String>,
        /// True to create no home directory.
        pub no_create_home: Option<bool>,
        /// Name of the primary group.
        pub primary_group: Option<String>,
        /// Supplementary groups.
        pub groups: List<String>,
        /// True to create no group for the user.
        pub no_user_group: Option<bool>,
        /// True to leave lastlog and faillog unchanged.
        pub no_log_init: Option<bool>,
        /// Login shell.
        pub shell: Option<String>,
        /// True for a system account.
        pub system: Option<bool>,
        /// False removes the user (3.2).
        pub should_exist: Option<bool>,
    }
}

impl Ignition {
    /// Returns the minor version of spec 3 that the config declares; the newest for an empty config.
    pub fn minor_version(&self) -> u64 {
        let minor = self.ignition.version.split('.').nth(1);
        minor
            .and_then(|minor| minor.parse().ok())
            .unwrap_or(NEWEST_MINOR)
    }
}

impl User {
    /// Returns true if only the fields that the daemon applies are set: name, hash and keys.
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
    // Neither hash nor keys may appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "User({}, {} keys)",
            self.name,
            self.ssh_authorized_keys.len()
        )
    }
}

nullable! {
    /// The `storage` section.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Storage {
        /// Files.
        pub files: List<File>,
        /// Directories.
        pub directories: List<ConfigDirectory>,
        /// Links.
        pub links: List<Link>,
        /// Partition tables.
        pub disks: List<Value>,
        /// RAID arrays.
        pub raid: List<Value>,
        /// File systems.
        pub filesystems: List<Value>,
        /// Encrypted devices (3.2).
        pub luks: List<Value>,
    }

    /// A user or group reference.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeOwner {
        /// Numeric id; takes precedence over the name.
        pub id: Option<i64>,
        /// Name, looked up in the root's own account files.
        pub name: Option<String>,
    }

    /// A directory.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ConfigDirectory {
        /// Absolute path.
        pub path: String,
        /// An existing object may be replaced.
        pub overwrite: Option<bool>,
        /// Owner.
        pub user: NodeOwner,
        /// Group.
        pub group: NodeOwner,
        /// Permission bits, as a decimal number.
        pub mode: Option<i64>,
    }

    /// A file.
    #[derive(Debug, Clone, PartialEq)]
    pub struct File {
        /// Absolute path.
        pub path: String,
        /// An existing object may be replaced; the daemon always does.
        pub overwrite: Option<bool>,
        /// Owner.
        pub user: NodeOwner,
        /// Group.
        pub group: NodeOwner,
        /// Permission bits, as a decimal number.
        pub mode: Option<i64>,
        /// Content.
        pub contents: Resource,
        /// Fragments to be appended.
        pub append: List<Resource>,
    }

    /// A link.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Link {
        /// Absolute path.
        pub path: String,
        /// An existing object may be replaced.
        pub overwrite: Option<bool>,
        /// Owner of a soft link.
        pub user: NodeOwner,
        /// Group of a soft link.
        pub group: NodeOwner,
        /// Path that the link leads to.
        pub target: Option<String>,
        /// True for a hard link.
        pub hard: Option<bool>,
    }

    /// Contents with a source: of a file, a fragment, a config or a certificate bundle.
    #[derive(Clone, PartialEq)]
    pub struct Resource {
        /// URL; empty means empty content.
        pub source: Option<Text>,
        /// `gzip` or nothing.
        pub compression: Option<String>,
        /// Headers for HTTP sources.
        pub http_headers: List<HttpHeader>,
        /// Hash of the decompressed bytes.
        pub verification: Verification,
        /// Bytes that were fetched from the source, decompressed and verified.
        #[serde(skip)]
        pub fetched: Option<Arc<[u8]>>,
        /// Size and digest of its contents, once measured.
        #[serde(skip)]
        memo: Memo,
    }
}

impl Resource {
    /// Stores bytes that were fetched from the source, decompressed and verified.
    pub fn set_fetched(&mut self, bytes: Arc<[u8]>) {
        self.fetched = Some(bytes);
        self.memo = Memo::default();
    }

    /// Returns the fetched contents, or else those of its source.
    pub fn contents(&self) -> Result<Contents, ContentsError> {
        match &self.fetched {
            Some(bytes) => Ok(Contents::from_fetched(bytes)),
            None => Contents::new(self.source.clone(), self.compression.as_deref()),
        }
    }

    /// Returns size and digest of the contents, which are computed at the first call.
    pub fn measured(&self) -> Result<Measured, ContentsError> {
        self.memo.get_or_measure(|| self.contents())
    }
}

nullable! {
    /// A header of an http request.
    #[derive(Clone, PartialEq, Eq)]
    pub struct HttpHeader {
        /// Name.
        pub name: String,
        /// Value; without it, the header is removed from the parent config.
        pub value: Option<String>,
    }
}

impl std::fmt::Debug for HttpHeader {
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

nullable! {
    /// `verification`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Verification {
        /// `sha512-…` or `sha256-…`.
        pub hash: Option<String>,
    }

    /// The `systemd` section.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Systemd {
        /// Units.
        pub units: List<Unit>,
    }

    /// A unit.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Unit {
        /// Name with suffix.
        pub name: String,
        /// True enables, false disables; if missing, the presets decide.
        pub enabled: Option<bool>,
        /// True masks, false unmasks; if missing, nothing changes.
        pub mask: Option<bool>,
        /// The unit file; empty means that the config does not own it.
        pub contents: Option<String>,
        /// Drop-ins.
        pub dropins: List<Dropin>,
    }

    /// A drop-in of a unit.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Dropin {
        /// File name ending in `.conf`.
        pub name: String,
        /// Content; empty means that the file does not exist.
        pub contents: Option<String>,
    }
}

/// Returns the text of a unit file or drop-in that should exist: empty contents mean that the config does not own it.
fn non_empty(contents: Option<&String>) -> Option<&str> {
    contents.map(String::as_str).filter(|text| !text.is_empty())
}

impl Unit {
    /// Returns the unit file's text, if the config has one.
    pub fn text(&self) -> Option<&str> {
        non_empty(self.contents.as_ref())
    }
}

impl Dropin {
    /// Returns the drop-in's text, if the config has one.
    pub fn text(&self) -> Option<&str> {
        non_empty(self.contents.as_ref())
    }
}
