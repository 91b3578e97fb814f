//! Directories and links of a config: made, kept right, and never at the cost of what somebody else put there.

use std::os::unix::fs::MetadataExt;

use crate::support::{TestRoot, file, flat, is_root, machine_config};
use serde_json::{Value, json};

const NAME: &str = "rendered-worker-a";

fn storage(storage: Value) -> Value {
    machine_config(NAME, json!({"storage": storage}))
}

fn inode(root: &TestRoot, path: &str) -> u64 {
    std::fs::symlink_metadata(root.path(path)).unwrap().ino()
}

fn nothing_to_do(root: &TestRoot) {
    root.run(&["verify"]).ok();
    assert_eq!(
        root.run(&["plan", "--output", "json"]).ok().json()["steps"],
        json!([])
    );
}

#[test]
fn directories_get_their_mode_and_owner_before_anything_is_put_into_them() {
    let root = TestRoot::new();
    let mut deep = json!({"path": "/opt/agent/run", "mode": 0o750});
    if is_root() {
        deep["group"] = json!({"name": "wheel"});
    }
    // The deeper one stands first in the document; the parent's own entry still decides its mode.
    let entries = json!([deep, {"path": "/opt/agent", "mode": 0o711}, {"path": "/opt/plain"}]);
    root.apply(&storage(
        json!({"directories": entries, "files": [file("/opt/agent/run/x", 0o600, "x")]}),
    ));
    let modes = ["opt", "opt/agent", "opt/agent/run", "opt/plain"].map(|path| root.mode(path));
    assert_eq!(modes, [0o755, 0o711, 0o750, 0o755]);
    if is_root() {
        assert_eq!(
            std::fs::metadata(root.path("opt/agent/run")).unwrap().gid(),
            10
        );
    }
    nothing_to_do(&root);
}

#[test]
fn an_existing_directory_keeps_its_contents_and_gets_its_mode_back() {
    let root = TestRoot::new();
    root.write("opt/agent/kept", "kept");
    root.apply(&storage(
        json!({"directories": [{"path": "/opt/agent", "mode": 0o700, "overwrite": true}]}),
    ));
    assert_eq!(
        (root.mode("opt/agent"), root.read("opt/agent/kept").as_str()),
        (0o700, "kept")
    );
    root.chmod("opt/agent", 0o777);
    let drifts = root.run(&["verify", "--output", "json"]).exits(3).json()["drifts"].clone();
    assert_eq!(
        (
            drifts[0]["subject"].as_str(),
            &drifts[0]["checked_by_daemon"]
        ),
        (Some("/opt/agent"), &json!(false))
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.mode("opt/agent"), 0o700);
}

#[test]
fn soft_links_are_made_verbatim_and_replaced_only_with_overwrite() {
    let root = TestRoot::new();
    let link = json!({"path": "/etc/agent/current", "target": "../somewhere"});
    root.apply(&storage(json!({"links": [link]})));
    assert_eq!(
        root.target("etc/agent/current").as_deref(),
        Some("../somewhere")
    );
    nothing_to_do(&root);
    root.remove("etc/agent/current");
    root.write("etc/agent/current", "a file\n");
    let before = root.everything();
    assert!(flat(&root.run(&["apply", "--yes"]).exits(1).out()).contains("overwrite is not set"));
    assert_eq!(root.everything(), before);
    let mut config = storage(json!({"links": [link]}));
    config["spec"]["config"]["storage"]["links"][0]["overwrite"] = json!(true);
    let config = root.config(&config);
    // Another link section is a step that the daemon would refuse, though a harmless one.
    root.run(&["apply", "--yes", config.path()]).exits(1);
    root.run(&["apply", "--yes", "--ignore-unsupported", config.path()])
        .ok();
    assert_eq!(
        root.target("etc/agent/current").as_deref(),
        Some("../somewhere")
    );
}

#[test]
fn a_link_to_the_same_place_in_other_words_is_left() {
    let root = TestRoot::new();
    root.link("etc/l", "/a//b/./c");
    if is_root() {
        root.apply(&storage(
            json!({"links": [{"path": "/etc/l", "target": "/a/b/c"}]}),
        ));
    }
    assert_eq!(root.target("etc/l").as_deref(), Some("/a//b/./c"));
}

#[test]
fn hard_links_share_the_file_of_the_same_config_whenever_it_changes() {
    let root = TestRoot::new();
    let links = json!([{"path": "/opt/second", "target": "/etc/first", "hard": true}]);
    let with =
        |text: &str| storage(json!({"files": [file("/etc/first", 0o640, text)], "links": links}));
    root.apply(&with("one"));
    assert_eq!(inode(&root, "opt/second"), inode(&root, "etc/first"));
    nothing_to_do(&root);
    root.apply(&with("two"));
    assert_eq!(
        (root.read("opt/second").as_str(), root.mode("opt/second")),
        ("two", 0o640)
    );
    assert_eq!(inode(&root, "opt/second"), inode(&root, "etc/first"));
    // Equal bytes are not enough.
    root.remove("opt/second");
    root.write("opt/second", "two");
    root.chmod("opt/second", 0o640);
    assert!(flat(&root.run(&["apply", "--yes"]).exits(1).out()).contains("overwrite is not set"));
}

#[test]
fn a_hard_link_to_a_link_is_a_second_name_of_the_link_itself() {
    let root = TestRoot::new();
    root.link("bar", "nonexistent");
    root.apply(&storage(
        json!({"links": [{"path": "/foo", "target": "/bar", "hard": true}]}),
    ));
    assert_eq!(inode(&root, "foo"), inode(&root, "bar"));
    nothing_to_do(&root);
}

#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    let root = TestRoot::new();
    root.write("etc/file", "x");
    for (config, words) in [
        (
            json!({"directories": [{"path": "/etc/file"}]}),
            "is where a directory should be",
        ),
        (
            json!({"directories": [{"path": "/opt/x", "user": {"name": "nobody-has-this"}}]}),
            "nobody-has-this",
        ),
        (
            json!({"links": [{"path": "/etc/l", "target": "/nowhere", "hard": true}]}),
            "does not exist",
        ),
        (
            json!({"links": [{"path": "/etc/l", "target": "/etc", "hard": true}]}),
            "cannot lead to a directory",
        ),
    ] {
        let before = root.everything();
        let config = root.config(&storage(config));
        let said = root.run(&["apply", "--yes", config.path()]).exits(1).out();
        assert!(flat(&said).contains(words), "{said}");
        assert_eq!(root.everything(), before);
    }
}
