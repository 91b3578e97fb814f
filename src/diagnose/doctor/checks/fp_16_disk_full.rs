//! FP-16: the disk of the OS and of the node's data has no space or no inodes left.

use super::fp_07_boot_full::as_facts as as_occupants;
use crate::base::text::count_noun;
use crate::diagnose::doctor::evidence::{DeployedTree, DiskEvidence};
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::space::{MIN_FREE_PERCENT, Space};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-16",
    title: "the disk is full",
    looks_at: "free space and inodes on the disks of /sysroot and of /var",
    explain: "On a CoreOS node one disk holds the repository of the OS, the container images, the logs and the node's \
data; if /var has its own disk, that is checked as well. ostree leaves 3 % free and refuses a pull that \
would use them. Below 10 % the kubelet evicts pods. At 0 no file can be written.\n\n\
A file system can also run out of inodes, of which every file uses one. Programs then report \"No space left on \
device\" while df shows free space: df -i shows the inodes.\n\n\
To free space, in this order: old logs (journalctl --vacuum-size=500M), images that no container uses (crictl rmi \
--prune), packages metadata (rpm-ostree cleanup -m), old deployments (doctor FP-13 shows what blocks their removal). \
Last of all rpm-ostree cleanup -r: it removes the rollback deployment. The largest files and directories of /var are \
named, without the container images: no clean-up removes a foreign file.",
    judge: judge_disk_full,
};

/// Percentage of free inodes below which the kubelet evicts pods, by its defaults.
const EVICTION_INODES_PERCENT: u64 = 5;
/// Number of free bytes below which the disk counts as full.
const NOTHING: u64 = 4 << 20;
/// Number of free inodes below which the disk counts as full.
const NO_FILES: u64 = 64;
const MIB: u64 = 1 << 20;

fn judge_disk_full(evidence: &DoctorEvidence) -> CheckVerdict {
    let disks = match evidence.disks.seen() {
        Ok(disks) => disks,
        Err(why) => return CheckVerdict::not_seen(format!("free space: {why}")),
    };
    let silent = disks.iter().filter(|disk| disk.space.total == 0);
    silent.fold(
        CheckVerdict::healthy().and_findings(find_full_disks(evidence, disks)),
        |all, disk| {
            all.and_unseen(format!(
                "free space on {}: the file system reports no size",
                disk.place
            ))
        },
    )
}

/// A shortage of a disk.
struct Want {
    severity: CheckSeverity,
    what: &'static str,
    says: Option<String>,
    means: &'static str,
    inodes: bool,
}

/// Reports the worst shortage, with every disk that has one as evidence.
fn find_full_disks(evidence: &DoctorEvidence, disks: &[DiskEvidence]) -> Option<DoctorFinding> {
    let wanting = disks
        .iter()
        .filter_map(|disk| Some((disk, worst_shortage(disk)?)));
    let wanting: Vec<(&DiskEvidence, Want)> = wanting.collect();
    let (disk, worst) = wanting.iter().min_by_key(|(_, want)| want.severity)?;
    let facts = wanting.iter().flat_map(|(disk, _)| as_facts(disk));
    let finding = DoctorFinding::new(worst.severity, worst.what, worst.means)
        .seen_all(facts)
        .seen_all(
            wanting
                .iter()
                .flat_map(|(disk, want)| list_occupants(disk, want)),
        )
        .seen_all(left_behind(evidence))
        .with_message(worst.says.clone());
    Some(add_commands(evidence, finding, disk, worst))
}

/// Returns the worst shortage of a disk; bytes come first, because inodes are useless without them.
fn worst_shortage(disk: &DiskEvidence) -> Option<Want> {
    let wants = [bytes_short(disk), inodes_short(&disk.space)]
        .into_iter()
        .flatten();
    wants.min_by_key(|want| want.severity)
}

fn bytes_short(disk: &DiskEvidence) -> Option<Want> {
    let space = &disk.space;
    let below = |percent: u64, bytes: u64| bytes < space.total / 100 * percent;
    let want = |severity, what, says, means| {
        Some(Want {
            severity,
            what,
            says,
            means,
            inodes: false,
        })
    };
    if space.total == 0 {
        None
    } else if space.free < NOTHING {
        let means = "Nothing can be written: no log, no config, no image. Programs fail at their next write.";
        want(
            CheckSeverity::Critical,
            "the disk is full",
            no_space(),
            means,
        )
    } else if disk.of_the_os && below(MIN_FREE_PERCENT, space.free) {
        let refused = format!("min-free-space-percent '{MIN_FREE_PERCENT}%' would be exceeded");
        let means = "No image of the OS can be pulled, and the kubelet evicts pods.";
        want(
            CheckSeverity::Critical,
            "the disk is almost full",
            Some(refused),
            means,
        )
    } else if space.is_low() {
        let means = "The kubelet evicts pods below 10 %, and another image of the OS may not fit.";
        want(
            CheckSeverity::Warning,
            "the disk is nearly full",
            None,
            means,
        )
    } else {
        None
    }
}

fn inodes_short(space: &Space) -> Option<Want> {
    let want = |severity, what, says, means| {
        Some(Want {
            severity,
            what,
            says,
            means,
            inodes: true,
        })
    };
    if space.inodes == 0 {
        None
    } else if space.free_inodes < NO_FILES {
        let means = "No file can be created, although there may be free space: no log, no config, no image.";
        want(
            CheckSeverity::Critical,
            "the disk has no inodes left",
            no_space(),
            means,
        )
    } else if space.free_inodes < space.inodes / 100 * EVICTION_INODES_PERCENT {
        let means = "The kubelet evicts pods below 5 %. Without inodes no file can be created, even with free space.";
        want(
            CheckSeverity::Warning,
            "the disk has few inodes left",
            None,
            means,
        )
    } else {
        None
    }
}

fn no_space() -> Option<String> {
    Some("No space left on device".to_owned())
}

/// Returns the free space, and the free inodes if they are short.
fn as_facts(disk: &DiskEvidence) -> Vec<Fact> {
    let space = &disk.space;
    let [free, available, total] = [space.free, space.available, space.total].map(|all| all / MIB);
    let mut room = format!("{available} MiB of {total} MiB are free");
    if free > available {
        room.push_str(&format!(", for root {free} MiB"));
    }
    let mut facts = vec![Fact::new(disk.place, room)];
    if inodes_short(space).is_some() {
        let said = format!("{} of {} inodes are free", space.free_inodes, space.inodes);
        facts.push(Fact::new(disk.place, said));
    }
    facts
}

/// Returns the largest consumers of space on a disk that is short of bytes.
fn list_occupants(disk: &DiskEvidence, want: &Want) -> Vec<Fact> {
    match (want.inodes, disk.largest.seen()) {
        (true, _) => Vec::new(),
        (false, Ok(largest)) => as_occupants(largest, "in /var"),
        (false, Err(why)) => vec![Fact::new("the largest files of /var", why)],
    }
}

fn add_commands(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    disk: &DiskEvidence,
    want: &Want,
) -> DoctorFinding {
    let directory = evidence.shell_path(&format!("{}/", disk.place));
    let many = format!("du --inodes -xS {directory} | sort -n | tail");
    let finding = match (evidence.live, want.inodes) {
        (true, false) => finding
            .next("journalctl --vacuum-size=500M")
            .next("crictl rmi --prune")
            .next("rpm-ostree cleanup -m"),
        (true, true) => finding.next("crictl rmi --prune").next(many),
        (false, false) => {
            let journal = journal_path(evidence);
            finding.next(format!("journalctl -D {journal} --vacuum-size=500M"))
        }
        (false, true) => finding.next(many),
    };
    let first = disk.largest.get().and_then(|all| all.occupants.first());
    match first.filter(|_| !want.inodes) {
        Some(first) => finding.next(format!(
            "ls -lh {}",
            evidence.shell_path(&first.path.to_string())
        )),
        None => finding,
    }
}

/// Returns the path of the journal on a disk that is not running.
fn journal_path(evidence: &DoctorEvidence) -> String {
    let own = |one: &&DeployedTree| evidence.deployment.as_ref() == Some(&one.directory.name);
    let mut all = evidence.deployments.get().into_iter().flatten();
    let own = all.find(own).filter(|_| evidence.upkeep.var_missing);
    let stateroot = own.and_then(|one| one.directory.path.parent()?.parent());
    let var = stateroot.map_or_else(|| "/var".to_owned(), |stateroot| format!("{stateroot}/var"));
    evidence.shell_path(&format!("{var}/log/journal"))
}

fn left_behind(evidence: &DoctorEvidence) -> Option<Fact> {
    let deployed = evidence.deployments.get()?.iter();
    let number = deployed.filter(|one| one.known == Some(false)).count();
    let said = format!(
        "{} that rpm-ostree does not list",
        count_noun(number, "deployment")
    );
    (number > 0).then(|| Fact::new("/sysroot/ostree/deploy", said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::Look;

    fn worst(disks: Vec<DiskEvidence>) -> Option<(CheckSeverity, &'static str)> {
        let evidence = DoctorEvidence {
            disks: Look::Seen(disks),
            ..DoctorEvidence::default()
        };
        let findings = judge_disk_full(&evidence).findings;
        let first = findings.into_iter().next()?;
        let place = first.evidence[0].place.clone();
        Some((
            first.severity,
            if place == "/var" { "/var" } else { "/sysroot" },
        ))
    }

    fn disk(place: &'static str, free: u64, free_inodes: u64) -> DiskEvidence {
        DiskEvidence {
            place,
            of_the_os: place == "/sysroot",
            space: Space {
                total: 1000 * MIB,
                free: free * MIB,
                available: free * MIB,
                inodes: 10_000,
                free_inodes,
                ..Space::default()
            },
            largest: Look::default(),
        }
    }

    #[test]
    fn each_limit_has_its_own_severity() {
        for (free, inodes, severity) in [
            (0, 9000, Some(CheckSeverity::Critical)),
            (20, 9000, Some(CheckSeverity::Critical)),
            (60, 9000, Some(CheckSeverity::Warning)),
            (60, 0, Some(CheckSeverity::Critical)),
            (120, 63, Some(CheckSeverity::Critical)),
            (120, 499, Some(CheckSeverity::Warning)),
            (120, 500, None),
        ] {
            let worst = worst(vec![disk("/sysroot", free, inodes)]);
            assert_eq!(worst.map(|one| one.0), severity, "{free} {inodes}");
        }
    }

    #[test]
    fn a_disk_for_var_is_judged_beside_that_of_the_os_and_by_its_own_limits() {
        let os = disk("/sysroot", 500, 9000);
        let var = |free| worst(vec![os.clone(), disk("/var", free, 9000)]);
        assert_eq!(var(500), None);
        assert_eq!(var(20), Some((CheckSeverity::Warning, "/var")));
        assert_eq!(var(0), Some((CheckSeverity::Critical, "/var")));
    }

    #[test]
    fn a_file_system_that_does_not_count_files_never_lacks_inodes() {
        let mut uncounted = disk("/sysroot", 500, 0);
        uncounted.space.inodes = 0;
        assert_eq!(worst(vec![uncounted]), None);
    }
}
