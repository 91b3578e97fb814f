//! Probes against real servers, a real sshd and a real router in a network of the test's own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use mco_rescue::change::probes::{
    Probe, ProbeContext, ProbeResult, list_probes, parse_probe, run_probe, run_round,
};
use mco_rescue::host::net::NameSources;
use mco_rescue::host::root::Root;
use mco_rescue::node::command::HostRunner;
use mco_rescue::node::login_session::milliseconds_since_boot;
use simple_dns::RCODE;

use crate::support::dns::{NameServer, Said};
use crate::support::http::{Authority, Response, Routes, Server, VALID, Years};
use crate::support::machine::{Machine, ip};
use crate::support::mounts::{mount, with_network};
use crate::support::sshd::with_sshd;
use crate::support::{Lacks, TestRoot, is_root, skip};

/// How a probe is run.
struct Asked<'a> {
    root: &'a TestRoot,
    within: Duration,
    in_place_since: Option<u64>,
}

impl<'a> Asked<'a> {
    fn of(root: &'a TestRoot) -> Self {
        Self {
            root,
            within: Duration::from_secs(60),
            in_place_since: None,
        }
    }

    fn with_context<T>(&self, work: impl FnOnce(&ProbeContext<'_>) -> T) -> T {
        let root = Root::open(self.root.dir()).unwrap();
        work(&ProbeContext {
            root: &root,
            runner: &HostRunner,
            names: NameSources {
                hosts: self.root.path("etc/hosts"),
                resolv_conf: self.root.path("etc/resolv.conf"),
                ..NameSources::default()
            },
            in_place_since: self.in_place_since,
            until: Instant::now() + self.within,
            ended: &|| false,
        })
    }

    fn run(&self, text: &str) -> ProbeResult {
        let probe = parse_probe(text).unwrap();
        self.with_context(|context| run_probe(&probe, context))
    }

    fn is_good(&self, text: &str, words: &str) {
        let result = self.run(text);
        assert!(result.good, "{text}: {}", result.said);
        assert!(
            result.said.contains(words),
            "{words:?} is not in {:?}",
            result.said
        );
        assert_eq!(result.name, text);
    }

    fn is_bad(&self, text: &str, words: &str) {
        let result = self.run(text);
        assert!(!result.good, "{text}: {}", result.said);
        assert!(
            result.said.contains(words),
            "{words:?} is not in {:?}",
            result.said
        );
    }
}

/// Connects a router: the kernel's answers are its own; the node has the address 198.51.100.2 and fd00:51::2.
fn connect_router() -> Machine {
    let router = Machine::connect("cable");
    // The interface's number is read there, for link-local routers.
    mount(&["-t", "sysfs", "none", "/sys"]);
    router.ip("link set lo up");
    // Without the search for duplicates, which takes a second.
    for address in [
        "198.51.100.1/24",
        "fd00:51::1/64 nodad",
        "fe80::51/64 nodad",
    ] {
        router.ip(&format!("addr add dev cable {address}"));
    }
    router.ip("link set cable up");
    for address in [
        "198.51.100.2/24",
        "fd00:51::2/64 nodad",
        "fe80::52/64 nodad",
    ] {
        ip(&format!("addr add dev cable {address}"));
    }
    ip("link set cable up");
    router
}

#[test]
fn the_router_of_the_default_route_has_to_answer() {
    with_network(|| {
        let root = TestRoot::new();
        let asked = Asked::of(&root);
        asked.is_bad("default-route", "there is no default route");
        let router = connect_router();
        ip("route add default via 198.51.100.1");
        asked.is_good("default-route", "198.51.100.1 on cable answers");
        for gateway in ["fd00:51::1", "fe80::51"] {
            ip(&format!("-6 route add default via {gateway} dev cable"));
            asked.is_good("default-route", &format!("{gateway} on cable answers"));
            ip(&format!("-6 route del default via {gateway} dev cable"));
        }
        // One family that does not answer is enough to fail.
        ip("-6 route add default via fd00:51::99 dev cable");
        let soon = Asked {
            within: Duration::from_secs(3),
            ..Asked::of(&root)
        };
        soon.is_bad("default-route", "fd00:51::99 on cable does not answer");
        ip("-6 route del default via fd00:51::99 dev cable");

        // The router is gone; the kernel still has it as a reachable neighbour from before the change.
        asked.is_good("default-route", "198.51.100.1");
        let change = milliseconds_since_boot();
        router.ip("addr del 198.51.100.1/24 dev cable");
        let soon = Asked {
            in_place_since: Some(change),
            within: Duration::from_secs(2),
            ..Asked::of(&root)
        };
        soon.is_bad("default-route", "198.51.100.1 on cable does not answer");
    });
}

#[test]
fn a_router_that_answers_no_datagram_is_known_by_its_neighbour_entry() {
    with_network(|| {
        let root = TestRoot::new();
        let router = connect_router();
        // It resolves addresses, and everything that it would send to the node is dropped.
        router.ip("route add blackhole 198.51.100.2/32");
        ip("route add default via 198.51.100.1");
        Asked::of(&root).is_good("default-route", "198.51.100.1 on cable answers");
    });
}

fn write_kubeconfig(root: &TestRoot, server: &str, authority: &Authority) {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.encode(&authority.pem);
    root.write(
        "var/lib/kubelet/kubeconfig",
        &format!(
            "clusters:\n- name: local\n  cluster:\n    server: {server}\n    certificate-authority-data: {pem}\n"
        ),
    );
}

#[test]
fn one_name_server_that_answers_is_enough() {
    with_network(|| {
        let root = TestRoot::new();
        let at = |address: &str| -> SocketAddr { format!("{address}:53").parse().unwrap() };
        let asked = Asked::of(&root);
        asked.is_bad("name-servers", "names no server");
        root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
        asked.is_bad(
            "name-servers",
            "127.0.0.1 for localhost: nothing listens on its port",
        );
        let good = NameServer::start(at("127.0.0.1"), |_| Said::addresses(&["192.0.2.1"]));
        let _none = NameServer::start(at("127.0.0.2"), |_| Said::Code(RCODE::NameError));
        let _failing = NameServer::start(at("127.0.0.3"), |_| Said::Code(RCODE::ServerFailure));
        let _silent = NameServer::start(at("127.0.0.4"), |_| Said::Silence);
        for (servers, good, words) in [
            (&[1][..], true, "127.0.0.1 answers for localhost"),
            (&[2], true, "127.0.0.2 answers"),
            (&[3], false, "SERVFAIL"),
            (&[4], false, "no answer within"),
            (&[3, 4, 1], true, "127.0.0.1 answers"),
        ] {
            let line = |server: &i32| format!("nameserver 127.0.0.{server}\n");
            root.write(
                "etc/resolv.conf",
                &servers.iter().map(line).collect::<String>(),
            );
            let result = asked.run("name-servers");
            assert_eq!(result.good, good, "{servers:?}: {}", result.said);
            assert!(result.said.contains(words), "{}", result.said);
        }
        // The name of the API server is the one that the node needs.
        write_kubeconfig(&root, "https://api-int.example:6443", &Authority::new("ca"));
        root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
        asked.is_good("name-servers", "answers for api-int.example");
        assert!(
            good.asked()
                .iter()
                .any(|asked| asked.name == "api-int.example")
        );
    });
}

#[test]
fn the_api_answers_with_any_status_and_certificate() {
    with_network(|| {
        let root = TestRoot::new();
        root.write("etc/hosts", "127.0.0.1 api-int.example\n");
        let asked = Asked::of(&root);
        asked.is_bad("api", "no Machine Config Server is remembered");
        let (authority, other) = (Authority::new("one"), Authority::new("two"));
        let names = ["api-int.example"];
        let valid = authority.issue(&names, VALID);
        let expired = authority.issue(&names, Years(2020, 2021));
        for (identity, trusted, status, words) in [
            (&valid, &authority, 200, "/readyz answers 200"),
            (&valid, &authority, 401, "/readyz answers 401"),
            (&valid, &authority, 500, "/readyz answers 500"),
            (
                &valid,
                &other,
                200,
                "answers, but the server's certificate is signed by no authority",
            ),
            (
                &expired,
                &authority,
                200,
                "answers, but the server's certificate expired",
            ),
        ] {
            let routes = Routes::new().at("*", move |_| Response::status(status));
            let server = Server::tls(routes, identity);
            write_kubeconfig(&root, &server.url_of("api-int.example", ""), trusted);
            asked.is_good("api", words);
        }
        let hangs = Server::tls(Routes::new().at("*", |_| Response::raw("").hold()), &valid);
        write_kubeconfig(&root, &hangs.url_of("api-int.example", ""), &authority);
        let soon = Asked {
            within: Duration::from_secs(2),
            ..Asked::of(&root)
        };
        soon.is_bad("api", "api-int.example");
        write_kubeconfig(&root, "https://api-int.example:1", &authority);
        asked.is_bad("api", "connection refused");
        root.write("etc/hosts", "");
        asked.is_bad("api", "api-int.example could not be resolved");
        // Without a kubeconfig it is the server that answered last.
        fs::remove_file(root.path("var/lib/kubelet/kubeconfig")).unwrap();
        let remembered = Server::tls(
            Routes::new().at("/healthz", |_| Response::ok("")),
            &authority.issue(&["127.0.0.1"], VALID),
        );
        let kept = serde_json::json!({"version": 1, "url": remembered.url(""), "pool": "worker",
            "authorities": authority.pem, "answered": 1});
        root.write("var/lib/mco-rescue/server.json", &kept.to_string());
        asked.is_good("api", "/healthz answers 200");
    });
}

#[test]
fn the_kubelet_has_to_say_that_it_is_healthy() {
    with_network(|| {
        let root = TestRoot::new();
        let asked = Asked::of(&root);
        asked.is_bad("kubelet", "connection refused");
        let status = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(500));
        let said = status.clone();
        // A stand-in for the kubelet's page.
        let _kubelet = Server::at(
            "127.0.0.1:10248".parse().unwrap(),
            Routes::new().at("/healthz", move |_| {
                Response::status(said.load(std::sync::atomic::Ordering::SeqCst))
            }),
        );
        asked.is_bad("kubelet", "the kubelet answers 500");
        status.store(200, std::sync::atomic::Ordering::SeqCst);
        asked.is_good("kubelet", "healthy");
    });
}

#[test]
fn sshd_has_to_greet_at_each_of_its_ports() {
    with_sshd(|sshd| {
        let root = TestRoot::new();
        let asked = Asked::of(&root);
        // Its port is 2222, and nothing listens at 22.
        asked.is_bad("sshd", "127.0.0.1:22: connection refused");
        let config = fs::read_to_string(sshd.path("sshd_config")).unwrap();
        root.write("etc/ssh/sshd_config", &config);
        asked.is_good("sshd", "127.0.0.1:2222");
        // Over the node's own address too, where there is a default route.
        let _router = connect_router();
        ip("route add default via 198.51.100.1");
        asked.is_good("sshd", "127.0.0.1:2222, 198.51.100.2:2222");
        root.write(
            "etc/ssh/sshd_config",
            &(config.clone() + "ListenAddress 198.51.100.2\n"),
        );
        asked.is_good("sshd", "answers at 198.51.100.2:2222");
        root.write(
            "etc/ssh/sshd_config",
            &("Include /etc/ssh/sshd_config.d/*.conf\n".to_owned() + &config),
        );
        root.write("etc/ssh/sshd_config.d/10.conf", "Port 2223\n");
        asked.is_bad("sshd", "127.0.0.1:2223: connection refused");
        // Something else listens there.
        let other = std::net::TcpListener::bind("127.0.0.1:2223").unwrap();
        std::thread::spawn(move || {
            for stream in other.incoming() {
                let _ = std::io::Write::write_all(&mut stream.unwrap(), b"220 mail\r\n");
            }
        });
        asked.is_bad("sshd", "it does not begin with SSH-2.0-");
    });
}

fn write_script(root: &TestRoot, name: &str, text: &str, mode: u32) {
    let path = format!("etc/mco-rescue/probes.d/{name}");
    root.write(&path, text);
    root.chmod(&path, mode);
}

#[test]
fn files_of_the_directory_are_probes_in_the_order_of_their_names() {
    if !is_root() {
        skip(Lacks::Root, "files of root need root");
        return;
    }
    let root = TestRoot::new();
    let asked = Asked::of(&root);
    let list = |root: &TestRoot| {
        let root = Root::open(root.dir()).unwrap();
        let all = list_probes(&root).unwrap().into_iter();
        all.map(|probe| probe.to_string()).collect::<Vec<_>>()
    };
    assert!(list(&root).is_empty());
    write_script(
        &root,
        "20-bad",
        "#!/bin/sh\necho no disk >&2\nexit 3\n",
        0o755,
    );
    write_script(&root, "10-good", "#!/bin/sh\necho all well\n", 0o700);
    write_script(&root, "30-late", "#!/bin/sh\ntouch \"$0.ran\"\n", 0o755);
    write_script(&root, "README", "text\n", 0o644);
    write_script(&root, ".hidden", "#!/bin/sh\n", 0o755);
    write_script(&root, "10-good~", "#!/bin/sh\n", 0o755);
    assert_eq!(
        list(&root),
        ["probes.d/10-good", "probes.d/20-bad", "probes.d/30-late"]
    );
    asked.is_good("probes.d/10-good", "all well");
    asked.is_bad("probes.d/20-bad", "exit status 3: no disk");
    asked.is_bad("probes.d/README", "is not executable: chmod u+x");
    asked.is_bad(
        "probes.d/missing",
        "/etc/mco-rescue/probes.d/missing is missing",
    );
    // After the first bad one the others are left out.
    let names = |results: Vec<ProbeResult>| -> Vec<(String, bool)> {
        results
            .into_iter()
            .map(|one| (one.name, one.good))
            .collect()
    };
    let all: Vec<Probe> = list(&root)
        .iter()
        .map(|text| parse_probe(text).unwrap())
        .collect();
    let results = names(asked.with_context(|context| run_round(&all, context)));
    let wanted = [
        ("probes.d/10-good".to_owned(), true),
        ("probes.d/20-bad".to_owned(), false),
    ];
    assert_eq!(results, wanted);
    assert!(!root.path("etc/mco-rescue/probes.d/30-late.ran").exists());

    // What others could have written does not run as root.
    for mode in [0o775, 0o757] {
        root.chmod("etc/mco-rescue/probes.d/10-good", mode);
        asked.is_bad("probes.d/10-good", "others could change it");
    }
    root.chmod("etc/mco-rescue/probes.d/10-good", 0o755);
    let path = root.path("etc/mco-rescue/probes.d/10-good");
    std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
    asked.is_bad("probes.d/10-good", "belongs to user 1000");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    root.chmod("etc/mco-rescue/probes.d", 0o777);
    asked.is_bad("probes.d/10-good", "/etc/mco-rescue/probes.d has mode 0777");
    root.chmod("etc/mco-rescue/probes.d", 0o755);
    // A link may lead to a file of anybody.
    root.link("etc/mco-rescue/probes.d/40-link", "/tmp/script");
    asked.is_bad("probes.d/40-link", "is not a regular file");
    // No interpreter, and no program.
    write_script(&root, "50-text", "just text\n", 0o755);
    asked.is_bad("probes.d/50-text", "a script begins with #!/bin/sh");
}

#[test]
fn a_command_that_hangs_is_ended_with_everything_it_started() {
    let root = TestRoot::new();
    let asked = Asked::of(&root);
    asked.is_good("echo one; echo two", "two");
    asked.is_good("exit 0", "exit status 0");
    asked.is_bad("exit 7", "exit status 7");
    asked.is_bad("no-such-program --really", "exit status 127");
    asked.is_bad("kill -9 $$", "a signal ended it");
    let soon = Asked {
        within: Duration::from_secs(1),
        ..Asked::of(&root)
    };
    let pids = root.path("pids");
    let script = format!(
        "trap '' TERM; sleep 600 & echo $! >{0}; (trap '' TERM HUP; echo $$ >>{0}; while :; do sleep 1; done)",
        pids.display()
    );
    soon.is_bad(&script, "was killed with everything that it started");
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        let end = Instant::now() + Duration::from_secs(60);
        while is_alive(pid) {
            assert!(Instant::now() < end, "{pid} is still there");
            std::thread::yield_now();
        }
    }
    // The guard is told to do something else meanwhile.
    let real = Root::open(Path::new("/")).unwrap();
    let started = root.path("started");
    let result = run_probe(
        &parse_probe(&format!("touch {}; sleep 600", started.display())).unwrap(),
        &ProbeContext {
            root: &real,
            runner: &HostRunner,
            names: NameSources::default(),
            in_place_since: None,
            until: Instant::now() + Duration::from_secs(600),
            ended: &|| started.exists(),
        },
    );
    assert!(
        !result.good && result.said.contains("was ended"),
        "{}",
        result.said
    );
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}
