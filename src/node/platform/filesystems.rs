//! The first bytes of block devices: the version of XFS, and what unlocks LUKS.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Mounted, Seen, Storage};
use crate::root::{Root, RootPath};

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
    /// True if the initramfs opens it.
    pub is_root: bool,
    /// The clevis tokens in its header.
    pub tokens: Seen<Vec<Pin>>,
    /// Key slots without a clevis token, such as a passphrase.
    pub other_slots: usize,
}

/// A way in which clevis opens a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A Tang server, by its URL.
    Tang(String),
    /// The TPM, bound to these registers.
    Tpm2(Vec<u32>),
    /// Several pins, of which some number is needed.
    Shared(u64, Vec<Pin>),
    /// Another one, by name.
    Other(String),
}

/// Volumes of pods come and go.
const OF_PODS: &str = "/var/lib/kubelet/";
/// The largest header of LUKS 2: its two parts are up to 4 MiB each.
const MAX_HEADER: u64 = 4 << 20;
/// Shares within shares, at most.
const MAX_DEPTH: usize = 4;

/// Reads the superblocks of all mounted XFS.
pub(super) fn read_xfs(root: &Root, storage: &Storage) -> Vec<Xfs> {
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

fn read_version(root: &Root, mount: &Mounted) -> Seen<u16> {
    let block = read_begin(
        root,
        &[&mount.source, &format!("/dev/block/{}", mount.number)],
        512,
    )?;
    let number = block.get(100..102).and_then(|bytes| bytes.try_into().ok());
    match number {
        Some(bytes) if block.starts_with(b"XFSB") => Ok(u16::from_be_bytes(bytes) & 0xf),
        _ => Err(format!("{} has no superblock of XFS", mount.source)),
    }
}

/// Reads the beginning of the first of these devices that exists.
fn read_begin(root: &Root, names: &[&str], bytes: u64) -> Seen<Vec<u8>> {
    for name in names {
        let Ok(path) = RootPath::parse(name) else {
            continue;
        };
        let opened = root.open_block_device(&path);
        if let Some(file) = opened.map_err(|error| error.to_string())? {
            let mut begin = Vec::new();
            let read = file.take(bytes).read_to_end(&mut begin);
            read.map_err(|error| format!("{name}: {error}"))?;
            return Ok(begin);
        }
    }
    let first = names.first().copied().unwrap_or_default();
    Err(format!("{first} is missing below this root"))
}

/// Reads the headers of the encrypted devices below the root file system and `/var`.
pub(super) fn read_encrypted(root: &Root, storage: &Storage) -> Vec<Encrypted> {
    let chain_of = |mount: Option<&Mounted>| {
        let chain = mount.map(|mount| storage.chain_of(&mount.number));
        chain.unwrap_or_default()
    };
    let main = storage.mounted_at("/sysroot");
    let main = chain_of(main.or_else(|| storage.mounted_at("/")));
    let mut all = main.clone();
    let var = chain_of(storage.mounted_at("/var")).into_iter();
    all.extend(var.filter(|number| !main.contains(number)));
    let devices = all.iter().filter_map(|number| storage.device(number));
    let encrypted = devices.filter(|device| device.get("ID_FS_TYPE") == "crypto_LUKS");
    encrypted
        .map(|device| {
            let source = device.path();
            let number = format!("/dev/block/{}", device.number);
            let header = read_begin(root, &[&source, &number], MAX_HEADER);
            let (tokens, other_slots) = match header.and_then(|bytes| parse_header(&bytes)) {
                Ok((pins, others)) => (Ok(pins), others),
                Err(reason) => (Err(reason), 0),
            };
            Encrypted {
                source,
                is_root: main.contains(&device.number),
                tokens,
                other_slots,
            }
        })
        .collect()
}

/// Returns the pins in a header, and the number of other key slots.
fn parse_header(bytes: &[u8]) -> Seen<(Vec<Pin>, usize)> {
    let bad = |words: &str| Err(format!("its header is not readable: {words}"));
    let version = bytes.get(6..8).and_then(|two| two.try_into().ok());
    let version = version.map(u16::from_be_bytes);
    if !bytes.starts_with(b"LUKS\xba\xbe") {
        return bad("no LUKS");
    }
    if version != Some(2) {
        return bad("LUKS 1 keeps its tokens elsewhere");
    }
    let size = bytes.get(8..16).and_then(|eight| eight.try_into().ok());
    let size = size
        .map(u64::from_be_bytes)
        .and_then(|size| usize::try_from(size).ok());
    let Some(area) = size.and_then(|size| bytes.get(4096..size)) else {
        return bad("its size is wrong");
    };
    let end = area
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(area.len());
    let Ok(json) = serde_json::from_slice::<Value>(area.get(..end).unwrap_or_default()) else {
        return bad("its JSON is damaged");
    };
    let mut pins = Vec::new();
    let mut of_clevis = std::collections::BTreeSet::new();
    let tokens = json["tokens"].as_object().into_iter().flatten();
    for (_, token) in tokens.filter(|(_, token)| token["type"] == "clevis") {
        let slots = token["keyslots"].as_array().into_iter().flatten();
        of_clevis.extend(slots.filter_map(Value::as_str).map(str::to_owned));
        pins.push(parse_pin(
            token["jwe"]["protected"].as_str().unwrap_or_default(),
            MAX_DEPTH,
        ));
    }
    let slots = json["keyslots"].as_object().into_iter().flatten();
    let others = slots
        .filter(|(name, _)| !of_clevis.contains(name.as_str()))
        .count();
    Ok((pins, others))
}

/// Parses the protected header of a JWE, which holds no secret.
fn parse_pin(protected: &str, depth: usize) -> Pin {
    let bytes = URL_SAFE_NO_PAD.decode(protected).unwrap_or_default();
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let clevis = &json["clevis"];
    match clevis["pin"].as_str().unwrap_or("unknown") {
        "tang" => Pin::Tang(
            clevis["tang"]["url"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
        "tpm2" => {
            let ids = &clevis["tpm2"]["pcr_ids"];
            let text = ids.as_str().map_or_else(|| ids.to_string(), str::to_owned);
            let numbers = text.split(|letter: char| !letter.is_ascii_digit());
            Pin::Tpm2(numbers.filter_map(|number| number.parse().ok()).collect())
        }
        "sss" if depth > 0 => {
            let parts = clevis["sss"]["jwe"].as_array().into_iter().flatten();
            let parts = parts.filter_map(Value::as_str);
            let parts = parts.map(|jwe| {
                let (protected, _) = jwe.split_once('.').unwrap_or((jwe, ""));
                parse_pin(protected, depth - 1)
            });
            Pin::Shared(clevis["sss"]["t"].as_u64().unwrap_or(1), parts.collect())
        }
        other => Pin::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(json: &Value) -> String {
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    fn header(json: &Value) -> Vec<u8> {
        let mut bytes = vec![0; 16384];
        bytes[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        bytes[8..16].copy_from_slice(&16384u64.to_be_bytes());
        let text = json.to_string();
        bytes[4096..4096 + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn pins_are_read_out_of_a_header() {
        let tpm = serde_json::json!({"clevis": {"pin": "tpm2", "tpm2": {"pcr_ids": "4,7"}}});
        let tang = serde_json::json!({"clevis": {"pin": "tang", "tang": {"url": "http://t"}}});
        let parts = [format!("{}.x", protected(&tpm)), protected(&tang)];
        let sss = serde_json::json!({"clevis": {"pin": "sss", "sss": {"t": 2, "jwe": parts}}});
        let json = serde_json::json!({
            "keyslots": {"0": {}, "1": {}},
            "tokens": {"0": {"type": "clevis", "keyslots": ["1"], "jwe": {"protected": protected(&sss)}},
                       "1": {"type": "systemd-tpm2", "keyslots": []}},
        });
        let pins = vec![Pin::Tpm2(vec![4, 7]), Pin::Tang("http://t".to_owned())];
        assert_eq!(
            parse_header(&header(&json)),
            Ok((vec![Pin::Shared(2, pins)], 1))
        );
    }

    #[test]
    fn damaged_headers_are_said_to_be_damaged() {
        let whole = header(&serde_json::json!({}));
        assert_eq!(parse_header(&whole), Ok((vec![], 0)));
        for length in [0, 5, 7, 15, 100, 4096, 8000] {
            assert!(parse_header(&whole[..length]).is_err(), "{length}");
        }
        let mut one = whole.clone();
        one[7] = 1;
        assert!(parse_header(&one).unwrap_err().contains("LUKS 1"));
        one = whole;
        one[4096] = b'x';
        assert!(parse_header(&one).unwrap_err().contains("JSON"));
        assert_eq!(parse_pin("%%%", 1), Pin::Other("unknown".to_owned()));
    }
}
