//! The LUKS header: two copies, each with a checksum, and the clevis tokens in its JSON.
//!
//! Pure. Offsets and checksum are those of cryptsetup 2.6, whose headers the tests use for comparison.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

/// A header of LUKS 2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LuksHeader {
    /// The clevis tokens.
    pub pins: Vec<Pin>,
    /// Key slots without a clevis token, such as a passphrase.
    pub other_slots: usize,
    /// The damaged copy, if the other one is intact: `first` or `second`.
    pub damaged: Option<&'static str>,
}

/// A way for clevis to unlock a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A Tang server, by its URL.
    Tang(String),
    /// The TPM, bound to these PCRs.
    Tpm2(Vec<u32>),
    /// Several pins, of which this number is required.
    Shared(u64, Vec<Pin>),
    /// Another pin, by name.
    Other(String),
}

/// The reason why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LuksFault {
    /// There are too few bytes; this many are needed.
    #[error("its header is not readable: it is cut off")]
    Short(usize),
    /// Neither copy begins with the LUKS magic.
    #[error("its header is not readable: no LUKS")]
    NoLuks,
    /// It is LUKS 1, with this number of used key slots.
    #[error("LUKS 1 keeps its tokens elsewhere; it has {0} key slots in use")]
    Luks1(usize),
    /// Both copies are damaged: nothing can unlock the device.
    #[error("both copies of its header are damaged: {0}")]
    Damaged(&'static str),
}

/// The magic of the first and second copy.
const MARKS: [&[u8]; 2] = [b"LUKS\xba\xbe", b"SKUL\xba\xbe"];
/// Size of the binary part of a copy.
const BINARY: usize = 4096;
/// The sizes that a copy can have, which are also the offsets of the second copy.
const SIZES: [usize; 9] = [
    0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000,
];
/// Offset and length of the checksum.
const CHECKSUM: (usize, usize) = (448, 64);
/// Shares within shares, at most.
const MAX_DEPTH: usize = 4;

/// Size of both copies of the usual size, in bytes.
pub(super) const USUAL: usize = 2 * 0x4000;
/// Size of both copies of the largest size, in bytes.
pub(super) const LARGEST: usize = 2 * 0x40_0000;

/// Parses the first bytes of a device.
///
/// # Errors
/// The bytes are not a LUKS 2 header, or not all of it.
pub fn parse_luks(bytes: &[u8]) -> Result<LuksHeader, LuksFault> {
    if bytes.len() < BINARY {
        return Err(LuksFault::Short(USUAL));
    }
    let has_first = bytes.starts_with(MARKS[0]);
    if has_first && number_at(bytes, 6, 2) == Some(1) {
        return Err(LuksFault::Luks1(used_slots(bytes)));
    }
    let first = Copy::parse(bytes, 0);
    let at = match &first {
        Ok(copy) => vec![copy.size],
        Err(_) => SIZES.to_vec(),
    };
    if at.first().is_some_and(|first| bytes.len() < 2 * first) {
        return Err(LuksFault::Short(2 * at.first().copied().unwrap_or(USUAL)));
    }
    let second = find_second_copy(bytes, &at);
    let (json, damaged) = match (first, second) {
        (Ok(first), Some(second)) if second.sequence > first.sequence => (second.json, None),
        (Ok(first), Some(_)) => (first.json, None),
        (Ok(first), None) => (first.json, Some("second")),
        (Err(_), Some(second)) => (second.json, Some("first")),
        (Err(fault), None) => {
            // A larger second copy may follow.
            if bytes.len() < LARGEST {
                return Err(LuksFault::Short(LARGEST));
            }
            return Err(if has_first {
                LuksFault::Damaged(fault)
            } else {
                LuksFault::NoLuks
            });
        }
    };
    Ok(LuksHeader {
        damaged,
        ..parse_tokens(&json)
    })
}

/// Returns the second copy of the header, which is at one of these places.
fn find_second_copy(bytes: &[u8], places: &[usize]) -> Option<Copy> {
    let mut places = places.iter().copied();
    places.find_map(|place| {
        if !bytes.get(place..)?.starts_with(MARKS[1]) {
            return None;
        }
        // The copy contains its own offset.
        Copy::parse(bytes, place)
            .ok()
            .filter(|copy| copy.size == place)
    })
}

/// An intact copy.
struct Copy {
    size: usize,
    sequence: u64,
    json: Value,
}

impl Copy {
    fn parse(bytes: &[u8], at: usize) -> Result<Self, &'static str> {
        let mark = if at == 0 { MARKS[0] } else { MARKS[1] };
        let own = bytes.get(at..).unwrap_or_default();
        if !own.starts_with(mark) {
            return Err("its mark is gone");
        }
        if number_at(own, 6, 2) != Some(2) {
            return Err("its version is unknown");
        }
        let size = number_at(own, 8, 8).and_then(|size| usize::try_from(size).ok());
        let size = size.filter(|size| SIZES.contains(size));
        let area = size.and_then(|size| own.get(..size));
        let (Some(size), Some(area)) = (size, area) else {
            return Err("its size is wrong");
        };
        if number_at(own, 256, 8) != u64::try_from(at).ok() {
            return Err("it is at the wrong place");
        }
        if !has_checksum(area) {
            return Err("its checksum is wrong");
        }
        let text = area.get(BINARY..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0);
        let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
        let json = serde_json::from_slice(text).map_err(|_| "its JSON is damaged")?;
        Ok(Self {
            size,
            sequence: number_at(own, 16, 8).unwrap_or_default(),
            json,
        })
    }
}

/// Reads a big-endian number of up to eight bytes.
fn number_at(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().fold(0, |all, one| all << 8 | u64::from(*one)))
}

/// Returns true if the checksum of a copy is right, computed with zeros in place of the checksum itself.
fn has_checksum(area: &[u8]) -> bool {
    let (at, length) = CHECKSUM;
    let (Some(before), Some(kept), Some(after)) = (
        area.get(..at),
        area.get(at..at + length),
        area.get(at + length..),
    ) else {
        return false;
    };
    let parts: [&[u8]; 3] = [before, &[0; 64], after];
    let name = area.get(72..104).unwrap_or_default();
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let digest = match name.get(..end).unwrap_or_default() {
        b"sha256" => digest_parts::<Sha256>(&parts),
        b"sha512" => digest_parts::<Sha512>(&parts),
        _ => return false,
    };
    kept.starts_with(&digest)
}

fn digest_parts<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut digest = D::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().to_vec()
}

/// Returns the number of key slots of LUKS 1 that are in use.
fn used_slots(bytes: &[u8]) -> usize {
    const USED: u64 = 0x00ac_71f3;
    let slots = (0..8).map(|slot| number_at(bytes, 208 + 48 * slot, 4));
    slots.filter(|state| *state == Some(USED)).count()
}

fn parse_tokens(json: &Value) -> LuksHeader {
    let mut pins = Vec::new();
    let mut of_clevis = BTreeSet::new();
    let tokens = json["tokens"].as_object().into_iter().flatten();
    for (_, token) in tokens.filter(|(_, token)| token["type"] == "clevis") {
        let slots = token["keyslots"].as_array().into_iter().flatten();
        of_clevis.extend(slots.filter_map(Value::as_str));
        let protected = token["jwe"]["protected"].as_str();
        pins.push(parse_pin(protected.unwrap_or_default(), MAX_DEPTH));
    }
    let slots = json["keyslots"].as_object().into_iter().flatten();
    let others = slots.filter(|(name, _)| !of_clevis.contains(name.as_str()));
    LuksHeader {
        other_slots: others.count(),
        pins,
        damaged: None,
    }
}

/// Parses the protected header of a JWE, which contains no secrets.
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
    use serde_json::json;

    fn protected(json: &Value) -> String {
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    fn copy(at: usize, size: usize, sequence: u8, json: &Value) -> Vec<u8> {
        let mut bytes = vec![0; size];
        bytes[..6].copy_from_slice(MARKS[usize::from(at > 0)]);
        bytes[7] = 2;
        bytes[8..16].copy_from_slice(&(size as u64).to_be_bytes());
        bytes[23] = sequence;
        bytes[72..78].copy_from_slice(b"sha256");
        bytes[256..264].copy_from_slice(&(at as u64).to_be_bytes());
        let text = json.to_string();
        bytes[BINARY..BINARY + text.len()].copy_from_slice(text.as_bytes());
        let sum = Sha256::digest(&bytes);
        bytes[448..480].copy_from_slice(&sum);
        bytes
    }

    fn header(size: usize, json: &Value) -> Vec<u8> {
        [copy(0, size, 1, json), copy(size, size, 1, json)].concat()
    }

    #[test]
    fn pins_are_read_out_of_a_header() {
        let tpm = json!({"clevis": {"pin": "tpm2", "tpm2": {"pcr_ids": "4,7"}}});
        let tang = json!({"clevis": {"pin": "tang", "tang": {"url": "http://t"}}});
        let parts = [format!("{}.x", protected(&tpm)), protected(&tang)];
        let sss = json!({"clevis": {"pin": "sss", "sss": {"t": 2, "jwe": parts}}});
        let json = json!({
            "keyslots": {"0": {}, "1": {}},
            "tokens": {"0": {"type": "clevis", "keyslots": ["1"], "jwe": {"protected": protected(&sss)}},
                       "1": {"type": "systemd-tpm2", "keyslots": []}},
        });
        let pins = vec![Pin::Tpm2(vec![4, 7]), Pin::Tang("http://t".to_owned())];
        let wanted = LuksHeader {
            pins: vec![Pin::Shared(2, pins)],
            other_slots: 1,
            damaged: None,
        };
        for size in [0x4000, 0x8000] {
            assert_eq!(parse_luks(&header(size, &json)), Ok(wanted.clone()));
        }
        assert_eq!(parse_pin("%%%", 1), Pin::Other("unknown".to_owned()));
    }

    #[test]
    fn a_damaged_copy_is_named_and_the_other_one_read() {
        let whole = header(0x4000, &json!({"keyslots": {"0": {}}}));
        for (at, damaged) in [
            (0, "first"),
            (7, "first"),
            (10, "first"),
            (450, "first"),
            (5000, "first"),
            (0x3fff, "first"),
            (0x4000, "second"),
            (0x4000 + 258, "second"),
            (0x4000 + 5000, "second"),
        ] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            bytes.resize(LARGEST, 0);
            let read = parse_luks(&bytes).unwrap();
            assert_eq!((read.damaged, read.other_slots), (Some(damaged), 1), "{at}");
            bytes[if at < 0x4000 { 0x4000 + 5000 } else { 5000 }] ^= 1;
            assert!(parse_luks(&bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn the_newer_copy_counts() {
        let (old, new) = (json!({}), json!({"keyslots": {"0": {}}}));
        for (first, second) in [(2, 1), (1, 2)] {
            let of = |sequence| if sequence == 2 { &new } else { &old };
            let bytes = [
                copy(0, 0x4000, first, of(first)),
                copy(0x4000, 0x4000, second, of(second)),
            ];
            assert_eq!(parse_luks(&bytes.concat()).unwrap().other_slots, 1);
        }
    }

    #[test]
    fn what_is_not_a_whole_header_is_said_to_be_so() {
        let whole = header(0x4000, &json!({}));
        for length in [0, 5, 7, 15, 100, 4095, 4096, 0x4000, 0x7fff] {
            let read = parse_luks(&whole[..length]);
            assert!(
                matches!(read, Err(LuksFault::Short(_))),
                "{length}: {read:?}"
            );
        }
        let zeros = vec![0; LARGEST];
        assert_eq!(parse_luks(&zeros), Err(LuksFault::NoLuks));
        let mut one = zeros;
        one[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
        one[208 + 48..208 + 52].copy_from_slice(&[0, 0xac, 0x71, 0xf3]);
        assert_eq!(parse_luks(&one), Err(LuksFault::Luks1(1)));
        let mut bad = header(0x4000, &json!({}));
        (bad[5000], bad[0x4000 + 5000]) = (1, 1);
        bad.resize(LARGEST, 0);
        assert_eq!(
            parse_luks(&bad),
            Err(LuksFault::Damaged("its checksum is wrong"))
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_end_the_program(
            at in 0usize..0x8000, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64), length in 0usize..0x8001,
        ) {
            let mut whole = header(0x4000, &json!({"tokens": {"0": {"type": "clevis"}}}));
            for (index, byte) in bytes.iter().enumerate() {
                if let Some(place) = whole.get_mut(at + index) {
                    *place = *byte;
                }
            }
            let _ = parse_luks(&whole[..length]);
        }
    }
}
