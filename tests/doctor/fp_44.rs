//! FP-44: a unit waits, and the kubelet waits for it.

use std::fs;

use super::small::directory;
use super::worker::{Branch, Row, all_met, booted, is_well, sick, well};
use super::{CRITICAL, Dark, doctor, doctor_exits, doctor_on, of, unseen};
use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::OstreeNode;
use crate::support::{Lacks, TestRoot, copy_program, skip};

const IMAGE: &str =
    "quay.example/cfg@sha256:3333333333333333333333333333333333333333333333333333333333333333";
const STORE: &str = "var/lib/containers/storage/overlay-images/images.json";
const UNITS: &str = "etc/systemd/system";

/// The unit that chooses the address, and its link, as on a node without a platform.
fn chooses_address(root: &TestRoot) {
    root.write(
        &format!("{UNITS}/nodeip-configuration.service"),
        &format!(
            "[Service]\nType=oneshot\nExecStart=/bin/bash -c \" \\\n  until \\\n  /usr/bin/podman run --rm \\\n  {IMAGE} \\\n  node-ip \\\n  set; \\\n  do \\\n  sleep 5; \\\n  done\"\n[Install]\nRequiredBy=kubelet-dependencies.target\n"
        ),
    );
    let link = format!("{UNITS}/kubelet-dependencies.target.requires");
    fs::create_dir_all(root.path(&link)).unwrap();
    root.link(
        &format!("{link}/nodeip-configuration.service"),
        "../nodeip-configuration.service",
    );
}

fn stores(root: &TestRoot, image: &str) {
    root.write(
        STORE,
        &format!(r#"[{{"id": "aa", "names": ["{image}"], "layer": ""}}]"#),
    );
}

const ROWS: [Row; 4] = [
    sick(
        |root| {
            chooses_address(root);
            stores(root, "quay.example/other:1");
        },
        Branch {
            id: "FP-44",
            severity: "notice",
            what: "the next boot needs an image from a registry",
            seen: &["nodeip-configuration.service", IMAGE],
            next: &["ls -l ROOT/var/lib/containers/storage"],
        },
    ),
    well("FP-44", |root| {
        chooses_address(root);
        stores(root, IMAGE);
    }),
    // Nothing has run here yet: the first boot pulls everything.
    well("FP-44", chooses_address),
    // The unit is not enabled.
    well("FP-44", |root| {
        chooses_address(root);
        root.remove(&format!(
            "{UNITS}/kubelet-dependencies.target.requires/nodeip-configuration.service"
        ));
        stores(root, "quay.example/other:1");
    }),
];

#[test]
fn an_image_that_the_next_boot_waits_for_is_reported_on_a_disk() {
    all_met(&ROWS);
    let root = super::worker::healthy();
    let text = unseen(&doctor(&root), "FP-44");
    assert!(text.contains("systemd answers only on the node"), "{text}");
}

pub(super) const DARK: &[Dark] = &[(
    "FP-44",
    "conditions of units: /run/NetworkManager/resolv.conf",
    |root| directory(root, "run/NetworkManager/resolv.conf"),
)];

/// A booting node. STUB of systemctl: jobs, times and states are files; the form of the jobs is that of `list-jobs` in
/// systemd 252 and 257.
fn on_a_booting_node(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = booted();
        copy_program(&node.root, "/bin/cat");
        node.program(
            "systemctl",
            r#"case $* in
"list-jobs --no-legend --plain --full") cat /stub/jobs ;;
"show --property=Id,InactiveExitTimestampMonotonic -- "*) cat /stub/times ;;
"show --property=Id,ActiveState,SubState -- "*) cat /stub/states ;;
*) exit 1 ;; esac"#,
        );
        for file in ["jobs", "times", "states"] {
            node.root.write(&format!("stub/{file}"), "");
        }
        kubelet(&node, "inactive", "dead");
        node.root.write("uptime", "1000.55 1900.10\n");
        let (file, shown) = (node.root.path("uptime"), node.root.path("proc/uptime"));
        mount(&["--bind", file.to_str().unwrap(), shown.to_str().unwrap()]);
        interfaces(&node, "ens3", "192.0.2.10");
        test(&node);
    });
}

fn kubelet(node: &OstreeNode, active: &str, sub: &str) {
    let text = format!("Id=kubelet.service\nActiveState={active}\nSubState={sub}\n");
    node.root.write("stub/states", &text);
}

/// STUB of ip: one interface.
fn interfaces(node: &OstreeNode, name: &str, address: &str) {
    node.program(
        "ip",
        &format!(
            r#"echo '[{{"ifname":"{name}","addr_info":[{{"local":"{address}","prefixlen":24}}]}}]'"#
        ),
    );
}

/// The unit runs since so many seconds after the start of the kernel; the kubelet waits for it.
fn waits(node: &OstreeNode, unit: &str, since: u32) {
    node.root.write(
        "stub/jobs",
        &format!(
            "    1 multi-user.target            start waiting\n  {:>3} {unit} start running\n  102 kubelet-dependencies.target start waiting\n  103 kubelet.service start waiting\n",
            86
        ),
    );
    let times = format!("Id={unit}\nInactiveExitTimestampMonotonic={since}000000\n");
    node.root.write("stub/times", &times);
}

#[test]
fn an_address_that_is_never_found_holds_the_kubelet() {
    on_a_booting_node(|node| {
        waits(node, "nodeip-configuration.service", 10);
        let held = Branch {
            id: "FP-44",
            severity: "critical",
            what: "nodeip-configuration.service still waits",
            seen: &[
                "running for 16 minutes",
                "/run/nodeip-configuration/primary-ip",
                "Failed to find a suitable node IP",
                "kubelet is not started before it ends",
            ],
            next: &["journalctl -b -u nodeip-configuration -n 20"],
        };
        held.met_by(&doctor_exits(node, CRITICAL), "");
        // Without its image it does not even look for one.
        chooses_address(&node.root);
        stores(&node.root, "quay.example/other:1");
        let pulls = Branch {
            seen: &["is not on the node", IMAGE],
            next: &["podman pull --authfile /var/lib/kubelet/config.json quay.example/cfg@"],
            ..held
        };
        pulls.met_by(&doctor_on(node), "");
        // A kubelet that runs already is not held.
        kubelet(node, "active", "running");
        Branch {
            severity: "warning",
            ..pulls
        }
        .met_by(&doctor_on(node), "");
        // It has only just begun.
        stores(&node.root, IMAGE);
        waits(node, "nodeip-configuration.service", 900);
        is_well(node, "FP-44");
        // A first boot takes its time.
        waits(node, "nodeip-configuration.service", 200);
        node.root
            .write("etc/ignition-machine-config-encapsulated.json", "{}");
        is_well(node, "FP-44");
        node.root
            .remove("etc/ignition-machine-config-encapsulated.json");
        // The condition is met, and its job is about to end.
        waits(node, "nodeip-configuration.service", 10);
        node.root
            .write("run/nodeip-configuration/primary-ip", "192.0.2.10\n");
        is_well(node, "FP-44");
    });
}

#[test]
fn each_unit_is_reported_with_what_it_waits_for() {
    on_a_booting_node(|node| {
        let met = |branch: Branch| branch.met_by(&doctor_on(node), "");
        let base = Branch {
            id: "FP-44",
            severity: "critical",
            what: "",
            seen: &[],
            next: &[],
        };
        waits(node, "wait-for-br-ex-up.service", 10);
        met(Branch {
            what: "wait-for-br-ex-up.service still waits",
            seen: &["/run/nodeip-configuration/br-ex-up", "no br-ex"],
            next: &["journalctl -b -u ovs-configuration -n 20"],
            ..base
        });
        waits(node, "ovs-configuration.service", 10);
        met(Branch {
            what: "ovs-configuration.service still waits",
            seen: &["no br-ex"],
            next: &["journalctl -b -u ovs-configuration -n 20"],
            ..base
        });
        interfaces(node, "br-ex", "192.0.2.10");
        is_well(node, "FP-44");
        waits(node, "wait-for-br-ex-up.service", 10);
        met(Branch {
            what: "wait-for-br-ex-up.service still waits",
            seen: &["br-ex has an address"],
            next: &["touch /run/nodeip-configuration/br-ex-up"],
            ..base
        });
        node.root.write("run/nodeip-configuration/br-ex-up", "");
        is_well(node, "FP-44");
        waits(node, "on-prem-resolv-prepender.service", 10);
        met(Branch {
            what: "on-prem-resolv-prepender.service still waits",
            seen: &["NM resolv.conf still empty of nameserver"],
            next: &["nmcli device show"],
            ..base
        });
        node.root
            .write("run/NetworkManager/resolv.conf", "nameserver 192.0.2.1\n");
        let script = format!("if ! podman image exists \"{IMAGE}\"; then\n");
        node.root
            .write("usr/local/bin/resolv-prepender.sh", &script);
        stores(&node.root, "quay.example/other:1");
        met(Branch {
            what: "on-prem-resolv-prepender.service still waits",
            seen: &["/usr/local/bin/resolv-prepender.sh", "is not on the node"],
            next: &["podman pull "],
            ..base
        });
        node.root.write("run/resolv-prepender-kni-conf-done", "");
        is_well(node, "FP-44");
        waits(node, "wait-for-node-ip.service", 10);
        is_well(node, "FP-44");
        node.root.write("etc/nmstate/openshift/applied", "x\n");
        met(Branch {
            what: "wait-for-node-ip.service still waits",
            seen: &["No primary ip to bind was found"],
            next: &["journalctl -b -u nodeip-configuration -n 20"],
            ..base
        });
        node.root
            .write("run/nodeip-configuration/primary-ip", "192.0.2.99\n");
        met(Branch {
            what: "wait-for-node-ip.service still waits",
            seen: &["192.0.2.99", "not on any interface"],
            next: &["ip -br addr"],
            ..base
        });
        waits(node, "chrony-wait.service", 10);
        met(Branch {
            severity: "warning",
            what: "chrony-wait.service still waits",
            seen: &["chronyc waitsync"],
            next: &["systemctl stop chrony-wait.service"],
            ..base
        });
        waits(node, "vsphere-hostname.service", 500);
        is_well(node, "FP-44");
        waits(node, "vsphere-hostname.service", 300);
        met(Branch {
            severity: "warning",
            what: "vsphere-hostname.service still waits",
            seen: &["metadata service"],
            next: &["journalctl -b -u vsphere-hostname -n 20"],
            ..base
        });
        // Others have their own reasons.
        waits(node, "someone-elses.service", 10);
        is_well(node, "FP-44");
    });
}

#[test]
fn a_name_is_waited_for_before_the_first_join() {
    on_a_booting_node(|node| {
        waits(node, "node-valid-hostname.service", 10);
        is_well(node, "FP-44");
        node.root.write("kernel-hostname", "localhost\n");
        // With a certificate, the name is the matter of FP-45.
        is_well(node, "FP-44");
        node.root.remove(super::worker::CLIENT);
        Branch {
            id: "FP-44",
            severity: "warning",
            what: "node-valid-hostname.service still waits",
            seen: &[
                "waiting for non-localhost hostname to be assigned",
                "localhost",
            ],
            next: &["hostnamectl set-hostname --static NAME"],
        }
        .met_by(&doctor_on(node), "");
    });
}

#[test]
fn a_kubelet_whose_own_condition_is_false_is_found() {
    on_a_booting_node(|node| {
        kubelet(node, "activating", "auto-restart");
        is_well(node, "FP-44");
        let drop_in = "etc/systemd/system/kubelet.service.d/10-mco-on-prem-wait-resolv.conf";
        // Other platforms have the file without content.
        node.root.write(drop_in, "");
        is_well(node, "FP-44");
        node.root.write(
            drop_in,
            "[Service]\nExecCondition=/bin/bash -c \"test -f /run/resolv-prepender-kni-conf-done || exit 255\"\n",
        );
        Branch {
            id: "FP-44",
            severity: "critical",
            what: "the kubelet waits for the node's resolver",
            seen: &[
                "activating (auto-restart)",
                "/run/resolv-prepender-kni-conf-done",
            ],
            next: &[
                "systemctl start --no-block on-prem-resolv-prepender.service",
                "journalctl -b -u on-prem-resolv-prepender -n 20",
            ],
        }
        .met_by(&doctor_exits(node, CRITICAL), "");
        // The first minutes of a boot.
        node.root.write("uptime", "200.10 300.10\n");
        is_well(node, "FP-44");
        node.root.write("uptime", "1000.10 300.10\n");
        node.root.write("run/resolv-prepender-kni-conf-done", "");
        is_well(node, "FP-44");
    });
}

/// Starts systemd as a manager of a user, in namespaces and a cgroup of its own, with units of these names, and prints its jobs
/// once one of them runs. The first argument is a directory.
const REAL: &str = r#"
cd "$1"; mkdir units home
for unit in shutdown basic sysinit; do printf '[Unit]\nDefaultDependencies=no\n' >units/$unit.target; done
printf '[Unit]\nBefore=kubelet-dependencies.target\n[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n' >units/nodeip-configuration.service
printf '[Unit]\nRequires=nodeip-configuration.service\n' >units/kubelet-dependencies.target
printf '[Unit]\nRequires=kubelet-dependencies.target\nAfter=kubelet-dependencies.target\n[Service]\nExecStart=/bin/sleep 600\n' >units/kubelet.service
printf '[Unit]\nRequires=kubelet.service\n' >units/default.target
mount --make-rprivate /; mount -t tmpfs run /run; mkdir -p /run/systemd/system /run/user
umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup
export XDG_RUNTIME_DIR=/run/user HOME="$1/home" SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_LOG_TARGET=null
unset DBUS_SESSION_BUS_ADDRESS
/usr/lib/systemd/systemd --user </dev/null >/dev/null 2>&1 &
until systemctl --user list-jobs --no-legend --plain --full >jobs 2>/dev/null && grep -q running jobs; do kill -0 $!; done
systemctl --user show --property=Id,InactiveExitTimestampMonotonic -- nodeip-configuration.service >times
"#;

#[test]
fn jobs_of_the_real_systemd_are_understood() {
    on_a_booting_node(|node| {
        let top = std::process::Command::new("findmnt")
            .args(["-n", "-t", "cgroup2", "-o", "TARGET"])
            .output();
        let top = top.map_or_else(|_| Vec::new(), |output| output.stdout);
        let top = String::from_utf8(top).unwrap();
        let group = top.lines().next().map(|top| {
            let name = format!("mco-rescue-jobs-{}", std::process::id());
            std::path::Path::new(top).join(name)
        });
        let Some(group) = group.filter(|group| fs::create_dir(group).is_ok()) else {
            return skip(Lacks::Machine, "no cgroup2 that can be written");
        };
        let there = tempfile::tempdir().unwrap();
        // The group is left with the end of its processes, and removed from the inside out.
        let script = format!(
            "echo 0 >{0}/cgroup.procs; timeout 60 unshare -m -C -p -f --kill-child --mount-proc bash -euc '{1}' - \"$1\"; code=$?; \
             echo 0 >{0}/../cgroup.procs; echo 1 >{0}/cgroup.kill; \
             until find {0} -depth -type d -exec rmdir {{}} + 2>/dev/null; do [ -e {0} ] || break; done; exit $code",
            group.display(),
            REAL.replace('\'', "'\\''"),
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &script, "-"])
            .arg(there.path())
            .output()
            .unwrap();
        let read = |file: &str| fs::read_to_string(there.path().join(file)).unwrap_or_default();
        let (jobs, times) = (read("jobs"), read("times"));
        if times.is_empty() {
            return skip(
                Lacks::Machine,
                &format!(
                    "systemd does not run here: {}",
                    String::from_utf8_lossy(&output.stderr)
                ),
            );
        }
        assert!(jobs.contains("kubelet.service"), "{jobs}");
        node.root.write("stub/jobs", &jobs);
        node.root.write("stub/times", &times);
        let began = times.trim().rsplit('=').next().unwrap();
        let began: u64 = began.parse().unwrap();
        let later = began / 1_000_000 + 300;
        node.root.write("uptime", &format!("{later}.00 1.00\n"));
        Branch {
            id: "FP-44",
            severity: "critical",
            what: "nodeip-configuration.service still waits",
            seen: &["running for 5 minutes", "\"said\":\"3\""],
            next: &["journalctl -b -u nodeip-configuration -n 20"],
        }
        .met_by(&doctor_on(node), "");
    });
}

#[test]
fn jobs_that_cannot_be_listed_are_no_trouble() {
    on_a_booting_node(|node| {
        node.program(
            "systemctl",
            "echo 'Failed to connect to bus: No such file or directory' >&2; exit 1",
        );
        let report = doctor_on(node);
        assert_eq!(of(&report, "FP-44"), Vec::<serde_json::Value>::new());
        let text = unseen(&report, "FP-44");
        assert!(text.contains("Failed to connect to bus"), "{text}");
    });
}

#[test]
fn no_real_config_is_taken_for_trouble_of_the_host() {
    let Some(folder) = crate::support::shared_data("rendered") else {
        return;
    };
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let root = TestRoot::new();
        root.run(&["apply", "--yes", path.to_str().unwrap()]).ok();
        root.write(
            super::worker::CLIENT,
            &super::certificate("system:node:node-0", 20),
        );
        root.write("etc/hostname", "node-0\n");
        let report = doctor(&root);
        for id in ["FP-29", "FP-44", "FP-45", "FP-46", "FP-53", "FP-59"] {
            let found = of(&report, id);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}
