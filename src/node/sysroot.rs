//! The physical root of an OSTree system, such as a disk from another machine: selects its deployment
//! (docs/reference/fetch.md).

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

use super::bootloader::{self, BootEntry};
use super::deploy_directories;

/// A deployment on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// Its directory.
    pub path: RootPath,
    /// The `var` shared by all deployments of its stateroot.
    pub var: RootPath,
}

/// The reason why the deployment cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum SysrootError {
    /// Reading the disk.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The disk has no deployment.
    #[error("it has no deployment below /ostree/deploy; is this the right disk?")]
    None,
    /// The disk has several deployments, and no boot entry decides.
    #[error(
        "it has {} deployments, and {why}. Mount its boot partition at boot below it, or name one: --root {example}",
        .all.len(), example = .all.first().map(String::as_str).unwrap_or_default()
    )]
    Ambiguous {
        /// The reason.
        why: String,
        /// Their directories.
        all: Vec<String>,
    },
    /// The target of the entry is missing.
    #[error(
        "its default boot entry {entry} names {link}, which is not a deployment. Check boot/loader/entries below it"
    )]
    Dangling {
        /// File name without its suffix.
        entry: String,
        /// The value of `ostree=`.
        link: String,
    },
}

/// Returns true for a physical root. A deployment, in contrast, has a `usr`, and its `ostree` is a link.
///
/// # Errors
/// The root cannot be read.
pub fn is_physical(root: &Root) -> Result<bool, RootError> {
    let has = |path| root.exists(&RootPath::fixed(path));
    Ok(has(paths::PHYSICAL_STATEROOTS)? && !has("usr")?)
}

/// Returns the deployment that the disk's own machine would boot.
///
/// # Errors
/// There is none, or it cannot be determined.
pub fn default_deployment(root: &Root) -> Result<Deployed, SysrootError> {
    let all = list_deployments(root)?;
    let entries = bootloader::read_boot_entries(root)?;
    if let Some(first) = entries.first() {
        if entries
            .get(1)
            .is_some_and(|second| second.version == first.version)
        {
            let why = "two boot entries have the same rank".to_owned();
            return Err(ambiguous_root(why, root, &all));
        }
        return of_entry(root, first);
    }
    match all.as_slice() {
        [] => Err(SysrootError::None),
        [one] => Ok(one.clone()),
        several => Err(ambiguous_root(
            "no boot entry selects one".into(),
            root,
            several,
        )),
    }
}

fn ambiguous_root(why: String, root: &Root, all: &[Deployed]) -> SysrootError {
    let shown = root.shown().display();
    let all = all.iter().map(|one| format!("{shown}{}", one.path));
    SysrootError::Ambiguous {
        why,
        all: all.collect(),
    }
}

/// Returns the deployment of a boot entry, which `/ostree/boot.N/STATEROOT/BOOTCSUM/INDEX` links to.
fn of_entry(root: &Root, entry: &BootEntry) -> Result<Deployed, SysrootError> {
    let link = entry.ostree_link().unwrap_or_default();
    let dangling = || SysrootError::Dangling {
        entry: entry.file.clone(),
        link: link.to_owned(),
    };
    let path = RootPath::parse(link).map_err(|_| dangling())?;
    let stateroot = link.split('/').nth(3).unwrap_or_default();
    let target = root.read_link(&path)?.ok_or_else(dangling)?;
    let name = target.rsplit('/').next().unwrap_or_default();
    list_deployments(root)?
        .into_iter()
        .find(|one| one.path == parse_deployed(stateroot, name).path)
        .ok_or_else(dangling)
}

fn list_deployments(root: &Root) -> Result<Vec<Deployed>, RootError> {
    let all = deploy_directories::list_physical(root)?.into_iter();
    Ok(all
        .map(|one| parse_deployed(&one.stateroot, &one.name))
        .collect())
}

/// Creates a deployment from names in the disk's directories; each has to be a single path component.
fn parse_deployed(stateroot: &str, name: &str) -> Deployed {
    let base = RootPath::fixed(paths::PHYSICAL_STATEROOTS);
    let below = |path: String| base.join(&path).unwrap_or_else(|_| base.clone());
    Deployed {
        path: below(format!("{stateroot}/deploy/{name}")),
        var: below(format!("{stateroot}/var")),
    }
}
