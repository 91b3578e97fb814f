//! Firmware and boot loader of the node: EFI variables, EFI system partitions, the state of bootupd, GRUB's configuration.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde_json::Value;

use super::devices::text_of;
use super::{BlockStorage, Seen};
use crate::base::reason::Reason;
use crate::host::root::{EntryType, Root, RootPath};

/// GPT type of an EFI system partition.
const ESP: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
const SECURE_BOOT: &str =
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const SBAT_LEVEL: &str =
    "sys/firmware/efi/efivars/SbatLevelRT-605dab50-e046-4300-abb6-3dd810dd8b23";
/// The variable that is 1 if shim's checks were turned off.
const UNCHECKED: &str =
    "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23";
/// Bytes of attributes before a variable's value.
const ATTRIBUTES: usize = 4;
/// Maximum size of a file; a boot loader has a few MiB.
const MAX_FILE: u64 = 16 << 20;
/// Maximum number of bytes that are read of one partition: a damaged one may contain loops.
const MAX_READ: u64 = 128 << 20;
const MAX_FILES: usize = 512;
const MAX_DEPTH: usize = 3;

/// The firmware and the boot loader.
#[derive(Debug, Clone)]
pub struct Firmware {
    /// True on a machine that booted through EFI; unknown for a root that is not running.
    pub is_efi: Seen<bool>,
    /// True if Secure Boot is on and shim verifies what it starts.
    pub secure_boot: Seen<bool>,
    /// The revocation level of shim, as text; empty if there is none.
    pub sbat_level: String,
    /// The EFI system partitions.
    pub partitions: Vec<SystemPartition>,
    /// The state of bootupd; `None` if it has no state file.
    pub state: Seen<Option<BootupdState>>,
    /// `/boot/grub2/grub.cfg`; empty if it cannot be read.
    pub grub_config: Seen<String>,
}

/// An EFI system partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPartition {
    /// Its device, or its mount point.
    pub place: String,
    /// Its files below `EFI`, by path in lower case, such as `boot/bootx64.efi`.
    pub files: Seen<BTreeMap<String, Vec<u8>>>,
}

/// The state file of bootupd, except for keys that do not matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootupdState {
    /// Version of the installed component `EFI`; empty if there is none.
    pub version: String,
    /// True if an update was interrupted.
    pub is_pending: bool,
    /// SHA-512 of the files that it installed, by path below `EFI` in lower case.
    pub files: BTreeMap<String, String>,
}

impl Firmware {
    /// Reads the files and devices of a root.
    pub(super) fn observe(root: &Root, storage: &BlockStorage) -> Self {
        let exists = |path| {
            let exists = root.exists(&RootPath::fixed(path));
            exists.map_err(Reason::from_error)
        };
        let is_efi = match exists("sys/firmware") {
            Ok(true) => exists("sys/firmware/efi"),
            Ok(false) => Err("/sys/firmware is missing below this root".into()),
            Err(error) => Err(error),
        };
        let variable = |path: &'static str| -> Seen<Option<Vec<u8>>> {
            let bytes = root.read_small(&RootPath::fixed(path));
            let bytes = bytes.map_err(Reason::from_error)?;
            Ok(bytes.map(|bytes| bytes.get(ATTRIBUTES..).unwrap_or_default().to_vec()))
        };
        let is_on = |path| -> Seen<bool> {
            Ok(variable(path)?.is_some_and(|value| value.first() == Some(&1)))
        };
        let secure_boot = || Ok(is_on(SECURE_BOOT)? && !is_on(UNCHECKED)?);
        let level = variable(SBAT_LEVEL);
        Self {
            // Without its level, nothing can be said about what Secure Boot refuses.
            secure_boot: is_efi
                .clone()
                .and_then(|_| secure_boot())
                .and_then(|on| level.as_ref().map(|_| on).map_err(Clone::clone)),
            is_efi,
            sbat_level: String::from_utf8_lossy(&level.ok().flatten().unwrap_or_default())
                .trim_end_matches('\0')
                .to_owned(),
            partitions: read_partitions(root, storage),
            state: read_state(root),
            grub_config: text_of(root, &RootPath::fixed("boot/grub2/grub.cfg"))
                .map(Option::unwrap_or_default),
        }
    }
}

fn read_state(root: &Root) -> Seen<Option<BootupdState>> {
    let file = "boot/bootupd-state.json";
    let read = root.read_small(&RootPath::fixed(file));
    let Some(bytes) = read.map_err(Reason::from_error)? else {
        return Ok(None);
    };
    let json: Value =
        serde_json::from_slice(&bytes).map_err(|error| format!("/{file}: {error}"))?;
    let version = json.pointer("/installed/EFI/meta/version");
    let tree = json.pointer("/installed/EFI/filetree/children");
    let files = tree.and_then(Value::as_object).into_iter().flatten();
    let files = files.filter_map(|(path, file)| {
        let digest = file["sha512"].as_str()?.strip_prefix("sha512:")?;
        Some((path.to_ascii_lowercase(), digest.to_owned()))
    });
    Ok(Some(BootupdState {
        version: version
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        is_pending: json["pending"]
            .as_object()
            .is_some_and(|all| !all.is_empty()),
        files: files.collect(),
    }))
}

fn read_partitions(root: &Root, storage: &BlockStorage) -> Vec<SystemPartition> {
    let devices = storage.devices.iter().flatten();
    let own = devices.filter(|device| device.get("ID_PART_ENTRY_TYPE").eq_ignore_ascii_case(ESP));
    let mut all: Vec<SystemPartition> = Vec::new();
    for device in own {
        let mut mounts = storage.mounts.iter().flatten();
        let mounted = mounts.rfind(|mount| mount.number == device.number);
        let files = match mounted {
            Some(mount) => read_mounted(root, &mount.point),
            None => read_device(
                root,
                &[device.path(), format!("/dev/block/{}", device.number)],
            ),
        };
        all.push(SystemPartition {
            place: device.path(),
            files,
        });
    }
    // A disk of another machine has to be mounted there by hand.
    if all.is_empty() && !matches!(root.exists(&RootPath::fixed("boot/efi/EFI")), Ok(false)) {
        all.push(SystemPartition {
            place: "/boot/efi".to_owned(),
            files: read_mounted(root, "/boot/efi"),
        });
    }
    all
}

fn read_mounted(root: &Root, point: &str) -> Seen<BTreeMap<String, Vec<u8>>> {
    let base = RootPath::parse(&format!("{point}/EFI")).map_err(Reason::from_error)?;
    let mut files = BTreeMap::new();
    read_below(root, &base, "", MAX_DEPTH, &mut files).map_err(Reason::from_error)?;
    Ok(files)
}

fn read_below(
    root: &Root,
    directory: &RootPath,
    shown: &str,
    depth: usize,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), crate::host::root::RootError> {
    for (name, kind) in root.list_types(directory)? {
        let Ok(path) = directory.join(&name) else {
            continue;
        };
        let shown = format!("{shown}{}", name.to_ascii_lowercase());
        match kind {
            EntryType::Directory if depth > 0 => {
                read_below(root, &path, &format!("{shown}/"), depth - 1, files)?;
            }
            EntryType::File if files.len() < MAX_FILES => {
                let bytes = root.read_within(&path, MAX_FILE)?;
                files.extend(bytes.map(|bytes| (shown, bytes)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the file system of an unmounted device.
fn read_device(root: &Root, names: &[String]) -> Seen<BTreeMap<String, Vec<u8>>> {
    if let Some((name, file)) = open_device(root, names)? {
        return read_fat(file).map_err(|error| format!("{name}: {error}").into());
    }
    let first = names.first().map_or("", String::as_str);
    Err(format!("{first} is missing below this root").into())
}

/// Opens the device by the first of its names that exists.
fn open_device<'a>(root: &Root, names: &'a [String]) -> Seen<Option<(&'a String, File)>> {
    for name in names {
        let Ok(path) = RootPath::parse(name) else {
            continue;
        };
        let opened = root.open_block_device(&path);
        if let Some(file) = opened.map_err(Reason::from_error)? {
            return Ok(Some((name, file)));
        }
    }
    Ok(None)
}

fn read_fat(file: File) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let disk = ReadOnly {
        file,
        left: MAX_READ,
    };
    let mut files = BTreeMap::new();
    read_entries(disk, &mut |shown, entry| {
        let mut bytes = Vec::new();
        entry.to_file().take(MAX_FILE).read_to_end(&mut bytes)?;
        files.insert(shown, bytes);
        Ok(())
    })?;
    Ok(files)
}

/// Calls `take` for each file below `EFI`, with its path in lower case.
fn read_entries(disk: ReadOnly, take: &mut TakeEntry<'_>) -> io::Result<()> {
    let system = fatfs::FileSystem::new(disk, fatfs::FsOptions::new())?;
    let (top, mut left) = (system.root_dir(), MAX_FILES);
    for entry in top.iter() {
        let entry = entry?;
        if entry.is_dir() && entry.file_name().eq_ignore_ascii_case("EFI") {
            read_fat_below(&entry.to_dir(), "", MAX_DEPTH, &mut left, take)?;
        }
    }
    Ok(())
}

/// Callback for a file on a FAT file system.
type TakeEntry<'a> = dyn FnMut(String, &fatfs::DirEntry<'_, ReadOnly>) -> io::Result<()> + 'a;

/// A file on an unmounted EFI system partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmountedFile {
    /// Path below `EFI`, in lower case.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of its last change, as a number that increases with time. FAT stores it in steps of two seconds and without a time
    /// zone.
    pub modified: u64,
    /// Its bytes, if they were requested.
    pub bytes: Option<Vec<u8>>,
}

/// Reads the files on unmounted EFI system partitions. The content of a file is read only if `wanted` returns true for its
/// path, size and time.
///
/// # Errors
/// The reason why a partition cannot be read.
pub fn read_unmounted_partitions(
    root: &Root,
    wanted: &mut dyn FnMut(&str, u64, u64) -> bool,
) -> Seen<Vec<UnmountedFile>> {
    let storage = BlockStorage::observe(root);
    let mut all = Vec::new();
    for device in storage.devices.iter().flatten() {
        let mut mounts = storage.mounts.iter().flatten();
        let is_mounted = mounts.any(|mount| mount.number == device.number);
        if is_mounted || !device.get("ID_PART_ENTRY_TYPE").eq_ignore_ascii_case(ESP) {
            continue;
        }
        let names = [device.path(), format!("/dev/block/{}", device.number)];
        let Some((name, file)) = open_device(root, &names)? else {
            continue;
        };
        let disk = ReadOnly {
            file,
            left: MAX_READ,
        };
        let read = read_entries(disk, &mut |path, entry| {
            let (size, modified) = (entry.len(), in_order(&entry.modified()));
            let mut bytes = wanted(&path, size, modified).then(Vec::new);
            if let Some(bytes) = &mut bytes {
                entry.to_file().take(MAX_FILE).read_to_end(bytes)?;
            }
            all.push(UnmountedFile {
                path,
                size,
                modified,
                bytes,
            });
            Ok(())
        });
        read.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(all)
}

/// Returns a time as a number that increases with it.
fn in_order(time: &fatfs::DateTime) -> u64 {
    let (date, time) = (&time.date, &time.time);
    let days = (u64::from(date.year) * 12 + u64::from(date.month)) * 31 + u64::from(date.day);
    let seconds = (u64::from(time.hour) * 60 + u64::from(time.min)) * 60 + u64::from(time.sec);
    days * 86_400 + seconds
}

fn read_fat_below(
    directory: &fatfs::Dir<'_, ReadOnly>,
    shown: &str,
    depth: usize,
    left: &mut usize,
    take: &mut TakeEntry<'_>,
) -> io::Result<()> {
    for entry in directory.iter() {
        let entry = entry?;
        let name = entry.file_name().to_ascii_lowercase();
        if name == "." || name == ".." {
            continue;
        }
        let shown = format!("{shown}{name}");
        if entry.is_dir() && depth > 0 {
            read_fat_below(&entry.to_dir(), &format!("{shown}/"), depth - 1, left, take)?;
        } else if entry.is_file() && entry.len() <= MAX_FILE && *left > 0 {
            *left -= 1;
            take(shown, &entry)?;
        }
    }
    Ok(())
}

/// A read-only disk with a limited number of bytes to read.
struct ReadOnly {
    file: File,
    left: u64,
}

impl Read for ReadOnly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.count_bytes(read as u64)?;
        Ok(read)
    }
}

impl ReadOnly {
    fn count_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| io::Error::other("its file system leads in circles"))?;
        Ok(())
    }
}

impl Seek for ReadOnly {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.count_bytes(1)?;
        self.file.seek(to)
    }
}

impl Write for ReadOnly {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
