//! `containers-storage`: the images that podman has, and the daemon's exception of one image from the signature policy
//! (docs/develop/agreement.md: Operating system). Words in, values out; the exception is never written to `/etc`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::policy::SignaturePolicy;
use crate::base::paths;
use crate::host::sys::privileges::Capability;
use crate::node::command::CommandLine;

/// An image that exists under the wanted name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The id of the image, which is the digest of its config.
    pub id: String,
    /// The name with digest, byte for byte as requested.
    pub repo_digest: String,
    /// Architecture in Go's names, if podman is new enough to report it.
    pub architecture: Option<String>,
}

/// Driver and directory of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoragePlace {
    /// The driver, such as `overlay`.
    pub driver: String,
    /// The directory, such as `/var/lib/containers/storage`.
    pub root: String,
}

/// The reason why the output of podman, or a policy, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading the answer of podman {0}: {1}; look at it: podman {0}")]
pub struct StorageError(&'static str, String);

/// Capabilities of a program that writes to the storage. If skopeo lacks one, it takes itself for an ordinary user's process
/// and fails; since 1.18 it unpacks layers in a chroot.
pub const CAPABILITIES: [Capability; 8] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_MKNOD,
    Capability::CAP_SETFCAP,
    Capability::CAP_SYS_CHROOT,
];

/// Time limit of copying an image, which takes as long as reading the medium.
const COPY: Duration = Duration::from_secs(3600);

/// Returns the command line that copies an image into the storage under exactly this name; skopeo refuses an image with another
/// digest. `from` is the source in skopeo's form; a registry is accessed with the credentials of the kubelet.
pub fn copy_into_storage(from: &str, image: &str) -> CommandLine {
    let mut args = vec!["copy".to_owned(), "--preserve-digests".to_owned()];
    if from.starts_with("docker://") {
        args.push(format!("--authfile=/{}", paths::KUBELET_PULL_SECRET));
        args.push(format!("--src-cert-dir=/{}", paths::AUTHORITY_ANCHORS));
    }
    args.push(from.to_owned());
    args.push(format!("containers-storage:{image}"));
    CommandLine::new("skopeo", args, COPY).with_capabilities(&CAPABILITIES)
}

/// Returns the command line that prints skopeo's version; it fails if skopeo is missing.
pub fn skopeo_version() -> CommandLine {
    CommandLine::new("skopeo", ["--version"], Duration::from_secs(60))
}

/// Returns the command line of `podman images` for one name.
pub fn list_images(image: &str) -> CommandLine {
    let filter = format!("reference={image}");
    podman_line(&["images", "--format=json", "--filter", &filter])
}

/// Runs `podman system info`.
pub fn system_info() -> CommandLine {
    podman_line(&["system", "info", "--format=json"])
}

fn podman_line(args: &[&str]) -> CommandLine {
    CommandLine::new("podman", args, Duration::from_secs(120)).with_capabilities(&CAPABILITIES)
}

/// Finds the image with exactly this name in the output of [`list_images`]; `None` if it is missing.
///
/// # Errors
/// The output is not podman's.
pub fn parse_stored(answer: &str, image: &str) -> Result<Option<Stored>, StorageError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct StoredImage {
        id: String,
        #[serde(default)]
        repo_digests: Option<Vec<String>>,
        #[serde(default)]
        arch: Option<String>,
    }
    // Without an image, podman prints nothing at all, or an empty list.
    if answer.trim().is_empty() {
        return Ok(None);
    }
    let all: Option<Vec<StoredImage>> = serde_json::from_str(answer)
        .map_err(|error| StorageError("images --format=json", error.to_string()))?;
    let found = all.unwrap_or_default().into_iter().find_map(|one| {
        let digests = one.repo_digests.unwrap_or_default();
        let repo_digest = digests.into_iter().find(|digest| digest == image)?;
        Some(Stored {
            id: one.id,
            repo_digest,
            architecture: one.arch.filter(|name| !name.is_empty()),
        })
    });
    Ok(found)
}

/// Parses the output of [`system_info`]: driver and directory of the storage.
///
/// # Errors
/// The output is not podman's.
pub fn parse_place(answer: &str) -> Result<StoragePlace, StorageError> {
    let broken = |words: String| StorageError("system info --format=json", words);
    let info: Value = serde_json::from_str(answer).map_err(|error| broken(error.to_string()))?;
    let text = |key: &str| {
        let value = info
            .pointer(&format!("/store/{key}"))
            .and_then(Value::as_str);
        value
            .map(str::to_owned)
            .ok_or_else(|| broken(format!("store.{key} is missing")))
    };
    Ok(StoragePlace {
        driver: text("graphDriverName")?,
        root: text("graphRoot")?,
    })
}

/// Returns the scope of one image in the policy: `[DRIVER@ROOT]NAME@DIGEST@ID`.
pub fn policy_scope(place: &StoragePlace, stored: &Stored) -> String {
    format!(
        "[{}@{}]{}@{}",
        place.driver, place.root, stored.repo_digest, stored.id
    )
}

/// Returns true if the daemon would write an exception for an image in the storage. It does not if the default accepts anything
/// and the storage has no rules of its own.
pub fn needs_exception(policy: &SignaturePolicy) -> bool {
    !policy.accepts_anything_by_default() || policy.has_rules_for("containers-storage")
}

/// Returns the policy with an exception for this one image, for a file below `/run` that only rpm-ostreed sees. Verify the
/// digest first, and remove the file however the command ends.
///
/// # Errors
/// The policy is not a JSON object.
pub fn with_exception(
    policy: &str,
    place: &StoragePlace,
    stored: &Stored,
) -> Result<String, StorageError> {
    let broken = |words: String| StorageError("and policy.json", words);
    let mut all: Map<String, Value> =
        serde_json::from_str(policy).map_err(|error| broken(error.to_string()))?;
    let transports = all.entry("transports").or_insert_with(|| json!({}));
    let transports = transports
        .as_object_mut()
        .ok_or_else(|| broken("transports is not an object".into()))?;
    let storage = transports
        .entry("containers-storage")
        .or_insert_with(|| json!({}));
    let storage = storage
        .as_object_mut()
        .ok_or_else(|| broken("containers-storage is not an object".into()))?;
    storage.insert(
        policy_scope(place, stored),
        json!([{"type": "insecureAcceptAnything"}]),
    );
    Ok(Value::Object(all).to_string())
}

/// Returns the drop-in that bind-mounts that file over the node's policy, for rpm-ostreed alone. The text is the daemon's.
pub fn policy_binding(file: &str) -> String {
    format!("[Service]\nBindReadOnlyPaths={file}:/etc/containers/policy.json\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "quay.example/os@sha256:1";

    fn one() -> (StoragePlace, Stored) {
        let place = StoragePlace {
            driver: "overlay".into(),
            root: "/var/lib/containers/storage".into(),
        };
        let stored = Stored {
            id: "12ab".into(),
            repo_digest: NAME.into(),
            architecture: None,
        };
        (place, stored)
    }

    #[test]
    fn an_image_counts_only_under_exactly_the_wanted_name() {
        let answer = r#"[{"Id": "12ab", "RepoDigests": ["other.example/os@sha256:1", "quay.example/os@sha256:1"]}]"#;
        assert_eq!(parse_stored(answer, NAME), Ok(Some(one().1)));
        assert_eq!(parse_stored(answer, "quay.example/os@sha256:2"), Ok(None));
        for nothing in ["", "[]", "null", r#"[{"Id": "1", "RepoDigests": null}]"#] {
            assert_eq!(parse_stored(nothing, NAME), Ok(None), "{nothing}");
        }
        assert!(parse_stored("Error: x", NAME).is_err());
    }

    #[test]
    fn the_place_of_the_storage_comes_from_podman() {
        let answer = r#"{"store": {"graphDriverName": "overlay", "graphRoot": "/var/lib/containers/storage"}}"#;
        assert_eq!(parse_place(answer), Ok(one().0));
        assert!(
            parse_place("{}")
                .unwrap_err()
                .to_string()
                .contains("store.graphDriverName")
        );
    }

    #[test]
    fn the_exception_is_one_image_and_nothing_else_changes() {
        let (place, stored) = one();
        let policy = r#"{"default": [{"type": "reject"}], "transports": {"docker": {"": [{"type": "reject"}]}}}"#;
        let text = with_exception(policy, &place, &stored).unwrap();
        let (before, after) = (
            SignaturePolicy::parse(policy).unwrap(),
            SignaturePolicy::parse(&text).unwrap(),
        );
        let name = crate::node::images::ImageName::parse("quay.example/os:1").unwrap();
        assert_eq!(before.of_registry(&name), after.of_registry(&name));
        let scope = policy_scope(&place, &stored);
        assert_eq!(
            scope,
            "[overlay@/var/lib/containers/storage]quay.example/os@sha256:1@12ab"
        );
        assert!(
            after
                .first_rule("containers-storage", &[scope])
                .accepts_anything()
        );
        assert!(
            after
                .first_rule("containers-storage", &["another".to_owned()])
                .rejects()
        );
    }

    #[test]
    fn no_exception_is_made_where_none_is_needed() {
        let parse = |text: &str| SignaturePolicy::parse(text).unwrap();
        assert!(!needs_exception(&parse(
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#
        )));
        assert!(needs_exception(&parse(
            r#"{"default": [{"type": "reject"}]}"#
        )));
        assert!(needs_exception(&parse(
            r#"{"default": [{"type": "insecureAcceptAnything"}], "transports": {"containers-storage": {"": [{"type": "reject"}]}}}"#
        )));
    }
}
