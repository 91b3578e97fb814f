//! Signals that would end the program wait while something must not be left half done.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::base::invocation::kept;
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

/// The signals by which people and init systems end a program.
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

/// Makes a write beyond the limit for files (`ulimit -f`) fail with an error, which is reported, and does not end
/// the program by a signal. Programs that are started are not touched by it: no handler outlives their start.
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
    /// Nothing was begun.
    Unchanged,
    /// Something was, and `status` tells it.
    SeeStatus,
    /// Objects are staged.
    Staging,
    /// Names are changing.
    Finishing,
    /// rpm-ostree is at work.
    Cancelling,
    /// A change waits for its confirmation.
    TrialGoesOn,
    /// The message was printed already.
    Said,
}

const ANSWERS: [&str; 7] = [
    "stopped; nothing was changed",
    "stopped.\nNext: ",
    "stopping; what was staged is removed, and nothing is changed",
    "the files are changing: the run goes to its end first",
    "stopping what stages, and dropping what it has staged; this can take minutes",
    "the trial goes on without this command.\nNext: ",
    "",
];

/// The answer of this moment.
static ANSWER: AtomicU8 = AtomicU8::new(SignalAnswer::Unchanged as u8);
/// A line of progress is on the terminal.
static DRAWN: AtomicBool = AtomicBool::new(false);

/// Sets the answer from here on.
pub fn answer(answer: SignalAnswer) {
    ANSWER.store(answer as u8, Ordering::Relaxed);
}

/// Notes whether a line of progress has to be cleared before an answer.
pub fn on_drawn(is_drawn: bool) {
    DRAWN.store(is_drawn, Ordering::Relaxed);
}

fn answer_now() -> &'static str {
    let index = usize::from(ANSWER.load(Ordering::Relaxed));
    ANSWERS.get(index).copied().unwrap_or_default()
}

/// Returns the command that ends an answer, or nothing.
fn next_of(answer: &str) -> &'static str {
    match answer.ends_with("Next: ") {
        true => kept("status"),
        false => "",
    }
}

/// The signal that is held back while something must not be left half done, with the two parts of its answer.
pub fn held_back() -> Option<(Signal, [&'static str; 2])> {
    let signal = waiting()?;
    Some(answer_now())
        .filter(|answer| !answer.is_empty())
        .map(|answer| (signal, [answer, next_of(answer)]))
}

/// From here on Ctrl-C and SIGTERM are answered with a line before they end the program, unless they are ignored.
/// Programs that are started are not touched by it.
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
        // SAFETY: the handler makes only calls that are safe in one.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Says the answer; then the signal ends the program, as its handler is reset by now.
extern "C" fn end_with_answer(signal: libc::c_int) {
    let say = |text: &str| {
        // SAFETY: the bytes live through the call, which is safe in a handler. A closed standard error hears nothing.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    };
    let answer = answer_now();
    if DRAWN.load(Ordering::Relaxed) {
        say("\r\x1b[K");
    } else if !answer.is_empty() {
        // The terminal shows ^C, or a question is on this line.
        say("\n");
    }
    if !answer.is_empty() {
        say(answer);
        say(next_of(answer));
        say("\n");
    }
    // SAFETY: both are safe in a handler. It is blocked until the handler ends.
    unsafe { libc::raise(signal) };
}

/// As long as it lives, this thread, and what it starts meanwhile, gets no signal.
#[derive(Debug)]
pub struct AllBlocked(Option<SigSet>);

impl AllBlocked {
    /// Begins.
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
            // Restoring a mask that was in force before cannot fail.
            let _ = old.thread_set_mask();
        }
    }
}

/// As long as it lives, signals that would end the program wait. Programs that are started meanwhile are not
/// touched by it: they begin with nothing blocked.
#[derive(Debug)]
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

    /// Returns true if another one holds them back already: then a signal does not end the program with this one.
    pub fn is_within_another(&self) -> bool {
        let is_blocked = |old: &SigSet| ENDING.iter().any(|signal| old.contains(*signal));
        self.old.as_ref().is_some_and(is_blocked)
    }

    /// Holds them back until the program ends by itself, with an exit code.
    pub fn hold_to_the_end(&mut self) {
        self.old = None;
    }

    /// The signal that will end the program as soon as it may; none that is ignored, as under `nohup`.
    pub fn waiting(&self) -> Option<Signal> {
        waiting()
    }
}

fn waiting() -> Option<Signal> {
    let pending = pending();
    ENDING
        .into_iter()
        .find(|&signal| is_in(&pending, signal) && !is_ignored(signal))
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
