//! FP-54: a static pod is missing, or its revision is incomplete.

use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::node::pod_manifest::Fallback;
use crate::node::static_pods::{
    FileDefect, FileProblem, FoundManifest, PodRevision, StaticPod, StaticPods,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-54",
    title: "a static pod is missing or not complete",
    looks_at: "manifests of the control plane, their revisions, and the files that they name",
    explain: "On a control-plane node etcd, the API server, the controller manager and the scheduler are static pods: the \
kubelet runs each manifest in /etc/kubernetes/manifests. Their operators write a numbered revision below \
/etc/kubernetes/static-pod-resources, then remove the old manifest, then write the new one. After a power cut between the \
last two the revision is complete and the manifest is missing: the pod is gone. The copy in the revision is the manifest.\n\n\
A revision is complete if its own manifest has its number, and if every file that the manifest and its config name exists \
with content and every key belongs to its certificate. Older installers did not flush files: after a power cut a manifest, \
a key or a bundle can be empty.\n\n\
Copy the manifest of the newest complete revision, with mode 0600. The kubelet reads every file in its directory, so keep no \
second copy there. Do not edit numbers. With an older revision the pod runs with older secrets, until its operator installs \
a new one.\n\n\
A directory named staging is what an interrupted installer left. It is harmless, and can have the old content. \
Manifests in /home/core/assets/manifests-stopped were put there on purpose, by disable-etcd.sh or a restore. With two nodes \
and fencing, etcd is not a static pod.",
    judge: judge_static_pods,
};

/// Parts that every revision of a pod has; a part is expected only if another revision has it.
const USUAL: [(&str, &[&str]); 2] = [
    (
        "kube-apiserver",
        &[
            "configmaps/kube-apiserver-pod",
            "configmaps/config",
            "configmaps/kube-apiserver-cert-syncer-kubeconfig",
            "configmaps/bound-sa-token-signing-certs",
            "configmaps/etcd-serving-ca",
            "configmaps/kubelet-serving-ca",
            "configmaps/sa-token-signing-certs",
            "configmaps/kube-apiserver-audit-policies",
            "secrets/etcd-client",
            "secrets/localhost-recovery-serving-certkey",
            "secrets/localhost-recovery-client-token",
        ],
    ),
    (
        "etcd",
        &[
            "configmaps/etcd-pod",
            "configmaps/etcd-endpoints",
            "configmaps/etcd-all-bundles",
            "secrets/etcd-all-certs",
        ],
    ),
];

fn judge_static_pods(evidence: &DoctorEvidence) -> CheckVerdict {
    let pods = match evidence.static_pods.seen() {
        Ok(Some(pods)) => pods,
        Ok(None) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("static pods: {why}")),
    };
    let mut verdict = CheckVerdict::healthy();
    let mut stopped = Vec::new();
    for pod in &pods.pods {
        if is_stopped(pods, pod) {
            stopped.push(pod.name);
            continue;
        }
        verdict = verdict.and_findings(judge_pod(evidence, pods, pod));
        verdict = verdict.and_findings(find_fallback(pod));
    }
    verdict = verdict.and_findings(on_purpose(evidence, &stopped));
    for why in &pods.unseen {
        verdict = verdict.and_unseen(format!("a file of a static pod: {why}"));
    }
    verdict
}

fn is_stopped(pods: &StaticPods, pod: &StaticPod) -> bool {
    let file = format!("{}-pod.yaml", pod.name);
    pod.manifest == FoundManifest::Missing && pods.stopped.contains(&file)
}

fn judge_pod(
    evidence: &DoctorEvidence,
    pods: &StaticPods,
    pod: &StaticPod,
) -> Option<DoctorFinding> {
    match &pod.manifest {
        FoundManifest::Unseen(_) => None,
        // Pacemaker runs etcd there.
        FoundManifest::Missing if evidence.fencing && pod.name == "etcd" => None,
        FoundManifest::Missing => Some(without_manifest(evidence, pod, "missing")),
        FoundManifest::Unusable(why) => Some(without_manifest(evidence, pod, why)),
        FoundManifest::Found(manifest) => match pod.in_force() {
            Some(revision) => judge_revision(evidence, pods, pod, revision),
            None => manifest
                .revision
                .map(|number| without_revision(evidence, pod, number)),
        },
    }
}

/// Reports that the kubelet has no usable manifest.
fn without_manifest(evidence: &DoctorEvidence, pod: &StaticPod, why: &str) -> DoctorFinding {
    let missing = pod.manifest == FoundManifest::Missing;
    let state = if missing { "missing" } else { "unusable" };
    let what = format!("the manifest of {} is {state}", pod.name);
    let newest = pod.revisions.last();
    let complete = pod.newest_complete();
    // An installer that has not finished on a new node is not a failure yet.
    let never = missing
        && pod
            .revisions
            .iter()
            .all(|one| one.manifest == FoundManifest::Missing);
    let severity = if never {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let means = match complete {
        None => {
            "The kubelet does not run this pod, and no revision on this node is complete. Its operator has to install a new one."
        }
        Some(revision) if Some(revision.number) == newest.map(|one| one.number) => {
            "The kubelet does not run this pod. An installer was cut off; the revision is complete, so its copy of the manifest brings the pod back."
        }
        Some(_) => {
            "The kubelet does not run this pod. A newer revision is not complete; with the older one the pod runs with older secrets (FP-39)."
        }
    };
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence(&pod.path, why)
        .seen_all(pod.revisions.iter().rev().map(revision_fact))
        .with_message(missing.then(|| messages::STATIC_POD_LIFECYCLE.to_owned()));
    let finding = if missing {
        finding
    } else {
        finding.next(move_out(evidence, pod))
    };
    let Some(revision) = complete else {
        return add_reinstall(finding, pod);
    };
    let finding = add_copy(evidence, finding, pod, revision);
    if Some(revision.number) != newest.map(|one| one.number) {
        return finding;
    }
    let aside = (!missing).then(|| FixChange::move_aside(&pod.path));
    let copy = FixChange::copy_file(copy_of(pod, revision), &pod.path, 0o600);
    finding.fixed_by(aside.into_iter().chain([copy]))
}

/// Reports a manifest whose revision is not on the node.
fn without_revision(evidence: &DoctorEvidence, pod: &StaticPod, number: u32) -> DoctorFinding {
    let what = format!("revision {number} of {} is missing", pod.name);
    let means =
        "The kubelet cannot start the pod: the directories that its manifest mounts are missing.";
    let finding = DoctorFinding::critical(what, means)
        .with_evidence(&pod.path, format!("revision {number}"))
        .seen_all(pod.revisions.iter().rev().map(revision_fact))
        .with_message(Some(messages::HOST_PATH.to_owned()));
    with_other_revision(evidence, finding, pod, number)
}

fn judge_revision(
    evidence: &DoctorEvidence,
    pods: &StaticPods,
    pod: &StaticPod,
    revision: &PodRevision,
) -> Option<DoctorFinding> {
    let own = revision.problems.iter();
    let problems: Vec<&FileProblem> = own.chain(&pod.certs).collect();
    if problems.is_empty() {
        return find_unusual(pod, revision);
    }
    let torn = problems
        .iter()
        .all(|one| one.defect == FileDefect::OtherKey);
    let what = if torn {
        format!("a key of {} is another certificate's", pod.name)
    } else {
        format!("files of {} are missing or damaged", pod.name)
    };
    let means = if torn {
        "The program cannot use the pair and does not start, or shows a certificate that it cannot prove."
    } else {
        "The pod's manifest or config names these files: its containers do not start without them."
    };
    let facts = problems
        .iter()
        .map(|one| Fact::new(&one.path, describe_defect(one.defect)));
    let mut finding = DoctorFinding::critical(what, means)
        .with_evidence(&pod.path, format!("revision {}", revision.number))
        .seen_all(facts)
        .with_message(container_message(&problems));
    for left in &pods.staging {
        finding = finding.with_evidence(
            left,
            "left by an interrupted installer: it may have the old content",
        );
    }
    if !revision.problems.is_empty() {
        return Some(with_other_revision(evidence, finding, pod, revision.number));
    }
    Some(with_certs(evidence, finding, pods, pod, revision))
}

/// Returns the message of the kubelet's containers.
fn container_message(problems: &[&FileProblem]) -> Option<String> {
    let first = problems.first()?;
    Some(match first.defect {
        FileDefect::Missing => format!("open {}: no such file or directory", first.path),
        FileDefect::Empty | FileDefect::NoPem => messages::NO_PEM.to_owned(),
        FileDefect::OtherKey => messages::OTHER_KEY.to_owned(),
    })
}

fn describe_defect(defect: FileDefect) -> &'static str {
    match defect {
        FileDefect::Missing => "missing",
        FileDefect::Empty => "0 bytes",
        FileDefect::NoPem => "no certificate and no key in it",
        FileDefect::OtherKey => "the key beside it belongs to another certificate",
    }
}

/// Adds the commands that run the pod from another complete revision, or else those for a new one.
fn with_other_revision(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    pod: &StaticPod,
    number: u32,
) -> DoctorFinding {
    match pod.newest_complete() {
        Some(other) if other.number != number => {
            let place = revision_fact(other);
            let finding = finding
                .with_evidence(
                    place.place,
                    format!("{}; its secrets may be older (FP-39)", place.said),
                )
                .next(move_out(evidence, pod));
            add_copy(evidence, finding, pod, other)
        }
        _ => add_reinstall(finding, pod),
    }
}

/// Adds the commands for the directory without a revision, which the cert-syncer of a running pod writes.
fn with_certs(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    pods: &StaticPods,
    pod: &StaticPod,
    revision: &PodRevision,
) -> DoctorFinding {
    if let Some(copies) = copies_of_etcd(pod, revision) {
        let mut finding = finding;
        for (from, path, mode) in copies.iter().take(MAX_COPIES) {
            let (from, path) = (evidence.shell_path(from), evidence.shell_path(path));
            finding = finding.next(format!("install -m {mode:04o} {from} {path}"));
        }
        if copies.len() > MAX_COPIES {
            finding =
                finding.next("oc get clusteroperator etcd # and the other files in the same way");
        }
        let changes = copies.into_iter();
        return finding
            .fixed_by(changes.map(|(from, path, mode)| FixChange::copy_file(from, path, mode)));
    }
    let mut finding = finding;
    for left in &pods.staging {
        finding = finding.next(format!("ls -lR {}", evidence.shell_path(left)));
    }
    let name = pod.name;
    finding
        .next(format!(
            "crictl logs --tail 20 $(crictl ps -q --name {name}-cert-syncer)"
        ))
        .next(format!(
            "oc get secret -n openshift-{name} # it writes them again once the API answers"
        ))
}

/// Maximum number of files for which a finding lists copy commands.
const MAX_COPIES: usize = 6;

/// Returns source, path and mode of what has to be copied from etcd's revisions, which have a copy of each certificate, key and
/// bundle; `None` if one of them has no intact copy.
fn copies_of_etcd(pod: &StaticPod, revision: &PodRevision) -> Option<Vec<(String, String, u32)>> {
    if pod.name != "etcd" {
        return None;
    }
    let own = format!("/etcd-pod-{}/", revision.number);
    let paths = pod.certs.iter().flat_map(|one| pair_of(&one.path));
    let mut copies = paths
        .map(|path| {
            let from = path.replacen("/etcd-certs/", &own, 1);
            let whole = revision.files.get(&from).is_some_and(|size| *size > 0);
            let mode = if path.contains("/secrets/") {
                0o600
            } else {
                0o644
            };
            whole.then_some((from, path, mode))
        })
        .collect::<Option<Vec<_>>>()?;
    copies.sort();
    copies.dedup();
    Some(copies)
}

/// Returns the paths of a certificate and its key, which are copied together.
fn pair_of(path: &str) -> Vec<String> {
    match path.rsplit_once('.') {
        Some((stem, "crt" | "key")) if path.contains("/secrets/") => {
            vec![format!("{stem}.crt"), format!("{stem}.key")]
        }
        _ => vec![path.to_owned()],
    }
}

/// Reports a revision without a part that others have.
fn find_unusual(pod: &StaticPod, revision: &PodRevision) -> Option<DoctorFinding> {
    let (_, usual) = USUAL.iter().find(|(name, _)| *name == pod.name)?;
    let others = pod
        .revisions
        .iter()
        .filter(|one| one.number != revision.number);
    let others: Vec<&PodRevision> = others.collect();
    let lacks: Vec<&&str> = usual
        .iter()
        .filter(|part| !revision.parts.iter().any(|own| own == **part))
        .filter(|part| {
            others
                .iter()
                .any(|other| other.parts.iter().any(|own| own == **part))
        })
        .collect();
    let first = lacks.first()?;
    let what = format!(
        "revision {} of {} lacks a usual part",
        revision.number, pod.name
    );
    let means = "Other revisions on this node have it. Releases differ in their lists, so this may be right; an interrupted \
installer leaves the same.";
    let directory = &revision.directory;
    let facts = lacks
        .iter()
        .map(|part| Fact::new(format!("{directory}/{part}"), "missing or without a file"));
    Some(
        DoctorFinding::notice(what, means)
            .seen_all(facts)
            .next(format!(
                "ls -l {}/*/{}",
                show_pod(pod),
                first.rsplit('/').next().unwrap_or_default()
            )),
    )
}

fn show_pod(pod: &StaticPod) -> String {
    format!("/etc/kubernetes/static-pod-resources/{}-pod-*", pod.name)
}

fn find_fallback(pod: &StaticPod) -> Option<DoctorFinding> {
    let manifest = pod.running()?;
    let fallback: &Fallback = manifest.fallback.as_ref()?;
    let what = format!("{} fell back to an older revision", pod.name);
    let means = "A newer revision did not become ready in time, so the startup monitor put the last one back that worked. \
The operator tries again only with a new revision.";
    let running = manifest.revision.map(|number| number.to_string());
    let running = running.unwrap_or_else(|| "unknown".to_owned());
    let tried = format!(
        "revision {running} runs, in place of {}",
        fallback.of_revision
    );
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(&pod.path, tried)
        .with_evidence(
            "reason",
            format!("{}: {}", fallback.reason, fallback.message),
        )
        .with_message(Some(messages::fill_message(
            messages::FALLBACK,
            &fallback.of_revision.to_string(),
        )));
    Some(finding.next(format!("oc get clusteroperator {} -o yaml", pod.name)))
}

fn on_purpose(evidence: &DoctorEvidence, stopped: &[&str]) -> Option<DoctorFinding> {
    let (what, means) = (
        "static pods were stopped on purpose",
        "disable-etcd.sh or a restore moved their manifests. Until they are back, the control plane does not run on this node.",
    );
    if stopped.is_empty() {
        return None;
    }
    let place = |name: &str| format!("/home/core/assets/manifests-stopped/{name}-pod.yaml");
    let facts = stopped
        .iter()
        .map(|name| Fact::new(place(name), "moved here"));
    let mut finding = DoctorFinding::notice(what, means).seen_all(facts);
    for name in stopped {
        let to = evidence.shell_path(&format!("/etc/kubernetes/manifests/{name}-pod.yaml"));
        let command = format!(
            "mv {} {to} # when that work is over",
            evidence.shell_path(&place(name))
        );
        finding = finding.next(command);
    }
    Some(finding)
}

/// Returns a revision as evidence.
fn revision_fact(revision: &PodRevision) -> Fact {
    let said = match (&revision.manifest, revision.problems.as_slice()) {
        (FoundManifest::Found(_), []) if revision.is_complete() => {
            format!("complete, {}", count_noun(revision.files.len(), "file"))
        }
        (FoundManifest::Found(_), []) => "its manifest has another number".to_owned(),
        (FoundManifest::Found(_), [first, ..]) => {
            format!(
                "not complete: {} {}",
                first.path,
                describe_defect(first.defect)
            )
        }
        (FoundManifest::Missing, _) => "not complete: without a manifest".to_owned(),
        (FoundManifest::Unusable(why), _) => {
            format!("not complete: its manifest is unusable, {why}")
        }
        (FoundManifest::Unseen(why), _) => format!("its manifest could not be read, {why}"),
    };
    Fact::new(&revision.directory, said)
}

fn copy_of(pod: &StaticPod, revision: &PodRevision) -> String {
    format!("{}/{}-pod.yaml", revision.directory, pod.name)
}

/// Returns the command that moves the manifest out of its directory, because the kubelet would read an old file next to the new
/// one.
fn move_out(evidence: &DoctorEvidence, pod: &StaticPod) -> String {
    let aside = format!("/etc/kubernetes/{}-pod.yaml", pod.name);
    let (from, to) = (evidence.shell_path(&pod.path), evidence.shell_path(&aside));
    format!("mv {from} {to}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)")
}

fn add_copy(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    pod: &StaticPod,
    revision: &PodRevision,
) -> DoctorFinding {
    let from = evidence.shell_path(&copy_of(pod, revision));
    let finding = finding.next(format!(
        "install -m 0600 {from} {}",
        evidence.shell_path(&pod.path)
    ));
    if evidence.live {
        finding.next(format!("crictl ps --name {} # within a minute", pod.name))
    } else {
        finding
    }
}

/// Adds the command that makes the operator install a new revision; it needs the API of another node.
fn add_reinstall(finding: DoctorFinding, pod: &StaticPod) -> DoctorFinding {
    let resource = pod.name.replace('-', "");
    finding.next(format!(
        "oc patch {resource} cluster --type merge -p '{{\"spec\":{{\"forceRedeploymentReason\":\"new revision\"}}}}'"
    ))
}
