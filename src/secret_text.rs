//! Signs of a secret in a text or a file's name, which `keep` asks about and the recorder never copies.
//!
//! Each caller adds rules of its own: one that asks a person may be narrower than one that decides alone.

/// Endings of the names of files with keys and passwords.
pub const KEY_FILE_ENDINGS: [&str; 8] = [
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".kubeconfig",
    ".keytab",
    ".nmconnection",
    ".psk",
];

/// Prefixes that crypt(5) puts before the hash of a password, in small letters.
const HASHES: [&str; 8] = ["$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$gy$"];

/// Returns true for a text with a private key in PEM or OpenSSH's form. `small` is the text in small letters.
pub fn has_private_key(small: &str) -> bool {
    small.contains("private key") && small.contains("-----begin")
}

/// Returns true for a text with the hash of a password as `/etc/shadow` has it. `small` is the text in small letters.
pub fn has_password_hash(small: &str) -> bool {
    HASHES.iter().any(|hash| small.contains(hash))
}

/// The logins in the URLs of a text: `user:word` of `http://user:word@host/`.
pub fn logins_of_urls(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter_map(|word| {
        let (_, rest) = word.split_once("://")?;
        let (login, _) = rest.split('/').next()?.rsplit_once('@')?;
        Some(login)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_ends_at_the_last_at_sign_of_the_authority() {
        let found = |text| logins_of_urls(text).collect::<Vec<_>>();
        assert_eq!(found("P=http://u:a@b@proxy:3128/x"), ["u:a@b"]);
        assert_eq!(found("see https://host/a@sha256:12"), [""; 0]);
    }

    #[test]
    fn hashes_of_all_kinds_are_found() {
        for text in [
            "root:$6$s$h:1",
            "grub $y$j9t$abc",
            "$gy$j9t$abc",
            "a:$2y$12$abc",
        ] {
            assert!(has_password_hash(text), "{text}");
        }
        assert!(!has_password_hash("price: $7 and $8"));
    }
}
