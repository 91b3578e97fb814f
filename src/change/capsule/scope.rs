//! If a capsule is for this node, now.

use super::document::CapsuleDocument;
use crate::base::time::format_utc;

/// Whether something is true of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeAnswer {
    /// It is.
    Same,
    /// It is not; what the node is instead.
    Other(String),
    /// The node does not say.
    Unknown,
}

/// The newest time that a node can prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenTime {
    /// Seconds since 1970.
    pub at: u64,
    /// Where it comes from, if not from the clock.
    pub by: Option<String>,
}

impl std::fmt::Display for ProvenTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.by {
            Some(place) => write!(
                f,
                "{} by {place}, later than the clock",
                format_utc(self.at)
            ),
            None => write!(f, "{} by the clock", format_utc(self.at)),
        }
    }
}

/// The answers of a node to what a capsule may ask.
pub trait NodeScope {
    /// Returns whether the node is in this cluster.
    fn matches_cluster(&self, name: &str) -> ScopeAnswer;
    /// Returns whether the node is in this pool.
    fn matches_pool(&self, name: &str) -> ScopeAnswer;
    /// Returns whether the node has this name.
    fn matches_name(&self, name: &str) -> ScopeAnswer;
}

/// Returns the reason why a capsule is not for this node; its text is the end of a sentence.
pub fn why_not_here(document: &CapsuleDocument, node: &dyn NodeScope) -> Option<String> {
    let clusters: Vec<String> = document.cluster.iter().cloned().collect();
    let names = |what: &str, wanted: &[String], ask: &dyn Fn(&str) -> ScopeAnswer| {
        let answers: Vec<ScopeAnswer> = wanted.iter().map(|name| ask(name)).collect();
        if answers.is_empty() || answers.contains(&ScopeAnswer::Same) {
            return None;
        }
        let list = wanted.join(", ");
        let other = answers.into_iter().find_map(|answer| match answer {
            ScopeAnswer::Other(own) => Some(own),
            _ => None,
        });
        Some(match other {
            Some(own) => format!("is for {what} {list}, and this node is {own}"),
            None => format!(
                "is for {what} {list}, and it is unknown which one this node is. Ask for a capsule that was made without --{what}"
            ),
        })
    };
    names("cluster", &clusters, &|name| node.matches_cluster(name))
        .or_else(|| names("pool", &document.pools, &|name| node.matches_pool(name)))
        .or_else(|| names("node", &document.nodes, &|name| node.matches_name(name)))
}

/// Returns the reason why a capsule is out of date; its text is the end of a sentence.
pub fn why_not_now(document: &CapsuleDocument, time: &ProvenTime) -> Option<String> {
    let end = document.end_time().filter(|end| time.at > *end)?;
    Some(format!(
        "was valid until {}, and it is {time}. Ask for a new one, or check whether the clock is right: mco-rescue doctor",
        format_utc(end)
    ))
}
