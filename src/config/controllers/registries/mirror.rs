//! Adds or removes a mirror of a source, the most common change in a disconnected cluster.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::invert::{Inverted, policy_of};
use super::scopes;
use super::sets::{self, ALLOW, NEVER};
use crate::base::text::make_inline;

/// The kinds of mirror sets for digests.
const DIGESTS: (&str, &str) = ("ImageDigestMirrorSet", "imageDigestMirrors");
/// The kind of mirror sets for tags.
const TAGS: (&str, &str) = ("ImageTagMirrorSet", "imageTagMirrors");

/// The objects after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorChange {
    /// All objects, for the controllers.
    pub objects: Vec<Value>,
    /// The object to apply to the API, if there is a new one.
    pub apply: Option<Value>,
    /// Further steps in the cluster and other remarks, a sentence or two each.
    pub notes: Vec<String>,
}

/// The reason why a change cannot be made; the message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MirrorError(String);

/// Adds mirrors of a source, for images by digest or by tag. The new object contains only these and has a unique name.
///
/// # Errors
/// A name is not a repository, or the new mirrors contradict existing ones.
pub fn add_mirror(
    inverted: &Inverted,
    source: &str,
    mirrors: &[String],
    tags: bool,
    never_contact_source: bool,
) -> Result<MirrorChange, MirrorError> {
    check_names(source, mirrors)?;
    let (kind, list) = if tags { TAGS } else { DIGESTS };
    let policy = if never_contact_source { NEVER } else { ALLOW };
    check_policy(inverted, source, policy)?;
    check_order(inverted, source, mirrors, kind)?;
    let mut rule = json!({ "source": source, "mirrors": mirrors });
    if never_contact_source {
        rule["mirrorSourcePolicy"] = NEVER.into();
    }
    let object = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": kind,
        "metadata": { "name": object_name(source, mirrors, policy) },
        "spec": { list: [rule] },
    });
    let mut objects = inverted.objects.clone();
    let is_there = is_known(inverted, source, mirrors, kind);
    objects.push(object.clone());
    let mut notes = Vec::new();
    if is_there {
        notes.push(format!(
            "Every one of these mirrors is already a mirror of {source}; nothing changes."
        ));
    }
    Ok(MirrorChange {
        objects,
        apply: Some(object),
        notes,
    })
}

/// Removes mirrors of a source, either those for digests or those for tags.
///
/// # Errors
/// A name is not a repository, or a mirror does not exist.
pub fn remove_mirror(
    inverted: &Inverted,
    source: &str,
    mirrors: &[String],
    tags: bool,
) -> Result<MirrorChange, MirrorError> {
    check_names(source, mirrors)?;
    let (kind, list) = if tags { TAGS } else { DIGESTS };
    let known = known_mirrors(inverted, source, kind);
    if let Some(mirror) = mirrors.iter().find(|mirror| !known.contains(mirror)) {
        return Err(MirrorError(missing_mirror(inverted, source, mirror, tags)));
    }
    let (objects, policy) = without_mirrors(inverted, source, mirrors, (kind, list));
    let name = object_name(source, mirrors, &policy);
    let resource = format!("{}s", kind.to_lowercase());
    let list = mirrors.join(", ");
    let mut notes = vec![format!(
        "In the cluster, remove {list} from the object that has it, otherwise it comes back: `oc get {resource} -o yaml` (and \
         imagecontentsourcepolicies) shows it. If mco-rescue added it: `oc delete {resource} {name}`."
    )];
    let hidden = inverted
        .ambiguities
        .iter()
        .find(|text| text.starts_with("the places of"));
    notes.extend(hidden.map(|text| {
        format!("The files do not show {text}. The name of the rendered config may differ from the cluster's; the effect does not.")
    }));
    Ok(MirrorChange {
        objects,
        apply: None,
        notes,
    })
}

/// Returns the objects without some mirrors of a source, and the policy of the rule that had them.
fn without_mirrors(
    inverted: &Inverted,
    source: &str,
    mirrors: &[String],
    (kind, list): (&str, &str),
) -> (Vec<Value>, String) {
    let mut policy = ALLOW.to_owned();
    let mut objects = Vec::new();
    for mut object in inverted.objects.clone() {
        if object["kind"] == kind {
            let rules = object["spec"][list].as_array_mut();
            let rules = rules.map(std::mem::take).unwrap_or_default();
            let mut left = Vec::new();
            for mut rule in rules {
                if rule["source"] == source {
                    policy = policy_of(&rule).to_owned();
                    take_mirrors(&mut rule, mirrors);
                }
                if rule["mirrors"]
                    .as_array()
                    .is_some_and(|all| !all.is_empty())
                {
                    left.push(rule);
                }
            }
            if left.is_empty() {
                continue;
            }
            object["spec"][list] = left.into();
        }
        objects.push(object);
    }
    (objects, policy)
}

fn take_mirrors(rule: &mut Value, mirrors: &[String]) {
    if let Some(all) = rule["mirrors"].as_array_mut() {
        all.retain(|mirror| !mirrors.iter().any(|gone| mirror == gone));
    }
}

fn missing_mirror(inverted: &Inverted, source: &str, mirror: &str, tags: bool) -> String {
    let (this, other, option) = if tags {
        ("tags", DIGESTS.0, "without --tags")
    } else {
        ("digests", TAGS.0, "with --tags")
    };
    let of_other = known_mirrors(inverted, source, other);
    let advice = if of_other.iter().any(|known| known == mirror) {
        format!("it is one for the other kind of names: run the command again {option}")
    } else {
        "look at /etc/containers/registries.conf for the right names".to_owned()
    };
    format!("{mirror} is not a mirror of {source} for {this}; {advice}")
}

/// Returns the rules for a source in objects of a kind.
fn rules_of<'a>(
    inverted: &'a Inverted,
    source: &'a str,
    kind: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let list = if kind == TAGS.0 { TAGS.1 } else { DIGESTS.1 };
    let objects = inverted
        .objects
        .iter()
        .filter(move |object| object["kind"] == kind);
    let rules = objects.filter_map(move |object| object["spec"][list].as_array());
    rules.flatten().filter(move |rule| rule["source"] == source)
}

fn texts_in(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Returns the mirrors of a source for images by digest or by tag, in the order in which they are tried.
pub fn mirrors_of(inverted: &Inverted, source: &str, tags: bool) -> Vec<String> {
    known_mirrors(inverted, source, if tags { TAGS.0 } else { DIGESTS.0 })
}

fn known_mirrors(inverted: &Inverted, source: &str, kind: &str) -> Vec<String> {
    let lists: Vec<Vec<String>> = rules_of(inverted, source, kind)
        .map(|rule| texts_in(&rule["mirrors"]))
        .collect();
    let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
    sets::in_one_order(source, &lists)
}

fn is_known(inverted: &Inverted, source: &str, mirrors: &[String], kind: &str) -> bool {
    let known = known_mirrors(inverted, source, kind);
    mirrors.iter().all(|mirror| known.contains(mirror))
}

/// Checks that all rules of a source have the same policy.
fn check_policy(inverted: &Inverted, source: &str, policy: &str) -> Result<(), MirrorError> {
    let rules = rules_of(inverted, source, DIGESTS.0).chain(rules_of(inverted, source, TAGS.0));
    for rule in rules {
        if policy_of(rule) != policy {
            let advice = if policy == NEVER {
                "the cluster refuses two policies for one source: leave --never-contact-source out, or remove the existing mirrors \
                 first"
            } else {
                "the cluster refuses two policies for one source: give --never-contact-source too"
            };
            return Err(MirrorError(format!(
                "{source} has mirrors with mirrorSourcePolicy {}; {advice}",
                policy_of(rule)
            )));
        }
    }
    Ok(())
}

/// Checks that the new list does not contradict the order of the existing mirrors.
fn check_order(
    inverted: &Inverted,
    source: &str,
    mirrors: &[String],
    kind: &str,
) -> Result<(), MirrorError> {
    let known = known_mirrors(inverted, source, kind);
    if known.is_empty() {
        return Ok(());
    }
    let mut merged = sets::in_one_order(source, &[&known, mirrors]);
    merged.retain(|mirror| known.contains(mirror));
    let again = mirrors.iter().filter(|mirror| known.contains(mirror));
    let in_their_order = known.iter().filter(|mirror| mirrors.contains(mirror));
    if merged == known && again.eq(in_their_order) {
        return Ok(());
    }
    Err(MirrorError(format!(
        "this order contradicts that of the existing mirrors of {source} ({}); give the mirrors in that order, or \
         only the new ones",
        known.join(", ")
    )))
}

/// Returns a unique object name, derived from the source and the whole content of the object.
fn object_name(source: &str, mirrors: &[String], policy: &str) -> String {
    const LONGEST: usize = 40;
    let letters = source.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
        _ => '-',
    });
    let words: String = letters.collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
    let words: String = words.join("-").chars().take(LONGEST).collect();
    let mut digest = Sha256::new();
    for part in [source, policy]
        .into_iter()
        .chain(mirrors.iter().map(String::as_str))
    {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    let digits: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("mco-rescue-{}-{digits}", words.trim_end_matches('-'))
}

fn check_names(source: &str, mirrors: &[String]) -> Result<(), MirrorError> {
    let refused = |reason: String| Err(MirrorError(reason));
    if let Some(defect) = defect_of(source, true) {
        return refused(format!("the source {defect}"));
    }
    if mirrors.is_empty() {
        return refused("no mirror is given; write SOURCE and at least one MIRROR".to_owned());
    }
    for (index, mirror) in mirrors.iter().enumerate() {
        if let Some(defect) = defect_of(mirror, false) {
            return refused(format!("the mirror {defect}"));
        }
        if mirror == source {
            return refused(format!(
                "the mirror {mirror} is the source itself; leave it out"
            ));
        }
        if mirrors.iter().take(index).any(|other| other == mirror) {
            return refused(format!("the mirror {mirror} is given twice; give it once"));
        }
    }
    Ok(())
}

/// Returns what is wrong with a name, in words that follow `the source` or `the mirror`.
fn defect_of(name: &str, is_source: bool) -> Option<String> {
    let shown = make_inline(name);
    let reason = |text: &str| Some(format!("`{shown}` {text}"));
    let (host, path) = match name.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (name, None),
    };
    if name.is_empty() {
        return Some("is empty; write HOST[:PORT][/PATH]".to_owned());
    }
    if let Some((scheme, rest)) = name.split_once("://") {
        return reason(&format!(
            "has a scheme; leave `{}://` out: {}",
            make_inline(scheme),
            make_inline(rest)
        ));
    }
    if name.chars().any(char::is_whitespace) {
        return reason("has a blank in it; give one name an argument");
    }
    if name.contains('@') {
        return reason(
            "has a digest; write the repository without `@sha256:…`, a mirror is for all its images",
        );
    }
    if name.ends_with('/') {
        return reason("ends with a slash; leave it out");
    }
    if name.contains('*') {
        return match (is_source, scopes::is_source(name)) {
            (true, true) => None,
            (true, false) => reason(
                "is not a wildcard; * is allowed only at the beginning, before a domain: `*.HOST`",
            ),
            (false, _) => {
                reason("has a star; only a source can be a wildcard, a mirror is one place")
            }
        };
    }
    if path.is_some_and(|path| path.contains(':')) {
        return reason("has a tag; write the repository alone, a mirror is for all its images");
    }
    if path.is_some_and(|path| path.chars().any(char::is_uppercase)) {
        return reason("has upper case letters in its path; registries have lower case only");
    }
    if !scopes::is_host(host) {
        return reason("does not begin with the host of a registry; write HOST[:PORT][/PATH]");
    }
    if !host.contains(['.', ':']) && host != "localhost" {
        return reason(
            "does not begin with the host of a registry, which has a dot or a port; write it in full, such as docker.io/library/NAME",
        );
    }
    if !scopes::is_mirror(name) {
        return reason(
            "is not a repository: its path has letters, digits, and single dots, underscores or dashes between them",
        );
    }
    None
}
