//! CRIOCredentialProviderConfig: the kubelet's providers of credentials for images.

use serde_json::{Value, json};

use super::scene::{IMAGE, cluster, part, parts, render};
use crate::support::{TestRoot, file};

const GENERIC: &str = "/etc/kubernetes/credential-providers/generic-credential-provider.yaml";
const CLOUD: &str = "/etc/kubernetes/credential-providers/gcr-credential-provider.yaml";
const DROP_IN: &str =
    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
const NAME: &str = "97-worker-generated-credentialproviderconfig";
/// A template of our own, in the form that people write.
const OF_CLOUD: &str = "\
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: cloud-provider
    matchImages:
      - \"*.cloud.example\"
    defaultCacheDuration: \"90m\"
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    args: [get, --v=3]
";

fn object(images: &Value) -> String {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "CRIOCredentialProviderConfig",
        "metadata": {"name": "cluster", "uid": "u-1"}, "spec": {"matchImages": images}})
    .to_string()
}

fn gate(on: bool) -> Value {
    let key = if on { "enabled" } else { "disabled" };
    json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "status": {"featureGates": [{"version": "4.22.0", key: [{"name": "CRIOCredentialProviderConfig"}]}]}})
}

/// Writes the parts of a cluster with more objects.
fn write_cluster(root: &TestRoot, more: Vec<Value>) {
    let items: Vec<Value> = parts().into_iter().chain(cluster()).chain(more).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    root.write("all.json", &list.to_string());
}

/// The file's text; `None` if the config does not have it.
fn text_of(config: &Value, path: &str) -> Option<String> {
    let files = config["spec"]["config"]["storage"]["files"].as_array()?;
    let file = files.iter().find(|file| file["path"] == path)?;
    let source = file["contents"]["source"].as_str().unwrap();
    let bytes = mco_rescue::config::document::data_url(source).unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn a_platform_without_providers_gets_one_and_a_drop_in() {
    let root = TestRoot::empty();
    write_cluster(&root, vec![gate(true)]);
    root.write(
        "providers.json",
        &object(&json!([
            "registry.example:8443/team",
            "*.mirror.example",
            "a.example"
        ])),
    );
    let run = render(
        &root,
        &["--parts", "all.json", "providers.json", "--generated"],
    )
    .ok();
    assert_eq!(run.err(), "", "nothing is in doubt");
    let list = run.json();
    let [config] = list["items"].as_array().unwrap().as_slice() else {
        panic!("{list:#}");
    };
    assert_eq!(config["metadata"]["name"], NAME);
    assert_eq!(
        config["metadata"]["ownerReferences"],
        json!([{"apiVersion": "config.openshift.io/v1", "kind": "CRIOCredentialProviderConfig", "name": "cluster", "uid": "u-1"}])
    );
    assert_eq!(
        text_of(config, GENERIC).unwrap(),
        "apiVersion: kubelet.config.k8s.io/v1\n\
         kind: CredentialProviderConfig\n\
         providers:\n\
         - apiVersion: credentialprovider.kubelet.k8s.io/v1\n\
         \x20 defaultCacheDuration: 1s\n\
         \x20 matchImages:\n\
         \x20 - '*.mirror.example'\n\
         \x20 - a.example\n\
         \x20 - registry.example:8443/team\n\
         \x20 name: crio-credential-provider\n\
         \x20 tokenAttributes:\n\
         \x20   cacheType: Token\n\
         \x20   requireServiceAccount: false\n\
         \x20   serviceAccountTokenAudience: https://kubernetes.default.svc\n"
    );
    let drop_in = text_of(config, DROP_IN).unwrap();
    assert!(
        drop_in.starts_with("[Service]\n")
            && drop_in.ends_with(&format!("--image-credential-provider-config={GENERIC}\"\n")),
        "{drop_in}"
    );
    let rendered = render(&root, &["--parts", "all.json", "providers.json"])
        .ok()
        .json();
    assert!(text_of(&rendered, DROP_IN).is_some());
}

#[test]
fn the_provider_of_a_cloud_keeps_its_images() {
    let root = TestRoot::empty();
    let template = part("00-worker", "worker", true, &[file(CLOUD, 0o644, OF_CLOUD)]);
    let mut all = parts();
    all.retain(|part| part["metadata"]["name"] != "00-worker");
    all.extend(cluster());
    all.extend([template, gate(true)]);
    root.write(
        "all.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string(),
    );
    root.write(
        "providers.json",
        &object(&json!(["eu.cloud.example/team", "own.example"])),
    );
    let run = render(&root, &["--parts", "all.json", "providers.json"]).ok();
    let said = run.err();
    assert!(
        said.contains("Skip rendering entries: [eu.cloud.example/team]"),
        "{said}"
    );
    let rendered = run.json();
    let text = text_of(&rendered, CLOUD).unwrap();
    let (of_cloud, own) = text.split_once("- own.example").unwrap();
    assert!(of_cloud.contains("defaultCacheDuration: 1h30m0s\n  matchImages:\n  - '*.cloud.example'\n  name: cloud-provider\n"), "{text}");
    assert!(own.contains("name: crio-credential-provider"), "{text}");
    assert_eq!(
        text_of(&rendered, DROP_IN),
        None,
        "the kubelet knows the cloud's file"
    );

    // On top of the rendered config the template's file cannot be made again.
    root.write("base.json", &rendered.to_string());
    root.write("none.json", &object(&json!(["eu.cloud.example/team"])));
    let refused = render(&root, &["--base", "base.json", "none.json"])
        .exits(1)
        .err();
    assert!(
        refused.contains("--parts") && refused.contains(CLOUD),
        "{refused}"
    );
}

#[test]
fn without_images_the_config_is_there_and_is_empty() {
    let root = TestRoot::empty();
    write_cluster(&root, vec![gate(true)]);
    root.write("empty.json", &object(&Value::Null));
    let list = render(&root, &["--parts", "all.json", "empty.json", "--generated"])
        .ok()
        .json();
    assert_eq!(list["items"][0]["metadata"]["name"], NAME);
    assert_eq!(
        list["items"][0]["spec"]["config"],
        json!({"ignition": {"version": "3.5.0"}})
    );

    // On top of a config that has the files they go.
    root.write("providers.json", &object(&json!(["a.example"])));
    let with = render(&root, &["--parts", "all.json", "providers.json"])
        .ok()
        .json();
    root.write("base.json", &with.to_string());
    let without = render(&root, &["--base", "base.json", "empty.json"])
        .ok()
        .json();
    assert_eq!(
        (text_of(&without, GENERIC), text_of(&without, DROP_IN)),
        (None, None)
    );
}

#[test]
fn the_feature_gate_decides() {
    let root = TestRoot::empty();
    root.write("providers.json", &object(&json!(["a.example"])));
    write_cluster(&root, vec![gate(false)]);
    let run = render(&root, &["--parts", "all.json", "providers.json"]).ok();
    assert!(
        run.err()
            .contains("the feature gate CRIOCredentialProviderConfig is off"),
        "{}",
        run.err()
    );
    assert_eq!(text_of(&run.json(), GENERIC), None);

    write_cluster(&root, Vec::new());
    let run = render(&root, &["--parts", "all.json", "providers.json"]).ok();
    assert!(
        run.err().contains("Give the object FeatureGate cluster"),
        "{}",
        run.err()
    );
    assert!(text_of(&run.json(), GENERIC).is_some());

    // kubelet.conf of the rendered config names the gates, too.
    let conf = "featureGates:\n  CRIOCredentialProviderConfig: false\n";
    let mut base = part(
        "rendered-worker-0",
        "worker",
        true,
        &[file("/etc/kubernetes/kubelet.conf", 0o644, conf)],
    );
    base["spec"]["osImageURL"] = json!(IMAGE);
    root.write("base.json", &base.to_string());
    let run = render(&root, &["--base", "base.json", "providers.json"]).ok();
    assert!(
        run.err().contains("is off in this cluster"),
        "{}",
        run.err()
    );
}

#[test]
fn a_pattern_that_the_api_refuses_is_refused_with_its_place() {
    let root = TestRoot::empty();
    write_cluster(&root, vec![gate(true)]);
    for bad in [
        "*",
        "",
        "Registry.example",
        "a*b.example",
        "a.example:*",
        "a.example/*",
        "https://a.example",
        "a.example:",
        ".example",
    ] {
        root.write("providers.json", &object(&json!(["good.example", bad])));
        let said = render(&root, &["--parts", "all.json", "providers.json"])
            .exits(1)
            .err();
        assert!(
            said.contains("providers.json: spec.matchImages[1]")
                && said.contains("HOST[:PORT][/PATH]"),
            "{bad}: {said}"
        );
    }
    root.write("providers.json", &object(&json!("a.example")));
    let said = render(&root, &["--parts", "all.json", "providers.json"])
        .exits(1)
        .err();
    assert!(said.contains("not a list"), "{said}");
    let many: Vec<String> = (0..51).map(|number| format!("r{number}.example")).collect();
    root.write("providers.json", &object(&json!(many)));
    let said = render(&root, &["--parts", "all.json", "providers.json"])
        .exits(1)
        .err();
    assert!(said.contains("51 patterns"), "{said}");
}
