//! A command on a node with a run that stopped half-way: what it names is read first, and that run is asked about by itself.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::support::faults::Scene;
use crate::support::{Run, Snapshot, TestRoot, file, flat, flat_run, machine_config};

/// Runs a command at a terminal on which the answers were typed.
fn at_a_terminal(root: &TestRoot, args: &[&str], answers: &str) -> Run {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut master = std::fs::File::from(terminal.master);
    master.write_all(answers.as_bytes()).unwrap();
    let mut command = root.command(args);
    command.stdin(terminal.slave);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Run::of(command.output().unwrap())
}

/// Everything of the node, without what a lock or a status may leave.
fn tree(root: &TestRoot) -> Snapshot {
    root.everything()
}

fn other() -> serde_json::Value {
    machine_config(
        "rendered-worker-other",
        json!({"storage": {"files": [file("/etc/other.conf", 0o644, "other\n")]}}),
    )
}

#[test]
fn what_cannot_be_read_leaves_an_interrupted_run_alone() {
    let Some(scene) = Scene::update() else {
        return;
    };
    let root = scene.half_way();
    let before = tree(&root);
    let broken = root.config(&json!({"kind": "MachineConfig", "spec": 3}));
    let other = root.config(&other());
    for args in [
        &["apply", "/missing.yaml"][..],
        &["apply", "cached:x"],
        &["apply", "--latest"],
        &["apply", broken.path()],
        &["apply", other.path(), "--policy", "/missing.yaml"],
        &["rollback", "--to", "x"],
    ] {
        for yes in [&[][..], &["--yes"]] {
            let args = [args, yes].concat();
            let run = root.run(&args).exits(1);
            assert!(!flat_run(&run).contains("was finished"), "{args:?}");
            assert!(tree(&root) == before, "{args:?} changed the node");
        }
    }
}

#[test]
fn without_an_answer_the_commands_that_end_an_interrupted_run_are_printed() {
    let Some(scene) = Scene::update() else {
        return;
    };
    let root = scene.half_way();
    let before = tree(&root);
    let other = root.config(&other());
    for args in [&["apply", other.path()][..], &["apply"], &["rollback"]] {
        let run = root.run(args).exits(1);
        let said = flat(&run.err());
        let shown = root.dir().display();
        for words in [
            "was interrupted, ".to_owned(),
            " of ".to_owned(),
            format!("Finish it: mco-rescue recover --root {shown}"),
            format!("revert it: mco-rescue recover --back --root {shown}"),
            "Nothing was changed".to_owned(),
        ] {
            assert!(said.contains(&words), "{args:?}: {words}: {said}");
        }
        assert!(tree(&root) == before, "{args:?} changed the node");
    }
}

#[test]
fn an_answer_finishes_an_interrupted_run_or_takes_it_back() {
    let Some(scene) = Scene::update() else {
        return;
    };
    let other = scene.root().config(&other());
    let args = ["apply", "--allow-removals", "--allow-lockout", other.path()];

    let root = scene.half_way();
    let before = tree(&root);
    let run = at_a_terminal(&root, &args, "s\n").exits(1);
    assert!(
        flat(&run.err()).contains("Nothing was changed"),
        "{}",
        run.err()
    );
    assert!(tree(&root) == before);

    let run = at_a_terminal(&root, &args, "f\nn\n").exits(1);
    let said = flat(&run.err());
    assert!(said.contains("An interrupted run was finished"), "{said}");
    assert!(
        said.contains("Not confirmed. Nothing else was changed"),
        "{said}"
    );
    assert_eq!(scene.unlike_new(&root), [""; 0]);

    let root = scene.half_way();
    let run = at_a_terminal(&root, &args, "b\nn\n").exits(1);
    let said = flat(&run.err());
    assert!(said.contains("An interrupted run was undone"), "{said}");
    assert!(said.contains("Nothing else was changed"), "{said}");
    assert_eq!(scene.unlike_old(&root), [""; 0]);

    // What rollback was asked for is done then.
    let root = scene.half_way();
    let run = at_a_terminal(&root, &["rollback"], "b\n").ok();
    assert!(flat(&run.err()).contains("was undone"), "{}", run.err());
    assert_eq!(scene.unlike_old(&root), [""; 0]);
}

#[test]
fn with_yes_an_interrupted_run_is_finished_and_that_is_said_before() {
    let Some(scene) = Scene::update() else {
        return;
    };
    let root = scene.half_way();
    let other = root.config(&other());
    let mut args = vec!["apply", "--yes", "--allow-removals", "--allow-lockout"];
    args.push(other.path());
    let run = root.run(&args).ok();
    let said = flat(&run.err());
    let first = said.find("was interrupted").expect(&said);
    assert!(said[first..].contains("It is finished first"), "{said}");
    assert!(root.exists("etc/other.conf"));

    // A refusal after it does not say that nothing was changed.
    let root = scene.half_way();
    let run = root.run(&["apply", "--yes", other.path()]).exits(1);
    let said = flat(&run.err());
    assert!(said.contains("nothing else was changed"), "{said}");
    assert_eq!(scene.unlike_new(&root), [""; 0]);
}

#[test]
fn a_dry_run_leaves_an_interrupted_run_alone() {
    let Some(scene) = Scene::update() else {
        return;
    };
    let root = scene.half_way();
    let before = root.everything();
    let run = root.run(&["recover", "--dry-run"]).ok();
    assert!(
        run.out().contains("recover would finish the run to "),
        "{}",
        run.out()
    );
    assert!(
        flat(&run.out()).contains("Nothing was changed. Next: mco-rescue"),
        "{}",
        run.out()
    );
    let run = root.run(&["rollback", "--dry-run", "--yes"]).exits(1);
    assert!(
        flat(&run.err()).contains("a dry run does not recover it"),
        "{}",
        run.err()
    );
    assert!(root.everything() == before);
    let healthy = TestRoot::new();
    assert_eq!(
        healthy.run(&["recover", "-n"]).ok().out(),
        "Nothing to recover.\n"
    );
}
