//! Sorting with one copy of the algorithm. The one of the standard library is compiled anew for each type and each comparison,
//! 5 KB each time.

use std::cmp::Ordering;

/// Lists that can be sorted. Equal items keep their order.
pub trait StableOrder<T> {
    /// Sorts by a comparison.
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key.
    fn order_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> StableOrder<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let places = ordered_places(self.len(), &mut |one, other| {
            compare(&self[one], &self[other])
        });
        move_to(places, &mut |one, other| self.swap(one, other));
    }

    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|one, other| key(one).cmp(&key(other)));
    }
}

/// Returns the present place of each item in the order of the result.
fn ordered_places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|one, other| compare(*one, *other));
    places
}

/// Moves each item to its place by swaps. An item that was moved away is found where the swap at its place has put it.
fn move_to(mut places: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for place in 0..places.len() {
        let mut from = places[place];
        while from < place {
            from = places[from];
        }
        places[place] = from;
        swap(place, from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_the_standard_library(keys in prop::collection::vec(0_u8..20, 0..200)) {
            let mut items: Vec<(u8, usize)> = keys.into_iter().zip(0..).collect();
            let mut wanted = items.clone();
            wanted.sort_by_key(|item| item.0);
            let mut by_comparison = items.clone();
            by_comparison.order_by(|one, other| one.0.cmp(&other.0));
            items.order_by_key(|item| item.0);
            prop_assert_eq!(&items, &wanted);
            prop_assert_eq!(&by_comparison, &wanted);
        }
    }
}
