//! A node goes to the next major version, whose udev gives its interfaces other names and whose systemd has no cgroup v1.
//!
//! Prepared: a node with two network cards behind PCI bridges in slots, a connection for the name of each, and the
//! argument for cgroup v1. The programs are Debian's: systemd 252 of Debian 12 stands in for that of EL 9, and systemd 257
//! of Debian 13 for that of EL 10; the `os-release` files say EL 9 and EL 10. Both kernels are the same. rpm-ostree is the
//! stub of the tests, and the harness carries `/etc` to the disk of the next system, as OSTree would. A script stands in for
//! NetworkManager: it gives the interface that a connection names the connection's address.
//! True afterwards: `preflight` has said that the run cures both, and `apply` has. The next system keeps the names and answers
//! at the addresses, and systemd says nothing of cgroup v1. Forced, with the argument and without the pins, the names are
//! gone, nothing answers at the addresses, and systemd waits.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::node::PROGRAM;
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Booted, Node};
use crate::lab::qemu::Machine;
use crate::lab::{Case, run};
use crate::support::ostree_node::{ARRIVED, BOOTED, IMAGE, NEXT, RPM_OSTREE};
use crate::support::{POLICY, file, machine_config, unused_port};

/// Makes the next system's systemd wait.
const OF_V1: &str = "systemd.unified_cgroup_hierarchy=0";
const WORDS: [&str; 2] = [
    "Legacy cgroup v1 configured. This will stop being supported soon.",
    "Will proceed with cgroup v2 after 30 s.",
];
/// Names by systemd 252: the slot of the bridge counts for a device with several functions. Not so from version 255 on.
const NAMES: [&str; 2] = ["ens5f0", "ens6f0"];
/// The same cards by systemd 257.
const NEXT_NAMES: [&str; 2] = ["enp2s1f0", "enp4s1f0"];
const ADDRESSES: [&str; 2] = ["192.0.2.15", "198.51.100.15"];
const DEPLOYMENTS: &str = "sysroot/ostree/deploy/rhcos/deploy";

/// STUB of NetworkManager.
const CONNECTS: &str = r#"#!/bin/sh
udevadm settle
for file in /etc/NetworkManager/system-connections/*.nmconnection; do
    name=$(sed -n 's/^interface-name=//p' "$file")
    address=$(sed -n 's/^address1=//p' "$file")
    ip link set "$name" up && ip address add "$address" dev "$name"
done
exit 0
"#;
const CONNECTS_UNIT: &str = "[Unit]\nDescription=Addresses of the connections (stand-in)\n\
    After=systemd-udev-trigger.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/bin/connects\n";

#[test]
#[ignore = "big guests: make vm-test runs it"]
fn names_and_arguments_that_preflight_cures_are_right_in_the_next_system_and_wrong_without() {
    let Some(case) = Case::begin_as_root("10 interface names and cgroup v1") else {
        return;
    };
    let mut old = Node::of(&case, Layout::Plain, &images::node(Layout::Plain));
    let key = old.public_key();
    old.prepare(|root| {
        is_a_node(root, &key);
        is_of_the_old_system(root);
    });
    case.prepared();

    let machine = old.machine(&images::initramfs(Kind::Lean));
    let (machine, ports) = with_cards(machine.append(OF_V1));
    let mut booted = old.boot(&machine);
    booted.comes_up();
    assert_eq!(names(&booted), NAMES);
    assert!(
        ports.map(answers).iter().all(|yes| *yes),
        "it has its addresses"
    );
    let arguments = is_cured(&case, &booted);
    booted.power_off();

    let carried = case.path("carried");
    old.prepare(|root| carry(root, &carried));
    let mut next = next_node(&case, &carried, true);
    let (mut booted, ports) = boot_next(&mut next, &arguments);
    booted.comes_up();
    assert_eq!(names(&booted), NAMES);
    for port in ports {
        assert!(answers(port), "{}", booted.ask("ip -br address"));
    }
    assert!(booted.ask("systemctl --version").starts_with("systemd 257"));
    for words in WORDS {
        assert!(
            !booted.guest.console().contains(words),
            "{}",
            booted.guest.tail()
        );
    }
    booted.power_off();

    // Forced.
    let mut next = next_node(&case, &carried, false);
    let (mut booted, ports) = boot_next(&mut next, &format!("{arguments} {OF_V1}"));
    booted.comes_up();
    assert_eq!(names(&booted), NEXT_NAMES);
    for port in ports {
        assert!(!answers(port), "{}", booted.ask("ip -br address"));
    }
    for words in WORDS {
        assert!(
            booted.guest.console().contains(words),
            "{}",
            booted.guest.tail()
        );
    }
    booted.power_off();
}

/// Lets `preflight` look and `apply` cure; returns the arguments of the next boot.
fn is_cured(case: &Case, booted: &Booted) -> String {
    // The kernel was not booted from OSTree; the program is told that it was.
    booted.ask(
        "sed 's|$| ostree=/ostree/boot.1/rhcos/0/0|' /proc/cmdline >cmdline && sudo mount --bind cmdline /proc/cmdline \
         && sudo mkdir -p /run/ostree",
    );
    booted.ask(&format!("sudo {PROGRAM} apply --yes /one"));
    let found = booted.run(&format!("sudo {PROGRAM} preflight --output json /two"));
    let document: Value =
        serde_json::from_str(&found.out()).unwrap_or_else(|e| panic!("{e}: {}", found.err()));
    let findings = document["findings"].as_array().unwrap().iter();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let short = |one: &Value| {
        ["check", "severity", "subject"]
            .map(|key| text(one, key))
            .join(" ")
    };
    let all: Vec<String> = findings.clone().map(short).collect();
    case.tell(&all.join("; "));
    let checks = ["interface-names", "kernel-arguments"];
    let mut ours: Vec<String> = all
        .into_iter()
        .filter(|one| checks.iter().any(|check| one.starts_with(check)))
        .collect();
    ours.sort_unstable();
    let cured = [
        format!("interface-names cured {}", NAMES[0]),
        format!("interface-names cured {}", NAMES[1]),
        "kernel-arguments cured cgroup v1".to_owned(),
    ];
    assert_eq!(ours, cured, "{document}");
    // What the image of this case lacks, such as CRI-O, and what an emulated processor lacks.
    let risks = findings
        .filter(|one| one["severity"] == "inhibitor")
        .map(|one| text(one, "check"));
    let risks: String = risks
        .map(|check| format!(" --accept-risk {check}"))
        .collect();
    let said = booted.ask(&format!("sudo {PROGRAM} apply --yes{risks} /two"));
    case.tell(&said);
    let pins = booted.ask("cd /etc/systemd/network && cat 98-nmstate-ens5f0.link && ls -A");
    case.tell(&pins);
    let arguments = booted.ask("cat /stub/kargs");
    assert_eq!(arguments, "rw");
    arguments
}

/// The kernel of the tiny guests, which enters the disk: no udev gives names before that of the disk.
fn boot_next(node: &mut Node<'_>, arguments: &str) -> (Booted, [u16; 2]) {
    let enters = b"mount -t ext4 /dev/vda /mnt && exec switch_root /mnt /sbin/init\n";
    let machine = Machine::tiny(&images::tiny_alone())
        .memory(1024)
        .file("case.sh", enters)
        .append(&format!("root=/dev/vda {arguments} systemd.show_status=0"))
        .disk(node.disk());
    let (machine, ports) = with_cards(machine);
    (node.boot(&machine), ports)
}

/// Two cards, each a device of several functions behind a bridge in a slot. Returns the ports of the host's loopback
/// that are the sshd at the two addresses.
fn with_cards(machine: Machine) -> (Machine, [u16; 2]) {
    // Else the firmware names the slots, all 0.
    let slots = "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off";
    let mut machine = machine.device(&["-global", slots]);
    let ports = ADDRESSES.map(|_| unused_port(&["127.0.0.1"]));
    for (index, address) in ADDRESSES.iter().enumerate() {
        let (slot, port) = (index + 5, ports[index]);
        let net = address.replace(".15", ".0/24");
        let net = format!(
            "user,id=n{index},net={net},restrict=on,hostfwd=tcp:127.0.0.1:{port}-{address}:22"
        );
        machine = machine.device(&[
            "-device",
            &format!("pcie-root-port,id=port{index},slot={slot},chassis={slot}"),
            "-device",
            &format!("pcie-pci-bridge,id=bridge{index},bus=port{index}"),
            "-netdev",
            &net,
            "-device",
            &format!(
                "virtio-net-pci,netdev=n{index},mac={},bus=bridge{index},addr=1.0,multifunction=on",
                mac(index)
            ),
        ]);
    }
    (machine, ports)
}

fn mac(index: usize) -> String {
    format!("52:54:00:aa:bb:0{index}")
}

/// The names of the two cards, in their order.
fn names(booted: &Booted) -> [String; 2] {
    [0, 1].map(|index| {
        let of_it = format!("ip -br link | grep -i {} | cut -d ' ' -f 1", mac(index));
        booted.ask(&of_it)
    })
}

/// Tells if an sshd greets at this port. The host's side of it can always be reached.
fn answers(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).is_ok() && greeting == *b"SSH-"
}

fn write(root: &Path, path: &str, mode: u32, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What both systems have.
fn is_a_node(root: &Path, key: &str) {
    write(
        root,
        "etc/machine-id",
        0o444,
        "0123456789abcdef0123456789abcdef\n",
    );
    write(root, "home/core/.ssh/authorized_keys", 0o600, key);
    run(Command::new("chown")
        .args(["-R", "1000:1000"])
        .arg(root.join("home/core/.ssh")));
    write(root, "usr/local/bin/connects", 0o755, CONNECTS);
    write(
        root,
        "etc/systemd/system/connects.service",
        0o644,
        CONNECTS_UNIT,
    );
    let wants = root.join("etc/systemd/system/multi-user.target.wants/connects.service");
    symlink("../connects.service", wants).unwrap();
}

/// The program, the connections, the deployments' files and the stubs.
fn is_of_the_old_system(root: &Path) {
    fs::copy(images::program(), root.join(&PROGRAM[1..])).unwrap();
    for (name, address) in NAMES.iter().zip(ADDRESSES) {
        let text = format!(
            "[connection]\nid={name}\nuuid={name}\ntype=ethernet\ninterface-name={name}\n[ipv4]\nmethod=manual\naddress1={address}/24\n"
        );
        write(
            root,
            &format!("etc/NetworkManager/system-connections/{name}.nmconnection"),
            0o600,
            &text,
        );
    }
    let system = |major: u32| {
        format!(
            "NAME=RHCOS\nID=rhcos\nVARIANT_ID=coreos\nVERSION_ID={major}.6\nRHEL_VERSION={major}.6\n"
        )
    };
    write(root, "usr/lib/os-release", 0o644, &system(9));
    write(root, POLICY.0, 0o644, POLICY.1);
    for (name, image) in [("one", IMAGE), ("two", NEXT)] {
        let files = json!({"storage": {"files": [file("/etc/pool.conf", 0o644, name)]}});
        let mut config = machine_config(&format!("rendered-worker-{name}"), files);
        config["spec"]["osImageURL"] = json!(image);
        write(root, name, 0o644, &config.to_string());
    }
    // STUB of ostree: what is pinned is a checksum in a file.
    let pins = "case $* in 'admin pin --unpin '*) echo >/stub/pinned ;; 'admin pin 0') . /stub/booted; echo $checksum >/stub/pinned ;; esac";
    write(
        root,
        "usr/bin/ostree",
        0o755,
        &format!("#!/bin/sh\n{pins}\n"),
    );
    write(
        root,
        "usr/sbin/rpm-ostree",
        0o755,
        &format!("#!/bin/sh\n{RPM_OSTREE}"),
    );
    let booted = format!(
        "checksum={BOOTED}\nimage=ostree-unverified-registry:{IMAGE}\npackages=\"\"\nremovals=\"\"\n"
    );
    let arguments = format!("rw {OF_V1}\n");
    for (name, text) in [
        ("booted", booted.as_str()),
        ("kargs", &arguments),
        ("fails", "\n"),
        ("hangs", "\n"),
        ("pinned", "\n"),
        ("log", ""),
    ] {
        write(root, &format!("stub/{name}"), 0o644, text);
    }
    for (checksum, image) in [(BOOTED, IMAGE), (ARRIVED, NEXT)] {
        let origin =
            format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n");
        write(
            root,
            &format!("{DEPLOYMENTS}/{checksum}.0.origin"),
            0o644,
            &origin,
        );
        fs::create_dir_all(root.join(format!("{DEPLOYMENTS}/{checksum}.0"))).unwrap();
    }
    let link = root.join("sysroot/ostree/boot.1/rhcos/0/0");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(format!("../../../deploy/rhcos/deploy/{BOOTED}.0"), link).unwrap();
    let target = format!("{DEPLOYMENTS}/{ARRIVED}.0");
    write(
        root,
        &format!("{target}/usr/lib/os-release"),
        0o644,
        &system(10),
    );
    let modules = fs::read_dir(root.join("usr/lib/modules"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let to = root
        .join(&target)
        .join("usr/lib/modules")
        .join(modules.file_name().unwrap());
    fs::create_dir_all(&to).unwrap();
    for list in fs::read_dir(&modules).unwrap().map(|entry| entry.unwrap()) {
        if list.file_type().unwrap().is_file() {
            fs::copy(list.path(), to.join(list.file_name())).unwrap();
        }
    }
    fs::copy(images::node_kernel(), to.join("vmlinuz")).unwrap();
    fs::copy(images::initramfs(Kind::Lean), to.join("initramfs.img")).unwrap();
}

/// Keeps of a disk's `/etc` what the node has put there, as OSTree's merge does.
fn carry(root: &Path, to: &Path) {
    for directory in ["etc/NetworkManager", "etc/systemd/network"] {
        let into = to.join(directory);
        fs::create_dir_all(into.parent().unwrap()).unwrap();
        run(Command::new("cp")
            .arg("-a")
            .arg(root.join(directory))
            .arg(into));
    }
}

/// The disk of the next system, with what was carried, or all of it but the pins.
fn next_node<'a>(case: &'a Case, carried: &Path, pinned: bool) -> Node<'a> {
    for name in ["key", "key.pub"] {
        fs::remove_file(case.path(name)).unwrap();
    }
    let node = Node::of(case, Layout::Plain, &images::next_node());
    let key = node.public_key();
    node.prepare(|root| {
        is_a_node(root, &key);
        run(Command::new("cp")
            .arg("-a")
            .arg(carried.join("etc"))
            .arg(root));
        if !pinned {
            for entry in fs::read_dir(root.join("etc/systemd/network"))
                .unwrap()
                .map(|entry| entry.unwrap())
            {
                if entry.file_name().to_str().unwrap().contains("nmstate") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        }
    });
    node
}
