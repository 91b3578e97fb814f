//! Bare Ignition configs: Ignition's own rules, on a second run too.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use crate::support::{Lacks, TestRoot, file, flat, is_root, machine_config, skip};
use serde_json::{Value, json};

fn ignition(mut config: Value) -> Value {
    config["ignition"] = json!({"version": "3.4.0"});
    config
}

fn files(files: Value) -> Value {
    ignition(json!({"storage": {"files": files}}))
}

fn refused(root: &TestRoot, config: &Value, words: &str) {
    let before = root.everything();
    let config = root.config(config);
    let run = root.run(&["apply", "--yes", config.path()]).exits(1);
    assert!(
        flat(&(run.out() + &run.err())).contains(words),
        "{}{}",
        run.out(),
        run.err()
    );
    assert_eq!(root.everything(), before);
}

/// Applies, then asks for the second time.
fn applies_once(root: &TestRoot, config: &Value) {
    let config = root.config(config);
    root.run(&["apply", "--yes", config.path()]).ok();
    assert_eq!(
        root.run(&["plan", config.path(), "--output", "json"])
            .ok()
            .json()["steps"],
        json!([])
    );
    root.run(&["verify", config.path()]).ok();
}

#[test]
fn a_bare_config_leaves_the_records_of_the_daemon_alone() {
    let root = TestRoot::new();
    root.apply(&machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file("/etc/a", 0o644, "a")]}}),
    ));
    let record = root.read("etc/machine-config-daemon/currentconfig");
    applies_once(&root, &files(json!([file("/etc/b", 0o644, "b")])));
    assert_eq!(root.read("etc/machine-config-daemon/currentconfig"), record);
    assert!(
        root.exists("etc/a") && !root.exists("etc/machine-config-daemon/noorig/etc/b.mcdnoorig")
    );
}

#[test]
fn other_contents_are_replaced_only_with_overwrite() {
    let root = TestRoot::new();
    root.write("etc/x", "somebody's\n");
    let mut entry = file("/etc/x", 0o600, "ours\n");
    entry.as_object_mut().unwrap().remove("overwrite");
    refused(&root, &files(json!([entry])), "overwrite is not set");
    // The same bytes are not a conflict; the mode is put right.
    root.write("etc/x", "ours\n");
    applies_once(&root, &files(json!([entry])));
    assert_eq!(root.mode("etc/x"), 0o600);
    root.write("etc/x", "other\n");
    entry["overwrite"] = json!(true);
    applies_once(&root, &files(json!([entry])));
    assert_eq!(root.read("etc/x"), "ours\n");
}

#[test]
fn without_contents_a_file_is_made_empty_or_kept() {
    let root = TestRoot::new();
    root.write("etc/kept", "kept\n");
    let entries = json!([{"path": "/etc/kept", "mode": 0o640}, {"path": "/etc/new"}]);
    applies_once(&root, &files(entries));
    assert_eq!(
        (root.read("etc/kept").as_str(), root.mode("etc/kept")),
        ("kept\n", 0o640)
    );
    assert_eq!(
        (root.read("etc/new").as_str(), root.mode("etc/new")),
        ("", 0o644)
    );
}

#[test]
fn fragments_are_appended_once() {
    let root = TestRoot::new();
    root.write("foo/bar", "example file\n");
    let append = json!([{"source": "data:,hello%20"}, {"source": "data:;base64,d29ybGQK"}]);
    applies_once(
        &root,
        &files(json!([{"path": "/foo/bar", "append": append}])),
    );
    assert_eq!(root.read("foo/bar"), "example file\nhello world\n");
    let mut whole = file("/foo/whole", 0o644, "first ");
    whole["append"] = append;
    applies_once(&root, &files(json!([whole])));
    assert_eq!(root.read("foo/whole"), "first hello world\n");
    applies_once(
        &root,
        &files(json!([{"path": "/foo/none", "append": [{"source": "data:,x"}]}])),
    );
    assert_eq!(root.read("foo/none"), "x");
}

#[test]
fn special_mode_bits_count_from_spec_3_6_on() {
    let root = TestRoot::new();
    let mut config = files(json!([file("/opt/tool", 0o4755, "x")]));
    applies_once(&root, &config);
    assert_eq!(root.mode("opt/tool"), 0o755);
    config["ignition"]["version"] = json!("3.6.0");
    applies_once(&root, &config);
    assert_eq!(root.mode("opt/tool"), 0o4755);
}

#[test]
fn units_follow_the_rules_of_ignition() {
    let root = TestRoot::new();
    let service = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    root.write("etc/systemd/system/admin.service", "# an admin's\n");
    root.link("etc/systemd/system/masked.service", "/dev/null");
    let units = json!([
        {"name": "a.service", "enabled": true, "contents": service},
        {"name": "quiet.service", "contents": service},
        {"name": "b.service", "dropins": [{"name": "10-empty.conf", "contents": ""}]},
        {"name": "admin.service", "mask": false},
        {"name": "masked.service", "mask": false},
    ]);
    applies_once(&root, &ignition(json!({"systemd": {"units": units}})));
    assert_eq!(
        root.read("etc/systemd/system-preset/20-ignition.preset"),
        "enable a.service\n"
    );
    assert!(root.exists("etc/systemd/system/multi-user.target.wants/a.service"));
    assert!(!root.exists("etc/systemd/system/multi-user.target.wants/quiet.service"));
    assert_eq!(
        root.read("etc/systemd/system/b.service.d/10-empty.conf"),
        ""
    );
    assert_eq!(
        root.read("etc/systemd/system/admin.service"),
        "# an admin's\n"
    );
    assert!(!root.exists("etc/systemd/system/masked.service"));
}

#[test]
fn what_a_bare_config_cannot_do_here_is_refused_by_name() {
    let root = TestRoot::new();
    refused(
        &root,
        &files(json!([{"path": "/srv/a", "contents": {"source": "tftp://host.example/a"}}])),
        "tftp sources are not fetched",
    );
    refused(
        &root,
        &files(json!([{"path": "relative"}])),
        "storage.files[0].path: \"relative\" is not an absolute path",
    );
}

#[test]
fn objects_below_a_directory_with_the_setgid_bit_get_its_group_as_ignition_leaves_it() {
    if !is_root() {
        return skip(Lacks::Root, "other groups need root");
    }
    let root = TestRoot::new();
    root.write("srv/shared/old", "before\n");
    chown(root.path("srv/shared"), Some(0), Some(10)).unwrap();
    root.chmod("srv/shared", 0o2775);
    root.write("srv/plain/kept", "");
    let group = |mut object: Value| {
        object["group"] = json!({"id": 7});
        object
    };
    let mut old = file("/srv/shared/old", 0o640, "after\n");
    old["overwrite"] = json!(true);
    let config = json!({"ignition": {"version": "3.6.0"}, "storage": {
        "directories": [
            {"path": "/srv/shared/dir"},
            {"path": "/srv/shared/closed", "mode": 0o700},
            group(json!({"path": "/srv/shared/own"})),
            {"path": "/srv/plain/made", "mode": 0o2755, "group": {"id": 9}},
            {"path": "/srv/plain", "mode": 0o2755},
        ],
        "files": [
            file("/srv/shared/new", 0o600, "x\n"),
            file("/srv/shared/deep/er/new", 0o600, "x\n"),
            group(file("/srv/shared/given", 0o600, "x\n")),
            file("/srv/plain/made/new", 0o600, "x\n"),
            old,
        ],
    }});
    let check = || {
        // The kernel's own word for what a plain mkdir gets there.
        fs::create_dir(root.path("srv/shared/by-hand")).unwrap();
        let is = |path: &str| {
            let meta = fs::metadata(root.path(path)).unwrap();
            (meta.mode() & 0o7777, meta.gid())
        };
        assert_eq!(is("srv/shared/by-hand"), (0o2755, 10));
        for directory in ["dir", "deep", "deep/er"] {
            let at = format!("srv/shared/{directory}");
            assert_eq!(is(&at), is("srv/shared/by-hand"), "{at}");
        }
        assert_eq!(is("srv/shared/closed"), (0o700, 10));
        // A chown takes the bit from no directory.
        assert_eq!(is("srv/shared/own"), (0o2755, 7));
        assert_eq!(is("srv/shared/new"), (0o600, 10));
        assert_eq!(is("srv/shared/deep/er/new"), (0o600, 10));
        assert_eq!(is("srv/shared/given"), (0o600, 7));
        assert_eq!(is("srv/shared/old"), (0o640, 10));
        assert_eq!(is("srv/plain/made"), (0o2755, 9));
        assert_eq!(is("srv/plain/made/new"), (0o600, 9));
        fs::remove_dir(root.path("srv/shared/by-hand")).unwrap();
    };
    applies_once(&root, &config);
    check();
}
