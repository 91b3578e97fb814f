//! What recovery did, as text and as JSON (`mco-rescue/recover/v1`).

use serde::Serialize;

use super::wrap;
use crate::transaction::Recovered;
use crate::transaction::journal::ConfigRef;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// `nothing`, `swept`, `finished` or `undone`.
    result: &'static str,
    config: Option<&'a ConfigRef>,
}

/// For programs.
pub fn json(recovered: &Recovered) -> serde_json::Result<String> {
    let (result, config) = match recovered {
        Recovered::Nothing => ("nothing", None),
        Recovered::Swept(config) => ("swept", Some(config)),
        Recovered::Finished(config, _) => ("finished", Some(config)),
        Recovered::Undone(config, _) => ("undone", Some(config)),
    };
    let document = Document {
        schema: "mco-rescue/recover/v1",
        result,
        config,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people.
pub fn text(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "Nothing to recover.\n".to_owned(),
        other => wrap(&sentence(other), 0) + "Next: mco-rescue verify\n",
    }
}

/// What was done, in one sentence.
pub fn sentence(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "Nothing was pending.".to_owned(),
        Recovered::Swept(config) => {
            format!(
                "Left-overs of an interrupted run were removed; it had changed nothing ({}).",
                config.name
            )
        }
        Recovered::Finished(config, _) => format!(
            "An interrupted run was brought to its end ({}).",
            config.name
        ),
        Recovered::Undone(config, _) => format!("An interrupted run was undone ({}).", config.name),
    }
}
