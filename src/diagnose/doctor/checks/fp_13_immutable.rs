//! FP-13: files with the immutable attribute.

use crate::diagnose::doctor::evidence::DeployedTree;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-13",
    title: "files carry the immutable attribute",
    looks_at: "attributes (chattr) of the config's files, and of the deployments except /usr",
    explain: "Some agents protect their files with chattr +i or +a. Then not even root can replace them: the daemon fails \
with Operation not permitted, and every clean-up of old deployments stops at such a file until \
the disk is full of unused deployments.\n\n\
mco-rescue apply --clear-immutable removes the attribute from the paths it has to change, and sets it again. In an old \
deployment: chattr -i FILE, then ostree admin cleanup. The directory of a deployment itself has it by design: \
leave that one alone. Find the agent that sets the attribute, or it comes back.",
    judge: judge_immutable,
};

fn judge_immutable(evidence: &DoctorEvidence) -> CheckVerdict {
    let mut verdict = CheckVerdict::healthy();
    match evidence.compared.seen() {
        Ok(_) => verdict = verdict.and_findings(find_managed_paths(evidence)),
        Err(why) => {
            verdict = verdict.and_unseen(format!("attributes of the config's files: {why}"))
        }
    }
    match evidence.deployments.seen() {
        Ok(all) => {
            verdict = verdict.and_findings(find_deployed_paths(evidence, all));
            for one in all {
                if let Err(why) = one.immutable.seen() {
                    verdict =
                        verdict.and_unseen(format!("attributes in {}: {why}", one.directory.name));
                }
            }
        }
        Err(why) if evidence.deployment.is_some() => {
            verdict = verdict.and_unseen(format!("attributes in deployments: {why}"));
        }
        Err(_) => {}
    }
    verdict
}

fn find_managed_paths(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let flags = &evidence.compared.get()?.flags;
    if flags.is_empty() {
        return None;
    }
    let facts = flags.iter().map(|(path, flags)| {
        Fact::new(
            path.to_string(),
            format!("{} (chattr +{})", flags.words(), flags.letters()),
        )
    });
    let means = "The daemon cannot replace it. Its next update fails there and is reverted.";
    Some(
        DoctorFinding::warning("a path of the config is immutable", means)
            .seen_all(facts)
            .with_message(Some(messages::NOT_PERMITTED.to_owned()))
            .next(format!(
                "mco-rescue apply --clear-immutable{}",
                evidence.at_root()
            )),
    )
}

/// Reports immutable files in deployments, except those of the config, which are already reported.
fn find_deployed_paths(evidence: &DoctorEvidence, all: &[DeployedTree]) -> Option<DoctorFinding> {
    let paths = list_immutable_paths(evidence, all);
    let (_, first) = paths.first()?;
    let left = paths.iter().any(|(one, _)| one.known == Some(false));
    let (severity, what, means) = if left {
        (
            CheckSeverity::Warning,
            "an old deployment cannot be removed",
            "Every clean-up stops here, and old deployments fill the disk.",
        )
    } else {
        (
            CheckSeverity::Notice,
            "a deployment has immutable files",
            "Once this deployment is old, it cannot be removed, and the disk fills up.",
        )
    };
    let facts = paths.iter().map(|(one, path)| {
        let listed = match one.known {
            Some(false) => "rpm-ostree does not list this deployment",
            _ => "chattr +i or +a",
        };
        Fact::new(path, listed)
    });
    Some(
        DoctorFinding::new(severity, what, means)
            .seen_all(facts)
            .with_message(Some(messages::NOT_PERMITTED_BY_C.to_owned()))
            .next(format!("chattr -ia {}", evidence.shell_path(first)))
            .next(evidence.cleanup_command()),
    )
}

/// Returns the immutable paths of deployments, but not those that are reported as files of the config.
fn list_immutable_paths<'a>(
    evidence: &DoctorEvidence,
    all: &'a [DeployedTree],
) -> Vec<(&'a DeployedTree, String)> {
    let own: Vec<String> = evidence
        .compared
        .get()
        .into_iter()
        .flat_map(|compared| &compared.flags)
        .map(|(path, _)| path.to_string())
        .collect();
    all.iter()
        .flat_map(|one| {
            one.immutable
                .get()
                .into_iter()
                .flatten()
                .map(move |path| (one, path.to_string()))
        })
        .filter(|(one, path)| {
            let runs = evidence.deployment.as_ref() == Some(&one.directory.name);
            !(runs && own.iter().any(|own| path.ends_with(own.as_str())))
        })
        .collect()
}
