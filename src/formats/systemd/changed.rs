//! The units that changed paths belong to.

use super::UNIT_SEARCH_PATH;
use super::unit_name::{UnitName, UnitNameKind};
use crate::host::root::RootPath;

/// Returns true for a path whose change requires the manager to reload its unit files.
pub fn is_read_by_manager(path: &RootPath) -> bool {
    below_units(path).is_some()
}

/// Returns the units whose own file or drop-in is at these paths, each once, as `systemctl` accepts them: all instances of a
/// template as a pattern. A link that enables a unit does not change the unit itself.
pub fn units_at(paths: &[RootPath]) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for unit in paths.iter().filter_map(unit_at) {
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    units
}

/// Returns the units that links at these paths make another unit start, each once.
pub fn wanted_at(paths: &[RootPath]) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for unit in paths.iter().filter_map(wanted_unit) {
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    units
}

fn wanted_unit(path: &RootPath) -> Option<String> {
    let (directory, name) = below_units(path)?.split_once('/')?;
    let kinds = [".wants", ".requires", ".upholds"];
    let links = kinds.iter().any(|kind| directory.ends_with(kind));
    (links && UnitName::parse(name).is_some()).then(|| name.to_owned())
}

fn unit_at(path: &RootPath) -> Option<String> {
    let below = below_units(path)?;
    let name = match below.split_once('/') {
        None => below,
        Some((directory, dropin)) => {
            let unit = directory.strip_suffix(".d")?;
            dropin.ends_with(".conf").then_some(unit)?
        }
    };
    let unit = UnitName::parse(name)?;
    Some(match unit.kind() {
        UnitNameKind::Template => format!("{}@*.{}", unit.prefix, unit.suffix),
        UnitNameKind::Plain | UnitNameKind::Instance => name.to_owned(),
    })
}

fn below_units(path: &RootPath) -> Option<&str> {
    UNIT_SEARCH_PATH.iter().find_map(|directory| {
        let directory = directory.trim_start_matches('/');
        path.relative().strip_prefix(directory)?.strip_prefix('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&str]) -> Vec<RootPath> {
        all.iter()
            .map(|path| RootPath::parse(path).unwrap())
            .collect()
    }

    #[test]
    fn files_and_dropins_are_the_units_and_links_are_not() {
        let all = paths(&[
            "/etc/systemd/system/kubelet.service.d/10-a.conf",
            "/etc/systemd/system/kubelet.service.d/20-b.conf",
            "/etc/systemd/system/a.timer",
            "/etc/systemd/system/getty@.service",
            "/etc/systemd/system/getty@tty1.service.d/x.conf",
            "/etc/systemd/system/multi-user.target.wants/b.service",
            "/etc/systemd/system/service.d/x.conf",
            "/etc/systemd/system/notes",
            "/etc/systemd/journald.conf",
            "/etc/chrony.conf",
        ]);
        assert_eq!(
            units_at(&all),
            [
                "kubelet.service",
                "a.timer",
                "getty@*.service",
                "getty@tty1.service"
            ]
        );
        assert_eq!(wanted_at(&all), ["b.service"]);
        let read: Vec<bool> = all.iter().map(is_read_by_manager).collect();
        assert_eq!(read.iter().filter(|read| **read).count(), 8);
    }
}
