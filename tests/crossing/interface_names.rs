//! Names of interfaces that the configuration uses, after the next system has named them.

use super::Lab;
use super::hardware::ENO1;

/// The finding that `eno1` is pinned by the run.
const PINNED: &str = "interface-names cured eno1";

fn lab_with_name() -> Lab {
    let lab = Lab::healthy();
    lab.keyfile("lan", "type=ethernet\ninterface-name=eno1", "");
    lab
}

/// Writes a file of the node, or its kernel arguments.
fn write(lab: &Lab, file: &str, text: &str) {
    match file {
        "arguments" => lab.write_entry(text.trim()),
        file => lab.node.write(file, text),
    }
    // NetworkManager takes no connection that others can read.
    if file.ends_with(".nmconnection") {
        lab.node.chmod(file, 0o600);
    }
}

fn link(lab: &Lab, name: &str, text: &str) {
    lab.node.write(&format!("etc/systemd/network/{name}"), text);
}

#[test]
fn a_connection_for_a_name_is_pinned_by_address() {
    let lab = lab_with_name();
    assert_eq!(lab.short(), [PINNED]);
    let text = &lab.findings()[0].text;
    for words in [
        "52:54:00:AA:BB:01",
        "[connection] interface-name=eno1",
        "EL 9 and EL 10",
        "lost network configs",
        "98-nmstate-eno1.link",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn between_images_of_one_major_no_pin_is_needed() {
    let lab = lab_with_name();
    let system = "ID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.8\nVERSION_ID=9.8\n";
    lab.target.write("usr/lib/os-release", system);
    let names = lab
        .short()
        .into_iter()
        .filter(|one| one.starts_with("interface-names"));
    assert_eq!(names.count(), 0);
}

#[test]
fn every_place_that_names_an_interface_counts() {
    for (file, text) in [
        (
            "etc/NetworkManager/system-connections/v.nmconnection",
            "[connection]\ntype=vlan\n[vlan]\nparent=eno1\n",
        ),
        (
            "run/NetworkManager/system-connections/r.nmconnection",
            "[connection]\ninterface-name=eno1\n",
        ),
        (
            "etc/NetworkManager/system-connections/m.nmconnection",
            "[match]\ninterface-name=eno*;\n",
        ),
        (
            "etc/nmstate/openshift/cluster.yml",
            "interfaces:\n- name: eno1\n",
        ),
        ("var/lib/ovnk/iface_default_hint", "eno1\n"),
        (
            "arguments",
            "rw ip=192.0.2.2::192.0.2.1:24:host:eno1:none\n",
        ),
    ] {
        let lab = Lab::healthy();
        write(&lab, file, text);
        assert_eq!(lab.short(), [PINNED], "{file}");
    }
}

#[test]
fn a_name_that_something_pins_already_is_not_a_finding() {
    let by_mac = "[Match]\nMACAddress=52:54:00:aa:bb:01\n[Link]\nName=eno1\n";
    for (file, text) in [
        ("etc/systemd/network/10-lan.link", by_mac),
        ("etc/systemd/network/98-nmstate-eno1.link", by_mac),
        (
            "etc/udev/rules.d/70-net.rules",
            "SUBSYSTEM==\"net\", ATTR{address}==\"52:54:00:aa:bb:01\", NAME=\"eno1\"\n",
        ),
        (
            "arguments",
            "rw ifname=eno1:52:54:00:aa:bb:01 rd.neednet=1\n",
        ),
    ] {
        let lab = lab_with_name();
        write(&lab, file, text);
        assert_eq!(lab.short(), Vec::<String>::new(), "{file}");
    }
    let lab = lab_with_name();
    lab.target
        .write("usr/lib/systemd/network/70-image.link", by_mac);
    assert_eq!(lab.short(), Vec::<String>::new(), "a file of the image");
}

#[test]
fn a_pin_that_does_not_hold_is_a_finding() {
    for (what, name, text, found) in [
        (
            "another address",
            "10-lan.link",
            "[Match]\nMACAddress=52:54:00:aa:bb:99\n[Link]\nName=eno1\n",
            PINNED,
        ),
        (
            "another driver",
            "10-lan.link",
            "[Match]\nMACAddress=52:54:00:aa:bb:01\nDriver=e1000e\n[Link]\nName=eno1\n",
            PINNED,
        ),
        (
            "gone with the reboot",
            "../../../run/systemd/network/10-lan.link",
            "[Match]\nMACAddress=52:54:00:aa:bb:01\n[Link]\nName=eno1\n",
            PINNED,
        ),
        (
            "a virtual interface",
            "98-default-mac-none.link",
            "[Match]\nKind=bridge bond\n[Link]\nMACAddressPolicy=none\n",
            PINNED,
        ),
        (
            "a file that gives no name",
            "10-all.link",
            "[Match]\nOriginalName=*\n[Link]\nMTUBytes=9000\n",
            "interface-names inhibitor eno1",
        ),
        (
            "another name",
            "10-lan.link",
            "[Match]\nMACAddress=52:54:00:aa:bb:01\n[Link]\nName=lan0\n",
            "interface-names inhibitor eno1",
        ),
        (
            "the default of systemd",
            "99-default.link",
            "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep\n",
            PINNED,
        ),
        (
            "the helper's file of another device",
            "98-nmstate-eno1.link",
            "# Generated by nmstate\n[Match]\nMACAddress=52:54:00:aa:bb:99\n\n[Link]\nName=eno1\n",
            PINNED,
        ),
        (
            "a masked file",
            "98-nmstate-eno1.link",
            "",
            "interface-names inhibitor eno1",
        ),
    ] {
        let lab = lab_with_name();
        link(&lab, name, text);
        assert_eq!(lab.short(), [found], "{what}");
    }
}

#[test]
fn a_drop_in_counts_with_its_file() {
    let by_mac = "[Match]\nMACAddress=52:54:00:aa:bb:01\n[Link]\nName=lan0\n";
    let name = "[Link]\nName=eno1\n";
    // It gives another file's interface the name.
    let lab = lab_with_name();
    link(&lab, "10-lan.link", by_mac);
    assert_eq!(lab.short(), ["interface-names inhibitor eno1"]);
    link(&lab, "10-lan.link.d/50-name.conf", name);
    assert_eq!(lab.short(), [""; 0]);
    // An empty one of the same name in /etc takes the image's away.
    let lab = lab_with_name();
    lab.target
        .write("usr/lib/systemd/network/10-lan.link", by_mac);
    let of_image = "usr/lib/systemd/network/10-lan.link.d/50-name.conf";
    lab.target.write(of_image, name);
    assert_eq!(lab.short(), [""; 0]);
    link(&lab, "10-lan.link.d/50-name.conf", "");
    assert_eq!(lab.short(), ["interface-names inhibitor eno1"]);
    // It narrows the conditions of a file that pinned the name.
    let lab = lab_with_name();
    link(&lab, "10-lan.link", &by_mac.replace("lan0", "eno1"));
    link(
        &lab,
        "10-lan.link.d/50-driver.conf",
        "[Match]\nDriver=e1000e\n",
    );
    assert_eq!(lab.short(), [PINNED]);
}

#[test]
fn a_stamp_without_files_pins_nothing() {
    let lab = lab_with_name();
    link(&lab, ".nmstate-persist.stamp", "");
    assert_eq!(lab.short(), [PINNED]);
    assert!(lab.findings()[0].text.contains("the helper has run"));
}

#[test]
fn names_of_the_kernel_are_no_names_where_there_are_several_interfaces() {
    let lab = Lab::healthy();
    lab.interface("eth0", ENO1, 2, "52:54:00:aa:bb:01");
    lab.node.remove("sys/class/net/eno1");
    lab.keyfile("lan", "type=ethernet\ninterface-name=eth0", "");
    assert_eq!(lab.short(), ["interface-names inhibitor eth0"]);
    assert!(
        lab.findings()[0]
            .text
            .contains("802-3-ethernet.mac-address 52:54:00:AA:BB:01")
    );
    // A single one keeps it: pinned, or by the argument that leaves all names to the kernel.
    lab.node.remove("sys/class/net/ens2");
    assert_eq!(lab.short(), ["interface-names cured eth0"]);
    lab.write_entry("rw net.ifnames=0");
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn a_virtual_function_behind_its_interface_is_not_a_second_one() {
    let lab = Lab::healthy();
    lab.interface("eth0", ENO1, 2, "52:54:00:aa:bb:02");
    lab.node.remove("sys/class/net/eno1");
    lab.keyfile("lan", "type=ethernet\ninterface-name=eth0", "");
    assert_eq!(lab.short(), ["interface-names cured eth0"]);
}

#[test]
fn a_port_of_a_bond_is_not_pinned_by_the_address_of_the_bond() {
    let lab = lab_with_name();
    let at = format!("{ENO1}/net/eno1");
    lab.node
        .write(&format!("{at}/address"), "52:54:00:aa:bb:02\n");
    lab.node.write(
        &format!("{at}/bonding_slave/perm_hwaddr"),
        "52:54:00:aa:bb:01\n",
    );
    let found = lab.findings();
    assert_eq!(lab.short(), [PINNED]);
    assert!(
        found[0].text.contains("52:54:00:AA:BB:01"),
        "{}",
        found[0].text
    );
    // Without the permanent address there is nothing to pin by.
    lab.node.write(
        &format!("{at}/bonding_slave/perm_hwaddr"),
        "00:00:00:00:00:00\n",
    );
    assert_eq!(lab.short(), ["interface-names inhibitor eno1"]);
    assert!(lab.findings()[0].text.contains("ethtool -P eno1"));
}

#[test]
fn the_database_of_udev_knows_an_address_that_was_changed() {
    let lab = lab_with_name();
    lab.node
        .write(&format!("{ENO1}/net/eno1/addr_assign_type"), "3\n");
    assert_eq!(lab.short(), ["interface-names inhibitor eno1"]);
    lab.node
        .write("run/udev/data/n2", "E:ID_NET_NAME_MAC=enx525400aabb07\n");
    assert_eq!(lab.short(), [PINNED]);
    assert!(lab.findings()[0].text.contains("52:54:00:AA:BB:07"));
}

#[test]
fn two_devices_with_one_address_are_told_apart_by_their_drivers() {
    let lab = lab_with_name();
    let second = "sys/devices/pci0000:00/0000:00:02.0/virtio0/net/ens2";
    lab.node
        .write(&format!("{second}/address"), "52:54:00:aa:bb:01\n");
    assert_eq!(lab.short(), [PINNED]);
    lab.node
        .remove("sys/devices/pci0000:00/0000:00:02.0/virtio0/driver");
    lab.device(
        "sys/devices/pci0000:00/0000:00:02.0/virtio0",
        "virtio:d00000001v00001AF4",
        "pci/drivers/igb",
    );
    assert_eq!(lab.short(), ["interface-names inhibitor eno1"]);
}

#[test]
fn without_sys_the_names_are_reported_and_a_connection_may_know_the_address() {
    let lab = lab_with_name();
    std::fs::remove_dir_all(lab.node.path("sys")).unwrap();
    let names = |lab: &Lab| -> Vec<String> {
        let all = lab.short().into_iter();
        all.filter(|one| one.starts_with("interface-names"))
            .collect()
    };
    assert_eq!(names(&lab), ["interface-names unknown network interfaces"]);
    lab.keyfile(
        "lan",
        "type=ethernet\ninterface-name=eno1",
        "[ethernet]\nmac-address=52:54:00:aa:bb:01\n",
    );
    assert_eq!(names(&lab), [PINNED]);
}
