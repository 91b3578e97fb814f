//! `fetch`: gets a rendered config from the Machine Config Server, a file or a medium into the node's cache.

use super::cluster::{HEADER_TIMEOUT, MAX_BYTES};
use crate::change::transaction::store_value;
use crate::cli::ui::Ui;
use crate::host::caller;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::Output;
use super::cluster;
use crate::base::error::ExitCode;
use crate::base::paths;
use crate::base::time::now;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::open_root;
use crate::change::session::policies::in_file;
use crate::change::source::server::{self, Server, ServerClock};
use crate::change::source::{self, ConfigMedium, Http, ReferenceNetwork, cache};
use crate::config::document::{self, MachineConfig, has_hash};
use crate::config::render;
use crate::host::net::{self, FetchAnswer, FetchCause, FetchError, FetchRequest, TlsProblem};
use crate::host::progress;
use crate::host::root::{Root, sha256};
use crate::judge::daemon::policies::{self, Policies, PolicyRequest};
use crate::node::authorities;
use crate::node::{Host, Records};
use crate::report;
use crate::report::fetch::{ClusterReport, FetchOutcome, PassedOver};
use crate::run::cache::{Fetched, keep_config};
use clap::Args;

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

    /// The SHA-256 of the document; then also http will do
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 64), hide_short_help = true)]
    pub sha256: Option<String>,

    /// The SHA-512 of the document; then also http will do
    #[arg(long, value_name = "HEX", value_parser = |text: &str| digest(text, 128), conflicts_with = "sha256", hide_short_help = true)]
    pub sha512: Option<String>,

    /// Give up after so many seconds, all attempts together
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    pub timeout: u64,
}

impl FetchArgs {
    /// Returns the given digest in Ignition's notation.
    pub(super) fn digest(&self) -> Option<String> {
        let sha256 = self.sha256.as_ref().map(|hex| format!("sha256-{hex}"));
        sha256.or(self.sha512.as_ref().map(|hex| format!("sha512-{hex}")))
    }
}

fn resolution(text: &str) -> Result<(String, std::net::IpAddr), String> {
    let form = "is not of the form HOST:ADDR, such as api-int.example:10.0.0.5";
    let (host, address) = text.split_once(':').ok_or(form)?;
    let address = address.trim_matches(['[', ']']).parse();
    match address {
        Ok(address) if !host.is_empty() => Ok((host.to_owned(), address)),
        _ => Err(form.to_owned()),
    }
}

fn digest(text: &str, length: usize) -> Result<String, String> {
    if text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err(format!("is not {length} hexadecimal digits"))
    }
}

/// The received data, and its source.
struct Got {
    bytes: Vec<u8>,
    origin: String,
    server: Option<Server>,
}

/// Runs `fetch`.
pub(super) fn run(ui: &Ui<'_>, args: &FetchArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Write)?;
    let records = Records::read(&root).context("reading the daemon's records")?;
    let mut outcome = FetchOutcome::default();
    let brought = args
        .policy
        .as_deref()
        .map(|file| keep_policies(&root, file));
    let brought = brought.transpose()?;
    if args.from_media {
        let medium = ConfigMedium::find(ui.runner)?;
        directory(&root, &records, &medium.path(), args, &mut outcome)?;
    } else if let Some(path) = args
        .source
        .as_deref()
        .filter(|source| caller::is_directory(source))
    {
        directory(&root, &records, path, args, &mut outcome)?;
    } else {
        let got = single(&root, &records, args, &mut outcome.seen)?;
        let server = got.server.clone();
        outcome.kept.push(take(&root, &records, got, args)?);
        if let Some(server) = &server {
            store_value(&root, paths::SERVER, server)?;
        }
    }
    let has_changed = brought.is_some() || !outcome.kept.is_empty();
    outcome.seen.policies = outcome.seen.policies.or(brought);
    let known = outcome.passed_over.is_empty() && outcome.kept.iter().all(|kept| !kept.new);
    if ui.quiet && known && !outcome.kept.is_empty() {
        return Ok(ExitCode::Done);
    }
    let text = match ui.output {
        Output::Json => report::fetch::to_json(&outcome)?,
        Output::Text => report::fetch::to_text(&outcome),
    };
    report::print_report(text.as_bytes(), has_changed)?;
    if outcome.kept.is_empty() {
        bail!("no rendered config was found there; nothing was kept");
    }
    Ok(ExitCode::Done)
}

/// Gets one config into the cache, and returns its name.
pub(super) fn into_cache(root: &Root, args: &FetchArgs) -> Result<String> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let got = single(root, &records, args, &mut ClusterReport::default())?;
    let server = got.server.clone();
    let kept = take(root, &records, got, args)?;
    if let Some(server) = &server {
        store_value(root, paths::SERVER, server)?;
    }
    Ok(kept.name)
}

/// Stores the policies of a file as the last known ones; a later answer of the API replaces them.
fn keep_policies(root: &Root, file: &str) -> Result<Policies> {
    let brought = in_file(file)?;
    let before = policies::read_policies(root).context("reading the disruption policies")?;
    let given = (Some(brought.policies), Some(brought.overrides));
    let policies = Policies::after(before, PolicyRequest::Given, given, now());
    store_value(root, paths::POLICIES, &policies)?;
    Ok(policies)
}

fn single(
    root: &Root,
    records: &Records,
    args: &FetchArgs,
    seen: &mut ClusterReport,
) -> Result<Got> {
    match args.source.as_deref() {
        None => from_server(root, records, args, seen),
        Some(url) if url.contains("://") => from_url(root, url, args),
        Some(name) => from_file(name),
    }
}

fn from_file(name: &str) -> Result<Got> {
    Ok(Got {
        bytes: source::read_named(name)?,
        origin: if name == "-" { "standard input" } else { name }.to_owned(),
        server: None,
    })
}

/// Fetches every document in a directory. Files that are not documents, or not for this pool, are skipped with a reason.
fn directory(
    root: &Root,
    records: &Records,
    path: &str,
    args: &FetchArgs,
    outcome: &mut FetchOutcome,
) -> Result<()> {
    for file in source::documents_in(path)? {
        let kept = from_file(&file).and_then(|got| take(root, records, got, args));
        match kept {
            Ok(kept) => outcome.kept.push(kept),
            Err(error) => outcome.passed_over.push(PassedOver {
                path: file,
                why: format!("{error:#}"),
            }),
        }
    }
    Ok(())
}

/// Checks the received data, and stores it.
fn take(root: &Root, records: &Records, got: Got, args: &FetchArgs) -> Result<Fetched> {
    verify(args, &got.bytes)?;
    let text = String::from_utf8(got.bytes).map_err(|e| {
        let said = document::not_text(e.as_bytes(), e.utf8_error());
        anyhow::anyhow!("{}: {said}", got.origin)
    })?;
    let config = document::parse_document(text.as_bytes(), &got.origin).map_err(|error| {
        anyhow::anyhow!(
            "{error}; nothing was kept. See whether it is whole, and what it comes from"
        )
    })?;
    check(&config, args, &got.origin)?;
    keep_config(root, records, &config, text, &got.origin)
}

fn from_server(
    root: &Root,
    records: &Records,
    args: &FetchArgs,
    seen: &mut ClusterReport,
) -> Result<Got> {
    let known = server::read_server(root).context("reading what is known of the server")?;
    let known = known.as_ref();
    let recorded = records.recorded().and_then(cache::pool_of);
    let pool = args
        .pool
        .clone()
        .or(recorded)
        .or(known.map(|known| known.pool.clone()));
    let Some(pool) = pool else {
        bail!("the pool of this node is not known. Name it: --pool worker");
    };
    let of_api = server::of_api(root).context("reading the API's address")?;
    let given = args.server.as_deref().map(server::to_base_url);
    let Some(base) = given.or(known.map(|known| known.url.clone())).or(of_api) else {
        bail!("no Machine Config Server is known here. Name it: --server api-int.CLUSTER.DOMAIN");
    };
    let authorities = match (given_authorities(args)?, known) {
        (Some(given), _) => given,
        (None, Some(known)) => known.authorities.clone(),
        (None, None) => String::new(),
    };
    let url = server::config_url(&base, &pool);
    let answer = get(root, &url, &authorities, args)?;
    if let Some(date) = date_of(&answer) {
        keep_clock(root, &base, date);
    }
    // The API and the log may provide facts even if this server does not.
    *seen = cluster::ask_cluster(root, args);
    let answer = answer.map_err(|error| {
        let more = explanation(&error, &pool, known, args.ca.is_some());
        anyhow::Error::new(error).context(more)
    })?;
    let server = Server {
        version: server::VERSION,
        url: base,
        pool,
        authorities,
        answered: now(),
    };
    Ok(Got {
        bytes: answer.bytes,
        origin: url,
        server: Some(server),
    })
}

/// Returns the server's time, even if its certificate is not valid by this node's clock. Without TLS, the time is not
/// authenticated, and ignored.
fn date_of(answer: &Result<FetchAnswer, FetchError>) -> Option<SystemTime> {
    match answer {
        Ok(answer) => answer.date.filter(|_| answer.url.starts_with("https:")),
        Err(error) => error.server_clock(),
    }
}

/// Stores the server's time for `doctor`. A failure does not affect the fetch.
fn keep_clock(root: &Root, url: &str, date: SystemTime) {
    let host = Host::observe(root).ok();
    let own = host.filter(|host| host.live || host.in_initramfs);
    let clock = ServerClock::new(url, date, own.map(|_| now()));
    if let Err(error) = store_value(root, paths::SERVER_CLOCK, &clock) {
        log::warn!("the server's clock is not kept: {error:#}");
    }
}

fn from_url(root: &Root, url: &str, args: &FetchArgs) -> Result<Got> {
    let authorities = given_authorities(args)?.unwrap_or_default();
    Ok(Got {
        bytes: get(root, url, &authorities, args)??.bytes,
        origin: crate::base::secrets::redacted_url(url),
        server: None,
    })
}

/// Returns the bundle that `--ca` names. It is checked here, so that an error names that file.
fn given_authorities(args: &FetchArgs) -> Result<Option<String>> {
    let Some(path) = &args.ca else {
        return Ok(None);
    };
    let pem = authorities::to_pem(&source::read_named(path)?);
    net::parse_bundle(pem.as_bytes()).with_context(|| format!("reading --ca {path}"))?;
    Ok(Some(pem))
}

/// Fetches a URL. A server without TLS is not authenticated, so its answer needs a digest.
fn get(
    root: &Root,
    url: &str,
    authorities: &str,
    args: &FetchArgs,
) -> Result<Result<FetchAnswer, FetchError>> {
    let is_plain = url
        .split(':')
        .next()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    if is_plain && args.digest().is_none() {
        bail!(
            "{} is not encrypted, so the answer is not authenticated. Use https, or give the right digest: --sha256 HEX",
            crate::base::secrets::redacted_url(url)
        );
    }
    let mut network = ReferenceNetwork::default();
    if !authorities.trim().is_empty() {
        network.authorities.push(authorities.as_bytes().into());
    }
    let mut settings = Http::new(root)
        .settings(&network)
        .map_err(anyhow::Error::msg)?;
    settings.names.given.clone_from(&args.resolve);
    settings.header_timeout = HEADER_TIMEOUT;
    settings.total_timeout = Some(Duration::from_secs(args.timeout));
    let request = FetchRequest {
        verified: args.digest().is_some(),
        // A user at a terminal can configure one right away; during a boot it comes with the network.
        awaits_name_server: !std::io::stderr().is_terminal(),
        ..FetchRequest::new(url, MAX_BYTES)
    };
    log::info!("fetching {}", crate::base::secrets::redacted_url(url));
    let within = Duration::from_secs(args.timeout);
    let _phase = progress::begin_phase(progress::fetch_work(
        &crate::base::secrets::redacted_url(url),
        within,
    ));
    let fetched = net::fetch_url(&settings, &request, &mut source::show_progress());
    Ok(fetched.map_err(|error| searched(root, error)))
}

/// Adds to the error which of the available authorities would verify the chain. They are only named, not trusted.
fn searched(root: &Root, mut error: FetchError) -> FetchError {
    if let FetchCause::Tls(TlsProblem::UnknownIssuer(Some(presented))) = &mut error.cause {
        presented.verified_by = Some(authorities::that_would_verify(root, presented));
    }
    error
}

/// Returns an explanation specific to a Machine Config Server.
fn explanation(error: &FetchError, pool: &str, known: Option<&Server>, given: bool) -> String {
    let what = format!("asking for the config of pool {pool}");
    let hint = match &error.cause {
        FetchCause::Status(status) => server::explain_status(*status, pool),
        FetchCause::TotalTimeout { last, .. } => match **last {
            FetchCause::Status(status) => server::explain_status(status, pool),
            _ => None,
        },
        FetchCause::Tls(TlsProblem::UnknownIssuer(_)) if !given && known.is_some() => Some(
            "its certificate was verified by the remembered authority before: the server has another one now, or \
             another machine answers. If the authority was replaced on purpose, give the new one with --ca FILE"
                .to_owned(),
        ),
        _ => None,
    };
    hint.map_or(what.clone(), |hint| format!("{what} ({hint})"))
}

fn verify(args: &FetchArgs, bytes: &[u8]) -> Result<()> {
    match args.digest() {
        Some(digest) if !has_hash(bytes, &digest) => bail!(
            "the received data has a different digest (SHA-256 {}) than the given one; nothing was kept. Ask for the right \
             digest, or get the document again",
            sha256(bytes)
        ),
        _ => Ok(()),
    }
}

/// Checks that the config is complete and of the right pool.
fn check(config: &MachineConfig, args: &FetchArgs, origin: &str) -> Result<()> {
    if config.bare && config.spec2.is_some() && args.source.is_none() {
        bail!(
            "{origin}: came as Ignition 2 although 3 was asked for, and without the MachineConfig. See what stands \
             before the server and drops the Accept header, or whether it is older than Ignition 3"
        );
    }
    let proven = || render::name_matches(&config.record) == Some(true);
    let why = config.why_not_rendered(false).filter(|_| !config.bare);
    if let Some(why) = why.and_then(|_| config.why_not_rendered(proven())) {
        bail!(
            "{origin}: {} is not a rendered config ({why}); nothing was kept. Merge all of its pool: mco-rescue render \
             POOL FILES... > rendered.json, and fetch that",
            config.name
        );
    }
    if config.bare || config.emptied {
        bail!(
            "{origin}: holds no whole MachineConfig. A Machine Config Server has it at /config/POOL, \
             and `oc get mc NAME -o yaml` prints it"
        );
    }
    let pool = cache::pool_of(config);
    match (&args.pool, &pool) {
        (Some(wanted), Some(found)) if wanted != found => {
            bail!(
                "{origin}: is {} of pool {found}, not of pool {wanted}; give --pool {found}, or ask another server",
                config.name
            )
        }
        _ => Ok(()),
    }
}
