//! Mounts and block devices of the machine: `mountinfo`, the udev database and `/sys`.

use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath};

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountedFileSystem {
    /// Device number, such as `8:3`.
    pub number: String,
    /// Mount point, such as `/boot`.
    pub point: String,
    /// Type, such as `xfs`.
    pub kind: String,
    /// Source, such as `/dev/sda3`.
    pub source: String,
}

/// A block device, as udev describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Number, such as `8:3`.
    pub number: String,
    /// Name, such as `sda3`.
    pub name: String,
    /// Properties, such as `ID_FS_LABEL`.
    pub properties: BTreeMap<String, String>,
    /// Numbers of the devices below it: the disk of a partition, the members of an array.
    pub below: Vec<String>,
}

/// The mounts and block devices.
#[derive(Debug, Clone)]
pub struct BlockStorage {
    /// Mounts in order; of several on one mount point the last is visible.
    pub mounts: Seen<Vec<MountedFileSystem>>,
    /// Block devices.
    pub devices: Seen<Vec<BlockDevice>>,
    /// Mount points in `/etc/fstab`.
    pub fstab: Seen<BTreeSet<String>>,
}

const UDEV: &str = "run/udev/data";

impl BlockDevice {
    /// Returns a property; empty if it is missing.
    pub fn get(&self, key: &str) -> &str {
        self.properties.get(key).map_or("", String::as_str)
    }

    /// Returns the path of its device file.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }
}

impl BlockStorage {
    /// Reads the files of a root.
    pub fn observe(root: &Root) -> Self {
        Self {
            mounts: read_mounts(root),
            devices: read_devices(root),
            fstab: read_fstab(root).map_err(Reason::from_error),
        }
    }

    /// Returns the mount that is visible at a mount point.
    pub fn mounted_at(&self, point: &str) -> Option<&MountedFileSystem> {
        let mounts = self.mounts.as_ref().ok()?;
        mounts.iter().rev().find(|mount| mount.point == point)
    }

    /// Returns a device by its number.
    pub fn find_device(&self, number: &str) -> Option<&BlockDevice> {
        let mut devices = self.devices.as_ref().ok()?.iter();
        devices.find(|device| device.number == number)
    }

    /// Returns the numbers of a device and of all devices below it.
    pub fn chain_of(&self, number: &str) -> Vec<String> {
        let mut chain = vec![number.to_owned()];
        let mut at = 0;
        while let Some(number) = chain.get(at) {
            let below = self.find_device(number).map(|device| device.below.clone());
            for one in below.unwrap_or_default() {
                if !chain.contains(&one) {
                    chain.push(one);
                }
            }
            at += 1;
        }
        chain
    }

    /// Returns the numbers of the disks below a device.
    pub fn disks_of(&self, number: &str) -> BTreeSet<String> {
        let is_disk = |number: &String| {
            let device = self.find_device(number);
            device.is_some_and(|device| device.below.is_empty())
        };
        self.chain_of(number).into_iter().filter(is_disk).collect()
    }
}

/// Returns the mount points of `/etc/fstab`.
fn read_fstab(root: &Root) -> Result<BTreeSet<String>, RootError> {
    let bytes = root.read_small(&RootPath::fixed("etc/fstab"))?;
    let bytes = bytes.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(str::trim);
    let points = lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().nth(1));
    Ok(points.map(str::to_owned).collect())
}

fn read_text(root: &Root, path: &str) -> Seen<Option<String>> {
    let path = RootPath::parse(&format!("/{path}")).map_err(Reason::from_error)?;
    let bytes = root.read_small(&path).map_err(Reason::from_error)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads the mounts in order. Those of process 1 are the host's, and only root may read them.
///
/// # Errors
/// The root is not running: it has no list of mounts. Or none can be read.
pub fn read_mounts(root: &Root) -> Seen<Vec<MountedFileSystem>> {
    let mut why = "/proc/self/mountinfo is missing below this root".into();
    for file in ["proc/1/mountinfo", "proc/self/mountinfo"] {
        match read_text(root, file) {
            Ok(text) => {
                let text = text.unwrap_or_default();
                let mounts: Vec<MountedFileSystem> = text.lines().filter_map(parse_mount).collect();
                if !mounts.is_empty() {
                    return Ok(mounts);
                }
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Parses a line like `36 35 8:3 / /boot rw,noatime shared:1 - ext4 /dev/sda3 rw`.
fn parse_mount(line: &str) -> Option<MountedFileSystem> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let mut after = after.split(' ');
    Some(MountedFileSystem {
        number: before.next()?.to_owned(),
        point: before.nth(1)?.to_owned(),
        kind: after.next()?.to_owned(),
        source: after.next()?.to_owned(),
    })
}

fn read_devices(root: &Root) -> Seen<Vec<BlockDevice>> {
    let names = root
        .list(&RootPath::fixed(UDEV))
        .map_err(Reason::from_error)?;
    let mut devices = Vec::new();
    for number in names.iter().filter_map(|name| name.strip_prefix('b')) {
        let Some(text) = read_text(root, &format!("{UDEV}/b{number}"))? else {
            continue;
        };
        let pairs = text.lines().filter_map(|line| {
            let (key, value) = line.strip_prefix("E:")?.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        });
        let properties: BTreeMap<String, String> = pairs.collect();
        let mut below = list_members(root, number)?;
        below.extend(properties.get("ID_PART_ENTRY_DISK").cloned());
        devices.push(BlockDevice {
            number: number.to_owned(),
            name: name_of(root, number)?.unwrap_or_else(|| format!("block/{number}")),
            properties,
            below,
        });
    }
    if devices.is_empty() {
        return Err(format!("/{UDEV} is empty below this root").into());
    }
    Ok(devices)
}

fn name_of(root: &Root, number: &str) -> Seen<Option<String>> {
    let uevent = read_text(root, &format!("sys/dev/block/{number}/uevent"))?;
    let uevent = uevent.unwrap_or_default();
    let mut lines = uevent.lines();
    Ok(lines.find_map(|line| Some(line.strip_prefix("DEVNAME=")?.to_owned())))
}

/// Returns the numbers of the members of an array, a mapping or a volume.
fn list_members(root: &Root, number: &str) -> Seen<Vec<String>> {
    let directory = RootPath::parse(&format!("/sys/dev/block/{number}/slaves"));
    let names = root.list(&directory.map_err(Reason::from_error)?);
    let names = names.map_err(Reason::from_error)?.into_iter();
    let numbers = names.map(|name| read_text(root, &format!("sys/class/block/{name}/dev")));
    let numbers = numbers.filter_map(Seen::transpose);
    numbers
        .map(|number| Ok(number?.trim().to_owned()))
        .collect()
}
