//! A config of spec 2 as written in its document: the paths of its parts, and its units.

use std::collections::BTreeMap;

use super::ignition::Unit;

/// Pairs of a path in the result and the corresponding path in the document.
#[derive(Debug, Clone, Default)]
pub struct OriginalPlaces(Vec<(String, String)>);

impl OriginalPlaces {
    /// Records that everything at and below `result` came from `original`.
    pub fn add_place(&mut self, result: String, original: String) {
        if result != original {
            self.0.push((result, original));
        }
    }

    /// Returns the path in the document, using the longest matching pair.
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

/// A config of spec 2 as written: paths and units.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The minor version of spec 2 in which it was written: 2 for 2.2.
    pub minor: u64,
    places: OriginalPlaces,
    /// Every entry in the list of units in its order, even shadowed ones: the daemon verifies each.
    pub units: Vec<Unit>,
    /// Paths of files that the conversion cleaned, each with the path as written, by which the daemon opens the file.
    pub cleaned: BTreeMap<String, String>,
}

impl Written {
    /// Keeps the version and the original paths of a conversion, and the units and file paths as written.
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

    /// Returns the path in the document as written, given a path in the result.
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
