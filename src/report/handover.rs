//! The commands that return a node to the cluster, with comments, and as JSON (`mco-rescue/for-cluster/v1`).

use super::wrap_text;
use crate::base::text::make_inline;
use crate::judge::daemon::handover::{Handover, HandoverStep};

/// Returns the commands as JSON.
pub fn to_json(handover: &Handover) -> serde_json::Result<String> {
    super::to_document("mco-rescue/for-cluster/v1", handover)
}

/// Returns the commands as text, to be run step by step. Each command is on one line.
pub fn to_text(handover: &Handover) -> String {
    let begin = format!(
        "To bring node {} to {}, when the API is back: run with oc, step by step, as cluster-admin.",
        handover.node, handover.config
    );
    let mut out = comment(&begin);
    if let Some(warning) = &handover.warning {
        out.push_str("# As the node is now,\n");
        out.push_str(&format!("# {}\n", make_inline(warning)));
    }
    for (index, step) in handover.steps.iter().enumerate() {
        out.push_str(&format!("\n{}", one(index + 1, step)));
    }
    out
}

fn one(number: usize, step: &HandoverStep) -> String {
    let mut out = comment(&format!("{number}. {}.", step.what.trim_end_matches('.')));
    out.push_str("# With oc, check first:\n");
    out.push_str(&format!("{}\n", make_inline(&step.check)));
    if let Some(expect) = &step.expect {
        out.push_str(&format!("#   must print: {}\n", make_inline(expect)));
    }
    for command in &step.commands {
        let command = make_inline(command);
        // A comment: the shell with oc is another one.
        out.push_str(&if command.contains("mco-rescue ") {
            format!("#   on the node: {command}\n")
        } else {
            format!("{command}\n")
        });
    }
    if let Some(instead) = &step.instead {
        out.push_str(&comment(&format!("  instead, if {}:", instead.when)));
        out.push_str(&format!("# {}\n", make_inline(&instead.command)));
    }
    out
}

fn comment(text: &str) -> String {
    let lines = wrap_text(text, 2);
    lines
        .lines()
        .map(|line| format!("# {}\n", line.get(2..).unwrap_or(line)))
        .collect()
}
