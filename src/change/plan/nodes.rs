//! Directories and links (docs/develop/ignition.md: Nodes). The daemon applies none of them; the first boot created them.
//!
//! Deliberate differences from Ignition: an existing, correct object is not an error; the contents of an existing directory are
//! never deleted; a new soft link belongs to root, not to the owner of its target.

use super::{Attributes, Builder, InTheWay, Payload, Section, Step};
use crate::base::invocation::move_away;
use crate::base::object::{Object, ObjectKind};
use crate::config::document::{DesiredDirectory, DesiredLink, Owner};
use crate::host::root::RootPath;
use crate::judge::drift::{SETGID, UnknownOwner, group_id, kind_noun, user_id};

impl Builder<'_> {
    /// Plans every directory, the shallowest first.
    pub(super) fn plan_directories(&mut self) {
        let desired = self.inputs.desired;
        for directory in &desired.directories {
            match self.given_ids(directory.user.as_ref(), directory.group.as_ref()) {
                Ok(ids) => self.plan_directory(directory, ids),
                Err(owner) => self.refuse_owner(&directory.origin, &owner),
            }
        }
    }

    /// Refuses an owner that the root does not have.
    pub(super) fn refuse_owner(&mut self, origin: impl Into<String>, owner: &UnknownOwner) {
        self.add_blocker(
            origin,
            format!("{owner}. The root's account files have no such name"),
        );
    }

    fn given_ids(
        &self,
        user: Option<&Owner>,
        group: Option<&Owner>,
    ) -> Result<(Option<u32>, Option<u32>), UnknownOwner> {
        let accounts = &self.node().accounts;
        let uid = user.map(|user| user_id(user, accounts)).transpose()?;
        let gid = group.map(|group| group_id(group, accounts)).transpose()?;
        Ok((uid, gid))
    }

    fn plan_directory(
        &mut self,
        directory: &DesiredDirectory,
        (uid, gid): (Option<u32>, Option<u32>),
    ) {
        let path = &directory.path;
        let Some(found) = self.node().object(path).cloned() else {
            return self.make_directory(directory, self.new_directory(directory, uid, gid));
        };
        if !found.is_directory() && directory.overwrite {
            return self.put_directory(directory, self.new_directory(directory, uid, gid));
        }
        if !found.is_directory() {
            let what = kind_noun(&found.kind);
            let message = format!(
                "{what} is where a directory should be, and overwrite is not set. {}",
                move_away(&path.to_string())
            );
            return self.add_blocker(path.to_string(), message);
        }
        let old = Attributes::from(&found);
        let wanted = (uid.unwrap_or(old.uid), gid.unwrap_or(old.gid));
        let (uid, gid) = if self.node().host.can_chown {
            wanted
        } else {
            (old.uid, old.gid)
        };
        let new = Attributes {
            mode: directory.mode.unwrap_or(old.mode),
            uid,
            gid,
        };
        if new != old {
            let why = "mode or owner of the directory differs";
            self.put_attributes(path, old, new, Section::Nodes, why);
        }
    }

    /// Returns mode and owner of a new directory. As in Ignition, what the config does not set is inherited from the parent by
    /// the kernel.
    fn new_directory(
        &self,
        directory: &DesiredDirectory,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Attributes {
        let handed_down = self.handed_down(&directory.path);
        let mode = 0o755 | handed_down.map_or(0, |_| SETGID);
        let owner = (uid.unwrap_or(0), gid.or(handed_down).unwrap_or(0));
        let (uid, gid) = self.node().host.attainable_owner(owner);
        Attributes {
            mode: directory.mode.unwrap_or(mode),
            uid,
            gid,
        }
    }

    fn make_directory(&mut self, directory: &DesiredDirectory, new: Attributes) {
        let path = &directory.path;
        if self.is_made(path) {
            return self.as_given(directory);
        }
        if !self.may_touch(path, None, InTheWay::Stays) {
            return;
        }
        self.make_parents(path);
        let step = Step::MakeDirectory {
            path: path.clone(),
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
        };
        self.note_made(path);
        self.push_step(
            step,
            Payload::None,
            Section::Nodes,
            "the directory is missing",
        );
    }

    /// Plans a directory in place of the current object.
    fn put_directory(&mut self, directory: &DesiredDirectory, new: Attributes) {
        let object = Object::new(ObjectKind::Directory, new.mode, (new.uid, new.gid));
        let why = "something else is there, and overwrite is set";
        let section = Section::Nodes;
        self.put_over(
            &directory.path,
            object,
            Payload::None,
            section,
            why,
            InTheWay::Goes,
        );
        self.note_made(&directory.path);
    }

    /// Applies the config's attributes to a directory that is already planned for a user.
    fn as_given(&mut self, directory: &DesiredDirectory) {
        let given = self.given_ids(directory.user.as_ref(), directory.group.as_ref());
        let Ok((user, group)) = given else { return };
        let (host, node) = (&self.inputs.node.host, self.node());
        let wanted = node.real_path(&directory.path);
        for planned in &mut self.plan.steps {
            if let Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            } = &mut planned.step
                && node.real_path(path) == wanted
            {
                *mode = directory.mode.unwrap_or(*mode);
                (*uid, *gid) = host.attainable_owner((user.unwrap_or(*uid), group.unwrap_or(*gid)));
            }
        }
    }

    /// Plans every link: soft ones first, then hard ones, which may share a file of the same plan.
    pub(super) fn plan_links(&mut self) {
        let desired = self.inputs.desired;
        for link in &desired.links {
            if link.hard {
                self.hard_link(link);
            } else {
                self.soft_link(link);
            }
        }
    }

    fn soft_link(&mut self, link: &DesiredLink) {
        let (uid, gid) = match self.given_ids(link.user.as_ref(), link.group.as_ref()) {
            Ok((uid, gid)) => self
                .node()
                .host
                .attainable_owner((uid.unwrap_or(0), gid.unwrap_or(0))),
            Err(owner) => return self.refuse_owner(&link.origin, &owner),
        };
        let found = self.node().object(&link.path);
        let same = matches!(found.map(|found| &found.kind), Some(ObjectKind::Symlink { target }) if simplify_target(target) == simplify_target(&link.target));
        // A different spelling of the same place is acceptable, and Ignition leaves it too.
        let target = match found.map(|found| &found.kind) {
            Some(ObjectKind::Symlink { target }) if same => target.clone(),
            _ => link.target.clone(),
        };
        if same || self.may_replace(link, found.is_some()) {
            let object = Object::new(ObjectKind::Symlink { target }, 0o777, (uid, gid));
            let why = if same {
                "owner of the link differs"
            } else {
                "the link is missing or leads elsewhere"
            };
            let section = Section::Nodes;
            self.put_over(
                &link.path,
                object,
                Payload::None,
                section,
                why,
                InTheWay::Goes,
            );
        }
    }

    fn may_replace(&mut self, link: &DesiredLink, exists: bool) -> bool {
        if exists && !link.overwrite {
            let path = link.path.to_string();
            let message = format!(
                "something else is where the link should be, and overwrite is not set. {}",
                move_away(&path)
            );
            self.add_blocker(path, message);
        }
        !exists || link.overwrite
    }

    fn hard_link(&mut self, link: &DesiredLink) {
        // A target without a leading slash is relative to the root, as in Ignition.
        let target = match RootPath::parse(&format!("/{}", link.target.trim_start_matches('/'))) {
            Ok(target) => target,
            Err(error) => {
                return self.add_blocker(format!("{}.target", link.origin), error.to_string());
            }
        };
        let (target, planned) = match self.find_planned(&target) {
            Some((path, object)) => (path, Some(object)),
            None => (target, None),
        };
        let node = self.node();
        let same_file = match (node.stamps.get(&link.path), node.stamps.get(&target)) {
            (Some(a), Some(b)) => a.same_file(b),
            _ => false,
        };
        if planned.is_none() && same_file {
            return;
        }
        let Some(object) = planned.or_else(|| node.object(&target).cloned()) else {
            let message = format!("the target {target} of the hard link does not exist");
            return self.add_blocker(format!("{}.target", link.origin), message);
        };
        if object.is_directory() {
            return self.add_blocker(
                format!("{}.target", link.origin),
                "a hard link cannot lead to a directory",
            );
        }
        let old = node.object(&link.path).cloned();
        if !(same_file || self.may_replace(link, old.is_some()))
            || !self.may_touch(&link.path, old.as_ref(), InTheWay::Goes)
        {
            return;
        }
        self.make_parents(&link.path);
        let step = Step::Put {
            path: link.path.clone(),
            new: object,
            old,
        };
        self.push_step(
            step,
            Payload::LinkTo(target),
            Section::Nodes,
            "is not the same file as its target",
        );
    }

    /// Returns the object that the plan puts at a path, and the path as the plan names it.
    fn find_planned(&self, target: &RootPath) -> Option<(RootPath, Object)> {
        let mut steps = self.plan.steps.iter();
        steps.find_map(|planned| match &planned.step {
            Step::Put { path, new, .. } if self.real_path(path) == self.real_path(target) => {
                Some((path.clone(), new.clone()))
            }
            _ => None,
        })
    }
}

/// Returns a link target without double slashes and dots, for comparison.
fn simplify_target(target: &str) -> String {
    let parts: Vec<&str> = target
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    format!(
        "{}{}",
        if target.starts_with('/') { "/" } else { "" },
        parts.join("/")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_compared_without_their_detours() {
        assert_eq!(simplify_target("/a//b/./c/"), "/a/b/c");
        assert_eq!(simplify_target("../x"), "../x");
        assert_ne!(simplify_target("a"), simplify_target("/a"));
    }
}
