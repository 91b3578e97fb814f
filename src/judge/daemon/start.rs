//! The daemon's start: how it first examines the node and the API, as a walk over values (docs/develop/agreement.md: Start).
//!
//! Unknown facts are values as well: an annotation without a source is [`Annotation::Unknown`], and an object that the API must
//! have is a [`StartNeed`] with the daemon's message in case it is missing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::first_boot::FirstBootWork;
use super::midway::Failure;
use super::release::{Release, Rule};
use super::update::decide_allowing;
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::config::document::ignition::Unit;
use crate::config::document::{KernelType, MachineConfig, undecodable_message};
use crate::judge::daemon::policies::{ClusterPolicies, Overrides};
use crate::judge::drift::{Drift, DriftKind, verdict_sentence};
use crate::node::command::rpm_ostree::packages::{PackageSet, package_sets};
use crate::node::os_release::Class;

/// Prefix of the daemon's annotations.
pub const PREFIX: &str = "machineconfiguration.openshift.io/";
/// Placeholder for a config whose name only the API knows.
pub const OF_CURRENT: &str = "the one that the node's annotation currentConfig names";
/// Placeholder for the target of the node's pool.
pub const OF_POOL: &str = "(the one that the pool targets)";

/// An annotation of the Node object, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Annotation {
    /// No source is available.
    #[default]
    Unknown,
    /// The Node does not have it, or it is empty.
    Absent,
    /// Its value.
    Is(String),
}

impl Annotation {
    /// Converts a value from an answer of the API.
    pub fn told(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Absent,
            Some(value) => Self::Is(value.to_owned()),
        }
    }

    fn value(&self) -> Option<&str> {
        match self {
            Self::Is(value) => Some(value),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The annotations that decide about the daemon's start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartAnnotations {
    /// `currentConfig`.
    pub current: Annotation,
    /// `desiredConfig`.
    pub desired: Annotation,
    /// `currentImage`.
    pub current_image: Annotation,
    /// `desiredImage`.
    pub desired_image: Annotation,
}

/// `currentconfig`, as the daemon reads it.
#[derive(Debug, Clone, Copy)]
pub enum DaemonRecord<'a> {
    /// No such file.
    Missing,
    /// The daemon's message about an unreadable file.
    Broken(&'a str),
    /// A file that the daemon cannot read, for this reason; its message is not known here.
    Undecodable(&'a str),
    /// A file that the daemon reads, but that is refused here.
    Refused {
        /// The name in it.
        name: &'a str,
        /// The reason.
        why: &'a str,
    },
    /// A config.
    Present(&'a MachineConfig),
}

/// A config of the API whose contents are available here.
#[derive(Debug, Clone, Copy)]
pub struct KnownConfig<'a> {
    /// The contents.
    pub config: &'a MachineConfig,
    /// True if the hash in its name matches the contents, so the API's object is the same.
    pub proven: bool,
}

/// The objects of the API.
#[derive(Debug, Clone, Copy)]
pub enum ApiReach<'a> {
    /// No source is available; a local copy proves nothing.
    Unknown,
    /// Names of all its MachineConfigs.
    Has(&'a BTreeSet<String>),
}

/// The comparison of the disk with one config.
#[derive(Debug, Clone, Default)]
pub struct DiskComparison {
    /// The differences, in the daemon's order.
    pub drifts: Vec<Drift>,
    /// True if the operating system should be compared too, but could not be queried.
    pub os_unknown: bool,
    /// The error with which the last shutdown failed to write the staged deployment; the daemon adds it to its message.
    pub root_cause: Option<String>,
}

/// Compares the disk with a config and a layered image.
pub type Compare<'a> = &'a dyn Fn(&MachineConfig, Option<&str>) -> DiskComparison;

/// Returns the failure of an update to the config of a name, as far as it is known.
pub type Fails<'a> = &'a dyn Fn(&str) -> Option<Failure>;

/// The operating system, as far as the start of the daemon depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOs {
    /// The daemon's classification of it.
    pub class: Class,
    /// The running image; `None` if rpm-ostree was not queried.
    pub booted: Option<String>,
    /// Installed extension packages; `None` if rpm was not queried.
    pub packages: Option<BTreeSet<String>>,
    /// Podman's error, if it was asked for an image and failed.
    pub podman: Option<String>,
}

/// Files that the daemon checks, or that trigger an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "files that exist, or not")]
pub struct Triggers {
    /// The encapsulated config of a first boot.
    pub encapsulated: bool,
    /// `/run/machine-config-daemon-force`.
    pub force: bool,
    /// The file of the service that leaves on-cluster layering, or its unit.
    pub revert: bool,
    /// `/etc/kubernetes/kubeconfig`.
    pub kubeconfig: bool,
    /// `/etc/yum.repos.d/coreos-extensions.repo`.
    pub repository: bool,
    /// True if a deployment is staged for the next boot.
    pub staged: bool,
}

/// A node as the daemon will find it.
#[derive(Clone, Copy)]
#[allow(
    missing_debug_implementations,
    reason = "whole configs with their secrets must not get into a message"
)]
pub struct Situation<'a> {
    /// The release of the daemon.
    pub release: Release,
    /// Name of the Node.
    pub node: &'a str,
    /// Its annotations.
    pub annotations: &'a StartAnnotations,
    /// True if the cluster has one node, so the daemon requests no drain.
    pub single_replica: bool,
    /// The config that the pool targets, if it is known.
    pub pool_target: Option<&'a str>,
    /// Objects of the API.
    pub api: ApiReach<'a>,
    /// The contents of configs, by name.
    pub configs: &'a BTreeMap<String, KnownConfig<'a>>,
    /// `currentconfig`.
    pub record: DaemonRecord<'a>,
    /// `currentimage`.
    pub image: Option<&'a str>,
    /// `node-annotations.json`: its content, or the parser's error. While it exists, the daemon treats this as the node's first
    /// boot.
    pub initial: Option<Result<&'a StartAnnotations, &'a str>>,
    /// Other files.
    pub triggers: Triggers,
    /// Work left for the first-boot service, if its file exists.
    pub first_boot: &'a FirstBootWork,
    /// The operating system.
    pub os: &'a StartOs,
    /// FIPS mode of the kernel, if it is known.
    pub fips: Option<bool>,
    /// The node disruption policies.
    pub policies: &'a ClusterPolicies,
    /// True if the policies are the cluster's own, not the defaults.
    pub policies_known: bool,
    /// The changes of storage sections that the cluster allows, if known.
    pub overrides: Option<&'a Overrides>,
    /// Compares the disk with a config.
    pub compare: Compare<'a>,
    /// Returns the failure of an update on this disk.
    pub fails: Fails<'a>,
}

/// The state that the daemon sets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything is as desired.
    Done,
    /// It reports an error and retries forever.
    Degraded,
    /// It was asked for a change that it never makes.
    Unreconcilable,
    /// It starts an update to another config or image; the node reboots.
    Working,
    /// The known facts do not determine the state.
    Unknown,
}

/// An update that starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartUpdate {
    /// Name of the old config.
    pub from: String,
    /// Name of the new config.
    pub to: String,
}

/// An object that the API must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartNeed {
    /// Name of the MachineConfig.
    pub machine_config: String,
    /// The message with which the daemon is Degraded while the object is missing.
    pub otherwise: String,
}

/// A renamed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// Absolute path before.
    pub from: String,
    /// Absolute path afterwards.
    pub to: String,
}

/// The daemon's behaviour at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// The last state that it sets during its start.
    pub state: State,
    /// Its message, word for word.
    pub error: Option<String>,
    /// The update that starts.
    pub update: Option<StartUpdate>,
    /// The image that it first rebases to on a first boot.
    pub pivot: Option<String>,
    /// Whether it requests a drain; `None` if that depends on unknown facts.
    pub drain: Option<bool>,
    /// Whether it reboots the node; `None` if that depends on unknown facts.
    pub reboot: Option<bool>,
    /// The config in `currentconfig` afterwards; `None` if the file is missing or unreadable.
    pub record_after: Option<String>,
    /// `node-annotations.json` exists afterwards.
    pub node_annotations_after: bool,
    /// The force file exists afterwards.
    pub force_file_after: bool,
    /// Files that it renames.
    pub renamed: Vec<Renamed>,
    /// Objects that the API must have for this outcome.
    pub needs: Vec<StartNeed>,
    /// The reasons, and other facts for the reader.
    pub because: Vec<String>,
}

/// A reason for ending the walk early.
enum Stop {
    Degraded(String),
    /// Degraded, with an unknown message; holds the reason.
    Fails(String),
    Unreconcilable(String),
    CannotTell(String),
}

/// The config of a step: its name, and its contents if they are available.
#[derive(Clone)]
struct Subject<'a> {
    name: String,
    config: Option<&'a MachineConfig>,
}

struct Walk<'a> {
    here: Situation<'a>,
    /// The annotations after the daemon has loaded missing ones.
    annotations: StartAnnotations,
    out: Prediction,
}

/// Predicts the daemon's start on this node.
pub fn predict_start(here: &Situation<'_>) -> Prediction {
    let mut walk = Walk {
        here: *here,
        annotations: here.annotations.clone(),
        out: untouched(here),
    };
    let ended = walk.walk_start();
    let mut out = walk.out;
    let (state, error) = match ended {
        Ok(state) => (state, None),
        Err(Stop::Degraded(said)) => (State::Degraded, Some(said)),
        Err(Stop::Fails(why)) => {
            out.because.insert(0, why);
            (State::Degraded, None)
        }
        Err(Stop::Unreconcilable(said)) => (State::Unreconcilable, Some(said)),
        Err(Stop::CannotTell(why)) => {
            out.because.insert(0, why);
            (State::Unknown, None)
        }
    };
    if state == State::Unknown {
        (out.drain, out.reboot) = (None, None);
    }
    Prediction {
        state,
        error,
        ..out
    }
}

/// Returns the prediction before the first step.
fn untouched(here: &Situation<'_>) -> Prediction {
    Prediction {
        state: State::Unknown,
        error: None,
        update: None,
        pivot: None,
        drain: Some(false),
        reboot: Some(false),
        record_after: match here.record {
            DaemonRecord::Present(config) => Some(config.name.clone()),
            DaemonRecord::Refused { name, .. } => Some(name.to_owned()),
            DaemonRecord::Missing | DaemonRecord::Broken(_) | DaemonRecord::Undecodable(_) => None,
        },
        node_annotations_after: here.initial.is_some(),
        force_file_after: here.triggers.force,
        renamed: Vec::new(),
        needs: Vec::new(),
        because: Vec::new(),
    }
}

impl<'a> Walk<'a> {
    /// Walks in the daemon's order.
    fn walk_start(&mut self) -> Result<State, Stop> {
        self.check_triggers();
        self.load_annotations()?;
        let desired = self.desired_config()?;
        self.objects(&desired)?;
        if self.first_boot() && self.pivots()? {
            return Ok(State::Working);
        }
        let from = self.validated()?;
        if self.here.triggers.force {
            self.forced();
        } else {
            self.validate_disk(&from)?;
        }
        self.store_record(&from);
        if from.name == desired && self.same_image() && !self.here.triggers.force {
            self.check_packages(&from)?;
            self.later_steps(&from);
            return Ok(State::Done);
        }
        if let (DaemonRecord::Refused { why, .. }, false) = (self.here.record, self.first_boot()) {
            // The update starts from the record itself.
            return Err(refused_record(why));
        }
        let from = self.recorded(from);
        self.start_update(&from, &desired)
    }

    /// Returns the config that an update starts from: the API's object is validated if the record has its name, but the update
    /// starts from the record itself.
    fn recorded(&self, from: Subject<'a>) -> Subject<'a> {
        match self.here.record {
            DaemonRecord::Present(record) if !self.first_boot() && record.name == from.name => {
                subject(record)
            }
            _ => from,
        }
    }

    fn first_boot(&self) -> bool {
        self.here.initial.is_some()
    }

    /// Adds a reason unless it is already there.
    fn say(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.out.because.contains(&words) {
            self.out.because.push(words);
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.out.renamed.push(Renamed {
            from: format!("/{from}"),
            to: format!("/{to}"),
        });
    }

    /// Reports files that trigger an action.
    fn check_triggers(&mut self) {
        let there = self.here.triggers;
        if there.encapsulated {
            self.rename(paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
            let does = match self.here.first_boot {
                FirstBootWork::Nothing => {
                    ", finds nothing to change, and removes its file".to_owned()
                }
                FirstBootWork::Changes(all) => {
                    let all = all.join(", ");
                    format!(", towards the content of its file: it changes {all}, and reboots")
                }
                FirstBootWork::Unknown => ", towards the content of its file".to_owned(),
            };
            self.say(format!(
                "if the node boots before that, the first-boot service runs first{does}"
            ));
        }
        if there.revert {
            self.say(
                "at the next boot the revert service runs first, towards the content of its file",
            );
        }
        if there.staged {
            self.say("a deployment is staged: the next boot uses it");
        }
        if there.repository {
            self.say(format!(
                "/{} is stale: rpm-ostree fails on it once packages are requested",
                paths::EXTENSIONS_REPOSITORY
            ));
        }
    }

    /// Loads the annotations from the disk, which happens only for a Node without `currentConfig`.
    fn load_annotations(&mut self) -> Result<(), Stop> {
        let here = self.here;
        match (&self.annotations.current, here.initial) {
            (Annotation::Is(_), _) | (Annotation::Unknown, None) => Ok(()),
            (Annotation::Absent, Some(Err(said))) => Err(Stop::Degraded(format!(
                "failed to unmarshal initial annotations: {said}"
            ))),
            (Annotation::Unknown, Some(Err(said))) => Err(Stop::CannotTell(format!(
                "/{} cannot be read: {said}",
                paths::NODE_ANNOTATIONS
            ))),
            (Annotation::Unknown, Some(Ok(initial))) => {
                self.say(format!(
                    "if the Node has no annotations of its own: those of /{} are used",
                    paths::NODE_ANNOTATIONS
                ));
                self.annotations.current = initial.current.clone();
                if self.annotations.desired == Annotation::Unknown {
                    self.annotations.desired = initial.desired.clone();
                }
                self.take_images(initial);
                Ok(())
            }
            (Annotation::Absent, Some(Ok(initial))) => {
                self.annotations.current = initial.current.clone();
                self.annotations.desired = initial.desired.clone();
                self.take_images(initial);
                Ok(())
            }
            (Annotation::Absent, None) => self.current_of_the_record(),
        }
    }

    fn take_images(&mut self, initial: &StartAnnotations) {
        self.annotations.current_image = initial.current_image.clone();
        self.annotations.desired_image = initial.desired_image.clone();
    }

    fn current_of_the_record(&mut self) -> Result<(), Stop> {
        match self.here.record {
            DaemonRecord::Present(MachineConfig { name, .. }) => {
                self.take_current(name);
                Ok(())
            }
            DaemonRecord::Refused { name, .. } => {
                self.take_current(name);
                Ok(())
            }
            DaemonRecord::Broken(said) => Err(Stop::Degraded(said.to_owned())),
            DaemonRecord::Undecodable(why) => Err(undecodable_record(why)),
            DaemonRecord::Missing => Err(Stop::Degraded(format!(
                "open /{}: no such file or directory",
                paths::CURRENT_CONFIG
            ))),
        }
    }

    fn take_current(&mut self, name: &str) {
        self.annotations.current = Annotation::told(Some(name));
        self.annotations.current_image = Annotation::told(self.here.image);
        self.say("the Node has no annotations: currentConfig comes from the record");
    }

    fn desired_config(&self) -> Result<String, Stop> {
        let missing = |key: &str| {
            Stop::Degraded(format!(
                "{PREFIX}{key} annotation not found on node '{}'",
                self.here.node
            ))
        };
        if self.annotations.current == Annotation::Absent {
            return Err(missing("currentConfig"));
        }
        match &self.annotations.desired {
            Annotation::Is(name) => Ok(name.clone()),
            Annotation::Absent => Err(missing("desiredConfig")),
            Annotation::Unknown => Err(Stop::CannotTell(
                "no source here names the cluster's desired config".to_owned(),
            )),
        }
    }

    /// Requires both configs in the API, even if the record on disk is used later.
    fn objects(&mut self, desired: &str) -> Result<(), Stop> {
        let current = self.annotations.current.value().unwrap_or(OF_CURRENT);
        let mut names = vec![current.to_owned()];
        names.extend((desired != current).then(|| desired.to_owned()));
        for (is_desired, name) in names.into_iter().enumerate() {
            let otherwise = match is_desired {
                0 => self.current_not_found(&name),
                _ => not_found(&name),
            };
            match self.here.api {
                ApiReach::Has(all) if all.contains(&name) => {}
                ApiReach::Has(_) if name != OF_CURRENT => return Err(Stop::Degraded(otherwise)),
                ApiReach::Has(_) | ApiReach::Unknown => self.out.needs.push(StartNeed {
                    machine_config: name,
                    otherwise,
                }),
            }
        }
        Ok(())
    }

    /// Returns the message for a missing object of `currentConfig`. On a first boot the daemon compares the record with it.
    fn current_not_found(&self, current: &str) -> String {
        let unread = |cause: &str| {
            format!(
                "error fetching current config on disk during bootstrap: {cause}, config: <nil>"
            )
        };
        let path = paths::CURRENT_CONFIG;
        let recorded = match self.here.record {
            _ if !self.first_boot() => return not_found(current),
            DaemonRecord::Missing => {
                return unread(&format!("open /{path}: no such file or directory"));
            }
            DaemonRecord::Broken(said) => return unread(said),
            DaemonRecord::Undecodable(why) => return unread(&format!("({why})")),
            DaemonRecord::Refused { name, .. } => name,
            DaemonRecord::Present(config) => &config.name,
        };
        if recorded != current {
            return format!(
                "error current config {recorded} on disk does not match current config on annotation: {current}"
            );
        }
        let target = self.here.pool_target.unwrap_or(OF_POOL);
        format!(
            "bootstrap generated MC {current} and in-cluster generated MC {target} for this node do not match. \
             Please check machine-config-daemon logs or the on disk diff file located at \
             /etc/machine-config-daemon/bootstrapconfigdiff"
        )
    }

    /// Rebases on a first boot if another image is running; otherwise renames the trigger file.
    fn pivots(&mut self) -> Result<bool, Stop> {
        let current = self.api_config(&self.annotations.current.clone());
        let image = self.annotations.current_image.value().map(str::to_owned);
        let target = image.or_else(|| Some(current.config?.os_image_url.clone()));
        match (&self.here.os.booted, target) {
            _ if self.here.os.class == Class::Other => {}
            (Some(booted), Some(target)) if *booted != target => {
                return self.pivot(target).map(|()| true);
            }
            (Some(_), Some(_)) => {}
            (_, target) => {
                let target = target.unwrap_or_else(|| "the image of that config".to_owned());
                self.say(format!(
                    "if {target} is running; otherwise the daemon rebases to it and reboots first"
                ));
            }
        }
        self.rename(paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_KEPT);
        self.out.node_annotations_after = false;
        Ok(false)
    }

    fn pivot(&mut self, target: String) -> Result<(), Stop> {
        if let Some(failure) = &self.here.os.podman {
            return Err(no_podman(&target, failure));
        }
        self.say("the running image is not the first boot's; no file is changed before the rebase");
        self.out.pivot = Some(target);
        self.out.reboot = Some(true);
        Ok(())
    }

    /// Returns the API's object of a name, with its contents if they are available.
    fn api_config(&self, name: &Annotation) -> Subject<'a> {
        let name = name.value().unwrap_or(OF_CURRENT).to_owned();
        let config = self.here.configs.get(&name).map(|known| known.config);
        Subject { name, config }
    }

    /// Returns the config that the disk is compared with: the record if its name differs from the annotation, otherwise the
    /// API's object.
    fn validated(&mut self) -> Result<Subject<'a>, Stop> {
        let current = self.annotations.current.clone();
        if self.first_boot() {
            if !matches!(self.here.record, DaemonRecord::Missing) {
                self.say(format!(
                    "/{} is ignored, as the daemon treats this as a first boot",
                    paths::CURRENT_CONFIG
                ));
            }
            return self.comparable(self.api_config(&current));
        }
        let record = match self.here.record {
            DaemonRecord::Broken(said) => return Err(Stop::Degraded(said.to_owned())),
            DaemonRecord::Undecodable(why) => return Err(undecodable_record(why)),
            DaemonRecord::Refused { name, why } => return self.validated_by_name(name, why),
            DaemonRecord::Missing if current == Annotation::Unknown => {
                return Err(Stop::CannotTell(
                    "the node has no record, and no source here names its current config"
                        .to_owned(),
                ));
            }
            DaemonRecord::Missing => return self.comparable(self.api_config(&current)),
            DaemonRecord::Present(record) => record,
        };
        let same = current.value().is_none_or(|name| name == record.name);
        let by_name = self.here.configs.get(&record.name).filter(|_| same);
        match by_name {
            Some(known) => {
                self.unproven(known, &record.name);
                Ok(subject(known.config))
            }
            None => Ok(subject(record)),
        }
    }

    /// Returns the API's object of the name in a record that is refused here: if it is the one in the annotation, nothing else
    /// of the record is compared.
    fn validated_by_name(&mut self, name: &str, why: &str) -> Result<Subject<'a>, Stop> {
        let current = self.annotations.current.value();
        if name.is_empty() || current.is_some_and(|current| current != name) {
            return Err(refused_record(why));
        }
        if let Some(known) = self.here.configs.get(name) {
            self.unproven(known, name);
        }
        self.comparable(self.api_config(&Annotation::Is(name.to_owned())))
    }

    /// Notes that the API's version of a rendered config may differ if the hash does not match.
    fn unproven(&mut self, known: &KnownConfig<'a>, name: &str) {
        if !known.proven {
            self.say(format!(
                "the disk is compared with the API's {name}, which is not available here; here with the record of that name"
            ));
        }
    }

    fn comparable(&self, subject: Subject<'a>) -> Result<Subject<'a>, Stop> {
        if subject.config.is_some() {
            return Ok(subject);
        }
        Err(Stop::CannotTell(format!(
            "the disk is compared with {}, which is not available here. Get it: {}",
            subject.name,
            mco_rescue("fetch")
        )))
    }

    fn forced(&mut self) {
        let units = if self.here.release.has(Rule::ForceWritesUnits) {
            "all files and units"
        } else {
            "all files, and the units that differ between the configs"
        };
        self.say(format!(
            "/{} exists: nothing is compared, {units} are rewritten",
            paths::FORCE
        ));
    }

    /// Validates the disk. The first message wins: image, kernel arguments, Ignition version, files, units.
    fn validate_disk(&mut self, from: &Subject<'a>) -> Result<(), Stop> {
        let Some(config) = from.config else {
            return Ok(());
        };
        let image = self.layered_image();
        let compared = (self.here.compare)(config, image.as_deref());
        if compared.os_unknown {
            let running = match image.as_deref().unwrap_or(&config.os_image_url) {
                "" => "the system that runs has".to_owned(),
                image => format!("{image} is running, with"),
            };
            self.say(format!(
                "if {running} the kernel arguments of that config; rpm-ostree was not queried here"
            ));
        }
        let Some(inner) = first_message(config, &compared.drifts, self.here.release) else {
            return Ok(());
        };
        let cause = compared.root_cause.map(|line| {
            let line = line.trim_start_matches("error:").trim().to_owned();
            format!("; possible root cause: error: {line}")
        });
        Err(Stop::Degraded(format!(
            "{}{}",
            verdict_sentence(&from.name, image.as_deref(), &inner),
            cause.unwrap_or_default(),
        )))
    }

    /// Returns the layered image: from the disk if there is a record, otherwise from the annotation.
    fn layered_image(&self) -> Option<String> {
        let image = match (self.first_boot(), self.here.record) {
            (false, DaemonRecord::Present(_)) => self.here.image,
            _ => self.annotations.current_image.value(),
        };
        image.filter(|image| !image.is_empty()).map(str::to_owned)
    }

    /// Sets the record that the daemon writes on a first boot.
    fn store_record(&mut self, from: &Subject<'a>) {
        if self.first_boot() {
            self.out.record_after = Some(from.name.clone());
        }
    }

    fn same_image(&mut self) -> bool {
        let have = self.layered_image().unwrap_or_default();
        match &self.annotations.desired_image {
            Annotation::Is(wanted) => have == *wanted,
            Annotation::Absent => have.is_empty(),
            Annotation::Unknown => {
                if !have.is_empty() {
                    self.say(format!("if the Node's annotation desiredImage is {have}"));
                }
                true
            }
        }
    }

    /// Checks the extension packages, as the last check.
    fn check_packages(&mut self, at: &Subject<'a>) -> Result<(), Stop> {
        let (Some(config), Class::EnterpriseCoreos) = (at.config, self.here.os.class) else {
            return Ok(());
        };
        if config.extensions.is_empty() || !self.here.release.has(Rule::Packages) {
            return Ok(());
        }
        let Some(installed) = &self.here.os.packages else {
            self.say(format!(
                "if the packages of its extensions are installed: {}",
                config.extensions.join(", ")
            ));
            return Ok(());
        };
        let failed = |name: &String| incomplete(name, installed);
        match config.extensions.iter().find_map(failed) {
            Some(said) => Err(Stop::Degraded(said)),
            None => Ok(()),
        }
    }

    /// Reports problems of the next update.
    fn later_steps(&mut self, at: &Subject<'a>) {
        if let DaemonRecord::Present(record) = self.here.record
            && record.emptied
            && !self.first_boot()
            && at.name == record.name
        {
            self.say(
                "the record has no Ignition part: the next update treats every file as new, and removes no stale one",
            );
        }
        if !self.here.triggers.kubeconfig {
            self.say(format!(
                "/{} is missing: the next update fails without it",
                paths::KUBECONFIG
            ));
        }
    }

    /// Predicts an update from the config on disk.
    fn start_update(&mut self, from: &Subject<'a>, desired: &str) -> Result<State, Stop> {
        let to = self.api_config(&Annotation::Is(desired.to_owned()));
        let (drain, reboot) = self.takes(from, &to)?;
        self.out.update = Some(StartUpdate {
            from: from.name.clone(),
            to: desired.to_owned(),
        });
        self.why(from, desired);
        self.out.force_file_after = false;
        self.out.drain = if self.here.single_replica {
            Some(false)
        } else {
            drain
        };
        self.on_the_way(from, &to)?;
        self.out.reboot = reboot;
        self.out.record_after = Some(desired.to_owned());
        Ok(match reboot {
            Some(false) => State::Done,
            Some(true) | None => State::Working,
        })
    }

    /// Reports a failure in the daemon's order: files and units, the mode of the kubeconfig, the operating system.
    fn on_the_way(&mut self, from: &Subject<'a>, to: &Subject<'a>) -> Result<(), Stop> {
        if let Some(said) = to.config.and_then(undecodable_message) {
            return Err(Stop::Degraded(said));
        }
        match (self.here.fails)(&to.name) {
            Some(Failure::Says(said)) => return Err(Stop::Degraded(said)),
            Some(Failure::Over(why)) => return Err(Stop::Fails(why)),
            None => {}
        }
        let brings = |subject: &Subject<'a>| subject.config.is_some_and(brings_kubeconfig);
        // An update that drops it removes it as a stale file before the daemon checks it.
        let drops = to.config.is_some() && brings(from);
        let is_there = self.here.triggers.kubeconfig && !drops;
        if !is_there && !brings(to) {
            let path = paths::KUBECONFIG;
            self.warn_of_units(from, to);
            return Err(Stop::Degraded(format!(
                "cannot stat /{path}: stat /{path}: no such file or directory"
            )));
        }
        match (from.config, to.config, &self.here.os.podman) {
            (Some(old), Some(new), Some(failure)) if self.asks_podman(old, new) => {
                self.warn_of_units(from, to);
                Err(no_podman(&new.os_image_url, failure))
            }
            _ => Ok(()),
        }
    }

    /// Warns about units that a failed update leaves changed, under a release that does not revert them.
    fn warn_of_units(&mut self, from: &Subject<'a>, to: &Subject<'a>) {
        let (Some(old), Some(new)) = (from.config, to.config) else {
            return;
        };
        let new = &new.ignition.systemd.units;
        let is_changed = |old: &&Unit| {
            let same_name = |new: &&Unit| new.name == old.name;
            new.iter().find(same_name).is_some_and(|new| *new != **old)
        };
        let changed = old.ignition.systemd.units.iter().filter(is_changed);
        let changed: Vec<&str> = changed.map(|unit| unit.name.as_str()).collect();
        if !changed.is_empty() && !self.here.release.has(Rule::UnitsRolledBack) {
            self.say(format!(
                "its rollback leaves changed units as the update has written them: {}; later releases take them back",
                changed.join(", ")
            ));
        }
    }

    /// Returns true if the image is the first change of the operating system: packages and kernels begin with a pull.
    fn asks_podman(&self, from: &MachineConfig, to: &MachineConfig) -> bool {
        let plain = |config: &MachineConfig| {
            config.extensions.is_empty() && config.kernel_type == KernelType::Default
        };
        let os = &self.here.os;
        from.os_image_url != to.os_image_url
            && os.class != Class::Other
            && os.booted.as_ref() != Some(&to.os_image_url)
            && plain(from)
            && plain(to)
    }

    /// Returns whether the update drains and reboots, if both configs are available.
    fn takes(
        &mut self,
        from: &Subject<'a>,
        to: &Subject<'a>,
    ) -> Result<(Option<bool>, Option<bool>), Stop> {
        let (Some(old), Some(new)) = (from.config, to.config) else {
            let missing = if to.config.is_none() { to } else { from };
            let words = format!(
                "drain and reboot are unknown: {} is not available here",
                missing.name
            );
            self.say(words);
            // The force file requests both for every config.
            let forced = self.here.triggers.force.then_some(true);
            return Ok((forced, forced));
        };
        let allowed = self.here.overrides.map_or(&[][..], |known| &known.storage);
        let forced = self.here.triggers.force;
        let takes = decide_allowing(old, new, self.here.policies, allowed, forced);
        let refused = |reason: &str| {
            Stop::Unreconcilable(format!(
                "can't reconcile config {} with {}: {reason}",
                from.name, to.name
            ))
        };
        if let Some(refusal) = &takes.refusal {
            if let (Some(name), None) = (refusal.lifted_by, self.here.overrides) {
                self.say(format!(
                    "unless {name} is in spec.irreconcilableValidationOverrides.storage of the cluster's \
                     MachineConfiguration, which is unknown here"
                ));
            }
            return Err(refused(&refusal.sentence));
        }
        if self.here.fips.is_some_and(|fips| fips != new.fips) {
            return Err(refused(
                "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
            ));
        }
        if takes.diff.os_update && !self.here.triggers.force {
            self.say(format!(
                "it stages {}, which it has to pull",
                new.os_image_url
            ));
            let extensions = &new.extensions_image;
            let is_needed = !new.extensions.is_empty() || new.kernel_type != KernelType::Default;
            let pulls = is_needed || !self.here.release.has(Rule::ExtensionsWhenNeeded);
            if pulls && !extensions.is_empty() && self.here.os.class == Class::EnterpriseCoreos {
                self.say(format!(
                    "it also pulls the image of extensions, {extensions}"
                ));
            }
        }
        if !self.here.policies_known && takes.diff.reboot_parts().is_empty() {
            self.say("by the default disruption policies, as the cluster's are unknown here");
        }
        // A change to or from a layered image is an update of the operating system too.
        let image = !self.same_image();
        Ok((Some(image || takes.drain), Some(image || takes.reboots())))
    }

    /// Adds the reason for an update to the current config.
    fn why(&mut self, from: &Subject<'a>, desired: &str) {
        if from.name == desired && self.here.triggers.force {
            self.say("the force file requests a complete rewrite");
        } else if from.name == desired {
            self.say("the Node's annotation desiredImage differs from the node's image");
        }
    }
}

fn not_found(name: &str) -> String {
    format!("machineconfig.{}\"{name}\" not found", group())
}

fn no_podman(image: &str, failure: &str) -> Stop {
    Stop::Degraded(format!(
        "error running podman images --format=json --filter reference={image}: {failure}"
    ))
}

fn brings_kubeconfig(config: &MachineConfig) -> bool {
    let mut files = config.ignition.storage.files.iter();
    files.any(|file| file.path.strip_prefix('/') == Some(paths::KUBECONFIG))
}

fn undecodable_record(why: &str) -> Stop {
    let path = paths::CURRENT_CONFIG;
    Stop::Fails(format!("it cannot read /{path}: {why}"))
}

fn refused_record(why: &str) -> Stop {
    Stop::CannotTell(format!(
        "/{} can be read by the daemon, but is refused here: {why}",
        paths::CURRENT_CONFIG
    ))
}

fn subject(config: &MachineConfig) -> Subject<'_> {
    Subject {
        name: config.name.clone(),
        config: Some(config),
    }
}

/// Returns the API group as error messages write it before the name.
fn group() -> &'static str {
    "machineconfiguration.openshift.io "
}

/// The newest version of spec 2 that the daemon supports: 2.2.
const NEWEST_SPEC_2: u64 = 2;

/// Returns the differences with the messages of a release, which has no message about anything it does not check.
pub fn as_seen_by(release: Release, mut drifts: Vec<Drift>) -> Vec<Drift> {
    let is_unseen =
        |drift: &&mut Drift| drift.kind == DriftKind::Enablement && !release.has(Rule::Enablement);
    for drift in drifts.iter_mut().filter(is_unseen) {
        drift.daemon = None;
    }
    drifts
}

/// Returns a release's first message about a config and its differences from the disk: the operating system comes first, then
/// the Ignition version.
pub fn first_message(config: &MachineConfig, drifts: &[Drift], release: Release) -> Option<String> {
    let said = |of_os: bool| {
        let is_seen = |drift: &&Drift| {
            drift.is_of_the_os() == of_os
                && (drift.kind != DriftKind::Enablement || release.has(Rule::Enablement))
        };
        let mut seen = drifts.iter().filter(is_seen);
        seen.find_map(|drift| drift.daemon.clone())
    };
    said(true)
        .or_else(|| too_new(config, release))
        .or_else(|| said(false))
}

/// Returns the message for an Ignition config of a version that the daemon does not support.
fn too_new(config: &MachineConfig, release: Release) -> Option<String> {
    let newest = release.ignition_minor();
    let is_known = match &config.spec2 {
        Some(written) => written.minor <= NEWEST_SPEC_2,
        // Without an Ignition config there is nothing to parse.
        None if config.ignition.ignition.version.is_empty() => true,
        None => config.emptied || config.ignition.minor_version() <= newest,
    };
    if is_known {
        return None;
    }
    let known: Vec<String> = (0..=newest).map(|minor| format!("3.{minor}")).collect();
    Some(format!(
        "failed to parse Ignition for validation: parsing Ignition config failed: unknown version. Supported spec \
         versions: 2.2,{}",
        known.join(",")
    ))
}

/// Returns the message for an extension whose set of packages is incomplete.
fn incomplete(extension: &str, installed: &BTreeSet<String>) -> Option<String> {
    let sets = package_sets(extension);
    let missing = |set: &PackageSet| -> Vec<&str> {
        let absent = |name: &&&str| !installed.contains(**name);
        set.iter().filter(absent).copied().collect()
    };
    let missing: Vec<Vec<&str>> = sets.iter().map(missing).collect();
    if sets.is_empty() || missing.iter().any(Vec::is_empty) {
        return None;
    }
    let list: Vec<String> = missing
        .iter()
        .map(|names| format!("[{}]", names.join(" ")))
        .collect();
    Some(format!(
        "extension package verification failed: extension \"{extension}\" verification failed: no valid package set is \
         fully installed. Tried {} package set(s), missing packages per set: [{}]",
        sets.len(),
        list.join(" ")
    ))
}
