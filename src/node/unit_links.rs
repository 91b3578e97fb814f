//! Links in the admin's unit directory that lead nowhere, and files where links belong.

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// Where else a unit of a name may be.
const DIRECTORIES: [&str; 7] = [
    paths::UNITS,
    "run/systemd/system",
    "run/systemd/generator",
    "run/systemd/generator.late",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "etc/systemd/system.attached",
];

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A unit whose file is not there: it cannot be loaded.
    NoFile {
        /// Where its link leads.
        target: String,
    },
    /// A link that pulls a unit in which is nowhere.
    NoUnit {
        /// Where it leads.
        target: String,
    },
    /// A file in a directory of links.
    NoLink,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitLink {
    /// Which.
    pub path: RootPath,
    /// What is wrong.
    pub wrong: Wrong,
}

/// Looks at all of them.
///
/// # Errors
/// A directory that cannot be read.
pub fn read(root: &Root) -> Result<Vec<UnitLink>, RootError> {
    let folder = RootPath::fixed(paths::UNITS);
    let mut all = Vec::new();
    for name in root.list(&folder)? {
        let Ok(path) = folder.join(&name) else {
            continue;
        };
        let pulls = [".wants", ".requires", ".upholds"];
        if pulls.iter().any(|ending| name.ends_with(ending)) {
            for entry in root.list(&path)? {
                let wrong = path.join(&entry).map(|path| pulled(root, path));
                all.extend(wrong.into_iter().flatten());
            }
        } else if let Some(target) = leads_nowhere(root, &path) {
            let wrong = Wrong::NoFile { target };
            all.push(UnitLink { path, wrong });
        }
    }
    Ok(all)
}

fn pulled(root: &Root, path: RootPath) -> Option<UnitLink> {
    if root.read_link(&path).ok().flatten().is_none() {
        let wrong = Wrong::NoLink;
        return Some(UnitLink { path, wrong });
    }
    let target = leads_nowhere(root, &path)?;
    // To systemd the name alone counts.
    let wrong = Wrong::NoUnit { target };
    (!is_somewhere(root, path.name())).then_some(UnitLink { path, wrong })
}

/// The target, where nothing is there.
fn leads_nowhere(root: &Root, path: &RootPath) -> Option<String> {
    let target = root.read_link(path).ok().flatten()?;
    // What is below /run is there while the node runs only.
    if target == "/dev/null" || target.starts_with("/run/") {
        return None;
    }
    let whole = match target.starts_with('/') {
        true => target.clone(),
        false => format!("{}/{target}", path.parent()?),
    };
    let missing = |path: RootPath| !root.exists(&path).unwrap_or(true);
    RootPath::parse(&plain(&whole))
        .is_ok_and(missing)
        .then_some(target)
}

/// Without `.` and `..`.
fn plain(path: &str) -> String {
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

/// Of an instance the template is enough.
fn is_somewhere(root: &Root, name: &str) -> bool {
    let template = name.split_once('@').and_then(|(before, rest)| {
        let (_, kind) = rest.rsplit_once('.')?;
        Some(format!("{before}@.{kind}"))
    });
    let exists = |name: &str| {
        let paths = DIRECTORIES.map(RootPath::fixed);
        let mut paths = paths.iter().filter_map(|folder| folder.join(name).ok());
        paths.any(|path| root.exists(&path).unwrap_or(true))
    };
    exists(name) || template.is_some_and(|name| exists(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_targets_stay_in_the_root() {
        assert_eq!(
            plain("/etc/systemd/system/x.wants/../a.service"),
            "/etc/systemd/system/a.service"
        );
        assert_eq!(plain("/a/../../../b"), "/b");
    }
}
