//! FP-32: the node has no name server other than itself.

use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages,
};
use crate::node::name_servers::NameServers;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-32",
    title: "names cannot be resolved before the node runs",
    looks_at: "/etc/resolv.conf, and if the node runs its own name server",
    explain: "On platforms without DNS each node runs a name server as a static pod, and is the first server in its \
/etc/resolv.conf. Before that pod runs, only the servers after it answer. If there are none, the image that would \
start the pod cannot be pulled, and neither can one of the OS.\n\n\
mco-rescue fetch --resolve HOST:ADDRESS avoids this for the Machine Config Server. For everything else add a line to \
/etc/hosts, or a server to /etc/resolv.conf until the next boot. A program without any server reports \
\"lookup X on [::1]:53\".\n\n\
Doctor does not ask the servers. Try each one: dig @SERVER NAME.",
    judge: judge_name_servers,
};

fn judge_name_servers(evidence: &DoctorEvidence) -> CheckVerdict {
    let found = match evidence.upkeep.name_servers.seen() {
        Ok(found) => found,
        Err(why) => return CheckVerdict::not_seen(format!("name servers: {why}")),
    };
    let none_left = found.remote_servers().next().is_none();
    // A mounted disk has nothing below /run.
    let leads_nowhere = found.dangling.as_deref();
    let leads_nowhere = leads_nowhere.is_some_and(|target| !target.contains("/run/"));
    let alone = if none_left && (found.file || evidence.live || leads_nowhere) {
        Some(report_silence(evidence, found))
    } else {
        None
    };
    let verdict = CheckVerdict::healthy()
        .and_findings(alone)
        .and_findings(find_no_source(evidence, found));
    if evidence.live && !none_left {
        verdict.and_unseen("the name servers' answers; ask each one: dig @SERVER NAME")
    } else {
        verdict
    }
}

/// Reports a list of sources of which none queries a name server.
fn find_no_source(evidence: &DoctorEvidence, found: &NameServers) -> Option<DoctorFinding> {
    let line = found.no_source.as_ref()?;
    let means = "Programs look up names in /etc/hosts alone, whatever name servers there are: nothing can be pulled, and the API \
is not found.";
    let what = "names are not looked up at a name server";
    let finding = DoctorFinding::warning(what, means).with_evidence("/etc/nsswitch.conf", line);
    Some(finding.next(format!("vi {}", evidence.shell_path("etc/nsswitch.conf"))))
}

fn report_silence(evidence: &DoctorEvidence, found: &NameServers) -> DoctorFinding {
    let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
    let (what, said, says) = match (&found.dangling, servers.is_empty()) {
        (Some(target), _) => (
            "/etc/resolv.conf leads to nothing",
            format!("a link to {target}, which is missing"),
            Some(messages::fill_message(messages::NO_NAME_SERVER, "api-int")),
        ),
        (None, true) => (
            "there is no name server",
            "no server".to_owned(),
            Some(messages::fill_message(messages::NO_NAME_SERVER, "api-int")),
        ),
        (None, false) => (
            "the node is its own only name server",
            servers.join(", "),
            None,
        ),
    };
    let means = if found.own {
        "Its own name server is a static pod. The images to start that pod cannot be pulled by name."
    } else {
        "No name can be resolved: nothing can be fetched or pulled, and the API is not found."
    };
    let severity = severity_of(evidence, found);

    let own = "etc/kubernetes/manifests/coredns.yaml";
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence(format!("/{}", paths::RESOLV_CONF), said);
    let finding = if found.own {
        finding.with_evidence(format!("/{own}"), "the node's own name server")
    } else {
        finding
    };
    finding
        .with_message(says)
        .next(if evidence.live {
            "nmcli device show".to_owned()
        } else {
            format!("cat {}", evidence.shell_path(paths::RESOLV_CONF))
        })
        .next(format!(
            "mco-rescue fetch{} --resolve HOST:ADDRESS",
            evidence.at_root()
        ))
}

fn severity_of(evidence: &DoctorEvidence, found: &NameServers) -> CheckSeverity {
    match (evidence.live, found.servers.is_empty()) {
        (true, true) => CheckSeverity::Critical,
        (true, false) if found.own => CheckSeverity::Critical,
        (true, false) => CheckSeverity::Warning,
        // A mounted disk has the file of its last boot, which the next boot rewrites, but no boot replaces this link with a file.
        (false, _) if found.dangling.is_some() => CheckSeverity::Warning,
        (false, _) => CheckSeverity::Notice,
    }
}
