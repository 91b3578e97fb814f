//! Paths that a MachineConfig must not or cannot contain.

use crate::base::paths;
use crate::host::root::RootPath;

/// Maximum size of a file that is read, in bytes; a whole rendered config is smaller than 1.5 MiB.
pub const MAX_FILE: u64 = 1 << 20;

/// Static pods of the kubelet, and the files that they mount.
pub(super) const STATIC_PODS: [&str; 2] = [
    "etc/kubernetes/manifests",
    "etc/kubernetes/static-pod-resources",
];

/// A reason with its next step.
pub(super) type Limit = (&'static str, &'static str);

/// Directories whose files should not be in a MachineConfig: they have other writers, or belong to one node.
const DIRECTORIES: [(&str, Limit); 13] = [
    ("etc/mco", ("the operator writes it itself", LEAVE)),
    (
        "etc/machine-config-daemon",
        ("it is a record of the daemon", LEAVE),
    ),
    (
        "etc/docker/certs.d",
        (
            "the daemon writes it beside the config",
            "put the authority into the cluster's Image object",
        ),
    ),
    (
        "etc/mco-rescue",
        ("it belongs to mco-rescue on this node", LEAVE),
    ),
    (
        "var/lib/mco-rescue",
        ("it belongs to mco-rescue on this node", LEAVE),
    ),
    (STATIC_PODS[1], ("an operator writes it itself", LEAVE)),
    (
        STATIC_PODS[0],
        (
            "an operator writes the static pods of a control plane",
            LEAVE,
        ),
    ),
    (
        "var/lib/kubelet/pki",
        ("it is a key of this one node", LEAVE),
    ),
    (
        "usr",
        (
            "the OS image owns it, and it is read-only",
            "build an image with it, or take a path below /etc or /usr/local",
        ),
    ),
    (
        "boot",
        (
            "the boot loader owns it",
            "kernel arguments are kept with --argument",
        ),
    ),
    (
        "run",
        (
            "it is gone after the next boot",
            "take the same file below /etc",
        ),
    ),
    ("sysroot", ("OSTree owns it", LEAVE)),
    ("ostree", ("OSTree owns it", LEAVE)),
];

/// Files that should not be in a MachineConfig.
const FILES: [(&str, Limit); 14] = [
    (
        "var/lib/kubelet/config.json",
        (
            "it is the cluster's pull secret, which the cluster changes itself",
            PULL_SECRET,
        ),
    ),
    (
        paths::KUBELET_CA,
        ("the daemon writes the kubelet's authority by itself", LEAVE),
    ),
    (
        paths::KUBECONFIG,
        ("it is a credential of this one node", LEAVE),
    ),
    (
        "var/lib/kubelet/kubeconfig",
        ("it is a credential of this one node", LEAVE),
    ),
    (
        "etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
        (
            "the daemon writes it itself",
            "put the authority into the ConfigMap openshift-config/user-ca-bundle",
        ),
    ),
    (paths::PASSWD, ACCOUNTS),
    (paths::GROUP, ACCOUNTS),
    (paths::SHADOW, ACCOUNTS),
    (paths::GSHADOW, ACCOUNTS),
    (paths::SUBUID, ACCOUNTS),
    (paths::SUBGID, ACCOUNTS),
    (
        paths::MACHINE_ID,
        ("it is the identity of this one node", LEAVE),
    ),
    (
        "etc/hostname",
        (
            "it is the name of this one node, and a MachineConfig is for a pool",
            "set the name by DHCP or DNS",
        ),
    ),
    (
        paths::CORE_KEYS,
        (
            "the keys of core are kept as keys",
            "leave the path out, and run it again",
        ),
    ),
];

const ACCOUNTS: Limit = (
    "a MachineConfig holds only the keys and the password of core, no other users and groups",
    "make the account with a unit that runs systemd-sysusers, or in the OS image",
);
const LEAVE: &str = "leave it to its owner";
const PULL_SECRET: &str = "change the Secret openshift-config/pull-secret when the API is back";

/// Returns the reason why a path is never kept.
pub(super) fn limit_of(path: &RootPath) -> Option<Limit> {
    let relative = path.relative();
    let of_file = FILES.iter().find(|(file, _)| *file == relative);
    if let Some((_, limit)) = of_file {
        return Some(*limit);
    }
    if ["proc", "sys", "dev", "tmp"]
        .iter()
        .any(|top| path.is_in(top))
    {
        return Some((
            "it is not on a disk of the system",
            "take a path below /etc or /usr/local",
        ));
    }
    if path.is_in("usr/local") {
        return None;
    }
    if relative.starts_with("etc/ssh/ssh_host_") {
        return Some(("it is a key of this one node", LEAVE));
    }
    if relative.starts_with("etc/systemd/system/mco-rescue-") {
        return Some(("it belongs to mco-rescue on this node", LEAVE));
    }
    let holder = DIRECTORIES
        .iter()
        .find(|(directory, _)| path.is_in(directory));
    holder.map(|(_, limit)| *limit)
}

/// Returns the reason why a controller's file is kept only if it is given by name.
pub(super) fn better_as_object(path: &RootPath) -> Option<Limit> {
    match path.relative() {
        "etc/kubernetes/kubelet.conf" => Some((
            "a KubeletConfig is the better place: a MachineConfig with this file stops the feature gates and ciphers of every later \
             release from reaching the kubelet",
            "`mco-rescue change kubelet KEY=VALUE`; or name the file, and it is kept",
        )),
        paths::REGISTRIES => Some((
            "an ImageDigestMirrorSet is the better place: a MachineConfig with this file hides every later mirror of the cluster",
            "`mco-rescue change mirror SOURCE MIRROR`; or name the file, and it is kept",
        )),
        "etc/containers/storage.conf" => Some((
            "a ContainerRuntimeConfig is the better place: a MachineConfig with this file hides every later change of the cluster",
            "`mco-rescue change runtime overlaySize=SIZE`; or name the file, and it is kept",
        )),
        paths::POLICY => Some((
            "an image policy of the cluster is the better place: a MachineConfig with this file hides every later one",
            "make a ClusterImagePolicy, or change the Image object; or name the file, and it is kept",
        )),
        _ => None,
    }
}

/// Returns true for a file that is never kept, so that it is skipped if only its directory was given.
pub fn is_left_out(path: &RootPath) -> bool {
    limit_of(path).is_some()
}
