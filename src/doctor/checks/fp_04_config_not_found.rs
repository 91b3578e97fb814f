//! FP-04: a rendered config that is spoken of and cannot be found, or is not what its name says.

use crate::daemon::start::State;
use crate::doctor::evidence::{AtHand, Configs, Named};
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::node::{Recorded, Records};

/// The check.
pub const CHECK: Check = Check {
    id: "FP-04",
    title: "a rendered config cannot be found",
    looks_at: "annotations, daemon's log, record and cache: which config is spoken of, and who has it",
    explain: "The daemon asks the API for the config that the node is in and for the one that is wanted, by their \
names. If one was deleted, or the bootstrap rendered another one than the cluster, it is Degraded and says that a \
machineconfig was not found.\n\n\
The node itself often still has the contents: in its record, in what the Machine Config Server served at the first \
boot, or in the cache of mco-rescue. mco-rescue status --for-cluster prints the object for oc create, and the \
commands that tell the cluster where the node is.\n\n\
Whether the API has an object cannot be told without it: oc get mc NAME.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let configs = match evidence.configs.seen() {
        Ok(configs) => configs,
        Err(why) => return Verdict::unseen(format!("configs: {why}")),
    };
    let mut verdict = Verdict::healthy()
        .and(lost(evidence, configs))
        .and(altered(evidence, configs))
        .and(bootstrap(evidence))
        .and(degraded(evidence))
        .and(damaged(evidence, configs));
    if evidence.recorded().is_some() && configs.told.is_none() {
        verdict = verdict.and_unseen(format!(
            "what the cluster wants: nothing here tells it; oc describe node NAME, or {}",
            evidence.command("fetch")
        ));
    }
    verdict
}

fn lost(evidence: &Evidence, configs: &Configs) -> Option<Finding> {
    let wanted = |named: &&Named| named.role.starts_with("wanted") && named.at.is_empty();
    let lost = configs.named.iter().find(wanted)?;
    let means = "The node cannot go there without the API, and while the API lacks the object not with it either.";
    Some(
        Finding::new(
            Severity::Warning,
            "the wanted config is not on this node",
            means,
        )
        .seen(
            lost.place.clone(),
            format!("{} is {}", lost.name, lost.role),
        )
        .next(format!("mco-rescue fetch{}", evidence.at_root()))
        .next(format!("oc get mc {} -o yaml", lost.name)),
    )
}

/// A name that is not that of its contents: the hash in it is an accident check.
fn altered(evidence: &Evidence, configs: &Configs) -> Option<Finding> {
    let record = evidence.records.get().and_then(Records::recorded);
    // The record of a first boot has the right name and no contents.
    let emptied = |one: &AtHand| record.is_some_and(|it| it.emptied && it.name == one.name);
    let wrong = |one: &&AtHand| one.name_matches == Some(false) && !emptied(one);
    let wrong = configs.at_hand.iter().find(wrong)?;
    let means = "Somebody changed the contents without the name, or a copy was cut. The daemon trusts the name alone.";
    let says = format!(
        "{}: the hash in the name is not that of the contents",
        wrong.name
    );
    Some(
        Finding::new(
            Severity::Notice,
            "a config is not what its name says",
            means,
        )
        .seen(wrong.at.clone(), says)
        .next(format!("oc get mc {} -o yaml", wrong.name)),
    )
}

fn bootstrap(evidence: &Evidence) -> Option<Finding> {
    let means = "The bootstrap rendered another config than the cluster did. The daemon looks for the \
                 bootstrap's one, which the cluster never had.";
    evidence.first_boot_files.bootstrap_diff.then(|| {
        Finding::new(
            Severity::Warning,
            "the bootstrap's config is not the cluster's",
            means,
        )
        .seen(
            format!("/{}", crate::paths::BOOTSTRAP_DIFF),
            "the daemon wrote what differs",
        )
        .next(format!("cat /{}", crate::paths::BOOTSTRAP_DIFF))
        .next(format!(
            "mco-rescue status --for-cluster{}",
            evidence.at_root()
        ))
    })
}

/// What the daemon will say, but for what other checks tell better: the disk, the annotations, a record that cannot be
/// read, and a config that is refused.
fn degraded(evidence: &Evidence) -> Option<Finding> {
    let forecast = evidence.forecast.as_ref()?;
    let seen = &forecast
        .branches
        .first()
        .filter(|branch| branch.known)?
        .prediction;
    let words = seen.error.as_ref()?;
    let elsewhere = [
        "unexpected on-disk state",
        "extension package",
        "annotation not found",
        "initial annotations",
        "cannot stat /etc/kubernetes/kubeconfig",
    ];
    let told = elsewhere.iter().any(|part| words.contains(part));
    let record = evidence.records.get().map(|all| &all.current_config);
    let broken = matches!(record, Some(Recorded::Broken(_)));
    if told || broken || seen.state == State::Unreconcilable {
        return None;
    }
    let what = "the daemon will be Degraded when it starts";
    let means = "It takes no update until this is put right.";
    let because = seen.because.iter();
    let finding = Finding::new(Severity::Warning, what, means)
        .seen("annotations", forecast.told_words.clone())
        .seen_all(because.map(|because| Fact::new("at its start", because)))
        .daemon(Some(words.clone()));
    Some(finding.next(format!("mco-rescue status{}", evidence.at_root())))
}

fn damaged(evidence: &Evidence, configs: &Configs) -> Option<Finding> {
    let (place, why) = configs.damaged.first()?;
    let means = "It is never used. Fetch the config again while there is a network.";
    Some(
        Finding::new(Severity::Notice, "a config in the cache is damaged", means)
            .seen(place.clone(), why.clone())
            .next(evidence.command("cache list")),
    )
}
