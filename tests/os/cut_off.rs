//! A run of operating system and files that is killed at each call around its commit: `recover`, then `rollback`, lead to the
//! state before, whichever engine staged it, and the next boot brings nothing.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::faults::{Call, calls, can_trace, copy_tree};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{AWAITED, IMAGE, NEXT, OstreeNode, Turn, service_config};
use crate::support::{RECORD, Run, STATE, say};
use serde_json::Value;

/// Calls that change names or durability.
const CHANGING: [&str; 5] = ["renameat", "linkat", "unlinkat", "fsync", "syncfs"];
/// What a run changes, and what the stubs keep.
const KEPT: [&str; 5] = ["etc", "var", "run", "stub", "home"];

/// A node of either engine in its first config, and its tree then.
struct Scene {
    node: OstreeNode,
    template: tempfile::TempDir,
}

impl Scene {
    fn new(bootc: bool) -> Self {
        let node = if bootc {
            OstreeNode::of_bootc()
        } else {
            OstreeNode::new()
        };
        let write = |path, config: Value| node.root.write(path, &config.to_string());
        write("one", service_config("rendered-worker-1", IMAGE, "one\n"));
        write("two", service_config("rendered-worker-2", NEXT, "two\n"));
        node.run(&["apply", "--yes", "/one"]).ok();
        let template = tempfile::tempdir_in("/dev/shm").unwrap();
        for dir in KEPT {
            fs::create_dir_all(template.path().join(dir)).unwrap();
            copy_tree(&node.root.path(dir), &template.path().join(dir));
        }
        Self { node, template }
    }

    fn reset(&self) {
        for dir in KEPT {
            let to = self.node.root.path(dir);
            fs::remove_dir_all(&to).unwrap();
            fs::create_dir_all(&to).unwrap();
            copy_tree(&self.template.path().join(dir), &to);
        }
    }

    /// The run under strace, killed at a call.
    fn apply(&self, kill: Option<(&str, usize)>) -> (Option<i32>, Vec<Call>) {
        let _turn = Turn::take();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("taskset");
        // With one processor a call has the same number every time.
        command.args(["-c", "0", "strace", "-qq", "-s", "128", "-o"]);
        command.arg(log.path());
        command.args(["-e", &format!("trace={}", CHANGING.join(","))]);
        if let Some((call, nth)) = kill {
            command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
        }
        command.arg("chroot").arg(self.node.root.dir());
        command.args(["/usr/mco-rescue", "apply", "--yes", "/two"]);
        let command = command.stdin(Stdio::null());
        let status = command.output().unwrap().status;
        // Without -f the log has no process ids.
        let log: Vec<String> = fs::read_to_string(log.path())
            .unwrap()
            .lines()
            .map(|line| format!("1 {line}"))
            .collect();
        (status.code(), calls(&log.join("\n")))
    }

    fn recorded(&self) -> String {
        let record: Value = serde_json::from_str(&self.node.root.read(RECORD)).unwrap();
        record["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// What is not as before, after the way back.
    fn unlike_before(&self) -> Vec<String> {
        let root = &self.node.root;
        let mut found = Vec::new();
        if root.read("etc/service.conf") != "one\n" || self.recorded() != "rendered-worker-1" {
            found.push("the files are of the run".to_owned());
        }
        for path in ["stub/staged", "stub/bootc-staged", AWAITED] {
            if root.exists(path) {
                found.push(format!("{path} is there"));
            }
        }
        found
    }
}

fn said(run: &Run) -> String {
    format!("exit code {}: {}{}", run.code(), run.out(), run.err())
}

/// The calls from some before the mark of the commit to the end of the run, each with its number.
fn around_the_commit(all: &[Call]) -> Vec<(&'static str, usize)> {
    let mark = all
        .iter()
        .position(|call| call.name == "renameat" && call.line.contains(".committed.new"))
        .unwrap();
    let mut points = Vec::new();
    for (at, call) in all.iter().enumerate().skip(mark - 12) {
        let name = CHANGING.iter().find(|name| **name == call.name).unwrap();
        let nth = all[..=at].iter().filter(|one| one.name == *name).count();
        points.push((*name, nth));
    }
    points
}

/// Kills at each call; the problems of all of them.
fn every_kill(scene: &Scene, step: usize) -> (usize, Vec<String>) {
    let (code, all) = scene.apply(None);
    assert_eq!(code, Some(0));
    let points: Vec<_> = around_the_commit(&all).into_iter().step_by(step).collect();
    let mut problems = Vec::new();
    for (at, point) in points.iter().enumerate() {
        scene.reset();
        let (code, _) = scene.apply(Some(*point));
        assert_eq!(code, None, "{point:?} was not reached");
        let mut ways: Vec<&[&str]> = vec![&["recover"], &["rollback", "--yes"]];
        // The way back finishes what was interrupted by itself, too.
        ways.drain(..at % 2);
        for way in ways {
            let run = scene.node.run(way);
            if run.code() != 0 {
                problems.push(format!("{point:?}: {way:?}: {}", said(&run)));
            }
        }
        let unlike = scene.unlike_before().into_iter();
        problems.extend(unlike.map(|what| format!("{point:?}: after the way back {what}")));
        let boot = scene.node.run(&["complete"]);
        if boot.code() != 0 || !boot.out().contains("No run is waiting for a reboot") {
            problems.push(format!("{point:?}: the next boot: {}", said(&boot)));
        }
    }
    (points.len(), problems)
}

#[test]
fn a_run_that_is_killed_around_its_commit_can_be_taken_back() {
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        for (bootc, step) in [(false, 1), (true, 3)] {
            let scene = Scene::new(bootc);
            let (tried, problems) = every_kill(&scene, step);
            say(&format!("killed around the commit, bootc {bootc}: {tried}"));
            assert!(problems.is_empty(), "{}", problems.join("\n"));
        }
    });
}

#[test]
fn a_run_that_was_killed_before_it_is_noted_counts_as_one_with_an_operating_system() {
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        let scene = Scene::new(false);
        let (_, all) = scene.apply(None);
        let at = all
            .iter()
            .filter(|call| call.name == "renameat")
            .position(|call| call.line.contains("os-runs.json"))
            .unwrap();
        scene.reset();
        scene.apply(Some(("renameat", at + 1)));
        assert!(!scene.node.root.exists(&format!("{STATE}/os-runs.json")));
        let list = scene
            .node
            .run(&["rollback", "--list", "--output", "json"])
            .ok()
            .json();
        assert!(list["runs"][0]["operating_system"].is_string(), "{list}");
    });
}
