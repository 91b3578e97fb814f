//! Logins as they are, and as the next image would leave them. `/etc/ssh` is merged as ostree merges it.

use std::collections::BTreeSet;

use super::NextConfig;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::images::tree::ImageTree;
use crate::node::login::{self, Login};
use crate::node::view::{FileKind, FileStatus, Leftover, NodeView};

/// Directories with sshd configuration, below `/etc`.
const SETTINGS: [&str; 2] = ["ssh", "ssh/sshd_config.d"];
/// sshd; its version determines which settings it accepts.
const SSHD: &str = "usr/sbin/sshd";
/// The program that prints the keys of a directory.
const KEY_DIRECTORY_PROGRAM: &str = "usr/libexec/ssh-key-dir";
/// The unit that changes the mode of host keys for newer versions of sshd.
pub const KEYS_MIGRATION: &str = "usr/lib/systemd/system/ssh-host-keys-migration.service";
/// Exists after that unit has run.
const MIGRATED: &str = "var/lib/.ssh-host-keys-migration";

/// Logins before and after an image.
#[derive(Debug, Clone)]
pub struct NextLogin {
    /// As the node is now.
    pub before: Login,
    /// With the image.
    pub after: Login,
    /// Host keys that their group may read, if there are no others.
    pub group_keys: Vec<String>,
    /// The unit that changes their mode has run and will not run again.
    pub migrated: bool,
}

/// Reads the logins; `None` if the image has no sshd configuration.
pub(super) fn observe_next_login(
    root: &Root,
    next: Option<NextConfig<'_>>,
    tree: &ImageTree,
) -> Result<Option<NextLogin>, RootError> {
    if tree.files_below("usr/etc/ssh").next().is_none() {
        return Ok(None);
    }
    let mut changes = merge_settings(root, tree)?;
    changes.push((
        RootPath::fixed(KEY_DIRECTORY_PROGRAM),
        if tree.exists(KEY_DIRECTORY_PROGRAM) {
            Leftover::File(of_root(0o755), Vec::new())
        } else {
            Leftover::Nothing
        },
    ));
    // The node's sshd tells nothing about the image's.
    changes.push((RootPath::fixed(SSHD), Leftover::Nothing));
    for file in next.iter().flat_map(|next| &next.desired.files) {
        if let Ok(bytes) = file.contents.bytes() {
            changes.push((file.path.clone(), Leftover::File(of_root(0o600), bytes)));
        }
    }
    let before = login::read_login(root)?;
    let after = login::read_view(&NodeView::after(root, changes))?;
    Ok(Some(NextLogin {
        before,
        after,
        group_keys: find_group_keys(root)?,
        migrated: root.exists(&RootPath::fixed(MIGRATED))?,
    }))
}

fn of_root(mode: u32) -> FileStatus {
    FileStatus {
        kind: FileKind::File,
        mode,
        uid: 0,
        gid: 0,
    }
}

/// Merges the settings: a file that is unchanged from the old image is replaced by the new image's; others are kept.
fn merge_settings(root: &Root, tree: &ImageTree) -> Result<Vec<(RootPath, Leftover)>, RootError> {
    let mut changes = Vec::new();
    for directory in SETTINGS {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for above in ["etc", "usr/etc"] {
            if let Ok(path) = RootPath::parse(&format!("/{above}/{directory}")) {
                names.extend(root.list(&path)?);
            }
        }
        let of_image = format!("usr/etc/{directory}");
        let new = tree
            .files_below(&of_image)
            .filter_map(|path| path.strip_prefix(&of_image)?.strip_prefix('/'));
        names.extend(new.filter(|name| !name.contains('/')).map(str::to_owned));
        for name in names {
            let own = RootPath::parse(&format!("/etc/{directory}/{name}"));
            let shipped = RootPath::parse(&format!("/usr/etc/{directory}/{name}"));
            let (Ok(own), Ok(shipped)) = (own, shipped) else {
                continue;
            };
            // A directory is not a settings file.
            let read = |path: &RootPath| match root.open_directory(path) {
                Ok(Some(_)) => Ok(None),
                _ => root.read_small(path),
            };
            if read(&own)? != read(&shipped)? {
                continue;
            }
            let new = tree.bytes_of(&format!("{of_image}/{name}"));
            let leftover = match new {
                Some(bytes) => Leftover::File(of_root(0o600), bytes.to_vec()),
                None if root.open_directory(&own).is_ok_and(|there| there.is_some()) => continue,
                None => Leftover::Nothing,
            };
            changes.push((own, leftover));
        }
    }
    Ok(changes)
}

/// Returns the host keys that besides root only a group may read, unless there is one that no one else can read.
fn find_group_keys(root: &Root) -> Result<Vec<String>, RootError> {
    let view = NodeView::now(root);
    let directory = RootPath::fixed("etc/ssh");
    let mut keys = Vec::new();
    for name in view.names(&directory)? {
        let is_key = name.starts_with("ssh_host_") && name.ends_with("_key");
        let Some(path) = directory.join(&name).ok().filter(|_| is_key) else {
            continue;
        };
        match view.status(&path)? {
            Some(status) if status.uid == 0 && status.mode & 0o077 == 0o040 => {
                keys.push(path.to_string());
            }
            Some(status) if status.mode & 0o077 == 0 => return Ok(Vec::new()),
            _ => {}
        }
    }
    Ok(keys)
}
