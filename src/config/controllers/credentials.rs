//! The controller of CRIOCredentialProviderConfig: `97-POOL-generated-credentialproviderconfig`, which makes the kubelet ask
//! CRI-O's provider for the credentials of some images.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::kubelet::duration;
use super::registries::scopes::is_nested;
use super::registries::{read_texts, refuse_object};
use super::{
    ApiObject, Base, Cluster, GeneratedConfig, GeneratedFile, Generation, Note, ObjectRefusal,
};
use crate::base::reason::Reason;
use crate::config::document::yaml;
use crate::formats::go_yaml::{YamlNode, write_yaml};

const KIND: &str = "CRIOCredentialProviderConfig";
/// The end of the names of the MachineConfigs.
pub(super) const NAME_END: &str = "credentialproviderconfig";
/// The name of CRI-O's provider.
const PROVIDER: &str = "crio-credential-provider";
/// The files of the cloud platforms with a provider of their own; the templates of other platforms have none.
const OF_CLOUDS: [&str; 3] = [
    "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml",
    "/etc/kubernetes/credential-providers/gcr-credential-provider.yaml",
    "/etc/kubernetes/credential-providers/acr-credential-provider.yaml",
];
/// The file of the other platforms.
const GENERIC: &str = "/etc/kubernetes/credential-providers/generic-credential-provider.yaml";
/// The drop-in that passes the file to the kubelet.
const DROP_IN: &str =
    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
/// Files that only this controller writes.
pub(super) const OWNED: [&str; 2] = [GENERIC, DROP_IN];
/// Maximum number of patterns, and maximum length of one, that the API accepts.
const MOST: (usize, usize) = (50, 512);

/// Adds the MachineConfigs, refusals and notes of this controller. Without its object the MachineConfigs are unchanged.
pub(super) fn sync_credentials(cluster: &Cluster, generation: &mut Generation) {
    for other in cluster
        .of_kind(KIND)
        .filter(|object| object.name != "cluster")
    {
        let text = "The operator ignores it: the only object of this kind is named cluster.";
        generation.notes.push(note_about(other, text, false));
    }
    let Some(object) = cluster.find_single(KIND, "cluster") else {
        return;
    };
    if !has_effect(object, cluster, &mut generation.notes) {
        return;
    }
    match make_configs(object, cluster, &mut generation.notes) {
        Ok(configs) => generation.configs.extend(configs),
        Err(refusal) => generation.refusals.push(refusal),
    }
}

fn note_about(object: &ApiObject, text: impl Into<String>, inexact: bool) -> Note {
    Note {
        object: object.title(),
        text: text.into(),
        inexact,
    }
}

/// Returns true if the object has an effect in this cluster.
fn has_effect(object: &ApiObject, cluster: &Cluster, notes: &mut Vec<Note>) -> bool {
    match cluster.named_gate(KIND) {
        Some(true) => true,
        Some(false) => {
            let text = format!("It has no effect: the feature gate {KIND} is off in this cluster.");
            notes.push(note_about(object, text, false));
            false
        }
        None => {
            let text = format!(
                "It takes effect only with the feature gate {KIND}, which is on from OpenShift 5.0 on, and is unknown here. Give the \
                 object FeatureGate cluster, too."
            );
            notes.push(note_about(object, text, true));
            true
        }
    }
}

fn make_configs(
    object: &ApiObject,
    cluster: &Cluster,
    notes: &mut Vec<Note>,
) -> Result<Vec<GeneratedConfig>, ObjectRefusal> {
    let images = read_images(object)?;
    let mut configs = Vec::new();
    for pool in cluster.built_in_pools() {
        let files = files_of_pool(object, &images, &pool, cluster, notes)?;
        configs.push(GeneratedConfig {
            name: format!("97-{pool}-generated-{NAME_END}"),
            pool,
            files,
            owners: vec![owner_reference(object)],
            ..GeneratedConfig::default()
        });
    }
    Ok(configs)
}

fn owner_reference(object: &ApiObject) -> Value {
    let mut owner = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": KIND,
        "name": object.name,
    });
    if let Some(uid) = object.get("/metadata/uid") {
        owner["uid"] = uid.clone();
    }
    owner
}

/// Returns `spec.matchImages`, validated like the API does.
fn read_images(object: &ApiObject) -> Result<Vec<String>, ObjectRefusal> {
    let at = "spec.matchImages";
    let images = read_texts(object, at)?.unwrap_or_default();
    if images.len() > MOST.0 {
        let message = format!(
            "{} patterns; the API takes {} at most",
            images.len(),
            MOST.0
        );
        return Err(refuse_object(
            object,
            at,
            message,
            "cover several with one pattern, such as *.registry.example",
        ));
    }
    let bad = images.iter().position(|image| !is_pattern(image));
    match bad {
        None => Ok(images),
        Some(index) => Err(refuse_object(
            object,
            &format!("{at}[{index}]"),
            "invalid matchImages value, must be a valid fully qualified domain name in lowercase with optional wildcard, port, and path",
            "write HOST[:PORT][/PATH]; * matches one whole label of the host, such as *.registry.example",
        )),
    }
}

/// Returns true for an image pattern that the API accepts.
fn is_pattern(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label == "*"
            || label.starts_with(is_alphanumeric)
                && label.ends_with(is_alphanumeric)
                && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host, None),
    };
    text != "*"
        && text.len() <= MOST.1
        && host.split('.').all(is_label)
        && port
            .is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        && path
            .chars()
            .all(|c| is_alphanumeric(c) || "-._/".contains(c))
}

/// Returns the files for a pool: the providers of its platform plus CRI-O's, and the drop-in if the platform has none.
fn files_of_pool(
    object: &ApiObject,
    images: &[String],
    pool: &str,
    cluster: &Cluster,
    notes: &mut Vec<Note>,
) -> Result<Vec<GeneratedFile>, ObjectRefusal> {
    let of_cloud = OF_CLOUDS
        .iter()
        .find_map(|path| Some((*path, cluster.base.find_file(pool, path)?)));
    let (path, bytes) = of_cloud.unwrap_or((GENERIC, Vec::new()));
    let (mut providers, had_own) = read_providers(&bytes).map_err(|error| {
        let message = format!("error unmarshalling credential provider config: {error}");
        let next = format!("correct {path} of the pool {pool}");
        refuse_object(object, "spec", message, next)
    })?;
    let (overlapping, taken): (BTreeSet<&str>, BTreeSet<&str>) = images
        .iter()
        .map(String::as_str)
        .partition(|image| overlaps_provider(image, &providers));
    if !overlapping.is_empty() {
        let note = note_overlap(object, &overlapping);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    if taken.is_empty() {
        if had_own && matches!(cluster.base, Base::Rendered(_)) {
            let message = format!(
                "the template's {path} cannot be made of the rendered config, which has CRI-O's provider in it"
            );
            return Err(refuse_object(
                object,
                "spec.matchImages",
                message,
                "give the MachineConfigs with --parts",
            ));
        }
        return Ok(Vec::new());
    }
    providers.push(own_provider(&taken));
    let mut files = vec![GeneratedFile::new(path, write_providers(&providers))];
    if path == GENERIC {
        files.push(GeneratedFile::new(DROP_IN, drop_in()));
    }
    Ok(files)
}

fn note_overlap(object: &ApiObject, overlapping: &BTreeSet<&str>) -> Note {
    let list: Vec<&str> = overlapping.iter().copied().collect();
    let text = format!(
        "CRIOCredentialProviderConfig has one or multiple entries that overlap with the original credential provider config. Skip \
         rendering entries: [{}]. The provider of the platform serves these images.",
        list.join(" ")
    );
    note_about(object, text, false)
}

/// Returns true for a pattern that overlaps with one of a platform's provider.
fn overlaps_provider(image: &str, providers: &[Value]) -> bool {
    let lists = providers
        .iter()
        .filter_map(|provider| provider.get("matchImages")?.as_array());
    let mut known = lists.flatten().filter_map(Value::as_str);
    known.any(|known| is_nested(image, known) || is_nested(known, image))
}

/// Returns the providers of a file except CRI-O's own, in the form in which they are written back, and whether that one was
/// present.
fn read_providers(bytes: &[u8]) -> Result<(Vec<Value>, bool), Reason> {
    if bytes.is_empty() {
        return Ok((Vec::new(), false));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    let file = yaml::parse_yaml(text).map_err(Reason::from_error)?;
    let list = file.get("providers").and_then(Value::as_array);
    let mut providers = Vec::new();
    let mut had_own = false;
    for provider in list.into_iter().flatten() {
        if provider.get("name").and_then(Value::as_str) == Some(PROVIDER) {
            had_own = true;
            continue;
        }
        providers.push(read_provider(provider)?);
    }
    Ok((providers, had_own))
}

/// Returns one provider: the known fields, always including some with their empty values, and durations in Go's form.
fn read_provider(provider: &Value) -> Result<Value, Reason> {
    let mut read = Map::new();
    for (key, empty) in [
        ("name", json!("")),
        ("matchImages", Value::Null),
        ("apiVersion", json!("")),
    ] {
        read.insert(key.to_owned(), provider.get(key).cloned().unwrap_or(empty));
    }
    for key in ["args", "env", "tokenAttributes"] {
        let value = provider.get(key).filter(|value| !value.is_null());
        if let Some(value) =
            value.filter(|value| value.as_array().is_none_or(|items| !items.is_empty()))
        {
            read.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(given) = provider.get("defaultCacheDuration").and_then(Value::as_str) {
        read.insert(
            "defaultCacheDuration".to_owned(),
            duration::format_duration(duration::parse_duration(given)?).into(),
        );
    }
    Ok(Value::Object(read))
}

/// Returns CRI-O's provider, for these images.
fn own_provider(images: &BTreeSet<&str>) -> Value {
    json!({
        "name": PROVIDER,
        "matchImages": images,
        "defaultCacheDuration": "1s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "tokenAttributes": {
            "serviceAccountTokenAudience": "https://kubernetes.default.svc",
            "cacheType": "Token",
            "requireServiceAccount": false,
        },
    })
}

fn write_providers(providers: &[Value]) -> Vec<u8> {
    let file = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": providers,
    });
    let entries = file.as_object().into_iter().flatten();
    let nodes: Vec<(&str, YamlNode<'_>)> = entries
        .map(|(key, value)| (key.as_str(), YamlNode::from(value)))
        .collect();
    let mut bytes = Vec::new();
    write_yaml(nodes.iter().map(|(key, node)| (*key, node)), &mut |piece| {
        bytes.extend_from_slice(piece.as_bytes());
    });
    bytes
}

fn drop_in() -> String {
    format!(
        "[Service]\n# Prepends the credential provider flags to the existing Kubelet arguments\n\
         Environment=\"KUBELET_CRIO_IMAGE_CREDENTIAL_PROVIDER_FLAGS=--image-credential-provider-bin-dir=\
         /usr/libexec/kubelet-image-credential-provider-plugins --image-credential-provider-config={GENERIC}\"\n"
    )
}
