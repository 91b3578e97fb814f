//! FP-19: extension packages or a kernel that the deployment lacks, or packages that no config requests.

use crate::base::invocation::on_node;
use crate::config::document::MachineConfig;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::Records;
use crate::node::command::rpm_ostree::packages::{
    find_lacking_kernel, kernel_type_of, missing_packages,
};
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::os_release::Class;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-19",
    title: "extensions or kernel type are not in the deployment",
    looks_at: "packages of spec.extensions and spec.kernelType in the running deployment",
    explain: "Extensions (spec.extensions) and another kernel (spec.kernelType) are packages on top of the image. They \
come from the extensions image, which the daemon pulls when it makes the change. Offline it is unavailable, \
and releases before 2026 continued as if it had worked.\n\n\
64k-pages exists for aarch64 only, and realtime for x86_64 only. On another machine no command brings them: the MachineConfig that \
asks for them has to go.\n\n\
mco-rescue plan shows the commands that install the packages. apply --extensions-from DIRECTORY takes them from a \
medium with the unpacked image. rpm-ostree status shows the layered packages.\n\n\
Replaced packages, local packages and an unlocked /usr are in no config, and the daemon does not see them: the image name \
matches, the content does not. rpm-ostree override reset --all and rpm-ostree uninstall PACKAGE revert \
the packages. An unlocked /usr is reverted by a reboot.",
    judge: judge_extensions,
};

fn judge_extensions(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(by_hand(evidence));
    let Some(config) = evidence.records.get().and_then(Records::recorded_config) else {
        return verdict;
    };
    let wants = !config.extensions.is_empty() || config.kernel_type.as_str() != "default";
    let other_os = evidence
        .facts()
        .is_ok_and(|facts| facts.class != Class::EnterpriseCoreos);
    if other_os {
        // The daemon changes packages on no other system.
        return verdict;
    }
    match find_deployment(evidence) {
        Some(deployment) => verdict.and_findings(report_missing(evidence, config, &deployment)),
        None if wants => verdict.and_unseen(format!(
            "packages of extensions: {}",
            explain_no_deployment(evidence)
        )),
        None => verdict,
    }
}

fn by_hand(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let deployments = &evidence.facts().ok()?.deployments;
    let of = |what: &str, one: Option<&Deployment>| {
        let words = one.map(Deployment::by_hand).unwrap_or_default();
        words
            .into_iter()
            .map(move |words| Fact::new(what, words))
            .collect::<Vec<_>>()
    };
    let staged = of("the staged OS", deployments.staged());
    let facts = [of("the running OS", deployments.booted()), staged].concat();
    let means = "No config contains it, and the daemon does not see it: the image name matches, the \
content does not. The next image may drop it or fail on it.";
    (!facts.is_empty()).then(|| {
        let what = "the operating system was changed by hand";
        let finding = DoctorFinding::notice(what, means);
        finding.seen_all(facts).next("rpm-ostree status")
    })
}

/// Returns the running deployment; without rpm-ostree, the packages of the origin file.
pub(super) fn find_deployment(evidence: &DoctorEvidence) -> Option<Deployment> {
    if let Ok(facts) = evidence.facts() {
        return facts.deployments.booted().cloned();
    }
    let packages = evidence.os.get().and_then(|os| os.packages.clone());
    packages.map(|requested_packages| Deployment {
        requested_packages,
        ..Deployment::default()
    })
}

/// Returns why it is not known.
pub(super) fn explain_no_deployment(evidence: &DoctorEvidence) -> String {
    match evidence.os.seen() {
        Err(why) => why.to_owned(),
        Ok(_) => format!(
            "rpm-ostree was not queried, and no origin file is visible; {}",
            on_node("rpm-ostree status")
        ),
    }
}

fn report_missing(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    runs: &Deployment,
) -> Option<DoctorFinding> {
    let wanted = |what: &str, value: &str| (what.to_owned(), value.to_owned());
    let mut facts = Vec::new();
    facts.extend(lacking_packages(config, runs).map(|lack| wanted("spec.extensions", &lack)));
    let (kernel, has) = (config.kernel_type.as_str(), kernel_type_of(runs));
    if kernel != has {
        let differs = format!("{kernel} is wanted, {has} is installed");
        facts.push(wanted("spec.kernelType", &differs));
    }
    let means = "The record lists them, but they are missing. Features that need them do not work, and the daemon may go \
Degraded over it.";
    let never = evidence.upkeep.architecture.filter(|_| kernel != has);
    let never = never.and_then(|architecture| find_lacking_kernel(kernel, architecture));
    if let Some(never) = &never {
        facts.push(wanted("this machine", never));
    }
    let finding = DoctorFinding::warning("packages of the config are missing", means);
    (!facts.is_empty()).then(|| {
        let facts = facts
            .into_iter()
            .map(|(place, said)| Fact::new(place, said));
        let finding = finding
            .seen_all(facts)
            .with_evidence("the extensions image", &config.extensions_image)
            .with_message(
                predict_message(evidence).or(never.clone().filter(|_| kernel == "64k-pages")),
            );
        match never {
            // No command installs it: the MachineConfig that asks for it has to be removed.
            Some(_) => finding
                .next("oc get mc -o custom-columns=NAME:.metadata.name,KERNEL:.spec.kernelType")
                .next(evidence.own_command("apply CONFIG")),
            None => finding
                .next(format!("mco-rescue plan{}", evidence.at_root()))
                .next("rpm-ostree status"),
        }
    })
}

/// Returns which packages of the extensions are not layered, or why that is not known.
fn lacking_packages(config: &MachineConfig, runs: &Deployment) -> Option<String> {
    match missing_packages(&config.extensions, runs) {
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => Some(format!("{} not layered", missing.join(", "))),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the message about packages that the daemon will report, if any.
fn predict_message(evidence: &DoctorEvidence) -> Option<String> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let says = branch.prediction.error.clone()?;
    says.contains(messages::EXTENSIONS).then_some(says)
}
