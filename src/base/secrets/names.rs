//! Names of settings whose value is a secret.

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Its value is a secret, unless it is a switch, a path or a variable.
    Secret,
    /// `pass`: a small number is not a secret.
    Pass,
    /// `pin`: a number of four or more digits is a secret.
    Pin,
    /// `auth` and `key`: a value that looks random is a secret.
    Random,
}

/// Suffixes of the last word of such a name, in lower case.
const ENDS: [&str; 28] = [
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "passcode",
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "privatekey",
    "secretkey",
    "accesskey",
    "presharedkey",
    "sharedkey",
    "encryptionkey",
    "masterkey",
    "accountkey",
    "signingkey",
    "psk",
    "authtok",
    "authkey",
    "bindpw",
    "rootpw",
    "pwd",
    "bearer",
    "authorization",
    "cookie",
];
/// Complete last words.
const WORDS: [&str; 6] = [
    "pw",
    "creds",
    "cred",
    "dhchap",
    "rocommunity",
    "rwcommunity",
];
/// Words before `key` that make it a secret key.
const KEYS: [&str; 24] = [
    "api",
    "private",
    "secret",
    "access",
    "preshared",
    "shared",
    "encryption",
    "decryption",
    "signing",
    "master",
    "auth",
    "account",
    "wep",
    "psk",
    "session",
    "storage",
    "recovery",
    "unlock",
    "luks",
    "crypt",
    "hmac",
    "static",
    "license",
    "seed",
];
/// Words before `key` that make it a public key, or an identifier.
const PUBLIC: [&str; 15] = [
    "public",
    "pub",
    "host",
    "sort",
    "primary",
    "foreign",
    "cache",
    "group",
    "label",
    "annotation",
    "object",
    "gpg",
    "partition",
    "registry",
    "node",
];
/// Words that may follow: `password_in`, `password-hash`.
const AFTER: [&str; 17] = [
    "value",
    "val",
    "base64",
    "b64",
    "plain",
    "plaintext",
    "text",
    "string",
    "in",
    "out",
    "old",
    "new",
    "raw",
    "hash",
    "hashed",
    "crypted",
    "binary",
];
/// Names that end like a secret's but are not.
const NONE: [&str; 12] = [
    "nopasswd",
    "nopassword",
    "bypass",
    "compass",
    "encompass",
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "proxypass",
];
/// Settings that name a credential and its location.
const CREDENTIAL_PLACES: [&str; 5] = [
    "loadcredential",
    "loadcredentialencrypted",
    "importcredential",
    "conditioncredential",
    "assertcredential",
];

/// Returns the kind of a name; `None` for one whose value is not secret.
pub(super) fn kind_of(name: &str) -> Option<NameKind> {
    let is = |all: &[&str]| all.iter().any(|one| one.eq_ignore_ascii_case(name));
    let mut words = Tail::from_name(name);
    let mut last = words.next()?;
    while AFTER.iter().any(|word| word.eq_ignore_ascii_case(last)) {
        last = words.next()?;
    }
    // `client-key-data` of a kubeconfig.
    let of_data = last.eq_ignore_ascii_case("data");
    if of_data {
        last = words.next()?;
    }
    let before = words.next().unwrap_or_default();
    let eq = |word: &&str| word.eq_ignore_ascii_case(last);
    let ends = |end: &&str| {
        let from = last.len().checked_sub(end.len());
        from.and_then(|from| last.get(from..))
            .is_some_and(|part| part.eq_ignore_ascii_case(end))
    };
    let kind = if ENDS.iter().any(ends) || WORDS.iter().any(eq) {
        NameKind::Secret
    } else if last.eq_ignore_ascii_case("key") {
        let is_before = |all: &[&str]| all.iter().any(|word| word.eq_ignore_ascii_case(before));
        if is_before(&KEYS) || of_data && before.eq_ignore_ascii_case("client") {
            NameKind::Secret
        } else if is_before(&PUBLIC) || of_data {
            return None;
        } else {
            NameKind::Random
        }
    } else if last.eq_ignore_ascii_case("auth") {
        NameKind::Random
    } else if last.eq_ignore_ascii_case("pin") || last.eq_ignore_ascii_case("puk") {
        NameKind::Pin
    } else if ends(&"pass") {
        NameKind::Pass
    } else {
        return None;
    };
    (!is(&NONE) && !is(&CREDENTIAL_PLACES)).then_some(kind)
}

/// The words of a name, last one first, without trailing digits.
struct Tail<'a>(&'a str);

impl<'a> Tail<'a> {
    fn from_name(name: &'a str) -> Self {
        Self(name)
    }
}

impl<'a> Iterator for Tail<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let is_end = |c: char| !c.is_ascii_alphabetic();
        let rest = self.0.trim_end_matches(is_end);
        let bytes = rest.as_bytes();
        let mut start = bytes.len();
        while let Some(at) = start.checked_sub(1) {
            let (byte, after) = (bytes[at], bytes.get(start).copied().unwrap_or(b'_'));
            if !byte.is_ascii_alphabetic() && !byte.is_ascii_digit() {
                break;
            }
            let begins_word = byte.is_ascii_lowercase() && after.is_ascii_uppercase();
            // The end of an acronym: `APIKey`.
            let ends_acronym = byte.is_ascii_uppercase()
                && after.is_ascii_uppercase()
                && bytes.get(start + 1).is_some_and(u8::is_ascii_lowercase);
            if start < bytes.len() && (begins_word || ends_acronym) {
                break;
            }
            start = at;
        }
        let word = rest.get(start..)?;
        self.0 = rest.get(..start)?;
        (!word.is_empty()).then_some(word)
    }
}
