//! Users and groups of bare Ignition configs: plans the changes that the tools made to the account files, together with homes,
//! mailboxes and keys (docs/develop/ignition.md: Users).
//!
//! Deliberate differences from Ignition: the home of a removed user is left; a missing home of an existing user is not an
//! error; a home that is not empty is not moved, but reported with the command that moves it.

use std::borrow::Cow;

use super::{Attributes, Builder, InTheWay, Payload, Section, Step};
use crate::base::invocation::move_away;
use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::config::document::ignition::User;
use crate::host::root::{RootPath, sha256_hex};
use crate::judge::accounts::{Home, MAX_OWNED, Prepared, keys_text, may_have_home};
use crate::judge::drift::{kind_noun, text_object};
use crate::node::account_files::WRITTEN;
use crate::node::accounts::{allows_login, count_keys};

impl Builder<'_> {
    /// Plans the account files, then homes and keys of every user.
    pub(super) fn plan_accounts(&mut self) {
        let Some(prepared) = self.inputs.accounts else {
            return;
        };
        if let Some(Notice { subject, message }) = &prepared.problem {
            return self.add_blocker(subject, message);
        }
        for Notice { subject, message } in &prepared.notices {
            self.add_notice(subject, message);
        }
        for path in WRITTEN {
            self.account_file(prepared, path);
        }
        for home in &prepared.homes {
            if let Some(user) = self.inputs.config.ignition.passwd.users.get(home.index) {
                self.plan_home(prepared, home, user);
            }
        }
        self.report_left(prepared);
        self.last_access(prepared);
        self.refuse_twice();
    }

    fn account_file(&mut self, prepared: &Prepared, file: &'static str) {
        let (before, after) = (
            prepared.before.bytes_of(file),
            prepared.after.bytes_of(file),
        );
        let (path, Some(text)) = (RootPath::fixed(file), after) else {
            return;
        };
        if before == after {
            return;
        }
        let found = self.node().object(&path);
        let seen = before.map(sha256_hex);
        match found.map(|found| &found.kind) {
            Some(ObjectKind::File { sha256, .. }) if Some(&**sha256) == seen.as_deref() => {}
            None if before.is_none() => {}
            Some(ObjectKind::File { .. }) => {
                let message = "was changed by another program meanwhile. Run again";
                return self.add_blocker(path.to_string(), message);
            }
            _ => {
                let message = "is not a regular file. Make it one before accounts can be changed";
                return self.add_blocker(path.to_string(), message);
            }
        }
        let mode = if paths::SECRETS.contains(&file) {
            0o600
        } else {
            0o644
        };
        let (mode, owner) = found.map_or((mode, (0, 0)), |found| (found.mode, found.owner()));
        let wanted = text_object(text, mode, owner);
        // Without a shadow file, the hashes are here.
        let hashes = match file {
            paths::PASSWD => prepared.after.bytes_of(paths::SHADOW).is_none(),
            paths::GROUP => prepared.after.bytes_of(paths::GSHADOW).is_none(),
            _ => [paths::SHADOW, paths::GSHADOW].contains(&file),
        };
        let section = if hashes {
            Section::Users
        } else {
            Section::Accounts
        };
        let payload = Payload::Bytes(text.to_vec());
        self.put_object(&path, wanted, payload, section, "users or groups differ");
    }

    fn plan_home(&mut self, prepared: &Prepared, home: &Home, user: &User) {
        let origin = self.user_place(home.index);
        let path = match &home.path {
            Ok(path) => path,
            Err(_) if user.ssh_authorized_keys.is_empty() => return self.plan_mailbox(home),
            Err(problem) => {
                let message =
                    format!("no keys can be put into the home: {problem}. Give another homeDir");
                return self.add_blocker(origin, message);
            }
        };
        self.hand_over(home, user, path, &origin);
        let exists = self.node().object(path).is_some();
        match &home.moved_from {
            Some((from, filled)) => self.plan_moved_home(from, *filled, home, path, &origin),
            None if !exists && home.is_new && may_have_home(user) => {
                self.new_home(prepared, home, path);
            }
            None => {}
        }
        self.plan_mailbox(home);
        self.user_keys(prepared, home, user, path, &origin);
    }

    /// Fills a new home, like useradd, which fills only a home that it creates.
    fn new_home(&mut self, prepared: &Prepared, home: &Home, path: &RootPath) {
        let mode = prepared.defaults.home_mode;
        self.own_new_directory(path, mode, home.owner, "home of a new user");
        let Ok(skeleton) = RootPath::parse(&prepared.defaults.skeleton) else {
            return;
        };
        for below in &prepared.skeleton {
            if let (Ok(source), Ok(target)) = (skeleton.join(below), path.join(below)) {
                self.plan_skeleton((&skeleton, &source), (path, &target), home.owner);
            }
        }
    }

    fn plan_skeleton(
        &mut self,
        (skeleton, source): (&RootPath, &RootPath),
        (home, target): (&RootPath, &RootPath),
        owner: (u32, u32),
    ) {
        let why = "every new home has it";
        let Some(found) = self.node().object(source).cloned() else {
            return;
        };
        if self.gives_path(target) {
            return;
        }
        let kind = match found.kind {
            ObjectKind::Directory => {
                return self.own_new_directory(target, found.mode, owner, why);
            }
            ObjectKind::Special { .. } => {
                let message = "is a device, pipe or socket, and is not copied into new homes";
                return self.add_notice(source.to_string(), message);
            }
            // Like useradd, redirects links to the skeleton to the home.
            ObjectKind::Symlink { target } => ObjectKind::Symlink {
                target: match target.strip_prefix(&skeleton.to_string()) {
                    Some(below) => format!("{home}{below}"),
                    None => target,
                },
            },
            file @ ObjectKind::File { .. } => file,
        };
        let (uid, gid) = self.node().host.attainable_owner(owner);
        let mode = found.mode;
        let payload = match kind {
            ObjectKind::Symlink { .. } => Payload::None,
            _ => Payload::CopyOf(source.clone()),
        };
        let new = Object::new(kind, mode, (uid, gid));
        self.put_object(target, new, payload, Section::Accounts, why);
    }

    /// Returns true if the config itself has a file or link at a path.
    fn gives_path(&self, path: &RootPath) -> bool {
        let desired = self.inputs.desired;
        let whole = |file: &crate::config::document::DesiredFile| {
            file.path == *path && !file.bare.as_ref().is_some_and(|bare| bare.keep)
        };
        desired.files.iter().any(whole) || desired.links.iter().any(|link| link.path == *path)
    }

    fn own_new_directory(
        &mut self,
        path: &RootPath,
        mode: u32,
        owner: (u32, u32),
        why: impl Into<Cow<'static, str>>,
    ) {
        if !self.may_touch(path, None, InTheWay::Stays) {
            return;
        }
        self.make_parents(path);
        let (uid, gid) = self.node().host.attainable_owner(owner);
        let step = Step::MakeDirectory {
            path: path.clone(),
            mode,
            uid,
            gid,
        };
        self.note_made(path);
        self.push_step(step, Payload::None, Section::Accounts, why);
    }

    /// Plans a moved home. Only an empty home is moved: otherwise a new one is created, and the old one is left.
    fn plan_moved_home(
        &mut self,
        from: &RootPath,
        filled: bool,
        home: &Home,
        path: &RootPath,
        origin: &str,
    ) {
        let old = self.node().object(from).cloned();
        let exists = self.node().object(path).is_some();
        match old {
            Some(_) if filled && exists => {
                let message = format!(
                    "the home should move to {path}, which already exists, and {from} is not empty. Move what \
                     is in {from} to {path} by hand, remove {from}, then run again"
                );
                self.add_blocker(format!("{origin}.homeDir"), message);
            }
            Some(old) if filled || !old.is_directory() => {
                let message = format!(
                    "the home should move to {path}, and {from} is not empty. Move it by hand, then run again: \
                     mv -T {} {}",
                    quote_path(from),
                    quote_path(path)
                );
                self.add_blocker(format!("{origin}.homeDir"), message);
            }
            Some(old) => {
                let message = format!(
                    "the empty old home is left. Remove it with: rmdir {}",
                    quote_path(from)
                );
                self.add_notice(from.to_string(), message);
                if !exists {
                    let owner = replace_ids(old.owner(), home);
                    self.own_new_directory(path, old.mode, owner, "the home moves here");
                }
            }
            None => {}
        }
    }

    fn plan_mailbox(&mut self, home: &Home) {
        let Some(path) = &home.mailbox else { return };
        let node = self.node();
        let directory = path
            .parent()
            .is_none_or(|above| node.directories.contains_key(&above));
        if node.object(path).is_some() || !directory {
            return;
        }
        let group = node.accounts.groups.get("mail").copied();
        let (mode, gid) = group.map_or((0o600, home.owner.1), |mail| (0o660, mail));
        let owner = node.host.attainable_owner((home.owner.0, gid));
        let empty = text_object(b"", mode, owner);
        let why = "mailbox of a new user";
        self.put_object(
            path,
            empty,
            Payload::Bytes(Vec::new()),
            Section::Accounts,
            why,
        );
    }

    /// Changes the owner of everything that belonged to the old ids.
    fn hand_over(&mut self, home: &Home, user: &User, path: &RootPath, origin: &str) {
        let by_hand = chown_commands(home, path);
        if home.owned.too_many {
            let message = format!(
                "more than {MAX_OWNED} files of {path} would change owner. Do it by hand, then run again: {by_hand}"
            );
            return self.add_blocker(origin, message);
        }
        if home.owned.unnamed {
            let message = format!(
                "files whose names are not UTF-8 keep their owner. Change it with: {by_hand}"
            );
            self.add_notice(path.to_string(), message);
        }
        let keys = path.join(paths::KEYS).ok();
        let rewritten = keys.filter(|_| !user.ssh_authorized_keys.is_empty());
        for (path, object) in &home.owned.entries {
            if rewritten.as_ref() != Some(path) {
                self.hand_over_one(home, path, object);
            }
        }
    }

    fn hand_over_one(&mut self, home: &Home, path: &RootPath, object: &Object) {
        let why = "the ids of its owner change";
        let (uid, gid) = replace_ids(object.owner(), home);
        if let ObjectKind::Symlink { .. } = object.kind {
            let step = Step::Put {
                path: path.clone(),
                new: Object {
                    uid,
                    gid,
                    ..object.clone()
                },
                old: Some(object.clone()),
            };
            return self.push_step(step, Payload::None, Section::Accounts, why);
        }
        let mode = without_special_bits(object);
        let new = Attributes { mode, uid, gid };
        self.put_attributes(path, object.into(), new, Section::Accounts, why);
    }

    fn user_keys(
        &mut self,
        prepared: &Prepared,
        home: &Home,
        user: &User,
        path: &RootPath,
        origin: &str,
    ) {
        let Some(text) = keys_text(user) else { return };
        let there = self.node().object(path).is_some() || self.is_made(path);
        if !there && !may_have_home(user) {
            let message = format!(
                "the keys need the home {path}, which does not exist, and noCreateHome is set"
            );
            return self.add_blocker(
                origin,
                format!("{message}. Create it first, or leave noCreateHome out"),
            );
        }
        if !there {
            let mode = prepared.defaults.home_mode;
            self.own_new_directory(path, mode, home.owner, "the keys need it");
        }
        for below in [paths::SSH, paths::KEYS_DIR] {
            match path.join(below) {
                Ok(directory) => self.keys_directory(&directory, home.owner),
                Err(error) => return self.add_blocker(origin, error.to_string()),
            }
        }
        let Ok(file) = path.join(paths::KEYS) else {
            return;
        };
        if self.is_touched(&file) {
            let message =
                format!("{file} is written for another user too. Give each a home of its own");
            return self.add_blocker(origin, message);
        }
        let owner = self.node().host.attainable_owner(home.owner);
        let wanted = text_object(text.as_bytes(), 0o600, owner);
        let why = format!("SSH keys of {}", user.name);
        let payload = Payload::Bytes(text.into_bytes());
        self.put_object(&file, wanted, payload, Section::Users, why);
    }

    /// Plans a directory of the user. Links are not followed, because they may lead anywhere.
    fn keys_directory(&mut self, path: &RootPath, owner: (u32, u32)) {
        if self.is_touched(path) || self.is_made(path) {
            return;
        }
        match self.node().object(path).cloned() {
            None => self.own_new_directory(path, 0o700, owner, "the keys need it"),
            Some(found) if found.is_directory() => {
                self.own_directory(path, owner, "is not owned by its user");
            }
            Some(found) => {
                let what = kind_noun(&found.kind);
                let path = path.to_string();
                let message = format!(
                    "{what} is where a directory should be. {}",
                    move_away(&path)
                );
                self.add_blocker(path, message);
            }
        }
    }

    /// Reports files that a removed user leaves behind; they are never deleted.
    fn report_left(&mut self, prepared: &Prepared) {
        for (index, path) in &prepared.left {
            let message = format!(
                "{path} of the removed user is left. Remove it with: rm -rf {}",
                quote_path(path)
            );
            let place = self.user_place(*index);
            self.add_notice(place, message);
        }
    }

    fn user_place(&self, index: usize) -> String {
        let config = self.inputs.config;
        config.original_place(format!("passwd.users[{index}]"))
    }

    /// Refuses a config that removes both the last key and the last password of `core`.
    fn last_access(&mut self, prepared: &Prepared) {
        if prepared.before.find_user("core").is_none() {
            return;
        }
        let usable = |password: Option<String>| password.is_some_and(|found| allows_login(&found));
        let had_keys = self.has_keys();
        if !had_keys && !usable(prepared.before.find_password("core")) {
            return;
        }
        let users = &self.inputs.config.ignition.passwd.users;
        let core = prepared.homes.iter().find_map(|home| {
            let user = users.get(home.index)?;
            (user.name == "core").then_some((home, user))
        });
        let keys = match core {
            Some((home, user)) => {
                let given = user
                    .ssh_authorized_keys
                    .iter()
                    .any(|key| count_keys(key) > 0);
                let stay =
                    user.ssh_authorized_keys.is_empty() || self.node().accounts.other_keys > 0;
                given || (had_keys && stay && home.moved_from.is_none())
            }
            None => had_keys && prepared.after.find_user("core").is_some(),
        };
        if keys || usable(prepared.after.find_password("core")) {
            return;
        }
        let message =
            "afterwards no login as core would be possible: neither key nor password is left";
        if self.options.allow_lockout {
            self.add_notice("passwd.users", message);
        } else {
            let message = format!("{message}. Use --allow-lockout if that is meant");
            self.add_blocker("passwd.users", message);
        }
    }

    /// Refuses a path that both a user and `storage` create; a directory's mode and owner may be set in `storage`.
    fn refuse_twice(&mut self) {
        let desired = self.inputs.desired;
        let files = desired.files.iter();
        let files = files.filter(|file| self.is_touched(&file.path));
        let files = files.map(|file| (&file.path, file.place(self.inputs.config)));
        let links = desired.links.iter().map(|link| (&link.path, &link.origin));
        let directories = desired.directories.iter();
        let directories = directories
            .filter(|directory| !self.is_made(&directory.path))
            .map(|directory| (&directory.path, &directory.origin));
        let others = links.chain(directories);
        let others = others.filter(|(path, _)| self.is_touched(path));
        let others = others.map(|(path, origin)| (path, origin.clone()));
        let twice: Vec<(&RootPath, String)> = files.chain(others).collect();
        for (path, place) in twice {
            let message = format!(
                "{path} is changed for an entry of passwd too. Apply the two one after the other"
            );
            self.add_blocker(place, message);
        }
    }
}

/// Returns an owner with old ids replaced by the new ones.
fn replace_ids((uid, gid): (u32, u32), home: &Home) -> (u32, u32) {
    let new = |now, was, then| if now == was { then } else { now };
    (
        new(uid, home.was.0, home.owner.0),
        new(gid, home.was.1, home.owner.1),
    )
}

/// Returns the commands that do by hand what [`Builder::hand_over`] does.
fn chown_commands(home: &Home, path: &RootPath) -> String {
    let (was, now) = (home.was, home.owner);
    let path = quote_path(path);
    let user = format!("chown -hR --from={} {} {path}", was.0, now.0);
    let group = format!("chown -hR --from=:{} :{} {path}", was.1, now.1);
    match (was.0 == now.0, was.1 == now.1) {
        (false, true) => user,
        (true, false) => group,
        _ => format!("{user}; {group}"),
    }
}

/// Returns the mode without the bits that the kernel clears when a file changes owner: setuid, and setgid of programs.
fn without_special_bits(object: &Object) -> u32 {
    match object.kind {
        ObjectKind::File { .. } if object.mode & 0o010 != 0 => object.mode & !0o6000,
        ObjectKind::File { .. } => object.mode & !0o4000,
        _ => object.mode,
    }
}

/// Quotes a path for the shell.
fn quote_path(path: &RootPath) -> String {
    let text = path.to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_for_people_survive_a_shell() {
        let quoted = |text: &str| quote_path(&RootPath::parse(text).unwrap());
        assert_eq!(quoted("/home/a.b"), "/home/a.b");
        assert_eq!(quoted("/home/a b; rm '"), "'/home/a b; rm '\\'''");
    }
}
