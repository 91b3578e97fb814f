//! Does the machine boot the staged deployment if its boot loader does not read boot entries?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;
use crate::node::zipl::CURE;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("boot-entries", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let unused = match &node.unused_zipl {
        Ok(None) => return Vec::new(),
        Ok(Some(unused)) => unused,
        Err(reason) => {
            let what = format!("it is unknown whether OSTree runs zipl: {reason}");
            let finding = CrossingFinding::unknown("zipl", what);
            return vec![finding.next("ostree config get sysroot.bootloader")];
        }
    };
    let named = match &unused.named {
        Some(named) => format!("[sysroot] bootloader={named}"),
        None => "no bootloader below [sysroot]".to_owned(),
    };
    let what = "OSTree does not run zipl, so another image or other kernel arguments are staged without an error and never boot";
    vec![
        CrossingFinding::inhibitor("zipl", what)
            .with_evidence(&unused.sign, "zipl starts this machine")
            .with_evidence(&unused.config, named)
            .with_prevented("the old boot entry starts again")
            .next(CURE),
    ]
}
