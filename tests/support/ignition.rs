//! Debian's Ignition, driven as its dracut module does.
//!
//! Its labelling step needs a policy and `setfiles`; both are stubs here, as labels are not compared.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Lacks, TestRoot, is_root, skip};

const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// Whether the comparison can be made here.
pub fn can_compare() -> bool {
    if !is_root() {
        skip(Lacks::Root, "comparing with Ignition needs root");
        return false;
    }
    if !Path::new(IGNITION).exists() {
        skip(Lacks::Setup, "Debian's package ignition is not installed");
        return false;
    }
    true
}

/// Runs Ignition's fetch and files stages on a root; they must work.
pub fn ignite(root: &TestRoot, config: &Value) {
    if let Err(said) = try_ignite(root, config) {
        panic!("{said}");
    }
}

/// The same; what Ignition said where a stage fails.
pub fn try_ignite(root: &TestRoot, config: &Value) -> Result<(), String> {
    root.write("etc/selinux/config", "SELINUXTYPE=stub\n");
    let done = try_ignite_at(root.dir(), config);
    fs::remove_file(root.path("etc/selinux/config")).unwrap();
    fs::remove_dir(root.path("etc/selinux")).unwrap();
    done
}

/// The same on any directory that has a configuration of SELinux.
pub fn try_ignite_at(root: &Path, config: &Value) -> Result<(), String> {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("config.ign"), config.to_string()).unwrap();
    let setfiles = work.path().join("setfiles");
    fs::write(&setfiles, "#!/bin/sh\ncat > /dev/null\n").unwrap();
    fs::set_permissions(&setfiles, fs::Permissions::from_mode(0o755)).unwrap();
    let runs = ["fetch", "files"].map(|name| stage(name, root, work.path()));
    match runs.iter().find(|run| !run.status.success()) {
        Some(run) => Err(String::from_utf8_lossy(&run.stdout).into_owned()),
        None => Ok(()),
    }
}

/// Where the root has a `proc`, the system's own is there while Ignition runs: Debian's useradd cannot copy
/// directories of the skeleton without it.
fn stage(name: &str, root: &Path, work: &Path) -> Output {
    let mut command = Command::new(IGNITION);
    if root.join("proc").exists() {
        let script = "mount --bind /proc \"$0\" && exec \"$@\"";
        command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", script]);
        command.arg(root.join("proc")).arg(IGNITION);
    }
    command
        .env("IGNITION_CONFIG_FILE", work.join("config.ign"))
        .env("IGNITION_WRITE_AUTHORIZED_KEYS_FRAGMENT", "true")
        .env("PATH", format!("{}:/usr/sbin:/usr/bin", work.display()))
        .args(["--platform=file", "--log-to-stdout"])
        .arg(format!("--stage={name}"))
        .arg(format!("--root={}", root.display()))
        .arg(format!("--config-cache={}", work.join("cache").display()))
        .arg(format!("--state-file={}", work.join("state").display()))
        .output()
        .unwrap()
}
