//! Errors of a fetch: classes of causes, each shown as one line that ends with the next step.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use crate::base::reason::Reason;

use super::chain::Presented;
use super::dns::ServerAnswer;

/// A failed fetch. Its text is one line: URL, cause, attempts, next step.
#[derive(Debug, thiserror::Error)]
#[error("fetching {url}{}: {cause}{}; {}", self.redirect_text(), self.effort_text(), self.cause.next_step())]
pub struct FetchError {
    /// The requested URL, without user, password and query.
    pub url: Box<str>,
    /// The URL that failed, if redirects led to another one.
    pub redirected: Option<Box<str>>,
    /// The last cause.
    pub cause: FetchCause,
    /// Number of attempts; 0 if the request could not be built.
    pub attempts: u32,
    /// Time that the attempts took.
    pub spent: Duration,
}

impl FetchError {
    /// Returns the server's clock, which is requested if a certificate is expired or not yet valid.
    pub fn server_clock(&self) -> Option<SystemTime> {
        let cause = match &self.cause {
            FetchCause::TotalTimeout { last, .. } => last,
            cause => cause,
        };
        match cause {
            FetchCause::Tls(TlsProblem::Expired { server, .. })
            | FetchCause::Tls(TlsProblem::NotYetValid { server, .. }) => *server,
            _ => None,
        }
    }

    fn redirect_text(&self) -> String {
        match &self.redirected {
            Some(url) => format!(" (redirected to {url})"),
            None => String::new(),
        }
    }

    fn effort_text(&self) -> String {
        let seconds = self.spent.as_secs_f64();
        match self.attempts {
            0 => String::new(),
            1 => format!(" (1 attempt, {seconds:.1} s)"),
            many => format!(" ({many} attempts in {seconds:.1} s)"),
        }
    }
}

/// The cause of a failed fetch. No variant contains a password, a header or a query string.
#[derive(Debug, thiserror::Error)]
pub enum FetchCause {
    /// Not a URL that can be fetched.
    #[error("the URL cannot be used: {0}")]
    BadUrl(String),
    /// A header that HTTP does not allow.
    #[error("the header {0:?} has a name or a value that HTTP does not allow")]
    BadHeader(String),
    /// The name has no address.
    #[error("{name} could not be resolved: {}", answers_text(answers))]
    NotResolved {
        /// The host name.
        name: String,
        /// The answer of each name server; empty if none is configured.
        answers: Vec<NameAnswer>,
    },
    /// The network has no route to it.
    #[error("connecting to {address}: {reason}")]
    NoRoute {
        /// Address and port.
        address: SocketAddr,
        /// The kernel's error.
        reason: Reason,
    },
    /// The port is closed, or a firewall rejects the connection.
    #[error("connecting to {0}: connection refused")]
    Refused(SocketAddr),
    /// No answer to the connection.
    #[error("connecting to {address}: no answer within {}", seconds_text(waited))]
    ConnectTimeout {
        /// Address and port.
        address: SocketAddr,
        /// Time that was waited.
        waited: Duration,
    },
    /// Connected, but no answer to the request.
    #[error(
        "the server accepted the connection, but sent no answer within {}",
        seconds_text(waited)
    )]
    HeaderTimeout {
        /// Time that was waited.
        waited: Duration,
    },
    /// The time for all attempts is up.
    #[error("the time of {} is over, and {last}", seconds_text(allowed))]
    TotalTimeout {
        /// The time that was allowed.
        allowed: Duration,
        /// The cause of the last failed attempt.
        last: Box<FetchCause>,
    },
    /// TLS failed, or the certificate was refused.
    #[error(transparent)]
    Tls(#[from] TlsProblem),
    /// The connection ended before the answer began.
    #[error("the server closed the connection before it answered")]
    Closed,
    /// Reading or writing failed in some other way.
    #[error("talking to the server: {0}")]
    Broken(Reason),
    /// The answer is not HTTP.
    #[error("the server's answer is not HTTP: {0}")]
    NotHttp(String),
    /// A status that is not a success.
    #[error("the server answered {} {}", .0, status_meaning(*.0))]
    Status(u16),
    /// The body ended early, or stalled.
    #[error("the body is cut short: {}", portion_text(*received, *expected))]
    Truncated {
        /// Bytes that came.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
    /// The body is larger than allowed.
    #[error("the body {}larger than the {limit} bytes that are allowed", size_text(*announced))]
    TooLarge {
        /// Upper limit in bytes.
        limit: u64,
        /// `Content-Length`, if that was enough to refuse it.
        announced: Option<u64>,
    },
    /// More redirects than [`super::MAX_REDIRECTS`].
    #[error("the server redirected more than {} times", super::MAX_REDIRECTS)]
    TooManyRedirects,
    /// A redirect to a place already visited.
    #[error("the server redirects in a circle")]
    RedirectLoop,
    /// A redirect from https to http, for content without a hash.
    #[error("the server redirects from https to plain http, which nothing protects")]
    Downgrade,
    /// A redirect without a usable target.
    #[error("the server redirects to nowhere (no usable Location)")]
    BadRedirect,
    /// The connection to the proxy, or through it.
    #[error("by way of the proxy {proxy}: {cause}")]
    Proxy {
        /// Its URL, without user and password.
        proxy: String,
        /// The cause; a status is the proxy's answer to CONNECT.
        cause: Box<FetchCause>,
    },
}

/// A problem with the server's certificate or with TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    /// It is not signed by a trusted authority.
    #[error(
        "the server's certificate is signed by no authority that is trusted here{}",
        chain_text(_0.as_deref())
    )]
    UnknownIssuer(Option<Box<Presented>>),
    /// Its validity has ended.
    #[error("the server's certificate expired on {}, {}", date_text(*not_after), clocks_text(*clock, *server))]
    Expired {
        /// The end of its validity.
        not_after: SystemTime,
        /// This node's clock.
        clock: SystemTime,
        /// The server's clock, if it answered.
        server: Option<SystemTime>,
    },
    /// Before its first day.
    #[error("the server's certificate is valid only from {}, {}", date_text(*not_before), clocks_text(*clock, *server))]
    NotYetValid {
        /// The begin of its validity.
        not_before: SystemTime,
        /// This node's clock.
        clock: SystemTime,
        /// The server's clock, if it answered.
        server: Option<SystemTime>,
    },
    /// It is for another name.
    #[error(
        "the server's certificate is not for {wanted}, but for {}",
        names_text(names)
    )]
    WrongName {
        /// The host of the URL.
        wanted: String,
        /// The names in the certificate.
        names: Vec<String>,
    },
    /// Unusable for another reason, in the words of the TLS library.
    #[error("the server's certificate cannot be used: {0}")]
    BadCertificate(String),
    /// The handshake took too long.
    #[error("the TLS handshake did not end within {}", seconds_text(.0))]
    Timeout(Duration),
    /// The server does not speak TLS.
    #[error("the server does not speak TLS on this port")]
    NotTls,
    /// Anything else, in the words of the TLS library.
    #[error("TLS: {0}")]
    Other(String),
}

impl FetchCause {
    /// Returns true for a cause that may resolve itself over time, so that another attempt makes sense.
    pub fn may_heal(&self) -> bool {
        match self {
            Self::NotResolved { .. }
            | Self::NoRoute { .. }
            | Self::Refused(_)
            | Self::ConnectTimeout { .. }
            | Self::HeaderTimeout { .. }
            | Self::Closed
            | Self::Broken(_)
            | Self::NotHttp(_)
            | Self::Truncated { .. } => true,
            Self::Status(code) => *code >= 500,
            // A certificate outside its validity becomes valid with the right clock, which may be about to be set.
            Self::Tls(problem) => !matches!(
                problem,
                TlsProblem::UnknownIssuer(_)
                    | TlsProblem::WrongName { .. }
                    | TlsProblem::BadCertificate(_)
            ),
            Self::Proxy { cause, .. } => cause.may_heal(),
            _ => false,
        }
    }

    /// Returns the cause in two or three words, for a line of progress.
    pub fn short_words(&self) -> String {
        match self {
            Self::NotResolved { .. } => "name not resolved".to_owned(),
            Self::NoRoute { .. } => "no route".to_owned(),
            Self::Refused(_) => "connection refused".to_owned(),
            Self::ConnectTimeout { .. } | Self::HeaderTimeout { .. } => "no answer".to_owned(),
            Self::Status(code) => format!("status {code}"),
            Self::Tls(_) => "TLS failed".to_owned(),
            Self::Proxy { cause, .. } => format!("proxy: {}", cause.short_words()),
            _ => "connection lost".to_owned(),
        }
    }

    /// Returns true if the name cannot be resolved because no name server is configured.
    pub fn lacks_name_server(&self) -> bool {
        match self {
            Self::NotResolved { answers, .. } => answers.is_empty(),
            Self::Proxy { cause, .. } => cause.lacks_name_server(),
            _ => false,
        }
    }

    /// Returns true if every name server reported that the name, or an address of it, does not exist.
    pub fn is_unknown_name(&self) -> bool {
        match self {
            Self::NotResolved { answers, .. } => {
                !answers.is_empty() && answers.iter().all(|one| one.answer.is_final())
            }
            Self::Proxy { cause, .. } => cause.is_unknown_name(),
            _ => false,
        }
    }

    /// Returns the next step for the user.
    pub fn next_step(&self) -> String {
        let fixed = match self {
            Self::NotResolved { name, answers } if answers.is_empty() => {
                return format!(
                    "name a server in /etc/resolv.conf of this machine, or give the address with --resolve {name}:ADDRESS"
                );
            }
            Self::NotResolved { name, .. } => {
                return format!(
                    "correct the name, or /etc/resolv.conf of this machine, or give the address with --resolve {name}:ADDRESS"
                );
            }
            Self::TotalTimeout { last, .. } => {
                return format!("allow more time, or {}", last.next_step());
            }
            Self::Proxy { cause, .. } => return through_proxy(cause),
            Self::Tls(problem) => return problem.next_step(),
            Self::Status(code) => after_status(*code),
            Self::BadUrl(_) => "give one such as https://HOST:PORT/PATH",
            Self::BadHeader(_) => "correct it in the config",
            Self::NoRoute { .. } => "give this node an address and a route to it (`ip route`)",
            Self::Refused(_) => {
                "check that the server is running and listens on that port, and that no firewall rejects it"
            }
            Self::ConnectTimeout { .. } => {
                "check that the server is up and that no firewall drops the packets"
            }
            Self::HeaderTimeout { .. } | Self::Closed | Self::Broken(_) => {
                "look at the log of the server, or of the load balancer in front of it"
            }
            Self::NotHttp(_) => "correct the port, or begin the URL with https://",
            Self::Truncated { .. } => "try again, and check the server if this persists",
            Self::TooLarge { .. } => "check that the URL names the right thing",
            Self::TooManyRedirects | Self::RedirectLoop | Self::BadRedirect => {
                "give the URL that it should end at"
            }
            Self::Downgrade => "give a URL that stays with https, or a hash of the contents",
        };
        fixed.to_owned()
    }
}

fn through_proxy(cause: &FetchCause) -> String {
    match cause {
        FetchCause::Status(407) => "give the proxy's URL with user and password".to_owned(),
        FetchCause::Status(_) => {
            "let the proxy allow this host, or list it under those reached without".to_owned()
        }
        FetchCause::BadUrl(_) => "give the proxy as http://HOST:PORT".to_owned(),
        other => other.next_step(),
    }
}

impl TlsProblem {
    fn next_step(&self) -> String {
        let fixed = match self {
            Self::UnknownIssuer(presented) => return authority_hint(presented.as_deref()),
            Self::Expired { .. } => {
                "set this node's clock if it is wrong, otherwise renew the server's certificate"
            }
            Self::NotYetValid { .. } => "set this node's clock",
            Self::WrongName { .. } => "use one of these names in the URL",
            Self::Timeout(_) => {
                "look at the log of the server, or of the load balancer in front of it"
            }
            Self::NotTls => "correct the port, or begin the URL with http://",
            Self::BadCertificate(_) => "renew the server's certificate",
            Self::Other(_) => "look at the log of the server and at its TLS settings",
        };
        fixed.to_owned()
    }
}

fn chain_text(presented: Option<&Presented>) -> String {
    presented.map(ToString::to_string).unwrap_or_default()
}

/// Returns the next step for an unknown issuer. Only a person can decide to trust an authority.
fn authority_hint(presented: Option<&Presented>) -> String {
    let give = "give the certificate of the authority that signed it (--ca FILE)";
    match presented.and_then(|presented| presented.verified_by.as_deref()) {
        None => give.to_owned(),
        Some([]) => format!("{give}; nothing on this node would verify it"),
        Some(files @ [first, ..]) => format!(
            "{} would verify it: if it is the server that you expect, give --ca {first}, else {give}",
            join_items(files.iter().cloned(), ", ")
        ),
    }
}

/// Returns the meaning of a status for a config or a file.
fn status_meaning(code: u16) -> &'static str {
    match code {
        300..=399 => "(a redirect to nowhere)",
        400 => "(bad request)",
        401 => "(a login is needed)",
        403 => "(forbidden)",
        404 => "(not found)",
        407 => "(the proxy requires a login)",
        429 => "(too many requests)",
        500 => "(it failed itself; a Machine Config Server: no such pool, or not rendered yet)",
        502..=504 => "(a proxy in front of the server cannot reach it)",
        _ => "(no success)",
    }
}

fn after_status(code: u16) -> &'static str {
    match code {
        401 | 403 => "give the headers or the login that it wants",
        408 | 429 => "try again later",
        400..=499 => "correct the URL",
        500..=599 => "look at the log of the server, or of the load balancer in front of it",
        _ => "check that the URL names the right thing",
    }
}

fn answers_text(answers: &[NameAnswer]) -> String {
    if answers.is_empty() {
        return "no name server is configured".to_owned();
    }
    join_items(answers.iter().map(ToString::to_string), "; ")
}

fn names_text(names: &[String]) -> String {
    if names.is_empty() {
        "no name at all".to_owned()
    } else {
        join_items(names.iter().cloned(), ", ")
    }
}

fn join_items(items: impl Iterator<Item = String>, between: &str) -> String {
    items.collect::<Vec<_>>().join(between)
}

fn seconds_text(time: &Duration) -> impl fmt::Display {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}

fn portion_text(received: u64, expected: Option<u64>) -> String {
    match expected {
        Some(expected) => format!("{received} of {expected} bytes came"),
        None => format!("{received} bytes came, but no end"),
    }
}

fn size_text(announced: Option<u64>) -> String {
    match announced {
        Some(bytes) => format!("has {bytes} bytes and is "),
        None => "is ".to_owned(),
    }
}

fn date_text(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// Returns both clocks in words, with the difference.
fn clocks_text(node: SystemTime, server: Option<SystemTime>) -> String {
    let this = format!("and this node's clock says {}", date_text(node));
    let Some(server) = server else { return this };
    let (off, direction) = match server.duration_since(node) {
        Ok(behind) => (behind, "behind"),
        Err(ahead) => (ahead.duration(), "ahead"),
    };
    if off < Duration::from_secs(60) {
        return format!("{this}, as does the server's");
    }
    let server = date_text(server);
    format!(
        "{this}, the server's {server}: the clock is off by {}, {direction}",
        rough_text(off)
    )
}

fn rough_text(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2880 => format!("{} hours", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

/// One name server's answer for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAnswer {
    /// The server.
    pub server: IpAddr,
    /// The name that it was asked for, with the search domain.
    pub name: String,
    /// Its answer.
    pub answer: ServerAnswer,
}

impl fmt::Display for NameAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}: {}", self.server, self.name, self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_wrong_clock_is_reported_with_its_distance_and_direction() {
        let text = clocks_text(
            after(1_700_000_000),
            Some(after(1_700_000_000 + 86_400 * 9)),
        );
        assert_eq!(
            text,
            "and this node's clock says Tue, 14 Nov 2023 22:13:20 GMT, the server's \
             Thu, 23 Nov 2023 22:13:20 GMT: the clock is off by 9 days, behind"
        );
        let agrees = clocks_text(after(1_700_000_000), Some(after(1_700_000_030)));
        assert!(agrees.ends_with("as does the server's"), "{agrees}");
    }

    #[test]
    fn the_text_names_url_cause_effort_and_next_step_in_one_line() {
        let error = FetchError {
            url: "https://host/config".into(),
            redirected: None,
            cause: FetchCause::Status(500),
            attempts: 3,
            spent: Duration::from_millis(1400),
        };
        assert_eq!(
            error.to_string(),
            "fetching https://host/config: the server answered 500 (it failed itself; a Machine Config Server: \
             no such pool, or not rendered yet) (3 attempts in 1.4 s); look at the log of the server, or of the \
             load balancer in front of it"
        );
    }

    #[test]
    fn only_what_time_may_heal_is_tried_again() {
        assert!(FetchCause::Status(500).may_heal() && FetchCause::Closed.may_heal());
        let proxied = |code| FetchCause::Proxy {
            proxy: "p".into(),
            cause: Box::new(FetchCause::Status(code)),
        };
        assert!(proxied(503).may_heal() && !proxied(407).may_heal());
        assert!(
            !FetchCause::Status(429).may_heal()
                && !FetchCause::from(TlsProblem::UnknownIssuer(None)).may_heal()
        );
    }
}
