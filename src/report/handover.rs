//! The way back into the cluster, as commands with comments, and as JSON (`mco-rescue/for-cluster/v1`).

use serde::Serialize;

use super::wrap;
use crate::daemon::handover::{Handover, Step};
use crate::text::inline;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    handover: &'a Handover,
}

/// For programs.
pub fn json(handover: &Handover) -> serde_json::Result<String> {
    let document = Document {
        schema: "mco-rescue/for-cluster/v1",
        handover,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people, to be read and run step by step. Commands stay on one line each.
pub fn text(handover: &Handover) -> String {
    let begin = format!(
        "Node {} into {}, when the API is back: with oc, step by step, as cluster-admin.",
        handover.node, handover.config
    );
    let mut out = comment(&begin);
    if let Some(warning) = &handover.warning {
        out.push_str("# As the node is now,\n");
        out.push_str(&format!("# {}\n", inline(warning)));
    }
    for (index, step) in handover.steps.iter().enumerate() {
        out.push_str(&format!("\n{}", one(index + 1, step)));
        if index == 1 {
            out.push_str(&exports(handover));
        }
    }
    out
}

fn one(number: usize, step: &Step) -> String {
    let mut out = comment(&format!("{number}. {}. Look first:", step.what));
    out.push_str(&format!("{}\n", inline(&step.check)));
    if let Some(expect) = &step.expect {
        out.push_str(&format!("#   has to print: {}\n", inline(expect)));
    }
    for command in &step.commands {
        out.push_str(&format!("{}\n", inline(command)));
    }
    if let Some(instead) = &step.instead {
        out.push_str(&comment(&format!("  instead, if {}:", instead.when)));
        out.push_str(&format!("# {}\n", inline(&instead.command)));
    }
    out
}

/// What has to be run on the node before.
fn exports(handover: &Handover) -> String {
    let mut out = String::new();
    for lost in &handover.objects {
        let line = match &lost.export {
            Some(export) => format!("#   on the node: {}\n", inline(export)),
            None => comment(&format!(
                "  {} is not on this node: take it from another one, or from a backup",
                lost.machine_config
            )),
        };
        out.push_str(&line);
    }
    out + &comment("  (such a file holds secrets: keep it to yourself, and remove it afterwards)")
}

fn comment(text: &str) -> String {
    let lines = wrap(text, 2);
    lines
        .lines()
        .map(|line| format!("# {}\n", line.get(2..).unwrap_or(line)))
        .collect()
}
