//! The bytes of a snapshot: parts named by their contents, and a record that lists the parts. Equal parts of two snapshots are
//! stored once.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};

use super::{Area, AreaFacts, Part, Snapshot, SnapshotRecord};
use crate::host::root::sha256_hex;
use crate::host::sealed;
use crate::host::state_file::other_version;

/// File with the key of the digests.
pub const KEY: &str = "key";
/// File with the known digests.
pub const KNOWN: &str = "digests";

/// Maximum size of the text of a part that is unpacked, in bytes.
const MAX_TEXT: u64 = 8 << 20;
/// Length of a part's name.
const NAME: usize = 32;
/// Prefix of the file name of a part.
const PART: &str = "part-";
/// Prefix and suffix of the file name of a record.
const RECORD: (&str, &str) = ("snapshot-", ".json");

/// The text of a part.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PartText {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    facts: BTreeMap<Area, AreaFacts>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unseen: BTreeMap<Area, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    copies: BTreeMap<String, String>,
}

/// The reason why a file of the recorder cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes are not those that were written.
    #[error("its contents are not those that were written")]
    Damaged,
    /// The file has the format of another version of this program.
    #[error("it has version {0}, this program knows {known}", known = SnapshotRecord::VERSION)]
    Version(u64),
}

/// Returns the texts of the parts of a snapshot, by their names; a part without facts is omitted.
///
/// # Errors
/// The serializer's error.
pub fn part_texts(snapshot: &Snapshot) -> io::Result<BTreeMap<Part, (String, Vec<u8>)>> {
    let mut all: BTreeMap<Part, PartText> = BTreeMap::new();
    for (area, facts) in &snapshot.facts {
        let text = all.entry(area.part_of()).or_default();
        text.facts.insert(*area, facts.clone());
    }
    for (area, why) in &snapshot.unseen {
        let text = all.entry(area.part_of()).or_default();
        text.unseen.insert(*area, why.clone());
    }
    if !snapshot.copies.is_empty() {
        let text = all.entry(Part::Copies).or_default();
        text.copies = snapshot.copies.clone();
    }
    let named = all.into_iter().map(|(part, text)| {
        let text = serde_json::to_vec(&text)?;
        Ok((part, (name_of(&text), text)))
    });
    named.collect()
}

fn name_of(text: &[u8]) -> String {
    let digest = sha256_hex(text);
    digest.get(..NAME).unwrap_or(&digest).to_owned()
}

/// Packs the text of a part.
///
/// # Errors
/// The compressor's error.
pub fn pack_text(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text)?;
    encoder.finish()
}

/// Unpacks a part into a snapshot.
///
/// # Errors
/// The bytes do not match the name.
pub fn unpack_part(name: &str, bytes: &[u8], into: &mut Snapshot) -> Result<(), FormatError> {
    let mut text = Vec::new();
    let mut decoder = ZlibDecoder::new(bytes).take(MAX_TEXT);
    let read = decoder.read_to_end(&mut text);
    if read.is_err() || name_of(&text) != name {
        return Err(FormatError::Damaged);
    }
    let part: PartText = serde_json::from_slice(&text).map_err(|_| FormatError::Damaged)?;
    into.facts.extend(part.facts);
    into.unseen.extend(part.unseen);
    into.copies.extend(part.copies);
    Ok(())
}

/// Returns the bytes of a record.
///
/// # Errors
/// The serializer's error.
pub fn record_bytes(record: &SnapshotRecord) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    sealed::write_sealed(|out| Ok(serde_json::to_writer(out, record)?), &mut bytes)?;
    Ok(bytes)
}

/// Parses a record.
///
/// # Errors
/// The bytes are damaged, or of another version.
pub fn parse_record(bytes: &[u8]) -> Result<SnapshotRecord, FormatError> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|_| FormatError::Damaged)?;
    // Before the seal: another version may seal differently.
    if let Some(other) = other_version(bytes, SnapshotRecord::VERSION) {
        return Err(FormatError::Version(other));
    }
    if !sealed::is_sealed(bytes) {
        return Err(FormatError::Damaged);
    }
    serde_json::from_value(value).map_err(|_| FormatError::Damaged)
}

/// Returns the file name of a part.
pub fn part_file(name: &str) -> String {
    format!("{PART}{name}")
}

/// Returns the name of the part that a file of this name contains.
pub fn part_of_file(file: &str) -> Option<&str> {
    let name = file.strip_prefix(PART)?;
    let is_name = name.len() == NAME && name.bytes().all(|b| b.is_ascii_hexdigit());
    is_name.then_some(name)
}

/// Returns the file name of a record.
pub fn record_file(number: u64) -> String {
    let (begin, end) = RECORD;
    format!("{begin}{number:06}{end}")
}

/// Returns the number of the record that a file of this name contains.
pub fn record_of_file(file: &str) -> Option<u64> {
    let (begin, end) = RECORD;
    let digits = file.strip_prefix(begin)?.strip_suffix(end)?;
    let is_number = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Returns true for a file that an interrupted write left behind.
pub fn is_leftover(file: &str) -> bool {
    let name = file.strip_prefix('.').and_then(|f| f.strip_suffix(".new"));
    name.is_some_and(|name| {
        part_of_file(name).is_some()
            || record_of_file(name).is_some()
            || matches!(name, KEY | KNOWN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let mut all = Snapshot::default();
        let fact = |k: &str, v: &str| [(k.to_owned(), v.to_owned())].into();
        all.put_area(Area::Etc, Ok(fact("/etc/fstab", "0644 9 bytes #abc")));
        all.put_area(Area::Clock, Ok(fact("server", "within 2 seconds")));
        all.put_area(Area::Units, Err("systemd does not run here".into()));
        all.copies = fact("/etc/fstab", "a b\n");
        all
    }

    #[test]
    fn a_snapshot_comes_back_from_its_parts() {
        let texts = part_texts(&snapshot()).unwrap();
        assert_eq!(
            texts.keys().copied().collect::<Vec<_>>(),
            [Part::Etc, Part::State, Part::Copies]
        );
        let mut back = Snapshot::default();
        for (name, text) in texts.values() {
            let file = part_file(name);
            assert_eq!(part_of_file(&file), Some(name.as_str()));
            unpack_part(name, &pack_text(text).unwrap(), &mut back).unwrap();
        }
        assert_eq!(back, snapshot());
    }

    #[test]
    fn no_damaged_part_is_taken() {
        let texts = part_texts(&snapshot()).unwrap();
        let (name, text) = &texts[&Part::Etc];
        let whole = pack_text(text).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            // The two header bytes that say nothing about the contents may differ.
            let mut into = Snapshot::default();
            if unpack_part(name, &bytes, &mut into).is_ok() {
                assert_eq!(into.facts[&Area::Etc], snapshot().facts[&Area::Etc], "{at}");
            }
            let cut = whole.get(..at).unwrap();
            assert!(
                unpack_part(name, cut, &mut Snapshot::default()).is_err() || at >= whole.len() - 4
            );
        }
    }

    #[test]
    fn file_names_are_recognized() {
        assert_eq!(record_of_file(&record_file(12)), Some(12));
        assert_eq!(record_of_file(&record_file(12_345_678)), Some(12_345_678));
        for other in [
            "snapshot-1.json",
            "snapshot-00000a.json",
            "snapshot-000001",
            "part-1",
        ] {
            assert_eq!(record_of_file(other), None, "{other}");
        }
        assert!(is_leftover(".snapshot-000001.json.new") && is_leftover(".key.new"));
        assert!(!is_leftover(".other.new") && !is_leftover("snapshot-000001.json"));
    }
}
