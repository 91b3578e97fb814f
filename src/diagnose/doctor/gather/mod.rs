//! Gathers the evidence for the checks, through the readers that `status` and `plan` use. Nothing is changed; every command and the
//! single query to a server have a time limit; and a fact that cannot be read does not affect the others.

use crate::base::reason::Reason;
use crate::change::session::predict::GivenDaemon;
mod crossing;
mod daemon;
mod host_network;
mod objects;
mod server_clock;
mod service_configs;
pub mod since;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::change::session::own_state::files_of_other_versions;
use crate::change::session::predict::{self, ForecastMoment};
use crate::change::session::{Session, Unnamed};
use crate::change::source::cache::{self, Cached};
use crate::change::source::server;
use crate::change::staging::next_boot::observe_next_boot;
use crate::change::staging::{reboots, state};
use crate::change::transaction;
use crate::change::trial::store::{read_result, read_trial};
use crate::config::document::MachineConfig;
use crate::config::render;
use crate::diagnose::doctor::evidence::{
    BootEvidence, ConfigComparison, ConfigRole, Configs, DeployedTree, DiskEvidence,
    DoctorEvidence, FirstBootFiles, Kubeconfig, MentionedConfig, NamedConfig, PullEvidence,
    PullRefusal,
};
use crate::diagnose::doctor::{Fact, Look};
use crate::host::root::{Root, RootError, RootPath};
use crate::host::sys::runtime;
use crate::judge::daemon::forecast::{AnnotationSource, Forecast};
use crate::judge::daemon::release::RULES_OF;
use crate::judge::daemon::{annotations, pod_log};
use crate::node::clock::{self, Clock, Heard, PastMoment as Passed};
use crate::node::command::{CommandRunner, systemctl};
use crate::node::engine::Engine;
use crate::node::images::ImageName;
use crate::node::images::pull::{Trace, TraceError};
use crate::node::neighbours::has_fencing;
use crate::node::pull_files::find_pull_faults;
use crate::node::space::{Largest, Space, find_largest};
use crate::node::system::OF_DEPLOYMENTS;
use crate::node::two_nodes::TwoNodes;
use crate::node::{
    Host, Os, Recorded, Records, System, bootloader, certificates, crio_marks, deploy_directories,
    etcd_files, images_on_disk, kernel_modules, kubelet_state, network, os_accounts, ovsdb_files,
    selinux_state, static_pods,
};

/// Units that show the progress of an update or a first boot.
const UNITS: [&str; 10] = [
    "machine-config-daemon-pull.service",
    "machine-config-daemon-firstboot.service",
    "ostree-finalize-staged.service",
    "rpm-ostreed.service",
    "kubelet.service",
    "crio.service",
    "crio-wipe.service",
    "NetworkManager.service",
    "ovs-configuration.service",
    "chronyd.service",
];

/// Options for gathering.
#[derive(Debug, Clone, Copy, Default)]
pub struct LookOptions<'a> {
    /// Include the slow checks.
    pub deep: bool,
    /// What the user knows about the daemon.
    pub daemon: GivenDaemon<'a>,
}

/// Returns the evidence of a root, whose path on the command line was `given`.
pub fn gather_all(
    root: Root,
    runner: &dyn CommandRunner,
    given: &Path,
    options: LookOptions<'_>,
) -> DoctorEvidence {
    let root = root.noting_failures();
    let mut evidence = DoctorEvidence {
        root: given.display().to_string(),
        deep: options.deep,
        live: root.is_live(),
        // What cannot be read is there; FP-55 names it.
        fencing: has_fencing(&root).unwrap_or(true),
        ..DoctorEvidence::default()
    };
    evidence.upkeep.directory = root.shown().display().to_string();
    evidence.of_host(&root);
    evidence.of_ours(&root, runner);
    evidence.of_disk(&root);
    evidence.of_services(runner);
    // One observation provides both the comparison and the answer of rpm-ostree.
    let again = root.open_again().map_err(anyhow::Error::from);
    let session = again.and_then(|again| Session::observe(again, runner, None, Unnamed::Recorded));
    evidence.of_session(&root, runner, session);
    evidence.of_configs(&root, runner, options.daemon);
    evidence.of_images(&root);
    evidence.of_boot(&root);
    evidence.of_objects(&root);
    evidence.clock = read_clocks(&root, &evidence);
    evidence.of_upkeep(&root);
    evidence.of_host_network(&root, runner);
    evidence.of_crossing(&root);
    let asks = evidence.live && evidence.as_root;
    evidence.service_configs = service_configs::find_broken(&root, runner, asks).into();
    evidence.daemon = daemon::read_troubles(&root, runner).into();
    evidence.two_nodes = TwoNodes::read(&root).into();
    evidence.of_start(&root, runner);
    let failed = root.failed_reads().into_iter();
    evidence.failed_reads = failed
        .filter(|one| evidence.as_root || !one.cause.is_denied())
        .map(|one| Fact::new(one.path, one.cause.to_string()))
        .collect();
    evidence
}

fn look_for(root: &Root, path: &'static str) -> Look<bool> {
    root.exists(&RootPath::fixed(path)).into()
}

/// Returns the daemon's record of a failed OS change at first boot; `None` if missing, the error's text if unreadable.
fn pivot_failed(root: &Root) -> Option<String> {
    match root.read(&RootPath::fixed(paths::FIRST_PIVOT_FAILED)) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes?).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the state of the kubeconfig. A user who may not read it may still see that it exists.
fn read_kubeconfig(root: &Root) -> Result<Kubeconfig> {
    let path = RootPath::fixed(paths::KUBECONFIG);
    match root.open_followed(&path) {
        Ok(None) => Ok(Kubeconfig::Missing),
        Ok(Some(file)) if file.metadata()?.len() == 0 => Ok(Kubeconfig::Empty),
        Ok(Some(_)) => Ok(Kubeconfig::There),
        Err(_) if root.exists(&path).is_ok_and(|there| there) => Ok(Kubeconfig::There),
        Err(error) => Err(error.into()),
    }
}

/// Returns the Machine Config Server that answered last, or the one on the API host.
fn server_of(root: &Root) -> Result<Option<String>, RootError> {
    match server::read_server(root)? {
        Some(server) => Ok(Some(server.url)),
        None => server::of_api(root),
    }
}

impl DoctorEvidence {
    fn of_host(&mut self, root: &Root) {
        let host = match Host::observe(root) {
            Ok(host) => host,
            Err(error) => {
                self.os = Look::Unseen(error.to_string());
                return;
            }
        };
        self.os = Os::observe(root, &host).into();
        self.as_root = host.user.0 == 0;
        self.engine = host.engine;
        self.in_initramfs = host.in_initramfs;
        self.never_booted = host.never_booted;
        self.boots_images = host.is_image();
        self.deployment = host.deployment;
    }

    fn of_ours(&mut self, root: &Root, runner: &dyn CommandRunner) {
        self.reboots = reboots::read_needs(root, runner).into();
        self.pending = transaction::find_pending(root).into();
        self.trial = read_trial(root).into();
        self.last_trial = read_result(root).into();
        self.other_versions = files_of_other_versions(root).into();
        self.strays = transaction::find_strays(root);
        self.last_run = transaction::last_run(root).into();
        self.awaited = state::read_awaited(root).into();
        let ours = self.live || self.in_initramfs;
        self.first_boot = if ours {
            runtime::read_json(runtime::FIRSTBOOT).into()
        } else {
            Look::Seen(None)
        };
        self.first_boot_ended = runtime::time_of_writing(runtime::FIRSTBOOT).filter(|_| ours);
        self.first_boot_files = FirstBootFiles {
            encapsulated: look_for(root, paths::ENCAPSULATED),
            encapsulated_kept: look_for(root, paths::ENCAPSULATED_KEPT),
            ignition_result: look_for(root, paths::IGNITION_RESULT),
            bootstrap_diff: look_for(root, paths::BOOTSTRAP_DIFF),
            pivot_failed: pivot_failed(root),
        };
        self.server = server_of(root).into();
    }

    fn of_disk(&mut self, root: &Root) {
        let (certificates, unseen) = certificates::read_certificates(root);
        self.certificates = Look::Seen(certificates);
        self.certificates_unseen = unseen;
        self.static_pods = static_pods::read_static_pods(root).into();
        self.etcd_files = etcd_files::read_etcd_files(root, self.deep).into();
        self.os_accounts = os_accounts::read_os_accounts(root).into();
        self.selinux = selinux_state::read_selinux_state(root, None).into();
        self.ovsdb_files = Look::Seen(ovsdb_files::read_ovsdb_files(root, self.deep));
        self.kubeconfig = read_kubeconfig(root).into();
        let network = network::read_network(root);
        self.kernel_modules = kernel_modules::read_kernel_modules(root, &network, None).into();
        self.network = Look::Seen(network);
        self.kubelet_state = kubelet_state::read_kubelet_state(root).into();
        self.crio_marks = crio_marks::read_crio_marks(root).into();
        self.storage = images_on_disk::read_images_on_disk(root).into();
        let finalize = root.read(&RootPath::fixed(paths::FINALIZE_FAILURE));
        let finalize = finalize.map(|bytes| {
            let bytes = bytes?;
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            Some((format!("/{}", paths::FINALIZE_FAILURE), text))
        });
        self.finalize_failure = finalize.into();
        self.disks = read_disks(root).into();
    }

    fn of_services(&mut self, runner: &dyn CommandRunner) {
        if !self.live {
            let why = "the node's systemd answers only on the node itself";
            self.units = Look::Unseen(why.to_owned());
            self.rpm_ostreed = Look::Unseen(why.to_owned());
            return;
        }
        self.units = systemctl::query_activity(runner, &UNITS).into();
        self.rpm_ostreed = match self.engine {
            Engine::RpmOstree => systemctl::start_result(runner, "rpm-ostreed.service").into(),
            Engine::Bootc => Look::Unseen("bootc has no daemon".to_owned()),
        };
    }

    fn of_session(
        &mut self,
        root: &Root,
        runner: &dyn CommandRunner,
        session: Result<Session<'_>>,
    ) {
        match session {
            Ok(session) => {
                self.records = Look::Seen(session.records.clone());
                self.system = session.node.system.clone();
                self.compared = Look::Seen(compare_config(&session));
                self.upkeep.labels = Look::Seen(upkeep::label_evidence(&session.node));
            }
            Err(error) => {
                self.records = Records::read(root).into();
                self.compared = Look::Unseen(format!("{error:#}"));
                let host = Host::observe(root);
                let system = host.and_then(|host| System::observe(root, &host, runner));
                self.system = system.unwrap_or_else(|error| System::Silent(error.to_string()));
            }
        }
        let facts = self.system.facts();
        let next = facts.map(|facts| {
            let awaited = state::read_awaited(root)?;
            observe_next_boot(root, runner, facts, awaited.as_ref())
        });
        self.next_boot = next.transpose().map(Option::flatten).into();
    }

    fn of_configs(&mut self, root: &Root, runner: &dyn CommandRunner, daemon: GivenDaemon<'_>) {
        let records = self.records.get();
        let records = records.filter(|read| !matches!(read.current_config, Recorded::Missing));
        if let Some(records) = records {
            let moment = ForecastMoment::Now(records, Some(&self.system));
            self.forecast =
                predict::log_failure(predict::make_forecast(root, runner, daemon, moment));
        }
        let configs = read_configs(root, self.records.get(), self.forecast.as_ref());
        self.configs = configs.into();
    }

    fn of_images(&mut self, root: &Root) {
        self.pull_files = Look::Seen(find_pull_faults(root, None));
        let records = match self.records.seen() {
            Ok(records) => records,
            Err(why) => {
                self.pull = Look::Unseen(why.to_owned());
                return;
            }
        };
        let layered = records.current_image.clone();
        let broken = match &records.current_config {
            Recorded::Broken(problem) => Some(problem.to_string()),
            Recorded::Missing | Recorded::Present(_) => None,
        };
        let config = records
            .recorded_config()
            .map(|config| config.os_image_url.clone());
        let compared = || {
            self.compared
                .get()
                .map(|compared| compared.os_image.clone())
        };
        let image = layered
            .filter(|image| !image.is_empty())
            .or_else(|| config.filter(|image| !image.is_empty()))
            .or_else(compared)
            .filter(|image| !image.is_empty());
        if let (None, Some(problem)) = (&image, broken) {
            self.pull = Look::Unseen(problem);
            return;
        }
        self.pull = image
            .map(|image| {
                let trace = self.trace_pull(root, &image)?;
                Ok::<_, RootError>(PullEvidence { trace, image })
            })
            .transpose()
            .into();
    }

    /// Returns how an image would be pulled; commands name the files of this root. A file that only root may read does not prevent
    /// a pull.
    fn trace_pull(
        &self,
        root: &Root,
        image: &str,
    ) -> Result<Result<Trace, PullRefusal>, RootError> {
        let name = match ImageName::parse(image) {
            Ok(name) => name,
            Err(error) => {
                return Ok(Err(PullRefusal {
                    place: "the recorded config".to_owned(),
                    words: error.to_string(),
                    next: format!("mco-rescue show{}", self.at_root()),
                }));
            }
        };
        match Trace::read(root, &name) {
            Err(TraceError::Read(error)) if error.cause.is_denied() => Err(error),
            read => Ok(read.map_err(|error| self.to_refusal(&error))),
        }
    }

    fn to_refusal(&self, error: &TraceError) -> PullRefusal {
        let place = match error {
            TraceError::Read(error) => error.path.clone(),
            TraceError::Registries(error) => error.file().to_owned(),
            TraceError::Lookaside(error) => error.file.clone(),
            TraceError::Policy(_) | TraceError::NoPolicy => format!("/{}", paths::POLICY),
        };
        let file = self.shell_path(&place);
        match error {
            TraceError::NoPolicy => PullRefusal {
                next: format!("cp {} {file}", self.shell_path(&format!("/usr{place}"))),
                words: "is missing, and without it nothing can be pulled".to_owned(),
                place,
            },
            _ => PullRefusal {
                next: format!("vi {file}"),
                words: error.to_string(),
                place,
            },
        }
    }

    fn of_boot(&mut self, root: &Root) {
        self.boot = read_boot(root, &self.system).into();
        self.arguments_on_disk = match &self.boot {
            Look::Unseen(why) => Look::Unseen(why.clone()),
            Look::Seen(boot) => match boot.entries.first() {
                Some(entry) => Look::Seen(entry.options.without(&OF_DEPLOYMENTS)),
                None => Look::Unseen("no boot entry is visible below /boot".to_owned()),
            },
        };
        self.deployments = read_deployments(root, &self.system).into();
    }
}

/// Returns the disks. `/var` may be a file system of its own. In a root without a repository, the OS is on the same file system as
/// `/var`.
fn read_disks(root: &Root) -> Result<Vec<DiskEvidence>> {
    let mut all: Vec<DiskEvidence> = Vec::new();
    for (path, place) in [(paths::SYSROOT, "/sysroot"), ("var", "/var")] {
        let Some(space) = Space::read_space(root, &RootPath::fixed(path))? else {
            continue;
        };
        if all.iter().all(|one| one.space.device != space.device) {
            let of_the_os = all.is_empty();
            all.push(DiskEvidence {
                place,
                of_the_os,
                space,
                largest: Look::Seen(Largest::default()),
            });
        }
    }
    let var = RootPath::fixed("var");
    let device = Space::read_space(root, &var)?.map(|space| space.device);
    for disk in &mut all {
        // Searching a disk with enough space would only take time.
        if Some(disk.space.device) == device && disk.space.is_low() {
            disk.largest = find_largest(root, &var, &["var/lib/containers/storage"]).into();
        }
    }
    if all.is_empty() {
        Err(anyhow!("there is neither /sysroot nor /var"))
    } else {
        Ok(all)
    }
}

fn compare_config(session: &Session<'_>) -> ConfigComparison {
    let config = &session.chosen.config;
    // The plan knows the directories and links that differ.
    let (_, drifts) = session.compare_node();
    let node = &session.node;
    let emptied = session.desired.files.iter().filter(|file| {
        let on_disk = node.object(&file.path).map(|object| &object.kind);
        file.size > 0 && matches!(on_disk, Some(ObjectKind::File { size: 0, .. }))
    });
    let differs: BTreeSet<&str> = drifts.iter().map(|drift| drift.subject.as_str()).collect();
    let changed = session.desired.files.iter().filter_map(|file| {
        let stat = differs
            .contains(file.path.to_string().as_str())
            .then(|| session.root.stat(&file.path));
        // Only the time is unknown; the difference is reported anyway.
        let stat = stat?.ok()??;
        Some((file.path.clone(), u64::try_from(stat.st_mtime).ok()?))
    });
    let changed = changed.collect();
    ConfigComparison {
        config: config.name.clone(),
        os_image: config.os_image_url.clone(),
        emptied: emptied.map(|file| file.path.clone()).collect(),
        changed,
        flags: node
            .flags
            .iter()
            .map(|(path, flags)| (path.clone(), *flags))
            .collect(),
        drifts,
    }
}

fn read_boot(root: &Root, system: &System) -> Result<BootEvidence> {
    let space = Space::read_space(root, &RootPath::fixed(paths::BOOT))?;
    let facts = system.facts();
    Ok(BootEvidence {
        space: space.context("there is no /boot")?,
        room: facts.and_then(|facts| facts.boot).map(|(_, room)| room),
        entries: bootloader::read_boot_entries(root)?,
        kernels: bootloader::list_kernel_directories(root)?,
        largest: find_largest(
            root,
            &RootPath::fixed(paths::BOOT),
            &[paths::BOOT_OSTREE, "boot/efi", "boot/grub2"],
        )
        .into(),
    })
}

fn read_deployments(root: &Root, system: &System) -> Result<Vec<DeployedTree>> {
    let all = deploy_directories::list_deploy_directories(root)?;
    if all.is_empty() {
        return Err(anyhow!(
            "no deployment is visible below /{}",
            paths::STATEROOTS
        ));
    }
    let facts = system.facts();
    let deployed = |directory: deploy_directories::DeployDirectory| DeployedTree {
        known: facts.map(|facts| facts.deployments.find_named(&directory.name).is_some()),
        immutable: deploy_directories::list_immutable(root, &directory).into(),
        directory,
    };
    Ok(all.into_iter().map(deployed).collect())
}

fn read_configs(
    root: &Root,
    records: Option<&Records>,
    forecast: Option<&Forecast>,
) -> Result<Configs> {
    let mut found = Configs::default();
    let mut add = |config: &MachineConfig, at: String, fetched| {
        if !config.bare {
            found.available.push(NamedConfig {
                name: config.name.clone(),
                pool: cache::pool_of(config),
                at,
                name_matches: render::name_matches(&config.record),
                network: network::of_config(config),
                fetched,
            });
        }
    };
    if let Some(records) = records {
        if let Some(config) = records.recorded_config() {
            add(config, format!("/{}", paths::CURRENT_CONFIG), None);
        }
        if let Recorded::Present(config) = &records.mcs_content {
            add(config, format!("/{}", paths::MCS_CONTENT), None);
        }
    }
    let cached = cache::read_cache(root).context("reading the cache")?;
    for entry in cache::whole_entries(&cached) {
        if let Ok(config) = entry.config() {
            add(
                &config,
                format!("cached:{}", entry.name),
                Some(entry.fetched),
            );
        }
    }
    for one in &cached {
        if let Cached::Damaged(path, why) = one {
            found.damaged.push((path.to_string(), why.clone()));
        }
    }
    found.named = list_mentioned(root, records, &found.available)?;
    found.told = forecast
        .filter(|forecast| forecast.told != AnnotationSource::Missing)
        .map(|forecast| (forecast.told, forecast.at));
    Ok(found)
}

/// Returns all configs that records, annotations or logs name, each name once per source.
fn list_mentioned(
    root: &Root,
    records: Option<&Records>,
    available: &[NamedConfig],
) -> Result<Vec<MentionedConfig>> {
    let mut at: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in available {
        at.entry(&one.name).or_default().push(one.at.clone());
    }
    let seen = annotations::read_annotations(root).context("reading the annotations")?;
    let log = pod_log::read_pod_log(root).context("reading the daemon's log")?;
    let mut all: Vec<(Option<String>, ConfigRole, String)> = Vec::new();
    let record = records.and_then(Records::name);
    all.push((
        record,
        ConfigRole::Recorded,
        format!("/{}", paths::CURRENT_CONFIG),
    ));
    if let Some(seen) = seen {
        let place = || format!("the API, {}", crate::base::time::format_utc(seen.seen));
        all.push((seen.desired.clone(), ConfigRole::Desired, place()));
        all.push((seen.current.clone(), ConfigRole::Current, place()));
    }
    if let Some(wanted) = log.and_then(|log| log.wanted) {
        all.push((Some(wanted.name), ConfigRole::Desired, wanted.file));
    }
    let named = all.into_iter().filter_map(|(name, role, place)| {
        // An empty annotation names no config.
        let name = name.filter(|name| !name.is_empty())?;
        Some(MentionedConfig {
            at: at.get(name.as_str()).cloned().unwrap_or_default(),
            role,
            name,
            place,
        })
    });
    Ok(named.collect())
}

/// Returns the clocks, with the times that other evidence contains.
fn read_clocks(root: &Root, evidence: &DoctorEvidence) -> Clock {
    let mut clock = clock::read_clock(root);
    let certificates = evidence.certificates.get().into_iter().flatten();
    clock.passed.extend(certificates.map(|one| Passed {
        place: one.path.clone(),
        what: "a certificate in it was signed",
        at: one.not_before,
        foreign: true,
    }));
    clock.passed.push(Passed {
        place: "the rules in this program".to_owned(),
        what: "are of",
        at: RULES_OF,
        foreign: true,
    });
    let cached = evidence
        .configs
        .get()
        .map(|configs| configs.available.as_slice());
    let fetched = cached.unwrap_or_default().iter();
    clock.passed.extend(fetched.filter_map(|one| {
        Some(Passed {
            place: one.at.clone(),
            what: "was fetched",
            at: one.fetched?,
            foreign: false,
        })
    }));
    clock.passed.extend(evidence.last_run().map(|run| Passed {
        place: format!("/{}", paths::STATUS),
        what: "the last run of mco-rescue ended",
        at: run.finished,
        foreign: false,
    }));
    of_server(root, evidence, &mut clock);
    clock
}

/// Adds the server's current time, or the last known one.
fn of_server(root: &Root, evidence: &DoctorEvidence, clock: &mut Clock) {
    let asked = if evidence.live {
        server::read_server(root)
    } else {
        Ok(None)
    };
    let asked = asked.map_err(Reason::from_error).and_then(|known| {
        known
            .map(|server| server_clock::ask_server(root, &server))
            .transpose()
    });
    let (now, unseen) = match asked {
        Ok(heard) => (heard, None),
        Err(why) => (None, Some(why.to_string())),
    };
    let (kept, unread) = match server::remembered_clock(root) {
        Ok(kept) => (kept, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let before = kept.map(|kept| Heard {
        place: format!("/{}", paths::SERVER_CLOCK),
        said: kept.date,
        // The time of a disk is not from the clock of this machine.
        own: kept.seen.filter(|_| evidence.live || evidence.in_initramfs),
        now: false,
    });
    clock.server = now.or(before);
    clock.server_unseen = unseen.or(unread);
    clock.passed.extend(clock.server.iter().map(|heard| Passed {
        place: heard.place.clone(),
        what: "the server's clock was",
        at: heard.said,
        foreign: true,
    }));
}
