//! Evidence about the node, gathered on demand while a plan is made.

use anyhow::{Context, Result};

use crate::base::notice::Notice;
use crate::change::install::completion::{Beforehand, Completion};
use crate::change::plan::{
    Findings, ImageEvidence, LiveEvidence, Logins, OsPlan, Plan, PlannedTrial, TrialFindings,
    find_leftovers,
};
use crate::change::session::{Session, access, policies};
use crate::change::source::identity::NodeIdentity;
use crate::change::staging::image_source::{self, SourceOptions};
use crate::change::staging::stage::Over;
use crate::change::staging::{quorum, state};
use crate::change::transaction;
use crate::change::trial::facts::find_trial_facts;
use crate::config::document::{FORCE_FILE, MachineConfig};
use crate::config::render::NameHash;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::running;
use crate::judge::daemon::policies::ClusterSettings;
use crate::node::command::CommandRunner;
use crate::node::etcd::Etcd;
use crate::node::fault_group::FaultGroup;
use crate::node::host_name::{self, HostNames};
use crate::node::kernel_modules::{self, KernelModules};
use crate::node::lasting::Transient;
use crate::node::network_faults::{NetworkFault, NodeKnowledge, find_network_faults};
use crate::node::platform::NextConfig;
use crate::node::pull_files::{PullFault, find_pull_faults};
use crate::node::selinux_state::{self, SelinuxFaultKind};
use crate::node::view::NodeView;
use crate::node::{Activity, NodeState, login, network};

/// The evidence for one plan.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct NodeEvidence<'a> {
    /// The root.
    pub root: &'a Root,
    /// The observed node.
    pub node: &'a NodeState,
    /// The runner that starts programs.
    pub runner: &'a dyn CommandRunner,
    /// The config with its evidence; `None` for a run without its own config.
    pub session: Option<&'a Session<'a>>,
    /// A file with the cluster's MachineConfiguration.
    pub policy: Option<&'a str>,
    /// The source of the image.
    pub source: SourceOptions<'a>,
    /// The units that are installed before the run.
    pub beforehand: Option<&'a Beforehand>,
    /// The check of the unit that completes the run.
    pub completion: Completion,
}

impl<'a> NodeEvidence<'a> {
    /// Returns the evidence for a run that stages nothing and has no config.
    pub fn of_node(root: &'a Root, node: &'a NodeState, runner: &'a dyn CommandRunner) -> Self {
        Self {
            root,
            node,
            runner,
            session: None,
            policy: None,
            source: SourceOptions::default(),
            beforehand: None,
            completion: Completion::default(),
        }
    }
}

/// Returns the config of a session, for reading the files of the next boot with it.
fn next_config<'a>(session: &'a Session<'_>) -> NextConfig<'a> {
    NextConfig {
        config: &session.chosen.config,
        desired: &session.desired,
        old: session.old.as_deref(),
    }
}

impl LiveEvidence for NodeEvidence<'_> {
    fn possible_logins(&self, plan: &Plan) -> Result<Logins> {
        let after = NodeView::after(self.root, find_leftovers(plan));
        let read =
            || Ok::<_, RootError>((login::read_login(self.root)?, login::read_view(&after)?));
        let (before, after) = read().context("checking whether core can log in afterwards")?;
        Ok(Logins { before, after })
    }

    fn read_activity(&self) -> Result<Activity> {
        let observed = Activity::observe(self.root, self.runner);
        observed.with_context(|| {
            if running::exists("/proc/self") {
                "looking for running updates"
            } else {
                "looking for running updates; /proc is not mounted here (mount -t proc proc /proc)"
            }
        })
    }

    fn read_transient(&self) -> Result<Transient> {
        let transient = Transient::observe(self.root, &self.node.host);
        transient.context("looking for what every boot recreates")
    }

    fn missing_permission(&self, plan: &Plan) -> Option<Notice> {
        access::denied_writes(self.root, self.node, plan)
    }

    fn read_identity(&self) -> Result<NodeIdentity> {
        let Some(session) = self.session else {
            return Ok(NodeIdentity::default());
        };
        NodeIdentity::observe(self.root, &session.records, session.old.as_deref())
            .context("looking for pool and cluster of the node")
    }

    fn name_hash(&self) -> NameHash {
        let unknown = || NameHash::Unknown("the run has no config".to_owned());
        self.session
            .map_or_else(unknown, |session| session.name_hash().clone())
    }

    fn find_image(&self, os: &OsPlan) -> Result<ImageEvidence> {
        let extensions = self.session.map(|session| {
            let config = &session.chosen.config;
            config.extensions_image.as_str()
        });
        image_source::find_image_source(
            self.root,
            self.runner,
            os,
            &self.source,
            extensions.unwrap_or_default(),
        )
    }

    fn full_history(&self) -> Result<Option<usize>> {
        let over = Over::read_over(self.root, &state::read_booted(self.root, self.runner)?)?;
        Ok(over.is_full().then_some(transaction::HISTORY_KEPT))
    }

    fn cluster_settings(&self) -> Result<&ClusterSettings> {
        let session = self.session.context("the run has no config")?;
        session.cluster_settings(self.policy)
    }

    fn kernel_modules(&self, wanted: &MachineConfig) -> Result<KernelModules> {
        let network = network::read_network(self.root);
        Ok(kernel_modules::read_kernel_modules(
            self.root,
            &network,
            Some(wanted),
        )?)
    }

    fn has_force_file(&self) -> Result<bool> {
        let found = self.root.exists(&RootPath::parse(FORCE_FILE)?);
        found.context("looking for the force file of the daemon")
    }

    fn read_etcd(&self) -> Result<Etcd> {
        quorum::read_etcd(self.root)
    }

    fn check_completion(&self, plan: &Plan) -> Result<Findings> {
        self.completion.check_plan(self.root, plan, self.beforehand)
    }

    fn network_faults(&self) -> Result<Vec<NetworkFault>> {
        let Some(session) = self.session else {
            return Ok(Vec::new());
        };
        // Without a host name it is unknown which nmstate files apply to this host; in that case none is judged by name.
        let names = host_name::read_host_names(self.root);
        let current = names.as_ref().ok().and_then(HostNames::current_name);
        let hosts: Vec<&str> = current.map(|(_, name)| name).into_iter().collect();
        let known = NodeKnowledge {
            hosts: &hosts,
            ..NodeKnowledge::default()
        };
        let now = find_network_faults(self.root, None, known).all;
        let mut after = find_network_faults(self.root, Some(next_config(session)), known).all;
        after.retain(|fault| !now.contains(fault));
        Ok(after)
    }

    fn pull_faults(&self) -> Result<Vec<PullFault>> {
        let Some(session) = self.session else {
            return Ok(Vec::new());
        };
        let now = find_pull_faults(self.root, None).all;
        let mut after = find_pull_faults(self.root, Some(next_config(session))).all;
        after.retain(|fault| !now.contains(fault));
        Ok(after)
    }

    fn selinux_faults(&self) -> Result<Vec<FaultGroup<SelinuxFaultKind>>> {
        let Some(session) = self.session else {
            return Ok(Vec::new());
        };
        let now = selinux_state::read_selinux_state(self.root, None)?.group_faults();
        let mut after = selinux_state::read_selinux_state(self.root, Some(next_config(session)))?
            .group_faults();
        after.retain(|fault| !now.contains(fault));
        Ok(after)
    }

    fn recovery_units(&self) -> Option<Notice> {
        self.beforehand.and_then(Beforehand::notice)
    }

    fn check_trial(&self, plan: &Plan, trial: PlannedTrial) -> Result<TrialFindings> {
        let read;
        let cluster = match self.session {
            Some(session) => session.cluster_settings(self.policy)?,
            None => {
                read = policies::read_cluster(self.root, None)?;
                &read
            }
        };
        find_trial_facts(self.root, self.runner, &cluster.policies, plan, trial)
    }
}
