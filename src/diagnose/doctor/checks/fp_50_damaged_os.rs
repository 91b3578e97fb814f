//! FP-50: damaged objects of the OS, or a damaged kernel in `/boot`.

use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::node::boot_kernels::{BootFile, BootKernel, KernelSums};
use crate::node::ostree_repository::{DamagedObject, ObjectFault, OstreeRepository, REPOSITORY};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-50",
    title: "the OS on the disk or the kernel in /boot is damaged",
    looks_at: "kernels in /boot against their deployments, commits in the ostree repository; all of it with --deep",
    explain: "A power cut during an update, or a bad disk, leaves files empty or changed. The kernel and the initramfs of a boot entry \
are copies in /boot of files of the deployment. The name of their directory ends with their checksum.\n\n\
Without --deep the sizes are compared, and the first objects of each bootable commit are hashed. With --deep the kernels and all objects \
of these commits are hashed, which reads the whole OS once; ostree fsck does the same for all commits.\n\n\
A damaged object is harmless until an update links or reads it. A pull does not replace an object that exists: move it away \
first, then pull the same image again, or ostree pull-local from the repository of another node with the same OS. Never use ostree \
fsck --delete here: it removes what the OS still uses.",
    judge: judge_damaged_os,
};

fn judge_damaged_os(evidence: &DoctorEvidence) -> CheckVerdict {
    let mut verdict = CheckVerdict::healthy();
    let mut skipped = Vec::new();
    match evidence.boot_kernels.seen() {
        Ok(kernels) => {
            for kernel in kernels {
                verdict = verdict.and_findings(judge_kernel(evidence, kernel));
                if let Some(Err(why)) = &kernel.sums {
                    verdict = verdict.and_unseen(format!("the kernel of {}: {why}", kernel.entry));
                }
            }
            if kernels.iter().any(|kernel| kernel.sums.is_none()) {
                skipped.push("hashes of the kernels");
            }
        }
        Err(why) => verdict = verdict.and_unseen(format!("the kernels in /boot: {why}")),
    }
    match evidence.repository.seen() {
        Ok(None) => {}
        Ok(Some(repository)) => {
            let unseen = repository.unseen.iter();
            verdict = unseen.fold(verdict, |verdict, why| verdict.and_unseen(why.clone()));
            if repository.hashed.is_none() && !repository.commits.is_empty() {
                skipped.push("hashes of the OS's objects");
            }
            verdict = judge_repository(evidence, repository, verdict);
        }
        Err(why) => verdict = verdict.and_unseen(format!("the ostree repository: {why}")),
    }
    skipped.into_iter().fold(verdict, CheckVerdict::and_skipped)
}

fn judge_kernel(evidence: &DoctorEvidence, kernel: &BootKernel) -> Option<DoctorFinding> {
    let sums = kernel.sums.as_ref().and_then(|sums| sums.as_ref().ok());
    let suspicious = kernel.files.iter().filter(|file| file.is_suspicious());
    let suspicious: Vec<&BootFile> = suspicious.collect();
    let is_proven = |sum: Option<&String>| sums.is_some_and(|sums| sum == Some(&sums.expected));
    let is_sound = is_proven(sums.and_then(|sums| sums.boot.as_ref()));
    let own_is_sound = is_proven(sums.and_then(|sums| sums.own.as_ref()));
    match sums {
        Some(sums) if is_sound && !own_is_sound => return own_differs(kernel, sums),
        Some(_) if is_sound => return None,
        None if suspicious.is_empty() => return None,
        _ => {}
    }
    let severity = if kernel.is_default {
        CheckSeverity::Critical
    } else {
        CheckSeverity::Warning
    };
    let means = meaning_of(kernel, own_is_sound);

    let mut finding =
        DoctorFinding::new(severity, "a kernel or initramfs in /boot is damaged", means);
    finding = finding.seen_all(suspicious.iter().map(|file| fact_of(file)));
    if let Some(sums) = sums {
        finding = finding.seen_all(facts_of_sums(kernel, sums));
    }
    if !own_is_sound {
        return Some(
            finding
                .next("rpm-ostree status")
                .next(evidence.own_command("doctor --deep")),
        );
    }
    // With equal sizes it is not known which one is damaged.
    let bad: Vec<&BootFile> = if suspicious.is_empty() {
        kernel.files.iter().collect()
    } else {
        suspicious
    };
    Some(add_copies(evidence, finding, &bad))
}

/// Adds the commands that replace damaged files by the deployment's own.
fn add_copies(
    evidence: &DoctorEvidence,
    mut finding: DoctorFinding,
    bad: &[&BootFile],
) -> DoctorFinding {
    for file in bad {
        let (path, own) = (
            evidence.shell_path(&file.path),
            evidence.shell_path(&file.own),
        );
        if file.size.is_some() {
            finding = finding.next(format!(
                "mv {path} {path}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)"
            ));
        }
        finding = finding.next(format!("cp {own} {path}"));
    }
    let changes = bad.iter();
    finding.fixed_by(changes.map(|file| FixChange::copy_file(&file.own, &file.path, 0o644)))
}

fn meaning_of(kernel: &BootKernel, own_is_sound: bool) -> &'static str {
    match (kernel.is_default, own_is_sound) {
        (true, true) => {
            "The next boot loads it and fails. The deployment has the same files undamaged."
        }
        (true, false) => {
            "The next boot loads it and fails. Boot another entry, and stage the OS again."
        }
        (false, _) => "This entry does not boot. It is the way back after a failed update.",
    }
}

fn own_differs(kernel: &BootKernel, sums: &KernelSums) -> Option<DoctorFinding> {
    // A deployment that is not visible proves nothing.
    let own = sums.own.as_ref()?;
    let means = "The entry boots: its files in /boot are sound. The deployment's own kernel is damaged, and the next update that keeps \
                 this kernel fails.";
    let place = kernel.files.first().map(|file| file.own.as_str());
    Some(
        DoctorFinding::warning("a deployment's own kernel is damaged", means)
            .with_evidence(
                place.unwrap_or_default(),
                format!("checksum {own} instead of {}", sums.expected),
            )
            .with_message(Some(messages::KERNEL_LAYOUT.to_owned()))
            .next("rpm-ostree status"),
    )
}

fn fact_of(file: &BootFile) -> Fact {
    let said = match (file.size, file.own_size) {
        (None, _) => "missing".to_owned(),
        (Some(0), _) => "0 bytes".to_owned(),
        (Some(size), Some(own)) => format!("{size} bytes, the deployment's file has {own}"),
        (Some(size), None) => format!("{size} bytes"),
    };
    Fact::new(&file.path, said)
}

fn facts_of_sums(kernel: &BootKernel, sums: &KernelSums) -> Vec<Fact> {
    let directory = |path: &str| {
        let (directory, _) = path.rsplit_once('/').unwrap_or_default();
        directory.to_owned()
    };
    let Some(first) = kernel.files.first() else {
        return Vec::new();
    };
    let said = |sum: &String| {
        if *sum == sums.expected {
            "checksum as expected".to_owned()
        } else {
            format!("checksum {sum}")
        }
    };
    let both = [(&first.path, &sums.boot), (&first.own, &sums.own)].into_iter();
    both.filter_map(|(path, sum)| Some(Fact::new(directory(path), said(sum.as_ref()?))))
        .collect()
}

fn judge_repository(
    evidence: &DoctorEvidence,
    repository: &OstreeRepository,
    verdict: CheckVerdict,
) -> CheckVerdict {
    let facts = evidence.facts().ok();
    let is_updating = facts.is_some_and(|facts| facts.deployments.transaction.is_some());
    // A running update adds and removes objects.
    let counts = |object: &&DamagedObject| !is_updating || object.fault != ObjectFault::Missing;
    let damaged: Vec<&DamagedObject> = repository.damaged.iter().filter(counts).collect();
    let verdict = if damaged.len() < repository.damaged.len() {
        verdict.and_unseen("missing objects of the OS: an update is running")
    } else {
        verdict
    };
    let Some(first) = damaged.first() else {
        return verdict;
    };
    let what = match damaged.len() {
        1 => "1 object of the OS is damaged".to_owned(),
        many => format!("{many} objects of the OS are damaged"),
    };
    let means = "The node may boot and run with them. An update, a rollback or a new deployment that needs one of them fails.";
    let facts = damaged.iter().map(|object| {
        let said = match &object.fault {
            ObjectFault::Missing => "missing".to_owned(),
            ObjectFault::Empty => "0 bytes".to_owned(),
            ObjectFault::Other(_) => "its content has another checksum".to_owned(),
        };
        Fact::new(&object.path, said)
    });
    let words = damaged.iter().find_map(|object| words_of(object));
    let mut finding = DoctorFinding::warning(what, means)
        .seen_all(facts)
        .with_message(words);
    if first.fault != ObjectFault::Missing {
        let path = evidence.shell_path(&first.path);
        finding = finding.next(format!(
            "mv {path} {path}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)"
        ));
    }
    let repository = evidence.shell_path(&format!("/{REPOSITORY}"));
    verdict.and_findings([finding
        .next(format!(
            "ostree --repo={repository} pull-local /PEER/ostree/repo {}",
            first.commit
        ))
        .next(format!("ostree --repo={repository} fsck"))])
}

/// Returns the message of ostree for an object with another checksum.
fn words_of(object: &DamagedObject) -> Option<String> {
    let ObjectFault::Other(actual) = &object.fault else {
        return None;
    };
    let kind = object.path.rsplit('.').next().unwrap_or_default();
    let words = messages::fill_message(messages::CORRUPTED_OBJECT, kind);
    Some(format!("{words}'{}' actual='{actual}'", object.checksum))
}
