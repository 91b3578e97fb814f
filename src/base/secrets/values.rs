//! Values of settings that are not secret, whatever their name.

use super::names::{NameKind, kind_of};

/// Switches, and placeholders for a value.
const WORDS: [&str; 26] = [
    "yes",
    "no",
    "true",
    "false",
    "on",
    "off",
    "none",
    "null",
    "nil",
    "~",
    "enabled",
    "disabled",
    "required",
    "requisite",
    "sufficient",
    "optional",
    "include",
    "substack",
    "prompt",
    "ask",
    "interactive",
    "unset",
    "string",
    "boolean",
    "object",
    "redacted",
];
/// Prefixes of paths, which are not secret; `/` alone may be the start of base64.
const PATHS: [&str; 34] = [
    "/etc/",
    "/var/",
    "/usr/",
    "/run/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/boot/",
    "/opt/",
    "/home/",
    "/root/",
    "/tmp/",
    "/mnt/",
    "/srv/",
    "/ostree/",
    "/sysroot/",
    "/lib/",
    "/lib64/",
    "/bin/",
    "/sbin/",
    "/media/",
    "/host/",
    "/tls/",
    "/secrets/",
    "/certs/",
    "/rootfs/",
    "/data/",
    "/config/",
    "/keys/",
    "./",
    "../",
    "~/",
    "file:",
    "%h/",
];

/// Returns true if a value with such a name is a secret.
pub(super) fn is_secret_value(kind: NameKind, value: &str, quoted: bool) -> bool {
    if is_harmless(value) {
        return false;
    }
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    match kind {
        NameKind::Secret => true,
        NameKind::Pass => !(is_number && value.len() < 3),
        NameKind::Pin => is_number && value.len() > 3,
        NameKind::Random => is_random(value, if quoted { 8 } else { 12 }),
    }
}

fn is_harmless(value: &str) -> bool {
    let bare = value.trim_matches(['"', '\'', ',', ';']).trim();
    bare.is_empty()
        || WORDS.iter().any(|word| word.eq_ignore_ascii_case(bare))
        || bare.bytes().all(|byte| b"*!.-".contains(&byte))
        || bare.eq_ignore_ascii_case("x")
        || bare.starts_with("(secret")
        || PATHS.iter().any(|path| bare.starts_with(path))
        || is_variable(bare)
        || is_address(bare)
}

/// Returns true for a placeholder that another program replaces.
fn is_variable(value: &str) -> bool {
    let is_within = |from: &str, to: &str| {
        value
            .strip_prefix(from)
            .is_some_and(|rest| rest.ends_with(to))
    };
    if is_within("${", "}")
        || value.starts_with("$(")
        || is_within("`", "`")
        || is_within("{{", "}}")
    {
        return true;
    }
    if is_within("<", ">") && !value.contains(char::is_whitespace) || is_within("%(", ")s") {
        return true;
    }
    let Some(name) = value.strip_prefix('$').or_else(|| value.strip_prefix('%')) else {
        return false;
    };
    if name
        .split_once('/')
        .is_some_and(|(name, _)| !name.is_empty())
    {
        return value.starts_with('$');
    }
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_upper = !name.bytes().any(|byte| byte.is_ascii_lowercase());
    is_name
        && (name.len() < 2
            || is_upper && !name.starts_with(|c: char| c.is_ascii_digit())
            || kind_of(name).is_some())
}

/// Returns true for an address; secrets in it are found separately.
fn is_address(value: &str) -> bool {
    let Some((scheme, _)) = value.split_once("://") else {
        return false;
    };
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !value.contains(char::is_whitespace)
}

/// Returns true for meaningless letters and digits, such as a base64 key.
fn is_random(value: &str, least: usize) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
    let has = |is: fn(&u8) -> bool| value.as_bytes().iter().any(is);
    let mixed =
        has(u8::is_ascii_uppercase) && (has(u8::is_ascii_lowercase) || has(u8::is_ascii_digit));
    let is_padded = value.ends_with('=');
    let is_hex = value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    value.len() >= least && value.bytes().all(is_letter) && (mixed || is_padded || is_hex)
}
