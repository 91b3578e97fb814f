//! Gathers the kernels in `/boot`, and the objects and programs of the OS.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::diagnose::doctor::Look;
use crate::diagnose::doctor::evidence::DoctorEvidence;
use crate::host::root::Root;
use crate::node::ostree_repository::OstreeRepository;
use crate::node::{boot_kernels, node_programs, ostree_repository};

impl DoctorEvidence {
    /// Gathers them. The boot entries and the answer of rpm-ostree must be known.
    pub(super) fn of_objects(&mut self, root: &Root) {
        self.boot_kernels = match &self.boot {
            Look::Unseen(why) => Look::Unseen(why.clone()),
            Look::Seen(boot) => {
                boot_kernels::read_boot_kernels(root, &boot.entries, self.deep).into()
            }
        };
        self.repository = self.repository_of(root).into();
        self.programs = node_programs::read_node_programs(root, self.fencing).into();
    }

    fn repository_of(&self, root: &Root) -> Result<Option<OstreeRepository>> {
        let entries = self.boot.get().map(|boot| boot.entries.as_slice());
        let mut names = boot_kernels::list_boot_deployments(root, entries.unwrap_or_default())?;
        names.extend(self.deployment.clone());
        let facts = self.facts().ok();
        let listed = facts.iter().flat_map(|facts| &facts.deployments.all);
        let listed = listed.map(|deployment| deployment.checksum.clone());
        // The name of a deployment is `CHECKSUM.SERIAL`.
        let named = names.iter().filter_map(|name| name.split('.').next());
        let commits: BTreeSet<String> = named.map(str::to_owned).chain(listed).collect();
        Ok(ostree_repository::read_ostree_repository(
            root, &commits, self.deep,
        )?)
    }
}
