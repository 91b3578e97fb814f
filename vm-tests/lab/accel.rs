//! KVM or emulation: decided once, by booting a guest.
//!
//! A `/dev/kvm` that can be opened proves nothing: nested and paravirtual ones were seen that start a machine and
//! never get a stock kernel to user space, and QEMU does not fall back by itself.

use std::fs::OpenOptions;
use std::sync::OnceLock;
use std::time::Duration;

use super::images;
use super::qemu::Machine;
use crate::support::say;

/// What QEMU's `-accel` gets: `kvm` or `tcg`. `VM_ACCEL` decides unasked.
pub fn accelerator() -> &'static str {
    static ANSWER: OnceLock<&str> = OnceLock::new();
    ANSWER.get_or_init(|| {
        let (answer, why) = decide();
        say(&format!("vm: accelerator {answer}: {why}"));
        answer
    })
}

fn decide() -> (&'static str, &'static str) {
    match std::env::var("VM_ACCEL").as_deref() {
        Ok("kvm") => return ("kvm", "VM_ACCEL says so"),
        Ok("tcg") => return ("tcg", "VM_ACCEL says so"),
        _ => {}
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if device.is_err() {
        return ("tcg", "there is no /dev/kvm that can be opened");
    }
    if boots() {
        ("kvm", "a guest booted with it")
    } else {
        ("tcg", "/dev/kvm is there, but no guest comes up with it")
    }
}

/// Whether a guest gets to user space. Emulation does it in four seconds.
fn boots() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Machine::tiny(&images::tiny_alone())
        .file("diskless", b"")
        .accelerator("kvm")
        .start(dir.path(), "probe");
    guest.comes_to("TINY up", Duration::from_secs(10))
}
