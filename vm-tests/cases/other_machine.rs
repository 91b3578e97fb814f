//! The administrator who is locked out of a node takes its disk to another machine (story: the last resort).
//!
//! Prepared: the disk of a node at config A, whose only key is lost. A tiny guest, the other machine, has it as its
//! disk, and a clock that is years behind, as `mco-rescue doctor --root /mnt` says first (FP-15). There: `mco-rescue
//! apply --root /mnt` of B, which has the administrator's key and one more service. Then the disk goes back and the
//! node boots, with systemd. True afterwards: `core` logs in with the new key and not with the old one, the services
//! of B run, nothing has failed, `verify` finds nothing, and the daemon's record is B.

use serde_json::json;

use super::configs;
use super::node::{has_been_in, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::Node;
use crate::lab::qemu::Machine;
use crate::lab::{Case, disk, run};
use crate::support::file;

// A slow machine shows progress on the console; what is read begins a line of its own.
const SCRIPT: &str = "mount -t ext4 /dev/vda /mnt\nmco-rescue doctor --root /mnt 2>/dev/null | sed 's/^/DOCTOR /'\n\
    mco-rescue apply --root /mnt --yes /b.json; code=$?; echo; echo \"APPLY $code\"; umount /mnt\n";

// The one big guest that `make test` runs.
#[test]
fn a_disk_that_another_machine_has_applied_to_boots_into_that_config() {
    let Some(case) = Case::begin_as_root("12 another machine") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let lost = case.path("lost");
    let mut keygen = std::process::Command::new("ssh-keygen");
    run(keygen
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&lost));
    let old_key = std::fs::read_to_string(lost.with_extension("pub")).unwrap();
    let a = configs::worker(old_key.trim(), 250, json!({}));
    has_been_in(&node, &a);
    let more = json!({
        "files": [file("/etc/site.conf", 0o600, "of B\n")],
        "units": [{"name": "site.service", "enabled": true, "contents": configs::idle("the site's own")}],
    });
    let b = configs::worker(&node.public_key(), 500, more);
    let (tiny, initramfs) = (images::tiny(), images::initramfs(Kind::Lean));
    case.prepared();

    let other = Machine::tiny(&tiny)
        .file("case.sh", SCRIPT.as_bytes())
        .file("b.json", b.to_string().as_bytes())
        .device(&["-rtc", "base=2021-03-04T05:06:07"])
        .disk(node.disk());
    let mut guest = other.start(case.dir(), "other");
    guest.powers_off();
    assert_eq!(guest.value("APPLY "), "0", "{}", guest.tail());
    let doctor = guest.values("DOCTOR ");
    case.tell(&format!("doctor says:\n{}", doctor[..6].join("\n")));
    let behind = "CRITICAL FP-15: the clock of this machine is behind by ";
    assert!(doctor[0].starts_with(behind), "{doctor:?}");
    assert!(doctor[1].starts_with("Next "), "{doctor:?}");
    assert!(
        doctor[1..4]
            .iter()
            .any(|line| line.contains("date -u -s '")),
        "{doctor:?}"
    );
    case.tell(&format!(
        "applied in a tiny guest after {:.1} s",
        guest.seconds()
    ));
    assert_eq!(disk::read(node.disk(), "/etc/site.conf"), "of B\n");

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    case.tell(&format!(
        "core logs in {:.1} s after power-on",
        booted.guest.seconds()
    ));
    is_healthy_in(&booted, &b);
    assert_eq!(booted.ask("systemctl is-active site.service"), "active");
    assert_eq!(booted.ask("stat -c %a:%U /etc/site.conf"), "600:root");
    assert!(!booted.lets_in(&lost), "the lost key still opens the node");
    booted.power_off();
}
