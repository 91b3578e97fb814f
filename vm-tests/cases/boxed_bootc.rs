//! Kernel arguments and kept images on a node with a real bootc alone, in boxes (story: the new image without rpm-ostree).
//!
//! Prepared: a node that runs 1.0 and is in config A of `os.rs`; 2.0 can be had from a registry, or lies as an OCI
//! directory on a medium. bootc, OSTree, systemd, skopeo and the shutdown are real (`BOX_BOOTC`). True afterwards, by case:
//!
//! 1. `apply` stages the image of B with its arguments, and the reboot enters all of it. All of A comes back without a registry, from
//!    the deployment that is kept; B comes again from a medium. `rollback` before a reboot drops what is staged.
//! 2. Arguments alone are staged over what runs, with its origin; bootc still names the image.
//! 3. An image brings kernel arguments of its own (3.0, `/usr/lib/bootc/kargs.d`): they come with it, and go with the way back to a
//!    deployment that is kept, where `/sysroot` is read-only and another stateroot has a deployment.
//! 4. A run that ended between the image and its arguments is finished by the next one.

use std::fs;

use serde_json::Value;

use super::boxed_os::{KEY, Story, two_images};
use super::configs;
use super::node::PROGRAM;
use super::os::{
    config_a, config_b, is_all_of_a, kubelet_found, nothing_is_awaited, runs, unwrapped,
};
use crate::lab::boxes::{Engine, golden, registry_of};
use crate::lab::{Case, Shell};
use crate::support::{Lacks, oci, skip};

/// The case, where the node has bootc alone.
fn begin(title: &str) -> Option<Case> {
    let case = Case::begin_in_box(title)?;
    if matches!(golden().engine, Engine::Bootc { both: false, .. }) {
        return Some(case);
    }
    skip(
        Lacks::Counterpart,
        "a node with a real bootc alone needs BOX_BOOTC",
    );
    None
}

fn bootc_status(node: &impl Shell) -> Value {
    let said = node.ask("bootc status --json --format-version 1");
    serde_json::from_str::<Value>(&said).unwrap()["status"].clone()
}

/// Deployment, arguments, files, units and record; and it was so when the kubelet started.
pub(super) fn is_all_of_b(node: &impl Shell, b: &Value) {
    assert_eq!(runs(node), "2.0", "{}", super::os::complete(node));
    let verify = node.run(&format!("{PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}", verify.out());
    let arguments = node.ask("cat /proc/cmdline");
    assert!(arguments.contains(" nosmt site.is=b"), "{arguments}");
    assert!(!arguments.contains("audit=0"), "{arguments}");
    kubelet_found(node, b, "maxPods: 500");
    let booted = bootc_status(node)["booted"].clone();
    assert_eq!(
        booted["image"]["image"]["image"],
        golden().b(),
        "{booted:#}"
    );
    nothing_is_awaited(node);
}

#[test]
fn a_box_with_bootc_alone_goes_to_an_image_with_arguments_and_back_without_a_registry() {
    let Some(case) = begin("box: bootc, arguments there and back") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    let staged = bootc_status(&story.node)["staged"].clone();
    assert_eq!(
        staged["image"]["image"]["image"],
        golden().b(),
        "{staged:#}"
    );
    // Before the reboot it is only dropped; and staged again.
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    assert_eq!(bootc_status(&story.node)["staged"], Value::Null);
    is_all_of_a(&story.node, &story.a);
    story.applies_b("");
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);

    // No registry, no medium: what is kept.
    let said = story.node.ask(&format!("{PROGRAM} apply --yes a.json"));
    assert!(!said.contains("bootc switch"), "{said}");
    case.tell(&said);
    let status = story.node.ask(&format!("{PROGRAM} status"));
    assert!(
        unwrapped(&status).contains(configs::name(&story.a)),
        "{status}"
    );
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);

    // From a medium, under the same name.
    let medium = story.node.media().join("os");
    let index = two_images(&medium);
    std::fs::write(medium.join("index.json"), index).unwrap();
    story.applies_b("--os-from /run/media/os");
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
}

#[test]
fn a_box_with_bootc_alone_stages_arguments_over_what_runs() {
    let Some(case) = begin("box: bootc, arguments alone") else {
        return;
    };
    let mut story = Story::in_a(&case);
    // Arguments and files of B, on the system of A.
    let on_a = config_b(KEY, &golden().a());
    story
        .node
        .bring("/root/on-a.json", on_a.to_string().as_bytes());
    let said = story.node.ask(&format!("{PROGRAM} apply --yes on-a.json"));
    assert!(said.ends_with("Next: systemctl reboot"), "{said}");
    case.tell(&said);
    story.node.reboot();
    assert_eq!(runs(&story.node), "1.0");
    let arguments = story.node.ask("cat /proc/cmdline");
    assert!(arguments.contains(" nosmt site.is=b"), "{arguments}");
    assert!(!arguments.contains("audit=0"), "{arguments}");
    let booted = bootc_status(&story.node)["booted"].clone();
    assert_eq!(
        booted["image"]["image"]["image"],
        golden().a(),
        "{booted:#}"
    );
    let verify = story.node.run(&format!("{PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}", verify.out());
    nothing_is_awaited(&story.node);
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    story.node.reboot();
    let a = config_a(KEY, &golden().a());
    is_all_of_a(&story.node, &a);
}

#[test]
fn a_box_with_bootc_alone_goes_back_to_a_kept_image_without_the_arguments_of_the_new_one() {
    let Some(case) = begin("box: bootc, arguments of images") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let (oci, layer) = (case.path("oci-c"), case.path("layer-c"));
    let write = |path: &str, text: &str| {
        let file = layer.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write(
        "usr/lib/bootc/kargs.d/10-site.toml",
        "kargs = [\"site.c=1\"]\n",
    );
    let digest = oci::derived(&golden().oci(), &oci, &layer, "3.0");
    let image = format!("quay.example/okd/os@{digest}");
    let registry = story.node.registry(registry_of(&oci));
    let said = story.node.ask(&format!("{PROGRAM} pivot --yes {image}"));
    assert!(unwrapped(&said).contains("+site.c=1"), "{said}");
    drop(registry);
    story.node.reboot();
    let booted = bootc_status(&story.node)["booted"].clone();
    assert_eq!(booted["image"]["image"]["image"], image, "{booted:#}");
    let arguments = || story.node.ask("cat /proc/cmdline");
    assert!(arguments().contains(" site.c=1"), "{}", arguments());

    let commit = "$(ls /ostree/deploy/rhcos/deploy | grep -o '^[0-9a-f]*' | head -n 1)";
    story.node.ask(&format!(
        "ostree admin os-init other && ostree admin deploy --os=other --retain --not-as-default {commit}"
    ));
    story.node.ask("mount -o remount,bind,ro /sysroot");
    let said = story.node.ask(&format!("{PROGRAM} apply --yes a.json"));
    case.tell(&said);
    assert!(unwrapped(&said).contains("-site.c=1"), "{said}");
    assert!(!said.contains("bootc switch"), "{said}");
    let status = story.node.ask(&format!("{PROGRAM} status"));
    assert!(status.contains("other"), "{status}");
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    let arguments = story.node.ask("cat /proc/cmdline");
    assert!(!arguments.contains("site.c=1"), "{arguments}");
}

#[test]
fn a_box_with_bootc_alone_finishes_a_run_that_ended_before_its_arguments() {
    let Some(case) = begin("box: bootc, cut off before the arguments") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    // A wrapper in the place of ostree ends the run when it would stage the arguments.
    let wrapper = "#!/bin/sh\ncase \"$*\" in 'admin deploy --stage'*) kill -9 $(cat /run/apply.pid); exit 1 ;; esac\nexec /run/ostree-real \"$@\"\n";
    story.node.bring("/run/wrapper", wrapper.as_bytes());
    let put = "cp /usr/bin/ostree /run/ostree-real && chmod 0755 /run/wrapper && mount --bind /run/wrapper /usr/bin/ostree";
    story.node.ask(put);
    let run = story.node.run(&format!(
        "sh -c 'echo $$ >/run/apply.pid; exec {PROGRAM} apply --yes b.json'"
    ));
    assert_ne!(run.code(), 0, "{}", run.out());
    story.node.ask("umount /usr/bin/ostree");
    let status = story.node.ask(&format!("{PROGRAM} status"));
    let said = unwrapped(&status);
    for words in ["Staged", "Awaited", "mco-rescue rollback"] {
        assert!(said.contains(words), "no {words:?} in {status}");
    }
    drop(registry);
    story.applies_b("");
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
}
