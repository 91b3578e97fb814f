//! Facts about this process and the kind of the root.

use std::collections::HashSet;
use std::io::Read;

use nix::unistd::{getegid, geteuid};

use crate::base::paths;
use crate::config::controllers::kubelet::values::MachineSize;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle};
use crate::host::running;
use crate::host::sys::privileges::{self, Capability};

use super::booted;
use super::engine::{Engine, installed_engine};
use super::kernel::read_fips;

/// Facts that do not depend on the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Effective user and group id of this process.
    pub user: (u32, u32),
    /// Owners can be set: this process is root and may change owners, or would report the missing capability.
    pub can_chown: bool,
    /// The capabilities in force.
    pub capabilities: HashSet<Capability>,
    /// True if the root is that of the running system.
    pub live: bool,
    /// `var` is a separate mount: in an initramfs, and in an OSTree deployment that was not booted.
    pub separate_var: bool,
    /// That mount is missing and the directory is empty.
    pub var_missing: bool,
    /// The process runs in an initramfs, and the root is the one that is about to be booted.
    pub in_initramfs: bool,
    /// systemd has not completed the first boot, in which it presets all units.
    pub never_booted: bool,
    /// The root has the OS's copy of `/etc` in `/usr/etc`, like all OSTree systems.
    pub has_usr_etc: bool,
    /// `CHECKSUM.SERIAL` of the root's OSTree deployment.
    pub deployment: Option<String>,
    /// The program that stages the root's operating system.
    pub engine: Engine,
    /// FIPS mode of the running kernel, if the root uses that kernel.
    pub fips: Option<bool>,
}

impl Host {
    /// Reads the facts about process and root.
    pub fn observe(root: &Root) -> Result<Self, RootError> {
        let live = root.is_live();
        let capabilities = privileges::effective_capabilities();
        let in_initramfs = !live && in_initramfs();
        let deployment = booted::find_booted_deployment(root, live || in_initramfs)?;
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
            engine: installed_engine(root)?,
            deployment,
            fips: of_kernel(live, in_initramfs),
        })
    }

    /// Returns true for the root of an image-based system.
    pub fn is_image(&self) -> bool {
        self.deployment.is_some() || self.has_usr_etc
    }

    /// Returns the owner that a file will actually get: for an ordinary user, always that user.
    pub fn attainable_owner(&self, wanted: (u32, u32)) -> (u32, u32) {
        if self.can_chown { wanted } else { self.user }
    }
}

/// Returns the size of the machine as reported by the kernel, except for disks.
pub fn machine_size(root: &Root) -> Option<MachineSize> {
    let text = |path: &'static str| {
        let bytes = root.read(&RootPath::fixed(path)).ok()??;
        String::from_utf8(bytes).ok()
    };
    let memory = text("proc/meminfo")?;
    let mut words = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .split_whitespace();
    let kibibytes: u64 = words.next()?.parse().ok()?;
    let online = text("sys/devices/system/cpu/online")?;
    Some(MachineSize {
        memory: kibibytes << 10,
        processors: count_processors(online.trim())?,
    })
}

/// Counts a list of processors such as `0-3,8`.
fn count_processors(list: &str) -> Option<u64> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        (last.checked_sub(first)?).checked_add(1)
    });
    ranges.sum()
}

/// A library that every node has; its header names the architecture.
const LIBRARY: &str = "usr/lib64/libc.so.6";
/// Architectures: the number in the ELF header, whether it is big-endian, and the name.
const MACHINES: [(u16, bool, &str); 4] = [
    (0x3e, false, "x86_64"),
    (0xb7, false, "aarch64"),
    (0x15, false, "ppc64le"),
    (0x16, true, "s390x"),
];

/// Returns the architecture of a root: this program's on the running system, else that of the root's C library.
pub fn host_architecture(root: &Root, live: bool) -> Option<&'static str> {
    if live {
        return Some(std::env::consts::ARCH).map(|name| match name {
            "powerpc64" => "ppc64le",
            name => name,
        });
    }
    let mut file = root.open_followed(&RootPath::fixed(LIBRARY)).ok()??;
    let mut header = [0; 20];
    file.read_exact(&mut header).ok()?;
    let [0x7f, b'E', b'L', b'F', _, order, .., a, b] = header else {
        return None;
    };
    let big = order == 2;
    let number = if big {
        u16::from_be_bytes([a, b])
    } else {
        u16::from_le_bytes([a, b])
    };
    let found = MACHINES
        .iter()
        .find(|(one, order, _)| (*one, *order) == (number, big));
    found.map(|(.., name)| *name)
}

/// Returns true if systemd has not completed the first boot: `machine-id(5)` is missing, empty or `uninitialized`.
fn never_booted(root: &Root) -> Result<bool, RootError> {
    let id = skip_obstacle(root.read(&RootPath::fixed(paths::MACHINE_ID)))?;
    let id = id.unwrap_or_default();
    let text = String::from_utf8_lossy(&id);
    Ok(matches!(text.trim(), "" | "uninitialized"))
}

fn in_initramfs() -> bool {
    running::exists(format!("/{}", paths::INITRD_RELEASE))
}

/// Returns whether FIPS mode is on. On a running node whose kernel has no such mode, the daemon makes no judgement
/// (docs/develop/agreement.md: Transitions); in the initramfs of a first boot it is then off.
fn of_kernel(live: bool, in_initramfs: bool) -> Option<bool> {
    let known = (live || in_initramfs).then(read_fips).flatten();
    known.or(in_initramfs.then_some(false))
}

/// Returns true if the root is that of the running system and systemd is running it. If that cannot be determined, systemd is
/// queried later, and no answer is then an error.
pub fn systemd_runs(root: &Root) -> bool {
    root.is_live()
        && root
            .exists(&RootPath::fixed(paths::SYSTEMD_RUNS))
            .unwrap_or_else(|error| {
                log::warn!("{error}; systemd is taken to be running");
                true
            })
}
