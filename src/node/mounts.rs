//! Mounting: the only module that changes mounts.
//!
//! Mounts for a run are made in a mount namespace of its own, so that they disappear however the program ends. Only the
//! emergency shell, which outlives this program, has its mounts in the namespace of the boot.
//!
//! Directories of a root are mounted by descriptors that were opened in that root, so no link can redirect a mount.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that changes the tree of mounts"
)]

pub mod stage;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath, descriptor_path};
use crate::node::booted::ostree_link;
use crate::node::sysroot::Deployed;

/// File systems that are tried for media; the user has to mount others by hand.
const FILE_SYSTEMS: [&str; 6] = ["vfat", "exfat", "ext4", "iso9660", "xfs", "udf"];

/// Gives this program a private mount namespace.
pub fn unshare_mounts() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
}

/// Mounts a device read-only, with the given file system type or the first that fits.
pub fn read_only(device: &str, kind: Option<&str>, directory: &Path) -> Result<(), Errno> {
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mut last = Errno::ENODEV;
    for kind in kind.map_or(FILE_SYSTEMS.to_vec(), |kind| vec![kind]) {
        match mount(Some(device), directory, Some(kind), flags, None::<&str>) {
            Ok(()) => return Ok(()),
            // It is another file system, or this kernel lacks support for it.
            Err(errno @ (Errno::EINVAL | Errno::ENODEV)) => last = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// Makes the mount at a directory of the running system writable for this program alone, as ostree does with `/boot`.
///
/// # Errors
/// It is not a mount point, or the kernel refuses.
pub fn make_writable(directory: &Path) -> Result<(), MountError> {
    let open = || Root::open(directory);
    if !is_read_only(open()?.as_fd()) {
        return Ok(());
    }
    let failed = |errno| mount_error("making writable", directory, errno);
    unshare_mounts().map_err(failed)?;
    // Descriptors opened earlier belong to the old namespace.
    remount_directory(open()?.as_fd(), MsFlags::empty()).map_err(failed)
}

/// Detaches a mount: it disappears here at once, and is removed when it is no longer in use.
pub fn let_go(directory: &Path) -> Result<(), Errno> {
    umount2(directory, MntFlags::MNT_DETACH)
}

/// An error in the preparation of a root.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refuses.
    #[error("{doing} {place}: {reason}", place = .path.display())]
    Kernel {
        /// In the gerund.
        doing: &'static str,
        /// Path of the mount.
        path: PathBuf,
        /// The kernel's error.
        reason: Reason,
    },
    /// A directory cannot be opened.
    #[error("{0}. A healthy node has a directory there; look at it with ls -ld")]
    Root(RootError),
    /// The `var` of the deployment cannot be mounted.
    #[error(
        "its var has to be bound first, as root, or by hand: mount --bind {from} {to}: {reason}",
        from = .from.display(), to = .to.display()
    )]
    Var {
        /// The `var` of the stateroot.
        from: PathBuf,
        /// The directory of the deployment.
        to: PathBuf,
        /// The kernel's error.
        reason: Reason,
    },
}

/// Its text is part of the message, so it is not chained as a source.
impl From<RootError> for MountError {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

/// The root of a boot, in its original state and as needed here (docs/develop/ignition.md: First boot).
#[derive(Debug)]
pub struct BootRoot {
    root: Root,
    /// The `var` of the stateroot was bound.
    bound: bool,
    /// Places that were read-only and have been made writable.
    opened: Vec<MountPlace>,
}

/// A directory of a boot's root, or `None` for the root itself.
type MountPlace = Option<RootPath>;

/// The required state of a boot's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootAccess {
    /// To change it.
    Write,
    /// For reading only.
    Read,
}

impl BootRoot {
    /// Binds the real `var` of an OSTree deployment if that has not been done, and makes `etc` and `var` writable.
    ///
    /// At first boot, CoreOS does both for Ignition. At every later boot this program has to do it, and to undo it.
    pub fn prepare(path: &Path, access: RootAccess) -> Result<Self, MountError> {
        let mut root = Self {
            root: Root::open(path)?,
            bound: false,
            opened: Vec::new(),
        };
        root.bind_var()?;
        if access == RootAccess::Write {
            for name in ["etc", "var"] {
                root.open_mount(RootPath::fixed(name))?;
            }
        }
        Ok(root)
    }

    fn bind_var(&mut self) -> Result<(), MountError> {
        let Some(link) = ostree_link() else {
            return Ok(());
        };
        // `/ostree/boot.N/STATEROOT/…`
        let stateroot = link.split('/').nth(3).unwrap_or_default();
        let Ok(from) = RootPath::fixed(paths::STATEROOTS).join(&format!("{stateroot}/var")) else {
            return Ok(());
        };
        let Some(real) = self.root.plain_directory(&from)? else {
            return Ok(());
        };
        let to = RootPath::fixed("var");
        let own = self.root.open_within(&to)?;
        if !is_same(real.as_fd(), own.as_fd()) {
            bind_directory(real.as_fd(), own.as_fd()).map_err(|errno| {
                self.mount_error("binding the stateroot's var on", &Some(to), errno)
            })?;
            self.bound = true;
        }
        Ok(())
    }

    /// Makes the mount that contains a directory writable.
    fn open_mount(&mut self, path: RootPath) -> Result<(), MountError> {
        let Some(directory) = self.root.plain_directory(&path)? else {
            return Ok(());
        };
        if !is_read_only(directory.as_fd()) {
            return Ok(());
        }
        // The directory may be a mount point itself; otherwise it belongs to the root's mount.
        for candidate in [Some(path.clone()), None] {
            match self.remount_place(&candidate, MsFlags::empty()) {
                Ok(()) => self.opened.push(candidate),
                // Not a mount point.
                Err(Errno::EINVAL) => continue,
                Err(errno) => return Err(self.mount_error("making writable", &candidate, errno)),
            }
            if !is_read_only(directory.as_fd()) {
                return Ok(());
            }
        }
        Err(self.mount_error("making writable", &Some(path), Errno::EROFS))
    }

    /// Makes the whole root read-only. Returns true if it was writable.
    pub fn close(&self) -> Result<bool, MountError> {
        if is_read_only(self.root.as_fd()) {
            return Ok(false);
        }
        self.remount_place(&None, MsFlags::MS_RDONLY)
            .map_err(|errno| self.mount_error("making read-only", &None, errno))?;
        Ok(true)
    }

    /// Makes the whole root writable again.
    pub fn reopen(path: &Path) -> Result<(), MountError> {
        let root = Root::open(path)?;
        let again = remount_directory(root.as_fd(), MsFlags::empty());
        again.map_err(|errno| mount_error("making writable", path, errno))
    }

    /// Restores the original state. All written names are on disk by then.
    pub fn give_back(self) {
        let complain = |place: &MountPlace, errno: Errno| {
            let path = self.shown_path(place);
            log::warn!("giving {} back: {}", path.display(), Reason::from(errno));
        };
        for place in self.opened.iter().rev() {
            if let Err(errno) = self.remount_place(place, MsFlags::MS_RDONLY) {
                complain(place, errno);
            }
        }
        let var = Some(RootPath::fixed("var"));
        if self.bound
            && let Err(errno) = self.with_mount(&var, |var| let_go(&descriptor_path(var)))
        {
            complain(&var, errno);
        }
    }

    /// Calls `act` with a directory as currently mounted.
    fn with_mount<T>(
        &self,
        place: &MountPlace,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(path) = place else {
            return act(self.root.as_fd());
        };
        match self.root.plain_directory(path) {
            Ok(Some(directory)) => act(directory.as_fd()),
            Ok(None) => Err(Errno::ENOENT),
            // It was a directory when it was first opened.
            Err(_) => Err(Errno::ELOOP),
        }
    }

    fn remount_place(&self, place: &MountPlace, flags: MsFlags) -> Result<(), Errno> {
        self.with_mount(place, |directory| remount_directory(directory, flags))
    }

    fn shown_path(&self, place: &MountPlace) -> PathBuf {
        let below = place.as_ref().map_or("", RootPath::relative);
        self.root.shown().join(below)
    }

    fn mount_error(&self, doing: &'static str, place: &MountPlace, errno: Errno) -> MountError {
        mount_error(doing, &self.shown_path(place), errno)
    }
}

/// Opens a deployment of another machine's disk with its `var`, visible to this program only and only while it runs. A
/// deployment that already has its `var` is left unchanged.
///
/// # Errors
/// A directory is missing or behind a link, or the kernel refuses to bind.
pub fn enter_deployment(disk: &Path, deployed: &Deployed) -> Result<Root, MountError> {
    let found = Halves::open_disk(disk, deployed)?;
    if is_same(found.var.as_fd(), found.own_var.as_fd()) {
        return Ok(found.deployment);
    }
    unshare_mounts().map_err(|errno| found.open_error(errno))?;
    // Descriptors opened earlier belong to the old namespace.
    let ours = Halves::open_disk(disk, deployed)?;
    bind_directory(ours.var.as_fd(), ours.own_var.as_fd())
        .map_err(|errno| ours.open_error(errno))?;
    Ok(ours.deployment)
}

/// A deployment and the two directories to be joined.
struct Halves {
    deployment: Root,
    var: Root,
    own_var: Root,
}

impl Halves {
    fn open_disk(disk: &Path, deployed: &Deployed) -> Result<Self, RootError> {
        let disk = Root::open(disk)?;
        let deployment = disk.open_within(&deployed.path)?;
        Ok(Self {
            var: disk.open_within(&deployed.var)?,
            own_var: deployment.open_within(&RootPath::fixed("var"))?,
            deployment,
        })
    }

    fn open_error(&self, errno: Errno) -> MountError {
        MountError::Var {
            from: self.var.shown().to_owned(),
            to: self.own_var.shown().to_owned(),
            reason: errno.into(),
        }
    }
}

/// Reopens a deployment together with its disk and `boot`, where a running deployment has them, visible to this program only.
/// Anything that cannot be mounted is logged and left out.
///
/// # Errors
/// The deployment cannot be opened.
pub fn show_disk(disk: &Path, deployment: &RootPath) -> Result<Root, MountError> {
    if let Err(errno) = unshare_mounts() {
        log::info!(
            "{}",
            mount_error("making a mount namespace for", disk, errno)
        );
    }
    let disk = Root::open(disk)?;
    let root = disk.open_within(deployment)?;
    for name in [paths::SYSROOT, paths::BOOT] {
        if let Err(error) = show_in(&disk, &root, name) {
            log::info!("{error}");
        }
    }
    Ok(root)
}

fn show_in(disk: &Root, root: &Root, name: &'static str) -> Result<(), MountError> {
    let path = RootPath::fixed(name);
    let (from, to) = match name {
        paths::SYSROOT => (disk.open_again()?, root.open_within(&path)?),
        _ => (disk.open_within(&path)?, root.open_within(&path)?),
    };
    if is_same(from.as_fd(), to.as_fd()) {
        return Ok(());
    }
    bind_directory(from.as_fd(), to.as_fd())
        .map_err(|errno| mount_error("binding the disk on", to.shown(), errno))
}

fn bind_directory(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let (from, to) = (descriptor_path(from), descriptor_path(to));
    mount(
        Some(&from),
        &to,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
}

fn mount_error(doing: &'static str, path: &Path, errno: Errno) -> MountError {
    MountError::Kernel {
        doing,
        path: path.to_owned(),
        reason: errno.into(),
    }
}

/// Returns true if the mount that contains a directory is read-only.
pub fn is_read_only(directory: impl AsFd) -> bool {
    fstatvfs(directory).is_ok_and(|stat| stat.flags().contains(FsFlags::ST_RDONLY))
}

/// Remounts with these flags. The kernel drops other flags of the mount unless they are repeated, but a boot's root has none.
fn remount_directory(directory: BorrowedFd<'_>, flags: MsFlags) -> Result<(), Errno> {
    let flags = MsFlags::MS_REMOUNT | flags;
    let path = descriptor_path(directory);
    mount(None::<&str>, &path, None::<&str>, flags, None::<&str>)
}

fn is_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let stat = |directory| fstat(directory).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((stat(a), stat(b)), (Ok(a), Ok(b)) if a == b)
}
