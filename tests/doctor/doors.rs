//! The checks that `preflight` makes too (FP-35, 36, 37, 38, 42, 43, 56, 58): on the node and the image of the crossings,
//! which is staged here.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{doctor, found, of, says, unseen};
use crate::crossing::hardware::FLAGS_V3;
use crate::crossing::{BOOT_UUID, Device, ESP_TYPE, Lab, ROOT_UUID, findings_of};
use crate::support::ostree_node::{STAGED, staged_file};

/// Each check, and that of `preflight` which judges it.
const DOORS: [(&str, &[&str]); 8] = [
    ("FP-35", &["interface-names", "legacy-connections"]),
    ("FP-36", &["container-runtime"]),
    ("FP-37", &["boot-loader", "boot-entries"]),
    ("FP-38", &["cpu-level"]),
    ("FP-42", &["boot-filesystem"]),
    ("FP-43", &["kernel-arguments"]),
    ("FP-56", &["secure-boot"]),
    ("FP-58", &["multipath"]),
];
const RUNC: &str = "[crio.runtime]\ndefault_runtime = \"runc\"\n";
const SECURE_BOOT: &str =
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const ARGUMENTS: [&str; 3] = ["rw", "root=UUID=1", BOOT];
const BOOT: &str = "boot=UUID=22222222-0000-4000-8000-000000000002";

fn deployment() -> String {
    format!("sysroot/ostree/deploy/rhcos/deploy/{STAGED}.0")
}

fn booted() -> Lab {
    let lab = Lab::healthy();
    fs::create_dir_all(lab.node.path("usr/etc")).unwrap();
    lab
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    let mut command = Command::new("cp");
    assert!(
        command
            .arg("-a")
            .arg(from.join("."))
            .arg(to)
            .status()
            .unwrap()
            .success()
    );
}

/// Stages the image of the lab with these kernel arguments.
fn stage_with(lab: &Lab, arguments: &[&str]) {
    copy(lab.target.dir(), &lab.node.path(&deployment()));
    lab.node.write("run/ostree/staged-deployment", "");
    let file = staged_file(&format!("{STAGED}.0"), false, arguments);
    fs::write(lab.node.path("run/ostree/staged-deployment"), file).unwrap();
}

fn seen_staged(lab: &Lab) -> Value {
    stage_with(lab, &ARGUMENTS);
    doctor(&lab.node)
}

/// The node runs the image, and nothing is staged.
fn seen_running(lab: &Lab) -> Value {
    copy(&lab.target.path("usr"), &lab.node.path("usr"));
    doctor(&lab.node)
}

/// The ids of these checks that have a finding.
fn ids(seen: &Value) -> BTreeSet<String> {
    let all = DOORS.iter().filter(|(id, _)| !of(seen, id).is_empty());
    all.map(|(id, _)| (*id).to_owned()).collect()
}

fn old_processor(lab: &Lab) {
    let text = format!(
        "processor\t: 0\nflags\t\t: {}\n",
        FLAGS_V3.replace("avx2 ", "")
    );
    lab.node.write("proc/cpuinfo", &text);
}

fn other_boot(lab: &Lab) {
    let other = [
        ("ID_FS_LABEL", "boot"),
        ("ID_FS_TYPE", "ext4"),
        ("ID_FS_UUID", "9"),
    ];
    lab.add_device(&Device {
        number: "8:16",
        name: "sdb",
        ..Device::default()
    });
    lab.add_device(&Device {
        number: "8:19",
        name: "sdb3",
        disk: "8:16",
        properties: &other,
    });
}

fn second_path(lab: &Lab) {
    lab.add_device(&Device {
        number: "8:20",
        name: "sdb4",
        properties: &[
            ("ID_SERIAL", "disk-1"),
            ("ID_FS_UUID", ROOT_UUID),
            ("ID_FS_TYPE", "xfs"),
        ],
        ..Device::default()
    });
}

/// A program with a row of SBAT, and the level that it sets as a shim.
fn program(grub: u32, level: &str) -> Vec<u8> {
    let sbat = format!("sbat,1,v,n,1,u\nshim,4,v,n,1,u\ngrub,{grub},v,n,1,u\n").into_bytes();
    let mut raised = vec![0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0];
    raised.extend(format!("{level}\0").into_bytes());
    let mut bytes = b"MZ".to_vec();
    bytes.resize(0x3c, 0);
    bytes.extend(0x40u32.to_le_bytes());
    bytes.extend(b"PE\0\0\x64\x86\x02\0");
    bytes.extend([0; 16]);
    let mut start = bytes.len() + 80;
    for (name, content) in [(".sbat", &sbat), (".sbatlev", &raised)] {
        let mut entry = name.as_bytes().to_vec();
        entry.resize(16, 0);
        entry.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        entry.extend(u32::try_from(start).unwrap().to_le_bytes());
        entry.resize(40, 0);
        bytes.extend(entry);
        start += content.len();
    }
    bytes.extend(sbat);
    bytes.extend(raised);
    bytes
}

/// Secure Boot, a partition of this GRUB and an image with a shim that raises the level over generation 4.
fn secured(own_shim: &[u8], own_grub: &[u8]) -> Lab {
    let lab = booted();
    let shim = program(5, RAISED);
    let put = |root: &crate::support::TestRoot, path: &str, bytes: &[u8]| {
        root.write(path, "");
        fs::write(root.path(path), bytes).unwrap();
    };
    for (path, image, own) in [
        ("BOOT/BOOTX64.EFI", &shim[..], own_shim),
        ("redhat/shimx64.efi", &shim, own_shim),
        ("redhat/grubx64.efi", &program(5, ""), own_grub),
    ] {
        put(
            &lab.target,
            &format!("usr/lib/bootupd/updates/EFI/{path}"),
            image,
        );
        put(&lab.node, &format!("boot/efi/EFI/{path}"), own);
    }
    put(&lab.node, SECURE_BOOT, &[6, 0, 0, 0, 1]);
    lab
}
const RAISED: &str = "sbat,1,2025021800\nshim,4\ngrub,5\n";

#[test]
fn nothing_is_found_on_a_healthy_node_whatever_is_staged() {
    let lab = booted();
    for (what, seen) in [
        ("nothing", doctor(&lab.node)),
        ("the next major", seen_staged(&lab)),
        ("the same", seen_running(&booted())),
    ] {
        assert_eq!(ids(&seen), BTreeSet::new(), "{what}: {seen:#}");
    }
    let seen = seen_staged(&lab);
    for (id, _) in DOORS {
        assert_eq!(unseen(&seen, id), "[]", "{id}");
    }
}

#[test]
fn a_root_that_boots_no_images_is_not_judged() {
    let lab = Lab::healthy();
    fs::remove_dir_all(lab.node.path("sysroot")).unwrap();
    old_processor(&lab);
    other_boot(&lab);
    let seen = doctor(&lab.node);
    for (id, _) in DOORS {
        assert_eq!(
            (of(&seen, id).len(), unseen(&seen, id)),
            (0, "[]".to_owned())
        );
    }
}

type Broken = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    fn(&Lab),
);

/// Id, severity, a command that follows, words of evidence and failure, and what is done.
const BROKEN: [Broken; 9] = [
    (
        "FP-35",
        "critical",
        "98-nmstate-eno1.link",
        &[
            "eno1: its name may change with the next OS",
            "lost network configs",
            "52:54:00:AA:BB:01",
        ],
        |lab| lab.keyfile("lan", "type=ethernet\ninterface-name=eno1", ""),
    ),
    (
        "FP-35",
        "critical",
        "nmcli connection migrate /etc/sysconfig/network-scripts/ifcfg-ens2",
        &[
            "ens2: the next OS does not read its connection",
            "EL 10 reads no ifcfg files",
        ],
        |lab| {
            let text = "DEVICE=ens2\nBOOTPROTO=dhcp\nONBOOT=yes\n";
            lab.node
                .write("etc/sysconfig/network-scripts/ifcfg-ens2", text);
        },
    ),
    (
        "FP-36",
        "critical",
        "sed -i 2d ROOT/etc/crio/crio.conf.d/99-runc",
        &[
            "runc: CRI-O's default runtime is missing in the OS",
            r#"\"runc\" not found in $PATH"#,
        ],
        |lab| {
            lab.node.write(
                "etc/crio/crio.conf.d/99-runc",
                &format!("{RUNC}log_level = \"info\"\n"),
            )
        },
    ),
    (
        "FP-37",
        "warning",
        "mount /dev/sda2 ROOT/boot/efi",
        &[
            "the boot loader on /dev/sda2 is not the OS's",
            "grub>",
            "EFI/redhat/grubx64.efi",
        ],
        |lab| lab.node.write("boot/efi/EFI/redhat/grubx64.efi", "old"),
    ),
    (
        "FP-37",
        "critical",
        "mount /dev/sda2 ROOT/boot/efi",
        &[
            "no grub.cfg on /dev/sda2: it stops at grub>",
            "EFI/redhat/grub.cfg is missing",
        ],
        |lab| lab.node.remove("boot/efi/EFI/redhat/grub.cfg"),
    ),
    (
        "FP-38",
        "critical",
        "switch it off and on again",
        &["lacks avx2", "CPU does not support x86-64-v3"],
        old_processor,
    ),
    (
        "FP-42",
        "critical",
        "Mount it at /boot",
        &[
            "/boot/.root_uuid",
            "error reading osImageURL from rpm-ostree",
        ],
        |lab| {
            lab.node
                .write("boot/.root_uuid", "33333333-0000-4000-8000-000000000003\n")
        },
    ),
    (
        "FP-58",
        "warning",
        "rpm-ostree kargs --append-if-missing=rd.multipath=default",
        &[
            "/dev/sda4, /dev/sdb4 have serial disk-1",
            "Can't open blockdev",
        ],
        second_path,
    ),
    (
        "FP-37",
        "warning",
        "rm -r ROOT/boot/efi/EFI/.btmp.redhat",
        &["an update of the boot loader on /dev/sda2 broke off"],
        |lab| lab.node.write("boot/efi/EFI/.btmp.redhat/x", ""),
    ),
];

#[test]
fn each_breakage_of_the_next_boot_is_found_by_one_check() {
    for (id, severity, next, words, done) in BROKEN {
        let lab = booted();
        done(&lab);
        let seen = seen_staged(&lab);
        assert_eq!(
            ids(&seen),
            BTreeSet::from([id.to_owned()]),
            "{words:?}: {seen:#}"
        );
        let text = found(&seen, id, severity);
        says(&text, words);
        let finding = &of(&seen, id)[0];
        let next = next.replace("ROOT", lab.node.dir().to_str().unwrap());
        assert!(finding["next"].to_string().contains(&next), "{finding:#}");
        says(&text, &[STAGED]);
    }
}

/// The checks of `preflight` that find something, as ids of `doctor`.
fn preflight(lab: &Lab) -> BTreeSet<String> {
    let target = lab.node.path(&deployment());
    let all = findings_of(&lab.node, target.to_str().unwrap()).into_iter();
    all.filter(|one| one.severity != "unknown")
        .filter_map(|one| {
            let mut doors = DOORS.iter();
            let (id, _) = doors.find(|(_, checks)| checks.contains(&one.check.as_str()))?;
            Some((*id).to_owned())
        })
        .collect()
}

#[test]
fn both_doors_lead_to_the_same_judgement() {
    for (id, _, _, words, done) in BROKEN {
        let lab = booted();
        done(&lab);
        let seen = seen_staged(&lab);
        assert_eq!(preflight(&lab), ids(&seen), "{id} {words:?}");
    }
}

#[test]
fn what_has_just_booted_is_a_notice_at_most() {
    let lab = booted();
    lab.node.write("boot/efi/EFI/redhat/grubx64.efi", "old");
    old_processor(&lab);
    lab.keyfile("lan", "type=ethernet\ninterface-name=eno1", "");
    let seen = seen_running(&lab);
    assert_eq!(ids(&seen), BTreeSet::from(["FP-37".to_owned()]), "{seen:#}");
    found(&seen, "FP-37", "notice");
}

#[test]
fn troubles_of_the_running_system_are_found_without_another() {
    let lab = booted();
    lab.node.write("etc/crio/crio.conf.d/99-runc", RUNC);
    lab.node.remove("boot/efi/EFI/redhat/grub.cfg");
    other_boot(&lab);
    lab.write_entry("rw root=UUID=1");
    second_path(&lab);
    let seen = seen_running(&lab);
    for (id, severity) in [
        ("FP-36", "critical"),
        ("FP-37", "critical"),
        ("FP-42", "warning"),
        ("FP-58", "warning"),
    ] {
        found(&seen, id, severity);
    }
    says(
        &found(&seen, "FP-42", "warning"),
        &["e2label /dev/sdb3 ''", BOOT_UUID],
    );
}

#[test]
fn the_arguments_of_the_staged_deployment_count_and_not_those_of_today() {
    let old = "systemd.unified_cgroup_hierarchy=0";
    let lab = booted();
    stage_with(&lab, &[&ARGUMENTS[..], &[old]].concat());
    let text = found(&doctor(&lab.node), "FP-43", "warning");
    says(
        &text,
        &[
            "hold each boot for 30 seconds",
            &format!("--delete-if-present={old}"),
        ],
    );
    let forced = "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1";
    stage_with(&lab, &[&ARGUMENTS[..], &[old, forced]].concat());
    let text = found(&doctor(&lab.node), "FP-43", "critical");
    says(
        &text,
        &["kubelet is configured to not run on a host using cgroup v1"],
    );
    // A run took them off in the same staging.
    lab.write_entry(&format!("rw {old}"));
    let seen = seen_staged(&lab);
    assert_eq!(ids(&seen), BTreeSet::new(), "{seen:#}");
}

#[test]
fn a_locked_download_and_a_missing_checkout_are_not_the_next_boot() {
    let lab = booted();
    old_processor(&lab);
    seen_staged(&lab);
    let file = staged_file(&format!("{STAGED}.0"), true, &ARGUMENTS);
    fs::write(lab.node.path("run/ostree/staged-deployment"), file).unwrap();
    assert_eq!(ids(&doctor(&lab.node)), BTreeSet::new());
    let file = staged_file(&format!("{STAGED}.0"), false, &ARGUMENTS);
    fs::write(lab.node.path("run/ostree/staged-deployment"), file).unwrap();
    assert_eq!(
        ids(&doctor(&lab.node)),
        BTreeSet::from(["FP-38".to_owned()])
    );
    fs::remove_dir_all(lab.node.path(&deployment())).unwrap();
    assert_eq!(ids(&doctor(&lab.node)), BTreeSet::new());
}

#[test]
fn shim_that_refuses_the_own_grub_is_critical_and_a_newer_one_in_the_image_is_not() {
    let (new, old) = (program(5, RAISED), program(4, ""));
    let lab = secured(&new, &old);
    let text = found(&seen_staged(&lab), "FP-56", "critical");
    says(
        &text,
        &[
            "Security Violation",
            "grub has generation 4",
            "EFI/redhat/grubx64.efi",
        ],
    );
    let lab = secured(&old, &old);
    found(&seen_staged(&lab), "FP-56", "warning");
    found(&seen_running(&secured(&old, &old)), "FP-56", "notice");
    let fine = secured(&new, &program(5, ""));
    assert_eq!(ids(&seen_staged(&fine)), BTreeSet::new());
}

#[test]
fn a_partition_of_another_disk_is_not_trouble_of_this_node() {
    let lab = booted();
    lab.add_device(&Device {
        number: "8:16",
        name: "sdb",
        ..Device::default()
    });
    lab.add_device(&Device {
        number: "8:17",
        name: "sdb1",
        disk: "8:16",
        properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE)],
    });
    let mounts = lab.node.read("proc/1/mountinfo");
    let medium = "40 22 8:17 / /mnt/medium ro shared:9 - vfat /dev/sdb1 ro\n";
    lab.node.write("proc/1/mountinfo", &(mounts + medium));
    lab.node
        .write("mnt/medium/EFI/BOOT/BOOTX64.EFI", "shim of an installer");
    assert_eq!(
        preflight_of(&lab),
        ["boot-loader"],
        "preflight speaks of every partition"
    );
    assert_eq!(ids(&seen_staged(&lab)), BTreeSet::new());
}

fn preflight_of(lab: &Lab) -> Vec<String> {
    let all = lab.findings().into_iter().map(|one| one.check);
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn missing_evidence_is_said_where_it_matters() {
    let lab = booted();
    fs::remove_dir_all(lab.node.path("proc")).unwrap();
    fs::remove_dir_all(lab.node.path("run/udev")).unwrap();
    fs::remove_dir_all(lab.node.path("boot/efi")).unwrap();
    let seen = doctor(&lab.node);
    says(
        &unseen(&seen, "FP-42"),
        &["/proc/self/mountinfo is missing"],
    );
    says(
        &unseen(&seen, "FP-37"),
        &["no EFI system partition is known"],
    );
    assert_eq!(
        unseen(&seen, "FP-38"),
        "[]",
        "it concerns another system alone"
    );
    says(
        &unseen(&seen_staged(&lab), "FP-38"),
        &["the processor cannot be compared"],
    );
}

#[test]
fn ids_of_the_same_fact_are_explained_by_the_check_that_reports_it() {
    let root = crate::support::TestRoot::empty();
    for (id, of, words) in [
        ("FP-11", "FP-37", "the prompt grub>"),
        ("52", "FP-01", "finalize-failure.stamp"),
    ] {
        let text = root.run(&["doctor", id]).ok().out();
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains(words) && flat.contains(&format!("{of}: ")),
            "{text}"
        );
        let json = root.run(&["doctor", id, "--output", "json"]).ok().json();
        assert_eq!(json["id"], of);
    }
}
