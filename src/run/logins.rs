//! The login message while a node needs attention: a run is incomplete, or a boot has failed.

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
    let text = trouble(root);
    if let Err(error) = runtime::show_trouble_at_login(text.as_deref()) {
        log::info!("the text at logins: {error}");
    }
}

/// Returns the login message if a run is incomplete or a boot has failed.
fn trouble(root: &Root) -> Option<String> {
    if let Ok(Pending::Unfinished(config, ..)) = transaction::find_pending(root)
        && !transaction::is_held(root)
    {
        return Some(notice::announce_half_way(&config.name));
    }
    let awaited = state::read_awaited(root).ok().flatten()?;
    awaited
        .failed
        .is_some()
        .then(|| notice::announce_failed_boot(&awaited.config.name))
}
