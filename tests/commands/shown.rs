//! `show PATH` where it has nothing to show: why, and what to do.

use crate::support::{RECORD, TestRoot, file, flat_run, machine_config};
use serde_json::json;

const PATH: &str = "/etc/site.conf";

fn node() -> TestRoot {
    let root = TestRoot::new();
    let files = [
        file(PATH, 0o644, "shown\n"),
        file("/etc/other.conf", 0o644, "other\n"),
    ];
    root.apply(&machine_config(
        "rendered-worker-1",
        json!({"storage": {"files": files}}),
    ));
    assert_eq!(root.run(&["show", PATH]).ok().out(), "shown\n");
    root
}

fn refuses(root: &TestRoot, path: &str, words: &[&str]) {
    let said = flat_run(&root.run(&["show", path]).exits(1));
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

#[test]
fn each_reason_why_a_path_cannot_be_shown_has_its_answer() {
    let root = node();
    let words = [
        "the recorded config rendered-worker-1 brings no file or unit \"/etc/none.conf\"",
        "What it has: mco-rescue show",
    ];
    refuses(&root, "/etc/none.conf", &words);
    let whole = root.read(RECORD);
    // Another file of the record cannot be decoded.
    root.write(
        RECORD,
        &whole.replace("data:,%6F%74%68%65%72", "data:;base64,%%%"),
    );
    let words = [
        "the node's record cannot be used",
        "Give the config: mco-rescue show CONFIG /etc/site.conf",
        "write the record again: mco-rescue apply CONFIG",
    ];
    refuses(&root, PATH, &[&words[..], &["files[1]"]].concat());
    root.write(RECORD, &whole[..whole.len() / 2]);
    refuses(
        &root,
        PATH,
        &[&words[..], &["the document is cut short"]].concat(),
    );
    root.remove(RECORD);
    let words = [
        "the node has no record (/etc/machine-config-daemon/currentconfig)",
        "Give the config: mco-rescue show CONFIG /etc/site.conf",
    ];
    refuses(&root, PATH, &words);
    refuses(&root, "kubelet.service", &["the node has no record"]);
}
