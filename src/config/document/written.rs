//! A config of spec 2 as its document writes it: the places of its parts, and its units.

use std::collections::BTreeMap;

use super::ignition::Unit;

/// Pairs of a path in the result and the path in the document that it came from.
#[derive(Debug, Clone, Default)]
pub struct OriginalPlaces(Vec<(String, String)>);

impl OriginalPlaces {
    /// Records that everything at and below `result` came from `original`.
    pub fn add_place(&mut self, result: String, original: String) {
        if result != original {
            self.0.push((result, original));
        }
    }

    /// Returns the path in the document; the pair that covers most of the path counts.
    pub fn original_path(&self, path: &str) -> String {
        let below = |(result, original): &(String, String)| {
            let rest = path.strip_prefix(result.as_str())?;
            let ends = rest.is_empty() || rest.starts_with(['.', '[', ' ']);
            ends.then(|| (result.len(), format!("{original}{rest}")))
        };
        let best = self
            .0
            .iter()
            .filter_map(below)
            .max_by_key(|(length, _)| *length);
        best.map_or_else(|| path.to_owned(), |(_, original)| original)
    }
}

/// A config of spec 2 as it is written: places and units.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The version of spec 2 that it was written in: 2 of 2.2.
    pub minor: u64,
    places: OriginalPlaces,
    /// Every entry of the list of units in its order, shadowed ones too: the daemon verifies each.
    pub units: Vec<Unit>,
    /// Paths of files that the conversion has cleaned, each with the path as written, by which the daemon looks for it.
    pub cleaned: BTreeMap<String, String>,
}

impl Written {
    /// Keeps the version, the places of a conversion, and the units and paths as written.
    pub fn new(
        minor: u64,
        places: OriginalPlaces,
        units: Vec<Unit>,
        cleaned: BTreeMap<String, String>,
    ) -> Self {
        Self {
            minor,
            places,
            units,
            cleaned,
        }
    }

    /// Returns the path in the document as written for a path in the result.
    pub fn original_path(&self, path: &str) -> String {
        self.places.original_path(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pair_leads_back() {
        let mut places = OriginalPlaces::default();
        places.add_place("a.files[1]".into(), "a.files[10]".into());
        places.add_place("a.files[10]".into(), "a.files[1]".into());
        places.add_place("a.files[1].append[0]".into(), "a.files[10].contents".into());
        for (result, original) in [
            ("a.files[1]", "a.files[10]"),
            ("a.files[1].mode", "a.files[10].mode"),
            ("a.files[10].mode", "a.files[1].mode"),
            ("a.files[1].append[0].source", "a.files[10].contents.source"),
            ("a.filesystems[1]", "a.filesystems[1]"),
            ("", ""),
        ] {
            assert_eq!(places.original_path(result), original, "{result}");
        }
    }
}
