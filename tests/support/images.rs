//! OSTree repositories with images, as ostree-ext imports them from a registry; made by the real ostree.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ostree_node::OstreeNode;
use super::{Lacks, Run, copy_program, is_root, skip};

/// Digest of the first image.
pub const OLD_DIGEST: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Digest of the second one, which has a layer more.
pub const NEW_DIGEST: &str = "2222222222222222222222222222222222222222222222222222222222222222";
/// Digest of the layer of both.
const BASE: &str = "baba000000000000000000000000000000000000000000000000000000000001";
/// Digest of the layer of the second one.
const ADDED: &str = "baba000000000000000000000000000000000000000000000000000000000002";

/// Where a node has its repository, below its root.
pub const REPOSITORY: &str = "sysroot/ostree/repo";
/// Ref of the second image.
pub const NEW_REF: &str = "ostree/container/image/docker_3A__2F__2F_quay_2E_example/os_40_sha256_3A_2222222222222222222222222222222222222222222222222222222222222222";

/// A repository in a directory of its own.
pub struct ImageRepository {
    /// The repository.
    pub path: PathBuf,
    scratch: tempfile::TempDir,
}

impl ImageRepository {
    /// Makes an empty repository of the mode `bare`; `None`, with a word, where ostree or its rights are missing.
    pub fn new(path: &Path) -> Option<Self> {
        if !is_root() {
            skip(Lacks::Root, "a repository with owners needs root");
            return None;
        }
        if Command::new("ostree").arg("--version").output().is_err() {
            skip(Lacks::Setup, "ostree is not installed");
            return None;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let made = Self {
            path: path.to_owned(),
            scratch: tempfile::tempdir().unwrap(),
        };
        made.ostree(&["init", "--mode=bare"]);
        Some(made)
    }

    /// Runs ostree on it; returns what it printed.
    pub fn ostree(&self, args: &[&str]) -> String {
        ostree(&self.path, args)
    }

    /// Imports the first image.
    pub fn import_old(&self, time: &str) -> String {
        let tree = self.base_tree();
        self.commit(
            &format!("ostree/container/blob/sha256_3A_{BASE}"),
            &tree,
            time,
            &[],
        );
        self.commit_image(OLD_DIGEST, &tree, time, &[BASE])
    }

    /// Imports the second image.
    pub fn import_new(&self, time: &str) -> String {
        self.import_release(time, "ID=rhcos\nVERSION_ID=9.6\n")
    }

    /// Imports the second image as one with this `os-release`.
    pub fn import_release(&self, time: &str, release: &str) -> String {
        let tree = self.base_tree();
        fs::write(tree.join("usr/lib/os-release"), release).unwrap();
        let base = format!("ostree/container/blob/sha256_3A_{BASE}");
        self.commit(&base, &tree, time, &[]);
        let added = self.scratch.path().join("added");
        for tree in [&tree, &added] {
            fs::create_dir_all(tree.join("usr/lib/new")).unwrap();
            fs::write(tree.join("usr/lib/new/one"), "new\n").unwrap();
            fs::write(tree.join("usr/lib/new/two"), vec![7; 200_000]).unwrap();
        }
        let layer = format!("ostree/container/blob/sha256_3A_{ADDED}");
        self.commit(&layer, &added, time, &[]);
        let commit = self.commit_image(NEW_DIGEST, &tree, time, &[BASE, ADDED]);
        fs::remove_dir_all(tree.join("usr/lib/new")).unwrap();
        commit
    }

    /// Returns the refs of the layers of the second image.
    pub fn layer_refs() -> [String; 2] {
        [BASE, ADDED].map(|layer| format!("ostree/container/blob/sha256_3A_{layer}"))
    }

    /// Lets the ref of the second image's own layer name another tree, as only somebody with bad intent would.
    pub fn replace_layer(&self) {
        let tree = self.scratch.path().join("evil");
        fs::create_dir_all(tree.join("usr/lib/new")).unwrap();
        fs::write(tree.join("usr/lib/new/one"), "evil\n").unwrap();
        let [_, added] = Self::layer_refs();
        self.commit(&added, &tree, "2026-05-05T00:00:00Z", &[]);
    }

    /// A tree with what is easily stored wrongly: owners, modes, attributes, links, and sizes at the edge of a block.
    fn base_tree(&self) -> PathBuf {
        let tree = self.scratch.path().join("tree");
        let lib = tree.join("usr/lib");
        fs::create_dir_all(lib.join("modules/5.14")).unwrap();
        fs::create_dir_all(tree.join("usr/etc")).unwrap();
        for size in [0, 1, 65_534, 65_535, 65_536, 131_070, 1_000_000] {
            fs::write(lib.join(format!("size-{size}")), vec![3; size]).unwrap();
        }
        fs::write(lib.join("modules/5.14/vmlinuz"), "kernel\n").unwrap();
        fs::write(lib.join("os-release"), "ID=rhcos\nVERSION_ID=9.6\n").unwrap();
        fs::create_dir_all(lib.join("systemd")).unwrap();
        fs::write(lib.join("systemd/systemd"), "init\n").unwrap();
        fs::write(lib.join("owned"), "x").unwrap();
        std::os::unix::fs::chown(lib.join("owned"), Some(7), Some(9)).unwrap();
        fs::set_permissions(lib.join("owned"), fs::Permissions::from_mode(0o4755)).unwrap();
        let capability = b"\x01\0\0\x02\0\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0";
        set_attribute(&lib.join("owned"), "security.capability", capability);
        set_attribute(&lib.join("owned"), "user.note", b"one\ntwo");
        let _ = fs::remove_file(lib.join("link"));
        symlink("../lib/owned", lib.join("link")).unwrap();
        tree
    }

    fn commit(&self, name: &str, tree: &Path, time: &str, more: &[&str]) -> String {
        let branch = format!("--branch={name}");
        let tree = format!("--tree=dir={}", tree.display());
        let time = format!("--timestamp={time}");
        let fixed = ["commit", "--no-bindings", &branch, &tree, &time];
        let printed = self.ostree(&[&fixed, more].concat());
        printed.trim().to_owned()
    }

    fn commit_image(&self, digest: &str, tree: &Path, time: &str, layers: &[&str]) -> String {
        let layers: Vec<String> = layers
            .iter()
            .map(|layer| format!(r#"{{"mediaType":"x","digest":"sha256:{layer}","size":1}}"#))
            .collect();
        let layers = layers.join(",");
        let metadata = |key: &str, value: &str| format!("--add-metadata-string={key}={value}");
        let name = format!(
            "ostree/container/image/docker_3A__2F__2F_quay_2E_example/os_40_sha256_3A_{digest}"
        );
        let manifest = format!(r#"{{"schemaVersion":2,"layers":[{layers}]}}"#);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let labels = r#"{"ostree.bootable":"true","containers.bootc":"1"}"#;
        let config =
            format!(r#"{{"architecture":"{architecture}","config":{{"Labels":{labels}}}}}"#);
        self.commit(
            &name,
            tree,
            time,
            &[
                &metadata("ostree.manifest-digest", &format!("sha256:{digest}")),
                &metadata("ostree.manifest", &manifest),
                &metadata("ostree.container.image-config", &config),
            ],
        )
    }
}

/// A node that runs the first image, without a registry, and with the real ostree for its repository.
pub fn receiver(bootc: bool) -> OstreeNode {
    let node = if bootc {
        OstreeNode::of_bootc()
    } else {
        OstreeNode::new()
    };
    copy_program(&node.root, "/usr/bin/ostree");
    copy_program(&node.root, "/bin/cat");
    let stub = node.root.read("usr/sbin/ostree");
    let stub = stub.split_once('\n').unwrap().1;
    // STUB of ostree, but for the repository, which is the matter of the real one.
    node.program(
        "ostree",
        &format!("case $1 in pull-local | refs) echo \"ostree $*\" >>/stub/log; exec /usr/bin/ostree \"$@\" ;; esac\n{stub}"),
    );
    node.program(
        "systemd-run",
        r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@" >/stub/unit-log 2>&1"#,
    );
    node.program(
        "journalctl",
        r#"case $* in --sync) ;; *_SYSTEMD_UNIT=mco-rescue-bootc.service) cat /stub/unit-log ;; *) exit 1 ;; esac"#,
    );
    let repository = ImageRepository::new(&node.root.path(REPOSITORY)).unwrap();
    repository.import_old("2026-03-03T00:00:00Z");
    std::os::unix::fs::symlink("sysroot/ostree", node.root.path("ostree")).unwrap();
    node
}

/// Runs ostree on a repository; returns what it printed.
pub fn ostree(repository: &Path, args: &[&str]) -> String {
    let mut command = Command::new("ostree");
    command.arg(format!("--repo={}", repository.display()));
    let run = Run::of(command.args(args).output().unwrap()).ok();
    run.out()
}

/// Returns the checksum of a commit's content, by ostree.
pub fn content_of(repository: &Path, commit: &str) -> String {
    let shown = ostree(repository, &["show", commit]);
    let line = shown
        .lines()
        .find_map(|line| line.strip_prefix("ContentChecksum:"));
    line.unwrap().trim().to_owned()
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the strings and the value live through the call, and the length is the value's.
    #[allow(unsafe_code, reason = "no crate of the tests sets attributes")]
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
