//! FP-67: SELinux does not protect the node, or its policy is not that of the OS.

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::node::selinux_state::{SelinuxMode, SelinuxState};
use crate::text::count;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-67",
    title: "SELinux is off, or its policy is not that of the OS",
    looks_at: "/etc/selinux against /usr/etc/selinux, modules that the OS does not have, the end of the audit log",
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

/// The file with the mode.
const CONFIG: &str = "/etc/selinux/config";

fn judge_policy(evidence: &DoctorEvidence) -> CheckVerdict {
    let state = match evidence.selinux.seen() {
        Ok(state) => state,
        Err(why) => return CheckVerdict::unseen(format!("SELinux: {why}")),
    };
    CheckVerdict::healthy()
        .and(find_unknown_type(evidence, state))
        .and(find_mode(evidence, state))
        .and(find_incomplete(evidence, state))
        .and(find_other_policy(evidence, state))
}

fn find_unknown_type(evidence: &DoctorEvidence, state: &SelinuxState) -> Option<DoctorFinding> {
    if !state.is_unknown || state.mode == SelinuxMode::Disabled {
        return None;
    }
    let severity = match state.mode {
        SelinuxMode::Enforcing => CheckSeverity::Critical,
        _ => CheckSeverity::Warning,
    };
    let what = "SELINUXTYPE names a policy that is not there";
    let means = match severity {
        CheckSeverity::Critical => "The next boot stops: systemd freezes without a policy.",
        _ => "No policy is loaded, so nothing is labelled or denied.",
    };
    let finding = DoctorFinding::new(severity, what, means)
        .seen(CONFIG, format!("SELINUXTYPE={}", state.policy))
        .seen("/etc/selinux", format!("has {}", state.known.join(", ")))
        .daemon(Some("Failed to load SELinux policy.".to_owned()));
    Some(match state.right_policy() {
        Some(policy) => set_value(evidence, state, finding, "SELINUXTYPE", policy),
        None => finding.next(format!("vi {}", evidence.path(CONFIG))),
    })
}

/// Adds the cure for the file with the mode: one line of it, or the MachineConfig that brings it.
fn set_value(
    evidence: &DoctorEvidence,
    state: &SelinuxState,
    finding: DoctorFinding,
    key: &str,
    value: &str,
) -> DoctorFinding {
    let file = evidence.path(CONFIG);
    if evidence.is_of_config(CONFIG) {
        return finding
            .next("oc get mc -o name   # the MachineConfig with /etc/selinux/config has to change")
            .next(format!("vi {file}"));
    }
    // Permissive and disabled are what an admin has chosen, and files without labels come first then.
    let is_fault = !matches!(state.mode, SelinuxMode::Permissive | SelinuxMode::Disabled);
    let text = state.config_with(key, value);
    let text = text.filter(|_| is_fault || key == "SELINUXTYPE");
    let is_missing = state.mode == SelinuxMode::Invalid(String::new()) && key == "SELINUX";
    let command = match is_missing {
        true => format!("echo {key}={value} >> {file}"),
        false => format!("sed -i 's/^{key}=.*/{key}={value}/' {file}"),
    };
    let text = text.into_iter();
    finding
        .next(command)
        .fixed_by(text.map(|text| FixChange::replace_file(CONFIG, text)))
}

fn find_mode(evidence: &DoctorEvidence, state: &SelinuxState) -> Option<DoctorFinding> {
    let (severity, said, what) = match &state.mode {
        SelinuxMode::Unset | SelinuxMode::Enforcing => return None,
        SelinuxMode::Permissive => (
            CheckSeverity::Notice,
            "SELINUX=permissive".to_owned(),
            "SELinux only reports, and denies nothing",
        ),
        SelinuxMode::Disabled => (
            CheckSeverity::Warning,
            "SELINUX=disabled".to_owned(),
            "SELinux is disabled",
        ),
        SelinuxMode::Invalid(value) if value.is_empty() => (
            CheckSeverity::Warning,
            "no line SELINUX=".to_owned(),
            "SELinux has no mode, and denies nothing",
        ),
        SelinuxMode::Invalid(value) => (
            CheckSeverity::Warning,
            format!("SELINUX={value}"),
            "SELINUX= has a value that does not exist",
        ),
    };
    let means = match severity {
        CheckSeverity::Notice => "Containers are not kept apart by labels.",
        _ => {
            "Nothing is denied, and new files may get no label; OpenShift supports enforcing alone."
        }
    };
    let finding = DoctorFinding::new(severity, what, means).seen(CONFIG, said);
    let finding = set_value(evidence, state, finding, "SELINUX", "enforcing");
    Some(match state.mode {
        // What was written without labels is not found by the restart alone.
        SelinuxMode::Disabled => {
            finding.next("restorecon -RF /etc /var   # after the boot with SELinux")
        }
        _ => finding,
    })
}

fn find_incomplete(evidence: &DoctorEvidence, state: &SelinuxState) -> Option<DoctorFinding> {
    let (first, _) = state.incomplete.first()?;
    let what = "a module of SELinux is not complete";
    let means = "semodule fails with it, so the shutdown into the next OS fails: the node stays on the old one.";
    let facts = state.incomplete.iter();
    let facts = facts.map(|(module, file)| Fact::new(module, format!("{file} is missing")));
    let finding = DoctorFinding::new(CheckSeverity::Warning, what, means)
        .seen_all(facts)
        .daemon(Some("error: Finalizing deployment: Finalizing SELinux policy: Child process exited with code 1".to_owned()));
    let name = first.rsplit('/').next().unwrap_or_default();
    let moved = evidence.command_to_move_aside(first, "/etc/selinux");
    Some(match evidence.live {
        true => finding
            .next(moved)
            .next(format!("semodule -B   # then install {name} again")),
        false => finding.next(moved),
    })
}

fn find_other_policy(evidence: &DoctorEvidence, state: &SelinuxState) -> Option<DoctorFinding> {
    let (own, shipped) = state.differs.as_ref()?;
    let severity = match state.denials {
        0 => CheckSeverity::Notice,
        _ => CheckSeverity::Warning,
    };
    let what = "the SELinux policy in /etc is not that of the OS";
    let means = match state.denials {
        0 => {
            "It was changed on this node. A new OS may not bring its own, and its services may be denied what they need."
        }
        _ => "It was changed on this node, and services are denied something.",
    };
    let mut finding = DoctorFinding::new(severity, what, means)
        .seen(own, format!("differs from {shipped}"))
        .seen_all(
            state
                .own_modules
                .iter()
                .map(|module| Fact::new(module, "a module of this node")),
        );
    if state.denials > 0 {
        let said = count(state.denials, "denial");
        finding = finding.seen("/var/log/audit/audit.log", format!("{said} at its end"));
    }
    let (from, to) = (
        evidence.path("/usr/etc/selinux"),
        evidence.path("/etc/selinux"),
    );
    let finding = finding.next(format!("cp -aT {from} {to}"));
    // The newest one is loaded, and the copy does not replace it.
    let number = |path: &str| {
        path.rsplit('.')
            .next()
            .and_then(|end| end.parse::<u32>().ok())
    };
    let finding = match number(own) > number(shipped) {
        true => finding.next(evidence.command_to_move_aside(own, "/etc/selinux")),
        false => finding,
    };
    Some(match evidence.live {
        true => finding.next("systemctl reboot   # the policy is loaded at boot"),
        false => finding,
    })
}
