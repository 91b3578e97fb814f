//! Returning a node to the cluster: the steps of an admin with `oc` once the API is back, as the controller and the daemon
//! would take them (docs/develop/agreement.md: Annotations, Start, Drain), with a check before each step.
//!
//! Pure. Nothing here is secret: a rendered config is named, never shown.

use serde::Serialize;
use serde_json::{Value, json};

use super::start::{PREFIX, Prediction, State};
use crate::base::invocation::mco_rescue;

/// Placeholder for the pool's uid in an object that is to be recreated.
pub const POOL_UID: &str = "POOL-UID";

/// The facts for the steps.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// Name of the Node.
    pub node: &'a str,
    /// The node's pool, if its config names it.
    pub pool: Option<&'a str>,
    /// The config that the node should be in.
    pub config: &'a str,
    /// `currentConfig`, if it is known.
    pub current: Option<&'a str>,
    /// The daemon's behavior once the cluster desires that config.
    pub prediction: &'a Prediction,
    /// Names of the configs whose contents are on the node.
    pub available: &'a [String],
    /// The change that produced the config, if it was made on the node.
    pub change: Option<&'a OfflineChange>,
}

/// The steps for returning to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Handover {
    /// Name of the Node.
    pub node: String,
    /// Name of its pool.
    pub pool: Option<String>,
    /// The config that it should be in.
    pub config: String,
    /// An obstacle on the node itself.
    pub warning: Option<String>,
    /// The change of the Node object, as a merge patch.
    pub patch: Value,
    /// A change made on the node in place of the cluster's controllers, from which the config was rendered.
    pub change: Option<OfflineChange>,
    /// Objects that the API must have.
    pub objects: Vec<Lost>,
    /// The steps in order.
    pub steps: Vec<HandoverStep>,
}

/// A change of objects that the API does not have yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfflineChange {
    /// The change in words.
    pub what: String,
    /// True if the cluster gives the config the same name.
    pub exact: bool,
    /// Reasons why the name may differ.
    pub reasons: Vec<String>,
    /// Other notes, such as an object that must lose an entry.
    pub notes: Vec<String>,
    /// Kinds and names of the objects.
    pub objects: Vec<String>,
    /// The command that exports them on the node.
    pub export: String,
}

/// An object that the API may have lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Name of the MachineConfig.
    pub machine_config: String,
    /// The command that exports it on the node; `None` if the node does not have it.
    pub export: Option<String>,
    /// The command that creates it in the API.
    pub create: Option<String>,
}

/// A step of an admin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandoverStep {
    /// Purpose of the step.
    pub what: String,
    /// The check before the step.
    pub check: String,
    /// The expected output of the check; `None` if the purpose describes it.
    pub expect: Option<String>,
    /// The commands after the check; empty if the step is only a check.
    pub commands: Vec<String>,
    /// The command for a special case.
    pub instead: Option<Instead>,
}

/// A command for a special case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instead {
    /// Description of the case.
    pub when: String,
    /// The command for it.
    pub command: String,
}

/// Returns the steps for one node.
pub fn make_handover(given: &Given<'_>) -> Handover {
    let patch =
        json!({"metadata": {"annotations": {format!("{PREFIX}desiredConfig"): given.config}}});
    let objects = lost_objects(given);
    let mut steps: Vec<HandoverStep> = given.change.into_iter().map(give_objects).collect();
    steps.extend([
        given.pool_wants(),
        given.api_has(&objects),
        given.annotate_step(&patch),
    ]);
    if given.prediction.drain != Some(false) {
        steps.push(given.drain_step());
    }
    steps.push(given.uncordon_step());
    steps.push(given.arrival_step());
    steps.push(given.left_alone());
    Handover {
        node: given.node.to_owned(),
        pool: given.pool.map(str::to_owned),
        config: given.config.to_owned(),
        warning: prediction_warning(given.prediction),
        patch,
        change: given.change.cloned(),
        objects,
        steps,
    }
}

/// Returns the step that creates the objects. It comes first: without them the pool has another config, and the node is moved
/// back to it.
fn give_objects(change: &OfflineChange) -> HandoverStep {
    let objects: Vec<String> = change
        .objects
        .iter()
        .map(|title| shell_word(&title.replacen(' ', "/", 1)))
        .collect();
    let name = if change.exact {
        String::new()
    } else {
        format!(
            ". The cluster may give the pool's config another name than this node has; then the node changes to that one. \
             Reasons: {}",
            change.reasons.join("; ").trim_end_matches('.')
        )
    };
    let notes: String = change
        .notes
        .iter()
        .map(|note| format!(". {}", note.trim_end_matches('.')))
        .collect();
    let kinds =
        "imagedigestmirrorsets,imagetagmirrorsets,imagecontentsourcepolicies -o yaml".to_owned();
    let (checked, commands) = if objects.is_empty() {
        (kinds, Vec::new())
    } else {
        (
            format!("{} --ignore-not-found", objects.join(" ")),
            vec![
                format!("{} > changes.yaml", change.export),
                "oc apply -f changes.yaml".to_owned(),
            ],
        )
    };
    HandoverStep {
        what: format!(
            "give the API the objects of the change that was made on this node ({}); without them the controllers make the \
             old files, and the node reverts to them{name}{notes}",
            change.what
        ),
        check: format!("oc get {checked}"),
        expect: None,
        commands,
        instead: None,
    }
}

fn prediction_warning(prediction: &Prediction) -> Option<String> {
    let said = prediction.error.as_deref().unwrap_or_default();
    match prediction.state {
        State::Degraded => Some(format!("the daemon will be Degraded, and report: {said}")),
        State::Unreconcilable => Some(format!(
            "the daemon will be Unreconcilable, and report: {said}"
        )),
        State::Unknown => Some("the daemon's behaviour is unknown here".to_owned()),
        State::Done | State::Working => None,
    }
}

fn lost_objects(given: &Given<'_>) -> Vec<Lost> {
    let mut names: Vec<&str> = given.current.into_iter().collect();
    if !names.contains(&given.config) {
        names.push(given.config);
    }
    let lost = |name: &str| {
        let here = given.available.iter().any(|known| known == name);
        let file = shell_word(&format!("{name}.json"));
        Lost {
            machine_config: name.to_owned(),
            export: here.then(|| {
                let name = shell_word(name);
                let export = mco_rescue(&format!("status --for-cluster --object {name}"));
                format!("(umask 077; {export} > {file})")
            }),
            create: here.then(|| {
                let pool = shell_word(given.pool.unwrap_or("POOL"));
                format!(
                    "sed \"s/{POOL_UID}/$(oc get mcp {pool} -o jsonpath='{{.metadata.uid}}')/\" {file} | oc create -f -"
                )
            }),
        }
    };
    names.into_iter().map(lost).collect()
}

impl Given<'_> {
    fn pool_wants(&self) -> HandoverStep {
        let pool = shell_word(self.pool.unwrap_or("POOL"));
        HandoverStep {
            what: "the pool must target it; otherwise the controller moves the node to the pool's config".to_owned(),
            check: format!("oc get mcp {pool} -o jsonpath='{{.spec.configuration.name}}{{\"\\n\"}}'"),
            expect: Some(self.config.to_owned()),
            commands: Vec::new(),
            instead: None,
        }
    }

    fn api_has(&self, objects: &[Lost]) -> HandoverStep {
        let names: Vec<String> = objects
            .iter()
            .map(|lost| shell_word(&lost.machine_config))
            .collect();
        let elsewhere = objects.iter().filter(|lost| lost.export.is_none());
        let elsewhere: Vec<&str> = elsewhere.map(|lost| lost.machine_config.as_str()).collect();
        let elsewhere = if elsewhere.is_empty() {
            String::new()
        } else {
            format!(
                ". {} is not on this node: copy it from another node, or from a backup",
                elsewhere.join(", ")
            )
        };
        // The files are written before they are read.
        let exports = objects.iter().filter_map(|lost| lost.export.clone());
        let creates = objects.iter().filter_map(|lost| lost.create.clone());
        HandoverStep {
            what: format!(
                "the API must have these, or the daemon is Degraded. Where the check prints no line for one, write it to a file on the node, \
                 carry that here, and create it; such a file contains secrets: protect it, and remove it afterwards{elsewhere}"
            ),
            check: format!("oc get mc {}", names.join(" ")),
            expect: None,
            commands: exports.chain(creates).collect(),
            instead: None,
        }
    }

    fn annotate_step(&self, patch: &Value) -> HandoverStep {
        let both = json!({"metadata": {"annotations": {
            format!("{PREFIX}currentConfig"): self.config, format!("{PREFIX}desiredConfig"): self.config}}});
        HandoverStep {
            what:
                "set the node's desired config, if it differs: only if no other update of the node is in progress, which is \
                 so if the check prints one config twice and Done"
                    .to_owned(),
            check: self.annotation_command(&["currentConfig", "desiredConfig", "state"]),
            expect: None,
            commands: vec![self.patch_command(patch)],
            instead: Some(Instead {
                when: "the object of currentConfig is no longer available, or the Node has no annotations".to_owned(),
                command: self.patch_command(&both),
            }),
        }
    }

    fn drain_step(&self) -> HandoverStep {
        let drain = format!("drain-{}", self.config);
        HandoverStep {
            what: "without a controller: when the daemon asks for exactly this drain, drain the node and confirm it; then \
                   it writes the files, and reboots if they need it"
                .to_owned(),
            check: self.annotation_command(&["desiredDrain"]),
            commands: vec![
                format!(
                    "oc adm drain {} --ignore-daemonsets --delete-emptydir-data",
                    shell_word(self.node)
                ),
                self.apply_command(&drain),
            ],
            expect: Some(drain),
            instead: None,
        }
    }

    fn uncordon_step(&self) -> HandoverStep {
        let uncordon = format!("uncordon-{}", self.config);
        HandoverStep {
            what: "without a controller: when the daemon asks for exactly this, uncordon the node and confirm it"
                .to_owned(),
            check: self.annotation_command(&["desiredDrain"]),
            commands: vec![
                format!("oc adm uncordon {}", shell_word(self.node)),
                self.apply_command(&uncordon),
            ],
            expect: Some(uncordon),
            instead: None,
        }
    }

    fn arrival_step(&self) -> HandoverStep {
        HandoverStep {
            what: "the daemon is done when it prints this; then continue with the next node"
                .to_owned(),
            check: self.annotation_command(&["currentConfig", "state"]),
            expect: Some(format!("{} Done", self.config)),
            commands: Vec::new(),
            instead: None,
        }
    }

    fn left_alone(&self) -> HandoverStep {
        HandoverStep {
            what: "information only: the MachineConfigNode is written by daemon and controller, and decides nothing. What it shows as \
                   Unknown of the update that failed, and RebootedNode, can stay stale until the next whole update; change \
                   nothing there"
                .to_owned(),
            check: format!(
                "oc get machineconfignode {} -o jsonpath='{{range .status.conditions[?(@.status==\"Unknown\")]}}{{.type}} \
                 {{.reason}}{{\"\\n\"}}{{end}}'",
                shell_word(self.node)
            ),
            expect: None,
            commands: Vec::new(),
            instead: None,
        }
    }

    fn apply_command(&self, drain: &str) -> String {
        self.patch_command(
            &json!({"metadata": {"annotations": {format!("{PREFIX}lastAppliedDrain"): drain}}}),
        )
    }

    fn patch_command(&self, patch: &Value) -> String {
        format!(
            "oc patch node {} --type merge -p {}",
            shell_word(self.node),
            quote_text(&patch.to_string())
        )
    }

    /// Returns the command that prints annotations in one line.
    fn annotation_command(&self, keys: &[&str]) -> String {
        let escaped = PREFIX.replace('.', "\\.");
        let all: Vec<String> = keys
            .iter()
            .map(|key| format!("{{.metadata.annotations.{escaped}{key}}}"))
            .collect();
        format!(
            "oc get node {} -o jsonpath='{}{{\"\\n\"}}'",
            shell_word(self.node),
            all.join(" ")
        )
    }
}

/// Quotes a word for a shell command if it has special characters.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        text.to_owned()
    } else {
        quote_text(text)
    }
}

fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns the object for `oc create`: fields of the old API are removed, and the pool is set as its owner again; without an
/// owner the garbage collector would remove the object.
pub fn handover_object(record: &str, pool: Option<&str>) -> serde_json::Result<Value> {
    let mut object: Value = serde_json::from_str(record)?;
    let Some(fields) = object.as_object_mut() else {
        return Ok(object);
    };
    fields.insert("apiVersion".to_owned(), json!(format!("{PREFIX}v1")));
    fields.insert("kind".to_owned(), json!("MachineConfig"));
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(key);
        }
        metadata.remove("ownerReferences");
        if let Some(pool) = pool {
            let owner = json!([{"apiVersion": format!("{PREFIX}v1"), "kind": "MachineConfigPool", "name": pool,
                "uid": POOL_UID, "controller": true, "blockOwnerDeletion": true}]);
            metadata.insert("ownerReferences".to_owned(), owner);
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_name_says_reaches_the_shell() {
        assert_eq!(shell_word("worker-0.example"), "worker-0.example");
        assert_eq!(shell_word("a; rm -rf /"), "'a; rm -rf /'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(
            (shell_word(""), shell_word("-o")),
            ("''".into(), "'-o'".into())
        );
    }

    #[test]
    fn an_object_is_made_anew_under_the_pool_of_today() {
        let record = r#"{"metadata":{"name":"rendered-worker-a","uid":"1","resourceVersion":"7",
            "annotations":{"k":"v"},"ownerReferences":[{"name":"worker","uid":"old"}]},"spec":{"fips":false}}"#;
        let object = handover_object(record, Some("worker")).unwrap();
        assert_eq!(object["kind"], "MachineConfig");
        assert_eq!(object["apiVersion"], "machineconfiguration.openshift.io/v1");
        let metadata = &object["metadata"];
        assert_eq!(
            (metadata.get("uid"), metadata.get("resourceVersion")),
            (None, None)
        );
        assert_eq!(metadata["annotations"]["k"], "v");
        let owner = &metadata["ownerReferences"][0];
        assert_eq!(
            (&owner["name"], &owner["uid"]),
            (&json!("worker"), &json!(POOL_UID))
        );
        assert_eq!(object["spec"], json!({"fips": false}));
    }
}
