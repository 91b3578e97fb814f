//! Directories of links that a plan empties: systemctl removes them together with the last link (`rmdir` up to its
//! configuration directory, docs/develop/agreement.md: Units).

use std::collections::BTreeSet;

use super::{Builder, Payload, Section, Step};
use crate::base::paths;
use crate::formats::systemd::UnitEntry;
use crate::host::root::RootPath;

impl Builder<'_> {
    /// Plans the removal of every directory that loses its last link in this plan. If something is added to it in the meantime,
    /// it is kept.
    pub(super) fn emptied_directories(&mut self) {
        let links = self.plan.steps.iter().filter(|planned| {
            let by_systemctl = !paths::LEAKED_LINKS.contains(&planned.step.path().relative());
            planned.section == Section::Enablement
                && matches!(planned.step, Step::Remove { .. })
                && by_systemctl
        });
        let directories: BTreeSet<RootPath> = links
            .filter_map(|planned| planned.step.path().parent())
            .filter(|directory| {
                directory.is_in(paths::UNITS) && directory.relative() != paths::UNITS
            })
            .collect();
        for directory in directories {
            if self.loses_everything(&directory) {
                self.remove_directory(&directory);
            }
        }
    }

    fn loses_everything(&self, directory: &RootPath) -> bool {
        let entry = self.node().units.get_entry(&directory.to_string());
        let Some(UnitEntry::Directory(entries)) = entry else {
            return false;
        };
        let goes = |path: &RootPath| {
            let mut steps = self.plan.steps.iter();
            steps.any(|planned| {
                matches!(planned.step, Step::Remove { .. }) && planned.step.path() == path
            })
        };
        let puts = |step: &Step| {
            !matches!(step, Step::Remove { .. } | Step::RemoveDirectory { .. })
                && step.path().is_in(directory.relative())
        };
        let mut names = entries.keys();
        names.all(|name| directory.join(name).is_ok_and(|path| goes(&path)))
            && !self.plan.steps.iter().any(|planned| puts(&planned.step))
    }

    fn remove_directory(&mut self, directory: &RootPath) {
        let known = &self.node().directories;
        let mount = |path: &RootPath| known.get(path).map(|found| found.mount);
        let Some(found) = known.get(directory).copied() else {
            return;
        };
        let is_mount_point = directory
            .parent()
            .is_none_or(|above| mount(&above) != Some(found.mount));
        if is_mount_point || self.is_touched(directory) {
            return;
        }
        let step = Step::RemoveDirectory {
            path: directory.clone(),
            mode: found.mode,
            uid: found.owner.0,
            gid: found.owner.1,
        };
        let why = "its last link is removed";
        self.push_step(step, Payload::None, Section::Enablement, why);
    }
}
