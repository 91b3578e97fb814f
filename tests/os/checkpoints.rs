//! Checkpoint files of the kubelet on the way back to an operating system with another kubelet.

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{BOOTED, NEXT, OstreeNode};
use crate::support::{file, machine_config};
use serde_json::json;

const POD_STATUS: &str = "var/lib/kubelet/pod_status_manager_state";

/// A node that came from the first release to the second one.
fn arrived(from: &str, to: &str) -> OstreeNode {
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
    node.reboots_into(NEXT);
    let before = format!("sysroot/ostree/deploy/rhcos/deploy/{BOOTED}.0");
    for (directory, version) in [(".", to), (&before, from)] {
        let release = format!("ID=rhcos\nVARIANT_ID=coreos\nOPENSHIFT_VERSION={version}\n");
        node.root
            .write(&format!("{directory}/etc/os-release"), &release);
    }
    node
}

#[test]
fn the_way_back_names_the_files_that_the_older_kubelet_may_refuse() {
    with_mounts(|| {
        for (from, to, is_told) in [("4.18.2", "4.19.1", true), ("4.18.2", "4.18.9", false)] {
            let node = arrived(from, to);
            node.root.write(POD_STATUS, "{}");
            let run = node.run(&["rollback"]);
            let shown = format!("{}{}", run.out(), run.err());
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            let told = "by the kubelet of Kubernetes 1.32; that of the previous deployment, 1.31, may refuse it";
            assert_eq!(shown.contains(told), is_told, "{from} {to}: {shown}");
            assert!(shown.contains("rendered-worker-2"), "{shown}");
            node.root.remove(POD_STATUS);
            let run = node.run(&["rollback"]);
            assert!(!run.out().contains("by the kubelet of Kubernetes"));
        }
    });
}
