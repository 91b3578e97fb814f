//! Without an argument: what `plan` and `apply` take, and what they say of everything else (docs/reference/fetch.md).

use crate::support::{TestRoot, by_operator, flat_run, say};
use serde_json::{Value, json};

const PODS: &str = "var/log/pods/openshift-machine-config-operator_machine-config-daemon";

fn name(config: &Value) -> &str {
    config["metadata"]["name"].as_str().unwrap()
}

fn import(root: &TestRoot, config: &Value) {
    let config = root.config(config);
    root.run(&["fetch", config.path()]).ok();
}

/// As `fetch` keeps what the API says.
fn annotate(root: &TestRoot, desired: &str) {
    let kept = json!({"version": 1, "node": "n", "seen": 1_750_000_000, "current": null, "desired": desired,
        "state": "Working"});
    root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
}

fn log_line(text: &str) -> String {
    format!(
        "2026-06-11T17:26:38.595644301+02:00 stderr F I0611 17:26:38.595644    3512 update.go:1] {text}\n"
    )
}

/// A log of the running daemon, as the runtime writes it.
fn log(root: &TestRoot, text: &str) {
    let line = log_line(text);
    root.write(&format!("{PODS}-x7_uid/machine-config-daemon/0.log"), &line);
}

/// `plan` and `apply` take the same one for the same reason, and the files are its; every other one is told.
fn takes(what: &str, root: &TestRoot, config: &Value, why: &str, others: &[(&str, &str)]) {
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name(config), "{what}");
    let chosen = plan["chosen"].as_str().unwrap();
    assert!(chosen.contains(why), "{what}: {chosen}");
    let told = plan["others"].as_array().unwrap();
    assert_eq!(told.len(), others.len(), "{what}: {told:?}");
    for (told, (name, why)) in told.iter().zip(others) {
        assert_eq!(told["name"], *name, "{what}");
        let said = told["why"].as_str().unwrap();
        assert!(said.contains(why), "{what}: {said}");
    }
    let text = flat_run(&root.run(&["plan"]).ok());
    for (name, why) in others {
        assert!(text.contains(name) && text.contains(why), "{what}: {text}");
    }
    let applied = flat_run(&root.run(&["apply", "--yes"]).ok());
    assert!(applied.contains(name(config)), "{what}: {applied}");
    assert!(applied.contains(why), "{what}: {applied}");
    let verified = root.run(&["verify"]).ok();
    assert!(verified.out().contains(name(config)), "{what}");
    say(&format!("{what}: {why}"));
}

#[test]
fn the_recorded_config_is_taken_and_what_was_fetched_since_only_told() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let root = TestRoot::new();
    root.apply(&old);
    root.write("etc/pool.conf", "edited\n");
    takes(
        "only a record",
        &root,
        &old,
        "the recorded config of this node",
        &[],
    );
    import(&root, &new);
    root.write("etc/pool.conf", "edited again\n");
    let others = [(
        name(&new),
        "in the cache, not requested; use it with cached:",
    )];
    takes(
        "newer in the cache",
        &root,
        &old,
        "the recorded config of this node",
        &others,
    );
    assert_eq!(root.read("etc/pool.conf"), "old\n");
}

#[test]
fn the_wanted_config_is_taken_if_it_is_at_hand() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let root = TestRoot::new();
    root.apply(&old);
    annotate(&root, name(&new));
    let missing = [(
        name(&new),
        "last desired by the cluster, but the cache has no intact copy",
    )];
    takes(
        "wanted, but nowhere",
        &root,
        &old,
        "the recorded config of this node",
        &missing,
    );
    import(&root, &new);
    let others = [(
        name(&old),
        "recorded, but the cluster desired another one later",
    )];
    takes(
        "wanted and at hand",
        &root,
        &new,
        "the cluster's last desired config",
        &others,
    );
    takes(
        "wanted and recorded",
        &root,
        &new,
        "the recorded config of this node",
        &[],
    );
}

/// The same name with other contents, as somebody might hand it over.
fn altered(config: &Value) -> Value {
    let mut altered = config.clone();
    altered["spec"]["config"]["storage"]["files"][0]["contents"]["source"] = json!("data:,altered");
    altered
}

#[test]
fn a_config_that_is_not_what_its_name_says_is_never_taken_unasked() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let root = TestRoot::new();
    root.apply(&old);
    import(&root, &altered(&old));
    let others = [(name(&old), "with the same name but other contents")];
    takes(
        "the recorded name borrowed",
        &root,
        &old,
        "the recorded config of this node",
        &others,
    );
    import(&root, &altered(&new));
    annotate(&root, name(&new));
    let others = [
        (
            name(&new),
            "the hash in its name does not match its contents",
        ),
        (name(&old), "with the same name but other contents"),
    ];
    takes(
        "the wanted name borrowed",
        &root,
        &old,
        "the recorded config of this node",
        &others,
    );
    let text = root.run(&["plan"]).ok().out();
    assert!(
        text.contains("from the node's annotations; its hash does NOT match the contents"),
        "{text}"
    );
}

#[test]
fn the_daemons_log_speaks_where_the_annotations_are_silent() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let starting = format!(
        "\"Starting update from {} to {}: &{{files:true}}\"",
        name(&old),
        name(&new)
    );
    let root = TestRoot::new();
    root.apply(&old);
    import(&root, &new);
    log(&root, &starting);
    annotate(&root, name(&old));
    let others = [(name(&new), "and they take precedence")];
    takes(
        "the log contradicts",
        &root,
        &old,
        "the recorded config of this node",
        &others,
    );
    root.remove("var/lib/mco-rescue/annotations.json");
    let others = [(name(&old), "the cluster desired another one later")];
    let why = "from the daemon's log of 2026-06-11T15:26:38Z";
    takes("the log alone", &root, &new, why, &others);
}

#[test]
fn a_node_without_a_record_takes_what_was_wanted_and_nothing_else() {
    let (wanted, other) = (
        by_operator("worker", "wanted\n"),
        by_operator("worker", "other\n"),
    );
    let root = TestRoot::new();
    let said = flat_run(&root.run(&["plan"]).exits(1));
    assert!(
        said.contains("no config was given, and the node has no currentconfig"),
        "{said}"
    );
    import(&root, &other);
    annotate(&root, name(&wanted));
    let said = flat_run(&root.run(&["apply", "--yes"]).exits(1));
    assert!(
        said.contains(&format!(
            "The cluster's last desired config is {}",
            name(&wanted)
        )),
        "{said}"
    );
    let command = format!("`mco-rescue plan cached:{} --root ", name(&other));
    assert!(said.contains(&command), "{said}");
    assert!(!root.exists("etc/pool.conf"));
    import(&root, &wanted);
    let others = [(name(&other), "not requested")];
    takes(
        "no record, but wanted",
        &root,
        &wanted,
        "the cluster's last desired config",
        &others,
    );
}

#[test]
fn what_was_wanted_before_the_recorded_config_is_not_gone_back_to() {
    let all = ["a\n", "b\n", "c\n"].map(|text| by_operator("worker", text));
    let [before, then, now] = &all;
    let root = TestRoot::new();
    all.iter().for_each(|config| import(&root, config));
    root.apply(now);
    let kept = json!({"version": 1, "node": "n", "seen": 1_750_000_000, "current": name(before),
        "desired": name(then), "state": "Working"});
    root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
    let others = [
        (name(then), "the node has moved on to the recorded one"),
        (name(before), "in the cache, not requested"),
    ];
    takes(
        "wanted before",
        &root,
        now,
        "the recorded config of this node",
        &others,
    );
    root.remove("var/lib/mco-rescue/annotations.json");
    log(
        &root,
        &format!("Completing update to target MachineConfig: {}", name(then)),
    );
    takes(
        "completed before",
        &root,
        now,
        "the recorded config of this node",
        &others,
    );
}

#[test]
fn only_the_daemons_own_log_is_believed() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let line = log_line(&format!(
        "Starting update from {} to {}: &{{}}",
        name(&old),
        name(&new)
    ));
    let root = TestRoot::new();
    root.apply(&old);
    import(&root, &new);
    let secret = root.path("etc/secret.log");
    std::fs::write(&secret, &line).unwrap();
    for path in [
        // Anybody may name a pod so, but not in that namespace.
        "var/log/pods/somebody_machine-config-daemon-x_uid/machine-config-daemon/0.log",
        // Another container of the pod tells what others tell it.
        &format!("{PODS}-x7_uid/kube-rbac-proxy/0.log"),
        &format!("{PODS}-x7_uid/machine-config-daemon/0.log.20260611.gz"),
    ] {
        root.write(path, &line);
    }
    root.link(
        &format!("{PODS}-x7_uid/machine-config-daemon/1.log"),
        "/etc/secret.log",
    );
    std::fs::create_dir(root.path(&format!("{PODS}-x7_uid/machine-config-daemon/2.log"))).unwrap();
    let fifo = root.path(&format!("{PODS}-x7_uid/machine-config-daemon/3.log"));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name(&old));
    // The copy that the daemon keeps of its own counts, wherever it lies below.
    root.write(
        "etc/machine-config-daemon/previous-logs/pod/machine-config-daemon/4.log",
        &line,
    );
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name(&new));
}

#[test]
fn of_a_large_log_the_end_is_read_and_the_newest_line_counts() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let root = TestRoot::new();
    root.apply(&old);
    import(&root, &new);
    let going_to = |to: &Value| {
        let (from, to) = (name(&old), name(to));
        log_line(&format!("Starting update from {from} to {to}: &{{}}"))
    };
    let path = format!("{PODS}-x7_uid/machine-config-daemon/0.log");
    let noise = log_line("nothing of interest").repeat(60_000);
    root.write(&path, &(going_to(&new) + &noise));
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name(&old), "five megabytes before the end");
    root.write(&path, &(noise + &going_to(&new)));
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name(&new));
}

#[test]
fn verify_and_show_mean_the_recorded_config_whatever_is_wanted() {
    let (old, new) = (
        by_operator("worker", "old\n"),
        by_operator("worker", "new\n"),
    );
    let root = TestRoot::new();
    root.apply(&old);
    import(&root, &new);
    annotate(&root, name(&new));
    let verified = root.run(&["verify", "--output", "json"]).ok().json();
    assert_eq!(
        (&verified["config"], &verified["clean"]),
        (&json!(name(&old)), &json!(true))
    );
    let shown = root.run(&["show", "--output", "json"]).ok().json();
    assert_eq!(shown["name"], name(&old));
}
