//! `/boot`: the right file system, with room for another kernel.

use super::forms::oci;
use super::{BOOT_UUID, Device, KERNEL, Lab, ROOT_UUID};
use crate::support::mounts::{mount, with_mounts};

const OTHER: &str = "99999999-0000-4000-8000-000000000099";

fn add_other_boot(lab: &Lab) {
    lab.add_device(&Device {
        number: "8:16",
        name: "sdb",
        ..Device::default()
    });
    lab.add_device(&Device {
        number: "8:19",
        name: "sdb3",
        disk: "8:16",
        properties: &[
            ("ID_FS_LABEL", "boot"),
            ("ID_FS_TYPE", "ext4"),
            ("ID_FS_UUID", OTHER),
        ],
    });
}

#[test]
fn a_second_label_is_cured_where_the_right_one_is_proven() {
    let lab = Lab::healthy();
    lab.write_entry("rw root=UUID=1");
    add_other_boot(&lab);
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-filesystem cured /boot"]);
    for words in [
        "System has 2 devices with a filesystem labeled 'boot'",
        &format!("rpm-ostree kargs --append-if-missing=boot=UUID={BOOT_UUID}"),
        "e2label /dev/sdb3 ''",
        OTHER,
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_second_label_does_not_matter_where_the_right_one_is_named() {
    let lab = Lab::healthy();
    add_other_boot(&lab);
    assert_eq!(lab.short(), [""; 0], "boot=UUID= of the healthy node");
    lab.write_entry("rw");
    lab.node
        .write("etc/fstab", "# x\nUUID=1 /boot ext4 ro 0 2\n");
    assert_eq!(lab.short(), [""; 0]);
    lab.node.remove("etc/fstab");
    lab.write_entry("rd.multipath=default");
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn members_of_arrays_and_second_paths_are_no_second_boot() {
    for properties in [
        [
            ("ID_FS_TYPE", "linux_raid_member"),
            ("ID_FS_LABEL", "boot"),
            ("ID_FS_UUID", OTHER),
        ],
        [
            ("DM_MULTIPATH_DEVICE_PATH", "1"),
            ("ID_FS_LABEL", "boot"),
            ("ID_FS_UUID", OTHER),
        ],
        [
            ("ID_SERIAL", "disk-1"),
            ("ID_FS_LABEL", "boot"),
            ("ID_FS_UUID", BOOT_UUID),
        ],
    ] {
        let lab = Lab::healthy();
        lab.write_entry("rw");
        lab.add_device(&Device {
            number: "8:19",
            name: "sdb3",
            properties: &properties,
            ..Device::default()
        });
        assert_eq!(lab.short(), [""; 0], "{properties:?}");
    }
}

#[test]
fn a_second_label_without_a_proof_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.write_entry("rw");
    add_other_boot(&lab);
    lab.node.remove("boot/.root_uuid");
    // The root file system is on the other disk.
    lab.write_mounts("8:19", "8:4");
    lab.add_device(&Device {
        number: "8:19",
        name: "sdb3",
        disk: "8:16",
        properties: &[("ID_FS_LABEL", "boot"), ("ID_FS_UUID", OTHER)],
    });
    assert_eq!(lab.short(), ["boot-filesystem inhibitor /boot"]);
}

#[test]
fn another_boot_than_the_running_kernels_is_an_inhibitor() {
    let lab = Lab::healthy();
    std::fs::rename(
        lab.node.path("boot/ostree/rhcos-aa"),
        lab.node.path("boot/ostree/rhcos-bb"),
    )
    .unwrap();
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-filesystem inhibitor /boot"]);
    for words in [
        "/boot/ostree/rhcos-aa",
        "error reading osImageURL from rpm-ostree",
        &format!("--append=boot=UUID={BOOT_UUID}"),
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_boot_of_another_root_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.node.write("boot/.root_uuid", OTHER);
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-filesystem inhibitor /boot"]);
    assert!(found[0].text.contains(ROOT_UUID), "{}", found[0].text);
}

#[test]
fn a_kernel_argument_that_names_another_boot_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.write_entry(&format!("rw boot=UUID={OTHER}"));
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-filesystem inhibitor /boot"]);
    let command = format!(
        "rpm-ostree kargs --delete-if-present=boot=UUID={OTHER} --append=boot=UUID={BOOT_UUID}"
    );
    assert!(found[0].text.contains(&command), "{}", found[0].text);
}

#[test]
fn missing_evidence_is_said() {
    for path in ["run/udev", "proc/1", "boot/loader.1"] {
        let lab = Lab::healthy();
        std::fs::remove_dir_all(lab.node.path(path)).unwrap();
        let mut short = lab.short();
        short.retain(|one| one.starts_with("boot-filesystem"));
        assert_eq!(short, ["boot-filesystem unknown /boot"], "{path}");
    }
}

#[test]
fn a_kernel_that_does_not_fit_is_an_inhibitor() {
    with_mounts(|| {
        let lab = Lab::healthy();
        let boot = lab.node.path("boot");
        let boot = boot.to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=8m", "tmpfs", boot]);
        lab.add_boot();
        assert_eq!(lab.short(), [""; 0], "8 MiB are enough");
        let file = |mib: u64| {
            let path = format!("usr/lib/modules/{KERNEL}/vmlinuz");
            let file = std::fs::File::create(lab.target.path(&path)).unwrap();
            file.set_len(mib << 20).unwrap();
        };
        file(9);
        let found = lab.findings();
        assert_eq!(lab.short(), ["boot-space inhibitor /boot"]);
        for words in ["/boot lacks", "No space left on device", "cleanup"] {
            assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
        }
        // A kernel that only an older system needs can go.
        file(5);
        lab.node
            .write("boot/ostree/rhcos-old/vmlinuz", &"x".repeat(3 << 20));
        let found = lab.findings();
        assert_eq!(lab.short(), ["boot-space warning /boot"]);
        assert!(found[0].text.contains("updating bootloader in two steps"));
    });
}

#[test]
fn a_sysroot_without_the_reserve_of_ostree_is_an_inhibitor() {
    with_mounts(|| {
        let lab = Lab::healthy();
        let sysroot = lab.node.path("sysroot");
        let sysroot = sysroot.to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=10m", "tmpfs", sysroot]);
        lab.write_origin("");
        assert_eq!(lab.short(), [""; 0]);
        lab.node.write("sysroot/full", &"x".repeat(10_300_000));
        let found = lab.findings();
        assert_eq!(lab.short(), ["sysroot-space inhibitor /sysroot"]);
        assert!(found[0].text.contains("min-free-space-percent"));
    });
}

#[test]
fn an_image_that_is_larger_than_the_free_space_is_a_warning() {
    with_mounts(|| {
        let lab = Lab::healthy();
        let sysroot = lab.node.path("sysroot");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=10m",
            "tmpfs",
            sysroot.to_str().unwrap(),
        ]);
        lab.write_origin("");
        lab.target.write("usr/share/large", &"x".repeat(12 << 20));
        let mut layer = tar::Builder::new(Vec::new());
        layer.append_dir_all(".", lab.target.dir()).unwrap();
        let dir = lab.node.path("media");
        oci(&dir, &[layer.into_inner().unwrap()]);
        let image = dir.to_str().unwrap();
        let args = ["preflight", "--output", "json", "--os-from", image];
        let document = lab.node.run(&args).json();
        let mut all = document["findings"].as_array().unwrap().iter();
        let found = all.find(|one| one["check"] == "sysroot-space").unwrap();
        assert_eq!(found["severity"], "warning");
        assert!(found.to_string().contains("content 13 MiB"), "{found}");
    });
}
