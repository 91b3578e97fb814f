//! Options of the linker that make the released program smaller, as it lives in an initramfs, and the facts that
//! `--version --verbose` names.

#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "of the machine that builds, not of a node"
)]

use std::env;
use std::ffi::{CStr, c_char};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Tables for unwinding the stack. The release aborts on a panic, so nothing ever reads them; they are an eighth of it.
const NO_TABLES: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } } INSERT AFTER .rodata;\n";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    tell_facts();
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // `profile.release` aborts; `profile.profiling`, with names of functions, is for tools that walk the stack.
    let aborts = is("PROFILE", "release") && is("DEBUG", "false");
    // Since Rust 1.90 the compiler brings its own linker, LLD, for this target alone; others may know neither option.
    let lld = is("TARGET", "x86_64-unknown-linux-gnu") && !names_a_linker();
    if aborts && lld {
        let script = Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("release.ld");
        fs::write(&script, NO_TABLES)?;
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
        // Functions that came out the same are one.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        if relocates_packed() {
            println!("cargo::rustc-link-arg-bins=-Wl,--pack-dyn-relocs=relr");
        }
    }
    Ok(())
}

/// The inputs of the program: a change of any makes it another one.
const INPUTS: [&str; 7] = [
    "src",
    "systemd",
    "dracut",
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    ".cargo",
];

/// Facts for `--version --verbose`. None of them depends on the place or the time of the build.
fn tell_facts() {
    println!("cargo::rerun-if-env-changed=MCO_RESCUE_COMMIT");
    println!("cargo::rerun-if-changed=.git_archival.txt");
    let of = |name: &str| env::var(name).unwrap_or_default();
    let compiler = said_by(Command::new(of("RUSTC")).arg("--version"));
    for (name, value) in [
        ("COMMIT", find_commit()),
        ("TARGET", of("TARGET")),
        (
            "FEATURES",
            of("CARGO_CFG_TARGET_FEATURE").replace(',', ", "),
        ),
        ("PROFILE", of("PROFILE")),
        ("COMPILER", compiler.unwrap_or_default()),
    ] {
        println!("cargo::rustc-env=MCO_RESCUE_{name}={value}");
    }
}

/// The commit: as the release says, as `git archive` has written it, or as git says. A build for development does not ask git, as
/// each commit would compile everything again.
fn find_commit() -> String {
    if let Ok(commit) = env::var("MCO_RESCUE_COMMIT")
        && !commit.is_empty()
    {
        return commit;
    }
    let archived = fs::read_to_string(".git_archival.txt").unwrap_or_default();
    let archived = archived.trim().strip_prefix("commit ");
    if let Some(commit) = archived.filter(|commit| !commit.contains('$')) {
        return commit.to_owned();
    }
    // A tarball that is unpacked in another project's checkout is not of that project.
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") || !Path::new(".git").exists()
    {
        return String::new();
    }
    for input in INPUTS {
        println!("cargo::rerun-if-changed={input}");
    }
    let git = || Command::new("git");
    let Some(commit) = said_by(git().args(["rev-parse", "HEAD"])) else {
        return String::new();
    };
    let status = ["status", "--porcelain", "--"];
    match said_by(git().args(status).args(INPUTS)) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + ", changed",
    }
}

/// Returns the output of a program, if it is here and succeeds.
fn said_by(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Whether the C library understands packed relocations, which glibc does since 2.36. It is asked of the one that runs
/// here, as the static one is built with it.
fn relocates_packed() -> bool {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const c_char;
    }
    // SAFETY: the call has no arguments, and gives a constant string.
    let version = unsafe { CStr::from_ptr(gnu_get_libc_version()) };
    let version = version.to_string_lossy();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    (major, minor) >= (Some(2), Some(36))
}

/// Whether somebody has chosen another linker.
fn names_a_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_some_and(|linker| !linker.is_empty())
        || flags.contains("linker=")
        || flags.contains("-fuse-ld")
        || flags.contains("linker-features")
}
