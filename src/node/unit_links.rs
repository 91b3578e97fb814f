//! Broken links in the admin's unit directory, and files where links belong.

use nix::errno::Errno;

use crate::base::paths;
use crate::config::document::MachineConfig;
use crate::formats::systemd::needed;
use crate::host::root::{ResolveError, Root, RootError, RootPath};
use crate::node::images::tree::ImageTree;

/// Directory of units that exist only in the running system.
const RUNTIME: &str = "run/systemd/system";

/// Units of the operating system.
pub const UNITS_OF_OS: &str = "usr/lib/systemd/system";

/// Directories that may contain a unit.
const DIRECTORIES: [&str; 7] = [
    paths::UNITS,
    RUNTIME,
    "run/systemd/generator",
    "run/systemd/generator.late",
    "usr/local/lib/systemd/system",
    UNITS_OF_OS,
    "etc/systemd/system.attached",
];

/// The fault of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A link in place of a unit is broken, so the unit cannot be loaded.
    NoFile {
        /// Target of its link.
        target: String,
    },
    /// A link starts a missing unit.
    NoUnit {
        /// Target of the link.
        target: String,
    },
    /// Links form a loop, so systemd cannot read them.
    Circle {
        /// Target of the link.
        target: String,
    },
    /// A unit is a link to `/dev/null`.
    Masked,
    /// A directory of links contains a file.
    NoLink {
        /// The file of its unit, if there is one: what a correct link would point to.
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
/// A directory cannot be read.
pub fn read_unit_links(root: &Root) -> Result<Vec<UnitLink>, RootError> {
    // Anything that cannot be read counts as existing.
    read_links(&UnitRoot {
        root,
        exists: &|path| root.exists(path).unwrap_or(true),
    })
}

/// Returns the entries that break with the units of another image but work now. `brings` returns true for units that get a file
/// in `/etc`. An entry that is unchanged from the current image disappears together with that image.
///
/// # Errors
/// A directory or link cannot be read.
pub fn find_lost_units(
    root: &Root,
    tree: &ImageTree,
    brings: &dyn Fn(&str) -> bool,
) -> Result<Vec<UnitLink>, RootError> {
    let exists = |path: &RootPath| {
        if path.is_in(UNITS_OF_OS) {
            return tree.exists(path.relative());
        }
        path.is_in(paths::UNITS) && brings(path.name()) || root.exists(path).unwrap_or(true)
    };
    let now = read_unit_links(root)?;
    let mut lost = Vec::new();
    for link in read_links(&UnitRoot {
        root,
        exists: &exists,
    })? {
        if !now.contains(&link) && !is_of_os(root, &link.path)? {
            lost.push(link);
        }
    }
    Ok(lost)
}

/// Returns true for a link that the image also has.
fn is_of_os(root: &Root, path: &RootPath) -> Result<bool, RootError> {
    let Ok(shipped) = RootPath::parse(&format!("/usr/{}", path.relative())) else {
        return Ok(false);
    };
    Ok(root.read_link(&shipped)? == root.read_link(path)?)
}

/// A mask of a unit that the node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededMask {
    /// The link.
    pub path: RootPath,
    /// What the node lacks because of it.
    pub stops: &'static str,
    /// The config has the unit's file or unmasks it, so a run removes the mask.
    pub of_config: bool,
}

impl NeededMask {
    /// Returns the name of the unit.
    pub fn unit(&self) -> &str {
        self.path.name()
    }

    /// Returns true for a mask that does not survive a reboot.
    pub fn is_runtime(&self) -> bool {
        self.path.is_in(RUNTIME)
    }
}

/// Returns the masks of units that the node needs, except those that the config requests.
pub fn find_needed_masks(links: &[UnitLink], config: Option<&MachineConfig>) -> Vec<NeededMask> {
    let masks = links.iter().filter(|link| link.wrong == Wrong::Masked);
    let units = config.map_or(&[][..], |config| &config.ignition.systemd.units);
    let found = masks.filter_map(|link| {
        let name = link.path.name();
        let unit = units.iter().find(|unit| unit.name == name);
        let is_meant = unit.is_some_and(|unit| unit.mask == Some(true));
        let stops = needed::describe_loss(name).filter(|_| !is_meant)?;
        Some(NeededMask {
            path: link.path.clone(),
            stops,
            of_config: unit.is_some_and(|unit| unit.text().is_some() || unit.mask == Some(false)),
        })
    });
    found.collect()
}

/// A root with the units that it is going to have.
struct UnitRoot<'a> {
    root: &'a Root,
    exists: &'a dyn Fn(&RootPath) -> bool,
}

fn read_links(units: &UnitRoot<'_>) -> Result<Vec<UnitLink>, RootError> {
    let root = units.root;
    let folder = RootPath::fixed(paths::UNITS);
    let mut all = Vec::new();
    for name in root.list(&folder)? {
        let Ok(path) = folder.join(&name) else {
            continue;
        };
        let pulls = [".wants", ".requires", ".upholds"];
        if pulls.iter().any(|ending| name.ends_with(ending)) {
            for entry in root.list(&path)? {
                if let Ok(path) = path.join(&entry) {
                    all.extend(pulled_unit(units, path)?);
                }
            }
        } else if let Some(wrong) = unit_fault(units, &path)? {
            all.push(UnitLink { path, wrong });
        }
    }
    let runtime = RootPath::fixed(RUNTIME);
    for name in root.list(&runtime)? {
        if let Ok(path) = runtime.join(&name)
            && is_mask(units, &path)?
        {
            let wrong = Wrong::Masked;
            all.push(UnitLink { path, wrong });
        }
    }
    Ok(all)
}

/// Returns the fault of an entry in place of a unit.
fn unit_fault(units: &UnitRoot<'_>, path: &RootPath) -> Result<Option<Wrong>, RootError> {
    Ok(end_of(units, path)?.map(|end| match end {
        LinkEnd::Null => Wrong::Masked,
        LinkEnd::Circle(target) => Wrong::Circle { target },
        LinkEnd::Nowhere(target) => Wrong::NoFile { target },
    }))
}

fn is_mask(units: &UnitRoot<'_>, path: &RootPath) -> Result<bool, RootError> {
    Ok(matches!(end_of(units, path)?, Some(LinkEnd::Null)))
}

fn pulled_unit(units: &UnitRoot<'_>, path: RootPath) -> Result<Option<UnitLink>, RootError> {
    if units.root.read_link(&path)?.is_none() {
        let unit = find_unit(units, path.name());
        let wrong = Wrong::NoLink { unit };
        return Ok(Some(UnitLink { path, wrong }));
    }
    let wrong = match end_of(units, &path)? {
        None | Some(LinkEnd::Null) => return Ok(None),
        Some(LinkEnd::Circle(target)) => Wrong::Circle { target },
        // systemd only uses the name.
        Some(LinkEnd::Nowhere(_)) if find_unit(units, path.name()).is_some() => return Ok(None),
        Some(LinkEnd::Nowhere(target)) => Wrong::NoUnit { target },
    };
    Ok(Some(UnitLink { path, wrong }))
}

/// Where a link without a unit ends, with its target.
enum LinkEnd {
    /// `/dev/null`.
    Null,
    /// The links form a loop.
    Circle(String),
    /// The target does not exist.
    Nowhere(String),
}

/// Returns where a link ends; `None` if its target exists, or it is not a link.
fn end_of(units: &UnitRoot<'_>, path: &RootPath) -> Result<Option<LinkEnd>, RootError> {
    let target = units.root.read_link(path)?;
    Ok(target.and_then(|target| end_of_target(units, path, target)))
}

fn end_of_target(units: &UnitRoot<'_>, path: &RootPath, target: String) -> Option<LinkEnd> {
    if target == "/dev/null" {
        return Some(LinkEnd::Null);
    }
    // Files below /run exist only while the node is running.
    if target.starts_with("/run/") {
        return None;
    }
    let whole = if target.starts_with('/') {
        target.clone()
    } else {
        format!("{}/{target}", path.parent()?)
    };
    let next = RootPath::parse(&plain_path(&whole)).ok()?;
    if !(units.exists)(&next) {
        return Some(LinkEnd::Nowhere(target));
    }
    match units.root.open_followed(path) {
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

/// Returns the file of a unit, or the template of an instance.
fn find_unit(units: &UnitRoot<'_>, name: &str) -> Option<RootPath> {
    let template = name.split_once('@').and_then(|(before, rest)| {
        let (_, kind) = rest.rsplit_once('.')?;
        Some(format!("{before}@.{kind}"))
    });
    let exists = |name: &str| {
        let paths = DIRECTORIES.map(RootPath::fixed);
        let mut paths = paths.iter().filter_map(|folder| folder.join(name).ok());
        paths.find(|path| (units.exists)(path))
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
