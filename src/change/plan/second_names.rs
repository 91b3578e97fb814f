//! Files with several hard links: mode and owner belong to the file, and change under all of its names at once.
//!
//! A step that changes them would make a step at another name of the same file find an unexpected state. So they are changed
//! once, and if another name changes differently, each gets a file of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{Builder, Payload, PlannedStep, Step};
use crate::base::object::{Object, ObjectKind};
use crate::host::root::RootPath;

/// A file, under any name.
type Inode = (u64, u64);

impl Builder<'_> {
    /// Makes steps at different names of one file independent of each other.
    pub(super) fn second_names(&mut self) {
        let mut at_once = BTreeSet::new();
        let mut apart = BTreeSet::new();
        for steps in self.steps_of_one_file().into_values() {
            let all: Vec<_> = steps
                .iter()
                .filter_map(|at| self.new_attributes(*at))
                .collect();
            let (Some(first), true) = (all.first(), steps.len() > 1) else {
                continue;
            };
            if all.len() == steps.len() && all.iter().all(|one| one == first) {
                at_once.extend(steps.into_iter().skip(1));
            } else {
                apart.extend(steps);
            }
        }
        for at in apart {
            self.write_anew(at);
        }
        self.links_to_new_files();
        let mut at = 0;
        self.plan.steps.retain(|_| {
            at += 1;
            !at_once.contains(&(at - 1))
        });
    }

    /// Returns, for each file whose mode or owner changes, the steps that change or need it.
    fn steps_of_one_file(&self) -> BTreeMap<Inode, Vec<usize>> {
        let inode = |path: &RootPath| Some(self.node().stamps.get(path)?.inode());
        let is_directory =
            |path: &RootPath| self.node().object(path).is_none_or(Object::is_directory);
        let changes = |planned: &PlannedStep| match &planned.step {
            Step::Metadata { path, .. } if !is_directory(path) => inode(path),
            _ => None,
        };
        let changed: BTreeSet<Inode> = self.plan.steps.iter().filter_map(changes).collect();
        let mut all: BTreeMap<Inode, Vec<usize>> = BTreeMap::new();
        for (at, planned) in self.plan.steps.iter().enumerate() {
            let target = match &planned.payload {
                Payload::LinkTo(target) => inode(target),
                _ => None,
            };
            let both = [inode(planned.step.path()), target].into_iter().flatten();
            let both: BTreeSet<Inode> = both.filter(|one| changed.contains(one)).collect();
            for one in both {
                all.entry(one).or_default().push(at);
            }
        }
        all
    }

    fn new_attributes(&self, at: usize) -> Option<super::Attributes> {
        match self.plan.steps.get(at)?.step {
            Step::Metadata { new, .. } => Some(new),
            _ => None,
        }
    }

    /// Replaces a file whose other names change differently with a copy that has the new mode and owner.
    fn write_anew(&mut self, at: usize) {
        let node = self.inputs.node;
        let Some(planned) = self.plan.steps.get_mut(at) else {
            return;
        };
        let Step::Metadata { path, new, .. } = &planned.step else {
            return;
        };
        let Some(old) = node
            .object(path)
            .filter(|old| matches!(old.kind, ObjectKind::File { .. }))
        else {
            return;
        };
        let (path, old) = (path.clone(), old.clone());
        let new = Object::new(old.kind.clone(), new.mode, (new.uid, new.gid));
        planned.payload = Payload::CopyOf(path.clone());
        planned.step = Step::Put {
            path,
            new,
            old: Some(old),
        };
    }

    /// Links a name to the file that the plan puts at its target.
    fn links_to_new_files(&mut self) {
        let targets = self.plan.steps.iter().filter_map(|planned| {
            let Payload::LinkTo(target) = &planned.payload else {
                return None;
            };
            Some(target.clone())
        });
        let targets: BTreeSet<RootPath> = targets.collect();
        let mut put: BTreeMap<RootPath, Object> = BTreeMap::new();
        for planned in &mut self.plan.steps {
            let Step::Put { path, new, .. } = &mut planned.step else {
                continue;
            };
            if let Payload::LinkTo(target) = &planned.payload
                && let Some(object) = put.get(target)
            {
                *new = object.clone();
            }
            if targets.contains(path) {
                put.insert(path.clone(), new.clone());
            }
        }
    }
}
