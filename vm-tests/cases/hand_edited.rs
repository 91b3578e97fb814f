//! Somebody changed the kubelet's configuration with an editor and masked a unit; weeks later an update is due
//! (story: the hand-edited file).
//!
//! Prepared: a running node at config A; over ssh its `kubelet.conf` is edited and `site.service` masked. True
//! afterwards: `verify` says it as the daemon would, and ends with 3; `apply`, without any argument, puts back those
//! two and nothing else; `verify` finds nothing; the node has not rebooted and the kubelet was never stopped.

use serde_json::json;

use super::configs;
use super::node::{PROGRAM, has_been_in, is_healthy_in};
use crate::lab::Case;
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::Node;

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_hand_edited_node_is_described_in_the_daemons_words_and_repaired_while_it_runs() {
    let Some(case) = Case::begin_as_root("6 hand-edited") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let unit = json!([{"name": "site.service", "enabled": true, "contents": configs::idle("the site's own")}]);
    let a = configs::worker(&node.public_key(), 250, json!({"units": unit}));
    has_been_in(&node, &a);
    let initramfs = images::initramfs(Kind::Lean);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    is_healthy_in(&booted, &a);
    let since = "cat /proc/sys/kernel/random/boot_id; systemctl show -P MainPID kubelet.service";
    let before = booted.ask(since);
    let times =
        "sudo find /etc /usr /home -xdev -type f -newer /run/edited ! -path '/etc/.pwd.lock'";
    booted.ask(
        "echo 'maxOpenFiles: 2000000' | sudo tee -a /etc/kubernetes/kubelet.conf && \
         sudo systemctl stop site.service && sudo rm /etc/systemd/system/site.service && \
         sudo systemctl mask site.service && sudo touch /run/edited",
    );

    // Before the daemon says anything, and without being told what to look for.
    let doctor = booted.run(&format!("sudo {PROGRAM} doctor"));
    assert_ne!(doctor.code(), 0, "{}", doctor.out());
    let told = doctor.out();
    for words in ["FP-03", "/etc/kubernetes/kubelet.conf", "mco-rescue apply"] {
        assert!(told.contains(words), "no {words:?} in {told}");
    }
    assert!(!told.contains("--root"), "{told}");

    let verify = booted.run(&format!("sudo {PROGRAM} verify")).exits(3);
    let degraded = format!(
        "unexpected on-disk state validating against {}: ",
        configs::name(&a)
    );
    assert!(verify.out().contains(&degraded), "{}", verify.out());
    let said = "content mismatch for file \"/etc/kubernetes/kubelet.conf\"";
    assert!(verify.out().contains(said), "{}", verify.out());
    assert!(verify.out().contains("site.service"), "{}", verify.out());

    booted.ask(&format!("sudo {PROGRAM} apply --yes"));
    is_healthy_in(&booted, &a);
    assert_eq!(
        booted.ask(since),
        before,
        "it rebooted, or the kubelet was stopped"
    );
    let touched = booted.ask(times);
    let mut touched: Vec<&str> = touched.lines().collect();
    // Before its first run on a live node the program installs its own units.
    touched.retain(|path| !path.contains("/mco-rescue-"));
    touched.sort_unstable();
    assert_eq!(
        touched,
        [
            "/etc/kubernetes/kubelet.conf",
            "/etc/systemd/system/site.service"
        ]
    );
    booted.ask("sudo systemctl daemon-reload && sudo systemctl start site.service");
    booted.power_off();
}
