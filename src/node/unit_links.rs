//! Dangling links in the admin's unit directory, and files where links belong.

use nix::errno::Errno;

use crate::paths;
use crate::root::{ResolveError, Root, RootError, RootPath};

/// Units of the running system alone.
const RUNTIME: &str = "run/systemd/system";

/// Directories in which a unit may be.
const DIRECTORIES: [&str; 7] = [
    paths::UNITS,
    RUNTIME,
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
    /// Links that lead to each other: systemd cannot read them.
    Circle {
        /// Target of the link.
        target: String,
    },
    /// A link to `/dev/null` in the place of a unit.
    Masked,
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
        } else if let Some(wrong) = unit_fault(root, &path) {
            all.push(UnitLink { path, wrong });
        }
    }
    let runtime = RootPath::fixed(RUNTIME);
    for name in root.list(&runtime)? {
        let masked = runtime.join(&name).ok().filter(|path| is_mask(root, path));
        let wrong = Wrong::Masked;
        all.extend(masked.map(|path| UnitLink { path, wrong }));
    }
    Ok(all)
}

/// Returns the fault of an entry in the place of a unit.
fn unit_fault(root: &Root, path: &RootPath) -> Option<Wrong> {
    match end_of(root, path)? {
        LinkEnd::Null => Some(Wrong::Masked),
        LinkEnd::Circle(target) => Some(Wrong::Circle { target }),
        LinkEnd::Nowhere(target) => Some(Wrong::NoFile { target }),
    }
}

fn is_mask(root: &Root, path: &RootPath) -> bool {
    matches!(end_of(root, path), Some(LinkEnd::Null))
}

fn pulled_unit(root: &Root, path: RootPath) -> Option<UnitLink> {
    if root.read_link(&path).ok().flatten().is_none() {
        let unit = find_unit(root, path.name());
        let wrong = Wrong::NoLink { unit };
        return Some(UnitLink { path, wrong });
    }
    let wrong = match end_of(root, &path)? {
        LinkEnd::Null => return None,
        LinkEnd::Circle(target) => Wrong::Circle { target },
        // Only the name counts for systemd.
        LinkEnd::Nowhere(_) if find_unit(root, path.name()).is_some() => return None,
        LinkEnd::Nowhere(target) => Wrong::NoUnit { target },
    };
    Some(UnitLink { path, wrong })
}

/// The end of a link that leads to no unit, with the target of the link.
enum LinkEnd {
    /// `/dev/null`.
    Null,
    /// The links lead to each other.
    Circle(String),
    /// There is nothing.
    Nowhere(String),
}

/// Returns the end of a link; `None` if it leads to something, or is no link.
fn end_of(root: &Root, path: &RootPath) -> Option<LinkEnd> {
    let target = root.read_link(path).ok().flatten()?;
    if target == "/dev/null" {
        return Some(LinkEnd::Null);
    }
    // Files below /run exist only while the node runs.
    if target.starts_with("/run/") {
        return None;
    }
    let whole = match target.starts_with('/') {
        true => target.clone(),
        false => format!("{}/{target}", path.parent()?),
    };
    // What cannot be seen counts as there.
    let next = RootPath::parse(&plain_path(&whole)).ok()?;
    if !root.exists(&next).unwrap_or(true) {
        return Some(LinkEnd::Nowhere(target));
    }
    match root.open_followed(path) {
        Err(error) if error.cause == ResolveError::System(Errno::ELOOP) => {
            Some(LinkEnd::Circle(target))
        }
        Ok(_) | Err(_) => None,
    }
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
