//! `fetch`: arguments, and the result.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use super::Output;
use crate::base::error::ExitCode;
use crate::base::reason::Reason;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{machine, open_root};
use crate::cli::args::CapsuleArgs;
use crate::cli::ui::Ui;
use crate::report;
use crate::run::fetch::{FetchOptions, fetch_configs};

/// Arguments of `fetch`.
#[derive(Debug, Default, Args)]
pub struct FetchArgs {
    /// A file, a directory, `-` or a URL [default: that server]
    ///
    /// A file, a directory that holds some, `-` for standard input, or a URL
    /// [default: /config/POOL of the Machine Config Server]
    #[arg(value_name = "SOURCE")]
    pub source: Option<String>,

    /// Take all from the medium labelled MCO-RESCUE
    ///
    /// It is mounted read-only for as long as that takes
    #[arg(long, conflicts_with = "source")]
    pub from_media: bool,

    /// The pool [default: that of the node]
    ///
    /// [default: that of the recorded config, else of the last fetch]
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,

    /// The Machine Config Server: a URL or a host
    ///
    /// A URL, or a host with or without port
    /// [default: that of the last fetch, else the API's host, port 22623]
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,

    /// File with the authority of the server's certificate
    ///
    /// PEM file with the authority that signed the server's certificate, or a kubeconfig
    /// or pointer config that holds it
    /// [default: that of the last fetch, and those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<String>,

    /// The address of a host, where DNS is broken
    ///
    /// May be given several times
    #[arg(long, value_name = "HOST:ADDR", value_parser = resolution)]
    pub resolve: Vec<(String, std::net::IpAddr)>,

    /// Keep this file too: the MachineConfiguration object named cluster, JSON or YAML, for
    /// its node disruption policies and irreconcilableValidationOverrides
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub policy: Option<String>,

    /// The SHA-256 of the document; with it, plain http is accepted
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 64), hide_short_help = true)]
    pub sha256: Option<String>,

    /// The SHA-512 of the document; with it, plain http is accepted
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 128), conflicts_with = "sha256", hide_short_help = true)]
    pub sha512: Option<String>,

    /// The capsule that SOURCE is read through.
    #[command(flatten)]
    pub capsule: CapsuleArgs,

    /// Give up after so many seconds, all attempts together
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    pub timeout: u64,
}

impl FetchArgs {
    /// Returns the options of the run.
    pub(super) fn options(&self) -> FetchOptions<'_> {
        FetchOptions {
            source: self.source.as_deref(),
            from_media: self.from_media,
            pool: self.pool.as_deref(),
            server: self.server.as_deref(),
            ca: self.ca.as_deref(),
            resolve: &self.resolve,
            capsule: self.capsule.options(),
            policy: self.policy.as_deref(),
            digest: self.digest(),
            timeout: Duration::from_secs(self.timeout),
            // A user at a terminal can configure one right away.
            awaits_name_server: !std::io::stderr().is_terminal(),
        }
    }

    /// Returns the given digest in Ignition's notation.
    fn digest(&self) -> Option<String> {
        let sha256 = self.sha256.as_ref().map(|hex| format!("sha256-{hex}"));
        sha256.or(self.sha512.as_ref().map(|hex| format!("sha512-{hex}")))
    }
}

fn resolution(text: &str) -> Result<(String, std::net::IpAddr), Reason> {
    let form = "is not of the form HOST:ADDR, such as api-int.example:10.0.0.5";
    let (host, address) = text.split_once(':').ok_or(form)?;
    let address = address.trim_matches(['[', ']']).parse();
    match address {
        Ok(address) if !host.is_empty() => Ok((host.to_owned(), address)),
        _ => Err(form.into()),
    }
}

fn digest(text: &str, length: usize) -> Result<String, Reason> {
    if text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err(format!("is not {length} hexadecimal digits").into())
    }
}

/// Runs `fetch`.
pub(super) fn run(ui: &Ui<'_>, args: &FetchArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Write)?;
    let outcome = fetch_configs(&root, ui.runner, &args.options())?;
    let known = outcome.passed_over.is_empty() && outcome.kept.iter().all(|kept| !kept.new);
    if ui.quiet && known && !outcome.kept.is_empty() {
        return Ok(ExitCode::Done);
    }
    let text = match ui.output {
        Output::Json => report::fetch::to_json(&outcome)?,
        Output::Text => report::fetch::to_text(&outcome),
    };
    report::print_report(text.as_bytes(), outcome.has_changed)?;
    if outcome.kept.is_empty() {
        bail!("no rendered config was found there; nothing was kept");
    }
    Ok(ExitCode::Done)
}
