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

/// The effect of each kind: weight, what is wrong, and what follows from it.
pub type FaultEffect<K> = (K, FaultWeight, &'static str, &'static str);

/// Returns the faults of each kind that has some, in the order of `effects`. `of_kind` returns place and fault of each; a group
/// for which `is_left` returns true is harmless.
pub fn group_faults<K: Copy>(
    effects: &[FaultEffect<K>],
    of_kind: impl Fn(K) -> Vec<(String, String)>,
    is_left: impl Fn(K, &[(String, String)]) -> bool,
) -> Vec<FaultGroup<K>> {
    let groups = effects.iter().map(|(kind, weight, what, means)| {
        let faults = of_kind(*kind);
        FaultGroup {
            kind: *kind,
            weight: match is_left(*kind, &faults) {
                true => FaultWeight::Harmless,
                false => *weight,
            },
            what,
            means,
            words: None,
            faults,
        }
    });
    groups.filter(|group| !group.faults.is_empty()).collect()
}
