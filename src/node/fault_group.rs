//! Faults in the files of a node, weighted. `doctor` reports them for the current system, `preflight` for the next boot.

/// The effect of a fault on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultWeight {
    /// The node cannot boot, run, or use its network.
    Fatal,
    /// A part of the node does not work.
    Partial,
    /// It may be intended.
    Harmless,
}

/// Faults of one kind, with their meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultGroup<K> {
    /// Their kind.
    pub kind: K,
    /// Their effect.
    pub weight: FaultWeight,
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// The consequence, as a sentence.
    pub means: &'static str,
    /// The failure message, as it appears in a log.
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

/// The effect of each kind: weight, what is wrong, and the consequence.
pub type FaultEffect<K> = (K, FaultWeight, &'static str, &'static str);

/// Returns the kinds that have faults, in the order of `effects`, each with its faults. `of_kind` returns place and fault of
/// each one. A group for which `is_left` returns true is harmless.
pub fn group_faults<K: Copy>(
    effects: &[FaultEffect<K>],
    of_kind: impl Fn(K) -> Vec<(String, String)>,
    is_left: impl Fn(K, &[(String, String)]) -> bool,
) -> Vec<FaultGroup<K>> {
    let groups = effects.iter().map(|(kind, weight, what, means)| {
        let faults = of_kind(*kind);
        FaultGroup {
            kind: *kind,
            weight: if is_left(*kind, &faults) {
                FaultWeight::Harmless
            } else {
                *weight
            },
            what,
            means,
            words: None,
            faults,
        }
    });
    groups.filter(|group| !group.faults.is_empty()).collect()
}
