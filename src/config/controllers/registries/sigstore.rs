//! `registries.d/sigstore-registries.yaml`: the locations whose signatures are next to the images.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::conf::Conf;
use super::pulls::{self, Matching};
use super::scopes::{is_nested, name_of};
use crate::base::reason::Reason;
use crate::formats::go_yaml::{YamlNode, write_yaml};

/// Returns the bytes of the file for the scopes of policies. `conf` is the registries.conf that is written with it.
///
/// # Errors
/// A scope whose mirrors do not form a valid image name, with the controller's message.
pub(super) fn sigstore_text<'a>(
    scopes: impl Iterator<Item = &'a str>,
    conf: Option<&Conf>,
) -> Result<String, (&'a str, Reason)> {
    let mut places: BTreeSet<String> = BTreeSet::new();
    for scope in scopes {
        places.insert(scope.to_owned());
        if let Some(conf) = conf {
            add_mirrors(scope, conf, &mut places).map_err(|words| (scope, words))?;
        }
    }
    let attachments = || {
        let key = Cow::Borrowed("use-sigstore-attachments");
        YamlNode::Object(vec![(key, YamlNode::Bool(true))])
    };
    let entries = places.iter();
    let entries = entries.map(|place| (Cow::Borrowed(place.as_str()), attachments()));
    let docker = YamlNode::Object(entries.collect());
    let mut out = String::new();
    write_yaml([("docker", &docker)].into_iter(), &mut |text| {
        out.push_str(text);
    });
    Ok(out)
}

fn add_mirrors(scope: &str, conf: &Conf, places: &mut BTreeSet<String>) -> Result<(), Reason> {
    let in_words = |words: Reason| {
        format!("error adding clusterimagepolicy scope {scope} relevant mirrors: {words}")
    };
    let found = pulls::find_registry(conf, scope)?;
    add_places(scope, found.as_ref(), places).map_err(in_words)?;
    let inside = conf.registry.iter().map(|entry| entry.scope());
    for inner in inside.filter(|inner| *inner != scope && is_nested(inner, scope)) {
        let found = pulls::find_registry(conf, inner)?;
        add_places(inner, found.as_ref(), places).map_err(in_words)?;
    }
    Ok(())
}

/// Adds the locations of the images of a scope. A scope without a path temporarily gets one for the search.
fn add_places(
    scope: &str,
    entry: Option<&Matching<'_>>,
    places: &mut BTreeSet<String>,
) -> Result<(), Reason> {
    const PATH: &str = "/a";
    let Some(entry) = entry else {
        return Ok(());
    };
    let mut image = match scope.strip_prefix('*') {
        Some(domain) if domain.starts_with('.') => format!("matched{domain}"),
        _ => scope.to_owned(),
    };
    let is_host = !image.contains('/');
    if is_host {
        image.push_str(PATH);
    }
    let name = name_of(&image).map_err(|e| format!("error parsing scope {image}: {e}"))?;
    let by_digest = format!("{name}@sha256:{}", "a".repeat(64));
    let by_tag = format!("{name}:aaa");
    for (kind, reference) in [("digest", by_digest), ("tag", by_tag)] {
        let sources = entry.pull_sources(&reference);
        let sources =
            sources.map_err(|e| format!("error getting {kind} sources for scope {image}: {e}"))?;
        for source in sources.iter().filter(|source| !source.is_own) {
            let place = source.name.as_str();
            let place = place
                .strip_suffix(PATH)
                .filter(|_| is_host)
                .unwrap_or(place);
            places.insert(place.to_owned());
        }
    }
    Ok(())
}
