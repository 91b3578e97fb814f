//! What every command gathers: root, records, config and node. Plans are made from it.
//!
//! - [`Session`] contains all of it. Start there.
//! - [`open`] opens the root, [`access`] and [`machine`] refuse a root on which a command must not work, and [`own_state`] refuses
//!   files of other versions of this program.
//! - [`planning`] makes the plan, with the [`evidence`] about the running node; [`crossing`] judges another image before that.
//! - [`predict`] predicts what the daemon will do, now or after the plan is carried out.
//!
//! The module changes nothing, prints nothing and asks nothing.

pub mod access;
pub mod crossing;
pub mod evidence;
pub mod machine;
pub mod open;
pub mod own_state;
pub mod planning;
pub mod policies;
pub mod predict;

pub use open::{open_root, with_disk};
pub use planning::RunOptions;

use crate::host::sys::parallel::{self, ThreadResult};
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::base::invocation::{mco_rescue, on_node};
use crate::change::capsule::accepted::AcceptedCapsules;
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::plan::{self, Plan, PlanInputs, PlanOptions, Step, after_steps};
use crate::change::source::gate::ConfigRequest;
use crate::change::source::identity::{self, NodeIdentity};
use crate::change::source::{self, Chosen, Http, KnownSources, LATEST, cache};
use crate::change::transaction::journal::ConfigRef;
use crate::config::document::{Desired, Finding, MachineConfig, Text, with_first_boot_files};
use crate::config::render::{self, NameHash};
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootError};
use crate::judge::accounts::{self, Prepared};
use crate::judge::crossing::CrossingFinding;
use crate::judge::daemon::policies::{ClusterSettings, Overrides};
use crate::judge::daemon::release::{NodeRelease, Release};
use crate::judge::daemon::start::{as_seen_by, first_message};
use crate::judge::daemon::{annotations, pod_log};
use crate::judge::drift::enablement::UnchangedUnits;
use crate::judge::drift::{self, DiskOs, Drift};
use crate::node::command::CommandRunner;
use crate::node::neighbours::image_based_evidence;
use crate::node::{self, BaseFacts, Host, Interest, Machine, NodeState, Records};

/// Everything that a command has gathered.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct Session<'a> {
    /// The runner that starts programs.
    pub runner: &'a dyn CommandRunner,
    /// The root.
    pub root: Root,
    /// The daemon's records.
    pub records: Records,
    /// The config.
    pub chosen: Chosen,
    /// The state of the disk that the config asks for.
    pub desired: Arc<Desired>,
    /// The state of the disk that the recorded config asked for.
    pub old: Option<Arc<Desired>>,
    /// The node, with the accounts as they will be afterwards.
    pub node: NodeState,
    /// The machine.
    pub machine: Machine,
    /// The changes to accounts by a bare config.
    pub accounts: Option<Prepared>,
    /// The differences between node and config, once they were requested.
    differs: OnceCell<Vec<Drift>>,
    /// The simulation of unchanged units, once the plan or the differences needed it.
    unchanged: UnchangedUnits,
    /// The result of checking the hash in the config's name, once it was requested.
    name_hash: OnceCell<NameHash>,
    /// The findings about an image other than the running one, once a plan needed them.
    crossing: Option<Vec<CrossingFinding>>,
    /// The MachineConfiguration from the given file, once it was read.
    given_cluster: OnceCell<ClusterSettings>,
    /// The MachineConfiguration stored on the node, once it was read.
    kept_cluster: OnceCell<ClusterSettings>,
}

/// From this number of objects on, differences are searched in a second thread while this one plans.
const MANY: usize = 64;

/// Facts about the node that are older than this are read again before a plan is made from them.
const RECENT: Duration = Duration::from_secs(1);

/// From this size (64 KiB) on, the hash of a config is computed in a second thread.
const LARGE: usize = 1 << 16;

/// From this size (1 MiB) on, parsing a config keeps all processors busy, so its hash is computed later.
const VERY_LARGE: usize = 1 << 20;

/// Facts about the node that a second thread gathers while the config is read.
struct Ahead {
    /// The time before the facts were read.
    begun: Instant,
    /// The facts that do not depend on a config.
    base: Result<BaseFacts, RootError>,
    /// The machine.
    machine: Result<Machine>,
}

impl Ahead {
    fn start_work(root: &Root) -> Self {
        Self {
            begun: Instant::now(),
            base: BaseFacts::observe(root),
            machine: machine::observe_machine(root),
        }
    }

    /// Returns true while the facts are recent enough: reading a config from the network or a pipe may take minutes.
    fn is_recent(&self) -> bool {
        self.begun.elapsed() < RECENT
    }
}

/// Compares the hash in the name of a config with its contents, which are all read for this.
fn check_name_hash(root: &Root, config: &MachineConfig, desired: &Desired) -> NameHash {
    let _phase = progress::begin_phase(Work::new("Checking the hash of the config"));
    judge_name_hash(render::name_hash_of(&config.record), root, config, desired)
}

/// Returns the verdict on a hash. A wrong hash means nothing if the contents are known to change on their way to the node.
fn judge_name_hash(
    found: NameHash,
    root: &Root,
    config: &MachineConfig,
    desired: &Desired,
) -> NameHash {
    if found != NameHash::Wrong {
        return found;
    }
    match explain_wrong_hash(root, config, desired) {
        Ok(Some(why)) => NameHash::Unknown(why),
        Ok(None) => NameHash::Wrong,
        Err(error) => {
            log::warn!(
                "what may explain the wrong hash in {} cannot be read: {error:#}",
                config.name
            );
            NameHash::Wrong
        }
    }
}

/// Returns why the contents of a config differ from those that the operator rendered, if something on the node explains it.
fn explain_wrong_hash(
    root: &Root,
    config: &MachineConfig,
    desired: &Desired,
) -> Result<Option<String>> {
    let image = match identity::layered_image(desired) {
        None => identity::layered_image_kept(root)?,
        served => served,
    };
    if image.as_ref() == Some(&config.os_image_url) {
        let why = "the Machine Config Server put the image of a layered pool into it";
        return Ok(Some(why.to_owned()));
    }
    let evidence = image_based_evidence(root, &Host::observe(root)?)?;
    Ok(evidence.map(|evidence| {
        format!(
            "recert rewrote the contents of configs on this node from a seed image ({evidence})"
        )
    }))
}

/// Reads the facts that the config needs, and those that do not depend on a config if they are missing from `base`.
///
/// Accounts are prepared first, by tools on a copy, as they decide the location and owners of home directories.
fn read_facts(
    root: &Root,
    base: Option<BaseFacts>,
    runner: &dyn CommandRunner,
    config: &MachineConfig,
    desired: &Desired,
    old: Option<&Desired>,
    // The hard links of a bare config are compared by their stamps, even if mounts give a file a second path.
    few_stamps: bool,
) -> Result<(NodeState, Option<Prepared>), RootError> {
    let _phase = progress::begin_phase(Work::new("Looking at the node"));
    let accounts = accounts::prepare_accounts(root, config, desired, runner)?;
    let old = old.filter(|old| !std::ptr::eq(*old, desired));
    let interest = Interest {
        few_stamps,
        ..plan::paths_of_interest(desired, old, accounts.as_ref())
    };
    let base = base.map_or_else(|| BaseFacts::observe(root), Ok)?;
    let mut node = node::observe_with(root, base, interest, runner)?;
    if let Some(files) = accounts::find_brought(root, desired) {
        node.accounts = node.accounts.with_files(&files);
    }
    if let Some(accounts) = &accounts {
        node.accounts = node.accounts.with_files(&accounts.after);
    }
    Ok((node, accounts))
}

/// The config to use if none was named (docs/reference/fetch.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// The config that the node should have: for commands that change it.
    Wanted,
    /// The config that is recorded: for commands that only read.
    Recorded,
}

/// Chooses the config from the argument and from what is stored on the node.
pub fn choose_config<'a>(
    root: &Root,
    config: impl Into<ConfigRequest<'a>>,
    unnamed: Unnamed,
    records: &Records,
) -> Result<Chosen> {
    choose_by(root, config.into(), unnamed, records, &mut Http::new(root))
}

fn choose_by(
    root: &Root,
    request: ConfigRequest<'_>,
    unnamed: Unnamed,
    records: &Records,
    http: &mut Http<'_>,
) -> Result<Chosen> {
    let _phase = progress::begin_phase(Work::new("Reading the config"));
    let cache = cache::read_cache(root).context("reading the cache")?;
    let config = request.named;
    let (annotations, log) = match (config, unnamed) {
        (None, Unnamed::Wanted) => (
            annotations::read_annotations(root).context("reading the annotations")?,
            pod_log::read_pod_log(root).context("reading the daemon's log")?,
        ),
        _ => (None, None),
    };
    let node = match (config, unnamed) {
        (None, Unnamed::Wanted) | (Some(LATEST), _) => NodeIdentity::observe(root, records, None)?,
        _ => NodeIdentity::default(),
    };
    let kept = KnownSources {
        records,
        cache: &cache,
        annotations: annotations.as_ref(),
        log: log.as_ref(),
        node: &node,
    };
    let mut chosen = source::choose_source(root, &request, &kept, http)?;
    if chosen.signed.is_none() {
        chosen.signed = known_signer(root, Some(&chosen.config.digest));
    }
    Ok(chosen)
}

/// Returns who signed a config that was taken from a capsule earlier, such as one of the cache.
pub fn known_signer(root: &Root, digest: Option<&str>) -> Option<CapsuleFacts> {
    let digest = digest?;
    let accepted = AcceptedCapsules::read(root).unwrap_or_else(|error| {
        log::warn!("{error}");
        None
    });
    accepted?.signer_of(digest).cloned()
}

/// The parts of a [`Session`] that are read while other threads work for it.
struct Gathered {
    records: Records,
    chosen: Chosen,
    desired: Arc<Desired>,
    old: Option<Arc<Desired>>,
    node: NodeState,
    machine: Machine,
    accounts: Option<Prepared>,
    name_hash: OnceCell<NameHash>,
}

/// Options for observing a node.
#[derive(Debug, Clone, Copy, Default)]
struct GatherOptions {
    /// Another thread computes the hash in the config's name.
    is_hashed: bool,
    /// The command changes nothing.
    only_looks: bool,
}

impl Gathered {
    /// Observes the node for the chosen config.
    fn gather_facts(
        root: &Root,
        runner: &dyn CommandRunner,
        records: Records,
        chosen: Chosen,
        ahead: Option<Ahead>,
        options: GatherOptions,
    ) -> Result<Self> {
        let ahead = ahead.filter(Ahead::is_recent);
        let (base, machine) = ahead.map(|ahead| (ahead.base, ahead.machine)).unzip();
        let machine = machine.transpose()?;
        let base = base.transpose().context("looking at the node")?;
        let desired = Arc::new(Desired::from_config(&chosen.config));
        let baseline = records.baseline().config().filter(|_| !desired.bare);
        let old = baseline.map(|old| {
            if Arc::ptr_eq(&old.ignition, &chosen.config.ignition) {
                Arc::clone(&desired)
            } else {
                Desired::from_config(old).into()
            }
        });
        // The hash needs the whole config: it is computed now, while little else is in memory.
        let config = &chosen.config;
        let few_stamps = options.only_looks && !desired.bare;
        let old_config = old.as_deref();
        let look = || read_facts(root, base, runner, config, &desired, old_config, few_stamps);
        let record = &chosen.config.record;
        let (name_hash, seen) = if desired.bare || options.is_hashed {
            (OnceCell::new(), look())
        } else if record.len() < LARGE {
            let hash = check_name_hash(root, &chosen.config, &desired);
            (OnceCell::from(hash), look())
        } else {
            let (found, seen) = parallel::run_both(|| render::name_hash_of(record), look);
            let hash = judge_name_hash(found, root, &chosen.config, &desired);
            (OnceCell::from(hash), seen)
        };
        let (node, accounts) = seen.context("looking at the node")?;
        access::expect_read(&node)?;
        Ok(Self {
            machine: machine.map_or_else(|| machine::observe_machine(root), Ok)?,
            records,
            chosen,
            desired,
            old,
            node,
            accounts,
            name_hash,
        })
    }

    /// Judges a hash that was computed in another thread.
    fn judge_name_hash(&mut self, root: &Root, found: Option<NameHash>) {
        let judge = |found| judge_name_hash(found, root, &self.chosen.config, &self.desired);
        if let Some(found) = found {
            self.name_hash.get_or_init(|| judge(found));
        }
    }
}

impl<'a> Session<'a> {
    /// Reads records, config and node.
    pub fn observe(
        root: Root,
        runner: &'a dyn CommandRunner,
        config: impl Into<ConfigRequest<'a>>,
        unnamed: Unnamed,
    ) -> Result<Self> {
        let config = config.into();
        let (sender, texts) = channel::<Text>();
        let find_hash = move || texts.recv().ok().map(|text| render::name_hash_of(&text));
        let gather = |ahead: Option<ThreadResult<Ahead>>| {
            let mut hashed = None;
            // A given config may differ from the recorded one.
            let hashes = ahead.is_some() && config.named.is_none();
            let found = &mut hashed;
            // Without a text the other thread ends as soon as `sender` is dropped, which is before the config is parsed.
            let share = move |text: &Text| {
                if hashes && (LARGE..VERY_LARGE).contains(&text.len()) {
                    *found = sender.send(text.clone()).is_ok().then(|| text.clone());
                }
            };
            let records = Records::read_and_share(&root, share);
            let records = records.context("reading the daemon's records")?;
            let chosen = choose_config(&root, config, unnamed, &records)?;
            let record = &chosen.config.record;
            let is_hashed = hashed.is_some_and(|text| record.is_all_of(&text));
            let options = GatherOptions {
                is_hashed,
                only_looks: unnamed == Unnamed::Recorded,
            };
            let ahead = ahead.and_then(ThreadResult::wait);
            Gathered::gather_facts(&root, runner, records, chosen, ahead, options)
        };
        let (found, gathered) =
            parallel::run_beside(|| Ahead::start_work(&root), find_hash, gather);
        let mut gathered = gathered?;
        gathered.judge_name_hash(&root, found.flatten());
        Ok(Self::of_gathered(root, runner, gathered))
    }

    /// Reads records and node for a config that was already read.
    pub fn observe_for(root: Root, runner: &'a dyn CommandRunner, chosen: Chosen) -> Result<Self> {
        let records = Records::read(&root).context("reading the daemon's records")?;
        let options = GatherOptions::default();
        let gathered = Gathered::gather_facts(&root, runner, records, chosen, None, options)?;
        Ok(Self::of_gathered(root, runner, gathered))
    }

    /// Reads records, config and node in an initramfs: all references of the config must be available within `timeout`, and on the
    /// `first` boot the config gets the files that belong to that boot.
    pub fn in_boot(
        root: Root,
        runner: &'a dyn CommandRunner,
        config: ConfigRequest<'_>,
        timeout: Duration,
        first: bool,
    ) -> Result<Self> {
        let records = Records::read(&root).context("reading the daemon's records")?;
        let mut http = Http::with_limit(&root, timeout);
        let mut chosen = choose_by(&root, config, Unnamed::Wanted, &records, &mut http)?;
        if first {
            let made = with_first_boot_files(chosen.config);
            let said = |all: Vec<Finding>| {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                anyhow::anyhow!(all.join("; "))
            };
            chosen.config = made.map_err(said)?;
        }
        Self::for_chosen(root, runner, records, chosen)
    }

    /// Observes the node for a config that was derived from the recorded one.
    pub fn of_config(
        root: Root,
        runner: &'a dyn CommandRunner,
        records: Records,
        config: MachineConfig,
    ) -> Result<Self> {
        let chosen = Chosen {
            config,
            why: String::new(),
            others: Vec::new(),
            signed: None,
        };
        Self::for_chosen(root, runner, records, chosen)
    }

    /// Observes the node for a config, with records that were already read.
    pub fn for_chosen(
        root: Root,
        runner: &'a dyn CommandRunner,
        records: Records,
        chosen: Chosen,
    ) -> Result<Self> {
        let options = GatherOptions::default();
        let gathered = Gathered::gather_facts(&root, runner, records, chosen, None, options)?;
        Ok(Self::of_gathered(root, runner, gathered))
    }

    fn of_gathered(root: Root, runner: &'a dyn CommandRunner, gathered: Gathered) -> Self {
        Self {
            runner,
            machine: gathered.machine,
            root,
            records: gathered.records,
            chosen: gathered.chosen,
            desired: gathered.desired,
            old: gathered.old,
            node: gathered.node,
            accounts: gathered.accounts,
            differs: OnceCell::new(),
            unchanged: UnchangedUnits::default(),
            name_hash: gathered.name_hash,
            crossing: None,
            given_cluster: OnceCell::new(),
            kept_cluster: OnceCell::new(),
        }
    }

    /// Observes the node again after a change.
    pub fn observe_again(&mut self) -> Result<()> {
        self.look_again(false)
    }

    fn look_again(&mut self, few_stamps: bool) -> Result<()> {
        // Keeping both states would need twice the memory.
        self.node.forget_objects();
        self.unchanged = UnchangedUnits::default();
        let (config, old) = (&self.chosen.config, self.old.as_deref());
        let desired = &self.desired;
        let seen = read_facts(
            &self.root,
            None,
            self.runner,
            config,
            desired,
            old,
            few_stamps,
        );
        (self.node, self.accounts) = seen.context("looking at the node again")?;
        self.differs = OnceCell::new();
        Ok(())
    }

    /// Observes the node again after it has reached the state of the config. The next change starts from there, and observes the
    /// node itself.
    pub fn observe_applied(&mut self) -> Result<()> {
        let bare = self.desired.bare;
        if !bare {
            self.old = Some(Arc::clone(&self.desired));
        }
        self.look_again(!bare)
    }

    /// Continues with the node as it will be after these steps, which lead to the recorded config.
    pub fn foresee_steps(&mut self, steps: &[Step]) {
        if let Some(recorded) = self.old.clone() {
            let node = self.node.clone();
            self.node = after_steps(node, steps.iter(), &recorded, None);
        }
    }

    /// Returns the reference to the config for the journal and `status`.
    pub fn config_ref(&self) -> ConfigRef {
        let config = &self.chosen.config;
        ConfigRef {
            name: config.name.clone(),
            digest: config.digest.clone(),
            origin: config.origin.clone(),
        }
    }

    /// Returns the cluster's MachineConfiguration: from `file`, or from a file that was given earlier, or as stored on the node.
    /// Each is read only once, as a file may be standard input.
    pub fn cluster_settings(&self, file: Option<&str>) -> Result<&ClusterSettings> {
        if let Some(given) = self.given_cluster.get() {
            return Ok(given);
        }
        let cell = match file {
            Some(_) => &self.given_cluster,
            None => &self.kept_cluster,
        };
        if let Some(known) = cell.get() {
            return Ok(known);
        }
        let read = policies::read_cluster(&self.root, file)?;
        Ok(cell.get_or_init(|| read))
    }

    /// Returns the changes of storage sections that the cluster allows, if they are known.
    fn storage_overrides(&self) -> Option<&Overrides> {
        let cluster = self.cluster_settings(None);
        let cluster = cluster.inspect_err(|error| log::warn!("{error:#}"));
        cluster.ok()?.overrides.as_ref()
    }

    /// Returns the inputs for planning the changes.
    pub fn plan_inputs(&self) -> PlanInputs<'_> {
        PlanInputs {
            config: &self.chosen.config,
            desired: &self.desired,
            baseline: self.records.baseline(),
            old: self.old.as_deref(),
            records: &self.records,
            node: &self.node,
            accounts: self.accounts.as_ref(),
            overrides: self.storage_overrides(),
            crossing: self.crossing.as_deref().unwrap_or_default(),
            unchanged: Some(&self.unchanged),
        }
    }

    /// Returns the changes that the config needs, without checks of the current situation, and the differences.
    pub fn compare_node(&self) -> (Plan, Vec<Drift>) {
        let changes = || plan::plan_changes(self.plan_inputs(), PlanOptions::default());
        let plan = self.plan_beside_differences(changes);
        let drifts = self.find_drifts(&plan);
        (plan, drifts)
    }

    /// Calls `plan`. If there are many objects, searches for differences in a second thread meanwhile.
    fn plan_beside_differences<T>(&self, plan: impl FnOnce() -> T) -> T {
        let (desired, node, unchanged) = (&self.desired, &self.node, &self.unchanged);
        let is_known = desired.bare || self.differs.get().is_some();
        if is_known || node.objects.len() < MANY {
            return plan();
        }
        let find = || {
            // The plan needs the simulation too, but after its files.
            unchanged.simulate_units(desired, node);
            drift::find_drifts_with(desired, node, unchanged)
        };
        let (found, plan) = parallel::run_both(find, plan);
        self.differs.get_or_init(|| found);
        plan
    }

    /// Compares the hash in the config's name with its contents.
    pub fn name_hash(&self) -> &NameHash {
        let look = || check_name_hash(&self.root, &self.chosen.config, &self.desired);
        self.name_hash.get_or_init(look)
    }

    /// Returns the differences. `plan` must be of this session; it decides about directories, links and bare configs.
    pub fn find_drifts(&self, plan: &Plan) -> Vec<Drift> {
        let bare = self.desired.bare;
        let mut drifts = if bare {
            Vec::new()
        } else {
            let layered = self.records.current_image.as_deref();
            let mut all = drift::os_drifts(&self.chosen.config, layered, &self.node);
            all.extend_from_slice(self.on_disk());
            all
        };
        drifts.extend(plan::step_drifts(&plan.steps, bare));
        let blocked = plan::blocked_drifts(&plan.blockers, &drifts);
        drifts.extend(blocked);
        let problem = self.accounts.as_ref().and_then(|a| a.problem.as_ref());
        drifts.extend(problem.map(plan::account_drift));
        as_seen_by(self.daemon_release(None), drifts)
    }

    /// Returns the differences between disk and config, which are searched only once.
    pub fn on_disk(&self) -> &[Drift] {
        let look = || drift::find_drifts_with(&self.desired, &self.node, &self.unchanged);
        self.differs.get_or_init(look)
    }

    /// Returns the verdict of the daemon on the differences or on the version of the config; `None` if it finds nothing. `given` is
    /// its release, if the user gave it.
    pub fn daemon_verdict(&self, drifts: &[Drift], given: Option<Release>) -> Option<String> {
        let (config, layered) = (&self.chosen.config, self.records.current_image.as_deref());
        if config.bare {
            // The daemon does not know bare configs.
            return None;
        }
        let said = first_message(config, drifts, self.daemon_release(given))?;
        Some(drift::verdict_sentence(&config.name, layered, &said))
    }

    /// Returns the release of the node's daemon.
    fn daemon_release(&self, given: Option<Release>) -> Release {
        let recorded = self
            .records
            .recorded_config()
            .unwrap_or(&self.chosen.config);
        let record = recorded.provenance.release.as_deref();
        NodeRelease::find_release(given, record, &self.machine.openshift).release
    }

    /// Returns the differences between the operating system of a mounted disk and the config, as far as they are known. Only the
    /// booted node can remove them.
    pub fn disk_drifts(&self) -> Vec<Drift> {
        if self.desired.bare {
            return Vec::new();
        }
        let layered = self.records.current_image.as_deref();
        drift::disk_drifts(&self.chosen.config, layered, &self.node)
    }

    /// Returns the sentences about the operating system of a root that does not run: what differs from the config, and what is
    /// not compared.
    pub fn describe_disk(&self) -> String {
        let drifts = self.disk_drifts();
        let differs = drifts.iter();
        let differs: Vec<String> = differs
            .map(|drift| format!("{}: {}", drift.subject, drift.detail))
            .collect();
        let disk = DiskOs::find(&self.chosen.config, &self.node);
        let unknown = match disk.map(|disk| (disk.image, disk.arguments)) {
            None | Some((None, None)) => "OS image and kernel arguments",
            Some((None, Some(_))) => "OS image",
            Some((Some(_), None)) => "kernel arguments",
            Some((Some(_), Some(_))) => "",
        };
        let mut said = Vec::new();
        if !differs.is_empty() {
            said.push(format!(
                "Only the booted node can change: {}.",
                differs.join("; ")
            ));
        }
        if !unknown.is_empty() {
            said.push(format!("Not compared: {unknown}."));
        }
        said.join(" ")
    }

    /// Returns false if the config has keys or a password of `core`, and the root does not have that user.
    pub fn has_core(&self) -> bool {
        self.desired.bare
            || !self.desired.has_users
            || self.node.accounts.users.contains_key("core")
    }

    /// Returns descriptions of what is not compared.
    pub fn not_looked_at(&self) -> Vec<String> {
        let mut all = Vec::new();
        if !self.has_core() {
            let create = mco_rescue("apply --key FILE");
            all.push(format!(
                "keys and password of core, as that user is missing (`{create}` creates it)"
            ));
        }
        if self.node.system.facts().is_none() {
            let disk = DiskOs::find(&self.chosen.config, &self.node);
            let unseen = match disk.map(|disk| (disk.image, disk.arguments)) {
                Some((Some(_), Some(_))) => "",
                Some((Some(_), None)) => "kernel arguments, ",
                Some((None, Some(_))) => "OS image, ",
                None | Some((None, None)) => "OS image, kernel arguments, ",
            };
            let status = format!("{} status", self.node.host.engine.name());
            let look = if self.root.is_live() {
                format!("compare `{status}` with `{}`", mco_rescue("show"))
            } else {
                on_node(status)
            };
            all.push(format!("{unseen}extensions and kernel type ({look})"));
        } else {
            all.push("extensions and kernel type".to_owned());
        }
        if !self.node.host.can_chown {
            all.push("owners of files (that needs root)".to_owned());
        }
        if !self.desired.bare
            && self.desired.password_hash.is_some()
            && let Some(why) = self.node.accounts.no_shadow
        {
            all.push(format!("the password of core (/etc/shadow {why})"));
        }
        if self.node.labels.is_usable() {
            all.push(format!(
                "SELinux labels (`{}` names the wrong ones)",
                mco_rescue("plan")
            ));
        }
        all.extend(
            self.desired
                .unsupported
                .iter()
                .map(|part| part.path.clone()),
        );
        all
    }
}
