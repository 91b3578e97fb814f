//! `apply --key`: adds an SSH key for `core`.

use crate::base::invocation::mco_rescue;
use crate::cli::ui::Ui;
use crate::run::front::Front;
use anyhow::{Context, Result, anyhow, bail};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::paths;
use crate::base::ssh_key::PublicKey;
use crate::change::plan::{self, Addition, Allowed, Plan, PlanInputs, PlanRequest, Task};
use crate::change::session::evidence::NodeEvidence;
use crate::change::session::machine;
use crate::change::session::open_root;
use crate::change::source;
use crate::change::transaction::journal::ConfigRef;
use crate::cli::apply::ApplyArgs;
use crate::config::document::{self, Desired};
use crate::host::root::{Root, RootPath, sha256};
use crate::node::command::CommandRunner;
use crate::node::os_release::OsRelease;
use crate::node::{self, Interest, NodeState, Records, login};
use crate::report::plan::Heading;
use crate::report::{self, key};
use crate::run::ending::Ending;
use crate::run::opening::{Needs, Opening};
use crate::run::work::RunWork;

/// The name of such a run for `status` and `rollback`.
const NAME: &str = "an SSH key for core";
/// An empty config.
const NOTHING: &[u8] = br#"{"ignition":{"version":"3.4.0"}}"#;
/// Maximum size of a file with one key.
const MAX_KEY: usize = 64 << 10;

/// Runs `apply --key`, which changes nothing else on the node.
pub(super) fn apply(ui: &Ui<'_>, args: &ApplyArgs, file: &str) -> Result<ExitCode> {
    let (line, key) = read(file)?;
    let root = open_root(&ui.root)?;
    let guards = &args.plan.guards;
    let change = Opening::of(ui, root, &Needs::KEY.meant(guards.not_a_node))?.begin()?;
    let root = &change.root;
    let el8 = OsRelease::read(root)?.is_el8();
    let path = RootPath::fixed(match el8 {
        true => paths::CORE_AUTHORIZED_KEYS,
        false => paths::CORE_KEYS,
    });
    let node = observe(root, ui.runner, &path)?;
    let allowed = Allowed {
        // The keys do not depend on a deployment.
        staged: true,
        ..guards.allowed()
    };
    let evidence = NodeEvidence::of_node(root, &node, ui.runner);
    let plan = planned(&evidence, allowed, &path, &line, !el8)?;
    let at = path.to_string();
    if plan.is_empty() && plan.blockers.is_empty() {
        return end(ui, &key, &at, 0);
    }
    show(ui, root, &plan, file)?;
    if !plan.blockers.is_empty() {
        bail!("refusing to add the key: see the blockers above; nothing was changed");
    }
    ui.confirm("Add this key?")?;
    let work = RunWork {
        change: &change,
        node: &node,
        plan: &plan,
        config: ConfigRef {
            name: NAME.to_owned(),
            digest: sha256(line.as_bytes()),
            origin: file.to_owned(),
        },
        undoes: None,
        more: &[],
        jobs: &[],
    };
    work.transact()?;
    warn_of_sshd(root, &at);
    let code = end(ui, &key, &at, plan.steps.len())?;
    change.finish(Ending::of(code))
}

fn observe(root: &Root, runner: &dyn CommandRunner, path: &RootPath) -> Result<NodeState> {
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

fn planned(
    evidence: &NodeEvidence<'_>,
    allowed: Allowed,
    path: &RootPath,
    line: &str,
    of_config: bool,
) -> Result<Plan> {
    let (root, node) = (evidence.root, evidence.node);
    let config = document::parse_document(NOTHING, NAME)?;
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

fn show(ui: &Ui<'_>, root: &Root, plan: &Plan, file: &str) -> Result<()> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let heading = Heading {
        config: NAME.to_owned(),
        origin: file.to_owned(),
        chosen: "given with --key; nothing else is changed".to_owned(),
        recorded: records.name().unwrap_or_else(|| "(no record)".to_owned()),
        ..Heading::of_machine(&machine::observe_machine(root)?)
    };
    let diffs = crate::cli::diffs::of_keys(root, plan);
    let text = match ui.output {
        // There is only one document per run: the result follows.
        Output::Json if plan.blockers.is_empty() => return Ok(()),
        Output::Json => report::plan::to_json(&heading, plan, &diffs, &None)?,
        Output::Text => report::plan::to_text(&heading, plan, &diffs, ui.detail(false)),
    };
    Ok(report::print(text.as_bytes())?)
}

/// Warns if sshd does not accept the key although it is in place.
fn warn_of_sshd(root: &Root, path: &str) {
    let Ok(login) = login::read_login(root) else {
        return;
    };
    let next = format!("Next: {}", mco_rescue("doctor FP-33"));
    let mut files = login.files.iter().filter(|file| file.path == path);
    if let Some(why) = files.find_map(|file| file.refused.as_ref()) {
        log::warn!("the key is in place, but sshd does not take it: {why}. {next}");
    }
    if let Some(cause) = login.kept_out.first() {
        let (place, said) = (&cause.place, &cause.said);
        log::warn!("the key is in place, but sshd keeps core out: {place}: {said}. {next}");
    }
}

fn end(ui: &Ui<'_>, key: &PublicKey, path: &str, steps: usize) -> Result<ExitCode> {
    let text = match ui.output {
        Output::Json => key::to_json(key, path, steps)?,
        Output::Text => key::to_text(key, path, steps),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// Reads the only key in a file. Messages never contain the contents of the file, as it may be a private key.
fn read(file: &str) -> Result<(String, PublicKey)> {
    let bytes = source::read_named(file)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if text.contains("PRIVATE KEY") || text.starts_with("PuTTY-User-Key-File") {
        bail!(
            "{file} holds a private key, which belongs on no other machine; nothing of it was kept. Give the public key \
             beside it, most often {file}.pub"
        );
    }
    if text.contains("BEGIN ") {
        bail!(
            "{file} is a key in another format. This prints it as sshd reads it: ssh-keygen -i -f {file}"
        );
    }
    if bytes.len() > MAX_KEY || text.contains(['\0', '\u{fffd}']) {
        bail!("{file} is not a file with one public key. Give the .pub file that ssh-keygen wrote");
    }
    let lines = text.lines().map(str::trim).enumerate();
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((number, line)) = lines.next() else {
        bail!("{file} has no key in it. Give the .pub file that ssh-keygen wrote");
    };
    let place = format!("{file}: line {}", number + 1);
    if PublicKey::parse(line).is_some_and(|key| key.has_options) {
        bail!("{place} has options before the key. Give the key alone, as ssh-keygen wrote it");
    }
    if line.contains(|c: char| c.is_control() && c != '\t') {
        bail!("{place} has control characters. Give the .pub file that ssh-keygen wrote");
    }
    let key = PublicKey::check(line).map_err(|error| anyhow!("{place} {error}"))?;
    match lines.count() {
        0 => Ok((line.to_owned(), key)),
        more => bail!(
            "{file} has {} keys. Give a file with the one to be added",
            more + 1
        ),
    }
}
