//! Derives objects from the files of a node, such that the objects produce the same files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::base::{Template, template_of, template_text};
use super::conf::{Conf, DIGEST_ONLY, Endpoint, Entry, TAG_ONLY};
use super::inputs::RegistryInputs;
use super::policy_json::{self, Policy};
use super::scopes::is_nested;
use super::sets::{ALLOW, NEVER};
use super::{POLICY_JSON, REGISTRIES_CONF, SEARCH_DROP_IN, policy_objects, write_files};
use crate::base::text::make_inline;
use crate::config::controllers::{ApiObject, Base, Cluster, GeneratedFile};

/// Maximum size of a file. The controller never writes a larger one; treat it as hand-made.
const MAX_TEXT: usize = 4 << 20;
/// Maximum number of entries. The controller never writes more; treat larger files as hand-made.
const MAX_ENTRIES: usize = 5000;
/// The name of the objects.
const NAME: &str = "of-this-node";

/// Objects that produce the files of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inverted {
    /// The objects: always an `Image cluster`, then mirror sets and image policies.
    pub objects: Vec<Value>,
    /// Facts that the files do not show: the cluster may have other objects that produce the same files. Each completes the
    /// sentence `The files do not show …`.
    pub ambiguities: Vec<String>,
    /// Used in place of the release image, with the repository that the files suggest.
    pub release_image: String,
}

/// A line that no API object can produce.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}, line {line}: {message}")]
pub struct Inexpressible {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The defect and the advice.
    pub message: String,
}

/// Converts the files of a node (paths and bytes, from [`super::files_in_force`]) to objects. Verifies that the objects produce
/// exactly these files.
///
/// # Errors
/// The first line that no object produces: the files were written by hand or come from another MachineConfig.
pub fn invert_files(files: &BTreeMap<String, Vec<u8>>) -> Result<Inverted, Inexpressible> {
    let found = Found::read_files(files)?;
    let mut cuts = vec![found.first_copied(), found.rules_end()];
    cuts.dedup();
    let mut result = Err(line_of(REGISTRIES_CONF, 1, "nothing was tried".to_owned()));
    for cut in cuts {
        let inverted = found.invert_objects(cut);
        result = compare_files(&inverted, &found, files).map(|()| inverted);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The files, read.
struct Found {
    conf: Conf,
    has_conf: bool,
    /// The file without its entries.
    header: Conf,
    policy: Policy,
    /// policy.json is neither the template's nor in the controller's form.
    has_foreign_policy: bool,
    search: Option<Vec<String>>,
    /// Rejected by policy.json.
    rejected: BTreeSet<String>,
    /// Accepted by policy.json.
    accepted: BTreeSet<String>,
    namespaces: BTreeMap<String, policy_json::Scopes>,
}

fn line_of(path: &str, line: usize, message: String) -> Inexpressible {
    Inexpressible {
        path: path.to_owned(),
        line,
        message,
    }
}

fn text_of<'a>(
    files: &'a BTreeMap<String, Vec<u8>>,
    path: &str,
) -> Result<Option<&'a str>, Inexpressible> {
    let Some(bytes) = files.get(path) else {
        return Ok(None);
    };
    if bytes.len() > MAX_TEXT {
        let message = "the file is too long for the controller's; look at it by hand".to_owned();
        return Err(line_of(path, 1, message));
    }
    std::str::from_utf8(bytes).map(Some).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "this is not text; restore the file from its MachineConfig".to_owned();
        line_of(path, line, message)
    })
}

/// Parses a file in the form of the controller or the template.
fn read_conf(path: &str, text: &str) -> Result<Conf, Inexpressible> {
    let conf = Conf::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let reason = make_inline(error.message());
        line_of(
            path,
            line,
            format!("this is not TOML: {reason}; correct it"),
        )
    })?;
    let count: usize = conf
        .registry
        .iter()
        .map(|entry| 1 + entry.mirror.len())
        .sum();
    if count > MAX_ENTRIES {
        let message = format!("{count} entries are too many; look at the file by hand");
        return Err(line_of(path, 1, message));
    }
    if template_text(&conf) != text {
        compare_texts(path, &conf.text(), text)?;
    }
    Ok(conf)
}

/// Refuses the first line that differs from the controller's output.
fn compare_texts(path: &str, expected: &str, found: &str) -> Result<(), Inexpressible> {
    if expected == found {
        return Ok(());
    }
    let expected: Vec<&str> = expected.split('\n').collect();
    let lines: Vec<&str> = found.split('\n').collect();
    let same = expected
        .iter()
        .zip(&lines)
        .take_while(|(a, b)| a == b)
        .count();
    let line = lines.get(same).copied().unwrap_or_default();
    let defect = match (line.trim(), expected.get(same)) {
        ("", Some(wanted)) => format!("API objects produce `{}` here", make_inline(wanted.trim())),
        (text, _) if text.starts_with('#') => format!("`{}` is a comment", make_inline(text)),
        (text, None) => format!("`{}` is too much", make_inline(text)),
        (text, Some(wanted)) if text == wanted.trim() => {
            format!(
                "`{}` is not indented as the controller does it",
                make_inline(text)
            )
        }
        (text, Some(wanted)) => format!(
            "no API object produces `{}`; they produce `{}` here",
            make_inline(text),
            make_inline(wanted.trim())
        ),
    };
    Err(line_of(path, same + 1, defect))
}

impl Found {
    fn read_files(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, Inexpressible> {
        let text = text_of(files, REGISTRIES_CONF)?;
        let conf = text
            .map(|text| read_conf(REGISTRIES_CONF, text))
            .transpose()?;
        let has_conf =
            matches!((text, &conf), (Some(text), Some(conf)) if template_text(conf) != text);
        let conf = conf.unwrap_or_else(Conf::template);
        let header = template_of(&conf, text.unwrap_or_default());
        let written = text_of(files, POLICY_JSON)?.map(Policy::parse_written);
        let has_foreign_policy = matches!(written, Some(None));
        let policy = written.flatten().unwrap_or_else(Policy::template);
        let docker = policy.transports.get("docker").into_iter().flatten();
        let with_first = |first: Value| {
            let scopes = docker
                .clone()
                .filter(move |(_, all)| all.first() == Some(&first));
            scopes
                .map(|(scope, _)| scope.clone())
                .collect::<BTreeSet<String>>()
        };
        let search = text_of(files, SEARCH_DROP_IN)?;
        let search = search
            .map(|text| read_conf(SEARCH_DROP_IN, text))
            .transpose()?;
        Ok(Self {
            header,
            has_conf,
            rejected: with_first(policy_json::reject_policy()),
            accepted: with_first(policy_json::accept_policy()),
            search: search.and_then(|conf| conf.unqualified_search_registries),
            namespaces: policy_objects::merge_namespaces(&policy, files),
            has_foreign_policy,
            policy,
            conf,
        })
    }

    /// Returns the number of entries from mirror rules. These come first, sorted, with those for digests before the others.
    fn rules_end(&self) -> usize {
        let has =
            |entry: &Entry, pull: &str| entry.mirror.iter().any(|m| m.pull_from_mirror == pull);
        let kind = |entry: &Entry| match (entry.mirror.is_empty(), has(entry, TAG_ONLY)) {
            (true, _) => 2,
            (false, true) if !has(entry, DIGEST_ONLY) => 1,
            (false, _) => 0,
        };
        let entries = &self.conf.registry;
        let order = |entry: &Entry| (kind(entry), entry.scope().to_owned());
        let mut end = 0;
        while let Some(entry) = entries.get(end) {
            let is_after = end == 0 || order(&entries[end - 1]) < order(entry);
            if kind(entry) == 2 || !is_after {
                break;
            }
            end += 1;
        }
        end
    }

    /// Returns the number of entries that must come from mirror rules. The mirrors of the remaining entries, up to the end of
    /// the rules, may be copies of another entry's.
    fn first_copied(&self) -> usize {
        let mut end = self.rules_end();
        while end > 0 && self.may_be_copy(&self.conf.registry[end - 1]) {
            end -= 1;
        }
        end
    }

    fn may_be_copy(&self, entry: &Entry) -> bool {
        let has_reason = self.rejected.contains(entry.scope()) || self.is_outermost_insecure(entry);
        has_reason && self.conf.registry.iter().any(|outer| is_copy(entry, outer))
    }

    fn is_outermost_insecure(&self, entry: &Entry) -> bool {
        let mut others = self.conf.registry.iter();
        entry.insecure
            && !others.any(|outer| {
                outer.insecure
                    && outer.scope() != entry.scope()
                    && is_nested(entry.scope(), outer.scope())
            })
    }

    /// Returns the objects, assuming that the first `cut` entries come from mirror rules.
    fn invert_objects(&self, cut: usize) -> Inverted {
        let mut ambiguities = Vec::new();
        let image = self.image_object(cut, &mut ambiguities);
        let mut objects = vec![image];
        let rules = self.conf.registry.get(..cut).unwrap_or_default();
        for (kind, list, pull) in [
            ("ImageDigestMirrorSet", "imageDigestMirrors", DIGEST_ONLY),
            ("ImageTagMirrorSet", "imageTagMirrors", TAG_ONLY),
        ] {
            let rules: Vec<Value> = rules
                .iter()
                .filter_map(|entry| self.mirror_rule(entry, pull, cut))
                .collect();
            if !rules.is_empty() {
                objects.push(json!({
                    "apiVersion": "config.openshift.io/v1",
                    "kind": kind,
                    "metadata": { "name": NAME },
                    "spec": { list: rules },
                }));
            }
        }
        self.note_mirrors(rules, cut, &mut ambiguities);
        if self.has_foreign_policy {
            let text = "if registries are blocked or allowed: policy.json is not in the form of the controller, and stays as \
                        it is";
            ambiguities.push(text.to_owned());
        }
        policy_objects::add_policies(&self.policy, &self.namespaces, &mut objects);
        if objects.iter().any(|object| {
            object["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("ImagePolicy"))
        }) {
            let text = "the split of the image policies into objects: here is one for each scope with the same requirements";
            ambiguities.push(text.to_owned());
        }
        Inverted {
            objects,
            ambiguities,
            release_image: self.release_image(cut),
        }
    }

    fn mirror_rule(&self, entry: &Entry, pull: &str, cut: usize) -> Option<Value> {
        let other = if pull == DIGEST_ONLY {
            TAG_ONLY
        } else {
            DIGEST_ONLY
        };
        let own = entry.mirror.iter().filter(|mirror| {
            let is_digest = pull == DIGEST_ONLY && mirror.pull_from_mirror != other;
            is_digest || mirror.pull_from_mirror == pull
        });
        let mirrors: Vec<&str> = own.map(|mirror| mirror.location.as_str()).collect();
        if mirrors.is_empty() {
            return None;
        }
        let mut rule = json!({ "source": entry.scope(), "mirrors": mirrors });
        if self.is_never_asked(entry, cut) {
            rule["mirrorSourcePolicy"] = NEVER.into();
        }
        Some(rule)
    }

    /// Returns the repository of the release image if it is itself a blocked scope, which policy.json then allows.
    fn blocked_payload(&self, cut: usize) -> Option<&str> {
        if self.policy.default == [policy_json::accept_policy()] {
            let scope = self
                .accepted
                .first()
                .filter(|_| !self.rejected.is_empty())?;
            let mut rejected = self.rejected.iter();
            let is_inside = rejected.any(|outer| is_nested(scope, outer));
            return (!is_inside).then_some(scope);
        }
        let behind = self.conf.registry.get(cut..).unwrap_or_default();
        let mut blocked = behind
            .iter()
            .filter(|entry| entry.blocked)
            .map(Entry::scope);
        let has_all = |outer: &&str| self.policy_scopes().all(|scope| is_nested(scope, outer));
        blocked.find(has_all)
    }

    /// Returns every scope of a policy.
    fn policy_scopes(&self) -> impl Iterator<Item = &str> {
        let docker = self.policy.transports.get("docker").into_iter().flatten();
        let own = self.namespaces.values().flat_map(BTreeMap::keys);
        docker
            .map(|(scope, _)| scope)
            .chain(own)
            .map(String::as_str)
    }

    /// Returns the scopes of blockedRegistries.
    fn blocked_scopes(&self, cut: usize) -> BTreeSet<&str> {
        let rejected = self.rejected.iter().map(String::as_str);
        rejected.chain(self.blocked_payload(cut)).collect()
    }

    /// Returns true for a source that is not blocked by a list but by the policy of its mirrors.
    fn is_never_asked(&self, entry: &Entry, cut: usize) -> bool {
        let mut blocked = self.blocked_scopes(cut).into_iter();
        entry.blocked && !blocked.any(|outer| is_nested(entry.scope(), outer))
    }

    fn image_object(&self, cut: usize, ambiguities: &mut Vec<String>) -> Value {
        let entries = &self.conf.registry;
        let listed = self.blocked_scopes(cut);
        let blocked = entries.iter().map(Entry::scope);
        let blocked: Vec<&str> = blocked.filter(|scope| listed.contains(scope)).collect();
        let appended = |entry: &Entry| {
            let index = entries
                .iter()
                .position(|other| other.scope() == entry.scope());
            index.is_some_and(|index| index >= cut) && !listed.contains(entry.scope())
        };
        let (behind, outer): (Vec<&Entry>, Vec<&Entry>) = entries
            .iter()
            .filter(|entry| appended(entry) || self.is_outermost_insecure(entry))
            .partition(|entry| appended(entry));
        let insecure: Vec<&str> = behind
            .iter()
            .chain(&outer)
            .map(|entry| entry.scope())
            .collect();
        self.note_order(cut, &blocked, &insecure, ambiguities);
        let allowed = self.allowed_scopes(cut);
        let mut sources = json!({});
        let is_empty_file = self.has_conf && entries.is_empty();
        if !insecure.is_empty() || is_empty_file {
            sources["insecureRegistries"] = json!(insecure);
        }
        if is_empty_file {
            let text = "an empty list, or a mirror set without mirrors, made registries.conf: here it is an empty \
                        insecureRegistries";
            ambiguities.push(text.to_owned());
        }
        for (key, list) in [
            ("blockedRegistries", &blocked),
            ("allowedRegistries", &allowed),
        ] {
            if !list.is_empty() {
                sources[key] = json!(list);
            }
        }
        if let Some(search) = &self.search {
            sources["containerRuntimeSearchRegistries"] = json!(search);
        }
        json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Image",
            "metadata": { "name": "cluster" },
            "spec": { "registrySources": sources },
        })
    }

    /// Returns the allowed scopes: the accepted ones, and those of policies outside of them.
    fn allowed_scopes(&self, cut: usize) -> Vec<&str> {
        let is_allowed = self.policy.default == [policy_json::reject_policy()];
        if !is_allowed || self.blocked_payload(cut).is_some() {
            return Vec::new();
        }
        let mut allowed: Vec<&str> = self.accepted.iter().map(String::as_str).collect();
        for scope in self.policy_scopes() {
            if !allowed.iter().any(|outer| is_nested(scope, outer)) {
                allowed.push(scope);
            }
        }
        allowed
    }

    /// Returns the release image. If only rejected scopes are listed, an accepted one is its repository.
    fn release_image(&self, cut: usize) -> String {
        let is_payload =
            self.policy.default == [policy_json::accept_policy()] && !self.rejected.is_empty();
        let accepted = self.accepted.first().filter(|_| is_payload);
        let repository = accepted.map(String::as_str).or(self.blocked_payload(cut));
        let repository = repository.unwrap_or("release-image.invalid/unknown");
        format!("{repository}@sha256:{}", "0".repeat(64))
    }

    fn note_order(
        &self,
        cut: usize,
        blocked: &[&str],
        insecure: &[&str],
        ambiguities: &mut Vec<String>,
    ) {
        let rules = self.conf.registry.get(..cut).unwrap_or_default();
        for (name, list) in [
            ("blockedRegistries", blocked),
            ("insecureRegistries", insecure),
        ] {
            let hidden: Vec<&str> = rules
                .iter()
                .map(Entry::scope)
                .filter(|scope| list.contains(scope))
                .collect();
            if !hidden.is_empty() && list.len() > 1 {
                let hidden = hidden.join(", ");
                ambiguities.push(format!(
                    "the places of {hidden} in {name}: they matter only when its mirrors are removed"
                ));
            }
        }
        let inside = self.conf.registry.iter().filter(|entry| {
            let blocked = blocked.iter().any(|outer| is_inside(entry, outer));
            let insecure = entry.insecure && insecure.iter().any(|outer| is_inside(entry, outer));
            (entry.blocked && blocked) || insecure
        });
        let inside: Vec<&str> = inside.map(Entry::scope).collect();
        if !inside.is_empty() {
            ambiguities.push(format!(
                "if {} are listed in blockedRegistries or insecureRegistries themselves, or only within a scope that is",
                inside.join(", ")
            ));
        }
    }

    fn note_mirrors(&self, rules: &[Entry], cut: usize, ambiguities: &mut Vec<String>) {
        if !rules.is_empty() {
            let text = "the split of the mirrors into objects, and which of them are ImageContentSourcePolicies: here is one \
                        object for digests and one for tags";
            ambiguities.push(text.to_owned());
        }
        let never: Vec<&str> = rules
            .iter()
            .filter(|entry| {
                self.is_never_asked(entry, cut) && self.accepted.contains(entry.scope())
            })
            .map(Entry::scope)
            .collect();
        if !never.is_empty() {
            ambiguities.push(format!(
                "if {} has NeverContactSource and is allowed, or is the blocked repository of the release image",
                never.join(", ")
            ));
        }
        let copied = self
            .conf
            .registry
            .iter()
            .enumerate()
            .filter(|(index, entry)| {
                !entry.mirror.is_empty()
                    && (*index >= cut
                        || self.conf.registry.iter().any(|outer| is_copy(entry, outer)))
            });
        let copied: Vec<&str> = copied.map(|(_, entry)| entry.scope()).collect();
        if !copied.is_empty() {
            ambiguities.push(format!(
                "if the mirrors of {} are their own, or those of the source that they lie in",
                copied.join(", ")
            ));
        }
    }
}

fn is_inside(entry: &Entry, outer: &str) -> bool {
    entry.scope() != outer && is_nested(entry.scope(), outer)
}

/// Returns true if the mirrors of an entry are those of another one, extended by the rest of its scope.
fn is_copy(entry: &Entry, outer: &Entry) -> bool {
    let rest = entry.scope().strip_prefix(outer.scope());
    let Some(rest) = rest.filter(|rest| rest.starts_with('/')) else {
        return false;
    };
    let is_adjusted = |(own, other): (&Endpoint, &Endpoint)| {
        own.location.strip_suffix(rest) == Some(&other.location)
            && own.insecure == other.insecure
            && own.pull_from_mirror == other.pull_from_mirror
    };
    !entry.mirror.is_empty()
        && entry.mirror.len() == outer.mirror.len()
        && entry.mirror.iter().zip(&outer.mirror).all(is_adjusted)
}

/// Generates the files of the objects and compares them.
fn compare_files(
    inverted: &Inverted,
    found: &Found,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<(), Inexpressible> {
    let cluster = cluster_of(&inverted.objects, &inverted.release_image);
    let template = Template {
        conf: found.header.clone(),
        policy: Policy::template(),
        policy_bytes: policy_json::TEMPLATE.as_bytes().to_vec(),
    };
    let made = RegistryInputs::read_cluster(&cluster, &mut Vec::new());
    let made = made.and_then(|inputs| write_files(&inputs, &template));
    let made = made.map_err(|refusal| {
        let message = format!("the controller rejects this: {}", refusal.message);
        line_of(REGISTRIES_CONF, 1, message)
    })?;
    let is_foreign = |path: &str| found.has_foreign_policy && path == POLICY_JSON;
    for (path, bytes) in files.iter().filter(|(path, _)| !is_foreign(path)) {
        let expected = made.iter().find(|file: &&GeneratedFile| file.path == *path);
        let template = match path.as_str() {
            REGISTRIES_CONF => template_text(&found.conf),
            POLICY_JSON => policy_json::TEMPLATE.to_owned(),
            _ => String::new(),
        };
        let expected = expected.map_or(template.as_bytes(), |file| &file.contents);
        if expected != bytes {
            let expected = String::from_utf8_lossy(expected);
            compare_texts(path, &expected, &String::from_utf8_lossy(bytes))?;
        }
    }
    match made.iter().find(|file| !files.contains_key(&file.path)) {
        None => Ok(()),
        Some(file) => {
            let message = "the file is missing; restore it from its MachineConfig";
            Err(line_of(&file.path, 1, message.to_owned()))
        }
    }
}

/// Returns a cluster with only these objects.
pub(super) fn cluster_of(objects: &[Value], release_image: &str) -> Cluster {
    let objects = objects.iter().cloned();
    Cluster {
        pools: Vec::new(),
        objects: objects
            .map(|object| ApiObject::new(object, "the node's files"))
            .collect(),
        gates: Some(BTreeMap::from([(
            "SigstoreImageVerification".to_owned(),
            true,
        )])),
        release_image: Some(release_image.to_owned()),
        base: Base::Parts(BTreeMap::new()),
    }
}

/// Returns the `mirrorSourcePolicy` of a rule, or the default.
pub(super) fn policy_of(rule: &Value) -> &str {
    let policy = rule.get("mirrorSourcePolicy").and_then(Value::as_str);
    policy.filter(|policy| !policy.is_empty()).unwrap_or(ALLOW)
}
