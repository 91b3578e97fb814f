//! Work on many things at once: as many threads as there are processors, where there is enough for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More are not worth their start; a disk has one queue.
const MOST: usize = 8;

/// Parts for each thread: some items cost more than others, and a thread that is done takes the next part.
const PARTS: usize = 8;

/// Calls `work` for parts of `items`, each of about `least` items or more, and gives what came of them, in order.
pub fn in_parts<'t, T: Sync, R: Send>(
    items: &'t [T],
    least: usize,
    work: impl Fn(&'t [T]) -> R + Sync,
) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(MOST).min(items.len() / least.max(1));
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

#[cfg(test)]
mod tests {
    use crate::sys::parallel::*;

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
