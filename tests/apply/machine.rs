//! The right machine: a system that is not a node, and a directory without any system, are left as they are.

use std::fs;

use crate::support::live::run_live;
use crate::support::{
    Lacks, PROGRAM, RECORD, Run, Snapshot, TestRoot, copy_program, file, flat, install_program,
    is_root, machine_config, null_device, skip,
};
use serde_json::{Value, json};

const DEBIAN: &str =
    "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n";
const IMAGE: &str =
    "quay.example/os@sha256:1111111111111111111111111111111111111111111111111111111111111111";

fn config(name: &str) -> Value {
    let files = [file("/etc/of-config.conf", 0o644, "of the config\n")];
    machine_config(name, json!({"storage": {"files": files}}))
}

/// A root of another system.
fn debian() -> TestRoot {
    let root = TestRoot::new();
    root.write("usr/lib/os-release", DEBIAN);
    root.write("etc/hostname", "laptop\n");
    root
}

/// The same, which can be entered; `/config` is on it.
fn live() -> Option<TestRoot> {
    if !is_root() {
        skip(Lacks::Root, "entering a root needs root");
        return None;
    }
    let root = debian();
    copy_program(&root, "/bin/sh");
    install_program(&root.path("usr/mco-rescue"));
    for dir in ["proc", "dev", "run"] {
        fs::create_dir_all(root.path(dir)).unwrap();
    }
    null_device(&root);
    root.write("cmdline", "quiet\n");
    root.write("config", &config("rendered-worker-a").to_string());
    Some(root)
}

fn fits_a_terminal(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?} in\n{text}");
    }
}

fn names_the_machine(said: &str) {
    let said = flat(said);
    for word in [
        "not a node of a cluster",
        "laptop",
        "Debian GNU/Linux 12 (bookworm)",
        "--not-a-node",
    ] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

#[test]
fn a_running_system_that_is_not_a_node_is_left_alone_by_every_command() {
    let Some(root) = live() else { return };
    let before = root.everything();
    for args in [
        &["apply", "--yes", "/config"][..],
        &["apply", "--yes", "--files-only", "/config"],
        &["pivot", IMAGE],
        &["rollback"],
        &["rollback", "--forget"],
        &["install"],
        &["firstboot", "--complete"],
    ] {
        let run = run_live(&root, args).exits(1);
        names_the_machine(&run.err());
        assert!(run.err().contains("Nothing was changed"), "{}", run.err());
        assert_eq!(root.everything(), before, "{args:?}");
    }
    let plan = run_live(&root, &["plan", "/config"]).exits(1);
    names_the_machine(&plan.out());
    fits_a_terminal(&plan.out());
    assert!(!plan.out().contains("of-config.conf"), "{}", plan.out());
    let plan = run_live(&root, &["--output", "json", "plan", "/config"]).exits(1);
    assert_eq!(plan.json()["node"], "laptop");
    assert_eq!(plan.json()["steps"], json!([]));
    let blocker = &plan.json()["blockers"][0];
    names_the_machine(&format!("{} {}", blocker["subject"], blocker["message"]));
    // Looking is free.
    run_live(&root, &["recover"]).ok();
    run_live(&root, &["verify", "/config"]).exits(3);
    assert_eq!(root.everything(), before);
}

#[test]
fn who_means_this_machine_says_so_once() {
    let Some(root) = live() else { return };
    run_live(&root, &["plan", "--not-a-node", "/config"]).ok();
    run_live(&root, &["apply", "--yes", "--not-a-node", "/config"]).ok();
    assert_eq!(root.read("etc/of-config.conf"), "of the config\n");
    // The record is there now, so this is a node.
    run_live(&root, &["apply", "--yes", "/config"]).ok();
    run_live(&root, &["rollback", "--yes"]).ok();
    // Nothing of the run is left, so it is none again.
    assert!(!root.exists(RECORD));
    names_the_machine(
        &run_live(&root, &["apply", "--yes", "/config"])
            .exits(1)
            .err(),
    );
    let image = run_live(&root, &["pivot", "--not-a-node", IMAGE]).exits(1);
    assert!(
        image.err().contains("not booted by OSTree"),
        "{}",
        image.err()
    );
}

#[test]
fn the_disk_of_another_system_is_refused_like_the_system_itself() {
    let root = debian();
    let config = root.config(&config("rendered-worker-a"));
    let before = root.everything();
    let kernel = format!("mco_rescue=apply mco_rescue.config={}", config.path());
    for args in [
        &["apply", "--yes", config.path()][..],
        &["rollback"],
        &["install"],
        &["firstboot", "--kernel-arguments", &kernel],
    ] {
        names_the_machine(&root.run(args).exits(1).err());
        assert_eq!(root.everything(), before, "{args:?}");
    }
    names_the_machine(&root.run(&["plan", config.path()]).exits(1).out());
    root.run(&["apply", "--yes", "--not-a-node", config.path()])
        .ok();
    root.run(&["install", "--not-a-node"]).ok();
}

#[test]
fn one_trace_of_a_node_is_enough() {
    let plan = |root: &TestRoot| {
        let config = root.config(&config("rendered-worker-a"));
        root.run(&["plan", config.path()])
    };
    let systems = [
        ("ID=rhcos\n", true),
        ("ID=\"scos\"\n", true),
        ("ID=fcos\n", true),
        ("ID=fedora\nVARIANT_ID=coreos\n", true),
        ("ID=rhel\nVARIANT_ID=coreos\n", true),
        ("ID=centos\nVARIANT_ID=coreos\n", true),
        ("ID=rhel\nVERSION_ID=9.4\n", false),
        ("ID=fedora\nVARIANT_ID=silverblue\n", false),
        ("ID=debian\nID_LIKE=\"rhcos coreos\"\n", false),
        ("", false),
    ];
    for (text, is_node) in systems {
        let root = debian();
        root.write("usr/lib/os-release", text);
        assert_eq!(plan(&root).code() == 0, is_node, "{text:?}");
    }
    let recorded = config("rendered-worker-0").to_string();
    for (path, is_node) in [
        (RECORD, true),
        ("etc/machine-config-daemon/node-annotations.json", true),
        ("etc/machine-config-daemon/node-annotation.json.bak", true),
        ("etc/ignition-machine-config-encapsulated.json", true),
        ("etc/ignition-machine-config-encapsulated.json.bak", true),
        ("etc/mcs-machine-config-content.json", true),
        ("etc/machine-config-daemon/orig/etc/x", false),
        ("etc/kubernetes/other.json", false),
    ] {
        let root = debian();
        root.write(path, &recorded);
        let said = flat(&plan(&root).out());
        assert_eq!(!said.contains("not a node of a cluster"), is_node, "{path}");
    }
}

#[test]
fn every_plan_begins_with_the_host_name_and_the_system() {
    let root = TestRoot::new();
    let name = "worker-0.a-cluster-with-a-name.example.com";
    root.write("etc/hostname", &format!("{name}\n"));
    let config = root.config(&config("rendered-worker-a"));
    let begin = format!(
        "Node      {name}\nSystem    Red Hat Enterprise Linux CoreOS 418.94.202501221327-0\nRoot      {}\n",
        root.dir().display()
    );
    let begins = |run: Run| {
        let out = run.out();
        assert!(out.starts_with(&begin), "{out}");
    };
    begins(root.run(&["plan", config.path()]).ok());
    begins(root.run(&["apply", config.path()]).exits(1));
    root.run(&["apply", "--yes", config.path()]).ok();
    begins(root.run(&["rollback"]).exits(1));
    let json = root
        .run(&["--output", "json", "plan", config.path()])
        .json();
    assert_eq!(json["node"], name);
    assert_eq!(
        json["system"],
        "Red Hat Enterprise Linux CoreOS 418.94.202501221327-0"
    );
    // A name that cannot be printed as it is stays on its line.
    root.write("etc/hostname", "a\nBlockers: none\u{1b}[2J\n");
    let out = root.run(&["plan", config.path()]).out();
    assert_eq!(
        out.lines().nth(1).unwrap().split(' ').next(),
        Some("System")
    );
    root.remove("etc/hostname");
    let out = root.run(&["plan", config.path()]).out();
    assert!(out.starts_with("Node      (no /etc/hostname)\n"), "{out}");
}

#[test]
fn where_no_system_is_nothing_is_done_and_nothing_is_left() {
    let node = TestRoot::new();
    let config = node.config(&config("rendered-worker-a"));
    node.run(&["apply", "--yes", config.path()]).ok();
    let empty = TestRoot::empty();
    let foreign = TestRoot::empty();
    foreign.write("lost+found/x", "");
    foreign.write("home/user/notes", "a disk of data\n");
    let etc = node.path("etc");
    let var = node.path("var");
    for (root, hint) in [
        (empty.dir(), "lsblk"),
        (foreign.dir(), "lsblk"),
        (etc.as_path(), "directory above"),
        (var.as_path(), "lsblk"),
    ] {
        let shown = root.to_str().unwrap();
        let before = all_of([&node, &empty, &foreign]);
        for args in [
            &["plan", config.path()][..],
            &["plan"],
            &["plan", "--not-a-node", config.path()],
            &["apply", "--yes", config.path()],
            &["apply", "--yes", "--not-a-node", config.path()],
            &["verify", config.path()],
            &["status"],
            &["recover"],
            &["rollback", "--yes"],
            &["install"],
            &["install", "--remove", "--yes"],
            &["fetch", config.path()],
            &["cache", "list"],
        ] {
            let line = [&["--root", shown], args].concat();
            let run = std::process::Command::new(PROGRAM).args(&line).output();
            let run = Run::of(run.unwrap()).exits(1);
            let said = flat(&(run.out() + &run.err()));
            assert!(said.contains("no system at this root"), "{args:?}: {said}");
            assert!(said.contains(shown) && said.contains(hint), "{said}");
            assert_eq!(all_of([&node, &empty, &foreign]), before, "{args:?}");
        }
    }
}

fn all_of(roots: [&TestRoot; 3]) -> [Snapshot; 3] {
    roots.map(TestRoot::everything)
}

/// What a root may lack before its first run.
const LACKING: [&str; 4] = [
    "var",
    "var/lib",
    "nothing",
    "var/lib and the state is empty",
];

fn without(what: &str) -> TestRoot {
    let root = TestRoot::new();
    match what {
        "var" => fs::remove_dir_all(root.path("var")).unwrap(),
        "var/lib" => fs::remove_dir(root.path("var/lib")).unwrap(),
        "nothing" => {}
        _ => fs::create_dir(root.path("var/lib/mco-rescue")).unwrap(),
    }
    root
}

#[test]
fn a_system_without_var_takes_its_first_config_and_gives_it_back() {
    let directory = |path: &str, mode: u32| json!({"path": path, "mode": mode, "overwrite": true});
    let storage = [
        json!({"files": [file("/etc/a", 0o644, "a")]}),
        json!({"files": [file("/var/a", 0o644, "a"), file("/var/lib/b", 0o644, "b")]}),
        json!({"files": [file("/var/lib/deep/er/c", 0o600, "c")]}),
        json!({"directories": [directory("/var", 0o755)]}),
        json!({"directories": [directory("/var/lib", 0o755)]}),
        json!({"directories": [directory("/var", 0o711), directory("/var/lib", 0o750)],
            "files": [file("/var/lib/d", 0o644, "d")]}),
        json!({"directories": [directory("/etc", 0o755), directory("/var/lib/other", 0o700)]}),
    ];
    let users = json!({"users": [{"name": "core", "passwordHash": "$6$s$h", "sshAuthorizedKeys": ["ssh-ed25519 A a"]}]});
    let mut tried = 0;
    for lacking in LACKING {
        for storage in &storage {
            for rendered in [true, false] {
                let mut ignition = json!({"storage": storage, "passwd": users});
                ignition["ignition"] = json!({"version": "3.4.0"});
                let root = without(lacking);
                let value = if rendered {
                    machine_config("rendered-worker-a", ignition)
                } else {
                    // Accounts of a bare config are the tools' work, which need root.

                    ignition.as_object_mut().unwrap().remove("passwd");
                    ignition
                };
                let config = root.config(&value);
                let what = format!("{lacking}, {value}");
                let mut args = vec!["apply", "--yes", config.path()];
                if rendered {
                    args.push("--ignore-unsupported");
                }
                let run = root.run(&args);
                assert_eq!(run.code(), 0, "{what}: {}{}", run.out(), run.err());
                // A run that writes closes it.
                if root.exists("var/lib/mco-rescue/marker") {
                    assert_eq!(root.mode("var/lib/mco-rescue"), 0o700, "{what}");
                }
                for wanted in storage["directories"].as_array().into_iter().flatten() {
                    let (path, mode) = (wanted["path"].as_str().unwrap(), &wanted["mode"]);
                    assert_eq!(json!(root.mode(path)), *mode, "{what}");
                }
                if rendered {
                    let verify = root.run(&["verify"]);
                    assert_eq!(verify.code(), 0, "{what}: {}", verify.out());
                }
                let back = root.run(&["rollback", "--yes"]);
                let nothing = back.err().contains("no finished run");
                assert!(back.code() == 0 || nothing, "{what}: {}", back.err());
                assert_eq!(root.run(&["recover"]).code(), 0);
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 56);
}

#[test]
fn a_plan_that_is_not_confirmed_makes_no_var() {
    for lacking in LACKING {
        let root = without(lacking);
        let config = root.config(&config("rendered-worker-a"));
        let before = root.everything();
        root.run(&["apply", config.path()]).exits(1);
        root.run(&["plan", config.path()]).ok();
        root.run(&["recover"]).ok();
        root.run(&["rollback"]).exits(1);
        root.run(&["install", "--remove", "--yes"]).ok();
        let after = root.everything();
        let state = "var/lib/mco-rescue";
        // What was there empty before may go with `--remove`.
        let but_state = |all: Snapshot| all.into_iter().filter(|(path, _)| path != state);
        let (before, after): (Snapshot, Snapshot) =
            (but_state(before).collect(), but_state(after).collect());
        assert_eq!(after, before, "{lacking}");
    }
}

#[test]
fn a_host_name_that_cannot_be_read_stops_nothing() {
    let root = TestRoot::new();
    root.write("etc/hostname/x", "a directory\n");
    let config = root.config(&config("rendered-worker-a"));
    let run = root.run(&["apply", "--yes", config.path()]).ok();
    let begin = "Node      (no /etc/hostname)\n";
    assert!(run.out().starts_with(begin), "{}", run.out());
    root.run(&["rollback", "--yes"]).ok();
}
