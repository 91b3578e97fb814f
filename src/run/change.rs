//! `change`: changes an object of the cluster on the node, and stores the resulting rendered config in the cache.

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::cache::keep_config;
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::session::{Unnamed, choose_config};
use crate::change::source::changes::{KeptChange, KeptChanges, title_of};
use crate::change::source::gate::CapsuleOptions;
use crate::change::source::{self, cache, objects};
use crate::change::transaction::{open_store, store_value};
use crate::config::controllers::cluster::{file_of, role_of};
use crate::config::controllers::derive::{Derived, Request, derive_config};
use crate::config::controllers::generated::{GENERATED_BY, data_contents};
use crate::config::controllers::registries::{
    Inverted, add_mirror, files_in_force, invert_files, mirrors_of, remove_mirror,
};
use crate::config::controllers::{
    ApiObject, Base, Cluster, if_forgotten, is_of_registries, kubelet, read_objects, runtime,
    with_fields,
};
use crate::config::document::{self, MachineConfig};
use crate::config::render::Pool;
use crate::host::root::{Root, RootPath};
use crate::node::Records;
use crate::node::images::ImageName;
use crate::node::images::policy::SignaturePolicy;

/// A change of a mirror.
#[derive(Debug, Clone, Copy)]
pub struct MirrorRequest<'a> {
    /// Registry or repository that images name.
    pub source: &'a str,
    /// The mirrors, in order.
    pub mirrors: &'a [String],
    /// For images named by tag.
    pub tags: bool,
    /// Nothing is pulled from the source itself.
    pub never_contact_source: bool,
    /// The mirrors are removed.
    pub remove: bool,
}

/// What to change.
#[derive(Debug, Clone)]
pub enum ChangeRequest<'a> {
    /// A mirror.
    Mirror(MirrorRequest<'a>),
    /// Fields of the kubelet's configuration.
    Kubelet(&'a [String]),
    /// Fields of the container runtime.
    Runtime(&'a [String]),
    /// Objects from these files.
    With(Vec<&'a str>),
}

/// The config that a change is made from, and what is done with the result.
#[derive(Debug, Clone, Copy)]
pub struct ChangeOptions<'a> {
    /// A rendered config; `None` for the recorded one.
    pub from: Option<&'a str>,
    /// Files and directories with objects of the cluster.
    pub parts: &'a [String],
    /// Image of the release, for blocked and allowed registries.
    pub release_image: Option<&'a str>,
    /// Nothing is stored.
    pub dry_run: bool,
}

/// A change that was derived.
#[derive(Debug, Serialize)]
pub struct DerivedChange {
    /// The change in words.
    pub what: String,
    /// Name of the new rendered config.
    pub config: String,
    /// Name of the config from which it was derived.
    pub from: String,
    /// The pool.
    pub pool: String,
    /// True if the contents are the same as those of the config it was made from.
    pub unchanged: bool,
    /// True if the cluster gives the same objects the same name.
    pub exact: bool,
    /// Reasons why the name may differ.
    pub reasons: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
    /// The consequences of forgetting the objects.
    pub if_forgotten: Vec<String>,
    /// The objects for the API.
    pub objects: Vec<Value>,
    /// True if the new config is in the cache.
    pub kept: bool,
}

/// A change before it is derived.
#[derive(Default)]
struct Wanted {
    /// A description of the change.
    what: String,
    /// The objects behind the current config, as far as it reveals them.
    known: Vec<ApiObject>,
    /// The objects that are new or changed.
    given: Vec<ApiObject>,
    /// The objects for the API.
    apply: Vec<Value>,
    /// Image of the release, or a stand-in for it; `None` if an object names it.
    release_image: Option<String>,
    /// Notes on the objects.
    notes: Vec<String>,
    /// Kinds and names of objects of earlier changes that the API should no longer get.
    dropped: Vec<String>,
}

impl Wanted {
    /// Adds objects for the config and for the API.
    fn add_objects(&mut self, objects: Vec<Value>) -> Result<()> {
        let titles: Vec<String> = objects.iter().map(title_of).collect();
        self.notes.push(format!(
            "{} of an earlier change holds a file that changes here, and has the new contents now.",
            titles.join(", ")
        ));
        self.given
            .extend(to_objects(&objects, "the earlier change")?);
        self.apply.extend(objects);
        Ok(())
    }
}

/// Derives the config of a change, and stores it in the cache unless it is a dry run or nothing differs.
///
/// # Errors
/// The change cannot be derived or stored; then nothing is stored.
pub fn make_change(
    root: &Root,
    request: &ChangeRequest<'_>,
    options: &ChangeOptions<'_>,
) -> Result<DerivedChange> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let base = choose_config(root, options.from, Unnamed::Recorded, &records)?.config;
    let Some(pool) = cache::pool_of(&base) else {
        bail!(
            "{} names no pool; give a rendered MachineConfig with --from",
            base.name
        );
    };
    let rendered: Value = serde_json::from_str(&base.record).context("reading the config")?;
    let changes = KeptChanges::read(root).context("reading the changes")?;
    let before = changes
        .find_change(&base.name)
        .map(|change| change.objects.clone());
    let before = before.unwrap_or_default();
    let has_parts = !options.parts.is_empty();
    let mut wanted = match request {
        ChangeRequest::Mirror(mirror) => change_mirror(mirror, has_parts, &rendered, &before)?,
        ChangeRequest::Kubelet(settings) => {
            set_fields("kubelet", settings, &pool, &rendered, &before)?
        }
        ChangeRequest::Runtime(settings) => {
            set_fields("runtime", settings, &pool, &rendered, &before)?
        }
        ChangeRequest::With(files) => take_objects(root, files, has_parts, &rendered)?,
    };
    let mut derived = derive_change(options, &base, &pool, rendered.clone(), &wanted)?;
    if let ChangeRequest::Mirror(mirror) = request {
        check_mirrors(mirror, &derived.rendered)?;
    }
    if let ChangeRequest::Mirror(mirror) = request {
        wanted
            .notes
            .extend(describe_rejection(mirror, &derived.rendered));
    }
    let holders = update_holders(&before, &wanted.given, &derived.rendered);
    if !holders.is_empty() {
        wanted.add_objects(holders)?;
        derived = derive_change(options, &base, &pool, rendered, &wanted)?;
    }
    let mut change = describe_change(&base, &pool, &wanted, &derived);
    let text = serde_json::to_string(&derived.rendered)?;
    if !change.unchanged && !options.dry_run {
        store_change(root, &records, &change, &wanted.dropped, text)?;
        change.kept = true;
    }
    Ok(change)
}

/// Returns the values as objects, as if they were read from a file.
fn to_objects(values: &[Value], origin: &str) -> Result<Vec<ApiObject>> {
    let mut objects = Vec::new();
    for value in values {
        objects.extend(read_objects(value.to_string().as_bytes(), origin)?);
    }
    Ok(objects)
}

/// Checks that the new config has the mirrors that were asked for, or has them no longer.
fn check_mirrors(mirror: &MirrorRequest<'_>, rendered: &Value) -> Result<()> {
    let after = mirrors_of(&invert_registries(rendered)?, mirror.source, mirror.tags);
    let mut wrong = mirror.mirrors.iter();
    let Some(wrong) = wrong.find(|one| after.contains(one) == mirror.remove) else {
        return Ok(());
    };
    let has = if mirror.remove { "still has" } else { "lacks" };
    bail!(
        "the new config {has} {wrong} as a mirror of {}: another MachineConfig of the cluster holds registries.conf, and overrides \
         its mirrors. Nothing was changed. Edit the file on the node, then: {}; then: {}",
        mirror.source,
        mco_rescue("keep /etc/containers/registries.conf --to FILE"),
        mco_rescue("change with FILE")
    )
}

/// Returns a note if policy.json of the new config rejects the images that a mirror was added for: the policy is that of the name
/// in the image reference, wherever the image comes from.
fn describe_rejection(mirror: &MirrorRequest<'_>, rendered: &Value) -> Option<String> {
    let source = mirror.source;
    // Of a whole registry, any image.
    let name = ImageName::parse(source).or_else(|_| ImageName::parse(&format!("{source}/image")));
    // A damaged policy has a check of its own.
    let path = format!("/{}", paths::POLICY);
    let text = String::from_utf8(file_of(rendered, &path)?).ok()?;
    let policy = SignaturePolicy::parse(&text).ok()?;
    let ruling = policy.of_registry(&name.ok().filter(|_| !mirror.remove)?);
    ruling.rejects().then(|| {
        format!(
            "{path} of this config rejects {source} (rule: {}), so no mirror is used: allow it with a \
             ClusterImagePolicy, or in the lists of Image cluster.",
            ruling.rule
        )
    })
}

/// Returns the MachineConfigs of earlier changes that hold a file whose contents change, with the new contents. In the cluster
/// they go over what the controllers write.
fn update_holders(before: &[Value], given: &[ApiObject], rendered: &Value) -> Vec<Value> {
    let is_given = |path: &str| {
        let mut configs = given.iter().filter(|one| one.is_machine_config());
        configs.any(|config| file_of(&config.value, path).is_some())
    };
    let mut updated = Vec::new();
    let is_replaced = |object: &Value| given.iter().any(|one| one.title() == title_of(object));
    for object in before
        .iter()
        .filter(|object| object["kind"] == "MachineConfig" && !is_replaced(object))
    {
        let mut new = object.clone();
        let files = new.pointer_mut("/spec/config/storage/files");
        for file in files.and_then(Value::as_array_mut).into_iter().flatten() {
            let path = file.get("path").and_then(Value::as_str);
            let Some((path, bytes)) = path.and_then(|path| Some((path, file_of(rendered, path)?)))
            else {
                continue;
            };
            if !is_given(path) && file_of(object, path).as_ref() != Some(&bytes) {
                file["contents"] = data_contents(&bytes);
            }
        }
        if new != *object {
            updated.push(new);
        }
    }
    updated
}

/// Returns the objects that would produce the node's registries.conf and policy.json.
fn invert_registries(rendered: &Value) -> Result<Inverted> {
    invert_files(&files_in_force(rendered)).map_err(|error| {
        let path = &error.path;
        anyhow::anyhow!(
            "{path} was not written by the cluster's controller, so `change` cannot edit it (line {}: {}). Next: edit it \
             on the node, then: {}; then: {}. If you have the cluster's objects, give them in place of that: --parts PATH",
            error.line,
            error.message,
            mco_rescue(&format!("keep {path} --to FILE")),
            mco_rescue("change with FILE")
        )
    })
}

/// Returns the change that adds a mirror to those of the node, or removes one.
fn change_mirror(
    mirror: &MirrorRequest<'_>,
    has_parts: bool,
    rendered: &Value,
    before: &[Value],
) -> Result<Wanted> {
    let inverted = invert_registries(rendered)?;
    let (source, mirrors) = (mirror.source, mirror.mirrors);
    let kind = if mirror.tags { "by tag" } else { "by digest" };
    if !mirror.remove {
        let change = add_mirror(
            &inverted,
            source,
            mirrors,
            mirror.tags,
            mirror.never_contact_source,
        )
        .map_err(|error| with_next(error, "change mirror SOURCE MIRROR"))?;
        let apply: Vec<Value> = change.apply.into_iter().collect();
        return Ok(Wanted {
            what: format!(
                "mirror of {source} for images {kind}: {}",
                mirrors.join(", ")
            ),
            known: to_objects(&inverted.objects, "the node's registries.conf")?,
            given: to_objects(&apply, "the new object")?,
            apply,
            release_image: Some(inverted.release_image),
            notes: change.notes,
            dropped: Vec::new(),
        });
    }
    if has_parts {
        bail!(
            "with --parts, take the mirror out of its object and give that: change with FILE --parts PATH"
        );
    }
    let change = remove_mirror(&inverted, source, mirrors, mirror.tags)
        .map_err(|error| with_next(error, "show /etc/containers/registries.conf"))?;
    Ok(Wanted {
        what: format!(
            "no mirror of {source} for images {kind}: {}",
            mirrors.join(", ")
        ),
        known: Vec::new(),
        given: to_objects(&change.objects, "the node's registries.conf")?,
        apply: Vec::new(),
        release_image: Some(inverted.release_image),
        notes: change.notes,
        dropped: sets_of(before, source, mirrors),
    })
}

/// Adds the next command to the refusal of a mirror.
fn with_next(error: impl std::fmt::Display, command: &str) -> anyhow::Error {
    anyhow::anyhow!("{error:#}. Next: {}", mco_rescue(command))
}

/// Returns kinds and names of the mirror sets whose mirrors are all among the given mirrors of the source.
fn sets_of(objects: &[Value], source: &str, mirrors: &[String]) -> Vec<String> {
    let is_gone = |object: &&Value| {
        let lists = ["/spec/imageDigestMirrors", "/spec/imageTagMirrors"];
        let mut lists = lists
            .iter()
            .filter_map(|list| object.pointer(list)?.as_array());
        lists.any(|rules| {
            rules.iter().all(|rule| {
                let all = rule.get("mirrors").and_then(Value::as_array);
                let mut all = all.into_iter().flatten().filter_map(Value::as_str);
                rule.get("source").and_then(Value::as_str) == Some(source)
                    && all.all(|one| mirrors.iter().any(|mirror| mirror == one))
            })
        })
    };
    objects.iter().filter(is_gone).map(title_of).collect()
}

/// Returns the change that sets fields of the kubelet or the runtime, with a single object.
fn set_fields(
    what: &str,
    settings: &[String],
    pool: &str,
    rendered: &Value,
    before: &[Value],
) -> Result<Wanted> {
    let known = Cluster::new(Vec::new(), Base::Rendered(rendered.clone()), pool);
    let own = known.pools.iter().find(|one| one.name == pool);
    let own = own.context("the pool is not known")?;
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let object = match what {
        "kubelet" => kubelet::from_settings(own, &settings)?,
        _ => runtime::from_settings(own, &settings).map_err(anyhow::Error::msg)?,
    };
    // The object of an earlier change has the same name; its fields are preserved.
    let object = match before.iter().find(|one| title_of(one) == title_of(&object)) {
        Some(earlier) => with_fields(earlier, &object),
        None => object,
    };
    Ok(Wanted {
        what: format!("{what}: {}", settings.join(" ")),
        known: Vec::new(),
        given: to_objects(std::slice::from_ref(&object), "the settings")?,
        apply: vec![object],
        release_image: None,
        notes: Vec::new(),
        dropped: Vec::new(),
    })
}

/// Returns the change that adds objects from files to those of the node.
fn take_objects(root: &Root, files: &[&str], has_parts: bool, rendered: &Value) -> Result<Wanted> {
    let mut given = Vec::new();
    for file in files {
        let read = source::read_config(root, file, &CapsuleOptions::default())?;
        given.extend(objects::read_given(&read.bytes, file)?);
    }
    let mut wanted = Wanted {
        what: given
            .iter()
            .map(ApiObject::title)
            .collect::<Vec<_>>()
            .join(", "),
        known: Vec::new(),
        apply: given.iter().map(|object| object.value.clone()).collect(),
        release_image: None,
        notes: Vec::new(),
        dropped: Vec::new(),
        given,
    };
    if wanted
        .given
        .iter()
        .any(|object| is_of_registries(&object.kind))
        && !has_parts
    {
        let inverted = invert_registries(rendered)?;
        wanted.known = to_objects(&inverted.objects, "the node's registries.conf")?;
        wanted.release_image = Some(inverted.release_image);
        let known = inverted.ambiguities.iter();
        wanted
            .notes
            .extend(known.map(|words| format!("The node's files do not show {words}.")));
    }
    Ok(wanted)
}

/// Returns the config that the objects of a stored change make of the config that it was made from.
pub(super) fn replay_change(base: &MachineConfig, objects: &[Value]) -> Result<Value> {
    let pool = cache::pool_of(base).context("the config names no pool")?;
    let rendered: Value = serde_json::from_str(&base.record).context("reading the config")?;
    let mut wanted = Wanted {
        given: to_objects(objects, "the change")?,
        ..Wanted::default()
    };
    let mut kinds = wanted.given.iter();
    if kinds.any(|object| is_of_registries(&object.kind)) {
        let inverted = invert_registries(&rendered)?;
        wanted.known = to_objects(&inverted.objects, "the node's registries.conf")?;
        wanted.release_image = Some(inverted.release_image);
    }
    let options = ChangeOptions {
        from: None,
        parts: &[],
        release_image: None,
        dry_run: true,
    };
    Ok(derive_change(&options, base, &pool, rendered, &wanted)?.rendered)
}

/// Derives the new config: from the cluster's parts if they are given, otherwise on top of the node's config.
fn derive_change(
    options: &ChangeOptions<'_>,
    base: &MachineConfig,
    pool: &str,
    rendered: Value,
    wanted: &Wanted,
) -> Result<Derived> {
    let version = rendered
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(GENERATED_BY)?.as_str());
    let mut request = Request {
        pool: Pool {
            name: pool.to_owned(),
            os_image: Some(base.os_image_url.clone()).filter(|image| !image.is_empty()),
            extensions_image: Some(base.extensions_image.clone()).filter(|image| !image.is_empty()),
            controller_version: version.map(str::to_owned),
        },
        configs: Vec::new(),
        others: Vec::new(),
        known: Vec::new(),
        given: Vec::new(),
        base: None,
        release_image: options
            .release_image
            .map(str::to_owned)
            .or_else(|| wanted.release_image.clone()),
    };
    let mut configs = Vec::new();
    let stranger = wanted
        .given
        .iter()
        .find(|object| object.is_machine_config() && !objects::has_role_of(object, pool));
    if let Some(stranger) = stranger {
        let role = role_of(&stranger.value).unwrap_or("no pool");
        let message =
            format!("is for {role}, and this node belongs to {pool}; give those of {pool}");
        return Err(stranger.refuse("metadata.labels", message).into());
    }
    for object in &wanted.given {
        if object.is_machine_config() {
            configs.push(object.clone())
        } else {
            request.given.push(object.clone())
        }
    }
    if options.parts.is_empty() {
        request.known.clone_from(&wanted.known);
        request.base = Some((base.name.clone(), rendered));
    } else {
        for parts in options.parts {
            request.known.extend(objects::read_parts(parts)?);
        }
        let parts = request
            .known
            .extract_if(.., |object| object.is_machine_config());
        let in_pool = |one: &ApiObject| objects::has_role_of(one, pool);
        let (mut parts, others): (Vec<ApiObject>, Vec<ApiObject>) = parts.partition(in_pool);
        request.others = others;
        parts.retain(|part| !configs.iter().any(|new| new.name == part.name));
        configs.extend(parts);
    }
    for object in configs {
        let input = objects::read_config(&object)?;
        request.configs.push((object, input));
    }
    Ok(derive_config(request)?)
}

fn describe_change(
    base: &MachineConfig,
    pool: &str,
    wanted: &Wanted,
    derived: &Derived,
) -> DerivedChange {
    let texts = |inexact: bool| {
        let notes = derived
            .notes
            .iter()
            .filter(move |note| note.inexact == inexact);
        notes.map(ToString::to_string)
    };
    let kinds = wanted
        .apply
        .iter()
        .filter_map(|object| object["kind"].as_str());
    let mut if_forgotten: Vec<String> = kinds.map(|kind| if_forgotten(kind).to_owned()).collect();
    if_forgotten.dedup();
    DerivedChange {
        what: wanted.what.clone(),
        config: derived.name().to_owned(),
        from: base.name.clone(),
        pool: pool.to_owned(),
        unchanged: derived.name() == base.name,
        exact: derived.is_exact(),
        reasons: texts(true).collect(),
        notes: wanted.notes.iter().cloned().chain(texts(false)).collect(),
        if_forgotten,
        objects: wanted.apply.clone(),
        kept: false,
    }
}

/// Restores the previous file of changes.
fn restore_changes(root: &Root, before: Option<&KeptChanges>) -> Result<()> {
    match before {
        Some(before) => Ok(store_value(root, paths::CHANGES, before)?),
        None => {
            let name = RootPath::fixed(paths::CHANGES);
            Ok(open_store(root, paths::STATE)?.remove_file(name.name())?)
        }
    }
}

/// Stores the new config in the cache, and its objects beside it.
fn store_change(
    root: &Root,
    records: &Records,
    change: &DerivedChange,
    dropped: &[String],
    text: String,
) -> Result<()> {
    let before = KeptChanges::read(root).context("reading the changes")?;
    let mut changes = before.clone();
    let new = KeptChange {
        config: change.config.clone(),
        from: change.from.clone(),
        what: change.what.clone(),
        made: current_time(),
        exact: change.exact,
        reasons: change.reasons.clone(),
        notes: change.notes.clone(),
        objects: change.objects.clone(),
    };
    changes.add_change(new, dropped);
    // The objects are stored first: without them, the cluster would never get this config.
    let existed = root.exists(&RootPath::fixed(paths::CHANGES))?;
    store_value(root, paths::CHANGES, &changes)?;
    let config = document::parse_document(text.as_bytes(), &change.config)?;
    let origin = format!("a change of {}: {}", change.from, change.what);
    match keep_config(root, records, &config, text, &origin) {
        Ok(_) => Ok(()),
        Err(error) => Err(match restore_changes(root, existed.then_some(&before)) {
            Ok(()) => error,
            Err(second) => error.context(format!(
                "the change is noted in /{}, but its config is not in the cache ({second:#})",
                paths::CHANGES
            )),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mirror_of_images_that_the_policy_rejects_gets_a_note() {
        let policy = r#"{"default": [{"type": "reject"}], "transports": {"docker":
            {"quay.example/allowed": [{"type": "insecureAcceptAnything"}]}}}"#;
        let mut file = json!({"path": "/etc/containers/policy.json"});
        file["contents"] = data_contents(policy.as_bytes());
        let rendered = json!({"spec": {"config": {"storage": {"files": [file]}}}});
        let note = |source, remove| {
            let mirror = MirrorRequest {
                source,
                mirrors: &[],
                tags: false,
                never_contact_source: false,
                remove,
            };
            describe_rejection(&mirror, &rendered)
        };
        for source in ["quay.example/team", "quay.example"] {
            let said = note(source, false).unwrap();
            assert!(
                said.contains(&format!("rejects {source} (rule: default)")),
                "{said}"
            );
        }
        assert_eq!(note("quay.example/allowed", false), None);
        assert_eq!(note("quay.example/allowed/app", false), None);
        assert_eq!(note("quay.example/team", true), None);
    }
}
