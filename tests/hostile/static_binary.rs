//! The program is static and stays out of the node's C library: no name-service module is ever loaded,
//! whatever `nsswitch.conf` names. (A static glibc would load them, with the node's own libc, if it were
//! asked for a user or a host; so it never is.)

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Lacks, PROGRAM, TestRoot, file, is_root, kubelet_unit, machine_config, skip};
use serde_json::json;

fn config() -> serde_json::Value {
    let mut entry = file("/etc/x", 0o640, "x");
    entry["user"] = json!({"name": "core"});
    machine_config(
        "rendered-worker-a",
        json!({
            "storage": {"files": [entry]},
            "systemd": {"units": [kubelet_unit()]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]},
        }),
    )
}

#[test]
fn the_program_needs_no_interpreter_and_no_library() {
    let headers = Command::new("readelf")
        .args(["-lW", "-d", PROGRAM])
        .output()
        .unwrap();
    let headers = String::from_utf8(headers.stdout).unwrap();
    assert!(headers.contains("Program Headers"), "{headers}");
    assert!(
        !headers.contains("INTERP") && !headers.contains("NEEDED"),
        "{headers}"
    );
}

/// The release has no tables for unwinding: whoever walks the stack, as a backtrace does, is aborted.
#[test]
fn an_error_is_told_whatever_somebody_wants_to_see_of_the_stack() {
    let run = |arguments: &[&str], root: &Path| {
        let run = Command::new(PROGRAM)
            .env("RUST_BACKTRACE", "1")
            .env("RUST_LIB_BACKTRACE", "1")
            .arg("--root")
            .arg(root)
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(run.stdout).unwrap() + &String::from_utf8_lossy(&run.stderr);
        (run.status.code(), said)
    };
    let root = TestRoot::new();
    let nowhere = root.path("nowhere");
    let (code, said) = run(&["status"], &nowhere);
    assert_eq!(code, Some(1), "{said}");
    let wanted = format!(
        "error: opening the root: {}: no such file or directory\n",
        nowhere.display()
    );
    assert_eq!(said, wanted);
    let config = root.config(&config());
    let (code, said) = run(&["apply", "--yes", config.path()], root.dir());
    assert_eq!(code, Some(0), "{said}");
    // What cannot be inspected is skipped, and every failure on the way is an error that somebody made.
    let (code, said) = run(&["doctor"], root.dir());
    let all = format!(
        "{} checks",
        mco_rescue::diagnose::doctor::checks::CHECKS.len()
    );
    assert!(code.is_some() && said.contains(&all), "{said}");
}

#[test]
fn no_library_and_no_name_service_file_is_opened() {
    let root = TestRoot::new();
    let config = root.config(&config());
    let log = tempfile::NamedTempFile::new().unwrap();
    let run = Command::new("strace")
        .args(["-f", "-e", "trace=open,openat,openat2,execve", "-o"])
        .arg(log.path())
        .args([PROGRAM, "--root"])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let calls = fs::read_to_string(log.path()).unwrap();
    assert!(calls.contains("openat2("), "the trace is empty");
    let opened: Vec<&str> = calls
        .lines()
        .filter(|line| is_of_the_c_library(line))
        .collect();
    assert!(opened.is_empty(), "{opened:?}");
}

/// The C library of the node is looked at for its architecture; none of this machine is loaded.
fn is_of_the_c_library(line: &str) -> bool {
    if line.contains("RESOLVE_IN_ROOT") {
        return false;
    }
    ["nsswitch", "libnss", "ld.so.cache", ".so.", "resolv.conf"]
        .iter()
        .any(|name| line.contains(name))
}

#[test]
fn foreign_name_service_modules_are_left_alone() {
    if !is_root() {
        return skip(Lacks::Root, "a mount namespace needs root");
    }
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    fs::write(
        at("nsswitch.conf"),
        "passwd: bogus files\ngroup: bogus files\nhosts: bogus myhostname resolve dns\n",
    )
    .unwrap();
    fs::write(
        at("bogus.c"),
        "#include <stdlib.h>\n__attribute__((constructor)) static void loaded(void) { abort(); }\n",
    )
    .unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(at("libnss_bogus.so.2"))
        .arg(at("bogus.c"))
        .status();
    assert!(built.unwrap().success());
    let root = TestRoot::new();
    let config = root.config(&config());
    let script = format!(
        "mount --bind {nsswitch} /etc/nsswitch.conf && LD_LIBRARY_PATH={work} {PROGRAM} --root {root} apply --yes {config}",
        nsswitch = at("nsswitch.conf").display(),
        work = work.path().display(),
        root = root.dir().display(),
        config = config.path(),
    );
    let run = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(root.read("etc/x"), "x");
}
