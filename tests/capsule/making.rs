//! What stands in the way of `capsule make` and `capsule verify`: directories as people have them, and second runs.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::keys::{NAME, Stick, config_text, make_key};
use crate::support::mounts::{Disk, unmount, with_mounts};
use crate::support::{Run, flat};

const FILES: [&str; 2] = ["capsule.json", "capsule.json.sig"];

fn capsule(stick: &Stick) -> [Vec<u8>; 2] {
    FILES.map(|name| fs::read(stick.path(name)).unwrap_or_default())
}

fn make(stick: &Stick, directory: &str, key: &Path) -> Run {
    let key = key.display().to_string();
    stick
        .root
        .run(&["capsule", "make", directory, "--sign", &key])
}

/// Asserts that no capsule is made, with these words, and that what was there stays.
fn refuses(stick: &Stick, words: &str) {
    let before = capsule(stick);
    let run = make(stick, &stick.path(""), &stick.key.file);
    let said = flat(&run.err());
    assert_eq!(run.code(), 1, "{words}: {said}");
    assert!(said.contains(words), "{words}: {said}");
    assert!(capsule(stick) == before, "{words}: the old capsule is gone");
}

fn verifies(stick: &Stick) -> String {
    let run = stick.root.run(&["capsule", "verify", &stick.path("")]);
    let said = format!("{} {}", run.out(), run.err());
    assert_eq!(run.code(), 0, "{said}");
    said
}

#[test]
fn special_files_and_names_are_refused_by_name_and_the_old_capsule_stays() {
    let Some(stick) = Stick::new() else { return };
    let path = stick.path("odd");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    refuses(&stick, "odd is a link, a device or a pipe");
    fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    refuses(&stick, "odd is a link, a device or a pipe");
    fs::remove_file(&path).unwrap();
    symlink("configs", &path).unwrap();
    refuses(&stick, "odd is a link, a device or a pipe");
    fs::remove_file(&path).unwrap();
    for name in [
        "a:b",
        "a\\b",
        "caf\u{e9}",
        "cafe\u{301}",
        "end.",
        " begin",
        "line\nbreak",
    ] {
        stick.put(name, "");
        refuses(&stick, "cannot be in a capsule");
        fs::remove_file(stick.path(name)).unwrap();
    }
    stick.put("configs/again.json", &config_text(NAME, "2\n"));
    refuses(&stick, "another config with the name rendered-worker-1");
    fs::remove_file(stick.path("configs/again.json")).unwrap();
    stick.put("CAPSULE.JSON", "{}");
    refuses(&stick, "it is the capsule itself");
    fs::remove_file(stick.path("CAPSULE.JSON")).unwrap();
    verifies(&stick);
}

#[test]
fn what_systems_put_on_a_stick_by_themselves_is_not_in_the_capsule() {
    let Some(stick) = Stick::new() else { return };
    for name in [
        "System Volume Information/IndexerVolumeGuid",
        "$RECYCLE.BIN/desktop.ini",
        ".Trashes/x",
        ".fseventsd/no_log",
        ".Spotlight-V100/x",
        "lost+found/x",
        // Of a `capsule make` that was killed.
        ".capsule.json.new",
        ".capsule.json.sig.new",
    ] {
        stick.put(name, "1");
    }
    let made: Value = stick.make(&["--sequence", "8", "--output", "json"]).json();
    let files = made["capsule"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    verifies(&stick);
}

#[test]
fn a_signature_that_cannot_be_made_leaves_the_old_capsule() {
    let Some(stick) = Stick::new() else { return };
    stick.put("configs/two.json", &config_text("rendered-worker-2", "2\n"));
    let before = capsule(&stick);
    let missing = make(&stick, &stick.path(""), Path::new("/no/key"));
    assert_eq!(missing.code(), 1);
    assert!(capsule(&stick) == before, "{}", missing.err());
    // A key that no node would accept.
    let keys = tempfile::tempdir().unwrap();
    let Some(key) = make_key(keys.path(), "p521", &["ecdsa", "-b", "521"]) else {
        return;
    };
    let refused = make(&stick, &stick.path(""), &key.file);
    assert_eq!(refused.code(), 1);
    let said = flat(&refused.err());
    assert!(
        said.contains("P-521") && said.contains("nothing was signed"),
        "{said}"
    );
    assert!(capsule(&stick) == before);
    verifies(&stick);
}

#[test]
fn every_capsule_of_a_directory_has_a_larger_number_than_the_one_before() {
    let Some(stick) = Stick::new() else { return };
    let number = |run: Run| run.json()["capsule"]["sequence"].as_u64().unwrap();
    let first = number(stick.make(&["-o", "json"]));
    let second = number(stick.make(&["-o", "json"]));
    assert!(second > first, "{first} {second}");
    // A desk whose clock was wrong once.
    stick.make(&["--sequence", "5000000000"]);
    assert_eq!(number(stick.make(&["-o", "json"])), 5_000_000_001);
    assert_eq!(stick.apply().code(), 0);
    stick.put("configs/one.json", &config_text(NAME, "2\n"));
    stick.make(&["--sequence", "8"]);
    stick.refuses("make DIR --sign KEY --sequence 5000000002");
    // The largest one is accepted, and none comes after it.
    let most = (1_u64 << 53).to_string();
    stick.make(&["--sequence", &most]);
    assert_eq!(stick.apply().code(), 0);
    refuses(&stick, "a sequence number above");
}

#[test]
fn an_empty_directory_and_a_foreign_list_are_refused() {
    let Some(stick) = Stick::new() else { return };
    let empty = tempfile::tempdir().unwrap();
    let run = make(&stick, empty.path().to_str().unwrap(), &stick.key.file);
    assert_eq!(run.code(), 1);
    assert!(
        flat(&run.err()).contains("is empty; mount the stick"),
        "{}",
        run.err()
    );
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
    for text in ["", "{\"version\": 1}", "my notes"] {
        stick.put("capsule.json", text);
        refuses(&stick, "remove it");
    }
    let run = make(&stick, "/no/stick", &stick.key.file);
    assert_eq!(run.code(), 1);
    assert!(flat(&run.err()).contains("/no/stick"), "{}", run.err());
}

#[test]
fn a_full_and_a_read_only_stick_keep_what_they_have() {
    with_mounts(|| {
        let Some(stick) = Stick::new() else { return };
        let Some(disk) = Disk::new(8, &["mkfs.vfat"]) else {
            return;
        };
        let there = tempfile::tempdir().unwrap();
        let path = there.path().display().to_string();
        let command = |name: &str| format!("{path}/{name}");
        disk.mount(there.path(), "");
        fs::write(command("one.json"), config_text(NAME, "1\n")).unwrap();
        assert_eq!(make(&stick, &path, &stick.key.file).code(), 0);
        let before = fs::read(command("capsule.json")).unwrap();
        // Full to the last cluster.
        let mut filler = File::create(command("filler")).unwrap();
        let filled = std::io::copy(&mut std::io::repeat(1), &mut filler);
        assert!(filled.is_err());
        drop(filler);
        for number in 0..200 {
            if fs::write(command(&format!("more-{number}")), "1").is_err() {
                break;
            }
        }
        let full = make(&stick, &path, &stick.key.file);
        assert_eq!(full.code(), 1, "{}", full.out());
        assert!(flat(&full.err()).contains("capsule.json"), "{}", full.err());
        assert_eq!(fs::read(command("capsule.json")).unwrap(), before);
        unmount(there.path());
        disk.mount(there.path(), ",ro");
        let refused = make(&stick, &path, &stick.key.file);
        assert_eq!(refused.code(), 1);
        let said = flat(&refused.err());
        assert!(
            said.contains("read-only") && said.contains("nothing was signed"),
            "{said}"
        );
        // It is read as it is.
        let shown = stick.root.run(&["capsule", "show", &path]);
        assert_eq!(shown.code(), 0, "{}", shown.err());
        unmount(there.path());
    });
}

#[test]
fn a_key_of_the_agent_signs_by_its_public_key() {
    let Some(stick) = Stick::new() else { return };
    let agent = Command::new("ssh-agent").arg("-s").output().unwrap();
    let text = String::from_utf8(agent.stdout).unwrap();
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("{name}=")).unwrap();
        rest.split(';').next().unwrap().to_owned()
    };
    let (socket, pid) = (value("SSH_AUTH_SOCK"), value("SSH_AGENT_PID"));
    let mut add = Command::new("ssh-add");
    add.arg("-q")
        .arg(&stick.key.file)
        .env("SSH_AUTH_SOCK", &socket);
    assert!(add.status().unwrap().success());
    let public = stick.key.file.with_extension("pub");
    let keys = tempfile::tempdir().unwrap();
    let alone = keys.path().join("alone.pub");
    fs::copy(public, &alone).unwrap();
    let args = [
        "capsule",
        "make",
        &stick.path(""),
        "--sign",
        alone.to_str().unwrap(),
        "--sequence",
        "8",
    ];
    let without = Run::of(
        stick
            .root
            .command(&args)
            .env_remove("SSH_AUTH_SOCK")
            .output()
            .unwrap(),
    );
    let mut command = stick.root.command(&args);
    let made = Run::of(command.env("SSH_AUTH_SOCK", &socket).output().unwrap());
    let _ = Command::new("kill").arg(&pid).status();
    assert_eq!(without.code(), 1);
    assert_eq!(made.code(), 0, "{}", made.err());
    verifies(&stick);
    assert_eq!(stick.apply().code(), 0);
}

#[test]
fn a_kill_in_the_middle_of_making_leaves_a_stick_that_is_made_again() {
    if !crate::support::faults::can_trace() {
        return;
    }
    let Some(stick) = Stick::new() else { return };
    let (path, key) = (stick.path(""), stick.key.file.display().to_string());
    let args = ["capsule", "make", &path, "--sign", &key];
    for call in ["fsync", "renameat"] {
        for nth in 1..=2 {
            let fault = format!("{call}:signal=KILL:when={nth}");
            crate::support::faults::traced(&stick.root, call, &[fault], &args)
                .was_killed(call, nth);
            assert_eq!(stick.root.run(&args).code(), 0);
            let said = verifies(&stick);
            assert!(
                said.contains("1 file, all as signed"),
                "{call} {nth}: {said}"
            );
        }
    }
}

#[test]
fn what_is_wrong_is_said_as_json_too() {
    let Some(stick) = Stick::new() else { return };
    let path = stick.path("");
    stick.put("configs/one.json", &config_text(NAME, "2\n"));
    let run = stick.root.run(&["capsule", "verify", &path, "-o", "json"]);
    assert_eq!(run.code(), 1);
    assert_eq!(run.json()["problems"].as_array().unwrap().len(), 1);
    stick.put("capsule.json.sig", "x");
    let shown = stick
        .root
        .run(&["capsule", "show", &path, "-o", "json"])
        .ok()
        .json();
    assert!(
        shown["signature"]["problem"]
            .as_str()
            .unwrap()
            .contains("first line"),
        "{shown}"
    );
    for args in [
        ["capsule", "verify", &path, "-o", "json"],
        ["plan", &stick.config(), "-o", "json", "--quiet"],
    ] {
        let run = stick.root.run(&args);
        assert_eq!(run.code(), 1, "{}", run.out());
        assert!(
            flat(&run.err()).contains("the signature of"),
            "{}",
            run.err()
        );
    }
}
