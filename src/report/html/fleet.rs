//! `fleet.html`: many nodes on one page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Html, page, short};
use crate::base::text::count_noun;
use crate::base::time::format_utc;
use crate::diagnose::fleet::{
    Fleet, FleetNode, NodeHealth, NodeVerdict, SiblingDifference, Trouble, five_facts,
    list_findings, text_of,
};

/// Maximum number of node names in a cell; the others are counted.
const NAMES: usize = 12;
/// Number of nodes above which their table of checks is collapsed.
const FOLDED: usize = 25;

/// Returns the page.
pub fn to_html(fleet: &Fleet, now: u64) -> String {
    let mut html = Html::default();
    head(&mut html, fleet, now);
    html.open("main", "");
    html.out.push('\n');
    html.heading("findings", "Findings");
    let places = places(&fleet.nodes);
    troubles(&mut html, &places, &fleet.troubles);
    matrix(&mut html, &places, fleet);
    html.heading("next", "Next commands of each node");
    parts(&mut html, &places, &fleet.nodes);
    html.heading("differences", "Differences within pools");
    differences(&mut html, &places, &fleet.differences);
    html.heading("nodes", "State of the nodes");
    nodes(&mut html, &places, &fleet.nodes);
    if !fleet.skipped.is_empty() {
        html.heading("skipped", "Files that were not used");
        html.table("", &["File", "Reason"]);
        for skipped in &fleet.skipped {
            html.open("tr", "");
            html.put("th", "mono", &skipped.file);
            html.put("td", "", &skipped.why).end("tr");
        }
        html.end_table();
    }
    html.end("main");
    html.open("footer", "");
    html.line(
        "p",
        "",
        "This page has no scripts and loads nothing. Siblings are the nodes whose recorded configs belong to the same pool.",
    );
    html.end("footer");
    page("Fleet \u{2013} mco-rescue", "fleet", html)
}

fn head(html: &mut Html, fleet: &Fleet, now: u64) {
    html.open("header", "");
    html.out.push('\n');
    html.line(
        "h1",
        "",
        &format!("Fleet of {}", count_noun(fleet.nodes.len(), "node")),
    );
    let pools: BTreeSet<&str> = fleet.nodes.iter().filter_map(FleetNode::pool).collect();
    let mut parts = vec![
        count_noun(pools.len(), "pool"),
        format!("made {}", format_utc(now)),
    ];
    parts.push(format!("mco-rescue {}", env!("CARGO_PKG_VERSION")));
    html.line("p", "soft", &parts.join(" \u{b7} "));
    let first = fleet.nodes.first();
    let first = first.filter(|node| node.health() <= NodeHealth::Warning);
    if let Some((node, verdict)) = first.and_then(|node| Some((node, node.verdict()?))) {
        html.verdict(&NodeVerdict {
            sentence: format!("Begin with {}: {}", node.name, verdict.sentence),
            next: verdict.next,
        });
    } else if !fleet
        .nodes
        .iter()
        .any(|node| node.health() == NodeHealth::Unknown)
    {
        html.line("p", "verdict", "No node needs attention.");
    } else {
        let words =
            "No warning was found, but some nodes are not known: gather their documents again.";
        html.line("p", "verdict", words);
    }
    add_tally(html, fleet);
    let mut links = vec![
        ("findings", "Findings"),
        ("next", "Next commands"),
        ("differences", "Differences"),
        ("nodes", "State of the nodes"),
    ];
    if !fleet.skipped.is_empty() {
        links.push(("skipped", "Files that were not used"));
    }
    html.links(&links);
    html.end("header");
}

/// Adds how many nodes there are of each state.
fn add_tally(html: &mut Html, fleet: &Fleet) {
    html.open("ul", "tally");
    for (health, words, number) in fleet.tally() {
        html.open("li", "");
        let class = format!("badge {}", class_of(health));
        html.put("span", &class, &format!("{number} {words}"))
            .close("li");
    }
    let stale = fleet.nodes.iter().filter(|node| node.is_stale).count();
    if stale > 0 {
        html.open("li", "");
        let words = format!("{} with stale documents", count_noun(stale, "node"));
        html.put("span", "badge warning", &words).close("li");
    }
    html.end("ul");
}

/// The place of each node on the page.
type Places<'a> = BTreeMap<&'a str, String>;

/// Returns the anchors of the nodes.
fn places(nodes: &[FleetNode]) -> Places<'_> {
    let all = nodes.iter().enumerate();
    all.map(|(index, node)| (node.name.as_str(), format!("node-{index}")))
        .collect()
}

/// Adds the name of a node, as a link to its part of the page.
fn link(html: &mut Html, places: &Places<'_>, name: &str, end: &str) {
    match places.get(name) {
        Some(place) => drop(
            html.open_with("a", "href", &format!("#{place}"))
                .text(name)
                .close("a"),
        ),
        None => drop(html.text(name)),
    }
    html.text(end);
}

/// Adds names, each unbroken if it fits; those beyond the limit are only counted.
fn names<'a>(html: &mut Html, places: &Places<'_>, all: impl IntoIterator<Item = &'a str>) {
    let all: Vec<&str> = all.into_iter().collect();
    let (first, rest) = all.split_at_checked(NAMES).unwrap_or((&all, &[]));
    for (index, name) in first.iter().enumerate() {
        let comma = if index + 1 < first.len() { "," } else { "" };
        html.open("span", "name");
        link(html, places, name, comma);
        html.close("span").text(" ");
    }
    if !rest.is_empty() {
        html.put("span", "soft", &format!("and {} more", rest.len()));
    }
}

/// Returns the class of a badge.
fn class_of(health: NodeHealth) -> &'static str {
    match health {
        NodeHealth::Healthy => "good",
        NodeHealth::Unknown => "plain",
        other => other.word(),
    }
}

/// Returns true if a node has a part of its own, with its findings; the others are in the table only.
fn has_part(node: &FleetNode) -> bool {
    let finds = node
        .doctor
        .as_ref()
        .and_then(|doctor| list_findings(doctor).next());
    finds.is_some() || node.health() == NodeHealth::Unknown
}

/// Adds a part for each node that has something to do, worst first: its findings with their next commands.
fn parts(html: &mut Html, places: &Places<'_>, nodes: &[FleetNode]) {
    let mut is_empty = true;
    for node in nodes.iter().filter(|node| has_part(node)) {
        is_empty = false;
        let health = node.health();
        html.out.push_str("<article");
        html.attribute("class", &format!("card finding {}", class_of(health)));
        if let Some(place) = places.get(node.name.as_str()) {
            html.attribute("id", place);
        }
        html.out.push_str(">\n");
        html.open("h3", "");
        html.put("span", "badge", node.health_words());
        html.put("span", "", &node.name);
        html.put("span", "soft", node.pool().unwrap_or_default());
        html.end("h3");
        if node.is_stale {
            html.line("p", "alarm", &stale_words(node));
        }
        if node.doctor.is_none() {
            html.line("p", "", "No doctor document was gathered.");
            html.step("mco-rescue doctor");
        }
        for finding in node.doctor.iter().flat_map(list_findings) {
            let id = text_of(finding, "id").unwrap_or("(no id)");
            html.open("p", "").put("b", "", id).text(" ");
            html.text(text_of(finding, "what").unwrap_or("(not said)"))
                .end("p");
            let next = finding.get("next").and_then(Value::as_array);
            let next = next.into_iter().flatten().filter_map(Value::as_str);
            next.for_each(|step| html.step(step));
        }
        html.end("article");
    }
    if is_empty {
        html.line("p", "card soft", "No node has anything to do.");
    }
}

fn stale_words(node: &FleetNode) -> String {
    match node.oldest_time() {
        Some(date) => format!(
            "Stale: a document is from {}. Gather it again.",
            format_utc(date)
        ),
        None => "Stale: gather its documents again.".to_owned(),
    }
}

fn troubles(html: &mut Html, places: &Places<'_>, troubles: &[Trouble]) {
    if troubles.is_empty() {
        html.line("p", "card soft", "No check found anything on these nodes.");
    }
    for trouble in troubles {
        let kinds = trouble.group_kinds();
        let nodes: BTreeSet<&str> = trouble.nodes.iter().map(|one| one.node.as_str()).collect();
        html.open(
            "article",
            &format!("card finding {}", trouble.severity.word()),
        );
        html.open("h3", "");
        html.put("span", "badge", trouble.severity.word());
        html.put("span", "", &trouble.check);
        html.put("span", "soft", &count_noun(nodes.len(), "node"));
        html.end("h3");
        for (what, nodes) in kinds.iter().take(NAMES) {
            html.open("p", "").put("b", "", what).text(": ");
            names(html, places, nodes.iter().copied());
            html.end("p");
        }
        if let Some(rest) = kinds.get(NAMES..).filter(|rest| !rest.is_empty()) {
            html.line(
                "p",
                "soft",
                &format!("and {} more of this check, in other words", rest.len()),
            );
        }
        html.end("article");
    }
}

/// Adds the table of nodes and checks, without nodes and checks that have nothing to show.
fn matrix(html: &mut Html, places: &Places<'_>, fleet: &Fleet) {
    let sick = |node: &&FleetNode| node.health() <= NodeHealth::Warning;
    let nodes: Vec<&FleetNode> = fleet.nodes.iter().filter(sick).collect();
    let serious = |trouble: &&Trouble| trouble.severity <= NodeHealth::Warning;
    let checks: Vec<&Trouble> = fleet.troubles.iter().filter(serious).collect();
    if nodes.len() < 2 || checks.is_empty() {
        return;
    }
    let is_long = nodes.len() > FOLDED;
    html.out.push_str(if is_long {
        "<details>"
    } else {
        "<details open>"
    });
    let title = format!(
        "{} by checks, warnings and worse",
        count_noun(nodes.len(), "node")
    );
    html.line("summary", "", &title);
    let mut columns = vec!["Node"];
    columns.extend(checks.iter().map(|check| check.check.as_str()));
    html.table("stick matrix", &columns);
    for node in nodes {
        html.open("tr", "").open("th", "");
        link(html, places, &node.name, "");
        html.close("th");
        for check in &checks {
            let all = check.nodes.iter().filter(|one| one.node == node.name);
            match all.map(|one| one.severity).min() {
                Some(severity) => {
                    html.open("td", "");
                    html.put(
                        "span",
                        &format!("badge {}", severity.word()),
                        severity.word(),
                    );
                    html.close("td");
                }
                None => drop(html.put("td", "soft", "\u{b7}")),
            }
        }
        html.end("tr");
    }
    html.end_table();
    html.end("details");
}

fn differences(html: &mut Html, places: &Places<'_>, differences: &[SiblingDifference]) {
    if differences.is_empty() {
        html.line(
            "p",
            "card soft",
            "Nothing: in each pool all nodes report the same.",
        );
    }
    for one in differences {
        html.open("article", "card");
        html.open("h3", "");
        html.put("span", "badge plain", &one.pool);
        html.text(" ").text(one.fact).end("h3");
        html.open("p", "");
        match &one.majority {
            Some(value) => {
                html.put(
                    "span",
                    "soft",
                    &format!("{}: ", count_noun(one.agreeing, "node")),
                );
                html.text(&short(value));
            }
            None => drop(html.put("span", "soft", "No value has more than half of the nodes.")),
        }
        html.end("p");
        for other in &one.others {
            html.open("p", "")
                .put("b", "", &short(&other.value))
                .text(": ");
            names(html, places, other.nodes.iter().map(String::as_str));
            html.end("p");
        }
        html.end("article");
    }
}

fn nodes(html: &mut Html, places: &Places<'_>, nodes: &[FleetNode]) {
    html.table(
        "stick fleet",
        &[
            "Node and pool",
            "Health",
            "Recorded config",
            "Running",
            "Next boot",
            "Interrupted run",
            "Daemon",
            "Looked at (UTC)",
        ],
    );
    for node in nodes {
        match places.get(node.name.as_str()).filter(|_| !has_part(node)) {
            Some(place) => html.open_with("tr", "id", place),
            None => html.open("tr", ""),
        };
        html.open("th", "");
        if has_part(node) {
            link(html, places, &node.name, "");
        } else {
            html.text(&node.name);
        }
        html.put("div", "soft small", node.pool().unwrap_or("no pool known"));
        html.close("th");
        health(html, node);
        match &node.status {
            None => {
                for _ in 0..5 {
                    html.put("td", "soft", "\u{2013}");
                }
                html.put("td", "soft", "no status document");
            }
            Some(status) => add_status(html, node, status),
        }
        html.end("tr");
    }
    html.end_table();
}

/// Adds the cells that a status document fills.
fn add_status(html: &mut Html, node: &FleetNode, status: &Value) {
    let [runs, next, recorded, interrupted, daemon] = five_facts(status);
    let recorded = match text_of(status, "recorded") {
        Some(name) if !recorded.alarm => name.to_owned(),
        _ => recorded.value.clone(),
    };
    html.put("td", "", &short(&recorded));
    html.put("td", "", &short(&runs.value));
    for fact in [next, interrupted, daemon] {
        let class = if fact.alarm { "alarm" } else { "" };
        html.put("td", class, &short(&fact.value));
    }
    let class = if node.is_stale { "alarm" } else { "" };
    let seen = node.status_time().map(format_utc);
    let seen = seen.as_deref().unwrap_or("not known");
    // The date on one line, the time on the next.
    let (date, time) = seen.split_once('T').unwrap_or((seen, ""));
    html.open("td", class).put("div", "", date);
    html.put("div", "", time).close("td");
}

/// Adds the cell with the health, and what limits it.
fn health(html: &mut Html, node: &FleetNode) {
    let class = format!("badge {}", class_of(node.health()));
    html.open("td", "").put("span", &class, node.health_words());
    if node.is_stale {
        html.text(" ").put("span", "badge warning", "stale");
    }
    match node.not_checked() {
        None => drop(html.put("div", "soft small", "no doctor document")),
        Some(0) => {}
        Some(some) => drop(html.put("div", "soft small", &format!("{some} not looked at"))),
    }
    html.close("td");
}
