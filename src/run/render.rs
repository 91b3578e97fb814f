//! `render`: the config that the operator would render of files, of the objects of a cluster, or on top of another config.

use anyhow::Result;
use serde_json::Value;

use crate::change::source::objects;
use crate::config::controllers::derive::{Derived, Request, derive_config};
use crate::config::controllers::{ApiObject, read_objects};
use crate::config::render::{self, Input, Pool};

/// What a config is rendered from.
#[derive(Debug)]
pub struct RenderRequest<'a> {
    /// The pool.
    pub pool: Pool,
    /// Files by name: MachineConfigs, and objects that become some.
    pub files: &'a [(&'a str, Vec<u8>)],
    /// Files and directories with objects of the cluster.
    pub parts: &'a [String],
    /// A rendered config that the files go on top of.
    pub base: Option<&'a str>,
    /// The image of the release, for blocked and allowed registries.
    pub release_image: Option<&'a str>,
}

/// Renders the config of a pool. What may be wrong with it is logged.
///
/// # Errors
/// An input cannot be read, or the operator would not render it.
pub fn render_config(request: RenderRequest<'_>) -> Result<Derived> {
    let is_plain = request.parts.is_empty() && request.base.is_none();
    let derived = if is_plain && !has_objects(request.files) {
        let mut inputs = Vec::new();
        for (file, bytes) in request.files {
            inputs.extend(render::read_inputs(bytes, file)?);
        }
        for input in &inputs {
            warn_of(input, &request.pool.name);
        }
        Derived {
            rendered: render::render_pool(inputs, &request.pool)?,
            generated: Vec::new(),
            notes: Vec::new(),
        }
    } else {
        derive_config(gather_objects(request)?)?
    };
    for note in &derived.notes {
        log::warn!("{note}");
    }
    warn_of_images(&derived.rendered);
    Ok(derived)
}

/// Returns true if a file contains an object that a controller reads.
fn has_objects(files: &[(&str, Vec<u8>)]) -> bool {
    files.iter().any(|(file, bytes)| {
        objects::butane_text(bytes).is_some()
            || read_objects(bytes, file).is_ok_and(|all| all.iter().any(ApiObject::is_read))
    })
}

/// Gathers the objects and MachineConfigs of files, parts and base.
fn gather_objects(request: RenderRequest<'_>) -> Result<Request> {
    let pool = request.pool;
    let mut given = Vec::new();
    for (file, bytes) in request.files {
        given.extend(objects::read_given(bytes, file)?);
    }
    let mut known = Vec::new();
    for parts in request.parts {
        known.extend(objects::read_parts(parts)?);
    }
    let base = request.base.map(objects::read_base).transpose()?;
    let mut configs = Vec::new();
    let in_pool = |object: &ApiObject| objects::has_role_of(object, &pool.name);
    let parts: Vec<ApiObject> = known
        .extract_if(.., |object| object.is_machine_config())
        .collect();
    let own: Vec<ApiObject> = given
        .extract_if(.., |object| object.is_machine_config())
        .collect();
    for object in own.iter().filter(|object| !in_pool(object)) {
        log::warn!(
            "{}: {} belongs to a pool other than {}, and is left out",
            object.origin,
            object.name,
            pool.name
        );
    }
    let (all, others): (Vec<ApiObject>, Vec<ApiObject>) =
        parts.into_iter().chain(own).partition(in_pool);
    for object in all {
        let input = objects::read_config(&object)?;
        configs.push((object, input));
    }
    for (_, input) in &configs {
        warn_of(input, &pool.name);
    }
    Ok(Request {
        pool,
        configs,
        others,
        known,
        given,
        base,
        release_image: request.release_image.map(str::to_owned),
    })
}

fn warn_of_images(rendered: &Value) {
    for (key, option) in [
        ("osImageURL", "--os-image"),
        ("baseOSExtensionsContainerImage", "--extensions-image"),
    ] {
        if rendered
            .pointer(&format!("/spec/{key}"))
            .is_some_and(|image| image == "")
        {
            log::warn!("spec.{key} is empty, so the name is not the cluster's; give {option}");
        }
    }
}

/// Warns about findings in a MachineConfig, and about one that seems to belong to another pool.
fn warn_of(input: &Input, pool: &str) {
    let (origin, name) = (&input.config.origin, &input.config.name);
    for finding in &input.config.warnings {
        log::warn!("{origin}: {name}: {finding}");
    }
    if ![pool, "worker"].contains(&input.role.as_str())
        || objects::HAS_NO_WORKERS.contains(&pool) && input.role != pool
    {
        log::warn!(
            "{origin}: {name} has the role {}; is it one of pool {pool}?",
            input.role
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine_config(name: &str, role: &str, path: &str) -> (&'static str, Vec<u8>) {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": path, "contents": {"source": "data:,a"}}]}}}});
        ("given", config.to_string().into_bytes())
    }

    fn paths_of(files: &[(&str, Vec<u8>)]) -> Vec<String> {
        let request = RenderRequest {
            pool: Pool {
                name: "worker".to_owned(),
                ..Pool::default()
            },
            files,
            parts: &[],
            base: None,
            release_image: None,
        };
        let rendered = render_config(request).unwrap().rendered;
        let files = rendered["spec"]["config"]["storage"]["files"].as_array();
        let paths = files.unwrap().iter().map(|file| &file["path"]);
        paths
            .map(|path| path.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn plain_machine_configs_are_merged_without_a_terminal() {
        let both = [
            machine_config("01-b", "worker", "/etc/b"),
            machine_config("00-a", "worker", "/etc/a"),
        ];
        assert_eq!(paths_of(&both), ["/etc/a", "/etc/b"]);
        assert!(!has_objects(&both));
    }
}
