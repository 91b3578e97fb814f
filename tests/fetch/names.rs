//! Names become addresses without the C library, by asking real (small, scripted) name servers.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::support::dns::{self, NameServer, Said};
use crate::support::http::{Response, Routes, Server};
use crate::support::{say, unused_port};
use mco_rescue::host::net::{
    self, FetchCause, FetchProgress, FetchRequest, FetchSettings, NameAnswer, NameSources,
    ServerAnswer,
};
use simple_dns::RCODE;
use tempfile::TempDir;

const FIRST: &str = "127.0.0.1";
const SECOND: &str = "127.0.0.2";

/// A hosts file and a resolv.conf in a directory of their own.
struct Node {
    dir: TempDir,
    port: u16,
}

impl Node {
    fn new(resolv_conf: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("resolv.conf"), resolv_conf).unwrap();
        Self {
            dir,
            port: unused_port(&[FIRST, SECOND]),
        }
    }

    fn server(
        &self,
        address: &str,
        handler: impl Fn(&dns::Asked) -> Said + Send + Sync + 'static,
    ) -> NameServer {
        NameServer::start(
            SocketAddr::new(address.parse().unwrap(), self.port),
            handler,
        )
    }

    fn names(&self) -> NameSources {
        NameSources {
            given: Vec::new(),
            hosts: self.dir.path().join("hosts"),
            resolv_conf: self.dir.path().join("resolv.conf"),
            port: self.port,
        }
    }

    fn resolve(&self, name: &str) -> Result<Vec<String>, Vec<NameAnswer>> {
        self.resolve_within(name, Duration::from_secs(20))
    }

    fn resolve_within(&self, name: &str, time: Duration) -> Result<Vec<String>, Vec<NameAnswer>> {
        match self.names().resolve_host(name, Instant::now() + time) {
            Ok(addresses) => Ok(addresses.iter().map(ToString::to_string).collect()),
            Err(FetchCause::NotResolved { answers, .. }) => Err(answers),
            Err(other) => panic!("{other}"),
        }
    }
}

fn one_server() -> Node {
    Node::new("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
}

fn two_servers() -> Node {
    Node::new("nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:1 attempts:1\n")
}

fn answer(server: &str, name: &str, answer: ServerAnswer) -> NameAnswer {
    NameAnswer {
        server: server.parse().unwrap(),
        name: name.to_owned(),
        answer,
    }
}

#[test]
fn both_families_are_asked_for_and_ipv4_comes_first() {
    let node = one_server();
    let server = node.server(FIRST, |_| {
        Said::addresses(&["fd00::1", "10.0.0.1", "10.0.0.2"])
    });
    let found = node.resolve("api.example").unwrap();
    assert_eq!(found, ["10.0.0.1", "10.0.0.2", "fd00::1"]);
    let mut asked: Vec<(String, bool)> = server
        .asked()
        .into_iter()
        .map(|a| (a.name, a.ipv6))
        .collect();
    asked.sort();
    let name = || "api.example".to_owned();
    assert_eq!(asked, [(name(), false), (name(), true)]);
}

#[test]
fn one_family_is_enough() {
    let node = one_server();
    node.server(FIRST, |asked| match asked.name.as_str() {
        "four.example" => Said::addresses(&["10.0.0.1"]),
        _ => Said::addresses(&["fd00::1"]),
    });
    assert_eq!(node.resolve("four.example").unwrap(), ["10.0.0.1"]);
    assert_eq!(node.resolve("six.example").unwrap(), ["fd00::1"]);
}

#[test]
fn a_server_that_keeps_silent_about_ipv6_costs_a_second_at_most() {
    let node = Node::new("nameserver 127.0.0.1\noptions timeout:10\n");
    node.server(FIRST, |asked| {
        if asked.ipv6 {
            Said::Silence
        } else {
            Said::addresses(&["10.0.0.1"])
        }
    });
    let started = Instant::now();
    assert_eq!(node.resolve("api.example").unwrap(), ["10.0.0.1"]);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn every_answer_of_every_server_is_kept() {
    let node = two_servers();
    node.server(FIRST, |_| Said::Code(RCODE::NameError));
    node.server(SECOND, |_| Said::Code(RCODE::ServerFailure));
    let answers = node.resolve("api.example").unwrap_err();
    assert_eq!(
        answers,
        [
            answer(FIRST, "api.example", ServerAnswer::NoSuchName),
            answer(SECOND, "api.example", ServerAnswer::ServerFailure),
        ]
    );
    let settings = FetchSettings {
        names: node.names(),
        total_timeout: Some(Duration::from_millis(100)),
        ..FetchSettings::default()
    };
    let request = FetchRequest::new("http://api.example/", 1);
    let text = net::fetch_url(&settings, &request, &mut |_| {})
        .unwrap_err()
        .to_string();
    say(&text);
    assert!(
        text.contains("127.0.0.1 for api.example: no such name (NXDOMAIN); 127.0.0.2 for api.example: server failure (SERVFAIL)"),
        "{text}"
    );
    assert!(text.ends_with("--resolve api.example:ADDRESS"), "{text}");
}

#[test]
fn refusals_missing_addresses_and_nonsense_have_names_of_their_own() {
    let node = one_server();
    node.server(FIRST, |asked| match asked.name.as_str() {
        "refused.example" => Said::Code(RCODE::Refused),
        "empty.example" => Said::addresses(&[]),
        "other.example" => Said::Code(RCODE::NotImplemented),
        _ => {
            let [high, low] = asked.id.to_be_bytes();
            Said::Raw(vec![vec![high, low, 0x80, 0, 0xff, 0xff, 1]])
        }
    });
    let said = |name: &str| node.resolve(name).unwrap_err().remove(0).answer;
    assert_eq!(said("refused.example"), ServerAnswer::Declined);
    assert_eq!(said("empty.example"), ServerAnswer::NoAddresses);
    assert!(matches!(said("other.example"), ServerAnswer::Code(_)));
    assert_eq!(said("nonsense.example"), ServerAnswer::Malformed);
}

#[test]
fn the_next_server_is_asked_whatever_the_first_one_says() {
    for said in [RCODE::ServerFailure, RCODE::Refused, RCODE::NameError] {
        let node = two_servers();
        node.server(FIRST, move |_| Said::Code(said));
        node.server(SECOND, |_| Said::addresses(&["10.0.0.1"]));
        assert_eq!(node.resolve("api.example").unwrap(), ["10.0.0.1"]);
    }
}

#[test]
fn a_dead_server_costs_its_timeout_and_no_more() {
    let node = two_servers();
    node.server(FIRST, |_| Said::Silence);
    node.server(SECOND, |_| Said::addresses(&["10.0.0.1"]));
    let started = Instant::now();
    assert_eq!(node.resolve("api.example").unwrap(), ["10.0.0.1"]);
    let spent = started.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(4)).contains(&spent),
        "{spent:?}"
    );
}

#[test]
fn a_port_where_nothing_listens_costs_nothing() {
    let node = Node::new("nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:20\n");
    node.server(SECOND, |asked| match asked.name.as_str() {
        "api.example" => Said::addresses(&["10.0.0.1"]),
        _ => Said::Code(RCODE::NameError),
    });
    let started = Instant::now();
    assert_eq!(node.resolve("api.example").unwrap(), ["10.0.0.1"]);
    assert!(started.elapsed() < Duration::from_secs(10));
    let answers = node.resolve("none.example").unwrap_err();
    assert_eq!(answers[0].answer, ServerAnswer::PortClosed);
}

#[test]
fn silence_is_tried_again_and_bounded_by_the_callers_time() {
    let node = Node::new("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n");
    let server = node.server(FIRST, |_| Said::Silence);
    let started = Instant::now();
    let answers = node.resolve_within("a.example", Duration::from_millis(1300));
    assert!(matches!(
        answers.unwrap_err()[..],
        [NameAnswer {
            answer: ServerAnswer::NoReply(_),
            ..
        }]
    ));
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(server.asked().len(), 4);
}

#[test]
fn what_does_not_fit_is_asked_for_over_tcp() {
    let node = one_server();
    let server = node.server(FIRST, |asked| {
        if asked.tcp {
            let many: Vec<String> = (1..=200).map(|n| format!("10.0.0.{n}")).collect();
            Said::addresses(&many.iter().map(String::as_str).collect::<Vec<_>>())
        } else {
            Said::Truncated
        }
    });
    let found = node.resolve("many.example").unwrap();
    assert_eq!((found.len(), found[199].as_str()), (200, "10.0.0.200"));
    assert!(server.asked().iter().any(|asked| asked.tcp));
}

#[test]
fn aliases_are_followed_within_the_answer() {
    let node = one_server();
    node.server(FIRST, |asked| {
        let aliases = match asked.name.as_str() {
            "api.example" => vec!["LB.example".to_owned(), "host.example".to_owned()],
            _ => vec!["b.example".to_owned(), asked.name.clone()],
        };
        Said::Records(aliases, vec!["10.0.0.1".parse().unwrap()])
    });
    assert_eq!(node.resolve("api.example").unwrap(), ["10.0.0.1"]);
    // A chain that bites its tail ends, one way or the other.
    let _ = node.resolve("a.example");
}

/// The answer to one question as BIND writes it, by hand: an alias and an address, names compressed.
fn by_hand(id: u16, ipv6: bool, name: [&str; 2], address: [u8; 4]) -> Vec<u8> {
    let answers = if ipv6 { 1 } else { 2 };
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    for label in name {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    let kind = if ipv6 { 28 } else { 1 };
    bytes.extend([0, 0, kind, 0, 1]);
    // `NAME CNAME lb.PARENT`
    let suffix = 12 + 1 + name[0].len() as u8;
    bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 5]);
    let alias = bytes.len() as u8;
    bytes.extend([2, b'l', b'b', 0xc0, suffix]);
    if !ipv6 {
        bytes.extend([0xc0, alias, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        bytes.extend(address);
    }
    bytes
}

#[test]
fn an_answer_in_the_bytes_of_a_real_server_is_read() {
    let node = one_server();
    node.server(FIRST, |asked| {
        let name = ["api-int", "example"];
        Said::Raw(vec![by_hand(asked.id, asked.ipv6, name, [10, 1, 2, 3])])
    });
    assert_eq!(node.resolve("api-int.example").unwrap(), ["10.1.2.3"]);
}

#[test]
fn answers_to_other_questions_are_not_listened_to() {
    let node = one_server();
    node.server(FIRST, |asked| {
        let lie = [6, 6, 6, 6];
        let (right, other) = (["api", "example"], ["apx", "example"]);
        // As somebody would who can send from this port, but has not seen the question.
        let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spoofed = by_hand(asked.id, asked.ipv6, right, lie);
        elsewhere.send_to(&spoofed, (FIRST, asked.from)).unwrap();
        let mut query = by_hand(asked.id, asked.ipv6, right, lie);
        query[2] = 0x01;
        Said::Raw(vec![
            by_hand(asked.id.wrapping_add(1), asked.ipv6, right, lie),
            by_hand(asked.id, asked.ipv6, other, lie),
            query,
            vec![],
            b"?".to_vec(),
            by_hand(asked.id, asked.ipv6, right, [10, 1, 2, 3]),
        ])
    });
    assert_eq!(node.resolve("api.example").unwrap(), ["10.1.2.3"]);
}

#[test]
fn ids_and_ports_are_not_predictable() {
    let node = one_server();
    let server = node.server(FIRST, |_| Said::Code(RCODE::NameError));
    for _ in 0..20 {
        let _ = node.resolve("a.example");
    }
    let asked = server.asked();
    let mut ids: Vec<u16> = asked.iter().map(|a| a.id).collect();
    let mut ports: Vec<u16> = asked.iter().map(|a| a.from).collect();
    assert_eq!(ids.len(), 40);
    ids.sort_unstable();
    ids.dedup();
    ports.sort_unstable();
    ports.dedup();
    // By chance a few may be equal; a counter or a constant would be another thing.
    assert!(
        ids.len() > 35 && ids.last().unwrap() - ids[0] > 1000,
        "{ids:?}"
    );
    assert!(ports.len() > 10, "{ports:?}");
}

#[test]
fn the_search_list_is_walked_in_order() {
    let node = Node::new("search one.example two.example\nnameserver 127.0.0.1\noptions ndots:2\n");
    let server = node.server(FIRST, |asked| match asked.name.as_str() {
        "api.int.two.example" => Said::addresses(&["10.0.0.2"]),
        _ => Said::Code(RCODE::NameError),
    });
    assert_eq!(node.resolve("api.int").unwrap(), ["10.0.0.2"]);
    let mut names: Vec<String> = server.asked().into_iter().map(|a| a.name).collect();
    names.dedup();
    assert_eq!(names, ["api.int.one.example", "api.int.two.example"]);
    assert_eq!(node.resolve("api.int.").unwrap_err()[0].name, "api.int");
}

#[test]
fn given_names_and_the_hosts_file_come_before_any_server() {
    let node = one_server();
    let server = node.server(FIRST, |_| Said::addresses(&["10.0.0.9"]));
    fs::write(
        node.dir.path().join("hosts"),
        "10.0.0.1 one.example two.example\n",
    )
    .unwrap();
    let mut names = node.names();
    names.given = vec![("Two.example".into(), "10.0.0.2".parse().unwrap())];
    let resolve = |name: &str| -> IpAddr {
        let until = Instant::now() + Duration::from_secs(5);
        names.resolve_host(name, until).unwrap()[0]
    };
    assert_eq!(resolve("one.example").to_string(), "10.0.0.1");
    assert_eq!(resolve("two.example").to_string(), "10.0.0.2");
    assert_eq!(resolve("localhost").to_string(), "127.0.0.1");
    assert_eq!(resolve("fd00::7").to_string(), "fd00::7");
    assert!(server.asked().is_empty());
    assert_eq!(resolve("three.example").to_string(), "10.0.0.9");
}

#[test]
fn without_a_name_server_the_message_says_so() {
    let node = Node::new("# NetworkManager has nothing yet\n");
    let settings = FetchSettings {
        names: node.names(),
        ..FetchSettings::default()
    };
    let request = FetchRequest {
        retry: false,
        ..FetchRequest::new("https://api-int.example:22623/config/worker", 1)
    };
    let error = net::fetch_url(&settings, &request, &mut |_| {}).unwrap_err();
    let text = error.to_string();
    say(&text);
    assert!(text.contains("no name server is configured"), "{text}");
    assert!(
        text.ends_with("--resolve api-int.example:ADDRESS"),
        "{text}"
    );
}

#[test]
fn a_name_that_every_server_calls_unknown_is_given_up_after_three_attempts_by_a_person() {
    let node = one_server();
    node.server(FIRST, |_| Said::Code(RCODE::NameError));
    let settings = FetchSettings {
        names: node.names(),
        ..FetchSettings::default()
    };
    let request = FetchRequest {
        awaits_name_server: false,
        ..FetchRequest::new("http://no-such-name.example/", 1)
    };
    let mut failed = 0;
    let error = net::fetch_url(&settings, &request, &mut |progress| {
        failed += u32::from(matches!(progress, FetchProgress::Failed { .. }));
    });
    let text = error.unwrap_err().to_string();
    say(&text);
    assert_eq!(failed, 2, "{text}");
    assert!(text.contains("no such name (NXDOMAIN)"), "{text}");
}

#[test]
fn a_name_server_that_appears_between_attempts_is_used() {
    let node = Node::new("");
    node.server(FIRST, |_| Said::addresses(&["127.0.0.1"]));
    let server = Server::plain(Routes::new().at("/", |_| Response::ok("here")));
    let settings = FetchSettings {
        names: node.names(),
        ..FetchSettings::default()
    };
    let url = server.url_of("api.example", "/");
    let mut failed = 0;
    let answer = net::fetch_url(&settings, &FetchRequest::new(&url, 100), &mut |p| {
        if let FetchProgress::Failed { cause, .. } = p {
            failed += 1;
            assert!(matches!(cause, FetchCause::NotResolved { .. }), "{cause}");
            fs::write(
                node.dir.path().join("resolv.conf"),
                "nameserver 127.0.0.1\n",
            )
            .unwrap();
        }
    });
    assert_eq!(
        (answer.unwrap().bytes.as_slice(), failed),
        (&b"here"[..], 1)
    );
}

#[test]
fn of_several_addresses_the_one_that_answers_is_used() {
    let node = one_server();
    node.server(FIRST, |_| {
        Said::addresses(&["127.0.0.3", "127.0.0.1", "::1"])
    });
    let server = Server::plain(Routes::new().at("/", |_| Response::ok("here")));
    let settings = FetchSettings {
        names: node.names(),
        ..FetchSettings::default()
    };
    let url = server.url_of("api.example", "/");
    let answer = net::fetch_url(&settings, &FetchRequest::new(&url, 100), &mut |p| {
        assert!(!matches!(p, FetchProgress::Failed { .. }), "{p:?}");
    });
    assert_eq!(answer.unwrap().bytes, b"here");
}
