//! The image of an operating system from another node's OSTree repository, without a registry. ostree is the real one; bootc,
//! rpm-ostree and systemd-run are named stubs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::images::{
    ImageRepository, NEW_DIGEST, NEW_REF, REPOSITORY, content_of, ostree, receiver,
};
use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::{BOOTED, IMAGE, NEXT, OstreeNode};
use crate::support::{Run, TestRoot, flat, flat_run};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A healthy node with both images.
pub(super) fn sibling() -> Option<(TestRoot, ImageRepository)> {
    let root = TestRoot::new();
    let repository = ImageRepository::new(&root.path(REPOSITORY))?;
    repository.import_old("2026-01-01T00:00:00Z");
    repository.import_new("2026-02-02T00:00:00Z");
    Some((root, repository))
}

pub(super) fn export(sibling: &TestRoot, args: &[&str]) -> Run {
    let all = [&["image", "export", "--image", NEXT], args].concat();
    sibling.run(&all)
}

/// Objects below a repository, with their paths.
pub(super) fn objects(repository: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for folder in fs::read_dir(repository.join("objects")).unwrap() {
        for object in fs::read_dir(folder.unwrap().path()).unwrap() {
            all.push(object.unwrap().path().display().to_string());
        }
    }
    all.sort();
    all
}

#[test]
fn an_export_is_a_repository_that_ostree_reads() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().join("os");
    let said = flat_run(&export(&sibling, &[directory.to_str().unwrap()]).ok());
    assert!(said.contains(&format!("Exported {NEXT}")), "{said}");
    ostree(&directory, &["fsck"]);
    let content = content_of(&directory, NEW_REF);
    assert_eq!(content, content_of(&repository.path, NEW_REF));
    assert!(said.contains(&content), "{said}");
    // What ostree checks out of it is what the node has, with owners and attributes.
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("repo");
    fs::create_dir(&copy).unwrap();
    ostree(&copy, &["init", "--mode=bare"]);
    let pull = ["pull-local", "--untrusted", "--disable-verify-bindings"];
    ostree(
        &copy,
        &[&pull[..], &[directory.to_str().unwrap(), NEW_REF]].concat(),
    );
    ostree(&copy, &["fsck"]);
    assert_eq!(content_of(&copy, NEW_REF), content);

    // A file and a stream hold the same, and GNU tar unpacks them.
    let file = out.path().join("os.tar");
    export(&sibling, &[file.to_str().unwrap()]).ok();
    let stream = export(&sibling, &["-"]).ok();
    assert_eq!(fs::read(&file).unwrap(), stream.output().stdout);
    let unpacked = out.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&file).arg("-C").arg(&unpacked);
    assert!(tar.status().unwrap().success());
    ostree(&unpacked, &["fsck"]);
    assert_eq!(content_of(&unpacked, NEW_REF), content);
    let listed = |path: &Path| {
        let run = sibling.run(&["image", "list", path.to_str().unwrap(), "-o", "json"]);
        run.ok().json()
    };
    for path in [&directory, &file, &unpacked, &repository.path] {
        let images = listed(path)["images"].clone();
        let new = images
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["image"] == NEXT);
        assert_eq!(
            new.unwrap()["content_checksum"],
            content.as_str(),
            "{images}"
        );
    }
    // Nothing is mixed with files of others.
    let other = out.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter"), "x").unwrap();
    let said = flat(&export(&sibling, &[other.to_str().unwrap()]).exits(1).err());
    assert!(said.contains("it holds other files (letter)"), "{said}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    let again = export(&sibling, &["-o", "json", directory.to_str().unwrap()]);
    let again = again.ok().json();
    assert_eq!(again["content_checksum"], content.as_str());
    // An archive is not overwritten.
    let said = flat(&export(&sibling, &[file.to_str().unwrap()]).exits(1).err());
    assert!(said.contains("give another FILE"), "{said}");
}

#[test]
fn an_export_leaves_out_what_the_receiver_has_and_is_continued() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let receiver = TestRoot::new();
    let other = ImageRepository::new(&receiver.path(REPOSITORY)).unwrap();
    other.import_old("2026-03-03T00:00:00Z");
    let out = tempfile::tempdir().unwrap();
    let [whole, small, named] = ["whole", "small", "named"].map(|name| out.path().join(name));
    export(&sibling, &[whole.to_str().unwrap()]).ok();
    let since = receiver.path(REPOSITORY);
    let run = export(
        &sibling,
        &["--since", since.to_str().unwrap(), small.to_str().unwrap()],
    );
    assert!(flat_run(&run.ok()).contains("that the receiver has"));
    export(&sibling, &["--since", IMAGE, named.to_str().unwrap()]).ok();
    let counts = [&whole, &small, &named].map(|path| objects(path).len());
    assert!(
        counts[1] < counts[0] && counts[2] <= counts[1],
        "{counts:?}"
    );
    // ostree completes the image from it.
    let pull = ["pull-local", "--untrusted", "--disable-verify-bindings"];
    other.ostree(&[&pull[..], &[small.to_str().unwrap(), NEW_REF]].concat());
    other.ostree(&["fsck"]);
    let content = content_of(&repository.path, NEW_REF);
    assert_eq!(content_of(&other.path, NEW_REF), content);
    let unknown = format!("quay.example/os@sha256:{}", "9".repeat(64));
    let run = export(&sibling, &["--since", &unknown, named.to_str().unwrap()]).exits(1);
    assert!(
        flat(&run.err()).contains("leave out --since"),
        "{}",
        run.err()
    );

    // An export that was interrupted: no ref, a file that is not complete, and some that are missing.
    let all = objects(&whole);
    fs::remove_dir_all(whole.join("refs/heads/ostree")).unwrap();
    fs::write(&all[0], "").unwrap();
    fs::remove_file(&all[1]).unwrap();
    export(&sibling, &[whole.to_str().unwrap()]).ok();
    ostree(&whole, &["fsck"]);
    assert_eq!(objects(&whole), all);
}

#[test]
fn a_damaged_or_incomplete_repository_exports_nothing() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("os");
    let target = target.to_str().unwrap();
    let file = repository.ostree(&["ls", "-C", NEW_REF, "/usr/lib/size-65536"]);
    let checksum = file
        .split_whitespace()
        .find(|word| word.len() == 64)
        .unwrap();
    let (first, rest) = checksum.split_at(2);
    let object = repository.path.join(format!("objects/{first}/{rest}.file"));
    let whole = fs::read(&object).unwrap();
    let refused = |why: &str| {
        let run = export(&sibling, &[target]).exits(1);
        let said = flat(&run.err());
        assert!(said.contains(why), "{said}");
        assert!(
            !Path::new(target)
                .join("refs/heads/ostree/container/image")
                .exists()
        );
    };
    fs::write(&object, vec![4; whole.len()]).unwrap();
    refused("is damaged");
    fs::remove_file(&object).unwrap();
    refused("is missing, so the image there is incomplete");
    fs::write(&object, &whole).unwrap();
    // The layers decide what rpm-ostree says of the image.
    let layer = repository.path.join("refs/heads/ostree/container/blob");
    let aside = repository.path.join("blob");
    fs::rename(&layer, &aside).unwrap();
    refused("lacks its layer");
    fs::rename(&aside, &layer).unwrap();
    let run = sibling.run(&["image", "export", "--image", "quay.example/other", target]);
    assert!(flat(&run.exits(1).err()).contains("image list"));
    fs::write(repository.path.join("config"), "[core]\nmode=bare-user\n").unwrap();
    let run = sibling.run(&["image", "list"]).exits(1);
    let said = flat(&run.err());
    assert!(
        said.contains("only bare and archive are supported"),
        "{said}"
    );
    // What cannot be opened is not taken for a medium without images.
    let run = sibling.run(&["image", "list", "/no/medium"]).exits(1);
    let said = flat(&run.err());
    assert!(
        said.contains("check whether the medium is mounted"),
        "{said}"
    );
    // A node without OSTree.
    let run = TestRoot::new().run(&["image", "export", target]).exits(1);
    assert!(run.err().contains("no OSTree repository"), "{}", run.err());
}

/// How a test brings the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum From {
    Directory,
    Archive,
    Stream,
    Disk,
}

/// Puts the image where the node finds it; returns the argument of `--os-from`.
pub(super) fn bring(node: &OstreeNode, sibling: &TestRoot, from: From) -> &'static str {
    let media = node.root.path("media");
    fs::create_dir_all(&media).unwrap();
    let target = |name: &str| media.join(name).display().to_string();
    match from {
        From::Directory => {
            export(sibling, &[&target("os")]).ok();
            "/media/os"
        }
        From::Archive => {
            export(sibling, &[&target("os.tar")]).ok();
            "/media/os.tar"
        }
        From::Stream => {
            let stream = export(sibling, &["-"]).ok();
            fs::write(media.join("stream"), &stream.output().stdout).unwrap();
            "-"
        }
        From::Disk => {
            let disk = media.join("disk");
            fs::create_dir_all(&disk).unwrap();
            let there = sibling.path("sysroot");
            mount(&["--bind", there.to_str().unwrap(), disk.to_str().unwrap()]);
            "/media/disk"
        }
    }
}

/// The command line that takes the image this way.
pub(super) fn pivot_words<'a>(from: From, args: &[&'a str]) -> Vec<&'a str> {
    let path = match from {
        From::Directory => "/media/os",
        From::Archive => "/media/os.tar",
        From::Stream => "-",
        From::Disk => "/media/disk",
    };
    // The boot partition is that of no boot.
    let fixed = [
        "pivot",
        "--yes",
        NEXT,
        "--os-from",
        path,
        "--accept-risk",
        "boot-filesystem",
    ];
    [&fixed, args].concat()
}

/// Standard input of that command.
pub(super) fn pivot_input(node: &OstreeNode, from: From) -> Stdio {
    match from {
        From::Stream => fs::File::open(node.root.path("media/stream"))
            .unwrap()
            .into(),
        _ => Stdio::null(),
    }
}

pub(super) fn pivot(node: &OstreeNode, from: From, args: &[&str]) -> Run {
    node.run_with(&pivot_words(from, args), pivot_input(node, from))
}

/// Lists of two healthy nodes, as files of a node.
pub(super) fn proofs(node: &OstreeNode, sibling: &TestRoot) -> [String; 2] {
    ["w1", "w3"].map(|name| {
        let mut list = sibling.run(&["image", "list", "-o", "json"]).ok().json();
        list["node"] = Value::from(name);
        let path = format!("{name}.json");
        node.root.write(&path, &list.to_string());
        format!("/{path}")
    })
}

#[test]
fn a_node_without_a_registry_comes_to_the_image_of_another_one() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let content = content_of(&repository.path, NEW_REF);
    let [base, added] = ImageRepository::layer_refs();
    for bootc in [false, true] {
        for from in [From::Directory, From::Archive, From::Stream, From::Disk] {
            with_mounts(|| {
                let node = receiver(bootc);
                let there = node.root.path(REPOSITORY);
                bring(&node, &sibling, from);
                let [one, two] = proofs(&node, &sibling);
                let before = objects(&there);
                let own_base = ostree(&there, &["rev-parse", &base]);
                // Nobody vouches for it, and one node is not enough.
                let run = pivot(&node, from, &["--os-proof", &one]).exits(1);
                let said = flat_run(&run);
                assert!(
                    said.contains("only w1 vouches"),
                    "{from:?}: {said}{}",
                    run.err()
                );
                assert!(
                    flat(&run.err()).contains("nothing was changed"),
                    "{}",
                    run.err()
                );
                assert_eq!(objects(&there), before);
                let run = pivot(&node, from, &["--os-proof", &one, "--os-proof", &two]).ok();
                let said = flat_run(&run);
                assert!(
                    said.contains(&format!("{content} is the content of "))
                        && said.contains(" on w1 and w3")
                        && said.contains(NEXT),
                    "{said}"
                );
                ostree(&there, &["fsck"]);
                assert_eq!(content_of(&there, NEW_REF), content);
                // A layer that the node had is not replaced, and the one that it lacked has its ref.
                assert_eq!(ostree(&there, &["rev-parse", &base]), own_base);
                assert_eq!(
                    content_of(&there, &added),
                    content_of(&repository.path, &added)
                );
                let staged = if bootc {
                    node.root.read("stub/bootc-staged")
                } else {
                    node.root.read("stub/staged")
                };
                assert!(staged.contains(NEXT), "{bootc} {from:?}: {staged}");
                assert!(!node.root.exists("var/lib/mco-rescue/image-import"));
                // Only what was missing was written.
                let calls = node.calls();
                assert_eq!(
                    calls
                        .iter()
                        .filter(|call| call.contains("pull-local"))
                        .count(),
                    1
                );
                // The next run needs neither medium nor registry.
                let run = node.run(&["pivot", "--yes", NEXT]).ok();
                assert_eq!(node.calls().len(), calls.len(), "{}", flat_run(&run));
                assert!(node.run(&["rollback", "--yes"]).ok().code() == 0);
                let _ = fs::remove_dir_all(node.root.path("media/os"));
            });
        }
    }
}

#[test]
fn the_status_of_two_siblings_vouches_for_an_image() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let content = content_of(&repository.path, NEW_REF);
    with_mounts(|| {
        let node = receiver(false);
        bring(&node, &sibling, From::Directory);
        // What the node says of itself, once its deployment is a commit of its repository.
        let there = node.root.path(REPOSITORY);
        let old = NEW_REF.replace(&"2".repeat(64), &"1".repeat(64));
        let commit = ostree(&there, &["rev-parse", &old]).trim().to_owned();
        let status = || node.run(&["status", "-o", "json"]).ok().json();
        assert_eq!(status()["images"], serde_json::json!([]));
        let booted = node.root.read("stub/booted").replace(BOOTED, &commit);
        node.root.write("stub/booted", &booted);
        node.root.write(
            "var/lib/kubelet/kubeconfig",
            "clusters: [{name: a, cluster: {server: 'https://api-int.a.example:6443'}}]\n",
        );
        let own = status();
        let listed = node.run(&["image", "list", "-o", "json"]).ok().json();
        let layers = listed["images"][0]["layers_checksum"].clone();
        let image = serde_json::json!([{
            "image": IMAGE, "content_checksum": content_of(&there, &old), "layers_checksum": layers,
        }]);
        assert_eq!(own["images"], image, "{own:#}");
        assert_eq!(own["node"], listed["node"]);
        assert_eq!(own["api_server"], listed["api_server"]);
        assert_eq!(own["api_server"], "https://api-int.a.example:6443");
        node.root
            .write("stub/booted", &booted.replace(&commit, BOOTED));

        // The same of two others, with the wanted image.
        let wanted = sibling.run(&["image", "list", "-o", "json"]).ok().json();
        let wanted = wanted["images"].as_array().unwrap().clone();
        let wanted = wanted.iter().find(|one| one["image"] == NEXT).unwrap();
        assert_eq!(wanted["content_checksum"], content.as_str());
        let other = |name: &str, server: &str| {
            let mut other = own.clone();
            other["node"] = Value::from(name);
            other["api_server"] = Value::from(server);
            for key in ["image", "content_checksum", "layers_checksum"] {
                other["images"][0][key] = wanted[key].clone();
            }
            node.root.write(&format!("{name}.json"), &other.to_string());
        };
        other("w1", "https://api-int.a.example:6443");
        other("w3", "https://api-int.b.example:6443");
        let trusted = ["--os-proof", "/w1.json", "--os-proof", "/w3.json"];
        let run = pivot(&node, From::Directory, &trusted).exits(1);
        let said = flat_run(&run) + &flat(&run.err());
        assert!(
            said.contains("w3 belongs to the cluster of https://api-int.b.example"),
            "{said}"
        );
        other("w3", "https://api-int.a.example:6443");

        // Whose cluster is not known is not of every cluster: here, on a sibling's status, and on its list.
        let kubeconfig = node.root.read("var/lib/kubelet/kubeconfig");
        node.root.write("var/lib/kubelet/kubeconfig", "clusters: [");
        let run = pivot(&node, From::Directory, &trusted).exits(1);
        let said = flat_run(&run);
        assert!(said.contains("unknown whether the other nodes"), "{said}");
        let run = node.run(&["image", "list"]).exits(1);
        let said = flat(&run.err());
        assert!(said.contains("reading the name of the cluster"), "{said}");
        let unknown = status();
        assert_eq!(unknown["unreadable"], serde_json::json!(["api_server"]));
        node.root.write("var/lib/kubelet/kubeconfig", &kubeconfig);
        let whole = node.root.read("w3.json");
        let mut unknown: Value = serde_json::from_str(&whole).unwrap();
        unknown["api_server"] = Value::Null;
        unknown["unreadable"] = serde_json::json!(["api_server"]);
        node.root.write("w3.json", &unknown.to_string());
        let run = pivot(&node, From::Directory, &trusted).exits(1);
        let said = flat_run(&run);
        assert!(said.contains("not known which cluster"), "{said}");
        node.root.write("w3.json", &whole);
        let said = flat_run(&pivot(&node, From::Directory, &trusted).ok());
        assert!(said.contains("on w1 and w3"), "{said}");
    });
}

/// What rpm-ostree leaves of an image when a power cut has undone its deployment, which was made of a commit: the origin, and no
/// ref of the image.
fn is_known_by_its_origin(node: &OstreeNode, commit: &str) {
    ostree(&node.root.path(REPOSITORY), &["refs", "--delete", NEW_REF]);
    let deployment = format!("sysroot/ostree/deploy/rhcos/deploy/{commit}.0");
    let origin = format!("[origin]\nrefspec={commit}\ncustom-url=pivot://{NEXT}\n");
    node.root.write(&format!("{deployment}.origin"), &origin);
}

#[test]
fn an_image_in_the_nodes_own_repository_is_looked_into_and_needs_no_source() {
    for (has_ref, bootc) in [(true, false), (false, false), (true, true)] {
        let case = format!("ref {has_ref}, bootc {bootc}");
        with_mounts(|| {
            let node = receiver(bootc);
            let Some(repository) = ImageRepository::new(&node.root.path(REPOSITORY)) else {
                return;
            };
            let commit = repository.import_release(
                "2026-02-02T00:00:00Z",
                "ID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"\nRHEL_VERSION=10.0\n",
            );
            if !has_ref {
                is_known_by_its_origin(&node, &commit);
            }
            let ifcfg = "etc/sysconfig/network-scripts/ifcfg-ens2";
            node.root.write(ifcfg, "DEVICE=ens2\nONBOOT=yes\n");
            let arguments = ["pivot", "--yes", NEXT, "--accept-risk", "boot-filesystem"];
            for run in [node.run(&["preflight", NEXT]), node.run(&arguments)] {
                let said = flat_run(&run.exits(1));
                assert!(
                    said.contains("EL 10 reads no ifcfg files"),
                    "{case}: {said}"
                );
            }
            node.root.remove(ifcfg);
            let said = flat_run(&node.run(&arguments).ok());
            assert!(!said.contains("cannot be inspected"), "{case}: {said}");
            let calls = node.calls().join("\n");
            assert!(calls.contains(&commit), "{case}: {calls}");
            assert!(!calls.contains("pull-local"), "{case}: {calls}");
            let listed = node.run(&["image", "list", "-o", "json"]).ok().json();
            let images = listed["images"].as_array().unwrap();
            assert!(images.iter().any(|one| one["image"] == NEXT), "{listed:#}");
            // So it is on the disk of a dead node.
            if !has_ref {
                let other = receiver(false);
                let disk = other.root.path("media/disk");
                fs::create_dir_all(&disk).unwrap();
                let there = node.root.path("sysroot");
                mount(&["--bind", text(&there), text(&disk)]);
                pivot(&other, From::Disk, &["--unproven-image"]).ok();
                let calls = other.calls().join("\n");
                assert!(calls.contains("pull-local"), "{case}: {calls}");
            }
        });
    }
}

#[test]
fn a_layer_that_nobody_vouches_for_is_not_left_for_a_later_update() {
    let Some((sibling, repository)) = sibling() else {
        return;
    };
    let [_, added] = ImageRepository::layer_refs();
    with_mounts(|| {
        for from in [From::Directory, From::Archive, From::Stream, From::Disk] {
            let node = receiver(false);
            let there = node.root.path(REPOSITORY);
            let [one, two] = proofs(&node, &sibling);
            let trusted = ["--os-proof", &one, "--os-proof", &two];
            // The image is the same, and so is its tree.
            let evil = TestRoot::new();
            let other = ImageRepository::new(&evil.path(REPOSITORY)).unwrap();
            other.import_new("2026-02-02T00:00:00Z");
            other.replace_layer();
            let content = content_of(&other.path, NEW_REF);
            assert_eq!(content, content_of(&repository.path, NEW_REF));
            bring(&node, &evil, from);
            let before = objects(&there);
            let said = flat_run(&pivot(&node, from, &trusted).exits(1));
            assert!(said.contains("no other node vouches"), "{from:?}: {said}");
            assert_eq!(objects(&there), before);
            let refs = ostree(&there, &["refs", "--list"]);
            assert!(!refs.contains(&added), "{from:?}: {refs}");
        }
    });
}

#[test]
fn what_was_changed_on_its_way_is_not_staged() {
    let Some((sibling, _)) = sibling() else {
        return;
    };
    with_mounts(|| {
        let node = receiver(false);
        let there = node.root.path(REPOSITORY);
        let [one, two] = proofs(&node, &sibling);
        let refused = |from: From, args: &[&str], why: &str| {
            let run = pivot(&node, from, args).exits(1);
            let said = flat_run(&run) + &flat(&run.err());
            assert!(said.contains(why), "{from:?} {why}: {said}");
            ostree(&there, &["fsck"]);
            assert!(!node.root.exists("stub/staged"), "{why}");
            assert!(
                !node.root.exists("var/lib/mco-rescue/image-import"),
                "{why}"
            );
        };
        let trusted = ["--os-proof", &one, "--os-proof", &two];
        bring(&node, &sibling, From::Directory);
        bring(&node, &sibling, From::Archive);
        let media = node.root.path("media/os");

        // A file that the node lacks has another content: ostree finds it.
        let large = objects(&media).into_iter().find(|path| {
            let size = fs::metadata(path).unwrap().len();
            path.ends_with(".filez") && (200_000..300_000).contains(&size)
        });
        let large = PathBuf::from(large.unwrap());
        let whole = fs::read(&large).unwrap();
        let mut other = whole.clone();
        *other.last_mut().unwrap() ^= 1;
        fs::write(&large, other).unwrap();
        refused(From::Directory, &trusted, "image export DIRECTORY");
        fs::remove_file(&large).unwrap();
        refused(From::Directory, &trusted, "lacks 1 objects");
        fs::write(&large, whole).unwrap();

        // Another node has other content under this digest.
        let mut lies: Value = serde_json::from_str(&node.root.read("w3.json")).unwrap();
        for image in lies["images"].as_array_mut().unwrap() {
            image["content_checksum"] = Value::from("0".repeat(64));
        }
        node.root.write("w3.json", &lies.to_string());
        refused(From::Directory, &trusted, "one of the two was changed");
        node.root.write("w3.json", "{}");
        refused(From::Directory, &trusted, "does not have the images");
        refused(From::Directory, &["--os-proof", "/no.json"], "no.json");

        // An archive that ends anywhere.
        let archive = node.root.path("media/os.tar");
        let whole = fs::read(&archive).unwrap();
        let name = large.strip_prefix(&media).unwrap().to_str().unwrap();
        let find = |name: &str, nth: usize| {
            let mut windows = whole.windows(name.len()).enumerate();
            let mut found = windows
                .by_ref()
                .filter(|(_, window)| *window == name.as_bytes());
            found.nth(nth).unwrap().0
        };
        // Its first place is in the listing.
        let (listed, stored) = (find(name, 0), find(name, 1));
        for end in [
            100,
            700,
            listed,
            find("mco-rescue-files", 0),
            stored,
            stored + 100_000,
        ] {
            fs::write(&archive, &whole[..end]).unwrap();
            refused(From::Archive, &["--unproven-image"], "");
        }
        fs::write(&archive, &whole).unwrap();
        // A description that names an image that its objects are not.
        let text = String::from_utf8_lossy(&whole).into_owned();
        let at = text.find(NEW_DIGEST).unwrap();
        let mut lied = whole.clone();
        lied[at..at + 64].copy_from_slice("3".repeat(64).as_bytes());
        fs::write(&archive, &lied).unwrap();
        refused(From::Archive, &["--unproven-image"], "it does not have");
        fs::write(&archive, whole).unwrap();
        // The user takes it upon himself, and is told what is not proven.
        let run = pivot(&node, From::Archive, &["--unproven-image"]).ok();
        let said = flat_run(&run);
        assert!(said.contains("no other node vouches"), "{said}");
        assert!(node.root.read("stub/staged").contains(NEXT));
    });
}
