//! FP-41: checkpoint files that the kubelet rejects at its start.

use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange, messages,
};
use crate::formats::checkpoint::{CheckpointFile, CheckpointVerdict, JudgedCheckpoint, NEW_FORM};
use crate::node::command::systemctl::ActiveState;
use crate::node::kubelet_state::{CLEANUP, ConfiguredPolicy, KubeletState};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-41",
    title: "the kubelet refuses a checkpoint file",
    looks_at: "state files in /var/lib/kubelet with their checksums, and the policies in kubelet.conf",
    explain: "The kubelet keeps its decisions in files in /var/lib/kubelet: processors and memory of containers \
(cpu_manager_state, memory_manager_state), resources of pods (pod_status_manager_state; since Kubernetes 1.33 allocated_pods_state \
and actuated_pods_state), devices. It exits at startup if such a file is empty, is not JSON, has a wrong checksum, or names \
another policy than its configuration. systemd starts it again every 10 seconds, forever.\n\n\
The usual causes are a power cut, and another minor version of the kubelet. kubelet-cleanup.service removes the files of processors, \
memory and dynamic resources at each boot; the others stay until they are moved away.\n\n\
The kubelet makes each file again. Without the files of processors and memory, running containers keep what they have, and it may be \
given to others too. Where the policy is static, drain the node first, or reboot it.\n\n\
A file with fields that are not known here is not judged, and neither is a checksum of memory_manager_state that does not match: its \
form differs between releases.",
    judge: judge_kubelet_checkpoints,
};

/// The kubelet's service on the running node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kubelet {
    Running,
    Stopped,
    Failing,
    Unknown,
}

fn judge_kubelet_checkpoints(evidence: &DoctorEvidence) -> CheckVerdict {
    let state = match evidence.kubelet_state.seen() {
        Ok(None) => return CheckVerdict::healthy(),
        Ok(Some(state)) => state,
        Err(why) => return CheckVerdict::not_seen(format!("the state of the kubelet: {why}")),
    };
    let mut verdict = CheckVerdict::healthy();
    for (file, judged) in &state.files {
        if !file.is_read_by(state.minor) {
            continue;
        }
        match judged {
            Err(why) => verdict = verdict.and_unseen(why.to_string()),
            Ok(checkpoint) => {
                if let CheckpointVerdict::Unknown(why) = &checkpoint.verdict {
                    let path = file.path();
                    verdict = verdict.and_unseen(format!("/{path} cannot be judged: {why}"));
                }
                verdict = verdict.and_findings(judge_file(evidence, state, *file, checkpoint));
            }
        }
    }
    let names_policy = |(_, judged): &(_, Result<JudgedCheckpoint, _>)| {
        judged.as_ref().is_ok_and(|one| one.policy.is_some())
    };
    match &state.policies {
        Err(why) if state.files.iter().any(names_policy) => {
            verdict.and_unseen(format!("the policies of the kubelet: {why}"))
        }
        _ => verdict,
    }
}

fn judge_file(
    evidence: &DoctorEvidence,
    state: &KubeletState,
    file: CheckpointFile,
    checkpoint: &JudgedCheckpoint,
) -> Option<DoctorFinding> {
    if let CheckpointVerdict::Damaged { why, error } = &checkpoint.verdict {
        let finding = DoctorFinding::new(
            severity_of_damage(evidence, state, file),
            format!("{} is damaged", name_of(file)),
            meaning_of_damage(evidence, state, file),
        );
        let error = error.as_deref().map(|error| file.kubelet_message(error));
        let finding = finding
            .with_evidence(place_of(file), why)
            .with_message(error);
        return Some(with_cure(evidence, state, file, checkpoint, finding));
    }
    if checkpoint.is_old_form && state.minor == Some(NEW_FORM) {
        let finding = DoctorFinding::new(
            severity_of_damage(evidence, state, file),
            format!("{} is from an older kubelet", name_of(file)),
            "Kubernetes 1.32 has another form of this file, and its kubelet does not start with this one.",
        );
        let finding = finding
            .with_evidence(place_of(file), "has the form of Kubernetes 1.31 and older")
            .with_message(Some(file.kubelet_message(messages::CHECKPOINT_CORRUPTED)));
        return Some(with_cure(evidence, state, file, checkpoint, finding));
    }
    judge_policy(evidence, state, file, checkpoint)
}

fn judge_policy(
    evidence: &DoctorEvidence,
    state: &KubeletState,
    file: CheckpointFile,
    checkpoint: &JudgedCheckpoint,
) -> Option<DoctorFinding> {
    let stored = checkpoint.policy.as_ref()?;
    let configured = state.policies.as_ref().ok()?.iter();
    let configured = configured.clone().find(|policy| policy.file == file)?;
    if configured.value.eq_ignore_ascii_case(stored) {
        return None;
    }
    let kubelet = kubelet_state(evidence);
    // The configuration was changed for the next boot, which removes the file.
    let is_pending = evidence.awaited.get().is_some_and(Option::is_some);
    let is_removed = state.removed_at_boot.contains(&file);
    if is_removed && (!evidence.live || is_pending || kubelet == Kubelet::Running) {
        return None;
    }
    let severity = match (evidence.live, kubelet) {
        (false, _) | (true, Kubelet::Failing) => CheckSeverity::Critical,
        (true, _) => CheckSeverity::Warning,
    };
    let means = "The kubelet does not start with a file of another policy.";
    let finding = DoctorFinding::new(
        severity,
        format!("{} names another policy", name_of(file)),
        means,
    );
    let finding = finding
        .with_evidence(place_of(file), format!("policyName is {stored:?}"))
        .with_evidence(&configured.place, &configured.said)
        .with_message(Some(policy_message(file, configured, stored)));
    Some(with_cure(evidence, state, file, checkpoint, finding))
}

fn policy_message(file: CheckpointFile, configured: &ConfiguredPolicy, stored: &str) -> String {
    let value = &configured.value;
    file.kubelet_message(&format!(
        "configured policy {value:?} differs from state checkpoint policy {stored:?}"
    ))
}

fn severity_of_damage(
    evidence: &DoctorEvidence,
    state: &KubeletState,
    file: CheckpointFile,
) -> CheckSeverity {
    let is_removed = state.removed_at_boot.contains(&file);
    match (file, evidence.live, kubelet_state(evidence)) {
        (CheckpointFile::Devices, ..) => CheckSeverity::Warning,
        (_, false, _) if is_removed => CheckSeverity::Notice,
        (_, true, Kubelet::Running) if is_removed => CheckSeverity::Notice,
        (_, true, Kubelet::Running) => CheckSeverity::Warning,
        _ => CheckSeverity::Critical,
    }
}

fn meaning_of_damage(
    evidence: &DoctorEvidence,
    state: &KubeletState,
    file: CheckpointFile,
) -> String {
    let refuses =
        "The kubelet does not start with it, and systemd starts the kubelet again every 10 seconds";
    match (file, kubelet_state(evidence)) {
        (CheckpointFile::Devices, _) => {
            "The kubelet starts without it, and does not know which devices its containers have."
                .to_owned()
        }
        _ if !evidence.live && state.removed_at_boot.contains(&file) => {
            format!("{CLEANUP} removes it at the next boot, before the kubelet starts.")
        }
        (_, Kubelet::Running) if state.removed_at_boot.contains(&file) => format!(
            "The running kubelet has read it before. {refuses}; a reboot removes it before that."
        ),
        (_, Kubelet::Running) => {
            format!("The running kubelet has read it before. At its next start: {refuses}.")
        }
        _ => format!("{refuses}."),
    }
}

/// Adds the commands that move the file aside, or remove it by a reboot if processors are assigned.
fn with_cure(
    evidence: &DoctorEvidence,
    state: &KubeletState,
    file: CheckpointFile,
    checkpoint: &JudgedCheckpoint,
    finding: DoctorFinding,
) -> DoctorFinding {
    let is_removed = state.removed_at_boot.contains(&file);
    let configured = state.policies.iter().flatten();
    let configured = configured.filter(|policy| policy.file == file);
    let mut policies = configured
        .map(|policy| policy.value.as_str())
        .chain(checkpoint.policy.as_deref());
    let is_static = policies.any(|policy| policy.eq_ignore_ascii_case("static"));
    if evidence.live && is_removed && is_static {
        return finding.next("systemctl reboot");
    }
    let path = evidence.shell_path(&place_of(file));
    // Containers keep their processors, and others may get the same ones: the admin has to decide.
    let finding = if is_static || (!evidence.live && is_removed) {
        finding
    } else {
        finding.fixed_by([FixChange::move_aside(place_of(file))])
    };
    let aside = format!("mv {path} {path}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)");
    match evidence.live {
        true => finding
            .next(evidence.stop_kubelet())
            .next(aside)
            .next(evidence.start_kubelet()),
        false if is_removed => finding.next(format!("ls -l {path}")),
        false => finding.next(aside),
    }
}

fn kubelet_state(evidence: &DoctorEvidence) -> Kubelet {
    let units = evidence.units.get().into_iter().flatten();
    let mut units = units.filter(|unit| unit.name == "kubelet.service");
    let Some(unit) = units.next() else {
        return Kubelet::Unknown;
    };
    match (&unit.active, unit.sub.as_str()) {
        (ActiveState::Active, _) => Kubelet::Running,
        (ActiveState::Failed, _) | (ActiveState::Activating, "auto-restart") => Kubelet::Failing,
        (ActiveState::Activating | ActiveState::Reloading | ActiveState::Deactivating, _) => {
            Kubelet::Unknown
        }
        _ => Kubelet::Stopped,
    }
}

fn name_of(file: CheckpointFile) -> &'static str {
    file.path().rsplit('/').next().unwrap_or_default()
}

fn place_of(file: CheckpointFile) -> String {
    format!("/{}", file.path())
}
