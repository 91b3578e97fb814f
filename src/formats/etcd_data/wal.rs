//! The write-ahead log (`SEQUENCE-INDEX.wal`): records with a checksum that continues across all files.
//!
//! A record is a length of 8 bytes, a protobuf message, and up to 7 bytes of padding. A length of 0 ends a file, because files
//! are preallocated. A truncated record at the end of the last file is normal after a power failure: etcd removes it.

use std::io::{self, Read};

use super::crc;
use super::proto::{self, BYTES, Malformed, NUMBER};
use super::snap::{Position, low_bits};

/// Bytes of the length before each record.
const FRAME: u64 = 8;
/// Number of bytes that a disk writes atomically.
const SECTOR: u64 = 512;
/// Maximum size of a record that is read; etcd's are below 64 MB.
const LONGEST: u64 = 256 << 20;

/// The name of a file of the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalName {
    /// The name.
    pub name: String,
    /// Its sequence number; one more than that of the previous file.
    pub sequence: u64,
    /// Index of the first entry that it may contain.
    pub index: u64,
}

impl WalName {
    /// Parses a name; `None` for a file that etcd ignores.
    pub fn parse(name: &str) -> Option<Self> {
        let (sequence, index) = name.strip_suffix(".wal")?.split_once('-')?;
        let number = |text: &str| {
            let digits = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| digits)
        };
        Some(Self {
            name: name.to_owned(),
            sequence: number(sequence)?,
            index: number(index)?,
        })
    }

    /// Returns the names of the log among those of a directory, in their order.
    pub fn parse_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut all: Vec<Self> = names.into_iter().filter_map(Self::parse).collect();
        all.sort();
        all
    }
}

/// The contents of a log file, as far as its records are complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalFile {
    /// Its name.
    pub name: String,
    /// Index in its name.
    pub index: u64,
    /// Its number.
    pub sequence: u64,
    /// The offset after its last complete record.
    pub end: u64,
    /// Indexes of entries: first and last of each run without gaps.
    pub entries: Vec<(u64, u64)>,
    /// Positions of snapshots.
    pub snapshots: Vec<Position>,
    /// The last state: term, vote, and index of the last committed entry.
    pub state: Option<(u64, u64, u64)>,
    /// The ids of member and cluster, as etcd encodes them.
    pub metadata: Option<Vec<u8>>,
    /// A second record about the ids differs from the first.
    pub conflict: bool,
    /// A record of an unknown type.
    pub unknown: Option<i64>,
    /// An entry of a type that etcd does not apply: its index.
    pub strange: Option<u64>,
}

/// A fault of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalFault {
    /// The record's checksum is wrong.
    #[error("walpb: crc mismatch")]
    Crc,
    /// The file does not continue where the previous one ended.
    #[error("wal: crc mismatch")]
    Chain,
    /// The file ends inside the record, or the record's length is wrong.
    #[error("unexpected EOF")]
    End,
    /// The bytes are not a record.
    #[error("no record (a wrong field)")]
    Malformed,
    /// The first record of a file has the wrong type.
    #[error("the file does not begin with a sum")]
    Head,
}

/// The position from which the log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalStop {
    /// Index of the file in the list.
    pub file: usize,
    /// Offset of the record.
    pub offset: u64,
    /// The fault.
    pub fault: WalFault,
    /// True if etcd takes it for an interrupted write at the end of the log, and removes it.
    pub torn: bool,
}

/// The log, as far as it can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalLog {
    /// Its files, oldest first.
    pub files: Vec<WalFile>,
    /// The fault that ends it.
    pub stop: Option<WalStop>,
}

/// Reads the files of a log, oldest first.
#[derive(Debug, Default)]
pub struct WalReader {
    sum: u32,
    log: WalLog,
}

/// A record, or the end of the file.
enum Step {
    Record(Record, u64),
    Fault(WalFault, bool),
    End,
}

struct Record {
    kind: i64,
    crc: u32,
    data: Vec<u8>,
}

impl WalReader {
    /// Reads a file of `length` bytes; `last` is true for the last one. Returns true if the next one can be read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(
        &mut self,
        name: &WalName,
        length: u64,
        last: bool,
        mut bytes: impl Read,
    ) -> io::Result<bool> {
        self.log.files.push(WalFile {
            name: name.name.clone(),
            index: name.index,
            sequence: name.sequence,
            ..WalFile::default()
        });
        loop {
            let at = self.last_file().end;
            let (fault, torn) = match self.read_record(at, length, last, &mut bytes)? {
                Step::End => return Ok(true),
                Step::Fault(fault, torn) => (fault, torn),
                Step::Record(record, size) => match self.keep_record(&record) {
                    Ok(()) => {
                        self.last_file().end += size;
                        continue;
                    }
                    Err(fault) => (fault, false),
                },
            };
            self.log.stop = Some(WalStop {
                file: self.log.files.len() - 1,
                offset: at,
                fault,
                torn: torn && last,
            });
            return Ok(false);
        }
    }

    /// Returns the log.
    pub fn finish(self) -> WalLog {
        self.log
    }

    fn last_file(&mut self) -> &mut WalFile {
        let files = &mut self.log.files;
        if files.is_empty() {
            files.push(WalFile::default());
        }
        let last = files.len() - 1;
        &mut files[last]
    }

    /// Reads the next record. A fault with `true` is one that an interrupted write leaves behind.
    fn read_record(
        &mut self,
        at: u64,
        length: u64,
        last: bool,
        bytes: &mut impl Read,
    ) -> io::Result<Step> {
        let mut frame = Vec::new();
        bytes.by_ref().take(FRAME).read_to_end(&mut frame)?;
        let frame = match <[u8; 8]>::try_from(frame.as_slice()) {
            Ok(frame) => u64::from_le_bytes(frame),
            Err(_) if frame.is_empty() => return Ok(Step::End),
            Err(_) => return Ok(Step::Fault(WalFault::End, true)),
        };
        if frame == 0 {
            return Ok(Step::End);
        }
        let message = frame & !(0xff << 56);
        let padding = match frame >> 63 {
            1 => (frame >> 56) & 7,
            _ => 0,
        };
        let whole = message + padding;
        if at + FRAME + whole > length || whole > LONGEST {
            return Ok(Step::Fault(WalFault::End, true));
        }
        let mut data = Vec::new();
        bytes.by_ref().take(whole).read_to_end(&mut data)?;
        if data.len() as u64 != whole {
            return Ok(Step::Fault(WalFault::End, true));
        }
        let torn = || last && has_empty_sector(at + FRAME, &data);
        let message = usize::try_from(message).unwrap_or_default();
        let record = match parse_record(&data[..message]) {
            Ok(record) => record,
            // etcd does not distinguish a message that ends inside a field from a file that ends inside a record.
            Err(Malformed::End) => return Ok(Step::Fault(WalFault::End, true)),
            Err(Malformed::Field) => return Ok(Step::Fault(WalFault::Malformed, torn())),
        };
        if record.kind != CRC {
            let sum = crc::update_crc(self.sum, &record.data);
            if sum != record.crc {
                return Ok(Step::Fault(WalFault::Crc, torn()));
            }
            self.sum = sum;
        }
        Ok(Step::Record(record, FRAME + whole))
    }

    fn keep_record(&mut self, record: &Record) -> Result<(), WalFault> {
        if record.kind == CRC {
            // Nothing was summed before the very first record.
            if self.sum != 0 && self.sum != record.crc {
                return Err(WalFault::Chain);
            }
            self.sum = record.crc;
            return Ok(());
        }
        let data = &record.data;
        let file = self.last_file();
        let numbers = |of: [u32; 3]| read_numbers(data, of).map_err(|_| WalFault::Malformed);
        match record.kind {
            METADATA => match &file.metadata {
                Some(metadata) => file.conflict |= metadata != data,
                None => file.metadata = Some(data.clone()),
            },
            ENTRY => {
                let [kind, _, index] = numbers([1, 2, 3])?;
                if kind > 1 {
                    file.strange = file.strange.or(Some(index));
                }
                match file.entries.last_mut() {
                    Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
                    _ => file.entries.push((index, index)),
                }
            }
            STATE => {
                let [term, vote, commit] = numbers([1, 2, 3])?;
                file.state = Some((term, vote, commit));
            }
            SNAPSHOT => {
                let [index, term, _] = numbers([1, 2, 0])?;
                file.snapshots.push(Position { term, index });
            }
            unknown => file.unknown = file.unknown.or(Some(unknown)),
        }
        Ok(())
    }
}

const METADATA: i64 = 1;
const ENTRY: i64 = 2;
const STATE: i64 = 3;
const CRC: i64 = 4;
const SNAPSHOT: i64 = 5;

fn parse_record(message: &[u8]) -> Result<Record, Malformed> {
    let (mut kind, mut crc, mut data) = (0, 0, &[][..]);
    for field in proto::read_fields(message, &[NUMBER, NUMBER, BYTES]) {
        match field? {
            (1, value) => kind = proto::read_number(value)?.cast_signed(),
            (2, value) => crc = low_bits(proto::read_number(value)?),
            (3, value) => data = proto::read_bytes(value)?,
            _ => {}
        }
    }
    Ok(Record {
        kind,
        crc,
        data: data.to_vec(),
    })
}

/// Returns the numbers in three fields; 0 for a missing field.
fn read_numbers(message: &[u8], of: [u32; 3]) -> Result<[u64; 3], Malformed> {
    let mut all = [0; 3];
    for field in proto::read_fields(message, &[]) {
        let (field, value) = field?;
        if let Some(place) = of.iter().position(|one| *one == field) {
            all[place] = proto::read_number(value)?;
        }
    }
    Ok(all)
}

/// Returns true if all bytes of a record in some sector are 0: that sector was not written.
fn has_empty_sector(mut at: u64, mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let room = usize::try_from(SECTOR - at % SECTOR).unwrap_or(usize::MAX);
        let (sector, rest) = data.split_at(room.min(data.len()));
        if sector.iter().all(|byte| *byte == 0) {
            return true;
        }
        at += sector.len() as u64;
        data = rest;
    }
    false
}

/// Bytes at the beginning of a file that [`check_head`] needs.
pub const HEAD: u64 = 4096;

/// Checks the first records of a file: a checksum, and the ids of member and cluster.
pub fn check_head(head: &[u8]) -> Option<WalFault> {
    let mut reader = WalReader::default();
    let mut rest = head;
    let length = head.len() as u64;
    let mut at = 0;
    for number in 0..2 {
        match reader.read_record(at, length, false, &mut rest) {
            Ok(Step::Record(record, size)) => {
                if number == 0 && record.kind != CRC {
                    return Some(WalFault::Head);
                }
                if let Err(fault) = reader.keep_record(&record) {
                    return Some(fault);
                }
                at += size;
            }
            Ok(Step::Fault(fault, _)) => return Some(fault),
            Ok(Step::End) | Err(_) => return Some(WalFault::Head),
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes records as etcd does.
    #[derive(Default)]
    pub(in super::super) struct Writer {
        sum: u32,
        pub(in super::super) bytes: Vec<u8>,
    }

    pub(in super::super) fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn message(numbers: &[(u8, u64)]) -> Vec<u8> {
        let field = |(field, number): &(u8, u64)| [vec![field << 3], varint(*number)].concat();
        numbers.iter().flat_map(field).collect()
    }

    impl Writer {
        pub(in super::super) fn next_file(&mut self) -> Vec<u8> {
            let done = std::mem::take(&mut self.bytes);
            self.begin();
            done
        }

        pub(in super::super) fn begin(&mut self) {
            self.record(CRC, None);
            self.record(METADATA, Some(&message(&[(1, 7), (2, 8)])));
        }

        pub(in super::super) fn record(&mut self, kind: i64, data: Option<&[u8]>) {
            self.sum = crc::update_crc(self.sum, data.unwrap_or_default());
            let mut record = message(&[(1, kind as u64), (2, self.sum.into())]);
            if let Some(data) = data {
                record.push(0x1a);
                record.extend(varint(data.len() as u64));
                record.extend(data);
            }
            let padding = (8 - record.len() % 8) % 8;
            let mut frame = record.len() as u64;
            if padding > 0 {
                frame |= (0x80 | padding as u64) << 56;
            }
            self.bytes.extend(frame.to_le_bytes());
            self.bytes.extend(&record);
            self.bytes.extend(vec![0; padding]);
        }

        pub(in super::super) fn entry(&mut self, index: u64, length: usize) {
            let mut data = message(&[(1, 0), (2, 1), (3, index)]);
            data.push(0x22);
            data.extend(varint(length as u64));
            data.extend(vec![b'x'; length]);
            self.record(ENTRY, Some(&data));
            self.record(STATE, Some(&message(&[(1, 1), (2, 7), (3, index)])));
        }

        pub(in super::super) fn snapshot(&mut self, position: Position) {
            self.record(
                SNAPSHOT,
                Some(&message(&[(1, position.index), (2, position.term)])),
            );
        }
    }

    fn read(files: &[&[u8]]) -> WalLog {
        let mut reader = WalReader::default();
        for (number, bytes) in files.iter().enumerate() {
            let name = WalName::parse(&format!("{number:016x}-{number:016x}.wal")).unwrap();
            let last = number + 1 == files.len();
            if !reader
                .read(&name, bytes.len() as u64, last, *bytes)
                .unwrap()
            {
                break;
            }
        }
        reader.finish()
    }

    fn two_files() -> [Vec<u8>; 2] {
        let mut writer = Writer::default();
        writer.begin();
        (1..=3).for_each(|index| writer.entry(index, 700));
        let first = writer.next_file();
        writer.snapshot(Position { term: 1, index: 2 });
        (4..=6).for_each(|index| writer.entry(index, 700));
        [first, writer.bytes]
    }

    #[test]
    fn a_log_goes_on_over_files_and_ends_at_zeros() {
        let [first, mut second] = two_files();
        second.extend([0; 4096]);
        let log = read(&[&first, &second]);
        assert_eq!(log.stop, None);
        assert_eq!(log.files[0].entries, [(1, 3)]);
        assert_eq!(log.files[1].entries, [(4, 6)]);
        assert_eq!(log.files[1].snapshots, [Position { term: 1, index: 2 }]);
        assert_eq!(log.files[1].state, Some((1, 7, 6)));
        assert_eq!(check_head(&second), None);
        // The oldest files are removed over time: the first checksum is taken as given.
        assert_eq!(read(&[&second]).stop, None);
    }

    #[test]
    fn a_record_that_is_cut_off_at_the_end_of_the_log_is_torn() {
        let [first, second] = two_files();
        let whole = read(&[&first, &second]).files[1].end;
        assert_eq!(whole, second.len() as u64);
        for end in 1..second.len() {
            let log = read(&[&first, &second[..end]]);
            if let Some(stop) = log.stop {
                assert!(
                    stop.torn && stop.file == 1 && stop.fault == WalFault::End,
                    "{end}: {stop:?}"
                );
            }
            let log = read(&[&second[..end], &first]);
            assert!(log.stop.is_some_and(|stop| !stop.torn), "{end}");
        }
        // A sector of the last record that was not written.
        let mut torn = second.clone();
        let end = torn.len();
        let record = end - 600;
        torn[record - record % 512..][..512].fill(0);
        let stop = read(&[&first, &torn]).stop.unwrap();
        assert!(stop.torn && stop.fault == WalFault::Crc, "{stop:?}");
        assert!(!read(&[&torn, &first]).stop.unwrap().torn);
    }

    #[test]
    fn a_lost_or_foreign_file_breaks_the_chain() {
        let [first, second] = two_files();
        assert_eq!(
            read(&[&second, &first]).stop.unwrap().fault,
            WalFault::Chain
        );
        let mut writer = Writer::default();
        writer.begin();
        writer.entry(1, 5);
        assert_eq!(
            read(&[&first, &writer.bytes]).stop.unwrap().fault,
            WalFault::Chain
        );
    }

    #[test]
    fn every_flipped_bit_of_data_is_found() {
        let mut writer = Writer::default();
        writer.begin();
        let head = writer.bytes.len();
        writer.record(ENTRY, Some(&[0x08, 0, 0x10, 1, 0x18, 1]));
        let bytes = writer.bytes;
        assert_eq!(bytes.len() - head, 24);
        // The checksum except its unused bits, and the data.
        for bit in (head + 11) * 8..bytes.len() * 8 {
            if (head + 15) * 8 + 4 <= bit && bit < (head + 16) * 8 {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&[&damaged]).stop.is_some(), "bit {bit}");
        }
    }

    #[test]
    fn names_are_those_that_etcd_takes() {
        let names = [
            "0.tmp",
            "0000000000000001-00000000000000ff.wal",
            "a.wal",
            "0000000000000000-0000000000000000.wal",
            "0000000000000000-0000000000000000.wal.broken",
            "00000000000000000-1.wal",
        ];
        let all = WalName::parse_names(names);
        let numbers: Vec<(u64, u64)> = all.iter().map(|one| (one.sequence, one.index)).collect();
        assert_eq!(numbers, [(0, 0), (1, 255)]);
    }

    #[test]
    fn a_head_without_a_sum_is_found() {
        let [first, _] = two_files();
        assert_eq!(check_head(&[0; 4096]), Some(WalFault::Head));
        assert_eq!(check_head(&first[16..]), Some(WalFault::Head));
        assert_eq!(check_head(&first[..20]), Some(WalFault::End));
        assert_eq!(check_head(b""), Some(WalFault::Head));
    }
}
