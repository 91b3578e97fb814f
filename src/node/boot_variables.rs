//! The boot entries of EFI firmware, and the partitions that they boot from. Variables are only read: a wrong value can keep a
//! machine from starting.
//!
//! The formats are those of the UEFI specification: chapter 3 (globally defined variables) and chapter 10 (device paths).

use std::collections::{BTreeMap, BTreeSet};

use super::platform::{BlockDevice, BlockStorage};
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// The variables.
const VARIABLES: &str = "sys/firmware/efi/efivars";
/// Their vendor: the specification itself.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Bytes of attributes before each value.
const ATTRIBUTES: usize = 4;
/// Maximum number of entries that are read: some firmware takes milliseconds for each.
const MAX_ENTRIES: usize = 64;
/// GPT type of an EFI system partition.
const ESP: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
/// File system labels by which a node finds its parts. `preflight` checks the label of `/boot`.
const LABELS: [&str; 2] = ["root", "EFI-SYSTEM"];

/// The boot entries of the firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootVariables {
    /// The entry that the machine was started with.
    pub current: Option<u16>,
    /// The entries that it tries, in order.
    pub order: Vec<u16>,
    /// The entries, by number.
    pub entries: BTreeMap<u16, FirmwareEntry>,
}

/// A boot entry of the firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirmwareEntry {
    /// It is tried.
    pub active: bool,
    /// Its title.
    pub title: String,
    /// GUID of its partition, in lower case.
    pub partition: Option<String>,
    /// The program that it starts, with backslashes as separators.
    pub file: Option<String>,
    /// It starts from the network.
    pub network: bool,
}

/// The disk of a root, as the firmware sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemDisk {
    /// EFI system partitions of the system disk; an array has several.
    pub own: Vec<EfiPartition>,
    /// EFI system partitions of all other disks.
    pub others: Vec<EfiPartition>,
    /// Labels that occur on several disks: each with its devices.
    pub twins: Vec<(String, Vec<String>)>,
}

/// An EFI system partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EfiPartition {
    /// Its GUID, in lower case.
    pub guid: String,
    /// Its device.
    pub device: String,
    /// Device of its disk.
    pub disk: String,
    /// Its number.
    pub number: String,
}

impl BootVariables {
    /// Returns the entries that the firmware tries, in order, each with its number.
    pub fn tried_entries(&self) -> impl Iterator<Item = (u16, &FirmwareEntry)> {
        let known = self
            .order
            .iter()
            .filter_map(|number| Some((*number, self.entries.get(number)?)));
        known.filter(|(_, entry)| entry.active)
    }
}

impl SystemDisk {
    /// Returns the system disk's partition that an entry boots from.
    pub fn own_of(&self, entry: &FirmwareEntry) -> Option<&EfiPartition> {
        find_partition(&self.own, entry)
    }

    /// Returns the other disk's partition that an entry boots from.
    pub fn other_of(&self, entry: &FirmwareEntry) -> Option<&EfiPartition> {
        find_partition(&self.others, entry)
    }
}

fn find_partition<'a>(all: &'a [EfiPartition], entry: &FirmwareEntry) -> Option<&'a EfiPartition> {
    let guid = entry.partition.as_ref()?;
    all.iter().find(|one| one.guid == *guid)
}

/// Reads the variables of the running machine; `None` if it was not started by EFI.
///
/// # Errors
/// The reason why they are unknown.
pub fn read_boot_variables(machine: &Root) -> Result<Option<BootVariables>, Reason> {
    let exists = |path| machine.exists(&RootPath::fixed(path));
    if !exists("sys/firmware").map_err(Reason::from_error)? {
        return Err("/sys/firmware is missing below this root".into());
    }
    if !exists("sys/firmware/efi").map_err(Reason::from_error)? {
        return Ok(None);
    }
    let folder = RootPath::fixed(VARIABLES);
    let names = machine.list(&folder).map_err(Reason::from_error)?;
    if names.is_empty() {
        return Err(format!("/{VARIABLES} is empty: efivarfs is not mounted").into());
    }
    let value = |name: &str| -> Result<Option<Vec<u8>>, Reason> {
        let path = folder.join(&format!("{name}-{GLOBAL}"));
        let path = path.map_err(Reason::from_error)?;
        let bytes = machine.read_small(&path);
        let bytes = bytes.map_err(Reason::from_error)?;
        Ok(bytes.and_then(|bytes| Some(bytes.get(ATTRIBUTES..)?.to_vec())))
    };
    let mut found = BootVariables {
        current: value("BootCurrent")?.and_then(|bytes| read_numbers(&bytes).first().copied()),
        order: value("BootOrder")?.map_or_else(Vec::new, |bytes| read_numbers(&bytes)),
        entries: BTreeMap::new(),
    };
    for name in names {
        let Some(number) = entry_number(&name) else {
            continue;
        };
        if found.entries.len() == MAX_ENTRIES {
            break;
        }
        let entry = value(&format!("Boot{number:04X}"))?;
        let entry = entry.and_then(|bytes| parse_entry(&bytes));
        found.entries.extend(entry.map(|entry| (number, entry)));
    }
    Ok(Some(found))
}

/// Returns the number in `Boot0001-GUID`.
fn entry_number(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("Boot")?.strip_suffix(GLOBAL)?;
    let digits = digits.strip_suffix('-')?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    (digits.len() == 4 && digits.bytes().all(is_digit))
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

fn read_numbers(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .filter_map(|pair| Some(u16::from_le_bytes(pair.try_into().ok()?)))
        .collect()
}

/// Parses an entry: attributes, length of the path, title, path. The rest is data for the started program.
pub fn parse_entry(bytes: &[u8]) -> Option<FirmwareEntry> {
    let attributes = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let length = usize::from(u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?));
    let (title, rest) = split_text(bytes.get(6..)?);
    let mut entry = FirmwareEntry {
        active: attributes & 1 == 1,
        title,
        ..FirmwareEntry::default()
    };
    let mut path = rest.get(..length).unwrap_or(rest);
    while let [kind, sub_kind, low, high, ..] = *path {
        let length = usize::from(u16::from_le_bytes([low, high]));
        // A node of length zero would loop forever.
        let (Some(value), Some(next)) = (path.get(4..length), path.get(length..)) else {
            break;
        };
        match (kind, sub_kind) {
            (MEDIA, 1) => entry.partition = parse_partition(value),
            (MEDIA, 4) => {
                let text = split_text(value).0;
                entry.file = Some(entry.file.unwrap_or_default() + &text);
            }
            // An interface, IPv4, IPv6, a URL.
            (MESSAGING, 11 | 12 | 13 | 24) => entry.network = true,
            (END, _) => break,
            _ => {}
        }
        path = next;
    }
    Some(entry)
}

/// Kinds of nodes of a device path.
const MESSAGING: u8 = 3;
const MEDIA: u8 = 4;
const END: u8 = 0x7f;

/// Splits at the end of a UTF-16 text.
fn split_text(bytes: &[u8]) -> (String, &[u8]) {
    let letters = read_numbers(bytes);
    let length = letters.iter().position(|letter| *letter == 0);
    let (end, rest) = match length {
        Some(length) => (length, 2 * length + 2),
        None => (letters.len(), bytes.len()),
    };
    let text = String::from_utf16_lossy(letters.get(..end).unwrap_or_default());
    (text, bytes.get(rest..).unwrap_or_default())
}

/// Parses a GPT partition node: number, start, size, GUID, format, kind of signature.
fn parse_partition(value: &[u8]) -> Option<String> {
    let guid: [u8; 16] = value.get(20..36)?.try_into().ok()?;
    (value.get(37) == Some(&2)).then(|| guid_text(guid))
}

/// Formats a GUID. Its first three parts are little-endian numbers.
fn guid_text(guid: [u8; 16]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::new();
    for (at, from) in order.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let byte = guid.get(from).copied().unwrap_or_default();
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Finds the disk behind a mount point of the running machine.
///
/// # Errors
/// The reason why it is unknown.
pub fn find_disk(storage: &BlockStorage, points: &[&str]) -> Result<SystemDisk, Reason> {
    let devices = storage.devices.as_ref().map_err(Clone::clone)?;
    storage.mounts.as_ref().map_err(Clone::clone)?;
    let mount = points.iter().find_map(|point| storage.mounted_at(point));
    let mount = mount.ok_or_else(|| format!("nothing is mounted at {}", points.join(" or ")))?;
    // Some file systems have a device number of their own.
    let by_source = devices.iter().find(|one| one.path() == mount.source);
    let device = storage.find_device(&mount.number).or(by_source);
    let device = device.ok_or_else(|| format!("{} is unknown to udev", mount.source))?;
    let disks = storage.disks_of(&device.number);
    let is_system = |one: &&BlockDevice| one.get("ID_PART_ENTRY_TYPE").eq_ignore_ascii_case(ESP);
    let mut found = SystemDisk::default();
    for one in devices.iter().filter(is_system) {
        let on = storage.disks_of(&one.number);
        let disk = on
            .iter()
            .next()
            .and_then(|number| storage.find_device(number));
        let partition = EfiPartition {
            guid: one.get("ID_PART_ENTRY_UUID").to_ascii_lowercase(),
            device: one.path(),
            disk: disk.map(|disk| disk.path()).unwrap_or_default(),
            number: one.get("ID_PART_ENTRY_NUMBER").to_owned(),
        };
        if on.is_disjoint(&disks) {
            found.others.push(partition)
        } else {
            found.own.push(partition)
        }
    }
    for label in LABELS {
        let twins = find_twins(storage, devices, &disks, label);
        found
            .twins
            .extend(twins.map(|twins| (label.to_owned(), twins)));
    }
    Ok(found)
}

/// Returns the devices with a label if there is one on the system's own disks and one on another disk.
fn find_twins(
    storage: &BlockStorage,
    devices: &[BlockDevice],
    disks: &BTreeSet<String>,
    label: &str,
) -> Option<Vec<String>> {
    let named = devices.iter().filter(|one| one.get("ID_FS_LABEL") == label);
    let named: Vec<_> = named.collect();
    // All paths to one disk, and all parts of an array, have the label.
    let is_path = |number: &String| {
        let disk = storage.find_device(number);
        disk.is_some_and(|disk| disk.get("DM_MULTIPATH_DEVICE_PATH") == "1")
    };
    let own = named
        .iter()
        .any(|one| !storage.disks_of(&one.number).is_disjoint(disks));
    let foreign = named.iter().filter(|one| {
        let on = storage.disks_of(&one.number);
        on.is_disjoint(disks) && !on.iter().any(is_path)
    });
    if !own || foreign.count() == 0 || disks.iter().any(is_path) {
        return None;
    }
    let mut all: Vec<String> = named.iter().map(|one| one.path()).collect();
    all.sort();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        let letters = text.encode_utf16().chain([0]);
        letters.flat_map(u16::to_le_bytes).collect()
    }

    fn node(kind: u8, sub_kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap().to_le_bytes();
        [&[kind, sub_kind], &length[..], value].concat()
    }

    /// Returns a partition as a node of a device path.
    fn partition(guid: [u8; 16]) -> Vec<u8> {
        let mut value = 2_u32.to_le_bytes().to_vec();
        value.extend(4096_u64.to_le_bytes());
        value.extend(260_096_u64.to_le_bytes());
        value.extend(guid);
        value.extend([2, 2]);
        node(4, 1, &value)
    }

    fn entry(active: bool, title: &str, nodes: &[Vec<u8>]) -> Vec<u8> {
        let mut path = nodes.concat();
        path.extend(node(0x7f, 0xff, &[]));
        let mut bytes = u32::from(active).to_le_bytes().to_vec();
        bytes.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
        bytes.extend(utf16(title));
        bytes.extend(path);
        bytes.extend(b"optional data");
        bytes
    }

    const GUID: [u8; 16] = [
        0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,
        0xff,
    ];

    #[test]
    fn an_entry_leads_to_a_partition_and_a_program() {
        let file = node(4, 4, &utf16("\\EFI\\redhat\\shimx64.efi"));
        let bytes = entry(
            true,
            "CoreOS",
            &[node(2, 1, &[1; 8]), partition(GUID), file],
        );
        let found = parse_entry(&bytes).unwrap();
        assert_eq!(
            found,
            FirmwareEntry {
                active: true,
                title: "CoreOS".to_owned(),
                partition: Some("00112233-4455-6677-8899-aabbccddeeff".to_owned()),
                file: Some("\\EFI\\redhat\\shimx64.efi".to_owned()),
                network: false,
            }
        );
        let network = entry(
            false,
            "PXE",
            &[node(3, 11, &[0; 33]), node(3, 12, &[0; 23])],
        );
        let found = parse_entry(&network).unwrap();
        assert!(found.network && !found.active && found.partition.is_none());
    }

    #[test]
    fn a_cut_or_endless_entry_is_read_as_far_as_it_goes() {
        let whole = entry(true, "CoreOS", &[partition(GUID)]);
        for length in 0..whole.len() {
            let found = parse_entry(&whole[..length]);
            assert_eq!(found.is_some(), length >= 6, "{length}");
        }
        let endless = entry(true, "x", &[vec![4, 1, 0, 0]]);
        assert!(parse_entry(&endless).unwrap().partition.is_none());
        let garbage: Vec<u8> = (0..255).cycle().take(1 << 16).collect();
        assert!(parse_entry(&garbage).is_some());
    }

    #[test]
    fn only_entries_have_numbers() {
        for (name, number) in [
            ("Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c", Some(1)),
            ("Boot00AF-8be4df61-93ca-11d2-aa0d-00e098032b8c", Some(0xaf)),
            ("Boot00af-8be4df61-93ca-11d2-aa0d-00e098032b8c", None),
            ("BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c", None),
            ("Boot0001-605dab50-e046-4300-abb6-3dd810dd8b23", None),
            ("Boot0001", None),
        ] {
            assert_eq!(entry_number(name), number, "{name}");
        }
        assert_eq!(read_numbers(&[1, 0, 2, 0, 3]), [1, 2]);
    }
}
