//! The marks in a MachineConfig that distinguish a rendered config from its parts (docs/develop/agreement.md: Rendering).

use super::ignition::Ignition;
use super::machine_config::MachineConfig;

/// The unit that a node needs to join a cluster; every rendered config contains it completely.
const KUBELET: &str = "kubelet.service";
/// The prefix of the name of every rendered config.
const RENDERED: &str = "rendered-";

impl MachineConfig {
    /// Returns true if its name has the form that only rendered configs have.
    pub fn has_rendered_name(&self) -> bool {
        self.name.starts_with(RENDERED)
    }

    /// Returns the reason why this is not a rendered config, or `None` if it is one. `proven` is true if the hash in its name
    /// is right.
    pub fn why_not_rendered(&self, proven: bool) -> Option<String> {
        const POOL: &str = "MachineConfigPool";
        let provenance = &self.provenance;
        let owners = || provenance.owners.iter().map(|kind| kind.as_deref());
        let foreign = owners().flatten().find(|kind| *kind != POOL);
        if let Some(role) = &provenance.role {
            return Some(format!(
                "its label machineconfiguration.openshift.io/role is {role}, as of the parts of a rendered config"
            ));
        }
        if let Some(kind) = foreign {
            return Some(format!("its owner is a {kind}, not a pool"));
        }
        if !self.has_rendered_name() {
            return Some("its name is not rendered-POOL-HASH".to_owned());
        }
        let owned = owners().next().is_some();
        let marked = proven || owned || provenance.generated || brings_kubelet(&self.ignition);
        (!marked).then(|| {
            "it has neither the owner nor the annotation of a rendered config, and no kubelet.service".to_owned()
        })
    }
}

/// Returns the pool in the name of a rendered config.
pub fn pool_in(name: &str) -> Option<&str> {
    let (pool, _) = name.strip_prefix(RENDERED)?.rsplit_once('-')?;
    Some(pool)
}

/// Returns true if a config contains the unit of the kubelet.
pub fn brings_kubelet(ignition: &Ignition) -> bool {
    let mut units = ignition.systemd.units.iter();
    units.any(|unit| unit.name == KUBELET && unit.text().is_some() && unit.mask != Some(true))
}

#[cfg(test)]
mod tests {
    use crate::config::document::parse_document;
    use serde_json::{Value, json};

    fn why(metadata: &Value, units: &Value, proven: bool) -> Option<String> {
        let text = json!({"metadata": metadata, "spec": {"config": {"ignition": {"version": "3.4.0"},
            "systemd": {"units": units}}}});
        let config = parse_document(text.to_string().as_bytes(), "test").unwrap();
        config.why_not_rendered(proven)
    }

    #[test]
    fn only_what_bears_the_marks_of_a_rendered_config_is_one() {
        let (none, kubelet) = (
            json!([]),
            json!([{"name": "kubelet.service", "contents": "[Unit]\n"}]),
        );
        let group = "machineconfiguration.openshift.io";
        let owner = |kind: &str| json!([{"kind": kind, "name": "worker"}]);
        let annotation = json!({format!("{group}/generated-by-controller-version"): "x"});
        let name = "rendered-worker-a";
        for (metadata, proven, said) in [
            (
                json!({"name": name, "ownerReferences": owner("MachineConfigPool")}),
                false,
                None,
            ),
            (
                json!({"name": name, "ownerReferences": [{"name": "worker"}]}),
                false,
                None,
            ),
            (
                json!({"name": name, "annotations": annotation}),
                false,
                None,
            ),
            (
                json!({"name": name, "labels": null, "annotations": null}),
                true,
                None,
            ),
            (json!({"name": name}), false, Some("neither the owner nor")),
            (
                json!({"name": name, "annotations": {"x": "1"}, "labels": {"y": "2"}}),
                false,
                Some("neither"),
            ),
            (
                json!({"name": "99-worker-ssh"}),
                true,
                Some("its name is not"),
            ),
            (
                json!({"name": "00-worker", "annotations": annotation}),
                false,
                Some("its name is not"),
            ),
            (
                json!({"name": name, "labels": {format!("{group}/role"): "worker"}}),
                true,
                Some("role is worker"),
            ),
            (
                json!({"name": name, "annotations": annotation, "ownerReferences": owner("KubeletConfig")}),
                true,
                Some("a KubeletConfig"),
            ),
        ] {
            let found = why(&metadata, &none, proven);
            match said {
                Some(said) => assert!(found.is_some_and(|f| f.contains(said)), "{metadata}"),
                None => assert_eq!(found, None, "{metadata}"),
            }
        }
        assert_eq!(why(&json!({"name": name}), &kubelet, false), None);
        let masked = json!([{"name": "kubelet.service", "contents": "[Unit]\n", "mask": true}]);
        assert!(why(&json!({"name": name}), &masked, false).is_some());
    }
}
