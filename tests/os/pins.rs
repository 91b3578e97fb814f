//! The deployment from before is kept as the way back, until the daemon is done or a person lets it go.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{BOOTED, NEXT, OstreeNode};
use crate::support::{file, machine_config};
use serde_json::json;

/// A node that staged another image, and runs it now.
fn arrived() -> OstreeNode {
    let node = OstreeNode::new();
    let ignition = json!({"storage": {"files": [file("/etc/new", 0o644, "new\n")]}});
    let mut config = machine_config("rendered-worker-2", ignition);
    config["spec"]["osImageURL"] = json!(NEXT);
    node.root.write("config", &config.to_string());
    node.root.write(
        "etc/containers/policy.json",
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    );
    node.run(&["apply", "--yes", "/config"]).ok();
    assert_eq!(node.root.read("stub/pinned").trim(), BOOTED);
    node.reboots_into(NEXT);
    node
}

fn annotations(node: &OstreeNode, seen: u64, state: &str, desired: &str) {
    let kept = json!({
        "version": 1, "node": "n", "seen": seen, "current": "rendered-worker-2", "desired": desired, "state": state,
    });
    node.root
        .write("var/lib/mco-rescue/annotations.json", &kept.to_string());
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

const IF_DONE: [&str; 3] = ["rollback", "--forget", "--if-done"];

fn is_pinned(node: &OstreeNode) -> bool {
    node.root.read("stub/pinned").trim() == BOOTED
}

#[test]
fn a_person_lets_it_go_and_nothing_else_happens() {
    with_mounts(|| {
        let node = arrived();
        let status = node.run(&["status"]).ok().out();
        assert!(status.contains("(for a rollback, pinned)"), "{status}");
        let said = node.run(&["rollback", "--forget"]).ok().out();
        assert!(said.contains(&format!("Unpinned: {BOOTED}.0")), "{said}");
        assert!(said.contains("rpm-ostree cleanup -r"), "{said}");
        assert_eq!(node.calls().last().unwrap(), "ostree admin pin --unpin 1");
        assert!(node.root.exists("etc/new"));
        let again = node.run(&["rollback", "--forget"]).ok().out();
        assert!(again.contains("nothing to unpin"), "{again}");
    });
}

#[test]
fn it_is_let_go_by_itself_only_when_the_daemon_is_done_with_what_runs() {
    with_mounts(|| {
        let node = arrived();
        let kept = |what: &str| {
            node.run(&IF_DONE).ok();
            assert!(is_pinned(&node), "{what}");
        };
        kept("nobody has asked the API");
        annotations(&node, now(), "Working", "rendered-worker-2");
        kept("the daemon works");
        annotations(&node, now(), "Done", "rendered-worker-3");
        kept("another config is wanted");
        annotations(&node, 1_000_000_000, "Done", "rendered-worker-2");
        kept("that was before this boot");
        annotations(&node, now(), "Done", "rendered-worker-2");
        let said = node.run(&IF_DONE).ok().out();
        assert!(said.contains("Unpinned"), "{said}");
        assert!(!is_pinned(&node));
        // The timer's service goes on asking, and has nothing to say.
        assert_eq!(node.run(&IF_DONE).ok().out(), "");
    });
}

#[test]
fn what_somebody_else_pinned_stays() {
    with_mounts(|| {
        let node = OstreeNode::new();
        node.root.write("stub/pinned", &format!("{BOOTED}\n"));
        node.run(&["rollback", "--forget"]).ok();
        assert!(is_pinned(&node));
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}
