//! The part of the cluster's MachineConfiguration that counts for a run: of a file, of what was fetched, or the default.

use anyhow::{Context, Result};

use crate::base::time::{now, utc};
use crate::host::root::Root;
use crate::judge::daemon::default_policies;
use crate::judge::daemon::policies::{self, Brought, ClusterSettings, FoundPolicies};

/// The owner of the policies where none is known.
pub const DEFAULTS: &str =
    "the operator's default policies; those of the cluster are not known here";

/// Reads what counts: the file's, else what was fetched, else the operator's default policies.
///
/// # Errors
/// A file that cannot be used, or what is kept cannot be read.
pub fn cluster(root: &Root, file: Option<&str>) -> Result<ClusterSettings> {
    file.map_or_else(|| known(root), given)
}

fn given(file: &str) -> Result<ClusterSettings> {
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

fn known(root: &Root) -> Result<ClusterSettings> {
    let kept = policies::read_policies(root).context("reading the disruption policies")?;
    let (known, overrides) = kept.map_or((None, None), |kept| (kept.known, kept.overrides));
    let (policies, whose) = match known {
        Some(known) => {
            let whose = format!("the cluster's policies, as of {}", utc(known.seen));
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
/// It cannot be read, or is another object.
pub fn in_file(file: &str) -> Result<Brought> {
    let bytes = crate::change::source::read_named(file)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(policies::in_file(&text, file, now())?)
}
