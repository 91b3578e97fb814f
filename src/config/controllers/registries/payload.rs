//! Blocked and allowed registries, and how the release image stays available.

use super::conf::Conf;
use super::pulls;
use super::scopes::{full_name_of, is_nested};
use super::sets::MirroredSource;
use crate::base::go_quote::quote_go;
use crate::base::reason::Reason;

/// The lists of `Image cluster`. `None` for a missing list, because an empty one can have an effect.
#[derive(Debug, Clone, Default)]
pub(super) struct RegistrySources {
    /// `insecureRegistries`.
    pub(super) insecure: Option<Vec<String>>,
    /// `blockedRegistries`.
    pub(super) blocked: Vec<String>,
    /// `allowedRegistries`.
    pub(super) allowed: Vec<String>,
    /// `containerRuntimeSearchRegistries`.
    pub(super) search: Option<Vec<String>>,
}

/// The effective lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CountingLists {
    /// Blocked in registries.conf.
    pub(super) blocked: Vec<String>,
    /// Rejected by policy.json.
    pub(super) rejected: Vec<String>,
    /// Allowed by policy.json.
    pub(super) allowed: Vec<String>,
    /// A note about what the controller omitted, in its own words.
    pub(super) left_out: Option<String>,
}

/// Determines the effective lists. `repository` is that of the release image, which has to stay available.
pub(super) fn sort_lists(
    repository: &str,
    release_image: &str,
    sources: &RegistrySources,
    digests: &[MirroredSource],
) -> CountingLists {
    let mut lists = CountingLists::default();
    let mut dropped = Vec::new();
    for scope in &sources.blocked {
        if !is_nested(repository, scope) {
            lists.blocked.push(scope.clone());
            lists.rejected.push(scope.clone());
            continue;
        }
        match has_open_mirror(repository, release_image, sources, digests) {
            Err(reason) => {
                return CountingLists {
                    left_out: Some(format!(
                        "Neither blockedRegistries nor allowedRegistries has an effect: {reason}. Write the mirrors of the release image in full (docker.io/library/NAME, not docker.io/NAME)."
                    )),
                    ..CountingLists::default()
                };
            }
            Ok(false) => dropped.push(quote_go(scope)),
            Ok(true) => {
                lists.blocked.push(scope.clone());
                if scope != repository {
                    lists.rejected.push(scope.clone());
                }
                lists.allowed.push(repository.to_owned());
            }
        }
    }
    lists.allowed.extend_from_slice(&sources.allowed);
    lists.left_out = (!dropped.is_empty()).then(|| {
        let dropped = dropped.join(" ");
        format!(
            "Not every entry of blockedRegistries has an effect: error adding [{dropped}] to blocked registries, cannot block the repository being used by the payload. Mirror {repository} to a registry that is not blocked first."
        )
    });
    lists
}

/// Returns true if the release image can be pulled from a location that is not blocked.
fn has_open_mirror(
    repository: &str,
    release_image: &str,
    sources: &RegistrySources,
    digests: &[MirroredSource],
) -> Result<bool, Reason> {
    let mut conf = Conf::default();
    let insecure = sources.insecure.as_deref().unwrap_or_default();
    conf.add_scopes(insecure, &sources.blocked, digests, &[])?;
    let Some(entry) = pulls::find_registry(&conf, repository)? else {
        return Ok(false);
    };
    let places = entry.pull_sources(release_image)?;
    let is_blocked = |name: &str| sources.blocked.iter().any(|scope| is_nested(name, scope));
    Ok(places.iter().any(|place| !is_blocked(&place.name)))
}

/// Returns the repository of a release image; `None` if the controller cannot parse it.
pub(super) fn repository_of(release_image: &str) -> Option<&str> {
    full_name_of(release_image).ok()
}
