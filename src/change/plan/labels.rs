//! SELinux labels of the objects that a plan writes, and any problems with them.

use super::{Builder, Payload, PlannedStep, Section, Step};
use crate::base::invocation::shell_word;
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::formats::labels::{LabelPolicy, type_of};
use crate::host::root::RootPath;
use crate::node::Mislabelled;

/// Maximum number of paths in a notice.
const NAMED: usize = 5;

impl Builder<'_> {
    /// Returns the label of a step's new object.
    pub(super) fn plan_label(
        &self,
        step: &Step,
        payload: &Payload,
        section: Section,
    ) -> Option<String> {
        let labels = &self.node().labels;
        match (step, payload) {
            // A hard link has the label of its object.
            (_, Payload::LinkTo(_) | Payload::NameOf(_)) => None,
            // The daemon copies originals with their labels (`cp -a`), in both directions.
            (Step::Put { .. }, Payload::CopyOf(_)) if section == Section::Originals => None,
            (Step::Put { path, new, .. }, _) => labels.wanted_label(path, &new.kind),
            (Step::MakeDirectory { path, .. }, _) => {
                labels.wanted_label(path, &ObjectKind::Directory)
            }
            (Step::RemoveDirectory { .. } | Step::Remove { .. } | Step::Metadata { .. }, _) => None,
        }
    }

    /// Adds one notice each about objects that will not be labelled, and about labels that differ from the policy.
    pub(super) fn plan_labels(&mut self) {
        match &self.node().labels.policy {
            LabelPolicy::None => {}
            LabelPolicy::Unusable(why) => self.without_labels(why),
            LabelPolicy::Usable { .. } => {
                self.note_unclear();
                self.wrong_labels();
            }
        }
    }

    fn without_labels(&mut self, why: &Reason) {
        let makes = |step: &Step| matches!(step, Step::Put { .. } | Step::MakeDirectory { .. });
        let steps = self
            .plan
            .steps
            .iter()
            .filter(|planned| makes(&planned.step));
        let paths: Vec<RootPath> = steps.map(|planned| planned.step.path().clone()).collect();
        if !paths.is_empty() {
            let message = format!(
                "the root's policy gives no labels: {why}. Replaced objects keep their label, new ones get the \
                 kernel's default. Run {} on the node afterwards",
                restorecon_command(&paths),
            );
            self.add_notice("SELinux", message);
        }
    }

    /// Adds a notice about patterns that only SELinux's own tools understand.
    fn note_unclear(&mut self) {
        let labels = &self.node().labels;
        let puzzle = |planned: &PlannedStep| {
            let pattern = match &planned.step {
                Step::Put { path, new, .. } => labels.unclear_pattern(path, &new.kind),
                Step::MakeDirectory { path, .. } => {
                    labels.unclear_pattern(path, &ObjectKind::Directory)
                }
                _ => None,
            };
            Some((planned.step.path().clone(), pattern?))
        };
        let puzzles: Vec<_> = self.plan.steps.iter().filter_map(puzzle).collect();
        let Some((_, pattern)) = puzzles.first() else {
            return;
        };
        let paths: Vec<RootPath> = puzzles.iter().map(|(path, _)| path.clone()).collect();
        let message = format!(
            "the policy's line `{pattern}` is not understood here, and may be the one that applies. Run {} on the node \
             afterwards",
            restorecon_command(&paths),
        );
        self.add_notice("SELinux", message);
    }

    /// Adds a notice about wrong labels. A label alone is not a reason to rewrite an object, because the daemon ignores labels.
    fn wrong_labels(&mut self) {
        let mut wrong = self.node().labels.find_mislabelled(&self.node().objects);
        wrong.retain(|one| !self.is_touched(&one.path) && !one.path.is_in(paths::ORIG));
        let Some(Mislabelled {
            path: first,
            found,
            wanted,
        }) = wrong.first()
        else {
            return;
        };
        let found = found.as_deref().map_or("no label", type_of);
        let paths: Vec<RootPath> = wrong.iter().map(|one| one.path.clone()).collect();
        let message = format!(
            "{} of the unchanged paths have a label that differs from the policy: {first} has {found} \
             instead of {}. Run {} on the node",
            wrong.len(),
            type_of(wanted),
            restorecon_command(&paths),
        );
        self.add_notice("SELinux", message);
    }
}

/// Returns the command that sets the labels of these paths; only the first few are named.
pub fn restorecon_command(paths: &[RootPath]) -> String {
    let named = paths.iter().take(NAMED);
    let named = named.map(|path| shell_word(&path.to_string()));
    let named: Vec<String> = named.collect();
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and on {more} more,"),
    };
    format!("`restorecon -RFv {}`{more}", named.join(" "))
}
