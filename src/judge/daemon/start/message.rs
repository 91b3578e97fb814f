//! The daemon's message about the first difference that it reports.

use crate::config::document::MachineConfig;
use crate::judge::daemon::release::{Release, Rule};
use crate::judge::drift::{Drift, DriftKind};

/// The newest version of spec 2 that the daemon supports: 2.2.
const NEWEST_SPEC_2: u64 = 2;

/// Returns the differences with the messages of a release, which has no message about anything it does not check.
pub fn as_seen_by(release: Release, mut drifts: Vec<Drift>) -> Vec<Drift> {
    let is_unseen = |drift: &&mut Drift| {
        drift.kind == DriftKind::Enablement && !release.has_rule(Rule::Enablement)
    };
    for drift in drifts.iter_mut().filter(is_unseen) {
        drift.daemon = None;
    }
    drifts
}

/// Returns a release's first message about a config and its differences from the disk: the operating system comes first, then
/// the Ignition version.
pub fn first_message(config: &MachineConfig, drifts: &[Drift], release: Release) -> Option<String> {
    let said = |of_os: bool| {
        let is_seen = |drift: &&Drift| {
            drift.is_of_the_os() == of_os
                && (drift.kind != DriftKind::Enablement || release.has_rule(Rule::Enablement))
        };
        let mut seen = drifts.iter().filter(is_seen);
        seen.find_map(|drift| drift.daemon.clone())
    };
    said(true)
        .or_else(|| too_new(config, release))
        .or_else(|| said(false))
}

/// Returns the message for an Ignition config of a version that the daemon does not support.
fn too_new(config: &MachineConfig, release: Release) -> Option<String> {
    let newest = release.ignition_minor();
    let is_known = match &config.spec2 {
        Some(written) => written.minor <= NEWEST_SPEC_2,
        // Without an Ignition config there is nothing to parse.
        None if config.ignition.ignition.version.is_empty() => true,
        None => config.emptied || config.ignition.minor_version() <= newest,
    };
    if is_known {
        return None;
    }
    let known: Vec<String> = (0..=newest).map(|minor| format!("3.{minor}")).collect();
    Some(format!(
        "failed to parse Ignition for validation: parsing Ignition config failed: unknown version. Supported spec \
         versions: 2.2,{}",
        known.join(",")
    ))
}
