//! The manifest of a static pod: its revision, the node's directories that it mounts, and the files that it refers to. Pure:
//! text in, values out.

use serde_json::Value;

use crate::base::order::StableOrder;
use crate::base::reason::Reason;
use crate::config::document::yaml;

/// The directory of all revisions and certificates.
const RESOURCES: &str = "/etc/kubernetes/static-pod-resources/";
/// Prefix of the annotations of a pod that the startup monitor restored.
const FALLBACK: &str = "startup-monitor.static-pods.openshift.io/fallback-";
/// Maximum length of a text from a manifest in a message.
const MAX_SHOWN: usize = 300;

/// A manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodManifest {
    /// Its revision, from the label.
    pub revision: Option<u32>,
    /// Directories below `/etc/kubernetes/static-pod-resources` that it mounts: path in the pod, and path on the node.
    pub mounts: Vec<(String, String)>,
    /// Files below these directories that its command lines and variables refer to: paths on the node, sorted.
    pub named: Vec<String>,
    /// The startup monitor restored it in place of a newer one.
    pub fallback: Option<Fallback>,
}

/// The reason why the startup monitor restored an older manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fallback {
    /// The revision that did not become ready.
    pub of_revision: String,
    /// The reason, as one word.
    pub reason: String,
    /// The message of the monitor.
    pub message: String,
}

impl PodManifest {
    /// Parses a manifest, JSON or YAML.
    ///
    /// # Errors
    /// The reason why the kubelet cannot use it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        let pod = parse_document(bytes)?;
        if pod.get("kind").and_then(Value::as_str) != Some("Pod") {
            return Err("it is not a Pod".into());
        }
        let mounts = find_mounts(&pod);
        let mut manifest = Self {
            revision: text_at(&pod, "/metadata/labels/revision").and_then(|text| text.parse().ok()),
            fallback: find_fallback(&pod),
            named: Vec::new(),
            mounts,
        };
        let containers = list_at(&pod, "/spec/initContainers");
        for container in containers.chain(list_at(&pod, "/spec/containers")) {
            let words = list_at(container, "/command").chain(list_at(container, "/args"));
            let values = list_at(container, "/env").filter_map(|one| one.get("value"));
            for text in words.chain(values).filter_map(Value::as_str) {
                manifest.add_named(text);
            }
        }
        manifest.named.sort();
        manifest.named.dedup();
        Ok(manifest)
    }

    /// Returns the files that a config of the pod refers to: every value that is a path below a mounted directory.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn named_in_config(&self, bytes: &[u8]) -> Result<Vec<String>, Reason> {
        let config = parse_document(bytes)?;
        let mut found = Vec::new();
        self.collect_paths(&config, &mut found);
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn collect_paths(&self, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.extend(self.on_node(text).filter(|path| is_plain(path))),
            Value::Array(all) => all.iter().for_each(|one| self.collect_paths(one, found)),
            Value::Object(all) => all.values().for_each(|one| self.collect_paths(one, found)),
            _ => {}
        }
    }

    /// Adds the paths in a command line or script. A path that a script tests, creates or removes may be missing.
    fn add_named(&mut self, text: &str) {
        let mut before = "";
        let mut tested = Vec::new();
        let mut found = Vec::new();
        for word in
            text.split(|letter: char| letter.is_whitespace() || "'\";|&<>()".contains(letter))
        {
            if word.is_empty() {
                continue;
            }
            for part in word.split(['=', ',', ':']) {
                let Some(path) = self.on_node(part).filter(|path| is_plain(path)) else {
                    continue;
                };
                if MAY_BE_MISSING.contains(&before) {
                    tested.push(path)
                } else {
                    found.push(path)
                }
            }
            before = word;
        }
        found.retain(|path| !tested.contains(path));
        self.named.extend(found);
    }

    /// Returns the node's path for a path in the pod that is below a mounted directory.
    fn on_node(&self, path: &str) -> Option<String> {
        self.mounts.iter().find_map(|(inside, outside)| {
            let below = path.strip_prefix(inside.as_str())?.strip_prefix('/')?;
            let below = below.trim_end_matches('/');
            (!below.is_empty()).then(|| format!("{outside}/{below}"))
        })
    }
}

/// Words before a path that a script tests, creates or removes.
const MAY_BE_MISSING: [&str; 10] = [
    "-f", "-e", "-s", "-r", "-d", "-L", "-x", "rm", "touch", "mkdir",
];

/// Returns true for a path without variables, patterns or `..`.
fn is_plain(path: &str) -> bool {
    let odd = |letter: char| letter.is_whitespace() || "$*?[]{}`\\".contains(letter);
    !path.contains(odd)
        && path
            .split('/')
            .skip(1)
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn parse_document(bytes: &[u8]) -> Result<Value, Reason> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".into());
    }
    if bytes.contains(&0) {
        return Err("it has zero bytes, as after a power cut".into());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(Reason::from_error)
    } else {
        yaml::parse_yaml(text).map_err(Reason::from_error)
    }
}

fn find_mounts(pod: &Value) -> Vec<(String, String)> {
    let volumes = list_at(pod, "/spec/volumes").filter_map(|volume| {
        let path = text_at(volume, "/hostPath/path")?.trim_end_matches('/');
        Some((text_at(volume, "/name")?, path.to_owned()))
    });
    let volumes: Vec<(&str, String)> = volumes
        .filter(|(_, path)| path.starts_with(RESOURCES) && is_plain(path))
        .collect();
    let containers = list_at(pod, "/spec/initContainers").chain(list_at(pod, "/spec/containers"));
    let mounts = containers.flat_map(|container| list_at(container, "/volumeMounts"));
    let mounts = mounts.filter_map(|mount| {
        let name = text_at(mount, "/name")?;
        let (_, outside) = volumes.iter().find(|(volume, _)| *volume == name)?;
        let inside = text_at(mount, "/mountPath")?.trim_end_matches('/');
        Some((inside.to_owned(), outside.clone()))
    });
    let mut mounts: Vec<(String, String)> = mounts.collect();
    // Longest first, so that a nested mount is found before the outer one.
    mounts.order_by_key(|(inside, _)| std::cmp::Reverse(inside.len()));
    mounts.dedup();
    mounts
}

fn find_fallback(pod: &Value) -> Option<Fallback> {
    let annotations = pod.pointer("/metadata/annotations")?;
    let of = |key: &str| {
        let text = annotations.get(format!("{FALLBACK}{key}"))?.as_str()?;
        Some(text.chars().take(MAX_SHOWN).collect::<String>())
    };
    Some(Fallback {
        of_revision: of("for-revision")?,
        reason: of("reason").unwrap_or_default(),
        message: of("message").unwrap_or_default(),
    })
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn list_at<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OWN: &str = "/etc/kubernetes/static-pod-resources/x-pod-3";
    const CERTS: &str = "/etc/kubernetes/static-pod-resources/x-certs";

    fn pod(script: &str) -> Vec<u8> {
        json!({
            "kind": "Pod",
            "metadata": {"labels": {"revision": "3"}},
            "spec": {
                "containers": [{"command": ["sh", "-c", script], "env": [{"name": "A", "value": "/c/a.crt"}], "volumeMounts": [
                    {"name": "own", "mountPath": "/r"}, {"name": "certs", "mountPath": "/c/"}, {"name": "log", "mountPath": "/l"}]}],
                "volumes": [{"name": "own", "hostPath": {"path": OWN}}, {"name": "certs", "hostPath": {"path": format!("{CERTS}/")}},
                    {"name": "log", "hostPath": {"path": "/var/log/x"}}],
            },
        })
        .to_string()
        .into_bytes()
    }

    fn named(script: &str) -> Vec<String> {
        let manifest = PodManifest::parse(&pod(script)).unwrap();
        assert_eq!(manifest.revision, Some(3));
        let of_variable = format!("{CERTS}/a.crt");
        let named = manifest.named.into_iter();
        named.filter(|path| *path != of_variable).collect()
    }

    #[test]
    fn the_files_of_a_command_line_are_found_where_they_are_on_the_node() {
        let own = |path: &str| format!("{OWN}/{path}");
        for (script, wanted) in [
            ("--config=/r/config.yaml -v=2", vec![own("config.yaml")]),
            (
                "run --key /c/s/tls.key \\\n  --cert \"/c/s/tls.crt\"",
                vec![format!("{CERTS}/s/tls.crt"), format!("{CERTS}/s/tls.key")],
            ),
            ("a,/r/b,/r/c;d", vec![own("b"), own("c")]),
            // The directory itself, a different one, and one that is not mounted.
            ("--dir=/r --dir=/r/ --other=/rr/x /l/x /etc/x", vec![]),
            (
                "cp -p /r/scripts/*.sh /bin; cat /r/$NAME /r/${A} /r/$(B) /r/../x",
                vec![],
            ),
            // A tested path may be missing, even if it is used afterwards.
            (
                "if [ -f /r/ca.crt ]; then cp -f /r/ca.crt /tmp; export X=/r/ca.crt; fi",
                vec![],
            ),
            ("rm /r/lock; touch /r/mark", vec![]),
        ] {
            assert_eq!(named(script), wanted, "{script}");
        }
    }

    #[test]
    fn the_files_of_a_config_are_whole_values() {
        let manifest = PodManifest::parse(&pod("true")).unwrap();
        let config = b"a:\n  b: [/r/one, text /r/two, '']\n  c: /c/three\n  d: /var/log/x\n";
        let found = manifest.named_in_config(config).unwrap();
        assert_eq!(found, [format!("{CERTS}/three"), format!("{OWN}/one")]);
        assert!(manifest.named_in_config(b"a: [").is_err());
    }

    #[test]
    fn what_the_kubelet_cannot_use_is_refused() {
        for text in [
            "",
            "\n \n",
            "\0\0\0\0",
            "kind: [",
            "{\"kind\": \"Pod\"",
            "kind: List\n",
            "[]",
            "\u{feff}",
        ] {
            assert!(PodManifest::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(PodManifest::parse(&[0xff, 0xfe]).is_err());
        let bare = PodManifest::parse(b"kind: Pod\n").unwrap();
        assert_eq!(bare, PodManifest::default());
    }

    #[test]
    fn a_fallback_is_reported_with_its_reason() {
        let text = format!(
            "kind: Pod\nmetadata:\n  annotations:\n    {FALLBACK}for-revision: \"9\"\n    {FALLBACK}reason: NetworkError\n    \
             {FALLBACK}message: '{}'\n",
            "x".repeat(900)
        );
        let fallback = PodManifest::parse(text.as_bytes())
            .unwrap()
            .fallback
            .unwrap();
        assert_eq!(
            (fallback.of_revision.as_str(), fallback.reason.as_str()),
            ("9", "NetworkError")
        );
        assert_eq!(fallback.message.len(), MAX_SHOWN);
    }
}
