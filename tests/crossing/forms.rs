//! An image has the same files in every form: unpacked, as an OCI directory or archive with OSTree's objects or plain layers,
//! and in containers-storage.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use mco_rescue::host::root::Root;
use mco_rescue::node::images::Digest;
use mco_rescue::node::images::manifest::go_architecture;
use mco_rescue::node::images::medium::Medium;
use mco_rescue::node::images::tree::{ImageTree, read_directory, read_image, read_stored};
use serde_json::{Map, Value, json};

use super::{KERNEL, Lab};
use crate::support::{TestRoot, flat_run};

/// The packing of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    /// Two frames, as `zstd:chunked` has several.
    Zstd,
}

/// An entry of a layer.
#[derive(Debug)]
pub enum Entry<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
    HardLink(&'a str, &'a str),
}

pub fn tar_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        match entry {
            Entry::File(path, bytes) => {
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, path, *bytes).unwrap();
            }
            Entry::Link(path, to) => {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, path, to).unwrap();
            }
            Entry::HardLink(path, to) => {
                header.set_entry_type(tar::EntryType::Link);
                builder.append_link(&mut header, path, to).unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

fn pack(bytes: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            let mut all = ruzstd::encoding::compress_to_vec(first, level);
            // A frame that readers skip.
            all.extend([0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            all.extend(ruzstd::encoding::compress_to_vec(second, level));
            all
        }
    }
}

/// Makes an OCI directory of these layers.
pub fn oci(dir: &Path, layers: &[Vec<u8>]) {
    let own = go_architecture(std::env::consts::ARCH);
    oci_with(dir, layers, &[("containers.bootc", "1")], own);
}

/// Makes an OCI directory of these layers, labels, and this architecture.
pub fn oci_with(dir: &Path, layers: &[Vec<u8>], labels: &[(&str, &str)], architecture: &str) {
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    let put = |bytes: &[u8], kind: &str| -> Value {
        let digest = Digest::of_bytes(bytes);
        fs::write(dir.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest.to_string(), "size": bytes.len()})
    };
    let labels: Map<String, Value> = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Labels": labels}});
    let layers: Vec<Value> = layers.iter().map(|one| put(one, "layer.v1.tar")).collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(config.to_string().as_bytes(), "config.v1+json"), "layers": layers,
    });
    let index = json!({"schemaVersion": 2, "manifests": [put(manifest.to_string().as_bytes(), "manifest.v1+json")]});
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// The files of an image, as they are to come out of every form.
struct Files {
    release: Vec<u8>,
    initramfs: Vec<u8>,
    alias: Vec<u8>,
}

fn files() -> Files {
    // The archive before is plain, as microcode is, and the one after packed.
    let mut initramfs = cpio(&["kernel/x86/microcode/GenuineIntel.bin"]);
    let modules = cpio(&[
        "usr/lib/modules/x/kernel/drivers/block/virtio_blk.ko.xz",
        "usr/lib/modules/x/kernel/drivers/scsi/sd-mod.ko",
    ]);
    initramfs.extend(pack(&modules, Packing::Zstd));
    Files {
        release: b"ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=10.0\n".to_vec(),
        initramfs,
        alias: b"alias pci:v00001AF4d* virtio_pci\n".to_vec(),
    }
}

/// Writes an archive of the format newc with empty files of these names.
pub fn cpio(names: &[&str]) -> Vec<u8> {
    let mut all = Vec::new();
    for name in names.iter().chain(&["TRAILER!!!"]) {
        let mut fields = [0u32; 13];
        fields[1] = 0o100_644;
        fields[11] = u32::try_from(name.len()).unwrap() + 1;
        all.extend(b"070701");
        for field in fields {
            all.extend(format!("{field:08x}").bytes());
        }
        all.extend(name.bytes());
        all.push(0);
        while all.len() % 4 != 0 {
            all.push(0);
        }
    }
    while all.len() % 512 != 0 {
        all.push(0);
    }
    all
}

/// The directory with the files themselves.
fn unpacked() -> TestRoot {
    let root = TestRoot::empty();
    let files = files();
    let put = |path: &str, bytes: &[u8]| {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("usr/lib/os-release", &files.release);
    put(&format!("usr/lib/modules/{KERNEL}/vmlinuz"), b"kernel");
    put(
        &format!("usr/lib/modules/{KERNEL}/initramfs.img"),
        &files.initramfs,
    );
    put(
        &format!("usr/lib/modules/{KERNEL}/modules.alias"),
        &files.alias,
    );
    put("usr/bin/crun", b"crun");
    put("usr/etc/crio/crio.conf.d/00-default", b"[crio]\n");
    fs::create_dir_all(root.path("usr/lib64")).unwrap();
    symlink("libc-2.39.so", root.path("usr/lib64/libc.so.6")).unwrap();
    root
}

/// Layers with OSTree's objects: one link comes after its object, one after another object, and two share one.
fn with_objects(packing: Packing) -> Vec<Vec<u8>> {
    let files = files();
    let object = |n: u8| {
        format!(
            "./sysroot/ostree/repo/objects/{n:02x}/{}.file",
            "a".repeat(62)
        )
    };
    let (a, b, c, d) = (object(1), object(2), object(3), object(4));
    let kernel = |name: &str| format!("usr/lib/modules/{KERNEL}/{name}");
    let (vmlinuz, image, alias) = (
        kernel("vmlinuz"),
        format!("./{}", kernel("initramfs.img")),
        kernel("modules.alias"),
    );
    let first = tar_of(&[
        Entry::File(&a, &files.release),
        Entry::File(&b, &files.alias),
        Entry::HardLink("usr/lib/os-release", a.trim_start_matches("./")),
        Entry::HardLink(&alias, &b),
        Entry::File(&c, b"kernel"),
        Entry::HardLink(&vmlinuz, &c),
    ]);
    let second = tar_of(&[
        Entry::File(&d, &files.initramfs),
        Entry::HardLink(&image, &d),
        Entry::File("etc/crio/crio.conf.d/00-default", b"[crio]\n"),
        Entry::File("usr/bin/runc", b"runc"),
        Entry::File("usr/libexec/crio/conmon", b"x"),
        Entry::Link("usr/lib64/libc.so.6", "libc-2.39.so"),
    ]);
    // An upper layer takes away, and brings.
    let third = tar_of(&[
        Entry::File("usr/bin/.wh.runc", b""),
        Entry::File("usr/libexec/crio/.wh..wh..opq", b""),
        Entry::File("usr/bin/crun", b"crun"),
    ]);
    let layers = [first, second, third];
    layers.iter().map(|layer| pack(layer, packing)).collect()
}

fn read(path: &Path) -> ImageTree {
    let medium = Medium::open(path).unwrap();
    let image = medium.describe_image(None, "amd64").unwrap();
    read_image(&medium, &image).unwrap()
}

#[test]
fn every_form_of_an_image_has_the_same_files() {
    let root = unpacked();
    let wanted = read_directory(&Root::open(root.dir()).unwrap(), "x").unwrap();
    let modules = &wanted.initramfs.as_ref().unwrap().modules;
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    assert_eq!(modules, ["sd_mod", "virtio_blk"]);
    assert_eq!(wanted.files.len(), 7, "{:?}", wanted.files.keys());
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        let scratch = TestRoot::empty();
        let dir = scratch.path("oci");
        oci(&dir, &with_objects(packing));
        let found = read(&dir);
        assert_eq!(found.files, wanted.files, "{packing:?}");
        assert_eq!(found.initramfs, wanted.initramfs, "{packing:?}");
        assert_eq!(found.labels["containers.bootc"], "1");
        let archive = scratch.path("image.tar");
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        builder.append_dir_all(".", &dir).unwrap();
        builder.finish().unwrap();
        let archived = read(&archive);
        assert_eq!(archived.files, wanted.files, "{packing:?}");
        assert_eq!(archived.initramfs, wanted.initramfs, "{packing:?}");
    }
}

/// Puts the layers into a storage as podman does, each unpacked into a directory.
fn storage(root: &TestRoot, name: &str) {
    let store = "var/lib/containers/storage";
    let files = files();
    let layer = |id: &str, file: &str, bytes: &[u8]| {
        let path: PathBuf = root.path(&format!("{store}/overlay/{id}/diff/{file}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let kernel = |name: &str| format!("usr/lib/modules/{KERNEL}/{name}");
    layer("l1", "usr/lib/os-release", b"ID=old\n");
    layer("l1", &kernel("vmlinuz"), b"kernel");
    layer("l1", &kernel("initramfs.img"), &files.initramfs);
    layer("l1", &kernel("modules.alias"), &files.alias);
    layer("l2", "usr/lib/os-release", &files.release);
    layer("l2", "usr/bin/crun", b"crun");
    layer("l2", "etc/crio/crio.conf.d/00-default", b"[crio]\n");
    fs::create_dir_all(root.path(&format!("{store}/overlay/l2/diff/usr/lib64"))).unwrap();
    let libc = root.path(&format!("{store}/overlay/l2/diff/usr/lib64/libc.so.6"));
    symlink("libc-2.39.so", libc).unwrap();
    let layers = json!([{"id": "l1"}, {"id": "l2", "parent": "l1"}]);
    root.write(
        &format!("{store}/overlay-layers/layers.json"),
        &layers.to_string(),
    );
    let images = json!([{"id": "c0ffee", "names": [name], "layer": "l2"}]);
    root.write(
        &format!("{store}/overlay-images/images.json"),
        &images.to_string(),
    );
    let config = STANDARD.encode("sha256:c0ffee");
    root.write(
        &format!("{store}/overlay-images/c0ffee/={config}"),
        r#"{"architecture": "amd64", "config": {"Labels": {"containers.bootc": "1"}}}"#,
    );
}

#[test]
fn an_image_in_containers_storage_has_the_same_files() {
    let name = "quay.example/os@sha256:1";
    let node = TestRoot::new();
    storage(&node, name);
    let root = unpacked();
    let wanted = read_directory(&Root::open(root.dir()).unwrap(), "x").unwrap();
    let opened = Root::open(node.dir()).unwrap();
    let found = read_stored(&opened, name).unwrap().unwrap();
    assert_eq!(found.files, wanted.files);
    assert_eq!(found.initramfs, wanted.initramfs);
    assert_eq!(found.architecture.as_deref(), Some("amd64"));
    assert_eq!(read_stored(&opened, "quay.example/other:1"), Ok(None));
}

#[test]
fn a_damaged_layer_is_an_error_and_not_a_healthy_image() {
    let scratch = TestRoot::empty();
    let dir = scratch.path("oci");
    let mut layers = with_objects(Packing::Gzip);
    let length = layers[1].len();
    layers[1].truncate(length / 2);
    oci(&dir, &layers);
    let lab = Lab::healthy();
    let run = lab
        .node
        .run(&["preflight", "--os-from", dir.to_str().unwrap()])
        .exits(1);
    assert!(
        flat_run(&run).contains("copy the image to the medium again"),
        "{}",
        flat_run(&run)
    );
    assert_eq!(run.out(), "");
}

#[test]
fn an_initramfs_that_cannot_be_read_says_so() {
    for (begin, words) in [
        (&[0xfd, b'7', b'z', b'X', b'Z', 0][..], "compressed by xz"),
        (&[0x04, 0x22, 0x4d, 0x18, 0, 0][..], "compressed by lz4"),
        (b"no archive", "an unknown program"),
    ] {
        let root = unpacked();
        fs::write(
            root.path(&format!("usr/lib/modules/{KERNEL}/initramfs.img")),
            begin,
        )
        .unwrap();
        let tree = read_directory(&Root::open(root.dir()).unwrap(), "x").unwrap();
        let problem = tree.initramfs.unwrap().problem.unwrap();
        assert!(problem.contains(words), "{problem}");
    }
}
