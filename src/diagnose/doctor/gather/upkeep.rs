//! Gathers facts about a node that are not part of its configs.

use anyhow::Result;

use crate::base::paths;
use crate::change::session::predict;
use crate::config::document;
use crate::diagnose::doctor::evidence::DoctorEvidence;
use crate::diagnose::doctor::upkeep::{Elsewhere, LabelEvidence};
use crate::formats::labels::LabelPolicy;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::running;
use crate::node::clock::PastMoment;
use crate::node::host::host_architecture;
use crate::node::images::auth::Secrets;
use crate::node::lasting::Transient;
use crate::node::neighbours::own_stateroot;
use crate::node::{
    Host, NodeState, builds, deploy_directories, judged_units, login, name_servers, stamps,
    unit_links,
};

/// Files with credentials: the pull secrets, and that of the internal registry.
const SECRETS: [&str; 4] = [
    paths::PULL_SECRETS[0],
    paths::PULL_SECRETS[1],
    paths::PULL_SECRETS[2],
    "etc/mco/internal-registry-pull-secret.json",
];

impl DoctorEvidence {
    /// Gathers everything except the labels, which come from the comparison of the disk.
    pub(super) fn of_upkeep(&mut self, root: &Root) {
        let upkeep = &mut self.upkeep;
        upkeep.login = login::read_login(root).into();
        upkeep.secrets = read_secrets(root).into();
        upkeep.unit_links = unit_links::read_unit_links(root).into();
        upkeep.judged_units = judged_units::read_judged_units(root).into();
        upkeep.stamps = stamps::read_stamps(root).into();
        upkeep.name_servers = name_servers::read_name_servers(root).into();
        upkeep.builds = builds::read_builds(root).into();
        let initial = root.read(&RootPath::fixed(paths::NODE_ANNOTATIONS));
        let initial = initial.map(|bytes| Some(predict::parse_annotations(&bytes?)));
        upkeep.annotations = initial.into();
        let record = RootPath::fixed(paths::CURRENT_CONFIG);
        upkeep.record_written = written_time(root, &record).ok().flatten();
        let unit = root.exists(&RootPath::fixed("etc/systemd/system/kubelet.service"));
        upkeep.has_kubelet_unit = unit.into();
        let host = Host::observe(root);
        let of_host = host.as_ref().map_err(|error| error.clone().into());
        upkeep.elsewhere = of_host.and_then(|host| read_elsewhere(root, host)).into();
        let transient = host.as_ref().map_err(Clone::clone);
        let transient = transient.and_then(|host| Transient::observe(root, host));
        upkeep.transient = transient.into();
        if let Ok(host) = host {
            upkeep.fips = host.fips;
            upkeep.architecture = host_architecture(root, host.live);
            upkeep.var_missing = host.var_missing;
        }
        upkeep.terminals = self.live.then(list_terminals).flatten();
        self.of_builds();
    }

    /// Adds the build times of the OS to the clock, as they are in the past.
    fn of_builds(&mut self) {
        let built = |place: &str, at: u64| PastMoment {
            place: place.to_owned(),
            what: "the OS was built",
            at,
            foreign: true,
        };
        let os = self.upkeep.builds.get().and_then(|all| all.os.as_ref());
        let os = os.map(|os| built(&os.place, os.day));
        let booted = self.facts().ok();
        let booted = booted.and_then(|facts| facts.deployments.booted()?.timestamp);
        let commit = booted.map(|at| built("the commit of the OS", at));
        self.clock.passed.extend(os.into_iter().chain(commit));
    }
}

/// Returns what a session found about labels.
pub(super) fn label_evidence(node: &NodeState) -> LabelEvidence {
    let mut wrong = node.labels.find_mislabelled(&node.objects);
    // The daemon's copies have the labels of their originals.
    wrong.retain(|one| !one.path.is_in(paths::ORIG));
    LabelEvidence {
        unusable: match &node.labels.policy {
            LabelPolicy::Unusable(why) => Some(why.to_string()),
            LabelPolicy::None | LabelPolicy::Usable { .. } => None,
        },
        wrong,
    }
}

fn read_secrets(root: &Root) -> Result<Vec<Secrets>, RootError> {
    let mut all = Vec::new();
    for file in SECRETS {
        let path = RootPath::fixed(file);
        if let Some(bytes) = root.read(&path)? {
            all.push(Secrets::parse(&path.to_string(), &bytes));
        }
    }
    Ok(all)
}

/// Returns the records in the other deployments of this stateroot. Another stateroot is a separate installation with its own
/// `/var`. An unreadable record is ignored.
fn read_elsewhere(root: &Root, host: &Host) -> Result<Vec<Elsewhere>> {
    let directories = deploy_directories::list_deploy_directories(root)?;
    let own = own_stateroot(root, host, &directories);
    let mut all = Vec::new();
    for directory in directories {
        if own.as_ref().is_some_and(|own| *own != directory.stateroot) {
            continue;
        }
        let path = directory.path.join(paths::CURRENT_CONFIG)?;
        let (Some(bytes), Some(written)) = (root.read(&path)?, written_time(root, &path)?) else {
            continue;
        };
        let config = document::parse_document(bytes, &path.to_string());
        if let Some(config) = config
            .ok()
            .filter(|_| host.deployment.as_ref() != Some(&directory.name))
        {
            all.push(Elsewhere {
                deployment: directory.name,
                path: path.to_string(),
                config: config.name,
                written,
            });
        }
    }
    Ok(all)
}

fn written_time(root: &Root, path: &RootPath) -> Result<Option<u64>, RootError> {
    let stat = root.stat(path)?;
    Ok(stat.and_then(|stat| u64::try_from(stat.st_mtime).ok()))
}

fn list_terminals() -> Option<Vec<String>> {
    running::list_names("/sys/class/tty").ok()
}
