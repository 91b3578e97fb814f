//! `render` with objects of the API: forms of input, and refusals.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::scene::{MIRROR, cluster, parts, render, write_parts};
use crate::doctor::etcd_data::{ask, put, start, with_etcd};
use crate::support::{PROGRAM, Run, TestRoot, shared_data};

fn name_of(run: Run) -> String {
    let rendered = run.ok().json();
    rendered["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The name with the mirror, of one list with all parts.
fn name_of_list(root: &TestRoot) -> String {
    write_parts(root, "all.json");
    root.write("mirror.yaml", MIRROR);
    name_of(render(root, &["--parts", "all.json", "mirror.yaml"]))
}

fn text_of(rendered: &Value, path: &str) -> String {
    let files = rendered["spec"]["config"]["storage"]["files"]
        .as_array()
        .unwrap();
    let file = files.iter().find(|file| file["path"] == path).unwrap();
    let source = file["contents"]["source"].as_str().unwrap();
    String::from_utf8(mco_rescue::config::document::data_url(source).unwrap()).unwrap()
}

#[test]
fn a_mirror_becomes_registries_conf_in_the_rendered_config() {
    let root = TestRoot::empty();
    let before = {
        write_parts(&root, "all.json");
        render(&root, &["--parts", "all.json"]).ok().json()
    };
    assert!(text_of(&before, "/etc/containers/registries.conf").starts_with("unqualified"));
    root.write("mirror.yaml", MIRROR);
    let after = render(&root, &["--parts", "all.json", "mirror.yaml"])
        .ok()
        .json();
    let text = text_of(&after, "/etc/containers/registries.conf");
    assert!(
        text.contains("location = \"mirror.example:5000/team\""),
        "{text}"
    );
    assert_ne!(before["metadata"]["name"], after["metadata"]["name"]);
    // The file keeps its place among the others.
    let paths = |config: &Value| -> Vec<String> {
        let files = config["spec"]["config"]["storage"]["files"]
            .as_array()
            .unwrap();
        files
            .iter()
            .map(|file| file["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(paths(&before), paths(&after));
    assert_eq!(
        text_of(&after, "/etc/site"),
        "a\n",
        "nothing of the control plane"
    );
}

#[test]
fn the_generated_parts_alone_are_printed_on_demand() {
    let root = TestRoot::empty();
    write_parts(&root, "all.json");
    root.write("mirror.yaml", MIRROR);
    let list = render(
        &root,
        &["--parts", "all.json", "mirror.yaml", "--generated"],
    )
    .ok()
    .json();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["99-worker-generated-registries"]);
}

#[test]
fn the_form_of_the_parts_does_not_matter() {
    let root = TestRoot::empty();
    let wanted = name_of_list(&root);
    // A must-gather: one file for each object, among many others.
    let below = "gather/registry-example/cluster-scoped-resources";
    for object in parts().into_iter().chain(cluster()) {
        let (kind, name) = (
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap(),
        );
        root.write(&format!("{below}/{kind}s/{name}.yaml"), &object.to_string());
    }
    let rendered = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-0"}, "spec": {}});
    root.write(
        &format!("{below}/MachineConfigs/rendered-worker-0.yaml"),
        &rendered.to_string(),
    );
    root.write(
        &format!("{below}/nodes/n.yaml"),
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n",
    );
    root.write("gather/registry-example/logs/broken.yaml", "\t: [\n");
    root.write("gather/registry-example/event-filter.json", "no JSON");
    fs::write(root.path("gather/raw.json"), [0xff, 0, 1]).unwrap();
    assert_eq!(
        name_of(render(&root, &["--parts", "gather", "mirror.yaml"])),
        wanted
    );

    // Several documents in one file, the mirror among them, without --parts.
    let documents: Vec<String> = parts()
        .iter()
        .chain(&cluster())
        .filter(|object| {
            !object["metadata"]["name"]
                .as_str()
                .unwrap()
                .contains("master")
        })
        .map(|object| object.to_string())
        .collect();
    root.write(
        "all.yaml",
        &(documents.join("\n---\n") + "\n---\n" + MIRROR),
    );
    assert_eq!(name_of(render(&root, &["all.yaml"])), wanted);
}

/// Puts an object as the API server stores it.
fn store(object: &Value) {
    let kinds = match object["kind"].as_str().unwrap() {
        "MachineConfig" => "machineconfigs",
        "Image" => "images",
        "ClusterVersion" => "clusterversions",
        kind => panic!("{kind}"),
    };
    let group = object["apiVersion"]
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    put(
        &format!("/kubernetes.io/{group}/{kinds}/{name}"),
        format!("{object}\n").as_bytes(),
    );
}

#[test]
fn the_parts_are_read_from_a_snapshot_of_the_real_etcd() {
    with_etcd(|| {
        let root = TestRoot::empty();
        let wanted = name_of_list(&root);
        let (etcd, ready, said) = start(&root.path("etcd"), "new", &[]);
        assert!(ready, "{said}");
        // Older revisions, deleted objects, and those that nothing reads.
        for object in parts() {
            let mut old = object.clone();
            old["spec"]["kernelArguments"] = json!(["old"]);
            store(&old);
        }
        let mut gone = parts().remove(3);
        gone["metadata"]["name"] = json!("99-worker-gone");
        store(&gone);
        for number in 0..3000 {
            put(
                &format!("/kubernetes.io/pods/ns/p{number}"),
                &[b'k', b'8', b's', 0, 1, 2],
            );
        }
        for object in parts().iter().chain(&cluster()) {
            store(object);
        }
        let key = "L2t1YmVybmV0ZXMuaW8vbWFjaGluZWNvbmZpZ3VyYXRpb24ub3BlbnNoaWZ0LmlvL21hY2hpbmVjb25maWdzLzk5LXdvcmtlci1nb25l";
        ask("/v3/kv/deleterange", &format!(r#"{{"key":"{key}"}}"#));
        // The member writes its database at the next commit of it.
        ask("/v3/maintenance/hash", "{}");
        drop(etcd);
        let database = root.path("etcd/member/snap/db");
        let parts = database.to_str().unwrap();
        assert_eq!(
            name_of(render(&root, &["--parts", parts, "mirror.yaml"])),
            wanted
        );

        // A snapshot has a digest behind its pages.
        let mut snapshot = fs::read(&database).unwrap();
        snapshot.extend([7; 32]);
        fs::write(root.path("snapshot.db"), &snapshot).unwrap();
        assert_eq!(
            name_of(render(&root, &["--parts", "snapshot.db", "mirror.yaml"])),
            wanted
        );

        // One that is cut off is an error that names it, or lacks nothing that is read.
        fs::write(root.path("cut.db"), &snapshot[..snapshot.len() / 3]).unwrap();
        let run = render(&root, &["--parts", "cut.db", "mirror.yaml"]);
        if run.code() != 0 {
            assert!(run.err().contains("cut.db"), "{}", run.err());
        }
    });
}

#[test]
fn a_config_on_top_of_a_rendered_one_has_the_same_name() {
    let root = TestRoot::empty();
    let wanted = name_of_list(&root);
    let before = render(&root, &["--parts", "all.json"]).ok().out();
    root.write("rendered.json", &before);
    let run = render(&root, &["--base", "rendered.json", "mirror.yaml"]);
    assert_eq!(name_of(run), wanted);
}

#[test]
fn what_cannot_be_used_is_named_with_its_place() {
    let root = TestRoot::empty();
    write_parts(&root, "all.json");
    root.write("mirror.yaml", MIRROR);
    let cases: [(&str, &str, &[&str], &str); 9] = [
        (
            "other.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
            &["--parts", "all.json", "other.yaml"],
            "other.yaml: kind (line 2): \"ConfigMap\" of v1 is not a kind",
        ),
        (
            "nothing.yaml",
            "a: 1\n",
            &["--parts", "all.json", "nothing.yaml"],
            "nothing.yaml: kind: missing",
        ),
        (
            "broken.yaml",
            "kind: [\n",
            &["--parts", "all.json", "broken.yaml"],
            "broken.yaml: not valid YAML",
        ),
        (
            "empty.yaml",
            "\n",
            &["--parts", "all.json", "empty.yaml"],
            "empty.yaml: the document is empty",
        ),
        (
            "configmap.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
            &["--parts", "configmap.yaml", "mirror.yaml"],
            "has no object that makes a MachineConfig",
        ),
        (
            "base.yaml",
            MIRROR,
            &["--base", "base.yaml", "mirror.yaml"],
            "is not a rendered MachineConfig",
        ),
        (
            "source.yaml",
            &MIRROR.replace("quay.example/team", "https://quay.example/team"),
            &["--parts", "all.json", "source.yaml"],
            "invalid format for source \"https://quay.example/team\"",
        ),
        (
            "x.yaml",
            MIRROR,
            &["--parts", "missing", "x.yaml"],
            "missing",
        ),
        (
            "second.yaml",
            &format!(
                "{MIRROR}---\n{}",
                MIRROR.replace("kind: ImageDigest", "kind: ImageDigestt")
            ),
            &["--parts", "all.json", "second.yaml"],
            "(line 12)",
        ),
    ];
    for (name, text, args, wanted) in cases {
        root.write(name, text);
        let before = root.snapshot();
        let run = render(&root, args).exits(1);
        assert!(run.err().contains(wanted), "{name}: {}", run.err());
        assert_eq!(run.out(), "", "{name}");
        assert_eq!(root.snapshot(), before);
    }
}

#[test]
fn parts_without_the_objects_that_made_them_are_refused() {
    let root = TestRoot::empty();
    write_parts(&root, "all.json");
    root.write("mirror.yaml", MIRROR);
    let list = render(
        &root,
        &["--parts", "all.json", "mirror.yaml", "--generated"],
    )
    .ok()
    .json();
    let mut all = parts();
    all.retain(|part| part["metadata"]["name"] != "99-worker-generated-registries");
    all.extend(list["items"].as_array().unwrap().iter().cloned());
    all.extend(cluster());
    root.write(
        "later.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string(),
    );
    root.write(
        "other.yaml",
        &MIRROR
            .replace("name: lab", "name: other")
            .replace("team", "group"),
    );
    // The mirror of before is in the part, and its object is not there: the new part would lose it.
    let run = render(&root, &["--parts", "later.json", "other.yaml"]).exits(1);
    assert!(
        run.err().contains("99-worker-generated-registries"),
        "{}",
        run.err()
    );
    assert!(run.err().contains("imagedigestmirrorsets"), "{}", run.err());
    // With it, both are there.
    let both = render(
        &root,
        &[
            "--parts",
            "later.json",
            "--parts",
            "mirror.yaml",
            "other.yaml",
        ],
    )
    .ok()
    .json();
    let text = text_of(&both, "/etc/containers/registries.conf");
    assert!(
        text.contains("quay.example/team") && text.contains("quay.example/group"),
        "{text}"
    );
}

#[test]
fn a_must_gather_that_cannot_be_read_to_its_end_is_refused() {
    let root = TestRoot::empty();
    write_parts(&root, "gather/all.json");
    root.write("mirror.yaml", MIRROR);
    // An object that is read, and cut off: a part would be missing.
    let part = parts().remove(3).to_string();
    root.write("gather/99-worker-other.json", &part[..part.len() - 9]);
    let run = render(&root, &["--parts", "gather", "mirror.yaml"]).exits(1);
    assert!(
        run.err().contains("gather/99-worker-other.json"),
        "{}",
        run.err()
    );
    assert!(Path::new(&root.path("gather/all.json")).exists());
}

#[test]
fn a_butane_config_goes_in_beside_the_parts() {
    let root = TestRoot::empty();
    write_parts(&root, "all.json");
    let butane = "variant: openshift\nversion: 4.18.0\nmetadata:\n  name: 99-worker-motd\n  labels:\n    \
        machineconfiguration.openshift.io/role: worker\nstorage:\n  files:\n  - path: /etc/motd\n    mode: 0644\n    \
        contents:\n      inline: hello\n";
    root.write("motd.bu", butane);
    let rendered = render(&root, &["--parts", "all.json", "motd.bu"])
        .ok()
        .json();
    assert_eq!(text_of(&rendered, "/etc/motd"), "hello");
    // One that needs files, and one that is wrong, are refused with the way to the report.
    for (name, text) in [
        (
            "local.bu",
            butane.replace("inline: hello", "local: hello.txt"),
        ),
        (
            "wrong.bu",
            butane.replace("path: /etc/motd", "path: etc/motd"),
        ),
    ] {
        root.write(name, &text);
        let run = render(&root, &["--parts", "all.json", name]).exits(1);
        assert!(
            run.err().contains(&format!("mco-rescue butane {name}")),
            "{}",
            run.err()
        );
        assert_eq!(run.out(), "");
    }
}

/// A MachineConfig with this text in a unit.
fn with_text(text: &str) -> String {
    let unit = json!({"name": "a.service", "contents": text});
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "00-worker", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit]}}},
    })
    .to_string()
}

/// The operator reads an object's JSON as YAML before it makes the name.
#[test]
fn names_are_those_of_what_the_operator_reads() {
    let root = TestRoot::empty();
    let name = |text: &str| {
        root.write("part.json", &with_text(text));
        name_of(render(&root, &["part.json"]))
    };
    let plain = name("one two");
    assert_eq!(name("one\u{85}two"), plain);
    assert_eq!(name("one \u{85} two"), plain);
    assert_ne!(name("one\u{feff}two"), name("\u{feff}one two"));
    for code in [0x7f, 0x80, 0x84, 0x86, 0x9f, 0xfffe, 0xffff] {
        let text = format!("x{}", char::from_u32(code).unwrap());
        root.write("part.json", &with_text(&text));
        let run = render(&root, &["part.json"]).exits(1);
        let said = run.err();
        let words = format!("U+{code:04X}");
        assert!(
            said.contains(&words) && said.contains("systemd.units[0].contents"),
            "{said}"
        );
        assert!(
            said.contains("control characters are not allowed"),
            "{said}"
        );
    }
    let Some(pairs) = shared_data("daemon-inputs/rendered-name-hash") else {
        return;
    };
    for pair in ["bom", "nel"] {
        let read = |name: String| fs::read_to_string(pairs.join(name)).unwrap();
        let rendered: Value =
            serde_json::from_str(&read(format!("{pair}-rendered-by-operator.json"))).unwrap();
        root.write("part.json", &read(format!("{pair}.json")));
        let image = |key: &str| rendered["spec"][key].as_str().unwrap().to_owned();
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(root.dir())
            .args(["render", "worker", "part.json"]);
        command.args(["--os-image", &image("osImageURL")]);
        command.args([
            "--extensions-image",
            &image("baseOSExtensionsContainerImage"),
        ]);
        let run = Run::of(command.stdin(Stdio::null()).output().unwrap());
        assert_eq!(
            name_of(run),
            rendered["metadata"]["name"].as_str().unwrap(),
            "{pair}"
        );
    }
}

/// What the controller notes of its release is that of the config below.
#[test]
fn the_release_of_the_base_is_that_of_the_result() {
    let root = TestRoot::empty();
    root.write("part.json", &with_text("[Unit]\n"));
    let release = "machineconfiguration.openshift.io/release-image-version";
    let mut base = render(&root, &["part.json"]).ok().json();
    assert_eq!(base["metadata"]["annotations"][release], Value::Null);
    base["metadata"]["annotations"] = json!({release: "4.19.7"});
    root.write("base.json", &base.to_string());
    let more = with_text("[Unit]\nDescription=more\n").replace("00-worker", "99-worker-more");
    root.write("more.json", &more);
    let result = render(&root, &["--base", "base.json", "more.json"]).ok();
    assert_eq!(result.json()["metadata"]["annotations"][release], "4.19.7");
}
