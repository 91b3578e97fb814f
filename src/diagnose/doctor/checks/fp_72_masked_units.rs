//! FP-72: units that the node needs are masked.

use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange,
};
use crate::node::unit_links::{NeededMask, find_needed_masks};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-72",
    title: "a unit that the node needs is masked",
    looks_at: "links to /dev/null in /etc/systemd/system and /run/systemd/system",
    explain: "systemctl mask makes a link to /dev/null in place of a unit. Nothing starts the unit any more: no dependency, no \
boot, no systemctl start (\"Unit kubelet.service is masked\"). What runs goes on until the next boot, so it is often seen only \
then. With --runtime the link is below /run, and gone after a boot.\n\n\
This check covers the units of the kubelet, CRI-O, the network, Open vSwitch, D-Bus, rpm-ostree, the first boot and sshd. A mask that \
the recorded config asks for is the config's: change it there.\n\n\
systemctl unmask removes the link. A unit that the config brings is a file in the same place: the link has replaced it, and \
mco-rescue apply writes it again.",
    judge: judge_masks,
};

fn judge_masks(evidence: &DoctorEvidence) -> CheckVerdict {
    match evidence.upkeep.unit_links.seen() {
        Ok(links) => {
            let masks = find_needed_masks(links, evidence.config());
            CheckVerdict::healthy()
                .and_findings(masks.iter().map(|mask| mask_finding(evidence, mask)))
        }
        // FP-25 reports the same directory.
        Err(_) => CheckVerdict::healthy(),
    }
}

fn mask_finding(evidence: &DoctorEvidence, mask: &NeededMask) -> DoctorFinding {
    let name = mask.unit();
    let means = format!("From the next boot on, or once it stops, {}.", mask.stops);
    let what = format!("{name} is masked");
    let at = if evidence.live {
        String::new()
    } else {
        format!(" --root={}", evidence.upkeep.directory)
    };
    let finding = DoctorFinding::critical(what, means)
        .with_evidence(mask.path.to_string(), "a link to /dev/null");
    if mask.of_config {
        return finding.next(evidence.own_command("apply"));
    }
    // A runtime mask disappears at the next boot, and does not exist on a disk.
    if mask.is_runtime() {
        return finding.next(format!("systemctl{at} unmask --runtime {name}"));
    }
    let finding = finding
        .next(format!("systemctl{at} unmask {name}"))
        .fixed_by([FixChange::move_aside(mask.path.to_string())]);
    if evidence.live {
        finding
            .after_fix("systemctl daemon-reload")
            .after_fix(format!("systemctl start {name}"))
    } else {
        finding
    }
}
