//! The names of a node: in the kernel, in its files, and the one its kubelet is given.

use std::collections::BTreeSet;

use anyhow::Context;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// The name of the running kernel.
pub const KERNEL: &str = "proc/sys/kernel/hostname";
/// The file with the name that is set at boot.
pub const FILE: &str = "etc/hostname";
/// Environment files of the kubelet's unit.
const VARIABLES: [&str; 3] = [
    "etc/kubernetes/kubelet-env",
    "etc/kubernetes/kubelet-workaround",
    "etc/kubernetes/node.env",
];
/// Drop-ins of the kubelet's unit.
const DROP_INS: &str = "etc/systemd/system/kubelet.service.d";
/// The variable that sets `--hostname-override`.
const VARIABLE: &str = "KUBELET_NODE_NAME";
/// Certificates of etcd with the node's name in their file names.
const OF_ETCD: [&str; 3] = ["etcd-peer-", "etcd-serving-metrics-", "etcd-serving-"];

/// The names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    /// The name in the kernel; only on a running system.
    pub kernel: Option<String>,
    /// The name in `/etc/hostname`; `None` if the file is missing or has no name.
    pub file: Option<String>,
    /// The name that the kubelet is given instead of the host name, after the file that sets it.
    pub given: Option<(String, String)>,
    /// The nodes of the control plane, according to the names of etcd's certificates.
    pub members: BTreeSet<String>,
}

impl HostNames {
    /// Returns the host name and its source, if it is known without a boot.
    pub fn current_name(&self) -> Option<(&'static str, &str)> {
        match (&self.kernel, &self.file) {
            (Some(name), _) => Some(("/proc/sys/kernel/hostname", name)),
            (None, Some(name)) => Some(("/etc/hostname", name)),
            (None, None) => None,
        }
    }
}

/// Reads the names.
///
/// # Errors
/// A file cannot be read.
pub fn read_host_names(root: &Root) -> Result<HostNames, RootError> {
    let text = |path| -> Result<Option<String>, RootError> {
        let bytes = root.read_small(&RootPath::fixed(path))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let kernel = if root.is_live() { text(KERNEL)? } else { None };
    Ok(HostNames {
        kernel: kernel.as_deref().and_then(parse_host_name),
        file: text(FILE)?.as_deref().and_then(parse_host_name),
        given: read_given(root)?,
        members: read_members(root)?,
    })
}

/// Returns the first line that is neither empty nor a comment, as systemd does.
fn parse_host_name(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    let name = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    Some(name.trim_end_matches('.').to_owned())
}

fn read_given(root: &Root) -> Result<Option<(String, String)>, RootError> {
    let folder = RootPath::fixed(DROP_INS);
    let names = root.list(&folder)?;
    let drop_ins = names.iter().filter(|name| name.ends_with(".conf"));
    let drop_ins = drop_ins.filter_map(|name| folder.join(name).ok());
    let mut found = None;
    // Environment files override drop-ins.
    for path in drop_ins.chain(VARIABLES.map(RootPath::fixed)) {
        let bytes = root.read_small(&path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        if let Some(name) = find_variable(&text, VARIABLE) {
            found = Some((path.to_string(), name));
        }
    }
    Ok(found)
}

/// Returns the last value of a variable in an environment file, or in `Environment=` of a unit.
pub(super) fn find_variable(text: &str, key: &str) -> Option<String> {
    let mut found = None;
    for line in text.lines().map(str::trim) {
        let line = line.strip_prefix("Environment=").unwrap_or(line);
        let line = line.strip_prefix("export ").unwrap_or(line);
        let words = line.split_whitespace().map(|word| word.trim_matches('"'));
        let mut values = words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        if let Some(value) = values.next_back() {
            found = Some(value.trim_matches(['"', '\'']).to_owned());
        }
    }
    found.filter(|value| !value.is_empty())
}

fn read_members(root: &Root) -> Result<BTreeSet<String>, RootError> {
    let names = root.list(&RootPath::fixed(paths::ETCD_CERTIFICATES))?;
    let members = names.iter().filter_map(|name| {
        let stem = name.strip_suffix(".crt")?;
        let mut kinds = OF_ETCD.iter();
        kinds.find_map(|kind| stem.strip_prefix(kind))
    });
    Ok(members.map(str::to_owned).collect())
}

/// Returns the name of the node as the kubelet registers it: the host's name in lower case.
///
/// # Errors
/// The file cannot be read, or the host has no name.
pub fn registered_name(root: &Root) -> anyhow::Result<String> {
    let fixed = root.read(&RootPath::fixed(paths::HOSTNAME))?;
    let fixed = fixed.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let name = fixed
        .filter(|name| !name.is_empty())
        .or_else(|| sysinfo::System::host_name().ok());
    Ok(name.context("the node has no name")?.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_in_files_and_in_units() {
        for (text, value) in [
            ("A=b", Some("b")),
            ("A=\"b\"\nA='c'", Some("c")),
            ("[Service]\nEnvironment=\"A=b\" \"AA=c\"", Some("b")),
            ("Environment=AA=c", None),
            ("export A=\"b\"", Some("b")),
            ("# A=b\nBA=c\nA=", None),
            ("", None),
        ] {
            assert_eq!(find_variable(text, "A").as_deref(), value, "{text}");
        }
    }

    #[test]
    fn a_host_name_is_the_first_line_with_a_name() {
        for (text, name) in [
            ("node-0\n", Some("node-0")),
            (
                "# by hand\n\n node-0.example.\nother\n",
                Some("node-0.example"),
            ),
            ("\n", None),
            ("", None),
        ] {
            assert_eq!(parse_host_name(text).as_deref(), name, "{text:?}");
        }
    }
}
