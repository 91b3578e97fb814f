//! FP-63: files for pulls that are not read, or that make a registry unusable.

use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding};
use crate::node::pull_files::{PullFault, PullFaultKind};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-63",
    title: "files for pulls that have no effect",
    looks_at: "names and places below /etc/containers and /etc/docker: registries.conf.d, registries.d, certs.d",
    explain: "CRI-O, Podman and rpm-ostree read the same files for a pull. /etc/containers/registries.conf.d/*.conf is TOML and \
says which mirrors there are. /etc/containers/registries.d/*.yaml is YAML and says where signatures are: each of these files is \
read for each pull, and one that is not understood stops all of them. In both directories other endings are skipped.\n\n\
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
        Err(why) => return CheckVerdict::not_seen(format!("files for pulls: {why}")),
    };
    // Another check judges the pull of the recorded image.
    let is_other = |one: &PullFault| {
        one.kind != PullFaultKind::Stops
            || !evidence.boots_images
            || !matches!(evidence.pull.seen(), Ok(Some(_)))
    };
    let mut others = faults.clone();
    others.all.retain(is_other);
    let groups = others.group_faults(evidence.config());
    let found = groups.iter().map(|group| {
        let place = group.place();
        DoctorFinding::of_group(group).next(if evidence.is_of_config(place) {
            evidence.own_command(&format!("show {place}"))
        } else {
            format!("ls -l {}", evidence.shell_path(place))
        })
    });
    let mut verdict = CheckVerdict::healthy().and_findings(found);
    for why in &faults.unseen {
        verdict = verdict.and_unseen(format!("files for pulls: {why}"));
    }
    verdict
}
