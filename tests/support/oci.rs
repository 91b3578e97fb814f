//! A small image of one layer, as an OCI directory, made by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mco_rescue::node::images::Digest;
use serde_json::{Value, json};

/// Makes the directory; gives the digest of the image. The layer has a version, a kernel and an init, as an ordinary
/// user's would be.
pub fn image(dir: &Path) -> String {
    let put = |bytes: &[u8], kind: &str| put(dir, bytes, kind);
    let layer = tar_of_a_file();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Labels": {"ostree.bootable": "true"}},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of_bytes(&layer).to_string()]},
    });
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(config.to_string().as_bytes(), "config.v1+json"),
        "layers": [put(&layer, "layer.v1.tar")],
    });
    finish(
        dir,
        put(manifest.to_string().as_bytes(), "manifest.v1+json"),
    )
}

/// Makes the directory, from the image of another one and the `usr` in `layer`; gives the digest of the image.
pub fn derived(from: &Path, dir: &Path, layer: &Path, version: &str) -> String {
    let read = |descriptor: &Value| -> Value {
        serde_json::from_slice(&fs::read(blob(from, descriptor)).unwrap()).unwrap()
    };
    let index: Value = serde_json::from_slice(&fs::read(from.join("index.json")).unwrap()).unwrap();
    let mut manifest = read(&index["manifests"][0]);
    let mut config = read(&manifest["config"]);
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    for kept in manifest["layers"].as_array().unwrap() {
        fs::hard_link(blob(from, kept), blob(dir, kept)).unwrap();
    }
    // Without padding: a reader that stops at the end of the archive does not leave a rest to its writer.
    let options = [
        "--owner=0",
        "--group=0",
        "--mtime=@0",
        "--blocking-factor=1",
    ];
    let layer = tar(&options, layer, &["usr"]);
    let push = |list: &mut Value, one: Value| list.as_array_mut().unwrap().push(one);
    push(&mut manifest["layers"], put(dir, &layer, "layer.v1.tar"));
    let id = Digest::of_bytes(&layer).to_string();
    push(&mut config["rootfs"]["diff_ids"], json!(id));
    push(&mut config["history"], json!({"created_by": "a layer"}));
    for label in ["version", "org.opencontainers.image.version"] {
        config["config"]["Labels"][label] = json!(version);
    }
    manifest["config"] = put(dir, config.to_string().as_bytes(), "config.v1+json");
    finish(
        dir,
        put(dir, manifest.to_string().as_bytes(), "manifest.v1+json"),
    )
}

/// The digest of the one image of a directory.
pub fn digest(dir: &Path) -> String {
    let index: Value = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

/// Where the layout has what a descriptor names.
pub fn blob(dir: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap();
    dir.join("blobs").join(digest.replace(':', "/"))
}

fn put(dir: &Path, bytes: &[u8], kind: &str) -> Value {
    let digest = Digest::of_bytes(bytes).to_string();
    let kind = format!("application/vnd.oci.image.{kind}");
    let descriptor = json!({"mediaType": kind, "digest": digest, "size": bytes.len()});
    let path = blob(dir, &descriptor);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    descriptor
}

fn finish(dir: &Path, manifest: Value) -> String {
    let digest = manifest["digest"].as_str().unwrap().to_owned();
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    let layout = r#"{"imageLayoutVersion": "1.0.0"}"#;
    fs::write(dir.join("oci-layout"), layout).unwrap();
    digest
}

fn tar_of_a_file() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("os-version"), "2.0\n").unwrap();
    // What preflight asks of an image that boots.
    for file in ["usr/lib/modules/6.12.0/vmlinuz", "usr/lib/systemd/systemd"] {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let owner = ["--owner=1000", "--group=1000"];
    tar(&owner, dir.path(), &["os-version", "usr"])
}

fn tar(options: &[&str], dir: &Path, what: &[&str]) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args(options).args(["-cf", "-", "-C"]);
    let output = tar.arg(dir).args(what).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
