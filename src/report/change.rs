//! The result of `change`, as text and as JSON (`mco-rescue/change/v1`).

use serde::Serialize;
use serde_json::Value;

use super::wrap;
use crate::go_yaml::{self, YamlNode};
use crate::invocation::mco_rescue;
use crate::source::changes::title_of;

/// A change that was derived.
#[derive(Debug, Serialize)]
pub struct DerivedChange {
    /// The change in words.
    pub what: String,
    /// Name of the new rendered config.
    pub config: String,
    /// Name of the config that it was made from.
    pub from: String,
    /// The pool.
    pub pool: String,
    /// The contents are those of the config that it was made from.
    pub unchanged: bool,
    /// The cluster gives the same name to the same objects.
    pub exact: bool,
    /// Reasons why the name may differ.
    pub reasons: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
    /// The effect of forgetting the objects.
    pub if_forgotten: Vec<String>,
    /// The objects for the API.
    pub objects: Vec<Value>,
    /// The new config is in the cache.
    pub kept: bool,
}

#[derive(Serialize)]
struct ChangeDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    change: &'a DerivedChange,
}

/// Returns the change as JSON.
pub fn to_json(change: &DerivedChange) -> serde_json::Result<String> {
    let document = ChangeDocument {
        schema: "mco-rescue/change/v1",
        change,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// Returns the change as text.
pub fn to_text(change: &DerivedChange) -> String {
    let mut out = String::new();
    let mut field = |name: &str, text: &str| out.push_str(&wrap(&format!("{name:<10}{text}"), 10));
    field("Change", &format!("{}\n", change.what));
    field("From", &format!("{}\n", change.from));
    field("Config", &format!("{}\n", change.config));
    let name = match change.exact {
        true => "exact: the cluster gives the same name to the same objects",
        false => "the cluster may give another one",
    };
    field("Name", &format!("{name}\n"));
    for reason in change.reasons.iter().chain(&change.notes) {
        out.push_str(&(wrap(&format!("  - {reason}"), 4) + "\n"));
    }
    if change.unchanged {
        out.push_str("\nNothing changes: the config has it already.\n");
        return out;
    }
    let titles: Vec<String> = change.objects.iter().map(title_of).collect();
    let words = format!(
        "When the API is back, give it {}: oc apply -f. Until then `{}` has it.",
        titles.join(", "),
        mco_rescue("status --for-cluster --changes")
    );
    out.push_str(&format!("\n{}\n", wrap(&words, 0)));
    for words in &change.if_forgotten {
        out.push_str(&(wrap(&format!("  If that is forgotten: {words}"), 2) + "\n"));
    }
    for object in &change.objects {
        out.push('\n');
        for line in to_yaml(object).lines() {
            out.push_str(&format!("  {line}\n"));
        }
    }
    out
}

/// An object as a YAML document for `oc apply`, with its line of dashes.
pub fn to_yaml(object: &Value) -> String {
    let mut text = "---\n".to_owned();
    if let Value::Object(entries) = object {
        let nodes: Vec<(&str, YamlNode<'_>)> = entries
            .iter()
            .map(|(key, value)| (key.as_str(), YamlNode::from(value)))
            .collect();
        let entries = nodes.iter().map(|(key, node)| (*key, node));
        go_yaml::write_yaml(entries, &mut |piece| text.push_str(piece));
    }
    text
}
