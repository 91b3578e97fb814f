//! Virtual machines: real kernels, real disks, real boots, with the program in the middle of them.
//!
//! `cargo test --test vm` runs the tiny guests (a kernel, busybox and the static binary; a boot takes seconds even
//! under emulation) and one big guest; `make vm-test` runs every case and prints a table of them. A big guest is a
//! Debian with systemd, dracut, OpenSSH and the account tools; what stands in for something else (kubelet, crio)
//! says so in its unit's description. `lab` builds images, starts guests and reads their disks; a file of `cases`
//! is one person's story.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    unused_crate_dependencies
)]

mod cases;
mod lab;
#[allow(dead_code)]
#[path = "../tests/support/mod.rs"]
mod support;
