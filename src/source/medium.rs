//! A medium with configs on it: the stick that somebody carries to a node without network.
//!
//! Found by its label, mounted read-only in a mount namespace of our own, so that it is let go of however the
//! program ends. Nothing on it is run, or believed more than a file that is named on the command line.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::command::{CommandError, CommandRunner, blkid};
use crate::invocation::mco_rescue;
use crate::mounts;
use crate::reason::Reason;

/// Where it is mounted.
const PLACE: &str = "/run/mco-rescue-media-XXXXXX";
/// The label that is looked for.
const LABEL: &str = "MCO-RESCUE";

/// Why there is no medium.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// No device has the label.
    #[error(
        "no medium is labelled {LABEL}. Plug it in, or mount it and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    None,
    /// Several have.
    #[error(
        "several media are labelled {LABEL}: {0}. Leave one in, or mount one and name its directory"
    )]
    Several(String),
    /// The device cannot be mounted.
    #[error(
        "mounting {0} read-only: {1}. Mount it by hand and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    Mount(String, Reason),
    /// Devices cannot be asked.
    #[error(
        "looking for the medium: {0}. Mount it by hand and name its directory: {fetch}", fetch = mco_rescue("fetch DIR")
    )]
    Command(#[from] CommandError),
}

/// A mounted medium; let go of when it is dropped.
#[derive(Debug)]
pub struct Medium {
    directory: PathBuf,
}

impl Medium {
    /// Finds and mounts it.
    #[allow(
        clippy::disallowed_methods,
        reason = "an empty directory of our own, never the node's root"
    )]
    pub fn find(runner: &dyn CommandRunner) -> Result<Self, MediumError> {
        let devices = blkid::find_labelled(runner, LABEL)?;
        let device = match devices.as_slice() {
            [device] => device,
            [] => return Err(MediumError::None),
            several => return Err(MediumError::Several(several.join(", "))),
        };
        let kind = blkid::file_system(runner, device)?;
        let failed = |errno: Errno| MediumError::Mount(device.clone(), errno.into());
        mounts::own().map_err(failed)?;
        let medium = Self {
            directory: nix::unistd::mkdtemp(Path::new(PLACE)).map_err(failed)?,
        };
        mounts::read_only(device, kind.as_deref(), &medium.directory).map_err(failed)?;
        Ok(medium)
    }

    /// Where its files are.
    pub fn path(&self) -> String {
        self.directory.display().to_string()
    }
}

impl Drop for Medium {
    #[allow(
        clippy::disallowed_methods,
        reason = "an empty directory of our own, never the node's root"
    )]
    fn drop(&mut self) {
        // Where mounting failed there is nothing to unmount; the namespace goes with the program anyway.
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
