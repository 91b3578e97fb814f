//! FP-55: two nodes with fencing whose cluster is split, or that keep fencing each other.

use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages,
};
use crate::node::two_nodes::TwoNodes;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-55",
    title: "two nodes with fencing do not work together",
    looks_at: "corosync.conf, etcd's members beside it, the drop-in that waits for br-ex, etcd's pod",
    explain: "On a control plane of two nodes with fencing Pacemaker starts kubelet and etcd. A kubelet that is not enabled, \
and inactive while the other node was not seen, is by design: never start or stop it, or etcd, around Pacemaker. The \
arithmetic of three members does not hold there; two_node and wait_for_all in corosync.conf are right, and etcd as a learner is normal after a \
fence.\n\n\
After an upgrade one node may have only itself in the nodelist of corosync.conf, while the other has both. The lower \
config_version is the stale side. Then both think that the other is gone. Its words: force_new_cluster held by multiple nodes, with no \
revision data to resolve safely; inspect both nodes' etcd data.\n\n\
Without its drop-in Corosync starts before the bridge br-ex, loses its address, and the node is fenced again, up to eight \
times.\n\n\
pcs status and pcs stonith status show the cluster. pcs resource cleanup etcd tries etcd again. Before maintenance: pcs node \
standby NODE.",
    judge: judge_two_nodes,
};

fn judge_two_nodes(evidence: &DoctorEvidence) -> CheckVerdict {
    let seen = match evidence.two_nodes.seen() {
        Ok(Some(seen)) => seen,
        Ok(None) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("two nodes with fencing: {why}")),
    };
    CheckVerdict::healthy()
        .and_findings(find_split(seen))
        .and_findings(find_loop(evidence, seen))
        .and_findings(find_lost_pod(seen))
}

fn list_nodes(nodes: &[String]) -> String {
    if nodes.is_empty() {
        "no node".to_owned()
    } else {
        nodes.join(", ")
    }
}

fn find_split(seen: &TwoNodes) -> Option<DoctorFinding> {
    let nodes = &seen.corosync.nodes;
    if nodes.len() >= 2 {
        return None;
    }
    // While a node is being replaced, neither knows it.
    let is_replaced = seen.etcd_members.len() == 1;
    let severity = if is_replaced {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let (what, means) = match (nodes.len(), is_replaced) {
        (0, _) => (
            "Corosync's list of nodes is empty",
            "Corosync does not start with it, so Pacemaker starts neither kubelet nor etcd.",
        ),
        (_, true) => (
            "Corosync and etcd know this node alone",
            "That is right only while the other node is being replaced.",
        ),
        _ => (
            "Corosync knows this node alone: the cluster is split",
            "The other node may have both in its list. Each thinks that the other is gone, and both may start an etcd of \
             their own.",
        ),
    };
    let listed = list_nodes(nodes);
    let mut finding = DoctorFinding::new(severity, what, means).with_evidence(
        format!("/{}", paths::COROSYNC),
        format!(
            "nodelist: {listed}; config_version: {}",
            seen.corosync.version
        ),
    );
    let members = seen.etcd_members.iter();
    for (name, address) in members {
        finding = finding.with_evidence("etcd.env", format!("{name}={address}"));
    }
    let words = messages::NEW_CLUSTER;
    Some(
        finding
            .with_message((!is_replaced && nodes.len() == 1).then(|| words.to_owned()))
            .next("pcs status")
            .next("pcs stonith status")
            .next(format!("grep -A20 nodelist /{}", paths::COROSYNC)),
    )
}

fn find_loop(evidence: &DoctorEvidence, seen: &TwoNodes) -> Option<DoctorFinding> {
    let means = "Corosync starts before br-ex has the node's address and loses it. The other node then fences this one, again at \
                 each boot.";
    (seen.waits_for_bridge == Some(false)).then(|| {
        DoctorFinding::warning("Corosync does not wait for the node's bridge", means)
            .with_evidence(
                "corosync.service.d",
                "no drop-in has After=ovs-configuration.service",
            )
            .next("pcs stonith status")
            .next(evidence.own_command("verify"))
    })
}

fn find_lost_pod(seen: &TwoNodes) -> Option<DoctorFinding> {
    let means = "Pacemaker's agent starts etcd from this file, so it does not start here.";
    (seen.etcd_pod == Some(false)).then(|| {
        DoctorFinding::warning("the pod from which Pacemaker starts etcd is missing",
            means,
        )
        .with_evidence(
            "/etc/kubernetes/static-pod-resources/etcd-certs/configmaps/external-etcd-pod/pod.yaml",
            "missing",
        )
        .with_evidence("/var/lib/pacemaker/cib/cib.xml", "podman-etcd")
        .with_message(Some(messages::EXTERNAL_ETCD.to_owned()))
        .next("pcs status")
        .next("pcs resource cleanup etcd")
    })
}
