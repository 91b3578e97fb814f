//! Proves what people and programs may rely on at the command line: exit codes, help, the JSON documents,
//! standard input and output, and that neither secrets nor escape sequences reach a screen.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Lacks, PROGRAM, Run, TestRoot, file, machine_config, skip};
use serde_json::{Value, json};

/// As long as a real one, and without a digest that could be wrong.
const NAME: &str = "rendered-worker-5f0c2d7e8a914b3c6d1e0f9a8b7c6d5x";
const COMMANDS: [&str; 6] = ["apply", "plan", "verify", "show", "status", "recover"];

/// One file and one unit, both small.
fn small() -> Value {
    machine_config(
        NAME,
        json!({
            "storage": {"files": [file("/etc/chrony.conf", 0o644, "pool ntp.example iburst\n")]},
            "systemd": {"units": [{
                "name": "agent.service", "enabled": true,
                "contents": "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n",
                "dropins": [{"name": "10-env.conf", "contents": "[Service]\nEnvironment=A=b\n"}],
            }]},
        }),
    )
}

/// Runs the program without a root of ours.
fn program(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM)
        .args(args)
        .env("COLUMNS", "200")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Runs it on a root with something on standard input.
fn with_input(root: &TestRoot, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = root
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap_or(-1), output.stdout, errors)
}

// Exit codes.

#[test]
fn the_exit_codes_are_documented_in_the_help() {
    let (code, help, _) = program(&["--help"]);
    assert_eq!(code, 0);
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    for code in 0..=6 {
        let line = codes
            .lines()
            .find(|line| line.trim().starts_with(&format!("{code}  ")));
        assert!(line.is_some(), "{code} is not in {codes}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2_and_names_the_help() {
    let wrong: [&[&str]; 8] = [
        &[],
        &["aply"],
        &["--no-such-option", "status"],
        &["--output", "xml", "status"],
        &["plan", "--no-such-option"],
        &["status", "superfluous"],
        &["show", "a", "b", "c"],
        &["verify", "--files-only"],
    ];
    for args in wrong {
        let (code, out, err) = program(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains("--help"), "{args:?}: {err}");
    }
}

#[test]
fn success_ends_with_0_for_every_command() {
    let root = TestRoot::new();
    let config = root.config(&small());
    root.run(&["status"]).ok();
    root.run(&["recover"]).ok();
    root.run(&["show", config.path()]).ok();
    root.run(&["plan", config.path()]).ok();
    root.run(&["apply", "--yes", config.path()]).ok();
    root.run(&["verify", config.path()]).ok();
    root.run(&["plan", config.path()]).ok();
    root.run(&["recover", "--back"]).ok();
    root.run(&["status"]).ok();
}

#[test]
fn an_error_ends_with_1_for_every_command() {
    let missing = "/no/such/directory";
    for command in COMMANDS {
        let (code, out, err) = program(&["--root", missing, "--yes", command]);
        assert_eq!((code, out.as_str()), (1, ""), "{command}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(missing),
            "{command}: {err}"
        );
    }
}

#[test]
fn a_root_that_is_a_file_ends_with_1() {
    let root = TestRoot::new();
    let file = root.path("etc/passwd");
    for command in COMMANDS {
        let (code, _, err) = program(&["--root", file.to_str().unwrap(), "--yes", command]);
        assert_eq!(code, 1, "{command}: {err}");
    }
}

#[test]
fn without_a_record_a_config_has_to_be_given() {
    let root = TestRoot::new();
    for command in ["apply", "plan", "verify", "show"] {
        let run = root.run(&["--yes", command]).exits(1);
        assert!(
            run.err()
                .contains("no config was given, and the node has no currentconfig. Give a file"),
            "{command}: {}",
            run.err()
        );
    }
}

#[test]
fn a_record_that_is_broken_is_not_taken_for_none() {
    let root = TestRoot::new();
    root.write("etc/machine-config-daemon/currentconfig", "{\"metadata\":");
    for command in ["apply", "plan", "verify", "show"] {
        let run = root.run(&["--yes", command]).exits(1);
        assert!(
            run.err().contains("the recorded config cannot be used"),
            "{}",
            run.err()
        );
    }
    let status = root.run(&["status"]).ok();
    assert!(status.out().contains("currentconfig"), "{}", status.out());
}

#[test]
fn differences_end_verify_with_3_and_plan_with_0() {
    let root = TestRoot::new();
    let config = root.config(&small());
    root.run(&["verify", config.path()]).exits(3);
    root.run(&["--output", "json", "verify", config.path()])
        .exits(3);
    root.run(&["plan", config.path()]).exits(0);
}

#[test]
fn blockers_end_plan_and_apply_with_1() {
    let root = TestRoot::new();
    root.write("etc/chrony.conf/in-the-way", "");
    let config = root.config(&small());
    let plan = root.run(&["plan", config.path()]).exits(1);
    let (blockers, changes) = (
        plan.out().find("Blockers (1)"),
        plan.out().find("Changes ("),
    );
    assert!(
        blockers.is_some() && blockers < changes,
        "blockers come first: {}",
        plan.out()
    );
    let before = root.everything();
    let apply = root.run(&["apply", "--yes", config.path()]).exits(1);
    assert!(
        apply.err().contains("nothing was changed"),
        "{}",
        apply.err()
    );
    assert_eq!(root.everything(), before);
}

#[test]
fn the_commands_that_only_look_change_nothing() {
    let root = TestRoot::new();
    let config = root.config(&small());
    let before = root.everything();
    for args in [
        vec!["plan", config.path()],
        vec!["verify", config.path()],
        vec!["show", config.path()],
        vec!["show", config.path(), "/etc/chrony.conf"],
        vec!["status"],
        vec!["recover"],
    ] {
        root.run(&args);
        assert_eq!(root.everything(), before, "{args:?}");
    }
}

// Help.

#[test]
fn help_fits_80_columns() {
    let mut wide = Vec::new();
    for flag in ["--help", "-h"] {
        let mut texts = vec![program(&[flag]).1];
        texts.extend(COMMANDS.iter().map(|command| program(&[command, flag]).1));
        for text in texts {
            assert!(text.contains("Usage: mco-rescue"), "{text}");
            wide.extend(
                text.lines()
                    .filter(|line| line.chars().count() > 80)
                    .map(str::to_owned),
            );
        }
    }
    assert_eq!(wide, Vec::<String>::new());
}

#[test]
fn help_says_nothing_twice() {
    for command in COMMANDS.into_iter().chain(["doctor", "fetch", "report"]) {
        let help = effect(command);
        let (about, _) = help.split_once("Usage: ").unwrap();
        let parts = about.split([',', '.', ':']).map(str::trim);
        let long: Vec<&str> = parts.filter(|part| part.len() > 20).collect();
        for (place, part) in long.iter().enumerate() {
            assert!(!long[..place].contains(part), "{command}: {part:?}");
        }
    }
}

#[test]
fn help_begins_with_a_sentence_and_names_the_options() {
    for command in COMMANDS {
        let (code, help, _) = program(&[command, "--help"]);
        assert_eq!(code, 0);
        let first = help.lines().next().unwrap();
        assert!(
            first.len() > 20 && first.starts_with(char::is_uppercase),
            "{command}: {first:?}"
        );
        for option in ["--root", "--output", "--verbose", "--yes"] {
            assert!(help.contains(option), "{command} does not name {option}");
        }
    }
}

fn effect(command: &str) -> String {
    program(&[command, "--help"])
        .1
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn help_names_the_effect_on_the_node() {
    let whole = "A power cut at any moment leaves the node as it was or as it should be";
    assert!(effect("apply").contains(whole));
    assert!(effect("recover").contains("Stops without touching anything"));
    for command in ["plan", "verify"] {
        assert!(effect(command).contains("Changes nothing"), "{command}");
    }
}

#[test]
fn help_of_show_and_status_names_the_effect_on_the_node() {
    for command in ["show", "status"] {
        assert!(
            effect(command).contains("Changes nothing"),
            "{command}: {}",
            effect(command)
        );
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let (code, out, _) = program(&["--version"]);
    assert_eq!(
        (code, out),
        (0, format!("mco-rescue {}\n", env!("CARGO_PKG_VERSION")))
    );
}

// Asking.

#[test]
fn apply_without_a_terminal_and_without_yes_changes_nothing() {
    let root = TestRoot::new();
    let config = root.config(&small());
    let before = root.everything();
    let run = root.run(&["apply", config.path()]).exits(1);
    assert!(
        run.err().contains("add --yes") && run.err().contains("Nothing was changed"),
        "{}",
        run.err()
    );
    assert!(
        run.out().contains("/etc/chrony.conf"),
        "the plan comes first: {}",
        run.out()
    );
    let (code, _, err) = with_input(&root, &["apply", config.path()], b"y\ny\ny\n");
    assert_eq!(code, 1, "{err}");
    assert_eq!(root.everything(), before);
}

/// `apply` on a terminal of its own, made by script(1), with this typed.
fn on_a_terminal(root: &TestRoot, config: &str, typed: &str) -> Option<(i32, String)> {
    let apply = format!("{PROGRAM} --root {} apply {config}", root.dir().display());
    let script = Command::new("script")
        .args(["--quiet", "--return", "--command", &apply, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    script
        .stdin
        .as_ref()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    let output = script.wait_with_output().unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((output.status.code().unwrap_or(-1), screen))
}

#[test]
fn on_a_terminal_the_answer_decides() {
    for (typed, wanted) in [
        ("n\n", 1),
        ("\n", 1),
        ("yesterday\n", 1),
        ("y\n", 0),
        ("yes\n", 0),
    ] {
        let root = TestRoot::new();
        let config = root.config(&small());
        let before = root.everything();
        let Some((code, screen)) = on_a_terminal(&root, config.path(), typed) else {
            skip(
                Lacks::Setup,
                "script(1) is not here, so nobody can be asked",
            );
            return;
        };
        assert_eq!(code, wanted, "{typed:?}: {screen}");
        assert!(screen.contains("Apply? [y/N]"), "{screen}");
        assert_eq!(
            root.everything() == before,
            wanted == 1,
            "{typed:?}: {screen}"
        );
        assert_eq!(root.exists("etc/chrony.conf"), wanted == 0, "{typed:?}");
    }
}

#[test]
fn yes_is_taken_before_and_after_the_command_and_in_short() {
    for args in [
        ["--yes", "apply"],
        ["apply", "--yes"],
        ["-y", "apply"],
        ["apply", "-y"],
    ] {
        let root = TestRoot::new();
        let config = root.config(&small());
        root.run(&[args[0], args[1], config.path()]).ok();
        assert!(root.exists("etc/chrony.conf"));
    }
}

#[test]
fn where_nothing_is_to_be_done_nobody_is_asked() {
    let root = TestRoot::new();
    root.apply(&small());
    let config = root.config(&small());
    let before = root.snapshot();
    let run = root.run(&["apply", config.path()]).ok();
    // The operating system is that of the running node alone.
    let said = "Nothing to do here: files, units and users match the config.\nNot compared: OS image and kernel arguments.";
    assert!(run.out().contains(said), "{}", run.out());
    assert_eq!(root.snapshot(), before);
}

// Standard input.

#[test]
fn a_dash_reads_standard_input() {
    let text = small().to_string();
    let root = TestRoot::new();
    let (code, out, err) = with_input(&root, &["show", "-"], text.as_bytes());
    assert_eq!(code, 0, "{err}");
    assert!(String::from_utf8(out).unwrap().contains(NAME));
    let (code, out, err) = with_input(&root, &["show", "-", "/etc/chrony.conf"], text.as_bytes());
    assert_eq!(
        (code, out.as_slice()),
        (0, b"pool ntp.example iburst\n".as_slice()),
        "{err}"
    );
    let (code, out, err) = with_input(&root, &["plan", "-"], text.as_bytes());
    assert_eq!(code, 0, "{err}");
    assert!(String::from_utf8(out).unwrap().contains("standard input"));
    let (code, _, err) = with_input(&root, &["verify", "-"], text.as_bytes());
    assert_eq!(code, 3, "{err}");
    let (code, _, err) = with_input(&root, &["--yes", "apply", "-"], text.as_bytes());
    assert_eq!(code, 0, "{err}");
    assert_eq!(root.read("etc/chrony.conf"), "pool ntp.example iburst\n");
    let (code, _, err) = with_input(&root, &["verify", "-"], text.as_bytes());
    assert_eq!(code, 0, "{err}");
}

#[test]
fn errors_on_standard_input_say_so() {
    let (code, out, err) = with_input(&TestRoot::new(), &["plan", "-"], b"kind: Node\n");
    assert_eq!((code, out.as_slice()), (1, b"".as_slice()));
    assert!(
        err.starts_with("error: standard input: kind (line 1): "),
        "{err}"
    );
    let (code, _, err) = with_input(&TestRoot::new(), &["plan", "-"], b"");
    assert_eq!(code, 1);
    assert!(
        err.contains("standard input: the document is empty"),
        "{err}"
    );
}

// Show.

#[test]
fn show_prints_the_decoded_bytes_and_nothing_else() {
    let every_byte: Vec<u8> = (0..=255).collect();
    let encoded: String = every_byte.iter().map(|b| format!("%{b:02x}")).collect();
    let mut config = small();
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.push(
        json!({"path": "/etc/every-byte", "contents": {"source": format!("data:,{encoded}")}}),
    );
    files.push(json!({"path": "/etc/nothing"}));
    // `printf 'squeezed\n' | gzip -n`, percent-encoded.
    let squeezed =
        "%1f%8b%08%00%00%00%00%00%00%03%2b%2e%2c%4d%4d%ad%4a%4d%e1%02%00%66%ed%bc%53%09%00%00%00";
    files.push(json!({"path": "/etc/squeezed", "contents": {"compression": "gzip", "source": format!("data:,{squeezed}")}}));
    let root = TestRoot::new();
    let text = config.to_string();
    let shown = |path: &str| {
        let (code, out, err) = with_input(&root, &["show", "-", path], text.as_bytes());
        assert_eq!((code, err.as_str()), (0, ""), "{path}");
        out
    };
    assert_eq!(shown("/etc/every-byte"), every_byte);
    assert_eq!(shown("/etc/nothing"), b"");
    assert_eq!(shown("/etc/squeezed"), b"squeezed\n");
    let unit = b"[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    assert_eq!(shown("agent.service"), unit);
    assert_eq!(shown("/etc/systemd/system/agent.service"), unit);
    assert_eq!(
        shown("/etc/systemd/system/agent.service.d/10-env.conf"),
        b"[Service]\nEnvironment=A=b\n"
    );
}

#[test]
fn show_of_an_unknown_path_ends_with_1_and_says_how_to_find_one() {
    let root = TestRoot::new();
    let config = root.config(&small());
    for path in [
        "/etc/chrony",
        "etc/chrony.conf",
        "/etc/chrony.conf/",
        "absent.service",
        "",
    ] {
        let run = root.run(&["show", config.path(), path]).exits(1);
        assert_eq!(run.out(), "");
        assert!(
            run.err()
                .contains(&format!("mco-rescue show {}", config.path())),
            "{}",
            run.err()
        );
    }
}

#[test]
fn show_without_arguments_lists_the_recorded_config() {
    let root = TestRoot::new();
    root.apply(&small());
    let shown = root.run(&["show"]).ok();
    for part in [
        NAME,
        "/etc/chrony.conf",
        "agent.service",
        "10-env.conf",
        "3.5.0",
    ] {
        assert!(shown.out().contains(part), "{}", shown.out());
    }
}

/// As `src/cli/show.rs` says of a single absolute path that names no file here.
#[test]
fn show_of_one_path_that_is_not_a_file_here_means_the_recorded_config() {
    let mut config = small();
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.push(file(
        "/etc/mco-rescue-example/only-on-a-node.conf",
        0o644,
        "text\n",
    ));
    let root = TestRoot::new();
    root.apply(&config);
    let run = root
        .run(&["show", "/etc/mco-rescue-example/only-on-a-node.conf"])
        .ok();
    assert_eq!(run.out(), "text\n");
}

// The config by default.

#[test]
fn verify_takes_the_recorded_config_by_default() {
    let root = TestRoot::new();
    root.apply(&small());
    let clean = root.run(&["verify"]).ok();
    assert!(
        clean.out().contains(NAME) && clean.out().contains("Clean"),
        "{}",
        clean.out()
    );
    root.write("etc/chrony.conf", "edited by hand\n");
    let run = root.run(&["verify"]).exits(3);
    let sentence = format!(
        "unexpected on-disk state validating against {NAME}: content mismatch for file \"/etc/chrony.conf\""
    );
    assert!(run.out().contains(&sentence), "{}", run.out());
    assert!(
        run.out().contains("-edited by hand") && run.out().contains("+pool ntp.example iburst")
    );
    let at = format!("--root {}", root.dir().display());
    let next = format!("\nNext: mco-rescue plan {at}\nthen: mco-rescue apply {at}\n");
    assert!(run.out().ends_with(&next), "{}", run.out());
}

#[test]
fn plan_and_apply_take_the_recorded_config_by_default_and_repair_drift() {
    let root = TestRoot::new();
    root.apply(&small());
    let applied = root.snapshot();
    root.write("etc/chrony.conf", "edited by hand\n");
    root.remove("etc/systemd/system/multi-user.target.wants/agent.service");
    let plan = root.run(&["--output", "json", "plan"]).ok().json();
    assert_eq!(plan["chosen"], "the recorded config of this node");
    let paths: Vec<&str> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "/etc/chrony.conf",
            "/etc/systemd/system/multi-user.target.wants/agent.service"
        ]
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.snapshot(), applied);
}

// Status.

#[test]
fn status_of_an_empty_directory_is_not_the_status_of_a_node() {
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    let (code, out, err) = program(&["--root", root, "status"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("there is no system at this root"), "{err}");
}

#[test]
fn status_of_a_node_without_a_run_says_that_there_is_nothing() {
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join("etc")).unwrap();
    let root = empty.path().to_str().unwrap();
    let (code, out, err) = program(&["--root", root, "status"]);
    assert_eq!(code, 0, "{err}");
    for part in ["(no config)", "Pending   nothing", "Last run  (none)"] {
        assert!(out.contains(part), "{out}");
    }
    let (code, out, err) = program(&["--root", root, "--output", "json", "status"]);
    assert_eq!(code, 0, "{err}");
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["pending"], "nothing");
    assert_eq!(
        (&status["recorded"], &status["last_run"]),
        (&Value::Null, &Value::Null)
    );
    for (path, names) in [(empty.path().to_owned(), 1), (empty.path().join("etc"), 0)] {
        let found = fs::read_dir(path).unwrap().count();
        assert_eq!(found, names, "status made something");
    }
}

#[test]
fn status_after_apply_tells_what_was_done() {
    let root = TestRoot::new();
    root.apply(&small());
    let text = root.run(&["status"]).ok();
    for part in [
        NAME,
        "Image     registry.example/os@sha256:0",
        "Pending   nothing",
        "done",
    ] {
        assert!(text.out().contains(part), "{}", text.out());
    }
    let status = root.run(&["--output", "json", "status"]).ok().json();
    assert_eq!(status["recorded"], NAME);
    assert_eq!(status["recorded_image"], "");
    assert_eq!(status["pending"], "nothing");
    assert_eq!(status["pending_config"], Value::Null);
    let run = &status["last_run"];
    assert_eq!(run["outcome"], "done");
    assert_eq!(run["config"]["name"], NAME);
    assert_eq!(run["config"]["digest"], status["recorded_digest"]);
    assert!(run["steps"].as_u64().unwrap() > 0);
    assert!(run["finished"].as_u64() >= run["started"].as_u64());
}

#[test]
fn a_state_directory_that_is_not_ours_is_left_alone() {
    let root = TestRoot::new();
    root.write("var/lib/mco-rescue/notes", "somebody else's\n");
    let config = root.config(&small());
    let before = root.everything();
    root.run(&["status"]).exits(1);
    let run = root.run(&["apply", "--yes", config.path()]);
    assert_ne!(run.code(), 0);
    assert!(run.err().contains("has no marker file"), "{}", run.err());
    assert_eq!(root.everything(), before);
}

// JSON.

/// A key and the JSON types that it may have.
type Key = (&'static str, &'static str);

const HEADING: [Key; 6] = [
    ("config", "string"),
    ("digest", "string"),
    ("origin", "string"),
    ("chosen", "string"),
    ("root", "string"),
    ("recorded", "string"),
];

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn has(value: &Value, keys: &[Key]) {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value}"));
    for (key, types) in keys {
        let found = object
            .get(*key)
            .unwrap_or_else(|| panic!("{key} is missing in {value:#}"));
        assert!(
            types.split('|').any(|t| t == type_of(found)),
            "{key} of {value:#}"
        );
    }
}

fn each(value: &Value, keys: &[Key]) -> usize {
    let entries = value.as_array().unwrap();
    entries.iter().for_each(|entry| has(entry, keys));
    entries.len()
}

/// A config with something in every list of the documents.
fn rich() -> Value {
    let mut config = small();
    let ignition = &mut config["spec"]["config"];
    ignition["passwd"] =
        json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAexample a@b"]}]});
    ignition["storage"]["disks"] = json!([{"device": "/dev/vdb"}]);
    ignition["storage"]["filez"] = json!([]);
    config
}

#[test]
fn the_json_of_plan_keeps_its_promises() {
    let root = TestRoot::new();
    root.write("etc/chrony.conf", "old\n");
    let config = root.config(&rich());
    let plan = root
        .run(&["--output", "json", "plan", config.path()])
        .exits(1)
        .json();
    assert_eq!(plan["schema"], "mco-rescue/plan/v1");
    assert_eq!(
        (&plan["config"], &plan["origin"]),
        (&json!(NAME), &json!(config.path()))
    );
    assert_eq!(plan["root"], root.dir().to_str().unwrap());
    has(&plan, &HEADING);
    has(
        &plan,
        &[
            ("blockers", "array"),
            ("notices", "array"),
            ("steps", "array"),
            ("force_file", "string"),
        ],
    );
    has_forecast(&plan["daemon"]);
    let notice = [("subject", "string"), ("message", "string")];
    assert_eq!(each(&plan["blockers"], &notice), 1);
    assert!(each(&plan["notices"], &notice) >= 2);
    let steps = [
        ("section", "string"),
        ("why", "string"),
        ("secret", "bool"),
        ("step", "string"),
        ("path", "string"),
    ];
    assert!(each(&plan["steps"], &steps) > 5);
    for step in plan["steps"].as_array().unwrap() {
        match step["step"].as_str().unwrap() {
            "make-directory" => has(
                step,
                &[("mode", "number"), ("uid", "number"), ("gid", "number")],
            ),
            "put" => has(step, &[("new", "object"), ("old", "object|null")]),
            "remove" => has(step, &[("old", "object")]),
            "metadata" => has(step, &[("new", "object"), ("old", "object")]),
            other => panic!("unknown step {other}"),
        }
    }
    let step = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["path"] == "/etc/chrony.conf")
        .unwrap();
    assert_eq!(
        (&step["section"], &step["why"]),
        (&json!("files"), &json!("content differs"))
    );
    assert!(
        step["diff"]
            .as_str()
            .unwrap()
            .contains("-old\n+pool ntp.example iburst")
    );
    let digest = plan["digest"].as_str().unwrap();
    assert!(
        digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
        "{digest}"
    );
}

#[test]
fn the_json_of_verify_keeps_its_promises() {
    let root = TestRoot::new();
    root.write("etc/chrony.conf", "old\n");
    let config = root.config(&small());
    let drift = [
        ("kind", "string"),
        ("subject", "string"),
        ("detail", "string"),
        ("checked_by_daemon", "bool"),
        ("daemon", "string|null"),
    ];
    let verify = root
        .run(&["--output", "json", "verify", config.path()])
        .exits(3)
        .json();
    assert_eq!(verify["schema"], "mco-rescue/verify/v1");
    has(&verify, &HEADING);
    has(
        &verify,
        &[
            ("clean", "bool"),
            ("verdict", "string"),
            ("drifts", "array"),
            ("not_looked_at", "array"),
        ],
    );
    assert_eq!(verify["clean"], false);
    assert!(each(&verify["drifts"], &drift) >= 3);
    for entry in verify["drifts"].as_array().unwrap() {
        assert_eq!(entry["checked_by_daemon"], entry["daemon"].is_string());
    }
    let first = &verify["drifts"][0];
    assert_eq!(
        (&first["kind"], &first["subject"]),
        (&json!("content"), &json!("/etc/chrony.conf"))
    );
    assert!(
        verify["verdict"]
            .as_str()
            .unwrap()
            .ends_with(first["daemon"].as_str().unwrap())
    );
    assert!(first["diff"].as_str().unwrap().contains("-old\n"));
    root.apply(&small());
    let verify = root.run(&["--output", "json", "verify"]).ok().json();
    assert_eq!(verify["schema"], "mco-rescue/verify/v1");
    assert_eq!(
        (&verify["clean"], &verify["verdict"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(verify["drifts"], json!([]));
}

#[test]
fn one_file_of_a_config_is_a_document_for_programs_and_bytes_for_people() {
    let root = TestRoot::new();
    let bytes = "data:;base64,/wAK";
    let config = root.config(&machine_config(
        "rendered-worker-files",
        json!({
            "storage": {"files": [
                file("/etc/text", 0o640, "one\ntwo\n"),
                {"path": "/etc/bytes", "mode": 0o600, "contents": {"source": bytes}},
            ]},
            "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\n"}]},
        }),
    ));
    let text = root.run(&["show", config.path(), "/etc/text"]).ok();
    assert_eq!(text.out(), "one\ntwo\n");
    let document = |path: &str| {
        let args = ["--output", "json", "show", "-f", config.path(), path];
        root.run(&args).ok().json()
    };
    assert_eq!(
        document("/etc/text"),
        json!({
            "schema": "mco-rescue/show-file/v1", "config": "rendered-worker-files", "path": "/etc/text",
            "mode": "0640", "size": 8, "encoding": "utf-8", "contents": "one\ntwo\n",
        })
    );
    let binary = document("/etc/bytes");
    assert_eq!(
        (&binary["encoding"], &binary["contents"], &binary["size"]),
        (&json!("base64"), &json!("/wAK"), &json!(3))
    );
    let unit = document("a.service");
    assert_eq!(unit["path"], "/etc/systemd/system/a.service");
    let args = [
        "show",
        "--filename",
        config.path(),
        "/etc/text",
        "-o",
        "yaml",
    ];
    let yaml = root.run(&args).ok().out();
    assert!(yaml.contains("contents: |\n"), "{yaml}");
    let missing = root
        .run(&["show", "-f", config.path(), "/etc/none"])
        .exits(1);
    assert!(missing.err().contains("Next") || missing.err().contains("What it has"));
}

#[test]
fn the_json_of_show_keeps_its_promises() {
    let root = TestRoot::new();
    let config = root.config(&rich());
    let show = root
        .run(&["--output", "json", "show", config.path()])
        .ok()
        .json();
    assert_eq!(show["schema"], "mco-rescue/show/v1");
    has(
        &show,
        &[
            ("name", "string"),
            ("pool", "string|null"),
            ("origin", "string"),
            ("digest", "string"),
            ("ignition_version", "string"),
            ("os_image_url", "string"),
            ("extensions_image", "string"),
            ("kernel_arguments", "array"),
            ("kernel_type", "string"),
            ("extensions", "array"),
            ("fips", "bool"),
            ("files", "array"),
            ("units", "array"),
            ("users", "array"),
            ("warnings", "array"),
        ],
    );
    let texts = ["path", "mode", "user", "group", "sha256", "origin"].map(|key| (key, "string"));
    assert_eq!(each(&show["files"], &texts), 1);
    assert_eq!(each(&show["files"], &[("size", "number")]), 1);
    let file = &show["files"][0];
    assert_eq!(
        (&file["mode"], &file["size"], &file["user"]),
        (&json!("0644"), &json!(24), &json!("0"))
    );
    assert_eq!(file["origin"], "spec.config.storage.files[0]");
    let unit = [
        ("name", "string"),
        ("state", "string"),
        ("contents", "bool"),
        ("dropins", "array"),
    ];
    assert_eq!(each(&show["units"], &unit), 1);
    assert_eq!(show["units"][0]["state"], "enabled");
    let user = [
        ("name", "string"),
        ("ssh_keys", "number"),
        ("password", "bool"),
    ];
    assert_eq!(each(&show["users"], &user), 1);
    assert_eq!(
        show["warnings"],
        json!(["spec.config.storage.filez: unknown key, ignored"])
    );
}

/// What every document says of the daemon's start.
fn has_forecast(daemon: &Value) {
    let keys = [
        ("release", "string"),
        ("node", "string"),
        ("told", "string"),
        ("at", "number|null"),
        ("current", "string|null"),
        ("record", "string|null"),
        ("branches", "array"),
        ("next", "string|null"),
    ];
    has(daemon, &keys);
    let branch = [
        ("desired", "string|null"),
        ("known", "bool"),
        ("prediction", "object"),
    ];
    assert!(each(&daemon["branches"], &branch) >= 1);
    let prediction = [
        ("state", "string"),
        ("error", "string|null"),
        ("update", "object|null"),
        ("pivot", "string|null"),
        ("drain", "bool|null"),
        ("reboot", "bool|null"),
        ("record_after", "string|null"),
        ("node_annotations_after", "bool"),
        ("force_file_after", "bool"),
        ("renamed", "array"),
        ("needs", "array"),
        ("because", "array"),
    ];
    for branch in daemon["branches"].as_array().unwrap() {
        has(&branch["prediction"], &prediction);
    }
}

#[test]
fn the_json_of_status_keeps_its_promises() {
    let root = TestRoot::new();
    let keys = [
        ("root", "string"),
        ("deployment", "string|null"),
        ("recorded", "string|null"),
        ("recorded_digest", "string|null"),
        ("record_note", "string|null"),
        ("recorded_image", "string|null"),
        ("pending", "string"),
        ("pending_config", "string|null"),
        ("last_run", "object|null"),
    ];
    let status = root.run(&["--output", "json", "status"]).ok().json();
    assert_eq!(status["schema"], "mco-rescue/status/v1");
    has(&status, &keys);
    root.apply(&small());
    let status = root.run(&["--output", "json", "status"]).ok().json();
    assert_eq!(status["schema"], "mco-rescue/status/v1");
    has(&status, &keys);
    has_forecast(&status["daemon"]);
    let run = [
        ("version", "number"),
        ("id", "string"),
        ("config", "object"),
        ("started", "number"),
        ("finished", "number"),
        ("outcome", "string"),
        ("phases", "array"),
        ("steps", "number"),
        ("notices", "array"),
    ];
    has(&status["last_run"], &run);
    has(
        &status["last_run"]["config"],
        &[
            ("name", "string"),
            ("digest", "string"),
            ("origin", "string"),
        ],
    );
    assert!(
        each(
            &status["last_run"]["phases"],
            &[("name", "string"), ("result", "string")]
        ) >= 2
    );
}

#[test]
fn apply_prints_one_json_document_whatever_comes_of_it() {
    let root = TestRoot::new();
    let blocked = root.config(&rich());
    let run = root
        .run(&["--output", "json", "apply", "--yes", blocked.path()])
        .exits(1);
    assert_eq!(run.json()["schema"], "mco-rescue/plan/v1");
    let config = root.config(&small());
    let run = root
        .run(&["--output", "json", "apply", "--yes", config.path()])
        .ok();
    assert_eq!(
        (&run.json()["schema"], &run.json()["clean"]),
        (&json!("mco-rescue/verify/v1"), &json!(true))
    );
    let run = root.run(&["--output", "json", "apply", config.path()]).ok();
    assert_eq!(run.json()["clean"], true);
}

#[test]
fn recover_prints_json_when_it_is_asked_to() {
    let run = TestRoot::new().run(&["--output", "json", "recover"]).ok();
    assert!(
        serde_json::from_str::<Value>(&run.out()).is_ok_and(|value| value["schema"].is_string()),
        "{}",
        run.out()
    );
}

// Secrets.

/// Every secret that a test node has or gets; each stands in one place only.
const SECRETS: [&str; 8] = [
    "old-private-word",
    "new-private-word",
    "old-pull-token",
    "new-pull-token",
    "$6$oldsalt$oldhash",
    "$6$newsalt$newhash",
    "AAAAC3OldKeyMaterial",
    "AAAAC3NewKeyMaterial",
];

/// The same words as a document may carry them.
fn spellings(secret: &str) -> [String; 3] {
    let percent: String = secret.bytes().map(|b| format!("%{b:02X}")).collect();
    [secret.to_owned(), percent.to_lowercase(), percent]
}

/// A node with secrets, and a config that changes each of them.
fn secretive() -> (TestRoot, Value) {
    let root = TestRoot::new();
    root.write("etc/private.conf", "word = old-private-word\n");
    root.chmod("etc/private.conf", 0o600);
    // Group and others may read it: only its path says that it is a secret.
    root.write(
        "var/lib/kubelet/config.json",
        "{\"auths\": \"old-pull-token\"}\n",
    );
    let shadow = root
        .read("etc/shadow")
        .replace("core:*:", "core:$6$oldsalt$oldhash:");
    root.write("etc/shadow", &shadow);
    root.chmod("etc/shadow", 0o600);
    root.write(
        "home/core/.ssh/authorized_keys.d/ignition",
        "ssh-ed25519 AAAAC3OldKeyMaterial old@registry.example\n",
    );
    let config = machine_config(
        NAME,
        json!({
            "passwd": {"users": [{
                "name": "core",
                "passwordHash": "$6$newsalt$newhash",
                "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NewKeyMaterial new@registry.example"],
            }]},
            "storage": {"files": [
                file("/etc/private.conf", 0o600, "word = new-private-word\n"),
                file("/var/lib/kubelet/config.json", 0o644, "{\"auths\": \"new-pull-token\"}\n"),
                file("/etc/public.conf", 0o644, "public\n"),
            ]},
        }),
    );
    (root, config)
}

fn leaks(args: &[&str], run: &Run) -> Vec<String> {
    let all = run.out() + &run.err();
    let leaked = SECRETS
        .iter()
        .filter(|secret| spellings(secret).iter().any(|form| all.contains(form)));
    leaked
        .map(|secret| format!("{args:?} shows {secret}:\n{all}"))
        .collect()
}

#[test]
fn no_secret_is_shown_however_much_is_said() {
    let mut leaked = Vec::new();
    for output in ["text", "json"] {
        let (root, config) = secretive();
        let config = root.config(&config);
        let always = ["-v", "-v", "--output", output];
        let sequence: [&[&str]; 14] = [
            &["fetch", config.path()],
            &["cache", "list"],
            &["cache", "list", "--output", "json"],
            &["plan", "--output", "json", config.path()],
            &["plan", config.path()],
            &["verify", config.path()],
            &["show", config.path()],
            &["apply", config.path()],
            &["apply", "--yes", config.path()],
            &["verify"],
            &["status"],
            &["show"],
            &["plan"],
            &["recover"],
        ];
        for args in sequence {
            let all = [&always, args].concat();
            leaked.extend(leaks(&all, &root.run(&all)));
        }
        let wanted = [
            ("etc/private.conf", "new-private-word"),
            ("var/lib/kubelet/config.json", "new-pull-token"),
            ("etc/shadow", "$6$newsalt$newhash"),
            (
                "home/core/.ssh/authorized_keys.d/ignition",
                "AAAAC3NewKeyMaterial",
            ),
        ];
        for (path, secret) in wanted {
            assert!(root.read(path).contains(secret), "{path} was not applied");
        }
    }
    assert!(leaked.is_empty(), "{}", leaked.join("\n"));
}

#[test]
fn drift_of_a_secret_is_reported_without_its_content() {
    let (root, config) = secretive();
    root.apply(&config);
    root.write("etc/private.conf", "word = old-private-word\n");
    root.chmod("etc/private.conf", 0o600);
    root.write(
        "var/lib/kubelet/config.json",
        "{\"auths\": \"old-pull-token\"}\n",
    );
    root.write(
        "home/core/.ssh/authorized_keys.d/ignition",
        "ssh-ed25519 AAAAC3OldKeyMaterial x\n",
    );
    for output in ["text", "json"] {
        let args = ["-v", "-v", "--output", output, "verify"];
        let run = root.run(&args).exits(3);
        for path in [
            "/etc/private.conf",
            "/var/lib/kubelet/config.json",
            "authorized_keys.d/ignition",
        ] {
            assert!(run.out().contains(path), "{}", run.out());
        }
        assert_eq!(leaks(&args, &run), Vec::<String>::new());
    }
}

#[test]
fn a_secret_that_leaves_the_config_is_not_shown() {
    let (root, config) = secretive();
    root.apply(&config);
    let without = machine_config(
        NAME,
        json!({"storage": {"files": [file("/etc/public.conf", 0o644, "public\n")]}}),
    );
    let without = root.config(&without);
    let allow = ["-v", "-v", "plan", "--allow-lockout", without.path()];
    let run = root.run(&allow);
    assert!(run.out().contains("/etc/private.conf"), "{}", run.out());
    assert_eq!(leaks(&allow, &run), Vec::<String>::new());
}

#[test]
fn what_others_may_not_read_is_not_shown_even_where_a_group_may() {
    let root = TestRoot::new();
    root.write("etc/of-a-group", "old-private-word\n");
    root.chmod("etc/of-a-group", 0o640);
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [file("/etc/of-a-group", 0o640, "new-private-word\n")]}}),
    );
    let config = root.config(&config);
    for output in ["text", "json"] {
        for command in ["plan", "verify"] {
            let args = ["--output", output, command, config.path()];
            let run = root.run(&args);
            assert!(run.out().contains("/etc/of-a-group"), "{}", run.out());
            assert_eq!(leaks(&args, &run), Vec::<String>::new());
        }
    }
}

#[test]
fn a_file_that_is_private_on_one_side_only_is_not_shown() {
    let root = TestRoot::new();
    root.write("etc/becomes-private", "old-private-word\n");
    root.write("etc/becomes-public", "old-private-word\n");
    root.chmod("etc/becomes-public", 0o600);
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [
            file("/etc/becomes-private", 0o600, "new-private-word\n"),
            file("/etc/becomes-public", 0o644, "new-private-word\n"),
        ]}}),
    );
    let config = root.config(&config);
    for output in ["text", "json"] {
        for command in ["plan", "verify"] {
            let args = ["--output", output, command, config.path()];
            assert_eq!(leaks(&args, &root.run(&args)), Vec::<String>::new());
        }
    }
}

#[test]
fn secrets_are_shown_when_they_are_asked_for() {
    let (root, config) = secretive();
    let config = root.config(&config);
    for command in ["plan", "verify"] {
        for output in ["text", "json"] {
            let run = root.run(&["--output", output, command, "--show-secrets", config.path()]);
            for secret in &SECRETS[..4] {
                assert!(
                    run.out().contains(secret),
                    "{command} {output} lacks {secret}: {}",
                    run.out()
                );
            }
        }
    }
}

#[test]
fn what_is_not_a_secret_is_shown_without_asking() {
    let (root, config) = secretive();
    root.write("etc/public.conf", "formerly\n");
    let config = root.config(&config);
    let run = root.run(&["plan", config.path()]).ok();
    assert!(
        run.out().contains("-formerly") && run.out().contains("+public"),
        "{}",
        run.out()
    );
}

// The screen.

const ESCAPE: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{8}\r\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}";

/// Control characters other than line ends and tabs in what a person sees, and those that turn or hide text.
fn raw(args: &[&str], run: &Run) -> Vec<String> {
    let all = run.out() + &run.err();
    let bad = all.lines().filter(|line| {
        line.chars()
            .any(|c| (c.is_control() && c != '\t') || turns_or_hides(c))
    });
    bad.map(|line| format!("{args:?}: {line:?}")).collect()
}

fn turns_or_hides(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..)
}

/// Every command on a node that differs, then on one where the config was applied.
fn screens(root: &TestRoot, config: &Value) -> Vec<String> {
    let config = root.config(config);
    let sequence: [&[&str]; 10] = [
        &["plan", "--show-secrets", config.path()],
        &["-v", "plan", config.path()],
        &["verify", config.path()],
        &["show", config.path()],
        &["apply", "--yes", config.path()],
        &["verify"],
        &["status"],
        &["show"],
        &["plan"],
        &["recover"],
    ];
    sequence
        .iter()
        .flat_map(|args| raw(args, &root.run(args)))
        .collect()
}

#[test]
fn escape_sequences_in_contents_do_not_reach_the_screen() {
    let root = TestRoot::new();
    root.write("etc/motd", &format!("on disk {ESCAPE}\nsame\n"));
    root.write(
        "etc/systemd/system/agent.service",
        &format!("[Unit]\nDescription=on disk {ESCAPE}\n"),
    );
    let config = machine_config(
        NAME,
        json!({
            "storage": {"files": [file("/etc/motd", 0o644, &format!("in the config {ESCAPE}\nsame\n"))]},
            "systemd": {"units": [{"name": "agent.service", "contents": format!("[Unit]\nDescription=config {ESCAPE}\n")}]},
        }),
    );
    assert_eq!(screens(&root, &config), Vec::<String>::new());
    assert!(
        root.read("etc/motd").contains(ESCAPE),
        "the file itself keeps its bytes"
    );
}

#[test]
fn escape_sequences_in_paths_and_names_do_not_reach_the_screen() {
    let root = TestRoot::new();
    root.write(&format!("etc/e{ESCAPE}.conf"), "old\n");
    let config = machine_config(
        NAME,
        json!({
            "storage": {"files": [
                file(&format!("/etc/e{ESCAPE}.conf"), 0o644, "new\n"),
                file(&format!("/etc/d{ESCAPE}/f"), 0o600, "new\n"),
            ]},
            "systemd": {"units": [{
                "name": "agent.service",
                "dropins": [{"name": format!("d{ESCAPE}.conf"), "contents": "[Unit]\n"}],
            }]},
        }),
    );
    assert_eq!(screens(&root, &config), Vec::<String>::new());
}

#[test]
fn escape_sequences_in_log_lines_do_not_reach_the_screen() {
    let root = TestRoot::new();
    let path = format!("/etc/e{ESCAPE}.conf");
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [file(&path, 0o644, "new\n")]}}),
    );
    let config = root.config(&config);
    let args = ["-v", "-v", "apply", "--yes", config.path()];
    assert_eq!(raw(&args, &root.run(&args).ok()), Vec::<String>::new());
}

#[test]
fn escape_sequences_in_metadata_and_os_parts_do_not_reach_the_screen() {
    let mut config = small();
    config["metadata"]["ownerReferences"] = json!([{"name": format!("worker{ESCAPE}")}]);
    config["spec"]["osImageURL"] = json!(format!("registry.example/os{ESCAPE}"));
    config["spec"]["kernelArguments"] = json!([format!("a={ESCAPE}")]);
    config["spec"]["config"] = json!(null);
    config["spec"]["extensions"] = json!([format!("b{ESCAPE}")]);
    let root = TestRoot::new();
    assert_eq!(screens(&root, &config), Vec::<String>::new());
    // Once more against a record that differs, so that every part stands in a message.
    let recorded = TestRoot::new();
    recorded.apply(&small());
    assert_eq!(screens(&recorded, &config), Vec::<String>::new());
}

#[test]
fn escape_sequences_in_refused_documents_do_not_reach_the_screen() {
    let mut named = small();
    named["metadata"]["name"] = json!(format!("worker{ESCAPE}"));
    let mut kind = small();
    kind["kind"] = json!(format!("Node{ESCAPE}"));
    let mut kernel = small();
    kernel["spec"]["kernelType"] = json!(format!("rt{ESCAPE}"));
    let mut mode = small();
    mode["spec"]["config"]["storage"]["files"][0]["path"] = json!(format!("/etc/{ESCAPE}"));
    mode["spec"]["config"]["storage"]["files"][0]["mode"] = json!(0o4755);
    let mut version = small();
    version["spec"]["config"]["ignition"]["version"] = json!(ESCAPE);
    let mut unit = small();
    unit["spec"]["config"]["systemd"]["units"][0]["contents"] =
        json!(format!("[Unit]\n{ESCAPE}\n"));
    let mut owner = small();
    owner["spec"]["config"]["storage"]["files"][0]["user"] = json!({"name": ESCAPE});
    let mut user = small();
    user["spec"]["config"]["passwd"] = json!({"users": [{"name": ESCAPE}]});
    let root = TestRoot::new();
    for config in [named, kind, kernel, mode, version, unit, owner, user] {
        let config = root.config(&config);
        let args = ["plan", config.path()];
        assert_eq!(raw(&args, &root.run(&args).exits(1)), Vec::<String>::new());
    }
}

#[test]
fn escape_sequences_in_unknown_keys_do_not_reach_the_screen() {
    let mut config = small();
    config["spec"]["config"]["storage"][ESCAPE] = json!(1);
    assert_eq!(screens(&TestRoot::new(), &config), Vec::<String>::new());
}

#[test]
fn escape_sequences_in_owner_names_do_not_reach_the_screen() {
    let mut config = small();
    config["spec"]["config"]["storage"]["files"][0]["user"] =
        json!({"name": format!("core{ESCAPE}")});
    assert_eq!(screens(&TestRoot::new(), &config), Vec::<String>::new());
}

#[test]
fn escape_sequences_in_the_record_and_the_status_do_not_reach_the_screen() {
    let root = TestRoot::new();
    root.apply(&small());
    root.write(
        "etc/machine-config-daemon/currentimage",
        &format!("registry.example/os{ESCAPE}"),
    );
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &format!("{{\"kind\":\"Node{}\"}}", "\\u001b[2J"),
    );
    let config = root.config(&small());
    for args in [
        vec!["status"],
        vec!["plan", config.path()],
        vec!["plan"],
        vec!["verify"],
    ] {
        assert_eq!(raw(&args, &root.run(&args)), Vec::<String>::new());
    }
}

/// A path may hold a line end; the line after it would look like one of ours.
#[test]
fn a_line_end_in_a_path_forges_no_line() {
    let path = "/etc/x\nClean: files, units, enablement, keys and password are as the config wants them.\n";
    let config = machine_config(
        NAME,
        json!({"storage": {"files": [file(path, 0o644, "new\n")], "links": [{"path": path.replace('x', "y"), "target": "/z"}]}}),
    );
    let root = TestRoot::new();
    let config = root.config(&config);
    let mut forged = Vec::new();
    for args in [
        vec!["plan", "--ignore-unsupported", config.path()],
        vec!["verify", config.path()],
        vec!["show", config.path()],
        vec![
            "-v",
            "-v",
            "apply",
            "--yes",
            "--ignore-unsupported",
            config.path(),
        ],
    ] {
        let run = root.run(&args);
        let all = run.out() + &run.err();
        if all.lines().any(|line| line.starts_with("Clean:")) {
            forged.push(format!("{args:?}: {all}"));
        }
    }
    assert!(forged.is_empty(), "{}", forged.join("\n"));
}

/// Whether a line is one that must stay as it is: a daemon's message, a path, a line of a diff.
fn verbatim(line: &str, before: &str) -> bool {
    let text = line.trim_start();
    let sign = ["+ /", "~ /", "- /"]
        .iter()
        .any(|sign| text.starts_with(sign));
    let diff = line.starts_with("      ") && text.starts_with(['+', '-', ' ', '@', '~']);
    let is_command = ["Next: ", "then: ", "or: "]
        .iter()
        .any(|label| text.starts_with(label));
    text.starts_with("daemon: ")
        || is_command
        || before.ends_with("reports:")
        || before.ends_with("report:")
        || !text.contains(' ')
        || sign
        || diff
}

fn too_wide(run: &Run) -> Vec<String> {
    let text = run.out();
    let lines: Vec<&str> = text.lines().collect();
    let mut wide = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .and_then(|i| lines.get(i))
            .unwrap_or(&"");
        if line.chars().count() > 80 && !verbatim(line, before) {
            wide.push((*line).to_owned());
        }
    }
    wide
}

/// A node on which everything differs, with messages of all sorts about it.
fn wordy() -> (TestRoot, Value, Value) {
    let root = TestRoot::new();
    let mut old = small();
    old["metadata"]["name"] = json!("rendered-worker-0000000000000000000000000000000x");
    old["spec"]["kernelArguments"] = json!([
        "nosmt",
        "audit=1",
        "crashkernel=256M",
        "console=ttyS0,115200n8",
        "mitigations=auto"
    ]);
    let mut new = small();
    let ignition = &mut new["spec"]["config"];
    ignition["ignition"]["version"] = json!("3.6.0");
    ignition["kernelArguments"] = json!({"shouldExist": ["mitigations=off"]});
    ignition["passwd"] = json!({"groups": [{"name": "agents"}]});
    ignition["storage"]["directories"] = json!([{"path": "/opt/agent"}]);
    ignition["storage"]["disks"] = json!([{"device": "/dev/vdb"}]);
    ignition["storage"]["a-key-that-nobody-knows"] = json!(true);
    let files = ignition["storage"]["files"].as_array_mut().unwrap();
    files.push(file("/etc/private.conf", 0o600, "secret\n"));
    files.push(file(
        "/etc/kubernetes/manifests/static-pod.yaml",
        0o644,
        "kind: Pod\n",
    ));
    ignition["systemd"]["units"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "absent.service", "enabled": true}));
    new["spec"]["osImageURL"] = json!("registry.example/os@sha256:1");
    root.apply(&old);
    root.write("etc/chrony.conf", "old\n");
    root.chmod("etc/chrony.conf", 0o755);
    root.write("etc/private.conf", "old\n");
    root.link("etc/kubernetes/manifests/static-pod.yaml", "/dev/null");
    (root, old, new)
}

#[test]
fn plan_and_verify_fit_80_columns() {
    let (root, old, new) = wordy();
    let (old, new) = (root.config(&old), root.config(&new));
    let runs: [&[&str]; 6] = [
        &["plan", new.path()],
        &[
            "-v",
            "plan",
            "--ignore-unsupported",
            "--files-only",
            new.path(),
        ],
        &["verify", new.path()],
        &["verify", old.path()],
        &["verify"],
        &["plan"],
    ];
    for args in runs {
        let run = root.run(args);
        assert!(!run.out().is_empty(), "{args:?}: {}", run.err());
        assert_eq!(too_wide(&run), Vec::<String>::new(), "{args:?}");
    }
}

#[test]
fn apply_show_and_status_fit_80_columns() {
    let (root, _, new) = wordy();
    let new = root.config(&new);
    let apply = [
        "apply",
        "--yes",
        "--ignore-unsupported",
        "--files-only",
        new.path(),
    ];
    assert_eq!(too_wide(&root.run(&apply).ok()), Vec::<String>::new());
    assert_eq!(too_wide(&root.run(&["status"]).ok()), Vec::<String>::new());
    assert_eq!(too_wide(&root.run(&["show"]).ok()), Vec::<String>::new());
}

/// What a run leaves behind that was cut off before its journal.
fn cut_off(root: &TestRoot) {
    root.write("var/lib/mco-rescue/marker", "mco-rescue state directory\n");
    let intent = json!({
        "version": 1, "id": "1-1", "deployment": null, "stages": [], "directories": [],
        "config": {"name": NAME, "digest": "0".repeat(64), "origin": "config.json"},
    });
    root.write("var/lib/mco-rescue/intent.json", &intent.to_string());
    root.chmod("var/lib/mco-rescue", 0o700);
}

#[test]
fn plan_and_status_tell_of_an_earlier_run() {
    let root = TestRoot::new();
    cut_off(&root);
    let config = root.config(&small());
    let plan = root.run(&["plan", config.path()]).ok();
    assert!(plan.out().starts_with("An earlier run"), "{}", plan.out());
    assert!(plan.out().contains(NAME), "{}", plan.out());
    let status = root.run(&["--output", "json", "status"]).ok().json();
    assert_eq!(
        (&status["pending"], &status["pending_config"]),
        (&json!("staged"), &json!(NAME))
    );
    let text = root.run(&["status"]).ok();
    assert!(text.out().contains("mco-rescue recover"), "{}", text.out());
}

#[test]
fn the_notes_on_an_earlier_run_fit_80_columns() {
    let root = TestRoot::new();
    cut_off(&root);
    let config = root.config(&small());
    let mut wide = too_wide(&root.run(&["plan", config.path()]).ok());
    wide.extend(too_wide(&root.run(&["status"]).ok()));
    wide.extend(too_wide(&root.run(&["recover"]).ok()));
    assert_eq!(wide, Vec::<String>::new());
}

// Readers that go away.

/// More output than a pipe holds.
fn long() -> Value {
    let files: Vec<Value> = (0..900)
        .map(|n| {
            file(
                &format!("/etc/many/a-file-with-a-rather-long-name-{n}.conf"),
                0o644,
                "x\n",
            )
        })
        .collect();
    machine_config(NAME, json!({"storage": {"files": files}}))
}

#[test]
fn a_reader_that_takes_one_line_only_is_not_an_error() {
    let root = TestRoot::new();
    let config = root.config(&long());
    for (args, wanted) in [
        (vec!["plan", config.path()], 0),
        (vec!["--output", "json", "plan", config.path()], 0),
        (vec!["verify", config.path()], 3),
        (vec!["show", config.path()], 0),
        (vec!["apply", "--yes", config.path()], 0),
    ] {
        let mut child = root
            .command(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), err.as_ref()),
            (Some(wanted), ""),
            "{args:?}"
        );
    }
    assert_eq!(
        root.read("etc/many/a-file-with-a-rather-long-name-899.conf"),
        "x\n"
    );
    root.run(&["verify"]).ok();
}

/// A pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

#[test]
fn help_into_a_closed_pipe_does_not_crash() {
    let output = Command::new(PROGRAM)
        .args(["apply", "--help"])
        .stdout(unread())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), err.as_ref()), (Some(0), ""));
}

#[test]
fn a_closed_standard_output_changes_no_exit_code() {
    let root = TestRoot::new();
    let config = root.config(&small());
    for (args, wanted) in [
        (vec!["status"], 0),
        (vec!["show", config.path(), "/etc/chrony.conf"], 0),
        (vec!["verify", config.path()], 3),
        (vec!["apply", config.path()], 1),
        (vec!["apply", "--yes", config.path()], 0),
        (vec!["recover"], 0),
    ] {
        let mut command = root.command(&args);
        let command = command.stdin(Stdio::null()).stdout(unread());
        let output = command.stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(wanted), "{args:?}: {err}");
    }
    assert_eq!(root.read("etc/chrony.conf"), "pool ntp.example iburst\n");
}

#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let root = TestRoot::new();
    let mut wrong = Vec::new();
    let config = root.config(&small());
    for (args, wanted) in [
        (vec!["plan", "/no/such/file"], 1),
        (vec!["-v", "-v", "apply", "--yes", config.path()], 0),
        (vec!["apply", config.path(), "--no-such-option"], 2),
    ] {
        let mut command = root.command(&args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(unread());
        let code = command.status().unwrap().code();
        if code != Some(wanted) {
            wrong.push(format!("{args:?} ends with {code:?}"));
        }
    }
    assert!(root.exists("etc/chrony.conf"));
    assert_eq!(wrong, Vec::<String>::new());
}
