//! The cluster's API: the node's annotations, requested with the kubelet's own credentials while there is a network
//! (docs/develop/agreement.md: Annotations). They are stored with their time, and never treated as current.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::{data_url, yaml};
use crate::host::net::{self, CertificateDer, ClientIdentity};
use crate::host::root::{Root, RootError, RootPath};
use crate::host::state_file;

/// Version of the file.
const VERSION: u32 = 1;
/// Prefix of the annotations of daemon and controller.
const PREFIX: &str = "machineconfiguration.openshift.io/";

/// The node's annotations at the API's last answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    version: u32,
    /// Name of the Node.
    pub node: String,
    /// Time of the answer; seconds since 1970 by the node's clock.
    pub seen: u64,
    /// `currentConfig`: the config that the daemon last reported.
    pub current: Option<String>,
    /// `desiredConfig`: the config that the controller last requested.
    pub desired: Option<String>,
    /// `state` of the daemon.
    pub state: Option<String>,
    /// The layered images and the topology; `None` in files of older versions.
    #[serde(default)]
    pub more: Option<More>,
}

/// Annotations that only matter on some nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// `currentImage`: the layered image that the daemon last reported.
    pub current_image: Option<String>,
    /// `desiredImage`: the layered image that the controller last requested.
    pub desired_image: Option<String>,
    /// True if `controlPlaneTopology` is `SingleReplica`: nothing is ever drained.
    pub single_replica: bool,
}

/// A reason why the API cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The root could not be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The node has no kubeconfig of the kubelet.
    #[error(
        "/{} is missing: this node has no credentials of its own",
        paths::KUBELET_KUBECONFIG
    )]
    NoKubeconfig,
    /// The kubeconfig cannot be used.
    #[error("/{path}: {0}", path = paths::KUBELET_KUBECONFIG)]
    Kubeconfig(String),
    /// The answer cannot be used.
    #[error("the API's answer is not a {0}: {1}")]
    Answer(&'static str, Reason),
}

/// The kubelet's access to the API.
#[derive(Debug)]
pub struct ApiAccess {
    /// URL, such as `https://api-int.example:6443`.
    pub server: String,
    /// The authorities that sign the server's certificate.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The kubelet's certificate and key.
    pub identity: ClientIdentity,
}

/// The API server in the kubelet's kubeconfig.
#[derive(Debug)]
pub struct ApiServer {
    /// URL, such as `https://api-int.example:6443`.
    pub server: String,
    /// The authorities that sign the server's certificate.
    pub authorities: Vec<CertificateDer<'static>>,
}

/// Reads the kubelet's kubeconfig and the files that it names.
pub fn read_access(root: &Root) -> Result<ApiAccess, ApiError> {
    let config = read_kubeconfig(root)?;
    let api = server_in(root, &config)?;
    let user = find_part(&config, "users", "user")?;
    let chain = read_material(root, user, "client-certificate")?;
    let key = read_material(root, user, "client-key")?;
    let identity = ClientIdentity::parse(&chain, &key);
    Ok(ApiAccess {
        server: api.server,
        authorities: api.authorities,
        identity: identity.map_err(|e| bad_material("client-certificate", &e))?,
    })
}

/// Reads the API server in the kubelet's kubeconfig, and the authorities for it.
///
/// # Errors
/// The kubeconfig is missing or cannot be used.
pub fn read_server(root: &Root) -> Result<ApiServer, ApiError> {
    server_in(root, &read_kubeconfig(root)?)
}

/// Returns the URL of the API server in the kubelet's kubeconfig, which names the cluster; `None` if there is no kubeconfig.
///
/// # Errors
/// The kubeconfig cannot be read, or names no server.
pub fn name_cluster(root: &Root) -> Result<Option<String>, ApiError> {
    match read_kubeconfig(root) {
        Err(ApiError::NoKubeconfig) => Ok(None),
        config => url_in(find_part(&config?, "clusters", "cluster")?).map(Some),
    }
}

/// Returns the URL of a cluster in a kubeconfig.
fn url_in(cluster: &Value) -> Result<String, ApiError> {
    let server = cluster.get("server").and_then(Value::as_str);
    let server = server.ok_or_else(|| ApiError::Kubeconfig("names no server".into()))?;
    Ok(server.trim_end_matches('/').to_owned())
}

fn read_kubeconfig(root: &Root) -> Result<Value, ApiError> {
    let bytes = root.read(&RootPath::fixed(paths::KUBELET_KUBECONFIG))?;
    let bytes = bytes.ok_or(ApiError::NoKubeconfig)?;
    let text = String::from_utf8_lossy(&bytes);
    yaml::parse_yaml(&text).map_err(|e| ApiError::Kubeconfig(format!("not valid YAML: {e}")))
}

fn server_in(root: &Root, config: &Value) -> Result<ApiServer, ApiError> {
    let cluster = find_part(config, "clusters", "cluster")?;
    let authorities = read_material(root, cluster, "certificate-authority")?;
    let authorities = net::parse_bundle(&authorities);
    Ok(ApiServer {
        server: url_in(cluster)?,
        authorities: authorities.map_err(|e| bad_material("certificate-authority", &e))?,
    })
}

fn bad_material(what: &str, error: &net::BundleError) -> ApiError {
    ApiError::Kubeconfig(format!("{what}: {error}"))
}

/// Returns the cluster or user of the current context, or the first one if there is no context.
fn find_part<'a>(config: &'a Value, list: &str, kind: &str) -> Result<&'a Value, ApiError> {
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

/// Returns PEM from `KEY-data` (base64), or else from the file that KEY names.
fn read_material(root: &Root, of: &Value, key: &str) -> Result<Vec<u8>, ApiError> {
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

/// Returns the URL of the Node object.
pub fn node_url(server: &str, node: &str) -> String {
    format!("{server}/api/v1/nodes/{node}")
}

/// Parses the annotations in the API's answer.
pub fn parse_annotations(answer: &[u8], seen: u64) -> Result<Annotations, ApiError> {
    let node: Value =
        serde_json::from_slice(answer).map_err(|e| ApiError::Answer("Node", e.into()))?;
    let name = node.pointer("/metadata/name").and_then(Value::as_str);
    let is_node = node.get("kind").and_then(Value::as_str) == Some("Node");
    let name = name.filter(|_| is_node);
    let name =
        name.ok_or_else(|| ApiError::Answer("Node", "it has no name, or has another kind".into()))?;
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
    /// Creates the annotations of an answer.
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

/// Reads the stored annotations; None if the file is missing or damaged, which is logged.
pub fn read_annotations(root: &Root) -> Result<Option<Annotations>, RootError> {
    state_file::read_remembered(root, paths::ANNOTATIONS, VERSION, |kept: &Annotations| {
        kept.version
    })
}

#[cfg(test)]
mod tests {
    use crate::judge::daemon::annotations::*;
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
            find_part(&config, "clusters", "cluster").unwrap(),
            &json!({"server": "2"})
        );
        assert!(find_part(&config, "users", "user").is_err());
        let plain = json!({"clusters": [{"name": "x", "cluster": {"server": "1"}}]});
        assert_eq!(
            find_part(&plain, "clusters", "cluster").unwrap(),
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
        let seen = parse_annotations(node.to_string().as_bytes(), 7).unwrap();
        let more = seen.more.unwrap();
        assert_eq!((more.current_image, more.single_replica), (None, true));
        assert!(more.desired_image.is_some());
        assert_eq!(seen.desired.as_deref(), Some("rendered-worker-b"));
        assert_eq!((seen.state, seen.seen), (None, 7));
        node["kind"] = json!("Status");
        assert!(parse_annotations(node.to_string().as_bytes(), 7).is_err());
        assert!(parse_annotations(b"{", 7).is_err());
    }
}
