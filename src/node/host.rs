//! Facts about this process and the kind of the root.

use std::collections::HashSet;

use nix::unistd::{getegid, geteuid};

use crate::paths;
use crate::root::{Root, RootError, RootPath, skip_obstacle};
use crate::sys::privileges::{self, Capability};

use super::booted;

/// Facts that do not depend on the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Effective user and group id of this process.
    pub user: (u32, u32),
    /// Owners can be set: root may change owners, or reports the missing capability.
    pub can_chown: bool,
    /// The capabilities in force.
    pub capabilities: HashSet<Capability>,
    /// The root is that of the running system.
    pub live: bool,
    /// `var` is a separate mount: in an initramfs, and in an OSTree deployment that was not booted.
    pub separate_var: bool,
    /// That mount is missing: the directory is empty.
    pub var_missing: bool,
    /// The process runs in an initramfs, and the root is the one that is about to be entered.
    pub in_initramfs: bool,
    /// systemd has not finished its first boot, which presets all units.
    pub never_booted: bool,
    /// The root has the OS's copy of `/etc` below `/usr`, as OSTree systems do.
    pub has_usr_etc: bool,
    /// `CHECKSUM.SERIAL` of the root's OSTree deployment.
    pub deployment: Option<String>,
    /// FIPS mode of the running kernel, if it is the root's kernel.
    pub fips: Option<bool>,
}

impl Host {
    /// Reads the facts about process and root.
    pub fn observe(root: &Root) -> Result<Self, RootError> {
        let live = root.is_live();
        let capabilities = privileges::effective();
        let in_initramfs = !live && in_initramfs();
        let deployment = booted::deployment(root, live || in_initramfs)?;
        let separate_var = !live && (deployment.is_some() || in_initramfs);
        let exists = |path: &'static str| root.exists(&RootPath::fixed(path));
        Ok(Self {
            user: (geteuid().as_raw(), getegid().as_raw()),
            can_chown: geteuid().is_root() || capabilities.contains(&Capability::CAP_CHOWN),
            capabilities,
            live,
            separate_var,
            in_initramfs,
            var_missing: separate_var && root.list(&RootPath::fixed("var"))?.is_empty(),
            never_booted: never_booted(root)?,
            has_usr_etc: exists("usr/etc")?,
            deployment,
            fips: of_kernel(live, in_initramfs),
        })
    }

    /// Returns true for the root of an image-based system.
    pub fn is_image(&self) -> bool {
        self.deployment.is_some() || self.has_usr_etc
    }

    /// Returns the owner that a file can get: for an ordinary user it is always that user.
    pub fn attainable(&self, wanted: (u32, u32)) -> (u32, u32) {
        if self.can_chown { wanted } else { self.user }
    }
}

/// Reads `machine-id(5)`: missing, empty or `uninitialized` means that the first boot is still to come.
fn never_booted(root: &Root) -> Result<bool, RootError> {
    let id = skip_obstacle(root.read(&RootPath::fixed(paths::MACHINE_ID)))?;
    let id = id.unwrap_or_default();
    let text = String::from_utf8_lossy(&id);
    Ok(matches!(text.trim(), "" | "uninitialized"))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the running system's own files, not the node's root"
)]
fn in_initramfs() -> bool {
    std::fs::metadata(format!("/{}", paths::INITRD_RELEASE)).is_ok()
}

/// On a running node the daemon does not judge a kernel that knows no such mode (docs/agreement.md: Transitions); one that is about to
/// run a node for the first time is not in it.
fn of_kernel(live: bool, in_initramfs: bool) -> Option<bool> {
    let known = (live || in_initramfs).then(fips).flatten();
    known.or(in_initramfs.then_some(false))
}

#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
fn fips() -> Option<bool> {
    let text = std::fs::read_to_string("/proc/sys/crypto/fips_enabled").ok()?;
    Some(text.trim() == "1")
}

/// Returns the command line of the running kernel.
#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
pub fn kernel_command_line() -> Option<String> {
    std::fs::read_to_string("/proc/cmdline").ok()
}

/// Returns the id of the running boot.
#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Returns the seconds since the kernel started.
#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
pub fn uptime() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    text.split('.').next()?.parse().ok()
}

/// Returns true if the root is that of the running system, and systemd runs it. Where that cannot be seen, systemd is asked,
/// and its silence is an error there.
pub fn systemd_runs(root: &Root) -> bool {
    root.is_live()
        && root
            .exists(&RootPath::fixed(paths::SYSTEMD_RUNS))
            .unwrap_or_else(|error| {
                log::warn!("{error}; systemd is taken to be running");
                true
            })
}
