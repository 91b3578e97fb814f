//! The engine of runs, driven as a library: no terminal, no command line, and no program of the node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::apply::{Applied, ApplyOptions, ApplyRun};
use super::front::{Front, HalfWayAnswer, RunNews};
use super::node_change::NodeChange;
use super::opening::{Needs, Opening};
use super::rollback::{GoingBack, HowBack, RollbackOptions};
use super::trial::running::TrialOptions;
use crate::base::error::{ExitCode, RunError};
use crate::change::plan::Allowed;
use crate::change::session::RunOptions;
use crate::change::transaction::{self, Pending};
use crate::host::root::Root;
use crate::node::Records;
use crate::node::command::{CommandError, CommandLine, CommandOutput, CommandRunner};

/// A rendered config: a key, four files, a unit, a drop-in and a mask.
const CONFIG: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/machine-configs/accepted/rendered.yaml"
);
/// A file of the config that the node has with another text.
const CHANGED: &str = "etc/chrony.conf";
/// A file of the config that the node lacks; its step comes after that of [`CHANGED`].
const MISSING: &str = "usr/local/bin/configure-agent.sh";
/// The file of the daemon's record.
const RECORD: &str = "etc/machine-config-daemon/currentconfig";

/// STUB of the node's programs: none is installed.
struct NoPrograms;

impl CommandRunner for NoPrograms {
    fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
        Err(CommandError::Missing(command.program.to_string()))
    }
}

/// A front end that keeps what it is asked, and confirms it.
#[derive(Default)]
struct RecordingFront(RefCell<Vec<String>>);

impl Front for RecordingFront {
    fn runner(&self) -> &dyn CommandRunner {
        &NoPrograms
    }

    fn confirm(&self, question: &str) -> Result<()> {
        self.0.borrow_mut().push(question.to_owned());
        Ok(())
    }

    fn ask_half_way(&self, stopped: &str) -> Result<HalfWayAnswer> {
        self.0.borrow_mut().push(stopped.to_owned());
        Ok(HalfWayAnswer::Stop)
    }

    fn tell(&self, news: RunNews<'_>) {
        self.0.borrow_mut().push(format!("{news:?}"));
    }
}

/// A disk with CoreOS, which no config was applied to.
struct Disk(TempDir);

impl Disk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        let system = "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhcos\"\nVERSION_ID=\"9.6\"\n";
        disk.write("usr/lib/os-release", system);
        disk.write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        symlink("../usr/lib/os-release", disk.path("etc/os-release")).unwrap();
        disk.write("etc/kubernetes/kubeconfig", "kind: Config\n");
        let home = disk.path("home/core");
        fs::create_dir_all(&home).unwrap();
        let own = fs::metadata(&home).unwrap();
        let (uid, gid) = match own.uid() {
            0 => (1000, 1000),
            uid => (uid, own.gid()),
        };
        chown(&home, Some(uid), Some(gid)).unwrap();
        let line = format!("core:x:{uid}:{gid}::/home/core:/bin/bash\n");
        disk.write("etc/passwd", &format!("root:x:0:0::/root:/bin/sh\n{line}"));
        disk.write("etc/group", &format!("root:x:0:\ncore:x:{gid}:\n"));
        disk.write("etc/shadow", "root:*:19000::::::\ncore:*:19000::::::\n");
        disk.write(CHANGED, "pool by-hand.example\n");
        for directory in ["usr/local/bin", "usr/lib/systemd/system", "var/lib"] {
            fs::create_dir_all(disk.path(directory)).unwrap();
        }
        disk
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn root(&self) -> Root {
        Root::open(self.0.path()).unwrap()
    }

    fn begin<'a>(&self, front: &'a RecordingFront, needs: &Needs) -> NodeChange<'a> {
        let opening = Opening::of(front, self.root(), needs).unwrap();
        opening.begin().unwrap()
    }

    /// Everything but the program's own state, with modes and contents.
    fn seen(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        look(self.0.path(), self.0.path(), &mut found);
        found.retain(|path, _| !path.starts_with("var/lib/mco-rescue"));
        found
    }
}

fn look(top: &Path, directory: &Path, found: &mut BTreeMap<String, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = match meta.file_type() {
            kind if kind.is_dir() => Vec::new(),
            kind if kind.is_symlink() => {
                let target = fs::read_link(&path).unwrap();
                target.into_os_string().into_encoded_bytes()
            }
            _ => fs::read(&path).unwrap(),
        };
        if meta.is_dir() {
            look(top, &path, found);
        }
        let name = path.strip_prefix(top).unwrap().display().to_string();
        found.insert(name, (meta.permissions().mode(), content));
    }
}

/// Calls a test in a thread of its own, as a run gives up capabilities of its thread.
fn in_thread(test: fn()) {
    let ended = std::thread::spawn(test).join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn no_trial() -> TrialOptions {
    TrialOptions {
        window: None,
        probe: Vec::new(),
        detach: false,
        boot_limit: Duration::ZERO,
    }
}

fn options() -> ApplyOptions<'static> {
    ApplyOptions {
        config: Some(CONFIG),
        run: RunOptions::default(),
        trial: no_trial(),
        no_actions: false,
    }
}

/// Ends a run as a front end does that found nothing else to complain of.
fn end(applied: Applied<'_>) -> ExitCode {
    let drifts = applied.drifts();
    assert!(drifts.is_empty(), "{drifts:?}");
    applied.finish(Ok(ExitCode::Done)).unwrap()
}

fn apply(disk: &Disk, front: &RecordingFront) -> ExitCode {
    let options = options();
    let change = disk.begin(front, &Needs::APPLY);
    let run = ApplyRun::plan(&change, &options, None).unwrap();
    end(run.carry_out(change).unwrap())
}

#[test]
fn a_config_is_applied_and_the_next_run_has_no_step() {
    in_thread(|| {
        let (disk, front, options) = (Disk::new(), RecordingFront::default(), options());
        assert_eq!(apply(&disk, &front), ExitCode::Done);
        assert!(disk.read(CHANGED).contains("pool ntp.example iburst"));
        let mode = fs::metadata(disk.path(MISSING)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o755);
        let applied = disk.seen();
        let change = disk.begin(&front, &Needs::APPLY);
        let run = ApplyRun::plan(&change, &options, None).unwrap();
        assert!(run.plan.is_empty(), "{:?}", run.plan.steps);
        assert_eq!(end(run.leave_unchanged(change).unwrap()), ExitCode::Done);
        assert_eq!(disk.seen(), applied);
        // The engine leaves the question to the front end, and on a disk it has no news.
        assert!(front.0.borrow().is_empty(), "{:?}", front.0.borrow());
    });
}

#[test]
fn a_plan_with_a_blocker_is_refused_and_nothing_changes() {
    in_thread(|| {
        let (disk, front, options) = (Disk::new(), RecordingFront::default(), options());
        fs::remove_file(disk.path(CHANGED)).unwrap();
        fs::create_dir(disk.path(CHANGED)).unwrap();
        let before = disk.seen();
        let change = disk.begin(&front, &Needs::APPLY);
        let run = ApplyRun::plan(&change, &options, None).unwrap();
        assert_eq!(run.plan.blockers.len(), 1, "{:?}", run.plan.blockers);
        let refused = run.carry_out(change).err().unwrap().to_string();
        assert!(
            refused.contains("/etc/chrony.conf: a directory is where a file should be")
                && refused.ends_with("nothing was changed"),
            "{refused}"
        );
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn a_step_that_fails_takes_back_those_before_it() {
    in_thread(|| {
        let (disk, front, options) = (Disk::new(), RecordingFront::default(), options());
        let change = disk.begin(&front, &Needs::APPLY);
        let run = ApplyRun::plan(&change, &options, None).unwrap();
        let place = |path: &str| {
            let mut steps = run.plan.steps.iter();
            steps.position(|planned| planned.step.path().relative() == path)
        };
        assert!(place(CHANGED).unwrap() < place(MISSING).unwrap());
        // Another program makes it after the plan was shown.
        disk.write(MISSING, "theirs\n");
        let before = disk.seen();
        let error = run.carry_out(change).err().unwrap();
        assert!(
            matches!(error.downcast_ref(), Some(RunError::RolledBack(_))),
            "{error:#}"
        );
        assert_eq!(disk.seen(), before);
        let pending = transaction::find_pending(&disk.root()).unwrap();
        assert_eq!(pending, Pending::Nothing);
        // Planned from what is there now, it is replaced.
        assert_eq!(apply(&disk, &front), ExitCode::Done);
        assert!(disk.read(MISSING).starts_with("#!/bin/bash"));
    });
}

#[test]
fn a_file_that_changed_since_the_plan_was_made_is_kept() {
    in_thread(|| {
        let (disk, front, options) = (Disk::new(), RecordingFront::default(), options());
        let change = disk.begin(&front, &Needs::APPLY);
        let run = ApplyRun::plan(&change, &options, None).unwrap();
        disk.write(CHANGED, "pool changed-meanwhile.example\n");
        let before = disk.seen();
        let error = run.carry_out(change).err().unwrap();
        assert!(
            format!("{error:#}").contains("/etc/chrony.conf"),
            "{error:#}"
        );
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn a_rollback_restores_what_was_there_before() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let mut before = disk.seen();
        apply(&disk, &front);
        assert!(disk.path(RECORD).exists());
        let options = RollbackOptions {
            to: None,
            leave_changed: false,
            files_only: false,
            no_actions: false,
            complete_by_hand: false,
            allowed: Allowed::default(),
            trial: no_trial(),
        };
        let change = disk.begin(&front, &Needs::ROLLBACK);
        let back = GoingBack::choose(&change, &options, false).unwrap();
        assert_eq!(back.back.plan.blockers, []);
        let went = back.carry_out(change, &options).unwrap();
        let HowBack::Done(took) = went.how else {
            panic!("the files are not restored");
        };
        assert_eq!((took.recorded, took.left), (None, 0));
        assert!(Records::read(&disk.root()).unwrap().recorded().is_none());
        let mut now = disk.seen();
        // The daemon's own directories stay.
        for seen in [&mut now, &mut before] {
            seen.retain(|path, _| !path.starts_with("etc/machine-config-daemon"));
        }
        assert_eq!(now, before);
    });
}
