//! Parses a document: a MachineConfig as JSON or YAML (the output of `oc get mc NAME -o json|yaml`), a config as served by the
//! Machine Config Server, or a bare Ignition config.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::contents::is_packed;
use super::decode::{Decoded, UNPACK, decode_ignition};
use super::encoding::not_text;
use super::finding::{CUT_SHORT, DocumentError, Finding, IF_CUT_SHORT, Severity};
use super::json::{JsonSection, Outline};
use super::layer::ConfigLayer;
use super::machine_config::{KernelType, MachineConfig, Provenance};
use super::spec2::Converted;
use super::text::Text;
use super::{check, json, served, yaml};
use crate::base::paths;
use crate::host::root::sha256_hex;
use crate::host::sys::parallel;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Envelope<'t> {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(borrow)]
    metadata: Option<&'t RawValue>,
    #[serde(borrow)]
    spec: Option<JsonSection<'t>>,
    #[serde(borrow)]
    items: Option<Vec<&'t RawValue>>,
    #[serde(borrow)]
    ignition: Option<&'t RawValue>,
    /// The version key of spec 1, which has no `ignition` section.
    #[serde(borrow)]
    ignition_version: Option<&'t RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    name: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    labels: Option<TextMap>,
    annotations: Option<TextMap>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnerReference {
    name: Option<String>,
    kind: Option<String>,
}

/// Labels or annotations.
type TextMap = BTreeMap<String, Option<String>>;

impl ObjectMetadata {
    fn read_provenance(&self) -> Provenance {
        let text =
            |map: &Option<TextMap>, key: &str| map.as_ref()?.get(&format!("{GROUP}{key}"))?.clone();
        let owners = self.owner_references.iter().flatten();
        Provenance {
            role: text(&self.labels, "role"),
            owners: owners.map(|owner| owner.kind.clone()).collect(),
            generated: text(&self.annotations, "generated-by-controller-version").is_some(),
            release: text(&self.annotations, "release-image-version"),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MachineConfigSpec {
    #[serde(rename = "osImageURL")]
    os_image_url: Option<String>,
    #[serde(rename = "baseOSExtensionsContainerImage")]
    extensions_image: Option<String>,
    /// Empty here: it is parsed separately.
    #[serde(rename = "config")]
    _config: Option<Value>,
    kernel_arguments: Option<Vec<String>>,
    extensions: Option<Vec<String>>,
    fips: Option<bool>,
    kernel_type: Option<String>,
}

/// The API group of the operator's objects, labels and annotations.
const GROUP: &str = "machineconfiguration.openshift.io/";

/// Maximum size of a JSON document (1.5 GiB): one with a file of 1 GiB in base64.
pub const MAX_JSON: u64 = crate::host::root::MAX_DIGEST;

/// Parses a document. `origin` is its name in messages.
///
/// Takes the bytes by value, because a rendered config may be larger than the rest of the program's memory: the result shares
/// parts of them.
pub fn parse_document(
    bytes: impl Into<Vec<u8>>,
    origin: &str,
) -> Result<MachineConfig, DocumentError> {
    read_text(bytes.into(), origin).and_then(|text| parse_text(&text, origin))
}

/// Parses a document. `share` gets its text first, so that another thread can work on it; it is not called for bytes that are
/// not UTF-8.
pub fn parse_and_share(
    bytes: impl Into<Vec<u8>>,
    origin: &str,
    share: impl FnOnce(&Text),
) -> Result<MachineConfig, DocumentError> {
    let text = read_text(bytes.into(), origin)?;
    share(&text);
    parse_text(&text, origin)
}

fn read_text(bytes: Vec<u8>, origin: &str) -> Result<Text, DocumentError> {
    let text = String::from_utf8(bytes).map_err(|e| {
        let why = not_text(e.as_bytes(), e.utf8_error());
        document_error(origin, vec![Finding::error("", why)])
    })?;
    Ok(text.into())
}

fn parse_text(text: &Text, origin: &str) -> Result<MachineConfig, DocumentError> {
    let parsed = match text.trim_start().chars().next() {
        None => Err(vec![Finding::error(
            "",
            "the document is empty; copy it again",
        )]),
        // A file whose data was not written to disk before a power cut.
        Some('\0') => Err(vec![Finding::error(
            "",
            "the document has bytes of zero in place of text; copy it again",
        )]),
        Some('{') => text.read_shared(|text| parse_json(text, origin)),
        Some(_) => parse_yaml(text, origin),
    };
    parsed.map_err(|findings| document_error(origin, findings))
}

fn document_error(origin: &str, findings: Vec<Finding>) -> DocumentError {
    DocumentError {
        origin: origin.to_owned(),
        findings,
    }
}

/// Parses YAML via JSON, and adds the line of the value to each error.
fn parse_yaml(text: &str, origin: &str) -> Result<MachineConfig, Vec<Finding>> {
    let value = yaml::parse_yaml(text)
        .map_err(|e| vec![Finding::error("", format!("not valid YAML: {e}"))])?;
    if value.as_str().is_some_and(is_packed) {
        return Err(vec![Finding::error("", UNPACK)]);
    }
    if !value.is_object() {
        let findings = vec![Finding::error("", NEITHER)];
        return Err(with_missing_end(text, &value, findings));
    }
    let json = Text::from(value.to_string());
    let parsed = json.read_shared(|json| parse_json(json, origin));
    let mut config = parsed.map_err(|mut findings| {
        yaml::add_lines(text, &mut findings);
        with_missing_end(text, &value, findings)
    })?;
    if lacks_its_end(&value) {
        let message = format!("missing, although a rendered config ends with it; {IF_CUT_SHORT}");
        let warning = Finding::warning("spec.osImageURL", message);
        config.warnings.insert(0, warning);
    }
    Ok(config)
}

/// Adds the advice that the end may be missing, because YAML without its last lines is still valid.
fn with_missing_end(text: &str, value: &Value, mut findings: Vec<Finding>) -> Vec<Finding> {
    let line = text.lines().count();
    if lacks_its_end(value) {
        let first = findings.first().map(ToString::to_string);
        let message = format!(
            "line {line} is the last: {CUT_SHORT} ({})",
            first.unwrap_or_default()
        );
        return vec![Finding::error("", message)];
    }
    let version = value.get("apiVersion").and_then(Value::as_str);
    let is_one = version.is_some_and(|version| version.starts_with(GROUP));
    let half = !text.ends_with('\n') || is_one && value.get("spec").is_none();
    if let (true, Some(first)) = (half, findings.first_mut()) {
        first.message.push_str(&format!("; {IF_CUT_SHORT}"));
    }
    findings
}

/// Returns true if the end is missing. The API sets `osImageURL` in every MachineConfig, and `oc` prints it last.
fn lacks_its_end(value: &Value) -> bool {
    let by_controller = format!("{GROUP}generated-by-controller-version");
    let annotations = value.pointer("/metadata/annotations");
    let of_the_cluster = annotations.is_some_and(|all| all.get(&by_controller).is_some());
    of_the_cluster && value.pointer("/spec/osImageURL").is_none()
}

fn parse_json(text: &str, origin: &str) -> Result<MachineConfig, Vec<Finding>> {
    let envelope = read_envelope(text, "")?;
    if let Some(items) = &envelope.items {
        let [only] = items.as_slice() else {
            let message = format!(
                "a list of {} objects; give a list with exactly one MachineConfig",
                items.len()
            );
            return Err(vec![Finding::error("items", message)]);
        };
        return parse_object(only.get(), "items[0].", origin);
    }
    parse_enveloped(text.trim(), envelope, "", origin)
}

fn read_envelope<'t>(text: &'t str, prefix: &str) -> Result<Envelope<'t>, Vec<Finding>> {
    let at = prefix.trim_end_matches('.');
    serde_json::from_str(text).map_err(|e| vec![json::syntax_finding(at, &e)])
}

/// Parses one MachineConfig object; `prefix` precedes every JSON path.
fn parse_object(text: &str, prefix: &str, origin: &str) -> Result<MachineConfig, Vec<Finding>> {
    if !text.starts_with('{') {
        let at = prefix.trim_end_matches('.');
        return Err(vec![Finding::error(
            at,
            "is not an object; give a MachineConfig",
        )]);
    }
    parse_enveloped(text, read_envelope(text, prefix)?, prefix, origin)
}

fn parse_enveloped(
    text: &str,
    envelope: Envelope<'_>,
    prefix: &str,
    origin: &str,
) -> Result<MachineConfig, Vec<Finding>> {
    if text.len() < LARGE {
        return parse_alone(text, envelope, prefix, origin, || {
            sha256_hex(text.as_bytes())
        });
    }
    // The digest covers the whole text and does not depend on parsing. A bare config computes its own.
    let (digest, parsed) = parallel::run_both(
        || sha256_hex(text.as_bytes()),
        || parse_alone(text, envelope, prefix, origin, String::new),
    );
    let mut config = parsed?;
    if config.digest.is_empty() {
        config.digest = digest;
    }
    Ok(config)
}

/// Minimum size of a document (1 MiB) that is worth a thread.
const LARGE: usize = 1 << 20;

fn parse_alone(
    text: &str,
    envelope: Envelope<'_>,
    prefix: &str,
    origin: &str,
    digest: impl FnOnce() -> String,
) -> Result<MachineConfig, Vec<Finding>> {
    let bare = envelope.ignition.is_some() || envelope.ignition_version.is_some();
    if bare && envelope.spec.is_none() {
        return parse_served(text, prefix, origin);
    }
    check_kind(&envelope, prefix).map_err(|finding| vec![finding])?;
    let mut findings = Vec::new();
    let at = format!("{prefix}metadata");
    let metadata = envelope
        .metadata
        .map(|raw| json::from_str::<ObjectMetadata>(raw.get(), &at, &mut Vec::new()));
    let metadata = metadata.transpose().map_err(|finding| vec![finding])?;
    let metadata = metadata.unwrap_or_default();
    let at = format!("{prefix}spec");
    let spec = envelope.spec.as_ref();
    let config = spec.and_then(|spec| spec.text_of("config"));
    let spec = spec.map(|spec| {
        json::from_str::<MachineConfigSpec>(&spec.without_key("config"), &at, &mut findings)
    });
    let spec = spec.transpose().map_err(|finding| vec![finding])?;
    let spec = spec.unwrap_or_default();
    let provenance = metadata.read_provenance();
    let name = checked_name(metadata.name, prefix, &mut findings);
    let kernel_type = kernel_type(spec.kernel_type.as_deref(), prefix, &mut findings);
    let part = ignition_part(config, &format!("{prefix}spec.config"), &mut findings);
    if config.is_some() {
        let names = spec.extensions.as_deref().unwrap_or_default();
        findings.extend(check::check_extensions(
            names,
            &format!("{prefix}spec.extensions"),
        ));
    }
    let (errors, warnings): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|f| f.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(errors);
    }
    let record = Text::from_part(text);
    let emptied = part.as_ref().is_some_and(|part| part.emptied);
    let (ignition, converted) =
        part.map_or_else(Default::default, |part| (part.config, part.converted));
    Ok(MachineConfig {
        name,
        pool: metadata
            .owner_references
            .and_then(|refs| refs.into_iter().next()?.name),
        provenance,
        os_image_url: spec.os_image_url.unwrap_or_default(),
        extensions_image: spec.extensions_image.unwrap_or_default(),
        kernel_arguments: spec.kernel_arguments.unwrap_or_default(),
        extensions: spec.extensions.unwrap_or_default(),
        fips: spec.fips.unwrap_or_default(),
        kernel_type,
        ignition: ignition.into(),
        digest: digest(),
        record,
        origin: origin.to_owned(),
        warnings,
        spec2: converted.map(Converted::into_written),
        bare: false,
        emptied,
        additions: Vec::new(),
        layer: None,
    })
}

/// Parses an Ignition config as served by the Machine Config Server; one of its files contains the whole MachineConfig.
fn parse_served(text: &str, prefix: &str, origin: &str) -> Result<MachineConfig, Vec<Finding>> {
    let outline = Outline::read_text(text, prefix).map_err(|finding| vec![finding])?;
    if !served::has_machine_config(&outline) {
        return parse_bare(text, prefix, origin);
    }
    let value: Value =
        serde_json::from_str(text).map_err(|e| vec![json::syntax_finding(prefix, &e)])?;
    let Some(inner) = served::machine_config(&value).map_err(|finding| vec![finding])? else {
        return parse_bare(text, prefix, origin);
    };
    drop(value);
    let inner = Text::from(inner);
    let parsed = inner.read_shared(|inner| parse_object(inner.trim(), "", origin));
    let mut config = parsed.map_err(|findings| {
        let located = |mut finding: Finding| {
            finding.path = format!(
                "{} of the MachineConfig in /{}",
                finding.path,
                paths::MCS_CONTENT
            );
            finding
        };
        findings.into_iter().map(located).collect::<Vec<_>>()
    })?;
    let outer = decode_ignition(text, prefix.trim_end_matches('.'))?;
    config.additions = served::first_boot_additions(&outer.config, &config);
    config.warnings.extend(outer.warnings);
    Ok(config)
}

/// Parses a bare Ignition config. Its name, for messages and the journal, is derived from its digest.
fn parse_bare(text: &str, prefix: &str, origin: &str) -> Result<MachineConfig, Vec<Finding>> {
    let at = prefix.trim_end_matches('.');
    let parsed = decode_ignition(text, at)?;
    let mut findings = check::all_findings(&parsed, at);
    // Unlike the daemon, Ignition compares hashes.
    findings
        .iter_mut()
        .filter(|f| f.path.ends_with(".verification.hash"))
        .for_each(|f| f.severity = Severity::Error);
    let (errors, warnings): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|f| f.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(errors);
    }
    let references = &parsed.config.ignition.config;
    let refers = references.replace.source.is_some() || !references.merge.is_empty();
    let layer = refers.then(|| parse_layer(text, at)).transpose()?;
    let digest = sha256_hex(text.as_bytes());
    Ok(MachineConfig {
        name: format!("ignition-{}", digest.get(..12).unwrap_or_default()),
        pool: None,
        provenance: Provenance::default(),
        os_image_url: String::new(),
        extensions_image: String::new(),
        kernel_arguments: Vec::new(),
        extensions: Vec::new(),
        fips: false,
        kernel_type: KernelType::Default,
        spec2: parsed.converted.map(Converted::into_written),
        ignition: parsed.config.into(),
        record: Text::default(),
        digest,
        origin: origin.to_owned(),
        warnings,
        bare: true,
        emptied: false,
        additions: Vec::new(),
        layer,
    })
}

/// Message about a document of unknown kind.
const NEITHER: &str = "this is neither a MachineConfig (it has no kind and no spec) nor an Ignition config (it has no \
    ignition.version); give what `oc get mc NAME -o yaml` prints";

/// Refuses any other kind of object. The daemon's own record has no kind.
fn check_kind(envelope: &Envelope, prefix: &str) -> Result<(), Finding> {
    match envelope.kind.as_deref() {
        None | Some("MachineConfig") => {}
        Some(other) => {
            let message = format!("kind is {other:?}; a MachineConfig is needed");
            return Err(Finding::error(format!("{prefix}kind"), message));
        }
    }
    match envelope.api_version.as_deref() {
        Some(version) if !version.starts_with(GROUP) => Err(Finding::error(
            format!("{prefix}apiVersion"),
            format!("{version:?} is not {GROUP}v1"),
        )),
        None if envelope.kind.is_none() && envelope.spec.is_none() => {
            Err(Finding::error(prefix.trim_end_matches('.'), NEITHER))
        }
        _ if envelope.spec.is_none() => Err(Finding::error(
            format!("{prefix}spec"),
            "missing; this is not a MachineConfig",
        )),
        _ => Ok(()),
    }
}

/// Returns the name, which is used in file names and messages, so it has to be valid in Kubernetes.
fn checked_name(name: Option<String>, prefix: &str, findings: &mut Vec<Finding>) -> String {
    let name = name.unwrap_or_default();
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_empty() {
        findings.push(Finding::error(
            format!("{prefix}metadata.name"),
            "missing; the daemon's record needs the name",
        ));
    } else if name.len() > 253 || !name.chars().all(legal) {
        findings.push(Finding::error(
            format!("{prefix}metadata.name"),
            format!("{name:?} is not a Kubernetes object name"),
        ));
    }
    name
}

fn kernel_type(text: Option<&str>, prefix: &str, findings: &mut Vec<Finding>) -> KernelType {
    let text = text.unwrap_or_default();
    KernelType::parse(text).unwrap_or_else(|| {
        findings.push(Finding::error(
            format!("{prefix}spec.kernelType"),
            format!("kernelType={text} is invalid"),
        ));
        KernelType::Default
    })
}

fn ignition_part(config: Option<&str>, at: &str, findings: &mut Vec<Finding>) -> Option<Decoded> {
    let parsed = match decode_ignition(config?, at) {
        Ok(parsed) => parsed,
        Err(errors) => {
            findings.extend(errors);
            return None;
        }
    };
    findings.extend(check::all_findings(&parsed, at));
    let operators = check::check_special_modes(&parsed.config, at);
    findings.extend(
        operators
            .into_iter()
            .map(|finding| parsed.with_original_path(finding)),
    );
    Some(parsed)
}

/// Parses and checks a config of spec 2 or 3 that will be merged with another. `at` is its path in the document.
///
/// # Errors
/// Every error in it.
pub fn parse_layer(text: &str, at: &str) -> Result<ConfigLayer, Vec<Finding>> {
    let decoded = decode_ignition(text, at)?;
    let findings = check::all_findings(&decoded, at);
    let is_error = |finding: &Finding| finding.severity == Severity::Error;
    if findings.iter().any(is_error) {
        return Err(findings);
    }
    let minor = decoded.config.minor_version();
    let value = match decoded.converted {
        Some(converted) => converted.config,
        None => serde_json::from_str(text).map_err(|e| vec![json::syntax_finding(at, &e)])?,
    };
    ConfigLayer::new(&value, minor, at, findings).map_err(|finding| vec![finding])
}
