//! FP-05: the OS image cannot be pulled.

use crate::command::systemctl::UnitActivity;
use crate::doctor::evidence::{Pull, Refusal};
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::images::auth::Credentials;
use crate::images::pull::Trace;
use crate::node::FIRST_BOOT_PULL;
use crate::paths;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-05",
    title: "the OS image cannot be pulled",
    looks_at: "mirrors, credentials and signature policy for the recorded image; the pull of a first boot",
    explain: "To change its OS the node pulls an image, from the first mirror in /etc/containers/registries.conf that \
has it, with the entry of the pull secret for that place, and if /etc/containers/policy.json allows it. One of the \
three is wrong more often than the network. A pull secret that cannot be used at all is told as FP-27. At a first boot \
the pull is tried again every second without end. A system that boots no images pulls none, and is not judged.\n\n\
The registry itself is not asked here. podman pull --authfile /var/lib/kubelet/config.json IMAGE shows what it says.\n\n\
Without a registry: copy the image elsewhere with skopeo copy --all --preserve-digests docker://IMAGE oci:DIR, carry DIR \
to the node, and mco-rescue pivot IMAGE --os-from DIR. The digest must be the very one that the config names; the \
policy on disk is never weakened for it.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(waiting(evidence));
    let pull = match evidence.pull.seen() {
        Ok(Some(pull)) if evidence.boots_images => pull,
        Ok(_) => return verdict,
        Err(why) => return verdict.and_unseen(format!("how the image would be pulled: {why}")),
    };
    let severity = match needed(evidence, pull) {
        Some(true) => Severity::Critical,
        _ => Severity::Warning,
    };
    match obstacle(evidence, pull) {
        Some(refusal) => verdict.and([refused(evidence, pull, severity, refusal)]),
        None if severity == Severity::Critical => {
            let asked = pull
                .trace
                .as_ref()
                .ok()
                .and_then(|trace| trace.asked().next());
            let place = asked.map_or_else(|| pull.image.clone(), |source| source.name.clone());
            let verdict = verdict.and(anonymous(evidence, pull));
            verdict.and_unseen(format!(
                "whether the image can be had now: podman pull {place}"
            ))
        }
        None => verdict,
    }
}

/// The wanted image does not run, and is not staged; nothing where that is unknown.
fn needed(evidence: &Evidence, pull: &Pull) -> Option<bool> {
    let runs = evidence.image()?;
    let staged = evidence
        .facts()
        .ok()
        .and_then(|facts| facts.deployments.staged());
    Some(runs != pull.image && staged.is_none_or(|staged| staged.image() != pull.image))
}

/// What stops every pull of it, and where.
fn obstacle(evidence: &Evidence, pull: &Pull) -> Option<Refusal> {
    let trace = match &pull.trace {
        Ok(trace) => trace,
        Err(refusal) => return Some(refusal.clone()),
    };
    let words = trace.blocked()?;
    let table = trace.table.as_ref().map(|(_, file)| file.clone());
    let place = match trace.ruling.rejects() {
        true => format!("/{}", paths::POLICY),
        false => table.unwrap_or_else(|| format!("/{}", paths::REGISTRIES)),
    };
    Some(Refusal {
        next: format!("vi {}", evidence.path(&place)),
        place,
        words,
    })
}

fn refused(evidence: &Evidence, pull: &Pull, severity: Severity, refusal: Refusal) -> Finding {
    let means = match severity {
        Severity::Critical => {
            "The image that the node needs cannot be pulled, whatever the network does. From a medium it can be had on \
             the running node: mco-rescue pivot --os-from DIR."
        }
        _ => "Nothing needs it now. The next update will fail on it, whatever the network does.",
    };
    let finding = Finding::new(severity, "the OS image cannot be pulled", means)
        .seen(refusal.place, refusal.words)
        .seen("image", pull.image.clone())
        .seen_all(pull.trace.iter().flat_map(decisions))
        .next(refusal.next);
    from_medium(evidence, finding)
}

/// No OS is staged on a disk that does not run.
fn from_medium(evidence: &Evidence, finding: Finding) -> Finding {
    match evidence.live {
        true => finding.next("mco-rescue pivot --os-from DIR"),
        false => finding,
    }
}

fn decisions(trace: &Trace) -> Vec<Fact> {
    let source = |source: &crate::images::pull::Source| {
        let kind = if source.mirror { "mirror" } else { "origin" };
        let how = source
            .skipped
            .clone()
            .unwrap_or_else(|| "is asked".to_owned());
        Fact::new(format!("{kind} {}", source.name), how)
    };
    trace.sources.iter().map(source).collect()
}

/// A file that cannot be used, or has no entry at all, is told as FP-27.
fn anonymous(evidence: &Evidence, pull: &Pull) -> Option<Finding> {
    let trace = pull.trace.as_ref().ok()?;
    if trace.secrets_problem.is_some() || trace.secrets_empty {
        return None;
    }
    let source = trace
        .asked()
        .find(|source| source.credentials == Credentials::None)?;
    let secret = format!("/{}", paths::PULL_SECRETS[2]);
    let (file, said) = match &trace.secrets {
        Some(file) => (file.clone(), format!("has no entry for {}", source.name)),
        None => (
            secret,
            "is missing, and nothing stands in for it".to_owned(),
        ),
    };
    let means =
        "The registry is asked without credentials. If it is not public, it answers unauthorized.";
    let finding = Finding::new(
        Severity::Notice,
        "no pull secret for the place of the OS image",
        means,
    )
    .seen(file, said)
    .next(format!("mco-rescue verify{}", evidence.at_root()));
    Some(from_medium(evidence, finding))
}

/// The first boot goes no further until its pull works.
fn waiting(evidence: &Evidence) -> Option<Finding> {
    let units = evidence.units.get()?;
    let at_work = |unit: &&UnitActivity| unit.name == FIRST_BOOT_PULL && unit.is_at_work();
    let unit = units.iter().find(at_work)?;
    let means =
        "The first boot pulls the operator's image again and again, and the kubelet waits for it.";
    Some(
        Finding::new(
            Severity::Critical,
            "the first boot waits for an image",
            means,
        )
        .seen(unit.name.clone(), format!("{} ({})", unit.active, unit.sub))
        .next(format!("journalctl -b -u {FIRST_BOOT_PULL} -n 20"))
        .next("mco-rescue firstboot --complete --os-from DIR"),
    )
}
