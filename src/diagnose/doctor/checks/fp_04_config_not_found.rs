//! FP-04: a rendered config that is named somewhere but missing, or whose contents do not match its name.

use crate::diagnose::doctor::evidence::{ConfigRole, Configs, MentionedConfig, NamedConfig};
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::judge::daemon::start::State;
use crate::node::{RecordReader, Records};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-04",
    title: "a rendered config cannot be found",
    looks_at: "annotations, daemon's log, record and cache: named configs, and where a copy is",
    explain: "The daemon asks the API for the current and the desired config of the node, by their \
names. If one was deleted, or the bootstrap rendered a different one than the cluster, it is Degraded and reports \
that a machineconfig was not found.\n\n\
The node itself often still has the contents: in its record, in the config that the Machine Config Server served at \
the first boot, or in the cache of mco-rescue. mco-rescue status --for-cluster prints the object for oc create, and the \
commands that put the node's state into the cluster.\n\n\
Only the API can show if it has an object: oc get mc NAME.",
    judge: judge_config_not_found,
};

fn judge_config_not_found(evidence: &DoctorEvidence) -> CheckVerdict {
    let configs = match evidence.configs.seen() {
        Ok(configs) => configs,
        Err(why) => return CheckVerdict::not_seen(format!("configs: {why}")),
    };
    let mut verdict = CheckVerdict::healthy()
        .and_findings(find_lost_config(evidence, configs))
        .and_findings(find_altered_config(evidence, configs))
        .and_findings(find_bootstrap_config(evidence))
        .and_findings(find_degraded_daemon(evidence))
        .and_findings(find_damaged_entry(evidence, configs));
    if let Err(why) = evidence.first_boot_files.bootstrap_diff.seen() {
        verdict = verdict.and_unseen(format!("a config of the bootstrap that differs: {why}"));
    }
    if evidence.recorded_name().is_some() && configs.told.is_none() {
        verdict = verdict.and_unseen(format!(
            "the desired config: no source here names it; oc describe node NAME, or {}",
            evidence.own_command("fetch")
        ));
    }
    verdict
}

fn find_lost_config(evidence: &DoctorEvidence, configs: &Configs) -> Option<DoctorFinding> {
    let wanted =
        |named: &&MentionedConfig| named.role == ConfigRole::Desired && named.at.is_empty();
    let lost = configs.named.iter().find(wanted)?;
    let means = "The node can get it only from the API, and only if the API still has the object.";
    Some(
        DoctorFinding::warning("the desired config is not on this node", means)
            .with_evidence(
                lost.place.clone(),
                format!("{} is {}", lost.name, lost.role),
            )
            .next(format!("mco-rescue fetch{}", evidence.at_root()))
            .next(format!("oc get mc {} -o yaml", lost.name)),
    )
}

/// Reports a config whose contents do not match the hash in its name; the hash guards against accidents only.
fn find_altered_config(evidence: &DoctorEvidence, configs: &Configs) -> Option<DoctorFinding> {
    let record = evidence.records.get().and_then(Records::recorded_config);
    // The record of a first boot has the right name but no contents.
    let emptied = |one: &NamedConfig| record.is_some_and(|it| it.emptied && it.name == one.name);
    let wrong = |one: &&NamedConfig| one.name_matches == Some(false) && !emptied(one);
    let wrong = configs.available.iter().find(wrong)?;
    let means = "The contents were changed without the name, or a copy is incomplete. The daemon trusts the name alone.";
    let says = format!(
        "{}: the hash in the name does not match the contents",
        wrong.name
    );
    Some(
        DoctorFinding::notice("a config does not match its name", means)
            .with_evidence(wrong.at.clone(), says)
            .next(format!("oc get mc {} -o yaml", wrong.name)),
    )
}

fn find_bootstrap_config(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let means = "The bootstrap rendered a different config than the cluster. The daemon looks for the \
                 bootstrap's config, which the cluster never contained.";
    let differs = evidence.first_boot_files.bootstrap_diff.get() == Some(&true);
    differs.then(|| {
        DoctorFinding::warning("the bootstrap's config is not the cluster's", means)
            .with_evidence(
                format!("/{}", crate::base::paths::BOOTSTRAP_DIFF),
                "the daemon wrote what differs",
            )
            .next(format!(
                "cat {}",
                evidence.shell_path(crate::base::paths::BOOTSTRAP_DIFF)
            ))
            .next(format!(
                "mco-rescue status --for-cluster{}",
                evidence.at_root()
            ))
    })
}

/// Reports that the daemon will be Degraded, unless another check covers the cause: the disk, the annotations,
/// a record that cannot be read, a refused config.
fn find_degraded_daemon(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let forecast = evidence.forecast.as_ref()?;
    let seen = &forecast
        .branches
        .first()
        .filter(|branch| branch.known)?
        .prediction;
    let words = seen.error.as_ref()?;
    let elsewhere = [
        messages::ON_DISK_STATE,
        messages::EXTENSIONS,
        messages::NO_ANNOTATION,
        messages::INITIAL_ANNOTATIONS,
        messages::NO_KUBECONFIG,
    ];
    let told = elsewhere.iter().any(|part| words.contains(part));
    let reader = evidence.records.get().map(|all| &all.reader);
    let broken = reader.is_some_and(|reader| *reader != RecordReader::Same);
    if told || broken || seen.state == State::Unreconcilable {
        return None;
    }
    let what = "the daemon will be Degraded when it starts";
    let means = "It applies no update until this is fixed.";
    let because = seen.because.iter();
    let finding = DoctorFinding::warning(what, means)
        .with_evidence("annotations", forecast.told_words.clone())
        .seen_all(because.map(|because| Fact::new("at its start", because)))
        .with_message(Some(words.clone()));
    Some(finding.next(format!("mco-rescue status{}", evidence.at_root())))
}

fn find_damaged_entry(evidence: &DoctorEvidence, configs: &Configs) -> Option<DoctorFinding> {
    let (place, why) = configs.damaged.first()?;
    let means = "It is never used. Fetch the config again while the network works.";
    Some(
        DoctorFinding::notice("a config in the cache is damaged", means)
            .with_evidence(place.clone(), why.clone())
            .next(evidence.own_command("cache list")),
    )
}
