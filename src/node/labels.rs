//! The SELinux policy of the root, and the labels of its objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::formats::labels::{FileContexts, LabelPolicy, PolicySources, policy_name};
use crate::host::root::{RealPath, Root, RootError, RootPath};

/// The labels of a root. None are read without a usable policy.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// The policy, or the reason why it is unusable.
    pub policy: LabelPolicy,
    /// The labels of the objects. Objects on file systems without labels are left out.
    pub found: BTreeMap<RootPath, Option<String>>,
    /// Directories whose real path differs from their path because of links.
    pub elsewhere: BTreeMap<RootPath, RealPath>,
}

/// An object whose label differs from the policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mislabelled {
    /// Path of the object.
    pub path: RootPath,
    /// Its label; `None` if it has none.
    pub found: Option<String>,
    /// The label of the policy.
    pub wanted: String,
}

impl Labels {
    /// Reads the policy. An unreadable policy is not an error: only labels depend on it.
    pub fn read(root: &Root) -> Self {
        let policy = read_policy(root).unwrap_or_else(LabelPolicy::Unusable);
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Returns true if the policy can be used.
    pub fn is_usable(&self) -> bool {
        matches!(self.policy, LabelPolicy::Usable { .. })
    }

    /// Returns the label that the policy assigns to an object of this kind at a path.
    pub fn wanted_label(&self, path: &RootPath, kind: &ObjectKind) -> Option<String> {
        let label = self.policy.find_label(&self.real_path(path), kind);
        label.map(str::to_owned)
    }

    /// Returns the unsupported pattern in the policy because of which an object's label cannot be determined.
    pub fn unclear_pattern(&self, path: &RootPath, kind: &ObjectKind) -> Option<String> {
        let pattern = self.policy.unclear_pattern(&self.real_path(path), kind);
        pattern.map(str::to_owned)
    }

    /// Returns the objects whose label differs from the policy.
    pub fn find_mislabelled(&self, objects: &BTreeMap<RootPath, Object>) -> Vec<Mislabelled> {
        let wrong = |(path, found): (&RootPath, &Option<String>)| {
            let wanted = self.wanted_label(path, &objects.get(path)?.kind)?;
            let wrong = !self.policy.is_right(found.as_deref(), &wanted);
            wrong.then(|| Mislabelled {
                path: path.clone(),
                found: found.clone(),
                wanted,
            })
        };
        self.found.iter().filter_map(wrong).collect()
    }

    // Returns the real path: relabelling a whole root walks real directories, so links in parent directories are followed
    // first.
    fn real_path(&self, path: &RootPath) -> String {
        let real = path.ancestors().skip(1).find_map(|above| {
            let real = self.elsewhere.get(&above)?;
            let below = path.relative().strip_prefix(above.relative())?;
            Some(real.join(below).ok()?.to_string())
        });
        real.unwrap_or_else(|| path.to_string())
    }
}

/// Reads the policy. The error is a clause for a notice.
fn read_policy(root: &Root) -> Result<LabelPolicy, Reason> {
    let config = RootPath::fixed(paths::SELINUX_CONFIG);
    let Some(config) = read_label(root, &config)? else {
        return Ok(LabelPolicy::None);
    };
    let contexts = format!("/etc/selinux/{}/contexts", policy_name(&config));
    let file = |name: &str| {
        let path = RootPath::parse(&format!("{contexts}/{name}"));
        read_label(root, &path.map_err(Reason::from_error)?)
    };
    let all = format!("{contexts}/files/file_contexts");
    let missing = || format!("{all} is missing");
    let beside =
        |ending: &str| file(&format!("files/file_contexts{ending}")).map(Option::unwrap_or_default);
    let sources = PolicySources {
        policy: file("files/file_contexts")?.ok_or_else(missing)?,
        homes: beside(".homedirs")?,
        local: beside(".local")?,
        aliases: beside(".subs")?,
        policy_aliases: beside(".subs_dist")?,
    };
    let customizable = file("customizable_types")?.unwrap_or_default();
    Ok(LabelPolicy::Usable {
        contexts: FileContexts::parse(&sources).map_err(|e| format!("{contexts}/files: {e}"))?,
        customizable: customizable
            .split_whitespace()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>(),
    })
}

fn read_label(root: &Root, path: &RootPath) -> Result<Option<String>, Reason> {
    let cannot = |e: RootError| format!("{path} cannot be read: {}", e.cause);
    let bytes = root.read(path).map_err(cannot)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}
