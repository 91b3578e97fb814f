//! The services of a running node as they are before a run, for the jobs that make them read its files.

use std::collections::BTreeSet;

use crate::command::systemctl::{self, UnitActivity};
use crate::command::{CommandError, CommandRunner};
use crate::root::{Root, RootError, RootPath};
use crate::systemd::UNIT_SEARCH_PATH;

use super::neighbours;

/// Longest value of a kernel setting that is kept.
const LONGEST_VALUE: usize = 4096;

/// Services, units and kernel settings before a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicesAtWork {
    /// All units that the manager has loaded.
    pub units: Vec<UnitActivity>,
    /// Pacemaker manages kubelet and etcd.
    pub fencing: bool,
    /// Names of unit files outside of `/etc`: a unit is still there without its file in `/etc`.
    pub shipped: BTreeSet<String>,
    /// Links that let one unit start another one, with their paths.
    pub links: BTreeSet<RootPath>,
    /// Kernel settings with their values, such as `net/ipv4/ip_forward=0`.
    pub settings: Vec<String>,
}

/// A node that cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// The manager.
    #[error(transparent)]
    Manager(#[from] CommandError),
    /// A path.
    #[error(transparent)]
    Path(#[from] RootError),
}

impl ServicesAtWork {
    /// Reads them. `settings` are names of kernel settings, such as `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// systemctl gives no answer, or a path cannot be read.
    pub fn observe(
        root: &Root,
        runner: &dyn CommandRunner,
        settings: &[String],
    ) -> Result<Self, ServicesError> {
        let mut all = Self {
            units: systemctl::query_units(runner)?,
            fencing: neighbours::has_fencing(root)?,
            settings: read_settings(root, settings),
            ..Self::default()
        };
        for directory in UNIT_SEARCH_PATH {
            let Ok(folder) = RootPath::parse(directory) else {
                continue;
            };
            for name in root.list(&folder)? {
                let Ok(path) = folder.join(&name) else {
                    continue;
                };
                if [".wants", ".requires", ".upholds"]
                    .iter()
                    .any(|end| name.ends_with(end))
                {
                    let links = root.list(&path)?;
                    let links = links.iter().filter_map(|link| path.join(link).ok());
                    all.links.extend(links);
                } else if !directory.trim_start_matches('/').starts_with("etc/") {
                    all.shipped.insert(name);
                }
            }
        }
        Ok(all)
    }

    /// Returns the state of a unit; `None` if the manager has not loaded it.
    pub fn unit(&self, name: &str) -> Option<&UnitActivity> {
        self.units.iter().find(|unit| unit.name == name)
    }
}

/// One that cannot be read, such as the setting of a missing module, has no value to go back to.
fn read_settings(root: &Root, names: &[String]) -> Vec<String> {
    let value = |name: &String| {
        let path = RootPath::parse(&format!("/proc/sys/{name}")).ok()?;
        let bytes = root.read_within(&path, 1 << 16).ok().flatten()?;
        let text = String::from_utf8(bytes).ok()?;
        let text = text.trim_end();
        let plain = !text.contains('\n') && text.len() <= LONGEST_VALUE;
        plain.then(|| format!("{name}={text}"))
    };
    names.iter().filter_map(value).collect()
}
