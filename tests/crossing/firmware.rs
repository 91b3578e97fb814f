//! Boot loader on the EFI system partitions, Secure Boot, configuration of GRUB.

use std::fs;
use std::process::Command;

use super::{Device, ESP_TYPE, Lab};
use crate::support::{Lacks, skip};

const LEVEL: &str = "sys/firmware/efi/efivars/SbatLevelRT-605dab50-e046-4300-abb6-3dd810dd8b23";
const SHIM: &str = "efi/EFI/redhat/shimx64.efi";

/// A PE program with a `.sbat` of these generations, and the level that it sets as a shim.
fn program(rows: &str, level: &str) -> Vec<u8> {
    let rows: Vec<String> = rows
        .lines()
        .map(|row| format!("{row},vendor,name,1,https://x\n"))
        .collect();
    let sbat = rows.concat();
    let mut sections = vec![(".sbat", sbat.into_bytes())];
    if !level.is_empty() {
        let mut section = vec![0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0];
        section.extend(format!("{level}\0").into_bytes());
        sections.push((".sbatlev", section));
    }
    let mut bytes = b"MZ".to_vec();
    bytes.resize(0x3c, 0);
    bytes.extend(0x40u32.to_le_bytes());
    bytes.extend(b"PE\0\0\x64\x86");
    bytes.extend(u16::try_from(sections.len()).unwrap().to_le_bytes());
    bytes.extend([0; 16]);
    let mut start = bytes.len() + sections.len() * 40;
    for (name, content) in &sections {
        let mut entry = name.as_bytes().to_vec();
        entry.resize(16, 0);
        entry.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        entry.extend(u32::try_from(start).unwrap().to_le_bytes());
        entry.resize(40, 0);
        bytes.extend(entry);
        start += content.len();
    }
    for (_, content) in sections {
        bytes.extend(content);
    }
    bytes
}

/// Writes a file of the mounted partition, or of the image.
fn put(root: &crate::support::TestRoot, path: &str, bytes: &[u8]) {
    root.write(path, "");
    fs::write(root.path(path), bytes).unwrap();
}

/// The healthy lab with programs that have generations, and Secure Boot.
fn secured(image_shim: &[u8], image_grub: &[u8], own_shim: &[u8], own_grub: &[u8]) -> Lab {
    let lab = Lab::healthy();
    let payload = "usr/lib/bootupd/updates/EFI";
    for (name, image, own) in [
        ("shimx64.efi", image_shim, own_shim),
        ("grubx64.efi", image_grub, own_grub),
    ] {
        put(&lab.target, &format!("{payload}/redhat/{name}"), image);
        put(&lab.node, &format!("boot/efi/EFI/redhat/{name}"), own);
    }
    put(
        &lab.target,
        &format!("{payload}/BOOT/BOOTX64.EFI"),
        image_shim,
    );
    put(&lab.node, "boot/efi/EFI/BOOT/BOOTX64.EFI", own_shim);
    put(
        &lab.node,
        "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        &[6, 0, 0, 0, 1],
    );
    lab
}

fn write_level(lab: &Lab, text: &str) {
    put(&lab.node, LEVEL, &[&[6, 0, 0, 0], text.as_bytes()].concat());
}

fn of(lab: &Lab, check: &str) -> Vec<String> {
    let mut short = lab.short();
    short.retain(|one| one.starts_with(check));
    short
}

#[test]
fn a_stale_boot_loader_is_a_warning_with_the_way_to_update_it() {
    let lab = Lab::healthy();
    lab.node.write("boot/efi/EFI/redhat/grubx64.efi", "old");
    lab.node.remove("boot/efi/EFI/BOOT/BOOTX64.EFI");
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning /dev/sda2"]);
    let from = format!("{}/usr/lib/bootupd/updates/EFI", lab.target.dir().display());
    for words in [
        "2 of 3 files",
        "EFI/boot/bootx64.efi, EFI/redhat/grubx64.efi (1 missing)",
        "bootupd installed grub2-1,shim-1",
        "grub>",
        "mount /dev/sda2 /boot/efi",
        "cp -rp /boot/efi/EFI /var/tmp/EFI-dev-sda2",
        &format!("for d in {from}; do cp -rp $d /boot/efi/; done"),
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_directory_for_each_package_is_read_too() {
    let lab = Lab::healthy();
    let updates = lab.target.path("usr/lib/bootupd/updates/EFI");
    fs::remove_dir_all(updates).unwrap();
    lab.target
        .write("usr/lib/efi/grub2/1-1/EFI/redhat/grubx64.efi", "grub");
    lab.target
        .write("usr/lib/efi/shim/1-1/EFI/redhat/shimx64.efi", "another");
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning /dev/sda2"]);
    assert!(found[0].text.contains("1 of 2 files"), "{}", found[0].text);
}

#[test]
fn the_damaged_or_missing_state_of_bootupd_is_said() {
    for (state, words) in [
        (Some("{"), "bootupd-state.json: EOF"),
        (None, "bootupd does not know this boot loader"),
        (
            Some(r#"{"installed":{},"pending":{"EFI":{}},"new-key":1}"#),
            "was interrupted",
        ),
    ] {
        let lab = Lab::healthy();
        lab.node.remove("boot/bootupd-state.json");
        if let Some(state) = state {
            lab.node.write("boot/bootupd-state.json", state);
        }
        assert_eq!(lab.short(), [""; 0], "the files are the image's");
        lab.node.write("boot/efi/EFI/redhat/grubx64.efi", "old");
        let found = lab.findings();
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn files_that_bootupd_did_not_install_are_named() {
    let lab = Lab::healthy();
    let state = serde_json::json!({"installed": {"EFI": {
        "meta": {"version": "grub2-2,shim-2"},
        "filetree": {"children": {"redhat/grubx64.efi": {"size": 4, "sha512": format!("sha512:{}", "0".repeat(128))}}},
    }}});
    lab.node
        .write("boot/bootupd-state.json", &state.to_string());
    lab.node
        .write("boot/efi/EFI/redhat/grubx64.efi", "restored");
    let found = lab.findings();
    let words = "not what bootupd installed: EFI/redhat/grubx64.efi";
    assert!(found[0].text.contains(words), "{}", found[0].text);
}

#[test]
fn the_rest_of_an_interrupted_update_is_found() {
    let lab = Lab::healthy();
    lab.node
        .write("boot/efi/EFI/.btmp.redhat/grubx64.efi", "half");
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning /dev/sda2"]);
    assert!(found[0].text.contains("rm -r /boot/efi/EFI/.btmp.redhat"));
}

#[test]
fn without_any_stub_the_next_boot_ends_at_the_prompt() {
    let lab = Lab::healthy();
    lab.node.remove("boot/efi/EFI/redhat/grub.cfg");
    assert_eq!(lab.short(), ["boot-loader inhibitor /dev/sda2"]);
    lab.node.write("boot/efi/EFI/fedora/grub.cfg", "x");
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning /dev/sda2"]);
    let command = "cp /boot/efi/EFI/fedora/grub.cfg /boot/efi/EFI/redhat/grub.cfg";
    assert!(found[0].text.contains(command), "{}", found[0].text);
}

#[test]
fn a_stub_that_goes_by_the_label_meets_two_labels() {
    let lab = Lab::healthy();
    lab.node.write(
        "boot/efi/EFI/redhat/grub.cfg",
        "search --label boot --set prefix --no-floppy\n",
    );
    assert_eq!(lab.short(), [""; 0]);
    lab.add_device(&Device {
        number: "8:19",
        name: "sdb3",
        properties: &[("ID_FS_LABEL", "boot"), ("ID_FS_UUID", "other")],
        ..Device::default()
    });
    assert_eq!(lab.short(), ["boot-loader warning /dev/sda2"]);
}

#[test]
fn a_generated_configuration_of_grub_is_a_warning() {
    let lab = Lab::healthy();
    lab.node.write(
        "boot/grub2/grub.cfg",
        "### BEGIN /etc/grub.d/15_ostree ###\nmenuentry x\n",
    );
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning grub.cfg"]);
    assert!(
        found[0]
            .text
            .contains("bootupctl migrate-static-grub-config")
    );
    fs::remove_dir_all(lab.node.path("sys/firmware/efi")).unwrap();
    assert_eq!(of(&lab, "boot-loader").len(), 1, "with a BIOS too");
}

#[test]
fn a_machine_with_a_bios_needs_no_partition() {
    let lab = Lab::healthy();
    fs::remove_dir_all(lab.node.path("sys/firmware/efi")).unwrap();
    fs::remove_dir_all(lab.node.path("boot/efi")).unwrap();
    lab.node.remove("run/udev/data/b8:2");
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn missing_evidence_is_said() {
    let lab = Lab::healthy();
    lab.node.remove("run/udev/data/b8:2");
    fs::remove_dir_all(lab.node.path("boot/efi")).unwrap();
    assert_eq!(of(&lab, "boot-loader"), ["boot-loader unknown boot loader"]);
    let lab = Lab::healthy();
    let mounts = lab.node.read("proc/1/mountinfo");
    let others = mounts.lines().filter(|line| !line.contains("/boot/efi"));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    lab.node.write("proc/1/mountinfo", &others);
    assert_eq!(
        of(&lab, "boot-loader"),
        ["boot-loader unknown /dev/sda2"],
        "neither mounted nor a device"
    );
    let lab = Lab::healthy();
    fs::remove_dir_all(lab.target.path("usr/lib/bootupd")).unwrap();
    assert_eq!(lab.short(), ["boot-loader unknown boot loader"]);
}

/// A FAT in place of the second disk's partition, with these files.
pub fn write_fat(lab: &Lab, device: &str, files: &[(&str, &[u8])]) -> bool {
    lab.node.write(device, "");
    let disk = lab.node.path(device);
    fs::File::options()
        .write(true)
        .open(&disk)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("MTOOLS_SKIP_CHECK", "1");
        command.output().is_ok_and(|output| output.status.success())
    };
    let image = disk.to_str().unwrap();
    let source = tempfile::NamedTempFile::new().unwrap();
    let mut works = run("mkfs.vfat", &["-F", "16", image]);
    for directory in ["::EFI", "::EFI/BOOT", "::EFI/redhat"] {
        works = works && run("mmd", &["-i", image, directory]);
    }
    for (path, bytes) in files {
        fs::write(source.path(), bytes).unwrap();
        let from = source.path().to_str().unwrap();
        works = works && run("mcopy", &["-i", image, from, &format!("::{path}")]);
    }
    if !works {
        skip(
            Lacks::program("mcopy"),
            "a FAT cannot be made here (dosfstools, mtools)",
        );
    }
    works
}

#[test]
fn a_partition_of_another_disk_is_read_from_its_device() {
    let lab = Lab::healthy();
    let files: [(&str, &[u8]); 4] = [
        ("EFI/BOOT/BOOTX64.EFI", b"shim"),
        ("EFI/redhat/shimx64.efi", b"shim"),
        ("EFI/redhat/grubx64.efi", b"grub"),
        ("EFI/redhat/grub.cfg", b"uuid"),
    ];
    if !write_fat(&lab, "dev/sdb2", &files) {
        return;
    }
    lab.add_device(&Device {
        number: "8:18",
        name: "sdb2",
        properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE)],
        ..Device::default()
    });
    assert_eq!(lab.short(), [""; 0]);
    let target = lab.target.dir().to_str().unwrap();
    let run = lab.node.run(&["preflight", "--os-from", target]).ok();
    assert_eq!(run.err(), "", "the reader of FAT has nothing to say");
    let before = fs::read(lab.node.path("dev/sdb2")).unwrap();
    assert!(write_fat(&lab, "dev/sdb2", &files[1..]));
    let found = lab.findings();
    assert_eq!(lab.short(), ["boot-loader warning /dev/sdb2"]);
    assert!(found[0].text.contains("EFI/boot/bootx64.efi (1 missing)"));
    assert!(found[0].text.contains("mount /dev/sdb2 /boot/efi"));
    // Reading changes nothing.
    fs::write(lab.node.path("dev/sdb2"), &before).unwrap();
    lab.short();
    assert!(fs::read(lab.node.path("dev/sdb2")).unwrap() == before);
    lab.node.write("dev/sdb2", &"no FAT at all".repeat(1000));
    assert_eq!(lab.short(), ["boot-loader unknown /dev/sdb2"]);
}

const OLD: &str = "sbat,1\nshim,4\ngrub,4";
const NEW: &str = "sbat,1\nshim,4\ngrub,5";
const RAISED: &str = "sbat,1,2025021800\nshim,4\ngrub,5\n";

/// The healthy lab with a boot loader that the image's shim refuses.
fn outdated() -> Lab {
    let old = program(OLD, "");
    secured(&program(NEW, RAISED), &program(NEW, ""), &old, &old)
}

#[test]
fn one_partition_gets_shim_and_grub_together() {
    let lab = outdated();
    let found = lab.findings();
    assert_eq!(of(&lab, "secure-boot"), ["secure-boot warning /dev/sda2"]);
    let found = found.iter().find(|one| one.check == "secure-boot").unwrap();
    for words in [
        "grub has generation 4, and 5 is required",
        "level 2025021800",
        "Security Violation",
    ] {
        assert!(found.text.contains(words), "{words}: {}", found.text);
    }
    // With the new shim and the new grub all is well.
    let shim = program(NEW, RAISED);
    let grub = program(NEW, "");
    assert_eq!(secured(&shim, &grub, &shim, &grub).short(), [""; 0]);
}

#[test]
fn a_new_shim_with_an_old_grub_does_not_boot() {
    let (shim, grub) = (program(NEW, RAISED), program(NEW, ""));
    let lab = secured(&shim, &grub, &shim, &program(OLD, ""));
    let found = lab.findings();
    assert_eq!(of(&lab, "secure-boot"), ["secure-boot inhibitor /dev/sda2"]);
    assert!(found[0].text.contains("grub has generation 4"));
}

#[test]
fn without_secure_boot_nothing_is_refused() {
    let lab = outdated();
    let unchecked = "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23";
    put(&lab.node, unchecked, &[6, 0, 0, 0, 1]);
    assert_eq!(of(&lab, "secure-boot"), [""; 0], "shim checks nothing");
    let lab = outdated();
    let variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    put(&lab.node, variable, &[6, 0, 0, 0, 0]);
    assert_eq!(of(&lab, "secure-boot"), [""; 0]);
    // A variable that cannot be read is not one that is off.
    for name in [variable, unchecked, LEVEL] {
        let lab = outdated();
        if lab.node.path(name).exists() {
            lab.node.remove(name);
        }
        lab.node.link(name, name.rsplit('/').next().unwrap());
        let all = of(&lab, "secure-boot");
        assert_eq!(all, ["secure-boot unknown Secure Boot"], "{name}");
    }
    fs::remove_dir_all(lab.node.path("sys/firmware")).unwrap();
    assert_eq!(of(&lab, "secure-boot"), ["secure-boot unknown Secure Boot"]);
}

#[test]
fn an_image_below_the_level_of_the_machine_is_an_inhibitor() {
    let own = program(NEW, "");
    let lab = secured(&program(OLD, ""), &program(OLD, ""), &own, &own);
    assert_eq!(of(&lab, "secure-boot"), [""; 0], "no level yet");
    write_level(&lab, RAISED);
    let found = lab.findings();
    assert_eq!(of(&lab, "secure-boot"), ["secure-boot inhibitor image"]);
    assert!(found[0].text.contains("SBAT self-check failed"));
}

#[test]
fn a_second_partition_with_an_old_boot_loader_is_an_inhibitor() {
    let (shim, grub) = (program(NEW, RAISED), program(NEW, ""));
    let lab = secured(&shim, &grub, &shim, &grub);
    let old = program(OLD, "");
    let files: [(&str, &[u8]); 3] = [
        ("EFI/BOOT/BOOTX64.EFI", &old),
        ("EFI/redhat/grubx64.efi", &old),
        ("EFI/redhat/grub.cfg", b"uuid"),
    ];
    if !write_fat(&lab, "dev/sdb2", &files) {
        return;
    }
    lab.add_device(&Device {
        number: "8:18",
        name: "sdb2",
        properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE)],
        ..Device::default()
    });
    assert_eq!(
        lab.short(),
        [
            "secure-boot inhibitor /dev/sdb2",
            "boot-loader warning /dev/sdb2"
        ]
    );
}

#[test]
fn an_update_that_reaches_one_of_two_partitions_leaves_the_other_refused() {
    let lab = outdated();
    let old = program(OLD, "");
    let files: [(&str, &[u8]); 2] = [
        ("EFI/BOOT/BOOTX64.EFI", &old),
        ("EFI/redhat/grubx64.efi", &old),
    ];
    if !write_fat(&lab, "dev/sdb2", &files) {
        return;
    }
    lab.add_device(&Device {
        number: "8:18",
        name: "sdb2",
        properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE)],
        ..Device::default()
    });
    assert_eq!(
        of(&lab, "secure-boot"),
        [
            "secure-boot inhibitor /dev/sdb2",
            "secure-boot inhibitor /dev/sda2"
        ]
    );
}

#[test]
fn a_program_without_generations_is_refused_at_any_level() {
    let (shim, grub) = (program(NEW, RAISED), program(NEW, ""));
    let lab = secured(&shim, &grub, &shim, &grub);
    put(&lab.node, &format!("boot/{SHIM}"), b"MZ");
    assert!(of(&lab, "secure-boot").len() == 1);
}

/// The real shim of Debian's package shim-unsigned.
fn real_shim() -> Option<Vec<u8>> {
    let path = std::env::var("MCO_RESCUE_SHIM");
    let path = path.unwrap_or_else(|_| "/usr/lib/shim/shimx64.efi".to_owned());
    let shim = fs::read(path).ok();
    if shim.is_none() {
        skip(Lacks::Setup, "no real shim (on Debian: shim-unsigned)");
    }
    shim
}

#[test]
fn a_real_shim_raises_the_level_and_suits_itself() {
    let Some(shim) = real_shim() else {
        return;
    };
    let current = program("sbat,1\nshim,9\ngrub,9", "");
    assert_eq!(
        of(&secured(&shim, &current, &shim, &current), "secure-boot"),
        [""; 0]
    );
    let old = program("sbat,1\nshim,1\ngrub,1", "");
    let lab = secured(&shim, &current, &old, &old);
    let found = lab.findings();
    assert_eq!(of(&lab, "secure-boot"), ["secure-boot warning /dev/sda2"]);
    let found = found.iter().find(|one| one.check == "secure-boot").unwrap();
    assert!(found.text.contains("level 20"), "{}", found.text);
    assert!(found.text.contains("has generation 1"));
}
