//! OSImageStream: the image of a pool by the name of its stream.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::scene::{IMAGE, OPERATOR, cluster, part, parts};
use crate::support::{PROGRAM, Run, TestRoot, file};

fn image(name: &str, letter: char) -> String {
    format!(
        "registry.example/{name}@sha256:{}",
        letter.to_string().repeat(64)
    )
}

fn streams(spec: Option<&str>) -> Value {
    let set = |name: &str, letter: char| json!({"name": name, "osImage": image("os", letter), "osExtensionsImage": image("extensions", letter)});
    let mut object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
        "metadata": {"name": "cluster", "annotations": {"machineconfiguration.openshift.io/release-image-version": OPERATOR}},
        "status": {"defaultStream": "rhel-9", "availableStreams": [set("rhel-9", '9'), set("rhel-10", 'b')]}});
    if let Some(spec) = spec {
        object["spec"] = json!({ "defaultStream": spec });
    }
    object
}

fn pool(name: &str, stream: Option<&str>) -> Value {
    let label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
    let mut object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": {label: ""}}, "spec": {"paused": false}});
    if let Some(stream) = stream {
        object["spec"]["osImageStream"] = json!({ "name": stream });
    }
    object
}

fn render_with(pool: &str, objects: &[Value], args: &[&str]) -> Run {
    let root = TestRoot::empty();
    let items: Vec<&Value> = objects.iter().collect();
    root.write(
        "all.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    );
    let mut command = Command::new(PROGRAM);
    command
        .current_dir(root.dir())
        .args(["render", pool, "--parts", "all.json"])
        .args(args);
    Run::of(command.stdin(Stdio::null()).output().unwrap())
}

fn with(more: Vec<Value>) -> Vec<Value> {
    parts().into_iter().chain(cluster()).chain(more).collect()
}

/// The images of a rendered config.
fn images(run: Run) -> (String, String) {
    let rendered = run.ok().json();
    let text = |key: &str| rendered["spec"][key].as_str().unwrap().to_owned();
    assert_eq!(
        rendered["metadata"]["annotations"]["machineconfiguration.openshift.io/os-image-url-overridden"],
        Value::Null
    );
    (text("osImageURL"), text("baseOSExtensionsContainerImage"))
}

#[test]
fn the_stream_of_the_pool_decides_the_images() {
    let of = |letter| (image("os", letter), image("extensions", letter));
    let table = [
        ("worker", None, vec![pool("worker", None)], '9'),
        ("worker", Some("rhel-10"), vec![pool("worker", None)], 'b'),
        ("worker", None, vec![pool("worker", Some("rhel-10"))], 'b'),
        (
            "worker",
            Some("rhel-10"),
            vec![pool("worker", Some("rhel-9"))],
            '9',
        ),
        // A custom pool takes that of the workers, and a pool of the cluster does not.
        (
            "infra",
            None,
            vec![pool("worker", Some("rhel-10")), pool("infra", None)],
            'b',
        ),
        (
            "infra",
            None,
            vec![
                pool("worker", Some("rhel-10")),
                pool("infra", Some("rhel-9")),
            ],
            '9',
        ),
        (
            "master",
            None,
            vec![pool("worker", Some("rhel-10")), pool("master", None)],
            '9',
        ),
    ];
    for (name, default, pools, letter) in table {
        let what = format!("{name} {default:?} {pools:?}");
        let mut objects = with(pools);
        objects.push(streams(default));
        let run = render_with(name, &objects, &[]);
        assert_eq!(run.err(), "", "{what}");
        assert_eq!(images(run), of(letter), "{what}");
    }
}

#[test]
fn an_option_with_another_image_is_named() {
    let objects = with(vec![pool("worker", Some("rhel-10")), streams(None)]);
    let run = render_with("worker", &objects, &["--os-image", IMAGE]);
    let said = run.err();
    assert!(
        said.contains("takes the OS stream rhel-10") && said.contains(IMAGE),
        "{said}"
    );
    assert_eq!(images(run).0, image("os", 'b'));
}

#[test]
fn a_stream_that_is_not_available_is_refused_with_those_that_are() {
    let refused = |objects: Vec<Value>| render_with("worker", &objects, &[]).exits(1).err();
    let said = refused(with(vec![pool("worker", Some("rhel-11")), streams(None)]));
    for part in [
        "spec.osImageStream.name",
        "MachineConfigPool worker",
        "\"rhel-11\" not found",
        "rhel-9, rhel-10",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(with(vec![pool("worker", None), streams(Some("rhel-8"))]));
    for part in [
        "spec.defaultStream",
        "could not find the requested rhel-8 default stream",
        "rhel-9, rhel-10",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let mut unfilled = streams(Some("rhel-9"));
    unfilled["status"] = Value::Null;
    let said = refused(with(vec![pool("worker", None), unfilled]));
    assert!(
        said.contains("oc get osimagestream cluster -o yaml"),
        "{said}"
    );
    let mut imageless = streams(None);
    imageless["status"]["availableStreams"][0]["osImage"] = json!("");
    let said = refused(with(vec![pool("worker", None), imageless]));
    assert!(said.contains("lacks its osImage"), "{said}");
}

#[test]
fn an_image_of_the_admin_and_a_stream_of_the_pool_exclude_each_other() {
    let mut own = part("99-worker-os", "worker", false, &[]);
    own["spec"]["osImageURL"] = json!(IMAGE);
    let objects = with(vec![
        own.clone(),
        pool("worker", Some("rhel-9")),
        streams(None),
    ]);
    let said = render_with("worker", &objects, &[]).exits(1).err();
    assert!(
        said.contains("cannot override MachineConfig osImageURL"),
        "{said}"
    );
    // Without a stream of the pool itself the image of the admin counts.
    let objects = with(vec![own, pool("worker", None), streams(None)]);
    let rendered = render_with("worker", &objects, &[]).ok().json();
    assert_eq!(rendered["spec"]["osImageURL"], IMAGE);
}

#[test]
fn what_is_not_known_of_the_streams_is_named() {
    let said = |objects: Vec<Value>, pool: &str| render_with(pool, &objects, &[]).ok().err();
    let text = said(with(vec![pool("worker", Some("rhel-10"))]), "worker");
    assert!(
        text.contains("give the object OSImageStream cluster"),
        "{text}"
    );
    let text = said(with(vec![streams(None)]), "infra");
    assert!(
        text.contains("the MachineConfigPool infra and worker was not given"),
        "{text}"
    );
    let mut old = streams(None);
    old["metadata"]["annotations"] =
        json!({"machineconfiguration.openshift.io/release-image-version": "0ld"});
    let text = said(with(vec![pool("worker", None), old]), "worker");
    assert!(
        text.contains("ignoring OSImageStream with version 0ld"),
        "{text}"
    );
    let off = json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "status": {"featureGates": [{"version": "4.22.0", "disabled": [{"name": "OSStreams"}]}]}});
    let run = render_with(
        "worker",
        &with(vec![pool("worker", Some("rhel-10")), streams(None), off]),
        &["--os-image", IMAGE],
    );
    assert!(
        run.err().contains("the feature gate OSStreams is off"),
        "{}",
        run.err()
    );
    assert_eq!(images(run).0, IMAGE);
}

#[test]
fn on_top_of_a_rendered_config_its_image_is_replaced() {
    let root = TestRoot::empty();
    let mut base = part(
        "rendered-worker-0",
        "worker",
        true,
        &[file("/etc/site", 0o644, "a\n")],
    );
    base["spec"]["osImageURL"] = json!(IMAGE);
    base["spec"]["baseOSExtensionsContainerImage"] = json!(IMAGE);
    root.write("base.json", &base.to_string());
    let given = [pool("worker", Some("rhel-10")), streams(None)];
    root.write(
        "given.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": given}).to_string(),
    );
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(root.dir())
            .args(["render", "worker", "--base", "base.json"])
            .args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    };
    assert_eq!(
        images(run(&["given.json"])),
        (image("os", 'b'), image("extensions", 'b'))
    );
    base["metadata"]["annotations"] =
        json!({"machineconfiguration.openshift.io/os-image-url-overridden": "true"});
    root.write("base.json", &base.to_string());
    let said = run(&["given.json"]).exits(1).err();
    assert!(
        said.contains("cannot override MachineConfig osImageURL"),
        "{said}"
    );
}
