//! Reading JSON with positions: the path of every bad value, unknown keys as findings.

use serde::de::DeserializeOwned;

use super::finding::Finding;

/// Every key that the model knows; used to tell a key of wrong letter case from a foreign one.
const KNOWN_KEYS: [&str; 58] = [
    "append",
    "baseOSExtensionsContainerImage",
    "compression",
    "config",
    "contents",
    "directories",
    "disks",
    "dropins",
    "enabled",
    "extensions",
    "files",
    "filesystems",
    "fips",
    "gecos",
    "group",
    "groups",
    "hard",
    "hash",
    "homeDir",
    "httpHeaders",
    "id",
    "ignition",
    "kernelArguments",
    "kernelType",
    "links",
    "luks",
    "mask",
    "merge",
    "metadata",
    "mode",
    "name",
    "noCreateHome",
    "noLogInit",
    "noUserGroup",
    "osImageURL",
    "overwrite",
    "passwd",
    "passwordHash",
    "path",
    "primaryGroup",
    "proxy",
    "raid",
    "replace",
    "security",
    "shell",
    "shouldExist",
    "shouldNotExist",
    "source",
    "spec",
    "sshAuthorizedKeys",
    "storage",
    "system",
    "systemd",
    "target",
    "timeouts",
    "uid",
    "units",
    "verification",
];

/// Deserialises `text`, whose place in the document is `at`.
///
/// Unknown keys are pushed to `findings`: a warning, or an error where only the
/// letter case differs from a known key (Go would take it, so dropping it is wrong).
pub fn from_str<T: DeserializeOwned>(
    text: &str,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    let mut ignored =
        |path: serde_ignored::Path<'_>| findings.push(unknown_key(&join(at, &path.to_string())));
    let result = serde_ignored::deserialize(tracked, &mut ignored);
    match result {
        Ok(value) => deserializer
            .end()
            .map(|()| value)
            .map_err(|e| syntax(at, &e)),
        Err(error) => Err(bad_value(at, &track.path().to_string(), &error)),
    }
}

/// A finding for text that is no JSON.
pub fn syntax(at: &str, error: &serde_json::Error) -> Finding {
    Finding::error(at, format!("not valid JSON: {error}"))
}

fn bad_value(at: &str, path: &str, error: &serde_json::Error) -> Finding {
    let text = error.to_string();
    // The position is relative to an inner text; the path says where it is.
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let inner = if path == "." {
        String::new()
    } else {
        path.to_owned()
    };
    Finding::error(join(at, &bracketed(&inner)), message)
}

fn unknown_key(path: &str) -> Finding {
    let path = bracketed(path);
    let key = path.rsplit('.').next().unwrap_or(&path).to_owned();
    match KNOWN_KEYS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(&key))
    {
        Some(known) if **known != key => Finding::error(
            path,
            format!("unknown key; write it as {known:?} (the letter case matters)"),
        ),
        _ => Finding::warning(path, "unknown key, ignored"),
    }
}

/// `a.0.b` as `a[0].b`.
fn bracketed(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.').filter(|part| *part != "?") {
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            out.push_str(&format!("[{part}]"));
            continue;
        }
        if !out.is_empty() && !part.is_empty() {
            out.push('.');
        }
        out.push_str(part);
    }
    out
}

fn join(at: &str, path: &str) -> String {
    match (at, path) {
        ("", path) => path.to_owned(),
        (at, "") => at.to_owned(),
        (at, path) if path.starts_with('[') => format!("{at}{path}"),
        (at, path) => format!("{at}.{path}"),
    }
}
