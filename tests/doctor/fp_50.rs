//! FP-50: damaged objects of the OS, and damaged kernels in `/boot`, on disks that the real ostree made.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::small::node;
use super::{answer, doctor, found, of, says, unseen};
use crate::support::sysroot::Sysroot;
use crate::support::{TestRoot, say};
use serde_json::{Value, json};

/// A disk with one deployment, as it is mounted elsewhere.
fn disk() -> Option<Sysroot> {
    let disk = Sysroot::new()?;
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    assert!(disk.deploy(&[]));
    Some(disk)
}

fn deep(root: &TestRoot) -> Value {
    answer(&root.run(&["doctor", "--deep", "--output", "json"]))
}

fn skipped(report: &Value) -> Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["id"] == "FP-50").unwrap();
    check["skipped"].clone()
}

fn commit(disk: &Sysroot) -> String {
    fs::read_to_string(disk.0.path("ostree/repo/refs/heads/ostree/0/1/0"))
        .or_else(|_| fs::read_to_string(disk.0.path("ostree/repo/refs/heads/os/x")))
        .unwrap()
        .trim()
        .to_owned()
}

fn object(disk: &Sysroot, checksum: &str, ending: &str) -> PathBuf {
    let (first, rest) = checksum.split_at(2);
    disk.0
        .path(&format!("ostree/repo/objects/{first}/{rest}.{ending}"))
}

/// All objects of a kind, by path.
fn objects(disk: &Sysroot, ending: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for directory in fs::read_dir(disk.0.path("ostree/repo/objects")).unwrap() {
        let entries = fs::read_dir(directory.unwrap().path()).unwrap();
        all.extend(entries.map(|entry| entry.unwrap().path()));
    }
    all.retain(|path| path.extension().is_some_and(|found| found == ending));
    all.sort();
    all
}

/// The verdict of ostree's own check.
fn fsck_is_content(disk: &Sysroot) -> bool {
    let mut command = Command::new("ostree");
    command.arg(format!("--repo={}", disk.0.path("ostree/repo").display()));
    command.args(["fsck", "-q"]);
    command.output().unwrap().status.success()
}

/// The first file whose content begins so; links have their target.
fn file_with(disk: &Sysroot, begin: &str) -> PathBuf {
    let files = objects(disk, "file").into_iter();
    let mut files = files.filter(|path| {
        let is_link = path.is_symlink();
        if is_link {
            fs::read_link(path)
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(begin)
        } else {
            fs::read(path).unwrap().starts_with(begin.as_bytes())
        }
    });
    files.next().unwrap()
}

/// One damage: its name, the object, what is done to it, and if a run without `--deep` finds it.
type Damage = (&'static str, PathBuf, fn(&Path), bool);

/// Puts another file in the place of one that may have more names.
fn put(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

fn flip(path: &Path) {
    let aside = path.with_extension("aside");
    let mut bytes = fs::read(&aside).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    put(path, &bytes);
    fs::set_permissions(path, fs::metadata(&aside).unwrap().permissions()).unwrap();
}

#[test]
fn damaged_objects_are_found_as_ostree_finds_them() {
    let Some(disk) = disk() else { return };
    let report = doctor(&disk.0);
    assert_eq!(of(&report, "FP-50"), Vec::<Value>::new());
    assert_eq!(
        skipped(&report),
        json!(["hashes of the kernels", "hashes of the OS's objects"])
    );
    let report = deep(&disk.0);
    assert_eq!(of(&report, "FP-50"), Vec::<Value>::new());
    assert_eq!(skipped(&report), json!([]));
    assert_eq!(unseen(&report, "FP-50"), "[]");
    assert!(fsck_is_content(&disk));

    let commit = object(&disk, &commit(&disk), "commit");
    let release = file_with(&disk, "ID=scos");
    let kernel = file_with(&disk, "kkk");
    let link = file_with(&disk, "../usr/lib/os-release");
    let metadata = objects(&disk, "dirmeta")[0].clone();
    let mut damages: Vec<Damage> = vec![
        (
            "an empty commit",
            commit.clone(),
            |path| put(path, b""),
            true,
        ),
        ("a changed commit", commit.clone(), flip, true),
        ("a missing commit", commit, |_| {}, true),
        (
            "changed attributes of directories",
            metadata.clone(),
            flip,
            true,
        ),
        (
            "empty attributes of directories",
            metadata,
            |path| put(path, b""),
            true,
        ),
        (
            "an empty file",
            release.clone(),
            |path| put(path, b""),
            false,
        ),
        ("a changed file", release.clone(), flip, false),
        ("a missing file", release.clone(), |_| {}, false),
        ("a changed kernel", kernel, flip, false),
        (
            "another mode",
            release,
            |path| {
                let bytes = fs::read(path.with_extension("aside")).unwrap();
                put(path, &bytes);
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            },
            false,
        ),
        (
            "a link to elsewhere",
            link,
            |path| symlink("/elsewhere", path).unwrap(),
            false,
        ),
    ];
    for directory in objects(&disk, "dirtree") {
        damages.push(("a changed directory", directory.clone(), flip, false));
        damages.push((
            "an empty directory",
            directory,
            |path| put(path, b""),
            false,
        ));
    }
    let mut at_once = 0;
    for (name, path, damage, is_quick) in damages {
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).unwrap();
        damage(&path);
        let (quick, slow) = (of(&doctor(&disk.0), "FP-50"), deep(&disk.0));
        let words = found(&slow, "FP-50", "warning");
        let content = fsck_is_content(&disk);
        say(&format!(
            "{name}: doctor {}, doctor --deep found, ostree fsck {}",
            ["nothing", "found"][quick.len()],
            ["found", "nothing"][usize::from(content)]
        ));
        assert!(!content, "{name}: ostree fsck finds nothing");
        let shown = path.strip_prefix(disk.0.path("ostree")).unwrap();
        says(
            &words,
            &[
                "of the OS",
                &format!("/sysroot/ostree/{}", shown.display()),
                "pull-local",
            ],
        );
        assert!(!is_quick || quick.len() == 1, "{name}");
        at_once += quick.len();
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&aside, &path).unwrap();
    }
    // The five above, and both damages of the top directory.
    assert_eq!(at_once, 7);
    assert_eq!(of(&deep(&disk.0), "FP-50"), Vec::<Value>::new());
}

#[test]
fn only_commits_that_boot_count_and_a_pull_that_is_not_complete_is_not_damage() {
    let Some(disk) = disk() else { return };
    let name = commit(&disk);
    let tree = TestRoot::empty();
    tree.write("usr/of-another", "not deployed");
    let committed = Command::new("ostree")
        .arg(format!("--repo={}", disk.0.path("ostree/repo").display()))
        .args(["commit", "--branch=other"])
        .arg(format!("--tree=dir={}", tree.dir().display()))
        .output()
        .unwrap();
    assert!(committed.status.success());
    let other = file_with(&disk, "not deployed");
    fs::remove_file(&other).unwrap();
    put(&other, b"");
    assert_eq!(of(&deep(&disk.0), "FP-50"), Vec::<Value>::new());
    // ostree checks every commit.
    assert!(!fsck_is_content(&disk));
    let path = object(&disk, &name, "commit");
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    found(&doctor(&disk.0), "FP-50", "warning");
    disk.0
        .write(&format!("ostree/repo/state/{name}.commitpartial"), "");
    let report = doctor(&disk.0);
    assert_eq!(of(&report, "FP-50"), Vec::<Value>::new());
    says(&unseen(&report, "FP-50"), &["its pull is not complete"]);
    // A commit that ostree fsck marked is damaged.
    disk.0
        .write(&format!("ostree/repo/state/{name}.commitpartial"), "f");
    found(&doctor(&disk.0), "FP-50", "warning");
}

/// What is said, the file, what is done to it, and if a run without `--deep` finds it.
type KernelDamage<'a> = (&'static str, &'a Path, &'a dyn Fn(&Path), bool);

/// The directory of the kernel in `/boot`.
fn kernel_directory(disk: &Sysroot) -> PathBuf {
    let mut all = fs::read_dir(disk.0.path("boot/ostree")).unwrap();
    all.next().unwrap().unwrap().path()
}

#[test]
fn a_damaged_kernel_in_boot_is_found_and_the_printed_commands_restore_it() {
    let Some(disk) = disk() else { return };
    let directory = kernel_directory(&disk);
    let (kernel, initramfs) = (
        directory.join("vmlinuz-6.1"),
        directory.join("initramfs-6.1.img"),
    );
    assert!(kernel.exists() && initramfs.exists());
    let damages: [KernelDamage<'_>; 6] = [
        ("0 bytes", &kernel, &|path| put(path, b""), true),
        (
            "2000 bytes, the deployment's file has 3000",
            &kernel,
            &|path| put(path, &[b'k'; 2000]),
            true,
        ),
        (
            "missing",
            &kernel,
            &|path| fs::remove_file(path).unwrap(),
            true,
        ),
        ("0 bytes", &initramfs, &|path| put(path, b""), true),
        ("checksum", &kernel, &|path| put(path, &[b'x'; 3000]), false),
        (
            "checksum",
            &initramfs,
            &|path| put(path, &[b'x'; 5000]),
            false,
        ),
    ];
    for (said, path, damage, is_quick) in damages {
        damage(path);
        let quick = of(&doctor(&disk.0), "FP-50");
        assert_eq!(quick.len(), usize::from(is_quick), "{quick:#?}");
        let report = deep(&disk.0);
        let words = found(&report, "FP-50", "critical");
        says(
            &words,
            &[
                "a kernel or initramfs in /boot is damaged",
                said,
                "copy-file",
            ],
        );
        for command in of(&report, "FP-50")[0]["next"].as_array().unwrap() {
            let run = Command::new("sh")
                .args(["-ec", command.as_str().unwrap()])
                .status();
            assert!(run.unwrap().success(), "{command}");
        }
        assert_eq!(of(&deep(&disk.0), "FP-50"), Vec::<Value>::new(), "{said}");
    }
}

#[test]
fn a_kernel_that_is_damaged_in_its_deployment_alone_boots() {
    let Some(disk) = disk() else { return };
    let mut deployments = fs::read_dir(disk.0.path("ostree/deploy/os/deploy")).unwrap();
    let deployment = deployments.find_map(|entry| {
        let path = entry.unwrap().path();
        path.is_dir().then_some(path)
    });
    let own = deployment.unwrap().join("usr/lib/modules/6.1/vmlinuz");
    // The object is sound: it is not a link of this file any more.
    fs::remove_file(&own).unwrap();
    put(&own, &[b'x'; 3000]);
    assert_eq!(of(&doctor(&disk.0), "FP-50"), Vec::<Value>::new());
    says(
        &found(&deep(&disk.0), "FP-50", "warning"),
        &[
            "a deployment's own kernel is damaged",
            "kernel_layout->bootcsum == bootcsum",
        ],
    );
    // Both are: nothing here restores it.
    put(&kernel_directory(&disk).join("vmlinuz-6.1"), b"");
    let report = doctor(&disk.0);
    says(
        &found(&report, "FP-50", "critical"),
        &["stage the OS again"],
    );
    assert_eq!(of(&report, "FP-50")[0]["fix"], Value::Null);
}

#[test]
fn kernels_that_another_program_installed_and_a_root_without_a_repository_are_not_judged() {
    let root = node();
    let before = doctor(&root);
    assert_eq!(of(&before, "FP-50"), Vec::<Value>::new());
    assert_eq!(unseen(&before, "FP-50"), "[]");
    assert_eq!(skipped(&before), json!([]));
    root.write(
        "boot/loader/entries/debian.conf",
        "title Debian\nversion 2\nlinux /vmlinuz\ninitrd /initrd.img\n",
    );
    assert_eq!(of(&deep(&root), "FP-50"), Vec::<Value>::new());
}
