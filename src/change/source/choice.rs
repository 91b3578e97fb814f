//! Chooses a config if the user named none (docs/reference/fetch.md): one pure function.
//!
//! The first choice is the cluster's desired config, if the node has an intact copy, then the recorded one. A newer config is
//! never chosen automatically: the daemon would revert it with a reboot, and a config that was fetched late need not be newer.
//! All other configs in the sources are reported with the reason why they were not chosen.

use std::collections::BTreeSet;

use serde::Serialize;

use super::cache::{self, CacheEntry, Cached};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::time::format_utc;
use crate::change::source::identity::{Membership, NodeIdentity};
use crate::config::document::MachineConfig;
use crate::judge::daemon::annotations::Annotations;
use crate::judge::daemon::pod_log::{DaemonLog, LogTrace};
use crate::node::{Baseline, RecordReader, Recorded, Records};

/// The sources on the node itself.
#[derive(Debug, Clone, Copy)]
pub struct KnownSources<'a> {
    /// The daemon's records.
    pub records: &'a Records,
    /// The cache.
    pub cache: &'a [Cached],
    /// The node's annotations from the API.
    pub annotations: Option<&'a Annotations>,
    /// The configs in the daemon's log, the weakest evidence.
    pub log: Option<&'a DaemonLog>,
    /// The node's pool.
    pub node: &'a NodeIdentity,
}

/// Returns the newest suitable config of the cache in the node's pool, or if that is unknown, in the only pool of the cache.
///
/// # Errors
/// The possible pools if there are several; empty if no config is suitable.
pub(super) fn find_newest<'a>(
    kept: &KnownSources<'a>,
    fits: impl Fn(&CacheEntry) -> bool,
) -> Result<&'a CacheEntry, Vec<String>> {
    let pool = |entry: &CacheEntry| entry.pool.clone().unwrap_or_default();
    let stands = |entry: &CacheEntry| {
        kept.node
            .membership_of(entry.pool.as_deref().unwrap_or_default())
    };
    let all: Vec<&CacheEntry> = cache::whole_entries(kept.cache)
        .filter(|entry| fits(entry))
        .collect();
    if let Some(own) = all.iter().find(|entry| stands(entry) == Membership::Member) {
        return Ok(own);
    }
    let unknown = |entry: &&&CacheEntry| stands(entry) == Membership::Unknown;
    let left: Vec<&&CacheEntry> = all.iter().filter(unknown).collect();
    let pools: BTreeSet<String> = left.iter().map(|entry| pool(entry)).collect();
    match left.first() {
        Some(newest) if pools.len() == 1 => Ok(newest),
        _ => Err(pools.into_iter().collect()),
    }
}

/// A config that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// `metadata.name`, or the file name if that is unreadable.
    pub name: String,
    /// The source of the config, or of its name.
    pub origin: String,
    /// Time of the fetch or of the source, in seconds since 1970.
    pub fetched: Option<u64>,
    /// The contents match the hash in the name.
    pub name_matches: Option<bool>,
    /// The reason why it was not chosen, and how to choose it.
    pub why: String,
}

/// The location of the chosen config.
#[derive(Debug, Clone, Copy)]
pub enum Pick<'a> {
    /// In the daemon's records.
    Record(&'a MachineConfig),
    /// In the cache.
    Cache(&'a CacheEntry),
}

impl Pick<'_> {
    /// Returns the name of the config.
    pub fn name(&self) -> &str {
        match self {
            Self::Record(config) => &config.name,
            Self::Cache(entry) => &entry.name,
        }
    }
}

/// The chosen config with its reason.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    /// The config.
    pub pick: Pick<'a>,
    /// The reason, as text.
    pub why: String,
    /// All other configs in the sources, best evidence first.
    pub others: Vec<Candidate>,
}

/// Chooses a config, or returns the reason why there is none.
pub fn by_itself<'a>(kept: &KnownSources<'a>) -> Result<Choice<'a>, Reason> {
    let (pick, why) = match find_wanted(kept) {
        Some((entry, why)) => (Pick::Cache(entry), why),
        None => find_recorded(kept).map_err(|why| with_hints(&why, kept))?,
    };
    Ok(Choice {
        pick,
        why,
        others: list_others(kept, &pick),
    })
}

/// A source that names the cluster's desired config.
#[derive(Clone, Copy)]
enum ChoiceWitness<'a> {
    Annotations(&'a Annotations, &'a str),
    Log(&'a LogTrace),
}

impl<'a> ChoiceWitness<'a> {
    fn wants(self) -> &'a str {
        match self {
            Self::Annotations(_, desired) => desired,
            Self::Log(trace) => &trace.name,
        }
    }

    fn when(self) -> u64 {
        match self {
            Self::Annotations(seen, _) => seen.seen,
            Self::Log(trace) => trace.at,
        }
    }

    /// Returns true if the source is out of date: a younger record names neither of its two configs. The source's desired
    /// config may then be older than the node's.
    fn is_past(self, records: &Records) -> bool {
        let before = match self {
            Self::Annotations(seen, _) => seen.current.as_deref(),
            Self::Log(trace) => Some(trace.from.as_deref().unwrap_or_default()),
        };
        let younger = records.written.is_some_and(|at| at > self.when());
        let gone_on = |recorded: &MachineConfig| {
            before.is_some_and(|before| before != recorded.name) && self.wants() != recorded.name
        };
        younger && records.recorded_config().is_some_and(gone_on)
    }

    fn origin(self) -> String {
        match self {
            Self::Annotations(..) => "the node's annotations".to_owned(),
            Self::Log(trace) => format!("the daemon's log ({})", trace.file),
        }
    }
}

/// Returns the sources. The controller writes the annotations; the log only shows that the daemon used them.
fn list_witnesses<'a>(kept: &KnownSources<'a>) -> Vec<ChoiceWitness<'a>> {
    let annotated = kept.annotations.and_then(|seen| {
        let desired = seen.desired.as_deref()?;
        Some(ChoiceWitness::Annotations(seen, desired))
    });
    let logged = kept.log.and_then(|log| log.wanted.as_ref());
    let all = annotated.into_iter().chain(logged.map(ChoiceWitness::Log));
    all.collect()
}

/// Returns the best source's config, if the record is neither that config nor a later one, and the cache has an intact copy.
fn find_wanted<'a>(kept: &KnownSources<'a>) -> Option<(&'a CacheEntry, String)> {
    let best = *list_witnesses(kept).first()?;
    if kept.records.name().as_deref() == Some(best.wants()) || best.is_past(kept.records) {
        return None;
    }
    let intact =
        |entry: &&CacheEntry| entry.name == best.wants() && entry.name_matches == Some(true);
    let entry = cache::whole_entries(kept.cache).find(intact)?;
    let why = match best {
        ChoiceWitness::Annotations(..) => {
            "the cluster's last desired config for this node, from the cache".to_owned()
        }
        ChoiceWitness::Log(trace) => format!(
            "the cluster's last desired config for this node, from the daemon's log of {}, from \
             the cache",
            format_utc(trace.at)
        ),
    };
    Some((entry, why))
}

fn find_recorded<'a>(kept: &KnownSources<'a>) -> Result<(Pick<'a>, String), Reason> {
    if let Recorded::Broken(problem) = &kept.records.current_config {
        return by_its_name(kept)
            .ok_or_else(|| format!("the recorded config cannot be used: {problem}").into());
    }
    let problem = match kept.records.baseline() {
        Baseline::Known(config) => {
            let why = "the recorded config of this node".to_owned();
            return Ok((Pick::Record(config), why));
        }
        Baseline::Unknown(problem) => problem,
    };
    if let (Recorded::Missing, Recorded::Present(full)) =
        (&kept.records.current_config, &kept.records.mcs_content)
        && !full.emptied
    {
        let why = "the config of the node's first boot; no later one is recorded".to_owned();
        return Ok((Pick::Record(full), why));
    }
    let name = kept.records.name();
    let fits = |entry: &&CacheEntry| {
        Some(&entry.name) == name.as_ref() && entry.name_matches != Some(false)
    };
    match cache::whole_entries(kept.cache).find(fits) {
        Some(full) => {
            let why = "the full config of the recorded name, from the cache".to_owned();
            Ok((Pick::Cache(full), why))
        }
        None => Err(problem.into()),
    }
}

/// Returns the config with the name in a record that is refused here, because the daemon compares the node with the API's
/// object of that name.
fn by_its_name<'a>(kept: &KnownSources<'a>) -> Option<(Pick<'a>, String)> {
    let RecordReader::Reads(name) = &kept.records.reader else {
        return None;
    };
    let proven = |entry: &&CacheEntry| entry.name == *name && entry.name_matches == Some(true);
    let full = cache::whole_entries(kept.cache).find(proven)?;
    let why = "the config of the recorded name, from the cache; the record itself is refused here";
    Some((Pick::Cache(full), why.to_owned()))
}

/// Adds available alternatives to a reason.
fn with_hints(why: &Reason, kept: &KnownSources<'_>) -> Reason {
    let wanted = list_witnesses(kept).first().map(|best| {
        let (name, origin) = (best.wants(), best.origin());
        format!(". The cluster's last desired config is {name} by {origin}, but the cache has no intact copy: {}", mco_rescue("fetch"))
    });
    let newest = match find_newest(kept, |_| true) {
        Ok(newest) => {
            let name = &newest.name;
            Some(format!(
                ". The newest in the cache is {name}: `{}`",
                mco_rescue(&format!("plan cached:{name}"))
            ))
        }
        Err(pools) if pools.is_empty() => None,
        Err(pools) => Some(format!(
            ". The cache has configs of several pools ({}), and no source here names this node's pool: {}",
            pools.join(", "),
            mco_rescue("cache list")
        )),
    };
    let hints: String = wanted.into_iter().chain(newest).collect();
    format!("{why}{hints}").into()
}

/// Returns all other configs, each once: the recorded one, those in the sources, then the cache.
fn list_others(kept: &KnownSources<'_>, pick: &Pick<'_>) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = not_the_recorded(kept.records, pick).into_iter().collect();
    for witness in list_witnesses(kept) {
        let name = witness.wants();
        if name != pick.name() && all.iter().all(|other| other.name != name) {
            all.push(lost_candidate(witness, kept));
        }
    }
    let told: Vec<String> = all.iter().map(|other| other.name.clone()).collect();
    let rest = kept
        .cache
        .iter()
        .filter_map(|cached| unasked_candidate(cached, pick));
    all.extend(rest.filter(|other| !told.contains(&other.name)));
    all
}

/// Returns all other configs in the cache.
pub fn find_rivals(chosen: &CacheEntry, cache: &[Cached]) -> Vec<Candidate> {
    let pick = Pick::Cache(chosen);
    let all = cache.iter();
    all.filter_map(|cached| unasked_candidate(cached, &pick))
        .collect()
}

fn not_the_recorded(records: &Records, pick: &Pick<'_>) -> Option<Candidate> {
    let (name, why) = match &records.current_config {
        Recorded::Present(config) if config.name != pick.name() => (
            config.name.clone(),
            "recorded, but the cluster desired another one later".to_owned(),
        ),
        Recorded::Broken(problem) => (
            "currentconfig".to_owned(),
            format!("recorded, but it cannot be used: {problem}"),
        ),
        _ => return None,
    };
    Some(Candidate {
        name,
        origin: format!("/{}", paths::CURRENT_CONFIG),
        fetched: None,
        name_matches: None,
        why,
    })
}

/// Returns the config of a source, with the reason why it was not chosen.
fn lost_candidate(witness: ChoiceWitness<'_>, kept: &KnownSources<'_>) -> Candidate {
    let name = witness.wants();
    let entry = cache::whole_entries(kept.cache).find(|entry| entry.name == name);
    let desired = kept.annotations.and_then(|seen| seen.desired.as_deref());
    let why = match (witness, desired, entry) {
        _ if witness.is_past(kept.records) => {
            "desired by the cluster earlier, but the node has moved on to the recorded one"
                .to_owned()
        }
        (ChoiceWitness::Log(_), Some(desired), _) => format!(
            "last desired according to the daemon's log, but the node's annotations name {desired}, and they take precedence"
        ),
        (ChoiceWitness::Log(_), None, _) => {
            format!(
                "last desired according to the daemon's log, but {}",
                describe_missing(entry)
            )
        }
        (ChoiceWitness::Annotations(..), ..) => {
            format!(
                "last desired by the cluster, but {}",
                describe_missing(entry)
            )
        }
    };
    Candidate {
        name: name.to_owned(),
        origin: witness.origin(),
        fetched: Some(witness.when()),
        name_matches: entry.and_then(|entry| entry.name_matches),
        why,
    }
}

fn describe_missing(entry: Option<&CacheEntry>) -> String {
    let which = match entry {
        Some(_) => ": the hash in its name does not match its contents",
        None => "",
    };
    format!(
        "the cache has no intact copy{which}. Get it: {}",
        mco_rescue("fetch")
    )
}

fn unasked_candidate(cached: &Cached, pick: &Pick<'_>) -> Option<Candidate> {
    let entry = match cached {
        Cached::Whole(entry) => entry,
        Cached::Damaged(path, problem) => {
            return Some(Candidate {
                name: path.name().to_owned(),
                origin: path.to_string(),
                fetched: None,
                name_matches: None,
                why: format!("in the cache, damaged: {problem}"),
            });
        }
    };
    let same_name = entry.name == pick.name();
    let same = match pick {
        Pick::Cache(chosen) => entry.digest == chosen.digest,
        // The daemon formats its record differently, so digests of the same contents may differ.
        Pick::Record(config) => {
            entry.digest == config.digest || (same_name && entry.name_matches != Some(false))
        }
    };
    let why = match (same, same_name) {
        (true, _) => return None,
        (false, true) => "in the cache, with the same name but other contents".to_owned(),
        (false, false) => format!(
            "in the cache, not requested; use it with cached:{}",
            entry.name
        ),
    };
    Some(Candidate {
        name: entry.name.clone(),
        origin: entry.origin.clone(),
        fetched: Some(entry.fetched),
        name_matches: entry.name_matches,
        why,
    })
}

#[cfg(test)]
mod tests;
