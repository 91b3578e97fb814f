//! One query to one name server: over UDP, and over TCP if the answer does not fit.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

use crate::base::order::StableOrder;
use crate::base::reason::Reason;

/// Extra time for the other address family once addresses are known.
const GRACE: Duration = Duration::from_secs(1);
/// A longer chain of aliases is a loop.
const MAX_ALIASES: usize = 16;

/// A name server's answer without addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAnswer {
    /// NXDOMAIN.
    NoSuchName,
    /// The name exists, but has neither A nor AAAA records.
    NoAddresses,
    /// SERVFAIL.
    ServerFailure,
    /// REFUSED.
    Declined,
    /// Some other response code.
    Code(String),
    /// No reply within this time.
    NoReply(Duration),
    /// Its host reported that the port is closed.
    PortClosed,
    /// The network has no route to it.
    Unreachable(Reason),
    /// The answer cannot be parsed.
    Malformed,
}

impl ServerAnswer {
    /// Returns true if asking the same server again cannot change the answer.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::NoSuchName | Self::NoAddresses)
    }
}

impl fmt::Display for ServerAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName => f.write_str("no such name (NXDOMAIN)"),
            Self::NoAddresses => f.write_str("the name has no addresses"),
            Self::ServerFailure => f.write_str("server failure (SERVFAIL)"),
            Self::Declined => f.write_str("it refuses to answer (REFUSED)"),
            Self::Code(code) => write!(f, "response code {code}"),
            Self::NoReply(waited) => write!(f, "no answer within {:.1} s", waited.as_secs_f64()),
            Self::PortClosed => f.write_str("nothing listens on its port"),
            Self::Unreachable(reason) => write!(f, "{reason}"),
            Self::Malformed => f.write_str("its answer is malformed"),
        }
    }
}

/// A query, ready to be sent.
struct Query {
    id: u16,
    kind: TYPE,
    name: String,
    bytes: Vec<u8>,
}

/// Asks one server for all addresses of a name; IPv4 first.
pub(super) fn ask_server(
    server: SocketAddr,
    name: &str,
    until: Instant,
) -> Result<Vec<IpAddr>, ServerAnswer> {
    let started = Instant::now();
    let mut open = vec![make_query(name, TYPE::A)?, make_query(name, TYPE::AAAA)?];
    let socket = connect_udp(server)?;
    for query in &open {
        socket.send(&query.bytes).map_err(io_answer)?;
    }
    let mut collected = Collected::default();
    let mut limit = until;
    while !open.is_empty() {
        let Some(bytes) = receive_datagram(&socket, limit)? else {
            break;
        };
        let Some(query) = take_asked(&mut open, &bytes) else {
            continue;
        };
        collected.add_answer(read_reply(&query, &bytes, server, until));
        if !collected.addresses.is_empty() || collected.failure.is_some() {
            limit = until.min(Instant::now() + GRACE);
        }
    }
    collected.into_result(open.is_empty(), started.elapsed())
}

/// The answers to the two questions so far.
#[derive(Default)]
struct Collected {
    addresses: Vec<IpAddr>,
    failure: Option<ServerAnswer>,
}

impl Collected {
    fn add_answer(&mut self, answer: Result<Vec<IpAddr>, ServerAnswer>) {
        match answer {
            Ok(found) => self.addresses.extend(found),
            Err(ServerAnswer::NoAddresses) => {}
            Err(other) => self.failure = Some(other),
        }
    }

    fn into_result(
        mut self,
        complete: bool,
        waited: Duration,
    ) -> Result<Vec<IpAddr>, ServerAnswer> {
        if !self.addresses.is_empty() {
            self.addresses.order_by_key(IpAddr::is_ipv6);
            return Ok(self.addresses);
        }
        Err(match self.failure {
            Some(failure) => failure,
            None if complete => ServerAnswer::NoAddresses,
            None => ServerAnswer::NoReply(waited),
        })
    }
}

fn io_answer(error: std::io::Error) -> ServerAnswer {
    match error.kind() {
        ErrorKind::ConnectionRefused => ServerAnswer::PortClosed,
        _ => ServerAnswer::Unreachable(error.into()),
    }
}

/// Returns a socket that accepts answers only from this server. The kernel picks a random port.
fn connect_udp(server: SocketAddr) -> Result<UdpSocket, ServerAnswer> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).map_err(io_answer)?;
    socket.connect(server).map_err(io_answer)?;
    Ok(socket)
}

fn make_query(name: &str, kind: TYPE) -> Result<Query, ServerAnswer> {
    let id = random_id()?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let asked = Name::new(name).map_err(|_| ServerAnswer::NoSuchName)?;
    let class = QCLASS::CLASS(CLASS::IN);
    packet
        .questions
        .push(Question::new(asked, QTYPE::TYPE(kind), class, false));
    let bytes = packet
        .build_bytes_vec()
        .map_err(|_| ServerAnswer::NoSuchName)?;
    Ok(Query {
        id,
        kind,
        name: normal_name(name),
        bytes,
    })
}

fn random_id() -> Result<u16, ServerAnswer> {
    let mut id = [0; 2];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut id)
        .map_err(|_| ServerAnswer::Unreachable("no random number".to_owned().into()))?;
    Ok(u16::from_be_bytes(id))
}

/// Returns the next datagram, or `None` when the time is up.
fn receive_datagram(socket: &UdpSocket, until: Instant) -> Result<Option<Vec<u8>>, ServerAnswer> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left)).map_err(io_answer)?;
        let mut buffer = vec![0; 4096];
        match socket.recv(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(Some(buffer));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(io_answer(e)),
        }
    }
}

/// Removes the query that these bytes answer, matched by id, flag and question; other bytes are ignored.
fn take_asked(open: &mut Vec<Query>, bytes: &[u8]) -> Option<Query> {
    let index = open.iter().position(|query| is_reply_to(query, bytes))?;
    Some(open.remove(index))
}

fn is_reply_to(query: &Query, bytes: &[u8]) -> bool {
    // A malformed body is still an answer if its head matches.
    let head = bytes.get(..4).unwrap_or_default();
    let [high, low, flags, _] = *head else {
        return false;
    };
    if u16::from_be_bytes([high, low]) != query.id || flags & 0x80 == 0 {
        return false;
    }
    match Packet::parse(bytes) {
        Ok(packet) => match packet.questions.first() {
            Some(asked) => {
                asked.qtype == QTYPE::TYPE(query.kind)
                    && normal_name(&asked.qname.to_string()) == query.name
            }
            // Some servers omit the question in an error.
            None => packet.rcode() != RCODE::NoError,
        },
        Err(_) => true,
    }
}

fn normal_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Parses an answer; a truncated one is requested again over TCP.
fn read_reply(
    query: &Query,
    bytes: &[u8],
    server: SocketAddr,
    until: Instant,
) -> Result<Vec<IpAddr>, ServerAnswer> {
    let Ok(packet) = Packet::parse(bytes) else {
        return Err(ServerAnswer::Malformed);
    };
    if packet.has_flags(PacketFlag::TRUNCATION) {
        let whole = over_tcp(query, server, until)?;
        let packet = Packet::parse(&whole).map_err(|_| ServerAnswer::Malformed)?;
        return read_addresses(query, &packet);
    }
    read_addresses(query, &packet)
}

fn read_addresses(query: &Query, packet: &Packet<'_>) -> Result<Vec<IpAddr>, ServerAnswer> {
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Err(ServerAnswer::NoSuchName),
        RCODE::ServerFailure => return Err(ServerAnswer::ServerFailure),
        RCODE::Refused => return Err(ServerAnswer::Declined),
        other => return Err(ServerAnswer::Code(format!("{other:?}"))),
    }
    let name = follow_aliases(&query.name, packet);
    let found: Vec<IpAddr> = packet
        .answers
        .iter()
        .filter(|record| normal_name(&record.name.to_string()) == name)
        .filter_map(|record| match &record.rdata {
            RData::A(a) => Some(Ipv4Addr::from(a.address).into()),
            RData::AAAA(a) => Some(Ipv6Addr::from(a.address).into()),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        Err(ServerAnswer::NoAddresses)
    } else {
        Ok(found)
    }
}

/// Returns the name at the end of the aliases in this answer.
fn follow_aliases(name: &str, packet: &Packet<'_>) -> String {
    let mut name = name.to_owned();
    for _ in 0..MAX_ALIASES {
        let alias = packet
            .answers
            .iter()
            .find_map(|record| match &record.rdata {
                RData::CNAME(target) if normal_name(&record.name.to_string()) == name => {
                    Some(normal_name(&target.0.to_string()))
                }
                _ => None,
            });
        match alias {
            Some(next) => name = next,
            None => break,
        }
    }
    name
}

fn over_tcp(query: &Query, server: SocketAddr, until: Instant) -> Result<Vec<u8>, ServerAnswer> {
    let started = Instant::now();
    let mut stream =
        TcpStream::connect_timeout(&server, time_left(started, until)?).map_err(io_answer)?;
    stream
        .set_write_timeout(Some(time_left(started, until)?))
        .map_err(io_answer)?;
    let length = u16::try_from(query.bytes.len()).map_err(|_| ServerAnswer::Malformed)?;
    let framed = [&length.to_be_bytes(), query.bytes.as_slice()].concat();
    stream.write_all(&framed).map_err(io_answer)?;
    let mut received = Vec::new();
    loop {
        if let Some(message) = framed_message(&received) {
            let ours = is_reply_to(query, message).then(|| message.to_vec());
            return ours.ok_or(ServerAnswer::Malformed);
        }
        stream
            .set_read_timeout(Some(time_left(started, until)?))
            .map_err(io_answer)?;
        read_more(&mut stream, &mut received)?;
    }
}

/// Returns the remaining time, or an error if there is none.
fn time_left(started: Instant, until: Instant) -> Result<Duration, ServerAnswer> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ServerAnswer::NoReply(started.elapsed()))
    } else {
        Ok(left)
    }
}

fn read_more(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<(), ServerAnswer> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => return Err(ServerAnswer::Malformed),
        Ok(count) => received.extend(buffer.get(..count).unwrap_or_default()),
        // The caller checks whether there is time for another one.
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(e) => return Err(io_answer(e)),
    }
    Ok(())
}

/// Returns the message after its two length bytes, once it is complete.
fn framed_message(received: &[u8]) -> Option<&[u8]> {
    let (length, rest) = received.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reply with an alias and both kinds of records.
    fn reply(query: &Query) -> Vec<u8> {
        use simple_dns::ResourceRecord;
        use simple_dns::rdata::CNAME;
        let (alias, owner) = (Name::new("b.a.example").unwrap(), "a.example");
        let mut packet = Packet::parse(&query.bytes).unwrap().into_reply();
        for (name, data) in [
            (owner, RData::CNAME(CNAME(alias))),
            ("b.a.example", RData::A(Ipv4Addr::LOCALHOST.into())),
            ("b.a.example", RData::AAAA(Ipv6Addr::LOCALHOST.into())),
        ] {
            let name = Name::new(name).unwrap();
            let record = ResourceRecord::new(name, CLASS::IN, 1, data);
            packet.answers.push(record);
        }
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn read(query: &Query, bytes: &[u8]) -> Option<Vec<IpAddr>> {
        let packet = Packet::parse(bytes).ok()?;
        read_addresses(query, &packet)
            .ok()
            .filter(|_| is_reply_to(query, bytes))
    }

    proptest! {
        #[test]
        fn damaged_packets_are_refused_without_panic(
            changes in prop::collection::vec((0usize..200, any::<u8>()), 0..6),
            length in 0usize..200,
        ) {
            let query = make_query("a.example", TYPE::A).unwrap();
            let mut bytes = reply(&query);
            for (place, value) in changes {
                let end = bytes.len();
                bytes[place % end] = value;
            }
            bytes.truncate(length);
            read(&query, &bytes);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut query = make_query("a.example", TYPE::A).unwrap();
            query.id = bytes.get(..2).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
            read(&query, &bytes);
            framed_message(&bytes);
        }
    }

    #[test]
    fn a_reply_that_is_not_damaged_is_read() {
        let query = make_query("A.example", TYPE::A).unwrap();
        let local: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        assert_eq!(read(&query, &reply(&query)).unwrap(), local);
    }
}
