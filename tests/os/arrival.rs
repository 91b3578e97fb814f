//! The boot after a run that was ended between the operating system and its files: the files come before anything reads
//! those from before. rpm-ostree is a named stub; in `vm-tests` the boots are real.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::RECORD;
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{AWAITED, IMAGE, NEXT, OstreeNode, service_config};
use serde_json::Value;

/// A node in its first config, whose run to the second was killed when its image was staged; then it was booted.
fn killed_before_the_files() -> OstreeNode {
    let node = OstreeNode::new();
    let write = |path, config: Value| node.root.write(path, &config.to_string());
    write("one", service_config("rendered-worker-1", IMAGE, "one\n"));
    write("two", service_config("rendered-worker-2", NEXT, "two\n"));
    node.run(&["apply", "--yes", "/one"]).ok();
    node.root.write("stub/hangs", "rebase\n");
    let never = node.root.path("stub/never");
    nix::unistd::mkfifo(&never, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut child = node.start(&["apply", "--yes", "/two"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !node.root.exists("stub/now") {
        assert!(Instant::now() < deadline, "rpm-ostree was never called");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(node.root.read("etc/service.conf"), "one\n");
    node.root.write("stub/hangs", "\n");
    node.reboots_into(NEXT);
    node.awaits_since_the_boot_before();
    node
}

fn recorded(node: &OstreeNode) -> String {
    let record: Value = serde_json::from_str(&node.root.read(RECORD)).unwrap();
    record["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn files_that_did_not_come_before_the_reboot_come_at_the_boot() {
    with_mounts(|| {
        let node = killed_before_the_files();
        node.run(&["complete"]).ok();
        assert_eq!(node.root.read("etc/service.conf"), "two\n");
        assert_eq!(recorded(&node), "rendered-worker-2");
        assert!(!node.root.exists(AWAITED));
        node.run(&["verify"]).ok();
        // It is one step with its operating system, and goes back as one.
        let runs: Value =
            serde_json::from_str(&node.root.read("var/lib/mco-rescue/os-runs.json")).unwrap();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    });
}

#[test]
fn files_that_cannot_come_are_said_with_the_way_to_bring_them() {
    with_mounts(|| {
        let node = killed_before_the_files();
        for cached in fs::read_dir(node.root.path("var/lib/mco-rescue/cache")).unwrap() {
            fs::remove_file(cached.unwrap().path()).unwrap();
        }
        let run = node.run(&["complete", "--output", "json"]).exits(3);
        let said = run.json()["failed"].as_str().unwrap().to_owned();
        assert!(said.contains("rendered-worker-2"), "{said}");
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
    });
}
