//! Every cause for which a `fetch` fails, produced for real: one table of what is said and what to do next, which
//! docs/reference/fetch.md repeats.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::http::{Authority, Identity, Response, Routes, Server, VALID, Years};
use crate::support::mcs::{ca, fetch_within, rendered, server};
use crate::support::{self, Lacks, PROGRAM, Run, TestRoot, flat_run, is_root, say, skip};

/// A cause, how it is told, and the next step.
struct Row {
    cause: &'static str,
    said: String,
    words: &'static str,
    next: &'static str,
}

/// The people who ask: a node that trusts one authority.
struct Node {
    authority: Authority,
    trusted: tempfile::NamedTempFile,
}

impl Node {
    fn new() -> Self {
        let authority = Authority::new("mcs");
        Self {
            trusted: ca(&authority),
            authority,
        }
    }

    fn arguments<'a>(&'a self, server: &'a str, pool: &'a str) -> [&'a str; 6] {
        let trusted = self.trusted.path().to_str().unwrap();
        ["--pool", pool, "--server", server, "--ca", trusted]
    }

    fn good(&self) -> Identity {
        self.authority.issue(&["127.0.0.1"], VALID)
    }

    /// A server for pool worker that answers so.
    fn answering(&self, response: impl Fn() -> Response + Send + Sync + 'static) -> Server {
        let routes = Routes::new().at("/config/worker", move |_| response());
        Server::tls(routes, &self.good())
    }

    /// What a fetch from there says; it fails, and leaves nothing behind.
    fn told(&self, seconds: u32, server: &str, pool: &str, more: &[&str]) -> String {
        let root = TestRoot::new();
        let before = root.everything();
        let arguments = [&self.arguments(server, pool)[..], more].concat();
        let said = flat_run(&fetch_within(seconds, &root, &arguments).exits(1));
        assert_eq!(root.everything(), before, "{said}");
        said
    }

    /// A cause that ends a fetch at once.
    fn row(
        &self,
        cause: &'static str,
        server: &str,
        words: &'static str,
        next: &'static str,
    ) -> Row {
        let said = self.told(60, server, "worker", &[]);
        Row {
            cause,
            said,
            words,
            next,
        }
    }

    /// A cause that may pass, so that a fetch tries again as long as it has time.
    fn passing(
        &self,
        cause: &'static str,
        server: &str,
        words: &'static str,
        next: &'static str,
    ) -> Row {
        let said = self.told(2, server, "worker", &[]);
        Row {
            cause,
            said,
            words,
            next,
        }
    }
}

fn network(node: &Node, table: &mut Vec<Row>) {
    let next = "give the address with --resolve";
    table.push(node.passing(
        "name",
        "no-such-name.invalid",
        "could not be resolved",
        next,
    ));
    let port = support::unused_port(&["127.0.0.1"]);
    let next = "check that the server is running and listens on that port, and that no firewall rejects it";
    table.push(node.passing(
        "refused",
        &format!("127.0.0.1:{port}"),
        "connection refused",
        next,
    ));
    if is_root() {
        let root = TestRoot::new();
        let mut command = Command::new("unshare");
        command
            .args(["--net", PROGRAM, "--root"])
            .arg(root.dir())
            .args(["fetch", "--timeout", "1"]);
        command
            .args(node.arguments("203.0.113.1", "worker"))
            .stdin(Stdio::null());
        table.push(Row {
            cause: "no route",
            said: flat_run(&Run::of(command.output().unwrap()).exits(1)),
            words: "network is unreachable",
            next: "give this node an address and a route to it (`ip route`)",
        });
    } else {
        skip(Lacks::Root, "a network namespace needs root");
    }
    let silent = node.answering(|| Response::raw("").hold());
    let words = "is over, and the server accepted the connection, but sent no answer within";
    table.push(node.passing("silence", &silent.url(""), words, "allow more time"));
}

fn certificates(node: &Node, table: &mut Vec<Row>) {
    let with = |names: &[&str], years| {
        let routes = Routes::new().at("/config/worker", |_| Response::ok("{}"));
        Server::tls(routes, &node.authority.issue(names, years))
    };
    let foreign = server(
        &Authority::new("other"),
        &rendered("rendered-worker-a", "x\n"),
    );
    table.push(node.row(
        "unknown authority",
        &foreign.url(""),
        "signed by no authority that is trusted here",
        "give the certificate of the authority that signed it (--ca FILE)",
    ));
    table.push(node.passing(
        "expired",
        &with(&["127.0.0.1"], Years(2001, 2002)).url(""),
        "the server's certificate expired on",
        "set this node's clock if it is wrong, otherwise renew the server's certificate",
    ));
    table.push(node.passing(
        "not yet valid",
        &with(&["127.0.0.1"], Years(2090, 2091)).url(""),
        "the server's certificate is valid only from",
        "set this node's clock",
    ));
    table.push(node.row(
        "another name",
        &with(&["api.example"], VALID).url(""),
        "the server's certificate is not for",
        "use one of these names in the URL",
    ));
    let plain = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = plain.local_addr().unwrap();
    std::thread::spawn(move || {
        let refuse = |stream: &mut std::net::TcpStream| {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        };
        plain
            .incoming()
            .flatten()
            .for_each(|mut stream| refuse(&mut stream).unwrap_or_default());
    });
    table.push(node.passing(
        "no TLS",
        &format!("https://{address}"),
        "the server does not speak TLS on this port",
        "correct the port",
    ));
}

/// A server that knows nothing newer than TLS 1.1; it ends with this value.
struct Old(Child, u16);

impl Old {
    fn new() -> Option<Self> {
        let work = tempfile::tempdir().unwrap();
        let identity = work.path().join("old.pem");
        std::fs::write(
            &identity,
            Authority::new("old").issue(&["127.0.0.1"], VALID).pem(),
        )
        .unwrap();
        let port = support::unused_port(&["127.0.0.1"]);
        let mut command = Command::new("openssl");
        command.args([
            "s_server",
            "-tls1_1",
            "-cipher",
            "ALL:@SECLEVEL=0",
            "-quiet",
            "-accept",
        ]);
        command
            .arg(format!("127.0.0.1:{port}"))
            .arg("-cert")
            .arg(&identity);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(Self(child, port));
            }
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        None
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn protocol(node: &Node, table: &mut Vec<Row>) {
    match Old::new() {
        Some(old) => table.push(node.passing(
            "old protocol",
            &format!("127.0.0.1:{}", old.1),
            "TLS:",
            "look at the log of the server and at its TLS settings",
        )),
        None => skip(
            Lacks::other_version("openssl"),
            "no openssl that serves TLS 1.1",
        ),
    }
}

fn answers(node: &Node, table: &mut Vec<Row>) {
    let config = rendered("rendered-worker-a", "x\n");
    let said = node.told(2, &server(&node.authority, &config).url(""), "infra", &[]);
    table.push(Row {
        cause: "HTTP 500",
        said,
        words: "this server answers 500 also for an unknown pool",
        next: "look at the log of the server",
    });
    table.push(node.row(
        "HTTP 404",
        &node.answering(|| Response::status(404)).url(""),
        "the pool has no rendered config there yet",
        "correct the URL",
    ));
    table.push(
        node.row(
            "redirects in a circle",
            &node
                .answering(|| Response::redirect(302, "/config/worker"))
                .url(""),
            "the server redirects in a circle",
            "give the URL that it should end at",
        ),
    );
    let cut = || Response::raw("HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n{\"k").cut();
    table.push(node.passing(
        "body cut short",
        &node.answering(cut).url(""),
        "the body is cut short",
        "try again",
    ));
    let slow = || {
        let head = Response::raw("HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n");
        head.drip(vec![b' '; 1000], Duration::from_millis(100))
    };
    table.push(node.passing(
        "too slow",
        &node.answering(slow).url(""),
        "and the body is cut short",
        "allow more time",
    ));
}

fn contents(node: &Node, table: &mut Vec<Row>) {
    table.push(node.row(
        "no JSON",
        &node.answering(|| Response::ok("{\"kind\": ")).url(""),
        "not valid JSON",
        "Check whether it is complete, and where it comes from",
    ));
    table.push(
        node.row(
            "Ignition 2",
            &node
                .answering(|| Response::ok("{\"ignition\": {\"version\": \"2.2.0\"}}"))
                .url(""),
            "came as Ignition 2 although 3 was asked for",
            "Check what is in front of the server and drops the Accept header",
        ),
    );
    let config = rendered("rendered-master-a", "x\n");
    table.push(node.row(
        "another pool",
        &server(&node.authority, &config).url(""),
        "of pool master, not of pool worker",
        "give --pool master, or ask another server",
    ));
    let good = server(&node.authority, &rendered("rendered-worker-a", "x\n"));
    let zeros = "0".repeat(64);
    table.push(Row {
        cause: "different digest",
        said: node.told(60, &good.url(""), "worker", &["--sha256", &zeros]),
        words: "the received data has a different digest",
        next: "Ask for the right digest, or get the document again",
    });
    let plain = Server::plain(Routes::new());
    table.push(node.row(
        "no https",
        &plain.url(""),
        "is not encrypted, so the answer is not authenticated",
        "Use https, or give the right digest: --sha256 HEX",
    ));
}

#[test]
fn every_cause_is_reported_with_what_to_do_next_and_the_manual_says_the_same() {
    let node = Node::new();
    let mut table = Vec::new();
    network(&node, &mut table);
    certificates(&node, &mut table);
    protocol(&node, &mut table);
    answers(&node, &mut table);
    contents(&node, &mut table);
    let manual = std::fs::read_to_string("docs/reference/fetch.md").unwrap();
    let rows: Vec<&str> = manual
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    for row in &table {
        let Row {
            cause,
            said,
            words,
            next,
        } = row;
        let found = said
            .find(words)
            .unwrap_or_else(|| panic!("{cause}: {said}"));
        assert!(said.get(found..).unwrap().contains(next), "{cause}: {said}");
        let told = rows
            .iter()
            .any(|line| [cause, words, next].iter().all(|text| line.contains(*text)));
        assert!(
            told,
            "docs/reference/fetch.md has no row for {cause} with {words:?} and {next:?}"
        );
        let last = said.rsplit("error: ").next().unwrap();
        say(&format!("| {cause} | {last} |"));
    }
    say(&format!("{} causes", table.len()));
}
