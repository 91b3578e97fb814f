use super::*;
use crate::judge::daemon::actions::{default_policies, laid_over_defaults};
use crate::judge::daemon::policies::{FilePolicy, PolicyAction};

/// Services of a running node, each with its states.
const AT_WORK: &[(&str, &str, &str)] = &[
    ("multi-user.target", "active", "active"),
    ("sshd.service", "active", "running"),
    ("NetworkManager.service", "active", "running"),
    ("nftables.service", "active", "exited"),
    ("firewalld.service", "active", "running"),
    ("kubelet.service", "active", "running"),
    ("crio.service", "active", "running"),
    ("chronyd.service", "active", "running"),
    ("systemd-journald.service", "active", "running"),
    ("systemd-resolved.service", "active", "running"),
    ("dbus.service", "active", "running"),
    ("site.service", "active", "running"),
    ("site.timer", "active", "waiting"),
    ("site.socket", "active", "listening"),
    ("setup.service", "active", "exited"),
    ("getty@tty1.service", "active", "running"),
    ("getty@tty2.service", "active", "running"),
    ("data.mount", "active", "mounted"),
    ("rsyslog.service", "failed", "failed"),
    ("dnsmasq.service", "activating", "auto-restart"),
];

fn facts() -> ServicesAtWork {
    let unit = |(name, active, sub): &(&str, &str, &str)| UnitActivity {
        name: (*name).to_owned(),
        active: (*active).into(),
        sub: (*sub).to_owned(),
    };
    ServicesAtWork {
        units: AT_WORK.iter().map(unit).collect(),
        settings: vec!["net/ipv4/ip_forward=0".into()],
        ..ServicesAtWork::default()
    }
}

fn path(text: &str) -> RootPath {
    RootPath::parse(text).unwrap()
}

fn change(text: &str, before: bool, after: bool) -> ChangedPath {
    ChangedPath {
        path: path(text),
        before,
        after,
        masks: false,
        port: false,
    }
}

fn told(changed: &[ChangedPath], facts: &ServicesAtWork) -> (Vec<String>, Vec<String>) {
    let all = activation_jobs(changed, facts, &default_policies());
    let jobs = all.jobs.iter().map(Job::to_string).collect();
    let left = all
        .left
        .iter()
        .map(|left| format!("{} {}", left.path, left.why));
    (jobs, left.collect())
}

fn changed(text: &str) -> ChangedPath {
    change(text, true, true)
}

const KEYFILE: &str = "/etc/NetworkManager/system-connections/ens3.nmconnection";

/// Files, and what makes their programs read them.
const READERS: &[(&str, &[&str])] = &[
    ("/etc/ssh/sshd_config", &["sshd -t, reload sshd.service"]),
    (
        "/etc/ssh/sshd_config.d/40-site.conf",
        &["sshd -t, reload sshd.service"],
    ),
    (
        "/etc/ssh/ssh_host_ed25519_key",
        &["sshd -t, reload sshd.service"],
    ),
    (
        "/etc/sysconfig/sshd",
        &["sshd -t, reload sshd.service", "restart sshd.service"],
    ),
    ("/etc/ssh/ssh_config", &[]),
    (
        KEYFILE,
        &["activate the connection /etc/NetworkManager/system-connections/ens3.nmconnection"],
    ),
    (
        "/etc/sysconfig/network-scripts/ifcfg-ens3",
        &["activate the connection /etc/sysconfig/network-scripts/ifcfg-ens3"],
    ),
    (
        "/etc/NetworkManager/NetworkManager.conf",
        &["reload-or-restart NetworkManager.service"],
    ),
    (
        "/etc/NetworkManager/conf.d/99-site.conf",
        &["reload-or-restart NetworkManager.service"],
    ),
    ("/etc/NetworkManager/dispatcher.d/30-site", &[]),
    (
        "/etc/sysconfig/nftables.conf",
        &["reload-or-restart nftables.service"],
    ),
    (
        "/etc/nftables/site.nft",
        &["reload-or-restart nftables.service"],
    ),
    (
        "/etc/firewalld/zones/public.xml",
        &["reload-or-restart firewalld.service"],
    ),
    ("/etc/kubernetes/kubelet.conf", &["restart kubelet.service"]),
    ("/etc/kubernetes/ca.crt", &["restart kubelet.service"]),
    (
        "/etc/openshift/kubelet.conf.d/20-auto-sizing.conf",
        &["restart kubelet.service"],
    ),
    ("/etc/node-sizing-enabled.env", &["restart kubelet.service"]),
    ("/etc/sysconfig/kubelet", &["restart kubelet.service"]),
    ("/etc/kubernetes/manifests/site.yaml", &[]),
    // From the daemon's own policies.
    (
        "/etc/kubernetes/credential-providers/ecr.yaml",
        &["restart kubelet.service"],
    ),
    (
        "/etc/containers/registries.conf",
        &["reload-or-restart crio.service"],
    ),
    (
        "/etc/containers/policy.json",
        &["reload-or-restart crio.service"],
    ),
    (
        "/etc/containers/registries.conf.d/site.conf",
        &["reload-or-restart crio.service"],
    ),
    (
        "/etc/crio/crio.conf.d/00-default",
        &["restart crio.service"],
    ),
    ("/etc/containers/storage.conf", &["restart crio.service"]),
    (
        "/etc/pki/ca-trust/source/anchors/site.crt",
        &[
            "restart coreos-update-ca-trust.service",
            "restart crio.service",
        ],
    ),
    (
        "/etc/sysctl.d/99-site.conf",
        &["restart systemd-sysctl.service"],
    ),
    (
        "/etc/udev/rules.d/70-site.rules",
        &["udevadm control --reload"],
    ),
    ("/etc/chrony.conf", &["restart chronyd.service"]),
    (
        "/etc/systemd/journald.conf.d/site.conf",
        &["restart systemd-journald.service"],
    ),
    (
        "/etc/systemd/resolved.conf",
        &["restart systemd-resolved.service"],
    ),
    ("/etc/systemd/system.conf.d/site.conf", &["daemon-reload"]),
    (
        "/etc/systemd/system/site.service",
        &["daemon-reload", "restart site.service"],
    ),
    (
        "/etc/systemd/system/site.service.d/10-site.conf",
        &["daemon-reload", "restart site.service"],
    ),
    (
        "/etc/systemd/system/site.timer",
        &["daemon-reload", "restart site.timer"],
    ),
    (
        "/etc/systemd/system/getty@.service",
        &[
            "daemon-reload",
            "restart getty@tty1.service",
            "restart getty@tty2.service",
        ],
    ),
    (
        "/etc/systemd/system/getty@tty1.service.d/a.conf",
        &["daemon-reload", "restart getty@tty1.service"],
    ),
    (
        "/etc/systemd/system/sshd.service.d/a.conf",
        &[
            "daemon-reload",
            "sshd -t, reload sshd.service",
            "restart sshd.service",
        ],
    ),
    // systemd restarts it on its own, with the new file.
    ("/etc/dnsmasq.conf", &[]),
    ("/home/core/.ssh/authorized_keys.d/ignition", &[]),
    ("/root/.ssh/authorized_keys", &[]),
    ("/etc/pam.d/sshd", &[]),
    ("/etc/sudoers.d/site", &[]),
    ("/etc/hosts", &[]),
    ("/etc/resolv.conf", &[]),
];

#[test]
fn every_file_reaches_its_reader() {
    for (path, wanted) in READERS {
        let (jobs, left) = told(&[changed(path)], &facts());
        assert_eq!(jobs, *wanted, "{path}");
        assert_eq!(left, [""; 0], "{path}");
    }
}

/// Files, the jobs for them, and why the trial does not test them.
const UNTESTED: &[(&str, &[&str], &str)] = &[
    ("/etc/fstab", &[], "is read at the next boot"),
    (
        "/etc/modules-load.d/site.conf",
        &[],
        "is read at the next boot",
    ),
    (
        "/etc/systemd/network/10-eth.link",
        &[],
        "is read at the next boot",
    ),
    ("/etc/site/app.conf", &[], "not read by any known service"),
    (
        "/usr/local/bin/site.sh",
        &[],
        "not read by any known service",
    ),
    ("/etc/sysconfig/other", &[], "not read by any known service"),
    (
        "/etc/haproxy/haproxy.cfg",
        &[],
        "haproxy.service when it starts",
    ),
    (
        "/etc/rsyslog.d/site.conf",
        &[],
        "rsyslog.service, which has failed",
    ),
    (
        "/etc/systemd/system/dbus.service.d/a.conf",
        &["daemon-reload"],
        "dbus.service is not restarted",
    ),
    (
        "/etc/systemd/system/setup.service",
        &["daemon-reload"],
        "setup.service is not restarted",
    ),
    (
        "/etc/systemd/system/site.socket",
        &["daemon-reload"],
        "site.socket is not restarted",
    ),
    (
        "/etc/systemd/system/data.mount",
        &["daemon-reload"],
        "data.mount is not restarted",
    ),
];

#[test]
fn a_file_that_the_trial_cannot_test_is_named_with_the_reason() {
    for (path, wanted, words) in UNTESTED {
        let (jobs, left) = told(&[changed(path)], &facts());
        assert_eq!(jobs, *wanted, "{path}");
        assert!(
            left.len() == 1 && left[0].starts_with(path) && left[0].contains(words),
            "{left:?}"
        );
    }
    // On a node where nothing is running, nothing is started.
    let none = ServicesAtWork::default();
    for path in [
        "/etc/ssh/sshd_config",
        KEYFILE,
        "/etc/kubernetes/kubelet.conf",
        "/etc/chrony.conf",
    ] {
        let (jobs, left) = told(&[changed(path)], &none);
        assert!(
            jobs.is_empty() && left[0].contains("it is not running now"),
            "{path}: {left:?}"
        );
    }
}

#[test]
fn the_other_names_of_services_are_known() {
    let mut other = facts();
    let names = [
        ("sshd.service", "ssh.service"),
        ("chronyd.service", "chrony.service"),
    ];
    for (name, renamed) in names {
        let unit = other
            .units
            .iter_mut()
            .find(|unit| unit.name == name)
            .unwrap();
        unit.name = renamed.to_owned();
    }
    let all = [
        changed("/etc/chrony/chrony.conf"),
        changed("/etc/ssh/sshd_config"),
    ];
    assert_eq!(
        told(&all, &other).0,
        ["restart chrony.service", "sshd -t, reload ssh.service"]
    );
    // Each connection starts its own server.
    other.units.retain(|unit| unit.name != "ssh.service");
    other.units.push(UnitActivity {
        name: "sshd.socket".into(),
        active: "active".into(),
        sub: "listening".into(),
    });
    assert_eq!(told(&all[1..], &other).0, ["sshd -t"]);
}

/// The jobs that revert those of the test below.
const RESTORED: &[&str] = &[
    "stop new.service",
    "daemon-reload",
    "restore the kernel's previous settings",
    "reload-or-restart NetworkManager.service",
    "activate the connection /etc/NetworkManager/system-connections/ens3.nmconnection",
    "activate the connection /etc/NetworkManager/system-connections/a-port.nmconnection",
    "reload-or-restart nftables.service",
    "restart chronyd.service",
    "sshd -t, reload sshd.service",
    "restart crio.service",
    "restart kubelet.service",
    "start site.service",
];

#[test]
fn the_manager_comes_first_the_network_before_the_way_in_and_the_kubelet_last() {
    let all = [
        changed("/etc/kubernetes/kubelet.conf"),
        changed("/etc/ssh/sshd_config"),
        changed("/etc/crio/crio.conf.d/a"),
        changed("/etc/sysconfig/nftables.conf"),
        changed(KEYFILE),
        ChangedPath {
            port: true,
            ..changed("/etc/NetworkManager/system-connections/a-port.nmconnection")
        },
        changed("/etc/NetworkManager/conf.d/a.conf"),
        changed("/etc/chrony.conf"),
        changed("/etc/sysctl.d/a.conf"),
        changed("/etc/sysctl.d/b.conf"),
        changed("/etc/ssh/ssh_host_rsa_key"),
        changed("/etc/systemd/system/kubelet.service.d/a.conf"),
        change("/etc/systemd/system/site.service", true, false),
        change(
            "/etc/systemd/system/multi-user.target.wants/new.service",
            false,
            true,
        ),
    ];
    let wanted = [
        "stop site.service",
        "daemon-reload",
        "restart systemd-sysctl.service",
        "reload-or-restart NetworkManager.service",
        "activate the connection /etc/NetworkManager/system-connections/ens3.nmconnection",
        "activate the connection /etc/NetworkManager/system-connections/a-port.nmconnection",
        "reload-or-restart nftables.service",
        "restart chronyd.service",
        "start new.service",
        "sshd -t, reload sshd.service",
        "restart crio.service",
        "restart kubelet.service",
    ];
    assert_eq!(told(&all, &facts()).0, wanted);

    let jobs = activation_jobs(&all, &facts(), &default_policies()).jobs;
    let back: Vec<String> = revert_jobs(&jobs).iter().map(Job::to_string).collect();
    assert_eq!(back, RESTORED);
}

#[test]
fn connections_come_and_go_with_their_files() {
    let one = |before, after| {
        activation_jobs(
            &[change(KEYFILE, before, after)],
            &facts(),
            &default_policies(),
        )
        .jobs
    };
    let path = || KEYFILE.to_owned();
    assert_eq!(one(false, true), [Job::NewConnection(path())]);
    assert_eq!(
        revert_jobs(&one(false, true)),
        [Job::GoneConnection(path())]
    );
    assert_eq!(one(true, false), [Job::GoneConnection(path())]);
    assert_eq!(revert_jobs(&one(true, false)), [Job::NewConnection(path())]);
    assert_eq!(revert_jobs(&one(true, true)), [Job::Connection(path())]);
    for (text, port) in [
        ("[connection]\nid=a\nmaster=bond0\nslave-type=bond\n", true),
        ("[connection]\ncontroller = br-ex\n", true),
        (
            "[connection]\nid=a\ntype=bond\n[bond]\nmode=active-backup\n",
            false,
        ),
    ] {
        assert_eq!(is_port(text.as_bytes()), port, "{text}");
    }
}

#[test]
fn units_run_as_they_would_after_a_boot() {
    let wants = |unit: &str| format!("/etc/systemd/system/multi-user.target.wants/{unit}");
    let reload = "daemon-reload";
    // Enabled and disabled.
    let one = |path: &str, before, after| told(&[change(path, before, after)], &facts()).0;
    assert_eq!(
        one(&wants("new.service"), false, true),
        [reload, "start new.service"]
    );
    assert_eq!(one(&wants("site.service"), false, true), [reload]);
    assert_eq!(
        one(&wants("site.service"), true, false),
        ["stop site.service", reload]
    );
    assert_eq!(one(&wants("new.service"), true, false), [reload]);
    // The other unit that wants it is not running.
    let path = "/etc/systemd/system/other.target.wants/new.service";
    assert_eq!(one(path, false, true), [reload]);
    // A second link still wants it.
    let mut twice = facts();
    let other = path.replace("new", "site");
    twice.links.insert(super::RootPath::parse(&other).unwrap());
    twice
        .links
        .insert(super::RootPath::parse(&wants("site.service")).unwrap());
    let gone = change(&wants("site.service"), true, false);
    assert_eq!(told(std::slice::from_ref(&gone), &twice).0, [reload]);
    let both = [gone.clone(), change(&other, true, false)];
    assert_eq!(told(&both[..1], &facts()).0, ["stop site.service", reload]);
    let moved = [
        gone,
        change(
            "/etc/systemd/system/graphical.target.wants/site.service",
            false,
            true,
        ),
    ];
    assert_eq!(told(&moved, &facts()).0, [reload]);
    // Masked and removed.
    let unit = "/etc/systemd/system/site.service";
    let masked = ChangedPath {
        masks: true,
        ..changed(unit)
    };
    assert_eq!(told(&[masked], &facts()).0, ["stop site.service", reload]);
    assert_eq!(one(unit, true, false), ["stop site.service", reload]);
    let mut shipped = facts();
    shipped.shipped.insert("site.service".into());
    let removed = [change(unit, true, false)];
    assert_eq!(told(&removed, &shipped).0, [reload, "restart site.service"]);
    // Removing a drop-in is a change of its unit.
    let drop_in = "/etc/systemd/system/site.service.d/a.conf";
    assert_eq!(one(drop_in, true, false), [reload, "restart site.service"]);
    // The units that this program and sessions depend on are neither stopped nor restarted.
    let (jobs, left) = told(&[change(&wants("dbus.service"), true, false)], &facts());
    assert!(
        jobs == [reload] && left[0].contains("dbus.service is not restarted"),
        "{left:?}"
    );
}

#[test]
fn pacemaker_alone_restarts_the_kubelet_of_two_nodes() {
    let fenced = ServicesAtWork {
        fencing: true,
        ..facts()
    };
    let all = [
        changed("/etc/kubernetes/kubelet.conf"),
        changed("/etc/systemd/system/kubelet.service.d/a.conf"),
        change(
            "/etc/systemd/system/multi-user.target.wants/kubelet.service",
            true,
            false,
        ),
        changed("/etc/chrony.conf"),
    ];
    let (jobs, left) = told(&all, &fenced);
    assert_eq!(jobs, ["daemon-reload", "restart chronyd.service"]);
    assert_eq!(left.len(), 3);
    assert!(
        left.iter()
            .all(|left| left.contains("Pacemaker manages kubelet")),
        "{left:?}"
    );
}

#[test]
fn an_administrators_policy_counts_and_a_check_of_the_way_in_is_never_left_out() {
    let policy = |path: &str, actions: &[Action]| FilePolicy {
        path: path.to_owned(),
        actions: actions.iter().map(PolicyAction::from).collect(),
    };
    let site = || Action::Restart("site.service".into());
    let sshd = Action::Restart("sshd.service".into());
    let user = crate::judge::daemon::policies::ClusterPolicies {
        files: vec![
            policy("/etc/site", &[site()]),
            policy("/etc/ssh", &[sshd]),
            policy("/etc/chrony.conf", &[Action::None]),
            policy("/etc/quiet", &[Action::None]),
            policy("/etc/hosts", &[Action::Reboot]),
        ],
        ..crate::judge::daemon::policies::ClusterPolicies::default()
    };
    let policies = laid_over_defaults(&user);
    let one = |path: &str| {
        let all = activation_jobs(&[changed(path)], &facts(), &policies);
        all.jobs.iter().map(Job::to_string).collect::<Vec<_>>()
    };
    assert_eq!(one("/etc/site/app.conf"), ["restart site.service"]);
    assert_eq!(
        one("/etc/ssh/sshd_config"),
        ["sshd -t, reload sshd.service", "restart sshd.service"]
    );
    // A policy of `None` does not exempt a file from the trial.
    assert_eq!(one("/etc/chrony.conf"), ["restart chronyd.service"]);
    assert_eq!(one("/etc/hosts"), [""; 0]);
    let quiet = activation_jobs(&[changed("/etc/quiet/app.conf")], &facts(), &policies);
    assert_eq!(quiet, Activation::default());
}

#[test]
fn a_plan_names_its_paths_ports_and_kernel_settings() {
    use crate::base::object::Object;
    use std::borrow::Cow;

    let object = |kind| Object::new(kind, 0o644, (0, 0));
    let put = |at: &str, new: ObjectKind, payload, section| PlannedStep {
        step: Step::Put {
            path: path(at),
            new: object(new),
            old: at.contains("old").then(|| object(ObjectKind::Directory)),
        },
        payload,
        section,
        why: Cow::Borrowed(""),
        label: None,
    };
    let null = || ObjectKind::Symlink {
        target: "/dev/null".into(),
    };
    let bytes = |text: &str| Payload::Bytes(text.as_bytes().to_vec());
    let port = "/etc/NetworkManager/system-connections/p.nmconnection";
    let plan = Plan {
        steps: vec![
            put(
                "/etc/sysctl.d/old.conf",
                ObjectKind::Directory,
                bytes("vm.swappiness=1\n"),
                Section::Files,
            ),
            put(
                "/etc/sysctl.d/kept.conf",
                ObjectKind::Directory,
                Payload::CopyOf(path("/kept")),
                Section::Files,
            ),
            put(
                port,
                ObjectKind::Directory,
                bytes("[connection]\nmaster=b\n"),
                Section::Files,
            ),
            put(
                "/etc/systemd/system/a.service",
                null(),
                Payload::None,
                Section::Units,
            ),
            put(
                "/etc/machine-config-daemon/x",
                ObjectKind::Directory,
                Payload::None,
                Section::Records,
            ),
        ],
        ..Plan::default()
    };
    let read = |at: &RootPath| match at.relative() {
        "etc/sysctl.d/old.conf" => Some(b"net.ipv4.ip_forward=1\n".to_vec()),
        "kept" => Some(b"kernel.panic=0\nnet.ipv4.conf.*.rp_filter=1\n".to_vec()),
        _ => None,
    };
    let settings = [
        "kernel/panic",
        "net/ipv4/conf/*/rp_filter",
        "net/ipv4/ip_forward",
        "vm/swappiness",
    ];
    assert_eq!(changed_settings(&plan, &read), settings);
    let all = changed_paths(&plan, &read);
    let seen: Vec<(bool, bool, bool)> = all
        .iter()
        .map(|one| (one.before, one.masks, one.port))
        .collect();
    assert_eq!(
        seen,
        [
            (true, false, false),
            (false, false, false),
            (false, false, true),
            (false, true, false)
        ]
    );
}
