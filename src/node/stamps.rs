//! The daemon's backup copies of files that it replaced, and its stamps for files that did not exist (docs/develop/agreement.md:
//! Originals).

use std::collections::BTreeSet;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// Suffix of a backup copy.
const COPY: &str = ".mcdorig";
/// Suffix of a stamp.
const STAMP: &str = ".mcdnoorig";
/// Maximum number of entries that are read.
const MAX_ENTRIES: usize = 50_000;

/// Backup copies and stamps, by the paths of their files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Files with a backup copy.
    pub copies: BTreeSet<RootPath>,
    /// Files with a stamp, which did not exist before.
    pub stamps: BTreeSet<RootPath>,
    /// Stamped files that the OS ships nevertheless, below `/usr/etc`.
    pub shipped: BTreeSet<RootPath>,
    /// Files in the directories that are neither copies nor stamps.
    pub foreign: BTreeSet<RootPath>,
}

/// Reads both directories.
///
/// # Errors
/// A directory cannot be read.
pub fn read_stamps(root: &Root) -> Result<Stamps, RootError> {
    let mut all = Stamps::default();
    for (folder, ending) in [(paths::ORIG, COPY), (paths::NOORIG, STAMP)] {
        let folder = RootPath::fixed(folder);
        for path in objects_below(root, &folder)? {
            let about = path.relative().strip_prefix(folder.relative());
            let about = about.and_then(|about| about.strip_suffix(ending));
            let about = about.and_then(|about| RootPath::parse(about).ok());
            match about {
                Some(about) if ending == COPY => drop(all.copies.insert(about)),
                Some(about) => drop(all.stamps.insert(about)),
                None => drop(all.foreign.insert(path)),
            }
        }
    }
    for path in &all.stamps {
        if path.is_in("etc")
            && let Ok(shipped) = RootPath::parse(&format!("/usr{path}"))
            && root.exists(&shipped)?
        {
            all.shipped.insert(path.clone());
        }
    }
    Ok(all)
}

/// Returns all objects below a directory that are not directories.
fn objects_below(root: &Root, folder: &RootPath) -> Result<Vec<RootPath>, RootError> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![folder.clone()], 0);
    while let Some(folder) = open.pop() {
        for name in root.list(&folder)? {
            seen += 1;
            let Some(path) = folder.join(&name).ok().filter(|_| seen <= MAX_ENTRIES) else {
                continue;
            };
            let stat = root.stat(&path)?;
            match stat.map(|stat| stat.st_mode & libc::S_IFMT) {
                Some(libc::S_IFDIR) => open.push(path),
                Some(_) => found.push(path),
                None => {}
            }
        }
    }
    Ok(found)
}
