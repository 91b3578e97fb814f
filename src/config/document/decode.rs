//! Decodes an Ignition config of spec 2 or 3 into the model of `ignition`.
//!
//! Unknown keys and fields newer than the declared version become warnings, as in Ignition; the rules are in `check`.

use serde_json::Value;

use super::contents::is_packed;
use super::finding::{Finding, Severity, path_below};
use super::ignition::{DAEMON_MINOR, File, Ignition, NEWEST_MINOR};
use super::json::Outline;
use super::spec2::{self, Converted};
use super::text::Text;
use super::{fields, json};
use crate::host::sys::parallel;

/// A decoded config of any spec version.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The config in the newest model.
    pub config: Ignition,
    /// Warnings for the user.
    pub warnings: Vec<Finding>,
    /// The conversion, if it was written in spec 2.
    pub converted: Option<Converted>,
    /// It has nothing but a version, like the encapsulated first-boot object.
    pub emptied: bool,
    /// Duplicate keys (V28); only a config as written is checked for them.
    pub(super) duplicates: Vec<Finding>,
}

impl Decoded {
    /// Returns a finding with its path as written in the document.
    pub(super) fn with_original_path(&self, finding: Finding) -> Finding {
        locate_finding(self.converted.as_ref(), finding)
    }
}

fn locate_finding(converted: Option<&Converted>, mut finding: Finding) -> Finding {
    if let Some(converted) = converted {
        finding.path = converted.original_path(&finding.path);
    }
    finding
}

/// Decodes an Ignition config of spec 2 or 3. `at` is its path in the document.
///
/// # Errors
/// All errors found during decoding; `check` finds violations of the rules.
pub(super) fn decode_ignition(text: &str, at: &str) -> Result<Decoded, Vec<Finding>> {
    let outline = Outline::read_text(text, at).map_err(|finding| vec![finding])?;
    if !matches!(outline, Outline::Object(_)) {
        return Err(vec![not_an_object(outline.as_str(), at)]);
    }
    let version = version_in(&outline);
    let is_spec2 = version
        .and_then(Outline::as_str)
        .is_some_and(spec2::is_spec2);
    if !is_spec2 && !spec2::is_spec1(&outline) {
        return decode_spec_3(text, outline, at);
    }
    let emptied = is_emptied(&outline);
    let mut converted = spec2::convert_text(text, at)?;
    let locate = |findings: Vec<Finding>| -> Vec<Finding> {
        findings
            .into_iter()
            .map(|finding| locate_finding(Some(&converted), finding))
            .collect()
    };
    let json = Text::from(converted.config.to_string());
    let parsed = json.read_shared(|text| {
        let outline = Outline::read_text(text, at).map_err(|finding| vec![finding])?;
        decode_spec_3(text, outline, at)
    });
    let mut parsed = parsed.map_err(locate)?;
    let mut all = locate(std::mem::take(&mut parsed.warnings));
    all.splice(0..0, std::mem::take(&mut converted.warnings));
    parsed.warnings = all;
    parsed.converted = Some(converted);
    parsed.emptied = emptied;
    Ok(parsed)
}

/// Advice for a packed config.
pub(super) const UNPACK: &str = "it is base64 of gzip data: unpack it (base64 -d | gunzip) and give the JSON text that comes out";

/// Requires an Ignition config to be an object. The daemon does not unpack a text in a MachineConfig, and the API does not
/// store one.
///
/// # Errors
/// The value is not an object.
pub fn require_object(config: &Value, at: &str) -> Result<(), Finding> {
    match config {
        Value::Object(_) => Ok(()),
        other => Err(not_an_object(other.as_str(), at)),
    }
}

fn not_an_object(text: Option<&str>, at: &str) -> Finding {
    let message = if text.is_some_and(is_packed) {
        format!("is a text, where an Ignition config is an object; {UNPACK}")
    } else {
        "is not an object; give an Ignition config, such as {\"ignition\": {\"version\": \"3.5.0\"}}"
            .to_owned()
    };
    Finding::error(at, message)
}

fn version_in<'o, 't>(outline: &'o Outline<'t>) -> Option<&'o Outline<'t>> {
    outline.get("ignition")?.get("version")
}

fn decode_spec_3(text: &str, outline: Outline<'_>, at: &str) -> Result<Decoded, Vec<Finding>> {
    let minor = supported_minor(&outline, at).map_err(|finding| vec![finding])?;
    let emptied = is_emptied(&outline);
    json::check_objects(&outline, at).map_err(|finding| vec![finding])?;
    let newer = fields::find_newer(&outline, minor, at);
    let duplicates = fields::find_duplicates(&outline, minor, at);
    // With many files it is as large as the config itself; dropping it early halves the memory.
    drop(outline);
    let mut unknown = Vec::new();
    let mut config: Ignition =
        json::from_checked(text, at, &mut unknown).map_err(|finding| vec![finding])?;
    let (errors, mut warnings): (Vec<_>, Vec<_>) = unknown
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(errors);
    }
    if !newer.is_empty() {
        config = without_newer(text, minor, at).map_err(|finding| vec![finding])?;
    }
    warnings.extend(newer);
    warnings.extend(newer_than_the_daemon(minor, at));
    measure_files(&config.storage.files);
    Ok(Decoded {
        config,
        warnings,
        converted: None,
        emptied,
        duplicates,
    })
}

/// Minimum number of files for each thread.
const PART: usize = 16;

/// Measures the contents of many files in parallel, so that later each measurement is already known.
fn measure_files(files: &[File]) {
    if files.len() >= 2 * PART {
        parallel::in_parts(files, PART, |part| {
            part.iter().for_each(|file| drop(file.contents.measured()));
        });
    }
}

/// Decodes a config again, without the fields that are newer than its version.
fn without_newer(text: &str, minor: u64, at: &str) -> Result<Ignition, Finding> {
    let mut value: Value = serde_json::from_str(text).map_err(|e| json::syntax_finding(at, &e))?;
    fields::drop_newer(&mut value, minor);
    json::from_str(&value.to_string(), at, &mut Vec::new())
}

fn newer_than_the_daemon(minor: u64, at: &str) -> Option<Finding> {
    let message = format!(
        "spec 3.{minor} is newer than what the Machine Config Daemon accepts (3.{DAEMON_MINOR}); it would refuse this config"
    );
    (minor > DAEMON_MINOR).then(|| Finding::warning(path_below(at, "ignition.version"), message))
}

/// Returns the minor version of a supported spec 3 config. It selects the schema, so of V17 (version and schema differ) only a
/// version without a schema remains.
fn supported_minor(outline: &Outline<'_>, at: &str) -> Result<u64, Finding> {
    let path = path_below(at, "ignition.version");
    let text = match version_in(outline) {
        Some(Outline::Text(text)) => text,
        None | Some(Outline::Null) => {
            let message =
                "missing; an Ignition config must name its spec version, such as \"3.5.0\"";
            return Err(Finding::error(path, message));
        }
        Some(_) => {
            let message = "is not a string; write the spec version in quotes, such as \"3.5.0\"";
            return Err(Finding::error(path, message));
        }
    };
    let parts: Vec<Option<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [Some(3), Some(minor), Some(0)] if *minor <= NEWEST_MINOR => Ok(*minor),
        [Some(_), Some(_), Some(_)] => {
            let message = format!(
                "unsupported Ignition version {text:?}; 3.0.0 to 3.{NEWEST_MINOR}.0 are understood"
            );
            Err(Finding::error(path, message))
        }
        _ => Err(Finding::error(
            path,
            format!("{text:?} is not a version of the form X.Y.Z"),
        )),
    }
}

/// Returns true if an Ignition part has nothing but a version, like the encapsulated first-boot object. A config of spec 2 then
/// has its other sections as empty objects.
fn is_emptied(outline: &Outline<'_>) -> bool {
    let Outline::Object(sections) = outline else {
        return false;
    };
    let empty = |value: &Outline<'_>| *value == Outline::Object(Vec::new());
    let only_version = |value: &Outline<'_>| match value {
        Outline::Object(entries) => entries
            .iter()
            .all(|(key, value)| key == "version" || empty(value)),
        _ => false,
    };
    sections.iter().all(|(key, value)| {
        if key == "ignition" {
            only_version(value)
        } else {
            empty(value)
        }
    })
}
