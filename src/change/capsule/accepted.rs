//! What a node remembers of capsules.

use serde::{Deserialize, Serialize};

use super::opened::CapsuleFacts;
use crate::base::invocation::node_path;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::sealed;

const VERSION: u32 = 1;
/// Number of configs whose signers are remembered.
const KEPT: usize = 32;

/// The capsules that a node has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedCapsules {
    version: u32,
    /// The newest one.
    pub last: CapsuleFacts,
    /// Configs that were taken from capsules, the newest first.
    pub configs: Vec<SignedConfig>,
}

/// A config, and who signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedConfig {
    /// `metadata.name`.
    pub name: String,
    /// SHA-256 of the object.
    pub digest: String,
    /// Who signed it.
    pub signed: CapsuleFacts,
}

/// A config or an image that a run takes from a capsule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenFromCapsule {
    /// Name of the config, or of the image.
    pub what: String,
    /// SHA-256 of the config; `None` for an image.
    pub digest: Option<String>,
    /// The capsule.
    pub signed: CapsuleFacts,
}

/// The reason why it is not known which capsules were accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptedError {
    /// The file cannot be read.
    #[error("reading which capsules this node has seen: {0}")]
    Read(#[from] RootError),
    /// The file was changed, or has another version.
    #[error(
        "{path} is damaged ({0}): an older capsule would not be recognised. To forget the last number: rm {path}",
        path = node_path(paths::CAPSULES)
    )]
    Damaged(String),
}

impl AcceptedCapsules {
    /// Reads what is remembered; `None` if there was no capsule yet.
    ///
    /// # Errors
    /// The file cannot be read or is damaged: without it an older capsule would be accepted again.
    pub fn read(root: &Root) -> Result<Option<Self>, AcceptedError> {
        let Some(bytes) = root.read(&RootPath::fixed(paths::CAPSULES))? else {
            return Ok(None);
        };
        let damaged = AcceptedError::Damaged;
        sealed::check_seal(&bytes).map_err(|error| damaged(error.to_string()))?;
        let read: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if read.version == VERSION {
            Ok(Some(read))
        } else {
            Err(damaged(format!("version {}", read.version)))
        }
    }

    /// Returns what is remembered after a run took something from a capsule; `None` if nothing changes, because it is known, or a
    /// newer capsule is: a config of the cache was signed by an earlier one.
    pub fn after_taking(before: Option<Self>, taken: &TakenFromCapsule) -> Option<Self> {
        let facts = &taken.signed;
        if let Some(before) = &before {
            let digest = taken.digest.as_deref();
            let is_known = digest.is_none_or(|digest| before.signer_of(digest) == Some(facts));
            if before.last.sequence > facts.sequence || (before.last == *facts && is_known) {
                return None;
            }
        }
        let mut configs = before.map(|before| before.configs).unwrap_or_default();
        if let Some(digest) = &taken.digest {
            configs.retain(|known| known.digest != *digest);
            let new = SignedConfig {
                name: taken.what.clone(),
                digest: digest.clone(),
                signed: facts.clone(),
            };
            configs.insert(0, new);
            configs.truncate(KEPT);
        }
        Some(Self {
            version: VERSION,
            last: facts.clone(),
            configs,
        })
    }

    /// Returns who signed the config with this digest.
    pub fn signer_of(&self, digest: &str) -> Option<&CapsuleFacts> {
        let known = self.configs.iter().find(|one| one.digest == digest);
        known.map(|one| &one.signed)
    }

    /// Returns the reason why a capsule is older than the last one; its text is the end of a sentence.
    pub fn why_replayed(&self, facts: &CapsuleFacts) -> Option<String> {
        let (last, new) = (&self.last, facts);
        if new.sequence < last.sequence {
            return Some(format!(
                "is older than what this node has seen: its number is {}, and the last one was {}. If it is not: mco-rescue capsule \
                 make DIR --sign KEY --sequence {}",
                new.sequence,
                last.sequence,
                last.sequence.saturating_add(1)
            ));
        }
        (new.sequence == last.sequence && new.sha256 != last.sha256).then(|| {
            format!(
                "has the number {} of another capsule that this node has seen",
                new.sequence
            )
        })
    }
}
