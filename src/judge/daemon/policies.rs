//! The cluster's MachineConfiguration: its effective node disruption policies (docs/develop/agreement.md: Actions), which decide the
//! daemon's actions after a change, and the changes of storage sections that it allows. Requested while there is a network,
//! stored with their time, and never treated as current. A kubelet may not be allowed to read them; that is not an error.

use serde::{Deserialize, Serialize};

use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::yaml;
use crate::host::root::{Root, RootError};
use crate::host::state_file;
use crate::judge::daemon::annotations::ApiError;
use crate::judge::daemon::{default_policies, laid_over_defaults};

/// Version of the file.
const VERSION: u32 = 1;

/// The part of the cluster's MachineConfiguration that matters for a run.
#[derive(Debug)]
pub struct ClusterSettings {
    /// The disruption policies.
    pub policies: ClusterPolicies,
    /// The source of the policies, in words.
    pub whose: String,
    /// Changes of storage sections that the daemon accepts; `None` if unknown.
    pub overrides: Option<Overrides>,
}

/// The known policies, and the result of the last request for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    version: u32,
    /// The result of the last request.
    pub asked: PolicyRequest,
    /// Time of the last request; seconds since 1970 by the node's clock.
    pub at: u64,
    /// The last policies received.
    pub known: Option<ReceivedPolicies>,
    /// The last overrides received.
    #[serde(default)]
    pub overrides: Option<Overrides>,
}

/// `spec.irreconcilableValidationOverrides`: changes of the config that the daemon allows, but never applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Time of the answer; seconds since 1970 by the node's clock.
    pub seen: u64,
    /// `Disks`, `FileSystems`, `Raid`; stored as received.
    pub storage: Vec<String>,
}

/// The result of a request for the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyRequest {
    /// The policies were received.
    Given,
    /// This node's credentials may not read them (401, 403).
    NotAllowed,
    /// The cluster has none (404), like older releases.
    None,
    /// The operator has not processed the current generation yet; the daemon would wait.
    NotReady,
}

/// Received policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedPolicies {
    /// Time of the answer; seconds since 1970 by the node's clock.
    pub seen: u64,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.nodeDisruptionPolicyStatus.clusterPolicies`.
    pub cluster: ClusterPolicies,
}

/// The effective policies: the operator's defaults overridden by the administrator's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPolicies {
    /// Policies by path; one for a directory covers everything below it.
    #[serde(default)]
    pub files: Vec<FilePolicy>,
    /// Policies by name.
    #[serde(default)]
    pub units: Vec<UnitPolicy>,
    /// The policy for keys and passwords.
    #[serde(default)]
    pub sshkey: KeyPolicy,
}

/// The policy for a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePolicy {
    /// Absolute path.
    pub path: String,
    /// Actions in order.
    pub actions: Vec<PolicyAction>,
}

/// The policy for a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitPolicy {
    /// Name with its suffix.
    pub name: String,
    /// Actions in order.
    pub actions: Vec<PolicyAction>,
}

/// The policy for keys and passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPolicy {
    /// Actions in order.
    #[serde(default)]
    pub actions: Vec<PolicyAction>,
}

/// An action of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAction {
    /// `Reboot`, `Drain`, `Reload`, `Restart`, `DaemonReload`, `None`, `Special`; stored as received.
    #[serde(rename = "type")]
    pub kind: String,
    /// The service of `Reload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<PolicyService>,
    /// The service of `Restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<PolicyService>,
}

/// A systemd service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyService {
    /// Name with its suffix.
    pub service_name: String,
}

/// The parts of the object that are used.
#[derive(Deserialize)]
struct PolicyObject {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: ObjectStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_disruption_policy: Option<ClusterPolicies>,
    irreconcilable_validation_overrides: Option<Irreconcilable>,
}

#[derive(Default, Deserialize)]
struct Irreconcilable {
    #[serde(default)]
    storage: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Metadata {
    /// Missing in a hand-written object.
    #[serde(default)]
    generation: Option<i64>,
}

/// The content of the API's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// The policies; `None` if the operator has not processed the current generation.
    pub policies: Option<ReceivedPolicies>,
    /// The overrides, which the daemon uses independently of the operator's result.
    pub overrides: Overrides,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The policies.
    pub policies: ReceivedPolicies,
    /// The origin of the policies in it.
    pub found: FoundPolicies,
    /// The overrides.
    pub overrides: Overrides,
}

/// The origin of the policies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundPolicies {
    /// The operator's result for the current generation.
    Result,
    /// The administrator's policies, merged into the defaults as the operator does it.
    Asked,
}

/// A reason why a file has no policies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// The file contains another object, or a broken one.
    #[error(
        "reading the policies in {0}: {1}. Give what `oc get machineconfiguration cluster -o yaml` prints"
    )]
    Form(String, Reason),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectStatus {
    observed_generation: Option<i64>,
    #[serde(default)]
    node_disruption_policy_status: PolicyStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyStatus {
    cluster_policies: Option<ClusterPolicies>,
}

/// Returns the URL of the object.
pub fn policies_url(server: &str) -> String {
    format!("{server}/apis/operator.openshift.io/v1/machineconfigurations/cluster")
}

/// Parses the API's answer.
///
/// # Errors
/// The answer contains another object, or a broken one.
pub fn parse_answer(answer: &[u8], seen: u64) -> Result<PolicyAnswer, ApiError> {
    let failed = |why: Reason| ApiError::Answer("MachineConfiguration", why);
    let object = parse_object(answer).map_err(failed)?;
    let generation = object.metadata.generation;
    let generation = generation.ok_or_else(|| failed("metadata: missing generation".into()))?;
    let policies = object.cluster_policies().map(|cluster| ReceivedPolicies {
        seen,
        generation,
        cluster,
    });
    Ok(PolicyAnswer {
        policies,
        overrides: object.parse_overrides(seen),
    })
}

/// Parses a file, JSON or YAML: the operator's result, or else the administrator's policies. `origin` is the file's name in
/// messages.
///
/// # Errors
/// The file contains another object, or a broken one.
pub fn in_file(text: &str, origin: &str, seen: u64) -> Result<Brought, PolicyFileError> {
    let failed = |why: Reason| PolicyFileError::Form(origin.to_owned(), why);
    // Some JSON escapes are not valid YAML.
    let value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).or_else(|_| yaml::parse_yaml(text))
    } else {
        yaml::parse_yaml(text)
    };
    let value = value.map_err(|error| failed(Reason::from_error(error)))?;
    let object = parse_object(value.to_string().as_bytes()).map_err(failed)?;
    let (cluster, found) = match (
        object.cluster_policies(),
        &object.spec.node_disruption_policy,
    ) {
        (Some(cluster), _) => (cluster, FoundPolicies::Result),
        (None, Some(asked)) => (laid_over_defaults(asked), FoundPolicies::Asked),
        (None, None) => (default_policies(), FoundPolicies::Asked),
    };
    Ok(Brought {
        policies: ReceivedPolicies {
            seen,
            generation: object.metadata.generation.unwrap_or_default(),
            cluster,
        },
        found,
        overrides: object.parse_overrides(seen),
    })
}

fn parse_object(text: &[u8]) -> Result<PolicyObject, Reason> {
    let deserializer = &mut serde_json::Deserializer::from_slice(text);
    let object: PolicyObject =
        serde_path_to_error::deserialize(deserializer).map_err(Reason::from_error)?;
    if object.kind == "MachineConfiguration" {
        Ok(object)
    } else {
        Err("it has another kind".into())
    }
}

impl PolicyObject {
    fn parse_overrides(&self, seen: u64) -> Overrides {
        let given = self.spec.irreconcilable_validation_overrides.as_ref();
        let storage = given.and_then(|given| given.storage.clone());
        Overrides {
            seen,
            storage: storage.unwrap_or_default(),
        }
    }

    fn cluster_policies(&self) -> Option<ClusterPolicies> {
        let generation = self.metadata.generation?;
        let ready = self.status.observed_generation == Some(generation);
        let cluster = self
            .status
            .node_disruption_policy_status
            .cluster_policies
            .clone();
        cluster.filter(|_| ready)
    }
}

impl Policies {
    /// Returns the record to store after a request: values that were not received again are kept, with their time.
    pub fn after_request(
        before: Option<Self>,
        asked: PolicyRequest,
        (policies, overrides): (Option<ReceivedPolicies>, Option<Overrides>),
        at: u64,
    ) -> Self {
        let (known_before, overrides_before) =
            before.map_or((None, None), |before| (before.known, before.overrides));
        Self {
            version: VERSION,
            asked,
            at,
            known: policies.or(known_before),
            overrides: overrides.or(overrides_before),
        }
    }
}

/// Reads the stored policies; `None` if the file is missing or damaged, which is logged.
pub fn read_policies(root: &Root) -> Result<Option<Policies>, RootError> {
    state_file::read_remembered(root, paths::POLICIES, VERSION, |kept: &Policies| {
        kept.version
    })
}

#[cfg(test)]
mod tests {
    use crate::judge::daemon::policies::*;
    use serde_json::json;

    #[test]
    fn policies_count_only_when_the_operator_has_seen_the_present_generation() {
        let mut object = json!({"kind": "MachineConfiguration", "metadata": {"name": "cluster", "generation": 3},
            "spec": {"nodeDisruptionPolicy": {}}, "status": {"observedGeneration": 3,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": {
                "files": [{"path": "/etc/crio/policies", "actions": [
                    {"type": "Reload", "reload": {"serviceName": "crio.service"}}]}],
                "units": [], "sshkey": {"actions": [{"type": "None"}]}}}}});
        let read =
            |object: &serde_json::Value| parse_answer(object.to_string().as_bytes(), 7).unwrap();
        let known = read(&object).policies.unwrap();
        assert_eq!((known.seen, known.generation), (7, 3));
        let action = &known.cluster.files[0].actions[0];
        assert_eq!(action.reload.as_ref().unwrap().service_name, "crio.service");
        assert_eq!(known.cluster.sshkey.actions[0].kind, "None");
        assert_eq!(read(&object).overrides.storage, Vec::<String>::new());
        object["metadata"]["generation"] = json!(4);
        object["spec"]["irreconcilableValidationOverrides"] = json!({"storage": ["Disks", "Raid"]});
        assert_eq!(read(&object).policies, None);
        assert_eq!(read(&object).overrides.storage, ["Disks", "Raid"]);
        object["status"] = json!({});
        assert_eq!(read(&object).policies, None);
    }

    #[test]
    fn what_is_not_such_an_object_is_refused_with_the_place() {
        for (text, words) in [
            ("{", "EOF"),
            (
                r#"{"kind":"Status","metadata":{"generation":1}}"#,
                "another kind",
            ),
            (r#"{"kind":"MachineConfiguration"}"#, "metadata"),
            (
                r#"{"kind":"MachineConfiguration","metadata":{"generation":1},"status":{"nodeDisruptionPolicyStatus":
                {"clusterPolicies":{"files":[{"path":"/x"}]}}}}"#,
                "clusterPolicies.files[0]",
            ),
        ] {
            let error = parse_answer(text.as_bytes(), 7).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_file_gives_the_operators_result_or_else_what_is_asked_for() {
        let asked = "kind: MachineConfiguration\nmetadata: {name: cluster}\nspec:\n  nodeDisruptionPolicy:\n    \
                     files:\n    - path: /etc/chrony.conf\n      actions:\n      - type: None\n";
        let read = |text: &str, origin: &str| {
            let brought = in_file(text, origin, 7).unwrap();
            (brought.policies, brought.found)
        };
        let (known, found) = read(asked, "p.yaml");
        assert_eq!((found, known.seen), (FoundPolicies::Asked, 7));
        let has = |path: &str| known.cluster.files.iter().any(|file| file.path == path);
        assert!(has("/etc/chrony.conf") && has("/etc/containers/policy.json"));
        let ready = r#"{"kind": "MachineConfiguration", "metadata": {"generation": 2}, "status": {"observedGeneration": 2,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": []}}}}"#;
        let (known, found) = read(ready, "p.json");
        assert_eq!(
            (found, known.cluster),
            (FoundPolicies::Result, ClusterPolicies::default())
        );
        let stale = ready.replace("\"generation\": 2", "\"generation\": 3");
        let (known, found) = read(&stale, "p.json");
        assert_eq!(
            (found, known.cluster),
            (FoundPolicies::Asked, default_policies())
        );
        for (text, words) in [
            ("kind: Node\nmetadata: {}\n", "has another kind"),
            ("a: [", "p.yaml"),
            ("kind: MachineConfiguration\nspec: {}\n", "metadata"),
        ] {
            let error = in_file(text, "p.yaml", 7).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("oc get"), "{error}");
        }
    }

    #[test]
    fn what_was_known_stays_known_with_its_time() {
        let known = ReceivedPolicies {
            seen: 1,
            generation: 1,
            cluster: ClusterPolicies::default(),
        };
        let overrides = Overrides {
            seen: 1,
            storage: vec!["Disks".to_owned()],
        };
        let given = (Some(known.clone()), Some(overrides.clone()));
        let first = Policies::after_request(None, PolicyRequest::Given, given, 1);
        let later =
            Policies::after_request(Some(first), PolicyRequest::NotAllowed, (None, None), 9);
        assert_eq!(
            (later.asked, later.at, later.known, later.overrides),
            (PolicyRequest::NotAllowed, 9, Some(known), Some(overrides))
        );
    }
}
