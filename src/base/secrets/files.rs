//! Files that are secret as a whole, by path and mode.

use crate::base::paths;

/// Suffixes of the names of files with keys and passwords.
const ENDINGS: [&str; 16] = [
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".kubeconfig",
    ".keytab",
    ".nmconnection",
    ".psk",
    ".ign",
    ".secrets",
    ".secret",
    ".kdbx",
    ".ppk",
    ".age-key",
    ".htpasswd",
];
/// Names of files with keys and passwords.
const NAMES: [&str; 38] = [
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "opasswd",
    "kubeconfig",
    ".netrc",
    "netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".dockercfg",
    ".dockerconfigjson",
    "auth.json",
    "pull-secret",
    "pull-secret.json",
    "htpasswd",
    "id_rsa",
    "id_ecdsa",
    "id_ed25519",
    "id_dsa",
    "chap-secrets",
    "pap-secrets",
    "ipsec.secrets",
    "chrony.keys",
    "ntp.keys",
    "krb5.keytab",
    "rndc.key",
    "user-data",
    "keyfile",
    "luks-keyfile",
    "master.passwd",
    ".vault-token",
    ".s3cfg",
    ".passwd-s3fs",
    "smbpasswd",
    "passwd.tdb",
    "sasl_passwd",
];
/// Directories of keys and passwords.
const DIRECTORIES: [&str; 6] = [
    "etc/cryptsetup-keys.d",
    "etc/NetworkManager/system-connections",
    "etc/wireguard",
    "etc/pki/tls/private",
    "etc/credstore",
    "etc/samba/private",
];

/// Returns the reason why the content of a file is secret as a whole. `path` is relative to the root; `mode` is `None` if
/// unknown.
pub fn reason_of_file(path: &str, mode: Option<u32>) -> Option<&'static str> {
    let path = path.trim_start_matches('/');
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_in = |directory: &str| {
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    if paths::SECRETS.contains(&path) || paths::PULL_SECRETS.contains(&path) {
        return Some("it is a file with credentials");
    }
    if DIRECTORIES.iter().any(|directory| is_in(directory)) {
        return Some("files of this directory hold keys or passwords");
    }
    let small = name.to_ascii_lowercase();
    let is_host_key = small.starts_with("ssh_host_") && small.ends_with("_key");
    let is_ifcfg_keys = path.contains("network-scripts/keys-");
    let is_named = NAMES.contains(&small.as_str())
        || ENDINGS.iter().any(|ending| small.ends_with(ending))
        || is_host_key
        || is_ifcfg_keys;
    if is_named {
        return Some("files of this name hold keys or passwords");
    }
    mode.is_some_and(is_private)
        .then_some("not everyone may read it")
}

/// Parts of names of files and directories that may contain secrets.
const PARTS: [&str; 14] = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "credential",
    "private",
    "apikey",
    "api-key",
    "api_key",
    "psk",
    "auth",
    "shadow",
    "keyfile",
    "kubeconfig",
];
/// Directories that contain both keys and certificates.
const MIXED: [&str; 4] = [
    "etc/ssh/",
    "etc/pki/",
    "etc/kubernetes/static-pod-resources/",
    "etc/mco-rescue/",
];

/// Returns true for a path that may contain a secret; broader than [`reason_of_file`], for use without a prompt.
pub fn may_be_secret(path: &str) -> bool {
    let path = path.trim_start_matches('/');
    let small = path.to_ascii_lowercase();
    reason_of_file(path, None).is_some()
        || MIXED.iter().any(|directory| path.starts_with(directory))
        || PARTS.iter().any(|part| small.contains(part))
        || small.ends_with(".pem")
        || small.ends_with("key")
}

/// Returns true for the mode of a file that not everyone may read.
pub fn is_private(mode: u32) -> bool {
    mode & 0o004 == 0
}
