//! FP-45: the host name is not the node's name in the cluster.

use crate::base::invocation::shell_word;
use crate::base::paths;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange, messages,
};
use crate::node::host_name::HostNames;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-45",
    title: "the host name differs from the name of the node",
    looks_at: "the host's name, and the name in the kubelet's certificate",
    explain: "The kubelet registers under the name of the host, and its certificate is valid for that one node. With another \
name the API refuses it. A host that gets no name is called localhost; fedora and linux are names that a system \
image brings. node-valid-hostname.service waits five minutes for a name that is not localhost, and then keeps the \
first good one in /etc/hostname: later changes in DHCP or DNS have no effect.\n\n\
The certificate /var/lib/kubelet/pki/kubelet-client-current.pem has the right name: system:node:NAME. A certificate \
of another node is that of a cloned disk: two machines with one identity take the node from each other. Never start \
the kubelet of a clone with it.\n\n\
On some platforms the kubelet gets its name from a file (KUBELET_NODE_NAME), and the name of the host does not \
matter. Before the first join there is no certificate, and nothing to compare.",
    judge: judge_host_name,
};

/// Prefix of a node's common name.
const NODE: &str = "system:node:";

/// A kind of host name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// A name that stands for the local machine, on any machine.
    Local,
    /// A default name set by a system image.
    Default,
    /// A real name of its own.
    Own,
}

fn judge_host_name(evidence: &DoctorEvidence) -> CheckVerdict {
    let Some(node) = evidence.node_name() else {
        let denied = evidence.certificates_unseen.iter();
        let denied = denied.filter(|why| why.contains(paths::KUBELET_CLIENT));
        return denied.fold(CheckVerdict::healthy(), |verdict, why| {
            verdict.and_unseen(format!("the name of the node: {why}"))
        });
    };
    let names = match evidence.host_names.seen() {
        Ok(names) => names,
        Err(why) => return CheckVerdict::not_seen(format!("the host's name: {why}")),
    };
    if let Some((place, given)) = &names.given {
        // In this case the kubelet does not use the host name.
        return if is_same(given, node) {
            CheckVerdict::healthy()
        } else {
            CheckVerdict::one_finding(find_other_node(evidence, place, given, node))
        };
    }
    let Some((place, name)) = names.current_name() else {
        return CheckVerdict::not_seen(
            "the host's name: /etc/hostname is missing; the network or the platform gives the name at boot",
        );
    };
    let found = match kind_of(name) {
        NameKind::Own | NameKind::Default if is_same(name, node) => {
            next_boot(evidence, names, node)
        }
        NameKind::Local if kind_of(node) == NameKind::Local => Some(find_joined_so(place, node)),
        NameKind::Local | NameKind::Default => Some(find_no_name(evidence, place, name, node)),
        NameKind::Own => Some(find_other_node(evidence, place, name, node)),
    };
    CheckVerdict::healthy().and_findings(found)
}

fn kind_of(name: &str) -> NameKind {
    let name = name.to_ascii_lowercase();
    // The service that waits for a name looks for this word anywhere in it.
    if name.contains("localhost") || name == "(none)" {
        return NameKind::Local;
    }
    match name.as_str() {
        "fedora" | "linux" => NameKind::Default,
        _ => NameKind::Own,
    }
}

/// Returns true if both names are those of one node: platforms add a domain, or another one.
fn is_same(one: &str, other: &str) -> bool {
    let label = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    label(one) == label(other)
}

/// Reports a good name that the next boot replaces.
fn next_boot(evidence: &DoctorEvidence, names: &HostNames, node: &str) -> Option<DoctorFinding> {
    let file = names.file.as_deref()?;
    if names.kernel.is_none() || kind_of(file) != NameKind::Own || is_same(file, node) {
        return None;
    }
    let means = "The next boot takes the name from the file. The kubelet's certificate is not valid for it.";
    let finding = DoctorFinding::warning("the next boot gives the host another name", means);
    Some(
        finding
            .with_evidence("/etc/hostname", file)
            .with_evidence(certificate_path(), format!("{NODE}{node}"))
            .next(rename_command(evidence, node))
            .fixed_by(write_name(node)),
    )
}

fn find_joined_so(place: &str, node: &str) -> DoctorFinding {
    let means = "The node has registered under a name that every machine has for itself. A second node without a name \
                 takes its place.";
    DoctorFinding::warning("the node has joined as localhost", means)
        .with_evidence(place, node)
        .with_evidence(certificate_path(), format!("{NODE}{node}"))
        .next("oc get nodes -o wide")
        .next("oc describe csr")
}

fn find_no_name(evidence: &DoctorEvidence, place: &str, name: &str, node: &str) -> DoctorFinding {
    let means = match kind_of(name) {
        NameKind::Default => {
            "The host was given no name, and has that of the system image. The kubelet's certificate is not valid for it."
        }
        NameKind::Local | NameKind::Own => {
            "The host was given no name. The kubelet's certificate is not valid for this one, and what waits for a name \
             goes on only after five minutes."
        }
    };
    let finding = DoctorFinding::warning("the host has no name of its own", means)
        .with_evidence(place, name)
        .with_evidence(certificate_path(), format!("{NODE}{node}"))
        .with_message(Some(messages::fill_message(messages::NODE_NOT_FOUND, name)))
        .next(rename_command(evidence, node));
    if evidence.live {
        finding.next_all(evidence.restart_kubelet())
    } else {
        // The running kernel keeps its name, whatever the file says.
        finding.fixed_by(write_name(node))
    }
}

/// Returns the change that writes the host name to its file; `None` for an invalid host name.
fn write_name(node: &str) -> Option<FixChange> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let is_name = node.starts_with(|first: char| first.is_ascii_alphanumeric());
    (is_name && node.len() <= 64 && node.chars().all(is_letter))
        .then(|| FixChange::replace_file("/etc/hostname", format!("{node}\n")))
}

fn find_other_node(
    evidence: &DoctorEvidence,
    place: &str,
    name: &str,
    node: &str,
) -> DoctorFinding {
    let means = format!(
        "The API refuses {name} with a certificate of {node}. If the host is {node}, it was given a wrong name: the first \
         command fixes that. If its disk is a clone, it must not run with that identity: the last command puts it aside."
    );
    let mut finding =
        DoctorFinding::critical("the kubelet's certificate belongs to another node", means)
            .with_evidence(place, name)
            .with_evidence(certificate_path(), format!("{NODE}{node}"))
            .with_message(Some(messages::fill_message(messages::NODE_NOT_FOUND, name)));
    if let Some(names) = evidence.host_names.get()
        && !names.members.is_empty()
    {
        let members: Vec<&str> = names.members.iter().map(String::as_str).collect();
        finding =
            finding.with_evidence(format!("/{}", paths::ETCD_CERTIFICATES), members.join(", "));
    }
    finding = if place == "/etc/hostname" || place.starts_with("/proc/") {
        finding.next(rename_command(evidence, node))
    } else {
        finding.next(format!("vi {}", evidence.shell_path(place)))
    };
    let keys = evidence.shell_path("var/lib/kubelet/pki");
    finding.next(format!(
        "mv {keys} {keys}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)"
    ))
}

fn certificate_path() -> String {
    format!("/{}", paths::KUBELET_CLIENT)
}

/// Returns the command that sets the host name.
fn rename_command(evidence: &DoctorEvidence, node: &str) -> String {
    if evidence.live {
        format!("hostnamectl set-hostname --static {}", shell_word(node))
    } else {
        format!(
            "echo {} >{}",
            shell_word(node),
            evidence.shell_path("etc/hostname")
        )
    }
}
