//! Predicts what the daemon will do with this node: gathers what it will find, now or after a plan was carried out, and passes it
//! to [`crate::judge::daemon`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::{self, Force, Plan};
use crate::change::session::policies::{self, DEFAULTS};
use crate::change::session::{Session, access};
use crate::change::source::cache::{self, CacheEntry, Cached};
use crate::change::staging::awaited::{Awaited, Verdict, Way};
use crate::change::staging::next_boot::find_next_boot;
use crate::change::staging::state;
use crate::config::document::{self, Desired, MachineConfig, brings_kubelet};
use crate::config::render::{self, NameHash};
use crate::host::root::{Root, RootError, RootPath};
use crate::judge::daemon::first_boot::{FirstBootWork, find_first_boot_work};
use crate::judge::daemon::forecast::{
    Forecast, ForecastEvidence, Witnesses, forecast_branches, gather_evidence,
};
use crate::judge::daemon::midway::{self, Failure};
use crate::judge::daemon::policies::ClusterSettings;
use crate::judge::daemon::release::{NodeRelease, Release};
use crate::judge::daemon::start::{
    Annotation, DaemonRecord, DiskComparison, KnownConfig, PREFIX, Situation, StartAnnotations,
    StartOs, Triggers,
};
use crate::judge::daemon::{annotations, pod_log};
use crate::judge::drift;
use crate::node::activity::daemon_runs;
use crate::node::command::rpm_ostree::packages::package_sets;
use crate::node::command::{CommandRunner, rpm};
use crate::node::host_name::registered_name;
use crate::node::images::storage;
use crate::node::os_release::{Class, OpenshiftVersion, OsRelease};
use crate::node::system::SystemFacts;
use crate::node::{self, Host, Interest, NodeState, RecordReader, Recorded, Records, System};

/// What the user knows about the daemon that starts next.
#[derive(Debug, Clone, Copy, Default)]
pub struct GivenDaemon<'a> {
    /// The name of the config that the cluster wants.
    pub desired: Option<&'a str>,
    /// The daemon's release.
    pub release: Option<Release>,
}

/// The time of the daemon's start.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "it borrows a session")]
pub enum ForecastMoment<'a> {
    /// Now, with records that were already read. rpm-ostree is not queried again if its answer is given.
    Now(&'a Records, Option<&'a System>),
    /// Now, with the config of a session.
    Beside(&'a Session<'a>),
    /// After this plan of the session was carried out, including the reboot that it may need.
    After(&'a Session<'a>, &'a Plan),
}

impl<'a> ForecastMoment<'a> {
    /// Returns the session, if there is one.
    fn session(self) -> Option<&'a Session<'a>> {
        match self {
            ForecastMoment::Now(..) => None,
            ForecastMoment::Beside(session) | ForecastMoment::After(session, _) => Some(session),
        }
    }
}

/// Returns what the daemon will do.
pub fn make_forecast(
    root: &Root,
    runner: &dyn CommandRunner,
    given: GivenDaemon<'_>,
    moment: ForecastMoment<'_>,
) -> Result<Forecast> {
    by_policies(root, runner, given, moment, None)
}

fn by_policies(
    root: &Root,
    runner: &dyn CommandRunner,
    given: GivenDaemon<'_>,
    moment: ForecastMoment<'_>,
    file: Option<&str>,
) -> Result<Forecast> {
    let read = read_records(root, moment).context("reading the daemon's records")?;
    let found = ForecastSources::gather_sources(root, runner, &read, given, moment)?;
    Ok(match moment.session() {
        Some(session) => found.to_forecast(given, session.cluster_settings(file)?),
        None => found.to_forecast(given, &policies::read_cluster(root, file)?),
    })
}

/// Returns the records. Those of a session are not read again, unless they have changed since.
fn read_records<'a>(
    root: &Root,
    moment: ForecastMoment<'a>,
) -> Result<Cow<'a, Records>, RootError> {
    Ok(match moment {
        ForecastMoment::Now(records, _) => Cow::Borrowed(records),
        ForecastMoment::Beside(session) => Cow::Borrowed(&session.records),
        ForecastMoment::After(session, _) => {
            let before = session.records.recorded_config().into_iter();
            let known: Vec<&MachineConfig> = before.chain([&session.chosen.config]).collect();
            Cow::Owned(Records::read_knowing(root, &known)?)
        }
    })
}

/// Returns the forecast, if there is one. A failure is only logged, so that it does not prevent the rest of a report.
pub fn log_failure(forecast: Result<Forecast>) -> Option<Forecast> {
    forecast
        .inspect_err(|error| log::warn!("the daemon's behaviour cannot be predicted: {error:#}"))
        .ok()
}

/// Returns what the daemon will do after a plan was carried out, or what it will do now if the plan is refused. Returns `None` for
/// bare configs, which the daemon does not know.
pub fn of_plan(
    session: &Session<'_>,
    plan: &Plan,
    policy: Option<&str>,
    given: GivenDaemon<'_>,
) -> Option<Forecast> {
    if session.desired.bare {
        return None;
    }
    let moment = if plan.blockers.is_empty() {
        ForecastMoment::After(session, plan)
    } else {
        ForecastMoment::Beside(session)
    };
    log_failure(by_policies(
        &session.root,
        session.runner,
        given,
        moment,
        policy,
    ))
}

/// An awaited boot into the operating system of a config.
struct NextBoot {
    config: String,
    image: Option<String>,
    /// Packages that are yet to be staged; the staged deployment already contains the others.
    packages: Vec<String>,
}

fn next_boot(root: &Root, moment: ForecastMoment<'_>) -> Result<Option<NextBoot>> {
    Ok(match moment {
        ForecastMoment::After(session, plan) => plan.os.needs_reboot().then(|| NextBoot {
            config: session.chosen.config.name.clone(),
            image: plan.os.image.clone(),
            packages: plan.os.packages.clone(),
        }),
        ForecastMoment::Now(..) | ForecastMoment::Beside(_) => {
            let awaited = state::read_awaited(root)?;
            let facts = match moment {
                ForecastMoment::Now(_, system) => system.and_then(System::facts),
                ForecastMoment::Beside(session) | ForecastMoment::After(session, _) => {
                    session.node.system.facts()
                }
            };
            let comes = |awaited: &Awaited| {
                let next =
                    facts.and_then(|facts| find_next_boot(facts, Some(awaited), String::new));
                // If the next boot is unknown, the note of the run decides.
                let keeps =
                    next.is_none_or(|next| awaited.judge_next(&next.enters) == Verdict::Waits);
                awaited.way == Way::Forward && awaited.failed.is_none() && keeps
            };
            awaited.filter(comes).map(|awaited| NextBoot {
                config: awaited.config.name,
                image: awaited.image,
                packages: Vec::new(),
            })
        }
    })
}

/// The facts on the node.
struct ForecastSources<'a> {
    runner: &'a dyn CommandRunner,
    moment: ForecastMoment<'a>,
    records: &'a Records,
    host: Host,
    node: String,
    single_replica: bool,
    running: bool,
    evidence: ForecastEvidence,
    initial: Option<Result<StartAnnotations, Reason>>,
    triggers: Triggers,
    first_boot: FirstBootWork,
    /// Cached configs that a record or an annotation names, each with whether the hash in its name matches.
    cached: Vec<(MachineConfig, bool)>,
    /// Whether the hash in a config's name matches its contents, by digest.
    proven: RefCell<BTreeMap<String, bool>>,
    /// The disk compared with each config that the daemon may compare it with.
    compared: BTreeMap<String, DiskComparison>,
    /// The reason why an update to a config would fail, by name.
    failing: BTreeMap<String, Failure>,
    os: StartOs,
    /// `OPENSHIFT_VERSION` of the system.
    openshift: OpenshiftVersion,
    /// The boot before the daemon's start.
    next_boot: Option<NextBoot>,
    /// The answer of rpm-ostree, once it was queried.
    system: Option<System>,
}

impl<'a> ForecastSources<'a> {
    fn gather_sources(
        root: &Root,
        runner: &'a dyn CommandRunner,
        records: &'a Records,
        given: GivenDaemon<'_>,
        moment: ForecastMoment<'a>,
    ) -> Result<Self> {
        let seen = annotations::read_annotations(root).context("reading the annotations")?;
        let log = pod_log::read_pod_log(root).context("reading the daemon's log")?;
        let initial = initial_annotations(root, moment)?;
        let kept = root.read(&RootPath::fixed(paths::NODE_ANNOTATIONS_KEPT))?;
        let first_boot = kept.and_then(|bytes| parse_annotations(&bytes).ok());
        let record = record_name(records, moment);
        let evidence = gather_evidence(&Witnesses {
            given: given.desired,
            api: seen.as_ref(),
            log: log.as_ref(),
            first_boot: first_boot.as_ref(),
            record: record.as_deref(),
        });
        let host = Host::observe(root).context("looking at the node")?;
        let cache = cache::read_cache(root).context("reading the cache")?;
        let os_release = OsRelease::read(root)?;
        let mut found = Self {
            openshift: os_release.openshift_version(),
            runner,
            moment,
            records,
            running: daemon_runs(root).context("looking for the daemon")?,
            single_replica: seen.as_ref().is_some_and(only_node),
            node: seen.map_or_else(|| name_of(root, &host), |seen| seen.node),
            host,
            triggers: read_triggers(root, moment)?,
            first_boot: FirstBootWork::Unknown,
            cached: spoken_of(&cache, &evidence, initial.as_ref(), record.as_deref()),
            proven: RefCell::default(),
            evidence,
            initial,
            compared: BTreeMap::new(),
            failing: BTreeMap::new(),
            os: StartOs {
                class: os_release.class(),
                booted: None,
                packages: None,
                podman: None,
            },
            next_boot: next_boot(root, moment)?,
            system: match moment {
                ForecastMoment::Now(_, system) => system.cloned(),
                ForecastMoment::Beside(session) | ForecastMoment::After(session, _) => {
                    Some(session.node.system.clone())
                }
            },
        };
        found.compare_disk(root, found.daemon_release(given).release)?;
        found.look_at_first_boot(root)?;
        Ok(found)
    }

    /// Determines the work of the first-boot service, if its file exists.
    fn look_at_first_boot(&mut self, root: &Root) -> Result<()> {
        let path = RootPath::fixed(paths::ENCAPSULATED);
        let file = if self.triggers.encapsulated {
            root.read_within(&path, document::MAX_JSON)?
        } else {
            None
        };
        let config = file.map(|bytes| document::parse_document(bytes, &path.to_string()));
        let facts = self.system.as_ref().and_then(System::facts);
        let booted = facts.and_then(|facts| facts.deployments.booted().map(|one| (facts, one)));
        if let (Some(Ok(config)), Some((facts, booted))) = (config, booted) {
            self.first_boot = find_first_boot_work(&config, &booted.image(), &facts.arguments);
        }
        Ok(())
    }

    /// Compares the disk with every relevant config, and determines which updates would fail.
    fn compare_disk(&mut self, root: &Root, release: Release) -> Result<()> {
        let configs: Vec<MachineConfig> = self
            .available_configs()
            .values()
            .map(|one| one.config.clone())
            .collect();
        let wanted = self.may_be_compared();
        for config in configs
            .iter()
            .filter(|config| wanted.contains(&config.name))
        {
            let node = self.node_for(root, config)?;
            self.system = Some(node.system.clone());
            self.note_os(node.system.facts(), config);
            let compared = self.compare_config(config, &node);
            self.compared.insert(config.name.clone(), compared);
        }
        let wanted = self.may_be_updated_to();
        for config in configs
            .iter()
            .filter(|config| wanted.contains(&config.name))
        {
            self.look_ahead(root, config, release)?;
        }
        Ok(())
    }

    /// Determines the reason why an update to a config would fail.
    fn look_ahead(&mut self, root: &Root, config: &MachineConfig, release: Release) -> Result<()> {
        let node = self.node_for(root, config)?;
        let old = match self.daemon_record() {
            DaemonRecord::Present(record) if !record.emptied => Some(Desired::from_config(record)),
            _ => None,
        };
        let desired = Desired::from_config(config);
        let failure = midway::find_failure(&desired, old.as_ref(), &node, release);
        let live = node.system.facts().is_some();
        if live && self.initial.is_none() && self.os.booted.as_ref() != Some(&config.os_image_url) {
            self.os.podman = podman_fails(self.runner, &config.os_image_url);
        }
        let failure = failure.map(|failure| (config.name.clone(), failure));
        self.failing.extend(failure);
        Ok(())
    }

    /// Returns the configs that annotations name as wanted, and that differ from the recorded one.
    fn may_be_updated_to(&self) -> BTreeSet<String> {
        let initial = self
            .initial
            .as_ref()
            .and_then(|initial| initial.as_ref().ok());
        let annotated = [Some(&self.evidence.annotations), initial];
        let desired = annotated.into_iter().flatten();
        let desired = desired.filter_map(|annotations| annotation_value(&annotations.desired));
        let record = record_name(self.records, self.moment);
        let another = |name: &&str| record.as_deref() != Some(*name);
        desired.filter(another).map(str::to_owned).collect()
    }

    /// Returns the recorded config, and those that annotations name as current.
    fn may_be_compared(&self) -> BTreeSet<String> {
        let initial = self
            .initial
            .as_ref()
            .and_then(|initial| initial.as_ref().ok());
        let annotated = [Some(&self.evidence.annotations), initial];
        let current = annotated.into_iter().flatten();
        let current = current.filter_map(|annotations| annotation_value(&annotations.current));
        let record = record_name(self.records, self.moment);
        current.map(str::to_owned).chain(record).collect()
    }

    /// Returns the state of the node for comparing it with a config, including the effects of the plan.
    fn node_for(&self, root: &Root, config: &MachineConfig) -> Result<Cow<'a, NodeState>> {
        let observe = || -> Result<NodeState> {
            let interest = Interest {
                system: self.system.is_none(),
                ..plan::paths_of_interest(&Desired::from_config(config), None, None)
            };
            let seen = node::observe_node(root, interest, self.runner);
            let mut node = seen.context("looking at the node")?;
            access::expect_read(&node)?;
            if let Some(system) = &self.system {
                node.system = system.clone();
            }
            Ok(node)
        };
        Ok(match self.moment {
            ForecastMoment::Now(..) | ForecastMoment::Beside(_) => Cow::Owned(observe()?),
            ForecastMoment::After(session, plan) => {
                let own = session.chosen.config.digest == config.digest;
                if own && plan::is_carried_out(&session.node, plan) {
                    return Ok(Cow::Borrowed(&session.node));
                }
                let node = if own {
                    session.node.clone()
                } else {
                    observe()?
                };
                let old = session.old.as_deref();
                Cow::Owned(plan::carried_out(node, plan, &session.desired, old))
            }
        })
    }

    fn compare_config(&self, config: &MachineConfig, node: &NodeState) -> DiskComparison {
        let image = self.booted_image();
        let mut drifts = drift::os_drifts(config, image.as_deref(), node);
        let is_compared = !self.triggers.encapsulated && self.os.class != Class::Other;
        let before = drifts.len();
        if is_compared {
            drifts.extend(drift::disk_drifts(config, image.as_deref(), node));
        }
        let is_other_disk = drifts.len() > before;
        let brought = self.next_boot.as_ref();
        if brought.is_some_and(|next| next.config == config.name) {
            drifts = drift::missing_arguments(config, None).into_iter().collect();
        }
        let own = self.moment.session();
        match own.filter(|session| session.chosen.config.digest == config.digest) {
            Some(session) if std::ptr::eq(node, &session.node) => {
                drifts.extend_from_slice(session.on_disk());
            }
            Some(session) => drifts.extend(drift::find_drifts(&session.desired, node)),
            None => drifts.extend(drift::find_drifts(&Desired::from_config(config), node)),
        }
        let facts = node.system.facts();
        DiskComparison {
            drifts,
            os_unknown: facts.is_none() && self.os.class != Class::Other && !is_other_disk,
            root_cause: facts.and_then(|facts| facts.finalize_error.clone()),
        }
    }

    /// Stores the facts about the operating system, which are queried if possible.
    fn note_os(&mut self, facts: Option<&SystemFacts>, config: &MachineConfig) {
        let Some(facts) = facts else { return };
        let booted = facts.deployments.booted().map(|booted| booted.image());
        let brought = self.next_boot.as_ref().and_then(|next| next.image.clone());
        let booted = brought.or(booted);
        self.os.class = facts.class;
        if let Some(staged) = facts.deployments.staged() {
            self.triggers.staged = !staged.finalization_locked;
        }
        if facts.class == Class::EnterpriseCoreos {
            self.note_packages(facts, &config.extensions);
        }
        let other_image = booted.as_ref() != Some(&config.os_image_url);
        if self.initial.is_some() && facts.class != Class::Other && other_image {
            self.os.podman = podman_fails(self.runner, &config.os_image_url);
        }
        self.os.booted = booted;
    }

    /// Stores the packages that rpm reports, and those that the awaited boot adds.
    fn note_packages(&mut self, facts: &SystemFacts, extensions: &[String]) {
        let Some(found) = installed_packages(self.runner, extensions) else {
            return;
        };
        let all = self.os.packages.get_or_insert_default();
        all.extend(found);
        if let Some(next) = &self.next_boot {
            all.extend(next.packages.iter().cloned());
            let staged = facts.deployments.staged().into_iter();
            all.extend(staged.flat_map(|staged| staged.requested_packages.iter().cloned()));
        }
    }

    fn booted_image(&self) -> Option<String> {
        self.records.current_image.clone()
    }

    /// Returns the available configs by name. Those whose hash matches are preferred.
    fn available_configs(&self) -> BTreeMap<String, KnownConfig<'_>> {
        let mut all = BTreeMap::new();
        let mut add = |config, proven| {
            let config: &MachineConfig = config;
            let known: Option<&KnownConfig<'_>> = all.get(&config.name);
            if !config.bare && known.is_none_or(|known| !known.proven && proven) {
                all.insert(config.name.clone(), KnownConfig { config, proven });
            }
        };
        let proven = |config: &MachineConfig| self.is_proven(config);
        if let Some(session) = self.moment.session() {
            let chosen = &session.chosen.config;
            add(chosen, proven(chosen));
            // The previous config of the node, even after its record is replaced.
            let before = session.records.recorded_config();
            before
                .into_iter()
                .for_each(|config| add(config, proven(config)));
        }
        if let Some(recorded) = self.records.recorded_config() {
            add(recorded, proven(recorded));
        }
        if let Recorded::Present(served) = &self.records.mcs_content {
            add(served, proven(served));
        }
        self.cached
            .iter()
            .for_each(|(config, proven)| add(config, *proven));
        all
    }

    /// Returns true if the hash in a config's name matches its contents. This needs a digest of all of it, so it is computed only
    /// once.
    fn is_proven(&self, config: &MachineConfig) -> bool {
        let mut known = self.proven.borrow_mut();
        let own = self.moment.session();
        let own = own.filter(|session| session.chosen.config.digest == config.digest);
        let prove = || match own {
            Some(session) => *session.name_hash() == NameHash::Right,
            None => render::name_matches(&config.record) == Some(true),
        };
        *known.entry(config.digest.clone()).or_insert_with(prove)
    }

    fn daemon_record(&self) -> DaemonRecord<'_> {
        if let ForecastMoment::After(session, plan) = self.moment
            && plan.writes_path(paths::CURRENT_CONFIG)
        {
            return DaemonRecord::Present(&session.chosen.config);
        }
        match (&self.records.reader, &self.records.current_config) {
            (RecordReader::Says(said), _) => DaemonRecord::Broken(said),
            (RecordReader::Fails(why), _) => DaemonRecord::Undecodable(why),
            (RecordReader::Reads(name), Recorded::Broken(why)) => {
                DaemonRecord::Refused { name, why }
            }
            (_, Recorded::Missing) => DaemonRecord::Missing,
            (_, Recorded::Broken(why)) => DaemonRecord::Undecodable(why),
            (_, Recorded::Present(config)) => DaemonRecord::Present(config),
        }
    }

    /// Returns true if the hash in a config's name does not match its contents.
    fn is_misnamed(&self, config: &MachineConfig) -> bool {
        let own = self.moment.session();
        let own = own.filter(|session| session.chosen.config.digest == config.digest);
        match own.map(Session::name_hash) {
            Some(NameHash::Right | NameHash::Missing) => false,
            // An image that the server inserted does not matter here.
            _ => render::name_matches(&config.record) == Some(false),
        }
    }

    /// Returns true if the recorded config lacks the kubelet's unit and was not rendered by the operator.
    fn no_kubelet(&self) -> bool {
        let DaemonRecord::Present(config) = self.daemon_record() else {
            return false;
        };
        let doubtful = || !config.has_rendered_name() || self.is_misnamed(config);
        !config.emptied && !brings_kubelet(&config.ignition) && doubtful()
    }

    /// Returns the release of the node's daemon, with its source.
    fn daemon_release(&self, given: GivenDaemon<'_>) -> NodeRelease {
        let record = match self.daemon_record() {
            DaemonRecord::Present(config) => config.provenance.release.as_deref(),
            _ => None,
        };
        NodeRelease::find_release(given.release, record, &self.openshift)
    }

    fn to_forecast(&self, given: GivenDaemon<'_>, cluster: &ClusterSettings) -> Forecast {
        let configs = self.available_configs();
        let initial = self.initial.as_ref();
        let image = self.booted_image();
        let compared = |name: &str| self.compared.get(name).cloned().unwrap_or_default();
        let compare = |config: &MachineConfig, _: Option<&str>| compared(&config.name);
        let fails = |name: &str| self.failing.get(name).cloned();
        let named = self.daemon_release(given);
        let triggers = Triggers {
            // That boot is already part of the forecast.
            staged: self.triggers.staged && self.next_boot.is_none(),
            ..self.triggers
        };
        let here = Situation {
            release: named.release,
            node: &self.node,
            annotations: &self.evidence.annotations,
            single_replica: self.single_replica,
            pool_target: None,
            configs: &configs,
            record: self.daemon_record(),
            image: image.as_deref(),
            initial: initial.map(Result::as_ref),
            triggers,
            first_boot: &self.first_boot,
            os: &self.os,
            fips: self.host.fips,
            policies: &cluster.policies,
            policies_known: cluster.whose != DEFAULTS,
            overrides: cluster.overrides.as_ref(),
            compare: &compare,
            fails: &fails,
        };
        let record = record_name(self.records, self.moment);
        Forecast {
            release: here.release.to_string(),
            release_source: named.source,
            release_words: named.describe_release(),
            node: self.node.clone(),
            running: self.running,
            after_reboot: self.next_boot.is_some(),
            planned: matches!(self.moment, ForecastMoment::After(..)),
            no_kubelet: self.no_kubelet(),
            told: self.evidence.told,
            told_words: self.evidence.describe_source(),
            at: self.evidence.at,
            current: annotation_value(&self.evidence.annotations.current).map(str::to_owned),
            record: record.clone(),
            branches: forecast_branches(&here, &self.evidence, record.as_deref()),
        }
    }
}

fn only_node(seen: &annotations::Annotations) -> bool {
    seen.more.as_ref().is_some_and(|more| more.single_replica)
}

fn annotation_value(annotation: &Annotation) -> Option<&str> {
    match annotation {
        Annotation::Is(value) => Some(value),
        Annotation::Unknown | Annotation::Absent => None,
    }
}

/// Returns the name in the record, as it will be.
fn record_name(records: &Records, moment: ForecastMoment<'_>) -> Option<String> {
    match moment {
        ForecastMoment::After(session, plan) if plan.writes_path(paths::CURRENT_CONFIG) => {
            Some(session.chosen.config.name.clone())
        }
        ForecastMoment::Now(..) | ForecastMoment::Beside(_) | ForecastMoment::After(..) => {
            records.name()
        }
    }
}

/// Returns the annotations that the Machine Config Server gave the node for its first boot, if they still exist.
fn initial_annotations(
    root: &Root,
    moment: ForecastMoment<'_>,
) -> Result<Option<Result<StartAnnotations, Reason>>> {
    let path = RootPath::fixed(paths::NODE_ANNOTATIONS);
    let planned = match moment {
        ForecastMoment::After(_, plan) if plan.removes_path(paths::NODE_ANNOTATIONS) => {
            return Ok(None);
        }
        ForecastMoment::After(_, plan) => plan.text_of(&path),
        ForecastMoment::Now(..) | ForecastMoment::Beside(_) => None,
    };
    let bytes = match planned {
        Some(bytes) => Some(bytes),
        None => root.read(&path)?,
    };
    Ok(bytes.map(|bytes| parse_annotations(&bytes)))
}

/// Parses `node-annotations.json`, one flat object of strings. The error is that of the parser.
pub fn parse_annotations(bytes: &[u8]) -> Result<StartAnnotations, Reason> {
    let all: BTreeMap<String, String> =
        serde_json::from_slice(bytes).map_err(Reason::from_error)?;
    let get = |key: &str| {
        let value = all.get(&format!("{PREFIX}{key}"));
        Annotation::from_answer(value.map(String::as_str))
    };
    Ok(StartAnnotations {
        current: get("currentConfig"),
        desired: get("desiredConfig"),
        current_image: get("currentImage"),
        desired_image: get("desiredImage"),
    })
}

fn name_of(root: &Root, host: &Host) -> String {
    let fixed = root.read(&RootPath::fixed(paths::HOSTNAME)).ok().flatten();
    if fixed.is_none() && !host.live {
        // The host's own name would be that of the machine that reads the disk.
        return "NODE".to_owned();
    }
    registered_name(root).unwrap_or_else(|_| "NODE".to_owned())
}

fn read_triggers(root: &Root, moment: ForecastMoment<'_>) -> Result<Triggers> {
    let exists = |path: &'static str| -> Result<bool> {
        let gone = match moment {
            ForecastMoment::After(_, plan) => plan.removes_path(path),
            ForecastMoment::Now(..) | ForecastMoment::Beside(_) => false,
        };
        Ok(!gone && root.exists(&RootPath::fixed(path))?)
    };
    Ok(Triggers {
        encapsulated: exists(paths::ENCAPSULATED)?,
        force: match moment {
            ForecastMoment::After(_, plan) if plan.force == Force::Requested => true,
            ForecastMoment::After(_, plan) if plan.force == Force::Withdrawn => false,
            _ => exists(paths::FORCE)?,
        },
        revert: exists(paths::REVERT)? || exists(paths::REVERT_UNIT)?,
        kubeconfig: exists(paths::KUBECONFIG)?,
        repository: exists(paths::EXTENSIONS_REPOSITORY)?,
        staged: exists(paths::STAGED_DEPLOYMENT)?,
    })
}

/// Returns the cached configs with the relevant names.
fn spoken_of(
    cache: &[Cached],
    evidence: &ForecastEvidence,
    initial: Option<&Result<StartAnnotations, Reason>>,
    record: Option<&str>,
) -> Vec<(MachineConfig, bool)> {
    let initial = initial.and_then(|initial| initial.as_ref().ok());
    let told = [Some(&evidence.annotations), initial].into_iter().flatten();
    let mut names: Vec<&str> = told
        .flat_map(|annotations| {
            [
                annotation_value(&annotations.current),
                annotation_value(&annotations.desired),
            ]
        })
        .flatten()
        .collect();
    names.extend(record);
    let wanted = |entry: &&CacheEntry| names.contains(&entry.name.as_str());
    let entries = cache::whole_entries(cache).filter(wanted);
    entries
        .filter_map(|entry| Some((entry.config().ok()?, entry.name_matches == Some(true))))
        .collect()
}

/// Returns the packages of these extensions that are installed; `None` if rpm cannot be queried.
fn installed_packages(
    runner: &dyn CommandRunner,
    extensions: &[String],
) -> Option<BTreeSet<String>> {
    let names = extensions.iter().flat_map(|name| package_sets(name));
    let names: BTreeSet<&str> = names.flatten().copied().collect();
    let mut found = BTreeSet::new();
    for name in names {
        match rpm::is_installed(runner, name) {
            Ok(true) => drop(found.insert(name.to_owned())),
            Ok(false) => {}
            Err(error) => {
                log::info!("asking rpm about {name}: {error}");
                return None;
            }
        }
    }
    Some(found)
}

/// Returns how podman fails if it is asked for an image in the same way as by the daemon; `None` if it succeeds or cannot be run.
fn podman_fails(runner: &dyn CommandRunner, image: &str) -> Option<String> {
    let line = storage::list_images(image);
    match runner.run(&line) {
        Ok(answer) => match answer.status {
            Some(0) => None,
            Some(status) => Some(format!("exit status {status}\n{}", answer.stderr)),
            None => Some("signal: killed\n".to_owned()),
        },
        Err(error) => {
            log::info!("asking podman: {error}");
            None
        }
    }
}
