//! Units that a node needs, each with what stops working if it is masked, missing or changed.

/// Returns what a node lacks if this unit does not work; `None` for a unit that the node does not need.
pub fn describe_loss(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "kubelet.service" => "no pod is started, and the node is not Ready",
        "kubelet-dependencies.target" => "the kubelet is not started",
        "crio.service" => "no container is started, and the node is not Ready",
        "NetworkManager.service" => "the node has no network",
        "openvswitch.service" | "ovsdb-server.service" | "ovs-vswitchd.service" => {
            "there is no bridge br-ex, and the node has no network"
        }
        "ovs-configuration.service" => {
            "the bridge br-ex is not made, and the network of the cluster does not start"
        }
        "nodeip-configuration.service" => "the kubelet gets no node address",
        "node-valid-hostname.service" => "the kubelet may register as localhost",
        "on-prem-resolv-prepender.service" => "the kubelet waits for the node's resolver",
        "dbus.service" | "dbus-broker.service" | "dbus.socket" => {
            "NetworkManager, rpm-ostree and systemctl cannot be called"
        }
        "rpm-ostreed.service" => "the operating system cannot be updated",
        "ostree-finalize-staged.service" | "ostree-finalize-staged.path" => {
            "a staged operating system is lost at the shutdown, and the old one boots"
        }
        "machine-config-daemon-firstboot.service" | "machine-config-daemon-pull.service" => {
            "a first boot is not completed, and the kubelet waits for it"
        }
        "sshd.service" => "a login by ssh is not possible",
        _ => return None,
    })
}

/// Returns the consequence of a mask in a config; `None` for a unit that the node does not need.
pub fn masked_by_config(unit: &str) -> Option<String> {
    let stops = describe_loss(unit)?;
    Some(format!(
        "is masked by the config: from the next boot on, {stops}"
    ))
}

/// Returns the unit of a path in a unit directory: of its file, or of a drop-in.
pub fn unit_at(path: &str) -> Option<&str> {
    let below = path
        .strip_prefix("/etc/systemd/system/")
        .or_else(|| path.strip_prefix("/run/systemd/system/"))?;
    match below.split_once('/') {
        None => Some(below),
        Some((directory, dropin)) => directory
            .strip_suffix(".d")
            .filter(|_| !dropin.contains('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_unit() {
        for (path, unit) in [
            (
                "/etc/systemd/system/kubelet.service",
                Some("kubelet.service"),
            ),
            ("/run/systemd/system/crio.service", Some("crio.service")),
            (
                "/etc/systemd/system/kubelet.service.d/10.conf",
                Some("kubelet.service"),
            ),
            (
                "/etc/systemd/system/multi-user.target.wants/kubelet.service",
                None,
            ),
            ("/etc/kubernetes/kubelet.conf", None),
        ] {
            assert_eq!(unit_at(path), unit, "{path}");
        }
    }
}
