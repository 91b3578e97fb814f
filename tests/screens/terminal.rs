//! Output at a terminal: the pager, a screen that is redrawn, and colours of messages.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use nix::pty::Winsize;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{Config, PROGRAM, TestRoot, file, is_root, machine_config};

const CLEAR: &str = "\u{1b}[H";

/// A program whose standard output is a terminal of 24 rows of 80 columns.
struct AtTerminal {
    child: Child,
    screen: File,
    text: String,
}

impl AtTerminal {
    fn start(command: Command) -> Self {
        Self::of_width(command, 80)
    }

    fn of_width(mut command: Command, columns: u16) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = nix::pty::openpty(Some(&size), None).unwrap();
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.stdout(terminal.slave).spawn().unwrap();
        Self {
            child,
            screen: File::from(terminal.master),
            text: String::new(),
        }
    }

    /// Reads until the text satisfies the condition, or until the program has ended.
    fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) {
        let mut piece = [0; 4096];
        while !is_enough(&self.text) {
            match self.screen.read(&mut piece) {
                // The last descriptor of the other side is closed.
                Err(_) | Ok(0) => return,
                Ok(count) => self.text += &String::from_utf8_lossy(&piece[..count]),
            }
        }
    }

    /// Returns everything that was shown until the end of the program.
    fn text(mut self) -> String {
        self.read_until(|_| false);
        self.child.wait().unwrap();
        self.text.replace('\r', "")
    }
}

/// A node whose plan is longer than a terminal, and the config of that plan.
fn long_plan() -> (TestRoot, Config) {
    let root = TestRoot::new();
    let files: Vec<_> = (0..40)
        .map(|n| file(&format!("/etc/many/{n}.conf"), 0o644, "text\n"))
        .collect();
    let config = root.config(&machine_config(
        "rendered-worker-many",
        json!({"storage": {"files": files}}),
    ));
    (root, config)
}

#[test]
fn what_is_longer_than_the_terminal_is_shown_in_the_pager() {
    let (root, config) = long_plan();
    let config = config.path();
    let paged = root.path("paged");
    let pager = format!("tee {}", paged.display());
    let at = |args: &[&str], variables: &[(&str, &str)]| {
        let _ = fs::remove_file(&paged);
        let mut command = root.command(args);
        command.env("TERM", "xterm").env("PAGER", &pager);
        command.envs(variables.iter().copied());
        let text = AtTerminal::start(command).text();
        (text, fs::read_to_string(&paged).ok())
    };
    let plan = ["plan", config];
    let (text, shown) = at(&plan, &[]);
    let shown = shown.expect("the pager was not started");
    assert!(shown.contains("/etc/many/39.conf"), "{shown}");
    assert!(text.contains("/etc/many/39.conf"), "{text}");
    // Everywhere else the text is printed as it is.
    let is_not_paged = |args: &[&str], variables: &[(&str, &str)]| {
        let (text, shown) = at(args, variables);
        assert_eq!(shown, None, "{args:?} {variables:?}");
        assert!(text.contains("/etc/many/39.conf"), "{variables:?}: {text}");
    };
    is_not_paged(&["plan", config, "--no-pager"], &[]);
    is_not_paged(&plan, &[("TERM", "dumb")]);
    for pager in ["", "cat", "/missing/pager"] {
        is_not_paged(&plan, &[("PAGER", pager)]);
    }
    // What fits the terminal, and what changes the node, needs none.
    let (_, shown) = at(&["plan", config, "--summary"], &[]);
    assert_eq!(shown, None);
    let (text, shown) = at(&["apply", "--yes", config], &[]);
    assert_eq!(shown, None);
    let undo = format!("Undo: {PROGRAM} rollback");
    assert!(text.contains(&undo), "{text}");
}

#[test]
fn a_pipe_gets_no_pager() {
    let (root, config) = long_plan();
    let config = config.path();
    let paged = root.path("paged");
    let mut command = root.command(&["plan", config]);
    command.env("TERM", "xterm");
    command.env("PAGER", format!("tee {}", paged.display()));
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("/etc/many/39.conf"));
    assert!(!paged.exists());
}

#[test]
fn a_watched_status_is_redrawn_until_a_signal_ends_it() {
    let root = TestRoot::new();
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", crate::support::PROGRAM, "--root"]);
    command.arg(root.dir()).args(["status", "--watch"]);
    command.env("TERM", "vt100");
    let mut watched = AtTerminal::start(command);
    watched.read_until(|text| text.matches(CLEAR).count() > 1);
    let pid = Pid::from_raw(watched.child.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = watched.child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGINT as i32));
    let frames: Vec<&str> = watched.text.split(CLEAR).skip(1).collect();
    assert!(frames.len() > 1, "{frames:?}");
    let first = frames[0];
    assert!(first.starts_with("mco-rescue status, 20"), "{first}");
    for words in ["Ctrl-C ends it", "Recorded", "Last run"] {
        assert!(first.contains(words), "no {words:?} in {first}");
    }
    assert!(first.lines().count() <= 24, "{first}");
}

#[test]
fn without_a_terminal_nothing_is_watched() {
    let root = TestRoot::new();
    for args in [
        &["status", "--watch"][..],
        &["status", "--watch", "--output", "json"],
    ] {
        let run = root.run(args).exits(1);
        assert_eq!(run.out(), "");
        let said = run.err();
        assert!(said.contains("--watch redraws a terminal"), "{said}");
        assert!(said.contains("mco-rescue status --output json"), "{said}");
    }
}

#[test]
fn warnings_and_errors_have_colours_where_they_are_wanted() {
    let root = TestRoot::new();
    let config = root.config(&json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "99-a", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}}},
    }));
    for (when, label) in [
        ("always", "\u{1b}[1;33mwarn:\u{1b}[0m"),
        ("never", "warn:"),
        ("auto", "warn:"),
    ] {
        // The config names no OS image, and a warning says so.
        let run = root.run(&["--color", when, "render", "worker", config.path()]);
        let said = run.err();
        assert!(said.contains(label), "{when}: {said:?}");
    }
    let run = root
        .run(&["--color", "always", "plan", "/missing"])
        .exits(1);
    assert!(run.err().starts_with("\u{1b}[1;31merror:\u{1b}[0m "));
}

#[test]
fn text_is_as_wide_as_the_terminal() {
    let root = TestRoot::new();
    root.write("etc/of-nobody.conf", "x\n");
    let longest = |columns: u16| {
        let mut command = root.command(&["doctor", "--no-pager"]);
        command.env("TERM", "dumb");
        let text = AtTerminal::of_width(command, columns).text();
        let lines = text.lines().filter(|line| !line.contains("mco-rescue"));
        let lines = lines.filter(|line| line.split_whitespace().count() > 2);
        lines.map(|line| line.chars().count()).max().unwrap()
    };
    let (narrow, usual, wide) = (longest(60), longest(80), longest(110));
    assert!(
        narrow <= 60 && usual > 60 && usual <= 80,
        "{narrow} {usual}"
    );
    assert!(wide > 80 && wide <= 110, "{wide}");
}

#[test]
fn a_command_for_a_person_names_the_program_as_it_was_called() {
    let root = TestRoot::new();
    root.apply(&machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file("/etc/pool.conf", 0o644, "text\n")]}}),
    ));
    root.write("etc/pool.conf", "by hand\n");
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, place.path().join("mco-rescue")).unwrap();
    let run = |sudo: bool| {
        let mut command = Command::new("./mco-rescue");
        command
            .current_dir(place.path())
            .arg("--root")
            .arg(root.dir());
        command
            .args(["verify", "--no-pager"])
            .env("TERM", "dumb")
            .env_remove("SUDO_UID");
        if sudo {
            command.env("SUDO_UID", "1000");
        }
        AtTerminal::start(command).text()
    };
    let (own, by_sudo) = (run(false), run(true));
    assert!(own.contains("Next: ./mco-rescue plan --root /"), "{own}");
    assert!(own.contains("then: ./mco-rescue apply --root /"), "{own}");
    // A root's shell needs no sudo; another user's run never has root's id.
    if is_root() {
        assert!(
            by_sudo.contains("Next: sudo ./mco-rescue plan --root /"),
            "{by_sudo}"
        );
    }
    // Programs and logs get the plain name.
    let piped = root.run(&["verify"]).exits(3).out();
    assert!(piped.contains("Next: mco-rescue plan --root /"), "{piped}");
}

#[test]
fn the_man_page_is_shown_as_text_at_a_terminal_and_printed_as_source_elsewhere() {
    let root = TestRoot::new();
    let source = root.run(&["man"]).ok().out();
    assert!(source.starts_with(".TH MCO-RESCUE 8"), "{source}");
    // Where there is no `man`, the long help.
    let place = tempfile::tempdir().unwrap();
    let show = || {
        let mut command = root.command(&["man", "--no-pager"]);
        command.env("TERM", "dumb").env("PATH", place.path());
        AtTerminal::start(command).text()
    };
    let text = show();
    assert!(!text.contains(".TH ") && text.contains("Usage:"), "{text}");
    let man = place.path().join("man");
    fs::write(&man, "#!/bin/sh\nread line\necho \"$* $line\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&man, mode).unwrap();
    let text = show();
    assert!(text.starts_with("-l - .TH MCO-RESCUE 8"), "{text}");
}
