//! The umask of the caller: no file or directory depends on it, and none can be written by other users.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{PROGRAM, Run, Snapshot, TestRoot, file, machine_config, say};

fn config(text: &str) -> Value {
    machine_config(
        &format!("rendered-worker-{text}"),
        json!({
            "storage": {"files": [
                file("/etc/a.conf", 0o644, text),
                file("/etc/new/deep/b.conf", 0o600, text),
            ]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": true,
                 "contents": format!("[Unit]\nDescription={text}\n[Install]\nWantedBy=multi-user.target\n")},
            ]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 {text}")]}]},
        }),
    )
}

/// Every command that makes files, on a new root; returns what is there afterwards, below the root and beside it.
fn everything_made(umask: &str) -> (Snapshot, Snapshot) {
    let root = TestRoot::new();
    let outside = TestRoot::empty();
    let place = |name: &str| outside.path(name).to_str().unwrap().to_owned();
    let (one, two) = (root.config(&config("one")), root.config(&config("two")));
    fs::create_dir(outside.path("pages")).unwrap();
    let (image, bundle, pages) = (place("image"), place("bundle"), place("pages"));
    let (made, metrics) = (place("made.yaml"), place("metrics.prom"));
    let lines: [(&[&str], &[i32]); 13] = [
        (&["apply", "--yes", one.path()], &[0]),
        (&["apply", "--yes", two.path()], &[0]),
        (&["fetch", one.path()], &[0]),
        (&["record"], &[0]),
        (&["rollback", "--yes"], &[0]),
        (&["verify"], &[0]),
        (&["install"], &[0]),
        (&["install", "--initramfs", &image], &[0]),
        (&["doctor", "--bundle", &bundle], &[0, 3, 6]),
        (&["man", &pages], &[0]),
        (&["keep", "/etc/a.conf", "--to", &made], &[0]),
        (&["status"], &[0, 3]),
        (&["status", "--metrics", &metrics], &[0, 3, 6]),
    ];
    for (args, codes) in lines {
        let run = under(umask, root.dir(), args);
        assert!(
            codes.contains(&run.code()),
            "{umask} {args:?}: {}{}",
            run.out(),
            run.err()
        );
    }
    (root.everything(), outside.everything())
}

fn under(umask: &str, root: &Path, args: &[&str]) -> Run {
    let script = "umask \"$1\"; shift; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", umask, PROGRAM, "--root"]);
    command.arg(root).args(args).stdin(Stdio::null());
    Run::of(command.output().unwrap())
}

/// Modes by name; the digits in names, and their number, differ from run to run.
fn modes(all: &Snapshot) -> BTreeMap<String, BTreeSet<u32>> {
    let mut modes: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (path, entry) in all.iter().filter(|(_, entry)| entry.kind != 'l') {
        let name = path.replace(|c: char| c.is_ascii_hexdigit(), "#");
        let mut name: Vec<char> = name.chars().collect();
        name.dedup_by(|a, b| *a == '#' && *b == '#');
        modes
            .entry(name.into_iter().collect())
            .or_default()
            .insert(entry.mode);
    }
    modes
}

#[test]
fn no_file_or_directory_depends_on_the_umask_of_the_caller() {
    let (root, outside) = everything_made("022");
    let wanted = (modes(&root), modes(&outside));
    for umask in ["0", "077", "0777"] {
        let (root, outside) = everything_made(umask);
        for all in [&root, &outside] {
            for (path, entry) in all.iter().filter(|(_, entry)| entry.kind != 'l') {
                assert_eq!(
                    entry.mode & 0o022,
                    0,
                    "umask {umask}: {path} {:o}",
                    entry.mode
                );
            }
        }
        assert_eq!((modes(&root), modes(&outside)), wanted, "umask {umask}");
    }
    say("four umasks gave the same modes");
}
