//! `status --metrics`: the state of the node in the Prometheus text format, for the textfile collector of node_exporter.
//!
//! Names and units follow Prometheus conventions: a prefix, base units, times as seconds since 1970. An unknown value is
//! omitted, and its help text says so.

use crate::change::transaction::{PendingState, RunOutcome};
use crate::change::trial::TrialOutcome;
use crate::judge::drift::OsMatch;
use crate::run::status::NodeStatus;

/// The first line of every file, by which an earlier file is recognized.
const BEGINNING: &str = "# HELP mco_rescue_info ";

/// Returns true for the beginning of a file created by [`to_metrics`].
pub fn is_metrics(bytes: &[u8]) -> bool {
    bytes.starts_with(BEGINNING.as_bytes())
}

/// Returns the metrics of a node. `cached`: the times at which the configs in its cache were fetched.
pub fn to_metrics(report: &NodeStatus, cached: &[u64]) -> String {
    let mut page = MetricsPage::default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let desired = report.seen.annotations.as_ref();
    let desired = desired.and_then(|seen| seen.desired.clone());
    page.begin("info", "Version of mco-rescue, and the configs by name: recorded on the node, and wanted by the cluster when it was last seen.");
    page.add(
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            ("recorded", &text(&report.recorded)),
            ("desired", &text(&desired)),
        ],
        1,
    );
    page.one(
        "record_usable",
        "1 if the daemon's record of the node's config can be used, else 0.",
        Some((report.recorded.is_some() && report.record_note.is_none()).into()),
    );
    // A record that cannot be read may be of any config.
    let is_known = report.recorded.is_some() || report.record_note.is_none();
    let match_of = desired
        .filter(|_| is_known)
        .map(|wanted| report.recorded.as_ref() == Some(&wanted));
    page.one("config_recorded_is_desired", "1 if the recorded config is the one that the cluster wanted when it was last seen, else 0. Missing if the cluster was never seen, and where the record cannot be read.",
        match_of.map(u64::from));
    page.one(
        "os_is_recorded",
        "1 if the running operating system is the recorded one, else 0. Missing where that is not known, such as without an answer of rpm-ostree.",
        match report.os_match {
            OsMatch::Recorded => Some(1),
            OsMatch::Differs(_) => Some(0),
            OsMatch::NoneToCompare | OsMatch::Unknown(_) => None,
        },
    );
    page.one(
        "run_unfinished",
        "1 while a run is unfinished and needs mco-rescue recover, else 0.",
        Some((report.pending == PendingState::Unfinished).into()),
    );
    page.one(
        "reboot_needed",
        "1 while files were changed that what runs reads only at a reboot, else 0.",
        Some(report.reboot.is_some().into()),
    );
    add_awaited(&mut page, report);
    add_next_boot(&mut page, report);
    add_trial(&mut page, report);
    add_last_run(&mut page, report);
    page.one(
        "cache_configs",
        "Number of whole configs in the node's cache.",
        u64::try_from(cached.len()).ok(),
    );
    page.one("cache_newest_timestamp_seconds", "Time at which the newest config of the cache was fetched, in seconds since 1970. Missing with an empty cache.",
        cached.iter().max().copied());
    page.one(
        "status_timestamp_seconds",
        "Time at which these metrics were made, in seconds since 1970.",
        Some(report.now),
    );
    page.text
}

fn add_awaited(page: &mut MetricsPage, report: &NodeStatus) {
    let awaited = report.awaited.as_ref();
    let failed = awaited.is_some_and(|awaited| awaited.failed.is_some());
    page.one(
        "boot_awaited",
        "1 while a run waits for the next boot, else 0.",
        Some((awaited.is_some() && !failed).into()),
    );
    page.one(
        "boot_failed",
        "1 if the last awaited boot did not bring what was staged, else 0.",
        Some(failed.into()),
    );
}

fn add_next_boot(page: &mut MetricsPage, report: &NodeStatus) {
    let next = report.next_boot.as_ref();
    let is_foreign = next.map(|next| next.way != "stays" && next.awaited != Some(true));
    page.one(
        "next_boot_foreign",
        "1 if the next boot enters something that is not running and that no run waits for, else 0. Missing where it is not known.",
        is_foreign.map(u64::from),
    );
    page.one(
        "next_boot_awaited",
        "1 if the next boot enters what a run waits for, 0 if it enters something else. Missing where no run waits.",
        next.and_then(|next| next.awaited).map(u64::from),
    );
}

fn add_trial(page: &mut MetricsPage, report: &NodeStatus) {
    let trial = report.trial.as_ref();
    page.one(
        "trial_running",
        "1 while a change is on trial, else 0. Missing where that cannot be read.",
        (!report.is_unreadable("trial")).then(|| trial.is_some().into()),
    );
    page.one(
        "trial_guarded",
        "1 if a guard reverts the trial in time, else 0. Missing without a trial, and where systemd does not report it.",
        trial.and_then(|trial| trial.guarded).map(u64::from),
    );
    page.one("trial_remaining_seconds", "Seconds until the current phase of the trial ends. Missing without a trial, and where it has no end.",
        trial.and_then(|trial| trial.remaining));
    let Some(last) = &report.last_trial else {
        return;
    };
    page.begin(
        "last_trial_result",
        "1 for the result of the last trial, 0 for the others. Missing without a trial, and where it cannot be read.",
    );
    for (word, outcome) in [
        ("confirmed", TrialOutcome::Confirmed),
        ("reverted", TrialOutcome::Reverted),
        ("partly-reverted", TrialOutcome::PartlyReverted),
        ("not-reverted", TrialOutcome::NotReverted),
    ] {
        page.add(&[("result", word)], (last.outcome == outcome).into());
    }
    page.one(
        "last_trial_finished_timestamp_seconds",
        "Time at which the last trial ended, in seconds since 1970.",
        Some(last.ended),
    );
}

fn add_last_run(page: &mut MetricsPage, report: &NodeStatus) {
    let Some(run) = &report.last_run else { return };
    page.begin(
        "last_run_result",
        "1 for the result of the last run, 0 for the others. Missing without a run, and where it cannot be read.",
    );
    for (word, outcome) in [
        ("done", RunOutcome::Done),
        ("rolled-back", RunOutcome::RolledBack),
        ("incomplete", RunOutcome::Incomplete),
        ("recovered", RunOutcome::Recovered),
        ("undone", RunOutcome::Undone),
    ] {
        page.add(&[("result", word)], (run.outcome == outcome).into());
    }
    page.one(
        "last_run_finished_timestamp_seconds",
        "Time at which the last run ended, in seconds since 1970.",
        Some(run.finished),
    );
}

/// The page in progress; every metric is a gauge.
#[derive(Default)]
struct MetricsPage {
    text: String,
    name: &'static str,
}

impl MetricsPage {
    /// Begins a metric; its samples follow.
    fn begin(&mut self, name: &'static str, help: &str) {
        self.name = name;
        self.text += &format!("# HELP mco_rescue_{name} {help}\n# TYPE mco_rescue_{name} gauge\n");
    }

    /// Adds a sample to the current metric.
    fn add(&mut self, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        self.text += &format!("mco_rescue_{}{labels} {value}\n", self.name);
    }

    /// Adds a metric with one sample; omits it if the value is unknown.
    fn one(&mut self, name: &'static str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.begin(name, help);
            self.add(&[], value);
        }
    }
}

/// Returns a label value, escaped for the format.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_as_the_format_wants() {
        let mut page = MetricsPage::default();
        page.begin("x", "Help.");
        page.add(&[("a", "one \"two\"\\\n")], 3);
        page.one("y", "Nothing.", None);
        assert_eq!(
            page.text,
            "# HELP mco_rescue_x Help.\n# TYPE mco_rescue_x gauge\nmco_rescue_x{a=\"one \\\"two\\\"\\\\\\n\"} 3\n"
        );
    }

    #[test]
    fn only_a_file_of_this_option_is_known() {
        assert!(is_metrics(b"# HELP mco_rescue_info Version\n"));
        assert!(!is_metrics(b"# HELP node_info Version\n"));
        assert!(!is_metrics(b""));
    }
}
