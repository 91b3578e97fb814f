//! The facts of a status document.

use serde_json::Value;

use super::text_of;

/// One of the facts at the top of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFact {
    /// The name of the fact.
    pub label: &'static str,
    /// Its value.
    pub value: String,
    /// True if it needs attention.
    pub alarm: bool,
}

/// A fact that is compared between siblings, with its reader.
type Compared = (&'static str, fn(&Value) -> String);

/// The facts that are the same on all nodes of a healthy pool.
pub(super) const COMPARED: [Compared; 8] = [
    ("config", |status| {
        or_none(text_of(status, "recorded").map(str::to_owned))
    }),
    ("recorded image", |status| {
        or_none(text_of(status, "recorded_image").map(str::to_owned))
    }),
    ("desired config", |status| or_none(desired_config(status))),
    ("running image", |status| or_none(running_image(status))),
    ("changed by hand", |status| or_none(by_hand(status))),
    ("next boot", |status| {
        or_none(next_boot(status).map(|(words, _)| words))
    }),
    ("interrupted run", |status| or_none(interrupted_run(status))),
    ("daemon", |status| {
        or_none(daemon_state(status).map(|(words, _)| words))
    }),
];

/// Returns the pool in the name of a rendered config.
pub fn pool_of_config(name: &str) -> Option<&str> {
    let (pool, _) = name.strip_prefix("rendered-")?.rsplit_once('-')?;
    Some(pool).filter(|pool| !pool.is_empty())
}

/// Returns what is running, what boots next, what is recorded, what is unfinished, and what the daemon will do.
pub fn five_facts(status: &Value) -> [StatusFact; 5] {
    let fact = |label, value: Option<String>, empty: &str, alarm| StatusFact {
        label,
        value: value.unwrap_or_else(|| empty.to_owned()),
        alarm,
    };
    let runs = match (running_image(status), text_of(status, "deployment")) {
        (Some(image), Some(deployment)) => Some(format!("{image} (deployment {deployment})")),
        (Some(image), None) => Some(image),
        (None, deployment) => deployment.map(|name| format!("deployment {name}")),
    };
    let hand = by_hand(status).map(|words| format!("; changed by hand: {words}"));
    let runs = runs.map(|runs| runs + &hand.unwrap_or_default());
    let (next, next_alarm) = match next_boot(status) {
        Some((words, alarm)) => (Some(words), alarm),
        None => (None, false),
    };
    let note = text_of(status, "record_note");
    let recorded = match (text_of(status, "recorded"), note) {
        (Some(name), Some(note)) => Some(format!("{name}; {note}")),
        (Some(name), None) => Some(name.to_owned()),
        (None, note) => note.map(str::to_owned),
    };
    let interrupted = interrupted_run(status);
    let is_half = interrupted.is_some() && text_of(status, "pending") != Some("staged");
    let (daemon, daemon_alarm) = match daemon_state(status) {
        Some((words, alarm)) => (Some(words), alarm),
        None => (None, false),
    };
    [
        fact(
            "Running",
            runs,
            "not known: no OSTree system, or its engine did not answer",
            false,
        ),
        fact("Next boot", next, "the same", next_alarm),
        fact("Recorded config", recorded, "none", note.is_some()),
        fact("Interrupted run", interrupted, "none", is_half),
        fact(
            "The daemon, when it starts",
            daemon,
            "not known",
            daemon_alarm,
        ),
    ]
}

fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| "(none)".to_owned())
}

fn running_image(status: &Value) -> Option<String> {
    text_of(status.get("os")?, "booted").map(str::to_owned)
}

fn desired_config(status: &Value) -> Option<String> {
    text_of(status.get("annotations")?, "desired").map(str::to_owned)
}

fn by_hand(status: &Value) -> Option<String> {
    let all = status.get("os")?.get("by_hand")?.as_array()?;
    let words: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Returns what the next boot enters if that differs from what is running, and whether it needs attention.
fn next_boot(status: &Value) -> Option<(String, bool)> {
    let empty = Value::Null;
    let os = status.get("os").unwrap_or(&empty);
    let awaited = status.get("awaited").unwrap_or(&empty);
    let half = status.get("half").unwrap_or(&empty);
    let config = awaited
        .get("config")
        .and_then(|config| text_of(config, "name"));
    let failed = text_of(awaited, "failed");
    let locked = os.get("staged_locked").and_then(Value::as_bool) == Some(true);
    let mut parts: Vec<String> = Vec::new();
    parts.extend(text_of(os, "staged").map(|image| {
        if locked {
            format!("{image}, which is locked: no reboot enters it")
        } else {
            image.to_owned()
        }
    }));
    parts.extend(text_of(os, "staged_by").map(|by| format!("staged by {by}")));
    parts.extend(config.map(|name| match text_of(awaited, "way") {
        Some("back") => format!("the way back from {name}"),
        _ => format!("awaited: {name}"),
    }));
    parts.extend(failed.map(|why| format!("failed: {why}")));
    parts.extend(text_of(half, "words").map(str::to_owned));
    parts.extend(text_of(os, "problem").map(str::to_owned));
    let alarm = failed.is_some() || text_of(half, "words").is_some();
    (!parts.is_empty()).then(|| (parts.join("; "), alarm))
}

fn interrupted_run(status: &Value) -> Option<String> {
    let words = match text_of(status, "pending")? {
        "nothing" => return None,
        "staged" => "files of a run that changed nothing",
        "unfinished" => "a run was interrupted",
        "committed" => "a finished run is not cleaned up",
        other => other,
    };
    Some(match text_of(status, "pending_config") {
        Some(config) => format!("{words}: {config}"),
        None => words.to_owned(),
    })
}

/// Returns the states that the daemon may reach.
fn daemon_state(status: &Value) -> Option<(String, bool)> {
    let daemon = status.get("daemon")?;
    if daemon.get("no_kubelet").and_then(Value::as_bool) == Some(true) {
        return Some((
            "no daemon starts: the config has no kubelet".to_owned(),
            false,
        ));
    }
    let mut states: Vec<&str> = Vec::new();
    let branches = daemon.get("branches").and_then(Value::as_array);
    for branch in branches.into_iter().flatten() {
        let state = branch
            .get("prediction")
            .and_then(|one| text_of(one, "state"));
        states.extend(state.filter(|state| !states.contains(state)));
    }
    let words = states.join(" or ");
    let alarm = matches!(words.as_str(), "degraded" | "unreconcilable");
    (!words.is_empty()).then_some((words, alarm))
}
