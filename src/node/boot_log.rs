//! Boots of the system, from `wtmp`: systemd adds an entry at each boot, before most services start.

use crate::host::root::{Root, RootError, RootPath};

/// A start of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemStart {
    /// Time by the node's clock; seconds since 1970.
    pub at: u64,
    /// Version of the kernel.
    pub kernel: String,
}

const FILE: &str = "var/log/wtmp";
/// Largest file that is read. A larger one has not been rotated as it should be.
const MAX_FILE: u64 = 16 << 20;
/// `BOOT_TIME` of `utmp.h`.
const BOOT_TIME: u16 = 2;
/// Size of an entry and offset of its time, where times have 32 bits (x86, s390x, POWER).
const SHORT: (usize, usize) = (384, 340);
/// The same where they have 64 bits (arm64, RISC-V).
const LONG: (usize, usize) = (400, 344);
/// Offset and maximum length of the kernel version.
const HOST: (usize, usize) = (76, 256);

/// Reads the boots of the system, oldest first; empty if there is no such file.
///
/// # Errors
/// The file cannot be read.
pub fn read_boot_log(root: &Root) -> Result<Vec<SystemStart>, RootError> {
    let bytes = root.read_within(&RootPath::fixed(FILE), MAX_FILE)?;
    Ok(parse_boot_log(&bytes.unwrap_or_default()))
}

/// Parses the file. Returns nothing if its entries have neither size.
fn parse_boot_log(bytes: &[u8]) -> Vec<SystemStart> {
    let is_form = |(size, _): &(usize, usize)| {
        let types = bytes.chunks(*size).map(|entry| number_at(entry, 0, 2));
        bytes.len().is_multiple_of(*size)
            && types
                .into_iter()
                .all(|kind| kind.is_some_and(|kind| kind < 10))
    };
    let Some((size, time)) = [SHORT, LONG].into_iter().find(is_form) else {
        return Vec::new();
    };
    let start = |entry: &[u8]| {
        let at = number_at(entry, time, 4)?;
        let kernel = entry.get(HOST.0..HOST.0 + HOST.1)?;
        let end = kernel.iter().position(|byte| *byte == 0);
        let kernel = kernel.get(..end.unwrap_or(HOST.1))?;
        (number_at(entry, 0, 2)? == u64::from(BOOT_TIME)).then(|| SystemStart {
            at,
            kernel: String::from_utf8_lossy(kernel).into_owned(),
        })
    };
    bytes.chunks(size).filter_map(start).collect()
}

/// Returns an integer of a few bytes in the byte order of this machine: big-endian on s390x.
fn number_at(entry: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = entry.get(at..at + length)?;
    let value = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(if cfg!(target_endian = "big") {
        bytes.iter().fold(0, value)
    } else {
        bytes.iter().rev().fold(0, value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry((size, time): (usize, usize), kind: u16, at: u32) -> Vec<u8> {
        let mut entry = vec![0; size];
        entry[..2].copy_from_slice(&kind.to_ne_bytes());
        entry[44..50].copy_from_slice(b"reboot");
        entry[76..82].copy_from_slice(b"5.14.0");
        entry[time..time + 4].copy_from_slice(&at.to_ne_bytes());
        entry
    }

    #[test]
    fn starts_are_read_from_both_forms() {
        for form in [SHORT, LONG] {
            let all = [
                entry(form, 2, 100),
                entry(form, 7, 150),
                entry(form, 2, 200),
            ]
            .concat();
            let times: Vec<u64> = parse_boot_log(&all).iter().map(|one| one.at).collect();
            assert_eq!(times, [100, 200]);
            assert_eq!(parse_boot_log(&all)[0].kernel, "5.14.0");
            assert_eq!(parse_boot_log(&all[1..]), []);
            assert_eq!(parse_boot_log(&vec![0xff; form.0 * 3]), []);
        }
        assert_eq!(parse_boot_log(b""), []);
    }
}
