//! The node configuration (`nodes.config.openshift.io cluster`): `97-POOL-generated-kubelet`, and the latency profile in every
//! kubelet configuration of the pool `worker`.

use serde_json::Value;

use super::cluster::{KUBELET_CONF, file_of};
use super::kubelet::base;
use super::latency::{config_in_force, forbidden_step, frequency_of, is_foreign, profile_of};
use super::{
    ApiObject, Base, Cluster, GeneratedConfig, GeneratedFile, Generation, Note, ObjectRefusal,
};
use crate::config::document::Finding;

/// Kernel arguments for cgroups version 2.
const VERSION_2: [&str; 2] = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];
/// Kernel arguments for cgroups version 1.
const VERSION_1: [&str; 2] = [
    "systemd.unified_cgroup_hierarchy=0",
    "systemd.legacy_systemd_cgroup_controller=1",
];

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync_node_config(cluster: &Cluster, generation: &mut Generation) {
    for object in cluster.of_kind("Node").filter(|object| is_foreign(object)) {
        generation.notes.push(Note::exact(
            object.title(),
            "The operator ignores it: the only node configuration is named cluster.".to_owned(),
        ));
    }
    if let Some((old, new)) = forbidden_step(cluster) {
        let (name, from, to) = (&new.name, profile_of(old), profile_of(new));
        generation.notes.push(Note::exact(
            new.title(),
            format!(
                "Skipping the Update Node event, name: {name}, transition not allowed from old WorkerLatencyProfile: \"{from}\" to new \
                 WorkerLatencyProfile: \"{to}\". Nothing changes; go through MediumUpdateAverageReaction."
            ),
        ));
    }
    let node = config_in_force(cluster);
    if let Some(refusal) = node.and_then(find_refusal) {
        generation.refusals.push(refusal);
        return;
    }
    for pool in base::list_pools(cluster) {
        if let Some(config) = config_of_pool(cluster, &pool.name, node) {
            generation.configs.push(config);
        }
    }
    if let (Some(node), Base::Rendered(config)) = (node, &cluster.base) {
        note_arguments(node, config, generation);
    }
}

fn find_refusal(node: &ApiObject) -> Option<ObjectRefusal> {
    let refuse = |path: &str, message: String, advice: &str| ObjectRefusal {
        object: node.title(),
        place: format!(
            "{}: {}",
            node.origin,
            node.locate(Finding::error(path, "")).path
        ),
        message,
        advice: advice.to_owned(),
    };
    let mode = node.get("/spec/cgroupMode").and_then(Value::as_str);
    let profile = profile_of(node);
    if frequency_of(profile).is_none() && !profile.is_empty() {
        return Some(refuse(
            "spec.workerLatencyProfile",
            format!(
                "unknown worker latency profile type found {profile}, failed to update the original kubelet configuration"
            ),
            "write Default, MediumUpdateAverageReaction or LowUpdateSlowReaction",
        ));
    }
    let mode = mode.filter(|mode| !["", "v2"].contains(mode))?;
    Some(refuse(
        "spec.cgroupMode",
        format!("unknown cgroup mode found {mode}, failed to update the machine config resource"),
        "write v2, or remove the field",
    ))
}

/// Returns `97-POOL-generated-kubelet`, if it changes.
fn config_of_pool(
    cluster: &Cluster,
    pool: &str,
    node: Option<&ApiObject>,
) -> Option<GeneratedConfig> {
    let name = format!("97-{pool}-generated-kubelet");
    let Base::Parts(parts) = &cluster.base else {
        return None;
    };
    let known = parts.get(&name);
    if node.is_none() && known.is_none() {
        return None;
    }
    let old: Vec<String> = known
        .and_then(|part| part.pointer("/spec/kernelArguments")?.as_array())
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let has_cgroups = node.is_some() && ["master", "worker", "arbiter"].contains(&pool);
    let arguments = if has_cgroups {
        with_version_2(&old)
    } else {
        old.clone()
    };
    let contents = base::write_fields(&base::of_pool(cluster, pool).ok()?);
    let file = known.and_then(|part| file_of(part, KUBELET_CONF));
    if known.is_some() && arguments == old && file.as_ref() == Some(&contents) {
        return None;
    }
    Some(GeneratedConfig {
        name,
        pool: pool.to_owned(),
        files: vec![GeneratedFile::new(KUBELET_CONF, contents)],
        kernel_arguments: Some(arguments).filter(|all| !all.is_empty()),
        owners: Vec::new(),
    })
}

fn with_version_2(old: &[String]) -> Vec<String> {
    let kept = old
        .iter()
        .filter(|argument| !VERSION_1.contains(&argument.as_str()));
    let mut arguments: Vec<String> = kept.cloned().collect();
    for argument in VERSION_2 {
        if !arguments.iter().any(|known| known == argument) {
            arguments.push(argument.to_owned());
        }
    }
    arguments
}

/// Adds a note: in a rendered config, kernel arguments cannot be attributed to a part.
fn note_arguments(node: &ApiObject, config: &Value, generation: &mut Generation) {
    let arguments = config
        .pointer("/spec/kernelArguments")
        .and_then(Value::as_array);
    let arguments = arguments.into_iter().flatten().filter_map(Value::as_str);
    if arguments
        .clone()
        .any(|argument| VERSION_1.contains(&argument))
        || !VERSION_2
            .iter()
            .all(|wanted| arguments.clone().any(|argument| argument == *wanted))
    {
        generation.notes.push(Note::inexact(
            node.title(),
            "The kernel arguments of the rendered config are not those of cgroups version 2. They stay as they are, because the \
             part that has them is unknown: give the parts with --parts.",
        ));
    }
}
