//! FP-35: interfaces lose their connection with the next OS.

use super::doors::{judge_door, with_subject};
use crate::diagnose::doctor::crossing::CrossingMoment;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};
use crate::judge::crossing::CrossingSeverity;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-35",
    title: "the network configuration is lost with the next OS",
    looks_at: "names of interfaces in the configuration, what pins them, old connection files",
    explain: "A new major version of the OS may give a network interface another name: systemd's scheme changes, and \
drivers add endings such as np0. A connection that is bound to the old name is then never started, and no log says so. \
NetworkManager of EL 10 also ignores files below /etc/sysconfig/network-scripts.\n\n\
The node is judged against the deployment that the next boot enters, as mco-rescue preflight judges an image (checks \
interface-names and legacy-connections). If there is no other deployment, only old connection files are reported that the \
running system does not read.\n\n\
mco-rescue apply pins the names by permanent address, with the files that the daemon's own helper writes. By hand: \
nmstatectl persist-nic-names --root /, before the reboot. nmcli connection migrate FILE turns an old file into a new one; it has \
to run on the old system.",
    judge: judge_network,
};

fn judge_network(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, seen| {
        let is_next = seen.moment != CrossingMoment::Present;
        let severity = match finding.severity {
            CrossingSeverity::Warning => CheckSeverity::Warning,
            _ => CheckSeverity::Critical,
        };
        let words = match (finding.check, is_next) {
            ("interface-names", _) => "its name may change with the next OS",
            (_, true) => "the next OS does not read its connection",
            (_, false) => "NetworkManager does not read its connection",
        };
        Some((severity, with_subject(&finding.subject, words)))
    })
}
