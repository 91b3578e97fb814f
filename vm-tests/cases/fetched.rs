//! While the network is good the node keeps its config by itself; when it is gone, the config is there (story: the
//! migration that was cut off, on a node that was prepared for it).
//!
//! Prepared: a running node at config A, and a Machine Config Server, of TLS and outside of the guest. Somebody
//! installs the program and fetches once. Then the server has B, and the timer's service, with all its hardening,
//! is started by the real systemd. True afterwards: B is in the cache, nobody had to name server or authority
//! again, and when the cable is pulled `apply --latest` makes the node be B.

use serde_json::json;

use super::configs;
use super::node::{PROGRAM, has_been_in, is_healthy_in};
use crate::lab::Case;
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{CLUSTER_CARD, Node, cluster_network};
use crate::support::http::{Authority, Response, Routes, Server, Years};

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_node_that_fetched_by_itself_has_its_config_when_the_network_is_gone() {
    let Some(case) = Case::begin_as_root("fetched by the service") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let key = node.public_key();
    let (a, b) = (
        configs::worker(&key, 250, json!({})),
        configs::worker(&key, 500, json!({})),
    );
    has_been_in(&node, &a);
    let initramfs = images::initramfs(Kind::Lean);
    let authority = Authority::new("root-ca of the machine config server");
    let identity = authority.issue(&["10.0.3.100"], Years(2020, 2060));
    let (first, then) = (served(&a), served(&b));
    let routes = Routes::new().at("/config/worker", move |request| match request.nth {
        0 => Response::ok(&first),
        _ => Response::ok(&then),
    });
    let server = Server::tls(routes, &identity);
    case.prepared();

    let port = server.address().port();
    let mut booted = node.boot(&cluster_network(node.machine(&initramfs), Some(port)));
    booted.comes_up();
    booted.bring("ca.pem", authority.pem.as_bytes());
    booted.ask(&format!("sudo {PROGRAM} install"));
    booted.ask(&format!(
        "sudo {PROGRAM} fetch --pool worker --server 10.0.3.100 --ca ca.pem"
    ));
    let started = booted.run("sudo systemctl start mco-rescue-fetch.service");
    let journal = "sudo journalctl --no-pager --output cat --unit mco-rescue-fetch.service";
    assert_eq!(started.code(), 0, "{}", booted.ask(journal));
    let result = "systemctl show --property=Result,ExecMainStatus --value mco-rescue-fetch.service";
    assert_eq!(booted.ask(result), "success\n0");
    assert_eq!(
        booted.ask("systemctl is-enabled mco-rescue-fetch.timer"),
        "enabled"
    );
    assert_eq!(server.requests().len(), 2);
    let list = booted.ask(&format!("sudo {PROGRAM} cache list"));
    assert!(list.contains(configs::name(&b)), "{list}");

    booted.guest.set_link(CLUSTER_CARD, false);
    booted.ask(&format!("sudo {PROGRAM} apply --yes --latest"));
    booted.ask("sudo systemctl daemon-reload");
    is_healthy_in(&booted, &b);
    booted.power_off();
}

/// As the server serves it.
fn served(config: &serde_json::Value) -> String {
    let config =
        mco_rescue::config::document::parse_document(config.to_string().as_bytes(), "test")
            .unwrap();
    mco_rescue::config::document::serve_config(&config).unwrap()
}
