//! The daemon's behavior at its next start, in a few lines, and as JSON (`daemon` of the documents that contain it).

use serde::{Serialize, Serializer};

use super::wrap_text;
use crate::base::invocation::{STAGE_OS, mco_rescue, on_booted_node, on_node};
use crate::base::text::make_inline;
use crate::judge::daemon::forecast::{ANOTHER, Branch, Forecast};
use crate::judge::daemon::start::{Prediction, StartUpdate, State};

#[derive(Serialize)]
struct ForecastDocument<'a> {
    #[serde(flatten)]
    forecast: &'a Forecast,
    next: Option<String>,
}

/// Serializes the forecast with its next step, for the JSON of other reports.
///
/// # Errors
/// The serializer's error.
pub fn described<S: Serializer>(forecast: &Option<Forecast>, out: S) -> Result<S::Ok, S::Error> {
    let document = forecast.as_ref().map(|forecast| ForecastDocument {
        forecast,
        next: forecast.next(),
    });
    document.serialize(out)
}

impl Forecast {
    /// Returns the forecast as text, introduced by `begin`, such as `When the daemon starts`.
    pub fn text(&self, begin: &str) -> String {
        if self.depends_on_desired() {
            let words = "adopted if the cluster wants this config, else it updates";
            return hanging(&format!("{begin}: {words}"));
        }
        let mut out = String::new();
        let mut rest = self.branches.iter();
        match self.branches.first().filter(|first| first.known) {
            Some(first) => {
                out.push_str(&self.known(begin, first));
                rest.next();
            }
            None => {
                let words = "unknown: it depends on the cluster's desired config, and no source here names it";
                out.push_str(&hanging(&format!("{begin}: {words}")));
            }
        }
        for other in rest {
            out.push_str(&self.possible(other));
        }
        if self.no_kubelet {
            let words = "But the recorded config has no kubelet.service: without a kubelet no daemon starts";
            out.push_str(&hanging(words));
        }
        out
    }

    /// Returns true if nothing is known but that the daemon adopts the recorded config, and updates to any other one.
    pub fn depends_on_desired(&self) -> bool {
        let [ours, other] = self.branches.as_slice() else {
            return false;
        };
        let is_plain = |branch: &Branch| {
            let seen = &branch.prediction;
            !branch.known && seen.error.is_none() && seen.pivot.is_none()
        };
        let adopted = &ours.prediction;
        let update = other.prediction.update.as_ref();
        is_plain(ours)
            && is_plain(other)
            && adopted.state == State::Done
            && adopted.update.is_none()
            && update.is_some_and(|update| update.to == ANOTHER)
            && !self.no_kubelet
    }

    /// Returns true if the daemon stops with an error in the most likely case.
    pub fn stops(&self) -> bool {
        let first = self.branches.first().map(|branch| branch.prediction.state);
        matches!(first, Some(State::Degraded | State::Unreconcilable))
    }

    /// Returns the forecast for the node in its current state, with the next step.
    pub fn text_with_next(&self) -> String {
        let next = self.next();
        let next = next.map(|next| hanging(&format!("Next: {next}")));
        self.text(self.begin()) + &next.unwrap_or_default()
    }

    /// Returns the introduction of a forecast for the node in its current state.
    pub fn begin(&self) -> &'static str {
        if self.after_reboot {
            "After the reboot, when the daemon starts"
        } else if self.running {
            "When the daemon, which runs now, is restarted"
        } else {
            "When the daemon starts"
        }
    }

    fn known(&self, begin: &str, branch: &Branch) -> String {
        let seen = &branch.prediction;
        let mut out = hanging(&format!("{begin}: {}", self.headline(seen)));
        out.push_str(&said(seen));
        if let Some(desired) = &branch.desired {
            let words = format!("desired is {desired} ({})", self.told_words);
            out.push_str(&wrap_text(&words, 2));
        }
        for why in &seen.because {
            out.push_str(&wrap_text(why, 2));
        }
        // While another error makes it Degraded, they do not matter yet.
        if !seen.needs.is_empty() && seen.error.is_none() {
            let needs = seen.needs.iter();
            let names: Vec<&str> = needs.map(|need| need.machine_config.as_str()).collect();
            out.push_str(&wrap_text(
                &format!("needs in the API: {}", names.join(", ")),
                2,
            ));
        }
        out
    }

    fn possible(&self, branch: &Branch) -> String {
        let desired = branch.desired.as_deref().unwrap_or_default();
        let seen = &branch.prediction;
        let words = format!("If desired is {desired}: {}", self.headline(seen));
        let unsaid = seen.state == State::Degraded && seen.error.is_none();
        let why = seen.because.first().filter(|_| unsaid);
        hanging(&words) + &said(seen) + &why.map(|why| wrap_text(why, 2)).unwrap_or_default()
    }

    fn headline(&self, seen: &Prediction) -> String {
        match (seen.state, &seen.update, &seen.pivot) {
            (State::Degraded, Some(update), _) => midway(update, seen),
            (State::Degraded, ..) => "it is Degraded, and reports:".to_owned(),
            (State::Unreconcilable, ..) => "it is Unreconcilable, and reports:".to_owned(),
            (State::Unknown, ..) => "unknown".to_owned(),
            (_, Some(update), _) => self.goes(update, seen),
            (_, None, Some(image)) => format!("it rebases to {image}, with a reboot"),
            (State::Done | State::Working, None, None) => "adopted, no reboot".to_owned(),
        }
    }

    fn goes(&self, update: &StartUpdate, seen: &Prediction) -> String {
        let verb = if update.from == update.to {
            "applies again"
        } else if self.current.as_deref() == Some(update.to.as_str()) {
            "reverts to"
        } else {
            "updates to"
        };
        let takes = match (seen.drain, seen.reboot) {
            (Some(true), Some(true)) => "with a drain and a reboot",
            (Some(false), Some(true)) => "with a reboot",
            (Some(true), Some(false)) => "with a drain, no reboot",
            (Some(false), Some(false)) => "no drain, no reboot",
            _ => "with a drain and a reboot if the changes need them",
        };
        if update.to == ANOTHER {
            return format!("it updates to that one, {takes}");
        }
        format!("it {verb} {}, {takes}", update.to)
    }

    /// Returns the next step for the most likely case, if it needs one.
    pub fn next(&self) -> Option<String> {
        if self.no_kubelet {
            return Some(mco_rescue("doctor"));
        }
        let first = self.branches.first()?;
        let seen = &first.prediction;
        let said = seen.error.as_deref().unwrap_or_default();
        match seen.state {
            // No run fixes what the daemon cannot find because it splits at blanks.
            State::Degraded if said.contains("kernel arguments") && said.contains('"') => {
                Some(mco_rescue("doctor FP-18"))
            }
            State::Degraded if said.contains("osImageURL") || said.contains("kernel arguments") => {
                Some(on_booted_node(STAGE_OS))
            }
            State::Degraded if said.contains("Supported spec versions") => Some(format!(
                "{} # CONFIG: one of a version that the daemon supports",
                mco_rescue("plan CONFIG")
            )),
            State::Degraded if said.starts_with("unexpected on-disk state") && self.planned => {
                Some(format!(
                    "{} # the cluster's config of that name",
                    mco_rescue("fetch")
                ))
            }
            State::Degraded if said.starts_with("unexpected on-disk state") => Some(format!(
                "{}, then {}",
                mco_rescue("verify"),
                mco_rescue("apply")
            )),
            State::Degraded if said.contains("kubeconfig") => Some(format!(
                "{} # it shows how to restore /etc/kubernetes/kubeconfig",
                mco_rescue("doctor")
            )),
            State::Degraded if said.starts_with("error running podman") => {
                let asks = on_node("podman images");
                Some(format!(
                    "{asks} # until it answers, the daemon stages no image"
                ))
            }
            State::Degraded if seen.update.is_some() => Some(format!(
                "{} # CONFIG: that one; it names the obstacle",
                mco_rescue("plan CONFIG")
            )),
            State::Degraded if said.starts_with("extension package") => {
                let asks = on_node("rpm-ostree status");
                Some(format!("{asks} # the packages must be layered"))
            }
            State::Degraded
                if said.contains("annotation not found") || said.contains("generated MC") =>
            {
                Some(format!(
                    "{} # objects for when the API is back",
                    mco_rescue("status --for-cluster")
                ))
            }
            State::Degraded if self.planned => Some(mco_rescue("doctor")),
            State::Degraded => Some(format!(
                "{}, then {} # rewrites the record",
                mco_rescue("plan CONFIG"),
                mco_rescue("apply CONFIG")
            )),
            State::Unreconcilable => Some(format!(
                "{} # CONFIG: that one; it says why. The cluster must desire another one",
                mco_rescue("plan CONFIG")
            )),
            // The node's own config is what is not known.
            State::Unknown if first.desired.is_some() && first.known => Some(format!(
                "{}, then {} # CONFIG: that of this node; writes the record",
                mco_rescue("plan CONFIG"),
                mco_rescue("apply CONFIG")
            )),
            State::Unknown => Some(format!(
                "{}, or {}",
                mco_rescue("status --desired NAME"),
                mco_rescue("fetch")
            )),
            State::Working if !seen.force_file_after && seen.update.is_some() => Some(format!(
                "{} # objects that make the cluster keep this node as it is",
                mco_rescue("status --for-cluster")
            )),
            State::Working | State::Done => None,
        }
    }
}

/// Returns the headline of an update that begins and fails.
fn midway(update: &StartUpdate, seen: &Prediction) -> String {
    let drained = match seen.drain {
        Some(true) => ", after a drain",
        _ => "",
    };
    let says = match seen.error {
        Some(_) => ", and reports:",
        None => ":",
    };
    format!(
        "its update to {} fails partway{drained}: it is Degraded{says}",
        update.to
    )
}

/// Returns the daemon's message on one line, so that it can be searched for and copied.
fn said(seen: &Prediction) -> String {
    let said = seen.error.as_deref();
    said.map_or_else(String::new, |said| {
        format!("  {}\n", make_inline(said.trim_end()))
    })
}

/// Returns the text wrapped, with all lines except the first indented.
fn hanging(text: &str) -> String {
    wrap_text(text, 2).trim_start().to_owned()
}
