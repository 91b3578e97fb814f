//! The packages that make up a kernel type or an extension (docs/develop/agreement.md: Operating system, Packages), and the commands
//! that install or remove them.

use std::collections::BTreeSet;

use super::arguments::{layer_packages, override_remove, override_reset};
use crate::node::command::CommandLine;
use crate::node::command::rpm_ostree::status::{Deployment, is_of_kernel};

/// The packages of the image that another kernel replaces.
const KERNEL: [&str; 5] = [
    "kernel",
    "kernel-core",
    "kernel-modules",
    "kernel-modules-core",
    "kernel-modules-extra",
];
const REALTIME: [&str; 3] = [
    "kernel-rt-core",
    "kernel-rt-modules",
    "kernel-rt-modules-extra",
];
const LARGE_PAGES: [&str; 4] = [
    "kernel-64k-core",
    "kernel-64k-modules",
    "kernel-64k-modules-core",
    "kernel-64k-modules-extra",
];

/// Extensions with their packages. An image of another release may have different ones.
const EXTENSIONS: [(&str, &[&str]); 7] = [
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    (
        "ipsec",
        &[
            "NetworkManager-libreswan",
            "libreswan",
            "openvswitch3.5-ipsec",
        ],
    ),
    ("usbguard", &["usbguard"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
];
/// The packages of `ipsec` in older images, which also count as complete.
const OLDER_IPSEC: &[&str] = &["NetworkManager-libreswan", "libreswan"];

/// A kernel type or an extension that is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackagesError {
    /// 64k pages on the wrong architecture, in the daemon's words.
    #[error("64k-pages is only supported for aarch64 architecture; set spec.kernelType to default")]
    LargePages,
    /// An unknown kernel type.
    #[error(
        "kernel type {0:?} is not one of default, realtime, 64k-pages; correct spec.kernelType"
    )]
    KernelType(String),
    /// An extension that is not in the table.
    #[error("extension {0:?} is not known; known are {1}")]
    Extension(String, String),
}

/// Returns the command that installs a kernel of this type; `None` for the image's own kernel. `architecture` is the output of
/// `uname -m`.
///
/// # Errors
/// The type is unknown or does not exist for this architecture.
pub fn kernel_type(kind: &str, architecture: &str) -> Result<Option<CommandLine>, PackagesError> {
    match kind {
        "" | "default" => Ok(None),
        "realtime" => Ok(Some(override_remove(&KERNEL, &REALTIME))),
        "64k-pages" if architecture == "aarch64" => {
            Ok(Some(override_remove(&KERNEL, &LARGE_PAGES)))
        }
        "64k-pages" => Err(PackagesError::LargePages),
        other => Err(PackagesError::KernelType(other.to_owned())),
    }
}

/// Returns the reason why a kernel type is unavailable on an architecture (as in `uname -m`).
pub fn find_lacking_kernel(kind: &str, architecture: &str) -> Option<String> {
    let why = match (kind, architecture) {
        ("64k-pages", "aarch64") | ("realtime", "x86_64") => return None,
        ("64k-pages", _) => "64k-pages is only supported for aarch64 architecture",
        ("realtime", _) => "the packages of realtime exist for x86_64 only",
        _ => return None,
    };
    Some(format!("{why}, and this machine is {architecture}"))
}

/// Returns the command that restores the image's own kernel; `None` if the deployment has it, or has only part of a
/// replacement, which the daemon leaves alone.
pub fn undo_kernel(booted: &Deployment) -> Option<CommandLine> {
    let of_kernel = |name: &&String| is_of_kernel(name);
    let other = |name: &&String| name.starts_with("kernel-rt-") || name.starts_with("kernel-64k-");
    let removed: Vec<&str> = as_names(booted.removals.iter().filter(of_kernel));
    let installed: Vec<&str> = as_names(booted.requested_packages.iter().filter(other));
    (!removed.is_empty() && !installed.is_empty()).then(|| override_reset(&removed, &installed))
}

/// Returns the kernel type of a deployment, derived from its requested packages.
pub fn kernel_type_of(deployment: &Deployment) -> &'static str {
    let has = |prefix: &str| {
        let mut packages = deployment.requested_packages.iter();
        packages.any(|name| name.starts_with(prefix))
    };
    if has("kernel-rt-") {
        "realtime"
    } else if has("kernel-64k-") {
        "64k-pages"
    } else {
        "default"
    }
}

/// Packages that together make an extension complete.
pub type PackageSet = &'static [&'static str];

/// Returns the alternative package sets of an extension, each sufficient, in the daemon's order; empty for an extension that is
/// not in the table.
pub fn package_sets(extension: &str) -> Vec<PackageSet> {
    let own = EXTENSIONS.iter().find(|(name, _)| *name == extension);
    let older = (extension == "ipsec").then_some(OLDER_IPSEC);
    own.map(|(_, packages)| *packages)
        .into_iter()
        .chain(older)
        .collect()
}

/// Returns the extension that contains a package.
fn extension_with(package: &str) -> Option<&'static str> {
    let found = EXTENSIONS.iter().find(|(_, all)| all.contains(&package));
    found.map(|(name, _)| *name)
}

/// The reason why a package was requested on top of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// A kernel type.
    Kernel,
    /// This extension.
    Extension(&'static str),
    /// No config requests it, so an admin did.
    Admin,
}

/// Returns the reason why this package was requested.
pub fn requester_of(package: &str) -> Requester {
    let is_kernel = package.starts_with("kernel-rt-") || package.starts_with("kernel-64k-");
    match extension_with(package) {
        _ if is_kernel => Requester::Kernel,
        Some(extension) => Requester::Extension(extension),
        None => Requester::Admin,
    }
}

/// Returns the packages of these extensions.
///
/// # Errors
/// An extension is not in the table.
pub fn packages_of(extensions: &[String]) -> Result<BTreeSet<&'static str>, PackagesError> {
    let mut all = BTreeSet::new();
    for extension in extensions {
        let known = EXTENSIONS.iter().find(|(name, _)| name == extension);
        let (_, packages) = known.ok_or_else(|| unknown_extension(extension))?;
        all.extend(packages.iter().copied());
    }
    Ok(all)
}

/// Returns the command after which a deployment has the packages of these extensions and none of the others in the table;
/// `None` if it already has.
///
/// # Errors
/// An extension is not in the table.
pub fn change_extensions(
    wanted: &[String],
    booted: &Deployment,
) -> Result<Option<CommandLine>, PackagesError> {
    let required = packages_of(wanted)?;
    let installed: BTreeSet<&str> = as_names(booted.requested_packages.iter())
        .into_iter()
        .collect();
    let ours = EXTENSIONS
        .iter()
        .flat_map(|(_, packages)| packages.iter().copied());
    let install: Vec<&str> = required.difference(&installed).copied().collect();
    let ours: BTreeSet<&str> = ours.filter(|name| !required.contains(name)).collect();
    let uninstall: Vec<&str> = ours.intersection(&installed).copied().collect();
    Ok(layer_packages(&install, &uninstall))
}

/// Returns the packages that a command adds to the image (`true`) or removes from it (`false`).
pub fn layered_by(command: &[String]) -> Vec<(bool, &str)> {
    let mut words = command.iter().map(String::as_str);
    let verb = words.next().unwrap_or_default();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        match (word, verb) {
            ("--install", _) => all.extend(words.next().map(|name| (true, name))),
            ("--uninstall", _) => all.extend(words.next().map(|name| (false, name))),
            (name, "install") => all.push((true, name)),
            (name, "uninstall") => all.push((false, name)),
            _ => {}
        }
    }
    all
}

/// Returns the packages of these extensions that a deployment lacks (docs/develop/agreement.md: Packages).
///
/// # Errors
/// An extension is not in the table.
pub fn missing_packages(
    wanted: &[String],
    deployment: &Deployment,
) -> Result<Vec<&'static str>, PackagesError> {
    let has = |name: &&str| {
        deployment
            .requested_packages
            .iter()
            .any(|other| other == name)
    };
    let mut missing = Vec::new();
    for extension in wanted {
        let older = extension == "ipsec" && OLDER_IPSEC.iter().all(has);
        let all = packages_of(std::slice::from_ref(extension))?;
        missing.extend(all.into_iter().filter(|name| !older && !has(name)));
    }
    Ok(missing)
}

fn unknown_extension(extension: &str) -> PackagesError {
    let known: Vec<&str> = EXTENSIONS.iter().map(|(name, _)| *name).collect();
    PackagesError::Extension(extension.to_owned(), known.join(", "))
}

fn as_names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    all.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(packages: &[&str], removals: &[&str]) -> Deployment {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Deployment {
            requested_packages: owned(packages),
            removals: owned(removals),
            ..Deployment::default()
        }
    }

    fn wanted(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_kernel_type_is_the_daemons_command() {
        let command = kernel_type("realtime", "x86_64").unwrap().unwrap();
        assert_eq!(
            command.args.join(" "),
            "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra \
             --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra"
        );
        assert_eq!(kernel_type("default", "x86_64"), Ok(None));
        assert_eq!(
            kernel_type("64k-pages", "x86_64"),
            Err(PackagesError::LargePages)
        );
        assert!(kernel_type("64k-pages", "aarch64").unwrap().is_some());
        assert!(kernel_type("hard", "aarch64").is_err());
    }

    #[test]
    fn a_kernel_is_given_back_only_where_both_halves_of_the_swap_are_there() {
        let both = deployment(
            &["kernel-rt-core", "usbguard"],
            &["kernel", "kernel-core", "nano"],
        );
        assert_eq!(
            undo_kernel(&both).unwrap().args.join(" "),
            "override reset kernel kernel-core --uninstall kernel-rt-core"
        );
        assert_eq!(kernel_type_of(&both), "realtime");
        assert_eq!(undo_kernel(&deployment(&["kernel-rt-core"], &[])), None);
        assert_eq!(undo_kernel(&deployment(&["usbguard"], &["kernel"])), None);
    }

    #[test]
    fn extensions_bring_what_is_missing_and_take_only_what_the_table_has() {
        let booted = deployment(&["usbguard", "vim"], &[]);
        let command = change_extensions(&wanted(&["sysstat", "kerberos"]), &booted)
            .unwrap()
            .unwrap();
        assert_eq!(
            command.args.join(" "),
            "install krb5-workstation libkadm5 sysstat --uninstall usbguard"
        );
        assert_eq!(change_extensions(&wanted(&["usbguard"]), &booted), Ok(None));
        assert!(change_extensions(&wanted(&["nonsense"]), &booted).is_err());
    }

    #[test]
    fn every_command_says_what_comes_and_what_goes() {
        for (command, comes, goes) in [
            ("install a b --uninstall c", "a b", "c"),
            ("uninstall a b", "", "a b"),
            ("override reset kernel --uninstall rt", "", "rt"),
            ("override remove kernel --install rt", "rt", ""),
        ] {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let of = |wanted: bool| {
                let all = layered_by(&command).into_iter();
                let names: Vec<&str> = all.filter(|one| one.0 == wanted).map(|one| one.1).collect();
                names.join(" ")
            };
            assert_eq!((of(true).as_str(), of(false).as_str()), (comes, goes));
        }
    }

    #[test]
    fn an_older_set_of_packages_counts_as_complete() {
        let booted = deployment(&["NetworkManager-libreswan", "libreswan"], &[]);
        assert_eq!(missing_packages(&wanted(&["ipsec"]), &booted), Ok(vec![]));
        assert_eq!(
            missing_packages(&wanted(&["sysstat"]), &booted),
            Ok(vec!["sysstat"])
        );
    }
}
