//! FP-29: the network of the first boot did not stay.

use super::small::endless;
use super::worker::{Branch, KEYFILES, Row, all_met, healthy, on_a_node, sick, well};
use super::{Dark, doctor, doctor_on, of};
use crate::support::TestRoot;

/// The arguments of the boot entry.
fn boots_with(root: &TestRoot, arguments: &str) {
    root.write(
        "boot/loader/entries/ostree-1.conf",
        &format!("title x\nversion 1\noptions rw {arguments} ostree=/ostree/boot.1/rhcos/0/0\nlinux /ostree/rhcos-0/vmlinuz-1\n"),
    );
}

const FIXED: &str =
    "ip=192.0.2.10::192.0.2.1:255.255.255.0:worker-0:ens3:none nameserver=192.0.2.1";

fn keyfile(root: &TestRoot, interface: &str, rest: &str) {
    root.write(
        &format!("{KEYFILES}/{interface}.nmconnection"),
        &format!("[connection]\nid={interface}\ninterface-name={interface}\n{rest}"),
    );
}

fn manual(root: &TestRoot, interface: &str, address: &str) {
    keyfile(
        root,
        interface,
        &format!("[ipv4]\nmethod=manual\naddress1={address}/24,192.0.2.1\ndns=192.0.2.1;\n"),
    );
}

const LOST: Branch = Branch {
    id: "FP-29",
    severity: "warning",
    what: "the network is in the kernel arguments only",
    seen: &["192.0.2.10 is in no keyfile", "no connection"],
    next: &["ls -l ROOT/etc/NetworkManager/system-connections"],
};

const ROWS: [Row; 17] = [
    sick(|root| boots_with(root, FIXED), LOST),
    sick(
        |root| {
            boots_with(root, FIXED);
            keyfile(root, "ens3", "[ipv4]\nmethod=auto\n");
        },
        Branch {
            seen: &["ens3: no fixed address"],
            ..LOST
        },
    ),
    sick(
        |root| {
            boots_with(root, FIXED);
            manual(root, "ens3", "192.0.2.11");
        },
        Branch {
            seen: &["ens3: 192.0.2.11/24"],
            ..LOST
        },
    ),
    // NetworkManager does not take a file that others may read.
    sick(
        |root| {
            boots_with(root, FIXED);
            manual(root, "ens3", "192.0.2.10");
            root.chmod(&format!("{KEYFILES}/ens3.nmconnection"), 0o644);
        },
        Branch {
            seen: &[
                "192.0.2.10 is in no keyfile",
                "NetworkManager rejects it: mode 0644",
            ],
            ..LOST
        },
    ),
    sick(
        |root| {
            boots_with(
                root,
                "ip=192.0.2.10::192.0.2.1:24::bond0.7:none bond=bond0:eno1,eno2:mode=802.3ad vlan=bond0.7:bond0",
            );
            manual(root, "eno1", "192.0.2.10");
        },
        Branch {
            seen: &["bond0 is in no keyfile", "bond0.7 is in no keyfile"],
            ..LOST
        },
    ),
    sick(
        |root| {
            boots_with(root, FIXED);
            manual(root, "enp2s0", "192.0.2.10");
        },
        Branch {
            id: "FP-29",
            severity: "warning",
            what: "one address is for two interfaces",
            seen: &["192.0.2.10 is for ens3", "192.0.2.10 is for enp2s0"],
            next: &["ls -l "],
        },
    ),
    sick(
        |root| {
            boots_with(root, FIXED);
            keyfile(
                root,
                "ens3",
                "[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\n",
            );
        },
        Branch {
            id: "FP-29",
            severity: "warning",
            what: "name servers are in the kernel arguments only",
            seen: &["nameserver=192.0.2.1", "without dns="],
            next: &["ls -l "],
        },
    ),
    sick(
        |root| {
            boots_with(root, "rd.neednet=1");
            manual(root, "ens3", "192.0.2.10");
        },
        Branch {
            id: "FP-29",
            severity: "notice",
            what: "the initramfs has no fixed address",
            seen: &["rd.neednet=1", "192.0.2.10/24"],
            next: &["cat ROOT/boot/loader/entries/*.conf"],
        },
    ),
    well("FP-29", |root| {
        boots_with(root, FIXED);
        manual(root, "ens3", "192.0.2.10");
    }),
    // The bridge has taken the address of the interface.
    well("FP-29", |root| {
        boots_with(root, FIXED);
        manual(root, "br-ex", "192.0.2.10");
    }),
    // A connection without a name takes any interface.
    well("FP-29", |root| {
        boots_with(root, FIXED);
        root.write(
            &format!("{KEYFILES}/default_connection.nmconnection"),
            "[connection]\nid=x\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\ndns=192.0.2.1;\n",
        );
    }),
    // nmstate makes bond and VLAN.
    well("FP-29", |root| {
        boots_with(
            root,
            "ip=192.0.2.10::192.0.2.1:24::bond0:none bond=bond0:eno1,eno2:mode=802.3ad",
        );
        root.write(
            "etc/nmstate/openshift/cluster.yml",
            "interfaces:\n- name: bond0\n  type: bond\n  link-aggregation:\n    port: [eno1, eno2]\n  ipv4:\n    enabled: true\n    address:\n    - ip: 192.0.2.10\n      prefix-length: 24\n",
        );
    }),
    // The installer adds these for everyone.
    well("FP-29", |root| {
        boots_with(root, "ip=dhcp,dhcp6 rd.neednet=1");
        manual(root, "ens3", "192.0.2.10");
    }),
    well("FP-29", |root| manual(root, "ens3", "192.0.2.10")),
    well("FP-29", |root| boots_with(root, "quiet")),
    // A name server for all connections.
    well("FP-29", |root| {
        boots_with(root, FIXED);
        keyfile(
            root,
            "ens3",
            "[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\n",
        );
        root.write(
            "etc/NetworkManager/conf.d/dns.conf",
            "[global-dns-domain-*]\nservers=192.0.2.1\n",
        );
    }),
    // The first boot has not passed it on yet.
    well("FP-29", |root| {
        boots_with(root, FIXED);
        root.write("etc/machine-id", "uninitialized\n");
    }),
];

pub(super) const DARK: &[Dark] = &[(
    "FP-29",
    "network configuration: /etc/NetworkManager/system-connections",
    |root| {
        boots_with(root, FIXED);
        endless(root, KEYFILES);
    },
)];

#[test]
fn a_network_in_one_of_both_systems_only_is_found() {
    all_met(&ROWS);
}

#[test]
fn a_state_that_cannot_be_parsed_is_not_proof() {
    let root = healthy();
    boots_with(&root, FIXED);
    root.write("etc/nmstate/openshift/cluster.yml", "interfaces: [\n");
    let report = doctor(&root);
    assert_eq!(of(&report, "FP-29"), Vec::<serde_json::Value>::new());
    let text = super::unseen(&report, "FP-29");
    assert!(text.contains("cluster.yml"), "{text}");
}

#[test]
fn an_address_that_the_running_node_has_is_not_lost() {
    on_a_node(|node| {
        let line = format!("rw {FIXED} ostree=/ostree/boot.1/rhcos/0/0\n");
        node.root.write("cmdline", &line);
        let answer = |address: &str| {
            // STUB of ip: one interface.
            node.program(
                "ip",
                &format!(
                    r#"echo '[{{"ifname":"ens3","addr_info":[{{"local":"{address}","prefixlen":24,"label":"ens3"}}]}}]'"#
                ),
            );
            of(&doctor_on(node), "FP-29")
        };
        assert_eq!(answer("192.0.2.10"), Vec::<serde_json::Value>::new());
        let found = answer("192.0.2.77");
        assert_eq!(found[0]["what"], LOST.what, "{found:?}");
    });
}
