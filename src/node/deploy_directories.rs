//! The directories of deployments on the disk, including those that rpm-ostree does not list.
//!
//! Power cuts and failed clean-ups leave directories behind, and an immutable file (`chattr +i`) makes every later clean-up
//! fail until the disk is full.

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle, stat_of_open};
use crate::node::command::origin::OriginFile;

/// The directory of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployDirectory {
    /// Its stateroot.
    pub stateroot: String,
    /// `CHECKSUM.SERIAL`.
    pub name: String,
    /// Path of the directory.
    pub path: RootPath,
    /// Device and inode, which identify the directory wherever it is mounted.
    pub identity: (u64, u64),
    /// The image in its origin file, in the daemon's form; `None` without such a file.
    pub image: Option<String>,
}

/// Maximum number of entries of an `etc` that are read.
const MAX_ENTRIES: usize = 50_000;

/// Lists all directories of a root, by stateroot and name.
///
/// # Errors
/// A directory or file cannot be read.
pub fn list_deploy_directories(root: &Root) -> Result<Vec<DeployDirectory>, RootError> {
    list_below(root, &RootPath::fixed(paths::STATEROOTS))
}

/// Lists all directories of a disk that is not booted.
///
/// # Errors
/// A directory or file cannot be read.
pub fn list_physical(root: &Root) -> Result<Vec<DeployDirectory>, RootError> {
    list_below(root, &RootPath::fixed(paths::PHYSICAL_STATEROOTS))
}

fn list_below(root: &Root, stateroots: &RootPath) -> Result<Vec<DeployDirectory>, RootError> {
    let mut all = Vec::new();
    for stateroot in skip_obstacle(root.list(stateroots))? {
        let Ok(folder) = stateroots.join(&format!("{stateroot}/deploy")) else {
            continue;
        };
        for file in root.list(&folder)? {
            let Ok(path) = folder.join(&file) else {
                continue;
            };
            let directory = if is_name(&file) {
                root.open_directory(&path)?
            } else {
                None
            };
            let Some(directory) = directory else {
                continue;
            };
            let (stat, _) =
                stat_of_open(&directory).map_err(|errno| RootError::at(&path, errno))?;
            let origin = folder.join(&format!("{file}.origin"));
            let origin = origin.map_or(Ok(None), |path| root.read(&path))?;
            all.push(DeployDirectory {
                stateroot: stateroot.clone(),
                name: file,
                path,
                identity: (stat.st_dev, stat.st_ino),
                image: origin
                    .map(|bytes| OriginFile::parse(&String::from_utf8_lossy(&bytes)).image_name()),
            });
        }
    }
    Ok(all)
}

/// Returns the immutable objects in a deployment, except those in `usr`, which belongs to ostree, and its root directory, which
/// is immutable by design.
///
/// # Errors
/// A directory cannot be read.
pub fn list_immutable(
    root: &Root,
    directory: &DeployDirectory,
) -> Result<Vec<RootPath>, RootError> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![directory.path.clone()], 0);
    while let Some(folder) = open.pop() {
        for name in root.list(&folder)? {
            let is_usr = name == "usr" && folder == directory.path;
            let Ok(path) = folder.join(&name) else {
                continue;
            };
            seen += 1;
            if is_usr || seen > MAX_ENTRIES {
                continue;
            }
            let Some(place) = root.open_place(&path)? else {
                continue;
            };
            let at = |errno: nix::errno::Errno| RootError::at(&path, errno);
            if place
                .read_hold()
                .map_err(at)?
                .is_some_and(|hold| !hold.flags.is_empty())
            {
                found.push(path.clone());
            }
            let stat = place.stat().map_err(at)?;
            if stat.is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR) {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true for a name of the form `CHECKSUM.SERIAL`.
pub fn is_name(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').is_some_and(|(checksum, serial)| {
        checksum.len() == 64 && checksum.bytes().all(|b| b.is_ascii_hexdigit()) && digits(serial)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checksum_and_serial_name_a_deployment() {
        let checksum = "a1".repeat(32);
        assert!(is_name(&format!("{checksum}.0")));
        assert!(!is_name("rootfs.0"));
        assert!(!is_name(&checksum));
    }
}
