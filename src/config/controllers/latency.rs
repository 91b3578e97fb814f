//! The latency profile of the node configuration, which sets how often each kubelet of the pool `worker` reports.

use serde_json::{Map, Value};

use super::{ApiObject, Cluster};

/// The profile of the slowest reaction.
const LOW: &str = "LowUpdateSlowReaction";

/// The setting of the kubelet that a profile sets.
const FREQUENCY: &str = "nodeStatusUpdateFrequency";

fn is_node(object: &ApiObject) -> bool {
    object.api_version.starts_with("config.openshift.io/")
}

pub(super) fn is_foreign(object: &ApiObject) -> bool {
    is_node(object) && object.name != "cluster"
}

/// Returns the previous and the new node configuration.
fn node_configs(cluster: &Cluster) -> (Option<&ApiObject>, Option<&ApiObject>) {
    let mut all = cluster
        .of_kind("Node")
        .filter(|object| is_node(object) && !is_foreign(object));
    let (mut old, mut new) = (None, all.next());
    for next in all {
        (old, new) = (new, Some(next));
    }
    (old, new)
}

/// Returns both configurations if the step between their profiles is too wide for the operator.
pub(super) fn forbidden_step(cluster: &Cluster) -> Option<(&ApiObject, &ApiObject)> {
    let (Some(old), Some(new)) = node_configs(cluster) else {
        return None;
    };
    let is_default = |node| ["", "Default"].contains(&profile_of(node));
    let too_wide =
        profile_of(old) == LOW && is_default(new) || profile_of(new) == LOW && is_default(old);
    too_wide.then_some((old, new))
}

/// Returns the node configuration that the operator follows: the previous one if the step is forbidden.
pub(super) fn config_in_force(cluster: &Cluster) -> Option<&ApiObject> {
    match forbidden_step(cluster) {
        Some((old, _)) => Some(old),
        None => node_configs(cluster).1,
    }
}

pub(super) fn profile_of(node: &ApiObject) -> &str {
    let profile = node.get("/spec/workerLatencyProfile");
    profile.and_then(Value::as_str).unwrap_or_default()
}

/// Returns `nodeStatusUpdateFrequency` of a profile.
pub(super) fn frequency_of(profile: &str) -> Option<&'static str> {
    match profile {
        "Default" => Some("10s"),
        "MediumUpdateAverageReaction" => Some("20s"),
        LOW => Some("1m0s"),
        _ => None,
    }
}

/// Applies the latency profile to the kubelet's configuration of the pool `worker`.
pub(super) fn set_latency(
    fields: &mut Map<String, Value>,
    template: Option<&Map<String, Value>>,
    cluster: &Cluster,
) {
    let Some(node) = config_in_force(cluster) else {
        return;
    };
    if let Some(value) = frequency_of(profile_of(node)) {
        fields.insert(FREQUENCY.to_owned(), value.into());
        return;
    }
    // Without a profile the template's value applies.
    let value = template.and_then(|fields| fields.get(FREQUENCY)).cloned();
    let of_profile = |value: &Value| ["20s", "1m0s"].map(Value::from).contains(value);
    if let Some(value) = value {
        fields.insert(FREQUENCY.to_owned(), value);
    } else if fields.get(FREQUENCY).is_some_and(of_profile) {
        fields.insert(FREQUENCY.to_owned(), "10s".into());
    }
}
