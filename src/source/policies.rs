//! The cluster's effective node disruption policies (mcd-contract 9.1): what the daemon does after which change. Asked
//! for while there is a network, kept with the time, and never taken for the present. A kubelet may not be allowed to
//! read them; that is no error.

use serde::{Deserialize, Serialize};

use super::api::ApiError;
use crate::paths;
use crate::root::{Root, RootError};

/// Version of the file.
const VERSION: u32 = 1;

/// What is known of the policies, and what came of asking for them the last time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    version: u32,
    /// The last answer.
    pub asked: Asked,
    /// When that was; seconds since 1970 by the node's clock.
    pub at: u64,
    /// The last policies that were given, whenever that was.
    pub known: Option<Known>,
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// The policies were given.
    Given,
    /// This node's credentials may not read them (401, 403).
    NotAllowed,
    /// The cluster has none (404), as older releases.
    None,
    /// The operator has not come to a result for the present generation; the daemon would wait.
    NotReady,
}

/// Policies that were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// When; seconds since 1970 by the node's clock.
    pub seen: u64,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.nodeDisruptionPolicyStatus.clusterPolicies`.
    pub cluster: ClusterPolicies,
}

/// The effective policies: the operator's defaults with the user's laid over them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPolicies {
    /// By path; also of a directory, for everything below it.
    #[serde(default)]
    pub files: Vec<FilePolicy>,
    /// By name.
    #[serde(default)]
    pub units: Vec<UnitPolicy>,
    /// For keys and passwords.
    #[serde(default)]
    pub sshkey: KeyPolicy,
}

/// What follows from a change of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePolicy {
    /// Absolute.
    pub path: String,
    /// In this order.
    pub actions: Vec<Action>,
}

/// What follows from a change of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitPolicy {
    /// With its suffix.
    pub name: String,
    /// In this order.
    pub actions: Vec<Action>,
}

/// What follows from a change of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPolicy {
    /// In this order.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// `Reboot`, `Drain`, `Reload`, `Restart`, `DaemonReload`, `None`, `Special`; kept as given.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of `Reload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Service>,
    /// Of `Restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Service>,
}

/// A systemd service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// With its suffix.
    pub service_name: String,
}

/// As much of the object as is needed.
#[derive(Deserialize)]
struct Object {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    #[serde(default)]
    node_disruption_policy_status: PolicyStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyStatus {
    cluster_policies: Option<ClusterPolicies>,
}

/// What is asked.
pub fn url(server: &str) -> String {
    format!("{server}/apis/operator.openshift.io/v1/machineconfigurations/cluster")
}

/// The policies in the API's answer; `None` where they are not ready.
pub fn parse(answer: &[u8], seen: u64) -> Result<Option<Known>, ApiError> {
    let deserializer = &mut serde_json::Deserializer::from_slice(answer);
    let object: Object = serde_path_to_error::deserialize(deserializer)
        .map_err(|e| ApiError::Answer("MachineConfiguration", e.to_string()))?;
    if object.kind != "MachineConfiguration" {
        let problem = "it is of another kind".to_owned();
        return Err(ApiError::Answer("MachineConfiguration", problem));
    }
    let generation = object.metadata.generation;
    let ready = object.status.observed_generation == Some(generation);
    let cluster = object.status.node_disruption_policy_status.cluster_policies;
    Ok(cluster.filter(|_| ready).map(|cluster| Known {
        seen,
        generation,
        cluster,
    }))
}

impl Policies {
    /// What is to be kept after asking: what is not given again stays known, with its time.
    pub fn after(before: Option<Self>, asked: Asked, given: Option<Known>, at: u64) -> Self {
        Self {
            version: VERSION,
            asked,
            at,
            known: given.or(before.and_then(|before| before.known)),
        }
    }
}

/// What is known; nothing where the file is missing or damaged, which the log says.
pub fn remembered(root: &Root) -> Result<Option<Policies>, RootError> {
    super::remembered(root, paths::POLICIES, VERSION, |kept: &Policies| {
        kept.version
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_count_only_when_the_operator_has_seen_the_present_generation() {
        let mut object = json!({"kind": "MachineConfiguration", "metadata": {"name": "cluster", "generation": 3},
            "spec": {"nodeDisruptionPolicy": {}}, "status": {"observedGeneration": 3,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": {
                "files": [{"path": "/etc/crio/policies", "actions": [
                    {"type": "Reload", "reload": {"serviceName": "crio.service"}}]}],
                "units": [], "sshkey": {"actions": [{"type": "None"}]}}}}});
        let known = parse(object.to_string().as_bytes(), 7).unwrap().unwrap();
        assert_eq!((known.seen, known.generation), (7, 3));
        let action = &known.cluster.files[0].actions[0];
        assert_eq!(action.reload.as_ref().unwrap().service_name, "crio.service");
        assert_eq!(known.cluster.sshkey.actions[0].kind, "None");
        object["metadata"]["generation"] = json!(4);
        assert_eq!(parse(object.to_string().as_bytes(), 7).unwrap(), None);
        object["status"] = json!({});
        assert_eq!(parse(object.to_string().as_bytes(), 7).unwrap(), None);
    }

    #[test]
    fn what_is_no_such_object_is_refused_with_the_place() {
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
            let error = parse(text.as_bytes(), 7).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_was_known_stays_known_with_its_time() {
        let known = Known {
            seen: 1,
            generation: 1,
            cluster: ClusterPolicies::default(),
        };
        let first = Policies::after(None, Asked::Given, Some(known.clone()), 1);
        let later = Policies::after(Some(first), Asked::NotAllowed, None, 9);
        assert_eq!(
            (later.asked, later.at, later.known),
            (Asked::NotAllowed, 9, Some(known))
        );
    }
}
