//! Network access for configs: one fetch with the proxies, time limits and authorities of a config.

use std::time::{Duration, Instant};

use super::references::{Fetch, ReferenceNetwork, WantedReference};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::net::{
    self, CertificateDer, FetchProgress, FetchRequest, FetchSettings, ProxySettings,
};
use crate::host::progress;
use crate::host::root::{Root, RootPath};

/// Time limit for all fetches of one run.
const RUN_BOUND: Duration = Duration::from_secs(600);

/// Fetches over HTTP. The system's authorities are those trusted by the root.
#[allow(
    missing_debug_implementations,
    reason = "a root and a deadline, with nothing to show"
)]
pub struct Http<'a> {
    root: &'a Root,
    system: Option<Vec<CertificateDer<'static>>>,
    deadline: Instant,
}

impl<'a> Http<'a> {
    /// Creates a fetcher whose time limit starts now.
    pub fn new(root: &'a Root) -> Self {
        Self {
            root,
            system: None,
            deadline: Instant::now() + RUN_BOUND,
        }
    }

    /// Creates a fetcher with this time limit for the whole run.
    pub fn with_limit(root: &'a Root, bound: Duration) -> Self {
        Self {
            deadline: Instant::now() + bound,
            ..Self::new(root)
        }
    }

    fn system_authorities(&mut self) -> &[CertificateDer<'static>] {
        let root = self.root;
        self.system.get_or_insert_with(|| {
            let bundle = |path| {
                root.read(&RootPath::fixed(path)).unwrap_or_else(|error| {
                    log::warn!("{error}; its authorities are not trusted");
                    None
                })
            };
            let first = paths::CA_BUNDLES.into_iter().find_map(bundle);
            first
                .map(|pem| net::system_certificates(&pem))
                .unwrap_or_default()
        })
    }

    /// Returns the settings for one fetch with a config's network settings.
    pub fn fetch_settings(&mut self, network: &ReferenceNetwork) -> Result<FetchSettings, Reason> {
        let mut certificates = self.system_authorities().to_vec();
        for bundle in &network.authorities {
            certificates.extend(net::parse_bundle(bundle).map_err(|error| {
                format!("a bundle of ignition.security.tls.certificateAuthorities cannot be used: {error}")
            })?);
        }
        Ok(FetchSettings {
            certificates,
            proxy: ProxySettings {
                http: network.proxy.http_proxy.clone(),
                https: network.proxy.https_proxy.clone(),
                none: network.proxy.no_proxy.to_vec(),
            },
            header_timeout: network.header_timeout,
            total_timeout: network.total_timeout,
            deadline: Some(self.deadline),
            ..FetchSettings::default()
        })
    }
}

impl Fetch for Http<'_> {
    fn fetch_body(
        &mut self,
        network: &ReferenceNetwork,
        wanted: WantedReference<'_>,
    ) -> Result<Vec<u8>, Reason> {
        let settings = self.fetch_settings(network)?;
        let request = FetchRequest {
            body: None,
            url: wanted.url,
            headers: wanted.headers.to_vec(),
            max_bytes: wanted.max_bytes,
            retry: true,
            awaits_name_server: true,
            verified: wanted.verified,
        };
        log::info!(
            "fetching {}",
            crate::base::secrets::redacted_url(wanted.url)
        );
        let left = self.deadline.saturating_duration_since(Instant::now());
        let _phase = progress::begin_phase(progress::fetch_work(
            &crate::base::secrets::redacted_url(wanted.url),
            left,
        ));
        let answer = net::fetch_url(&settings, &request, &mut show_progress())
            .map_err(Reason::from_error)?;
        Ok(answer.bytes)
    }
}

/// Returns what shows the progress of one fetch. On a terminal a failed attempt is a note on the line of progress; elsewhere
/// it is logged, and again only once the cause is another one.
pub fn show_progress() -> impl FnMut(FetchProgress<'_>) {
    let mut logged = String::new();
    move |progress| match progress {
        FetchProgress::Failed { attempt, cause, .. } => {
            let (brief, cause) = (cause.short_words(), cause.to_string());
            if progress::add_note(format!("attempt {attempt}: {brief}")) || cause == logged {
                return;
            }
            log::warn!("attempt {attempt}: {cause}; it is repeated");
            logged = cause;
        }
        FetchProgress::Redirected { to } => log::info!("redirected to {to}"),
        FetchProgress::Body { received, expected } => progress::reached_bytes(received, expected),
    }
}
