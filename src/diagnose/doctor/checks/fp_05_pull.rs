//! FP-05: the OS image cannot be pulled.

use crate::base::invocation::on_node;
use crate::base::paths;
use crate::diagnose::doctor::evidence::{PullEvidence, PullRefusal};
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::FIRST_BOOT_PULL;
use crate::node::command::systemctl::UnitActivity;
use crate::node::images::auth::Credentials;
use crate::node::images::pull::Trace;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-05",
    title: "the OS image cannot be pulled",
    looks_at: "mirrors, credentials and signature policy for the recorded image; the pull of a first boot",
    explain: "To change its OS the node pulls an image, from the first mirror in /etc/containers/registries.conf that \
has it, with the pull secret's entry for that registry, and only if /etc/containers/policy.json allows it. One of the \
three is wrong more often than the network. An unusable pull secret is reported as FP-27. At a first boot \
the pull is retried every second without limit. A system that does not boot images pulls none and is not checked.\n\n\
The registry itself is not asked here. podman pull --authfile /var/lib/kubelet/config.json IMAGE shows its answer.\n\n\
Without a registry: copy the image elsewhere with skopeo copy --all --preserve-digests docker://IMAGE oci:DIR, carry DIR \
to the node, and mco-rescue pivot IMAGE --os-from DIR. The digest must be exactly the one in the config. The \
policy on disk is never weakened for this.",
    judge: judge_pull,
};

fn judge_pull(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(find_waiting_pull(evidence));
    let pull = match evidence.pull.seen() {
        Ok(Some(pull)) if evidence.boots_images => pull,
        Ok(_) => return verdict,
        Err(why) => return verdict.and_unseen(format!("how the image would be pulled: {why}")),
    };
    let severity = match is_needed(evidence, pull) {
        Some(true) => CheckSeverity::Critical,
        _ => CheckSeverity::Warning,
    };
    match find_obstacle(evidence, pull) {
        Some(refusal) => verdict.and_findings([refused_finding(evidence, pull, severity, refusal)]),
        None if severity == CheckSeverity::Critical => {
            let asked = pull
                .trace
                .as_ref()
                .ok()
                .and_then(|trace| trace.asked_places().next());
            let place = asked.map_or_else(|| pull.image.clone(), |source| source.name.clone());
            let verdict = verdict.and_findings(find_anonymous_pull(evidence, pull));
            let pull = on_node(format!(
                "podman pull --authfile /{} {place}",
                paths::KUBELET_PULL_SECRET
            ));
            verdict.and_unseen(format!("whether the image can be pulled now. Next: {pull}"))
        }
        None => verdict,
    }
}

/// Returns true if the recorded image is neither running nor staged; None if the running image is unknown.
fn is_needed(evidence: &DoctorEvidence, pull: &PullEvidence) -> Option<bool> {
    let runs = evidence.running_image()?;
    let staged = evidence
        .facts()
        .ok()
        .and_then(|facts| facts.deployments.staged());
    Some(runs != pull.image && staged.is_none_or(|staged| staged.image() != pull.image))
}

/// Returns what stops every pull of the image, with its file.
fn find_obstacle(evidence: &DoctorEvidence, pull: &PullEvidence) -> Option<PullRefusal> {
    let trace = match &pull.trace {
        Ok(trace) => trace,
        Err(refusal) => return Some(refusal.clone()),
    };
    let words = trace.blocked()?;
    let table = trace.table.as_ref().map(|(_, file)| file.clone());
    let by_policy = trace.ruling.rejects() || !trace.missing_keys.is_empty();
    let place = if by_policy {
        format!("/{}", paths::POLICY)
    } else {
        table.unwrap_or_else(|| format!("/{}", paths::REGISTRIES))
    };
    Some(PullRefusal {
        next: format!("vi {}", evidence.shell_path(&place)),
        place,
        words,
    })
}

fn refused_finding(
    evidence: &DoctorEvidence,
    pull: &PullEvidence,
    severity: CheckSeverity,
    refusal: PullRefusal,
) -> DoctorFinding {
    let means = match severity {
        CheckSeverity::Critical => {
            "The image that the node needs cannot be pulled, even with a working network. The running node can take it \
             from a medium: mco-rescue pivot --os-from DIR."
        }
        _ => "It is not needed now. The next update will fail on it, even with a working network.",
    };
    let finding = DoctorFinding::new(severity, "the OS image cannot be pulled", means)
        .with_evidence(refusal.place, refusal.words)
        .with_evidence("image", pull.image.clone())
        .seen_all(pull.trace.iter().flat_map(decision_facts))
        .next(refusal.next);
    from_medium(evidence, finding)
}

/// Adds the pull from a medium; an OS can be staged only on a running system.
fn from_medium(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    if evidence.live {
        finding.next("mco-rescue pivot --os-from DIR")
    } else {
        finding
    }
}

fn decision_facts(trace: &Trace) -> Vec<Fact> {
    let source = |source: &crate::node::images::pull::PullPlace| {
        let kind = if source.mirror { "mirror" } else { "origin" };
        let how = source
            .skipped
            .clone()
            .unwrap_or_else(|| "is tried".to_owned());
        Fact::new(format!("{kind} {}", source.name), how)
    };
    trace.sources.iter().map(source).collect()
}

/// Reports a missing entry for the registry; an unusable or empty secret is reported as FP-27.
fn find_anonymous_pull(evidence: &DoctorEvidence, pull: &PullEvidence) -> Option<DoctorFinding> {
    let trace = pull.trace.as_ref().ok()?;
    if trace.secrets_problem.is_some() || trace.secrets_empty {
        return None;
    }
    let source = trace
        .asked_places()
        .find(|source| source.credentials == Credentials::None)?;
    let secret = format!("/{}", paths::PULL_SECRETS[2]);
    let (file, said) = match &trace.secrets {
        Some(file) => (file.clone(), format!("has no entry for {}", source.name)),
        None => (
            secret,
            "is missing, and there is no other secret".to_owned(),
        ),
    };
    let means = "The image is requested without credentials. If the registry is not public, it answers unauthorized.";
    let finding = DoctorFinding::notice("no pull secret for the registry of the OS image", means)
        .with_evidence(file, said)
        .next(format!("mco-rescue verify{}", evidence.at_root()));
    Some(from_medium(evidence, finding))
}

/// Reports a first boot that waits for its pull.
fn find_waiting_pull(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let units = evidence.units.get()?;
    let at_work = |unit: &&UnitActivity| unit.name == FIRST_BOOT_PULL && unit.is_at_work();
    let unit = units.iter().find(at_work)?;
    let means =
        "The first boot pulls the operator's image again and again, and the kubelet waits for it.";
    Some(
        DoctorFinding::critical("the first boot waits for an image", means)
            .with_evidence(unit.name.clone(), format!("{} ({})", unit.active, unit.sub))
            .next(format!("journalctl -b -u {FIRST_BOOT_PULL} -n 20"))
            .next("mco-rescue firstboot --complete --os-from DIR"),
    )
}
