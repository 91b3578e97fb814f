//! A node with bootc alone, as the real bootc 1.16.9 was seen to behave: its rights, its lock, its refusals, its journal.
//! The programs are named stubs; what they say is in the words of the real ones.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{
    AWAITED, BOOTC, BOOTED, IMAGE, NEXT, OstreeNode, Turn, service_config,
};
use crate::support::{Run, copy_program, flat, flat_run, shared_data};
use mco_rescue::diagnose::doctor::checks::CHECKS;
use mco_rescue::node::command::bootc::BootcStatus;
use mco_rescue::node::command::rpm_ostree::cause::RpmOstreeError;
use mco_rescue::node::engine::Engine;

/// STUB of bootc that needs for its status what the real one needs: it sets up a mount namespace (CAP_SYS_ADMIN, the 21st),
/// looks at that of the first process (CAP_SYS_PTRACE, the 19th) and reads what others own (the first and the second). What
/// changes something runs in a unit, with all rights.
const NEEDS_RIGHTS: &str = r#"lacks() { [ $(( 0x$caps & $1 )) != $(( $1 )) ]; }
while read -r key value; do case $key in CapEff:) caps=$value ;; esac; done </proc/self/status
case $* in status*)
    lacks 0x200000 && { echo 'error: Status: Preparing for write: Querying root privilege: This command requires full root privileges (CAP_SYS_ADMIN)' >&2; exit 1; }
    lacks 0x80000 && { echo 'error: Status: Preparing for write: Ensuring mountns: Reading /proc/1/ns/mnt: Permission denied (os error 13)' >&2; exit 1; }
    lacks 6 && { echo 'error: Permission denied (os error 13)' >&2; exit 1; } ;;
esac
"#;

/// A node with bootc alone, in its first config; the second one waits in a file.
fn node() -> OstreeNode {
    let node = OstreeNode::of_bootc();
    node.program("bootc", &(NEEDS_RIGHTS.to_owned() + BOOTC));
    let write = |path, config: serde_json::Value| node.root.write(path, &config.to_string());
    write("one", service_config("rendered-worker-1", IMAGE, "one\n"));
    write("two", service_config("rendered-worker-2", NEXT, "two\n"));
    node.run(&["apply", "--yes", "/one"]).ok();
    node.root.write("stub/log", "");
    node
}

fn is_quiet(run: &Run) {
    assert!(!run.err().contains("warn"), "{}", run.err());
}

fn never_names_rpm_ostree(run: &Run) {
    let said = flat_run(run) + &run.err();
    // What the daemon reports is in its own words.
    let said = said.replace("error reading osImageURL from rpm-ostree", "");
    assert!(!said.contains("rpm-ostree"), "{said}");
}

#[test]
fn a_run_that_went_back_before_its_boot_is_awaited_no_more() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/two"]).ok();
        let awaited = node.root.read(AWAITED);
        // bootc gives no answer once the files are back.
        let late = "read -r now </etc/service.conf; [ \"$now\" != one ] || [ ! -e /stub/late ] || exit 1\n";
        node.program("bootc", &(NEEDS_RIGHTS.to_owned() + late + BOOTC));
        node.root.write("stub/late", "");
        is_quiet(&node.run(&["rollback", "--yes"]).ok());
        node.root.remove("stub/late");
        assert!(!node.root.exists(AWAITED));
        assert!(!node.root.exists("run/ostree/staged-deployment"));
        node.run(&["complete"]).ok();
        // A version that could not ask bootc any more left it.
        node.root.write(AWAITED, &awaited);
        node.awaits_since_the_boot_before();
        let run = node.run(&["complete"]).ok();
        is_quiet(&run);
        let said = flat_run(&run);
        assert!(said.contains("no longer waits for a reboot"), "{said}");
        assert!(!node.root.exists(AWAITED));
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        // An image alone, too.
        node.run(&["pivot", "--yes", NEXT]).ok();
        is_quiet(&node.run(&["rollback", "--yes"]).ok());
        assert!(!node.root.exists(AWAITED));
    });
}

#[test]
fn the_files_of_a_killed_run_come_with_every_question_answered() {
    with_mounts(|| {
        let node = node();
        // STUB: the run dies once its image is staged. `exec` of the stub of systemd-run made it the parent.
        let kills = r#"case $* in switch*) trap 'kill -9 $PPID' EXIT ;; esac
"#;
        node.program("bootc", &(NEEDS_RIGHTS.to_owned() + kills + BOOTC));
        node.run(&["apply", "--yes", "/two"]);
        assert!(node.root.exists("run/ostree/staged-deployment"));
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        node.program("bootc", &(NEEDS_RIGHTS.to_owned() + BOOTC));
        node.reboots_into_staged(true, NEXT);
        node.awaits_since_the_boot_before();
        let run = node.run(&["complete"]).ok();
        assert!(!run.err().contains("error"), "{}", run.err());
        assert!(!run.err().contains("ermission"), "{}", run.err());
        assert_eq!(node.root.read("etc/service.conf"), "two\n");
        assert!(!node.root.exists(AWAITED));
        node.run(&["verify"]).ok();
    });
}

#[test]
fn the_way_back_to_a_layered_deployment_is_gone_by_ostree() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/two"]).ok();
        node.reboots_into_staged(true, NEXT);
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        let before = node.root.read("stub/bootc-rollback");
        node.root
            .write("stub/bootc-rollback", &before.replace(" no\n", " yes\n"));
        // STUB: bootc refuses, as the real one does.
        let refuses = "case $* in rollback) echo 'error: Rollback: Rollback (ostree): Rollback is not container image based' >&2; exit 1 ;; esac\n";
        node.program("bootc", &(NEEDS_RIGHTS.to_owned() + refuses + BOOTC));
        node.root.write("stub/log", "");
        node.run(&["rollback", "--yes"]).ok();
        assert_eq!(node.calls(), ["ostree admin set-default 1"]);
        node.boots_back();
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
    });
}

/// What bootc says on its standard error, and the kind that it is of.
const SAID: [(&str, &str); 11] = [
    (
        "error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: (Mirrors also failed: [127.0.0.1:5000/os:2: reading manifest 2 in 127.0.0.1:5000/os: unauthorized]): quay.example/os:2: pinging container registry quay.example: Get \"https://quay.example/v2/\": dial tcp: connect: connection refused",
        "unauthorized",
    ),
    (
        "error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: (Mirrors also failed: [127.0.0.1:5000/os:2: pinging container registry 127.0.0.1:5000: received unexpected HTTP status: 500 Internal Server Error]): quay.example/os:2: pinging container registry quay.example: connection refused",
        "registry-fault",
    ),
    (
        "error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: (Mirrors also failed: [127.0.0.1:5000/os@sha256:00: reading manifest sha256:00 in 127.0.0.1:5000/os: manifest unknown]): quay.example/os@sha256:00: connection refused",
        "not-found",
    ),
    (
        "error: Switching: Switching (ostree): Invalid transport: nonsense",
        "bad-reference",
    ),
    (
        "Error: parsing reference \"not a name\": invalid reference format\nerror: Switching: Switching (ostree): invalid reference format",
        "bad-reference",
    ),
    (
        "error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: reference \"[overlay@/var/lib/containers/storage+/run/containers/storage]quay.example/os@sha256:11\" does not resolve to an image ID",
        "not-found",
    ),
    (
        "error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: Running image docker://quay.example/os:2 is rejected by policy.",
        "policy-rejects",
    ),
    (
        "error: Status: Preparing for write: Querying root privilege: This command requires full root privileges (CAP_SYS_ADMIN)",
        "not-root",
    ),
    (
        "error: Status: Preparing for write: Querying root privilege: This command must be executed as the root user",
        "not-root",
    ),
    (
        "error: Switching: Importing: No space left on device (os error 28)",
        "no-space",
    ),
    ("error: Switching: something new", "unknown"),
];

#[test]
fn every_error_has_a_hint_in_the_words_of_the_engine() {
    with_mounts(|| {
        for (words, kind) in SAID {
            assert_eq!(RpmOstreeError::of_words(words).kind(), kind, "{words}");
            let node = node();
            node.root.write("stub/words", &format!("{words}\n"));
            let fails = "case $* in switch*) while read -r line; do echo \"$line\"; done </stub/words >&2; exit 1 ;; esac\n";
            node.program("bootc", &(NEEDS_RIGHTS.to_owned() + fails + BOOTC));
            let run = node.run(&["apply", "--yes", "/two"]).exits(1);
            never_names_rpm_ostree(&run);
            let said = flat_run(&run) + &run.err();
            assert!(said.contains("nothing is staged"), "{said}");
            // A command after "Next:", or an instruction.
            let (_, hint) = said.split_once("and no file was changed. ").expect(&said);
            assert!(hint.starts_with(char::is_uppercase), "{said}");
            // The cause comes from the journal, where the unit wrote it.
            let cause = Engine::Bootc.spell(&RpmOstreeError::of_words(words).to_string());
            let begin: String = flat(&cause).chars().take(30).collect();
            assert!(flat_run(&run).contains(&begin), "{begin}: {said}");
            // The same where the status fails.
            let fails = fails.replace("switch*", "*");
            node.program("bootc", &(NEEDS_RIGHTS.to_owned() + &fails + BOOTC));
            for command in [&["plan", "/two"][..], &["status"], &["doctor"], &["verify"]] {
                never_names_rpm_ostree(&node.run(command));
            }
        }
    });
}

/// Literal outputs of bootc 1.16.9 have these kinds.
#[test]
fn every_error_of_the_captures_is_known() {
    let Some(directory) = shared_data("bootc/captures-1.16.9") else {
        return;
    };
    let text = fs::read_to_string(directory.join("18-errors.txt")).unwrap();
    let errors = text.lines().filter(|line| line.starts_with("error: "));
    let mut kinds = BTreeSet::new();
    for line in errors {
        let cause = RpmOstreeError::of_words(line);
        let said = Engine::Bootc.spell(&cause.to_line());
        assert_ne!(cause.kind(), "unknown", "{line}");
        assert!(!said.contains("rpm-ostree"), "{said}");
        kinds.insert(cause.kind());
    }
    assert!(kinds.len() >= 5, "{kinds:?}");
}

#[test]
fn every_status_of_the_captures_is_read() {
    let Some(directory) = shared_data("bootc/captures-1.16.9") else {
        return;
    };
    let (mut read, mut forms) = (0, BTreeSet::new());
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        // Some show the bytes of /run/ostree/staged-deployment.
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        for (at, _) in text.match_indices("\"apiVersion\"") {
            // A document follows another on the same line, or what the next program said.
            let begin = text[..at].rfind('{').unwrap();
            let mut all = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
            let Some(Ok(document)) = all.next() else {
                continue;
            };
            let document: serde_json::Value = document;
            let status = BootcStatus::read(&document.to_string())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            read += 1;
            let all = status.to_deployments(&|_| None);
            let is_booted = document["status"]["booted"].is_object();
            assert_eq!(all.booted().is_some(), is_booted, "{}", path.display());
            let listed = ["staged", "booted", "rollback"];
            let listed = listed
                .iter()
                .filter(|key| document["status"][key].is_object());
            let others = document["status"]["otherDeployments"].as_array();
            let number = listed.count() + others.map_or(0, Vec::len);
            assert_eq!(all.all.len(), number, "{}", path.display());
            assert_eq!(
                status.rollback_queued,
                document["spec"]["bootOrder"] == "rollback"
            );
            forms.extend(document["status"].as_object().unwrap().keys().cloned());
        }
    }
    assert!(read >= 20, "{read} documents");
    assert!(forms.contains("usrOverlay"), "{forms:?}");
}

/// STUB of a bootc that works: a shell with its name, which ends with its standard input. Nodes of other tests would see it.
fn with_a_switch_at_work(node: &OstreeNode, work: impl FnOnce()) {
    let _turn = Turn::take();
    let words = ["/usr/bin/bootc", "switch", "quay.example/os:f"];
    with_a_process(node, words, "", work);
}

/// STUB of a program that changes deployments: a shell with this command line, which ends with its standard input. It runs `first`
/// before the work begins.
fn with_a_process(node: &OstreeNode, words: [&str; 3], first: &str, work: impl FnOnce()) {
    let _turn = Turn::take();
    let place = node.root.path("stub");
    let script = format!("{first}\n: >at-work\nread -r word\n");
    node.root.write(&format!("stub/{}", words[1]), &script);
    let mut command = Command::new("/bin/sh");
    command.arg0(words[0]).args(&words[1..]);
    let mut child = command
        .current_dir(place)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !node.root.exists("stub/at-work") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{words:?}");
        std::thread::yield_now();
    }
    let end = catch_unwind(AssertUnwindSafe(work));
    drop(child.stdin.take());
    child.wait().unwrap();
    if let Err(failed) = end {
        resume_unwind(failed);
    }
}

#[test]
fn while_a_bootc_works_ostree_answers_for_it() {
    with_mounts(|| {
        let node = node();
        let never = node.root.path("stub/never");
        let made = Command::new("mkfifo").arg(&never).status().unwrap();
        assert!(made.success());
        // STUB of bootc that waits for the lock of the other one.
        let waits = "case $* in status*) read -r word </stub/never ;; esac\n";
        node.program("bootc", &(waits.to_owned() + BOOTC));
        with_a_switch_at_work(&node, || {
            let begun = Instant::now();
            let run = node.run(&["status", "--output", "json"]).ok();
            // A minute is the deadline of bootc itself.
            assert!(begun.elapsed() < Duration::from_secs(40));
            never_names_rpm_ostree(&run);
            let os = &run.json()["os"];
            assert_eq!(os["booted"], IMAGE);
            assert_eq!(os["engine"], "bootc");
            let problem = os["problem"].as_str().unwrap();
            assert!(
                problem.contains("busy with /usr/bin/bootc switch quay.example/os:f (process "),
                "{problem}"
            );
            let run = node.run(&["plan", "/two"]).exits(1);
            never_names_rpm_ostree(&run);
            let said = flat_run(&run);
            assert!(
                said.contains("/usr/bin/bootc switch quay.example/os:f is running"),
                "{said}"
            );
            let run = node.run(&["doctor", "--output", "json"]);
            never_names_rpm_ostree(&run);
            let report = run.json();
            let found = report["findings"].as_array().unwrap();
            let found = found.iter().find(|one| one["id"] == "FP-14").unwrap();
            assert_eq!(found["what"], "bootc is busy");
        });
    });
}

/// libostree waits for the lock of the sysroot, whoever has it.
#[test]
fn while_another_program_has_the_lock_of_the_sysroot_ostree_answers_for_bootc() {
    with_mounts(|| {
        let node = node();
        copy_program(&node.root, "/usr/bin/flock");
        node.root.write("sysroot/ostree/lock", "");
        // STUB of bootc that waits for that lock.
        let waits =
            "case $* in status*) flock /sysroot/ostree/lock /bin/rm -f /stub/none ;; esac\n";
        node.program("bootc", &(waits.to_owned() + BOOTC));
        let holds = "exec 9>>../sysroot/ostree/lock; flock 9";
        for (words, busy, refusal) in [
            (
                ["/usr/bin/ostree", "admin", "deploy"],
                "busy with /usr/bin/ostree admin deploy (process ",
                "/usr/bin/ostree admin deploy is running",
            ),
            (
                ["/usr/bin/python3", "backup", "all"],
                "busy with an unknown command (an unknown process)",
                "see `lsof /sysroot/ostree/lock`",
            ),
        ] {
            with_a_process(&node, words, holds, || {
                let begun = Instant::now();
                let run = node.run(&["status", "--output", "json"]).ok();
                // A minute is the deadline of bootc itself.
                assert!(begun.elapsed() < Duration::from_secs(40));
                let os = &run.json()["os"];
                assert_eq!(os["booted"], IMAGE, "{os:#}");
                let problem = os["problem"].as_str().unwrap();
                assert!(problem.contains(busy), "{problem}");
                let run = node.run(&["plan", "/two"]).exits(1);
                let said = flat_run(&run);
                assert!(said.contains(refusal), "{said}");
                node.run(&["apply", "--yes", "/two"]).exits(1);
                assert_eq!(node.calls(), Vec::<String>::new());
            });
            node.root.remove("stub/at-work");
        }
        node.run(&["plan", "/two"]).ok();
    });
}

#[test]
fn an_origin_that_is_not_a_file_is_named_with_the_command_that_writes_it_anew() {
    with_mounts(|| {
        let node = node();
        let file = format!("sysroot/ostree/deploy/rhcos/deploy/{BOOTED}.0.origin");
        let before = node.root.read(&file);
        node.root.remove(&file);
        fs::create_dir(node.root.path(&file)).unwrap();
        let run = node.run(&["plan", "/two"]).exits(1);
        let said = flat_run(&run);
        assert!(said.contains(&format!("/{file}: is a directory")), "{said}");
        for args in [&["apply", "--yes", "/two"][..], &["verify"]] {
            let said = flat_run(&node.run(args).exits(1));
            assert!(said.contains("is a directory"), "{args:?}: {said}");
            assert!(said.contains("mv -T "), "{args:?}: {said}");
        }
        let status = node.run(&["status"]);
        let said = status.out() + &status.err();
        assert!(said.contains(&file), "{said}");
        assert!(said.contains("mv -T "), "{said}");
        assert_eq!(node.calls(), Vec::<String>::new());
        // As the command says, with the image in the place of IMAGE.
        let command = said.split_once("sh -c '").unwrap().1;
        let command = command.split_once("' #").unwrap().0;
        let command = command.split_once("; ").unwrap().1.replace("IMAGE", IMAGE);
        let top = node.root.dir().to_str().unwrap();
        let command = command.replace("/sysroot/", &format!("{top}/sysroot/"));
        let done = Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(done.success(), "{command}");
        assert_eq!(node.root.read(&file), before);
        node.run(&["plan", "/two"]).ok();
    });
}

#[test]
fn every_check_is_explained_in_the_words_of_the_engine() {
    with_mounts(|| {
        let node = node();
        for check in CHECKS {
            let run = node.run(&["doctor", check.id]).ok();
            never_names_rpm_ostree(&run);
        }
    });
}

#[test]
fn arguments_that_an_image_brings_are_said_and_those_of_the_config_stay() {
    with_mounts(|| {
        let node = node();
        let file = "usr/lib/bootc/kargs.d/10-site.toml";
        node.root
            .write(file, "kargs = [\"quiet_e\", \"site.e=1\"]\n");
        node.command_line("rw quiet_e site.e=1");
        let mut two = service_config("rendered-worker-2", NEXT, "two\n");
        two["spec"]["kernelArguments"] = json!(["site.e=1"]);
        node.root.write("two", &two.to_string());
        let said = flat_run(&node.run(&["plan", "/two"]).ok());
        assert!(
            said.contains(
                "/usr/lib/bootc/kargs.d: the kernel arguments of the running image are removed unless the new image has them too"
            ),
            "{said}"
        );
        assert!(said.contains("quiet_e site.e=1"), "{said}");
        assert!(
            said.contains("kernel arguments --append=site.e=1"),
            "{said}"
        );
        // What bootc stages has none of them.
        let run = node.run(&["apply", "--yes", "/two"]).ok();
        let calls = node.calls();
        assert!(calls[1].starts_with("bootc switch "), "{calls:?}");
        assert!(calls[2].contains(" --karg-delete=quiet_e "), "{calls:?}");
        let said = flat_run(&run);
        assert!(
            said.contains(
                "kernel arguments of the image itself (/usr/lib/bootc/kargs.d): -quiet_e"
            ),
            "{said}"
        );
        node.reboots_into_staged(true, NEXT);
        node.command_line("rw site.e=1");
        node.awaits_since_the_boot_before();
        node.root.write(file, "kargs = [\"own=1\"]\n");
        let said = flat_run(&node.run(&["complete"]).ok());
        assert!(
            said.contains("The image brings kernel arguments of its own: own=1"),
            "{said}"
        );
    });
}

#[test]
fn findings_name_commands_that_are_there() {
    with_mounts(|| {
        let node = node();
        let mut three = service_config("rendered-worker-3", IMAGE, "three\n");
        three["spec"]["kernelArguments"] = json!(["foo=1"]);
        three["spec"]["extensions"] = json!(["usbguard"]);
        node.root.write("three", &three.to_string());
        node.run(&["apply", "--yes", "--files-only", "/three"])
            .exits(3);
        node.command_line("rw foo=1 foo=2 console=ttyS99");
        let line = node.root.read("stub/bootc-booted");
        let layered = line.replace(" no\n", " yes\n").replace(" no ", " yes ");
        node.root.write("stub/bootc-booted", &layered);
        let booted = line.split(' ').next().unwrap();
        let origin = format!("sysroot/ostree/deploy/rhcos/deploy/{booted}.0.origin");
        let text = node.root.read(&origin) + "[packages]\nrequested=vim;\n";
        node.root.write(&origin, &text);
        let run = node.run(&["doctor", "--output", "json"]);
        never_names_rpm_ostree(&run);
        let report = run.json();
        let found = report["findings"].as_array().unwrap();
        let found: BTreeSet<&str> = found
            .iter()
            .map(|one| one["id"].as_str().unwrap())
            .collect();
        for id in ["FP-18", "FP-19", "FP-51"] {
            assert!(found.contains(id), "{id}: {found:?}");
        }
        // rpm-ostree is not too old where it is missing.
        assert!(!found.contains("FP-28"), "{found:?}");
        let said = report.to_string();
        assert!(
            said.contains("ostree admin deploy --stage --origin-file="),
            "{said}"
        );
        never_names_rpm_ostree(&node.run(&["doctor"]));
        never_names_rpm_ostree(&node.run(&["verify"]));
    });
}
