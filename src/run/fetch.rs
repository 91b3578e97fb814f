//! `fetch`: gets rendered configs from the Machine Config Server, a file or a medium into the node's cache.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::cache::{Fetched, keep_config};
use super::capsule::remember_capsule;
use super::cluster::{ClusterReport, ClusterRequest, HEADER_TIMEOUT, MAX_BYTES, ask_cluster};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::session::policies::in_file;
use crate::change::source::gate::CapsuleOptions;
use crate::change::source::server::{self, Server, ServerClock};
use crate::change::source::{self, ConfigMedium, Http, ReferenceNetwork, cache};
use crate::change::transaction::store_value;
use crate::config::document::{self, MachineConfig, has_hash};
use crate::config::render;
use crate::host::net::{self, FetchAnswer, FetchCause, FetchError, FetchRequest, TlsProblem};
use crate::host::root::{Root, sha256_hex};
use crate::host::{caller, progress};
use crate::judge::daemon::policies::{self, Policies, PolicyRequest};
use crate::node::command::CommandRunner;
use crate::node::{Host, Records, authorities};

/// The options of `fetch`.
#[derive(Debug, Clone)]
pub struct FetchOptions<'a> {
    /// A file, a directory, `-` or a URL; `None` for the Machine Config Server.
    pub source: Option<&'a str>,
    /// Every config of the medium is taken.
    pub from_media: bool,
    /// The pool, if it is given.
    pub pool: Option<&'a str>,
    /// The Machine Config Server, if it is given.
    pub server: Option<&'a str>,
    /// The file with the server's authority, if it is given.
    pub ca: Option<&'a str>,
    /// The capsule that configs are read through.
    pub capsule: CapsuleOptions<'a>,
    /// The addresses of host names.
    pub resolve: &'a [(String, IpAddr)],
    /// A file with the cluster's MachineConfiguration, to be stored too.
    pub policy: Option<&'a str>,
    /// The digest of the document in Ignition's notation, if it is given.
    pub digest: Option<String>,
    /// The time limit for all attempts together.
    pub timeout: Duration,
    /// A missing name server is awaited: during a boot it comes with the network.
    pub awaits_name_server: bool,
}

/// The result of `fetch`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FetchOutcome {
    /// Configs that are in the cache now.
    pub kept: Vec<Fetched>,
    /// Files of a directory that were skipped.
    pub passed_over: Vec<PassedOver>,
    /// The state of the cluster, as far as it is known.
    #[serde(flatten)]
    pub seen: ClusterReport,
    /// Something was stored.
    #[serde(skip)]
    pub has_changed: bool,
}

/// A file that was skipped.
#[derive(Debug, Clone, Serialize)]
pub struct PassedOver {
    /// Path of the file.
    pub path: String,
    /// The reason.
    pub why: String,
}

/// The received data, and its source.
struct Got {
    bytes: Vec<u8>,
    origin: String,
    server: Option<Server>,
    /// Who signed it.
    signed: Option<CapsuleFacts>,
}

/// Gets configs into the cache, and what else is asked for.
///
/// # Errors
/// Nothing could be read or kept.
pub fn fetch_configs(
    root: &Root,
    runner: &dyn CommandRunner,
    options: &FetchOptions<'_>,
) -> Result<FetchOutcome> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let mut outcome = FetchOutcome::default();
    let brought = options.policy.map(|file| keep_policies(root, file));
    let brought = brought.transpose()?;
    if options.from_media {
        let medium = ConfigMedium::find_medium(runner)?;
        fetch_directory(root, &records, &medium.path(), options, &mut outcome)?;
    } else if let Some(path) = options.source.filter(|source| caller::is_directory(source)) {
        fetch_directory(root, &records, path, options, &mut outcome)?;
    } else {
        let kept = keep_single(root, &records, options, &mut outcome.seen)?;
        outcome.kept.push(kept);
    }
    outcome.has_changed = brought.is_some() || !outcome.kept.is_empty();
    outcome.seen.policies = outcome.seen.policies.or(brought);
    Ok(outcome)
}

/// Gets one config into the cache, and returns its name.
///
/// # Errors
/// It could not be read or kept.
pub fn into_cache(root: &Root, options: &FetchOptions<'_>) -> Result<String> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let kept = keep_single(root, &records, options, &mut ClusterReport::default())?;
    Ok(kept.name)
}

/// Gets one config into the cache, and remembers the server that it came from.
fn keep_single(
    root: &Root,
    records: &Records,
    options: &FetchOptions<'_>,
    seen: &mut ClusterReport,
) -> Result<Fetched> {
    let got = fetch_single(root, records, options, seen)?;
    let server = got.server.clone();
    let kept = take_data(root, records, got, options)?;
    if let Some(server) = &server {
        store_value(root, paths::SERVER, server)?;
    }
    Ok(kept)
}

/// Stores the policies of a file as the last known ones; a later answer of the API replaces them.
fn keep_policies(root: &Root, file: &str) -> Result<Policies> {
    let brought = in_file(file)?;
    let before = policies::read_policies(root).context("reading the disruption policies")?;
    let given = (Some(brought.policies), Some(brought.overrides));
    let policies = Policies::after_request(before, PolicyRequest::Given, given, current_time());
    store_value(root, paths::POLICIES, &policies)?;
    Ok(policies)
}

fn fetch_single(
    root: &Root,
    records: &Records,
    options: &FetchOptions<'_>,
    seen: &mut ClusterReport,
) -> Result<Got> {
    match options.source {
        None => from_server(root, records, options, seen),
        Some(url) if url.contains("://") => from_url(root, url, options),
        Some(name) => from_file(root, name, options),
    }
}

fn from_file(root: &Root, name: &str, options: &FetchOptions<'_>) -> Result<Got> {
    let read = source::read_config(root, name, &options.capsule)?;
    Ok(Got {
        bytes: read.bytes,
        signed: read.signed,
        origin: if name == "-" { "standard input" } else { name }.to_owned(),
        server: None,
    })
}

/// Fetches every document in a directory. Files that are not documents, or not for this pool, are skipped with a reason.
fn fetch_directory(
    root: &Root,
    records: &Records,
    path: &str,
    options: &FetchOptions<'_>,
    outcome: &mut FetchOutcome,
) -> Result<()> {
    for file in source::documents_in(path)? {
        let kept =
            from_file(root, &file, options).and_then(|got| take_data(root, records, got, options));
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
fn take_data(
    root: &Root,
    records: &Records,
    got: Got,
    options: &FetchOptions<'_>,
) -> Result<Fetched> {
    verify_digest(options, &got.bytes)?;
    let text = String::from_utf8(got.bytes).map_err(|e| {
        let said = document::not_text(e.as_bytes(), e.utf8_error());
        anyhow::anyhow!("{}: {said}", got.origin)
    })?;
    let config = document::parse_document(text.as_bytes(), &got.origin).map_err(|error| {
        anyhow::anyhow!(
            "{error}; nothing was kept. Check whether it is complete, and where it comes from"
        )
    })?;
    check_config(&config, options, &got.origin)?;
    if let Some(signed) = got.signed {
        let taken = TakenFromCapsule {
            what: config.name.clone(),
            digest: Some(config.digest.clone()),
            signed,
        };
        // A number without its config loses nothing: the same capsule is read again.
        remember_capsule(root, &taken)?;
    }
    keep_config(root, records, &config, text, &got.origin)
}

/// Returns the error where pool or server are not known, with a command that names all that is missing.
fn ask_for_server(has_pool: bool, has_server: bool) -> String {
    const POOL: &str = " --pool POOL";
    const SERVER: &str = " --server api-int.CLUSTER.DOMAIN";
    let (missing, options) = match (has_pool, has_server) {
        (false, true) => ("the pool of this node is not known", POOL.to_owned()),
        (true, _) => ("no Machine Config Server is known here", SERVER.to_owned()),
        (false, false) => (
            "neither the pool of this node nor a Machine Config Server is known here",
            format!("{POOL}{SERVER}"),
        ),
    };
    format!(
        "{missing}. Next: {}",
        mco_rescue(&format!("fetch{options}"))
    )
}

fn from_server(
    root: &Root,
    records: &Records,
    options: &FetchOptions<'_>,
    seen: &mut ClusterReport,
) -> Result<Got> {
    let known = server::read_server(root).context("reading what is known of the server")?;
    let known = known.as_ref();
    let recorded = records.recorded_config().and_then(cache::pool_of);
    let pool = options
        .pool
        .map(str::to_owned)
        .or(recorded)
        .or(known.map(|known| known.pool.clone()));
    let of_api = server::of_api(root).context("reading the API's address")?;
    let given = options.server.map(server::to_base_url);
    let base = given.or(known.map(|known| known.url.clone())).or(of_api);
    let (pool, base) = match (pool, base) {
        (Some(pool), Some(base)) => (pool, base),
        (pool, base) => bail!("{}", ask_for_server(pool.is_some(), base.is_some())),
    };
    let authorities = match (given_authorities(options)?, known) {
        (Some(given), _) => given,
        (None, Some(known)) => known.authorities.clone(),
        (None, None) => String::new(),
    };
    let url = server::config_url(&base, &pool);
    let answer = get_url(root, &url, &authorities, options)?;
    if let Some(date) = date_of(&answer) {
        keep_clock(root, &base, date);
    }
    // The API and the log may provide facts even if this server does not.
    *seen = ask_cluster(
        root,
        ClusterRequest {
            resolve: options.resolve,
            within: options.timeout,
        },
    );
    let answer = answer.map_err(|error| {
        let more = explain_error(&error, &pool, known, options.ca.is_some());
        anyhow::Error::new(error).context(more)
    })?;
    let server = Server {
        version: server::VERSION,
        url: base,
        pool,
        authorities,
        answered: current_time(),
    };
    Ok(Got {
        bytes: answer.bytes,
        origin: url,
        server: Some(server),
        signed: None,
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
    // Without the host, it is not known if the time of this machine is that of the node.
    let host = Host::observe(root).inspect_err(|error| log::warn!("{error}"));
    let own = host.is_ok_and(|host| host.live || host.in_initramfs);
    let clock = ServerClock::new(url, date, own.then(current_time));
    if let Err(error) = store_value(root, paths::SERVER_CLOCK, &clock) {
        log::warn!("the server's clock is not kept: {error:#}");
    }
}

fn from_url(root: &Root, url: &str, options: &FetchOptions<'_>) -> Result<Got> {
    let authorities = given_authorities(options)?.unwrap_or_default();
    Ok(Got {
        bytes: get_url(root, url, &authorities, options)??.bytes,
        origin: crate::base::secrets::redacted_url(url),
        server: None,
        signed: None,
    })
}

/// Returns the bundle that `--ca` names. It is checked here, so that an error names that file.
fn given_authorities(options: &FetchOptions<'_>) -> Result<Option<String>> {
    let Some(path) = options.ca else {
        return Ok(None);
    };
    let pem = authorities::to_pem(&source::read_named(path)?);
    net::parse_bundle(pem.as_bytes()).with_context(|| format!("reading --ca {path}"))?;
    Ok(Some(pem))
}

/// Fetches a URL. A server without TLS is not authenticated, so its answer needs a digest.
fn get_url(
    root: &Root,
    url: &str,
    authorities: &str,
    options: &FetchOptions<'_>,
) -> Result<Result<FetchAnswer, FetchError>> {
    let is_plain = url
        .split(':')
        .next()
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    if is_plain && options.digest.is_none() {
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
        .fetch_settings(&network)
        .map_err(anyhow::Error::msg)?;
    settings.names.given = options.resolve.to_vec();
    settings.header_timeout = HEADER_TIMEOUT;
    settings.total_timeout = Some(options.timeout);
    let request = FetchRequest {
        verified: options.digest.is_some(),
        awaits_name_server: options.awaits_name_server,
        ..FetchRequest::new(url, MAX_BYTES)
    };
    log::info!("fetching {}", crate::base::secrets::redacted_url(url));
    let within = options.timeout;
    let _phase = progress::begin_phase(progress::fetch_work(
        &crate::base::secrets::redacted_url(url),
        within,
    ));
    let fetched = net::fetch_url(&settings, &request, &mut source::show_progress());
    Ok(fetched.map_err(|error| with_verifier(root, error)))
}

/// Adds to the error which of the available authorities would verify the chain. They are only named, not trusted.
fn with_verifier(root: &Root, mut error: FetchError) -> FetchError {
    if let FetchCause::Tls(TlsProblem::UnknownIssuer(Some(presented))) = &mut error.cause {
        presented.verified_by = Some(authorities::that_would_verify(root, presented));
    }
    error
}

/// Returns an explanation specific to a Machine Config Server.
fn explain_error(error: &FetchError, pool: &str, known: Option<&Server>, given: bool) -> String {
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

fn verify_digest(options: &FetchOptions<'_>, bytes: &[u8]) -> Result<()> {
    match options.digest.as_ref() {
        Some(digest) if !has_hash(bytes, digest) => bail!(
            "the received data has a different digest (SHA-256 {}) than the given one; nothing was kept. Ask for the right \
             digest, or get the document again",
            sha256_hex(bytes)
        ),
        _ => Ok(()),
    }
}

/// Checks that the config is complete and of the right pool.
fn check_config(config: &MachineConfig, options: &FetchOptions<'_>, origin: &str) -> Result<()> {
    if config.bare && config.spec2.is_some() && options.source.is_none() {
        bail!(
            "{origin}: came as Ignition 2 although 3 was asked for, and without the MachineConfig. Check what is \
             in front of the server and drops the Accept header, or whether it is older than Ignition 3"
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
            "{origin}: is not a complete MachineConfig. A Machine Config Server has it at /config/POOL, \
             and `oc get mc NAME -o yaml` prints it"
        );
    }
    let pool = cache::pool_of(config);
    match (options.pool, pool.as_deref()) {
        (Some(wanted), Some(found)) if wanted != found => {
            bail!(
                "{origin}: is {} of pool {found}, not of pool {wanted}; give --pool {found}, or ask another server",
                config.name
            )
        }
        _ => Ok(()),
    }
}
