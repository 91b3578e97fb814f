//! Does bootc take the kernel arguments that the image brings, and which come and go with it?

use super::bootable::NEXT;
use crate::base::kargs::Kargs;
use crate::base::secrets::shown_arguments;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::engine::Engine;
use crate::node::image_arguments;
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("image-arguments", judge);

const SUBJECT: &str = "/usr/lib/bootc/kargs.d";

/// rpm-ostree does not read them.
fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    if node.engine != Ok(Engine::Bootc) {
        return Vec::new();
    }
    let new = match image_arguments::of_tree(&target.tree) {
        Ok(new) => new,
        Err(why) => {
            let what = "bootc refuses the kernel arguments of the image, and with them the image";
            let finding = CrossingFinding::inhibitor(SUBJECT, what)
                .with_evidence(&target.tree.source, why.to_string())
                .with_prevented(
                    "error: Switching: Switching (ostree): Parsing NAME.toml: TOML parse error",
                )
                .next(NEXT);
            return vec![finding];
        }
    };
    let running = match &node.image_arguments {
        Ok(running) => running,
        Err(why) => {
            let what = "the kernel arguments of the running image are not known, so neither are those that go with it";
            let finding =
                CrossingFinding::unknown(SUBJECT, what).with_evidence(SUBJECT, why.to_string());
            let come = format!("come: {}", shown_arguments(new.tokens()).join(" "));
            return vec![finding.with_evidence(&target.tree.source, come)];
        }
    };
    report_changes(target, &new, running).into_iter().collect()
}

/// Reports the kernel arguments that only one of the two images has.
fn report_changes(target: &Target, new: &Kargs, running: &Kargs) -> Option<CrossingFinding> {
    let lists = [
        (
            "come",
            new.missing_from(running),
            target.tree.source.as_str(),
        ),
        ("go", running.missing_from(new), SUBJECT),
    ];
    let what = "kernel arguments come and go with the image, without being asked for by a config";
    let finding = CrossingFinding::warning(SUBJECT, what);
    let shown = lists.iter().filter(|(_, tokens, _)| !tokens.is_empty());
    let finding = shown.fold(finding, |finding, (how, tokens, place)| {
        let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
        finding.with_evidence(
            *place,
            format!("{how}: {}", shown_arguments(&tokens).join(" ")),
        )
    });
    (!finding.evidence.is_empty()).then_some(finding)
}
