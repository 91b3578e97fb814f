//! A disk with a real boot loader: Debian's GRUB for a BIOS in front of a partition that is `/boot`.
//!
//! GRUB reads `/boot/grub2/grub.cfg`, loads and saves the environment block, and starts the kernel. The command `blscfg` is a
//! stand-in: Debian's GRUB has none, so the harness builds a function of that name, with the boot entries that are on the disk
//! at that moment, into GRUB before each start of the machine. Nothing is written to the partition for that, and its journal is
//! not replayed: GRUB finds the file system as the guest's end has left it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{checkout, disk, run};
use crate::support::mounts::{mount, unmount, with_mounts};

/// Bytes before the partition: the boot sector, and GRUB.
pub const START: u64 = 1 << 20;
/// Size of an environment block.
const BLOCK: usize = 1024;
const IMAGES: &str = "/usr/lib/grub/i386-pc";
const MODULES: &str = "memdisk tar biosdisk part_msdos ext2 xfs normal configfile search search_label linux loadenv \
    test echo serial terminal reboot halt sleep minicmd true";

/// The file system of `/boot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    /// Its name for `mount`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn mkfs(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mke2fs", "-q", "-F", "-t", "ext4", "-L", "boot"],
            Self::Xfs => &["mkfs.xfs", "-q", "-L", "boot"],
        }
    }

    fn mebibytes(self) -> u64 {
        match self {
            Self::Ext4 => 160,
            Self::Xfs => 320,
        }
    }

    /// Options to mount it: copies of one file system may be mounted at a time.
    fn options(self, replays: bool) -> &'static str {
        match (self, replays) {
            (Self::Ext4, true) => "",
            (Self::Ext4, false) => ",ro,noload",
            (Self::Xfs, true) => ",nouuid",
            (Self::Xfs, false) => ",nouuid,ro,norecovery",
        }
    }
}

/// A boot entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of its file without `.conf`.
    pub id: String,
    pub title: String,
    pub linux: String,
    pub initrd: String,
    pub options: String,
}

impl Entry {
    fn parse(id: &str, text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key}in {id}: {text}"))
                .trim()
                .to_owned()
        };
        Self {
            id: id.to_owned(),
            title: value("title "),
            linux: value("linux "),
            initrd: value("initrd "),
            options: value("options "),
        }
    }

    /// Its system, as [`started`] names it.
    pub fn system(&self) -> &str {
        system(&self.title)
    }

    /// The number that ostree gave it: the highest is the default.
    fn number(&self) -> u32 {
        let number = self.id.strip_prefix("ostree-").unwrap_or(&self.id);
        let digits = number.split('-').next().unwrap();
        digits.parse().unwrap_or_else(|_| panic!("{}", self.id))
    }

    /// As a command of GRUB. Its title begins with its id, which GRUB prints when it starts the entry.
    fn command(&self) -> String {
        let words: Vec<String> = self.options.split_whitespace().map(quoted).collect();
        format!(
            "menuentry {} --id {} {{\n  linux {} {}\n  initrd {}\n}}\n",
            quoted(&format!("{} {}", self.id, self.title)),
            quoted(&self.id),
            quoted(&self.linux),
            words.join(" "),
            quoted(&self.initrd),
        )
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A disk with GRUB and the partition of `/boot`.
pub struct BootDisk {
    path: PathBuf,
    file_system: FileSystem,
}

impl BootDisk {
    /// A copy of another one.
    pub fn copy(path: &Path, from: &Path, file_system: FileSystem) -> Self {
        disk::copy(from, path);
        Self {
            path: path.to_owned(),
            file_system,
        }
    }

    /// With the files of an ext4 that begins there in another disk, and GRUB's own files where they are missing. As root.
    pub fn of(path: &Path, file_system: FileSystem, files: &Path, begins: u64) -> Self {
        let partition = path.with_extension("partition");
        disk::formatted(&partition, file_system.mebibytes(), file_system.mkfs());
        let image = File::create(path).unwrap();
        image
            .set_len(START + (file_system.mebibytes() << 20))
            .unwrap();
        let mut command = Command::new("dd");
        command.args(["bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"]);
        command.arg(format!("if={}", partition.display()));
        run(command.arg(format!("of={}", path.display())));
        fs::remove_file(partition).unwrap();
        let made = Self {
            path: path.to_owned(),
            file_system,
        };
        made.mounted(|top| {
            let from = tempfile::tempdir().unwrap();
            mount(&[
                "-o",
                &format!("loop,ro,offset={begins}"),
                files.to_str().unwrap(),
                from.path().to_str().unwrap(),
            ]);
            let all = format!("{}/.", from.path().display());
            run(Command::new("cp").args(["-a", &all]).arg(top));
            unmount(from.path());
            let grub = top.join("grub2");
            if grub.exists() {
                return;
            }
            fs::create_dir(&grub).unwrap();
            let config = checkout().join("vm-tests/guest/grub/grub.cfg");
            fs::copy(config, grub.join("grub.cfg")).unwrap();
            fs::write(grub.join("grubenv"), block(&[])).unwrap();
        });
        made
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system of its partition.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Works on its files, while no guest runs on it. Its journal is replayed.
    pub fn mounted(&self, work: impl FnOnce(&Path) + Send) {
        self.with_mount(true, work);
    }

    /// Reads its files as GRUB finds them, without the journal.
    fn read(&self, work: impl FnOnce(&Path) + Send) {
        self.with_mount(false, work);
    }

    fn with_mount(&self, replays: bool, work: impl FnOnce(&Path) + Send) {
        let options = self.file_system.options(replays);
        with_mounts(|| {
            let top = tempfile::tempdir().unwrap();
            let at = top.path();
            mount(&[
                "-t",
                self.file_system.name(),
                "-o",
                &format!("loop,offset={START}{options}"),
                self.path.to_str().unwrap(),
                at.to_str().unwrap(),
            ]);
            work(at);
            unmount(at);
        });
    }

    /// The boot entries in the order of the menu: the default first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.read(|top| {
            for file in fs::read_dir(top.join("loader/entries")).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                if let Some(id) = name.strip_suffix(".conf") {
                    entries.push(Entry::parse(id, &fs::read_to_string(&path).unwrap()));
                }
            }
        });
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.number()));
        entries
    }

    /// The variables of the environment block, as GRUB would load them now.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut bytes = Vec::new();
        self.read(|top| bytes = fs::read(top.join("grub2/grubenv")).unwrap());
        assert_eq!(bytes.len(), BLOCK, "the environment block");
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// A file, as GRUB finds it.
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = None;
        self.read(|top| bytes = fs::read(top.join(path)).ok());
        bytes
    }

    /// Puts GRUB before the partition, with the boot entries that are there now.
    pub fn flash(&self) {
        let menu: String = self.entries().iter().map(Entry::command).collect();
        let core = core_image(&menu);
        let image = File::options().write(true).open(&self.path).unwrap();
        image.write_all_at(&boot_sector(&image), 0).unwrap();
        // The boot sector and the beginning of the image expect it in the sectors behind them.
        assert!(512 + core.len() as u64 <= START, "GRUB is too large");
        image.write_all_at(&core, 512).unwrap();
    }
}

/// The boot sector with one partition, which goes to the end of the disk.
fn boot_sector(image: &File) -> Vec<u8> {
    let mut sector = fs::read(Path::new(IMAGES).join("boot.img")).unwrap();
    let first = u32::try_from(START / 512).unwrap();
    let all = u32::try_from(image.metadata().unwrap().len() / 512).unwrap();
    // Active, of type Linux, without an address in cylinders.
    let mut partition = vec![0x80, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff];
    partition.extend(first.to_le_bytes());
    partition.extend((all - first).to_le_bytes());
    partition.resize(64, 0);
    sector[446..510].copy_from_slice(&partition);
    sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn core_image(menu: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let stub = fs::read_to_string(checkout().join("vm-tests/guest/grub/stub.cfg")).unwrap();
    fs::create_dir(path("stub")).unwrap();
    fs::write(path("stub/grub.cfg"), stub.replace("@ENTRIES@", menu)).unwrap();
    fs::write(path("early.cfg"), "configfile (memdisk)/stub/grub.cfg\n").unwrap();
    run(Command::new("tar")
        .current_dir(&dir)
        .args(["-cf", "stub.tar", "stub"]));
    let mut command = Command::new("grub-mkimage");
    command.current_dir(&dir);
    command.args(["-O", "i386-pc", "-d", IMAGES, "-p", "(memdisk)/stub"]);
    command.args(["-c", "early.cfg", "-m", "stub.tar", "-o", "core.img"]);
    run(command.args(MODULES.split_whitespace()));
    fs::read(path("core.img")).unwrap()
}

/// An environment block with these variables.
pub fn block(variables: &[(&str, &str)]) -> Vec<u8> {
    let mut text = "# GRUB Environment Block\n".to_owned();
    for (name, value) in variables {
        writeln!(text, "{name}={value}").unwrap();
    }
    let mut block = text.into_bytes();
    assert!(block.len() <= BLOCK);
    block.resize(BLOCK, b'#');
    block
}

/// The titles of the entries that GRUB started, as it says them on the console, without the number of the deployment: that
/// and the ids change when another deployment becomes the default.
pub fn started(console: &str) -> Vec<String> {
    let lines = console.split("Booting `").skip(1);
    lines
        .filter_map(|rest| rest.split_once(' '))
        .map(|(_, title)| system(title).to_owned())
        .collect()
}

/// The part of a title that stays.
fn system(title: &str) -> &str {
    title.split(['(', '\'']).next().unwrap().trim()
}
