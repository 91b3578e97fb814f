//! Dangling links in the admin's unit directory, and files where links belong.

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// Directories in which a unit may be.
const DIRECTORIES: [&str; 7] = [
    paths::UNITS,
    "run/systemd/system",
    "run/systemd/generator",
    "run/systemd/generator.late",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "etc/systemd/system.attached",
];

/// The fault of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A unit whose file is missing: it cannot be loaded.
    NoFile {
        /// Target of its link.
        target: String,
    },
    /// A link that pulls in a missing unit.
    NoUnit {
        /// Target of the link.
        target: String,
    },
    /// A file in a directory of links.
    NoLink {
        /// The file of its unit, if there is one: the target of the right link.
        unit: Option<RootPath>,
    },
}

/// A wrong entry of the unit directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitLink {
    /// Path of the entry.
    pub path: RootPath,
    /// Its fault.
    pub wrong: Wrong,
}

/// Reads the directory and returns the wrong entries.
///
/// # Errors
/// A directory that cannot be read.
pub fn read_unit_links(root: &Root) -> Result<Vec<UnitLink>, RootError> {
    let folder = RootPath::fixed(paths::UNITS);
    let mut all = Vec::new();
    for name in root.list(&folder)? {
        let Ok(path) = folder.join(&name) else {
            continue;
        };
        let pulls = [".wants", ".requires", ".upholds"];
        if pulls.iter().any(|ending| name.ends_with(ending)) {
            for entry in root.list(&path)? {
                let wrong = path.join(&entry).map(|path| pulled_unit(root, path));
                all.extend(wrong.into_iter().flatten());
            }
        } else if let Some(target) = leads_nowhere(root, &path) {
            let wrong = Wrong::NoFile { target };
            all.push(UnitLink { path, wrong });
        }
    }
    Ok(all)
}

fn pulled_unit(root: &Root, path: RootPath) -> Option<UnitLink> {
    if root.read_link(&path).ok().flatten().is_none() {
        let unit = find_unit(root, path.name());
        let wrong = Wrong::NoLink { unit };
        return Some(UnitLink { path, wrong });
    }
    let target = leads_nowhere(root, &path)?;
    // Only the name counts for systemd.
    let wrong = Wrong::NoUnit { target };
    find_unit(root, path.name())
        .is_none()
        .then_some(UnitLink { path, wrong })
}

/// Returns the target of a dangling link.
fn leads_nowhere(root: &Root, path: &RootPath) -> Option<String> {
    let target = root.read_link(path).ok().flatten()?;
    // Files below /run exist only while the node runs.
    if target == "/dev/null" || target.starts_with("/run/") {
        return None;
    }
    let whole = match target.starts_with('/') {
        true => target.clone(),
        false => format!("{}/{target}", path.parent()?),
    };
    let missing = |path: RootPath| !root.exists(&path).unwrap_or(true);
    RootPath::parse(&plain_path(&whole))
        .is_ok_and(missing)
        .then_some(target)
}

/// Returns a path without `.` and `..`.
fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the file of a unit; for an instance that of its template. What cannot be seen counts as there.
fn find_unit(root: &Root, name: &str) -> Option<RootPath> {
    let template = name.split_once('@').and_then(|(before, rest)| {
        let (_, kind) = rest.rsplit_once('.')?;
        Some(format!("{before}@.{kind}"))
    });
    let exists = |name: &str| {
        let paths = DIRECTORIES.map(RootPath::fixed);
        let mut paths = paths.iter().filter_map(|folder| folder.join(name).ok());
        paths.find(|path| root.exists(path).unwrap_or(true))
    };
    exists(name).or_else(|| exists(&template?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_targets_stay_in_the_root() {
        assert_eq!(
            plain_path("/etc/systemd/system/x.wants/../a.service"),
            "/etc/systemd/system/a.service"
        );
        assert_eq!(plain_path("/a/../../../b"), "/b");
    }
}
