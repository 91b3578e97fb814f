//! FP-02: the first boot gets no config.

use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::Recorded;
use crate::transaction::{LastRun, Outcome};

/// The check.
pub const CHECK: Check = Check {
    id: "FP-02",
    title: "no config has reached this node",
    looks_at: "traces of a first boot, and how the initramfs fared",
    explain: "A new node asks its Machine Config Server for its config before anything else, and Ignition asks \
without end when it gets no answer: the console shows a start job without limit and attempts by the hundred. No ssh \
exists then. A name server at [::1]:53 in the messages means that the initramfs got none at all.\n\n\
Look, in this order, at: link and address (ip addr), route, name server, the load balancer's port 22623, the \
certificate, the clock. mco-rescue fetch tries all of it and names the first that fails.\n\n\
Without the server: a config from a stick labelled MCO-RESCUE, or from another node of the pool, where \
/etc/machine-config-daemon/currentconfig holds it: mco-rescue apply FILE --root /sysroot. What a server is like today \
cannot be told from here.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    if !evidence.has_system {
        let means = "Nothing else here says anything: another disk or directory is meant, or it is not mounted.";
        let finding = Finding::new(Severity::Warning, "there is no system at this root", means)
            .seen(evidence.root.clone(), "has neither /usr nor /etc")
            .next("lsblk -f")
            .next("mco-rescue doctor --root DIR");
        return Verdict::found(finding);
    }
    let failed = evidence
        .first_boot
        .as_ref()
        .filter(|boot| boot.outcome == "failed" && !made_up_for(evidence));
    if let Some(boot) = failed {
        let means =
            "The config was not applied in the initramfs; the node boots as it would without it.";
        let mut finding = Finding::new(
            Severity::Critical,
            "this boot could not apply its config",
            means,
        );
        if let (Some(phase), Some(cause)) = (&boot.phase, &boot.cause) {
            finding = finding.seen(format!("while {phase}"), cause.clone());
        }
        return Verdict::found(finding.next(fetch(evidence)).next(apply(evidence)));
    }
    let Some(records) = evidence.records.get() else {
        return Verdict::unseen("whether a config was ever recorded: the records cannot be read");
    };
    if matches!(records.current_config, Recorded::Broken(_)) {
        return Verdict::unseen("whether a config was ever recorded: the records cannot be read");
    }
    let nothing = matches!(
        (&records.current_config, &records.mcs_content),
        (Recorded::Missing, Recorded::Missing)
    );
    let files = &evidence.first_boot_files;
    if !nothing || files.encapsulated || files.encapsulated_kept {
        return Verdict::healthy();
    }
    let first = evidence.in_initramfs || evidence.never_booted;
    let (severity, what) = match first {
        true => (Severity::Critical, "no config has reached this node yet"),
        false => (Severity::Notice, "no MachineConfig is recorded here"),
    };
    let means = match first {
        true => {
            "Without a config the node has no kubelet, no keys and no network of the cluster: it never joins."
        }
        false => "This is no node of a cluster, or its records are lost. Nothing can be compared.",
    };
    let ignition = match files.ignition_result {
        true => "Ignition has written a config",
        false => "Ignition has written no config",
    };
    let finding = Finding::new(severity, what, means)
        .seen("/etc/machine-config-daemon/currentconfig", "missing")
        .seen("/etc/.ignition-result.json", ignition);
    let server = evidence
        .server
        .as_deref()
        .unwrap_or("the Machine Config Server");
    Verdict::found(finding.next(fetch(evidence)).next(apply(evidence))).and_unseen(format!(
        "whether {server} answers: {} asks it",
        evidence.command("fetch")
    ))
}

/// A run has applied a config since.
fn made_up_for(evidence: &Evidence) -> bool {
    let after = |run: &LastRun| {
        matches!(run.outcome, Outcome::Done | Outcome::Recovered)
            && evidence
                .first_boot_ended
                .is_some_and(|ended| run.finished > ended)
    };
    evidence.last_run.as_ref().is_some_and(after)
}

fn fetch(evidence: &Evidence) -> String {
    format!("mco-rescue fetch --from-media{}", evidence.at_root())
}

fn apply(evidence: &Evidence) -> String {
    format!("mco-rescue apply --latest{}", evidence.at_root())
}
