//! KubeletConfigs and the node configuration, beyond the captured pairs of `pairs.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{say, shared_data};
use mco_rescue::config::controllers::{
    Base, Cluster, GeneratedConfig, Generation, generate_configs, read_objects,
};
use serde_json::{Value, json};

const CONF: &str = "/etc/kubernetes/kubelet.conf";
/// As much of a base as a KubeletConfig needs.
const BASE: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n\
                    rotateCertificates: true\nsystemCgroups: /system.slice\nvolumeStatsAggPeriod: 0s\n";
const HASH: &str = "0123456789abcdef";

fn part(name: &str, pool: &str, hash: &str, owner: Option<&str>) -> (String, Value) {
    let text: String = BASE.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": {"machineconfiguration.openshift.io/role": pool},
            "annotations": {"machineconfiguration.openshift.io/generated-by-controller-version": hash},
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": CONF, "contents": {"source": format!("data:,{text}")}},
        ]}}},
    });
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{"kind": "KubeletConfig", "name": owner}]);
    }
    (name.to_owned(), object)
}

fn kubelet_config(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata:\n  name: {name}\nspec:\n  \
         machineConfigPoolSelector:\n    matchLabels:\n      pools.operator.machineconfiguration.openshift.io/worker: \"\"\n{spec}"
    )
}

fn run(input: &str, base: Base) -> Generation {
    let objects = read_objects(input.as_bytes(), "limits.yaml").unwrap();
    generate_configs(&Cluster::new(objects, base, "worker"))
}

fn small_base() -> BTreeMap<String, Value> {
    [part("98-worker-generated-kubelet", "worker", HASH, None)].into()
}

fn conf_of<'g>(generation: &'g Generation, name: &str) -> Option<&'g str> {
    let config = generation
        .configs
        .iter()
        .find(|config| config.name == name)?;
    let file = config.files.iter().find(|file| file.path == CONF)?;
    std::str::from_utf8(&file.contents).ok()
}

#[test]
fn a_refused_field_is_named_with_its_line() {
    let input = kubelet_config(
        "a",
        "  kubeletConfig:\n    maxPods: 300\n    clusterDNS:\n    - 192.0.2.1\n",
    );
    let generation = run(&input, Base::Parts(small_base()));
    let refusal = &generation.refusals[0];
    assert_eq!(
        refusal.place,
        "limits.yaml: spec.kubeletConfig.clusterDNS (line 12)"
    );
    let words =
        "KubeletConfiguration: clusterDNS is not allowed to be set, but contains: [192.0.2.1]";
    assert_eq!(refusal.message, words);
    assert!(conf_of(&generation, "99-worker-generated-kubelet").is_none());
    let input = kubelet_config(
        "a",
        "  kubeletConfig:\n    logging:\n      verbosity: high\n",
    );
    let generation = run(&input, Base::Parts(small_base()));
    let place = &generation.refusals[0].place;
    assert_eq!(
        place,
        "limits.yaml: spec.kubeletConfig.logging.verbosity (line 11)"
    );
}

#[test]
fn what_the_operator_drops_or_keeps_is_noted() {
    let fields =
        "  kubeletConfig:\n    rotateCertificates: false\n    maxPod: 300\n    podsPerCore: 9\n";
    let generation = run(&kubelet_config("a", fields), Base::Parts(small_base()));
    let notes: Vec<&str> = generation
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    let dropped = "spec.kubeletConfig.maxPod is not a field of the kubelet's configuration: the operator drops it; did you mean maxPods?";
    assert!(notes.contains(&dropped), "{notes:?}");
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("rotateCertificates: false changes nothing")),
        "{notes:?}"
    );
    let conf = conf_of(&generation, "99-worker-generated-kubelet").unwrap();
    assert!(
        conf.contains("podsPerCore: 9\nrotateCertificates: true\n"),
        "{conf}"
    );
    assert!(!generation.notes.iter().any(|note| note.inexact));
}

#[test]
fn the_owner_of_a_machineconfig_keeps_its_suffix_and_others_count_on() {
    let mut parts = small_base();
    parts.extend([
        part("99-worker-generated-kubelet", "worker", HASH, Some("first")),
        part(
            "99-worker-generated-kubelet-3",
            "worker",
            HASH,
            Some("third"),
        ),
    ]);
    let input = kubelet_config("third", "  kubeletConfig:\n    maxPods: 301\n");
    let generation = run(&input, Base::Parts(parts.clone()));
    let conf = conf_of(&generation, "99-worker-generated-kubelet-3").unwrap();
    assert!(conf.contains("maxPods: 301\n"), "{conf}");
    let input = kubelet_config("new", "  kubeletConfig:\n    maxPods: 302\n");
    let generation = run(&input, Base::Parts(parts));
    let conf = conf_of(&generation, "99-worker-generated-kubelet-4").unwrap();
    assert!(conf.contains("maxPods: 302\n"), "{conf}");
    let notes: Vec<&str> = generation
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("KubeletConfig first")),
        "{notes:?}"
    );
}

#[test]
fn machineconfigs_of_another_version_of_the_operator_are_deleted() {
    let mut parts = small_base();
    parts.extend([part(
        "99-worker-generated-kubelet-1",
        "worker",
        "fedcba",
        None,
    )]);
    let input = kubelet_config("a", "  logLevel: 4\n");
    let generation = run(&input, Base::Parts(parts.clone()));
    assert_eq!(generation.deleted, ["99-worker-generated-kubelet-1"]);
    // Nothing is deleted where nothing is made.
    let generation = run(&kubelet_config("a", "  logLevel: 11\n"), Base::Parts(parts));
    assert_eq!(generation.deleted, Vec::<String>::new());
}

#[test]
fn a_node_of_another_name_or_group_changes_nothing() {
    for (version, name) in [("config.openshift.io/v1", "other"), ("v1", "cluster")] {
        let input = format!(
            "apiVersion: {version}\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{workerLatencyProfile: LowUpdateSlowReaction}}\n"
        );
        let generation = run(&input, Base::Parts(small_base()));
        let ours = |config: &&GeneratedConfig| config.name.ends_with("-kubelet");
        assert_eq!(
            generation
                .configs
                .iter()
                .find(ours)
                .map(|config| &config.name),
            None
        );
        assert!(generation.refusals.is_empty());
        assert_eq!(generation.notes.len(), usize::from(version != "v1"));
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn with_gates(data: &Path, base: &str, input: &str) -> String {
    let cluster = fs::read_to_string(data.join("base").join(base).join("cluster.yaml")).unwrap();
    format!("{cluster}\n---\n{input}")
}

/// On the rendered config of a pool without a KubeletConfig each captured KubeletConfig gives the captured file.
#[test]
fn a_rendered_config_without_a_kubelet_config_is_the_base() {
    let Some(data) = shared_data("controllers") else {
        return;
    };
    let (mut equal, mut different) = (0, Vec::new());
    for entry in fs::read_dir(data.join("kubelet")).unwrap() {
        let path = entry.unwrap().path();
        let pair = read_json(&path);
        let input = pair["input"].as_str().unwrap();
        let base = pair["base"].as_str().unwrap();
        if input.matches("kind: ").count() > 1 || !pair["errors"].as_array().unwrap().is_empty() {
            continue;
        }
        for (name, files) in pair["files"].as_object().unwrap() {
            let pool = name.split('-').nth(1).unwrap();
            let rendered = data
                .join("base")
                .join(base)
                .join(format!("rendered-{pool}.json"));
            let generation = run(
                &with_gates(&data, base, input),
                Base::Rendered(read_json(&rendered)),
            );
            let is_same = conf_of(&generation, name) == files[CONF].as_str();
            if is_same && !generation.notes.iter().any(|note| note.inexact) {
                equal += 1;
            } else {
                different.push(format!(
                    "{}: {name}: {:?}",
                    path.display(),
                    generation.notes
                ));
            }
        }
    }
    say(&format!(
        "KubeletConfigs on rendered configs: {equal} equal"
    ));
    assert!(different.is_empty() && equal > 20, "{different:#?}");
}

/// A rendered config that has a KubeletConfig in it already is told apart.
#[test]
fn a_kubelet_config_in_force_is_noticed_in_a_rendered_config() {
    let Some(data) = shared_data("controllers") else {
        return;
    };
    let input = kubelet_config("new", "  kubeletConfig:\n    podPidsLimit: 5000\n");
    for (case, has_one) in [
        ("kubelet", true),
        ("kubelet-master", true),
        ("everything", true),
        ("icsp", false),
        ("tls", false),
    ] {
        let pair = read_json(&data.join("rendered").join(format!("{case}.json")));
        let input = input.replace("worker", pair["pool"].as_str().unwrap());
        let generation = run(&input, Base::Rendered(pair["rendered"].clone()));
        let noted = generation
            .notes
            .iter()
            .any(|note| note.inexact && note.text.contains("in force"));
        assert_eq!(noted, has_one, "{case}: {:?}", generation.notes);
    }
}

/// Without 97 and 98 the base is made of the template's file: all fields, and all gates.
#[test]
fn the_base_is_made_of_the_template_where_it_is_missing() {
    let Some(data) = shared_data("controllers") else {
        return;
    };
    for base in ["baremetal", "none", "vsphere-infra"] {
        let directory = data.join("base").join(base).join("machineconfigs");
        let mut parts = BTreeMap::new();
        let mut written = BTreeMap::new();
        for entry in fs::read_dir(&directory).unwrap() {
            let object = read_json(&entry.unwrap().path());
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let is_written = name.starts_with("97") || name.starts_with("98");
            let map = if is_written { &mut written } else { &mut parts };
            map.insert(name, object);
        }
        let generation = run(&with_gates(&data, base, ""), Base::Parts(parts));
        for (name, wanted) in written {
            let made = generation.configs.iter().find(|config| config.name == name);
            let made = made.map(|config| config.object(None)["spec"].clone());
            assert_eq!(made.as_ref(), wanted.get("spec"), "{base}: {name}");
        }
    }
}

/// Real rendered configs, made of templates alone, show no sign of a KubeletConfig; one with a KubeletConfig does.
#[test]
fn real_rendered_configs_without_a_kubelet_config_show_no_sign_of_one() {
    let (Some(rendered), Some(pairs)) = (shared_data("rendered"), shared_data("pairs")) else {
        return;
    };
    let is_noticed = |path: &Path| {
        let config = read_json(path);
        let name = config["metadata"]["name"].as_str().unwrap();
        let pool = name.split('-').nth(1).unwrap().to_owned();
        let input = kubelet_config("a", "  logLevel: 4\n").replace("worker", &pool);
        let objects = read_objects(input.as_bytes(), "limits.yaml").unwrap();
        let generation = generate_configs(&Cluster::new(objects, Base::Rendered(config), &pool));
        let made = format!("99-{pool}-generated-kubelet");
        assert!(conf_of(&generation, &made).is_some(), "{}", path.display());
        generation
            .notes
            .iter()
            .any(|note| note.text.contains("in force"))
    };
    let mut looked_at = 0;
    for entry in fs::read_dir(rendered).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            assert!(!is_noticed(&path), "{}", path.display());
            looked_at += 1;
        }
    }
    assert!(looked_at > 5);
    assert!(!is_noticed(&pairs.join("01-kubelet-conf/old.json")));
    assert!(is_noticed(&pairs.join("01-kubelet-conf/new.json")));
}
