//! FP-15: the clock is wrong.

use std::fs;
use std::time::{Duration, SystemTime};

use super::small::{self, live, record_on};
use super::worker::{Branch, CLIENT, healthy, is_well, on_a_node};
use super::{CRITICAL, DAY, Sick, by_years, doctor, doctor_on, found, of, says, unseen};
use crate::support::http::{Authority, Response, Routes, Server, VALID, Years};
use crate::support::mcs::{ca, rendered, served};
use crate::support::unused_port;
use serde_json::{Value, json};

pub(super) const SICK: &[Sick] = &[Sick {
    id: "FP-15",
    code: CRITICAL,
    what: "the clock of this machine is behind",
    next: "date -u -s '2070-01-01 00:00:00'",
    sicken: |root| {
        root.write(CLIENT, &by_years("system:node:worker-0", 2070, 2080));
    },
}];

#[test]
fn a_clock_before_a_signature_or_a_build_is_behind() {
    let root = small::node();
    root.write("etc/kubernetes/ca.crt", &by_years("later", 2089, 2090));
    let text = found(&doctor(&root), "FP-15", "critical");
    says(
        &text,
        &["is behind by", "etc/kubernetes/ca.crt", "2089-01-01"],
    );
    root.remove("etc/kubernetes/ca.crt");
    // So does the day on which the OS was built.
    root.write(
        "usr/lib/os-release",
        "ID=scos\nOSTREE_VERSION='9.6.20890701-0'\n",
    );
    says(
        &found(&doctor(&root), "FP-15", "critical"),
        &["the OS was built", "2089-07-01", "/etc/os-release"],
    );
}

#[test]
fn a_clock_before_this_nodes_own_files_may_be_right() {
    let root = small::node();
    let written_in = |seconds: u64| {
        let file = fs::File::options()
            .write(true)
            .open(root.path("etc/machine-id"));
        let time = SystemTime::now() + Duration::from_secs(seconds);
        file.unwrap().set_modified(time).unwrap();
    };
    written_in(500);
    assert_eq!(of(&doctor(&root), "FP-15"), Vec::<Value>::new());
    for (seconds, span) in [
        (1230, "20 minutes"),
        (5 * 3600 + 30, "5 hours"),
        (5 * 86_400 + 30, "5 days"),
    ] {
        written_in(seconds);
        let text = found(&doctor(&root), "FP-15", "warning");
        says(
            &text,
            &["is behind by", span, "/etc/machine-id", "or it was ahead"],
        );
        assert!(!text.contains("x509"), "{text}");
    }
}

#[test]
fn a_board_whose_clock_stands_at_its_epoch_is_told_apart_from_one_that_differs() {
    live(|node| {
        record_on(node, |_| {});
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let board = |at: u64| {
            node.root
                .write("sys/class/rtc/rtc0/since_epoch", &format!("{at}\n"))
        };
        // Some keep local time.
        board(now - 7200);
        assert_eq!(of(&doctor_on(node), "FP-15"), Vec::<Value>::new());
        for epoch in [0, 946_684_800] {
            board(epoch);
            let text = found(&doctor_on(node), "FP-15", "warning");
            says(
                &text,
                &[
                    "the clock of the board is behind by",
                    "battery",
                    "hwclock --systohc",
                ],
            );
            assert!(!text.contains("date -u"), "{text}");
        }
        board(now + 40 * 86_400 + 600);
        says(
            &found(&doctor_on(node), "FP-15", "warning"),
            &["the clock is 40 days behind the board's", "date -u"],
        );
        // As long as the clock itself is wrong, the board is not told of.
        board(0);
        node.root
            .write("etc/kubernetes/ca.crt", &by_years("later", 2089, 2090));
        says(
            &found(&doctor_on(node), "FP-15", "critical"),
            &["the clock is behind"],
        );
    });
}

/// A Machine Config Server whose clock is off by so many seconds.
fn server_off_by(authority: &Authority, years: Years, seconds: i64) -> Server {
    let date = move || {
        let apart = Duration::from_secs(seconds.unsigned_abs());
        let now = SystemTime::now();
        httpdate::fmt_http_date(if seconds < 0 {
            now - apart
        } else {
            now + apart
        })
    };
    let body = served(&rendered("rendered-worker-a", "a\n"));
    let routes = Routes::new()
        .at("/config/worker", move |_| {
            Response::new(200, &[("Date", &date())], &body)
        })
        .at("*", move |_| Response::new(200, &[("Date", &date())], ""));
    Server::tls(routes, &authority.issue(&["127.0.0.1"], years))
}

#[test]
fn what_the_server_said_before_counts_until_somebody_set_the_clock() {
    on_a_node(|node| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let day = DAY.as_secs();
        let kept = |date: u64, seen: Option<u64>| {
            let text = json!({"version": 1, "url": "https://api-int.example:22623", "date": date, "seen": seen});
            node.root
                .write("var/lib/mco-rescue/server-clock.json", &text.to_string());
        };
        kept(now - 2 * day, Some(now - 5 * day));
        Branch {
            id: "FP-15",
            severity: "notice",
            what: "the clock was 3 days behind the server's",
            seen: &["Unless the clock was set since, it is still wrong"],
            next: &["mco-rescue fetch", "date -u"],
        }
        .met_by(&doctor_on(node), "");
        // It was ahead then, and was set back; there was no difference; another machine asked.
        for (date, seen) in [
            (now - 5 * day, Some(now + day)),
            (now - 5 * day, Some(now - 5 * day)),
            (now - 5 * day, None),
        ] {
            kept(date, seen);
            is_well(node, "FP-15");
        }
        let known = |url: &str| {
            let text = json!({"version": 1, "url": url, "pool": "worker", "authorities": "", "answered": now});
            node.root
                .write("var/lib/mco-rescue/server.json", &text.to_string());
        };
        known("http://127.0.0.1:9");
        let text = unseen(&doctor_on(node), "FP-15");
        assert!(text.contains("without TLS"), "{text}");
        let port = unused_port(&["127.0.0.1"]);
        known(&format!("https://127.0.0.1:{port}"));
        let text = unseen(&doctor_on(node), "FP-15");
        assert!(text.contains("refused"), "{text}");
        // Nobody waits for one that takes the call and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        known(&format!("https://{}", silent.local_addr().unwrap()));
        let begun = std::time::Instant::now();
        let text = unseen(&doctor_on(node), "FP-15");
        assert!(text.contains("the clock of the server"), "{text}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
    });
}

fn fetch_from(server: &Server, pem: &str) -> [String; 7] {
    [
        "fetch",
        "--pool",
        "worker",
        "--server",
        &server.url(""),
        "--ca",
        pem,
    ]
    .map(str::to_owned)
}

#[test]
fn the_clock_of_the_server_is_a_witness() {
    let authority = Authority::new("root-ca");
    on_a_node(|node| {
        node.root.write("ca.pem", &authority.pem);
        let asks = |server: &Server| {
            let args = fetch_from(server, "/ca.pem");
            node.run(&args.each_ref().map(String::as_str)).ok();
        };
        let right = server_off_by(&authority, VALID, 0);
        asks(&right);
        let report = doctor_on(node);
        assert!(of(&report, "FP-15").is_empty(), "{report:#}");
        assert_eq!(unseen(&report, "FP-15"), "[]");
        assert_eq!(right.requests().last().unwrap().path(), "/healthz");

        let ahead = server_off_by(&authority, VALID, -9 * 86_400);
        asks(&ahead);
        let wrong = |severity, what, seen, next| Branch {
            id: "FP-15",
            severity,
            what,
            seen,
            next,
        };
        wrong(
            "critical",
            "the clock is 9 days ahead of the server's",
            &["https://127.0.0.1:", "the server's clock was "],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&doctor_on(node), "");
        // When nobody answers any more, what was heard before counts, and that it was before.
        drop(ahead);
        let report = doctor_on(node);
        wrong(
            "notice",
            "the clock was 9 days ahead of the server's",
            &[
                "/var/lib/mco-rescue/server-clock.json",
                "clock at that moment",
            ],
            &["mco-rescue fetch", "date -u"],
        )
        .met_by(&report, "");
        assert!(
            unseen(&report, "FP-15").contains("the clock of the server: "),
            "{report:#}"
        );

        let hours = server_off_by(&authority, VALID, -3 * 3600);
        asks(&hours);
        wrong(
            "warning",
            "the clock is 3 hours ahead of the server's",
            &["Certificates end too early by this clock"],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&doctor_on(node), "");

        let behind = server_off_by(&authority, VALID, 3 * 86_400 + 60);
        asks(&behind);
        wrong(
            "critical",
            "the clock is behind by 3 days at least",
            &["https://127.0.0.1:", "the server's clock was "],
            &["date -u -s '", "hwclock --systohc", "chronyc makestep"],
        )
        .met_by(&doctor_on(node), "");
    });
}

#[test]
fn a_fetch_that_fails_for_the_clock_keeps_the_servers_time() {
    let authority = Authority::new("root-ca");
    let pem = ca(&authority);
    let root = healthy();
    // By the server's clock its certificate is valid.
    let server = server_off_by(&authority, Years(2080, 2090), 55 * 365 * 86_400);
    let mut args = fetch_from(&server, pem.path().to_str().unwrap()).to_vec();
    args.extend(["--timeout", "1"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    root.run(&args).exits(1);
    let report = doctor(&root);
    let found = of(&report, "FP-15");
    let what = found[0]["what"].as_str().unwrap();
    assert!(
        what.starts_with("the clock of this machine is behind by 200"),
        "{what}"
    );
    assert_eq!(
        found[0]["evidence"][1]["place"],
        "/var/lib/mco-rescue/server-clock.json"
    );
}
