//! `rollback` takes finished runs back one by one, whatever they replaced, and never over somebody's change.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::support::{Lacks, Snapshot, TestRoot, file, machine_config, mounts, skip};
use serde_json::{Value, json};

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

fn config(name: &str, files: Value, units: Value, hash: &str) -> Value {
    machine_config(
        name,
        json!({
            "storage": {"files": files},
            "systemd": {"units": units},
            "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA {name}")], "passwordHash": hash},
            ]},
        }),
    )
}

/// Configs that add, replace, remove, mask and enable.
fn generation(number: usize) -> Value {
    let name = format!("rendered-worker-{number}");
    let text = format!("of generation {number}\n");
    let mut files = vec![file("/etc/common.conf", 0o644, &text)];
    files.push(file(&format!("/etc/own/{number}.conf"), 0o600, &text));
    if number >= 2 {
        files.push(file("/etc/by-hand.conf", 0o644, &text));
    }
    let units = json!([
        {"name": "a.service", "contents": unit(&format!("g{number}")), "enabled": number.is_multiple_of(2)},
        {"name": "b.service", "mask": !number.is_multiple_of(2)},
    ]);
    config(&name, json!(files), units, &format!("$6$g{number}$x"))
}

/// A root with a file that no config made.
fn root() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/by-hand.conf", "somebody wrote this\n");
    root
}

/// The tree without what the first run makes for itself: its state directory, and the lock of the accounts.
fn without_state(root: &TestRoot) -> Snapshot {
    let mut tree = root.snapshot();
    tree.retain(|path, _| !(path.starts_with("var/lib") || path == "etc/.pwd.lock"));
    tree
}

/// Panics with the paths that differ, not with whole trees.
fn same(now: &Snapshot, wanted: &Snapshot, when: &str) {
    let all: std::collections::BTreeSet<_> = now.keys().chain(wanted.keys()).collect();
    let differ: Vec<_> = all
        .into_iter()
        .filter(|path| now.get(*path) != wanted.get(*path))
        .collect();
    assert!(differ.is_empty(), "{when}: {differ:?}");
}

#[test]
fn runs_are_taken_back_one_by_one_to_the_very_beginning() {
    let root = root();
    let mut states = vec![without_state(&root)];
    for number in 1..=3 {
        root.apply(&generation(number));
        states.push(without_state(&root));
    }
    for number in (1..=3usize).rev() {
        same(&without_state(&root), &states[number], "before");
        let list = root.run(&["rollback", "--list", "-o", "json"]).json();
        let id = list["runs"][0]["id"].as_str().unwrap();
        let args = ["rollback", "--yes", "--output", "json", "--to", id];
        // The config before the first run is none, so that one is named.
        let args = if number == 1 { &args[..] } else { &args[..4] };
        let run = root.run(args).ok().json();
        assert_eq!(run["schema"], "mco-rescue/rollback/v1");
        assert_eq!(run["config"], format!("rendered-worker-{number}"));
        assert_eq!(run["left"], number - 1);
        same(&without_state(&root), &states[number - 1], "after");
        if number > 1 {
            root.run(&["verify"]).ok();
        }
    }
    assert_eq!(root.read("etc/by-hand.conf"), "somebody wrote this\n");
    let run = root.run(&["rollback", "--yes"]).exits(1);
    assert!(run.err().contains("nothing to go back to"), "{}", run.err());
}

#[test]
fn a_file_that_no_config_owned_comes_back() {
    let root = root();
    root.apply(&generation(1));
    root.apply(&generation(2));
    assert_eq!(root.read("etc/by-hand.conf"), "of generation 2\n");
    root.run(&["rollback", "--yes"]).ok();
    assert_eq!(root.read("etc/by-hand.conf"), "somebody wrote this\n");
    assert!(!root.exists("etc/own/2.conf") && root.exists("etc/own/1.conf"));
}

#[test]
fn after_going_back_one_can_go_forward_and_back_again() {
    let root = root();
    root.apply(&generation(1));
    let first = without_state(&root);
    for number in [2, 3] {
        root.apply(&generation(number));
        root.run(&["rollback", "--yes"]).ok();
        same(&without_state(&root), &first, "reverted");
    }
}

#[test]
fn three_runs_are_kept() {
    let root = root();
    for number in 1..=5 {
        root.apply(&generation(number));
    }
    let kept = |root: &TestRoot| -> Vec<String> {
        let status = root.run(&["status", "--output", "json"]).ok().json();
        let history = status["history"].as_array().unwrap().clone();
        history
            .iter()
            .map(|run| run["config"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest_first = [5, 4, 3].map(|number| format!("rendered-worker-{number}"));
    assert_eq!(kept(&root), newest_first);
    for left in [2, 1, 0] {
        let run = root
            .run(&["rollback", "--yes", "--output", "json"])
            .ok()
            .json();
        assert_eq!(run["left"], left);
        assert_eq!(kept(&root), newest_first[3 - left..]);
    }
    assert_eq!(root.read("etc/common.conf"), "of generation 2\n");
    root.run(&["rollback", "--yes"]).exits(1);
}

#[test]
fn what_was_changed_since_is_named_and_stays() {
    let root = root();
    root.apply(&generation(1));
    root.apply(&generation(2));
    root.write("etc/common.conf", "changed by hand\n");
    let before = root.everything();
    let run = root.run(&["rollback", "--yes"]).exits(1);
    let said: Vec<String> = (run.out() + &run.err())
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let said = said.join(" ");
    assert!(
        said.contains("/etc/common.conf was changed since rendered-worker-2 was applied"),
        "{said}"
    );
    assert_eq!(root.everything(), before);
    root.run(&["rollback", "--yes", "--leave-changed"]).ok();
    assert_eq!(root.read("etc/common.conf"), "changed by hand\n");
    assert_eq!(root.read("etc/by-hand.conf"), "somebody wrote this\n");
    assert!(!root.exists("etc/own/2.conf"));
}

#[test]
fn a_directory_that_gave_way_comes_back_with_everything_in_it() {
    let root = root();
    root.write("srv/tree/a/b", "deep\n");
    root.chmod("srv/tree/a", 0o711);
    root.link("srv/tree/l", "/etc");
    root.write("srv/plain", "plain\n");
    let before = without_state(&root);
    root.apply(&json!({"ignition": {"version": "3.4.0"}, "storage": {
        "files": [file("/srv/tree", 0o644, "instead"), file("/srv/plain/below", 0o644, "x")],
        "directories": [{"path": "/srv/plain", "overwrite": true}],
    }}));
    assert_eq!(root.read("srv/tree"), "instead");
    root.run(&["rollback", "--yes"]).ok();
    same(&without_state(&root), &before, "reverted");
}

#[test]
fn a_directory_that_holds_something_new_stays() {
    let root = root();
    root.apply(&json!({"ignition": {"version": "3.4.0"}, "storage": {
        "files": [file("/srv/new/x", 0o644, "x")]}}));
    root.write("srv/new/of-somebody", "kept\n");
    root.run(&["rollback", "--yes"]).ok();
    assert!(!root.exists("srv/new/x"));
    assert_eq!(root.read("srv/new/of-somebody"), "kept\n");
}

#[test]
fn nobody_is_asked_without_a_terminal_and_nothing_changes() {
    let root = root();
    root.apply(&generation(1));
    let before = root.everything();
    let run = root.run(&["rollback"]).exits(1);
    assert!(run.err().contains("--yes"), "{}", run.err());
    assert_eq!(root.everything(), before);
}

#[test]
fn a_damaged_history_is_said_and_an_older_run_is_never_taken_back_instead() {
    let root = root();
    root.apply(&generation(1));
    // The older run has nothing in common with the newest one, so nothing else would stop it.
    root.apply(&json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file("/srv/x", 0o644, "x")]}}));
    let history = "var/lib/mco-rescue/history";
    let newest = root
        .everything()
        .keys()
        .filter_map(|path| path.strip_prefix(&format!("{history}/")))
        .filter(|path| !path.contains('/'))
        .max()
        .unwrap()
        .to_owned();
    root.write(
        &format!("{history}/{newest}/journal.json"),
        "{\"version\": 1,",
    );
    let before = root.everything();
    let run = root.run(&["rollback", "--yes"]).exits(1);
    assert!(
        run.err().contains(&format!("history/{newest}")),
        "{}",
        run.err()
    );
    assert_eq!(root.everything(), before);
}

const ACCESS_LIST: &CStr = c"system.posix_acl_access";
const OF_A_USER: &CStr = c"user.comment";

/// Sets an extended attribute; says whether the file system has such.
fn set(path: &Path, name: &CStr, value: &[u8]) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: all three live through the call, and the length is the value's.
    0 == unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    }
}

fn get(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = vec![0; 4096];
    // SAFETY: as above; the length is the buffer's.
    let length = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

/// `user::rw- user:1234:rw- group::r-- mask::rw- other::r--`, as the kernel keeps it.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 6, 1234),
        (0x04, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Applies and takes back where one file is replaced and one removed; both had more than a mode.
fn access_comes_back(root: &TestRoot) {
    let second = machine_config(
        "rendered-worker-2",
        json!({"storage": {"files": [file("/etc/kept.conf", 0o644, "two\n")]}}),
    );
    let first = machine_config(
        "rendered-worker-1",
        json!({"storage": {"files": [file("/etc/kept.conf", 0o664, "one\n"), file("/etc/gone.conf", 0o664, "one\n")]}}),
    );
    root.apply(&first);
    let paths = ["etc/kept.conf", "etc/gone.conf"].map(|path| root.path(path));
    for path in &paths {
        if !set(path, ACCESS_LIST, &access_list()) || !set(path, OF_A_USER, b"mine") {
            skip(
                Lacks::Machine,
                "no access lists or no attributes of users on this file system",
            );
            return;
        }
    }
    root.apply(&second);
    assert_eq!(
        get(&paths[0], ACCESS_LIST),
        None,
        "the daemon's own write has none either"
    );
    root.run(&["rollback", "--yes"]).ok();
    for path in &paths {
        assert_eq!(
            get(path, ACCESS_LIST),
            Some(access_list()),
            "{}",
            path.display()
        );
        assert_eq!(
            get(path, OF_A_USER).as_deref(),
            Some(&b"mine"[..]),
            "{}",
            path.display()
        );
        assert_eq!(fs::read_to_string(path).unwrap(), "one\n");
    }
}

#[test]
fn what_had_an_access_list_gets_it_back_and_gives_its_group_no_more() {
    access_comes_back(&TestRoot::new());
}

#[test]
fn access_lists_come_back_from_a_history_on_another_mount() {
    mounts::with_mounts(|| {
        let root = TestRoot::new();
        let var = root.path("var");
        let var = var.to_str().unwrap();
        mounts::mount(&["--bind", var, var]);
        access_comes_back(&root);
    });
}
