//! Mounting: the only place that changes the tree of mounts.
//!
//! What is mounted for a run is mounted in a mount namespace of its own, so that it is let go of however the program
//! ends. Only the shell of last resort, which outlives us, has its mounts in the namespace of the boot.
//!
//! Directories of a root are mounted by their descriptors, opened in that root: no link on it leads a mount elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that changes the tree of mounts"
)]

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

/// File systems that media carry; what else the kernel knows is mounted by hand.
const FILE_SYSTEMS: [&str; 6] = ["vfat", "exfat", "ext4", "iso9660", "xfs", "udf"];

/// Gives this program mounts that no other program sees.
pub fn own() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
}

/// Mounts a device read-only: with the file system that is known to be on it, else with whichever fits.
pub fn read_only(device: &str, kind: Option<&str>, directory: &Path) -> Result<(), Errno> {
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mut last = Errno::ENODEV;
    for kind in kind.map_or(FILE_SYSTEMS.to_vec(), |kind| vec![kind]) {
        match mount(Some(device), directory, Some(kind), flags, None::<&str>) {
            Ok(()) => return Ok(()),
            // Another file system, or one that this kernel does not know.
            Err(errno @ (Errno::EINVAL | Errno::ENODEV)) => last = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// Makes the mount at a directory of the running system writable for this program alone, as ostree does for `/boot`.
///
/// # Errors
/// It is no mount, or the kernel does not do it.
pub fn make_writable(directory: &Path) -> Result<(), MountError> {
    let open = || Root::open(directory);
    if !is_read_only(open()?.as_fd()) {
        return Ok(());
    }
    let failed = |errno| error("making writable", directory, errno);
    own().map_err(failed)?;
    // What was opened before belongs to the mounts of others.
    remount(open()?.as_fd(), MsFlags::empty()).map_err(failed)
}

/// Unmounts, at once for us and for good when it is not used any more.
pub fn let_go(directory: &Path) -> Result<(), Errno> {
    umount2(directory, MntFlags::MNT_DETACH)
}

/// An error while a root is prepared.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel does not do it.
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
    /// The deployment cannot get its `var`.
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

/// Its words are part of the message, so it is no cause of its own.
impl From<RootError> for MountError {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

/// The root of a boot, as it was found and as we need it (docs/ignition.md: First boot).
#[derive(Debug)]
pub struct BootRoot {
    root: Root,
    /// The `var` of the stateroot was bound.
    bound: bool,
    /// Places that were read-only and are writable now.
    opened: Vec<MountPlace>,
}

/// A directory of the root of a boot: one in it, or the root itself.
type MountPlace = Option<RootPath>;

/// The wanted state of a boot's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootAccess {
    /// To change it.
    Write,
    /// To look at it.
    Read,
}

impl BootRoot {
    /// Binds the real `var` of an OSTree deployment where that is not done yet, and makes `etc` and `var` writable.
    ///
    /// On a first boot CoreOS does both for Ignition; on every later boot they are ours to do, and to undo.
    pub fn prepare(path: &Path, access: RootAccess) -> Result<Self, MountError> {
        let mut root = Self {
            root: Root::open(path)?,
            bound: false,
            opened: Vec::new(),
        };
        root.bind_var()?;
        if access == RootAccess::Write {
            for name in ["etc", "var"] {
                root.open(RootPath::fixed(name))?;
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
        let own = self.root.within(&to)?;
        if !is_same(real.as_fd(), own.as_fd()) {
            bind(real.as_fd(), own.as_fd())
                .map_err(|errno| self.error("binding the stateroot's var on", &Some(to), errno))?;
            self.bound = true;
        }
        Ok(())
    }

    /// Makes the mount that holds a directory writable.
    fn open(&mut self, path: RootPath) -> Result<(), MountError> {
        let Some(directory) = self.root.plain_directory(&path)? else {
            return Ok(());
        };
        if !is_read_only(directory.as_fd()) {
            return Ok(());
        }
        // A mount of its own is the directory itself; else the root's mount holds it.
        for candidate in [Some(path.clone()), None] {
            match self.remount(&candidate, MsFlags::empty()) {
                Ok(()) => self.opened.push(candidate),
                // No mount point.
                Err(Errno::EINVAL) => continue,
                Err(errno) => return Err(self.error("making writable", &candidate, errno)),
            }
            if !is_read_only(directory.as_fd()) {
                return Ok(());
            }
        }
        Err(self.error("making writable", &Some(path), Errno::EROFS))
    }

    /// Makes the whole root read-only. Returns true if it was writable.
    pub fn close(&self) -> Result<bool, MountError> {
        if is_read_only(self.root.as_fd()) {
            return Ok(false);
        }
        self.remount(&None, MsFlags::MS_RDONLY)
            .map_err(|errno| self.error("making read-only", &None, errno))?;
        Ok(true)
    }

    /// Opens the whole root for writing again.
    pub fn reopen(path: &Path) -> Result<(), MountError> {
        let root = Root::open(path)?;
        let again = remount(root.as_fd(), MsFlags::empty());
        again.map_err(|errno| error("making writable", path, errno))
    }

    /// Everything as it was found. The names that were written are on disk by then.
    pub fn give_back(self) {
        let complain = |place: &MountPlace, errno: Errno| {
            let path = self.shown(place);
            log::warn!("giving {} back: {}", path.display(), Reason::from(errno));
        };
        for place in self.opened.iter().rev() {
            if let Err(errno) = self.remount(place, MsFlags::MS_RDONLY) {
                complain(place, errno);
            }
        }
        let var = Some(RootPath::fixed("var"));
        if self.bound
            && let Err(errno) = self.with(&var, |var| let_go(&descriptor_path(var)))
        {
            complain(&var, errno);
        }
    }

    /// Does something with a directory as it is now, with what is mounted on it.
    fn with<T>(
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
            // It was a directory when it was opened first.
            Err(_) => Err(Errno::ELOOP),
        }
    }

    fn remount(&self, place: &MountPlace, flags: MsFlags) -> Result<(), Errno> {
        self.with(place, |directory| remount(directory, flags))
    }

    fn shown(&self, place: &MountPlace) -> PathBuf {
        let below = place.as_ref().map_or("", RootPath::relative);
        self.root.shown().join(below)
    }

    fn error(&self, doing: &'static str, place: &MountPlace, errno: Errno) -> MountError {
        error(doing, &self.shown(place), errno)
    }
}

/// Opens a deployment of a disk in another machine, with its `var`; for us alone, and gone with us. One that has it
/// already is left as it is.
///
/// # Errors
/// A directory of it is missing or behind a link, or the kernel does not bind.
pub fn enter_deployment(disk: &Path, deployed: &Deployed) -> Result<Root, MountError> {
    let found = Halves::open(disk, deployed)?;
    if is_same(found.var.as_fd(), found.own_var.as_fd()) {
        return Ok(found.deployment);
    }
    own().map_err(|errno| found.error(errno))?;
    // What was opened before belongs to the mounts of others.
    let ours = Halves::open(disk, deployed)?;
    bind(ours.var.as_fd(), ours.own_var.as_fd()).map_err(|errno| ours.error(errno))?;
    Ok(ours.deployment)
}

/// A deployment and the two directories that are to be one.
struct Halves {
    deployment: Root,
    var: Root,
    own_var: Root,
}

impl Halves {
    fn open(disk: &Path, deployed: &Deployed) -> Result<Self, RootError> {
        let disk = Root::open(disk)?;
        let deployment = disk.within(&deployed.path)?;
        Ok(Self {
            var: disk.within(&deployed.var)?,
            own_var: deployment.within(&RootPath::fixed("var"))?,
            deployment,
        })
    }

    fn error(&self, errno: Errno) -> MountError {
        MountError::Var {
            from: self.var.shown().to_owned(),
            to: self.own_var.shown().to_owned(),
            reason: errno.into(),
        }
    }
}

/// Opens a deployment once more, with the disk and its `boot` where a running deployment has them; for us alone. What
/// cannot be shown is said and left out.
///
/// # Errors
/// The deployment cannot be opened.
pub fn show_disk(disk: &Path, deployment: &RootPath) -> Result<Root, MountError> {
    if let Err(errno) = own() {
        log::info!("{}", error("making a mount namespace for", disk, errno));
    }
    let disk = Root::open(disk)?;
    let root = disk.within(deployment)?;
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
        paths::SYSROOT => (disk.again()?, root.within(&path)?),
        _ => (disk.within(&path)?, root.within(&path)?),
    };
    if is_same(from.as_fd(), to.as_fd()) {
        return Ok(());
    }
    bind(from.as_fd(), to.as_fd()).map_err(|errno| error("binding the disk on", to.shown(), errno))
}

fn bind(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let (from, to) = (descriptor_path(from), descriptor_path(to));
    mount(
        Some(&from),
        &to,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
}

fn error(doing: &'static str, path: &Path, errno: Errno) -> MountError {
    MountError::Kernel {
        doing,
        path: path.to_owned(),
        reason: errno.into(),
    }
}

/// Returns true if the mount of a directory is read-only.
pub fn is_read_only(directory: impl AsFd) -> bool {
    fstatvfs(directory).is_ok_and(|stat| stat.flags().contains(FsFlags::ST_RDONLY))
}

/// Other flags of the mount are kept by the kernel only if they are given again; a root of a boot has none.
fn remount(directory: BorrowedFd<'_>, flags: MsFlags) -> Result<(), Errno> {
    let flags = MsFlags::MS_REMOUNT | flags;
    let path = descriptor_path(directory);
    mount(None::<&str>, &path, None::<&str>, flags, None::<&str>)
}

fn is_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let stat = |directory| fstat(directory).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((stat(a), stat(b)), (Ok(a), Ok(b)) if a == b)
}
