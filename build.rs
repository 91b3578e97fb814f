//! What the linker leaves out of the released program: it lives in an initramfs.

#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "of the machine that builds, not of a node"
)]

use std::env;
use std::ffi::{CStr, c_char};
use std::fs;
use std::path::Path;

/// Tables for unwinding the stack. The release aborts on a panic, so nothing ever reads them; they are an eighth of it.
const SCRIPT: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } } INSERT AFTER .rodata;\n";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // `profile.release` aborts; `profile.profiling`, with names of functions, is for tools that walk the stack.
    let aborts = is("PROFILE", "release") && is("DEBUG", "false");
    // Since Rust 1.90 the compiler brings its own linker, LLD, for this target alone; others may know neither option.
    let lld = is("TARGET", "x86_64-unknown-linux-gnu") && !names_a_linker();
    if aborts && lld {
        let script = Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("release.ld");
        fs::write(&script, SCRIPT)?;
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
        // Functions that came out the same are one.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        if relocates_packed() {
            println!("cargo::rustc-link-arg-bins=-Wl,--pack-dyn-relocs=relr");
        }
    }
    Ok(())
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
