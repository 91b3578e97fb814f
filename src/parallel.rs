//! Work on many things at once: as many threads as there are processors, where there is enough for each.

use std::thread;

/// More are not worth their start; a disk has one queue.
const MOST: usize = 8;

/// Calls `work` for parts of `items`, each of `least` items or more, and gives what came of them, in order.
pub fn in_parts<'t, T: Sync, R: Send>(
    items: &'t [T],
    least: usize,
    work: impl Fn(&'t [T]) -> R + Sync,
) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let parts = processors.min(MOST).min(items.len() / least.max(1)).max(1);
    let mut chunks = items.chunks(items.len().div_ceil(parts).max(1));
    let first = chunks.next().unwrap_or_default();
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = chunks.map(|part| scope.spawn(move || work(part))).collect();
        let mut all = vec![work(first)];
        for other in others {
            match other.join() {
                Ok(result) => all.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
