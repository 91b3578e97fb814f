//! A connection to a server: names, TCP, the proxy's tunnel, TLS. Every wait is limited.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::error::{FetchCause, TlsProblem};
use super::names::NameSources;
use super::proxy::ProxySettings;
use super::tls;
use super::url::RequestTarget;

/// Maximum size of the head of a proxy's answer to CONNECT.
const MAX_TUNNEL_HEAD: usize = 16 << 10;

/// The settings of a connection.
pub(super) struct Dialer<'a> {
    pub(super) names: &'a NameSources,
    pub(super) proxy: &'a ProxySettings,
    pub(super) tls: Arc<ClientConfig>,
    /// Time limit for connecting, for the tunnel and for the handshake, each.
    pub(super) patience: Duration,
    pub(super) until: Instant,
}

/// An open connection on which a request can be written.
pub(super) struct Connection {
    pub(super) wire: Box<dyn Wire>,
    /// Set for plain HTTP through a proxy: the request contains the whole URL.
    pub(super) proxied: Option<Proxied>,
}

/// The proxy of a plain request.
pub(super) struct Proxied {
    /// Its URL, without user and password.
    pub(super) proxy: String,
    /// The value of `Proxy-Authorization`.
    pub(super) authorization: Option<String>,
}

/// A two-way byte stream with a time limit.
pub(super) trait Wire: Read + Write + Send + Sync + fmt::Debug {
    /// Makes every read and write fail with `TimedOut` after this time.
    fn ends_at(&mut self, until: Instant);
}

impl Dialer<'_> {
    /// Connects to the target of a request.
    pub(super) fn connect_to(&self, target: &RequestTarget) -> Result<Connection, FetchCause> {
        let Some(proxy) = self.proxy.proxy_for(target)? else {
            return Ok(Connection {
                wire: self.connect_directly(target)?,
                proxied: None,
            });
        };
        self.connect_through(&proxy, target)
            .map_err(|cause| match cause {
                // Through the tunnel, it is the server's own failure.
                Behind::Server(cause) => cause,
                Behind::Proxy(cause) => FetchCause::Proxy {
                    proxy: proxy.shown_url(),
                    cause: Box::new(cause),
                },
            })
    }

    fn connect_directly(&self, target: &RequestTarget) -> Result<Box<dyn Wire>, FetchCause> {
        let addresses = self.names.resolve_host(&target.host, self.until)?;
        let wire = self.dial_any(&addresses, target.port)?;
        if target.tls {
            self.start_tls(Box::new(wire), &target.host)
        } else {
            Ok(Box::new(wire))
        }
    }

    fn connect_through(
        &self,
        proxy: &RequestTarget,
        target: &RequestTarget,
    ) -> Result<Connection, Behind> {
        let mut wire = self.connect_directly(proxy).map_err(Behind::Proxy)?;
        let authorization = proxy.login.as_deref().map(basic_auth);
        if !target.tls {
            return Ok(Connection {
                wire,
                proxied: Some(Proxied {
                    proxy: proxy.shown_url(),
                    authorization,
                }),
            });
        }
        wire.ends_at(self.step_deadline());
        open_tunnel(&mut *wire, &target.host_port(), authorization.as_deref())
            .map_err(Behind::Proxy)?;
        let wire = self.start_tls(wire, &target.host).map_err(Behind::Server)?;
        Ok(Connection {
            wire,
            proxied: None,
        })
    }

    fn step_deadline(&self) -> Instant {
        self.until.min(Instant::now() + self.patience)
    }

    /// Connects to the first address that answers; each gets a share of the time.
    fn dial_any(&self, addresses: &[IpAddr], port: u16) -> Result<TcpWire, FetchCause> {
        let end = self.step_deadline();
        let mut worst: Option<FetchCause> = None;
        for (index, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let address = SocketAddr::new(*address, port);
            match connect_tcp(address, share) {
                Ok(stream) => return Ok(TcpWire { stream, until: end }),
                Err(cause)
                    if worst
                        .as_ref()
                        .is_some_and(|w| cause_weight(w) >= cause_weight(&cause)) => {}
                Err(cause) => worst = Some(cause),
            }
        }
        Err(worst.unwrap_or(FetchCause::Closed))
    }

    /// Runs the TLS handshake.
    fn start_tls(&self, mut wire: Box<dyn Wire>, host: &str) -> Result<Box<dyn Wire>, FetchCause> {
        let started = Instant::now();
        wire.ends_at(self.step_deadline());
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            FetchCause::BadUrl("its host is not a name that a certificate can have".into())
        })?;
        let mut connection = ClientConnection::new(Arc::clone(&self.tls), name)
            .map_err(|e| TlsProblem::Other(tls::error_words(&e)))?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut wire)
                .map_err(|e| handshake_error(e, started.elapsed()))?;
        }
        Ok(Box::new(TlsWire(StreamOwned::new(connection, wire))))
    }
}

/// Where a connection through a proxy failed.
enum Behind {
    Proxy(FetchCause),
    Server(FetchCause),
}

fn connect_tcp(address: SocketAddr, patience: Duration) -> Result<TcpStream, FetchCause> {
    let started = Instant::now();
    let patience = patience.max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, patience).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused => FetchCause::Refused(address),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => FetchCause::ConnectTimeout {
            address,
            waited: started.elapsed(),
        },
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => FetchCause::NoRoute {
            address,
            reason: e.into(),
        },
        _ => FetchCause::Broken(e.into()),
    })?;
    // A request is one small write, which must not be delayed.
    stream
        .set_nodelay(true)
        .map_err(|e| FetchCause::Broken(e.into()))?;
    Ok(stream)
}

/// Returns the weight of a failure for the message: an address of a family that this node does not have has the lowest.
fn cause_weight(cause: &FetchCause) -> u8 {
    match cause {
        FetchCause::NoRoute { .. } => 0,
        FetchCause::ConnectTimeout { .. } => 1,
        _ => 2,
    }
}

fn handshake_error(error: io::Error, waited: Duration) -> FetchCause {
    match error.kind() {
        ErrorKind::TimedOut => TlsProblem::Timeout(waited).into(),
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => FetchCause::Closed,
        _ => match tls::problem_of(&error) {
            Some(problem) => problem.into(),
            None => FetchCause::Broken(error.into()),
        },
    }
}

/// Returns the value of an authorization header for `user:password`.
pub(super) fn basic_auth(login: &str) -> String {
    format!("Basic {}", STANDARD.encode(login))
}

/// Asks a proxy for a tunnel. Reads byte by byte, because everything after the head belongs to the server.
fn open_tunnel(
    wire: &mut dyn Wire,
    place: &str,
    authorization: Option<&str>,
) -> Result<(), FetchCause> {
    let started = Instant::now();
    let login = match authorization {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    let agent = super::USER_AGENT;
    let request =
        format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: {agent}\r\n{login}\r\n");
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::TimedOut => FetchCause::HeaderTimeout {
            waited: started.elapsed(),
        },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => FetchCause::Closed,
        _ => FetchCause::Broken(e.into()),
    };
    wire.write_all(request.as_bytes()).map_err(failed)?;
    wire.flush().map_err(failed)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        wire.read_exact(&mut byte).map_err(failed)?;
        head.extend(byte);
        if head.len() > MAX_TUNNEL_HEAD {
            return Err(FetchCause::NotHttp("its head has no end".into()));
        }
    }
    match parse_status(&head) {
        Some(200..=299) => Ok(()),
        Some(code) => Err(FetchCause::Status(code)),
        None => Err(FetchCause::NotHttp("it has no status".into())),
    }
}

fn parse_status(head: &[u8]) -> Option<u16> {
    let line = head.split(|b| *b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("HTTP/1.")?.split(' ');
    words.nth(1)?.parse().ok()
}

/// A TCP connection with a time limit.
#[derive(Debug)]
struct TcpWire {
    stream: TcpStream,
    until: Instant,
}

impl TcpWire {
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

/// Converts the error: the kernel reports a timeout as "try again".
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for TcpWire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(self.time_left()?)?;
            match self.stream.read(buffer) {
                // A signal; the remaining time is recomputed.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => return other.map_err(timed_out),
            }
        }
    }
}

impl Write for TcpWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for TcpWire {
    fn ends_at(&mut self, until: Instant) {
        self.until = until;
    }
}

/// TLS over any wire.
#[derive(Debug)]
struct TlsWire(StreamOwned<ClientConnection, Box<dyn Wire>>);

impl Read for TlsWire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for TlsWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Wire for TlsWire {
    fn ends_at(&mut self, until: Instant) {
        self.0.sock.ends_at(until);
    }
}
