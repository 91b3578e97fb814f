//! Many nodes, by their documents: the config and OS of each, its problems, and the differences between siblings.
//!
//! Pure: documents of `status` and `doctor` in, values out. Documents come from nodes with other versions of this program, so
//! every key may be missing, and none is trusted.

mod facts;
mod names;
mod verdict;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::base::order::StableOrder;
use crate::base::reason::Reason;

pub use facts::{five_facts, pool_of_config};
pub use names::{node_of_bundle, node_of_document};
pub use verdict::{NodeVerdict, verdict_of};

/// A document of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeDocument {
    /// `mco-rescue/status/v1`.
    Status(Value),
    /// `mco-rescue/doctor/v1`.
    Doctor(Value),
    /// Another document of this program, which is not shown on the page.
    Other,
}

/// Reads a document.
///
/// # Errors
/// The reason why it cannot be used, as the end of a sentence.
pub fn read_document(bytes: &[u8]) -> Result<NodeDocument, Reason> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("is empty".into());
    }
    let document: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("is not a JSON document, or only a part of one: {error}"))?;
    let schema = document.get("schema").and_then(Value::as_str);
    match schema {
        Some("mco-rescue/status/v1") => Ok(NodeDocument::Status(document)),
        Some("mco-rescue/doctor/v1") => Ok(NodeDocument::Doctor(document)),
        Some(other) if is_of_another_version(other) => {
            Err(format!("is from another version of the program: {other}").into())
        }
        Some(other) if other.starts_with("mco-rescue/") => Ok(NodeDocument::Other),
        _ => Err("is not a document of mco-rescue".into()),
    }
}

fn is_of_another_version(schema: &str) -> bool {
    ["mco-rescue/status/", "mco-rescue/doctor/"]
        .iter()
        .any(|begins| schema.starts_with(begins))
}

/// The severity of a node or of a finding. Sorts worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeHealth {
    /// Something critical was found.
    Critical,
    /// The worst finding is a warning.
    Warning,
    /// There is no doctor document, or a stale one without a warning: nothing is known.
    Unknown,
    /// The worst finding is a notice.
    Notice,
    /// Nothing was found.
    Healthy,
}

impl NodeHealth {
    /// Returns the health as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Notice => "notice",
            Self::Healthy => "healthy",
        }
    }

    fn of_word(word: &str) -> Self {
        match word {
            "critical" => Self::Critical,
            "warning" => Self::Warning,
            "notice" => Self::Notice,
            _ => Self::Unknown,
        }
    }
}

/// A node with its documents.
#[derive(Debug, Clone, Default)]
pub struct FleetNode {
    /// The name, taken from the file names.
    pub name: String,
    /// The status document.
    pub status: Option<Value>,
    /// The doctor document.
    pub doctor: Option<Value>,
    /// True if a document is from another day than the page.
    pub is_stale: bool,
}

impl FleetNode {
    /// Adds a document. Of two documents of one kind, keeps the newer; without timestamps, the one added last.
    pub fn add_document(&mut self, document: NodeDocument) {
        let (kept, new) = match document {
            NodeDocument::Status(new) => (&mut self.status, new),
            NodeDocument::Doctor(new) => (&mut self.doctor, new),
            NodeDocument::Other => return,
        };
        let is_newer = |old: &Value| time_of(old) > time_of(&new);
        if !kept.as_ref().is_some_and(is_newer) {
            *kept = Some(new);
        }
    }

    /// Returns the pool by the name of the recorded config.
    pub fn pool(&self) -> Option<&str> {
        pool_of_config(text_of(self.status.as_ref()?, "recorded")?)
    }

    /// Returns the health by the worst finding. A stale document proves a trouble, but not that there is none.
    pub fn health(&self) -> NodeHealth {
        let Some(doctor) = &self.doctor else {
            return NodeHealth::Unknown;
        };
        let worst = list_findings(doctor).map(severity_of).min();
        match worst.unwrap_or(NodeHealth::Healthy) {
            NodeHealth::Healthy | NodeHealth::Notice if self.is_stale => NodeHealth::Unknown,
            health => health,
        }
    }

    /// Returns the number of checks that could not look at everything; `None` without a doctor document.
    pub fn not_checked(&self) -> Option<usize> {
        self.doctor.as_ref().map(not_checked)
    }

    /// Returns the time of the status document.
    pub fn status_time(&self) -> Option<u64> {
        time_of(self.status.as_ref()?)
    }

    /// Returns the time of the oldest document.
    pub fn oldest_time(&self) -> Option<u64> {
        let all = [&self.status, &self.doctor];
        all.into_iter().flatten().filter_map(time_of).min()
    }

    /// Returns the health in the words of a page, where "healthy" takes that every check looked at everything.
    pub fn health_words(&self) -> &'static str {
        match self.health() {
            NodeHealth::Healthy if self.not_checked() != Some(0) => "nothing found",
            health => health.word(),
        }
    }

    /// Returns the verdict in the words of a page; `None` without a doctor document.
    pub fn verdict(&self) -> Option<NodeVerdict> {
        self.doctor.as_ref().map(verdict_of)
    }
}

/// Difference of two clocks, in seconds, from which a document is stale.
const STALE: u64 = 24 * 3600;

/// Returns the time of a document by the clock of its node.
fn time_of(document: &Value) -> Option<u64> {
    document.get("now").and_then(Value::as_u64)
}

/// Returns the number of checks of a doctor document that could not look at everything.
pub fn not_checked(doctor: &Value) -> usize {
    let all = doctor.get("checks").and_then(Value::as_array);
    let unseen = |check: &&Value| {
        let why = check.get("unseen").and_then(Value::as_array);
        why.is_some_and(|why| !why.is_empty())
    };
    all.into_iter().flatten().filter(unseen).count()
}

/// Returns the findings of a doctor document.
pub fn list_findings(doctor: &Value) -> impl Iterator<Item = &Value> {
    doctor
        .get("findings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns the severity of a finding.
pub fn severity_of(finding: &Value) -> NodeHealth {
    NodeHealth::of_word(text_of(finding, "severity").unwrap_or_default())
}

/// Returns a string of a document; `None` if it is missing or empty.
pub fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value
        .get(key)?
        .as_str()
        .filter(|text| !text.trim().is_empty())
}

/// A kind of problem, with the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Id of the check.
    pub check: String,
    /// The worst severity of it.
    pub severity: NodeHealth,
    /// The trouble of each node.
    pub nodes: Vec<TroubledNode>,
}

impl Trouble {
    /// Returns each problem of the check in one line, with its nodes, most frequent first.
    pub fn group_kinds(&self) -> Vec<(&str, Vec<&str>)> {
        let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
        for one in &self.nodes {
            match kinds.iter_mut().find(|(what, _)| *what == one.what) {
                Some((_, nodes)) => nodes.push(&one.node),
                None => kinds.push((&one.what, vec![&one.node])),
            }
        }
        kinds.order_by_key(|(_, nodes)| usize::MAX - nodes.len());
        kinds
    }
}

/// A node with one trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TroubledNode {
    /// Name of the node.
    pub node: String,
    /// Severity on this node.
    pub severity: NodeHealth,
    /// The trouble in one line.
    pub what: String,
}

/// A fact that differs between the nodes of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SiblingDifference {
    /// Name of the pool.
    pub pool: String,
    /// The fact.
    pub fact: &'static str,
    /// The value that more than half of the nodes have; `None` if there is none.
    pub majority: Option<String>,
    /// Number of nodes with that value.
    pub agreeing: usize,
    /// The other values with their nodes, most frequent first.
    pub others: Vec<OtherValue>,
}

/// A value of some nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherValue {
    /// The value.
    pub value: String,
    /// Names of the nodes.
    pub nodes: Vec<String>,
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// The nodes: worst health first, then by name.
    pub nodes: Vec<FleetNode>,
    /// The problems: worst first, then most frequent.
    pub troubles: Vec<Trouble>,
    /// Differences between the nodes of a pool.
    pub differences: Vec<SiblingDifference>,
    /// Files that could not be used, with the reason.
    pub skipped: Vec<SkippedFile>,
}

/// A file that is not a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedFile {
    /// Its path in the directory.
    pub file: String,
    /// The reason, as the end of a sentence.
    pub why: String,
}

impl Fleet {
    /// Compares the nodes. `now` is the time of the page: a document that is a day older, or newer, is stale.
    pub fn new(mut nodes: Vec<FleetNode>, skipped: Vec<SkippedFile>, now: u64) -> Self {
        for node in &mut nodes {
            let dates = [&node.status, &node.doctor].map(|one| one.as_ref().and_then(time_of));
            let mut dates = dates.into_iter().flatten();
            node.is_stale = dates.any(|date| date.abs_diff(now) >= STALE);
        }
        nodes.order_by(|a, b| {
            let key = |node: &FleetNode| (node.health(), natural_key(&node.name));
            key(a).cmp(&key(b))
        });
        Self {
            troubles: find_troubles(&nodes),
            differences: find_differences(&nodes),
            nodes,
            skipped,
        }
    }

    /// Returns the number of nodes for each health, worst first, with its words.
    pub fn tally(&self) -> Vec<(NodeHealth, &'static str, usize)> {
        let mut all: Vec<(NodeHealth, &'static str, usize)> = Vec::new();
        for node in &self.nodes {
            let (health, words) = (node.health(), node.health_words());
            match all.iter_mut().find(|(_, known, _)| *known == words) {
                Some((_, _, number)) => *number += 1,
                None => all.push((health, words, 1)),
            }
        }
        all.order_by_key(|(health, words, _)| (*health, words.len()));
        all
    }

    /// Returns the number of nodes with this health.
    pub fn count_nodes(&self, health: NodeHealth) -> usize {
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.health() == health).count()
    }
}

/// Splits a name so that numbers compare as numbers: `worker-2` sorts before `worker-10`.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0_u64)];
    let mut in_number = false;
    for c in name.chars() {
        match c.to_digit(10) {
            Some(digit) => {
                if let Some((_, number)) = parts.last_mut() {
                    *number = number.saturating_mul(10).saturating_add(digit.into());
                }
                in_number = true;
            }
            None => {
                if in_number {
                    parts.push((String::new(), 0));
                    in_number = false;
                }
                if let Some((letters, _)) = parts.last_mut() {
                    letters.push(c);
                }
            }
        }
    }
    parts
}

fn find_troubles(nodes: &[FleetNode]) -> Vec<Trouble> {
    let mut all: BTreeMap<&str, Vec<TroubledNode>> = BTreeMap::new();
    for node in nodes {
        for finding in node.doctor.iter().flat_map(list_findings) {
            let check = text_of(finding, "id").unwrap_or("(no id)");
            all.entry(check).or_default().push(TroubledNode {
                node: node.name.clone(),
                severity: severity_of(finding),
                what: text_of(finding, "what").unwrap_or("(not said)").to_owned(),
            });
        }
    }
    let trouble = |(check, nodes): (&str, Vec<TroubledNode>)| Trouble {
        check: check.to_owned(),
        severity: nodes
            .iter()
            .map(|node| node.severity)
            .min()
            .unwrap_or(NodeHealth::Unknown),
        nodes,
    };
    let mut all: Vec<Trouble> = all.into_iter().map(trouble).collect();
    // A stable sort: equal ones stay in the order of their ids.
    all.order_by_key(|one| (one.severity, usize::MAX - one.nodes.len()));
    all
}

fn find_differences(nodes: &[FleetNode]) -> Vec<SiblingDifference> {
    let mut pools: BTreeMap<&str, Vec<(&FleetNode, &Value)>> = BTreeMap::new();
    for node in nodes {
        if let (Some(pool), Some(status)) = (node.pool(), &node.status) {
            pools.entry(pool).or_default().push((node, status));
        }
    }
    let mut all = Vec::new();
    for (pool, siblings) in pools {
        for (fact, read) in facts::COMPARED {
            let values = siblings
                .iter()
                .map(|(node, status)| (node.name.as_str(), read(status)));
            all.extend(find_difference(pool, fact, values.collect()));
        }
    }
    all
}

fn find_difference(
    pool: &str,
    fact: &'static str,
    values: Vec<(&str, String)>,
) -> Option<SiblingDifference> {
    let total = values.len();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, value) in values {
        groups.entry(value).or_default().push(node.to_owned());
    }
    if groups.len() < 2 {
        return None;
    }
    let mut groups: Vec<OtherValue> = groups
        .into_iter()
        .map(|(value, nodes)| OtherValue { value, nodes })
        .collect();
    groups.order_by_key(|group| usize::MAX - group.nodes.len());
    let agreeing = groups.first().map_or(0, |group| group.nodes.len());
    let (majority, agreeing, others) = if agreeing * 2 > total {
        let majority = groups.remove(0).value;
        (Some(majority), agreeing, groups)
    } else {
        (None, 0, groups)
    };
    Some(SiblingDifference {
        pool: pool.to_owned(),
        fact,
        majority,
        agreeing,
        others,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, config: &str, image: &str) -> FleetNode {
        FleetNode {
            name: name.to_owned(),
            status: Some(
                json!({"recorded": config, "os": {"booted": image}, "pending": "nothing"}),
            ),
            ..FleetNode::default()
        }
    }

    fn others(fleet: &Fleet, fact: &str) -> Vec<(Option<String>, Vec<Vec<String>>)> {
        let of = fleet.differences.iter().filter(|one| one.fact == fact);
        of.map(|one| {
            let nodes = one.others.iter().map(|other| other.nodes.clone());
            (one.majority.clone(), nodes.collect())
        })
        .collect()
    }

    #[test]
    fn the_one_that_differs_is_named_and_not_the_others() {
        let nodes = vec![
            node("w-1", "rendered-worker-a", "i"),
            node("w-2", "rendered-worker-b", "i"),
            node("w-10", "rendered-worker-a", "i"),
            node("m-1", "rendered-master-c", "j"),
        ];
        let fleet = Fleet::new(nodes, Vec::new(), 0);
        assert_eq!(
            others(&fleet, "config"),
            [(
                Some("rendered-worker-a".to_owned()),
                vec![vec!["w-2".to_owned()]]
            )]
        );
        // A different image in another pool is not a difference.
        assert_eq!(others(&fleet, "running image"), []);
        let names: Vec<&str> = fleet.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["m-1", "w-1", "w-2", "w-10"]);
    }

    #[test]
    fn where_no_value_has_more_than_half_none_is_the_right_one() {
        let nodes = vec![
            node("a", "rendered-worker-a", "i"),
            node("b", "rendered-worker-b", "i"),
        ];
        let fleet = Fleet::new(nodes, Vec::new(), 0);
        let found = others(&fleet, "config");
        assert_eq!(found[0].0, None);
        assert_eq!(found[0].1.len(), 2);
    }

    #[test]
    fn a_document_without_any_key_is_not_a_reason_to_panic() {
        let mut node = FleetNode::default();
        node.add_document(NodeDocument::Status(
            json!({"recorded": 3, "os": [], "daemon": "x"}),
        ));
        node.add_document(NodeDocument::Doctor(
            json!({"findings": [1, {}, {"severity": "awful"}]}),
        ));
        assert_eq!(node.health(), NodeHealth::Unknown);
        let fleet = Fleet::new(vec![node], Vec::new(), 0);
        assert_eq!(fleet.troubles.len(), 1);
        assert_eq!(five_facts(&json!(null)).len(), 5);
    }
}
