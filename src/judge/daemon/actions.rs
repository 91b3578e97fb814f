//! Node disruption policies: the actions that follow from a change (docs/develop/agreement.md: Actions).

use std::fmt;

use crate::config::document::FORCE_FILE;
use crate::judge::daemon::policies::{
    self, ClusterPolicies, FilePolicy, KeyPolicy, PolicyService, UnitPolicy,
};
use crate::node::command::job::{CA_TRUST, Job};

/// The container runtime; most actions concern it.
pub const CRIO: &str = "crio.service";

/// Path of the release images' key, which may change at run time.
pub(super) const GPG_KEY: &str = "/etc/machine-config-daemon/no-reboot/containers-gpg.pub";
/// Path of the certificate authorities that the cluster's administrator adds.
pub(super) const USER_CA: &str =
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
/// Path of the only file whose action depends on its content.
pub(super) const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// An action on the node after the files are in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reboots the node; always the only action.
    Reboot,
    /// Drains the node before the files are written; nothing is left to do afterwards.
    Drain,
    /// `systemctl reload` of a service.
    Reload(String),
    /// `systemctl restart` of a service.
    Restart(String),
    /// `systemctl daemon-reload`.
    DaemonReload,
    /// For registries.conf only: CRI-O is reloaded, and the change of its content decides about the drain.
    Special,
    /// Does nothing.
    None,
}

/// An action of a policy that cannot be carried out here: of an unknown kind, or without its service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// A kind that only a later release knows.
    #[error("the policy asks for {0:?}, which this version does not support")]
    Kind(String),
    /// `Reload` or `Restart` without a service.
    #[error("the policy asks for {0} and names no service")]
    Service(String),
}

impl TryFrom<&policies::PolicyAction> for Action {
    type Error = Unknown;

    fn try_from(action: &policies::PolicyAction) -> Result<Self, Unknown> {
        let name = |service: &Option<PolicyService>| {
            let named = service.as_ref().map(|service| service.service_name.clone());
            let named = named.filter(|name| !name.is_empty());
            named.ok_or_else(|| Unknown::Service(action.kind.clone()))
        };
        match action.kind.as_str() {
            "Reboot" => Ok(Self::Reboot),
            "Drain" => Ok(Self::Drain),
            "Reload" => Ok(Self::Reload(name(&action.reload)?)),
            "Restart" => Ok(Self::Restart(name(&action.restart)?)),
            "DaemonReload" => Ok(Self::DaemonReload),
            "Special" => Ok(Self::Special),
            "None" => Ok(Self::None),
            other => Err(Unknown::Kind(other.to_owned())),
        }
    }
}

impl From<&Action> for policies::PolicyAction {
    fn from(action: &Action) -> Self {
        let service = |name: &String| {
            Some(PolicyService {
                service_name: name.clone(),
            })
        };
        let (kind, reload, restart) = match action {
            Action::Reboot => ("Reboot", None, None),
            Action::Drain => ("Drain", None, None),
            Action::Reload(name) => ("Reload", service(name), None),
            Action::Restart(name) => ("Restart", None, service(name)),
            Action::DaemonReload => ("DaemonReload", None, None),
            Action::Special => ("Special", None, None),
            Action::None => ("None", None, None),
        };
        Self {
            kind: kind.to_owned(),
            reload,
            restart,
        }
    }
}

impl Action {
    /// Returns the job on the running system; `None` for actions before the files, at the end, or without effect.
    pub fn job(&self) -> Option<Job> {
        match self {
            Self::Reload(name) => Some(Job::Reload(name.clone())),
            Self::Restart(name) => Some(Job::Restart(name.clone())),
            Self::DaemonReload => Some(Job::DaemonReload),
            Self::Special => Some(Job::Reload(CRIO.to_owned())),
            Self::Reboot | Self::Drain | Self::None => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reboot => write!(f, "reboot"),
            Self::Drain => write!(f, "drain"),
            Self::Reload(name) => write!(f, "reload {name}"),
            Self::Restart(name) => write!(f, "restart {name}"),
            Self::DaemonReload => write!(f, "daemon-reload"),
            Self::Special => write!(f, "reload {}", CRIO),
            Self::None => write!(f, "nothing"),
        }
    }
}

/// Returns an action with its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The action.
    pub action: Action,
    /// The cause.
    pub cause: ActionCause,
}

/// The cause of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionCause {
    /// The force file, which always reboots.
    Forced,
    /// Changed parts of the config that only a reboot applies.
    NeedsReboot(Vec<&'static str>),
    /// No file, unit or user changed.
    NothingChanged,
    /// A changed file, and the path of its policy.
    File(String, String),
    /// A changed file without a policy.
    FileWithoutPolicy(String),
    /// A changed unit with a policy.
    Unit(String),
    /// A changed unit without a policy.
    UnitWithoutPolicy(String),
    /// Changed keys or password.
    Users,
    /// A policy for the named file, unit or user that cannot be followed, with the reason.
    Unknown(String, Unknown),
}

impl fmt::Display for ActionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forced => write!(f, "{FORCE_FILE} exists"),
            Self::NeedsReboot(parts) => write!(f, "{} changed", parts.join(", ")),
            Self::NothingChanged => write!(f, "no file, unit or user changed"),
            Self::File(path, policy) if path == policy => write!(f, "policy for {path}"),
            Self::File(path, policy) => write!(f, "policy for {policy}, which holds {path}"),
            Self::FileWithoutPolicy(path) => write!(f, "{path} has no policy"),
            Self::Unit(name) => write!(f, "policy for {name}"),
            Self::UnitWithoutPolicy(name) => write!(f, "{name} has no policy"),
            Self::Users => write!(f, "policy for ssh keys and passwords"),
            Self::Unknown(what, why) => write!(f, "{what}: {why}"),
        }
    }
}

/// The changes, in the order in which actions are queued; the daemon's own order of files is random.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionChanges<'a> {
    /// Paths of changed files.
    pub files: Vec<&'a str>,
    /// Names of changed units.
    pub units: Vec<&'a str>,
    /// Keys or passwords changed.
    pub users: bool,
}

/// Returns the actions for the changes: in order, with duplicates; a reboot is always alone.
///
/// A policy that cannot be followed means a reboot, like a missing one: a reboot has the effect of every action.
pub fn follow_policies(changed: &ActionChanges<'_>, policies: &ClusterPolicies) -> Vec<Queued> {
    let mut all = Vec::new();
    for path in &changed.files {
        let Some(policy) = file_policy(path, policies) else {
            return reboot_actions(ActionCause::FileWithoutPolicy((*path).to_owned()));
        };
        let cause = ActionCause::File((*path).to_owned(), policy.path.clone());
        all.extend(queued_action(&policy.actions, &cause, path));
    }
    for name in &changed.units {
        let Some(policy) = policies.units.iter().find(|unit| unit.name == *name) else {
            return reboot_actions(ActionCause::UnitWithoutPolicy((*name).to_owned()));
        };
        all.extend(queued_action(
            &policy.actions,
            &ActionCause::Unit((*name).to_owned()),
            name,
        ));
    }
    if changed.users {
        let actions = &policies.sshkey.actions;
        all.extend(queued_action(
            actions,
            &ActionCause::Users,
            "ssh keys and passwords",
        ));
    }
    settle_actions(all)
}

/// Returns a reboot as the only action.
pub fn reboot_actions(cause: ActionCause) -> Vec<Queued> {
    vec![Queued {
        action: Action::Reboot,
        cause,
    }]
}

fn queued_action<'a>(
    actions: &'a [policies::PolicyAction],
    cause: &'a ActionCause,
    what: &'a str,
) -> impl Iterator<Item = Queued> + 'a {
    actions
        .iter()
        .map(move |action| match Action::try_from(action) {
            Ok(action) => Queued {
                action,
                cause: cause.clone(),
            },
            Err(unknown) => Queued {
                action: Action::Reboot,
                cause: ActionCause::Unknown(what.to_owned(), unknown),
            },
        })
}

/// Drops actions without effect: all others next to a reboot, and `None` next to others.
fn settle_actions(mut all: Vec<Queued>) -> Vec<Queued> {
    let is = |queued: &Queued, action: &Action| queued.action == *action;
    if let Some(reboot) = all.iter().find(|queued| is(queued, &Action::Reboot)) {
        return vec![reboot.clone()];
    }
    if all.iter().any(|queued| !is(queued, &Action::None)) {
        all.retain(|queued| !is(queued, &Action::None));
    } else {
        all.truncate(1);
    }
    all
}

/// Returns the policy for a path: one for exactly this path, byte for byte, or for a directory above it other than `/`. The
/// longest path text wins, counting every slash.
fn file_policy<'a>(path: &str, policies: &'a ClusterPolicies) -> Option<&'a FilePolicy> {
    let of_file: Vec<&str> = path.split('/').skip(1).collect();
    let holds = |policy: &&FilePolicy| {
        let directory = directory_names(&policy.path);
        let is_above = !directory.is_empty()
            && directory.len() < of_file.len()
            && of_file.starts_with(&directory);
        policy.path == path || is_above
    };
    // Of two policies for the same path, the first wins.
    let all = policies.files.iter().rev();
    all.filter(holds).max_by_key(|policy| policy.path.len())
}

/// Returns the components of a directory path, without `.`, `..` and repeated slashes; none for a relative path and for `/`.
fn directory_names(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    if !path.starts_with('/') {
        return names;
    }
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names
}

/// Returns the operator's defaults (as of 2026-08), which a cluster's own policies override.
pub fn default_policies() -> ClusterPolicies {
    let reload = || Action::Reload(CRIO.to_owned());
    let restart = |name: &str| Action::Restart(name.to_owned());
    let trust = || restart(CA_TRUST);
    let registry = || restart("iri-registry.service");
    let kubelet = || restart("kubelet.service");
    let files = [
        ("/var/lib/kubelet/config.json", vec![Action::None]),
        (GPG_KEY, vec![reload()]),
        ("/etc/containers/policy.json", vec![reload()]),
        (REGISTRIES_CONF, vec![Action::Special]),
        ("/etc/containers/registries.d", vec![reload()]),
        ("/etc/crio/policies", vec![reload()]),
        ("/etc/nmstate/openshift", vec![Action::None]),
        (USER_CA, vec![trust(), restart(CRIO)]),
        ("/etc/kubernetes/credential-providers", vec![kubelet()]),
        (
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            vec![Action::DaemonReload, kubelet()],
        ),
        ("/etc/iri-registry", vec![registry()]),
        ("/usr/local/bin/load-registry-image.sh", vec![registry()]),
        (
            "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt",
            vec![trust()],
        ),
    ];
    let given = |actions: &[Action]| actions.iter().map(policies::PolicyAction::from).collect();
    let file = |(path, actions): &(&str, Vec<Action>)| FilePolicy {
        path: (*path).to_owned(),
        actions: given(actions),
    };
    ClusterPolicies {
        files: files.iter().map(file).collect(),
        units: vec![UnitPolicy {
            name: "iri-registry.service".to_owned(),
            actions: given(&[Action::DaemonReload, registry()]),
        }],
        sshkey: KeyPolicy {
            actions: given(&[Action::None]),
        },
    }
}

/// Returns the operator's defaults overridden by an administrator's policies, as the operator does it: an entry with the same
/// path or name replaces the default.
pub fn laid_over_defaults(user: &ClusterPolicies) -> ClusterPolicies {
    let mut all = default_policies();
    for policy in &user.files {
        match all.files.iter_mut().find(|file| file.path == policy.path) {
            Some(file) => file.clone_from(policy),
            None => all.files.push(policy.clone()),
        }
    }
    for policy in &user.units {
        match all.units.iter_mut().find(|unit| unit.name == policy.name) {
            Some(unit) => unit.clone_from(policy),
            None => all.units.push(policy.clone()),
        }
    }
    if !user.sshkey.actions.is_empty() {
        all.sshkey.clone_from(&user.sshkey);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&'static str]) -> ActionChanges<'static> {
        ActionChanges {
            files: paths.to_vec(),
            ..ActionChanges::default()
        }
    }

    fn policies(files: &[(&str, &[Action])]) -> ClusterPolicies {
        let given = |actions: &[Action]| actions.iter().map(policies::PolicyAction::from).collect();
        let files = files.iter().map(|(path, actions)| FilePolicy {
            path: (*path).to_owned(),
            actions: given(actions),
        });
        ClusterPolicies {
            files: files.collect(),
            ..ClusterPolicies::default()
        }
    }

    fn actions(changed: &ActionChanges<'_>, policies: &ClusterPolicies) -> Vec<String> {
        let queue = follow_policies(changed, policies);
        queue
            .iter()
            .map(|queued| queued.action.to_string())
            .collect()
    }

    /// Changed files, and the actions of the default policies.
    const DEFAULT_TABLE: &[(&str, &[&str])] = &[
        ("/var/lib/kubelet/config.json", &["nothing"]),
        (
            "/etc/machine-config-daemon/no-reboot/containers-gpg.pub",
            &["reload crio.service"],
        ),
        ("/etc/containers/policy.json", &["reload crio.service"]),
        ("/etc/containers/registries.conf", &["reload crio.service"]),
        (
            "/etc/containers/registries.d/a.yaml",
            &["reload crio.service"],
        ),
        (
            "/etc/containers/registries.d/a/b.yaml",
            &["reload crio.service"],
        ),
        ("/etc/crio/policies/ns.json", &["reload crio.service"]),
        ("/etc/nmstate/openshift/cluster.yml", &["nothing"]),
        (
            USER_CA,
            &[
                "restart coreos-update-ca-trust.service",
                "restart crio.service",
            ],
        ),
        (
            "/etc/kubernetes/credential-providers/ecr.yaml",
            &["restart kubelet.service"],
        ),
        (
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            &["daemon-reload", "restart kubelet.service"],
        ),
        ("/etc/iri-registry/cert", &["restart iri-registry.service"]),
        (
            "/usr/local/bin/load-registry-image.sh",
            &["restart iri-registry.service"],
        ),
        (
            "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt",
            &["restart coreos-update-ca-trust.service"],
        ),
        ("/etc/containers/registries.dx", &["reboot"]),
        ("/etc/containers/registries.conf.d/a.conf", &["reboot"]),
        ("/etc/chrony.conf", &["reboot"]),
    ];

    #[test]
    fn every_entry_of_the_default_table_is_followed() {
        for &(path, wanted) in DEFAULT_TABLE {
            let changed = files(&[path]);
            assert_eq!(actions(&changed, &default_policies()), wanted, "{path}");
        }
        let units = |name| ActionChanges {
            units: vec![name],
            ..ActionChanges::default()
        };
        assert_eq!(
            actions(&units("iri-registry.service"), &default_policies()),
            ["daemon-reload", "restart iri-registry.service"]
        );
        assert_eq!(
            actions(&units("crio.service"), &default_policies()),
            ["reboot"]
        );
        let users = ActionChanges {
            users: true,
            ..ActionChanges::default()
        };
        assert_eq!(actions(&users, &default_policies()), ["nothing"]);
    }

    #[test]
    fn registries_conf_is_special_and_not_an_ordinary_reload() {
        let queue = follow_policies(&files(&[REGISTRIES_CONF]), &default_policies());
        assert_eq!(queue[0].action, Action::Special);
    }

    #[test]
    fn the_longest_path_wins_wherever_it_stands() {
        let (outer, inner) = (Action::Drain, Action::DaemonReload);
        for table in [
            [("/etc/a", [outer.clone()]), ("/etc/a/b", [inner.clone()])],
            [("/etc/a/b", [inner.clone()]), ("/etc/a/", [outer.clone()])],
        ] {
            let table = table
                .each_ref()
                .map(|(path, actions)| (*path, actions.as_slice()));
            let all = policies(&table);
            assert_eq!(actions(&files(&["/etc/a/b/c"]), &all), ["daemon-reload"]);
            assert_eq!(actions(&files(&["/etc/a/b"]), &all), ["daemon-reload"]);
            assert_eq!(actions(&files(&["/etc/a/bc"]), &all), ["drain"]);
            assert_eq!(actions(&files(&["/etc/ab"]), &all), ["reboot"]);
        }
    }

    #[test]
    fn a_reboot_stands_alone_and_its_cause_is_said() {
        let all = follow_policies(
            &files(&["/etc/containers/policy.json", "/etc/x", "/etc/y"]),
            &default_policies(),
        );
        assert_eq!(
            all,
            reboot_actions(ActionCause::FileWithoutPolicy("/etc/x".into()))
        );
        assert_eq!(all[0].cause.to_string(), "/etc/x has no policy");
        let asked = policies(&[("/a", &[Action::DaemonReload]), ("/b", &[Action::Reboot])]);
        let all = follow_policies(&files(&["/a", "/b"]), &asked);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].cause.to_string(), "policy for /b");
    }

    #[test]
    fn nothing_is_dropped_beside_others_and_nothing_else_is() {
        let changed = files(&[
            "/etc/containers/policy.json",
            "/etc/containers/registries.d/a",
            "/var/lib/kubelet/config.json",
        ]);
        // Twice, like the daemon.
        let wanted = ["reload crio.service", "reload crio.service"];
        assert_eq!(actions(&changed, &default_policies()), wanted);
        let quiet = files(&["/etc/nmstate/openshift/a", "/var/lib/kubelet/config.json"]);
        assert_eq!(actions(&quiet, &default_policies()), ["nothing"]);
        assert_eq!(actions(&files(&[]), &default_policies()), [""; 0]);
    }

    #[test]
    fn an_action_that_cannot_be_followed_is_a_reboot_and_says_so() {
        for (kind, words) in [
            ("Hibernate", "\"Hibernate\""),
            ("Reload", "names no service"),
        ] {
            let mut all = policies(&[("/a", &[Action::None])]);
            all.files[0].actions[0].kind = kind.to_owned();
            let queue = follow_policies(&files(&["/a"]), &all);
            assert_eq!(queue[0].action, Action::Reboot);
            let cause = queue[0].cause.to_string();
            assert!(
                cause.starts_with("/a: ") && cause.contains(words),
                "{cause}"
            );
        }
    }

    /// Observed with the operator's own code.
    #[test]
    fn a_policy_finds_its_files_by_its_text() {
        let reboot: &[Action] = &[Action::Reboot];
        let none: &[Action] = &[Action::None];
        type Row<'a> = (&'a [(&'a str, &'a [Action])], Option<&'a str>);
        let rows: [Row<'_>; 13] = [
            (&[("/", none)], None),
            (&[("", none)], None),
            (&[("etc/sub", none)], None),
            (&[("/etc/sub/f/", none)], None),
            (&[("/etc/sub/f", none)], Some("/etc/sub/f")),
            (&[("/etc/sub", none)], Some("/etc/sub")),
            (&[("/etc/su", none)], None),
            (&[("/etc/sub/f/g", none)], None),
            (
                &[("/etc/sub", none), ("/etc/sub/", reboot)],
                Some("/etc/sub/"),
            ),
            (&[("/etc//sub", none)], Some("/etc//sub")),
            (&[("/etc/./sub", none)], Some("/etc/./sub")),
            (&[("/etc/x/../sub", none)], Some("/etc/x/../sub")),
            (&[("/etc", reboot), ("/etc/sub", none)], Some("/etc/sub")),
        ];
        for (policies_of, wanted) in rows {
            let policies = policies(policies_of);
            let found = file_policy("/etc/sub/f", &policies);
            assert_eq!(
                found.map(|one| one.path.as_str()),
                wanted,
                "{policies_of:?}"
            );
        }
    }

    #[test]
    fn an_administrators_policy_takes_the_place_of_the_default() {
        let user = policies(&[
            ("/etc/containers/policy.json", &[Action::None]),
            (
                "/etc/chrony.conf",
                &[Action::Restart("chronyd.service".into())],
            ),
        ]);
        let all = laid_over_defaults(&user);
        let one = |path| actions(&files(&[path]), &all);
        assert_eq!(one("/etc/containers/policy.json"), ["nothing"]);
        assert_eq!(one("/etc/chrony.conf"), ["restart chronyd.service"]);
        assert_eq!(one("/etc/crio/policies/a"), ["reload crio.service"]);
        assert_eq!(all.sshkey, default_policies().sshkey);
    }
}
