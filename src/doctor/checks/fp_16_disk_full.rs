//! FP-16: no room on the disk of the OS and of the node's data.

use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::space::{MIN_FREE_PERCENT, Space};
use crate::report::count;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-16",
    title: "the disk is full",
    looks_at: "room on the disk of /sysroot and /var",
    explain: "On a CoreOS node one disk holds the repository of the OS, the container images, the logs and the node's \
data. ostree leaves 3 % of it free and refuses a pull that would take them; below 10 % the kubelet evicts pods; at 0 \
no file can be written, not even one that would make room.\n\n\
What may go, in this order: old logs (journalctl --vacuum-size=500M), images that no container uses (crictl rmi \
--prune), packages metadata (rpm-ostree cleanup -m), deployments left behind (doctor FP-13 says what holds them). \
rpm-ostree cleanup -r takes the way back along: last of all.",
    judge,
};

/// Below this share of the disk the kubelet evicts, by its defaults.
const EVICTION_PERCENT: u64 = 10;
/// Less than this is nothing.
const NOTHING: u64 = 4 << 20;
const MIB: u64 = 1 << 20;

fn judge(evidence: &Evidence) -> Verdict {
    match evidence.disk.seen() {
        Ok(space) if space.total == 0 => Verdict::unseen("the disk: it does not tell its size"),
        Ok(space) => Verdict::healthy().and(found(evidence, space)),
        Err(why) => Verdict::unseen(format!("room on the disk: {why}")),
    }
}

fn found(evidence: &Evidence, space: &Space) -> Option<Finding> {
    let below = |percent: u64, bytes: u64| bytes < space.total / 100 * percent;
    let refused = format!("min-free-space-percent '{MIN_FREE_PERCENT}%' would be exceeded");
    let (severity, what, says, means) = if space.free < NOTHING {
        let means = "Nothing can be written: no log, no config, no image. What runs fails at its next write.";
        let says = "No space left on device".to_owned();
        (Severity::Critical, "the disk is full", Some(says), means)
    } else if below(MIN_FREE_PERCENT, space.free) {
        let means = "No image of the OS can be pulled, and the kubelet evicts pods.";
        (
            Severity::Critical,
            "the disk is all but full",
            Some(refused),
            means,
        )
    } else if below(EVICTION_PERCENT, space.available) {
        let means = "The kubelet evicts pods below 10 %, and another image of the OS may not fit.";
        (Severity::Warning, "the disk is nearly full", None, means)
    } else {
        return None;
    };
    let place = match evidence.deployments.get() {
        Some(_) => "/sysroot",
        None => "/var",
    };
    let (free, total) = (space.free / MIB, space.total / MIB);
    let finding = Finding::new(severity, what, means);
    Some(commands(
        evidence,
        finding
            .seen(place, format!("{free} MiB of {total} MiB are free"))
            .seen_all(left_behind(evidence))
            .daemon(says),
    ))
}

fn commands(evidence: &Evidence, finding: Finding) -> Finding {
    if !evidence.live {
        return finding.next(format!(
            "journalctl --root={} --vacuum-size=500M",
            evidence.upkeep.directory
        ));
    }
    finding
        .next("journalctl --vacuum-size=500M")
        .next("crictl rmi --prune")
        .next("rpm-ostree cleanup -m")
}

fn left_behind(evidence: &Evidence) -> Option<crate::doctor::Fact> {
    let deployed = evidence.deployments.get()?.iter();
    let number = deployed.filter(|one| one.known == Some(false)).count();
    let said = format!(
        "{} that rpm-ostree does not know",
        count(number, "deployment")
    );
    (number > 0).then(|| crate::doctor::Fact::new("/sysroot/ostree/deploy", said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Look;

    #[test]
    fn each_limit_has_its_own_severity() {
        for (free, severity) in [
            (0, Some(Severity::Critical)),
            (20, Some(Severity::Critical)),
            (60, Some(Severity::Warning)),
            (120, None),
        ] {
            let space = Space {
                total: 1000 * MIB,
                free: free * MIB,
                available: free * MIB,
            };
            let evidence = Evidence {
                disk: Look::Seen(space),
                ..Evidence::default()
            };
            let worst = judge(&evidence).findings.first().map(|one| one.severity);
            assert_eq!(worst, severity, "{free}");
        }
    }
}
