//! Derives a new rendered config from objects: runs the controllers and merges their MachineConfigs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::file_of;
use super::generated::GeneratedConfig;
use super::os_stream::{self, StreamImages};
use super::registries::{REGISTRIES_CONF, owned_files};
use super::{
    ApiObject, Base, Cluster, Generation, Note, ObjectRefusal, credentials, generate_configs,
};
use crate::base::order::StableOrder;
use crate::config::document::{DocumentError, yaml};
use crate::config::render::{self, Input, Pool, RenderedChanges};

/// Objects, and the configs that they change.
#[derive(Debug)]
pub struct Request {
    /// The pool, with the images and the operator's version if the caller knows them.
    pub pool: Pool,
    /// MachineConfigs: every part of the pool, or those to merge onto the `base`.
    pub configs: Vec<(ApiObject, Input)>,
    /// MachineConfigs of other pools, which some controllers read.
    pub others: Vec<ApiObject>,
    /// The cluster's objects from which the existing parts were generated.
    pub known: Vec<ApiObject>,
    /// New or changed objects.
    pub given: Vec<ApiObject>,
    /// A rendered config, with its name in messages. If it is given, `configs` are not all parts.
    pub base: Option<(String, Value)>,
    /// Image of the running release, in case no ClusterVersion has it.
    pub release_image: Option<String>,
}

/// A new rendered config.
#[derive(Debug)]
pub struct Derived {
    /// The rendered MachineConfig.
    pub rendered: Value,
    /// The new or changed MachineConfigs that the controllers generate from the objects.
    pub generated: Vec<Value>,
    /// Notes. An `inexact` one says why the name may differ from the cluster's.
    pub notes: Vec<Note>,
}

impl Derived {
    /// Returns the name of the rendered MachineConfig.
    pub fn name(&self) -> &str {
        let name = self.rendered.pointer("/metadata/name");
        name.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns true if the cluster would give the same name for the same objects.
    pub fn is_exact(&self) -> bool {
        !self.notes.iter().any(|note| note.inexact)
    }
}

/// The reason why no config can be derived.
#[derive(Debug, thiserror::Error)]
pub enum DeriveError {
    /// A controller refuses objects.
    #[error("{}", refusals_text(.0))]
    Refused(Vec<ObjectRefusal>),
    /// A MachineConfig, or the rendered result, is refused.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The parts contain a generated MachineConfig that the known objects do not produce.
    #[error(
        "{0} contains more than the known objects generate. Objects of the cluster are missing: {1}. Give them with \
         --parts, or give the node's rendered config with --base in place of the parts"
    )]
    ObjectsMissing(String, &'static str),
}

fn refusals_text(refusals: &[ObjectRefusal]) -> String {
    let line = |refusal: &ObjectRefusal| {
        let advice = match refusal.advice.as_str() {
            "" => String::new(),
            advice => format!("\n  To fix it: {advice}"),
        };
        format!(
            "{}: {}: {}{advice}",
            refusal.place, refusal.object, refusal.message
        )
    };
    let lines: Vec<String> = refusals.iter().map(line).collect();
    lines.join("\n")
}

/// The controller that a generated MachineConfig belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Registries,
    Credentials,
    Runtime,
    Kubelet,
}

impl Family {
    const ALL: [Self; 4] = [
        Self::Registries,
        Self::Credentials,
        Self::Runtime,
        Self::Kubelet,
    ];

    fn of_config(name: &str) -> Option<Self> {
        let (_, rest) = name.split_once("-generated-")?;
        match rest {
            "registries" => Some(Self::Registries),
            credentials::NAME_END => Some(Self::Credentials),
            rest if rest.starts_with("containerruntime") => Some(Self::Runtime),
            rest if rest.starts_with("kubelet") => Some(Self::Kubelet),
            _ => None,
        }
    }

    /// Returns the controllers that read this kind.
    fn of_kind(kind: &str) -> &'static [Self] {
        match kind {
            "KubeletConfig" | "Node" | "APIServer" => &[Self::Kubelet],
            "ContainerRuntimeConfig" => &[Self::Runtime],
            "CRIOCredentialProviderConfig" => &[Self::Credentials],
            "OSImageStream" => &[],
            "FeatureGate" | "MachineConfigPool" => &Self::ALL,
            _ => &[Self::Registries],
        }
    }

    /// Returns the objects that it reads, in the form of `oc get`.
    fn read_objects(self) -> &'static str {
        match self {
            Self::Registries => {
                "imagedigestmirrorsets, imagetagmirrorsets, imagecontentsourcepolicies, images.config, clusterimagepolicies, \
                 imagepolicies"
            }
            Self::Credentials => "criocredentialproviderconfigs",
            Self::Runtime => "containerruntimeconfigs",
            Self::Kubelet => "kubeletconfigs",
        }
    }
}

/// Derives the rendered config of the request's pool.
///
/// # Errors
/// A refusal of a controller or of the render controller; parts without the objects that they were generated from.
pub fn derive_config(request: Request) -> Result<Derived, DeriveError> {
    match request.base {
        Some(_) => derive_on_top(request),
        None => derive_of_parts(request),
    }
}

fn run_controllers(
    objects: Vec<ApiObject>,
    base: Base,
    pool: &str,
    release_image: Option<&str>,
) -> Result<(Cluster, Generation), DeriveError> {
    let mut cluster = Cluster::new(objects, base, pool);
    if let Some(image) = release_image {
        cluster.release_image = Some(image.to_owned());
    }
    let generation = generate_configs(&cluster);
    if generation.refusals.is_empty() {
        return Ok((cluster, generation));
    }
    Err(DeriveError::Refused(generation.refusals))
}

/// Returns the roles whose MachineConfigs belong to a pool.
fn roles_of(cluster: &Cluster, pool: &str) -> Vec<String> {
    let custom = cluster
        .pools
        .iter()
        .any(|one| one.name == pool && one.is_custom());
    let inherited = custom.then(|| "worker".to_owned());
    inherited.into_iter().chain([pool.to_owned()]).collect()
}

fn derive_of_parts(request: Request) -> Result<Derived, DeriveError> {
    let pool = request.pool.name.clone();
    let release = request.release_image.clone();
    let others = request.others;
    let parts = |configs: &[(ApiObject, Input)]| {
        let own = configs.iter().map(|(object, _)| object);
        let part = |object: &ApiObject| (object.name.clone(), object.value.clone());
        Base::Parts(others.iter().chain(own).map(part).collect())
    };
    let families: BTreeSet<Family> = request
        .given
        .iter()
        .flat_map(|object| Family::of_kind(&object.kind))
        .copied()
        .collect();
    let (_, before) = run_controllers(
        request.known.clone(),
        parts(&request.configs),
        &pool,
        release.as_deref(),
    )?;
    let claimed = claimed_by(&request.given);
    let mut all = request.known;
    all.extend(request.given);
    let (cluster, after) =
        run_controllers(all, parts(&request.configs), &pool, release.as_deref())?;
    let roles = roles_of(&cluster, &pool);
    let operator = operator_of(&request.pool, &cluster);

    let mut configs: BTreeMap<String, (Value, Input)> = BTreeMap::new();
    for (object, input) in request.configs {
        configs.insert(object.name.clone(), (object.value, input));
    }
    let is_of_roles = |value: &Value| {
        let role = super::cluster::role_of(value);
        role.is_some_and(|role| roles.iter().any(|one| one == role))
    };
    for (name, (value, _)) in &configs {
        if let Some(family) = Family::of_config(name)
            && families.contains(&family)
            && name.starts_with("99-")
            && is_of_roles(value)
            && !makes_same(&before, name, value)
            && !claimed.contains(name)
            && after.configs.iter().any(|config| config.name == *name)
        {
            return Err(DeriveError::ObjectsMissing(
                name.clone(),
                family.read_objects(),
            ));
        }
    }
    let touched = |name: &str| Family::of_config(name).is_some_and(|one| families.contains(&one));
    let ours = |config: &&GeneratedConfig| roles.contains(&config.pool) && touched(&config.name);
    let mut generated = Vec::new();
    for config in after.configs.iter().filter(ours) {
        let object = config.object(operator.as_deref());
        if configs
            .get(&config.name)
            .is_none_or(|(old, _)| old.get("spec") != object.get("spec"))
        {
            generated.push(object);
        }
    }
    let parts = after.changed_parts.iter().filter(|part| is_of_roles(part));
    generated.extend(parts.cloned());
    for name in after.deleted.iter().filter(|name| touched(name)) {
        configs.remove(name);
    }
    let mut inputs: Vec<Input> = Vec::new();
    for object in &generated {
        configs.remove(name_of(object));
        inputs.extend(render::read_inputs(
            object.to_string().as_bytes(),
            name_of(object),
        )?);
    }
    inputs.extend(configs.into_values().map(|(_, input)| input));
    let mut notes = after.notes;
    let mut pool = request.pool;
    let stream = take_stream(&cluster, &mut pool, &mut notes)?;
    let rendered = render::render_pool(inputs, &pool)?;
    refuse_override(&cluster, &pool, stream.as_ref(), &rendered)?;
    Ok(Derived {
        rendered,
        generated,
        notes,
    })
}

/// Sets the pool's images to those of its OS stream, if the objects have them.
fn take_stream(
    cluster: &Cluster,
    pool: &mut Pool,
    notes: &mut Vec<Note>,
) -> Result<Option<StreamImages>, DeriveError> {
    let images = os_stream::images_of_pool(cluster, &pool.name, notes);
    let images = images.map_err(|refusal| DeriveError::Refused(vec![refusal]))?;
    let Some(images) = images else {
        return Ok(None);
    };
    let given = pool.os_image.replace(images.os.clone());
    pool.extensions_image = Some(images.extensions.clone());
    if let Some(given) = given.filter(|given| *given != images.os) {
        notes.push(Note::exact(
            "OSImageStream cluster".to_owned(),
            format!(
                "The pool {} takes the OS stream {}, so its image is {}, not {given}.",
                pool.name, images.stream, images.os
            ),
        ));
    }
    Ok(Some(images))
}

fn refuse_override(
    cluster: &Cluster,
    pool: &Pool,
    stream: Option<&StreamImages>,
    rendered: &Value,
) -> Result<(), DeriveError> {
    let image = rendered.pointer("/spec/osImageURL").and_then(Value::as_str);
    let (Some(images), Some(image)) = (stream, image) else {
        return Ok(());
    };
    os_stream::refuse_override(cluster, &pool.name, images, image)
        .map_err(|refusal| DeriveError::Refused(vec![refusal]))
}

/// Returns the MachineConfigs that were generated from the objects, according to their finalizers.
fn claimed_by(objects: &[ApiObject]) -> BTreeSet<String> {
    let lists = objects
        .iter()
        .filter_map(|object| object.get("/metadata/finalizers")?.as_array());
    let names = lists.flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

fn name_of(object: &Value) -> &str {
    let name = object.pointer("/metadata/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if the objects produce exactly this MachineConfig, or if it has no files to lose.
fn makes_same(generation: &Generation, name: &str, existing: &Value) -> bool {
    let files = existing.pointer("/spec/config/storage/files");
    let is_empty = files.and_then(Value::as_array).is_none_or(Vec::is_empty);
    let made = generation.configs.iter().find(|config| config.name == name);
    is_empty || made.is_some_and(|config| config.object(None).get("spec") == existing.get("spec"))
}

/// Returns the version of the operator: the given one, or that of the base.
fn operator_of(pool: &Pool, cluster: &Cluster) -> Option<String> {
    let given = pool.controller_version.clone();
    given.or_else(|| cluster.base.operator().map(str::to_owned))
}

fn derive_on_top(request: Request) -> Result<Derived, DeriveError> {
    let pool = request.pool.name.clone();
    let Some((origin, base)) = request.base else {
        return derive_of_parts(request);
    };
    let mut all = request.known;
    all.extend(request.given);
    let families: BTreeSet<Family> = all
        .iter()
        .flat_map(|object| Family::of_kind(&object.kind))
        .copied()
        .collect();
    let (cluster, after) = run_controllers(
        all,
        Base::Rendered(base.clone()),
        &pool,
        request.release_image.as_deref(),
    )?;
    let roles = roles_of(&cluster, &pool);
    let operator = operator_of(&request.pool, &cluster);
    let ours = |config: &&GeneratedConfig| {
        let family = Family::of_config(&config.name);
        roles.contains(&config.pool) && family.is_some_and(|one| families.contains(&one))
    };
    let mut changes = RenderedChanges::default();
    let generated = after.configs.iter().filter(ours);
    let generated = generated.map(|config| config.object(operator.as_deref()));
    let mut generated: Vec<Value> = generated.collect();
    generated.order_by(|a, b| name_of(a).cmp(name_of(b)));
    if families.contains(&Family::Registries) {
        restore_registries(&base, &generated, &mut changes);
    }
    changes
        .removed_files
        .extend(list_stale_credentials(&base, &generated));
    let mut notes = after.notes;
    let gates = cluster.gates.as_ref();
    notes.extend(merge_doubts(
        &base,
        &generated,
        &changes,
        &request.configs,
        gates,
    ));
    changes.parts = order_parts(&generated, request.configs)?;
    let mut pool = request.pool;
    let stream = take_stream(&cluster, &mut pool, &mut notes)?;
    let rendered = render::render_on_top(&base, changes, &origin, &pool)?;
    refuse_override(&cluster, &pool, stream.as_ref(), &rendered)?;
    Ok(Derived {
        rendered,
        generated,
        notes,
    })
}

/// Returns the files of the credential provider that the controller no longer generates.
fn list_stale_credentials(base: &Value, generated: &[Value]) -> Vec<String> {
    let mut parts = generated.iter();
    if !parts.any(|part| name_of(part).ends_with(credentials::NAME_END)) {
        return Vec::new();
    }
    let is_stale = |path: &&str| {
        is_generated(base, path) && !generated.iter().any(|part| file_of(part, path).is_some())
    };
    let stale = credentials::OWNED.into_iter().filter(is_stale);
    stale.map(str::to_owned).collect()
}

/// Returns the generated and the given parts in the order of the merge; a custom pool inherits the workers' first.
fn order_parts(
    generated: &[Value],
    configs: Vec<(ApiObject, Input)>,
) -> Result<Vec<Input>, DeriveError> {
    let mut parts: Vec<(String, Input)> = Vec::new();
    for object in generated {
        let inputs = render::read_inputs(object.to_string().as_bytes(), name_of(object))?;
        let named = inputs.into_iter();
        parts.extend(named.map(|input| (name_of(object).to_owned(), input)));
    }
    let given = configs.into_iter();
    parts.extend(given.map(|(object, input)| (object.name, input)));
    parts.order_by_key(|(name, input)| (input.role != "worker", name.clone()));
    Ok(parts.into_iter().map(|(_, input)| input).collect())
}

/// Returns reasons why the cluster's merge may give a different name than a merge onto the rendered config.
fn merge_doubts(
    base: &Value,
    generated: &[Value],
    changes: &RenderedChanges,
    configs: &[(ApiObject, Input)],
    gates: Option<&BTreeMap<String, bool>>,
) -> Vec<Note> {
    let files = generated
        .iter()
        .filter_map(|part| part.pointer("/spec/config/storage/files")?.as_array());
    let paths: BTreeSet<&str> = files
        .flatten()
        .filter_map(|file| file.get("path")?.as_str())
        .collect();
    let is_new = |path: &&&str| file_of(base, path).is_none();
    let new: Vec<&str> = paths.iter().filter(is_new).copied().collect();
    let mut texts = Vec::new();
    if !new.is_empty() {
        texts.push(format!(
            "New files, at the end of the list: {}. In the cluster they come before the files that a later \
             MachineConfig adds, if one does.",
            new.join(", ")
        ));
    }
    let restored = changes.replaced_files.iter();
    let restored = restored.filter_map(|entry| entry.get("path")?.as_str());
    let changed: BTreeSet<&str> = paths.iter().copied().chain(restored).collect();
    let foreign = changed.into_iter().filter(|path| is_foreign(base, path));
    let foreign: Vec<&str> = foreign.collect();
    if !foreign.is_empty() {
        texts.push(format!(
            "{}: the rendered config has the file in a form that today's operator does not write. Another operator made it, or \
             a MachineConfig of an admin.",
            foreign.join(", ")
        ));
    }
    if !configs.is_empty() {
        let names = configs.iter().map(|(object, _)| object.name.as_str());
        let names: Vec<&str> = names.collect();
        texts.push(format!(
            "{} overrides everything here. In the cluster a MachineConfig with a later name overrides it.",
            names.join(", ")
        ));
    }
    if gates.is_some_and(|gates| has_other_gates(base, gates)) {
        texts.push(
            "The feature gates in kubelet.conf stay those of the rendered config.".to_owned(),
        );
    }
    texts.into_iter().map(note_doubt).collect()
}

fn note_doubt(text: String) -> Note {
    Note::inexact(String::new(), text)
}

/// Returns true if kubelet.conf in the rendered config has different feature gates.
fn has_other_gates(base: &Value, gates: &BTreeMap<String, bool>) -> bool {
    let text = file_of(base, KUBELET_CONF).and_then(|bytes| String::from_utf8(bytes).ok());
    let conf = text.and_then(|text| yaml::parse_yaml(&text).ok());
    let known = conf
        .as_ref()
        .and_then(|conf| conf.get("featureGates")?.as_object());
    let has = |(name, on): (&String, &bool)| {
        known.and_then(|known| known.get(name)) == Some(&Value::Bool(*on))
    };
    !gates.iter().all(has)
}

/// Restores the template's version of files that the registries controller no longer writes.
fn restore_registries(base: &Value, generated: &[Value], changes: &mut RenderedChanges) {
    let writes = |path: &str| generated.iter().any(|part| file_of(part, path).is_some());
    for owned in owned_files(base) {
        // The entries of registries.conf are all made by objects, whatever the form of its data URL.
        let is_own = owned.path == REGISTRIES_CONF || is_generated(base, &owned.path);
        if writes(&owned.path) || !is_own {
            continue;
        }
        match owned.template {
            Some(entry) => changes.replaced_files.push(entry),
            None => changes.removed_files.push(owned.path),
        }
    }
}

/// The kubelet's configuration, which includes the feature gates.
const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
/// The start of a data URL that the controllers write.
const OF_CONTROLLERS: &str = "data:text/plain;charset=utf-8;base64,";
/// The same of the templates.
const OF_TEMPLATES: &str = "data:,";

/// Returns true if a file in a rendered config has the form that the controllers write.
fn is_generated(base: &Value, path: &str) -> bool {
    source_of(base, path).is_some_and(|source| source.starts_with(OF_CONTROLLERS))
}

/// Returns true if a file in a rendered config has neither the controllers' form nor that of the templates.
fn is_foreign(base: &Value, path: &str) -> bool {
    let known =
        |source: &str| source.starts_with(OF_CONTROLLERS) || source.starts_with(OF_TEMPLATES);
    source_of(base, path).is_some_and(|source| !known(source))
}

fn source_of<'a>(base: &'a Value, path: &str) -> Option<&'a str> {
    let files = base.pointer("/spec/config/storage/files");
    let mut files = files.and_then(Value::as_array).into_iter().flatten();
    let file = files.find(|file| file.get("path").and_then(Value::as_str) == Some(path))?;
    file.pointer("/contents/source")?.as_str()
}
