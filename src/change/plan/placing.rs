//! How a step is put into the plan: what it replaces, and the directories that it needs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;

use crate::base::invocation::move_away;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::host::root::{ResolveError, RootPath};
use crate::judge::drift::{SETGID, kind_noun};

use super::Builder;
use super::step::{Attributes, Payload, PlannedStep, Section, Step};

/// What happens to an object of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// It is left and reported: the daemon fails on it too.
    Stays,
    /// It is replaced: the document says `overwrite`.
    Goes,
}

impl<'a> Builder<'a> {
    /// Plans an object at a path, unless it already exists.
    pub(super) fn put_object(
        &mut self,
        path: &RootPath,
        new: Object,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        self.put_over(path, new, payload, section, why, InTheWay::Stays);
    }

    /// Plans an object at a path; an object in the way may be replaced.
    pub(super) fn put_over(
        &mut self,
        path: &RootPath,
        new: Object,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
        in_the_way: InTheWay,
    ) {
        if self.is_made(path) && !new.is_directory() {
            let message = "other parts of the config lie below it, so it cannot be a file or link. Take one of them out";
            return self.add_blocker(path.to_string(), message);
        }
        let old = self.node().object(path);
        if old.is_some_and(|old| old.is_like(&new)) || !self.may_touch(path, old, in_the_way) {
            return;
        }
        self.make_parents(path);
        let step = Step::Put {
            path: path.clone(),
            new,
            old: old.cloned(),
        };
        self.push_step(step, payload, section, why);
    }

    /// Plans the removal of the object at a path, if any.
    pub(super) fn remove_object(
        &mut self,
        path: &RootPath,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let Some(old) = self.node().object(path) else {
            return;
        };
        if self.may_touch(path, Some(old), InTheWay::Stays) {
            let step = Step::Remove {
                path: path.clone(),
                old: old.clone(),
            };
            self.push_step(step, Payload::None, section, why);
        }
    }

    pub(super) fn push_step(
        &mut self,
        step: Step,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let real = self.real_path(step.path());
        self.touched.insert(real);
        let label = self.plan_label(&step, &payload, section);
        self.plan.steps.push(PlannedStep {
            step,
            payload,
            section,
            why: why.into(),
            label,
        });
    }

    /// Plans another mode or owner for the object at a path.
    pub(super) fn put_attributes(
        &mut self,
        path: &RootPath,
        old: Attributes,
        new: Attributes,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let path = path.clone();
        let step = Step::Metadata { path, new, old };
        self.push_step(step, Payload::None, section, why);
    }

    /// Returns true if a path may be planned: only once, and never over a directory or something that cannot be read.
    pub(super) fn may_touch(
        &mut self,
        path: &RootPath,
        old: Option<&Object>,
        in_the_way: InTheWay,
    ) -> bool {
        if self.is_touched(path) {
            return false;
        }
        // A directory of the same plan may replace the object in the way.
        let made_above = path.ancestors().skip(1).any(|above| self.is_made(&above));
        if let Some(errno) = self.node().obstructed.get(path).filter(|_| !made_above) {
            let cause = self.obstacle_above(path, errno);
            self.add_blocker(
                path.to_string(),
                format!("cannot be reached: {cause}. Fix the directories above it first"),
            );
            return false;
        }
        let kind = match old.map(|old| &old.kind) {
            Some(kind @ (ObjectKind::Directory | ObjectKind::Special { .. })) => kind,
            _ => return true,
        };
        if in_the_way == InTheWay::Goes {
            if *kind == ObjectKind::Directory {
                let message = "the directory is removed with everything in it, as overwrite is set";
                self.add_notice(path.to_string(), message);
            }
            return true;
        }
        let message = format!(
            "{} is where a file should be. {}",
            kind_noun(kind),
            move_away(&path.to_string())
        );
        self.add_blocker(path.to_string(), message);
        false
    }

    /// Returns the reason why a path cannot be reached, with the first of its parents that is not a directory.
    fn obstacle_above(&self, path: &RootPath, cause: &ResolveError) -> String {
        let is_seen = |above: &RootPath| self.node().directories.contains_key(above);
        let unseen = path.ancestors().skip(1).take_while(|above| !is_seen(above));
        match (unseen.last(), cause) {
            (Some(at), ResolveError::System(Errno::ENOTDIR)) => format!("{at} is not a directory"),
            (Some(at), ResolveError::System(_)) => format!("{at}: {cause}"),
            _ => cause.to_string(),
        }
    }

    /// Refuses a config that puts one thing below another that is not a directory, which is impossible. Also refuses changes
    /// below a link that is being replaced, because they cannot be judged.
    pub(super) fn paths_below_files(&mut self) {
        let leads = |path: &RootPath| self.node().directories.contains_key(path);
        let mut files = BTreeSet::new();
        // Links that currently lead to directories, each with a verb for what replaces them.
        let mut links = BTreeMap::new();
        for planned in &self.plan.steps {
            match &planned.step {
                Step::Put { path, new, old } => {
                    if !new.is_directory() {
                        files.insert(self.real_path(path));
                    }
                    if old.as_ref().is_some_and(|old| !old.is_directory()) && leads(path) {
                        links.insert(path.clone(), given_way_to(&new.kind));
                    }
                }
                Step::Remove { path, old } if !old.is_directory() && leads(path) => {
                    links.insert(path.clone(), "removes");
                }
                _ => {}
            }
        }
        let mut conflicts = Vec::new();
        for planned in &self.plan.steps {
            let path = planned.step.path();
            let real = self.real_path(path);
            let file = real.ancestors().skip(1).find(|above| files.contains(above));
            let link = || {
                path.ancestors()
                    .skip(1)
                    .find_map(|above| links.get_key_value(&above))
            };
            let message = match (file, link()) {
                (Some(above), _) => format!(
                    "lies below {above}, which the config makes a file or link. Take one of them out"
                ),
                // An object that is removed together with a link is removed first.
                (None, Some((_, &"removes"))) if is_removal(&planned.step) => continue,
                (None, Some((above, change))) => format!(
                    "lies below {above}, which leads elsewhere now, and which the config {change}. Apply the two one \
                     after the other"
                ),
                (None, None) => continue,
            };
            conflicts.push((path.clone(), message));
        }
        for (path, message) in conflicts {
            self.add_blocker(path.to_string(), message);
        }
    }

    /// Plans the missing parent directories of a path.
    pub(super) fn make_parents(&mut self, path: &RootPath) {
        let missing: Vec<RootPath> = path
            .ancestors()
            .skip(1)
            .take_while(|above| {
                !self.node().directories.contains_key(above) && !self.is_made(above)
            })
            .collect();
        for directory in missing.into_iter().rev() {
            let rule = self.directory_rule(&directory);
            let (uid, gid) = self.node().host.attainable_owner((rule.uid, rule.gid));
            let step = Step::MakeDirectory {
                path: directory.clone(),
                mode: rule.mode,
                uid,
                gid,
            };
            self.note_made(&directory);
            self.push_step(
                step,
                Payload::None,
                Section::Files,
                "a directory on the way is missing",
            );
        }
    }

    /// Returns mode and owner of a new directory: 0755 and root, as the daemon creates it; below the home of core, 0700 and
    /// core. Below a directory with the setgid bit, the kernel passes on its group and that bit.
    fn directory_rule(&self, directory: &RootPath) -> Attributes {
        let (mode, (uid, gid)) = match self.node().accounts.users.get("core") {
            Some(&core) if self.is_of_core(directory) => (0o700, core),
            _ => (0o755, (0, 0)),
        };
        match self.handed_down(directory) {
            Some(gid) => Attributes {
                mode: mode | SETGID,
                uid,
                gid,
            },
            None => Attributes { mode, uid, gid },
        }
    }

    /// Returns the group that the kernel gives to a new object at a path: that of its nearest parent directory, if that has the
    /// setgid bit.
    pub(super) fn handed_down(&self, path: &RootPath) -> Option<u32> {
        let mut above = path.ancestors().skip(1);
        let above = above.find_map(|above| self.directory_at(&above))?;
        (above.mode & SETGID != 0).then_some(above.gid)
    }

    /// Returns mode and owner of a directory that exists, or that this plan creates or changes.
    fn directory_at(&self, path: &RootPath) -> Option<Attributes> {
        let wanted = self.real_path(path);
        let mut steps = self.plan.steps.iter().rev();
        let planned = steps.find_map(|planned| match &planned.step {
            Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            } if self.real_path(path) == wanted => Some(Attributes {
                mode: *mode,
                uid: *uid,
                gid: *gid,
            }),
            Step::Metadata { path, new, .. } if self.real_path(path) == wanted => Some(*new),
            Step::Put { path, new, .. } if new.is_directory() && self.real_path(path) == wanted => {
                Some(Attributes::from(new))
            }
            _ => None,
        });
        planned.or_else(|| {
            let found = self.node().directories.get(path)?;
            let (uid, gid) = found.owner;
            let mode = found.mode;
            Some(Attributes { mode, uid, gid })
        })
    }

    fn is_of_core(&self, directory: &RootPath) -> bool {
        let home = self.real_path(&RootPath::fixed(paths::CORE_HOME));
        self.real_path(directory).is_in(home.relative())
    }

    /// Adds one notice if owners cannot be set for lack of `CAP_CHOWN`.
    pub(super) fn check_ownership(&mut self) {
        let host = &self.node().host;
        if !host.can_chown && host.user != (0, 0) {
            let message = format!(
                "not root: files are owned by {}:{}, owners of the config are neither set nor compared. \
                 Run as root for the real thing",
                host.user.0, host.user.1,
            );
            self.add_notice("ownership", message);
        }
    }
}

fn is_removal(step: &Step) -> bool {
    matches!(step, Step::Remove { .. } | Step::RemoveDirectory { .. })
}

/// Describes the change of a link to something else, for a sentence about the config.
fn given_way_to(kind: &ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Directory => "makes a directory",
        ObjectKind::Symlink { .. } => "makes another link",
        ObjectKind::File { .. } | ObjectKind::Special { .. } => "makes a file",
    }
}
