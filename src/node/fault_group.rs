//! Faults in the files of a node, weighed: `doctor` reports them as they are, `preflight` as the next boot has them.

/// The effect of a fault on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultWeight {
    /// The node does not boot, run or have its network.
    Fatal,
    /// A part of the node does not work.
    Partial,
    /// It may be meant.
    Harmless,
}

/// Faults of one kind, and what they mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultGroup<K> {
    /// Their kind.
    pub kind: K,
    /// Their effect.
    pub weight: FaultWeight,
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// What follows from it, as a sentence.
    pub means: &'static str,
    /// The words of the failure, as a log has them.
    pub words: Option<String>,
    /// Place and fault of each.
    pub faults: Vec<(String, String)>,
}

impl<K> FaultGroup<K> {
    /// Returns the place of the first fault.
    pub fn place(&self) -> &str {
        self.faults.first().map_or("", |(place, _)| place)
    }
}
