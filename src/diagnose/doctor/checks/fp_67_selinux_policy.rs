//! FP-67: SELinux does not protect the node, or its policy is not that of the OS.

use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange,
};
use crate::node::fault_group::FaultGroup;
use crate::node::selinux_state::{CONFIG, SelinuxFaultKind, SelinuxMode, SelinuxState};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-67",
    title: "SELinux is off, or its policy is not that of the OS",
    looks_at: "/etc/selinux against /usr/etc/selinux, modules that the OS does not have, the end of the audit log, /.autorelabel",
    explain: "The policy that the kernel loads is a file in /etc: /etc/selinux/targeted/policy/policy.NN. One setsebool -P, \
semanage or semodule -i changes it, and then it is a file of the node, which a new OS does not replace. ostree 2022.3 and newer \
build it again with the policy of each new OS; older ones leave it as it is, and services of the new OS are denied what they \
need: NetworkManager-dispatcher, systemd-resolved, Open vSwitch.\n\n\
Back to the policy of the OS, without the changes: copy /usr/etc/selinux over /etc/selinux, and reboot. With them: semodule -B \
after the copy, and setsebool -P or semodule -i again.\n\n\
A module of the node that is not complete, or that the policy of the next OS does not fit, stops semodule at the shutdown into the next \
OS: ostree-finalize-staged fails, and the node boots the old one again, each time.\n\n\
A node needs SELINUX=enforcing: containers are kept apart by it. Files that are written while it is disabled have no label. A value other \
than enforcing, permissive and disabled is like permissive. With a SELINUXTYPE that has no policy, and enforcing, systemd \
stops the boot: Failed to load SELinux policy.\n\n\
The fix corrects a SELINUXTYPE without a policy and a value of SELINUX that does not exist. It leaves permissive and disabled, \
which an admin has chosen: after disabled, files lack labels. A policy is many files, so the printed commands restore it.",
    judge: judge_policy,
};

fn judge_policy(evidence: &DoctorEvidence) -> CheckVerdict {
    let state = match evidence.selinux.seen() {
        Ok(state) => state,
        Err(why) => return CheckVerdict::not_seen(format!("SELinux: {why}")),
    };
    let groups = state.group_faults();
    let found = groups
        .iter()
        .map(|group| add_cure(evidence, state, group, DoctorFinding::of_group(group)));
    CheckVerdict::healthy().and_findings(found)
}

/// Adds the commands that cure the faults of a kind.
fn add_cure(
    evidence: &DoctorEvidence,
    state: &SelinuxState,
    group: &FaultGroup<SelinuxFaultKind>,
    finding: DoctorFinding,
) -> DoctorFinding {
    match group.kind {
        SelinuxFaultKind::UnknownType => match state.right_policy() {
            Some(policy) => set_value(evidence, state, finding, "SELINUXTYPE", policy),
            None => finding.next(format!("vi {}", evidence.shell_path(CONFIG))),
        },
        SelinuxFaultKind::Mode => {
            let finding = set_value(evidence, state, finding, "SELINUX", "enforcing");
            match state.mode {
                // The restart alone does not find files that were written without labels.
                SelinuxMode::Disabled => {
                    finding.next("restorecon -RF /etc /var   # after the boot with SELinux")
                }
                _ => finding,
            }
        }
        SelinuxFaultKind::Autorelabel => {
            let (path, top) = (evidence.shell_path(group.place()), evidence.shell_path("/"));
            finding.next(format!(
                "rm {path}   # before: chattr -i {top} if it is immutable"
            ))
        }
        SelinuxFaultKind::Incomplete => complete_modules(evidence, group, finding),
        // A config that is not applied yet has no finding here.
        SelinuxFaultKind::Brought => finding,
        SelinuxFaultKind::OtherPolicy => restore_policy(evidence, state, finding),
    }
}

/// Adds the cure for the file with the mode: one line in it, or the MachineConfig that contains it.
fn set_value(
    evidence: &DoctorEvidence,
    state: &SelinuxState,
    finding: DoctorFinding,
    key: &str,
    value: &str,
) -> DoctorFinding {
    let file = evidence.shell_path(CONFIG);
    if evidence.is_of_config(CONFIG) {
        return finding
            .next("oc get mc -o name   # the MachineConfig with /etc/selinux/config has to change")
            .next(format!("vi {file}"));
    }
    // Permissive and disabled are an admin's choice; with disabled, files without labels have to be relabeled first.
    let is_fault = !matches!(state.mode, SelinuxMode::Permissive | SelinuxMode::Disabled);
    let text = state.config_with(key, value);
    let text = text.filter(|_| is_fault || key == "SELINUXTYPE");
    let is_missing = state.mode == SelinuxMode::Invalid(String::new()) && key == "SELINUX";
    let command = if is_missing {
        format!("echo {key}={value} >> {file}")
    } else {
        format!("sed -i 's/^{key}=.*/{key}={value}/' {file}")
    };
    let text = text.into_iter();
    finding
        .next(command)
        .fixed_by(text.map(|text| FixChange::replace_file(CONFIG, text)))
}

fn complete_modules(
    evidence: &DoctorEvidence,
    group: &FaultGroup<SelinuxFaultKind>,
    finding: DoctorFinding,
) -> DoctorFinding {
    let first = group.place();
    let name = first.rsplit('/').next().unwrap_or_default();
    let moved = evidence.command_to_move_aside(first, "/etc/selinux");
    if evidence.live {
        finding
            .next(moved)
            .next(format!("semodule -B   # then install {name} again"))
    } else {
        finding.next(moved)
    }
}

fn restore_policy(
    evidence: &DoctorEvidence,
    state: &SelinuxState,
    finding: DoctorFinding,
) -> DoctorFinding {
    let Some((own, shipped)) = &state.differs else {
        return finding;
    };
    let (from, to) = (
        evidence.shell_path("/usr/etc/selinux"),
        evidence.shell_path("/etc/selinux"),
    );
    let finding = finding.next(format!("cp -aT {from} {to}"));
    // The newest one is loaded, and the copy does not replace it.
    let number = |path: &str| {
        path.rsplit('.')
            .next()
            .and_then(|end| end.parse::<u32>().ok())
    };
    let finding = if number(own) > number(shipped) {
        finding.next(evidence.command_to_move_aside(own, "/etc/selinux"))
    } else {
        finding
    };
    if evidence.live {
        finding.next("systemctl reboot   # the policy is loaded at boot")
    } else {
        finding
    }
}
