//! The disk of an OSTree node in another machine: `--root` means the deployment that it would boot, with its `var`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::sysroot::Sysroot;
use crate::support::{PROGRAM, Run, TestRoot, file, machine_config};
use serde_json::json;

/// A disk with two deployments of the real ostree, which have booted once.
fn disk() -> Option<(Sysroot, PathBuf)> {
    let disk = Sysroot::new()?;
    // Only a test for what a deployment sees needs this link.
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    for number in 1..=2 {
        assert!(disk.deploy(&[format!("--karg=number={number}")]));
    }
    let var = disk.0.path("ostree/deploy/os/var");
    fs::create_dir_all(var.join("lib")).unwrap();
    Some((disk, var))
}

/// The deployments, by the order in which they were made.
fn deployments(disk: &TestRoot) -> Vec<PathBuf> {
    let all = fs::read_dir(disk.path("ostree/deploy/os/deploy")).unwrap();
    let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.is_dir());
    all.sort();
    for deployment in &all {
        let etc = deployment.join("etc");
        fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(etc.join("passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
        fs::write(etc.join("group"), "root:x:0:\n").unwrap();
    }
    all
}

fn run(root: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(PROGRAM);
    Run::of(command.arg("--root").arg(root).args(args).output().unwrap())
}

fn config(disk: &TestRoot) -> String {
    let ignition = json!({"storage": {"files": [file("/etc/new", 0o644, "new\n"), file("/var/lib/new", 0o644, "too\n")]}});
    let mut config = machine_config("rendered-worker-1", ignition);
    config["spec"]["osImageURL"] = json!("");
    config["spec"]["kernelArguments"] = json!([]);
    disk.write("config", &config.to_string());
    disk.path("config").to_str().unwrap().to_owned()
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

#[test]
fn the_deployment_of_the_default_boot_entry_is_meant_with_its_var() {
    let Some((disk, var)) = disk() else { return };
    let all = deployments(&disk.0);
    let config = config(&disk.0);
    let before = mounts();
    let said = run(disk.0.dir(), &["apply", "--yes", &config]).ok().out();
    assert_eq!(mounts(), before, "nothing stays mounted");
    let [older, newest] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert!(
        said.contains(newest.file_name().unwrap().to_str().unwrap()),
        "{said}"
    );
    assert_eq!(fs::read_to_string(newest.join("etc/new")).unwrap(), "new\n");
    assert!(!older.join("etc/new").exists());
    // The real var has it, and the state of the tool; the deployment's own directory is as empty as ostree made it.
    assert_eq!(fs::read_to_string(var.join("lib/new")).unwrap(), "too\n");
    assert!(var.join("lib/mco-rescue/history").exists());
    assert!(!newest.join("var/lib/mco-rescue").exists());
    run(disk.0.dir(), &["verify"]).ok();
    run(disk.0.dir(), &["rollback", "--yes"]).ok();
    assert!(!newest.join("etc/new").exists() && !var.join("lib/new").exists());
}

#[test]
fn without_boot_entries_only_a_single_deployment_is_meant() {
    let Some((disk, _)) = disk() else { return };
    let all = deployments(&disk.0);
    let config = config(&disk.0);
    fs::rename(disk.0.path("boot"), disk.0.path("elsewhere")).unwrap();
    let said = run(disk.0.dir(), &["apply", "--yes", &config])
        .exits(1)
        .err();
    for words in [
        "it has 2 deployments",
        "Mount its boot partition",
        all[0].to_str().unwrap(),
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(all.iter().all(|one| !one.join("etc/new").exists()));
    let mut command = Command::new("chattr");
    command.arg("-i").arg(&all[0]).status().unwrap();
    fs::remove_dir_all(&all[0]).unwrap();
    run(disk.0.dir(), &["apply", "--yes", &config]).ok();
    assert!(all[1].join("etc/new").exists());
}

#[test]
fn a_boot_entry_that_leads_nowhere_is_named() {
    let Some((disk, _)) = disk() else { return };
    let all = deployments(&disk.0);
    let entries = disk.0.path("boot/loader/entries");
    for entry in fs::read_dir(&entries).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("/os/", "/gone/")).unwrap();
    }
    let said = run(disk.0.dir(), &["plan", &config(&disk.0)])
        .exits(1)
        .err();
    assert!(said.contains("which is not a deployment"), "{said}");
    assert!(all.iter().all(|one| !one.join("etc/new").exists()));
}
