//! Disks that are files: fresh copies, and what is on one that no guest runs on.

use std::path::Path;
use std::process::Command;

use super::run;
use crate::support::mounts::{mount, unmount, with_mounts};

/// A file system's empty disk, sparse. Needs neither root nor loop devices.
pub fn formatted(path: &Path, mebibytes: u64, mkfs: &[&str]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(mebibytes << 20).unwrap();
    let (program, options) = mkfs.split_first().unwrap();
    run(Command::new(program).args(options).arg(path));
}

/// A copy of its own.
pub fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["--sparse=always", "--reflink=auto"]);
    run(command.arg(from).arg(to));
}

/// A file of an ext4 disk that no guest runs on.
pub fn read(disk: &Path, path: &str) -> String {
    let mut command = Command::new("debugfs");
    command.args(["-R", &format!("cat {path}")]);
    run(command.arg(disk))
}

/// Mounts a disk for nobody but the work on it. As root.
pub fn mounted(disk: &Path, work: impl FnOnce(&Path) + Send) {
    with_mounts(|| {
        let top = tempfile::tempdir().unwrap();
        mount(&[
            "-o",
            "loop",
            disk.to_str().unwrap(),
            top.path().to_str().unwrap(),
        ]);
        work(top.path());
        unmount(top.path());
    });
}
