//! Fetches one URL, with limits on time and size (docs/develop/ignition.md: Fetching). The only module that uses the network.
//!
//! Like Ignition: GET; its default headers with our own agent, replaced by the caller's of the same name; 200 and 204 are
//! success; 5xx and transport errors are retried after 0.2, 0.4, 0.8, 1.6, 3.2 and then 5 seconds; a redirect drops all headers
//! of the caller; proxies follow Go's rules.
//!
//! Deliberately unlike Ignition:
//!
//! - Without a limit, the attempts end after [`DEFAULT_BOUND`]; Ignition goes on forever.
//! - A redirected request keeps the default `Accept`, so that a redirected Machine Config Server still negotiates the version.
//!   A login in the URL is not passed on.
//! - At most [`MAX_REDIRECTS`] redirects, no loops, and from https to http only if the bytes are going to be verified by a hash.
//! - An unknown issuer, a wrong name and an unreadable or invalid certificate are permanent and reported at once
//!   (`FetchCause::may_heal`). Other TLS problems, such as a certificate outside its validity, are retried.
//! - A truncated body is fetched again; none of it was used.
//! - A body must not be larger than the caller allows.
//!
//! Names are resolved here ([`NameSources`]), never by the C library; there are no threads and no runtime.

mod anchors;
mod attempts;
mod chain;
mod connect;
mod dns;
mod error;
mod http;
mod marked_ca;
mod names;
mod proxy;
mod reach;
mod tls;
mod url;

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

pub use chain::{Presented, read_addresses, read_certificate};
pub use dns::ServerAnswer;
pub use error::{FetchCause, FetchError, NameAnswer, TlsProblem};
pub use names::NameSources;
pub use proxy::ProxySettings;
pub use reach::{Knock, read_greeting};
pub use rustls::pki_types::CertificateDer;
pub use tls::{BundleError, ClientIdentity, key_matches, parse_bundle, system_certificates};
pub use url::find_host;

use crate::base::secrets::redacted_url;

use attempts::FetchSession;

/// The `User-Agent` header.
pub const USER_AGENT: &str = concat!("mco-rescue/", env!("CARGO_PKG_VERSION"));
/// The `Accept` header: without it a Machine Config Server answers with spec 2.2.
pub const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1";
/// Time limit of one fetch if the caller sets none.
pub const DEFAULT_BOUND: Duration = Duration::from_secs(300);
/// Upper limit of redirects.
pub const MAX_REDIRECTS: usize = 10;
/// The settings of every fetch of a run.
#[derive(Clone)]
#[allow(
    missing_debug_implementations,
    reason = "a private key must not get into a message"
)]
pub struct FetchSettings {
    /// The trusted authorities; without any, https fails for every server.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The client certificate, for servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// Proxies.
    pub proxy: ProxySettings,
    /// Time from the request to the end of the answer's head, per attempt (`httpResponseHeaders`); zero means that only the
    /// whole fetch is limited.
    pub header_timeout: Duration,
    /// Time for connecting, for a proxy's tunnel and for the TLS handshake, each and per attempt; zero as above.
    pub connect_timeout: Duration,
    /// Time for all attempts of one fetch, including the body (`httpTotal`, where zero is `None` here).
    pub total_timeout: Option<Duration>,
    /// Deadline of the whole run.
    pub deadline: Option<Instant>,
    /// The resolver of names; `--resolve` fills its `given`.
    pub names: NameSources,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            identity: None,
            proxy: ProxySettings::default(),
            header_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            total_timeout: None,
            deadline: None,
            names: NameSources::default(),
        }
    }
}

/// One thing to fetch.
#[derive(Clone)]
pub struct FetchRequest<'a> {
    /// An absolute `http` or `https` URL.
    pub url: &'a str,
    /// Headers; of several with the same name, the last one wins.
    pub headers: Vec<(String, String)>,
    /// Sent unchanged, with POST; without a body the method is GET.
    pub body: Option<&'a [u8]>,
    /// Maximum size of the answer's body in bytes; a larger one is refused without reading all of it.
    pub max_bytes: u64,
    /// True to retry transient failures.
    pub retry: bool,
    /// True to retry to the end even if no name server is configured or all call the name unknown, as the network may still be
    /// coming up.
    pub awaits_name_server: bool,
    /// True if the caller verifies the bytes by a hash, so that a redirect from https to http is harmless.
    pub verified: bool,
}

/// Prints no token.
impl fmt::Debug for FetchRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Request({}, {} headers)",
            redacted_url(self.url),
            self.headers.len()
        )
    }
}

impl<'a> FetchRequest<'a> {
    /// Creates a request without headers that is retried and not verified.
    pub fn new(url: &'a str, max_bytes: u64) -> Self {
        Self {
            url,
            headers: Vec::new(),
            body: None,
            max_bytes,
            retry: true,
            awaits_name_server: true,
            verified: false,
        }
    }
}

/// The answer of a server.
#[derive(Clone)]
pub struct FetchAnswer {
    /// The body; empty with status 204.
    pub bytes: Vec<u8>,
    /// 200 or 204.
    pub status: u16,
    /// The server's clock (`Date`).
    pub date: Option<SystemTime>,
    /// The URL after redirects, without user, password and query.
    pub url: String,
}

/// Prints no contents: they may be a secret.
impl fmt::Debug for FetchAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Answer({} from {}, {} bytes)",
            self.status,
            self.url,
            self.bytes.len()
        )
    }
}

/// An event during a fetch.
#[derive(Debug)]
pub enum FetchProgress<'a> {
    /// An attempt failed; the next begins after the pause.
    Failed {
        /// Counted from 1.
        attempt: u32,
        /// The cause of the failure.
        cause: &'a FetchCause,
    },
    /// The server redirects.
    Redirected {
        /// The new URL, without user, password and query.
        to: &'a str,
    },
    /// A part of the body has arrived.
    Body {
        /// Bytes so far.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
}

/// Fetches a URL. Returns the answer only once it is complete.
pub fn fetch_url(
    settings: &FetchSettings,
    request: &FetchRequest<'_>,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<FetchAnswer, FetchError> {
    let started = Instant::now();
    let mut attempts = 0;
    FetchSession::new(settings, request, started)
        .and_then(|session| session.run_attempts(request, progress, &mut attempts))
        .map_err(|failure| FetchError {
            url: redacted_url(request.url).into(),
            redirected: failure.redirected_url(),
            cause: failure.cause,
            attempts,
            spent: started.elapsed(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_secret() {
        let mut request = FetchRequest::new("https://me:secret@host/?secret", 1);
        request
            .headers
            .push(("Authorization".into(), "secret".into()));
        assert!(!format!("{request:?}").contains("secret"));
    }
}
