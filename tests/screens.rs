//! What people read: signs and counts of `rollback`, half documents, names that are no files.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{PROGRAM, Run, TestRoot, by_operator, file, kubelet_unit, machine_config};

const NAME: &str = "rendered-worker-a";

/// Five files in directories that are not there yet, one over a file of the OS.
fn config() -> Value {
    let ignition = json!({
        "storage": {"files": [
            file("/etc/of-os.conf", 0o644, "ours\n"),
            file("/etc/deep/er/one", 0o644, "1\n"),
            file("/etc/deep/er/two", 0o644, "2\n"),
            file("/opt/tool/bin/run", 0o755, "#!/bin/sh\n"),
            file("/var/lib/tool/state", 0o600, "x\n"),
        ]},
        "systemd": {"units": [kubelet_unit()]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]},
    });
    machine_config(NAME, ignition)
}

/// The lines of a plan that begin with one of its signs.
fn changes(text: &str) -> Vec<String> {
    let signs = ["    + ", "    ~ ", "    - "];
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Changes ("));
    let signed = lines.filter(|line| signs.iter().any(|sign| line.starts_with(sign)));
    signed.map(|line| line.trim_start().to_owned()).collect()
}

/// The number in a line such as `- 3 originals (-v lists them)`.
fn counted(lines: &[String], what: &str) -> Option<(char, usize)> {
    let line = lines
        .iter()
        .find(|line| line.contains(&format!(" {what}")))?;
    let mut words = line.split(' ');
    let sign = words.next()?.chars().next()?;
    Some((sign, words.next()?.parse().ok()?))
}

fn applied() -> TestRoot {
    let root = TestRoot::new();
    root.write("usr/etc/of-os.conf", "of the OS\n");
    root.write("etc/of-os.conf", "of the OS\n");
    root.apply(&config());
    root
}

#[test]
fn rollback_signs_what_goes_as_gone_and_counts_directories() {
    let root = applied();
    let brief = root.run(&["rollback"]).exits(1).out();
    let lines = changes(&brief);
    // Everything is new but for two files, so all of it goes.
    let kept: Vec<&String> = lines.iter().filter(|line| !line.starts_with('-')).collect();
    assert!(
        kept.iter()
            .all(|line| line.starts_with("~ /etc/of-os.conf") || line.starts_with("~ /etc/shadow")),
        "{kept:?}"
    );
    let (sign, directories) = counted(&lines, "director").unwrap();
    let (originals_sign, originals) = counted(&lines, "original").unwrap();
    assert_eq!((sign, originals_sign), ('-', '-'), "{brief}");
    assert!(directories > 5 && originals > 3, "{brief}");
    assert!(
        !lines.iter().any(|line| line.starts_with("- /etc/deep ")),
        "{brief}"
    );

    let all = changes(&root.run(&["rollback", "-v"]).exits(1).out());
    assert_eq!(counted(&all, "director"), None);
    assert!(
        all.iter().any(|line| line.starts_with("- /etc/deep ")),
        "{all:?}"
    );
    // What is counted is what `-v` lists.
    assert_eq!(
        all.len(),
        lines.len() - 2 + directories + originals,
        "{brief}"
    );
    let total = format!("Changes ({}):", all.len());
    assert!(brief.contains(&total), "{total}: {brief}");
}

#[test]
fn rollback_signs_what_comes_again_as_new() {
    let root = applied();
    let mut less = config();
    less["metadata"]["name"] = json!("rendered-worker-b");
    less["spec"]["config"]["storage"] = json!({});
    let less = root.config(&less);
    let args = ["apply", "--yes", "--allow-removals", less.path()];
    root.run(&args).ok();
    let lines = changes(&root.run(&["rollback"]).exits(1).out());
    for path in ["/etc/deep/er/one", "/opt/tool/bin/run"] {
        let line = format!("+ {path}  was there before");
        assert!(lines.iter().any(|one| one.starts_with(&line)), "{lines:?}");
    }
    assert_eq!(counted(&lines, "original").unwrap().0, '+', "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with('-')), "{lines:?}");
}

// Half documents.

/// As `oc get mc NAME -o yaml` prints it: keys in order, a line break at the end.
const YAML: &str = include_str!("../examples/rendered-worker.yaml");

fn show(root: &TestRoot, document: &[u8]) -> Run {
    let mut command = root.command(&["show", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever refuses a document early may close it.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), document);
    Run::of(child.wait_with_output().unwrap())
}

const CUT: &str = "cut short, copy it again";

#[test]
fn json_that_was_cut_short_says_so_wherever_it_ends() {
    let text = serde_json::to_string_pretty(&config()).unwrap();
    let root = TestRoot::new();
    for at in [
        1,
        2,
        10,
        40,
        200,
        text.len() / 2,
        text.len() - 30,
        text.len() - 2,
    ] {
        let run = show(&root, &text.as_bytes()[..at]).exits(1);
        assert!(run.err().contains(CUT), "{at}: {}", run.err());
        assert!(run.err().contains(" at line "), "{at}: {}", run.err());
    }
    show(&root, text.as_bytes()).ok();
    // What is wrong in another way is not said to be cut short.
    let run = show(&root, text.replace("\"spec\":", "spec:").as_bytes()).exits(1);
    assert!(!run.err().contains("cut short"), "{}", run.err());
}

/// Every line at which a copy may end, and places within lines.
#[test]
fn yaml_that_was_cut_short_says_so_wherever_it_ends() {
    use mco_rescue::document;
    let says = |text: &str| match document::parse(text.as_bytes(), "it") {
        Err(error) => error.to_string(),
        Ok(config) => {
            let all = config.warnings.iter().map(ToString::to_string);
            all.collect::<Vec<_>>().join("; ")
        }
    };
    assert!(!says(YAML).contains("cut short"), "{}", says(YAML));
    let ends = YAML.match_indices('\n').map(|(at, _)| at + 1);
    let within = (1..YAML.len()).step_by(97);
    let mut count = 0;
    for at in ends.chain(within).filter(|at| *at < YAML.len()) {
        let half = &YAML[..at];
        // In the very last value nothing is missing but its end; the hash in the name tells.
        if half.contains("osImageURL: ") {
            continue;
        }
        assert!(says(half).contains(CUT), "at {at}: {}", says(half));
        count += 1;
    }
    assert!(count > 700, "{count}");
}

#[test]
fn a_config_that_lost_its_last_letters_is_refused_by_its_name() {
    let root = TestRoot::new();
    let half = root.path("half.yaml");
    fs::write(&half, &YAML[..YAML.len() - 9]).unwrap();
    let run = root.run(&["plan", half.to_str().unwrap()]).exits(1);
    assert!(run.out().contains("the end is missing"), "{}", run.out());
}

#[test]
fn a_copy_without_bytes_says_to_copy_again() {
    let root = TestRoot::new();
    for document in [&b""[..], b"\n", &[0; 4096], b"{\"a\": \"caf\xc3"] {
        let run = show(&root, document).exits(1);
        assert!(run.err().contains("copy it again"), "{}", run.err());
    }
}

#[test]
fn half_parts_for_render_and_half_policies_say_so_too() {
    let root = TestRoot::new();
    let part = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "99-x"}, "spec": {"config": {"ignition": {"version": "3.4.0"}}}});
    let text = part.to_string();
    let half = root.path("half.json");
    fs::write(&half, &text[..text.len() - 4]).unwrap();
    let run = root
        .run(&["render", "worker", half.to_str().unwrap()])
        .exits(1);
    assert!(run.err().contains(CUT), "{}", run.err());
    let config = root.config(&config());
    let run = root
        .run(&["plan", config.path(), "--policy", half.to_str().unwrap()])
        .exits(1);
    assert!(run.err().contains(CUT), "{}", run.err());
}

// Names that are no files.

fn kept(root: &TestRoot, config: &Value) -> String {
    let file = root.config(config);
    root.run(&["fetch", file.path()]).ok();
    config["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn the_name_of_a_config_in_place_of_a_file_leads_to_the_cache() {
    let root = TestRoot::new();
    let first = kept(&root, &by_operator("worker", "one\n"));
    let said = |args: &[&str]| root.run(args).exits(1).err();
    for command in ["apply", "plan", "verify", "show"] {
        let err = said(&[command, &first]);
        assert!(
            err.contains(&format!("Did you mean cached:{first}?")),
            "{err}"
        );
    }
    // A beginning of it will do, and of several all are named.
    let err = said(&["plan", &first[..20]]);
    assert!(err.contains(&format!("cached:{first}?")), "{err}");
    let second = kept(&root, &by_operator("worker", "two\n"));
    let err = said(&["plan", "rendered-worker"]);
    assert!(
        err.contains(&format!("cached:{first}")) && err.contains(&format!("cached:{second}")),
        "{err}"
    );
    // Nothing of that name: what is there, and where to get it.
    let err = said(&["plan", "rendered-master-0"]);
    assert!(
        err.contains(&first)
            && err.contains("oc get mc rendered-master-0 -o yaml > rendered-master-0.yaml"),
        "{err}"
    );
    let empty = TestRoot::new();
    let err = empty.run(&["plan", "rendered-master-0"]).exits(1).err();
    assert!(
        err.contains("cache is empty") && err.contains("mco-rescue fetch"),
        "{err}"
    );
}

#[test]
fn the_recorded_name_and_a_file_with_another_ending_are_told() {
    let root = applied();
    let err = root.run(&["verify", NAME]).exits(1).err();
    assert!(
        err.contains("recorded to be in this config: leave the name out"),
        "{err}"
    );
    fs::write(root.path("next.yaml"), YAML).unwrap();
    for given in ["next", "next.json", "next.yml"] {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--root", ".", "show", given])
            .current_dir(root.dir());
        let run = Run::of(command.output().unwrap()).exits(1);
        assert!(
            run.err().contains("Did you mean next.yaml?"),
            "{}",
            run.err()
        );
    }
    let err = root.run(&["show", "/nowhere/next.yaml"]).exits(1).err();
    assert!(
        err.contains("reading /nowhere/next.yaml: there is no such file. "),
        "{err}"
    );
}

#[test]
fn the_cache_takes_names_as_everything_else_does() {
    let root = TestRoot::new();
    let name = kept(&root, &by_operator("worker", "one\n"));
    let cached = format!("cached:{name}");
    assert!(
        root.run(&["cache", "export", &cached])
            .ok()
            .out()
            .contains(&name)
    );
    root.run(&["cache", "forget", &cached]).ok();
    assert!(
        root.run(&["cache", "export", &name])
            .exits(1)
            .err()
            .contains("has no config")
    );
}

// Escapes and labels.

/// A record with several errors, which every command that looks at the node speaks of.
#[test]
fn no_screen_shows_an_escaped_line_break_or_a_label_of_a_rule() {
    let root = TestRoot::new();
    let mut broken = config();
    broken["spec"]["config"]["storage"]["files"][0]["path"] = json!("relative");
    broken["spec"]["config"]["storage"]["files"][1]["mode"] = json!(-1);
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &broken.to_string(),
    );
    let config = root.config(&config());
    let given = root.config(&broken);
    for args in [
        &["status"][..],
        &["status", "-v"],
        &["doctor"],
        &["verify"],
        &["plan"],
        &["plan", "-v", config.path()],
        &["plan", given.path()],
        &["fetch", given.path()],
        &["rollback"],
    ] {
        let run = root.run(args);
        let text = run.out() + &run.err();
        assert!(!text.contains("\\n"), "{args:?}: {text}");
        let mut labels = text.split("(V").skip(1);
        let label = labels.find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(label, None, "{args:?}: {text}");
    }
    let plan = root.run(&["plan", config.path()]).out();
    assert!(
        plan.contains("2 errors") || plan.contains("relative"),
        "{plan}"
    );
}
