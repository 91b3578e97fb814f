//! Where an export is written: a directory on any file system, or a tar.
#![allow(
    clippy::disallowed_methods,
    reason = "the directory is a medium or a scratch directory, and no part of a node's configuration"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{MSDOS_SUPER_MAGIC, statfs};

/// Name of a file that is being written.
const PART: &str = ".mco-rescue-part";
/// Bytes that are copied at once.
const COPIED: usize = 256 << 10;
/// Maximum size of a file on vfat, in bytes.
const FAT_MAXIMUM: u64 = 0xffff_ffff;

/// A file of an export.
#[allow(missing_debug_implementations, reason = "a reader has nothing to show")]
pub struct ExportFile<'a> {
    /// Path below the export.
    pub path: &'a str,
    /// Size in bytes.
    pub size: u64,
    /// Content of exactly this size.
    pub content: &'a mut dyn Read,
}

/// Where files of an export go.
pub trait ExportTarget {
    /// Opens the file of this size that an earlier export left; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be looked at or opened.
    fn find_earlier(&self, path: &str, size: u64) -> io::Result<Option<fs::File>>;

    /// Writes a file; what was there is replaced.
    ///
    /// # Errors
    /// It cannot be written, or the content cannot be read.
    fn put_file(&mut self, file: ExportFile<'_>) -> io::Result<()>;

    /// Makes an empty directory; `ostree` reads no repository without them.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_directory(&mut self, path: &str) -> io::Result<()>;

    /// Flushes the medium: what was written so far is on the medium when it returns.
    ///
    /// # Errors
    /// The medium reports one.
    fn flush(&mut self) -> io::Result<()>;

    /// Ends the export and flushes it.
    ///
    /// # Errors
    /// The medium reports one.
    fn finish_export(&mut self) -> io::Result<()>;
}

/// A directory. An interrupted export is continued: files get their names when they are complete.
#[derive(Debug)]
pub struct DirectoryTarget {
    directory: PathBuf,
}

impl DirectoryTarget {
    /// Makes the directory if it is missing. One with other files is refused, unless one of them is `mark`.
    ///
    /// # Errors
    /// It has other files, or cannot be made or read.
    pub fn make_or_continue(directory: &Path, mark: &str) -> io::Result<Self> {
        let made = Self::make_directory(directory)?;
        let mut names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
        let is_other = |name: &io::Result<std::ffi::OsString>| match name {
            // Some file systems have it from the start.
            Ok(name) => name != "lost+found" && name != PART,
            Err(_) => true,
        };
        match names.find(is_other) {
            None => Ok(made),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) if made.has_name(mark)? => Ok(made),
            Some(Ok(name)) => Err(io::Error::other(format!(
                "it holds other files ({}); name an empty directory or an earlier export",
                name.display()
            ))),
        }
    }

    fn has_name(&self, name: &str) -> io::Result<bool> {
        match fs::symlink_metadata(self.directory.join(name)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the directory if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_directory(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Removes the directory with everything in it.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove_directory(directory: &Path) -> io::Result<()> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl ExportTarget for DirectoryTarget {
    fn find_earlier(&self, path: &str, size: u64) -> io::Result<Option<fs::File>> {
        let path = self.directory.join(path);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() == size => fs::File::open(path).map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn put_file(&mut self, file: ExportFile<'_>) -> io::Result<()> {
        let path = self.directory.join(file.path);
        let above = path.parent().unwrap_or(&self.directory);
        // In the same directory: file systems keep the inodes of a directory together.
        let part = above.join(PART);
        let mut out = match fs::File::create(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(above)?;
                fs::File::create(&part)?
            }
            other => other?,
        };
        copy_bytes(file.content, &mut out)?;
        drop(out);
        fs::rename(&part, &path)
    }

    fn make_directory(&mut self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.directory.join(path))
    }

    fn flush(&mut self) -> io::Result<()> {
        let directory = fs::File::open(&self.directory)?;
        nix::unistd::syncfs(directory).map_err(io::Error::from)
    }

    fn finish_export(&mut self) -> io::Result<()> {
        self.flush()
    }
}

/// Copies with few system calls.
fn copy_bytes(from: &mut dyn Read, to: &mut fs::File) -> io::Result<()> {
    let mut buffer = vec![0; COPIED];
    loop {
        let read = from.read(&mut buffer)?;
        match buffer.get(..read) {
            None | Some([]) => return Ok(()),
            Some(bytes) => to.write_all(bytes)?,
        }
    }
}

/// What a file system can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediumRoom {
    /// Free bytes.
    pub free: u64,
    /// Size of the unit that it allocates, in bytes.
    pub block: u64,
    /// Maximum size of a file, if it is within reach.
    pub largest_file: Option<u64>,
}

impl MediumRoom {
    /// Asks the file system of an existing path.
    ///
    /// # Errors
    /// It does not answer.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        let found = statfs(path)?;
        let block = u64::try_from(found.block_size()).unwrap_or_default().max(1);
        let is_fat = found.filesystem_type() == MSDOS_SUPER_MAGIC;
        Ok(Self {
            // What `df` calls available: ext4 holds the rest back, some of it even from root.
            free: found.blocks_available().saturating_mul(block),
            block,
            largest_file: is_fat.then_some(FAT_MAXIMUM),
        })
    }
}

/// Creates the file of an archive. An earlier file is never overwritten.
///
/// # Errors
/// It exists, or cannot be created.
pub fn create_archive(path: &Path) -> io::Result<fs::File> {
    fs::File::create_new(path)
}

/// Removes the file of an archive.
///
/// # Errors
/// It cannot be removed.
pub fn remove_archive(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// A tar, written to a file or a pipe.
#[allow(missing_debug_implementations, reason = "a writer has nothing to show")]
pub struct TarTarget<W: Write> {
    builder: tar::Builder<W>,
}

impl<W: Write> TarTarget<W> {
    /// Writes a tar to `out`.
    pub fn write_to(out: W) -> Self {
        Self {
            builder: tar::Builder::new(out),
        }
    }
}

impl<W: Write> ExportTarget for TarTarget<W> {
    fn find_earlier(&self, _: &str, _: u64) -> io::Result<Option<fs::File>> {
        Ok(None)
    }

    fn put_file(&mut self, file: ExportFile<'_>) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.size);
        header.set_mode(0o644);
        header.set_mtime(0);
        self.builder
            .append_data(&mut header, file.path, file.content)
    }

    fn make_directory(&mut self, path: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        header.set_mtime(0);
        let path = format!("{path}/");
        self.builder.append_data(&mut header, path, io::empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.builder.get_mut().flush()
    }

    fn finish_export(&mut self) -> io::Result<()> {
        self.builder.finish()?;
        self.builder.get_mut().flush()
    }
}
