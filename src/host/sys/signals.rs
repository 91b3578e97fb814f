//! Defers signals that would end the program while something must not be left unfinished.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::base::invocation::kept_command;
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

/// The signals with which people and init systems end a program.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Repeats a system call as long as a signal interrupts it before it had any effect. That is rare on local file systems, but
/// not on network and FUSE ones.
pub fn retry_interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error, which is reported, instead of ending the program
/// by a signal. Started programs are unaffected, because handlers are reset when they start.
///
/// # Errors
/// The kernel's error.
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

/// The message for a person who ends the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SignalAnswer {
    /// Nothing was started.
    Unchanged,
    /// Something was started, and `status` reports it.
    SeeStatus,
    /// Objects are staged.
    Staging,
    /// Names are being changed.
    Finishing,
    /// rpm-ostree is running.
    Cancelling,
    /// A change is waiting for its confirmation.
    TrialGoesOn,
    /// The message was printed already.
    Said,
}

const ANSWERS: [&str; 7] = [
    "stopped; nothing was changed",
    "stopped.\nNext: ",
    "stopping; what was staged is removed, and nothing is changed",
    "the files are changing: the run finishes first",
    "stopping what stages, and dropping what it has staged; this can take minutes",
    "the trial goes on without this command.\nNext: ",
    "",
];

/// The answer of this moment.
static ANSWER: AtomicU8 = AtomicU8::new(SignalAnswer::Unchanged as u8);
/// Whether a progress line is on the terminal.
static DRAWN: AtomicBool = AtomicBool::new(false);

/// Sets the answer from here on.
pub fn set_answer(answer: SignalAnswer) {
    ANSWER.store(answer as u8, Ordering::Relaxed);
}

/// Sets whether a progress line has to be cleared before an answer.
pub fn on_drawn(is_drawn: bool) {
    DRAWN.store(is_drawn, Ordering::Relaxed);
}

fn answer_now() -> &'static str {
    let index = usize::from(ANSWER.load(Ordering::Relaxed));
    ANSWERS.get(index).copied().unwrap_or_default()
}

/// Returns the command at the end of an answer, or an empty text.
fn next_of(answer: &str) -> &'static str {
    if answer.ends_with("Next: ") {
        kept_command("status")
    } else {
        ""
    }
}

/// Returns the deferred signal while something must not be left unfinished, with the two parts of its answer.
pub fn held_back() -> Option<(Signal, [&'static str; 2])> {
    let signal = waiting_signal()?;
    Some(answer_now())
        .filter(|answer| !answer.is_empty())
        .map(|answer| (signal, [answer, next_of(answer)]))
}

/// Answers Ctrl-C and SIGTERM with a line before they end the program, unless they are ignored. Started programs are
/// unaffected.
///
/// # Errors
/// The kernel's error.
pub fn answer_signals() -> Result<(), Errno> {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        if is_ignored(signal) {
            continue;
        }
        let action = SigAction::new(
            SigHandler::Handler(end_with_answer),
            SaFlags::SA_RESETHAND,
            SigSet::empty(),
        );
        // SAFETY: the handler makes only async-signal-safe calls.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Prints the answer; then the signal ends the program, because its handler is reset by now.
extern "C" fn end_with_answer(signal: libc::c_int) {
    let say = |text: &str| {
        // SAFETY: the bytes live through the call, which is async-signal-safe. A closed standard error is ignored.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    };
    let answer = answer_now();
    if DRAWN.load(Ordering::Relaxed) {
        say("\r\x1b[K");
    } else if !answer.is_empty() {
        // The terminal shows ^C, or a prompt is on this line.
        say("\n");
    }
    if !answer.is_empty() {
        say(answer);
        say(next_of(answer));
        say("\n");
    }
    // SAFETY: both are async-signal-safe. The signal is blocked until the handler ends.
    unsafe { libc::raise(signal) };
}

/// While this lives, Ctrl-C does not end this process: it is for the program that has the terminal, such as a pager.
#[derive(Debug)]
pub struct InterruptIgnored(Option<SigAction>);

impl InterruptIgnored {
    /// Ignores Ctrl-C from here on. Programs that run already are unaffected.
    pub fn begin() -> Self {
        let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler runs.
        Self(unsafe { sigaction(Signal::SIGINT, &ignore) }.ok())
    }
}

impl Drop for InterruptIgnored {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            // SAFETY: this is the previous action.
            let _ = unsafe { sigaction(Signal::SIGINT, &before) };
        }
    }
}

/// While this lives, this thread, and everything it starts, receives no signals.
#[derive(Debug)]
pub struct AllBlocked(Option<SigSet>);

impl AllBlocked {
    /// Creates the guard.
    pub fn new() -> Self {
        Self(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok())
    }
}

impl Default for AllBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        if let Some(old) = &self.0 {
            // Restoring a previous mask cannot fail.
            let _ = old.thread_set_mask();
        }
    }
}

/// While this lives, signals that would end the program are deferred. Programs started meanwhile are unaffected: they begin
/// with nothing blocked.
#[derive(Debug)]
pub struct DeferredSignals {
    old: Option<SigSet>,
}

impl DeferredSignals {
    /// Begins to defer them.
    pub fn new() -> Self {
        let mut set: SigSet = ENDING.into_iter().collect();
        set.add(Signal::SIGPIPE);
        Self {
            old: set.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok(),
        }
    }

    /// Returns true if another instance is already deferring them, so that a signal does not end the program when this one
    /// ends.
    pub fn is_within_another(&self) -> bool {
        let is_blocked = |old: &SigSet| ENDING.iter().any(|signal| old.contains(*signal));
        self.old.as_ref().is_some_and(is_blocked)
    }

    /// Defers them until the program exits on its own, with an exit code.
    pub fn hold_to_the_end(&mut self) {
        self.old = None;
    }

    /// Returns the signal that will end the program as soon as it may; never one that is ignored, as under `nohup`.
    pub fn waiting_signal(&self) -> Option<Signal> {
        waiting_signal()
    }
}

fn waiting_signal() -> Option<Signal> {
    let pending = pending_set();
    ENDING
        .into_iter()
        .find(|&signal| is_in(&pending, signal) && !is_ignored(signal))
}

fn pending_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is ours and lives through the call. Zeroed, it is an empty set, and it stays empty on an error.
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
    // SAFETY: no handler is installed, and the result buffer is ours.
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
            // Restoring a previous mask cannot fail.
            let _ = old.thread_set_mask();
        }
    }
}

/// Called before a signal ends the program.
static LAST: OnceLock<fn()> = OnceLock::new();
/// The actions of the signals before [`before_end`], in the order of [`ENDING`].
static ACTIONS: [OnceLock<SigAction>; ENDING.len()] = [const { OnceLock::new() }; ENDING.len()];

/// Makes `last` run before a signal ends the program. An ignored signal stays ignored, and started programs are unaffected.
/// Only the first call has an effect.
///
/// # Safety
/// `last` runs in a signal handler: it may only make async-signal-safe calls, and must not allocate.
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
        // SAFETY: the handler makes only async-signal-safe calls.
        if let Ok(old) = unsafe { sigaction(signal, &action) } {
            // There is no other setter.
            let _ = kept.set(old);
        }
    }
}

/// Calls the function; then the signal is raised again with its previous action.
extern "C" fn call_last(number: libc::c_int) {
    if let Some(last) = LAST.get() {
        last();
    }
    for (signal, kept) in ENDING.into_iter().zip(&ACTIONS) {
        if signal as libc::c_int != number {
            continue;
        }
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: both calls are async-signal-safe. The signal is blocked until this one ends.
        unsafe {
            let _ = sigaction(signal, kept.get().unwrap_or(&default));
            libc::raise(number);
        }
    }
}
