//! FP-32: names cannot be resolved before the node runs.

use super::small::{self, directory, live, record_on};
use super::{Dark, doctor, doctor_on, found, of, says, unseen};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-32", "name servers", |root| {
    directory(root, "etc/resolv.conf")
})];

#[test]
fn name_servers_of_a_disk_are_worth_knowing_only() {
    let root = small::node();
    root.write("etc/resolv.conf", "");
    says(&found(&doctor(&root), "FP-32", "notice"), &["no server"]);
    root.remove("etc/resolv.conf");
    assert_eq!(of(&doctor(&root), "FP-32"), Vec::<Value>::new());
}

#[test]
fn a_list_of_sources_without_a_name_server_is_named() {
    let root = small::node();
    root.write(
        "etc/nsswitch.conf",
        "# hosts: files\nhosts: files myhostname # dns\n",
    );
    let text = found(&doctor(&root), "FP-32", "warning");
    says(
        &text,
        &["not looked up at a name server", "hosts: files myhostname"],
    );
    for good in [
        "hosts: files dns\n",
        "passwd: files\n",
        "hosts: files resolve [!UNAVAIL=return]\n",
    ] {
        root.write("etc/nsswitch.conf", good);
        assert_eq!(of(&doctor(&root), "FP-32"), Vec::<Value>::new());
    }
}

#[test]
fn a_disk_of_a_node_that_answers_for_names_itself_says_so() {
    let root = small::node();
    root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
    root.write("etc/kubernetes/manifests/coredns.yaml", "kind: Pod\n");
    says(
        &found(&doctor(&root), "FP-32", "notice"),
        &[
            "the node is its own only name server",
            "coredns.yaml",
            "static pod",
        ],
    );
}

#[test]
fn a_link_that_leads_to_nothing_is_named() {
    let root = small::node();
    root.remove("etc/resolv.conf");
    root.link("etc/resolv.conf", "../usr/lib/none/resolv.conf");
    says(
        &found(&doctor(&root), "FP-32", "warning"),
        &[
            "/etc/resolv.conf leads to nothing",
            "a link to ../usr/lib/none/resolv.conf, which is missing",
        ],
    );
    // What is below /run is there while the node runs.
    root.remove("etc/resolv.conf");
    root.link("etc/resolv.conf", "../run/NetworkManager/resolv.conf");
    assert_eq!(of(&doctor(&root), "FP-32"), Vec::<Value>::new());
    live(|node| {
        record_on(node, |_| {});
        node.root.remove("etc/resolv.conf");
        node.root
            .link("etc/resolv.conf", "/run/NetworkManager/resolv.conf");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["a link to /run/NetworkManager/resolv.conf, which is missing"],
        );
    });
}

#[test]
fn a_live_node_without_name_servers_is_critical() {
    live(|node| {
        record_on(node, |_| {});
        assert_eq!(of(&doctor_on(node), "FP-32"), Vec::<Value>::new());
        node.root.write("etc/resolv.conf", "search example\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["on [::1]:53"],
        );
        node.root.write("etc/resolv.conf", "nameserver 127.0.0.1\n");
        found(&doctor_on(node), "FP-32", "warning");
        node.root
            .write("etc/kubernetes/manifests/coredns.yaml", "kind: Pod\n");
        says(
            &found(&doctor_on(node), "FP-32", "critical"),
            &["coredns.yaml", "127.0.0.1"],
        );
    });
}

#[test]
fn name_servers_of_a_running_node_are_not_asked_and_that_is_said() {
    live(|node| {
        record_on(node, |_| {});
        says(&unseen(&doctor_on(node), "FP-32"), &["dig @SERVER NAME"]);
    });
}
