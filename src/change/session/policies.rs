//! The part of the cluster's MachineConfiguration that matters for a run: from a file, as fetched earlier, or the default.

use anyhow::{Context, Result};

use crate::base::time::{current_time, format_utc};
use crate::host::root::Root;
use crate::judge::daemon::default_policies;
use crate::judge::daemon::policies::{self, Brought, ClusterSettings, FoundPolicies};

/// The description of the policies if those of the cluster are unknown.
pub const DEFAULTS: &str =
    "the operator's default policies; those of the cluster are not known here";

/// Reads the policies that apply: from the file, or as fetched earlier, or the operator's default policies.
///
/// # Errors
/// The file cannot be used, or the stored policies cannot be read.
pub fn read_cluster(root: &Root, file: Option<&str>) -> Result<ClusterSettings> {
    file.map_or_else(|| read_known(root), read_given)
}

fn read_given(file: &str) -> Result<ClusterSettings> {
    let brought = in_file(file)?;
    let whose = match brought.found {
        FoundPolicies::Result => format!("the cluster's policies, from {file}"),
        FoundPolicies::Asked => format!(
            "the operator's defaults with what {file} asks for; the operator's own result is not in it"
        ),
    };
    Ok(ClusterSettings {
        policies: brought.policies.cluster,
        whose,
        overrides: Some(brought.overrides),
    })
}

fn read_known(root: &Root) -> Result<ClusterSettings> {
    let kept = policies::read_policies(root).context("reading the disruption policies")?;
    let (known, overrides) = kept.map_or((None, None), |kept| (kept.known, kept.overrides));
    let (policies, whose) = match known {
        Some(known) => {
            let whose = format!("the cluster's policies, as of {}", format_utc(known.seen));
            (known.cluster, whose)
        }
        None => (default_policies(), DEFAULTS.to_owned()),
    };
    Ok(ClusterSettings {
        policies,
        whose,
        overrides,
    })
}

/// Reads the MachineConfiguration in a file.
///
/// # Errors
/// The file cannot be read, or contains another object.
pub fn in_file(file: &str) -> Result<Brought> {
    let bytes = crate::change::source::read_named(file)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(policies::in_file(&text, file, current_time())?)
}
