//! Every command that changes a node, in every state of one, with every answer: exit code, words and the tree agree.
//!
//! The node is a root that the program sees as its own; rpm-ostree, systemctl and systemd-run are STUBS. One judge reads all
//! cells, so a new command or state needs a line here and no expectation of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::faults::{calls, can_trace, copy_tree};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{IMAGE, NEXT, OstreeNode, RPM_OSTREE, Turn, service_config};
use crate::support::{Lacks, RECORD, STATE, flat, is_root, say, skip};

/// A state of the node before the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Healthy,
    Trial,
    HalfWay,
    QueuedRollback,
    ForeignStaging,
    /// An ordinary user.
    NoAccess,
    /// Another machine.
    NoNode,
    LockHeld,
    HistoryUnreadable,
}

const STATES: [State; 9] = [
    State::Healthy,
    State::Trial,
    State::HalfWay,
    State::QueuedRollback,
    State::ForeignStaging,
    State::NoAccess,
    State::NoNode,
    State::LockHeld,
    State::HistoryUnreadable,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    /// `n` on a terminal.
    No,
    NoTerminal,
    /// A word that the command cannot use, with `--yes`.
    Wrong,
}

const ANSWERS: [Answer; 4] = [Answer::Yes, Answer::No, Answer::NoTerminal, Answer::Wrong];

/// A command, and the same with a word or a document that it cannot use.
const COMMANDS: [(&[&str], &[&str]); 14] = [
    (&["apply", "/two"], &["apply", "/broken"]),
    (
        &["apply", "--key", "/key.pub"],
        &["apply", "--key", "/broken"],
    ),
    (&["pivot", NEXT], &["pivot", "not an image"]),
    (&["rollback"], &["rollback", "--try=soon"]),
    (
        &["rollback", "--to", "OLDEST"],
        &["rollback", "--to", "1-1"],
    ),
    (
        &["rollback", "--forget"],
        &["rollback", "--forget", "--to", "1-1"],
    ),
    (&["doctor", "--fix", "FP-12"], &["doctor", "--fix", "FP-99"]),
    (&["install"], &["install", "--config", "/two"]),
    (
        &["install", "--remove"],
        &["install", "--remove", "--not-a-node"],
    ),
    (
        &["firstboot", "--complete"],
        &["firstboot", "--complete", "--after-shell"],
    ),
    (&["complete"], &["complete", "now"]),
    (&["recover"], &["recover", "--leave", "../x"]),
    (&["record"], &["record", "now"]),
    (&["confirm", "--from-console"], &["confirm", "now"]),
];

/// What a command can change.
const KEPT: [&str; 8] = [
    "etc",
    "var",
    "run",
    "stub",
    "home",
    "sysroot",
    "boot",
    "usr/local",
];

/// STUB of systemctl: what changes something is kept.
const SYSTEMCTL: &str = r#"case $* in
    *is-system-running*) echo running ;;
    *show* | *list-* | *is-*) exit 0 ;;
    *) echo "systemctl $*" >>/stub/log ;;
esac"#;

/// STUB of systemd-run: no guard runs; with `/stub/no-guard` none can be started.
const SYSTEMD_RUN: &str = r#"[ ! -e /stub/no-guard ] || { echo 'Failed to start transient service unit: Connection refused' >&2; exit 1; }"#;

/// Kind, mode, owner, and contents or size, of every path.
type Tree = BTreeMap<String, String>;

struct Table {
    node: OstreeNode,
    trees: BTreeMap<State, tempfile::TempDir>,
    oldest: String,
}

impl Table {
    fn new() -> Self {
        let node = OstreeNode::new();
        let queues = RPM_OSTREE.replace(
            "    cancel) ;;",
            "    cancel) ;;\n    rollback) if [ -s queued ]; then : >queued; else echo yes >queued; fi; exit ;;",
        );
        let first = "deployment \"$checksum\" 0 false true\n";
        let swapped = queues.replace(
            &format!("        . ./booted; {first}"),
            &format!(
                "        if [ -s queued ]; then . ./previous; deployment \"$checksum\" 0 false false; printf ', '; fi\n        . ./booted; {first}"
            ),
        );
        let swapped = swapped.replace(
            "if [ -e previous ]; then",
            "if [ -e previous ] && [ ! -s queued ]; then",
        );
        assert_ne!(queues, swapped);
        node.program("rpm-ostree", &swapped);
        node.program("systemctl", SYSTEMCTL);
        node.program("systemd-run", SYSTEMD_RUN);
        let root = &node.root;
        for dir in KEPT.iter().chain(&["run/systemd/system"]) {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        for (path, name, image, text) in [
            ("zero", "rendered-worker-0", IMAGE, "zero\n"),
            ("one", "rendered-worker-1", IMAGE, "one\n"),
            ("two", "rendered-worker-2", IMAGE, "two\n"),
            ("next", "rendered-worker-3", NEXT, "next\n"),
        ] {
            root.write(path, &service_config(name, image, text).to_string());
        }
        let broken = root.read("two");
        root.write("broken", &broken[..broken.len() / 2]);
        root.write(
            "key.pub",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE3Z0tYkqS1kq1kZ0tYkqS1kq1kZ0tYkqS1kq1kZ0tYk admin\n",
        );
        let empty = "etc/NetworkManager/system-connections/a.nmconnection";
        root.write(empty, "");
        root.chmod(empty, 0o600);
        fs::set_permissions(root.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        node.run(&["apply", "--yes", "/zero"]).ok();
        node.run(&["apply", "--yes", "/one"]).ok();
        let history = fs::read_dir(root.path(&format!("{STATE}/history"))).unwrap();
        let mut ids: Vec<String> = history
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        ids.sort();
        let mut table = Self {
            oldest: ids[0].clone(),
            node,
            trees: BTreeMap::new(),
        };
        table.keep(State::Healthy);
        for state in STATES {
            table.make(state);
        }
        table
    }

    /// Brings the node into a state, and keeps it.
    fn make(&mut self, state: State) {
        self.put(State::Healthy);
        let root = &self.node.root;
        match state {
            State::Healthy | State::NoAccess | State::LockHeld => {}
            State::Trial => {
                let args = [
                    "apply",
                    "--yes",
                    "--try=10m",
                    "--detach",
                    "--files-only",
                    "/two",
                ];
                self.node.run(&args).ok();
                root.write("stub/no-guard", "");
            }
            State::HalfWay => self.interrupt(),
            State::QueuedRollback => {
                self.node.run(&["apply", "--yes", "/next"]).ok();
                self.node.reboots_into(NEXT);
                self.node.awaits_since_the_boot_before();
                self.node.run(&["complete"]).ok();
                self.node.run(&["rollback", "--yes"]).ok();
                assert!(root.exists("stub/queued"));
            }
            State::ForeignStaging => self.node.is_staged_by_others(false, NEXT, false),
            State::NoNode => {
                root.write("etc/os-release", "ID=debian\nVERSION_ID=13\n");
                fs::remove_dir_all(root.path("etc/machine-config-daemon")).unwrap();
                fs::remove_dir_all(root.path("etc/kubernetes")).unwrap();
                fs::remove_dir_all(root.path(STATE)).unwrap();
                fs::remove_dir_all(root.path("sysroot/ostree")).unwrap();
            }
            State::HistoryUnreadable => {
                for entry in fs::read_dir(root.path(&format!("{STATE}/history"))).unwrap() {
                    fs::write(entry.unwrap().path().join("journal.json"), "{\"vers").unwrap();
                }
            }
        }
        self.keep(state);
    }

    /// A run that is killed between two names.
    fn interrupt(&self) {
        let _turn = Turn::take();
        let traced = |fault: Option<String>| {
            let log = tempfile::NamedTempFile::new().unwrap();
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "strace", "-qq", "-s", "128", "-o"]);
            command.arg(log.path()).args(["-e", "trace=renameat"]);
            if let Some(fault) = fault {
                command.args(["-e", &format!("inject={fault}")]);
            }
            command.arg("chroot").arg(self.node.root.dir());
            command.args(["/usr/mco-rescue", "apply", "--yes", "/two"]);
            command.stdin(Stdio::null()).output().unwrap();
            let log = fs::read_to_string(log.path()).unwrap();
            let lines: Vec<String> = log.lines().map(|line| format!("1 {line}")).collect();
            calls(&lines.join("\n"))
        };
        let all = traced(None);
        let mark = all
            .iter()
            .position(|call| call.line.contains(".committed.new"))
            .unwrap();
        self.put(State::Healthy);
        // The file is new, and the record is old.
        traced(Some(format!("renameat:signal=KILL:when={mark}")));
        let root = &self.node.root;
        assert!(root.exists(&format!("{STATE}/journal.json")));
        assert_eq!(root.read("etc/service.conf"), "two\n");
        assert!(root.read(RECORD).contains("rendered-worker-1"));
    }

    fn keep(&mut self, state: State) {
        let tree = tempfile::tempdir_in("/dev/shm").unwrap();
        // It becomes the root's own mode.
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for dir in KEPT {
            fs::create_dir_all(tree.path().join(dir)).unwrap();
            copy_tree(&self.node.root.path(dir), &tree.path().join(dir));
        }
        self.trees.insert(state, tree);
    }

    fn put(&self, state: State) {
        KEPT.iter().for_each(|dir| self.put_directory(state, dir));
    }

    fn put_directory(&self, state: State, dir: &str) {
        let to = self.node.root.path(dir);
        fs::remove_dir_all(&to).unwrap();
        fs::create_dir_all(&to).unwrap();
        copy_tree(&self.trees[&state].path().join(dir), &to);
    }

    /// Takes changes back. Only the directories in which they are: the program of the node is large.
    fn take_back(&self, state: State, changed: &[String]) {
        let has = |dir: &&&str| {
            changed
                .iter()
                .any(|path| path.starts_with(&format!("{dir}/")))
        };
        let dirs = KEPT.iter().filter(has);
        dirs.for_each(|dir| self.put_directory(state, dir));
    }

    /// Everything but what the kernel shows and the programs of the node.
    fn tree(&self) -> Tree {
        let mut all = Tree::new();
        for dir in KEPT {
            walk(&self.node.root.path(dir), dir, &mut all);
        }
        all
    }

    /// Runs the command; gives its exit code and all that it printed.
    fn run(&self, state: State, answer: Answer, args: &[&str]) -> (i32, String) {
        let _turn = Turn::take();
        let held = (state == State::LockHeld).then(|| {
            let dir = fs::File::open(self.node.root.path(STATE)).unwrap();
            dir.lock().unwrap();
            dir
        });
        let mut command = Command::new("chroot");
        if state == State::NoAccess {
            command.arg("--userspec=65534:65534");
        }
        command.arg(self.node.root.dir()).arg("/usr/mco-rescue");
        if matches!(answer, Answer::Yes | Answer::Wrong) {
            command.arg("--yes");
        }
        let oldest = |arg: &&str| match *arg {
            "OLDEST" => self.oldest.clone(),
            other => other.to_owned(),
        };
        command.args(args.iter().map(oldest));
        let terminal = (answer == Answer::No).then(|| nix::pty::openpty(None, None).unwrap());
        match &terminal {
            None => command.stdin(Stdio::null()),
            Some(terminal) => {
                let mut keyboard = fs::File::from(terminal.master.try_clone().unwrap());
                keyboard.write_all(b"n\nn\nn\n").unwrap();
                command.stdin(terminal.slave.try_clone().unwrap())
            }
        };
        let output = command.output().unwrap();
        drop(held);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code().unwrap_or(-1), flat(&said))
    }
}

fn walk(dir: &Path, name: &str, all: &mut Tree) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        let meta = entry.path().symlink_metadata().unwrap();
        let what = match () {
            () if meta.is_symlink() => format!("{:?}", fs::read_link(entry.path()).unwrap()),
            () if meta.is_dir() => {
                walk(&entry.path(), &name, all);
                String::new()
            }
            () if meta.len() > 1 << 20 => meta.len().to_string(),
            () if meta.is_file() => format!("{:?}", fs::read(entry.path()).unwrap()),
            () => String::new(),
        };
        let (mode, owner) = (meta.mode(), (meta.uid(), meta.gid()));
        all.insert(name, format!("{mode:o} {owner:?} {what}"));
    }
}

/// Paths that differ.
fn changes(before: &Tree, after: &Tree) -> Vec<String> {
    let all: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    // The text that logins show of a half-way run is brought up to date by every command.
    let differ = all
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path) && !path.starts_with("run/motd.d"));
    differ.cloned().collect()
}

/// A cell of the table, and what was seen in it.
struct Cell<'a> {
    state: State,
    answer: Answer,
    args: &'a [&'a str],
    code: i32,
    said: &'a str,
    changed: &'a [String],
}

impl Cell<'_> {
    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.said.contains(word))
    }

    /// Everything that does not agree.
    fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                wrong.push(what.to_owned());
            }
        };
        let changed = !self.changed.is_empty();
        let denies = self.says(&[
            "othing was changed",
            "o file was changed",
            "nothing was done",
            "node is as it was before",
        ]);
        check(
            (0..=6).contains(&self.code),
            "its exit code is not a documented one",
        );
        check(!self.says(&["panicked", "RUST_BACKTRACE"]), "it panicked");
        check(!(denies && changed), "it denies what it changed");
        check(
            !(self.code == 1 && changed) || self.tells_of_more(),
            "it fails, and does not say what it changed",
        );
        check(
            self.code != 0 || changed || self.is_idle(),
            "it did nothing, and does not say so",
        );
        check(
            self.code == 0 || self.leads_out(),
            "it refuses, and names nothing that leads out",
        );
        match self.answer {
            Answer::Wrong => {
                check(self.code != 0, "it takes a word that it cannot use");
                check(
                    !changed,
                    "it changes something before it has read its words",
                );
            }
            Answer::NoTerminal | Answer::Yes | Answer::No => {
                let of_state = self.of_its_state().into_iter();
                of_state.for_each(|problem| check(false, problem));
            }
        }
        wrong
    }

    /// Where a command fails after it has done something else, that is said.
    fn tells_of_more(&self) -> bool {
        self.says(&[
            "interrupted run was",
            "is in place",
            "was finished",
            "were removed",
            "is stale",
            "placed /",
        ])
    }

    fn is_idle(&self) -> bool {
        self.says(&[
            "othing",
            "No run is waiting for a reboot",
            "already",
            "o trial",
            "after a reboot",
            "is in the history",
            "is pinned",
            "as before",
            "no longer",
            "is completed by a reboot",
        ])
    }

    /// A command, an option, or a place to look at.
    fn leads_out(&self) -> bool {
        self.says(&[
            "mco-rescue ",
            "Next: ",
            "add --",
            "give ",
            "run this",
            "sudo",
            "--help",
            "Not confirmed",
            "--root DIR",
            "try again",
            "opy it again",
            "leave --",
            "such as ",
            "Give ",
        ])
    }

    fn of_its_state(&self) -> Vec<&'static str> {
        let command = self.args[0];
        let changed = !self.changed.is_empty();
        let goes_on = self.code == 0 || changed;
        let names = |words: &[&str]| words.iter().all(|word| self.said.contains(word));
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what| wrong.extend((!holds).then_some(what));
        match self.state {
            // These look after it themselves, or change nothing that it touches.
            // Its units are those that finish the run.
            State::HalfWay if self.args == ["install"] => {}
            State::HalfWay if ["recover", "complete", "record", "confirm"].contains(&command) => {}
            State::HalfWay if self.answer == Answer::NoTerminal => {
                check(!goes_on, "it goes on over a half-way run, unasked");
                check(names(&["mco-rescue recover"]), "it does not name recover");
            }
            State::HalfWay if self.answer == Answer::Yes && changed => {
                let says = self.says(&["nterrupted run", "was interrupted"]);
                check(says, "it finishes a run unsaid");
            }
            State::Trial if ["recover", "complete", "record", "confirm"].contains(&command) => {}
            State::Trial if self.args != ["rollback"] => {
                let both = ["mco-rescue confirm", "mco-rescue rollback"];
                check(!goes_on, "it goes on beside a trial");
                check(names(&both), "it does not name confirm and rollback");
            }
            State::NoAccess => {
                check(!changed, "an ordinary user changes the node");
                let says = self.says(&["sudo", "root"]);
                check(
                    self.code != 1 || says,
                    "it does not say that root is needed",
                );
            }
            State::LockHeld => check(!changed, "it changes what another run has locked"),
            _ => {}
        }
        wrong
    }
}

#[test]
fn exit_code_words_and_tree_agree_for_every_command_in_every_state_with_every_answer() {
    if !is_root() {
        return skip(Lacks::Root, "the table needs root");
    }
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        let table = Table::new();
        let (mut cells, mut wrong) = (0, Vec::new());
        let mut log = std::env::var("MCO_RESCUE_TABLE")
            .ok()
            .map(|path| fs::File::create(path).unwrap());
        for state in STATES {
            table.put(state);
            let before = table.tree();
            for (args, bad) in COMMANDS {
                for answer in ANSWERS {
                    let args = if answer == Answer::Wrong { bad } else { args };
                    let (code, said) = table.run(state, answer, args);
                    let changed = changes(&before, &table.tree());
                    let cell = Cell {
                        state,
                        answer,
                        args,
                        code,
                        said: &said,
                        changed: &changed,
                    };
                    let problems = cell.judge();
                    cells += 1;
                    let some: Vec<&String> = changed.iter().take(4).collect();
                    let line = format!(
                        "{state:?} {answer:?} {args:?}: {problems:?}; exit code {code}, {} changed {some:?}; said: {said}",
                        changed.len()
                    );
                    if let Some(log) = &mut log {
                        writeln!(log, "{line}").unwrap();
                    }
                    if !problems.is_empty() {
                        wrong.push(line);
                    }
                    table.take_back(state, &changed);
                }
            }
        }
        say(&format!(
            "commands, states and answers: {cells} cells judged, {} disagree",
            wrong.len()
        ));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
