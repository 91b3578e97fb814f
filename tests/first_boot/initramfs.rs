//! What `mco-rescue firstboot` decides and does on a root that is about to be entered. The initramfs itself, its
//! units and a real Ignition are in vm-tests; here the root is a directory, and `/run` and the kernel command line
//! are those of a mount namespace.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::mounts::{Disk, mount, unmount, with_mounts};
use crate::support::{Lacks, PROGRAM, RECORD, Run, TestRoot, file, machine_config, skip};
use serde_json::{Value, json};

const ANNOTATIONS: &str = "etc/machine-config-daemon/node-annotations.json";
const ENCAPSULATED: &str = "etc/ignition-machine-config-encapsulated.json";
const CONTENT: &str = "etc/mcs-machine-config-content.json";
const OURS: &str = "usr/lib/mco-rescue/configs";

/// A root that systemd has not booted yet.
fn fresh() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/machine-id", "");
    root
}

fn config(name: &str) -> Value {
    machine_config(
        name,
        json!({"storage": {"files": [file("/etc/kubelet.conf", 0o600, "kind: Kubelet\n")]}}),
    )
}

/// A `/run` and a kernel command line that nobody else sees.
fn boot_of(kernel_arguments: &str) -> tempfile::NamedTempFile {
    mount(&["-t", "tmpfs", "run", "/run"]);
    let line = tempfile::NamedTempFile::new().unwrap();
    fs::write(
        line.path(),
        format!("BOOT_IMAGE=/vmlinuz {kernel_arguments}\n"),
    )
    .unwrap();
    mount(&["--bind", line.path().to_str().unwrap(), "/proc/cmdline"]);
    line
}

/// Runs what the unit runs, and gives what it keeps for the real root.
fn firstboot(root: &TestRoot) -> (Run, Value) {
    let run = root.run(&["firstboot"]);
    let kept = fs::read("/run/mco-rescue/firstboot.json").unwrap();
    (run, serde_json::from_slice(&kept).unwrap())
}

fn bring(root: &TestRoot, name: &str) {
    root.write(&format!("{OURS}/{name}.json"), &config(name).to_string());
}

#[test]
fn a_boot_without_work_is_left_alone() {
    let booted = TestRoot::new();
    let recorded = fresh();
    recorded.apply(&config("rendered-worker-1"));
    let provisioned = fresh();
    provisioned.write(
        "etc/.ignition-result.json",
        r#"{"userConfigProvided": true}"#,
    );
    let without = fresh();
    for (root, arguments, why) in [
        (&booted, "root=UUID=x rw", "has booted before"),
        (&recorded, "", "recorded"),
        (&provisioned, "", "Ignition wrote"),
        (&fresh(), "mco_rescue=off", "off"),
        (&without, "", "none is available"),
    ] {
        if root.dir() != without.dir() {
            bring(root, "rendered-worker-2");
        }
        let before = root.everything();
        with_mounts(|| {
            let _line = boot_of(arguments);
            let (run, kept) = firstboot(root);
            run.ok();
            assert_eq!(kept["outcome"], "nothing", "{kept}");
            assert!(kept["why"].as_str().unwrap().contains(why), "{kept}");
        });
        assert!(root.everything() == before, "{why}");
    }
}

#[test]
fn a_first_boot_without_a_config_gets_the_one_of_the_image() {
    let root = fresh();
    // Ignition without a config of the user leaves the same file.
    root.write(
        "etc/.ignition-result.json",
        r#"{"userConfigProvided": false}"#,
    );
    bring(&root, "rendered-worker-1");
    with_mounts(|| {
        let _line = boot_of("rw");
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["outcome"], "applied", "{kept}");
        assert_eq!(kept["config"], "rendered-worker-1");
        assert_eq!(root.read("etc/kubelet.conf"), "kind: Kubelet\n");
        let annotations: Value = serde_json::from_str(&root.read(ANNOTATIONS)).unwrap();
        let key =
            |key: &str| annotations[format!("machineconfiguration.openshift.io/{key}")].clone();
        for name in ["currentConfig", "desiredConfig", "firstPivotConfig"] {
            assert_eq!(key(name), "rendered-worker-1");
        }
        assert_eq!(key("state"), "Done");
        let served: Value = serde_json::from_str(&root.read(CONTENT)).unwrap();
        assert_eq!(served, config("rendered-worker-1"));
        // Which OS this is cannot be told here, so the first-boot service has to find it out.
        let encapsulated: Value = serde_json::from_str(&root.read(ENCAPSULATED)).unwrap();
        assert_eq!(
            encapsulated["spec"]["config"],
            json!({"ignition": {"version": "3.5.0"}})
        );
        assert_eq!(
            encapsulated["spec"]["osImageURL"],
            "registry.example/os@sha256:0"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&root.read(RECORD)).unwrap(),
            served
        );
        root.run(&["verify"]).ok();
        let after = root.everything();
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["outcome"], "nothing", "{kept}");
        assert!(root.everything() == after, "a second run changed something");
    });
}

#[test]
fn two_configs_at_hand_are_named_and_nothing_is_done() {
    let root = fresh();
    bring(&root, "rendered-worker-1");
    bring(&root, "rendered-worker-2");
    let before = root.everything();
    with_mounts(|| {
        let _line = boot_of("");
        let (run, kept) = firstboot(&root);
        let run = run.exits(1);
        assert!(
            run.err().contains("rendered-worker-1, rendered-worker-2"),
            "{}",
            run.err()
        );
        assert!(run.err().contains("mco_rescue.config="), "{}", run.err());
        assert_eq!(
            (&kept["outcome"], &kept["phase"]),
            (&json!("failed"), &json!("choosing a config"))
        );
    });
    assert!(root.everything() == before);
    with_mounts(|| {
        let _line = boot_of(&format!("mco_rescue.config=/{OURS}/rendered-worker-2.json"));
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["config"], "rendered-worker-2");
    });
}

#[test]
fn a_damaged_config_and_a_missing_one_stop_nothing_but_us() {
    let root = fresh();
    root.write(
        &format!("{OURS}/broken.json"),
        "{\"kind\": \"MachineConfig\", \"spec\": 7}",
    );
    let before = root.everything();
    for (arguments, code, outcome) in [
        ("", 1, "failed"),
        (
            "mco_rescue=apply mco_rescue.config=/no/such.json",
            1,
            "failed",
        ),
        (
            "mco_rescue=apply mco_rescue.config=cached:rendered-x",
            1,
            "failed",
        ),
        (
            "mco_rescue=apply mco_rescue.server=https://127.0.0.1:9/config/worker mco_rescue.timeout=1",
            1,
            "failed",
        ),
    ] {
        with_mounts(|| {
            let _line = boot_of(arguments);
            let (run, kept) = firstboot(&root);
            run.exits(code);
            assert_eq!(kept["outcome"], outcome, "{arguments}: {kept}");
        });
        let mut after = root.everything();
        after.retain(|path, _| !path.starts_with("var/lib/mco-rescue"));
        assert!(after == before, "{arguments}");
    }
}

#[test]
fn asked_for_on_the_command_line_a_booted_node_is_repaired_too() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-1"));
    root.write("etc/kubelet.conf", "edited by hand\n");
    with_mounts(|| {
        let _line = boot_of("mco_rescue=apply");
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["config"], "rendered-worker-1");
    });
    assert_eq!(root.read("etc/kubelet.conf"), "kind: Kubelet\n");
    // No first boot, so none of its files.
    assert!(!root.exists(ANNOTATIONS) && !root.exists(ENCAPSULATED));
}

#[test]
fn no_config_is_applied_while_a_trial_is_not_confirmed() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-1"));
    root.write("etc/kubelet.conf", "edited by hand\n");
    let trial = json!({"version": 1, "id": "1-1", "what": "rendered-worker-1", "began": 1, "window": 60, "boot_limit": 60,
        "phase": "applying", "boot": {"boot": "b"}, "head": "", "reboots": false, "login": {"boot": "b"}});
    root.write("var/lib/mco-rescue/trial.json", &trial.to_string());
    let before = root.everything();
    with_mounts(|| {
        let _line = boot_of("mco_rescue=apply");
        let (run, kept) = firstboot(&root);
        let run = run.exits(1);
        assert!(run.err().contains("was not confirmed"), "{}", run.err());
        assert_eq!(kept["outcome"], "failed");
        assert_eq!(root.everything(), before);
    });
}

#[test]
fn an_interrupted_run_is_finished_before_the_root_is_entered() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(Lacks::Setup, "strace is not installed");
    }
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-1"));
    let mut new = config("rendered-worker-2");
    new["spec"]["config"]["storage"]["files"] = json!([
        file("/etc/kubelet.conf", 0o600, "kind: Next\n"),
        file("/etc/one.conf", 0o644, "1\n"),
        file("/etc/two.conf", 0o644, "2\n"),
    ]);
    let wanted = root.config(&new);
    let mut cut = Command::new("strace");
    cut.args([
        "-qq",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=renameat,renameat2",
    ]);
    cut.args([
        "-e",
        "inject=renameat,renameat2:signal=SIGKILL:when=4",
        PROGRAM,
        "--root",
    ]);
    cut.arg(root.dir()).args(["apply", "--yes", wanted.path()]);
    assert!(
        !cut.output().unwrap().status.success(),
        "it was not cut off"
    );
    assert!(
        root.exists("var/lib/mco-rescue/journal.json"),
        "cut off too early"
    );
    with_mounts(|| {
        let _line = boot_of("rw");
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["outcome"], "recovered", "{kept}");
    });
    assert_eq!(root.read("etc/kubelet.conf"), "kind: Next\n");
    root.run(&["verify"]).ok();
}

/// An OSTree root as `ostree-prepare-root` leaves it for an initramfs: the deployment, with the physical root at
/// its `sysroot` and an empty `var` of its own.
fn ostree(origin_image: &str) -> TestRoot {
    let root = fresh();
    let checksum = "a1".repeat(32);
    let deploy = "sysroot/ostree/deploy/rhcos";
    fs::rename(root.path("var"), root.path("var.real")).unwrap();
    fs::create_dir_all(root.path(&format!("{deploy}/deploy/{checksum}.0"))).unwrap();
    fs::rename(root.path("var.real"), root.path(&format!("{deploy}/var"))).unwrap();
    fs::create_dir(root.path("var")).unwrap();
    root.write(
        &format!("{deploy}/deploy/{checksum}.0.origin"),
        &format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{origin_image}\n"),
    );
    root.link(
        "sysroot/ostree/boot.1/rhcos/b00c/0",
        &format!("../../../deploy/rhcos/deploy/{checksum}.0"),
    );
    root
}

const LINK: &str = "ostree=/ostree/boot.1/rhcos/b00c/0";

#[test]
fn the_real_var_of_an_ostree_root_is_found_and_let_go_of() {
    let root = ostree("registry.example/other@sha256:1");
    bring(&root, "rendered-worker-1");
    with_mounts(|| {
        let _line = boot_of(&format!("{LINK} rw"));
        let (run, kept) = firstboot(&root);
        run.ok();
        assert_eq!(kept["outcome"], "applied", "{kept}");
        let state = "sysroot/ostree/deploy/rhcos/var/lib/mco-rescue/status.json";
        assert!(
            root.exists(state),
            "the state is not in the stateroot's var"
        );
        assert_eq!(
            fs::read_dir(root.path("var")).unwrap().count(),
            0,
            "var is still bound, or was written to"
        );
        assert!(
            root.exists(ENCAPSULATED),
            "another image runs: its change is left to the first-boot service"
        );
    });
}

#[test]
fn the_first_boot_service_is_not_called_where_it_has_nothing_to_do() {
    for (arguments, wanted, left_out) in [
        ("rw nosmt", json!(["nosmt"]), true),
        ("rw", json!(["nosmt"]), false),
    ] {
        let root = ostree("registry.example/os@sha256:0");
        let mut config = config("rendered-worker-1");
        config["spec"]["kernelArguments"] = wanted;
        root.write(&format!("{OURS}/a.json"), &config.to_string());
        with_mounts(|| {
            let _line = boot_of(&format!("{LINK} {arguments}"));
            initramfs();
            let (run, _) = firstboot(&root);
            run.ok();
            assert_eq!(root.exists(ENCAPSULATED), !left_out, "{arguments}");
            assert!(root.exists(ANNOTATIONS));
        });
    }
}

#[test]
fn a_config_of_fips_mode_is_refused_before_the_root_is_entered_by_a_kernel_without_it() {
    let enabled = fs::read_to_string("/proc/sys/crypto/fips_enabled").unwrap_or_default();
    if enabled.trim() == "1" {
        return skip(Lacks::Machine, "this kernel is in FIPS mode");
    }
    let root = ostree("registry.example/os@sha256:0");
    let mut config = config("rendered-worker-1");
    config["spec"]["fips"] = json!(true);
    root.write(&format!("{OURS}/a.json"), &config.to_string());
    with_mounts(|| {
        let _line = boot_of(LINK);
        initramfs();
        let (_, kept) = firstboot(&root);
        let said = kept["cause"].as_str().unwrap_or_default();
        for words in ["spec.fips", "Boot with fips=1 on the kernel command line"] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert_eq!(kept["outcome"], "failed", "{kept}");
        assert!(!root.exists("etc/kubelet.conf"));
    });
}

/// The mark of an initramfs, in an `/etc` that nobody else sees.
fn initramfs() {
    mount(&["-t", "tmpfs", "etc", "/etc"]);
    fs::write("/etc/initrd-release", "ID=test\n").unwrap();
}

#[test]
fn a_root_that_is_mounted_read_only_is_so_again_afterwards() {
    with_mounts(|| {
        let Some(disk) = Disk::new(64, &["mkfs.ext4", "-q"]) else {
            return;
        };
        let root = fresh();
        let at = tempfile::tempdir().unwrap();
        disk.mount(at.path(), "");
        bring(&root, "rendered-worker-1");
        let copied = Command::new("cp")
            .arg("-a")
            .arg(format!("{}/.", root.dir().display()))
            .arg(at.path())
            .status();
        assert!(copied.unwrap().success());
        mount(&["-o", "remount,ro", at.path().to_str().unwrap()]);
        let _line = boot_of("ro");
        let run = Command::new(PROGRAM)
            .arg("--root")
            .arg(at.path())
            .arg("firstboot")
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        assert_eq!(
            fs::read_to_string(at.path().join("etc/kubelet.conf")).unwrap(),
            "kind: Kubelet\n"
        );
        let refused = fs::write(at.path().join("etc/x"), "").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
        unmount(at.path());
    });
}

#[test]
fn the_shell_begins_with_a_closed_root_and_ends_with_an_open_one() {
    with_mounts(|| {
        let Some(disk) = Disk::new(64, &["mkfs.ext4", "-q"]) else {
            return;
        };
        let at = tempfile::tempdir().unwrap();
        disk.mount(at.path(), "");
        let _line = boot_of("rw mco_rescue=shell");
        let run = |more: &[&str]| {
            let root = ["--root", at.path().to_str().unwrap(), "firstboot"];
            let output = Command::new(PROGRAM)
                .args(root)
                .args(more)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        };
        let banner = run(&[]);
        assert!(banner.contains("mco-rescue verify --root"), "{banner}");
        assert!(
            fs::write(at.path().join("x"), "").is_err(),
            "the root is open"
        );
        run(&["--after-shell"]);
        fs::write(at.path().join("x"), "").unwrap();
        unmount(at.path());
    });
}

#[test]
fn a_full_disk_stops_us_and_not_the_boot() {
    with_mounts(|| {
        let Some(disk) = Disk::new(16, &["mkfs.ext4", "-q"]) else {
            return;
        };
        let root = fresh();
        let mut large = config("rendered-worker-1");
        let text = "x".repeat(1 << 20);
        large["spec"]["config"]["storage"]["files"] = json!([file("/etc/large", 0o644, &text)]);
        root.write(&format!("{OURS}/a.json"), &large.to_string());
        let at = tempfile::tempdir().unwrap();
        disk.mount(at.path(), "");
        let from = format!("{}/.", root.dir().display());
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(from).arg(at.path());
        assert!(copy.status().unwrap().success());
        fill(&at.path().join("filler"));
        let _line = boot_of("rw");
        let root = ["--root", at.path().to_str().unwrap(), "firstboot"];
        let run = Command::new(PROGRAM).args(root).output().unwrap();
        assert_eq!(run.status.code(), Some(1));
        let kept: Value =
            serde_json::from_slice(&fs::read("/run/mco-rescue/firstboot.json").unwrap()).unwrap();
        assert_eq!(kept["outcome"], "failed", "{kept}");
        assert!(!at.path().join("etc/large").exists());
        assert!(!at.path().join(RECORD).exists());
        unmount(at.path());
    });
}

/// Takes all the room there is.
fn fill(path: &std::path::Path) {
    let mut file = fs::File::create(path).unwrap();
    let block = vec![b'x'; 1 << 16];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
}

#[test]
fn no_link_of_the_root_leads_to_a_config_of_the_initramfs() {
    with_mounts(|| {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("rendered-worker-a.json");
        fs::write(&path, config("rendered-worker-a").to_string()).unwrap();
        let link = outside.path().to_str().unwrap();
        // The directory of the configs, one of them, and one that the kernel command line names.
        for (place, target) in [
            (OURS.to_owned(), link.to_owned()),
            (format!("{OURS}/a.json"), path.display().to_string()),
            ("var/named.json".to_owned(), path.display().to_string()),
        ] {
            let named = place.starts_with("var");
            let _boot = boot_of(if named {
                "mco_rescue.config=/var/named.json"
            } else {
                ""
            });
            let root = fresh();
            root.link(&place, &target);
            let (run, kept) = firstboot(&root);
            assert!(!root.exists("etc/kubelet.conf"), "{place}: {kept}");
            assert_eq!(run.code(), i32::from(named), "{place}: {}", run.err());
            unmount(Path::new("/proc/cmdline"));
            unmount(Path::new("/run"));
        }
    });
}
