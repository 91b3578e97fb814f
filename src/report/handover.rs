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
        // After the step about the objects that the API must have.
        if index == 1 + usize::from(handover.change.is_some()) {
            out.push_str(&exports(handover));
        }
    }
    out
}

fn one(number: usize, step: &HandoverStep) -> String {
    let mut out = comment(&format!(
        "{number}. {}. Check first:",
        step.what.trim_end_matches('.')
    ));
    out.push_str(&format!("{}\n", make_inline(&step.check)));
    if let Some(expect) = &step.expect {
        out.push_str(&format!("#   must print: {}\n", make_inline(expect)));
    }
    for command in &step.commands {
        out.push_str(&format!("{}\n", make_inline(command)));
    }
    if let Some(instead) = &step.instead {
        out.push_str(&comment(&format!("  instead, if {}:", instead.when)));
        out.push_str(&format!("# {}\n", make_inline(&instead.command)));
    }
    out
}

/// Returns the commands to run on the node first.
fn exports(handover: &Handover) -> String {
    let mut out = String::new();
    for lost in &handover.objects {
        let line = match &lost.export {
            Some(export) => format!("#   on the node: {}\n", make_inline(export)),
            None => comment(&format!(
                "  {} is not on this node: copy it from another node, or from a backup",
                lost.machine_config
            )),
        };
        out.push_str(&line);
    }
    out + &comment("  (such a file contains secrets: protect it, and remove it afterwards)")
}

fn comment(text: &str) -> String {
    let lines = wrap_text(text, 2);
    lines
        .lines()
        .map(|line| format!("# {}\n", line.get(2..).unwrap_or(line)))
        .collect()
}
