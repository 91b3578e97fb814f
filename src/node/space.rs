//! Room for another deployment: on `/boot` for its kernel, on `/sysroot` for its content.
//!
//! Staging looks at neither, so a shutdown fails half-way where nobody counted before.

use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::node::bootloader::{BootEntry, KernelDirectory};
use crate::root::{Root, RootError, RootPath};

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Which file system, by the number of its device.
    pub device: u64,
    /// All of it, in bytes.
    pub total: u64,
    /// Free for root, what is reserved for it included: ostree works as root and counts so too.
    pub free: u64,
    /// Free for everybody.
    pub available: u64,
    /// How many files it can hold; 0 where nothing limits them but room.
    pub inodes: u64,
    /// How many more.
    pub free_inodes: u64,
}

/// Whether something has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It has.
    Fits,
    /// It has when ostree takes kernels away first that only the rollback deployment needs, as newer versions do by
    /// themselves.
    AfterPruning {
        /// What that gives.
        pruned: u64,
    },
    /// It has not.
    TooSmall {
        /// What is missing, after everything that could be pruned.
        missing: u64,
    },
}

/// What one more kernel needs on `/boot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelRoom {
    /// Bytes of kernel and initramfs; 0 where an equal one is there already.
    pub needed: u64,
    /// Bytes of kernels that only deployments need which go away with the new one.
    pub prunable: u64,
}

/// The layout of entries and directories costs a little besides the kernel.
const ENTRIES: u64 = 1 << 20;
/// ostree's `min-free-space-percent`, where the repository's config does not say another number.
pub const MIN_FREE_PERCENT: u64 = 3;

/// How the file system of a directory is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mounted {
    /// Nothing can be written.
    pub read_only: bool,
    /// No program can be run.
    pub no_exec: bool,
}

impl Mounted {
    /// Of the directory, or of the next one above that is there.
    ///
    /// # Errors
    /// It cannot be opened, or asked.
    pub fn of(root: &Root, path: &RootPath) -> Result<Self, RootError> {
        let mut opened = root.directory(path)?;
        for above in path.ancestors() {
            if opened.is_some() {
                break;
            }
            opened = root.directory(&above)?;
        }
        let flags = match &opened {
            Some(directory) => fstatvfs(directory).map(|stat| stat.flags()),
            None => fstatvfs(root.as_fd()).map(|stat| stat.flags()),
        };
        let flags = flags.map_err(|errno| RootError {
            path: path.to_string(),
            cause: errno.into(),
        })?;
        Ok(Self {
            read_only: flags.contains(FsFlags::ST_RDONLY),
            no_exec: flags.contains(FsFlags::ST_NOEXEC),
        })
    }
}

impl Space {
    /// That of the file system on which a directory is; `None` where there is no directory.
    ///
    /// # Errors
    /// It cannot be opened, or asked.
    pub fn of(root: &Root, path: &RootPath) -> Result<Option<Self>, RootError> {
        let Some(directory) = root.directory(path)? else {
            return Ok(None);
        };
        let failed = |errno: nix::errno::Errno| RootError {
            path: path.to_string(),
            cause: errno.into(),
        };
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

    /// Whether content of this size can be imported: ostree leaves `min_free_percent` of the whole free. What is in
    /// the repository already is not imported again, so `bytes` is the most that it can be.
    pub fn fit_import(&self, bytes: u64, min_free_percent: u64) -> Fit {
        let reserve = self.total / 100 * min_free_percent;
        fit(self.free, bytes.saturating_add(reserve), 0)
    }

    /// Whether one more kernel fits on `/boot`.
    pub fn fit_kernel(&self, room: KernelRoom) -> Fit {
        match room.needed {
            0 => fit(self.free, ENTRIES, room.prunable),
            needed => fit(self.free, needed.saturating_add(ENTRIES), room.prunable),
        }
    }
}

impl Fit {
    /// Whether it has room, now or after pruning.
    pub fn is_enough(self) -> bool {
        !matches!(self, Self::TooSmall { .. })
    }
}

fn fit(free: u64, needed: u64, prunable: u64) -> Fit {
    match needed.checked_sub(free) {
        None | Some(0) => Fit::Fits,
        Some(missing) if missing <= prunable => Fit::AfterPruning { pruned: prunable },
        Some(missing) => Fit::TooSmall {
            missing: missing - prunable,
        },
    }
}

/// What one more kernel needs: `kernel_bytes` of the new deployment, or where that is not known yet, of the largest
/// kernel that is there. `new_directory` is its directory below `boot/ostree`, where that is known; `stays` says of
/// an entry whether its deployment stays (booted, or pinned).
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
    let needed = match new_directory.is_some_and(there) {
        true => 0,
        false => kernel_bytes.unwrap_or(largest),
    };
    let kept = |name: &str| {
        let mut staying = entries.iter().filter(|entry| stays(entry));
        new_directory == Some(name) || staying.any(|entry| entry.kernel_directory() == Some(name))
    };
    // A directory that no entry names is ostree's to clean up at any time.
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
        assert!(!missing.is_enough());
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
        assert!(!space(300, 0).fit_kernel(room).is_enough());
    }

    #[test]
    fn an_import_leaves_what_ostree_wants_to_stay_free() {
        let disk = space(10_000, 400);
        assert_eq!(disk.fit_import(100 * MIB, MIN_FREE_PERCENT), Fit::Fits);
        assert!(!disk.fit_import(101 * MIB, MIN_FREE_PERCENT).is_enough());
        assert_eq!(disk.fit_import(400 * MIB, 0), Fit::Fits);
    }
}
