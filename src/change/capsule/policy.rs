//! What a node demands: `/etc/mco-rescue/policy` and `/etc/mco-rescue/allowed_signers`, else those of its image.

use std::collections::BTreeSet;

use crate::base::paths;
use crate::formats::sshsig::AllowedSigners;
use crate::host::root::{Root, RootError, RootPath};

/// An input for which a capsule can be demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapsuleInput {
    /// Configs from files and directories that are named, and from the medium.
    Media,
    /// Configs of a medium in the initramfs.
    FirstBoot,
    /// Configs from standard input.
    Stdin,
    /// OS images (`--os-from`).
    Images,
}

impl CapsuleInput {
    const ALL: [Self; 4] = [Self::Media, Self::FirstBoot, Self::Stdin, Self::Images];

    /// Returns its name in the policy.
    pub fn key(self) -> &'static str {
        match self {
            Self::Media => "media",
            Self::FirstBoot => "first-boot",
            Self::Stdin => "stdin",
            Self::Images => "images",
        }
    }
}

/// The inputs for which a node demands a capsule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapsulePolicy(BTreeSet<CapsuleInput>);

/// The reason why it is not known what a node demands.
#[derive(Debug, thiserror::Error)]
pub enum CapsulePolicyError {
    /// A file cannot be read.
    #[error("reading what this node demands: {0}")]
    Read(#[from] RootError),
    /// The policy has another form.
    #[error(
        "/{path}, line {line}: {why}. Each line is media, first-boot, stdin or images, then = required or = optional"
    )]
    Form {
        /// Path of the policy.
        path: &'static str,
        /// Number of the line.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl CapsulePolicy {
    /// Reads the policy of a node: what any of these roots demands. Without one, nothing is demanded.
    ///
    /// # Errors
    /// It cannot be read, or has another form: then it is not known what is demanded.
    pub fn read(roots: &[&Root]) -> Result<Self, CapsulePolicyError> {
        let mut demanded = Self::default();
        for root in roots {
            if let Some((path, text)) = read_first(root, paths::CAPSULE_POLICY)? {
                let parsed = Self::parse_policy(&text);
                let own =
                    parsed.map_err(|(line, why)| CapsulePolicyError::Form { path, line, why })?;
                demanded.0.extend(own.0);
            }
        }
        Ok(demanded)
    }

    /// Returns true if a capsule is demanded for this input.
    pub fn demands_capsule(&self, input: CapsuleInput) -> bool {
        self.0.contains(&input)
    }

    fn parse_policy(text: &str) -> Result<Self, (usize, String)> {
        let mut seen = BTreeSet::new();
        let mut demanded = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: String| (index + 1, why);
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| bad("there is no =".to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            let input = CapsuleInput::ALL
                .into_iter()
                .find(|input| input.key() == key);
            let input = input.ok_or_else(|| bad(format!("{key:?} is unknown")))?;
            if !seen.insert(input) {
                return Err(bad(format!("{key} is set twice")));
            }
            match value {
                "required" => demanded.0.insert(input),
                "optional" => false,
                _ => return Err(bad(format!("the value {value:?} is unknown"))),
            };
        }
        Ok(demanded)
    }
}

/// Reads the keys that a node trusts: those of the first of these roots that has a file of them; `None` if none has.
///
/// # Errors
/// The file cannot be read.
pub fn read_signers(roots: &[&Root]) -> Result<Option<AllowedSigners>, CapsulePolicyError> {
    for root in roots {
        if let Some((path, text)) = read_first(root, paths::ALLOWED_SIGNERS)? {
            let parsed = AllowedSigners::parse(&text);
            for line in &parsed.skipped {
                log::warn!("/{path}, line {} is skipped: {}", line.number, line.reason);
            }
            return Ok(Some(parsed));
        }
    }
    Ok(None)
}

/// Reads the first of these files that exists.
fn read_first(
    root: &Root,
    files: [&'static str; 2],
) -> Result<Option<(&'static str, String)>, CapsulePolicyError> {
    for file in files {
        let path = RootPath::fixed(file);
        if let Some(bytes) = root.read(&path)? {
            return match String::from_utf8(bytes) {
                Ok(text) => Ok(Some((file, text))),
                Err(_) => Err(CapsulePolicyError::Form {
                    path: file,
                    line: 1,
                    why: "it is not text".to_owned(),
                }),
            };
        }
        // A link that leads nowhere, or a device: it is there, and cannot be read.
        if root.exists(&path)? {
            return Err(CapsulePolicyError::Form {
                path: file,
                line: 1,
                why: "it is not a plain file".to_owned(),
            });
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_or_refused() {
        let parsed = CapsulePolicy::parse_policy(
            "# who\n\nmedia = required\nstdin=optional\n images =required\n",
        );
        let policy = parsed.unwrap();
        let demanded = CapsuleInput::ALL.map(|input| policy.demands_capsule(input));
        assert_eq!(demanded, [true, false, false, true]);
        for text in [
            "media",
            "media = yes",
            "medium = required",
            "media=required\nmedia=optional",
            "media required",
        ] {
            assert!(CapsulePolicy::parse_policy(text).is_err(), "{text}");
        }
    }
}
