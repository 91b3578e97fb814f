//! The daemon's records, written last, so that the daemon only believes in the config when it is in place (docs/develop/agreement.md:
//! Start), and files that would make the daemon, or a part of it, apply another config.

use super::{Attributes, Builder, Force, Payload, Section};
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::host::root::RootPath;
use crate::judge::drift::text_object;
use crate::node::Recorded;

impl Builder<'_> {
    /// Plans `currentconfig`, `currentimage` and the mode of the kubeconfig.
    pub(super) fn plan_records(&mut self) {
        self.plan_kubeconfig();
        self.plan_force_file();
        self.plan_leftovers();
        self.first_boot_files();
        if self.options.request_force {
            let path = format!("/{}", paths::CURRENT_CONFIG);
            self.add_notice(
                path,
                "stays as it is, so that the daemon continues from there and does the rest",
            );
            return;
        }
        self.plan_record();
    }

    fn plan_record(&mut self) {
        let owner = self.node().host.attainable_owner((0, 0));
        let config = self.inputs.config;
        let why = match &self.inputs.records.current_config {
            Recorded::Missing => "the daemon has no record",
            Recorded::Broken(_) => "the daemon's record cannot be read",
            Recorded::Present(_) => "the daemon's record of the config",
        };
        let wanted = Object::new(
            ObjectKind::File {
                size: config.record.len() as u64,
                sha256: config.digest.clone().into(),
            },
            0o644,
            owner,
        );
        let path = RootPath::fixed(paths::CURRENT_CONFIG);
        self.put_object(
            &path,
            wanted,
            Payload::Record(config.record.clone()),
            Section::Records,
            why,
        );
        if self.inputs.records.current_image.is_none() {
            let path = RootPath::fixed(paths::CURRENT_IMAGE);
            let wanted = text_object(b"", 0o644, owner);
            self.put_object(
                &path,
                wanted,
                Payload::Bytes(Vec::new()),
                Section::Records,
                "no layered image",
            );
        }
    }

    /// Plans the force file. It is not part of the transaction: it is in memory, and does not survive a reboot.
    fn plan_force_file(&mut self) {
        let path = RootPath::fixed(paths::FORCE);
        let live = self.node().host.live;
        if self.options.request_force && !live {
            let message = "is in the running system's memory: --request-mcd-force works only on the running node";
            self.add_blocker(path.to_string(), message);
        } else if self.options.request_force {
            self.plan.force = Force::Requested;
            let message = "is made at the end: when the daemon starts in this boot, it compares nothing, writes all of \
                           the desired config again, drains and reboots";
            self.add_notice(path.to_string(), message);
        } else if live && self.node().object(&path).is_some() && !self.options.files_only {
            self.plan.force = Force::Withdrawn;
            let message = "exists, so the daemon would compare nothing, write everything again, drain and reboot; it \
                           is removed once everything is in place";
            self.add_notice(path.to_string(), message);
        }
    }

    fn plan_kubeconfig(&mut self) {
        let path = RootPath::fixed(paths::KUBECONFIG);
        if self.is_touched(&path) {
            return;
        }
        let Some(found) = self.node().object(&path) else {
            self.add_notice(path.to_string(), "is missing: the daemon's next update will fail without it. Restore it from another node");
            return;
        };
        let is_file = matches!(found.kind, ObjectKind::File { .. });
        if is_file
            && found.mode != 0o600
            && !self.is_touched(&path)
            && self.inputs.desired.file_at(&path).is_none()
        {
            let old = Attributes::from(found);
            let new = Attributes { mode: 0o600, ..old };
            self.put_attributes(
                &path,
                old,
                new,
                Section::Files,
                "the daemon keeps it at 0600",
            );
        }
    }

    /// Returns true if this run does the work of the first-boot service: image and kernel arguments are known and will be
    /// right. A first boot itself decides when its files are written.
    fn does_its_work(&self) -> bool {
        let first = self.is_touched(&RootPath::fixed(paths::ENCAPSULATED));
        self.node().system.facts().is_some() && !self.options.files_only && !first
    }

    /// Disarms the first-boot service as it does itself (docs/develop/agreement.md: First boot): its input is kept for reference, but
    /// under another name.
    fn no_trigger(&mut self) {
        let (file, kept) = (paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
        let (file, kept) = (RootPath::fixed(file), RootPath::fixed(kept));
        let why = "the first-boot service has nothing left to do";
        self.plan_copy(&file, &kept, Section::Records, why);
        self.remove_object(&file, Section::Records, why);
    }

    /// Removes files that the daemon itself removes after use, and which would make it fail or act if they were left.
    fn plan_leftovers(&mut self) {
        let repository = RootPath::fixed(paths::EXTENSIONS_REPOSITORY);
        if self.inputs.desired.file_at(&repository).is_none() {
            let why = "left over from a daemon that staged extensions: what it names is gone";
            self.remove_object(&repository, Section::Records, why);
        }
        self.remove_revert();
    }

    /// Removes the service that leaves on-cluster layering; at the next boot it would do the same as the first-boot service.
    fn remove_revert(&mut self) {
        let all = [paths::REVERT_LINK, paths::REVERT_UNIT, paths::REVERT].map(RootPath::fixed);
        let ours =
            |path: &RootPath| self.is_touched(path) || self.inputs.desired.file_at(path).is_some();
        let there = all.iter().any(|path| self.node().object(path).is_some());
        if !there || all.iter().any(ours) {
            return;
        }
        if self.does_its_work() {
            for path in &all {
                let why = "the revert service has nothing left to do";
                self.remove_object(path, Section::Records, why);
            }
        } else {
            let path = format!("/{}", paths::REVERT);
            self.add_notice(
                path,
                "still exists: the revert service will run at the next boot, and apply its content",
            );
        }
    }

    /// Removes the file if it is no longer needed: once the daemon knows the node, it would make the daemon take it for a new
    /// one.
    fn node_annotations(&mut self) {
        let path = RootPath::fixed(paths::NODE_ANNOTATIONS);
        if !self.inputs.records.node_annotations || self.is_touched(&path) {
            return;
        }
        if self.inputs.records.first_boot_over && self.inputs.desired.file_at(&path).is_none() {
            let why = "the node's first boot is over: with it the daemon would ignore its record";
            self.remove_object(&path, Section::Records, why);
        } else {
            self.add_notice(
                path.to_string(),
                "still exists, as the daemon has not adopted the node yet: it will ignore currentconfig and use \
                 the config named in it",
            );
        }
    }

    fn first_boot_files(&mut self) {
        self.node_annotations();
        if self.inputs.records.encapsulated && self.does_its_work() {
            self.no_trigger();
        } else if self.inputs.records.encapsulated {
            let path = format!("/{}", paths::ENCAPSULATED);
            self.add_notice(
                path,
                "still exists: the first-boot service runs at the next boot, and applies its content",
            );
        }
    }
}
