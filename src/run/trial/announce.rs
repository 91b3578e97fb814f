//! The login message while a trial waits.

use crate::base::time::current_time;
use crate::change::trial::Trial;
use crate::host::sys::runtime;
use crate::run::trial::notice::{self, TrialWayBack};

/// Returns how the trial would be reverted, for people who did not begin it.
pub(super) fn way_back(trial: &Trial) -> TrialWayBack {
    if trial.reboots {
        TrialWayBack::Reboot
    } else {
        TrialWayBack::Files
    }
}

/// Shows at every later login that a trial waits. A failure is only logged.
pub(super) fn announce_waiting(trial: &Trial) {
    let text = notice::announce_waiting(current_time() + trial.window, way_back(trial));
    if let Err(error) = runtime::announce_at_login(&text) {
        log::info!("no text at logins: {error}");
    }
}
