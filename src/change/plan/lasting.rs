//! What the next boot keeps of a plan: files of the image, and parts that are recreated at every boot.

use super::{Builder, Plan};
use crate::base::notice::Notice;
use crate::base::text::count_noun;
use crate::host::root::RootPath;
use crate::node::NodeState;
use crate::node::lasting::Transient;

/// Directories that no boot recreates, even on a transient root.
const KEPT: [&str; 5] = ["etc", "var", "boot", "sysroot", "run"];

impl Builder<'_> {
    /// Blocks changes of files that belong to the image: the next deployment has its own, and several deployments may share one
    /// file.
    pub(super) fn check_image(&mut self) {
        let steps = self.plan.steps.iter().map(|planned| planned.step.path());
        let of_image: Vec<RootPath> = steps
            .filter(|path| self.is_of_image(path))
            .cloned()
            .collect();
        for path in of_image {
            let message = "is a path of the image: /usr of a deployment is read-only on the node, and the next deployment would \
                           be without it. Use a path below /etc or /var, or bring it with the image";
            self.add_blocker(path.to_string(), message);
        }
    }

    /// Returns true for a path that belongs to the image, after following links in its parents.
    pub(super) fn is_of_image(&self, path: &RootPath) -> bool {
        self.node().host.deployment.is_some() && self.real_path(path).is_in("usr")
    }
}

/// Blocks a plan whose changes the next boot would drop, unless the user allows that.
pub(super) fn check_transient(
    plan: &mut Plan,
    node: &NodeState,
    transient: &Transient,
    until_reboot: bool,
) {
    let real = plan
        .steps
        .iter()
        .map(|planned| node.real_path(planned.step.path()));
    let real: Vec<RootPath> = real.collect();
    let is_kept = |path: &RootPath| KEPT.iter().any(|kept| path.is_in(kept));
    let in_etc = real.iter().filter(|path| path.is_in("etc")).count();
    let beside = real.iter().filter(|path| !is_kept(path)).count();
    let places = [
        ("/etc", &transient.etc, in_etc),
        ("/", &transient.root, beside),
    ];
    for (place, evidence, changes) in places {
        let Some(evidence) = evidence.as_ref().filter(|_| changes > 0) else {
            continue;
        };
        let what = format!(
            "every boot recreates it ({evidence}): {} of this plan would be gone after the next reboot",
            count_noun(changes, "change")
        );
        let subject = place.to_owned();
        if until_reboot {
            let message = format!("{what}, as asked (--until-reboot)");
            plan.notices.push(Notice::new(subject, message));
        } else {
            let message = format!(
                "{what}. Bring them with the image, or boot an image whose /etc and root are kept; or apply them for this boot alone: --until-reboot"
            );
            plan.blockers.push(Notice::new(subject, message));
        }
    }
}
