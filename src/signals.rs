//! Signals that would end the program wait while something must not be left half done.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// As long as it lives, signals that would end the program wait. Programs that are started meanwhile are not
/// touched by it: they begin with nothing blocked.
pub struct DeferredSignals {
    old: Option<SigSet>,
}

impl DeferredSignals {
    /// Begins to hold them back.
    pub fn new() -> Self {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGPIPE,
        ] {
            set.add(signal);
        }
        Self {
            old: set.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok(),
        }
    }
}

impl Default for DeferredSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        if let Some(old) = &self.old {
            // Restoring a mask that was in force before cannot fail.
            let _ = old.thread_set_mask();
        }
    }
}
