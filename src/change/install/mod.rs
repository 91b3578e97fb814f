//! The files that `install` puts on a node: the program, its units, and the links that enable them.
//!
//! [`InstallSurvey`] lists these files and compares them with the node's; [`units`] puts them in place, and [`completion`] says if
//! they would finish a run at the next boot.

pub mod archive;
pub mod completion;
pub mod cpio;
pub mod units;

use std::collections::BTreeSet;

use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::config::document::Desired;
use crate::host::root::{Root, RootError, RootPath, sha256_hex};
use crate::host::running;
use crate::node::{Host, Labels, Recorded, Records};

/// The unit that finishes an interrupted run at boot.
pub const RECOVER: &str = "mco-rescue-recover.service";
/// The unit that verifies after a reboot that the staged deployment is running.
pub const COMPLETE: &str = "mco-rescue-complete.service";
/// The unit that guards a trial after a reboot.
pub const TRIAL: &str = "mco-rescue-trial.service";
/// The unit that records the facts of a boot when it is complete.
pub const RECORD: &str = "mco-rescue-record.service";
/// The unit that refreshes the cache, and the timer that starts it.
pub const FETCH: [&str; 2] = ["mco-rescue-fetch.service", "mco-rescue-fetch.timer"];

const RECOVER_TEXT: &str = include_str!("../../../systemd/mco-rescue-recover.service");
const COMPLETE_TEXT: &str = include_str!("../../../systemd/mco-rescue-complete.service");
const RECORD_TEXT: &str = include_str!("../../../systemd/mco-rescue-record.service");
const TRIAL_TEXT: &str = include_str!("../../../systemd/mco-rescue-trial.service");
const FETCH_TEXT: &str = include_str!("../../../systemd/mco-rescue-fetch.service");
const TIMER_TEXT: &str = include_str!("../../../systemd/mco-rescue-fetch.timer");

const CATALOGUE_TEXT: &str = include_str!("../../../systemd/mco-rescue.catalog");

/// Presets for a root whose first boot would otherwise disable these units.
const PRESET_TEXT: &str = "enable mco-rescue-recover.service\nenable mco-rescue-complete.service\nenable mco-rescue-trial.service\nenable mco-rescue-record.service\nenable mco-rescue-fetch.timer\ndisable mco-rescue-fetch.service\n";

/// The extent of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallScope {
    /// Only what repairs a node at boot: the program, and the units that run it after a power cut or a reboot.
    Recovery,
    /// Everything.
    All,
}

/// The content of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The running program.
    Program,
    /// A text of this program.
    Text(&'static str),
    /// A symbolic link with this target.
    Link(&'static str),
}

/// One file or link that `install` creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallItem {
    /// Path in the root.
    pub path: RootPath,
    /// Content.
    pub content: Content,
    /// The unit that the file or link belongs to; if it is masked, both are left unchanged.
    pub unit: Option<&'static str>,
}

impl InstallItem {
    fn new(path: &'static str, content: Content, unit: Option<&'static str>) -> Self {
        Self {
            path: RootPath::fixed(path),
            content,
            unit,
        }
    }

    /// Returns its bytes; empty for a link.
    pub fn bytes_of<'a>(&self, program: &'a [u8]) -> &'a [u8] {
        match self.content {
            Content::Program => program,
            Content::Text(text) => text.as_bytes(),
            Content::Link(_) => &[],
        }
    }

    fn make_object(&self, program: &[u8], (uid, gid): (u32, u32)) -> Object {
        let file = |bytes: &[u8]| ObjectKind::File {
            size: bytes.len() as u64,
            sha256: sha256_hex(bytes).into(),
        };
        let (kind, mode) = match self.content {
            Content::Program => (file(program), 0o755),
            Content::Text(text) => (file(text.as_bytes()), 0o644),
            Content::Link(target) => {
                let target = target.to_owned();
                (ObjectKind::Symlink { target }, 0o777)
            }
        };
        Object::new(kind, mode, (uid, gid))
    }
}

/// Returns the items in the order in which they are installed: the program before the units that start it, links last.
///
/// `never_booted` is true if the root's first boot will preset all units.
pub fn list_items(scope: InstallScope, never_booted: bool) -> Vec<InstallItem> {
    let [service, timer] = FETCH;
    let mut all = vec![
        InstallItem::new(paths::PROGRAM, Content::Program, None),
        InstallItem::new(
            paths::RECOVER_UNIT,
            Content::Text(RECOVER_TEXT),
            Some(RECOVER),
        ),
        InstallItem::new(
            paths::COMPLETE_UNIT,
            Content::Text(COMPLETE_TEXT),
            Some(COMPLETE),
        ),
        InstallItem::new(paths::TRIAL_UNIT, Content::Text(TRIAL_TEXT), Some(TRIAL)),
    ];
    if scope == InstallScope::All {
        all.extend([
            InstallItem::new(paths::RECORD_UNIT, Content::Text(RECORD_TEXT), Some(RECORD)),
            InstallItem::new(
                paths::FETCH_SERVICE,
                Content::Text(FETCH_TEXT),
                Some(service),
            ),
            InstallItem::new(paths::FETCH_TIMER, Content::Text(TIMER_TEXT), Some(timer)),
            InstallItem::new(paths::CATALOGUE, Content::Text(CATALOGUE_TEXT), None),
        ]);
    }
    if never_booted {
        all.push(InstallItem::new(
            paths::PRESET,
            Content::Text(PRESET_TEXT),
            None,
        ));
    }
    let link = Content::Link("/etc/systemd/system/mco-rescue-recover.service");
    all.push(InstallItem::new(paths::RECOVER_LINK, link, Some(RECOVER)));
    let link = Content::Link("/etc/systemd/system/mco-rescue-complete.service");
    all.push(InstallItem::new(paths::COMPLETE_LINK, link, Some(COMPLETE)));
    let link = Content::Link("/etc/systemd/system/mco-rescue-trial.service");
    all.push(InstallItem::new(paths::TRIAL_LINK, link, Some(TRIAL)));
    if scope == InstallScope::All {
        let link = Content::Link("/etc/systemd/system/mco-rescue-record.service");
        all.push(InstallItem::new(paths::RECORD_LINK, link, Some(RECORD)));
        let link = Content::Link("/etc/systemd/system/mco-rescue-fetch.timer");
        all.push(InstallItem::new(paths::TIMER_LINK, link, Some(timer)));
    }
    all
}

/// Returns the paths that a config manages. If `install` put another object there, the daemon would go Degraded.
pub fn managed_paths(config: &Desired) -> BTreeSet<RootPath> {
    let files = config.files.iter().map(|file| file.path.clone());
    let links = config.links.iter().map(|link| link.path.clone());
    let units = config.units.iter();
    let units = units.filter_map(|unit| RootPath::fixed(paths::UNITS).join(&unit.name).ok());
    files.chain(links).chain(units).collect()
}

/// Returns the paths that the recorded config manages. Warns if the record cannot be read: they are then not known.
pub fn recorded_paths(records: &Records) -> BTreeSet<RootPath> {
    match &records.current_config {
        Recorded::Missing => BTreeSet::new(),
        Recorded::Present(config) => managed_paths(&Desired::from_config(config)),
        Recorded::Broken(why) => {
            log::warn!("it is unknown which files the node's MachineConfig manages: {why}");
            BTreeSet::new()
        }
    }
}

/// The state of an item on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemStanding {
    /// It is as it should be.
    Right,
    /// It does not exist.
    Missing,
    /// Something else exists at its path.
    Different,
    /// Only its SELinux label is wrong.
    Mislabelled,
    /// An admin has masked the unit, which is respected.
    Masked,
    /// A config manages the path.
    Managed,
}

/// An item, its state, and the desired object at its path.
#[derive(Debug, Clone)]
pub struct FoundItem {
    /// The item.
    pub item: InstallItem,
    /// State on the node.
    pub standing: ItemStanding,
    /// Wanted type, mode and owner.
    pub object: Object,
    /// Its label, if the root's policy assigns one.
    pub label: Option<String>,
}

impl FoundItem {
    /// Returns true if the item has to be installed or relabelled.
    pub fn is_due(&self) -> bool {
        use ItemStanding::{Different, Mislabelled, Missing};
        matches!(self.standing, Missing | Different | Mislabelled)
    }
}

/// The input of the comparison.
#[allow(
    missing_debug_implementations,
    reason = "the bytes of a program have nothing to show"
)]
pub struct InstallSurvey<'a> {
    /// The root.
    pub root: &'a Root,
    /// Facts of the node.
    pub host: &'a Host,
    /// Its labels. If `/usr/local` is a link, the policy's label for the path in the unit is used, because with that label
    /// systemd may run the program.
    pub labels: &'a Labels,
    /// The bytes of the running program.
    pub program: &'a [u8],
    /// Paths that a config manages.
    pub managed: &'a BTreeSet<RootPath>,
}

impl InstallSurvey<'_> {
    /// Compares every item with the node.
    ///
    /// # Errors
    /// A path cannot be resolved or read.
    pub fn survey_scope(&self, scope: InstallScope) -> Result<Vec<FoundItem>, RootError> {
        let items = list_items(scope, self.host.never_booted).into_iter();
        items.map(|item| self.compare_item(item)).collect()
    }

    fn compare_item(&self, item: InstallItem) -> Result<FoundItem, RootError> {
        let object = item.make_object(self.program, self.host.attainable_owner((0, 0)));
        let label = self.labels.wanted_label(&item.path, &object.kind);
        let standing = self.judge_item(&item, &object, label.as_deref())?;
        Ok(FoundItem {
            item,
            standing,
            object,
            label,
        })
    }

    fn judge_item(
        &self,
        item: &InstallItem,
        object: &Object,
        label: Option<&str>,
    ) -> Result<ItemStanding, RootError> {
        let unit = item.unit.map(unit_path).transpose().ok().flatten();
        for path in unit.iter().chain([&item.path]) {
            if self.managed.contains(path) {
                return Ok(ItemStanding::Managed);
            }
        }
        if let Some(unit) = unit
            && is_mask(self.root, &unit)?
        {
            return Ok(ItemStanding::Masked);
        }
        Ok(match self.root.observe(&item.path)? {
            None => ItemStanding::Missing,
            Some((found, _)) if !found.is_like(object) => ItemStanding::Different,
            Some(_) if self.is_mislabelled(&item.path, label) => ItemStanding::Mislabelled,
            Some(_) => ItemStanding::Right,
        })
    }

    /// Returns true if the label is wrong. A label that cannot be read cannot be set either, so it counts as right.
    fn is_mislabelled(&self, path: &RootPath, wanted: Option<&str>) -> bool {
        let Some(wanted) = wanted else { return false };
        let place = self.root.open_place(path).ok().flatten();
        let found = place.map(|place| place.read_label());
        matches!(found, Some(Ok(found)) if !self.labels.policy.is_right(found.as_deref(), wanted))
    }
}

fn unit_path(unit: &str) -> Result<RootPath, crate::host::root::RootPathError> {
    RootPath::fixed(paths::UNITS).join(unit)
}

/// Returns true if a unit file is a link to `/dev/null`.
///
/// # Errors
/// A path cannot be resolved.
pub fn is_mask(root: &Root, path: &RootPath) -> Result<bool, RootError> {
    let target = root.read_link(path)?;
    Ok(target.as_deref() == Some("/dev/null"))
}

/// Returns the bytes of the running program.
///
/// # Errors
/// `/proc` is missing, or the program cannot be read.
pub fn read_program() -> std::io::Result<Vec<u8>> {
    running::read_bytes("/proc/self/exe")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(all: &[InstallItem], matches: impl Fn(&InstallItem) -> bool) -> usize {
        all.iter().position(matches).unwrap()
    }

    #[test]
    fn nothing_is_enabled_before_it_is_there() {
        for (scope, never_booted) in [(InstallScope::Recovery, false), (InstallScope::All, true)] {
            let all = list_items(scope, never_booted);
            assert_eq!(
                position(&all, |item| item.content == Content::Program),
                0,
                "the program comes first"
            );
            for (at, item) in all.iter().enumerate() {
                if let Content::Link(target) = item.content {
                    let target = RootPath::parse(target).unwrap();
                    assert!(position(&all, |item| item.path == target) < at);
                }
            }
        }
    }

    #[test]
    fn what_the_units_run_is_what_is_installed() {
        for text in [RECOVER_TEXT, COMPLETE_TEXT, RECORD_TEXT, FETCH_TEXT] {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("ExecStart="));
            let program = line.unwrap().split(' ').next().unwrap();
            // `-` means that its failure does not fail the unit.
            let program = program.trim_start_matches('-');
            assert_eq!(program, format!("/{}", paths::PROGRAM));
        }
    }

    #[test]
    fn links_are_where_the_install_sections_say() {
        for (text, link) in [
            (RECOVER_TEXT, paths::RECOVER_LINK),
            (COMPLETE_TEXT, paths::COMPLETE_LINK),
            (RECORD_TEXT, paths::RECORD_LINK),
            (TIMER_TEXT, paths::TIMER_LINK),
        ] {
            let target = text
                .lines()
                .find_map(|line| line.strip_prefix("WantedBy="))
                .unwrap();
            assert!(link.contains(&format!("/{target}.wants/")), "{link}");
        }
    }
}
