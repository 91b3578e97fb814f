//! FP-07: /boot is too full for the next OS.

use std::fs::{self, File};

use super::worker::{Branch, Row, all_met, healthy, is_well, on_a_node, sick, well};
use super::{FINE, Sick, WARNING, doctor, doctor_on, doctor_with, finding, unseen};
use crate::support::TestRoot;
use crate::support::ostree_node::NEXT;
use serde_json::json;

pub(super) const SICK: &[Sick] = &[Sick {
    id: "FP-07",
    code: FINE,
    what: "kernels on /boot that no entry names",
    next: "ostree admin cleanup",
    sicken: |root| kernels(root, &[0, 0]),
}];

/// Kernels of this size, which are holes and take no room; the first is that of the boot entry.
pub(super) fn kernels(root: &TestRoot, sizes: &[u64]) {
    for (name, size) in ["a", "b"].iter().zip(sizes) {
        let kernel = format!("boot/ostree/rhcos-{name}/vmlinuz");
        root.write(&kernel, "");
        let kernel = File::options().write(true).open(root.path(&kernel));
        kernel.unwrap().set_len(*size).unwrap();
    }
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "title A\nversion 1\nlinux /ostree/rhcos-a/vmlinuz\noptions rw ostree=/ostree/boot.1/rhcos/a/0\n",
    );
}

const HUGE: u64 = 1 << 42;

const BOOT: [Row; 4] = [
    well("FP-07", |root| kernels(root, &[1])),
    sick(
        |root| kernels(root, &[1, 1]),
        Branch {
            id: "FP-07",
            severity: "notice",
            what: "kernels on /boot that no entry names",
            seen: &["/boot/ostree/rhcos-b", "1 MiB"],
            next: &["ostree admin cleanup --sysroot=ROOT"],
        },
    ),
    sick(
        |root| kernels(root, &[HUGE, HUGE]),
        Branch {
            id: "FP-07",
            severity: "notice",
            what: "/boot has room for the next OS only after a clean-up",
            seen: &[
                "can be removed",
                "4194304 MiB, for no boot entry",
                "4194304 MiB, for ostree-1",
            ],
            next: &[
                "ostree admin status --sysroot=ROOT",
                "ostree admin cleanup --sysroot=ROOT",
            ],
        },
    ),
    well("FP-07", |root| fs::create_dir(root.path("boot")).unwrap()),
];

#[test]
fn room_on_boot_that_a_clean_up_gives_is_reported() {
    all_met(&BOOT);
}

#[test]
fn a_kernel_that_would_not_fit_on_boot_is_found() {
    let root = healthy();
    kernels(&root, &[0, 0]);
    // A hole: it takes no room here.
    let kernel = File::create(root.path("boot/ostree/rhcos-a/vmlinuz")).unwrap();
    kernel.set_len(1 << 42).unwrap();
    let report = doctor_with(&root, &["--output", "json"])
        .exits(WARNING)
        .json();
    let found = finding(&report, "FP-07");
    assert!(
        found["what"].as_str().unwrap().starts_with("/boot lacks "),
        "{found:#}"
    );
    let status = found["next"][0].as_str().unwrap();
    assert!(
        status.starts_with("ostree admin status --sysroot="),
        "{status}"
    );
}

#[test]
fn a_foreign_file_that_fills_boot_is_named_with_what_moves_it_away() {
    let root = healthy();
    kernels(&root, &[HUGE]);
    fs::write(root.path("boot/dump.img"), vec![1; 3 << 20]).unwrap();
    fs::create_dir(root.path("boot/copies")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(root.path("boot/copies").join(name), vec![1; 1 << 19]).unwrap();
    }
    let report = doctor(&root);
    let found = finding(&report, "FP-07");
    let place = root.dir().display();
    for said in [
        json!({"place": "/boot/dump.img", "said": "3 MiB, of no deployment"}),
        json!({"place": "/boot/copies", "said": "2 MiB in its own files, of no deployment"}),
    ] {
        let facts = found["evidence"].as_array().unwrap();
        assert!(facts.contains(&said), "{found:#}");
    }
    let wanted = json!([
        format!("ostree admin status --sysroot={place}"),
        format!("ls -lh {place}/boot/dump.img"),
        format!("mv {place}/boot/dump.img {place}/var/"),
    ]);
    assert_eq!(found["next"], wanted);
}

#[test]
fn a_boot_that_is_not_mounted_is_reported_with_the_command_that_mounts_it() {
    let root = healthy();
    assert!(unseen(&doctor(&root), "FP-07").contains("there is no /boot"));
    fs::create_dir(root.path("boot")).unwrap();
    let text = unseen(&doctor(&root), "FP-07");
    let place = root.dir().display();
    let command = format!(
        "`mount -o ro /dev/disk/by-label/boot {place}/boot`, then `mco-rescue doctor --root {place}`"
    );
    assert!(text.contains(&command), "{text}");
    fs::remove_dir(root.path("usr/etc")).unwrap();
    assert_eq!(unseen(&doctor(&root), "FP-07"), "[]", "it boots no images");
}

#[test]
fn a_kernel_that_a_shutdown_cannot_write_is_critical_once_its_os_is_staged() {
    on_a_node(|node| {
        kernels(&node.root, &[1]);
        is_well(node, "FP-07");
        kernels(&node.root, &[HUGE]);
        let report = doctor_on(node);
        // How much it lacks depends on what others write there meanwhile.
        let lacks = |severity, seen| Branch {
            id: "FP-07",
            severity,
            what: "/boot lacks ",
            seen,
            // There is no second deployment, so a clean-up frees nothing.
            next: &["du -xah /boot | sort -h | tail"],
        };
        lacks(
            "warning",
            &[
                "will be staged, but lost at the shutdown",
                "No space left on device",
            ],
        )
        .met_by(&report, "");
        let staged =
            format!("image=ostree-unverified-registry:{NEXT}\npackages=\"\"\nremovals=\"\"\n");
        node.root.write("stub/staged", &staged);
        lacks(
            "critical",
            &["An OS is staged, and the next shutdown cannot write it"],
        )
        .met_by(&doctor_on(node), "");
    });
}
