//! The private root of a rehearsal: overlays over a node's directories, whose upper layers are in memory.
//!
//! This process has to be the first one of new mount, PID, UTS, IPC, network and cgroup namespaces (`unshare`). Everything that is
//! made here is in a memory file system that only these namespaces have, so it disappears with them, however they end. The
//! directories of the node are lower layers: the kernel never writes to one.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root, sethostname};
use serde::{Deserialize, Serialize};

use crate::base::reason::Reason;

/// Devices without state, which a boot needs.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Directory of the namespaces' root for the old root, until that is detached.
const OLD_ROOT: &str = "run/old-root";

/// The node's directories that a rehearsal is laid over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLayers {
    /// Directory of the deployment.
    pub tree: PathBuf,
    /// Directories of the tree that come from elsewhere, each with the directory that it shows, such as `var`.
    pub within: Vec<(String, PathBuf)>,
    /// Bytes of memory for everything that the boot writes.
    pub size: u64,
}

/// A failed step.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {place}: {reason}", place = .path.display())]
pub struct PrivateRootError {
    doing: &'static str,
    path: PathBuf,
    reason: Reason,
}

impl PrivateRootError {
    fn new(doing: &'static str, path: &Path, reason: impl Into<Reason>) -> Self {
        Self {
            doing,
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

/// The private root.
#[derive(Debug)]
pub struct PrivateRoot {
    /// The memory file system.
    memory: PathBuf,
    /// The root.
    root: PathBuf,
}

impl PrivateRoot {
    /// Lays overlays over the directories, at `place`, an empty directory of the running system.
    ///
    /// # Errors
    /// The kernel refuses a mount, for example because it has no overlays.
    pub fn lay_overlays(place: &Path, layers: &StageLayers) -> Result<Self, PrivateRootError> {
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount_on("/".as_ref(), None, None, private, None)?;
        let options = format!("mode=0700,size={}", layers.size);
        mount_on(
            place,
            Some("tmpfs"),
            Some("tmpfs"),
            MsFlags::MS_NODEV,
            Some(&options),
        )?;
        let stage = Self {
            memory: place.to_owned(),
            root: place.join("root"),
        };
        make_directory(&stage.root, 0o755)?;
        stage.mount_overlay("tree", &layers.tree, &stage.root)?;
        for (name, directory) in &layers.within {
            stage.mount_overlay(name, directory, &stage.root.join(name))?;
        }
        Ok(stage)
    }

    /// Returns the root's path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn mount_overlay(
        &self,
        name: &str,
        lower: &Path,
        target: &Path,
    ) -> Result<(), PrivateRootError> {
        let layer = |kind: &str| self.memory.join(format!("{name}.{kind}"));
        let (upper, work) = (layer("upper"), layer("work"));
        for directory in [&upper, &work] {
            make_directory(directory, 0o755)?;
        }
        let escaped = |path: &Path| {
            path.display()
                .to_string()
                .replace('\\', "\\\\")
                .replace(':', "\\:")
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            escaped(lower),
            upper.display(),
            work.display()
        );
        mount_on(
            target,
            Some("overlay"),
            Some("overlay"),
            MsFlags::empty(),
            Some(&options),
        )
    }

    /// Mounts what a booted system expects below its root: `/proc`, `/sys`, `/dev` and `/run`. `console` is a terminal of the running
    /// system, which becomes `/dev/console`.
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub fn mount_system(&self, console: &Path) -> Result<(), PrivateRootError> {
        let at = |path: &str| self.root.join(path);
        let none = MsFlags::empty();
        mount_on(&at("proc"), Some("proc"), Some("proc"), none, None)?;
        self.make_read_only("proc/sys")?;
        mount_on(
            &at("sys"),
            Some("sysfs"),
            Some("sysfs"),
            MsFlags::MS_RDONLY,
            None,
        )?;
        mount_on(
            &at("sys/fs/cgroup"),
            Some("cgroup2"),
            Some("cgroup2"),
            none,
            None,
        )?;
        let memory = |path: &str, mode: &str| {
            mount_on(
                &at(path),
                Some("tmpfs"),
                Some("tmpfs"),
                MsFlags::MS_NOSUID,
                Some(mode),
            )
        };
        memory("dev", "mode=0755")?;
        self.make_devices()?;
        bind_file(console, &at("dev/console"))?;
        // Otherwise a write there would end the running system.
        if at("proc/sysrq-trigger").exists() {
            bind_path(Path::new("/dev/null"), &at("proc/sysrq-trigger"))?;
        }
        memory("run", "mode=0755")?;
        // The journal of the running system is not read, and this one is not written beside it.
        if at("var/log/journal").is_dir() {
            memory("var/log/journal", "mode=0755")?;
        }
        Ok(())
    }

    /// Makes the devices, terminals and links in `/dev`.
    fn make_devices(&self) -> Result<(), PrivateRootError> {
        let at = |path: &str| self.root.join(path);
        for name in DEVICES {
            let (from, to) = (Path::new("/dev").join(name), at("dev").join(name));
            bind_file(&from, &to)?;
        }
        for name in ["dev/pts", "dev/shm"] {
            make_directory(&at(name), 0o755)?;
        }
        let options = "newinstance,ptmxmode=0666,mode=620,gid=5";
        mount_on(
            &at("dev/pts"),
            Some("devpts"),
            Some("devpts"),
            MsFlags::empty(),
            Some(options),
        )?;
        make_link("pts/ptmx", &at("dev/ptmx"))?;
        for (target, name) in [
            ("/proc/self/fd", "fd"),
            ("/proc/self/fd/0", "stdin"),
            ("/proc/self/fd/1", "stdout"),
            ("/proc/self/fd/2", "stderr"),
        ] {
            make_link(target, &at("dev").join(name))?;
        }
        Ok(())
    }

    fn make_read_only(&self, name: &str) -> Result<(), PrivateRootError> {
        let path = self.root.join(name);
        bind_path(&path, &path)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount_on(&path, None, None, flags, None)
    }

    /// Writes a new file below the private `/run`, and creates its directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn put_in_run(&self, name: &str, text: &str) -> Result<(), PrivateRootError> {
        let path = self.root.join("run").join(name);
        let failed = |error: io::Error| PrivateRootError::new("writing", &path, error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&path, text).map_err(failed)
    }

    /// Makes the private root the root of these namespaces, and detaches the node's own.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter_root(self, host_name: &str) -> Result<(), PrivateRootError> {
        let root = self.root;
        let failed =
            |doing| move |errno: nix::Error| PrivateRootError::new(doing, "/".as_ref(), errno);
        sethostname(host_name).map_err(failed("setting the host name"))?;
        make_directory(&root.join(OLD_ROOT), 0o700)?;
        chdir(&root).map_err(failed("entering"))?;
        pivot_root(".", OLD_ROOT).map_err(failed("changing the root"))?;
        let old = Path::new("/").join(OLD_ROOT);
        umount2(&old, MntFlags::MNT_DETACH)
            .map_err(|errno| PrivateRootError::new("detaching", &old, errno))?;
        fs::remove_dir(&old).map_err(|error| PrivateRootError::new("removing", &old, error))
    }
}

fn make_directory(path: &Path, mode: u32) -> Result<(), PrivateRootError> {
    let failed = |error: io::Error| PrivateRootError::new("creating", path, error);
    fs::create_dir(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
}

fn make_link(target: &str, path: &Path) -> Result<(), PrivateRootError> {
    symlink(target, path).map_err(|error| PrivateRootError::new("linking", path, error))
}

fn bind_file(from: &Path, to: &Path) -> Result<(), PrivateRootError> {
    fs::write(to, "").map_err(|error| PrivateRootError::new("creating", to, error))?;
    bind_path(from, to)
}

fn bind_path(from: &Path, to: &Path) -> Result<(), PrivateRootError> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| PrivateRootError::new("binding", to, errno))
}

fn mount_on(
    target: &Path,
    source: Option<&str>,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), PrivateRootError> {
    mount(source, target, kind, flags, options)
        .map_err(|errno| PrivateRootError::new("mounting", target, errno))
}
