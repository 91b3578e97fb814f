//! Which deployment of OSTree a root is.
//!
//! The `ostree=` of the kernel command line does not tell it for long: whatever changes the boot entries of a running
//! node (`rpm-ostree rollback`, `rpm-ostree cleanup -r`, `ostree admin undeploy`) renames the directory that it leads
//! through. So what runs is known as libostree knows it, by device and inode, and the link counts where these are of
//! no deployment.

use std::ffi::{OsStr, OsString};

use crate::paths;
use crate::root::{Root, RootPath, descriptor_path, stat_of_open};

use super::deploy_directories::{self, is_name};
use super::host::kernel_command_line;

/// A directory, whatever it is called.
type Identity = (u64, u64);

/// The key of `/run/ostree-booted` whose value is the directory that the root was made of.
const BACKING: &[u8] = b"backing-root-device-inode\0";
/// The type of that value, after it.
const TWO_NUMBERS: &[u8] = b"\0(tt)";

/// `CHECKSUM.SERIAL` of the deployment that the root is. `boots`: its kernel runs.
pub fn deployment(root: &Root, boots: bool) -> Option<String> {
    if boots && let Some(name) = of_identity(root).or_else(|| of_kernel(root)) {
        return Some(name);
    }
    valid(own_name(root)?.to_str()?)
}

#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
fn own_name(root: &Root) -> Option<OsString> {
    let path = std::fs::read_link(descriptor_path(root.as_fd())).ok()?;
    path.file_name().map(OsStr::to_owned)
}

/// The running system was booted by OSTree, and rpm-ostree can be asked.
#[allow(
    clippy::disallowed_methods,
    reason = "a file of the running system, not of the node's root"
)]
pub fn by_ostree() -> bool {
    std::fs::metadata(format!("/{}", paths::OSTREE_BOOTED)).is_ok()
}

/// The link of `ostree=`: `/ostree/boot.N/STATEROOT/BOOTCSUM/INDEX`. What it leads to may be gone.
pub fn ostree_link() -> Option<String> {
    let command_line = kernel_command_line()?;
    let mut words = command_line.split_whitespace();
    words
        .find_map(|word| word.strip_prefix("ostree="))
        .map(str::to_owned)
}

/// The deployment whose directory is the root, or was made the root.
fn of_identity(root: &Root) -> Option<String> {
    let (own, _) = stat_of_open(root.as_fd()).ok()?;
    let known = [Some((own.st_dev, own.st_ino)), made_of()];
    let mut all = deploy_directories::list(root).ok()?.into_iter();
    let found = all.find(|one| known.contains(&Some(one.identity)))?;
    Some(found.name)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a file of the running system, not of the node's root"
)]
fn made_of() -> Option<Identity> {
    backing(&std::fs::read(format!("/{}", paths::OSTREE_BOOTED)).ok()?)
}

/// The two numbers after their key, aligned to eight bytes: a dictionary of GVariant. Older versions leave it empty.
fn backing(booted: &[u8]) -> Option<Identity> {
    let key = booted
        .windows(BACKING.len())
        .position(|bytes| bytes == BACKING)?;
    let value = booted.get((key + BACKING.len()).next_multiple_of(8)..)?;
    let number = |at: usize| {
        let bytes = value.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let is_typed = value
        .get(16..)
        .is_some_and(|rest| rest.starts_with(TWO_NUMBERS));
    is_typed.then_some((number(0)?, number(8)?))
}

/// The deployment shows the physical root at its `sysroot`.
fn of_kernel(root: &Root) -> Option<String> {
    let link = RootPath::fixed(paths::SYSROOT).join(&ostree_link()?).ok()?;
    let target = root.read_link(&link).ok()??;
    valid(target.rsplit('/').next()?)
}

fn valid(name: &str) -> Option<String> {
    is_name(name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ostree-prepare-root` 2025.2 wrote it.
    const WRITTEN: &[u8] = b"backing-root-device-inode\0\0\0\0\0\0\0\
        \x02\x07\0\0\0\0\0\0\x1b\0\0\0\0\0\0\0\0(tt)\x1a\0\0\
        root.transient\0\0\0\0b\x0f\0\0\0\0sysroot-ro\0\0\0\0\0\0\x01\0b\x0b6Ld";

    #[test]
    fn the_directory_that_the_root_was_made_of_is_read() {
        assert_eq!(WRITTEN.len(), 103);
        assert_eq!(backing(WRITTEN), Some((1794, 27)));
    }

    #[test]
    fn nothing_is_read_out_of_what_is_not_there() {
        assert_eq!(backing(b""), None);
        for length in 0..53 {
            assert_eq!(backing(&WRITTEN[..length]), None, "{length}");
        }
        assert_eq!(backing(b"backing-root-device-inode\0 and then text"), None);
    }
}
