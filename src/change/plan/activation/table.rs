//! The readers of paths, as a table.

/// How a changed file takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Programs read it at each use, or watch it.
    AtUse,
    /// It is only read at boot.
    Boot,
    /// The service reads it on reload; of several names, the running one is used.
    Reload(&'static [&'static str]),
    /// The service reads it when it starts.
    Restart(&'static [&'static str]),
    /// The SSH server.
    Sshd,
    /// The same, for its command-line options, which do not change on reload.
    SshdOptions,
    /// A connection of NetworkManager.
    Connection,
    /// Settings of the kernel.
    Sysctl,
    /// Rules of udev.
    Udev,
    /// Certificate authorities.
    Trust,
    /// The manager of the system.
    Manager,
}

use Reader::{
    AtUse, Boot, Connection, Manager, Reload, Restart, Sshd, SshdOptions, Sysctl, Trust, Udev,
};

const CHRONY: Reader = Restart(&["chronyd.service", "chrony.service"]);
const CRIO: Reader = Restart(&["crio.service"]);
const CRIO_RELOAD: Reader = Reload(&["crio.service"]);
const KUBELET: Reader = Restart(&["kubelet.service"]);
const NETWORK_MANAGER: Reader = Reload(&["NetworkManager.service"]);
const NFTABLES: Reader = Reload(&["nftables.service"]);

/// Patterns and readers; the first match applies. A pattern that ends in `/` matches everything below; `*` matches the rest of
/// a name.
const TABLE: &[(&str, Reader)] = &[
    ("etc/ssh/sshd_config", Sshd),
    ("etc/ssh/sshd_config.d/", Sshd),
    ("etc/ssh/ssh_host_*", Sshd),
    ("etc/crypto-policies/back-ends/opensshserver.config", Sshd),
    ("etc/sysconfig/sshd", SshdOptions),
    ("etc/default/ssh", SshdOptions),
    ("etc/ssh/", AtUse),
    ("etc/NetworkManager/system-connections/", Connection),
    ("etc/sysconfig/network-scripts/ifcfg-*", Connection),
    ("etc/NetworkManager/NetworkManager.conf", NETWORK_MANAGER),
    ("etc/NetworkManager/conf.d/", NETWORK_MANAGER),
    ("etc/NetworkManager/dnsmasq.d/", NETWORK_MANAGER),
    ("etc/NetworkManager/dispatcher.d/", AtUse),
    ("etc/NetworkManager/", Boot),
    ("etc/systemd/network/*.link", Boot),
    (
        "etc/systemd/network/",
        Reload(&["systemd-networkd.service"]),
    ),
    ("etc/nftables.conf", NFTABLES),
    ("etc/nftables/", NFTABLES),
    ("etc/sysconfig/nftables.conf", NFTABLES),
    ("etc/firewalld/", Reload(&["firewalld.service"])),
    ("etc/sysconfig/iptables", Reload(&["iptables.service"])),
    ("etc/sysconfig/ip6tables", Reload(&["ip6tables.service"])),
    ("etc/kubernetes/manifests/", AtUse),
    ("etc/kubernetes/static-pod-resources/", AtUse),
    ("etc/kubernetes/cni/", AtUse),
    ("etc/kubernetes/", KUBELET),
    ("etc/openshift/kubelet.conf.d/", KUBELET),
    ("etc/node-sizing*", KUBELET),
    ("var/lib/kubelet/config.json", AtUse),
    ("var/lib/kubelet/config.yaml", KUBELET),
    ("etc/crio/", CRIO),
    ("etc/containers/registries.conf", CRIO_RELOAD),
    ("etc/containers/registries.conf.d/", CRIO_RELOAD),
    ("etc/containers/registries.d/", CRIO_RELOAD),
    ("etc/containers/policy.json", CRIO_RELOAD),
    ("etc/containers/storage.conf", CRIO),
    ("etc/containers/", AtUse),
    ("etc/cni/", AtUse),
    ("etc/pki/ca-trust/source/", Trust),
    ("etc/pki/", AtUse),
    ("etc/sysctl.conf", Sysctl),
    ("etc/sysctl.d/", Sysctl),
    ("etc/udev/rules.d/", Udev),
    ("etc/udev/", Boot),
    ("etc/chrony.conf", CHRONY),
    ("etc/chrony.keys", CHRONY),
    ("etc/chrony.d/", CHRONY),
    ("etc/chrony/", CHRONY),
    (
        "etc/systemd/journald.conf",
        Restart(&["systemd-journald.service"]),
    ),
    (
        "etc/systemd/journald.conf.d/",
        Restart(&["systemd-journald.service"]),
    ),
    (
        "etc/systemd/resolved.conf",
        Restart(&["systemd-resolved.service"]),
    ),
    (
        "etc/systemd/resolved.conf.d/",
        Restart(&["systemd-resolved.service"]),
    ),
    (
        "etc/systemd/timesyncd.conf",
        Restart(&["systemd-timesyncd.service"]),
    ),
    (
        "etc/systemd/timesyncd.conf.d/",
        Restart(&["systemd-timesyncd.service"]),
    ),
    ("etc/systemd/system.conf", Manager),
    ("etc/systemd/system.conf.d/", Manager),
    ("etc/systemd/", Boot),
    ("etc/rsyslog.conf", Restart(&["rsyslog.service"])),
    ("etc/rsyslog.d/", Restart(&["rsyslog.service"])),
    ("etc/dnsmasq.conf", Restart(&["dnsmasq.service"])),
    ("etc/dnsmasq.d/", Restart(&["dnsmasq.service"])),
    ("etc/keepalived/", Reload(&["keepalived.service"])),
    ("etc/haproxy/", Reload(&["haproxy.service"])),
    ("etc/multipath.conf", Reload(&["multipathd.service"])),
    ("etc/multipath/", Reload(&["multipathd.service"])),
    ("etc/hosts", AtUse),
    ("etc/resolv.conf", AtUse),
    ("etc/nsswitch.conf", AtUse),
    ("etc/pam.d/", AtUse),
    ("etc/security/", AtUse),
    ("etc/sudoers", AtUse),
    ("etc/sudoers.d/", AtUse),
    ("etc/passwd", AtUse),
    ("etc/shadow", AtUse),
    ("etc/group", AtUse),
    ("etc/gshadow", AtUse),
    ("etc/subuid", AtUse),
    ("etc/subgid", AtUse),
    ("etc/shells", AtUse),
    ("etc/login.defs", AtUse),
    ("etc/motd", AtUse),
    ("etc/motd.d/", AtUse),
    ("etc/issue", AtUse),
    ("etc/issue.d/", AtUse),
    ("etc/profile", AtUse),
    ("etc/profile.d/", AtUse),
    ("etc/bashrc", AtUse),
    ("etc/environment", AtUse),
    ("etc/krb5.conf", AtUse),
    ("etc/krb5.conf.d/", AtUse),
    ("etc/machine-config-daemon/", AtUse),
    ("home/", AtUse),
    ("root/", AtUse),
    ("var/home/", AtUse),
    ("var/roothome/", AtUse),
    ("etc/fstab", Boot),
    ("etc/crypttab", Boot),
    ("etc/mdadm.conf", Boot),
    ("etc/hostname", Boot),
    ("etc/machine-id", Boot),
    ("etc/locale.conf", Boot),
    ("etc/vconsole.conf", Boot),
    ("etc/modprobe.d/", Boot),
    ("etc/modules-load.d/", Boot),
    ("etc/tmpfiles.d/", Boot),
    ("etc/sysusers.d/", Boot),
    ("etc/binfmt.d/", Boot),
    ("etc/dracut.conf.d/", Boot),
    ("etc/selinux/", Boot),
    ("etc/audit/", Boot),
    ("etc/kdump.conf", Boot),
    ("etc/nmstate/", Boot),
    ("etc/ostree/", Boot),
    ("etc/mco/", Boot),
    ("boot/", Boot),
];

/// Returns the reader of a path relative to the root; `None` if it is unknown.
pub(super) fn find_reader(path: &str) -> Option<Reader> {
    let (_, find_reader) = TABLE
        .iter()
        .find(|(pattern, _)| matches_pattern(pattern, path))?;
    Some(*find_reader)
}

fn matches_pattern(pattern: &str, path: &str) -> bool {
    if pattern.ends_with('/') {
        return path.starts_with(pattern);
    }
    match pattern.split_once('*') {
        None => path == pattern,
        Some((before, after)) => path
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|rest| !rest.contains('/')),
    }
}
