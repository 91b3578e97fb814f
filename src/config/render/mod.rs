//! Renders the MachineConfigs of a pool like the operator's controller: one rendered config, whose name contains a digest of it
//! (docs/develop/agreement.md: Rendering).
//!
//! Documents in, a document out; no I/O. Ignition's part of the merge is in `document::merge`.

mod hash;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::base::order::StableOrder;
use crate::config::document::merge::{self, ConfigSection};
use crate::config::document::{
    self, CUT_SHORT, DocumentError, Finding, KernelType, MachineConfig, Severity, not_text,
    require_object, spec2, yaml,
};

pub use hash::{NameHash, name_hash, name_hash_of, name_matches};

const ROLE: &str = "machineconfiguration.openshift.io/role";
const RELEASE: &str = "machineconfiguration.openshift.io/release-image-version";
const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";
const OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";
/// The spec version of every rendered config.
const VERSION: &str = "3.5.0";
/// Its minor version, the newest that the operator (as of 2026-08) accepts.
const MINOR: u64 = 5;
/// Maximum size of a rendered config as JSON; the operator refuses a larger one.
const MAX_RENDERED: usize = 1_572_864;

/// What the controller knows besides the MachineConfigs.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// OS image of the release.
    pub os_image: Option<String>,
    /// Image with the extensions of the release.
    pub extensions_image: Option<String>,
    /// Version of the controller, for the annotation.
    pub controller_version: Option<String>,
}

/// One checked MachineConfig to be rendered.
#[derive(Debug)]
pub struct Input {
    /// The object.
    pub config: MachineConfig,
    /// The role in its label.
    pub role: String,
    /// Version of the controller that generated it. Its images are then ignored.
    generated_by: Option<String>,
    /// Its Ignition config in spec 3.5.
    ignition: Option<ConfigSection>,
}

/// Parses a file with one MachineConfig or a list of them. `origin` is its name in messages.
pub fn read_inputs(bytes: &[u8], origin: &str) -> Result<Vec<Input>, DocumentError> {
    let refused = |finding| document_error(origin, finding);
    let text =
        std::str::from_utf8(bytes).map_err(|e| refused(Finding::error("", not_text(bytes, e))))?;
    let is_json = text.trim_start().starts_with('{');
    let json = if is_json || text.trim_start().is_empty() {
        text.to_owned()
    } else {
        let value = yaml::parse_yaml(text)
            .map_err(|e| refused(Finding::error("", format!("not valid YAML: {e}"))))?;
        value.to_string()
    };
    let objects = split_objects(&json).map_err(refused)?;
    let inputs = objects.iter().map(|(at, object)| {
        read_object(object, origin)
            .map_err(|error| with_place(error, at, (!is_json).then_some(text)))
    });
    inputs.collect()
}

fn document_error(origin: &str, finding: Finding) -> DocumentError {
    DocumentError {
        origin: origin.to_owned(),
        findings: vec![finding],
    }
}

/// Returns the objects in a document, each with its path.
fn split_objects(json: &str) -> Result<Vec<(String, String)>, Finding> {
    #[derive(Deserialize)]
    struct ConfigList {
        items: Option<Vec<Box<RawValue>>>,
    }
    if json.trim().is_empty() {
        return Err(Finding::error("", "the document is empty; copy it again"));
    }
    let list: ConfigList = serde_json::from_str(json).map_err(|e| {
        Finding::error(
            "",
            format!("not a MachineConfig: {e}{}", cut_short_hint(&e)),
        )
    })?;
    let Some(items) = list.items else {
        return Ok(vec![(String::new(), json.to_owned())]);
    };
    if items.is_empty() {
        return Err(Finding::error("items", "a list without a MachineConfig"));
    }
    let items = items.iter().enumerate();
    Ok(items
        .map(|(index, item)| (format!("items[{index}]."), item.get().to_owned()))
        .collect())
}

/// Returns the end of a message about text that may be truncated.
fn cut_short_hint(error: &serde_json::Error) -> String {
    if error.is_eof() {
        format!("; {CUT_SHORT}")
    } else {
        String::new()
    }
}

/// Returns the error with paths in the whole document, and lines if it is YAML.
fn with_place(mut error: DocumentError, at: &str, text: Option<&str>) -> DocumentError {
    for finding in &mut error.findings {
        finding.path = format!("{at}{}", finding.path);
    }
    if let Some(text) = text {
        yaml::add_lines(text, &mut error.findings);
    }
    error
}

fn read_object(text: &str, origin: &str) -> Result<Input, DocumentError> {
    let refused = |finding| document_error(origin, finding);
    let mut object: Value = serde_json::from_str(text)
        .map_err(|e| refused(Finding::error("", format!("not valid JSON: {e}"))))?;
    let at = |path: &str| object.pointer(path).filter(|value| !value.is_null());
    if at("/spec").is_none() {
        return Err(refused(Finding::error(
            "spec",
            "missing; this is not a MachineConfig",
        )));
    }
    let role = role_label(at("/metadata/labels")).map_err(refused)?;
    let generated_by = at("/metadata/annotations").and_then(|all| all.get(GENERATED_BY));
    let generated_by = generated_by.map(|version| version.as_str().unwrap_or_default().to_owned());
    let (config, ignition) = match at("/spec/config").cloned() {
        None => (document::parse_document(text.as_bytes(), origin)?, None),
        // Older specs have their own rules; the converted result has to follow ours.
        Some(mut old) if is_spec_2(&old) => {
            let dropped = drop_create(&mut old);
            let new = to_v3_5(&old).map_err(refused)?;
            if let Some(place) = object.pointer_mut("/spec/config") {
                *place = Value::Object(new.clone());
            }
            let mut checked = document::parse_document(object.to_string().as_bytes(), origin)?;
            checked.warnings.extend(dropped);
            (checked, Some(new))
        }
        Some(config) => {
            let checked = document::parse_document(text.as_bytes(), origin)?;
            (checked, Some(to_v3_5(&config).map_err(refused)?))
        }
    };
    Ok(Input {
        config,
        role,
        generated_by,
        ignition,
    })
}

/// Returns the role in a MachineConfig's label, by which a pool selects it.
fn role_label(labels: Option<&Value>) -> Result<String, Finding> {
    let Some(labels) = labels
        .and_then(Value::as_object)
        .filter(|all| !all.is_empty())
    else {
        let message =
            format!("missing; a MachineConfig that is to be rendered has the label {ROLE}");
        return Err(Finding::error("metadata.labels", message));
    };
    let role = labels.get(ROLE).and_then(Value::as_str);
    let missing = || Finding::error("metadata.labels", format!("the label {ROLE} is missing"));
    role.map(str::to_owned).ok_or_else(missing)
}

/// Removes `create` from the users of a spec 2 config, like the operator's conversion. Values of other types are kept, and the
/// conversion refuses them.
fn drop_create(config: &mut Value) -> Vec<Finding> {
    let users = config.pointer_mut("/passwd/users");
    let users = users.and_then(Value::as_array_mut).into_iter().flatten();
    let mut dropped = Vec::new();
    for (index, user) in users.enumerate() {
        let create = user
            .as_object_mut()
            .and_then(|user| user.shift_remove("create"));
        if create.is_some() {
            let at = format!("spec.config.passwd.users[{index}].create");
            dropped.push(Finding::warning(
                at,
                "left out, as the operator leaves it out",
            ));
        }
    }
    dropped
}

fn spec_version(config: &Value) -> &str {
    let version = config.pointer("/ignition/version").and_then(Value::as_str);
    version.unwrap_or_default()
}

fn is_spec_2(config: &Value) -> bool {
    spec_version(config).starts_with("2.")
}

/// Converts an Ignition config of any version that the operator accepts to spec 3.5.
///
/// This is the only place where versions differ; translations of spec 2 belong here.
fn to_v3_5(config: &Value) -> Result<ConfigSection, Finding> {
    let at = "spec.config.ignition.version";
    require_object(config, "spec.config")?;
    let version = spec_version(config);
    if is_spec_2(config) {
        let errors = |findings: Vec<Finding>| {
            let error = findings
                .into_iter()
                .find(|finding| finding.severity == Severity::Error);
            error.unwrap_or_else(|| Finding::error(at, format!("spec {version} cannot be read")))
        };
        let converted = spec2::convert_spec2(config, "spec.config").map_err(errors)?;
        if converted.minor > spec2::DAEMON_MINOR {
            let message = format!(
                "unknown version {version:?}; the operator reads 2.2.0 and 3.0.0 to {VERSION}"
            );
            return Err(Finding::error(at, message));
        }
        return to_v3_5(&converted.config);
    }
    let minor = version
        .strip_prefix("3.")
        .and_then(|rest| rest.strip_suffix(".0"));
    let minor = minor.and_then(|minor| minor.parse().ok());
    let Some(minor) = minor.filter(|minor| *minor <= MINOR) else {
        let message = format!("unknown version {version:?}; the operator reads 3.0.0 to {VERSION}");
        return Err(Finding::error(at, message));
    };
    let mut new = merge::read_section(config, minor, "spec.config")?;
    set_version(&mut new);
    Ok(new)
}

fn set_version(config: &mut ConfigSection) {
    let ignition = config.entry("ignition").or_insert_with(|| json!({}));
    if let Some(ignition) = ignition.as_object_mut() {
        ignition.insert("version".to_owned(), VERSION.into());
    }
}

/// Renders the MachineConfigs of a pool; their order does not matter.
pub fn render_pool(mut inputs: Vec<Input>, pool: &Pool) -> Result<Value, DocumentError> {
    in_merge_order(&mut inputs)?;
    render_inputs(&inputs, pool)
}

/// Changes to a rendered config whose parts are unknown.
#[derive(Debug, Default)]
pub struct RenderedChanges {
    /// MachineConfigs that are merged over the rendered config, in this order.
    pub parts: Vec<Input>,
    /// Paths of files that are removed from the rendered config before the merge.
    pub removed_files: Vec<String>,
    /// Entries of `storage.files` that replace those with the same path before the merge.
    pub replaced_files: Vec<Value>,
    /// Kernel arguments that are removed from the rendered config before the merge.
    pub removed_arguments: Vec<String>,
}

/// Renders a config on top of a rendered one.
///
/// The result has the name that the cluster would give it, provided that the cluster's merge puts new files in the same places.
/// That is the case unless a later MachineConfig also adds files.
///
/// # Errors
/// `base` is not a rendered config; otherwise as for [`render_pool`].
pub fn render_on_top(
    base: &Value,
    changes: RenderedChanges,
    origin: &str,
    pool: &Pool,
) -> Result<Value, DocumentError> {
    let mut object = base.clone();
    change_base(&mut object, &changes);
    let mut config = document::parse_document(object.to_string().into_bytes(), origin)?;
    let ignition = object.pointer("/spec/config").filter(|one| !one.is_null());
    let ignition = ignition.map(to_v3_5).transpose();
    let generated = object.pointer("/metadata/annotations");
    let version = generated.and_then(|all| all.get(GENERATED_BY)?.as_str());
    let mut pool = pool.clone();
    if pool.controller_version.is_none() {
        pool.controller_version = version.map(str::to_owned);
    }
    let overridden = generated.is_some_and(|all| all.get(OVERRIDDEN).is_some());
    if !overridden {
        // The images of the base are the release's, and those of the pool replace them.
        let old = &mut config.os_image_url;
        old.clone_from(pool.os_image.get_or_insert(old.clone()));
        if let Some(image) = &pool.extensions_image {
            config.extensions_image.clone_from(image);
        }
    }
    let below = Input {
        config,
        role: pool.name.clone(),
        generated_by: None,
        ignition: ignition.map_err(|finding| document_error(origin, finding))?,
    };
    let mut inputs = vec![below];
    inputs.extend(changes.parts);
    render_inputs(&inputs, &pool)
}

/// Removes and replaces files and arguments in the base.
fn change_base(object: &mut Value, changes: &RenderedChanges) {
    if let Some(files) = object.pointer_mut("/spec/config/storage/files")
        && let Some(files) = files.as_array_mut()
    {
        let path = |file: &Value| file.get("path").and_then(Value::as_str).map(str::to_owned);
        files.retain(|file| path(file).is_none_or(|path| !changes.removed_files.contains(&path)));
        for file in files {
            let mut new = changes.replaced_files.iter();
            if let Some(new) = new.find(|new| path(new) == path(file)) {
                *file = new.clone();
            }
        }
    }
    if let Some(arguments) = object.pointer_mut("/spec/kernelArguments")
        && let Some(arguments) = arguments.as_array_mut()
    {
        let removed = |argument: &Value| {
            let argument = argument.as_str().unwrap_or_default();
            changes.removed_arguments.iter().any(|one| one == argument)
        };
        arguments.retain(|argument| !removed(argument));
    }
}

fn render_inputs(inputs: &[Input], pool: &Pool) -> Result<Value, DocumentError> {
    let controller = controller_version(inputs, pool.controller_version.as_deref())?;
    let origin = format!("the rendered config of pool {}", pool.name);
    let spec = rendered_spec(inputs, pool).map_err(|finding| document_error(&origin, finding))?;
    if let Some(finding) = find_control_character(&spec, "spec") {
        return Err(document_error(&origin, finding));
    }
    let hash = name_hash(&spec).map_err(|finding| document_error(&origin, finding))?;
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": rendered_metadata(pool, controller, find_release(inputs), &format!("rendered-{}-{hash}", pool.name), &spec),
        "spec": spec,
    });
    let text = object.to_string();
    if text.len() > MAX_RENDERED {
        let message = format!(
            "{} bytes; the operator refuses more than {MAX_RENDERED}",
            text.len()
        );
        return Err(document_error(&origin, Finding::error("", message)));
    }
    // Merging valid configs can produce an invalid one.
    document::parse_document(text.as_bytes(), &origin)?;
    Ok(object)
}

/// Finds a character on which the operator fails: it parses the object's JSON, in which fewer characters are escaped, as YAML.
fn find_control_character(value: &Value, at: &str) -> Option<Finding> {
    let in_text = |text: &str| {
        let refused = |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
        let found = text.chars().find(|c| refused(*c))?;
        let code = u32::from(found);
        let message = format!(
            "has U+{code:04X} in it, and the operator cannot render that: yaml: control characters are not allowed. Take the \
             character out, or bring the contents in base64"
        );
        Some(Finding::error(at, message))
    };
    match value {
        Value::String(text) => in_text(text),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(i, item)| find_control_character(item, &format!("{at}[{i}]")))
        }
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            in_text(key).or_else(|| find_control_character(value, &format!("{at}.{key}")))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Sorts the role worker first, then all others, each by name. Names have to be unique.
fn in_merge_order(inputs: &mut [Input]) -> Result<(), DocumentError> {
    let key = |input: &Input| (input.role != "worker", input.config.name.clone());
    inputs.order_by_key(key);
    for (index, input) in inputs.iter().enumerate() {
        let mut before = inputs.iter().take(index);
        if let Some(twin) = before.find(|other| other.config.name == input.config.name) {
            let message = format!(
                "{:?} is the name of a config in {}, too",
                input.config.name, twin.config.origin
            );
            return Err(document_error(
                &input.config.origin,
                Finding::error("metadata.name", message),
            ));
        }
    }
    Ok(())
}

/// Returns the version of the rendering controller: the `given` one, or else that of the controller-generated configs. The
/// operator refuses a pool if one of these has another version.
fn controller_version<'a>(
    inputs: &'a [Input],
    given: Option<&'a str>,
) -> Result<Option<&'a str>, DocumentError> {
    let mut own = given;
    for input in inputs {
        let Some(version) = input.generated_by.as_deref().filter(|one| !one.is_empty()) else {
            continue;
        };
        let own = *own.get_or_insert(version);
        if version != own {
            let message = format!(
                "ignoring MC {} generated by older version {version} (my version: {own}); give the MachineConfigs of \
                 one release, and with --controller-version its operator's version",
                input.config.name
            );
            let at = "metadata.annotations";
            return Err(document_error(
                &input.config.origin,
                Finding::error(at, message),
            ));
        }
    }
    Ok(own)
}

/// Returns the release that rendered a part, such as the config on which a change is based.
fn find_release(inputs: &[Input]) -> Option<&str> {
    let mut releases = inputs.iter();
    let release = releases.find_map(|input| input.config.provenance.release.as_deref());
    release.filter(|release| !release.is_empty())
}

fn rendered_metadata(
    pool: &Pool,
    controller: Option<&str>,
    release: Option<&str>,
    name: &str,
    spec: &Value,
) -> Value {
    let mut annotations = Map::new();
    if let Some(release) = release {
        annotations.insert(RELEASE.to_owned(), release.into());
    }
    if let Some(version) = controller {
        annotations.insert(GENERATED_BY.to_owned(), version.into());
    }
    let image = spec.get("osImageURL").and_then(Value::as_str);
    if pool.os_image.is_some() && pool.os_image.as_deref() != image {
        annotations.insert(OVERRIDDEN.to_owned(), "true".into());
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), name.into());
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    let owner = json!([{
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "name": pool.name,
        "uid": "",
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    metadata.insert("ownerReferences".to_owned(), owner);
    metadata.into()
}

fn rendered_spec(inputs: &[Input], pool: &Pool) -> Result<Value, Finding> {
    let configs = || inputs.iter().map(|input| &input.config);
    let kernel_type = kernel_type(inputs);
    let extensions: Vec<_> = configs().flat_map(|config| &config.extensions).collect();
    if kernel_type != KernelType::Default && extensions.iter().any(|name| *name == "kernel-devel") {
        let message = format!(
            "installing kernel-devel extension is not supported with kernelType: {}",
            kernel_type.as_str()
        );
        return Err(Finding::error("spec.extensions", message));
    }
    let arguments: Vec<_> = configs()
        .flat_map(|config| &config.kernel_arguments)
        .collect();
    Ok(json!({
        "osImageURL": chosen_image(inputs, pool.os_image.as_deref(), |config| &config.os_image_url),
        "baseOSExtensionsContainerImage":
            chosen_image(inputs, pool.extensions_image.as_deref(), |config| &config.extensions_image),
        "config": merged_ignition(inputs)?,
        "kernelArguments": arguments,
        "extensions": extensions,
        "fips": configs().any(|config| config.fips),
        "kernelType": kernel_type.as_str(),
    }))
}

/// Returns the last kernel type that is not the default.
fn kernel_type(inputs: &[Input]) -> KernelType {
    let mut types = inputs.iter().rev().map(|input| input.config.kernel_type);
    let special = types.find(|kernel_type| *kernel_type != KernelType::Default);
    special.unwrap_or_default()
}

/// Returns the last image set by a user's config, or else the release's.
fn chosen_image<'a>(
    inputs: &'a [Input],
    default: Option<&'a str>,
    of: impl Fn(&'a MachineConfig) -> &'a String,
) -> &'a str {
    let asked = inputs
        .iter()
        .rev()
        .filter(|input| input.generated_by.is_none());
    let mut images = asked.map(|input| of(&input.config).as_str());
    let image = images.find(|image| !image.is_empty());
    image.or(default).unwrap_or_default()
}

/// Merges the Ignition configs, with the operator's additions to Ignition's merge.
fn merged_ignition(inputs: &[Input]) -> Result<ConfigSection, Finding> {
    let mut configs = inputs.iter().map(|input| input.ignition.clone());
    let mut merged = configs.next().flatten().unwrap_or_default();
    set_version(&mut merged);
    for mut child in configs.flatten() {
        // Otherwise, in Ignition's merge, an uncompressed file would inherit the compression of the one below it.
        each_file(&mut child, |file| {
            set_default(file_contents(file), "compression", "".into())
        });
        merged = merge::merge_sections(&merged, &child);
        each_file(&mut merged, forget_empty_compression);
    }
    each_file(&mut merged, |file| {
        set_default(Some(file), "overwrite", true.into())
    });
    merge::without_empty(merged)
}

fn each_file(config: &mut ConfigSection, mut change: impl FnMut(&mut ConfigSection)) {
    let storage = config.get_mut("storage");
    let files = storage.and_then(|storage| storage.get_mut("files"));
    let files = files.and_then(Value::as_array_mut).into_iter().flatten();
    files.filter_map(Value::as_object_mut).for_each(&mut change);
}

fn file_contents(file: &mut ConfigSection) -> Option<&mut ConfigSection> {
    file.entry("contents")
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

fn set_default(section: Option<&mut ConfigSection>, key: &str, value: Value) {
    if let Some(section) = section {
        section.entry(key).or_insert(value);
    }
}

fn forget_empty_compression(file: &mut ConfigSection) {
    if let Some(contents) = file_contents(file)
        && contents.get("compression").and_then(Value::as_str) == Some("")
    {
        contents.remove("compression");
    }
}
