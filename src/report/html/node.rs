//! `report.html` of a bundle: findings, status, timeline and differences of one node.
//!
//! Generated from the documents of the same bundle, so it contains nothing beyond them.

use serde_json::Value;

use super::{Html, page, timeline};
use crate::base::invocation::mco_rescue;
use crate::base::text::count_noun;
use crate::base::time::format_utc;
use crate::diagnose::fleet::{
    NodeHealth, NodeVerdict, five_facts, list_findings, not_checked, severity_of, text_of,
    verdict_of,
};

/// The documents of one node.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeDocuments<'a> {
    /// Name of the node, if it has one.
    pub name: Option<&'a str>,
    /// Name and version of its system.
    pub system: Option<&'a str>,
    /// The time by the clock of the machine that creates the page; seconds since 1970.
    pub now: u64,
    /// The diagnosis.
    pub doctor: Option<&'a Value>,
    /// The status.
    pub status: Option<&'a Value>,
    /// The boots and runs.
    pub history: Option<&'a Value>,
    /// The differences since the last good boot.
    pub diff: Option<&'a Value>,
}

/// Returns the page.
pub fn to_html(node: &NodeDocuments<'_>) -> String {
    let name = node.name.unwrap_or("node without a name");
    let mut html = Html::default();
    head(&mut html, name, node);
    html.open("main", "");
    html.out.push('\n');
    html.heading("findings", "Findings");
    match node.doctor {
        Some(doctor) => all_findings(&mut html, doctor),
        None => missing(&mut html, "The diagnosis is missing; see doctor.json."),
    }
    html.heading("status", "Status");
    match node.status {
        Some(status) => facts(&mut html, status),
        None => missing(
            &mut html,
            "The status is missing; status.json has the reason.",
        ),
    }
    timeline::add_timeline(&mut html, node.history);
    timeline::add_differences(&mut html, node.diff);
    html.heading("checks", "Checks");
    if let Some(doctor) = node.doctor {
        checks(&mut html, doctor);
    }
    html.end("main");
    html.open("footer", "");
    html.line(
        "p",
        "",
        "This page has no scripts and loads nothing. It contains no contents of files that a config brings, and no \
         secret of a kernel argument; addresses are without user, password and query. The other files of the bundle hold the same as text and JSON.",
    );
    html.end("footer");
    page(&format!("{name} \u{2013} mco-rescue"), "", html)
}

fn head(html: &mut Html, name: &str, node: &NodeDocuments<'_>) {
    html.open("header", "");
    html.out.push('\n');
    html.line("h1", "", name);
    let mut parts: Vec<String> = Vec::new();
    parts.extend(node.system.map(str::to_owned));
    let root = node.doctor.and_then(|doctor| text_of(doctor, "root"));
    parts.extend(
        root.filter(|root| *root != "/")
            .map(|root| format!("root {root}")),
    );
    parts.push(format!("looked at {}", format_utc(node.now)));
    parts.push(format!("mco-rescue {}", env!("CARGO_PKG_VERSION")));
    html.line("p", "soft", &parts.join(" \u{b7} "));
    match node.doctor {
        Some(doctor) => html.verdict(&verdict_of(doctor)),
        None => html.verdict(&NodeVerdict {
            sentence: "The diagnosis is missing: doctor.json has the reason.".to_owned(),
            next: Some(mco_rescue("doctor")),
        }),
    }
    add_tally(html, node);
    let mut links = vec![("findings", "Findings"), ("status", "Status")];
    links.extend(node.history.map(|_| ("timeline", "Timeline")));
    links.push(("differences", "What changed"));
    links.push(("checks", "Checks"));
    html.links(&links);
    html.end("header");
}

/// Adds how many findings there are of each severity.
fn add_tally(html: &mut Html, node: &NodeDocuments<'_>) {
    html.open("ul", "tally");
    for severity in [
        NodeHealth::Critical,
        NodeHealth::Warning,
        NodeHealth::Notice,
    ] {
        let all = node.doctor.into_iter().flat_map(list_findings);
        let number = all.filter(|one| severity_of(one) == severity).count();
        if number > 0 {
            let words = match severity {
                NodeHealth::Critical => format!("{number} critical"),
                other => count_noun(number, other.word()),
            };
            html.open("li", "");
            html.put("span", &format!("badge {}", severity.word()), &words);
            html.close("li");
        }
    }
    let unseen = node.doctor.map(not_checked);
    if node
        .doctor
        .is_some_and(|doctor| list_findings(doctor).next().is_none())
    {
        html.open("li", "");
        html.put("span", "badge good", "nothing found").close("li");
    }
    if let Some(unseen) = unseen.filter(|number| *number > 0) {
        html.open("li", "");
        let words = format!("{unseen} not looked at");
        html.put("span", "badge plain", &words).close("li");
    }
    html.end("ul");
}

fn missing(html: &mut Html, words: &str) {
    html.line("p", "card soft", words);
}

fn all_findings(html: &mut Html, doctor: &Value) {
    let mut number = 0;
    for found in list_findings(doctor) {
        finding(html, found);
        number += 1;
    }
    if number == 0 {
        missing(
            html,
            "No check found anything wrong. What could not be checked is listed below.",
        );
    }
}

fn finding(html: &mut Html, finding: &Value) {
    let health = severity_of(finding);
    html.open("article", &format!("card finding {}", health.word()));
    html.out.push('\n');
    html.open("h3", "");
    html.put("span", "badge", health.word());
    html.put("span", "soft", text_of(finding, "id").unwrap_or("(no id)"));
    html.put("span", "", text_of(finding, "what").unwrap_or("(not said)"));
    html.end("h3");
    if let Some(changed) = finding.get("changed").filter(|changed| !changed.is_null()) {
        html.line("p", "", &changed_words(changed));
    }
    if let Some(means) = text_of(finding, "means") {
        html.line("p", "", means);
    }
    let next = strings(finding, "next");
    if !next.is_empty() {
        html.line("h4", "", "Next");
        next.into_iter().for_each(|step| html.step(step));
    }
    if let Some(command) = finding.get("fix").and_then(|fix| text_of(fix, "command")) {
        html.line("h4", "", "Files alone cure it; this shows the plan first");
        html.line("pre", "command", command);
    }
    evidence(html, finding);
    if let Some(words) = text_of(finding, "daemon") {
        html.line("h4", "", "Other programs say");
        html.line("pre", "", words.trim_end());
    }
    html.end("article");
}

/// Returns the moments between which the evidence of a finding changed.
fn changed_words(changed: &Value) -> String {
    let moment = |key: &str| {
        let moment = changed.get(key)?;
        let at = format_utc(moment.get("at")?.as_u64()?);
        Some(match moment.get("snapshot").and_then(Value::as_u64) {
            Some(number) => format!("{at} (snapshot {number})"),
            None => format!("{at} (now)"),
        })
    };
    let subject = text_of(changed, "subject").unwrap_or("the evidence");
    let unknown = || "an unknown time".to_owned();
    format!(
        "Changed since the last good boot: {subject}, between {} and {}.",
        moment("from").unwrap_or_else(unknown),
        moment("until").unwrap_or_else(unknown)
    )
}

fn evidence(html: &mut Html, finding: &Value) {
    let facts = finding.get("evidence").and_then(Value::as_array);
    let facts = facts.map(Vec::as_slice).unwrap_or_default();
    if facts.is_empty() {
        return;
    }
    html.line("h4", "", "Evidence");
    html.table("pairs", &[]);
    for fact in facts {
        html.open("tr", "");
        html.put("th", "mono", text_of(fact, "place").unwrap_or_default());
        html.put("td", "", text_of(fact, "said").unwrap_or_default());
        html.end("tr");
    }
    html.end_table();
}

fn strings<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    let all = value.get(key).and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn facts(html: &mut Html, status: &Value) {
    html.open("dl", "card facts");
    html.out.push('\n');
    for fact in five_facts(status) {
        html.fact(fact.label, &fact.value, fact.alarm);
    }
    if let Some(run) = status.get("last_run").filter(|run| !run.is_null()) {
        let config = run.get("config").and_then(|config| text_of(config, "name"));
        let outcome = text_of(run, "outcome").unwrap_or("(outcome missing)");
        let mut words = outcome.to_owned();
        if let Some(config) = config {
            words.push_str(&format!(": {config}"));
        }
        if let Some(at) = run.get("finished").and_then(Value::as_u64) {
            words.push_str(&format!(", {}", format_utc(at)));
        }
        let bad = matches!(outcome, "incomplete" | "rolled-back");
        html.fact("Last run", &words, bad);
    }
    if let Some(next) = status
        .get("daemon")
        .and_then(|daemon| text_of(daemon, "next"))
    {
        html.fact("Next step", next, false);
    }
    html.end("dl");
}

fn checks(html: &mut Html, doctor: &Value) {
    let all = doctor.get("checks").and_then(Value::as_array);
    let all = all.map(Vec::as_slice).unwrap_or_default();
    add_unseen(html, all);
    html.open("details", "");
    html.line(
        "summary",
        "",
        &format!("All {}", count_noun(all.len(), "check")),
    );
    html.table("", &["Check", "Trouble", "Result"]);
    for check in all {
        let found = check.get("found").and_then(Value::as_bool) == Some(true);
        let is_unseen = !strings(check, "unseen").is_empty();
        html.open("tr", "");
        html.put("th", "", text_of(check, "id").unwrap_or_default());
        html.put("td", "", text_of(check, "title").unwrap_or_default());
        html.put(
            "td",
            "",
            match (found, is_unseen) {
                (true, _) => "found",
                (false, true) => "not checked",
                (false, false) => "nothing found",
            },
        );
        html.end("tr");
    }
    html.end_table();
    html.end("details");
}

/// Adds what the checks could not look at, each reason with the checks that it concerns.
fn add_unseen(html: &mut Html, all: &[Value]) {
    let mut unseen: Vec<(&str, Vec<&str>)> = Vec::new();

    for check in all {
        for key in ["unseen", "skipped"] {
            for why in strings(check, key) {
                let id = text_of(check, "id").unwrap_or_default();
                match unseen.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, ids)) => ids.push(id),
                    None => unseen.push((why, vec![id])),
                }
            }
        }
    }
    if !unseen.is_empty() {
        html.line("h4", "", "Not checked");
        html.table("pairs", &[]);
        for (why, ids) in unseen {
            html.open("tr", "");
            html.put("th", "", &ids.join(" ")).put("td", "", why);
            html.end("tr");
        }
        html.end_table();
    }
}
