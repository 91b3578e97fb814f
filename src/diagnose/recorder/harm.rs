//! How often a kind of difference keeps a node from booting or joining, according to public failure reports (docs/reference/recorder.md
//! has this table).

use super::Area;

/// A kind of difference: those earlier in the table are more harmful.
struct Kind {
    area: Area,
    /// Prefixes of subjects; empty for every subject of the area.
    begins: &'static [&'static str],
}

const fn all(area: Area) -> Kind {
    Kind { area, begins: &[] }
}

const fn some(begins: &'static [&'static str]) -> Kind {
    Kind {
        area: Area::Etc,
        begins,
    }
}

/// The order of harm. Kinds that are in no line come last.
const ORDER: [&[Kind]; 14] = [
    &[all(Area::BootEntries)],
    &[
        all(Area::Deployment),
        all(Area::Origin),
        all(Area::CommandLine),
    ],
    &[all(Area::Interfaces)],
    &[
        all(Area::Addresses),
        some(&[
            "/etc/NetworkManager/",
            "/etc/sysconfig/network-scripts/",
            "/etc/resolv.conf",
            "/etc/hostname",
            "/etc/hosts",
            "/etc/systemd/network/",
            "/etc/udev/rules.d/",
            "/etc/openvswitch/",
        ]),
    ],
    &[all(Area::Certificates)],
    &[some(&[
        "/etc/kubernetes/",
        "/etc/systemd/system/kubelet.service",
        "/etc/systemd/system/crio.service",
        "/etc/crio/",
        "/etc/containers/",
        "/etc/cni/",
        "/etc/sysconfig/kubelet",
        "/etc/sysconfig/crio",
    ])],
    &[
        some(&[
            "/etc/fstab",
            "/etc/crypttab",
            "/etc/mdadm",
            "/etc/lvm/",
            "/etc/multipath",
            "/etc/iscsi/",
        ]),
        all(Area::Disks),
    ],
    &[some(&[
        "/etc/selinux/",
        "/etc/passwd",
        "/etc/group",
        "/etc/shadow",
        "/etc/pam.d/",
        "/etc/ssh/",
        "/etc/pki/ca-trust/",
    ])],
    &[all(Area::BootFiles), all(Area::Esp)],
    &[some(&[
        "/etc/systemd/",
        "/etc/modprobe.d/",
        "/etc/modules-load.d/",
        "/etc/sysctl",
    ])],
    &[all(Area::Versions)],
    &[all(Area::Units)],
    &[all(Area::Config), all(Area::Daemon)],
    &[all(Area::Clock)],
];

/// Returns the rank of a difference in the order of harm; 1 is the most harmful.
pub fn harm_of(area: Area, subject: &str) -> u8 {
    let fits = |kind: &Kind| {
        let begins = || kind.begins.iter().any(|begin| subject.starts_with(begin));
        kind.area == area && (kind.begins.is_empty() || begins())
    };
    let found = ORDER.iter().position(|kinds| kinds.iter().any(fits));
    let position = found.unwrap_or(ORDER.len());
    u8::try_from(position + 1).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_boots_comes_before_names_addresses_certificates_and_drop_ins() {
        let order = [
            (Area::BootEntries, "ostree-1 options"),
            (Area::CommandLine, "root"),
            (Area::Interfaces, "eth0 driver"),
            (Area::Addresses, "192.0.2.1"),
            (Area::Certificates, "/etc/kubernetes/ca.crt"),
            (Area::Etc, "/etc/systemd/system/kubelet.service.d/20-a.conf"),
            (Area::Etc, "/etc/fstab"),
            (Area::Etc, "/etc/ssh/sshd_config"),
            (Area::Esp, "EFI/BOOT/BOOTX64.EFI"),
            (Area::Etc, "/etc/systemd/journald.conf"),
            (Area::Versions, "kubelet"),
            (Area::Units, "chronyd.service"),
            (Area::Daemon, "state"),
            (Area::Clock, "server"),
            (Area::Etc, "/etc/motd"),
        ];
        let harms: Vec<u8> = order
            .iter()
            .map(|(area, subject)| harm_of(*area, subject))
            .collect();
        assert_eq!(harms, (1..=15).collect::<Vec<u8>>());
    }
}
