//! Checks whether other hosts, and servers on this one, are alive, for probes; fetches nothing.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::names::interface_index;
use crate::base::reason::Reason;

/// A port on which no host listens; traceroute uses it for the same reason.
const CLOSED_PORT: u16 = 33_434;
/// Maximum size of a greeting in bytes.
const MAX_GREETING: usize = 4096;

/// A socket that makes the kernel look for a neighbor, and detects its answers.
#[derive(Debug)]
pub struct Knock {
    socket: UdpSocket,
}

impl Knock {
    /// Prepares datagrams to a closed port of a neighbor. `interface` is needed for link-local addresses.
    ///
    /// # Errors
    /// The system's error, such as a missing route.
    pub fn new(neighbour: IpAddr, interface: &str) -> Result<Self, Reason> {
        let any: IpAddr = match neighbour {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let target = match neighbour {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                let scope = interface_index(interface).unwrap_or_default();
                SocketAddrV6::new(address, CLOSED_PORT, 0, scope).into()
            }
            _ => SocketAddr::new(neighbour, CLOSED_PORT),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(target)?;
        Ok(Self { socket })
    }

    /// Returns the address that this node uses to reach the neighbor.
    pub fn own_address(&self) -> Option<IpAddr> {
        Some(self.socket.local_addr().ok()?.ip())
    }

    /// Sends a datagram and waits for an answer. Returns true for an answer: the neighbor itself reports the port as closed, or
    /// sends a datagram. Silence proves nothing, because many routers never answer.
    pub fn is_answered(&self, wait: Duration) -> bool {
        // This may report the refusal of an earlier datagram.
        if let Err(error) = self.socket.send(b"mco-rescue\n") {
            return error.kind() == ErrorKind::ConnectionRefused;
        }
        let wait = wait.max(Duration::from_millis(1));
        if self.socket.set_read_timeout(Some(wait)).is_err() {
            return false;
        }
        match self.socket.recv(&mut [0; 64]) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        }
    }
}

/// Connects to a server that speaks first, and returns its first line that begins with `start`.
///
/// # Errors
/// The reason: no connection, or another text, or silence.
pub fn read_greeting(
    address: SocketAddr,
    start: &str,
    patience: Duration,
) -> Result<String, Reason> {
    let end = Instant::now() + patience;
    let mut stream = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))?;
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        // Other lines may precede it.
        let mut whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        if let Some(line) = whole.find(|line| line.starts_with(start)) {
            return Ok(line.trim_end().to_owned());
        }
        let other = || Reason::from(format!("it does not begin with {start}"));
        if bytes.len() >= MAX_GREETING {
            return Err(other());
        }
        let left = end.saturating_duration_since(Instant::now());
        let silence = || {
            Reason::from(format!(
                "connected, but no {start} within {} s",
                patience.as_secs()
            ))
        };
        if left.is_zero() {
            return Err(silence());
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 512];
        match stream.read(&mut piece) {
            Ok(0) if bytes.is_empty() => {
                return Err(Reason::from(
                    "it closed the connection without a greeting".to_owned(),
                ));
            }
            Ok(0) => return Err(other()),
            Ok(length) => bytes.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(silence()),
            Err(error) => return Err(error.into()),
        }
    }
}
