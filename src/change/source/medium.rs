//! A medium with configs: a USB stick for a node without network.
//!
//! It is found by its label and mounted read-only in a private mount namespace, so that it is unmounted however the program
//! ends. Nothing on it is executed, or trusted more than a file named on the command line.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::base::invocation::mco_rescue;
use crate::base::reason::Reason;
use crate::node::command::{CommandError, CommandRunner, blkid};
use crate::node::mounts;

/// Template of the mount point.
const PLACE: &str = "/run/mco-rescue-media-XXXXXX";
/// The label of the medium.
const LABEL: &str = "MCO-RESCUE";

/// The reason why there is no medium.
#[derive(Debug, thiserror::Error)]
pub enum ConfigMediumError {
    /// No device has the label.
    #[error(
        "no medium is labelled {LABEL}. Plug it in, or mount it and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    None,
    /// Several devices have the label.
    #[error(
        "several media are labelled {LABEL}: {0}. Leave one in, or mount one and name its directory"
    )]
    Several(String),
    /// The device cannot be mounted.
    #[error(
        "mounting {0} read-only: {1}. Mount it by hand and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    Mount(String, Reason),
    /// The devices cannot be queried.
    #[error(
        "looking for the medium: {0}. Mount it by hand and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    Command(#[from] CommandError),
}

/// A mounted medium; unmounted when it is dropped.
#[derive(Debug)]
pub struct ConfigMedium {
    directory: PathBuf,
}

impl ConfigMedium {
    /// Finds and mounts the medium.
    #[allow(
        clippy::disallowed_methods,
        reason = "an empty directory of our own, never the node's root"
    )]
    pub fn find_medium(runner: &dyn CommandRunner) -> Result<Self, ConfigMediumError> {
        let devices = blkid::find_labelled(runner, LABEL)?;
        let device = match devices.as_slice() {
            [device] => device,
            [] => return Err(ConfigMediumError::None),
            several => return Err(ConfigMediumError::Several(several.join(", "))),
        };
        let kind = blkid::file_system(runner, device)?;
        let failed = |errno: Errno| ConfigMediumError::Mount(device.clone(), errno.into());
        mounts::unshare_mounts().map_err(failed)?;
        let medium = Self {
            directory: nix::unistd::mkdtemp(Path::new(PLACE)).map_err(failed)?,
        };
        mounts::read_only(device, kind.as_deref(), &medium.directory).map_err(failed)?;
        Ok(medium)
    }

    /// Returns the directory of its files.
    pub fn path(&self) -> String {
        self.directory.display().to_string()
    }
}

impl Drop for ConfigMedium {
    #[allow(
        clippy::disallowed_methods,
        reason = "an empty directory of our own, never the node's root"
    )]
    fn drop(&mut self) {
        // After a failed mount there is nothing to unmount; the namespace ends with the program in any case.
        let _ = mounts::let_go(&self.directory);
        if let Err(error) = std::fs::remove_dir(&self.directory) {
            log::warn!(
                "removing {}: {}",
                self.directory.display(),
                Reason::from(error)
            );
        }
    }
}
