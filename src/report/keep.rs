//! The result of `keep`: the MachineConfig, what it contains, and what it does not (`mco-rescue/keep/v1`).

use serde::Serialize;
use serde_json::Value;

use super::wrap_text;
use crate::base::invocation::{advise_doctor, mco_rescue, shell_word};
use crate::base::text::{count_noun, make_inline};
use crate::diagnose::keep::{Keeping, Kept, Unkept};
use crate::formats::go_yaml::{YamlNode, write_shown_yaml};
use crate::judge::drift::Drift;

/// The changes that were kept from a node.
#[derive(Debug)]
pub struct KeepReport<'a> {
    /// Name of the MachineConfig.
    pub name: &'a str,
    /// Name of the recorded config.
    pub recorded: &'a str,
    /// The file that was written.
    pub to: Option<&'a str>,
    /// Paths were named, and only those were compared.
    pub is_limited: bool,
    /// The MachineConfig, and what it holds.
    pub kept: &'a Kept,
    /// The differences from the recorded config that remain with it.
    pub left: &'a [Drift],
}

#[derive(Serialize)]
struct KeepDocument<'a> {
    schema: &'static str,
    name: &'a str,
    recorded: &'a str,
    to: Option<&'a str>,
    exact: bool,
    machine_config: Option<&'a Value>,
    kept: &'a [Keeping],
    not_kept: &'a [Unkept],
    left: Vec<LeftEntry<'a>>,
}

#[derive(Serialize)]
struct LeftEntry<'a> {
    subject: &'a str,
    detail: &'a str,
}

/// Returns the MachineConfig as YAML.
pub fn to_yaml(config: &Value) -> String {
    let mut text = String::new();
    if let YamlNode::Object(entries) = YamlNode::from(config) {
        let entries = entries.iter().map(|(key, value)| (key.as_ref(), value));
        write_shown_yaml(entries, &mut |piece| text.push_str(piece));
    }
    text
}

/// Returns the result as JSON, without contents that were written to a file.
///
/// # Errors
/// The serializer's error.
pub fn to_json(report: &KeepReport<'_>) -> serde_json::Result<String> {
    let left = report.left.iter().map(|drift| LeftEntry {
        subject: &drift.subject,
        detail: &drift.detail,
    });
    let document = KeepDocument {
        schema: "mco-rescue/keep/v1",
        name: report.name,
        recorded: report.recorded,
        to: report.to,
        exact: report.kept.unkept.is_empty() && report.left.is_empty(),
        machine_config: report.kept.config.as_ref().filter(|_| report.to.is_none()),
        kept: &report.kept.kept,
        not_kept: &report.kept.unkept,
        left: left.collect(),
    };
    super::pretty(&document)
}

/// Returns the result as text.
pub fn to_text(report: &KeepReport<'_>) -> String {
    let kept = report.kept;
    let recorded = make_inline(report.recorded);
    if kept.kept.is_empty() && kept.unkept.is_empty() {
        return wrap_text(
            &format!("Nothing differs from {recorded}, so there is nothing to keep."),
            0,
        );
    }
    let mut out = match &kept.config {
        Some(_) => {
            let number = count_noun(kept.kept.len(), "difference");
            wrap_text(
                &format!("{} holds {number} from {recorded}:", report.name),
                0,
            )
        }
        None => wrap_text(
            &format!("Nothing that differs from {recorded} was kept."),
            0,
        ),
    };
    for one in &kept.kept {
        out.push_str(&wrap_text(
            &format!("{}: {}", make_inline(&one.subject), one.what),
            2,
        ));
    }
    if !kept.unkept.is_empty() {
        out.push_str("\nNot kept:\n");
    }
    for one in &kept.unkept {
        let text = format!(
            "{}: {}. {}",
            make_inline(&one.subject),
            make_inline(&one.reason),
            advise_doctor(&one.next)
        );
        out.push_str(&wrap_text(&text, 2));
    }
    if !report.left.is_empty() {
        out.push_str("\nStill different with it:\n");
    }
    for drift in report.left {
        let text = format!(
            "{}: {}",
            make_inline(&drift.subject),
            make_inline(&drift.detail)
        );
        out.push_str(&wrap_text(&text, 2));
    }
    if kept.config.is_some() {
        out.push('\n');
        out.push_str(&wrap_text(&conclusion(report), 0));
    }
    out
}

fn conclusion(report: &KeepReport<'_>) -> String {
    let recorded = make_inline(report.recorded);
    let what = if report.is_limited {
        "the named paths as they are on this node"
    } else {
        "what the config manages as it is on this node (other files have to be named)"
    };
    let except = if report.kept.unkept.is_empty() && report.left.is_empty() {
        ""
    } else {
        ", except for the above"
    };
    let proof = format!("Merged over {recorded}, it gives {what}{except}.");
    let file = report.to.map_or_else(|| "FILE".to_owned(), shell_word);
    format!(
        "{proof} The first command makes a config with it in the cache, and prints the command that applies that config without the API; \
         the second one, once the API is back, gives it to all nodes of the pool. Next: {}, then oc apply -f {file}",
        mco_rescue(&format!("change with {file}"))
    )
}
