//! FP-19: packages of extensions, or a kernel, that the config wants and the deployment lacks; and what no config asks
//! for.

use crate::command::rpm_ostree::packages::{kernel_type_of, missing_packages};
use crate::command::rpm_ostree::status::Deployment;
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::document::MachineConfig;
use crate::node::Records;
use crate::node::os_release::Class;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-19",
    title: "extensions or kernel type are not in the deployment",
    looks_at: "packages of spec.extensions and spec.kernelType in what runs",
    explain: "Extensions (spec.extensions) and another kernel (spec.kernelType) are packages on top of the image. They \
come from the extensions image, which the daemon has to pull at the moment of the change; offline it is not there, \
and releases before 2026 went on as if it had worked.\n\n\
mco-rescue plan shows the commands that bring the packages; apply --extensions-from DIRECTORY takes them from a \
medium with the unpacked image. rpm-ostree status shows what is layered now.\n\n\
Replaced packages, local packages and an unlocked /usr are in no config, and the daemon does not see them: the name \
of the image is as wanted, its content is not. rpm-ostree override reset --all and rpm-ostree uninstall PACKAGE take \
the packages back; an unlocked /usr is as before after a reboot.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(by_hand(evidence));
    let Some(config) = evidence.records.get().and_then(Records::recorded) else {
        return verdict;
    };
    let wants = !config.extensions.is_empty() || config.kernel_type.as_str() != "default";
    let other_os = evidence
        .facts()
        .is_ok_and(|facts| facts.class != Class::EnterpriseCoreos);
    if other_os {
        // The daemon changes packages nowhere else.
        return verdict;
    }
    match deployment(evidence) {
        Some(deployment) => verdict.and(lacking(evidence, config, &deployment)),
        None if wants => verdict.and_unseen(
            "packages of extensions: rpm-ostree was not asked, and no origin file tells; look at: rpm-ostree status"
                .to_owned(),
        ),
        None => verdict,
    }
}

fn by_hand(evidence: &Evidence) -> Option<Finding> {
    let deployments = &evidence.facts().ok()?.deployments;
    let of = |what: &str, one: Option<&Deployment>| {
        let words = one.map(Deployment::by_hand).unwrap_or_default();
        words
            .into_iter()
            .map(move |words| Fact::new(what, words))
            .collect::<Vec<_>>()
    };
    let staged = of("what is staged", deployments.staged());
    let facts = [of("what runs", deployments.booted()), staged].concat();
    let means = "No config asks for it, and the daemon does not see it: the name of the image is as wanted, its \
content is not. The next image may lose it, or fail over it.";
    (!facts.is_empty()).then(|| {
        let what = "the operating system was changed by hand";
        let finding = Finding::new(Severity::Notice, what, means);
        finding.seen_all(facts).next("rpm-ostree status")
    })
}

/// What runs; else what the origin file asks for.
fn deployment(evidence: &Evidence) -> Option<Deployment> {
    if let Ok(facts) = evidence.facts() {
        return facts.deployments.booted().cloned();
    }
    let packages = evidence.upkeep.packages.clone();
    packages.map(|requested_packages| Deployment {
        requested_packages,
        ..Deployment::default()
    })
}

fn lacking(evidence: &Evidence, config: &MachineConfig, runs: &Deployment) -> Option<Finding> {
    let wanted = |what: &str, value: &str| (what.to_owned(), value.to_owned());
    let mut facts = Vec::new();
    match missing_packages(&config.extensions, runs) {
        Ok(missing) if !missing.is_empty() => {
            let missing = format!("{} not layered", missing.join(", "));
            facts.push(wanted("spec.extensions", &missing));
        }
        Ok(_) => {}
        Err(error) => facts.push(wanted("spec.extensions", &error.to_string())),
    }
    let (kernel, has) = (config.kernel_type.as_str(), kernel_type_of(runs));
    if kernel != has {
        let differs = format!("{kernel} is wanted, {has} is there");
        facts.push(wanted("spec.kernelType", &differs));
    }
    let means = "The record says that the node has them. What depends on them does not work, and the daemon may go \
Degraded over it.";
    let finding = Finding::new(
        Severity::Warning,
        "packages of the config are not there",
        means,
    );
    (!facts.is_empty()).then(|| {
        let facts = facts
            .into_iter()
            .map(|(place, said)| Fact::new(place, said));
        finding
            .seen_all(facts)
            .seen("the extensions image", &config.extensions_image)
            .daemon(predicted(evidence))
            .next(format!("mco-rescue plan{}", evidence.at_root()))
            .next("rpm-ostree status")
    })
}

/// The daemon's words, where it will say some about packages.
fn predicted(evidence: &Evidence) -> Option<String> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let says = branch.prediction.error.clone()?;
    says.contains("extension package").then_some(says)
}
