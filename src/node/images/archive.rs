//! A tar archive, read in place: a list of its files with their offsets. Nothing is unpacked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Maximum number of files. An image archive has a few hundred.
const MAX_FILES: usize = 65_536;

/// The list of an archive, and the archive.
#[derive(Debug)]
pub(super) struct Archive {
    file: File,
    places: BTreeMap<String, Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    offset: u64,
    /// Number of bytes present: fewer than the header's size if the archive is truncated.
    there: u64,
}

/// The reason why an archive cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive as a whole is compressed.
    #[error("it is compressed as a whole; unpack it first (gunzip, zstd -d)")]
    Compressed,
    /// It cannot be read, or is not an archive.
    #[error("{0}")]
    Read(crate::base::reason::Reason),
    /// It has too many files.
    #[error("it holds more than 65536 files")]
    TooMany,
}

impl Archive {
    /// Lists an archive. A truncated one is listed up to its end.
    pub(super) fn list_files(mut file: File) -> Result<Self, ArchiveError> {
        let length = file.seek(SeekFrom::End(0)).map_err(read_error)?;
        file.rewind().map_err(read_error)?;
        let mut begin = [0; 4];
        let read = file.read(&mut begin).map_err(read_error)?;
        if read >= 2 && (begin.starts_with(&[0x1f, 0x8b]) || begin == [0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(ArchiveError::Compressed);
        }
        file.rewind().map_err(read_error)?;
        let places = find_places(&file, length)?;
        Ok(Self { file, places })
    }

    /// Returns the number of bytes of a file that are present; `None` if it is not in the archive.
    pub(super) fn size_of(&self, name: &str) -> Option<u64> {
        self.places.get(name).map(|span| span.there)
    }

    /// Calls `with` on the bytes of a file that are present.
    pub(super) fn read_file<T>(
        &self,
        name: &str,
        with: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(span) = self.places.get(name) else {
            return Ok(None);
        };
        with(&mut SpanReader {
            file: &self.file,
            next: span.offset,
            left: span.there,
        })
        .map(Some)
    }
}

/// Reads a range of the archive by offset, so that several threads can read at once.
struct SpanReader<'a> {
    file: &'a File,
    next: u64,
    left: u64,
}

impl Read for SpanReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let size = buffer.len().min(most);
        let read = self.file.read_at(&mut buffer[..size], self.next)?;
        self.next += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

fn find_places(file: &File, length: u64) -> Result<BTreeMap<String, Span>, ArchiveError> {
    let mut archive = tar::Archive::new(file);
    let mut places = BTreeMap::new();
    for entry in archive.entries_with_seek().map_err(read_error)? {
        let entry = match entry {
            Ok(entry) => entry,
            // The end is missing; the files listed so far are valid.
            Err(_) if !places.is_empty() => break,
            Err(error) => return Err(read_error(error)),
        };
        let path = entry.path_bytes();
        let name = String::from_utf8_lossy(&path);
        let name = name.trim_start_matches("./").to_owned();
        let (offset, size) = (entry.raw_file_position(), entry.size());
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let there = size.min(length.saturating_sub(offset));
        places.insert(name, Span { offset, there });
        if places.len() > MAX_FILES {
            return Err(ArchiveError::TooMany);
        }
    }
    Ok(places)
}

fn read_error(error: io::Error) -> ArchiveError {
    ArchiveError::Read(error.into())
}
