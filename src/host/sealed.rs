//! The seal of the program's own state files: the first member of the JSON object is the SHA-256 of everything after it, so
//! that a bit flipped by a disk is noticed, while people and programs can still read the file.
//!
//! A file without a seal is from an older version of this program, and is read without the check.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::host::root::{sha256_hex, to_hex};

const NAME: &str = "\"checksum\"";

/// The error that a file's contents are not those that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its contents are not those that were written (the checksum differs)")]
pub struct Broken;

/// Writes a sealed JSON object, compact or with line breaks, to `out`. `write` is called twice and has to produce the same text
/// each time: the first text is only hashed, so that a large one is never held in memory.
///
/// # Errors
/// Those of `write` and of `out`.
pub fn write_sealed(
    write: impl Fn(&mut dyn Write) -> io::Result<()>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut hashed = Hashed::default();
    write(&mut hashed)?;
    let (begin, space) = match hashed.begin.as_slice() {
        b"{\n" => ("\n  ", " "),
        [b'{', other] if *other != b'}' => ("", ""),
        _ => return write(out),
    };
    let digest = to_hex(&hashed.rest.finalize());
    write!(out, "{{{begin}{NAME}:{space}\"{digest}\",")?;
    write(&mut WithoutFirst(out, false))
}

/// Hashes everything but the first byte.
#[derive(Default)]
struct Hashed {
    /// The first two bytes.
    begin: Vec<u8>,
    rest: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let is_first = self.begin.is_empty();
        let missing = 2 - self.begin.len();
        self.begin.extend(text.iter().take(missing));
        self.rest
            .update(text.get(usize::from(is_first)..).unwrap_or_default());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes everything but the first byte.
struct WithoutFirst<'a>(&'a mut dyn Write, bool);

impl Write for WithoutFirst<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let rest = match (self.1, text) {
            (false, [_, rest @ ..]) => rest,
            _ => text,
        };
        self.1 |= !text.is_empty();
        self.0.write_all(rest)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Checks that a file is unchanged since it was sealed.
///
/// # Errors
/// Its contents have changed.
pub fn check_seal(bytes: &[u8]) -> Result<(), Broken> {
    let text = bytes.strip_prefix(b"{").unwrap_or(bytes).trim_ascii_start();
    let Some(sealed) = text.strip_prefix(NAME.as_bytes()) else {
        return Ok(());
    };
    match split_seal(sealed) {
        Some((digest, rest)) if sha256_hex(rest).as_bytes() == digest => Ok(()),
        _ => Err(Broken),
    }
}

/// Returns true for a file that has a seal and is unchanged.
pub fn is_sealed(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix(b"{").unwrap_or(bytes);
    text.trim_ascii_start().starts_with(NAME.as_bytes()) && check_seal(bytes).is_ok()
}

/// Returns the digest, and the bytes that it covers.
fn split_seal(sealed: &[u8]) -> Option<(&[u8], &[u8])> {
    let value = sealed.strip_prefix(b":")?.trim_ascii_start();
    let (digest, rest) = value.strip_prefix(b"\"")?.split_at_checked(64)?;
    Some((digest, rest.strip_prefix(b"\",")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seal(text: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        // One byte at a time, as a serializer may write them.
        let bytes = |out: &mut dyn Write| text.chunks(1).try_for_each(|one| out.write_all(one));
        write_sealed(bytes, &mut sealed).unwrap();
        let mut at_once = Vec::new();
        write_sealed(|out| out.write_all(text), &mut at_once).unwrap();
        assert_eq!(sealed, at_once);
        sealed
    }

    fn texts() -> Vec<(Value, Vec<u8>)> {
        let value =
            json!({"version": 1, "id": "1-1", "steps": [{"path": "/etc/a", "sha256": "0"}]});
        vec![
            (value.clone(), serde_json::to_vec(&value).unwrap()),
            (value.clone(), serde_json::to_vec_pretty(&value).unwrap()),
        ]
    }

    #[test]
    fn what_is_sealed_is_the_same_object_with_one_member_more() {
        for (value, text) in texts() {
            assert_eq!(check_seal(&text), Ok(()));
            let sealed = seal(&text);
            assert_eq!(check_seal(&sealed), Ok(()));
            let mut read: Value = serde_json::from_slice(&sealed).unwrap();
            let checksum = read.as_object_mut().unwrap().remove("checksum");
            assert_eq!(checksum.unwrap().as_str().unwrap().len(), 64);
            assert_eq!(read, value);
        }
    }

    #[test]
    fn what_has_no_member_to_seal_stays_as_it_is() {
        for text in ["{}", "[1]", "{", ""] {
            assert_eq!(seal(text.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn no_flipped_bit_gives_other_contents() {
        let mut harmless = 0;
        for (value, text) in texts() {
            let sealed = seal(&text);
            for bit in 0..sealed.len() * 8 {
                let mut flipped = sealed.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let read = serde_json::from_slice::<Value>(&flipped);
                let Some(mut read) = read.ok().filter(|_| check_seal(&flipped).is_ok()) else {
                    continue;
                };
                // In the name of the member, or beside it.
                harmless += 1;
                let members = read.as_object_mut().unwrap();
                members.retain(|name, _| value.get(name).is_some());
                assert_eq!(read, value, "bit {bit}");
            }
        }
        let of_the_name = texts().len() * (NAME.len() + 4) * 8;
        assert!(harmless <= of_the_name, "{harmless}");
    }
}
