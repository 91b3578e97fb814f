//! Each kind of fact that changes is exactly one difference.

use super::{boots, diff, differences, end_of_boot, history, node, record};
use crate::support::TestRoot;
use serde_json::json;

/// A change of a node, and the differences: area, subject and kind.
type Row = (
    fn(&TestRoot),
    &'static [(&'static str, &'static str, &'static str)],
);

const ROWS: &[Row] = &[
    (
        |root| root.write("etc/motd", "welcomf\n"),
        &[("etc", "/etc/motd", "changed")],
    ),
    (
        |root| root.chmod("etc/motd", 0o600),
        &[("etc", "/etc/motd", "changed")],
    ),
    (
        |root| root.remove("etc/motd"),
        &[("etc", "/etc/motd", "removed")],
    ),
    (
        |root| root.write("etc/new.conf", "a\n"),
        &[("etc", "/etc/new.conf", "added")],
    ),
    (
        |root| root.link("etc/a-link", "motd"),
        &[("etc", "/etc/a-link", "added")],
    ),
    (
        |root| {
            root.write(
                "boot/loader/entries/ostree-1.conf",
                "title OS 1\nversion 1\nlinux /ostree/os-1/vmlinuz\ninitrd /ostree/os-1/initramfs\noptions root=UUID=1 ro enforcing=0\n",
            );
        },
        &[("boot-entries", "ostree-1 options", "changed")],
    ),
    (
        |root| root.write("boot/grub2/grub.cfg", "set default=1\n"),
        &[("boot-files", "/boot/grub2/grub.cfg", "changed")],
    ),
    (
        |root| {
            root.write(
                "boot/grub2/grubenv",
                "# GRUB Environment Block\nsaved_entry=1\nboot_success=0\n",
            );
        },
        &[("boot-files", "/boot/grub2/grubenv saved_entry", "changed")],
    ),
    (
        |root| root.write("boot/efi/EFI/redhat/grubx64.efi", "MZ2\n"),
        &[("esp", "/boot/efi/EFI/redhat/grubx64.efi", "changed")],
    ),
    (
        |root| {
            root.write(
                "proc/cmdline",
                "BOOT_IMAGE=/vmlinuz root=UUID=2 ro mitigations=auto\n",
            )
        },
        &[("command-line", "root", "changed")],
    ),
    (
        |root| root.write("proc/sys/kernel/osrelease", "5.14.0-2.el9.x86_64\n"),
        &[("versions", "kernel", "changed")],
    ),
    (
        |root| root.write("usr/bin/kubelet", "a newer program\n"),
        &[("versions", "kubelet program", "changed")],
    ),
    (
        |root| {
            root.write(
                "run/udev/data/n2",
                "E:ID_NET_DRIVER=ice\nE:ID_PATH=pci-0000:01:00.0\n",
            )
        },
        &[("interfaces", "eth0 driver", "changed")],
    ),
    (
        |root| root.write("sys/class/net/eth0/address", "52:54:00:aa:bb:cd\n"),
        &[("interfaces", "eth0 address", "changed")],
    ),
    (
        |root| {
            root.write(
                "proc/net/fib_trie",
                "Main:\n     |-- 192.0.2.11\n        /32 host LOCAL\n",
            );
        },
        &[
            ("addresses", "192.0.2.10", "removed"),
            ("addresses", "192.0.2.11", "added"),
        ],
    ),
    (
        |root| root.write("proc/net/if_inet6", ""),
        &[("addresses", "2001:db8::10", "removed")],
    ),
    (
        |root| root.write("sys/class/block/sda/size", "4096\n"),
        &[("disks", "wwn-0x5000", "changed")],
    ),
    (
        |root| {
            root.write(
                "var/lib/mco-rescue/annotations.json",
                r#"{"version":1,"node":"w","seen":1700000000,"current":"rendered-a","desired":"rendered-b","state":"Degraded"}"#,
            );
        },
        &[
            ("config", "wanted by the cluster", "changed"),
            ("daemon", "state", "changed"),
        ],
    ),
    (
        |root| {
            root.write(
                "var/lib/mco-rescue/server-clock.json",
                r#"{"version":1,"url":"https://a","date":1700000000,"seen":1700000700}"#,
            );
        },
        &[("clock", "node", "changed")],
    ),
];

/// A directory that goes as a whole is one line for people, with the number of its objects; programs get all of them.
#[test]
fn a_directory_that_is_gone_is_one_line() {
    let root = super::node();
    for number in 0..30 {
        root.write(&format!("etc/certs/below/{number}.pem"), "x");
    }
    super::record(&root);
    std::fs::remove_dir_all(root.path("etc/certs")).unwrap();
    root.write("etc/motd", "changed\n");
    let run = root.run(&["diff", "1"]);
    let text = run.out();
    assert!(text.contains("  - /etc/certs: directory"), "{text}");
    assert!(text.contains("and 31 objects below it"), "{text}");
    assert!(
        text.contains("/etc/motd") && !text.contains(".pem"),
        "{text}"
    );
    let all = root.run(&["diff", "1", "--output", "json"]).json();
    assert_eq!(all["differences"].as_array().unwrap().len(), 33);
}

#[test]
fn each_change_is_exactly_its_difference() {
    for (number, (change, wanted)) in ROWS.iter().enumerate() {
        let root = node();
        end_of_boot(&root);
        assert_eq!(differences(&diff(&root, &[])), []);
        change(&root);
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(area, subject, kind)| {
                (
                    (*area).to_owned(),
                    (*subject).to_owned(),
                    (*kind).to_owned(),
                )
            })
            .collect();
        assert_eq!(differences(&diff(&root, &[])), wanted, "row {number}");
        // Between two snapshots it is the same.
        boots(&root, "boot-2");
        end_of_boot(&root);
        assert_eq!(
            differences(&diff(&root, &["1", "2"])),
            wanted,
            "row {number}"
        );
        assert_eq!(differences(&diff(&root, &[])), []);
        assert_eq!(history(&root)["entries"][0]["differences"], wanted.len());
    }
}

#[test]
fn certificates_are_recorded_by_their_dates() {
    let root = node();
    let certificate = |days| crate::doctor::certificate_of("kubelet-signer", days);
    root.write("etc/kubernetes/kubelet-ca.crt", &certificate(100));
    end_of_boot(&root);
    root.write("etc/kubernetes/kubelet-ca.crt", &certificate(200));
    let found = diff(&root, &[]);
    let areas: Vec<String> = differences(&found).into_iter().map(|one| one.0).collect();
    assert_eq!(areas, ["certificates", "etc"]);
    let subject = found["differences"][0]["subject"].as_str().unwrap();
    assert!(
        subject.starts_with("/etc/kubernetes/kubelet-ca.crt "),
        "{subject}"
    );
}

#[test]
fn what_kills_most_often_comes_first() {
    let root = node();
    end_of_boot(&root);
    root.write("etc/motd", "x\n");
    root.write("etc/fstab", "x\n");
    root.write(
        "run/udev/data/n2",
        "E:ID_NET_DRIVER=ice\nE:ID_PATH=pci-0000:01:00.0\n",
    );
    root.write("etc/systemd/system/kubelet.service.d/20-a.conf", "x\n");
    root.remove("boot/loader/entries/ostree-1.conf");
    let subjects: Vec<String> = differences(&diff(&root, &[]))
        .into_iter()
        .map(|one| one.1)
        .collect();
    let at = |subject: &str| subjects.iter().position(|one| one == subject).unwrap();
    assert_eq!(at("default"), 0);
    assert!(at("ostree-1 options") < at("eth0 driver"));
    assert!(at("eth0 driver") < at("/etc/systemd/system/kubelet.service.d/20-a.conf"));
    assert!(at("/etc/systemd/system/kubelet.service.d/20-a.conf") < at("/etc/fstab"));
    assert!(at("/etc/fstab") < at("/etc/motd"));
}

#[test]
fn a_disk_that_is_not_booted_is_compared_in_what_it_has() {
    let root = node();
    end_of_boot(&root);
    for gone in ["proc", "sys", "dev", "run"] {
        std::fs::remove_dir_all(root.path(gone)).unwrap();
    }
    root.write("etc/fstab", "x\n");
    let found = diff(&root, &[]);
    let wanted = (
        "etc".to_owned(),
        "/etc/fstab".to_owned(),
        "changed".to_owned(),
    );
    assert_eq!(differences(&found)[..1], [wanted]);
    let not: Vec<&str> = found["not_compared"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["area"].as_str().unwrap())
        .collect();
    assert_eq!(
        not,
        ["command-line", "interfaces", "addresses", "disks", "units"]
    );
}

#[test]
fn text_is_shown_where_a_copy_is_kept() {
    let root = node();
    root.write(
        "etc/mco-rescue/recorder-copies",
        "# ours\n/etc/fstab\n/etc/missing\n",
    );
    end_of_boot(&root);
    root.write("etc/fstab", "UUID=2 / xfs defaults 0 0\n");
    root.write("etc/motd", "x\n");
    let found = diff(&root, &[]);
    let text = found["differences"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("-UUID=1 / xfs") && text.contains("+UUID=2 / xfs"),
        "{text}"
    );
    assert_eq!(found["differences"][1]["text"], json!(null));
    let shown = root.run(&["diff"]).exits(3).out();
    assert!(shown.contains("-UUID=1 / xfs"), "{shown}");
}

#[test]
fn the_text_fits_80_columns() {
    let root = node();
    end_of_boot(&root);
    root.write(&format!("etc/{}file", "long-name/".repeat(9)), "x\n");
    root.write("etc/line\nbreak", "x\n");
    for (args, code) in [(["diff"], 3), (["history"], 0)] {
        let shown = root.run(&args).exits(code).out();
        for line in shown.lines().filter(|line| !line.contains("long-name")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn a_name_that_is_not_text_is_not_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    let root = node();
    record(&root);
    let name = std::ffi::OsStr::from_bytes(b"bad\xff");
    std::fs::write(root.path("etc").join(name), "x\n").unwrap();
    let found = differences(&diff(&root, &["1", "now"]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1, "/etc/bad\u{fffd}");
}
