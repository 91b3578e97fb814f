//! The result of `change`, as text and as JSON (`mco-rescue/change/v1`).

use serde_json::Value;

use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::base::text::make_inline;
use crate::change::source::changes::KeptChange;
use crate::formats::go_yaml::{self, YamlNode};
use crate::run::change::DerivedChange;

/// Returns the change as JSON.
pub fn to_json(change: &DerivedChange) -> serde_json::Result<String> {
    super::to_document("mco-rescue/change/v1", change)
}

/// Returns the change as text.
pub fn to_text(change: &DerivedChange) -> String {
    let mut out = String::new();
    for (name, text) in [
        ("Change", change.what.as_str()),
        ("From", &change.from),
        ("Config", &change.config),
        ("Name", name_words(change)),
    ] {
        out.push_str(&format!("{name:<8}{}", wrap_text(text, 8).trim_start()));
    }
    for words in change.reasons.iter().chain(&change.notes) {
        out.push_str(&format!("  - {}", wrap_text(words, 4).trim_start()));
    }
    if change.unchanged {
        return out + "\nNothing changes: the config has it already.\n";
    }
    if !change.objects.is_empty() {
        out.push_str("\nFor the API, when it is back (oc apply -f FILE):\n\n");
    }
    for object in &change.objects {
        for line in to_yaml(object).lines() {
            out.push_str(&format!("  {line}\n"));
        }
    }
    out.push('\n');
    for words in &change.if_forgotten {
        out.push_str(&wrap_text(&format!("If that is forgotten: {words}."), 0));
    }
    out
}

/// Returns the command for the objects, which comes after that of the plan.
pub fn objects_command() -> String {
    let command = mco_rescue("status --for-cluster --changes");
    format!("then: {command} > changes.yaml\n")
}

fn name_words(change: &DerivedChange) -> &'static str {
    match (change.unchanged, change.exact) {
        (true, _) => "as before",
        (_, true) => "exact: the cluster gives the same one to the same objects",
        (_, false) => "not sure: the cluster may give another one to the same contents, because:",
    }
}

/// Returns the objects of a stored change, with its notes as comments.
pub fn objects_text(change: &KeptChange) -> String {
    let mut out = format!("# {}\n", make_inline(&change.what));
    for note in &change.notes {
        for line in wrap_text(note, 0).lines() {
            out.push_str(&format!("# {line}\n"));
        }
    }
    out + &change.objects.iter().map(to_yaml).collect::<String>()
}

/// Returns an object as a YAML document for `oc apply`, including its `---` line.
pub fn to_yaml(object: &Value) -> String {
    let mut text = "---\n".to_owned();
    if let Value::Object(entries) = object {
        let nodes: Vec<(&str, YamlNode<'_>)> = entries
            .iter()
            .map(|(key, value)| (key.as_str(), YamlNode::from(value)))
            .collect();
        let entries = nodes.iter().map(|(key, node)| (*key, node));
        go_yaml::write_shown_yaml(entries, &mut |piece| text.push_str(piece));
    }
    text
}
