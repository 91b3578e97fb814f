//! The attempts of one fetch: retries after transient failures, redirects, and the overall time limit.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::ClientConfig;
use ureq::http::Method;
use ureq::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::connect::{self, Dialer};
use super::error::{FetchCause, TlsProblem};
use super::http::{self, Bounds, Head};
use super::tls::Trust;
use super::url::RequestTarget;
use super::{
    ACCEPT, DEFAULT_BOUND, FetchAnswer, FetchProgress, FetchRequest, FetchSettings, MAX_REDIRECTS,
    USER_AGENT,
};

/// Upper limit of a time limit: a config may set any number of seconds, more than a clock can represent.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// Pauses between attempts; the last one repeats.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
    Duration::from_secs(5),
];
/// Attempts for a name that every name server calls unknown, for a person who waits: a typing error does not heal.
const NAME_ATTEMPTS: u32 = 3;
/// Headers that describe the connection; like Go, this program does not let a caller set them.
const OURS: [&str; 6] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "trailer",
    "expect",
];

/// A cause, and the request that failed with it.
pub(super) struct AttemptFailure {
    pub(super) cause: FetchCause,
    target: Option<Box<RequestTarget>>,
    behind_redirects: bool,
}

impl AttemptFailure {
    /// Returns the URL that failed, if redirects led to it.
    pub(super) fn redirected_url(&self) -> Option<Box<str>> {
        let target = self.target.as_ref().filter(|_| self.behind_redirects);
        target.map(|target| target.shown_url().into())
    }
}

impl From<FetchCause> for AttemptFailure {
    fn from(cause: FetchCause) -> Self {
        Self {
            cause,
            target: None,
            behind_redirects: false,
        }
    }
}

/// One fetch with all its attempts.
pub(super) struct FetchSession<'a> {
    settings: &'a FetchSettings,
    start: RequestTarget,
    trust: Trust,
    defaults: HeaderMap,
    own: HeaderMap,
    allowed: Duration,
    until: Instant,
}

impl<'a> FetchSession<'a> {
    pub(super) fn new(
        settings: &'a FetchSettings,
        request: &FetchRequest<'_>,
        started: Instant,
    ) -> Result<Self, AttemptFailure> {
        let start = RequestTarget::parse(request.url)?;
        let own = request_headers(&request.headers, &start)?;
        let allowed = allowed_time(settings, started);
        Ok(Self {
            settings,
            start,
            trust: Trust::new(&settings.certificates, settings.identity.clone()),
            defaults: default_headers(),
            own,
            allowed,
            until: started + allowed,
        })
    }

    /// Retries until the fetch succeeds, fails permanently or takes too long; `attempts` is updated even on failure.
    pub(super) fn run_attempts(
        &self,
        request: &FetchRequest<'_>,
        progress: &mut dyn FnMut(FetchProgress<'_>),
        attempts: &mut u32,
    ) -> Result<FetchAnswer, AttemptFailure> {
        loop {
            *attempts += 1;
            let failure = match self.attempt_once(request, progress) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let pause = pause_after(*attempts);
            let left = self.until.saturating_duration_since(Instant::now());
            let is_hopeless = !request.awaits_name_server
                && (failure.cause.lacks_name_server()
                    || failure.cause.is_unknown_name() && *attempts >= NAME_ATTEMPTS);
            let may_heal = failure.cause.may_heal() && request.retry && !is_hopeless;
            if !may_heal || left.is_zero() || pause >= left {
                return Err(self.explain_failure(failure, left));
            }
            progress(FetchProgress::Failed {
                attempt: *attempts,
                cause: &failure.cause,
            });
            std::thread::sleep(pause);
        }
    }

    /// Completes a failure for the message: with the server's clock or its certificates if they explain it, and with the time
    /// limit.
    fn explain_failure(&self, mut failure: AttemptFailure, left: Duration) -> AttemptFailure {
        if let FetchCause::Tls(problem) = &mut failure.cause
            && let Some(target) = &failure.target
        {
            self.add_date(problem, target);
            if let TlsProblem::UnknownIssuer(presented) = problem {
                *presented = self.trust.take_refused().map(Box::new);
            }
        }
        if left.is_zero() && failure.cause.may_heal() {
            failure.cause = FetchCause::TotalTimeout {
                allowed: self.allowed,
                last: Box::new(failure.cause),
            };
        }
        failure
    }

    fn attempt_once(
        &self,
        request: &FetchRequest<'_>,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<FetchAnswer, AttemptFailure> {
        let mut target = self.start.clone();
        let mut visited = vec![target.uri.clone()];
        loop {
            let failed = |cause| AttemptFailure {
                cause,
                target: Some(Box::new(target.clone())),
                behind_redirects: visited.len() > 1,
            };
            let first = visited.len() == 1;
            let head = self
                .send_request(&target, first, request.body)
                .map_err(failed)?;
            let Some(next) = next_place(&head, &target, request).map_err(failed)? else {
                return receive_body(head, &target, request, progress).map_err(failed);
            };
            if visited.contains(&next.uri) {
                return Err(failed(FetchCause::RedirectLoop));
            }
            if visited.len() > MAX_REDIRECTS {
                return Err(failed(FetchCause::TooManyRedirects));
            }
            progress(FetchProgress::Redirected {
                to: &next.shown_url(),
            });
            visited.push(next.uri.clone());
            target = next;
        }
    }

    /// Sends one request. Follows redirects like browsers do: without the body.
    fn send_request(
        &self,
        target: &RequestTarget,
        first: bool,
        body: Option<&[u8]>,
    ) -> Result<Head, FetchCause> {
        let ways = self.make_dialer(self.trust.client_config()?);
        let mut headers = self.defaults.clone();
        if first {
            for (name, value) in &self.own {
                headers.insert(name.clone(), value.clone());
            }
        } else if let Some(login) = &target.login {
            headers.extend(authorization_header(login));
        }
        let connection = ways.connect_to(target)?;
        let question = match body.filter(|_| first) {
            Some(body) => (Method::POST, Some(body)),
            None => (Method::GET, None),
        };
        http::send_request(question, connection, target, &headers, self.make_bounds())
    }

    fn make_dialer(&self, tls: Arc<ClientConfig>) -> Dialer<'_> {
        Dialer {
            names: &self.settings.names,
            proxy: &self.settings.proxy,
            tls,
            patience: self.cap_duration(self.settings.connect_timeout),
            until: self.until,
        }
    }

    fn make_bounds(&self) -> Bounds {
        Bounds {
            head: self.cap_duration(self.settings.header_timeout),
            until: self.until,
        }
    }

    fn cap_duration(&self, wanted: Duration) -> Duration {
        if wanted.is_zero() {
            self.allowed
        } else {
            wanted.min(self.allowed)
        }
    }

    /// Asks the server of an expired or not yet valid certificate for its clock, trusting it as of a time when the
    /// certificate was valid. The request has no content, and only the date of the answer is used.
    fn add_date(&self, problem: &mut TlsProblem, target: &RequestTarget) {
        let (valid, server) = match problem {
            TlsProblem::Expired {
                not_after, server, ..
            } => (*not_after - Duration::from_secs(1), server),
            TlsProblem::NotYetValid {
                not_before, server, ..
            } => (*not_before + Duration::from_secs(1), server),
            _ => return,
        };
        *server = self.date_of(target, valid);
    }

    fn date_of(&self, target: &RequestTarget, valid: SystemTime) -> Option<SystemTime> {
        let origin = RequestTarget::parse(&format!("https://{}/", target.host_port())).ok()?;
        let connection = self
            .make_dialer(self.trust.client_at(valid)?)
            .connect_to(&origin)
            .ok()?;
        let head = http::send_request(
            (Method::HEAD, None),
            connection,
            &origin,
            &default_headers(),
            self.make_bounds(),
        );
        head.ok()?.date
    }
}

/// Returns the time limit of the whole fetch.
fn allowed_time(settings: &FetchSettings, now: Instant) -> Duration {
    let run = settings
        .deadline
        .map(|end| end.saturating_duration_since(now));
    let wanted = match (settings.total_timeout, run) {
        (Some(total), Some(run)) => total.min(run),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => DEFAULT_BOUND,
    };
    wanted.min(LONGEST)
}

fn pause_after(attempts: u32) -> Duration {
    let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let last = Duration::from_secs(5);
    PAUSES.get(index).copied().unwrap_or(last)
}

fn default_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("user-agent", USER_AGENT),
        ("accept", ACCEPT),
        ("accept-encoding", "identity"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    headers
}

/// Returns the caller's headers, with the login of the URL unless they contain one.
fn request_headers(
    given: &[(String, String)],
    target: &RequestTarget,
) -> Result<HeaderMap, FetchCause> {
    let mut headers = HeaderMap::new();
    if let Some(login) = &target.login {
        headers.extend(authorization_header(login));
    }
    for (name, value) in given {
        let bad = || FetchCause::BadHeader(name.clone());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        if !OURS.contains(&key.as_str()) {
            headers.insert(key, value);
        }
    }
    Ok(headers)
}

fn authorization_header(login: &str) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&connect::basic_auth(login)).ok()?;
    Some((HeaderName::from_static("authorization"), value))
}

/// Returns the target of a redirect; `None` for a success.
fn next_place(
    head: &Head,
    target: &RequestTarget,
    request: &FetchRequest<'_>,
) -> Result<Option<RequestTarget>, FetchCause> {
    match head.status {
        200 | 204 => return Ok(None),
        301 | 302 | 303 | 307 | 308 => {}
        code => return Err(FetchCause::Status(code)),
    }
    let location = head.location.as_deref().ok_or(FetchCause::BadRedirect)?;
    let next = target
        .redirect_to(location)
        .map_err(|_| FetchCause::BadRedirect)?;
    if target.tls && !next.tls && !request.verified {
        return Err(FetchCause::Downgrade);
    }
    Ok(Some(next))
}

fn receive_body(
    head: Head,
    target: &RequestTarget,
    request: &FetchRequest<'_>,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<FetchAnswer, FetchCause> {
    let (status, date) = (head.status, head.date);
    let bytes = head.read_body(request.max_bytes, &mut |received, expected| {
        progress(FetchProgress::Body { received, expected });
    })?;
    Ok(FetchAnswer {
        bytes,
        status,
        date,
        url: target.shown_url(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_as_ignitions_do() {
        let seconds: Vec<f64> = (1..=8).map(|n| pause_after(n).as_secs_f64()).collect();
        assert_eq!(seconds, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]);
    }

    #[test]
    fn without_any_bound_a_fetch_still_ends() {
        let now = Instant::now();
        let mut settings = FetchSettings::default();
        assert_eq!(allowed_time(&settings, now), DEFAULT_BOUND);
        settings.deadline = Some(now + Duration::from_secs(7));
        assert_eq!(allowed_time(&settings, now), Duration::from_secs(7));
        settings.total_timeout = Some(Duration::from_secs(3));
        assert_eq!(allowed_time(&settings, now), Duration::from_secs(3));
    }

    #[test]
    fn the_last_of_several_headers_counts_and_framing_is_ours() {
        let target = RequestTarget::parse("http://me:x@host/").unwrap();
        let given = [("X-A", "1"), ("x-a", "2"), ("Host", "other")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = request_headers(&given, &target).unwrap();
        assert_eq!(headers["x-a"], "2");
        assert_eq!(headers["authorization"], "Basic bWU6eA==");
        assert_eq!(headers.len(), 2);
    }
}
