//! The operating system is changed together with the files, in boxes (story: the new image).
//!
//! Prepared: a node that runs 1.0 and is in config A of `os.rs`; 2.0 can be had from a registry, or lies as an OCI
//! directory on a medium. OSTree, systemd, skopeo, podman and the shutdown are real, and so is rpm-ostree where one is
//! at hand (`lab::boxes`). True afterwards, by case:
//!
//! 1. `apply` stages and `reboot` enters all of B at once; `rollback` and `reboot` enter all of A at once.
//! 2. The power fails between staging and reboot: 1.0 comes up, and the kubelet finds A.
//! 3. A medium that holds several images gives the right one by its name. What its copy would be refused for, no name
//!    and a signature policy among it, is said by `plan`, and nothing was changed.
//! 4. What was staged is left for A again, or dropped by another hand: only what was staged last is awaited, `status`
//!    promises nothing that does not come, and both of the ways that it prints lead to one config.
//! 5. `/boot` fills up before the shutdown: 1.0 comes up, the kubelet finds A, and the error of the finalization is told.
//!    It still has no room, and this time that is said before anything is staged. With room B comes.
//! 6. What a registry gives damaged, and a fetcher without credentials, are told for what they are (rpm-ostree alone).
//! 7. A soft reboot keeps the kernel. Into the previous deployment: the kubelet finds A, and `status` says why. Into
//!    the other one: it counts as the boot that was awaited.
//! 8. What an admin staged is named with who did it, and is not dropped unasked; a locked one is entered by no reboot. Booted
//!    before the files of B were written, `status` names that, and the command that it prints leads to B (rpm-ostree alone).
//!
//! 9. Each boot is recorded at its end, with its result; `diff` shows what changed between two, and since the last good one.
//!
//! 10. The power fails in the boot of a trial, and the new system is booted a second time, as there is no boot loader that counts:
//!     the trial leaves it, A is back, and no unit has failed on the way.
//!
//! Besides: a box itself leaves nothing on the host, however its end comes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::configs;
use super::node::PROGRAM;
use super::os::{
    EVERYTHING, config_a, config_b, config_b_soft, is_all_of_a, is_all_of_b, is_staged, runs,
    unwrapped,
};
use crate::lab::boxes::{BoxNode, Registry, golden, groups_left, registry_of};
use crate::lab::{Case, Shell};
use crate::support::{Lacks, oci, skip};

/// Of a person who is far away.
pub(super) const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA core@bastion";

#[test]
fn a_box_goes_to_the_new_image_with_one_reboot_and_back_with_another() {
    let Some(case) = Case::begin_in_box("box: image and files, there and back") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    is_staged(&story.node);
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);

    // Another default comes with a new directory of boot entries: what a trial has put into the old one counts no more.
    let mark = "/boot/loader/mco-rescue-trial";
    story.node.ask(&format!(
        "mount -o remount,rw /boot && touch {mark} && test -e {mark}"
    ));
    let said = story.node.ask(&format!("{PROGRAM} rollback --yes"));
    assert!(said.contains("systemctl reboot"), "{said}");
    story.node.ask(&format!("test ! -e {mark}"));
    assert_eq!(runs(&story.node), "2.0");
    knows_what_runs(&story.node);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
}

#[test]
fn a_box_records_its_boots_and_knows_what_changed_between_them() {
    let Some(case) = Case::begin_in_box("box: the flight recorder") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let ask = |story: &Story<'_>, command: &str| -> Value {
        let said = story
            .node
            .run(&format!("{PROGRAM} {command} --output json"));
        serde_json::from_str(&said.out()).unwrap_or_else(|error| panic!("{error}: {}", said.err()))
    };
    story.node.ask(&format!("{PROGRAM} install"));
    story.node.reboot();
    let journal = "journalctl -b -o cat -u mco-rescue-record.service";
    let seen = ask(&story, "history");
    let first = &seen["entries"][0];
    let words = format!("{seen:#} {}", story.node.ask(journal));
    assert_eq!(first["event"], "boot", "{words}");
    assert_eq!(first["outcome"], "good", "{words}");
    let number = first["snapshot"].as_u64().unwrap();

    story.node.ask("echo changed >/etc/motd");
    story.node.reboot();
    let seen = ask(&story, "history");
    assert_eq!(seen["entries"][0]["snapshot"], number + 1, "{seen:#}");
    let found = ask(&story, &format!("diff {number} {}", number + 1));
    let subjects = found["differences"].to_string();
    assert!(subjects.contains("\"/etc/motd\""), "{found:#}");

    // A kubelet that does not come up is no good boot, and the last good one is that before.
    let kubelet = "/etc/systemd/system/kubelet.service.d/99-broken.conf";
    story.node.ask(&format!(
        "mkdir -p $(dirname {kubelet}) && printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >{kubelet}"
    ));
    story.node.reboot();
    let seen = ask(&story, "history");
    assert_eq!(seen["entries"][0]["outcome"], "no-kubelet", "{seen:#}");
    let since = ask(&story, "diff");
    assert_eq!(since["from"]["snapshot"], number + 1, "{since:#}");
    let subjects = since["differences"].to_string();
    for wanted in [kubelet, "kubelet.service"] {
        assert!(subjects.contains(wanted), "no {wanted}: {since:#}");
    }
    let copies = story.node.ask("ls /boot/mco-rescue");
    assert!(copies.contains("snapshot-"), "{copies}");
}

#[test]
fn a_box_loses_what_is_staged_at_a_power_cut_and_the_kubelet_finds_the_old_config() {
    let Some(case) = Case::begin_in_box("box: power cut while staged") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    is_staged(&story.node);
    drop(registry);
    story.node.cut();
    story.node.boot();
    is_all_of_a(&story.node, &story.a);
    let status = story.node.ask(&format!("{PROGRAM} status"));
    let said = unwrapped(&status);
    assert!(said.contains(configs::name(&story.b)), "{status}");
    assert!(
        said.contains("the previous deployment was booted again"),
        "{status}"
    );
    // It is told once: the next boot of a whole node forgets it.
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    story.awaits_nothing();
}

#[test]
fn a_box_waits_only_for_what_was_staged_last() {
    let Some(case) = Case::begin_in_box("box: staged over, and dropped") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    story.node.ask(&format!("{PROGRAM} apply --yes a.json"));
    drop(registry);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    story.awaits_nothing();

    // Dropped by another hand: both ways out.
    let registry = story.registry();
    story.applies_b("");
    story.is_dropped();
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    story.awaits_nothing();
    story.applies_b("");
    story.is_dropped();
    let again = format!("{PROGRAM} apply --yes cached:{}", configs::name(&story.b));
    story.node.ask(&again);
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
    story.awaits_nothing();
}

#[test]
fn a_box_takes_the_image_from_a_medium_and_says_before_what_would_refuse_it() {
    let Some(case) = Case::begin_in_box("box: image from a medium") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let medium = story.node.media().join("os");
    let index = two_images(&medium);
    let before = story.node.ask(EVERYTHING);

    story.is_refused("has no name of its own there");
    fs::write(medium.join("index.json"), index).unwrap();
    story.node.ask("cp /etc/containers/policy.json accepts");
    story
        .node
        .ask(r#"echo '{"default": [{"type": "reject"}]}' >/etc/containers/policy.json"#);
    story.is_refused("skopeo --insecure-policy copy");
    story.node.ask("rm /etc/containers/policy.json");
    story.is_refused("policy.json is missing");
    story.node.ask("cp -p accepts /etc/containers/policy.json");
    assert_eq!(
        without_policy(&story.node.ask(EVERYTHING)),
        without_policy(&before)
    );

    story.applies_b("--os-from /run/media/os");
    is_staged(&story.node);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
}

/// A medium with 2.0 and another image, which do not have names yet; gives the index in which they have.
pub(super) fn two_images(medium: &Path) -> String {
    oci::image(medium);
    let read = |dir: &Path| -> Value {
        serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap()
    };
    let mut index = read(medium);
    let b = golden().oci();
    let blobs = "blobs/sha256";
    for blob in fs::read_dir(b.join(blobs)).unwrap() {
        let blob = blob.unwrap();
        let to = medium.join(blobs).join(blob.file_name());
        let _ = fs::hard_link(blob.path(), to);
    }
    let all = index["manifests"].as_array_mut().unwrap();
    all.push(read(&b)["manifests"][0].clone());
    // The other one has to be another one with the stand-in too.
    if all[0]["digest"] == all[1]["digest"] {
        all[0]["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
    }
    fs::write(medium.join("index.json"), index.to_string()).unwrap();
    for (at, name) in ["other", "quay.example/okd/os:2.0"].into_iter().enumerate() {
        index["manifests"][at]["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    }
    index.to_string()
}

/// Its time is another one.
fn without_policy(everything: &str) -> String {
    let lines = everything.lines();
    let others = lines.filter(|line| !line.contains("/etc/containers/policy.json"));
    others.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_box_whose_boot_partition_fills_up_says_so_and_does_it_again() {
    let Some(case) = Case::begin_in_box("box: finalization fails") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    drop(registry);
    // To the last block: root may use what is reserved.
    story.node.ask("mount -o remount,rw /boot && { cat /dev/zero >/boot/fill || true; } 2>/dev/null && mount -o remount,ro /boot");
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    let failed = story.node.ask("systemctl --failed --no-legend --plain");
    assert!(failed.contains("mco-rescue-complete.service"), "{failed}");
    let status = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    assert!(status.contains("No space left on device"), "{status}");

    let registry = story.registry();
    let refused = story
        .node
        .run(&format!("{PROGRAM} apply --yes b.json"))
        .exits(1);
    assert!(refused.out().contains("/boot"), "{}", refused.out());
    is_all_of_a(&story.node, &story.a);
    story
        .node
        .ask("mount -o remount,rw /boot && rm /boot/fill && mount -o remount,ro /boot");
    story.applies_b("");
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
}

#[test]
fn a_box_tells_a_damaged_blob_from_a_fetcher_without_credentials() {
    let Some(case) = Case::begin_in_box("box: damaged on the way") else {
        return;
    };
    if !golden().engine.is_real_rpm_ostree() {
        return skip(
            Lacks::Counterpart,
            "only rpm-ostree has a fetcher of another user",
        );
    }
    let story = Story::in_a(&case);
    // Blobs from this size on are damaged.
    let damaged = Arc::new(AtomicUsize::new(0));
    let (whole, from) = (registry_of(&golden().oci()), Arc::clone(&damaged));
    let _registry = story.node.registry(move |request| {
        let response = whole(request);
        if request.path().contains("/blobs/") {
            response.damaged(from.load(Ordering::SeqCst))
        } else {
            response
        }
    });
    // The config of the image first, then a layer.
    for size in [0, 100_000] {
        damaged.store(size, Ordering::SeqCst);
        story.fails_with(&[
            "the image is damaged",
            "Next: mco-rescue apply --yes b.json",
        ]);
    }
    damaged.store(usize::MAX, Ordering::SeqCst);
    story.node.ask(
        "rm /etc/ostree/auth.json && podman system info >/dev/null && chmod 0700 /run/containers",
    );
    story.fails_with(&["looks for credentials", "/etc/ostree/auth.json"]);
}

#[test]
fn a_box_names_what_an_admin_staged_and_leads_out_of_what_that_makes() {
    let Some(case) = Case::begin_in_box("box: staged by an admin") else {
        return;
    };
    if !golden().engine.is_real_rpm_ostree() {
        return skip(Lacks::Counterpart, "only rpm-ostree has these commands");
    }
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    let name = configs::name(&story.b).to_owned();
    story.node.ask(&format!("{PROGRAM} fetch b.json"));
    let rebase = format!(
        "rpm-ostree rebase ostree-unverified-registry:{}",
        golden().b()
    );

    // Locked: it is not taken for what a reboot enters, and it stays.
    story.node.ask(&format!("{rebase} --lock-finalization"));
    for verb in ["plan", "apply --yes"] {
        let run = story.node.run(&format!("{PROGRAM} {verb} b.json")).exits(1);
        let said = unwrapped(&run.out());
        for words in [
            "by rpm-ostree: Rebase for client(id:cli",
            "It is locked (a download only): no reboot enters it",
            "rpm-ostree finalize-deployment",
            "--takeover drops it",
            "--files-only",
        ] {
            assert!(said.contains(words), "{words}: {said}{}", run.err());
        }
    }
    let status = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    assert!(status.contains("(locked: no reboot enters it)"), "{status}");
    drop(registry);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);

    // Not locked, and booted before the files come.
    let registry = story.registry();
    story.node.ask(&rebase);
    let status = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    assert!(
        status.contains("not by mco-rescue, but by rpm-ostree"),
        "{status}"
    );
    story.node.reboot();
    assert_eq!(runs(&story.node), "2.0");
    let status = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    let words = format!("The running image is that of {name}: the node was booted into it before");
    assert!(status.contains(&words), "{status}");
    let next = format!("Next: {PROGRAM} apply cached:{name} or: {PROGRAM} pivot");
    let next = next.replace(PROGRAM, "mco-rescue");
    assert!(status.contains(&next), "{status}");
    story
        .node
        .ask(&format!("{PROGRAM} apply --yes cached:{name}"));
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
    story.awaits_nothing();
}

#[test]
fn a_box_in_a_trial_that_boots_the_new_system_twice_is_reverted_without_a_failed_unit() {
    let Some(case) = Case::begin_in_box("box: a trial is booted twice") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.node.ask(&format!("{PROGRAM} install"));
    // The guard has the lock first.
    let slow = "[Service]\nExecStartPre=/bin/sh -c 'for n in $(seq 50); do grep -q reverting /var/lib/mco-rescue/trial.json && \
        grep -q FLOCK /proc/locks && exit 0; sleep 0.1; done; exit 0'\n";
    story.node.bring(
        "/etc/systemd/system/mco-rescue-complete.service.d/slow.conf",
        slow.as_bytes(),
    );
    story.node.run(&format!(
        "{PROGRAM} apply --yes --detach --try=300s --boot-limit=300s --reboot b.json"
    ));
    drop(registry);
    story.node.is_down();
    story.node.start();
    story
        .node
        .ask("until grep -q trial-boot /var/lib/mco-rescue/trial.json; do sleep 0.1; done");
    assert_eq!(runs(&story.node), "2.0");
    story.node.cut();

    story.node.start();
    story.node.is_down();
    story.node.boot();
    is_all_of_a(&story.node, &story.a);
    story
        .node
        .ask("until test ! -e /var/lib/mco-rescue/trial.json; do sleep 0.1; done");
    let status = story.node.ask(&format!("{PROGRAM} status -o json || true"));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["last_trial"]["outcome"], "reverted", "{status:#}");
    story.awaits_nothing();
    let failed = story.node.ask("systemctl --failed --no-legend --plain");
    assert_eq!(failed, "");
    let before = "journalctl -o cat -u mco-rescue-complete.service -u mco-rescue-trial.service";
    let journal = story.node.ask(before);
    case.tell(&journal);
    assert!(!journal.contains("holds the lock"), "{journal}");
    assert!(!journal.contains("Failed with result"), "{journal}");
}

#[test]
fn a_box_leaves_nothing_on_the_host_also_when_its_keeper_is_killed() {
    let Some(case) = Case::begin_in_box("box: nothing is left") else {
        return;
    };
    let mut node = BoxNode::new(&case);
    node.boot();
    node.loses_its_keeper();
    node.vanishes();
    // The next one cleans up after it.
    node.boot();
    assert_eq!(groups_left(), Vec::<PathBuf>::new());
    node.cut();
    node.vanishes();
    assert_eq!(groups_left(), Vec::<PathBuf>::new());
}

#[test]
fn a_box_that_reboots_softly_is_judged_by_the_deployment_that_came_up() {
    let Some(case) = Case::begin_in_box("box: soft reboots") else {
        return;
    };
    let mut story = Story::in_a(&case);
    story.b = config_b_soft(KEY, &golden().b());
    story
        .node
        .bring("/root/b.json", story.b.to_string().as_bytes());
    let registry = story.registry();
    story.applies_b("");
    drop(registry);
    story.node.reboot();
    assert_eq!(runs(&story.node), "2.0");

    // Back into the other deployment.
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    let said = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    assert!(said.contains("Next: systemctl reboot"), "{said}");
    story.node.ask(NEXT_ROOT);
    let said = unwrapped(&story.node.ask(&format!("{PROGRAM} status")));
    let hard = "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot";
    assert!(said.contains(&format!("Next: {hard}")), "{said}");
    assert!(said.contains("a soft reboot is prepared"), "{said}");
    story.reboots_softly();
    is_all_of_a(&story.node, &story.a);
    story.awaits_nothing();

    // The deployment from before stays, so its files come back before the kubelet starts. From a full boot: what stands in for
    // the next root leaves `/var` read-only at the second soft reboot.
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    let registry = story.registry();
    story.applies_b("");
    drop(registry);
    story.reboots_softly();
    is_all_of_a(&story.node, &story.a);
    let status = story.node.ask(&format!("{PROGRAM} status"));
    let said = unwrapped(&status);
    assert!(
        said.contains("did not come up: the reboot was soft"),
        "{status}"
    );
    // Its boot entry was written all the same.
    story.node.reboot();
    assert_eq!(runs(&story.node), "2.0");
    let verify = story.node.run(&format!("{PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}", verify.out());
    story.awaits_nothing();
}

/// STAND-IN for `ostree admin prepare-soft-reboot`, which Debian's OSTree does not have: the other deployment is mounted where
/// systemd looks, and what `/run/ostree-booted` says of the one that runs is gone.
const NEXT_ROOT: &str = "for one in /sysroot/ostree/deploy/rhcos/deploy/*.[0-9]; do \
    [ $(cat $one/usr/lib/os-version) = 2.0 ] || other=$one; done; \
    mkdir -p /run/nextroot && mount --bind $other /run/nextroot && \
    mount --bind $other/etc /run/nextroot/etc && mount -o remount,bind,rw /run/nextroot/etc && \
    mount --bind /sysroot /run/nextroot/sysroot && mount --bind /boot /run/nextroot/boot && \
    mount --bind /var /run/nextroot/var && : >/run/ostree-booted";

/// Until the reboot the kernel's `ostree=` leads to a name that is gone, as the boot entries have changed places.
fn knows_what_runs(node: &BoxNode) {
    let link = "/sysroot/$(tr ' ' '\\n' </proc/cmdline | sed -n 's/^ostree=//p')";
    assert_ne!(node.run(&format!("ls {link}")).code(), 0);
    let status = node.ask(&format!("{PROGRAM} status"));
    assert!(status.contains("Booted"), "{status}");
    let doctor = node.run(&format!("{PROGRAM} doctor")).out();
    assert!(!doctor.contains("not booted by"), "{doctor}");
    let plan = node.run(&format!("{PROGRAM} plan a.json")).out();
    assert!(!plan.contains("is not changed here"), "{plan}");
    assert!(!plan.contains("Nothing to do"), "{plan}");
}

/// The node, and the two configs, which it has in `/root`.
pub(super) struct Story<'a> {
    case: &'a Case,
    pub(super) node: BoxNode<'a>,
    pub(super) a: Value,
    pub(super) b: Value,
}

impl<'a> Story<'a> {
    /// Runs 1.0 in config A.
    pub(super) fn in_a(case: &'a Case) -> Self {
        let mut story = Self {
            case,
            node: BoxNode::new(case),
            a: config_a(KEY, &golden().a()),
            b: config_b(KEY, &golden().b()),
        };
        case.prepared();
        story.node.boot();
        for (name, config) in [("a", &story.a), ("b", &story.b)] {
            let path = format!("/root/{name}.json");
            story.node.bring(&path, config.to_string().as_bytes());
        }
        let said = story.node.ask(&format!("{PROGRAM} apply --yes a.json"));
        assert!(!said.contains("staged"), "{said}");
        story
            .node
            .ask("systemctl daemon-reload && systemctl start kubelet.service");
        story
    }

    /// Has 2.0.
    pub(super) fn registry(&self) -> Registry {
        self.node.registry(registry_of(&golden().oci()))
    }

    /// By `plan`, and with the same words by `apply`, from the medium.
    fn is_refused(&self, why: &str) {
        for verb in ["plan", "apply --yes"] {
            let command = format!("{PROGRAM} {verb} --os-from /run/media/os b.json");
            let run = self.node.run(&command).exits(1);
            let said = unwrapped(&run.out());
            assert!(said.contains("Blockers"), "{verb}: {said}{}", run.err());
            assert!(said.contains(why), "{verb}: {said}");
        }
    }

    /// Somebody else drops what is staged, and `status` says what that means.
    fn is_dropped(&self) {
        self.node.ask(golden().engine.drops_staged());
        let status = self.node.ask(&format!("{PROGRAM} status"));
        let said = unwrapped(&status);
        let name = configs::name(&self.b);
        let words =
            format!("{name}, but it is no longer staged, and its files are in place; begun ");
        assert!(said.contains(&words), "{status}");
        let next = format!(". Next: mco-rescue apply cached:{name} or: mco-rescue rollback");
        assert!(said.contains(&next), "{status}");
    }

    /// Starts user space alone anew.
    fn reboots_softly(&mut self) {
        let id = "cat /proc/sys/kernel/random/boot_id";
        let before = self.node.ask(id);
        self.node.soft_reboot();
        assert_eq!(self.node.ask(id), before);
    }

    pub(super) fn awaits_nothing(&self) {
        let run = self.node.run("ls /var/lib/mco-rescue/awaited.json");
        assert_ne!(run.code(), 0, "{}", run.out());
    }

    /// With these words, and nothing was changed.
    fn fails_with(&self, told: &[&str]) {
        let before = self.node.ask(EVERYTHING);
        let run = self
            .node
            .run(&format!("{PROGRAM} apply --yes b.json"))
            .exits(1);
        for words in told {
            assert!(run.err().contains(words), "{words}: {}", run.err());
        }
        assert_eq!(self.node.ask(EVERYTHING), before, "{told:?}");
        self.case.tell(&run.err());
    }

    /// Ends as the person expects: with what is to be done next.
    pub(super) fn applies_b(&self, options: &str) {
        let said = self
            .node
            .ask(&format!("{PROGRAM} apply --yes {options} b.json"));
        assert!(said.ends_with("Next: systemctl reboot"), "{said}");
        self.case.tell(&said);
    }
}
