//! The cluster's keys in a database: for each key the value of its last revision.

use std::collections::BTreeMap;

use super::bolt::{BoltError, BoltFault, Bytes, Database};
use super::proto::{BYTES, NUMBER, Value, read_fields};

/// Fields of etcd's `mvccpb.KeyValue`: key, create, modified, version, value, lease.
const KINDS: [u8; 6] = [BYTES, NUMBER, NUMBER, NUMBER, BYTES, NUMBER];
/// Bytes of a revision: the transaction, an underscore, and the position in it.
const REVISION: usize = 17;
/// The byte after the revision of a deleted key.
const TOMBSTONE: u8 = b't';

/// A revision: the transaction, and the position in it.
type Revision = (u64, u64);

/// Reads the last values of all keys that `is_wanted` accepts, except deleted keys. Reads every page of the keys, and keeps
/// only these values.
///
/// # Errors
/// A page is damaged or cannot be read, or a value is not one that etcd writes.
pub fn read_keys<B: Bytes>(
    database: &Database<B>,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<BTreeMap<String, Vec<u8>>, BoltError> {
    let mut last: BTreeMap<String, (Revision, Option<Vec<u8>>)> = BTreeMap::new();
    let mut fault = None;
    database.each_leaf(b"key", &mut |revision, value| {
        let Some((key, value)) = parse_value(value) else {
            fault = Some("a value is not a key with a value");
            return;
        };
        let Some(key) = std::str::from_utf8(key).ok().filter(|key| is_wanted(key)) else {
            return;
        };
        let Some((revision, is_deleted)) = parse_revision(revision) else {
            fault = Some("a key is not a revision");
            return;
        };
        let entry = last.entry(key.to_owned()).or_default();
        if entry.0 <= revision {
            *entry = (revision, (!is_deleted).then(|| value.to_vec()));
        }
    })?;
    if let Some(what) = fault {
        let bucket = "key".to_owned();
        return Err(BoltFault::Value { bucket, what }.into());
    }
    let values = last.into_iter();
    Ok(values
        .filter_map(|(key, (_, value))| Some((key, value?)))
        .collect())
}

fn parse_revision(key: &[u8]) -> Option<(Revision, bool)> {
    let number = |at: usize| -> Option<u64> {
        let bytes = key.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    let is_revision = key.get(8) == Some(&b'_') && key.len() <= REVISION + 1;
    let is_deleted = key.get(REVISION) == Some(&TOMBSTONE);
    is_revision.then_some(((number(0)?, number(9)?), is_deleted))
}

/// Returns the key and the value of a stored message.
fn parse_value(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value): (Option<&[u8]>, &[u8]) = (None, &[]);
    for field in read_fields(message, &KINDS) {
        match field.ok()? {
            (1, Value::Bytes(bytes)) => key = Some(bytes),
            (5, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Some((key?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_told_from_tombstones() {
        let key = |main: u64, sub: u64, end: &[u8]| {
            [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()[..], end].concat()
        };
        assert_eq!(parse_revision(&key(7, 2, b"")), Some(((7, 2), false)));
        assert_eq!(parse_revision(&key(7, 2, b"t")), Some(((7, 2), true)));
        for wrong in [
            &b""[..],
            b"12345678",
            &key(7, 2, b"tt"),
            &key(7, 2, b"")[..16],
        ] {
            assert_eq!(parse_revision(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_message_gives_its_key_and_value() {
        let message = [
            b"\x0a\x02/a\x10\x05\x18\x07\x20\x01".as_slice(),
            b"\x2a\x03{}\n",
        ]
        .concat();
        assert_eq!(parse_value(&message), Some((&b"/a"[..], &b"{}\n"[..])));
        assert_eq!(parse_value(b"\x0a\x02/a"), Some((&b"/a"[..], &b""[..])));
        assert_eq!(parse_value(b""), None);
        assert_eq!(parse_value(b"\x0a\x09/a"), None, "cut off");
    }
}
