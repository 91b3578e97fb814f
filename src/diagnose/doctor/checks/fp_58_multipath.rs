//! FP-58: the root disk has several paths, and the next boot may use only one of them.

use super::doors::judge_door;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};
use crate::judge::crossing::CrossingSeverity;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-58",
    title: "the root disk's map of paths is not used",
    looks_at: "maps of device-mapper, serial numbers of disks, root= and rd.multipath, multipath.conf",
    explain: "A root disk with several paths is found by its map. Without rd.multipath, or if root= names one path, the \
initramfs races: it may mount one path before the map is made, and then the map cannot be made. Settings in \
/etc/multipath.conf that EL 10 does not read concern the same disk.\n\n\
mco-rescue preflight judges the same (check multipath).\n\n\
rpm-ostree kargs --append-if-missing=rd.multipath=default --append-if-missing=root=/dev/disk/by-label/dm-mpath-root is the \
cure.",
    judge: judge_multipath,
};

fn judge_multipath(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, _| {
        let severity = match finding.severity {
            CrossingSeverity::Inhibitor => CheckSeverity::Critical,
            _ => CheckSeverity::Warning,
        };
        let what = match finding.subject.as_str() {
            "root disk" => "the root disk has several paths, and may lose its map",
            _ => "multipath of the next OS does not take a setting",
        };
        Some((severity, what.to_owned()))
    })
}
