//! The boot disk, the labels of its partitions, and the cipher of FIPS mode.

use serde_json::{Value, json};

use crate::base::order::StableOrder;
use crate::config::butane::convert::Translator;
use crate::config::butane::out::{Out, OutValue, merge_out};
use crate::config::butane::report::Path;
use crate::config::butane::version::SchemaLevel;

const WRONG_NUMBER: &str =
    "incorrect partition number; a new partition will be created using reserved label";

/// Labels of the partitions of the OS, with their numbers.
const RESERVED: [(&str, i64); 5] = [
    ("BIOS-BOOT", 1),
    ("PowerPC-PReP-boot", 1),
    ("EFI-SYSTEM", 2),
    ("boot", 3),
    ("root", 4),
];

/// The layout of the boot disk that `boot_device` requests.
struct BootDevice<'i> {
    device: &'i Value,
    disks: Vec<Out>,
    filesystems: Vec<Out>,
}

/// Adds disks, RAID, LUKS and file systems of `boot_device`.
pub(in crate::config::butane) fn add_boot_device(config: Out, input: &Value) -> Out {
    let Some(device) = input.get("boot_device") else {
        return config;
    };
    let luks = device.get("luks").unwrap_or(&Value::Null);
    let truth = |value: Option<&Value>| value == Some(&Value::Bool(true));
    let has_cex = truth(luks.pointer("/cex/enabled"));
    let servers = luks.get("tang").and_then(Value::as_array);
    let wants_luks =
        truth(luks.get("tpm2")) || servers.is_some_and(|list| !list.is_empty()) || has_cex;
    let mirror = device.pointer("/mirror/devices").and_then(Value::as_array);
    let mirror = mirror.map(Vec::as_slice).unwrap_or_default();
    if !wants_luks && mirror.is_empty() {
        return config;
    }
    let at = Path::from_keys(&["boot_device"]);
    let mut boot = BootDevice {
        device,
        disks: Vec::new(),
        filesystems: Vec::new(),
    };
    let mut storage = Vec::new();
    if !mirror.is_empty() {
        let raid = boot.add_mirror(mirror, &at.with_key("mirror"));
        storage.push(("raid", raid));
    }
    if wants_luks {
        let volume = boot.luks_volume(luks, has_cex, !mirror.is_empty(), &at.with_key("luks"));
        storage.push(("luks", Out::list(&at.with_key("luks"), vec![volume])));
    }
    let root = if wants_luks {
        "/dev/mapper/root"
    } else {
        "/dev/md/md-root"
    };
    boot.add_filesystem(&at, root, "xfs", "root");
    storage.push(("filesystems", Out::list(&at, boot.filesystems)));
    if !boot.disks.is_empty() {
        let from = at.with_key("mirror").with_key("devices");
        storage.push(("disks", Out::list(&from, boot.disks)));
    }
    storage.order_by_key(|(key, _)| *key);
    merge_out(
        Out::map(&at, vec![("storage", Out::map(&at, storage))]),
        config,
    )
}

impl BootDevice<'_> {
    fn layout(&self) -> &str {
        let layout = self.device.get("layout").and_then(Value::as_str);
        layout.unwrap_or("x86_64")
    }

    fn add_filesystem(&mut self, from: &Path, device: &str, format: &str, label: &str) {
        let value =
            json!({"device": device, "format": format, "label": label, "wipeFilesystem": true});
        self.filesystems.push(Out::from_json(from, &value));
    }

    /// Adds the disks of a mirror; returns the RAIDs.
    fn add_mirror(&mut self, devices: &[Value], at: &Path) -> Out {
        let has_esp = ["x86_64", "aarch64"].contains(&self.layout());
        for (index, device) in devices.iter().enumerate() {
            let (from, number) = (at.with_key("devices").with_index(index), index + 1);
            let value = json!({
                "device": device,
                "partitions": mirror_partitions(self.layout(), number),
                "wipeTable": true,
            });
            self.disks.push(Out::from_json(&from, &value));
            if has_esp {
                let label = format!("esp-{number}");
                self.add_filesystem(
                    &from,
                    &format!("/dev/disk/by-partlabel/{label}"),
                    "vfat",
                    &label,
                );
            }
        }
        let members = |label: &str| -> Vec<String> {
            let numbers = 1..=devices.len();
            numbers
                .map(|number| format!("/dev/disk/by-partlabel/{label}-{number}"))
                .collect()
        };
        let raids = json!([
            {"devices": members("boot"), "level": "raid1", "name": "md-boot", "options": ["--metadata=1.0"]},
            {"devices": members("root"), "level": "raid1", "name": "md-root"},
        ]);
        self.add_filesystem(at, "/dev/md/md-boot", "ext4", "boot");
        Out::from_json(at, &raids)
    }

    fn luks_volume(&self, luks: &Value, has_cex: bool, mirrored: bool, at: &Path) -> Out {
        let own = luks
            .get("device")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let device = match self.layout() {
            "s390x-eckd" => format!("{own}2"),
            "s390x-zfcp" => format!("{own}4"),
            _ if mirrored => "/dev/md/md-root".to_owned(),
            _ => "/dev/disk/by-partlabel/root".to_owned(),
        };
        let value =
            json!({"device": device, "label": "luks-root", "name": "root", "wipeVolume": true});
        let mut volume = Out::from_json(at, &value);
        if has_cex {
            volume.set(
                "cex",
                Out::from_json(&at.with_key("cex"), &json!({"enabled": true})),
            );
        } else {
            let mut clevis = Out::map(at, Vec::new());
            for key in ["tang", "threshold", "tpm2"] {
                if let Some(value) = luks.get(key) {
                    clevis.set(key, Out::from_json(&at.with_key(key), value));
                }
            }
            volume.set("clevis", clevis);
        }
        if let Some(discard) = luks.get("discard") {
            volume.set("discard", Out::from_json(&at.with_key("discard"), discard));
        }
        volume
    }
}

/// Returns the partitions of one disk of a mirror, as in the OS image.
fn mirror_partitions(layout: &str, number: usize) -> Value {
    let reserved = ("reserved", 1, "8DA63339-0007-60C0-C436-083AC8230908");
    let bios = ("bios", 1, "21686148-6449-6E6F-744E-656564454649");
    let prep = ("prep", 4, "9E1A2D38-C612-4316-AA26-8B49521E5A8B");
    let esp = ("esp", 127, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
    let first_two = match layout {
        "aarch64" => [reserved, esp],
        "ppc64le" => [prep, reserved],
        _ => [bios, esp],
    };
    let mut all: Vec<Value> = Vec::new();
    for (label, size, guid) in first_two {
        all.push(json!({"label": format!("{label}-{number}"), "sizeMiB": size, "typeGuid": guid}));
    }
    all.push(json!({"label": format!("boot-{number}"), "sizeMiB": 384}));
    all.push(json!({"label": format!("root-{number}")}));
    Value::Array(all)
}

impl Translator<'_> {
    /// Warns about partitions with a reserved label but a different number.
    pub(in crate::config::butane) fn check_partition_numbers(&mut self, config: &Out) {
        let Some(storage) = config
            .get("storage")
            .filter(|_| self.version.level >= SchemaLevel::V5)
        else {
            return;
        };
        for disk in storage.items_at("disks") {
            if disk.is_true("wipeTable") {
                continue;
            }
            for partition in disk.items_at("partitions") {
                let label = partition.text_at("label").unwrap_or_default();
                let number = partition.number_at("number").unwrap_or_default();
                let reserved = RESERVED.iter().find(|row| row.0 == label);
                if reserved.is_some_and(|row| row.1 != number) {
                    let place = partition.place_of(&["label"]);
                    self.report.add_warning(place, WRONG_NUMBER);
                }
            }
        }
    }
}

/// Adds the cipher of FIPS mode to every LUKS volume without a cipher of its own.
pub(in crate::config::butane) fn add_fips_cipher(config: &mut Out) {
    let at = Path::from_keys(&["openshift", "fips"]);
    let storage = config.get_mut("storage");
    let volumes = storage.and_then(|storage| storage.get_mut("luks"));
    let Some(OutValue::List(volumes)) = volumes.map(|volumes| &mut volumes.value) else {
        return;
    };
    for volume in volumes {
        let mut own = volume.items_at("options").iter().filter_map(Out::as_text);
        if own
            .any(|option| option == "--cipher" || option.starts_with("--cipher=") || option == "-c")
        {
            continue;
        }
        if let Some(options) = volume.list_mut("options", &at) {
            options.push(Out::leaf(&at, "--cipher"));
            options.push(Out::leaf(&at, "aes-cbc-essiv:sha256"));
        }
    }
}
