//! What every command gathers: the root, its records, the config, the node. From here on a plan is made of it.
//!
//! - [`Session`] is the value that all of it is in. Begin there.
//! - [`open`] opens the root, [`access`] and [`machine`] refuse one on which a command must not work, and [`own_state`] files of
//!   another version of this program.
//! - [`planning`] makes the plan, with the [`evidence`] on the running node; [`crossing`] judges another image before that.
//! - [`predict`] says what the daemon will do, now or once the plan is carried out.
//!
//! It changes nothing, prints nothing and asks nothing.

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

use crate::base::invocation::mco_rescue;
use crate::change::plan::{self, Plan, PlanInputs, PlanOptions, Step, after_steps};
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
use crate::judge::drift::{self, Drift};
use crate::node::command::CommandRunner;
use crate::node::neighbours::image_based_evidence;
use crate::node::{self, BaseFacts, Host, Interest, Machine, NodeState, Records};

/// Everything that was gathered, once.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct Session<'a> {
    /// Starts programs.
    pub runner: &'a dyn CommandRunner,
    /// The root.
    pub root: Root,
    /// The daemon's records.
    pub records: Records,
    /// The config.
    pub chosen: Chosen,
    /// What it wants on disk.
    pub desired: Arc<Desired>,
    /// What the recorded config wanted.
    pub old: Option<Arc<Desired>>,
    /// The node, with the accounts that will be there afterwards.
    pub node: NodeState,
    /// The machine.
    pub machine: Machine,
    /// What becomes of the accounts of a bare config.
    pub accounts: Option<Prepared>,
    /// Where the node differs from the config, once it was asked.
    differs: OnceCell<Vec<Drift>>,
    /// The simulation of unchanged units, once the plan or the differences needed it.
    unchanged: UnchangedUnits,
    /// How the hash in the config's name stands to its contents, once it was asked.
    name_hash: OnceCell<NameHash>,
    /// The findings on another image than the one that runs, once a plan has asked for them.
    crossing: Option<Vec<CrossingFinding>>,
    /// The MachineConfiguration of the file that was given, once it was read.
    given_cluster: OnceCell<ClusterSettings>,
    /// The MachineConfiguration that the node keeps, once it was read.
    kept_cluster: OnceCell<ClusterSettings>,
}

/// So many objects are worth a thread that looks for differences while this one plans.
const MANY: usize = 64;

/// Facts about the node that are older than this are read again before a plan is made of them.
const RECENT: Duration = Duration::from_secs(1);

/// A config of this size (64 KiB) is worth a thread that computes its hash beside this one.
const LARGE: usize = 1 << 16;

/// A config of this size (1 MiB) keeps all processors busy while it is parsed: its hash comes later.
const VERY_LARGE: usize = 1 << 20;

/// Facts about the node that another processor gathers while the config is read.
struct Ahead {
    /// The time before the facts were read.
    begun: Instant,
    /// The facts of the node that no config decides.
    base: Result<BaseFacts, RootError>,
    /// The machine.
    machine: Result<Machine>,
}

impl Ahead {
    fn work(root: &Root) -> Self {
        Self {
            begun: Instant::now(),
            base: BaseFacts::observe(root),
            machine: machine::observe_machine(root),
        }
    }

    /// Returns true as long as the node is hardly another one: a config from the network or from a pipe may take minutes.
    fn is_recent(&self) -> bool {
        self.begun.elapsed() < RECENT
    }
}

/// Compares the hash in the name of a config with its contents; all of them are read for that.
fn check_name_hash(root: &Root, config: &MachineConfig, desired: &Desired) -> NameHash {
    let _phase = progress::begin_phase(Work::new("Checking the hash of the config"));
    judge_name_hash(render::name_hash_of(&config.record), root, config, desired)
}

/// A hash that differs says nothing where the contents are known to change on their way to the node.
fn judge_name_hash(
    found: NameHash,
    root: &Root,
    config: &MachineConfig,
    desired: &Desired,
) -> NameHash {
    let image = || identity::layered_image(desired).or_else(|| identity::layered_image_kept(root));
    let rewritten = || {
        let host = Host::observe(root).ok()?;
        image_based_evidence(root, &host).ok()?
    };
    match found {
        NameHash::Wrong if image().as_ref() == Some(&config.os_image_url) => {
            let why = "the Machine Config Server put the image of a layered pool into it";
            NameHash::Unknown(why.to_owned())
        }
        NameHash::Wrong => match rewritten() {
            Some(evidence) => NameHash::Unknown(format!(
                "recert rewrote the contents of configs on this node from a seed image ({evidence})"
            )),
            None => NameHash::Wrong,
        },
        found => found,
    }
}

/// Reads what the config makes interesting, and the facts that no config decides if they are not in `base` yet.
///
/// Tools first, on a copy: where the homes are, and who owns them, is what they say.
fn look(
    root: &Root,
    base: Option<BaseFacts>,
    runner: &dyn CommandRunner,
    config: &MachineConfig,
    desired: &Desired,
    old: Option<&Desired>,
    // The hard links of a bare config are compared by their stamps, also where mounts give a file a second path.
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
        node.accounts = node.accounts.with(&files);
    }
    if let Some(accounts) = &accounts {
        node.accounts = node.accounts.with(&accounts.after);
    }
    Ok((node, accounts))
}

/// What stands in for a config that was not named (docs/how-to/fetch-and-cache.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// What the node is to be in: for what changes it.
    Wanted,
    /// What it is recorded to be in: for what only looks.
    Recorded,
}

/// Chooses among the argument and what the node keeps.
pub fn choose_config(
    root: &Root,
    config: Option<&str>,
    unnamed: Unnamed,
    records: &Records,
) -> Result<Chosen> {
    choose_by(root, config, unnamed, records, &mut Http::new(root))
}

fn choose_by(
    root: &Root,
    config: Option<&str>,
    unnamed: Unnamed,
    records: &Records,
    http: &mut Http<'_>,
) -> Result<Chosen> {
    let _phase = progress::begin_phase(Work::new("Reading the config"));
    let cache = cache::read_cache(root).context("reading the cache")?;
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
    Ok(source::choose_source(config, &kept, http)?)
}

/// The parts of a [`Session`] that are read while other processors work for it.
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

/// The way in which a node is looked at.
#[derive(Debug, Clone, Copy, Default)]
struct GatherOptions {
    /// Another thread computes the hash in the config's name.
    is_hashed: bool,
    /// Nothing is going to be changed.
    only_looks: bool,
}

impl Gathered {
    /// Looks at the node for the chosen config.
    fn gather(
        root: &Root,
        runner: &dyn CommandRunner,
        records: Records,
        chosen: Chosen,
        ahead: Option<Ahead>,
        options: GatherOptions,
    ) -> Result<Self> {
        let ahead = ahead.filter(Ahead::is_recent);
        let (base, machine) = match ahead {
            Some(ahead) => (Some(ahead.base), Some(ahead.machine?)),
            None => (None, None),
        };
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
        // The whole config is read for its hash: now, as long as little else is in memory.
        let config = &chosen.config;
        let few_stamps = options.only_looks && !desired.bare;
        let old_config = old.as_deref();
        let look = || look(root, base, runner, config, &desired, old_config, few_stamps);
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
        let machine = machine.map_or_else(|| machine::observe_machine(root), Ok)?;
        Ok(Self {
            machine,
            records,
            chosen,
            desired,
            old,
            node,
            accounts,
            name_hash,
        })
    }

    /// Judges the hash that was computed elsewhere.
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
        config: Option<&str>,
        unnamed: Unnamed,
    ) -> Result<Self> {
        let (sender, texts) = channel::<Text>();
        let find_hash = move || texts.recv().ok().map(|text| render::name_hash_of(&text));
        let gather = |ahead: Option<ThreadResult<Ahead>>| {
            let mut hashed = None;
            // A config that is given may be another one than the recorded one.
            let hashes = ahead.is_some() && config.is_none();
            let found = &mut hashed;
            // Without a text the other thread ends as soon as `sender` goes: before the config is parsed.
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
            Gathered::gather(&root, runner, records, chosen, ahead, options)
        };
        let (found, gathered) = parallel::run_beside(|| Ahead::work(&root), find_hash, gather);
        let mut gathered = gathered?;
        gathered.judge_name_hash(&root, found.flatten());
        Ok(Self::of_gathered(root, runner, gathered))
    }

    /// Reads records and node for a config that was read before.
    pub fn observe_for(root: Root, runner: &'a dyn CommandRunner, chosen: Chosen) -> Result<Self> {
        let records = Records::read(&root).context("reading the daemon's records")?;
        let options = GatherOptions::default();
        let gathered = Gathered::gather(&root, runner, records, chosen, None, options)?;
        Ok(Self::of_gathered(root, runner, gathered))
    }

    /// In an initramfs: what the config refers to has to be there within `timeout`, and a `first` boot gets the
    /// files that come with it.
    pub fn in_boot(
        root: Root,
        runner: &'a dyn CommandRunner,
        config: Option<&str>,
        timeout: Duration,
        first: bool,
    ) -> Result<Self> {
        let records = Records::read(&root).context("reading the daemon's records")?;
        let mut http = Http::within(&root, timeout);
        let mut chosen = choose_by(&root, config, Unnamed::Wanted, &records, &mut http)?;
        if first {
            let made = with_first_boot_files(chosen.config);
            let said = |all: Vec<Finding>| {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                anyhow::anyhow!(all.join("; "))
            };
            chosen.config = made.map_err(said)?;
        }
        Self::of(root, runner, records, chosen)
    }

    /// Looks at the node for a config that was made of the recorded one.
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
        };
        Self::of(root, runner, records, chosen)
    }

    /// Looks at the node for a config, by records that were read before.
    pub fn of(
        root: Root,
        runner: &'a dyn CommandRunner,
        records: Records,
        chosen: Chosen,
    ) -> Result<Self> {
        let options = GatherOptions::default();
        let gathered = Gathered::gather(&root, runner, records, chosen, None, options)?;
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

    /// Looks at the node again, after it was changed.
    pub fn observe_again(&mut self) -> Result<()> {
        self.look_again(false)
    }

    fn look_again(&mut self, few_stamps: bool) -> Result<()> {
        // Two of them need twice the memory.
        self.node.forget_objects();
        self.unchanged = UnchangedUnits::default();
        let (config, old) = (&self.chosen.config, self.old.as_deref());
        let desired = &self.desired;
        let seen = look(
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

    /// Looks at the node again, after it became what the config wants: the next change comes from there, and has a look
    /// of its own.
    pub fn observe_applied(&mut self) -> Result<()> {
        let bare = self.desired.bare;
        if !bare {
            self.old = Some(Arc::clone(&self.desired));
        }
        self.look_again(!bare)
    }

    /// Goes on with the node as it is once these steps, which lead to the recorded config, are done.
    pub fn foresee_steps(&mut self, steps: &[Step]) {
        if let Some(recorded) = self.old.clone() {
            let node = self.node.clone();
            self.node = after_steps(node, steps.iter(), &recorded, None);
        }
    }

    /// What the journal and `status` say of the config.
    pub fn config_ref(&self) -> ConfigRef {
        let config = &self.chosen.config;
        ConfigRef {
            name: config.name.clone(),
            digest: config.digest.clone(),
            origin: config.origin.clone(),
        }
    }

    /// What counts of the cluster's MachineConfiguration: of `file`, else of one that was given before, else of what the
    /// node keeps. Each is read once, as standard input can be.
    pub fn cluster(&self, file: Option<&str>) -> Result<&ClusterSettings> {
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
        let read = policies::cluster(&self.root, file)?;
        Ok(cell.get_or_init(|| read))
    }

    /// The changes of storage sections that the cluster lets pass, where that is known.
    fn overrides(&self) -> Option<&Overrides> {
        let cluster = self.cluster(None);
        let cluster = cluster.inspect_err(|error| log::warn!("{error:#}"));
        cluster.ok()?.overrides.as_ref()
    }

    /// Returns everything that the changes are planned from.
    pub fn inputs(&self) -> PlanInputs<'_> {
        PlanInputs {
            config: &self.chosen.config,
            desired: &self.desired,
            baseline: self.records.baseline(),
            old: self.old.as_deref(),
            records: &self.records,
            node: &self.node,
            accounts: self.accounts.as_ref(),
            overrides: self.overrides(),
            crossing: self.crossing.as_deref().unwrap_or_default(),
            unchanged: Some(&self.unchanged),
        }
    }

    /// Returns the changes that the config needs, without any check of the moment, and the differences.
    pub fn compare(&self) -> (Plan, Vec<Drift>) {
        let changes = || plan::plan_changes(self.inputs(), PlanOptions::default());
        let plan = self.plan_beside_differences(changes);
        let drifts = self.drifts(&plan);
        (plan, drifts)
    }

    /// Calls `plan`, and looks for the differences on another processor meanwhile if there are many objects.
    fn plan_beside_differences<T>(&self, plan: impl FnOnce() -> T) -> T {
        let (desired, node, unchanged) = (&self.desired, &self.node, &self.unchanged);
        let is_known = desired.bare || self.differs.get().is_some();
        if is_known || node.objects.len() < MANY {
            return plan();
        }
        let find = || {
            // The plan needs it as well, but after its files.
            unchanged.simulate(desired, node);
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

    /// The differences. `plan` is that of this session; directories, links and bare configs are judged by it.
    pub fn drifts(&self, plan: &Plan) -> Vec<Drift> {
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
        as_seen_by(self.release(None), drifts)
    }

    /// The differences between the disk and the config, which are looked for once.
    pub fn on_disk(&self) -> &[Drift] {
        let look = || drift::find_drifts_with(&self.desired, &self.node, &self.unchanged);
        self.differs.get_or_init(look)
    }

    /// Returns the verdict of the daemon on the differences, or on the version of the config; `None` if it finds nothing.
    /// `given`: its release, where that was given.
    pub fn daemon_verdict(&self, drifts: &[Drift], given: Option<Release>) -> Option<String> {
        let (config, layered) = (&self.chosen.config, self.records.current_image.as_deref());
        if config.bare {
            // It is none of the daemon's.
            return None;
        }
        let said = first_message(config, drifts, self.release(given))?;
        Some(drift::verdict_sentence(&config.name, layered, &said))
    }

    /// Returns the release of the node's daemon.
    fn release(&self, given: Option<Release>) -> Release {
        let recorded = self.records.recorded().unwrap_or(&self.chosen.config);
        let record = recorded.provenance.release.as_deref();
        NodeRelease::find(given, record, &self.machine.openshift).release
    }

    /// What is not compared here, in words.
    pub fn not_looked_at(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.node.system.facts().is_none() {
            all.push(format!(
                "OS image, kernel arguments, extensions and kernel type (compare `{} status` with `{}`)",
                self.node.host.engine.name(),
                mco_rescue("show")
            ));
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
        if self.node.labels.usable() {
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
