//! The entries of the journal, through the real journald and journalctl, with the texts of the real catalogue; and the text at
//! logins.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::Turn;
use crate::support::services::wait_until;
use crate::support::{
    self, Lacks, Run, TestRoot, file, is_root, machine_config, null_device, skip,
};

const JOURNALD: &str = "/usr/lib/systemd/systemd-journald";
const OLD: &str = "rendered-worker-old";
const NEW: &str = "rendered-worker-new";
const SECRET: &str = "thesecretthatnobodymaysee";
const TROUBLE: &str = "run/motd.d/61-mco-rescue";

const BEGAN: &str = "532bce17fe8b4cfe895fdbad4a0bd7d2";
const FINISHED: &str = "cf3733eff3e2497299deef868b48ad74";
const HALF_WAY: &str = "97f4d27900f246389711593210cd3d30";
const DRIFT: &str = "9a7c42ee44e2467a855401896a2f1a82";
const CRITICAL: &str = "488eead00967426c85e77fff1976fad5";

fn config(name: &str, text: &str) -> Value {
    let files = json!([
        file("/etc/pool.conf", 0o644, text),
        file("/etc/second.conf", 0o644, text),
        file("/etc/secret", 0o600, SECRET),
    ]);
    machine_config(name, json!({"storage": {"files": files}}))
}

/// A running node with a journal of its own.
struct Node {
    root: TestRoot,
    journald: Child,
    _turn: Turn,
}

impl Node {
    /// In a mount namespace of the test's own.
    fn new() -> Self {
        mount(&["-t", "tmpfs", "tmpfs", "/run"]);
        for dir in ["/run/systemd/journal", "/run/log/journal", "/run/udev"] {
            fs::create_dir_all(dir).unwrap();
        }
        let mut journald = Command::new(JOURNALD);
        let journald = journald.stderr(Stdio::null()).spawn().unwrap();
        let socket = "/run/systemd/journal/socket";
        wait_until("a socket of journald", || fs::metadata(socket).is_ok());
        let root = TestRoot::new();
        root.apply(&config(OLD, "old\n"));
        for dir in ["proc", "dev", "run/systemd/journal"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        null_device(&root);
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        let journal = root.path("run/systemd/journal");
        mount(&["--bind", "/run/systemd/journal", journal.to_str().unwrap()]);
        support::install_program(&root.path("mco"));
        root.write("config", &config(NEW, "new\n").to_string());
        let _turn = Turn::take();
        Self {
            root,
            journald,
            _turn,
        }
    }

    fn run(&self, args: &[&str]) -> Run {
        self.run_by(&["chroot"], args)
    }

    fn run_by(&self, by: &[&str], args: &[&str]) -> Run {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(self.root.dir()).arg("/mco");
        Run::of(command.args(args).stdin(Stdio::null()).output().unwrap())
    }

    /// The entries of an id, once there are as many.
    fn entries(&self, id: &str, number: usize) -> Vec<Value> {
        let read = || -> Vec<Value> {
            let lines = journalctl(&["--output", "json", &format!("MESSAGE_ID={id}")]);
            let lines = lines.lines();
            lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        wait_until("an entry in the journal", || read().len() >= number);
        let all = read();
        assert_eq!(all.len(), number, "{all:?}");
        all
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.journald.kill();
        let _ = self.journald.wait();
    }
}

fn journalctl(args: &[&str]) -> String {
    let mut command = Command::new("journalctl");
    command.args(["--directory", "/run/log/journal", "--no-pager", "--quiet"]);
    let output = command
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn can_run() -> bool {
    let can = is_root() && fs::metadata(JOURNALD).is_ok();
    if !can {
        skip(
            Lacks::root_or_program("journalctl"),
            "needs root and systemd-journald",
        );
    }
    can
}

fn says(entry: &Value, wanted: &[(&str, &str)]) {
    for (field, value) in wanted {
        assert_eq!(entry[field], *value, "{entry}");
    }
}

#[test]
fn the_journal_has_each_event_with_its_fields_and_explains_it() {
    if !can_run() {
        return;
    }
    with_mounts(|| {
        let node = Node::new();
        node.run(&["apply", "--takeover", "--yes", "/config"]).ok();
        let about_new = [
            ("MCO_RESCUE_COMMAND", "apply"),
            ("MCO_RESCUE_CONFIG", NEW),
            ("SYSLOG_IDENTIFIER", "mco-rescue"),
            ("PRIORITY", "5"),
        ];
        says(&node.entries(BEGAN, 1)[0], &about_new);
        let finished = &node.entries(FINISHED, 1)[0];
        says(finished, &about_new);
        says(finished, &[("MCO_RESCUE_RESULT", "done")]);

        node.root.write("etc/pool.conf", "by hand\n");
        node.run(&["verify"]).exits(3);
        says(
            &node.entries(DRIFT, 1)[0],
            &[
                ("MCO_RESCUE_COMMAND", "verify"),
                ("MCO_RESCUE_RESULT", "1 difference"),
                ("PRIORITY", "4"),
            ],
        );
        // The record is damaged.
        node.root
            .write("etc/machine-config-daemon/currentconfig", "{");
        node.run(&["doctor", "--quiet"]).exits(6);
        let critical = &node.entries(CRITICAL, 1)[0];
        says(
            critical,
            &[("MCO_RESCUE_COMMAND", "doctor"), ("PRIORITY", "2")],
        );
        let checks = critical["MCO_RESCUE_RESULT"].as_str().unwrap();
        assert!(checks.starts_with("FP-"), "{checks}");
        // Another root sends nothing, although a journal runs here.
        let other = TestRoot::new();
        other.apply(&config("rendered-worker-other", "x\n"));
        assert!(!journalctl(&[]).contains("rendered-worker-other"));
        assert!(!journalctl(&["--output", "verbose", "--all"]).contains(SECRET));

        catalogue();
        let explained = journalctl(&["--catalog", "MESSAGE_ID=9a7c42ee44e2467a855401896a2f1a82"]);
        for words in [
            "Subject: The node differs from its config",
            "found 1 difference between this node and",
            "Next: `mco-rescue verify` lists them",
            NEW,
        ] {
            assert!(explained.contains(words), "{words}: {explained}");
        }
    });
}

/// Puts the texts where `journalctl -x` looks, by journalctl itself.
fn catalogue() {
    let image = TestRoot::empty();
    let file = image.path("usr/local/lib/systemd/catalog/mco-rescue.catalog");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::copy("systemd/mco-rescue.catalog", file).unwrap();
    let root = format!("--root={}", image.dir().display());
    let mut command = Command::new("journalctl");
    let updated = command.arg("--update-catalog").arg(&root).output().unwrap();
    let said = String::from_utf8_lossy(&updated.stderr).into_owned();
    assert!(updated.status.success() && said.is_empty(), "{said}");
    let mut command = Command::new("journalctl");
    let listed = command.arg("--list-catalog").arg(&root).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().count(), 12, "{listed}");
    assert!(
        listed.lines().all(|line| line.contains("mco-rescue: ")),
        "{listed}"
    );
    mount(&["-t", "tmpfs", "tmpfs", "/var/lib/systemd"]);
    fs::create_dir_all("/var/lib/systemd/catalog").unwrap();
    fs::copy(
        image.path("var/lib/systemd/catalog/database"),
        "/var/lib/systemd/catalog/database",
    )
    .unwrap();
}

#[test]
fn logins_show_a_run_that_is_half_way_until_it_is_recovered() {
    if !can_run() {
        return;
    }
    with_mounts(|| {
        let node = Node::new();
        let unfinished = || {
            let status = node.run(&["status", "--output", "json"]).ok().json();
            status["pending"] == "unfinished"
        };
        for count in 1..50 {
            node.run(&["recover"]).ok();
            node.root.write("etc/pool.conf", "by hand\n");
            let kill = format!("inject=renameat:signal=SIGKILL:when={count}");
            let by = ["strace", "-f", "-o", "/dev/null", "-e", &kill, "chroot"];
            node.run_by(&by, &["apply", "--takeover", "--yes", "/config"]);
            if unfinished() {
                break;
            }
        }
        assert!(unfinished(), "no rename leaves a run half-way");
        // Neither as before nor as after.
        node.root.write("etc/pool.conf", "a third text\n");
        node.root.write("etc/second.conf", "a third text\n");
        node.run(&["recover"]).exits(5);
        let text = support::flat(&node.root.read(TROUBLE));
        for words in [NEW, "UNFINISHED", "Next: mco-rescue recover"] {
            assert!(text.contains(words), "{text}");
        }
        let mode = fs::metadata(node.root.path(TROUBLE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o644);
        says(
            &node.entries(HALF_WAY, 1)[0],
            &[("MCO_RESCUE_COMMAND", "recover"), ("PRIORITY", "2")],
        );
        node.run(&["recover", "--leave", "/"]).ok();
        assert!(!node.root.exists(TROUBLE));
    });
}

#[test]
fn every_line_of_the_catalogue_fits_80_columns_behind_its_mark() {
    let text = fs::read_to_string("systemd/mco-rescue.catalog").unwrap();
    let name = "rendered-worker-0123456789abcdef0123456789abcdef";
    let text = text.replace("@MCO_RESCUE_CONFIG@", name);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // journalctl puts a mark of two columns and a blank before each.
    let wide: Vec<&str> = lines.filter(|line| line.chars().count() > 77).collect();
    assert_eq!(wide, [""; 0]);
}
