//! Connections in `ifcfg-` files, which NetworkManager of EL 10 ignores.

use super::Lab;

const SCRIPTS: &str = "etc/sysconfig/network-scripts";
const FOUND: &str = "legacy-connections inhibitor ens2";

fn script(lab: &Lab, name: &str, text: &str) {
    lab.node.write(&format!("{SCRIPTS}/{name}"), text);
}

/// The findings of this check.
fn found(lab: &Lab) -> Vec<String> {
    let all = lab.short().into_iter();
    all.filter(|one| one.starts_with("legacy")).collect()
}

#[test]
fn a_connection_that_only_an_old_file_has_is_an_inhibitor() {
    let lab = Lab::healthy();
    script(
        &lab,
        "ifcfg-ens2",
        "DEVICE=ens2\nBOOTPROTO=dhcp\nONBOOT=yes\n",
    );
    assert_eq!(found(&lab), [FOUND]);
    let text = &lab.findings()[0].text;
    for words in [
        "nmcli connection migrate /etc/sysconfig/network-scripts/ifcfg-ens2",
        "EL 10 reads no ifcfg files",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    script(&lab, "ifcfg-ens2", "DEVICE=ens2\nONBOOT=no\n");
    assert_eq!(found(&lab), ["legacy-connections warning ens2"]);
}

#[test]
fn files_that_do_not_count_are_left_alone() {
    let lab = Lab::healthy();
    for (name, text) in [
        ("ifcfg-lo", "DEVICE=lo\n"),
        ("readme-ifcfg-rh.txt", "ifcfg\n"),
        ("ifcfg-ens2.bak", "DEVICE=ens2\n"),
        ("ifcfg-ens3", "DEVICE=ens3\nNM_CONTROLLED=no\n"),
        ("ifcfg-lan", "DEVICE=eno9\nHWADDR=52:54:00:AA:BB:01\n"),
        ("rule-gone", "from 192.0.2.0/24 table 5\n"),
        ("route-gone", "192.0.2.0/24 via 192.0.2.1\n"),
    ] {
        script(&lab, name, text);
    }
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn policy_routing_cannot_be_migrated() {
    let lab = Lab::healthy();
    script(&lab, "ifcfg-ens2", "DEVICE=ens2\nBOOTPROTO=dhcp\n");
    script(&lab, "rule-ens2", "from 192.0.2.0/24 table 5\n");
    assert_eq!(found(&lab), [FOUND, FOUND]);
    assert!(
        lab.findings()
            .iter()
            .any(|one| one.text.contains("routing-rules"))
    );
}

#[test]
fn an_image_of_el_9_and_one_with_the_plugin_read_them() {
    let lab = Lab::healthy();
    script(&lab, "ifcfg-ens2", "DEVICE=ens2\nBOOTPROTO=dhcp\n");
    let plugins = "usr/lib64/NetworkManager/1.52";
    lab.target
        .write(&format!("{plugins}/libnm-device-plugin-team.so"), "");
    assert_eq!(found(&lab), [FOUND]);
    assert!(
        lab.findings()[0]
            .text
            .contains("libnm-settings-plugin-ifcfg-rh.so is missing")
    );
    lab.target
        .write(&format!("{plugins}/libnm-settings-plugin-ifcfg-rh.so"), "");
    assert_eq!(found(&lab), Vec::<String>::new());
    std::fs::remove_dir_all(lab.target.path("usr/lib64")).unwrap();
    lab.target.write(
        "usr/lib/os-release",
        "ID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.8\nVERSION_ID=9.8\n",
    );
    assert_eq!(found(&lab), Vec::<String>::new());
}

#[test]
fn the_removed_dhcp_client_is_a_warning() {
    let lab = Lab::healthy();
    lab.node.write(
        "etc/NetworkManager/conf.d/99-dhcp.conf",
        "[main]\ndhcp=dhclient\n",
    );
    lab.node.write(
        "etc/NetworkManager/conf.d/98-other.conf",
        "[main]\ndhcp=internal\n[x]\ndhcp=dhclient\n",
    );
    assert_eq!(lab.short(), ["legacy-connections warning dhclient"]);
}
