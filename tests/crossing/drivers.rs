//! Drivers of the root disk and of the interfaces, in the image and in its initramfs.

use super::hardware::{ALIASES, DEPENDENCIES, DISK, ENO1, ENS2, OWN_KERNEL};
use super::{Device, KERNEL, Lab};

const ROOT: &str = "root-drivers inhibitor /dev/sda4";
const BOOT: &str = "root-drivers inhibitor /dev/sda3";

/// The lists without the lines that contain a word.
fn without(lines: &str, word: &str) -> String {
    let kept = lines.lines().filter(|line| !line.contains(word));
    kept.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_disk_whose_driver_is_gone_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.add_drivers(&without(ALIASES, "ahci"), &without(DEPENDENCIES, "ahci"));
    assert_eq!(lab.short(), [ROOT, BOOT]);
    let text = &lab.findings()[0].text;
    for words in [
        "ahci is gone",
        "pci:v00008086d00002922",
        "Timed out waiting for device",
        DISK,
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The driver is there, but the device is no longer among its own.
    lab.add_drivers(&without(ALIASES, "ahci"), DEPENDENCIES);
    assert!(
        lab.findings()[0]
            .text
            .contains("no longer takes this device")
    );
}

#[test]
fn a_driver_outside_of_the_initramfs_does_not_mount_the_root() {
    let lab = Lab::healthy();
    lab.add_initramfs(&["xfs", "libcrc32c", "lib-ahci"]);
    assert_eq!(lab.short(), [ROOT]);
    assert!(
        lab.findings()[0].text.contains("initramfs: ahci\""),
        "{}",
        lab.findings()[0].text
    );
    // What it needs counts too, and so does the file system.
    lab.add_initramfs(&["xfs", "libcrc32c", "ahci"]);
    assert!(lab.findings()[0].text.contains("initramfs: lib_ahci\""));
    lab.add_initramfs(&["xfs", "ahci", "lib-ahci"]);
    assert_eq!(lab.short(), [ROOT]);
    assert!(
        lab.findings()[0].text.contains("needs the module xfs"),
        "{}",
        lab.findings()[0].text
    );
    // A driver in the kernel itself is in no list of files.
    lab.add_initramfs(&["xfs", "libcrc32c"]);
    let builtin = "kernel/drivers/ata/ahci.ko\nkernel/drivers/ata/lib-ahci.ko\nkernel/drivers/virtio/virtio_pci.ko\nkernel/fs/ext4/ext4.ko\n";
    lab.target.write(
        &format!("usr/lib/modules/{KERNEL}/modules.builtin"),
        builtin,
    );
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn every_disk_of_an_array_and_the_array_itself_count() {
    let lab = Lab::healthy();
    let short = |lab: &Lab| -> Vec<String> {
        let all = lab.short().into_iter();
        all.filter(|one| one.starts_with("root-drivers")).collect()
    };
    lab.add_device(&Device {
        number: "9:126",
        name: "md126",
        ..Device::default()
    });
    let array = format!("{DISK}/block/md126");
    lab.node.write(&format!("{array}/md/level"), "raid1\n");
    let second = "sys/devices/pci0000:00/0000:00:06.0";
    lab.device(
        second,
        "pci:v00001000d00000097sv00001000sd00003090bc01sc07i00",
        "pci/drivers/mpt3sas",
    );
    lab.node
        .write(&format!("{second}/host0/sdb/sdb4/partition"), "4\n");
    lab.node.link(&format!("{array}/slaves/sda4"), "../../sda4");
    lab.node.link(
        &format!("{array}/slaves/sdb4"),
        "../../../../0000:00:06.0/host0/sdb/sdb4",
    );
    lab.write_mounts("8:3", "9:126");
    let found = "root-drivers inhibitor /dev/mapper/root";
    assert_eq!(short(&lab), [found, found]);
    let both: Vec<String> = lab.findings().into_iter().map(|one| one.text).collect();
    assert!(
        both.iter().any(|text| text.contains("mpt3sas is gone")),
        "{both:?}"
    );
    assert!(
        both.iter()
            .any(|text| text.contains("needs the module raid1")),
        "{both:?}"
    );
    lab.add_drivers(
        &format!("{ALIASES}alias pci:v00001000d00000097* mpt3sas\n"),
        &format!("{DEPENDENCIES}kernel/mpt3sas.ko.xz:\nkernel/raid1.ko.xz:\n"),
    );
    lab.add_initramfs(&["ahci", "lib-ahci", "xfs", "libcrc32c", "mpt3sas", "raid1"]);
    assert_eq!(short(&lab), Vec::<String>::new());
}

#[test]
fn a_disk_that_the_kernel_makes_of_several_controllers_is_followed() {
    let lab = Lab::healthy();
    let head = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    lab.node
        .write(&format!("{head}/nvme0n1/nvme0n1p4/partition"), "4\n");
    lab.node.link(
        "sys/dev/block/259:4",
        "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p4",
    );
    let controller = "sys/devices/pci0000:00/0000:00:07.0";
    lab.device(
        controller,
        "pci:v0000144Dd0000A80Asv0000144Dsd0000A801bc01sc08i02",
        "pci/drivers/nvme",
    );
    lab.node
        .write(&format!("{controller}/nvme/nvme0/state"), "live\n");
    lab.node.link(
        &format!("{head}/nvme0"),
        "../../../pci0000:00/0000:00:07.0/nvme/nvme0",
    );
    lab.write_mounts("8:3", "259:4");
    let short = |lab: &Lab| -> Vec<String> {
        let all = lab.short().into_iter();
        all.filter(|one| one.starts_with("root-drivers")).collect()
    };
    assert_eq!(short(&lab), ["root-drivers inhibitor /dev/mapper/root"]);
    // Without a device on any bus there is nothing to judge.
    lab.node.remove(&format!("{head}/nvme0"));
    assert_eq!(short(&lab), ["root-drivers unknown /dev/mapper/root"]);
}

#[test]
fn what_the_kernel_of_today_finds_without_a_pattern_is_not_judged() {
    let lab = Lab::healthy();
    lab.device(
        "sys/devices/pci0000:00",
        "pci:v00001AB4d00000001bc05sc00i00",
        "pci/drivers/odd",
    );
    assert_eq!(lab.short().len(), 4, "disk, /boot and both interfaces");
    let own = format!("usr/lib/modules/{OWN_KERNEL}");
    lab.node.write(&format!("{own}/modules.alias"), ALIASES);
    lab.node.write(&format!("{own}/modules.dep"), DEPENDENCIES);
    assert_eq!(lab.short(), Vec::<String>::new());
    // A bridge has no pattern either.
    lab.node.remove(&format!("{own}/modules.alias"));
    lab.node.write(
        "sys/devices/pci0000:00/modalias",
        "pci:v00008086d00000001sv0sd0bc06sc04i00\n",
    );
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn missing_evidence_about_drivers_is_reported() {
    let lab = Lab::healthy();
    lab.node.remove("proc/1/mountinfo");
    let short = lab.short();
    assert!(
        short.contains(&"root-drivers unknown root disk".to_owned()),
        "{short:?}"
    );
    let lab = Lab::healthy();
    lab.target
        .remove(&format!("usr/lib/modules/{KERNEL}/modules.alias"));
    lab.target
        .remove(&format!("usr/lib/modules/{KERNEL}/modules.builtin.modinfo"));
    assert_eq!(lab.short(), ["root-drivers unknown drivers"]);
    let lab = Lab::healthy();
    lab.target.write(
        &format!("usr/lib/modules/{KERNEL}/initramfs.img"),
        "\u{fd}7zXZ",
    );
    assert_eq!(lab.short(), ["root-drivers unknown initramfs"]);
}

#[test]
fn an_interface_without_a_driver_matters_if_it_carries_the_network() {
    let lab = Lab::healthy();
    lab.add_drivers(&without(ALIASES, "virtio_net"), DEPENDENCIES);
    assert_eq!(lab.short(), ["interface-drivers warning ens2"]);
    lab.node
        .write(&format!("{ENS2}/net/ens2/operstate"), "up\n");
    assert_eq!(lab.short(), ["interface-drivers inhibitor ens2"]);
    let lab = Lab::healthy();
    lab.add_drivers(&without(ALIASES, " igb"), &without(DEPENDENCIES, "igb"));
    assert_eq!(
        lab.short(),
        ["interface-drivers inhibitor eno1"],
        "bound by its address"
    );
    let text = &lab.findings()[0].text;
    assert!(
        text.contains("igb is gone") && text.contains(ENO1),
        "{text}"
    );
}

#[test]
fn network_in_the_initramfs_needs_the_driver_there() {
    let lab = Lab::healthy();
    lab.node
        .write(&format!("{ENO1}/net/eno1/operstate"), "up\n");
    lab.write_entry("rw rd.neednet=1 ip=dhcp");
    assert_eq!(lab.short(), Vec::<String>::new());
    lab.add_initramfs(&["ahci", "lib-ahci", "xfs", "libcrc32c"]);
    assert_eq!(lab.short(), ["interface-drivers inhibitor eno1"]);
    let text = &lab.findings()[0].text;
    assert!(
        text.contains("i2c_algo_bit, igb") && text.contains("rd.neednet"),
        "{text}"
    );
    lab.add_initramfs(&[
        "ahci",
        "lib-ahci",
        "xfs",
        "libcrc32c",
        "igb",
        "i2c-algo-bit",
    ]);
    assert_eq!(lab.short(), Vec::<String>::new());
}
