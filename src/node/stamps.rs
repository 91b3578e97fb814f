//! What the daemon keeps of files that it wrote over: copies of what the OS shipped, and stamps where there was nothing
//! (docs/agreement.md: Originals).

use std::collections::BTreeSet;

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// What ends the name of a copy.
const COPY: &str = ".mcdorig";
/// What ends the name of a stamp.
const STAMP: &str = ".mcdnoorig";
/// No node has more; a look at one ends there.
const MAX_ENTRIES: usize = 50_000;

/// Both kinds, as the paths that they are about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Files of which a copy is kept.
    pub copies: BTreeSet<RootPath>,
    /// Files that were not there before.
    pub stamps: BTreeSet<RootPath>,
    /// Those of the stamped ones that the OS ships nevertheless: a file below `/usr/etc`.
    pub shipped: BTreeSet<RootPath>,
    /// Files in there that are neither.
    pub foreign: BTreeSet<RootPath>,
}

/// Reads both directories.
///
/// # Errors
/// A directory that cannot be read.
pub fn read(root: &Root) -> Result<Stamps, RootError> {
    let mut all = Stamps::default();
    for (folder, ending) in [(paths::ORIG, COPY), (paths::NOORIG, STAMP)] {
        let folder = RootPath::fixed(folder);
        for path in below(root, &folder)? {
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
        let shipped = RootPath::parse(&format!("/usr{path}"));
        if path.is_in("etc") && shipped.is_ok_and(|path| root.exists(&path).unwrap_or_default()) {
            all.shipped.insert(path.clone());
        }
    }
    Ok(all)
}

/// Everything below a directory that is no directory.
fn below(root: &Root, folder: &RootPath) -> Result<Vec<RootPath>, RootError> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![folder.clone()], 0);
    while let Some(folder) = open.pop() {
        for name in root.list(&folder)? {
            seen += 1;
            let Some(path) = folder.join(&name).ok().filter(|_| seen <= MAX_ENTRIES) else {
                continue;
            };
            let stat = root.place(&path)?.and_then(|place| place.stat().ok()?);
            match stat.map(|stat| stat.st_mode & libc::S_IFMT) {
                Some(libc::S_IFDIR) => open.push(path),
                Some(_) => found.push(path),
                None => {}
            }
        }
    }
    Ok(found)
}
