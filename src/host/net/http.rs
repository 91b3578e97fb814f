//! One HTTP/1.1 request on an open connection, and its answer, with limits.
//!
//! ureq writes the request and parses the framing; it is given the connection, and does not resolve, connect or follow anything
//! itself.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use ureq::Agent;
use ureq::http::header::{DATE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use ureq::http::{Method, Request, Response, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::connect::{Connection, Proxied, Wire};
use super::error::FetchCause;
use super::tls;
use super::url::RequestTarget;
use crate::host::sys::memory::make_room;

/// Bytes of one read.
const PIECE: usize = 64 << 10;
/// Size of the output buffer in bytes; a request is small.
const OUTPUT: usize = 16 << 10;

/// Bounds of one exchange.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Time from the request to the end of the answer's head.
    pub(super) head: Duration,
    /// The end of everything.
    pub(super) until: Instant,
}

/// The head of an answer whose body has not been read yet.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) date: Option<SystemTime>,
    body: ureq::Body,
}

/// Sends a request, and reads the head of the answer.
pub(super) fn send_request(
    (method, body): (Method, Option<&[u8]>),
    connection: Connection,
    target: &RequestTarget,
    headers: &HeaderMap,
    bounds: Bounds,
) -> Result<Head, FetchCause> {
    let started = Instant::now();
    let mut headers = headers.clone();
    let proxied = connection.proxied;
    if let Some(value) = proxied.as_ref().and_then(|p| p.authorization.as_deref()) {
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| FetchCause::BadHeader("Proxy-Authorization".into()))?;
        headers.insert(HeaderName::from_static("proxy-authorization"), value);
    }
    let mut request = Request::new(body.unwrap_or_default());
    *request.method_mut() = method;
    *request.uri_mut() = target.uri.clone();
    *request.headers_mut() = headers;
    let prefix = proxied.as_ref().map(|_| origin_of(&target.uri));
    let agent = make_agent(connection.wire, prefix, bounds, started);
    let answer = match body {
        Some(_) => agent.run(request),
        None => agent.run(request.map(drop)),
    };
    let answer = answer.map_err(|e| cause_of(e, started))?;
    match (answer.status().as_u16(), proxied) {
        (407, Some(Proxied { proxy, .. })) => Err(FetchCause::Proxy {
            proxy,
            cause: Box::new(FetchCause::Status(407)),
        }),
        _ => Ok(read_head(answer)),
    }
}

/// Returns `http://HOST:PORT` of a URL.
fn origin_of(uri: &Uri) -> String {
    let place = uri.authority().map(|a| a.as_str()).unwrap_or_default();
    format!("http://{place}")
}

fn make_agent(wire: Box<dyn Wire>, prefix: Option<String>, bounds: Bounds, now: Instant) -> Agent {
    let config = Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_response_header_size(PIECE / 2)
        .max_idle_connections(0)
        .timeout_global(Some(bounds.until.saturating_duration_since(now)))
        .timeout_recv_response(Some(bounds.head))
        .build();
    let ready = Ready(Mutex::new(Some(Carrier {
        wire,
        prefix,
        until: bounds.until,
        buffers: LazyBuffers::new(PIECE, OUTPUT),
    })));
    Agent::with_parts(config, ready, NoNames)
}

fn read_head(answer: Response<ureq::Body>) -> Head {
    let (parts, body) = answer.into_parts();
    let text = |name| {
        let value: Option<&HeaderValue> = parts.headers.get(name);
        value.and_then(|v| v.to_str().ok()).map(str::to_owned)
    };
    Head {
        status: parts.status.as_u16(),
        location: text(LOCATION),
        date: text(DATE).and_then(|date| httpdate::parse_http_date(&date).ok()),
        body,
    }
}

impl Head {
    /// Reads the body; `seen` is called with the received and the announced number of bytes.
    pub(super) fn read_body(
        self,
        limit: u64,
        seen: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Vec<u8>, FetchCause> {
        let expected = self.body.content_length();
        if expected.is_some_and(|bytes| bytes > limit) {
            return Err(FetchCause::TooLarge {
                limit,
                announced: expected,
            });
        }
        let mut reader = self.body.into_reader();
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(_) => {
                    return Err(FetchCause::Truncated {
                        received: bytes.len() as u64,
                        expected,
                    });
                }
            };
            if bytes.len() as u64 + count as u64 > limit {
                return Err(FetchCause::TooLarge {
                    limit,
                    announced: None,
                });
            }
            make_room(&mut bytes, count, limit);
            bytes.extend(piece.get(..count).unwrap_or_default());
            seen(bytes.len() as u64, expected);
        }
    }
}

/// Converts an error that occurred before the head of the answer.
fn cause_of(error: ureq::Error, started: Instant) -> FetchCause {
    match error {
        ureq::Error::Timeout(_) => FetchCause::HeaderTimeout {
            waited: started.elapsed(),
        },
        ureq::Error::Io(e) if is_end(&e) => FetchCause::Closed,
        ureq::Error::Io(e) => match tls::problem_of(&e) {
            Some(problem) => problem.into(),
            None => FetchCause::Broken(e.into()),
        },
        ureq::Error::Protocol(e) => FetchCause::NotHttp(e.to_string()),
        other => FetchCause::NotHttp(other.to_string()),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    ) || error.get_ref().is_some_and(|inner| inner.is::<Cut>())
}

/// The connection ended where it must not: without a TLS close, or by a reset. ureq would take the plain error for the end of a
/// body without length.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
struct Cut;

/// Hands over the one connection.
#[derive(Debug)]
struct Ready(Mutex<Option<Carrier>>);

impl Connector for Ready {
    type Out = Carrier;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Carrier>, ureq::Error> {
        Ok(self.0.lock().ok().and_then(|mut slot| slot.take()))
    }
}

/// A resolver that does nothing: names are resolved earlier.
#[derive(Debug)]
struct NoNames;

impl Resolver for NoNames {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// Adapts a wire to ureq.
struct Carrier {
    wire: Box<dyn Wire>,
    /// Prepended to the path of the request line; only used for the first write.
    prefix: Option<String>,
    until: Instant,
    buffers: LazyBuffers,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carrier")
    }
}

impl Carrier {
    fn set_end(&mut self, timeout: &NextTimeout) {
        let end = match timeout.after {
            ureq::unversioned::transport::time::Duration::Exact(left) => Instant::now() + left,
            _ => self.until,
        };
        self.wire.ends_at(end.min(self.until));
    }

    fn write_output(&mut self, amount: usize) -> io::Result<()> {
        let bytes = self.buffers.output().get(..amount).unwrap_or_default();
        match (self.prefix.take(), bytes.iter().position(|b| *b == b' ')) {
            (Some(prefix), Some(space)) => {
                let (method, path) = bytes.split_at(space + 1);
                self.wire
                    .write_all(&[method, prefix.as_bytes(), path].concat())?;
            }
            _ => self.wire.write_all(bytes)?,
        }
        self.wire.flush()
    }
}

impl Transport for Carrier {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.set_end(&timeout);
        self.write_output(amount)
            .map_err(|e| to_ureq_error(e, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.set_end(&timeout);
        let space = self.buffers.input_append_buf();
        let count = self
            .wire
            .read(space)
            .map_err(|e| to_ureq_error(e, timeout))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        true
    }

    /// Returns false: TLS is handled by the wire, and ureq need not know about it.
    fn is_tls(&self) -> bool {
        true
    }
}

fn to_ureq_error(error: io::Error, timeout: NextTimeout) -> ureq::Error {
    if error.kind() == ErrorKind::TimedOut {
        ureq::Error::Timeout(timeout.reason)
    } else if is_end(&error) {
        ureq::Error::Io(io::Error::other(Cut))
    } else {
        ureq::Error::Io(error)
    }
}
