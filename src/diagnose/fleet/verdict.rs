//! The first sentence about a node: how much was found, the worst of it, and the next command.

use serde_json::Value;

use super::{NodeHealth, list_findings, not_checked, severity_of, text_of};
use crate::base::invocation::mco_rescue;
use crate::base::text::count_noun;

/// What was found on a node, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The sentence.
    pub sentence: String,
    /// The next command, or an instruction in words; `None` if there is nothing to do.
    pub next: Option<String>,
}

/// Returns the verdict of a doctor document.
pub fn verdict_of(doctor: &Value) -> NodeVerdict {
    let Some(first) = list_findings(doctor).next() else {
        return nothing_found(doctor);
    };
    let of = |severity: NodeHealth| {
        let all = list_findings(doctor).filter(|one| severity_of(one) == severity);
        let number = all.count();
        let words = match severity {
            // These words have no plural.
            NodeHealth::Critical | NodeHealth::Unknown => format!("{number} {}", severity.word()),
            other => count_noun(number, other.word()),
        };
        (number > 0).then_some(words)
    };
    let all = [
        NodeHealth::Critical,
        NodeHealth::Warning,
        NodeHealth::Unknown,
        NodeHealth::Notice,
    ];
    let counts: Vec<String> = all.into_iter().filter_map(of).collect();
    let id = text_of(first, "id").unwrap_or("(no id)");
    let what = text_of(first, "what").unwrap_or("(not said)");
    let next = first.get("next").and_then(|all| all.get(0)?.as_str());
    NodeVerdict {
        sentence: format!("{}. First: {id}, {what}.", counts.join(", ")),
        next: Some(next.map_or_else(|| mco_rescue(&format!("doctor {id}")), str::to_owned)),
    }
}

fn nothing_found(doctor: &Value) -> NodeVerdict {
    let all = doctor.get("checks").and_then(Value::as_array);
    let all = count_noun(all.map_or(0, Vec::len), "check");
    match not_checked(doctor) {
        0 => NodeVerdict {
            sentence: format!("Nothing found by {all}."),
            next: None,
        },
        some => NodeVerdict {
            sentence: format!(
                "Nothing found by {all}, of which {some} could not look at everything."
            ),
            next: Some(mco_rescue("doctor -v")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_sentence_counts_and_names_the_first_with_its_command() {
        let doctor = json!({"findings": [
            {"id": "FP-09", "severity": "critical", "what": "expired", "next": ["date", "x"]},
            {"id": "FP-03", "severity": "warning", "what": "changed"},
            {"id": "FP-04", "severity": "warning", "what": "other"},
        ], "checks": []});
        let verdict = verdict_of(&doctor);
        assert_eq!(
            verdict.sentence,
            "1 critical, 2 warnings. First: FP-09, expired."
        );
        assert_eq!(verdict.next.as_deref(), Some("date"));
    }

    #[test]
    fn nothing_found_says_how_much_was_not_looked_at() {
        let check = |unseen: &[&str]| json!({"id": "FP-01", "unseen": unseen});
        let doctor = json!({"findings": [], "checks": [check(&[]), check(&["no /boot"])]});
        let verdict = verdict_of(&doctor);
        assert_eq!(
            verdict.sentence,
            "Nothing found by 2 checks, of which 1 could not look at everything."
        );
        assert_eq!(verdict.next.as_deref(), Some("mco-rescue doctor -v"));
        let whole = verdict_of(&json!({"findings": [], "checks": [check(&[])]}));
        assert_eq!(
            (whole.sentence.as_str(), whole.next),
            ("Nothing found by 1 check.", None)
        );
    }
}
