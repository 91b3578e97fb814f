//! Snapshot files (`TERM-INDEX.snap`): a checksum, and raft's state at an index.

use super::crc;
use super::proto::{self, BYTES, Malformed, NUMBER};

/// A position in the log: an index, and the term of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Position {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// A fault of a snapshot file. etcd renames such a file to `NAME.broken` and uses an older one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapError {
    /// The file is empty, or has no data or no checksum.
    #[error("snap: empty snapshot")]
    Empty,
    /// The sum is wrong.
    #[error("snap: crc mismatch (the data has {data:08x}, the file says {said:08x})")]
    Crc {
        /// The sum of the data.
        data: u32,
        /// The checksum stated in the file.
        said: u32,
    },
    /// The bytes are not a snapshot.
    #[error("no snapshot (unexpected EOF, or a wrong field)")]
    Malformed,
}

impl From<Malformed> for SnapError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Parses a snapshot file, and returns its position.
///
/// # Errors
/// etcd would not use it.
pub fn read_snapshot(bytes: &[u8]) -> Result<Position, SnapError> {
    if bytes.is_empty() {
        return Err(SnapError::Empty);
    }
    let (mut said, mut data) = (0, &[][..]);
    for field in proto::read_fields(bytes, &[NUMBER, BYTES]) {
        match field? {
            (1, value) => said = low_bits(proto::read_number(value)?),
            (2, value) => data = proto::read_bytes(value)?,
            _ => {}
        }
    }
    if data.is_empty() || said == 0 {
        return Err(SnapError::Empty);
    }
    let sum = crc::update_crc(0, data);
    if sum != said {
        return Err(SnapError::Crc { data: sum, said });
    }
    let mut position = Position::default();
    for field in proto::read_fields(data, &[BYTES, BYTES]) {
        if let (2, metadata) = field? {
            for field in proto::read_fields(proto::read_bytes(metadata)?, &[BYTES, NUMBER, NUMBER])
            {
                match field? {
                    (2, value) => position.index = proto::read_number(value)?,
                    (3, value) => position.term = proto::read_number(value)?,
                    _ => {}
                }
            }
        }
    }
    Ok(position)
}

/// Returns the low half, which is what Go keeps of a number in a smaller field.
pub(super) fn low_bits(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A snapshot file, written as etcd does.
    pub(in super::super) fn write(position: Position) -> Vec<u8> {
        let varint = |mut number: u64| {
            let mut bytes = Vec::new();
            while number > 0x7f {
                bytes.push((number & 0x7f) as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes
        };
        let mut metadata = vec![0x0a, 0, 0x10];
        metadata.extend(varint(position.index));
        metadata.push(0x18);
        metadata.extend(varint(position.term));
        let mut data = b"\x0a\x02{}\x12".to_vec();
        data.push(metadata.len() as u8);
        data.extend(metadata);
        let mut file = vec![0x08];
        file.extend(varint(crc::update_crc(0, &data).into()));
        file.push(0x12);
        file.push(data.len() as u8);
        file.extend(data);
        file
    }

    #[test]
    fn a_snapshot_has_its_position_and_every_flipped_bit_is_found() {
        let position = Position {
            term: 3,
            index: 700,
        };
        let file = write(position);
        assert_eq!(read_snapshot(&file), Ok(position));
        assert_eq!(read_snapshot(b""), Err(SnapError::Empty));
        assert_eq!(read_snapshot(b"\x08\x00"), Err(SnapError::Empty));
        // The checksum's number has unused bits (44 to 47), which etcd ignores too.
        for bit in (0..file.len() * 8).filter(|bit| !(44..48).contains(bit)) {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            assert!(read_snapshot(&file).is_err(), "bit {bit}");
        }
        for end in 0..file.len() {
            assert!(read_snapshot(&file[..end]).is_err(), "cut at {end}");
        }
    }
}
