//! The jobs that make running services use the files of a run without a reboot, and the jobs that revert this
//! (docs/reference/after-the-files.md: In a trial).
//!
//! The node disruption policies come first, as in an ordinary run. For a file that would require a reboot, or has no policy, a
//! table of readers decides.

mod sysctl;
mod table;

use std::collections::BTreeSet;
use std::fmt;

use super::neighbours::BY_PACEMAKER;
use super::{Payload, Plan, PlannedStep, Section, Step};
use crate::base::object::ObjectKind;
use crate::base::order::StableOrder;
use crate::formats::systemd::changed::{is_read_by_manager, units_at, wanted_at};
use crate::host::root::RootPath;
use crate::judge::daemon::Action;
use crate::judge::daemon::actions::{ActionChanges, follow_policies};
use crate::judge::daemon::policies::ClusterPolicies;
use crate::node::command::job::{self, CA_TRUST, Job, SYSCTL};
use crate::node::command::systemctl::{ActiveState, UnitActivity};
use crate::node::neighbours::is_fenced;
use crate::node::services_at_work::ServicesAtWork;
use table::Reader;

const NETWORK_MANAGER: &str = "NetworkManager.service";
/// Names of the SSH server's unit, and of the socket that starts a server for each connection.
const SSHD: [&str; 3] = ["sshd.service", "ssh.service", "sshd.socket"];
/// Units whose restart would end sessions, the bus or this program's guard.
const NEVER_RESTARTED: [&str; 7] = [
    "dbus.service",
    "dbus-broker.service",
    "systemd-logind.service",
    "auditd.service",
    "user@",
    "user-runtime-dir@",
    "mco-rescue",
];

/// A path that a run changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPath {
    /// The path.
    pub path: RootPath,
    /// The path exists before the run.
    pub before: bool,
    /// The path exists after the run.
    pub after: bool,
    /// After the run, it is a link to `/dev/null`, which masks a unit.
    pub masks: bool,
    /// It is a connection that is a port of another one, such as a bond.
    pub port: bool,
}

/// The jobs, and the paths without a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activation {
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// Changed files that the trial does not test, because no running program reads them again.
    pub left: Vec<UnreadFile>,
}

/// A changed file that no job makes a program reread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadFile {
    /// The path.
    pub path: RootPath,
    /// The reason.
    pub why: Why,
}

/// The reason why no job makes a program reread a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is only read at boot.
    Boot,
    /// It is unknown which program reads it.
    Unknown,
    /// Its service is not running, and reads it when it starts.
    NotRunning(String),
    /// Its service has failed, and the run does not start it.
    Failed(String),
    /// Its unit is not restarted on a running node: it did its work at boot, or sessions depend on it.
    Kept(String),
    /// Only Pacemaker may start and stop its service.
    Pacemaker(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => write!(f, "is read at the next boot"),
            Self::Unknown => write!(
                f,
                "is not read by any known service: programs that have read it keep the old content"
            ),
            Self::NotRunning(unit) => {
                write!(f, "is read by {unit} when it starts; it is not running now")
            }
            Self::Failed(unit) => write!(
                f,
                "is read by {unit}, which has failed: systemctl restart {unit}"
            ),
            Self::Kept(unit) => write!(
                f,
                "takes effect at the next boot: {unit} is not restarted on a running node"
            ),
            Self::Pacemaker(unit) => write!(f, "is read by {unit}. {BY_PACEMAKER}"),
        }
    }
}

/// Reads the current content of a file; `None` if it is missing or cannot be read.
pub type ReadNow<'a> = &'a dyn Fn(&RootPath) -> Option<Vec<u8>>;

/// Returns the paths that a plan changes, except directories and the daemon's records.
pub fn changed_paths(plan: &Plan, read: ReadNow<'_>) -> Vec<ChangedPath> {
    let changed = changing_steps(plan).filter_map(|planned| {
        let (before, after, masks) = match &planned.step {
            Step::MakeDirectory { .. } | Step::RemoveDirectory { .. } => return None,
            Step::Put { new, old, .. } => {
                let masks =
                    matches!(&new.kind, ObjectKind::Symlink { target } if target == "/dev/null");
                (old.is_some(), true, masks)
            }
            Step::Remove { .. } => (true, false, false),
            Step::Metadata { .. } => (true, true, false),
        };
        let path = planned.step.path().clone();
        let port = table::find_reader(path.relative()) == Some(Reader::Connection)
            && new_text(plan, planned, read).is_some_and(|bytes| is_port(&bytes));
        Some(ChangedPath {
            path,
            before,
            after,
            masks,
            port,
        })
    });
    changed.collect()
}

/// Returns the names of the kernel settings that a plan changes, as paths below `/proc/sys`, for [`ServicesAtWork::observe`]. A
/// name may be a pattern.
pub fn changed_settings(plan: &Plan, read: ReadNow<'_>) -> Vec<String> {
    let steps = changing_steps(plan).filter(|planned| {
        table::find_reader(planned.step.path().relative()) == Some(Reader::Sysctl)
    });
    let texts = steps.flat_map(|planned| {
        let old = read(planned.step.path());
        old.into_iter().chain(new_text(plan, planned, read))
    });
    let names = texts.flat_map(|text| sysctl::read_names(&String::from_utf8_lossy(&text)));
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

pub(super) fn changing_steps(plan: &Plan) -> impl Iterator<Item = &PlannedStep> {
    let steps = plan.steps.iter();
    steps.filter(|planned| !matches!(planned.section, Section::Originals | Section::Records))
}

/// Returns the bytes that a step writes. A rollback copies them from its store.
fn new_text(plan: &Plan, planned: &PlannedStep, read: ReadNow<'_>) -> Option<Vec<u8>> {
    match &planned.payload {
        Payload::CopyOf(path) => read(path),
        _ => plan.text_of(planned.step.path()),
    }
}

/// Returns true for the path of a NetworkManager connection.
pub fn is_connection(path: &RootPath) -> bool {
    table::find_reader(path.relative()) == Some(Reader::Connection)
}

/// Returns the jobs that make running services use the changed files. Services that are not running get no job.
pub fn activation_jobs(
    changed: &[ChangedPath],
    facts: &ServicesAtWork,
    policies: &ClusterPolicies,
) -> Activation {
    let mut all = Gathered {
        facts,
        policies,
        activation: Activation::default(),
    };
    // A controller precedes its ports.
    let (ports, others): (Vec<_>, Vec<_>) = changed.iter().partition(|one| one.port);
    for one in others.into_iter().chain(ports) {
        all.add_path(one, changed);
    }
    all.finish()
}

/// Returns the jobs that make the services reread the previous files, once these are restored. They depend on what ran before
/// the run. [`job::carry_out_all`] carries them out, each even if an earlier one failed.
pub fn revert_jobs(jobs: &[Job]) -> Vec<Job> {
    job::jobs_back(jobs)
}

/// Returns true if a keyfile describes a port, which names its controller.
fn is_port(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.any(|(key, _)| {
        let key = key.trim().to_ascii_lowercase();
        matches!(key.as_str(), "master" | "controller" | "bridge" | "team")
    })
}

/// The jobs so far.
struct Gathered<'a> {
    facts: &'a ServicesAtWork,
    policies: &'a ClusterPolicies,
    activation: Activation,
}

impl Gathered<'_> {
    fn add_path(&mut self, one: &ChangedPath, all: &[ChangedPath]) {
        if is_read_by_manager(&one.path) {
            self.add_unit(one, all);
        } else if !self.follow_policy(one) {
            self.add_file(one);
        }
    }

    fn push_job(&mut self, one: &ChangedPath, job: Job) {
        match job.unit() {
            Some(unit) if self.facts.fencing && is_fenced(unit) => {
                let why = Why::Pacemaker(unit.to_owned());
                self.leave_path(one, why);
            }
            _ => self.activation.jobs.push(job),
        }
    }

    fn leave_path(&mut self, one: &ChangedPath, why: Why) {
        self.activation.left.push(UnreadFile {
            path: one.path.clone(),
            why,
        });
    }

    /// Adds the jobs of the policies, unless they require a reboot or no action.
    fn follow_policy(&mut self, one: &ChangedPath) -> bool {
        let path = one.path.to_string();
        let changed = ActionChanges {
            files: vec![&path],
            ..ActionChanges::default()
        };
        self.follow_actions(one, &changed)
    }

    fn follow_actions(&mut self, one: &ChangedPath, changed: &ActionChanges<'_>) -> bool {
        let queue = follow_policies(changed, self.policies);
        if queue.iter().any(|queued| queued.action == Action::Reboot) {
            return false;
        }
        let jobs: Vec<Job> = queue
            .iter()
            .filter_map(|queued| queued.action.job())
            .collect();
        for job in &jobs {
            match job {
                Job::Reload(unit) | Job::Restart(unit) if SSHD.contains(&&**unit) => {
                    self.push_job(one, Job::Sshd(unit.clone()));
                    if matches!(job, Job::Restart(_)) {
                        self.push_job(one, job.clone());
                    }
                }
                Job::Reload(unit) if self.is_running(unit) => {
                    self.push_job(one, Job::ReloadOrRestart(unit.clone()));
                }
                _ => self.push_job(one, job.clone()),
            }
        }
        !jobs.is_empty()
    }

    fn is_running(&self, unit: &str) -> bool {
        self.facts.find_unit(unit).is_some_and(is_told)
    }

    fn add_file(&mut self, one: &ChangedPath) {
        let path = one.path.relative();
        let Some(reader) = table::find_reader(path) else {
            return self.add_options(one);
        };
        match reader {
            Reader::AtUse => {}
            Reader::Boot => self.leave_path(one, Why::Boot),
            Reader::Reload(units) => self.add_job(one, units, Job::ReloadOrRestart),
            Reader::Restart(units) => self.add_job(one, units, Job::Restart),
            Reader::Sshd => self.add_job(one, &SSHD, Job::Sshd),
            Reader::SshdOptions => {
                self.add_job(one, &SSHD, Job::Sshd);
                let service = SSHD
                    .iter()
                    .find(|unit| !unit.ends_with(".socket") && self.is_running(unit));
                if let Some(unit) = service {
                    self.push_job(one, Job::Restart((*unit).to_owned()));
                }
            }
            Reader::Connection => self.add_connection(one),
            Reader::Sysctl
                if self
                    .facts
                    .find_unit(SYSCTL)
                    .is_some_and(|unit| unit.active == ActiveState::Failed) =>
            {
                self.leave_path(one, Why::Failed(SYSCTL.to_owned()));
            }
            Reader::Sysctl => {
                let values = self.facts.settings.join("\n");
                self.push_job(one, Job::Sysctls(values));
            }
            Reader::Udev => self.push_job(one, Job::UdevRules),
            Reader::Trust => {
                self.push_job(one, Job::Restart(CA_TRUST.to_owned()));
                if self.is_running("crio.service") {
                    self.push_job(one, Job::Restart("crio.service".to_owned()));
                }
            }
            Reader::Manager => self.push_job(one, Job::DaemonReload),
        }
    }

    /// Adds a restart for options in `/etc/sysconfig` or `/etc/default`, which a service reads at its start.
    fn add_options(&mut self, one: &ChangedPath) {
        let path = one.path.relative();
        let folders = ["etc/sysconfig/", "etc/default/"];
        let name = folders.iter().find_map(|folder| path.strip_prefix(folder));
        let unit = name.map(|name| format!("{name}.service"));
        match unit.filter(|unit| self.is_running(unit)) {
            Some(unit) => self.restart_named(one, &unit),
            None if self.needs_nothing(one) => {}
            None => self.leave_path(one, Why::Unknown),
        }
    }

    /// Returns true if a policy says that the file takes effect without an action.
    fn needs_nothing(&self, one: &ChangedPath) -> bool {
        let path = one.path.to_string();
        let changed = ActionChanges {
            files: vec![&path],
            ..ActionChanges::default()
        };
        let queue = follow_policies(&changed, self.policies);
        queue.iter().all(|queued| queued.action == Action::None)
    }

    fn add_connection(&mut self, one: &ChangedPath) {
        if !self.is_running(NETWORK_MANAGER) {
            return self.leave_path(one, Why::NotRunning(NETWORK_MANAGER.to_owned()));
        }
        let path = one.path.to_string();
        self.push_job(
            one,
            match (one.before, one.after) {
                (true, true) => Job::Connection(path),
                (false, _) => Job::NewConnection(path),
                (true, false) => Job::GoneConnection(path),
            },
        );
    }

    /// Adds a job for the first unit that is running.
    fn add_job(&mut self, one: &ChangedPath, units: &[&str], job: impl Fn(String) -> Job) {
        if let Some(unit) = units.iter().find(|unit| self.is_running(unit)) {
            return self.push_job(one, job((*unit).to_owned()));
        }
        let known = units.iter().filter_map(|unit| self.facts.find_unit(unit));
        let mut known = known.filter(|unit| unit.active != ActiveState::Inactive);
        match known.next() {
            // systemd is about to start it.
            Some(unit) if unit.active != ActiveState::Failed => {}
            Some(unit) => self.leave_path(one, Why::Failed(unit.name.clone())),
            None => {
                let unit = units.first().copied().unwrap_or_default();
                self.leave_path(one, Why::NotRunning(unit.to_owned()));
            }
        }
    }

    fn add_unit(&mut self, one: &ChangedPath, all: &[ChangedPath]) {
        self.activation.jobs.push(Job::DaemonReload);
        let path = std::slice::from_ref(&one.path);
        for unit in wanted_at(path) {
            self.add_link(one, &unit, all);
        }
        for pattern in units_at(path) {
            let changed = ActionChanges {
                units: vec![&pattern],
                ..ActionChanges::default()
            };
            if self.follow_actions(one, &changed) {
                continue;
            }
            let matching = self
                .facts
                .units
                .iter()
                .filter(|unit| is_instance(&unit.name, &pattern));
            let running: Vec<UnitActivity> =
                matching.filter(|unit| unit.is_running()).cloned().collect();
            let own = one.path.name() == pattern.replace("@*.", "@.");
            let gone =
                own && (one.masks || !one.after && !self.facts.shipped.contains(one.path.name()));
            for unit in running {
                match gone {
                    true if is_kept(&unit.name) => self.leave_path(one, Why::Kept(unit.name)),
                    true => self.push_job(one, Job::Stop(unit.name)),
                    false => self.restart_unit(one, &unit),
                }
            }
        }
    }

    /// Restarts a unit whose file has changed, if it is running: one that did its work at boot does not do it again.
    fn restart_unit(&mut self, one: &ChangedPath, unit: &UnitActivity) {
        let kinds = [".service", ".timer", ".path"];
        let works =
            matches!(&*unit.sub, "running" | "waiting" | "reload") || unit.sub.starts_with("start");
        if unit.sub.starts_with("auto-restart") {
            return;
        }
        if kinds.iter().any(|kind| unit.name.ends_with(kind)) && works {
            self.restart_named(one, &unit.name);
        } else {
            self.leave_path(one, Why::Kept(unit.name.clone()));
        }
    }

    fn restart_named(&mut self, one: &ChangedPath, unit: &str) {
        if is_kept(unit) {
            return self.leave_path(one, Why::Kept(unit.to_owned()));
        }
        if SSHD.contains(&unit) {
            self.push_job(one, Job::Sshd(unit.to_owned()));
        }
        self.push_job(one, Job::Restart(unit.to_owned()));
    }

    /// Adds jobs for a link that makes a unit start with another, running unit, as it would at boot.
    fn add_link(&mut self, one: &ChangedPath, unit: &str, all: &[ChangedPath]) {
        let owner = one
            .path
            .parent()
            .map(|parent| parent.name().to_owned())
            .unwrap_or_default();
        let owner = owner
            .rsplit_once('.')
            .map(|(owner, _)| owner)
            .unwrap_or_default();
        let at_work = self
            .facts
            .find_unit(owner)
            .is_some_and(UnitActivity::is_running);
        if !at_work || one.before == one.after {
            return;
        }
        let runs = self
            .facts
            .find_unit(unit)
            .is_some_and(UnitActivity::is_running);
        let kinds = [".service", ".socket", ".timer", ".path", ".target"];
        let kept = is_kept(unit) || !kinds.iter().any(|kind| unit.ends_with(kind));
        match one.after {
            true if runs => {}
            false if !runs || self.is_wanted(unit, all) => {}
            _ if kept => self.leave_path(one, Why::Kept(unit.to_owned())),
            true => self.push_job(one, Job::StartEnabled(unit.to_owned())),
            false => self.push_job(one, Job::Stop(unit.to_owned())),
        }
    }

    /// Returns true if a link remains that makes the unit start.
    fn is_wanted(&self, unit: &str, all: &[ChangedPath]) -> bool {
        let goes = |path: &RootPath| all.iter().any(|one| one.path == *path && !one.after);
        let mut links = self.facts.links.iter();
        let old = links.any(|path| path.name() == unit && !goes(path));
        old || all.iter().any(|one| {
            one.after
                && wanted_at(std::slice::from_ref(&one.path))
                    .iter()
                    .any(|name| name == unit)
        })
    }

    /// Sorts the jobs, and drops those that another job includes.
    fn finish(self) -> Activation {
        let Activation { jobs, mut left } = self.activation;
        let mut kept: Vec<Job> = Vec::new();
        for job in &jobs {
            if !kept.contains(job) && !jobs.iter().any(|other| includes_job(other, job)) {
                kept.push(job.clone());
            }
        }
        kept.order_by_key(job_rank);
        let mut seen = BTreeSet::new();
        left.retain(|left| seen.insert((left.path.clone(), left.why.to_string())));
        Activation { jobs: kept, left }
    }
}

/// Returns true if systemd can send it a job: it is running, or about to.
fn is_told(unit: &UnitActivity) -> bool {
    unit.is_running() && !unit.sub.starts_with("auto-restart")
}

/// Returns true if one job makes another one unnecessary.
fn includes_job(one: &Job, other: &Job) -> bool {
    match (one, other) {
        (
            Job::Stop(stopped),
            Job::Restart(unit) | Job::ReloadOrRestart(unit) | Job::Sshd(unit) | Job::Reload(unit),
        )
        | (Job::Restart(stopped), Job::ReloadOrRestart(unit) | Job::Reload(unit))
        | (Job::ReloadOrRestart(stopped), Job::Reload(unit)) => stopped == unit,
        _ => false,
    }
}

/// Returns the position of a job: first stops, then systemd itself, devices and the kernel, the network, other services, the
/// SSH server, and finally the services of the cluster.
fn job_rank(job: &Job) -> u8 {
    match job {
        Job::Stop(_) => 0,
        Job::DaemonReload => 1,
        Job::UdevRules | Job::Sysctls(_) | Job::SysctlsBack(_) => 2,
        Job::Connection(_) | Job::NewConnection(_) | Job::GoneConnection(_) => 5,
        Job::Sshd(_) => 8,
        _ => match job.unit().unwrap_or_default() {
            "systemd-journald.service" => 2,
            CA_TRUST => 3,
            NETWORK_MANAGER | "systemd-networkd.service" => 4,
            "nftables.service" | "firewalld.service" | "iptables.service" | "ip6tables.service" => {
                6
            }
            "crio.service" => 9,
            "kubelet.service" => 10,
            unit if SSHD.contains(&unit) => 8,
            _ => 7,
        },
    }
}

fn is_kept(unit: &str) -> bool {
    NEVER_RESTARTED.iter().any(|kept| unit.starts_with(kept))
}

/// Returns true if a unit has this name, or is an instance of this template pattern.
fn is_instance(name: &str, pattern: &str) -> bool {
    match pattern.split_once("@*.") {
        None => name == pattern,
        Some((prefix, suffix)) => name
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('@'))
            .and_then(|rest| rest.strip_suffix(suffix))
            .is_some_and(|rest| rest.ends_with('.')),
    }
}

#[cfg(test)]
mod tests;
