//! The program that guards a trial: no other user can replace it, whatever the umask of the caller is.

use std::fs;
use std::process::{Command, Stdio};

use super::matrix::{BEGIN, Stage};
use crate::support::mounts::with_mounts;
use crate::support::{Lacks, Run, is_root, skip};

#[test]
fn no_other_user_can_replace_the_program_that_guards_a_trial() {
    if !is_root() {
        return skip(Lacks::Root, "namespaces need root");
    }
    with_mounts(|| {
        let stage = Stage::new();
        let root = &stage.node.root;
        for (umask, there) in [("0", false), ("0777", false), ("022", true)] {
            stage.reset();
            let _ = fs::remove_dir_all(root.path("run/mco-rescue"));
            if there {
                // As a version from before left it.
                fs::create_dir_all(root.path("run/mco-rescue/trial")).unwrap();
                root.chmod("run/mco-rescue/trial", 0o777);
            }
            let script = "umask \"$1\"; shift; exec chroot \"$@\"";
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh", umask]).arg(root.dir());
            command.arg("/usr/mco-rescue").args(BEGIN);
            Run::of(command.stdin(Stdio::null()).output().unwrap()).ok();
            for (path, mode) in [
                ("run/mco-rescue", 0o755),
                ("run/mco-rescue/trial", 0o755),
                ("run/mco-rescue/trial/mco-rescue", 0o700),
                ("run/motd.d/60-mco-rescue", 0o644),
            ] {
                assert_eq!(root.mode(path), mode, "umask {umask}: {path}");
            }
            stage.node.kill_guard();
        }
    });
}
