//! The playbook tries a change on a node, over ssh (story: the administrator of a fleet).
//!
//! Prepared: a node in a box with config A and the program's units, reached by a real ssh that shares its connections, and a
//! second node that comes after it. True afterwards: a good change is confirmed by a connection that was opened after it, and
//! stays; a change that cuts the node off stops the play, which names the node and the reason, and the second node is not asked.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::WINDOW;
use super::changes::Part;
use super::judge::State;
use super::lane::Lane;
use crate::lab::lan::NODE;
use crate::lab::random::Random;
use crate::lab::{Case, Shell, images};
use crate::support::TestRoot;
use crate::support::ansible::Fleet;

/// Seconds for the confirmation: the playbook needs some connections until it confirms.
const TIME: u64 = 40;

#[test]
#[ignore = "takes a minute: make vm-test runs it"]
fn the_playbook_confirms_a_good_change_and_names_the_node_that_took_a_bad_one_back() {
    let Some(case) = Case::begin_in_box("trials: the playbook") else {
        return;
    };
    let Some(mut fleet) = Fleet::new() else {
        return;
    };
    let lane = Lane::new(&case, WINDOW);
    case.prepared();
    let common = "-F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
                  -o UserKnownHostsFile=/dev/null -o ConnectTimeout=3";
    let own = json!({
        "ansible_connection": "ssh",
        "ansible_host": NODE,
        "ansible_user": "core",
        "ansible_ssh_private_key_file": lane.node().lan().key(),
        "ansible_ssh_common_args": common,
    });
    fleet.host_with("node-1", own);
    let second = TestRoot::new();
    fleet.host("node-2", second.dir());
    let given = |config| {
        json!({
            "mco_rescue_become": true,
            "mco_rescue_binary": images::program(),
            "mco_rescue_config": config,
            "mco_rescue_workspace": "/run",
            "mco_rescue_try": format!("{TIME}s"),
        })
    };

    let mut good = lane.site();
    good.improve(Part::Crio, 77, &mut Random::of(1));
    let config = fleet.write("good.json", &good.config().to_string());
    let only = ["--limit", "node-1"];
    let play = lane
        .node()
        .lan()
        .within(|| fleet.play(&given(config), &only));
    let play = play.ok();
    assert_eq!(play.count("node-1", "changed"), Some(1), "{}", play.said());
    let said = lane.said();
    assert_eq!(said.result(), "confirmed", "{}", said.parts());
    case.tell(&format!("good: {}", said.reason()));
    thread::sleep(Duration::from_secs(TIME));
    let said = lane.said();
    assert!(!said.runs(), "{}", said.parts());
    assert_eq!(said.result(), "confirmed", "{}", said.parts());
    lane.node()
        .ask("grep -qx 'pids_limit = 1077' /etc/crio/crio.conf.d/00-default");

    let before = State::of(lane.node(), true);
    let untouched = second.everything();
    let mut bad = good.clone();
    bad.spoil_by(Part::Firewall, "tcp dport 22 drop");
    let config = fleet.write("bad.json", &bad.config().to_string());
    let begun = Instant::now();
    let play = lane.node().lan().within(|| fleet.play(&given(config), &[]));
    let play = play.fails();
    case.tell(&format!(
        "bad: the play ended after {:.0} s",
        begun.elapsed().as_secs_f64()
    ));
    let words = play.said();
    assert!(words.contains("node-1 took its change back"), "{words}");
    assert!(words.contains("no confirmation came within"), "{words}");
    assert_eq!(play.count("node-1", "failed"), Some(1), "{words}");
    assert_eq!(play.count("node-2", "ok"), None, "{words}");
    assert_eq!(second.everything(), untouched);
    before
        .is_reached_by(lane.node())
        .unwrap_or_else(|differences| panic!("{differences}"));
    assert_eq!(lane.said().result(), "reverted");
    // What the play has brought is gone again.
    let left = lane
        .node()
        .ask("find /run/mco-rescue-* -type f 2>/dev/null || true");
    assert_eq!(left, "", "{words}");
}
