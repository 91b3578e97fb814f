//! Files, their originals, and files that the config no longer has (docs/develop/agreement.md: Files, Units).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::claims::{NAME_MAX, longest_name};
use super::{Builder, Payload, Section};
use crate::base::invocation::move_away;
use crate::base::kargs::Kargs;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::config::document::ignition::Unit;
use crate::config::document::{Desired, DesiredFile, KernelType};
use crate::host::root::RootPath;
use crate::judge::drift::{dropin_path, is_exempt, kind_noun, text_object, unit_path, wanted_file};
use crate::node::originals::{NOORIG_SUFFIX, OriginalPaths};
use crate::node::{Packaged, Recorded};

/// Whether the object at a path came with the OS.
enum Origin {
    /// It did; the copy is taken from this path.
    Os(RootPath),
    /// There was no original.
    None,
    /// It is unknown: it is in no package database and the OS has no twin of it.
    Unknown,
}

impl Builder<'_> {
    /// Plans every file of the config.
    pub(super) fn plan_files(&mut self) {
        let desired = self.inputs.desired;
        // On a new node, most files are missing, each with a stamp: a growing list would waste memory.
        let missing = desired
            .files
            .len()
            .saturating_sub(self.node().objects.len());
        self.plan.steps.reserve(2 * missing);
        for file in &desired.files {
            if let Some(bare) = &file.bare {
                self.bare_file(file, bare);
                continue;
            }
            if self.is_left_to_the_daemon(file) {
                continue;
            }
            match wanted_file(file, self.node()) {
                Ok(wanted) => self.plan_file(file, wanted),
                Err(owner) => self.refuse_owner(file.place(self.inputs.config), &owner),
            }
        }
    }

    /// Returns true if the daemon maintains the file. The daemon also writes some files from cluster data, so a newer one than
    /// the config's is kept; the daemon's update writes it only if the config changes it. The kubelet's CA is not among these
    /// files.
    fn is_left_to_the_daemon(&self, file: &DesiredFile) -> bool {
        // In spec 2, the daemon validates them nevertheless.
        let exempt = is_exempt(&file.path) && !self.inputs.desired.spec2;
        if !exempt || self.node().object(&file.path).is_none() {
            return false;
        }
        let changes = |old: &Desired| {
            old.file_at(&file.path)
                .is_none_or(|old| files_differ(old, file))
        };
        file.path.relative() == paths::KUBELET_CA || !self.inputs.old.is_some_and(changes)
    }

    /// Plans the server's additions on a node without a record, which gets them at its first boot; on a recorded node they
    /// would trigger the first boot again.
    pub(super) fn plan_additions(&mut self) {
        let desired = self.inputs.desired;
        if desired.additions.is_empty()
            || !matches!(self.inputs.records.current_config, Recorded::Missing)
        {
            return;
        }
        self.add_notice(
            "first boot",
            "the files that the Machine Config Server adds for a first boot are written too",
        );
        for file in &desired.additions {
            if file.path.relative() == paths::ENCAPSULATED && self.os_is_as_wanted() {
                self.no_first_boot_service(&file.path);
                continue;
            }
            let Ok(mut wanted) = wanted_file(file, self.node()) else {
                continue;
            };
            if file.path.relative() == paths::KUBECONFIG {
                // Served with mode 0644; the daemon restricts it at its first update.
                wanted.mode = 0o600;
            }
            let payload = Payload::Contents(file.contents.clone());
            self.put_object(
                &file.path,
                wanted,
                payload,
                Section::Files,
                "added by the Machine Config Server",
            );
        }
    }

    /// Removes the trigger of the first-boot service. It would find nothing to change and remove its input (docs/develop/agreement.md:
    /// First boot), but to find that out it needs an image from the network, and it delays the kubelet until then.
    fn no_first_boot_service(&mut self, path: &RootPath) {
        self.add_notice(
            path.to_string(),
            "is left out: image and kernel arguments are as wanted, so the first-boot service has nothing to do",
        );
        self.remove_object(
            path,
            Section::Files,
            "the first-boot service has nothing to do",
        );
    }

    /// Returns true if nothing of the OS differs from the config, as far as that is certain.
    fn os_is_as_wanted(&self) -> bool {
        let (config, os) = (self.inputs.config, &self.node().os);
        let Some(booted) = &os.kernel_arguments else {
            return false;
        };
        let wanted = Kargs::from_entries(&config.kernel_arguments);
        let booted = booted.written_as(&wanted);
        os.image.as_ref() == Some(&config.os_image_url)
            && wanted.missing_from(&booted).is_empty()
            && wanted.out_of_order(&booted).is_empty()
            && config.extensions.is_empty()
            && config.kernel_type == KernelType::Default
            && self.node().host.fips.unwrap_or_default() == config.fips
    }

    fn plan_file(&mut self, file: &DesiredFile, wanted: Object) {
        self.short_enough(file);
        self.plan_original(&file.path);
        let why = explain_difference(self.node().object(&file.path), &wanted);
        self.put_object(
            &file.path,
            wanted,
            Payload::Contents(file.contents.clone()),
            Section::Files,
            why,
        );
    }

    /// Refuses a file whose stamp would have too long a name: the daemon fails on it.
    fn short_enough(&mut self, file: &DesiredFile) {
        let longest = longest_name(&file.path);
        let most = NAME_MAX - NOORIG_SUFFIX.len();
        if file.path.name().len() > most && longest <= NAME_MAX {
            let message = format!(
                "the name has {longest} bytes, and the daemon's stamp for it, NAME{NOORIG_SUFFIX}, must not have more than \
                 {NAME_MAX}. Shorten it to {most}"
            );
            self.add_blocker(file.place(self.inputs.config), message);
        }
    }

    /// Keeps the original of a file that the config is about to own, or stamps that there was none.
    fn plan_original(&mut self, path: &RootPath) {
        let OriginalPaths { orig, noorig, twin } = OriginalPaths::of_path(path);
        match self.origin_of(path, twin) {
            Origin::Os(source) => {
                if self.node().object(&orig).is_none() {
                    self.plan_copy(
                        &source,
                        &orig,
                        Section::Originals,
                        "the OS shipped this file",
                    );
                }
            }
            // A copy means that there was an original; only the package database itself can prove it wrong.
            Origin::None if self.has_copy(&orig) && !self.is_foreign(path) => {}
            Origin::None => {
                if self.node().object(&noorig).is_none() {
                    self.remove_object(&orig, Section::Originals, "there was no original");
                    let stamp = text_object(b"", 0o644, self.node().host.attainable_owner((0, 0)));
                    self.put_object(
                        &noorig,
                        stamp,
                        Payload::Bytes(Vec::new()),
                        Section::Originals,
                        "there was no original",
                    );
                }
            }
            // A copy or a stamp has settled this already, when the config began to own the file.
            Origin::Unknown if self.has_copy(&orig) || self.node().object(&noorig).is_some() => {}
            Origin::Unknown => {
                self.add_notice(
                    path.to_string(),
                    "may have come with the OS: neither an original nor a stamp is kept",
                );
            }
        }
    }

    fn has_copy(&self, orig: &RootPath) -> bool {
        self.node().object(orig).is_some()
    }

    /// Returns true if the package database was queried and no package owns the object at the path.
    fn is_foreign(&self, path: &RootPath) -> bool {
        self.node().packaged.get(path) == Some(&Packaged::Foreign)
    }

    /// Returns the origin of a file. rpm is only queried on a live root. A stamp for an OS file would delete it one day, so in
    /// doubt there is no stamp.
    fn origin_of(&self, path: &RootPath, twin: Option<RootPath>) -> Origin {
        let node = self.node();
        if node.object(path).is_none() {
            return Origin::None;
        }
        let ours = self
            .inputs
            .old
            .is_some_and(|old| old.file_at(path).is_some());
        let twin = twin.filter(|twin| node.object(twin).is_some());
        match (node.packaged.get(path), twin) {
            // The config owns the file on disk by now; the OS's own copy is the original.
            (_, Some(twin)) if ours => Origin::Os(twin),
            (_, Some(_)) | (Some(Packaged::Owned), _) => Origin::Os(path.clone()),
            (Some(Packaged::Foreign), None) => Origin::None,
            (None, None) if node.host.has_usr_etc && path.is_in("etc") => Origin::None,
            (None | Some(Packaged::Unanswered), None) => Origin::Unknown,
        }
    }

    /// Plans a copy of the object at `source`.
    pub(super) fn plan_copy(
        &mut self,
        source: &RootPath,
        target: &RootPath,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let Some(object) = self.node().object(source).cloned() else {
            return;
        };
        if !matches!(
            object.kind,
            ObjectKind::File { .. } | ObjectKind::Symlink { .. }
        ) {
            let what = kind_noun(&object.kind);
            self.add_blocker(
                source.to_string(),
                format!(
                    "{what} is where a file should be. {}",
                    move_away(&source.to_string())
                ),
            );
            return;
        }
        if object.kind.is_unread() {
            let message = format!(
                "has {} bytes, more than a file of a config can have, and is not copied. {}",
                object.size(),
                move_away(&source.to_string())
            );
            self.add_blocker(source.to_string(), message);
            return;
        }
        let (uid, gid) = self.node().host.attainable_owner(object.owner());
        self.put_object(
            target,
            Object { uid, gid, ..object },
            Payload::CopyOf(source.clone()),
            section,
            why,
        );
    }

    /// Plans the removal of everything that the old config had and the new one does not have.
    pub(super) fn plan_stale(&mut self) {
        let Some(old) = self.inputs.old else { return };
        let desired = self.inputs.desired;
        // It may still be there under another name.
        let wanted = desired.files.iter();
        let wanted: BTreeSet<RootPath> = wanted.map(|file| self.real_path(&file.path)).collect();
        for file in &old.files {
            let gone = !wanted.contains(&self.real_path(&file.path));
            if gone && !never_stale(&file.path) && !is_unit_path(desired, &file.path) {
                self.stale_path(&file.path, true);
            }
        }
        let mut units: BTreeMap<&str, &Unit> = BTreeMap::new();
        for unit in &desired.units {
            units.entry(&unit.name).or_insert(unit);
        }
        for unit in &old.units {
            let now = units.get(unit.name.as_str());
            for dropin in &unit.dropins {
                let kept = now.is_some_and(|now| now.dropins.iter().any(|d| d.name == dropin.name));
                if let Some(path) = dropin_path(&unit.name, &dropin.name).filter(|_| !kept) {
                    self.stale_unit_path(&path, &wanted);
                }
            }
            // An older config may have had the unit's contents, and was removed without the file.
            if let Some(path) = unit_path(&unit.name).filter(|_| now.is_none()) {
                self.stale_unit_path(&path, &wanted);
            }
        }
    }

    /// Plans the removal of a unit's path, unless a file of the config (`wanted`) is at the same location.
    fn stale_unit_path(&mut self, path: &RootPath, wanted: &BTreeSet<RootPath>) {
        if !wanted.contains(&self.real_path(path)) {
            self.stale_path(path, false);
        }
    }

    /// Refuses a config without the kubeconfig: the daemon removes it with other stale files, and then its update fails because
    /// it is missing.
    fn dropped_kubeconfig(&mut self, path: &RootPath) {
        let fails = format!(
            "no longer in the config: the daemon would remove it, and then its update would end with: cannot stat \
             {path}: stat {path}: no such file or directory"
        );
        if self.options.ignore_unsupported {
            self.add_notice(
                path.to_string(),
                format!("{fails}; left in place, as requested"),
            );
        } else {
            let next =
                "Add the file to the config again, or leave it there with --ignore-unsupported";
            self.add_blocker(path.to_string(), format!("{fails}. {next}"));
        }
    }

    /// Refuses files with an empty source: the daemon's update fails on them, and it goes Degraded if its record has them. In
    /// an initramfs they are written, as by Ignition.
    pub(super) fn empty_sources(&mut self) {
        let (desired, old) = (self.inputs.desired, self.inputs.old);
        for file in &desired.undecodable {
            let path = |known: &RootPath| known.to_string() == file.path;
            if file.appends || !desired.files.iter().any(|known| path(&known.path)) {
                continue;
            }
            let mut before = old.into_iter().flat_map(|old| &old.undecodable);
            let place = format!("{}.contents.source", file.origin);
            let said = file.when_written();
            if before.any(|known| known.path == file.path) {
                let message = format!("the daemon goes Degraded over it, as before: {said}");
                self.add_notice(place, message);
            } else if self.options.ignore_unsupported || self.node().host.in_initramfs {
                let message = format!("the daemon will go Degraded over it: {said}");
                self.add_notice(place, message);
            } else {
                let message = format!(
                    "is empty, and the daemon's update would end with: {said}. Leave `source` out, or write \"data:,\" for \
                     an empty file. Use --ignore-unsupported to apply the config anyway: the daemon will go \
                     Degraded"
                );
                self.add_blocker(place, message);
            }
        }
    }

    /// Plans a stale path. With a stamp: delete. With an original: restore it, unless it is known not to be one. Otherwise:
    /// delete (docs/develop/agreement.md: Units).
    fn stale_path(&mut self, path: &RootPath, check_origin: bool) {
        let OriginalPaths { orig, noorig, twin } = OriginalPaths::of_path(path);
        let node = self.node();
        let why = "no longer in the config";
        let stamped = node.object(&noorig).is_some();
        let kept = node.object(&orig).is_some();
        let has_twin = twin.is_some_and(|twin| node.object(&twin).is_some());
        let is_original = has_twin || !check_origin || !self.is_foreign(path);
        if !stamped && kept && is_original {
            self.plan_copy(
                &orig,
                path,
                Section::Stale,
                "no longer in the config; restored to the OS's own version",
            );
        } else if path.relative() == paths::KUBECONFIG && node.object(path).is_some() {
            return self.dropped_kubeconfig(path);
        } else {
            self.remove_object(path, Section::Stale, why);
        }
        let note = if stamped { &noorig } else { &orig };
        self.remove_object(note, Section::Originals, why);
    }
}

/// Returns the reason why a file has to be written.
pub(super) fn explain_difference(found: Option<&Object>, wanted: &Object) -> &'static str {
    match found {
        None => "missing",
        Some(found)
            if std::mem::discriminant(&found.kind) != std::mem::discriminant(&wanted.kind) =>
        {
            "of another type"
        }
        Some(found) if found.kind != wanted.kind => "content differs",
        Some(found) if found.mode != wanted.mode => "mode differs",
        Some(_) => "owner differs",
    }
}

fn files_differ(one: &DesiredFile, other: &DesiredFile) -> bool {
    let of = |file: &DesiredFile| {
        (
            file.sha256.clone(),
            file.mode,
            file.user.clone(),
            file.group.clone(),
        )
    };
    of(one) != of(other)
}

fn never_stale(path: &RootPath) -> bool {
    paths::NEVER_STALE.contains(&path.relative()) || path.is_in(paths::CERTS_D)
}

/// Returns true for a file that is a unit or drop-in in the new config, which is kept.
fn is_unit_path(desired: &Desired, path: &RootPath) -> bool {
    let of_unit = |unit: &crate::config::document::ignition::Unit| {
        let dropin = |d: &crate::config::document::ignition::Dropin| {
            dropin_path(&unit.name, &d.name).as_ref() == Some(path)
        };
        unit_path(&unit.name).as_ref() == Some(path) || unit.dropins.iter().any(dropin)
    };
    desired.units.iter().any(of_unit)
}
