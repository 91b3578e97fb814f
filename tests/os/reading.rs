//! EIO at calls that only look, in the commands that change the operating system of a node that runs: what cannot be read
//! is neither missing nor as wanted.
//!
//! An exit code of 0 without a warning means what the undisturbed command leads to. Else the reason was printed, and each
//! command that `status` prints leads to a whole node. A sentence about the whole command is so. Only the program's first thread is
//! disturbed: rpm-ostree and ostree are stand-ins, whose own reading is not the matter.
//! `MCO_RESCUE_FAULTS=all` (`make faults`) tries every call, else a sample is tried.

use super::sequences::{Act, Node, image};
use crate::support::faults::{READING, Traced, traced_on_first_thread};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::Turn;
use crate::support::say;
use crate::support::scenes::{can_disturb, everything_is_asked_for};

/// A command, and how the node came to be as it is.
struct Story {
    acts: &'static [Act],
    args: Vec<String>,
}

impl Story {
    fn new(acts: &'static [Act], args: &[&str]) -> Self {
        let args = args.iter().map(|&word| word.to_owned()).collect();
        Self { acts, args }
    }

    fn run(&self, node: &Node, call: &str, faults: &[String]) -> Traced {
        let _turn = Turn::take();
        let root = node.node.root.dir();
        let mut words = vec!["chroot".into(), root.into(), "/usr/mco-rescue".into()];
        words.extend(["--quiet".into()]);
        words.extend(self.args.iter().map(Into::into));
        traced_on_first_thread(&words, call, faults)
    }

    /// Tries its points; gives their number and what was wrong.
    fn try_all(&self, node: &mut Node) -> (usize, Vec<String>) {
        for act in self.acts {
            node.takes(*act);
        }
        let kept = node.keep();
        let clean = self.run(node, &READING.join(","), &[]);
        let args = self.args.join(" ");
        let code = clean.code;
        assert!(
            code == Some(0) || code == Some(3),
            "{args}: {}{}",
            clean.out,
            clean.err
        );
        let after = node.visible();
        let mut wrong = Vec::new();
        let mut number = 0;
        for call in READING {
            // Those of chroot come first; it ends with 125 where they fail.
            let calls = clean.calls.iter().filter(|one| one.name == call).count();
            let each = if everything_is_asked_for() {
                1
            } else {
                calls.div_ceil(6).max(1)
            };
            for nth in (1..=calls).step_by(each) {
                node.restore(&kept);
                let before = node.visible();
                let fault = format!("{call}:error=EIO:when={nth}");
                let run = self.run(node, call, &[fault]);
                if run.code == Some(125) || run.code == Some(127) {
                    continue;
                }
                number += 1;
                let injected = run.calls.iter().find(|one| one.line.contains("(INJECTED)"));
                let line = injected.map_or("", |one| one.line.as_str());
                let problem = judge(node, &run, code, [&before, &after]);
                wrong.extend(problem.map(|problem| {
                    let said = format!("{}{}", run.out, run.err);
                    format!("{args}: EIO at {call} number {nth} ({line}): {problem}\n{said}")
                }));
            }
        }
        node.restore(&kept);
        (number, wrong)
    }
}

fn judge(node: &mut Node, run: &Traced, code: Option<i32>, states: [&str; 2]) -> Option<String> {
    let [before, after] = states;
    let is = node.visible();
    let is_warned = run.err.lines().any(|line| line.starts_with("warn: "));
    if run.code == code && code == Some(0) && !(is_warned && is != after) {
        return (is != after)
            .then(|| format!("exit code 0, and the node is\n{is}\nand not\n{after}"));
    }
    let is_said =
        is_warned || run.err.lines().any(|line| line.starts_with("error: ")) || run.code == code;
    if !is_said || !matches!(run.code, Some(0..=6)) {
        return Some(format!("ended with {:?} without an error", run.code));
    }
    let said = format!("{}{}", run.out, run.err);
    let said: Vec<&str> = said.split_whitespace().collect();
    let is_unchanged = said
        .join(" ")
        .to_lowercase()
        .contains("nothing was changed");
    if is_unchanged && is != before {
        return Some(format!(
            "nothing was changed, and the node is\n{is}\nand not\n{before}"
        ));
    }
    let led = node.follow(&mut Vec::new());
    led.err().map(|error| format!("no way out: {error}"))
}

/// Fails with the first four of the wrong ends among that many calls.
fn assert_none(number: usize, wrong: &[String]) {
    let all = wrong.len();
    let first = &wrong[..all.min(4)];
    assert!(
        wrong.is_empty(),
        "{all} of {number}:\n{}",
        first.join("\n=====\n")
    );
}

#[test]
fn what_cannot_be_read_of_an_operating_system_is_not_a_reason_to_leave_it() {
    if !can_disturb() {
        return;
    }
    let back: &[Act] = &[Act::Apply('b'), Act::RebootNew];
    let stories = [
        Story::new(&[], &["pivot", "--yes", &image('c')]),
        Story::new(&[], &["apply", "--yes", "/b"]),
        Story::new(&[Act::Apply('b')], &["rollback", "--yes"]),
        Story::new(back, &["rollback", "--yes"]),
        Story::new(back, &["rollback", "--yes", "--forget"]),
        Story::new(&[Act::Apply('b'), Act::Rollback], &["apply", "--yes", "/c"]),
    ];
    with_mounts(|| {
        let mut number = 0;
        let mut wrong = Vec::new();
        for story in stories {
            let (points, problems) = story.try_all(&mut Node::new());
            number += points;
            wrong.extend(problems);
        }
        say(&format!("{number} calls could not be read"));
        assert_none(number, &wrong);
    });
}

/// What runs first at a boot, there and back, into what was awaited and into what was not.
#[test]
fn what_cannot_be_read_at_a_boot_proves_nothing() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let mut number = 0;
        let mut wrong = Vec::new();
        let back: &[Act] = &[Act::Apply('b'), Act::RebootNew, Act::Rollback];
        for (acts, is_new) in [
            (&[Act::Apply('b')][..], true),
            (&[Act::Apply('b')], false),
            (back, true),
        ] {
            let mut node = Node::new();
            for act in acts {
                node.takes(*act);
            }
            node.boots_without_completing(is_new);
            let story = Story::new(&[], &["complete"]);
            let (points, problems) = story.try_all(&mut node);
            number += points;
            wrong.extend(problems);
        }
        say(&format!("{number} calls could not be read at a boot"));
        assert_none(number, &wrong);
    });
}
