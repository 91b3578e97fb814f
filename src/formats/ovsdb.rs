//! Databases of Open vSwitch and OVN: logs of JSON records, each with its length and its SHA-1.
//!
//! `ovsdb-server` reads records up to the first bad one, uses those, and truncates the rest at its next write. Only a bad first
//! record prevents it from starting. `tests/doctor/fp_47.rs` compares this with the real server.

use std::io::{self, BufRead, Read};

use ring::digest;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Longest line before a record.
const HEADER: u64 = 127;
/// Longest record that is read.
const LONGEST: u64 = 1 << 30;
/// Maximum size of the first record if only that is requested: in a compacted database it contains all rows.
const LONGEST_FIRST: u64 = 16 << 20;

/// A database, as far as its log can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OvsdbLog {
    /// Number of complete records.
    pub records: u64,
    /// The fault that ends it.
    pub fault: Option<OvsdbStop>,
}

/// The position from which a log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvsdbStop {
    /// Offset of the record.
    pub offset: u64,
    /// The fault.
    pub fault: OvsdbFault,
    /// Number of later records that begin like one; 0 after a bad first record.
    pub behind: u64,
}

/// A fault of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OvsdbFault {
    /// The file does not begin like a database, or is empty.
    #[error("cannot identify file type")]
    Type,
    /// The first line is not a header.
    #[error("unexpected file format")]
    Format,
    /// A later line is not a header.
    #[error("parse error at offset {0} in header line")]
    Header(u64),
    /// The file ends inside the record: its length, and its offset.
    #[error("error reading {0} bytes starting at offset {1} (End of file)")]
    End(u64, u64),
    /// The SHA-1 is wrong.
    #[error(
        "{length} bytes starting at offset {offset} have SHA-1 hash {is} but should have hash {should}"
    )]
    Hash {
        /// Bytes of the record.
        length: u64,
        /// Their offset.
        offset: u64,
        /// Their hash.
        is: String,
        /// The hash in the header.
        should: String,
    },
    /// The record is not a JSON object or array.
    #[error("{0} bytes starting at offset {1} are not valid JSON")]
    Json(u64, u64),
    /// The first record is not a schema, or not the state of a cluster.
    #[error("the first record has no schema")]
    Schema,
}

/// The kind of a database, from the keyword in its headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Standalone,
    Clustered,
}

/// A line before a record.
struct Header {
    kind: Kind,
    length: u64,
    hash: String,
}

/// Reads a log; `first` stops after the first record, and before one of more than 16 MiB.
///
/// # Errors
/// The file cannot be read.
pub fn read_ovsdb(bytes: &mut impl BufRead, first: bool) -> io::Result<OvsdbLog> {
    let mut log = OvsdbLog::default();
    let mut offset = 0;
    let mut kind = None;
    loop {
        let longest = if first { LONGEST_FIRST } else { LONGEST };
        let (fault, data) = match read_record(bytes, offset, kind, longest)? {
            Step::End | Step::Long => return Ok(log),
            Step::Record(size, of) => {
                log.records += 1;
                offset += size;
                kind = Some(of);
                if first {
                    return Ok(log);
                }
                continue;
            }
            Step::Fault(fault, data) => (fault, data),
        };
        // After a bad first record nothing is used, however long the file is.
        let behind = match log.records {
            0 => 0,
            _ => count_headers(&data[..], bytes)?,
        };
        log.fault = Some(OvsdbStop {
            offset,
            fault,
            behind,
        });
        return Ok(log);
    }
}

/// A record, one that is too long, or a fault with the bytes read for it.
enum Step {
    Record(u64, Kind),
    Fault(OvsdbFault, Vec<u8>),
    Long,
    End,
}

fn read_record(
    bytes: &mut impl BufRead,
    offset: u64,
    before: Option<Kind>,
    longest: u64,
) -> io::Result<Step> {
    let mut line = Vec::new();
    bytes.take(HEADER).read_until(b'\n', &mut line)?;
    if line.is_empty() && before.is_some() {
        return Ok(Step::End);
    }
    let is_like = |header: &Header| before.is_none_or(|before| before == header.kind);
    let header = parse_header(&line).filter(is_like);
    let Some(header) = header else {
        let fault = match before {
            Some(_) => OvsdbFault::Header(offset),
            None => fault_of_first(&line),
        };
        return Ok(Step::Fault(fault, line));
    };
    if header.length > longest {
        return Ok(Step::Long);
    }
    let at = offset + line.len() as u64;
    let mut data = Vec::new();
    bytes.take(header.length).read_to_end(&mut data)?;
    if data.len() as u64 != header.length {
        return Ok(Step::Fault(OvsdbFault::End(header.length, at), data));
    }
    let (length, kind) = (header.length, header.kind);
    let fault = find_fault(header, &data, at).or_else(|| {
        let is_schema = before.is_some() || is_first(kind, &data);
        (!is_schema).then_some(OvsdbFault::Schema)
    });
    Ok(match fault {
        Some(fault) => Step::Fault(fault, data),
        None => Step::Record(at + length - offset, kind),
    })
}

/// Returns what is wrong with the data of a record, which begin at the offset `at`.
fn find_fault(header: Header, data: &[u8], at: u64) -> Option<OvsdbFault> {
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data);
    let is = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    let is: String = is.collect();
    if is != header.hash {
        return Some(OvsdbFault::Hash {
            length: header.length,
            offset: at,
            is,
            should: header.hash,
        });
    }
    (!is_json(data)).then_some(OvsdbFault::Json(header.length, at))
}

/// Returns what is wrong with the first line of a file.
fn fault_of_first(line: &[u8]) -> OvsdbFault {
    let known = [&b"OVSDB JSON "[..], b"OVSDB CLUSTER "];
    if known.iter().any(|magic| line.starts_with(magic)) {
        OvsdbFault::Format
    } else {
        OvsdbFault::Type
    }
}

/// Parses a header: `OVSDB JSON LENGTH SHA-1`, or `OVSDB CLUSTER` instead of the first two words.
fn parse_header(line: &[u8]) -> Option<Header> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (kind, rest) = match line.strip_prefix("OVSDB JSON ") {
        Some(rest) => (Kind::Standalone, rest),
        None => (Kind::Clustered, line.strip_prefix("OVSDB CLUSTER ")?),
    };
    let (length, hash) = rest.split_once(' ')?;
    let length = length
        .parse()
        .ok()
        .filter(|length| (1..=LONGEST).contains(length))?;
    let is_hash = hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| Header {
        kind,
        length,
        hash: hash.to_ascii_lowercase(),
    })
}

fn is_json(data: &[u8]) -> bool {
    let begins = data.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(begins, Some(b'{' | b'[')) && serde_json::from_slice::<IgnoredAny>(data).is_ok()
}

fn is_first(kind: Kind, data: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only their presence matters")]
    struct Schema {
        name: String,
        tables: serde_json::Map<String, serde_json::Value>,
    }
    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only their presence matters")]
    struct State {
        server_id: String,
        name: String,
    }
    match kind {
        Kind::Standalone => serde_json::from_slice::<Schema>(data).is_ok(),
        Kind::Clustered => serde_json::from_slice::<State>(data).is_ok(),
    }
}

/// Counts the lines that begin like a record; `data` was read before the rest.
fn count_headers(data: &[u8], rest: &mut impl BufRead) -> io::Result<u64> {
    let mut all = data.chain(rest);
    let mut count = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut all).take(1 << 20).read_until(b'\n', &mut line)? == 0 {
            return Ok(count);
        }
        count += u64::from(parse_header(&line).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(magic: &str, all: &[&str]) -> Vec<u8> {
        let record = |text: &&str| {
            let text = format!("{text}\n");
            let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
            let hash: String = hash
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("OVSDB {magic} {} {hash}\n{text}", text.len())
        };
        all.iter().map(record).collect::<String>().into_bytes()
    }

    const SCHEMA: &str = r#"{"name": "a", "tables": {}}"#;

    fn of(bytes: &[u8]) -> OvsdbLog {
        read_ovsdb(&mut &bytes[..], false).unwrap()
    }

    #[test]
    fn sound_logs_of_both_kinds_are_read() {
        let log = of(&write("JSON", &[SCHEMA, "{}", "{}"]));
        assert_eq!((log.records, log.fault), (3, None));
        let log = of(&write(
            "CLUSTER",
            &[r#"{"server_id": "a", "name": "b"}"#, "{}"],
        ));
        assert_eq!((log.records, log.fault), (2, None));
    }

    #[test]
    fn the_first_fault_ends_a_log_and_records_behind_it_are_counted() {
        let bytes = write("JSON", &[SCHEMA, "{}", "{\"a\": 1}", "{}", "{}"]);
        for end in 0..bytes.len() {
            let log = of(&bytes[..end]);
            if let Some(stop) = log.fault {
                assert_eq!(stop.behind, 0, "{end}");
            }
        }
        let text = String::from_utf8(bytes)
            .unwrap()
            .replace("\"a\": 1", "\"a\": 2");
        let log = of(text.as_bytes());
        let stop = log.fault.unwrap();
        assert_eq!((log.records, stop.behind), (2, 2));
        assert!(
            stop.fault
                .to_string()
                .contains("9 bytes starting at offset "),
            "{}",
            stop.fault
        );
    }

    /// Returns a file of which the bytes after the first ones must not be read.
    fn then_unread(bytes: &[u8]) -> impl BufRead {
        struct Unread;
        impl Read for Unread {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("read too far"))
            }
        }
        bytes.chain(io::BufReader::new(Unread))
    }

    #[test]
    fn a_huge_file_is_not_read_behind_a_wrong_first_record() {
        for first in [true, false] {
            let log = read_ovsdb(&mut then_unread(&[0; 300]), first).unwrap();
            let stop = log.fault.unwrap();
            assert_eq!((stop.fault, stop.behind), (OvsdbFault::Type, 0));
        }
    }

    #[test]
    fn a_first_record_that_is_huge_is_not_read_where_only_that_is_asked_for() {
        let header = format!("OVSDB CLUSTER {} {}\n", 300 << 20, "0".repeat(40));
        let log = read_ovsdb(&mut then_unread(header.as_bytes()), true).unwrap();
        assert_eq!(log, OvsdbLog::default());
    }

    #[test]
    fn what_is_not_a_database_is_reported_in_the_words_of_the_server() {
        let words = |bytes: &[u8]| of(bytes).fault.unwrap().fault.to_string();
        assert_eq!(words(b""), "cannot identify file type");
        assert_eq!(words(&[0; 300]), "cannot identify file type");
        assert_eq!(words(b"OVSDB JSON 5 abc\nxxxxx"), "unexpected file format");
        assert_eq!(
            words(&write("JSON", &["{}"])),
            "the first record has no schema"
        );
        assert!(words(&write("JSON", &["x"])).contains("are not valid JSON"));
        let mixed = [write("JSON", &[SCHEMA]), write("CLUSTER", &["{}"])].concat();
        assert!(words(&mixed).starts_with("parse error at offset "));
    }
}
