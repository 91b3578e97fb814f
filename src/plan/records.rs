//! The daemon's records: written last, so that it believes in the config only when it is there (mcd-contract 5.3).

use super::{Attributes, Builder, Payload, Section};
use crate::drift::text_object;
use crate::node::Recorded;
use crate::object::Kind;
use crate::paths;
use crate::root::RootPath;

impl Builder<'_> {
    /// Plans `currentconfig`, `currentimage` and the mode of the kubeconfig.
    pub(super) fn records(&mut self) {
        self.kubeconfig();
        let owner = self.node().host.attainable((0, 0));
        let record = self.inputs.config.record.as_bytes();
        let why = match &self.inputs.records.current_config {
            Recorded::Missing => "the daemon has no record",
            Recorded::Broken(_) => "the daemon's record cannot be read",
            Recorded::Present(_) => "the daemon's record of the config",
        };
        let wanted = text_object(record, 0o644, owner);
        let path = RootPath::fixed(paths::CURRENT_CONFIG);
        self.put(
            &path,
            wanted,
            Payload::Bytes(record.to_vec()),
            Section::Records,
            why,
        );
        if self.inputs.records.current_image.is_none() {
            let path = RootPath::fixed(paths::CURRENT_IMAGE);
            let wanted = text_object(b"", 0o644, owner);
            self.put(
                &path,
                wanted,
                Payload::Bytes(Vec::new()),
                Section::Records,
                "no layered image",
            );
        }
        self.first_boot_files();
    }

    fn kubeconfig(&mut self) {
        let path = RootPath::fixed(paths::KUBECONFIG);
        if self.touched.contains(&path) {
            return;
        }
        let Some(found) = self.node().object(&path) else {
            self.notice(path.to_string(), "is missing: the daemon's next update will fail over it. Restore it from another node");
            return;
        };
        let is_file = matches!(found.kind, Kind::File { .. });
        if is_file
            && found.mode != 0o600
            && !self.touched.contains(&path)
            && self.inputs.desired.file(&path).is_none()
        {
            let old = Attributes::from(found);
            let new = Attributes { mode: 0o600, ..old };
            self.attributes(
                &path,
                old,
                new,
                Section::Files,
                "the daemon keeps it at 0600",
            );
        }
    }

    /// Whether this run does what the first-boot service is there for: image and kernel arguments are known and
    /// will be as wanted. A first boot itself decides when its files are written.
    fn does_its_work(&self) -> bool {
        let first = self.touched.contains(&RootPath::fixed(paths::ENCAPSULATED));
        self.node().system.facts().is_some() && !self.options.files_only && !first
    }

    /// As the first-boot service leaves it (mcd-contract section 3, step 8): kept for who wants to know, no trigger.
    fn no_trigger(&mut self) {
        let (file, kept) = (paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
        let (file, kept) = (RootPath::fixed(file), RootPath::fixed(kept));
        let why = "the first-boot service has nothing left to do";
        self.copy(&file, &kept, Section::Records, why);
        self.remove(&file, Section::Records, why);
    }

    fn first_boot_files(&mut self) {
        if self.inputs.records.node_annotations {
            let path = format!("/{}", paths::NODE_ANNOTATIONS);
            self.notice(path, "is still there: the daemon will ignore currentconfig and take the config named in it");
        }
        if self.inputs.records.encapsulated && self.does_its_work() {
            self.no_trigger();
        } else if self.inputs.records.encapsulated {
            let path = format!("/{}", paths::ENCAPSULATED);
            self.notice(path, "is still there: the first-boot service will run again at the next boot, towards its content");
        }
    }
}
