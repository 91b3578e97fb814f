//! The accounts in `/etc`, which the next image will find there.

use std::collections::BTreeSet;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

use super::Seen;

/// Names of accounts.
#[derive(Debug, Clone, Default)]
pub struct EtcAccounts {
    /// Users of `/etc/passwd`.
    pub users: BTreeSet<String>,
    /// Groups of `/etc/group`.
    pub groups: BTreeSet<String>,
    /// Groups in `/etc/gshadow`; empty if this user may not read it.
    pub group_shadows: BTreeSet<String>,
}

/// Reads the names.
pub(super) fn observe_etc_accounts(root: &Root) -> Seen<EtcAccounts> {
    let names = |path: &'static str| -> Seen<BTreeSet<String>> {
        let bytes = match root.read_small(&RootPath::fixed(path)) {
            Err(error) if error.cause.is_denied() && path == paths::GSHADOW => None,
            bytes => bytes.map_err(Reason::from_error)?,
        };
        let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let names = text.lines().filter_map(|line| line.split(':').next());
        Ok(names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect())
    };
    Ok(EtcAccounts {
        users: names(paths::PASSWD)?,
        groups: names(paths::GROUP)?,
        group_shadows: names(paths::GSHADOW)?,
    })
}
