//! FP-32: a node that asks itself, or nobody, for names.

use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::name_servers::NameServers;
use crate::paths;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-32",
    title: "names cannot be resolved before the node runs",
    looks_at: "/etc/resolv.conf, and whether the node answers for names itself",
    explain: "On platforms without a DNS of their own each node runs one, as a static pod, and puts itself first in \
/etc/resolv.conf. Before that pod runs only the servers behind it answer; where there are none, the image that would \
start the pod cannot be pulled, and neither can one of the OS.\n\n\
mco-rescue fetch --resolve HOST:ADDRESS goes around it for the Machine Config Server; for everything else a line in \
/etc/hosts, or a server in /etc/resolv.conf until the next boot. \"lookup X on [::1]:53\" is what a program says that \
has no server at all.\n\n\
Offline it cannot be told whether a server answers: dig @SERVER NAME, one by one.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let found = match evidence.upkeep.name_servers.seen() {
        Ok(found) => found,
        Err(why) => return Verdict::unseen(format!("name servers: {why}")),
    };
    let none_left = found.elsewhere().next().is_none();
    let alone = match none_left && (found.file || evidence.live) {
        true => Some(nobody(evidence, found)),
        false => None,
    };
    let verdict = Verdict::healthy().and(alone);
    match evidence.live && !none_left {
        true => verdict.and_unseen("whether the name servers answer; ask each: dig @SERVER NAME"),
        false => verdict,
    }
}

fn nobody(evidence: &Evidence, found: &NameServers) -> Finding {
    let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
    let (what, said, says) = match servers.is_empty() {
        true => (
            "there is no name server",
            "no server in it".to_owned(),
            Some("on [::1]:53: connection refused"),
        ),
        false => (
            "the node asks itself alone for names",
            servers.join(", "),
            None,
        ),
    };
    let means = match found.own {
        true => {
            "Its own name server is a static pod: what is needed to start that cannot be pulled by name."
        }
        false => {
            "No name can be resolved: nothing can be fetched or pulled, and the API is not found."
        }
    };
    // What a disk has is of the last boot, and is written anew at the next.
    let severity = match (evidence.live, servers.is_empty()) {
        (true, true) => Severity::Critical,
        (true, false) if found.own => Severity::Critical,
        (true, false) => Severity::Warning,
        (false, _) => Severity::Notice,
    };
    let own = "etc/kubernetes/manifests/coredns.yaml";
    let finding =
        Finding::new(severity, what, means).seen(format!("/{}", paths::RESOLV_CONF), said);
    let finding = match found.own {
        true => finding.seen(format!("/{own}"), "the node's own name server"),
        false => finding,
    };
    finding
        .daemon(says.map(|says| format!("lookup api-int {says}")))
        .next(match evidence.live {
            true => "nmcli device show".to_owned(),
            false => format!("cat {}", evidence.path(paths::RESOLV_CONF)),
        })
        .next(format!(
            "mco-rescue fetch{} --resolve HOST:ADDRESS",
            evidence.at_root()
        ))
}
