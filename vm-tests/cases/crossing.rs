//! An operator asks `preflight` about another OS image, on real processors and disks, and boots the image in spite of it.
//!
//! Prepared: target images that lie unpacked in a guest, and a scratch root with the `/proc` and `/sys` of that guest.
//! True afterwards: what `preflight` passed runs, and what it refused does not. The processors are models of QEMU, in
//! emulation, as a host has only one. The images are small and constructed: libraries, modules and lists are Debian's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::lab::qemu::{Guest, Machine};
use crate::lab::{Case, checkout, disk, images, run};
use crate::support::{Lacks, skip};

/// The findings of one check, by target: severity and the sentence.
type Verdicts = BTreeMap<String, Vec<(String, String)>>;

/// Reads the lines `PREFLIGHT TARGET JSON` of a console.
fn verdicts(guest: &Guest, check: &str) -> Verdicts {
    let lines = guest.values("PREFLIGHT ").into_iter();
    let of_line = |line: String| {
        let (target, json) = line.split_once(' ').unwrap();
        let document: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {line}"));
        let findings = document["findings"].as_array().unwrap().iter();
        let of_check = findings.filter(|finding| finding["check"] == check);
        let words = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let short = of_check.map(|one| (words(one, "severity"), words(one, "what")));
        (target.to_owned(), short.collect())
    };
    lines.map(of_line).collect()
}

/// A script that asks `preflight` about every target below `/targets`.
const ASK: &str = r#"
mkdir -p /node/proc /node/sys
mount -o bind /proc /node/proc
mount -o bind /sys /node/sys
for target in /targets/*; do
    mco-rescue preflight --root /node --os-from "$target" --output json >/tmp/said 2>/tmp/complaints
    [ -s /tmp/said ] || echo "BROKEN $(cat /tmp/complaints)"
    echo "PREFLIGHT ${target##*/} $(tr -d '\n' </tmp/said)"
done
"#;

/// The node: what it runs today.
fn write_node(tree: &Path) {
    let etc = tree.join("node/etc");
    fs::create_dir_all(&etc).unwrap();
    let release =
        "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.6\n";
    fs::write(etc.join("os-release"), release).unwrap();
}

fn write_release(target: &Path) {
    fs::create_dir_all(target.join("usr/lib")).unwrap();
    let release =
        "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=10.0\n";
    fs::write(target.join("usr/lib/os-release"), release).unwrap();
}

fn archive(case: &Case, name: &str, tree: &Path) -> PathBuf {
    let path = case.path(name);
    fs::write(&path, images::packed(tree, "zstd -1 -q")).unwrap();
    path
}

/// The bits of a note that asks for levels up to this one.
const LEVELS: [(&str, u8); 4] = [("v1", 1), ("v2", 3), ("v3", 7), ("v4", 15)];

/// The words of the loader.
const TOO_LOW: &str = "CPU ISA level is lower than required";

/// Debian's C library with another level in its own note; `None` if it has no such note.
///
/// The library is constructed in this: its code is the baseline's. The loader judges the note, and no instruction of
/// it, so a program ends as it does with a library that was built for the level.
fn library_of(level: u8, original: &[u8]) -> Option<Vec<u8>> {
    // Property "x86 ISA needed", four bytes, baseline.
    let property: [u8; 12] = [2, 0x80, 0, 0xc0, 4, 0, 0, 0, 1, 0, 0, 0];
    let mut places = original.windows(12).enumerate();
    let (at, _) = places.find(|(_, bytes)| *bytes == property)?;
    let mut library = original.to_vec();
    library[at + 8] = level;
    Some(library)
}

/// An image with a loader, a C library of this level and one program.
fn write_library(target: &Path, library: &[u8]) {
    write_release(target);
    for directory in ["usr/lib64", "usr/bin"] {
        fs::create_dir_all(target.join(directory)).unwrap();
    }
    symlink("usr/lib64", target.join("lib64")).unwrap();
    fs::write(target.join("usr/lib64/libc.so.6"), library).unwrap();
    fs::copy(LOADER, target.join("usr/lib64/ld-linux-x86-64.so.2")).unwrap();
    fs::copy("/usr/bin/echo", target.join("usr/bin/echo")).unwrap();
}

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The C library of the host's own programs.
fn own_library() -> Vec<u8> {
    let list = run(Command::new(LOADER).args(["--list", "/usr/bin/echo"]));
    let path = list.lines().find_map(|line| {
        let (_, rest) = line.split_once("libc.so.6 => ")?;
        rest.split(' ').next()
    });
    fs::read(path.unwrap()).unwrap()
}

#[test]
fn an_image_runs_on_the_processors_that_preflight_passes_and_on_no_other() {
    let Some(case) = Case::begin("9 crossing, processors") else {
        return;
    };
    runs_what_passes(
        &case,
        &[
            ("Nehalem", &["v1", "v2"], "lacks avx, avx2, "),
            ("Haswell", &["v1", "v2", "v3"], "lacks avx512f"),
        ],
    );
}

#[test]
#[ignore = "the same on more processors: make vm-test runs it"]
fn an_image_does_not_run_on_a_processor_that_lacks_a_single_flag() {
    let Some(case) = Case::begin("9 crossing, more processors") else {
        return;
    };
    runs_what_passes(
        &case,
        &[
            ("qemu64", &["v1"], "lacks popcnt, sse4_1, sse4_2, ssse3"),
            ("Haswell,-popcnt", &["v1"], "lacks popcnt"),
            ("Haswell,-abm", &["v1", "v2"], "lacks abm"),
            ("Haswell,-fma", &["v1", "v2"], "lacks fma"),
            ("Haswell,-movbe", &["v1", "v2"], "lacks movbe"),
            ("Haswell,-xsave", &["v1", "v2"], "lacks xsave"),
        ],
    );
}

/// Asks about an image of each level on processors, and runs a program of it there. A processor comes with the levels
/// that it has, and with words about the next one.
fn runs_what_passes(case: &Case, processors: &[(&str, &[&str], &str)]) {
    let original = own_library();
    let tree = case.path("tree");
    write_node(&tree);
    for (name, bits) in LEVELS {
        let Some(library) = library_of(bits, &original) else {
            return skip(
                Lacks::Machine,
                "processors of a crossing: the C library has no note of its level",
            );
        };
        write_library(&tree.join("targets").join(name), &library);
    }
    let archive = archive(case, "targets", &tree);
    let script = format!(
        "{ASK}{}",
        r#"
for target in /targets/*; do
    LD_LIBRARY_PATH=/usr/lib64 chroot "$target" /usr/bin/echo it runs >/tmp/said 2>&1
    echo "RUN ${target##*/} $? $(cat /tmp/said)"
done
"#
    );
    for (processor, passed, lacks) in processors {
        let machine = Machine::tiny(&images::tiny())
            .archive(&archive)
            .file("diskless", b"")
            .file("case.sh", script.as_bytes())
            .accelerator("tcg")
            .device(&["-cpu", processor]);
        let mut guest = machine.start(case.dir(), &processor.replace(',', ""));
        guest.powers_off();
        assert_eq!(guest.values("BROKEN "), [""; 0]);
        let found = verdicts(&guest, "cpu-level");
        let runs = guest.values("RUN ");
        case.tell(&format!(
            "{processor}: {runs:?} in {:.1} s",
            guest.seconds()
        ));
        assert_eq!((found.len(), runs.len()), (4, 4), "{}", guest.tail());
        for ((target, findings), run) in found.iter().zip(&runs) {
            let words = run.strip_prefix(target.as_str()).unwrap();
            if passed.contains(&target.as_str()) {
                assert_eq!(findings, &[], "{processor}, {target}");
                assert_eq!(words, " 0 it runs", "{processor}, {target}");
                continue;
            }
            let [(severity, what)] = &findings[..] else {
                panic!("{processor}, {target}: {findings:?}");
            };
            assert_eq!(severity, "inhibitor", "{processor}, {target}");
            assert!(what.contains(&format!("x86-64-{target}")), "{what}");
            assert!(words.starts_with(" 127 "), "{processor}, {target}: {words}");
            assert!(words.ends_with(TOO_LOW), "{processor}, {target}: {words}");
        }
        // The first level that is missing.
        let (_, findings) = found.iter().nth(passed.len()).unwrap();
        assert!(findings[0].1.contains(lacks), "{processor}: {findings:?}");
    }
}

/// How the root disk is attached to the machine.
struct Bus {
    name: &'static str,
    device: &'static str,
    /// Name of the disk.
    disk: &'static str,
    filesystem: &'static str,
    mkfs: &'static [&'static str],
    /// Modules that the initramfs has for it.
    modules: &'static [&'static str],
    /// Modules without which the disk is not found or not mounted.
    needed: &'static [&'static str],
}

/// Places of the lists in an image.
fn modules_of(tree: &Path) -> PathBuf {
    let kernel = images::kernel();
    let version = fs::read_dir(kernel.join("lib/modules")).unwrap();
    let version = version.map(|entry| entry.unwrap().file_name()).next();
    tree.join("lib/modules").join(version.unwrap())
}

/// The real lists of the kernel's modules, without the lines of one module if one is given.
fn write_lists(tree: &Path, without: Option<&str>) {
    let (from, to) = (modules_of(&images::kernel()), modules_of(&tree.join("usr")));
    fs::create_dir_all(&to).unwrap();
    for name in [
        "modules.alias",
        "modules.dep",
        "modules.builtin",
        "modules.builtin.modinfo",
    ] {
        let text = fs::read_to_string(from.join(name)).unwrap();
        let of_it = |line: &&str| {
            without.is_some_and(|one| {
                line.ends_with(&format!(" {one}")) || line.contains(&format!("/{one}.ko:"))
            })
        };
        let kept: String = text
            .split_inclusive('\n')
            .filter(|line| !of_it(&line.trim_end()))
            .collect();
        fs::write(to.join(name), kept).unwrap();
    }
}

/// An initramfs with busybox, the kernel's real modules of the bus but one, and their own index.
fn initramfs(case: &Case, bus: &Bus, without: Option<&str>) -> PathBuf {
    let kernel = images::kernel();
    let name = format!("initramfs-{}", without.unwrap_or("whole"));
    let tree = case.path(&format!("{name}.tree"));
    for directory in ["bin", "sbin", "dev", "proc", "sys", "run", "tmp", "sysroot"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let busybox = run(Command::new("sh").args(["-c", "command -v busybox"]));
    fs::copy(busybox.trim(), tree.join("bin/busybox")).unwrap();
    // The kernel itself asks it for the module of a file system.
    symlink("/bin/busybox", tree.join("sbin/modprobe")).unwrap();
    fs::copy(
        checkout().join("vm-tests/guest/root-disk"),
        tree.join("init"),
    )
    .unwrap();
    let modules = modules_of(&tree);
    fs::create_dir_all(&modules).unwrap();
    let version = modules.file_name().unwrap().to_str().unwrap();
    for module in bus.modules {
        let mut asked = Command::new("modprobe");
        asked
            .arg("-d")
            .arg(&kernel)
            .args(["-S", version, "--show-depends", module]);
        for line in run(&mut asked).lines() {
            let Some(path) = line
                .strip_prefix("insmod ")
                .map(|path| Path::new(path.trim()))
            else {
                continue;
            };
            let left_out = without.map(|one| format!("{one}.ko"));
            if path.file_name().unwrap().to_str() != left_out.as_deref() {
                fs::copy(path, modules.join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    for list in [
        "modules.builtin",
        "modules.builtin.modinfo",
        "modules.order",
    ] {
        fs::copy(modules_of(&kernel).join(list), modules.join(list)).unwrap();
    }
    run(Command::new("depmod").arg("-b").arg(&tree).arg(version));
    archive(case, &name, &tree)
}

/// An image with this initramfs.
fn write_image(target: &Path, initramfs: &Path, lists_without: Option<&str>) {
    write_release(target);
    write_lists(target, lists_without);
    let kernel = modules_of(&target.join("usr"));
    fs::write(kernel.join("vmlinuz"), "of the machine\n").unwrap();
    fs::copy(initramfs, kernel.join("initramfs.img")).unwrap();
}

/// Asks about an image with every driver, and one without each, and boots the initramfs of all of them.
fn boots_what_passes(case: &Case, bus: &Bus) {
    let tree = case.path("tree");
    write_node(&tree);
    write_lists(&tree.join("node"), None);
    let whole = initramfs(case, bus, None);
    write_image(&tree.join("targets/whole"), &whole, None);
    let mut refused = Vec::new();
    for module in bus.needed {
        let image = initramfs(case, bus, Some(module));
        write_image(&tree.join("targets").join(module), &image, None);
        refused.push((module, image));
    }
    // The driver is gone from the image as a whole.
    if let Some((module, image)) = refused.first() {
        write_image(&tree.join("targets/gone"), image, Some(module));
    }
    let targets = archive(case, "targets", &tree);
    let image = case.path("disk");
    disk::formatted(&image, 320, bus.mkfs);
    let boot = |initrd: &[PathBuf], name: &str, script: Option<&str>| {
        let drive = format!(
            "if=none,id=disk,format=raw,cache=unsafe,file={}",
            image.display()
        );
        let mut machine = Machine::of(&images::tiny_alone().kernel, initrd)
            .memory(384)
            .append(&format!("DISK={} FS={}", bus.disk, bus.filesystem))
            .device(&["-drive", &drive])
            .device(&bus.device.split(' ').collect::<Vec<_>>());
        if let Some(script) = script {
            machine = machine.file("case.sh", script.as_bytes());
        }
        let mut guest = machine.start(case.dir(), name);
        guest.powers_off();
        let seconds = guest.seconds();
        case.tell(&format!(
            "{}, {name}: {} in {seconds:.1} s",
            bus.name,
            guest.value("ROOT ")
        ));
        guest
    };

    let script = format!("echo 'the root disk' >/sysroot/marker\n{ASK}");
    let node = boot(
        &[whole.clone(), images::program_archive(), targets],
        "node",
        Some(&script),
    );
    assert_eq!(node.values("BROKEN "), [""; 0], "{}", node.tail());
    assert_eq!(node.value("ROOT "), "the root disk");
    let mut found = verdicts(&node, "root-drivers");
    assert_eq!(found.remove("whole"), Some(vec![]), "{}", bus.name);
    let again = boot(&[whole], "whole", None);
    assert_eq!(again.value("ROOT "), "the root disk");

    if let Some((module, _)) = refused.first() {
        let gone = found.remove("gone").unwrap();
        let what = format!("the image has no driver for this device: {module} is gone");
        assert_eq!(gone, [("inhibitor".to_owned(), what)]);
    }
    for (module, image) in &refused {
        let findings = found.remove(**module).unwrap();
        assert!(!findings.is_empty(), "{module}");
        for (severity, what) in &findings {
            assert_eq!(severity, "inhibitor", "{module}");
            assert!(
                what.contains(&format!("in the image's initramfs: {module}")),
                "{what}"
            );
        }
        let forced = boot(std::slice::from_ref(image), module, None);
        let said = forced.value("ROOT ");
        let words = ["Timed out waiting for device", "not mounted"];
        assert!(
            words.iter().any(|words| said.starts_with(words)),
            "{module}: {said}"
        );
    }
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn an_initramfs_finds_a_virtio_disk_with_xfs_if_preflight_passes_it() {
    let Some(case) = Case::begin("9 crossing, virtio disk") else {
        return;
    };
    boots_what_passes(
        &case,
        &Bus {
            name: "virtio",
            device: "-device virtio-blk-pci,drive=disk",
            disk: "vda",
            filesystem: "xfs",
            mkfs: &["mkfs.xfs", "-q"],
            modules: &["virtio_pci", "virtio_blk", "xfs"],
            // The driver, and a module that the one of the file system needs.
            needed: &["virtio_blk", "libcrc32c"],
        },
    );
}

#[test]
#[ignore = "the same on another bus: make vm-test runs it"]
fn an_initramfs_finds_a_scsi_disk_if_preflight_passes_it() {
    let Some(case) = Case::begin("9 crossing, scsi disk") else {
        return;
    };
    boots_what_passes(
        &case,
        &Bus {
            name: "scsi",
            device: "-device virtio-scsi-pci,id=bus -device scsi-hd,bus=bus.0,drive=disk",
            disk: "sda",
            filesystem: "ext4",
            mkfs: &["mke2fs", "-q", "-F", "-t", "ext4"],
            modules: &["virtio_pci", "virtio_scsi", "sd_mod"],
            needed: &["virtio_scsi", "sd_mod"],
        },
    );
}

#[test]
#[ignore = "the same on another bus: make vm-test runs it"]
fn an_initramfs_without_modules_finds_a_disk_whose_driver_is_in_the_kernel() {
    let Some(case) = Case::begin("9 crossing, nvme disk") else {
        return;
    };
    boots_what_passes(
        &case,
        &Bus {
            name: "nvme",
            device: "-device nvme,drive=disk,serial=1",
            disk: "nvme0n1",
            filesystem: "ext4",
            mkfs: &["mke2fs", "-q", "-F", "-t", "ext4"],
            modules: &[],
            needed: &[],
        },
    );
}

#[test]
#[ignore = "the same with another file system: make vm-test runs it"]
fn an_initramfs_mounts_btrfs_if_preflight_passes_it() {
    let Some(case) = Case::begin("9 crossing, btrfs") else {
        return;
    };
    boots_what_passes(
        &case,
        &Bus {
            name: "btrfs",
            device: "-device virtio-blk-pci,drive=disk",
            disk: "vda",
            filesystem: "btrfs",
            mkfs: &["mkfs.btrfs", "-q"],
            modules: &["virtio_pci", "virtio_blk", "btrfs"],
            // The driver of the bus, the file system, and a module that it needs.
            needed: &["virtio_pci", "btrfs", "raid6_pq"],
        },
    );
}
