//! Rendering: the operator's own hashes and results where the captured data is there, every rule of the
//! merge on small configs, and the refusals.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, TestRoot, say, shared_data};
use mco_rescue::config::render::{Pool, name_hash, name_matches, read_inputs, render_pool};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A spec and its hash, computed with the operator's own libraries.
fn vectors() -> Vec<(Value, &'static str)> {
    let image =
        |name: &str, digit: &str| format!("registry.example/{name}@sha256:{}", digit.repeat(64));
    let spec = |image: Value, extensions_image: Value, config: Value, arguments: Value| {
        json!({"osImageURL": image, "baseOSExtensionsContainerImage": extensions_image, "config": config,
            "kernelArguments": arguments, "extensions": [], "fips": false, "kernelType": "default"})
    };
    let unit = json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": [
        {"name": "a.service", "enabled": true, "contents": "[Unit]\nDescription=A\n"}]}});
    let mut whole = spec(
        json!(image("os", "a")),
        json!(image("ext", "b")),
        whole_config(),
        json!(["nosmt", "a=b c=d", "yes", "10", "0x1f"]),
    );
    whole["extensions"] = json!(["usbguard", "kerberos"]);
    whole["fips"] = json!(true);
    whole["kernelType"] = json!("realtime");
    let words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen";
    let styles = json!({"osImageURL": "", "baseOSExtensionsContainerImage": "", "kernelArguments": null,
        "extensions": null, "fips": false, "kernelType": "", "config": styles()});
    vec![
        (
            spec(json!(""), json!(""), json!(null), json!([])),
            "39c4739835d81f77c05d55878e22f230",
        ),
        (
            spec(
                json!(image("os", "a")),
                json!(""),
                unit,
                json!(["nosmt", "10"]),
            ),
            "ca9b28919d6cf2a66e3d294da2b5fd69",
        ),
        (whole, "d75819315979a9860df5edd6aa105d6b"),
        (styles, "ee87e440409a2add6ab4a44df7f469c4"),
        (
            spec(json!(words), json!(""), quoting(), json!([words])),
            "b97208649e7925e20eb64099e3615af1",
        ),
    ]
}

fn whole_config() -> Value {
    json!({"ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDexamplekeyexamplekeyexamplekeyexamplekeyexamplekey core@example host comment"]}]},
        "storage": {"files": [
            {"contents": {"source": "data:,hello%20world"}, "mode": 420, "overwrite": true, "path": "/etc/test-file"},
            {"contents": {"compression": "gzip", "source": "data:;base64,H4sIAAAAAAAC/wAAAP//"}, "mode": 384, "overwrite": true, "path": "/etc/10-b", "user": {"id": 0}}]},
        "systemd": {"units": [
            {"contents": "[Unit]\nDescription=A < b & c\n\n[Service]\nExecStart=/usr/bin/true\n", "enabled": true, "name": "a.service"},
            {"dropins": [{"contents": "[Service]\nEnvironment=A=1", "name": "10-x.conf"}], "name": "b.service"},
            {"contents": "", "mask": true, "name": "c.service"}]}})
}

fn styles() -> Value {
    let words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";
    json!({"ignition": {"version": "3.5.0"}, "k": [true, 1.5, 1e3, 12345678901234567890u64, "2001-01-01",
        "12:30:45", "~", "null", " lead", "trail ", "tab\there", "a: b", "a #b", "- x", "é ü",
        "line1\nline2 \n", "\nx", "x\n\n", words, format!("\"{words}"), "it's", "", "=", "<<", "\u{2028}",
        "\u{1}", "😀"], "m": {"a10": 1, "a9": 1, "a_b": 1, "aB": 1, "ab": 1, "A": 1, "a.b": 1, "1": 1,
        "10": 1, "2": 1, "a-b": 1}})
}

fn quoting() -> Value {
    json!({"a": "tab\there one two three four five six seven eight nine ten eleven twelve thirteen fourteen  fifteen sixteen",
        "b": "x\ty\nz", "c": "cr\r\nlf", "d": "\u{7f}", "e": "café \u{2029}", "f": "0b11", "g": "0o17",
        "h": "1_000", "i": "+.inf", "j": "2001-1-1 1:2:3", "k": "-", "l": "?x", "m": "a:", "n": "%x",
        "o": "@", "p": "....", "q": "---", "r": "no", "s": "O", "t": "0x", "u": "1e3", "v": ".5",
        "w": "1.", "x": "1:2", "y1": "y", "z": "NaN"})
}

#[test]
fn the_hash_is_the_operators() {
    for (spec, hash) in vectors() {
        assert_eq!(name_hash(&spec).unwrap(), hash, "{spec}");
    }
}

fn files_in(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|ext| ext == extension))
        .collect();
    files.sort();
    files
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn names_of_real_rendered_configs_are_recomputed() {
    let Some(dir) = shared_data("rendered") else {
        return;
    };
    let files = files_in(&dir, "json");
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(name_matches(&text), Some(true), "{}", path.display());
    }
    say(&format!(
        "{} names of rendered configs recomputed",
        files.len()
    ));
    assert!(!files.is_empty());
}

#[test]
fn names_of_the_examples_are_recomputed() {
    for name in ["rendered-worker.yaml", "rendered-worker-next.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("examples")
            .join(name);
        let config =
            mco_rescue::config::document::parse_document(std::fs::read(path).unwrap(), name)
                .unwrap();
        assert_eq!(name_matches(&config.record), Some(true), "{name}");
    }
}

/// Renders the files of one directory; nothing when one of them is of Ignition spec 2.
fn rendered_from(dir: &Path, wanted: &Value) -> Value {
    let files = files_in(dir, "yaml");
    let texts: Vec<String> = files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let inputs = files
        .iter()
        .zip(&texts)
        .map(|(path, text)| read_inputs(text.as_bytes(), &path.display().to_string()));
    let inputs: Result<Vec<_>, _> = inputs.collect();
    let inputs = inputs.unwrap().into_iter().flatten().collect();
    let text = |pointer: &str| Some(wanted.pointer(pointer)?.as_str()?.to_owned());
    let pool = Pool {
        name: text("/metadata/ownerReferences/0/name").unwrap(),
        os_image: text("/spec/osImageURL"),
        extensions_image: text("/spec/baseOSExtensionsContainerImage"),
        controller_version: None,
    };
    render_pool(inputs, &pool).unwrap()
}

#[test]
fn real_pools_render_as_the_operator_rendered_them() {
    let Some(dir) = shared_data("machineconfigs") else {
        return;
    };
    let mut equal = 0;
    for pool in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        if !pool.path().is_dir() {
            continue;
        }
        let name = format!("rendered/{}.json", pool.file_name().display());
        let wanted = json_of(&shared_data(&name).unwrap());
        let rendered = rendered_from(&pool.path(), &wanted);
        assert_eq!(rendered["spec"], wanted["spec"], "{name}");
        assert_eq!(
            rendered["metadata"]["name"], wanted["metadata"]["name"],
            "{name}"
        );
        equal += 1;
    }
    say(&format!(
        "{equal} pools render as the operator rendered them"
    ));
    assert!(equal > 0);
}

/// A MachineConfig with a role; `spec` may leave everything out.
fn config(name: &str, role: &str, spec: Value) -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "spec": spec,
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}}})
}

fn worker(name: &str, spec: Value) -> Value {
    config(name, "worker", spec)
}

/// A worker config with these files, in spec 3.`minor`.
fn with_files(name: &str, minor: u64, files: Value) -> Value {
    let version = format!("3.{minor}.0");
    worker(
        name,
        json!({"config": {"ignition": {"version": version}, "storage": {"files": files}}}),
    )
}

fn try_render(configs: &[Value], pool: &Pool) -> Result<Value, String> {
    let mut inputs = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let config = config.to_string();
        inputs.extend(
            read_inputs(config.as_bytes(), &format!("file {index}")).map_err(|e| e.to_string())?,
        );
    }
    render_pool(inputs, pool).map_err(|e| e.to_string())
}

fn pool(name: &str) -> Pool {
    Pool {
        name: name.to_owned(),
        os_image: Some("registry.example/os@sha256:0".to_owned()),
        extensions_image: Some("registry.example/ext@sha256:0".to_owned()),
        controller_version: None,
    }
}

fn rendered(configs: &[Value]) -> Value {
    try_render(configs, &pool("worker")).unwrap()
}

fn refusal(configs: &[Value]) -> String {
    try_render(configs, &pool("worker")).unwrap_err()
}

#[test]
fn a_config_without_anything_renders_to_all_seven_keys() {
    let wanted = json!({"osImageURL": "registry.example/os@sha256:0",
        "baseOSExtensionsContainerImage": "registry.example/ext@sha256:0",
        "config": {"ignition": {"version": "3.5.0"}},
        "kernelArguments": [], "extensions": [], "fips": false, "kernelType": "default"});
    let rendered = rendered(&[worker("a", json!({}))]);
    assert_eq!(rendered["spec"], wanted);
    let owner = json!([{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "name": "worker", "uid": "", "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(rendered["metadata"]["ownerReferences"], owner);
    assert_eq!(rendered["metadata"].get("labels"), None);
    assert_eq!(rendered["metadata"].get("annotations"), None);
    assert_eq!(name_matches(&rendered.to_string()), Some(true));
}

#[test]
fn workers_come_first_then_the_pool_each_by_name() {
    let argument =
        |role: &str, name: &str| config(name, role, json!({"kernelArguments": [name, "same"]}));
    let configs = [
        argument("infra", "00-infra"),
        argument("worker", "99-worker"),
        argument("worker", "01-worker"),
        argument(
            "infra",
            "00-Infra".to_lowercase().replace("00", "0").as_str(),
        ),
    ];
    let rendered = try_render(&configs, &pool("infra")).unwrap();
    let wanted = json!([
        "01-worker",
        "same",
        "99-worker",
        "same",
        "0-infra",
        "same",
        "00-infra",
        "same"
    ]);
    assert_eq!(rendered["spec"]["kernelArguments"], wanted);
    let name = rendered["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("rendered-infra-"), "{name}");
    let backwards: Vec<_> = configs.iter().rev().cloned().collect();
    assert_eq!(try_render(&backwards, &pool("infra")).unwrap(), rendered);
}

#[test]
fn extensions_are_concatenated_and_fips_is_any() {
    let rendered = rendered(&[
        worker("a", json!({"extensions": ["usbguard"], "fips": true})),
        worker(
            "b",
            json!({"extensions": ["usbguard", "kerberos"], "fips": false}),
        ),
    ]);
    assert_eq!(
        rendered["spec"]["extensions"],
        json!(["usbguard", "usbguard", "kerberos"])
    );
    assert_eq!(rendered["spec"]["fips"], json!(true));
}

#[test]
fn the_last_special_kernel_wins() {
    let kernel = |types: &[&str]| {
        let configs = types.iter().enumerate();
        let configs: Vec<_> = configs
            .map(|(i, kernel)| worker(&format!("{i}"), json!({"kernelType": kernel})))
            .collect();
        rendered(&configs)["spec"]["kernelType"].clone()
    };
    assert_eq!(kernel(&["realtime", "default", ""]), "realtime");
    assert_eq!(kernel(&["realtime", "64k-pages"]), "64k-pages");
    assert_eq!(kernel(&["", "default"]), "default");
}

#[test]
fn the_last_image_that_a_person_asked_for_wins() {
    let mut generated = worker("c", json!({"osImageURL": "registry.example/c"}));
    generated["metadata"]["annotations"] =
        json!({"machineconfiguration.openshift.io/generated-by-controller-version": "1"});
    let configs = [
        worker(
            "a",
            json!({"osImageURL": "registry.example/a", "baseOSExtensionsContainerImage": "registry.example/x"}),
        ),
        worker("b", json!({"osImageURL": "registry.example/b"})),
        generated,
        worker("d", json!({"osImageURL": ""})),
    ];
    let rendered = rendered(&configs);
    assert_eq!(rendered["spec"]["osImageURL"], "registry.example/b");
    assert_eq!(
        rendered["spec"]["baseOSExtensionsContainerImage"],
        "registry.example/x"
    );
    let annotation = "machineconfiguration.openshift.io/os-image-url-overridden";
    assert_eq!(rendered["metadata"]["annotations"][annotation], "true");
}

#[test]
fn the_controller_version_becomes_an_annotation() {
    let pool = Pool {
        controller_version: Some("abc".to_owned()),
        ..pool("worker")
    };
    let rendered = try_render(&[worker("a", json!({}))], &pool).unwrap();
    let wanted =
        json!({"machineconfiguration.openshift.io/generated-by-controller-version": "abc"});
    assert_eq!(rendered["metadata"]["annotations"], wanted);
}

const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";

fn generated(name: &str, version: &str) -> Value {
    let mut config = worker(name, json!({}));
    config["metadata"]["annotations"] = json!({GENERATED_BY: version});
    config
}

#[test]
fn configs_of_two_controller_versions_are_refused_as_the_operator_refuses_them() {
    let both = [generated("00-a", "v1"), generated("01-b", "v2")];
    let words = "ignoring MC 01-b generated by older version v2 (my version: v1)";
    assert!(refusal(&both).contains(words), "{}", refusal(&both));
    // An empty version is not a version, and a person's config has none.
    let same = [
        generated("00-a", "v1"),
        generated("01-b", ""),
        worker("99-c", json!({})),
    ];
    assert_eq!(
        rendered(&same)["metadata"]["annotations"][GENERATED_BY],
        "v1"
    );
    let pool = Pool {
        controller_version: Some("v3".to_owned()),
        ..pool("worker")
    };
    let error = try_render(&same, &pool).unwrap_err();
    let words = "ignoring MC 00-a generated by older version v1 (my version: v3)";
    assert!(error.contains(words), "{error}");
}

#[test]
fn create_of_a_user_of_spec_2_is_left_out_as_the_operator_leaves_it_out() {
    let config = |user: Value| {
        let config = json!({"ignition": {"version": "2.2.0"}, "passwd": {"users": [user]}});
        rendered(&[worker("a", json!({"config": config}))])
    };
    let with = config(json!({"name": "core", "sshAuthorizedKeys": ["k"], "create": {"uid": 7}}));
    let without = config(json!({"name": "core", "sshAuthorizedKeys": ["k"]}));
    assert_eq!(with, without);
}

#[test]
fn a_later_plain_file_is_not_unpacked() {
    let packed = "data:;base64,H4sIAAAAAAACA0sEAEO+t+gBAAAA";
    let files = |contents: Value| json!([{"path": "/etc/a", "mode": 384, "contents": contents}]);
    let rendered = rendered(&[
        with_files(
            "a",
            5,
            files(json!({"source": packed, "compression": "gzip"})),
        ),
        with_files(
            "b",
            5,
            json!([{"path": "/etc/a", "contents": {"source": "data:,b"}}]),
        ),
    ]);
    let wanted = json!([{"path": "/etc/a", "mode": 384, "overwrite": true, "contents": {"source": "data:,b"}}]);
    assert_eq!(rendered["spec"]["config"]["storage"]["files"], wanted);
}

#[test]
fn overwrite_defaults_to_true() {
    let files = json!([
        {"path": "/etc/a", "contents": {"source": "data:,a"}},
        {"path": "/etc/b", "overwrite": false, "contents": {"source": "data:,b"}},
    ]);
    let rendered = rendered(&[with_files("a", 0, files)]);
    let overwrite =
        |i: usize| rendered["spec"]["config"]["storage"]["files"][i]["overwrite"].clone();
    assert_eq!((overwrite(0), overwrite(1)), (json!(true), json!(false)));
}

#[test]
fn every_version_becomes_3_5_without_what_it_did_not_have() {
    for minor in 0..=5 {
        let version = format!("3.{minor}.0");
        let spec = json!({"config": {"ignition": {"version": version},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa A"], "shouldExist": true}]}}});
        let rendered = rendered(&[worker("a", spec)]);
        assert_eq!(
            rendered["spec"]["config"]["ignition"],
            json!({"version": "3.5.0"})
        );
        let user = &rendered["spec"]["config"]["passwd"]["users"][0];
        assert_eq!(user.get("shouldExist").is_some(), minor >= 2, "{minor}");
    }
}

#[test]
fn absent_and_null_configs_are_passed_over() {
    let files = json!([{"path": "/etc/a", "contents": {"source": "data:,a", "compression": ""}}]);
    let one = with_files("b", 5, files);
    let all = [
        worker("a", json!({})),
        one.clone(),
        worker("c", json!({"config": null})),
    ];
    assert_eq!(rendered(&all), rendered(&[worker("a", json!({})), one]));
    let merged = &rendered(&all)["spec"]["config"]["storage"]["files"][0];
    assert_eq!(merged["contents"], json!({"source": "data:,a"}));
}

#[test]
fn lists_and_yaml_are_read() {
    let (a, b) = (
        worker("a", json!({"kernelArguments": ["a"]})),
        worker("b", json!({"fips": true})),
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [b, a]});
    let yaml = "kind: List\nitems:\n- kind: MachineConfig\n  metadata: {name: a, labels: {machineconfiguration.openshift.io/role: worker}}\n  \
                spec: {kernelArguments: [a]}\n- kind: MachineConfig\n  metadata: {name: b, labels: {machineconfiguration.openshift.io/role: worker}}\n  \
                spec: {fips: yes}\n";
    let from_yaml = render_pool(
        read_inputs(yaml.as_bytes(), "list.yaml").unwrap(),
        &pool("worker"),
    )
    .unwrap();
    assert_eq!(rendered(&[list]), rendered(&[a, b]));
    assert_eq!(
        from_yaml["spec"],
        rendered(&[json!({"items": [
        worker("a", json!({"kernelArguments": ["a"]})), worker("b", json!({"fips": true}))]})])["spec"]
    );
}

#[test]
fn refusals_say_which_file_and_where() {
    let ignition = |version: &str| json!({"config": {"ignition": {"version": version}}});
    let mut no_role = worker("a", json!({}));
    no_role["metadata"]["labels"] = json!({"other": "x"});
    let mut no_labels = worker("a", json!({}));
    no_labels["metadata"]["labels"] = json!(null);
    let ok = || worker("a", json!({}));
    let file = json!([{"path": "relative"}]);
    let table = [
        (
            vec![no_role],
            "file 0: metadata.labels: the label machineconfiguration.openshift.io/role is missing",
        ),
        (vec![no_labels], "file 0: metadata.labels: missing"),
        (
            vec![ok(), worker("a", json!({}))],
            "file 1: metadata.name: \"a\" is the name of a config in file 0, too",
        ),
        (
            vec![worker("b", ignition("3.6.0"))],
            "unknown version \"3.6.0\"; the operator reads 3.0.0 to 3.5.0",
        ),
        (
            vec![worker("b", ignition("3.9.0"))],
            "unsupported Ignition version",
        ),
        (
            vec![worker("b", json!({"kernelType": "odd"}))],
            "kernelType=odd is invalid",
        ),
        (
            vec![json!({"items": [ok(), with_files("b", 5, file)]})],
            "file 0: items[1].spec.config.storage.files[0].path",
        ),
        (
            vec![json!({"items": []})],
            "file 0: items: a list without a MachineConfig",
        ),
        (
            vec![json!({"kind": "Pod", "metadata": ok()["metadata"], "spec": {}})],
            "kind is \"Pod\"",
        ),
        (
            vec![json!({"ignition": {"version": "3.5.0"}})],
            "file 0: spec: missing",
        ),
    ];
    for (configs, wanted) in table {
        let refusal = refusal(&configs);
        assert!(refusal.contains(wanted), "{wanted}\n{refusal}");
    }
}

#[test]
fn kernel_devel_goes_with_the_default_kernel_only() {
    let devel = || worker("a", json!({"extensions": ["kernel-devel"]}));
    rendered(&[devel()]);
    let refusal = refusal(&[devel(), worker("b", json!({"kernelType": "realtime"}))]);
    let wanted = "the rendered config of pool worker: spec.extensions: \
                  installing kernel-devel extension is not supported with kernelType: realtime";
    assert_eq!(refusal, wanted);
}

#[test]
fn a_merge_of_valid_configs_can_be_invalid() {
    let unit = json!({"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": [
        {"name": "a.service", "contents": "[Service]\nExecStart=/bin/true\n"}]}}});
    let path = "/etc/systemd/system/a.service";
    let file = with_files(
        "b",
        5,
        json!([{"path": path, "contents": {"source": "data:,b"}}]),
    );
    let refusal = refusal(&[worker("a", unit), file]);
    assert!(
        refusal.starts_with("the rendered config of pool worker: spec.config"),
        "{refusal}"
    );
}

#[test]
fn more_than_the_operator_takes_is_refused() {
    let source = format!("data:,{}", "a".repeat(1_600_000));
    let refusal = refusal(&[with_files(
        "a",
        5,
        json!([{"path": "/etc/a", "contents": {"source": source}}]),
    )]);
    assert!(
        refusal.contains("the operator refuses more than 1572864"),
        "{refusal}"
    );
}

#[test]
fn broken_texts_are_refused_with_their_place() {
    let table: [(&[u8], &str); 7] = [
        (b"", "x: the document is empty"),
        (b" \n", "x: the document is empty"),
        (b"\xff", "x: line 1: not UTF-8 text; get it again: oc get mc NAME"),
        (b"{", "x: not a MachineConfig: EOF"),
        (b"a: [\n", "x: not valid YAML: line 2"),
        (b"a: 1\n---\nb: 2\n", "more than one YAML document"),
        (
            b"metadata:\n  name: a\n  labels: {machineconfiguration.openshift.io/role: worker}\nspec:\n  kernelType: odd\n",
            "x: spec.kernelType (line 5): kernelType=odd is invalid",
        ),
    ];
    for (bytes, wanted) in table {
        let refusal = read_inputs(bytes, "x").unwrap_err().to_string();
        assert!(refusal.contains(wanted), "{wanted}\n{refusal}");
    }
}

#[test]
fn the_printed_config_can_be_planned_and_applied() {
    let root = TestRoot::new();
    let a = root.config(&with_files(
        "a",
        4,
        json!([{"path": "/etc/a", "contents": {"source": "data:,a"}}]),
    ));
    let b = root.config(&worker("b", json!({})));
    let images = [
        "--os-image",
        "registry.example/os@sha256:0",
        "--extensions-image",
        "registry.example/ext@sha256:0",
    ];
    let run = root
        .run(&[&["render", "worker", b.path(), a.path()], images.as_slice()].concat())
        .ok();
    assert_eq!(run.err(), "");
    let as_json = root.run(
        &[
            &["--output", "json", "render", "worker", a.path(), b.path()],
            images.as_slice(),
        ]
        .concat(),
    );
    assert_eq!(as_json.out(), run.out());
    root.apply(&run.json());
    assert_eq!(root.read("etc/a"), "a");
}

#[test]
fn standard_input_is_read_and_missing_images_are_reported() {
    let mut child = Command::new(PROGRAM)
        .args(["render", "worker", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let config = config("a", "master", json!({})).to_string();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), config.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    assert!(
        err.contains("warning: spec.osImageURL is empty")
            || err.contains("warn: spec.osImageURL is empty"),
        "{err}"
    );
    assert!(
        err.contains("a has the role master; is it one of pool worker?"),
        "{err}"
    );
}

#[test]
fn a_config_of_a_role_that_the_pool_does_not_take_is_warned_of() {
    // The pool, the role of the config, and whether that is worth a warning.
    let rows = [
        ("master", "worker", true),
        ("arbiter", "worker", true),
        ("arbiter", "master", true),
        ("arbiter", "arbiter", false),
        ("infra", "worker", false),
        ("worker", "infra", true),
    ];
    let root = TestRoot::new();
    for (pool, role, warned) in rows {
        let file = root.config(&config("a", role, json!({})));
        let run = root.run(&["render", pool, file.path()]).ok();
        let words = format!("a has the role {role}; is it one of pool {pool}?");
        assert_eq!(
            run.err().contains(&words),
            warned,
            "{pool} {role}: {}",
            run.err()
        );
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let run = TestRoot::new()
        .run(&["render", "worker", "/nonexistent"])
        .exits(1);
    assert_eq!(
        run.err(),
        "error: reading /nonexistent: no such file or directory\n"
    );
}

/// JSON of any shape with keys that mean something.
fn odd() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(1)),
        Just(json!("/etc/a")),
        Just(json!("3.5.0")),
        Just(json!(true))
    ];
    leaf.prop_recursive(6, 60, 5, |inner| {
        let key = prop::sample::select(vec![
            "ignition",
            "version",
            "storage",
            "files",
            "path",
            "contents",
            "compression",
            "systemd",
            "units",
            "name",
            "passwd",
            "users",
            "kernelArguments",
            "config",
        ]);
        let map = prop::collection::vec((key, inner.clone()), 0..5);
        let map = map.prop_map(|pairs| {
            pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()
        });
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            map.prop_map(Value::Object)
        ]
    })
}

proptest! {
    #[test]
    fn odd_configs_never_panic(mut one in odd(), two in odd()) {
        if let Some(config) = one.as_object_mut() {
            config.insert("ignition".to_owned(), json!({"version": "3.5.0"}));
        }
        let configs = [worker("a", json!({"config": one})), worker("b", json!({"config": two})), one.clone()];
        for some in [&configs[..1], &configs[1..2], &configs[2..], &configs[..]] {
            let _ = try_render(some, &pool("worker"));
        }
        let _ = name_hash(&configs[0]);
        let _ = name_hash(&configs[0]["spec"]);
    }

    #[test]
    fn odd_texts_never_panic(text in any::<String>()) {
        let _ = read_inputs(text.as_bytes(), "x");
        let _ = name_matches(&text);
    }

    #[test]
    fn the_order_of_keys_does_not_matter(config in odd()) {
        let spec = json!({"config": {"a": config}, "fips": true});
        let mut backwards = json!({"fips": true});
        backwards["config"] = serde_json::from_str(&reversed(&spec["config"]).to_string()).unwrap();
        prop_assert_eq!(name_hash(&spec), name_hash(&backwards));
    }
}

fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(reversed).collect(),
        Value::Object(map) => {
            let pairs = map
                .iter()
                .rev()
                .map(|(key, value)| (key.clone(), reversed(value)));
            Value::Object(pairs.collect())
        }
        other => other.clone(),
    }
}
