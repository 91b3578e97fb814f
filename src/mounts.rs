//! Mounting: the only place that changes the tree of mounts.
//!
//! What is mounted for a run is mounted in a mount namespace of its own, so that it is let go of however the program
//! ends. Only the shell of last resort, which outlives us, has its mounts in the namespace of the boot.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::error::Reason;
use crate::node::host::ostree_link;

/// File systems that media carry; what else the kernel knows is mounted by hand.
const FILE_SYSTEMS: [&str; 6] = ["vfat", "exfat", "ext4", "iso9660", "xfs", "udf"];

/// Mounts of this program that nobody else sees.
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

/// Unmounts, at once for us and for good when nobody uses it any more.
pub fn let_go(directory: &Path) -> Result<(), Errno> {
    umount2(directory, MntFlags::MNT_DETACH)
}

/// Why a root cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {place}: {reason}", place = .path.display())]
pub struct MountError {
    /// In the gerund.
    pub doing: &'static str,
    /// Where.
    pub path: PathBuf,
    /// What the kernel said.
    pub reason: Reason,
}

/// The root of a boot, as it was found and as we need it (ignition-contract 10.3).
#[derive(Debug)]
pub struct BootRoot {
    path: PathBuf,
    /// Where the `var` of the stateroot was bound.
    bound: Option<PathBuf>,
    /// What was read-only and is writable now.
    opened: Vec<PathBuf>,
}

/// How the root of a boot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To change it.
    Write,
    /// To look at it.
    Read,
}

impl BootRoot {
    /// Binds the real `var` of an OSTree deployment where nobody did that yet, and makes `etc` and `var` writable.
    ///
    /// On a first boot CoreOS does both for Ignition; on every later boot they are ours to do, and to undo.
    pub fn prepare(path: &Path, access: Access) -> Result<Self, MountError> {
        let mut root = Self {
            path: path.to_owned(),
            bound: None,
            opened: Vec::new(),
        };
        root.bind_var()?;
        if access == Access::Write {
            for name in ["etc", "var"] {
                root.open(name)?;
            }
        }
        Ok(root)
    }

    fn bind_var(&mut self) -> Result<(), MountError> {
        let Some(link) = ostree_link() else {
            return Ok(());
        };
        // `/ostree/boot.N/STATEROOT/…`
        let Some(stateroot) = link.split('/').nth(3) else {
            return Ok(());
        };
        let deploy = self.path.join("sysroot/ostree/deploy");
        let (from, to) = (deploy.join(stateroot).join("var"), self.path.join("var"));
        if !from.is_dir() || same_directory(&from, &to) {
            return Ok(());
        }
        bind_var(&from, &to)?;
        self.bound = Some(to);
        Ok(())
    }

    /// Makes the mount that holds a directory writable.
    fn open(&mut self, name: &str) -> Result<(), MountError> {
        let directory = self.path.join(name);
        if !directory.is_dir() || !is_read_only(&directory) {
            return Ok(());
        }
        // A mount of its own is the directory itself; else the root's mount holds it.
        for candidate in [directory.clone(), self.path.clone()] {
            match remount(&candidate, MsFlags::empty()) {
                Ok(()) => self.opened.push(candidate),
                // No mount point.
                Err(Errno::EINVAL) => continue,
                Err(errno) => return Err(error("making writable", &candidate, errno)),
            }
            if !is_read_only(&directory) {
                return Ok(());
            }
        }
        Err(error("making writable", &directory, Errno::EROFS))
    }

    /// Closes the whole root for writing; says whether it was open.
    pub fn close(&self) -> Result<bool, MountError> {
        if is_read_only(&self.path) {
            return Ok(false);
        }
        remount(&self.path, MsFlags::MS_RDONLY)
            .map_err(|errno| error("making read-only", &self.path, errno))?;
        Ok(true)
    }

    /// Opens the whole root for writing again.
    pub fn reopen(path: &Path) -> Result<(), MountError> {
        remount(path, MsFlags::empty()).map_err(|errno| error("making writable", path, errno))
    }

    /// Everything as it was found. The names that were written are on disk by then.
    pub fn give_back(self) {
        let complain = |what: &Path, errno: Errno| {
            log::warn!("giving {} back: {}", what.display(), Reason::from(errno));
        };
        for path in self.opened.iter().rev() {
            if let Err(errno) = remount(path, MsFlags::MS_RDONLY) {
                complain(path, errno);
            }
        }
        if let Some(var) = &self.bound
            && let Err(errno) = let_go(var)
        {
            complain(var, errno);
        }
    }
}

/// Gives a deployment the `var` of its stateroot.
fn bind_var(from: &Path, to: &Path) -> Result<(), MountError> {
    let bound = mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>);
    bound.map_err(|errno| error("binding the stateroot's var on", to, errno))
}

/// A deployment of a disk in another machine, with its `var`; for us alone, and gone with us. One that has it already
/// is left as it is.
pub fn bind_for_us(from: &Path, to: &Path) -> Result<(), MountError> {
    if same_directory(from, to) {
        return Ok(());
    }
    own().map_err(|errno| error("making a mount namespace for", to, errno))?;
    bind_var(from, to)
}

fn error(doing: &'static str, path: &Path, errno: Errno) -> MountError {
    MountError {
        doing,
        path: path.to_owned(),
        reason: errno.into(),
    }
}

fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|stat| stat.flags().contains(FsFlags::ST_RDONLY))
}

/// Other flags of the mount are kept by the kernel only if they are given again; a root of a boot has none.
fn remount(path: &Path, flags: MsFlags) -> Result<(), Errno> {
    let flags = MsFlags::MS_REMOUNT | flags;
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}

fn same_directory(a: &Path, b: &Path) -> bool {
    let stat = |path: &Path| nix::sys::stat::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((stat(a), stat(b)), (Ok(a), Ok(b)) if a == b)
}
