//! The right config on the right node: what is not rendered, takes too much away, is of another pool or cluster, or was
//! edited under its name, is refused by name, and each refusal has an override of its own.

use std::fs;

use crate::support::{
    Run, TestRoot, file, flat, machine_config, rendered_metadata, say, shared_data,
};
use serde_json::{Value, json};

const API: &str = "api-int.home.example";

/// The files and units without which no node is one, and some more.
fn parts(host: &str, extra: usize) -> Value {
    let mut files = vec![
        file(
            "/etc/kubernetes/kubelet.conf",
            0o644,
            "kind: KubeletConfiguration\n",
        ),
        file("/etc/crio/crio.conf.d/00-default", 0o644, "[crio]\n"),
        file(
            "/etc/kubernetes/apiserver-url.env",
            0o644,
            &format!("KUBERNETES_SERVICE_HOST='{host}'\nKUBERNETES_SERVICE_PORT='6443'\n"),
        ),
    ];
    files.extend((0..extra).map(|n| file(&format!("/etc/site/{n}.conf"), 0o644, "x\n")));
    json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": files},
        "systemd": {"units": [{"name": "kubelet.service", "enabled": true,
            "contents": "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n"}]},
    })
}

/// One file.
fn little() -> Value {
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file("/etc/site/0.conf", 0o644, "x\n")]}})
}

/// A MachineConfig as an admin writes it.
fn single(pool: &str, name: &str, ignition: Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": pool}},
        "spec": {"config": ignition},
    })
}

/// The same as the operator renders it: the hash in its name is right.
fn rendered(pool: &str, ignition: Value) -> Value {
    let root = TestRoot::new();
    let config = root.config(&single(pool, "50-whole", ignition));
    let image = "registry.example/os@sha256:0";
    root.run(&["render", pool, config.path(), "--os-image", image])
        .ok()
        .json()
}

fn name(config: &Value) -> &str {
    config["metadata"]["name"].as_str().unwrap()
}

/// A node that is recorded to be in the worker config of its cluster.
fn node() -> (TestRoot, Value) {
    let (root, config) = (TestRoot::new(), rendered("worker", parts(API, 30)));
    root.apply(&config);
    (root, config)
}

fn plan(root: &TestRoot, config: &Value, options: &[&str]) -> Run {
    let config = root.config(config);
    root.run(&[&["plan", config.path()], options].concat())
}

/// Refused with these words and by nothing else; passed over with the option, and only with that one.
fn refused(root: &TestRoot, config: &Value, option: &str, words: &[&str]) {
    let before = root.everything();
    let said = plan(root, config, &[]).exits(1);
    let text = flat(&said.out());
    for word in words.iter().chain([&option, &"Blockers (1):"]) {
        assert!(text.contains(word), "{word}:\n{}", said.out());
    }
    assert!(!text.contains("Next: mco-rescue apply"), "{text}");
    assert!(
        said.out().lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let given = root.config(config);
    let run = root.run(&["apply", "--yes", given.path()]).exits(1);
    assert!(run.err().contains("nothing was changed"), "{}", run.err());
    assert_eq!(root.everything(), before);
    let all = [
        "--not-rendered",
        "--allow-removals",
        "--other-pool",
        "--other-cluster",
        "--other-architecture",
        "--edited-config",
    ];
    for other in all.iter().filter(|other| **other != option) {
        plan(root, config, &[other]).exits(1);
    }
    let passed = plan(root, config, &[option]).ok();
    let notice = format!("accepted ({option})");
    assert!(flat(&passed.out()).contains(&notice), "{}", passed.out());
}

#[test]
fn a_single_machine_config_is_refused_and_leads_to_render() {
    let (root, _) = node();
    let keys = json!({"ignition": {"version": "3.4.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA me"]}]}});
    let config = single("worker", "99-worker-ssh", keys);
    let said = plan(&root, &config, &["--files-only"]).exits(1);
    let text = flat(&said.out());
    for words in [
        "99-worker-ssh is not a rendered config (its label machineconfiguration.openshift.io/role is worker",
        "mco-rescue render worker FILES...",
        "--not-rendered",
        "34 of 34 paths of the recorded config would be removed, with /etc/crio/crio.conf.d/00-default, \
         /etc/kubernetes/kubelet.conf, kubelet.service",
        "--allow-removals",
    ] {
        assert!(text.contains(words), "{words}:\n{}", said.out());
    }
    let other = [
        ("owner", "KubeletConfig"),
        ("name", "99-worker-generated-kubelet"),
    ];
    let mut generated = machine_config(other[1].1, parts(API, 30));
    generated["metadata"]["ownerReferences"][0]["kind"] = json!(other[0].1);
    refused_among(&root, &generated, "its owner is a KubeletConfig");
    let mut bare_name = machine_config("rendered-worker-a", little());
    bare_name["metadata"] = json!({"name": "rendered-worker-a"});
    refused_among(
        &root,
        &bare_name,
        "it has neither the owner nor the annotation",
    );
    // Kernel arguments alone.
    let mut arguments = single(
        "worker",
        "99-worker-kargs",
        json!({"ignition": {"version": "3.4.0"}}),
    );
    arguments["spec"]["kernelArguments"] = json!(["nosmt"]);
    let said = plan(&root, &arguments, &["--not-rendered"]).exits(1);
    let text = said.err();
    assert!(
        text.contains("99-worker-kargs is not a rendered config"),
        "{text}"
    );
    assert!(text.contains("mco-rescue render POOL FILES..."), "{text}");
}

/// Refused, this among other reasons.
fn refused_among(root: &TestRoot, config: &Value, words: &str) {
    let said = plan(root, config, &["--files-only"]).exits(1);
    let text = flat(&said.out());
    assert!(
        text.contains("is not a rendered config") && text.contains(words),
        "{text}"
    );
}

#[test]
fn a_gutted_node_is_not_a_healthy_one_and_leads_back() {
    let (root, whole) = node();
    let config = root.config(&single("worker", "99-worker-site", little()));
    let options = ["--files-only", "--not-rendered", "--allow-removals"];
    let before = root.snapshot();
    root.run(&[&["apply", "--yes", config.path()], &options[..]].concat())
        .ok();
    assert!(!root.exists("etc/systemd/system/kubelet.service"));
    let doctor = root.run(&["doctor"]).exits(6);
    let text = flat(&doctor.out());
    for words in [
        "FP-60: the recorded config is incomplete",
        "no kubelet.service",
        "mco-rescue rollback",
    ] {
        assert!(text.contains(words), "{words}:\n{}", doctor.out());
    }
    let status = flat(&root.run(&["status"]).ok().out());
    assert!(
        status.contains("without a kubelet no daemon starts"),
        "{status}"
    );
    assert!(!status.contains("adopted"), "{status}");
    root.run(&["rollback", "--yes"]).ok();
    assert_eq!(root.snapshot(), before);
    let again = root.run(&["doctor"]);
    assert!(!again.out().contains("FP-60:"), "{}", again.out());
    assert_eq!(root.run(&["verify"]).ok().code(), 0, "{}", name(&whole));
}

#[test]
fn what_takes_the_kubelet_or_a_tenth_away_is_refused_and_little_is_not() {
    let (root, _) = node();
    let option = "--allow-removals";
    let without_kubelet = {
        let mut parts = parts(API, 30);
        parts["systemd"] = json!({});
        rendered("worker", parts)
    };
    refused(
        &root,
        &without_kubelet,
        option,
        &["kubelet.service", "needs to run"],
    );
    refused(
        &root,
        &rendered("worker", parts(API, 20)),
        option,
        &[
            "10 of 34 paths of the recorded config would be removed.",
            "Check whether this is the right config",
        ],
    );
    let masked = {
        let mut parts = parts(API, 30);
        let units = parts["systemd"]["units"].as_array_mut().unwrap();
        units.push(json!({"name": "sshd.service", "mask": true}));
        rendered("worker", parts)
    };
    refused(&root, &masked, option, &["sshd.service (masked)"]);
    plan(&root, &rendered("worker", parts(API, 21)), &[]).ok();
    // Two of five go, and none of them matters to the kubelet.
    let small = TestRoot::new();
    let of = |n| {
        machine_config(
            "rendered-worker-a",
            json!({"storage": {"files": parts("", n)["storage"]["files"]
        .as_array().unwrap().iter().skip(3).cloned().collect::<Vec<_>>()}}),
        )
    };
    small.apply(&of(5));
    small.apply(&of(3));
}

#[test]
fn the_config_of_another_pool_is_refused_unless_the_cluster_speaks_for_it() {
    let (root, config) = node();
    let master = rendered("master", parts(API, 30));
    refused(
        &root,
        &master,
        "--other-pool",
        &["is for pool master, but this node belongs to pool worker according to its record"],
    );
    let seen = json!({"version": 1, "node": "n", "seen": 1, "current": name(&config),
        "desired": "rendered-infra-00000000000000000000000000000000", "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
    plan(&root, &rendered("infra", parts(API, 30)), &[]).ok();
    refused(&root, &master, "--other-pool", &["for pool master"]);
}

#[test]
fn a_node_without_record_is_of_the_pool_that_it_was_provisioned_for() {
    let root = TestRoot::new();
    let pointer = json!({"ignition": {"version": "3.4.0", "config": {"merge": [
        {"source": format!("https://{API}:22623/config/worker")}]}}});
    root.write("boot/ignition/config.ign", &pointer.to_string());
    let option = "--other-pool";
    let words = [
        "this node belongs to pool worker according to the pointer config /boot/ignition/config.ign",
    ];
    refused(&root, &rendered("master", parts(API, 3)), option, &words);
    plan(&root, &rendered("worker", parts(API, 3)), &[]).ok();
    // Custom pools are provisioned as worker.
    plan(&root, &rendered("infra", parts(API, 3)), &[]).ok();
    let other = rendered("worker", parts("api-int.other.example", 3));
    refused(
        &root,
        &other,
        "--other-cluster",
        &["api-int.other.example", API],
    );
}

#[test]
fn the_config_of_another_cluster_is_refused() {
    let (root, _) = node();
    let other = rendered("worker", parts("api-int.other.example", 30));
    let option = "--other-cluster";
    refused(
        &root,
        &other,
        option,
        &[
            "API api-int.other.example",
            API,
            "according to the recorded config",
        ],
    );
    // Without a record the kubelet's own credentials tell.
    root.remove("etc/machine-config-daemon/currentconfig");
    root.remove("etc/kubernetes/apiserver-url.env");
    let kubeconfig = format!("clusters:\n- name: a\n  cluster: {{server: 'https://{API}:6443'}}\n");
    root.write("var/lib/kubelet/kubeconfig", &kubeconfig);
    refused(
        &root,
        &other,
        option,
        &["according to /var/lib/kubelet/kubeconfig"],
    );
    plan(
        &root,
        &rendered("worker", parts("api.home.example", 30)),
        &[],
    )
    .ok();
}

/// An authority's certificate.
fn authority(name: &str) -> String {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn other_authorities_make_another_cluster_but_a_replaced_one_does_not() {
    let with = |bundle: &str| {
        let mut parts = parts(API, 30);
        let files = parts["storage"]["files"].as_array_mut().unwrap();
        files.push(file("/etc/kubernetes/ca.crt", 0o644, bundle));
        rendered("worker", parts)
    };
    let (old, new) = (authority("root-ca"), authority("root-ca"));
    let root = TestRoot::new();
    root.apply(&with(&old));
    // Installed anew under the same name.
    let words = [
        "no certificate authority of the config matches this node's, first in /etc/kubernetes/ca.crt",
    ];
    refused(&root, &with(&new), "--other-cluster", &words);
    // Replaced: first both, then the new one alone.
    root.apply(&with(&format!("{old}{new}")));
    root.apply(&with(&new));
}

#[test]
fn an_edited_config_is_refused_and_plan_always_says_how_the_hash_stands() {
    let (root, config) = node();
    let mut edited = config.clone();
    edited["spec"]["config"]["storage"]["files"][3] = file("/etc/site/0.conf", 0o644, "edited\n");
    let words = [
        "Hash WRONG: the contents were changed",
        "oc get mc rendered-worker-",
    ];
    refused(&root, &edited, "--edited-config", &words);
    // The cluster's own contents are at hand: the daemon would stop, so apply is not what comes next.
    let forced = plan(&root, &edited, &["--edited-config"]).ok();
    assert!(forced.out().contains("Degraded"), "{}", forced.out());
    assert!(
        !forced.out().contains("Next: mco-rescue apply"),
        "{}",
        forced.out()
    );
    assert!(
        flat(&forced.out()).contains("Next: mco-rescue fetch"),
        "{}",
        forced.out()
    );
    let said = plan(&root, &config, &[]).ok();
    assert!(said.out().contains("Hash      right: "), "{}", said.out());
    let json = plan(&root, &config, &["--output", "json"]).ok().json();
    assert_eq!(json["name_hash"], "right");
    let small = machine_config("rendered-worker-a", little());
    let fresh = TestRoot::new();
    let said = plan(&fresh, &small, &[]).ok();
    assert!(
        said.out().contains("Hash      none in the name"),
        "{}",
        said.out()
    );
    let mut newer = config.clone();
    newer["spec"]["osImageStream"] = json!("x");
    newer["spec"]["kernelArguments"] = json!(["nosmt"]);
    let said = plan(&fresh, &newer, &["--files-only"]);
    assert!(
        said.out()
            .contains("Hash      not checked: spec.osImageStream"),
        "{}",
        said.out()
    );
    // The node's own record is judged likewise.
    let path = "etc/machine-config-daemon/currentconfig";
    root.write(path, &edited.to_string());
    let own = root.run(&["plan"]).exits(1);
    assert!(flat(&own.out()).contains("Hash WRONG"), "{}", own.out());
    root.run(&["plan", "--edited-config"]).ok();
}

#[test]
fn what_the_server_did_to_the_config_of_a_layered_pool_is_not_an_edit() {
    let root = TestRoot::new();
    let mut config = rendered("worker", parts(API, 3));
    let image = "registry.example/layered@sha256:1";
    config["spec"]["osImageURL"] = json!(image);
    refused(&root, &config, "--edited-config", &["WRONG"]);
    let kept = "etc/machine-config-daemon/node-annotation.json.bak";
    root.write(kept, "{\"machine");
    let run = plan(&root, &config, &[]).exits(1);
    assert!(flat(&run.out()).contains("WRONG"), "{}", run.out());
    let said = run.err();
    let is_named = |line: &str| line.contains(kept) && line.contains("it is skipped");
    assert!(said.lines().any(is_named), "{said}");
    let annotations = json!({"machineconfiguration.openshift.io/currentImage": image});
    root.write(kept, &annotations.to_string());
    let said = plan(&root, &config, &[]).ok();
    assert!(
        flat(&said.out()).contains("image of a layered pool"),
        "{}",
        said.out()
    );
}

/// Every real config onto every other: of its own pool and cluster nothing is doubted.
#[test]
fn real_configs_are_doubted_for_the_right_reasons_only() {
    let Some(folder) = shared_data("rendered") else {
        return;
    };
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            all.push(config);
        }
    }
    let options = ["--files-only", "--ignore-unsupported", "--output", "json"];
    let pool = |config: &Value| config["metadata"]["ownerReferences"][0]["name"].clone();
    let subjects = |run: &Run| -> Vec<String> {
        let json = run.json();
        let blockers = json["blockers"].as_array().unwrap().iter();
        let subjects = blockers.map(|one| one["subject"].as_str().unwrap().to_owned());
        let ours = ["metadata", "metadata.name", "pool", "cluster"];
        subjects
            .filter(|one| ours.contains(&one.as_str()))
            .collect()
    };
    let mut pairs = 0;
    for from in &all {
        let root = TestRoot::new();
        let given = root.config(from);
        let mut command = vec!["apply", "--yes", given.path()];
        command.extend(&options[..2]);
        root.run(&command).ok();
        for to in &all {
            let run = plan(&root, to, &options);
            assert_eq!(run.json()["name_hash"], "right", "{}", name(to));
            let wanted: &[&str] = if pool(from) == pool(to) {
                &[]
            } else {
                &["pool"]
            };
            assert_eq!(subjects(&run), wanted, "{} to {}", name(from), name(to));
            pairs += 1;
        }
    }
    say(&format!("{pairs} pairs of real configs were judged"));
    assert!(pairs >= 64, "{pairs}");
}

#[test]
fn a_stick_with_two_pools_suggests_what_the_node_speaks_for_and_nothing_else() {
    let stick = tempfile::tempdir().unwrap();
    let (worker, master) = (
        rendered("worker", parts(API, 3)),
        rendered("master", parts(API, 4)),
    );
    for config in [&master, &worker] {
        let path = stick.path().join(format!("{}.json", name(config)));
        fs::write(path, config.to_string()).unwrap();
    }
    let part = single(
        "worker",
        "99-worker-ssh",
        json!({"ignition": {"version": "3.4.0"}}),
    );
    fs::write(stick.path().join("99-worker-ssh.json"), part.to_string()).unwrap();
    let path = stick.path().to_str().unwrap();
    let unknown = TestRoot::new();
    let said = unknown.run(&["fetch", path]).ok();
    let text = flat(&said.out());
    assert!(!text.contains("plan cached:rendered"), "{}", said.out());
    for words in [
        "Pool master Kept rendered-master-",
        "Pool worker Kept rendered-worker-",
        "Nothing on this node names its pool. NAME stands for a config of its pool. Next: mco-rescue plan cached:NAME",
        "99-worker-ssh is not a rendered config",
        "mco-rescue render",
    ] {
        assert!(text.contains(words), "{words}:\n{}", said.out());
    }
    // Nor does anything else take one of them.
    for args in [&["plan", "--latest"][..], &["plan"]] {
        let run = unknown.run(args).exits(1);
        let said = flat(&run.err());
        assert!(said.contains("several pools (master, worker)"), "{said}");
        assert!(said.contains("mco-rescue cache list"), "{said}");
    }
    let known = TestRoot::new();
    let unit =
        "[Service]\nExecStart=/usr/bin/kubelet --node-labels=node-role.kubernetes.io/worker,a=b\n";
    known.write("etc/systemd/system/kubelet.service", unit);
    let said = known.run(&["fetch", path]).ok();
    let text = flat(&said.out());
    assert!(text.contains("Pool worker (this node's)"), "{text}");
    assert!(
        text.contains(&format!("Next: mco-rescue plan cached:{}", name(&worker))),
        "{text}"
    );
    assert!(!text.contains("plan cached:rendered-master"), "{text}");
    let latest = known.run(&["plan", "--latest", "--output", "json"]);
    assert_eq!(latest.json()["config"], name(&worker));
    // One pool, and it is not the node's.
    let (root, _) = node();
    let given = root.config(&master);
    let said = root.run(&["fetch", given.path()]).ok();
    let text = flat(&said.out());
    assert!(
        text.contains("It belongs to pool master, and this node to another one"),
        "{text}"
    );
    assert!(!text.contains("Next:"), "{text}");
    assert_eq!(
        rendered_metadata("rendered-a-b")["ownerReferences"][0]["name"],
        "a"
    );
}

#[test]
fn an_arbiter_is_not_a_master_although_it_has_a_member_of_etcd() {
    let root = TestRoot::new();
    root.write("etc/kubernetes/manifests/etcd-pod.yaml", "kind: Pod\n");
    let labels = "--node-labels=node-role.kubernetes.io/arbiter,a=b";
    let unit = format!("[Service]\nExecStart=/usr/bin/kubelet \\\n  {labels}\n");
    root.write("etc/systemd/system/kubelet.service", &unit);
    plan(&root, &rendered("arbiter", parts(API, 3)), &[]).ok();
    let words =
        ["this node belongs to pool arbiter according to /etc/systemd/system/kubelet.service"];
    let master = rendered("master", parts(API, 3));
    refused(&root, &master, "--other-pool", &words);
}

/// What a console of 24 lines shows last.
fn last_screen(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(23)..].join("\n")
}

#[test]
fn a_refusal_ends_with_its_blockers() {
    let (root, config) = node();
    let why = "does not match the contents";
    for changed in [1, 30] {
        let mut edited = config.clone();
        let files = &mut edited["spec"]["config"]["storage"]["files"];
        for file in files.as_array_mut().unwrap().iter_mut().rev().take(changed) {
            file["contents"] = json!({"source": "data:,y%0Ay%0A"});
        }
        let given = root.config(&edited);
        for options in [
            &["plan"][..],
            &["apply"],
            &["apply", "--yes"],
            &["apply", "--dry-run"],
        ] {
            let run = root.run(&[options, &[given.path()]].concat()).exits(1);
            let all = run.out() + &run.err();
            let last = flat(&last_screen(&all));
            for words in [why, "Next: oc get mc rendered-worker-", "--edited-config"] {
                assert_eq!(last.matches(words).count(), 1, "{options:?} {words}: {all}");
            }
            assert!(!all.contains("daemon starts"), "{options:?}: {all}");
            assert!(!all.contains("Next: resolve"), "{options:?}: {all}");
        }
        let passed = plan(&root, &edited, &["--edited-config"]).ok().out();
        assert!(!passed.contains("original"), "{passed}");
        let words = "goes Degraded on any difference; accepted (--edited-config)";
        assert!(flat(&passed).contains(words), "{passed}");
    }
}
