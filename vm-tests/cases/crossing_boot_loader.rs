//! A machine with EFI whose boot loader does not suit another OS image: `preflight` says so, and its commands cure it.
//!
//! Prepared: a disk with an EFI system partition and a `/boot`, which OVMF and a real GRUB start; three images with boot
//! loaders of their own. True afterwards: what `preflight` passed boots and answers; a partition without `grub.cfg`, and a
//! boot loader that reads another directory, were named before, end at the prompt of GRUB when they are started in spite of
//! it, and boot after the printed commands.
//!
//! Stand-ins: GRUB is Debian's, and the firmware starts it without a shim; the records of udev are written by the case, as
//! the guest has no udev.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::lab::qemu::{Guest, Machine, PATIENCE, join_archives};
use crate::lab::{Case, disk, images, run};

const MODULES: &str = "part_gpt fat ext2 normal configfile search search_label linux echo serial \
    terminal test minicmd true";
const ESP: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
/// First sectors of the partitions, and of the end.
const PARTS: [u64; 3] = [2048, 2048 + 64 * 2048, 2048 + 256 * 2048];
/// The configuration beside the boot loader that leads it to `/boot`, as the image's own static one does.
const STUB: &str =
    "search --label boot --set root\nset prefix=($root)/grub2\nconfigfile $prefix/grub.cfg\n";
const STATIC_STUB: &str = "usr/lib/bootupd/grub2-static/grub-static-efi.cfg";

/// GRUB for EFI that reads `grub.cfg` of this directory below `EFI`.
fn loader(case: &Case, vendor: &str, version: &str) -> Vec<u8> {
    let (early, out) = (case.path("early.cfg"), case.path("grub.efi"));
    fs::write(&early, format!("echo LOADER {vendor} {version}\n")).unwrap();
    let mut command = Command::new("grub-mkimage");
    command.args(["-O", "x86_64-efi", "-d", "/usr/lib/grub/x86_64-efi"]);
    command
        .args(["-p", &format!("/EFI/{vendor}"), "-c"])
        .arg(&early);
    command.arg("-o").arg(&out);
    run(command.args(MODULES.split_whitespace()));
    fs::read(out).unwrap()
}

/// The files of an image's boot loader below a directory.
fn write_loader(directory: &Path, vendor: &str, program: &[u8]) {
    for path in [
        "EFI/BOOT/BOOTX64.EFI".to_owned(),
        format!("EFI/{vendor}/grubx64.efi"),
    ] {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, program).unwrap();
    }
}

/// An image that brings this boot loader.
fn write_image(tree: &Path, name: &str, vendor: &str, program: &[u8]) {
    let image = tree.join("targets").join(name);
    fs::create_dir_all(image.join("usr/lib")).unwrap();
    let release = "ID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.6\n";
    fs::write(image.join("usr/lib/os-release"), release).unwrap();
    write_loader(&image.join("usr/lib/bootupd/updates"), vendor, program);
}

/// The node's root as the guest sees it, what the printed commands name, and the modules for the partition.
fn write_guest(case: &Case, tree: &Path) {
    for directory in ["node/etc", "node/boot", "lib/modules"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let release = "ID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.4\n";
    fs::write(tree.join("node/etc/os-release"), release).unwrap();
    let stub = tree.join(STATIC_STUB);
    fs::create_dir_all(stub.parent().unwrap()).unwrap();
    fs::write(stub, STUB).unwrap();
    let kernel = images::kernel();
    let version = fs::read_dir(kernel.join("lib/modules")).unwrap();
    let version = version
        .map(|entry| entry.unwrap().file_name())
        .next()
        .unwrap();
    let mut list = String::new();
    for module in ["vfat", "nls_cp437", "nls_ascii"] {
        let mut asked = Command::new("modprobe");
        asked.arg("-d").arg(&kernel).arg("-S").arg(&version);
        for line in run(asked.args(["--show-depends", module])).lines() {
            let Some(path) = line
                .strip_prefix("insmod ")
                .map(|path| Path::new(path.trim()))
            else {
                continue;
            };
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::copy(path, tree.join("lib/modules").join(name)).unwrap();
            if !list.contains(name) {
                list += &format!("{name}\n");
            }
        }
    }
    fs::write(tree.join("lib/modules/fat"), list).unwrap();
    case.tell("the guest is written");
}

/// Functions of the guest: `ask NAME` prints the findings about every image.
const ASK: &str = r#"
load fat
mkdir -p /node/proc /node/sys /node/dev /node/run/udev/data
for one in proc sys dev; do mount -o bind "/$one" "/node/$one"; done
printf 'E:ID_PART_ENTRY_TYPE=c12a7328-f81f-11d2-ba4b-00a0c93ec93b\nE:ID_FS_TYPE=vfat\n' \
    >"/node/run/udev/data/b$(cat /sys/class/block/vda1/dev)"
printf 'E:ID_FS_TYPE=ext4\nE:ID_FS_LABEL=boot\n' \
    >"/node/run/udev/data/b$(cat /sys/class/block/vda2/dev)"
ask() {
    for target in /targets/*; do
        mco-rescue preflight --root /node --os-from "$target" --output json >/tmp/said 2>/tmp/complaints
        [ -s /tmp/said ] || echo "BROKEN $(cat /tmp/complaints)"
        echo "PREFLIGHT $1/${target##*/} $(tr -d '\n' </tmp/said)"
    done
}
"#;

/// The installed system: it answers, and loses `grub.cfg` where the case asks for it.
const INSTALLED: &str = r#"
echo "ANSWERS $(ls -d /sys/firmware/efi)"
ask whole
mount -t vfat /dev/vda1 /mnt
if [ -e /mnt/damage ]; then
    rm /mnt/damage /mnt/EFI/redhat/grub.cfg
    umount /mnt
    ask damaged
else
    umount /mnt
fi
sync
"#;

/// The disk of the machine.
fn write_disk(case: &Case, path: &Path, tree: &Path, program: &[u8]) {
    let (esp, boot) = (case.path("esp"), case.path("boot"));
    let mebibytes = |at: usize| (PARTS[at + 1] - PARTS[at]) / 2048;
    write_loader(&case.path("own"), "redhat", program);
    fs::write(case.path("own/EFI/redhat/grub.cfg"), STUB).unwrap();
    fs::write(case.path("own/damage"), "").unwrap();
    disk::formatted(&esp, mebibytes(0), &["mkfs.vfat"]);
    for name in ["EFI", "damage"] {
        let mut copy = Command::new("mcopy");
        copy.arg("-s")
            .arg("-i")
            .arg(&esp)
            .arg(case.path("own").join(name));
        run(copy.arg("::/"));
    }
    let files = case.path("boot.files");
    fs::create_dir_all(files.join("grub2")).unwrap();
    let menu = "linux /vmlinuz console=ttyS0 panic=-1 no_timer_check quiet\ninitrd /initrd\nboot\n";
    fs::write(files.join("grub2/grub.cfg"), menu).unwrap();
    let tiny = images::tiny();
    fs::copy(&tiny.kernel, files.join("vmlinuz")).unwrap();
    let mut archives = tiny.initrd;
    archives.push(archive(case, tree));
    let script = format!("{ASK}{INSTALLED}");
    let own = [("case.sh".to_owned(), script.into_bytes())];
    join_archives(&archives, &own, &files.join("initrd"));
    let populated = files.to_str().unwrap();
    let mkfs = [
        "mke2fs", "-q", "-F", "-t", "ext4", "-L", "boot", "-d", populated,
    ];
    disk::formatted(&boot, mebibytes(1), &mkfs);
    let table = format!(
        "label: gpt\nstart={}, size={}, type={ESP}\nstart={}, size={}\n",
        PARTS[0],
        PARTS[1] - PARTS[0],
        PARTS[1],
        PARTS[2] - PARTS[1],
    );
    let plan = case.path("table");
    fs::write(&plan, table).unwrap();
    let image = fs::File::create(path).unwrap();
    image.set_len((PARTS[2] + 2048) * 512).unwrap();
    let sfdisk = format!("sfdisk -q {} <{}", path.display(), plan.display());
    run(Command::new("sh").args(["-c", &sfdisk]));
    for (file, first) in [(&esp, PARTS[0]), (&boot, PARTS[1])] {
        let mut copy = Command::new("dd");
        copy.args(["bs=1M", "conv=notrunc,sparse", "status=none"]);
        copy.arg(format!("seek={}", first / 2048));
        copy.arg(format!("if={}", file.display()));
        run(copy.arg(format!("of={}", path.display())));
    }
}

/// The guest's tree as an archive.
fn archive(case: &Case, tree: &Path) -> PathBuf {
    let path = case.path("guest.archive");
    if !path.exists() {
        fs::write(&path, images::packed(tree, "zstd -1 -q")).unwrap();
    }
    path
}

/// The findings of `boot-loader` about an image.
fn findings(guest: &Guest, name: &str) -> Vec<Value> {
    let said = guest.value(&format!("PREFLIGHT {name} "));
    let document: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let all = document["findings"].as_array().unwrap().iter();
    all.filter(|one| one["check"] == "boot-loader")
        .cloned()
        .collect()
}

/// Severity and sentence of each.
fn words(findings: &[Value]) -> Vec<(&str, &str)> {
    findings
        .iter()
        .map(|one| {
            (
                one["severity"].as_str().unwrap(),
                one["what"].as_str().unwrap(),
            )
        })
        .collect()
}

/// The commands that a finding prints, for a shell.
fn commands(finding: &Value) -> String {
    let all = finding["next"].as_array().unwrap().iter();
    let all: Vec<&str> = all.map(|one| one.as_str().unwrap()).collect();
    all.join("\n")
}

/// Starts a machine whose firmware boots this disk.
fn boot(case: &Case, image: &Path, name: &str) -> Guest {
    let machine = Machine::with_efi(&case.path(&format!("{name}.variables"))).disk(image);
    machine.start(case.dir(), name)
}

/// The disk starts GRUB, and nothing after it.
fn ends_at_the_prompt(case: &Case, image: &Path, name: &str) {
    let mut guest = boot(case, image, name);
    assert!(guest.comes_to("grub>", PATIENCE), "{}", guest.tail());
    assert_eq!(guest.values("ANSWERS "), [""; 0]);
    case.tell(&format!("{name}: grub> after {:.1} s", guest.seconds()));
}

#[test]
fn a_boot_loader_that_preflight_passes_boots_and_one_that_it_names_does_not() {
    let Some(case) = Case::begin("9 crossing, EFI") else {
        return;
    };
    let [own, newer, moved] = [("redhat", "1"), ("redhat", "2"), ("centos", "3")]
        .map(|(vendor, version)| (vendor, loader(&case, vendor, version)));
    let tree = case.path("tree");
    write_guest(&case, &tree);
    for (name, (vendor, program)) in [("own", &own), ("newer", &newer), ("moved", &moved)] {
        write_image(&tree, name, vendor, program);
    }
    let image = case.path("disk");
    write_disk(&case, &image, &tree, &own.1);

    let mut node = boot(&case, &image, "healthy");
    node.powers_off();
    assert_eq!(node.values("BROKEN "), [""; 0], "{}", node.tail());
    assert_eq!(node.value("ANSWERS "), "/sys/firmware/efi");
    assert!(
        node.console().contains("LOADER redhat 1"),
        "{}",
        node.tail()
    );
    case.tell(&format!("healthy: answers after {:.1} s", node.seconds()));
    assert_eq!(findings(&node, "whole/own"), [Value::Null; 0]);
    let update = findings(&node, "whole/newer");
    let [("warning", what)] = words(&update)[..] else {
        panic!("{update:?}");
    };
    assert!(what.contains("are not the image's"), "{what}");
    let crossing = findings(&node, "whole/moved");
    let [("warning", _), ("warning", what)] = words(&crossing)[..] else {
        panic!("{crossing:?}");
    };
    let unread = "the image's boot loader reads EFI/centos/grub.cfg, which is missing";
    assert!(what.contains(unread), "{what}");
    let damaged = findings(&node, "damaged/own");
    let [("inhibitor", what)] = words(&damaged)[..] else {
        panic!("{damaged:?}");
    };
    assert!(what.contains("does not find /boot"), "{what}");

    // In spite of it.
    ends_at_the_prompt(&case, &image, "damaged");
    // From a rescue medium: the first disk gets all that was printed, the second one lacks the cure of the directory.
    let forced = case.path("forced");
    disk::copy(&image, &forced);
    let (cure, update, stub) = (
        commands(&damaged[0]),
        commands(&crossing[0]),
        commands(&crossing[1]),
    );
    let of_second = format!("{cure}\n{update}").replace("/dev/vda1", "/dev/vdb1");
    // The commands have the paths of the node's root on the rescue medium.
    let directory = STATIC_STUB.rsplit_once('/').unwrap().0;
    let furnish = format!(
        "mkdir -p /node/boot/efi /node/var/tmp /node/{directory}\ncp /{STATIC_STUB} /node/{STATIC_STUB}\n"
    );
    let script = format!(
        "{ASK}set -e\n{furnish}{cure}\n{update}\n{stub}\n{of_second}\nset +e\nask cured\nsync\n"
    );
    let tiny = images::tiny();
    let mut rescue = Machine::tiny(&tiny)
        .memory(512)
        .archive(&archive(&case, &tree))
        .file("case.sh", script.as_bytes())
        .disk(&image)
        .disk(&forced)
        .start(case.dir(), "rescue");
    rescue.powers_off();
    assert_eq!(findings(&rescue, "cured/moved"), [Value::Null; 0]);

    ends_at_the_prompt(&case, &forced, "forced");
    let mut cured = boot(&case, &image, "cured");
    cured.powers_off();
    assert!(
        cured.console().contains("LOADER centos 3"),
        "{}",
        cured.tail()
    );
    assert_eq!(cured.value("ANSWERS "), "/sys/firmware/efi");
    case.tell(&format!("cured: answers after {:.1} s", cured.seconds()));
}
