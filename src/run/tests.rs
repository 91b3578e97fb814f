//! The engine of runs, driven as a library: no terminal, no command line, and no program of the node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::apply::{Applied, ApplyOptions, ApplyRun};
use super::fetch::{FetchOptions, fetch_configs};
use super::first_boot::FirstBootAttempt;
use super::first_boot_units::{continue_boot, is_completed};
use super::front::{Front, InterruptedAnswer, RunNews};
use super::history::History;
use super::install::{InstalledPaths, find_due, install_due};
use super::keep::{KeepOptions, KeepRun};
use super::key::KeyRun;
use super::node_change::NodeChange;
use super::opening::{Needs, Opening};
use super::pivot::{PivotOptions, PivotRun};
use super::rollback::{GoingBack, HowBack, RollbackOptions};
use super::status::NodeStatus;
use super::trial::running::TrialOptions;
use crate::base::error::{ExitCode, RunError};
use crate::base::paths;
use crate::change::install::completion::Completion;
use crate::change::plan::fit::Accepted;
use crate::change::plan::{AcceptedRisks, Allowed};
use crate::change::session::RunOptions;
use crate::change::session::predict::GivenDaemon;
use crate::change::source::gate::CapsuleOptions;
use crate::change::staging::image_source::SourceOptions;
use crate::change::transaction::{self, Pending, PendingState};
use crate::diagnose::first_boot::{FirstBootOutcome, Parameters};
use crate::host::root::{Root, sha256_hex};
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

    fn ask_about_interrupted(&self, stopped: &str) -> Result<InterruptedAnswer> {
        self.0.borrow_mut().push(stopped.to_owned());
        Ok(InterruptedAnswer::Stop)
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
        let opening = Opening::check_needs(front, self.root(), needs).unwrap();
        opening.begin_change().unwrap()
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
        config: Some(CONFIG).into(),
        run: RunOptions::default(),
        trial: no_trial(),
        no_actions: false,
        keeps: &[],
    }
}

/// Ends a run as a front end does that found nothing else to complain of.
fn end(applied: Applied<'_>) -> ExitCode {
    let drifts = applied.remaining_drifts();
    assert!(drifts.is_empty(), "{drifts:?}");
    applied.finish_run(Ok(ExitCode::Done)).unwrap()
}

fn apply(disk: &Disk, front: &RecordingFront) -> ExitCode {
    let options = options();
    let change = disk.begin(front, &Needs::APPLY);
    let run = ApplyRun::make_plan(&change, &options, None).unwrap();
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
        let run = ApplyRun::make_plan(&change, &options, None).unwrap();
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
        let run = ApplyRun::make_plan(&change, &options, None).unwrap();
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
        let run = ApplyRun::make_plan(&change, &options, None).unwrap();
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
        let run = ApplyRun::make_plan(&change, &options, None).unwrap();
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
        let back = GoingBack::choose_runs(&change, &options, false).unwrap();
        assert_eq!(back.back.plan.blockers, []);
        let went = back.carry_out(change, &options).unwrap();
        let HowBack::Done(took) = went.how else {
            panic!("the files are not restored");
        };
        assert_eq!((took.recorded, took.left), (None, Some(0)));
        assert!(
            Records::read(&disk.root())
                .unwrap()
                .recorded_config()
                .is_none()
        );
        let mut now = disk.seen();
        // The daemon's own directories stay.
        for seen in [&mut now, &mut before] {
            seen.retain(|path, _| !path.starts_with("etc/machine-config-daemon"));
        }
        assert_eq!(now, before);
    });
}

/// A public key of ed25519.
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJiR6nWjvAB0bhdOTmP6kCHHVZ0ZFkn5LTjBmH0yqhBv admin";
/// The file that sshd of CoreOS reads keys of core from.
const KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";

#[test]
fn a_key_is_added_once_and_nothing_else_changes() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let before = disk.seen();
        let change = disk.begin(&front, &Needs::KEY);
        let run = KeyRun::plan_addition(&change, Allowed::default(), KEY, "admin.pub").unwrap();
        assert_eq!(run.path.relative(), KEYS);
        run.carry_out(&change).unwrap();
        drop(change);
        assert_eq!(disk.read(KEYS), format!("{KEY}\n"));
        let mut now = disk.seen();
        now.retain(|path, _| !path.starts_with("home/core/.ssh"));
        assert_eq!(now, before);
        let change = disk.begin(&front, &Needs::KEY);
        let again = KeyRun::plan_addition(&change, Allowed::default(), KEY, "admin.pub").unwrap();
        assert!(again.plan.is_empty() && again.plan.blockers.is_empty());
    });
}

#[test]
fn a_key_is_refused_where_its_file_cannot_be() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        fs::create_dir_all(disk.path(KEYS)).unwrap();
        let before = disk.seen();
        let change = disk.begin(&front, &Needs::KEY);
        let refused = KeyRun::plan_addition(&change, Allowed::default(), KEY, "admin.pub")
            .and_then(|run| run.carry_out(&change))
            .unwrap_err();
        assert!(format!("{refused:#}").contains(KEYS), "{refused:#}");
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn an_image_is_refused_on_a_root_that_ostree_has_not_booted() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let before = disk.seen();
        let mut options = PivotOptions {
            image: None,
            source: SourceOptions::default(),
            risks: AcceptedRisks::default(),
            reboots: false,
            accepted: Accepted::default(),
            trial: no_trial(),
            allowed: Allowed::default(),
            ignores_quorum: false,
            completion: Completion::default(),
        };
        for (image, why) in [
            (None, "no image was given, and no recorded config names one"),
            (Some("quay.io/os@sha256:0"), "not booted by OSTree"),
        ] {
            options.image = image;
            let change = disk.begin(&front, &Needs::PIVOT);
            let refused = PivotRun::plan_pivot(&change, &options).err().unwrap();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn the_program_is_installed_and_removed_again() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let before = disk.seen();
        let change = disk.begin(&front, &Needs::INSTALL);
        let due = find_due(&change.root).unwrap();
        let installed = install_due(&change, &due).unwrap();
        assert!(!installed.check.is_failure());
        drop(change);
        let program = fs::metadata(disk.path("usr/local/bin/mco-rescue")).unwrap();
        assert_eq!(program.mode() & 0o7777, 0o755);
        assert!(
            disk.read("etc/systemd/system/mco-rescue-recover.service")
                .contains("recover")
        );
        let change = disk.begin(&front, &Needs::REMOVE);
        let found = InstalledPaths::find_paths(&change).unwrap();
        assert_eq!(found.left, []);
        let removed = found.remove_paths(&change).unwrap();
        assert!(
            removed
                .iter()
                .any(|path| path.relative() == "usr/local/bin/mco-rescue")
        );
        drop(change);
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn the_program_is_not_installed_where_another_user_could_replace_it() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(disk.path("usr/local/bin"), open).unwrap();
        let before = disk.seen();
        let change = disk.begin(&front, &Needs::INSTALL);
        let refused = find_due(&change.root).err().unwrap();
        assert!(
            refused.to_string().contains("Nothing was installed"),
            "{refused}"
        );
        drop(change);
        assert_eq!(disk.seen(), before);
    });
}

/// The options that get a config from `source`.
fn fetch_from(source: &str) -> FetchOptions<'_> {
    FetchOptions {
        capsule: CapsuleOptions::default(),
        source: Some(source),
        from_media: false,
        pool: None,
        server: None,
        ca: None,
        resolve: &[],
        policy: None,
        digest: None,
        timeout: Duration::from_secs(30),
        awaits_name_server: false,
    }
}

/// Answers one request with the config. Returns its URL.
fn serve_config() -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/rendered.yaml", server.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        let mut request = [0; 4096];
        let _ = client.read(&mut request).unwrap();
        let body = fs::read(CONFIG).unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&body).unwrap();
    });
    url
}

#[test]
fn a_config_from_a_server_is_in_the_cache_and_is_applied_from_there() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let url = serve_config();
        let digest = sha256_hex(&fs::read(CONFIG).unwrap());
        let given = FetchOptions {
            digest: Some(format!("sha256-{digest}")),
            ..fetch_from(&url)
        };
        let outcome = fetch_configs(&disk.root(), &NoPrograms, &given).unwrap();
        assert!(outcome.has_changed && outcome.kept[0].new);
        assert_eq!(outcome.kept[0].origin, url);
        // The same config from a file is in the cache already.
        let again = fetch_configs(&disk.root(), &NoPrograms, &fetch_from(CONFIG)).unwrap();
        assert!(!again.kept[0].new);
        let named = format!("cached:{}", outcome.kept[0].name);
        let options = ApplyOptions {
            config: Some(named.as_str()).into(),
            ..options()
        };
        let change = disk.begin(&front, &Needs::APPLY);
        let run = ApplyRun::make_plan(&change, &options, None).unwrap();
        assert_eq!(end(run.carry_out(change).unwrap()), ExitCode::Done);
    });
}

#[test]
fn a_config_that_is_not_authenticated_or_of_another_pool_is_not_kept() {
    in_thread(|| {
        let disk = Disk::new();
        let before = disk.seen();
        let other_pool = FetchOptions {
            pool: Some("infra"),
            ..fetch_from(CONFIG)
        };
        let other_digest = FetchOptions {
            digest: Some(format!("sha256-{}", sha256_hex(b"another document"))),
            ..fetch_from(CONFIG)
        };
        for (options, why) in [
            (
                fetch_from("http://127.0.0.1:1/rendered.yaml"),
                "is not encrypted",
            ),
            (other_pool, "of pool worker, not of pool infra"),
            (other_digest, "a different digest"),
        ] {
            let refused = fetch_configs(&disk.root(), &NoPrograms, &options).unwrap_err();
            assert!(format!("{refused:#}").contains(why), "{refused:#}");
        }
        assert_eq!(disk.seen(), before);
        assert!(!disk.path("var/lib/mco-rescue").exists());
    });
}

#[test]
fn a_first_boot_is_complete_once_nothing_waits_for_its_service() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        disk.write(paths::ENCAPSULATED, "{}");
        assert!(!is_completed(&disk.root()).unwrap());
        fs::remove_file(disk.path(paths::ENCAPSULATED)).unwrap();
        assert!(is_completed(&disk.root()).unwrap());
        // No systemd of this root can have its units stopped.
        assert!(!continue_boot(&disk.root(), front.runner()).unwrap());
    });
}

#[test]
fn a_first_boot_that_is_off_leaves_the_root_alone() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        let before = disk.seen();
        let off = Parameters::parse("mco_rescue=off");
        let mut attempt = FirstBootAttempt::new(&front, false, CapsuleOptions::default());
        let ended = attempt.run_attempt(disk.0.path(), &off).unwrap();
        assert_eq!(ended.outcome, FirstBootOutcome::Nothing);
        assert_eq!(disk.seen(), before);
    });
}

#[test]
fn status_and_history_know_the_run() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        apply(&disk, &front);
        let status =
            NodeStatus::observe(&disk.root(), &NoPrograms, GivenDaemon::default()).unwrap();
        let name = status.recorded.unwrap();
        assert_eq!(
            (status.pending, status.unreadable),
            (PendingState::Nothing, Vec::new())
        );
        let runs: Vec<String> = status
            .history
            .unwrap()
            .into_iter()
            .map(|run| run.config)
            .collect();
        assert_eq!(runs, std::slice::from_ref(&name));
        let history = History::of_root(&disk.root()).unwrap();
        let configs: Vec<_> = history
            .entries
            .iter()
            .map(|entry| entry.config.clone())
            .collect();
        assert_eq!(configs, [Some(name)]);
        assert!(history.entries[0].can_go_back);
    });
}

#[test]
fn a_change_by_hand_is_kept_as_a_machine_config_that_leaves_no_difference() {
    in_thread(|| {
        let (disk, front) = (Disk::new(), RecordingFront::default());
        apply(&disk, &front);
        disk.write(CHANGED, "pool by-hand.example\n");
        let options = KeepOptions {
            paths: &[],
            name: None,
            arguments: &[],
        };
        let run = KeepRun::observe_node(disk.root(), &NoPrograms, options).unwrap();
        let (kept, left) = run.prove_config(run.make_config(false), false).unwrap();
        assert_eq!(left, []);
        let config = kept.config.unwrap().to_string();
        assert!(config.contains("/etc/chrony.conf"), "{config}");
    });
}
