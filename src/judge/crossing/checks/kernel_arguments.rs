//! Are there kernel arguments that the image's systemd does not accept?

use crate::base::invocation::kargs_command;
use crate::base::kargs::KargsChange;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Cure, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("kernel-arguments", judge);

const UNIFIED: &str = "systemd.unified_cgroup_hierarchy";
const CONTROLLER: &str = "systemd.legacy_systemd_cgroup_controller";
const FORCE: &str = "systemd_cgroup_enable_legacy_force";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    if target.os_release.el_major().is_none_or(|major| major < 10) {
        return Vec::new();
    }
    let (place, arguments) = match node.next_arguments() {
        Ok(found) => found,
        Err(reason) => {
            let what = format!(
                "the kernel arguments are not known ({reason}), so cgroup v1 is not ruled out"
            );
            return vec![
                CrossingFinding::unknown("kernel arguments", what)
                    .next("Look at the options of the entries below /boot/loader/entries."),
            ];
        }
    };
    let tokens = arguments.tokens();
    let mut findings = Vec::new();
    findings.extend(judge_cgroups(tokens, &place, node));
    findings.extend(
        tokens
            .iter()
            .filter_map(|token| judge_one(token))
            .map(|finding| finding.with_evidence(&place, tokens.join(" "))),
    );
    findings
}

/// Judges the arguments for cgroup v1. The last value of a key wins.
fn judge_cgroups(tokens: &[String], place: &str, node: &Platform) -> Option<CrossingFinding> {
    let mut of_unified = tokens.iter().filter(|token| key_of(token) == UNIFIED);
    if !is_false(of_unified.next_back()?) {
        return None;
    }
    let goes = |token: &&String| match key_of(token).as_str() {
        UNIFIED => is_false(token),
        CONTROLLER | FORCE => true,
        _ => false,
    };
    let going: Vec<String> = tokens.iter().filter(goes).cloned().collect();
    let (what, words) = if going.iter().any(|token| key_of(token) == FORCE) {
        (
            "these arguments force cgroup v1, on which the image's kubelet does not run",
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be \
             removed in a future release",
        )
    } else {
        (
            "the image's systemd has no cgroup v1: it halts the boot for 30 seconds and then uses cgroup v2",
            "Legacy cgroup v1 configured. This will stop being supported soon. Will proceed with cgroup v2 after 30 s.",
        )
    };
    let changes: Vec<_> = going.iter().cloned().map(KargsChange::Delete).collect();
    let command = kargs_command(&changes);
    let of_config = |one: &&String| node.record.asks_for(one);
    let kept: Vec<&String> = going.iter().filter(of_config).collect();
    if !kept.is_empty() {
        // If a run removed them, the result would not match the config, and the next boot would never be the expected one.
        let kept = kept.into_iter().cloned().collect::<Vec<_>>().join(" ");
        let what = format!("{what}. The config asks for them");
        let finding = CrossingFinding::inhibitor("cgroup v1", what)
            .with_evidence(place, going.join(" "))
            .with_evidence("spec.kernelArguments of the config", kept)
            .with_prevented(words)
            .next(
                "In the cluster, set cgroupMode: v2 in nodes.config.openshift.io cluster, or take the arguments out of \
                 the MachineConfig. Then apply the new rendered config.",
            );
        return Some(finding);
    }
    let what = format!("{what}; the run takes these arguments off the next boot");
    let finding = CrossingFinding::new(CrossingSeverity::Cured, "cgroup v1", what)
        .with_evidence(place, going.join(" "))
        .with_prevented(words)
        .next(command);
    Some(finding.with_cure(Cure::DeleteArguments(going)))
}

/// Judges an argument that has no effect, or another one, on the target.
fn judge_one(token: &str) -> Option<CrossingFinding> {
    let (_, value) = token.split_once('=').unwrap_or((token, ""));
    let what = match key_of(token).as_str() {
        "biosdevname" if value == "1" => {
            "the image has no biosdevname, so interfaces get the names of systemd".to_owned()
        }
        "ifname" => {
            let name = value.split(':').next().unwrap_or_default();
            let number = name.strip_prefix("eth")?;
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            format!(
                "{name} is a name of the kernel's own, so it may already be taken when the image's udev renames an \
                 interface to it"
            )
        }
        _ => return None,
    };
    let finding = CrossingFinding::warning(token, what);
    Some(finding.next(kargs_command(&[KargsChange::Delete(token.to_owned())])))
}

/// Returns the key; systemd treats `-` and `_` as the same letter.
fn key_of(token: &str) -> String {
    let (key, _) = token.split_once('=').unwrap_or((token, ""));
    key.replace('-', "_").to_ascii_lowercase()
}

/// Returns true for a value that systemd reads as false; a key without a value is true.
fn is_false(token: &str) -> bool {
    let value = token.split_once('=').map(|(_, value)| value);
    let value = value.map(|value| value.trim_matches('"').to_ascii_lowercase());
    value.is_some_and(|value| ["0", "no", "n", "false", "f", "off"].contains(&value.as_str()))
}
