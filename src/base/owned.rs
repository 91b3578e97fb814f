//! Paths that no config may contain, because this program or the daemon writes them, each with its reason.
//!
//! The program and its units are not among them: if a config contains those, `install` leaves them to it.

use crate::base::paths;

/// The configs in which a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnedRule {
    /// In every one.
    Always,
    /// In a MachineConfig; a bare config may contain the files that a first boot starts from.
    Rendered,
    /// In every config, unless whole account files are allowed.
    Accounts,
}

/// A path with an owner.
#[derive(Debug, Clone, Copy)]
pub struct OwnedPath {
    /// Path relative to the root.
    pub path: &'static str,
    /// True if it covers everything below the path.
    pub tree: bool,
    /// The configs that may not contain it.
    pub rule: OwnedRule,
    /// Its writer and its purpose: a clause with a subject.
    pub why: &'static str,
}

const fn owned_file(path: &'static str, rule: OwnedRule, why: &'static str) -> OwnedPath {
    OwnedPath {
        path,
        tree: false,
        rule,
        why,
    }
}

const fn owned_tree(path: &'static str, why: &'static str) -> OwnedPath {
    OwnedPath {
        path,
        tree: true,
        rule: OwnedRule::Always,
        why,
    }
}

const ACCOUNTS: &str = "a whole file removes every account that it does not list, and the owners of all other files \
                        are looked up in it";

/// Every path with an owner.
pub const OWNED: [OwnedPath; 13] = [
    owned_tree(
        paths::STATE,
        "mco-rescue keeps its journal there, and what it needs to undo a run",
    ),
    owned_tree(paths::RUNTIME, "mco-rescue keeps there what one boot needs"),
    owned_file(
        paths::CHECK,
        OwnedRule::Always,
        "mco-rescue makes it to test its unit",
    ),
    owned_file(
        paths::CURRENT_CONFIG,
        OwnedRule::Always,
        "it is the daemon's record of the config, which a run writes last",
    ),
    owned_file(
        paths::CURRENT_IMAGE,
        OwnedRule::Always,
        "it is the daemon's record of the image, which a run writes last",
    ),
    owned_tree(
        paths::ORIG,
        "it holds the daemon's copies of the original files",
    ),
    owned_tree(
        paths::NOORIG,
        "it holds the daemon's stamps for files without an original",
    ),
    owned_file(
        paths::ENCAPSULATED,
        OwnedRule::Rendered,
        "it starts the first-boot service again, which takes the node to what is in it",
    ),
    owned_file(
        paths::ENCAPSULATED_KEPT,
        OwnedRule::Rendered,
        "the input of the first boot is kept there once it is over",
    ),
    owned_file(paths::PASSWD, OwnedRule::Accounts, ACCOUNTS),
    owned_file(paths::GROUP, OwnedRule::Accounts, ACCOUNTS),
    owned_file(paths::SHADOW, OwnedRule::Accounts, ACCOUNTS),
    owned_file(paths::GSHADOW, OwnedRule::Accounts, ACCOUNTS),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::RootPath;

    #[test]
    fn every_path_is_named_once_and_no_tree_holds_another_entry() {
        for (index, one) in OWNED.iter().enumerate() {
            let others = OWNED.iter().enumerate().filter(|(at, _)| *at != index);
            for (_, other) in others {
                let path = RootPath::fixed(other.path);
                assert!(!path.is_in(one.path), "{} {}", one.path, other.path);
            }
            assert!(!one.why.ends_with('.') && !one.why.is_empty());
        }
    }
}
