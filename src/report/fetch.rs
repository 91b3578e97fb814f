//! What `fetch` kept and what `cache` holds, as text and as JSON (`mco-rescue/fetch/v1`, `mco-rescue/cache/v1`).

use std::collections::BTreeSet;

use serde::Serialize;

use super::wrap;
use crate::daemon::annotations::Annotations;
use crate::daemon::pod_log::{DaemonLog, Trace};
use crate::daemon::policies::{Asked, Policies};
use crate::invocation::mco_rescue;
use crate::source::cache::Cached;
use crate::text::{count, inline};
use crate::time::utc;

/// What came of a `fetch`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// What is in the cache now.
    pub kept: Vec<Fetched>,
    /// Files of a directory that are not.
    pub passed_over: Vec<PassedOver>,
    /// What was seen of the cluster besides.
    #[serde(flatten)]
    pub seen: Seen,
}

/// What is known of the cluster's will, the best evidence first.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Seen {
    /// The node's annotations as the API had them.
    pub annotations: Option<Annotations>,
    /// The last configs that the daemon's log on the node tells of.
    pub daemon_log: Option<DaemonLog>,
    /// The disruption policies, and what came of asking for them the last time.
    pub policies: Option<Policies>,
}

/// A file that was not kept.
#[derive(Debug, Clone, Serialize)]
pub struct PassedOver {
    /// The file.
    pub path: String,
    /// Why.
    pub why: String,
}

/// A config that was got.
#[derive(Debug, Clone, Serialize)]
pub struct Fetched {
    /// `metadata.name`.
    pub name: String,
    /// The pool.
    pub pool: Option<String>,
    /// SHA-256 of the MachineConfig as received.
    pub digest: String,
    /// Where it was got from.
    pub origin: String,
    /// Whether the hash in its name is that of its contents.
    pub name_matches: Option<bool>,
    /// Whether the cache did not have it before.
    pub new: bool,
    /// Whether the node is recorded to be in it.
    pub recorded: bool,
    /// Whether its pool is the node's; nothing where nothing tells.
    pub own_pool: Option<bool>,
    /// Names of older configs that made room.
    pub forgotten: Vec<String>,
}

#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// For programs.
pub fn json(outcome: &Outcome) -> serde_json::Result<String> {
    let document = Document {
        schema: "mco-rescue/fetch/v1",
        body: outcome,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people.
pub fn text(outcome: &Outcome) -> String {
    let pools: BTreeSet<&Option<String>> = outcome.kept.iter().map(|one| &one.pool).collect();
    let mut out = match pools.len() {
        0 | 1 => outcome.kept.iter().map(|one| kept(one, true)).collect(),
        _ => by_pool(&outcome.kept, &pools),
    };
    for passed in &outcome.passed_over {
        out.push_str(&format!("Not kept  {}\n", inline(&passed.path)));
        out.push_str(&wrap(&passed.why, 10));
    }
    out + &seen(&outcome.seen)
}

/// The same for people.
pub fn seen(seen: &Seen) -> String {
    let annotations = seen.annotations.iter().map(annotated);
    let log = seen.daemon_log.iter().map(logged);
    let policies = seen.policies.iter().map(allowed);
    annotations.chain(log).chain(policies).collect()
}

/// The traces of the daemon's log; as they are old news, with their time.
fn logged(log: &DaemonLog) -> String {
    let line = |label: &str, what: &str, trace: Option<&Trace>| match trace {
        Some(trace) => format!(
            "{label:<10}{what} {} ({})\n",
            inline(&trace.name),
            utc(trace.at)
        ),
        None => String::new(),
    };
    let current = line("Log", "current", log.current.as_ref());
    let label = if current.is_empty() { "Log" } else { "" };
    current + &line(label, "wanted ", log.wanted.as_ref())
}

/// The disruption policies in one line, two where the last answer gave none.
fn allowed(policies: &Policies) -> String {
    let asked = match policies.asked {
        Asked::Given => None,
        Asked::NotAllowed => Some("not allowed to read them"),
        Asked::None => Some("the cluster has none"),
        Asked::NotReady => Some("the operator was not done with them"),
    };
    let known = policies.known.as_ref().map(|known| {
        let (files, units) = (known.cluster.files.len(), known.cluster.units.len());
        let what = format!("{} and {}", count(files, "file"), count(units, "unit"));
        format!("for {what} ({})", utc(known.seen))
    });
    let asked = asked.map(|said| format!("{said} ({})", utc(policies.at)));
    let passing = policies.overrides.as_ref().and_then(|overrides| {
        let names = overrides.storage.iter().map(|name| inline(name));
        let names = names.collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("changes that pass: {names} ({})", utc(overrides.seen)))
    });
    let lines = known.into_iter().chain(asked).chain(passing);
    let labels = ["Policies", "", ""].into_iter();
    let lines = labels
        .zip(lines)
        .map(|(label, line)| format!("{label:<10}{line}\n"));
    lines.collect()
}

/// The node's annotations in two lines.
fn annotated(seen: &Annotations) -> String {
    let word = |value: &Option<String>| inline(value.as_deref().unwrap_or("(none)"));
    format!(
        "Annotated current {}, {}\n          desired {} ({})\n",
        word(&seen.current),
        word(&seen.state),
        word(&seen.desired),
        utc(seen.seen),
    )
}

/// Several pools: only what is of the node's own is suggested.
fn by_pool(all: &[Fetched], pools: &BTreeSet<&Option<String>>) -> String {
    let mut out = String::new();
    for pool in pools {
        let of_pool = all.iter().filter(|one| one.pool == **pool);
        let own = of_pool.clone().any(|one| one.own_pool == Some(true));
        let name = inline(pool.as_deref().unwrap_or("(none)"));
        let mark = if own { " (this node's)" } else { "" };
        out.push_str(&format!("Pool      {name}{mark}\n"));
        out.extend(of_pool.map(|one| kept(one, one.own_pool == Some(true))));
    }
    if all.iter().all(|one| one.own_pool != Some(true)) {
        let said = match all.iter().all(|one| one.own_pool == Some(false)) {
            true => format!(
                "None of these pools is this node's. Next: {}, for its own pool",
                mco_rescue("fetch")
            ),
            false => {
                format!(
                    "Nothing on this node tells which pool it is of. Next: {}, with a config of its pool",
                    mco_rescue("plan cached:NAME")
                )
            }
        };
        out.push_str(&wrap(&said, 0));
    }
    out
}

/// `suggests`: it may be named as the next step.
fn kept(fetched: &Fetched, suggests: bool) -> String {
    let mut out = format!("Kept      {}\n", inline(&fetched.name));
    out.push_str(&format!("From      {}\n", inline(&fetched.origin)));
    out.push_str(&format!("Name      {}\n", name_words(fetched.name_matches)));
    for name in &fetched.forgotten {
        out.push_str(&format!("Forgotten {}\n", inline(name)));
    }
    let foreign = || {
        let pool = fetched.pool.as_deref().unwrap_or_default();
        format!("It is of pool {pool}, and this node is of another one.")
    };
    let next = match (fetched.recorded, fetched.new) {
        _ if suggests && fetched.own_pool == Some(false) => foreign(),
        (false, true) if !suggests => return out,
        (true, _) => "It is the config that the node is recorded to be in.".to_owned(),
        (false, false) => "The cache had it already.".to_owned(),
        (false, true) => format!(
            "Next: {}",
            mco_rescue(&format!("plan cached:{}", fetched.name))
        ),
    };
    out.push_str(&wrap(&next, 0));
    out
}

fn name_words(matches: Option<bool>) -> &'static str {
    match matches {
        Some(true) => "its hash is that of the contents",
        Some(false) => {
            "its hash is NOT that of the contents: it was changed, or rendered by another release"
        }
        None => "has no hash, so it is no rendered config of a pool",
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

/// The cache for programs. `recorded`: the config that the node is recorded to be in.
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
    let document = Document {
        schema: "mco-rescue/cache/v1",
        body: &listing,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// The cache for people.
pub fn list_text(all: &[Cached], recorded: Option<&str>) -> String {
    if all.is_empty() {
        return wrap(
            &format!(
                "The cache is empty. Next: {}, while the network is good",
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
                out.push_str(&format!("{}{mark}\n", inline(&entry.name)));
                let origin = format!("{} from {}", utc(entry.fetched), inline(&entry.origin));
                out.push_str(&wrap(&origin, 4));
                if entry.name_matches != Some(true) {
                    out.push_str(&wrap(
                        &format!("name: {}", name_words(entry.name_matches)),
                        4,
                    ));
                }
            }
            Cached::Damaged(path, problem) => {
                out.push_str(&format!("{path}\n"));
                out.push_str(&wrap(&format!("damaged, never used: {problem}"), 4));
            }
        }
    }
    out
}
