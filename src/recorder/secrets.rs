//! Contents and arguments that look like a secret: the recorder never keeps them, even where an option asks for them.

use crate::secret_text::{KEY_FILE_ENDINGS, has_password_hash, logins_of_urls};

/// Parts of a name that stand for a secret.
const WORDS: [&str; 14] = [
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
    "bearer",
    "shadow",
    "keyfile",
];

/// Directories that hold keys or passwords.
const DIRECTORIES: [&str; 5] = [
    "/etc/ssh/",
    "/etc/pki/",
    "/etc/kubernetes/static-pod-resources/",
    "/etc/NetworkManager/system-connections/",
    "/etc/mco-rescue/",
];

/// Returns the reason why a path may not be copied.
pub fn refuse_path(path: &str) -> Option<&'static str> {
    let name = path.to_ascii_lowercase();
    if !path.starts_with("/etc/") || path.split('/').any(|part| matches!(part, ".." | ".")) {
        return Some("is not below /etc");
    }
    let is_listed = crate::paths::SECRETS.contains(&path.trim_start_matches('/'))
        || DIRECTORIES
            .iter()
            .any(|directory| path.starts_with(directory))
        || KEY_FILE_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || name.ends_with(".pem")
        || name.contains("kubeconfig")
        || name
            .rsplit('/')
            .next()
            .is_some_and(|name| name.ends_with("key"))
        || WORDS.iter().any(|word| name.contains(word));
    is_listed.then_some("may hold a secret, by its name")
}

/// Returns the reason why a text may not be copied.
pub fn refuse_text(text: &str) -> Option<&'static str> {
    let small = text.to_ascii_lowercase();
    let has_key = small.contains("-----begin") || small.contains("private key");
    let has_word = small.lines().any(|line| {
        let assigned = line.contains(['=', ':']) || line.split_whitespace().nth(1).is_some();
        assigned && WORDS.iter().any(|word| line.contains(word))
    });
    let has_login = logins_of_urls(&small).next().is_some();
    (has_key || has_word || has_login || has_password_hash(&small))
        .then_some("may hold a secret, by its text")
}

/// Returns true for the name of a kernel argument or setting whose value is kept as a digest.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word)) || name.ends_with("key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_look_like_secrets_are_never_copied() {
        for path in [
            "/etc/shadow",
            "/etc/shadow-",
            "/etc/gshadow",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/ssh/sshd_config",
            "/etc/kubernetes/kubeconfig",
            "/etc/kubernetes/a.kubeconfig",
            "/etc/pki/tls/private/a.pem",
            "/etc/NetworkManager/system-connections/wifi.nmconnection",
            "/etc/wireguard/wg0.key",
            "/etc/crio/auth.json",
            "/etc/luks-keyfile",
            "/etc/../var/lib/kubelet/config.json",
            "/var/lib/kubelet/config.json",
            "/etc/mco-rescue/recorder.list",
        ] {
            assert!(refuse_path(path).is_some(), "{path}");
        }
        for path in [
            "/etc/fstab",
            "/etc/hosts",
            "/etc/sysctl.d/90-a.conf",
            "/etc/crio/crio.conf.d/10-a",
        ] {
            assert_eq!(refuse_path(path), None, "{path}");
        }
    }

    #[test]
    fn texts_that_look_like_secrets_are_never_copied() {
        for text in [
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n",
            "psk=hunter2\n",
            "a\npassword: hunter2\n",
            "machine a login b password c\n",
            "http://user:word@proxy.example:3128\n",
            "core:$6$salt$hash:1:2\n",
            "TOKEN=abc\n",
        ] {
            assert!(refuse_text(text).is_some(), "{text}");
        }
        for text in [
            "UUID=1-2 /boot ext4 defaults 0 0\n",
            "vm.swappiness = 1\n",
            "192.0.2.1 a\n",
        ] {
            assert_eq!(refuse_text(text), None, "{text}");
        }
    }
}
