//! The locations that the containers libraries try for an image, according to a registries.conf of the controller.

use super::conf::{Conf, DIGEST_ONLY, Endpoint, Entry, TAG_ONLY};
use super::scopes;

use crate::base::reason::Reason;

/// An entry as interpreted by the libraries, and their name for the location of an image.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    entry: &'a Entry,
    prefix: &'a str,
}

/// A place of an image.
#[derive(Debug)]
pub(super) struct PullSource {
    /// Its name, without tag and digest.
    pub(super) name: String,
    /// It is the image's own name, matched by a wildcard.
    pub(super) is_own: bool,
}

/// Finds the entry for a name: the one with the longest prefix.
///
/// # Errors
/// The libraries' message about an invalid file.
pub(super) fn find_registry<'a>(
    conf: &'a Conf,
    name: &str,
) -> Result<Option<Matching<'a>>, Reason> {
    for entry in &conf.registry {
        check_location(&entry.location)?;
        check_location(&entry.prefix)?;
        for mirror in &entry.mirror {
            check_location(&mirror.location)?;
        }
    }
    let mut found: Option<Matching<'a>> = None;
    for entry in &conf.registry {
        let prefix = entry.scope().trim_end_matches('/');
        let longest = found.as_ref().map_or(0, |found| found.prefix.len());
        if prefix.len() > longest && length_of_match(name, prefix).is_some() {
            found = Some(Matching { entry, prefix });
        }
    }
    Ok(found)
}

fn check_location(location: &str) -> Result<(), Reason> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return Err(format!("invalid location '{location}': URI schemes are not supported").into());
    }
    Ok(())
}

impl Matching<'_> {
    /// Returns the locations of an image in order, mirrors first. `reference` has a digest or a tag.
    ///
    /// # Errors
    /// The libraries' message about a location that is not a valid image name.
    pub(super) fn pull_sources(&self, reference: &str) -> Result<Vec<PullSource>, Reason> {
        let other = if reference.contains('@') {
            TAG_ONLY
        } else {
            DIGEST_ONLY
        };
        let mirrors = self.entry.mirror.iter();
        let mirrors = mirrors.filter(|mirror| mirror.pull_from_mirror != other);
        let own = Endpoint {
            location: self.entry.location.clone(),
            ..Endpoint::default()
        };
        let all = mirrors.chain(std::iter::once(&own));
        all.map(|endpoint| self.rewrite_reference(&endpoint.location, reference))
            .collect()
    }

    fn rewrite_reference(&self, location: &str, reference: &str) -> Result<PullSource, Reason> {
        let location = location.trim_end_matches('/');
        let Some(length) = length_of_match(reference, self.prefix) else {
            let prefix = self.prefix;
            return Err(format!("invalid prefix '{prefix}' for reference '{reference}'").into());
        };
        let is_own = location.is_empty();
        let text = if is_own {
            reference.to_owned()
        } else {
            format!("{location}{}", reference.get(length..).unwrap_or_default())
        };
        let name = if is_own {
            scopes::name_of(&text)
        } else {
            scopes::full_name_of(&text)
        };
        let name = name.map_err(|reason| format!("rewriting reference: {reason}"))?;
        Ok(PullSource {
            name: name.to_owned(),
            is_own,
        })
    }
}

/// Returns the length of a name's part that a prefix matches.
fn length_of_match(name: &str, prefix: &str) -> Option<usize> {
    let length = match prefix
        .strip_prefix('*')
        .filter(|text| text.starts_with('.'))
    {
        Some(domain) => {
            let start = name.find(domain)?;
            if name.get(..start)?.contains('/') {
                return None;
            }
            start + domain.len()
        }
        None if name.starts_with(prefix) => prefix.len(),
        None => return None,
    };
    let next = name.as_bytes().get(length);
    next.is_none_or(|next| matches!(next, b':' | b'/' | b'@'))
        .then_some(length)
}
