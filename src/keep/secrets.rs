//! Contents that may be a secret, by path, mode and text.

use crate::object::Object;
use crate::paths;
use crate::root::RootPath;
use crate::secret_text::{KEY_FILE_ENDINGS, has_password_hash, has_private_key, logins_of_urls};

/// Parts of the names of settings whose value is a secret.
const WORDS: [&str; 9] = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "credential",
    "private-key",
    "private_key",
    "privatekey",
    "apikey",
];
/// Values that are no secret, whatever their name.
const HARMLESS: [&str; 8] = ["yes", "no", "true", "false", "on", "off", "none", "null"];

/// The reason why a file may hold a secret.
pub(super) fn reason(
    path: &RootPath,
    object: Option<&Object>,
    bytes: &[u8],
) -> Option<&'static str> {
    let relative = path.relative();
    if paths::SECRETS.contains(&relative) || paths::PULL_SECRETS.contains(&relative) {
        return Some("it is a file with credentials");
    }
    if KEY_FILE_ENDINGS
        .iter()
        .any(|ending| relative.ends_with(ending))
    {
        return Some("files of this name hold keys or passwords");
    }
    if object.is_some_and(|object| object.mode & 0o004 == 0) {
        return Some("not everyone may read it");
    }
    reason_of_text(&String::from_utf8_lossy(bytes))
}

/// The reason why a text may hold a secret.
pub(super) fn reason_of_text(text: &str) -> Option<&'static str> {
    let small = text.to_ascii_lowercase();
    if has_private_key(&small) {
        return Some("it has a private key");
    }
    if small.contains("\"auths\"") || small.contains("client-key-data") {
        return Some("it has credentials of registries or of the cluster");
    }
    if has_password_hash(&small) {
        return Some("it has the hash of a password");
    }
    if logins_of_urls(&small).any(|login| login.contains(':')) {
        return Some("it has a URL with a password");
    }
    small
        .lines()
        .any(is_secret_setting)
        .then_some("it has a setting that looks like a password")
}

/// The reason why a kernel argument may hold a secret.
pub(super) fn reason_of_argument(argument: &str) -> Option<&'static str> {
    reason_of_text(argument)
}

/// Returns true for a line such as `password = hunter2`.
fn is_secret_setting(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with(['#', ';']) || line.starts_with("//") {
        return false;
    }
    let Some(at) = line.find(['=', ':', ' ', '\t']) else {
        return false;
    };
    let (name, value) = line.split_at(at);
    let value = value.trim_matches(['=', ':', ' ', '\t', '"', '\'', ',']);
    // `Environment="TOKEN=..."` and the like.
    let inner = value.split_whitespace().any(|word| {
        word.split_once('=')
            .is_some_and(|(name, value)| names_secret(name) && has_value(value))
    });
    inner || names_secret(name) && has_value(value)
}

fn names_secret(name: &str) -> bool {
    WORDS.iter().any(|word| name.contains(word)) || name.ends_with("psk")
}

/// Returns true for a value that may be a secret: no word of a switch, no number, no path.
fn has_value(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    !value.is_empty()
        && !HARMLESS.contains(&value)
        && !value.starts_with('/')
        && !value.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_secrets_by_their_text() {
        for text in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n",
            "{\"auths\": {\"quay.io\": {\"auth\": \"eDp5\"}}}",
            "root:$6$salt$hash:1::::::\n",
            "HTTPS_PROXY=http://user:word@proxy.example:3128\n",
            "password = hunter2\n",
            "  api-token: abcdef\n",
            "[Service]\nEnvironment=\"MY_TOKEN=abc\"\n",
            "wpa-psk=abcdefgh\n",
        ] {
            assert!(reason_of_text(text).is_some(), "{text}");
        }
        for text in [
            "PasswordAuthentication no\n",
            "# password = x\n",
            "server time.example iburst\n",
            "-----BEGIN CERTIFICATE-----\nMII\n",
            "credentials=/etc/samba/secret\n",
            "MaxPasswords: 3\n",
            "url=http://mirror.example/os@sha256:abc\n",
        ] {
            assert_eq!(reason_of_text(text), None, "{text}");
        }
    }
}
