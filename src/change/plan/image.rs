//! The source of the OS image and of the packages found on the node, in the plan.

use super::fit::{Accepted, Doubtful};
use super::{OsStep, PackageRepository, Plan, PlannedStep};
use crate::base::notice::Notice;
use crate::change::capsule::opened::CapsuleFacts;
use crate::node::images::extensions;

/// The source of the image and of a plan's packages, and any blockers.
#[derive(Debug, Clone, Default)]
pub struct ImageEvidence {
    /// The repository of the packages, if the plan changes packages.
    pub repository: Option<PackageRepository>,
    /// The image is in containers-storage by the time it is staged.
    pub from_storage: bool,
    /// The step that copies the image from a medium into containers-storage.
    pub bring: Option<OsStep>,
    /// The capsule that the image is read through.
    pub signed: Option<CapsuleFacts>,
    /// Doubts that the user may accept.
    pub doubts: Vec<Doubtful>,
    /// Reasons why the image or the packages are unavailable.
    pub blockers: Vec<Notice>,
    /// Facts that the user should know.
    pub notices: Vec<Notice>,
}

/// Adds the source to a plan: its steps, blockers and notices.
pub(super) fn add_image(plan: &mut Plan, evidence: ImageEvidence, accepted: Accepted) {
    if let Some(repository) = evidence.repository {
        let first = plan.os.steps.iter().position(OsStep::is_staging);
        let at = first.unwrap_or(plan.os.steps.len());
        plan.os.steps.insert(at, OsStep::Repository(repository));
        // This run replaces a stale repository file, and removes its own before the files are in place.
        let is_stale = |step: &PlannedStep| step.step.path().to_string() == extensions::REPO_FILE;
        plan.steps.retain(|step| !is_stale(step));
    }
    if evidence.from_storage {
        plan.os.fetch_image();
    }
    if let Some(OsStep::Import { commit, .. }) = &evidence.bring {
        plan.os.use_commit(commit);
    }
    if let Some(bring) = evidence.bring {
        let is_image = |step: &OsStep| matches!(step, OsStep::Image { .. } | OsStep::Kept { .. });
        let at = plan.os.steps.iter().position(is_image);
        plan.os.steps.insert(at.unwrap_or_default(), bring);
    }
    plan.os.signed = evidence.signed;
    plan.blockers.extend(evidence.blockers);
    plan.notices.extend(evidence.notices);
    for doubtful in evidence.doubts {
        doubtful.add_to(plan, accepted);
    }
}
