//! The format of OSTree's objects (GVariant): commits, the directories that they refer to, and the header that precedes the content
//! of a file when it is hashed or stored. Pure. Source: ostree-core.h and ostree-core.c.

use crate::formats::gvariant::{
    Dictionary, append_offsets, offset_width, read_offset, split_array,
};
use crate::host::root::{ExtendedAttributes, sha256_hex, to_hex};

/// SHA-256 of an object, in bytes.
pub type Checksum = [u8; 32];

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OstreeObjectKind {
    /// A commit.
    Commit,
    /// The names in a directory.
    DirTree,
    /// Owner, mode and attributes of a directory.
    DirMeta,
    /// A file or a symbolic link.
    File,
}

impl OstreeObjectKind {
    /// Returns the file name's extension in a repository of the `bare` modes.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::DirTree => "dirtree",
            Self::DirMeta => "dirmeta",
            Self::File => "file",
        }
    }
}

/// A commit.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// Its metadata.
    pub metadata: Dictionary<'a>,
    /// Checksum of its root directory.
    pub tree: Checksum,
    /// Checksum of the root directory's attributes.
    pub attributes: Checksum,
}

impl<'a> Commit<'a> {
    /// Parses a commit; `None` if the bytes are not one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        // Six of the eight members have a variable length and are not the last. Their ends are stored in reverse order.
        let width = offset_width(bytes.len());
        let end = bytes.len().checked_sub(6 * width)?;
        let metadata = read_offset(bytes, bytes.len() - width, width)?;
        let directory = read_offset(bytes, end, width)?;
        let tree = bytes.get(directory.checked_sub(32)?..directory)?;
        Some(Self {
            metadata: Dictionary(bytes.get(..metadata)?),
            tree: to_checksum(tree)?,
            attributes: to_checksum(bytes.get(directory..end)?)?,
        })
    }

    /// Returns the checksum of the tree alone, as `ostree show` prints it: equal for all imports of one image, whose commits differ
    /// in their times.
    pub fn content_checksum(&self) -> String {
        sha256_hex(&[self.tree, self.attributes].concat())
    }
}

/// A directory of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirTree {
    /// Objects of files and links, by name.
    pub files: Vec<(String, Checksum)>,
    /// Subdirectories.
    pub directories: Vec<SubDirectory>,
}

/// A subdirectory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubDirectory {
    /// Its name.
    pub name: String,
    /// Checksum of its names.
    pub tree: Checksum,
    /// Checksum of its attributes.
    pub attributes: Checksum,
}

impl DirTree {
    /// Parses a directory; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let width = offset_width(bytes.len());
        let end = bytes.len().checked_sub(width)?;
        let middle = read_offset(bytes, end, width)?;
        let mut tree = Self::default();
        for entry in split_array(bytes.get(..middle)?, 1)? {
            let width = offset_width(entry.len());
            let end = entry.len().checked_sub(width)?;
            let name = read_offset(entry, end, width)?;
            let checksum = to_checksum(entry.get(name..end)?)?;
            tree.files.push((read_name(entry.get(..name)?)?, checksum));
        }
        for entry in split_array(bytes.get(middle..end)?, 1)? {
            let width = offset_width(entry.len());
            let end = entry.len().checked_sub(2 * width)?;
            let contents = read_offset(entry, end, width)?;
            let name = read_offset(entry, end + width, width)?;
            tree.directories.push(SubDirectory {
                name: read_name(entry.get(..name)?)?,
                tree: to_checksum(entry.get(name..contents)?)?,
                attributes: to_checksum(entry.get(contents..end)?)?,
            });
        }
        Some(tree)
    }
}

fn read_name(bytes: &[u8]) -> Option<String> {
    let name = bytes.strip_suffix(b"\0")?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Owner, mode and attributes of a file or link.
#[derive(Debug, Clone, Copy)]
pub struct FileAttributes<'a> {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Target of a link; empty for a file.
    pub target: &'a [u8],
    /// Extended attributes.
    pub extended: &'a ExtendedAttributes,
}

impl FileAttributes<'_> {
    /// Returns the header that is hashed before the content of a file.
    pub fn hashed_header(&self) -> Vec<u8> {
        frame_header(&self.serialize(&[]))
    }

    /// Returns the header that an archive repository stores before the compressed content of `size` bytes.
    pub fn archive_header(&self, size: u64) -> Vec<u8> {
        frame_header(&self.serialize(&size.to_be_bytes()))
    }

    /// Serialises `(uuuusa(ayay))` after a beginning.
    fn serialize(&self, beginning: &[u8]) -> Vec<u8> {
        let mut sorted: Vec<&(Vec<u8>, Vec<u8>)> = self.extended.iter().collect();
        sorted.sort();
        let mut list = Vec::new();
        let mut ends = Vec::new();
        for (name, value) in sorted {
            let mut pair = [name.as_slice(), &[0]].concat();
            let end = pair.len();
            pair.extend_from_slice(value);
            list.extend(append_offsets(pair, &[end]));
            ends.push(list.len());
        }
        if !ends.is_empty() {
            list = append_offsets(list, &ends);
        }
        let mut variant = beginning.to_vec();
        for number in [self.uid, self.gid, self.mode, 0] {
            variant.extend_from_slice(&number.to_be_bytes());
        }
        variant.extend_from_slice(self.target);
        variant.push(0);
        let end = variant.len();
        variant.extend(list);
        append_offsets(variant, &[end])
    }
}

/// The header of an archived file, as far as its content is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedHeader {
    /// Size of the content, in bytes.
    pub size: u64,
    /// Target, if it is a symbolic link.
    pub target: Option<String>,
}

impl ArchivedHeader {
    /// Parses a header without its frame: `(tuuuusa(ayay))`; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let size = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
        let mode = u32::from_be_bytes(bytes.get(16..20)?.try_into().ok()?);
        let width = offset_width(bytes.len());
        let end = read_offset(bytes, bytes.len().checked_sub(width)?, width)?;
        let target = read_name(bytes.get(24..end)?)?;
        let is_link = mode & 0o170_000 == 0o120_000;
        Some(Self {
            size,
            target: is_link.then_some(target),
        })
    }
}

/// Puts the size before a header, as OSTree does.
fn frame_header(variant: &[u8]) -> Vec<u8> {
    let size = u32::try_from(variant.len()).unwrap_or(u32::MAX);
    [&size.to_be_bytes()[..], &[0; 4], variant].concat()
}

/// Returns the path of an object below a repository; files have the given extension.
pub fn object_path(checksum: &Checksum, extension: &str) -> String {
    let name = to_hex(checksum);
    let (first, rest) = name.split_at(2);
    format!("objects/{first}/{rest}.{extension}")
}

/// Parses a checksum in hex.
pub fn parse_checksum(text: &str) -> Option<Checksum> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut checksum = [0; 32];
    for (at, byte) in checksum.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(checksum)
}

fn to_checksum(bytes: &[u8]) -> Option<Checksum> {
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_out_of_other_bytes() {
        for length in 0..600 {
            for byte in [0, 1, 31, 32, 64, 0xff] {
                let bytes = vec![byte; length];
                Commit::parse(&bytes);
                DirTree::parse(&bytes);
            }
        }
        assert!(Commit::parse(&[]).is_none());
        assert_eq!(DirTree::parse(&[]), None);
        // A directory without members.
        assert_eq!(DirTree::parse(&[0]), Some(DirTree::default()));
    }

    #[test]
    fn a_header_has_its_fixed_size_and_is_read_again() {
        let file = FileAttributes {
            uid: 0,
            gid: 0,
            mode: 0o100_644,
            target: b"",
            extended: &Vec::new(),
        };
        assert_eq!(file.hashed_header().len(), 8 + 18);
        let archived = file.archive_header(7);
        assert_eq!(archived.len(), 8 + 8 + 18);
        let header = ArchivedHeader::parse(&archived[8..]).unwrap();
        assert_eq!((header.size, header.target), (7, None));
        let link = FileAttributes {
            mode: 0o120_777,
            target: b"../bin/sh",
            ..file
        };
        let header = ArchivedHeader::parse(&link.archive_header(0)[8..]).unwrap();
        assert_eq!(header.target.as_deref(), Some("../bin/sh"));
        assert_eq!(ArchivedHeader::parse(&[0; 20]), None);
    }
}
