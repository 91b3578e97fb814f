//! FP-18: kernel arguments that the daemon never finds, or that others override.

use crate::base::invocation::kargs_command;
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::secrets::{has_secret_argument, redacted_arguments, shown_argument};
use crate::config::document::MachineConfig;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::judge::drift;
use crate::node::Records;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-18",
    title: "kernel arguments that cannot work as configured",
    looks_at: "spec.kernelArguments against the arguments of this boot and of the next",
    explain: "The daemon splits the kernel's arguments at every blank, also between quotes. An argument with a \
blank in it is set and works, but the daemon never finds it: the node stays Degraded. Write it in the config without \
a blank: oc edit mc NAME, with the name of the MachineConfig that contains it.\n\n\
A quote that is never closed includes the following arguments. For most keys the kernel uses the last \
value: an argument that an installer or a person added after the config's one wins. The daemon, which only checks \
presence, does not see that.\n\n\
The order of some arguments matters: hugepages belongs to the hugepagesz before it.\n\n\
Missing arguments are reported as FP-01. By hand: rpm-ostree kargs --append-if-missing=X --delete-if-present=Y, \
then a clean reboot.",
    judge: judge_kernel_arguments,
};

fn judge_kernel_arguments(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(another_boot(evidence));
    let Some(config) = evidence.records.get().and_then(Records::recorded_config) else {
        return verdict;
    };
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let verdict = verdict
        .and_findings(find_unclosed_quotes(&asked_for))
        .and_findings(never_found(evidence, config, &asked_for))
        .and_findings(left_over(evidence, config));
    match present_arguments(evidence).map(|present| present.written_as(&asked_for)) {
        Ok(present) => verdict
            .and_findings(find_overridden_arguments(&asked_for, &present))
            .and_findings(report_order(evidence, config, &asked_for, &present)),
        Err(_) if asked_for.is_empty() => verdict,
        Err(why) => verdict.and_unseen(format!("kernel arguments: {why}")),
    }
}

/// Returns the arguments of the running kernel, else of the default boot entry.
fn present_arguments(evidence: &DoctorEvidence) -> Result<&Kargs, &str> {
    match evidence.facts() {
        Ok(facts) => Ok(&facts.booted_arguments),
        Err(_) => evidence.arguments_on_disk.seen(),
    }
}

const IN_CONFIG: &str = "spec.kernelArguments";

fn never_found(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    asked_for: &Kargs,
) -> Option<DoctorFinding> {
    let never = asked_for.never_found();
    let missed = drift::missing_arguments(config, None);
    let means = "The daemon never finds an argument with a blank, even if it is on the command line. The node stays \
Degraded until the config is changed.";
    (!never.is_empty()).then(|| {
        DoctorFinding::warning("a kernel argument has a blank in it", means)
            .seen_all(
                never
                    .into_iter()
                    .map(|token| Fact::new(IN_CONFIG, shown_argument(token))),
            )
            .with_message(
                missed.and_then(|missed| evidence.daemon_verdict(&config.name, &[missed])),
            )
            .next("oc edit mc NAME")
    })
}

fn find_unclosed_quotes(asked_for: &Kargs) -> Option<DoctorFinding> {
    let open = asked_for.unclosed_quotes();
    let means = "On the command line it includes every argument after it, up to the next quote.";
    (!open.is_empty()).then(|| {
        DoctorFinding::warning("a kernel argument never closes its quote", means)
            .seen_all(
                open.into_iter()
                    .map(|token| Fact::new(IN_CONFIG, shown_argument(token))),
            )
            .next("oc edit mc NAME")
    })
}

/// Keys that may occur several times, each with its own effect.
const REPEATED: [&str; 8] = [
    "console",
    "hugepages",
    "hugepagesz",
    "ip",
    "nameserver",
    "rd.luks.name",
    "rd.luks.options",
    "earlycon",
];

fn find_overridden_arguments(asked_for: &Kargs, present: &Kargs) -> Option<DoctorFinding> {
    let last = |kargs: &Kargs, key: &str| {
        let same = |token: &&String| token.split('=').next() == Some(key);
        kargs.tokens().iter().rfind(same).cloned()
    };
    let (mut facts, mut first) = (Vec::new(), String::new());
    for token in asked_for.tokens() {
        let key = token.split('=').next().unwrap_or(token);
        let own = last(asked_for, key).is_some_and(|own| own == *token);
        let there = present.tokens().contains(token);
        let wins = last(present, key).filter(|wins| wins != token);
        if let Some(wins) = wins.filter(|_| own && there && !REPEATED.contains(&key)) {
            let said = format!("{} comes after it", shown_argument(&wins));
            facts.push(Fact::new(shown_argument(token), said));
            first = wins;
        }
    }
    let means = "For most keys the kernel uses the last value. The daemon finds the config's one and reports no error.";
    (!facts.is_empty()).then(|| {
        DoctorFinding::notice("a kernel argument of the config is overridden", means)
            .seen_all(facts)
            .next(if has_secret_argument(&first) {
                "rpm-ostree kargs --editor".to_owned()
            } else {
                kargs_command(&[KargsChange::Delete(first)])
            })
    })
}

/// Reports arguments of an earlier config. The daemon only checks that the arguments of the recorded config are present.
fn left_over(evidence: &DoctorEvidence, config: &MachineConfig) -> Option<DoctorFinding> {
    let left = drift::left_arguments(config, evidence.facts().ok()?)?;
    let means = "The recorded config does not ask for them: its files came without its kernel arguments. They stay until a run \
stages those.";
    Some(
        DoctorFinding::warning("kernel arguments of an earlier config are left", means)
            .with_evidence("the next boot", left.detail)
            .next(evidence.own_command("apply")),
    )
}

fn report_order(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    asked_for: &Kargs,
    present: &Kargs,
) -> Option<DoctorFinding> {
    let list = asked_for.out_of_order(present).join(" ");
    let means = "The order gives these arguments their meaning: a number of huge pages belongs to the size before it, \
and for most keys the last value wins. The daemon only checks presence.";
    (!list.is_empty()).then(|| {
        DoctorFinding::warning("the config's kernel arguments are in another order", means)
            .with_evidence(IN_CONFIG, redacted_arguments(&list))
            .with_evidence("the command line", redacted_arguments(&present.to_string()))
            .next(evidence.own_command(&format!("plan cached:{}", config.name)))
    })
}

fn another_boot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let facts = evidence.facts().ok()?;
    let (now, then) = (&facts.booted_arguments, &facts.arguments);
    let all = &facts.deployments;
    // Another deployment has its own arguments.
    if all.staged().or(all.queued()).is_some() || now == then {
        return None;
    }
    let differs = |what: &str, a: &Kargs, b: &Kargs| {
        let only = a.missing_from(b).join(" ");
        (!only.is_empty()).then(|| Fact::new(what, redacted_arguments(&only)))
    };
    let facts = [
        differs("this boot only", now, then),
        differs("the next boot only", then, now),
    ];
    let facts: Vec<Fact> = facts.into_iter().flatten().collect();
    let means =
        "The boot entry was changed since this boot, or arguments were typed at the boot menu.";
    (!facts.is_empty()).then(|| {
        DoctorFinding::notice("the next boot has other kernel arguments", means)
            .seen_all(facts)
            .next("rpm-ostree kargs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_last_value_of_a_single_key_overrides() {
        let judged = |asked: &str, present: &str| {
            find_overridden_arguments(&Kargs::parse(asked), &Kargs::parse(present)).is_some()
        };
        assert!(judged("nosmt=force", "rw nosmt=force nosmt=off"));
        assert!(!judged("nosmt=force", "nosmt=off nosmt=force"));
        assert!(!judged("nosmt=force", "nosmt=off"));
        assert!(!judged("console=tty0", "console=tty0 console=ttyS0"));
        assert!(!judged("a=1 a=2", "a=1 a=2"));
    }
}
