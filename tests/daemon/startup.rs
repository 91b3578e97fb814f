//! Whole nodes as the daemon found them, where the captured data is there: what `status` says that the daemon will do
//! is what its own code did.

use std::fs;

use crate::support::live::{furnish, run_live};
use crate::support::{
    Lacks, RECORD, TestRoot, file, is_root, machine_config, say, shared_data, skip,
};
use serde_json::{Value, json};

const PREFIX: &str = "machineconfiguration.openshift.io/";

fn load(relative: &str) -> Option<Value> {
    Some(serde_json::from_slice(&fs::read(shared_data(relative)?).unwrap()).unwrap())
}

fn path(relative: &str) -> String {
    shared_data(relative).unwrap().to_str().unwrap().to_owned()
}

/// The case's node in a directory: files, record, operations, what the API said last, what it has.
fn build(case: &Value) -> TestRoot {
    let root = TestRoot::new();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let files = path(&text(&case["filesWrittenFrom"]));
    root.run(&["apply", "--yes", "--files-only", &files]).ok();
    root.remove(RECORD);
    if let Some(record) = case["record"].as_str() {
        root.write(RECORD, &load(record).unwrap().to_string());
    }
    for op in case["ops"].as_array().unwrap() {
        operate(&root, op);
    }
    for config in case["api"].as_array().unwrap() {
        root.run(&["fetch", &path(&text(config))]).ok();
    }
    annotate(&root, &case["annotations"]);
    root
}

/// As `fetch` keeps what the API says.
fn annotate(root: &TestRoot, annotations: &Value) {
    let get = |key: &str| annotations[format!("{PREFIX}{key}")].clone();
    let kept = json!({"version": 1, "node": "node0", "seen": 1_750_000_000,
        "current": get("currentConfig"), "desired": get("desiredConfig"), "state": get("state")});
    root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
}

fn operate(root: &TestRoot, op: &Value) {
    let text = |key: &str| op[key].as_str().unwrap();
    match text("op") {
        "append" => {
            let before = root.read(text("path"));
            fs::write(root.path(text("path")), before + text("text")).unwrap();
        }
        "write" => root.write(text("path"), text("text")),
        "unlink" => root.remove(text("path")),
        "truncate" => {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(root.path(text("path")))
                .unwrap();
            file.set_len(op["size"].as_u64().unwrap()).unwrap();
        }
        "record" => {
            let mut config = load(text("config")).unwrap();
            config["metadata"]["name"] = op["name"].clone();
            root.write(RECORD, &config.to_string());
        }
        other => panic!("unknown operation {other}"),
    }
}

/// What `status` says of it; nothing, said aloud, where that cannot be asked here.
fn predicted(case: &Value, root: &TestRoot) -> Option<Value> {
    let args = ["status", "--output", "json"];
    let coreos = &case["coreos"];
    let said = if coreos.is_null() {
        root.run(&args).ok().json()
    } else if is_root() {
        furnish(root, coreos);
        run_live(root, &args).ok().json()
    } else {
        skip(
            Lacks::Root,
            &format!("{}: a live CoreOS needs root", case["name"]),
        );
        return None;
    };
    Some(said["daemon"]["branches"][0].clone())
}

/// The names of the configs that the API has.
fn in_the_api(case: &Value) -> Vec<String> {
    let all = case["api"].as_array().unwrap().iter();
    let name = |config: &Value| {
        let config = load(config.as_str().unwrap()).unwrap();
        config["metadata"]["name"].as_str().unwrap().to_owned()
    };
    all.map(name).collect()
}

/// What the daemon does with what the case's API really has: the first object that is needed and missing ends it.
fn with_the_api(prediction: &Value, case: &Value) -> Value {
    let has = in_the_api(case);
    let needs = prediction["needs"].as_array().unwrap();
    let missing = needs
        .iter()
        .find(|need| !has.iter().any(|name| need["machine_config"] == *name));
    let mut told = prediction.clone();
    if let Some(need) = missing {
        let target = has.last().unwrap();
        let otherwise = need["otherwise"].as_str().unwrap();
        let said = otherwise.replace("(the one that the pool targets)", target);
        told["state"] = json!("degraded");
        told["error"] = json!(said);
        (told["update"], told["drain"], told["reboot"]) = (Value::Null, json!(false), json!(false));
        // It ends before anything was touched.
        told["record_after"] = match case["record"].as_str() {
            Some(record) => load(record).unwrap()["metadata"]["name"].clone(),
            None => Value::Null,
        };
        let wrote = |what: &str| {
            let ops = case["ops"].as_array().unwrap();
            ops.iter()
                .any(|op| op["path"].as_str().is_some_and(|path| path.ends_with(what)))
        };
        told["node_annotations_after"] = json!(wrote("node-annotations.json"));
        told["force_file_after"] = json!(wrote("machine-config-daemon-force"));
    }
    told
}

#[test]
fn status_foretells_of_every_captured_node_what_the_daemon_did() {
    let Some(data) = load("verdicts/startup.json") else {
        return;
    };
    let cases = data["cases"].as_array().unwrap();
    let (mut walked, mut wrong) = (0, Vec::new());
    for case in cases {
        let root = build(case);
        let Some(branch) = predicted(case, &root) else {
            continue;
        };
        walked += 1;
        let told = with_the_api(&branch["prediction"], case);
        let did = &case["expected"];
        let record = match did["recordAfter"].as_str() {
            Some("unreadable") => Value::Null,
            _ => did["recordAfter"].clone(),
        };
        let pairs = [
            (
                "state",
                &told["state"],
                json!(did["state"].as_str().unwrap().to_lowercase()),
            ),
            ("error", &told["error"], did["error"].clone()),
            ("update", &told["update"], did["updateStarted"].clone()),
            ("drain", &told["drain"], did["drainAsked"].clone()),
            ("reboot", &told["reboot"], did["rebootAsked"].clone()),
            ("record", &told["record_after"], record),
            (
                "node-annotations.json",
                &told["node_annotations_after"],
                did["nodeAnnotationsFileAfter"].clone(),
            ),
            (
                "force file",
                &told["force_file_after"],
                did["forceFileAfter"].clone(),
            ),
        ];
        for (what, told, did) in pairs {
            if *told != did {
                wrong.push(format!("{}: {what}: told {told}, was {did}", case["name"]));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    say(&format!(
        "{walked} of {} captured nodes foretold as the daemon did",
        cases.len()
    ));
}

/// A node in A, of which the API said last that it is to be in B.
fn between(a: &Value, b: &Value) -> TestRoot {
    let root = TestRoot::new();
    root.apply(a);
    let file = root.config(b);
    root.run(&["fetch", file.path()]).ok();
    let current = &a["metadata"]["name"];
    annotate(
        &root,
        &json!({format!("{PREFIX}currentConfig"): current, format!("{PREFIX}desiredConfig"): b["metadata"]["name"]}),
    );
    root
}

#[test]
fn an_update_that_cannot_get_to_its_end_is_predicted_with_what_it_fails_over() {
    let config = |name: &str, ignition: &Value| machine_config(name, ignition.clone());
    let conf = |text: &str| file("/etc/a.conf", 0o644, text);
    let mut owned = conf("b\n");
    owned["user"] = json!({"name": "nosuch"});
    let unit = json!({"name": "a.service", "enabled": true,
        "contents": "[Service]\nExecStart=/bin/true\n[Install]\nAlias=b.socket\n"});
    let before = json!({"storage": {"files": [conf("a\n")]}});
    let user = json!({"storage": {"files": [owned]}});
    let directory = json!({"storage": {"files": [conf("b\n"), file("/etc/taken", 0o644, "x")]}});
    let kubeconfig = file("/etc/kubernetes/kubeconfig", 0o600, "kind: Config\n");
    let with = json!({"storage": {"files": [conf("a\n"), kubeconfig]}});
    let fine = json!({"storage": {"files": [conf("b\n")]}});
    let units = json!({"storage": {"files": [conf("a\n")]}, "systemd": {"units": [unit]}});
    let cannot_stat = "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory";
    let no_user = "failed to retrieve file ownership for file \"/etc/a.conf\": failed to retrieve UserID for username: nosuch";
    for (a, b, said, why) in [
        (&before, &user, Some(no_user), ""),
        (
            &before,
            &directory,
            None,
            "it cannot write /etc/taken: it is a directory",
        ),
        (&with, &fine, Some(cannot_stat), ""),
        (&before, &units, None, "unit a.service cannot be enabled"),
    ] {
        let root = between(
            &config("rendered-worker-a", a),
            &config("rendered-worker-b", b),
        );
        fs::create_dir_all(root.path("etc/taken")).unwrap();
        let told = root.run(&["status", "--output", "json"]).ok().json();
        let seen = &told["daemon"]["branches"][0]["prediction"];
        assert_eq!(seen["state"], "degraded", "{seen}");
        assert_eq!(seen["error"].as_str(), said, "{seen}");
        assert_eq!(seen["update"]["to"], "rendered-worker-b", "{seen}");
        assert_eq!(
            (&seen["drain"], &seen["reboot"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(seen["record_after"], "rendered-worker-a");
        let text = root.run(&["status"]).ok().out();
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let headline =
            "its update to rendered-worker-b fails partway, after a drain: it is Degraded";
        assert!(flat.contains(headline), "{text}");
        assert!(flat.contains(said.unwrap_or(why)), "{text}");
    }
    // The same node and a config that can be written.
    let root = between(
        &config("rendered-worker-a", &before),
        &config("rendered-worker-b", &fine),
    );
    let told = root.run(&["status", "--output", "json"]).ok().json();
    let seen = &told["daemon"]["branches"][0]["prediction"];
    assert_eq!(
        (&seen["state"], &seen["reboot"]),
        (&json!("working"), &json!(true))
    );
}
