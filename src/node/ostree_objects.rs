//! The format of OSTree's objects (GVariant): the trees that commits and directories refer to, and the header that is hashed
//! before the content of a file. Pure.

use crate::host::root::ExtendedAttributes;

/// SHA-256 of an object, in bytes.
pub type Checksum = [u8; 32];

/// A directory of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirTree {
    /// Objects of files and links.
    pub files: Vec<Checksum>,
    /// Subdirectories: the checksums of each one's content and of its attributes.
    pub directories: Vec<(Checksum, Checksum)>,
}

/// Returns the checksums of a commit's root directory and of its attributes; `None` if the bytes are not a commit.
pub fn parse_commit(bytes: &[u8]) -> Option<(Checksum, Checksum)> {
    // Six of the eight members have a variable length and are not the last.
    let width = offset_width(bytes.len());
    let end = bytes.len().checked_sub(6 * width)?;
    let directory = offset(bytes, bytes.len() - 6 * width, width)?;
    let attributes = checksum(bytes.get(directory..end)?)?;
    let tree = bytes.get(directory.checked_sub(32)?..directory)?;
    Some((checksum(tree)?, attributes))
}

/// Returns the members of a directory; `None` if the bytes are not a directory.
pub fn parse_dirtree(bytes: &[u8]) -> Option<DirTree> {
    if bytes.is_empty() {
        return None;
    }
    let width = offset_width(bytes.len());
    let end = bytes.len().checked_sub(width)?;
    let middle = offset(bytes, end, width)?;
    let mut tree = DirTree::default();
    for entry in elements(bytes.get(..middle)?)? {
        let width = offset_width(entry.len());
        let end = entry.len().checked_sub(width)?;
        let name = offset(entry, end, width)?;
        tree.files.push(checksum(entry.get(name..end)?)?);
    }
    for entry in elements(bytes.get(middle..end)?)? {
        let width = offset_width(entry.len());
        let end = entry.len().checked_sub(2 * width)?;
        let contents = offset(entry, end, width)?;
        let name = offset(entry, end + width, width)?;
        let contents_of = checksum(entry.get(name..contents)?)?;
        tree.directories
            .push((contents_of, checksum(entry.get(contents..end)?)?));
    }
    Some(tree)
}

/// Returns the header that is hashed before the content of a file. The content of a link is `target`.
pub fn file_header(
    uid: u32,
    gid: u32,
    mode: u32,
    target: &[u8],
    attributes: &ExtendedAttributes,
) -> Vec<u8> {
    let mut sorted: Vec<&(Vec<u8>, Vec<u8>)> = attributes.iter().collect();
    sorted.sort();
    let mut list = Vec::new();
    let mut ends = Vec::new();
    for (name, value) in sorted {
        let mut pair = [name.as_slice(), &[0]].concat();
        let end = pair.len();
        pair.extend_from_slice(value);
        list.extend(framed(pair, &[end]));
        ends.push(list.len());
    }
    let list = match ends.is_empty() {
        true => list,
        false => framed(list, &ends),
    };
    let mut variant = Vec::new();
    for number in [uid, gid, mode, 0] {
        variant.extend_from_slice(&number.to_be_bytes());
    }
    variant.extend_from_slice(target);
    variant.push(0);
    let end = variant.len();
    variant.extend(list);
    let variant = framed(variant, &[end]);
    let size = u32::try_from(variant.len()).unwrap_or(u32::MAX);
    [&size.to_be_bytes()[..], &[0; 4], &variant].concat()
}

/// Appends the end offsets of a container's members, each in as few bytes as possible.
fn framed(mut body: Vec<u8>, ends: &[usize]) -> Vec<u8> {
    let widths = [1, 2, 4, 8].into_iter();
    let fits = |width: &usize| offset_width(body.len() + ends.len() * width) <= *width;
    let width = widths.clone().find(fits).unwrap_or(8);
    for end in ends {
        body.extend(end.to_le_bytes().iter().take(width));
    }
    body
}

/// Returns the width of an offset in a container of this size, in bytes.
fn offset_width(size: usize) -> usize {
    match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

fn offset(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let read = bytes.get(at..at.checked_add(width)?)?;
    let mut number = [0; 8];
    number.get_mut(..width)?.copy_from_slice(read);
    usize::try_from(u64::from_le_bytes(number)).ok()
}

/// Returns the members of an array whose members have variable lengths.
fn elements(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let width = offset_width(bytes.len());
    let first = offset(bytes, bytes.len().checked_sub(width)?, width)?;
    let offsets = bytes.get(first..)?;
    let mut all = Vec::new();
    let mut begin = 0;
    for at in (0..offsets.len()).step_by(width) {
        let end = offset(offsets, at, width)?;
        all.push(bytes.get(begin..end)?);
        begin = end;
    }
    Some(all)
}

fn checksum(bytes: &[u8]) -> Option<Checksum> {
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
                parse_commit(&bytes);
                parse_dirtree(&bytes);
            }
        }
        assert_eq!(parse_commit(&[]), None);
        assert_eq!(parse_dirtree(&[]), None);
        // A directory without members.
        assert_eq!(parse_dirtree(&[0]), Some(DirTree::default()));
    }

    #[test]
    fn offsets_are_as_wide_as_the_whole_needs() {
        assert_eq!(framed(vec![7; 3], &[3]), [7, 7, 7, 3]);
        assert_eq!(framed(vec![7; 254], &[254]).len(), 255);
        assert_eq!(framed(vec![7; 255], &[255]).len(), 257);
        assert_eq!(file_header(0, 0, 0o100_644, b"", &Vec::new()).len(), 8 + 18);
    }
}
