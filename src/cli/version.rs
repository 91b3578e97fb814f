//! `version`, and `--version --verbose`: the facts of the build, for a bug report and for a bill of materials.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::Output;
use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::report;

/// Shown in place of the commit if the build had none.
const UNRECORDED: &str = "not recorded";

/// Returns the facts, one per line.
pub(super) fn describe_build() -> String {
    let facts = [
        ("Commit", env!("MCO_RESCUE_COMMIT")),
        ("Target", env!("MCO_RESCUE_TARGET")),
        ("Features", env!("MCO_RESCUE_FEATURES")),
        ("Profile", env!("MCO_RESCUE_PROFILE")),
        ("Compiler", env!("MCO_RESCUE_COMPILER")),
    ];
    let mut text = concat!("mco-rescue ", env!("CARGO_PKG_VERSION"), "\n").to_owned();
    for (name, value) in facts {
        let value = if value.is_empty() { UNRECORDED } else { value };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<10}{value}");
    }
    text
}

/// Runs `version`.
pub(super) fn run(ui: &Ui<'_>) -> Result<ExitCode> {
    let fact = |value: &'static str| (!value.is_empty()).then_some(value);
    let text = match ui.output {
        Output::Text => describe_build(),
        Output::Json => {
            let document = json!({
                "schema": "mco-rescue/version/v1",
                "version": env!("CARGO_PKG_VERSION"),
                "commit": fact(env!("MCO_RESCUE_COMMIT")),
                "target": fact(env!("MCO_RESCUE_TARGET")),
                "features": fact(env!("MCO_RESCUE_FEATURES")),
                "profile": fact(env!("MCO_RESCUE_PROFILE")),
                "compiler": fact(env!("MCO_RESCUE_COMPILER")),
            });
            serde_json::to_string_pretty(&document)? + "\n"
        }
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns true if words that ask for the version ask for its verbose form.
pub(super) fn is_verbose(words: &[String]) -> bool {
    words.iter().any(|word| match word.strip_prefix("--") {
        Some(long) => long == "verbose",
        None => word.starts_with('-') && word.contains('v'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_form_is_asked_for_in_any_order() {
        let asks = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            is_verbose(&words)
        };
        for line in ["-V -v", "-vV", "-Vv", "--verbose --version", "--version -v"] {
            assert!(asks(line), "{line}");
        }
        for line in ["-V", "--version", "--version --output json"] {
            assert!(!asks(line), "{line}");
        }
    }
}
