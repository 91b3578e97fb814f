//! `keep`: what was changed by hand becomes a MachineConfig, which gives the same node elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::faults::{can_trace, duplicate, traced};
use crate::support::mounts::{mount, with_mounts};
use crate::support::{Run, Snapshot, TestRoot, file, flat_run, is_root, machine_config, say};
use serde_json::{Value, json};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@desk";
const OTHER_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR5f you@desk";
const KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";
const UNITS: &str = "etc/systemd/system";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants";

fn service(command: &str) -> String {
    format!("[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n")
}

fn config() -> Value {
    let unit = |name: &str, on: bool| json!({"name": name, "enabled": on, "contents": service("/bin/true")});
    let dropin = |name: &str| json!({"name": name, "contents": "[Service]\nNice=1\n"});
    machine_config(
        "rendered-worker-00",
        json!({
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
            "storage": {"files": [
                file("/etc/a.conf", 0o644, "a\n"),
                file("/etc/b.conf", 0o644, "b\n"),
                file("/etc/kubernetes/kubelet.conf", 0o644, "kind: KubeletConfiguration\n"),
                file("/var/lib/kubelet/config.json", 0o600, "{\"auths\": {}}"),
                file("/etc/private.conf", 0o600, "p\n"),
            ]},
            "systemd": {"units": [
                unit("kubelet.service", true),
                unit("on.service", true),
                unit("off.service", false),
                {"name": "masked.service", "mask": true},
                {"name": "d.service", "contents": "[Service]\nExecStart=/bin/true\n",
                    "dropins": [dropin("10-a.conf"), dropin("20-b.conf")]},
            ]},
        }),
    )
}

/// A node on the config. Its own files are in a directory that is there from the start.
fn node() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/own/README", "own\n");
    let path = root.config(&config());
    root.run(&["apply", "--yes", "--edited-config", path.path()])
        .ok();
    root
}

/// Another node, after the kept MachineConfig was merged over the config and applied there.
fn elsewhere(kept: &str) -> TestRoot {
    let root = node();
    let (base, kept) = (root.config(&config()), write_text(kept));
    let args = [
        "render",
        "worker",
        "--base",
        base.path(),
        kept.path().to_str().unwrap(),
    ];
    let rendered = root.run(&args).ok().json();
    let rendered = root.config(&rendered);
    let args = [
        "apply",
        "--yes",
        "--files-only",
        "--edited-config",
        rendered.path(),
    ];
    root.run(&args).ok();
    root
}

fn write_text(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

/// Everything but the daemon's records, which name another config.
fn tree(root: &TestRoot) -> Snapshot {
    let mut all = root.snapshot();
    all.retain(|path, _| !path.starts_with("etc/machine-config-daemon"));
    all
}

fn subjects(document: &Value, list: &str) -> BTreeSet<String> {
    let all = document[list].as_array().unwrap().iter();
    all.map(|one| one["subject"].as_str().unwrap().to_owned())
        .collect()
}

fn mask(root: &TestRoot, unit: &str) {
    let path = format!("{UNITS}/{unit}");
    if root.exists(&path) {
        root.remove(&path);
    }
    root.link(&path, "/dev/null");
}

fn set_link(root: &TestRoot, unit: &str, on: bool) {
    let link = format!("{WANTS}/{unit}");
    if root.exists(&link) {
        root.remove(&link);
    }
    if on {
        root.link(&link, &format!("/etc/systemd/system/{unit}"));
    }
}

fn add_key(root: &TestRoot) {
    let text = format!("{}{OTHER_KEY}\n", root.read(KEYS));
    fs::write(root.path(KEYS), text).unwrap();
}

/// A change of a node.
type Edit = fn(&TestRoot);

/// Changes that an admin makes by hand, each with its name.
const EDITS: [(&str, Edit); 17] = [
    ("contents", |root| root.write("etc/a.conf", "x: 1 # y\n")),
    ("empty", |root| root.write("etc/a.conf", "")),
    ("bytes", |root| {
        fs::write(root.path("etc/b.conf"), [0u8, 255, 10]).unwrap();
    }),
    ("mode", |root| root.chmod("etc/b.conf", 0o755)),
    ("owner", |root| {
        if is_root() {
            std::os::unix::fs::chown(root.path("etc/b.conf"), Some(7), Some(8)).unwrap();
        }
    }),
    ("off", |root| set_link(root, "on.service", false)),
    ("on", |root| set_link(root, "off.service", true)),
    ("masked", |root| mask(root, "d.service")),
    ("unmasked", |root| {
        root.remove("etc/systemd/system/masked.service")
    }),
    ("unit", |root| {
        root.write("etc/systemd/system/on.service", &service("/bin/false"))
    }),
    ("drop-in", |root| {
        root.write(
            "etc/systemd/system/d.service.d/20-b.conf",
            "[Service]\nNice=9\n",
        )
    }),
    ("no drop-in", |root| {
        root.remove("etc/systemd/system/d.service.d/10-a.conf")
    }),
    ("new drop-in", |root| {
        root.write(
            "etc/systemd/system/d.service.d/30-c.conf",
            "[Service]\nNice=2\n",
        )
    }),
    ("new unit", |root| {
        root.write("etc/systemd/system/new.service", &service("/bin/true"))
    }),
    ("new unit, on", |root| {
        root.write("etc/systemd/system/more.service", &service("/bin/true"));
        set_link(root, "more.service", true);
    }),
    ("new file", |root| {
        root.write("etc/own/deep/x.conf", "own\n")
    }),
    ("keys", add_key),
];
/// Where all of them are.
const EVERYWHERE: [&str; 5] = [
    "/etc/a.conf",
    "/etc/b.conf",
    "/etc/own/deep",
    "/etc/systemd/system",
    "/home/core",
];

/// Keeps what some edits made, and compares the node with another one that gets the result.
fn keep_and_compare(edits: &[usize]) {
    let root = node();
    let names: Vec<&str> = edits.iter().map(|at| EDITS[*at].0).collect();
    root.write("etc/own/deep/README", "own\n");
    for at in edits {
        EDITS[*at].1(&root);
    }
    let kept = root.run(&[&["keep"], &EVERYWHERE[..]].concat());
    assert_eq!(kept.code(), 0, "{names:?}: {}{}", kept.out(), kept.err());
    assert!(
        kept.err()
            .replace('\n', " ")
            .contains("the named paths as they are on this node"),
        "{names:?}: {}",
        kept.err()
    );
    let other = elsewhere(&kept.out());
    let (here, there) = (tree(&root), tree(&other));
    let differ = |path: &&String| here.get(*path) != there.get(*path);
    let all: BTreeSet<&String> = here.keys().chain(there.keys()).filter(differ).collect();
    assert!(all.is_empty(), "{names:?}: {all:?}");
}

#[test]
fn each_change_by_hand_comes_out_the_same_elsewhere() {
    for at in 0..EDITS.len() {
        keep_and_compare(&[at]);
    }
}

#[test]
fn generated_changes_come_out_the_same_elsewhere() {
    let mut state: u64 = 25;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..12 {
        let edits: BTreeSet<usize> = (0..2 + next(6)).map(|_| next(EDITS.len())).collect();
        keep_and_compare(&edits.into_iter().collect::<Vec<usize>>());
    }
}

#[test]
fn what_no_machine_config_holds_is_named_with_the_reason() {
    let root = node();
    let table: [(&str, Edit, &str); 8] = [
        (
            "/etc/a.conf",
            |root| root.remove("etc/a.conf"),
            "cannot remove a file",
        ),
        (
            "/etc/a.conf",
            |root| {
                root.remove("etc/a.conf");
                root.link("etc/a.conf", "b.conf");
            },
            "symbolic link to b.conf",
        ),
        (
            "/etc/a.conf",
            |root| root.chmod("etc/a.conf", 0o4755),
            "its mode is 4755",
        ),
        (
            "/etc/kubernetes/kubelet.conf",
            |root| root.write("etc/kubernetes/kubelet.conf", "kind: x\n"),
            "a KubeletConfig is the better place",
        ),
        (
            "/var/lib/kubelet/config.json",
            |root| root.write("var/lib/kubelet/config.json", "{}"),
            "pull secret",
        ),
        (
            "/etc/systemd/system/on.service",
            |root| root.chmod("etc/systemd/system/on.service", 0o755),
            "always 0644",
        ),
        (
            "/etc/systemd/system/on.service",
            |root| root.remove("etc/systemd/system/on.service"),
            "cannot remove a file",
        ),
        (
            "/home/core/.ssh/authorized_keys.d/ignition",
            |root| fs::write(root.path(KEYS), format!("{OTHER_KEY}\n")).unwrap(),
            "only adds keys",
        ),
    ];
    for (subject, edit, reason) in table {
        let root = node();
        edit(&root);
        let document = root.run(&["keep", "-o", "json"]).exits(3).json();
        let all = document["not_kept"].as_array().unwrap();
        let one = all.iter().find(|one| one["subject"] == subject);
        let one = one.unwrap_or_else(|| panic!("{subject}: {document}"));
        assert!(one["reason"].as_str().unwrap().contains(reason), "{one}");
        assert!(!one["next"].as_str().unwrap().is_empty(), "{one}");
        assert_eq!(document["exact"], false, "{subject}");
    }
    // A file of a controller is kept if it is named.
    root.write("etc/kubernetes/kubelet.conf", "kind: x\n");
    root.run(&["keep", "/etc/kubernetes/kubelet.conf"]).ok();
}

#[test]
fn secrets_stay_out_unless_they_are_asked_for() {
    let root = node();
    root.write("etc/a.conf", "password = hunter2\n");
    root.write("etc/private.conf", "now everyone\n");
    root.write("etc/own/tls.key", "0123\n");
    root.chmod("etc/own/tls.key", 0o600);
    let args = [
        "keep",
        "--yes",
        "-o",
        "json",
        "/etc/a.conf",
        "/etc/private.conf",
        "/etc/own",
    ];
    let document = root.run(&args).exits(3).json();
    let secret = |one: &&Value| one["secret"] == true;
    let withheld = document["not_kept"]
        .as_array()
        .unwrap()
        .iter()
        .filter(secret)
        .count();
    assert_eq!(withheld, 3, "{document}");
    assert!(!document.to_string().contains("hunter2"));
    let text = flat_run(&root.run(&["keep", "--yes"]).exits(3));
    assert!(
        !text.contains("hunter2") && text.contains("--with-secrets"),
        "{text}"
    );
    let to = root.path("kept.yaml");
    let to = to.to_str().unwrap();
    let args = [
        "keep",
        "--with-secrets",
        "--to",
        to,
        "-o",
        "json",
        "/etc/a.conf",
    ];
    let document = root.run(&args).ok().json();
    assert_eq!(document["machine_config"], Value::Null);
    assert!(root.read("kept.yaml").contains("hunter2"));
    let mode = fs::metadata(to).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_file_that_is_there_is_not_replaced_and_a_full_disk_leaves_nothing() {
    let root = node();
    root.write("etc/a.conf", &"line\n".repeat(20_000));
    root.write("kept.yaml", "mine\n");
    let to = root.path("kept.yaml");
    let run = root.run(&["keep", "--to", to.to_str().unwrap()]).exits(1);
    assert!(run.err().contains("exists already"), "{}", run.err());
    assert_eq!(root.read("kept.yaml"), "mine\n");
    with_mounts(|| {
        let small = root.path("small");
        fs::create_dir(&small).unwrap();
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=16k",
            "tmpfs",
            small.to_str().unwrap(),
        ]);
        let to = small.join("kept.yaml");
        let run = root.run(&["keep", "--to", to.to_str().unwrap()]).exits(1);
        assert!(
            run.err().contains("No space left") || run.err().contains("no space"),
            "{}",
            run.err()
        );
        assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    });
}

#[test]
fn nothing_is_left_to_keep_once_the_result_is_applied() {
    let root = node();
    root.write("etc/a.conf", "changed\n");
    set_link(&root, "on.service", false);
    let other = elsewhere(&root.run(&["keep"]).ok().out());
    let again = other.run(&["keep"]).ok();
    assert!(
        again.out().starts_with("Nothing differs"),
        "{}",
        again.out()
    );
    // The second time the same comes out.
    assert_eq!(
        root.run(&["keep"]).ok().out(),
        root.run(&["keep"]).ok().out()
    );
}

#[test]
fn names_are_judged() {
    let root = node();
    root.write("etc/a.conf", "changed\n");
    let with = |name: &str| -> Run { root.run(&["keep", "--name", name]) };
    for (name, words) in [
        ("99-worker-generated-registries", "operator's own"),
        ("rendered-worker-1", "operator's own"),
        ("01-worker-kubelet", "operator's own"),
        ("Kept", "not an object name"),
        ("", "not an object name"),
        ("a\nb", "not an object name"),
    ] {
        let run = with(name).exits(1);
        assert!(run.err().contains(words), "{name}: {}", run.err());
        assert!(run.out().is_empty());
    }
    assert!(with("50-mine").ok().err().contains("may win over it"));
    let own = with("99-worker-zzz").ok();
    assert!(!own.err().contains("may win") && own.out().contains("name: 99-worker-zzz"));
}

#[test]
fn a_node_without_a_whole_state_is_refused_with_the_next_command() {
    let root = node();
    root.remove("etc/machine-config-daemon/currentconfig");
    let run = root.run(&["keep"]).exits(1);
    assert!(
        run.err().contains("currentconfig is missing") && run.err().contains("Next:"),
        "{}",
        run.err()
    );
    root.write("etc/machine-config-daemon/currentconfig", "{");
    let run = root.run(&["keep"]).exits(1);
    assert!(run.err().contains("is damaged"), "{}", run.err());
    let root = node();
    let trial = json!({"version": 1, "id": "1-1", "what": "rendered-worker-1", "began": 1, "window": 60, "boot_limit": 60,
        "phase": "applying", "boot": {"boot": "b"}, "head": "", "reboots": false, "login": {"boot": "b"}});
    root.write("var/lib/mco-rescue/trial.json", &trial.to_string());
    let run = root.run(&["keep"]).exits(1);
    let said = flat_run(&run);
    assert!(
        said.contains("a trial runs") && said.contains("mco-rescue confirm"),
        "{said}"
    );
    let root = node();
    for (args, words) in [
        (["keep", "/etc/none"], "no such file"),
        (["keep", "etc/a.conf"], "from / on"),
        (
            ["keep", "--argument=nosmt"],
            "kernel arguments of this node are unknown",
        ),
    ] {
        let run = root.run(&args);
        assert_ne!(run.code(), 0);
        assert!(
            flat_run(&run).contains(words),
            "{words}: {}",
            flat_run(&run)
        );
    }
}

#[test]
fn an_interrupted_run_is_recovered_first() {
    if !can_trace() {
        return;
    }
    let root = node();
    let mut next = config();
    let files = next["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.extend((0..6).map(|n| file(&format!("/etc/next/{n}"), 0o644, "n\n")));
    let next = root.config(&next);
    let args = ["apply", "--yes", "--edited-config", next.path()];
    let mut was_half_way = false;
    for nth in (2..40).step_by(2) {
        let copy = duplicate(root.dir());
        let run = traced(
            &copy,
            "renameat,renameat2",
            &[
                format!("renameat2:signal=KILL:when={nth}"),
                format!("renameat:signal=KILL:when={nth}"),
            ],
            &args,
        );
        drop(run);
        if copy.exists("var/lib/mco-rescue/journal.json") {
            let run = copy.run(&["keep"]).exits(1);
            let said = flat_run(&run);
            assert!(
                said.contains("was interrupted") && said.contains("mco-rescue recover"),
                "{said}"
            );
            was_half_way = true;
            break;
        }
    }
    assert!(was_half_way, "no run was killed half-way");
}

#[test]
fn hostile_names_are_kept_or_named_and_never_break_a_line() {
    let root = node();
    for name in [
        "a b.conf",
        "q\"uo'te.conf",
        "per%41cent.conf",
        "ünï.conf",
        "#hash: x.conf",
        "esc\u{1b}[31m.conf",
    ] {
        root.write(&format!("etc/own/{name}"), "own\n");
    }
    root.write("etc/own/line\nbreak.conf", "own\n");
    fs::create_dir(root.path("etc/own/sub")).unwrap();
    root.link("etc/own/sub/link.conf", "../README");
    let run = root.run(&["keep", "/etc/own"]).exits(3);
    assert!(!run.err().contains('\u{1b}'), "{:?}", run.err());
    assert!(
        run.err().contains("link.conf: it is a symbolic link"),
        "{}",
        run.err()
    );
    let other = elsewhere(&run.out());
    let mut equal = 0;
    for (path, entry) in tree(&root) {
        if path.starts_with("etc/own/") && entry.kind == 'f' {
            assert_eq!(tree(&other).get(&path), Some(&entry), "{path:?}");
            equal += 1;
        }
    }
    say(&format!("hostile names: {equal} files equal"));
    assert_eq!(
        subjects(
            &root.run(&["keep", "-o", "json", "/etc/own"]).json(),
            "kept"
        )
        .len(),
        equal
    );
}
