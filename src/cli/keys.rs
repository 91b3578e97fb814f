//! `apply --key`: adds an SSH key for `core`.

use anyhow::{Context, Result, anyhow, bail};

use super::{Output, diffs};
use crate::base::error::ExitCode;
use crate::base::paths;
use crate::base::ssh_key::PublicKey;
use crate::change::plan::Plan;
use crate::change::session::{machine, open_root};
use crate::change::source;
use crate::cli::apply::ApplyArgs;
use crate::cli::ui::Ui;
use crate::host::root::Root;
use crate::node::Records;
use crate::report::plan::{Heading, refuse_with};
use crate::report::{self, key};
use crate::run::ending::Ending;
use crate::run::front::Front;
use crate::run::key::{KEY_RUN, KeyRun, config_of_missing_core, warn_of_sshd};
use crate::run::opening::{Needs, Opening};

/// Maximum size of a file with one key.
const MAX_KEY: usize = 64 << 10;

/// Runs `apply --key`, which changes nothing else on the node.
pub(super) fn apply(ui: &Ui<'_>, args: &ApplyArgs, file: &str) -> Result<ExitCode> {
    let (line, key) = read(file)?;
    let root = open_root(&ui.root)?;
    let guards = &args.plan.guards;
    let change =
        Opening::check_needs(ui, root, &Needs::KEY.if_meant(guards.not_a_node))?.begin_change()?;
    if let Some(given) = config_of_missing_core(&change.root, &line, file)? {
        let root = change.root.open_again()?;
        let code = super::apply::carry_out(ui, args, change, Some(given))?;
        warn_of_sshd(&root, &format!("/{}", paths::CORE_KEYS));
        return Ok(code);
    }
    let run = KeyRun::plan_addition(&change, guards.allowed(), &line, file)?;
    let at = run.path.to_string();
    if run.plan.is_empty() && run.plan.blockers.is_empty() {
        return end(ui, &key, &at, 0);
    }
    let shown = show(ui, &change.root, &run.plan, file)?;
    if !run.plan.blockers.is_empty() {
        let refusal = "refusing to add the key; nothing was changed";
        bail!("{}", refuse_with(refusal, &run.plan.blockers, &shown));
    }
    ui.confirm("Add this key?")?;
    run.carry_out(&change)?;
    let code = end(ui, &key, &at, run.plan.steps.len())?;
    change.finish_change(Ending::from_code(code))
}

/// Shows the plan. Returns what was shown.
fn show(ui: &Ui<'_>, root: &Root, plan: &Plan, file: &str) -> Result<String> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let heading = Heading {
        config: KEY_RUN.to_owned(),
        origin: file.to_owned(),
        chosen: "given with --key; nothing else is changed".to_owned(),
        recorded: records.name().unwrap_or_else(|| "(no record)".to_owned()),
        ..Heading::of_machine(&machine::observe_machine(root)?)
    };
    let diffs = diffs::of_keys(root, plan);
    let text = match ui.output {
        // There is only one document per run: the result follows.
        Output::Json if plan.blockers.is_empty() => return Ok(String::new()),
        Output::Json => report::plan::to_json(&heading, plan, &diffs, &None)?,
        Output::Text => report::plan::to_text(&heading, plan, &diffs, ui.detail(false)),
    };
    report::print(text.as_bytes())?;
    Ok(text)
}

fn end(ui: &Ui<'_>, key: &PublicKey, path: &str, steps: usize) -> Result<ExitCode> {
    ui.print_result(
        || key::to_json(key, path, steps),
        || key::to_text(key, path, steps),
    )?;
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
