//! The model of spec 2.4, of which 2.0 to 2.3 are subsets. No `Debug`: it holds hashes, keys and contents.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::document::ignition::{NodeOwner, Verification};

/// The newest minor version of spec 2 that is understood.
pub const NEWEST_MINOR: u64 = 4;
/// The newest minor version of spec 2 that the daemon takes (docs/agreement.md: Documents).
pub const DAEMON_MINOR: u64 = 2;
/// The version that the result declares.
pub const RESULT_VERSION: &str = "3.5.0";

/// A config.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Config {
    #[serde(deserialize_with = "nullable")]
    pub ignition: Spec2Meta,
    #[serde(deserialize_with = "nullable")]
    pub networkd: Networkd,
    #[serde(deserialize_with = "nullable")]
    pub passwd: Spec2Passwd,
    #[serde(deserialize_with = "nullable")]
    pub storage: Spec2Storage,
    #[serde(deserialize_with = "nullable")]
    pub systemd: Spec2Systemd,
}

/// The `ignition` section. The version is read before the model.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Meta {
    #[serde(rename = "version")]
    pub _version: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub config: Spec2References,
    #[serde(deserialize_with = "nullable")]
    pub proxy: Spec2Proxy,
    #[serde(deserialize_with = "nullable")]
    pub security: Spec2Security,
    #[serde(deserialize_with = "nullable")]
    pub timeouts: Spec2Timeouts,
}

/// `ignition.config`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2References {
    #[serde(deserialize_with = "nullable")]
    pub append: Vec<Reference>,
    pub replace: Option<Reference>,
}

/// `ignition.proxy` (2.4).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2Proxy {
    #[serde(deserialize_with = "nullable")]
    pub http_proxy: String,
    #[serde(deserialize_with = "nullable")]
    pub https_proxy: String,
    #[serde(deserialize_with = "nullable")]
    pub no_proxy: Vec<String>,
}

/// `ignition.security` (2.2).
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Security {
    #[serde(deserialize_with = "nullable")]
    pub tls: Spec2Tls,
}

/// `ignition.security.tls`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2Tls {
    #[serde(deserialize_with = "nullable")]
    pub certificate_authorities: Vec<Reference>,
}

/// `ignition.timeouts` (2.1).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2Timeouts {
    pub http_response_headers: Option<i64>,
    pub http_total: Option<i64>,
}

/// A reference: to a config or to certificate authorities.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reference {
    #[serde(deserialize_with = "nullable")]
    pub source: String,
    #[serde(deserialize_with = "nullable")]
    pub http_headers: Vec<Spec2Header>,
    #[serde(deserialize_with = "nullable")]
    pub verification: Verification,
}

/// The contents of a file.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2Contents {
    #[serde(deserialize_with = "nullable")]
    pub source: String,
    #[serde(deserialize_with = "nullable")]
    pub compression: String,
    #[serde(deserialize_with = "nullable")]
    pub http_headers: Vec<Spec2Header>,
    #[serde(deserialize_with = "nullable")]
    pub verification: Verification,
}

/// An entry of `httpHeaders` (2.4).
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Header {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
}

/// The `networkd` section, which spec 3 does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Networkd {
    #[serde(deserialize_with = "nullable")]
    pub units: Vec<Value>,
}

/// The `passwd` section.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Passwd {
    #[serde(deserialize_with = "nullable")]
    pub users: Vec<Spec2User>,
    #[serde(deserialize_with = "nullable")]
    pub groups: Vec<Spec2Group>,
}

/// A user. The fields of [`Create`] are here since 2.1.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2User {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    pub password_hash: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub ssh_authorized_keys: Vec<String>,
    pub create: Option<Create>,
    pub uid: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub gecos: String,
    #[serde(deserialize_with = "nullable")]
    pub home_dir: String,
    #[serde(deserialize_with = "nullable")]
    pub no_create_home: bool,
    #[serde(deserialize_with = "nullable")]
    pub primary_group: String,
    #[serde(deserialize_with = "nullable")]
    pub groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub no_user_group: bool,
    #[serde(deserialize_with = "nullable")]
    pub no_log_init: bool,
    #[serde(deserialize_with = "nullable")]
    pub shell: String,
    #[serde(deserialize_with = "nullable")]
    pub system: bool,
}

/// The `create` section of a user: 2.0 has the fields here that 2.1 moved to the user.
#[derive(Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Create {
    pub uid: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub gecos: String,
    #[serde(deserialize_with = "nullable")]
    pub home_dir: String,
    #[serde(deserialize_with = "nullable")]
    pub no_create_home: bool,
    #[serde(deserialize_with = "nullable")]
    pub primary_group: String,
    #[serde(deserialize_with = "nullable")]
    pub groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub no_user_group: bool,
    #[serde(deserialize_with = "nullable")]
    pub no_log_init: bool,
    #[serde(deserialize_with = "nullable")]
    pub shell: String,
    #[serde(deserialize_with = "nullable")]
    pub system: bool,
}

/// A group.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec2Group {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    pub gid: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub password_hash: String,
    #[serde(deserialize_with = "nullable")]
    pub system: bool,
}

/// The `storage` section.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Storage {
    #[serde(deserialize_with = "nullable")]
    pub disks: Vec<Value>,
    #[serde(deserialize_with = "nullable")]
    pub raid: Vec<Value>,
    #[serde(deserialize_with = "nullable")]
    pub filesystems: Vec<Filesystem>,
    #[serde(deserialize_with = "nullable")]
    pub files: Vec<Spec2File>,
    #[serde(deserialize_with = "nullable")]
    pub directories: Vec<Spec2Directory>,
    #[serde(deserialize_with = "nullable")]
    pub links: Vec<Spec2Link>,
}

/// A named file system; only the built-in `root` has a place in spec 3.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Filesystem {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    pub mount: Option<Value>,
    #[serde(rename = "path")]
    pub _path: Option<String>,
}

/// A file.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2File {
    #[serde(deserialize_with = "nullable")]
    pub filesystem: String,
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    pub overwrite: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    pub mode: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub append: bool,
    #[serde(deserialize_with = "nullable")]
    pub contents: Spec2Contents,
}

/// A directory (2.1).
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Directory {
    #[serde(deserialize_with = "nullable")]
    pub filesystem: String,
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    pub overwrite: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    pub mode: Option<i64>,
}

/// A link (2.1).
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Link {
    #[serde(deserialize_with = "nullable")]
    pub filesystem: String,
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    pub overwrite: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub user: NodeOwner,
    #[serde(deserialize_with = "nullable")]
    pub group: NodeOwner,
    #[serde(deserialize_with = "nullable")]
    pub hard: bool,
    #[serde(deserialize_with = "nullable")]
    pub target: String,
}

/// The `systemd` section.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Systemd {
    #[serde(deserialize_with = "nullable")]
    pub units: Vec<Spec2Unit>,
}

/// A unit. `enable` is the switch of 2.0, `enabled` that of 2.1.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Unit {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub enable: bool,
    pub enabled: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub mask: bool,
    #[serde(deserialize_with = "nullable")]
    pub contents: String,
    #[serde(deserialize_with = "nullable")]
    pub dropins: Vec<Spec2Dropin>,
}

/// A drop-in.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Spec2Dropin {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub contents: String,
}

/// Ignition takes `null` for every field and means "absent".
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
