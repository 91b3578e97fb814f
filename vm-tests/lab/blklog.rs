//! The log of every write to a disk, and the disk as a power cut may have left it.
//!
//! The format is the kernel's dm-log-writes, as QEMU's blklogwrites writes it: a superblock, then for each request
//! a sector with `(sector, sectors, flags, data length)` and the data.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Flags of a request.
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One request.
#[derive(Debug, Clone, Copy)]
struct Request {
    sector: u64,
    flags: u64,
    /// Where its data is in the log.
    data: usize,
    length: usize,
}

/// A log that has been read.
pub struct Log {
    bytes: Vec<u8>,
    requests: Vec<Request>,
    sector_size: usize,
}

impl Log {
    /// Reads it up to where it was cut off.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let sector_size = usize::try_from(number(&bytes, 24).unwrap() & 0xffff_ffff).unwrap();
        let mut log = Self {
            bytes,
            requests: Vec::new(),
            sector_size,
        };
        let mut at = sector_size;
        while let Some(request) = log.request(at) {
            at = request.data + request.length;
            log.requests.push(request);
        }
        log
    }

    /// `None` behind the last whole one.
    fn request(&self, at: usize) -> Option<Request> {
        let field = |n: usize| number(&self.bytes, at + 8 * n);
        let (sector, sectors, flags) = (field(0)?, field(1)?, field(2)?);
        if (sector, sectors, flags) == (0, 0, 0) {
            return None;
        }
        let carries = flags & DISCARD == 0;
        let length = if carries {
            usize::try_from(sectors).ok()? * self.sector_size
        } else {
            0
        };
        let data = at + self.sector_size;
        (data + length <= self.bytes.len()).then_some(Request {
            sector,
            flags,
            data,
            length,
        })
    }

    /// How many requests there were.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Behind the last flush of the first `count` requests: from here on writes were in the disk's volatile cache.
    pub fn flushed(&self, count: usize) -> usize {
        let done = &self.requests[..count];
        let last = done.iter().rposition(|request| request.flags & FLUSH != 0);
        last.map_or(0, |last| last + 1)
    }

    /// Repeats the first `count` requests on a disk as it was before them. Of the writes that are volatile, behind
    /// position `flushed`, those are lost of which `lost` says so. Gives how many were.
    pub fn replay(
        &self,
        count: usize,
        flushed: usize,
        disk: &Path,
        mut lost: impl FnMut() -> bool,
    ) -> usize {
        let disk = fs::OpenOptions::new().write(true).open(disk).unwrap();
        let mut losses = 0;
        for (position, request) in self.requests[..count].iter().enumerate() {
            let volatile = position >= flushed && request.flags & FUA == 0 && request.length > 0;
            if volatile && lost() {
                losses += 1;
                continue;
            }
            let data = &self.bytes[request.data..request.data + request.length];
            let offset = request.sector * self.sector_size as u64;
            disk.write_all_at(data, offset).unwrap();
        }
        losses
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
