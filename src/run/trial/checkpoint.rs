//! The checkpoint of NetworkManager, a second safeguard that reverts the network.

use std::time::Duration;

use crate::change::trial::Trial;
use crate::node::command::CommandRunner;
use crate::node::command::network_manager::{self, Begun, NetworkCheckpoint};

/// Delay in seconds after the guard before NetworkManager reverts by itself.
pub(super) const MARGIN: u32 = 60;

/// Begins a checkpoint, so that NetworkManager reverts by itself a little later than the guard. Returns `None` if that is not
/// possible.
pub(super) fn begin_checkpoint(
    runner: &dyn CommandRunner,
    window: Duration,
) -> Option<NetworkCheckpoint> {
    let seconds = u32::try_from(window.as_secs()).unwrap_or(u32::MAX);
    match network_manager::begin_checkpoint(runner, seconds.saturating_add(2 * MARGIN)) {
        Ok(Begun::Armed(checkpoint)) => Some(checkpoint),
        Ok(Begun::NotRunning) => None,
        Ok(Begun::Held(words)) => {
            log::warn!(
                "another program holds a checkpoint of NetworkManager ({words}); it stays, and the guard alone restores the connections"
            );
            None
        }
        Err(error) => {
            log::warn!(
                "no checkpoint of NetworkManager: {error}; the guard alone restores the connections"
            );
            None
        }
    }
}

/// Ends the checkpoint without rolling back.
pub(super) fn end_checkpoint(runner: &dyn CommandRunner, trial: &Trial) {
    if let Some(checkpoint) = &trial.checkpoint
        && let Err(error) = network_manager::commit_checkpoint(runner, checkpoint)
    {
        log::warn!("the checkpoint of NetworkManager: {error}");
    }
}
