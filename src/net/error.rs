//! Why a URL could not be fetched: cause classes, each told in one line that ends in the next step.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use crate::reason::Reason;

use super::chain::Presented;
use super::names::NameAnswer;

/// A fetch that did not work. Its text is one line: URL, cause, effort, next step.
#[derive(Debug, thiserror::Error)]
#[error("fetching {url}{}: {cause}{}; {}", self.way(), self.effort(), self.cause.next_step())]
pub struct FetchError {
    /// The URL as it was asked for, without user, password and query.
    pub url: Box<str>,
    /// The URL that failed, if redirects led to another one.
    pub redirected: Option<Box<str>>,
    /// The last cause.
    pub cause: Cause,
    /// How often it was tried; 0 if the request could not even be made.
    pub attempts: u32,
    /// How long that took.
    pub spent: Duration,
}

impl FetchError {
    /// The clock of the server, where a certificate out of its time had it asked for.
    pub fn server_clock(&self) -> Option<SystemTime> {
        let cause = match &self.cause {
            Cause::TotalTimeout { last, .. } => last,
            cause => cause,
        };
        match cause {
            Cause::Tls(TlsProblem::Expired { server, .. })
            | Cause::Tls(TlsProblem::NotYetValid { server, .. }) => *server,
            _ => None,
        }
    }

    fn way(&self) -> String {
        match &self.redirected {
            Some(url) => format!(" (redirected to {url})"),
            None => String::new(),
        }
    }

    fn effort(&self) -> String {
        let seconds = self.spent.as_secs_f64();
        match self.attempts {
            0 => String::new(),
            1 => format!(" (1 attempt, {seconds:.1} s)"),
            many => format!(" ({many} attempts in {seconds:.1} s)"),
        }
    }
}

/// The cause classes. None of them holds a password, a header or a query string.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Not a URL that can be fetched.
    #[error("the URL cannot be used: {0}")]
    BadUrl(String),
    /// A header that HTTP does not allow.
    #[error("the header {0:?} has a name or a value that HTTP does not allow")]
    BadHeader(String),
    /// The name has no address.
    #[error("{name} could not be resolved: {}", told(answers))]
    NotResolved {
        /// The host name.
        name: String,
        /// What each name server said; empty if none is configured.
        answers: Vec<NameAnswer>,
    },
    /// The network does not lead there.
    #[error("connecting to {address}: {reason}")]
    NoRoute {
        /// Where to.
        address: SocketAddr,
        /// What the kernel says.
        reason: Reason,
    },
    /// Nobody listens there, or a firewall rejects.
    #[error("connecting to {0}: connection refused")]
    Refused(SocketAddr),
    /// Nobody answered.
    #[error("connecting to {address}: no answer within {}", short(waited))]
    ConnectTimeout {
        /// Where to.
        address: SocketAddr,
        /// For how long.
        waited: Duration,
    },
    /// Connected, and then silence.
    #[error(
        "the server was connected, but sent no answer within {}",
        short(waited)
    )]
    HeaderTimeout {
        /// For how long.
        waited: Duration,
    },
    /// The time for all attempts is over.
    #[error("the time of {} is over, and {last}", short(allowed))]
    TotalTimeout {
        /// How much there was.
        allowed: Duration,
        /// What the last attempt was busy with.
        last: Box<Cause>,
    },
    /// No trust could be established.
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
    /// A status that is no success.
    #[error("the server answered {} {}", .0, meaning(*.0))]
    Status(u16),
    /// The body ended early, or stalled.
    #[error("the body is cut short: {}", portion(*received, *expected))]
    Truncated {
        /// Bytes that came.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
    /// The body is larger than allowed.
    #[error("the body {}larger than the {limit} bytes that are allowed", size(*announced))]
    TooLarge {
        /// Bytes.
        limit: u64,
        /// `Content-Length`, if that was enough to refuse it.
        announced: Option<u64>,
    },
    /// More than [`super::MAX_REDIRECTS`].
    #[error("the server redirected more than {} times", super::MAX_REDIRECTS)]
    TooManyRedirects,
    /// A redirect to where we were already.
    #[error("the server redirects in a circle")]
    RedirectLoop,
    /// A redirect from https to http, of something that no hash vouches for.
    #[error("the server redirects from https to plain http, which nothing protects")]
    Downgrade,
    /// A redirect without a usable place.
    #[error("the server redirects to nowhere (no usable Location)")]
    BadRedirect,
    /// The way to the proxy, or through it.
    #[error("by way of the proxy {proxy}: {cause}")]
    Proxy {
        /// Its URL, without user and password.
        proxy: String,
        /// What happened there; a status is its answer to CONNECT.
        cause: Box<Cause>,
    },
}

/// What is wrong with the server's certificate or with TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    /// No trusted certificate leads to it.
    #[error(
        "the server's certificate is signed by no authority that is trusted here{}",
        chain(_0.as_deref())
    )]
    UnknownIssuer(Option<Box<Presented>>),
    /// After its last day.
    #[error("the server's certificate expired on {}, {}", date(*not_after), clocks(*clock, *server))]
    Expired {
        /// The end of its validity.
        not_after: SystemTime,
        /// This node's clock.
        clock: SystemTime,
        /// The clock of the server, if it could be asked.
        server: Option<SystemTime>,
    },
    /// Before its first day.
    #[error("the server's certificate is valid only from {}, {}", date(*not_before), clocks(*clock, *server))]
    NotYetValid {
        /// The begin of its validity.
        not_before: SystemTime,
        /// This node's clock.
        clock: SystemTime,
        /// The clock of the server, if it could be asked.
        server: Option<SystemTime>,
    },
    /// It is somebody else's.
    #[error(
        "the server's certificate is not for {wanted}, but for {}",
        listed(names)
    )]
    WrongName {
        /// The host of the URL.
        wanted: String,
        /// The names in the certificate.
        names: Vec<String>,
    },
    /// Unusable in some other way, in the words of the TLS library.
    #[error("the server's certificate cannot be used: {0}")]
    BadCertificate(String),
    /// The handshake took too long.
    #[error("the TLS handshake did not end within {}", short(.0))]
    Timeout(Duration),
    /// What answers there does not speak TLS.
    #[error("the server does not speak TLS on this port")]
    NotTls,
    /// Anything else, in the words of the TLS library.
    #[error("TLS: {0}")]
    Other(String),
}

impl Cause {
    /// Whether time alone may put it right, so that another attempt makes sense.
    pub fn heals(&self) -> bool {
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
            // A certificate that is out of its time heals with the clock, which may be being set.
            Self::Tls(problem) => !matches!(
                problem,
                TlsProblem::UnknownIssuer(_)
                    | TlsProblem::WrongName { .. }
                    | TlsProblem::BadCertificate(_)
            ),
            Self::Proxy { cause, .. } => cause.heals(),
            _ => false,
        }
    }

    /// What the reader should do now.
    pub fn next_step(&self) -> String {
        let fixed = match self {
            Self::NotResolved { name, answers } if answers.is_empty() => {
                return format!(
                    "name a server in /etc/resolv.conf, or give the address with --resolve {name}:ADDRESS"
                );
            }
            Self::NotResolved { name, .. } => {
                return format!(
                    "correct the name or /etc/resolv.conf, or give the address with --resolve {name}:ADDRESS"
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
                "see that the server runs and listens on that port, and that no firewall rejects it"
            }
            Self::ConnectTimeout { .. } => {
                "see that the server is up and that no firewall drops the packets"
            }
            Self::HeaderTimeout { .. } | Self::Closed | Self::Broken(_) => {
                "look at the log of the server, or of the load balancer before it"
            }
            Self::NotHttp(_) => "correct the port, or begin the URL with https://",
            Self::Truncated { .. } => "try again, and look at the server if it stays so",
            Self::TooLarge { .. } => "see that the URL names the right thing",
            Self::TooManyRedirects | Self::RedirectLoop | Self::BadRedirect => {
                "give the URL that it should end at"
            }
            Self::Downgrade => "give a URL that stays with https, or a hash of the contents",
        };
        fixed.to_owned()
    }
}

fn through_proxy(cause: &Cause) -> String {
    match cause {
        Cause::Status(407) => "give the proxy's URL with user and password".to_owned(),
        Cause::Status(_) => {
            "let the proxy allow this host, or list it under those reached without".to_owned()
        }
        Cause::BadUrl(_) => "give the proxy as http://HOST:PORT".to_owned(),
        other => other.next_step(),
    }
}

impl TlsProblem {
    fn next_step(&self) -> String {
        let fixed = match self {
            Self::UnknownIssuer(presented) => return anchor(presented.as_deref()),
            Self::Expired { .. } => {
                "set this node's clock if it is wrong, else renew the server's certificate"
            }
            Self::NotYetValid { .. } => "set this node's clock",
            Self::WrongName { .. } => "use one of these names in the URL",
            Self::Timeout(_) => "look at the log of the server, or of the load balancer before it",
            Self::NotTls => "correct the port, or begin the URL with http://",
            Self::BadCertificate(_) => "renew the server's certificate",
            Self::Other(_) => "look at the log of the server and at its TLS settings",
        };
        fixed.to_owned()
    }
}

fn chain(presented: Option<&Presented>) -> String {
    presented.map(ToString::to_string).unwrap_or_default()
}

/// Whom to trust is for a person to say, whatever there is at hand.
fn anchor(presented: Option<&Presented>) -> String {
    let give = "give the certificate of the authority that signed it (--ca FILE)";
    match presented.and_then(|presented| presented.verified_by.as_deref()) {
        None => give.to_owned(),
        Some([]) => format!("{give}; nothing on this node would verify it"),
        Some(files @ [first, ..]) => format!(
            "{} would verify it: if it is the server that you expect, give --ca {first}, else {give}",
            joined(files.iter().cloned(), ", ")
        ),
    }
}

/// What a status means where a config or a file is fetched.
fn meaning(code: u16) -> &'static str {
    match code {
        300..=399 => "(a redirect that is none)",
        400 => "(bad request)",
        401 => "(a login is needed)",
        403 => "(forbidden)",
        404 => "(not found)",
        407 => "(the proxy wants a login)",
        429 => "(too many requests)",
        500 => "(it failed itself; a Machine Config Server: no such pool, or not rendered yet)",
        502..=504 => "(what stands before the server does not reach it)",
        _ => "(no success)",
    }
}

fn after_status(code: u16) -> &'static str {
    match code {
        401 | 403 => "give the headers or the login that it wants",
        408 | 429 => "try again later",
        400..=499 => "correct the URL",
        500..=599 => "look at the log of the server, or of the load balancer before it",
        _ => "see that the URL names the right thing",
    }
}

fn told(answers: &[NameAnswer]) -> String {
    if answers.is_empty() {
        return "no name server is configured".to_owned();
    }
    joined(answers.iter().map(ToString::to_string), "; ")
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "no name at all".to_owned()
    } else {
        joined(names.iter().cloned(), ", ")
    }
}

fn joined(items: impl Iterator<Item = String>, between: &str) -> String {
    items.collect::<Vec<_>>().join(between)
}

fn short(time: &Duration) -> impl fmt::Display {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}

fn portion(received: u64, expected: Option<u64>) -> String {
    match expected {
        Some(expected) => format!("{received} of {expected} bytes came"),
        None => format!("{received} bytes came, and no end"),
    }
}

fn size(announced: Option<u64>) -> String {
    match announced {
        Some(bytes) => format!("has {bytes} bytes and is "),
        None => "is ".to_owned(),
    }
}

fn date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// Both clocks, and how far this node's is off.
fn clocks(node: SystemTime, server: Option<SystemTime>) -> String {
    let this = format!("and this node's clock says {}", date(node));
    let Some(server) = server else { return this };
    let (off, direction) = match server.duration_since(node) {
        Ok(behind) => (behind, "behind"),
        Err(ahead) => (ahead.duration(), "ahead"),
    };
    if off < Duration::from_secs(60) {
        return format!("{this}, as does the server's");
    }
    let server = date(server);
    format!(
        "{this}, the server's {server}: the clock is off by {}, {direction}",
        rough(off)
    )
}

fn rough(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2880 => format!("{} hours", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_wrong_clock_is_told_with_its_distance_and_direction() {
        let text = clocks(
            after(1_700_000_000),
            Some(after(1_700_000_000 + 86_400 * 9)),
        );
        assert_eq!(
            text,
            "and this node's clock says Tue, 14 Nov 2023 22:13:20 GMT, the server's \
             Thu, 23 Nov 2023 22:13:20 GMT: the clock is off by 9 days, behind"
        );
        let agrees = clocks(after(1_700_000_000), Some(after(1_700_000_030)));
        assert!(agrees.ends_with("as does the server's"), "{agrees}");
    }

    #[test]
    fn the_text_names_url_cause_effort_and_next_step_in_one_line() {
        let error = FetchError {
            url: "https://host/config".into(),
            redirected: None,
            cause: Cause::Status(500),
            attempts: 3,
            spent: Duration::from_millis(1400),
        };
        assert_eq!(
            error.to_string(),
            "fetching https://host/config: the server answered 500 (it failed itself; a Machine Config Server: \
             no such pool, or not rendered yet) (3 attempts in 1.4 s); look at the log of the server, or of the \
             load balancer before it"
        );
    }

    #[test]
    fn only_what_time_may_heal_is_tried_again() {
        assert!(Cause::Status(500).heals() && Cause::Closed.heals());
        let proxied = |code| Cause::Proxy {
            proxy: "p".into(),
            cause: Box::new(Cause::Status(code)),
        };
        assert!(proxied(503).heals() && !proxied(407).heals());
        assert!(
            !Cause::Status(429).heals() && !Cause::from(TlsProblem::UnknownIssuer(None)).heals()
        );
    }
}
