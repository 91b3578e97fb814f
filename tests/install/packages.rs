//! The packages of a release: each is made, installed into a root of its own, run there, and taken away again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::packaging::files;
use super::release::{pack, succeed};
use crate::support::stripped_program;
use crate::support::{Lacks, TestRoot, is_root, skip};
use serde_json::Value;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns `false`, and says it, where a program is missing.
pub(super) fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "PATH=$PATH:/usr/sbin:/sbin; command -v \"$1\"", "sh"])
        .arg(program)
        .output()
        .unwrap();
    if !found.status.success() {
        skip(Lacks::Setup, &format!("there is no {program}"));
    }
    found.status.success()
}

/// A packed release with a program that runs alone, so that another root can start it.
pub(super) fn packed() -> (TestRoot, PathBuf) {
    let root = TestRoot::empty();
    let small = pack(&root, "small", "022", "UTC");
    let name = small.file_name().unwrap().to_str().unwrap().to_owned();
    let top = name.trim_end_matches(".tar.gz");
    fs::create_dir(root.path("tree")).unwrap();
    fs::create_dir(root.path("out")).unwrap();
    let mut tar = Command::new("tar");
    succeed(tar.arg("-xf").arg(&small).arg("-C").arg(root.path("tree")));
    let binary = root.path(&format!("tree/{top}/usr/bin/mco-rescue"));
    fs::copy(stripped_program(), &binary).unwrap();
    let tarball = root.path(&format!("out/{name}"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@1700000000", "--owner=0"]);
    tar.args(["--group=0", "--use-compress-program=gzip -n1", "-cf"]);
    tar.arg(&tarball).arg("-C").arg(root.path("tree"));
    succeed(tar.arg(top));
    (root, tarball)
}

/// Makes packages of a release with one of the scripts, and returns the paths that it prints.
pub(super) fn make(script: &str, root: &TestRoot, tarball: &Path) -> Vec<PathBuf> {
    let mut command = Command::new(format!("packaging/{script}"));
    let output = succeed(command.arg(tarball).arg(root.path("out")));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(PathBuf::from).collect()
}

/// The version that the program names when it is started below another root.
pub(super) fn version_below(root: &Path) -> String {
    let mut chroot = Command::new("chroot");
    let output = succeed(chroot.arg(root).args(["/usr/bin/mco-rescue", "--version"]));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

// rpm.

/// A root with a shell and `systemctl`, which the scriptlets of a package call.
fn root_for_scriptlets(root: &TestRoot) -> PathBuf {
    let dir = root.path("node");
    let script = "for program in /bin/sh /usr/bin/systemctl; do\n\
            cp --parents --dereference \"$program\" $(ldd \"$program\" | grep -o '/[^ ]*') \"$1\"\n\
        done; mkdir \"$1/dev\" \"$1/etc\"; : >\"$1/dev/null\"; chmod 0666 \"$1/dev/null\"";
    fs::create_dir(&dir).unwrap();
    let mut bash = Command::new("bash");
    succeed(bash.args(["-euc", script, "bash"]).arg(&dir));
    dir
}

fn rpm(node: &Path, args: &[&str], packages: &[PathBuf]) -> Output {
    let mut rpm = Command::new("rpm");
    rpm.arg("--root").arg(node);
    rpm.args(["--dbpath", "/var/lib/rpm"]).args(args);
    let output = succeed(rpm.args(packages));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wrong = ["error:", "warning:", "failed", "not found"];
    let wrong = wrong.iter().find(|word| said.contains(**word));
    assert_eq!(wrong, None, "{args:?}: {said}");
    output
}

#[test]
fn the_rpm_is_installed_enabled_run_and_removed_without_a_trace() {
    if !has("rpmbuild") || !has("systemctl") {
        return;
    }
    let (root, tarball) = packed();
    let packages = make("rpm.sh", &root, &tarball);
    assert_eq!(packages.len(), 2, "{packages:?}");
    lint(&packages);
    if !is_root() {
        return skip(Lacks::Root, "rpm enters another root as root only");
    }
    let node = root_for_scriptlets(&root);
    rpm(&node, &["--initdb"], &[]);
    let here = |node: &Path| {
        let mut all = files(node);
        all.retain(|path, _| !path.starts_with("var/lib/rpm/"));
        all
    };
    let before = here(&node);

    // The scratch root has no packages that this one could need.
    rpm(&node, &["--install", "--nodeps"], &packages);
    assert_eq!(version_below(&node), format!("mco-rescue {VERSION}"));
    for path in [
        "usr/lib/dracut/modules.d/50mco-rescue/module-setup.sh",
        "usr/lib/systemd/system/mco-rescue-recover.service",
        "usr/share/licenses/mco-rescue/THIRD-PARTY.txt",
    ] {
        assert!(node.join(path).exists(), "{path}");
    }
    for link in [
        "sysinit.target.wants/mco-rescue-recover.service",
        "sysinit.target.wants/mco-rescue-trial.service",
        "multi-user.target.wants/mco-rescue-complete.service",
        "multi-user.target.wants/mco-rescue-record.service",
        "timers.target.wants/mco-rescue-fetch.timer",
    ] {
        let link = node.join("etc/systemd/system").join(link);
        assert!(fs::symlink_metadata(&link).is_ok(), "{}", link.display());
    }
    rpm(
        &node,
        &["--verify", "--nodeps", "mco-rescue", "mco-rescue-dracut"],
        &[],
    );

    rpm(&node, &["--erase", "mco-rescue-dracut", "mco-rescue"], &[]);
    assert_eq!(here(&node), before);
}

/// rpmlint has nothing to say but what packaging/rpmlint.toml gives reasons for.
fn lint(packages: &[PathBuf]) {
    if !has("rpmlint") {
        return;
    }
    let mut rpmlint = Command::new("rpmlint");
    let rpmlint = rpmlint.args(["--config", "packaging/rpmlint.toml"]);
    let output = rpmlint
        .args(packages)
        .arg("packaging/mco-rescue.spec")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("2 packages and 1 specfiles checked"),
        "{text}"
    );
    assert!(text.contains("0 errors, 0 warnings"), "{text}");
}

// A system extension.

#[test]
fn the_system_extension_is_merged_run_and_unmerged() {
    if !is_root() {
        return skip(Lacks::Root, "systemd-sysext mounts as root only");
    }
    if !has("mksquashfs") || !has("systemd-sysext") {
        return;
    }
    let (root, tarball) = packed();
    let images = make("sysext.sh", &root, &tarball);
    let node = root.path("node");
    root.write("node/usr/lib/os-release", "ID=rhcos\nVERSION_ID=4.20\n");
    root.write("node/var/lib/extensions/.keep", "");
    fs::copy(&images[0], node.join("var/lib/extensions/mco-rescue.raw")).unwrap();
    // Mounts reach this namespace alone: its own are shared with no other.
    let script = "mount --make-rprivate /; mount --make-rshared /; mount -t tmpfs tmpfs /run\n\
        merge() { systemd-sysext --root=\"$1\" merge; }\n\
        merge \"$1\" || { echo UNAVAILABLE; exit 0; }\n\
        \"$1/usr/bin/mco-rescue\" --version; ls \"$1/usr/lib/systemd/system\"\n\
        systemd-sysext --root=\"$1\" unmerge; ls \"$1/usr\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "bash", "-uc", script, "bash"]);
    let output = succeed(unshare.arg(&node));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("UNAVAILABLE") {
        return skip(
            Lacks::Machine,
            &format!("systemd-sysext cannot merge here: {output:?}"),
        );
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&&*format!("mco-rescue {VERSION}")));
    assert!(lines.contains(&"mco-rescue-recover.service"), "{text}");
    // After the end of the extension /usr is as before.
    assert_eq!(lines.last(), Some(&"lib"), "{output:?}");
    assert!(!text.contains("dracut"), "{text}");
}

// Names of architectures.

/// The names that systemd and images have for an architecture, which `uname -m` calls otherwise.
const ARCHITECTURES: [(&str, &str, &str); 4] = [
    ("x86_64", "x86-64", "amd64"),
    ("aarch64", "arm64", "arm64"),
    ("ppc64le", "ppc64-le", "ppc64le"),
    ("s390x", "s390x", "s390x"),
];

#[test]
fn each_package_names_the_architecture_as_its_reader_does() {
    for (arch, of_systemd, of_images) in ARCHITECTURES {
        let root = TestRoot::empty();
        let top = format!("mco-rescue-{VERSION}-{arch}");
        root.write(&format!("{top}/usr/bin/mco-rescue"), "a program");
        root.write("out/.keep", "");
        let tarball = root.path(&format!("{top}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&tarball).arg("-C").arg(root.dir());
        succeed(tar.arg(&top));
        let layout = &make("oci.py", &root, &tarball)[0];
        let json = |digest: &str| -> Value {
            let blob = digest.trim_start_matches("sha256:");
            let bytes = fs::read(layout.join("blobs/sha256").join(blob)).unwrap();
            serde_json::from_slice(&bytes).unwrap()
        };
        let index: Value =
            serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        let manifest = json(index["manifests"][0]["digest"].as_str().unwrap());
        let config = json(manifest["config"]["digest"].as_str().unwrap());
        assert_eq!(config["architecture"], of_images);
        if !has("mksquashfs") {
            continue;
        }
        let image = &make("sysext.sh", &root, &tarball)[0];
        let release = "usr/lib/extension-release.d/extension-release.mco-rescue";
        let mut unsquashfs = Command::new("unsquashfs");
        let output = succeed(unsquashfs.arg("-cat").arg(image).arg(release));
        let expected = format!("ID=_any\nARCHITECTURE={of_systemd}\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

// An image.

#[test]
fn the_image_is_read_by_skopeo_and_its_program_runs_alone() {
    let (root, tarball) = packed();
    let layouts = make("oci.py", &root, &tarball);
    let again = fs::read(layouts[0].join("index.json")).unwrap();
    make("oci.py", &root, &tarball);
    assert_eq!(fs::read(layouts[0].join("index.json")).unwrap(), again);
    if !has("skopeo") {
        return;
    }
    let mut skopeo = Command::new("skopeo");
    skopeo.arg("inspect").arg("--config");
    let output = succeed(skopeo.arg(format!("oci:{}", layouts[0].display())));
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/mco-rescue");
    assert_eq!(config["architecture"], "amd64");
    // skopeo checks each digest when it copies.
    let plain = root.path("plain");
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--quiet"]);
    skopeo.arg(format!("oci:{}", layouts[0].display()));
    succeed(skopeo.arg(format!("dir:{}", plain.display())));
    if !is_root() {
        return skip(
            Lacks::Root,
            "the program of the image is started as root only",
        );
    }
    let manifest = fs::read(plain.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    let layer = plain.join(layer.trim_start_matches("sha256:"));
    let node = root.path("node");
    fs::create_dir(&node).unwrap();
    succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(layer)
            .arg("-C")
            .arg(&node),
    );
    assert_eq!(version_below(&node), format!("mco-rescue {VERSION}"));
}
