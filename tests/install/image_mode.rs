//! A pool whose image the cluster builds: podman builds what `examples/machine-os-config.yaml` says, on a small base in the
//! place of the pool's image, and the program runs in the result. `ostree` in the base is a stub; nothing is pulled.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::packages::{VERSION, has, make, packed, version_below};
use super::release::succeed;
use crate::support::{Lacks, TestRoot, is_root, skip};
use serde_json::Value;

const EXAMPLE: &str = "examples/machine-os-config.yaml";
const IMAGE: &str = "localhost/mco-rescue:1";
/// The units that a node needs at its next boot.
const LINKS: [&str; 5] = [
    "sysinit.target.wants/mco-rescue-recover.service",
    "sysinit.target.wants/mco-rescue-trial.service",
    "multi-user.target.wants/mco-rescue-complete.service",
    "multi-user.target.wants/mco-rescue-record.service",
    "timers.target.wants/mco-rescue-fetch.timer",
];

fn example() -> Value {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    mco_rescue::config::document::yaml::parse_yaml(&text).unwrap()
}

#[test]
fn the_object_in_the_manual_is_the_example() {
    let object = example();
    assert_eq!(object["kind"], "MachineOSConfig");
    assert_eq!(object["apiVersion"], "machineconfiguration.openshift.io/v1");
    // What the API asks for, and no more.
    let keys: Vec<&String> = object["spec"].as_object().unwrap().keys().collect();
    let required = [
        "machineConfigPool",
        "imageBuilder",
        "renderedImagePushSpec",
        "renderedImagePushSecret",
        "containerFile",
    ];
    assert_eq!(keys, required);
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let shown: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("    {line}\n"))
        .collect();
    let manual = fs::read_to_string("docs/how-to/install.md").unwrap();
    assert!(
        manual.contains(&shown),
        "docs/how-to/install.md has not:\n{shown}"
    );
}

/// Images and containers in a directory of the test's own.
struct Podman<'a>(&'a TestRoot);

impl Podman<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut podman = Command::new("podman");
        for (option, place) in [("--root", "store"), ("--runroot", "run")] {
            podman.arg(option).arg(self.0.path(place));
        }
        podman.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        podman.env("TMPDIR", self.0.dir()).args(args);
        podman
    }

    fn run(&self, args: &[&str]) -> Output {
        succeed(&mut self.command(args))
    }

    /// Builds a Containerfile with a context, without a container runtime: `RUN` is a chroot.
    fn build(&self, tag: &str, text: &str, context: &str) {
        self.0.write("Containerfile", text);
        let file = self.0.path("Containerfile");
        fs::create_dir_all(self.0.path(context)).unwrap();
        let context = self.0.path(context);
        self.run(&[
            "build",
            "--isolation=chroot",
            "--pull=never",
            "--network=host",
            "--tag",
            tag,
            "--file",
            file.to_str().unwrap(),
            context.to_str().unwrap(),
        ]);
    }

    /// The root file system of an image, in a directory.
    fn unpack(&self, image: &str, directory: &str) -> PathBuf {
        let mounted = self.run(&["image", "mount", image]);
        let mounted = String::from_utf8(mounted.stdout).unwrap();
        let to = self.0.path(directory);
        succeed(Command::new("cp").args(["-a", mounted.trim()]).arg(&to));
        self.run(&["image", "unmount", image]);
        to
    }
}

/// Copies a program and its libraries, each to where it is.
fn with_libraries(program: &str, base: &Path) {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let words = text.split_whitespace();
    for file in words.filter(|word| word.starts_with('/')).chain([program]) {
        let to = base.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        succeed(Command::new("cp").arg("-L").arg(file).arg(to));
    }
}

/// The pool's image, as small as it can be: a shell, the real systemctl, a stub of `ostree`, and what a node is known by.
fn make_base(root: &TestRoot) {
    let base = root.path("base");
    fs::create_dir_all(base.join("usr/bin")).unwrap();
    let busybox = base.join("usr/bin/busybox");
    succeed(
        Command::new("cp")
            .args(["-L", "/bin/busybox"])
            .arg(&busybox),
    );
    with_libraries("/usr/bin/systemctl", &base);
    for (path, text) in [
        (
            "usr/bin/ostree",
            "#!/bin/sh\n# A stub.\necho \"$@\" >/usr/ostree-said\n",
        ),
        ("usr/lib/os-release", crate::support::OS_RELEASE),
        ("etc/machine-id", ""),
        (
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
        ),
        ("etc/group", "root:x:0:\ncore:x:1000:\n"),
        ("etc/shadow", "root:*:19000::::::\ncore:*:19000::::::\n"),
        ("etc/kubernetes/kubeconfig", "kind: Config\n"),
    ] {
        root.write(&format!("base/{path}"), text);
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("usr/bin/sh", "busybox"),
        ("etc/os-release", "../usr/lib/os-release"),
    ] {
        let link = base.join(link);
        if !link.exists() {
            std::os::unix::fs::symlink(target, link).unwrap();
        }
    }
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(base.join("usr/bin/ostree"), mode).unwrap();
    for directory in [
        "var/lib",
        "home/core",
        "run",
        "tmp",
        "usr/lib/systemd/system",
    ] {
        fs::create_dir_all(base.join(directory)).unwrap();
    }
}

/// Every path below a directory, with mode and contents or target.
fn tree(directory: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let contents = if meta.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(directory).unwrap().to_owned();
            found.insert(name, (meta.permissions().mode() & 0o7777, contents));
        }
    }
    found
}

/// Runs the program of a root on it.
fn on(node: &Path, args: &[&str]) -> String {
    let mut program = Command::new(node.join("usr/bin/mco-rescue"));
    let output = succeed(program.arg("--root").arg(node).args(args));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_containerfile_of_the_pool_gives_a_node_with_the_program_and_without_it_as_before() {
    if !is_root() {
        return skip(Lacks::Root, "podman builds in a chroot as root only");
    }
    if !["podman", "busybox", "systemctl"]
        .iter()
        .all(|program| has(program))
    {
        return;
    }
    let (root, tarball) = packed();
    let podman = Podman(&root);
    make_base(&root);
    // `configs` is the name that the cluster's builder gives the image with the pool's configs.
    podman.build("localhost/configs", "FROM scratch\nCOPY . /\n", "base");
    let layout = make("oci.py", &root, &tarball).remove(0);
    // podman makes a name of the path, which may have no capital letters.
    let name = layout.file_name().unwrap().to_str().unwrap();
    let mut pull = podman.command(&["pull", "--quiet", &format!("oci:{name}")]);
    let pulled = succeed(pull.current_dir(layout.parent().unwrap()));
    let id = String::from_utf8(pulled.stdout).unwrap();
    podman.run(&["tag", id.trim(), IMAGE]);

    let object = example();
    let text = object["spec"]["containerFile"][0]["content"]
        .as_str()
        .unwrap();
    let text = text.replace("REGISTRY/mco-rescue:VERSION", IMAGE);
    assert!(text.contains(IMAGE), "{text}");
    podman.build("localhost/final", &text, "nothing");

    let node = podman.unpack("localhost/final", "node");
    assert_eq!(version_below(&node), format!("mco-rescue {VERSION}"));
    assert_eq!(
        fs::read_to_string(node.join("usr/ostree-said")).unwrap(),
        "container commit\n"
    );
    for link in LINKS {
        let path = node.join("etc/systemd/system").join(link);
        let target = fs::read_link(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(
            node.join(target.strip_prefix("/").unwrap()).exists(),
            "{link}"
        );
    }

    // It works there, and takes itself and what it did away.
    let before = tree(&node);
    on(&node, &["apply", "--yes", "examples/rendered-worker.yaml"]);
    assert!(on(&node, &["verify"]).contains("Clean"));
    on(&node, &["rollback", "--yes"]);
    on(&node, &["install", "--remove", "--yes"]);
    let after = tree(&node);
    let differs = before.keys().chain(after.keys());
    let differs = differs.filter(|path| before.get(*path) != after.get(*path));
    let mut differs: Vec<&Path> = differs.map(PathBuf::as_path).collect();
    differs.sort_unstable();
    // The units are off, and the lock of the account files stays, as shadow-utils leave it.
    let mut expected: Vec<PathBuf> = LINKS
        .iter()
        .map(|link| Path::new("etc/systemd/system").join(link))
        .chain([PathBuf::from("etc/.pwd.lock")])
        .collect();
    expected.sort_unstable();
    assert_eq!(differs, expected);

    // Without its lines the next build has nothing of it.
    podman.build("localhost/without", "FROM configs AS final\n", "nothing");
    let without = podman.unpack("localhost/without", "without");
    assert!(
        !tree(&without)
            .keys()
            .any(|path| path.to_str().unwrap().contains("mco-rescue"))
    );
}
