//! Butane's variant `openshift`, translated to a MachineConfig (docs/reference/butane.md).
//!
//! Text in, text out; no I/O: local files are read through [`FilesDir`]. The modules in the order of the data flow: `node`
//! (YAML with positions), `version`, `schema` and `decode` (typed values), `source_rules`, `convert` with `files` and `sugar`
//! (to Ignition), `support` and `ignition` (rules on the output), `yaml_out`. Every value of the output records its place in
//! the input (`out`), so that `report` can give line and column.

mod convert;
mod data_url;
mod decode;
mod deflate;
mod files;
mod huffman;
mod ignition;
mod local_path;
mod node;
mod out;
mod report;
mod scalar;
mod schema;
mod source_rules;
mod sugar;
mod support;
mod version;
mod yaml_out;

use serde_json::Value;

pub use files::{FilesDir, TreeEntry, TreeEntryKind};
pub use report::ReportEntry;

use convert::Translator;
use node::Node;
use out::Out;
use report::{Path, Report};
use version::ButaneVersion;

use crate::base::go_json;

const SOURCE_INVALID: &str = "source config is invalid";
const RESULT_INVALID: &str = "config generated was invalid";

/// Variants of other systems.
const FOREIGN: [&str; 4] = ["fcos", "fiot", "flatcar", "r4e"];

/// The form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputOptions {
    /// Prints the Ignition config alone, as JSON.
    pub raw: bool,
}

/// The result of a translation.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// Butane's output without the trailing newline; `None` after an error.
    pub output: Option<String>,
    /// The MachineConfig; `None` after an error, and for raw output.
    pub machine_config: Option<Value>,
    /// All findings, in Butane's order.
    pub report: Vec<ReportEntry>,
    /// The final error, in Butane's own words.
    pub error: Option<String>,
    /// The next step after an error, in our words.
    pub advice: Option<String>,
    /// True if any contents were compressed.
    pub gzip: bool,
    /// The version of the input, if it is supported.
    pub version: Option<&'static str>,
    /// True for an unstable version, whose output the operator cannot read.
    pub experimental: bool,
}

impl Translation {
    fn failed(error: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            advice: Some(advice.into()),
            ..Self::default()
        }
    }
}

/// Returns true if a text is Butane's: a mapping with the key `variant`.
pub fn is_butane(text: &str) -> bool {
    text.lines().any(|line| {
        let rest = line
            .strip_prefix("variant")
            .or_else(|| line.strip_prefix("\"variant\""));
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    })
}

/// Translates an input. `files` is the directory of its local files.
pub fn translate_butane(
    text: &str,
    files: Option<&dyn FilesDir>,
    options: OutputOptions,
) -> Translation {
    let root = match node::parse_first(text) {
        Ok(root) => root,
        Err(error) => return unreadable_input(error),
    };
    let (number, variant) = match root.as_deref().map(decode::decode_header) {
        Some(Ok(header)) => header,
        Some(Err(error)) => return unreadable_input(error),
        None => Default::default(),
    };
    let version = match choose_version(&variant, &number) {
        Ok(version) => version,
        Err(failed) => return *failed,
    };
    let Some(root) = root else {
        return unreadable_input("the document is empty");
    };
    let mut translation = translate_version(&root, version, files, options);
    translation.version = Some(version.text);
    translation.experimental = version.is_experimental();
    translation
}

fn unreadable_input(error: impl std::fmt::Display) -> Translation {
    Translation::failed(
        format!("Error unmarshaling yaml: {error}"),
        "correct the YAML at this line; the mistake may be on the line before it",
    )
}

fn choose_version(variant: &str, number: &str) -> Result<ButaneVersion, Box<Translation>> {
    let stable =
        "write `variant: openshift` and the version of the cluster, such as `version: 4.18.0`";
    if variant.is_empty() {
        let error = "error parsing variant; must be specified";
        return Err(Box::new(Translation::failed(error, stable)));
    }
    let Some(number) = version::to_semantic(number) else {
        let error = "error parsing version; must be a valid semver";
        let advice = "write all three numbers of the version, such as `version: 4.18.0`";
        return Err(Box::new(Translation::failed(error, advice)));
    };
    if variant == "rhcos" && number == "0.1.0" {
        let error = "rhcos variant has been removed; use openshift variant instead: \
                     https://coreos.github.io/butane/upgrading-openshift/";
        return Err(Box::new(Translation::failed(error, stable)));
    }
    if FOREIGN.contains(&variant) {
        let error =
            format!("variant {variant} is for another system; no MachineConfig can be made of it");
        let advice = format!(
            "{stable}, and give `metadata` a name and the label machineconfiguration.openshift.io/role"
        );
        return Err(Box::new(Translation::failed(error, advice)));
    }
    let version = ButaneVersion::find_version(&number).filter(|_| variant == "openshift");
    version.ok_or_else(|| {
        let error = format!("No translator exists for variant {variant} with version {number}");
        let known: Vec<&str> = version::VERSIONS
            .iter()
            .map(|version| version.text)
            .collect();
        let advice = format!(
            "take one of the versions {} of variant openshift",
            known.join(", ")
        );
        Box::new(Translation::failed(error, advice))
    })
}

/// The advice for a report with errors.
const SEE_REPORT: &str = "correct what the report calls an error, and try again";

fn translate_version(
    root: &Node,
    version: ButaneVersion,
    files: Option<&dyn FilesDir>,
    options: OutputOptions,
) -> Translation {
    let input = match decode::decode_butane(root, &schema::CONFIG, version) {
        Ok(input) => input,
        Err(error) => {
            let advice = "give the value on this line the type that the key requires";
            return Translation::failed(error.to_string(), advice);
        }
    };
    let mut entries =
        decode::find_unused_keys(root, &schema::CONFIG, version.level).located_in(root);
    let result = translate_value(&input, version, files, options);
    entries.extend(result.report.located_in(root));
    let mut translation = Translation {
        report: entries,
        gzip: result.packed,
        ..Translation::default()
    };
    match result.outcome {
        Ok(value) if options.raw => translation.output = Some(go_json::to_compact_json(&value)),
        Ok(value) => {
            let yaml = yaml_out::to_yaml(&value);
            translation.output = Some(format!("# Generated by Butane; do not edit\n{yaml}"));
            translation.machine_config = Some(value);
        }
        Err(error) => {
            translation.error = Some(error.to_owned());
            translation.advice = Some(SEE_REPORT.to_owned());
        }
    }
    translation
}

/// The values of a translation, before they are serialised.
struct RunResult {
    report: Report,
    packed: bool,
    outcome: Result<Value, &'static str>,
}

fn translate_value(
    input: &Value,
    version: ButaneVersion,
    files: Option<&dyn FilesDir>,
    options: OutputOptions,
) -> RunResult {
    let mut result = RunResult {
        report: source_rules::check_source(input, version),
        packed: false,
        outcome: Err(SOURCE_INVALID),
    };
    if result.report.is_fatal() {
        return result;
    }
    let mut translator = Translator {
        version,
        files,
        report: result.report,
        packed: false,
    };
    let whole = make_object(&mut translator, input);
    let (mut report, packed) = (translator.report, translator.packed);
    if let Some(whole) = whole {
        if options.raw {
            warn_of_elided(&whole, &mut report);
        }
        if !report.is_fatal() {
            result.outcome = check_result(&whole, version, options, &mut report);
        }
    }
    RunResult {
        report,
        packed: packed && result.outcome.is_ok(),
        ..result
    }
}

/// Creates the MachineConfig; `None` after an error.
fn make_object(translator: &mut Translator<'_>, input: &Value) -> Option<Out> {
    let version = translator.version;
    let mut config = translator.convert(input);
    config = sugar::add_mount_units(config, input);
    translator.add_trees(&mut config, input);
    translator.add_quadlets(&mut config, input);
    if translator.report.is_fatal() {
        return None;
    }
    config = sugar::add_boot_device(config, input);
    translator.check_partition_numbers(&config);
    config = translator.add_grub_users(config, input);
    let openshift = input.get("openshift");
    let field = |key| openshift.and_then(|section| section.get(key));
    if version.has_fips_cipher() && field("fips") == Some(&Value::Bool(true)) {
        sugar::add_fips_cipher(&mut config);
    }
    support::check_support(&config, version, &mut translator.report);
    let mut spec = vec![("config".to_owned(), config)];
    for (key, name) in [
        ("kernel_arguments", "kernelArguments"),
        ("extensions", "extensions"),
        ("fips", "fips"),
        ("kernel_type", "kernelType"),
    ] {
        if let Some(value) = field(key) {
            let at = Path::from_keys(&["openshift", key]);
            spec.push((name.to_owned(), with_items(&at, value)));
        }
    }
    let spec = Out {
        from: Path::from_keys(&["version"]),
        value: out::OutValue::Map(spec),
    };
    let at = Path::from_keys(&["metadata"]);
    let metadata = input.get("metadata").unwrap_or(&Value::Null);
    Some(Out::map(
        &Path::default(),
        vec![
            (
                "apiVersion",
                Out::leaf(&at, "machineconfiguration.openshift.io/v1"),
            ),
            ("kind", Out::leaf(&at, "MachineConfig")),
            ("metadata", Out::from_json(&at, metadata)),
            ("spec", spec),
        ],
    ))
}

/// Returns a value with a place for each list item.
fn with_items(at: &Path, value: &Value) -> Out {
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| Out::from_json(&at.with_index(index), item));
            Out::list(at, items.collect())
        }
        other => Out::from_json(at, other),
    }
}

/// Warns about fields that raw output omits.
fn warn_of_elided(whole: &Out, report: &mut Report) {
    for key in ["kernelArguments", "extensions", "fips", "kernelType"] {
        if let Some(value) = whole.value_at(&["spec", key]) {
            report.add_warning(value.from.clone(), "field ignored in raw mode");
        }
    }
}

/// Checks the result and returns the value to print.
fn check_result(
    whole: &Out,
    version: ButaneVersion,
    options: OutputOptions,
    report: &mut Report,
) -> Result<Value, &'static str> {
    let Some(config) = whole.value_at(&["spec", "config"]) else {
        return Err(SOURCE_INVALID);
    };
    // Butane looks up the fields by their path in a MachineConfig, so they are allowed in raw output.
    if !options.raw {
        report.append(support::check_fields(config, version));
        if report.is_fatal() {
            return Err(SOURCE_INVALID);
        }
    }
    let printed = if options.raw { config } else { whole };
    ignition::check_duplicates(printed, report);
    ignition::check_ignition(config, version.level, report);
    if report.is_fatal() {
        Err(RESULT_INVALID)
    } else {
        Ok(printed.to_json())
    }
}
