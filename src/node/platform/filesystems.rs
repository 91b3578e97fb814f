//! The first bytes of block devices: the version of XFS, and the ways to unlock LUKS.

use std::io::Read;

use super::luks::{self, LuksFault, LuksHeader, parse_luks};
use super::{BlockStorage, MountedFileSystem, Seen};
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// A mounted XFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xfs {
    /// Mount points, such as `/sysroot` and `/var`.
    pub points: Vec<String>,
    /// Source of the mount, such as `/dev/sda4`.
    pub source: String,
    /// Version of its superblock: 4 or 5.
    pub version: Seen<u16>,
}

/// An encrypted device below the root file system or `/var`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encrypted {
    /// Path of the device, such as `/dev/sda4`.
    pub source: String,
    /// True if it is unlocked in the initramfs.
    pub is_root: bool,
    /// Its header, or the reason why it was not read.
    pub header: Seen<Result<LuksHeader, LuksFault>>,
}

/// Volumes of pods come and go, so they are skipped.
const OF_PODS: &str = "/var/lib/kubelet/";

/// Reads the superblocks of all mounted XFS file systems.
pub(super) fn read_xfs(root: &Root, storage: &BlockStorage) -> Vec<Xfs> {
    let mut all: Vec<(String, Xfs)> = Vec::new();
    let mounts = storage.mounts.iter().flatten();
    for mount in mounts.filter(|mount| mount.kind == "xfs" && !mount.point.starts_with(OF_PODS)) {
        if let Some((_, known)) = all.iter_mut().find(|(number, _)| *number == mount.number) {
            known.points.push(mount.point.clone());
            continue;
        }
        let found = Xfs {
            points: vec![mount.point.clone()],
            source: mount.source.clone(),
            version: read_version(root, mount),
        };
        all.push((mount.number.clone(), found));
    }
    all.into_iter().map(|(_, found)| found).collect()
}

fn read_version(root: &Root, mount: &MountedFileSystem) -> Seen<u16> {
    let block = read_begin(
        root,
        &[&mount.source, &format!("/dev/block/{}", mount.number)],
        512,
    )?;
    let number = block.get(100..102).and_then(|bytes| bytes.try_into().ok());
    match number {
        Some(bytes) if block.starts_with(b"XFSB") => Ok(u16::from_be_bytes(bytes) & 0xf),
        _ => Err(format!("{} has no superblock of XFS", mount.source).into()),
    }
}

/// Reads the first bytes of the first existing device among these.
fn read_begin(root: &Root, names: &[&str], bytes: u64) -> Seen<Vec<u8>> {
    for name in names {
        let Ok(path) = RootPath::parse(name) else {
            continue;
        };
        let opened = root.open_block_device(&path);
        if let Some(file) = opened.map_err(Reason::from_error)? {
            let mut begin = Vec::new();
            let read = file.take(bytes).read_to_end(&mut begin);
            read.map_err(|error| format!("{name}: {error}"))?;
            return Ok(begin);
        }
    }
    let first = names.first().copied().unwrap_or_default();
    Err(format!("{first} is missing below this root").into())
}

/// Reads the headers of the encrypted devices below the root file system and `/var`.
pub(super) fn read_encrypted(root: &Root, storage: &BlockStorage) -> Vec<Encrypted> {
    let chain_of = |mount: Option<&MountedFileSystem>| {
        let chain = mount.map(|mount| storage.chain_of(&mount.number));
        chain.unwrap_or_default()
    };
    let main = storage.mounted_at("/sysroot");
    let main = chain_of(main.or_else(|| storage.mounted_at("/")));
    let mut all = main.clone();
    let var = chain_of(storage.mounted_at("/var")).into_iter();
    all.extend(var.filter(|number| !main.contains(number)));
    let devices = all.iter().filter_map(|number| storage.find_device(number));
    let encrypted = devices.filter(|device| device.get("ID_FS_TYPE") == "crypto_LUKS");
    encrypted
        .map(|device| {
            let source = device.path();
            let number = format!("/dev/block/{}", device.number);
            let is_root = main.contains(&device.number);
            Encrypted {
                header: read_header(root, &[&source, &number]),
                source,
                is_root,
            }
        })
        .collect()
}

/// Reads a header: the usual size first, and more only if the header is larger or its first copy is damaged.
fn read_header(root: &Root, names: &[&str]) -> Seen<Result<LuksHeader, LuksFault>> {
    let mut wanted = luks::USUAL;
    loop {
        let bytes = read_begin(root, names, wanted as u64)?;
        match parse_luks(&bytes) {
            Err(LuksFault::Short(more)) if more > wanted && bytes.len() == wanted => wanted = more,
            // The device ends here, so there is no larger copy.
            Err(LuksFault::Short(_)) => {
                let mut whole = bytes;
                whole.resize(luks::LARGEST, 0);
                return Ok(parse_luks(&whole));
            }
            read => return Ok(read),
        }
    }
}
