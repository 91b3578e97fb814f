//! An engine without an answer: nothing is proven then, and the next attempt proves it. bootc and rpm-ostree are named
//! stubs here.

use serde_json::Value;

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{
    AWAITED, BOOTC, IMAGE, NEXT, OstreeNode, RPM_OSTREE, service_config,
};
use crate::support::{RECORD, Run, flat_run};

/// A node in its first config, whose second one is staged and was booted, and not completed.
fn booted_into_the_second(bootc: bool) -> OstreeNode {
    let node = if bootc {
        OstreeNode::of_bootc()
    } else {
        OstreeNode::new()
    };
    let write = |path, config: Value| node.root.write(path, &config.to_string());
    write("one", service_config("rendered-worker-1", IMAGE, "one\n"));
    write("two", service_config("rendered-worker-2", NEXT, "two\n"));
    node.run(&["apply", "--yes", "/one"]).ok();
    node.run(&["apply", "--yes", "/two"]).ok();
    node.reboots_into_staged(bootc, NEXT);
    node.awaits_since_the_boot_before();
    node
}

fn engine(bootc: bool) -> (&'static str, &'static str) {
    if bootc {
        ("bootc", BOOTC)
    } else {
        ("rpm-ostree", RPM_OSTREE)
    }
}

fn is_silent(node: &OstreeNode, bootc: bool) {
    let script = "echo 'error: Timeout was reached' >&2; exit 1";
    node.program(engine(bootc).0, script);
}

fn answers(node: &OstreeNode, bootc: bool) {
    let (name, script) = engine(bootc);
    node.program(name, script);
}

fn names_the_way_out(run: &Run) {
    let said = flat_run(run);
    assert!(said.contains("cannot be compared with"), "{said}");
    assert!(said.contains("Next: mco-rescue complete"), "{said}");
}

fn metric(node: &OstreeNode, name: &str) -> Option<String> {
    node.run(&["status", "--metrics", "/metrics"]).ok();
    let text = node.root.read("metrics");
    let start = format!("mco_rescue_{name} ");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    Some(line.trim_start_matches(&start).to_owned())
}

#[test]
fn a_boot_is_not_proven_by_silence() {
    with_mounts(|| {
        for bootc in [false, true] {
            let node = booted_into_the_second(bootc);
            is_silent(&node, bootc);
            names_the_way_out(&node.run(&["complete"]).exits(1));
            assert!(node.root.exists(AWAITED));
            assert_eq!(metric(&node, "os_is_recorded"), None);
            answers(&node, bootc);
            node.run(&["complete"]).ok();
            assert!(!node.root.exists(AWAITED));
            assert_eq!(metric(&node, "os_is_recorded").as_deref(), Some("1"));
        }
    });
}

#[test]
fn a_way_back_is_not_proven_by_silence() {
    with_mounts(|| {
        let node = booted_into_the_second(true);
        node.run(&["complete"]).ok();
        node.run(&["rollback", "--yes"]).ok();
        node.boots_back();
        node.awaits_since_the_boot_before();
        is_silent(&node, true);
        // The files are back by then, so it ended after a part.
        names_the_way_out(&node.run(&["complete"]).exits(5));
        assert!(node.root.exists(AWAITED));
        // The second attempt does not look for them.
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        answers(&node, true);
        let again = node.run(&["complete"]).ok();
        assert!(
            !again.err().contains("is not in the history"),
            "{}",
            again.err()
        );
        assert!(!node.root.exists(AWAITED));
        let record: Value = serde_json::from_str(&node.root.read(RECORD)).unwrap();
        assert_eq!(record["metadata"]["name"], "rendered-worker-1");
    });
}

#[test]
fn privileges_that_the_last_question_needs_are_kept_until_it() {
    with_mounts(|| {
        let node = booted_into_the_second(true);
        node.run(&["complete"]).ok();
        node.run(&["rollback", "--yes"]).ok();
        node.boots_back();
        node.awaits_since_the_boot_before();
        // STUB of bootc that sets up its mount namespace, as the real one does: it takes CAP_SYS_ADMIN, the 21st.
        let privileged = r#"while read -r key value; do case $key in CapEff:) caps=$value ;; esac; done </proc/self/status
[ $(( (0x$caps >> 21) & 1 )) = 1 ] || { echo 'error: Permission denied (os error 13)' >&2; exit 1; }
"#;
        node.program("bootc", &(privileged.to_owned() + BOOTC));
        let run = node.run(&["complete"]).ok();
        assert!(
            !run.err().to_lowercase().contains("permission denied"),
            "{}",
            run.err()
        );
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        assert!(!node.root.exists(AWAITED));
        // A run of files alone asks for the deployments afterwards, too.
        node.run(&["apply", "--yes", "--files-only", "/two"])
            .exits(3);
        let run = node.run(&["rollback", "--yes", "--files-only"]).ok();
        assert!(
            !run.err().to_lowercase().contains("permission denied"),
            "{}",
            run.err()
        );
    });
}
