//! FP-71: settings of modprobe keep a kernel module that the node needs from being loaded.

use super::worker::{Branch, KEYFILES, all_met, config, healthy, sick, well};
use super::{doctor, of, unseen};
use crate::support::{Lacks, TestRoot, file, skip};
use mco_rescue::node::kernel_modules::parse_settings;

const SITE: &str = "etc/modprobe.d/site.conf";

fn off(lines: &str) -> impl Fn(&TestRoot) {
    let lines = lines.to_owned();
    move |root| root.write(SITE, &lines)
}

const NO_OPEN_VSWITCH: Branch = Branch {
    id: "FP-71",
    severity: "critical",
    what: "the kernel module openvswitch is turned off",
    seen: &[
        "/etc/modprobe.d/site.conf:2",
        "install openvswitch /bin/false",
        "Open vSwitch needs it for the cluster network",
    ],
    next: &["sed -i 2d ROOT/etc/modprobe.d/site.conf"],
};

#[test]
fn modules_that_the_node_needs_are_found_and_others_are_not() {
    all_met(&[
        sick(off_openvswitch, NO_OPEN_VSWITCH),
        // A module that another one depends on.
        sick(
            |root| {
                root.write(
                    "usr/lib/modules/5.14/modules.dep",
                    "kernel/net/openvswitch/openvswitch.ko.xz: kernel/net/nf-x.ko.xz\nkernel/net/nf-x.ko.xz:\n",
                );
                off("install nf_x \\\n/bin/true\n")(root);
            },
            Branch {
                id: "FP-71",
                severity: "critical",
                what: "the kernel module nf_x is turned off",
                seen: &["install nf_x /bin/true"],
                next: &["sed -i 1,2d ROOT/etc/modprobe.d/site.conf"],
            },
        ),
        sick(
            off_overlay,
            Branch {
                id: "FP-71",
                severity: "warning",
                what: "the kernel module overlay is turned off",
                seen: &["only if a program asks for it by name, and CRI-O needs it"],
                next: &["sed -i 1d ROOT/etc/modprobe.d/site.conf"],
            },
        ),
        // A file of the OS cannot be changed; it is hidden.
        sick(
            |root| root.write("usr/lib/modprobe.d/os.conf", "install veth /bin/true\n"),
            Branch {
                id: "FP-71",
                severity: "critical",
                what: "the kernel module veth is turned off",
                seen: &["/usr/lib/modprobe.d/os.conf:1"],
                next: &["ln -s /dev/null ROOT/etc/modprobe.d/os.conf"],
            },
        ),
        sick(
            |root| {
                root.write(
                    &format!("{KEYFILES}/bond0.nmconnection"),
                    "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n",
                );
                root.chmod(&format!("{KEYFILES}/bond0.nmconnection"), 0o600);
                off("install bond* /bin/false\n")(root);
            },
            Branch {
                id: "FP-71",
                severity: "critical",
                what: "the kernel module bonding is turned off",
                seen: &["NetworkManager needs it for a bond"],
                next: &["sed -i 1d ROOT/etc/modprobe.d/site.conf"],
            },
        ),
        well("FP-71", |root| {
            off(
                "install usb-storage /bin/true\nblacklist openvswitch\ninstall bonding /bin/false\n",
            )(root);
        }),
        well("FP-71", |root| {
            root.write(
                "usr/lib/modules/6.12/modules.builtin",
                "kernel/fs/overlayfs/overlay.ko\n",
            );
            off_overlay(root);
        }),
        // The file of the OS is hidden already, and another ending is not read.
        well("FP-71", |root| {
            root.write("usr/lib/modprobe.d/os.conf", "install veth /bin/true\n");
            root.link("etc/modprobe.d/os.conf", "/dev/null");
            root.write("etc/modprobe.d/old.bak", "install veth /bin/true\n");
        }),
    ]);
}

fn off_openvswitch(root: &TestRoot) {
    off("# site\ninstall openvswitch /bin/false\n")(root);
}

fn off_overlay(root: &TestRoot) {
    off("blacklist overlay\n")(root);
}

/// The words of `modprobe --showconfig` on the same settings.
#[test]
fn modprobe_reads_the_same_settings() {
    let directory = tempfile::tempdir().unwrap();
    let text = "install a /bin/false\n  blacklist b-c\n#install d /bin/false\ninstall e \\\n/bin/true\nblacklist\n";
    std::fs::write(directory.path().join("a.conf"), text).unwrap();
    std::fs::write(directory.path().join("b.txt"), "blacklist z\n").unwrap();
    let output = std::process::Command::new("/sbin/modprobe")
        .args(["--showconfig", "-C"])
        .arg(directory.path())
        .output();
    let Ok(output) = output else {
        skip(Lacks::Setup, "no modprobe");
        return;
    };
    let said = String::from_utf8(output.stdout).unwrap();
    let mut theirs: Vec<String> = said
        .lines()
        .filter(|line| line.starts_with("install ") || line.starts_with("blacklist "))
        .filter_map(|line| Some(line.split_whitespace().nth(1)?.replace('-', "_")))
        .collect();
    let own = parse_settings("/etc/modprobe.d/a.conf", text);
    let mut own: Vec<String> = own.into_iter().map(|one| one.module).collect();
    theirs.sort();
    own.sort();
    assert_eq!(own, theirs, "{said}");
}

#[test]
fn an_argument_of_the_next_boot_turns_a_module_off() {
    let root = healthy();
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "version 1\noptions rw module_blacklist=floppy,openvswitch\n",
    );
    let report = doctor(&root);
    let [found] = of(&report, "FP-71").try_into().expect("one finding");
    assert_eq!(found["severity"], "critical");
    let next = found["next"][0].as_str().unwrap();
    assert!(
        next.ends_with("rpm-ostree kargs --delete-if-present=module_blacklist=floppy,openvswitch"),
        "{next}"
    );
}

#[test]
fn what_the_config_turns_off_is_left_to_the_config() {
    let root = healthy();
    let line = "install openvswitch /bin/false\n";
    root.write(SITE, line);
    let mut config = config();
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    files
        .unwrap()
        .push(file("/etc/modprobe.d/site.conf", 0o644, line));
    config["spec"]["kernelArguments"] = serde_json::json!(["quiet module_blacklist=veth"]);
    root.write(crate::support::RECORD, &config.to_string());
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "version 1\noptions rw module_blacklist=veth\n",
    );
    let report = doctor(&root);
    let all = of(&report, "FP-71");
    assert_eq!(all.len(), 2, "{report:#}");
    for (found, source) in all
        .iter()
        .zip(["/etc/modprobe.d/site.conf", "module_blacklist=veth"])
    {
        assert!(found["fix"].is_null(), "{found:#}");
        let text = found.to_string();
        assert!(text.contains(&format!("brings {source}")), "{text}");
        assert!(
            text.contains(&format!("the MachineConfig with {source} has to change")),
            "{text}"
        );
    }
    let before = root.everything();
    root.run(&["doctor", "--fix", "FP-71", "--yes"]).exits(3);
    assert_eq!(root.everything(), before);
}

#[test]
fn a_module_that_an_argument_turns_off_too_has_no_cure_by_files() {
    let root = healthy();
    off("install openvswitch /bin/false\n")(&root);
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "version 1\noptions rw module_blacklist=openvswitch\n",
    );
    let report = doctor(&root);
    assert!(of(&report, "FP-71")[0]["fix"].is_null(), "{report:#}");
}

#[test]
fn settings_that_cannot_be_read_are_not_taken_for_none() {
    let root = healthy();
    std::fs::create_dir_all(root.path("etc/modprobe.d/site.conf")).unwrap();
    let report = doctor(&root);
    assert!(
        unseen(&report, "FP-71").contains("settings of modprobe"),
        "{report:#}"
    );
}

#[test]
fn a_unit_of_the_kubelet_that_cannot_be_read_is_not_taken_for_a_missing_one() {
    let root = healthy();
    let unit = "etc/systemd/system/kubelet.service";
    root.remove(unit);
    std::fs::create_dir(root.path(unit)).unwrap();
    let report = doctor(&root);
    for id in ["FP-49", "FP-71"] {
        assert!(unseen(&report, id).contains(unit), "{id}: {report:#}");
    }
}

#[test]
fn a_config_that_turns_a_module_off_is_announced_by_plan() {
    let root = healthy();
    let mut config = config();
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.push(file(
        "/etc/modprobe.d/cve.conf",
        0o644,
        "install openvswitch /bin/false\n",
    ));
    files.push(file(
        "/etc/modprobe.d/usb.conf",
        0o644,
        "install usb-storage /bin/false\n",
    ));
    config["spec"]["kernelArguments"] = serde_json::json!(["module_blacklist=veth"]);
    let config = root.config(&config);
    let plan = root.run(&["plan", "--output", "json", config.path()]);
    let plan = plan.json()["notices"].to_string();
    for part in [
        "/etc/modprobe.d/cve.conf:1",
        "turns off the kernel module openvswitch",
        "turns off the kernel module veth",
    ] {
        assert!(plan.contains(part), "no {part}: {plan}");
    }
    assert!(!plan.contains("usb"), "{plan}");
}
