//! The summary of `report`, as text and as JSON (`mco-rescue/fleet/v1`).

use serde::Serialize;

use super::wrap_text;
use crate::base::text::{count_noun, make_inline};
use crate::base::time::format_utc;
use crate::diagnose::fleet::{
    Fleet, FleetNode, NodeHealth, SiblingDifference, SkippedFile, Trouble, five_facts, text_of,
};

/// Maximum number of problems and differences of each kind in the text; the page has all of them.
const SHOWN: usize = 10;
/// Maximum number of names in a line of the text.
const NAMES: usize = 6;

#[derive(Serialize)]
struct FleetDocument<'a> {
    schema: &'static str,
    now: u64,
    page: &'a str,
    nodes: Vec<NodeLine<'a>>,
    troubles: &'a [Trouble],
    differences: &'a [SiblingDifference],
    skipped: &'a [SkippedFile],
}

#[derive(Serialize)]
struct NodeLine<'a> {
    name: &'a str,
    health: NodeHealth,
    pool: Option<&'a str>,
    recorded: Option<&'a str>,
    running: Option<String>,
    next_boot: Option<String>,
    interrupted: Option<String>,
    daemon: Option<String>,
    seen: Option<u64>,
    not_checked: Option<usize>,
    stale: bool,
}

/// Returns the summary as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(fleet: &Fleet, page: &str, now: u64) -> serde_json::Result<String> {
    let document = FleetDocument {
        schema: "mco-rescue/fleet/v1",
        now,
        page,
        nodes: fleet.nodes.iter().map(line).collect(),
        troubles: &fleet.troubles,
        differences: &fleet.differences,
        skipped: &fleet.skipped,
    };
    super::pretty(&document)
}

fn line(node: &FleetNode) -> NodeLine<'_> {
    let status = node.status.as_ref();
    let facts = status.map(five_facts);
    let [running, next_boot, interrupted, daemon] = match facts {
        Some([running, next_boot, _, interrupted, daemon]) => {
            [running, next_boot, interrupted, daemon].map(|fact| Some(fact.value))
        }
        None => [None, None, None, None],
    };
    NodeLine {
        name: &node.name,
        health: node.health(),
        pool: node.pool(),
        recorded: status.and_then(|status| text_of(status, "recorded")),
        running,
        next_boot,
        interrupted,
        daemon,
        seen: node.status_time(),
        not_checked: node.not_checked(),
        stale: node.is_stale,
    }
}

/// Returns the summary as text: counts, the worst problems, and differences between siblings.
pub fn to_text(fleet: &Fleet, page: &str) -> String {
    let tally = fleet.tally();
    let counts = tally
        .iter()
        .map(|(_, words, number)| format!("{number} {words}"));
    let counts: Vec<String> = counts.collect();
    let nodes = count_noun(fleet.nodes.len(), "node");
    let mut out = wrap_text(&format!("{nodes}: {}", counts.join(", ")), 0);
    let partial = |node: &&FleetNode| node.not_checked().is_some_and(|number| number > 0);
    let partial = fleet.nodes.iter().filter(partial).count();
    if partial > 0 {
        let nodes = count_noun(partial, "node");
        out.push_str(&format!(
            "On {nodes} some checks could not look at everything.\n"
        ));
    }
    out.push_str(&stale(fleet));
    if !fleet.troubles.is_empty() {
        out.push_str("\nFindings, worst first:\n");
    }
    for trouble in fleet.troubles.iter().take(SHOWN) {
        out.push_str(&hanging(&trouble_text(trouble)));
    }

    out.push_str(&more(fleet.troubles.len()));
    if !fleet.differences.is_empty() {
        out.push_str("\nDifferent from their siblings:\n");
    }
    for one in fleet.differences.iter().take(SHOWN) {
        out.push_str(&hanging(&difference(one)));
    }
    out.push_str(&more(fleet.differences.len()));
    if !fleet.skipped.is_empty() {
        out.push_str("\nNot used:\n");
    }
    for skipped in fleet.skipped.iter().take(SHOWN) {
        out.push_str(&hanging(&format!(
            "{} {}",
            make_inline(&skipped.file),
            skipped.why
        )));
    }
    out.push_str(&more(fleet.skipped.len()));
    out.push_str(&format!("\nWritten to {}\n", make_inline(page)));
    out
}

/// Returns a check with its findings, and the nodes that have each.
fn trouble_text(trouble: &Trouble) -> String {
    let (word, check) = (trouble.severity.word(), &trouble.check);
    let kinds = trouble.group_kinds();
    let said = kinds.iter().take(NAMES).map(|(what, nodes)| {
        let mut nodes = nodes.clone();
        nodes.dedup();
        format!("{what}: {}", listed(&nodes))
    });
    let mut said: Vec<String> = said.collect();
    if let Some(rest) = kinds.get(NAMES..).filter(|rest| !rest.is_empty()) {
        said.push(format!("{} more of this check on the page", rest.len()));
    }
    format!("{word} {check}: {}", said.join("; "))
}

/// Returns the nodes with stale documents, and their dates.
fn stale(fleet: &Fleet) -> String {
    let all = fleet.nodes.iter().filter(|node| node.is_stale);
    let all = all.map(|node| match node.oldest_time() {
        Some(date) => format!("{} ({})", node.name, format_utc(date)),
        None => node.name.clone(),
    });
    let all: Vec<String> = all.collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    if names.is_empty() {
        String::new()
    } else {
        hanging(&format!("Stale, gather again: {}", listed(&names)))
    }
}

fn difference(one: &SiblingDifference) -> String {
    let others = one.others.iter().map(|other| {
        let names: Vec<&str> = other.nodes.iter().map(String::as_str).collect();
        format!("{} ({})", other.value, listed(&names))
    });
    let others: Vec<String> = others.take(NAMES).collect();
    let others = others.join("; ");
    match &one.majority {
        Some(value) => {
            let nodes = count_noun(one.agreeing, "node");
            format!(
                "{}, {}: {nodes} {value}; others: {others}",
                one.pool, one.fact
            )
        }
        None => format!("{}, {}: no majority: {others}", one.pool, one.fact),
    }
}

fn listed(names: &[&str]) -> String {
    match names.split_at_checked(NAMES) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

fn more(number: usize) -> String {
    match number.checked_sub(SHOWN) {
        None | Some(0) => String::new(),
        Some(rest) => format!("  and {rest} more on the page\n"),
    }
}

fn hanging(text: &str) -> String {
    let wrapped = wrap_text(text, 4);
    wrapped.replacen("    ", "  ", 1)
}
