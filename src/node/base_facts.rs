//! Facts that do not depend on a config. They can be read while a config is still being parsed.

use super::observer::SeenObjects;
use super::{Accounts, Host, Labels, ObjectObserver, Os, units};
use crate::formats::systemd::{Support, UnitTree};
use crate::host::root::{Hold, Mount, Root, RootError, hold_of, mount_of};

/// The facts of a node that do not depend on a config.
#[derive(Debug)]
pub struct BaseFacts {
    /// The mount of the root directory.
    pub(super) root_mount: Mount,
    /// The mount id and the flags of the root directory.
    pub(super) root_hold: Hold,
    /// Facts about process and root.
    pub(super) host: Host,
    /// What the root's systemd supports.
    pub(super) systemd: Support,
    /// Users and groups.
    pub(super) accounts: Accounts,
    /// The operating system, from files.
    pub(super) os: Os,
    /// The SELinux policy of the root.
    pub(super) labels: Labels,
    /// Unit directories without the contents of their files, and presets.
    pub(super) units: UnitTree,
    /// The enablement links among them, and the directories of these links.
    pub(super) links: SeenObjects,
}

impl BaseFacts {
    /// Reads them.
    ///
    /// # Errors
    /// The system's error.
    pub fn observe(root: &Root) -> Result<Self, RootError> {
        let at_root = |errno: nix::errno::Errno| RootError::at("/", errno);
        let root_mount = mount_of(root.as_fd()).map_err(at_root)?;
        let root_hold = hold_of(root.as_fd()).map_err(at_root)?;
        let host = Host::observe(root)?;
        let systemd = units::systemd_support(root)?;
        let accounts = Accounts::read(root)?;
        let os = Os::observe(root, &host)?;
        let labels = Labels::read(root);
        let mut observer = ObjectObserver::new(root, root_hold.mount, labels.is_usable());
        let units = units::list_units(root, &mut observer)?;
        Ok(Self {
            root_mount,
            root_hold,
            host,
            systemd,
            accounts,
            os,
            labels,
            units,
            links: observer.into_seen(),
        })
    }
}
