//! Keys of objects that the API does not define, or that only a newer operator reads. They have no effect here.

use serde_json::Value;

use super::{ApiObject, Cluster, Generation, Note};

/// Kinds, a path in their objects, and the keys defined there. `[]` means every item of a list.
const FIELDS: [(&[&str], &str, &[&str]); 24] = [
    (
        &super::objects::KINDS,
        "",
        &["apiVersion", "kind", "metadata", "spec", "status"],
    ),
    (
        &["APIServer"],
        "spec",
        &[
            "servingCerts",
            "clientCA",
            "additionalCORSAllowedOrigins",
            "encryption",
            "tlsSecurityProfile",
            "tlsAdherence",
            "audit",
        ],
    ),
    (
        &["APIServer", "KubeletConfig"],
        "spec.tlsSecurityProfile",
        &["type", "old", "intermediate", "modern", "custom"],
    ),
    (
        &["APIServer", "KubeletConfig"],
        "spec.tlsSecurityProfile.custom",
        &["ciphers", "minTLSVersion"],
    ),
    (&["CRIOCredentialProviderConfig"], "spec", &["matchImages"]),
    (
        &["ClusterImagePolicy", "ImagePolicy"],
        "spec",
        &["scopes", "policy"],
    ),
    (
        &["ClusterImagePolicy", "ImagePolicy"],
        "spec.policy",
        &["rootOfTrust", "signedIdentity"],
    ),
    (
        &["ClusterImagePolicy", "ImagePolicy"],
        "spec.policy.rootOfTrust",
        &["policyType", "publicKey", "fulcioCAWithRekor", "pki"],
    ),
    (
        &["ClusterImagePolicy", "ImagePolicy"],
        "spec.policy.signedIdentity",
        &["matchPolicy", "exactRepository", "remapIdentity"],
    ),
    (
        &["ContainerRuntimeConfig"],
        "spec",
        &["machineConfigPoolSelector", "containerRuntimeConfig"],
    ),
    (
        &["ContainerRuntimeConfig"],
        "spec.containerRuntimeConfig",
        &super::runtime::FIELDS,
    ),
    (
        &["Image"],
        "spec",
        &[
            "registrySources",
            "allowedRegistriesForImport",
            "externalRegistryHostnames",
            "additionalTrustedCA",
            "imageStreamImportMode",
        ],
    ),
    (
        &["Image"],
        "spec.registrySources",
        &[
            "insecureRegistries",
            "blockedRegistries",
            "allowedRegistries",
            "containerRuntimeSearchRegistries",
        ],
    ),
    (
        &["ImageContentSourcePolicy"],
        "spec",
        &["repositoryDigestMirrors"],
    ),
    (
        &["ImageContentSourcePolicy"],
        "spec.repositoryDigestMirrors[]",
        &["source", "mirrors"],
    ),
    (&["ImageDigestMirrorSet"], "spec", &["imageDigestMirrors"]),
    (
        &["ImageDigestMirrorSet"],
        "spec.imageDigestMirrors[]",
        &["source", "mirrors", "mirrorSourcePolicy"],
    ),
    (&["ImageTagMirrorSet"], "spec", &["imageTagMirrors"]),
    (
        &["ImageTagMirrorSet"],
        "spec.imageTagMirrors[]",
        &["source", "mirrors", "mirrorSourcePolicy"],
    ),
    (
        &["KubeletConfig"],
        "spec",
        &[
            "machineConfigPoolSelector",
            "kubeletConfig",
            "logLevel",
            "autoSizingReserved",
            "tlsSecurityProfile",
        ],
    ),
    (
        &["MachineConfigPool"],
        "spec",
        &[
            "machineConfigSelector",
            "nodeSelector",
            "paused",
            "maxUnavailable",
            "configuration",
            "pinnedImageSets",
            "osImageStream",
        ],
    ),
    (&["MachineConfigPool"], "spec.osImageStream", &["name"]),
    (
        &["Node"],
        "spec",
        &[
            "cgroupMode",
            "workerLatencyProfile",
            "minimumKubeletVersion",
        ],
    ),
    (&["OSImageStream"], "spec", &["defaultStream"]),
];

/// Kind, path and key of the fields for GOMAXPROCS, which operators after 2026-08 read.
const NEWER: [(&str, &str, &str); 2] = [
    ("KubeletConfig", "spec", "systemGomaxprocsBehavior"),
    (
        "ContainerRuntimeConfig",
        "spec.containerRuntimeConfig",
        "containerGomaxprocsBehavior",
    ),
];

/// Adds a note for each key without effect.
pub(super) fn sync_known_fields(cluster: &Cluster, generation: &mut Generation) {
    for object in &cluster.objects {
        let of_kind = FIELDS
            .iter()
            .filter(|(kinds, ..)| kinds.contains(&object.kind.as_str()));
        for (_, place, keys) in of_kind {
            let mut found = Vec::new();
            collect_values(&object.value, place, String::new(), &mut found);
            for (at, value) in found {
                let given = value.as_object().into_iter().flatten();
                let unknown = given.filter(|(key, _)| !keys.contains(&key.as_str()));
                let notes =
                    unknown.map(|(key, value)| note_about(object, place, &at, key, value, keys));
                generation.notes.extend(notes);
            }
        }
    }
}

/// Collects the values at a path, each with its full path.
fn collect_values<'v>(
    value: &'v Value,
    place: &str,
    at: String,
    found: &mut Vec<(String, &'v Value)>,
) {
    if place.is_empty() {
        found.push((at, value));
        return;
    }
    let (step, rest) = place.split_once('.').unwrap_or((place, ""));
    let key = step.strip_suffix("[]").unwrap_or(step);
    let Some(inner) = value.get(key) else {
        return;
    };
    let at = if at.is_empty() {
        key.to_owned()
    } else {
        format!("{at}.{key}")
    };
    if key == step {
        return collect_values(inner, rest, at, found);
    }
    for (index, item) in inner.as_array().into_iter().flatten().enumerate() {
        collect_values(item, rest, format!("{at}[{index}]"), found);
    }
}

fn note_about(
    object: &ApiObject,
    place: &str,
    at: &str,
    key: &str,
    value: &Value,
    keys: &[&str],
) -> Note {
    let path = match at {
        "" => key.to_owned(),
        at => format!("{at}.{key}"),
    };
    if NEWER.contains(&(&object.kind, place, key)) {
        return Note {
            object: object.title(),
            text: format!(
                "{path}: {value} is not rendered. An operator that reads it writes more files than these; the one of 2026-08 does \
                 not read it yet."
            ),
            inexact: value != "Disabled",
        };
    }
    Note {
        object: object.title(),
        text: format!(
            "{path} has no effect; the keys here are {}. Correct it if it is mistyped; a key of a newer release is not rendered.",
            keys.join(", ")
        ),
        // The API drops unknown keys, so if an object from a cluster has one, the cluster knows it.
        inexact: object.get("/metadata/uid").is_some(),
    }
}
