//! All sequences of three of what can happen to a node around a trial, beside a model of it: what is refused, with which
//! words, and what the node is in afterwards. States that are alike are gone on from once. Then files of a trial that are
//! damaged, and disks of nodes that do not run.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use serde_json::json;

use super::matrix::{BEGIN, Stage, TrialNode, differences};
use crate::support::mounts::{mount, unmount, with_mounts};
use crate::support::scenes::everything_is_asked_for;
use crate::support::{Lacks, Run, STATE, flat_run, is_root, say, skip, unsealed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    TryApply,
    Apply,
    /// The config that the node is in.
    TryNothing,
    Confirm,
    ConfirmFromConsole,
    Rollback,
    TryRollback,
    TryFix,
    Deadline,
    Reboot,
    /// And systemd starts it again.
    KillGuard,
    Pivot,
    Fetch,
    Remove,
}

const ACTS: [Act; 14] = [
    Act::TryApply,
    Act::Apply,
    Act::TryNothing,
    Act::Confirm,
    Act::ConfirmFromConsole,
    Act::Rollback,
    Act::TryRollback,
    Act::TryFix,
    Act::Deadline,
    Act::Reboot,
    Act::KillGuard,
    Act::Pivot,
    Act::Fetch,
    Act::Remove,
];

/// The node before a trial.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Before {
    config: char,
    history: Vec<char>,
    is_rollback: bool,
}

/// What the node has to be in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Model {
    config: char,
    /// The config before each run that can be taken back, the newest last.
    history: Vec<char>,
    trial: Option<Before>,
}

/// What a command has to say: its exit code, and words.
type Said = Option<(i32, &'static str)>;

impl Model {
    /// A change of files.
    fn changes(&mut self, to: char) {
        self.history.push(self.config);
        self.config = to;
    }

    fn goes_back(&mut self) -> bool {
        match self.trial.take() {
            Some(before) => {
                self.config = before.config;
                self.history = before.history;
                true
            }
            None => false,
        }
    }

    fn begins(&mut self, to: char, is_rollback: bool) {
        self.trial = Some(Before {
            config: self.config,
            history: self.history.clone(),
            is_rollback,
        });
        self.changes(to);
    }

    /// What an act does, and the end of the last trial, if it ends one.
    fn act(&mut self, act: Act) -> (Said, Option<&'static str>) {
        let refused = Some((1, "a trial of"));
        let runs = self.trial.is_some();
        match act {
            Act::Confirm if runs => (Some((1, "The trial goes on")), None),
            Act::Confirm | Act::ConfirmFromConsole if !runs => (Some((1, "no trial runs")), None),
            Act::Confirm | Act::ConfirmFromConsole => {
                let before = self.trial.take().unwrap();
                if before.is_rollback {
                    // The run that was taken back.
                    self.history.remove(self.history.len() - 2);
                }
                (Some((0, "The change stays")), Some("confirmed"))
            }
            Act::Rollback if self.goes_back() => (
                Some((0, "Everything is as it was before")),
                Some("reverted"),
            ),
            Act::Deadline | Act::Reboot => (None, self.goes_back().then_some("reverted")),
            Act::KillGuard | Act::TryFix => (None, None),
            Act::Fetch => (Some((0, "")), None),
            Act::TryApply
            | Act::Apply
            | Act::TryNothing
            | Act::TryRollback
            | Act::Pivot
            | Act::Remove
                if runs =>
            {
                (refused, None)
            }
            Act::TryApply if self.config == 'b' => (Some((0, "")), None),
            Act::TryApply => {
                self.begins('b', false);
                (Some((0, "unless it is confirmed")), None)
            }
            Act::Apply => {
                if self.config != 'c' {
                    self.changes('c');
                }
                (Some((0, "")), None)
            }
            Act::TryNothing => (Some((0, "")), None),
            Act::Rollback | Act::TryRollback => match self.history.last().copied() {
                None => (Some((1, "no finished run is in the history")), None),
                Some(to) if act == Act::TryRollback => {
                    self.begins(to, true);
                    (Some((0, "unless it is confirmed")), None)
                }
                Some(to) => {
                    self.history.pop();
                    self.config = to;
                    (Some((0, "")), None)
                }
            },
            Act::Pivot => (Some((1, "was not booted by OSTree")), None),
            Act::Remove => {
                self.history.clear();
                (Some((0, "")), None)
            }
        }
    }
}

/// Does it on the node.
fn act(node: &TrialNode, model: &Model, act: Act) -> Option<Run> {
    let current = format!("/{}", model.config);
    let image = format!("quay.example/os@sha256:{}", "1".repeat(64));
    let args: Vec<&str> = match act {
        Act::TryApply => BEGIN.to_vec(),
        Act::Apply => vec!["apply", "--yes", "/c"],
        Act::TryNothing => vec!["apply", "--yes", "--try", "--detach", &current],
        Act::Confirm => vec!["confirm"],
        Act::ConfirmFromConsole => vec!["confirm", "--from-console"],
        Act::Rollback => vec!["rollback", "--yes"],
        Act::TryRollback => vec!["rollback", "--yes", "--try", "--detach"],
        Act::TryFix => vec!["doctor", "--fix", "FP-12", "--yes", "--try", "--detach"],
        Act::Pivot => vec!["pivot", "--yes", &image],
        Act::Fetch => vec!["fetch", "/c"],
        Act::Remove => vec!["install", "--remove", "--yes"],
        Act::Deadline => {
            node.start_guard_again();
            return None;
        }
        Act::Reboot => {
            node.reboot();
            return None;
        }
        Act::KillGuard => {
            node.kill_guard();
            node.let_systemd_start_it();
            return None;
        }
    };
    Some(node.run(&args))
}

/// How the node differs from the model.
fn unlike(node: &TrialNode, model: &Model) -> Vec<String> {
    let mut all = Vec::new();
    let found = node.root.read("etc/replaced.conf");
    if found != format!("{}\n", model.config) {
        all.push(format!("the node is in {found}"));
    }
    if node.history().len() != model.history.len() {
        all.push(format!("the history has {:?}", node.history()));
    }
    match (node.trial(), &model.trial) {
        (None, None) => {}
        (Some(trial), Some(_)) if trial["phase"] == "waiting" => {}
        (trial, _) => all.push(format!("the trial is {trial:?}")),
    }
    let left = ["trial-reserve", "trial-guard"].map(|name| format!("{STATE}/{name}"));
    for path in left {
        if node.root.exists(&path) && model.trial.is_none() {
            all.push(format!("{path} is left"));
        }
    }
    let record = node.root.read(crate::support::RECORD);
    if !record.contains(&format!("rendered-worker-{}", model.config)) {
        all.push("the record is of another config".to_owned());
    }
    all
}

/// What works in a trial, too.
fn looks(node: &TrialNode, model: &Model) -> Vec<String> {
    let mut all = Vec::new();
    let mut expect = |args: &[&str], codes: &[i32]| {
        let run = node.run(args);
        if !codes.contains(&run.code()) {
            all.push(format!(
                "{args:?} ended with {}: {}",
                run.code(),
                flat_run(&run)
            ));
        }
        run
    };
    let status = expect(&["status"], &[0]);
    expect(&["verify"], &[0]);
    expect(&["plan", "/c"], &[0, 3]);
    expect(&["cache", "list"], &[0]);
    expect(&["doctor"], &[0, 3, 6]);
    expect(&["recover", "--yes"], &[0]);
    let said = flat_run(&status);
    let words = "unless it is confirmed";
    if said.contains(words) != model.trial.is_some() || said.contains("NO GUARD RUNS") {
        all.push(format!("status says {said}"));
    }
    all
}

#[test]
fn all_sequences_of_three_end_as_the_model_says() {
    if !is_root() {
        skip(Lacks::Root, "namespaces need root");
        return;
    }
    with_mounts(|| {
        let mut stage = Stage::new();
        let _ = fs::remove_dir_all(stage.node.root.path(&format!("{STATE}/history")));
        stage.keep();
        let first = Model {
            config: 'a',
            history: Vec::new(),
            trial: None,
        };
        let mut states = vec![(first.clone(), stage.take(), Vec::new())];
        let mut seen = HashSet::from([first]);
        let (mut sequences, mut runs, mut problems) = (0usize, 0usize, Vec::new());
        for length in 1..=3u32 {
            let mut next = Vec::new();
            for (number, (model, tree, way)) in states.iter().enumerate() {
                for (place, what) in ACTS.into_iter().enumerate() {
                    // In a sample, what follows on the longer ones is tried in turns.
                    let is_due = length == 1 || (number + place) % 3 == 0;
                    if !everything_is_asked_for() && !is_due {
                        continue;
                    }
                    stage.put(tree);
                    stage.node.let_systemd_start_it();
                    let mut after = model.clone();
                    let (said, end) = after.act(what);
                    let run = act(&stage.node, model, what);
                    runs += 1;
                    let way = [way.as_slice(), &[what]].concat();
                    let mut found = unlike(&stage.node, &after);
                    if let (Some((code, words)), Some(run)) = (said, &run) {
                        let text = flat_run(run);
                        if run.code() != code || !text.contains(words) {
                            found.push(format!("ended with {}: {text}", run.code()));
                        }
                    }
                    if let Some(end) = end {
                        let last = stage.node.last();
                        if last["outcome"] != end {
                            found.push(format!("the end is {last}"));
                        }
                    }
                    if found.is_empty() && seen.insert(after.clone()) {
                        found.extend(looks(&stage.node, &after));
                        found.extend(unlike(&stage.node, &after));
                        next.push((after, stage.take(), way.clone()));
                    }
                    problems.extend(found.into_iter().map(|words| format!("{way:?}: {words}")));
                }
            }
            sequences += ACTS.len().pow(length);
            states.extend(next);
        }
        say(&format!(
            "{sequences} sequences are possible; tried: {runs} acts on {} states",
            seen.len()
        ));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}

/// A node in a trial whose guard is dead, as after a power cut.
fn cut(stage: &Stage) {
    stage.reset();
    stage.node.root.write("stub/quiet", "");
    stage.node.run(BEGIN).ok();
    fs::remove_file(stage.node.root.path("stub/quiet")).unwrap();
}

const TRIAL: &str = "var/lib/mco-rescue/trial.json";

#[test]
fn a_damaged_trial_is_named_with_the_commands_that_lead_out() {
    with_mounts(|| {
        let stage = Stage::new();
        let node = &stage.node;
        cut(&stage);
        let whole = fs::read(node.root.path(TRIAL)).unwrap();
        let mut other = unsealed(&String::from_utf8(whole.clone()).unwrap());
        other["version"] = json!(99);
        let mut damages: Vec<(String, Vec<u8>)> = vec![
            ("empty".to_owned(), Vec::new()),
            ("half".to_owned(), whole[..whole.len() / 2].to_vec()),
            ("zeros".to_owned(), vec![0; 4096]),
            ("garbage".to_owned(), b"\xff\xfe{not json".to_vec()),
            ("another version".to_owned(), other.to_string().into_bytes()),
        ];
        let every = if everything_is_asked_for() {
            7
        } else {
            whole.len() / 4
        };
        for place in (120..whole.len()).step_by(every) {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << (place % 8);
            damages.push((format!("bit at {place}"), flipped));
        }
        let before = node.tree();
        for (name, bytes) in &damages {
            fs::write(node.root.path(TRIAL), bytes).unwrap();
            let status = node.run(&["status"]);
            assert_eq!(status.code(), 0, "{name}: {}", flat_run(&status));
            assert!(
                flat_run(&status).contains("mv /var/lib/mco-rescue/trial.json"),
                "{name}"
            );
            let run = node.run(&["apply", "--yes", "/c"]).exits(1);
            assert!(
                flat_run(&run).contains("mv /var/lib/mco-rescue/trial.json"),
                "{name}"
            );
            for args in [
                &["rollback", "--yes"][..],
                &["confirm", "--from-console"],
                &["trial", "guard", "--once"],
                &["install", "--remove", "--yes"],
                &["recover", "--at-boot"],
            ] {
                node.run(args).exits(1);
            }
            assert_eq!(fs::read(node.root.path(TRIAL)).unwrap(), *bytes, "{name}");
            fs::write(node.root.path(TRIAL), &whole).unwrap();
            assert_eq!(differences(&before, &node.tree()), [""; 0], "{name}");
        }
        say(&format!("{} damages", damages.len()));
        // The way that is printed.
        fs::write(node.root.path(TRIAL), b"x").unwrap();
        let aside = node.root.path(&format!("{TRIAL}.damaged"));
        fs::rename(node.root.path(TRIAL), &aside).unwrap();
        node.run(&["rollback", "--yes"]).ok();
        fs::remove_file(aside).unwrap();
        assert_eq!(differences(&stage.old, &node.tree()), [""; 0]);
        // No file at all: none can be read, and none hangs.
        cut(&stage);
        fs::remove_file(node.root.path(TRIAL)).unwrap();
        fs::create_dir(node.root.path(TRIAL)).unwrap();
        node.run(&["apply", "--yes", "/c"]).exits(1);
        node.run(&["status"]).ok();
        fs::remove_dir(node.root.path(TRIAL)).unwrap();
        let status = Command::new("mkfifo").arg(node.root.path(TRIAL)).status();
        assert!(status.unwrap().success());
        node.run(&["status"]).ok();
    });
}

#[test]
fn without_a_place_for_its_state_a_trial_changes_nothing() {
    with_mounts(|| {
        let stage = Stage::new();
        let node = &stage.node;
        stage.reset();
        let state = node.root.path(STATE);
        let before = node.tree();
        let there = state.to_str().unwrap();
        mount(&["--bind", there, there]);
        mount(&["-o", "remount,bind,ro", there]);
        let run = node.run(BEGIN).exits(1);
        unmount(&state);
        assert_eq!(differences(&before, &node.tree()), [""; 0], "{}", run.err());
        // Less space than the way back needs.
        let kept = tempfile::tempdir().unwrap();
        crate::support::faults::copy_tree(&state, kept.path());
        mount(&["-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", there]);
        crate::support::faults::copy_tree(kept.path(), &state);
        let run = node.run(BEGIN).exits(1);
        assert!(
            flat_run(&run).contains("Nothing was changed"),
            "{}",
            run.err()
        );
        assert_eq!(differences(&before, &node.tree()), [""; 0], "{}", run.err());
        assert!(node.trial().is_none());
        unmount(&state);
    });
}

#[test]
fn the_disk_of_a_node_that_died_in_a_trial_names_it_and_is_reverted() {
    with_mounts(|| {
        let stage = Stage::new();
        stage.remember_cut();
        for at in ["waiting", "applying"] {
            let node = &stage.node;
            match at {
                "waiting" => cut(&stage),
                _ => {
                    stage.reset();
                    node.root.write("stub/quiet", "");
                    let fault = node.root.read("stub/cut");
                    node.traced(Some(fault.trim()), BEGIN);
                }
            }
            let root = &node.root;
            assert_eq!(node.trial().unwrap()["phase"], at);
            let said = |args: &[&str], code: i32| flat_run(&root.run(args).exits(code));
            let status = said(&["status"], 0);
            assert!(status.contains("was not confirmed"), "{status}");
            assert!(status.contains("the next boot reverts it"), "{status}");
            assert!(said(&["confirm", "--from-console"], 1).contains("on the running node"));
            let config = root.config(&super::matrix::config('c'));
            let refused = said(&["apply", "--yes", config.path()], 1);
            assert!(refused.contains("rollback --root"), "{refused}");
            said(&["install", "--remove", "--yes"], 1);
            let named = said(&["recover"], 0);
            assert!(named.contains("rollback --root"), "{named}");
            assert!(node.trial().is_some(), "the way back is kept");
            let run = root.run(&["rollback", "--yes"]).ok();
            assert!(run.out().contains("as it was before"), "{}", run.out());
            assert!(node.trial().is_none());
            assert_eq!(differences(&stage.old, &node.tree()), [""; 0]);
            assert_eq!(node.last()["outcome"], "reverted");
            root.run(&["apply", "--yes", config.path()]).ok();
        }
    });
}
