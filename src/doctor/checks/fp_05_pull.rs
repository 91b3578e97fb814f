//! FP-05: the OS image cannot be pulled.

use crate::doctor::evidence::{Pull, Refusal};
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::images::auth::Credentials;
use crate::images::pull::Trace;
use crate::node::{FIRST_BOOT_PULL, UnitActivity};
use crate::paths;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-05",
    title: "the OS image cannot be pulled",
    looks_at: "mirrors, pull secret and signature policy for the recorded image; the pull of a first boot",
    explain: "To change its OS the node pulls an image, from the first mirror in /etc/containers/registries.conf that \
has it, with the entry of the pull secret for that place, and if /etc/containers/policy.json allows it. One of the \
three is wrong more often than the network. At a first boot the pull is tried again every second without end.\n\n\
The registry itself is not asked here. podman pull --authfile /var/lib/kubelet/config.json IMAGE shows what it says.\n\n\
Without a registry: copy the image elsewhere with skopeo copy --all --preserve-digests docker://IMAGE oci:DIR, carry DIR \
to the node, and mco-rescue pivot IMAGE --os-from DIR. The digest must be the very one that the config names; the \
policy on disk is never weakened for it.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let pull = match evidence.pull.seen() {
        Ok(Some(pull)) => pull,
        Ok(None) => return Verdict::healthy().and(waiting(evidence)),
        Err(why) => return Verdict::unseen(format!("how the image would be pulled: {why}")),
    };
    let severity = match needed(evidence, pull) {
        Some(true) => Severity::Critical,
        _ => Severity::Warning,
    };
    let verdict = Verdict::healthy().and(waiting(evidence));
    match obstacle(evidence, pull) {
        Some(refusal) => verdict.and([refused(pull, severity, refusal)]),
        None if severity == Severity::Critical => {
            let asked = pull
                .trace
                .as_ref()
                .ok()
                .and_then(|trace| trace.asked().next());
            let place = asked.map_or_else(|| pull.image.clone(), |source| source.name.clone());
            let verdict = verdict.and(anonymous(pull));
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
    let of = |place: String, words: String| Refusal {
        next: format!("vi {}", evidence.path(&place)),
        place,
        words,
    };
    if let Some(words) = trace.blocked() {
        let table = trace.table.as_ref().map(|(_, file)| file.clone());
        let place = match trace.ruling.rejects() {
            true => format!("/{}", paths::POLICY),
            false => table.unwrap_or_else(|| format!("/{}", paths::REGISTRIES)),
        };
        return Some(of(place, words));
    }
    let problem = trace.secrets_problem.clone()?;
    Some(of(trace.secrets.clone().unwrap_or_default(), problem))
}

fn refused(pull: &Pull, severity: Severity, refusal: Refusal) -> Finding {
    let means = match severity {
        Severity::Critical => {
            "The image that the node needs cannot be pulled, whatever the network does. With the image on a medium: \
             mco-rescue pivot --os-from DIR."
        }
        _ => "Nothing needs it now. The next update will fail on it, whatever the network does.",
    };
    Finding::new(severity, "the OS image cannot be pulled", means)
        .seen(refusal.place, refusal.words)
        .seen("image", pull.image.clone())
        .seen_all(pull.trace.iter().flat_map(decisions))
        .next(refusal.next)
        .next("mco-rescue pivot --os-from DIR")
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

fn anonymous(pull: &Pull) -> Option<Finding> {
    let trace = pull.trace.as_ref().ok()?;
    let source = trace
        .asked()
        .find(|source| source.credentials == Credentials::None)?;
    let file = trace
        .secrets
        .clone()
        .unwrap_or_else(|| "(no pull secret)".to_owned());
    let means =
        "The registry is asked without credentials. If it is not public, it answers unauthorized.";
    Some(
        Finding::new(
            Severity::Notice,
            "no pull secret for the place of the OS image",
            means,
        )
        .seen(file, format!("has no entry for {}", source.name))
        .next("mco-rescue pivot --os-from DIR"),
    )
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
