//! FP-53: the virtual address of the API is held by no node, or by one that cannot serve it.

use std::net::IpAddr;

use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages};
use crate::node::node_address::AddressHolder;
use crate::node::virtual_addresses::{
    AddressPod, BALANCER_CONFIG, CONFIG, REMOTE_WORKER, Rendered, VirtualAddresses, VrrpInstance,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-53",
    title: "this node cannot hold a virtual address",
    looks_at: "the pods keepalived and haproxy, what is rendered for them, and the interfaces",
    explain: "On premises the address of the API, and that of ingress, move between nodes: keepalived gives them to the \
node with the highest priority, and lowers the priority where the load balancer (haproxy, port 9445) or the local API \
does not answer. Clients say: dial tcp VIP:6443: connect: no route to host.\n\n\
Both are static pods. keepalived runs with /etc/keepalived/keepalived.conf, which its monitor renders from a template; \
without it, or with the mark of a remote worker, it sleeps. haproxy waits in its first container until api-int answers, \
which another node or the bootstrap machine has to do. Both images have to be on the node.\n\n\
This node alone cannot tell if another one holds the address: ask for it in the same network (arping -D -I INTERFACE VIP; \
no answer: it is held by none). unicast_peer in the file lists the nodes that may. A worker holds ingress only; clusters \
with a load balancer of their own, or without a platform, have no such address. By hand, and only while keepalived is \
stopped: ip addr add VIP/32 dev INTERFACE label vip. keepalived removes it when it starts.",
    judge: judge_virtual_addresses,
};

fn judge_virtual_addresses(evidence: &DoctorEvidence) -> CheckVerdict {
    let found = match evidence.virtual_addresses.seen() {
        Ok(Some(found)) => found,
        Ok(None) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("virtual addresses: {why}")),
    };
    if found.keepalived == AddressPod::Disabled {
        return CheckVerdict::healthy();
    }
    if evidence.live && found.remote_worker && found.balancer_template {
        return CheckVerdict::one_finding(find_asleep(evidence));
    }
    // A worker in another network does not take part.
    if found.remote_worker {
        return CheckVerdict::healthy();
    }
    let verdict = CheckVerdict::healthy()
        .and_findings(find_no_pod(evidence, found))
        .and_findings(find_nothing_rendered(evidence, found))
        .and_findings(find_no_server(evidence, found))
        .and_findings(find_bad_scripts(evidence, found));
    let mut verdict = verdict;
    for instance in found.instances() {
        verdict = verdict
            .and_findings(find_wrong_interface(evidence, instance))
            .and_findings(find_wrong_peers(evidence, found, instance));
    }
    match (evidence.live, evidence.interfaces.seen()) {
        (true, Err(why)) if !found.instances().is_empty() => {
            verdict.and_unseen(format!("the interfaces: {why}"))
        }
        _ => verdict,
    }
}

/// Returns true if a file differs from the config: another check reports it.
fn is_drift(evidence: &DoctorEvidence, path: &str) -> bool {
    let compared = evidence.compared.get();
    let mut drifts = compared.iter().flat_map(|compared| &compared.drifts);
    drifts.any(|drift| drift.subject == path)
}

fn find_asleep(evidence: &DoctorEvidence) -> DoctorFinding {
    let place = format!("/{REMOTE_WORKER}");
    let means = "keepalived sleeps while this mark exists. It is for workers in another network, and this node belongs to the \
                 control plane: its address was chosen outside of the network of the virtual ones.";
    DoctorFinding::warning("keepalived sleeps on a control-plane node", means)
        .with_evidence(place.clone(), "exists")
        .next("ip -br addr")
        .next("journalctl -b -u nodeip-configuration -n 20")
        .next(format!(
            "mv {} {}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)",
            evidence.shell_path(&place),
            evidence.shell_path(&place)
        ))
}

fn find_no_pod(evidence: &DoctorEvidence, found: &VirtualAddresses) -> Option<DoctorFinding> {
    let pods = [
        ("keepalived", found.keepalived, found.template),
        ("haproxy", found.balancer, found.balancer_template),
    ];
    let is_gone = |(name, pod, template): &(&str, AddressPod, bool)| {
        let path = format!("/etc/kubernetes/manifests/{name}.yaml");
        *pod == AddressPod::Missing && *template && !is_drift(evidence, &path)
    };
    let (name, _, _) = pods.into_iter().find(is_gone)?;
    let means = match name {
        "keepalived" => {
            "The node has the template and does not run the pod: it never holds a virtual address."
        }
        _ => {
            "The node has the template and does not run the pod: the load balancer does not answer here, and keepalived \
             gives the address of the API to another node."
        }
    };
    let finding = DoctorFinding::warning(format!("the manifest of {name} is missing"), means)
        .with_evidence(format!("/etc/kubernetes/manifests/{name}.yaml"), "missing")
        .with_evidence(
            format!("/etc/kubernetes/static-pod-resources/{name}"),
            "has its template",
        );
    Some(finding.next(evidence.own_command("apply --latest")))
}

fn find_nothing_rendered(
    evidence: &DoctorEvidence,
    found: &VirtualAddresses,
) -> Option<DoctorFinding> {
    // It is rendered when the pod starts, so a disk that never ran has none.
    let is_bad = |empty: bool, missing: bool| empty || (missing && evidence.live);
    let config = is_bad(
        found.config == Rendered::Empty,
        found.config == Rendered::Missing,
    );
    let balancer = is_bad(
        found.servers == Rendered::Empty,
        found.servers == Rendered::Missing,
    );
    let is_run = |pod: AddressPod| pod == AddressPod::Active;
    let (path, pod) = match () {
        () if config && is_run(found.keepalived) => (CONFIG, "keepalived"),
        () if balancer && is_run(found.balancer) => (BALANCER_CONFIG, "haproxy"),
        () => return None,
    };
    let (is_empty, means) = match pod {
        "keepalived" => (
            found.config == Rendered::Empty,
            "keepalived waits until its monitor has rendered the file, and holds no address. In the first minutes after a \
             boot that is normal.",
        ),
        _ => (
            found.servers == Rendered::Empty,
            "haproxy waits until its monitor has rendered the file: the load balancer does not answer, and keepalived \
             gives the address of the API away. In the first minutes after a boot that is normal.",
        ),
    };

    let said = if is_empty { "empty" } else { "missing" };
    let finding = DoctorFinding::warning(format!("{pod} has no configuration"), means)
        .with_evidence(format!("/{path}"), said)
        .with_evidence(format!("/etc/kubernetes/manifests/{pod}.yaml"), "exists");
    let logs = format!("crictl logs $(crictl ps -aq --name {pod}-monitor | head -n 1)");
    Some(if evidence.live {
        finding
            .next(format!("crictl ps -a --name {pod}-monitor"))
            .next(logs)
    } else {
        finding.next(format!("ls -l {}", evidence.shell_path(path)))
    })
}

fn find_no_server(evidence: &DoctorEvidence, found: &VirtualAddresses) -> Option<DoctorFinding> {
    if found.balancer != AddressPod::Active || found.servers != Rendered::Content(0) {
        return None;
    }
    let means = "haproxy passes nothing on, and fails its own check: keepalived lowers the priority of this node.";
    let finding = DoctorFinding::warning("the load balancer has no API server", means)
        .with_evidence(format!("/{BALANCER_CONFIG}"), "no line with server");
    Some(if evidence.live {
        finding
            .next("crictl logs $(crictl ps -aq --name haproxy-monitor | head -n 1)")
            .next("curl -k https://localhost:6443/readyz")
    } else {
        finding.next(format!("ls -l {}", evidence.shell_path(BALANCER_CONFIG)))
    })
}

fn find_bad_scripts(evidence: &DoctorEvidence, found: &VirtualAddresses) -> Option<DoctorFinding> {
    let (first, _) = found.bad_scripts.first()?;
    let means = "keepalived takes a check that cannot run for a failed one: this node has a lower priority than its peers, \
                 and never holds the address while one of them runs.";
    let facts = found.bad_scripts.iter();
    let facts = facts.map(|(path, why)| crate::diagnose::doctor::Fact::new(path, *why));
    let words = first.rsplit('/').next().unwrap_or_default();
    let words = words.trim_end_matches(".sh").replace("_script", "");
    let finding = DoctorFinding::warning("a check of keepalived cannot run", means)
        .seen_all(facts)
        .with_message(
            Some(messages::fill_message(messages::KEEPALIVED, &words)).filter(|_| evidence.live),
        );
    Some(if evidence.live {
        // Its init container renders them again.
        finding.next("crictl stopp $(crictl pods -q --name keepalived)")
    } else {
        finding.next(format!("ls -l {}", evidence.shell_path("etc/keepalived")))
    })
}

/// Returns true if an interface of the running node has the address; `None` if that is unknown.
fn has_address(evidence: &DoctorEvidence, address: IpAddr) -> Option<bool> {
    let all = evidence.interfaces.get().filter(|_| evidence.live)?;
    let mut all = all.iter().flat_map(|one| &one.addresses);
    Some(all.any(|one| one.local == address))
}

fn find_wrong_interface(
    evidence: &DoctorEvidence,
    instance: &VrrpInstance,
) -> Option<DoctorFinding> {
    let all = evidence.interfaces.get().filter(|_| evidence.live)?;
    let there = all.iter().any(|one| one.name == instance.interface);
    let source = instance.source;
    let is_gone = source.and_then(|source| has_address(evidence, source)) == Some(false);
    // FP-46 reports an address that the node has lost.
    let kept = evidence.node_addresses.get();
    let kept = kept.and_then(|kept| kept.addresses_of(AddressHolder::Kubelet));
    let is_known = source
        .zip(kept)
        .is_some_and(|(source, kept)| kept.addresses.contains(&source));
    let (what, said) = match (there, is_gone && !is_known) {
        (false, _) => (
            "keepalived is for an interface that is missing",
            format!("interface {}", instance.interface),
        ),
        (true, true) => (
            "keepalived is for an address that is missing",
            format!("unicast_src_ip {}", source?),
        ),
        (true, false) => return None,
    };
    let means = "keepalived cannot speak to its peers from here: this node never holds the address, or two nodes hold it.";
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(format!("/{CONFIG}"), format!("{}: {said}", instance.name))
        .with_evidence("ip addr", names.join(", "));
    Some(
        add_questions(finding.next("ip -br addr"), instance)
            .next("crictl stopp $(crictl pods -q --name keepalived)"),
    )
}

fn find_wrong_peers(
    evidence: &DoctorEvidence,
    found: &VirtualAddresses,
    instance: &VrrpInstance,
) -> Option<DoctorFinding> {
    let source = instance.source?;
    let peers = instance.peers.as_deref().unwrap_or_default();
    let is_own = peers.contains(&source);
    // A single control-plane node has no peers; one with several servers in haproxy should have some.
    let has_others = matches!(found.servers, Rendered::Content(2..));
    let is_alone = peers.is_empty() && instance.is_api() && has_others;
    let (what, said) = match (is_own, is_alone) {
        (true, _) => (
            "keepalived has its own node as a peer",
            format!("unicast_peer with {source}"),
        ),
        (false, true) => (
            "keepalived knows no other node",
            "unicast_peer is empty".to_owned(),
        ),
        (false, false) => return None,
    };
    let means = if is_own {
        "The node answers itself. The file belongs to another node, or to an address that this node had before."
    } else {
        "The node does not hear the others: it takes the address although another one holds it, and two machines \
             answer for it."
    };
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(format!("/{CONFIG}"), format!("{}: {said}", instance.name));
    Some(if evidence.live {
        add_questions(finding, instance)
            .next("crictl logs $(crictl ps -aq --name keepalived-monitor | head -n 1)")
    } else {
        finding.next(format!("ls -l {}", evidence.shell_path(CONFIG)))
    })
}

/// Adds the nodes that should answer instead, and the command that queries the address.
fn add_questions(finding: DoctorFinding, instance: &VrrpInstance) -> DoctorFinding {
    let peers = instance.peers.iter().flatten();
    let peers: Vec<String> = peers.map(ToString::to_string).collect();
    let finding = if peers.is_empty() {
        finding
    } else {
        finding.with_evidence("nodes that may hold it", peers.join(", "))
    };
    let interface = crate::base::invocation::shell_word(&instance.interface);
    match instance.addresses.first() {
        Some(address @ IpAddr::V4(_)) => {
            finding.next(format!("arping -D -c 3 -I {interface} {address}"))
        }
        Some(address @ IpAddr::V6(_)) => {
            finding.next(format!("ping -6 -c 3 {address}%{interface}"))
        }
        None => finding,
    }
}
