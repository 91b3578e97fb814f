//! A small image of one layer, as an OCI directory, made by hand.

use std::fs;
use std::path::Path;
use std::process::Command;

use mco_rescue::images::Digest;
use serde_json::{Value, json};

/// Makes the directory; gives the digest of the image. The layer has one file, as an ordinary user's would be.
pub fn image(dir: &Path) -> String {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8], kind: &str| -> Value {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({"mediaType": kind, "digest": digest.to_string(), "size": bytes.len()})
    };
    let layer = tar_of_a_file();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Labels": {"ostree.bootable": "true"}},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer).to_string()]},
    });
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(config.to_string().as_bytes(), "config.v1+json"),
        "layers": [put(&layer, "layer.v1.tar")],
    });
    let manifest = put(manifest.to_string().as_bytes(), "manifest.v1+json");
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
    let mut tar = Command::new("tar");
    tar.args(["--owner=1000", "--group=1000", "-cf", "-", "-C"]);
    let output = tar.arg(dir.path()).arg("os-version").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
