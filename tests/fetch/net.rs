//! Fetching over HTTP and TLS, against servers that behave, misbehave, lie, stall and hang up.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

use crate::support::http::{
    Authority, Identity, Response, Routes, Server, VALID, Years, loopback, marked_as_authority,
};
use crate::support::{Lacks, is_root, say, skip, unused_port};
use mco_rescue::host::net::{
    self, ACCEPT, BundleError, FetchAnswer, FetchCause, FetchError, FetchProgress, FetchRequest,
    FetchSettings, MAX_REDIRECTS, ProxySettings, TlsProblem,
};
use sha2::{Digest, Sha256};

const LIMIT: u64 = 1 << 20;

/// Bounds that no test on loopback needs, unless it is about them.
fn settings() -> FetchSettings {
    FetchSettings {
        total_timeout: Some(Duration::from_secs(20)),
        ..FetchSettings::default()
    }
}

fn bounded(milliseconds: u64) -> FetchSettings {
    FetchSettings {
        total_timeout: Some(Duration::from_millis(milliseconds)),
        ..FetchSettings::default()
    }
}

fn trusting(authority: &Authority) -> FetchSettings {
    FetchSettings {
        certificates: net::parse_bundle(authority.pem.as_bytes()).unwrap(),
        ..settings()
    }
}

fn resolving(mut settings: FetchSettings, names: &[&str]) -> FetchSettings {
    let address = loopback(0).ip();
    settings.names.given = names.iter().map(|n| ((*n).to_owned(), address)).collect();
    settings
}

fn get(settings: &FetchSettings, url: &str) -> Result<FetchAnswer, FetchError> {
    net::fetch_url(settings, &FetchRequest::new(url, LIMIT), &mut |_| {})
}

fn once(settings: &FetchSettings, url: &str) -> Result<FetchAnswer, FetchError> {
    let request = FetchRequest {
        retry: false,
        ..FetchRequest::new(url, LIMIT)
    };
    net::fetch_url(settings, &request, &mut |_| {})
}

fn failure(result: Result<FetchAnswer, FetchError>) -> FetchError {
    let error = result.expect_err("it must not work");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains("; "), "{text}");
    say(&text);
    error
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    loopback(unused_port(&["127.0.0.1"]))
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

// Requests and answers

#[test]
fn a_request_has_ignitions_headers_and_the_answer_is_whole() {
    let server = Server::plain(Routes::new().at("/config", |_| {
        let headers = [
            ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Content-Type", "application/json"),
        ];
        Response::new(200, &headers, "{}")
    }));
    let answer = get(&settings(), &server.url("/config?pool=worker")).unwrap();
    assert_eq!((answer.status, answer.bytes.as_slice()), (200, &b"{}"[..]));
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    assert_eq!(answer.date, Some(date));
    assert_eq!(answer.url, server.url("/config?..."));

    let asked = &server.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("GET", "/config?pool=worker")
    );
    assert_eq!(
        asked.header("user-agent"),
        Some(concat!("mco-rescue/", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(
        asked.header("accept"),
        Some("application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1")
    );
    assert_eq!(asked.header("accept-encoding"), Some("identity"));
    let host = server.address().to_string();
    assert_eq!(asked.header("host"), Some(host.as_str()));
}

#[test]
fn headers_of_the_caller_replace_the_defaults() {
    let server = Server::plain(Routes::new().at("/", |_| Response::ok("")));
    let url = server.url("/");
    let request = FetchRequest {
        headers: vec![
            header("accept", "text/plain"),
            header("X-Token", "one"),
            header("x-token", "two"),
            header("Host", "elsewhere"),
        ],
        ..FetchRequest::new(&url, LIMIT)
    };
    net::fetch_url(&settings(), &request, &mut |_| {}).unwrap();
    let asked = &server.requests()[0];
    let of = |name: &str| -> Vec<&str> {
        let named = asked.headers.iter();
        named
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    };
    assert_eq!(of("accept"), ["text/plain"]);
    assert_eq!(of("x-token"), ["two"]);
    assert_eq!(of("host"), [server.address().to_string()]);
}

#[test]
fn no_content_is_a_success_without_bytes() {
    let server = Server::plain(Routes::new().at("/", |_| Response::status(204)));
    let answer = get(&settings(), &server.url("/")).unwrap();
    assert_eq!((answer.status, answer.bytes.len()), (204, 0));
}

#[test]
fn chunked_bodies_and_bodies_that_end_with_the_connection_are_whole() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    let server = Server::plain(
        Routes::new()
            .at("/chunked", move |_| Response::raw(chunked))
            .at("/ended", |_| Response::raw("HTTP/1.0 200 OK\r\n\r\nabcde")),
    );
    for path in ["/chunked", "/ended"] {
        let answer = get(&settings(), &server.url(path)).unwrap();
        assert_eq!(answer.bytes, b"abcde", "{path}");
    }
}

#[test]
fn a_login_in_the_url_becomes_a_header_and_is_never_told() {
    let server = Server::plain(Routes::new().at("/", |r| {
        Response::status(if r.header("authorization").is_some() {
            403
        } else {
            401
        })
    }));
    let url = format!(
        "http://me:p%40ss-word@{}/?token=hidden-token",
        server.address()
    );
    let error = failure(get(&settings(), &url));
    assert!(matches!(error.cause, FetchCause::Status(403)), "{error}");
    let expected = "Basic bWU6cEBzcy13b3Jk";
    assert_eq!(server.requests()[0].header("authorization"), Some(expected));
    let all = format!("{error} {error:?}");
    assert!(
        !all.contains("p%40ss") && !all.contains("p@ss") && !all.contains("hidden-token"),
        "{all}"
    );
}

#[test]
fn what_is_not_a_request_is_reported_before_anything_is_sent() {
    let error = failure(get(&settings(), "ftp://me:secret@host/x?secret"));
    assert!(matches!(error.cause, FetchCause::BadUrl(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(error.attempts, 0);

    let request = FetchRequest {
        headers: vec![header("X-Token", "secret\r\nX-Other: 1")],
        ..FetchRequest::new("http://127.0.0.1:1/", LIMIT)
    };
    let error = failure(net::fetch_url(&settings(), &request, &mut |_| {}));
    assert!(matches!(&error.cause, FetchCause::BadHeader(name) if name == "X-Token"));
    assert!(!error.to_string().contains("secret"), "{error}");
}

// Attempts

#[test]
fn server_errors_are_tried_again_and_reported() {
    let server = Server::plain(Routes::new().at("/", |r| match r.nth {
        0 => Response::status(500),
        1 => Response::status(503),
        _ => Response::ok("here"),
    }));
    let mut told = Vec::new();
    let url = server.url("/");
    let answer = net::fetch_url(&settings(), &FetchRequest::new(&url, LIMIT), &mut |p| {
        if let FetchProgress::Failed {
            attempt,
            cause: FetchCause::Status(code),
        } = p
        {
            told.push((attempt, *code));
        }
    });
    assert_eq!(answer.unwrap().bytes, b"here");
    assert_eq!(told, [(1, 500), (2, 503)]);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn statuses_below_500_are_final() {
    for code in [201, 206, 304, 401, 403, 404, 429] {
        let server = Server::plain(Routes::new().at("/", move |_| Response::status(code)));
        let error = failure(get(&settings(), &server.url("/")));
        assert!(
            matches!(error.cause, FetchCause::Status(c) if c == code),
            "{error}"
        );
        assert_eq!(server.requests().len(), 1, "{code}");
    }
}

#[test]
fn a_server_that_is_not_up_yet_is_waited_for() {
    let address = nobody();
    let (mut server, mut failed) = (None, 0);
    let url = format!("http://{address}/");
    let answer = net::fetch_url(&settings(), &FetchRequest::new(&url, LIMIT), &mut |p| {
        if let FetchProgress::Failed {
            cause: FetchCause::Refused(a),
            ..
        } = p
        {
            assert_eq!(*a, address);
            failed += 1;
            let routes = Routes::new().at("/", |_| Response::ok("up"));
            server.get_or_insert_with(|| Server::at(address, routes));
        }
    });
    assert_eq!((answer.unwrap().bytes.as_slice(), failed), (&b"up"[..], 1));
}

#[test]
fn attempts_end_with_the_time_of_the_fetch_and_of_the_run() {
    let url = format!("http://{}/", nobody());
    let error = failure(get(&bounded(1000), &url));
    assert!(matches!(error.cause, FetchCause::Refused(_)), "{error}");
    // At once, after 0.2 s and after 0.6 s; a fourth would come at 1.4 s.
    assert!((2..=3).contains(&error.attempts), "{error}");
    assert!(error.spent < Duration::from_secs(1), "{error}");

    let run = FetchSettings {
        deadline: Some(Instant::now() + Duration::from_millis(100)),
        ..settings()
    };
    let error = failure(get(&run, &url));
    assert_eq!(error.attempts, 1);
    assert!(error.spent < Duration::from_secs(1));
}

// Time

#[test]
fn bounds_may_be_any_number() {
    let authority = Authority::new("CA");
    let server = Server::tls(greeting(), &authority.issue(&["127.0.0.1"], VALID));
    for bound in [Duration::ZERO, Duration::MAX] {
        let settings = FetchSettings {
            header_timeout: bound,
            connect_timeout: bound,
            total_timeout: Some(Duration::MAX),
            ..trusting(&authority)
        };
        let answer = once(&settings, &server.url("/")).unwrap();
        assert_eq!(answer.bytes, b"hello");
    }
}

#[test]
fn a_server_that_keeps_silent_is_given_up() {
    let server = Server::plain(Routes::new().at("/", |_| Response::raw("").hold()));
    let settings = FetchSettings {
        header_timeout: Duration::from_millis(100),
        ..settings()
    };
    let error = failure(once(&settings, &server.url("/")));
    assert!(
        matches!(error.cause, FetchCause::HeaderTimeout { .. }),
        "{error}"
    );
    assert!(error.spent < Duration::from_secs(2));
}

#[test]
fn headers_byte_by_byte_do_not_stretch_their_time() {
    let server = Server::plain(Routes::new().at("/", |_| {
        Response::raw("HTTP/1.1 200 OK\r\n").drip([b'x'; 1000], Duration::from_millis(10))
    }));
    let settings = FetchSettings {
        header_timeout: Duration::from_millis(150),
        ..settings()
    };
    let error = failure(once(&settings, &server.url("/")));
    assert!(
        matches!(error.cause, FetchCause::HeaderTimeout { .. }),
        "{error}"
    );
    assert!(error.spent < Duration::from_secs(2));
}

#[test]
fn a_body_byte_by_byte_is_ended_by_the_total_time() {
    let authority = Authority::new("CA");
    let drip = || {
        Routes::new().at("/", |_| {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
            Response::raw(head).drip([b'x'; 1000], Duration::from_millis(10))
        })
    };
    let identity = authority.issue(&["127.0.0.1"], VALID);
    let settings = FetchSettings {
        total_timeout: Some(Duration::from_millis(500)),
        header_timeout: Duration::from_secs(5),
        ..trusting(&authority)
    };
    for server in [Server::plain(drip()), Server::tls(drip(), &identity)] {
        let error = failure(get(&settings, &server.url("/")));
        let FetchCause::TotalTimeout { last, .. } = &error.cause else {
            panic!("{error}");
        };
        let expected = Some(1000);
        let partly = |n: &u64| (1..1000).contains(n);
        assert!(
            matches!(&**last, FetchCause::Truncated { received, expected: e } if partly(received) && *e == expected)
        );
        assert!(error.spent < Duration::from_secs(2));
    }
}

#[test]
fn a_host_that_drops_packets_is_a_timeout_of_its_own() {
    // A listener whose queue is full answers no further connection.
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        queue.push(stream);
        assert!(queue.len() < 10_000, "the queue has no end");
    }
    let settings = FetchSettings {
        connect_timeout: Duration::from_millis(100),
        ..settings()
    };
    let error = failure(once(&settings, &format!("http://{address}/")));
    assert!(
        matches!(error.cause, FetchCause::ConnectTimeout { address: a, .. } if a == address),
        "{error}"
    );
}

#[test]
fn a_handshake_that_does_not_proceed_is_given_up() {
    let silent = TcpListener::bind(loopback(0)).unwrap();
    let settings = FetchSettings {
        connect_timeout: Duration::from_millis(100),
        ..settings()
    };
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let error = failure(once(&settings, &url));
    assert!(
        matches!(error.cause, FetchCause::Tls(TlsProblem::Timeout(_))),
        "{error}"
    );
}

// Broken answers

#[test]
fn a_connection_that_ends_before_the_answer_is_told_apart() {
    let server = Server::plain(
        Routes::new()
            .at("/nothing", |_| Response::raw(""))
            .at("/part", |_| Response::raw("HTTP/1.1 200 OK\r\nConte"))
            .at("/garbage", |_| {
                Response::raw("220 mail.example ESMTP\r\n\r\n")
            }),
    );
    let cause = |path| failure(once(&settings(), &server.url(path))).cause;
    assert!(matches!(cause("/nothing"), FetchCause::Closed));
    assert!(matches!(cause("/part"), FetchCause::Closed));
    assert!(matches!(cause("/garbage"), FetchCause::NotHttp(_)));
}

#[test]
fn heads_and_chunks_without_end_are_refused_and_interim_answers_passed_over() {
    let server = Server::plain(
        Routes::new()
            .at("/head", |_| {
                Response::raw(format!(
                    "HTTP/1.1 200 OK\r\nX: {}\r\n\r\n",
                    "x".repeat(300_000)
                ))
            })
            .at("/chunk", |_| {
                let chunk = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(300_000));
                Response::raw(format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
                ))
            })
            .at("/interim", |_| {
                let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                Response::raw(format!("HTTP/1.1 100 Continue\r\n\r\n{interim}{answer}"))
            }),
    );
    for path in ["/head", "/chunk"] {
        let error = failure(once(&bounded(5000), &server.url(path)));
        assert!(error.spent < Duration::from_secs(4), "{error}");
        let right = match error.cause {
            FetchCause::NotHttp(_) => path == "/head",
            FetchCause::Truncated { .. } => path == "/chunk",
            _ => false,
        };
        assert!(right, "{error}");
    }
    let answer = once(&settings(), &server.url("/interim")).unwrap();
    assert_eq!(answer.bytes, b"ok");
}

#[test]
fn a_body_that_is_cut_short_is_never_taken_for_whole() {
    let authority = Authority::new("CA");
    let routes = || {
        Routes::new()
            .at("/length", |_| {
                Response::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
            })
            .at("/chunk", |_| {
                Response::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            })
    };
    let identity = authority.issue(&["127.0.0.1"], VALID);
    for server in [Server::plain(routes()), Server::tls(routes(), &identity)] {
        for path in ["/length", "/chunk"] {
            let error = failure(once(&trusting(&authority), &server.url(path)));
            assert!(
                matches!(error.cause, FetchCause::Truncated { received: 3, .. }),
                "{path}: {error}"
            );
        }
    }
}

#[test]
fn without_a_length_only_the_farewell_of_tls_proves_the_end() {
    let authority = Authority::new("CA");
    let whole = "HTTP/1.1 200 OK\r\n\r\nabc";
    let server = Server::tls(
        Routes::new()
            .at("/whole", move |_| Response::raw(whole))
            .at("/cut", move |_| Response::raw(whole).cut()),
        &authority.issue(&["127.0.0.1"], VALID),
    );
    let settings = trusting(&authority);
    assert_eq!(
        once(&settings, &server.url("/whole")).unwrap().bytes,
        b"abc"
    );
    let error = failure(once(&settings, &server.url("/cut")));
    assert!(
        matches!(error.cause, FetchCause::Truncated { .. }),
        "{error}"
    );
}

#[test]
fn a_body_that_was_cut_short_is_fetched_again() {
    let server = Server::plain(Routes::new().at("/", |r| match r.nth {
        0 => Response::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        _ => Response::ok("0123456789"),
    }));
    let answer = get(&settings(), &server.url("/")).unwrap();
    assert_eq!(answer.bytes, b"0123456789");
}

#[test]
fn a_body_may_be_as_large_as_allowed_and_not_a_byte_larger() {
    let server = Server::plain(
        Routes::new()
            .at("/fits", |_| Response::ok(vec![7; LIMIT as usize]))
            .at("/over", |_| Response::ok(vec![7; LIMIT as usize + 1]))
            .at("/chunks", |_| {
                let mut bytes = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
                bytes.resize(bytes.len() + LIMIT as usize + 1, 7);
                Response::raw(bytes)
            }),
    );
    let answer = get(&settings(), &server.url("/fits")).unwrap();
    assert_eq!(answer.bytes.len() as u64, LIMIT);
    let error = failure(get(&settings(), &server.url("/over")));
    let announced = Some(LIMIT + 1);
    assert!(matches!(error.cause, FetchCause::TooLarge { announced: a, .. } if a == announced));
    let error = failure(get(&settings(), &server.url("/chunks")));
    assert!(matches!(
        error.cause,
        FetchCause::TooLarge {
            announced: None,
            ..
        }
    ));
}

#[test]
fn two_hundred_megabytes_are_refused_in_little_memory() {
    const PIECES: u64 = (200 << 20) / (64 << 10);
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let server = Server::plain(Routes::new().at("/", move |_| Response::raw(head).zeros(PIECES)));
    let run = child("large-body", &[("MCO_RESCUE_TEST_URL", &server.url("/"))]);
    let out = output_of(&run);
    let kib: u64 = out
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_else(|| panic!("{out}"));
    say(&format!(
        "200 MB body: at most {kib} KiB in memory, {} KiB were sent",
        server.sent() >> 10
    ));
    assert!(out.contains("larger than the 1048576 bytes"), "{out}");
    assert!(kib < 48 << 10, "{kib} KiB");
    assert!(
        server.sent() < 32 << 20,
        "{} bytes were sent",
        server.sent()
    );
}

// Redirects

#[test]
fn redirects_are_followed_without_the_callers_headers() {
    let server = Server::plain(
        Routes::new()
            .at("/a/start", |_| Response::redirect(302, "../b/next?x=1"))
            .at("/b/next", |_| Response::redirect(307, "/end"))
            .at("/end", |_| Response::ok("end")),
    );
    let url = server.url("/a/start");
    let request = FetchRequest {
        headers: vec![
            header("Authorization", "Bearer secret"),
            header("Accept", "text/plain"),
            header("X-Other", "1"),
        ],
        ..FetchRequest::new(&url, LIMIT)
    };
    let mut ways = Vec::new();
    let answer = net::fetch_url(&settings(), &request, &mut |p| {
        if let FetchProgress::Redirected { to } = p {
            ways.push(to.to_owned());
        }
    });
    let answer = answer.unwrap();
    assert_eq!(answer.bytes, b"end");
    assert_eq!(answer.url, server.url("/end"));
    assert_eq!(ways, [server.url("/b/next?..."), server.url("/end")]);
    let asked = server.requests();
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(asked[1].target, "/b/next?x=1");
    for later in &asked[1..] {
        assert_eq!(later.header("authorization"), None);
        assert_eq!(later.header("x-other"), None);
        assert_eq!(later.header("accept"), Some(ACCEPT));
    }
}

#[test]
fn redirects_in_a_circle_and_without_end_are_refused() {
    let server = Server::plain(
        Routes::new()
            .at("/a", |_| Response::redirect(301, "/b"))
            .at("/b", |_| Response::redirect(301, "/a"))
            .at("/nowhere", |_| Response::status(302))
            .at("/ftp", |_| Response::redirect(302, "ftp://host/x"))
            .at("/count", |r| {
                let n: usize = r.target.split('=').nth(1).unwrap().parse().unwrap();
                match n {
                    0 => Response::ok("done"),
                    n => Response::redirect(302, &format!("/count?n={}", n - 1)),
                }
            }),
    );
    let cause = |path: &str| failure(get(&settings(), &server.url(path))).cause;
    assert!(matches!(cause("/a"), FetchCause::RedirectLoop));
    assert!(matches!(cause("/nowhere"), FetchCause::BadRedirect));
    assert!(matches!(cause("/ftp"), FetchCause::BadRedirect));
    let most = format!("/count?n={MAX_REDIRECTS}");
    assert_eq!(get(&settings(), &server.url(&most)).unwrap().bytes, b"done");
    let more = format!("/count?n={}", MAX_REDIRECTS + 1);
    assert!(matches!(cause(&more), FetchCause::TooManyRedirects));
}

#[test]
fn a_redirect_to_plain_http_needs_a_hash() {
    let authority = Authority::new("CA");
    let plain = Server::plain(Routes::new().at("/", |_| Response::ok("plain")));
    let to = plain.url("/");
    let secure = Server::tls(
        Routes::new().at("/", move |_| Response::redirect(302, &to)),
        &authority.issue(&["127.0.0.1"], VALID),
    );
    let url = secure.url("/");
    let settings = trusting(&authority);
    let error = failure(get(&settings, &url));
    assert!(matches!(error.cause, FetchCause::Downgrade), "{error}");
    assert!(plain.requests().is_empty());
    let request = FetchRequest {
        verified: true,
        ..FetchRequest::new(&url, LIMIT)
    };
    let answer = net::fetch_url(&settings, &request, &mut |_| {}).unwrap();
    assert_eq!(answer.bytes, b"plain");
}

#[test]
fn a_failure_behind_a_redirect_names_the_place() {
    let gone = nobody();
    let server = Server::plain(Routes::new().at("/", move |_| {
        Response::redirect(302, &format!("http://{gone}/x"))
    }));
    let error = failure(once(&settings(), &server.url("/")));
    assert!(
        matches!(error.cause, FetchCause::Refused(a) if a == gone),
        "{error}"
    );
    let place = format!("http://{gone}/x");
    assert_eq!(error.redirected.as_deref(), Some(place.as_str()));
}

// TLS

fn greeting() -> Routes {
    Routes::new().at("/", |_| Response::ok("hello"))
}

#[test]
fn a_server_is_trusted_by_the_given_authority_only() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = Server::tls(greeting(), &ours.issue(&["127.0.0.1"], VALID));
    assert_eq!(
        get(&trusting(&ours), &server.url("/")).unwrap().bytes,
        b"hello"
    );
    for settings in [trusting(&other), settings()] {
        let before = server.connections();
        let error = failure(get(&settings, &server.url("/")));
        assert!(
            matches!(error.cause, FetchCause::Tls(TlsProblem::UnknownIssuer(_))),
            "{error}"
        );
        assert_eq!((error.attempts, server.connections() - before), (1, 1));
    }
}

/// What a server is trusted by: the certificates in a PEM text.
fn trusting_pem(pem: &str) -> FetchSettings {
    FetchSettings {
        certificates: net::parse_bundle(pem.as_bytes()).unwrap(),
        ..settings()
    }
}

fn certificate_pem(identity: &Identity) -> String {
    let pem = identity.pem();
    let end = pem.find("-----BEGIN PRIVATE").unwrap();
    pem[..end].to_owned()
}

#[test]
fn a_server_certificate_that_is_marked_as_an_authority_is_verified_like_any_other() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let marked = |years| marked_as_authority(&["127.0.0.1"], years);
    let alone = Identity::self_signed(marked(VALID));
    let pem = certificate_pem(&alone);
    let issued = ours.issue_with(marked(VALID));
    // The server's certificate, what is trusted, and whether that is enough.
    let same_name = Authority::new("ours");
    let rows = [
        (&alone, pem.clone(), true),
        (&alone, other.pem.clone(), false),
        (
            &alone,
            certificate_pem(&Identity::self_signed(marked(VALID))),
            false,
        ),
        (&issued, ours.pem.clone(), true),
        (&issued, other.pem.clone() + &ours.pem, true),
        (&issued, certificate_pem(&issued), true),
        (&issued, other.pem.clone(), false),
        (&issued, same_name.pem.clone(), false),
        (&issued, pem, false),
    ];
    for (row, (identity, trusted, enough)) in rows.into_iter().enumerate() {
        let server = Server::tls(greeting(), identity);
        match get(&trusting_pem(&trusted), &server.url("/")) {
            Ok(answer) => assert!(enough && answer.bytes == b"hello", "row {row}"),
            Err(error) => {
                let unknown = matches!(
                    error.cause,
                    FetchCause::Tls(TlsProblem::UnknownIssuer(Some(_)))
                );
                assert!(!enough && unknown, "row {row}: {error}");
                assert!(!error.to_string().contains("EndEntity"), "{error}");
            }
        }
    }
}

#[test]
fn a_marked_certificate_still_needs_its_name_its_dates_and_its_purpose() {
    let refused = |params, url: &str| {
        let identity = Identity::self_signed(params);
        let server = Server::tls(greeting(), &identity);
        let settings = resolving(
            trusting_pem(&certificate_pem(&identity)),
            &["other.example"],
        );
        let url = match url {
            "" => server.url("/"),
            host => server.url_of(host, "/"),
        };
        failure(once(&settings, &url)).cause
    };
    let names = &["127.0.0.1"][..];
    let of = |years| marked_as_authority(names, years);
    assert!(matches!(
        refused(of(VALID), "other.example"),
        FetchCause::Tls(TlsProblem::WrongName { .. })
    ));
    assert!(matches!(
        refused(of(Years(2001, 2002)), ""),
        FetchCause::Tls(TlsProblem::Expired { .. })
    ));
    assert!(matches!(
        refused(of(Years(2090, 2091)), ""),
        FetchCause::Tls(TlsProblem::NotYetValid { .. })
    ));
    let mut params = of(VALID);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let FetchCause::Tls(TlsProblem::BadCertificate(words)) = refused(params, "") else {
        panic!("a client's certificate was accepted");
    };
    assert!(words.contains("serverAuth"), "{words}");
}

/// The certificate that people make by hand, with the program that they use for it.
#[test]
fn what_openssl_req_makes_is_accepted_where_it_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    for kind in [
        &["rsa:2048"][..],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "30", "-newkey"]);
        openssl.args(kind);
        openssl.args([
            "-subj",
            "/CN=bastion",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ]);
        openssl
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key);
        let made = openssl.output().unwrap();
        assert!(made.status.success(), "{}", output_of(&made));
        let read = |path| std::fs::read(path).unwrap();
        let server = Server::tls(
            greeting(),
            &Identity::from_pem(&read(&certificate), &read(&key)),
        );
        let pem = String::from_utf8(read(&certificate)).unwrap();
        let answer = get(&trusting_pem(&pem), &server.url("/"));
        assert_eq!(answer.unwrap().bytes, b"hello");
    }
}

#[test]
fn a_chain_that_leads_nowhere_is_reported_and_tried_with_what_is_at_hand() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let middle = root.intermediate("middle");
    let identity = middle.issue(&["127.0.0.1"], VALID);
    let server = Server::tls(greeting(), &identity);
    let error = failure(get(&trusting(&other), &server.url("/")));
    let FetchCause::Tls(TlsProblem::UnknownIssuer(Some(presented))) = &error.cause else {
        panic!("{error}");
    };
    let told: Vec<_> = presented
        .read_certificates()
        .into_iter()
        .flatten()
        .collect();
    let names: Vec<_> = told
        .iter()
        .map(|one| (one.subject.as_str(), one.issuer.as_str()))
        .collect();
    assert_eq!(names[1], ("CN=middle", "CN=root"));
    assert_eq!((names.len(), names[0].1), (2, "CN=middle"));
    // From the beginning of 2020 to that of 2100.
    let years = (1_577_836_800, 4_102_444_800);
    let since = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    for one in &told {
        assert_eq!((since(one.not_before), since(one.not_after)), years);
    }
    let digest = Sha256::digest(identity.chain().last().unwrap());
    let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(presented.last_fingerprint(), digest.join(":"));
    assert!(
        error.to_string().contains(&presented.last_fingerprint()),
        "{error}"
    );
    assert!(!presented.same_name);
    let verified = |authority: &Authority| {
        let pem = mco_rescue::host::net::parse_bundle(authority.pem.as_bytes()).unwrap();
        presented.would_be_verified_by(&pem)
    };
    assert!(verified(&root) && verified(&middle) && !verified(&other));
    assert!(!verified(&Authority::new("root")));
    // The name of the server counts too.
    let error = failure(get(
        &resolving(trusting(&other), &["other.example"]),
        &server.url_of("other.example", "/"),
    ));
    let FetchCause::Tls(TlsProblem::UnknownIssuer(Some(presented))) = &error.cause else {
        panic!("{error}");
    };
    let pem = mco_rescue::host::net::parse_bundle(root.pem.as_bytes()).unwrap();
    assert!(!presented.would_be_verified_by(&pem));
}

#[test]
fn a_certificate_for_another_name_is_reported_with_its_names() {
    let authority = Authority::new("CA");
    let identity = authority.issue(&["api-int.example", "*.apps.example", "10.0.0.1"], VALID);
    let server = Server::tls(greeting(), &identity);
    let settings = resolving(trusting(&authority), &["api.example", "api-int.example"]);
    let error = failure(get(&settings, &server.url_of("api.example", "/")));
    let FetchCause::Tls(TlsProblem::WrongName { wanted, names }) = &error.cause else {
        panic!("{error}");
    };
    assert_eq!(wanted, "api.example");
    assert_eq!(names, &["api-int.example", "*.apps.example", "10.0.0.1"]);
    assert_eq!(error.attempts, 1);
    let right = get(&settings, &server.url_of("API-int.example", "/"));
    assert_eq!(right.unwrap().bytes, b"hello");
}

#[test]
fn a_certificate_out_of_its_time_is_reported_with_both_clocks() {
    let authority = Authority::new("CA");
    let dated = || {
        let server_time = SystemTime::now() - Duration::from_secs(9 * 86_400);
        let date = httpdate::fmt_http_date(server_time);
        Routes::new().at("*", move |_| {
            Response::new(200, &[("Date", &date)], "secret")
        })
    };
    let settings = trusting(&authority);
    for (years, starts) in [(Years(2001, 2002), false), (Years(2090, 2091), true)] {
        let identity = authority.issue(&["127.0.0.1"], years);
        let server = Server::tls(dated(), &identity);
        let url = server.url("/config?token=x");
        let error = failure(once(&settings, &url));
        let right = match &error.cause {
            FetchCause::Tls(TlsProblem::Expired { .. }) => !starts,
            FetchCause::Tls(TlsProblem::NotYetValid { .. }) => starts,
            _ => false,
        };
        assert!(right, "{error}");
        let text = error.to_string();
        let day = if starts { "01 Jan 2090" } else { "01 Jan 2002" };
        assert!(text.contains(day), "{text}");
        assert!(text.contains("the clock is off by 9 days, ahead"), "{text}");
        // Only one question came through, and it told nothing.
        let asked = server.requests();
        assert_eq!(asked.len(), 1, "{asked:?}");
        let line = (asked[0].method.as_str(), asked[0].target.as_str());
        assert_eq!(line, ("HEAD", "/"));
        // The clock may be being set, so it is tried again.
        let mut failures = 0;
        let patient = FetchSettings {
            total_timeout: Some(Duration::from_secs(1)),
            ..settings.clone()
        };
        let again = net::fetch_url(&patient, &FetchRequest::new(&url, LIMIT), &mut |_| {
            failures += 1
        });
        assert!(again.is_err() && failures > 0);
    }
}

#[test]
fn the_clock_of_an_untrusted_server_is_not_asked_for() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let date = httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(9 * 86_400));
    let routes = Routes::new().at("*", move |_| Response::new(200, &[("Date", &date)], ""));
    let server = Server::tls(routes, &other.issue(&["127.0.0.1"], Years(2001, 2002)));
    let error = failure(once(&trusting(&ours), &server.url("/")));
    assert!(matches!(error.cause, FetchCause::Tls(_)), "{error}");
    assert!(!error.to_string().contains("off by"), "{error}");
    assert!(server.requests().is_empty());
}

#[test]
fn the_wrong_scheme_for_a_port_is_reported() {
    let authority = Authority::new("CA");
    // What a web server answers to bytes that are not a request.
    let talkative = TcpListener::bind(loopback(0)).unwrap();
    let address = talkative.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = talkative.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad FetchRequest\r\n\r\n").unwrap();
        let mut rest = [0; 4096];
        while std::io::Read::read(&mut stream, &mut rest).is_ok_and(|n| n > 0) {}
    });
    let error = failure(once(&trusting(&authority), &format!("https://{address}/")));
    assert!(
        matches!(error.cause, FetchCause::Tls(TlsProblem::NotTls)),
        "{error}"
    );

    let secure = Server::tls(greeting(), &authority.issue(&["127.0.0.1"], VALID));
    let url = format!("http://{}/", secure.address());
    let error = failure(once(&settings(), &url));
    assert!(
        matches!(error.cause, FetchCause::NotHttp(_) | FetchCause::Closed),
        "{error}"
    );
}

// Bundles

#[test]
fn bundles_are_read_with_blank_lines_at_the_end() {
    let (a, b) = (Authority::new("a").pem, Authority::new("b").pem);
    let bundle = format!("# the first\n{a}\n\nthe second\r\n{b}\n\n \n");
    assert_eq!(net::parse_bundle(bundle.as_bytes()).unwrap().len(), 2);
    assert_eq!(net::parse_bundle(b"\n"), Err(BundleError::Empty));
    let length = a.lines().count();
    let stray = net::parse_bundle(format!("{a}\nrubbish\n").as_bytes());
    assert_eq!(stray, Err(BundleError::Stray(length + 2)));
    let cut: String = a.lines().take(3).map(|l| format!("{l}\n")).collect();
    assert_eq!(
        net::parse_bundle(format!("\n{cut}").as_bytes()),
        Err(BundleError::Open(2))
    );
}

#[test]
fn what_is_not_a_certificate_is_refused_in_a_bundle_and_passed_over_in_the_systems() {
    let good = Authority::new("a").pem;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let damaged = good.replacen("M", "m", 1);
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    for bad in [&key, &damaged, &empty] {
        let bundle = format!("{good}{bad}");
        let line = good.lines().count() + 1;
        assert_eq!(
            net::parse_bundle(bundle.as_bytes()),
            Err(BundleError::NotACertificate(line))
        );
        assert_eq!(net::system_certificates(bundle.as_bytes()).len(), 1);
    }
    let followed = format!("{good}# end of file\n");
    assert_eq!(net::system_certificates(followed.as_bytes()).len(), 1);
}

// Proxies

/// A proxy that knows where names are; it wants a login if told so.
fn proxy(to: SocketAddr, login: Option<&'static str>) -> Server {
    Server::plain(Routes::new().at("*", move |r| {
        if login.is_some() && r.header("proxy-authorization") != login {
            Response::status(407)
        } else if r.method == "CONNECT" {
            Response::tunnel(to)
        } else {
            Response::ok("from the proxy")
        }
    }))
}

fn by_way_of(url: &str, settings: FetchSettings) -> FetchSettings {
    let proxy = ProxySettings {
        http: Some(url.to_owned()),
        https: Some(url.to_owned()),
        none: Vec::new(),
    };
    FetchSettings { proxy, ..settings }
}

#[test]
fn plain_requests_name_the_whole_url_to_the_proxy() {
    let proxy = proxy(nobody(), Some("Basic bWU6cEBzcw=="));
    let url = format!("http://me:p%40ss@{}", proxy.address());
    let settings = by_way_of(&url, settings());
    let answer = get(&settings, "http://server.test:8080/config?x=1").unwrap();
    assert_eq!(answer.bytes, b"from the proxy");
    let asked = &proxy.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("GET", "http://server.test:8080/config?x=1")
    );
    assert_eq!(asked.header("host"), Some("server.test:8080"));
}

#[test]
fn tls_goes_through_a_tunnel_and_ends_at_the_server() {
    let authority = Authority::new("CA");
    let server = Server::tls(greeting(), &authority.issue(&["server.test"], VALID));
    let proxy = proxy(server.address(), Some("Basic bWU6cEBzcw=="));
    let url = format!("http://me:p%40ss@{}", proxy.address());
    let settings = by_way_of(&url, trusting(&authority));
    let answer = get(&settings, "https://server.test/").unwrap();
    assert_eq!(answer.bytes, b"hello");
    let asked = &proxy.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("CONNECT", "server.test:443")
    );
    // The login is the proxy's business alone.
    let seen = &server.requests()[0];
    assert_eq!(seen.header("proxy-authorization"), None);
}

#[test]
fn a_proxy_may_itself_speak_tls() {
    let authority = Authority::new("CA");
    let server = Server::tls(greeting(), &authority.issue(&["server.test"], VALID));
    let to = server.address();
    let proxy = Server::tls(
        Routes::new().at("*", move |_| Response::tunnel(to)),
        &authority.issue(&["127.0.0.1"], VALID),
    );
    let settings = by_way_of(&proxy.url(""), trusting(&authority));
    let answer = get(&settings, "https://server.test/").unwrap();
    assert_eq!(answer.bytes, b"hello");
}

#[test]
fn trouble_with_the_proxy_is_reported_as_such() {
    let closed = proxy(nobody(), Some("Basic other"));
    let url = format!("http://me:hidden@{}", closed.address());
    for target in ["https://server.test/", "http://server.test/"] {
        let error = failure(get(&by_way_of(&url, settings()), target));
        let text = error.to_string();
        assert!(text.contains("407") && !text.contains("hidden"), "{text}");
        assert!(text.contains(&closed.url("/")), "{text}");
        assert_eq!(error.attempts, 1, "{text}");
    }
    let gone = format!("http://{}", nobody());
    let error = failure(once(&by_way_of(&gone, settings()), "https://server.test/"));
    let FetchCause::Proxy { cause, .. } = &error.cause else {
        panic!("{error}");
    };
    assert!(matches!(**cause, FetchCause::Refused(_)));
}

#[test]
fn a_proxy_that_answers_byte_by_byte_is_given_up() {
    let slow = Server::plain(Routes::new().at("*", |_| {
        Response::raw("HTTP/1.1 200 OK\r\n").drip([b'x'; 1000], Duration::from_millis(10))
    }));
    let settings = FetchSettings {
        connect_timeout: Duration::from_millis(150),
        ..by_way_of(&slow.url(""), settings())
    };
    let error = failure(once(&settings, "https://server.test/"));
    assert!(matches!(error.cause, FetchCause::Proxy { .. }), "{error}");
    assert!(error.spent < Duration::from_secs(2));
}

#[test]
fn loopback_and_the_listed_are_reached_without_proxy() {
    let server = Server::plain(greeting());
    let dead = format!("http://{}", nobody());
    let mut settings = resolving(by_way_of(&dead, settings()), &["server.test", "localhost"]);
    settings.proxy.none = vec!["server.test".into()];
    for url in [
        server.url("/"),
        server.url_of("localhost", "/"),
        server.url_of("server.test", "/"),
    ] {
        assert_eq!(once(&settings, &url).unwrap().bytes, b"hello", "{url}");
    }
}

// Name servers

#[test]
fn without_a_name_server_a_person_is_answered_at_once_and_a_boot_waits_for_one() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let mut settings = bounded(1500);
    settings.names.resolv_conf = empty.path().to_owned();
    for (awaits_name_server, attempts) in [(false, 1..2), (true, 2..99)] {
        let request = FetchRequest {
            awaits_name_server,
            ..FetchRequest::new("https://server.test/", LIMIT)
        };
        let error = failure(net::fetch_url(&settings, &request, &mut |_| {}));
        assert!(attempts.contains(&error.attempts), "{error}");
        assert!(
            error.cause.lacks_name_server() || awaits_name_server,
            "{error}"
        );
        assert!(error.to_string().contains("/etc/resolv.conf"), "{error}");
    }
}

// The environment, the kernel and the C library

#[test]
fn proxies_of_the_environment_are_ignored() {
    let server = Server::plain(greeting());
    let dead = format!("http://{}", nobody());
    let names = [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "all_proxy",
    ];
    let mut environment: Vec<(&str, &str)> = names.map(|name| (name, dead.as_str())).into();
    let url = server.url_of("server.test", "/");
    environment.push(("MCO_RESCUE_TEST_URL", &url));
    let out = output_of(&child("fetch", &environment));
    assert!(out.contains("fetched 5 bytes"), "{out}");
}

#[test]
fn without_a_route_the_kernel_says_so() {
    if !is_root() {
        return skip(Lacks::Root, "a network namespace needs root");
    }
    let url = ("MCO_RESCUE_TEST_URL", "http://203.0.113.1/");
    let run = child_by(Command::new("unshare").arg("-n"), "fetch", &[url]);
    let out = output_of(&run);
    assert!(out.contains("network is unreachable"), "{out}");
    assert!(out.contains("`ip route`"), "{out}");
}

#[test]
fn no_name_service_module_is_ever_loaded() {
    let server = Server::plain(greeting());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-e", "trace=open,openat,openat2,socket", "-o"])
        .arg(log.path());
    // Neither given nor in the hosts file: the whole way to the name servers of the system.
    let url = server.url_of("no-such-name.invalid", "/");
    let run = child_by(&mut strace, "fetch", &[("MCO_RESCUE_TEST_URL", &url)]);
    let out = output_of(&run);
    assert!(out.contains("could not be resolved"), "{out}");
    let calls = std::fs::read_to_string(log.path()).unwrap();
    assert!(calls.contains("/etc/resolv.conf"), "{calls}");
    let foreign = [
        "nsswitch",
        "libnss",
        "ld.so.cache",
        ".so.",
        "gai.conf",
        "nscd",
    ];
    let opened: Vec<&str> = calls
        .lines()
        .filter(|line| foreign.iter().any(|name| line.contains(name)))
        .collect();
    assert!(opened.is_empty(), "{opened:?}");
}

/// Runs one of the jobs below in a process of its own.
fn child(job: &str, environment: &[(&str, &str)]) -> Output {
    child_by(&mut Command::new("env"), job, environment)
}

fn child_by(command: &mut Command, job: &str, environment: &[(&str, &str)]) -> Output {
    command
        .arg(std::env::current_exe().unwrap())
        .args(["fetch::net::job", "--exact", "--ignored", "--nocapture"])
        .env("MCO_RESCUE_TEST_JOB", job)
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn output_of(run: &Output) -> String {
    let out = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{out}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    out
}

#[test]
#[ignore = "the child process of other tests"]
fn job() {
    let url = std::env::var("MCO_RESCUE_TEST_URL").unwrap();
    let settings = match std::env::var("MCO_RESCUE_TEST_JOB").unwrap().as_str() {
        "fetch" => resolving(bounded(1500), &["server.test"]),
        _ => settings(),
    };
    match once(&settings, &url) {
        Ok(answer) => println!("fetched {} bytes", answer.bytes.len()),
        Err(error) => println!("{error}"),
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap());
}
