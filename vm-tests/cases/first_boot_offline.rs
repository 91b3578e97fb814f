//! A new node is in the hands of its first-boot service, which can pull nothing (story: the first boot, FP-02, FP-05).
//!
//! Prepared: the node of `os.rs` with 1.0, as the real Ignition leaves it when it was served a config: files, units,
//! the key of `core`, and the encapsulated config that names another image and other kernel arguments. The units of
//! the first boot are stand-ins that try again for ever, as the daemon's do without a registry. True afterwards, by
//! case:
//!
//! 1. The boot hangs before the kubelet. `firstboot --complete` brings the image from a stick, by the real skopeo, and
//!    stages it with the arguments; nothing reboots until that is asked for. The next boot is the new system, all of
//!    the config, without the loops.
//! 2. On a node that still has the trigger an ordinary `apply` puts it away, so the next boot does not hang; this one
//!    goes on at once with `firstboot --complete`, as nothing is staged.
//! 3. The client of rpm-ostree is killed and its transaction goes on: it is cancelled, and nothing was changed; or it
//!    cannot be any more, and is waited for. After the program itself was killed too, a second `apply` finishes.

use std::fs;
use std::path::PathBuf;

use mco_rescue::config::document;
use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, is_healthy_in};
use super::os::{
    EVERYTHING, STATEROOT, Story, complete, deployment, deployments, is_staged, kubelet_found,
    nothing_is_awaited, runs,
};
use crate::lab::node::Booted;
use crate::lab::qemu::End;
use crate::lab::{Case, disk};
use crate::support::mounts::{mount, unmount};
use crate::support::{ignition, oci};

const TRIGGER: &str = "/etc/ignition-machine-config-encapsulated.json";
const KEPT: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
const RECORD: &str = "/etc/machine-config-daemon/currentconfig";
const PULL: &str = "machine-config-daemon-pull.service";
const SERVICE: &str = "machine-config-daemon-firstboot.service";
/// The transaction runs, with or without its client.
const GOES_ON: &str = "sudo kill -0 $(head -n 1 /run/stand-in/transaction)";
const STICK: &str = "/run/media/stick";

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_that_can_pull_nothing_is_completed_from_a_stick() {
    let Some(case) = Case::begin_as_root("7 first boot without a registry") else {
        return;
    };
    if !ignition::can_compare() {
        return;
    }
    let mut story = Story::of_nobody(&case);
    let (stick, image) = stick_with_an_image(&case);
    story.media = vec![stick];
    story.b["spec"]["osImageURL"] = json!(image);
    story.b = configs::older(with_loops(&story.b));
    ignite(&story, &image);
    case.prepared();

    let mut booted = story.start();
    hangs(&mut booted);
    booted.ask(&format!("sudo test ! -e {RECORD}"));
    let trigger = booted.ask(&format!("sudo cat {TRIGGER}"));
    booted.ask(&format!(
        "sudo mkdir -p {STICK} && sudo mount -o ro LABEL=stick {STICK}"
    ));
    let boot = booted.ask("cat /proc/sys/kernel/random/boot_id");

    let said = booted.ask(&format!(
        "sudo {PROGRAM} firstboot --complete --yes --os-from {STICK}/os"
    ));
    case.tell(&said);
    assert!(said.ends_with("Next: systemctl reboot"), "{said}");
    is_staged(&booted);
    let reference = format!("ostree-unverified-image:containers-storage:{image}");
    let staged = &deployments(&booted)[0];
    assert_eq!(staged["container-image-reference"], reference.as_str());
    booted.ask(&format!("sudo test ! -e {TRIGGER}"));
    assert_eq!(booted.ask(&format!("sudo cat {KEPT}")), trigger);
    let recorded: Value = serde_json::from_str(&booted.ask(&format!("sudo cat {RECORD}"))).unwrap();
    assert_eq!(recorded["spec"], story.b["spec"]);
    // Nobody asked for more: the same boot, which still waits with the kubelet.
    assert_eq!(booted.ask("cat /proc/sys/kernel/random/boot_id"), boot);
    assert_eq!(runs(&booted), "1.0");
    assert_eq!(state(&booted, "kubelet.service"), "inactive");

    booted.run(&format!(
        "sudo {PROGRAM} firstboot --complete --yes --reboot --os-from {STICK}/os"
    ));
    let ended = booted.guest.ended();
    assert_eq!(ended, End::Rebooted, "{}", booted.guest.tail());
    let booted = story.boot();
    assert_eq!(runs(&booted), "2.0", "{}", complete(&booted));
    is_healthy_in(&booted, &story.b);
    let arguments = booted.ask("cat /proc/cmdline");
    assert!(arguments.contains(" nosmt site.is=b"), "{arguments}");
    kubelet_found(&booted, &story.b, "maxPods: 500");
    nothing_is_awaited(&booted);
    does_not_loop(&booted);
    case.tell(&complete(&booted));
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn the_trigger_of_a_first_boot_goes_with_the_next_apply() {
    let Some(case) = Case::begin_as_root("7 trigger of the first boot is left") else {
        return;
    };
    let mut story = Story::begin(&case);
    story.a = configs::older(with_loops(&story.a));
    let booted = story.in_a();
    let trigger = encapsulated(&story.a);
    booted.bring("trigger.json", trigger.as_bytes());
    booted.ask(&format!("sudo install -m 0644 trigger.json {TRIGGER}"));
    let mut booted = story.shut_down(booted);
    hangs(&mut booted);
    let refused = booted
        .run(&format!("sudo {PROGRAM} apply --yes a.json"))
        .exits(1);
    let said = refused.out();
    let said: Vec<&str> = said.split_whitespace().collect();
    for words in [PULL, "mco-rescue firstboot --complete", "--takeover"] {
        assert!(said.join(" ").contains(words), "{}", refused.out());
    }
    booted.ask(&format!("sudo test -e {TRIGGER}"));
    let said = booted.ask(&format!("sudo {PROGRAM} apply --yes --takeover a.json"));
    assert!(!said.contains("staged"), "{said}");
    booted.ask(&format!("sudo test ! -e {TRIGGER}"));
    assert_eq!(booted.ask(&format!("sudo cat {KEPT}")), trigger);

    // The loops of this boot go on, until somebody says that there is nothing to wait for.
    assert_eq!(state(&booted, PULL), "activating");
    let said = booted.ask(&format!("sudo {PROGRAM} firstboot --complete --yes"));
    case.tell(&said);
    booted.comes_up();
    is_healthy_in(&booted, &story.a);
    assert_eq!(state(&booted, PULL), "inactive");

    let booted = story.reboot(booted);
    story.is_all_of_a(&booted);
    is_healthy_in(&booted, &story.a);
    does_not_loop(&booted);
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_client_that_is_killed_leaves_nothing_or_all_of_the_next_system() {
    let Some(case) = Case::begin_as_root("7 client killed in its transaction") else {
        return;
    };
    let mut story = Story::begin(&case);
    let booted = story.in_a();
    let before = booted.ask(EVERYTHING);

    // It can be cancelled: then nothing has happened.
    applies_slowly(&booted);
    kills_the_client(&booted);
    let (code, said) = ended(&booted);
    assert_eq!(code, "1", "{said}");
    for words in [
        "ended by a signal",
        "nothing is staged",
        "no file was changed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    case.tell(&said);
    assert_eq!(booted.ask(EVERYTHING), before);
    nothing_is_awaited(&booted);

    // It cannot be cancelled any more: it is followed to its end, and the run goes on.
    booted.ask("echo deaf | sudo tee /run/stand-in/fails");
    applies_slowly(&booted);
    kills_the_client(&booted);
    waits(&booted, "test -e /run/stand-in/cancelled");
    booted.ask(GOES_ON);
    booted.ask("sudo rm /run/stand-in/held");
    let (code, said) = ended(&booted);
    assert_eq!(code, "0", "{said}");
    assert!(said.contains("Next: systemctl reboot"), "{said}");
    is_staged(&booted);
    booted.ask("sudo rm /run/stand-in/fails");
    booted.ask(&format!("sudo {PROGRAM} rollback --yes"));
    let staged = deployments(&booted)[0]["staged"].clone();
    assert_eq!(staged, false, "the staging is still there");
    story.is_all_of_a(&booted);

    // The program goes with its client, and the transaction stages what nobody waits for.
    applies_slowly(&booted);
    booted.ask("sudo kill -KILL $(pidof mco-rescue)");
    kills_the_client(&booted);
    booted.ask(GOES_ON);
    booted.ask("sudo rm /run/stand-in/held");
    waits(&booted, "! test -e /run/stand-in/transaction");
    let status = deployments(&booted);
    assert_eq!(status[0]["staged"], true, "{status}");
    story.is_all_of_a(&booted);
    let said = booted.ask(&format!("sudo {PROGRAM} status"));
    case.tell(&said);
    story.apply_b(&booted);
    is_staged(&booted);
    let booted = story.reboot(booted);
    story.is_all_of_b(&booted);
    booted.power_off();
}

/// The units of a first boot as the operator's templates order them; both try for ever, and say how often.
fn with_loops(config: &Value) -> Value {
    let conditions = "ConditionPathExists=/run/ostree-booted\n\
        ConditionPathExists=/etc/ignition-machine-config-encapsulated.json\n";
    let pull = format!(
        "[Unit]\nDescription=Pulls the operator's image (stand-in: no registry can be reached)\n{conditions}\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'while ! getent hosts quay.example; do echo failed >>/run/pulls; sleep 1; done'\n\
         [Install]\nRequiredBy={SERVICE}\n"
    );
    let service = format!(
        "[Unit]\nDescription=Completes the first boot (stand-in)\nAfter={PULL}\nBefore=kubelet-dependencies.target\n\
         {conditions}[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo ran >/run/completed'\n\
         [Install]\nRequiredBy=firstboot-osupdate.target\n"
    );
    let target = "[Unit]\nDescription=The first boot's OS (stand-in)\n[Install]\nWantedBy=multi-user.target\n";
    let mut config = config.clone();
    let units = config["spec"]["config"]["systemd"]["units"]
        .as_array_mut()
        .unwrap();
    units.extend([
        json!({"name": PULL, "enabled": true, "contents": pull}),
        json!({"name": SERVICE, "enabled": true, "contents": service}),
        json!({"name": "firstboot-osupdate.target", "enabled": true, "contents": target}),
    ]);
    config
}

/// What the Machine Config Server would serve.
fn served(config: &Value) -> Value {
    let config = document::parse_document(config.to_string().as_bytes(), "the case").unwrap();
    serde_json::from_str(&document::serve_config(&config).unwrap()).unwrap()
}

/// The config without its Ignition part.
fn encapsulated(config: &Value) -> String {
    let mut config = config.clone();
    config["spec"]["config"] = json!({"ignition": {"version": "3.2.0"}});
    config.to_string()
}

/// The node as Ignition leaves it for its first boot; and where the stand-in has the commit of `image`.
fn ignite(story: &Story<'_>, image: &str) {
    let served = served(&story.b);
    disk::mounted(story.node.disk(), |top| {
        let root = deployment(top);
        let var = top.join(STATEROOT).join("var");
        fs::create_dir_all(root.join("etc/stand-in")).unwrap();
        fs::write(root.join("etc/stand-in/images"), format!("{image} vm/2\n")).unwrap();
        mount(&[
            "--bind",
            var.to_str().unwrap(),
            root.join("var").to_str().unwrap(),
        ]);
        let done = ignition::try_ignite_at(&root, &served);
        unmount(&root.join("var"));
        done.unwrap_or_else(|said| panic!("{said}"));
    });
}

/// A stick with an OCI directory `os`; and the image in it, by its digest. What is in the layer nobody looks at: the
/// stand-in takes the system from the repository.
fn stick_with_an_image(case: &Case) -> (PathBuf, String) {
    let top = tempfile::tempdir().unwrap();
    let digest = oci::image(&top.path().join("os"));
    let stick = case.path("stick");
    let from = top.path().to_str().unwrap();
    disk::formatted(
        &stick,
        16,
        &["mke2fs", "-q", "-t", "ext4", "-L", "stick", "-d", from],
    );
    (stick, format!("quay.example/okd/os@{digest}"))
}

/// Somebody can log in, but the boot does not end: the pull fails again and again, and the kubelet waits for it.
fn hangs(booted: &mut Booted) {
    booted.lets_core_in();
    booted.comes_to("test $(wc -l </run/pulls) -gt 2");
    assert_eq!(state(booted, PULL), "activating");
    assert_eq!(state(booted, "kubelet.service"), "inactive");
    let jobs = booted.ask("systemctl list-jobs --no-legend");
    for unit in [SERVICE, "kubelet.service"] {
        assert!(jobs.contains(unit), "{unit} is not about to start: {jobs}");
    }
}

/// In this boot nothing was tried: the trigger was not there.
fn does_not_loop(booted: &Booted) {
    booted.ask("test ! -e /run/pulls && test ! -e /run/completed");
    for unit in [PULL, SERVICE] {
        let found = booted.ask(&format!(
            "systemctl show --property=ActiveState,ConditionResult {unit}"
        ));
        assert!(found.contains("ActiveState=inactive"), "{found}");
        assert!(found.contains("ConditionResult=no"), "{found}");
    }
    booted.ask(&format!("sudo test ! -e {TRIGGER} && sudo test -e {KEPT}"));
}

fn state(booted: &Booted, unit: &str) -> String {
    booted
        .run(&format!("systemctl is-active {unit}"))
        .out()
        .trim()
        .to_owned()
}

/// Begins to apply B, as far as an import that goes on until `held` is removed.
fn applies_slowly(booted: &Booted) {
    booted.ask(
        "sudo mkdir -p /run/stand-in && sudo touch /run/stand-in/held && \
         sudo rm -f /run/stand-in/imports /tmp/said /tmp/code",
    );
    booted.ask(&format!(
        "(sudo {PROGRAM} apply --yes b.json >/tmp/said 2>&1; echo $? >/tmp/code) </dev/null >/dev/null 2>&1 &"
    ));
    waits(booted, "test -e /run/stand-in/imports");
}

/// Which is the program's child; the transaction is systemd's, as that of the real one is the daemon's.
fn kills_the_client(booted: &Booted) {
    booted.ask("sudo kill -KILL $(pgrep -f '^bash /usr/bin/rpm-ostree rebase')");
}

/// What the run that was begun has come to.
fn ended(booted: &Booted) -> (String, String) {
    waits(booted, "test -s /tmp/code");
    (booted.ask("cat /tmp/code"), booted.ask("cat /tmp/said"))
}

fn waits(booted: &Booted, fact: &str) {
    booted.ask(&format!(
        "timeout 300 sh -c 'until {fact}; do sleep 0.2; done'"
    ));
}
