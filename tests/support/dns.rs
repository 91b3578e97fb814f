//! A small scripted name server on loopback, over UDP and TCP.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use simple_dns::rdata::{CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

/// What a client asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub name: String,
    /// Of AAAA, not of A.
    pub ipv6: bool,
    pub tcp: bool,
    /// Its port.
    pub from: u16,
    pub id: u16,
}

/// What it is told.
pub enum Said {
    /// Aliases, each pointing to the next, and the addresses of the last. Those of the family asked for.
    Records(Vec<String>, Vec<IpAddr>),
    Code(RCODE),
    /// The flag that sends the client to TCP.
    Truncated,
    Silence,
    /// These datagrams.
    Raw(Vec<Vec<u8>>),
}

impl Said {
    pub fn addresses(addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Self::Records(Vec::new(), addresses)
    }
}

/// A running name server; it ends with the test program.
pub struct NameServer {
    log: Arc<Mutex<Vec<Asked>>>,
}

type Handler = dyn Fn(&Asked) -> Said + Send + Sync;

impl NameServer {
    /// On an address and port that must be free for UDP and TCP.
    pub fn start(
        address: SocketAddr,
        handler: impl Fn(&Asked) -> Said + Send + Sync + 'static,
    ) -> Self {
        let handler: Arc<Handler> = Arc::new(handler);
        let log = Arc::new(Mutex::new(Vec::new()));
        let udp = UdpSocket::bind(address).unwrap();
        let tcp = TcpListener::bind(address).unwrap();
        let (of_udp, log_udp) = (Arc::clone(&handler), Arc::clone(&log));
        thread::spawn(move || serve_udp(&udp, &*of_udp, &log_udp));
        let log_tcp = Arc::clone(&log);
        thread::spawn(move || serve_tcp(&tcp, &*handler, &log_tcp));
        Self { log }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }
}

fn serve_udp(socket: &UdpSocket, handler: &Handler, log: &Mutex<Vec<Asked>>) {
    let mut buffer = [0; 1024];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        for bytes in answer(&buffer[..length], false, from.port(), handler, log) {
            let _ = socket.send_to(&bytes, from);
        }
    }
}

fn serve_tcp(listener: &TcpListener, handler: &Handler, log: &Mutex<Vec<Asked>>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut length = [0; 2];
        if stream.read_exact(&mut length).is_err() {
            continue;
        }
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query).unwrap();
        let port = stream.peer_addr().unwrap().port();
        for bytes in answer(&query, true, port, handler, log) {
            let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            // In pieces, as a network may deliver it.
            for piece in [&length[..1], &length[1..], &bytes[..5], &bytes[5..]] {
                let _ = stream.write_all(piece);
                let _ = stream.flush();
            }
        }
    }
}

fn answer(
    query: &[u8],
    tcp: bool,
    from: u16,
    handler: &Handler,
    log: &Mutex<Vec<Asked>>,
) -> Vec<Vec<u8>> {
    let query = Packet::parse(query).unwrap();
    let question = &query.questions[0];
    let asked = Asked {
        name: question.qname.to_string(),
        ipv6: question.qtype == QTYPE::TYPE(TYPE::AAAA),
        tcp,
        from,
        id: query.id(),
    };
    log.lock().unwrap().push(asked.clone());
    let mut reply = query.clone().into_reply();
    match handler(&asked) {
        Said::Silence => return Vec::new(),
        Said::Raw(datagrams) => return datagrams,
        Said::Code(code) => *reply.rcode_mut() = code,
        Said::Truncated => reply.set_flags(PacketFlag::TRUNCATION),
        Said::Records(aliases, addresses) => {
            let mut owner = asked.name.clone();
            for alias in aliases {
                let target = RData::CNAME(CNAME(name(&alias)));
                reply.answers.push(record(&owner, target));
                owner = alias;
            }
            for address in addresses.iter().filter(|a| a.is_ipv6() == asked.ipv6) {
                let data = match address {
                    IpAddr::V4(a) => RData::A((*a).into()),
                    IpAddr::V6(a) => RData::AAAA((*a).into()),
                };
                reply.answers.push(record(&owner, data));
            }
            return vec![reply.build_bytes_vec_compressed().unwrap()];
        }
    }
    vec![reply.build_bytes_vec_compressed().unwrap()]
}

fn record(owner: &str, data: RData<'static>) -> ResourceRecord<'static> {
    ResourceRecord::new(name(owner), CLASS::IN, 60, data)
}

fn name(text: &str) -> Name<'static> {
    Name::new(text).unwrap().into_owned()
}
