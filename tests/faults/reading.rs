//! EIO at every call that only looks, in commands that change a node and in those that show it: what cannot be read is
//! neither missing nor as wanted.
//!
//! An exit code of 0 means the result of the undisturbed command. After any other one the reason was printed, `recover`
//! leads to the tree from before or the new one, and the same command then does its work.
//! `MCO_RESCUE_FAULTS=all` (`make faults`) tries every call, else a sample is tried.

use serde_json::{Value, json};

use crate::support::faults::{
    Call, READING, Traced, demand, differences, duplicate, on_threads, traced,
};
use crate::support::mounts::{mount, with_mounts};
use crate::support::scenes::{can_disturb, everything_is_asked_for};
use crate::support::{Snapshot, TestRoot, file, machine_config, say};

fn config(letter: char) -> Value {
    let mut files = vec![file("/etc/app.conf", 0o644, &format!("{letter}\n"))];
    if letter != 'a' {
        files.push(file(&format!("/etc/{letter}.conf"), 0o600, "its own\n"));
    }
    let text =
        format!("[Service]\nExecStart=/bin/{letter}\n[Install]\nWantedBy=multi-user.target\n");
    let unit = json!({"name": format!("{letter}.service"), "enabled": true, "contents": text});
    machine_config(
        &format!("rendered-worker-{letter}"),
        json!({"storage": {"files": files}, "systemd": {"units": [unit]}}),
    )
}

/// A node with three runs in its history.
fn node() -> TestRoot {
    let root = TestRoot::new();
    for letter in ['a', 'b', 'c'] {
        root.apply(&config(letter)).ok();
    }
    root
}

/// A command, and the node on which it runs.
struct Command {
    name: &'static str,
    node: TestRoot,
    args: Vec<String>,
    after: Snapshot,
    out: String,
    calls: Vec<Call>,
}

impl Command {
    /// Runs it once without a fault.
    fn on(name: &'static str, node: TestRoot, args: &[&str]) -> Self {
        let root = duplicate(node.dir());
        let clean = traced(&root, &READING.join(","), &[], args);
        assert_eq!(clean.code, Some(0), "{name}: {}{}", clean.out, clean.err);
        Self {
            name,
            node,
            args: args.iter().map(|&word| word.to_owned()).collect(),
            after: root.snapshot(),
            out: clean.out.replace(root.dir().to_str().unwrap(), "ROOT"),
            calls: clean.calls,
        }
    }

    fn words(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    /// Every call by name and number, or a sample of them.
    fn points(&self) -> Vec<(&'static str, usize)> {
        let mut all = Vec::new();
        for name in READING {
            let number = self.calls.iter().filter(|call| call.name == name).count();
            let each = if everything_is_asked_for() {
                1
            } else {
                number.div_ceil(3).max(1)
            };
            all.extend((1..=number).step_by(each).map(|nth| (name, nth)));
        }
        all
    }

    fn try_point(&self, (call, nth): (&str, usize)) -> Vec<String> {
        let root = duplicate(self.node.dir());
        let before = root.snapshot();
        let fault = format!("{call}:error=EIO:when={nth}");
        let run = traced(&root, call, &[fault], &self.words());
        let injected = run.calls.iter().find(|one| one.line.contains("(INJECTED)"));
        let Some(injected) = injected else {
            // Another processor's work has shifted the numbers.
            return Vec::new();
        };
        let mut problems = self.judge(&root, &before, &run);
        problems.extend(demand(&root, &["recover"], 0));
        let after = differences(&self.after, &root);
        // They may end after a part, as they say; the same command does the rest.
        let is_whole = !["install", "rollback --to", "doctor --fix"].contains(&self.name);
        if is_whole && !after.is_empty() && !differences(&before, &root).is_empty() {
            problems.extend(after);
        }
        // Once everything can be read, it does its work.
        let again = traced(&root, call, &[], &self.words());
        if !is_whole {
            problems.extend(self.differs(&root));
        }
        let is_done = run.code == Some(0) && again.code == Some(1);
        if again.code != Some(0) && !is_done {
            problems.push(format!(
                "ends with {:?} afterwards: {}",
                again.code, again.err
            ));
        }
        let what = format!(
            "{}: EIO at {call} number {nth} ({})",
            self.name, injected.line
        );
        let said = format!("exit code {:?}, said: {}", run.code, run.err);
        problems
            .into_iter()
            .map(|problem| format!("{what}: {problem}; {said}"))
            .collect()
    }

    /// What `doctor --fix` moved aside has the time in its name.
    fn differs(&self, root: &TestRoot) -> Vec<String> {
        let mut all = differences(&self.after, root);
        all.retain(|one| !one.contains(".json.mco-rescue-"));
        all
    }

    fn judge(&self, root: &TestRoot, before: &Snapshot, run: &Traced) -> Vec<String> {
        let out = run.out.replace(root.dir().to_str().unwrap(), "ROOT");
        match run.code {
            Some(0) => {
                let mut problems = self.differs(root);
                let is_said = run.err.lines().any(|line| line.starts_with("warn: "));
                if self.after == *before && !is_said && shown(&out) != shown(&self.out) {
                    problems.push(format!("shows without a warning: {out}"));
                }
                problems
            }
            Some(1 | 3 | 4 | 5) if run.err.lines().any(|line| line.starts_with("error: ")) => {
                Vec::new()
            }
            code => vec![format!("ended with {code:?} without an error: {out}")],
        }
    }
}

/// What is shown, without the times.
fn shown(out: &str) -> Value {
    let mut document: Value = serde_json::from_str(out).unwrap_or(json!(out));
    if let Some(fields) = document.as_object_mut() {
        fields.remove("now");
    }
    document
}

/// With a file of the daemon that `doctor --fix` removes.
fn damaged(root: &TestRoot) -> TestRoot {
    let root = duplicate(root.dir());
    let directory = "etc/machine-config-daemon";
    root.write(&format!("{directory}/node-annotation.json.bak"), "{}");
    root.write(&format!("{directory}/node-annotations.json"), "{\"");
    root
}

fn commands(root: &TestRoot) -> Vec<Command> {
    let status = root.run(&["status", "--output", "json"]).ok().json();
    let second = status["history"][1]["id"].as_str().unwrap().to_owned();
    let new = root.config(&config('d'));
    let place = root.dir().join("d.json");
    std::fs::copy(new.path(), &place).unwrap();
    let d = place.to_str().unwrap();
    let fresh = || duplicate(root.dir());
    vec![
        Command::on("apply", fresh(), &["apply", "--yes", d]),
        Command::on("rollback", fresh(), &["rollback", "--yes"]),
        Command::on(
            "rollback --to",
            fresh(),
            &["rollback", "--yes", "--to", &second],
        ),
        Command::on("install", fresh(), &["install"]),
        Command::on(
            "doctor --fix",
            damaged(root),
            &["doctor", "--fix", "FP-22", "--yes"],
        ),
        Command::on("status", fresh(), &["status", "--output", "json"]),
        Command::on(
            "--list",
            fresh(),
            &["rollback", "--list", "--output", "json"],
        ),
        Command::on("verify", fresh(), &["verify", "--output", "json"]),
    ]
}

#[test]
fn what_cannot_be_read_is_neither_missing_nor_as_wanted() {
    if !can_disturb() {
        return;
    }
    try_all(&commands(&node()));
}

/// Tries a sample of the calls of each command, or all of them.
fn try_all(commands: &[Command]) {
    let points = commands.iter().flat_map(|command| {
        let points = command.points().into_iter();
        points.map(move |point| (command, point))
    });
    let points: Vec<_> = points.collect();
    let problems = on_threads(&points, |(command, point)| command.try_point(*point));
    say(&format!("{} calls could not be read", points.len()));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// In the initramfs, whose `/run` and command line are those of a mount namespace.
#[test]
fn a_first_boot_that_cannot_read_something_says_so() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        mount(&["-t", "tmpfs", "run", "/run"]);
        let root = TestRoot::new();
        root.write("etc/machine-id", "");
        let own = config('a').to_string();
        root.write("usr/lib/mco-rescue/configs/a.json", &own);
        let args = ["firstboot", "--kernel-arguments", "mco_rescue=auto"];
        try_all(&[Command::on("firstboot", root, &args)]);
    });
}

/// A snapshot of a node that did not change shows no difference from the one before: what could not be read is named.
#[test]
fn what_a_snapshot_could_not_read_is_not_a_change() {
    if !can_disturb() {
        return;
    }
    let root = node();
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "title one\noptions rw\n",
    );
    root.write("boot/vmlinuz-6.1", "kernel");
    root.run(&["record"]).ok();
    let record = Command::on("record", root, &["record"]);
    let problems = on_threads(&record.points(), |(call, nth)| {
        let root = duplicate(record.node.dir());
        let fault = format!("{call}:error=EIO:when={nth}");
        let run = traced(&root, call, &[fault], &record.words());
        let injected = run.calls.iter().find(|one| one.line.contains("(INJECTED)"));
        let line = injected.map_or("", |one| one.line.as_str()).to_owned();
        if run.code != Some(0) {
            let is_said = run.err.lines().any(|line| line.starts_with("error: "));
            let silent = (!is_said).then(|| format!("{line}: ended with {:?}", run.code));
            return silent.into_iter().collect();
        }
        let history = root.run(&["history", "--output", "json"]).ok().json();
        if history["entries"][0]["snapshot"] == 1 {
            return Vec::new();
        }
        let found = root.run(&["diff", "1", "2", "--output", "json"]).json();
        let all = found["differences"].as_array().unwrap().iter();
        let words = all.map(|one| format!("{line}: {one}; said {}", run.err));
        words.collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The first reading of the history fails, at every listing of a directory.
#[test]
fn an_unreadable_history_is_not_an_empty_one() {
    if !can_disturb() {
        return;
    }
    let root = node();
    let listed = |args: &[&str]| {
        let clean = traced(&duplicate(root.dir()), "getdents64", &[], args);
        clean
            .calls
            .iter()
            .filter(|call| call.name == "getdents64")
            .count()
    };
    let mut unreadable = 0;
    for args in [
        &["status", "--output", "json"][..],
        &["rollback", "--list", "--output", "json"],
        &["rollback", "--yes"],
    ] {
        for nth in 1..=listed(args) {
            let copy = duplicate(root.dir());
            let fault = format!("getdents64:error=EIO:when={nth}");
            let run = traced(&copy, "getdents64", &[fault], args);
            assert!(
                !run.err.contains("nothing to go back to"),
                "{args:?} {nth}: {}",
                run.err
            );
            if args[0] == "status" && run.code == Some(0) {
                let status: Value = serde_json::from_str(&run.out).unwrap();
                if status["unreadable"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("history"))
                {
                    assert_eq!(status["history"], Value::Null, "{nth}");
                    assert!(run.err.contains("I/O error"), "{}", run.err);
                    unreadable += 1;
                } else {
                    assert_eq!(status["history"].as_array().unwrap().len(), 3, "{nth}")
                }
            }
            if args[1] == "--list" && run.code == Some(0) {
                let list: Value = serde_json::from_str(&run.out).unwrap();
                assert_eq!(list["runs"].as_array().unwrap().len(), 3, "{nth}");
            }
        }
    }
    assert!(
        unreadable > 0,
        "no listing of status was that of the history"
    );
}

/// A fault at each call of this name with such a line, as the undisturbed command makes them.
fn faults_at(root: &TestRoot, call: &str, part: &str, args: &[&str]) -> Vec<String> {
    let clean = traced(&duplicate(root.dir()), call, &[], args);
    let named = clean.calls.iter().filter(|one| one.name == call);
    let hit = named.enumerate().filter(|(_, one)| one.line.contains(part));
    hit.map(|(at, _)| format!("{call}:error=EIO:when={}", at + 1))
        .collect()
}

#[test]
fn the_end_of_a_rollback_claims_nothing_about_what_it_cannot_read() {
    if !can_disturb() {
        return;
    }
    let root = node();
    let args = ["rollback", "--yes", "--output", "json"];
    let part = "mco-rescue/history\"";
    let mut unreadable = Vec::new();
    for fault in faults_at(&root, "openat2", part, &args) {
        let run = traced(
            &duplicate(root.dir()),
            "openat2",
            std::slice::from_ref(&fault),
            &args,
        );
        if !run.err.contains("the run is reverted, but ") {
            continue;
        }
        let end: Value = serde_json::from_str(&run.out).unwrap();
        let key = end["unreadable"][0].as_str().unwrap();
        assert_eq!(end[key], Value::Null, "{end}");
        let run = traced(&duplicate(root.dir()), "openat2", &[fault], &args[..2]);
        assert!(
            run.out.contains("(not known: it cannot be read)"),
            "{}",
            run.out
        );
        unreadable.push(key.to_owned());
    }
    assert!(unreadable.contains(&"left".to_owned()), "{unreadable:?}");
}

#[test]
fn a_node_whose_top_cannot_be_read_is_not_taken_for_a_file_system_of_snapshots() {
    if !can_disturb() {
        return;
    }
    let root = node();
    root.run(&["record"]).ok();
    root.write("etc/app.conf", "by hand\n");
    root.run(&["record"]).ok();
    let args = ["diff", "1", "--output", "json"];
    let faults = faults_at(&root, "newfstatat", "\"etc\"", &args);
    assert!(!faults.is_empty());
    for fault in faults {
        let run = traced(&root, "newfstatat", &[fault], &args);
        let compared: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(compared["to"]["snapshot"], Value::Null, "{compared}");
    }
}
