//! `doctor`: finds out what is wrong with this node, worst first.

mod bundle;
mod fix;
mod recipients;
mod until;

use crate::cli::ui::Ui;
use crate::diagnose::doctor::gather;
use std::path::Path;

use anyhow::{Result, bail};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::text::make_inline;
use crate::change::session::access;
use crate::change::session::{machine, open_root, with_disk};
use crate::cli::args::DaemonArgs;
use crate::cli::doctor::fix::FixArgs;
use crate::diagnose::doctor::checks::CHECKS;
use crate::diagnose::doctor::gather::LookOptions;
use crate::diagnose::doctor::gather::since::since_good;
use crate::diagnose::doctor::{self, CheckSeverity, Diagnosis, DoctorCheck};
use crate::formats::age::Recipient;
use crate::host::root::Root;
use crate::node::engine::{Engine, installed_engine};
use crate::report;
use crate::report::doctor::Style;
use crate::run::events;
use crate::run::events::NodeEvent;
use clap::Args;
use std::path::PathBuf;

/// What to look for.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Explain this check, such as FP-03, instead of looking at the node
    #[arg(value_name = "ID")]
    pub id: Option<String>,

    /// List all checks with their titles
    #[arg(long, conflicts_with_all = ["id", "bundle", "deep", "until", "fix"])]
    pub list: bool,

    /// Write an archive for support, without secrets
    ///
    /// The checked evidence goes into a .tar.gz, and its parts are listed: no content of any file
    /// that a config brings, only digests. FILE must not exist yet
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    pub bundle: Option<PathBuf>,

    /// Encrypt the bundle to this public key: ssh-ed25519, ssh-rsa or age1..., or a file
    /// with such keys, one a line; may be given several times. `age -d -i KEYFILE FILE`
    /// opens it with the secret key
    #[arg(
        long,
        value_name = "KEY",
        requires = "bundle",
        conflicts_with = "id",
        hide_short_help = true
    )]
    pub recipient: Vec<String>,

    /// Also run the slow checks; this may take minutes
    ///
    /// They hash objects and whole databases
    #[arg(long, conflicts_with = "id")]
    pub deep: bool,

    /// Show whether a node that is off until DATE comes back
    ///
    /// Instead of checks: suppose that the node is off from now until DATE, such as
    /// 2026-01-31 or 2026-01-31T12:00:00Z, and show if it comes back by itself, and
    /// which certificate stops it on which day
    #[arg(long, value_name = "DATE", value_parser = crate::base::time::parse_day_or_time,
          conflicts_with_all = ["id", "bundle", "deep", "fix"])]
    pub until: Option<u64>,

    /// The cure of a finding.
    #[command(flatten)]
    pub cure: FixArgs,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

impl DoctorArgs {
    /// Returns the options for gathering evidence.
    pub(in crate::cli) fn gather_options(&self) -> LookOptions<'_> {
        LookOptions {
            deep: self.deep,
            daemon: self.daemon.given(),
        }
    }
}

/// Runs `doctor`.
pub(super) fn run(ui: &Ui<'_>, args: &DoctorArgs) -> Result<ExitCode> {
    if args.list {
        return list(ui);
    }
    if let Some(id) = &args.id {
        return explain(ui, id);
    }
    if let Some(id) = &args.cure.fix {
        return fix::run(ui, args, id);
    }
    let recipients = recipients::read(&args.recipient)?;
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    machine::expect_system(&root)?;
    let again = root.open_again();
    let evidence = gather::gather_all(root, ui.runner, &ui.root, args.gather_options());
    if let Ok(root) = &again {
        machine::warn_without_traces(root);
    }
    if let Some(until) = args.until {
        return until::run(ui, &evidence, until);
    }
    let mut diagnosis = doctor::run_checks(CHECKS, &evidence);
    if let Some(since) = again.ok().and_then(|root| since_good(&root, ui.runner)) {
        diagnosis.put_since(since);
    }
    if let Ok(root) = Root::open(&ui.root) {
        tell_journal(&root, &diagnosis);
    }
    if let Some(path) = &args.bundle {
        return bundled(ui, args, (path, &recipients), &evidence.root, &diagnosis);
    }
    let text = match ui.output {
        Output::Json => report::doctor::to_json(&evidence.root, &diagnosis)?,
        Output::Text => {
            report::doctor::to_text(&evidence.root, &diagnosis, style(), ui.verbose > 0)
        }
    };
    if !ui.quiet || ui.output == Output::Json {
        report::print(text.as_bytes())?;
    }
    // Without a finding, the report's last lines say it.
    if is_denied(&diagnosis) && !diagnosis.findings.is_empty() {
        log::warn!("some files can be read by root alone, as listed. Run it with sudo");
    }
    Ok(code(&diagnosis))
}

/// Sends the checks with critical findings to the journal.
fn tell_journal(root: &Root, diagnosis: &Diagnosis) {
    let findings = diagnosis.findings.iter();
    let critical = findings.filter(|one| one.severity == CheckSeverity::Critical);
    let mut checks: Vec<&str> = critical.map(|one| one.id).collect();
    checks.dedup();
    if !checks.is_empty() {
        events::send_event(root, &NodeEvent::Critical(&checks), "");
    }
}

/// Returns the exit code. Unreadable evidence counts as an error if nothing worse was found.
fn code(diagnosis: &Diagnosis) -> ExitCode {
    match diagnosis.worst_severity() {
        Some(CheckSeverity::Critical) => ExitCode::Critical,
        Some(CheckSeverity::Warning) => ExitCode::Drift,
        Some(CheckSeverity::Notice) | None if is_denied(diagnosis) => ExitCode::Error,
        Some(CheckSeverity::Notice) | None => ExitCode::Done,
    }
}

/// Returns true if a check could not read something that root can read.
fn is_denied(diagnosis: &Diagnosis) -> bool {
    let mut unseen = diagnosis.checks.iter().flat_map(|check| &check.unseen);
    unseen.any(|words| access::is_denied(words))
}

/// Writes the findings into a bundle, and prints its list of contents.
fn bundled(
    ui: &Ui<'_>,
    args: &DoctorArgs,
    (path, recipients): (&Path, &[Recipient]),
    shown: &str,
    diagnosis: &Diagnosis,
) -> Result<ExitCode> {
    let plain = Style {
        ascii: true,
        colour: false,
    };
    let both = [
        report::doctor::to_text(shown, diagnosis, plain, true),
        report::doctor::to_json(shown, diagnosis)?,
    ];
    let root = open_root(&ui.root)?;
    let list = bundle::write(
        &root,
        ui.runner,
        args.daemon.given(),
        path,
        recipients,
        both,
    )?;
    let written = format!("{list}\n{}", written_to(path, recipients));
    report::print_result(written.as_bytes());
    Ok(code(diagnosis))
}

fn written_to(path: &Path, recipients: &[Recipient]) -> String {
    let path = path.display();
    if recipients.is_empty() {
        return format!("Written to {path}, readable by its owner only.\n");
    }
    let keys = recipients.iter();
    let keys: String = keys
        .map(|key| format!("  {}\n", make_inline(key.shown())))
        .collect();
    format!(
        "Written to {path}, encrypted to:\n{keys}Open it with: age -d -i KEYFILE {path} | tar xz\n"
    )
}

/// Lists all checks, in terms of the engine of this node.
fn list(ui: &Ui<'_>) -> Result<ExitCode> {
    let engine = engine_of(ui);
    ui.print(
        || report::doctor::list_to_json(CHECKS, engine),
        || report::doctor::list_to_text(CHECKS, engine, style()),
    )?;
    Ok(ExitCode::Done)
}

/// Finds a check by its id.
///
/// # Errors
/// No check has this id.
fn find_check(id: &str) -> Result<&'static DoctorCheck> {
    let alias = doctor::alias_of(id);
    let Some(check) = doctor::find_check(CHECKS, alias.map_or(id, |alias| alias.of)) else {
        bail!(
            "there is no check {id:?}. Next: {} # lists all of them",
            mco_rescue("doctor --list")
        );
    };
    Ok(check)
}

/// Returns the engine of this node; rpm-ostree if it is unknown.
fn engine_of(ui: &Ui<'_>) -> Engine {
    let engine = Root::open(&ui.root).and_then(|root| installed_engine(&root));
    engine.unwrap_or_else(|error| {
        log::info!("{error}");
        Engine::RpmOstree
    })
}

/// Explains one check, which depends on this node only by its engine.
fn explain(ui: &Ui<'_>, id: &str) -> Result<ExitCode> {
    let alias = doctor::alias_of(id);
    let engine = engine_of(ui);
    let check = find_check(id)?;
    let text = match ui.output {
        Output::Json => report::doctor::json_of_check(check, engine)?,
        Output::Text => {
            let why = alias.map(|alias| report::doctor::of_alias(alias.why, style()));
            why.unwrap_or_default() + &report::doctor::of_check(check, engine, style())
        }
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns what the terminal can display, according to its environment.
fn style() -> Style {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let terminal = variable("TERM");
    let simple = |name: &str| name == "dumb" || name.starts_with("vt");
    let dumb = terminal.as_deref().is_some_and(simple);
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let unicode = locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.ends_with("utf-8") || locale.ends_with("utf8")
    });
    Style {
        ascii: dumb || !unicode,
        colour: report::colour::is_coloured(),
    }
}
