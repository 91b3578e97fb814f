//! Images through a capsule: a policy that demands one, a signed checksum of the content in place of other nodes, and OCI media.
//! ostree, skopeo and ssh-keygen are the real ones; rpm-ostree is a named stub.

use std::fs;
use std::path::Path;
use std::process::Command;

use mco_rescue::node::images::Digest;
use serde_json::Value;

use super::siblings::{From, bring, objects, pivot, proofs, sibling};
use crate::capsule::keys::{SigningKey, make_key, sign};
use crate::support::faults::copy_tree;
use crate::support::images::{ImageRepository, NEW_REF, REPOSITORY, content_of, ostree, receiver};
use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{NEXT, OstreeNode};
use crate::support::{Lacks, Run, TestRoot, copy_program, flat, flat_run, oci, skip};

pub(super) const KNOWN: &str = "var/lib/mco-rescue/capsules.json";

/// Makes a node demand a capsule for images, by a new key; `None` without `ssh-keygen`.
pub(super) fn demand(node: &OstreeNode, keys: &Path) -> Option<SigningKey> {
    let key = make_key(keys, "key", &["ed25519"])?;
    let line = format!("alice@example.com {}\n", key.public);
    node.root.write("etc/mco-rescue/allowed_signers", &line);
    node.root
        .write("etc/mco-rescue/policy", "images = required\n");
    Some(key)
}

/// Makes the capsule of the node's `/media`, as somebody does at a desk.
pub(super) fn make(node: &OstreeNode, key: &SigningKey, more: &[&str]) {
    let media = node.root.path("media").display().to_string();
    let key = key.file.display().to_string();
    let args = [&["capsule", "make", &media, "--sign", &key], more].concat();
    TestRoot::new().run(&args).ok();
}

/// Changes the list, and signs it again.
fn change(node: &OstreeNode, key: &SigningKey, change: impl Fn(&mut Value)) {
    let list = node.root.path("media/capsule.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    change(&mut value);
    fs::write(&list, value.to_string()).unwrap();
    let signature = sign(&key.file, "mco-rescue-capsule", &list, &[]);
    fs::write(node.root.path("media/capsule.json.sig"), signature).unwrap();
}

fn said(run: &Run) -> String {
    flat_run(run) + &flat(&run.err())
}

#[test]
fn the_signed_content_of_an_image_vouches_for_it_and_nothing_else_is_read() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let content = content_of(&repository.path, NEW_REF);
    for from in [From::Directory, From::Archive, From::Stream, From::Disk] {
        with_mounts(|| {
            let node = receiver(false);
            let keys = tempfile::tempdir().unwrap();
            let Some(key) = demand(&node, keys.path()) else {
                return;
            };
            // A whole disk is nothing to list: the export of another node says what is on it.
            match from {
                From::Disk => drop(bring(&node, &sibling, From::Directory)),
                _ => drop(bring(&node, &sibling, from)),
            }
            let [one, two] = proofs(&node, &sibling);
            let trusted = ["--os-proof", &one, "--os-proof", &two];
            let refused = said(&pivot(&node, from, &trusted).exits(1));
            assert!(refused.contains("images = required"), "{from:?}: {refused}");
            make(&node, &key, &["--sequence", "7"]);
            let verified = said(&node.run(&["capsule", "verify", "/media"]).ok());
            let image = "Images 1 image, compared when a node imports it";
            assert!(verified.contains(image), "{from:?}: {verified}");
            if from == From::Disk {
                bring(&node, &sibling, from);
            }
            let through: &[&str] = match from {
                From::Stream => &["--capsule", "/media"],
                _ => &[],
            };
            let run = pivot(&node, from, through).ok();
            let words = flat_run(&run);
            assert!(
                words.contains(&format!("{content} is the content of"))
                    && words.contains("signed by alice@example.com"),
                "{from:?}: {words}"
            );
            let there = node.root.path(REPOSITORY);
            ostree(&there, &["fsck"]);
            assert_eq!(content_of(&there, NEW_REF), content);
            assert!(node.root.read("stub/staged").contains(NEXT));
            assert!(node.root.read(KNOWN).contains("\"sequence\": 7"));
        });
    }
}

#[test]
fn an_image_that_is_not_the_signed_one_is_not_staged() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    with_mounts(|| {
        let node = receiver(false);
        let keys = tempfile::tempdir().unwrap();
        let Some(key) = demand(&node, keys.path()) else {
            return;
        };
        bring(&node, &sibling, From::Directory);
        let [one, two] = proofs(&node, &sibling);
        let trusted = ["--os-proof", &one, "--os-proof", &two];
        let before = objects(&node.root.path(REPOSITORY));
        let refused = |args: &[&str], words: &str| {
            let said = said(&pivot(&node, From::Directory, args).exits(1));
            assert!(said.contains(words), "{words}: {said}");
            assert!(!node.root.exists("stub/staged") && !node.root.exists(KNOWN));
            assert_eq!(objects(&node.root.path(REPOSITORY)), before);
        };
        // Two healthy nodes and the override of another doubt change nothing.
        make(&node, &key, &[]);
        change(&node, &key, |list| {
            list["images"] = Value::Array(Vec::new())
        });
        for args in [&[][..], &trusted, &["--unproven-image"]] {
            refused(args, "does not have an image with the digest sha256:2222");
        }
        make(&node, &key, &[]);
        change(&node, &key, |list| {
            list["images"][0]["content_checksum"] = Value::from("0".repeat(64));
        });
        for args in [&[][..], &trusted, &["--unproven-image"]] {
            refused(args, "one of the two was changed");
        }
        make(&node, &key, &[]);
        change(&node, &key, |list| {
            list["images"][0]["layers_checksum"] = Value::from("0".repeat(64));
        });
        for args in [&[][..], &trusted, &["--unproven-image"]] {
            refused(args, "the checksum of its layers is");
        }
        // One without the other says too little.
        make(&node, &key, &[]);
        change(&node, &key, |list| {
            list["images"][0]["layers_checksum"] = Value::Null;
        });
        refused(&trusted, "without digests");
        fs::remove_file(node.root.path("media/capsule.json")).unwrap();
        // The digest alone is signed: then others have to vouch for the content, as ever.
        make(&node, &key, &[]);
        change(&node, &key, |list| {
            for key in ["content_checksum", "layers_checksum"] {
                list["images"][0][key] = Value::Null;
            }
        });
        refused(&[], "no other node vouches");
        make(&node, &key, &["--node", "worker-9"]);
        refused(&trusted, "is for node worker-9, and this node is");
        fs::remove_file(node.root.path("media/capsule.json.sig")).unwrap();
        refused(&trusted, "the signature of");
    });
}

/// What is done to a stick after it was checked, when the image is about to be pulled from it.
#[test]
fn a_stick_that_changes_before_the_pull_brings_nothing_but_the_signed_image() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    // An image of the same name and digest by somebody else: the manifest is the same, the files are not.
    let content = content_of(&repository.path, NEW_REF);
    let [_, added] = ImageRepository::layer_refs();
    let layer = content_of(&repository.path, &added);
    let hook = "mv /media/os /media/was;";
    for (what, swap) in [
        ("a link to another export", "ln -s /evil /media/os"),
        ("another export", "cp -r /evil /media/os"),
        (
            "the ref of another commit",
            "cp -r /media/was /media/os; cp -r /evil/refs /evil/objects /media/os/",
        ),
        (
            "an object with other bytes",
            "cp -r /media/was /media/os; for f in /media/os/objects/*/*.filez; do printf x >>$f; done",
        ),
        (
            "the refs of other layers",
            "cp -r /media/was /media/os; cp -r /false-layer/refs /false-layer/objects /media/os/",
        ),
        ("nothing", "true"),
        (
            "another capsule",
            "cp -r /media/was /media/os; rm /media/capsule.json /media/capsule.json.sig",
        ),
    ] {
        with_mounts(|| {
            let node = receiver(false);
            let keys = tempfile::tempdir().unwrap();
            let Some(key) = demand(&node, keys.path()) else {
                return;
            };
            for program in ["/bin/mv", "/bin/cp", "/bin/ln"] {
                copy_program(&node.root, program);
            }
            bring(&node, &sibling, From::Directory);
            make(&node, &key, &["--sequence", "7"]);
            for (name, has_other_tree) in [("evil", true), ("false-layer", false)] {
                let evil = TestRoot::new();
                let other = ImageRepository::new(&evil.path(REPOSITORY)).unwrap();
                if has_other_tree {
                    other.import_release("2026-05-05T00:00:00Z", "evil");
                } else {
                    other.import_new("2026-02-02T00:00:00Z");
                }
                other.replace_layer();
                let target = node.root.path(name).display().to_string();
                evil.run(&["image", "export", &target, "--image", NEXT])
                    .ok();
            }
            let stub = node.root.read("usr/sbin/ostree");
            let stub = stub.split_once('\n').unwrap().1;
            node.program(
                "ostree",
                &format!("if [ \"$1\" = pull-local ]; then {hook} {swap}; fi\n{stub}"),
            );
            let run = pivot(&node, From::Directory, &[]);
            let there = node.root.path(REPOSITORY);
            ostree(&there, &["fsck"]);
            let is_staged = node.root.exists("stub/staged");
            assert_eq!(run.code() == 0, is_staged, "{what}: {}", said(&run));
            assert_eq!(is_staged, node.root.exists(KNOWN), "{what}");
            if is_staged {
                assert_eq!(content_of(&there, NEW_REF), content, "{what}");
                assert_eq!(content_of(&there, &added), layer, "{what}");
            } else {
                // The stick as it was is read by the same command.
                fs::remove_dir_all(node.root.path("media/os"))
                    .or_else(|_| fs::remove_file(node.root.path("media/os")))
                    .ok();
                fs::rename(node.root.path("media/was"), node.root.path("media/os")).unwrap();
                node.program("ostree", stub);
                pivot(&node, From::Directory, &[]).ok();
                assert_eq!(content_of(&there, NEW_REF), content, "{what}");
                assert_eq!(content_of(&there, &added), layer, "{what}");
                assert!(node.root.read(KNOWN).contains("\"sequence\": 7"));
            }
        });
    }
}

/// An OCI directory and an archive of it on the node's stick; gives the image.
fn oci_media(node: &OstreeNode) -> String {
    let media = node.root.path("media");
    fs::create_dir_all(&media).unwrap();
    let image = format!("quay.example/os@{}", oci::image(&media.join("oci")));
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(media.join("oci.tar"));
    tar.arg("-C").arg(media.join("oci")).arg(".");
    assert!(tar.status().unwrap().success());
    copy_program(&node.root, "/usr/bin/skopeo");
    fs::create_dir_all(node.root.path("var/tmp")).unwrap();
    let storage = "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers\"\ngraphroot = \"/var/lib/containers\"\n";
    node.root.write("etc/containers/storage.conf", storage);
    image
}

/// Makes the index of an OCI directory name another image.
fn put_another_manifest(dir: &Path) {
    let index = dir.join("index.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    let descriptor = &mut value["manifests"][0];
    let manifest = fs::read(oci::blob(dir, descriptor)).unwrap();
    let mut manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest["annotations"] = serde_json::json!({"by": "somebody else"});
    let text = manifest.to_string();
    descriptor["digest"] = Value::from(Digest::of_bytes(text.as_bytes()).to_string());
    descriptor["size"] = Value::from(text.len());
    fs::write(oci::blob(dir, descriptor), text).unwrap();
    fs::write(index, value.to_string()).unwrap();
}

fn pivot_oci(node: &OstreeNode, image: &str, from: &str) -> Run {
    let fixed = ["pivot", "--yes", image, "--os-from", from];
    let all = [&fixed[..], &["--accept-risk", "boot-filesystem"]].concat();
    node.run(&all)
}

#[test]
fn an_image_on_oci_media_is_read_if_the_capsule_has_its_digest() {
    if !Path::new("/usr/bin/skopeo").exists() {
        return skip(
            Lacks::Setup,
            "skopeo is not installed; no image is brought from a medium",
        );
    }
    for from in ["/media/oci", "/media/oci.tar"] {
        with_mounts(|| {
            let node = OstreeNode::new();
            // A mount point, as the root of a system is: skopeo leaves it for another one.
            let top = node.root.dir().to_str().unwrap();
            mount(&["--rbind", top, top]);
            let keys = tempfile::tempdir().unwrap();
            let Some(key) = demand(&node, keys.path()) else {
                return;
            };
            let image = oci_media(&node);
            let refused = |words: &str| {
                let said = said(&pivot_oci(&node, &image, from).exits(1));
                assert!(said.contains(words), "{from} {words}: {said}");
                assert!(!node.root.exists("stub/staged") && !node.root.exists(KNOWN));
            };
            refused("images = required");
            // Its files are listed, and it is not.
            make(&node, &key, &["--sequence", "7"]);
            refused("--image NAME@sha256:");
            let other = format!("quay.example/os@sha256:{}", "9".repeat(64));
            make(&node, &key, &["--sequence", "7", "--image", &other]);
            refused("does not have an image with the digest");
            make(&node, &key, &["--sequence", "7", "--image", &image]);
            // Changed after it was checked, when it is about to be copied: the digest in its name is that of the copy.
            for program in ["/bin/cp", "/bin/mv"] {
                copy_program(&node.root, program);
            }
            let evil = node.root.path("evil");
            fs::create_dir_all(&evil).unwrap();
            copy_tree(&node.root.path("media/oci"), &evil);
            put_another_manifest(&evil);
            fs::create_dir_all(node.root.path("evils")).unwrap();
            let mut tar = Command::new("tar");
            tar.arg("-cf").arg(node.root.path("evils/oci.tar"));
            tar.arg("-C").arg(&evil).arg(".");
            assert!(tar.status().unwrap().success());
            fs::rename(&evil, node.root.path("evils/oci")).unwrap();
            node.program(
                "skopeo",
                &format!("case $* in *copy*) mv {from} /was; cp -r /evils/{} {from} ;; esac\nexec /usr/bin/skopeo \"$@\"", from.trim_start_matches("/media/")),
            );
            let run = pivot_oci(&node, &image, from);
            assert_ne!(run.code(), 0, "{from}: {}", said(&run));
            assert!(!node.root.exists("stub/staged") && !node.root.exists(KNOWN));
            node.program("skopeo", "exec /usr/bin/skopeo \"$@\"");
            let there = node.root.path(from.trim_start_matches('/'));
            fs::remove_dir_all(&there)
                .or_else(|_| fs::remove_file(&there))
                .unwrap();
            fs::rename(node.root.path("was"), there).unwrap();
            let run = pivot_oci(&node, &image, from).ok();
            let words = flat_run(&run);
            assert!(words.contains(" is signed by alice@example.com"), "{words}");
            assert!(node.root.read("stub/staged").contains(&image));
            assert!(node.root.read(KNOWN).contains("\"sequence\": 7"));
        });
    }
}
