//! Bare Ignition configs: Ignition's rules for files instead of the daemon's (docs/develop/ignition.md: Nodes).
//!
//! Deliberate differences from Ignition: a file that is already right is not an error, so that a second run changes nothing;
//! fragments that are already at the end of the file are not appended again; nothing is removed before the new content is in
//! place.

use super::{Attributes, Builder, InTheWay, Payload, Section, files};
use crate::base::invocation::move_away;
use crate::base::object::{Object, ObjectKind};
use crate::config::document::{BareFile, DesiredFile};
use crate::judge::drift::{UnknownOwner, group_id, text_object, user_id, wanted_file};

impl Builder<'_> {
    /// Adds the notice for every bare config.
    pub(super) fn note_bare(&mut self) {
        self.add_notice("", "a bare Ignition config has no name: the daemon's record is left as it is, and the daemon knows nothing about this run");
    }

    /// Plans a file by Ignition's rules.
    pub(super) fn bare_file(&mut self, file: &DesiredFile, bare: &BareFile) {
        let found = self.node().object(&file.path).cloned();
        let object = match (&found, bare.keep) {
            (Some(found), true) if is_file(found) => self.keep_contents(file, bare, found),
            _ => self.write_contents(file, bare),
        };
        let (object, payload) = match object {
            Ok(planned) => planned,
            Err(owner) => return self.refuse_owner(file.place(self.inputs.config), &owner),
        };
        match &found {
            Some(found) if found.is_like(&object) => {}
            Some(found) if found.kind == object.kind => {
                // The contents are already right: only mode and owner change.
                let (old, new) = (Attributes::from(found), Attributes::from(&object));
                let why = "mode or owner differs";
                self.put_attributes(&file.path, old, new, Section::Files, why);
            }
            Some(found) if !(bare.overwrite || bare.keep && is_file(found)) => {
                let path = file.path.to_string();
                let message = format!(
                    "exists as another kind of object, and overwrite is not set. {}",
                    move_away(&path)
                );
                self.add_blocker(path, message);
            }
            _ => {
                let why = files::explain_difference(found.as_ref(), &object);
                let section = Section::Files;
                self.put_over(&file.path, object, payload, section, why, InTheWay::Goes);
            }
        }
    }

    /// Returns an existing file with its contents kept; fragments are appended once.
    fn keep_contents(
        &self,
        file: &DesiredFile,
        bare: &BareFile,
        found: &Object,
    ) -> Result<(Object, Payload), UnknownOwner> {
        let accounts = &self.node().accounts;
        let uid = bare
            .user
            .as_ref()
            .map(|user| user_id(user, accounts))
            .transpose()?;
        let gid = bare
            .group
            .as_ref()
            .map(|group| group_id(group, accounts))
            .transpose()?;
        let wanted = (uid.unwrap_or(found.uid), gid.unwrap_or(found.gid));
        let owner = if self.node().host.can_chown {
            wanted
        } else {
            found.owner()
        };
        let mode = bare.mode.unwrap_or(found.mode);
        let tail = bare.appended_bytes();
        let before = self
            .node()
            .texts
            .get(&file.path)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if tail.is_empty() || before.ends_with(&tail) {
            let same = Object::new(found.kind.clone(), mode, owner);
            return Ok((same, Payload::None));
        }
        let bytes = [before, &tail].concat();
        Ok((text_object(&bytes, mode, owner), Payload::Bytes(bytes)))
    }

    /// Returns a file with its contents and everything appended to them.
    fn write_contents(
        &self,
        file: &DesiredFile,
        bare: &BareFile,
    ) -> Result<(Object, Payload), UnknownOwner> {
        let mut wanted = wanted_file(file, self.node())?;
        let group = self.handed_down(&file.path);
        if let Some(gid) = group.filter(|_| bare.group.is_none()) {
            wanted.gid = self.node().host.attainable_owner((wanted.uid, gid)).1;
        }
        if bare.append.is_empty() {
            return Ok((wanted, Payload::Contents(file.contents.clone())));
        }
        let bytes = [
            file.contents.bytes().unwrap_or_default(),
            bare.appended_bytes(),
        ]
        .concat();
        Ok((
            text_object(&bytes, wanted.mode, wanted.owner()),
            Payload::Bytes(bytes),
        ))
    }
}

fn is_file(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::File { .. })
}
