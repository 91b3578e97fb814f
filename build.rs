//! What the linker leaves out of the released program: it lives in an initramfs.

use std::env;
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
    }
    Ok(())
}

/// Whether somebody has chosen another linker.
fn names_a_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_some_and(|linker| !linker.is_empty())
        || flags.contains("linker=")
        || flags.contains("-fuse-ld")
        || flags.contains("linker-features")
}
