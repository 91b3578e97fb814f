//! `apply --key`: adds an SSH key for `core`, and changes nothing else on the node.

use anyhow::{Context, Result, anyhow};
use serde_json::json;

use super::node_change::NodeChange;
use super::work::{RunWork, expect_no_blockers};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::change::plan::{self, Addition, Allowed, Plan, PlanInputs, PlanRequest, Task};
use crate::change::session::evidence::NodeEvidence;
use crate::change::source::Chosen;
use crate::change::transaction::journal::ConfigRef;
use crate::config::document::{self, Desired};
use crate::host::root::{Root, RootPath, sha256_hex};
use crate::node::accounts::Accounts;
use crate::node::command::CommandRunner;
use crate::node::os_release::OsRelease;
use crate::node::{self, Interest, NodeState, Records, login};

/// The name of such a run for `status` and `rollback`.
pub const KEY_RUN: &str = "an SSH key for core";
/// The groups of `core` on CoreOS.
const GROUPS: [&str; 4] = ["adm", "sudo", "systemd-journal", "wheel"];
/// An empty config.
const NOTHING: &[u8] = br#"{"ignition":{"version":"3.4.0"}}"#;

/// The addition of a key, planned.
#[derive(Debug)]
pub struct KeyRun<'a> {
    line: &'a str,
    origin: &'a str,
    /// The file that gets the key.
    pub path: RootPath,
    /// The plan.
    pub plan: Plan,
    node: NodeState,
}

impl<'a> KeyRun<'a> {
    /// Observes the node and plans the addition of a line from `origin`.
    ///
    /// # Errors
    /// The node cannot be read.
    pub fn plan_addition(
        change: &NodeChange<'_>,
        allowed: Allowed,
        line: &'a str,
        origin: &'a str,
    ) -> Result<Self> {
        let (root, runner) = (&change.root, change.runner());
        let el8 = OsRelease::read(root)?.is_el8();
        let path = RootPath::fixed(if el8 {
            paths::CORE_AUTHORIZED_KEYS
        } else {
            paths::CORE_KEYS
        });
        let node = observe_file(root, runner, &path)?;
        let allowed = Allowed {
            // The keys do not depend on a deployment.
            staged: true,
            ..allowed
        };
        let evidence = NodeEvidence::of_node(root, &node, runner);
        let plan = plan_addition(&evidence, allowed, &path, line, !el8)?;
        Ok(Self {
            line,
            origin,
            path,
            plan,
            node,
        })
    }

    /// Adds the key, and warns if sshd does not accept it all the same.
    ///
    /// # Errors
    /// The plan has blockers, or something failed; the message says what was changed.
    pub fn carry_out(&self, change: &NodeChange<'_>) -> Result<()> {
        expect_no_blockers(&self.plan, "add the key")?;
        let config = ConfigRef {
            name: KEY_RUN.to_owned(),
            digest: sha256_hex(self.line.as_bytes()),
            origin: self.origin.to_owned(),
        };
        RunWork::new(change, &self.node, &self.plan, config).carry_out()?;
        warn_of_sshd(&change.root, &self.path.to_string());
        Ok(())
    }
}

/// Returns a config that creates `core` with the key and the keys in its file; `None` if the root has that user, or no user at all.
///
/// # Errors
/// The accounts or the keys cannot be read.
pub fn config_of_missing_core(root: &Root, line: &str, origin: &str) -> Result<Option<Chosen>> {
    let accounts = Accounts::read(root).context("reading the accounts")?;
    if accounts.users.is_empty() || accounts.users.contains_key("core") {
        return Ok(None);
    }
    let path = RootPath::fixed(paths::CORE_KEYS);
    let known = root.read_small(&path).context("reading the keys of core")?;
    let known = String::from_utf8_lossy(known.as_deref().unwrap_or_default()).into_owned();
    let is_key = |one: &&str| !one.is_empty() && !one.starts_with('#') && *one != line;
    let keys: Vec<&str> = known
        .lines()
        .map(str::trim)
        .filter(is_key)
        .chain([line])
        .collect();
    let groups: Vec<&str> = GROUPS
        .into_iter()
        .filter(|group| accounts.groups.contains_key(*group))
        .collect();
    let user = json!({"name": "core", "gecos": "CoreOS Admin", "groups": groups, "sshAuthorizedKeys": keys});
    let config = json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [user]}});
    Ok(Some(Chosen {
        config: document::parse_document(config.to_string(), origin)?,
        why: "given with --key; the user core is missing, and is created".to_owned(),
        others: Vec::new(),
        signed: None,
    }))
}

fn observe_file(root: &Root, runner: &dyn CommandRunner, path: &RootPath) -> Result<NodeState> {
    let fixed = [
        paths::CORE_HOME,
        paths::CORE_SSH,
        paths::CORE_KEYS_DIR,
        paths::STATUS,
    ];
    let interest = Interest {
        paths: fixed
            .into_iter()
            .map(RootPath::fixed)
            .chain([path.clone()])
            .collect(),
        ..Interest::default()
    };
    node::observe_node(root, interest, runner).context("looking at the node")
}

fn plan_addition(
    evidence: &NodeEvidence<'_>,
    allowed: Allowed,
    path: &RootPath,
    line: &str,
    of_config: bool,
) -> Result<Plan> {
    let (root, node) = (evidence.root, evidence.node);
    let config = document::parse_document(NOTHING, KEY_RUN)?;
    let desired = Desired::from_config(&config);
    let records = Records::read(root).context("reading the daemon's records")?;
    let inputs = PlanInputs {
        crossing: &[],
        config: &config,
        desired: &desired,
        baseline: records.baseline(),
        old: None,
        records: &records,
        node,
        accounts: None,
        overrides: None,
        unchanged: None,
    };
    let text = root.read_small(path).context("reading the keys of core")?;
    let text = text.map(String::from_utf8).transpose();
    let next = mco_rescue("doctor FP-33");
    let text = text.map_err(|_| anyhow!("{path} is not UTF-8 text. Next: {next}"))?;
    let addition = Addition {
        file: path,
        text: text.as_deref(),
        line,
        of_config,
    };
    let request = PlanRequest {
        allowed,
        ..PlanRequest::default()
    };
    plan::plan_whole(&Task::Key(inputs, addition), &request, evidence)
}

/// Warns if sshd does not accept the key although it is in place.
pub fn warn_of_sshd(root: &Root, path: &str) {
    let login = match login::read_login(root) {
        Ok(login) => login,
        Err(error) => {
            log::warn!("the key is in place, but it is unknown whether sshd accepts it: {error}");
            return;
        }
    };
    let next = format!("Next: {}", mco_rescue("doctor FP-33"));
    let mut files = login.files.iter().filter(|file| file.path == path);
    if let Some(why) = files.find_map(|file| file.refused.as_ref()) {
        log::warn!("the key is in place, but sshd rejects it: {why}. {next}");
    }
    if let Some(cause) = login.kept_out.first() {
        let (place, said) = (&cause.place, &cause.said);
        log::warn!("the key is in place, but sshd keeps core out: {place}: {said}. {next}");
    }
}
