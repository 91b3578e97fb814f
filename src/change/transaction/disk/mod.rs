//! The only module that changes a file system: single system calls below a directory descriptor, on names with one component.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that changes a file system"
)]
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::NixPath;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{
    AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat, renameat2,
};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, fstat, mkdirat};
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, fchown, fchownat, fsync, linkat, symlinkat, syncfs, unlinkat,
};
use sha2::{Digest, Sha256};

use crate::base::object::{Flags, HexDigest, Object, ObjectKind};
use crate::host::progress;
use crate::host::root::{LABEL, Place, proc_path, to_hex};
use crate::host::sys::parallel;
use crate::host::sys::signals::retry_interrupted;

mod copies;
mod spare;

pub(super) use copies::{copy_extended, copy_times, copy_tree, link_or_copy};
pub(super) use spare::{hold_spare, open_to_shrink, release_spare};

use spare::with_spare;

/// Opens a directory in which names can be created and synced.
pub(super) fn open_directory(dir: BorrowedFd<'_>, name: &str) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    retry_interrupted(|| openat(dir, name, flags, Mode::empty())).map(File::from)
}

/// Creates a directory with this mode and owner; an existing one is left unchanged. Returns true if it was created.
pub(super) fn make_directory(
    dir: BorrowedFd<'_>,
    name: &str,
    mode: u32,
    owner: (u32, u32),
) -> Result<bool, Errno> {
    match with_spare(dir, || mkdirat(dir, name, Mode::from_bits_truncate(0o700))) {
        Ok(()) => {}
        Err(Errno::EEXIST) => return open_directory(dir, name).map(|_| false),
        Err(errno) => return Err(errno),
    }
    let made = open_directory(dir, name)?;
    set_owner(&made, owner)?;
    fchmod(&made, Mode::from_bits_truncate(mode))?;
    Ok(true)
}

/// Opens a lock file for writing, and creates it (0600) if it is missing. Follows no link and does not block on a pipe.
pub(super) fn open_lock_file(place: &Place) -> Result<File, Errno> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o600);
    retry_interrupted(|| openat(&place.dir, place.name.as_str(), flags, mode)).map(File::from)
}

/// Removes the permissions of all other users from an open directory of this program.
pub(super) fn make_private(dir: &File) -> Result<(), Errno> {
    if fstat(dir)?.st_mode & 0o077 == 0 {
        return Ok(());
    }
    fchmod(dir, Mode::from_bits_truncate(0o700))
}

/// Number of bytes of a file after which the disk starts to write, while more are being produced; a barrier then has less to
/// wait for.
const BEHIND: u64 = 8 << 20;

/// The source of a new file's bytes.
pub(super) enum ByteSource<'a> {
    /// Bytes of this program that are small, or that have not been measured.
    Bytes(&'a [u8]),
    /// The text of the document: its digest was computed during parsing, and it cannot change.
    Text(&'a [u8]),
    /// Contents of the document that were measured during parsing: neither they nor their digest can change.
    Contents(Box<dyn Read + Send + 'a>),
    /// Another file, which may change at any time.
    File(&'a File),
    /// A file of this program that is generated while it is written.
    Made(&'a dyn Fn(&mut dyn Write) -> io::Result<()>),
}

impl ByteSource<'_> {
    /// Returns true if these bytes certainly have the digest in the plan.
    fn is_measured(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Contents(_))
    }
}

/// Creates a new file from `source`, with mode 0600 until it is complete; returns what was written, and its stat. If the source
/// has more bytes than wanted, one more byte is read.
///
/// For large contents that were already measured, the digest is that of `wanted`; a file of this program gets none; otherwise
/// it is that of the written bytes.
pub(super) fn write_file(
    dir: BorrowedFd<'_>,
    name: &str,
    source: ByteSource<'_>,
    wanted: &Object,
    sync: bool,
) -> io::Result<(ObjectKind, FileStat)> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o600);
    let open = || retry_interrupted(|| openat(dir, name, flags, mode));
    let file = File::from(with_spare(dir, open)?);
    let mut written = Written::new(&file, &source, wanted);
    // One extra byte is enough to notice that there are more.
    let (expected, most) = match wanted.kind {
        ObjectKind::File { size, .. } => (size, size.saturating_add(1)),
        _ => (0, u64::MAX),
    };
    match source {
        ByteSource::Bytes(bytes) | ByteSource::Text(bytes) => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let bytes = bytes.get(..most).unwrap_or(bytes);
            bytes
                .chunks(PIECE)
                .try_for_each(|piece| written.add_piece(piece))?;
        }
        ByteSource::Contents(contents) => {
            let contents = contents.take(most);
            parallel::read_pieces(contents, expected, |piece| written.add_piece(piece))?;
        }
        ByteSource::File(source) => {
            let source = source.take(most);
            parallel::read_pieces(source, expected, |piece| written.add_piece(piece))?;
        }
        ByteSource::Made(make) => {
            let mut out = BufWriter::with_capacity(BUFFER, &mut written);
            make(&mut out)?;
            out.flush()?;
        }
    }
    let kind = written.finish(wanted);
    let stat = set_owner(&file, wanted.owner())?;
    fchmod(&file, Mode::from_bits_truncate(wanted.mode))?;
    if sync {
        retry_interrupted(|| fsync(&file))?;
    }
    Ok((kind, stat))
}

/// Size of the pieces in which available bytes are written.
const PIECE: usize = 1 << 20;

/// Size of the pieces in which generated bytes are written.
const BUFFER: usize = 64 << 10;

/// A file that is being written.
struct Written<'a> {
    file: &'a File,
    size: u64,
    /// `None` for large contents with a known digest, and for a file of this program.
    hash: Option<Sha256>,
}

impl<'a> Written<'a> {
    fn new(file: &'a File, source: &ByteSource<'_>, wanted: &Object) -> Self {
        let known = source.is_measured() && wanted.size() >= PIECE as u64;
        let is_own = matches!(source, ByteSource::Made(_));
        Self {
            file,
            size: 0,
            hash: (!known && !is_own).then(Sha256::new),
        }
    }

    fn add_piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if let Some(hash) = &mut self.hash {
            hash.update(piece);
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let write = || retry_interrupted(|| nix::unistd::write(self.file, rest));
            let count = with_spare(self.file, write)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        let before = self.size / BEHIND;
        self.size += piece.len() as u64;
        progress::advance_by(piece.len() as u64);
        if self.size / BEHIND > before {
            begin_flush(self.file, before * BEHIND);
        }
        Ok(())
    }

    fn finish(self, wanted: &Object) -> ObjectKind {
        let sha256 = match (self.hash, &wanted.kind) {
            (Some(hash), _) => to_hex(&hash.finalize()).into(),
            (None, ObjectKind::File { sha256, .. }) => sha256.clone(),
            (None, _) => HexDigest::default(),
        };
        ObjectKind::File {
            size: self.size,
            sha256,
        }
    }
}

impl Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add_piece(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the disk start to write a file from `offset` on. This is only an optimisation: a barrier waits for it, and reports its
/// errors.
fn begin_flush(file: &File, offset: u64) {
    let Ok(offset) = i64::try_from(offset) else {
        return;
    };
    // SAFETY: the descriptor is open for the call, and it takes no pointer.
    let _ =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Sets the owner of a file, unless the owner is right already. Returns the stat before that.
fn set_owner(file: &File, (uid, gid): (u32, u32)) -> Result<FileStat, Errno> {
    let stat = fstat(file)?;
    if (stat.st_uid, stat.st_gid) != (uid, gid) {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(stat)
}

/// Creates a symbolic link.
pub(super) fn write_link(
    dir: BorrowedFd<'_>,
    name: &str,
    target: &str,
    owner: (u32, u32),
) -> Result<(), Errno> {
    with_spare(dir, || symlinkat(target, dir, name))?;
    let stat = nix::sys::stat::fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    if (stat.st_uid, stat.st_gid) == owner {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    fchownat(
        dir,
        name,
        Some(uid),
        Some(gid),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
}

/// Creates a hard link to the object at `place`; a symbolic link is not followed.
pub(super) fn hard_link(place: &Place, dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let from = place.name.as_str();
    with_spare(dir, || {
        linkat(&place.dir, from, dir, name, AtFlags::empty())
    })
}

/// Sets the SELinux label of a name without following it.
pub(super) fn set_label(dir: BorrowedFd<'_>, name: &str, label: &str) -> Result<(), Errno> {
    // With the trailing NUL, like libselinux and ostree.
    let label = CString::new(label).map_err(|_| Errno::EINVAL)?;
    set_attribute(dir, name, LABEL, label.as_bytes_with_nul())
}

/// Sets one extended attribute of a name without following it.
fn set_attribute(
    dir: BorrowedFd<'_>,
    name: &str,
    attribute: &CStr,
    value: &[u8],
) -> Result<(), Errno> {
    let path = proc_path(dir, name)?;
    with_spare(dir, || {
        // SAFETY: path, name and value are valid during the call, and the length is the value's.
        let written = unsafe {
            libc::lsetxattr(
                path.as_ptr(),
                attribute.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                0,
            )
        };
        Errno::result(written).map(drop)
    })
}

/// Sets these flags of an open file or directory; other flags are unchanged.
pub(super) fn set_flags(file: &File, wanted: Flags) -> Result<(), Errno> {
    // The kernel reads and writes an int, despite the names of the requests.
    let mut bits: libc::c_int = 0;
    // SAFETY: the descriptor is open for the call, and the pointer is to a local int.
    let read = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut bits) };
    Errno::result(read)?;
    let bit = |set: bool, bit: libc::c_int| if set { bit } else { 0 };
    let new = bits & !(FS_IMMUTABLE | FS_APPEND)
        | bit(wanted.immutable, FS_IMMUTABLE)
        | bit(wanted.append_only, FS_APPEND);
    if new == bits {
        return Ok(());
    }
    // SAFETY: as above.
    let written = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const new) };
    Errno::result(written).map(drop)
}

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL` of `linux/fs.h`.
const FS_IMMUTABLE: libc::c_int = 0x10;
const FS_APPEND: libc::c_int = 0x20;

/// Moves a name over an existing one.
pub(super) fn rename_over(from: BorrowedFd<'_>, name: &str, to: &Place) -> Result<(), Errno> {
    rename_across(from, name, to.dir.as_fd(), &to.name)
}

/// Moves a name to a free one.
pub(super) fn place_new(from: BorrowedFd<'_>, name: &str, to: &Place) -> Result<(), Errno> {
    let flags = RenameFlags::RENAME_NOREPLACE;
    match with_spare(&to.dir, || {
        renameat2(from, name, &to.dir, to.name.as_str(), flags)
    }) {
        // Some file systems do not support the flag; a check has to suffice there.
        Err(Errno::EINVAL) => match to.stat()? {
            Some(_) => Err(Errno::EEXIST),
            None => rename_over(from, name, to),
        },
        other => other,
    }
}

/// Exchanges two names atomically: neither is missing at any time.
pub(super) fn exchange_names(from: BorrowedFd<'_>, name: &str, to: &Place) -> Result<(), Errno> {
    let flags = RenameFlags::RENAME_EXCHANGE;
    renameat2(from, name, &to.dir, to.name.as_str(), flags)
}

/// Moves the object at `from` out of the way.
pub(super) fn move_aside(from: &Place, to: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    rename_across(from.dir.as_fd(), &from.name, to, name)
}

/// Renames within one directory or across two.
pub(super) fn rename_across(
    from: BorrowedFd<'_>,
    name: &str,
    to: BorrowedFd<'_>,
    new_name: &str,
) -> Result<(), Errno> {
    with_spare(to, || renameat(from, name, to, new_name))
}

/// Removes a file or link; a missing one is not an error.
pub(super) fn remove_file(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

/// Removes a name of this program; a directory only if it is empty.
pub(super) fn remove_staged(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match remove_file(dir, name) {
        Err(Errno::EISDIR | Errno::EPERM) => remove_directory(dir, name).map(drop),
        other => other,
    }
}

/// Removes a name with everything below it. Links are not followed, and no other mount is entered.
pub(super) fn remove_tree<N: NixPath + ?Sized>(dir: BorrowedFd<'_>, name: &N) -> Result<(), Errno> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(Errno::ENOENT) => return Ok(()),
        other => return other,
    }
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV);
    let mut entries = Dir::from_fd(openat2(dir, name, how)?)?;
    let mut names = Vec::new();
    for entry in entries.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    for name in names {
        remove_tree(entries.as_fd(), name.as_c_str())?;
    }
    unlinkat(dir, name, UnlinkatFlags::RemoveDir)
}

/// Removes a directory that is empty and not a mount point. Returns true if it no longer exists.
pub(super) fn remove_directory(dir: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    match unlinkat(dir, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Sets mode and owner of a file or directory without following it.
pub(super) fn set_attributes(place: &Place, mode: u32, owner: (u32, u32)) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    let stat = place.stat()?.ok_or(Errno::ENOENT)?;
    // chown clears setuid and setgid, so it comes first.
    if (stat.st_uid, stat.st_gid) != owner {
        fchownat(
            &place.dir,
            place.name.as_str(),
            Some(uid),
            Some(gid),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )?;
    }
    let mode = Mode::from_bits_truncate(mode);
    match fchmodat(
        &place.dir,
        place.name.as_str(),
        mode,
        FchmodatFlags::NoFollowSymlink,
    ) {
        // Kernels before 6.6 cannot do that without /proc; an open descriptor works too.
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => fchmod(place.open_file()?, mode),
        other => other,
    }
}

/// Replaces a small file of this program atomically and durably.
pub(super) fn replace_durably(dir: &File, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_temporary(dir, name, ByteSource::Bytes(bytes), true)?;
    commit_temporary(dir, name)?;
    Ok(sync_directory(dir)?)
}

/// Writes a small file of this program next to its final name. Without `sync`, the whole file system has to be synced before
/// [`commit_temporary`].
pub(super) fn write_temporary(
    dir: &File,
    name: &str,
    source: ByteSource<'_>,
    sync: bool,
) -> io::Result<()> {
    let temporary = temporary_name(name);
    remove_file(dir.as_fd(), &temporary)?;
    let result = write_own(dir, &temporary, source, sync);
    if result.is_err() {
        // The first error is the one that matters; the next run sweeps leftovers.
        let _ = remove_file(dir.as_fd(), &temporary);
    }
    result
}

/// Renames the file that [`write_temporary`] wrote to its final name. The name is durable after the next sync.
pub(super) fn commit_temporary(dir: &File, name: &str) -> io::Result<()> {
    let temporary = temporary_name(name);
    let result = rename_across(dir.as_fd(), &temporary, dir.as_fd(), name);
    if result.is_err() {
        let _ = remove_file(dir.as_fd(), &temporary);
    }
    Ok(result?)
}

fn write_own(dir: &File, temporary: &str, source: ByteSource<'_>, sync: bool) -> io::Result<()> {
    let stat = fstat(dir)?;
    let object = Object::new(ObjectKind::Directory, 0o600, (stat.st_uid, stat.st_gid));
    write_file(dir.as_fd(), temporary, source, &object, sync)?;
    // Labelled like its directory, as by the kernel.
    let own = Place {
        dir: dir.as_fd().try_clone_to_owned()?.into(),
        name: ".".to_owned(),
    };
    Ok(copy_label(&own, dir.as_fd(), temporary)?)
}

/// Returns the temporary name under which a file of this program is written.
pub(super) fn temporary_name(name: &str) -> String {
    format!(".{name}.new")
}

/// Overwrites bytes of a file in place and durably. Nothing is allocated, so it works on a full disk; an interruption can leave
/// any mix of old and new bytes.
pub(super) fn overwrite_durably(
    dir: &File,
    name: &str,
    offset: usize,
    bytes: &[u8],
) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(retry_interrupted(|| {
        openat(dir, name, flags, Mode::empty())
    })?);
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, offset as u64)?;
    Ok(retry_interrupted(|| fsync(&file))?)
}

/// Syncs the content of a file.
pub(super) fn sync_file(dir: &File, name: &str) -> Result<(), Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = retry_interrupted(|| openat(dir, name, flags, Mode::empty()))?;
    retry_interrupted(|| fsync(&file))
}

/// Syncs the names in a directory.
pub(super) fn sync_directory(dir: &File) -> Result<(), Errno> {
    retry_interrupted(|| fsync(dir))
}

/// Syncs a whole file system; an error since `dir` was opened is reported once.
pub(super) fn sync_file_system(dir: impl AsFd) -> Result<(), Errno> {
    retry_interrupted(|| syncfs(dir.as_fd()))
}

/// `FIFREEZE` of `linux/fs.h`: `_IOWR('X', 119, int)`.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
/// `FITHAW`: `_IOWR('X', 120, int)`.
const FITHAW: libc::c_ulong = 0xC004_5878;
/// The time after which a freeze ends in any case.
const FREEZE_MILLISECONDS: libc::c_int = 30_000;

/// Freezes a whole file system and thaws it immediately, which empties its journal: a program that reads it without replaying a
/// journal, such as GRUB, then sees every change. A separate process thaws it if this one dies in between.
///
/// # Errors
/// The file system or the kernel does not support freezing, or this process may not do it.
pub(super) fn freeze_and_thaw(dir: impl AsFd) -> Result<(), Errno> {
    let dir = dir.as_fd().as_raw_fd();
    let (watched, kept) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (end, own) = (watched.as_raw_fd(), kept.as_raw_fd());
    // SAFETY: the child does nothing but the calls below.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(Errno::last()),
        // SAFETY: close, poll, read, ioctl and _exit are safe after a fork of a process with threads, and the child has its own
        // copies of the descriptors.
        0 => unsafe {
            libc::close(own);
            let mut ready = libc::pollfd {
                fd: end,
                events: libc::POLLIN,
                revents: 0,
            };
            let answered = libc::poll(&raw mut ready, 1, FREEZE_MILLISECONDS);
            let mut byte = 0_u8;
            let is_done = answered == 1 && libc::read(end, (&raw mut byte).cast(), 1) == 1;
            if !is_done {
                libc::ioctl(dir, FITHAW, 0);
            }
            libc::_exit(0)
        },
        child => child,
    };
    // SAFETY: the descriptor is open, and the third argument is unused.
    let frozen = Errno::result(unsafe { libc::ioctl(dir, FIFREEZE, 0) });
    let thawed = match frozen {
        // SAFETY: as above.
        Ok(_) => retry_interrupted(|| Errno::result(unsafe { libc::ioctl(dir, FITHAW, 0) })),
        Err(errno) => Err(errno),
    };
    if frozen.is_err() || thawed.is_ok() {
        // The child must not thaw a later freeze by another program.
        let _ = retry_interrupted(|| nix::unistd::write(&kept, b"."));
    }
    drop(kept);
    let wait = || {
        // SAFETY: it is a child of this process, and no status is requested.
        Errno::result(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) })
    };
    let _ = retry_interrupted(wait);
    thawed.map(drop)
}

/// Copies the label of one object to another, if both file systems have labels and this process may set them.
pub(super) fn copy_label(from: &Place, dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let result = from.read_label().and_then(|label| match label {
        Some(label) => set_label(dir, name, &label),
        None => Ok(()),
    });
    result.or_else(|errno| {
        let refused = is_refusal(errno);
        refused.then_some(()).ok_or(errno)
    })
}

/// Returns true if labels are impossible here although the disk is neither broken nor full: no file system with labels, no
/// privilege, a label that is unknown to the running kernel's policy, or no `/proc`.
pub(super) fn is_refusal(errno: Errno) -> bool {
    use Errno::{EACCES, EINVAL, ENOENT, EOPNOTSUPP, EPERM};
    matches!(errno, EOPNOTSUPP | EPERM | EACCES | EINVAL | ENOENT)
}
