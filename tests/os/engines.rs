//! Two engines, and what somebody else staged: every state is named by `status`, and a printed command leads out of it.
//! rpm-ostree is a named stub here, and so is bootc, of which no real one is in any test.

use std::fs;

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{ARRIVED, AWAITED, IMAGE, NEXT, OstreeNode, service_config};
use crate::support::{RECORD, Run, flat_run};
use serde_json::{Value, json};

const ONE: &str = "rendered-worker-1";
const TWO: &str = "rendered-worker-2";

/// A node of this engine in its first config, which runs.
fn node(bootc: bool) -> OstreeNode {
    let node = if bootc {
        OstreeNode::of_bootc()
    } else {
        OstreeNode::new()
    };
    let write = |path, config: Value| node.root.write(path, &config.to_string());
    write("one", service_config(ONE, IMAGE, "one\n"));
    write("two", service_config(TWO, NEXT, "two\n"));
    node.run(&["apply", "--yes", "/one"]).ok();
    node
}

fn recorded(node: &OstreeNode) -> String {
    let record: Value = serde_json::from_str(&node.root.read(RECORD)).unwrap();
    record["metadata"]["name"].as_str().unwrap().to_owned()
}

fn says(run: &Run, words: &[&str]) {
    let said = flat_run(run);
    for words in words {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

/// How far the operating system of the second config is, while the files are of the first or of the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Os {
    Booted,
    Staged,
    Locked,
    Soft,
}

/// Brings the node into a state; the operating system is another program's work.
fn brings(node: &OstreeNode, bootc: bool, os: Os, files_new: bool) {
    node.run(&["fetch", "/two"]).ok();
    if files_new {
        node.run(&["apply", "--yes", "--files-only", "/two"])
            .exits(3);
    }
    node.is_staged_by_others(bootc, NEXT, os == Os::Locked);
    match os {
        Os::Booted => node.reboots_into_staged(bootc, NEXT),
        Os::Soft => node.root.write("run/ostree/nextroot-booted", ""),
        Os::Staged | Os::Locked => {}
    }
    node.root.write("stub/log", "");
}

/// True where operating system, files and record are of the second config, and nothing is left to do.
fn is_whole(node: &OstreeNode) {
    let status = node.run(&["status"]).ok();
    let said = flat_run(&status);
    assert!(!said.contains("Mismatch"), "{said}");
    assert!(!said.contains("Boot into"), "{said}");
    node.run(&["verify", "/two"]).ok();
    assert_eq!(node.root.read("etc/service.conf"), "two\n");
    assert_eq!(recorded(node), TWO);
}

#[test]
fn every_state_of_either_engine_is_named_and_has_a_way_out() {
    with_mounts(|| {
        for bootc in [false, true] {
            for os in [Os::Booted, Os::Staged, Os::Locked, Os::Soft] {
                for files_new in [false, true] {
                    println!("bootc: {bootc}, {os:?}, files new: {files_new}");
                    let node = node(bootc);
                    brings(&node, bootc, os, files_new);
                    walks_out(&node, bootc, os, files_new);
                }
            }
        }
    });
}

/// What `status` and `plan` say in a state, and the way out that they print, to its end.
fn walks_out(node: &OstreeNode, bootc: bool, os: Os, files_new: bool) {
    let status = node.run(&["status"]).ok();
    let plan = |exits: i32| node.run(&["plan", "/two"]).exits(exits);
    let release = if bootc {
        "bootc upgrade --from-downloaded releases it"
    } else {
        "rpm-ostree finalize-deployment 5eed"
    };
    let who = if bootc {
        "bootc, the only engine here"
    } else {
        "rpm-ostree, bootc or ostree (its origin file has an image alone)"
    };
    if os != Os::Booted {
        says(&status, &["not by mco-rescue, but by", who]);
    }
    match (os, files_new) {
        (Os::Booted, true) => {
            assert!(!flat_run(&status).contains("Mismatch"));
            says(&plan(0), &["Nothing to do"]);
        }
        // Out of band: somebody booted what was staged before the files were written.
        (Os::Booted, false) => {
            let words = [
                "Mismatch",
                "The running image is that of rendered-worker-2",
                "Next: mco-rescue apply cached:rendered-worker-2 or: mco-rescue pivot",
            ];
            says(&status, &words);
            node.run(&["apply", "--yes", &format!("cached:{TWO}")]).ok();
            assert_eq!(node.calls(), Vec::<String>::new(), "only files come");
        }
        (Os::Staged | Os::Soft, false) => {
            says(&plan(0), &["what this config wants is already staged, by"]);
            if os == Os::Soft {
                says(&status, &["a soft reboot is prepared"]);
                says(&plan(0), &["a soft reboot is prepared"]);
            }
            node.run(&["apply", "--yes", "/two"]).ok();
            assert_eq!(
                node.calls(),
                Vec::<String>::new(),
                "nothing is staged twice"
            );
            reboots(node, bootc);
        }
        (Os::Staged | Os::Soft, true) => {
            says(&status, &["Mismatch", "Next: systemctl reboot"]);
            node.reboots_into_staged(bootc, NEXT);
        }
        (Os::Locked, _) => {
            says(&status, &["(locked: no reboot enters it)", release]);
            let words = [
                "an OS deployment is staged: quay.example/os@sha256:2222",
                "It is locked (a download only)",
                release,
                "--takeover drops it",
                "--files-only",
            ];
            says(&plan(1), &words);
            if files_new {
                says(&status, &["Mismatch", "or mco-rescue apply --takeover"]);
            }
            let staged = fs::read(node.root.path("run/ostree/staged-deployment")).unwrap();
            says(
                &node.run(&["apply", "--yes", "/two"]).exits(1),
                &["refusing to apply"],
            );
            let after = fs::read(node.root.path("run/ostree/staged-deployment")).unwrap();
            assert_eq!(after, staged, "it is not dropped unasked");
            assert_eq!(node.calls(), Vec::<String>::new());
            takes_over(node, bootc);
        }
    }
    is_whole(node);
}

/// The reboot after a run of ours, and the service that completes it.
fn reboots(node: &OstreeNode, bootc: bool) {
    node.reboots_into_staged(bootc, NEXT);
    node.awaits_since_the_boot_before();
    node.run(&["complete"]).ok();
}

/// `--takeover` drops what is staged, and stages it without the lock.
fn takes_over(node: &OstreeNode, bootc: bool) {
    node.run(&["apply", "--yes", "--takeover", "/two"]).ok();
    let calls = node.calls().join("\n");
    let wanted = if bootc {
        [
            "ostree admin undeploy 0",
            "bootc switch --transport registry ",
        ]
    } else {
        ["rpm-ostree cleanup -p", "rpm-ostree rebase "]
    };
    for one in wanted {
        assert!(calls.contains(one), "no {one} in {calls}");
    }
    reboots(node, bootc);
}

#[test]
fn what_somebody_staged_is_named_and_three_ways_are_offered() {
    with_mounts(|| {
        for bootc in [false, true] {
            let other = IMAGE.replace('1', "7");
            let node = node(bootc);
            node.is_staged_by_others(bootc, &other, false);
            let words = [
                "an OS deployment is staged: quay.example/os@sha256:7777",
                "by bootc, the only engine here",
                "It is not dropped unless requested. Wait: systemctl reboot enters it",
                "take over: --takeover drops it",
                "leave the operating system alone: --files-only",
            ];
            let of = |words: &[&'static str]| -> Vec<&'static str> {
                let skip = |one: &&&str| bootc || !one.starts_with("by bootc");
                words.iter().filter(skip).copied().collect()
            };
            let refused = node.run(&["plan", "/two"]).exits(1);
            says(&refused, &of(&words));
            node.root.write("stub/log", "");
            // Files alone leave it.
            let run = node
                .run(&["apply", "--yes", "--files-only", "/two"])
                .exits(3);
            says(&run, &["It is left alone, as asked (--files-only)"]);
            assert_eq!(node.calls(), Vec::<String>::new());
            assert!(node.root.exists("run/ostree/staged-deployment"));
            assert_eq!(node.root.read("etc/service.conf"), "two\n");
        }
    });
}

#[test]
fn units_of_other_programs_are_named() {
    with_mounts(|| {
        let node = node(true);
        node.is_staged_by_others(true, NEXT, false);
        // STUB of systemctl: two units that stage by themselves are active.
        node.program(
            "systemctl",
            r#"case $* in
*bootc-operator-switch.service*bootc-fetch-apply-updates.timer*)
    printf 'Id=bootc-operator-switch.service\nActiveState=active\nSubState=exited\n\n'
    printf 'Id=bootc-fetch-apply-updates.timer\nActiveState=active\nSubState=waiting\n' ;;
*) exit 1 ;; esac"#,
        );
        let words = [
            "the bootc operator (bootc-operator-switch.service is active)",
            "bootc's automatic update (bootc-fetch-apply-updates.timer is active)",
        ];
        says(&node.run(&["status"]).ok(), &words);
        says(&node.run(&["plan", "/two"]).ok(), &words);
    });
}

#[test]
fn where_rpm_ostree_is_missing_bootc_stages_and_the_staging_is_proven() {
    with_mounts(|| {
        let node = node(true);
        let said = node.run(&["plan", "/two"]).ok();
        says(
            &said,
            &[
                "credentials",
                "ln -s /var/lib/kubelet/config.json /run/ostree/auth.json",
            ],
        );
        node.run(&["apply", "--yes", "/two"]).ok();
        let switch = format!("bootc switch --transport registry {NEXT}");
        assert_eq!(node.calls(), ["ostree admin pin 0".to_owned(), switch]);
        let status = node.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(status["os"]["engine"], json!("bootc"));
        assert_eq!(status["os"]["staged"], json!(NEXT));
        assert_eq!(status["os"]["staged_by"], Value::Null, "by a run of ours");
        reboots(&node, true);
        is_whole(&node);
        // And back, to the previous deployment.
        node.root.write("stub/log", "");
        node.run(&["rollback", "--yes"]).ok();
        assert_eq!(node.calls(), ["ostree admin set-default 1"]);
        node.boots_back();
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        assert_eq!(recorded(&node), ONE);
        node.run(&["verify", "/one"]).ok();
        // Before the reboot it is only dropped.
        node.root.write("stub/log", "");
        node.run(&["apply", "--yes", "/two"]).ok();
        node.run(&["rollback", "--yes"]).ok();
        assert_eq!(node.calls().last().unwrap(), "ostree admin undeploy 0");
        assert!(!node.root.exists("run/ostree/staged-deployment"));
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
    });
}

#[test]
fn a_rollback_that_somebody_queued_is_reported_before_it_is_replaced() {
    with_mounts(|| {
        let node = node(true);
        let line = format!("{ARRIVED} {} registry no\n", IMAGE.replace('1', "7"));
        node.root.write("stub/bootc-rollback", &line);
        node.root.write("stub/bootc-queued", "\n");
        let words = [
            "the next boot: quay.example/os@sha256:7777",
            "is queued for the next boot",
            "takes its place",
            "Enter it instead: systemctl reboot. Keep it: ostree admin pin 0",
        ];
        says(&node.run(&["plan", "/two"]).ok(), &words);
        // One that is wanted is waited for.
        let line = format!("{ARRIVED} {NEXT} registry no\n");
        node.root.write("stub/bootc-rollback", &line);
        node.run(&["apply", "--yes", "/two"]).ok();
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}

#[test]
fn a_staging_of_bootc_that_cannot_be_proven_leaves_nothing_behind() {
    with_mounts(|| {
        // Each with the words that name it; the files stay as they are.
        let rows: [(&str, &str, &str); 3] = [
            ("stub/fails", "switch\n", "connection was refused"),
            ("stub/changes-nothing", "\n", "although bootc said nothing"),
            (
                "stub/staged-file",
                "no dictionary",
                "/run/ostree/staged-deployment does not name 5eed",
            ),
        ];
        for (file, text, words) in rows {
            let node = node(true);
            node.root.write(file, text);
            let run = node.run(&["apply", "--yes", "/two"]).exits(1);
            assert!(
                flat_run(&run).contains(words) || run.err().contains(words),
                "{words}: {}",
                run.err()
            );
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
            assert!(!node.root.exists("stub/bootc-staged"), "{words}");
            assert!(!node.root.exists("run/ostree/staged-deployment"));
            assert!(!node.root.exists(AWAITED));
        }
    });
}

#[test]
fn what_bootc_cannot_do_is_refused_before_anything_changes() {
    with_mounts(|| {
        type Change = fn(&mut Value);
        let rows: [(Change, &[&str]); 1] = [(
            |config| config["spec"]["extensions"] = json!(["usbguard"]),
            &[
                "spec.extensions",
                "it has no command for packages: install usbguard",
                "--files-only",
            ],
        )];
        for (change, words) in rows {
            let node = node(true);
            let mut two = service_config(TWO, NEXT, "two\n");
            change(&mut two);
            node.root.write("two", &two.to_string());
            says(&node.run(&["plan", "/two"]).exits(1), words);
            node.run(&["apply", "--yes", "/two"]).exits(1);
            assert_eq!(node.calls(), Vec::<String>::new());
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
            // The rest comes.
            node.run(&["apply", "--yes", "--files-only", "/two"])
                .exits(3);
            assert_eq!(node.root.read("etc/service.conf"), "two\n");
        }
        // Layers that a switch would lose: bootc tells no image, the origin file does.
        let node = node(true);
        let line = node
            .root
            .read("stub/bootc-booted")
            .replace(" no\n", " yes\n");
        node.root.write("stub/bootc-booted", &line);
        let booted = line.split(' ').next().unwrap();
        let origin = format!("sysroot/ostree/deploy/rhcos/deploy/{booted}.0.origin");
        let text = node.root.read(&origin) + "[packages]\nrequested=usbguard;\n";
        node.root.write(&origin, &text);
        let status = node.run(&["status"]).ok();
        says(&status, &["Booted", IMAGE]);
        let words = [
            "layered by rpm-ostree (usbguard)",
            "bootc switch would lose that",
        ];
        says(&node.run(&["plan", "/two"]).exits(1), &words);
        says(&node.run(&["pivot", "--yes", NEXT]).exits(1), &words);
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}

#[test]
fn a_system_of_the_composefs_backend_is_only_read() {
    with_mounts(|| {
        let node = node(true);
        let digest = "0123456789abcdef".repeat(8);
        node.root
            .write("cmdline", &format!("rw composefs={digest}\n"));
        fs::create_dir_all(node.root.path("sysroot/composefs")).unwrap();
        let words = [
            "no OSTree node; bootc's composefs backend",
            "/sysroot/composefs",
        ];
        says(&node.run(&["status"]).ok(), &words);
        node.run(&["show", "/two"]).ok();
        says(&node.run(&["plan", "/two"]).exits(1), &words);
        let before = node.root.read("etc/service.conf");
        let commands: [&[&str]; 9] = [
            &["apply", "--yes", "/two"],
            &["apply", "--yes", "--not-a-node", "--takeover", "/two"],
            &["pivot", "--yes", NEXT],
            &["rollback", "--yes"],
            &["recover"],
            &["complete"],
            &["install", "--yes"],
            &["fetch"],
            &["cache", "forget", TWO],
        ];
        for command in commands {
            let run = node.run(command).exits(1);
            let said = flat_run(&run) + &run.err().replace('\n', " ");
            assert!(
                said.contains("bootc's composefs backend"),
                "{command:?}: {said}"
            );
            assert!(said.contains("Nothing was changed"), "{command:?}: {said}");
        }
        assert_eq!(node.root.read("etc/service.conf"), before);
        assert_eq!(recorded(&node), ONE);
        assert_eq!(node.calls(), Vec::<String>::new());
    });
}
