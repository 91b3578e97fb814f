//! What a screen begins and ends with: the verdict and the next command, which works as it is printed.

use serde_json::{Value, json};

use crate::support::{
    Lacks, Run, TestRoot, file, flat, flat_run, kubelet_unit, machine_config, skip,
};

const NAME: &str = "rendered-worker-1";

fn config(text: &str) -> Value {
    machine_config(
        NAME,
        json!({
            "storage": {"files": [
                file("/etc/pool.conf", 0o644, text),
                file("/etc/kubernetes/kubelet.conf", 0o644, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
            ]},
            "systemd": {"units": [kubelet_unit()]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]},
        }),
    )
}

fn node() -> TestRoot {
    let root = TestRoot::new();
    root.apply(&config("one\n"));
    root
}

fn contains(run: &Run, words: &[&str]) {
    let said = flat_run(run);
    for words in words {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_command_without_a_config_names_itself_with_a_file() {
    let root = TestRoot::new();
    let at = root.dir().display().to_string();
    for (args, words) in [
        (&["plan"][..], format!("--root {at} plan FILE`")),
        (&["apply"], format!("--root {at} apply FILE`")),
        (
            &["change", "kubelet", "maxPods=300"],
            format!("--root {at} change kubelet maxPods=300 --from FILE`"),
        ),
        (&["verify"], format!("verify FILE --root {at}`")),
    ] {
        contains(&root.run(args).exits(1), &[&words]);
    }
}

#[test]
fn status_begins_with_the_verdict_and_the_next_command() {
    let root = node();
    root.write("etc/pool.conf", "by hand\n");
    let said = root.run(&["status"]).ok().out();
    let first: Vec<&str> = said.lines().take(5).collect();
    let first = first.join("\n");
    assert!(first.contains("it is Degraded\n"), "{said}");
    assert!(first.contains("Next: mco-rescue verify"), "{said}");
    assert_eq!(said.matches("Next: ").count(), 1, "{said}");
    assert!(!said.contains("Notices of the last run"), "{said}");
    let whole = root.run(&["status", "-v"]).ok().out();
    assert!(whole.contains("Notices of the last run"), "{whole}");
}

#[test]
fn status_names_the_config_that_change_made() {
    let root = node();
    root.write("etc/pool.conf", "by hand\n");
    let kept = root.path("kept.yaml");
    let kept = kept.to_str().unwrap();
    contains(
        &root.run(&["keep", "--to", kept]).ok(),
        &["makes a config with it in the cache"],
    );
    root.run(&["change", "with", kept]).ok();
    let said = root.run(&["status"]).ok().out();
    assert!(
        said.contains("Next: mco-rescue apply cached:rendered-worker-"),
        "{said}"
    );
    assert!(!said.contains("then: mco-rescue apply"), "{said}");
}

#[test]
fn what_doctor_did_not_check_is_three_lines_without_v() {
    let root = node();
    root.write("etc/pool.conf", "by hand\n");
    let said = root.run(&["doctor"]).exits(3).out();
    let (_, unseen) = said.split_once("Not checked:\n").unwrap();
    let (unseen, _) = unseen.split_once("\n\n").unwrap();
    assert_eq!(unseen.lines().count(), 3, "{said}");
    assert!(unseen.contains(": mco-rescue doctor -v --root"), "{said}");
    let whole = root.run(&["doctor", "-v"]).exits(3).out();
    assert!(whole.lines().count() > said.lines().count(), "{whole}");
    let healthy = node();
    let whole = healthy.run(&["doctor", "-v"]).ok().out();
    assert!(!whole.contains("Details:"), "{whole}");
}

#[test]
fn what_is_in_the_way_has_the_command_that_moves_it() {
    let root = node();
    root.remove("etc/pool.conf");
    std::fs::create_dir(root.path("etc/pool.conf")).unwrap();
    let said = root.run(&["plan"]).exits(1).out();
    let place = root.path("etc/pool.conf").display().to_string();
    let next = format!("Next: mv {place} {place}.away\n");
    assert!(said.contains(&next), "{next}{said}");
}

#[test]
fn a_cure_that_nothing_can_be_checked_for_is_not_called_healthy() {
    let root = TestRoot::new();
    let run = root.run(&["doctor", "--fix", "FP-03", "--yes"]);
    contains(&run, &["not all of it could be checked", "Not checked:"]);
}

#[test]
fn the_question_of_rollback_names_what_the_node_loses() {
    let root = node();
    let line = format!("{:?}", root.command(&["rollback"]));
    let output = std::process::Command::new("script")
        .args(["--quiet", "--command", &line, "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = output else {
        return skip(Lacks::Setup, "no script(1)");
    };
    let said = flat(&String::from_utf8_lossy(&output.stdout));
    let words = "with the kubelet's units and keys of core)";
    assert!(said.contains(words), "{said}");
}

#[test]
fn the_steps_for_the_cluster_write_a_file_before_they_read_it() {
    let root = node();
    let said = root.run(&["status", "--for-cluster"]).ok().out();
    let (write, read) = ("#   on the node: (umask 077; mco-rescue", "oc create -f -");
    let at = |words: &str| {
        said.find(words)
            .unwrap_or_else(|| panic!("{words}: {said}"))
    };
    assert!(at(write) < at(read), "{said}");
    assert!(!said.contains(".. "), "{said}");
    let bare = said.lines().filter(|line| line.starts_with("mco-rescue"));
    assert_eq!(bare.count(), 0, "{said}");
}
