//! The registries controller: mirrors, blocked and allowed registries, and image policies become `99-POOL-generated-registries`
//! (docs/reference/controllers.md).
//!
//! `inputs` reads the objects, `sets` merges the mirrors of a source, `conf` builds registries.conf, `payload` keeps the
//! release image available, `policy_json` and `image_policies` build the policies, `sigstore` the list of locations with
//! signatures next to the images. `base` knows the template's files.

mod base;
mod conf;
mod image_policies;
mod inputs;
mod invert;
mod mirror;
mod payload;
mod policy_json;
mod policy_objects;
mod pulls;
pub(super) mod scopes;
mod sets;
mod sigstore;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ApiObject, Cluster, GeneratedConfig, GeneratedFile, Generation, Note, ObjectRefusal};
use crate::base::go_quote::quote_go;
use crate::config::document::Finding;
use base::Template;
use conf::Conf;
use inputs::RegistryInputs;
use payload::CountingLists;

pub use base::{files_in_force, owned_files};
pub use invert::{Inverted, invert_files};
pub use mirror::{add_mirror, mirrors_of, remove_mirror};

/// registries.conf.
pub(super) const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
/// policy.json.
pub(super) const POLICY_JSON: &str = "/etc/containers/policy.json";
/// The file with the locations whose signatures are next to the images.
pub(super) const SIGSTORE: &str = "/etc/containers/registries.d/sigstore-registries.yaml";
/// The directory with the policies of namespaces.
pub(super) const NAMESPACE_POLICIES: &str = "/etc/crio/policies/";
/// The list of registries for short names.
pub(super) const SEARCH_DROP_IN: &str =
    "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";

/// The end of the names of the MachineConfigs.
const NAME_END: &str = "-generated-registries";

/// Adds the MachineConfigs, refusals and notes of this controller. Without any of its objects, existing MachineConfigs are
/// unchanged and missing ones are created empty.
pub(super) fn sync_registries(cluster: &Cluster, generation: &mut Generation) {
    let inputs = match RegistryInputs::read_cluster(cluster, &mut generation.notes) {
        Ok(inputs) => inputs,
        Err(refusal) => return generation.refusals.push(refusal),
    };
    if !inputs.are_given {
        let missing = cluster.built_in_pools().filter(|pool| {
            let is_known = matches!(cluster.base, super::Base::Parts(_));
            is_known
                && cluster
                    .base
                    .find_part(&format!("99-{pool}{NAME_END}"))
                    .is_none()
        });
        let empty = missing.map(|pool| generate_config(&pool, Vec::new(), &inputs));
        return generation.configs.extend(empty);
    }
    let mut configs = Vec::new();
    for pool in cluster.built_in_pools() {
        let template = Template::read_template(&cluster.base, &pool, &mut generation.notes);
        match write_files(&inputs, &template) {
            Ok(files) => {
                base::note_losses(&cluster.base, &pool, &files, &mut generation.notes);
                configs.push(generate_config(&pool, files, &inputs));
            }
            Err(refusal) => return generation.refusals.push(refusal),
        }
    }
    generation.notes.extend(inputs.policies.notes);
    let left_out = inputs
        .lists
        .left_out
        .map(|text| Note::exact("Image cluster".to_owned(), text));
    generation.notes.extend(left_out);
    generation.configs.extend(configs);
}

fn generate_config(
    pool: &str,
    files: Vec<GeneratedFile>,
    inputs: &RegistryInputs<'_>,
) -> GeneratedConfig {
    let mut owner = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Image",
        "name": "cluster",
    });
    if let Some(uid) = &inputs.image_uid {
        owner["uid"] = uid.as_str().into();
    }
    GeneratedConfig {
        name: format!("99-{pool}{NAME_END}"),
        pool: pool.to_owned(),
        files,
        owners: vec![owner],
        ..GeneratedConfig::default()
    }
}

/// Writes the files, in the controller's order.
fn write_files(
    inputs: &RegistryInputs<'_>,
    template: &Template,
) -> Result<Vec<GeneratedFile>, ObjectRefusal> {
    let mut files = Vec::new();
    let conf = write_conf(inputs, template)?;
    if let Some(conf) = &conf {
        files.push(GeneratedFile::new(REGISTRIES_CONF, conf.text()));
    }
    let lists = &inputs.lists;
    let policies = &inputs.policies;
    let has_scopes = policies.scopes().next().is_some();
    if !lists.rejected.is_empty() || !lists.allowed.is_empty() || has_scopes {
        add_policies(inputs, template, conf.as_ref(), &mut files)?;
    }
    if let Some(search) = &inputs.sources.search {
        let drop_in = Conf {
            unqualified_search_registries: Some(search.clone()),
            ..template.conf.header()
        };
        files.push(GeneratedFile::new(SEARCH_DROP_IN, drop_in.text()));
    }
    Ok(files)
}

/// Returns registries.conf; `None` if nothing requires it.
fn write_conf(
    inputs: &RegistryInputs<'_>,
    template: &Template,
) -> Result<Option<Conf>, ObjectRefusal> {
    let step = |words: String| {
        format!(
            "could not Create/Update MachineConfig: could not update registries config with new changes: {words}"
        )
    };
    let insecure = inputs.sources.insecure.as_deref();
    let blocked = &inputs.lists.blocked;
    if insecure.is_none() && blocked.is_empty() && !inputs.has_mirror_objects {
        return Ok(None);
    }
    let insecure = insecure.unwrap_or_default();
    let lists = [("insecure", insecure), ("blocked", blocked)];
    inputs
        .check_scopes(&lists)
        .map_err(|refusal| refusal.after_step(step))?;
    let rules: [&[_]; 2] = [&inputs.digest_rules, &inputs.tag_rules];
    sets::check_rules(&rules).map_err(|refusal| refusal.after_step(step))?;
    let mut conf = template.conf.clone();
    let edited = conf.add_scopes(insecure, blocked, &inputs.digests, &inputs.tags);
    edited.map_err(|words| {
        let advice = "a mirrored wildcard cannot hold another entry: take the blocked or insecure registry below it out, \
                      or mirror its hosts one by one";
        inputs.refuse_at_image("spec.registrySources", step(words.to_string()), advice)
    })?;
    Ok(Some(conf))
}

/// Adds policy.json, the list for signatures, and the policies of namespaces.
fn add_policies(
    inputs: &RegistryInputs<'_>,
    template: &Template,
    conf: Option<&Conf>,
    files: &mut Vec<GeneratedFile>,
) -> Result<(), ObjectRefusal> {
    let lists = &inputs.lists;
    let policies = &inputs.policies;
    let step = |words: String| {
        format!(
            "could not Create/Update MachineConfig: could not update policy json with new changes: {words}"
        )
    };
    check_policies(inputs).map_err(|refusal| refusal.after_step(step))?;
    let mut policy = template.policy.clone();
    policy.add_scopes(&lists.rejected, &lists.allowed, &policies.cluster);
    let is_untouched =
        lists.rejected.is_empty() && lists.allowed.is_empty() && policies.cluster.is_empty();
    let bytes = if is_untouched {
        template.policy_bytes.clone()
    } else {
        policy.text().into_bytes()
    };
    files.push(GeneratedFile::new(POLICY_JSON, bytes));
    let own = policies
        .namespaces
        .values()
        .flat_map(|scopes| scopes.keys());
    let own = own.map(String::as_str);
    if let Some((scope, end)) = policy_json::find_forbidden(own, &lists.rejected, &lists.allowed) {
        let message = format!(
            "could not Create/Update MachineConfig: could not update namespace policy JSON from imagepolicy: imagePolicy configured for the scope {scope} {end}"
        );
        return Err(inputs.refuse_at_policy(scope, message));
    }
    add_signed_places(inputs, conf, files)?;
    for (namespace, scopes) in &policies.namespaces {
        let path = format!("{NAMESPACE_POLICIES}{namespace}.json");
        files.push(GeneratedFile::new(
            path,
            policy.with_namespace(scopes).text(),
        ));
    }
    Ok(())
}

/// Checks the inputs before policy.json is written.
fn check_policies(inputs: &RegistryInputs<'_>) -> Result<(), ObjectRefusal> {
    let CountingLists {
        rejected, allowed, ..
    } = &inputs.lists;
    let is_payload = |allowed: &[String]| match allowed {
        [one] => Some(one.as_str()) == inputs.repository.as_deref(),
        _ => false,
    };
    if !rejected.is_empty() && !allowed.is_empty() && !is_payload(allowed) {
        let message = "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified";
        let advice = "keep one of the two lists";
        let at = "spec.registrySources.blockedRegistries";
        return Err(inputs.refuse_at_image(at, message, advice));
    }
    let scopes = inputs.policies.cluster.keys().map(String::as_str);
    if let Some((scope, end)) = policy_json::find_forbidden(scopes, rejected, allowed) {
        let message = format!("clusterimagePolicy configured for the scope {scope} {end}");
        return Err(inputs.refuse_at_policy(scope, message));
    }
    inputs.check_scopes(&[("blocked", rejected), ("allowed", allowed)])
}

fn add_signed_places(
    inputs: &RegistryInputs<'_>,
    conf: Option<&Conf>,
    files: &mut Vec<GeneratedFile>,
) -> Result<(), ObjectRefusal> {
    let scopes: BTreeSet<&str> = inputs.policies.scopes().collect();
    if scopes.is_empty() {
        return Ok(());
    }
    match sigstore::sigstore_text(scopes.into_iter(), conf) {
        Ok(text) => files.push(GeneratedFile::new(SIGSTORE, text)),
        Err((scope, words)) => {
            let message = format!("could not Create/Update MachineConfig: {words}");
            return Err(inputs.refuse_at_policy(scope, message));
        }
    }
    Ok(())
}

impl ObjectRefusal {
    /// Returns the refusal with its message wrapped in that of the failed step.
    fn after_step(mut self, step: impl Fn(String) -> String) -> Self {
        self.message = step(self.message);
        self
    }
}

/// Returns a refusal at a place in an object.
pub(super) fn refuse_object(
    object: &ApiObject,
    path: &str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> ObjectRefusal {
    let finding = object.locate(Finding::error(path, ""));
    ObjectRefusal {
        object: object.title(),
        place: format!("{}: {}", object.origin, finding.path),
        message: message.into(),
        advice: advice.into(),
    }
}

/// Returns a list of texts in an object; `None` if it is missing or `null`.
pub(super) fn read_texts(
    object: &ApiObject,
    path: &str,
) -> Result<Option<Vec<String>>, ObjectRefusal> {
    let Some(value) = object.get(&to_pointer(path)) else {
        return Ok(None);
    };
    let wrong = |path: &str, message: &str| {
        let advice = "write it as in `oc explain`, and apply it with `oc apply --dry-run=server` where there is an API";
        refuse_object(object, path, message, advice)
    };
    let items = value.as_array();
    let items = items.ok_or_else(|| wrong(path, "this is not a list"))?;
    let texts = items.iter().enumerate().map(|(index, item)| {
        let text = item.as_str().map(str::to_owned);
        text.ok_or_else(|| wrong(&format!("{path}[{index}]"), "this is not a text"))
    });
    texts
        .collect::<Result<Vec<String>, ObjectRefusal>>()
        .map(Some)
}

/// Returns the JSON pointer for a path such as `spec.items[2].name`.
pub(super) fn to_pointer(path: &str) -> String {
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.flat_map(|part| ["/", part]).collect()
}

/// Returns the text at a path; any other value counts as missing.
fn text_at<'a>(object: &'a ApiObject, path: &str) -> Option<&'a str> {
    object.get(&to_pointer(path)).and_then(Value::as_str)
}
