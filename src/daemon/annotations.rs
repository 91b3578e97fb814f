//! What the cluster's API says of this node: its annotations, asked for with the kubelet's own credentials while
//! there is a network (docs/agreement.md: Annotations). Kept with the time at which they were seen, and never taken for the present.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{data_url, yaml};
use crate::net::{self, CertificateDer, ClientIdentity};
use crate::paths;
use crate::root::{Root, RootError, RootPath};
use crate::state_file;

/// Version of the file.
const VERSION: u32 = 1;
/// What the daemon and the controller write begins so.
const PREFIX: &str = "machineconfiguration.openshift.io/";

/// The node's annotations as they were when the API answered for the last time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    version: u32,
    /// Name of the Node.
    pub node: String,
    /// When the API answered; seconds since 1970 by the node's clock.
    pub seen: u64,
    /// `currentConfig`: what the daemon last said the node to be in.
    pub current: Option<String>,
    /// `desiredConfig`: what the controller last wanted.
    pub desired: Option<String>,
    /// `state` of the daemon.
    pub state: Option<String>,
    /// The layered images and the topology; nothing in what was kept before they were looked at.
    #[serde(default)]
    pub more: Option<More>,
}

/// What only matters on some nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// `currentImage`: the layered image that the daemon last said the node to be in.
    pub current_image: Option<String>,
    /// `desiredImage`: the one that the controller last wanted.
    pub desired_image: Option<String>,
    /// `controlPlaneTopology` is `SingleReplica`: nothing is ever drained.
    pub single_replica: bool,
}

/// Why the API cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Reading from the root.
    #[error(transparent)]
    Root(#[from] RootError),
    /// There is nothing to ask with.
    #[error(
        "/{} is missing: this node has no credentials of its own",
        paths::KUBELET_KUBECONFIG
    )]
    NoKubeconfig,
    /// Something in it cannot be used.
    #[error("/{path}: {0}", path = paths::KUBELET_KUBECONFIG)]
    Kubeconfig(String),
    /// The answer.
    #[error("the API's answer is no {0}: {1}")]
    Answer(&'static str, String),
}

/// How the kubelet reaches the API.
#[derive(Debug)]
pub struct Access {
    /// Such as `https://api-int.example:6443`.
    pub server: String,
    /// Who signs for it.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The kubelet's certificate and key.
    pub identity: ClientIdentity,
}

/// Reads the kubelet's kubeconfig and what it names.
pub fn access(root: &Root) -> Result<Access, ApiError> {
    let bytes = root.read(&RootPath::fixed(paths::KUBELET_KUBECONFIG))?;
    let bytes = bytes.ok_or(ApiError::NoKubeconfig)?;
    let text = String::from_utf8_lossy(&bytes);
    let config =
        yaml::parse(&text).map_err(|e| ApiError::Kubeconfig(format!("not valid YAML: {e}")))?;
    let cluster = part(&config, "clusters", "cluster")?;
    let user = part(&config, "users", "user")?;
    let server = cluster.get("server").and_then(Value::as_str);
    let server = server.ok_or_else(|| ApiError::Kubeconfig("names no server".into()))?;
    let bad =
        |what: &str, error: net::BundleError| ApiError::Kubeconfig(format!("{what}: {error}"));
    let authorities = material(root, cluster, "certificate-authority")?;
    let chain = material(root, user, "client-certificate")?;
    let key = material(root, user, "client-key")?;
    Ok(Access {
        server: server.trim_end_matches('/').to_owned(),
        authorities: net::parse_bundle(&authorities)
            .map_err(|e| bad("certificate-authority", e))?,
        identity: ClientIdentity::parse(&chain, &key).map_err(|e| bad("client-certificate", e))?,
    })
}

/// The cluster or user of the current context; of several without a context, the first.
fn part<'a>(config: &'a Value, list: &str, kind: &str) -> Result<&'a Value, ApiError> {
    let named = |list: &str, name: &str| {
        let mut all = config.get(list)?.as_array()?.iter();
        all.find(|item| item.get("name").and_then(Value::as_str) == Some(name))
    };
    let context = config.get("current-context").and_then(Value::as_str);
    let context = context.and_then(|name| named("contexts", name));
    let wanted = context.and_then(|context| context.pointer(&format!("/context/{kind}"))?.as_str());
    let item = match wanted {
        Some(name) => named(list, name),
        None => config.get(list).and_then(|list| list.get(0)),
    };
    item.and_then(|item| item.get(kind))
        .ok_or_else(|| ApiError::Kubeconfig(format!("has no {kind} for its context")))
}

/// PEM from `KEY-data` (base64), else from the file that KEY names.
fn material(root: &Root, of: &Value, key: &str) -> Result<Vec<u8>, ApiError> {
    let text = |key: &str| of.get(key).and_then(Value::as_str);
    if let Some(data) = text(&format!("{key}-data")) {
        let decoded = data_url(&format!("data:;base64,{data}"))
            .map_err(|error| ApiError::Kubeconfig(format!("{key}-data: {error}")))?;
        return Ok(decoded);
    }
    let file = text(key).ok_or_else(|| ApiError::Kubeconfig(format!("has no {key}")))?;
    let path =
        RootPath::parse(file).map_err(|error| ApiError::Kubeconfig(format!("{key}: {error}")))?;
    root.read(&path)?
        .ok_or_else(|| ApiError::Kubeconfig(format!("{key}: {path} is missing")))
}

/// What is asked for the Node object.
pub fn node_url(server: &str, node: &str) -> String {
    format!("{server}/api/v1/nodes/{node}")
}

/// The annotations in the API's answer.
pub fn annotations(answer: &[u8], seen: u64) -> Result<Annotations, ApiError> {
    let node: Value =
        serde_json::from_slice(answer).map_err(|e| ApiError::Answer("Node", e.to_string()))?;
    let name = node.pointer("/metadata/name").and_then(Value::as_str);
    let is_node = node.get("kind").and_then(Value::as_str) == Some("Node");
    let name = name.filter(|_| is_node);
    let name = name
        .ok_or_else(|| ApiError::Answer("Node", "it has no name, or is of another kind".into()))?;
    let given = |key: &str| {
        let all = node.pointer("/metadata/annotations")?;
        let value = all.get(format!("{PREFIX}{key}"))?.as_str()?;
        Some(value.to_owned()).filter(|value| !value.is_empty())
    };
    let more = More {
        current_image: given("currentImage"),
        desired_image: given("desiredImage"),
        single_replica: given("controlPlaneTopology").as_deref() == Some("SingleReplica"),
    };
    let (current, desired) = (given("currentConfig"), given("desiredConfig"));
    Ok(Annotations {
        more: Some(more),
        ..Annotations::new(name, seen, current, desired, given("state"))
    })
}

impl Annotations {
    /// What the API said at a time.
    pub fn new(
        node: &str,
        seen: u64,
        current: Option<String>,
        desired: Option<String>,
        state: Option<String>,
    ) -> Self {
        Self {
            version: VERSION,
            node: node.to_owned(),
            seen,
            current,
            desired,
            state,
            more: None,
        }
    }
}

/// What was seen last; nothing where the file is missing or damaged, which the log says.
pub fn remembered(root: &Root) -> Result<Option<Annotations>, RootError> {
    state_file::remembered(root, paths::ANNOTATIONS, VERSION, |kept: &Annotations| {
        kept.version
    })
}

#[cfg(test)]
mod tests {
    use crate::daemon::annotations::*;
    use serde_json::json;

    #[test]
    fn the_context_decides_which_cluster_and_user() {
        let config = json!({
            "current-context": "b",
            "contexts": [
                {"name": "a", "context": {"cluster": "one", "user": "u"}},
                {"name": "b", "context": {"cluster": "two", "user": "u"}},
            ],
            "clusters": [{"name": "one", "cluster": {"server": "1"}}, {"name": "two", "cluster": {"server": "2"}}],
            "users": [],
        });
        assert_eq!(
            part(&config, "clusters", "cluster").unwrap(),
            &json!({"server": "2"})
        );
        assert!(part(&config, "users", "user").is_err());
        let plain = json!({"clusters": [{"name": "x", "cluster": {"server": "1"}}]});
        assert_eq!(
            part(&plain, "clusters", "cluster").unwrap(),
            &json!({"server": "1"})
        );
    }

    #[test]
    fn annotations_are_taken_from_a_node_only() {
        let mut node = json!({"kind": "Node", "metadata": {"name": "n", "annotations": {
            "machineconfiguration.openshift.io/currentConfig": "rendered-worker-a",
            "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-b",
            "machineconfiguration.openshift.io/desiredImage": "registry.example/os@sha256:1",
            "machineconfiguration.openshift.io/controlPlaneTopology": "SingleReplica",
            "machineconfiguration.openshift.io/state": ""}}});
        let seen = annotations(node.to_string().as_bytes(), 7).unwrap();
        let more = seen.more.unwrap();
        assert_eq!((more.current_image, more.single_replica), (None, true));
        assert!(more.desired_image.is_some());
        assert_eq!(seen.desired.as_deref(), Some("rendered-worker-b"));
        assert_eq!((seen.state, seen.seen), (None, 7));
        node["kind"] = json!("Status");
        assert!(annotations(node.to_string().as_bytes(), 7).is_err());
        assert!(annotations(b"{", 7).is_err());
    }
}
