//! The OSTree deployment of a root.
//!
//! The `ostree=` of the kernel command line goes stale: every change of the boot entries of a running node (`rpm-ostree
//! rollback`, `rpm-ostree cleanup -r`, `ostree admin undeploy`) renames the directory in it. So the running deployment is
//! identified by device and inode, as in libostree; the link is used only if these match no deployment.

use std::ffi::{OsStr, OsString};

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath, descriptor_path, skip_obstacle, stat_of_open};
use crate::host::running;
use crate::host::sys::privileges::opens_all;

use super::deploy_directories::{self, DeployDirectory, is_name};
use super::kernel::kernel_command_line;

/// Device and inode of a directory.
type FileIdentity = (u64, u64);

/// The key for the root's directory in `/run/ostree-booted`.
const BACKING: &[u8] = b"backing-root-device-inode\0";
/// The type of that value, which follows it.
const TWO_NUMBERS: &[u8] = b"\0(tt)";

/// Returns `CHECKSUM.SERIAL` of the root's deployment; `None` if it has none. `boots` is true if the root's kernel is running.
///
/// # Errors
/// The directories of the deployments cannot be read. Continuing would risk taking another deployment for the running one.
pub fn find_booted_deployment(root: &Root, boots: bool) -> Result<Option<String>, RootError> {
    if boots {
        let found = match of_identity(root)? {
            None => of_kernel(root)?,
            found => found,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(own_name(root).and_then(|name| valid_name(name.to_str()?)))
}

fn own_name(root: &Root) -> Option<OsString> {
    let path = running::read_link(descriptor_path(root.as_fd())).ok()?;
    path.file_name().map(OsStr::to_owned)
}

/// Returns true if OSTree booted the running system, so that rpm-ostree can be queried.
pub fn by_ostree() -> bool {
    running::exists(format!("/{}", paths::OSTREE_BOOTED))
}

/// Returns the link in `ostree=`: `/ostree/boot.N/STATEROOT/BOOTCSUM/INDEX`. Its target may be missing.
pub fn ostree_link() -> Option<String> {
    let line = Kargs::parse(&kernel_command_line()?);
    let mut words = line.tokens().iter();
    words
        .find_map(|word| word.strip_prefix("ostree="))
        .map(str::to_owned)
}

/// Returns the deployment whose directory is the root, or became the root.
fn of_identity(root: &Root) -> Result<Option<String>, RootError> {
    let (own, _) = stat_of_open(root.as_fd()).map_err(|errno| RootError::at("/", errno))?;
    let all = match deploy_directories::list_deploy_directories(root) {
        // An ordinary user changes nothing here, so the kernel's link is good enough for display.
        Err(error) if error.cause.is_denied() && !opens_all() => return Ok(None),
        all => all?,
    };
    if all.is_empty() {
        return Ok(None);
    }
    let named = |identity| all.iter().find(|one| Some(one.identity) == identity);
    let mut found = named(Some((own.st_dev, own.st_ino)));
    if found.is_none() {
        found = find_by_etc(root, &all)?;
    }
    if found.is_none() {
        found = named(made_of()?);
    }
    Ok(found.map(|one| one.name.clone()))
}

/// Returns the deployment whose `etc` is mounted as the root's. After a soft reboot into a composefs image,
/// `/run/ostree-booted` still describes the previous deployment until `ostree-boot-complete.service` replaces it.
fn find_by_etc<'a>(
    root: &Root,
    all: &'a [DeployDirectory],
) -> Result<Option<&'a DeployDirectory>, RootError> {
    let identity = |path: &RootPath| -> Result<Option<FileIdentity>, RootError> {
        let Some(directory) = skip_obstacle(root.open_directory(path))? else {
            return Ok(None);
        };
        let (stat, _) = stat_of_open(&directory).map_err(|errno| RootError::at(path, errno))?;
        Ok(Some((stat.st_dev, stat.st_ino)))
    };
    let own = identity(&RootPath::fixed("etc"))?;
    for one in all {
        let Ok(etc) = one.path.join("etc") else {
            continue;
        };
        if own.is_some() && identity(&etc)? == own {
            return Ok(Some(one));
        }
    }
    Ok(None)
}

fn made_of() -> Result<Option<FileIdentity>, RootError> {
    let path = format!("/{}", paths::OSTREE_BOOTED);
    let booted =
        running::read_if_present(&path).map_err(|error| RootError::of_system(&path, &error))?;
    Ok(booted.and_then(|booted| read_backing(&booted)))
}

/// What the marker of a prepared soft reboot means on a running root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoftMarker {
    /// There is none.
    Missing,
    /// It names another deployment, which the next reboot enters.
    Prepared,
    /// It names the running deployment: the soft reboot succeeded, but `ostree-boot-complete.service`, which removes the
    /// marker, did not.
    LeftOver,
}

/// Reads the marker of a prepared soft reboot.
///
/// # Errors
/// It cannot be read, or the directories of deployments cannot.
pub fn soft_marker(root: &Root) -> Result<SoftMarker, RootError> {
    let Some(marker) = root.read(&RootPath::fixed(paths::NEXT_ROOT_BOOTED))? else {
        return Ok(SoftMarker::Missing);
    };
    let booted = find_booted_deployment(root, root.is_live())?;
    let of = read_backing(&marker);
    let mut all = deploy_directories::list_deploy_directories(root)?.into_iter();
    let runs = all.find(|one| Some(&one.name) == booted.as_ref());
    Ok(match runs {
        Some(runs) if of == Some(runs.identity) => SoftMarker::LeftOver,
        _ => SoftMarker::Prepared,
    })
}

/// Reads the two numbers after their key in a GVariant dictionary, aligned to eight bytes. Older versions leave the dictionary
/// empty.
fn read_backing(booted: &[u8]) -> Option<FileIdentity> {
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

/// Returns the deployment of the kernel's link, through the physical root at `sysroot`.
fn of_kernel(root: &Root) -> Result<Option<String>, RootError> {
    let link = ostree_link().and_then(|link| RootPath::fixed(paths::SYSROOT).join(&link).ok());
    let target = match &link {
        Some(link) => skip_obstacle(root.read_link(link))?,
        None => None,
    };
    Ok(target.and_then(|target| valid_name(target.rsplit('/').next()?)))
}

fn valid_name(name: &str) -> Option<String> {
    is_name(name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ostree-prepare-root` 2025.2 wrote it on x86_64.
    const WRITTEN: &[u8] = b"backing-root-device-inode\0\0\0\0\0\0\0\
        \x02\x07\0\0\0\0\0\0\x1b\0\0\0\0\0\0\0\0(tt)\x1a\0\0\
        root.transient\0\0\0\0b\x0f\0\0\0\0sysroot-ro\0\0\0\0\0\0\x01\0b\x0b6Ld";

    #[test]
    fn the_directory_that_the_root_was_made_of_is_read() {
        assert_eq!(WRITTEN.len(), 103);
        let mut written = WRITTEN.to_vec();
        // Numbers are in the order of the machine that wrote them.
        if cfg!(target_endian = "big") {
            written[32..40].reverse();
            written[40..48].reverse();
        }
        assert_eq!(read_backing(&written), Some((1794, 27)));
    }

    #[test]
    fn nothing_is_read_out_of_what_is_not_there() {
        assert_eq!(read_backing(b""), None);
        for length in 0..53 {
            assert_eq!(read_backing(&WRITTEN[..length]), None, "{length}");
        }
        assert_eq!(
            read_backing(b"backing-root-device-inode\0 and then text"),
            None
        );
    }
}
