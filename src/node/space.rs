//! Free space for another deployment: on `/boot` for its kernel, on `/sysroot` for its content.
//!
//! Staging checks neither, so without this check the shutdown would fail half-way.

use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::host::root::{EntryType, Root, RootError, RootPath};
use crate::node::bootloader::{BootEntry, KernelDirectory};

/// Size and free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Device number of the file system.
    pub device: u64,
    /// Total size in bytes.
    pub total: u64,
    /// Free bytes for root, including reserved blocks: ostree runs as root and counts them too.
    pub free: u64,
    /// Free bytes for all users.
    pub available: u64,
    /// Maximum number of files; 0 if only space limits it.
    pub inodes: u64,
    /// Free number of files.
    pub free_inodes: u64,
}

/// Whether something fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It fits.
    Fits,
    /// It fits after ostree has removed kernels that only the rollback deployment uses, which newer versions do automatically.
    AfterPruning {
        /// Bytes that this frees.
        pruned: u64,
    },
    /// It does not fit.
    TooSmall {
        /// Bytes that are still missing after everything possible was removed.
        missing: u64,
    },
}

/// The space that one more kernel needs on `/boot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelRoom {
    /// Bytes of kernel and initramfs; 0 if the same kernel already exists.
    pub needed: u64,
    /// Bytes of kernels that only deployments to be removed use.
    pub prunable: u64,
}

/// A file, or the files of one directory without its subdirectories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its path.
    pub path: RootPath,
    /// Bytes that it occupies on the disk.
    pub bytes: u64,
    /// It is a directory with several files.
    pub is_directory: bool,
}

/// The largest files and directories of a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Largest {
    /// The largest first.
    pub occupants: Vec<Occupant>,
    /// The search was cut short after `LOOKED_AT` objects, so there may be larger ones.
    pub is_partial: bool,
}

/// Number of occupants that are listed.
const NAMED: usize = 3;
/// Minimum size of a listed occupant, in bytes.
const WORTH: u64 = 1 << 20;
/// Maximum number of objects that a search visits.
const LOOKED_AT: usize = 200_000;

/// Finds the files and directories below `top` that occupy most space, on its own file system and without the directories
/// `apart`. A directory counts with only the files directly in it, so nothing counts twice; if one file is most of that, the
/// file is listed instead.
///
/// # Errors
/// A directory or file cannot be read.
pub fn find_largest(root: &Root, top: &RootPath, apart: &[&str]) -> Result<Largest, RootError> {
    let mut largest = Largest::default();
    let Some(space) = Space::read_space(root, top)? else {
        return Ok(largest);
    };
    let (mut waiting, mut seen) = (vec![top.clone()], 0);
    while let Some(directory) = waiting.pop() {
        if seen >= LOOKED_AT {
            largest.is_partial = true;
            break;
        }
        let (mut bytes, mut biggest) = (0, (0, None));
        for (name, kind) in root.list_types(&directory)? {
            seen += 1;
            // A name that is not UTF-8 cannot be used as a path here.
            let Ok(path) = directory.join(&name) else {
                continue;
            };
            let Some((own, device)) = disk_bytes(root, &path)? else {
                continue;
            };
            match kind {
                EntryType::Directory
                    if device == space.device && !apart.iter().any(|one| path.is_in(one)) =>
                {
                    waiting.push(path);
                }
                EntryType::File => {
                    bytes += own;
                    if own > biggest.0 {
                        biggest = (own, Some(path));
                    }
                }
                _ => {}
            }
        }
        largest.add_occupant(occupant_of(directory, bytes, biggest));
    }
    Ok(largest)
}

/// Returns the biggest file of a directory if it has most of the bytes of its files, otherwise the directory.
fn occupant_of(directory: RootPath, bytes: u64, biggest: (u64, Option<RootPath>)) -> Occupant {
    match biggest {
        (own, Some(path)) if own > bytes / 2 => Occupant {
            path,
            bytes: own,
            is_directory: false,
        },
        _ => Occupant {
            path: directory,
            bytes,
            is_directory: true,
        },
    }
}

/// Returns the bytes that an object occupies on disk, and its file system; `None` if it no longer exists.
fn disk_bytes(root: &Root, path: &RootPath) -> Result<Option<(u64, u64)>, RootError> {
    Ok(root.stat(path)?.map(|stat| {
        (
            u64::try_from(stat.st_blocks).unwrap_or_default() * 512,
            stat.st_dev,
        )
    }))
}

impl Largest {
    fn add_occupant(&mut self, one: Occupant) {
        if one.bytes >= WORTH {
            let at = self
                .occupants
                .partition_point(|other| other.bytes >= one.bytes);
            self.occupants.insert(at, one);
            self.occupants.truncate(NAMED);
        }
    }
}

/// Bytes needed for boot entries and directories besides the kernel.
const ENTRIES: u64 = 1 << 20;
/// Percentage of free space below which the kubelet evicts pods, by default.
const EVICTION_PERCENT: u64 = 10;
/// ostree's default of `min-free-space-percent`.
pub const MIN_FREE_PERCENT: u64 = 3;

/// The mount options of a directory's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountState {
    /// It is mounted read-only.
    pub read_only: bool,
    /// It is mounted noexec.
    pub no_exec: bool,
}

impl MountState {
    /// Reads the options for the directory, or for the nearest existing one above it.
    ///
    /// # Errors
    /// The directory cannot be opened or queried.
    pub fn read_options(root: &Root, path: &RootPath) -> Result<Self, RootError> {
        let mut opened = root.open_directory(path)?;
        for above in path.ancestors() {
            if opened.is_some() {
                break;
            }
            opened = root.open_directory(&above)?;
        }
        let flags = match &opened {
            Some(directory) => fstatvfs(directory).map(|stat| stat.flags()),
            None => fstatvfs(root.as_fd()).map(|stat| stat.flags()),
        };
        let flags = flags.map_err(|errno| RootError::at(path, errno))?;
        Ok(Self {
            read_only: flags.contains(FsFlags::ST_RDONLY),
            no_exec: flags.contains(FsFlags::ST_NOEXEC),
        })
    }
}

impl Space {
    /// Reads the space of a directory's file system; `None` if the directory does not exist.
    ///
    /// # Errors
    /// The directory cannot be opened or queried.
    pub fn read_space(root: &Root, path: &RootPath) -> Result<Option<Self>, RootError> {
        let Some(directory) = root.open_directory(path)? else {
            return Ok(None);
        };
        let failed = |errno: nix::errno::Errno| RootError::at(path, errno);
        let stat = fstatvfs(&directory).map_err(failed)?;
        let unit = stat.fragment_size();
        Ok(Some(Self {
            device: fstat(&directory).map_err(failed)?.st_dev,
            total: stat.blocks() * unit,
            free: stat.blocks_free() * unit,
            available: stat.blocks_available() * unit,
            inodes: stat.files(),
            free_inodes: stat.files_free(),
        }))
    }

    /// Returns true if the kubelet evicts pods because of the free space, by default.
    pub fn is_low(&self) -> bool {
        self.available < self.total / 100 * EVICTION_PERCENT
    }

    /// Checks whether content of this size can be imported: ostree leaves `min_free_percent` of the total free. Content that is
    /// already in the repository is not imported again, so `bytes` is an upper limit.
    pub fn fit_import(&self, bytes: u64, min_free_percent: u64) -> Fit {
        let reserve = self.total / 100 * min_free_percent;
        judge_fit(self.free, bytes.saturating_add(reserve), 0)
    }

    /// Checks whether one more kernel fits on `/boot`.
    pub fn fit_kernel(&self, room: KernelRoom) -> Fit {
        match room.needed {
            0 => judge_fit(self.free, ENTRIES, room.prunable),
            needed => judge_fit(self.free, needed.saturating_add(ENTRIES), room.prunable),
        }
    }
}

fn judge_fit(free: u64, needed: u64, prunable: u64) -> Fit {
    match needed.checked_sub(free) {
        None | Some(0) => Fit::Fits,
        Some(missing) if missing <= prunable => Fit::AfterPruning { pruned: prunable },
        Some(missing) => Fit::TooSmall {
            missing: missing - prunable,
        },
    }
}

/// Returns the space that one more kernel needs: `kernel_bytes`, or if unknown, the size of the largest
/// existing kernel. `new_directory` is its directory below `boot/ostree`, if known; `stays` returns true for an entry whose
/// deployment is kept (booted or pinned).
pub fn kernel_room(
    kernels: &[KernelDirectory],
    entries: &[BootEntry],
    kernel_bytes: Option<u64>,
    new_directory: Option<&str>,
    stays: impl Fn(&BootEntry) -> bool,
) -> KernelRoom {
    let there = |name: &str| kernels.iter().any(|kernel| kernel.name == name);
    let largest = kernels
        .iter()
        .map(|kernel| kernel.bytes)
        .max()
        .unwrap_or_default();
    let needed = if new_directory.is_some_and(there) {
        0
    } else {
        kernel_bytes.unwrap_or(largest)
    };
    let kept = |name: &str| {
        let mut staying = entries.iter().filter(|entry| stays(entry));
        new_directory == Some(name) || staying.any(|entry| entry.kernel_directory() == Some(name))
    };
    // ostree can remove a directory without an entry at any time.
    let prunable = kernels.iter().filter(|kernel| !kept(&kernel.name));
    KernelRoom {
        needed,
        prunable: prunable.map(|kernel| kernel.bytes).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(total: u64, free: u64) -> Space {
        Space {
            total: total * MIB,
            free: free * MIB,
            ..Space::default()
        }
    }

    fn kernel(name: &str, size: u64) -> KernelDirectory {
        KernelDirectory {
            name: name.to_owned(),
            bytes: size * MIB,
        }
    }

    fn entry(name: &str) -> BootEntry {
        BootEntry::parse(name, &format!("linux /ostree/{name}/vmlinuz"))
    }

    #[test]
    fn a_kernel_fits_now_after_pruning_or_not_at_all() {
        let room = |prunable: u64| KernelRoom {
            needed: 55 * MIB,
            prunable: prunable * MIB,
        };
        assert_eq!(space(300, 56).fit_kernel(room(0)), Fit::Fits);
        assert_eq!(
            space(300, 20).fit_kernel(room(40)),
            Fit::AfterPruning { pruned: 40 * MIB }
        );
        let missing = Fit::TooSmall { missing: 36 * MIB };
        assert_eq!(space(300, 20).fit_kernel(room(0)), missing);
        assert!(matches!(missing, Fit::TooSmall { .. }));
    }

    #[test]
    fn only_kernels_that_nothing_staying_needs_can_be_pruned() {
        let kernels = [kernel("os-a", 50), kernel("os-b", 60), kernel("os-c", 70)];
        let entries = [entry("os-a"), entry("os-b")];
        let booted = |entry: &BootEntry| entry.file == "os-a";
        let room = kernel_room(&kernels, &entries, Some(40 * MIB), None, booted);
        assert_eq!((room.needed, room.prunable), (40 * MIB, 130 * MIB));
        let all = kernel_room(&kernels, &entries, None, None, |_| true);
        assert_eq!(
            (all.needed, all.prunable),
            (70 * MIB, 70 * MIB),
            "the largest stands for an unknown one"
        );
    }

    #[test]
    fn a_kernel_that_is_there_needs_no_room_and_is_not_pruned() {
        let kernels = [kernel("os-a", 50), kernel("os-b", 60)];
        let room = kernel_room(
            &kernels,
            &[entry("os-a"), entry("os-b")],
            Some(60 * MIB),
            Some("os-b"),
            |entry| entry.file == "os-a",
        );
        assert_eq!(room, KernelRoom::default());
        assert_eq!(space(300, 2).fit_kernel(room), Fit::Fits);
        assert!(matches!(
            space(300, 0).fit_kernel(room),
            Fit::TooSmall { .. }
        ));
    }

    #[test]
    fn an_import_leaves_what_ostree_wants_to_stay_free() {
        let disk = space(10_000, 400);
        assert_eq!(disk.fit_import(100 * MIB, MIN_FREE_PERCENT), Fit::Fits);
        assert!(matches!(
            disk.fit_import(101 * MIB, MIN_FREE_PERCENT),
            Fit::TooSmall { .. }
        ));
        assert_eq!(disk.fit_import(400 * MIB, 0), Fit::Fits);
    }
}
