//! The model of spec 2.4, of which 2.0 to 2.3 are subsets. No `Debug`, because it contains hashes, keys and contents.

use serde_json::Value;

use crate::config::document::ignition::{NodeOwner, Verification};
use crate::config::document::nullable::nullable;

/// The newest supported minor version of spec 2.
pub const NEWEST_MINOR: u64 = 4;
/// The newest minor version of spec 2 that the daemon accepts (docs/develop/agreement.md: Documents).
pub const DAEMON_MINOR: u64 = 2;
/// The version that the result declares.
pub(super) const RESULT_VERSION: &str = "3.5.0";

nullable! {
    /// A config.
    pub(super) struct Spec2Config {
        pub ignition: Spec2Meta,
        pub networkd: Networkd,
        pub passwd: Spec2Passwd,
        pub storage: Spec2Storage,
        pub systemd: Spec2Systemd,
    }

    /// The `ignition` section. The version is parsed before the model.
    pub(super) struct Spec2Meta {
        #[serde(rename = "version")]
        pub _version: Option<String>,
        pub config: Spec2References,
        pub proxy: Spec2Proxy,
        pub security: Spec2Security,
        pub timeouts: Spec2Timeouts,
    }

    /// `ignition.config`.
    pub(super) struct Spec2References {
        pub append: Vec<Reference>,
        pub replace: Option<Reference>,
    }

    /// `ignition.proxy` (2.4).
    pub(super) struct Spec2Proxy {
        pub http_proxy: String,
        pub https_proxy: String,
        pub no_proxy: Vec<String>,
    }

    /// `ignition.security` (2.2).
    pub(super) struct Spec2Security {
        pub tls: Spec2Tls,
    }

    /// `ignition.security.tls`.
    pub(super) struct Spec2Tls {
        pub certificate_authorities: Vec<Reference>,
    }

    /// `ignition.timeouts` (2.1).
    pub(super) struct Spec2Timeouts {
        pub http_response_headers: Option<i64>,
        pub http_total: Option<i64>,
    }

    /// A reference: to a config or to certificate authorities.
    pub(super) struct Reference {
        pub source: String,
        pub http_headers: Vec<Spec2Header>,
        pub verification: Verification,
    }

    /// The contents of a file.
    pub(super) struct Spec2Contents {
        pub source: String,
        pub compression: String,
        pub http_headers: Vec<Spec2Header>,
        pub verification: Verification,
    }

    /// An entry of `httpHeaders` (2.4).
    pub(super) struct Spec2Header {
        pub name: String,
        pub value: String,
    }

    /// The `networkd` section, which spec 3 does not have.
    pub(super) struct Networkd {
        pub units: Vec<Value>,
    }

    /// The `passwd` section.
    pub(super) struct Spec2Passwd {
        pub users: Vec<Spec2User>,
        pub groups: Vec<Spec2Group>,
    }

    /// A user. The fields of [`Create`] are directly here since 2.1.
    pub(super) struct Spec2User {
        pub name: String,
        pub password_hash: Option<String>,
        pub ssh_authorized_keys: Vec<String>,
        pub create: Option<Create>,
        pub uid: Option<i64>,
        pub gecos: String,
        pub home_dir: String,
        pub no_create_home: bool,
        pub primary_group: String,
        pub groups: Vec<String>,
        pub no_user_group: bool,
        pub no_log_init: bool,
        pub shell: String,
        pub system: bool,
    }

    /// The `create` section of a user, with the fields that 2.1 moved to the user.
    #[derive(PartialEq)]
    pub(super) struct Create {
        pub uid: Option<i64>,
        pub gecos: String,
        pub home_dir: String,
        pub no_create_home: bool,
        pub primary_group: String,
        pub groups: Vec<String>,
        pub no_user_group: bool,
        pub no_log_init: bool,
        pub shell: String,
        pub system: bool,
    }

    /// A group.
    pub(super) struct Spec2Group {
        pub name: String,
        pub gid: Option<i64>,
        pub password_hash: String,
        pub system: bool,
    }

    /// The `storage` section.
    pub(super) struct Spec2Storage {
        pub disks: Vec<Value>,
        pub raid: Vec<Value>,
        pub filesystems: Vec<Filesystem>,
        pub files: Vec<Spec2File>,
        pub directories: Vec<Spec2Directory>,
        pub links: Vec<Spec2Link>,
    }

    /// A named file system; only the built-in `root` has an equivalent in spec 3.
    pub(super) struct Filesystem {
        pub name: String,
        pub mount: Option<Value>,
        #[serde(rename = "path")]
        pub _path: Option<String>,
    }

    /// A file.
    pub(super) struct Spec2File {
        pub filesystem: String,
        pub path: String,
        pub overwrite: Option<bool>,
        pub user: NodeOwner,
        pub group: NodeOwner,
        pub mode: Option<i64>,
        pub append: bool,
        pub contents: Spec2Contents,
    }

    /// A directory (2.1).
    pub(super) struct Spec2Directory {
        pub filesystem: String,
        pub path: String,
        pub overwrite: Option<bool>,
        pub user: NodeOwner,
        pub group: NodeOwner,
        pub mode: Option<i64>,
    }

    /// A link (2.1).
    pub(super) struct Spec2Link {
        pub filesystem: String,
        pub path: String,
        pub overwrite: Option<bool>,
        pub user: NodeOwner,
        pub group: NodeOwner,
        pub hard: bool,
        pub target: String,
    }

    /// The `systemd` section.
    pub(super) struct Spec2Systemd {
        pub units: Vec<Spec2Unit>,
    }

    /// A unit. 2.0 has `enable`, 2.1 and later `enabled`.
    pub(super) struct Spec2Unit {
        pub name: String,
        pub enable: bool,
        pub enabled: Option<bool>,
        pub mask: bool,
        pub contents: String,
        pub dropins: Vec<Spec2Dropin>,
    }

    /// A drop-in.
    pub(super) struct Spec2Dropin {
        pub name: String,
        pub contents: String,
    }
}
