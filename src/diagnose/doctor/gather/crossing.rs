//! Gathers the evidence for the checks of `preflight`: the deployment that the next boot enters, and the node. Only deployments on
//! the disk are read; no image is unpacked.

use anyhow::Result;

use crate::base::kargs::Kargs;
use crate::diagnose::doctor::crossing::{CrossingEvidence, CrossingMoment};
use crate::diagnose::doctor::evidence::DoctorEvidence;
use crate::host::root::{Root, RootPath};
use crate::judge::crossing::Target;
use crate::node::deploy_directories;
use crate::node::images::tree;
use crate::node::platform::Platform;
use crate::node::staged::staged_file;
use crate::node::system::OF_DEPLOYMENTS;

impl DoctorEvidence {
    /// Reads the next operating system. A root that is not image-based has none.
    pub(super) fn of_crossing(&mut self, root: &Root) {
        self.crossing = if self.boots_images {
            self.gather_crossing(root).map(Some).into()
        } else {
            Ok::<_, anyhow::Error>(None).into()
        };
    }

    fn gather_crossing(&self, root: &Root) -> Result<CrossingEvidence> {
        let mut node = Box::new(Platform::observe_but_modules(root, None));
        let staged = staged_file(root)?.filter(|file| !file.locked);
        if let Some(file) = &staged {
            let of_file = file.arguments.as_deref();
            let arguments = of_file.map(|words| Kargs::parse(words).without(&OF_DEPLOYMENTS));
            let place = "the staged deployment".to_owned();
            node.boot.staged_arguments = arguments.map(|arguments| (place, arguments));
        }
        let is_staged = staged.is_some();
        let next = staged.map(|file| file.name).or_else(|| self.named_next());
        // The same commit is the same operating system with other arguments.
        let commit = |name: &str| name.split('.').next().map(str::to_owned);
        let own = self.deployment.as_deref().and_then(commit);
        let next = next.filter(|name| commit(name) != own);
        let directory = match &next {
            Some(name) => find_directory(root, name)?.map(|(at, path)| (name, at, path)),
            None => None,
        };
        let (tree, moment) = match directory {
            Some((name, at, path)) => (
                tree::read_directory_briefly(&at, &path)?,
                CrossingMoment::Next {
                    name: name.clone(),
                    staged: is_staged,
                },
            ),
            None => (
                tree::read_directory_briefly(root, "/")?,
                CrossingMoment::Present,
            ),
        };
        Ok(CrossingEvidence {
            target: Target::from_tree(tree),
            node,
            moment,
        })
    }

    /// Returns the first deployment that rpm-ostree lists (`next_boot`), if it is not the booted one.
    fn named_next(&self) -> Option<String> {
        let facts = self.facts().ok()?;
        let next = facts.deployments.next_boot()?;
        (!next.booted).then(|| next.name())
    }
}

/// Returns the directory of a checked-out deployment, and its path.
fn find_directory(root: &Root, name: &str) -> Result<Option<(Root, String)>> {
    let all = deploy_directories::list_deploy_directories(root)?;
    let Some(found) = all.iter().find(|one| one.name == name) else {
        return Ok(None);
    };
    let directory = root.open_within(&found.path)?;
    let is_whole = directory.exists(&RootPath::fixed("usr"))?;
    Ok(is_whole.then(|| (directory, found.path.to_string())))
}
