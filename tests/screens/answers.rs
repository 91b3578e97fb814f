//! Screens tell the truth: two screens about the same thing agree in numbers, names and commands.

use serde_json::{Value, json};

use crate::support::{TestRoot, file, flat, flat_run, kubelet_unit, machine_config};

const ONE: &str = "rendered-worker-1";
const TWO: &str = "rendered-worker-2";

fn config(name: &str, text: &str) -> Value {
    machine_config(
        name,
        json!({
            "storage": {"files": [
                file("/etc/pool.conf", 0o644, text),
                file("/var/lib/kubelet/own/pool.conf", 0o644, "x\n"),
            ]},
            "systemd": {"units": [kubelet_unit()]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]},
        }),
    )
}

#[test]
fn plan_counts_the_changes_that_apply_makes() {
    let root = TestRoot::new();
    // The lock of apply makes them.
    std::fs::remove_dir_all(root.path("var")).unwrap();
    let given = root.config(&config(ONE, "one\n"));
    let planned = root.run(&["plan", given.path(), "-o", "json"]).ok().json();
    let planned = planned["steps"].as_array().unwrap().len();
    assert!(!root.exists("var"), "plan made something");
    let said = root.run(&["apply", "--yes", given.path()]).ok().out();
    for wanted in [
        format!("Changes ({planned}):"),
        format!("\n{planned} steps, and verify finds no difference."),
    ] {
        assert!(said.contains(&wanted), "{wanted}: {said}");
    }
    // What rollback says of itself is not about a config.
    root.run(&["rollback", "--yes"]).ok();
}

#[test]
fn a_config_can_be_applied_again_after_its_rollback() {
    let root = TestRoot::new();
    root.apply(&config(ONE, "one\n"));
    root.apply(&config(TWO, "two\n"));
    let said = root.run(&["rollback", "--yes"]).ok().out();
    assert!(
        said.contains(&format!("Config    before {TWO}\n")),
        "{said}"
    );
    let again = said
        .lines()
        .find_map(|line| line.strip_prefix("To apply it again: mco-rescue "))
        .unwrap_or_else(|| panic!("no command: {said}"));
    let words: Vec<&str> = again.split(' ').collect();
    assert_eq!(words[..2], ["apply", &format!("cached:{TWO}")]);
    root.run(&[words[0], words[1], "--yes"]).ok();
    assert_eq!(root.read("etc/pool.conf"), "two\n");
    root.run(&["verify"]).ok();
    // The same once more, when the cache has it: it is kept once.
    root.run(&["rollback", "--yes"]).ok();
    let cached = root.run(&["cache", "list", "-o", "json"]).ok().json();
    assert_eq!(cached.to_string().matches(TWO).count(), 1, "{cached:#}");
    // Nothing but files: the recorded config is the same one.
    root.write("etc/pool.conf", "by hand\n");
    root.run(&["apply", "--yes"]).ok();
    let said = root.run(&["rollback", "--yes"]).ok().out();
    assert!(
        said.contains("To apply it again: mco-rescue apply --root "),
        "{said}"
    );
}

#[test]
fn a_rollback_that_leaves_everything_compares_with_no_config() {
    let root = TestRoot::new();
    root.apply(&config(ONE, "one\n"));
    root.write("etc/pool.conf", "by hand\n");
    root.run(&["apply", "--yes"]).ok();
    root.write("etc/pool.conf", "by hand again\n");
    let args = ["rollback", "--leave-changed", "--dry-run"];
    let said = flat(&root.run(&args).ok().out());
    assert!(said.contains("No file, unit or record changes."), "{said}");
    let left = format!("/etc/pool.conf was changed since {ONE} was applied, and is left as it is");
    assert!(said.contains(&left), "{said}");
    assert!(!said.contains("match the config"), "{said}");
}

#[test]
fn a_trial_of_another_root_is_refused_and_nothing_is_promised() {
    let root = TestRoot::new();
    root.apply(&config(ONE, "one\n"));
    let given = root.config(&config(TWO, "two\n"));
    for command in ["plan", "apply"] {
        let run = root.run(&[command, "--try=10m", given.path()]).exits(1);
        let said = flat_run(&run);
        assert!(said.contains("Leave --try out for another root"), "{said}");
        assert!(!said.contains("recovers by itself"), "{said}");
    }
}

#[test]
fn a_root_without_a_trace_of_a_node_is_named_and_never_recorded() {
    let root = TestRoot::empty();
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let before = root.everything();
    let said = flat_run(&root.run(&["record"]).exits(1));
    for wanted in [
        "is not a node: it has no os-release and no record of the Machine Config Daemon",
        "Nothing was changed",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    for args in [&["status"][..], &["doctor"]] {
        let run = root.run(args);
        let err = flat(&run.err());
        assert!(err.contains("is not a node: it has no os-release"), "{err}");
    }
    assert_eq!(root.everything(), before);
    let node = TestRoot::new();
    let run = node.run(&["status"]).ok();
    assert!(!run.err().contains("is not a node"), "{}", run.err());
}

#[test]
fn status_names_the_wanted_image_and_the_one_of_a_disk() {
    let root = TestRoot::new();
    let none = root.run(&["status"]).ok().out();
    assert!(none.contains("Image     (no record of one)\n"), "{none}");
    root.apply(&config(ONE, "one\n"));
    let of = |root: &TestRoot| root.run(&["status", "-o", "json"]).ok().json();
    let status = of(&root);
    assert_eq!(status["wanted_image"], "registry.example/os@sha256:0");
    assert_eq!(status["disk_image"], Value::Null);
    let text = root.run(&["status"]).ok().out();
    assert!(
        text.contains("Image     registry.example/os@sha256:0\n") && !text.contains("On disk"),
        "{text}"
    );
    // A layered image is the wanted one.
    let layered = "registry.example/layered@sha256:1";
    root.write("etc/machine-config-daemon/currentimage", layered);
    assert_eq!(of(&root)["wanted_image"], layered);
}

#[test]
fn keys_of_a_missing_core_are_not_said_to_match() {
    let root = TestRoot::new();
    root.apply(&config(ONE, "one\n"));
    let whole = root.run(&["verify"]).ok().out();
    assert!(whole.contains("keys and password match"), "{whole}");
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let said = flat(&root.run(&["verify"]).ok().out());
    for wanted in [
        "Clean: files, units and enablement match the config.",
        "Not checked: keys and password of core, as that user is missing (`mco-rescue apply --key FILE",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let said = flat(&root.run(&["plan"]).ok().out());
    let notice = "the user core is missing, so its keys and password are skipped. Create it: \
                  `mco-rescue apply --key FILE";
    assert!(said.contains(notice), "{said}");
}
