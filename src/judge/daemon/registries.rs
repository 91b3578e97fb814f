//! The effect of a change of registries.conf on running pods (docs/develop/agreement.md: Drain).
//!
//! Follows the daemon's own parsing, which is laxer than that of the container tools (`images/registries`): names are used as
//! written, and only invalid TOML is refused.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::actions::REGISTRIES_CONF;
use crate::base::reason::Reason;
use crate::config::document::{Ignition, data_url};

const DIGEST_ONLY: &str = "digest-only";

/// The effect of a change of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryChange {
    /// Images are still found in the same places.
    Safe,
    /// Images may no longer be found, for this reason; the daemon drains.
    Unsafe(Reason),
    /// The daemon cannot read the file and fails, for this reason.
    Unreadable(Reason),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Conf {
    unqualified_search_registries: Vec<String>,
    registry: Vec<RegistryEntry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RegistryEntry {
    prefix: String,
    location: String,
    insecure: bool,
    blocked: bool,
    mirror_by_digest_only: bool,
    mirror: Vec<MirrorEntry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct MirrorEntry {
    location: String,
    insecure: bool,
    pull_from_mirror: String,
}

/// Compares the file in two configs; a missing file counts as empty.
pub fn registry_change(old: &Ignition, new: &Ignition) -> RegistryChange {
    compare_read(read_registries(old), read_registries(new))
}

fn compare_read(old: Result<Conf, Reason>, new: Result<Conf, Reason>) -> RegistryChange {
    match (old, new) {
        (Ok(old), Ok(new)) => compare_registries(&old, &new)
            .map_or_else(RegistryChange::Unsafe, |()| RegistryChange::Safe),
        (Err(why), _) | (_, Err(why)) => RegistryChange::Unreadable(why),
    }
}

/// Reads the file of a config. The daemon does not decompress it, and fails on compressed content.
fn read_registries(config: &Ignition) -> Result<Conf, Reason> {
    let mut files = config.storage.files.iter();
    let file = files.find(|file| file.path == REGISTRIES_CONF);
    let source = file.and_then(|file| file.contents.source.as_deref());
    match source {
        None | Some("") => Ok(Conf::default()),
        Some(source) => parse_registries(&data_url(source).map_err(Reason::from_error)?),
    }
}

fn parse_registries(bytes: &[u8]) -> Result<Conf, Reason> {
    let broken = |words: &str| {
        Reason::from(format!(
            "failed decoding TOML content from file {REGISTRIES_CONF}: {words}"
        ))
    };
    let text = std::str::from_utf8(bytes).map_err(|_| broken("it is not text"))?;
    toml::from_str(text).map_err(|error| broken(error.message()))
}

fn compare_registries(old: &Conf, new: &Conf) -> Result<(), Reason> {
    let (before, after) = (
        &old.unqualified_search_registries,
        &new.unqualified_search_registries,
    );
    if !after.starts_with(before) {
        return Err("unqualified-search-registries no longer begin as before".into());
    }
    let (before, after) = (by_scope(old), by_scope(new));
    if let Some(scope) = before.keys().find(|scope| !after.contains_key(*scope)) {
        return Err(format!("registry {scope} is removed").into());
    }
    after
        .iter()
        .try_for_each(|(scope, registry)| match before.get(scope) {
            Some(old) if old == registry => Ok(()),
            Some(old) => judge_change(scope, old, registry),
            None => judge_addition(scope, registry),
        })
}

/// Returns the registries by prefix, or by location if there is no prefix; of two equal keys the last wins.
fn by_scope(conf: &Conf) -> BTreeMap<&str, &RegistryEntry> {
    let pairs = conf.registry.iter().map(|registry| {
        let scope = match registry.prefix.as_str() {
            "" => registry.location.as_str(),
            prefix => prefix,
        };
        (scope, registry)
    });
    pairs.collect()
}

fn judge_change(scope: &str, old: &RegistryEntry, new: &RegistryEntry) -> Result<(), Reason> {
    let fields = [
        ("prefix", old.prefix != new.prefix),
        ("location", old.location != new.location),
        ("blocked", old.blocked != new.blocked),
        ("insecure", old.insecure != new.insecure),
    ];
    if let Some((field, _)) = fields.iter().find(|(_, differs)| *differs) {
        return Err(format!("{field} of registry {scope} changes").into());
    }
    let gone = |mirror: &&MirrorEntry| find_mirror(&new.mirror, &mirror.location).is_none();
    if let Some(mirror) = old.mirror.iter().find(gone) {
        let location = &mirror.location;
        return Err(format!("mirror {location} of registry {scope} is removed").into());
    }
    let mut mirrors = new.mirror.iter();
    mirrors.try_for_each(|mirror| mirror_change(scope, mirror, old, new))
}

fn mirror_change(
    scope: &str,
    mirror: &MirrorEntry,
    old: &RegistryEntry,
    new: &RegistryEntry,
) -> Result<(), Reason> {
    let (location, digest_only) = (&mirror.location, mirror.pull_from_mirror == DIGEST_ONLY);
    match find_mirror(&old.mirror, location) {
        Some(before) if before.pull_from_mirror != mirror.pull_from_mirror && !digest_only => {
            Err(format!("pull-from-mirror of mirror {location} of registry {scope} changes").into())
        }
        None if !digest_only && !new.mirror_by_digest_only => Err(format!(
            "mirror {location} of registry {scope} is added and not digest-only"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Judges an added registry; its own mirror-by-digest-only does not stand in for that of its mirrors.
fn judge_addition(scope: &str, registry: &RegistryEntry) -> Result<(), Reason> {
    let mut mirrors = registry.mirror.iter();
    let safe = if registry.mirror.is_empty() {
        registry.mirror_by_digest_only
    } else {
        mirrors.all(|mirror| mirror.pull_from_mirror == DIGEST_ONLY)
    };
    if safe {
        Ok(())
    } else {
        Err(format!("registry {scope} is added, and not all of its mirrors are digest-only").into())
    }
}

fn find_mirror<'a>(mirrors: &'a [MirrorEntry], location: &str) -> Option<&'a MirrorEntry> {
    mirrors.iter().find(|mirror| mirror.location == location)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
        unqualified-search-registries = ["a.example", "b.example"]
        [[registry]]
        location = "quay.example/r"
        [[registry.mirror]]
        location = "mirror.local/r"
        pull-from-mirror = "digest-only"
        [[registry.mirror]]
        location = "other.local/r"
        [[registry]]
        prefix = "docker.example"
        location = "docker.example/x"
        mirror-by-digest-only = true
    "#;

    fn change_of_texts(old: &str, new: &str) -> RegistryChange {
        let read = |text: &str| parse_registries(text.as_bytes());
        compare_read(read(old), read(new))
    }

    fn judged(from: &str, to: &str) -> RegistryChange {
        assert!(BASE.contains(from), "{from}");
        change_of_texts(BASE, &BASE.replacen(from, to, 1))
    }

    fn reason(change: RegistryChange) -> String {
        match change {
            RegistryChange::Unsafe(reason) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_and_additions_of_digests_alone_are_safe() {
        let digest_only =
            "[[registry.mirror]]\nlocation = \"new.local\"\npull-from-mirror = \"digest-only\"\n";
        for (from, to) in [
            ("a.example", "a.example"),
            ("\"b.example\"]", "\"b.example\", \"c.example\"]"),
            (
                "[[registry]]\n        prefix",
                &format!("{digest_only}[[registry]]\n        prefix"),
            ),
            (
                "mirror-by-digest-only = true",
                "mirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \"new.local\"",
            ),
            (
                "mirror-by-digest-only = true",
                &format!(
                    "mirror-by-digest-only = true\n[[registry]]\nlocation = \"z\"\n{digest_only}"
                ),
            ),
            (
                "mirror-by-digest-only = true",
                "mirror-by-digest-only = true\n[[registry]]\nlocation = \"z\"\nmirror-by-digest-only = true",
            ),
            // What applied to all names may now apply to digests only; and a mirror's TLS settings are not checked.
            (
                "location = \"other.local/r\"",
                "location = \"other.local/r\"\npull-from-mirror = \"digest-only\"",
            ),
            (
                "location = \"other.local/r\"",
                "location = \"other.local/r\"\ninsecure = true",
            ),
            (
                "mirror-by-digest-only = true",
                "mirror-by-digest-only = false",
            ),
        ] {
            assert_eq!(judged(from, to), RegistryChange::Safe, "{from} -> {to}");
        }
    }

    /// A text, its replacement, and words of the reason against it.
    const ELSEWHERE: &[(&str, &str, &str)] = &[
        ("\"a.example\", ", "", "unqualified-search-registries"),
        (", \"b.example\"", "", "unqualified-search-registries"),
        (
            "docker.example\"",
            "podman.example\"",
            "docker.example is removed",
        ),
        (
            "docker.example/x",
            "docker.example/y",
            "location of registry docker.example",
        ),
        (
            "location = \"docker.example/x\"",
            "location = \"docker.example/x\"\nblocked = true",
            "blocked of registry docker.example",
        ),
        (
            "location = \"docker.example/x\"",
            "location = \"docker.example/x\"\ninsecure = true",
            "insecure of registry docker.example",
        ),
        (
            "location = \"quay.example/r\"",
            "prefix = \"quay.example/r\"\nlocation = \"quay.example/r\"",
            "prefix of registry quay.example/r",
        ),
        (
            "mirror.local/r",
            "gone.local/r",
            "mirror mirror.local/r of registry quay.example/r is removed",
        ),
        (
            "pull-from-mirror = \"digest-only\"",
            "pull-from-mirror = \"tag-only\"",
            "pull-from-mirror of mirror mirror.local/r",
        ),
        (
            "[[registry]]\n        prefix",
            "[[registry.mirror]]\nlocation = \"new.local\"\n[[registry]]\n        prefix",
            "mirror new.local of registry quay.example/r is added",
        ),
        // For a new registry, each mirror is judged by itself.
        (
            "mirror-by-digest-only = true",
            "mirror-by-digest-only = true\n[[registry]]\nlocation = \"z\"\nmirror-by-digest-only = true\n\
                 [[registry.mirror]]\nlocation = \"m\"",
            "registry z is added",
        ),
        (
            "mirror-by-digest-only = true",
            "mirror-by-digest-only = true\n[[registry]]\nlocation = \"z\"",
            "registry z is added",
        ),
    ];

    #[test]
    fn whatever_may_lead_elsewhere_is_named() {
        for &(from, to, words) in ELSEWHERE {
            let reason = reason(judged(from, to));
            assert!(reason.contains(words), "{from} -> {to}: {reason}");
        }
    }

    #[test]
    fn what_is_not_toml_is_a_failure_of_the_daemon() {
        let broken = change_of_texts("", "[[registry");
        assert!(
            matches!(&broken, RegistryChange::Unreadable(why) if why.to_string().starts_with("failed decoding TOML content")),
            "{broken:?}"
        );
        assert_eq!(change_of_texts("", "made-up = 1"), RegistryChange::Safe);
    }
}
