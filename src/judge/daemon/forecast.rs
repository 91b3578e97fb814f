//! The daemon's next start, predicted from the known annotations of the node: their source, its reliability, and both branches
//! if the source may be stale.

use serde::Serialize;

use super::start::{Annotation, Prediction, Situation, StartAnnotations, State, predict_start};
use crate::base::time::format_utc;
use crate::judge::daemon::annotations;
use crate::judge::daemon::pod_log::DaemonLog;
use crate::judge::daemon::release::ReleaseSource;

/// The forecast of the daemon's behavior, as far as these sources allow.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The release whose rules are used: `4.21`, `4.21.3`, a day of the main branch, or `newest`.
    pub release: String,
    /// Source of the release.
    pub release_source: ReleaseSource,
    /// Both as text.
    #[serde(skip)]
    pub release_words: String,
    /// Name of the Node.
    pub node: String,
    /// The source of the annotations.
    pub told: AnnotationSource,
    /// The source as text.
    #[serde(skip)]
    pub told_words: String,
    /// Time of the source; seconds since 1970.
    pub at: Option<u64>,
    /// A daemon is running now: the forecast is for its next restart.
    pub running: bool,
    /// A reboot is pending, and the forecast is for the start after it.
    pub after_reboot: bool,
    /// The forecast is for the node after a plan.
    #[serde(skip)]
    pub planned: bool,
    /// The recorded config has no kubelet.service: no pods start on the node, so there is no daemon.
    pub no_kubelet: bool,
    /// `currentConfig`, if it is known.
    pub current: Option<String>,
    /// The config that the node's record names, or will name.
    pub record: Option<String>,
    /// One branch if the annotations are known; otherwise one for each possible value.
    pub branches: Vec<Branch>,
}

/// Placeholder for a config that is not known here.
pub const ANOTHER: &str = "another config";

/// The source of the annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnnotationSource {
    /// The command line.
    Given,
    /// The API, at the last query.
    Api,
    /// The daemon's log.
    Log,
    /// The file of the node's first boot.
    FirstBoot,
    /// No source.
    #[serde(rename = "nobody")]
    Missing,
}

/// The known annotations with their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastEvidence {
    /// The annotations, as far as they are known.
    pub annotations: StartAnnotations,
    /// Their source.
    pub told: AnnotationSource,
    /// Time of the source; seconds since 1970.
    pub at: Option<u64>,
    /// The node's config has changed since, so the cluster may now want another one.
    pub doubtful: bool,
}

/// All possible sources of the annotations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Witnesses<'a> {
    /// `--desired`.
    pub given: Option<&'a str>,
    /// The API's annotations in the cache of `fetch`.
    pub api: Option<&'a annotations::Annotations>,
    /// The configs in the daemon's log.
    pub log: Option<&'a DaemonLog>,
    /// The backup copy of `node-annotations.json` after the first boot.
    pub first_boot: Option<&'a StartAnnotations>,
    /// The config that the node's record names or will name.
    pub record: Option<&'a str>,
}

/// Returns the annotations from the best source.
pub fn gather_evidence(all: &Witnesses<'_>) -> ForecastEvidence {
    let seen = all.api.map(|seen| StartAnnotations {
        current: Annotation::from_answer(seen.current.as_deref()),
        desired: Annotation::from_answer(seen.desired.as_deref()),
        current_image: image_annotation(seen, |more| &more.current_image),
        desired_image: image_annotation(seen, |more| &more.desired_image),
    });
    if let Some(name) = all.given {
        return ForecastEvidence {
            annotations: StartAnnotations {
                desired: Annotation::Is(name.to_owned()),
                ..seen.unwrap_or_default()
            },
            told: AnnotationSource::Given,
            at: None,
            doubtful: false,
        };
    }
    let named = |name: &str| all.record == Some(name);
    if let (Some(annotations), Some(seen)) = (seen, all.api) {
        // The node is between these two configs, as the API knows it.
        let is_one = |name: &Option<String>| name.as_deref().is_some_and(named);
        let elsewhere = all.record.is_some() && !is_one(&seen.current) && !is_one(&seen.desired);
        return ForecastEvidence {
            annotations,
            told: AnnotationSource::Api,
            at: Some(seen.seen),
            doubtful: elsewhere,
        };
    }
    by_the_log(all)
        .or_else(|| by_the_first_boot(all))
        .unwrap_or(ForecastEvidence {
            annotations: StartAnnotations::default(),
            told: AnnotationSource::Missing,
            at: None,
            doubtful: true,
        })
}

fn image_annotation(
    seen: &annotations::Annotations,
    of: fn(&annotations::More) -> &Option<String>,
) -> Annotation {
    let told = seen.more.as_ref();
    told.map_or(Annotation::Unknown, |more| {
        Annotation::from_answer(of(more).as_deref())
    })
}

/// Returns the annotations from the log, which shows only their effect at that time.
fn by_the_log(all: &Witnesses<'_>) -> Option<ForecastEvidence> {
    let wanted = all.log?.wanted.as_ref()?;
    Some(ForecastEvidence {
        annotations: StartAnnotations {
            desired: Annotation::Is(wanted.name.clone()),
            ..StartAnnotations::default()
        },
        told: AnnotationSource::Log,
        at: Some(wanted.at),
        doubtful: all.record.is_some_and(|record| record != wanted.name),
    })
}

/// Returns the annotations of the first boot, if the node's config has not changed since.
fn by_the_first_boot(all: &Witnesses<'_>) -> Option<ForecastEvidence> {
    let first = all.first_boot?;
    let Annotation::Is(name) = &first.desired else {
        return None;
    };
    (all.record == Some(name)).then(|| ForecastEvidence {
        annotations: first.clone(),
        told: AnnotationSource::FirstBoot,
        at: None,
        doubtful: true,
    })
}

impl ForecastEvidence {
    /// Returns the source as text.
    pub fn describe_source(&self) -> String {
        match (self.told, self.at) {
            (AnnotationSource::Given, _) => "as given".to_owned(),
            (AnnotationSource::Api, at) => {
                format!("reported by the API {}", format_utc(at.unwrap_or_default()))
            }
            (AnnotationSource::Log, at) => {
                format!(
                    "from the daemon's log, {}",
                    format_utc(at.unwrap_or_default())
                )
            }
            (AnnotationSource::FirstBoot, _) => "from the first boot".to_owned(),
            (AnnotationSource::Missing, _) => "no source".to_owned(),
        }
    }
}

/// A possible course of the daemon's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// The value of `desiredConfig` in this course; `None` if there is none.
    pub desired: Option<String>,
    /// True if the value is known, not just possible.
    pub known: bool,
    /// The daemon's behaviour.
    pub prediction: Prediction,
}

/// Predicts the daemon's start. Returns one branch if the annotations are known, otherwise one for each possible value.
pub fn forecast_branches(
    here: &Situation<'_>,
    evidence: &ForecastEvidence,
    record: Option<&str>,
) -> Vec<Branch> {
    let go = |desired: Option<&str>, known: bool| {
        let mut annotations = evidence.annotations.clone();
        if let Some(name) = desired {
            annotations.desired = Annotation::Is(name.to_owned());
        }
        let here = Situation {
            annotations: &annotations,
            ..*here
        };
        Branch {
            desired: match &annotations.desired {
                Annotation::Is(name) => Some(name.clone()),
                Annotation::Unknown | Annotation::Absent => None,
            },
            known,
            prediction: predict_start(&here),
        }
    };
    let first = go(None, true);
    let told = evidence.annotations.desired != Annotation::Unknown;
    // A pool never targets a config that is not a rendered one.
    let wanted = record.filter(|name| name.starts_with("rendered-"));
    let other = wanted.filter(|name| first.desired.as_deref() != Some(*name));
    match (told, record) {
        (true, _) if !evidence.doubtful => vec![first],
        (true, Some(_)) => merge_branches(first, go(Some(other.unwrap_or(ANOTHER)), false)),
        (false, Some(_)) if first.prediction.state == State::Unknown => match wanted {
            Some(record) => merge_branches(go(Some(record), false), go(Some(ANOTHER), false)),
            None => vec![go(Some(ANOTHER), false)],
        },
        _ => vec![first],
    }
}

/// Merges branches with the same result, which then does not depend on the cluster's desired config.
fn merge_branches(one: Branch, other: Branch) -> Vec<Branch> {
    let (seen, also) = (&one.prediction, &other.prediction);
    if seen.error.is_none() || seen.error != also.error || seen.update.is_some() {
        return vec![one, other];
    }
    vec![Branch {
        desired: one.desired.filter(|_| one.known),
        known: true,
        prediction: one.prediction,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(current: &str, desired: &str) -> annotations::Annotations {
        annotations::Annotations::new("n", 7, Some(current.into()), Some(desired.into()), None)
    }

    #[test]
    fn what_is_given_wins_over_the_api_and_that_over_the_log() {
        let seen = seen("a", "b");
        let all = Witnesses {
            given: Some("c"),
            api: Some(&seen),
            record: Some("b"),
            ..Witnesses::default()
        };
        let given = gather_evidence(&all);
        assert_eq!(given.told, AnnotationSource::Given);
        assert_eq!(given.annotations.desired, Annotation::Is("c".into()));
        assert_eq!(given.annotations.current, Annotation::Is("a".into()));
        let api = gather_evidence(&Witnesses { given: None, ..all });
        assert_eq!(
            (api.told, api.at, api.doubtful),
            (AnnotationSource::Api, Some(7), false)
        );
        let elsewhere = gather_evidence(&Witnesses {
            given: None,
            record: Some("x"),
            ..all
        });
        assert!(elsewhere.doubtful);
    }

    #[test]
    fn the_first_boot_tells_only_of_a_node_that_went_nowhere_since() {
        let first = StartAnnotations {
            current: Annotation::Is("a".into()),
            desired: Annotation::Is("a".into()),
            ..StartAnnotations::default()
        };
        let at = |record| {
            gather_evidence(&Witnesses {
                first_boot: Some(&first),
                record: Some(record),
                ..Witnesses::default()
            })
            .told
        };
        assert_eq!(
            (at("a"), at("b")),
            (AnnotationSource::FirstBoot, AnnotationSource::Missing)
        );
    }
}
