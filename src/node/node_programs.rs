//! The programs that a system needs to be a node, and the units that use them.

use super::kubelet_state::{is_enabled, unit_text};
use super::os_release::OsRelease;
use crate::host::root::{Root, RootError, RootPath};

/// Programs that every node needs, each with the unit that uses it.
pub const PROGRAMS: [(&str, &str); 3] = [
    ("usr/bin/kubelet", "kubelet.service"),
    ("usr/bin/crio", "crio.service"),
    ("usr/bin/ovs-vsctl", "ovs-configuration.service"),
];
/// The kubelet of the first releases.
const HYPERKUBE: &str = "usr/bin/hyperkube";
/// A root without it does not have a complete operating system.
const INIT: &str = "usr/lib/systemd/systemd";
/// Directory of network plugins; CRI-O creates it if it is missing.
const PLUGINS: &str = "opt/cni";

/// What the operating system lacks to be that of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePrograms {
    /// Missing programs, each with the enabled unit that needs it.
    pub missing: Vec<(&'static str, &'static str)>,
    /// Short form of the root's `os-release`.
    pub release: String,
    /// The release of OpenShift that it names; empty if it names none.
    pub openshift: String,
    /// The target of the directory of network plugins, if that is a broken link.
    pub lost_plugins: Option<String>,
}

/// Reads what is missing; `None` on a system whose kubelet is not enabled, and on a root without an operating system.
///
/// # Errors
/// A path cannot be resolved.
pub fn read_node_programs(
    root: &Root,
    has_fencing: bool,
) -> Result<Option<NodePrograms>, RootError> {
    let text = unit_text(root, "kubelet.service")?;
    // Pacemaker starts the kubelet although it is not enabled.
    let starts = has_fencing || is_enabled(root, "kubelet.service")?;
    let Some(text) = text.filter(|_| starts) else {
        return Ok(None);
    };
    if !root.exists(&RootPath::fixed(INIT))? {
        return Ok(None);
    }
    let mut found = NodePrograms::default();
    for (program, unit) in PROGRAMS {
        let program = if text.contains(HYPERKUBE) && unit == "kubelet.service" {
            HYPERKUBE
        } else {
            program
        };
        let is_needed = match unit {
            "kubelet.service" => text.contains(program),
            "crio.service" => text.contains(unit),
            _ => is_enabled(root, unit)?,
        };
        if is_needed && !root.exists(&RootPath::fixed(program))? {
            found.missing.push((program, unit));
        }
    }
    let release = OsRelease::read(root)?;
    let ids = ["ID", "VARIANT_ID", "VERSION_ID"].map(|key| (key, release.get(key)));
    let ids = ids.iter().filter(|(_, value)| !value.is_empty());
    let ids: Vec<String> = ids.map(|(key, value)| format!("{key}={value}")).collect();
    found.release = ids.join(" ");
    found.openshift = release.get("OPENSHIFT_VERSION").to_owned();
    let plugins = RootPath::fixed(PLUGINS);
    if root.open_directory(&plugins)?.is_none() {
        found.lost_plugins = root.read_link(&plugins)?;
    }
    Ok(Some(found))
}
