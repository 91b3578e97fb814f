//! Judging an image other than the running one, before its run and after it is staged.

use anyhow::Result;

use crate::base::invocation::mco_rescue;
use crate::change::plan::AcceptedRisks;
use crate::change::staging::image_source::SourceOptions;
use crate::change::staging::target::{describe_missing, find_target};
use crate::host::progress::{self, Work};
use crate::host::root::Root;
use crate::judge::crossing::{self, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{NextConfig, Platform};

/// Subject of the finding about an image that is not available locally.
const UNSEEN: &str = "preflight";

/// Judges an image that the node should run. An image that is not available locally is a finding.
///
/// # Errors
/// The image or the node cannot be read.
pub fn judge_image(
    root: &Root,
    image: &str,
    options: &SourceOptions<'_>,
    next: Option<NextConfig<'_>>,
) -> Result<Vec<CrossingFinding>> {
    let _phase = progress::begin_phase(Work::new("Looking at the image"));
    let unseen = |why: String| {
        let finding = CrossingFinding::unknown(UNSEEN, why);
        Ok(vec![finding])
    };
    let tree = match find_target(root, Some(image), options) {
        Ok(Some(tree)) => tree,
        Ok(None) => return unseen(describe_missing(image, options.os_from)),
        // The plan refuses an unusable medium, with advice.
        Err(error) => return unseen(format!("the image cannot be inspected: {error:#}")),
    };
    let node = Platform::observe_next(root, next).with_image(root, next, &tree);
    Ok(crossing::judge_crossing(&Target::from_tree(tree), &node))
}

/// Judges a staged image that was not available when its run was planned. Logs the findings against the reboot, and returns true if
/// there are any.
///
/// # Errors
/// The image cannot be read.
pub fn judge_staged(
    root: &Root,
    image: &str,
    before: &[CrossingFinding],
    next: Option<NextConfig<'_>>,
    risks: AcceptedRisks,
) -> Result<bool> {
    if !before.iter().any(|finding| finding.subject == UNSEEN) {
        return Ok(false);
    }
    let findings = judge_image(root, image, &SourceOptions::default(), next)?;
    let stands = |finding: &&CrossingFinding| {
        finding.severity <= CrossingSeverity::Cured && !risks.has_check(finding.check)
    };
    let against: Vec<&CrossingFinding> = findings.iter().filter(stands).collect();
    for finding in &against {
        log::warn!("{}: {} [{}]", finding.subject, finding.what, finding.check);
    }
    if !against.is_empty() {
        log::warn!(
            "do not reboot yet: the staged image could only be inspected now, and has these findings. A \
             run cures what it can; or revert the image. Next: {}, then {}, or {}",
            mco_rescue("preflight"),
            mco_rescue("apply"),
            mco_rescue("rollback")
        );
    }
    Ok(!against.is_empty())
}
