//! Many nodes: the real `ansible-playbook` runs the playbook of `examples/ansible` against roots on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::ansible::{self, Fleet};
use crate::support::{PROGRAM, TestRoot, by_operator, file, machine_config, unused_port};
use serde_json::{Value, json};

/// As long as a real one, and without a digest that could be wrong.
const NAME: &str = "rendered-worker-0123456789abcdef0123456789abcdex";
const HASH: &str = "$6$salt$thehashthatnobodymaysee";
const SECRET: &str = "thesecretthatnobodymaysee";

/// A config that holds secrets of both kinds.
fn config() -> Value {
    machine_config(
        NAME,
        json!({
            "storage": {"files": [
                file("/etc/pool.conf", 0o644, "of the pool\n"),
                file("/etc/secret", 0o600, SECRET),
            ]},
            "passwd": {"users": [{"name": "core", "passwordHash": HASH, "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]},
        }),
    )
}

/// Two nodes of a fleet, `first` and `second`, with a config on the control host.
struct Pair {
    fleet: Fleet,
    first: TestRoot,
    second: TestRoot,
    config: PathBuf,
}

impl Pair {
    fn new() -> Option<Self> {
        let mut fleet = Fleet::new()?;
        let (first, second) = (TestRoot::new(), TestRoot::new());
        fleet.host("first", first.dir());
        fleet.host("second", second.dir());
        let config = fleet.write("the config.json", &config().to_string());
        Some(Self {
            fleet,
            first,
            second,
            config,
        })
    }

    /// Both with the config, and with nothing else.
    fn applied() -> Option<Self> {
        let pair = Self::new()?;
        pair.first.apply(&config());
        pair.second.apply(&config());
        Some(pair)
    }

    fn given(&self) -> Value {
        json!({"mco_rescue_config": self.config})
    }
}

#[test]
fn the_playbook_is_well_formed() {
    let Some(pair) = Pair::new() else { return };
    let play = pair.fleet.play(&json!({}), &["--syntax-check"]).ok();
    assert!(!play.said().contains("WARNING"), "{}", play.said());
}

#[test]
fn the_first_run_changes_every_node_and_the_second_none() {
    let Some(pair) = Pair::new() else { return };
    let play = pair.fleet.play(&pair.given(), &[]).ok();
    for (host, root) in [("first", &pair.first), ("second", &pair.second)] {
        assert_eq!(play.count(host, "changed"), Some(1), "{}", play.said());
        assert_eq!(root.read("etc/pool.conf"), "of the pool\n");
        root.run(&["verify"]).ok();
        let report = pair.fleet.report(host).unwrap();
        assert_eq!(report["schema"], "mco-rescue/status/v1");
        assert_eq!(report["recorded"], NAME);
        assert_eq!(report["root"], json!(root.dir()));
        assert_eq!(report["last_run"]["outcome"], "done");
        let findings = pair.fleet.report(&format!("{host}.doctor")).unwrap();
        assert_eq!(findings["schema"], "mco-rescue/doctor/v1");
    }
    // What was gathered is what `report` reads.
    let gathered = pair.fleet.path("reports");
    let mut command = std::process::Command::new(crate::support::PROGRAM);
    command.args(["--output", "json", "report"]).arg(gathered);
    let page = crate::support::Run::of(command.output().unwrap()).json();
    let mut names: Vec<&str> = page["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(pair.fleet.left_behind(), Vec::<PathBuf>::new());

    let before = [pair.first.everything(), pair.second.everything()];
    let play = pair.fleet.play(&pair.given(), &[]).ok();
    for host in ["first", "second"] {
        assert_eq!(play.count(host, "changed"), Some(0), "{}", play.said());
    }
    assert_eq!([pair.first.everything(), pair.second.everything()], before);
}

#[test]
fn one_node_that_differs_is_the_only_one_that_changes() {
    let Some(pair) = Pair::applied() else { return };
    pair.second.write("etc/pool.conf", "by hand\n");
    let first = pair.first.everything();
    let play = pair.fleet.play(&pair.given(), &[]).ok();
    assert_eq!(play.count("first", "changed"), Some(0), "{}", play.said());
    assert_eq!(play.count("second", "changed"), Some(1), "{}", play.said());
    assert_eq!(pair.first.everything(), first);
    assert_eq!(pair.second.read("etc/pool.conf"), "of the pool\n");
}

#[test]
fn check_mode_tells_what_would_change_and_changes_nothing() {
    let Some(pair) = Pair::new() else { return };
    pair.first.apply(&config());
    let before = [pair.first.everything(), pair.second.everything()];
    let play = pair.fleet.play(&pair.given(), &["--check"]).ok();
    assert_eq!(play.count("first", "changed"), Some(0), "{}", play.said());
    assert_eq!(play.count("second", "changed"), Some(1), "{}", play.said());
    assert!(
        play.said().contains("\"/etc/pool.conf\""),
        "{}",
        play.said()
    );
    assert_eq!([pair.first.everything(), pair.second.everything()], before);
    assert!(!pair.fleet.path("reports").exists());
    assert_eq!(pair.fleet.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn a_blocker_ends_the_run_in_its_own_words_before_the_next_node_is_touched() {
    let Some(pair) = Pair::new() else { return };
    fs::create_dir_all(pair.first.path("etc/pool.conf/by-hand")).unwrap();
    let before = [pair.first.snapshot(), pair.second.everything()];
    for options in [&["--check"][..], &[]] {
        let play = pair.fleet.play(&pair.given(), options).fails();
        let words = "/etc/pool.conf: a directory is where a file should be";
        assert!(play.said().contains(words), "{}", play.said());
        assert_eq!(play.count("first", "failed"), Some(1), "{}", play.said());
        assert_eq!(play.count("second", "ok"), None, "{}", play.said());
        assert_eq!([pair.first.snapshot(), pair.second.everything()], before);
        assert_eq!(pair.fleet.left_behind(), Vec::<PathBuf>::new());
    }
    // What is known of the one that failed is gathered all the same.
    assert_eq!(pair.fleet.report("first").unwrap()["recorded"], Value::Null);
    assert_eq!(pair.fleet.report("second"), None);
}

#[test]
fn a_node_that_cannot_be_reached_ends_the_run_too() {
    let Some(mut fleet) = Fleet::new() else {
        return;
    };
    let second = TestRoot::new();
    let port = unused_port(&["127.0.0.1"]);
    let nobody =
        json!({"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": port});
    fleet.host_with("first", nobody);
    fleet.host("second", second.dir());
    let before = second.everything();
    let config = fleet.write("config.json", &config().to_string());
    let play = fleet.play(&json!({"mco_rescue_config": config}), &[]);
    let play = play.fails();
    assert_eq!(
        play.count("first", "unreachable"),
        Some(1),
        "{}",
        play.said()
    );
    assert_eq!(play.count("second", "ok"), None, "{}", play.said());
    assert_eq!(second.everything(), before);
}

/// The program, called by a script that may look or do something else too.
fn instead(pair: &Pair, script: &str) -> Value {
    let script = pair
        .fleet
        .write("instead", &format!("#!/bin/sh\n{script}\n"));
    json!({"mco_rescue_config": pair.config, "mco_rescue_binary": script})
}

#[test]
fn a_node_that_differs_after_all_ends_the_run() {
    let Some(pair) = Pair::new() else { return };
    let first = pair.first.path("etc/pool.conf");
    let script = format!(
        "{PROGRAM} \"$@\"; code=$?; case $* in *' apply '*) echo more >>{}; esac; exit $code",
        first.display()
    );
    let play = pair.fleet.play(&instead(&pair, &script), &[]).fails();
    let words = "/etc/pool.conf: content differs";
    assert!(play.said().contains(words), "{}", play.said());
    assert_eq!(play.count("first", "changed"), Some(1), "{}", play.said());
    assert_eq!(play.count("second", "ok"), None, "{}", play.said());
    assert!(!pair.second.exists("etc/pool.conf"));
}

#[test]
fn nobody_but_its_owner_can_read_the_config_on_the_node_and_no_secret_is_said() {
    let Some(pair) = Pair::new() else { return };
    let seen = pair.fleet.path("seen");
    let script = format!(
        "cd \"${{0%/*}}\" && stat -c '%a %n' . * >>{}; exec {PROGRAM} \"$@\"",
        seen.display()
    );
    let play = pair.fleet.play(&instead(&pair, &script), &["-vvv"]).ok();
    let seen = fs::read_to_string(seen).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.len() % 3, 0, "{seen}");
    assert!(lines.len() >= 2 * 3 * 4, "too few calls: {seen}");
    for call in lines.chunks(3) {
        assert_eq!(call, ["700 .", "600 config", "700 mco-rescue"]);
    }
    for secret in [HASH, SECRET] {
        assert!(!play.said().contains(secret), "{}", play.said());
    }
    let report = fs::metadata(pair.fleet.path("reports/first.json")).unwrap();
    assert_eq!(report.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_config_of_the_nodes_cache_is_named_and_nothing_is_copied() {
    let Some(pair) = Pair::new() else { return };
    let config = by_operator("worker", "of the cache\n");
    for root in [&pair.first, &pair.second] {
        let file = root.config(&config);
        root.run(&["fetch", file.path()]).ok();
    }
    let given = json!({"mco_rescue_config": "cached:rendered-worker-"});
    let play = pair.fleet.play(&given, &[]).ok();
    for (host, root) in [("first", &pair.first), ("second", &pair.second)] {
        assert_eq!(play.count(host, "changed"), Some(1), "{}", play.said());
        assert_eq!(root.read("etc/pool.conf"), "of the cache\n");
    }
}

#[test]
fn without_a_config_each_node_gets_back_what_it_is_recorded_to_be_in() {
    let Some(pair) = Pair::applied() else { return };
    pair.first.write("etc/pool.conf", "by hand\n");
    pair.second.remove("etc/secret");
    let play = pair.fleet.play(&json!({}), &[]).ok();
    for (host, root) in [("first", &pair.first), ("second", &pair.second)] {
        assert_eq!(play.count(host, "changed"), Some(1), "{}", play.said());
        root.run(&["verify"]).ok();
    }
}

/// Kills an `apply` at one call after the other of this kind, until what it leaves is called so by `status`.
fn cut_off(root: &TestRoot, call: &str, pending: &str) {
    for count in 1..50 {
        root.run(&["recover"]).ok();
        for path in ["etc/pool.conf", "etc/secret"] {
            root.write(path, "by hand\n");
        }
        let file = root.config(&config());
        let kill = format!("inject={call}:signal=SIGKILL:when={count}");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-e", &kill, PROGRAM, "--root"]);
        strace.arg(root.dir()).args(["apply", "--yes", file.path()]);
        strace.output().unwrap();
        if status(root) == pending {
            return;
        }
    }
    panic!("no {call} leaves a run that is {pending}");
}

fn status(root: &TestRoot) -> Value {
    root.run(&["status", "--output", "json"]).ok().json()["pending"].clone()
}

#[test]
fn a_run_that_was_cut_off_is_finished_also_where_the_plan_is_empty() {
    let Some(pair) = Pair::applied() else { return };
    cut_off(&pair.first, "renameat", "unfinished");
    cut_off(&pair.second, "unlinkat", "committed");
    let plan = ["plan", "--output", "json"];
    assert_eq!(pair.second.run(&plan).ok().json()["steps"], json!([]));
    let play = pair.fleet.play(&pair.given(), &[]).ok();
    for (host, root) in [("first", &pair.first), ("second", &pair.second)] {
        assert_eq!(play.count(host, "changed"), Some(1), "{}", play.said());
        assert_eq!(status(root), "nothing");
        root.run(&["verify"]).ok();
    }
}

#[test]
fn options_are_passed_on_and_a_wrong_one_changes_nothing() {
    let Some(pair) = Pair::applied() else { return };
    let before = pair.first.everything();
    let mut given = pair.given();
    given["mco_rescue_options"] = json!(["--no-such-option"]);
    let play = pair.fleet.play(&given, &[]).fails();
    assert!(play.said().contains("--no-such-option"), "{}", play.said());
    assert_eq!(pair.first.everything(), before);
    let missing = json!({"mco_rescue_config": "/nonexistent/worker.yaml"});
    let play = pair.fleet.play(&missing, &[]).fails();
    assert!(
        play.said().contains("/nonexistent/worker.yaml"),
        "{}",
        play.said()
    );
    assert_eq!(pair.fleet.left_behind(), Vec::<PathBuf>::new());

    // Arguments of the kernel cannot be set on a root that does not run.
    let mut config = config();
    config["metadata"]["name"] = json!("rendered-worker-1111111111111111111111111111111x");
    config["spec"]["kernelArguments"] = json!(["nohz=on"]);
    pair.fleet.write("the config.json", &config.to_string());
    let refused = pair.fleet.play(&pair.given(), &[]).fails();
    assert!(
        refused.said().contains("--files-only"),
        "{}",
        refused.said()
    );
    given["mco_rescue_options"] = json!(["--files-only"]);
    let play = pair.fleet.play(&given, &[]).ok();
    assert_eq!(play.count("second", "changed"), Some(1), "{}", play.said());
}

// The playbook of a fleet.

/// The number of workers: a few, or as many as `MCO_RESCUE_FLEET` says.
fn workers() -> usize {
    let asked = std::env::var("MCO_RESCUE_FLEET").ok();
    asked.map_or(3, |number| number.parse().unwrap())
}

#[test]
fn a_fleet_is_brought_to_its_config_stops_at_a_bad_node_and_goes_on_where_it_stopped() {
    let Some(mut fleet) = Fleet::new() else {
        return;
    };
    let mut roots = vec![("master-0".to_owned(), TestRoot::new())];
    roots.extend((0..workers()).map(|n| (format!("worker-{n:03}"), TestRoot::new())));
    for (name, root) in &roots {
        fleet.host(name, root.dir());
    }
    let config = fleet.write("the config.json", &config().to_string());
    // A directory in the place of a file stops the last worker.
    let (bad, root) = roots.last().unwrap();
    fs::create_dir_all(root.path("etc/pool.conf")).unwrap();
    let given = json!({
        "mco_rescue_config": config,
        "mco_rescue_max_unavailable": workers(),
        "mco_rescue_report_program": PROGRAM,
    });
    let play = fleet.play_fleet(&given, &["--forks", "4"]).fails();
    assert!(play.said().contains("/etc/pool.conf"), "{}", play.said());
    for (name, root) in &roots {
        let done = root.exists("etc/secret");
        assert_eq!(done, name != bad, "{name}: {}", play.said());
    }
    let page = fleet.path("reports/fleet.html");
    assert!(page.exists(), "no page after a failure: {}", play.said());

    fs::remove_dir(root.path("etc/pool.conf")).unwrap();
    let mut again = given;
    again["mco_rescue_resume"] = json!(true);
    let before: Vec<_> = roots.iter().map(|(_, root)| root.everything()).collect();
    let play = fleet.play_fleet(&again, &["--forks", "4"]).ok();
    for ((name, root), before) in roots.iter().zip(before) {
        if name == bad {
            root.run(&["verify"]).ok();
        } else {
            assert!(root.everything() == before, "{name}: {}", play.said());
        }
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(roots.iter().all(|(name, _)| page.contains(name.as_str())));
    assert_eq!(fleet.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn ansible_lint_finds_nothing_in_the_collection() {
    let Some(mut lint) = ansible::lint() else {
        return;
    };
    let scratch = TestRoot::empty();
    // It writes beside what it reads.
    let status = Command::new("cp")
        .args(["-r", "examples/ansible"])
        .arg(scratch.path("collection"))
        .status();
    assert!(status.unwrap().success());
    lint.args(["--offline", "--nocolor", "--profile", "production"]);
    lint.env("HOME", scratch.dir());
    let output = lint.current_dir(scratch.path("collection")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("0 failure(s), 0 warning(s)"), "{said}");
    assert!(!said.contains("in 0 files"), "{said}");
}
