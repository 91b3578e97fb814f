//! Archives that the kernel can unpack at boot: cpio in `newc` format. Entries in, bytes out.
//!
//! An archive does not depend on where or when it was made: times are zero, and inode numbers are counted.

/// The object with a name in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpioContent {
    /// A directory. The kernel does not create parent directories, so each needs its own entry.
    Directory,
    /// A file with these bytes.
    File(Vec<u8>),
    /// A symbolic link with this target.
    Link(String),
}

/// One entry of the archive, owned by root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpioEntry {
    /// Path without leading slash.
    pub name: String,
    /// Permission bits.
    pub mode: u32,
    /// Type and bytes.
    pub content: CpioContent,
}

/// An error while an archive is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpioError {
    /// The format has 32 bits for a size.
    #[error(
        "{0} has {1} bytes, and an initramfs archive holds at most 4294967295 bytes per file. Leave it out"
    )]
    TooLarge(String, usize),
}

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
/// The types in a mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Returns the archive of these entries in their order: a directory has to precede its content.
///
/// # Errors
/// A file is too large.
pub fn write_archive(entries: &[CpioEntry]) -> Result<Vec<u8>, CpioError> {
    let mut out = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let (kind, bytes) = match &entry.content {
            CpioContent::Directory => (DIRECTORY, [].as_slice()),
            CpioContent::File(bytes) => (FILE, bytes.as_slice()),
            CpioContent::Link(target) => (LINK, target.as_bytes()),
        };
        append_entry(&mut out, index + 1, &entry.name, kind | entry.mode, bytes)?;
    }
    append_entry(&mut out, 0, TRAILER, 0, &[])?;
    Ok(out)
}

fn append_entry(
    out: &mut Vec<u8>,
    inode: usize,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> Result<(), CpioError> {
    let Ok(size) = u32::try_from(bytes.len()) else {
        return Err(CpioError::TooLarge(name.to_owned(), bytes.len()));
    };
    let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
    // Inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
    let (uid, gid, time, device, checksum) = (0, 0, 0, 0, 0);
    out.extend_from_slice(MAGIC.as_bytes());
    let named = name.len() + 1;
    out.extend_from_slice(
        format!(
            "{inode:08x}{mode:08x}{uid:08x}{gid:08x}{links:08x}{time:08x}{size:08x}\
             {device:08x}{device:08x}{device:08x}{device:08x}{named:08x}{checksum:08x}{name}\0"
        )
        .as_bytes(),
    );
    pad_to_four(out);
    out.extend_from_slice(bytes);
    pad_to_four(out);
    Ok(())
}

/// Pads with zeros: headers and contents begin at multiples of four.
fn pad_to_four(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_begins_at_a_multiple_of_four() {
        let entries = ["a", "ab", "abc", "abcd"].map(|name| CpioEntry {
            name: name.to_owned(),
            mode: 0o600,
            content: CpioContent::File(name.as_bytes().to_vec()),
        });
        let archive = write_archive(&entries).unwrap();
        let found = archive.windows(6).enumerate();
        let found: Vec<usize> = found
            .filter(|(_, bytes)| bytes == b"070701")
            .map(|(at, _)| at)
            .collect();
        assert_eq!(found.len(), entries.len() + 1);
        assert!(found.iter().all(|at| at % 4 == 0), "{found:?}");
        assert_eq!(archive.len() % 4, 0);
    }
}
