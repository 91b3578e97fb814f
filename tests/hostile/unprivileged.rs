//! An ordinary user may do everything on a root that is his: ownership is the one thing said to be
//! missing. On somebody else's root he is told so, and nothing changes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Lacks, TestRoot, file, install_program, is_root, machine_config, say, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Who runs the program when the test itself is root.
const NOBODY: u32 = 65534;

/// The program where anybody can run it, and a root directory of its user.
struct User {
    root: TestRoot,
    bin: TempDir,
}

struct Ended(Output);

impl Ended {
    fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{}{}", self.out(), self.err());
        self
    }
}

impl User {
    /// A root that the user can look into, but that is ours.
    fn stranger() -> Self {
        let bin = tempfile::tempdir().unwrap();
        let root = TestRoot::new();
        for dir in [bin.path(), root.dir()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        install_program(&bin.path().join("mco-rescue"));
        Self { root, bin }
    }

    /// A root that is the user's own, accounts included.
    fn at_home() -> Self {
        let user = Self::stranger();
        if is_root() {
            let core = format!("core:x:{NOBODY}:{NOBODY}::/home/core:/bin/bash\n");
            let root = "root:x:0:0::/root:/bin/sh\n";
            user.root.write("etc/passwd", &format!("{root}{core}"));
            give(user.root.dir());
        }
        user
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.run_under(&[], args)
    }

    /// Runs the program as the user, under another one.
    fn run_under(&self, wrapper: &[&str], args: &[&str]) -> Ended {
        let mut line: Vec<String> = Vec::new();
        if is_root() {
            line.push("setpriv".to_owned());
            line.push(format!("--reuid={NOBODY}"));
            line.push(format!("--regid={NOBODY}"));
            line.push("--clear-groups".to_owned());
        }
        line.extend(wrapper.iter().map(|&word| word.to_owned()));
        let program = self.bin.path().join("mco-rescue");
        line.push(program.to_str().unwrap().to_owned());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg("--root").arg(self.root.dir());
        Ended(command.args(args).stdin(Stdio::null()).output().unwrap())
    }

    /// A config file that the user can read.
    fn config(&self, name: &str, value: &Value) -> String {
        let path = self.bin.path().join(name);
        fs::write(&path, value.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Gives everything to the user.
fn give(path: &Path) {
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

/// Files of several owners, a unit, keys and a password.
fn config(text: &str) -> Value {
    let mut owned = file("/etc/owned-by-core.conf", 0o600, text);
    owned["user"] = json!({"name": "core"});
    owned["group"] = json!({"id": 4242});
    machine_config(
        &format!("rendered-worker-{}", text.trim()),
        json!({
            "storage": {"files": [
                file("/etc/a.conf", 0o644, text),
                file("/etc/new/deep/b.conf", 0o640, text),
                owned,
            ]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": true,
                 "contents": format!("[Unit]\nDescription={text}[Install]\nWantedBy=multi-user.target\n")},
            ]},
            "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 {}", text.trim())],
                 "passwordHash": format!("$6${}", text.trim())},
            ]},
        }),
    )
}

#[test]
fn an_ordinary_user_applies_to_his_own_root_and_verify_is_clean() {
    let user = User::at_home();
    for text in ["one\n", "two\n"] {
        let config = user.config("config", &config(text));
        user.run(&["apply", "--yes", &config]).exits(0);
        user.run(&["verify", &config]).exits(0);
        assert_eq!(user.root.read("etc/a.conf"), text);
        assert_eq!(user.root.mode("etc/new/deep/b.conf"), 0o640);
        assert_eq!(user.root.mode("etc/owned-by-core.conf"), 0o600);
        assert!(
            user.root
                .read("etc/shadow")
                .contains(&format!(":$6${}:", text.trim()))
        );
        assert_eq!(user.root.mode("etc/shadow"), 0o600);
    }
    let owner = user.root.everything()["etc/machine-id"].owner;
    for (path, entry) in user.root.everything() {
        assert_eq!(entry.owner, owner, "{path}");
    }
}

#[test]
fn a_second_apply_has_nothing_to_do() {
    let user = User::at_home();
    let config = user.config("config", &config("one\n"));
    user.run(&["apply", "--yes", &config]).exits(0);
    let before = user.root.everything();
    let plan = user.run(&["--output", "json", "plan", &config]).exits(0);
    let plan: Value = serde_json::from_str(&plan.out()).unwrap();
    assert_eq!(plan["steps"], json!([]));
    user.run(&["apply", "--yes", &config]).exits(0);
    assert_eq!(user.root.everything(), before);
}

#[test]
fn missing_ownership_is_said_exactly_once() {
    let user = User::at_home();
    let config = user.config("config", &config("one\n"));
    for args in [&["plan", &config][..], &["plan", "-v", &config]] {
        let text = user.run(args).exits(0).out();
        assert_eq!(text.matches("not root:").count(), 1, "{text}");
    }
    let plan = user.run(&["--output", "json", "plan", &config]).exits(0);
    let plan: Value = serde_json::from_str(&plan.out()).unwrap();
    let notices = plan["notices"].as_array().unwrap().iter();
    let about = notices.filter(|notice| notice["subject"] == "ownership");
    assert_eq!(about.count(), 1, "{plan}");
}

#[test]
fn an_interrupted_run_is_recovered_without_privileges_too() {
    let traces = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    if !traces.is_ok_and(|output| output.status.success()) {
        skip(
            Lacks::program("strace"),
            "strace is not installed or may not trace here",
        );
        return;
    }
    for (way, text) in [
        (&["recover"][..], "two\n"),
        (&["recover", "--back"], "one\n"),
    ] {
        let user = User::at_home();
        let first = user.config("first", &config("one\n"));
        user.run(&["apply", "--yes", &first]).exits(0);
        let second = user.config("second", &config("two\n"));
        // Intent and journal are the first two renames.
        let fault = "inject=renameat:signal=KILL:when=5";
        let strace = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=renameat",
            "-e",
            fault,
        ];
        user.run_under(&strace, &["apply", "--yes", &second])
            .exits(-1);
        assert!(user.root.exists("var/lib/mco-rescue/journal.json"));
        user.run(way).exits(0);
        let config = if text == "two\n" { second } else { first };
        user.run(&["verify", &config]).exits(0);
        assert_eq!(user.root.read("etc/a.conf"), text);
    }
}

/// The user is refused with a reason, and everything is as it was, our own state included.
fn is_refused(user: &User, named: &[&str]) {
    let config = user.config("config", &config("one\n"));
    let before = user.root.everything();
    let run = user.run(&["apply", "--yes", &config]).exits(1);
    let said = run.out() + &run.err();
    let errors = run
        .err()
        .lines()
        .filter(|line| line.starts_with("error: "))
        .count();
    assert_eq!(errors, 1, "{said}");
    for word in named {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert_eq!(user.root.everything(), before);
}

#[test]
fn the_root_of_somebody_else_is_refused_and_left_alone() {
    if !is_root() {
        skip(
            Lacks::Root,
            "a root of somebody else can only be made by root",
        );
        return;
    }
    is_refused(&User::stranger(), &["denied"]);
}

#[test]
fn a_root_that_cannot_be_looked_into_is_refused_and_left_alone() {
    if !is_root() {
        skip(
            Lacks::Root,
            "a root of somebody else can only be made by root",
        );
        return;
    }
    let user = User::stranger();
    user.root.chmod("", 0o700);
    is_refused(&user, &["root", "denied"]);
    let user = User::stranger();
    user.root.chmod("etc", 0o700);
    is_refused(&user, &["/etc"]);
}

#[test]
fn a_user_who_owns_var_but_not_etc_changes_nothing_in_etc() {
    if !is_root() {
        skip(
            Lacks::Root,
            "a root of somebody else can only be made by root",
        );
        return;
    }
    let user = User::stranger();
    give(&user.root.path("var"));
    user.root.write("etc/a.conf", "before\n");
    let config = user.config("config", &config("one\n"));
    let before = user.root.snapshot();
    let run = user.run(&["apply", "--yes", &config]);
    assert!(matches!(run.code(), 1 | 4), "{}{}", run.out(), run.err());
    assert!(
        run.err().contains("denied") || run.err().contains("permitted"),
        "{}",
        run.err()
    );
    assert_eq!(user.root.snapshot(), before);
    assert!(!user.root.exists("var/lib/mco-rescue/journal.json"));
    assert!(!user.root.exists("var/lib/mco-rescue/intent.json"));
}

#[test]
fn what_an_ordinary_user_applied_root_makes_right() {
    if !is_root() {
        skip(Lacks::Root, "only root can give files away");
        return;
    }
    let user = User::at_home();
    let value = config("one\n");
    let path = user.config("config", &value);
    user.run(&["apply", "--yes", &path]).exits(0);
    user.root.run(&["verify", &path]).exits(3);
    user.root.apply(&value);
    user.root.run(&["verify", &path]).ok();
    let everything = user.root.everything();
    assert_eq!(everything["etc/a.conf"].owner, (0, 0));
    assert_eq!(everything["etc/owned-by-core.conf"].owner, (NOBODY, 4242));
    chown(user.root.path("etc/a.conf"), Some(NOBODY), None).unwrap();
    user.root.run(&["verify", &path]).exits(3);
}

/// A node as root has it: files that only root may read, and a state directory that only root may open.
fn node_of_root() -> User {
    let user = User::stranger();
    let root = &user.root;
    root.write(
        "etc/containers/policy.json",
        "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}",
    );
    root.chmod("etc/containers/policy.json", 0o600);
    // It boots images, and this one could be pulled.
    root.write("usr/etc/a", "");
    let mut one = config("one\n");
    one["spec"]["osImageURL"] = json!(format!("registry.example/os@sha256:{}", "a".repeat(64)));
    one["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap()
        .push(file("/etc/secret.conf", 0o600, "secret\n"));
    root.apply(&one);
    user
}

/// Every command that reads or changes a node.
fn every_command(config: &str) -> Vec<Vec<&str>> {
    let all = [
        "verify",
        "status",
        "status --for-cluster",
        "plan",
        "apply",
        "rollback",
        "rollback --forget",
        "recover",
        "recover --back",
        "recover --give-up",
        "fetch --pool worker --server mcs.example",
        "cache list",
        "cache forget rendered-worker-one",
        "complete",
        "install",
        "install --remove",
    ];
    let mut all: Vec<Vec<&str>> = all.iter().map(|line| line.split(' ').collect()).collect();
    for command in ["verify", "plan", "apply", "fetch"] {
        all.push(vec![command, config]);
    }
    all
}

#[test]
fn on_a_node_of_root_every_command_says_to_use_sudo() {
    if !is_root() {
        skip(
            Lacks::Root,
            "a root of another user can only be made by root",
        );
        return;
    }
    let (untouched, used, cut, open) = (
        node_of_root(),
        node_of_root(),
        node_of_root(),
        node_of_root(),
    );
    fs::remove_dir_all(untouched.root.path("var/lib/mco-rescue")).unwrap();
    cut.root.write("var/lib/mco-rescue/journal.json", "{}");
    // As `chmod -R a+rX` leaves it: everything of ours can be read.
    open.root.write("var/lib/mco-rescue/journal.json", "{}");
    open.root.chmod("var/lib/mco-rescue", 0o755);
    for (state, user) in [
        ("untouched", untouched),
        ("used", used),
        ("cut", cut),
        ("open", open),
    ] {
        let config = user.config("config", &config("two\n"));
        let before = user.root.everything();
        for command in every_command(&config) {
            // The caches of an untouched node and of a readable one have nothing to hide.
            let may_look = ["untouched", "open"].contains(&state) && command[0] == "cache";
            if may_look && command[1] == "list" {
                continue;
            }
            let line = [&["--yes"][..], &command].concat();
            let run = user.run(&line);
            let said = format!("{state}: {command:?}: {}{}", run.out(), run.err());
            assert_eq!(run.code(), 1, "{said}");
            assert!(run.err().contains("sudo"), "{said}");
            assert_eq!(run.err().matches("error: ").count(), 1, "{said}");
        }
        assert_eq!(user.root.everything(), before, "{state}");
    }
}

#[test]
fn doctor_says_that_it_could_not_read_instead_of_what_is_wrong_with_it() {
    if !is_root() {
        skip(
            Lacks::Root,
            "a root of another user can only be made by root",
        );
        return;
    }
    for state in [true, false] {
        let user = node_of_root();
        if !state {
            fs::remove_dir_all(user.root.path("var/lib/mco-rescue")).unwrap();
        }
        let doctor = user.run(&["doctor", "-v"]);
        let text = doctor.out();
        let (found, unseen) = text.split_once("Not checked:").unwrap();
        assert!(!found.contains("permission denied"), "{text}");
        assert!(!found.contains("cannot be pulled"), "{text}");
        assert!(!found.contains("FP-03: "), "{text}");
        let unseen: Vec<&str> = unseen.split_whitespace().collect();
        let unseen = unseen.join(" ");
        let words = "/etc/containers/policy.json: permission denied";
        assert!(unseen.contains(words), "no {words:?} in {text}");
        assert_eq!(doctor.err().matches("sudo").count(), 1, "{}", doctor.err());
        assert_ne!(doctor.code(), 0, "{text}");
    }
}

/// One path of the user's root belongs to root: the plan knows what apply would meet.
#[test]
fn plan_refuses_what_apply_cannot_do() {
    if !is_root() {
        skip(Lacks::Root, "only root can give files away");
        return;
    }
    let user = User::at_home();
    let first = user.config("first", &config("one\n"));
    user.run(&["apply", "--yes", &first]).exits(0);
    let second = user.config("second", &config("two\n"));
    let (mut refused, mut tried) = (0, 0);
    let paths: Vec<String> = user.root.everything().into_keys().collect();
    for path in paths {
        let at = user.root.path(&path);
        for closed in [true, false] {
            // The oldest run of the history goes with each new one.
            let Ok(meta) = fs::symlink_metadata(&at) else {
                continue;
            };
            let (is_link, mode) = (meta.is_symlink(), user.root.mode(&path));
            lchown(&at, Some(0), Some(0)).unwrap();
            if !is_link {
                let open = if at.is_dir() { 0o755 } else { 0o644 };
                user.root
                    .chmod(&path, if closed { open & 0o700 } else { open });
            }
            let before = user.root.everything();
            let plan = user.run(&["plan", &second]);
            let apply = user.run(&["apply", "--yes", &second]);
            let said = format!(
                "{path} (closed: {closed}): {}{}{}",
                plan.out(),
                apply.out(),
                apply.err()
            );
            assert_eq!(plan.code(), apply.code(), "{said}");
            tried += 1;
            if apply.code() != 0 {
                refused += 1;
                assert_eq!(apply.code(), 1, "{said}");
                assert!((plan.out() + &plan.err()).contains("sudo"), "{said}");
                assert!((apply.out() + &apply.err()).contains("sudo"), "{said}");
                assert!(user.root.everything() == before, "{said}");
            } else {
                give(user.root.dir());
                user.run(&["apply", "--yes", &first]).exits(0);
            }
            if fs::symlink_metadata(&at).is_ok() {
                lchown(&at, Some(NOBODY), Some(NOBODY)).unwrap();
                if !is_link {
                    user.root.chmod(&path, mode);
                }
            }
        }
    }
    say(&format!(
        "{tried} roots with one path of root's, {refused} refused"
    ));
    assert!(refused > 20 && refused < tried);
}
