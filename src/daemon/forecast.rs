//! What will be, by what is known of the node's annotations: who told of them, how far that holds, and both branches
//! where it does not.

use serde::Serialize;

use super::start::{Annotation, Annotations, Prediction, Situation, State, predict};
use crate::daemon::annotations;
use crate::daemon::pod_log::DaemonLog;
use crate::time::utc;

/// What will be, as far as anybody here can know.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The day of the daemon's source that the rules are of.
    pub release: String,
    /// Name of the Node.
    pub node: String,
    /// Who told of the annotations.
    pub told: Told,
    /// The same for a person.
    #[serde(skip)]
    pub told_words: String,
    /// When that was; seconds since 1970.
    pub at: Option<u64>,
    /// A daemon runs now: it looks at the node like this when it is started anew.
    pub running: bool,
    /// A reboot is waited for, and told of is what comes after it.
    pub after_reboot: bool,
    /// It is what will be once a plan is carried out.
    #[serde(skip)]
    pub planned: bool,
    /// The recorded config has no kubelet.service, so no pod starts on the node, and no daemon either.
    pub no_kubelet: bool,
    /// `currentConfig`, where it is known.
    pub current: Option<String>,
    /// The config that the node is, or will be, recorded to be in.
    pub record: Option<String>,
    /// One where the annotations are known, else one for each thing that they can say.
    pub branches: Vec<Branch>,
}

/// What stands for a config that is none of those that are known.
pub const ANOTHER: &str = "another config";

/// Who told of the annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The command line.
    Given,
    /// The API, when it was asked last.
    Api,
    /// The daemon's log.
    Log,
    /// What the node brought along to its first boot.
    FirstBoot,
    /// Nobody.
    Nobody,
}

/// What is known of the annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// As far as they are known.
    pub annotations: Annotations,
    /// By whom.
    pub told: Told,
    /// When that was; seconds since 1970.
    pub at: Option<u64>,
    /// The node has gone elsewhere since, so the cluster may want something else by now.
    pub doubtful: bool,
}

/// Everything that may tell of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Witnesses<'a> {
    /// `--desired`.
    pub given: Option<&'a str>,
    /// What `fetch` kept of the API.
    pub api: Option<&'a annotations::Annotations>,
    /// What the daemon's log tells.
    pub log: Option<&'a DaemonLog>,
    /// `node-annotations.json` as the daemon put it away after the first boot.
    pub first_boot: Option<&'a Annotations>,
    /// The config that the node is or will be recorded to be in.
    pub record: Option<&'a str>,
}

/// The best evidence.
pub fn evidence(all: &Witnesses<'_>) -> Evidence {
    let seen = all.api.map(|seen| Annotations {
        current: Annotation::told(seen.current.as_deref()),
        desired: Annotation::told(seen.desired.as_deref()),
        current_image: image(seen, |more| &more.current_image),
        desired_image: image(seen, |more| &more.desired_image),
    });
    if let Some(name) = all.given {
        return Evidence {
            annotations: Annotations {
                desired: Annotation::Is(name.to_owned()),
                ..seen.unwrap_or_default()
            },
            told: Told::Given,
            at: None,
            doubtful: false,
        };
    }
    let named = |name: &str| all.record == Some(name);
    if let (Some(annotations), Some(seen)) = (seen, all.api) {
        // On its way from one of them to the other it is where the API left it.
        let is_one = |name: &Option<String>| name.as_deref().is_some_and(named);
        let elsewhere = all.record.is_some() && !is_one(&seen.current) && !is_one(&seen.desired);
        return Evidence {
            annotations,
            told: Told::Api,
            at: Some(seen.seen),
            doubtful: elsewhere,
        };
    }
    by_the_log(all)
        .or_else(|| by_the_first_boot(all))
        .unwrap_or(Evidence {
            annotations: Annotations::default(),
            told: Told::Nobody,
            at: None,
            doubtful: true,
        })
}

fn image(
    seen: &annotations::Annotations,
    of: fn(&annotations::More) -> &Option<String>,
) -> Annotation {
    let told = seen.more.as_ref();
    told.map_or(Annotation::Unknown, |more| {
        Annotation::told(of(more).as_deref())
    })
}

/// It tells only what the daemon made of the annotations then.
fn by_the_log(all: &Witnesses<'_>) -> Option<Evidence> {
    let wanted = all.log?.wanted.as_ref()?;
    Some(Evidence {
        annotations: Annotations {
            desired: Annotation::Is(wanted.name.clone()),
            ..Annotations::default()
        },
        told: Told::Log,
        at: Some(wanted.at),
        doubtful: all.record.is_some_and(|record| record != wanted.name),
    })
}

/// Only as long as the node has gone nowhere since.
fn by_the_first_boot(all: &Witnesses<'_>) -> Option<Evidence> {
    let first = all.first_boot?;
    let Annotation::Is(name) = &first.desired else {
        return None;
    };
    (all.record == Some(name)).then(|| Evidence {
        annotations: first.clone(),
        told: Told::FirstBoot,
        at: None,
        doubtful: true,
    })
}

impl Evidence {
    /// For a person.
    pub fn words(&self) -> String {
        match (self.told, self.at) {
            (Told::Given, _) => "as given".to_owned(),
            (Told::Api, at) => format!("as the API had it {}", utc(at.unwrap_or_default())),
            (Told::Log, at) => {
                format!(
                    "as far as the daemon's log of {} tells",
                    utc(at.unwrap_or_default())
                )
            }
            (Told::FirstBoot, _) => "as it was at the first boot".to_owned(),
            (Told::Nobody, _) => "nobody here knows".to_owned(),
        }
    }
}

/// One of the ways in which it can go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// The value of `desiredConfig` that it goes by; nothing where there is none.
    pub desired: Option<String>,
    /// Whether that is known, or only one of the possibilities.
    pub known: bool,
    /// What will be.
    pub prediction: Prediction,
}

/// What will be. One branch where the annotations are known; else one for each thing that they can say.
pub fn branches(here: &Situation<'_>, evidence: &Evidence, record: Option<&str>) -> Vec<Branch> {
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
            prediction: predict(&here),
        }
    };
    let first = go(None, true);
    let told = evidence.annotations.desired != Annotation::Unknown;
    // No pool is ever in a config that was not rendered.
    let wanted = record.filter(|name| name.starts_with("rendered-"));
    let other = wanted.filter(|name| first.desired.as_deref() != Some(*name));
    match (told, record) {
        (true, _) if !evidence.doubtful => vec![first],
        (true, Some(_)) => either(first, go(Some(other.unwrap_or(ANOTHER)), false)),
        (false, Some(_)) if first.prediction.state == State::Unknown => match wanted {
            Some(record) => either(go(Some(record), false), go(Some(ANOTHER), false)),
            None => vec![go(Some(ANOTHER), false)],
        },
        _ => vec![first],
    }
}

/// What comes to the same in any case is said once, and is no question of what the cluster wants.
fn either(one: Branch, other: Branch) -> Vec<Branch> {
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
        let given = evidence(&all);
        assert_eq!(given.told, Told::Given);
        assert_eq!(given.annotations.desired, Annotation::Is("c".into()));
        assert_eq!(given.annotations.current, Annotation::Is("a".into()));
        let api = evidence(&Witnesses { given: None, ..all });
        assert_eq!(
            (api.told, api.at, api.doubtful),
            (Told::Api, Some(7), false)
        );
        let elsewhere = evidence(&Witnesses {
            given: None,
            record: Some("x"),
            ..all
        });
        assert!(elsewhere.doubtful);
    }

    #[test]
    fn the_first_boot_tells_only_of_a_node_that_went_nowhere_since() {
        let first = Annotations {
            current: Annotation::Is("a".into()),
            desired: Annotation::Is("a".into()),
            ..Annotations::default()
        };
        let at = |record| {
            evidence(&Witnesses {
                first_boot: Some(&first),
                record: Some(record),
                ..Witnesses::default()
            })
            .told
        };
        assert_eq!((at("a"), at("b")), (Told::FirstBoot, Told::Nobody));
    }
}
