//! Parallel work: as many threads as there are processors, if there is enough work for each.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::signals::AllBlocked;

/// Maximum number of threads; more are not worth starting, because a disk has one queue.
const MOST: usize = 8;

/// Parts per thread: some items cost more than others, and a thread that is finished takes the next part.
const PARTS: usize = 8;

/// Number of parts that are worth a thread, so that a thread that starts later still finds some.
const SHARES: usize = 4;

/// Returns the number of processors on which this process may run, at most [`MOST`].
///
/// Only the scheduler's mask counts. `std::thread::available_parallelism` would also read the quota of every control group
/// above the process, which took a twentieth of a `verify`; one thread too many costs less.
fn count_processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| allowed_processors().clamp(1, MOST))
}

/// Counts the processors in the scheduler's mask of this thread. Returns 1 if the kernel does not report it.
fn allowed_processors() -> usize {
    let mask = sched_getaffinity(Pid::from_raw(0));
    let is_set = |mask: &CpuSet, at| mask.is_set(at).unwrap_or(false);
    mask.map_or(1, |mask| {
        (0..CpuSet::count()).filter(|at| is_set(&mask, *at)).count()
    })
}

/// The working threads of this module, in addition to the program's first thread. With more threads than processors, the one
/// that the others wait for would have to take turns.
static WORKING: WorkingThreads = WorkingThreads(AtomicUsize::new(0));

/// A count of threads that are at work.
struct WorkingThreads(AtomicUsize);

impl WorkingThreads {
    /// Adds one, until the result is dropped; `None` if there are already `most`.
    fn add_thread(&self, most: usize) -> Option<WorkingThread<'_>> {
        let one_more = |working: usize| (working < most).then_some(working + 1);
        let added = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        added.is_ok().then(|| WorkingThread(self))
    }
}

struct WorkingThread<'c>(&'c WorkingThreads);

impl Drop for WorkingThread<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts `work` on a new thread; `None` if no processor is free, or if the system cannot create a thread.
fn start_thread<'scope, A: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> A + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, A>> {
    let working = WORKING.add_thread(count_processors() - 1)?;
    let here = sched_getcpu().ok();
    let work = move || {
        let _until_done = working;
        // Without this, the threads share a processor for some time.
        let _ = here.map(leave_processor);
        work()
    };
    // The thread must not receive signals to the process: the first thread may be deferring them, which this one would not.
    let blocked = AllBlocked::new();
    let started = thread::Builder::new().spawn_scoped(scope, work).ok();
    drop(blocked);
    // The new thread may be waiting for this processor, and leaves it as soon as it runs.
    thread::yield_now();
    started
}

/// Moves this thread away from a processor if it is running there, and returns the one on which it runs then. Afterwards it may
/// use all its processors again.
///
/// The kernels of some virtual machines keep a new thread for milliseconds on the processor of the thread that started it,
/// although another one is idle.
fn leave_processor(processor: usize) -> nix::Result<usize> {
    let found = sched_getcpu()?;
    if found != processor {
        return Ok(found);
    }
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this)?;
    let mut others = all;
    others.unset(processor)?;
    // The kernel refuses a mask without a processor.
    sched_setaffinity(this, &others)?;
    let moved_to = sched_getcpu();
    sched_setaffinity(this, &all)?;
    moved_to
}

/// Waits for a thread and returns its result.
fn wait_for<A>(thread: ScopedJoinHandle<'_, A>) -> A {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs `work` on a new thread and `here` on this one, and returns both results. If no processor is free, or the system cannot
/// create a thread, `work` runs first, on this thread.
pub fn run_both<A: Send, B>(work: impl Fn() -> A + Sync, here: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| match start_thread(scope, &work) {
        None => (work(), here()),
        Some(other) => {
            let here = here();
            (wait_for(other), here)
        }
    })
}

/// A result that another thread is computing.
#[derive(Debug)]
pub struct ThreadResult<A>(Receiver<A>);

impl<A> ThreadResult<A> {
    /// Waits for the result. Returns `None` if the other thread panicked; this thread panics too when it joins it.
    pub fn wait(self) -> Option<A> {
        self.0.recv().ok()
    }
}

/// Runs `first` and then `second` on a new thread, and `here` on this one, which can wait for the result of `first`. Returns
/// the results of `second` and of `here`. If no processor is free, or the system cannot create a thread, neither `first` nor
/// `second` is called.
pub fn run_beside<A: Send, B: Send, C>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
    here: impl FnOnce(Option<ThreadResult<A>>) -> C,
) -> (Option<B>, C) {
    let (done, awaited) = channel();
    thread::scope(|scope| {
        let both = move || {
            // The other thread may not be waiting for it.
            let _ = done.send(first());
            second()
        };
        let other = start_thread(scope, both);
        let here = here(other.is_some().then_some(ThreadResult(awaited)));
        (other.map(wait_for), here)
    })
}

/// Calls `work` for parts of `items`, on several threads if each gets at least `least` items, and returns the results of the
/// parts in order.
pub fn in_parts<'t, T: Sync, R: Send>(
    items: &'t [T],
    least: usize,
    work: impl Fn(&'t [T]) -> R + Sync,
) -> Vec<R> {
    let most = items.len() / least.max(1);
    let threads = match most {
        0 | 1 => 1,
        most => most.min(count_processors()),
    };
    if threads < 2 {
        return vec![work(items)];
    }
    // The same number for each thread: with one part more, the others would wait for the thread that takes it.
    let most = items.len().min(most * SHARES);
    let count = most.min(threads * PARTS).next_multiple_of(threads);
    let size = items.len().div_ceil(count);
    let parts: Vec<&[T]> = items.chunks(size).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        parts.get(at).map(|part| (at, work(part)))
    };
    let take_all = || std::iter::from_fn(take).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        let mut others: Vec<_> = (1..threads)
            .map_while(|_| start_thread(scope, take_all))
            .collect();
        let mut done = Vec::new();
        while let Some(part) = take() {
            done.push(part);
            // A processor that was busy may be free by now.
            let is_short = others.len() + 1 < threads;
            let rest = parts.len().saturating_sub(next.load(Ordering::Relaxed));
            if is_short && rest > 1 && rest * size >= least {
                others.extend(start_thread(scope, take_all));
            }
        }
        others
            .into_iter()
            .for_each(|other| done.extend(wait_for(other)));
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Number of bytes read at once: enough to make a call cheap, and few enough for the processor's cache.
const PIECE: usize = 256 << 10;

/// Maximum number of pieces in flight.
const PIECES: usize = 3;

/// Buffer size for a file of unknown size, in bytes.
const UNKNOWN: usize = 16 << 10;

/// Minimum number of bytes that is worth a thread.
const LARGE: u64 = 2 << 20;

/// Reads to the end and passes every piece to `take`. For many bytes, by what is `expected`, one thread reads (and decodes) the
/// next piece while another processes the previous one.
///
/// # Errors
/// Those of the reader and of `take`.
pub fn read_pieces(
    mut reader: impl Read + Send,
    expected: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if expected >= LARGE
        && let Some(read) = read_ahead(&mut reader, &mut take)
    {
        return read;
    }
    // One byte more than expected, so that the end is noticed at once.
    let room = usize::try_from(expected.saturating_add(1)).unwrap_or(PIECE);
    let mut buffer = vec![
        0;
        if expected == 0 {
            UNKNOWN
        } else {
            room.min(PIECE)
        }
    ];
    loop {
        let n = fill_buffer(&mut reader, &mut buffer)?;
        take(buffer.get(..n).unwrap_or_default())?;
        if n < buffer.len() {
            return Ok(());
        }
    }
}

/// Does the same with a reading thread. Returns `None`, without reading anything, if no thread is available.
fn read_ahead(
    reader: &mut (impl Read + Send),
    take: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Option<io::Result<()>> {
    let (full, pieces) = sync_channel::<(Vec<u8>, usize)>(PIECES);
    let (used, empty) = sync_channel::<Vec<u8>>(PIECES);
    thread::scope(|scope| {
        let read = move || send_pieces(reader, &empty, &full);
        let reading = start_thread(scope, read)?;
        for _ in 0..PIECES {
            // There is space for all of them; if the reader has already finished, it needs none.
            let _ = used.send(vec![0; PIECE]);
        }
        let taken = pieces.iter().try_for_each(|(piece, n)| {
            take(piece.get(..n).unwrap_or_default())?;
            // The reader has finished, or is waiting for it.
            let _ = used.send(piece);
            Ok(())
        });
        drop((pieces, used));
        let read = wait_for(reading);
        Some(taken.and(read))
    })
}

/// Sends pieces until the input ends, or the receiver is gone.
fn send_pieces(
    reader: &mut impl Read,
    empty: &Receiver<Vec<u8>>,
    full: &SyncSender<(Vec<u8>, usize)>,
) -> io::Result<()> {
    for mut piece in empty {
        let n = fill_buffer(reader, &mut piece)?;
        let is_last = n < piece.len();
        if full.send((piece, n)).is_err() || is_last {
            break;
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the input ends, because decoders return few bytes at a time. Returns the number of bytes.
fn fill_buffer(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use crate::host::sys::parallel::*;

    fn read_all(bytes: &[u8], expected: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let taken = read_pieces(bytes, expected, |piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        taken.unwrap();
        all
    }

    /// Otherwise a signal would end the program while the first thread defers it, such as during work on a private copy of
    /// accounts.
    #[test]
    fn no_signal_ends_the_program_through_another_thread() {
        let is_blocked = || {
            let mask = nix::sys::signal::SigSet::thread_get_mask().unwrap();
            mask.contains(nix::sys::signal::Signal::SIGTERM)
        };
        let first = thread::current().id();
        let ((other, there), here) =
            run_both(|| (thread::current().id(), is_blocked()), is_blocked);
        assert!(there || other == first);
        assert!(!here);
    }

    #[test]
    fn every_byte_comes_in_order_whatever_is_expected() {
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 11 * PIECE + 7] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            for expected in [0, 1, size as u64, LARGE, u64::MAX] {
                assert!(read_all(&bytes, expected) == bytes, "{size} {expected}");
            }
        }
    }

    #[test]
    fn an_error_of_either_side_ends_it() {
        struct Broken(usize);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                match self.0 {
                    9.. => Err(io::Error::other("reading")),
                    _ => Ok(buffer.len()),
                }
            }
        }
        for expected in [1, LARGE] {
            let read = read_pieces(Broken(0), expected, |_| Ok(()));
            assert_eq!(read.unwrap_err().to_string(), "reading");
            let taken = read_pieces(io::repeat(1), expected, |_| Err(io::Error::other("taking")));
            assert_eq!(taken.unwrap_err().to_string(), "taking");
        }
    }

    #[test]
    fn a_thread_leaves_a_processor_and_may_come_back() {
        thread::spawn(|| {
            let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let here = sched_getcpu().unwrap();
            let moved_to = leave_processor(here);
            match count_processors() {
                1 => assert!(moved_to.is_err(), "there is no other processor"),
                _ => assert_ne!(moved_to.unwrap(), here),
            }
            assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn both_results_of_work_and_here_are_given() {
        assert_eq!(run_both(|| 1, || 2), (1, 2));
    }

    #[test]
    fn work_beside_gives_its_first_result_before_its_second() {
        let (go_on, wait) = channel();
        let here = |first: Option<ThreadResult<i32>>| {
            let first = first.map(|first| first.wait().unwrap());
            // Only now can the second one finish.
            go_on.send(()).unwrap();
            first
        };
        let (second, first) = run_beside(|| 1, move || wait.recv().unwrap(), here);
        assert_eq!(second.is_some(), first.is_some());
        assert!(first.is_none_or(|first| first == 1));
    }

    #[test]
    fn no_more_threads_are_started_than_there_are_processors() {
        let working = WorkingThreads(AtomicUsize::new(0));
        let first = working.add_thread(2);
        let second = working.add_thread(2);
        assert!(first.is_some() && second.is_some());
        for _ in 0..3 {
            assert!(working.add_thread(2).is_none());
        }
        drop(first);
        let third = working.add_thread(2);
        assert!(third.is_some() && working.add_thread(2).is_none());
        drop((second, third));
        assert!(working.add_thread(0).is_none() && working.add_thread(1).is_some());
    }

    #[test]
    fn every_item_is_in_one_part_and_the_order_stays() {
        for count in [0, 1, 7, 100, 101] {
            let items: Vec<usize> = (0..count).collect();
            let parts = in_parts(&items, 10, <[usize]>::to_vec);
            assert_eq!(parts.concat(), items);
            assert!(count >= 20 || parts.len() == 1);
            assert!(parts.iter().all(|part| !part.is_empty()) || count == 0);
        }
    }
}
