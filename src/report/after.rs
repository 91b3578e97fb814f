//! Actions after the files: the planned ones, the results, and the remaining ones, as text and as JSON.

use serde_json::{Value, json};

use super::wrap_text;
use crate::base::invocation::{on_node, reboot_command};
use crate::base::text::make_inline;
use crate::change::plan::After;
use crate::judge::daemon::{Action, Queued, policies};
use crate::node::command::job::Job;
use crate::run::apply::JobsDone;

/// Returns the actions as JSON.
pub fn to_json(after: &After) -> Value {
    let entry = |queued: &Queued| {
        let mut value = json!(policies::PolicyAction::from(&queued.action));
        value["why"] = json!(queued.cause.to_string());
        value
    };
    let list = |queue: &[Queued]| queue.iter().map(entry).collect::<Vec<_>>();
    json!({
        "policies": after.policies,
        "queue": list(&after.queue),
        "repairs": list(&after.repairs),
        "unserved": after.unserved,
        "drain": after.drain,
        "reboot": after.needs_reboot(),
    })
}

/// Returns the actions as text, as part of a plan.
pub fn to_text(after: &After) -> String {
    let mut out = wrap_text(&format!("After the files ({}):", after.policies), 0);
    let items = after.queue.iter().chain(&after.repairs);
    for queued in items {
        out.push_str(&item(&sentence(queued)));
    }
    if after.queue.is_empty() && after.repairs.is_empty() {
        out.push_str(&item("nothing is reloaded or restarted"));
    }
    if !after.unserved.is_empty() && !after.needs_reboot() {
        let all = few(&after.unserved);
        out.push_str(&item(&format!(
            "no policy for {all}: programs that have read it use the old content until they are restarted"
        )));
    }
    if let Some(why) = &after.drain {
        let words = "the daemon would drain the node first";
        out.push_str(&item(&format!(
            "{words} ({why}); mco-rescue does not (--stop-workloads stops pods)"
        )));
    }
    out + "\n"
}

/// Returns an action with its cause.
fn sentence(queued: &Queued) -> String {
    match queued.action {
        Action::Reboot => format!("a reboot is required, but not done now: {}", queued.cause),
        Action::Drain => format!("a drain, which mco-rescue does not do: {}", queued.cause),
        _ => format!("{} ({})", queued.action, queued.cause),
    }
}

/// Returns the first entries of a list; the JSON document has all of them.
fn few(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|what| make_inline(what))
        .collect();
    match all.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn item(text: &str) -> String {
    format!("  - {}", wrap_text(text, 4).trim_start())
}

/// Returns the results of the actions; empty if there are none.
fn results(told: &JobsDone) -> String {
    let mut out = String::new();
    for (job, done) in &told.done {
        out.push_str(&item(&format!("{job}: {}", done.words())));
    }
    if !out.is_empty() {
        out.insert_str(0, "Actions on the running system:\n");
    }
    out
}

/// Returns the results at the beginning of a trial, whose next step is the confirmation; a reboot comes after that.
pub fn tried_text(after: &After, told: &JobsDone) -> String {
    let mut out = results(told);
    if after.needs_reboot() {
        let cause = after.causes().join(", ");
        let words = format!("Once it is confirmed, the daemon still asks for a reboot: {cause}.");
        out.push_str(&wrap_text(&words, 0));
    }
    out
}

/// Returns the results and the next step at the end of `apply`.
pub fn done_text(after: &After, told: &JobsDone) -> String {
    let mut out = results(told);
    if after.needs_reboot() {
        let cause = after.causes().join(", ");
        out.push_str(&wrap_text(
            &format!("Reboot needed for the new files: {cause}."),
            0,
        ));
        return out + &format!("Next: {}\n", reboot_command());
    }
    if !after.unserved.is_empty() {
        let all = few(&after.unserved);
        let words = format!("Restart what reads {all}, or reboot.");
        out.push_str(&wrap_text(&words, 0));
    }
    let mut next: Vec<String> = told.left.iter().map(Job::command_text).collect();
    if after.unread_units {
        next.insert(0, "systemctl daemon-reload".to_owned());
    }
    if !next.is_empty() {
        let next = next.iter().map(on_node);
        let next = next.collect::<Vec<_>>().join(", then ");
        out.push_str(&wrap_text(&format!("Next: {next}"), 0));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::daemon::ActionCause;
    use crate::node::command::job::Done;
    use crate::report::WIDTH;

    fn reload() -> Queued {
        let path = "/etc/containers/policy.json".to_owned();
        Queued {
            action: Action::Reload("crio.service".into()),
            cause: ActionCause::File(path.clone(), path),
        }
    }

    fn after() -> After {
        After {
            queue: vec![reload()],
            unserved: vec!["/etc/chrony.conf".into()],
            unread_units: true,
            drain: Some("in registries.conf registry a.example is removed".into()),
            policies: "the operator's default policies; those of the cluster are not known here"
                .into(),
            ..After::default()
        }
    }

    #[test]
    fn a_plan_says_what_follows_why_and_by_whose_policies() {
        let text = to_text(&after());
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "After the files (the operator's default policies;",
            "- reload crio.service (policy for /etc/containers/policy.json)",
            "no policy for /etc/chrony.conf",
            "the daemon would drain the node first (in registries.conf registry a.example is removed)",
        ] {
            assert!(flat.contains(words), "no {words:?} in {flat}");
        }
    }

    #[test]
    fn what_is_left_is_the_next_step() {
        let left = JobsDone {
            done: vec![(Job::Reload("crio.service".into()), Done::NotRunning)],
            left: vec![Job::Restart("a.service".into())],
        };
        let said = done_text(&after(), &left);
        assert!(said.contains("reload crio.service: not running"), "{said}");
        let next = "Restart what reads /etc/chrony.conf, or reboot.\nNext: systemctl daemon-reload\nthen: systemctl restart a.service\n";
        assert!(said.ends_with(next), "{said}");
        let nothing = After {
            queue: vec![reload()],
            ..After::default()
        };
        assert_eq!(done_text(&nothing, &JobsDone::default()), "");
    }

    #[test]
    fn a_reboot_is_the_only_next_step() {
        let reboot = After {
            queue: vec![Queued {
                action: Action::Reboot,
                cause: ActionCause::FileWithoutPolicy("/etc/x".into()),
            }],
            unread_units: false,
            unserved: vec!["/etc/y".into()],
            ..After::default()
        };
        let said = done_text(&reboot, &JobsDone::default());
        assert!(!to_text(&reboot).contains("/etc/y"), "the reboot serves it");
        let wanted =
            "Reboot needed for the new files: /etc/x has no policy.\nNext: systemctl reboot\n";
        assert_eq!(said, wanted);
    }

    #[test]
    fn programs_get_the_actions_as_the_api_has_them() {
        let json = to_json(&after());
        let wanted = json!({"type": "Reload", "reload": {"serviceName": "crio.service"},
            "why": "policy for /etc/containers/policy.json"});
        assert_eq!(json["queue"], json!([wanted]));
        assert_eq!(json["reboot"], json!(false));
    }
}
