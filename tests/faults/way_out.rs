//! No state without a way out: whatever happens to a node between a cut and the recovery, the commands that are
//! printed lead to a whole node, and nothing else is needed.
//!
//! `MCO_RESCUE_FAULTS=all` (`make faults`) tries many more; `MCO_RESCUE_SEED` tries one case again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use crate::support::faults::{Call, JOURNAL, copy_tree, count, on_threads, traced};
use crate::support::mounts::{mount, unmount, with_mounts};
use crate::support::scenes::{can_disturb, everything_is_asked_for};
use crate::support::{Config, Run, STATE, Snapshot, TestRoot, file, flat, machine_config, say};
use serde_json::{Value, json};

/// A tmpfs, as every boot recreates it.
const RUN: &str = "run/app";
/// A disk of its own, which may not be mounted.
const DATA: &str = "var/data";

pub(super) fn furnished() -> TestRoot {
    let root = TestRoot::new();
    for path in ["usr/etc/taken.conf", "etc/taken.conf"] {
        root.write(path, "of the OS\n");
    }
    root.write("srv/tree/a", "in a tree that gives way\n");
    root.write("etc/.pwd.lock", "");
    root.chmod("etc/.pwd.lock", 0o600);
    fs::create_dir_all(root.path(RUN)).unwrap();
    fs::create_dir_all(root.path(DATA)).unwrap();
    root
}

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

fn old_config() -> Value {
    let text = "old\n";
    machine_config(
        "rendered-worker-old",
        json!({
            "storage": {"files": [
                file("/etc/a.conf", 0o644, text),
                file("/etc/stale.conf", 0o644, text),
                file("/etc/deep/er/b.conf", 0o644, text),
                file("/run/app/kept", 0o644, text),
                file("/run/app/stale", 0o644, text),
                file("/var/data/kept", 0o644, text),
                file("/var/data/stale", 0o644, text),
            ]},
            "systemd": {"units": [
                {"name": "masked.service", "contents": unit("masked")},
                {"name": "gone.service", "enabled": true, "contents": unit("gone")},
            ]},
        }),
    )
}

fn new_config() -> Value {
    let text = "new and longer\n";
    machine_config(
        "rendered-worker-new",
        json!({
            "storage": {"files": [
                file("/etc/a.conf", 0o600, text),
                file("/etc/deep/er/b.conf", 0o644, text),
                file("/etc/new/dir/c.conf", 0o644, text),
                file("/etc/taken.conf", 0o644, text),
                file("/run/app/kept", 0o644, text),
                file("/run/app/new", 0o644, text),
                file("/var/data/kept", 0o644, text),
                file("/var/data/sub/new", 0o644, text),
            ]},
            "systemd": {"units": [
                {"name": "masked.service", "mask": true},
                {"name": "b.service", "enabled": true, "contents": unit("b")},
            ]},
        }),
    )
}

/// A root whose tmpfs and data disk are mounts.
struct Node {
    root: TestRoot,
    disk: tempfile::TempDir,
}

impl Node {
    fn of(tree: &Path) -> Self {
        let root = TestRoot::empty();
        let disk = tempfile::tempdir_in("/dev/shm").unwrap();
        for path in [RUN, DATA] {
            fs::create_dir_all(root.path(path)).unwrap();
        }
        let node = Self { root, disk };
        node.mount_run();
        node.mount_data();
        copy_tree(tree, node.root.dir());
        node
    }

    fn at(&self, path: &str) -> String {
        self.root.path(path).to_str().unwrap().to_owned()
    }

    fn mount_run(&self) {
        mount(&["-t", "tmpfs", "tmpfs", &self.at(RUN)]);
    }

    fn mount_data(&self) {
        mount(&["--bind", self.disk.path().to_str().unwrap(), &self.at(DATA)]);
    }

    /// As a boot leaves it.
    fn reboot(&self) {
        unmount(&self.root.path(RUN));
        self.mount_run();
    }
}

/// Numbers that a seed gives (splitmix64): a case can be tried again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// An update from one config to another, on a node with three file systems.
struct Update {
    template: TestRoot,
    before: Snapshot,
    after: Snapshot,
    clean: Vec<Call>,
}

const CALLS: [&str; 7] = [
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "fsync",
    "syncfs",
];

impl Update {
    fn new() -> Self {
        let template = furnished();
        template.apply(&old_config());
        let node = Node::of(template.dir());
        let before = node.root.snapshot();
        let config = node.root.config(&new_config());
        let run = traced(
            &node.root,
            &CALLS.join(","),
            &[],
            &["apply", "--yes", config.path()],
        );
        assert_eq!(run.code, Some(0), "{}", run.err);
        let after = node.root.snapshot();
        Self {
            template,
            before,
            after,
            clean: run.calls,
        }
    }

    /// What the run changes.
    fn changed(&self) -> Vec<&String> {
        let all: BTreeSet<&String> = self.before.keys().chain(self.after.keys()).collect();
        let differ = all
            .into_iter()
            .filter(|path| self.before.get(*path) != self.after.get(*path));
        differ.collect()
    }

    /// A node on which the run was killed at a call.
    fn cut(&self, call: &str, nth: usize) -> Node {
        let node = Node::of(self.template.dir());
        let config = node.root.config(&new_config());
        let fault = format!("{call}:signal=KILL:when={nth}");
        let args = ["apply", "--yes", config.path()];
        traced(&node.root, call, &[fault], &args).was_killed(call, nth);
        node
    }

    /// In the middle of its renames, by shares of a hundred.
    fn half_way(&self, share: usize) -> Node {
        let renames: Vec<(usize, &Call)> = self
            .clean
            .iter()
            .filter(|call| call.name == "renameat")
            .enumerate()
            .collect();
        let nth = |name: &str| {
            let found = renames.iter().find(|(_, call)| call.line.contains(name));
            found.unwrap().0 + 1
        };
        let (journal, mark) = (nth(".journal.json.new"), nth(".committed.new"));
        let node = self.cut("renameat", journal + 1 + (mark - journal - 1) * share / 100);
        assert!(node.root.exists(JOURNAL));
        node
    }

    /// Complaints about a tree that is neither the old nor the new one, some paths apart.
    fn mixed(&self, root: &TestRoot, apart: &[String]) -> Vec<String> {
        let now = root.snapshot();
        let is_apart = |path: &str| {
            let in_it = |one: &String| {
                path == one
                    || path.starts_with(&format!("{one}/"))
                    || one.starts_with(&format!("{path}/"))
            };
            apart.iter().any(in_it)
        };
        let changed = self.changed();
        let judged = changed.into_iter().filter(|path| !is_apart(path));
        let (mut unlike_old, mut unlike_new) = (Vec::new(), Vec::new());
        for path in judged {
            let found = now.get(path);
            if found != self.before.get(path) {
                unlike_old.push(format!("{path} is not as before"));
            }
            if found != self.after.get(path) {
                unlike_new.push(format!("{path} is not as after"));
            }
        }
        if unlike_old.len() < unlike_new.len() {
            unlike_old
        } else {
            unlike_new
        }
    }
}

/// What happens to a node after the cut, and which paths it concerns.
struct Happens<'a> {
    node: &'a Node,
    dice: Dice,
    data: bool,
    said: Vec<String>,
    touched: Vec<String>,
}

impl Happens<'_> {
    fn one(&mut self, changed: &[&String]) {
        let path = (*self.dice.one_of(changed)).clone();
        let kind = self.dice.below(13);
        let what = match kind {
            0 => self.removed(&path),
            1 => self.edited(&path),
            2 => self.linked(&path),
            3 => self.made_a_directory(&path),
            4 => self.chmod(&path),
            5 => self.parent_removed(&path),
            6 => self.rebooted(),
            7 => self.disk_comes_or_goes(),
            8 => self.stage_lost(),
            9 => self.staged_object_lost(),
            10 => self.history_lost(),
            _ => self.cut_again(),
        };
        self.said.push(what);
    }

    fn touch(&mut self, path: &str) {
        self.touched.push(path.to_owned());
    }

    fn clear(&mut self, path: &str) {
        self.touch(path);
        let path = self.node.root.path(path);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => drop(fs::remove_dir_all(&path)),
            Ok(_) => drop(fs::remove_file(&path)),
            Err(_) => {}
        }
    }

    fn removed(&mut self, path: &str) -> String {
        self.clear(path);
        format!("{path} removed")
    }

    fn edited(&mut self, path: &str) -> String {
        self.touch(path);
        // Written over in place, which other names of the file share.
        let _ = fs::write(self.node.root.path(path), "by hand\n");
        format!("{path} edited")
    }

    fn linked(&mut self, path: &str) -> String {
        self.clear(path);
        let target = *self
            .dice
            .one_of(&["/nowhere", "/etc", "a.conf", "/srv/tree"]);
        let _ = symlink(target, self.node.root.path(path));
        format!("{path} is a link to {target}")
    }

    fn made_a_directory(&mut self, path: &str) -> String {
        self.clear(path);
        let path_of = self.node.root.path(path);
        if fs::create_dir(&path_of).is_ok() {
            fs::write(path_of.join("inside"), "by hand\n").unwrap();
        }
        format!("{path} is a directory")
    }

    fn chmod(&mut self, path: &str) -> String {
        self.touch(path);
        let full = self.node.root.path(path);
        if fs::symlink_metadata(&full).is_ok_and(|meta| !meta.is_symlink()) {
            self.node.root.chmod(path, 0o711);
        }
        format!("{path} has another mode")
    }

    fn parent_removed(&mut self, path: &str) -> String {
        let parent = path.rsplit_once('/').unwrap().0.to_owned();
        // A mount point cannot go, and what the system stands on is not at stake.
        if [RUN, DATA, "etc", "var", "run", "srv", "home", "var/lib"].contains(&parent.as_str()) {
            return self.removed(path);
        }
        self.clear(&parent);
        format!("{parent} removed with all in it")
    }

    fn rebooted(&mut self) -> String {
        self.touch(RUN);
        self.node.reboot();
        "rebooted".to_owned()
    }

    fn disk_comes_or_goes(&mut self) -> String {
        self.touch(DATA);
        self.data = !self.data;
        if self.data {
            self.node.mount_data();
            return "the disk is mounted again".to_owned();
        }
        unmount(&self.node.root.path(DATA));
        "the disk is not mounted".to_owned()
    }

    fn stages(&self) -> Vec<String> {
        let all = self.node.root.everything();
        let is_stage = |path: &&String| {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let name = path.rsplit('/').next().unwrap();
            parent == format!("{STATE}/stage") || name.starts_with(".mco-rescue-")
        };
        all.keys().filter(is_stage).cloned().collect()
    }

    fn stage_lost(&mut self) -> String {
        let stages = self.stages();
        if stages.is_empty() {
            return "no stage".to_owned();
        }
        let stage = self.dice.one_of(&stages).clone();
        let _ = fs::remove_dir_all(self.node.root.path(&stage));
        format!("{stage} lost")
    }

    fn staged_object_lost(&mut self) -> String {
        let stages = self.stages();
        let all = self.node.root.everything();
        let is_staged = |path: &&String| {
            let mut stages = stages.iter();
            stages.any(|stage| path.starts_with(&format!("{stage}/")) && all[*path].kind == 'f')
        };
        let objects: Vec<&String> = all.keys().filter(is_staged).collect();
        if objects.is_empty() {
            return "nothing staged".to_owned();
        }
        let object = (*self.dice.one_of(&objects)).clone();
        fs::remove_file(self.node.root.path(&object)).unwrap();
        format!("{object} lost")
    }

    fn history_lost(&mut self) -> String {
        let _ = fs::remove_dir_all(self.node.root.path(&format!("{STATE}/history")));
        "the history lost".to_owned()
    }

    /// The recovery is cut off too, wherever it gets to.
    fn cut_again(&mut self) -> String {
        let call = *self
            .dice
            .one_of(&["renameat", "renameat2", "unlinkat", "fsync"]);
        let nth = 1 + self.dice.below(12);
        let fault = format!("{call}:signal=KILL:when={nth}");
        let args: &[&str] = match self.dice.below(3) {
            0 => &["recover", "--back"],
            _ => &["recover"],
        };
        let run = traced(&self.node.root, call, &[fault], args);
        self.touched.extend(staying(&run.out));
        format!("{args:?} cut off at {call} number {nth}: {:?}", run.code)
    }
}

/// How a node was led out.
struct WayOut {
    commands: Vec<Vec<String>>,
    said: String,
}

impl WayOut {
    fn shown(&self) -> String {
        let commands = self.commands.iter().map(|args| args.join(" "));
        format!(
            "{:?}, the last said: {}",
            commands.collect::<Vec<_>>(),
            self.said
        )
    }
}

/// As many commands as a person can be asked for.
const ENOUGH: usize = 14;

/// Does what the program prints, and nothing else, until `verify` is content and nothing is pending.
fn follow(update: &Update, node: &Node, touched: &[String]) -> Result<WayOut, String> {
    let mut way = WayOut {
        commands: Vec::new(),
        said: String::new(),
    };
    let mut apart = touched.to_vec();
    let mut waiting = vec![vec!["recover".to_owned()]];
    // It stays, as printed commands name it.
    let config = node.root.config(&new_config());
    while way.commands.len() < ENOUGH {
        if waiting.is_empty() {
            return Err(format!("no next step is printed: {}", way.shown()));
        }
        let args = waiting.remove(0);
        let run = run(node, &args, &config);
        way.said = format!("{}{}", run.out(), run.err());
        way.commands.push(args.clone());
        apart.extend(named(&args).into_iter().chain(staying(&way.said)));
        if args[0] == "recover" && run.code() == 0 {
            let mixed = update.mixed(&node.root, &apart);
            if !mixed.is_empty() {
                return Err(format!("a mix: {mixed:?}: {}", way.shown()));
            }
        }
        if args[0] == "verify" && run.code() == 0 {
            return if is_pending(node) {
                Err(format!("clean, but a run is pending: {}", way.shown()))
            } else {
                Ok(way)
            };
        }
        if args[0] == "apply" && (moved_away(node, &way.said) || put_right(node, &way.said)) {
            waiting.insert(0, args);
            continue;
        }
        let next = [run.out(), run.err()].map(|said| next_commands(&said));
        if let Some(next) = next.into_iter().find(|next| !next.is_empty()) {
            waiting = next;
        } else if way.said.contains("Give a file") {
            waiting = vec![["apply", "--yes", "CONFIG"].map(str::to_owned).to_vec()];
        } else if waiting.is_empty() && run.code() == 0 {
            waiting = vec![vec!["verify".to_owned()]];
        }
    }
    Err(format!("too many steps: {}", way.shown()))
}

fn run(node: &Node, args: &[String], config: &Config) -> Run {
    let args: Vec<&str> = args
        .iter()
        .map(|arg| {
            if arg == "CONFIG" {
                config.path()
            } else {
                arg.as_str()
            }
        })
        .collect();
    node.root.run(&args)
}

fn is_pending(node: &Node) -> bool {
    let status = node.root.run(&["--output", "json", "status"]).ok().json();
    status["pending"] != "nothing"
}

/// Paths that a command leaves as they are.
fn named(args: &[String]) -> Vec<String> {
    let pairs = args.windows(2).filter(|pair| pair[0] == "--leave");
    pairs
        .map(|pair| pair[1].trim_start_matches('/').to_owned())
        .collect()
}

/// Paths of which it is said that they stay as they are.
fn staying(said: &str) -> Vec<String> {
    let flat = flat(said);
    let parts: Vec<&str> = flat.split(" stays as it is").collect();
    let before = parts.iter().take(parts.len() - 1);
    let paths = before.filter_map(|text| text.rsplit(' ').next());
    paths
        .map(|path| path.trim_start_matches('/').to_owned())
        .collect()
}

/// What a blocker says: the path is moved away. Says whether there was one.
fn moved_away(node: &Node, said: &str) -> bool {
    let flat = flat(said);
    let asks = ["Move it away, then", "move it away, then"];
    let Some(at) = asks.iter().find_map(|words| flat.find(words)) else {
        return false;
    };
    let mut words = flat[..at].rsplit(' ');
    let path = words.find(|word| word.starts_with('/')).unwrap();
    let path = path.trim_end_matches(':');
    let outside = tempfile::tempdir_in("/dev/shm").unwrap();
    let status = Command::new("mv")
        .arg(node.root.path(path))
        .arg(outside.path())
        .status();
    status.unwrap().success()
}

/// What a blocker says of something on the way to a path that is not a directory: it goes. Says whether there was one.
fn put_right(node: &Node, said: &str) -> bool {
    let flat = flat(said);
    let Some((before, _)) = flat.split_once("Fix the directories above it first") else {
        return false;
    };
    let (before, _) = before.rsplit_once(" cannot be reached").unwrap();
    let path = before.rsplit(' ').next().unwrap().trim_start_matches('/');
    let ends = path.match_indices('/').map(|(end, _)| &path[..end]);
    let in_the_way = ends
        .map(|part| node.root.path(part))
        .find(|part| !part.is_dir());
    in_the_way.is_some_and(|part| fs::remove_file(part).is_ok())
}

/// The commands behind the last `Next:`.
fn next_commands(said: &str) -> Vec<Vec<String>> {
    // Each command is whole on its line; the next line has the one after it.
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    // The other version of which a damaged file speaks does not exist.
    let label = if said.contains("# with that version") {
        "or: "
    } else {
        "Next: "
    };
    let next = || {
        let at = lines.iter().rposition(|line| line.contains(label))?;
        let first = lines[at].rsplit_once(label)?.1;
        let then = lines[at + 1..]
            .iter()
            .map_while(|line| line.strip_prefix("then: "));
        let all: Vec<&str> = std::iter::once(first).chain(then).collect();
        Some(all.join(", then "))
    };
    let Some(next) = next() else {
        return Vec::new();
    };
    let next = next.split("; ").next().unwrap();
    let commands = next.split(", then ").filter_map(|text| {
        let text = text.strip_prefix("mco-rescue ")?;
        let text = text.split(" # ").next().unwrap();
        let text = text.split(", ").next().unwrap().trim_end_matches('.');
        let mut args: Vec<String> = text
            .split(' ')
            .map(|word| word.trim_matches('\'').to_owned())
            .collect();
        // The runs of a node have the root already.
        if let Some(root) = args.iter().position(|arg| arg == "--root") {
            args.drain(root..root + 2);
        }
        if args[0] == "apply" {
            args.push("--yes".to_owned());
        }
        Some(args)
    });
    commands.collect()
}

/// One case: a cut anywhere, up to five things that happen then, and the way out.
fn case(update: &Update, seed: u64) -> Result<(Vec<String>, WayOut), String> {
    let mut dice = Dice(seed);
    let call = *dice.one_of(&[
        "renameat",
        "renameat",
        "renameat",
        "renameat2",
        "unlinkat",
        "fsync",
    ]);
    let nth = 1 + dice.below(count(&update.clean, call));
    let node = update.cut(call, nth);
    let mut happens = Happens {
        node: &node,
        dice,
        data: true,
        said: vec![format!("cut off at {call} number {nth}")],
        touched: Vec::new(),
    };
    let changed = update.changed();
    for _ in 0..happens.dice.below(6) {
        happens.one(&changed);
    }
    let (said, touched) = (happens.said, happens.touched);
    let way = follow(update, &node, &touched);
    way.map(|way| (said.clone(), way))
        .map_err(|problem| format!("MCO_RESCUE_SEED={seed}: {said:?}: {problem}"))
}

#[test]
fn whatever_happens_after_a_cut_the_printed_commands_lead_out() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let update = Update::new();
        let first = std::env::var("MCO_RESCUE_SEED").map(|seed| seed.parse::<u64>().unwrap());
        let seeds: Vec<u64> = match first {
            Ok(seed) => vec![seed],
            Err(_) if everything_is_asked_for() => (0..2000).collect(),
            Err(_) => (0..60).collect(),
        };
        let tally: Mutex<BTreeMap<usize, usize>> = Mutex::default();
        let problems = on_threads(&seeds, |&seed| match case(&update, seed) {
            Ok((said, way)) => {
                *tally.lock().unwrap().entry(way.commands.len()).or_default() += 1;
                if seeds.len() == 1 {
                    say(&format!("{said:?}: {}", way.shown()));
                }
                Vec::new()
            }
            Err(problem) => vec![problem],
        });
        say(&format!(
            "ways out: {} cases, seeds from {}, by number of commands {:?}",
            seeds.len(),
            seeds[0],
            tally.lock().unwrap()
        ));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}

#[test]
fn a_tmpfs_after_a_boot_and_a_disk_that_is_gone_do_not_stop_a_recovery() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let update = Update::new();
        for (share, back) in [(5, false), (50, false), (95, false), (50, true), (95, true)] {
            let node = update.half_way(share);
            node.reboot();
            unmount(&node.root.path(DATA));
            let args: &[&str] = if back {
                &["recover", "--back"]
            } else {
                &["recover"]
            };
            let run = node.root.run(args).ok();
            assert_eq!(
                update.mixed(&node.root, &[RUN.to_owned(), DATA.to_owned()]),
                [""; 0]
            );
            assert!(!is_pending(&node));
            let said = flat(&run.out());
            if said.contains("was finished") {
                assert!(
                    said.contains("/run/app/kept stays as it is: its file system"),
                    "{said}"
                );
                assert!(
                    said.contains("/var/data/kept stays as it is: its file system"),
                    "{said}"
                );
            }
            // With the disk everything is as wanted again.
            node.mount_data();
            let config = node.root.config(&new_config());
            node.root.run(&["apply", "--yes", config.path()]).ok();
            node.root.run(&["verify"]).ok();
        }
    });
}

#[test]
fn a_path_that_was_changed_is_named_with_its_copies_and_may_be_left() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let update = Update::new();
        for (path, share) in [("etc/a.conf", 95), ("etc/a.conf", 1)] {
            let node = update.half_way(share);
            let root = &node.root;
            let text = root.read(path);
            let whole = root.everything();
            root.remove(path);
            root.write(path, "by hand\n");
            for args in [&["recover"][..], &["recover", "--back"]] {
                let run = root.run(args).exits(5);
                let said = run.err();
                assert!(said.contains(&format!("/{path}")), "{said}");
                let (words, dir) = (args.join(" "), root.dir().display());
                let next = format!("Next: mco-rescue {words} --leave /{path} --root {dir}\n");
                assert!(said.ends_with(&next), "{said}");
                // Where the copies are, they are whole.
                for (what, text) in [
                    ("its content before: ", "old\n"),
                    ("its content after: ", "new and longer\n"),
                ] {
                    let Some((_, rest)) = said.split_once(what) else {
                        // The new one is gone with what was written over it.
                        assert!(
                            text.starts_with("new") && whole[path].content == text.as_bytes(),
                            "{said}"
                        );
                        continue;
                    };
                    let copy = rest.split([';', ')']).next().unwrap();
                    assert_eq!(root.read(copy), text, "{said}");
                }
            }
            // Put right by hand.
            let other = self::Node::of(root.dir());
            other.root.write(path, &text);
            other
                .root
                .chmod(path, if text == "old\n" { 0o644 } else { 0o600 });
            other.root.run(&["recover"]).ok();
            // Moved away.
            let other = self::Node::of(root.dir());
            other.root.remove(path);
            other.root.run(&["recover"]).ok();
            assert!(!is_pending(&other));
            // Left as it is.
            root.run(&["recover", "--leave", "/nowhere"]).exits(5);
            let left = format!("/{path}");
            root.run(&["recover", "--leave", &left]).ok();
            assert_eq!(root.read(path), "by hand\n");
            assert_eq!(update.mixed(root, &[path.to_owned()]), [""; 0]);
            assert!(!is_pending(&node));
        }
    });
}

/// The state files that a cut leaves at every stage of a run: a name for it, and the tree.
fn stages_of_a_run(update: &Update) -> Vec<(&'static str, Node)> {
    let nth = |call: &str, name: &str| {
        let same = update.clean.iter().filter(|one| one.name == call);
        let at = same.clone().position(|one| one.line.contains(name));
        at.unwrap() + 1
    };
    let mark = nth("renameat", ".committed.new");
    let all = [
        ("intent only", "linkat", 1),
        (
            "nothing renamed",
            "renameat",
            nth("renameat", ".journal.json.new") + 1,
        ),
        ("half renamed", "renameat", mark - 6),
        ("all renamed", "renameat", mark),
        ("committed", "unlinkat", nth("unlinkat", "old-") + 3),
        (
            "journal moved away",
            "unlinkat",
            nth("unlinkat", "\"intent.json\""),
        ),
        ("mark alone", "unlinkat", nth("unlinkat", "\"committed\"")),
    ];
    let of = |(name, call, nth)| (name, update.cut(call, nth));
    all.into_iter().map(of).collect()
}

/// Our own files in a root, but the marker.
fn state_files(root: &TestRoot) -> Vec<String> {
    let all = root.everything().into_keys();
    let is_state = |path: &String| {
        let below = path.strip_prefix(&format!("{STATE}/")).unwrap_or_default();
        below.ends_with(".json") || below == "committed"
    };
    all.filter(is_state).collect()
}

/// One flipped bit: what recovery makes of it, and what the printed commands lead to.
fn flipped(update: &Update, tree: &Node, file: &str, bit: usize, on: bool) -> Vec<String> {
    let node = Node::of(tree.root.dir());
    let root = &node.root;
    let path = root.path(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(&path, bytes).unwrap();
    let before = root.snapshot();
    let run = root.run(&["recover"]);
    let mut problems = Vec::new();
    if run.code() == 0 {
        problems.extend(update.mixed(root, &[]));
        if is_pending(&node) {
            problems.push("something is pending".to_owned());
        }
    } else {
        if root.snapshot() != before {
            problems.push("the tree has changed".to_owned());
        }
        let name = file.strip_prefix(STATE).unwrap();
        // A bit of the version makes it the file of another version, which could read it.
        let way = if run.err().contains(" has version ") {
            "or: mco-rescue recover --give-up"
        } else {
            "Next: mco-rescue recover --give-up"
        };
        if !run.err().contains(name) || !run.err().contains(way) {
            problems.push("the file and the way out are not named".to_owned());
        }
    }
    if on && problems.is_empty() {
        let touched = update.changed().into_iter().cloned().collect::<Vec<_>>();
        problems.extend(follow(update, &node, &touched).err());
    }
    let said = format!("exit code {}, said: {}", run.code(), run.err());
    let complain = |problem| format!("{file}, bit {bit}: {problem} ({said})");
    problems.into_iter().map(complain).collect()
}

#[test]
fn no_flipped_bit_of_a_state_file_makes_a_mix_of_two_configs() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let update = Update::new();
        let trees = stages_of_a_run(&update);
        let mut cases = Vec::new();
        for (at, (_, node)) in trees.iter().enumerate() {
            for file in state_files(&node.root) {
                let bits = fs::metadata(node.root.path(&file)).unwrap().len() as usize * 8;
                let step = if everything_is_asked_for() {
                    7
                } else {
                    bits.div_ceil(12)
                };
                // Another bit of a byte every time.
                let chosen = (0..bits).step_by(step).map(|bit| (bit + at * 3) % bits);
                cases.extend(
                    chosen
                        .enumerate()
                        .map(|(n, bit)| (at, file.clone(), bit, n % 4 == 0)),
                );
            }
        }
        let files: BTreeSet<(usize, &String)> =
            cases.iter().map(|case| (case.0, &case.1)).collect();
        let problems = on_threads(&cases, |(at, file, bit, on)| {
            let (name, tree) = &trees[*at];
            let complain = |problem| format!("{name}: {problem}");
            flipped(&update, tree, file, *bit, *on)
                .into_iter()
                .map(complain)
                .collect()
        });
        say(&format!(
            "flipped bits: {} in {} files at {} stages of a run, {} problems",
            cases.len(),
            files.len(),
            trees.len(),
            problems.len()
        ));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}
