//! SELinux labels: the label that the root's own policy assigns to a path (docs/develop/ignition.md: Labels).
//!
//! The policy's `file_contexts` are evaluated here, not by a tool. `matchpathcon` and `setfiles` exist on every installed node,
//! but not in an initramfs nor on the machine that a broken disk is attached to, and in these places no kernel assigns a label
//! either. A lookup in the process also knows the label before the object exists, so that it never has a wrong one under its
//! name; `setfiles` could only run after the renames. The rules of the format are few, and `tests/apply/labels.rs` compares
//! them with the real `matchpathcon` and `setfiles`.
//!
//! Values in, values out: `node/labels.rs` reads the root, and `transaction/disk/` sets attributes.

mod contexts;

use std::collections::BTreeSet;

pub use contexts::{FileContexts, PolicySources};

use crate::base::object::ObjectKind;
use crate::base::reason::Reason;

/// The labels of a root's policy.
#[derive(Debug, Clone, Default)]
pub enum LabelPolicy {
    /// No SELinux policy is configured.
    #[default]
    None,
    /// A policy is configured, but cannot be used, for this reason.
    Unusable(Reason),
    /// The labels that it assigns.
    Usable {
        /// Labels by path.
        contexts: FileContexts,
        /// Types that people set by hand and that relabeling preserves.
        customizable: BTreeSet<String>,
    },
}

impl LabelPolicy {
    /// Returns the label for an absolute path; `None` if the policy has none for it.
    pub fn find_label(&self, path: &str, kind: &ObjectKind) -> Option<&str> {
        match self {
            Self::Usable { contexts, .. } => contexts.find_label(path, kind),
            Self::None | Self::Unusable(_) => None,
        }
    }

    /// Returns the pattern that may decide for a path and that this program does not understand.
    pub fn unclear_pattern(&self, path: &str, kind: &ObjectKind) -> Option<&str> {
        match self {
            Self::Usable { contexts, .. } => contexts.unclear_pattern(path, kind),
            Self::None | Self::Unusable(_) => None,
        }
    }

    /// Returns true if `restorecon` without `-F` would leave `found` in place of `wanted`: only the types are compared.
    pub fn is_right(&self, found: Option<&str>, wanted: &str) -> bool {
        let Some(found) = found else { return false };
        let by_hand = match self {
            Self::Usable { customizable, .. } => customizable.contains(type_of(found)),
            Self::None | Self::Unusable(_) => false,
        };
        by_hand || type_of(found) == type_of(wanted)
    }
}

/// Returns the third field of a label, or the whole text if it is not a label.
pub fn type_of(label: &str) -> &str {
    label.split(':').nth(2).unwrap_or(label)
}

/// Returns the name of the policy in `etc/selinux/config`; libselinux falls back to `targeted`.
pub fn policy_name(config: &str) -> &str {
    let lines = config.lines().map(str::trim_start);
    let value = lines
        .filter_map(|line| line.strip_prefix("SELINUXTYPE="))
        .next_back();
    match value.map(str::trim) {
        None | Some("") => "targeted",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_the_one_that_the_config_names() {
        let config = "# SELINUXTYPE= can take one of\nSELINUX=enforcing\n SELINUXTYPE=mls  \n";
        assert_eq!(policy_name(config), "mls");
        assert_eq!(policy_name("SELINUX=enforcing\nSELINUXTYPE=\n"), "targeted");
        assert_eq!(policy_name(""), "targeted");
    }

    #[test]
    fn only_types_are_compared_and_those_set_by_hand_are_right() {
        let policy = LabelPolicy::Usable {
            contexts: FileContexts::parse(&PolicySources::default()).unwrap(),
            customizable: BTreeSet::from(["container_file_t".to_owned()]),
        };
        let wanted = "system_u:object_r:etc_t:s0";
        assert!(policy.is_right(Some("unconfined_u:object_r:etc_t:s0"), wanted));
        assert!(policy.is_right(Some("system_u:object_r:container_file_t:s0:c1,c2"), wanted));
        assert!(!policy.is_right(Some("system_u:object_r:var_lib_t:s0"), wanted));
        assert!(!policy.is_right(None, wanted));
    }
}
