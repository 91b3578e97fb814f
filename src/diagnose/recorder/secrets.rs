//! Files that the recorder never copies, even if the list asks for them.

use crate::base::secrets::{may_be_secret, reason_of_text};

/// Returns the reason why a path may not be copied.
pub fn refuse_path(path: &str) -> Option<&'static str> {
    if !path.starts_with("/etc/") || path.split('/').any(|part| matches!(part, ".." | ".")) {
        return Some("is not below /etc");
    }
    may_be_secret(path).then_some("may hold a secret, by its name")
}

/// Returns the reason why a text may not be copied.
pub fn refuse_text(text: &str) -> Option<&'static str> {
    reason_of_text(text).map(|_| "may hold a secret, by its text")
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
