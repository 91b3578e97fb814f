//! FP-49: the operating system that boots is not a node's.

use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::node::command::systemctl::ActiveState;
use crate::node::node_programs::NodePrograms;
use crate::node::{Recorded, Records};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-49",
    title: "the booted OS is not a node image",
    looks_at: "kubelet, CRI-O and Open vSwitch in /usr against the enabled units; /opt/cni",
    explain: "A node image holds the programs that its units start. A disk begins with a boot image, which may be a plain CoreOS without \
them: the first boot then changes to the node image. If that fails, if a plain CoreOS was pulled, or if a rollback went past the first \
change, the units are enabled and their programs are missing.\n\n\
In the first minutes of a new node this is normal: doctor says nothing while the first-boot service works. mco-rescue firstboot \
--complete finishes a first boot; mco-rescue apply stages the recorded image again, and rpm-ostree status shows if another deployment \
has it already.\n\n\
CRI-O does not start if /opt/cni is a dangling link; it makes the directory itself once the link is removed.",
    judge: judge_node_image,
};

fn judge_node_image(evidence: &DoctorEvidence) -> CheckVerdict {
    let programs = match evidence.programs.seen() {
        Ok(None) => return CheckVerdict::healthy(),
        Ok(Some(programs)) => programs,
        Err(why) => return CheckVerdict::not_seen(format!("the programs of a node: {why}")),
    };
    CheckVerdict::healthy()
        .and_findings(find_missing_programs(evidence, programs))
        .and_findings(find_lost_plugins(evidence, programs))
}

fn find_missing_programs(
    evidence: &DoctorEvidence,
    programs: &NodePrograms,
) -> Option<DoctorFinding> {
    let (first, _) = programs.missing.first()?;
    let is_over = |records: &Records| records.first_boot_over;
    let is_over = evidence.records.get().is_some_and(is_over);
    let is_waiting = evidence.first_boot_files.is_waiting() && !is_over;
    let mut units = evidence.units.get().into_iter().flatten();
    let is_at_work =
        units.any(|unit| unit.name.starts_with("machine-config-daemon-") && unit.is_at_work());
    // For a disk, FP-10 reports the coming first boot.
    if evidence.never_booted || is_at_work || (is_waiting && !evidence.live) {
        return None;
    }
    let means = match (is_waiting, programs.openshift.is_empty()) {
        (true, _) => "The first boot has not changed to the node image. The kubelet cannot start.",
        (false, true) => {
            "This is a plain operating system, not the image of a node. The kubelet cannot start."
        }
        (false, false) => "The image lacks programs of a node. The kubelet cannot start.",
    };
    let what = "the booted OS is not a node image";
    let finding = DoctorFinding::critical(what, means);
    let missing = programs.missing.iter();
    let missing = missing.map(|(program, unit)| {
        Fact::new(format!("/{program}"), format!("missing; {unit} needs it"))
    });
    let release = match programs.openshift.as_str() {
        "" => format!("{}, no OPENSHIFT_VERSION", programs.release),
        version => format!("{} OPENSHIFT_VERSION={version}", programs.release),
    };
    let mut finding = finding
        .seen_all(missing)
        .with_evidence("/etc/os-release", release);
    if let Some(image) = evidence.running_image().filter(|image| !image.is_empty()) {
        finding = finding.with_evidence("the image of the deployment", image);
    }
    if is_waiting {
        finding = finding.with_evidence(format!("/{}", paths::ENCAPSULATED), "still there");
    }
    let words = messages::fill_message(messages::NOT_SPAWNED, &format!("/{first}"));
    let finding = finding.with_message(Some(words));
    Some(match is_waiting {
        true if lacks_config(evidence) => finding
            .with_evidence(
                format!("/{}", paths::MCS_CONTENT),
                "missing, so no full config is here, which firstboot --complete needs",
            )
            .next(evidence.own_command("fetch --server HOST --pool POOL"))
            .next(evidence.own_command("apply --latest --takeover")),
        true => finding.next(evidence.own_command("firstboot --complete")),
        false => finding
            .next(evidence.own_command("plan"))
            .next(evidence.own_command("apply --reboot")),
    })
}

/// Returns true if neither a record nor the first boot has left a full config.
fn lacks_config(evidence: &DoctorEvidence) -> bool {
    evidence.records.get().is_some_and(|records: &Records| {
        matches!(
            (&records.current_config, &records.mcs_content),
            (Recorded::Missing, Recorded::Missing)
        )
    })
}

fn find_lost_plugins(evidence: &DoctorEvidence, programs: &NodePrograms) -> Option<DoctorFinding> {
    let target = programs.lost_plugins.as_ref()?;
    let units = evidence.units.get().into_iter().flatten();
    let mut crio = units.filter(|unit| unit.name == "crio.service");
    let severity = if crio.any(|unit| unit.active == ActiveState::Active) {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let path = evidence.shell_path("/opt/cni");
    Some(
        DoctorFinding::new(
            severity,
            "/opt/cni is a dangling link",
            "CRI-O does not start with it. It makes the directory itself once the link is removed.",
        )
        .with_evidence("/opt/cni", format!("leads to {target}, which is missing"))
        .next(format!(
            "mv {path} {path}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)"
        ))
        .fixed_by([FixChange::move_aside("/opt/cni")]),
    )
}
