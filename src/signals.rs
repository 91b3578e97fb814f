//! Signals that would end the program wait while something must not be left half done.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

/// What people and init systems send to end a program.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

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

/// From here on a write beyond the limit for files (`ulimit -f`) fails with an error, which is said, and does not end
/// the program by a signal. Programs that are started are not touched by it: no handler outlives their start.
///
/// # Errors
/// What the kernel said.
pub fn outlive_size_limit() -> Result<(), Errno> {
    extern "C" fn go_on(_: libc::c_int) {}
    let action = SigAction::new(
        SigHandler::Handler(go_on),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing, which is safe at any time.
    unsafe { sigaction(Signal::SIGXFSZ, &action) }.map(drop)
}

/// As long as it lives, signals that would end the program wait. Programs that are started meanwhile are not
/// touched by it: they begin with nothing blocked.
pub struct DeferredSignals {
    old: Option<SigSet>,
}

impl DeferredSignals {
    /// Begins to hold them back.
    pub fn new() -> Self {
        let mut set: SigSet = ENDING.into_iter().collect();
        set.add(Signal::SIGPIPE);
        Self {
            old: set.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok(),
        }
    }

    /// The signal that will end the program as soon as it may; none that is ignored, as under `nohup`.
    pub fn waiting(&self) -> Option<Signal> {
        let pending = pending();
        ENDING
            .into_iter()
            .find(|&signal| is_in(&pending, signal) && !is_ignored(signal))
    }
}

fn pending() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is ours and lives through the call. Zeroed it is an empty set, which it stays on an error.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    }
}

fn is_in(set: &libc::sigset_t, signal: Signal) -> bool {
    // SAFETY: the set lives through the call, which only reads it.
    unsafe { libc::sigismember(set, signal as libc::c_int) == 1 }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is installed, and the answer is ours.
    let asked =
        unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: every field may be zero, and the kernel has filled them.
    Errno::result(asked).is_ok() && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
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

/// Called before a signal ends the program.
static LAST: OnceLock<fn()> = OnceLock::new();
/// The actions of the signals before [`before_end`], in the order of [`ENDING`].
static ACTIONS: [OnceLock<SigAction>; ENDING.len()] = [const { OnceLock::new() }; ENDING.len()];

/// From here on `last` is called before a signal ends the program. A signal that is ignored stays so, and programs that
/// are started are not touched by it. The first call counts.
///
/// # Safety
/// `last` runs in a signal handler: it may only make calls that are safe there, and must not allocate.
pub unsafe fn before_end(last: fn()) {
    if LAST.set(last).is_err() {
        return;
    }
    for (signal, kept) in ENDING.into_iter().zip(&ACTIONS) {
        if is_ignored(signal) {
            continue;
        }
        let handler = SigHandler::Handler(call_last);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler makes only calls that are safe in one.
        if let Ok(old) = unsafe { sigaction(signal, &action) } {
            // There is no other setter.
            let _ = kept.set(old);
        }
    }
}

/// Then the signal comes again, for what it did before.
extern "C" fn call_last(number: libc::c_int) {
    if let Some(last) = LAST.get() {
        last();
    }
    for (signal, kept) in ENDING.into_iter().zip(&ACTIONS) {
        if signal as libc::c_int != number {
            continue;
        }
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: both calls are safe in a handler. The signal is blocked until this one ends.
        unsafe {
            let _ = sigaction(signal, kept.get().unwrap_or(&default));
            libc::raise(number);
        }
    }
}
