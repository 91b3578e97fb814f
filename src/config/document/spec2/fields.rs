//! The keys that each version of spec 2 knows.

use serde_json::Value;

use crate::config::document::finding::{Finding, path_below};

/// Keys of spec 2 that spec 3 does not have, or that are only examined for spec 2.
const OWN_KEYS: [&str; 13] = [
    "certificateAuthorities",
    "create",
    "enable",
    "filesystem",
    "gid",
    "httpProxy",
    "httpResponseHeaders",
    "httpTotal",
    "httpsProxy",
    "networkd",
    "noProxy",
    "tls",
    "value",
];

/// Fields with the minor version that introduced them. Fields in refused sections are not listed.
const NEWER: [(u64, &str); 26] = [
    (1, "ignition.timeouts"),
    (1, "passwd.users[].gecos"),
    (1, "passwd.users[].groups"),
    (1, "passwd.users[].homeDir"),
    (1, "passwd.users[].noCreateHome"),
    (1, "passwd.users[].noLogInit"),
    (1, "passwd.users[].noUserGroup"),
    (1, "passwd.users[].primaryGroup"),
    (1, "passwd.users[].shell"),
    (1, "passwd.users[].system"),
    (1, "passwd.users[].uid"),
    (1, "storage.directories"),
    (1, "storage.files[].group.name"),
    (1, "storage.files[].user.name"),
    (1, "storage.links"),
    (1, "systemd.units[].enabled"),
    (2, "ignition.security"),
    (2, "storage.files[].append"),
    (2, "storage.files[].overwrite"),
    (2, "storage.directories[].overwrite"),
    (2, "storage.links[].overwrite"),
    (4, "ignition.config.append[].httpHeaders"),
    (4, "ignition.config.replace.httpHeaders"),
    (4, "ignition.proxy"),
    (
        4,
        "ignition.security.tls.certificateAuthorities[].httpHeaders",
    ),
    (4, "storage.files[].contents.httpHeaders"),
];

/// Turns the warning about an unknown key into an error if only the letter case differs from a key of spec 2: Go would accept
/// it, so it must not be dropped.
pub(super) fn refuse_wrong_case(unknown: &mut [Finding]) {
    for finding in unknown {
        let key = finding.path.rsplit('.').next().unwrap_or_default();
        let meant = OWN_KEYS
            .iter()
            .find(|own| own.eq_ignore_ascii_case(key) && **own != key);
        if let Some(meant) = meant {
            let message = format!("unknown key; write it as {meant:?} (the letter case matters)");
            *finding = Finding::error(&finding.path, message);
        }
    }
}

/// Removes fields that are newer than the declared version, each with a warning, as Ignition does.
pub(super) fn drop_newer(config: &mut Value, minor: u64, at: &str) -> Vec<Finding> {
    let mut warnings = Vec::new();
    for (since, pattern) in NEWER.iter().filter(|(since, _)| *since > minor) {
        let steps: Vec<&str> = pattern.split('.').collect();
        let mut gone = Vec::new();
        remove_field(config, &steps, String::new(), &mut gone);
        let message = format!(
            "came with spec 2.{since}; ignored in a 2.{minor} config. Raise ignition.version to use it"
        );
        warnings.extend(
            gone.iter()
                .map(|path| Finding::warning(path_below(at, path), &message)),
        );
    }
    warnings
}

/// Removes the field that `steps` lead to; a step ending in `[]` goes through a list.
fn remove_field(value: &mut Value, steps: &[&str], at: String, gone: &mut Vec<String>) {
    let (Some((step, rest)), Some(map)) = (steps.split_first(), value.as_object_mut()) else {
        return;
    };
    let (key, is_list) = step
        .strip_suffix("[]")
        .map_or((*step, false), |key| (key, true));
    let at = path_below(&at, key);
    if rest.is_empty() {
        if map.shift_remove(key).is_some_and(|old| !old.is_null()) {
            gone.push(at);
        }
        return;
    }
    match map.get_mut(key) {
        Some(Value::Array(items)) if is_list => {
            for (index, item) in items.iter_mut().enumerate() {
                remove_field(item, rest, format!("{at}[{index}]"), gone);
            }
        }
        Some(inner) if !is_list => remove_field(inner, rest, at, gone),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn newer_fields_go_with_their_place() {
        let mut config = json!({
            "ignition": {"timeouts": {"httpTotal": 1}},
            "storage": {"files": [{"path": "/a"}, {"path": "/b", "append": true, "overwrite": null}]},
        });
        let paths: Vec<_> = drop_newer(&mut config, 1, "spec.config")
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["spec.config.storage.files[1].append"]);
        let wanted = json!({
            "ignition": {"timeouts": {"httpTotal": 1}},
            "storage": {"files": [{"path": "/a"}, {"path": "/b"}]},
        });
        assert_eq!(config, wanted);
        assert_eq!(drop_newer(&mut config, 0, "").len(), 1);
    }

    #[test]
    fn only_the_letter_case_makes_an_error() {
        let mut findings = vec![
            Finding::warning("storage.files[0].Filesystem", "unknown key, ignored"),
            Finding::warning("storage.files[0].filesystm", "unknown key, ignored"),
        ];
        refuse_wrong_case(&mut findings);
        assert!(findings[0].message.contains("\"filesystem\""));
        assert_eq!(findings[1].message, "unknown key, ignored");
    }
}
