//! The new image from a healthy node, where no registry answers, in boxes (story: the registry is dead).
//!
//! Prepared: a sibling that runs 2.0, and a node that runs 1.0 in config A of `os.rs`. OSTree, systemd and the shutdown are
//! real, and so is the engine where one is at hand. Without one the sibling's repository gets the refs and the metadata of an import by hand.
//! True afterwards, by case:
//!
//! 1. An export in a directory, the sibling's repository, and a stream through a pipe each bring all of B with one reboot. The engine names
//!    the image byte for byte as the config does. `rollback` brings all of A.
//! 2. The power fails while the image is imported, and when it is staged: A comes up, the repository is sound, and the same command leads to B.
//!    What is in the node's repository already needs no source.

use std::fs;

use serde_json::Value;

use super::boxed_bootc;
use super::boxed_os::Story;
use super::node::PROGRAM;
use super::os::{deployments, is_all_of_a, is_all_of_b, runs};
use crate::lab::boxes::{Engine, golden};
use crate::lab::{Case, Shell};
use mco_rescue::node::images::object_store::escape_ref;

/// Below `/run/media`: what a sibling left there.
const WAYS: [&str; 3] = ["/run/media/os", "/run/media/disk", "-"];

/// Gives the stand-in's repository what an import from a registry leaves: the image and its layer.
fn imports_by_hand(story: &Story<'_>) {
    let b = golden().b();
    let digest = b.rsplit_once('@').unwrap().1;
    let layer = format!("sha256:{}", "1".repeat(64));
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let script = format!(
        r#"set -euo pipefail
mount -o remount,rw /sysroot
commit() {{ ostree commit --repo=/ostree/repo --no-bindings --tree=ref=box/2 --add-metadata-string=version=2.0 --branch="$@" >/dev/null; }}
commit ostree/container/blob/{layer_ref}
commit ostree/container/image/{image_ref} --add-metadata-string=ostree.manifest-digest={digest} \
    --add-metadata-string=ostree.manifest='{{"schemaVersion":2,"layers":[{{"mediaType":"x","digest":"{layer}","size":1}}]}}' \
    --add-metadata-string=ostree.container.image-config='{{"architecture":"{architecture}","config":{{"Labels":{{"containers.bootc":"1","ostree.bootable":"true"}}}}}}'
"#,
        layer_ref = escape_ref(&layer),
        image_ref = escape_ref(&format!("docker://{b}")),
    );
    story.node.bring("/root/import.sh", script.as_bytes());
    story.node.ask("unshare --mount bash import.sh");
}

/// A sibling comes to 2.0 and leaves behind, on what is `/run/media` of the next node: an export, a stream, its repository, and
/// the documents of two nodes.
fn sibling_leaves_everything(case: &Case) {
    let mut story = Story::in_a(case);
    let registry = (golden().engine != Engine::StandIn).then(|| story.registry());
    if registry.is_none() {
        imports_by_hand(&story);
    }
    story.applies_b("");
    drop(registry);
    story.node.reboot();
    assert_eq!(runs(&story.node), "2.0");
    let node = &story.node;
    case.tell(&node.ask(&format!("{PROGRAM} image list")));
    // By default that which runs.
    case.tell(&node.ask(&format!("{PROGRAM} image export /run/media/os")));
    node.ask(&format!("{PROGRAM} image export - >/run/media/os.stream"));
    // Of its disk the repository, and what names the deployments.
    node.ask(
        "mkdir -p /run/media/disk/ostree && cp -a /ostree/repo /run/media/disk/ostree/ && \
         cd /ostree/deploy/rhcos/deploy && to=/run/media/disk/ostree/deploy/rhcos/deploy && mkdir -p $to && cp *.origin $to",
    );
    let said = node.ask(&format!("{PROGRAM} status --output json"));
    let mut status: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(status["images"][0]["image"], golden().b(), "{status:#}");
    let listed = node.ask("ostree fsck --repo=/run/media/os");
    case.tell(&listed);
    for name in ["w1", "w3"] {
        status["node"] = Value::from(name);
        let path = node.media().join(format!("{name}.json"));
        fs::write(path, status.to_string()).unwrap();
    }
    // Its power is cut when this value ends, and what it left is on the host's disk.
}

fn options(way: &str) -> String {
    format!("--os-from {way} --os-proof /run/media/w1.json --os-proof /run/media/w3.json")
}

/// The command that brings all of B.
fn applies(story: &Story<'_>, way: &str) {
    let command = format!("{PROGRAM} apply --yes {} b.json", options(way));
    let command = match way {
        "-" => format!("cat /run/media/os.stream | {command}"),
        _ => command,
    };
    let said = story.node.ask(&command);
    assert!(said.ends_with("Next: systemctl reboot"), "{said}");
}

/// 2.0 waits, and 1.0 is kept. Of a commit that was imported, rpm-ostree shows no version.
fn is_imported(node: &impl Shell) {
    let status = deployments(node);
    assert_eq!(status[0]["staged"], true, "{status}");
    assert_eq!(status[1]["booted"], true, "{status}");
    assert_eq!(status[1]["pinned"], true, "{status}");
    node.ask("test -e /var/lib/mco-rescue/awaited.json");
}

/// What the engine says of the image that runs, as the Machine Config Daemon reads it.
fn booted_image(node: &impl Shell) -> String {
    if golden().engine.program() == "bootc" {
        let said = node.ask("bootc status --json --format-version 1");
        let status: Value = serde_json::from_str(&said).unwrap();
        let image = &status["status"]["booted"]["image"]["image"]["image"];
        return image.as_str().unwrap_or_default().to_owned();
    }
    let status = deployments(node);
    let mut all = status.as_array().unwrap().iter();
    let booted = all.find(|one| one["booted"] == true).unwrap();
    let reference = booted["container-image-reference"].as_str();
    let pivoted = booted["custom-origin"][0].as_str();
    match (reference, pivoted) {
        (Some(reference), _) => reference.trim_start_matches("ostree-unverified-registry:"),
        (None, pivoted) => pivoted.unwrap_or_default().trim_start_matches("pivot://"),
    }
    .to_owned()
}

fn is_b(story: &Story<'_>) {
    match golden().engine.program() {
        "bootc" => boxed_bootc::is_all_of_b(&story.node, &story.b),
        _ => is_all_of_b(&story.node, &story.b),
    }
    assert_eq!(booted_image(&story.node), golden().b());
    let verify = story.node.run(&format!("{PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}", verify.out());
}

#[test]
fn a_box_without_a_registry_comes_to_the_image_of_a_sibling() {
    let Some(case) = Case::begin_in_box("box: an image from a sibling") else {
        return;
    };
    sibling_leaves_everything(&case);
    for way in WAYS {
        let mut story = Story::in_a(&case);
        applies(&story, way);
        is_imported(&story.node);
        story.node.ask("ostree fsck --quiet");
        story.node.reboot();
        is_b(&story);
        case.tell(&format!("{way}: {}", booted_image(&story.node)));
        story.node.ask(&format!("{PROGRAM} rollback --yes"));
        story.node.reboot();
        is_all_of_a(&story.node, &story.a);
    }
}

#[test]
fn a_box_that_loses_power_while_it_imports_an_image_is_sound_and_comes_to_it() {
    let Some(case) = Case::begin_in_box("box: power cut at an import") else {
        return;
    };
    sibling_leaves_everything(&case);
    for way in WAYS {
        let mut story = Story::in_a(&case);
        // While objects are written, or soon afterwards.
        let command = format!("{PROGRAM} apply --yes {} b.json", options(way));
        story.node.ask(&format!(
            "(cat /run/media/os.stream | {command} >/run/said 2>&1 &) ; \
             timeout 60 bash -c 'until pgrep -f pull-local >/dev/null; do :; done'"
        ));
        story.node.cut();
        story.node.boot();
        is_all_of_a(&story.node, &story.a);
        story.node.ask("ostree fsck --quiet");
        let recover = story.node.run(&format!("{PROGRAM} recover"));
        assert_eq!(recover.code(), 0, "{}{}", recover.out(), recover.err());
        applies(&story, way);
        is_imported(&story.node);

        story.node.cut();
        story.node.boot();
        is_all_of_a(&story.node, &story.a);
        story.node.ask("ostree fsck --quiet");
        // It is in the node's own repository now.
        story.applies_b("");
        story.node.reboot();
        is_b(&story);
    }
}
