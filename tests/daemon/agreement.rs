//! Where the daemon's judgement is easily missed: what it cannot decode, what it lets pass, which entries it compares,
//! and the very words of it (docs/develop/agreement.md: Transitions, Files, Validation).

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::support::{
    Lacks, RECORD, Run, TestRoot, file, kubelet_unit, machine_config, say, shared_data, skip,
};
use base64::Engine;
use serde_json::{Value, json};

const OLD: &str = "rendered-worker-old";
const NEW: &str = "rendered-worker-new";

/// A node that is recorded to be in a config with this Ignition part, without anything of it on disk.
fn recorded(ignition: Value) -> TestRoot {
    let root = TestRoot::new();
    root.write(RECORD, &machine_config(OLD, ignition).to_string());
    root
}

/// Another spec version than that of [`machine_config`].
fn spec_2(mut ignition: Value) -> Value {
    ignition["ignition"] = json!({"version": "2.2.0"});
    ignition
}

fn plan(root: &TestRoot, config: &Value, options: &[&str]) -> Value {
    let config = root.config(config);
    let fixed = [
        "plan",
        config.path(),
        "--allow-removals",
        "--output",
        "json",
    ];
    let run = root.run(&[&fixed[..], options].concat());
    assert!(!run.out().is_empty(), "{}", run.err());
    run.json()
}

/// The messages of a list of notices about one subject.
fn about<'a>(list: &'a Value, subject: &str) -> Vec<&'a str> {
    let all = list.as_array().unwrap().iter();
    let mine = all.filter(|one| one["subject"] == subject);
    mine.map(|one| one["message"].as_str().unwrap()).collect()
}

fn blockers(plan: &Value) -> &Value {
    &plan["blockers"]
}

fn verdict(root: &TestRoot) -> Value {
    root.run(&["verify", "--output", "json"]).json()["verdict"].clone()
}

fn degraded(inner: &str) -> Value {
    json!(format!(
        "unexpected on-disk state validating against {OLD}: {inner}"
    ))
}

/// What the daemon does with the node as it is, when it is to stay in what it is recorded to be in.
fn start(root: &TestRoot, desired: &str) -> Value {
    let run = root.run(&["status", "--desired", desired, "--output", "json"]);
    run.json()["daemon"]["branches"][0]["prediction"].clone()
}

fn applied(root: &TestRoot, config: &Value, options: &[&str]) -> Run {
    let config = root.config(config);
    let fixed = ["apply", "--yes", config.path(), "--allow-removals"];
    root.run(&[&fixed[..], options].concat())
}

// ---- storage sections that a cluster lets change -------------------------------------------------------------------

const FIELD: &str = "spec.irreconcilableValidationOverrides.storage";

fn cluster(storage: Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster", "generation": 3},
        "spec": {"irreconcilableValidationOverrides": {"storage": storage}},
        "status": {"observedGeneration": 2},
    })
}

/// Key, entry, the name of the override.
fn sections() -> [(&'static str, Value, &'static str); 3] {
    [
        ("disks", json!({"device": "/dev/sdb"}), "Disks"),
        (
            "filesystems",
            json!({"device": "/dev/sdb", "format": "xfs", "path": "/var/x"}),
            "FileSystems",
        ),
        (
            "raid",
            json!({"name": "md0", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}),
            "Raid",
        ),
    ]
}

#[test]
fn a_changed_storage_section_passes_where_the_given_cluster_lets_it_pass() {
    for (key, entry, name) in sections() {
        let plain = json!({"storage": {"files": [file("/etc/a", 0o644, "a")]},
            "systemd": {"units": [kubelet_unit()]}});
        let mut more = plain.clone();
        more["storage"][key] = json!([entry]);
        let subject = format!("spec.config.storage.{key}");
        for (before, after) in [(&plain, &more), (&more, &plain)] {
            let new = machine_config(NEW, after.clone());
            let root = recorded(before.clone());
            // Nothing is known of the cluster: refused, with what would let it pass.
            let unknown = plan(&root, &new, &[]);
            let said = about(blockers(&unknown), &subject).join("\n");
            for words in [
                &format!("ignition {key} section contains changes") as &str,
                FIELD,
                name,
                "not known here",
                "--policy",
            ] {
                assert!(said.contains(words), "{key}: {words}: {said}");
            }
            // Known, and it does not let it pass.
            let others: Vec<_> = sections().map(|(.., other)| other).into();
            let others: Vec<_> = others.into_iter().filter(|other| *other != name).collect();
            let other = root.config(&cluster(json!(others)));
            let refused = plan(&root, &new, &["--policy", other.path()]);
            let said = about(blockers(&refused), &subject).join("\n");
            assert!(
                said.contains(&format!("has no {name} in {FIELD}")),
                "{said}"
            );
            assert!(!said.contains("not known here"), "{said}");
            // It lets it pass.
            let allows = root.config(&cluster(json!([name])));
            let passes = plan(&root, &new, &["--policy", allows.path()]);
            assert_eq!(*blockers(&passes), json!([]), "{key}");
            let said = about(&passes["notices"], &subject).join("\n");
            assert!(
                said.contains(name) && said.contains("it is not applied"),
                "{said}"
            );
            let run = applied(&root, &new, &["--policy", allows.path()]);
            run.ok();
            assert_eq!(root.read("etc/a"), "a");
        }
    }
}

#[test]
fn what_fetch_keeps_of_the_cluster_counts_in_plan_apply_and_forecast() {
    for (key, entry, name) in sections() {
        let mut ignition = json!({"systemd": {"units": [kubelet_unit()]}, "storage": {}});
        let root = TestRoot::new();
        let old = machine_config(OLD, ignition.clone());
        root.apply(&old);
        ignition["storage"][key] = json!([entry]);
        let new = root.config(&machine_config(NEW, ignition));
        root.run(&["fetch", new.path()]).ok();
        let refused = start(&root, NEW);
        assert_eq!(refused["state"], "unreconcilable", "{refused}");
        let because = refused["because"].to_string();
        assert!(
            because.contains(&format!("unless {name} is in {FIELD}")),
            "{because}"
        );
        // Where the cluster is known not to let it pass, there is no doubt.
        let none = root.config(&cluster(json!([])));
        root.run(&["fetch", new.path(), "--policy", none.path()])
            .ok();
        let refused = start(&root, NEW);
        assert_eq!(refused["state"], "unreconcilable", "{refused}");
        assert!(
            !refused["because"].to_string().contains("unless"),
            "{refused}"
        );
        let allows = root.config(&cluster(json!([name])));
        let said = root
            .run(&["fetch", new.path(), "--policy", allows.path()])
            .ok()
            .out();
        assert!(said.contains(&format!("allowed changes: {name}")), "{said}");
        let passes = start(&root, NEW);
        assert_eq!(passes["state"], "done", "{passes}");
        assert_eq!(passes["update"]["to"], NEW, "{passes}");
        let cached = format!("cached:{NEW}");
        let plan = root.run(&["plan", &cached, "--output", "json"]).json();
        assert_eq!(plan["blockers"], json!([]), "{plan}");
        root.run(&["apply", "--yes", &cached]).ok();
        root.run(&["verify"]).ok();
    }
}

#[test]
fn the_captured_pair_passes_with_the_object_that_allows_it() {
    let Some(dir) = shared_data("pairs/11-irreconcilable-disk-allowed") else {
        return;
    };
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(dir.join(name)).unwrap()).unwrap()
    };
    let root = TestRoot::new();
    root.write(RECORD, &read("old.json").to_string());
    let expected = read("expected-actions.json");
    assert_eq!(expected["reconcilable"], true);
    let allows = root.config(&cluster(expected["overrides"]["storage"].clone()));
    let options = ["--files-only", "--edited-config"];
    let refused = plan(&root, &read("new.json"), &options);
    let said = about(blockers(&refused), "spec.config.storage.disks").join("\n");
    let reason = "ignition disks section contains changes";
    assert!(said.contains(reason), "{said}");
    let options = [&options[..], &["--policy", allows.path()]].concat();
    let passes = plan(&root, &read("new.json"), &options);
    assert_eq!(*blockers(&passes), json!([]));
    say("the captured pair passes as the daemon let it pass");
}

// ---- contents that the daemon cannot decode ------------------------------------------------------------------------

const UNDECODABLE: &str = "could not decode file content string: missing data prefix";

#[test]
fn an_empty_source_is_refused_and_degraded_in_the_daemons_words() {
    let spec_3 = json!({"storage": {"files": [
        file("/etc/before", 0o644, "b"),
        {"path": "/etc/a", "overwrite": true, "contents": {"source": ""}},
        file("/etc/behind", 0o644, "b")]}});
    let spec_2 = spec_2(json!({"storage": {"files": [
        {"filesystem": "root", "path": "/etc/behind", "contents": {"source": "data:,b"}},
        {"filesystem": "root", "path": "/etc/a", "mode": 420},
        {"filesystem": "root", "path": "/etc/before", "contents": {"source": "data:,b"}}]}}));
    for with_empty in [spec_3, spec_2] {
        let new = machine_config(NEW, with_empty.clone());
        let root = recorded(json!({}));
        let subject = "spec.config.storage.files[1].contents.source";
        let refused = plan(&root, &new, &["--not-rendered", "--files-only"]);
        let said = about(blockers(&refused), subject).join("\n");
        let words = format!("could not decode file \"/etc/a\": {UNDECODABLE}");
        assert!(said.contains(&words) && said.contains("data:,"), "{said}");
        let options = ["--not-rendered", "--files-only", "--ignore-unsupported"];
        let run = applied(&root, &new, &options).exits(3);
        let verdict = format!(
            "unexpected on-disk state validating against {NEW}: couldn't decode file \"/etc/a\": {UNDECODABLE}"
        );
        assert!(run.out().contains(&verdict), "{}", run.out());
        assert_eq!(root.read("etc/a"), "");
        assert_eq!(start(&root, NEW)["error"], json!(verdict));
        // A node that is in such a config already can be repaired; what comes before it is said before it.
        root.remove("etc/before");
        let missing =
            "could not stat file \"/etc/before\": lstat /etc/before: no such file or directory";
        let first = root.run(&["verify", "--output", "json"]).json()["verdict"].clone();
        assert!(first.as_str().unwrap().ends_with(missing), "{first}");
        root.remove("etc/behind");
        root.run(&["apply", "--yes", "--not-rendered", "--files-only"])
            .exits(3);
        assert_eq!(
            (root.read("etc/before"), root.read("etc/behind")),
            ("b".into(), "b".into())
        );
    }
}

#[test]
fn a_record_with_fragments_or_remote_contents_is_degraded_in_its_place() {
    let appends = "found an append section when checking files. Append is not supported";
    let remote = format!("couldn't decode file \"/etc/r\": {UNDECODABLE}");
    let good = file("/etc/good", 0o644, "g");
    let missing = "could not stat file \"/etc/good\": lstat /etc/good: no such file or directory";
    let appending = json!({"path": "/etc/p", "append": [{"source": "data:,a"}]});
    let fetched = json!({"path": "/etc/r", "contents": {"source": "https://example.com/r"}});
    let exempt = json!({"path": "/etc/kubernetes/kubelet-ca.crt", "contents": {"source": ""}});
    for (files, wanted) in [
        (json!([appending, good]), appends),
        (json!([fetched, good]), remote.as_str()),
        (json!([good, fetched]), missing),
        (json!([good, appending]), missing),
        // The daemon writes that one by itself.
        (json!([exempt, good]), missing),
    ] {
        let root = recorded(json!({"storage": {"files": files}}));
        assert_eq!(verdict(&root), degraded(wanted), "{files}");
        assert_eq!(start(&root, OLD)["error"], degraded(wanted), "{files}");
    }
}

#[test]
fn a_data_url_is_read_as_the_daemon_reads_it() {
    // Each is refused by the parser of the daemon and of Ignition.
    for source in [
        "data:text/plain; charset=utf-8,x",
        "data:text/plain ;charset=utf-8,x",
        "data:text/plain;charset=utf 8,x",
        "data:text/pl ain,x",
        "data: text/plain,x",
    ] {
        let root = TestRoot::new();
        let entry = json!({"path": "/etc/a", "contents": {"source": source}});
        let config = machine_config(NEW, json!({"storage": {"files": [entry]}}));
        let config = root.config(&config);
        let run = root.run(&["plan", config.path()]).exits(1);
        assert!(
            run.err().contains("malformed data URL"),
            "{source}: {}{}",
            run.out(),
            run.err()
        );
        assert!(
            run.err().contains("storage.files[0].contents.source"),
            "{source}"
        );
    }
}

/// The daemon unpacks no Ignition in a MachineConfig; what to do is said.
#[test]
fn a_packed_config_is_refused_with_the_way_to_unpack_it() {
    let ignition = br#"{"ignition": {"version": "3.5.0"}}"#;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(ignition).unwrap();
    let gzip = gzip.finish().unwrap();
    let base64 = base64::engine::general_purpose::STANDARD.encode(&gzip);
    let mut config = machine_config(NEW, json!({}));
    config["spec"]["config"] = json!(base64);
    let labels = json!({"machineconfiguration.openshift.io/role": "worker"});
    config["metadata"]["labels"] = labels;
    let root = TestRoot::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (bytes, arguments, words) in [
        (
            config.to_string().into_bytes(),
            &["plan"][..],
            "spec.config: is a text",
        ),
        (
            config.to_string().into_bytes(),
            &["render", "worker"],
            "spec.config: is a text",
        ),
        (
            format!("{base64}\n").into_bytes(),
            &["plan"],
            "base64 -d | gunzip",
        ),
        (gzip, &["plan"], "is packed with gzip"),
    ] {
        fs::write(path, bytes).unwrap();
        let run = root.run(&[arguments, &[path]].concat()).exits(1);
        assert!(
            run.err().contains(words) && run.err().contains("gunzip"),
            "{}",
            run.err()
        );
    }
}

#[test]
fn a_config_without_the_kubeconfig_it_had_is_refused_as_the_daemons_update_fails() {
    let path = "/etc/kubernetes/kubeconfig";
    let had = json!({"storage": {"files": [file(path, 0o600, "kind: Config\n")]},
        "systemd": {"units": [kubelet_unit()]}});
    let has_not = machine_config(NEW, json!({"systemd": {"units": [kubelet_unit()]}}));
    let root = TestRoot::new();
    root.apply(&machine_config(OLD, had));
    let words = format!("cannot stat {path}: stat {path}: no such file or directory");
    let refused = plan(&root, &has_not, &[]);
    let said = about(blockers(&refused), path).join("\n");
    assert!(said.contains(&words), "{said}");
    // The daemon's own way there ends the same.
    let config = root.config(&has_not);
    root.run(&["fetch", config.path()]).ok();
    let told = start(&root, NEW);
    assert_eq!(
        (&told["state"], &told["error"]),
        (&json!("degraded"), &json!(words))
    );
    applied(&root, &has_not, &["--ignore-unsupported"]).ok();
    assert_eq!(root.read(path), "kind: Config\n");
}

#[test]
fn the_daemons_update_to_what_it_cannot_decode_is_predicted_to_fail() {
    let root = TestRoot::new();
    let unit = json!({"units": [kubelet_unit()]});
    root.apply(&machine_config(OLD, json!({"systemd": unit})));
    let entry = json!({"path": "/etc/a", "contents": {"source": ""}});
    let new = json!({"systemd": unit, "storage": {"files": [entry]}});
    let config = root.config(&machine_config(NEW, new));
    root.run(&["fetch", config.path()]).ok();
    let told = start(&root, NEW);
    let words = format!("could not decode file \"/etc/a\": {UNDECODABLE}");
    assert_eq!(
        (&told["state"], &told["error"]),
        (&json!("degraded"), &json!(words))
    );
}

// ---- units ---------------------------------------------------------------------------------------------------------

#[test]
fn of_a_unit_named_twice_every_entry_is_compared() {
    let unit =
        |n: u8| json!({"name": "a.service", "contents": format!("[Service]\nExecStart=/{n}\n")});
    let content = "content mismatch for file \"/etc/systemd/system/a.service\"";
    let twice = |first: Value, last: Value| {
        spec_2(json!({"systemd": {"units": [first, {"name": "b.service"}, last]}}))
    };
    let root = TestRoot::new();
    let options = ["--not-rendered", "--files-only"];
    let run = applied(
        &root,
        &machine_config(OLD, twice(unit(1), unit(2))),
        &options,
    )
    .exits(3);
    assert!(run.out().contains(content), "{}", run.out());
    assert_eq!(
        root.read("etc/systemd/system/a.service"),
        "[Service]\nExecStart=/2\n"
    );
    assert_eq!(verdict(&root), degraded(content));
    assert_eq!(start(&root, OLD)["error"], degraded(content));
    // The same twice is not a contradiction.
    let root = TestRoot::new();
    applied(
        &root,
        &machine_config(OLD, twice(unit(1), unit(1))),
        &options,
    )
    .ok();
    assert_eq!(verdict(&root), Value::Null);
    // Drop-ins of the first entry are taken, and compared with it.
    let mut with_dropin = unit(1);
    with_dropin["dropins"] = json!([{"name": "10.conf", "contents": "[Service]\nNice=1\n"}]);
    let root = TestRoot::new();
    applied(
        &root,
        &machine_config(OLD, twice(with_dropin, unit(1))),
        &options,
    )
    .ok();
    assert_eq!(verdict(&root), Value::Null);
    assert_eq!(
        root.read("etc/systemd/system/a.service.d/10.conf"),
        "[Service]\nNice=1\n"
    );
}

/// The operator and the daemon read every entry before they drop one.
#[test]
fn an_entry_of_spec_2_that_a_later_one_hides_is_checked_all_the_same() {
    let plain = |name: &str| json!({"name": name, "contents": "[Service]\nExecStart=/1\n"});
    let with = |key: &str, value: Value| {
        let mut unit = plain("a.service");
        unit[key] = value;
        json!({"systemd": {"units": [unit, plain("a.service")]}})
    };
    let entry = |more: Value| {
        let mut file =
            json!({"filesystem": "root", "path": "/etc/a", "contents": {"source": "data:,x"}});
        for (key, value) in more.as_object().unwrap() {
            file[key] = value.clone();
        }
        file
    };
    let files = |more: Value| json!({"storage": {"files": [entry(more), entry(json!({}))]}});
    for (ignition, place) in [
        (
            with("contents", json!("[Service\nExecStart=/1\n")),
            "systemd.units[0].contents",
        ),
        (
            json!({"systemd": {"units": [plain("a.conf"), plain("a.conf")]}}),
            "systemd.units[0].name",
        ),
        (
            with("dropins", json!([{"name": "a.txt", "contents": ""}])),
            "systemd.units[0].dropins[0].name",
        ),
        (files(json!({"mode": 0o1777})), "storage.files[0].mode"),
        (files(json!({"mode": 0o10000})), "storage.files[0].mode"),
        (
            files(json!({"contents": {"source": "data:;base64,?"}})),
            "storage.files[0].contents.source",
        ),
    ] {
        let root = TestRoot::new();
        let config = root.config(&machine_config(OLD, spec_2(ignition.clone())));
        let run = root
            .run(&["plan", "--not-rendered", config.path()])
            .exits(1);
        let said = run.out() + &run.err();
        assert!(
            said.contains(&format!("spec.config.{place}")),
            "{ignition}: {said}"
        );
    }
    // Nothing of it is wrong.
    let root = TestRoot::new();
    let config = root.config(&machine_config(OLD, spec_2(files(json!({"mode": 0o755})))));
    root.run(&["plan", "--not-rendered", config.path()]).ok();
}

/// It applies the clean path, and looks for the one that is written.
#[test]
fn a_path_of_spec_2_is_looked_for_as_it_is_written() {
    let config = |path: &str| {
        let file = json!({"filesystem": "root", "path": path, "contents": {"source": "data:,x"}});
        machine_config(OLD, spec_2(json!({"storage": {"files": [file]}})))
    };
    let options = ["--not-rendered", "--files-only"];
    let missing =
        "could not stat file \"/etc/none/../a\": lstat /etc/none/../a: no such file or directory";
    let root = TestRoot::new();
    applied(&root, &config("/etc/none/../a"), &options).exits(3);
    assert_eq!(root.read("etc/a"), "x");
    assert_eq!(verdict(&root), degraded(missing));
    assert_eq!(start(&root, OLD)["error"], degraded(missing));
    root.write("etc/none", "");
    let no_directory = missing.replace("no such file or directory", "not a directory");
    assert_eq!(verdict(&root), degraded(&no_directory));
    root.remove("etc/none");
    fs::create_dir(root.path("etc/none")).unwrap();
    assert_eq!(verdict(&root), Value::Null);
    for path in ["/etc/none/../a", "/etc//./a"] {
        let root = TestRoot::new();
        fs::create_dir_all(root.path("etc/none")).unwrap();
        applied(&root, &config(path), &options).ok();
        root.write("etc/a", "y");
        let content = format!("content mismatch for file \"{path}\"");
        assert_eq!(verdict(&root), degraded(&content));
    }
}

#[test]
fn findings_on_spec_2_come_in_the_daemons_order() {
    let entry =
        |path: &str| json!({"filesystem": "root", "path": path, "contents": {"source": "data:,x"}});
    let unit = |name: &str| {
        json!({"name": name, "contents": "[Service]\nExecStart=/x\n",
        "dropins": [{"name": "20.conf", "contents": "[Service]\nNice=1\n"}, {"name": "10.conf", "contents": "[Service]\nNice=2\n"}]})
    };
    let ignition = spec_2(
        json!({"storage": {"files": [entry("/etc/1"), entry("/etc/2")]},
        "systemd": {"units": [unit("a.service"), unit("b.service")]}}),
    );
    let root = recorded(ignition);
    let found = root.run(&["verify", "--output", "json"]).json();
    let drifts = found["drifts"].as_array().unwrap().iter();
    let seen = drifts.filter(|drift| drift["daemon"].is_string());
    let subjects: Vec<_> = seen
        .map(|drift| drift["subject"].as_str().unwrap())
        .collect();
    // Files from the last to the first, units from the first to the last, the drop-ins of each before it.
    let units = "/etc/systemd/system";
    let wanted = [
        "/etc/2".to_owned(),
        "/etc/1".to_owned(),
        format!("{units}/a.service.d/20.conf"),
        format!("{units}/a.service.d/10.conf"),
        format!("{units}/a.service"),
        format!("{units}/b.service.d/20.conf"),
        format!("{units}/b.service.d/10.conf"),
        format!("{units}/b.service"),
    ];
    assert_eq!(subjects, wanted);
}

/// Text that systemd takes for no text keeps `systemctl` from switching a unit, wherever it stands but in a comment.
#[test]
fn a_unit_with_a_drop_in_that_is_not_text_cannot_be_switched() {
    let install = "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n";
    let path = "etc/systemd/system/a.service.d/50.conf";
    let unit = json!({"name": "a.service", "enabled": true, "contents": install});
    let config = machine_config(NEW, json!({"systemd": {"units": [unit, kubelet_unit()]}}));
    for (text, good) in [
        (&b"[Service]\nEnvironment=A=\xff\n"[..], false),
        (b"[Service]\nEnvironment=A=\xef\xbf\xbf\n", false),
        (b"[Service]\nEnvironment=A=\xef\xbf\xbd\n", true),
        (b"# \xff\n[Service]\nEnvironment=A=b\n", true),
    ] {
        let root = recorded(json!({}));
        root.write(path, "");
        fs::write(root.path(path), text).unwrap();
        let plan = plan(&root, &config, &["--files-only"]);
        let said = about(blockers(&plan), "spec.config.systemd.units").join("\n");
        assert_eq!(said.is_empty(), good, "{text:?}: {said}");
        assert!(
            good || said.contains("a.service") && said.contains("UTF-8"),
            "{said}"
        );
        // The real one agrees, where it is there.
        fs::write(root.path("etc/systemd/system/a.service"), install).unwrap();
        let mut real = Command::new("systemctl");
        real.arg(format!("--root={}", root.dir().display()));
        match real.args(["is-enabled", "a.service"]).output() {
            Ok(real) => assert_eq!(real.stdout == b"disabled\n", good, "{text:?}: {real:?}"),
            Err(error) => skip(Lacks::Setup, &format!("systemctl was not asked: {error}")),
        }
    }
}

// ---- users ---------------------------------------------------------------------------------------------------------

const NO_KEYS: &str = "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be \
                       core and have 1 or more sshKeys";
const OTHER_FIELDS: &str =
    "invalid passwd change(s): SSH keys and password hash are not reconcilable";

#[test]
fn users_are_refused_as_the_daemon_refuses_them() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGRlbW8 a";
    let core = |more: Value| {
        let mut user = json!({"name": "core"});
        user.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        user
    };
    let keyed = core(json!({"sshAuthorizedKeys": [key]}));
    // Old, new, the daemon's reason.
    let table = [
        (keyed.clone(), core(json!({})), Some(NO_KEYS)),
        (
            keyed.clone(),
            core(json!({"sshAuthorizedKeys": []})),
            Some(NO_KEYS),
        ),
        // A hash that is given counts, though it is empty.
        (keyed.clone(), core(json!({"passwordHash": ""})), None),
        (
            keyed.clone(),
            core(json!({"passwordHash": "", "sshAuthorizedKeys": [key]})),
            None,
        ),
        // Without keys and hash, other fields are not looked at.
        (
            keyed.clone(),
            core(json!({"shell": "/bin/sh"})),
            Some(NO_KEYS),
        ),
        (
            keyed.clone(),
            core(json!({"passwordHash": "", "shell": "/bin/sh"})),
            Some(OTHER_FIELDS),
        ),
        (
            keyed.clone(),
            core(json!({"sshAuthorizedKeys": [key], "groups": []})),
            Some(OTHER_FIELDS),
        ),
        // An empty list is not the same as none.
        (
            core(json!({})),
            core(json!({"sshAuthorizedKeys": []})),
            Some(NO_KEYS),
        ),
        (
            core(json!({"sshAuthorizedKeys": []})),
            core(json!({})),
            Some(NO_KEYS),
        ),
        (core(json!({})), core(json!({})), None),
        (
            core(json!({"sshAuthorizedKeys": []})),
            core(json!({"sshAuthorizedKeys": []})),
            None,
        ),
        (
            core(json!({"sshAuthorizedKeys": null})),
            core(json!({})),
            None,
        ),
    ];
    for (old, new, reason) in table {
        let config = |name: &str, user: &Value| {
            machine_config(
                name,
                json!({"passwd": {"users": [user]}, "systemd": {"units": [kubelet_unit()]}}),
            )
        };
        let root = TestRoot::new();
        root.write(RECORD, &config(OLD, &old).to_string());
        let plan = plan(&root, &config(NEW, &new), &["--allow-lockout"]);
        let said = about(blockers(&plan), "spec.config.passwd.users");
        let sentence = |reason: &str| {
            format!(
                "the daemon would refuse this step: configs {OLD}, {NEW} are not reconcilable: new machineconfig \
                 \"{OLD}\" is not reconcilable against \"{NEW}\": {reason}."
            )
        };
        let wanted: Vec<String> = reason.map(sentence).into_iter().collect();
        assert_eq!(said, wanted, "{old} -> {new}");
    }
}

#[test]
fn an_empty_list_beside_an_absent_one_is_a_change_to_the_daemon() {
    // Section, key, whether the daemon refuses, and in which words.
    for (key, entry, refused) in [
        (
            "disks",
            json!([]),
            Some("ignition disks section contains changes"),
        ),
        (
            "filesystems",
            json!([]),
            Some("ignition filesystems section contains changes"),
        ),
        (
            "raid",
            json!([]),
            Some("ignition raid section contains changes"),
        ),
        (
            "directories",
            json!([]),
            Some("ignition directories section contains changes"),
        ),
        ("links", json!([]), None),
        ("files", json!([]), None),
    ] {
        let with = json!({"storage": {key: entry}, "systemd": {"units": [kubelet_unit()]}});
        let without = json!({"systemd": {"units": [kubelet_unit()]}});
        for (old, new) in [(&with, &without), (&without, &with)] {
            let root = recorded(old.clone());
            let plan = plan(&root, &machine_config(NEW, new.clone()), &[]);
            let said = blockers(&plan).to_string();
            match refused {
                Some(words) => assert!(said.contains(words), "{key}: {said}"),
                None => assert_eq!(said, "[]", "{key}"),
            }
        }
    }
}

// ---- words ---------------------------------------------------------------------------------------------------------

#[test]
fn paths_are_quoted_as_go_quotes_them() {
    let unit = r"var-my\x2ddata.mount";
    let text = "[Mount]\nWhat=/dev/sdb\n";
    let config = machine_config(
        OLD,
        json!({
        "storage": {"files": [file("/etc/a\tb\"é", 0o644, "x")]},
        "systemd": {"units": [{"name": unit, "contents": text,
            "dropins": [{"name": "10.conf", "contents": text}]}]}}),
    );
    let root = TestRoot::new();
    applied(&root, &config, &["--not-rendered", "--files-only"]).ok();
    let directory = "/etc/systemd/system";
    let dropin = format!("{directory}/{unit}.d/10.conf");
    let quoted = r#""/etc/systemd/system/var-my\\x2ddata.mount"#;
    root.write(&dropin, "other");
    assert_eq!(
        verdict(&root),
        degraded(&format!("content mismatch for file {quoted}.d/10.conf\""))
    );
    root.write(&dropin, text);
    root.remove(&format!("{directory}/{unit}"));
    let missing = format!(
        "could not stat file {quoted}\": lstat {directory}/{unit}: no such file or directory"
    );
    assert_eq!(verdict(&root), degraded(&missing));
    root.write("/etc/a\tb\"é", "other");
    assert_eq!(
        verdict(&root),
        degraded(r#"content mismatch for file "/etc/a\tb\"é""#)
    );
    assert_eq!(start(&root, OLD)["error"], verdict(&root));
}

#[test]
fn a_mode_of_zero_is_written_as_the_daemon_writes_it() {
    let config = machine_config(
        OLD,
        json!({"storage": {"files": [file("/etc/a", 0, "x"), file("/etc/b", 0o644, "x")]}}),
    );
    let root = TestRoot::new();
    applied(&root, &config, &["--not-rendered", "--files-only"]).ok();
    root.chmod("etc/a", 0o644);
    let mode = "expected: ----------/0/0; received: -rw-r--r--/420/0644";
    assert_eq!(
        verdict(&root),
        degraded(&format!("mode mismatch for file: \"/etc/a\"; {mode}"))
    );
    root.chmod("etc/a", 0);
    root.chmod("etc/b", 0);
    let mode = "expected: -rw-r--r--/420/0644; received: ----------/0/0";
    assert_eq!(
        verdict(&root),
        degraded(&format!("mode mismatch for file: \"/etc/b\"; {mode}"))
    );
}
