//! What is left to the daemon and to the cluster: stale triggers, the force file, what `status` says of the daemon's
//! start, and the way back with `oc`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::live::{answers, furnish, run_live};
use crate::support::{
    self, Lacks, PROGRAM, RECORD, Run, TestRoot, by_operator, file, flat_run, is_root,
    machine_config, skip,
};
use serde_json::{Value, json};

const IMAGE: &str = "registry.example/os@sha256:0";
const INITIAL: &str = "etc/machine-config-daemon/node-annotations.json";
const INITIAL_KEPT: &str = "etc/machine-config-daemon/node-annotation.json.bak";
const FORCE: &str = "run/machine-config-daemon-force";
const REPOSITORY: &str = "etc/yum.repos.d/coreos-extensions.repo";
const REVERT: [&str; 3] = [
    "etc/mco/machineconfig-revert.json",
    "etc/systemd/system/machine-config-daemon-revert.service",
    "etc/systemd/system/multi-user.target.requires/machine-config-daemon-revert.service",
];

fn name(config: &Value) -> &str {
    config["metadata"]["name"].as_str().unwrap()
}

fn two() -> (Value, Value) {
    (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    )
}

/// As `fetch` keeps what the API says.
fn annotate(root: &TestRoot, current: &Value, desired: &Value) {
    let kept = json!({"version": 1, "node": "worker-0", "seen": 1_750_000_000, "current": name(current),
        "desired": name(desired), "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
}

fn says(run: &Run, words: &[&str]) {
    let said = flat_run(run);
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

/// A running CoreOS node in a config; nothing, said aloud, where that cannot be had.
fn live(config: &Value) -> Option<TestRoot> {
    if !is_root() {
        skip(Lacks::Root, "a live node needs root");
        return None;
    }
    let root = TestRoot::new();
    root.apply(config);
    let kargs = "root=UUID=1 rw ostree=/ostree/boot.1/rhcos/abc/0";
    furnish(&root, &json!({"booted": IMAGE, "kargs": kargs}));
    fs::create_dir_all(root.path("run")).unwrap();
    Some(root)
}

/// The first branch of what is foretold.
fn foretold(run: &Run) -> Value {
    run.json()["daemon"]["branches"][0].clone()
}

fn revert(root: &TestRoot) {
    root.write(REVERT[0], "{}");
    root.write(REVERT[1], "[Service]\nExecStart=/bin/true\n");
    root.link(
        REVERT[2],
        "/etc/systemd/system/machine-config-daemon-revert.service",
    );
}

#[test]
fn leftovers_of_the_daemon_go_and_what_it_still_needs_stays() {
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    root.write(REPOSITORY, "[coreos-extensions]\n");
    root.write(INITIAL, "{}");
    revert(&root);
    let config = root.config(&new);
    let plan = root.run(&["plan", config.path()]).ok();
    let kept = "the daemon has not adopted the node yet";
    says(
        &plan,
        &[
            "- /etc/yum.repos.d/coreos-extensions.repo",
            kept,
            "the revert service will run",
        ],
    );
    root.apply(&new);
    assert!(!root.exists(REPOSITORY));
    assert!(root.exists(INITIAL) && root.exists(REVERT[0]));
    // Once the daemon has put one away, another one is stale.
    root.write(INITIAL_KEPT, "{}");
    says(
        &root.run(&["plan"]).ok(),
        &["- /etc/machine-config-daemon/node-annotations.json"],
    );
    root.run(&["apply", "--yes"]).ok();
    assert!(!root.exists(INITIAL) && root.exists(INITIAL_KEPT));
}

#[test]
fn a_file_of_the_config_is_not_a_leftover() {
    let root = TestRoot::new();
    let entry = file(&format!("/{REPOSITORY}"), 0o644, "[mine]\n");
    root.apply(&machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [entry]}}),
    ));
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.read(REPOSITORY), "[mine]\n");
}

#[test]
fn on_the_running_node_what_would_start_something_is_put_away() {
    let (old, new) = two();
    let Some(root) = live(&old) else { return };
    annotate(&root, &old, &new);
    revert(&root);
    root.write(FORCE, "");
    root.write("etc/ignition-machine-config-encapsulated.json", "{}");
    root.write("config", &new.to_string());
    let before = run_live(&root, &["status", "--output", "json"]).ok();
    let branch = foretold(&before);
    assert_eq!(branch["prediction"]["reboot"], json!(true), "{branch}");
    says(
        &run_live(&root, &["plan", "/config"]).ok(),
        &[
            "/run/machine-config-daemon-force exists",
            "removed once everything is in place",
            "adopted, no reboot",
        ],
    );
    let applied = run_live(&root, &["apply", "--yes", "/config"]).ok();
    says(&applied, &[": adopted, no reboot"]);
    for path in REVERT
        .iter()
        .chain(&[FORCE, "etc/ignition-machine-config-encapsulated.json"])
    {
        assert!(!root.exists(path), "{path} is still there");
    }
    assert!(root.exists("etc/ignition-machine-config-encapsulated.json.bak"));
    let branch = foretold(&run_live(&root, &["status", "--output", "json"]).ok());
    assert_eq!(branch["prediction"]["state"], "done", "{branch}");
}

/// The first-boot service takes the arguments in the order in which they are booted.
#[test]
fn what_the_first_boot_service_will_change_is_predicted() {
    let (config, _) = two();
    let Some(root) = live(&config) else { return };
    annotate(&root, &config, &config);
    let foretells = |kargs: Value, words: &str| {
        let mut first = config.clone();
        first["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}});
        first["spec"]["osImageURL"] = json!(IMAGE);
        first["spec"]["kernelArguments"] = kargs;
        root.write(
            "etc/ignition-machine-config-encapsulated.json",
            &first.to_string(),
        );
        let run = run_live(&root, &["status"]);
        says(
            &run,
            &[&format!("the first-boot service runs first{words}")],
        );
    };
    foretells(json!([]), ", finds nothing to change, and removes its file");
    foretells(
        json!(["root=UUID=1", "rw"]),
        ", finds nothing to change, and removes its file",
    );
    let changes = ", to apply the content of its file: it changes";
    foretells(
        json!(["rw", "root=UUID=1"]),
        &format!("{changes} the order of the kernel arguments, and reboots"),
    );
    foretells(
        json!(["rw", "quiet"]),
        &format!("{changes} kernel arguments, and reboots"),
    );
}

#[test]
fn a_force_file_alone_is_asked_about_and_removed() {
    let (old, _) = two();
    let Some(root) = live(&old) else { return };
    run_live(&root, &["apply", "--yes"]).ok();
    root.write(FORCE, "");
    says(&run_live(&root, &["apply"]).exits(1), &["add --yes"]);
    assert!(root.exists(FORCE));
    run_live(&root, &["apply", "--yes"]).ok();
    assert!(!root.exists(FORCE));
}

#[test]
fn the_daemon_is_asked_to_do_the_rest_by_name_only() {
    let (old, mut new) = two();
    new["spec"]["osImageURL"] = json!("registry.example/os@sha256:1");
    support::name_anew(&mut new);
    let Some(root) = live(&old) else { return };
    // The daemon asks it first whether the image is there already.
    answers(&root, "podman", "echo '[]'");
    annotate(&root, &old, &new);
    root.write("config", &new.to_string());
    run_live(&root, &["apply", "--yes", "--request-mcd-force", "/config"]).exits(2);
    let before = root.read(RECORD);
    let args = [
        "apply",
        "--yes",
        "--files-only",
        "--request-mcd-force",
        "/config",
    ];
    let run = run_live(&root, &args);
    says(
        &run,
        &[
            "compares nothing",
            "drains and reboots",
            "it updates to",
            "with a drain and a reboot",
        ],
    );
    assert_eq!(root.read("etc/pool.conf"), "new\n");
    assert_eq!(root.read(RECORD), before);
    let mode = fs::metadata(root.path(FORCE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // On another root its memory is not the daemon's.
    let other = TestRoot::new();
    other.apply(&old);
    let config = other.config(&new);
    let args = [
        "apply",
        "--yes",
        "--files-only",
        "--request-mcd-force",
        config.path(),
    ];
    says(
        &other.run(&args).exits(1),
        &["works only on the running node"],
    );
    assert_eq!(other.read("etc/pool.conf"), "old\n");
}

#[test]
fn what_is_staged_is_reported_as_it_is_after_the_reboot() {
    let (old, mut new) = two();
    let other = format!("registry.example/os@sha256:{}", "1".repeat(64));
    new["spec"]["osImageURL"] = json!(other);
    support::name_anew(&mut new);
    let Some(root) = live(&old) else { return };
    annotate(&root, &old, &new);
    root.write("config", &new.to_string());
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    root.write("etc/containers/policy.json", policy);
    let plan = run_live(&root, &["plan", "/config"]).ok();
    let words =
        "Once this is applied and the node rebooted, when the daemon starts: adopted, no reboot";
    says(&plan, &[words]);
    // Files and record are in place, and the image waits for the reboot.
    run_live(&root, &["apply", "--yes", "--files-only", "/config"]).exits(3);
    let told = || run_live(&root, &["status", "--output", "json"]).ok().json()["daemon"].clone();
    let now = told()["branches"][0]["prediction"]["error"].clone();
    let said = format!(
        "unexpected on-disk state validating against {}: expected target osImageURL \"{other}\", have \"{IMAGE}\"",
        name(&new)
    );
    assert_eq!(now, said);
    let awaited = json!({"version": 1, "way": "forward", "config": {"name": name(&new), "digest": "", "origin": ""},
        "run": "1-1", "boot": "x", "from": "y", "image": other, "kernel_arguments": [], "since": 1, "failed": null});
    root.write("var/lib/mco-rescue/awaited.json", &awaited.to_string());
    // As long as rpm-ostree has nothing staged, the next boot is not that one.
    assert_eq!(told()["after_reboot"], false);
    let staged = json!({"booted": false, "staged": true, "pinned": false, "osname": "rhcos", "serial": 0,
        "checksum": "2".repeat(64), "unlocked": "none", "requested-packages": [], "version": "9.6",
        "container-image-reference": format!("ostree-unverified-registry:{other}")});
    let program = "usr/sbin/rpm-ostree";
    let script = root.read(program);
    let script = script.replacen("[{", &format!("[{staged},{{"), 1);
    root.write(program, &script);
    let then = told();
    assert_eq!(then["after_reboot"], true);
    assert_eq!(then["branches"][0]["prediction"]["state"], "done", "{then}");
}

#[test]
fn what_is_known_of_the_annotations_decides_what_is_said() {
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    let status = root.run(&["status"]).ok();
    says(
        &status,
        &["When the daemon starts: adopted if the cluster wants this config, else it updates"],
    );
    annotate(&root, &old, &old);
    says(
        &root.run(&["status"]).ok(),
        &[
            "When the daemon starts: adopted, no reboot",
            "reported by the API 2025-06-15",
        ],
    );
    // The cluster does not know yet that the node went elsewhere.
    let run = root.apply(&new);
    let reverts = format!("it reverts to {}, with a drain and a reboot", name(&old));
    let then = format!("If desired is {}: adopted, no reboot", name(&new));
    says(
        &run,
        &[&reverts, &then, "Next: mco-rescue status --for-cluster"],
    );
    let given = root
        .run(&["status", "--desired", name(&new), "--output", "json"])
        .ok();
    let document = given.json();
    assert_eq!(document["daemon"]["told"], "given");
    assert_eq!(document["daemon"]["branches"].as_array().unwrap().len(), 1);
    let needs = &document["daemon"]["branches"][0]["prediction"]["needs"];
    let names: Vec<&str> = needs
        .as_array()
        .unwrap()
        .iter()
        .map(|need| need["machine_config"].as_str().unwrap())
        .collect();
    assert_eq!(names, [name(&old), name(&new)]);
}

#[test]
fn the_words_of_the_daemon_come_before_it_says_them() {
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    annotate(&root, &old, &old);
    root.write("etc/pool.conf", "edited\n");
    let verdict = root.run(&["verify", "--output", "json"]).json()["verdict"].clone();
    let status = root.run(&["status"]).ok();
    let dir = root.dir().display();
    says(
        &status,
        &[
            "it is Degraded, and reports:",
            verdict.as_str().unwrap(),
            &format!("Next: mco-rescue verify --root {dir}"),
            &format!("mco-rescue apply --root {dir}"),
        ],
    );
    // A plan tells of the node as it will be.
    let plan = root.run(&["plan", "--output", "json"]).ok();
    assert_eq!(foretold(&plan)["prediction"]["state"], "done");
    // Of a plan that is refused, as it is.
    let mut disk = new.clone();
    disk["spec"]["config"]["storage"]["disks"] = json!([{"device": "/dev/vdb"}]);
    let refused = root.config(&disk);
    let plan = root
        .run(&["plan", "--output", "json", refused.path()])
        .exits(1);
    assert_eq!(foretold(&plan)["prediction"]["error"], verdict);
    root.write(RECORD, "");
    let branch = foretold(&root.run(&["status", "--output", "json"]).ok());
    assert_eq!(branch["prediction"]["error"], "EOF");
}

#[test]
fn an_older_daemon_has_older_rules() {
    let mut config = machine_config(
        "rendered-worker-a",
        json!({"systemd": {"units": [{"name": "u.service", "enabled": false,
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}}),
    );
    config["spec"]["config"]["ignition"]["version"] = json!("3.4.0");
    let root = TestRoot::new();
    root.apply(&config);
    annotate(&root, &config, &config);
    root.link(
        "etc/systemd/system/multi-user.target.wants/u.service",
        "/etc/systemd/system/u.service",
    );
    let at = |version: &str| {
        let args = ["status", "--output", "json", "--daemon-version", version];
        foretold(&root.run(&args).ok())["prediction"]["error"].clone()
    };
    let seen = "unexpected on-disk state validating against rendered-worker-a: unit \"u.service\" expected \
                enabled=false, but systemd reports \"enabled\"";
    // Taken back on the main branch for half a year, in which two branches began; their later releases have it again.
    let answers = [
        ("2025-07-21", false),
        ("2025-07-22", true),
        ("2025-08-01", false),
        ("2026-01-27", true),
        ("4.12", false),
        ("4.17.30", false),
        ("4.18.0", false),
        ("4.18", true),
        ("4.19.0", false),
        ("4.20.0", false),
        ("4.20.14", false),
        ("4.20.16", true),
        ("4.21.1", false),
        ("4.21", true),
        ("4.22", true),
        ("5.0", true),
        ("5.1.2", true),
    ];
    for (version, is_seen) in answers {
        let wanted = if is_seen { json!(seen) } else { Value::Null };
        assert_eq!(at(version), wanted, "{version}");
    }
    let wrong = root.run(&["status", "--daemon-version", "new"]).exits(2);
    says(&wrong, &["such as 4.19"]);
}

/// The release is that of the node, for `verify` as for the forecast.
#[test]
fn verify_and_status_judge_by_the_release_of_the_node() {
    let unit = json!({"name": "u.service", "enabled": false,
        "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"});
    let mut answers = Vec::new();
    for version in ["4.17", "4.18", "4.19", "4.20", "5.0", ""] {
        for ignition in ["3.4.0", "3.5.0"] {
            let mut config =
                machine_config("rendered-worker-a", json!({"systemd": {"units": [unit]}}));
            config["spec"]["config"]["ignition"]["version"] = json!(ignition);
            let root = TestRoot::new();
            root.apply(&config);
            annotate(&root, &config, &config);
            root.link(
                "etc/systemd/system/multi-user.target.wants/u.service",
                "/etc/systemd/system/u.service",
            );
            let os = format!("ID=fedora\nOPENSHIFT_VERSION=\"{version}\"\n");
            root.write("etc/os-release", &os);
            let verify = root.run(&["verify", "--output", "json"]).exits(3).json();
            let status = root.run(&["status", "--output", "json"]).ok();
            let foretold = foretold(&status)["prediction"]["error"].clone();
            assert_eq!(verify["verdict"], foretold, "{version} {ignition}");
            let is_seen = verify["drifts"][0]["checked_by_daemon"] == true;
            answers.push((version, ignition, verify["verdict"].is_string(), is_seen));
        }
    }
    let wanted = [
        ("4.17", "3.4.0", false, false),
        ("4.17", "3.5.0", true, false),
        ("4.18", "3.4.0", true, true),
        ("4.18", "3.5.0", true, true),
        ("4.19", "3.4.0", true, true),
        ("4.19", "3.5.0", true, true),
        ("4.20", "3.4.0", true, true),
        ("4.20", "3.5.0", true, true),
        ("5.0", "3.4.0", true, true),
        ("5.0", "3.5.0", true, true),
        ("", "3.4.0", true, true),
        ("", "3.5.0", true, true),
    ];
    assert_eq!(answers, wanted);
}

/// What an update does on the way depends on the release.
#[test]
fn an_update_by_an_older_daemon_fails_or_leaves_what_a_newer_one_does_not() {
    let unit = |nice: u8| json!({"name": "u.service", "contents": format!("[Service]\nExecStart=/bin/true\nNice={nice}\n")});
    let units = |all: Value| {
        let mut config = machine_config("rendered-worker-a", json!({"systemd": {"units": all}}));
        config["spec"]["config"]["ignition"]["version"] = json!("3.4.0");
        config
    };
    let at = |old: &Value, new: &Value, version: &str, has_kubeconfig: bool| {
        let mut new = new.clone();
        new["metadata"]["name"] = json!("rendered-worker-b");
        let root = TestRoot::new();
        root.apply(old);
        if !has_kubeconfig {
            root.remove("etc/kubernetes/kubeconfig");
        }
        let file = root.config(&new);
        root.run(&["fetch", file.path()]).ok();
        annotate(&root, old, &new);
        let args = ["status", "--output", "json", "--daemon-version", version];
        foretold(&root.run(&args).ok())["prediction"].clone()
    };
    let missing = json!([unit(1), {"name": "none.service", "enabled": true}]);
    for (version, fails) in [
        ("4.19", true),
        ("4.20.0", true),
        ("4.20", false),
        ("4.21.0", false),
    ] {
        let seen = at(
            &units(json!([unit(1)])),
            &units(missing.clone()),
            version,
            true,
        );
        assert_eq!(seen["state"] == "degraded", fails, "{version}: {seen}");
        let words = "it switches unit none.service, which has no contents and no file";
        assert_eq!(
            seen["because"].to_string().contains(words),
            fails,
            "{version}: {seen}"
        );
    }
    for (version, leaves) in [
        ("4.17", true),
        ("4.20.14", true),
        ("4.20", false),
        ("5.0", false),
    ] {
        let seen = at(
            &units(json!([unit(1)])),
            &units(json!([unit(2)])),
            version,
            false,
        );
        assert_eq!(seen["state"], "degraded", "{version}: {seen}");
        let words = "leaves changed units as the update has written them: u.service";
        assert_eq!(
            seen["because"].to_string().contains(words),
            leaves,
            "{version}: {seen}"
        );
    }
}

/// Applied all the same it makes the daemon Degraded, and every command says so.
#[test]
fn a_version_of_ignition_that_the_daemon_does_not_support_is_said() {
    for (version, is_supported) in [
        ("2.2.0", true),
        ("2.3.0", false),
        ("2.4.0", false),
        ("3.0.0", true),
        ("3.5.0", true),
        ("3.6.0", false),
    ] {
        let mut entry = file("/etc/a.conf", 0o644, "a\n");
        if version.starts_with('2') {
            entry["filesystem"] = json!("root");
        }
        let mut config =
            machine_config("rendered-worker-a", json!({"storage": {"files": [entry]}}));
        config["spec"]["config"]["ignition"]["version"] = json!(version);
        let root = TestRoot::new();
        let run = root.apply(&config);
        let words = "unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5";
        assert_eq!(flat_run(&run).contains(words), !is_supported, "{version}");
        let verify = root
            .run(&["verify"])
            .exits(if is_supported { 0 } else { 3 });
        assert_eq!(
            flat_run(&verify).contains(words),
            !is_supported,
            "{version}"
        );
        says(&verify, &["Clean: files, units"]);
        annotate(&root, &config, &config);
        let status = root.run(&["status"]).ok();
        assert_eq!(
            flat_run(&status).contains(words),
            !is_supported,
            "{version}"
        );
    }
}

/// Without an option it is read from the node: the newer one of what the system and the recorded config name.
#[test]
fn the_release_of_the_daemon_is_read_from_the_node() {
    let rendered = |release: &str| {
        let files = json!([file("/etc/a.conf", 0o644, "a\n")]);
        let mut config = machine_config("rendered-worker-a", json!({"storage": {"files": files}}));
        if !release.is_empty() {
            config["metadata"]["annotations"] =
                json!({"machineconfiguration.openshift.io/release-image-version": release});
        }
        config
    };
    for (system, record, release, source, words) in [
        (
            "",
            "",
            "newest",
            "unknown",
            "unknown release: newest rules; /etc/os-release has no OPENSHIFT_VERSION",
        ),
        (
            "4.9",
            "",
            "4.12",
            "os-release",
            "4.9 (OPENSHIFT_VERSION of /etc/os-release); older than the known rules: rules of 4.12",
        ),
        (
            "5.1",
            "4.21.9",
            "newest",
            "os-release",
            "5.1 (OPENSHIFT_VERSION of /etc/os-release); newer than the known rules: newest rules",
        ),
        (
            "four",
            "",
            "newest",
            "unknown",
            "unknown release: newest rules; OPENSHIFT_VERSION \"four\" of /etc/os-release is not a release",
        ),
        (
            "4.21",
            "",
            "4.21",
            "os-release",
            "4.21 (OPENSHIFT_VERSION of /etc/os-release)",
        ),
        (
            "4.21",
            "4.21.9",
            "4.21.9",
            "record",
            "4.21.9 (of the recorded config); its source is older than 2026-05-26",
        ),
        (
            "4.20",
            "4.19.7",
            "4.20",
            "os-release",
            "4.20 (OPENSHIFT_VERSION of /etc/os-release)",
        ),
        (
            "",
            "4.12.40",
            "4.12.40",
            "record",
            "4.12.40 (of the recorded config)",
        ),
        (
            "5.0",
            "5.0.1",
            "5.0.1",
            "record",
            "5.0.1 (of the recorded config)",
        ),
    ] {
        let root = TestRoot::new();
        let text = format!("ID=rhcos\nVARIANT_ID=coreos\nOPENSHIFT_VERSION=\"{system}\"\n");
        root.write("etc/os-release", &text);
        root.apply(&rendered(record));
        let status = root.run(&["status", "--output", "json"]).ok().json();
        let seen = &status["daemon"];
        assert_eq!(
            (&seen["release"], &seen["release_source"]),
            (&json!(release), &json!(source))
        );
        says(&root.run(&["status"]).ok(), &[&format!("Release {words}")]);
    }
    // A file in whose place is something else.
    let root = TestRoot::new();
    root.apply(&rendered(""));
    root.remove("etc/os-release");
    root.write("etc/os-release/x", "");
    root.remove("usr/lib/os-release");
    let words = "Release unknown release: newest rules; /etc/os-release: ";
    says(&root.run(&["status"]).ok(), &[words]);
}

/// A rendered config of each branch, as its controllers made it in that time, on a node of that branch.
#[test]
fn a_config_of_each_branch_is_applied_verified_and_predicted_by_its_rules() {
    // Autumn 2023: the units of the network moved from network-online.target to kubelet-dependencies.target.
    let old = "network-online.target";
    let new = "kubelet-dependencies.target";
    for (release, spec, target) in [
        ("4.12.30", "3.2.0", old),
        ("4.12.60", "3.2.0", new),
        ("4.13.10", "3.2.0", old),
        ("4.14.0", "3.4.0", old),
        ("4.14.40", "3.4.0", new),
        ("4.15.20", "3.4.0", new),
        ("4.16.30", "3.4.0", new),
        ("4.17.20", "3.4.0", new),
        ("4.18.0", "3.4.0", new),
        ("4.18.40", "3.4.0", new),
        ("4.19.0", "3.5.0", new),
        ("4.19.30", "3.5.0", new),
        ("4.20.0", "3.5.0", new),
        ("4.20.25", "3.5.0", new),
        ("4.21.20", "3.5.0", new),
        ("4.22.9", "3.5.0", new),
        ("5.0.1", "3.5.0", new),
    ] {
        let unit = |name: &str, enabled: bool, target: &str| {
            let text = format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n");
            json!({"name": name, "enabled": enabled, "contents": text})
        };
        let units = json!([
            unit("ovs-configuration.service", true, target),
            unit("off.service", false, "multi-user.target"),
        ]);
        let files = json!([file("/etc/a.conf", 0o644, "a\n")]);
        let ignition = json!({"storage": {"files": files}, "systemd": {"units": units}});
        let mut config = machine_config("rendered-worker-a", ignition);
        config["spec"]["config"]["ignition"]["version"] = json!(spec);
        config["metadata"]["annotations"] =
            json!({"machineconfiguration.openshift.io/release-image-version": release});
        let root = TestRoot::new();
        let branch: Vec<&str> = release.split('.').take(2).collect();
        let text = format!(
            "ID=rhcos\nVARIANT_ID=coreos\nOPENSHIFT_VERSION={}\n",
            branch.join(".")
        );
        root.write("etc/os-release", &text);
        root.apply(&config);
        let link = format!("etc/systemd/system/{target}.wants/ovs-configuration.service");
        assert!(root.exists(&link), "{release}");
        root.run(&["verify"]).ok();
        annotate(&root, &config, &config);
        let error = |root: &TestRoot| {
            let status = root.run(&["status", "--output", "json"]).ok();
            foretold(&status)["prediction"]["error"].clone()
        };
        assert_eq!(error(&root), Value::Null, "{release}");
        // A newer spec, and a unit that is on and should be off.
        let minor: u32 = branch[1].parse().unwrap();
        let is_old = branch[0] == "4" && minor < 18 || release.ends_with(".0");
        root.link(
            "etc/systemd/system/multi-user.target.wants/off.service",
            "/etc/systemd/system/off.service",
        );
        assert_eq!(error(&root) == Value::Null, is_old, "{release}: enablement");
        root.run(&["apply", "--yes"]).ok();
        assert_eq!(error(&root), Value::Null, "{release}");
    }
}

#[test]
fn what_is_said_of_the_daemon_fits_80_columns() {
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    let config = root.config(&new);
    let runs: [&[&str]; 4] = [
        &["status"],
        &["plan", config.path()],
        &["status", "--desired", name(&new)],
        &["apply", "--yes", config.path()],
    ];
    for args in runs {
        let said = root.run(args).ok().out();
        for line in said
            .lines()
            // A command is never wrapped.
            .filter(|line| {
                !line.starts_with("  unexpected on-disk") && !line.contains("mco-rescue ")
            })
        {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
}

/// A stand-in that writes down each call with its arguments and standard input, one JSON array a line.
const OC: &str = r#"#!/usr/bin/python3
import json, os, sys
args = sys.argv[1:]
text = sys.stdin.read() if args[-2:] == ["-f", "-"] else ""
with open(os.environ["OC_LOG"], "a") as log:
    log.write(json.dumps(args + [text]) + "\n")
if "{.metadata.uid}" in args[-1]:
    print("uid-of-today", end="")
"#;

#[test]
fn the_way_back_is_a_script_that_says_exactly_what_the_cluster_needs() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip(Lacks::Setup, "no python3 to stand in for oc");
    }
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    let before = root.config(&old);
    root.run(&["fetch", before.path()]).ok();
    annotate(&root, &old, &old);
    root.apply(&new);
    let script = root.run(&["status", "--for-cluster"]).ok().out();
    let elsewhere = tempfile::tempdir().unwrap();
    for config in [&old, &new] {
        let object = root
            .run(&["status", "--for-cluster", "--object", name(config)])
            .ok()
            .out();
        fs::write(
            elsewhere.path().join(format!("{}.json", name(config))),
            object,
        )
        .unwrap();
    }
    let bin = elsewhere.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("oc"), OC).unwrap();
    fs::set_permissions(bin.join("oc"), fs::Permissions::from_mode(0o755)).unwrap();
    let log = elsewhere.path().join("log");
    let ran = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(elsewhere.path())
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("OC_LOG", &log)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let calls: Vec<Vec<String>> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let patches: Vec<Value> = calls
        .iter()
        .filter(|call| call[0] == "patch")
        .map(|call| {
            assert_eq!(call[1..5], ["node", "worker-0", "--type", "merge"]);
            serde_json::from_str::<Value>(&call[6]).unwrap()["metadata"]["annotations"].clone()
        })
        .collect();
    let key = |key: &str| format!("machineconfiguration.openshift.io/{key}");
    assert_eq!(
        patches,
        [
            json!({key("desiredConfig"): name(&new)}),
            json!({key("lastAppliedDrain"): format!("uncordon-{}", name(&new))}),
        ]
    );
    let made: Vec<Value> = calls
        .iter()
        .filter(|call| call[0] == "create")
        .map(|call| serde_json::from_str(call.last().unwrap()).unwrap())
        .collect();
    for (made, config) in made.iter().zip([&old, &new]) {
        assert_eq!(name(made), name(config));
        assert_eq!(made["spec"], config["spec"]);
        assert_eq!(
            made["metadata"]["ownerReferences"][0]["uid"],
            "uid-of-today"
        );
    }
    assert_eq!(made.len(), 2);
    // Nothing secret is in it, and no file content at all.
    assert!(!script.contains("data:"), "{script}");
}

#[test]
fn where_the_controller_is_missing_the_drain_is_played_by_hand() {
    let (old, new) = two();
    let root = TestRoot::new();
    root.apply(&old);
    let fetched = root.config(&new);
    root.run(&["fetch", fetched.path()]).ok();
    annotate(&root, &old, &new);
    let document = root
        .run(&["status", "--for-cluster", "--output", "json"])
        .ok()
        .json();
    assert_eq!(document["schema"], "mco-rescue/for-cluster/v1");
    assert_eq!(document["config"], name(&new));
    let expected: Vec<&str> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|step| step["expect"].as_str())
        .collect();
    let (drain, uncordon) = (
        format!("drain-{}", name(&new)),
        format!("uncordon-{}", name(&new)),
    );
    let done = format!("{} Done", name(&new));
    assert_eq!(expected, [name(&new), &drain, &uncordon, &done]);
}

#[test]
fn an_object_with_secrets_goes_to_no_terminal() {
    let (old, _) = two();
    let root = TestRoot::new();
    root.apply(&old);
    let show = format!(
        "{PROGRAM} --root {} status --for-cluster --object {}",
        root.dir().display(),
        name(&old)
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &show, "/dev/null"])
        .output();
    match output {
        Ok(output) => {
            let screen = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(1), "{screen}");
            assert!(
                screen.contains("holds secrets") && !screen.contains("\"spec\""),
                "{screen}"
            );
        }
        Err(error) => skip(
            Lacks::program("script"),
            &format!("no terminal can be had: {error}"),
        ),
    }
    says(
        &root
            .run(&["status", "--for-cluster", "--object", "rendered-worker-x"])
            .exits(1),
        &["has no complete copy of rendered-worker-x"],
    );
    root.run(&["status", "--object", name(&old)]).exits(2);
}
