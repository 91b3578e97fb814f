//! Progress of long operations: the phase, its bytes, the elapsed time, and the time left before its deadline.
//!
//! Long-running code reports a phase with [`begin_phase`] and counts bytes with [`advance_by`]; it knows no terminal. Without [`show_progress`],
//! which only the program calls, none of that has any effect. A separate thread without privileges draws, so that progress is
//! visible during a blocking call such as a flush: on a terminal one line, redrawn every second and cleared before any other
//! output; elsewhere a line after every ten seconds without output.
//!
//! `indicatif` would draw such a line as well, for 0.1 MB, but shows nothing without a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::base::text::make_inline;
use crate::host::sys::privileges;
use crate::host::sys::signals;

/// Interval between two checks of the thread, and the delay before a signal is answered.
const TICK: Duration = Duration::from_millis(100);
/// Shorter operations show nothing.
const SHORTEST: Duration = Duration::from_secs(1);
/// Columns of a terminal whose size is unknown, such as a serial console.
const COLUMNS: usize = 80;

/// Where progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    /// A terminal that can redraw its line.
    Terminal,
    /// A file, a pipe, or a terminal that can only print.
    Lines,
}

impl Screen {
    /// Examines standard error, and the kind of terminal that the environment names.
    fn of_standard_error() -> Self {
        let term = std::env::var("TERM").unwrap_or_default();
        let draws = !matches!(term.as_str(), "" | "dumb" | "unknown");
        if draws && io::stderr().is_terminal() {
            Self::Terminal
        } else {
            Self::Lines
        }
    }

    /// Returns the time without other output after which something is shown.
    fn initial_pause(self) -> Duration {
        match self {
            Self::Terminal => SHORTEST,
            Self::Lines => Duration::from_secs(10),
        }
    }
}

/// A phase of a long operation.
#[derive(Debug, Clone)]
pub struct Work {
    words: String,
    total: Option<u64>,
    within: Option<Duration>,
    note: Option<String>,
}

impl Work {
    /// Creates a phase with this description, such as `Staging the files`.
    pub fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            total: None,
            within: None,
            note: None,
        }
    }

    /// Sets the total number of bytes.
    #[must_use]
    pub fn with_total(mut self, bytes: u64) -> Self {
        self.total = Some(bytes);
        self
    }

    /// Sets the time after which it is given up.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.within = Some(deadline);
        self
    }
}

/// Creates the phase of a download from a URL, shown without its password and `https://`.
pub fn fetch_work(url: &str, within: Duration) -> Work {
    let shown = url.strip_prefix("https://").unwrap_or(url);
    Work::new(format!("Fetching {shown}")).with_deadline(within)
}

/// A phase that lasts as long as this value.
#[must_use]
#[derive(Debug)]
pub struct ProgressPhase(Option<u64>);

struct Running {
    id: u64,
    work: Work,
    began: Instant,
    /// Bytes of it, while another phase is running inside it.
    done: u64,
}

struct Shown {
    /// Determined once there is something to show: a short run never asks.
    screen: Option<Screen>,
    phases: Vec<Running>,
    next: u64,
    /// Time at which something was last shown.
    last: Instant,
    is_drawn: bool,
    is_answered: bool,
    has_thread: bool,
}

static SHOWN: OnceLock<Mutex<Shown>> = OnceLock::new();
/// Bytes of the innermost phase.
static DONE: AtomicU64 = AtomicU64::new(0);

/// Enables progress from here on.
pub fn show_progress() {
    let shown = Shown {
        screen: None,
        phases: Vec::new(),
        next: 0,
        last: Instant::now(),
        is_drawn: false,
        is_answered: false,
        has_thread: false,
    };
    // A second call has no effect.
    let _ = SHOWN.set(Mutex::new(shown));
}

fn lock_shown() -> Option<MutexGuard<'static, Shown>> {
    let lock = |shown: &'static Mutex<Shown>| shown.lock().unwrap_or_else(PoisonError::into_inner);
    SHOWN.get().map(lock)
}

/// Begins a phase; an outer one continues when this one ends.
pub fn begin_phase(work: Work) -> ProgressPhase {
    let Some(mut shown) = lock_shown() else {
        return ProgressPhase(None);
    };
    let done = DONE.swap(0, Ordering::Relaxed);
    if let Some(outer) = shown.phases.last_mut() {
        outer.done = done;
    }
    let id = shown.next;
    shown.next += 1;
    shown.phases.push(Running {
        id,
        work,
        began: Instant::now(),
        done: 0,
    });
    if !shown.has_thread {
        shown.has_thread = start_thread();
    }
    ProgressPhase(Some(id))
}

impl Drop for ProgressPhase {
    fn drop(&mut self) {
        let (Some(id), Some(mut shown)) = (self.0, lock_shown()) else {
            return;
        };
        let was_last = shown.phases.last().is_some_and(|last| last.id == id);
        shown.phases.retain(|phase| phase.id != id);
        if was_last {
            let outer = shown.phases.last().map_or(0, |outer| outer.done);
            DONE.store(outer, Ordering::Relaxed);
        }
        if shown.phases.is_empty() {
            shown.clear_line();
        }
    }
}

/// Adds to the bytes of the current phase.
pub fn advance_by(bytes: u64) {
    DONE.fetch_add(bytes, Ordering::Relaxed);
}

/// Sets the bytes of the current phase, and their total, if known by now.
pub fn reached_bytes(bytes: u64, total: Option<u64>) {
    DONE.store(bytes, Ordering::Relaxed);
    if let Some(mut shown) = lock_shown()
        && let Some(phase) = shown.phases.last_mut()
    {
        phase.work.total = total.or(phase.work.total);
    }
}

/// Adds a note to the phase that is under way, in place of an older one. Returns true if it appears on a terminal.
pub fn add_note(text: String) -> bool {
    let Some(mut shown) = lock_shown() else {
        return false;
    };
    let screen = *shown.screen.get_or_insert_with(Screen::of_standard_error);
    let Some(phase) = shown.phases.last_mut() else {
        return false;
    };
    phase.work.note = Some(text);
    screen == Screen::Terminal
}

/// A reader whose bytes are counted.
#[derive(Debug)]
pub struct Counted<R>(pub R);

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        advance_by(count as u64);
        Ok(count)
    }
}

/// Clears the line for other output.
pub fn clear_line() {
    if let Some(mut shown) = lock_shown() {
        shown.clear_line();
        shown.last = Instant::now();
    }
}

/// Clears the line, and keeps it cleared for as long as the result lives.
pub fn hold_line() -> impl Sized {
    let mut shown = lock_shown();
    if let Some(shown) = &mut shown {
        shown.clear_line();
        shown.last = Instant::now();
    }
    shown
}

/// Starts the drawing thread; if that fails, nothing is shown and the work continues.
fn start_thread() -> bool {
    let draw = || {
        privileges::keep_none();
        loop {
            thread::sleep(TICK);
            if let Some(mut shown) = lock_shown() {
                shown.draw_tick();
            }
        }
    };
    // The thread must not receive signals to the process: the working thread answers or defers them.
    let _blocked = signals::AllBlocked::new();
    thread::Builder::new().spawn(draw).is_ok()
}

impl Shown {
    fn draw_tick(&mut self) {
        if !self.is_answered
            && let Some((signal, [answer, next])) = signals::held_back()
        {
            self.is_answered = true;
            self.print_line(&format!("{signal}: {answer}{next}"));
        }
        if self.phases.is_empty() || self.last.elapsed() < SHORTEST {
            return;
        }
        let screen = *self.screen.get_or_insert_with(Screen::of_standard_error);
        if self.last.elapsed() < screen.initial_pause() {
            return;
        }
        let Some(phase) = self.phases.last() else {
            return;
        };
        let line = phase_line(
            &phase.work,
            DONE.load(Ordering::Relaxed),
            phase.began.elapsed(),
        );
        match screen {
            Screen::Lines => {
                let line = fit_line(&line, COLUMNS);
                self.print_line(&line);
            }
            Screen::Terminal => {
                let columns = terminal_size::terminal_size_of(io::stderr())
                    .map_or(0, |(width, _)| usize::from(width.0));
                // The last column stays empty: some terminals start a new line there.
                let room = if columns == 0 { COLUMNS } else { columns } - 1;
                write_stderr(&format!("\r{}\x1b[K", fit_line(&line, room)));
                self.is_drawn = true;
                signals::on_drawn(true);
                self.last = Instant::now();
            }
        }
    }

    fn print_line(&mut self, line: &str) {
        self.clear_line();
        write_stderr(&format!("{line}\n"));
        self.last = Instant::now();
    }

    fn clear_line(&mut self) {
        if self.is_drawn {
            write_stderr("\r\x1b[K");
            self.is_drawn = false;
            signals::on_drawn(false);
        }
    }
}

/// Writes to standard error; if that is closed, nothing is shown.
fn write_stderr(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error
        .write_all(text.as_bytes())
        .and_then(|()| error.flush());
}

/// A line in two parts: the words of the phase, which may be shortened, and what follows them.
type Line = (String, String);

/// Returns the line of a phase.
fn phase_line(work: &Work, done: u64, spent: Duration) -> Line {
    let mut parts = Vec::new();
    match work.total {
        Some(total) if total > 0 => {
            // If something grows meanwhile, there are more bytes than announced.
            let done = done.min(total);
            let percent = u128::from(done) * 100 / u128::from(total);
            parts.push(format!(
                "{} of {} ({percent}%)",
                format_size(done),
                format_size(total)
            ));
        }
        _ if done > 0 => parts.push(format_size(done)),
        _ => {}
    }
    parts.push(format_span(spent));
    if let Some(within) = work.within {
        parts.push(format!(
            "at most {} more",
            format_span(within.saturating_sub(spent))
        ));
    }
    let note = work
        .note
        .as_ref()
        .map(|note| format!("; {}", make_inline(note)));
    (
        make_inline(&work.words),
        parts.join(", ") + &note.unwrap_or_default(),
    )
}

/// The words of a phase are not shortened below this length, as they say what is done.
const FEWEST_LETTERS: usize = 16;

/// Joins a line, and shortens it to `room` letters: first its words, as its end changes more, then its end.
fn fit_line((words, rest): &Line, room: usize) -> String {
    let whole = format!("{words}: {rest}");
    if whole.chars().count() <= room {
        return whole;
    }
    let left = room.saturating_sub(rest.chars().count() + 4);
    let left = left.max(FEWEST_LETTERS).min(words.chars().count());
    let words: String = words.chars().take(left).collect();
    let whole = format!("{words}..: {rest}");
    whole.chars().take(room).collect()
}

/// Returns a number of bytes with a readable unit: `12.3 MiB`.
fn format_size(bytes: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = u128::from(bytes) * 10 / u128::from(unit);
        (tenths / 10, tenths % 10)
    };
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => {
            let (whole, tenth) = tenths(1 << 20);
            format!("{whole}.{tenth} MiB")
        }
        _ => {
            let (whole, tenth) = tenths(1 << 30);
            format!("{whole}.{tenth} GiB")
        }
    }
}

/// Returns a time in minutes and seconds: `2 min 05 s`.
fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_phase_bytes_time_and_what_is_left_of_the_deadline() {
        let seconds = Duration::from_secs;
        let cases = [
            (Work::new("Reading"), 0, "Reading: 7 s"),
            (Work::new("Reading"), 2048, "Reading: 2 KiB, 7 s"),
            (
                Work::new("Staging").with_total(4 << 20),
                1 << 20,
                "Staging: 1.0 MiB of 4.0 MiB (25%), 7 s",
            ),
            (
                Work::new("Staging").with_total(100),
                200,
                "Staging: 100 bytes of 100 bytes (100%), 7 s",
            ),
            (
                Work::new("Waiting").with_deadline(seconds(600)),
                0,
                "Waiting: 7 s, at most 9 min 53 s more",
            ),
            (
                Work::new("Waiting").with_deadline(seconds(5)),
                0,
                "Waiting: 7 s, at most 0 s more",
            ),
            (
                Work {
                    note: Some("attempt 2 failed: no answer".to_owned()),
                    ..Work::new("Fetching")
                },
                0,
                "Fetching: 7 s; attempt 2 failed: no answer",
            ),
        ];
        for (work, done, wanted) in cases {
            assert_eq!(fit_line(&phase_line(&work, done, seconds(7)), 80), wanted);
        }
    }

    #[test]
    fn a_long_line_keeps_its_end() {
        let work = Work::new(format!("Fetching {}", "x".repeat(200)));
        let line = phase_line(&work.with_total(3 << 30), 3 << 29, Duration::from_secs(61));
        let cut = fit_line(&line, 79);
        assert_eq!(cut.chars().count(), 79);
        assert!(cut.starts_with("Fetching xxx"), "{cut}");
        assert!(
            cut.ends_with("xx..: 1.5 GiB of 3.0 GiB (50%), 1 min 01 s"),
            "{cut}"
        );
    }

    #[test]
    fn without_a_screen_nothing_is_kept() {
        let phase = begin_phase(Work::new("Reading"));
        advance_by(10);
        assert!(phase.0.is_none());
    }
}
