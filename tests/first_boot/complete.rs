//! `firstboot --complete` on a live OSTree node whose first-boot service gets nowhere. rpm-ostree, podman and
//! systemctl are scripts that answer as the real ones and change what they are asked about; their real deployments are
//! in vm-tests. What is asserted are the commands in their order, and what is on the node afterwards.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::mounts::{mount, with_mounts};
use crate::support::{
    Lacks, POLICY, RECORD, Run, TestRoot, copy_program, file, flat_run, install, install_program,
    machine_config, oci, skip,
};
use serde_json::{Value, json};

const TRIGGER: &str = "etc/ignition-machine-config-encapsulated.json";
const KEPT: &str = "etc/ignition-machine-config-encapsulated.json.bak";
const CONTENT: &str = "etc/mcs-machine-config-content.json";
const AWAITED: &str = "var/lib/mco-rescue/awaited.json";
const OLD: &str =
    "registry.example/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const NEW: &str =
    "registry.example/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const PULL: &str = "machine-config-daemon-pull.service";
const SERVICE: &str = "machine-config-daemon-firstboot.service";
/// Both units are stopped, and not left as failed.
const STOP: [&str; 2] = [
    "systemctl stop -- machine-config-daemon-pull.service machine-config-daemon-firstboot.service",
    "systemctl reset-failed -- machine-config-daemon-pull.service machine-config-daemon-firstboot.service",
];

/// Keeps what is staged in files of the root, and every call that changes something.
const RPM_OSTREE: &str = r#"
case "$*" in
    "status --json") cat /status.json; exit 0 ;;
    status) echo 'State: idle'; exit 0 ;;
    --version) printf '%s\n' rpm-ostree: " Version: '2024.7'" ' Features:' '  - rust' '  - container'; exit 0 ;;
    kargs) cat /kargs; exit 0 ;;
esac
echo "rpm-ostree $*" >>/calls
if [ -e "/fails-$1" ]; then cat "/fails-$1" >&2; exit 1; fi
if [ -e "/dies-$1" ]; then cat /busy.json >/status.json; kill -KILL $$; fi
if [ -e "/kills-$1" ]; then cat /staged.json >/status.json; kill -KILL $PPID; exit; fi
case $1 in
    cancel) cat /cancelled.json >/status.json ;;
    rebase) cat /staged.json >/status.json; echo >/run/ostree/staged-deployment ;;
    kargs) echo 'rw audit=0 nosmt ostree=/ostree/boot.1/rhcos/b00c/0' >/kargs ;;
    cleanup) cat /idle.json >/status.json; rm -f /run/ostree/staged-deployment ;;
esac
"#;

/// A live node after Ignition, before its first-boot service has done anything.
struct Live {
    root: TestRoot,
}

impl Live {
    fn new(image: &str, arguments: &[&str]) -> Self {
        let root = TestRoot::new();
        // A mount point, as the root of a system is: skopeo leaves it for another one.
        let top = root.dir().to_str().unwrap();
        mount(&["--bind", top, top]);
        for program in ["/bin/sh", "/bin/cat", "/bin/rm"] {
            copy_program(&root, program);
        }
        for dir in [
            "proc",
            "dev",
            "usr/sbin",
            "run/ostree",
            "run/systemd/system",
        ] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        root.write("dev/null", "");
        root.write("run/dbus/system_bus_socket", "");
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        let link = "ostree=/ostree/boot.1/rhcos/b00c/0";
        root.write("cmdline", &format!("{link} rw audit=0\n"));
        let cmdline = root.path("proc/cmdline");
        mount(&[
            "--bind",
            root.path("cmdline").to_str().unwrap(),
            cmdline.to_str().unwrap(),
        ]);
        let deployment = format!("../../../deploy/rhcos/deploy/{}.0", "a".repeat(64));
        root.link("sysroot/ostree/boot.1/rhcos/b00c/0", &deployment);
        root.write("etc/os-release", "ID=rhcos\nVARIANT_ID=coreos\n");
        root.write("kargs", &format!("rw audit=0 {link}\n"));
        let booted = deployment_of(OLD, 'a', false);
        let status = |all: Value| json!({"deployments": all, "transaction": null}).to_string();
        let running = json!(["Rebase", ":1.112", "/org/projectatomic/rpmostree1/rhcos"]);
        let busy = json!({"deployments": [booted], "transaction": running});
        root.write("busy.json", &busy.to_string());
        root.write("idle.json", &status(json!([booted])));
        root.write("status.json", &status(json!([booted])));
        root.write(
            "staged.json",
            &status(json!([deployment_of(NEW, 'b', true), booted])),
        );
        root.write(POLICY.0, POLICY.1);
        let live = Self { root };
        live.is_given(image, arguments);
        live.answers("rpm-ostree", RPM_OSTREE);
        live.answers("ostree", r#"echo "ostree $*" >>/calls"#);
        live.answers(
            "podman",
            &format!(r#"echo '[{{"Id": "1", "RepoDigests": ["{NEW}"]}}]'"#),
        );
        let systemctl = r#"case $1 in show) for unit; do [ ! -e "/units/$unit" ] || cat "/units/$unit"; done ;; *) echo "systemctl $*" >>/calls ;; esac"#;
        live.answers("systemctl", systemctl);
        live.units("activating", "inactive");
        // What recovers at boot can be started.
        live.root.write(
            "units/mco-rescue-recover.service",
            "LoadState=loaded\nResult=success\nConditionResult=yes\nExecMainStatus=0\n",
        );
        live
    }

    /// What Ignition wrote.
    fn is_given(&self, image: &str, arguments: &[&str]) {
        let mut config = machine_config(
            "rendered-worker-1",
            json!({"storage": {"files": [file("/etc/kubelet.conf", 0o600, "kind: Kubelet\n")]}}),
        );
        config["spec"]["osImageURL"] = json!(image);
        config["spec"]["kernelArguments"] = json!(arguments);
        self.root.write("etc/kubelet.conf", "kind: Kubelet\n");
        self.root.chmod("etc/kubelet.conf", 0o600);
        self.root.write(CONTENT, &config.to_string());
        config["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}});
        self.root.write(TRIGGER, &config.to_string());
    }

    /// What systemd says of the pull and of the service.
    fn units(&self, pull: &str, service: &str) {
        for (id, active) in [(PULL, pull), (SERVICE, service)] {
            let sub = if active == "activating" {
                "start"
            } else {
                "dead"
            };
            let text = format!("Id={id}\nActiveState={active}\nSubState={sub}\n\n");
            self.root.write(&format!("units/{id}"), &text);
        }
    }

    /// A program of the node.
    fn answers(&self, program: &str, script: &str) {
        self.root.write("script", &format!("#!/bin/sh\n{script}\n"));
        install(
            &self.root.path("script"),
            &self.root.path(&format!("usr/sbin/{program}")),
        );
    }

    fn completes(&self, more: &[&str]) -> Run {
        self.run(&[&["firstboot", "--complete", "--yes"], more].concat())
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.output(args))
    }

    fn output(&self, args: &[&str]) -> Output {
        install_program(&self.root.path("usr/mco-rescue"));
        let mut command = Command::new("chroot");
        command.arg(self.root.dir()).arg("/usr/mco-rescue");
        command.args(args).stdin(Stdio::null()).output().unwrap()
    }

    /// What changed something, without what is done for the program's own units.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.root.path("calls")).unwrap_or_default();
        let ours = |line: &&str| line.contains("mco-rescue") || line.ends_with("daemon-reload");
        let all = calls.lines().filter(|line| !ours(line));
        all.map(str::to_owned).collect()
    }

    fn is_untouched(&self) {
        assert!(self.root.exists(TRIGGER) && !self.root.exists(KEPT));
        assert!(!self.root.exists(RECORD));
    }

    fn is_recorded(&self, trigger: &str) {
        let recorded: Value = serde_json::from_str(&self.root.read(RECORD)).unwrap();
        let whole: Value = serde_json::from_str(&self.root.read(CONTENT)).unwrap();
        assert_eq!(recorded["spec"], whole["spec"]);
        assert!(!self.root.exists(TRIGGER));
        assert_eq!(self.root.read(KEPT), trigger);
    }
}

/// In the form of `rpm-ostree status --json`.
fn deployment_of(image: &str, checksum: char, staged: bool) -> Value {
    let checksum = checksum.to_string().repeat(64);
    json!({
        "checksum": checksum, "serial": 0, "id": format!("rhcos-{checksum}.0"), "osname": "rhcos",
        "container-image-reference": format!("ostree-unverified-registry:{image}"),
        "booted": !staged, "staged": staged, "pinned": false,
        "packages": [], "requested-packages": [], "requested-base-removals": [],
    })
}

/// Without the breaks of lines.
fn flat(run: &Run) -> String {
    let words: Vec<String> = run.out().split_whitespace().map(str::to_owned).collect();
    words.join(" ")
}

/// What stages 2.0 with its argument, in the daemon's order.
fn staging() -> [String; 3] {
    [
        "ostree admin pin 0".to_owned(),
        format!("rpm-ostree rebase ostree-unverified-image:containers-storage:{NEW}"),
        "rpm-ostree kargs --append=nosmt".to_owned(),
    ]
}

#[test]
fn a_pull_that_never_ends_stands_against_nothing_and_holds_the_boot_until_the_reboot() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let trigger = live.root.read(TRIGGER);
        let said = flat(&live.completes(&["--from-storage"]).ok());
        assert!(
            said.contains(&format!(
                "{PULL} is activating (start); its work is done here"
            )),
            "{said}"
        );
        assert!(said.contains("Next: systemctl reboot"), "{said}");
        assert_eq!(live.calls(), staging());
        live.is_recorded(&trigger);
        assert!(live.root.exists(AWAITED));

        // Once more, and now a reboot is wanted: that is all.
        live.completes(&["--from-storage", "--reboot"]).ok();
        assert_eq!(live.calls()[3..], ["systemctl --no-block reboot"]);
    });
}

#[test]
fn the_real_skopeo_brings_an_image_of_a_medium_into_the_storage() {
    if !Path::new("/usr/bin/skopeo").exists() {
        return skip(
            Lacks::Setup,
            "skopeo is not installed; no image is brought from a medium",
        );
    }
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let medium = live.root.path("medium");
        let image = format!("registry.example/os@{}", oci::image(&medium));
        live.is_given(&image, &["nosmt"]);
        let staged = live.root.read("staged.json").replace(NEW, &image);
        live.root.write("staged.json", &staged);
        copy_program(&live.root, "/usr/bin/skopeo");
        fs::create_dir_all(live.root.path("var/tmp")).unwrap();
        let storage = "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers\"\ngraphroot = \"/var/lib/containers\"\n";
        live.root.write("etc/containers/storage.conf", storage);

        live.completes(&["--os-from", "/medium"]).ok();
        let brought = live.root.read("var/lib/containers/vfs-images/images.json");
        assert!(brought.contains(&image), "{brought}");
        let layers = live.root.path("var/lib/containers/vfs/dir");
        let mut layers = fs::read_dir(layers).unwrap();
        let file = layers.next().unwrap().unwrap().path().join("os-version");
        assert_eq!(fs::metadata(file).unwrap().uid(), 1000);
        let [_, rebase, _] = staging();
        assert_eq!(live.calls()[1], rebase.replace(NEW, &image));
    });
}

#[test]
fn where_nothing_is_to_be_staged_the_boot_goes_on() {
    with_mounts(|| {
        let live = Live::new(OLD, &["audit=0"]);
        let trigger = live.root.read(TRIGGER);
        let said = live.completes(&["--reboot"]).ok().out();
        assert!(said.contains("what waited for them starts now"), "{said}");
        assert_eq!(live.calls(), STOP);
        live.is_recorded(&trigger);
        assert!(!live.root.exists(AWAITED));

        // Both have ended: there is nothing to be stopped, and nothing to be done.
        live.units("inactive", "inactive");
        live.completes(&["--reboot"]).ok();
        assert_eq!(live.calls(), STOP);
    });
}

#[test]
fn without_the_full_config_the_commands_that_take_one_are_named() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.root.remove(CONTENT);
        let run = live.completes(&[]).exits(1);
        for line in [
            "Next: mco-rescue apply FILE --takeover\n",
            "or: mco-rescue fetch --server HOST --pool POOL\n",
        ] {
            assert!(run.err().contains(line), "no {line:?} in {}", run.err());
        }
        assert!(flat_run(&run).contains(&format!("FILE is /{CONTENT} of another node")));
        live.is_untouched();

        let served = machine_config(
            "rendered-worker-2",
            json!({"storage": {"files": [file("/etc/kubelet.conf", 0o600, "kind: Kubelet\n")]}}),
        );
        live.root.write("served.json", &served.to_string());
        live.run(&["fetch", "/served.json"]).ok();
        let run = live.completes(&[]).exits(1);
        let line = "Next: mco-rescue apply cached:rendered-worker-2 --takeover\n";
        assert!(run.err().contains(line), "{}", run.err());
        live.is_untouched();
    });
}

#[test]
fn the_disk_of_another_node_is_refused_with_both_commands_that_help() {
    with_mounts(|| {
        let rescue = Live::new(OLD, &["audit=0"]);
        rescue.units("active", "activating");
        let disk = Live::new(OLD, &["audit=0"]);
        let at = rescue.root.path("disk");
        fs::create_dir(&at).unwrap();
        mount(&[
            "--rbind",
            disk.root.dir().to_str().unwrap(),
            at.to_str().unwrap(),
        ]);
        let run = rescue.completes(&["--root", "/disk"]).exits(1);
        let said = run.err();
        for words in [
            "only the booted node finishes its first boot",
            "Next: mco-rescue apply --root /disk\n",
            "then: on the node itself, once it has booted: mco-rescue firstboot --complete\n",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert!(disk.root.exists(TRIGGER) && !disk.root.exists(RECORD));
        assert_eq!(rescue.calls(), Vec::<String>::new());
        rescue.is_untouched();
    });
}

#[test]
fn a_service_that_tries_again_and_again_is_stopped_before_anything_is_staged() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.units("active", "activating");
        let run = live.completes(&["--from-storage"]).ok();
        assert!(
            run.err().contains(&format!("{SERVICE} is stopped")),
            "{}",
            run.err()
        );
        let stop = ["stop", "reset-failed"].map(|verb| format!("systemctl {verb} -- {SERVICE}"));
        assert_eq!(live.calls(), [&stop[..], &staging()].concat());
    });
}

#[test]
fn what_cannot_be_staged_leaves_the_trigger_and_the_record_alone() {
    let error =
        "error: Creating importer: reading manifest in x: unauthorized: authentication required\n";
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.root.write("fails-rebase", error);
        let run = live.completes(&["--from-storage"]).exits(1);
        assert!(run.err().contains("no file was changed"), "{}", run.err());
        assert_eq!(live.calls().last().unwrap(), "rpm-ostree cleanup -p");
        live.is_untouched();
        assert!(!live.root.exists(AWAITED));

        // The image is there, the arguments are not: half of it is no more than nothing.
        live.root.remove("fails-rebase");
        live.root.write("fails-kargs", error);
        live.completes(&["--from-storage"]).exits(1);
        assert_eq!(live.root.read("status.json"), live.root.read("idle.json"));
        live.is_untouched();
    });
}

#[test]
fn what_a_run_has_staged_goes_with_it_and_what_another_has_staged_stands_against_that() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let trigger = live.root.read(TRIGGER);
        live.completes(&["--from-storage"]).ok();
        live.units("inactive", "inactive");
        let staged = live.root.read("status.json");
        let another = staged.replace(NEW, "registry.example/other@sha256:cccc");
        live.root.write("status.json", &another);
        let refused = live.run(&["rollback", "--yes"]).exits(1);
        assert!(
            flat(&refused).contains("an OS deployment is staged"),
            "{}",
            refused.out()
        );
        assert!(live.root.exists(RECORD));

        live.root.write("status.json", &staged);
        live.run(&["rollback", "--yes"]).ok();
        assert_eq!(live.calls()[3..], ["rpm-ostree cleanup -p"]);
        assert_eq!(live.root.read("status.json"), live.root.read("idle.json"));
        live.is_untouched();
        assert_eq!(live.root.read(TRIGGER), trigger);
        assert!(!live.root.exists(AWAITED));
    });
}

/// With a client that dies, and what its transaction has come to when it was cancelled.
fn dies(outcome: &str) -> Live {
    let live = Live::new(NEW, &["nosmt"]);
    live.root.write("dies-rebase", "");
    live.root.write("cancelled.json", &live.root.read(outcome));
    live
}

#[test]
fn the_transaction_of_a_client_that_died_is_ended_before_anything_is_said() {
    with_mounts(|| {
        let live = dies("idle.json");
        let run = live.completes(&["--from-storage"]).exits(1);
        for words in [
            "ended by a signal",
            "nothing is staged, and no file was changed",
        ] {
            assert!(run.err().contains(words), "{}", run.err());
        }
        let [pin, rebase, _] = staging();
        let calls = live.calls();
        assert_eq!(calls[..3], [pin, rebase, "rpm-ostree cancel".to_owned()]);
        live.is_untouched();
    });
}

#[test]
fn what_a_client_that_died_has_staged_all_the_same_is_gone_on_from() {
    with_mounts(|| {
        let live = dies("staged.json");
        let trigger = live.root.read(TRIGGER);
        let run = live.completes(&["--from-storage"]).ok();
        assert!(run.err().contains("but it is staged"), "{}", run.err());
        let [pin, rebase, arguments] = staging();
        let wanted = [pin, rebase, "rpm-ostree cancel".to_owned(), arguments];
        assert_eq!(live.calls(), wanted);
        live.is_recorded(&trigger);
        assert!(live.root.exists(AWAITED));
    });
}

#[test]
fn a_run_that_is_killed_while_it_stages_is_finished_by_the_next_one() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let trigger = live.root.read(TRIGGER);
        live.root.write("kills-rebase", "");
        let killed = live.output(&["firstboot", "--complete", "--yes", "--from-storage"]);
        assert_eq!(killed.status.signal(), Some(9));
        live.root.remove("kills-rebase");
        live.is_untouched();
        let said = flat(&live.run(&["status"]).ok());
        let words =
            "rendered-worker-1, but the run was interrupted before its files were written; begun ";
        assert!(said.contains(words), "{said}");
        let next = ". Next: mco-rescue apply cached:rendered-worker-1";
        assert!(said.contains(next), "{said}");

        live.completes(&["--from-storage"]).ok();
        let [_, _, arguments] = staging();
        assert_eq!(live.calls().last(), Some(&arguments));
        assert!(!live.calls()[2..].iter().any(|call| call.contains("rebase")));
        live.is_recorded(&trigger);
        let said = flat(&live.run(&["status"]).ok());
        assert!(
            said.contains("rendered-worker-1, at the next boot; begun "),
            "{said}"
        );
        assert!(said.contains(". Next: systemctl reboot"), "{said}");
    });
}

#[test]
fn what_else_is_at_work_still_stands_against_it() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let busy = live.root.read("busy.json");
        live.root.write("status.json", &busy);
        let refused = live.completes(&["--from-storage"]).exits(1);
        assert!(
            refused.out().contains("a transaction is running"),
            "{}",
            refused.out()
        );
        assert_eq!(live.calls(), [""; 0]);
        live.is_untouched();
    });
}

/// The unit that completes, and where a mask of it is.
const UNIT: &str = "etc/systemd/system/mco-rescue-complete.service";

#[test]
fn nothing_is_staged_where_nothing_would_complete_it_unless_a_person_does() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.root.link(UNIT, "/dev/null");
        let run = live.completes(&["--from-storage"]).exits(1);
        for words in ["is masked", "systemctl unmask", "--complete-by-hand"] {
            assert!(flat(&run).contains(words), "{}", run.out());
        }
        assert_eq!(live.calls(), [""; 0]);
        live.is_untouched();

        let by_hand = ["--from-storage", "--complete-by-hand"];
        let said = flat(&live.completes(&by_hand).ok());
        assert!(said.contains("run `mco-rescue complete` by hand"), "{said}");
        assert!(!said.contains("mco-rescue-complete does"), "{said}");
        assert_eq!(live.calls(), staging());
    });
}

#[test]
fn a_program_that_cannot_be_installed_stands_against_staging_at_once() {
    for options in ["ro", "noexec"] {
        with_mounts(|| {
            let live = Live::new(NEW, &["nosmt"]);
            fs::create_dir_all(live.root.path("usr/local")).unwrap();
            let local = live.root.path("usr/local");
            mount(&[
                "-t",
                "tmpfs",
                "-o",
                options,
                "tmpfs",
                local.to_str().unwrap(),
            ]);
            let run = live.completes(&["--from-storage"]).exits(1);
            let words = if options == "ro" {
                "/usr/local/bin is read-only"
            } else {
                "(203/EXEC), as /usr/local/bin is mounted noexec"
            };
            assert!(flat(&run).contains(words), "{}", run.out());
            assert_eq!(live.calls(), [""; 0]);
            live.is_untouched();
        });
    }
}

#[test]
fn a_unit_that_systemd_cannot_run_stands_against_staging() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.root.write(
            "units/mco-rescue-recover.service",
            "LoadState=loaded\nResult=exit-code\nConditionResult=yes\nExecMainStatus=203\n",
        );
        let run = live.completes(&["--from-storage"]).exits(1);
        let said = run.err().split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "nothing would complete this run",
            "203/EXEC",
            "--complete-by-hand",
        ] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(live.calls(), [""; 0]);
        live.is_untouched();
        live.completes(&["--from-storage", "--complete-by-hand"])
            .ok();
        assert_eq!(live.calls(), staging());
    });
}

#[test]
fn a_place_of_the_program_that_cannot_be_looked_at_stands_against_staging() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        live.root.write("usr/local/bin", "no directory\n");
        let run = live.completes(&["--from-storage"]).exits(1);
        for words in [
            "cannot be inspected",
            "/usr/local/bin",
            "--complete-by-hand",
        ] {
            assert!(flat(&run).contains(words), "{}", run.out());
        }
        assert_eq!(live.calls(), [""; 0]);
        live.is_untouched();
        let by_hand = ["--from-storage", "--complete-by-hand"];
        let said = flat(&live.completes(&by_hand).ok());
        assert!(said.contains("run `mco-rescue complete` by hand"), "{said}");
        assert_eq!(live.calls(), staging());
    });
}

#[test]
fn an_image_whose_unit_is_not_enabled_completes_nothing() {
    with_mounts(|| {
        let live = Live::new(NEW, &["nosmt"]);
        let units = "usr/lib/systemd/system";
        for name in ["recover", "complete"] {
            let unit = format!("{units}/mco-rescue-{name}.service");
            live.root
                .write(&unit, "[Service]\nExecStart=/usr/bin/mco-rescue\n");
        }
        let recover = "sysinit.target.wants/mco-rescue-recover.service";
        let link = format!("{units}/{recover}");
        live.root.link(&link, "../mco-rescue-recover.service");
        let run = live.completes(&["--from-storage"]).exits(1);
        for words in [
            "mco-rescue-complete.service is not enabled",
            "mco-rescue install",
        ] {
            assert!(flat(&run).contains(words), "{}", run.out());
        }
        assert_eq!(live.calls(), [""; 0]);
        live.is_untouched();
        let complete = "multi-user.target.wants/mco-rescue-complete.service";
        let link = format!("{units}/{complete}");
        live.root.link(&link, "../mco-rescue-complete.service");
        let said = flat(&live.completes(&["--from-storage"]).ok());
        assert!(said.contains("mco-rescue-complete does"), "{said}");
        assert_eq!(live.calls(), staging());
    });
}
