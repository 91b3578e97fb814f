//! FP-48: the store of container images after an unclean stop.

use std::fs;
use std::process::Command;

use super::small::{endless, live, record_on};
use super::worker::{Branch, Row, all_met, healthy, sick, well};
use super::{Dark, doctor, doctor_on, found, of, says};
use crate::support::{Lacks, TestRoot, skip};
use mco_rescue::node::images::Digest;
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-48", "the store of images", |root| {
    endless(root, &format!("{STORE}/overlay-images/images.json"))
})];

const STORE: &str = "var/lib/containers/storage";
const CLEAN: &str = "var/lib/crio/clean.shutdown";
const SUPPORTED: &str = "var/lib/crio/clean.shutdown.supported";
const UNIT: &str = "usr/lib/systemd/system/crio-wipe.service";
/// Identifiers of two layers and an image.
const BASE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const TOP: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const IMAGE: &str = "cccccccccccccccccccccccccccccccc";

/// A store with an image of two layers, as containers-storage lays it out.
fn store(root: &TestRoot) {
    let layers = json!([
        {"id": BASE, "diff-size": 3_u64 << 29},
        {"id": TOP, "parent": BASE, "diff-size": 1_u64 << 29},
        // Of a container that was being made.
        {"id": "dddd", "parent": TOP, "flags": {"incomplete": true}},
    ]);
    let manifest = "=c2hhMjU2OjEyMw==";
    let images = json!([{"id": IMAGE, "names": ["quay.example/a:1"], "layer": TOP,
        "big-data-sizes": {"manifest": 2, "sha256:123": 4}}]);
    root.write(
        &format!("{STORE}/overlay-layers/layers.json"),
        &layers.to_string(),
    );
    root.write(
        &format!("{STORE}/overlay-images/images.json"),
        &images.to_string(),
    );
    root.write(
        &format!("{STORE}/overlay-containers/containers.json"),
        r#"[{"id": "e"}]"#,
    );
    root.write(&format!("{STORE}/overlay-images/{IMAGE}/manifest"), "{}");
    root.write(
        &format!("{STORE}/overlay-images/{IMAGE}/{manifest}"),
        "{\n}\n",
    );
    for layer in [BASE, TOP] {
        root.write(
            &format!("{STORE}/overlay/{layer}/link"),
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        );
        fs::create_dir_all(root.path(&format!("{STORE}/overlay/{layer}/diff"))).unwrap();
    }
    root.write(
        &format!("{STORE}/overlay/{TOP}/lower"),
        "l/ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    );
}

/// Removes a part of the base layer's directory, or all of it.
fn gone(root: &TestRoot, part: &str) {
    fs::remove_dir_all(root.path(&format!("{STORE}/overlay/{BASE}/{part}"))).unwrap();
}

/// What CRI-O leaves while it runs, and so after a power cut.
pub(super) fn cut_off(root: &TestRoot) {
    store(root);
    root.write(SUPPORTED, "");
    root.write(
        UNIT,
        "[Service]\nType=oneshot\nExecStart=/usr/bin/crio wipe\n",
    );
}

const WIPE: Branch = Branch {
    id: "FP-48",
    severity: "warning",
    what: "the next boot removes all container images",
    seen: &[
        "1 image, 2.0 GiB",
        "File /var/lib/crio/clean.shutdown not found. Wiping storage directory /var/lib/containers/storage because of suspected unclean shutdown",
        "create-file",
    ],
    next: &["install -m 0644 /dev/null ROOT/var/lib/crio/clean.shutdown"],
};

const fn damaged(seen: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-48",
        severity: "warning",
        what: "layers or data of container images are damaged",
        seen,
        next: &["mv ROOT/var/lib/containers/storage "],
    }
}

#[rustfmt::skip]
const ROWS: [Row; 17] = [
    sick(cut_off, WIPE),
    // An image that no registry has is gone for ever.
    sick(|root| { cut_off(root); let file = format!("{STORE}/overlay-images/images.json"); root.write(&file, &root.read(&file).replace("quay.example", "localhost")); },
        Branch { severity: "critical", seen: &["localhost/a:1", "is in no registry"], ..WIPE }),
    well("FP-48", store),
    well("FP-48", |root| { cut_off(root); root.write(CLEAN, ""); }),
    well("FP-48", |root| { cut_off(root); root.remove(SUPPORTED); }),
    well("FP-48", |root| { cut_off(root); root.remove(UNIT); }),
    well("FP-48", |root| { cut_off(root); root.link("etc/systemd/system/crio-wipe.service", "/dev/null"); }),
    well("FP-48", |root| { cut_off(root); root.write(&format!("{STORE}/overlay-images/images.json"), "[]"); }),
    sick(|root| { store(root); root.write(&format!("{STORE}/overlay/{TOP}/lower"), ""); },
        damaged(&["overlay/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/lower", "empty"])),
    sick(|root| { store(root); root.write(&format!("{STORE}/overlay/{BASE}/link"), ""); },
        damaged(&["overlay/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/link", "empty"])),
    sick(|root| { store(root); root.remove(&format!("{STORE}/overlay/{TOP}/lower")); }, damaged(&["lower is missing"])),
    sick(|root| { store(root); gone(root, "diff"); }, damaged(&["diff is missing"])),
    sick(|root| { store(root); gone(root, ""); }, damaged(&["overlay/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "is missing"])),
    sick(|root| { store(root); root.write(&format!("{STORE}/overlay-images/{IMAGE}/manifest"), ""); },
        damaged(&["manifest", "has 0 bytes instead of 2"])),
    sick(|root| { store(root); root.write(&format!("{STORE}/overlay-images/{IMAGE}/=c2hhMjU2OjEyMw=="), "{"); },
        damaged(&["has 1 bytes instead of 4"])),
    sick(|root| { store(root); root.write(&format!("{STORE}/overlay-containers/containers.json"), ""); },
        damaged(&["containers.json", "empty"])),
    sick(|root| { store(root); let file = format!("{STORE}/overlay-layers/layers.json");
            let text = root.read(&file); root.write(&file, &text.replace(&format!("\"id\":\"{TOP}\""), &format!("\"flags\":{{\"incomplete\":true}},\"id\":\"{TOP}\""))); },
        damaged(&["is marked incomplete"])),
];

#[test]
fn the_next_boot_and_damage_in_the_store_are_reported() {
    all_met(&ROWS);
}

#[test]
fn a_damaged_store_is_not_kept_over_the_boot() {
    let root = healthy();
    cut_off(&root);
    root.write(&format!("{STORE}/overlay/{TOP}/link"), "");
    let all = of(&doctor(&root), "FP-48");
    assert_eq!(all.len(), 2, "{all:#?}");
    for one in all {
        assert_eq!(one["fix"], Value::Null);
        assert!(!one.to_string().contains("install -m"), "{one:#}");
    }
}

#[test]
fn on_a_node_that_runs_the_marks_are_as_they_should_be() {
    live(|node| {
        record_on(node, |_| {});
        cut_off(&node.root);
        assert_eq!(of(&doctor_on(node), "FP-48"), Vec::<Value>::new());
        let answer = |crio: &str| {
            format!(
                "case $* in *SubState*) printf 'Id=crio-wipe.service\\nActiveState=failed\\nSubState=failed\\n\\n\
                 Id=crio.service\\nActiveState={crio}\\nSubState=dead\\n' ;; *) exit 1 ;; esac"
            )
        };
        node.program("systemctl", &answer("inactive"));
        says(
            &found(&doctor_on(node), "FP-48", "critical"),
            &[
                "crio-wipe.service failed",
                "podman ps -a",
                "crio wipe --force",
            ],
        );
        node.program("systemctl", &answer("active"));
        found(&doctor_on(node), "FP-48", "warning");
    });
}

/// Adds a blob to an OCI directory.
fn put(directory: &std::path::Path, bytes: &[u8], kind: &str) -> Value {
    let digest = Digest::of_bytes(bytes).to_string();
    let path = directory.join("blobs").join(digest.replace(':', "/"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let kind = format!("application/vnd.oci.image.{kind}");
    json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
}

fn layer(name: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, &b"abc"[..]).unwrap();
    tar.into_inner().unwrap()
}

/// The store of the real library: skopeo copies an image of two layers into it.
#[test]
fn a_store_that_skopeo_fills_is_sound_until_a_file_of_it_is_emptied() {
    let root = healthy();
    let outer = tempfile::tempdir().unwrap();
    let oci = outer.path().join("oci");
    let layers = ["a", "b"].map(layer);
    let ids = layers
        .each_ref()
        .map(|layer| Digest::of_bytes(layer).to_string());
    let config = json!({"architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": ids}});
    let config = put(&oci, config.to_string().as_bytes(), "config.v1+json");
    let layers = layers.map(|layer| put(&oci, &layer, "layer.v1.tar"));
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": layers});
    let manifest = put(&oci, manifest.to_string().as_bytes(), "manifest.v1+json");
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(oci.join("index.json"), index.to_string()).unwrap();
    fs::write(oci.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let graph = root.path(STORE);
    let run = outer.path().join("run");
    let place = format!("[overlay@{}+{}]", graph.display(), run.display());
    let copied = Command::new("skopeo")
        .args(["--insecure-policy", "copy", "--quiet"])
        .arg(format!("oci:{}", oci.display()))
        .arg(format!("containers-storage:{place}quay.example/a:1"))
        .output();
    match copied {
        Err(_) => return skip(Lacks::Setup, "skopeo is not installed"),
        Ok(output) if !output.status.success() => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return skip(
                Lacks::Machine,
                &format!("skopeo has no overlay here: {why}"),
            );
        }
        Ok(_) => {}
    }
    let overlay = graph.join("overlay");
    // The library leaves a mount of the directory on itself.
    let _ = Command::new("umount").arg(&overlay).output();
    assert_eq!(doctor(&root)["findings"], json!([]));
    let lower = fs::read_dir(&overlay).unwrap();
    let lower = lower.map(|entry| entry.unwrap().path().join("lower"));
    let lower = lower.into_iter().find(|path| path.exists()).unwrap();
    fs::write(&lower, "").unwrap();
    says(
        &found(&doctor(&root), "FP-48", "warning"),
        &["/lower", "empty"],
    );
}
