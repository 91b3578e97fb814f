//! FP-63: files for pulls that nothing reads, or with which a registry cannot be used.

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::pull_files::{PullFault, PullFaultKind};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-63",
    title: "files for pulls that count for nothing",
    looks_at: "names and places below /etc/containers and /etc/docker: registries.conf.d, registries.d, certs.d",
    explain: "CRI-O, Podman and rpm-ostree read the same files for a pull. /etc/containers/registries.conf.d/*.conf is TOML and \
says which mirrors there are. /etc/containers/registries.d/*.yaml is YAML and says where signatures are: each of these files is \
read for each pull, and one that is not understood stops all of them. In both directories other endings are passed over.\n\n\
Certificates of a registry are in /etc/containers/certs.d/HOST:PORT, or in /etc/docker/certs.d/HOST:PORT if the first does \
not exist; without a port in the image's name there is none in the directory's. An authority has to end in .crt. A client has \
NAME.cert and NAME.key, and with one of them alone every pull from that registry fails.\n\n\
Files of the same names in /root/.config/containers take the place of those below /etc/containers for all programs of root. A \
[[registry]] of a later file takes the place of the one with the same prefix, and of its mirrors.\n\n\
If a file comes from a MachineConfig, correct it there. Else rename it, or move it away. What stops the pull of the recorded OS \
image is FP-05, and what is wrong in a pull secret FP-27.",
    judge: judge_pull_files,
};

fn judge_pull_files(evidence: &DoctorEvidence) -> CheckVerdict {
    let faults = match evidence.pull_files.seen() {
        Ok(faults) => faults,
        Err(why) => return CheckVerdict::unseen(format!("files for pulls: {why}")),
    };
    // The pull of the recorded image is judged by a check of its own.
    let is_other = |one: &&PullFault| {
        one.kind != PullFaultKind::Stops
            || !evidence.boots_images
            || !matches!(evidence.pull.seen(), Ok(Some(_)))
    };
    let all: Vec<&PullFault> = faults.all.iter().filter(is_other).collect();
    let kinds = [
        PullFaultKind::Stops,
        PullFaultKind::StopsRegistry,
        PullFaultKind::Instead,
        PullFaultKind::Unread,
    ];
    let found = kinds
        .into_iter()
        .filter_map(|kind| find_kind(evidence, &all, kind));
    let mut verdict = CheckVerdict::healthy().and(found);
    for why in &faults.unseen {
        verdict = verdict.and_unseen(format!("files for pulls: {why}"));
    }
    verdict
}

fn find_kind(
    evidence: &DoctorEvidence,
    all: &[&PullFault],
    kind: PullFaultKind,
) -> Option<DoctorFinding> {
    let all: Vec<&&PullFault> = all.iter().filter(|one| one.kind == kind).collect();
    let first = all.first()?;
    let (severity, what, means) = match kind {
        PullFaultKind::Stops => (
            CheckSeverity::Warning,
            "no image can be pulled",
            "Podman, CRI-O and rpm-ostree refuse every pull with this file: no new pod starts here.",
        ),
        PullFaultKind::StopsRegistry => (
            CheckSeverity::Warning,
            "no image can be pulled from a registry",
            "The connection to the registry is not even tried.",
        ),
        PullFaultKind::Instead => (
            CheckSeverity::Warning,
            "root has files for pulls of its own",
            "Podman, skopeo and CRI-O run as root: what the cluster writes below /etc/containers has no effect on them.",
        ),
        PullFaultKind::Unread => (
            CheckSeverity::Warning,
            "a file for pulls is not read",
            "Mirrors, authorities or places of signatures in it have no effect.",
        ),
    };
    // What a person left beside the config may be meant to be out of use.
    let is_of_config = |one: &&&PullFault| {
        evidence.is_of_config(&one.place) || evidence.has_config_below(&one.place)
    };
    let is_left = kind == PullFaultKind::Unread && !all.iter().any(is_of_config);
    let severity = if is_left {
        CheckSeverity::Notice
    } else {
        severity
    };
    let facts = all.iter().map(|one| Fact::new(&one.place, &one.said));
    let finding = DoctorFinding::new(severity, what, means).seen_all(facts);
    Some(match evidence.is_of_config(&first.place) {
        true => finding.next(evidence.command(&format!("show {}", first.place))),
        false => finding.next(format!("ls -l {}", evidence.path(&first.place))),
    })
}
