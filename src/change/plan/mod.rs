//! Plans: drift turned into ordered steps. Values in, values out.
//!
//! [`plan_changes`] decides the order of the steps: accounts and users, directories, files, links, units with their drop-ins and
//! enablement, files that the config no longer has, then the daemon's records. [`plan_whole()`] adds all blockers for this node at
//! this time; every command creates its plan there. The transaction keeps the order of the steps.

mod accounts;
pub mod activation;
mod after;
mod as_drift;
mod at_work;
mod bare;
mod capabilities;
mod carried_out;
mod claims;
mod crossing;
mod emptied;
mod files;
pub mod fit;
mod fix;
mod guard;
mod held;
mod image;
mod interest;
mod key;
mod labels;
mod lasting;
mod login;
mod machine;
mod neighbours;
mod network;
mod nodes;
mod os;
mod os_plan;
mod packages;
mod pull_files;
mod quorum;
mod records;
mod removals;
mod rollback;
mod second_names;
mod selinux;
mod services;
mod space;
pub mod staged;
mod trial;
mod units;
mod users;
mod whole;

#[cfg(test)]
pub(crate) use os::tests as os_tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::secrets::shown_arguments;
use crate::config::document::{
    Contents, Desired, MachineConfig, Text, TransitionRefusal, find_refusals, override_of,
    unconditional_refusals,
};
use crate::host::root::{ResolveError, RootPath};
use crate::judge::accounts::Prepared;
use crate::judge::crossing::CrossingFinding;
use crate::judge::daemon::policies::Overrides;
use crate::judge::drift::enablement::UnchangedUnits;
use crate::judge::drift::{SETGID, kind_noun};
use crate::node::accounts::find_no_hash;
use crate::node::command::job::Job;
use crate::node::{Baseline, NodeState, Records};

pub use after::{After, Rules};
pub use as_drift::{account_drift, blocked_drifts, step_drifts};
pub use capabilities::{CapabilityNeed, list_needs};
pub use carried_out::{after_steps, carried_out, is_carried_out};
pub use crossing::AcceptedRisks;
use fix::plan_fix;
pub use fix::{FixChange, FixInputs};
pub use guard::Allowed;
use guard::guard_plan;
pub use held::Held;
pub use image::ImageEvidence;
pub use interest::paths_of_interest;
pub use key::Addition;
use key::one_more_key;
pub use labels::restorecon_command;
pub use login::{Logins, find_leftovers};
pub use machine::{no_system, of_composefs, wrong_machine};
pub use neighbours::describe_neighbours;
pub use os_plan::{OsPlan, OsStep, PackageChange, PackageRepository};
pub use quorum::{Quorum, judge_quorum};
use removals::find_removals;
use rollback::plan_rollback;
pub use rollback::{ChangedSince, FinishedRun, RecordBefore, RollbackInputs};
pub use trial::{PlannedTrial, TrialFindings, TrialReboot};
pub use whole::{Findings, LiveEvidence, PlanRequest, PlanScope, Task, plan_whole};

/// One change of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Creates a directory.
    MakeDirectory {
        /// Its path.
        path: RootPath,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Removes a directory if it is empty.
    RemoveDirectory {
        /// Its path.
        path: RootPath,
        /// Permission bits, to restore it.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Creates a file or link, or replaces the object at its path.
    Put {
        /// Its path.
        path: RootPath,
        /// The new object.
        new: Object,
        /// The current object.
        old: Option<Object>,
    },
    /// Removes a file or link.
    Remove {
        /// Its path.
        path: RootPath,
        /// The current object.
        old: Object,
    },
    /// Changes mode and owner of an object.
    Metadata {
        /// Its path.
        path: RootPath,
        /// The new attributes.
        new: Attributes,
        /// The current attributes.
        old: Attributes,
    },
}

/// Mode and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Object> for Attributes {
    fn from(object: &Object) -> Self {
        Self {
            mode: object.mode,
            uid: object.uid,
            gid: object.gid,
        }
    }
}

impl Step {
    /// The path that changes.
    pub fn path(&self) -> &RootPath {
        match self {
            Self::MakeDirectory { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::Put { path, .. }
            | Self::Remove { path, .. }
            | Self::Metadata { path, .. } => path,
        }
    }

    /// Returns the size of the old contents that reverting the step restores, in bytes.
    pub fn old_size(&self) -> u64 {
        match self {
            Self::Put { old, .. } => old.as_ref().map_or(0, Object::size),
            Self::Remove { old, .. } => old.size(),
            Self::MakeDirectory { .. } | Self::RemoveDirectory { .. } | Self::Metadata { .. } => 0,
        }
    }

    /// Returns true if a directory with all its content is exchanged with something else.
    pub fn exchanges(&self) -> bool {
        match self {
            Self::Put {
                new,
                old: Some(old),
                ..
            } => new.is_directory() != old.is_directory(),
            _ => false,
        }
    }

    /// Returns a symbol for lists: `+` new, `~` changed, `-` removed.
    pub fn sign(&self) -> char {
        match self {
            Self::MakeDirectory { .. } | Self::Put { old: None, .. } => '+',
            Self::Put { .. } | Self::Metadata { .. } => '~',
            Self::Remove { .. } | Self::RemoveDirectory { .. } => '-',
        }
    }
}

/// The source of a new object's bytes. `Debug` does not show them.
#[derive(Clone)]
pub enum Payload {
    /// None: for directories, links, removals.
    None,
    /// Bytes that the plan created.
    Bytes(Vec<u8>),
    /// The document itself, as received.
    Record(Text),
    /// Contents in the document, decoded when they are written.
    Contents(Contents),
    /// A copy of another file in the root, including its times.
    CopyOf(RootPath),
    /// A copy of another directory in the root with all its content.
    TreeOf(RootPath),
    /// A hard link to another path, or to what the same plan writes there.
    LinkTo(RootPath),
    /// A hard link to the current object at another path, or a copy if the file system has no hard links.
    NameOf(RootPath),
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => write!(f, "None"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Record(text) => write!(f, "{text:?}"),
            Self::Contents(contents) => write!(f, "{contents:?}"),
            Self::CopyOf(path) => write!(f, "CopyOf({path})"),
            Self::TreeOf(path) => write!(f, "TreeOf({path})"),
            Self::LinkTo(path) => write!(f, "LinkTo({path})"),
            Self::NameOf(path) => write!(f, "NameOf({path})"),
        }
    }
}

/// The part of a config that a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Account files, homes and mailboxes of a bare Ignition config.
    Accounts,
    /// Keys and passwords.
    Users,
    /// Directories and links.
    Nodes,
    /// Files.
    Files,
    /// Files that the config no longer has.
    Stale,
    /// Unit files, drop-ins and masks.
    Units,
    /// Enablement links and presets.
    Enablement,
    /// The daemon's originals and stamps.
    Originals,
    /// The daemon's records, written last.
    Records,
}

/// A step with everything needed to carry it out and to explain it.
#[derive(Debug, Clone)]
pub struct PlannedStep {
    /// The change.
    pub step: Step,
    /// The bytes.
    pub payload: Payload,
    /// Its part of the config.
    pub section: Section,
    /// Why it is needed.
    pub why: Cow<'static, str>,
    /// The SELinux label of the new object. `None` means that of the file it is a copy of, else of the object it replaces, else
    /// the kernel's default.
    pub label: Option<String>,
}

/// What the user explicitly allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Sections that are never applied are ignored.
    pub ignore_unsupported: bool,
    /// Only files, units and users are applied; what the OS lacks is reported.
    pub files_only: bool,
    /// The last key and password of `core` may be removed.
    pub allow_lockout: bool,
    /// Whole account files may be replaced.
    pub allow_account_files: bool,
    /// The daemon should do the rest: the record is left unchanged, and the force file is created.
    pub request_force: bool,
}

/// What happens to the daemon's force file once everything else is in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Force {
    /// It is left unchanged.
    #[default]
    Left,
    /// It is created.
    Requested,
    /// It is removed, because nothing is left for the daemon to do.
    Withdrawn,
}

/// The changes to a node, and the reasons against them.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Reasons why the plan is not carried out.
    pub blockers: Vec<Notice>,
    /// Notices about unexpected results.
    pub notices: Vec<Notice>,
    /// What is staged for the next boot, before the other steps.
    pub os: OsPlan,
    /// The steps, in order.
    pub steps: Vec<PlannedStep>,
    /// Flags that are cleared for the renames, and set again.
    pub held: Vec<Held>,
    /// The daemon's cgroups, which are frozen while names change.
    pub freeze: Vec<String>,
    /// What follows the files; only on a running node, and not if the run waits for the next boot anyway.
    pub after: Option<After>,
    /// What happens to the daemon's force file.
    pub force: Force,
    /// The units that are installed before the first step, in words.
    pub installs: Option<Notice>,
    /// The jobs of a trial, after which the services use the new files.
    pub trial_jobs: Vec<Job>,
}

impl Plan {
    /// Returns all jobs: first those of the trial, then the others.
    pub fn all_jobs(&self, others: Vec<Job>) -> Vec<Job> {
        let others = others.into_iter();
        let others = others.filter(|job| !self.trial_jobs.contains(job));
        self.trial_jobs.iter().cloned().chain(others).collect()
    }

    /// Returns all notices to show before the plan is carried out.
    pub fn notices_before(&self) -> Vec<Notice> {
        self.notices.iter().chain(&self.installs).cloned().collect()
    }

    /// Returns true if only a reboot completes it.
    pub fn reboots(&self) -> bool {
        self.os.needs_reboot() || self.after.as_ref().is_some_and(After::reboots)
    }

    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.os.steps.is_empty()
    }

    /// Returns true if the plan writes a path.
    pub fn puts(&self, path: &'static str) -> bool {
        let mut steps = self.steps.iter();
        steps.any(
            |planned| matches!(&planned.step, Step::Put { path: at, .. } if at.relative() == path),
        )
    }

    /// Returns true if the plan removes a path.
    pub fn removes(&self, path: &'static str) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|planned| {
            matches!(&planned.step, Step::Remove { path: at, .. } if at.relative() == path)
        })
    }

    /// Returns the bytes to be written to a path, if they are part of the plan.
    pub fn text(&self, path: &RootPath) -> Option<Vec<u8>> {
        let planned = self.steps.iter().find(|one| one.step.path() == path)?;
        match &planned.payload {
            Payload::Bytes(bytes) => Some(bytes.clone()),
            Payload::Record(text) => Some(text.as_bytes().to_vec()),
            Payload::Contents(contents) => contents.bytes().ok(),
            Payload::None
            | Payload::CopyOf(_)
            | Payload::TreeOf(_)
            | Payload::LinkTo(_)
            | Payload::NameOf(_) => None,
        }
    }
}

/// Everything from which a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct PlanInputs<'a> {
    /// The config that is wanted.
    pub config: &'a MachineConfig,
    /// Its desired state of the disk.
    pub desired: &'a Desired,
    /// The config that the disk is assumed to be in.
    pub baseline: Baseline<'a>,
    /// That config's desired state of the disk.
    pub old: Option<&'a Desired>,
    /// The daemon's records.
    pub records: &'a Records,
    /// The node. Its accounts are those after the run.
    pub node: &'a NodeState,
    /// The changes of accounts; only for a bare config with accounts.
    pub accounts: Option<&'a Prepared>,
    /// The changes of storage sections that the cluster accepts, if known.
    pub overrides: Option<&'a Overrides>,
    /// The findings about a different image; empty if the image does not change.
    pub crossing: &'a [CrossingFinding],
    /// A simulation of unchanged units, shared with other users.
    pub unchanged: Option<&'a UnchangedUnits>,
}

/// Returns the changes that a config needs on a node: the plan without any check of the current situation.
pub fn plan_changes(inputs: PlanInputs<'_>, options: PlanOptions) -> Plan {
    let mut builder = Builder::new(inputs, options);
    builder.check_document();
    builder.check_claims();
    if inputs.desired.bare {
        builder.note_bare();
        builder.plan_accounts();
    } else {
        builder.check_transition();
        builder.empty_sources();
        builder.plan_users();
    }
    builder.plan_directories();
    builder.plan_files();
    builder.plan_additions();
    builder.plan_links();
    builder.plan_units();
    builder.cure_files();
    if !inputs.desired.bare {
        builder.plan_stale();
        builder.emptied_directories();
        builder.plan_records();
    }
    builder.paths_below_files();
    builder.second_names();
    builder.check_ownership();
    builder.check_image();
    builder.plan_labels();
    builder.check_space();
    builder.plan
}

/// The field in which a cluster lists accepted changes of storage sections.
const OVERRIDES_FIELD: &str = "spec.irreconcilableValidationOverrides.storage";

/// What happens to an object of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InTheWay {
    /// It is left and reported: the daemon fails on it too.
    Stays,
    /// It is replaced: the document says `overwrite`.
    Goes,
}

/// A plan in the making.
struct Builder<'a> {
    inputs: PlanInputs<'a>,
    options: PlanOptions,
    plan: Plan,
    /// Directories that the plan creates, by real location.
    made: BTreeSet<RootPath>,
    /// Paths that the plan changes, by real location.
    touched: BTreeSet<RootPath>,
}

impl<'a> Builder<'a> {
    fn new(inputs: PlanInputs<'a>, options: PlanOptions) -> Self {
        Self {
            inputs,
            options,
            plan: Plan::default(),
            made: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    fn block(&mut self, subject: impl Into<String>, message: impl Into<String>) {
        let notice = Notice {
            subject: subject.into(),
            message: message.into(),
        };
        if !self.plan.blockers.contains(&notice) {
            self.plan.blockers.push(notice);
        }
    }

    fn notice(&mut self, subject: impl Into<String>, message: impl Into<String>) {
        self.plan.notices.push(Notice {
            subject: subject.into(),
            message: message.into(),
        });
    }

    fn node(&self) -> &'a NodeState {
        self.inputs.node
    }

    /// Checks warnings and unsupported parts of the document.
    fn check_document(&mut self) {
        for warning in &self.inputs.config.warnings {
            self.notice(&warning.path, &warning.message);
        }
        self.check_passwords();
        // An append is among the transitions that the daemon refuses, with the daemon's message.
        let parts = self
            .inputs
            .desired
            .unsupported
            .iter()
            .filter(|part| !part.path.ends_with(".append"));
        for part in parts {
            let unchanged = self
                .inputs
                .old
                .is_some_and(|old| old.unsupported.contains(part));
            if part.skippable && unchanged {
                self.notice(
                    &part.path,
                    format!("{}; as before, left alone", part.message),
                );
            } else if let Some(name) = self.passing(&part.path) {
                self.passed(&part.path, name, &part.message);
            } else if part.skippable && self.options.ignore_unsupported {
                self.notice(
                    &part.path,
                    format!("{}; passed over as asked", part.message),
                );
            } else if part.skippable {
                self.block(
                    &part.path,
                    format!(
                        "{}. The rest can be applied with --ignore-unsupported",
                        part.message
                    ),
                );
            } else {
                self.block(&part.path, &part.message);
            }
        }
    }

    /// Adds notices about password fields with which no login works. They are written unchanged, as by the daemon.
    fn check_passwords(&mut self) {
        let users = &self.inputs.config.ignition.passwd.users;
        for (index, user) in users.iter().enumerate() {
            let why = user.password_hash.as_deref().and_then(find_no_hash);
            if let Some(why) = why {
                let prefix = if self.inputs.desired.bare {
                    ""
                } else {
                    "spec.config."
                };
                let at = format!("{prefix}passwd.users[{index}].passwordHash");
                let message = format!(
                    "no password of {} works: the field is not a crypt(5) hash; {why}. Make one with `mkpasswd -m sha-512`, and \
                     write it in single quotes",
                    user.name
                );
                self.notice(self.inputs.config.original_place(at), message);
            }
        }
    }

    /// Checks whether the daemon would accept this transition, and whether the OS has to change.
    fn check_transition(&mut self) {
        match self.inputs.baseline {
            Baseline::Known(old) => {
                for refusal in find_refusals(old, self.inputs.config) {
                    match self.passing(&refusal.path) {
                        Some(name) => self.passed(&refusal.path, name, &refusal.reason),
                        None => self.refusal(refusal),
                    }
                }
            }
            Baseline::Unknown(why) => {
                self.notice(
                    "currentconfig",
                    format!("{why}: nothing is removed as stale"),
                );
                for refusal in unconditional_refusals(self.inputs.config) {
                    self.refusal(refusal);
                }
            }
        }
        self.operating_system();
        self.check_fips();
    }

    /// Checks FIPS mode. The kernel is in FIPS mode from its start or never, and the daemon cannot switch it.
    fn check_fips(&mut self) {
        let wanted = self.inputs.config.fips;
        let host = &self.node().host;
        if host.fips.is_none_or(|fips| fips == wanted) {
            return;
        }
        let message = if !host.in_initramfs {
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster. \
             FIPS mode is set at installation only"
        } else if wanted {
            "is true, and the kernel was booted without FIPS mode: what is made in this boot is not made by its rules. Boot \
             with fips=1 on the kernel command line (and boot=UUID=... of a /boot of its own), or install with it"
        } else {
            "is false, and the kernel was booted with fips=1: the daemon would refuse the difference. Boot without it, or \
             give the config of a cluster that was installed in FIPS mode"
        };
        self.block("spec.fips", message);
    }

    /// Returns the override with which the cluster accepts a change of this section.
    fn passing(&self, path: &str) -> Option<&'static str> {
        let given = &self.inputs.overrides?.storage;
        override_of(path).filter(|name| given.iter().any(|given| given == name))
    }

    fn passed(&mut self, path: &str, name: &str, what: &str) {
        let said = self.plan.notices.iter().any(|one| one.subject == path);
        if !said {
            let message = format!(
                "{what}; the cluster lets that pass ({name} in {OVERRIDES_FIELD}), and nothing of it is applied to this \
                 node"
            );
            self.notice(path, message);
        }
    }

    /// Explains why a change of a section is not accepted, and which override would accept it.
    fn override_hint(&self, refusal: &TransitionRefusal) -> String {
        let Some(name) = refusal.lifted_by else {
            return String::new();
        };
        match self.inputs.overrides {
            Some(_) => format!(
                " The cluster's MachineConfiguration has no {name} in {OVERRIDES_FIELD}, which would let it pass."
            ),
            None => format!(
                " It would take the step where the cluster's MachineConfiguration has {name} in {OVERRIDES_FIELD}, which \
                 is not known here: give that object with --policy FILE."
            ),
        }
    }

    fn refusal(&mut self, refusal: TransitionRefusal) {
        if refusal.harmless && self.options.ignore_unsupported {
            self.notice(
                refusal.path,
                format!(
                    "the daemon would refuse this step: {}; passed over as asked",
                    refusal.sentence
                ),
            );
        } else {
            let mut hint = self.override_hint(&refusal);
            if refusal.harmless {
                hint.push_str(" Use --ignore-unsupported to apply the config all the same");
            }
            self.block(
                refusal.path,
                format!(
                    "the daemon would refuse this step: {}.{hint}",
                    refusal.sentence
                ),
            );
        }
    }

    fn os_changes(&mut self, old: &MachineConfig) {
        let new = self.inputs.config;
        let table = [
            (
                "spec.osImageURL",
                old.os_image_url != new.os_image_url,
                format!("{} -> {}", old.os_image_url, new.os_image_url),
            ),
            (
                "spec.kernelArguments",
                old.kernel_arguments != new.kernel_arguments,
                format!(
                    "{:?} -> {:?}",
                    shown_arguments(&old.kernel_arguments),
                    shown_arguments(&new.kernel_arguments)
                ),
            ),
            (
                "spec.extensions",
                old.extensions != new.extensions,
                format!("{:?} -> {:?}", old.extensions, new.extensions),
            ),
            (
                "spec.kernelType",
                old.kernel_type != new.kernel_type,
                format!(
                    "{} -> {}",
                    old.kernel_type.as_str(),
                    new.kernel_type.as_str()
                ),
            ),
        ];
        for (path, _, change) in table.into_iter().filter(|(_, changed, _)| *changed) {
            if self.options.files_only {
                self.notice(path, format!("{change}: not applied (--files-only); the daemon will report it until it is"));
            } else {
                let message = format!(
                    "{change}: the operating system is not changed here. Use --files-only for the rest"
                );
                self.block(path, message);
            }
        }
    }

    /// Plans an object at a path, unless it already exists.
    fn put(
        &mut self,
        path: &RootPath,
        new: Object,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        self.put_over(path, new, payload, section, why, InTheWay::Stays);
    }

    /// Plans an object at a path; an object in the way may be replaced.
    fn put_over(
        &mut self,
        path: &RootPath,
        new: Object,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
        in_the_way: InTheWay,
    ) {
        if self.is_made(path) && !new.is_directory() {
            let message = "other parts of the config lie below it, so it cannot be a file or link. Take one of them out";
            return self.block(path.to_string(), message);
        }
        let old = self.node().object(path);
        if old.is_some_and(|old| old.is_like(&new)) || !self.may_touch(path, old, in_the_way) {
            return;
        }
        self.make_parents(path);
        let step = Step::Put {
            path: path.clone(),
            new,
            old: old.cloned(),
        };
        self.push(step, payload, section, why);
    }

    /// Plans the removal of the object at a path, if any.
    fn remove(&mut self, path: &RootPath, section: Section, why: impl Into<Cow<'static, str>>) {
        let Some(old) = self.node().object(path) else {
            return;
        };
        if self.may_touch(path, Some(old), InTheWay::Stays) {
            let step = Step::Remove {
                path: path.clone(),
                old: old.clone(),
            };
            self.push(step, Payload::None, section, why);
        }
    }

    fn push(
        &mut self,
        step: Step,
        payload: Payload,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let real = self.real(step.path());
        self.touched.insert(real);
        let label = self.plan_label(&step, &payload, section);
        self.plan.steps.push(PlannedStep {
            step,
            payload,
            section,
            why: why.into(),
            label,
        });
    }

    /// Plans another mode or owner for the object at a path.
    fn attributes(
        &mut self,
        path: &RootPath,
        old: Attributes,
        new: Attributes,
        section: Section,
        why: impl Into<Cow<'static, str>>,
    ) {
        let path = path.clone();
        let step = Step::Metadata { path, new, old };
        self.push(step, Payload::None, section, why);
    }

    /// Returns true if a path may be planned: only once, and never over a directory or something that cannot be read.
    fn may_touch(&mut self, path: &RootPath, old: Option<&Object>, in_the_way: InTheWay) -> bool {
        if self.is_touched(path) {
            return false;
        }
        // A directory of the same plan may replace the object in the way.
        let made_above = path.ancestors().skip(1).any(|above| self.is_made(&above));
        if let Some(errno) = self.node().obstructed.get(path).filter(|_| !made_above) {
            let cause = self.obstacle_above(path, errno);
            self.block(
                path.to_string(),
                format!("cannot be reached: {cause}. Put the directories above it right first"),
            );
            return false;
        }
        let kind = match old.map(|old| &old.kind) {
            Some(kind @ (ObjectKind::Directory | ObjectKind::Special { .. })) => kind,
            _ => return true,
        };
        if in_the_way == InTheWay::Goes {
            if *kind == ObjectKind::Directory {
                let message = "the directory goes with everything in it, as overwrite is set";
                self.notice(path.to_string(), message);
            }
            return true;
        }
        let message = format!(
            "{} is where a file should be. Move it away, then run again",
            kind_noun(kind)
        );
        self.block(path.to_string(), message);
        false
    }

    /// Returns the reason why a path cannot be reached, with the first of its parents that is not a directory.
    fn obstacle_above(&self, path: &RootPath, cause: &ResolveError) -> String {
        let is_seen = |above: &RootPath| self.node().directories.contains_key(above);
        let unseen = path.ancestors().skip(1).take_while(|above| !is_seen(above));
        match (unseen.last(), cause) {
            (Some(at), ResolveError::System(Errno::ENOTDIR)) => format!("{at} is not a directory"),
            (Some(at), ResolveError::System(_)) => format!("{at}: {cause}"),
            _ => cause.to_string(),
        }
    }

    /// Refuses a config that puts one thing below another that is not a directory, which is impossible. Also refuses changes
    /// below a link that is being replaced, because they cannot be judged.
    fn paths_below_files(&mut self) {
        let leads = |path: &RootPath| self.node().directories.contains_key(path);
        let mut files = BTreeSet::new();
        // Links that currently lead to directories, each with a verb for what replaces them.
        let mut links = BTreeMap::new();
        for planned in &self.plan.steps {
            match &planned.step {
                Step::Put { path, new, old } => {
                    if !new.is_directory() {
                        files.insert(self.real(path));
                    }
                    if old.as_ref().is_some_and(|old| !old.is_directory()) && leads(path) {
                        links.insert(path.clone(), given_way_to(&new.kind));
                    }
                }
                Step::Remove { path, old } if !old.is_directory() && leads(path) => {
                    links.insert(path.clone(), "removes");
                }
                _ => {}
            }
        }
        let mut conflicts = Vec::new();
        for planned in &self.plan.steps {
            let path = planned.step.path();
            let real = self.real(path);
            let file = real.ancestors().skip(1).find(|above| files.contains(above));
            let link = || {
                path.ancestors()
                    .skip(1)
                    .find_map(|above| links.get_key_value(&above))
            };
            let message = match (file, link()) {
                (Some(above), _) => format!(
                    "lies below {above}, which the config makes a file or link. Take one of them out"
                ),
                // An object that is removed together with a link is removed first.
                (None, Some((_, &"removes"))) if is_removal(&planned.step) => continue,
                (None, Some((above, change))) => format!(
                    "lies below {above}, which leads elsewhere now, and which the config {change}. Apply the two one \
                     after the other"
                ),
                (None, None) => continue,
            };
            conflicts.push((path.clone(), message));
        }
        for (path, message) in conflicts {
            self.block(path.to_string(), message);
        }
    }

    /// Plans the missing parent directories of a path.
    fn make_parents(&mut self, path: &RootPath) {
        let missing: Vec<RootPath> = path
            .ancestors()
            .skip(1)
            .take_while(|above| {
                !self.node().directories.contains_key(above) && !self.is_made(above)
            })
            .collect();
        for directory in missing.into_iter().rev() {
            let rule = self.directory_rule(&directory);
            let (uid, gid) = self.node().host.attainable((rule.uid, rule.gid));
            let step = Step::MakeDirectory {
                path: directory.clone(),
                mode: rule.mode,
                uid,
                gid,
            };
            self.note_made(&directory);
            self.push(
                step,
                Payload::None,
                Section::Files,
                "a directory on the way is missing",
            );
        }
    }

    /// Returns mode and owner of a new directory: 0755 and root, as the daemon creates it; below the home of core, 0700 and
    /// core. Below a directory with the setgid bit, the kernel passes on its group and that bit.
    fn directory_rule(&self, directory: &RootPath) -> Attributes {
        let (mode, (uid, gid)) = match self.node().accounts.users.get("core") {
            Some(&core) if self.is_of_core(directory) => (0o700, core),
            _ => (0o755, (0, 0)),
        };
        match self.handed_down(directory) {
            Some(gid) => Attributes {
                mode: mode | SETGID,
                uid,
                gid,
            },
            None => Attributes { mode, uid, gid },
        }
    }

    /// Returns the group that the kernel gives to a new object at a path: that of its nearest parent directory, if that has the
    /// setgid bit.
    fn handed_down(&self, path: &RootPath) -> Option<u32> {
        let mut above = path.ancestors().skip(1);
        let above = above.find_map(|above| self.directory_at(&above))?;
        (above.mode & SETGID != 0).then_some(above.gid)
    }

    /// Returns mode and owner of a directory that exists, or that this plan creates or changes.
    fn directory_at(&self, path: &RootPath) -> Option<Attributes> {
        let wanted = self.real(path);
        let mut steps = self.plan.steps.iter().rev();
        let planned = steps.find_map(|planned| match &planned.step {
            Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            } if self.real(path) == wanted => Some(Attributes {
                mode: *mode,
                uid: *uid,
                gid: *gid,
            }),
            Step::Metadata { path, new, .. } if self.real(path) == wanted => Some(*new),
            Step::Put { path, new, .. } if new.is_directory() && self.real(path) == wanted => {
                Some(Attributes::from(new))
            }
            _ => None,
        });
        planned.or_else(|| {
            let found = self.node().directories.get(path)?;
            let (uid, gid) = found.owner;
            let mode = found.mode;
            Some(Attributes { mode, uid, gid })
        })
    }

    fn is_of_core(&self, directory: &RootPath) -> bool {
        let home = self.real(&RootPath::fixed(paths::CORE_HOME));
        self.real(directory).is_in(home.relative())
    }

    /// Adds one notice if owners cannot be set for lack of `CAP_CHOWN`.
    fn check_ownership(&mut self) {
        let host = &self.node().host;
        if !host.can_chown && host.user != (0, 0) {
            let message = format!(
                "not root: files are owned by {}:{}, owners of the config are neither set nor compared. \
                 Run as root for the real thing",
                host.user.0, host.user.1,
            );
            self.notice("ownership", message);
        }
    }
}

fn is_removal(step: &Step) -> bool {
    matches!(step, Step::Remove { .. } | Step::RemoveDirectory { .. })
}

/// Describes the change of a link to something else, for a sentence about the config.
fn given_way_to(kind: &ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Directory => "makes a directory",
        ObjectKind::Symlink { .. } => "makes another link",
        ObjectKind::File { .. } | ObjectKind::Special { .. } => "makes a file",
    }
}
