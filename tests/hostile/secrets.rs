//! Secrets never leave the process but for the files they belong into: not in what is said, not in a file that
//! others may read at any moment, not in a core dump.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::trace::{self, can_trace, traced};
use crate::support::{self, Lacks, PROGRAM, TestRoot, file, is_root, machine_config, say, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Stands in every secret.
const CANARY: &str = "CanaryThatNobodyMaySee";

fn secret_file(path: &str, number: usize) -> Value {
    file(path, 0o600, &format!("token: {CANARY}{number}\n"))
}

/// A rendered config that is full of secrets.
fn secrets(number: usize) -> Value {
    let files = json!([
        secret_file("/etc/secret.conf", number),
        secret_file("/srv/other/secret.conf", number),
        file(
            "/var/lib/kubelet/config.json",
            0o600,
            &format!("{{\"auth\": \"{CANARY}{number}\"}}")
        ),
        // Public in one config, secret in the next.
        file(
            "/etc/sometimes.conf",
            if number.is_multiple_of(2) {
                0o644
            } else {
                0o600
            },
            if number.is_multiple_of(2) {
                "public\n"
            } else {
                CANARY
            }
        ),
    ]);
    machine_config(
        &format!("rendered-worker-{number}"),
        json!({
            "storage": {"files": files},
            "passwd": {"users": [{
                "name": "core",
                "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA{CANARY}{number} {CANARY}")],
                "passwordHash": format!("$6$salt${CANARY}{number}"),
            }]},
        }),
    )
}

/// A bare config whose accounts the tools of the system make, on a copy of the account files.
fn accounts(number: usize) -> Value {
    json!({
        "ignition": {"version": "3.3.0"},
        "storage": {"files": [secret_file("/etc/bare.conf", number)]},
        "passwd": {
            "users": [
                {"name": "core", "passwordHash": format!("$6$salt${CANARY}{number}")},
                {"name": format!("user{number}"), "passwordHash": format!("$6$salt${CANARY}new{number}"),
                 "sshAuthorizedKeys": [format!("ssh-ed25519 {CANARY}")]},
            ],
            "groups": [{"name": format!("group{number}"), "passwordHash": format!("$6$salt${CANARY}")}],
        },
    })
}

fn furnished() -> TestRoot {
    let root = TestRoot::new();
    root.write(
        "etc/login.defs",
        "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nMAIL_DIR /var/mail\n",
    );
    let hash = format!("root:$6$salt${CANARY}root:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\n");
    root.write("etc/shadow", &hash);
    root.write(
        "etc/gshadow",
        &format!("root:{CANARY}::\ncore:!::\nwheel:!::core\n"),
    );
    for private in ["etc/shadow", "etc/gshadow"] {
        root.chmod(private, 0o600);
    }
    root.write("etc/kubernetes/kubeconfig", &format!("token: {CANARY}\n"));
    root.chmod("etc/kubernetes/kubeconfig", 0o600);
    root
}

/// What must not be in an output: the secret itself, and its beginning as the config writes it.
fn reveals(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let forms = [
        "CanaryThatNobody",
        // As base64, at each of the three offsets.
        "Q2FuYXJ5VGhhdE5vYm9keU",
        "NhbmFyeVRoYXROb2JvZH",
        "DYW5hcnlUaGF0Tm9ib2R5",
        "%43%61%6e%61%72%79",
    ];
    forms
        .into_iter()
        .find(|form| lower.contains(&form.to_lowercase()))
}

/// Every way to ask for more words.
const LOUD: [&[&str]; 6] = [
    &[],
    &["-v"],
    &["-vv"],
    &["-vvv"],
    &["-vv", "--output", "json"],
    &["--output", "json"],
];

/// Runs a command in every loudness, each on a root of its own; nothing of a secret is said.
fn says_nothing(make: &dyn Fn() -> TestRoot, args: &[&str], tried: &mut usize) {
    for loud in LOUD {
        let root = make();
        let all: Vec<&str> = args.iter().chain(loud).copied().collect();
        let run = root.run(&all);
        let text = run.out() + &run.err();
        assert_eq!(reveals(&text), None, "{all:?} says: {text}");
        assert!(
            !text.is_empty() || args[0] == "apply",
            "{all:?} says nothing at all"
        );
        *tried += 1;
    }
}

#[test]
fn no_command_says_a_secret_however_loud_it_is() {
    let fresh = furnished();
    let (first, second) = (fresh.config(&secrets(1)), fresh.config(&secrets(2)));
    let applied = || {
        let root = furnished();
        root.run(&["apply", "--yes", first.path()]).ok();
        root
    };
    let drifted = || {
        let root = applied();
        root.write("etc/secret.conf", &format!("{CANARY} by hand\n"));
        root.chmod("etc/secret.conf", 0o600);
        root.write(
            "home/core/.ssh/authorized_keys.d/ignition",
            &format!("{CANARY}\n"),
        );
        root.write("etc/shadow", &format!("core:{CANARY}:1::::::\n"));
        root
    };
    let updated = || {
        let root = applied();
        root.run(&["apply", "--yes", second.path()]).ok();
        root
    };
    let mut tried = 0;
    for config in [first.path(), second.path()] {
        for make in [&furnished as &dyn Fn() -> TestRoot, &applied, &drifted] {
            for args in [
                &["apply", "--yes", config][..],
                &["plan", config],
                &["verify", config],
                &["show", config],
            ] {
                says_nothing(make, args, &mut tried);
            }
        }
    }
    for args in [
        &["verify"][..],
        &["plan"],
        &["status"],
        &["rollback", "--yes"],
        &["recover"],
        &["show"],
    ] {
        says_nothing(&updated, args, &mut tried);
    }
    let bare = fresh.config(&accounts(1));
    for args in [
        &["plan", bare.path()][..],
        &["apply", "--yes", bare.path()],
        &["verify", bare.path()],
    ] {
        says_nothing(&furnished, args, &mut tried);
    }
    say(&format!("runs that said no secret: {tried}"));
}

#[test]
fn a_config_that_is_refused_is_not_quoted_where_it_is_secret() {
    let user = |key: &str, value: Value| {
        let mut user = json!({"name": "core"});
        user[key] = value;
        machine_config("rendered-worker-a", json!({"passwd": {"users": [user]}}))
    };
    let contents = |source: String, more: Value| {
        let mut contents = json!({"source": source});
        for (key, value) in more.as_object().unwrap() {
            contents[key] = value.clone();
        }
        machine_config(
            "rendered-worker-a",
            json!({"storage": {"files": [{"path": "/etc/x", "mode": 384, "contents": contents}]}}),
        )
    };
    let broken = [
        user("passwordHash", json!(format!("{CANARY}:with colon"))),
        user("passwordHash", json!(format!("{CANARY}\nsecond line"))),
        user("passwordHash", json!([CANARY])),
        user("passwordHash", json!({"value": CANARY})),
        user("sshAuthorizedKeys", json!(CANARY)),
        user("sshAuthorizedKeys", json!([[CANARY]])),
        contents(format!("data:;base64,{CANARY}!"), json!({})),
        contents(format!("data:,{CANARY}%zz"), json!({})),
        contents(format!("data:,{CANARY}"), json!({"compression": "gzip"})),
        contents(
            format!("data:,{CANARY}"),
            json!({"verification": {"hash": "sha512-00"}}),
        ),
        contents(format!("data:{CANARY}"), json!({})),
    ];
    let mut tried = 0;
    for config in &broken {
        let beside = TestRoot::new();
        let beside = beside.config(config);
        for command in ["plan", "verify", "show"] {
            says_nothing(&furnished, &[command, beside.path()], &mut tried);
        }
        says_nothing(&furnished, &["apply", "--yes", beside.path()], &mut tried);
    }
    // Text that is not JSON at all, and records and journals that are damaged.
    let half = format!("{{\"passwordHash\": \"{CANARY}");
    let beside = tempfile::NamedTempFile::new().unwrap();
    fs::write(beside.path(), &half).unwrap();
    says_nothing(
        &furnished,
        &["plan", beside.path().to_str().unwrap()],
        &mut tried,
    );
    for record in [
        "etc/machine-config-daemon/currentconfig",
        "etc/passwd",
        "etc/shadow",
    ] {
        let damaged = || {
            let root = furnished();
            root.write(record, &half);
            root
        };
        for command in ["plan", "verify", "status"] {
            says_nothing(&damaged, &[command], &mut tried);
        }
    }
    say(&format!("refusals that quoted no secret: {tried}"));
}

#[test]
fn a_run_that_fails_says_no_secret() {
    if !can_trace() {
        return;
    }
    let mut tried = 0;
    for (call, error, numbers) in [
        ("write", "ENOSPC", &[1, 3, 5][..]),
        ("renameat", "EIO", &[1, 3, 5]),
        ("linkat", "EDQUOT", &[1, 3, 5]),
        ("fchmod", "EROFS", &[1, 3, 5]),
        ("syncfs", "EIO", &[1, 2]),
    ] {
        for nth in numbers {
            let root = furnished();
            let config = root.config(&secrets(1));
            root.run(&["apply", "--yes", config.path()]).ok();
            let config = root.config(&secrets(2));
            let fault = format!("{call}:error={error}:when={nth}+");
            let run = traced(
                &root,
                call,
                &[fault],
                &["apply", "--yes", "-vv", config.path()],
            );
            assert_ne!(run.code, Some(0), "{call}");
            assert_eq!(reveals(&run.said), None, "{}", run.said);
            tried += 1;
        }
    }
    say(&format!("failed runs that said no secret: {tried}"));
}

/// An ordinary user's program: as fast as it can, it opens everything below some places, until its standard input
/// ends. Prints how much it has opened, how much was closed to it, and where it has read the canary.
const SPY: &str = r#"
import os, select, sys
canary, opened, denied, hits = sys.argv[1].encode(), 0, 0, set()
def look(path):
    global opened, denied
    try:
        with open(path, 'rb') as f: data = f.read(1 << 20)
        opened += 1
        if canary in data: hits.add(path)
    except PermissionError: denied += 1
    except OSError: pass
def walk(place):
    global denied
    try: entries = list(os.scandir(place))
    except PermissionError: denied += 1; return
    except OSError: return
    for e in entries:
        try:
            if e.is_dir(follow_symlinks=False):
                if place != '/run' or e.name.startswith('mco-rescue'): walk(e.path)
            elif e.is_file(follow_symlinks=False): look(e.path)
        except OSError: pass
print('ready', flush=True)
rounds = 0
while True:
    rounds += 1
    for place in sys.argv[2:]: walk(place)
    if select.select([sys.stdin], [], [], 0)[0]: break
print(rounds, opened, denied, *sorted(hits), flush=True)
"#;

/// Whether there is somebody to spy.
fn can_spy() -> bool {
    let tools = ["python3", "setpriv", "unshare"];
    let there = tools.iter().all(|tool| {
        let path = std::env::var("PATH").unwrap_or_default();
        path.split(':')
            .any(|dir| Path::new(dir).join(tool).exists())
    });
    if !is_root() || !there {
        let lacks = if is_root() { Lacks::Setup } else { Lacks::Root };
        skip(
            lacks,
            "an ordinary user who looks on needs root, setpriv, unshare and python3",
        );
    }
    is_root() && there
}

#[test]
fn an_ordinary_user_who_looks_on_never_reads_a_secret() {
    if !can_spy() || !can_trace() {
        return;
    }
    let root = furnished();
    fs::create_dir_all(root.path("srv")).unwrap();
    for open in ["", "home/core"] {
        root.chmod(open, 0o755);
    }
    let configs: Vec<_> = (1..=4).map(|n| root.config(&secrets(n))).collect();
    let bare: Vec<_> = (1..=2).map(|n| root.config(&accounts(n))).collect();
    let paths = |all: &[support::Config]| {
        all.iter()
            .map(|c| c.path().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    // A mount of its own has a staging directory of its own. The calls are slow, so that there is time to look.
    let script = r#"
        mount -t tmpfs tmpfs "$ROOT/srv" || exit 77
        slow() { strace -f -qq -o /dev/null -e trace="$CALLS" -e inject="$CALLS:delay_exit=1000" "$@"; }
        killed() { strace -f -qq -o /dev/null -e trace=renameat -e inject=renameat:signal=KILL:when=6 "$@" 2>/dev/null; }
        run() { "$@" >/dev/null || { echo "$* ended with $?" >&2; exit 1; }; }
        mkfifo "$STOP" && exec 9<>"$STOP" || exit 77
        setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c "$SPY" "$CANARY" "$ROOT" /run <&9 >"$OUT" &
        spy=$!
        until grep -q ready "$OUT"; do kill -0 $spy || exit 78; done
        for config in $CONFIGS; do run slow "$PROGRAM" --root "$ROOT" apply --yes "$config"; done
        run slow "$PROGRAM" --root "$ROOT" rollback --yes
        for config in $CONFIGS; do
            killed "$PROGRAM" --root "$ROOT" apply --yes "$config"
            run slow "$PROGRAM" --root "$ROOT" recover --back
            killed "$PROGRAM" --root "$ROOT" apply --yes "$config"
            run slow "$PROGRAM" --root "$ROOT" recover
        done
        for config in $BARE; do run slow "$PROGRAM" --root "$ROOT" apply --yes "$config"; done
        echo >&9; wait $spy
    "#;
    let out = tempfile::NamedTempFile::new().unwrap();
    let beside = tempfile::tempdir().unwrap();
    let calls =
        "openat,fchmod,fchown,renameat,renameat2,linkat,unlinkat,fsync,syncfs,mkdir,open,close";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .env("ROOT", root.dir())
        .env("PROGRAM", PROGRAM)
        .env("CANARY", CANARY)
        .env("SPY", SPY)
        .env("OUT", out.path())
        .env("STOP", beside.path().join("stop"))
        .env("CALLS", calls)
        .env("CONFIGS", paths(&configs))
        .env("BARE", paths(&bare))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = fs::read_to_string(out.path()).unwrap();
    let mut words = report.split_whitespace().skip(1);
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (rounds, opened, denied) = (number(), number(), number());
    // What the daemon itself lets everybody read.
    let record = root.path("etc/machine-config-daemon");
    let hits: Vec<&str> = words
        .filter(|hit| !Path::new(hit).starts_with(&record))
        .collect();
    assert!(hits.is_empty(), "read by an ordinary user: {hits:?}");
    assert!(rounds > 50 && opened > 500 && denied > 500, "{report}");
    say(&format!(
        "an ordinary user looked {rounds} times, opened {opened} files, was denied {denied} times, read no secret"
    ));
}

/// The octal number at the end of a call's arguments.
fn mode_of(line: &str) -> Option<u32> {
    let arguments = line.rsplit_once(')')?.0;
    let last = arguments.rsplit(", ").next()?;
    u32::from_str_radix(last, 8).ok()
}

#[test]
fn whatever_is_made_belongs_to_us_alone_until_it_is_whole() {
    if !is_root() {
        return skip(Lacks::Root, "the account tools need root");
    }
    if !can_trace() {
        return;
    }
    let mut made = 0;
    let mut check = |run: &trace::Traced| {
        assert_eq!(run.code, Some(0), "{}", run.said);
        for call in &run.calls {
            let creates =
                call.name == "openat" && call.line.contains("O_CREAT") || call.name == "mkdirat";
            // Those of the tools are made in our private copy; their lock files are ours to judge neither.
            if !creates || call.line.contains("AT_FDCWD") {
                continue;
            }
            let mode = mode_of(&call.line).unwrap_or_else(|| panic!("{}", call.line));
            assert_eq!(mode & 0o077, 0, "{}", call.line);
            made += 1;
        }
    };
    let root = furnished();
    for config in [secrets(1), secrets(2), accounts(1)] {
        let config = root.config(&config);
        check(&traced(
            &root,
            "openat,mkdirat",
            &[],
            &["apply", "--yes", config.path()],
        ));
    }
    for _ in 0..2 {
        check(&traced(
            &root,
            "openat,mkdirat",
            &[],
            &["rollback", "--yes"],
        ));
    }
    assert!(made > 60, "only {made}");
    say(&format!(
        "{made} files and directories were made with no right for others"
    ));
}

/// Starts a program that waits for its standard input, lets core dumps be as large as they like, and ends it so that
/// the kernel makes one. Gives whether it did.
fn dumps_core(program: &str, args: &[&str]) -> bool {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh", program])
        .args(args)
        .current_dir(scratch.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(CANARY.as_bytes()).unwrap();
    let pid = child.id();
    // Once it waits for more, it has begun.
    let deadline = Instant::now() + Duration::from_secs(20);
    let waits = || {
        let line = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        line.starts_with("0 0x0 ")
    };
    while !waits() && Instant::now() < deadline {
        sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGABRT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32));
    status.core_dumped()
}

#[test]
fn a_crash_leaves_no_image_of_the_memory() {
    if !is_root() || !dumps_core("cat", &[]) {
        skip(
            Lacks::root_or_machine(),
            "this kernel dumps no core here, or does not show that a process waits",
        );
        return;
    }
    assert!(!dumps_core(PROGRAM, &["show", "-"]), "it dumped its core");
}
