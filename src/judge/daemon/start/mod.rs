//! The daemon's start: how it first examines the node and the API, as a walk over values (docs/develop/agreement.md: Start).
//!
//! Unknown facts are values as well: an annotation without a source is [`Annotation::Unknown`], and an object that the API must
//! have is a [`StartNeed`] with the daemon's message in case it is missing.

mod message;
mod prediction;
mod situation;
mod to_desired;

pub use message::{as_seen_by, first_message};
pub use prediction::{Prediction, Renamed, StartNeed, StartUpdate, State};
pub use situation::{
    Annotation, DaemonRecord, DiskComparison, KnownConfig, OF_CURRENT, OF_POOL, PREFIX, Situation,
    StartAnnotations, StartOs, Triggers,
};

use std::collections::BTreeSet;

use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::MachineConfig;
use crate::judge::drift::verdict_sentence;
use crate::node::command::rpm_ostree::packages::{PackageSet, package_sets};
use crate::node::os_release::Class;

use super::first_boot::FirstBootWork;
use super::release::Rule;

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
        out: initial_prediction(here),
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
fn initial_prediction(here: &Situation<'_>) -> Prediction {
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
        self.require_objects(&desired);
        if self.first_boot() && self.check_image()? {
            return Ok(State::Working);
        }
        let from = self.find_validated()?;
        if self.here.triggers.force {
            self.note_forced();
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
        let from = self.start_config(from);
        self.start_update(&from, &desired)
    }

    /// Returns the config that an update starts from: the API's object is validated if the record has its name, but the update
    /// starts from the record itself.
    fn start_config(&self, from: Subject<'a>) -> Subject<'a> {
        match self.here.record {
            DaemonRecord::Present(record) if !self.first_boot() && record.name == from.name => {
                to_subject(record)
            }
            _ => from,
        }
    }

    fn first_boot(&self) -> bool {
        self.here.initial.is_some()
    }

    /// Adds a reason unless it is already there.
    fn add_reason(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.out.because.contains(&words) {
            self.out.because.push(words);
        }
    }

    fn rename_subject(&mut self, from: &str, to: &str) {
        self.out.renamed.push(Renamed {
            from: format!("/{from}"),
            to: format!("/{to}"),
        });
    }

    /// Reports files that trigger an action.
    fn check_triggers(&mut self) {
        let there = self.here.triggers;
        if there.encapsulated {
            self.rename_subject(paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
            let does = match self.here.first_boot {
                FirstBootWork::Nothing => {
                    ", finds nothing to change, and removes its file".to_owned()
                }
                FirstBootWork::Changes(all) => {
                    let all = all.join(", ");
                    format!(", to apply the content of its file: it changes {all}, and reboots")
                }
                FirstBootWork::Unknown => ", to apply the content of its file".to_owned(),
            };
            self.add_reason(format!(
                "at the next boot the first-boot service runs first{does}"
            ));
        }
        if there.revert {
            self.add_reason(
                "at the next boot the revert service runs first, to apply the content of its file",
            );
        }
        if there.staged {
            self.add_reason("a deployment is staged: the next boot uses it");
        }
        if there.repository {
            self.add_reason(format!(
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
                self.add_reason(format!(
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
        self.annotations.current = Annotation::from_answer(Some(name));
        self.annotations.current_image = Annotation::from_answer(self.here.image);
        self.add_reason("the Node has no annotations: currentConfig comes from the record");
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
    fn require_objects(&mut self, desired: &str) {
        let current = self.annotations.current.value().unwrap_or(OF_CURRENT);
        let mut names = vec![current.to_owned()];
        names.extend((desired != current).then(|| desired.to_owned()));
        for (is_desired, name) in names.into_iter().enumerate() {
            let otherwise = match is_desired {
                0 => self.current_not_found(&name),
                _ => not_found(&name),
            };
            self.out.needs.push(StartNeed {
                machine_config: name,
                otherwise,
            });
        }
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
    fn check_image(&mut self) -> Result<bool, Stop> {
        let current = self.api_config(&self.annotations.current.clone());
        let image = self.annotations.current_image.value().map(str::to_owned);
        let target = image.or_else(|| Some(current.config?.os_image_url.clone()));
        match (&self.here.os.booted, target) {
            _ if self.here.os.class == Class::Other => {}
            (Some(booted), Some(target)) if *booted != target => {
                return self.pivot_to(target).map(|()| true);
            }
            (Some(_), Some(_)) => {}
            (_, target) => {
                let target = target.unwrap_or_else(|| "the image of that config".to_owned());
                self.add_reason(format!(
                    "if {target} is running; otherwise the daemon rebases to it and reboots first"
                ));
            }
        }
        self.rename_subject(paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_KEPT);
        self.out.node_annotations_after = false;
        Ok(false)
    }

    fn pivot_to(&mut self, target: String) -> Result<(), Stop> {
        if let Some(failure) = &self.here.os.podman {
            return Err(no_podman(&target, failure));
        }
        self.add_reason(
            "the running image is not the first boot's; no file is changed before the rebase",
        );
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
    fn find_validated(&mut self) -> Result<Subject<'a>, Stop> {
        let current = self.annotations.current.clone();
        if self.first_boot() {
            if !matches!(self.here.record, DaemonRecord::Missing) {
                self.add_reason(format!(
                    "/{} is ignored, as the daemon treats this as a first boot",
                    paths::CURRENT_CONFIG
                ));
            }
            return self.require_comparable(self.api_config(&current));
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
            DaemonRecord::Missing => return self.require_comparable(self.api_config(&current)),
            DaemonRecord::Present(record) => record,
        };
        let same = current.value().is_none_or(|name| name == record.name);
        let by_name = self.here.configs.get(&record.name).filter(|_| same);
        match by_name {
            Some(known) => {
                self.note_unproven(known, &record.name);
                Ok(to_subject(known.config))
            }
            None => Ok(to_subject(record)),
        }
    }

    /// Returns the API's object of the name in a record that is refused here: if it is the one in the annotation, nothing else
    /// of the record is compared.
    fn validated_by_name(&mut self, name: &str, why: &Reason) -> Result<Subject<'a>, Stop> {
        let current = self.annotations.current.value();
        if name.is_empty() || current.is_some_and(|current| current != name) {
            return Err(refused_record(why));
        }
        if let Some(known) = self.here.configs.get(name) {
            self.note_unproven(known, name);
        }
        self.require_comparable(self.api_config(&Annotation::Is(name.to_owned())))
    }

    /// Notes that the API's version of a rendered config may differ if the hash does not match.
    fn note_unproven(&mut self, known: &KnownConfig<'a>, name: &str) {
        if !known.proven {
            self.add_reason(format!(
                "the disk is compared with the API's {name}, which is not available here; here with the record of that name"
            ));
        }
    }

    fn require_comparable(&self, subject: Subject<'a>) -> Result<Subject<'a>, Stop> {
        if subject.config.is_some() {
            return Ok(subject);
        }
        Err(Stop::CannotTell(format!(
            "the disk is compared with {}, which is not available here. Get it: {}",
            subject.name,
            mco_rescue("fetch")
        )))
    }

    fn note_forced(&mut self) {
        let units = if self.here.release.has_rule(Rule::ForceWritesUnits) {
            "all files and units"
        } else {
            "all files, and the units that differ between the configs"
        };
        self.add_reason(format!(
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
            self.add_reason(format!(
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
                    self.add_reason(format!("if the Node's annotation desiredImage is {have}"));
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
        if config.extensions.is_empty() || !self.here.release.has_rule(Rule::Packages) {
            return Ok(());
        }
        let Some(installed) = &self.here.os.packages else {
            self.add_reason(format!(
                "if the packages of its extensions are installed: {}",
                config.extensions.join(", ")
            ));
            return Ok(());
        };
        let failed = |name: &String| incomplete_message(name, installed);
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
            self.add_reason(
                "the record has no Ignition part: the next update treats every file as new, and removes no stale one",
            );
        }
        if !self.here.triggers.kubeconfig {
            self.add_reason(format!(
                "/{} is missing: the next update fails without it",
                paths::KUBECONFIG
            ));
        }
    }
}

fn not_found(name: &str) -> String {
    format!("machineconfig.{}\"{name}\" not found", api_group())
}

fn brings_kubeconfig(config: &MachineConfig) -> bool {
    let mut files = config.ignition.storage.files.iter();
    files.any(|file| file.path.strip_prefix('/') == Some(paths::KUBECONFIG))
}

fn undecodable_record(why: &Reason) -> Stop {
    let path = paths::CURRENT_CONFIG;
    Stop::Fails(format!("it cannot read /{path}: {why}"))
}

fn refused_record(why: &Reason) -> Stop {
    Stop::CannotTell(format!(
        "/{} can be read by the daemon, but is refused here: {why}",
        paths::CURRENT_CONFIG
    ))
}

fn to_subject(config: &MachineConfig) -> Subject<'_> {
    Subject {
        name: config.name.clone(),
        config: Some(config),
    }
}

/// Returns the message for an extension whose set of packages is incomplete.
fn incomplete_message(extension: &str, installed: &BTreeSet<String>) -> Option<String> {
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

/// Returns the API group as error messages write it before the name.
fn api_group() -> &'static str {
    "machineconfiguration.openshift.io "
}

fn no_podman(image: &str, failure: &str) -> Stop {
    Stop::Degraded(format!(
        "error running podman images --format=json --filter reference={image}: {failure}"
    ))
}
