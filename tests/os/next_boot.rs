//! What the next boot enters, and who made it so: by our own runs and by other programs, in turn.

use std::fs;

use super::sequences::{Act, Node, config, image};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{ARRIVED, IMAGE, NEXT, OstreeNode, service_config};
use crate::support::{Run, flat_run};
use serde_json::{Value, json};

fn says(run: &Run, words: &[&str]) {
    let said = flat_run(run);
    for words in words {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

/// The image of a config, as a screen shows it after the first time.
fn short_image(name: char) -> String {
    let digits = image(name).replace(&name.to_string().repeat(64), &name.to_string().repeat(12));
    assert_ne!(digits, image(name));
    digits
}

fn is_silent(run: &Run, words: &[&str]) {
    let said = flat_run(run);
    for words in words {
        assert!(!said.contains(words), "{words:?} in {said}");
    }
}

/// In B, whose deployment runs; A is kept.
fn runs_b() -> Node {
    let mut node = Node::new();
    node.takes(Act::Apply('b')).unwrap().ok();
    node.takes(Act::RebootNew).unwrap().ok();
    assert_eq!(node.whole(), Some('b'));
    node.node.root.write("stub/log", "");
    node
}

/// The commands of rpm-ostree and ostree since then.
fn calls(node: &Node) -> String {
    node.node.root.read("stub/log")
}

/// What `doctor` finds about the OS that is booted, and the one of the next boot.
fn not_booted(node: &mut Node) -> Value {
    let said = node.run(&["doctor", "--output", "json"]).out();
    let said: Value = serde_json::from_str(&said).unwrap();
    let mut all = said["findings"].as_array().unwrap().iter();
    let found = all.find(|finding| finding["id"] == "FP-01");
    found.cloned().unwrap_or_default()
}

#[test]
fn a_kernel_argument_that_another_program_takes_away_is_no_recorded_os_that_waits() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::ForeignArguments);
        let found = not_booted(&mut node);
        assert_eq!(found["what"], "the next boot leaves the recorded OS");
        assert_eq!(found["severity"], "warning");
        assert_eq!(
            found["next"],
            json!(["rpm-ostree cleanup -p", "mco-rescue status"])
        );
        let seen = found["evidence"].to_string();
        assert!(seen.contains("audit=0 missing"), "{seen}");
        let status = node.run(&["status"]).ok();
        let words = [
            "not by mco-rescue, but by",
            "without audit=0",
            "keep the running system: rpm-ostree cleanup -p",
        ];
        says(&status, &words);
    });
}

#[test]
fn an_awaited_image_that_another_one_replaced_is_not_promised() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        // Another serial alone is no other operating system.
        node.foreign(&["rpm-ostree", "kargs", "--append=quiet"]);
        let status = node.run(&["status"]).ok();
        says(&status, &["rendered-worker-b, at the next boot"]);
        node.takes(Act::ForeignRebase);
        let status = node.run(&["status"]).ok();
        is_silent(&status, &["at the next boot"]);
        let words = format!(
            "rendered-worker-b, but the next boot does not enter it: {} was staged, but {} comes",
            image('b'),
            short_image('c')
        );
        says(&status, &[&words, "its files are in place"]);
        let complete = node.run(&["complete"]).exits(3);
        says(&complete, &["the next boot does not enter it"]);
        // An argument of the config that is taken away again is no less.
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        node.takes(Act::ForeignArguments);
        let status = node.run(&["status"]).ok();
        is_silent(&status, &["at the next boot"]);
        says(&status, &["the kernel arguments nosmt are missing"]);
    });
}

#[test]
fn a_swap_of_boot_entries_by_another_program_is_named() {
    with_mounts(|| {
        let mut node = Node::new();
        // Another image with the same arguments.
        let same = config('a').replace(&image('a'), &image('b'));
        let same = same.replace("-worker-a", "-worker-d");
        node.node.root.write("same", &same);
        node.run(&["apply", "--yes", "/same"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        node.takes(Act::ForeignRollback);
        let words = [
            &format!("Queued {} (runs after a reboot)", short_image('a')),
            "not by mco-rescue, but by an unknown program",
            "systemctl reboot enters it; keep the running system: rpm-ostree rollback",
        ];
        says(&node.run(&["status"]).ok(), &words.map(|words| words));
        let found = not_booted(&mut node);
        assert_eq!(found["what"], "the next boot leaves the recorded OS");
        assert_eq!(found["next"][0], "rpm-ostree rollback");
        node.takes(Act::ForeignRollback);
        is_silent(&node.run(&["status"]).ok(), &["Queued"]);
        node.takes(Act::ForeignRebase);
        let found = not_booted(&mut node);
        assert_eq!(found["what"], "the next boot leaves the recorded OS");
        let seen = found["evidence"].to_string();
        assert!(seen.contains(&image('c')), "{seen}");
    });
}

#[test]
fn a_queued_rollback_of_bootc_is_named() {
    with_mounts(|| {
        let node = OstreeNode::of_bootc();
        let one = service_config("rendered-worker-1", IMAGE, "one\n");
        node.root.write("one", &one.to_string());
        node.run(&["apply", "--yes", "/one"]).ok();
        let line = format!("{ARRIVED} {NEXT} registry no\n");
        node.root.write("stub/bootc-rollback", &line);
        node.root.write("stub/bootc-queued", "\n");
        let words = [
            &format!("Queued {NEXT} (runs after a reboot)"),
            "systemctl reboot enters it; keep the running system: ostree admin set-default 1",
        ];
        says(&node.run(&["status"]).ok(), &words.map(|words| words));
    });
}

#[test]
fn a_rebase_that_failed_staged_nothing() {
    with_mounts(|| {
        let node = OstreeNode::new();
        let one = service_config("rendered-worker-1", IMAGE, "one\n");
        node.root.write("one", &one.to_string());
        node.run(&["apply", "--yes", "/one"]).ok();
        let entry = |seconds: i64, message: &str| {
            let now = std::time::SystemTime::now();
            let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            let now = i64::try_from(now).unwrap();
            let time = format!("{}000000", now + seconds);
            json!({"__REALTIME_TIMESTAMP": time, "MESSAGE": message}).to_string()
        };
        let path = "/org/projectatomic/rpmostree1/rhcos";
        let who = "Rebase for client(id:cli dbus:1.5 unit:session-12.scope uid:0)";
        let begun = format!("Initiated txn {who}: {path}");
        let logs = [
            // It failed; something else staged later.
            [
                entry(-3, &begun),
                entry(-2, &format!("Txn Rebase on {path} failed: No such image")),
            ],
            // It succeeded, and something else staged much later.
            [
                entry(-900, &begun),
                entry(-800, &format!("Txn Rebase on {path} successful")),
            ],
            // It staged.
            [
                entry(-60, &begun),
                entry(60, &format!("Txn Rebase on {path} successful")),
            ],
        ];
        for (log, is_it) in logs.iter().zip([false, false, true]) {
            let lines = log.join("\n");
            node.program("journalctl", &format!("cat <<'END'\n{lines}\nEND"));
            crate::support::copy_program(&node.root, "/bin/cat");
            node.is_staged_by_others(false, NEXT, false);
            let status = node.run(&["status"]).ok();
            let said = flat_run(&status);
            assert_eq!(said.contains("session-12.scope"), is_it, "{said}");
            says(&status, &["not by mco-rescue, but by"]);
        }
    });
}

#[test]
fn an_image_alone_after_a_queued_rollback_starts_from_what_runs() {
    with_mounts(|| {
        let mut node = runs_b();
        node.run(&["rollback", "--yes"]).ok();
        let run = node.takes(Act::Pivot).unwrap().ok();
        says(&run, &["the next boot enters the running deployment again"]);
        let lines = node.lines();
        assert_eq!(lines[0].image, image('c'));
        assert_eq!(lines[0].arguments, "rw nosmt");
        assert!(
            lines.iter().any(|line| line.image == image('a')),
            "the way back is kept: {lines:?}"
        );
        // The image alone is not of the recorded config, and nothing else is wrong.
        let complete = node.takes(Act::RebootNew).unwrap().exits(3);
        says(
            &complete,
            &["runs, but the node is incomplete: rendered-worker-b is recorded, but OS image"],
        );
        is_silent(&complete, &["kernel arguments"]);
        assert_eq!(node.node.root.read("etc/service.conf"), "b\n");
        assert_eq!(
            node.node.root.read("cmdline").split(' ').nth(1),
            Some("nosmt")
        );
    });
}

#[test]
fn a_staging_that_fails_leaves_the_queued_rollback() {
    with_mounts(|| {
        let mut node = runs_b();
        node.run(&["rollback", "--yes"]).ok();
        let before = node.lines();
        node.node.root.write("stub/fails", "rebase\n");
        let run = node.takes(Act::Pivot).unwrap().exits(1);
        node.node.root.write("stub/fails", "none\n");
        assert_eq!(node.lines()[0].image, before[0].image, "{}", flat_run(&run));
        let status = node.run(&["status"]).ok();
        says(
            &status,
            &["the rollback from rendered-worker-b, at the next boot"],
        );
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('a'));
    });
}

#[test]
fn a_queued_rollback_is_given_up_without_any_image() {
    with_mounts(|| {
        let image_b = image('b');
        let ways: [&[&str]; 3] = [
            &["pivot", "--yes"],
            &["pivot", "--yes", &image_b],
            &["apply", "--yes", "/b"],
        ];
        for way in ways {
            let mut node = runs_b();
            node.run(&["rollback", "--yes"]).ok();
            let status = node.run(&["status"]).ok();
            says(&status, &["Next: systemctl reboot"]);
            is_silent(&status, &["mco-rescue plan", "mco-rescue apply"]);
            node.node.root.write("stub/fails", "rebase\n");
            let plan = node.run(&[way, &["--takeover"]].concat()).ok();
            is_silent(&plan, &["instead of"]);
            assert!(!calls(&node).contains("rebase"), "{}", calls(&node));
            let status = node.run(&["status"]).ok();
            is_silent(&status, &["Boot into", "Queued", "Mismatch"]);
            assert!(node.takes(Act::RebootNew).is_none(), "nothing is awaited");
            assert_eq!(node.whole(), Some('b'));
            // And again from there.
            node.run(&["rollback", "--yes"]).ok();
            node.takes(Act::RebootNew).unwrap().ok();
            assert_eq!(node.whole(), Some('a'));
        }
    });
}

#[test]
fn what_is_dropped_takes_no_queued_deployment_along() {
    with_mounts(|| {
        let mut node = runs_b();
        node.run(&["rollback", "--yes"]).ok();
        node.takes(Act::ForeignRebase);
        node.run(&["apply", "--yes", "--takeover", "/b"]).ok();
        let lines = node.lines();
        assert!(lines[0].booted, "{lines:?}");
        assert!(
            lines.iter().any(|line| line.image == image('a')),
            "{lines:?}"
        );
        assert_eq!(node.whole(), Some('b'));
        node.run(&["rollback", "--yes"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('a'));
    });
}

#[test]
fn a_medium_that_is_named_is_looked_at() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Pivot).unwrap().ok();
        fs::create_dir_all(node.node.root.path("medium/blobs/sha256")).unwrap();
        let layout = "{\"imageLayoutVersion\": \"1.0.0\"}";
        node.node.root.write("medium/oci-layout", layout);
        let index = json!({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", "e".repeat(64)), "size": 2}]});
        node.node
            .root
            .write("medium/index.json", &index.to_string());
        let run = node
            .run(&["pivot", "--yes", "--os-from", "/medium"])
            .exits(1);
        says(
            &run,
            &["/medium", &"a".repeat(64), "mco-rescue pivot NAME@sha256:"],
        );
        assert!(node.lines()[0].image == image('c'), "{:?}", node.lines());
    });
}

#[test]
fn a_run_that_dropped_a_staging_is_reverted_with_the_run_whose_system_never_ran() {
    with_mounts(|| {
        let mut node = Node::new();
        let same_os = config('a').replace("-worker-a", "-worker-e");
        let same_os = same_os.replace("a%0A", "e%0A");
        node.node.root.write("e", &same_os);
        // The run drops what is staged, or another program did before.
        for is_dropped in [false, true] {
            node.takes(Act::Apply('b')).unwrap().ok();
            if is_dropped {
                node.takes(Act::Drop);
            }
            node.run(&["apply", "--yes", "/e"]).ok();
            assert_eq!(node.recorded(), "rendered-worker-e");
            node.run(&["rollback", "--yes"]).ok();
            let status = node.run(&["status"]).ok();
            is_silent(&status, &["Mismatch", "Boot into"]);
            assert_eq!(node.whole(), Some('a'));
            assert!(node.takes(Act::RebootNew).is_none(), "nothing is awaited");
            assert_eq!(node.whole(), Some('a'));
        }
    });
}

/// The commit of an image in the node's repository, under the name that ostree gives it.
fn has_in_repository(node: &Node, scheme: &str) -> String {
    let commit = "cc".repeat(32);
    let name = format!("{scheme}quay_2E_example/os_40_sha256_3A_{}", "c".repeat(64));
    let folder = "sysroot/ostree/repo";
    let reference = format!("{folder}/refs/heads/ostree/container/image/{name}");
    node.node.root.write(&reference, &format!("{commit}\n"));
    let object = format!("{folder}/objects/cc/{}.commit", &commit[2..]);
    node.node.root.write(&object, "commit");
    node.node
        .root
        .write(&format!("{folder}/config"), "[core]\nmode=bare\n");
    commit
}

/// As the first boot of newer releases has it, by a mount.
#[test]
fn a_repository_that_does_not_flush_is_said_before_anything_is_staged() {
    with_mounts(|| {
        let mut node = Node::new();
        has_in_repository(&node, "docker_3A__2F__2F_");
        let config = "sysroot/ostree/repo/config";
        for (text, is_said) in [
            ("[core]\nmode=bare\n", false),
            ("[core]\nmode=bare\n\n[core]\nfsync = false\n", true),
            ("[core]\nfsync=false\nfsync=true\n", false),
            ("[core]\nmode=bare\n[ex-integrity]\nfsync=false\n", false),
        ] {
            node.node.root.write(config, text);
            let plan = node.run(&["plan", "/c"]).ok();
            let words = "a power cut can damage the repository of the operating system";
            if is_said {
                says(&plan, &["/sysroot/ostree/repo/config", words])
            } else {
                is_silent(&plan, &[words])
            }
        }
        node.node.root.write(config, "[core]\nfsync=false\n");
        let pivot = node.run(&["pivot", &image('c')]);
        says(&pivot, &["Wait until the first boot is over"]);
    });
}

#[test]
fn an_image_in_the_repository_of_the_node_needs_no_registry() {
    with_mounts(|| {
        for scheme in ["docker_3A__2F__2F_", "containers-storage_3A_"] {
            let mut node = Node::new();
            let commit = has_in_repository(&node, scheme);
            let plan = node.run(&["plan", "/c"]).ok();
            says(&plan, &["it is on the node (cccccccccccc), no download"]);
            node.run(&["pivot", "--yes", &image('c')]).ok();
            let log = calls(&node);
            assert!(log.contains(&format!("pivot://{}", image('c'))), "{log}");
            assert!(log.contains(&commit), "{log}");
            // A pull that was cut off is not an image.
            let mut node = Node::new();
            has_in_repository(&node, scheme);
            let partial = format!("sysroot/ostree/repo/state/{commit}.commitpartial");
            node.node.root.write(&partial, "");
            is_silent(&node.run(&["plan", "/c"]).ok(), &["no download"]);
        }
    });
}

#[test]
fn a_daemon_that_died_once_is_asked_again() {
    with_mounts(|| {
        let mut node = Node::new();
        let root = &node.node.root;
        fs::rename(root.path("usr/sbin/rpm-ostree"), root.path("usr/sbin/real")).unwrap();
        let script = root
            .read("usr/sbin/real")
            .replace("*rpm-ostree)", "*rpm-ostree | */real)");
        node.node
            .program("real", script.trim_start_matches("#!/bin/sh\n"));
        node.node.program(
            "rpm-ostree",
            r#"dies=nothing; [ ! -e /stub/dies ] || read -r dies </stub/dies
case "$*" in "$dies"*) rm -f /stub/dies
echo 'error: Bus owner changed, aborting. This likely means the daemon crashed; check logs with `journalctl -xe`.' >&2
exit 1 ;; esac
exec /usr/sbin/real "$@""#,
        );
        for words in ["status --json", "kargs", "rebase", "kargs --"] {
            node.node.root.write("stub/dies", &format!("{words}\n"));
            node.run(&["plan", "/b"]).ok();
        }
        for words in ["rebase", "kargs --"] {
            node.node.root.write("stub/dies", &format!("{words}\n"));
            node.run(&["apply", "--yes", "/b"]).ok();
            assert!(!node.node.root.exists("stub/dies"), "{words} was run");
            node.run(&["rollback", "--yes"]).ok();
        }
        let said = node.run(&["status", "--output", "json"]).ok().out();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["os"]["problem"], Value::Null);
    });
}
