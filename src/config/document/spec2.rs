//! Ignition spec 2.0 to 2.4, read by conversion to spec 3. JSON in, JSON out; no I/O.
//!
//! The steps are the operator's (docs/develop/agreement.md: Documents): parse with the schema of the declared version, raise to 2.2 (a
//! mode or an owner that 2.0 and 2.1 omit becomes an explicit zero), check the rules of spec 2, drop duplicates, translate. Up
//! to 2.2 duplicates are legal: the last file or unit takes precedence, drop-ins and keys of shadowed entries are kept, and the
//! resulting lists are reversed. From 2.3 on duplicates are an error.
//!
//! The result declares 3.5.0: the daemon's own conversion always ends there, and 3.6 would give the special mode bits another
//! meaning. Nothing in it is newer than 3.1.
//!
//! Because of the reversed lists a path in the result is not a path in the document; [`Converted::original_path`] maps it back.
//!
//! # Differences from the daemon's conversion
//!
//! * 2.3 and 2.4 are read, with a warning: the daemon stops at 2.2.
//! * `users[].create` becomes the user-level fields of the same names. The daemon's converter drops it silently; here it is a
//!   warning.
//! * Hashes and URLs are checked before the conversion.
//! * A list of disks or RAID arrays is passed on unchanged and refused by name later.
//!
//! # How the daemon verifies a config of spec 2
//!
//! It *applies* the converted config but *verifies* the one that was written (docs/develop/agreement.md: Validation, Documents). What
//! differs from spec 3:
//!
//! * Files are checked from last to first, and only the last entry of a path is used: exactly the order and the entries of the
//!   converted list.
//! * No file is exempt, neither certificates nor the pull secret of the internal registry.
//! * Units are checked in the order of the document, and *every* entry is used, even a shadowed one: if a shadowed entry has
//!   other contents, the daemon can only report a mismatch. The warning about such an entry states it.
//! * A drop-in without contents, kept in the result as an entry without `contents`, must exist as an empty file of mode 0644,
//!   although applying the converted config never writes one.
//! * Whether a unit is enabled is not checked.
//! * A file is opened by its path as written: `/etc/a/../b` needs a directory `/etc/a`, although the converted config never
//!   creates one.
//!
//! The default mode (0644), the refusal of `append`, gzip, units without contents, and `mask` are handled as in spec 3.

mod fields;
mod model;
mod reduce;
mod rules;
mod translate;

use std::fmt;

use serde_json::Value;

pub use self::model::{DAEMON_MINOR, NEWEST_MINOR};
use super::finding::{Finding, Severity, path_below};
use super::json;
use super::schema::Item;
use super::written::Written;

/// A config of spec 2, converted to spec 3.
#[derive(Clone)]
pub struct Converted {
    /// The config, of version `3.5.0`.
    pub config: Value,
    /// The minor version of spec 2 in the document.
    pub minor: u64,
    /// Warnings for the user; their paths refer to the document.
    pub warnings: Vec<Finding>,
    written: Written,
}

impl Converted {
    /// Returns the path in the document as written, given a path in the result.
    pub fn original_path(&self, path: &str) -> String {
        self.written.original_path(path)
    }

    /// Returns the places, units and paths of the document.
    pub(super) fn written(&self) -> &Written {
        &self.written
    }

    /// Keeps only the places, units and paths of the document.
    pub fn into_written(self) -> Written {
        self.written
    }
}

impl fmt::Debug for Converted {
    // The config may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Converted(2.{}, {} warnings)",
            self.minor,
            self.warnings.len()
        )
    }
}

/// Returns true if a version is one of spec 2, supported or not.
pub fn is_spec2(version: &str) -> bool {
    version.split('.').next() == Some("2")
}

/// Returns true for a config of spec 1, which has its version at the top level. [`convert_spec2`] refuses it by name.
pub(super) fn is_spec1(config: &impl Item) -> bool {
    let version = config
        .field("ignition")
        .and_then(|all| all.field("version"));
    config.field("ignitionVersion").is_some() && version.is_none()
}

/// Converts a config, which is at the path `at` of its document.
///
/// # Errors
/// All errors of the first failing stage.
pub fn convert_spec2(config: &Value, at: &str) -> Result<Converted, Vec<Finding>> {
    convert_text(&config.to_string(), at)
}

/// Like [`convert_spec2`], but from text; a duplicate key is an error, as in spec 3.
///
/// # Errors
/// All errors of the first failing stage.
pub fn convert_text(json: &str, at: &str) -> Result<Converted, Vec<Finding>> {
    let value: Value =
        serde_json::from_str(json).map_err(|e| vec![json::syntax_finding(at, &e)])?;
    let minor = declared_minor(&value, at).map_err(|finding| vec![finding])?;
    let mut warnings = newer_than_the_daemon(minor, at);
    let mut config = read_model(json, value, minor, at, &mut warnings)?;
    warnings.extend(rules::raise_to_2_2(&mut config, minor, at));
    keep_warnings(rules::check_config(&config, at), &mut warnings)?;
    let units = config.systemd.units.iter().map(translate::as_written);
    let units = units.collect();
    let reduced = reduce::reduce_config(config, minor, at);
    keep_warnings(reduced.findings, &mut warnings)?;
    let (config, places) = translate::translate_config(reduced.config, at);
    Ok(Converted {
        config,
        minor,
        warnings,
        written: Written::new(minor, places, units, reduced.cleaned),
    })
}

/// Collects the warnings, or returns the errors.
fn keep_warnings(findings: Vec<Finding>, warnings: &mut Vec<Finding>) -> Result<(), Vec<Finding>> {
    let (errors, rest): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error);
    warnings.extend(rest);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// Returns the declared minor version.
fn declared_minor(config: &Value, at: &str) -> Result<u64, Finding> {
    if is_spec1(config) {
        return Err(Finding::error(
            path_below(at, "ignitionVersion"),
            "Ignition spec 1 is not supported; write the config in spec 3",
        ));
    }
    let path = path_below(at, "ignition.version");
    let Some(text) = config.pointer("/ignition/version").and_then(Value::as_str) else {
        return Err(Finding::error(
            path,
            "missing or not a string; a config of spec 2 must name its version, such as \"2.2.0\"",
        ));
    };
    let parts: Vec<Option<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [Some(2), Some(minor), Some(0)] if *minor <= NEWEST_MINOR => Ok(*minor),
        [Some(_), Some(_), Some(_)] => Err(Finding::error(
            path,
            format!(
                "unsupported Ignition version {text:?}; spec 2 is understood from 2.0.0 to 2.{NEWEST_MINOR}.0"
            ),
        )),
        _ => Err(Finding::error(
            path,
            format!("{text:?} is not a version of the form X.Y.Z"),
        )),
    }
}

fn newer_than_the_daemon(minor: u64, at: &str) -> Vec<Finding> {
    if minor <= DAEMON_MINOR {
        return Vec::new();
    }
    let message = format!(
        "the Machine Config Daemon accepts spec 2 up to 2.{DAEMON_MINOR}; it would refuse this 2.{minor} config"
    );
    vec![Finding::warning(
        path_below(at, "ignition.version"),
        message,
    )]
}

/// Parses the config, without fields that its version does not have.
fn read_model(
    json: &str,
    mut value: Value,
    minor: u64,
    at: &str,
    warnings: &mut Vec<Finding>,
) -> Result<model::Spec2Config, Vec<Finding>> {
    let mut unknown = Vec::new();
    // Parsed from the text, so that duplicate keys are detected.
    let _: model::Spec2Config =
        json::from_str(json, at, &mut unknown).map_err(|finding| vec![finding])?;
    fields::refuse_wrong_case(&mut unknown);
    keep_warnings(unknown, warnings)?;
    warnings.extend(fields::drop_newer(&mut value, minor, at));
    json::from_str(&value.to_string(), at, &mut Vec::new()).map_err(|finding| vec![finding])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_of_spec_2_are_recognized_by_their_first_number() {
        for (version, wanted) in [
            ("2.0.0", true),
            ("2.2.0", true),
            ("2.9.1", true),
            ("2", true),
            ("3.2.0", false),
            ("20.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_spec2(version), wanted, "{version:?}");
        }
    }

    #[test]
    fn a_key_given_twice_is_an_error_in_text() {
        let text = r#"{"ignition": {"version": "2.2.0"}, "storage": {}, "storage": {}}"#;
        let errors = convert_text(text, "spec.config").unwrap_err();
        assert!(errors[0].message.contains("duplicate field"), "{errors:?}");
        assert!(convert_text("{", "spec.config").is_err());
    }

    #[test]
    fn debug_shows_no_contents() {
        let config = json!({
            "ignition": {"version": "2.2.0"},
            "storage": {"files": [{"filesystem": "root", "path": "/a", "contents": {"source": "data:,secret"}}]},
        });
        let text = format!("{:?}", convert_spec2(&config, "").unwrap());
        assert!(!text.contains("secret"), "{text}");
    }
}
