//! FP-13: files that may not be changed.

use crate::doctor::evidence::Deployed;
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};

/// The check.
pub const CHECK: Check = Check {
    id: "FP-13",
    title: "files carry the immutable attribute",
    looks_at: "attributes (chattr) of the config's files, and of everything in the deployments but usr",
    explain: "Some agents protect their files with chattr +i or +a. Then not even root can replace them: the daemon fails \
with Operation not permitted, and a clean-up of old deployments stops at such a file, every time, until \
the disk is full of deployments that nobody needs.\n\n\
mco-rescue apply --clear-immutable takes the attribute off the paths it has to change, for as long as that takes. In an old \
deployment: chattr -i FILE, then ostree admin cleanup. The directory of a deployment itself carries it by design: \
leave that one alone. And find out who sets it, or it comes back.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::healthy();
    match evidence.compared.seen() {
        Ok(_) => verdict = verdict.and(managed(evidence)),
        Err(why) => {
            verdict = verdict.and_unseen(format!("attributes of the config's files: {why}"))
        }
    }
    match evidence.deployments.seen() {
        Ok(all) => {
            verdict = verdict.and(deployed(evidence, all));
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

fn managed(evidence: &Evidence) -> Option<Finding> {
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
    let means = "The daemon cannot replace it: its next update fails there and is taken back.";
    Some(
        Finding::new(
            Severity::Warning,
            "a path of the config may not be changed",
            means,
        )
        .seen_all(facts)
        .daemon(Some("operation not permitted".to_owned()))
        .next(format!(
            "mco-rescue apply --clear-immutable{}",
            evidence.at_root()
        )),
    )
}

/// Not those that the config's own paths lead to: they are told already.
fn deployed(evidence: &Evidence, all: &[Deployed]) -> Option<Finding> {
    let own: Vec<String> = evidence
        .compared
        .get()
        .into_iter()
        .flat_map(|compared| &compared.flags)
        .map(|(path, _)| path.to_string())
        .collect();
    let paths: Vec<(&Deployed, String)> = all
        .iter()
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
        .collect();
    let (_, first) = paths.first()?;
    let left = paths.iter().any(|(one, _)| one.known == Some(false));
    let (severity, what, means) = match left {
        true => (
            Severity::Warning,
            "an old deployment cannot be removed",
            "Every clean-up stops here, and old deployments pile up until the disk is full.",
        ),
        false => (
            Severity::Notice,
            "a deployment has files that may not be changed",
            "Once this deployment is an old one, it cannot be removed, and the disk fills up.",
        ),
    };
    let facts = paths.iter().map(|(one, path)| {
        let listed = match one.known {
            Some(false) => "rpm-ostree does not list this deployment",
            _ => "chattr +i or +a",
        };
        Fact::new(path, listed)
    });
    Some(
        Finding::new(severity, what, means)
            .seen_all(facts)
            .daemon(Some("Operation not permitted".to_owned()))
            .next(format!("chattr -ia {}", evidence.path(first)))
            .next(evidence.cleanup()),
    )
}
