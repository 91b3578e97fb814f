//! Trials that are stopped, or meet an error, at each system call that changes something; then the guard is started again,
//! or another boot comes. In the end everything is old or, after a confirmation, everything is new.
//!
//! The program runs on a live root in a namespace. systemctl and systemd-run are STUBS: the second starts the real guard.
//! `MCO_RESCUE_FAULTS=all` (`make faults`) tries all points, else a sample.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::faults::{copy_tree, on_threads};
use crate::support::mounts::{mount, with_mounts};
use crate::support::scenes::{can_disturb, everything_is_asked_for};
use crate::support::{
    Entry, Run, STATE, Snapshot, TestRoot, copy_program, file, install, install_program,
    machine_config, null_device, say, unsealed,
};

/// Calls that make, change, remove or flush. Not `openat`: its number depends on the processes of the machine; each file
/// that it makes is written, flushed or renamed next.
/// Those that only look are met by an I/O error alone: what cannot be read is not missing.
const READING: &str = "openat,openat2,read,newfstatat,statx,readlinkat,getdents64,lgetxattr";
const WATCHED: &str = "write,fchmod,fchown,fchownat,lsetxattr,utimensat,linkat,unlinkat,renameat,renameat2,mkdirat,\
                       symlinkat,fsync,syncfs,flock";

/// STUB of systemctl: it knows the guard, by the number of its process, and nothing else.
const SYSTEMCTL: &str = r#"
read -r pid 2>/dev/null </stub/guard.pid
alive() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }
case $* in
    *is-system-running*) echo running ;;
    *show*mco-rescue-guard.service*)
        state=inactive sub=dead
        if alive; then state=active sub=running; fi
        printf 'Id=mco-rescue-guard.service\nActiveState=%s\nSubState=%s\n' $state $sub ;;
    *stop*mco-rescue-guard.service*) if alive; then kill "$pid"; fi; exit 0 ;;
    *stop* | *reset-failed* | *daemon-reload*) exit 0 ;;
    *) exit 0 ;;
esac
"#;

/// STUB of systemd-run: the guard is started in the background, timers are not. With `/stub/no-guard` it fails, with
/// `/stub/quiet` nothing is started.
const SYSTEMD_RUN: &str = r#"
[ ! -e /stub/no-guard ] || { echo 'Failed to start transient service unit: Connection refused' >&2; exit 1; }
[ ! -e /stub/quiet ] || exit 0
case $* in *--unit=mco-rescue-guard\ *) ;; *) exit 0 ;; esac
while [ "$1" != -- ]; do shift; done
shift
"$@" </dev/null >>/stub/guard.log 2>&1 &
echo $! >/stub/guard.pid
"#;

/// A node in a scratch directory; `with_mounts` has to be around it.
pub(super) struct TrialNode {
    pub(super) root: TestRoot,
}

impl TrialNode {
    /// In config A, with one run in its history.
    pub(super) fn new() -> Self {
        let node = Self {
            root: TestRoot::new(),
        };
        let root = &node.root;
        for program in ["/bin/sh", "/bin/rm"] {
            copy_program(root, program);
        }
        for dir in ["proc", "dev", "usr/sbin", "stub"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        null_device(root);
        let bind = |from: &str, to: &str| {
            let (from, to) = (root.path(from), root.path(to));
            mount(&["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
        };
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        root.write("cmdline", "rw quiet\n");
        bind("cmdline", "proc/cmdline");
        root.write("kernel-hostname", "worker-0\n");
        bind("kernel-hostname", "proc/sys/kernel/hostname");
        root.write("boot_id", "00000000-0000-0000-0000-000000000001\n");
        bind("boot_id", "proc/sys/kernel/random/boot_id");
        fs::create_dir_all(root.path("run/systemd/system")).unwrap();
        install_program(&root.path("usr/mco-rescue"));
        for (name, script) in [("systemctl", SYSTEMCTL), ("systemd-run", SYSTEMD_RUN)] {
            root.write("script", &format!("#!/bin/sh\n# STUB\n{script}\n"));
            install(
                &root.path("script"),
                &root.path(&format!("usr/sbin/{name}")),
            );
        }
        root.write("a", &config('a').to_string());
        root.write("b", &config('b').to_string());
        root.write("c", &config('c').to_string());
        root.write("etc/stale.conf", "of nobody\n");
        node.run(&["apply", "--yes", "/a"]).ok();
        node
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        let command_ref = command
            .arg(self.root.dir())
            .arg("/usr/mco-rescue")
            .args(args);
        command_ref.stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Under strace, without what it starts; a fault as strace takes it.
    pub(super) fn traced(&self, fault: Option<&str>, args: &[&str]) -> TracedRun {
        self.watched(WATCHED, fault, args)
    }

    /// The same for these calls.
    fn watched(&self, calls: &str, fault: Option<&str>, args: &[&str]) -> TracedRun {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("strace");
        command.args(["-qq", "-s", "128", "-o"]).arg(log.path());
        command.args(["-e", &format!("trace={calls}")]);
        if let Some(fault) = fault {
            command.args(["-e", &format!("inject={fault}")]);
        }
        command.arg("chroot").arg(self.root.dir());
        command.arg("/usr/mco-rescue").arg("--quiet").args(args);
        // The guard, in the background, may outlive it: files, as a pipe would be held open.
        let (out, err) = (
            tempfile::NamedTempFile::new().unwrap(),
            tempfile::NamedTempFile::new().unwrap(),
        );
        command
            .stdin(Stdio::null())
            .stdout(out.reopen().unwrap())
            .stderr(err.reopen().unwrap());
        let status = command.status().unwrap();
        let text = |file: &tempfile::NamedTempFile| fs::read_to_string(file.path()).unwrap();
        TracedRun {
            code: status.code(),
            signal: status.signal(),
            said: text(&out) + &text(&err),
            calls: text(&log).lines().map(str::to_owned).collect(),
        }
    }

    /// The number of the guard's process, while it lives.
    fn guard(&self) -> Option<i32> {
        let text = fs::read_to_string(self.root.path("stub/guard.pid")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        (!rest.starts_with('Z') && stat.contains("(mco-rescue)")).then_some(pid)
    }

    pub(super) fn kill_guard(&self) {
        if let Some(pid) = self.guard() {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        wait_until("the guard is dead", || self.guard().is_none());
    }

    pub(super) fn trial(&self) -> Option<Value> {
        let text = fs::read_to_string(self.root.path(&format!("{STATE}/trial.json"))).ok()?;
        Some(unsealed(&text))
    }

    /// The time of the trial is over.
    fn expire(&self) {
        if let Some(mut trial) = self.trial()
            && trial["phase"] == "waiting"
        {
            trial["until"] = json!(0);
            self.root.write(&format!("{STATE}/new"), &trial.to_string());
            let to = self.root.path(&format!("{STATE}/trial.json"));
            fs::rename(self.root.path(&format!("{STATE}/new")), to).unwrap();
        }
    }

    /// The kernel shows another boot.
    fn next_boot(&self) {
        let now = self.root.read("boot_id");
        let (start, number) = now.trim().rsplit_once('-').unwrap();
        let next = number.parse::<u64>().unwrap() + 1;
        self.root.write("boot_id", &format!("{start}-{next:012}\n"));
    }

    /// As after a power cut: nothing runs, `/run` is empty, the boot is another one.
    pub(super) fn reboot(&self) {
        self.kill_guard();
        fs::remove_dir_all(self.root.path("run")).unwrap();
        fs::create_dir_all(self.root.path("run/systemd/system")).unwrap();
        let _ = fs::remove_file(self.root.path("stub/guard.pid"));
        self.next_boot();
        let unit = [
            "trial.json",
            "trial-reserve",
            "intent.json",
            "journal.json",
            "committed",
        ];
        // The condition of the unit.
        if unit
            .iter()
            .any(|name| self.root.exists(&format!("{STATE}/{name}")))
        {
            self.run(&["recover", "--at-boot"]);
        }
        self.start_guard_again();
    }

    /// As systemd starts it again until it ends with 0; it ends once no trial is left.
    pub(super) fn start_guard_again(&self) {
        self.expire();
        if self.trial().is_some() && self.guard().is_none() {
            self.run(&["trial", "guard"]).ok();
        }
        wait_until("the guard has ended", || self.guard().is_none());
    }

    /// Starts a guard that is dead, in the background, if a trial runs.
    pub(super) fn let_systemd_start_it(&self) {
        if self.trial().is_none() || self.guard().is_some() {
            return;
        }
        let mut command = Command::new("chroot");
        command.arg(self.root.dir()).args([
            "/usr/sbin/systemd-run",
            "--unit=mco-rescue-guard",
            "x",
            "--",
        ]);
        let command = command.args(["/run/mco-rescue/trial/mco-rescue", "trial", "guard"]);
        assert!(command.status().unwrap().success());
    }

    /// All but what may differ between two ways to the same end.
    pub(super) fn tree(&self) -> Snapshot {
        let mut all = Snapshot::new();
        for dir in ["etc", "var", "home"] {
            walk(&self.root.path(dir), dir, &mut all);
        }
        all.retain(|path, _| {
            let below = path.strip_prefix(STATE).unwrap_or_default();
            !["/reboots.json", "/status.json", "/trial-result.json"].contains(&below)
                && !below.starts_with("/history/")
                // A revert keeps the reverted config there.
                && !below.starts_with("/cache")
        });
        all
    }

    pub(super) fn history(&self) -> Vec<String> {
        let Ok(all) = fs::read_dir(self.root.path(&format!("{STATE}/history"))) else {
            return Vec::new();
        };
        // Without its journal, a run is only waiting to be swept.
        let mut all: Vec<String> = all
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().join("journal.json").exists())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        all.sort();
        all
    }

    pub(super) fn last(&self) -> Value {
        let status = self
            .command(&["status", "--output", "json"])
            .output()
            .unwrap();
        let status: Value = match serde_json::from_slice(&status.stdout) {
            Ok(status) => status,
            Err(_) => return json!({"said": String::from_utf8_lossy(&status.stderr)}),
        };
        status["last_trial"].clone()
    }
}

impl Drop for TrialNode {
    fn drop(&mut self) {
        self.kill_guard();
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.root.path("proc"))
            .status();
    }
}

/// Every path below a directory; nothing of `/proc`, which is mounted in the root.
fn walk(dir: &Path, name: &str, all: &mut Snapshot) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        let meta = entry.path().symlink_metadata().unwrap();
        let (kind, content) = match () {
            () if meta.is_symlink() => {
                let target = fs::read_link(entry.path()).unwrap();
                ('l', target.into_os_string().into_vec())
            }
            () if meta.is_dir() => {
                walk(&entry.path(), &name, all);
                ('d', Vec::new())
            }
            () if meta.is_file() => ('f', fs::read(entry.path()).unwrap()),
            () => ('s', Vec::new()),
        };
        let entry = Entry {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            content,
        };
        all.insert(name, entry);
    }
}

pub(super) struct TracedRun {
    code: Option<i32>,
    signal: Option<i32>,
    said: String,
    calls: Vec<String>,
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn config(letter: char) -> Value {
    let mut files = vec![
        file("/etc/replaced.conf", 0o644, &format!("{letter}\n")),
        file(
            "/etc/mode.conf",
            if letter == 'a' { 0o644 } else { 0o600 },
            "same\n",
        ),
    ];
    match letter {
        'a' => files.push(file("/etc/gone.conf", 0o644, "soon gone\n")),
        _ => files.push(file("/var/lib/app/data", 0o755, "in a new directory\n")),
    }
    if letter == 'b' {
        files.push(file("/etc/stale.conf", 0o640, "taken over\n"));
    }
    let unit = json!({"name": "site.service", "contents": format!("[Service]\nExecStart=/bin/{letter}\n")});
    machine_config(
        &format!("rendered-worker-{letter}"),
        json!({"storage": {"files": files}, "systemd": {"units": [unit]}}),
    )
}

/// How a tree differs from the wanted one.
pub(super) fn differences(wanted: &Snapshot, found: &Snapshot) -> Vec<String> {
    let paths: std::collections::BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let differ = paths
        .into_iter()
        .filter(|path| wanted.get(*path) != found.get(*path));
    let words = crate::support::faults::words;
    differ
        .map(|path| {
            format!(
                "{path} is {} instead of {}",
                words(found.get(path)),
                words(wanted.get(path))
            )
        })
        .collect()
}

pub(super) const BEGIN: &[&str] = &["apply", "--yes", "--try=10m", "--detach", "/b"];
const CONFIRM: &[&str] = &["confirm", "--from-console"];

/// What is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Begin,
    /// The guard, when the time is up.
    Guard,
    Confirm,
    /// Without a guard, and none can be started.
    Rollback,
    /// The early unit of the next boot.
    Boot,
    /// The same after a power cut in the run of the trial.
    BootAfterCut,
}

impl Operation {
    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Begin => BEGIN,
            Self::Guard => &["trial", "guard", "--once"],
            Self::Confirm => CONFIRM,
            Self::Rollback => &["rollback", "--yes"],
            Self::Boot | Self::BootAfterCut => &["recover", "--at-boot"],
        }
    }

    /// The node just before it.
    fn prepare(self, node: &TrialNode) {
        if self == Self::Begin {
            return;
        }
        node.root.write("stub/quiet", "");
        if self == Self::BootAfterCut {
            let clean = node.root.read("stub/cut");
            assert_eq!(node.traced(Some(clean.trim()), BEGIN).signal, Some(9));
        } else {
            node.run(BEGIN).ok();
        }
        match self {
            Self::Guard => node.expire(),
            Self::Rollback => node.root.write("stub/no-guard", ""),
            Self::Boot | Self::BootAfterCut => {
                node.next_boot();
            }
            Self::Begin | Self::Confirm => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Enospc,
    Eio,
    Erofs,
    /// EIO at a call that only looks.
    Unread,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Kill, Self::Enospc, Self::Eio, Self::Erofs];

    fn injection(self, call: &str, nth: usize) -> String {
        match self {
            Self::Unread => Self::Eio.injection(call, nth),
            Self::Kill => format!("{call}:signal=KILL:when={nth}"),
            error => format!(
                "{call}:error={}:when={nth}",
                format!("{error:?}").to_uppercase()
            ),
        }
    }
}

/// One fault, and what comes after it.
#[derive(Debug, Clone)]
struct Point {
    operation: Operation,
    fault: Fault,
    call: String,
    nth: usize,
    line: String,
    reboots: bool,
}

/// The calls of a run that change something: name, number among those of its name, and the line.
fn changing(calls: &[String]) -> Vec<(String, usize, String)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for line in calls {
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        let nth = seen.entry(name.to_owned()).or_default();
        *nth += 1;
        let changes = match name {
            "write" => !line.starts_with("write(1,") && !line.starts_with("write(2,"),
            _ => name.bytes().all(|b| b.is_ascii_alphanumeric()),
        };
        if changes {
            all.push((name.to_owned(), *nth, shape(line)));
        }
    }
    all
}

/// What is the same in two runs of a call.
fn shape(line: &str) -> String {
    let call = line.split(" = ").next().unwrap();
    let letters = call.chars().filter(|c| !c.is_ascii_digit());
    // Of what is written, a checksum comes first.
    let most = if call.starts_with("write(") { 6 } else { 40 };
    letters.take(most).collect()
}

/// Directories that a trial can change, and those of the stubs.
const KEPT: [&str; 5] = ["etc", "var", "run", "stub", "home"];

fn take(node: &TrialNode) -> tempfile::TempDir {
    let tree = tempfile::tempdir_in("/dev/shm").unwrap();
    for dir in KEPT {
        fs::create_dir_all(tree.path().join(dir)).unwrap();
        copy_tree(&node.root.path(dir), &tree.path().join(dir));
    }
    tree
}

/// A node for each thread, and the trees from which it begins.
pub(super) struct Stage {
    pub(super) node: TrialNode,
    template: tempfile::TempDir,
    pub(super) old: Snapshot,
    old_history: Vec<String>,
    new: Snapshot,
}

impl Stage {
    pub(super) fn new() -> Self {
        let node = TrialNode::new();
        let template = take(&node);
        let (old, old_history) = (node.tree(), node.history());
        node.run(BEGIN).ok();
        node.run(CONFIRM).ok();
        node.kill_guard();
        let new = node.tree();
        let stage = Self {
            node,
            template,
            old,
            old_history,
            new,
        };
        stage.reset();
        assert_eq!(differences(&stage.old, &stage.node.tree()), [""; 0]);
        stage
    }

    /// Back to config A, in the first boot.
    pub(super) fn reset(&self) {
        self.put(&self.template);
    }

    /// Keeps the node as it is for [`Stage::reset`].
    pub(super) fn keep(&mut self) {
        self.template = self.take();
    }

    /// The node as it is.
    pub(super) fn take(&self) -> tempfile::TempDir {
        take(&self.node)
    }

    /// Makes the node what was taken; no guard runs.
    pub(super) fn put(&self, tree: &tempfile::TempDir) {
        self.node.kill_guard();
        for dir in KEPT {
            fs::remove_dir_all(self.node.root.path(dir)).unwrap();
            fs::create_dir_all(self.node.root.path(dir)).unwrap();
            copy_tree(&tree.path().join(dir), &self.node.root.path(dir));
        }
        self.node
            .root
            .write("boot_id", "00000000-0000-0000-0000-000000000001\n");
    }

    /// Finds the call at which the run of a trial is cut: after its first files are in place.
    pub(super) fn remember_cut(&self) {
        self.node.root.write("stub/quiet", "");
        let clean = self.node.traced(None, BEGIN);
        assert_eq!(clean.code, Some(0), "{}", clean.said);
        let all = changing(&clean.calls);
        let place = all
            .iter()
            .position(|(name, _, line)| name == "renameat" && line.contains("conf"));
        let (call, nth, _) = &all[place.expect("a file is put in place") + 1];
        fs::write(
            self.template.path().join("stub/cut"),
            format!("{call}:signal=KILL:when={nth}"),
        )
        .unwrap();
        self.reset();
    }

    /// Every point of an operation.
    fn points(&self, operation: Operation) -> Vec<Point> {
        self.reset();
        operation.prepare(&self.node);
        let clean = self.node.traced(None, operation.args());
        assert_eq!(clean.code, Some(0), "{operation:?}: {}", clean.said);
        let mut all = Vec::new();
        for (call, nth, line) in changing(&clean.calls) {
            for fault in Fault::ALL {
                for reboots in [false, true] {
                    all.push(Point {
                        operation,
                        fault,
                        call: call.clone(),
                        nth,
                        line: line.clone(),
                        reboots,
                    });
                }
            }
        }
        all
    }

    /// Every point of an operation at which something is read.
    fn reading_points(&self, operation: Operation) -> Vec<Point> {
        self.reset();
        operation.prepare(&self.node);
        let clean = self.node.watched(READING, None, operation.args());
        assert_eq!(clean.code, Some(0), "{operation:?}: {}", clean.said);
        let all = changing(&clean.calls).into_iter();
        all.map(|(call, nth, line)| Point {
            operation,
            fault: Fault::Unread,
            call,
            nth,
            line,
            reboots: false,
        })
        .collect()
    }

    fn try_point(&self, point: &Point, tally: &Mutex<BTreeMap<String, usize>>) -> Vec<String> {
        self.reset();
        let (node, operation) = (&self.node, point.operation);
        operation.prepare(node);
        let injection = point.fault.injection(&point.call, point.nth);
        let run = match point.fault {
            Fault::Unread => node.watched(&point.call, Some(&injection), operation.args()),
            _ => node.traced(Some(&injection), operation.args()),
        };
        let met = match point.fault {
            Fault::Kill => run.signal == Some(9),
            // The processes of the machine are read, too, so that the numbers shift.
            Fault::Unread => true,
            _ => run
                .calls
                .iter()
                .any(|line| line.contains("(INJECTED)") && shape(line) == point.line),
        };
        if !met {
            return vec![format!("the call was not met: {:?} {}", run.code, run.said)];
        }
        let mut problems = Vec::new();
        let began = node.trial();
        // An error of a command that has ended, without a trial: nothing was changed.
        if operation == Operation::Begin && began.is_none() && !point.reboots {
            match run.code {
                None | Some(1 | 4) => {}
                code => problems.push(format!("ended with {code:?} without a trial")),
            }
        }
        for name in ["quiet", "no-guard"] {
            let _ = fs::remove_file(node.root.path(&format!("stub/{name}")));
        }
        if point.reboots {
            node.reboot();
        } else {
            node.start_guard_again();
        }
        if operation == Operation::Confirm && node.trial().is_none() {
            // The guard of the trial still runs then: it sees the end, and removes what was kept for the way back.
            node.run(&["trial", "guard"]).ok();
        }
        // The next change sweeps what a power cut has left, and this one changes nothing.
        let (tree, history) = (node.tree(), node.history());
        let last = node.last();
        let is_new = differences(&self.new, &tree).is_empty();
        let outcome = last["outcome"].as_str().unwrap_or("none").to_owned();
        let confirmed = operation == Operation::Confirm && run.code == Some(0);
        if node.trial().is_some() {
            problems.push("a trial is left".to_owned());
        }
        if operation == Operation::Confirm && (is_new || confirmed) {
            problems.extend(differences(&self.new, &tree));
            if outcome != "confirmed" || history.len() != self.old_history.len() + 1 {
                problems.push(format!("new, but {last}, history {history:?}"));
            }
        } else {
            // The next run of the node removes these left-overs, as it says.
            let is_untidy = run
                .said
                .contains("left-overs of the run could not be removed");
            let mut unlike = differences(&self.old, &tree);
            unlike.retain(|words| !is_untidy || !words.starts_with(STATE));
            problems.extend(unlike);
            if history != self.old_history && !is_untidy {
                problems.push(format!("the history is {history:?}"));
            }
            let wanted = match began {
                Some(_) => "reverted",
                None if operation == Operation::Begin => &outcome,
                None => "reverted",
            };
            if outcome != wanted {
                problems.push(format!("the end is {last}, not {wanted}"));
            }
        }
        if !problems.is_empty() {
            problems.insert(0, format!("exit code {:?}, said {}", run.code, run.said));
        }
        let ended = format!(
            "{:?} {:?}, exit code {:?}: {outcome}",
            operation, point.fault, run.code
        );
        *tally.lock().unwrap().entry(ended).or_default() += 1;
        problems
    }
}

/// One of so many, spread over calls, faults and both ways to go on.
fn sample(all: Vec<Point>) -> Vec<Point> {
    let share = std::env::var("MCO_RESCUE_TRIAL_POINTS")
        .ok()
        .and_then(|text| text.parse().ok());
    let wanted: usize = match share {
        Some(wanted) => wanted,
        None if everything_is_asked_for() => return all,
        None => 4,
    };
    // No divisor of the eight points of a call.
    let step = (all.len() / wanted).max(1) | 1;
    all.into_iter().step_by(step).collect()
}

fn meet(operations: &[Operation]) {
    meet_at(operations, Stage::points);
}

fn meet_at(operations: &[Operation], find_points: fn(&Stage, Operation) -> Vec<Point>) {
    if !can_disturb() {
        return;
    }
    let mut points = Vec::new();
    let mut calls = BTreeMap::new();
    with_mounts(|| {
        let stage = Stage::new();
        stage.remember_cut();
        for operation in operations {
            let all = find_points(&stage, *operation);
            calls.insert(*operation, all.len());
            points.extend(sample(all));
        }
    });
    let tally = Mutex::new(BTreeMap::new());
    let halves: Vec<Vec<Point>> = (0..2)
        .map(|half| points.iter().skip(half).step_by(2).cloned().collect())
        .collect();
    let problems = on_threads(&halves, |points| {
        let problems = Mutex::new(Vec::new());
        with_mounts(|| {
            let stage = Stage::new();
            stage.remember_cut();
            for point in points {
                let found = stage.try_point(point, &tally);
                let complain = |words| format!("{point:?}: {words}");
                problems
                    .lock()
                    .unwrap()
                    .extend(found.into_iter().take(4).map(complain));
            }
        });
        problems.into_inner().unwrap()
    });
    say(&format!(
        "points of each operation: {calls:?}; {} were tried: {:#?}",
        points.len(),
        tally.lock().unwrap()
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_trial_that_is_stopped_anywhere_as_it_begins_is_reverted() {
    meet(&[Operation::Begin]);
}

#[test]
fn a_way_back_that_is_stopped_anywhere_is_gone_again() {
    meet(&[
        Operation::Guard,
        Operation::Rollback,
        Operation::Boot,
        Operation::BootAfterCut,
    ]);
}

#[test]
fn what_a_trial_cannot_read_is_not_missing() {
    meet_at(
        &[
            Operation::Begin,
            Operation::Guard,
            Operation::Confirm,
            Operation::Rollback,
            Operation::Boot,
            Operation::BootAfterCut,
        ],
        Stage::reading_points,
    );
}

#[test]
fn a_confirmation_that_is_stopped_anywhere_counts_as_a_whole_or_not() {
    meet(&[Operation::Confirm]);
}
