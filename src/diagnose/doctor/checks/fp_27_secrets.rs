//! FP-27: pull secrets and authorities that several writers maintain.

use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::judge::drift::{Drift, DriftKind};
use crate::node::images::auth::Secrets;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-27",
    title: "pull secrets and authorities with several writers",
    looks_at: "the files with registry credentials, and those that the daemon writes itself",
    explain: "The pull secret (/var/lib/kubelet/config.json) is part of the rendered config, and the cluster changes it \
there. One entry whose auth is not the base64 of USER:PASSWORD makes the whole file useless for the kubelet and oc. If it is edited on the node, the daemon goes Degraded (\"content mismatch\"). rpm-ostree uses the first \
of /run/ostree/auth.json, /etc/ostree/auth.json and the kubelet's: a stale copy in the first two wins.\n\n\
The kubelet's authority (/etc/kubernetes/kubelet-ca.crt), the cloud's bundle, the registries' certificates and the \
secret of the internal registry have another writer: the daemon, while it runs, outside the config. The daemon neither compares \
nor reverts them, and mco-rescue writes them only if they are missing.",
    judge: judge_secrets,
};

/// The pull secret of the rendered config, which people and operators also edit.
const RENDERED: &str = "/var/lib/kubelet/config.json";

fn judge_secrets(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = match evidence.upkeep.secrets.seen() {
        Ok(secrets) => CheckVerdict::healthy()
            .and_findings(find_unusable_secrets(evidence, secrets))
            .and_findings(find_unusable_entries(evidence, secrets)),
        Err(why) => CheckVerdict::not_seen(format!("pull secrets: {why}")),
    };
    let drifts = evidence
        .compared
        .get()
        .map(|compared| compared.drifts.as_slice());
    let drifts = drifts.unwrap_or_default();
    verdict
        .and_findings(find_edited_secrets(evidence, drifts))
        .and_findings(find_missing_secrets(evidence, drifts))
}

fn find_unusable_secrets(evidence: &DoctorEvidence, secrets: &[Secrets]) -> Option<DoctorFinding> {
    let of_pull = |secret: &&Secrets| {
        let file = secret.file.as_deref().unwrap_or_default();
        paths::PULL_SECRETS.contains(&file.trim_start_matches('/'))
    };
    let fact = |secret: &Secrets| {
        let place = secret.file.clone().unwrap_or_default();
        let why = match &secret.problem {
            Some(why) => why.clone(),
            // The internal registry's secret may be empty.
            None if secret.is_empty() && of_pull(&secret) => "it has no entry".to_owned(),
            None => return None,
        };
        Some(Fact::new(place, why))
    };
    let facts: Vec<Fact> = secrets.iter().filter_map(fact).collect();
    let first = facts.first()?.place.clone();
    let aside = put_aside(evidence, secrets, &facts);
    let means = "A pull with this file fails at a registry that wants credentials. rpm-ostree \
uses the first that exists, the kubelet its own.";
    Some(
        DoctorFinding::warning("a pull secret cannot be used", means)
            .seen_all(facts)
            .next(format!("mco-rescue verify{}", evidence.at_root()))
            .next(format!("ls -l {}", evidence.shell_path(&first)))
            .fixed_by(aside),
    )
}

/// Reports unusable entries, without their values.
fn find_unusable_entries(evidence: &DoctorEvidence, secrets: &[Secrets]) -> Option<DoctorFinding> {
    let of_file = |secret: &Secrets| {
        let place = secret.file.clone().unwrap_or_default();
        let faults = secret.faults.iter();
        let facts = faults.map(|one| Fact::new(&place, format!("{:?}: {}", one.key, one.said)));
        facts.collect::<Vec<Fact>>()
    };
    let facts: Vec<Fact> = secrets.iter().flat_map(of_file).collect();
    let first = facts.first()?.place.clone();
    let is_kubelets = |secret: &&Secrets| secret.file.as_deref() == Some(RENDERED);
    let mut kubelets = secrets
        .iter()
        .filter(is_kubelets)
        .flat_map(|secret| &secret.faults);
    let means = if kubelets.any(|one| one.stops_kubelet) {
        "Because of it, the kubelet and oc reject the whole file: the good entries are lost, too, and registries that want \
credentials refuse every pull. The entry comes from the cluster's secret."
    } else {
        "A registry that wants credentials refuses pulls for this name."
    };
    let what = "an entry of a pull secret cannot be used";
    let finding = DoctorFinding::warning(what, means).seen_all(facts);
    Some(if first == RENDERED {
        finding.next("oc edit secret pull-secret -n openshift-config")
    } else {
        finding.next(format!("ls -l {}", evidence.shell_path(&first)))
    })
}

/// Returns the changes that move unusable files aside, if the kubelet's file, which is used next, is valid.
fn put_aside(evidence: &DoctorEvidence, secrets: &[Secrets], facts: &[Fact]) -> Vec<FixChange> {
    let is_kubelets = |secret: &&Secrets| secret.file.as_deref() == Some(RENDERED);
    let good = secrets.iter().find(is_kubelets);
    let good = good.is_some_and(|secret| secret.problem.is_none() && !secret.is_empty());
    let is_before = |fact: &Fact| {
        let file = fact.place.trim_start_matches('/');
        let place = paths::PULL_SECRETS.iter().position(|path| *path == file);
        let kubelets = paths::PULL_SECRETS
            .iter()
            .position(|path| *path == RENDERED.trim_start_matches('/'));
        place.is_some() && place < kubelets && !evidence.is_of_config(&fact.place)
    };
    if good && facts.iter().all(is_before) {
        facts
            .iter()
            .map(|fact| FixChange::move_aside(&fact.place))
            .collect()
    } else {
        Vec::new()
    }
}

fn find_edited_secrets(evidence: &DoctorEvidence, drifts: &[Drift]) -> Option<DoctorFinding> {
    let content = |drift: &&Drift| drift.subject == RENDERED && drift.kind == DriftKind::Content;
    let drift = drifts.iter().find(content)?;
    let means = "The cluster's pull secret is part of the rendered config. Edits on the node are reverted \
by the next apply. To keep them, change the cluster's secret: oc edit secret pull-secret -n openshift-config.";
    Some(
        DoctorFinding::notice("the pull secret was changed on the node", means)
            .with_evidence(RENDERED, &drift.detail)
            .with_message(drift.daemon.clone())
            .next(format!("mco-rescue apply{}", evidence.at_root())),
    )
}

fn find_missing_secrets(evidence: &DoctorEvidence, drifts: &[Drift]) -> Option<DoctorFinding> {
    let exempt = |drift: &&Drift| {
        let path = drift.subject.trim_start_matches('/');
        paths::EXEMPT.contains(&path) && drift.kind == DriftKind::Missing
    };
    let facts: Vec<Fact> = drifts
        .iter()
        .filter(exempt)
        .map(|drift| Fact::new(&drift.subject, &drift.detail))
        .collect();
    let kubelet = facts
        .iter()
        .any(|fact| fact.place.ends_with("kubelet-ca.crt"));
    let (severity, means) = if kubelet {
        (
            CheckSeverity::Critical,
            "The kubelet does not start without its authority, and without the kubelet the daemon cannot write it.",
        )
    } else {
        (
            CheckSeverity::Warning,
            "The daemon writes these once it runs.",
        )
    };
    (!facts.is_empty()).then(|| {
        DoctorFinding::new(
            severity,
            "files are missing that the daemon writes itself",
            means,
        )
        .seen_all(facts)
        .next(format!("mco-rescue apply{}", evidence.at_root()))
    })
}
