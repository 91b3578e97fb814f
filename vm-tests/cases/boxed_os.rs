//! The operating system is changed together with the files, in boxes (story: the new image).
//!
//! Prepared: a node that runs 1.0 and is in config A of `os.rs`; 2.0 can be had from a registry, or lies as an OCI
//! directory on a medium. OSTree, systemd, skopeo, podman and the shutdown are real, and so is rpm-ostree where one is
//! at hand (`lab::boxes`). True afterwards, by case:
//!
//! 1. `apply` stages and `reboot` enters all of B at once; `rollback` and `reboot` enter all of A at once.
//! 2. The power fails between staging and reboot: 1.0 comes up, and the kubelet finds A.
//!
//! Besides: a box itself leaves nothing on the host, however its end comes.

use std::path::PathBuf;

use serde_json::Value;

use super::configs;
use super::node::PROGRAM;
use super::os::{config_a, config_b, is_all_of_a, is_all_of_b, is_staged, runs};
use crate::lab::boxes::{BoxNode, Registry, golden, groups_left, registry_of};
use crate::lab::{Case, Shell};

/// Of a person who is far away.
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA core@bastion";

#[test]
fn a_box_goes_to_the_new_image_with_one_reboot_and_back_with_another() {
    let Some(case) = Case::begin_in_box("box: image and files, there and back") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    is_staged(&story.node);
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);

    let said = story.node.ask(&format!("{PROGRAM} rollback --yes"));
    assert!(said.contains("systemctl reboot"), "{said}");
    assert_eq!(runs(&story.node), "2.0");
    knows_what_runs(&story.node);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
}

#[test]
fn a_box_loses_what_is_staged_at_a_power_cut_and_the_kubelet_finds_the_old_config() {
    let Some(case) = Case::begin_in_box("box: power cut while staged") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    is_staged(&story.node);
    drop(registry);
    story.node.cut();
    story.node.boot();
    is_all_of_a(&story.node, &story.a);
    let status = story.node.ask(&format!("{PROGRAM} status"));
    assert!(status.contains(configs::name(&story.b)), "{status}");
    assert!(
        status.contains("the deployment from before was booted again"),
        "{status}"
    );
}

#[test]
fn a_box_leaves_nothing_on_the_host_also_when_its_keeper_is_killed() {
    let Some(case) = Case::begin_in_box("box: nothing is left") else {
        return;
    };
    let mut node = BoxNode::new(&case);
    node.boot();
    node.loses_its_keeper();
    node.vanishes();
    // The next one cleans up after it.
    node.boot();
    assert_eq!(groups_left(), Vec::<PathBuf>::new());
    node.cut();
    node.vanishes();
    assert_eq!(groups_left(), Vec::<PathBuf>::new());
}

/// Until the reboot the kernel's `ostree=` leads to a name that is gone, as the boot entries have changed places.
fn knows_what_runs(node: &BoxNode) {
    let link = "/sysroot/$(tr ' ' '\\n' </proc/cmdline | sed -n 's/^ostree=//p')";
    assert_ne!(node.run(&format!("ls {link}")).code(), 0);
    let status = node.ask(&format!("{PROGRAM} status"));
    assert!(status.contains("Booted"), "{status}");
    let doctor = node.run(&format!("{PROGRAM} doctor")).out();
    assert!(!doctor.contains("not booted by"), "{doctor}");
    let plan = node.run(&format!("{PROGRAM} plan a.json")).out();
    assert!(!plan.contains("is not changed here"), "{plan}");
    assert!(!plan.contains("Nothing to do"), "{plan}");
}

/// The node, and the two configs, which it has in `/root`.
struct Story<'a> {
    case: &'a Case,
    node: BoxNode<'a>,
    a: Value,
    b: Value,
}

impl<'a> Story<'a> {
    /// Runs 1.0 in config A.
    fn in_a(case: &'a Case) -> Self {
        let mut story = Self {
            case,
            node: BoxNode::new(case),
            a: config_a(KEY, &golden().a()),
            b: config_b(KEY, &golden().b()),
        };
        case.prepared();
        story.node.boot();
        for (name, config) in [("a", &story.a), ("b", &story.b)] {
            let path = format!("/root/{name}.json");
            story.node.bring(&path, config.to_string().as_bytes());
        }
        let said = story.node.ask(&format!("{PROGRAM} apply --yes a.json"));
        assert!(!said.contains("staged"), "{said}");
        story
            .node
            .ask("systemctl daemon-reload && systemctl start kubelet.service");
        story
    }

    /// Has 2.0.
    fn registry(&self) -> Registry {
        self.node.registry(registry_of(&golden().oci()))
    }

    /// Ends as the person expects: with what is to be done next.
    fn applies_b(&self, options: &str) {
        let said = self
            .node
            .ask(&format!("{PROGRAM} apply --yes {options} b.json"));
        assert!(said.ends_with("Next: systemctl reboot"), "{said}");
        self.case.tell(&said);
    }
}
