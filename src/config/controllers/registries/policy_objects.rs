//! Image policies, derived from the requirements in a policy.json.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::NAMESPACE_POLICIES;
use super::policy_json::{Policy, Scopes};

/// Returns the requirements of each namespace alone, by its file.
pub(super) fn merge_namespaces(
    cluster: &Policy,
    files: &BTreeMap<String, Vec<u8>>,
) -> BTreeMap<String, Scopes> {
    let empty = Scopes::new();
    let shared = cluster.transports.get("docker").unwrap_or(&empty);
    let own = |policy: &Policy| -> Scopes {
        let scopes = policy.transports.get("docker").into_iter().flatten();
        let scopes = scopes.filter_map(|(scope, all)| {
            let count = shared.get(scope).map_or(0, Vec::len);
            let own = all.get(count..).filter(|own| !own.is_empty())?;
            Some((scope.clone(), own.to_vec()))
        });
        scopes.collect()
    };
    let policies = files.iter().filter_map(|(path, bytes)| {
        let name = path
            .strip_prefix(NAMESPACE_POLICIES)?
            .strip_suffix(".json")?;
        Some((name.to_owned(), own(&Policy::parse(bytes)?)))
    });
    policies.collect()
}

/// Adds the ClusterImagePolicies and ImagePolicies. Scopes with the same requirements share an object.
pub(super) fn add_policies(
    cluster: &Policy,
    namespaces: &BTreeMap<String, Scopes>,
    objects: &mut Vec<Value>,
) {
    let empty = Scopes::new();
    let of_cluster = cluster.transports.get("docker").unwrap_or(&empty);
    add_scopes(of_cluster, None, objects);
    for (namespace, scopes) in namespaces {
        add_scopes(scopes, Some(namespace), objects);
    }
}

fn add_scopes(scopes: &Scopes, namespace: Option<&str>, objects: &mut Vec<Value>) {
    let mut shared: Vec<(Vec<&Value>, Vec<&str>)> = Vec::new();
    for (scope, all) in scopes {
        let signed = all
            .iter()
            .filter(|requirement| requirement["type"] == "sigstoreSigned");
        let signed: Vec<&Value> = signed.collect();
        match shared.iter_mut().find(|(same, _)| *same == signed) {
            Some((_, scopes)) => scopes.push(scope),
            None => shared.push((signed, vec![scope])),
        }
    }
    let mut count = 0;
    for (requirements, scopes) in shared {
        for requirement in requirements {
            count += 1;
            let name = format!("of-this-node-{count}");
            objects.push(policy_object(&name, namespace, &scopes, requirement));
        }
    }
}

fn policy_object(
    name: &str,
    namespace: Option<&str>,
    scopes: &[&str],
    requirement: &Value,
) -> Value {
    let mut metadata = json!({ "name": name });
    let kind = match namespace {
        Some(namespace) => {
            metadata["namespace"] = namespace.into();
            "ImagePolicy"
        }
        None => "ClusterImagePolicy",
    };
    json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "scopes": scopes,
            "policy": {
                "rootOfTrust": root_of_trust(requirement),
                "signedIdentity": signed_identity(&requirement["signedIdentity"]),
            },
        },
    })
}

/// Returns an object of the keys that have a value.
fn object_of<const N: usize>(entries: [(&str, &Value); N]) -> Value {
    let entries = entries.into_iter().filter(|(_, value)| !value.is_null());
    let entries = entries.map(|(key, value)| (key.to_owned(), value.clone()));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn root_of_trust(requirement: &Value) -> Value {
    let rekor = &requirement["rekorPublicKeyData"];
    if let Some(fulcio) = requirement.get("fulcio") {
        let subject = object_of([
            ("oidcIssuer", &fulcio["oidcIssuer"]),
            ("signedEmail", &fulcio["subjectEmail"]),
        ]);
        let fulcio = object_of([
            ("fulcioCAData", &fulcio["caData"]),
            ("rekorKeyData", rekor),
            ("fulcioSubject", &subject),
        ]);
        return json!({ "policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": fulcio });
    }
    if let Some(pki) = requirement.get("pki") {
        let subject = object_of([
            ("email", &pki["subjectEmail"]),
            ("hostname", &pki["subjectHostname"]),
        ]);
        let pki = object_of([
            ("caRootsData", &pki["caRootsData"]),
            ("caIntermediatesData", &pki["caIntermediatesData"]),
            ("pkiCertificateSubject", &subject),
        ]);
        return json!({ "policyType": "PKI", "pki": pki });
    }
    let key = object_of([
        ("keyData", &requirement["keyData"]),
        ("rekorKeyData", rekor),
    ]);
    json!({ "policyType": "PublicKey", "publicKey": key })
}

fn signed_identity(identity: &Value) -> Value {
    match identity["type"].as_str().unwrap_or_default() {
        "matchRepository" => json!({ "matchPolicy": "MatchRepository" }),
        "exactRepository" => json!({
            "matchPolicy": "ExactRepository",
            "exactRepository": { "repository": identity["dockerRepository"] },
        }),
        "remapIdentity" => json!({
            "matchPolicy": "RemapIdentity",
            "remapIdentity": {
                "prefix": identity["prefix"],
                "signedPrefix": identity["signedPrefix"],
            },
        }),
        _ => json!({ "matchPolicy": "MatchRepoDigestOrExact" }),
    }
}
