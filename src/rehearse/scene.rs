//! What is rehearsed, and which units do not really run. Pure.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::reason::Reason;
use crate::change::install;
use crate::node::mounts::stage::StageLayers;

/// Memory for the files that a boot writes: 256 MiB.
pub const WRITABLE: u64 = 256 << 20;

/// Everything that the process in the namespaces needs: it is given as a file below `/run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalScene {
    /// The directories of the node.
    pub layers: StageLayers,
    /// Arguments of each `rollback` before the boot.
    pub rollbacks: Vec<Vec<String>>,
    /// Changes of the running `/etc` to lay over that of the deployment; `None` if the deployment's own is used.
    pub etc: Option<EtcChanges>,
    /// A config to apply; `None` for the system as it is.
    pub config: Option<PathBuf>,
    /// This program, by a path of the running system.
    pub program: PathBuf,
    /// The terminal that becomes the console.
    pub console: PathBuf,
    /// Name of the node.
    pub host_name: String,
    /// Kernel arguments of the boot.
    pub arguments: Vec<String>,
    /// Network interfaces to create as dummies.
    pub interfaces: Vec<SceneInterface>,
}

/// The differences between the running `/etc` and the one of its image, as `ostree admin config-diff` reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcChanges {
    /// The running `/etc`.
    pub from: PathBuf,
    /// Paths that were added or changed, relative to `/etc`.
    pub put: Vec<String>,
    /// Paths that were removed.
    pub removed: Vec<String>,
}

impl EtcChanges {
    /// Parses the output: `M    path`, `A    path` and `D    path`, one a line.
    ///
    /// # Errors
    /// Returns a line of another form: nothing may be left out.
    pub fn parse(from: PathBuf, text: &str) -> Result<Self, Reason> {
        let mut changes = Self {
            from,
            ..Self::default()
        };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (kind, path) = line.split_at_checked(1).unwrap_or_default();
            let path = path.trim_start().trim_start_matches('/').to_owned();
            match kind {
                "M" | "A" if !path.is_empty() => changes.put.push(path),
                "D" if !path.is_empty() => changes.removed.push(path),
                _ => return Err(line.into()),
            }
        }
        Ok(changes)
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SceneInterface {
    /// Its name.
    pub name: String,
    /// Its addresses, with the length of the network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// File name of the drop-ins. It sorts after those of a config.
pub const DROP_IN: &str = "zzz-mco-rescue-rehearsal.conf";

/// Services that are started in name only: they act on the network, on devices, on the kernel, on the cluster or on the operating
/// system. Their other settings remain: users, environment files, dependencies.
pub const STAND_INS: [&str; 46] = [
    "kubelet.service",
    "crio.service",
    "crio-wipe.service",
    "crio-subid.service",
    "etcd.service",
    "openvswitch.service",
    "ovsdb-server.service",
    "ovs-vswitchd.service",
    "ovs-delete-transient-ports.service",
    "ovs-configuration.service",
    "openvswitch-ipsec.service",
    "ipsec.service",
    "NetworkManager.service",
    "NetworkManager-wait-online.service",
    "NetworkManager-dispatcher.service",
    "NetworkManager-clean-initrd-state.service",
    "nmstate.service",
    "nmstate-configuration.service",
    "wait-for-br-ex-up.service",
    "wait-for-ipsec-connect.service",
    "wait-for-primary-ip.service",
    "nodeip-configuration.service",
    "node-valid-hostname.service",
    "configure-cloudinit-ssh.service",
    "gcp-hostname.service",
    "aws-kubelet-nodename.service",
    "aws-kubelet-providerid.service",
    "azure-kubelet-nodename.service",
    "vsphere-hostname.service",
    "machine-config-daemon-pull.service",
    "machine-config-daemon-firstboot.service",
    "machine-config-daemon-update-rpmostree-via-container.service",
    "kubens.service",
    "rpm-ostreed.service",
    "rpm-ostreed-automatic.service",
    "bootc-fetch-apply-updates.service",
    "ostree-finalize-staged.service",
    "ostree-boot-complete.service",
    "bootupd.service",
    "zincati.service",
    "iscsid.service",
    "multipathd.service",
    "kdump.service",
    "fstrim.service",
    "mdmonitor.service",
    "irqbalance.service",
];

/// Units that are not started: those of this program, which would finish the runs of the real node, and the mount of fusectl,
/// an interface to the kernel of the real node.
pub const NOT_STARTED: [&str; 6] = [
    install::RECOVER,
    install::COMPLETE,
    install::TRIAL,
    install::RECORD,
    install::FETCH[1],
    "sys-fs-fuse-connections.mount",
];

/// Returns the files below `/run` that keep units from acting: path and content.
pub fn stand_in_files() -> Vec<(String, String)> {
    let name_only = "# A rehearsal starts this unit in name only.\n[Service]\nType=oneshot\nRemainAfterExit=yes\nRestart=no\n\
                     ExecCondition=\nExecStartPre=\nExecStart=\nExecStart=/bin/true\nExecStartPost=\nExecReload=\nExecStop=\nExecStopPost=\n";
    let file = |unit: &str, text: &str| {
        (
            format!("systemd/system/{unit}.d/{DROP_IN}"),
            text.to_owned(),
        )
    };
    let never = "# A rehearsal does not start this unit.\n[Unit]\nConditionPathExists=!/run\n";
    let mut files: Vec<_> = STAND_INS.iter().map(|unit| file(unit, name_only)).collect();
    files.extend(NOT_STARTED.iter().map(|unit| file(unit, never)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_etc_are_read_line_by_line_and_nothing_is_left_out() {
        let text = "M    ssh/sshd_config\nA    hostname\nD    motd.d/old text\n";
        let changes = EtcChanges::parse("/etc".into(), text).unwrap();
        assert_eq!(changes.put, ["ssh/sshd_config", "hostname"]);
        assert_eq!(changes.removed, ["motd.d/old text"]);
        let odd = EtcChanges::parse("/etc".into(), "M    a\n?    b\n");
        assert_eq!(odd.unwrap_err(), "?    b".into());
    }

    #[test]
    fn every_unit_has_one_file_of_its_own() {
        let files = stand_in_files();
        let mut paths: Vec<&String> = files.iter().map(|(path, _)| path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), files.len());
    }
}
