//! Changes that were made on the node in place of the cluster's controllers, with the objects to give to the API.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::paths;
use crate::host::root::{Root, RootError};
use crate::host::state_file;

/// Version of the file.
pub const VERSION: u32 = 1;
/// Maximum number of changes that are kept; a later one drops the oldest.
const MOST: usize = 20;

/// All changes that are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptChanges {
    /// Version of the file.
    pub version: u32,
    /// The changes, the oldest first.
    pub changes: Vec<KeptChange>,
}

/// A rendered config that was derived from objects on this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptChange {
    /// Name of the rendered config.
    pub config: String,
    /// Name of the config from which it was derived.
    pub from: String,
    /// The change in words, such as `mirror of quay.io/app`.
    pub what: String,
    /// Seconds since 1970.
    pub made: u64,
    /// The cluster would give the same name for the same objects.
    pub exact: bool,
    /// Reasons why the name may differ.
    pub reasons: Vec<String>,
    /// Other notes, such as an object that must lose an entry.
    pub notes: Vec<String>,
    /// The complete objects for the API. A change on top of another one includes the objects of both.
    pub objects: Vec<Value>,
}

impl KeptChanges {
    /// Reads the changes; empty if the file is missing or damaged.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        let version = |kept: &Self| kept.version;
        let kept = state_file::read_remembered(root, paths::CHANGES, VERSION, version)?;
        Ok(kept.unwrap_or(Self {
            version: VERSION,
            changes: Vec::new(),
        }))
    }

    /// Returns the change that produced a config.
    pub fn find_change(&self, config: &str) -> Option<&KeptChange> {
        self.changes.iter().rev().find(|one| one.config == config)
    }

    /// Returns the name of the config that the first change of a chain was made from.
    pub fn start_of<'a>(&'a self, change: &'a KeptChange) -> &'a str {
        self.chain_of(change).last().unwrap_or(&change.from)
    }

    /// Returns the names of the configs that lead to a change, the latest first.
    fn chain_of<'a>(&'a self, change: &'a KeptChange) -> impl Iterator<Item = &'a str> {
        let chain = std::iter::successors(Some(change), |one| self.find_change(&one.from));
        // Changes that lead in a circle have no start.
        chain
            .take(1 + self.changes.len())
            .map(|one| one.from.as_str())
    }

    /// Adds a change, including the objects of the change on which it is based. An object of the same kind and name is
    /// replaced; one whose title is in `dropped` is left out. A change that leads back to the cluster's own config is not
    /// recorded.
    pub fn add_change(&mut self, mut change: KeptChange, dropped: &[String]) {
        let is_start = self.changes.iter().any(|one| one.from == change.config);
        if is_start && self.find_change(&change.config).is_none() {
            return;
        }
        // On the way back to an earlier change, that one has the objects.
        if let Some(index) = self
            .changes
            .iter()
            .position(|one| one.config == change.config)
            && self.chain_of(&change).any(|name| name == change.config)
        {
            let earlier = self.changes.remove(index);
            return self.changes.push(earlier);
        }
        if let Some(before) = self.find_change(&change.from) {
            let new = change.objects;
            let mut objects = before.objects.clone();
            objects.retain(|old| {
                let title = title_of(old);
                !dropped.contains(&title) && !new.iter().any(|one| title_of(one) == title)
            });
            objects.extend(new);
            change.objects = objects;
            change.exact &= before.exact;
            let mut reasons = before.reasons.clone();
            reasons.retain(|one| !change.reasons.contains(one));
            change.reasons.extend(reasons);
            let mut notes = before.notes.clone();
            notes.retain(|one| !change.notes.contains(one));
            change.notes.extend(notes);
        }
        self.changes.retain(|one| one.config != change.config);
        self.changes.push(change);
        let surplus = self.changes.len().saturating_sub(MOST);
        self.changes.drain(..surplus);
    }
}

/// Returns `KIND NAME` of an object.
pub fn title_of(object: &Value) -> String {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn change(from: &str, config: &str, kind: &str, name: &str) -> KeptChange {
        KeptChange {
            config: config.to_owned(),
            from: from.to_owned(),
            what: String::new(),
            made: 0,
            exact: config != "b",
            reasons: Vec::new(),
            notes: Vec::new(),
            objects: vec![json!({"kind": kind, "metadata": {"name": name}, "in": config})],
        }
    }

    #[test]
    fn a_change_of_a_changed_config_has_the_objects_of_both() {
        let mut all = KeptChanges::default();
        all.add_change(change("a", "b", "KubeletConfig", "limits"), &[]);
        all.add_change(change("b", "c", "ImageTagMirrorSet", "tags"), &[]);
        all.add_change(change("c", "d", "KubeletConfig", "limits"), &[]);
        let titles = |config| -> Vec<String> {
            all.find_change(config)
                .unwrap()
                .objects
                .iter()
                .map(title_of)
                .collect()
        };
        assert_eq!(titles("b"), ["KubeletConfig limits"]);
        assert_eq!(
            titles("d"),
            ["ImageTagMirrorSet tags", "KubeletConfig limits"]
        );
        assert_eq!(all.find_change("d").unwrap().objects[1]["in"], "d");
        assert!(
            !all.find_change("d").unwrap().exact,
            "one before it was not"
        );
        assert_eq!(all.find_change("e"), None);
    }

    #[test]
    fn a_removed_mirror_and_the_way_back_leave_nothing_for_the_api() {
        let mut all = KeptChanges::default();
        all.add_change(change("a", "b", "ImageTagMirrorSet", "tags"), &[]);
        all.add_change(change("b", "c", "KubeletConfig", "limits"), &[]);
        let dropped = ["ImageTagMirrorSet tags".to_owned()];
        let mut without = change("c", "d", "", "");
        without.objects.clear();
        all.add_change(without, &dropped);
        let objects = &all.find_change("d").unwrap().objects;
        assert_eq!(
            objects.iter().map(title_of).collect::<Vec<_>>(),
            ["KubeletConfig limits"]
        );
        let mut back = change("b", "a", "", "");
        back.objects.clear();
        all.add_change(back, &dropped);
        assert_eq!(all.find_change("a"), None, "it is the cluster's own config");
    }

    #[test]
    fn the_oldest_are_dropped() {
        let mut all = KeptChanges::default();
        for number in 0..30 {
            all.add_change(
                change(
                    "a",
                    &format!("rendered-{number}"),
                    "KubeletConfig",
                    "limits",
                ),
                &[],
            );
        }
        assert_eq!(all.changes.len(), MOST);
        assert_eq!(all.find_change("rendered-9"), None);
        assert!(all.find_change("rendered-10").is_some());
    }
}
