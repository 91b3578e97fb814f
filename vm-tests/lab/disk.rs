//! Disks that are files: fresh copies, and what is on one that no guest runs on.

use std::path::Path;
use std::process::Command;

use super::run;

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
