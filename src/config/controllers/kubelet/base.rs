//! The configuration that is the base of every KubeletConfig of a pool: the template's, with feature gates, TLS profile and
//! latency profile.

use serde_json::{Map, Value};

use super::decode::decode_fields;
use super::fields::KUBELET;
use super::merge::complete_fields;
use super::tls::{self, TlsSettings};
use crate::base::reason::Reason;
use crate::config::controllers::cluster::{KUBELET_CONF, file_of};
use crate::config::controllers::{
    Base, Cluster, ConfigPool, GeneratedConfig, Generation, Note, latency,
};
use crate::config::document::{pool_in, yaml};
use crate::formats::go_yaml::{YamlNode, write_yaml};

/// The fields of `KubeletConfiguration`.
pub(in crate::config::controllers) type KubeletFields = Map<String, Value>;

/// Returns the pools whose base is known: all of them with parts, otherwise that of the rendered config.
pub(in crate::config::controllers) fn list_pools(
    cluster: &Cluster,
) -> impl Iterator<Item = &ConfigPool> {
    let own = own_pool(&cluster.base);
    let of_base = move |pool: &&ConfigPool| own.as_ref().is_none_or(|own| *own == pool.name);
    cluster.pools.iter().filter(of_base)
}

/// Returns the pool of a rendered config.
pub(super) fn own_pool(base: &Base) -> Option<String> {
    let Base::Rendered(config) = base else {
        return None;
    };
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
    let owner = text("/metadata/ownerReferences/0/name");
    let name = || pool_in(text("/metadata/name")?);
    owner.or_else(name).map(str::to_owned)
}

/// Returns the base of a pool.
///
/// # Errors
/// A sentence about what is missing.
pub(in crate::config::controllers) fn of_pool(
    cluster: &Cluster,
    pool: &str,
) -> Result<KubeletFields, Reason> {
    let bytes = file_of_pool(cluster, pool).ok_or_else(|| {
        format!("the configs that are given have no {KUBELET_CONF} for the pool {pool}")
    })?;
    let fields = read_fields(&bytes).and_then(complete_template);
    let mut fields = fields
        .map_err(|error| format!("{KUBELET_CONF} of the pool {pool} cannot be read: {error}"))?;
    let template = find_template(cluster, pool);
    set_gates(&mut fields, template.as_ref(), cluster);
    if let Some(settings) = tls_of_cluster(cluster)
        && known_tls(&fields, &settings)
    {
        set_tls(&mut fields, &settings);
    }
    if pool == "worker" {
        latency::set_latency(&mut fields, template.as_ref(), cluster);
    }
    Ok(fields)
}

/// Completes a template's file, which the controller has not written yet.
fn complete_template(fields: KubeletFields) -> Result<KubeletFields, Reason> {
    if is_written(&fields) {
        return Ok(fields);
    }
    Ok(complete_fields(
        decode_fields(&Value::Object(fields))?,
        &KUBELET,
    ))
}

/// Returns true for a file that the controller wrote: it has fields that no template has.
fn is_written(fields: &KubeletFields) -> bool {
    fields.contains_key("volumeStatsAggPeriod")
}

/// Returns the fields of a rendered config's file, completed if the controller did not write it.
pub(super) fn of_rendered(config: &Value) -> Option<KubeletFields> {
    complete_template(read_fields(&file_of(config, KUBELET_CONF)?).ok()?).ok()
}

/// Returns the base from the operator's 98 or 97, or else the template's file, or that of the rendered config.
fn file_of_pool(cluster: &Cluster, pool: &str) -> Option<Vec<u8>> {
    let written = |number: u8| {
        let part = cluster
            .base
            .find_part(&format!("{number}-{pool}-generated-kubelet"))?;
        file_of(part, KUBELET_CONF)
    };
    let written = written(98).or_else(|| written(97));
    written.or_else(|| cluster.base.find_file(pool, KUBELET_CONF))
}

fn read_fields(bytes: &[u8]) -> Result<KubeletFields, Reason> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    match yaml::parse_yaml(text).map_err(Reason::from_error)? {
        Value::Object(fields) => Ok(fields),
        _ => Err("it is not a list of keys and values".into()),
    }
}

/// Returns the file of the template; `None` if the parts are unknown.
fn find_template(cluster: &Cluster, pool: &str) -> Option<KubeletFields> {
    let role = ConfigPool::built_in(pool).map_or("worker".to_owned(), |pool| pool.name);
    let part = cluster.base.find_part(&format!("01-{role}-kubelet"))?;
    decode_fields(&Value::Object(
        read_fields(&file_of(part, KUBELET_CONF)?).ok()?,
    ))
    .ok()
}

fn set_gates(fields: &mut KubeletFields, template: Option<&KubeletFields>, cluster: &Cluster) {
    let Some(gates) = &cluster.gates else {
        return;
    };
    let known = template.unwrap_or(fields).get("featureGates");
    let mut all = known
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    all.extend(gates.iter().map(|(name, on)| (name.clone(), (*on).into())));
    if all.is_empty() {
        fields.remove("featureGates");
    } else {
        fields.insert("featureGates".to_owned(), Value::Object(all));
    }
}

/// Returns the settings of the APIServer object, if it is given.
fn tls_of_cluster(cluster: &Cluster) -> Option<TlsSettings> {
    let object = cluster.find_single("APIServer", "cluster")?;
    Some(tls::tls_settings(object.get("/spec/tlsSecurityProfile")))
}

/// Returns true if the base's operator has the same tables of TLS profiles as this program.
fn known_tls(fields: &KubeletFields, wanted: &TlsSettings) -> bool {
    let current = tls_of(fields);
    let profiles = ["Old", "Intermediate", "Modern"];
    let known =
        |name: &&str| tls::tls_settings(Some(&serde_json::json!({ "type": name }))) == current;
    current == *wanted || profiles.iter().any(known)
}

fn tls_of(fields: &KubeletFields) -> TlsSettings {
    let ciphers = fields.get("tlsCipherSuites").and_then(Value::as_array);
    let ciphers = ciphers.into_iter().flatten().filter_map(Value::as_str);
    let version = fields.get("tlsMinVersion").and_then(Value::as_str);
    TlsSettings {
        min_version: version.unwrap_or_default().to_owned(),
        ciphers: ciphers.map(str::to_owned).collect(),
    }
}

/// Applies a TLS profile to the configuration.
pub(super) fn set_tls(fields: &mut KubeletFields, settings: &TlsSettings) {
    fields.remove("tlsMinVersion");
    fields.remove("tlsCipherSuites");
    if !settings.min_version.is_empty() {
        let version = settings.min_version.as_str();
        fields.insert("tlsMinVersion".to_owned(), version.into());
    }
    if !settings.ciphers.is_empty() {
        let ciphers = settings.ciphers.clone();
        fields.insert("tlsCipherSuites".to_owned(), ciphers.into());
    }
}

/// Returns the bytes of the file.
pub(in crate::config::controllers) fn write_fields(fields: &KubeletFields) -> Vec<u8> {
    let mut fields = fields.clone();
    fields.insert("kind".to_owned(), "KubeletConfiguration".into());
    fields.insert(
        "apiVersion".to_owned(),
        "kubelet.config.k8s.io/v1beta1".into(),
    );
    let nodes: Vec<(&str, YamlNode<'_>)> = fields
        .iter()
        .map(|(key, value)| (key.as_str(), YamlNode::from(value)))
        .collect();
    let mut bytes = Vec::new();
    write_yaml(nodes.iter().map(|(key, node)| (*key, node)), &mut |piece| {
        bytes.extend_from_slice(piece.as_bytes());
    });
    bytes
}

/// Adds a note about a rendered config whose file the controller did not write.
pub(super) fn note_foreign(cluster: &Cluster, generation: &mut Generation) {
    let Base::Rendered(config) = &cluster.base else {
        return;
    };
    let fields = file_of(config, KUBELET_CONF).and_then(|bytes| read_fields(&bytes).ok());
    if fields.is_some_and(|fields| !is_written(&fields)) {
        generation.notes.push(Note::inexact(
            String::new(),
            format!(
                "{KUBELET_CONF} of the rendered config is not one that the controller wrote: it is a template's or your own. It is taken \
                 as the base, and completed; feature gates may be missing."
            ),
        ));
    }
}

/// Adds `98-POOL-generated-kubelet`, which contains the base, if that changes, and the templates that a TLS profile changes.
pub(super) fn sync_features(cluster: &Cluster, generation: &mut Generation) {
    for pool in list_pools(cluster) {
        let Ok(fields) = of_pool(cluster, &pool.name) else {
            continue;
        };
        let name = format!("98-{}-generated-kubelet", pool.name);
        let contents = write_fields(&fields);
        let is_same = match &cluster.base {
            Base::Parts(parts) => {
                parts
                    .get(&name)
                    .and_then(|part| file_of(part, KUBELET_CONF))
                    == Some(contents.clone())
            }
            // A file from a user's MachineConfig may have another form.
            Base::Rendered(config) => {
                file_of(config, KUBELET_CONF).and_then(|bytes| read_fields(&bytes).ok())
                    == Some(fields)
            }
        };
        if !is_same {
            generation.configs.push(GeneratedConfig {
                name,
                pool: pool.name.clone(),
                files: vec![crate::config::controllers::GeneratedFile::new(
                    KUBELET_CONF,
                    contents,
                )],
                ..GeneratedConfig::default()
            });
        }
    }
    sync_tls(cluster, generation);
}

/// Edits the template files that contain the APIServer's TLS profile.
fn sync_tls(cluster: &Cluster, generation: &mut Generation) {
    let Some(settings) = tls_of_cluster(cluster) else {
        return;
    };
    let bases: Vec<KubeletFields> = list_pools(cluster)
        .filter_map(|pool| {
            let bytes = file_of_pool(cluster, &pool.name)?;
            read_fields(&bytes).ok()
        })
        .collect();
    if !bases.iter().all(|fields| known_tls(fields, &settings)) {
        generation.notes.push(note_tls(
            "The TLS settings of the base match no known profile: their ciphers are customized, or the operator \
             is another version. They stay as they are.",
        ));
        return;
    }
    match &cluster.base {
        Base::Parts(parts) => {
            let templates = parts
                .iter()
                .filter(|(name, _)| name.starts_with("00-") || name.starts_with("01-"));
            let mut is_exact = true;
            for (_, part) in templates {
                let mut part = part.clone();
                if let Some(exact) = edit_part(&mut part, &settings) {
                    is_exact &= exact && !settings.ciphers.is_empty();
                    generation.changed_parts.push(part);
                }
            }
            if !is_exact {
                generation.notes.push(note_tls(
                    "The template controller's files with the TLS profile were edited, and their form may differ from the cluster's.",
                ));
            }
        }
        Base::Rendered(_) => {
            if bases.iter().any(|fields| tls_of(fields) != settings) {
                generation.notes.push(note_tls(
                    "The TLS profile also changes files of the template controller, such as \
                     /etc/kubernetes/manifests/criometricsproxy.yaml. They stay as they are: give the parts with --parts.",
                ));
            }
        }
    }
}

fn note_tls(text: &str) -> Note {
    Note::inexact("APIServer cluster".to_owned(), text)
}

/// Edits the files of a part. Returns `None` if none changes, otherwise whether the form of the files is certain.
fn edit_part(part: &mut Value, settings: &TlsSettings) -> Option<bool> {
    let files = part
        .pointer_mut("/spec/config/storage/files")?
        .as_array_mut()?;
    let mut result = None;
    for file in files {
        let Some(source) = file.pointer_mut("/contents/source") else {
            continue;
        };
        let text = source.as_str().and_then(|url| {
            let bytes = crate::config::document::data_url(url).ok()?;
            String::from_utf8(bytes).ok()
        });
        let Some(text) = text else { continue };
        if let Some(edited) = tls::edit_template(&text, settings) {
            let same_form = source.as_str() == Some(escape_text(&text).as_str());
            *source = escape_text(&edited).into();
            result = Some(result.unwrap_or(true) && same_form);
        }
    }
    result
}

/// Returns a text as a data URL in the templates' form.
fn escape_text(text: &str) -> String {
    let mut url = String::from("data:,");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}
