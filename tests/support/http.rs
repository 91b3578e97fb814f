//! A small scripted HTTP server on loopback, with TLS if asked for: paths lead to handlers, and what was
//! asked is kept. It can also be slow, lie about lengths, hang up, and be a proxy.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What a client asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// As in the request line: a path with its query, a whole URL (to a proxy) or `HOST:PORT` (CONNECT).
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// How many requests this server had for the same path before.
    pub nth: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// What the client gets.
#[derive(Clone)]
pub struct Response {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone)]
enum Then {
    /// An orderly end.
    Close,
    /// An end without TLS's farewell.
    Cut,
    /// Silence, until the client goes.
    Hold,
    /// These bytes one by one with pauses, until the client goes.
    Drip(Vec<u8>, Duration),
    /// Zeros, this many times 64 KiB, or until the client goes.
    Zeros(u64),
    /// Whatever comes goes there, and back.
    Tunnel(SocketAddr),
}

impl Response {
    /// 200 with a body and its length.
    pub fn ok(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, &[], body)
    }

    pub fn status(code: u16) -> Self {
        Self::new(code, &[], "")
    }

    pub fn redirect(code: u16, to: &str) -> Self {
        Self::new(code, &[("Location", to)], "")
    }

    pub fn new(code: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {code} X\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if code != 204 {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        Self::raw([head.as_bytes(), b"\r\n", body].concat())
    }

    /// These bytes and nothing else.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            bytes: bytes.into(),
            then: Then::Close,
        }
    }

    pub fn cut(self) -> Self {
        Self {
            then: Then::Cut,
            ..self
        }
    }

    pub fn hold(self) -> Self {
        Self {
            then: Then::Hold,
            ..self
        }
    }

    pub fn drip(self, bytes: impl Into<Vec<u8>>, pause: Duration) -> Self {
        Self {
            then: Then::Drip(bytes.into(), pause),
            ..self
        }
    }

    pub fn zeros(self, pieces: u64) -> Self {
        Self {
            then: Then::Zeros(pieces),
            ..self
        }
    }

    /// The same without its body, as HEAD gets it.
    #[allow(dead_code, reason = "for the boxes of vm-tests")]
    pub fn head(mut self) -> Self {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n");
        self.bytes.truncate(end.map_or(0, |end| end + 4));
        self
    }

    /// The same with another last byte, if it has this many bytes or more.
    #[allow(dead_code, reason = "for the boxes of vm-tests")]
    pub fn damaged(mut self, from: usize) -> Self {
        let is_long = self.bytes.len() >= from;
        if let Some(last) = self.bytes.last_mut().filter(|_| is_long) {
            *last ^= 0xff;
        }
        self
    }

    /// The answer of a proxy to CONNECT.
    pub fn tunnel(to: SocketAddr) -> Self {
        Self {
            then: Then::Tunnel(to),
            ..Self::raw("HTTP/1.1 200 Connection established\r\n\r\n")
        }
    }
}

pub type Handler = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// Paths and what answers there; `*` answers for all others, which are 404 without it.
#[derive(Default)]
pub struct Routes(Vec<(String, Handler)>);

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn at(
        mut self,
        path: &str,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.0.push((path.to_owned(), Box::new(handler)));
        self
    }

    fn answer(&self, request: &Request) -> Response {
        let found = [request.path(), "*"]
            .iter()
            .find_map(|wanted| self.0.iter().find(|(path, _)| path == wanted));
        match found {
            Some((_, handler)) => handler(request),
            None => Response::status(404),
        }
    }
}

/// A running server. It ends with this value.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
}

struct Shared {
    routes: Routes,
    tls: Option<Arc<ServerConfig>>,
    log: Mutex<Vec<Request>>,
    connections: AtomicU64,
    sent: AtomicU64,
    over: AtomicBool,
}

impl Server {
    pub fn plain(routes: Routes) -> Self {
        Self::on(loopback(0), routes, None)
    }

    pub fn tls(routes: Routes, identity: &Identity) -> Self {
        Self::on(loopback(0), routes, Some(identity.config()))
    }

    /// With TLS, for clients only that show a certificate of this authority.
    pub fn mutual(routes: Routes, identity: &Identity, clients: &Authority) -> Self {
        Self::on(loopback(0), routes, Some(identity.mutual_config(clients)))
    }

    /// With TLS, on this very address.
    pub fn tls_at(address: SocketAddr, routes: Routes, identity: &Identity) -> Self {
        Self::on(address, routes, Some(identity.config()))
    }

    /// On an address that was free a moment ago.
    pub fn at(address: SocketAddr, routes: Routes) -> Self {
        Self::on(address, routes, None)
    }

    fn on(address: SocketAddr, routes: Routes, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            routes,
            tls,
            log: Mutex::default(),
            connections: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let address = listener.local_addr().unwrap();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Self {
            address,
            scheme,
            shared,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// With the address as host.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// With a name as host, which the client has to resolve.
    pub fn url_of(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.address.port())
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.log.lock().unwrap().clone()
    }

    /// Every connection so far, also those without a request.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes of bodies made of zeros that went out.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let shared = Arc::clone(shared);
        shared.connections.fetch_add(1, Ordering::SeqCst);
        // A client that hangs up is not the server's fault.
        thread::spawn(move || stream.and_then(|stream| shared.serve(stream)).ok());
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let socket = stream.try_clone()?;
        let Some(config) = &self.tls else {
            let mut stream = stream;
            self.talk(&mut stream, &socket, &|_| {})?;
            return stream.shutdown(Shutdown::Write);
        };
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        self.talk(&mut stream, &socket, &|stream| {
            stream.conn.send_close_notify();
            let _ = stream.conn.complete_io(&mut stream.sock);
        })?;
        stream.sock.shutdown(Shutdown::Write)
    }

    fn talk<S: Read + Write>(
        &self,
        stream: &mut S,
        socket: &TcpStream,
        farewell: &dyn Fn(&mut S),
    ) -> io::Result<()> {
        let mut request = read_request(stream)?;
        let response = {
            let mut log = self.log.lock().unwrap();
            request.nth = log.iter().filter(|r| r.path() == request.path()).count();
            log.push(request.clone());
            self.routes.answer(&request)
        };
        stream.write_all(&response.bytes)?;
        stream.flush()?;
        match response.then {
            Then::Close => farewell(stream),
            Then::Cut => {}
            Then::Hold => wait_for_end(stream),
            Then::Drip(bytes, pause) => {
                for byte in bytes {
                    thread::sleep(pause);
                    stream.write_all(&[byte])?;
                    stream.flush()?;
                }
                farewell(stream);
            }
            Then::Zeros(pieces) => {
                for _ in 0..pieces {
                    stream.write_all(&[0; 64 << 10])?;
                    self.sent.fetch_add(64 << 10, Ordering::SeqCst);
                }
                farewell(stream);
            }
            Then::Tunnel(to) => tunnel(stream, socket, to)?,
        }
        Ok(())
    }
}

fn wait_for_end(stream: &mut impl Read) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) {}
}

/// The two directions take turns, each for a moment; a TLS stream cannot be split.
fn tunnel<S: Read + Write>(client: &mut S, socket: &TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(to)?;
    let moment = Some(Duration::from_millis(5));
    server.set_read_timeout(moment)?;
    socket.set_read_timeout(moment)?;
    while pass_on(client, &mut server)? && pass_on(&mut server, client)? {}
    Ok(())
}

/// Whether there may be more.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut buffer = [0; 16 << 10];
    match from.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(count) => {
            to.write_all(&buffer[..count])?;
            to.flush().map(|()| true)
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(e) => Err(e),
    }
}

fn read_request(stream: &mut impl Read) -> io::Result<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut word = || first.next().unwrap_or_default().to_owned();
    Ok(Request {
        method: word(),
        target: word(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        nth: 0,
    })
}

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
    /// What a server has to show besides its own certificate.
    above: Vec<CertificateDer<'static>>,
}

/// From the beginning of one year to the beginning of another.
#[derive(Clone, Copy)]
pub struct Years(pub i32, pub i32);

/// Now, for as long as anybody runs these tests.
pub const VALID: Years = Years(2020, 2100);

impl Authority {
    pub fn new(name: &str) -> Self {
        let (params, key) = (of_authority(name), KeyPair::generate().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            above: Vec::new(),
        }
    }

    /// One that this one vouches for.
    pub fn intermediate(&self, name: &str) -> Self {
        let (params, key) = (of_authority(name), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let own = certificate.der().clone();
        Self {
            issuer: Issuer::new(params, key),
            pem: certificate.pem(),
            above: [own].into_iter().chain(self.above.clone()).collect(),
        }
    }

    /// A certificate for these names and addresses.
    pub fn issue(&self, names: &[&str], years: Years) -> Identity {
        self.issue_with(params(names, years))
    }

    /// The same, for a certificate of any kind.
    pub fn issue_with(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            certificate: certificate.der().clone(),
            above: self.above.clone(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }
}

fn of_authority(name: &str) -> CertificateParams {
    let mut params = params(&[], VALID);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Parameters of a server's certificate that is marked as an authority.
pub fn marked_as_authority(names: &[&str], years: Years) -> CertificateParams {
    let mut params = params(names, years);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn params(names: &[&str], years: Years) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    params
}

/// A server's certificate and key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    above: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A certificate that is signed with its own key.
    pub fn self_signed(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: certificate.der().clone(),
            above: Vec::new(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    /// From the two files that `openssl req -x509 -nodes` writes.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Self {
        Self {
            certificate: CertificateDer::from_pem_slice(certificate).unwrap(),
            above: Vec::new(),
            key: PrivateKeyDer::from_pem_slice(key).unwrap(),
        }
    }

    /// Certificate and key as one PEM file.
    pub fn pem(&self) -> String {
        use base64::Engine;
        let block = |name: &str, der: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN {name}-----\n{text}\n-----END {name}-----\n")
        };
        block("CERTIFICATE", &self.certificate) + &block("PRIVATE KEY", self.key.secret_der())
    }

    /// What it shows, its own certificate first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let own = [self.certificate.clone()].into_iter();
        own.chain(self.above.clone()).collect()
    }

    fn mutual_config(&self, clients: &Authority) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let pem = rustls::pki_types::pem::PemObject::from_pem_slice(clients.pem.as_bytes());
        roots.add(pem.unwrap()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(self.chain(), self.key.clone_key());
        Arc::new(config.unwrap())
    }

    fn config(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder
            .with_no_client_auth()
            .with_single_cert(self.chain(), self.key.clone_key());
        Arc::new(config.unwrap())
    }
}
