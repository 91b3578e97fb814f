//! FP-62: network configuration that is not in force.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mco_rescue::host::root::Root;
use mco_rescue::node::network_manager;
use serde_json::{Value, json};

use super::worker::{self, Branch, KEYFILES, Row, all_met, healthy, on_a_node, sick, well};
use super::{doctor, doctor_on, found, of, says};
use crate::support::mounts::mount;
use crate::support::ostree_node::OstreeNode;
use crate::support::services::{Network, command, keyfile, with_services};
use crate::support::{TestRoot, file};

const ID: &str = "FP-62";
const STATES: &str = "etc/nmstate/openshift";
const SETTINGS: &str = "etc/NetworkManager/conf.d";
const STATE: &str = "interfaces:\n- name: enp2s0\n  type: ethernet\n";

fn put(root: &TestRoot, path: &str, text: &str) {
    root.write(path, text);
    root.chmod(path, 0o600);
}

/// A connection in the usual directory.
fn connection(root: &TestRoot, name: &str, text: &str) {
    let path = format!("{KEYFILES}/{name}");
    put(root, &path, &format!("[connection]\n{text}"));
}

fn ethernet(root: &TestRoot, name: &str, interface: &str, rest: &str) {
    let text = format!("id={name}\ntype=ethernet\ninterface-name={interface}\n{rest}");
    connection(root, name, &text);
}

fn fixed(address: &str) -> String {
    format!("[ipv4]\nmethod=manual\naddress1={address}/24,192.0.2.1\n")
}

fn state(root: &TestRoot, name: &str) {
    root.write("usr/local/bin/nmstate-configuration.sh", "#!/bin/bash\n");
    root.write("etc/hostname", "worker-0.example.com\n");
    root.write(&format!("{STATES}/{name}"), STATE);
}

const UNREAD_STATE: Branch = Branch {
    id: ID,
    severity: "warning",
    what: "a file of nmstate is not read",
    seen: &[],
    next: &["cat ROOT/etc/nmstate/"],
};

const STATES_OF_NMSTATE: [Row; 15] = [
    well(ID, |root| state(root, "cluster.yml")),
    well(ID, |root| state(root, "worker-0.yml")),
    // Those of other hosts beside one for all.
    well(ID, |root| {
        state(root, "worker-7.yml");
        state(root, "cluster.yml");
        state(root, "applied");
    }),
    sick(
        |root| state(root, "cluster.yaml"),
        Branch {
            seen: &["/etc/nmstate/openshift/cluster.yaml", "never read"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| state(root, "worker-0.example.com.yml"),
        Branch {
            seen: &["worker-0.example.com.yml", "without its domain"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| state(root, "Worker-0.yml"),
        Branch {
            seen: &["the host's name is written worker-0"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| {
            state(root, "cluster.yml");
            root.write(&format!("{STATES}/cluster.yml"), "");
        },
        Branch {
            seen: &["it is empty"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| state(root, "hosts/worker-0.yml"),
        Branch {
            seen: &["/etc/nmstate/openshift/hosts"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| state(root, "worker-7.yml"),
        Branch {
            severity: "notice",
            what: "no file of nmstate is for this host",
            seen: &["whose name is worker-0"],
            ..UNREAD_STATE
        },
    ),
    sick(
        |root| {
            state(root, "cluster.yml");
            root.write(&format!("{STATES}/cluster.yml"), "interfaces: [\n");
        },
        Branch {
            what: "nmstate rejects a file",
            seen: &["no YAML"],
            next: &["vi ROOT/etc/nmstate/openshift/cluster.yml"],
            ..UNREAD_STATE
        },
    ),
    // Without the script nothing reads the directory, and no one expects it.
    well(ID, |root| {
        root.write(&format!("{STATES}/cluster.yaml"), STATE)
    }),
    sick(
        |root| root.write("etc/nmstate/br-ex.yaml", STATE),
        Branch {
            seen: &["older versions of nmstate"],
            ..UNREAD_STATE
        },
    ),
    well(ID, |root| {
        root.write("etc/nmstate/br-ex.yaml", STATE);
        root.write("etc/nmstate/br-ex.applied", STATE);
    }),
    well(ID, |root| {
        root.write("etc/nmstate/br-ex.yml", STATE);
        root.write("etc/nmstate/nmstate.conf", "[service]\n");
    }),
    sick(
        |root| {
            root.write("etc/nmstate/br-ex.yml", STATE);
            root.write("etc/nmstate/br-ex.yaml", STATE);
        },
        Branch {
            seen: &["two files of one name"],
            ..UNREAD_STATE
        },
    ),
];

#[test]
fn states_of_nmstate_that_nothing_reads_are_named() {
    all_met(&STATES_OF_NMSTATE);
}

const OTHER_DIRECTORY: Branch = Branch {
    id: ID,
    severity: "critical",
    what: "NetworkManager reads another directory of connections",
    seen: &[
        "/etc/NetworkManager/system-connections/lan.nmconnection",
        "NetworkManager reads /etc/NetworkManager/mine instead, by [keyfile] path= in /etc/NetworkManager/conf.d/99-mine.conf",
    ],
    next: &["cat ROOT/etc/NetworkManager/system-connections/lan.nmconnection"],
};

fn moves(root: &TestRoot, name: &str) {
    let path = "[keyfile]\npath=/etc/NetworkManager/mine\n";
    root.write(&format!("{SETTINGS}/{name}"), path);
    ethernet(root, "lan.nmconnection", "ens3", "");
}

const DIRECTORIES: [Row; 15] = [
    sick(|root| moves(root, "99-mine.conf"), OTHER_DIRECTORY),
    // The last file wins, whatever the names of the directories are.
    sick(
        |root| {
            moves(root, "99-mine.conf");
            let own = "[keyfile]\npath=/etc/NetworkManager/system-connections\n";
            root.write(&format!("{SETTINGS}/20-keyfiles.conf"), own);
            root.write("usr/lib/NetworkManager/conf.d/99-zz.conf", own);
        },
        OTHER_DIRECTORY,
    ),
    well(ID, |root| {
        moves(root, "10-mine.conf");
        let own = "[keyfile]\npath=/etc/NetworkManager/system-connections/\n";
        root.write(&format!("{SETTINGS}/20-keyfiles.conf"), own);
    }),
    // A file of the same name hides that of the image, and a switch takes a file out.
    well(ID, |root| {
        moves(root, "99-mine.conf");
        root.write(&format!("{SETTINGS}/99-mine.conf"), "");
        let path = "[keyfile]\npath=/etc/NetworkManager/mine\n";
        root.write("usr/lib/NetworkManager/conf.d/99-mine.conf", path);
        let off = format!("[.config]\nenable=false\n{path}");
        root.write(&format!("{SETTINGS}/99-off.conf"), &off);
        root.write(&format!("{SETTINGS}/99-off.conf.bak"), &off);
    }),
    // A relative path does not count.
    well(ID, |root| {
        moves(root, "99-mine.conf");
        root.write(
            &format!("{SETTINGS}/99-mine.conf"),
            "[keyfile]\npath=mine\n",
        );
    }),
    // Releases of 2021 joined both directories by a mount.
    well(ID, |root| {
        moves(root, "99-mine.conf");
        root.write(
            "etc/systemd/system/etc-NetworkManager-mine.mount",
            "[Mount]\nType=overlay\nWhat=overlay\nWhere=/etc/NetworkManager/mine\n\
             Options=lowerdir=/etc/NetworkManager/system-connections,upperdir=/run/up,workdir=/run/work\n",
        );
    }),
    sick(
        |root| {
            moves(root, "99-mine.conf");
            root.write(&format!("{SETTINGS}/99-mine.conf"), "[keyfile]\npath=\n");
        },
        Branch {
            seen: &["reads no directory below /etc"],
            ..OTHER_DIRECTORY
        },
    ),
    sick(
        |root| root.write(&format!("{SETTINGS}/50-x.conf"), "[main]\nplugins\n"),
        Branch {
            what: "NetworkManager does not start with its configuration",
            seen: &["/etc/NetworkManager/conf.d/50-x.conf", "line 2"],
            next: &["vi ROOT/etc/NetworkManager/conf.d/50-x.conf"],
            ..OTHER_DIRECTORY
        },
    ),
    sick(
        |root| {
            let text = "[main]\ndns=none\n";
            root.write(&format!("{SETTINGS}/99-dns.cfg"), text);
        },
        Branch {
            severity: "notice",
            what: "NetworkManager does not read a file of settings",
            seen: &["only names that end in .conf are"],
            next: &["cat ROOT/etc/NetworkManager/conf.d/99-dns.cfg"],
            ..OTHER_DIRECTORY
        },
    ),
    sick(
        |root| {
            let text = "[connection]\nid=a\ntype=ethernet\n";
            put(root, "etc/NetworkManager/lan.nmconnection", text);
        },
        Branch {
            severity: "notice",
            what: "NetworkManager does not read a connection's file",
            seen: &["takes no connection from this directory"],
            next: &["cat ROOT/etc/NetworkManager/lan.nmconnection"],
            ..OTHER_DIRECTORY
        },
    ),
    // Six letters after the last dot are the mark of a temporary file.
    sick(
        |root| ethernet(root, "bond0.static", "ens3", ""),
        Branch {
            severity: "notice",
            what: "NetworkManager does not read a connection's file",
            seen: &["bond0.static", "it has to end in .nmconnection"],
            next: &["cat ROOT/etc/NetworkManager/system-connections/bond0.static"],
            ..OTHER_DIRECTORY
        },
    ),
    sick(
        |root| root.write(&format!("{KEYFILES}/lan.nmconnection/a"), ""),
        Branch {
            severity: "notice",
            what: "NetworkManager does not read a connection's file",
            seen: &["lan.nmconnection", "it is a directory"],
            next: &["cat ROOT/etc/NetworkManager/system-connections/lan.nmconnection"],
            ..OTHER_DIRECTORY
        },
    ),
    well(ID, |root| {
        ethernet(root, "lan", "ens3", "");
        ethernet(root, "lan.nmconnection~", "ens3", "");
        ethernet(root, ".lan.nmconnection", "ens3", "");
    }),
    sick(
        |root| {
            ethernet(root, "lan.nmconnection", "ens3", "");
            let text = "[keyfile]\nunmanaged-devices=interface-name:ens*\n";
            root.write(&format!("{SETTINGS}/80-x.conf"), text);
        },
        Branch {
            severity: "warning",
            what: "NetworkManager leaves a connection's interface alone",
            seen: &["leaves ens3 alone, by [keyfile] unmanaged-devices=interface-name:ens*"],
            ..OTHER_DIRECTORY
        },
    ),
    well(ID, |root| {
        ethernet(root, "lan.nmconnection", "ens3", "");
        let text = "[keyfile]\nunmanaged-devices=except:interface-name:ens3\n[device]\nmatch-device=interface-name:=ens4;type:bond\nmanaged=0\n";
        root.write(&format!("{SETTINGS}/80-x.conf"), text);
    }),
];

#[test]
fn connections_that_networkmanager_does_not_read_or_use_are_named() {
    all_met(&DIRECTORIES);
}

const TWO: Branch = Branch {
    id: ID,
    severity: "warning",
    what: "two connections contradict each other",
    seen: &[],
    next: &["cat ROOT/etc/NetworkManager/system-connections/"],
};
const APART: Branch = Branch {
    what: "ports and their controller do not fit together",
    ..TWO
};
const RENAMED: Branch = Branch {
    what: "a connection is for a name that is changed",
    ..TWO
};

fn bond(root: &TestRoot, name: &str) {
    let text = format!(
        "id={name}\ntype=bond\nuuid=11111111-2222-3333-4444-555555555555\ninterface-name={name}\n"
    );
    connection(root, &format!("{name}.nmconnection"), &text);
}

fn link(root: &TestRoot, text: &str) {
    root.write("etc/systemd/network/10-lan.link", text);
}

const CONNECTIONS: [Row; 16] = [
    // The copy of a person is a connection, too.
    sick(
        |root| {
            ethernet(root, "lan.nmconnection", "ens3", &fixed("192.0.2.10"));
            ethernet(root, "lan.nmconnection.bak", "ens3", &fixed("192.0.2.11"));
        },
        Branch {
            seen: &[
                "it is for ens3, with the same priority as /etc/NetworkManager/system-connections/lan.nmconnection.bak",
            ],
            ..TWO
        },
    ),
    sick(
        |root| {
            let uuid = "[connection]\nuuid=11111111-2222-3333-4444-555555555555\n";
            ethernet(root, "a.nmconnection", "ens3", uuid);
            ethernet(root, "b.nmconnection", "ens4", uuid);
        },
        Branch {
            seen: &["it has the same uuid"],
            ..TWO
        },
    ),
    well(ID, |root| {
        ethernet(root, "a.nmconnection", "ens3", &fixed("192.0.2.10"));
        let high = "[connection]\nautoconnect-priority=10\n[ipv4]\nmethod=auto\n";
        ethernet(root, "b.nmconnection", "ens3", high);
        let off = "[connection]\nautoconnect=false\n[ipv4]\nmethod=disabled\n";
        ethernet(root, "c.nmconnection", "ens3", off);
    }),
    // The same settings twice do no harm, and of a file with another mode NetworkManager knows nothing.
    well(ID, |root| {
        ethernet(root, "a.nmconnection", "ens3", &fixed("192.0.2.10"));
        ethernet(root, "a.nmconnection.old", "ens3", &fixed("192.0.2.10"));
        ethernet(root, "b.nmconnection", "ens3", &fixed("192.0.2.12"));
        root.chmod(&format!("{KEYFILES}/b.nmconnection"), 0o644);
    }),
    // What configure-ovs.sh leaves beside the connection of a person.
    well(ID, |root| {
        ethernet(root, "lan.nmconnection", "ens3", &fixed("192.0.2.10"));
        ethernet(
            root,
            "ovs-if-phys0.nmconnection",
            "ens3",
            "[connection]\nmaster=ovs-port-phys0\nslave-type=ovs-port\n",
        );
        for id in ["br-ex", "ovs-if-br-ex", "ovs-port-br-ex", "ovs-port-phys0"] {
            connection(
                root,
                &format!("{id}.nmconnection"),
                &format!("id={id}\ntype=ovs-port\ninterface-name=br-ex\n"),
            );
        }
    }),
    sick(
        |root| {
            let port = "[connection]\nmaster=bond0\nslave-type=bond\n";
            ethernet(root, "a.nmconnection", "ens3", port);
        },
        Branch {
            seen: &["its controller bond0 is in no connection"],
            ..APART
        },
    ),
    well(ID, |root| {
        bond(root, "bond0");
        let port =
            "[connection]\ncontroller=11111111-2222-3333-4444-555555555555\nport-type=bond\n";
        ethernet(root, "a.nmconnection", "ens3", port);
    }),
    sick(
        |root| {
            connection(
                root,
                "bond0.nmconnection",
                "id=bond0\ntype=bond\ninterface-name=uplink\n",
            );
            ethernet(
                root,
                "a.nmconnection",
                "ens3",
                "[connection]\nmaster=uplink\nslave-type=bond\n",
            );
            ethernet(
                root,
                "b.nmconnection",
                "ens4",
                "[connection]\nmaster=bond0\nslave-type=bond\n",
            );
        },
        Branch {
            seen: &[
                "its controller bond0 is only the id of /etc/NetworkManager/system-connections/bond0.nmconnection",
            ],
            ..APART
        },
    ),
    sick(
        |root| {
            bond(root, "bond0");
            ethernet(
                root,
                "a.nmconnection",
                "ens3",
                "[connection]\nmaster=bond0\nslave-type=bridge\n",
            );
        },
        Branch {
            seen: &[
                "it is a port of a bridge, but /etc/NetworkManager/system-connections/bond0.nmconnection is a bond",
            ],
            ..APART
        },
    ),
    sick(
        |root| bond(root, "bond0"),
        Branch {
            seen: &["no connection is a port of this bond"],
            ..APART
        },
    ),
    // nmstate makes the ports.
    well(ID, |root| {
        bond(root, "bond0");
        root.write("etc/nmstate/bond.yml", STATE);
    }),
    // The initramfs makes the bond.
    well(ID, |root| {
        root.write(
            "boot/loader/entries/ostree-1.conf",
            "title x\nversion 1\noptions rw bond=bond0:ens3,ens4 ip=bond0:dhcp ostree=/ostree/boot.1/rhcos/0/0\nlinux /ostree/rhcos-0/vmlinuz-1\n",
        );
        ethernet(
            root,
            "a.nmconnection",
            "ens3",
            "[connection]\nmaster=bond0\nslave-type=bond\n",
        );
    }),
    sick(
        |root| {
            link(
                root,
                "[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Link]\nName=lan0\n",
            );
            let mac = "[ethernet]\nmac-address=52:54:00:AA:BB:CC\n";
            ethernet(root, "a.nmconnection", "ens3", mac);
        },
        Branch {
            seen: &["it is for ens3, which /etc/systemd/network/10-lan.link names lan0"],
            ..RENAMED
        },
    ),
    sick(
        |root| {
            link(root, "[Match]\nOriginalName=eth0\n[Link]\nName=lan0\n");
            ethernet(root, "a.nmconnection", "eth0", "");
        },
        Branch {
            seen: &["names lan0"],
            ..RENAMED
        },
    ),
    well(ID, |root| {
        link(
            root,
            "[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Link]\nName=lan0\n",
        );
        let mac = "[ethernet]\nmac-address=52:54:00:AA:BB:CC\n";
        ethernet(root, "a.nmconnection", "lan0", mac);
    }),
    well(ID, |root| {
        link(
            root,
            "[Match]\nMACAddress=52:54:00:aa:bb:cc\nDriver=virtio_net\n[Link]\nName=lan0\n",
        );
        let mac = "[ethernet]\nmac-address=52:54:00:AA:BB:CC\n";
        ethernet(root, "a.nmconnection", "ens3", mac);
    }),
];

#[test]
fn connections_that_contradict_each_other_are_named() {
    all_met(&CONNECTIONS);
}

#[test]
fn two_bridges_on_one_interface_are_named() {
    let root = healthy();
    root.write("etc/ovnk/default_bridge", "ens3\n");
    assert_eq!(of(&doctor(&root), ID), Vec::<Value>::new());
    root.write("etc/ovnk/extra_bridge", "ens3");
    let text = found(&doctor(&root), ID, "warning");
    says(
        &text,
        &["/etc/ovnk/default_bridge", "so does /etc/ovnk/extra_bridge"],
    );
    root.write("etc/ovnk/extra_bridge", "ens4\n");
    assert_eq!(of(&doctor(&root), ID), Vec::<Value>::new());
    on_a_node(|node| {
        show_devices(node);
        node.root.write("etc/ovnk/default_bridge", "ens999\n");
        let text = found(&doctor_on(node), ID, "warning");
        says(&text, &["it names ens999, which is missing"]);
    });
}

#[test]
fn what_is_not_read_is_not_judged_by_the_other_checks() {
    let root = healthy();
    moves(&root, "99-mine.conf");
    root.chmod(&format!("{KEYFILES}/lan.nmconnection"), 0o644);
    let other = "etc/NetworkManager/mine/lan";
    put(&root, other, "[connection]\nid=lan\n");
    root.chmod(other, 0o644);
    let text = found(&doctor(&root), "FP-08", "warning");
    says(&text, &["/etc/NetworkManager/mine/lan", "mode 0644"]);
    assert!(!text.contains("system-connections"), "{text}");
}

fn without_ipv6(name: &str, network: &str) -> Value {
    let mut config = worker::prepared_for(network, name);
    config["spec"]["kernelArguments"] = json!(["quiet", "ipv6.disable=1"]);
    config
}

#[test]
fn ovn_without_ipv6_is_named_before_and_after() {
    let root = healthy();
    let config = root.config(&without_ipv6("rendered-worker-b", "OVNKubernetes"));
    let plan = root.run(&["plan", "--files-only", config.path()]);
    says(
        &crate::support::flat(&plan.out()),
        &["ipv6.disable=1", "OVN-Kubernetes does not run"],
    );
    root.run(&["apply", "--yes", "--files-only", config.path()])
        .ok();
    let text = found(&doctor(&root), ID, "critical");
    says(
        &text,
        &["spec.kernelArguments", "CrashLoopBackOff", "oc edit mc"],
    );
    // Another network does without, and zero is no one.
    let root = healthy();
    let config = root.config(&without_ipv6("rendered-worker-b", "OpenShiftSDN"));
    root.run(&["apply", "--yes", "--files-only", config.path()])
        .ok();
    assert_eq!(of(&doctor(&root), ID), Vec::<Value>::new());
}

#[test]
fn a_plan_names_what_its_config_brings_and_nothing_reads() {
    let root = healthy();
    root.write("usr/local/bin/nmstate-configuration.sh", "#!/bin/bash\n");
    ethernet(&root, "lan.nmconnection", "ens3", "");
    root.write(&format!("{SETTINGS}/99-old.cfg"), "[main]\ndns=none\n");
    let mut config = worker::prepared_for("OVNKubernetes", "rendered-worker-b");
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    files.unwrap().extend([
        file(&format!("/{STATES}/cluster.yaml"), 0o644, STATE),
        file(
            &format!("/{SETTINGS}/99-mine.conf"),
            0o644,
            "[keyfile]\npath=/etc/NetworkManager/mine\n",
        ),
    ]);
    let config = root.config(&config);
    let text = crate::support::flat(&root.run(&["plan", config.path()]).out());
    says(
        &text,
        &[
            "/etc/nmstate/openshift/cluster.yaml: never read",
            "/etc/NetworkManager/system-connections/lan.nmconnection: not read",
        ],
    );
    // What was so before is not of this run.
    assert!(!text.contains("99-old.cfg"), "{text}");
}

#[test]
fn a_bond_that_the_kernel_has_needs_no_connection() {
    on_a_node(|node| {
        // `lo` is on every machine.
        let port = "[connection]\nmaster=lo\nslave-type=bond\n";
        ethernet(&node.root, "a.nmconnection", "ens3", port);
        let text = found(&doctor_on(node), ID, "warning");
        says(&text, &["its controller lo is in no connection"]);
        show_devices(node);
        assert_eq!(of(&doctor_on(node), ID), Vec::<Value>::new());
    });
}

/// The devices of the kernel are those of this machine.
fn show_devices(node: &OstreeNode) {
    let sys = node.root.path("sys");
    fs::create_dir_all(&sys).unwrap();
    mount(&["--bind", "/sys", sys.to_str().unwrap()]);
}

/// Writes a keyfile of this machine's namespace.
fn write_keyfile(path: &str, id: u32, more: &str) {
    let path = Path::new(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, keyfile(id, "v0", &format!("192.0.2.{id}"), more)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

const NAMES: [&str; 17] = [
    "/etc/NetworkManager/system-connections/lan.nmconnection",
    "/etc/NetworkManager/system-connections/lan",
    "/etc/NetworkManager/system-connections/lan.nmconnection.bak",
    "/etc/NetworkManager/system-connections/lan.nmconnection~",
    "/etc/NetworkManager/system-connections/lan.static",
    "/etc/NetworkManager/system-connections/lan.backup",
    "/etc/NetworkManager/system-connections/lan.statics",
    "/etc/NetworkManager/system-connections/.lan",
    "/etc/NetworkManager/system-connections/lan.PEM",
    "/etc/NetworkManager/system-connections/lan.nmconnection.mco-rescue-20260101T000000Z",
    "/etc/NetworkManager/system-connections/below/a.nmconnection",
    "/etc/NetworkManager/conf.d/a.nmconnection",
    "/etc/NetworkManager/a.nmconnection",
    "/run/NetworkManager/system-connections/a.nmconnection",
    "/run/NetworkManager/system-connections/b",
    "/usr/lib/NetworkManager/system-connections/c.nmconnection",
    "/usr/lib/NetworkManager/system-connections/d",
];

#[test]
fn networkmanager_itself_reads_the_same_files() {
    with_services(|node| {
        for (id, path) in (1..).zip(NAMES) {
            write_keyfile(path, id, "autoconnect=false");
        }
        let network = Network::begin(node);
        let shown = command(&["nmcli", "-g", "FILENAME", "connection", "show"]);
        let mut theirs: Vec<&str> = shown.lines().filter(|line| NAMES.contains(line)).collect();
        theirs.sort_unstable();
        let root = Root::open(Path::new("/")).unwrap();
        let mut unseen = Vec::new();
        let ours = network_manager::read_connections(&root, &mut unseen);
        let ours = ours.iter().map(|one| one.path.to_string());
        // NetworkManager writes one for the loopback device.
        let mut ours: Vec<String> = ours.filter(|path| NAMES.contains(&path.as_str())).collect();
        ours.sort();
        assert_eq!(ours, theirs, "{}", network.log());
        assert!(unseen.is_empty() && theirs.len() == 7, "{ours:?}");
    });
}

/// The rest of a keyfile, and if NetworkManager loads it.
const SETTINGS_OF_A_CONNECTION: [(&str, bool); 22] = [
    ("interface-name=v0\n[ipv4]\nmethod=auto", true),
    ("interface-name=abcdefghijklmno", true),
    ("interface-name=abcdefghijklmnop", false),
    ("interface-name=a b", false),
    ("interface-name=a/b", false),
    ("interface-name=..", false),
    ("[ipv4]\nmethod=static", false),
    ("[ipv4]\nmethod=dhcp", false),
    ("[ipv6]\nmethod=dhcp", true),
    ("[ipv6]\nmethod=ignore", true),
    ("[ipv4]\nmethod=manual", false),
    ("[ipv6]\nmethod=manual", false),
    ("[ipv4]\nmethod=manual\naddress1=192.0.2.10/24", true),
    (
        "[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1",
        true,
    ),
    (
        "[ipv4]\nmethod=manual\naddresses1=192.0.2.10;24;192.0.2.1;",
        true,
    ),
    ("[ipv4]\nmethod=manual\naddresses=192.0.2.10/24", true),
    ("[ipv4]\nmethod=manual\naddress1=192.0.2.300/24", false),
    (
        "[ipv4]\nmethod=manual\naddress1=192.0.2.10/255.255.255.0",
        true,
    ),
    ("[ipv4]\nmethod=manual\naddress1=2001:db8::a/64", false),
    ("[ipv6]\nmethod=manual\naddress1=2001:db8::a/64", true),
    ("master=v9\nslave-type=bridge", true),
    ("[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled", true),
];

#[test]
fn networkmanager_itself_loads_the_same_connections() {
    with_services(|node| {
        let path = |index: usize| format!("/{KEYFILES}/c{index}.nmconnection");
        fs::create_dir_all(format!("/{KEYFILES}")).unwrap();
        for (index, (rest, _)) in SETTINGS_OF_A_CONNECTION.iter().enumerate() {
            let text = format!(
                "[connection]\nid=c{index}\nuuid=11111111-1111-1111-1111-{index:012}\ntype=ethernet\nautoconnect=false\n{rest}\n"
            );
            fs::write(path(index), text).unwrap();
            fs::set_permissions(path(index), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let network = Network::begin(node);
        let shown = command(&["nmcli", "-g", "FILENAME", "connection", "show"]);
        let root = Root::open(Path::new("/")).unwrap();
        let ours = mco_rescue::node::service_configs::read_service_configs(&root, None).unwrap();
        let mut wrong = Vec::new();
        for (index, (rest, loads)) in SETTINGS_OF_A_CONNECTION.iter().enumerate() {
            let path = path(index);
            let theirs = shown.lines().any(|line| line == path);
            let refused = ours.iter().any(|one| one.place == path);
            if (theirs, refused) != (*loads, !loads) {
                wrong.push((rest, theirs, !refused));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}: {}", network.log());
    });
}

/// Devices that are left alone, and if `v0` is one of them.
const SPECS: [(&str, bool); 10] = [
    ("interface-name:v0", true),
    ("interface-name:v?", true),
    ("interface-name:=v?", false),
    ("v0", true),
    ("v*", false),
    ("except:interface-name:v1", true),
    ("except:interface-name:v*", false),
    ("*", true),
    ("*;except:interface-name:v0", false),
    ("interface-name:v*,except:v0", true),
];

#[test]
fn networkmanager_itself_leaves_the_same_devices_alone() {
    with_services(|node| {
        let file = "/etc/NetworkManager/conf.d/99-x.conf";
        fs::create_dir_all("/etc/NetworkManager/conf.d").unwrap();
        let mut network = Network::begin(node);
        for (spec, wanted) in SPECS {
            fs::write(file, format!("[keyfile]\nunmanaged-devices={spec}\n")).unwrap();
            network.end();
            network.start();
            let shown = command(&["nmcli", "-g", "DEVICE,STATE", "device"]);
            let theirs = shown.lines().any(|line| line == "v0:unmanaged");
            let root = Root::open(Path::new("/")).unwrap();
            let ours = network_manager::NetworkManagerSettings::read(&root);
            let ours = ours.unmanages("v0", "ethernet").is_some();
            assert_eq!((ours, theirs), (wanted, wanted), "{spec}: {shown}");
        }
    });
}

#[test]
fn networkmanager_itself_has_the_same_directory_of_connections() {
    let path = |at: &str| format!("[keyfile]\npath={at}\n");
    let (own, lib) = (
        "/etc/NetworkManager/conf.d",
        "/usr/lib/NetworkManager/conf.d",
    );
    let run = "/run/NetworkManager/conf.d";
    let main = "/etc/NetworkManager/NetworkManager.conf".to_owned();
    let at = |directory: &str, name: &str| format!("{directory}/{name}");
    let off = |how: &str| format!("[.config]\nenable={how}\n{}", path("/b"));
    let cases: [Vec<(String, String)>; 10] = [
        vec![],
        vec![
            (at(own, "10-a.conf"), path("/a")),
            (at(own, "20-b.conf"), path("/b")),
        ],
        vec![
            (at(lib, "20-b.conf"), path("/b")),
            (main.clone(), path("/a")),
        ],
        vec![(main, path("/b")), (at(own, "10-a.conf"), path("/a"))],
        vec![
            (at(lib, "20-b.conf"), path("/b")),
            (at(run, "10-a.conf"), path("/a")),
        ],
        vec![
            (at(lib, "20-b.conf"), path("/b")),
            (at(own, "20-b.conf"), String::new()),
        ],
        vec![
            (at(own, "10-a.conf"), path("/a")),
            (at(own, "20-b.conf"), off("no")),
        ],
        vec![
            (at(own, "10-a.conf"), path("/a")),
            (at(own, "20-b.conf"), off("env:x")),
        ],
        vec![
            (at(own, "10-a.conf"), path("/a")),
            (at(own, "20-b.cfg"), path("/b")),
        ],
        vec![
            (at(own, "10-a.conf"), path("/a")),
            (at(own, "20-b.conf"), path("")),
        ],
    ];
    with_services(|_| {
        for case in cases {
            for directory in [own, lib, run] {
                let _ = fs::remove_dir_all(directory);
                fs::create_dir_all(directory).unwrap();
            }
            fs::write("/etc/NetworkManager/NetworkManager.conf", "").unwrap();
            for (place, text) in &case {
                fs::write(place, text).unwrap();
            }
            let said = command(&["/usr/sbin/NetworkManager", "--print-config"]);
            let theirs = said.lines().find_map(|line| line.strip_prefix("path="));
            let root = Root::open(Path::new("/")).unwrap();
            let settings = network_manager::NetworkManagerSettings::read(&root);
            let ours = settings
                .find_value("keyfile", "path")
                .map(|(value, _)| value);
            assert_eq!(ours, theirs, "{case:?}: {said}");
        }
    });
}
