//! ClusterImagePolicy and ImagePolicy: the signatures that images need.

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::policy_json::Scopes;
use super::scopes::is_nested;
use super::{ObjectRefusal, read_texts, refuse_object};
use crate::base::go_quote::quote_go;
use crate::config::controllers::{ApiObject, Note};

/// Go's decoder ignores unused bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The policies of all objects.
#[derive(Debug, Default)]
pub(super) struct ImagePolicies {
    /// Requirements that apply to the whole cluster.
    pub(super) cluster: Scopes,
    /// Requirements of namespaces.
    pub(super) namespaces: BTreeMap<String, Scopes>,
    /// Notes about omitted scopes, and about an undefined order.
    pub(super) notes: Vec<Note>,
}

impl ImagePolicies {
    /// Reads the objects.
    ///
    /// # Errors
    /// The first object that the controller refuses.
    pub(super) fn read_objects<'a>(
        of_cluster: impl Iterator<Item = &'a ApiObject>,
        of_namespaces: impl Iterator<Item = &'a ApiObject>,
    ) -> Result<Self, ObjectRefusal> {
        let mut all = Self::default();
        for object in of_cluster {
            let requirement = to_requirement(object)?;
            for scope in read_texts(object, "spec.scopes")?.unwrap_or_default() {
                let list = all.cluster.entry(scope.clone()).or_default();
                list.push(requirement.clone());
                let is_shared = list.len() > 1;
                all.note_order(object, &scope, is_shared);
            }
        }
        for object in of_namespaces {
            all.add_namespaced(object)?;
        }
        Ok(all)
    }

    fn add_namespaced(&mut self, object: &ApiObject) -> Result<(), ObjectRefusal> {
        let Some(namespace) = &object.namespace else {
            let message = "an ImagePolicy has a namespace";
            let advice = "add metadata.namespace, or use a ClusterImagePolicy";
            return Err(refuse_object(object, "metadata.namespace", message, advice));
        };
        let requirement = to_requirement(object)?;
        let mut conflicts = Vec::new();
        for scope in read_texts(object, "spec.scopes")?.unwrap_or_default() {
            if self.cluster.keys().any(|outer| is_nested(&scope, outer)) {
                conflicts.push(quote_go(&scope));
                continue;
            }
            let own = self.namespaces.entry(namespace.clone()).or_default();
            let list = own.entry(scope.clone()).or_default();
            list.push(requirement.clone());
            let is_shared = list.len() > 1;
            self.note_order(object, &scope, is_shared);
        }
        if !conflicts.is_empty() {
            let conflicts = conflicts.join(" ");
            self.notes.push(Note::exact(
                object.title(),
                format!(
                    "has conflicting scope(s) [{conflicts}] that equal to or nest inside existing clusterimagepolicy, only policy from clusterimagepolicy scope(s) will be applied"
                ),
            ));
        }
        Ok(())
    }

    fn note_order(&mut self, object: &ApiObject, scope: &str, is_shared: bool) {
        if is_shared {
            self.notes.push(Note::inexact(
                object.title(),
                format!(
                    "Another policy has the scope {scope} too. The controller puts their requirements in an order that is not defined; here it is that of the files."
                ),
            ));
        }
    }

    /// Returns every scope, in order.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &str> {
        let own = self.namespaces.values().flat_map(BTreeMap::keys);
        self.cluster.keys().chain(own).map(String::as_str)
    }
}

/// Returns the requirement in policy.json for a policy.
fn to_requirement(object: &ApiObject) -> Result<Value, ObjectRefusal> {
    let mut requirement = Map::new();
    requirement.insert("type".to_owned(), "sigstoreSigned".into());
    let root = "spec.policy.rootOfTrust";
    let policy_type = text_of(object, &format!("{root}.policyType"))?;
    let mut rekor_key = None;
    match policy_type {
        "PublicKey" => {
            let at = format!("{root}.publicKey");
            let key = bytes_of(object, &format!("{at}.keyData"))?;
            requirement.insert("keyData".to_owned(), key.into());
            rekor_key = optional_bytes(object, &format!("{at}.rekorKeyData"))?;
        }
        "FulcioCAWithRekor" => {
            let at = format!("{root}.fulcioCAWithRekor");
            let fulcio = json!({
                "caData": bytes_of(object, &format!("{at}.fulcioCAData"))?,
                "oidcIssuer": text_of(object, &format!("{at}.fulcioSubject.oidcIssuer"))?,
                "subjectEmail": text_of(object, &format!("{at}.fulcioSubject.signedEmail"))?,
            });
            requirement.insert("fulcio".to_owned(), fulcio);
            rekor_key = Some(bytes_of(object, &format!("{at}.rekorKeyData"))?);
        }
        "PKI" => {
            let pki = pki_requirement(object, &format!("{root}.pki"))?;
            requirement.insert("pki".to_owned(), pki.into());
        }
        other => {
            let message = format!("unknown rootOfTrust policy type: {other}");
            let advice = "use PublicKey, FulcioCAWithRekor or PKI";
            let at = format!("{root}.policyType");
            return Err(refuse_object(object, &at, message, advice));
        }
    }
    if let Some(key) = rekor_key {
        requirement.insert("rekorPublicKeyData".to_owned(), key.into());
    }
    requirement.insert("signedIdentity".to_owned(), signed_identity(object)?);
    Ok(requirement.into())
}

fn pki_requirement(object: &ApiObject, at: &str) -> Result<Map<String, Value>, ObjectRefusal> {
    let mut pki = Map::new();
    let roots = bytes_of(object, &format!("{at}.caRootsData"))?;
    pki.insert("caRootsData".to_owned(), roots.into());
    if let Some(data) = optional_bytes(object, &format!("{at}.caIntermediatesData"))? {
        pki.insert("caIntermediatesData".to_owned(), data.into());
    }
    let subject = format!("{at}.pkiCertificateSubject");
    for (key, name) in [("email", "subjectEmail"), ("hostname", "subjectHostname")] {
        if let Some(value) = optional_text(object, &format!("{subject}.{key}"))? {
            pki.insert(name.to_owned(), value.into());
        }
    }
    Ok(pki)
}

fn signed_identity(object: &ApiObject) -> Result<Value, ObjectRefusal> {
    let at = "spec.policy.signedIdentity";
    let match_policy = optional_text(object, &format!("{at}.matchPolicy"))?;
    Ok(match match_policy {
        None | Some("MatchRepoDigestOrExact") => json!({"type": "matchRepoDigestOrExact"}),
        Some("MatchRepository") => json!({"type": "matchRepository"}),
        Some("ExactRepository") => json!({
            "type": "exactRepository",
            "dockerRepository": text_of(object, &format!("{at}.exactRepository.repository"))?,
        }),
        Some("RemapIdentity") => json!({
            "type": "remapIdentity",
            "prefix": text_of(object, &format!("{at}.remapIdentity.prefix"))?,
            "signedPrefix": text_of(object, &format!("{at}.remapIdentity.signedPrefix"))?,
        }),
        Some(other) => {
            let message = format!("unknown signedIdentity match policy: {other}");
            let advice =
                "use MatchRepoDigestOrExact, MatchRepository, ExactRepository or RemapIdentity";
            let at = format!("{at}.matchPolicy");
            return Err(refuse_object(object, &at, message, advice));
        }
    })
}

fn optional_text<'a>(object: &'a ApiObject, path: &str) -> Result<Option<&'a str>, ObjectRefusal> {
    let pointer = format!("/{}", path.replace('.', "/"));
    match object.get(&pointer) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => {
            let advice = "write it as a text; in YAML in quotes";
            Err(refuse_object(object, path, "this is not a text", advice))
        }
    }
}

fn text_of<'a>(object: &'a ApiObject, path: &str) -> Result<&'a str, ObjectRefusal> {
    let text = optional_text(object, path)?;
    let advice = "add it, or remove the policy; the API takes no policy without it";
    text.ok_or_else(|| refuse_object(object, path, "this is missing", advice))
}

/// Returns base64 as the controller re-encodes it.
fn optional_bytes(object: &ApiObject, path: &str) -> Result<Option<String>, ObjectRefusal> {
    let Some(text) = optional_text(object, path)? else {
        return Ok(None);
    };
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match BASE64.decode(text) {
        Ok(bytes) => Ok(Some(BASE64_STANDARD.encode(bytes)).filter(|text| !text.is_empty())),
        Err(error) => {
            let message = format!("this is not base64: {error}");
            let advice = "put the PEM file through `base64 -w0`";
            Err(refuse_object(object, path, message, advice))
        }
    }
}

fn bytes_of(object: &ApiObject, path: &str) -> Result<String, ObjectRefusal> {
    let bytes = optional_bytes(object, path)?;
    let advice = "add it, in base64; the API takes no policy without it";
    bytes.ok_or_else(|| refuse_object(object, path, "this is missing", advice))
}
