//! `change` on a node: a mirror, limits and objects become a new config, and wait for the API.

use std::process::Command;

use serde_json::{Value, json};

use super::scene::MIRROR;
use crate::support::mounts::{mount, with_mounts};
use crate::support::{
    Lacks, Run, TestRoot, file, flat, is_root, kubelet_unit, machine_config, name_anew, skip,
};

const REGISTRIES_CONF: &str = "etc/containers/registries.conf";
const TEMPLATE: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";
const SOURCE: &str = "quay.example/team";
const AT: &str = "mirror.example:5000/team";

/// A small kubelet.conf, in the form of the controller.
const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  x509:
    clientCAFile: /etc/kubernetes/kubelet-ca.crt
cgroupDriver: systemd
featureGates:
  SigstoreImageVerification: false
kind: KubeletConfiguration
maxPods: 250
";

/// A file in the form in which the templates write it.
fn of_template(path: &str, text: &str) -> Value {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ if b"-_.!~*'()".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let text: String = text.bytes().map(escape).collect();
    json!({"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:,{text}")}})
}

/// A node in a rendered config of the workers.
fn node() -> TestRoot {
    let root = TestRoot::new();
    let mut config = machine_config(
        "rendered-worker-0",
        json!({
            "storage": {"files": [
                of_template("/etc/containers/registries.conf", TEMPLATE),
                file("/etc/kubernetes/kubelet.conf", 0o644, KUBELET),
            ]},
            "systemd": {"units": [kubelet_unit()]},
        }),
    );
    name_anew(&mut config);
    root.apply(&config).ok();
    root
}

fn recorded(root: &TestRoot) -> String {
    let record: Value =
        serde_json::from_str(&root.read("etc/machine-config-daemon/currentconfig")).unwrap();
    record["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Runs `change`, and returns the name of the new config.
fn change(root: &TestRoot, args: &[&str]) -> String {
    let args: Vec<&str> = ["change"]
        .iter()
        .chain(args)
        .chain(&["-o", "json"])
        .copied()
        .collect();
    let document = root.run(&args).ok().json();
    assert_eq!(document["schema"], "mco-rescue/change/v1");
    assert_eq!(document["kept"], true, "{document}");
    document["config"].as_str().unwrap().to_owned()
}

fn apply(root: &TestRoot, config: &str) {
    root.run(&["apply", "--yes", &format!("cached:{config}")])
        .ok();
    assert_eq!(recorded(root), config);
}

fn objects(root: &TestRoot) -> Run {
    root.run(&["status", "--for-cluster", "--changes"])
}

#[test]
fn a_mirror_is_added_applied_and_removed_again() {
    let root = node();
    let (first, before) = (recorded(&root), root.read(REGISTRIES_CONF));
    let said = root.run(&["change", "mirror", SOURCE, AT]).ok().out();
    for wanted in [
        "kind: ImageDigestMirrorSet",
        "If that is forgotten",
        "apply cached:rendered-worker-",
        // The plan.
        "+    location = \"mirror.example:5000/team\"",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(
        said.lines()
            .take_while(|line| !line.starts_with("Node"))
            .filter(|line| !line.starts_with("  mco-rescue"))
            .all(|line| line.chars().count() <= 80),
        "{said}"
    );
    assert_eq!(
        root.read(REGISTRIES_CONF),
        before,
        "nothing but the cache is changed"
    );
    let with = change(&root, &["mirror", SOURCE, AT]);
    assert_ne!(with, first);
    apply(&root, &with);
    let text = root.read(REGISTRIES_CONF);
    assert!(text.contains(&format!("location = \"{AT}\"")), "{text}");

    let without = change(&root, &["mirror", "--remove", SOURCE, AT]);
    apply(&root, &without);
    assert_eq!(without, first, "the config of before");
    assert_eq!(root.read(REGISTRIES_CONF), before);
}

#[test]
fn the_same_change_again_changes_nothing() {
    let root = node();
    let with = change(&root, &["mirror", "--tags", SOURCE, AT]);
    apply(&root, &with);
    let before = root.everything();
    let document = root
        .run(&["change", "mirror", "--tags", SOURCE, AT, "-o", "json"])
        .ok()
        .json();
    assert_eq!(
        (&document["unchanged"], &document["kept"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(document["config"], with.as_str());
    assert_eq!(root.everything(), before);
}

#[test]
fn a_dry_run_keeps_nothing() {
    let root = node();
    let before = root.everything();
    let document = root
        .run(&["change", "kubelet", "maxPods=300", "-n", "-o", "json"])
        .ok()
        .json();
    assert_eq!(document["kept"], false);
    assert_eq!(
        document["objects"][0]["spec"]["kubeletConfig"]["maxPods"],
        300
    );
    assert_eq!(root.everything(), before);
}

#[test]
fn changes_add_up_and_the_cluster_gets_the_objects_of_all() {
    let root = node();
    objects(&root).exits(1);
    let limits = change(&root, &["kubelet", "maxPods=300"]);
    // Not applied yet: the objects are there, with a warning.
    let run = objects(&root).ok();
    assert!(
        run.err().contains("is not the recorded config"),
        "{}",
        run.err()
    );
    apply(&root, &limits);
    assert!(
        root.read("etc/kubernetes/kubelet.conf")
            .contains("maxPods: 300\n")
    );
    root.write("mirror.yaml", MIRROR);
    let file = root.path("mirror.yaml");
    let both = change(&root, &["with", file.to_str().unwrap()]);
    apply(&root, &both);
    assert!(
        root.read("etc/kubernetes/kubelet.conf")
            .contains("maxPods: 300\n")
    );
    assert!(root.read(REGISTRIES_CONF).contains(AT));
    let said = objects(&root).ok().out();
    for kind in ["kind: KubeletConfig\n", "kind: ImageDigestMirrorSet\n"] {
        assert!(said.contains(kind), "{kind}: {said}");
    }
    // They read back as they were given.
    let again = node();
    again.write("changes.yaml", &said);
    let file = again.path("changes.yaml");
    let config = change(&again, &["with", file.to_str().unwrap()]);
    assert_eq!(config, both);

    let steps = root
        .run(&["status", "--for-cluster", "-o", "json"])
        .ok()
        .json();
    let first = &steps["steps"][0];
    assert_eq!(first["commands"][1], "oc apply -f changes.yaml");
    assert_eq!(steps["change"]["objects"].as_array().unwrap().len(), 2);
    // The steps for a config of the cluster have none of it.
    let other = root.run(&[
        "status",
        "--for-cluster",
        "--desired",
        "rendered-worker-1",
        "-o",
        "json",
    ]);
    assert_eq!(other.ok().json()["change"], Value::Null);
}

#[test]
fn a_later_limit_keeps_the_earlier_one_in_the_object() {
    let root = node();
    let first = change(&root, &["kubelet", "maxPods=300", "systemReserved.pid=100"]);
    apply(&root, &first);
    let second = change(&root, &["kubelet", "podPidsLimit=8192", "maxPods=400"]);
    apply(&root, &second);
    let text = root.read("etc/kubernetes/kubelet.conf");
    for wanted in ["maxPods: 400\n", "podPidsLimit: 8192\n", "  pid: \"100\"\n"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let said = objects(&root).ok().out();
    for wanted in ["maxPods: 400\n", "podPidsLimit: 8192\n", "pid: \"100\"\n"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(said.matches("kind: KubeletConfig").count(), 1);
}

#[test]
fn a_machine_config_of_an_admin_goes_on_top() {
    let root = node();
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "99-worker-site", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file("/etc/site.conf", 0o600, "a\n")]}}},
    });
    let given = root.config(&config);
    let name = change(&root, &["with", given.path()]);
    apply(&root, &name);
    assert_eq!(root.read("etc/site.conf"), "a\n");
    assert_eq!(root.mode("etc/site.conf") & 0o777, 0o600);
}

#[test]
fn what_cannot_be_changed_is_said_and_nothing_is_kept() {
    let root = node();
    root.write("bad.yaml", "kind: KubeletConfig\napiVersion: machineconfiguration.openshift.io/v1\nmetadata:\n  name: a\n\
        spec:\n  machineConfigPoolSelector:\n    matchLabels:\n      pools.operator.machineconfiguration.openshift.io/worker: \"\"\n\
        \u{20}\u{20}logLevel: 11\n");
    let bad = root.path("bad.yaml");
    root.write(
        "master.yaml",
        "kind: MachineConfig\napiVersion: machineconfiguration.openshift.io/v1\nmetadata:\n  name: 99-master-a\n  labels:\n    \
         machineconfiguration.openshift.io/role: master\nspec: {}\n",
    );
    let master = root.path("master.yaml");
    let before = root.everything();
    let cases: [(&[&str], &str); 9] = [
        (&["mirror", "https://quay.example/team", AT], "has a scheme"),
        (&["mirror", SOURCE, "mirror.example/team:v1"], "has a tag"),
        (&["mirror", SOURCE, SOURCE], "is the source itself"),
        (&["mirror", "--remove", SOURCE, AT], "not a mirror of"),
        (&["kubelet", "maxpods"], "maxpods"),
        (&["kubelet", "maxPodz=3"], "maxPods"),
        (&["runtime", "pidsLimit=3"], "invalid PidsLimit 3"),
        (
            &["with", master.to_str().unwrap()],
            "is for master, and this node belongs to worker",
        ),
        (
            &["with", bad.to_str().unwrap()],
            "KubeletConfig's LogLevel is not valid [0,10]: 11",
        ),
    ];
    for (args, wanted) in cases {
        let all: Vec<&str> = ["change"].iter().chain(args).copied().collect();
        let run = root.run(&all).exits(1);
        assert!(flat(&run.err()).contains(wanted), "{args:?}: {}", run.err());
        assert_eq!(root.everything(), before, "{args:?}");
    }
}

#[test]
fn a_root_without_a_record_is_told_what_to_give() {
    let root = TestRoot::new();
    let before = root.everything();
    let run = root.run(&["change", "kubelet", "maxPods=300"]).exits(1);
    assert!(
        run.err().contains("--from") || run.err().contains("config"),
        "{}",
        run.err()
    );
    assert_eq!(root.everything(), before);
}

#[test]
fn without_its_config_in_the_cache_no_change_is_noted() {
    let root = node();
    root.write("var/lib/mco-rescue/cache", "in the way\n");
    let before = root.everything();
    let run = root.run(&["change", "mirror", SOURCE, AT]).exits(1);
    assert!(run.err().contains("cache"), "{}", run.err());
    assert_eq!(root.everything(), before);
}

#[test]
fn a_full_disk_keeps_neither_config_nor_objects() {
    if !is_root() {
        return skip(Lacks::Root, "mounts need root");
    }
    with_mounts(|| {
        let root = node();
        root.run(&["cache", "list"]).ok();
        let state = root.path("var/lib/mco-rescue");
        let copy = tempfile::tempdir().unwrap();
        let cp = |from: &std::path::Path, to: &std::path::Path| {
            let status = Command::new("cp")
                .arg("-a")
                .arg(from.join("."))
                .arg(to)
                .status();
            assert!(status.unwrap().success());
        };
        cp(&state, copy.path());
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=1m",
            "tmpfs",
            state.to_str().unwrap(),
        ]);
        cp(copy.path(), &state);
        let full = Command::new("sh")
            .arg("-c")
            .arg("cat /dev/zero > full 2>/dev/null; true")
            .current_dir(&state)
            .status();
        assert!(full.unwrap().success());
        let before = root.everything();
        let run = root.run(&["change", "mirror", SOURCE, AT]).exits(1);
        assert!(run.err().contains("no space left"), "{}", run.err());
        assert_eq!(root.everything(), before);
        // Once there is room, the same command does it.
        std::fs::remove_file(state.join("full")).unwrap();
        change(&root, &["mirror", SOURCE, AT]);
    });
}

/// A node whose config has this registries.conf, in the form of one of those who write it.
fn node_with(form: &str, text: &str) -> TestRoot {
    let root = TestRoot::new();
    let path = "/etc/containers/registries.conf";
    let mut conf = match form {
        "escaped" => file(path, 0o644, text),
        _ => of_template(path, text),
    };
    if form == "controller" {
        let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
        conf["contents"]["source"] = format!("data:text/plain;charset=utf-8;base64,{data}").into();
    }
    let mut config = machine_config(
        "rendered-worker-0",
        json!({"storage": {"files": [conf]}, "systemd": {"units": [kubelet_unit()]}}),
    );
    name_anew(&mut config);
    root.apply(&config).ok();
    root
}

#[test]
fn one_mirror_or_all_are_removed_whoever_wrote_the_file() {
    const SECOND: &str = "second.example:5000/team";
    for tags in [false, true] {
        let kind: &[&str] = if tags { &["--tags"] } else { &[] };
        let made = node();
        let add = [&["mirror", SOURCE, AT, SECOND], kind].concat();
        apply(&made, &change(&made, &add));
        let text = made.read(REGISTRIES_CONF);
        for form in ["controller", "template", "escaped"] {
            for gone in [&[AT][..], &[SECOND], &[AT, SECOND]] {
                let root = node_with(form, &text);
                let remove = [&["mirror", "--remove", SOURCE], gone, kind].concat();
                let config = change(&root, &remove);
                apply(&root, &config);
                let left = root.read(REGISTRIES_CONF);
                for mirror in [AT, SECOND] {
                    let has = left.contains(mirror);
                    assert_eq!(has, !gone.contains(&mirror), "{form} {gone:?}: {left}");
                }
                assert_eq!(left == TEMPLATE, gone.len() == 2, "{form}: {left}");
            }
        }
    }
}

/// Keeps the recorded config in the cache.
fn keep_record(root: &TestRoot) {
    let record = root.path("etc/machine-config-daemon/currentconfig");
    root.run(&["fetch", record.to_str().unwrap()]).ok();
}

/// The file that the cluster renders of the objects, over the config of the first change.
fn rendered_file(base: &str, said: &str, path: &str) -> String {
    let files = TestRoot::new();
    files.write("base.json", base);
    files.write("changes.yaml", said);
    let paths = ["base.json", "changes.yaml"].map(|name| files.path(name));
    let [base, changes] = paths.each_ref().map(|path| path.to_str().unwrap());
    let rendered = files.run(&["render", "worker", "--base", base, changes]);
    files.write("rendered.json", &rendered.ok().out());
    let rendered = files.path("rendered.json");
    let shown = ["show", rendered.to_str().unwrap(), path];
    files.run(&shown).ok().out()
}

#[test]
fn a_kept_file_goes_with_a_later_change_of_its_mirrors() {
    const PATH: &str = "/etc/containers/registries.conf";
    const NEW: &str = "new.example:5000/team";
    let made = node();
    apply(&made, &change(&made, &["mirror", SOURCE, AT]));
    let text = made.read(REGISTRIES_CONF);

    let root = node();
    let base = root.read("etc/machine-config-daemon/currentconfig");
    keep_record(&root);
    root.write(REGISTRIES_CONF, &text);
    let kept = root.path("kept.yaml");
    let kept = kept.to_str().unwrap();
    root.run(&["keep", PATH, "--to", kept]).ok();
    apply(&root, &change(&root, &["with", kept]));
    for (args, has, lacks) in [
        (&["mirror", SOURCE, NEW][..], &[AT, NEW][..], &[][..]),
        (&["mirror", "--remove", SOURCE, AT], &[NEW], &[AT]),
        (&["mirror", "--remove", SOURCE, NEW], &[], &[AT, NEW]),
    ] {
        apply(&root, &change(&root, args));
        let now = root.read(REGISTRIES_CONF);
        let run = objects(&root).ok();
        assert!(
            !run.err().contains("these objects"),
            "{args:?}: {}",
            run.err()
        );
        assert_eq!(rendered_file(&base, &run.out(), PATH), now, "{args:?}");
        assert!(has.iter().all(|mirror| now.contains(mirror)), "{args:?}");
        assert!(!lacks.iter().any(|mirror| now.contains(mirror)), "{args:?}");
    }
}

#[test]
fn objects_that_lose_a_part_of_the_config_say_so() {
    let made = node();
    apply(&made, &change(&made, &["mirror", SOURCE, AT]));
    // The mirror is the cluster's, so that no object here takes it away.
    let root = node_with("controller", &made.read(REGISTRIES_CONF));
    keep_record(&root);
    apply(&root, &change(&root, &["mirror", "--remove", SOURCE, AT]));
    let run = objects(&root).ok();
    for said in [run.out(), run.err()] {
        let said = said.replace("# ", "");
        assert!(
            flat(&said).contains("Not carried by these objects: /etc/containers/registries.conf"),
            "{said}"
        );
    }
}
