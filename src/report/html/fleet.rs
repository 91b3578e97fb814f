//! `fleet.html`: many nodes on one page.

use std::collections::BTreeSet;

use super::{Html, page, short};
use crate::base::text::count_noun;
use crate::base::time::utc;
use crate::diagnose::fleet::{
    Fleet, FleetNode, NodeHealth, SiblingDifference, Trouble, five_facts, text_of,
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
    troubles(&mut html, &fleet.troubles);
    matrix(&mut html, fleet);
    html.heading("differences", "Differences within pools");
    differences(&mut html, &fleet.differences);
    html.heading("nodes", "State of the nodes");
    nodes(&mut html, &fleet.nodes);
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
        "This page has no scripts and loads nothing. Siblings are the nodes whose recorded configs are of the same pool.",
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
        format!("made {}", utc(now)),
    ];
    parts.push(format!("mco-rescue {}", env!("CARGO_PKG_VERSION")));
    html.line("p", "soft", &parts.join(" \u{b7} "));
    html.open("ul", "tally");
    for (health, class) in [
        (NodeHealth::Critical, "critical"),
        (NodeHealth::Warning, "warning"),
        (NodeHealth::Unknown, "plain"),
        (NodeHealth::Notice, "notice"),
        (NodeHealth::Healthy, "good"),
    ] {
        let number = fleet.count(health);
        if number > 0 {
            html.open("li", "");
            html.put(
                "span",
                &format!("badge {class}"),
                &format!("{number} {}", health.word()),
            );
            html.close("li");
        }
    }
    html.end("ul");
    let mut links = vec![
        ("findings", "Findings"),
        ("differences", "Differences"),
        ("nodes", "State of the nodes"),
    ];
    if !fleet.skipped.is_empty() {
        links.push(("skipped", "Files that were not used"));
    }
    html.links(&links);
    html.end("header");
}

/// Adds names, each unbroken if it fits; those beyond the limit are only counted.
fn names<'a>(html: &mut Html, all: impl IntoIterator<Item = &'a str>) {
    let all: Vec<&str> = all.into_iter().collect();
    let (first, rest) = all.split_at_checked(NAMES).unwrap_or((&all, &[]));
    for (index, name) in first.iter().enumerate() {
        let comma = if index + 1 < first.len() { "," } else { "" };
        html.put("span", "name", &format!("{name}{comma}"))
            .text(" ");
    }
    if !rest.is_empty() {
        html.put("span", "soft", &format!("and {} more", rest.len()));
    }
}

fn troubles(html: &mut Html, troubles: &[Trouble]) {
    if troubles.is_empty() {
        html.line("p", "card soft", "No check found anything on these nodes.");
    }
    for trouble in troubles {
        let kinds = trouble.kinds();
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
            names(html, nodes.iter().copied());
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
fn matrix(html: &mut Html, fleet: &Fleet) {
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
        html.open("tr", "").put("th", "", &node.name);
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

fn differences(html: &mut Html, differences: &[SiblingDifference]) {
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
            names(html, other.nodes.iter().map(String::as_str));
            html.end("p");
        }
        html.end("article");
    }
}

fn nodes(html: &mut Html, nodes: &[FleetNode]) {
    html.table(
        "wide stick",
        &[
            "Node",
            "Health",
            "Pool",
            "Recorded config",
            "Running",
            "Next boot",
            "Interrupted run",
            "Daemon",
            "Looked at",
        ],
    );
    for node in nodes {
        let health = node.health();
        html.open("tr", "");
        html.put("th", "", &node.name);
        let class = match health {
            NodeHealth::Healthy => "good",
            NodeHealth::Unknown => "plain",
            other => other.word(),
        };
        html.open("td", "");
        html.put("span", &format!("badge {class}"), health.word())
            .close("td");
        html.put("td", "", node.pool().unwrap_or("\u{2013}"));
        match &node.status {
            None => {
                for _ in 0..5 {
                    html.put("td", "soft", "\u{2013}");
                }
                html.put("td", "soft", "no status document");
            }
            Some(status) => {
                let [runs, next, recorded, interrupted, daemon] = five_facts(status);
                let recorded = match text_of(status, "recorded") {
                    Some(name) if !recorded.alarm => name.to_owned(),
                    _ => recorded.value.clone(),
                };
                html.put("td", "long", &short(&recorded));
                html.put("td", "long", &short(&runs.value));
                for (fact, class) in [(next, "long"), (interrupted, ""), (daemon, "")] {
                    let alarm = if fact.alarm { " alarm" } else { "" };
                    html.put("td", &format!("{class}{alarm}"), &short(&fact.value));
                }
                let seen = node.seen().map(utc);
                html.put("td", "", seen.as_deref().unwrap_or("\u{2013}"));
            }
        }
        html.end("tr");
    }
    html.end_table();
}
