//! FP-22: annotations that are lost, or the file that they are made from.

use crate::daemon::start::{Annotation, Annotations, PREFIX};
use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::Recorded;
use crate::paths;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-22",
    title: "the node's annotations are lost or incomplete",
    looks_at: "node-annotations.json, its backup, the record, and what the API said last",
    explain: "The daemon goes by annotations of the Node object: currentConfig, desiredConfig. A Node that was deleted \
and made anew has none. Then the daemon takes them from /etc/machine-config-daemon/node-annotations.json, which it \
renamed after the first boot to node-annotation.json.bak (without the s), else from currentconfig, and that gives \
some of them only.\n\n\
While node-annotations.json exists the daemon takes the node for one in its first boot and ignores currentconfig.\n\n\
mco-rescue status --for-cluster prints the commands that put the annotations right once the API is back; mco-rescue \
apply writes the record anew.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(predicted(evidence));
    if !verdict.findings.is_empty() {
        return verdict;
    }
    match evidence.upkeep.annotations.seen() {
        Ok(Some(Ok(annotations))) => verdict.and(incomplete(evidence, annotations)),
        Ok(Some(Err(why))) => verdict.and([unreadable(evidence, why)]),
        Ok(None) => verdict.and(no_record(evidence)),
        Err(why) => verdict.and_unseen(format!("node-annotations.json: {why}")),
    }
}

fn file() -> String {
    format!("/{}", paths::NODE_ANNOTATIONS)
}

/// The daemon's own judgement, where the annotations are known.
fn predicted(evidence: &Evidence) -> Option<Finding> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let says = branch.prediction.error.as_ref()?;
    let means = "The daemon does not know where the node is, and stays Degraded.";
    (branch.known && says.contains("annotation not found")).then(|| {
        Finding::new(
            Severity::Critical,
            "the Node lacks annotations of the daemon",
            means,
        )
        .seen("the Node, as far as it is known", says)
        .daemon(Some(says.clone()))
        .next(format!(
            "mco-rescue status{} --for-cluster",
            evidence.at_root()
        ))
    })
}

fn unreadable(evidence: &Evidence, why: &str) -> Finding {
    let means = "The daemon takes the node for one in its first boot, and cannot read what it is to be. It stays \
Degraded.";
    Finding::new(
        Severity::Critical,
        "node-annotations.json cannot be read",
        means,
    )
    .seen(file(), why)
    .next(format!("cat {}", evidence.path(paths::NODE_ANNOTATIONS)))
    .next(format!(
        "mco-rescue status{} --for-cluster",
        evidence.at_root()
    ))
}

fn incomplete(evidence: &Evidence, annotations: &Annotations) -> Option<Finding> {
    let pairs = [
        ("currentConfig", &annotations.current),
        ("desiredConfig", &annotations.desired),
    ];
    let mut absent = pairs
        .iter()
        .filter(|(_, value)| **value == Annotation::Absent);
    if let Some((key, _)) = absent.next() {
        let means =
            "The daemon takes annotations from this file and misses this one. It stays Degraded.";
        let finding = Finding::new(
            Severity::Critical,
            format!("node-annotations.json has no {key}"),
            means,
        );
        return Some(
            finding
                .seen(file(), format!("{PREFIX}{key} is missing or empty"))
                .daemon(Some(format!("{PREFIX}{key} annotation not found on node")))
                .next(format!(
                    "mco-rescue status{} --for-cluster",
                    evidence.at_root()
                )),
        );
    }
    let record = evidence.recorded()?;
    let Annotation::Is(current) = &annotations.current else {
        return None;
    };
    let means = "While node-annotations.json exists the daemon ignores currentconfig, and writes it anew from the API.";
    (record != *current).then(|| {
        Finding::new(
            Severity::Warning,
            "the record is ignored, for another config",
            means,
        )
        .seen(file(), current)
        .seen(format!("/{}", paths::CURRENT_CONFIG), &record)
        .next(format!("mco-rescue status{}", evidence.at_root()))
        .next(format!("mco-rescue apply{}", evidence.at_root()))
    })
}

fn no_record(evidence: &Evidence) -> Option<Finding> {
    let records = evidence.records.get()?;
    let gone = matches!(records.current_config, Recorded::Missing) && records.first_boot_over;
    let means = "Nothing on the disk says which config the node is in. The daemon goes by the annotations of the Node \
alone; if that is made anew, nobody knows.";
    gone.then(|| {
        Finding::new(Severity::Warning, "the daemon's record is gone", means)
            .seen(format!("/{}", paths::CURRENT_CONFIG), "missing")
            .seen(
                format!("/{}", paths::NODE_ANNOTATIONS_KEPT),
                "the first boot is over",
            )
            .next(format!("mco-rescue plan{} CONFIG", evidence.at_root()))
            .next(format!("mco-rescue apply{} CONFIG", evidence.at_root()))
    })
}
