//! The files that a run leaves for the next one: intent, journal, mark.
//!
//! Layout of `var/lib/mco-rescue/`: see [`crate::base::paths`].

use serde::{Deserialize, Serialize};

use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::plan::{Held, Section, Step};
use crate::host::root::RootPath;
use crate::node::boot::BootIdentity;
use crate::node::command::job::Job;

/// Version of the files below; unknown versions are not interpreted.
pub const VERSION: u32 = 1;

/// First line of the marker file.
pub const MARKER_TEXT: &str = "mco-rescue state directory\n";

/// The config of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRef {
    /// `metadata.name`.
    pub name: String,
    /// Lower-case hex SHA-256 of the object as received.
    pub digest: String,
    /// The file or URL that it was read from.
    pub origin: String,
}

impl ConfigRef {
    /// Returns a placeholder for a config whose name is lost because the file is damaged.
    pub fn unknown() -> Self {
        Self {
            name: "an unknown config".to_owned(),
            digest: String::new(),
            origin: String::new(),
        }
    }
}

/// The paths that a run is about to touch; written before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the transaction; part of the name of every staging directory.
    pub id: String,
    /// The config.
    pub config: ConfigRef,
    /// The OSTree deployment whose `etc` this is.
    pub deployment: Option<String>,
    /// Directories that may contain staged names.
    pub stages: Vec<RootPath>,
    /// Directories in which names change, or which are created.
    pub directories: Vec<RootPath>,
}

/// The mark `committed`: every step of a run is done, so recovery only goes forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AnyMark")]
pub struct CommitMark {
    /// The transaction.
    pub id: String,
}

/// The two formats of the mark: an object, or only the id, as written by older versions.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyMark {
    Mark { id: String },
    Id(String),
}

impl From<AnyMark> for CommitMark {
    fn from(mark: AnyMark) -> Self {
        let (AnyMark::Mark { id } | AnyMark::Id(id)) = mark;
        Self { id }
    }
}

/// All steps of a run. The existence of this file is the commit point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the transaction.
    pub id: String,
    /// The config.
    pub config: ConfigRef,
    /// Who ran it; `None` for a service, and for versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The OSTree deployment whose `etc` this is.
    pub deployment: Option<String>,
    /// Directories that contain staged names.
    pub stages: Vec<RootPath>,
    /// The steps in order.
    pub steps: Vec<JournalStep>,
    /// Index of the first step that writes the daemon's records.
    pub records_from: usize,
    /// Flags that are cleared before the first step, and set again after the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    /// Cgroups that are frozen during the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Id of the finished run that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// Jobs for the running system, which run before the records are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// What is taken from capsules, which is remembered when the run is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capsules: Vec<TakenFromCapsule>,
    /// The boot in which the jobs run; after another boot, every service has read the current files.
    #[serde(flatten)]
    pub boot: Option<BootIdentity>,
}

impl Journal {
    /// Returns the path of the new object of step `index` below its staging directory.
    pub fn staged_path(&self, index: usize) -> String {
        staged_path(index, |at| {
            let found = self.steps.get(at)?;
            Some((&found.step, found.within))
        })
    }

    /// Returns the step that moves a step's new object to its place: the step itself, or the one that creates the topmost of
    /// the directories in which it is staged.
    pub fn placed_by(&self, index: usize) -> usize {
        let above = |at: &usize| {
            let within = self.steps.get(*at)?.within;
            within.filter(|above| above < at)
        };
        std::iter::successors(Some(index), above)
            .last()
            .unwrap_or(index)
    }
}

/// A step, and the directory in which its objects are staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStep {
    /// The change.
    #[serde(flatten)]
    pub step: Step,
    /// Index into `stages`.
    pub stage: usize,
    /// Its part of the config.
    pub section: Section,
    /// Index of the step that creates the parent directory. The new object is staged inside that directory, and the two are
    /// moved into the root together. `None` if it is staged separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<usize>,
}

/// Returns the name of the new object of step `index`.
pub fn new_name(index: usize) -> String {
    format!("new-{index}")
}

/// Returns the name of the new directory of step `index`, with everything that is staged in it. Older versions staged it empty,
/// under [`new_name`].
pub fn tree_name(index: usize) -> String {
    format!("{TREE}{index}")
}

const TREE: &str = "tree-";

/// Returns the path of the new object of step `index` below its staging directory. `find` returns a step and its
/// [`JournalStep::within`].
pub fn staged_path<'a>(
    index: usize,
    find: impl Fn(usize) -> Option<(&'a Step, Option<usize>)>,
) -> String {
    let mut below = Vec::new();
    let mut at = index;
    let mut path = loop {
        match find(at) {
            Some((step, Some(above))) if above < at => {
                below.push(step.path().name());
                at = above;
            }
            Some((Step::MakeDirectory { .. }, _)) => break tree_name(at),
            _ => break new_name(at),
        }
    };
    for name in below.into_iter().rev() {
        path.push('/');
        path.push_str(name);
    }
    path
}

/// Returns true for a name from [`tree_name`]: everything in such a directory was created by the run.
pub fn is_tree_name(name: &str) -> bool {
    is_staged_name(name) && name.starts_with(TREE)
}

/// Returns the name of the hard link to the old object of step `index`.
pub fn old_name(index: usize) -> String {
    format!("old-{index}")
}

/// Returns the name to which step `index` moves the object that it removes.
pub fn away_name(index: usize) -> String {
    format!("away-{index}")
}

/// Returns true if a name in a staging directory is one of this program's.
pub fn is_staged_name(name: &str) -> bool {
    let number = ["new-", "old-", "away-", TREE]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_recognised() {
        for ours in [new_name(0), old_name(12), away_name(3), tree_name(4)] {
            assert!(is_staged_name(&ours));
            assert_eq!(is_tree_name(&ours), ours.starts_with("tree"));
        }
        for foreign in [
            "new-",
            "new-x",
            "old-1.bak",
            "notes",
            "new-1/../x",
            "tree-x",
        ] {
            assert!(!is_staged_name(foreign) && !is_tree_name(foreign));
        }
    }
}
