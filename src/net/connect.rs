//! A connection to a server: names, TCP, the proxy's tunnel, TLS. Every wait has an end.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::error::{Cause, TlsProblem};
use super::names::Names;
use super::proxy::Proxy;
use super::tls;
use super::url::Target;

/// The head of a proxy's answer to CONNECT may not be larger.
const MAX_TUNNEL_HEAD: usize = 16 << 10;

/// What a connection is made with.
pub(super) struct Ways<'a> {
    pub(super) names: &'a Names,
    pub(super) proxy: &'a Proxy,
    pub(super) tls: Arc<ClientConfig>,
    /// For connecting, for the tunnel and for the handshake, each.
    pub(super) patience: Duration,
    pub(super) until: Instant,
}

/// An open connection on which a request can be written.
pub(super) struct Connection {
    pub(super) wire: Box<dyn Wire>,
    /// Plain HTTP through a proxy: the request names the whole URL.
    pub(super) proxied: Option<Proxied>,
}

/// What a plain request through a proxy needs besides.
pub(super) struct Proxied {
    /// Its URL, as it may be shown.
    pub(super) proxy: String,
    /// The value of `Proxy-Authorization`.
    pub(super) authorization: Option<String>,
}

/// Bytes in both directions, until a moment.
pub(super) trait Wire: Read + Write + Send + Sync + fmt::Debug {
    /// From now on every read and write fails with `TimedOut` after this moment.
    fn ends_at(&mut self, until: Instant);
}

impl Ways<'_> {
    /// Connects to the target of a request.
    pub(super) fn open(&self, target: &Target) -> Result<Connection, Cause> {
        let Some(proxy) = self.proxy.of(target)? else {
            return Ok(Connection {
                wire: self.direct(target)?,
                proxied: None,
            });
        };
        self.through(&proxy, target).map_err(|cause| match cause {
            // Behind the tunnel it is the server's own.
            Behind::Server(cause) => cause,
            Behind::Proxy(cause) => Cause::Proxy {
                proxy: proxy.shown(),
                cause: Box::new(cause),
            },
        })
    }

    fn direct(&self, target: &Target) -> Result<Box<dyn Wire>, Cause> {
        let addresses = self.names.resolve(&target.host, self.until)?;
        let wire = self.dial(&addresses, target.port)?;
        if target.tls {
            self.secured(Box::new(wire), &target.host)
        } else {
            Ok(Box::new(wire))
        }
    }

    fn through(&self, proxy: &Target, target: &Target) -> Result<Connection, Behind> {
        let mut wire = self.direct(proxy).map_err(Behind::Proxy)?;
        let authorization = proxy.login.as_deref().map(basic);
        if !target.tls {
            return Ok(Connection {
                wire,
                proxied: Some(Proxied {
                    proxy: proxy.shown(),
                    authorization,
                }),
            });
        }
        wire.ends_at(self.soon());
        tunnel(&mut *wire, &target.place(), authorization.as_deref()).map_err(Behind::Proxy)?;
        let wire = self.secured(wire, &target.host).map_err(Behind::Server)?;
        Ok(Connection {
            wire,
            proxied: None,
        })
    }

    fn soon(&self) -> Instant {
        self.until.min(Instant::now() + self.patience)
    }

    /// Tries the addresses in turn; each has its share of the time.
    fn dial(&self, addresses: &[IpAddr], port: u16) -> Result<Tcp, Cause> {
        let end = self.soon();
        let mut worst: Option<Cause> = None;
        for (index, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let address = SocketAddr::new(*address, port);
            match connected(address, share) {
                Ok(stream) => return Ok(Tcp { stream, until: end }),
                Err(cause) if worst.as_ref().is_some_and(|w| weight(w) >= weight(&cause)) => {}
                Err(cause) => worst = Some(cause),
            }
        }
        Err(worst.unwrap_or(Cause::Closed))
    }

    /// The TLS handshake.
    fn secured(&self, mut wire: Box<dyn Wire>, host: &str) -> Result<Box<dyn Wire>, Cause> {
        let started = Instant::now();
        wire.ends_at(self.soon());
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Cause::BadUrl("its host is no name that a certificate can have".into()))?;
        let mut connection = ClientConnection::new(Arc::clone(&self.tls), name)
            .map_err(|e| TlsProblem::Other(tls::words(&e)))?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut wire)
                .map_err(|e| handshake_error(e, started.elapsed()))?;
        }
        Ok(Box::new(Tls(StreamOwned::new(connection, wire))))
    }
}

/// Whose trouble it is when a proxy is in between.
enum Behind {
    Proxy(Cause),
    Server(Cause),
}

fn connected(address: SocketAddr, patience: Duration) -> Result<TcpStream, Cause> {
    let started = Instant::now();
    let patience = patience.max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, patience).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused => Cause::Refused(address),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Cause::ConnectTimeout {
            address,
            waited: started.elapsed(),
        },
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => Cause::NoRoute {
            address,
            reason: e.into(),
        },
        _ => Cause::Broken(e.into()),
    })?;
    // A request is one small write, which must not wait for more.
    stream
        .set_nodelay(true)
        .map_err(|e| Cause::Broken(e.into()))?;
    Ok(stream)
}

/// Which of several failures tells most: an address of a family that this node has not, tells least.
fn weight(cause: &Cause) -> u8 {
    match cause {
        Cause::NoRoute { .. } => 0,
        Cause::ConnectTimeout { .. } => 1,
        _ => 2,
    }
}

fn handshake_error(error: io::Error, waited: Duration) -> Cause {
    match error.kind() {
        ErrorKind::TimedOut => TlsProblem::Timeout(waited).into(),
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => Cause::Closed,
        _ => match tls::problem(&error) {
            Some(problem) => problem.into(),
            None => Cause::Broken(error.into()),
        },
    }
}

/// The value of an authorization header for `user:password`.
pub(super) fn basic(login: &str) -> String {
    format!("Basic {}", STANDARD.encode(login))
}

/// Asks a proxy for a tunnel. Read byte by byte: what follows the head belongs to the server.
fn tunnel(wire: &mut dyn Wire, place: &str, authorization: Option<&str>) -> Result<(), Cause> {
    let started = Instant::now();
    let login = match authorization {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    let agent = super::USER_AGENT;
    let request =
        format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: {agent}\r\n{login}\r\n");
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::TimedOut => Cause::HeaderTimeout {
            waited: started.elapsed(),
        },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Cause::Closed,
        _ => Cause::Broken(e.into()),
    };
    wire.write_all(request.as_bytes()).map_err(failed)?;
    wire.flush().map_err(failed)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        wire.read_exact(&mut byte).map_err(failed)?;
        head.extend(byte);
        if head.len() > MAX_TUNNEL_HEAD {
            return Err(Cause::NotHttp("its head has no end".into()));
        }
    }
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(code) => Err(Cause::Status(code)),
        None => Err(Cause::NotHttp("it has no status".into())),
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|b| *b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("HTTP/1.")?.split(' ');
    words.nth(1)?.parse().ok()
}

/// A TCP connection with an end in time.
#[derive(Debug)]
struct Tcp {
    stream: TcpStream,
    until: Instant,
}

impl Tcp {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

/// The kernel reports a timeout as "try again".
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Tcp {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(self.left()?)?;
            match self.stream.read(buffer) {
                // A signal; the time that is left is computed anew.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => return other.map_err(timed_out),
            }
        }
    }
}

impl Write for Tcp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Tcp {
    fn ends_at(&mut self, until: Instant) {
        self.until = until;
    }
}

/// TLS over any wire.
#[derive(Debug)]
struct Tls(StreamOwned<ClientConnection, Box<dyn Wire>>);

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Wire for Tls {
    fn ends_at(&mut self, until: Instant) {
        self.0.sock.ends_at(until);
    }
}
