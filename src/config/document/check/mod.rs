//! Validation: Ignition's rules (numbered as in docs/develop/ignition.md: Validation) and the operator's own (docs/develop/agreement.md:
//! Documents). All errors are found, not only the first.
//!
//! V17, V28 and V29 depend on the text and are checked during decoding (`decode`, `fields`). V30 is about sections that are
//! refused by name and never decoded.

mod nodes;
mod resources;
mod units;

use std::fmt::Arguments;

use super::decode::Decoded;
use super::finding::{Finding, Severity, path_below};
use super::ignition::{File, Ignition, Unit};
use super::modes::octal_hint;

/// Returns the warnings from decoding a config at the path `at`, then every finding of the rules.
pub(super) fn all_findings(decoded: &Decoded, at: &str) -> Vec<Finding> {
    let rules = decoded.duplicates.iter().cloned();
    let rules = rules.chain(check_ignition(&decoded.config, at));
    let rules = rules.map(|finding| decoded.with_original_path(finding));
    let mut all: Vec<Finding> = decoded.warnings.iter().cloned().chain(rules).collect();
    for finding in shadowed_findings(decoded, at) {
        if !all.contains(&finding) {
            all.push(finding);
        }
    }
    all
}

/// Returns the errors in units of spec 2 that are shadowed by a later entry of the same name: the operator and the daemon check
/// them nevertheless.
fn shadowed_findings(decoded: &Decoded, at: &str) -> Vec<Finding> {
    let units = decoded
        .converted
        .as_ref()
        .map(|converted| &converted.written().units);
    let units = units.map_or(&[][..], Vec::as_slice);
    let mut check = Checker {
        at,
        minor: decoded.config.minor_version(),
        findings: Vec::new(),
    };
    let is_shadowed = |(index, unit): &(usize, &Unit)| {
        let mut later = units.iter().skip(index + 1);
        later.any(|later| later.name == unit.name)
    };
    for (index, unit) in units.iter().enumerate().filter(is_shadowed) {
        check.check_unit_entry(index, unit);
    }
    check
        .findings
        .retain(|finding| finding.severity == Severity::Error);
    check.findings
}

/// Checks a config that was parsed from the path `at`, or that was merged: the rules about single values and between entries,
/// but not duplicate keys.
pub(super) fn check_ignition(config: &Ignition, at: &str) -> Vec<Finding> {
    let mut check = Checker {
        at,
        minor: config.minor_version(),
        findings: Vec::new(),
    };
    check.check_references(config);
    check.check_storage(&config.storage);
    check.check_units(&config.systemd.units);
    check.check_conflicts(config);
    check.check_hard_links(&config.storage);
    check.findings
}

/// Checks the operator's rule about modes: special bits are refused in a MachineConfig.
pub(super) fn check_special_modes(config: &Ignition, at: &str) -> Vec<Finding> {
    let special = |(index, file): (usize, &File)| {
        let mode = file.mode.filter(|mode| (0o1000..=0o7777).contains(mode))?;
        let message = format!(
            "invalid mode 0{mode:o} for {}, cannot exceed 0777",
            file.path
        );
        Some(Finding::error(
            format!("{at}.storage.files[{index}].mode"),
            with_hint(&message, octal_hint(mode, false)),
        ))
    };
    config
        .storage
        .files
        .iter()
        .enumerate()
        .filter_map(special)
        .collect()
}

/// Returns a message with a suggestion.
fn with_hint(message: &str, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{message}: {hint}"),
        None => message.to_owned(),
    }
}

/// Extensions that the operator (as of 2026-08) can install (docs/develop/agreement.md: Packages).
const EXTENSIONS: [&str; 7] = [
    "ipsec",
    "kerberos",
    "kernel-devel",
    "sandboxed-containers",
    "sysstat",
    "two-node-ha",
    "usbguard",
];

/// Checks the operator's rule about `spec.extensions`; it only applies if the MachineConfig has an Ignition part.
pub(super) fn check_extensions(names: &[String], at: &str) -> Option<Finding> {
    let names = names.iter().map(String::as_str);
    let unknown: Vec<&str> = names.filter(|name| !EXTENSIONS.contains(name)).collect();
    let message = format!(
        "invalid extensions found: [{}]; the operator knows {}",
        unknown.join(" "),
        EXTENSIONS.join(", ")
    );
    (!unknown.is_empty()).then(|| Finding::error(at, message))
}

/// Collects findings. Paths are [`Arguments`], which are only formatted for a finding: there are several for each value.
struct Checker<'a> {
    at: &'a str,
    minor: u64,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn add_error(&mut self, path: Arguments<'_>, message: impl Into<String>) {
        let path = path_below(self.at, &path.to_string());
        self.findings.push(Finding::error(path, message));
    }

    fn add_warning(&mut self, path: Arguments<'_>, message: impl Into<String>) {
        let path = path_below(self.at, &path.to_string());
        self.findings.push(Finding::warning(path, message));
    }
}
