//! FP-26: SELinux labels that differ from the policy.

use std::collections::BTreeMap;

use crate::base::invocation::shell_word;
use crate::diagnose::doctor::upkeep::LabelEvidence;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::formats::labels::type_of;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-26",
    title: "SELinux labels are wrong",
    looks_at: "labels of the recorded config's files, by the root's own policy",
    explain: "A file that was written before the policy was loaded, or moved into place by hand, keeps its old \
label. systemd ignores units without a label, scripts do not run, and the kubelet's errors do not name the \
label. The daemon does not check labels.\n\n\
mco-rescue labels its files by the policy of the root, also from an initramfs. Existing wrong labels are corrected \
by restorecon -RFv PATH on the running node, and on a mounted disk by setfiles with the policy of the disk: setfiles -F -r \
ROOT ROOT/etc/selinux/targeted/contexts/files/file_contexts ROOT/PATH. OSTree systems have no relabelling at boot, and \
/.autorelabel does nothing there.",
    judge: judge_labels,
};

/// Maximum number of paths in one command.
const ON_A_LINE: usize = 20;

fn judge_labels(evidence: &DoctorEvidence) -> CheckVerdict {
    let labels = match evidence.upkeep.labels.seen() {
        Ok(labels) => labels,
        // FP-03 reports that the comparison as a whole is missing.
        Err(_) => return CheckVerdict::healthy(),
    };
    let verdict = match &labels.unusable {
        Some(why) => CheckVerdict::not_seen(format!("labels: {why}")),
        None => CheckVerdict::healthy(),
    };
    let units = labels.wrong.iter().any(|one| one.path.is_in("etc/systemd"));
    let paths = labels
        .wrong
        .iter()
        .map(|one| shell_word(&one.path.to_string()));
    let paths: Vec<String> = paths.collect();
    let facts = labels.wrong.iter().map(|one| {
        let found = one.found.as_deref().map_or("no label", type_of);
        let said = format!("{found}, should be {}", type_of(&one.wanted));
        Fact::new(one.path.to_string(), said)
    });
    let means = if units {
        "systemd may not load these units, and programs may not read these files."
    } else {
        "Programs may not be allowed to read or run these files, whatever their mode is."
    };
    let finding = DoctorFinding::warning("files with a wrong SELinux label", means);
    verdict.and_findings((!paths.is_empty()).then(|| {
        let finding = finding.seen_all(facts);
        let finding = commands_for_disk(evidence, labels)
            .into_iter()
            .fold(finding, DoctorFinding::next);
        // The labels follow the node's own policy and the paths as the node has them, so the node itself can set them.
        let lines = paths.chunks(ON_A_LINE);
        lines.fold(finding, |finding, paths| {
            finding.next(format!("restorecon -RFv {}", paths.join(" ")))
        })
    }))
}

/// Returns the commands that set the labels on a mounted disk by its own policy: one per directory that is a root of the paths,
/// because `/var` is in another place than `/etc`.
fn commands_for_disk(evidence: &DoctorEvidence, labels: &LabelEvidence) -> Vec<String> {
    let policy = evidence.selinux.get().map(|state| state.policy.as_str());
    let Some(policy) = policy.filter(|policy| !policy.is_empty() && !evidence.live) else {
        return Vec::new();
    };
    let contexts = evidence.shell_path(&format!(
        "/etc/selinux/{policy}/contexts/files/file_contexts"
    ));
    let mut by_root: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in &labels.wrong {
        let path = one.path.to_string();
        let place = evidence.path_below(&path);
        if let Some(root) = place.strip_suffix(&path) {
            let paths = by_root.entry(root.to_owned()).or_default();
            paths.push(shell_word(&place));
        }
    }
    let commands = by_root.iter().flat_map(|(root, paths)| {
        let root = shell_word(root);
        let parts = paths.chunks(ON_A_LINE).map(|paths| paths.join(" "));
        let command = |paths: String| format!("setfiles -F -r {root} {contexts} {paths}");
        parts.map(command).collect::<Vec<_>>()
    });
    commands.collect()
}
