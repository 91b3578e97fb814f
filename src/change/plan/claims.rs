//! Paths that a config must not have: those with another owner ([`OWNED`]), those that two of its parts write, and those that
//! no file system supports. A path is judged by its real location, because one directory may have two names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Builder;
use crate::base::owned::{OWNED, OwnedPath, OwnedRule};
use crate::base::paths;
use crate::config::document::{DesiredFile, MachineConfig};
use crate::host::root::RootPath;
use crate::judge::accounts::Home;
use crate::judge::drift::{dropin_path, unit_path};

/// Maximum length of a name on a file system, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// A path that a part of the config writes.
struct Claim<'c> {
    /// As written in the document.
    path: RootPath,
    /// Its real location.
    real: RootPath,
    place: ClaimPlace<'c>,
    /// It is a directory, which other parts may use.
    is_directory: bool,
}

/// The place of a claim in the document, formatted only on demand: there may be many, and few are shown.
#[derive(Clone)]
enum ClaimPlace<'c> {
    File(&'c DesiredFile),
    At(Cow<'c, str>),
}

impl ClaimPlace<'_> {
    fn in_document(&self, config: &MachineConfig) -> String {
        match self {
            Self::File(file) => file.place(config),
            Self::At(place) => place.to_string(),
        }
    }
}

impl<'a> Builder<'a> {
    /// Adds a blocker for every path that the config must not have.
    pub(super) fn check_claims(&mut self) {
        let brought = self.brought_paths();
        let owned: Vec<(RootPath, &OwnedPath)> = OWNED
            .iter()
            .map(|owned| (self.real_path(&RootPath::fixed(owned.path)), owned))
            .collect();
        for claim in brought.iter().chain(&self.home_paths()) {
            self.refuse_overlong(claim);
            for (place, owned) in &owned {
                self.refuse_owned(claim, place, owned);
            }
        }
        let mut all = self.follow_from_users();
        all.extend(brought);
        self.claimed_twice(&all);
    }

    fn add_claim<'c>(&self, path: &RootPath, place: ClaimPlace<'c>) -> Claim<'c> {
        Claim {
            path: path.clone(),
            real: self.real_path(path),
            place,
            is_directory: false,
        }
    }

    /// Returns the paths in the config's entries, and those that are derived from their names.
    fn brought_paths(&self) -> Vec<Claim<'a>> {
        let desired = self.inputs.desired;
        let at = |origin: &'a str| ClaimPlace::At(origin.into());
        let files = desired.files.iter();
        let files = files.map(|file| self.add_claim(&file.path, ClaimPlace::File(file)));
        let links = desired.links.iter();
        let links = links.map(|link| self.add_claim(&link.path, at(&link.origin)));
        let mut all: Vec<Claim<'a>> = files.chain(links).collect();
        let directories = desired.directories.iter();
        all.extend(directories.map(|directory| Claim {
            is_directory: true,
            ..self.add_claim(&directory.path, at(&directory.origin))
        }));
        let prefix = if desired.bare { "" } else { "spec.config." };
        for (index, unit) in desired.units.iter().enumerate() {
            let origin = format!("{prefix}systemd.units[{index}]");
            let origin = ClaimPlace::At(self.inputs.config.original_place(origin).into());
            let is_written = unit.text().is_some() || unit.mask == Some(true);
            let path = unit_path(&unit.name).filter(|_| is_written);
            let dropins = unit.dropins.iter().filter(|one| one.text().is_some());
            let dropins = dropins.filter_map(|one| dropin_path(&unit.name, &one.name));
            let paths = path.into_iter().chain(dropins);
            all.extend(paths.map(|path| self.add_claim(&path, origin.clone())));
        }
        all
    }

    /// Returns the homes in a bare config, which are created or change owner.
    fn home_paths(&self) -> Vec<Claim<'a>> {
        let config = self.inputs.config;
        let prepared = self.inputs.accounts.into_iter();
        let homes = prepared.flat_map(|prepared| &prepared.homes);
        let claim = |home: &Home| {
            let origin = config.original_place(format!("passwd.users[{}].homeDir", home.index));
            Some(Claim {
                is_directory: true,
                ..self.add_claim(home.path.as_ref().ok()?, ClaimPlace::At(origin.into()))
            })
        };
        homes.filter_map(claim).collect()
    }

    /// Returns files that the users of a MachineConfig imply; those of a bare config have a check of their own.
    fn follow_from_users(&self) -> Vec<Claim<'a>> {
        let (desired, old) = (self.inputs.desired, self.inputs.old);
        if desired.bare || !self.node().accounts.users.contains_key("core") {
            return Vec::new();
        }
        let had_users = old.is_some_and(|old| old.has_users);
        let keys = (desired.has_users || had_users).then_some(paths::CORE_KEYS);
        let shadow = desired.password_hash.as_ref().map(|_| paths::SHADOW);
        let origin = self
            .inputs
            .config
            .original_place("spec.config.passwd.users".into());
        let origin = ClaimPlace::At(origin.into());
        let paths = keys.into_iter().chain(shadow).map(RootPath::fixed);
        paths
            .map(|path| self.add_claim(&path, origin.clone()))
            .collect()
    }

    /// Refuses a file that two parts write, under the same name or different ones.
    fn claimed_twice(&mut self, claims: &[Claim<'_>]) {
        let mut known: BTreeMap<&RootPath, &Claim<'_>> = BTreeMap::new();
        for claim in claims {
            let Some(first) = known.get(&claim.real) else {
                known.insert(&claim.real, claim);
                continue;
            };
            let (path, other) = (&claim.path, &first.path);
            let by = first.place.in_document(self.inputs.config);
            let message = if path == other {
                format!("{path} is written for {by} too. Take one of the two out")
            } else {
                format!(
                    "{path} is the same as {other} of {by}: links above it lead there. Take one of the two out"
                )
            };
            self.add_blocker(claim.place.in_document(self.inputs.config), message);
        }
    }

    fn refuse_owned(&mut self, claim: &Claim<'_>, place: &RootPath, owned: &OwnedPath) {
        let inside = claim.real == *place || owned.tree && claim.real.is_in(place.relative());
        let around = !claim.is_directory && place.is_in(claim.real.relative());
        let rendered = owned.rule == OwnedRule::Rendered && self.inputs.desired.bare;
        if !(inside || around) || rendered {
            return;
        }
        let (path, why) = (&claim.path, owned.why);
        let what = if inside {
            format!("{path} must not be in a config: {why}")
        } else {
            format!(
                "{path} must not be in a config, as /{} is below it: {why}",
                owned.path
            )
        };
        match owned.rule {
            OwnedRule::Accounts if inside && self.options.allow_account_files => {
                let message = format!("{path} is replaced as a whole, as asked: {why}");
                self.add_notice(claim.place.in_document(self.inputs.config), message);
            }
            OwnedRule::Accounts if inside => {
                let message = format!(
                    "{what}. Use passwd.users instead, or --allow-account-files if that is meant"
                );
                self.add_blocker(claim.place.in_document(self.inputs.config), message);
            }
            _ => self.add_blocker(
                claim.place.in_document(self.inputs.config),
                format!("{what}. Take it out of the config"),
            ),
        }
    }

    fn refuse_overlong(&mut self, claim: &Claim<'_>) {
        let longest = longest_name(&claim.path);
        if longest > NAME_MAX {
            let message = format!(
                "a name in its path has {longest} bytes, but file systems allow at most {NAME_MAX}. Shorten it"
            );
            self.add_blocker(claim.place.in_document(self.inputs.config), message);
        }
    }

    /// Returns the real location of a path, as far as its parent directories exist.
    pub(super) fn real_path(&self, path: &RootPath) -> RootPath {
        self.node().real_path(path)
    }

    /// Returns true if this plan creates a directory, under any name.
    pub(super) fn is_made(&self, path: &RootPath) -> bool {
        self.made.contains(&self.real_path(path))
    }

    /// Returns true if this plan changes a path, under any name.
    pub(super) fn is_touched(&self, path: &RootPath) -> bool {
        self.touched.contains(&self.real_path(path))
    }

    /// Records that this plan creates a directory.
    pub(super) fn note_made(&mut self, path: &RootPath) {
        let real = self.real_path(path);
        self.made.insert(real);
    }
}

/// Returns the length of the longest name in a path, in bytes.
pub(super) fn longest_name(path: &RootPath) -> usize {
    let names = path.relative().split('/').map(str::len);
    names.max().unwrap_or_default()
}
