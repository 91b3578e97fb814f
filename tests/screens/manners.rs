//! Proves how the program behaves towards a person: the line that asks, short plans, tips for names typed by habit,
//! the list of runs that can be taken back, and progress on terminals and serial consoles.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::{self, Lacks, PROGRAM, Run, TestRoot, file, flat, machine_config, skip};
use serde_json::{Value, json};

const NAME: &str = "rendered-worker-5f0c2d7e8a914b3c6d1e0f9a8b7c6d5x";

/// Two files and one enabled unit with a drop-in.
fn config(name: &str, text: &str) -> Value {
    machine_config(
        name,
        json!({
            "storage": {"files": [
                file("/etc/chrony.conf", 0o644, text),
                file("/etc/extra.conf", 0o644, "extra\n"),
            ]},
            "systemd": {"units": [{
                "name": "agent.service", "enabled": true,
                "contents": "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n",
                "dropins": [{"name": "10-env.conf", "contents": "[Service]\nEnvironment=A=b\n"}],
            }]},
        }),
    )
}

fn node() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/hostname", "worker-0\n");
    root
}

fn wrong_command_line(args: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The program on a terminal of 80 columns, made by script(1), with this typed; `None` where script is missing.
fn on_a_terminal(root: &TestRoot, term: &str, args: &str, typed: &[u8]) -> Option<(i32, String)> {
    let script = terminal(root, "rows 24 cols 80", term, args)?;
    script.stdin.as_ref().unwrap().write_all(typed).unwrap();
    let output = script.wait_with_output().unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((output.status.code().unwrap_or(-1), screen))
}

/// The same, still running, on a terminal of any size.
fn terminal(root: &TestRoot, size: &str, term: &str, args: &str) -> Option<Child> {
    let line = format!(
        "stty {size}; exec env --default-signal=INT TERM={term} {PROGRAM} --root {} {args}",
        root.dir().display()
    );
    Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()
}

// The line that asks.

#[test]
fn the_prompt_says_what_is_decided() {
    let root = node();
    root.apply(&config("rendered-worker-1", "old\n"));
    let mut next = config(NAME, "new\n");
    next["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap()
        .pop();
    support::name_anew(&mut next);
    let next = root.config(&next);
    let Some((code, screen)) =
        on_a_terminal(&root, "xterm", &format!("apply {}", next.path()), b"n\n")
    else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal to ask on",
        );
        return;
    };
    assert_eq!(code, 1, "{screen}");
    let wanted =
        "worker-0 (RHCOS 4.18): 1 file, 1 removed; image and arguments not compared. Apply? [y/N]";
    assert!(flat(&screen).contains(wanted), "{screen}");
    let (list, _) = screen.split_once("worker-0 (RHCOS").unwrap();
    assert!(
        list.contains("/etc/chrony.conf"),
        "after the list: {screen}"
    );
    let wide = screen
        .lines()
        .find(|line| line.trim_end().chars().count() > 80);
    assert_eq!(wide, None, "{screen}");
}

#[test]
fn the_prompt_of_rollback_says_what_goes_back() {
    let root = node();
    root.apply(&config("rendered-worker-1", "old\n"));
    root.apply(&config("rendered-worker-2", "new\n"));
    let Some((code, screen)) = on_a_terminal(&root, "xterm", "rollback", b"n\n") else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal to ask on",
        );
        return;
    };
    assert_eq!(code, 1, "{screen}");
    let wanted =
        "worker-0 (RHCOS 4.18): back to before rendered-worker-2: 1 file. Revert this run? [y/N]";
    assert!(flat(&screen).contains(wanted), "{screen}");
}

// Short plans.

#[test]
fn a_summary_has_sections_and_counts_and_no_paths() {
    let root = node();
    let config = root.config(&config(NAME, "new\n"));
    let whole = root.run(&["plan", config.path()]).ok().out();
    assert!(whole.contains("/etc/chrony.conf"), "{whole}");
    for args in [["plan", "--summary"], ["apply", "--summary"]] {
        let run = root.run(&[args[0], args[1], config.path()]);
        let said = run.out();
        assert!(!said.contains("/etc/"), "{said}");
        let rows = flat(&said);
        for row in ["Files 2 new", "Units 2 new", "Enablement 1 new"] {
            assert!(rows.contains(row), "no {row:?} in {said}");
        }
    }
    // Blockers are not a detail.
    let mut blocked = machine_config(
        NAME,
        json!({"storage": {"disks": [{"device": "/dev/sda"}]}}),
    );
    support::name_anew(&mut blocked);
    let blocked = root.config(&blocked);
    let said = root
        .run(&["plan", "--summary", blocked.path()])
        .exits(1)
        .out();
    assert!(
        said.contains("Blockers (") && said.contains("disks"),
        "{said}"
    );
}

#[test]
fn a_dry_run_of_apply_is_plan() {
    let root = node();
    let config = root.config(&config(NAME, "new\n"));
    let before = root.everything();
    let plan = root.run(&["plan", config.path()]).ok().out();
    for option in ["--dry-run", "-n", "--check"] {
        let run = root.run(&["apply", option, "--yes", config.path()]).ok();
        assert_eq!(run.out(), plan, "{option}");
        let next = format!(
            "\nNext: mco-rescue --root {} apply {}\n",
            root.dir().display(),
            config.path()
        );
        assert!(plan.ends_with(&next), "{plan}");
        assert!(root.everything() == before, "{option} changed the node");
    }
}

// Names that people type by habit.

#[test]
fn json_is_asked_for_as_with_oc() {
    let root = node();
    root.apply(&config(NAME, "new\n"));
    let long = root.run(&["verify", "--output", "json"]).ok().json();
    let short = root.run(&["verify", "-o", "json"]).ok().json();
    assert_eq!(long, short);
}

#[test]
fn names_typed_by_habit_get_the_right_tip() {
    let cases: [(&[&str], &str); 21] = [
        (&["status", "--json"], "'--output json'"),
        (&["plan", "--json", "a.yaml"], "'--output json'"),
        (&["apply", "--force"], "'--allow-removals'"),
        (
            &["apply", "--file", "worker.yaml"],
            "'mco-rescue apply FILE'",
        ),
        (&["apply", "--assume-yes"], "'--yes'"),
        (&["apply", "--no-reboot"], "unless '--reboot'"),
        (
            &["rollback", "--what-if"],
            "'mco-rescue rollback --dry-run'",
        ),
        (&["verify", "--dry-run"], "'verify' changes nothing"),
        (&["recover", "--noop"], "'mco-rescue recover --dry-run'"),
        (&["install", "--check"], "'mco-rescue install --dry-run'"),
        (&["--debug", "status"], "'-vv'"),
        (&["status", "--silent"], "'--quiet'"),
        (&["verify", "--sysroot", "/mnt"], "'--root DIR'"),
        (
            &["status", "--kubeconfig", "x"],
            "runs, without the cluster's API",
        ),
        (&["drift"], "'mco-rescue verify'"),
        (&["undo"], "'mco-rescue rollback'"),
        (&["resume"], "'mco-rescue recover'"),
        (&["upgrade"], "'mco-rescue pivot'"),
        (&["logs"], "'mco-rescue rollback --list'"),
        (&["worker.yaml"], "'mco-rescue plan worker.yaml'"),
        (
            &["rendered-worker-1"],
            "'mco-rescue plan cached:rendered-worker-1'",
        ),
    ];
    for (args, tip) in cases {
        let said = wrong_command_line(args);
        let tips = said.matches("tip: ").count();
        assert_eq!(tips, 1, "{args:?}: {said}");
        assert!(flat(&said).contains(tip), "{args:?}: no {tip:?} in {said}");
        assert!(said.contains("Usage:") && said.contains("--help"), "{said}");
        let wide = said.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{args:?}: {said}");
    }
    // A slip of the finger keeps the tip that it always had.
    let said = wrong_command_line(&["aply"]);
    assert!(said.contains("'apply'"), "{said}");
}

#[test]
fn every_command_takes_quiet() {
    for command in [
        "plan", "apply", "verify", "status", "doctor", "fetch", "rollback", "recover", "install",
    ] {
        let output = Command::new(PROGRAM)
            .args([command, "-q", "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && help.contains("-q, --quiet"),
            "{command}: {help}"
        );
    }
}

// The runs that can be taken back.

fn generation(number: usize) -> Value {
    let text = format!("of generation {number}\n");
    machine_config(
        &format!("rendered-worker-{number}"),
        json!({"storage": {"files": [
            file("/etc/common.conf", 0o644, &text),
            file(&format!("/etc/own/{number}.conf"), 0o600, &text),
        ]}}),
    )
}

fn three_generations() -> TestRoot {
    let root = node();
    for number in 1..=3 {
        root.apply(&generation(number));
    }
    root
}

fn listed(root: &TestRoot) -> Value {
    let run = root.run(&["rollback", "--list", "-o", "json"]).ok();
    run.json()["runs"].clone()
}

#[test]
fn the_list_names_each_run_its_time_and_where_it_leads_back_to() {
    let root = three_generations();
    let before = root.everything();
    let runs = listed(&root);
    let names: Vec<_> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            (
                run["config"].as_str().unwrap(),
                run["recorded_before"].as_str(),
            )
        })
        .collect();
    let wanted = [
        ("rendered-worker-3", Some("rendered-worker-2")),
        ("rendered-worker-2", Some("rendered-worker-1")),
        ("rendered-worker-1", None),
    ];
    assert_eq!(names, wanted);
    let text = root.run(&["rollback", "--list"]).ok().out();
    for run in runs.as_array().unwrap() {
        assert!(text.contains(run["id"].as_str().unwrap()), "{text}");
        assert!(run["began"].as_u64().unwrap() > 1_700_000_000, "{run}");
    }
    assert!(
        text.contains("(just now)") || text.contains("minute"),
        "{text}"
    );
    assert!(text.contains("back to rendered-worker-1"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains(": mco-rescue ")),
        "{text}"
    );
    assert!(root.everything() == before, "a list changes nothing");
    let empty = node();
    let said = empty.run(&["rollback", "--list"]).ok().out();
    assert!(said.contains("nothing to revert"), "{said}");
    assert!(!empty.exists("var/lib/mco-rescue"));
}

#[test]
fn one_can_go_back_to_before_any_kept_run_by_its_id_or_by_the_config_of_then() {
    for by_name in [false, true] {
        let root = node();
        root.apply(&generation(1));
        let wanted = root.snapshot();
        root.apply(&generation(2));
        root.apply(&generation(3));
        let id = listed(&root)[1]["id"].as_str().unwrap().to_owned();
        let to = if by_name { "rendered-worker-1" } else { &id };
        let run = root.run(&["rollback", "--yes", "--to", to]).ok();
        assert!(
            run.out().contains("Reverted: rendered-worker-2"),
            "{}",
            run.out()
        );
        let differ: Vec<_> = root
            .snapshot()
            .into_iter()
            .filter(|(path, what)| wanted.get(path) != Some(what))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(differ, Vec::<String>::new());
        assert_eq!(root.snapshot().len(), wanted.len());
        root.run(&["verify"]).ok();
        assert_eq!(listed(&root).as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_run_that_is_not_kept_is_refused_and_the_list_is_named() {
    let root = three_generations();
    let before = root.everything();
    let run = root.run(&["rollback", "--yes", "--to", "1-1"]).exits(1);
    assert!(
        run.err().contains("mco-rescue rollback --list"),
        "{}",
        run.err()
    );
    assert!(root.everything() == before);
}

#[test]
fn what_was_changed_since_at_a_path_of_an_older_run_stops_it_before_anything_is_reverted() {
    let root = three_generations();
    root.write("etc/own/2.conf", "by hand\n");
    // The newest run removed that file; now it is there again, and both runs are concerned.
    let id = listed(&root)[2]["id"].as_str().unwrap().to_owned();
    let before = root.snapshot();
    let run = root.run(&["rollback", "--yes", "--to", &id]).exits(1);
    assert!(run.out().contains("/etc/own/2.conf"), "{}", run.out());
    assert!(root.snapshot() == before, "nothing goes back");
    let older = node();
    older.apply(&generation(1));
    older.apply(&config("rendered-worker-2", "two\n"));
    let mut third = config("rendered-worker-3", "three\n");
    support::name_anew(&mut third);
    older.apply(&third);
    older.write("etc/extra.conf", "by hand\n");
    let before = older.snapshot();
    let id = listed(&older)[1]["id"].as_str().unwrap().to_owned();
    let run = older.run(&["rollback", "--yes", "--to", &id]).exits(1);
    assert!(run.out().contains("/etc/extra.conf"), "{}", run.out());
    assert!(older.snapshot() == before, "the newest run stays too");
    older
        .run(&["rollback", "--yes", "--leave-changed", "--to", &id])
        .ok();
    assert_eq!(older.read("etc/extra.conf"), "by hand\n");
    assert!(!older.exists("etc/chrony.conf"));
}

#[test]
fn a_rollback_names_the_command_that_applies_the_config_again() {
    let root = node();
    root.apply(&generation(1));
    let second = generation(2);
    let name = second["metadata"]["name"].as_str().unwrap();
    let file = root.config(&second);
    root.apply(&second);
    let out = root.run(&["rollback", "--yes"]).ok().out();
    let again = format!("To apply it again: mco-rescue apply cached:{name} --root ");
    assert!(out.contains(&again), "{out}");
    root.run(&["fetch", file.path()]).ok();
    root.run(&["apply", "--yes", &format!("cached:{name}")])
        .ok();
    let out = root.run(&["rollback", "--yes"]).ok().out();
    assert!(out.contains(&again), "{out}");
}

#[test]
fn status_tells_how_long_ago_runs_were() {
    let root = three_generations();
    let said: Run = root.run(&["status"]).ok();
    let text = flat(&said.out());
    let id = listed(&root)[0]["id"].as_str().unwrap().to_owned();
    assert!(
        text.contains(&format!("to before rendered-worker-3 run {id}, 20")),
        "{text}"
    );
    let last = said
        .out()
        .lines()
        .find(|line| line.starts_with("Last run"))
        .unwrap()
        .to_owned();
    assert!(
        last.contains("ago) done") || last.contains("(just now) done"),
        "{last}"
    );
    assert!(said.out().lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn status_and_history_name_who_ran_a_change() {
    let root = TestRoot::new();
    root.write(
        "config.json",
        &config("rendered-worker-1", "one\n").to_string(),
    );
    let file = root.path("config.json");
    let mut apply = root.command(&["apply", "--yes", file.to_str().unwrap()]);
    assert!(
        apply
            .env("SUDO_USER", "anna")
            .output()
            .unwrap()
            .status
            .success()
    );
    // The kernel's record of a login comes before the variable, which anybody can set.
    let login = fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    let status = root.run(&["--output", "json", "status"]).ok().json();
    let by = status["last_run"]["by"].as_str().unwrap().to_owned();
    let is_login = !["", "4294967295"].contains(&login.trim());
    assert!(is_login || by.starts_with("anna"), "{by}");
    for command in ["status", "history"] {
        let text = flat(&root.run(&[command]).ok().out());
        assert!(text.contains(&format!("by {by}")), "{text}");
    }
}

// Progress.

/// A server that sends a third of what it announces, and then nothing more; its URL has this path.
fn stalling(path: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n");
            let _ = stream.write_all(&vec![b' '; 1 << 20]);
            open.push(stream);
        }
    });
    format!("http://{address}/{path}")
}

fn fetch(url: &str, more: &str) -> String {
    format!("fetch {url} --sha256 {} {more}", "0".repeat(64))
}

const DONE: &str = "1.0 MiB of 3.0 MiB (33%)";

#[test]
fn on_a_terminal_one_line_is_drawn_anew_and_cleared_before_the_error() {
    // A serial console tells no size.
    for (size, term) in [("rows 24 cols 80", "xterm"), ("rows 0 cols 0", "vt220")] {
        let root = node();
        let url = stalling(&"long/".repeat(30));
        let args = fetch(&url, "--timeout 4");
        let Some(script) = terminal(&root, size, term, &args) else {
            skip(
                Lacks::Setup,
                "script(1) is not here, so there is no terminal",
            );
            return;
        };
        let output = script.wait_with_output().unwrap();
        let screen = String::from_utf8_lossy(&output.stdout).into_owned();
        let drawn: Vec<&str> = screen
            .split('\r')
            .filter(|piece| piece.starts_with("Fetching "))
            .collect();
        assert!(drawn.len() >= 2, "{screen:?}");
        for piece in &drawn {
            let line = piece
                .strip_suffix("\x1b[K")
                .unwrap_or_else(|| panic!("{piece:?}"));
            assert!(
                line.chars().count() < 80 && !line.contains('\n'),
                "{line:?}"
            );
            assert!(line.contains(DONE) && line.contains("at most "), "{line:?}");
        }
        let (_, after) = screen.rsplit_once("Fetching ").unwrap();
        let error = match term {
            "xterm" => "\r\x1b[K\x1b[1;31merror:\x1b[0m ",
            _ => "\r\x1b[Kerror: ",
        };
        assert!(after.contains(error), "{after:?}");
    }
}

#[test]
fn failed_attempts_are_a_note_on_a_terminal_and_one_line_elsewhere() {
    let root = node();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let args = fetch(&format!("http://{closed}/x"), "--timeout 4");
    let words: Vec<&str> = args.split_whitespace().collect();
    let run = root.run(&words).exits(1);
    assert_eq!(
        run.err().matches("connection refused").count(),
        2,
        "{}",
        run.err()
    );
    let Some((_, screen)) = on_a_terminal(&root, "xterm", &args, b"") else {
        skip(
            Lacks::program("script"),
            "script(1) is not here, so there is no terminal",
        );
        return;
    };
    assert!(screen.contains(": connection refused\u{1b}"), "{screen:?}");
    assert!(!screen.contains("warn: "), "{screen:?}");
    assert!(screen.contains("connection refused"), "{screen:?}");
}

#[test]
fn a_terminal_that_can_only_print_gets_no_control_characters() {
    let root = node();
    let args = fetch(&stalling("x"), "--timeout 3");
    let Some((_, screen)) = on_a_terminal(&root, "dumb", &args, b"") else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal",
        );
        return;
    };
    assert!(
        screen.contains("error: ") && !screen.contains('\x1b'),
        "{screen:?}"
    );
    assert!(!screen.contains(DONE), "too early for a line: {screen:?}");
}

#[test]
fn without_a_terminal_a_line_comes_every_ten_seconds() {
    let root = node();
    let args = fetch(&stalling("x"), "--timeout 14");
    let args: Vec<&str> = args.split_whitespace().collect();
    let run = root.run(&args).exits(1);
    let lines: Vec<String> = run.err().lines().map(str::to_owned).collect();
    let own: Vec<&String> = lines.iter().filter(|line| line.contains(DONE)).collect();
    assert_eq!(own.len(), 1, "{lines:?}");
    assert!(own[0].starts_with("Fetching http://127.0.0.1"), "{lines:?}");
    assert!(
        own[0].contains(" s, at most ") && own[0].len() <= 80,
        "{lines:?}"
    );
    assert!(
        !run.err().contains('\x1b') && !run.err().contains('\r'),
        "{lines:?}"
    );
}

#[test]
fn quiet_shows_no_progress() {
    let root = node();
    let args = fetch(&stalling("x"), "--timeout 4 --quiet --color=never");
    let Some((code, screen)) = on_a_terminal(&root, "xterm", &args, b"") else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal",
        );
        return;
    };
    assert_eq!(code, 1);
    assert!(
        screen.starts_with("error: ") && !screen.contains("Fetching"),
        "{screen:?}"
    );
    assert!(!screen.contains('\x1b'), "{screen:?}");
}

/// Reads what comes until it has these words.
fn read_until(from: &mut impl Read, words: &str) -> String {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = from.read(&mut piece).unwrap();
        all.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(words) {
            return text;
        }
        assert!(count > 0, "no {words:?} in {text:?}");
    }
}

#[test]
fn control_c_is_answered_with_a_line() {
    let root = node();
    let before = root.everything();
    let args = fetch(&stalling("x"), "--timeout 60");
    let Some(mut script) = terminal(&root, "rows 24 cols 80", "xterm", &args) else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal",
        );
        return;
    };
    let begun = Instant::now();
    let mut screen = script.stdout.take().unwrap();
    read_until(&mut screen, DONE);
    script.stdin.as_ref().unwrap().write_all(b"\x03").unwrap();
    let rest = read_until(&mut screen, "nothing was changed");
    assert!(
        rest.contains("\r\x1b[Kstopped; nothing was changed"),
        "{rest:?}"
    );
    drop(script.stdin.take());
    assert_eq!(script.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(45), "at once");
    assert!(root.everything() == before);
}

#[test]
fn control_c_at_the_question_is_answered_too() {
    let root = node();
    let config = root.config(&config(NAME, "new\n"));
    let before = root.everything();
    let args = format!("apply {}", config.path());
    let Some(mut script) = terminal(&root, "rows 24 cols 80", "xterm", &args) else {
        skip(
            Lacks::Setup,
            "script(1) is not here, so there is no terminal",
        );
        return;
    };
    let mut screen = script.stdout.take().unwrap();
    read_until(&mut screen, "[y/N]");
    script.stdin.as_ref().unwrap().write_all(b"\x03").unwrap();
    let rest = read_until(&mut screen, "nothing was changed");
    assert!(rest.contains("\nstopped; nothing was changed"), "{rest:?}");
    drop(script.stdin.take());
    assert_eq!(script.wait().unwrap().code(), Some(130));
    assert!(root.snapshot() == before);
}

#[test]
fn a_run_that_holds_a_signal_back_says_so_at_once() {
    let root = node();
    let config = root.config(&config(NAME, "new\n"));
    let before = root.snapshot();
    let log = tempfile::NamedTempFile::new().unwrap();
    // What runs the tests may ignore it, and with it everything below.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", "strace"]);
    // Every flush takes two seconds, as on a slow disk.
    command.args([
        "-f",
        "-qq",
        "-e",
        "trace=syncfs",
        "-e",
        "inject=syncfs:delay_enter=2000000",
    ]);
    command
        .arg("-o")
        .arg(log.path())
        .arg(PROGRAM)
        .arg("--root")
        .arg(root.dir());
    command.args(["apply", "--yes", config.path()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut tracer) = command.spawn() else {
        skip(Lacks::Setup, "strace is not installed");
        return;
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    // The journal is written beside its place once all is staged, right before the flush.
    let state = root.path("var/lib/mco-rescue");
    let is_staged = || {
        let names = fs::read_dir(&state).into_iter().flatten().flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| name.contains("journal"))
    };
    while !is_staged() {
        if tracer.try_wait().unwrap().is_some() {
            skip(Lacks::Machine, "strace may not trace here");
            return;
        }
        assert!(Instant::now() < deadline, "nothing was staged");
        thread::sleep(Duration::from_millis(2));
    }
    let children = format!("/proc/{0}/task/{0}/children", tracer.id());
    let children = fs::read_to_string(children).unwrap();
    let pid = children.split_whitespace().next().unwrap().parse().unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let sent = Instant::now();
    let said = read_until(tracer.stderr.as_mut().unwrap(), "is changed");
    let words = "SIGINT: stopping; what was staged is removed, and nothing is changed\n";
    assert!(said.contains(words), "{said:?}");
    assert!(
        sent.elapsed() < Duration::from_millis(1900),
        "before the flush ends: {said:?}"
    );
    let output = tracer.wait_with_output().unwrap();
    let rest = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(rest.contains("nothing was changed"), "{rest:?}");
    assert!(!rest.contains("stopped"), "once is enough: {rest:?}");
    assert!(root.snapshot() == before);
}

/// Runs a command whose standard output can take nothing.
fn into_full(root: &TestRoot, args: &[&str]) -> Run {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = root.command(args);
    command.stdin(Stdio::null()).stdout(full.unwrap());
    Run::of(command.stderr(Stdio::piped()).output().unwrap())
}

#[test]
fn an_output_that_is_full_makes_no_error_of_what_was_done() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-1", "1\n"));
    root.write("etc/kept.conf", "by hand\n");
    let kept = tempfile::tempdir().unwrap();
    let kept = kept.path().join("kept.yaml");
    let new = root.config(&config("rendered-worker-2", "2\n"));
    let to = kept.to_str().unwrap();
    for (args, code) in [
        (&["keep", "/etc/kept.conf", "--to", to][..], 0),
        (&["fetch", new.path()], 0),
        (&["change", "runtime", "pidsLimit=4096"], 0),
        (&["cache", "forget", "rendered-worker-2"], 0),
    ] {
        let before = root.everything();
        let run = into_full(&root, args);
        let said = flat(&run.err());
        assert_eq!(run.code(), code, "{args:?}: {said}");
        assert!(
            said.contains("writing to standard output"),
            "{args:?}: {said}"
        );
        assert!(kept.exists());
        assert!(args[0] == "keep" || root.everything() != before, "{args:?}");
    }
    // What only looks has no other result than its output.
    into_full(&root, &["cache", "list"]).exits(1);
}
