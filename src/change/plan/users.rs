//! Keys and password of `core` (docs/develop/agreement.md: Users); ensures that a login stays possible.
//!
//! Deliberate differences from the daemon: a password is locked with `*`, never emptied; an `.ssh` with a wrong owner gets the
//! right one instead of being deleted; a password that no config ever set is left alone.

use std::borrow::Cow;

use super::{Attributes, Builder, Payload, Section};
use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::host::root::RootPath;
use crate::judge::drift::{keys_object, keys_text, text_object};
use crate::node::accounts::{allows_login, count_keys, is_locked};

/// A password field that no password matches.
const LOCKED: &str = "*";

impl Builder<'_> {
    /// Plans keys and password.
    pub(super) fn plan_users(&mut self) {
        let desired = self.inputs.desired;
        let had_users = self.inputs.old.is_some_and(|old| old.has_users);
        if !desired.has_users && !had_users {
            if self.node().accounts.is_broken("core") {
                self.plan_password();
            }
            return;
        }
        let Some(&core) = self.node().accounts.users.get("core") else {
            let create = mco_rescue("apply --key FILE");
            self.add_notice(
                "spec.config.passwd.users",
                format!("the user core is missing, so its keys and password are skipped. Create it: `{create}`"),
            );
            return;
        };
        self.check_lockout();
        self.plan_keys(core);
        self.plan_password();
    }

    fn plan_keys(&mut self, core: (u32, u32)) {
        for directory in [paths::CORE_SSH, paths::CORE_KEYS_DIR] {
            let why = "is not owned by core";
            self.own_directory(&RootPath::fixed(directory), core, why);
        }
        let desired = self.inputs.desired;
        let wanted = keys_object(desired, self.node(), core);
        let text = keys_text(desired).into_bytes();
        self.put_object(
            &RootPath::fixed(paths::CORE_KEYS),
            wanted,
            Payload::Bytes(text),
            Section::Users,
            "SSH keys of core",
        );
    }

    /// Sets the owner of a directory of keys: sshd ignores it if another user owns it.
    pub(super) fn own_directory(
        &mut self,
        path: &RootPath,
        core: (u32, u32),
        why: impl Into<Cow<'static, str>>,
    ) {
        let node = self.node();
        let (Some(found), true) = (node.directories.get(path), node.host.can_chown) else {
            return;
        };
        if found.owner == core {
            return;
        }
        let old = Attributes {
            mode: found.mode,
            uid: found.owner.0,
            gid: found.owner.1,
        };
        let new = Attributes {
            mode: 0o700,
            uid: core.0,
            gid: core.1,
        };
        self.put_attributes(path, old, new, Section::Users, why);
    }

    fn plan_password(&mut self) {
        let Some(hash) = self.wanted_password() else {
            return;
        };
        let path = RootPath::fixed(paths::SHADOW);
        let node = self.node();
        let is_set = node.accounts.find_password("core") == Some(hash.as_str());
        if is_set && !node.accounts.is_broken("core") {
            return;
        }
        let (Some(text), Some(found)) =
            (node.accounts.shadow_with("core", &hash), node.object(&path))
        else {
            self.add_notice(
                path.to_string(),
                "has no line for core, or cannot be read: the password is skipped",
            );
            return;
        };
        if !matches!(found.kind, ObjectKind::File { .. }) {
            self.add_blocker(
                path.to_string(),
                "is not a regular file. Make it one before the password can be set",
            );
            return;
        }
        let wanted = text_object(text.as_bytes(), found.mode, found.owner());
        let why = if node.accounts.is_broken("core") {
            "the line of core is broken"
        } else {
            "password of core"
        };
        let payload = Payload::Bytes(text.into_bytes());
        self.put_object(&path, wanted, payload, Section::Users, why);
    }

    /// Returns the password field to set; `None` to leave it.
    fn wanted_password(&self) -> Option<String> {
        let desired = self.inputs.desired;
        if let Some(hash) = &desired.password_hash {
            return Some(hash.clone());
        }
        // No login can read a broken line, and the config does not say what it contained.
        let accounts = &self.node().accounts;
        if accounts.is_broken("core") {
            return Some(accounts.find_password("core").unwrap_or(LOCKED).to_owned());
        }
        let config_had_one = self
            .inputs
            .old
            .is_some_and(|old| old.password_hash.is_some());
        let usable = self
            .node()
            .accounts
            .find_password("core")
            .is_some_and(|found| !is_locked(found));
        (config_had_one && usable).then(|| LOCKED.to_owned())
    }

    /// Refuses a config that removes both the last key and the last password.
    fn check_lockout(&mut self) {
        let desired = self.inputs.desired;
        let accounts = &self.node().accounts;
        let password_after = self.has_password_after();
        let keys_after = desired
            .keys
            .iter()
            .map(|key| count_keys(key))
            .sum::<usize>()
            + accounts.other_keys;
        if keys_after > 0 || password_after {
            return;
        }
        let message =
            "afterwards no login as core would be possible: neither key nor password is left";
        if self.options.allow_lockout || !self.has_access() {
            self.add_notice("spec.config.passwd.users", message);
        } else {
            self.add_blocker(
                "spec.config.passwd.users",
                format!("{message}. Use --allow-lockout if that is meant"),
            );
        }
    }

    /// Returns true if core can log in with a password afterwards. A password that cannot be set is ignored.
    fn has_password_after(&self) -> bool {
        let settable = |hash: &String| {
            let text = self.node().accounts.shadow_with("core", hash);
            let shadow = self.node().object(&RootPath::fixed(paths::SHADOW));
            let is_file = |found: &Object| matches!(found.kind, ObjectKind::File { .. });
            text.is_some() && shadow.is_some_and(is_file)
        };
        match self.wanted_password().filter(settable) {
            Some(hash) => allows_login(&hash),
            None => self
                .node()
                .accounts
                .find_password("core")
                .is_some_and(allows_login),
        }
    }

    /// Returns true if core can log in now.
    fn has_access(&self) -> bool {
        let password = self.node().accounts.find_password("core");
        self.has_keys() || password.is_some_and(allows_login)
    }

    /// Returns true if core has keys now.
    pub(super) fn has_keys(&self) -> bool {
        let node = self.node();
        let keys = match node
            .object(&RootPath::fixed(paths::CORE_KEYS))
            .map(|object| &object.kind)
        {
            Some(ObjectKind::File { size, .. }) => *size > 0,
            _ => false,
        };
        keys || node.accounts.other_keys > 0
    }
}
