//! Faults in the files of the node, which `doctor` names on the running node and `plan` before a run: the network, pulls,
//! services, SELinux, units, and the kernel of the config.

use std::fs;

use serde_json::{Value, json};

use super::Lab;
use super::disks::{encrypted, tang, with_map};
use crate::support::{
    Lacks, RECORD, TestRoot, file, flat_run, is_root, kubelet_unit, machine_config, skip,
};

const KEYFILES: &str = "etc/NetworkManager/system-connections";
const SETTINGS: &str = "etc/NetworkManager/conf.d";
const STATES: &str = "etc/nmstate/openshift";
const UNITS: &str = "etc/systemd/system";
const OF_OS: &str = "usr/lib/systemd/system";
const POLICY: &str = "selinux/targeted/policy/policy.33";
const MODULES: &str = "selinux/targeted/active/modules";
const ENFORCING: &str = "SELINUX=enforcing\nSELINUXTYPE=targeted\n";

/// What is done to a healthy node, what is found then, and words of it.
struct Row {
    done: fn(&Lab),
    found: &'static [&'static str],
    words: &'static [&'static str],
}

const fn well(done: fn(&Lab)) -> Row {
    sick(done, &[], &[])
}

const fn sick(
    done: fn(&Lab),
    found: &'static [&'static str],
    words: &'static [&'static str],
) -> Row {
    Row { done, found, words }
}

#[track_caller]
fn all_met(rows: &[Row]) {
    for (number, row) in rows.iter().enumerate() {
        let lab = Lab::healthy();
        (row.done)(&lab);
        let findings = lab.findings();
        let short: Vec<String> = findings
            .iter()
            .map(|one| format!("{} {} {}", one.check, one.severity, one.subject))
            .collect();
        assert_eq!(short, row.found, "row {number}: {findings:#?}");
        let text: String = findings.iter().map(|one| one.text.as_str()).collect();
        for words in row.words {
            assert!(text.contains(words), "row {number}: {words}: {text}");
        }
    }
}

/// A directory where a file belongs, which cannot be read as one.
fn directory(root: &TestRoot, path: &str) {
    let _ = fs::remove_file(root.path(path));
    fs::create_dir_all(root.path(path)).unwrap();
}

/// A link to itself in the place of a directory.
fn endless(root: &TestRoot, path: &str) {
    let _ = fs::remove_dir_all(root.path(path));
    root.link(path, path.rsplit('/').next().unwrap());
}

fn put(root: &TestRoot, path: &str, text: &str) {
    root.write(path, text);
    root.chmod(path, 0o600);
}

fn connection(lab: &Lab, name: &str) {
    let text = "[connection]\nid=a\ntype=dummy\ninterface-name=dummy0\n[ipv4]\nmethod=auto\n";
    put(&lab.node, &format!("{KEYFILES}/{name}"), text);
}

fn state(lab: &Lab, name: &str) {
    lab.node
        .write("usr/local/bin/nmstate-configuration.sh", "#!/bin/bash\n");
    lab.node.write("etc/hostname", "worker-0.example.com\n");
    lab.node
        .write(&format!("{STATES}/{name}"), "interfaces: []\n");
}

fn ovn(lab: &Lab) {
    let path = "etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf";
    lab.node.write(path, "{}\n");
}

#[test]
fn network_files_that_are_not_in_force_are_named() {
    all_met(&[
        well(|lab| state(lab, "cluster.yml")),
        well(|lab| connection(lab, "a.nmconnection")),
        // A person may have meant it.
        well(|lab| connection(lab, "a.nmconnection.disabled")),
        sick(
            |lab| state(lab, "cluster.yaml"),
            &["network-files warning /etc/nmstate/openshift/cluster.yaml"],
            &["a file of nmstate is not read", "never read"],
        ),
        sick(
            |lab| {
                connection(lab, "a.nmconnection");
                put(
                    &lab.node,
                    &format!("{SETTINGS}/a.conf"),
                    "[keyfile]\npath=/etc/other\n",
                );
            },
            &["network-files inhibitor /etc/NetworkManager/system-connections/a.nmconnection"],
            &["NetworkManager reads /etc/other instead"],
        ),
        sick(
            |lab| put(&lab.node, &format!("{SETTINGS}/a.conf"), "[main\n"),
            &["network-files inhibitor /etc/NetworkManager/conf.d/a.conf"],
            &["NetworkManager does not start with its configuration"],
        ),
        sick(
            |lab| endless(&lab.node, SETTINGS),
            &[
                "interface-names unknown network configuration",
                "legacy-connections unknown old connections",
                "network-files unknown network configuration",
                "service-files unknown configuration of services",
            ],
            &["not all of it can be read"],
        ),
    ]);
}

#[test]
fn a_kernel_without_ipv6_does_not_suit_ovn_kubernetes() {
    const DISABLED: &str = "rw root=UUID=11111111-0000-4000-8000-000000000001 \
         boot=UUID=22222222-0000-4000-8000-000000000002 ipv6.disable=1";
    all_met(&[
        well(ovn),
        well(|lab| lab.write_entry(DISABLED)),
        sick(
            |lab| {
                ovn(lab);
                lab.write_entry(DISABLED);
            },
            &["network-files inhibitor ipv6.disable=1"],
            &[
                "CrashLoopBackOff",
                "rpm-ostree kargs --delete-if-present=ipv6.disable=1",
            ],
        ),
    ]);
    let lab = Lab::healthy();
    ovn(&lab);
    fs::remove_dir_all(lab.node.path("boot/loader.1")).unwrap();
    lab.node.remove("proc/cmdline");
    let unknown = "network-files unknown kernel arguments".to_owned();
    assert!(lab.short().contains(&unknown), "{:?}", lab.short());
}

#[test]
fn files_for_pulls_that_count_for_nothing_or_stop_pulls_are_named() {
    all_met(&[
        well(|lab| {
            for name in ["client.cert", "client.key"] {
                lab.node.write(
                    &format!("etc/containers/certs.d/mirror.example:5000/{name}"),
                    "-----BEGIN CERTIFICATE-----\n",
                );
            }
        }),
        sick(
            |lab| {
                lab.node
                    .write("etc/containers/registries.d/a.yaml", "docker: [\n")
            },
            &["pull-files warning /etc/containers/registries.d/a.yaml"],
            &["no image can be pulled"],
        ),
        sick(
            |lab| {
                lab.node.write(
                    "etc/containers/certs.d/mirror.example:5000/client.cert",
                    "-----BEGIN CERTIFICATE-----\n",
                );
            },
            &["pull-files warning /etc/containers/certs.d/mirror.example:5000/client.cert"],
            &["client.key is missing beside it"],
        ),
        sick(
            |lab| lab.node.write("root/.config/containers/policy.json", "{}"),
            &["pull-files warning /root/.config/containers/policy.json"],
            &["root has files for pulls of its own"],
        ),
        sick(
            |lab| endless(&lab.node, "etc/containers/registries.d"),
            &["pull-files unknown files for pulls"],
            &["registries.d"],
        ),
    ]);
}

#[test]
fn files_that_a_service_does_not_take_are_named() {
    all_met(&[
        well(|lab| {
            lab.node.write(
                "etc/containers/storage.conf",
                "[storage]\ndriver = \"overlay\"\n",
            );
        }),
        sick(
            |lab| {
                lab.node.write(
                    "etc/containers/storage.conf",
                    "[storage]\ndriver = \"zip\"\n",
                );
            },
            &["service-files inhibitor /etc/containers/storage.conf"],
            &["there is no driver zip"],
        ),
        sick(
            |lab| {
                let path = format!("{KEYFILES}/a.nmconnection");
                lab.node.write(&path, "[connection]\nid=a\n");
                lab.node.chmod(&path, 0o644);
            },
            &["service-files warning /etc/NetworkManager/system-connections/a.nmconnection"],
            &["mode 0644", "chmod 0600"],
        ),
        sick(
            |lab| {
                lab.node
                    .write("etc/kubernetes/kubelet.conf", "kind: Other\n")
            },
            &["service-files inhibitor /etc/kubernetes/kubelet.conf"],
            &["the kubelet does not start with its configuration"],
        ),
        sick(
            |lab| directory(&lab.node, "etc/containers/storage.conf"),
            &["service-files unknown configuration of services"],
            &["/etc/containers/storage.conf"],
        ),
    ]);
}

/// The policy of the OS, and its modules.
fn policy(lab: &Lab) {
    for tree in ["etc", "usr/etc"] {
        let put = |path: &str, text: &str| lab.node.write(&format!("{tree}/{path}"), text);
        put("selinux/config", ENFORCING);
        put(POLICY, "the policy of this OS");
        for file in ["cil", "hll", "lang_ext"] {
            put(&format!("{MODULES}/100/base/{file}"), file);
        }
    }
}

#[test]
fn a_policy_of_selinux_that_does_not_suit_the_image_is_named() {
    all_met(&[
        well(policy),
        sick(
            |lab| {
                policy(lab);
                lab.node.write(&format!("etc/{POLICY}"), "an older policy");
            },
            &["selinux warning /etc/selinux/targeted/policy/policy.33"],
            &[
                "differs from /usr/etc/selinux/targeted/policy/policy.33",
                "cp -aT /usr/etc/selinux /etc/selinux",
            ],
        ),
        sick(
            |lab| {
                policy(lab);
                lab.node.write(&format!("etc/{MODULES}/400/own/cil"), "x");
            },
            &["selinux inhibitor /etc/selinux/targeted/active/modules/400/own"],
            &["lang_ext is missing", "Finalizing SELinux policy"],
        ),
        sick(
            |lab| {
                policy(lab);
                lab.node.write(
                    "etc/selinux/config",
                    "SELINUX=enforcing\nSELINUXTYPE=target\n",
                );
            },
            &["selinux inhibitor /etc/selinux/config"],
            &["Failed to load SELinux policy."],
        ),
        sick(
            |lab| {
                policy(lab);
                lab.node.write(".autorelabel", "");
            },
            &["selinux warning /.autorelabel"],
            &["OSTree cannot carry out"],
        ),
        sick(
            |lab| directory(&lab.node, "etc/selinux/config"),
            &["selinux unknown SELinux"],
            &["/etc/selinux/config"],
        ),
    ]);
}

#[test]
fn units_that_the_node_needs_are_neither_masked_nor_missing() {
    all_met(&[
        well(|lab| lab.node.link(&format!("{UNITS}/cups.service"), "/dev/null")),
        // It is gone after the boot.
        well(|lab| {
            lab.node
                .link("run/systemd/system/crio.service", "/dev/null")
        }),
        sick(
            |lab| lab.node.link(&format!("{UNITS}/crio.service"), "/dev/null"),
            &["masked-units inhibitor crio.service"],
            &[
                "no container is started",
                "rm /etc/systemd/system/crio.service",
            ],
        ),
        sick(
            |lab| endless(&lab.node, UNITS),
            &[
                "blocked-modules unknown settings of modprobe",
                "missing-units unknown units",
                "masked-units unknown units",
                "network-files unknown network configuration",
                "service-files unknown configuration of services",
                "container-runtime unknown options of CRI-O",
                "kubelet-checkpoints unknown kubelet",
            ],
            &["/etc/systemd/system"],
        ),
    ]);
}

fn kubelet(lab: &Lab) {
    lab.node.write(
        &format!("{UNITS}/kubelet.service"),
        "[Service]\nExecStart=/usr/bin/kubelet\n",
    );
}

#[test]
fn kernel_modules_that_the_node_needs_are_not_turned_off() {
    all_met(&[
        well(|lab| {
            kubelet(lab);
            lab.node
                .write("etc/modprobe.d/a.conf", "install dccp /bin/false\n");
        }),
        well(|lab| {
            lab.node
                .write("etc/modprobe.d/a.conf", "install overlay /bin/false\n");
        }),
        sick(
            |lab| {
                kubelet(lab);
                lab.node
                    .write("etc/modprobe.d/a.conf", "install overlay /bin/false\n");
            },
            &["blocked-modules inhibitor overlay"],
            &[
                "/etc/modprobe.d/a.conf:1",
                "the kernel module overlay is turned off",
            ],
        ),
        sick(
            |lab| {
                kubelet(lab);
                lab.write_entry(
                    "rw root=UUID=11111111-0000-4000-8000-000000000001 \
                     boot=UUID=22222222-0000-4000-8000-000000000002 module_blacklist=veth",
                );
            },
            &["blocked-modules inhibitor veth"],
            &["rpm-ostree kargs --delete-if-present=module_blacklist=veth"],
        ),
        sick(
            |lab| endless(&lab.node, "etc/modprobe.d"),
            &["blocked-modules unknown settings of modprobe"],
            &["ls -ld /etc/modprobe.d"],
        ),
    ]);
}

/// A unit of the OS of now that `/etc` enables.
fn enable(lab: &Lab, unit: &str) {
    lab.node.write(&format!("{OF_OS}/{unit}"), "[Service]\n");
    let link = format!("{UNITS}/multi-user.target.wants/{unit}");
    lab.node.link(&link, &format!("/{OF_OS}/{unit}"));
}

fn image_has(lab: &Lab, unit: &str) {
    lab.target.write(&format!("{OF_OS}/{unit}"), "[Unit]\n");
}

#[test]
fn a_unit_that_the_image_no_longer_has_is_named() {
    all_met(&[
        well(|lab| {
            image_has(lab, "multi-user.target");
            enable(lab, "NetworkManager.service");
            image_has(lab, "NetworkManager.service");
        }),
        // As the image of now has it, it goes away with it.
        well(|lab| {
            image_has(lab, "multi-user.target");
            enable(lab, "rdisc.service");
            let link = format!("usr/{UNITS}/multi-user.target.wants/rdisc.service");
            lab.node.link(&link, &format!("/{OF_OS}/rdisc.service"));
        }),
        // No image of now has it either: no loss.
        well(|lab| {
            image_has(lab, "multi-user.target");
            let link = format!("{UNITS}/multi-user.target.wants/old.service");
            lab.node.link(&link, &format!("/{OF_OS}/old.service"));
        }),
        sick(
            |lab| {
                image_has(lab, "multi-user.target");
                enable(lab, "NetworkManager.service");
                enable(lab, "rdisc.service");
            },
            &[
                "missing-units inhibitor NetworkManager.service",
                "missing-units warning rdisc.service",
            ],
            &["the node has no network", "systemctl disable rdisc.service"],
        ),
        // A package on top of the image may bring it.
        well(|lab| {
            image_has(lab, "multi-user.target");
            lab.write_origin("[packages]\nrequested=kata-containers;\n");
            enable(lab, "usbguard.service");
        }),
        sick(
            |lab| enable(lab, "NetworkManager.service"),
            &["missing-units unknown units"],
            &["the image has no list of its units"],
        ),
    ]);
}

/// What `preflight` finds with a config that is to come: check, severity and subject.
fn with_config(lab: &Lab, config: &Value) -> Vec<String> {
    let given = lab.node.config(config);
    let target = lab.target.dir().to_str().unwrap();
    let run = lab.node.run(&[
        "preflight",
        "--output",
        "json",
        given.path(),
        "--os-from",
        target,
    ]);
    let document = run.json();
    let all = document["findings"].as_array().unwrap().iter();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    all.map(|one| {
        let (check, severity) = (text(one, "check"), text(one, "severity"));
        format!("{check} {severity} {}", text(one, "subject"))
    })
    .collect()
}

fn config(ignition: Value) -> Value {
    let mut config = machine_config("rendered-worker-a", ignition);
    config["spec"]["osImageURL"] = "quay.example/os:a".into();
    config
}

fn with_files(files: &[Value]) -> Value {
    config(json!({"storage": {"files": files}}))
}

#[test]
fn a_config_that_is_to_come_is_judged_with_its_files_and_units() {
    let lab = Lab::healthy();
    policy(&lab);
    kubelet(&lab);
    assert_eq!(with_config(&lab, &with_files(&[])), [""; 0]);
    for (path, text, found) in [
        ("/.autorelabel", "", "selinux warning /.autorelabel"),
        (
            "/etc/selinux/config",
            "SELINUX=disabled\n",
            "selinux warning /etc/selinux/config",
        ),
        (
            "/etc/selinux/targeted/policy/policy.33",
            "x",
            "selinux warning /etc/selinux/targeted/policy/policy.33",
        ),
        (
            "/etc/containers/registries.d/a.yaml",
            "docker: [\n",
            "pull-files warning /etc/containers/registries.d/a.yaml",
        ),
        (
            "/etc/containers/storage.conf",
            "storage = 1\n[",
            "service-files inhibitor /etc/containers/storage.conf",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "install veth /bin/false\n",
            "blocked-modules inhibitor veth",
        ),
        (
            "/etc/NetworkManager/conf.d/a.conf",
            "[main\n",
            "network-files inhibitor /etc/NetworkManager/conf.d/a.conf",
        ),
    ] {
        let files = [file(path, 0o644, text)];
        assert_eq!(with_config(&lab, &with_files(&files)), [found], "{path}");
    }
    // The run writes the unit again.
    lab.node.remove(&format!("{UNITS}/kubelet.service"));
    lab.node
        .link(&format!("{UNITS}/kubelet.service"), "/dev/null");
    assert_eq!(lab.short(), ["masked-units inhibitor kubelet.service"]);
    let unit = json!({"systemd": {"units": [kubelet_unit()]}});
    assert_eq!(with_config(&lab, &config(unit)), [""; 0]);
    let unmasks = json!({"systemd": {"units": [{"name": "kubelet.service", "mask": false}]}});
    assert_eq!(with_config(&lab, &config(unmasks)), [""; 0]);
    let masks = json!({"systemd": {"units": [{"name": "kubelet.service", "mask": true}]}});
    assert_eq!(
        with_config(&lab, &config(masks)),
        ["masked-units warning kubelet.service"]
    );
}

#[test]
fn kernel_arguments_that_the_config_takes_away_do_not_count() {
    let lab = Lab::healthy();
    ovn(&lab);
    let mut old = with_files(&[]);
    old["spec"]["kernelArguments"] = json!(["ipv6.disable=1"]);
    assert_eq!(
        with_config(&lab, &old),
        ["network-files inhibitor ipv6.disable=1"]
    );
    lab.node
        .write("etc/machine-config-daemon/currentconfig", &old.to_string());
    lab.write_entry(
        "rw root=UUID=11111111-0000-4000-8000-000000000001 \
         boot=UUID=22222222-0000-4000-8000-000000000002 ipv6.disable=1",
    );
    assert_eq!(lab.short(), ["network-files inhibitor ipv6.disable=1"]);
    assert_eq!(with_config(&lab, &with_files(&[])), [""; 0]);
}

#[test]
fn a_kernel_that_the_machine_or_the_image_lacks_is_named() {
    let lab = Lab::healthy();
    let with_kernel = |kind: &str| {
        let mut config = with_files(&[]);
        config["spec"]["kernelType"] = kind.into();
        with_config(&lab, &config)
    };
    // The architecture of a root that does not run is that of its C library.
    assert_eq!(
        with_kernel("64k-pages"),
        ["kernel-type unknown spec.kernelType"]
    );
    let machine = |number: u8| {
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1];
        header.resize(20, 0);
        header[18] = number;
        fs::create_dir_all(lab.node.path("usr/lib64")).unwrap();
        fs::write(lab.node.path("usr/lib64/libc.so.6"), header).unwrap();
    };
    machine(0x3e);
    assert_eq!(
        with_kernel("64k-pages"),
        ["kernel-type inhibitor spec.kernelType"]
    );
    assert_eq!(with_kernel("realtime"), [""; 0]);
    assert_eq!(with_kernel("default"), [""; 0]);
    machine(0xb7);
    assert_eq!(with_kernel("64k-pages"), [""; 0]);
    assert_eq!(
        with_kernel("realtime"),
        ["kernel-type inhibitor spec.kernelType"]
    );
    machine(0x3e);
    lab.target.write(
        "usr/lib/os-release",
        "NAME=\"Fedora Linux\"\nID=fedora\nVARIANT_ID=coreos\nVERSION_ID=42\n",
    );
    let short = with_kernel("realtime");
    assert!(
        short.contains(&"kernel-type inhibitor spec.kernelType".to_owned()),
        "{short:?}"
    );
}

/// What the run goes on with in spite of it is not called a refusal.
#[test]
fn the_last_sentence_says_what_an_inhibitor_stops() {
    let lab = Lab::healthy();
    let target = lab.target.dir().to_str().unwrap();
    lab.node.link(&format!("{UNITS}/crio.service"), "/dev/null");
    let run = || lab.node.run(&["preflight", "--os-from", target]).exits(1);
    assert!(
        flat_run(&run()).contains("Result Do not boot this image until the inhibitors are gone.")
    );
    lab.write_origin("[packages]\nrequested=htop;\n");
    assert!(
        flat_run(&run()).contains("Result The image is not staged until the inhibitors are gone.")
    );
}

#[test]
fn accounts_of_the_image_that_cannot_be_read_are_not_known() {
    let lab = Lab::healthy();
    lab.target
        .write("usr/lib/sysusers.d/ovs.conf", "g hugetlbfs -\n");
    lab.node.write("etc/gshadow", "root:::\nhugetlbfs:!::\n");
    lab.target.write("usr/lib/group", "hugetlbfs:x:802:\n");
    assert_eq!(lab.short(), [""; 0]);
    // Larger than what is read.
    lab.target
        .write("usr/lib/group", &"#".repeat((1 << 20) + 1));
    assert_eq!(lab.short(), ["accounts unknown accounts"]);
    let found = lab.findings();
    assert!(found[0].text.contains("/usr/lib/group of the image"));
    lab.target.remove("usr/lib/group");
    assert_eq!(lab.short(), ["accounts warning accounts"]);
    // A file of the OS that is turned off.
    lab.target.remove("usr/lib/sysusers.d/ovs.conf");
    lab.target.link("usr/lib/sysusers.d/ovs.conf", "/dev/null");
    assert_eq!(lab.short(), [""; 0]);
}

/// A disk in another machine: its boot entries, and the origin of its deployment, are beside the deployment.
#[test]
fn of_a_disk_the_boot_entries_and_the_origin_are_judged() {
    if !is_root() {
        return skip(Lacks::Root, "the disk is shown in a mount namespace");
    }
    let lab = Lab::healthy();
    let disk = TestRoot::empty();
    let deployment = format!("ostree/deploy/rhcos/deploy/{}.0", "cd".repeat(32));
    for (path, text) in [
        (
            "usr/lib/os-release",
            "ID=rhcos\nVARIANT_ID=coreos\nVERSION_ID=9.6\n",
        ),
        ("usr/etc/x", ""),
        ("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf", "{}\n"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("boot/.keep", ""),
        ("sysroot/.keep", ""),
        ("var/.keep", ""),
    ] {
        disk.write(&format!("{deployment}/{path}"), text);
    }
    disk.write("ostree/deploy/rhcos/var/lib/x", "");
    disk.write(
        &format!("{deployment}.origin"),
        "[origin]\n[packages]\nrequested=htop;\n[rpmostree]\nregenerate-initramfs=true\n",
    );
    disk.link("boot/loader", "loader.1");
    disk.link("ostree/boot.1", "boot.1.1");
    disk.link(
        "ostree/boot.1.1/rhcos/aa/0",
        &format!("../../../deploy/rhcos/deploy/{}.0", "cd".repeat(32)),
    );
    disk.write(
        "boot/loader.1/entries/ostree-1.conf",
        "title a\nversion 1\noptions rw root=UUID=1 ipv6.disable=1 ostree=/ostree/boot.1/rhcos/aa/0\n\
         linux /ostree/rhcos-aa/vmlinuz-5.14\n",
    );
    let short = super::short_of(&disk, lab.target.dir().to_str().unwrap());
    for found in [
        "network-files inhibitor ipv6.disable=1",
        "packages inhibitor htop",
        "own-modules warning initramfs",
    ] {
        assert!(short.contains(&found.to_owned()), "{found}: {short:#?}");
    }
}

/// A missing file means that the node does not use something; an unreadable one means that this is not known.
#[test]
fn what_cannot_be_read_is_not_taken_for_missing() {
    all_met(&[
        sick(
            |lab| directory(&lab.node, "etc/modules-load.d/a.conf"),
            &["own-modules unknown own modules"],
            &["/etc/modules-load.d/a.conf"],
        ),
        sick(
            |lab| endless(&lab.node, "etc/udev/rules.d"),
            &["interface-names unknown network configuration"],
            &["/etc/udev/rules.d"],
        ),
        sick(
            |lab| endless(&lab.node, "etc/nmstate"),
            &[
                "interface-names unknown network configuration",
                "network-files unknown network configuration",
            ],
            &["/etc/nmstate"],
        ),
        sick(
            |lab| endless(&lab.node, "etc/sysconfig/crio"),
            &["container-runtime unknown options of CRI-O"],
            &["/etc/sysconfig/crio"],
        ),
        sick(
            |lab| endless(&lab.node, "usr/etc/crio/crio.conf.d"),
            &["container-runtime unknown CRI-O"],
            &["/usr/etc/crio/crio.conf.d"],
        ),
        sick(
            |lab| {
                lab.target.remove("usr/bin/crun");
                endless(&lab.node, "usr/local/bin");
            },
            &[
                "network-files unknown network configuration",
                "container-runtime unknown crun",
            ],
            &["/usr/local/bin"],
        ),
        sick(
            |lab| endless(&lab.node, "boot/grub2"),
            &["boot-loader unknown grub.cfg"],
            &["/boot/grub2/grub.cfg"],
        ),
        sick(
            |lab| endless(&lab.node, "sysroot/ostree/boot.1.1/rhcos/aa"),
            &["packages unknown packages"],
            &["/sysroot/ostree/boot.1/rhcos/aa/0"],
        ),
        sick(
            |lab| endless(&lab.node, "sys/class/net/eno1"),
            &["interface-drivers unknown network interfaces"],
            &["/sys/class/net/eno1"],
        ),
        sick(
            |lab| {
                fs::remove_dir_all(lab.node.path("run/udev")).unwrap();
                endless(&lab.node, "boot/efi");
            },
            &[
                "boot-loader unknown /boot/efi",
                "boot-filesystem unknown /boot",
            ],
            &["/boot/efi/EFI"],
        ),
    ]);
}

/// What udev and the kernel say of a device.
#[test]
fn a_device_that_cannot_be_read_is_not_taken_for_missing() {
    const BLOCK: &str = "sys/devices/pci0000:00/0000:00:05.0/block";
    let udev = "boot-filesystem unknown /boot";
    let disk = "root-drivers unknown root disk";
    for (lab, path, unknown) in [
        (Lab::healthy(), "run/udev/data/b8:2".to_owned(), udev),
        (Lab::healthy(), "run/udev/data/b8:3".to_owned(), udev),
        (with_map(), "run/udev/data/b253:4".to_owned(), udev),
        (
            encrypted(&[tang()]),
            "run/udev/data/b253:0".to_owned(),
            udev,
        ),
        (
            encrypted(&[tang()]),
            "sys/class/block/sda4".to_owned(),
            udev,
        ),
        (encrypted(&[tang()]), format!("{BLOCK}/dm-0/slaves"), udev),
        (encrypted(&[tang()]), format!("{BLOCK}/dm-0/slaves"), disk),
        (Lab::healthy(), format!("{BLOCK}/sda4/md"), disk),
        (
            Lab::healthy(),
            "sys/devices/pci0000:00/0000:00:05.0/modalias".to_owned(),
            disk,
        ),
    ] {
        if lab.node.exists(&path) && !lab.node.path(&path).is_dir() {
            lab.node.remove(&path);
        }
        endless(&lab.node, &path);
        let short = lab.short();
        assert!(short.contains(&unknown.to_owned()), "{path}: {short:?}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_not_one_without_kernel_arguments() {
    for damage in [
        (|lab| lab.node.write(RECORD, "{\"spec\": ")) as fn(&Lab),
        |lab| directory(&lab.node, RECORD),
    ] {
        let lab = Lab::healthy();
        damage(&lab);
        let short = lab.short();
        let unknown = "kernel-arguments unknown kernel arguments".to_owned();
        assert!(short.contains(&unknown), "{short:?}");
    }
}
