//! The operating system of a node is changed together with its files, and everything that can go wrong on the way
//! does (story: the new image).
//!
//! Prepared: a node on OSTree with `/boot` on a disk of its own, running 1.0 and being in config A; 2.0 can be had.
//! The deployments, their staging, the finalization at shutdown and the boot entries are real; `rpm-ostree` itself is
//! a stand-in over them (`guest/rpm-ostree` says what it does not do), of which the program is not told. The boot
//! loader is the harness: it enters the default entry. Config B has another image, other kernel arguments, other
//! files and units. True afterwards, by case:
//!
//! 1. `apply` stages and `reboot` enters all of B at once; `rollback` and `reboot` enter all of A at once.
//! 2. The power fails between staging and reboot: 1.0 comes up, and the kubelet finds A. B is applied again.
//! 3. `/boot` fills up before the shutdown: the same, and the error of the finalization is told.
//! 4. The power fails in 2.0 before `complete` has looked: the next boot proves B all the same.
//! 5. What rpm-ostree refuses, and a `/boot` without room, change nothing; `pivot` changes the image alone.
//! 6. The playbook of `examples/` does the same as 1 over ssh, and a second time nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, is_healthy_in, runs_config};
use crate::lab::images::{self, Layout};
use crate::lab::node::{Booted, Node};
use crate::lab::qemu::{End, Machine};
use crate::lab::{Case, Shell, checkout, disk, run};
use crate::support::ansible::Fleet;
use crate::support::{Run, file};

/// Where the stateroot is on the root's disk.
pub const STATEROOT: &str = "ostree/deploy/rhcos";
const AWAITED: &str = "/var/lib/mco-rescue/awaited.json";

/// An image as the table of the stand-in has it.
pub fn image(letter: &str) -> String {
    format!("quay.example/okd/os@sha256:{}", letter.repeat(64))
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn image_arguments_files_and_units_come_with_one_reboot_and_go_with_another() {
    let Some(case) = Case::begin_as_root("7 image and files, there and back") else {
        return;
    };
    let mut story = Story::begin(&case);
    let booted = story.in_a();
    story.apply_b(&booted);
    is_staged(&booted);
    let booted = story.reboot(booted);
    story.is_all_of_b(&booted);

    let said = booted.ask(&format!("sudo {PROGRAM} rollback --yes"));
    assert!(said.contains("systemctl reboot"), "{said}");
    assert_eq!(runs(&booted), "2.0");
    let booted = story.reboot(booted);
    story.is_all_of_a(&booted);
    is_healthy_in(&booted, &story.a);
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_staging_that_a_power_cut_loses_leaves_the_kubelet_the_old_config() {
    let Some(case) = Case::begin_as_root("7 power cut while staged") else {
        return;
    };
    let mut story = Story::begin(&case);
    let mut booted = story.in_a();
    story.apply_b(&booted);
    is_staged(&booted);
    booted.guest.cut();
    let mut booted = story.boot();
    story.is_all_of_a(&booted);
    let status = unwrapped(&booted.ask(&format!("sudo {PROGRAM} status")));
    assert!(status.contains(configs::name(&story.b)), "{status}");
    assert!(
        status.contains("the previous deployment was booted again"),
        "{status}"
    );
    case.tell(&status);

    // Again, as if it had failed after the files were in place and before their run was noted.
    story.apply_cached_b(&booted);
    let unnoted = r#"s/"checksum": *"[^"]*",//; s/"run": "[^"]*"/"run": null/; s/"files_after": null/"files_after": ""/"#;
    booted.ask(&format!(
        "sudo sed -i '{unnoted}' {AWAITED} && sudo sync {AWAITED} && sudo grep -q null {AWAITED}"
    ));
    booted.guest.cut();
    let booted = story.boot();
    story.is_all_of_a(&booted);

    story.apply_cached_b(&booted);
    is_staged(&booted);
    let booted = story.reboot(booted);
    story.is_all_of_b(&booted);
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_finalization_that_fails_at_shutdown_is_reported_and_done_again() {
    let Some(case) = Case::begin_as_root("7 finalization fails") else {
        return;
    };
    let mut story = Story::begin(&case);
    let booted = story.in_a();
    story.apply_b(&booted);
    is_staged(&booted);
    fill_boot(&booted);
    let booted = story.reboot(booted);
    story.is_all_of_a(&booted);
    let failed = booted.ask("systemctl --failed --no-legend --plain");
    for unit in [
        "ostree-boot-complete.service",
        "mco-rescue-complete.service",
    ] {
        assert!(failed.contains(unit), "{failed}");
    }
    let status = unwrapped(&booted.ask(&format!("sudo {PROGRAM} status")));
    assert!(status.contains("No space left on device"), "{status}");
    let journal = booted.ask("sudo journalctl -b -u mco-rescue-complete.service -o cat");
    assert!(
        journal.contains("was not finalized at shutdown"),
        "{journal}"
    );
    case.tell(&status);

    // It still has no room, and this time that is seen before anything is staged.
    let refused = story.tries_b(&booted).exits(1);
    assert!(refused.out().contains("/boot"), "{}", refused.out());
    story.is_all_of_a(&booted);
    empty_boot(&booted);
    story.apply_cached_b(&booted);
    let booted = story.reboot(booted);
    story.is_all_of_b(&booted);
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_power_cut_before_the_new_system_is_proven_is_made_up_for_at_the_next_boot() {
    let Some(case) = Case::begin_as_root("7 power cut before complete") else {
        return;
    };
    let mut story = Story::begin(&case);
    let booted = story.in_a();
    // It waits there once, before it has looked at anything.
    let waits = "[Service]\nExecStartPre=/bin/sh -c 'test -e /var/lib/held && exit 0; touch /var/lib/held; sync; \
        echo COMPLETE WAITS >/dev/ttyS0; exec sleep infinity'\n";
    booted.bring("waits.conf", waits.as_bytes());
    booted.ask("sudo install -D -m 0644 waits.conf /etc/systemd/system/mco-rescue-complete.service.d/waits.conf");
    story.apply_b(&booted);
    let mut guest = story.shut_down(booted).guest;
    guest.wait_for("COMPLETE WAITS");
    guest.cut();
    let booted = story.boot();
    story.is_all_of_b(&booted);
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn what_rpm_ostree_refuses_changes_nothing_and_pivot_changes_the_image_alone() {
    let Some(case) = Case::begin_as_root("7 refusals, and pivot") else {
        return;
    };
    let mut story = Story::begin(&case);
    let booted = story.in_a();
    let before = booted.ask(EVERYTHING);
    for (fails, cause, next) in [
        ("no-space", "no space", "make room"),
        ("unreachable", "no such host", "registries.conf"),
        ("unauthorized", "unauthorized", "pull secret"),
        ("busy", "a transaction is running (Rebase)", "let it finish"),
        ("cancelled", "cancelled", "again"),
    ] {
        booted.ask(&format!(
            "sudo mkdir -p /run/stand-in && echo {fails} | sudo tee /run/stand-in/fails"
        ));
        let refused = story.tries_b(&booted).exits(1);
        let said = format!("{}{}", refused.out(), refused.err());
        assert!(said.contains(cause), "{fails}: {said}");
        assert!(said.contains(next), "{fails}: {said}");
        case.tell(&format!("{fails}: {}", refused.err().trim()));
        booted.ask("sudo rm /run/stand-in/fails");
        assert_eq!(booted.ask(EVERYTHING), before, "{fails}");
    }
    fill_boot(&booted);
    let refused = story.tries_b(&booted).exits(1);
    assert!(refused.out().contains("/boot"), "{}", refused.out());
    case.tell(&format!("/boot full: {}{}", refused.out(), refused.err()));
    empty_boot(&booted);
    assert_eq!(booted.ask(EVERYTHING), before);
    story.is_all_of_a(&booted);

    // The exit status says no, and the deployment is staged all the same.
    booted.ask("echo staged-but-failed | sudo tee /run/stand-in/fails");
    booted.ask(&format!("sudo {PROGRAM} pivot --yes {}", image("b")));
    booted.ask("sudo rm /run/stand-in/fails");
    let booted = story.reboot(booted);
    assert_eq!(runs(&booted), "2.0");
    nothing_is_awaited(&booted);
    case.tell(&complete(&booted));
    let saw = booted.ask("cat /run/witness");
    assert!(saw.contains("maxPods: 250"), "{saw}");
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn the_playbook_brings_a_node_without_python_through_its_reboot() {
    let Some(case) = Case::begin_as_root("7 the playbook, over ssh") else {
        return;
    };
    let Some(mut fleet) = Fleet::new() else {
        return;
    };
    let mut story = Story::begin(&case);
    let mut booted = story.in_a();
    assert_ne!(booted.run("command -v python3").code(), 0);
    is_reached_over_ssh(&mut fleet, &booted);
    let config = fleet.write("b.json", &story.b.to_string());
    let given = json!({
        "mco_rescue_become": true,
        "mco_rescue_binary": images::program(),
        "mco_rescue_config": config,
        "mco_rescue_reboot": true,
        "mco_rescue_workspace": "/run",
    });
    let before = booted.ask(EVERYTHING);
    let play = fleet.play(&given, &["--check"]).ok();
    assert_eq!(play.count("node", "changed"), Some(1), "{}", play.said());
    assert_eq!(booted.ask(EVERYTHING), before);

    // It waits for the node while the boot loader does its work.
    let play = std::thread::scope(|scope| {
        let playing = scope.spawn(|| fleet.play(&given, &[]));
        while booted.guest.runs() && !playing.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !playing.is_finished() {
            let end = booted.guest.ended();
            assert_eq!(end, End::Rebooted, "{}", booted.guest.tail());
            booted = story.start();
            fleet.write("port", &booted.port().to_string());
        }
        playing.join().unwrap()
    });
    let play = play.ok();
    case.tell(&play.said());
    assert_eq!(play.count("node", "changed"), Some(1), "{}", play.said());
    booted.comes_up();
    story.is_all_of_b(&booted);
    let report = fleet.report("node").unwrap();
    assert_eq!(report["recorded"], configs::name(&story.b));
    let left = booted
        .ask("sudo find /run/mco-rescue-* /tmp /home/core/.ansible -type f 2>/dev/null || true");
    assert_eq!(left, "");

    let play = fleet.play(&given, &[]).ok();
    assert_eq!(play.count("node", "changed"), Some(0), "{}", play.said());
    booted.power_off();
}

/// As its administrator reaches it; where, stands in a file, as every boot has another port.
fn is_reached_over_ssh(fleet: &mut Fleet, booted: &Booted) {
    let port = fleet.write("port", &booted.port().to_string());
    let arguments = format!(
        "-F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o \"ProxyCommand=socat - TCP4:127.0.0.1:$(cat {})\"",
        port.display()
    );
    let own = json!({
        "ansible_connection": "ssh",
        "ansible_host": "127.0.0.1",
        "ansible_user": "core",
        "ansible_ssh_private_key_file": booted.key(),
        "ansible_ssh_common_args": arguments,
    });
    fleet.host_with("node", own);
}

/// What no refusal may change: files, deployments, arguments, and what is awaited. What a config has asked for of a
/// deployment that runs may be noted.
pub const EVERYTHING: &str = "sudo find /etc /var/lib/mco-rescue /var/home -xdev -type f ! -name .pwd.lock \
    ! -path '*/cache/*' ! -name asked.json -printf '%p %s %T@ %m\\n' | sort; sudo ostree admin status; \
    sudo rpm-ostree kargs; ls /boot/loader/entries /boot/ostree";

/// The node, and the two configs.
pub struct Story<'a> {
    case: &'a Case,
    pub node: Node<'a>,
    boot_disk: PathBuf,
    /// What is plugged in besides.
    pub media: Vec<PathBuf>,
    pub a: Value,
    pub b: Value,
}

impl<'a> Story<'a> {
    /// A node that has been running for a while.
    pub fn begin(case: &'a Case) -> Self {
        let story = Self::of_nobody(case);
        story.prepare();
        case.prepared();
        story
    }

    /// The disk that is its `/boot`, a file system without partitions.
    pub fn boot_disk(&self) -> &Path {
        &self.boot_disk
    }

    /// As its image is: nothing but the program was put on it.
    pub fn of_nobody(case: &'a Case) -> Self {
        let disks = images::with_two_systems();
        let boot_disk = case.path("boot.disk");
        disk::copy(&disks.join("boot"), &boot_disk);
        let node = Node::of(case, Layout::Ostree, &disks.join("root"));
        let key = node.public_key();
        let story = Self {
            case,
            boot_disk,
            media: Vec::new(),
            a: config_a(&key, &image("a")),
            b: config_b(&key, &image("b")),
            node,
        };
        disk::mounted(story.node.disk(), |top| {
            let var = top.join(STATEROOT).join("var");
            install(&images::program(), &var.join("usrlocal/bin/mco-rescue"));
            let etc = deployment(top).join("etc");
            fs::write(etc.join("hosts"), "127.0.0.1 localhost\n").unwrap();
            // As CoreOS has it; without one nothing can be pulled.
            fs::create_dir_all(etc.join("containers")).unwrap();
            let policy = json!({"default": [{"type": "insecureAcceptAnything"}]});
            fs::write(etc.join("containers/policy.json"), policy.to_string()).unwrap();
        });
        story
    }

    /// What an installer left, the program's unit among it.
    fn prepare(&self) {
        let key = self.node.public_key();
        disk::mounted(self.node.disk(), |top| {
            let var = top.join(STATEROOT).join("var");
            let keys = var.join("home/core/.ssh/authorized_keys");
            fs::create_dir_all(keys.parent().unwrap()).unwrap();
            fs::write(&keys, key).unwrap();
            run(Command::new("chown")
                .args(["-R", "1000:1000"])
                .arg(keys.parent().unwrap()));
            let etc = deployment(top).join("etc");
            fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
            let unit = "mco-rescue-complete.service";
            let units = etc.join("systemd/system");
            install(&checkout().join("systemd").join(unit), &units.join(unit));
            symlink(
                format!("../{unit}"),
                units.join("multi-user.target.wants").join(unit),
            )
            .unwrap();
        });
    }

    /// Runs 1.0 in config A.
    pub fn in_a(&mut self) -> Booted {
        let booted = self.boot();
        let text = self.a.to_string();
        booted.bring("a.json", text.as_bytes());
        let said = booted.ask(&format!("sudo {PROGRAM} apply --yes a.json"));
        assert!(!said.contains("staged"), "{said}");
        booted.ask("sudo systemctl daemon-reload && sudo systemctl start kubelet.service");
        booted.bring("b.json", self.b.to_string().as_bytes());
        booted
    }

    fn tries_b(&self, booted: &Booted) -> Run {
        booted.run(&format!("sudo {PROGRAM} apply --yes b.json"))
    }

    /// Ends as the person expects: with what is to be done next.
    pub fn apply_b(&self, booted: &Booted) {
        self.applies(booted, "b.json");
    }

    /// The same from what the node has kept.
    fn apply_cached_b(&self, booted: &Booted) {
        booted.ask("rm -f b.json");
        self.applies(booted, &format!("cached:{}", configs::name(&self.b)));
    }

    fn applies(&self, booted: &Booted, config: &str) {
        let begun = Instant::now();
        let said = booted.ask(&format!("sudo {PROGRAM} apply --yes {config}"));
        assert!(said.ends_with("Next: systemctl reboot"), "{said}");
        self.case.tell(&format!(
            "apply {config}: {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
    }

    /// Enters the default entry, as a boot loader does.
    pub fn boot(&mut self) -> Booted {
        let mut booted = self.start();
        booted.comes_up();
        self.case
            .tell(&format!("boot: {:.1} s", booted.guest.seconds()));
        booted
    }

    pub fn start(&mut self) -> Booted {
        let entry = self.default_entry();
        let value = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key}in {entry}")).trim()
        };
        let (kernel, initrd) = (self.case.path("vmlinuz"), self.case.path("initrd"));
        for (file, to) in [(value("linux "), &kernel), (value("initrd "), &initrd)] {
            let dump = format!("dump {file} {}", to.display());
            run(Command::new("debugfs")
                .args(["-R", &dump])
                .arg(&self.boot_disk));
        }
        let mut machine = Machine::of(&kernel, &[initrd])
            .with_v2()
            .append(value("options "))
            .disk(self.node.disk())
            .disk(&self.boot_disk);
        for medium in &self.media {
            machine = machine.disk(medium);
        }
        self.node.boot(&machine)
    }

    /// The entry of the highest version, which ostree means by it.
    fn default_entry(&self) -> String {
        // After a power cut its journal has to be played first.
        let mut check = Command::new("e2fsck");
        let _ = check.args(["-p", "-f"]).arg(&self.boot_disk).output();
        let ask = |request: &str| {
            let mut debugfs = Command::new("debugfs");
            run(debugfs.args(["-R", request]).arg(&self.boot_disk))
        };
        let listed = ask("ls -p /loader/entries");
        let names = listed.split('/').filter(|name| name.ends_with(".conf"));
        let entries = names.map(|name| ask(&format!("cat /loader/entries/{name}")));
        let version = |entry: &String| {
            let line = entry.lines().find_map(|line| line.strip_prefix("version "));
            line.and_then(|number| number.trim().parse::<u32>().ok())
        };
        entries.max_by_key(version).expect("no boot entry")
    }

    /// `systemctl reboot`, into what is the default then.
    pub fn reboot(&mut self, booted: Booted) -> Booted {
        let mut booted = self.shut_down(booted);
        booted.comes_up();
        self.case
            .tell(&format!("boot: {:.1} s", booted.guest.seconds()));
        booted
    }

    /// The same, as far as the next kernel.
    pub fn shut_down(&mut self, mut booted: Booted) -> Booted {
        let begun = Instant::now();
        booted.run("sudo systemctl --no-block reboot");
        assert_eq!(
            booted.guest.ended(),
            End::Rebooted,
            "{}",
            booted.guest.tail()
        );
        self.case
            .tell(&format!("shutdown: {:.1} s", begun.elapsed().as_secs_f64()));
        self.start()
    }

    pub fn is_all_of_b(&self, booted: &Booted) {
        is_all_of_b(booted, &self.b);
        is_healthy_in(booted, &self.b);
        let status = deployments(booted);
        let reference = format!("ostree-unverified-registry:{}", image("b"));
        assert_eq!(status[0]["container-image-reference"], reference.as_str());
    }

    /// Deployment, arguments, files, units and record; and it was so when the kubelet started.
    pub fn is_all_of_a(&self, booted: &Booted) {
        is_all_of_a(booted, &self.a);
    }
}

/// Deployment, arguments, files, units and record; and it was so when the kubelet started.
pub fn is_all_of_b(node: &impl Shell, b: &Value) {
    assert_eq!(runs(node), "2.0", "{}", complete(node));
    runs_config(node, b);
    let arguments = node.ask("cat /proc/cmdline");
    assert!(arguments.contains(" nosmt site.is=b"), "{arguments}");
    assert!(!arguments.contains("audit=0"), "{arguments}");
    kubelet_found(node, b, "maxPods: 500");
    node.ask("test -e /etc/site/b && test ! -e /etc/site/a && systemctl is-active site-b.service");
    let status = deployments(node);
    assert_eq!(status[0]["booted"], true, "{status}");
    assert_eq!(status[1]["pinned"], true, "{status}");
    nothing_is_awaited(node);
}

/// The same of the other one.
pub fn is_all_of_a(node: &impl Shell, a: &Value) {
    assert_eq!(runs(node), "1.0", "{}", complete(node));
    let verify = node.run(&format!("sudo {PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}{}", verify.out(), complete(node));
    let arguments = node.ask("cat /proc/cmdline");
    assert!(arguments.contains("audit=0"), "{arguments}");
    assert!(!arguments.contains("nosmt"), "{arguments}");
    kubelet_found(node, a, "maxPods: 250");
    node.ask("test -e /etc/site/a && test ! -e /etc/site/b && systemctl is-enabled site-a.service && systemctl is-active kubelet.service");
}

/// What the kubelet found when it started, and not what is there now.
pub fn kubelet_found(node: &impl Shell, config: &Value, kubelet: &str) {
    let found = node.ask("sudo cat /run/witness");
    let name = configs::name(config);
    assert!(
        found.contains(kubelet) && found.contains(name),
        "{found}\n{}",
        complete(node)
    );
}

/// A worker in the system that runs.
pub fn config_a(key: &str, image: &str) -> Value {
    config(key, "a", image, 250, &["audit=0"])
}

/// The same in the other one.
pub fn config_b(key: &str, image: &str) -> Value {
    config(key, "b", image, 500, &["nosmt", "site.is=b"])
}

/// B with the kernel arguments of A, so that no other kernel is needed.
pub fn config_b_soft(key: &str, image: &str) -> Value {
    config(key, "b", image, 500, &["audit=0"])
}

fn config(key: &str, letter: &str, image: &str, max_pods: u32, arguments: &[&str]) -> Value {
    let witness = "[Unit]\nDescription=What the kubelet finds (stand-in)\n\
        After=kubelet-dependencies.target\nBefore=kubelet.service\n\
        [Service]\nType=oneshot\nRemainAfterExit=yes\n\
        ExecStart=/bin/sh -c '{ cat /etc/kubernetes/kubelet.conf; grep -o \"rendered-worker-[0-9a-f]*\" /etc/machine-config-daemon/currentconfig; } >/run/witness'\n\
        [Install]\nRequiredBy=kubelet.service\n";
    let more = json!({
        "files": [file(&format!("/etc/site/{letter}"), 0o640, "only in one of the two\n")],
        "units": [
            {"name": "witness.service", "enabled": true, "contents": witness},
            {"name": format!("site-{letter}.service"), "enabled": true, "contents": configs::idle("the site's own")},
        ],
    });
    let mut config = configs::worker(key, max_pods, more);
    config["spec"]["osImageURL"] = json!(image);
    config["spec"]["kernelArguments"] = json!(arguments);
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    config["metadata"]["name"] = json!(format!("rendered-worker-{hash}"));
    config
}

pub fn deployment(top: &Path) -> PathBuf {
    let all = fs::read_dir(top.join(STATEROOT).join("deploy")).unwrap();
    let mut paths = all.map(|entry| entry.unwrap().path());
    paths.find(|path| path.is_dir()).unwrap()
}

fn install(from: &Path, to: &Path) {
    let mode = if to.ends_with("mco-rescue") {
        "0755"
    } else {
        "0644"
    };
    run(Command::new("install").args(["-m", mode]).arg(from).arg(to));
}

/// The version that is written in the tree that runs.
pub fn runs(booted: &impl Shell) -> String {
    booted.ask("cat /usr/lib/os-version")
}

/// What a screen says, wherever its lines were broken.
pub fn unwrapped(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns what is staged, booted, pinned, and the version, for each deployment, as rpm-ostree lists them.
pub fn deployments(booted: &impl Shell) -> Value {
    let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    if booted.run("test -e /usr/bin/rpm-ostree").code() == 0 {
        return parsed(booted.ask("sudo rpm-ostree status --json"))["deployments"].clone();
    }
    let status =
        parsed(booted.ask("sudo bootc status --json --format-version 1"))["status"].clone();
    let names = ["staged", "booted", "rollback"];
    let entries = names
        .iter()
        .filter(|name| !status[name].is_null())
        .map(|name| {
            let entry = &status[name];
            json!({
                "staged": *name == "staged",
                "booted": *name == "booted",
                "pinned": entry["pinned"],
                "version": entry["image"]["version"],
            })
        });
    entries.collect()
}

/// 2.0 waits, 1.0 runs and is kept whatever is cleaned up.
pub fn is_staged(booted: &impl Shell) {
    let status = deployments(booted);
    assert_eq!(status[0]["staged"], true, "{status}");
    assert_eq!(status[0]["version"], "2.0", "{status}");
    assert_eq!(status[1]["booted"], true, "{status}");
    assert_eq!(status[1]["pinned"], true, "{status}");
    booted.ask(&format!("sudo test -e {AWAITED}"));
}

pub fn nothing_is_awaited(booted: &impl Shell) {
    booted.ask(&format!("sudo test ! -e {AWAITED}"));
}

/// What `complete` said at this boot, for messages.
pub fn complete(booted: &impl Shell) -> String {
    let journal = "sudo journalctl -b -o short-monotonic -u mco-rescue-complete.service -u ostree-boot-complete.service";
    let before = "sudo journalctl -b -1 -o short-monotonic -u ostree-finalize-staged.service";
    booted.run(&format!("{journal}; {before}")).out()
}

/// Leaves 8 MiB, less than one kernel.
pub fn fill_boot(booted: &impl Shell) {
    booted.ask(
        "sudo mount -o remount,rw /boot && \
         sudo fallocate -l $(($(stat -f -c '%f * %S' /boot) - (8 << 20))) /boot/fill && \
         sudo mount -o remount,ro /boot",
    );
}

pub fn empty_boot(booted: &impl Shell) {
    booted.ask(
        "sudo mount -o remount,rw /boot && sudo rm /boot/fill && sudo mount -o remount,ro /boot",
    );
}
