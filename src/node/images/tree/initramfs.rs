//! The kernel modules in an initramfs: one or more cpio archives (newc). The first ones are uncompressed, such as the
//! processor's microcode, and the last one is compressed.

use std::io::{self, BufRead, BufReader, Read};

use super::Initramfs;
use super::zstd::ZstdFrames;

/// Size of a newc header in bytes.
const HEADER: usize = 110;
/// Maximum length of a name in an archive.
const MAX_NAME: usize = 4096;
/// Maximum number of files in all archives; a node's initramfs has a few thousand.
const MAX_FILES: usize = 100_000;

/// Lists the modules. Unreadable content is reported in the result, not as an error.
pub(super) fn list_modules(image: impl Read) -> Initramfs {
    let mut found = Initramfs::default();
    let mut reader = BufReader::with_capacity(1 << 16, image);
    if let Err(error) = read_image(&mut reader, &mut found) {
        found.problem = Some(error.to_string());
    }
    found
}

/// Reads uncompressed archives, then the compressed one.
fn read_image(reader: &mut impl BufRead, found: &mut Initramfs) -> io::Result<()> {
    loop {
        skip_zeros(reader)?;
        let begin = reader.fill_buf()?;
        match begin {
            [] => return Ok(()),
            [b'0', b'7', b'0', b'7', ..] => read_archive(reader, found)?,
            [0x1f, 0x8b, ..] => {
                let unpacked = flate2::bufread::MultiGzDecoder::new(reader);
                return read_archives(&mut BufReader::with_capacity(1 << 16, unpacked), found);
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let unpacked = ZstdFrames::new(reader);
                return read_archives(&mut BufReader::with_capacity(1 << 16, unpacked), found);
            }
            begin => {
                let name = match begin {
                    [0xfd, b'7', b'z', ..] => "xz",
                    [0x02 | 0x04, 0x21 | 0x22, 0x4c | 0x4d, 0x18, ..] => "lz4",
                    [b'B', b'Z', b'h', ..] => "bzip2",
                    _ => "an unknown program",
                };
                return Err(io::Error::other(format!(
                    "the initramfs is compressed by {name}, which is not read"
                )));
            }
        }
    }
}

fn read_archives(reader: &mut impl BufRead, found: &mut Initramfs) -> io::Result<()> {
    loop {
        skip_zeros(reader)?;
        if reader.fill_buf()?.is_empty() {
            return Ok(());
        }
        read_archive(reader, found)?;
    }
}

/// Skips the zeros that separate archives.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        let ends = zeros < buffer.len() || buffer.is_empty();
        reader.consume(zeros);
        if ends {
            return Ok(());
        }
    }
}

/// Reads one archive, up to its trailer.
fn read_archive(reader: &mut impl BufRead, found: &mut Initramfs) -> io::Result<()> {
    let bad = |words: &str| io::Error::other(format!("the initramfs is damaged: {words}"));
    for _ in 0..MAX_FILES {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header)?;
        if !header.starts_with(b"07070") {
            return Err(bad("a header is missing"));
        }
        let number = |field: usize| {
            let start = 6 + field * 8;
            let digits = header.get(start..start + 8)?;
            u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let (Some(size), Some(length)) = (number(6), number(11)) else {
            return Err(bad("a header has no sizes"));
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length == 0 || length > MAX_NAME {
            return Err(bad("a name is too long"));
        }
        let mut name = vec![0; length];
        reader.read_exact(&mut name)?;
        skip_bytes(reader, padding((HEADER + length) as u64))?;
        name.pop();
        if name == b"TRAILER!!!" {
            return Ok(());
        }
        if let Some(module) = module_name(&String::from_utf8_lossy(&name)) {
            found.modules.insert(module);
        }
        skip_bytes(reader, size + padding(size))?;
    }
    Err(bad("it has more than 100000 files"))
}

/// Returns the number of padding bytes up to the next multiple of four.
fn padding(length: u64) -> u64 {
    length.next_multiple_of(4) - length
}

fn skip_bytes(reader: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(bytes), &mut io::sink())?;
    if skipped < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Returns the name of the module in a file, such as `virtio_blk` for `virtio-blk.ko.xz`.
pub fn module_name(path: &str) -> Option<String> {
    let (_, file) = path.rsplit_once('/').unwrap_or(("", path));
    let endings = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];
    let name = endings
        .iter()
        .find_map(|ending| file.strip_suffix(ending))?;
    Some(name.replace('-', "_"))
}
