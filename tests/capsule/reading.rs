//! What a capsule lets pass, what the node remembers of it, and what the screens say.

use std::fs;
use std::io::{ErrorKind, Write};
use std::process::Stdio;

use serde_json::Value;

use super::keys::{NAME, Stick, config_text};
use crate::support::{Run, flat};

#[test]
fn a_node_reads_a_signed_stick_and_says_who_signed() {
    let Some(stick) = Stick::new() else { return };
    let plan = stick.root.run(&["plan", &stick.config()]);
    assert_eq!(plan.code(), 0, "{}", plan.err());
    let said = flat(&plan.out());
    assert!(
        said.contains("Signed by alice@example.com (SHA256:"),
        "{said}"
    );
    assert!(said.contains("capsule 7"), "{said}");
    let document = stick
        .root
        .run(&["plan", "--output", "json", &stick.config()])
        .json();
    assert_eq!(document["signed"]["sequence"], 7);
    assert_eq!(document["signed"]["signer"], "alice@example.com");
    assert_eq!(stick.root.run(&["record"]).code(), 0);
    // A plan remembers nothing.
    assert!(!stick.root.exists("var/lib/mco-rescue/capsules.json"));

    let applied = stick.apply();
    assert_eq!(applied.code(), 0, "{}", applied.err());
    assert_eq!(stick.root.read("etc/from-stick"), "1\n");
    let status = stick.root.run(&["status"]);
    assert!(
        flat(&status.out()).contains("Signed by alice@example.com"),
        "{}",
        status.out()
    );
    let status = stick.root.run(&["status", "--output", "json"]).json();
    assert_eq!(status["recorded_signed"]["sequence"], 7);
    assert_eq!(status["recorded"], NAME);
    // The same capsule again.
    assert_eq!(stick.apply().code(), 0);
    let differs = stick.root.run(&["diff", "1"]).out();
    assert!(
        flat(&differs).contains("recorded config signed by"),
        "{differs}"
    );
}

#[test]
fn what_was_fetched_through_a_capsule_is_applied_from_the_cache_with_its_signer() {
    let Some(stick) = Stick::new() else { return };
    let fetched = stick.root.run(&["fetch", &stick.path("configs")]);
    assert_eq!(fetched.code(), 0, "{} {}", fetched.out(), fetched.err());
    // The list itself is not taken for a config.
    assert!(!fetched.out().contains("capsule.json"), "{}", fetched.out());
    fs::remove_dir_all(stick.path("configs")).unwrap();
    let applied = stick
        .root
        .run(&["apply", "--yes", &format!("cached:{NAME}")]);
    assert_eq!(applied.code(), 0, "{}", applied.err());
    let status = stick.root.run(&["status", "--output", "json"]).json();
    assert_eq!(status["recorded_signed"]["signer"], "alice@example.com");
}

fn apply_stream(stick: &Stick, text: &str, more: &[&str]) -> Run {
    stream(stick, text, &[&["apply", "--yes", "-"], more].concat())
}

fn stream(stick: &Stick, text: &str, args: &[&str]) -> Run {
    let mut command = stick.root.command(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    match input.write_all(text.as_bytes()) {
        // A refusal comes before anything is read.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    drop(input);
    Run::of(child.wait_with_output().unwrap())
}

#[test]
fn every_command_reads_standard_input_through_the_capsule_under_each_of_its_names() {
    let Some(stick) = Stick::new() else { return };
    stick
        .root
        .write("etc/mco-rescue/policy", "stdin = required\n");
    let (good, capsule) = (config_text(NAME, "1\n"), stick.path(""));
    let other = config_text(NAME, "2\n");
    for name in ["-", "/dev/stdin", "/proc/self/fd/0"] {
        for (command, code) in [("plan", 0), ("verify", 3), ("show", 0), ("fetch", 0)] {
            let refused = stream(&stick, &good, &[command, name]);
            assert_eq!(refused.code(), 1, "{command} {name}: {}", refused.out());
            let said = flat(&refused.err());
            assert!(
                said.contains("stdin = required"),
                "{command} {name}: {said}"
            );
            // It shows files of the stick by their names.
            if command == "show" {
                continue;
            }
            let args = [command, name, "--capsule", &capsule];
            let said = flat(&stream(&stick, &other, &args).err());
            assert!(
                said.contains("not in the capsule"),
                "{command} {name}: {said}"
            );
            let read = stream(&stick, &good, &args);
            assert_eq!(read.code(), code, "{command} {name}: {}", read.err());
        }
    }
    // A file is no stream.
    assert_eq!(stick.root.run(&["plan", &stick.config()]).code(), 0);
}

#[test]
fn standard_input_is_compared_with_the_configs_of_a_named_capsule() {
    let Some(stick) = Stick::new() else { return };
    let good = config_text(NAME, "1\n");
    let refused = apply_stream(&stick, &good, &[]);
    assert_eq!(refused.code(), 1);
    assert!(
        flat(&refused.err()).contains("stdin = required"),
        "{}",
        refused.err()
    );
    let capsule = stick.path("");
    let other = apply_stream(&stick, &config_text(NAME, "2\n"), &["--capsule", &capsule]);
    assert_eq!(other.code(), 1);
    assert!(
        flat(&other.err()).contains("not in the capsule"),
        "{}",
        other.err()
    );
    let taken = apply_stream(&stick, &good, &["--capsule", &capsule]);
    assert_eq!(taken.code(), 0, "{}", taken.err());
}

#[test]
fn without_a_policy_a_stick_without_capsule_is_read_and_one_with_a_capsule_is_verified() {
    let Some(stick) = Stick::new() else { return };
    stick.root.remove("etc/mco-rescue/policy");
    let elsewhere = tempfile::tempdir().unwrap();
    let plain = elsewhere.path().join("two.json");
    fs::write(&plain, config_text("rendered-worker-2", "2\n")).unwrap();
    let plain = plain.display().to_string();
    assert_eq!(stick.root.run(&["plan", &plain]).code(), 0);
    stick.put("configs/two.json", &config_text("rendered-worker-2", "2\n"));
    let refused = stick.root.run(&["plan", &stick.path("configs/two.json")]);
    assert_eq!(refused.code(), 1);
    assert!(
        flat(&refused.err()).contains("not in the capsule"),
        "{}",
        refused.err()
    );
    // A node that trusts no key cannot verify it, and says so.
    stick.root.remove("etc/mco-rescue/allowed_signers");
    let unverified = stick.root.run(&["plan", &stick.path("configs/two.json")]);
    assert_eq!(unverified.code(), 0);
    assert!(
        flat(&unverified.err()).contains("is not verified"),
        "{}",
        unverified.err()
    );
}

#[test]
fn an_unknown_policy_stops_everything_that_it_could_be_about() {
    let Some(stick) = Stick::new() else { return };
    for text in [
        "media = perhaps\n",
        "medium = required\n",
        "media\n",
        "media=required\nmedia=required\n",
    ] {
        stick.root.write("etc/mco-rescue/policy", text);
        stick.refuses("etc/mco-rescue/policy, line ");
    }
    stick.root.remove("etc/mco-rescue/policy");
    stick.root.link("etc/mco-rescue/policy", "nowhere");
    stick.refuses("etc/mco-rescue/policy");
}

#[test]
fn the_policy_and_the_keys_of_an_image_count_where_etc_has_none() {
    let Some(stick) = Stick::new() else { return };
    for name in ["policy", "allowed_signers"] {
        let text = stick.root.read(&format!("etc/mco-rescue/{name}"));
        stick.root.remove(&format!("etc/mco-rescue/{name}"));
        stick
            .root
            .write(&format!("usr/lib/mco-rescue/{name}"), &text);
    }
    assert_eq!(stick.apply().code(), 0);
    stick.put("configs/one.json", &config_text(NAME, "2\n"));
    fs::remove_file(stick.path("capsule.json")).unwrap();
    fs::remove_file(stick.path("capsule.json.sig")).unwrap();
    stick.refuses("media = required");
}

#[test]
fn the_override_is_for_the_console_alone() {
    let Some(stick) = Stick::new() else { return };
    fs::remove_file(stick.path("capsule.json")).unwrap();
    fs::remove_file(stick.path("capsule.json.sig")).unwrap();
    let run = stick
        .root
        .run(&["apply", "--yes", "--accept-unsigned", &stick.config()]);
    assert_eq!(run.code(), 1);
    assert!(flat(&run.err()).contains("console"), "{}", run.err());
    assert!(!stick.root.exists("etc/from-stick"));
}

#[test]
fn a_capsule_is_made_shown_verified_and_signed_elsewhere() {
    let Some(stick) = Stick::new() else { return };
    stick.put("notes.txt", "hello");
    let made = stick.make(&[
        "--pool",
        "worker",
        "--not-after",
        "2099-01-31",
        "--sequence",
        "8",
        "--output",
        "json",
    ]);
    let made: Value = made.json();
    assert_eq!(made["capsule"]["not_after"], "2099-01-31T23:59:59Z");
    assert_eq!(made["capsule"]["pools"], serde_json::json!(["worker"]));
    let paths: Vec<&str> = made["capsule"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["configs/one.json", "notes.txt"]);
    let stick_path = stick.path("");
    let shown = stick
        .root
        .run(&["capsule", "show", &stick_path, "--output", "json"])
        .json();
    assert_eq!(shown["capsule"], made["capsule"]);
    assert_eq!(shown["signature"]["key"], made["key"]);
    let text = stick.root.run(&["capsule", "show", &stick_path]);
    assert!(text.out().contains("NOT verified"), "{}", text.out());
    // It is for workers, and this node does not say what it is.
    let verified = stick.root.run(&["capsule", "verify", &stick_path]);
    assert!(
        flat(&verified.err()).contains("pool worker"),
        "{} {}",
        verified.out(),
        verified.err()
    );
    let signers = stick
        .root
        .path("etc/mco-rescue/allowed_signers")
        .display()
        .to_string();
    let verified = stick
        .root
        .run(&["capsule", "verify", &stick_path, "--signers", &signers]);
    assert_eq!(verified.code(), 0, "{}", verified.err());
    stick.put("notes.txt", "hullo");
    let changed = stick
        .root
        .run(&["capsule", "verify", &stick_path, "--signers", &signers]);
    assert_eq!(changed.code(), 1);
    assert!(
        flat(&changed.out()).contains("notes.txt is not the file"),
        "{}",
        changed.out()
    );

    fs::remove_file(stick.path("capsule.json.sig")).unwrap();
    let unsigned = stick.root.run(&[
        "capsule",
        "make",
        &stick_path,
        "--unsigned",
        "--sequence",
        "9",
    ]);
    assert_eq!(unsigned.code(), 0, "{}", unsigned.err());
    assert!(
        unsigned
            .out()
            .contains("ssh-keygen -Y sign -f KEY -n mco-rescue-capsule"),
        "{}",
        unsigned.out()
    );
    stick.refuses("the signature of");
    stick.sign_as(&stick.key.file, "mco-rescue-capsule");
    assert_eq!(stick.apply().code(), 0);
}

#[test]
fn a_directory_with_what_no_capsule_can_hold_is_not_listed() {
    let Some(stick) = Stick::new() else { return };
    let key = stick.key.file.display().to_string();
    let path = stick.path("");
    let before = fs::read(stick.path("capsule.json")).unwrap();
    let refused = |words: &str| {
        let run = stick.root.run(&["capsule", "make", &path, "--sign", &key]);
        assert_eq!(run.code(), 1);
        assert!(flat(&run.err()).contains(words), "{}", run.err());
        assert_eq!(fs::read(stick.path("capsule.json")).unwrap(), before);
    };
    std::os::unix::fs::symlink("/etc/shadow", stick.path("link")).unwrap();
    refused("link is a link, a device or a pipe");
    fs::remove_file(stick.path("link")).unwrap();
    stick.put("caf\u{e9}", "");
    refused("cannot be in a capsule");
    fs::remove_file(stick.path("caf\u{e9}")).unwrap();
    stick.put("Notes", "");
    stick.put("notes", "");
    refused("differ in case only");
}
