//! A translated Butane config as JSON (`mco-rescue/butane/v1`).

use serde::Serialize;
use serde_json::Value;

use crate::config::butane::Translation;

#[derive(Serialize)]
struct ButaneDocument<'a> {
    schema: &'static str,
    output: Option<&'a str>,
    machine_config: Option<&'a Value>,
    report: Vec<EntryDocument<'a>>,
    error: Option<&'a str>,
    advice: Option<&'a str>,
    gzip: bool,
    version: Option<&'a str>,
    experimental: bool,
}

#[derive(Serialize)]
struct EntryDocument<'a> {
    kind: &'static str,
    path: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
}

/// Returns the document.
///
/// # Errors
/// The serializer's error.
pub fn to_json(translation: &Translation) -> serde_json::Result<String> {
    let report = translation.report.iter().map(|entry| EntryDocument {
        kind: entry.kind.as_str(),
        path: &entry.path,
        line: entry.line,
        column: entry.column,
        message: &entry.message,
    });
    let document = ButaneDocument {
        schema: "mco-rescue/butane/v1",
        output: translation.output.as_deref(),
        machine_config: translation.machine_config.as_ref(),
        report: report.collect(),
        error: translation.error.as_deref(),
        advice: translation.advice.as_deref(),
        gzip: translation.gzip,
        version: translation.version,
        experimental: translation.experimental,
    };
    super::pretty(&document)
}
