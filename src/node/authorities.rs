//! Certificate authorities on the node that are not trusted for its Machine Config Server. They are shown to the user, who
//! decides, and are never used.

use serde_json::Value;

use crate::base::paths;
use crate::config::document::{data_url, yaml};
use crate::host::net::{self, Presented};
use crate::host::root::{Root, RootPath};

/// Returns the files on the node whose certificates would verify a server's chain.
pub fn that_would_verify(root: &Root, presented: &Presented) -> Vec<String> {
    let fixed = paths::AUTHORITIES.into_iter().map(RootPath::fixed);
    let all = fixed.chain(find_anchors(root));
    let verifies = |path: &RootPath| {
        // An unreadable file proves nothing.
        let bytes = root.read(path).ok().flatten().unwrap_or_default();
        let certificates = net::system_certificates(to_pem(&bytes).as_bytes());
        presented.would_be_verified_by(&certificates)
    };
    let shown = |path: RootPath| root.shown().join(path.relative()).display().to_string();
    all.filter(verifies).map(shown).collect()
}

fn find_anchors(root: &Root) -> Vec<RootPath> {
    let directory = RootPath::fixed(paths::ANCHORS);
    let names = root.list(&directory).unwrap_or_default().into_iter();
    names
        .filter_map(|name| directory.join(&name).ok())
        .collect()
}

/// Returns the PEM blocks of a bundle, or those embedded in a kubeconfig, a pointer config or the stored data of a server.
/// Other content is returned unchanged.
pub fn to_pem(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_bundle = text.lines().any(|line| line.starts_with("-----BEGIN "));
    let found = if is_bundle {
        None
    } else {
        find_embedded(&text)
    };
    found.unwrap_or_else(|| text.into_owned())
}

fn find_embedded(text: &str) -> Option<String> {
    let document = yaml::parse_yaml(text).ok()?;
    let list = |pointer: &str| {
        document
            .pointer(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let clusters = list("/clusters").filter_map(|cluster| {
        let data = cluster.pointer("/cluster/certificate-authority-data")?;
        Some(format!("data:;base64,{}", data.as_str()?))
    });
    let pointed = list("/ignition/security/tls/certificateAuthorities")
        .filter_map(|one| Some(one.get("source")?.as_str()?.to_owned()));
    let decoded = |url: String| {
        let bytes = data_url(&url).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned() + "\n")
    };
    let remembered = document.get("authorities").and_then(Value::as_str);
    let all = clusters.chain(pointed).filter_map(decoded);
    let all: String = all.chain(remembered.map(str::to_owned)).collect();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use crate::node::authorities::*;

    #[test]
    fn bundles_are_found_in_what_holds_them() {
        let block = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";
        let data =
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClFRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        let kubeconfig = format!(
            "kind: Config\nclusters:\n- name: x\n  cluster:\n    certificate-authority-data: {data}\n"
        );
        let pointer = format!(
            r#"{{"ignition":{{"version":"3.4.0","security":{{"tls":{{"certificateAuthorities":[
                {{"source":"data:text/plain;charset=utf-8;base64,{data}"}}]}}}}}}}}"#
        );
        let remembered = serde_json::json!({"version": 1, "authorities": block}).to_string();
        for text in [block, &kubeconfig, &pointer, &remembered] {
            assert_eq!(to_pem(text.as_bytes()).trim(), block.trim(), "{text}");
        }
        for text in ["", "kind: [", "{}", "hello"] {
            assert_eq!(to_pem(text.as_bytes()), text);
        }
    }
}
