//! FP-08: a configuration file that keeps a service of the node from starting.

use super::doors::judge_door;
use crate::diagnose::doctor::crossing::{CrossingEvidence, CrossingMoment};
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::node::service_configs::{BrokenConfig, ConfiguredService};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-08",
    title: "a service rejects its configuration",
    looks_at: "CRI-O's files, storage.conf, kubelet.conf, keyfiles; on the node also sshd -t, visudo -c and chronyd -p",
    explain: "A MachineConfig with a mistake in it is applied like any other. If the kubelet or CRI-O does not start with a file, no pod \
starts, not even the daemon that could bring a better one. A manual mistake or a half-written copy does the \
same.\n\n\
This check covers all files of CRI-O (TOML, whatever their ending is), storage.conf, the file that the kubelet's --config names, and the keyfiles of \
NetworkManager: their syntax, their methods and addresses, and owner root with mode 0600, without which they are ignored. In kubelet.conf also reservations and \
thresholds are judged: negative ones, percentages outside of 0 to 100, unknown names, and sums above the memory or the processors of \
the machine. The operator accepts them, and the kubelet exits each time it starts; mco-rescue change kubelet sets another value. On the running node sshd, sudo and \
chronyd judge their own files. In manifests of static pods \
modes of volumes are judged. Files in order may still be wrong in what they ask for.\n\n\
If the file comes from the config, mco-rescue apply with an older config reverts it: mco-rescue cache list shows those on the node. Otherwise correct it, \
or move it out of its directory, then start the service.",
    judge: judge_configs,
};

fn judge_configs(evidence: &DoctorEvidence) -> CheckVerdict {
    // CRI-O's files are judged by preflight's check; the runtime that they name is FP-36.
    let verdict = judge_door(evidence, CHECK.id, |finding, _| {
        let effect = ConfiguredService::Crio.reject_effect();
        let is_file = finding.subject.starts_with("/etc/crio");
        is_file.then(|| (effect.weight.into(), effect.what.to_owned()))
    });
    let verdict = with_cures(evidence, verdict);
    let all = match evidence.service_configs.seen() {
        Ok(all) => all,
        Err(why) => return verdict.and_unseen(format!("configuration of services: {why}")),
    };
    let of = |service| all.iter().filter(move |one| one.service == service);
    let keyfiles: Vec<&BrokenConfig> = of(ConfiguredService::NetworkManager).collect();
    verdict
        .and_findings(of(ConfiguredService::Crio).map(|one| of_storage(evidence, one)))
        .and_findings(of(ConfiguredService::Kubelet).map(|one| of_kubelet(evidence, one)))
        .and_findings(of(ConfiguredService::StaticPod).map(|one| of_static_pod(evidence, one)))
        .and_findings(of_keyfiles(evidence, &keyfiles))
        .and_findings(of(ConfiguredService::Ssh).map(|one| of_program(one, "sshd -t")))
        .and_findings(of(ConfiguredService::Sudo).map(|one| of_program(one, "visudo -c")))
        .and_findings(of(ConfiguredService::Chrony).map(|one| of_program(one, "chronyd -p")))
}

/// Adds the cure to each finding on a file of CRI-O: it is moved out of its directory. A file of the next image does not exist
/// here.
fn with_cures(evidence: &DoctorEvidence, verdict: CheckVerdict) -> CheckVerdict {
    let is_present = |seen: &CrossingEvidence| seen.moment == CrossingMoment::Present;
    let crossing = evidence.crossing.get().and_then(Option::as_ref);
    if !crossing.is_some_and(is_present) {
        return verdict;
    }
    let cured = verdict.findings.into_iter().map(|finding| {
        let first = finding.evidence.first();
        let path = first.map(|fact| fact.place.clone());
        let change = path.map(FixChange::move_aside);
        let finding = finding.fixed_by(change);
        if evidence.live {
            finding.after_fix("systemctl restart crio")
        } else {
            finding
        }
    });
    CheckVerdict {
        findings: cured.collect(),
        ..verdict
    }
}

/// Creates the finding for a file that its service rejects.
fn start_finding(one: &BrokenConfig) -> DoctorFinding {
    let effect = one.service.reject_effect();
    DoctorFinding::new(effect.weight.into(), effect.what, effect.means)
}

fn of_kubelet(evidence: &DoctorEvidence, one: &BrokenConfig) -> DoctorFinding {
    let finding = start_finding(one)
        .with_evidence(&one.place, &one.said)
        .with_message(Some(one.words.clone()))
        .next(evidence.own_command("verify"))
        .next(evidence.own_command("apply"));
    // The recorded config itself may contain the value.
    let finding = if one.of_value {
        finding.next(evidence.own_command("change kubelet FIELD=VALUE"))
    } else {
        finding
    };
    finding.next_all(if evidence.live {
        evidence.restart_kubelet()
    } else {
        Vec::new()
    })
}

/// Reports a broken file with the location of the image store; without the file, the OS's own is used.
fn of_storage(evidence: &DoctorEvidence, one: &BrokenConfig) -> DoctorFinding {
    let finding = start_finding(one)
        .with_evidence(&one.place, &one.said)
        .with_message(Some(one.words.clone()))
        .next(evidence.command_to_move_aside(&one.place, "/etc/containers"))
        .fixed_by([FixChange::move_aside(&one.place)]);
    if evidence.live {
        finding.after_fix("systemctl restart crio")
    } else {
        finding
    }
}

fn of_static_pod(evidence: &DoctorEvidence, one: &BrokenConfig) -> DoctorFinding {
    start_finding(one)
        .with_evidence(&one.place, &one.said)
        .with_message(Some(one.words.clone()))
        .next(evidence.own_command("verify"))
        .next(format!("vi {}", evidence.shell_path(&one.place)))
}

fn of_keyfiles(evidence: &DoctorEvidence, all: &[&BrokenConfig]) -> Option<DoctorFinding> {
    let first = all.first()?;
    let facts = all.iter().map(|one| Fact::new(&one.place, &one.said));
    let mut finding = start_finding(first)
        .seen_all(facts)
        .with_message(Some(first.words.clone()));
    for one in all {
        let file = evidence.shell_path(&one.place);
        finding = if one.only_mode {
            finding
                .next(format!("chown root:root {file}"))
                .next(format!("chmod 0600 {file}"))
        } else {
            finding.next(format!("vi {file}"))
        };
    }
    // A person has to correct errors inside a file.
    let cures = all.iter().flat_map(|one| {
        [
            FixChange::set_owner(&one.place, 0, 0),
            FixChange::set_mode(&one.place, 0o600),
        ]
    });
    if all.iter().all(|one| one.only_mode) {
        finding = finding.fixed_by(cures);
    }
    Some(if evidence.live {
        finding
            .after_fix("nmcli connection reload")
            .next("nmcli connection reload")
    } else {
        finding
    })
}

/// Returns the file that the message names, or else the program's main file.
fn file_of(one: &BrokenConfig) -> &str {
    let words = one.said.split([' ', ':']);
    let mut paths = words.filter(|word| word.starts_with("/etc/"));
    paths.next().unwrap_or(&one.place)
}

fn of_program(one: &BrokenConfig, test: &str) -> DoctorFinding {
    start_finding(one)
        .with_evidence(test, &one.said)
        .with_message(Some(one.words.clone()))
        .next(format!("vi {}", file_of(one)))
        .next(test)
}
