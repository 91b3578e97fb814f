//! Lists that distinguish an empty list from an absent one.

use std::ops::{Deref, DerefMut};
use std::slice;

use serde::{Deserialize, Deserializer};

/// A list in a document. An empty list differs from a missing one, because the daemon compares configs in Go, where the two are
/// not equal.
#[derive(Debug, Clone)]
pub struct List<T> {
    entries: Vec<T>,
    written: bool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            written: false,
        }
    }
}

impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries && (!self.entries.is_empty() || self.written == other.written)
    }
}

impl<T: Eq> Eq for List<T> {}

impl<T> Deref for List<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.entries
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.entries
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut List<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter_mut()
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(entries: Vec<T>) -> Self {
        Self {
            entries,
            written: true,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_empty_list_is_another_value_than_none() {
        let written: List<u8> = serde_json::from_str("[]").unwrap();
        assert_ne!(written, List::default());
        assert_eq!(written, List::from(Vec::new()));
        let mut filled = List::default();
        filled.push(1);
        assert_eq!(filled, serde_json::from_str("[1]").unwrap());
    }
}
