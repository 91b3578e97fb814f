//! The devices of a machine, from `/sys`: the chain from a disk or an interface up to the root of its bus, with the bound
//! drivers.

use super::{BlockStorage, MountedFileSystem, Seen};
use crate::base::reason::Reason;
use crate::host::root::{RealPath, Root, RootPath};

/// Maximum number of devices in one chain; each disk of an array is a branch.
const MAX_DEVICES: usize = 256;

/// A device in a chain, with a bound driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceLevel {
    /// Its path below `/sys/devices`.
    pub path: String,
    /// Its `modalias`, which selects the driver.
    pub modalias: String,
    /// The driver's module, or the driver itself if it is built in.
    pub module: String,
}

/// The devices below a mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskDevices {
    /// Mount point, such as `/boot`.
    pub mount: String,
    /// Source of the mount, such as `/dev/sda4`.
    pub source: String,
    /// Type of the file system.
    pub kind: String,
    /// Modules without a device of their own, such as `raid1`, each with the file that requires it.
    pub layers: Vec<(String, String)>,
    /// The devices, each followed by those above it.
    pub levels: Vec<DeviceLevel>,
}

/// Reads the disks of the root file system, and of `/boot` if that is a separate mount.
pub(super) fn read_disks(root: &Root, storage: &BlockStorage) -> Seen<Vec<DiskDevices>> {
    storage.mounts.as_ref().map_err(Clone::clone)?;
    let main = storage
        .mounted_at("/sysroot")
        .or_else(|| storage.mounted_at("/"));
    let main = main.ok_or("no mount of / is listed in mountinfo")?;
    let boot = storage.mounted_at("/boot");
    let boot = boot.filter(|boot| boot.number != main.number);
    [Some(main), boot]
        .into_iter()
        .flatten()
        .map(|mount| read_disk(root, mount))
        .collect()
}

fn read_disk(root: &Root, line: &MountedFileSystem) -> Seen<DiskDevices> {
    let mut disk = DiskDevices {
        mount: line.point.clone(),
        source: line.source.clone(),
        kind: line.kind.clone(),
        ..DiskDevices::default()
    };
    let (mut waiting, mut seen) = (vec![find_directory(root, line)?], 0);
    while let Some(device) = waiting.pop() {
        seen += 1;
        if seen > MAX_DEVICES {
            break;
        }
        // The disk of a partition is above it and has the same parents.
        add_layer(root, &device, &mut disk.layers)?;
        for level in levels_above(root, &device)? {
            if !disk.levels.contains(&level) {
                disk.levels.push(level);
            }
        }
        waiting.extend(list_slaves(root, &device)?);
        waiting.extend(list_controllers(root, &device)?);
    }
    Ok(disk)
}

/// Returns the directory of a mount's device in `/sys`.
fn find_directory(root: &Root, line: &MountedFileSystem) -> Seen<RootPath> {
    // Some file systems have a device number of their own, and some have no device at all.
    let by_name = line
        .source
        .strip_prefix("/dev/")
        .filter(|name| !name.contains('/'));
    let by_name = by_name.map(|name| format!("/sys/class/block/{name}"));
    let by_number = format!("/sys/dev/block/{}", line.number);
    let candidates = [Some(by_number).filter(|_| !line.number.is_empty()), by_name];
    for path in candidates.into_iter().flatten() {
        if let Some(found) = real_directory(root, &path)? {
            return Ok(found);
        }
    }
    Err(match root.list(&RootPath::fixed("sys/dev")) {
        Ok(all) if all.is_empty() => "/sys is missing below this root".into(),
        Ok(_) => format!("{} on {} is not a device in /sys", line.source, line.point).into(),
        Err(error) => Reason::from_error(error),
    })
}

/// Returns the devices of which the kernel composes a device.
fn list_slaves(root: &Root, device: &RootPath) -> Seen<Vec<RootPath>> {
    let slaves = device.join("slaves").map_err(Reason::from_error)?;
    let names = root.list(&slaves).map_err(Reason::from_error)?.into_iter();
    let all = names.map(|name| real_directory(root, &format!("{slaves}/{name}")));
    all.filter_map(Seen::transpose).collect()
}

/// Returns the controllers of an NVMe disk with several paths: its device is below a subsystem, which has a link to each
/// controller.
fn list_controllers(root: &Root, device: &RootPath) -> Seen<Vec<RootPath>> {
    let is_subsystem =
        |path: &RootPath| path.name().starts_with("nvme-subsys") && path.name() != "nvme-subsystem";
    let Some(subsystem) = device.ancestors().find(is_subsystem) else {
        return Ok(Vec::new());
    };
    let names = root.list(&subsystem).map_err(Reason::from_error)?;
    let is_controller = |name: &String| {
        let number = name.strip_prefix("nvme");
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let all = names.into_iter().filter(is_controller);
    let all = all.map(|name| real_directory(root, &format!("{subsystem}/{name}")));
    all.filter_map(Seen::transpose).collect()
}

/// Adds the modules of a device that the kernel composes from others.
fn add_layer(root: &Root, device: &RootPath, layers: &mut Vec<(String, String)>) -> Seen<()> {
    let mut add = |module: &str, place: &str| {
        if !layers.iter().any(|(known, _)| known == module) {
            layers.push((module.to_owned(), place.to_owned()));
        }
    };
    if let Some(uuid) = text_below(root, device, "dm/uuid")? {
        let place = format!("{device}/dm/uuid");
        add("dm_mod", &place);
        match uuid.split('-').next().unwrap_or_default() {
            "CRYPT" => add("dm_crypt", &place),
            "mpath" => add("dm_multipath", &place),
            _ => {}
        }
    }
    if let Some(level) = text_below(root, device, "md/level")? {
        let place = format!("{device}/md/level");
        match level.as_str() {
            "raid4" | "raid5" | "raid6" => add("raid456", &place),
            "raid0" | "raid1" | "raid10" => add(&level, &place),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the layers between a device and its disks that a boot loader can read through but not write through: arrays, volumes
/// and encryption. Multipath is not included, because a boot loader sees the disk itself.
///
/// # Errors
/// The device is not in `/sys`, or cannot be read there.
pub fn layers_below(root: &Root, number: &str) -> Seen<Vec<String>> {
    let Some(start) = real_directory(root, &format!("/sys/dev/block/{number}"))? else {
        return Err(format!("/sys/dev/block/{number} is missing below this root").into());
    };
    let (mut waiting, mut seen, mut layers) = (vec![start], 0, Vec::new());
    while let Some(device) = waiting.pop() {
        seen += 1;
        if seen > MAX_DEVICES {
            break;
        }
        let read = |file: &str| text_below(root, &device, file);
        if let Some(level) = read("md/level")? {
            layers.push(format!("an array of disks ({level}, {})", device.name()));
        }
        if let Some(uuid) = read("dm/uuid")? {
            let name = device.name();
            match uuid.split('-').next().unwrap_or_default() {
                "mpath" => {}
                _ if uuid.starts_with("part") && uuid.contains("-mpath-") => {}
                "CRYPT" => layers.push(format!("an encrypted device ({name})")),
                "LVM" => layers.push(format!("a logical volume ({name})")),
                _ => layers.push(format!("a device of the device mapper ({name})")),
            }
        }
        if read("partition")?.is_some() {
            waiting.extend(device.parent());
        }
        waiting.extend(list_slaves(root, &device)?);
    }
    Ok(layers)
}

/// Returns the devices from this one up to the root of its bus that have a `modalias` and a driver.
pub(super) fn levels_above(root: &Root, device: &RootPath) -> Seen<Vec<DeviceLevel>> {
    let start = real_directory(root, &device.to_string())?.unwrap_or_else(|| device.clone());
    let inside = start
        .ancestors()
        .take_while(|path| path.is_in("sys/devices"));
    let levels = inside.map(|path| read_level(root, &path));
    levels.filter_map(Seen::transpose).collect()
}

fn read_level(root: &Root, path: &RootPath) -> Seen<Option<DeviceLevel>> {
    let modalias = text_below(root, path, "modalias")?;
    let name_at = |link: &str| -> Seen<Option<String>> {
        let at = path.join(link).map_err(Reason::from_error)?;
        let target = root.read_link(&at).map_err(Reason::from_error)?;
        Ok(target.and_then(|target| Some(target.rsplit('/').next()?.to_owned())))
    };
    let (Some(modalias), Some(driver)) = (modalias, name_at("driver")?) else {
        return Ok(None);
    };
    let module = name_at("driver/module")?.unwrap_or(driver);
    Ok((!modalias.is_empty()).then(|| DeviceLevel {
        path: path.to_string(),
        modalias,
        module: module.replace('-', "_"),
    }))
}

/// Returns the real path of a directory; `None` if it does not exist.
fn real_directory(root: &Root, path: &str) -> Seen<Option<RootPath>> {
    let path = RootPath::parse(path).map_err(Reason::from_error)?;
    let found = root.directory_and_end(&path).map_err(Reason::from_error)?;
    Ok(found.and_then(|(_, end)| match end {
        None => Some(path),
        Some(RealPath::Below(real)) => Some(real),
        // The root directory is not a device.
        Some(RealPath::Root) => None,
    }))
}

fn text_below(root: &Root, directory: &RootPath, file: &str) -> Seen<Option<String>> {
    text_of(root, &directory.join(file).map_err(Reason::from_error)?)
}

/// Reads a small text file and trims it; `None` if it is missing.
pub(super) fn text_of(root: &Root, path: &RootPath) -> Seen<Option<String>> {
    let bytes = root.read_small(path).map_err(Reason::from_error)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
}
