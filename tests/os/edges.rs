//! The operating system under a run: what runs is known, and everything that staging asks later is asked by the plan.
//! rpm-ostree is a named stub; the real one is in the boxes of `vm-tests/`.

use std::fs;

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{IMAGE, NEXT, OstreeNode};
use crate::support::{file, machine_config};
use serde_json::json;

const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Is recorded to be in a config with the image that runs; the config of another one is in `/next`.
fn recorded() -> OstreeNode {
    let node = OstreeNode::new();
    node.root.write("etc/containers/policy.json", POLICY);
    for (path, name, image) in [
        ("config", "rendered-worker-1", IMAGE),
        ("next", "rendered-worker-2", NEXT),
    ] {
        let files = [file("/etc/site", 0o644, "of both\n")];
        let mut config = machine_config(name, json!({"storage": {"files": files}}));
        config["spec"]["osImageURL"] = json!(image);
        node.root.write(path, &config.to_string());
    }
    node.run(&["apply", "--yes", "/config"]).ok();
    node
}

/// Everything that went wrong when the kernel's `ostree=` led nowhere.
fn knows_what_runs(node: &OstreeNode) {
    let status = node.run(&["status"]).ok().out();
    assert!(status.contains("Booted"), "{status}");
    let doctor = node.run(&["doctor"]).out();
    assert!(!doctor.contains("not booted by"), "{doctor}");
    let plan = node.run(&["plan", "/next"]);
    assert!(
        plan.out().contains("Operating system, staged"),
        "{}",
        plan.out()
    );
    assert!(
        !plan.out().contains("is not changed here"),
        "{}",
        plan.out()
    );
    node.run(&["pivot", "--yes", NEXT]).ok();
    let staged = node.root.read("stub/staged");
    assert!(staged.contains(NEXT), "{staged}");
}

#[test]
fn what_runs_is_known_after_a_swap_of_boot_entries() {
    with_mounts(|| {
        let node = recorded();
        node.swaps_boot_entries();
        knows_what_runs(&node);
    });
}

#[test]
fn what_runs_is_known_after_a_swap_where_the_root_is_an_overlay() {
    with_mounts(|| {
        let node = recorded();
        node.swaps_boot_entries_under_an_overlay();
        knows_what_runs(&node);
    });
}

#[test]
fn a_deployment_staged_by_others_after_the_plan_was_made_is_kept_and_nothing_is_applied() {
    with_mounts(|| {
        let node = recorded();
        let other = NEXT.replace('2', "3");
        fs::create_dir_all(node.root.path("run/systemd/system")).unwrap();
        // STUB of systemctl: while systemd reads the units that complete the run, another program stages.
        let script = format!(
            "case $* in\n\
             daemon-reload) printf 'image=%s\\npackages=\"\"\\nremovals=\"\"\\n' {other} >/stub/staged ;;\n\
             show*) printf 'LoadState=loaded\\nResult=success\\nConditionResult=yes\\nExecMainStatus=0\\n' ;;\n\
             start*) ;;\n\
             *) exit 1 ;;\n\
             esac"
        );
        node.program("systemctl", &script);
        node.root.write("etc/site", "by hand\n");
        let run = node
            .run(&["apply", "--yes", "--takeover", "/next"])
            .exits(1);
        let err = run.err();
        let said: Vec<&str> = err.split_whitespace().collect();
        let said = said.join(" ");
        let words = "the deployments have changed since the plan was made; nothing was staged, and no file was changed. \
                     Next: mco-rescue apply --yes --takeover /next";
        assert!(said.contains(words), "{said}");
        let staged = node.root.read("stub/staged");
        assert!(staged.contains(&other), "{staged}");
        assert_eq!(node.root.read("etc/site"), "by hand\n");
        // Planned from what is staged now, it is applied.
        node.run(&["apply", "--yes", "--takeover", "/next"]).ok();
        assert!(node.root.read("stub/staged").contains(NEXT));
        assert_eq!(node.root.read("etc/site"), "of both\n");
    });
}
