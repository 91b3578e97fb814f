//! The login message while a node needs attention: a run is incomplete, or a boot has failed.

use anyhow::Result;

use super::trial::notice;
use crate::change::staging::state;
use crate::change::transaction::{self, Pending};
use crate::host::root::Root;
use crate::host::sys::runtime;

/// Shows at logins that the node needs attention, or withdraws the message.
pub fn show_trouble(root: &Root) {
    // Only root can write there.
    if !root.is_live() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let shown =
        find_trouble(root).and_then(|text| Ok(runtime::show_trouble_at_login(text.as_deref())?));
    // Without an answer, the previous text stays.
    if let Err(error) = shown {
        log::info!("the text at logins: {error:#}");
    }
}

/// Returns the login message if a run is incomplete or a boot has failed.
///
/// # Errors
/// The state of the runs cannot be read.
fn find_trouble(root: &Root) -> Result<Option<String>> {
    if let Pending::Unfinished(config, ..) = transaction::find_pending(root)?
        && !transaction::is_held(root)
    {
        return Ok(Some(notice::announce_unfinished(&config.name)));
    }
    let failed = state::read_awaited(root)?.filter(|awaited| awaited.failed.is_some());
    Ok(failed.map(|awaited| notice::announce_failed_boot(&awaited.config.name)))
}
