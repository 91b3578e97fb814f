//! Reverts a finished run: its steps inverted, with the objects kept in the history.
//!
//! Objects that a run replaced are restored, whether or not a config ever owned them. A path that another program or an admin
//! has changed since is never overwritten without a request.

use std::collections::BTreeSet;

use super::{Attributes, Held, Payload, Plan, PlannedStep, Section, Step};
use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::text::count_noun;
use crate::formats::systemd::changed::is_read_by_manager;
use crate::host::root::RootPath;
use crate::node::NodeState;
use crate::node::command::job::{self, Job};

/// A run in the history.
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// Name of the transaction. Begins with an increasing number, normally milliseconds since 1970.
    pub id: String,
    /// Name of the config that it applied.
    pub config: String,
    /// Who ran it; `None` for a service, or if it is unknown.
    pub by: Option<String>,
    /// Where its old objects are stored: `old-N` for step N.
    pub objects: RootPath,
    /// Its steps in order, each with its part of the config.
    pub steps: Vec<(Step, Section)>,
    /// Flags of the objects that it replaced and removed.
    pub held: Vec<Held>,
    /// The jobs that it ran.
    pub jobs: Vec<Job>,
}

/// The daemon's record before a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordBefore {
    /// The run did not change it.
    Unchanged,
    /// There was no original.
    None,
    /// It is stored at this path.
    Kept(RootPath),
}

impl FinishedRun {
    /// Returns the start of the run by the node's clock, in seconds since 1970.
    pub fn start_time(&self) -> u64 {
        let time = self.id.split('-').next().unwrap_or_default();
        time.parse::<u64>().unwrap_or_default() / 1000
    }

    /// Finds the record from before the run.
    pub fn record_before(&self) -> RecordBefore {
        let mut steps = self.steps.iter().enumerate();
        let record = steps.find(|(_, (step, section))| {
            *section == Section::Records && step.path().relative() == paths::CURRENT_CONFIG
        });
        match record {
            None => RecordBefore::Unchanged,
            Some((index, (Step::Put { old: Some(_), .. } | Step::Remove { .. }, _))) => {
                let path = self.objects.join(&format!("old-{index}"));
                path.map_or(RecordBefore::Unchanged, RecordBefore::Kept)
            }
            Some((_, (Step::Put { old: None, .. }, _))) => RecordBefore::None,
            Some(_) => RecordBefore::Unchanged,
        }
    }

    /// Returns the jobs to run after the run is reverted: each unit that the run notified is notified again.
    pub fn jobs_back(&self) -> Vec<Job> {
        let mut steps = self.steps.iter();
        let units = steps.any(|(step, _)| is_read_by_manager(step.path()));
        let reload = (units && !self.jobs.is_empty()).then_some(Job::DaemonReload);
        // Units that were stopped for that run are not stopped for this one.
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|job| !matches!(job, Job::DaemonReload | Job::Start(_)));
        let jobs: Vec<Job> = jobs.cloned().chain(reload).collect();
        job::jobs_back(&jobs)
    }
}

/// The current state of a path, relative to a step.
enum Since {
    /// As the step left it.
    Kept,
    /// As it was before the step.
    Before,
    /// Neither.
    Changed,
}

/// What happens to a path that another program or an admin has changed since the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChangedSince {
    /// It is reported and stops the rollback.
    #[default]
    Refuse,
    /// It is left unchanged.
    Leave,
    /// It is also restored to its state before the run.
    Restore,
}

/// Everything from which a rollback is planned.
#[derive(Debug, Clone, Copy)]
pub struct RollbackInputs<'a> {
    /// The run to revert.
    pub run: &'a FinishedRun,
    /// The node, at the run's paths.
    pub node: &'a NodeState,
    /// What happens to paths that were changed since.
    pub changed: ChangedSince,
    /// Older runs to revert after it, newest first, each with the node at its paths.
    pub older: &'a [(FinishedRun, NodeState)],
    /// Number of earlier runs whose operating system never ran; they are reverted together with it.
    pub together: usize,
    /// The jobs of the running system, between files and records.
    pub jobs: &'a [Job],
}

/// Plans to revert a run.
pub(super) fn plan_rollback(inputs: RollbackInputs<'_>) -> Plan {
    let mut plan = plan_revert(inputs.run, inputs.node, inputs.changed);
    if !inputs.jobs.is_empty() && !plan.steps.is_empty() {
        let jobs: Vec<String> = inputs.jobs.iter().map(ToString::to_string).collect();
        plan.notices.push(Notice::new(
            "after the files",
            format!("{}, as the run did", jobs.join(", ")),
        ));
    }
    add_older(&mut plan, inputs);
    if inputs.older.is_empty() && inputs.together > 0 {
        plan.notices.push(Notice::new(
            "runs before it",
            format!(
                "{} whose operating system never ran: reverted with it",
                count_noun(inputs.together, "run")
            ),
        ));
    }
    plan
}

/// Adds blockers for the older runs: changes at their paths which no later run has touched. Other paths are judged when it is
/// their turn.
fn add_older(plan: &mut Plan, inputs: RollbackInputs<'_>) {
    let paths = |run: &FinishedRun| -> Vec<String> {
        let steps = run.steps.iter();
        steps.map(|(step, _)| step.path().to_string()).collect()
    };
    let mut later: BTreeSet<String> = paths(inputs.run).into_iter().collect();
    for (run, node) in inputs.older {
        let its = plan_revert(run, node, inputs.changed);
        let is_new = |notice: &Notice| !later.contains(&notice.subject);
        plan.blockers
            .extend(its.blockers.into_iter().filter(is_new));
        plan.notices.extend(its.notices.into_iter().filter(is_new));
        plan.notices.push(Notice::new(
            format!("run {}", run.id),
            format!(
                "reverted after it: {} of {}",
                count_noun(run.steps.len(), "step"),
                run.config
            ),
        ));
        later.extend(paths(run));
    }
}

fn plan_revert(run: &FinishedRun, node: &NodeState, wanted: ChangedSince) -> Plan {
    let mut plan = Plan::default();
    // The daemon's records come last here too, together with the directories that were created for them.
    let steps = run.steps.iter().enumerate().rev();
    let (last, first): (Vec<_>, Vec<_>) = steps.partition(|(_, (step, section))| {
        *section == Section::Records || is_above_a_record(step, run)
    });
    for (index, (step, section)) in first.into_iter().chain(last) {
        match change_since(step, node) {
            Since::Before => {}
            Since::Kept => {
                plan.held.extend(flags_of_removed(run, step));
                plan.steps.push(PlannedStep {
                    label: restored_label(step, node),
                    ..inverse_step(run, index, step, *section)
                });
            }
            Since::Changed if wanted == ChangedSince::Restore => {
                match restoring_step(run, index, step, *section, node) {
                    Some(planned) => plan.steps.push(planned),
                    None => check_changed(&mut plan, step, run, ChangedSince::Leave),
                }
            }
            Since::Changed => check_changed(&mut plan, step, run, wanted),
        }
    }
    plan
}

/// Returns the flags of a removed object, which is restored with them; a replaced object has passed its flags on.
fn flags_of_removed(run: &FinishedRun, step: &Step) -> Option<Held> {
    let mut held = run.held.iter();
    let removed = matches!(step, Step::Remove { .. } | Step::RemoveDirectory { .. });
    held.find(|held| removed && held.path == *step.path())
        .cloned()
}

fn is_above_a_record(step: &Step, run: &FinishedRun) -> bool {
    let records = run.steps.iter();
    let mut records = records.filter(|(_, section)| *section == Section::Records);
    matches!(step, Step::MakeDirectory { .. })
        && records.any(|(record, _)| record.path().is_in(step.path().relative()))
}

fn check_changed(plan: &mut Plan, step: &Step, run: &FinishedRun, wanted: ChangedSince) {
    let subject = step.path().to_string();
    if wanted == ChangedSince::Leave {
        let message = format!(
            "was changed since {} was applied, and is left as it is",
            run.config
        );
        let notice = Notice::new(subject, message);
        plan.left.push(notice.clone());
        plan.notices.push(notice);
    } else {
        let message = format!(
            "was changed since {} was applied. Look at it; --leave-changed leaves it as it is",
            run.config
        );
        plan.blockers.push(Notice::new(subject, message));
    }
}

fn change_since(step: &Step, node: &NodeState) -> Since {
    let found = node.object(step.path());
    let is = |wanted: Option<&Object>| match (found, wanted) {
        (Some(found), Some(wanted)) => found.is_like(wanted),
        (None, None) => true,
        _ => false,
    };
    let has = |wanted: Attributes| found.is_some_and(|found| Attributes::from(found) == wanted);
    let (kept, before) = match step {
        Step::MakeDirectory { .. } => (found.is_some_and(Object::is_directory), found.is_none()),
        Step::RemoveDirectory { .. } => (found.is_none(), found.is_some_and(Object::is_directory)),
        Step::Put { new, old, .. } => (is(Some(new)), is(old.as_ref())),
        Step::Remove { old, .. } => (found.is_none(), is(Some(old))),
        Step::Metadata { new, old, .. } => (has(*new), has(*old)),
    };
    if kept {
        Since::Kept
    } else if before {
        Since::Before
    } else {
        Since::Changed
    }
}

/// Returns the step that restores a path that was changed since; `None` if a directory is there or is needed.
fn restoring_step(
    run: &FinishedRun,
    index: usize,
    step: &Step,
    section: Section,
    node: &NodeState,
) -> Option<PlannedStep> {
    let path = step.path().clone();
    let found = node.object(&path).cloned();
    let is_directory = found.as_ref().is_some_and(Object::is_directory);
    if is_directory && !matches!(step, Step::Metadata { .. }) {
        return None;
    }
    let before = match step {
        Step::Put { old, .. } => old.clone(),
        Step::Remove { old, .. } => Some(old.clone()),
        Step::Metadata { new: _, old, .. } => {
            let found = Attributes::from(found.as_ref()?);
            let back = Step::Metadata {
                path,
                new: *old,
                old: found,
            };
            return Some(PlannedStep {
                step: back,
                payload: Payload::None,
                section,
                why: "as it was before".to_owned().into(),
                label: None,
            });
        }
        Step::MakeDirectory { .. } | Step::RemoveDirectory { .. } => return None,
    };
    let (step, payload) = match (before, found) {
        (None, None) => return None,
        (None, Some(found)) => (Step::Remove { path, old: found }, Payload::None),
        (Some(before), _) if before.is_directory() => return None,
        (Some(new), old) => {
            let payload = kept_payload(run, index, &new);
            (Step::Put { path, new, old }, payload)
        }
    };
    Some(PlannedStep {
        step,
        payload,
        section,
        why: "was changed since; as it was before".to_owned().into(),
        label: None,
    })
}

fn inverse_step(run: &FinishedRun, index: usize, step: &Step, section: Section) -> PlannedStep {
    let path = step.path().clone();
    let (step, payload) = match step.clone() {
        Step::MakeDirectory {
            path,
            mode,
            uid,
            gid,
        } => {
            let gone = Step::RemoveDirectory {
                path,
                mode,
                uid,
                gid,
            };
            (gone, Payload::None)
        }
        Step::RemoveDirectory {
            path,
            mode,
            uid,
            gid,
        } => {
            let back = Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            };
            (back, Payload::None)
        }
        Step::Put { new, old: None, .. } => (Step::Remove { path, old: new }, Payload::None),
        Step::Put {
            new,
            old: Some(old),
            ..
        } => {
            let payload = kept_payload(run, index, &old);
            let back = Step::Put {
                path,
                new: old,
                old: Some(new),
            };
            (back, payload)
        }
        Step::Remove { old, .. } => {
            let payload = kept_payload(run, index, &old);
            let back = Step::Put {
                path,
                new: old,
                old: None,
            };
            (back, payload)
        }
        Step::Metadata { path, new, old } => {
            let back = Step::Metadata {
                path,
                new: old,
                old: new,
            };
            (back, Payload::None)
        }
    };
    let why = match step.sign() {
        '-' => "did not exist before",
        '+' => "existed before",
        _ => "as it was before",
    };
    PlannedStep {
        step,
        payload,
        section,
        why: why.to_owned().into(),
        label: None,
    }
}

/// Returns the label of a restored object. Stored objects have theirs; a removed directory is created again and needs one.
fn restored_label(step: &Step, node: &NodeState) -> Option<String> {
    match step {
        Step::RemoveDirectory { path, .. } => {
            node.labels.wanted_label(path, &ObjectKind::Directory)
        }
        _ => None,
    }
}

/// Returns the location of a step's old object in the history.
fn kept_payload(run: &FinishedRun, index: usize, old: &Object) -> Payload {
    let Ok(path) = run.objects.join(&format!("old-{index}")) else {
        return Payload::None;
    };
    match old.kind {
        ObjectKind::File { .. } | ObjectKind::Symlink { .. } => Payload::CopyOf(path),
        ObjectKind::Directory => Payload::TreeOf(path),
        // A pipe or socket is restored as a hard link to the stored one.
        ObjectKind::Special { .. } => Payload::LinkTo(path),
    }
}
