//! Judges whether a config is meant for a node: it has to be a rendered one, of the node's pool and cluster, and match its
//! name. Evidence in, doubts out. Each doubt is a blocker with its own override.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Plan;
use crate::base::invocation::mco_rescue;
use crate::base::notice::Notice;
use crate::change::source::identity::{Bundles, Claims, Membership, NodeIdentity, Witness};
use crate::config::render::NameHash;

/// Doubts that the user accepted by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one option each, independent of the others"
)]
pub struct Accepted {
    /// The config is not a rendered one.
    pub not_rendered: bool,
    /// It removes a lot, or something that keeps the node reachable.
    pub removals: bool,
    /// It belongs to another pool.
    pub other_pool: bool,
    /// It belongs to another cluster.
    pub other_cluster: bool,
    /// Its image is for another architecture.
    pub other_architecture: bool,
    /// Its contents do not match the hash in its name.
    pub edited_config: bool,
    /// Nobody vouches that the tree on a medium is the image.
    pub unproven_image: bool,
}

/// A reason why a config may not be meant for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It is not a rendered config.
    NotRendered,
    /// It removes a lot, or something that keeps the node reachable.
    Removals,
    /// It belongs to another pool.
    OtherPool,
    /// It belongs to another cluster.
    OtherCluster,
    /// Its image is for another architecture.
    OtherArchitecture,
    /// Its contents do not match the hash in its name.
    EditedConfig,
    /// Nobody vouches that the tree on a medium is the image.
    UnprovenImage,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NotRendered,
        Self::Removals,
        Self::OtherPool,
        Self::OtherCluster,
        Self::OtherArchitecture,
        Self::EditedConfig,
        Self::UnprovenImage,
    ];

    /// Returns the option that accepts it, without the dashes.
    pub fn option(self) -> &'static str {
        match self {
            Self::NotRendered => "not-rendered",
            Self::Removals => "allow-removals",
            Self::OtherPool => "other-pool",
            Self::OtherCluster => "other-cluster",
            Self::OtherArchitecture => "other-architecture",
            Self::EditedConfig => "edited-config",
            Self::UnprovenImage => "unproven-image",
        }
    }

    fn is_in(self, accepted: Accepted) -> bool {
        match self {
            Self::NotRendered => accepted.not_rendered,
            Self::Removals => accepted.removals,
            Self::OtherPool => accepted.other_pool,
            Self::OtherCluster => accepted.other_cluster,
            Self::OtherArchitecture => accepted.other_architecture,
            Self::EditedConfig => accepted.edited_config,
            Self::UnprovenImage => accepted.unproven_image,
        }
    }
}

impl Accepted {
    /// Adds the doubt with this option; `None` if there is no such option.
    pub fn with_option(mut self, option: &str) -> Option<Self> {
        let doubt = Doubt::ALL
            .into_iter()
            .find(|doubt| doubt.option() == option)?;
        match doubt {
            Doubt::NotRendered => self.not_rendered = true,
            Doubt::Removals => self.removals = true,
            Doubt::OtherPool => self.other_pool = true,
            Doubt::OtherCluster => self.other_cluster = true,
            Doubt::OtherArchitecture => self.other_architecture = true,
            Doubt::EditedConfig => self.edited_config = true,
            Doubt::UnprovenImage => self.unproven_image = true,
        }
        Some(self)
    }
}

/// A doubt with its explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubtful {
    /// The kind of doubt.
    pub doubt: Doubt,
    /// The part of the config or node that it is about.
    pub subject: String,
    /// The explanation.
    pub why: String,
    /// What to do instead: a sentence, or one and its command.
    pub instead: String,
}

impl Doubtful {
    /// Creates a doubt with its explanation.
    pub fn new(
        doubt: Doubt,
        subject: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self {
            doubt,
            subject: subject.into(),
            why: why.into(),
            instead: instead.into(),
        }
    }

    /// Adds it to a plan: as a blocker, or as a notice if the user accepted it.
    pub(super) fn add_to(self, plan: &mut Plan, accepted: Accepted) {
        let option = self.doubt.option();
        if self.doubt.is_in(accepted) {
            plan.notices.push(Notice::new(
                self.subject,
                format!("{}; accepted (--{option})", self.why),
            ));
        } else {
            plan.blockers.push(Notice::new(
                self.subject,
                format!(
                    "{}. To continue anyway: --{option}. {}",
                    self.why, self.instead
                ),
            ));
        }
    }
}

/// Everything that is known about a config and the node that it is for.
#[derive(Debug, Clone)]
pub struct FitEvidence<'a> {
    /// Name of the config.
    pub name: &'a str,
    /// The reason why it is not a rendered config; `None` if it is one.
    pub not_rendered: Option<String>,
    /// Whether its contents match the hash in its name.
    pub hash: &'a NameHash,
    /// Pool and cluster of the config, according to its contents.
    pub claims: &'a Claims,
    /// Pool and cluster of the node, according to its files.
    pub node: &'a NodeIdentity,
}

/// Returns every reason to doubt that the config is meant for the node, most serious first.
pub fn find_doubts(evidence: &FitEvidence<'_>) -> Vec<Doubtful> {
    let all = [
        not_rendered(evidence),
        other_cluster(evidence.claims, evidence.node),
        other_pool(evidence),
        doubt_edited(evidence),
    ];
    all.into_iter().flatten().collect()
}

fn not_rendered(evidence: &FitEvidence<'_>) -> Option<Doubtful> {
    let why = evidence.not_rendered.as_ref()?;
    let pool = evidence.node.pools.first();
    let pool = pool.map_or("POOL", |pool| pool.says.as_str());
    let said = format!(
        "{} is not a rendered config ({why}): everything on the node that it does not name would be removed",
        evidence.name
    );
    let instead = format!(
        "Merge it with the others of its pool: mco-rescue render {pool} FILES... > rendered.json, and apply that"
    );
    Some(Doubtful::new(Doubt::NotRendered, "metadata", said, instead))
}

fn other_pool(evidence: &FitEvidence<'_>) -> Option<Doubtful> {
    let pool = evidence.claims.pool.as_deref()?;
    let Membership::Stranger(witness) = evidence.node.membership_of(pool) else {
        return None;
    };
    let said = format!(
        "{} is for pool {pool}, but this node belongs to pool {} according to {}",
        evidence.name, witness.says, witness.place
    );
    let instead = format!(
        "Use a config of its own pool. Next: {}",
        mco_rescue("cache list")
    );
    Some(Doubtful::new(Doubt::OtherPool, "pool", said, instead))
}

fn other_cluster(claims: &Claims, node: &NodeIdentity) -> Option<Doubtful> {
    let doubt = |why: String, instead: String| {
        Some(Doubtful::new(Doubt::OtherCluster, "cluster", why, instead))
    };
    let (same, other) = compare_hosts(&claims.hosts, &node.hosts);
    if let (false, Some((host, witness))) = (same, other) {
        let why = format!(
            "the config is for the cluster with the API {host}, but this node belongs to the one with {}, according to {}",
            witness.says, witness.place
        );
        return doubt(why, "Use a config of this node's own cluster".to_owned());
    }
    let path = strange_bundle(&claims.bundles, &node.bundles)?;
    let why = format!(
        "no certificate authority of the config matches this node's, first in /{path}: it is for another cluster, such as one that \
         was reinstalled under the same name, or all of them were replaced since"
    );
    let compare = mco_rescue(&format!("show CONFIG /{path}"));
    doubt(why, format!("Compare: {compare}"))
}

/// Returns whether any host is on both sides, and otherwise the first comparable pair.
fn compare_hosts<'a>(
    config: &'a [String],
    node: &'a [Witness],
) -> (bool, Option<(&'a str, &'a Witness)>) {
    let mut other = None;
    for host in config {
        for witness in node {
            match same_host(host, &witness.says) {
                Some(true) => return (true, None),
                Some(false) if other.is_none() => other = Some((host.as_str(), witness)),
                _ => {}
            }
        }
    }
    (false, other)
}

/// Compares two hosts; `None` if one is an address and the other a name.
fn same_host(one: &str, other: &str) -> Option<bool> {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => Some(one == other),
        (Err(_), Err(_)) => Some(domain_of(one) == domain_of(other)),
        _ => None,
    }
}

/// Returns the domain of a host: `api.` and `api-int.` belong to the same cluster.
fn domain_of(host: &str) -> String {
    let host = host.trim_end_matches('.').to_lowercase();
    let bare = host
        .strip_prefix("api-int.")
        .or_else(|| host.strip_prefix("api."));
    bare.unwrap_or(&host).to_owned()
}

/// Returns the first bundle that both have, if no bundle in common shares a certificate. While an authority is being replaced,
/// the bundle has the old and the new one, and other bundles do not change.
fn strange_bundle(config: &Bundles, node: &Bundles) -> Option<&'static str> {
    let both = config
        .iter()
        .filter_map(|(path, ours)| Some((*path, ours, node.get(path)?)));
    let both: Vec<(&'static str, &BTreeSet<String>, &BTreeSet<String>)> = both.collect();
    let shared = both
        .iter()
        .any(|(_, ours, theirs)| !ours.is_disjoint(theirs));
    let (path, ..) = both.first()?;
    (!shared).then_some(*path)
}

fn doubt_edited(evidence: &FitEvidence<'_>) -> Option<Doubtful> {
    if *evidence.hash != NameHash::Wrong {
        return None;
    }
    let name = evidence.name;
    let said = format!(
        "the hash in {name} does not match the contents: they were changed or cut short since the operator rendered them. The \
         daemon compares the node with the cluster's own object of that name, and goes Degraded on any difference"
    );
    let instead = format!("Get the original. Next: oc get mc {name} -o yaml");
    Some(Doubtful::new(
        Doubt::EditedConfig,
        "metadata.name",
        said,
        instead,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How something in the config relates to the node.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Is {
        Same,
        Other,
        Unknown,
    }
    use Is::{Other, Same, Unknown};
    const ALL: [Is; 3] = [Same, Other, Unknown];

    fn witnesses(is: Is, same: &str, other: &str) -> Vec<Witness> {
        let said = match is {
            Same => same,
            Other => other,
            Unknown => return Vec::new(),
        };
        vec![Witness::new(said, "a file")]
    }

    fn bundles(is: Is, path: &'static str) -> Bundles {
        let all: &[&str] = match is {
            // While one is being replaced, old and new are both present.
            Same => &["old", "new"],
            Other => &["foreign"],
            Unknown => return Bundles::new(),
        };
        Bundles::from([(path, all.iter().map(|one| (*one).to_owned()).collect())])
    }

    #[test]
    fn the_table_of_pool_cluster_hash_and_rendered() {
        const CA: &str = "etc/kubernetes/ca.crt";
        let hashes = [
            NameHash::Right,
            NameHash::Wrong,
            NameHash::Missing,
            NameHash::Unknown("newer".into()),
        ];
        let mut rows = 0;
        for pool in ALL {
            for host in ALL {
                for authority in ALL {
                    for hash in &hashes {
                        for rendered in [true, false] {
                            let node = NodeIdentity {
                                pools: witnesses(pool, "worker", "master"),
                                hosts: witnesses(host, "api.a.example", "api.b.example"),
                                bundles: bundles(authority, CA),
                                ..NodeIdentity::default()
                            };
                            let claims = Claims {
                                pool: Some("worker".into()),
                                hosts: vec!["api-int.a.example".into()],
                                bundles: Bundles::from([(CA, BTreeSet::from(["new".to_owned()]))]),
                            };
                            let found = find_doubts(&FitEvidence {
                                name: "rendered-worker-0",
                                not_rendered: (!rendered).then(|| "it is a part".to_owned()),
                                hash,
                                claims: &claims,
                                node: &node,
                            });
                            let mut wanted = Vec::new();
                            wanted.extend((!rendered).then_some(Doubt::NotRendered));
                            let foreign = host == Other || authority == Other;
                            wanted.extend(foreign.then_some(Doubt::OtherCluster));
                            wanted.extend((pool == Other).then_some(Doubt::OtherPool));
                            let wrong = *hash == NameHash::Wrong;
                            wanted.extend(wrong.then_some(Doubt::EditedConfig));
                            let kinds: Vec<Doubt> = found.iter().map(|one| one.doubt).collect();
                            let row = (pool, host, authority, hash, rendered);
                            assert_eq!(kinds, wanted, "{row:?}");
                            rows += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(rows, 216);
    }

    #[test]
    fn hosts_are_compared_where_they_can_be() {
        for (one, other, same) in [
            ("api-int.a.example", "api.A.example.", Some(true)),
            ("api-int.a.example", "api-int.b.example", Some(false)),
            ("10.0.0.1", "api-int.a.example", None),
            ("10.0.0.1", "10.0.0.2", Some(false)),
            ("fd00::1", "fd00:0::1", Some(true)),
        ] {
            assert_eq!(same_host(one, other), same, "{one} {other}");
        }
    }

    #[test]
    fn a_replaced_authority_makes_no_other_cluster() {
        let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let (root, kubelet) = ("etc/kubernetes/ca.crt", "etc/kubernetes/kubelet-ca.crt");
        let node = Bundles::from([(root, set(&["old"])), (kubelet, set(&["a", "b"]))]);
        for (config, strange) in [
            (Bundles::from([(root, set(&["old", "new"]))]), None),
            (
                Bundles::from([(root, set(&["new"])), (kubelet, set(&["b", "c"]))]),
                None,
            ),
            (
                Bundles::from([(root, set(&["new"])), (kubelet, set(&["c"]))]),
                Some(root),
            ),
            (
                Bundles::from([("etc/kubernetes/kubeconfig", set(&["new"]))]),
                None,
            ),
        ] {
            assert_eq!(strange_bundle(&config, &node), strange, "{config:?}");
        }
    }

    #[test]
    fn each_option_passes_over_its_own_doubt_and_no_other() {
        for doubt in Doubt::ALL {
            let accepted = Accepted::default().with_option(doubt.option()).unwrap();
            for other in Doubt::ALL {
                let mut plan = Plan::default();
                Doubtful::new(other, "x", "y", "z").add_to(&mut plan, accepted);
                assert_eq!(
                    plan.blockers.is_empty(),
                    doubt == other,
                    "{doubt:?} {other:?}"
                );
            }
        }
        assert_eq!(Accepted::default().with_option("all"), None);
    }
}
