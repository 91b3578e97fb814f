//! Several processors share the work of a large config. The results are the same as with one processor.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{Lacks, Run, TestRoot, file, machine_config, name_anew, skip};

const RECORD: &str = "etc/machine-config-daemon/currentconfig";
const LINK: &str = "etc/systemd/system/multi-user.target.wants/unit-07.service";

/// Files and units that are worth more than one thread, and a record that is worth hashing while it is parsed.
fn large_config() -> Value {
    let text = |at: usize| format!("number {at}\n").repeat(100);
    let files: Vec<Value> = (0..150)
        .map(|at| file(&format!("/etc/large/{at:03}.conf"), 0o644, &text(at)))
        .collect();
    let units: Vec<Value> = (0..20)
        .map(|at| {
            json!({
                "name": format!("unit-{at:02}.service"),
                "enabled": true,
                "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
                "dropins": [{"name": "10-a.conf", "contents": "[Service]\nNice=1\n"}],
            })
        })
        .collect();
    let ignition = json!({"storage": {"files": files}, "systemd": {"units": units}});
    let mut config = machine_config("rendered-worker-0", ignition);
    name_anew(&mut config);
    config
}

/// Calls `work` on a thread that has one processor, as have the programs that it starts.
fn on_one_processor<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let this = Pid::from_raw(0);
    let limited = || {
        let all = sched_getaffinity(this).unwrap();
        let first = (0..CpuSet::count()).find(|at| all.is_set(*at).unwrap());
        let mut one = CpuSet::new();
        one.set(first.unwrap()).unwrap();
        sched_setaffinity(this, &one).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(limited).join().unwrap())
}

fn has_one_processor() -> bool {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut allowed = (0..CpuSet::count()).filter(|at| all.is_set(*at).unwrap());
    allowed.nth(1).is_none()
}

/// One byte of the recorded config and one file on disk are others; a file, a drop-in and a link are missing.
fn damage(root: &TestRoot) {
    let record = root.read(RECORD);
    fs::write(root.path(RECORD), record.replacen("Nice=1", "Nice=2", 1)).unwrap();
    assert_ne!(root.read(RECORD), record);
    root.write("etc/large/140.conf", "other\n");
    root.remove("etc/large/003.conf");
    root.remove("etc/systemd/system/unit-11.service.d/10-a.conf");
    root.remove(LINK);
}

#[test]
fn one_processor_and_several_find_the_same() {
    if has_one_processor() {
        skip(Lacks::Machine, "several processors: this machine has one");
        return;
    }
    let config = large_config();
    let root = TestRoot::new();
    root.apply(&config);
    let given = root.config(&config);
    assert!(root.read(RECORD).len() > 64 << 10);
    let commands = [
        vec!["verify", "--output", "json"],
        vec!["verify"],
        vec!["plan", "--edited-config", "--output", "json"],
        vec!["plan", "--output", "json", given.path()],
    ];
    let look = || -> Vec<(i32, String, String)> {
        let results = |run: Run| (run.code(), run.out(), run.err());
        commands
            .iter()
            .map(|args| results(root.run(args)))
            .collect()
    };
    for is_damaged in [false, true] {
        if is_damaged {
            damage(&root);
        }
        let several = look();
        let one = on_one_processor(look);
        assert_eq!(several, one);
        let verified: Value = serde_json::from_str(&several[0].1).unwrap();
        assert_eq!(several[0].0, if is_damaged { 3 } else { 0 }, "{verified:#}");
        let hash = if is_damaged { "wrong" } else { "right" };
        assert_eq!(verified["name_hash"], hash);
        assert_eq!(several[1].1.contains("unit-07.service"), is_damaged);
    }
}

/// Starts a run that waits for its config on standard input, in a root with a record.
fn waiting(root: &TestRoot, args: &[&str]) -> Child {
    let mut command = root.command(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// While a config comes slowly, the node goes on: what was read beside the record is old by then.
#[test]
fn a_node_that_changes_while_the_config_is_awaited_is_looked_at_again() {
    let config = large_config();
    let root = TestRoot::new();
    root.apply(&config);
    let begun = Instant::now();
    let mut run = waiting(&root, &["verify", "-"]);
    // The facts count for a second. The run has read them once the record was read, which takes milliseconds.
    while begun.elapsed() < Duration::from_millis(1500) {
        thread::sleep(Duration::from_millis(50));
    }
    root.remove(LINK);
    let mut input = run.stdin.take().unwrap();
    input.write_all(config.to_string().as_bytes()).unwrap();
    drop(input);
    let run = Run::of(run.wait_with_output().unwrap()).exits(3);
    assert!(run.out().contains("unit-07.service"), "{}", run.out());
}
