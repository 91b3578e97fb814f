//! `policy.json`: the signatures that an image needs (containers-policy.json(5)). Read, never changed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::ImageName;
use super::medium::Address;

/// The policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignaturePolicy {
    default: Vec<PolicyRequirement>,
    transports: BTreeMap<String, BTreeMap<String, Vec<PolicyRequirement>>>,
}

/// One requirement; all requirements of a scope have to be met.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRequirement {
    /// Its type, such as `insecureAcceptAnything`, `reject`, `signedBy` or `sigstoreSigned`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The file of the key.
    #[serde(default)]
    pub key_path: Option<String>,
    /// The files of several keys.
    #[serde(default)]
    pub key_paths: Vec<String>,
}

/// What the policy requires for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The rule that applies, such as `docker: quay.example/release` or `default`.
    pub rule: String,
    /// Its requirements.
    pub requirements: Vec<PolicyRequirement>,
}

/// The reason why a policy cannot be used; the containers tools then refuse every pull.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading the signature policy: {0}; correct it, nothing can be pulled until then")]
pub struct PolicyError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    default: Vec<Map<String, Value>>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Map<String, Value>>>>,
}

/// The types of requirements with their fields. Other types and fields are refused.
const FIELDS: [(&str, &[&str]); 5] = [
    ("insecureAcceptAnything", &[]),
    ("reject", &[]),
    (
        "signedBy",
        &[
            "keyType",
            "keyPath",
            "keyPaths",
            "keyData",
            "signedIdentity",
        ],
    ),
    ("signedBaseLayer", &["baseLayerIdentity"]),
    (
        "sigstoreSigned",
        &[
            "keyPath",
            "keyPaths",
            "keyData",
            "keyDatas",
            "fulcio",
            "pki",
            "rekorPublicKeyPath",
            "rekorPublicKeyPaths",
            "rekorPublicKeyData",
            "rekorPublicKeyDatas",
            "signedIdentity",
        ],
    ),
];
/// The fields for a key; a requirement has exactly one of them.
const KEYS: [&str; 6] = [
    "keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki",
];

/// Checks a requirement like the tools; `place` is where it is in the file.
fn check_requirement(
    place: &str,
    fields: Map<String, Value>,
) -> Result<PolicyRequirement, PolicyError> {
    let refuse = |words: String| PolicyError(format!("{place}: {words}"));
    let kind = fields
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some((_, known)) = FIELDS.iter().find(|(known, _)| *known == kind) else {
        return Err(refuse(format!("{kind:?} is not a type of a requirement")));
    };
    let is_known = |key: &&String| *key == "type" || known.contains(&key.as_str());
    if let Some(key) = fields.keys().find(|key| !is_known(key)) {
        return Err(refuse(format!("{kind} has no field {key:?}")));
    }
    let keys = KEYS.iter().filter(|key| fields.contains_key(**key)).count();
    if known.contains(&"keyPath") && keys != 1 {
        return Err(refuse(format!(
            "{kind} needs exactly one key, and has {keys}"
        )));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| refuse(error.to_string()))
}

/// Checks the requirements of one scope.
fn check_list(
    place: &str,
    list: Vec<Map<String, Value>>,
) -> Result<Vec<PolicyRequirement>, PolicyError> {
    if list.is_empty() {
        return Err(PolicyError("a list of requirements is empty".to_owned()));
    }
    let checked = list
        .into_iter()
        .map(|fields| check_requirement(place, fields));
    checked.collect()
}

impl SignaturePolicy {
    /// Parses the file.
    ///
    /// # Errors
    /// It is not JSON, has no default or an empty list, or has an unknown type or field. The tools refuse it too.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let raw: RawPolicy =
            serde_json::from_str(text).map_err(|error| PolicyError(error.to_string()))?;
        let mut transports: BTreeMap<String, BTreeMap<String, Vec<PolicyRequirement>>> =
            BTreeMap::new();
        for (transport, scopes) in raw.transports {
            let of_transport = transports.entry(transport.clone()).or_default();
            for (scope, list) in scopes {
                let list = check_list(&format!("{transport}: {scope:?}"), list)?;
                of_transport.insert(scope, list);
            }
        }
        Ok(Self {
            default: check_list("default", raw.default)?,
            transports,
        })
    }

    /// Returns the ruling on an image of a registry. The name in the config decides, not that of a mirror.
    pub fn of_registry(&self, image: &ImageName) -> Ruling {
        self.first_rule("docker", &registry_scopes(image))
    }

    /// Returns the ruling on an image on a medium; the path has to be absolute and without links.
    pub fn of_medium(&self, address: &Address) -> Ruling {
        let (transport, path) = (address.form.to_string(), address.path.to_string_lossy());
        let named = address.name.iter().map(|name| format!("{path}:{name}"));
        let scopes: Vec<String> = named.chain(scopes_of_path(&path)).collect();
        self.first_rule(&transport, &scopes)
    }

    /// Returns true if the default accepts anything. `ostree-image-signed:` is then refused, and the daemon writes no exception
    /// for `containers-storage` unless that has rules of its own (docs/develop/agreement.md: Operating system).
    pub fn accepts_anything_by_default(&self) -> bool {
        accepts_anything(&self.default)
    }

    /// Returns true if there are rules for a transport.
    pub fn has_rules_for(&self, transport: &str) -> bool {
        self.transports.contains_key(transport)
    }

    /// Returns the first rule of a transport for these scopes, most specific first.
    pub(super) fn first_rule(&self, transport: &str, scopes: &[String]) -> Ruling {
        let rules = self.transports.get(transport);
        let of_scope = |scope: &str| Some((scope.to_owned(), rules?.get(scope)?));
        let found = scopes
            .iter()
            .find_map(|scope| of_scope(scope))
            .or_else(|| of_scope(""));
        match found {
            Some((scope, requirements)) => Ruling {
                rule: format!(
                    "{transport}: {}",
                    if scope.is_empty() { "all" } else { &scope }
                ),
                requirements: requirements.clone(),
            },
            None => Ruling {
                rule: "default".to_owned(),
                requirements: self.default.clone(),
            },
        }
    }
}

impl Ruling {
    /// Returns true if the image is accepted without a signature.
    pub fn accepts_anything(&self) -> bool {
        accepts_anything(&self.requirements)
    }

    /// Returns true if every image is refused.
    pub fn rejects(&self) -> bool {
        self.requirements.iter().any(|one| one.kind == "reject")
    }

    /// Returns the required key files.
    pub fn keys(&self) -> Vec<&str> {
        let each = self.requirements.iter();
        each.flat_map(|one| one.key_path.iter().chain(&one.key_paths))
            .map(String::as_str)
            .collect()
    }
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self
            .requirements
            .iter()
            .map(|one| one.kind.as_str())
            .collect();
        write!(f, "{} ({})", kinds.join(" and "), self.rule)
    }
}

fn accepts_anything(requirements: &[PolicyRequirement]) -> bool {
    requirements
        .iter()
        .all(|one| one.kind == "insecureAcceptAnything")
}

/// Returns the path and its parent directories, most specific first.
fn scopes_of_path(path: &str) -> Vec<String> {
    let parents = std::iter::successors(Some(path), |path| {
        let (above, _) = path.rsplit_once('/')?;
        (!above.is_empty()).then_some(above)
    });
    parents.map(str::to_owned).collect()
}

/// Returns the name, the repository, its parents, the host, and wildcards of the host's domains, most specific first.
fn registry_scopes(image: &ImageName) -> Vec<String> {
    let repository = image.repository();
    let parents = std::iter::successors(Some(repository.as_str()), |name| {
        name.rsplit_once('/').map(|(above, _)| above)
    });
    let host = image.host.split(':').next().unwrap_or(&image.host);
    let domains = std::iter::successors(Some(host), |name| {
        name.split_once('.').map(|(_, rest)| rest)
    });
    let exact = [image.to_string()].into_iter();
    exact
        .chain(parents.map(str::to_owned))
        .chain(domains.skip(1).map(|domain| format!("*.{domain}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::images::Form;

    const POLICY: &str = r#"{
        "default": [{"type": "insecureAcceptAnything"}],
        "transports": {
            "docker": {
                "quay.example/release": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/etc/pki/key"}],
                "quay.example/release/os": [{"type": "reject"}],
                "*.example": [{"type": "sigstoreSigned", "keyPaths": ["/a", "/b"]}],
                "": [{"type": "reject"}]
            },
            "oci": {"/mnt": [{"type": "reject"}]}
        }
    }"#;

    fn rule(name: &str) -> String {
        let image = ImageName::parse(name).unwrap();
        SignaturePolicy::parse(POLICY)
            .unwrap()
            .of_registry(&image)
            .rule
    }

    #[test]
    fn the_closest_scope_counts() {
        assert_eq!(
            rule("quay.example/release/other:1"),
            "docker: quay.example/release"
        );
        assert_eq!(
            rule("quay.example/release/os:1"),
            "docker: quay.example/release/os"
        );
        assert_eq!(rule("quay.example/os:1"), "docker: *.example");
        assert_eq!(rule("quay.other:5000/os:1"), "docker: all");
        let policy = SignaturePolicy::parse(POLICY).unwrap();
        let of_directory = |path: &str| {
            policy.of_medium(&Address {
                form: Form::OciDirectory,
                path: path.into(),
                name: None,
            })
        };
        assert!(of_directory("/mnt/os").rejects());
        assert_eq!(of_directory("/media/os").rule, "default");
        assert!(
            policy
                .first_rule("containers-storage", &[])
                .accepts_anything()
        );
        assert!(
            policy.accepts_anything_by_default() && !policy.has_rules_for("containers-storage")
        );
    }

    #[test]
    fn keys_are_named() {
        let policy = SignaturePolicy::parse(POLICY).unwrap();
        let keys = |name: &str| {
            let ruling = policy.of_registry(&ImageName::parse(name).unwrap());
            ruling
                .keys()
                .iter()
                .map(|key| (*key).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys("quay.example/release/other:1"), ["/etc/pki/key"]);
        assert_eq!(keys("quay.example/os:1"), ["/a", "/b"]);
    }

    #[test]
    fn a_policy_that_the_tools_refuse_is_an_error() {
        for text in [
            "",
            "{}",
            r#"{"default": []}"#,
            r#"{"default": [{"type": "reject"}], "transports": {"oci": {"": []}}}"#,
            r#"{"default": [{"type": "reject"}], "transport": {}}"#,
            r#"{"default": [{"type": "accept"}]}"#,
            r#"{"default": [{}]}"#,
            r#"{"default": [{"type": "reject", "keyPath": "/a"}]}"#,
            r#"{"default": [{"type": "signedBy", "keyType": "GPGKeys"}]}"#,
            r#"{"default": [{"type": "sigstoreSigned", "keyPath": "/a", "keyData": "YQ=="}]}"#,
        ] {
            assert!(SignaturePolicy::parse(text).is_err(), "{text}");
        }
    }
}
