//! FP-51: packages layered on the image that no config requests.

use super::fp_19_extensions::{explain_no_deployment, find_deployment};
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::Records;
use crate::node::command::rpm_ostree::packages::{Requester, requester_of};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-51",
    title: "layered packages stop the next OS",
    looks_at: "requested packages of the deployment that neither an extension nor the kernel type brings",
    explain: "Packages that were layered by hand (rpm-ostree install NAME) are not part of any config. Each change of the OS resolves them \
again: it needs their repositories, and fails without a network. It also fails if a package of the new image has a file of the same \
name: \"Hardlinking ... File exists\".\n\n\
Remove them before the next change of the OS: rpm-ostree uninstall NAME. With the change itself: rpm-ostree rebase IMAGE --uninstall \
NAME. mco-rescue preflight checks them against an image.\n\n\
Packages of extensions belong to the daemon, which reports an extension whose package is gone. They are judged by FP-19, \
and so are local packages, replaced and removed ones.",
    judge: judge_layered_packages,
};

fn judge_layered_packages(evidence: &DoctorEvidence) -> CheckVerdict {
    let is_known = evidence
        .records
        .get()
        .and_then(Records::recorded_config)
        .is_some();
    let Some(deployment) = find_deployment(evidence) else {
        return if is_known && evidence.boots_images {
            let why = explain_no_deployment(evidence);
            CheckVerdict::not_seen(format!("layered packages: {why}"))
        } else {
            CheckVerdict::healthy()
        };
    };
    let requested = deployment.requested_packages.iter();
    let by_hand: Vec<&String> = requested
        .filter(|name| requester_of(name) == Requester::Admin)
        .collect();
    let Some(first) = by_hand.first() else {
        return CheckVerdict::healthy();
    };
    let means = "The next change of the OS resolves them again: it needs their repositories, and fails without a network or on a file that \
                 the new image brings too.";
    let finding = DoctorFinding::warning("packages are layered that no config asks for", means);
    let facts = by_hand.iter();
    let facts = facts.map(|name| Fact::new(name.as_str(), "requested on top of the image"));
    let names: Vec<&str> = by_hand.iter().map(|name| name.as_str()).collect();
    CheckVerdict::one_finding(
        finding
            .seen_all(facts)
            .with_message(Some(messages::fill_message(messages::NO_PACKAGE, first)))
            .next(format!("rpm-ostree uninstall {}", names.join(" "))),
    )
}
