//! Signals that would end the program wait while something must not be left half done.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Makes a system call again as long as a signal interrupts it before it did anything. On local file systems
/// that is rare, on network and FUSE ones it is not.
pub fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

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
