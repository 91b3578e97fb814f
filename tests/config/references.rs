//! Configs that refer to others, and files with remote contents: fetched from real servers, verified, merged,
//! or refused with nothing changed. Ignition's own catalogue of cases (config, remote, net, merge), in our words.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use crate::support::http::{Authority, Request, Response, Routes, Server, VALID};
use crate::support::{self, TestRoot, machine_config, say};
use base64::Engine;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

/// What a server has to say: 9 bytes, no line break at the end.
const TEXT: &str = "some\ntext";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn data(bytes: impl AsRef<[u8]>) -> String {
    format!(
        "data:;base64,{}",
        base64::engine::general_purpose::STANDARD.encode(bytes)
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sha512(bytes: impl AsRef<[u8]>) -> String {
    format!("sha512-{}", hex(&Sha512::digest(bytes)))
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    format!("sha256-{}", hex(&Sha256::digest(bytes)))
}

/// A config that makes one file.
fn child(path: &str, text: &str) -> String {
    json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [
        {"path": path, "overwrite": true, "contents": {"source": data(text)}}]}})
    .to_string()
}

/// Answers where the headers are as they should be.
fn guarded(headers: &'static [(&str, &str)], body: Vec<u8>) -> impl Fn(&Request) -> Response {
    move |request| {
        let right = headers
            .iter()
            .all(|(name, value)| request.header(name) == Some(value));
        Response::new(if right { 200 } else { 400 }, &[], &body)
    }
}

/// The headers that a case sends.
const HEADERS: &[(&str, &str)] = &[("X-Auth", "token-of-the-case"), ("Keep-Alive", "300")];
/// Headers that a case puts in the place of the usual ones.
const OVER: &[(&str, &str)] = &[
    ("Accept", "application/json"),
    ("Accept-Encoding", "identity, compress"),
    ("User-Agent", "an agent of the case"),
];

/// Routes for one body under `/NAME`, packed, with headers, behind a redirect.
fn served(routes: Routes, name: &str, body: &[u8]) -> Routes {
    let at = |suffix: &str| format!("/{name}{suffix}");
    let (plain, packed) = (body.to_vec(), gzip(body));
    let (last, redirected) = (body.to_vec(), at("_redirected"));
    let stripped = move |request: &Request| match request.header("X-Auth") {
        Some(_) => Response::status(400),
        None => Response::ok(&last),
    };
    let target = redirected.clone();
    routes
        .at(&at(""), move |_| Response::ok(&plain))
        .at(&at("_gzip"), move |_| Response::ok(&packed))
        .at(&at("_headers"), guarded(HEADERS, body.to_vec()))
        .at(&at("_over"), guarded(OVER, body.to_vec()))
        .at(&at("_redirect"), move |_| Response::redirect(302, &target))
        .at(&redirected, stripped)
}

/// All servers of the catalogue.
struct Servers {
    plain: Server,
    first: Server,
    second: Server,
    first_ca: String,
    second_ca: String,
}

impl Servers {
    fn start() -> Self {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let (first_ca, second_ca) = (one.pem.clone(), two.pem.clone());
        let config = child("/srv/child", "of the child\n");
        let mut routes = Routes::new();
        routes = served(routes, "text", TEXT.as_bytes());
        routes = served(routes, "config", config.as_bytes());
        routes = served(routes, "ca", first_ca.as_bytes());
        let nested = |to: &str| json!({"ignition": {"version": "3.1.0", "config": {"merge": [{"source": to}]}}});
        let deep = nested(&data(child("/srv/deep", "deep\n"))).to_string();
        let bomb = gzip(&vec![b' '; 80 << 20]);
        let busy = |request: &Request| match request.nth {
            0..3 => Response::status(503),
            _ => Response::ok(TEXT),
        };
        routes = routes
            .at("/nested", move |_| Response::ok(&deep))
            .at("/bomb", move |_| Response::ok(&bomb))
            .at("/nothing", |_| Response::ok(""))
            .at("/none", |_| Response::status(204))
            .at("/busy", busy)
            .at("/silent", |_| Response::raw("").hold())
            .at("/slow", |_| {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
                Response::raw(head).drip([b'x'; 100], Duration::from_millis(100))
            })
            .at("/huge", |_| {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
                Response::raw(head).zeros(160_000)
            })
            .at("/endless", |_| Response::raw("HTTP/1.1 200 OK\r\n\r\n").zeros(160_000))
            .at("/loop", |_| Response::redirect(302, "/loop"))
            .at("/latin1", |_| Response::ok(b"{\"\xe9\": 1}"))
            .at("/broken", |_| Response::ok("{\"ignition\": {\"version\": \"3.0.0\"},}"))
            .at("/twice", |_| {
                let file = json!({"path": "/srv/a"});
                Response::ok(json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [file, file]}}).to_string())
            })
            .at("/invalid", |_| {
                Response::ok(json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [{"path": "a"}]}}).to_string())
            });
        let tls = |authority: &Authority| {
            let routes = Routes::new()
                .at("/text", |_| Response::ok(TEXT))
                .at("/config", |_| {
                    Response::ok(child("/srv/child", "of the child\n"))
                });
            Server::tls(routes, &authority.issue(&["127.0.0.1"], VALID))
        };
        Self {
            plain: Server::plain(routes),
            first: tls(&one),
            second: tls(&two),
            first_ca,
            second_ca,
        }
    }

    /// A case with its words replaced by what they stand for.
    fn fill(&self, text: &str) -> String {
        let headers = HEADERS.iter().chain(OVER);
        let headers: Vec<Value> = headers
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let config = child("/srv/child", "of the child\n");
        let pairs = [
            ("HTTP", self.plain.url("")),
            ("HERE", self.plain.url("").replace("http:", "")),
            ("TLS1", self.first.url("")),
            ("TLS2", self.second.url("")),
            (
                "NOBODY",
                format!("http://127.0.0.1:{}", support::unused_port(&["127.0.0.1"])),
            ),
            ("CA1DATA", data(&self.first_ca)),
            ("CABOTHDATA", data(self.first_ca.clone() + &self.second_ca)),
            ("CA1SUM", sha512(&self.first_ca)),
            ("TEXTSUM256", sha256(TEXT)),
            ("TEXTSUM", sha512(TEXT)),
            ("CONFIGSUM", sha512(&config)),
            (
                "CONFIGBIGSUM",
                sha512(&config).to_uppercase().replace("SHA", "sha"),
            ),
            ("OTHERSUM256", sha256("something else")),
            ("OTHERSUM", sha512("something else")),
            ("EMPTYSUM", sha512("")),
            ("HEADERS", json!(headers[..2]).to_string()),
            ("OVER", json!(headers[2..]).to_string()),
            (
                "WRONGHEADERS",
                json!([{"name": "X-Auth", "value": "wrong"}]).to_string(),
            ),
            ("CHILD2", data(child("/srv/second", "of the second\n"))),
            ("CHILD", data(&config)),
            ("PACKEDCHILD", data(gzip(config.as_bytes()))),
        ];
        let mut text = text.to_owned();
        for (word, value) in pairs {
            text = text.replace(&format!("<{word}>"), &value);
        }
        assert!(!text.contains('<'), "{text}");
        text
    }
}

enum Expect {
    /// Applied; these files have these contents.
    Applied(&'static [(&'static str, &'static str)]),
    /// Refused with these words, and nothing on disk is changed.
    Refused(&'static str),
}
use Expect::{Applied, Refused};

/// Topic, name, first and last minor version, config without its version, expectation.
type Case = (&'static str, &'static str, u64, u64, &'static str, Expect);

const CHILD: &[(&str, &str)] = &[("srv/child", "of the child\n")];
const BOTH: &[(&str, &str)] = &[("srv/child", "of the child\n"), ("srv/own", "own")];
const FILE: &[(&str, &str)] = &[("srv/a", TEXT)];

/// A file with this resource as its contents.
macro_rules! file {
    ($resource:literal) => {
        concat!(
            r#"{"storage":{"files":[{"path":"/srv/a","contents":"#,
            $resource,
            "}]}}"
        )
    };
}
/// A config that merges or is replaced by this resource, and has a file of its own.
macro_rules! refers {
    (merge $resource:literal) => {
        concat!(
            r#"{"ignition":{"config":{"merge":["#,
            $resource,
            r#"]}},"storage":{"files":[{"path":"/srv/own","contents":{"source":"data:,own"}}]}}"#
        )
    };
    (replace $resource:literal) => {
        concat!(
            r#"{"ignition":{"config":{"replace":"#,
            $resource,
            r#"}},"storage":{"files":[{"path":"/srv/own","contents":{"source":"data:,own"}}]}}"#
        )
    };
}
/// A file from the first TLS server, with these authorities and what follows.
macro_rules! trusting {
    ($authorities:literal, $more:literal) => {
        concat!(
            r#"{"ignition":{"security":{"tls":{"certificateAuthorities":["#,
            $authorities,
            r#"]}}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<TLS1>/text"}}"#,
            $more,
            "]}}"
        )
    };
}

const CASES: &[Case] = &[
    // Remote contents.
    (
        "remote",
        "a file over http",
        0,
        6,
        file!(r#"{"source":"<HTTP>/text"}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "a scheme in capitals",
        0,
        6,
        file!(r#"{"source":"HTTP:<HERE>/text"}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "headers",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text_headers","httpHeaders":<HEADERS>}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "headers are dropped by a redirect",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text_redirect","httpHeaders":<HEADERS>}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "headers in the place of the usual ones",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text_over","httpHeaders":<OVER>}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "gzip",
        0,
        6,
        file!(r#"{"source":"<HTTP>/text_gzip","compression":"gzip"}"#),
        Applied(FILE),
    ),
    (
        "remote",
        "an empty answer is an empty file",
        0,
        6,
        file!(r#"{"source":"<HTTP>/nothing"}"#),
        Applied(&[("srv/a", "")]),
    ),
    (
        "remote",
        "no content is an empty file",
        0,
        6,
        file!(r#"{"source":"<HTTP>/none"}"#),
        Applied(&[("srv/a", "")]),
    ),
    (
        "remote",
        "fragments",
        0,
        6,
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"<HTTP>/text"},"append":[{"source":"data:,%0A"},{"source":"<HTTP>/text_gzip","compression":"gzip"}]}]}}"#,
        Applied(&[("srv/a", "some\ntext\nsome\ntext")]),
    ),
    (
        "remote",
        "a wrong header",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text_headers","httpHeaders":<WRONGHEADERS>}"#),
        Refused("400"),
    ),
    (
        "remote",
        "a header without value",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text_headers","httpHeaders":[{"name":"X-Auth"}]}"#),
        Refused("the http header X-Auth has no value"),
    ),
    (
        "remote",
        "nothing there",
        0,
        6,
        file!(r#"{"source":"<HTTP>/nowhere"}"#),
        Refused("404"),
    ),
    (
        "remote",
        "an empty answer is not gzip",
        0,
        6,
        file!(r#"{"source":"<HTTP>/nothing","compression":"gzip"}"#),
        Refused("not valid gzip"),
    ),
    (
        "remote",
        "tftp",
        0,
        6,
        file!(r#"{"source":"tftp://127.0.0.1/text"}"#),
        Refused("tftp sources are not fetched"),
    ),
    (
        "remote",
        "s3",
        0,
        6,
        file!(r#"{"source":"s3://bucket/key"}"#),
        Refused("s3 sources are not fetched"),
    ),
    (
        "hash",
        "sha512 of a remote file",
        0,
        6,
        file!(r#"{"source":"<HTTP>/text","verification":{"hash":"<TEXTSUM>"}}"#),
        Applied(FILE),
    ),
    (
        "hash",
        "of what was packed, after unpacking",
        1,
        6,
        file!(
            r#"{"source":"<HTTP>/text_gzip","compression":"gzip","verification":{"hash":"<TEXTSUM256>"}}"#
        ),
        Applied(FILE),
    ),
    (
        "hash",
        "another sha512 of a remote file",
        0,
        6,
        file!(r#"{"source":"<HTTP>/text","verification":{"hash":"<OTHERSUM>"}}"#),
        Refused("does not match the hash in the config"),
    ),
    (
        "hash",
        "another sha256 of a remote file",
        1,
        6,
        file!(r#"{"source":"<HTTP>/text","verification":{"hash":"<OTHERSUM256>"}}"#),
        Refused("does not match the hash in the config"),
    ),
    // References.
    (
        "config",
        "replace",
        0,
        6,
        refers!(replace r#"{"source":"<HTTP>/config","verification":{"hash":"<CONFIGSUM>"}}"#),
        Applied(CHILD),
    ),
    (
        "config",
        "replace by data",
        0,
        6,
        refers!(replace r#"{"source":"<CHILD>"}"#),
        Applied(CHILD),
    ),
    (
        "config",
        "replace, packed",
        1,
        6,
        refers!(replace r#"{"source":"<HTTP>/config_gzip","compression":"gzip","verification":{"hash":"<CONFIGSUM>"}}"#),
        Applied(CHILD),
    ),
    (
        "config",
        "replace with headers",
        1,
        6,
        refers!(replace r#"{"source":"<HTTP>/config_headers","httpHeaders":<HEADERS>}"#),
        Applied(CHILD),
    ),
    (
        "config",
        "replace behind a redirect",
        1,
        6,
        refers!(replace r#"{"source":"<HTTP>/config_redirect","httpHeaders":<HEADERS>}"#),
        Applied(CHILD),
    ),
    (
        "config",
        "merge",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/config"}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge with a hash in capitals",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/config","verification":{"hash":"<CONFIGBIGSUM>"}}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge, packed",
        1,
        6,
        refers!(merge r#"{"source":"<HTTP>/config_gzip","compression":"gzip"}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge of packed data",
        1,
        6,
        refers!(merge r#"{"source":"<PACKEDCHILD>","compression":"gzip"}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge with headers",
        1,
        6,
        refers!(merge r#"{"source":"<HTTP>/config_headers","httpHeaders":<HEADERS>}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge behind a redirect",
        1,
        6,
        refers!(merge r#"{"source":"<HTTP>/config_redirect","httpHeaders":<HEADERS>}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "merge with headers in the place of the usual ones",
        1,
        6,
        refers!(merge r#"{"source":"<HTTP>/config_over","httpHeaders":<OVER>}"#),
        Applied(BOTH),
    ),
    (
        "config",
        "several are merged in order",
        0,
        6,
        refers!(merge r#"{"source":"<CHILD>"},{"source":"<CHILD2>"}"#),
        Applied(&[
            ("srv/child", "of the child\n"),
            ("srv/second", "of the second\n"),
            ("srv/own", "own"),
        ]),
    ),
    (
        "config",
        "a merged config merges another",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/nested"}"#),
        Applied(&[("srv/deep", "deep\n"), ("srv/own", "own")]),
    ),
    (
        "config",
        "replace leaves nothing of the rest",
        0,
        6,
        r#"{"ignition":{"config":{"merge":[{"source":"<HTTP>/nowhere"}],"replace":{"source":"<CHILD>"}}},"storage":{"files":[{"path":"/srv/child","contents":{"source":"data:,other"}}]}}"#,
        Applied(CHILD),
    ),
    (
        "config",
        "replace with another hash",
        0,
        6,
        refers!(replace r#"{"source":"<HTTP>/config","verification":{"hash":"<OTHERSUM>"}}"#),
        Refused("does not match the hash in the config"),
    ),
    (
        "config",
        "merge with another hash",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/config","verification":{"hash":"<OTHERSUM>"}}"#),
        Refused("does not match the hash in the config"),
    ),
    (
        "config",
        "replace by nothing",
        0,
        6,
        refers!(replace r#"{"source":"<HTTP>/nowhere"}"#),
        Refused("404"),
    ),
    (
        "config",
        "merge of nothing",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/nowhere"}"#),
        Refused("404"),
    ),
    (
        "config",
        "merge with a wrong header",
        1,
        6,
        refers!(merge r#"{"source":"<HTTP>/config_headers","httpHeaders":<WRONGHEADERS>}"#),
        Refused("400"),
    ),
    (
        "config",
        "an empty answer is not a config",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/nothing"}"#),
        Refused("the config there is empty"),
    ),
    (
        "config",
        "no content is not a config",
        0,
        6,
        refers!(replace r#"{"source":"<HTTP>/none"}"#),
        Refused("the config there is empty"),
    ),
    (
        "config",
        "an empty source is not a config",
        0,
        6,
        refers!(replace r#"{"source":"","verification":{"hash":"<EMPTYSUM>"}}"#),
        Refused("the config there is empty"),
    ),
    (
        "config",
        "a hash of an empty source counts too",
        0,
        6,
        refers!(replace r#"{"source":"","verification":{"hash":"<OTHERSUM>"}}"#),
        Refused("does not match the hash in the config"),
    ),
    (
        "config",
        "what is merged must be valid",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/invalid"}"#),
        Refused("storage.files[0].path: \"a\" is not an absolute path"),
    ),
    (
        "config",
        "what is merged names nothing twice",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/twice"}"#),
        Refused("storage.files[1].path: is already at storage.files[0].path"),
    ),
    (
        "config",
        "what is merged must be JSON",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/broken"}"#),
        Refused("line 1"),
    ),
    (
        "config",
        "what is merged must be text",
        0,
        6,
        refers!(merge r#"{"source":"<HTTP>/latin1"}"#),
        Refused("is not UTF-8 text"),
    ),
    (
        "config",
        "nothing is fetched by gs",
        2,
        6,
        refers!(merge r#"{"source":"gs://bucket/object"}"#),
        Refused("gs sources are not fetched"),
    ),
    // Merging.
    (
        "merge",
        "contents merge field by field",
        0,
        6,
        r#"{"ignition":{"config":{"merge":[{"source":"data:,%7B%22ignition%22%3A%7B%22version%22%3A%223.0.0%22%7D%2C%22storage%22%3A%7B%22files%22%3A%5B%7B%22path%22%3A%22%2Fsrv%2Fa%22%2C%22contents%22%3A%7B%22compression%22%3A%22gzip%22%7D%7D%2C%7B%22path%22%3A%22%2Fsrv%2Fb%22%2C%22contents%22%3A%7B%22source%22%3A%22data%3A%2CB%22%7D%7D%5D%7D%7D"}]}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<HTTP>/text_gzip"}},{"path":"/srv/b","mode":384}]}}"#,
        Applied(&[("srv/a", TEXT), ("srv/b", "B")]),
    ),
    (
        "merge",
        "two valid configs may be invalid together",
        0,
        6,
        r#"{"ignition":{"config":{"merge":[{"source":"<CHILD>"}]}},"storage":{"links":[{"path":"/srv","target":"/var/srv"}]}}"#,
        Refused("lies below the link"),
    ),
    // The network.
    (
        "net",
        "a busy server is asked again",
        0,
        0,
        file!(r#"{"source":"<HTTP>/busy"}"#),
        Applied(FILE),
    ),
    (
        "net",
        "a bundle of two authorities",
        0,
        6,
        trusting!(
            r#"{"source":"<CABOTHDATA>"}"#,
            r#",{"path":"/srv/b","contents":{"source":"<TLS2>/text"}}"#
        ),
        Applied(&[("srv/a", TEXT), ("srv/b", TEXT)]),
    ),
    (
        "net",
        "an authority that is fetched",
        0,
        6,
        trusting!(r#"{"source":"<HTTP>/ca"}"#, ""),
        Applied(FILE),
    ),
    (
        "net",
        "an authority that is packed",
        1,
        6,
        trusting!(
            r#"{"source":"<HTTP>/ca_gzip","compression":"gzip","verification":{"hash":"<CA1SUM>"}}"#,
            ""
        ),
        Applied(FILE),
    ),
    (
        "net",
        "an authority behind headers",
        1,
        6,
        trusting!(
            r#"{"source":"<HTTP>/ca_headers","httpHeaders":<HEADERS>}"#,
            ""
        ),
        Applied(FILE),
    ),
    (
        "net",
        "an authority behind a redirect",
        1,
        6,
        trusting!(
            r#"{"source":"<HTTP>/ca_redirect","httpHeaders":<HEADERS>}"#,
            ""
        ),
        Applied(FILE),
    ),
    (
        "net",
        "an authority for configs and files",
        0,
        6,
        r#"{"ignition":{"security":{"tls":{"certificateAuthorities":[{"source":"<CA1DATA>"}]}},"config":{"merge":[{"source":"<TLS1>/config"}]}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<TLS1>/text"}}]}}"#,
        Applied(&[("srv/child", "of the child\n"), ("srv/a", TEXT)]),
    ),
    (
        "net",
        "a config from an unknown authority",
        0,
        6,
        refers!(merge r#"{"source":"<TLS1>/config"}"#),
        Refused("authority"),
    ),
    (
        "net",
        "a file from an unknown authority",
        0,
        6,
        file!(r#"{"source":"<TLS1>/text"}"#),
        Refused("authority"),
    ),
    (
        "net",
        "an authority that cannot be fetched",
        0,
        6,
        trusting!(r#"{"source":"<HTTP>/nowhere"}"#, ""),
        Refused("404"),
    ),
    (
        "net",
        "an authority with another hash",
        0,
        6,
        trusting!(
            r#"{"source":"<HTTP>/ca","verification":{"hash":"<OTHERSUM>"}}"#,
            ""
        ),
        Refused("does not match the hash in the config"),
    ),
    (
        "net",
        "an authority that is none",
        0,
        6,
        trusting!(r#"{"source":"<HTTP>/text"}"#, ""),
        Refused("certificateAuthorities cannot be used"),
    ),
    (
        "net",
        "only one of two servers is trusted",
        0,
        6,
        trusting!(
            r#"{"source":"<CA1DATA>"}"#,
            r#",{"path":"/srv/b","contents":{"source":"<TLS2>/text"}}"#
        ),
        Refused("authority"),
    ),
    (
        "net",
        "headers that do not come in time",
        0,
        0,
        r#"{"ignition":{"timeouts":{"httpResponseHeaders":1,"httpTotal":2}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<HTTP>/silent"}}]}}"#,
        Refused("the time of 2.0 s is over"),
    ),
    (
        "net",
        "a config that does not come in time",
        0,
        0,
        r#"{"ignition":{"config":{"merge":[{"source":"<HTTP>/silent"}]},"timeouts":{"httpTotal":1}}}"#,
        Refused("the time of 1.0 s is over"),
    ),
    (
        "net",
        "a body that comes byte by byte",
        0,
        0,
        r#"{"ignition":{"timeouts":{"httpTotal":1}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<HTTP>/slow"}}]}}"#,
        Refused("the time of 1.0 s is over"),
    ),
    (
        "net",
        "nobody listens",
        0,
        0,
        r#"{"ignition":{"timeouts":{"httpTotal":1}},"storage":{"files":[{"path":"/srv/a","contents":{"source":"<NOBODY>/"}}]}}"#,
        Refused("refused"),
    ),
    // Bounds.
    (
        "bounds",
        "a redirect in a circle",
        0,
        0,
        file!(r#"{"source":"<HTTP>/loop"}"#),
        Refused("redirect"),
    ),
    (
        "bounds",
        "10 GB that are announced",
        0,
        0,
        file!(r#"{"source":"<HTTP>/huge"}"#),
        Refused("larger than the 536870912 bytes that are allowed"),
    ),
    (
        "bounds",
        "a config without end",
        0,
        0,
        refers!(merge r#"{"source":"<HTTP>/endless"}"#),
        Refused("larger than the 67108864 bytes that are allowed"),
    ),
    (
        "bounds",
        "a config that unpacks to 80 MiB",
        1,
        1,
        refers!(merge r#"{"source":"<HTTP>/bomb","compression":"gzip"}"#),
        Refused("64 MiB"),
    ),
];

/// What is wrong with one case in one version; nothing if it is right.
fn judge(servers: &Servers, case: &Case, minor: u64) -> Option<String> {
    let (topic, name, _, _, config, expect) = case;
    let root = TestRoot::new();
    let before = root.everything();
    let mut config: Value = serde_json::from_str(&servers.fill(config)).unwrap();
    config["ignition"]["version"] = json!(format!("3.{minor}.0"));
    let config = root.config(&config);
    let run = root.run(&["apply", "--yes", config.path()]);
    let said = (run.out() + &run.err())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let right = match expect {
        Applied(files) => {
            run.code() == 0
                && files
                    .iter()
                    .all(|(path, text)| root.exists(path) && root.read(path) == *text)
                && root
                    .everything()
                    .keys()
                    .filter(|path| path.starts_with("srv/"))
                    .count()
                    == files.len()
        }
        Refused(words) => run.code() == 1 && said.contains(words) && root.everything() == before,
    };
    (!right).then(|| format!("{topic}: {name} (3.{minor}): exit {}: {said}\n", run.code()))
}

#[test]
fn the_catalogue_of_references_comes_out_as_ignition_has_it() {
    let servers = Servers::start();
    let mut wrong = Vec::new();
    let mut runs = 0;
    let mut topics = BTreeMap::new();
    for case in CASES {
        *topics.entry(case.0).or_insert(0) += 1;
        for minor in case.2..=case.3 {
            runs += 1;
            wrong.extend(judge(&servers, case, minor));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    say(&format!(
        "{} catalogue cases in {runs} runs: {topics:?}",
        CASES.len()
    ));
}

fn ignition(mut config: Value) -> Value {
    config["ignition"]["version"] = json!("3.4.0");
    config
}

fn refused(root: &TestRoot, config: &Value, words: &str) {
    let before = root.everything();
    let config = root.config(config);
    let run = root.run(&["apply", "--yes", config.path()]).exits(1);
    let said = (run.out() + &run.err())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(said.contains(words), "{said}");
    assert_eq!(root.everything(), before);
}

#[test]
fn a_config_that_refers_to_itself_is_refused() {
    let server = Server::plain(
        Routes::new()
            .at("/self", |request| {
                let host = request.header("Host").unwrap();
                let config =
                    json!({"config": {"merge": [{"source": format!("http://{host}/other")}]}});
                Response::ok(ignition(json!({"ignition": config})).to_string())
            })
            .at("/other", |request| {
                let host = request.header("Host").unwrap();
                let config =
                    json!({"config": {"merge": [{"source": format!("http://{host}/self")}]}});
                Response::ok(ignition(json!({"ignition": config})).to_string())
            }),
    );
    let config = json!({"ignition": {"config": {"replace": {"source": server.url("/self")}}}});
    refused(
        &TestRoot::new(),
        &ignition(config),
        "the config refers to itself",
    );
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn configs_are_nested_no_deeper_than_allowed() {
    let nested = |depth: usize| {
        let mut config: Value = serde_json::from_str(&child("/srv/child", "deep\n")).unwrap();
        for _ in 0..depth {
            let source = data(config.to_string());
            config = ignition(json!({"ignition": {"config": {"merge": [{"source": source}]}}}));
        }
        config
    };
    let root = TestRoot::new();
    root.apply(&nested(16));
    assert_eq!(root.read("srv/child"), "deep\n");
    refused(&TestRoot::new(), &nested(17), "more than 16 levels deep");
}

#[test]
fn configs_pull_in_no_more_than_allowed() {
    let wide = |count: usize| {
        let source = |n: usize| json!({"source": data(child(&format!("/srv/{n}"), "x"))});
        let merge: Vec<Value> = (0..count).map(source).collect();
        ignition(json!({"ignition": {"config": {"merge": merge}}}))
    };
    let root = TestRoot::new();
    root.apply(&wide(128));
    assert!(root.exists("srv/127"));
    refused(&TestRoot::new(), &wide(129), "more than 128 references");
}

/// With so little address space that whoever held what comes in memory would die.
#[test]
fn what_is_too_large_is_refused_within_bounded_memory() {
    let servers = Servers::start();
    for (resource, words) in [
        (r#"{"source":"<HTTP>/endless"}"#, "bytes that are allowed"),
        (r#"{"source":"<HTTP>/huge"}"#, "bytes that are allowed"),
        (
            r#"{"source":"<HTTP>/bomb","compression":"gzip"}"#,
            "more than 64 MiB",
        ),
    ] {
        let config = r#"{"ignition":{"version":"3.4.0","config":{"merge":[RESOURCE]}}}"#;
        let config: Value =
            serde_json::from_str(&servers.fill(&config.replace("RESOURCE", resource))).unwrap();
        let root = TestRoot::new();
        let config = root.config(&config);
        let run = std::process::Command::new("prlimit")
            .args(["--as=268435456", "--core=0", support::PROGRAM, "--root"])
            .arg(root.dir())
            .args(["plan", config.path()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{resource}: {said}");
        assert!(said.contains(words), "{resource}: {said}");
    }
}

#[test]
fn a_proxy_is_asked_for_configs_and_files_alike() {
    let proxy = Server::plain(
        Routes::new().at("*", |request| match request.target.as_str() {
            "http://config.example/config" => Response::ok(child("/srv/child", "by proxy\n")),
            "http://file.example/text" => Response::ok(TEXT),
            _ => Response::status(404),
        }),
    );
    let root = TestRoot::new();
    root.apply(&ignition(json!({
        "ignition": {
            "proxy": {"httpProxy": proxy.url("")},
            "config": {"merge": [{"source": "http://config.example/config"}]},
        },
        "storage": {"files": [{"path": "/srv/a", "contents": {"source": "http://file.example/text"}}]},
    })));
    assert_eq!(
        (root.read("srv/child").as_str(), root.read("srv/a").as_str()),
        ("by proxy\n", TEXT)
    );
}

#[test]
fn a_header_of_the_parent_is_changed_and_taken_away_by_the_child() {
    let server = Server::plain(Routes::new().at("/text", |_| Response::ok(TEXT)));
    let file = |headers: Value| {
        json!({"storage": {"files": [{"path": "/srv/a", "contents": {
            "source": server.url("/text"), "httpHeaders": headers}}]}})
    };
    let child = ignition(file(json!([
        {"name": "gone"}, {"name": "new", "value": "n"}, {"name": "same", "value": "child"}])));
    let mut parent = file(json!([
        {"name": "old", "value": "o"}, {"name": "same", "value": "parent"}, {"name": "gone", "value": "g"}]));
    parent["ignition"] = json!({"config": {"merge": [{"source": data(child.to_string())}]}});
    TestRoot::new().apply(&ignition(parent));
    let request = server.requests().pop().unwrap();
    let sent = ["old", "same", "new", "gone"].map(|name| request.header(name).unwrap_or("-"));
    assert_eq!(sent, ["o", "child", "n", "-"]);
}

#[test]
fn the_pointer_of_a_node_leads_to_the_config_that_its_server_serves() {
    let authority = Authority::new("root-ca");
    let rendered = machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [support::file("/etc/of-the-pool", 0o644, "pool\n")]}}),
    );
    let mut served = rendered["spec"]["config"].clone();
    let content = support::file(
        "/etc/mcs-machine-config-content.json",
        0o600,
        &rendered.to_string(),
    );
    served["storage"]["files"]
        .as_array_mut()
        .unwrap()
        .push(content);
    let body = served.to_string();
    let routes = Routes::new().at("/config/worker", move |_| Response::ok(&body));
    let server = Server::tls(routes, &authority.issue(&["127.0.0.1"], VALID));
    let pointer = ignition(json!({"ignition": {
        "config": {"merge": [{"source": server.url("/config/worker")}]},
        "security": {"tls": {"certificateAuthorities": [{"source": data(&authority.pem)}]}},
    }}));
    let root = TestRoot::new();
    root.apply(&pointer);
    assert_eq!(root.read("etc/of-the-pool"), "pool\n");
    let record: Value =
        serde_json::from_str(&root.read("etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(record, rendered);
    let accept = server.requests()[0].header("Accept").unwrap().to_owned();
    assert!(accept.contains("version=3."), "{accept}");
}

#[test]
fn special_bits_of_an_older_config_stay_off_below_a_newer_one() {
    let mut old = support::file("/srv/old", 0o4755, "x");
    old["overwrite"] = json!(true);
    let old = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [old]}});
    let new = json!({
        "ignition": {"version": "3.6.0", "config": {"merge": [{"source": data(old.to_string())}]}},
        "storage": {"files": [support::file("/srv/new", 0o4755, "x")]},
    });
    let root = TestRoot::new();
    root.apply(&new);
    assert_eq!(
        (root.mode("srv/old"), root.mode("srv/new")),
        (0o755, 0o4755)
    );
}

#[test]
fn an_older_spec_may_be_referred_to_and_its_appends_too() {
    let grandchild = child("/srv/grandchild", "g\n");
    let old = json!({"ignition": {"version": "2.2.0",
        "config": {"append": [{"source": data(grandchild)}]}},
        "storage": {"files": [{"filesystem": "root", "path": "/srv/old", "contents": {"source": "data:,2"}}]}});
    let root = TestRoot::new();
    root.apply(&ignition(
        json!({"ignition": {"config": {"merge": [{"source": data(old.to_string())}]}}}),
    ));
    assert_eq!(
        (
            root.read("srv/old").as_str(),
            root.read("srv/grandchild").as_str()
        ),
        ("2", "g\n")
    );
}

#[test]
fn messages_name_the_place_and_hide_what_a_url_may_carry() {
    let server = Server::plain(Routes::new());
    let source = server.url("/a").replace("http://", "http://user:secret@") + "?token=secret";
    let root = TestRoot::new();
    let config = root.config(&ignition(
        json!({"ignition": {"config": {"merge": [{"source": source}]}}}),
    ));
    let run = root.run(&["-vv", "plan", config.path()]).exits(1);
    let said = run.out() + &run.err();
    assert!(said.contains("ignition.config.merge[0] of "), "{said}");
    assert!(said.contains("/a") && !said.contains("secret"), "{said}");
}

#[test]
fn warnings_of_every_config_are_said_once_with_its_source() {
    let server = Server::plain(Routes::new().at("/c", |_| {
        Response::ok(ignition(json!({"odd": 1, "systemd": {"units": [
            {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"}]}})).to_string())
    }));
    let root = TestRoot::new();
    let config = root.config(&ignition(json!({"own": 2, "ignition": {"config": {
        "merge": [{"source": server.url("/c")}]}}})));
    let plan = root
        .run(&["plan", config.path(), "--output", "json"])
        .ok()
        .json();
    let subjects: Vec<String> = plan["notices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|notice| notice["subject"].as_str().unwrap().to_owned())
        .collect();
    let of_child = |path: &str| format!("{path} of {}", server.url("/c"));
    for wanted in [
        "own".to_owned(),
        of_child("odd"),
        of_child("systemd.units[0]"),
    ] {
        let count = subjects
            .iter()
            .filter(|subject| **subject == wanted)
            .count();
        assert_eq!(count, 1, "{wanted}: {subjects:?}");
    }
    assert!(
        !subjects.contains(&"systemd.units[0]".to_owned()),
        "{subjects:?}"
    );
}

#[test]
fn a_second_run_fetches_again_and_changes_nothing() {
    let server = Server::plain(served(Routes::new(), "text", TEXT.as_bytes()));
    let config = ignition(json!({"storage": {"files": [
        {"path": "/srv/a", "contents": {"source": server.url("/text")}}]}}));
    let root = TestRoot::new();
    root.apply(&config);
    let path = root.config(&config);
    let plan = root
        .run(&["plan", path.path(), "--output", "json"])
        .ok()
        .json();
    assert_eq!(plan["steps"], json!([]));
    root.run(&["verify", path.path()]).ok();
    assert_eq!(root.run(&["show", path.path(), "/srv/a"]).ok().out(), TEXT);
    drop(server);
}
