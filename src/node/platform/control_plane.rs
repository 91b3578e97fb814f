//! The API server on this node, and the release of its image.

use serde::Deserialize;
use serde_json::Value;

use super::Seen;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

const MANIFEST: &str = "etc/kubernetes/manifests/kube-apiserver-pod.yaml";
const IMAGES: &str = "var/lib/containers/storage/overlay-images";

/// The static pod of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiServerPod {
    /// Path of its manifest.
    pub place: String,
    /// Its image.
    pub image: String,
    /// Version of OpenShift in the image's labels, such as `v4.18.3`.
    pub release: Option<String>,
    /// Version of Kubernetes in the labels, such as `1.31.4`.
    pub kubernetes: Option<String>,
}

impl ApiServerPod {
    /// Reads the manifest and the labels of its image in containers-storage; `None` on a node without an API server.
    pub(super) fn observe(root: &Root) -> Seen<Option<Self>> {
        let read = root.read_small(&RootPath::fixed(MANIFEST));
        let Some(bytes) = read.map_err(Reason::from_error)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        let image = image_of(&text).ok_or_else(|| format!("/{MANIFEST} names no image"))?;
        let labels = labels_of(root, &image).unwrap_or_default();
        let label = |name: &str| labels.get(name).and_then(Value::as_str).map(str::to_owned);
        let versions = label("io.openshift.build.versions").unwrap_or_default();
        let mut versions = versions.split(',').map(str::trim);
        let kubernetes = versions.find_map(|one| Some(one.strip_prefix("kubernetes=")?.to_owned()));
        Ok(Some(Self {
            place: format!("/{MANIFEST}"),
            image,
            release: label("version"),
            kubernetes,
        }))
    }
}

/// Returns the image of the container `kube-apiserver`; the file is JSON or YAML.
fn image_of(text: &str) -> Option<String> {
    if let Ok(pod) = serde_json::from_str::<Value>(text) {
        let containers = pod.pointer("/spec/containers")?.as_array()?;
        let own = containers
            .iter()
            .find(|one| one["name"] == "kube-apiserver");
        return Some(own?["image"].as_str()?.to_owned());
    }
    let images = text.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("- ");
        let value = line.strip_prefix("image:")?.trim();
        Some(value.trim_matches(['"', '\'']).to_owned())
    });
    images.into_iter().find(|image| !image.is_empty())
}

fn labels_of(root: &Root, image: &str) -> Option<serde_json::Map<String, Value>> {
    #[derive(Deserialize)]
    struct Stored {
        id: String,
        #[serde(default)]
        names: Option<Vec<String>>,
        #[serde(default)]
        digest: Option<String>,
    }
    let index = RootPath::fixed(IMAGES).join("images.json").ok()?;
    let all: Vec<Stored> = serde_json::from_slice(&root.read(&index).ok()??).ok()?;
    let digest = image.split_once('@').map(|(_, digest)| digest);
    let is_it = |one: &&Stored| {
        let named = one.names.iter().flatten().any(|name| name == image);
        named || (digest.is_some() && one.digest.as_deref() == digest)
    };
    let id = &all.iter().find(is_it)?.id;
    // The storage encodes keys that are not plain names.
    let key = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("sha256:{id}"),
    );
    let config = RootPath::fixed(IMAGES).join(&format!("{id}/={key}")).ok()?;
    let config: Value = serde_json::from_slice(&root.read_small(&config).ok()??).ok()?;
    Some(config.pointer("/config/Labels")?.as_object()?.clone())
}
