//! Work on many things at once: as many threads as there are processors, where there is enough for each.

use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// More are not worth their start; a disk has one queue.
const MOST: usize = 8;

/// Parts for each thread: some items cost more than others, and a thread that is done takes the next part.
const PARTS: usize = 8;

/// Returns the number of processors that this process may run on, but no more than [`MOST`].
///
/// The scheduler's mask alone counts. `std::thread::available_parallelism` would read the quota of every control group
/// above the process too, which took a twentieth of a `verify`; a thread too many costs less.
fn processors() -> usize {
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

/// Calls `work` on a thread of its own and `here` on this one, and gives both results. With one processor, or where the
/// system gives no thread, `work` comes first, on this one.
pub fn both<A: Send, B>(work: impl Fn() -> A + Sync, here: impl FnOnce() -> B) -> (A, B) {
    if processors() < 2 {
        return (work(), here());
    }
    thread::scope(|scope| {
        let Ok(other) = thread::Builder::new().spawn_scoped(scope, &work) else {
            return (work(), here());
        };
        let here = here();
        match other.join() {
            Ok(done) => (done, here),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Calls `work` for parts of `items`, each of about `least` items or more, and gives what came of them, in order.
pub fn in_parts<'t, T: Sync, R: Send>(
    items: &'t [T],
    least: usize,
    work: impl Fn(&'t [T]) -> R + Sync,
) -> Vec<R> {
    let most = items.len() / least.max(1);
    let threads = match most {
        0 | 1 => 1,
        most => most.min(processors()),
    };
    if threads < 2 {
        return vec![work(items)];
    }
    let size = items.len().div_ceil(threads * PARTS).max(least);
    let parts: Vec<&[T]> = items.chunks(size).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        parts.get(at).map(|part| (at, work(part)))
    };
    let take_all = || std::iter::from_fn(take).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        // Where the system gives no more threads, the others take the parts.
        let start = |_| thread::Builder::new().spawn_scoped(scope, take_all).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut done = take_all();
        for other in others {
            match other.join() {
                Ok(parts) => done.extend(parts),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Bytes that are read at once: enough that a call costs little, and few enough for the processor's cache.
const PIECE: usize = 256 << 10;

/// Pieces that are on their way at once.
const PIECES: usize = 3;

/// The room for a file whose size is unknown.
const UNKNOWN: usize = 16 << 10;

/// Fewer bytes than this are not worth a thread.
const LARGE: u64 = 2 << 20;

/// Reads to the end and hands every piece to `take`. Of many bytes, as far as `expected` is known, one thread reads (and
/// decodes) the next piece while another takes the one before.
///
/// # Errors
/// The reader's, and those of `take`.
pub fn read_pieces(
    mut reader: impl Read + Send,
    expected: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if expected >= LARGE
        && processors() > 1
        && let Some(read) = read_ahead(&mut reader, &mut take)
    {
        return read;
    }
    // Room for one byte more than there should be: then the end is seen at once.
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

/// Does the same with a thread that reads. Returns `None` where the system gives none, and nothing is read.
fn read_ahead(
    reader: &mut (impl Read + Send),
    take: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Option<io::Result<()>> {
    let (full, pieces) = sync_channel::<(Vec<u8>, usize)>(PIECES);
    let (used, empty) = sync_channel::<Vec<u8>>(PIECES);
    for _ in 0..PIECES {
        // There is room for all of them, and the other end is here.
        let _ = used.send(vec![0; PIECE]);
    }
    thread::scope(|scope| {
        let read = move || send_pieces(reader, &empty, &full);
        let reading = thread::Builder::new().spawn_scoped(scope, read).ok()?;
        let taken = pieces.iter().try_for_each(|(piece, n)| {
            take(piece.get(..n).unwrap_or_default())?;
            // The reader is done, or waits for it.
            let _ = used.send(piece);
            Ok(())
        });
        drop((pieces, used));
        Some(match reading.join() {
            Ok(read) => taken.and(read),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Sends pieces until the input ends, or the other end is gone.
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

/// Reads until the buffer is full or the input ends: decoders return few bytes at a time. Returns the number of bytes.
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
    use crate::sys::parallel::*;

    fn read_all(bytes: &[u8], expected: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let taken = read_pieces(bytes, expected, |piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        taken.unwrap();
        all
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
    fn every_item_is_in_one_part_and_the_order_stays() {
        for count in [0, 1, 7, 100, 101] {
            let items: Vec<usize> = (0..count).collect();
            let parts = in_parts(&items, 10, <[usize]>::to_vec);
            assert_eq!(parts.concat(), items);
            assert!(count >= 20 || parts.len() == 1);
        }
    }
}
