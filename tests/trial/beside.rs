//! Commands beside a trial that runs: none of them changes the node, and a way back without a guard has an end.

use std::process::{Command, Stdio};

use super::matrix::{BEGIN, TrialNode};
use crate::support::mounts::with_mounts;
use crate::support::scenes::can_disturb;
use crate::support::{Run, flat_run};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@desk\n";

#[test]
fn no_key_is_added_and_nothing_is_installed_while_a_trial_runs() {
    with_mounts(|| {
        let node = TrialNode::new();
        node.root.write("key.pub", KEY);
        node.run(BEGIN).ok();
        let before = node.tree();
        for args in [
            &["apply", "--yes", "--key", "/key.pub"][..],
            &["install", "--not-a-node"],
            &["install", "--remove", "--yes"],
            &["apply", "--yes", "/c"],
            &["rollback", "--yes", "--to", "x"],
        ] {
            let run = node.run(args).exits(1);
            let said = flat_run(&run);
            for words in [
                "a trial of ",
                "mco-rescue confirm",
                "mco-rescue rollback",
                "Nothing was changed",
            ] {
                assert!(said.contains(words), "{args:?}: {words}: {said}");
            }
            assert!(node.tree() == before, "{args:?} changed the node");
        }
        node.kill_guard();
        node.start_guard_again();
        assert!(node.trial().is_none());
        node.run(&["apply", "--yes", "--key", "/key.pub"]).ok();
    });
}

/// Its pauses take no time, so that those of many minutes are over at once.
fn without_pauses(node: &TrialNode, args: &[&str]) -> Run {
    let mut command = Command::new("strace");
    command.args(["-qq", "-o", "/dev/null", "-e", "trace=clock_nanosleep"]);
    command.args(["-e", "inject=clock_nanosleep:retval=0", "chroot"]);
    command.arg(node.root.dir()).arg("/usr/mco-rescue");
    command.args(args).stdin(Stdio::null());
    Run::of(command.output().unwrap())
}

#[test]
fn a_way_back_without_a_guard_ends_with_a_command() {
    with_mounts(|| {
        if !can_disturb() {
            return;
        }
        let node = TrialNode::new();
        node.run(BEGIN).ok();
        node.kill_guard();
        // systemd says that the guard is started, and it does nothing.
        node.root.write("stub/quiet", "");
        let run = without_pauses(&node, &["rollback", "--yes"]).exits(5);
        let said = flat_run(&run);
        for words in [
            "did not revert the trial of ",
            "journalctl -b -u mco-rescue-guard.service",
            "systemctl stop mco-rescue-guard.service",
            "mco-rescue rollback",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(node.trial().is_some());
        // A guard that works takes it back.
        node.start_guard_again();
        assert!(node.trial().is_none());
    });
}
