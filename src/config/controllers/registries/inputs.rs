//! The objects that the controller reads.

use serde_json::Value;

use super::image_policies::ImagePolicies;
use super::payload::{self, CountingLists, RegistrySources};
use super::sets::{self, ALLOW, MirrorRule, MirroredSource};
use super::{ObjectRefusal, quote_go, read_texts, refuse_object, scopes, text_at, to_pointer};
use crate::config::controllers::{ApiObject, Cluster, Note};

/// The feature gate that enables image policies.
const GATE: &str = "SigstoreImageVerification";
/// The kinds of mirror sets, with their API and their list.
const MIRROR_KINDS: [(&str, &str, &str); 3] = [
    (
        "ImageDigestMirrorSet",
        "config.openshift.io",
        "imageDigestMirrors",
    ),
    (
        "ImageContentSourcePolicy",
        "operator.openshift.io",
        "repositoryDigestMirrors",
    ),
    (
        "ImageTagMirrorSet",
        "config.openshift.io",
        "imageTagMirrors",
    ),
];

/// Everything that the files depend on, except the templates.
#[derive(Debug)]
pub(super) struct RegistryInputs<'a> {
    /// At least one object of this controller was given.
    pub(super) are_given: bool,
    /// An object with mirrors was given, even an empty one.
    pub(super) has_mirror_objects: bool,
    /// `metadata.uid` of `Image cluster`.
    pub(super) image_uid: Option<String>,
    /// The lists of `Image cluster`.
    pub(super) sources: RegistrySources,
    /// The repository of the release image.
    pub(super) repository: Option<String>,
    /// The effective lists.
    pub(super) lists: CountingLists,
    /// The rules for digests.
    pub(super) digest_rules: Vec<MirrorRule<'a>>,
    /// The rules for tags.
    pub(super) tag_rules: Vec<MirrorRule<'a>>,
    /// The mirrors for digests.
    pub(super) digests: Vec<MirroredSource>,
    /// The mirrors for tags.
    pub(super) tags: Vec<MirroredSource>,
    /// The image policies.
    pub(super) policies: ImagePolicies,
    image: Option<&'a ApiObject>,
    policy_objects: Vec<&'a ApiObject>,
}

impl<'a> RegistryInputs<'a> {
    /// Reads the objects of a cluster.
    ///
    /// # Errors
    /// The first object that is refused.
    pub(super) fn read_cluster(
        cluster: &'a Cluster,
        notes: &mut Vec<Note>,
    ) -> Result<Self, ObjectRefusal> {
        let image = find_image(cluster, notes);
        let sources = image.map(read_sources).transpose()?.unwrap_or_default();
        let [idms, icsp, itms] = MIRROR_KINDS.map(|(kind, api, list)| {
            let objects = of_api(cluster, kind, api, notes);
            let count = objects.len();
            read_rules(&objects, list).map(|rules| (count, rules))
        });
        let (idms, icsp, itms) = (idms?, icsp?, itms?);
        let digest_rules: Vec<MirrorRule<'a>> = idms.1.into_iter().chain(icsp.1).collect();
        let of_cluster = of_api(cluster, "ClusterImagePolicy", "config.openshift.io", notes);
        let of_namespaces = of_api(cluster, "ImagePolicy", "config.openshift.io", notes);
        let policy_objects: Vec<&ApiObject> =
            of_cluster.iter().chain(&of_namespaces).copied().collect();
        let digests = sets::merge_rules(&digest_rules);
        let has_mirror_objects = idms.0 + icsp.0 + itms.0 > 0;
        let are_given = image.is_some() || has_mirror_objects || !policy_objects.is_empty();
        if image.is_none() && are_given {
            notes.push(Note::inexact(
                "Image cluster",
                "The object was not given; its lists of registries are taken as empty. If the cluster blocks, allows \
                 or searches registries, give it too.",
            ));
        }
        let (repository, lists) = sort_lists(cluster, image, &sources, &digests)?;
        let policies = if counts_policies(cluster, &policy_objects, notes)? {
            ImagePolicies::read_objects(of_cluster.into_iter(), of_namespaces.into_iter())?
        } else {
            ImagePolicies::default()
        };
        Ok(Self {
            are_given,
            has_mirror_objects,
            image_uid: image.and_then(|image| Some(text_at(image, "metadata.uid")?.to_owned())),
            sources,
            repository,
            lists,
            digests,
            tags: sets::merge_rules(&itms.1),
            digest_rules,
            tag_rules: itms.1,
            policies,
            image,
            policy_objects,
        })
    }

    /// Refuses scopes that the controller does not accept. Each list has the controller's name for it.
    pub(super) fn check_scopes(&self, lists: &[(&str, &[String])]) -> Result<(), ObjectRefusal> {
        for (name, list) in lists {
            let bad = list.iter().find(|scope| !scopes::is_scope(scope));
            if let Some(scope) = bad {
                let message = format!("invalid entry for {name} registries {}", quote_go(scope));
                let at = format!("spec.registrySources.{name}Registries");
                let index = self.image.and_then(|image| {
                    let items = image.get(&to_pointer(&at))?.as_array()?;
                    items.iter().position(|item| item.as_str() == Some(scope))
                });
                let at = index.map_or(at.clone(), |index| format!("{at}[{index}]"));
                let advice = "write HOST[:PORT][/PATH] or *.HOST; * is allowed only at the beginning, before a domain";
                return Err(self.refuse_at_image(&at, message, advice));
            }
        }
        Ok(())
    }

    /// Returns a refusal at a place in `Image cluster`.
    pub(super) fn refuse_at_image(
        &self,
        path: &str,
        message: impl Into<String>,
        advice: &str,
    ) -> ObjectRefusal {
        match self.image {
            Some(image) => refuse_object(image, path, message, advice),
            None => ObjectRefusal {
                object: "Image cluster".to_owned(),
                place: path.to_owned(),
                message: message.into(),
                advice: advice.to_owned(),
            },
        }
    }

    /// Returns a refusal of the policy with a scope.
    pub(super) fn refuse_at_policy(&self, scope: &str, message: String) -> ObjectRefusal {
        let advice = "change the scope of the policy, or the lists of registries in Image cluster";
        let place = self.policy_objects.iter().find_map(|object| {
            let scopes = object.get("/spec/scopes")?.as_array()?;
            let index = scopes
                .iter()
                .position(|item| item.as_str() == Some(scope))?;
            Some((*object, format!("spec.scopes[{index}]")))
        });
        match place {
            Some((object, at)) => refuse_object(object, &at, message, advice),
            None => self.refuse_at_image("spec", message, advice),
        }
    }
}

/// Returns `Image cluster`; other objects of the kind have no effect.
fn find_image<'a>(cluster: &'a Cluster, notes: &mut Vec<Note>) -> Option<&'a ApiObject> {
    let all = of_api(cluster, "Image", "config.openshift.io", notes);
    for other in all.iter().filter(|image| image.name != "cluster") {
        notes.push(Note::exact(
            other.title(),
            "The object has no effect: the controller reads only the Image with the name `cluster`. Rename it if \
             it is meant.",
        ));
    }
    all.into_iter().find(|image| image.name == "cluster")
}

/// Returns the objects of a kind in one API, in their order.
fn of_api<'a>(
    cluster: &'a Cluster,
    kind: &'static str,
    api: &str,
    notes: &mut Vec<Note>,
) -> Vec<&'a ApiObject> {
    let is_of_api = |object: &&ApiObject| {
        let group = object.api_version.split('/').next();
        group == Some(api)
    };
    let of_kind = |object: &&ApiObject| object.kind == kind;
    let (own, other): (Vec<_>, Vec<_>) =
        cluster.objects.iter().filter(of_kind).partition(is_of_api);
    for object in other {
        notes.push(Note::exact(
            object.title(),
            format!(
                "The object has no effect: its apiVersion is {}, and the controller reads those of {api}. Correct it if it \
                 is meant.",
                object.api_version
            ),
        ));
    }
    own
}

fn read_sources(image: &ApiObject) -> Result<RegistrySources, ObjectRefusal> {
    let list = |name: &str| read_texts(image, &format!("spec.registrySources.{name}"));
    Ok(RegistrySources {
        insecure: list("insecureRegistries")?,
        blocked: list("blockedRegistries")?.unwrap_or_default(),
        allowed: list("allowedRegistries")?.unwrap_or_default(),
        search: list("containerRuntimeSearchRegistries")?,
    })
}

fn read_rules<'a>(
    objects: &[&'a ApiObject],
    list: &str,
) -> Result<Vec<MirrorRule<'a>>, ObjectRefusal> {
    let mut rules = Vec::new();
    for object in objects.iter().copied() {
        let at = format!("spec.{list}");
        let Some(value) = object.get(&to_pointer(&at)) else {
            continue;
        };
        let Some(items) = value.as_array() else {
            let advice = "write it as a list of source and mirrors";
            return Err(refuse_object(object, &at, "this is not a list", advice));
        };
        for index in 0..items.len() {
            rules.push(read_rule(object, format!("{at}[{index}]"))?);
        }
    }
    Ok(rules)
}

fn read_rule<'a>(object: &'a ApiObject, path: String) -> Result<MirrorRule<'a>, ObjectRefusal> {
    let has_policy = object.kind != "ImageContentSourcePolicy";
    let text = |key: &str| {
        let at = format!("{path}.{key}");
        match object.get(&to_pointer(&at)) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(refuse_object(
                object,
                &at,
                "this is not a text",
                "put it in quotes",
            )),
        }
    };
    let source = text("source")?.to_owned();
    let policy = if has_policy {
        text("mirrorSourcePolicy")?
    } else {
        ""
    };
    let policy = if policy.is_empty() { ALLOW } else { policy };
    Ok(MirrorRule {
        object,
        source,
        policy: policy.to_owned(),
        mirrors: read_texts(object, &format!("{path}.mirrors"))?.unwrap_or_default(),
        path,
    })
}

/// Returns the repository of the release image, which is only needed if registries are blocked, and the effective lists.
fn sort_lists(
    cluster: &Cluster,
    image: Option<&ApiObject>,
    sources: &RegistrySources,
    digests: &[MirroredSource],
) -> Result<(Option<String>, CountingLists), ObjectRefusal> {
    let version = cluster.find_single("ClusterVersion", "version");
    let of_version = || text_at(version?, "status.desired.image");
    let release_image = cluster.release_image.as_deref().or_else(of_version);
    let at = "spec.registrySources.blockedRegistries";
    let Some(release_image) = release_image else {
        if let Some(image) = image.filter(|_| !sources.blocked.is_empty()) {
            let message = "the release image is unknown, and its registry must not be blocked";
            let advice = "give it with --release-image REPOSITORY@sha256:…, or give the object ClusterVersion version; of \
                          OCP it usually is quay.io/openshift-release-dev/ocp-release@…, in a disconnected cluster too";
            return Err(refuse_object(image, at, message, advice));
        }
        let lists = payload::sort_lists("", "", sources, digests);
        return Ok((None, lists));
    };
    let Some(repository) = payload::repository_of(release_image) else {
        let message = "error parsing reference of release image";
        let advice = format!(
            "give it whole, with its registry and digest: {} is not a name of an image",
            quote_go(release_image)
        );
        let version = version.filter(|_| of_version() == Some(release_image));
        return Err(match (version, image) {
            (Some(version), _) => refuse_object(version, "status.desired.image", message, advice),
            (_, Some(image)) => refuse_object(image, at, message, advice),
            _ => ObjectRefusal {
                object: "ClusterVersion version".to_owned(),
                place: "status.desired.image".to_owned(),
                message: message.to_owned(),
                advice,
            },
        });
    };
    let lists = payload::sort_lists(repository, release_image, sources, digests);
    Ok((Some(repository.to_owned()), lists))
}

/// Returns true if image policies have an effect.
fn counts_policies(
    cluster: &Cluster,
    objects: &[&ApiObject],
    notes: &mut Vec<Note>,
) -> Result<bool, ObjectRefusal> {
    let Some(first) = objects.first() else {
        return Ok(false);
    };
    match cluster
        .has_gate(GATE)
        .or_else(|| cluster.gate_of_kubelet(GATE))
    {
        Some(true) => Ok(true),
        Some(false) => {
            notes.push(Note::exact(
                first.title(),
                format!(
                    "Image policies have no effect: the feature gate {GATE} is off in this cluster."
                ),
            ));
            Ok(false)
        }
        None => {
            let message = format!(
                "the feature gate {GATE} is unknown, and policies take effect only with it"
            );
            let advice =
                "give the object FeatureGate cluster too (`oc get featuregate cluster -o yaml`)";
            Err(refuse_object(first, "kind", message, advice))
        }
    }
}
