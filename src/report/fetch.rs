//! The results of `fetch` and the contents of the cache, as text and as JSON (`mco-rescue/fetch/v1`, `mco-rescue/cache/v1`).

use std::collections::BTreeSet;

use serde::Serialize;

use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::base::text::{count_noun, make_inline};
use crate::base::time::format_utc;
use crate::change::source::cache::Cached;
use crate::judge::daemon::annotations::Annotations;
use crate::judge::daemon::pod_log::{DaemonLog, LogTrace};
use crate::judge::daemon::policies::{Policies, PolicyRequest};
use crate::run::cache::Fetched;
use crate::run::cluster::ClusterReport;
use crate::run::fetch::FetchOutcome;

/// Returns what was removed from the cache as JSON.
///
/// # Errors
/// The serializer's error.
pub fn forgotten_json(name: &str) -> serde_json::Result<String> {
    super::pretty(&serde_json::json!({
        "schema": "mco-rescue/cache-forget/v1",
        "removed": name,
    }))
}

/// Returns the result as JSON.
pub fn to_json(outcome: &FetchOutcome) -> serde_json::Result<String> {
    super::to_document("mco-rescue/fetch/v1", outcome)
}

/// Returns the result as text.
pub fn to_text(outcome: &FetchOutcome) -> String {
    let pools: BTreeSet<&Option<String>> = outcome.kept.iter().map(|one| &one.pool).collect();
    let mut out = match pools.len() {
        0 | 1 => outcome.kept.iter().map(|one| kept(one, true)).collect(),
        _ => by_pool(&outcome.kept, &pools),
    };
    for passed in &outcome.passed_over {
        out.push_str(&format!("Not kept  {}\n", make_inline(&passed.path)));
        out.push_str(&wrap_text(&passed.why, 10));
    }
    out + &seen_text(&outcome.seen)
}

/// Returns the state of the cluster as text.
pub fn seen_text(seen: &ClusterReport) -> String {
    let annotations = seen.annotations.iter().map(annotated);
    let log = seen.daemon_log.iter().map(logged);
    let policies = seen.policies.iter().map(allowed);
    annotations.chain(log).chain(policies).collect()
}

/// Returns the configs in the daemon's log with their times, because they may be old.
fn logged(log: &DaemonLog) -> String {
    let line = |label: &str, what: &str, trace: Option<&LogTrace>| match trace {
        Some(trace) => format!(
            "{label:<10}{what} {} ({})\n",
            make_inline(&trace.name),
            format_utc(trace.at)
        ),
        None => String::new(),
    };
    let current = line("Log", "current", log.current.as_ref());
    let label = if current.is_empty() { "Log" } else { "" };
    current + &line(label, "wanted ", log.wanted.as_ref())
}

/// Returns the disruption policies in one line, or in two if the last answer contained none.
fn allowed(policies: &Policies) -> String {
    let asked = match policies.asked {
        PolicyRequest::Given => None,
        PolicyRequest::NotAllowed => Some("not allowed to read them"),
        PolicyRequest::None => Some("the cluster has none"),
        PolicyRequest::NotReady => Some("the operator has not finished them"),
    };
    let known = policies.known.as_ref().map(|known| {
        let (files, units) = (known.cluster.files.len(), known.cluster.units.len());
        let what = format!(
            "{} and {}",
            count_noun(files, "file"),
            count_noun(units, "unit")
        );
        format!("for {what} ({})", format_utc(known.seen))
    });
    let asked = asked.map(|said| format!("{said} ({})", format_utc(policies.at)));
    let passing = policies.overrides.as_ref().and_then(|overrides| {
        let names = overrides.storage.iter().map(|name| make_inline(name));
        let names = names.collect::<Vec<_>>().join(", ");
        (!names.is_empty())
            .then(|| format!("allowed changes: {names} ({})", format_utc(overrides.seen)))
    });
    let lines = known.into_iter().chain(asked).chain(passing);
    let labels = ["Policies", "", ""].into_iter();
    let lines = labels
        .zip(lines)
        .map(|(label, line)| format!("{label:<10}{line}\n"));
    lines.collect()
}

/// Returns the node's annotations in two lines.
fn annotated(seen: &Annotations) -> String {
    let word = |value: &Option<String>| make_inline(value.as_deref().unwrap_or("(none)"));
    format!(
        "Annotated current {}, {}\n          desired {} ({})\n",
        word(&seen.current),
        word(&seen.state),
        word(&seen.desired),
        format_utc(seen.seen),
    )
}

/// Returns the configs by pool; only those of the node's own pool are suggested.
fn by_pool(all: &[Fetched], pools: &BTreeSet<&Option<String>>) -> String {
    let mut out = String::new();
    for pool in pools {
        let of_pool = all.iter().filter(|one| one.pool == **pool);
        let own = of_pool.clone().any(|one| one.own_pool == Some(true));
        let name = make_inline(pool.as_deref().unwrap_or("(none)"));
        let mark = if own { " (this node's)" } else { "" };
        out.push_str(&format!("Pool      {name}{mark}\n"));
        out.extend(of_pool.map(|one| kept(one, one.own_pool == Some(true))));
    }
    if all.iter().all(|one| one.own_pool != Some(true)) {
        let said = if all.iter().all(|one| one.own_pool == Some(false)) {
            format!(
                "None of these pools is this node's. Fetch the config of its own pool. Next: {}",
                mco_rescue("fetch")
            )
        } else {
            format!(
                "Nothing on this node names its pool. NAME stands for a config of its pool. Next: {}",
                mco_rescue("plan cached:NAME")
            )
        };
        out.push_str(&wrap_text(&said, 0));
    }
    out
}

/// Returns a fetched config as text. `suggests`: it may be named as the next step.
fn kept(fetched: &Fetched, suggests: bool) -> String {
    let mut out = format!("Kept      {}\n", make_inline(&fetched.name));
    out.push_str(&format!("From      {}\n", make_inline(&fetched.origin)));
    out.push_str(&format!("Name      {}\n", name_words(fetched.name_matches)));
    for name in &fetched.forgotten {
        out.push_str(&format!("Forgotten {}\n", make_inline(name)));
    }
    let foreign = || {
        let pool = fetched.pool.as_deref().unwrap_or_default();
        format!("It belongs to pool {pool}, and this node to another one.")
    };
    let next = match (fetched.recorded, fetched.new) {
        _ if suggests && fetched.own_pool == Some(false) => foreign(),
        (false, true) if !suggests => return out,
        (true, _) => "It is the recorded config of this node.".to_owned(),
        (false, false) => "It was in the cache already.".to_owned(),
        (false, true) => format!(
            "Next: {}",
            mco_rescue(&format!("plan cached:{}", fetched.name))
        ),
    };
    out.push_str(&wrap_text(&next, 0));
    out
}

fn name_words(matches: Option<bool>) -> &'static str {
    match matches {
        Some(true) => "its hash matches the contents",
        Some(false) => {
            "its hash does NOT match the contents: they were changed, or rendered by another release"
        }
        None => "has no hash, so it is not a rendered config of a pool",
    }
}

#[derive(Serialize)]
struct Listing<'a> {
    entries: Vec<Listed<'a>>,
    damaged: Vec<Damaged<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    pool: Option<&'a str>,
    digest: &'a str,
    origin: &'a str,
    fetched: u64,
    name_matches: Option<bool>,
    recorded: bool,
}

#[derive(Serialize)]
struct Damaged<'a> {
    path: String,
    problem: &'a str,
}

/// Returns the cache as JSON. `recorded`: the node's recorded config.
pub fn list_json(all: &[Cached], recorded: Option<&str>) -> serde_json::Result<String> {
    let mut listing = Listing {
        entries: Vec::new(),
        damaged: Vec::new(),
    };
    for cached in all {
        match cached {
            Cached::Whole(entry) => listing.entries.push(Listed {
                name: &entry.name,
                pool: entry.pool.as_deref(),
                digest: &entry.digest,
                origin: &entry.origin,
                fetched: entry.fetched,
                name_matches: entry.name_matches,
                recorded: recorded == Some(entry.name.as_str()),
            }),
            Cached::Damaged(path, problem) => listing.damaged.push(Damaged {
                path: path.to_string(),
                problem,
            }),
        }
    }
    super::to_document("mco-rescue/cache/v1", &listing)
}

/// Returns the cache as text.
pub fn list_text(all: &[Cached], recorded: Option<&str>) -> String {
    if all.is_empty() {
        return wrap_text(
            &format!(
                "The cache is empty. Fill it while the network works. Next: {}",
                mco_rescue("fetch")
            ),
            0,
        );
    }
    let mut out = String::new();
    for cached in all {
        match cached {
            Cached::Whole(entry) => {
                let mark = if recorded == Some(entry.name.as_str()) {
                    "  (recorded)"
                } else {
                    ""
                };
                out.push_str(&format!("{}{mark}\n", make_inline(&entry.name)));
                let origin = format!(
                    "{} from {}",
                    format_utc(entry.fetched),
                    make_inline(&entry.origin)
                );
                out.push_str(&wrap_text(&origin, 4));
                if entry.name_matches != Some(true) {
                    out.push_str(&wrap_text(
                        &format!("name: {}", name_words(entry.name_matches)),
                        4,
                    ));
                }
            }
            Cached::Damaged(path, problem) => {
                out.push_str(&format!("{path}\n"));
                out.push_str(&wrap_text(&format!("damaged, never used: {problem}"), 4));
            }
        }
    }
    out
}
