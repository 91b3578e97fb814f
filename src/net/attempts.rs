//! All attempts of one fetch: which failures are worth another one, where redirects lead, and when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::ClientConfig;
use ureq::http::Method;
use ureq::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::connect::{self, Ways};
use super::error::{Cause, TlsProblem};
use super::http::{self, Bounds, Head};
use super::tls::Trust;
use super::url::Target;
use super::{
    ACCEPT, Answer, DEFAULT_BOUND, MAX_REDIRECTS, Progress, Request, Settings, USER_AGENT,
};

/// No bound is longer: a config may name any number of seconds, and time has an end for the machine.
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
/// Headers that describe the connection; like Go, we do not let a caller write them.
const OURS: [&str; 6] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "trailer",
    "expect",
];

/// A cause, and the request that it ended.
pub(super) struct Failure {
    pub(super) cause: Cause,
    target: Option<Box<Target>>,
    behind_redirects: bool,
}

impl Failure {
    /// The URL that failed, if redirects led to it.
    pub(super) fn redirected(&self) -> Option<Box<str>> {
        let target = self.target.as_ref().filter(|_| self.behind_redirects);
        target.map(|target| target.shown().into())
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            target: None,
            behind_redirects: false,
        }
    }
}

/// One fetch with all its attempts.
pub(super) struct Session<'a> {
    settings: &'a Settings,
    start: Target,
    trust: Trust,
    defaults: HeaderMap,
    own: HeaderMap,
    allowed: Duration,
    until: Instant,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        request: &Request<'_>,
        started: Instant,
    ) -> Result<Self, Failure> {
        let start = Target::parse(request.url)?;
        let own = headers(&request.headers, &start)?;
        let allowed = allowed(settings, started);
        Ok(Self {
            settings,
            start,
            trust: Trust::new(&settings.certificates, settings.identity.clone()),
            defaults: defaults(),
            own,
            allowed,
            until: started + allowed,
        })
    }

    /// Tries until it works, cannot heal or takes too long; `attempts` counts, also for failures.
    pub(super) fn repeat(
        &self,
        request: &Request<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
        attempts: &mut u32,
    ) -> Result<Answer, Failure> {
        loop {
            *attempts += 1;
            let failure = match self.attempt(request, progress) {
                Ok(answer) => {
                    return Ok(Answer {
                        attempts: *attempts,
                        ..answer
                    });
                }
                Err(failure) => failure,
            };
            let pause = pause_after(*attempts);
            let left = self.until.saturating_duration_since(Instant::now());
            if !failure.cause.heals() || left.is_zero() || !request.retry || pause >= left {
                return Err(self.concluded(failure, left));
            }
            progress(Progress::Failed {
                attempt: *attempts,
                cause: &failure.cause,
                next_in: pause,
            });
            std::thread::sleep(pause);
        }
    }

    /// The failure as it is told: with the server's clock or its certificates if they explain it, and whether time
    /// ran out.
    fn concluded(&self, mut failure: Failure, left: Duration) -> Failure {
        if let Cause::Tls(problem) = &mut failure.cause
            && let Some(target) = &failure.target
        {
            self.add_date(problem, target);
            if let TlsProblem::UnknownIssuer(presented) = problem {
                *presented = self.trust.refused().map(Box::new);
            }
        }
        if left.is_zero() && failure.cause.heals() {
            failure.cause = Cause::TotalTimeout {
                allowed: self.allowed,
                last: Box::new(failure.cause),
            };
        }
        failure
    }

    fn attempt(
        &self,
        request: &Request<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Answer, Failure> {
        let mut target = self.start.clone();
        let mut visited = vec![target.uri.clone()];
        loop {
            let failed = |cause| Failure {
                cause,
                target: Some(Box::new(target.clone())),
                behind_redirects: visited.len() > 1,
            };
            let first = visited.len() == 1;
            let head = self.ask(&target, first, request.body).map_err(failed)?;
            let Some(next) = next_place(&head, &target, request).map_err(failed)? else {
                return received(head, &target, request, progress).map_err(failed);
            };
            if visited.contains(&next.uri) {
                return Err(failed(Cause::RedirectLoop));
            }
            if visited.len() > MAX_REDIRECTS {
                return Err(failed(Cause::TooManyRedirects));
            }
            progress(Progress::Redirected { to: &next.shown() });
            visited.push(next.uri.clone());
            target = next;
        }
    }

    /// A redirect is followed as browsers do: without the body.
    fn ask(&self, target: &Target, first: bool, body: Option<&[u8]>) -> Result<Head, Cause> {
        let ways = self.ways(self.trust.client()?);
        let mut headers = self.defaults.clone();
        if first {
            for (name, value) in &self.own {
                headers.insert(name.clone(), value.clone());
            }
        } else if let Some(login) = &target.login {
            headers.extend(authorization(login));
        }
        let connection = ways.open(target)?;
        let question = match body.filter(|_| first) {
            Some(body) => (Method::POST, Some(body)),
            None => (Method::GET, None),
        };
        http::exchange(question, connection, target, &headers, self.bounds())
    }

    fn ways(&self, tls: Arc<ClientConfig>) -> Ways<'_> {
        Ways {
            names: &self.settings.names,
            proxy: &self.settings.proxy,
            tls,
            patience: self.bounded(self.settings.connect_timeout),
            until: self.until,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            head: self.bounded(self.settings.header_timeout),
            until: self.until,
        }
    }

    fn bounded(&self, wanted: Duration) -> Duration {
        if wanted.is_zero() {
            self.allowed
        } else {
            wanted.min(self.allowed)
        }
    }

    /// For a certificate out of its time: asks the server for its clock, trusting it as of a time when the
    /// certificate was valid. The request says nothing, and only the date of the answer is used.
    fn add_date(&self, problem: &mut TlsProblem, target: &Target) {
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

    fn date_of(&self, target: &Target, valid: SystemTime) -> Option<SystemTime> {
        let origin = Target::parse(&format!("https://{}/", target.place())).ok()?;
        let connection = self.ways(self.trust.client_at(valid)?).open(&origin).ok()?;
        let head = http::exchange(
            (Method::HEAD, None),
            connection,
            &origin,
            &defaults(),
            self.bounds(),
        );
        head.ok()?.date
    }
}

/// Time for the whole fetch.
fn allowed(settings: &Settings, now: Instant) -> Duration {
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

fn defaults() -> HeaderMap {
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

/// The caller's headers, with the login of the URL unless they have their own.
fn headers(given: &[(String, String)], target: &Target) -> Result<HeaderMap, Cause> {
    let mut headers = HeaderMap::new();
    if let Some(login) = &target.login {
        headers.extend(authorization(login));
    }
    for (name, value) in given {
        let bad = || Cause::BadHeader(name.clone());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        if !OURS.contains(&key.as_str()) {
            headers.insert(key, value);
        }
    }
    Ok(headers)
}

fn authorization(login: &str) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&connect::basic(login)).ok()?;
    Some((HeaderName::from_static("authorization"), value))
}

/// Where a redirect leads; `None` for a success.
fn next_place(
    head: &Head,
    target: &Target,
    request: &Request<'_>,
) -> Result<Option<Target>, Cause> {
    match head.status {
        200 | 204 => return Ok(None),
        301 | 302 | 303 | 307 | 308 => {}
        code => return Err(Cause::Status(code)),
    }
    let location = head.location.as_deref().ok_or(Cause::BadRedirect)?;
    let next = target
        .redirected(location)
        .map_err(|_| Cause::BadRedirect)?;
    if target.tls && !next.tls && !request.verified {
        return Err(Cause::Downgrade);
    }
    Ok(Some(next))
}

fn received(
    head: Head,
    target: &Target,
    request: &Request<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Answer, Cause> {
    let (status, date, content_type) = (head.status, head.date, head.content_type.clone());
    let bytes = head.body(request.max_bytes, &mut |received, expected| {
        progress(Progress::Body { received, expected });
    })?;
    Ok(Answer {
        bytes,
        status,
        date,
        content_type,
        url: target.shown(),
        attempts: 0,
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
        let mut settings = Settings::default();
        assert_eq!(allowed(&settings, now), DEFAULT_BOUND);
        settings.deadline = Some(now + Duration::from_secs(7));
        assert_eq!(allowed(&settings, now), Duration::from_secs(7));
        settings.total_timeout = Some(Duration::from_secs(3));
        assert_eq!(allowed(&settings, now), Duration::from_secs(3));
    }

    #[test]
    fn the_last_of_several_headers_counts_and_framing_is_ours() {
        let target = Target::parse("http://me:x@host/").unwrap();
        let given = [("X-A", "1"), ("x-a", "2"), ("Host", "other")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = headers(&given, &target).unwrap();
        assert_eq!(headers["x-a"], "2");
        assert_eq!(headers["authorization"], "Basic bWU6eA==");
        assert_eq!(headers.len(), 2);
    }
}
